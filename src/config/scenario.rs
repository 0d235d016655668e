//! The validated plan of one replay: what `spica replay` runs and what every trial of a search becomes.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize, Serializer};

use super::schema::{self, PlannerForm};
use super::workload::WorkloadForm;

/// One deployment under one workload.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct Scenario {
    /// The root of every random stream of the run.
    #[schemars(default = "default_seed")]
    pub seed: u64,
    /// What serves.
    pub deployment: Deployment,
    /// What is asked of it.
    pub workload: WorkloadConfig,
    /// The bounds a request has to meet to count as good.
    pub sla: Option<Sla>,
    /// The run stops before the first event later than this; events at exactly this time still happen.
    #[schemars(extend("exclusiveMinimum" = 0.0))]
    pub max_sim_time_ms: Option<f64>,
}

/// What serves the requests.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct Deployment {
    /// One pool or two.
    pub mode: DeploymentMode,
    /// How requests are spread over the workers of a pool.
    #[schemars(default = "default_router")]
    pub router: PolicyConfig,
    /// The autoscaler, if any.
    #[schemars(with = "Option<PlannerForm>")]
    pub planner: Option<PolicyConfig>,
    /// The only pool of `mode: agg`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agg: Option<Pool>,
    /// The prefill pool of `mode: disagg`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prefill: Option<Pool>,
    /// The decode pool of `mode: disagg`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decode: Option<Pool>,
    /// How KV blocks travel from prefill to decode workers.
    #[schemars(default)]
    pub kv_transfer: KvTransfer,
}

/// The seed of a scenario that gives none.
pub(super) fn default_seed() -> u64 {
    1
}

pub(super) fn default_router() -> PolicyConfig {
    PolicyConfig::named(DEFAULT_ROUTER)
}

/// Whether prefill and decode share workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum DeploymentMode {
    /// Prefill and decode in separate pools.
    Disagg,
    /// One pool does both.
    Agg,
}

/// The router of a scenario that names none.
pub const DEFAULT_ROUTER: &str = "round_robin";

/// The planner of a `planner:` block without a policy's name.
pub const BUILTIN_PLANNER: &str = "planner";

/// A policy by name with the fields it was given, kept until the registry turns them into the policy.
///
/// Two of them are equal when they say the same, wherever they were written.
#[derive(Clone, Debug, Serialize)]
pub struct PolicyConfig {
    /// The name under which the policy is registered.
    pub policy: String,
    /// Its own fields, as written.
    #[serde(flatten)]
    pub fields: serde_json::Map<String, serde_json::Value>,
    /// Where it was written, for error messages: `scenario.yaml:7: deployment.router`.
    #[serde(skip)]
    pub location: String,
}

impl PolicyConfig {
    /// A policy with its defaults.
    pub fn named(policy: &str) -> Self {
        Self { policy: policy.to_owned(), fields: serde_json::Map::new(), location: String::new() }
    }

    /// Serialises a list of policies: the name alone where a policy has no fields.
    pub(super) fn serialize_briefly<S: Serializer>(
        policies: &[Self],
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(policies.iter().map(Brief))
    }

    /// Serialises one policy: its name alone when it has no fields.
    pub(super) fn serialize_one_briefly<S: Serializer>(
        policy: &Self,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        Brief(policy).serialize(serializer)
    }
}

impl PartialEq for PolicyConfig {
    fn eq(&self, other: &Self) -> bool {
        self.policy == other.policy && self.fields == other.fields
    }
}

struct Brief<'a>(&'a PolicyConfig);

impl Serialize for Brief<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.0.fields.is_empty() {
            serializer.serialize_str(&self.0.policy)
        } else {
            self.0.serialize(serializer)
        }
    }
}

/// The workers of one role; all alike.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields, default)]
pub struct Pool {
    /// Workers present at the start.
    #[schemars(range(min = 1))]
    pub workers: u32,
    /// Attention-data-parallel ranks per worker.
    #[schemars(range(min = 1))]
    pub dp_size: u32,
    /// GPUs per rank.
    #[schemars(range(min = 1))]
    pub tensor_parallel_size: u32,
    /// How long a worker that is added later takes to start, in seconds.
    #[schemars(range(min = 0.0))]
    pub startup_time_s: f64,
    /// The engine that each rank runs.
    pub engine: EngineOptions,
    /// How long its passes take.
    pub timing: TimingConfig,
}

