//! What prices the passes of a pool, and what a report says about it.

use std::sync::Arc;

use super::assembly::pools;
use crate::config::facts::FactFiles;
use crate::config::scenario::{
    GridConfig, MeasuredFile, MixedPasses, Pool, PricedModel, ProfileConfig, Scenario, TimingConfig,
    UnevenPrompts,
};
use crate::model::{Catalogue, ModelFacts, NumberFormats, Split, WeightFormat};
use crate::report::record::{TimingRecord, TimingSource};
use crate::timing::csv::{RowProblem, RowProblems};
use crate::timing::grid::{self, Measured, MeasuredGrid};
use crate::timing::profile::{
    Entry, Pack, PassOptions, ProfileError, Scale, TableTiming, WantedFamily, WantedShape,
};
use crate::timing::roofline::estimate;
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
    pub(super) fn of(pool: &Pool, facts: &FactFiles) -> Result<Self, String> {
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
            TimingConfig::Roofline(config) => Self::by_roofline(pool, config, facts),
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

    fn by_roofline(pool: &Pool, config: &PricedModel, facts: &FactFiles) -> Result<Self, String> {
        let catalogue = Catalogue::with(facts).map_err(|error| error.to_string())?;
        let (model, hardware) = (config.model_name.as_deref(), config.hardware_sku.as_deref());
        let mut model = catalogue
            .model(model.unwrap_or_default())
            .map_err(|error| format!("timing.model_name: {error}"))?;
        let hardware = catalogue
            .hardware(hardware.unwrap_or_default())
            .map_err(|error| format!("timing.hardware_sku: {error}"))?;
        if let Some(format) = &config.quantization {
            let named = WeightFormat::named(format).ok_or_else(|| {
                format!("timing.quantization: `{format}` is no number format that is known")
            })?;
            model.formats = NumberFormats::uniform(named);
        }
        let split = split_of(pool, config, &model)?;
        let estimate = estimate(&model, &hardware, split, pool.engine.backend).ok_or_else(|| {
            format!(
                "timing.model_name: the operators of {} are not known, since it has latent attention; take a profile or \
                 measured passes",
                model.name
            )
        })?;
        let options = pass_options(pool, config, split.pp, Scale::default());
        let record = TimingRecord {
            source: TimingSource::Roofline,
            id: Some(format!("{} on {}", model.name, hardware.name)),
            digest: Some(estimate.digest),
            caution: Some(estimate.caution),
            ..TimingRecord::default()
        };
        Ok(Self { model: Arc::new(TableTiming::new(Arc::new(estimate.tables), options)), record })
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
        let options = pass_options(pool, &config.of, entry.profile.shape.pp, scale);
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

/// What a pass pays besides the prices of its tables.
fn pass_options(pool: &Pool, config: &PricedModel, stages: u32, scale: Scale) -> PassOptions {
    let first_token_decode = pool.engine.first_token_decode;
    PassOptions {
        stages,
        overhead_ms: config.pass_overhead_ms,
        scale,
        phases_add_up: config.mixed_passes(first_token_decode) == MixedPasses::Summed,
        prompts_are_alike: config.uneven_prompts(first_token_decode) == UnevenPrompts::Mean,
    }
}

/// How a pool splits a model whose facts are known.
fn split_of(pool: &Pool, config: &PricedModel, model: &ModelFacts) -> Result<Split, String> {
    let (tp, attention_dp) = (pool.tensor_parallel_size, pool.dp_size);
    let width = tp.saturating_mul(attention_dp);
    let (moe_tp, moe_ep) = match (config.moe_tp, config.moe_ep) {
        (Some(moe_tp), Some(moe_ep)) => (moe_tp, moe_ep),
        // The experts of a worker spread over as many GPUs as its attention does.
        (Some(moe_tp), None) => (moe_tp, width / moe_tp),
        (None, Some(moe_ep)) => (width / moe_ep, moe_ep),
        (None, None) if model.is_moe() && width > 1 => {
            return Err(format!(
                "timing.moe_ep: is needed for {}, whose experts may be spread over {width} GPUs in several ways",
                model.name
            ));
        }
        (None, None) => (1, 1),
    };
    let split = Split { tp, pp: pool.pipeline_parallel_size, attention_dp, moe_tp, moe_ep };
    match model.split_problem(split) {
        None => Ok(split),
        Some(problem) => Err(format!("timing: {problem}")),
    }
}

/// The profile that prices the passes of a pool.
pub fn profile_of(pool: &Pool, config: &ProfileConfig) -> Result<Entry<'static>, ProfileError> {
    let pack = Pack::embedded();
    let family = pack.family(WantedFamily {
        model_name: config.of.model_name.as_deref().unwrap_or_default(),
        hardware_sku: config.of.hardware_sku.as_deref().unwrap_or_default(),
        backend: pool.engine.backend,
        backend_version: config.backend_version.as_deref(),
        quantization: config.of.quantization.as_deref(),
    })?;
    let shape = WantedShape {
        tp: pool.tensor_parallel_size,
        pp: pool.pipeline_parallel_size,
        attention_dp: pool.dp_size,
        moe_tp: config.of.moe_tp,
        moe_ep: config.of.moe_ep,
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
        .filter_map(|(role, pool)| Some((role.name(), Pricing::of(pool, &scenario.facts).ok()?.record)));
    records.collect()
}
