//! Reads what prices a pass.

use super::numbers::Limit;
use super::read_engine::MOST_GPUS_PER_AXIS;
use super::reader::Section;
use super::timing::{GridConfig, MeasuredFile, PricedModel, ProfileConfig, TimingConfig};
use super::value::{Named, Value, name_of};

/// Where the timing stands.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Timing {
    /// Of a pool: a profile has to name model and hardware.
    OfPool,
    /// Of a search: a profile takes what it does not name from the search space.
    OfSearch,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Model {
    Polynomial,
    Fixed,
    Grid,
    Profile,
    Roofline,
}

impl Named for Model {
    const NAMES: &'static [(&'static str, Self)] = &[
        ("polynomial", Self::Polynomial),
        ("fixed", Self::Fixed),
        ("grid", Self::Grid),
        ("profile", Self::Profile),
        ("roofline", Self::Roofline),
    ];
}

/// Every key that one model or another has.
const KEYS: [(&str, &[Model]); 13] = [
    ("prefill_ms", &[Model::Fixed]),
    ("decode_ms", &[Model::Fixed]),
    ("path", &[Model::Grid]),
    ("model_name", &[Model::Profile, Model::Roofline]),
    ("hardware_sku", &[Model::Profile, Model::Roofline]),
    ("backend_version", &[Model::Profile]),
    ("quantization", &[Model::Profile, Model::Roofline]),
    ("moe_tp", &[Model::Profile, Model::Roofline]),
    ("moe_ep", &[Model::Profile, Model::Roofline]),
    ("mixed_passes", &[Model::Profile, Model::Roofline]),
    ("uneven_prompts", &[Model::Profile, Model::Roofline]),
    ("rescale", &[Model::Profile]),
    ("pass_overhead_ms", &[Model::Profile, Model::Grid, Model::Roofline]),
];

/// Reads what prices a pass.
pub(super) fn timing(value: &Value<'_>, whose: Timing) -> Option<TimingConfig> {
    value.section(|section| read(section, whose)).flatten()
}

fn read(section: &Section<'_>, whose: Timing) -> Option<TimingConfig> {
    let model = section.choice("model").required();
    for (key, owners) in KEYS {
        if section.has(key) && model.is_some_and(|model| !owners.contains(&model)) {
            let owners: Vec<_> = owners.iter().map(|owner| format!("`model: {}`", name_of(*owner))).collect();
            section.problem(key, format!("belongs to {}", owners.join(" and ")));
        }
    }
    let overhead = || section.float("pass_overhead_ms", Limit::PassTime).or(0.0);
    let file = |key| section.read(key, |value| value.path().map(MeasuredFile::from));
    let name = |key| match whose {
        Timing::OfPool => section.text(key).required(),
        Timing::OfSearch => section.text(key).optional(),
    };
    let axis = |key| section.integer(key, 1..=MOST_GPUS_PER_AXIS).optional();
    let priced = || PricedModel {
        model_name: name("model_name"),
        hardware_sku: name("hardware_sku"),
        quantization: section.text("quantization").optional(),
        moe_tp: axis("moe_tp"),
        moe_ep: axis("moe_ep"),
        mixed_passes: section.choice("mixed_passes").optional(),
        uneven_prompts: section.choice("uneven_prompts").optional(),
        pass_overhead_ms: overhead(),
    };
    Some(match model? {
        Model::Polynomial => TimingConfig::Polynomial,
        Model::Fixed => {
            let prefill_ms = section.float("prefill_ms", Limit::PassTime).required();
            let decode_ms = section.float("decode_ms", Limit::PassTime).required();
            TimingConfig::Fixed { prefill_ms: prefill_ms?, decode_ms: decode_ms? }
        }
        Model::Grid => {
            let path = file("path").required();
            TimingConfig::Grid(GridConfig { pass_overhead_ms: overhead(), path: path? })
        }
        Model::Profile => TimingConfig::Profile(ProfileConfig {
            of: priced(),
            backend_version: section.text("backend_version").optional(),
            rescale: file("rescale").optional(),
        }),
        Model::Roofline => TimingConfig::Roofline(priced()),
    })
}
