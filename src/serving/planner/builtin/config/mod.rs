//! The built-in planner's fields: their names and defaults are those of the reference.

mod problems;

use serde::de::Error;
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

use super::easy::Thresholds;
use super::model::FeatureKind;
use crate::config::scenario::{DeploymentMode, PolicyConfig};

/// The fields as written; whatever is absent takes its default.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Fields {
    mode: Option<String>,
    optimization_target: Option<TargetName>,
    enable_throughput_scaling: Option<bool>,
    enable_load_scaling: Option<bool>,
    #[serde(alias = "throughput_adjustment_interval")]
    throughput_adjustment_interval_seconds: Option<u32>,
    #[serde(alias = "load_adjustment_interval")]
    load_adjustment_interval_seconds: Option<u32>,
    max_throughput_scaling_replicas: Option<u32>,
    max_gpu_budget: Option<i64>,
    min_gpu_budget: Option<i64>,
    min_endpoint: Option<u32>,
    prefill_min_endpoint: Option<u32>,
    decode_min_endpoint: Option<u32>,
    #[serde(alias = "ttft")]
    ttft_ms: Option<f64>,
    #[serde(alias = "itl")]
    itl_ms: Option<f64>,
    load_predictor: Option<Value>,
    load_predictor_log1p: Option<bool>,
    prophet_window_size: Option<u32>,
    kalman_q_level: Option<f64>,
    kalman_q_trend: Option<f64>,
    kalman_r: Option<f64>,
    kalman_min_points: Option<u32>,
    max_num_fpm_samples: Option<u32>,
    fpm_sample_bucket_size: Option<u32>,
    load_min_observations: Option<u32>,
    load_scaling_down_sensitivity: Option<u32>,
    prefill_scale_up_queue_tokens: Option<u32>,
    prefill_scale_down_queue_tokens: Option<u32>,
    decode_scale_up_kv_rate: Option<f64>,
    decode_scale_down_kv_rate: Option<f64>,
    speculative_nextn: Option<u32>,
    fpm_features: Option<FeatureKind>,
    fpm_tie_seed: Option<u64>,
    assumed_gpu_blocks: Option<u32>,
    #[serde(deserialize_with = "by_keys")]
    scheduling: Option<Scheduling>,
    // Known to the reference, without an effect in a replay or not built.
    prefill_engine_num_gpu: Option<Value>,
    decode_engine_num_gpu: Option<Value>,
    load_predictor_warmup_trace: Option<Value>,
    ais_perf_model: Option<Value>,
    pre_deployment_sweeping_mode: Option<Value>,
    advisory: Option<Value>,
    enable_power_awareness: Option<Value>,
    total_gpu_power_limit: Option<Value>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Scheduling {
    scale_interval_seconds: Option<f64>,
    tick_max_duration_seconds: Option<Value>,
}

/// Reads keys with values; serde would take a list for them as well.
fn by_keys<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Scheduling>, D::Error> {
    let keys = Option::<Map<String, Value>>::deserialize(deserializer)?;
    keys.map(|keys| serde_json::from_value(Value::Object(keys)).map_err(D::Error::custom)).transpose()
}

/// `optimization_target` as written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum TargetName {
    #[default]
    Throughput,
    Latency,
    Load,
    Sla,
}

/// What the planner aims for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Target {
    /// Fixed thresholds.
    Easy(EasyTarget),
    /// The bounds of requests.
    Sla,
}

impl Target {
    /// Short queues and much room.
    pub const LATENCY: Self = Self::Easy(EasyTarget::Latency);
}

/// Whose thresholds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum EasyTarget {
    /// Full workers.
    Throughput,
    /// Short queues and much room.
    Latency,
    /// The user's: queued prompt tokens, and shares of the KV cache.
    Load {
        /// Up and down for prompts.
        queue_tokens: (f64, f64),
        /// Up and down for generating requests.
        kv_share: (f64, f64),
    },
}

impl EasyTarget {
    /// Of queued prompt tokens over the longest sequence, or for [`EasyTarget::Load`] of the tokens themselves.
    pub fn prefill_thresholds(&self) -> Thresholds {
        let (up, down, down_inclusive) = match *self {
            Self::Throughput => (1.0, 0.1, false),
            Self::Latency => (0.1, 0.0, true),
            Self::Load { queue_tokens: (up, down), .. } => (up, down, true),
        };
        Thresholds { up, up_inclusive: true, down, down_inclusive }
    }

    /// Of the share of the KV cache in use.
    pub fn decode_thresholds(&self) -> Thresholds {
        let (up, down, inclusive) = match *self {
            Self::Throughput => (1.0, 0.6, false),
            Self::Latency => (0.4, 0.1, false),
            Self::Load { kv_share: (up, down), .. } => (up, down, true),
        };
        Thresholds { up, up_inclusive: inclusive, down, down_inclusive: inclusive }
    }
}