impl Default for Pool {
    /// One worker of one GPU.
    fn default() -> Self {
        Self {
            workers: 1,
            dp_size: 1,
            tensor_parallel_size: 1,
            startup_time_s: 0.0,
            engine: EngineOptions::default(),
            timing: TimingConfig::default(),
        }
    }
}

impl Pool {
    /// GPUs that one worker occupies.
    pub fn gpus_per_worker(&self) -> u32 {
        self.dp_size * self.tensor_parallel_size
    }
}

/// Where the number of KV blocks of a rank comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CapacitySource {
    /// The scenario, or the engine's default.
    Given,
    /// A memory model that computes it from model, hardware and shape: the number is 0 until then.
    MemoryModel,
}

/// Options of one engine rank, under the names and with the defaults of the reference.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields, default, transform = schema::engine)]
pub struct EngineOptions {
    /// Whose scheduler is modelled.
    pub backend: Backend,
    /// Tokens per KV block.
    #[schemars(range(min = 1))]
    pub block_size: u32,
    /// KV blocks per rank.
    #[serde(skip_serializing_if = "is_zero")]
    #[schemars(range(min = 1))]
    pub num_gpu_blocks: u32,
    /// Where that number comes from.
    #[serde(skip)]
    pub capacity_source: CapacitySource,
    /// Requests that may run at a time; `None` is unbounded.
    #[schemars(range(min = 1))]
    pub max_num_seqs: Option<u32>,
    /// Tokens that one pass may compute; `None` is unbounded.
    #[schemars(range(min = 1))]
    pub max_num_batched_tokens: Option<u32>,
    /// Longest sequence in tokens, prompt and output together.
    #[schemars(range(min = 1))]
    pub max_model_len: Option<u32>,
    /// Whether finished blocks may be reused by later prompts.
    pub enable_prefix_caching: bool,
    /// Whether a prompt may be computed in several passes.
    pub enable_chunked_prefill: bool,
    /// Which running request gives way when blocks run out.
    pub preemption_mode: PreemptionMode,
    /// Which unreferenced block goes first.
    pub kv_eviction_policy: KvEvictionPolicy,
    /// Divides every pass; 1 changes nothing.
    #[schemars(range(min = 0.0))]
    pub speedup_ratio: f64,
    /// Divides the decode part of a pass beside `speedup_ratio`.
    #[schemars(range(min = 0.0))]
    pub decode_speedup_ratio: f64,
    /// Prefill is scheduled in every n-th pass of a data-parallel group only.
    #[schemars(range(min = 1))]
    pub prefill_schedule_interval: u32,
    /// Decode passes between two prefill passes (SGLang).
    pub prefill_decode_interval: u32,
    /// Draft tokens per step of speculative decoding.
    #[schemars(range(min = 1, max = 5))]
    pub aic_nextn: Option<u32>,
    /// Acceptance rate of each draft token.
    pub aic_nextn_accept_rates: Option<Vec<f64>>,
    /// Seed of the acceptance draws.
    pub aic_mtp_seed: u64,
    /// Whether the pass that completes a prompt is also charged a decode step for that request.
    pub first_token_decode: bool,
    /// Share of GPU memory the engine may use; sizes the KV cache when a memory model does.
    #[schemars(extend("exclusiveMinimum" = 0.0, "maximum" = 1.0))]
    pub gpu_memory_utilization: f64,
    /// SGLang's own options.
    pub sglang: SglangOptions,
}

impl Default for EngineOptions {
    fn default() -> Self {
        Self::for_backend(Backend::Vllm)
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands out references")]
fn is_zero(number: &u32) -> bool {
    *number == 0
}

impl EngineOptions {
    /// KV blocks per rank where nothing else is known.
    pub const DEFAULT_NUM_GPU_BLOCKS: u32 = 16384;

    /// An engine of this kind with the defaults of the reference.
    pub fn for_backend(backend: Backend) -> Self {
        Self {
            backend,
            block_size: match backend {
                Backend::Vllm => 64,
                Backend::Sglang => 1,
                Backend::Trtllm => 32,
            },
            num_gpu_blocks: Self::DEFAULT_NUM_GPU_BLOCKS,
            capacity_source: CapacitySource::Given,
            max_num_seqs: Some(256),
            max_num_batched_tokens: Some(8192),
            max_model_len: None,
            enable_prefix_caching: true,
            enable_chunked_prefill: true,
            preemption_mode: PreemptionMode::Lifo,
            kv_eviction_policy: KvEvictionPolicy::Lru,
            speedup_ratio: 1.0,
            decode_speedup_ratio: 1.0,
            prefill_schedule_interval: 1,
            prefill_decode_interval: 0,
            aic_nextn: None,
            aic_nextn_accept_rates: None,
            aic_mtp_seed: 42,
            first_token_decode: false,
            gpu_memory_utilization: 0.9,
            sglang: SglangOptions::default(),
        }
    }
}

/// Whose scheduler an engine models.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Backend {
    /// vLLM.
    Vllm,
    /// SGLang.
    Sglang,
    /// TensorRT-LLM.
    Trtllm,
}

/// Which running request gives way when blocks run out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum PreemptionMode {
    /// The one admitted last.
    Lifo,
    /// The one admitted first.
    Fifo,
}

