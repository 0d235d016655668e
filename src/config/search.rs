//! The validated plan of a search: the knobs to explore, the traffic, the goal and the effort.
//!
//! Every list holds at least one choice; one choice pins the knob, several let the search try them. Serialising any of
//! these types gives the form in which a configuration file writes it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::facts::FactFiles;
use super::presets::{
    FPM_SAMPLINGS, FpmSampling, LOAD_PREDICTORS, LOAD_SENSITIVITIES, LoadPredictor, LoadSensitivity, Preset,
    SCALING_POLICIES, ScalingPolicy,
};
use super::scenario::{
    BACKEND_SCHEDULER, Backend, DeploymentMode, KvTransfer, PolicyConfig, PricedModel, ProfileConfig, Sla,
    TimingConfig,
};
use super::schema;
pub use super::workload::{KvLoadRatio, LoadShape, SearchTrace, SearchWorkload, SyntheticRequests};

/// What to search for, over what, for which traffic, and with how much effort.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct SmartSearchConfig {
    /// The knobs and their choices.
    pub search_space: SearchSpace,
    /// The traffic to serve.
    pub workload: SearchWorkload,
    /// What makes one deployment better than another.
    #[schemars(default)]
    pub goal: OptimizationGoal,
    /// The effort.
    #[schemars(default)]
    pub sweep: SweepConfig,
    /// Files of facts about models and GPUs that are not built in.
    #[serde(skip_serializing_if = "FactFiles::is_empty")]
    #[schemars(default)]
    pub facts: FactFiles,
}

/// The knobs of a deployment and their choices.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields, default = "SearchSpace::unnamed", transform = schema::search_space)]
pub struct SearchSpace {
    /// One branch of the search each, in this order, without duplicates.
    pub deployment_mode: Vec<DeploymentMode>,
    /// Engines to try, in this order; duplicates as written.
    pub backend: Vec<Backend>,
    /// Pinned parallel layouts; empty means all that fit.
    pub parallel_configs: Vec<ParallelConfig>,
    /// Hugging Face name of the model.
    pub model_name: String,
    /// Name of the GPU system.
    pub hardware_sku: String,
    /// Version of the latency profile; the newest trustworthy one when absent.
    pub backend_version: Option<String>,
    /// What prices a pass; a profile without fields of its own follows the model, hardware, backend and shape.
    pub timing: TimingConfig,
    /// KV blocks per rank; absent: from the memory model.
    #[schemars(range(min = 1))]
    pub num_gpu_blocks: Option<u32>,
    /// GPUs that a deployment may use in all.
    #[schemars(range(min = 1))]
    pub gpu_budget: u32,
    /// GPUs that it has to use at least.
    #[schemars(range(min = 1))]
    pub min_gpu_budget: Option<u32>,
    /// Fewest replicas a planner may scale down to.
    pub min_endpoint: Option<u32>,
    /// Longest sequence in tokens that must fit in one rank's cache; the model's own limit when absent.
    #[schemars(range(min = 1))]
    pub context_length: Option<u32>,
    /// Seconds a worker that is added later takes to start; instantly when absent.
    #[schemars(range(min = 0.0))]
    pub startup_time: Option<f64>,
    /// Schedulers to try, for the workers of all roles: `backend` is that of each backend, the others are registered
    /// engines. A mode in which one cannot serve goes without it.
    #[serde(serialize_with = "PolicyConfig::serialize_briefly", skip_serializing_if = "is_of_backends")]
    pub scheduler: Vec<PolicyConfig>,
    /// Draft tokens per step of speculative decoding.
    #[schemars(range(min = 1, max = 5))]
    pub aic_nextn: Option<u32>,
    /// How KV blocks travel in disaggregated candidates.
    pub kv_transfer: KvTransfer,

    /// Tokens per pass and rank of prefill workers.
    pub prefill_max_num_batched_tokens: Vec<u32>,
    /// Running requests per rank of prefill workers.
    pub prefill_max_num_seqs: Vec<u32>,
    /// Tokens per KV block of prefill workers.
    #[schemars(range(min = 1))]
    pub prefill_block_size: u32,
    /// Share of GPU memory that prefill workers may use.
    #[schemars(extend("exclusiveMinimum" = 0.0, "maximum" = 1.0))]
    pub prefill_gpu_memory_utilization: f64,
    /// Whether prefill workers reuse finished blocks.
    pub prefill_enable_prefix_caching: bool,
    /// Tokens per pass and rank of decode workers.
    pub decode_max_num_batched_tokens: Vec<u32>,
    /// Running requests per rank of decode workers.
    pub decode_max_num_seqs: Vec<u32>,
    /// Tokens per KV block of decode workers.
    #[schemars(range(min = 1))]
    pub decode_block_size: u32,
    /// Share of GPU memory that decode workers may use.
    #[schemars(extend("exclusiveMinimum" = 0.0, "maximum" = 1.0))]
    pub decode_gpu_memory_utilization: f64,
    /// Whether decode workers reuse finished blocks.
    pub decode_enable_prefix_caching: bool,
    /// Tokens per pass and rank of aggregated workers.
    pub agg_max_num_batched_tokens: Vec<u32>,
    /// Running requests per rank of aggregated workers.
    pub agg_max_num_seqs: Vec<u32>,
    /// Tokens per KV block of aggregated workers.
    #[schemars(range(min = 1))]
    pub agg_block_size: u32,
    /// Share of GPU memory that aggregated workers may use.
    #[schemars(extend("exclusiveMinimum" = 0.0, "maximum" = 1.0))]
    pub agg_gpu_memory_utilization: f64,
    /// Whether aggregated workers reuse finished blocks.
    pub agg_enable_prefix_caching: bool,

