//! Reads the choices of knobs that are several settings at once.

use super::inert::Rule;
use super::numbers::Limit;
use super::presets::{
    FpmSampling, LoadPredictor, LoadSensitivity, PredictorFamily, Preset, SCALING_POLICIES, ScalingPolicy,
    ScalingSettings,
};
use super::reader::Section;
use super::schema::Composite;
use super::value::Value;

/// A preset, a mapping of all four settings, or a planner of the registry by name or as `{policy: name, ...}`.
///
/// A name that is no preset may be a registered planner's, which only the registry knows.
pub(super) fn scaling_policy(value: &Value<'_>) -> Option<ScalingPolicy> {
    if value.is_mapping() && value.node().get("policy").is_none() {
        let values = value.section(scaling_settings).flatten()?;
        return Some(ScalingPolicy::Builtin(Preset { name: None, values }));
    }
    let policy = value.policy(None)?;
    let preset = SCALING_POLICIES.iter().find(|preset| preset.name == Some(policy.policy.as_str()));
    Some(match preset {
        Some(preset) if policy.fields.is_empty() => ScalingPolicy::Builtin(preset.clone()),
        _ => ScalingPolicy::Registered(policy),
    })
}

fn scaling_settings(section: &Section<'_>) -> Option<ScalingSettings> {
    let enable_throughput_scaling = section.boolean("enable_throughput_scaling").required();
    let enable_load_scaling = section.boolean("enable_load_scaling").required();
    let throughput_seconds =
        interval(section, "throughput_adjustment_interval_seconds", enable_throughput_scaling);
    let load_seconds = interval(section, "load_adjustment_interval_seconds", enable_load_scaling);
    if let (Some(true), Some(true), Some(throughput), Some(load)) =
        (enable_throughput_scaling, enable_load_scaling, throughput_seconds, load_seconds)
        && load >= throughput
    {
        let message = format!("{load} s is not below the throughput interval of {throughput} s");
        section.problem("load_adjustment_interval_seconds", message);
    }
    section.check_inert([
        Rule::telling(
            "throughput_adjustment_interval_seconds",
            throughput_seconds.is_some(),
            enable_throughput_scaling != Some(false),
            "with `enable_throughput_scaling: false`",
        ),
        Rule::telling(
            "load_adjustment_interval_seconds",
            load_seconds.is_some(),
            enable_throughput_scaling != Some(false) || enable_load_scaling != Some(false),
            "without scaling of either kind",
        ),
    ]);
    Some(ScalingSettings {
        enable_throughput_scaling: enable_throughput_scaling?,
        enable_load_scaling: enable_load_scaling?,
        throughput_adjustment_interval_seconds: throughput_seconds,
        load_adjustment_interval_seconds: load_seconds,
    })
}

/// The key has to be there; null is for scaling that is off.
fn interval(section: &Section<'_>, key: &'static str, enabled: Option<bool>) -> Option<u32> {
    let read = section.integer(key, 1..=MOST_SECONDS);
    if enabled == Some(true) || section.value(key).is_none() { read.required() } else { read.optional() }
}

/// Thirty years: more than any run, and few enough seconds to count nanoseconds with.
const MOST_SECONDS: u32 = 1_000_000_000;

pub(super) fn fpm_sampling(value: &Value<'_>) -> Option<Preset<FpmSampling>> {
    composite(value, |section| {
        let max_num_fpm_samples = section.integer("max_num_fpm_samples", 1..=u32::MAX).required();
        let bucket = section.integer("fpm_sample_bucket_size", 1..=u32::MAX).required();
        if let Some(bucket) = bucket.filter(|bucket| bucket.isqrt().pow(2) != *bucket) {
            let (below, above) = (bucket.isqrt().pow(2), (u64::from(bucket.isqrt()) + 1).pow(2));
            let message = format!("{bucket} is not a perfect square; the nearest are {below} and {above}");
            section.problem("fpm_sample_bucket_size", message);
        }
        Some(FpmSampling { max_num_fpm_samples: max_num_fpm_samples?, fpm_sample_bucket_size: bucket? })
    })
}

pub(super) fn load_sensitivity(value: &Value<'_>) -> Option<Preset<LoadSensitivity>> {
    composite(value, |section| {
        let sensitivity = section.integer("load_scaling_down_sensitivity", 0..=100_u32).required();
        let observations = section.integer("load_min_observations", 1..=u32::MAX).required();
        Some(LoadSensitivity {
            load_scaling_down_sensitivity: sensitivity?,
            load_min_observations: observations?,
        })
    })
}

pub(super) fn load_predictor(value: &Value<'_>) -> Option<Preset<LoadPredictor>> {
    composite(value, |section| {
        let family = section.choice::<PredictorFamily>("load_predictor").required();
        let defaults = LoadPredictor::of_family(family.unwrap_or(PredictorFamily::Constant));
        let values = LoadPredictor {
            load_predictor_log1p: section.boolean("load_predictor_log1p").or(false),
            prophet_window_size: section
                .integer("prophet_window_size", 1..=u32::MAX)
                .or(defaults.prophet_window_size),
            kalman_q_level: section.float("kalman_q_level", Limit::NotNegative).or(defaults.kalman_q_level),
            kalman_q_trend: section.float("kalman_q_trend", Limit::NotNegative).or(defaults.kalman_q_trend),
            kalman_r: section.float("kalman_r", Limit::NotNegative).or(defaults.kalman_r),
            kalman_min_points: section
                .integer("kalman_min_points", 1..=u32::MAX)
                .or(defaults.kalman_min_points),
            ..defaults
        };
        let family = family?;
        let prophet = family == PredictorFamily::Prophet;
        let kalman = family == PredictorFamily::Kalman;
        let (of_prophet, of_kalman) =
            ("without `load_predictor: prophet`", "without `load_predictor: kalman`");
        section.check_inert([
            Rule::refusing(
                "load_predictor_log1p",
                values.load_predictor_log1p,
                family != PredictorFamily::Constant,
                "with `load_predictor: constant`",
            ),
            Rule::refusing(
                "prophet_window_size",
                values.prophet_window_size != defaults.prophet_window_size,
                prophet,
                of_prophet,
            ),
            Rule::refusing(
                "kalman_q_level",
                values.kalman_q_level != defaults.kalman_q_level,
                kalman,
                of_kalman,
            ),
            Rule::refusing(
                "kalman_q_trend",
                values.kalman_q_trend != defaults.kalman_q_trend,
                kalman,
                of_kalman,
            ),
            Rule::refusing("kalman_r", values.kalman_r != defaults.kalman_r, kalman, of_kalman),
            Rule::refusing(
                "kalman_min_points",
                values.kalman_min_points != defaults.kalman_min_points,
                kalman,
                of_kalman,
            ),
        ]);
        Some(values)
    })
}

/// A preset, or a mapping that `read` takes; an empty one says nothing and is refused.
fn composite<T: Composite>(
    value: &Value<'_>,
    read: impl FnOnce(&Section<'_>) -> Option<T>,
) -> Option<Preset<T>> {
    if !value.is_mapping() {
        return value.preset();
    }
    let values = value.section(|section| read(section)).flatten()?;
    Some(Preset { name: None, values })
}