/// The fields with every default.
#[derive(Clone, Debug)]
pub struct PlannerConfig {
    /// What it aims for.
    pub target: Target,
    /// Scale ahead of forecast traffic.
    pub throughput_scaling: bool,
    /// Scale after measured load.
    pub load_scaling: bool,
    /// Between two throughput decisions.
    pub throughput_interval_s: u32,
    /// Between two load decisions, and two rounds of learning.
    pub load_interval_s: u32,
    /// Between two ticks, in milliseconds.
    pub tick_ms: u64,
    /// Largest step of throughput scaling.
    pub max_step: u32,
    /// GPUs at most; negative does not bind.
    pub max_gpu_budget: i64,
    /// GPUs at least; negative does not bind.
    pub min_gpu_budget: i64,
    /// Fewest workers of prefill pools.
    pub prefill_min_endpoint: u32,
    /// Fewest workers of other pools.
    pub decode_min_endpoint: u32,
    /// Bound of the time to first token.
    pub ttft_ms: f64,
    /// Bound of the gap between tokens.
    pub itl_ms: f64,
    /// Who forecasts.
    pub predictor: PolicyConfig,
    /// Samples of each store.
    pub max_samples: u32,
    /// Cells of each store's grid.
    pub cells: u32,
    /// Samples from which on a store predicts.
    pub min_observations: u32,
    /// Percent of a bound that must not be reached after scaling down.
    pub sensitivity: u32,
    /// Draft tokens that the planner goes by; 0 takes the engine's.
    pub speculative_nextn: u32,
    /// What the regression goes by.
    pub features: FeatureKind,
    /// Seed of the draws between samples of equal standing; without one the first goes.
    pub tie_seed: Option<u64>,
    /// KV blocks that a rank is taken to have; without a number those that it has.
    pub assumed_gpu_blocks: Option<u32>,
}

impl Fields {
    /// Whether both pools may be scaled: `None` before the deployment is known.
    fn is_agg(&self, mode: Option<DeploymentMode>) -> bool {
        mode == Some(DeploymentMode::Agg) || (mode.is_none() && self.mode.as_deref() == Some("agg"))
    }

    fn target_name(&self) -> TargetName {
        self.optimization_target.unwrap_or_default()
    }

    fn scales_throughput(&self) -> bool {
        self.target_name() == TargetName::Sla && self.enable_throughput_scaling.unwrap_or(true)
    }

    fn scales_load(&self) -> bool {
        self.target_name() != TargetName::Sla || self.enable_load_scaling.unwrap_or(false)
    }

    /// The fields with their defaults; of those that are wrong, whatever is harmless.
    pub fn resolve(&self) -> PlannerConfig {
        let load_interval_s = self.load_adjustment_interval_seconds.unwrap_or(5).max(1);
        let throughput_interval_s = self.throughput_adjustment_interval_seconds.unwrap_or(180).max(1);
        let min_endpoint = self.min_endpoint.unwrap_or(1);
        PlannerConfig {
            target: self.target(),
            throughput_scaling: self.scales_throughput(),
            load_scaling: self.scales_load(),
            throughput_interval_s,
            load_interval_s,
            tick_ms: self.given_tick_ms().unwrap_or_else(|| self.derived_tick_ms()),
            max_step: self.max_throughput_scaling_replicas.unwrap_or(8),
            max_gpu_budget: self.max_gpu_budget.unwrap_or(8),
            min_gpu_budget: self.min_gpu_budget.unwrap_or(-1),
            prefill_min_endpoint: self.prefill_min_endpoint.unwrap_or(min_endpoint),
            decode_min_endpoint: self.decode_min_endpoint.unwrap_or(min_endpoint),
            ttft_ms: self.ttft_ms.unwrap_or(500.0),
            itl_ms: self.itl_ms.unwrap_or(50.0),
            predictor: self.predictor(),
            max_samples: self.max_num_fpm_samples.unwrap_or(64),
            cells: self.fpm_sample_bucket_size.unwrap_or(16),
            min_observations: self.load_min_observations.unwrap_or(5),
            sensitivity: self.load_scaling_down_sensitivity.unwrap_or(80),
            speculative_nextn: self.speculative_nextn.unwrap_or(0),
            features: self.fpm_features.unwrap_or_default(),
            tie_seed: self.fpm_tie_seed,
            assumed_gpu_blocks: self.assumed_gpu_blocks,
        }
    }

    fn target(&self) -> Target {
        match self.target_name() {
            TargetName::Throughput => Target::Easy(EasyTarget::Throughput),
            TargetName::Latency => Target::LATENCY,
            TargetName::Sla => Target::Sla,
            TargetName::Load => {
                let tokens = |field: Option<u32>| field.map_or(0.0, f64::from);
                let share = |field: Option<f64>| field.unwrap_or(0.0) / 100.0;
                Target::Easy(EasyTarget::Load {
                    queue_tokens: (
                        tokens(self.prefill_scale_up_queue_tokens),
                        tokens(self.prefill_scale_down_queue_tokens),
                    ),
                    kv_share: (share(self.decode_scale_up_kv_rate), share(self.decode_scale_down_kv_rate)),
                })
            }
        }
    }