/// Which unreferenced block is evicted first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum KvEvictionPolicy {
    /// The one released longest ago.
    Lru,
    /// The one whose next use lies farthest ahead in the workload.
    Belady,
}

/// Options that only an SGLang-like engine has.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields, default)]
pub struct SglangOptions {
    /// Order of the waiting queue.
    pub schedule_policy: SglangSchedulePolicy,
    /// Prompt tokens that one prefill pass may take.
    #[schemars(range(min = 1))]
    pub max_prefill_tokens: u32,
    /// Longest chunk of a prompt.
    #[schemars(range(min = 1))]
    pub chunked_prefill_size: u32,
    /// Output tokens an admission sets aside at most.
    #[schemars(range(min = 1))]
    pub clip_max_new_tokens: u32,
    /// Scales the share of its output that a running request is assumed to still need.
    #[schemars(extend("exclusiveMinimum" = 0.0))]
    pub schedule_conservativeness: f64,
}

impl Default for SglangOptions {
    fn default() -> Self {
        Self {
            schedule_policy: SglangSchedulePolicy::Fifo,
            max_prefill_tokens: 16384,
            chunked_prefill_size: 8192,
            clip_max_new_tokens: 4096,
            schedule_conservativeness: 1.0,
        }
    }
}

/// Order of an SGLang-like waiting queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum SglangSchedulePolicy {
    /// First come, first served.
    Fifo,
    /// Longest cached prefix first.
    Lpm,
}

/// What prices a pass.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
#[serde(tag = "model", rename_all = "lowercase")]
#[schemars(deny_unknown_fields)]
pub enum TimingConfig {
    /// The reference's built-in polynomial.
    #[default]
    Polynomial,
    /// A constant for each phase.
    Fixed {
        /// A pass with prompt tokens, in milliseconds.
        #[schemars(range(min = 0.0))]
        prefill_ms: f64,
        /// A pass with decoding requests, in milliseconds.
        #[schemars(range(min = 0.0))]
        decode_ms: f64,
    },
    /// A measured grid.
    Grid {
        /// The file.
        path: PathBuf,
    },
    /// A named profile of model, hardware and backend.
    Profile {
        /// Hugging Face name of the model.
        model_name: Option<String>,
        /// Name of the hardware.
        hardware_sku: Option<String>,
        /// Backend version; the newest trustworthy one when absent.
        backend_version: Option<String>,
        /// Tensor parallelism of the experts.
        #[schemars(range(min = 1))]
        moe_tp: Option<u32>,
        /// Expert parallelism.
        #[schemars(range(min = 1))]
        moe_ep: Option<u32>,
    },
}

/// How KV blocks travel from prefill to decode workers.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields, default)]
pub struct KvTransfer {
    /// Fixed delay, counted only where there is no bandwidth, in milliseconds.
    #[schemars(range(min = 0.0))]
    pub latency_ms: f64,
    /// Link bandwidth in 1e9 bytes per second.
    #[schemars(extend("exclusiveMinimum" = 0.0))]
    pub bandwidth_gbps: Option<f64>,
    /// KV bytes of one token.
    #[schemars(range(min = 1))]
    pub bytes_per_token: Option<u64>,
    /// Which tokens travel.
    pub timing: KvTransferTiming,
}

impl Default for KvTransfer {
    fn default() -> Self {
        Self {
            latency_ms: 0.0,
            bandwidth_gbps: None,
            bytes_per_token: None,
            timing: KvTransferTiming::FullPrompt,
        }
    }
}

/// Which tokens a KV transfer moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum KvTransferTiming {
    /// The whole prompt.
    FullPrompt,
    /// The blocks that the destination does not hold yet.
    DestinationMissing,
}