    /// Blocks of host memory for KV offload; 0 is none. Above 0 it is valid but not built.
    pub num_g2_blocks: u32,
    /// KV bytes of one token, for host offload.
    #[schemars(range(min = 1))]
    pub kv_bytes_per_token: Option<u64>,
    /// GPU to host bandwidth in 1e9 bytes per second.
    #[schemars(extend("exclusiveMinimum" = 0.0))]
    pub bandwidth_g1_to_g2_gbps: Option<f64>,
    /// Host to GPU bandwidth in 1e9 bytes per second.
    #[schemars(extend("exclusiveMinimum" = 0.0))]
    pub bandwidth_g2_to_g1_gbps: Option<f64>,
    /// Blocks moved at a time by host offload.
    #[schemars(range(min = 1))]
    pub offload_batch_size: Option<u32>,

    /// Routers to try; fields beside a policy's name are its own.
    #[serde(serialize_with = "PolicyConfig::serialize_briefly")]
    pub router_mode: Vec<PolicyConfig>,
    /// Credit of `kv_router` for cached blocks.
    pub overlap_score_credit: Vec<f64>,
    /// Weight of prefill work in the cost of `kv_router`.
    pub prefill_load_scale: Vec<f64>,
    /// Softmax temperature of `kv_router`.
    pub router_temperature: Vec<f64>,
    /// Weight of blocks cached in host memory; matters with host offload only.
    pub host_cache_hit_weight: Vec<f64>,
    /// Weight of blocks cached on disk; matters with host offload only.
    pub disk_cache_hit_weight: Vec<f64>,
    /// Admission threshold; accepted without `kv_router` only, where it has no effect.
    pub active_decode_blocks_threshold: Option<u32>,
    /// Admission threshold; accepted without `kv_router` only, where it has no effect.
    pub active_prefill_tokens_threshold: Option<u32>,
    /// Admission threshold; accepted without `kv_router` only, where it has no effect.
    #[schemars(range(min = 0.0))]
    pub active_prefill_tokens_threshold_frac: Option<f64>,
    /// Turns admission control off; accepted without `kv_router` only, where it has no effect.
    pub no_admission_control: bool,

    /// Scaling policies to try.
    pub planner_scaling_policy: Vec<ScalingPolicy>,
    /// Sampling of forward-pass metrics to try, for throughput scaling.
    pub planner_fpm_sampling: Vec<Preset<FpmSampling>>,
    /// Scale-down sensitivities to try, for load scaling.
    pub planner_load_sensitivity: Vec<Preset<LoadSensitivity>>,
    /// Forecasters that compete before the search; never a dimension of it.
    pub load_predictor_candidates: Vec<Preset<LoadPredictor>>,
}

/// Whether the schedulers to try are those that go without saying.
fn is_of_backends(schedulers: &[PolicyConfig]) -> bool {
    matches!(schedulers, [only] if only.policy == BACKEND_SCHEDULER)
}

impl SearchSpace {
    /// Whether candidates have other schedulers than those of their backends.
    pub fn tries_schedulers(&self) -> bool {
        !is_of_backends(&self.scheduler)
    }

    /// The defaults that do not depend on the model or the hardware.
    fn unnamed() -> Self {
        Self::with_defaults("", "")
    }

