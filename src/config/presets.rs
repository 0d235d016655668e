//! Knobs whose choices are several settings at once: named presets, or mappings that give every setting.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize, Serializer};

use super::scenario::PolicyConfig;

/// One choice of such a knob.
#[derive(Clone, Debug, PartialEq)]
pub struct Preset<T> {
    /// The name it was chosen by; `None` for a mapping.
    pub name: Option<&'static str>,
    /// What it sets.
    pub values: T,
}

impl<T: Serialize> Serialize for Preset<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.name {
            Some(name) => serializer.serialize_str(name),
            None => self.values.serialize(serializer),
        }
    }
}

/// A choice of `planner_scaling_policy`.
#[derive(Clone, Debug, PartialEq)]
pub enum ScalingPolicy {
    /// The built-in planner with these settings; with both kinds of scaling off, no planner.
    Builtin(Preset<ScalingSettings>),
    /// A planner known to the registry only.
    Registered(PolicyConfig),
}

impl ScalingPolicy {
    /// Whether it may change the number of workers.
    pub fn scales(&self) -> bool {
        match self {
            Self::Builtin(preset) => {
                preset.values.enable_throughput_scaling || preset.values.enable_load_scaling
            }
            Self::Registered(_) => true,
        }
    }

    /// What the registry makes a planner of, if it is that.
    pub fn registered(&self) -> Option<&PolicyConfig> {
        match self {
            Self::Builtin(_) => None,
            Self::Registered(policy) => Some(policy),
        }
    }

    /// The settings of the built-in planner, if it is that.
    pub fn settings(&self) -> Option<&ScalingSettings> {
        match self {
            Self::Builtin(preset) => Some(&preset.values),
            Self::Registered(_) => None,
        }
    }
}

impl Serialize for ScalingPolicy {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Builtin(preset) => preset.serialize(serializer),
            Self::Registered(policy) => PolicyConfig::serialize_one_briefly(policy, serializer),
        }
    }
}

/// When and how the built-in planner scales.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct ScalingSettings {
    /// Scale ahead of forecast load.
    pub enable_throughput_scaling: bool,
    /// Scale after measured load.
    pub enable_load_scaling: bool,
    /// Seconds between two throughput decisions; null where throughput scaling is off.
    #[schemars(required, range(min = 1, max = 1_000_000_000))]
    pub throughput_adjustment_interval_seconds: Option<u32>,
    /// Seconds between two load decisions; null where load scaling is off.
    #[schemars(required, range(min = 1, max = 1_000_000_000))]
    pub load_adjustment_interval_seconds: Option<u32>,
}

/// How the planner samples forward-pass metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct FpmSampling {
    /// Samples kept per store.
    #[schemars(range(min = 1))]
    pub max_num_fpm_samples: u32,
    /// Cells of the sampling grid; a perfect square.
    #[schemars(range(min = 1))]
    pub fpm_sample_bucket_size: u32,
}

/// How readily the planner scales down.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct LoadSensitivity {
    /// Percent of the bound that must not be reached after scaling down, 0 to 100.
    #[schemars(range(max = 100))]
    pub load_scaling_down_sensitivity: u32,
    /// Observations needed before load scaling acts.
    #[schemars(range(min = 1))]
    pub load_min_observations: u32,
}

/// A forecaster and its parameters.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields, default = "LoadPredictor::constant", extend("required" = ["load_predictor"]))]
pub struct LoadPredictor {
    /// Its family.
    pub load_predictor: PredictorFamily,
    /// Whether it works on `ln(1 + x)`.
    pub load_predictor_log1p: bool,
    /// Points that `prophet` looks back on.
    #[schemars(range(min = 1))]
    pub prophet_window_size: u32,
    /// Process noise of `kalman`'s level.
    #[schemars(range(min = 0.0))]
    pub kalman_q_level: f64,
    /// Process noise of `kalman`'s trend.
    #[schemars(range(min = 0.0))]
    pub kalman_q_trend: f64,
    /// Measurement noise of `kalman`.
    #[schemars(range(min = 0.0))]
    pub kalman_r: f64,
    /// Points that `kalman` needs before its forecasts count.
    #[schemars(range(min = 1))]
    pub kalman_min_points: u32,
}

/// A family of forecasters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum PredictorFamily {
    /// The last value.
    Constant,
    /// Autoregressive integrated moving average.
    Arima,
    /// Piecewise linear trend.
    Prophet,
    /// Local linear trend by a Kalman filter.
    Kalman,
}

