//! What prices the passes of a pool, and what a report says about it.

use std::sync::Arc;

use super::assembly::pools;
use crate::config::scenario::{
    GridConfig, MeasuredFile, MixedPasses, Pool, ProfileConfig, Scenario, TimingConfig,
};
use crate::report::record::{TimingRecord, TimingSource};
use crate::timing::csv::{RowProblem, RowProblems};
use crate::timing::grid::{self, Measured, MeasuredGrid};
use crate::timing::profile::{
    Entry, Pack, PassOptions, ProfileError, Scale, TableTiming, WantedFamily, WantedShape,
};
use crate::timing::{Fixed, Polynomial, TimingModel};

/// The timing of a pool: one model for all of its ranks.
#[derive(Clone, Debug)]
pub(super) struct Pricing {
    pub(super) model: Arc<dyn TimingModel>,
    /// Where its prices come from; what it had to extrapolate is not known before the run.
    pub(super) record: TimingRecord,
}

impl Pricing {
    /// The timing that `pool` asks for.
    ///
    /// # Errors
    /// The key below the pool's that cannot be met, and why.
    pub(super) fn of(pool: &Pool) -> Result<Self, String> {
        match &pool.timing {
            TimingConfig::Fixed { prefill_ms, decode_ms } => {
                let model = Fixed { prefill_ms: *prefill_ms, decode_ms: *decode_ms };
                Ok(Self::plain(TimingSource::Fixed, Arc::new(model)))
            }
            TimingConfig::Polynomial => {
                let capacity = u64::from(pool.engine.num_gpu_blocks) * u64::from(pool.engine.block_size);
                Ok(Self::plain(TimingSource::Polynomial, Arc::new(Polynomial::new(capacity))))
            }
            TimingConfig::Grid(config) => Self::by_grid(config),
            TimingConfig::Profile(config) => Self::by_profile(pool, config),
        }
    }

    /// Where its prices came from, after a run.
    pub(super) fn into_record(self) -> TimingRecord {
        TimingRecord { extrapolated_lookups: self.model.extrapolated_lookups(), ..self.record }
    }

    fn plain(source: TimingSource, model: Arc<dyn TimingModel>) -> Self {
        Self { model, record: TimingRecord { source, ..TimingRecord::default() } }
    }

    fn by_grid(config: &GridConfig) -> Result<Self, String> {
        let bytes = content(&config.path)?;
        let grid = MeasuredGrid::read(bytes).map_err(|problems| listed(&config.path, problems))?;
        let record = TimingRecord {
            source: TimingSource::Grid,
            id: Some(config.path.path.display().to_string()),
            digest: Some(grid::digest(bytes)),
            caution: grid.caution(),
            ..TimingRecord::default()
        };
        Ok(Self { model: grid.timing(config.pass_overhead_ms), record })
    }

    fn by_profile(pool: &Pool, config: &ProfileConfig) -> Result<Self, String> {
        let entry = profile_of(pool, config).map_err(|error| at_key(&error))?;
        let scale = match &config.rescale {
            None => Scale::default(),
            Some(file) => {
                let measured = Measured::read(content(file)?).map_err(|problems| listed(file, problems))?;
                entry.pass_tables().scale_to(&measured)
            }
        };
        let options = PassOptions {
            stages: entry.profile.shape.pp,
            overhead_ms: config.pass_overhead_ms,
            scale,
            phases_add_up: match config.mixed_passes {
                None => pool.engine.first_token_decode,
                Some(mixed) => mixed == MixedPasses::Summed,
            },
        };
        let record = TimingRecord {
            source: TimingSource::Profile,
            id: Some(entry.profile.id.clone()),
            digest: Some(entry.digest()),
            suspect: entry.family.suspect.clone(),
            caution: caution(entry),
            prefill_scale: config.rescale.as_ref().map(|_| scale.prefill),
            decode_scale: config.rescale.as_ref().map(|_| scale.decode),
            extrapolated_lookups: None,
        };
        Ok(Self { model: Arc::new(TableTiming::new(entry.pass_tables(), options)), record })
    }
}

/// The profile that prices the passes of a pool.
pub fn profile_of(pool: &Pool, config: &ProfileConfig) -> Result<Entry<'static>, ProfileError> {
    let pack = Pack::embedded();
    let family = pack.family(WantedFamily {
        model_name: config.model_name.as_deref().unwrap_or_default(),
        hardware_sku: config.hardware_sku.as_deref().unwrap_or_default(),
        backend: pool.engine.backend,
        backend_version: config.backend_version.as_deref(),
        quantization: config.quantization.as_deref(),
    })?;
    let shape = WantedShape {
        tp: pool.tensor_parallel_size,
        pp: pool.pipeline_parallel_size,
        attention_dp: pool.dp_size,
        moe_tp: config.moe_tp,
        moe_ep: config.moe_ep,
    };
    pack.under(family, shape)
}

/// What a file of measured passes holds.
fn content(file: &MeasuredFile) -> Result<&[u8], String> {
    file.content.as_deref().ok_or_else(|| format!("timing: {} was not read", file.path.display()))
}

/// The problems of a file, one to a line.
fn listed(file: &MeasuredFile, problems: Vec<RowProblem>) -> String {
    let problems = RowProblems { file: file.path.display().to_string(), problems };
    format!("timing: {problems}")
}

/// What is known to be odd about a profile, short of being suspect.
fn caution(entry: Entry<'_>) -> Option<String> {
    let note = Some(entry.family.note.as_str()).filter(|note| !note.is_empty());
    let remarks = [note, entry.profile.caution.as_deref()].into_iter().flatten().collect::<Vec<_>>();
    (!remarks.is_empty()).then(|| remarks.join("; "))
}

/// The error in terms of the keys of a pool.
fn at_key(error: &ProfileError) -> String {
    match error.field {
        "backend" => format!("engine.backend: {}", error.message),
        "shape" => format!("timing: {}", error.message),
        field => format!("timing.{field}: {}", error.message),
    }
}

/// Where the prices of each pool of a scenario come from, by the pool's name; a pool whose timing is refused is left out.
pub fn timing_records(scenario: &Scenario) -> Vec<(&'static str, TimingRecord)> {
    let records = pools(scenario)
        .into_iter()
        .filter_map(|(role, pool)| Some((role.name(), Pricing::of(pool).ok()?.record)));
    records.collect()
}
