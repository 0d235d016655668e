//! Which profile prices the candidates of a search.

use super::refusal::Refusal;
use crate::config::scenario::{Backend, PricedModel, ProfileConfig, TimingConfig};
use crate::config::search::{SearchSpace, Shape};
use crate::report::record::{TimingRecord, TimingSource};
use crate::timing::profile::{self, Family, Pack, ProfileError, WantedFamily};

/// What a search says of its profile; the layout is each candidate's own.
#[derive(Clone, Copy, Debug)]
pub(super) struct ProfileNames<'a> {
    pub(super) model_name: &'a str,
    pub(super) hardware_sku: &'a str,
    pub(super) backend_version: Option<&'a str>,
    pub(super) quantization: Option<&'a str>,
}

impl<'a> ProfileNames<'a> {
    /// `None` if something else prices the candidates.
    pub(super) fn of(space: &'a SearchSpace) -> Option<Self> {
        let TimingConfig::Profile(named) = &space.timing else { return None };
        let ProfileConfig { of, backend_version, .. } = named;
        let PricedModel { model_name, hardware_sku, quantization, .. } = of;
        Some(Self {
            model_name: model_name.as_ref().unwrap_or(&space.model_name),
            hardware_sku: hardware_sku.as_ref().unwrap_or(&space.hardware_sku),
            backend_version: backend_version.as_ref().or(space.backend_version.as_ref()).map(String::as_str),
            quantization: quantization.as_deref(),
        })
    }

    /// What a search says of its model and hardware where no profile prices the candidates.
    pub(super) fn estimated(space: &'a SearchSpace) -> Self {
        let estimate = match &space.timing {
            TimingConfig::Roofline(estimate) => Some(estimate),
            _ => None,
        };
        let named = |name: fn(&PricedModel) -> &Option<String>| {
            estimate.and_then(|estimate| name(estimate).as_deref())
        };
        Self {
            model_name: named(|estimate| &estimate.model_name).unwrap_or(&space.model_name),
            hardware_sku: named(|estimate| &estimate.hardware_sku).unwrap_or(&space.hardware_sku),
            backend_version: None,
            quantization: named(|estimate| &estimate.quantization),
        }
    }

    /// The profiles of one engine.
    pub(super) fn family(self, backend: Backend) -> Result<&'static Family, ProfileError> {
        let Self { model_name, hardware_sku, backend_version, quantization } = self;
        Pack::embedded().family(WantedFamily {
            model_name,
            hardware_sku,
            backend,
            backend_version,
            quantization,
        })
    }
}

/// Why the prices of candidates are no ground for a choice, for each engine with such prices.
pub(super) fn doubts(space: &SearchSpace) -> Vec<Refusal> {
    let record = |backend: Backend| match &space.timing {
        TimingConfig::Profile(_) => {
            let family = ProfileNames::of(space)?.family(backend).ok()?;
            let (id, suspect) = (Some(family.name.clone()), family.suspect.clone());
            Some(TimingRecord { source: TimingSource::Profile, id, suspect, ..TimingRecord::default() })
        }
        TimingConfig::Roofline(_) => {
            let ProfileNames { model_name, hardware_sku, .. } = ProfileNames::estimated(space);
            let id = Some(format!("{model_name} on {hardware_sku}"));
            Some(TimingRecord { source: TimingSource::Roofline, id, ..TimingRecord::default() })
        }
        TimingConfig::Polynomial | TimingConfig::Fixed { .. } => Some(TimingRecord::default()),
        TimingConfig::Grid(_) => None,
    };
    let doubt = |backend: &Backend| {
        let reason = record(*backend)?.doubt()?;
        Some(Refusal::new("search_space.timing", format!("candidates with {}: {reason}", backend.name())))
    };
    space.backend.iter().filter_map(doubt).collect()
}

/// The versions of the profiles that price the candidates of each engine.
pub(super) fn versions(space: &SearchSpace) -> Vec<(Backend, String)> {
    let Some(names) = ProfileNames::of(space) else { return Vec::new() };
    let version = |backend: &Backend| Some((*backend, names.family(*backend).ok()?.version.clone()));
    space.backend.iter().filter_map(version).collect()
}