    /// Everything at its default for a model on some hardware.
    ///
    /// The defaults of the list knobs for batching and routing are also the only choices they have.
    pub fn with_defaults(model_name: &str, hardware_sku: &str) -> Self {
        let space = Self {
            deployment_mode: vec![DeploymentMode::Disagg, DeploymentMode::Agg],
            backend: vec![Backend::Vllm],
            parallel_configs: Vec::new(),
            model_name: model_name.to_owned(),
            hardware_sku: hardware_sku.to_owned(),
            backend_version: None,
            timing: TimingConfig::Polynomial,
            num_gpu_blocks: None,
            gpu_budget: 32,
            min_gpu_budget: None,
            min_endpoint: None,
            context_length: None,
            startup_time: None,
            scheduler: vec![PolicyConfig::named(BACKEND_SCHEDULER)],
            aic_nextn: None,
            kv_transfer: KvTransfer::default(),
            prefill_max_num_batched_tokens: vec![8192, 16384, 32768],
            prefill_max_num_seqs: vec![1, 2, 4, 8, 16, 32, 64, 128, 256],
            prefill_block_size: 64,
            prefill_gpu_memory_utilization: 0.9,
            prefill_enable_prefix_caching: true,
            decode_max_num_batched_tokens: vec![8192],
            decode_max_num_seqs: vec![256, 512, 1024],
            decode_block_size: 64,
            decode_gpu_memory_utilization: 0.9,
            decode_enable_prefix_caching: false,
            agg_max_num_batched_tokens: vec![8192, 16384, 32768],
            agg_max_num_seqs: vec![256, 512, 1024],
            agg_block_size: 64,
            agg_gpu_memory_utilization: 0.9,
            agg_enable_prefix_caching: true,
            num_g2_blocks: 0,
            kv_bytes_per_token: None,
            bandwidth_g1_to_g2_gbps: None,
            bandwidth_g2_to_g1_gbps: None,
            offload_batch_size: None,
            router_mode: vec![PolicyConfig::named("kv_router"), PolicyConfig::named("round_robin")],
            overlap_score_credit: vec![0.0, 0.5, 1.0],
            prefill_load_scale: vec![0.0, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0],
            router_temperature: vec![0.0, 0.2, 0.5, 1.0],
            host_cache_hit_weight: vec![0.5, 0.75, 1.0],
            disk_cache_hit_weight: vec![0.0, 0.25, 0.5],
            active_decode_blocks_threshold: None,
            active_prefill_tokens_threshold: None,
            active_prefill_tokens_threshold_frac: None,
            no_admission_control: false,
            planner_scaling_policy: SCALING_POLICIES.map(ScalingPolicy::Builtin).to_vec(),
            planner_fpm_sampling: FPM_SAMPLINGS.to_vec(),
            planner_load_sensitivity: LOAD_SENSITIVITIES.to_vec(),
            load_predictor_candidates: LOAD_PREDICTORS.to_vec(),
        };
        Self { timing: space.profile(), ..space }
    }

    /// The timing of a search that gives none: the profile of its model and hardware.
    pub(super) fn profile(&self) -> TimingConfig {
        let of = PricedModel {
            model_name: Some(self.model_name.clone()),
            hardware_sku: Some(self.hardware_sku.clone()),
            ..PricedModel::default()
        };
        let backend_version = self.backend_version.clone();
        TimingConfig::Profile(ProfileConfig { of, backend_version, rescale: None })
    }
}

/// A pinned parallel layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(untagged)]
#[schemars(deny_unknown_fields)]
pub enum ParallelConfig {
    /// Of an aggregated deployment.
    Agg(Shape),
    /// Of a disaggregated one.
    Disagg {
        /// The prefill workers.
        prefill: Shape,
        /// The decode workers.
        decode: Shape,
    },
}

/// How one role's workers are split over GPUs, and how many there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct Shape {
    /// Tensor parallelism of attention: GPUs per rank.
    #[schemars(range(min = 1))]
    pub tp: u32,
    /// Attention-data-parallel ranks per worker.
    #[schemars(default = "one", range(min = 1))]
    pub attention_dp: u32,
    /// Tensor parallelism of the experts.
    #[schemars(default = "one", range(min = 1))]
    pub moe_tp: u32,
    /// Expert parallelism.
    #[schemars(default = "one", range(min = 1))]
    pub moe_ep: u32,
    /// Pipeline parallelism.
    #[schemars(default = "one", range(min = 1))]
    pub pp: u32,
    /// Workers.
    #[schemars(default = "one", range(min = 1))]
    pub replicas: u32,
}

fn one() -> u32 {
    1
}

/// What makes one deployment better than another.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields, default)]
pub struct OptimizationGoal {
    /// The figure to optimise.
    pub target: OptimizationTarget,
    /// Bounds that a good request meets.
    pub sla: Option<Sla>,
    /// The objectives of a Pareto goal, distinct and at least two; empty for any other goal.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Option<Vec<OptimizationTarget>>")]
    pub pareto_objectives: Vec<OptimizationTarget>,
    /// Share of injected requests that must meet the bounds for a candidate to count, 0 to 1.
    #[schemars(extend("exclusiveMinimum" = 0.0, "maximum" = 1.0))]
    pub min_attainment: Option<f64>,
}