/// The presets of `planner_scaling_policy`.
pub const SCALING_POLICIES: [Preset<ScalingSettings>; 7] = [
    scaling("disabled", false, false, None, None),
    scaling("throughput_180_5", true, false, Some(180), Some(5)),
    scaling("throughput_600_5", true, false, Some(600), Some(5)),
    scaling("load_180_5", false, true, Some(180), Some(5)),
    scaling("load_180_10", false, true, Some(180), Some(10)),
    scaling("hybrid_180_5", true, true, Some(180), Some(5)),
    scaling("hybrid_600_5", true, true, Some(600), Some(5)),
];

/// The presets of `planner_fpm_sampling`.
pub const FPM_SAMPLINGS: [Preset<FpmSampling>; 4] = [
    sampling("small", 32, 4),
    sampling("default", 64, 16),
    sampling("large", 128, 16),
    sampling("fine", 128, 64),
];

/// The presets of `planner_load_sensitivity`.
pub const LOAD_SENSITIVITIES: [Preset<LoadSensitivity>; 3] =
    [sensitivity("aggressive", 70, 3), sensitivity("default", 80, 5), sensitivity("conservative", 90, 8)];

/// The presets of `load_predictor_candidates`; their order breaks ties.
pub const LOAD_PREDICTORS: [Preset<LoadPredictor>; 11] = [
    predictor("constant_last", PredictorFamily::Constant, false),
    predictor("arima_raw", PredictorFamily::Arima, false),
    predictor("arima_log1p", PredictorFamily::Arima, true),
    prophet("prophet_w20_raw", 20, false),
    prophet("prophet_w20_log1p", 20, true),
    prophet("prophet_w50_raw", 50, false),
    prophet("prophet_w50_log1p", 50, true),
    predictor("kalman_default_raw", PredictorFamily::Kalman, false),
    predictor("kalman_default_log1p", PredictorFamily::Kalman, true),
    reactive("kalman_reactive_raw", false),
    reactive("kalman_reactive_log1p", true),
];

const fn scaling(
    name: &'static str,
    throughput: bool,
    load: bool,
    throughput_seconds: Option<u32>,
    load_seconds: Option<u32>,
) -> Preset<ScalingSettings> {
    Preset {
        name: Some(name),
        values: ScalingSettings {
            enable_throughput_scaling: throughput,
            enable_load_scaling: load,
            throughput_adjustment_interval_seconds: throughput_seconds,
            load_adjustment_interval_seconds: load_seconds,
        },
    }
}

const fn sampling(name: &'static str, samples: u32, bucket: u32) -> Preset<FpmSampling> {
    Preset {
        name: Some(name),
        values: FpmSampling { max_num_fpm_samples: samples, fpm_sample_bucket_size: bucket },
    }
}

const fn sensitivity(name: &'static str, percent: u32, observations: u32) -> Preset<LoadSensitivity> {
    Preset {
        name: Some(name),
        values: LoadSensitivity {
            load_scaling_down_sensitivity: percent,
            load_min_observations: observations,
        },
    }
}

impl LoadPredictor {
    fn constant() -> Self {
        Self::of_family(PredictorFamily::Constant)
    }

    /// A forecaster of this family with the default parameters.
    pub const fn of_family(load_predictor: PredictorFamily) -> Self {
        Self {
            load_predictor,
            load_predictor_log1p: false,
            prophet_window_size: 50,
            kalman_q_level: 1.0,
            kalman_q_trend: 0.1,
            kalman_r: 10.0,
            kalman_min_points: 5,
        }
    }
}

const fn predictor(name: &'static str, family: PredictorFamily, log1p: bool) -> Preset<LoadPredictor> {
    let values = LoadPredictor { load_predictor_log1p: log1p, ..LoadPredictor::of_family(family) };
    Preset { name: Some(name), values }
}

const fn prophet(name: &'static str, window: u32, log1p: bool) -> Preset<LoadPredictor> {
    let values = LoadPredictor {
        prophet_window_size: window,
        load_predictor_log1p: log1p,
        ..LoadPredictor::of_family(PredictorFamily::Prophet)
    };
    Preset { name: Some(name), values }
}

const fn reactive(name: &'static str, log1p: bool) -> Preset<LoadPredictor> {
    let values = LoadPredictor {
        kalman_q_level: 10.0,
        kalman_q_trend: 1.0,
        kalman_r: 5.0,
        kalman_min_points: 3,
        load_predictor_log1p: log1p,
        ..LoadPredictor::of_family(PredictorFamily::Kalman)
    };
    Preset { name: Some(name), values }
}