/// The bounds a completed request has to meet, all that are set, each inclusive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct Sla {
    /// Time to first token, in milliseconds.
    #[schemars(extend("exclusiveMinimum" = 0.0))]
    pub ttft_ms: Option<f64>,
    /// Mean gap between tokens, in milliseconds.
    #[schemars(extend("exclusiveMinimum" = 0.0))]
    pub itl_ms: Option<f64>,
    /// Arrival to last token, in milliseconds.
    #[schemars(extend("exclusiveMinimum" = 0.0))]
    pub e2e_ms: Option<f64>,
}

/// What is asked of the deployment: exactly one load shape.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(into = "WorkloadForm")]
pub struct WorkloadConfig {
    /// Where the requests come from.
    pub source: WorkloadSource,
    /// Closed loop: requests (or sessions) in flight at most. `None` is open loop.
    pub concurrency: Option<u32>,
    /// Arrivals and think times of an open loop are divided by this: 2 means twice the traffic.
    pub arrival_speedup_ratio: f64,
    /// What becomes of file rows that ask for no output.
    pub zero_output: ZeroOutput,
    /// Turns every repair and drop into a refusal.
    pub strict: bool,
}

/// Where requests come from.
#[derive(Clone, Debug, PartialEq)]
pub enum WorkloadSource {
    /// A Mooncake JSONL file, plain or gzip.
    Trace {
        /// The file, already resolved against the configuration's folder.
        path: PathBuf,
        /// Tokens that one hash id stands for.
        block_size: u32,
        /// Unit of its time stamps.
        time_unit: TraceTimeUnit,
        /// Only the first rows, when set.
        max_requests: Option<u32>,
    },
    /// Generated requests, all of one size.
    Synthetic(Synthetic),
    /// Requests written out in the scenario.
    Requests {
        /// In file order.
        requests: Vec<InlineRequest>,
        /// Tokens that one hash id stands for.
        block_size: u32,
    },
}

/// Generated requests, all of one size.
#[derive(Clone, Debug, PartialEq)]
pub struct Synthetic {
    /// Prompt tokens.
    pub isl: u32,
    /// Output tokens.
    pub osl: u32,
    /// Sessions (with one turn each: requests).
    pub count: u32,
    /// Requests per second of an open loop.
    pub request_rate: Option<f64>,
    /// How arrivals of an open loop are spread.
    pub arrival: Arrival,
    /// Share of a prompt's blocks that comes from its group, 0 to 1.
    pub shared_prefix_ratio: f64,
    /// Groups of sessions with a common prefix.
    pub num_prefix_groups: u32,
    /// Turns of each session.
    pub turns_per_session: u32,
    /// Think time before each further turn, in milliseconds.
    pub inter_turn_delay_ms: f64,
}

/// How arrivals are spread in time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Arrival {
    /// The process.
    #[serde(flatten)]
    pub process: ArrivalProcess,
    /// Seed of its draws.
    pub seed: u64,
}

/// A process of arrivals with a given mean rate.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(tag = "process", rename_all = "snake_case")]
pub enum ArrivalProcess {
    /// Equal gaps.
    Fixed,
    /// Exponential gaps.
    Poisson,
    /// Gamma gaps: `smoothness` is their shape, 1 being Poisson and more being more regular.
    Gamma {
        /// Shape of the gap distribution.
        smoothness: f64,
    },
    /// Everything at time 0.
    Burst,
}

/// A request written out in a scenario.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct InlineRequest {
    /// Its name; `request_<n>` when absent.
    pub id: Option<String>,
    /// Arrival in milliseconds, used as it is; absent for the later turns of a session.
    pub arrival_ms: Option<f64>,
    /// Prompt tokens; from the ids when absent.
    pub input_length: Option<u32>,
    /// Output tokens.
    pub output_length: u32,
    /// Identity of consecutive prompt chunks of `trace_block_size` tokens.
    pub hash_ids: Option<Vec<u64>>,
    /// The prompt's tokens, in place of `hash_ids`.
    pub input_token_ids: Option<Vec<u32>>,
    /// Groups requests into the turns of one session.
    pub session_id: Option<String>,
    /// Think time before this turn, in milliseconds.
    pub delay_ms: Option<f64>,
    /// The data-parallel rank that has to take it.
    pub dp_rank: Option<u32>,
}

/// Unit of a trace's time stamps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum TraceTimeUnit {
    /// Milliseconds.
    Ms,
    /// Seconds.
    S,
}

/// What becomes of file rows that ask for no output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ZeroOutput {
    /// Dropped and counted.
    Drop,
    /// Kept: the prompt is computed, nothing is generated.
    PrefillOnly,
}