impl OptimizationGoal {
    /// What is optimised: one objective, or those of a Pareto goal.
    pub fn objectives(&self) -> &[OptimizationTarget] {
        match self.target {
            OptimizationTarget::Pareto => &self.pareto_objectives,
            _ => std::slice::from_ref(&self.target),
        }
    }

    /// Whether candidates with this scaling policy can be aimed at the goal: scaling ahead of traffic needs the bounds of
    /// requests to go by, and any scaling that goes by them needs both token bounds.
    pub fn supports(&self, policy: &ScalingPolicy) -> bool {
        if self.target.needs_sla() {
            let has_token_bounds = self.sla.is_some_and(|sla| sla.ttft_ms.is_some() && sla.itl_ms.is_some());
            has_token_bounds || !policy.scales()
        } else {
            !policy.settings().is_some_and(|settings| settings.enable_throughput_scaling)
        }
    }

    /// Whether the answer is a frontier.
    pub fn is_pareto(&self) -> bool {
        self.target == OptimizationTarget::Pareto
    }
}

impl Default for OptimizationGoal {
    fn default() -> Self {
        Self {
            target: OptimizationTarget::Throughput,
            sla: None,
            pareto_objectives: Vec::new(),
            min_attainment: None,
        }
    }
}

/// A figure to optimise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OptimizationTarget {
    /// Output tokens per second.
    Throughput,
    /// Output tokens per second and GPU.
    ThroughputPerGpu,
    /// Output tokens per second that one user sees.
    ThroughputPerUser,
    /// Mean time from arrival to last token; less is better.
    E2eLatency,
    /// Output tokens per second of the requests that meet the bounds.
    Goodput,
    /// The same per GPU.
    GoodputPerGpu,
    /// Several objectives at once: the frontier.
    Pareto,
}

impl OptimizationTarget {
    /// Whether the figure exists only with bounds.
    pub fn needs_sla(self) -> bool {
        matches!(self, Self::Goodput | Self::GoodputPerGpu)
    }
}

/// How much effort a search makes.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields, default, transform = schema::sweep)]
pub struct SweepConfig {
    /// Rounds per branch.
    #[schemars(range(min = 1))]
    pub max_rounds: u32,
    /// Replays of a round that may run at the same time; never changes the answer.
    #[schemars(range(min = 1))]
    pub parallel_evals: u32,
    /// Successful new replays that make a round; as many as `parallel_evals` unless given.
    #[schemars(with = "Option<u32>", range(min = 1))]
    pub candidates_per_round: u32,
    /// Seed of every sampler.
    pub random_seed: u64,
    /// Wall-clock limit of one replay in seconds; null is none.
    #[schemars(extend("exclusiveMinimum" = 0.0))]
    pub max_eval_seconds: Option<f64>,
    /// Passes that one replay may simulate: a limit that does not depend on the machine.
    #[schemars(range(min = 1))]
    pub max_eval_passes: Option<u64>,
    /// What suggests the points to try.
    #[serde(serialize_with = "PolicyConfig::serialize_one_briefly")]
    pub sampler: PolicyConfig,
    /// Evaluate every point instead.
    pub exhaustive: bool,
    /// Ranks only so many of the best results, each with all candidates that came to it; where every point is evaluated, replays
    /// stop that are certain not to be among them.
    #[schemars(range(min = 1))]
    pub top: Option<u32>,
    /// Looks at portions of the workload first.
    pub fidelity: Option<Fidelity>,
}

impl Default for SweepConfig {
    fn default() -> Self {
        Self {
            max_rounds: 20,
            parallel_evals: 16,
            candidates_per_round: 16,
            random_seed: 1,
            max_eval_seconds: Some(600.0),
            max_eval_passes: None,
            sampler: PolicyConfig::named(DEFAULT_SAMPLER),
            exhaustive: false,
            top: None,
            fidelity: None,
        }
    }
}

/// The sampler of a search that names none.
pub const DEFAULT_SAMPLER: &str = "gp_ucb_pe";

/// Successive halving: every candidate is replayed on a small portion of the workload, the best of them on a greater one, and
/// the best of those on all of it. Only these last are ranked. Either `rows` or `fractions`.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields, default, transform = schema::fidelity)]
pub struct Fidelity {
    /// The portions as rows of a trace from its start, ascending.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(inner(range(min = 1)))]
    pub rows: Vec<u32>,
    /// The portions as shares of the requests from the first on, ascending.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub fractions: Vec<f64>,
    /// Share of the candidates that go on from each portion, rounded up.
    #[schemars(extend("exclusiveMinimum" = 0.0, "exclusiveMaximum" = 1.0))]
    pub keep: f64,
}

impl Default for Fidelity {
    fn default() -> Self {
        Self { rows: Vec::new(), fractions: Vec::new(), keep: 0.25 }
    }
}