    /// The longest period of which all active intervals are multiples.
    fn derived_tick_ms(&self) -> u64 {
        let load_ms = 1000 * u64::from(self.load_adjustment_interval_seconds.unwrap_or(5).max(1));
        if !self.scales_throughput() {
            return load_ms;
        }
        let throughput_ms =
            1000 * u64::from(self.throughput_adjustment_interval_seconds.unwrap_or(180).max(1));
        greatest_common_divisor(load_ms, throughput_ms)
    }

    fn given_tick_ms(&self) -> Option<u64> {
        let seconds = self.scheduling.as_ref()?.scale_interval_seconds?;
        (seconds.is_finite() && seconds > 0.0).then_some(((seconds * 1e3).round() as u64).max(1))
    }

    /// A problem of the load predictor under the name that the field has here.
    pub fn predictor_problem(&self, problem: &str) -> String {
        if matches!(self.load_predictor, Some(Value::Object(_))) {
            return format!("load_predictor.{problem}");
        }
        let (field, rest) = problem.split_once(": ").unwrap_or(("policy", problem));
        let name = match field {
            "log1p" => "load_predictor_log1p",
            "window_size" => "prophet_window_size",
            "q_level" => "kalman_q_level",
            "q_trend" => "kalman_q_trend",
            "r" => "kalman_r",
            "min_points" => "kalman_min_points",
            _ => "load_predictor",
        };
        format!("{name}: {rest}")
    }

    /// The load predictor by its registered name with its own fields.
    fn predictor(&self) -> PolicyConfig {
        match &self.load_predictor {
            Some(Value::Object(fields)) => {
                let mut fields = fields.clone();
                let name = fields.shift_remove("policy");
                let name = name.as_ref().and_then(Value::as_str).unwrap_or_default().to_owned();
                PolicyConfig { policy: name, fields, location: String::new() }
            }
            given => {
                let name = given.as_ref().and_then(Value::as_str).unwrap_or("arima").to_owned();
                let mut fields = Map::new();
                let mut put = |key: &str, value: Option<Value>| {
                    if let Some(value) = value {
                        fields.insert(key.to_owned(), value);
                    }
                };
                put("log1p", self.load_predictor_log1p.filter(|_| name != "constant").map(Value::from));
                if name == "prophet" {
                    put("window_size", self.prophet_window_size.map(Value::from));
                }
                if name == "kalman" {
                    put("q_level", self.kalman_q_level.map(Value::from));
                    put("q_trend", self.kalman_q_trend.map(Value::from));
                    put("r", self.kalman_r.map(Value::from));
                    put("min_points", self.kalman_min_points.map(Value::from));
                }
                PolicyConfig { policy: name, fields, location: String::new() }
            }
        }
    }
}

fn greatest_common_divisor(one: u64, other: u64) -> u64 {
    if other == 0 { one } else { greatest_common_divisor(other, one % other) }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn fields(value: Value) -> Fields {
        serde_json::from_value(value).unwrap()
    }

    /// Case 1.
    #[test]
    fn the_tick_period_is_what_all_intervals_share() {
        let tick = |value| fields(value).resolve().tick_ms;
        let sla = "sla";
        assert_eq!(tick(json!({"optimization_target": sla, "load_adjustment_interval_seconds": 5})), 5000);
        assert_eq!(
            tick(
                json!({"optimization_target": sla, "enable_throughput_scaling": false, "enable_load_scaling": true,
                "load_adjustment_interval_seconds": 10})
            ),
            10_000
        );
        assert_eq!(
            tick(json!({"optimization_target": sla, "throughput_adjustment_interval_seconds": 600,
                "load_adjustment_interval": 8})),
            8000
        );
        assert_eq!(
            tick(json!({"optimization_target": "latency", "load_adjustment_interval_seconds": 6})),
            6000
        );
    }

    #[test]
    fn defaults_are_those_of_the_reference() {
        let config = fields(json!({})).resolve();
        assert_eq!(config.target, Target::Easy(EasyTarget::Throughput));
        assert!(config.load_scaling && !config.throughput_scaling);
        let sla = fields(json!({"optimization_target": "sla"})).resolve();
        assert!(!sla.load_scaling && sla.throughput_scaling);
        assert_eq!((sla.predictor.policy.as_str(), sla.max_gpu_budget, sla.ttft_ms), ("arima", 8, 500.0));
        assert_eq!(fields(json!({})).problems(Some(DeploymentMode::Agg)), Vec::<String>::new());
    }
}