/// That there is no profile at all for an engine, without everything that there is instead.
pub(super) fn absence(space: &SearchSpace, backend: Backend, error: &ProfileError) -> String {
    match (error.field, ProfileNames::of(space)) {
        ("model_name" | "hardware_sku" | "backend", Some(names)) => format!(
            "there is no timing profile of {} on {} with {}",
            names.model_name,
            names.hardware_sku,
            backend.name()
        ),
        _ => error.message.clone(),
    }
}

/// Names of the timing that are not those of the search space: candidates would be priced as what nobody serves.
pub(super) fn contradictions(space: &SearchSpace) -> Vec<Refusal> {
    let Some(priced) = space.timing.priced() else { return Vec::new() };
    let names = [
        ("model_name", &priced.model_name, &space.model_name),
        ("hardware_sku", &priced.hardware_sku, &space.hardware_sku),
    ];
    let refusal = |(key, of_timing, of_space): (&str, &Option<String>, &String)| {
        let of_timing = of_timing.as_ref().filter(|name| !Pack::embedded().prices_alike(name, of_space))?;
        let message = format!("`{of_timing}` differs from `{of_space}` in `search_space.{key}`");
        Some(Refusal::new(format!("search_space.timing.{key}"), message))
    };
    names.into_iter().filter_map(refusal).collect()
}

/// A version or a number format of which no engine has a profile, with those that there are.
pub(super) fn unknown(space: &SearchSpace) -> Vec<Refusal> {
    let Some(names) = ProfileNames::of(space) else { return Vec::new() };
    let Ok(errors) = space.backend.iter().map(|backend| names.family(*backend).err().ok_or(())).collect()
    else {
        return Vec::new();
    };
    let errors: Vec<ProfileError> = errors;
    let named: Vec<&ProfileError> =
        errors.iter().filter(|error| matches!(error.field, "backend_version" | "quantization")).collect();
    let Some(field) = named.first().map(|error| error.field) else { return Vec::new() };
    let in_timing = match &space.timing {
        TimingConfig::Profile(given) => {
            field != "backend_version" || given.backend_version != space.backend_version
        }
        _ => false,
    };
    let key =
        if in_timing { format!("search_space.timing.{field}") } else { format!("search_space.{field}") };
    let mut messages: Vec<&str> = named.iter().map(|error| error.message.as_str()).collect();
    messages.dedup();
    vec![Refusal::new(key, messages.join("; "))]
}

/// Why a family has no profile of a shape, if so.
pub(super) fn shape_problem(family: &Family, shape: &Shape) -> Option<String> {
    let Shape { tp, pp, attention_dp, moe_tp, moe_ep, replicas: _ } = *shape;
    let pack = Pack::embedded();
    let shape = profile::Shape { tp, pp, attention_dp, moe_tp, moe_ep };
    if pack.profile(family, shape).is_some() {
        return None;
    }
    let skip = pack.skips(family).iter().find(|skip| skip.shape == shape);
    let reason = skip.map_or("", |skip| skip.reason.as_str());
    Some(match reason {
        "" => format!("{} has no profile of this shape", family.name),
        reason => format!("{} has no profile of this shape: {reason}", family.name),
    })
}

/// The timing of a candidate: a profile is narrowed down to its layout and its version.
pub(super) fn narrowed(timing: &TimingConfig, shape: &Shape, version: Option<&str>) -> TimingConfig {
    let mut timing = timing.clone();
    match &mut timing {
        TimingConfig::Profile(profile) => {
            profile.backend_version = version.map(str::to_owned);
            (profile.of.moe_tp, profile.of.moe_ep) = (Some(shape.moe_tp), Some(shape.moe_ep));
        }
        TimingConfig::Roofline(estimate) => {
            (estimate.moe_tp, estimate.moe_ep) = (Some(shape.moe_tp), Some(shape.moe_ep));
        }
        TimingConfig::Polynomial | TimingConfig::Fixed { .. } | TimingConfig::Grid(_) => {}
    }
    timing
}
