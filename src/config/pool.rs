//! The workers of one role: how many, what engine they run and what prices its passes.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::scenario::PolicyConfig;
use super::schema;
use super::timing::TimingConfig;

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
    /// GPUs per rank and pipeline stage.
    #[schemars(range(min = 1))]
    pub tensor_parallel_size: u32,
    /// Pipeline stages of a rank, each with its own `tensor_parallel_size` GPUs.
    #[serde(skip_serializing_if = "is_one")]
    #[schemars(range(min = 1))]
    pub pipeline_parallel_size: u32,
    /// How long a worker that is added later takes to start, in seconds.
    #[schemars(range(min = 0.0))]
    pub startup_time_s: f64,
    /// How requests are spread over these workers, in place of what the deployment's router comes to for this pool;
    /// `mode: disagg` only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub router: Option<Box<PolicyConfig>>,
    /// The engine that each rank runs.
    pub engine: EngineOptions,
    /// How long its passes take.
    pub timing: TimingConfig,
    /// What sizes the KV cache where neither a profile nor `engine.num_gpu_blocks` does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<Box<MemoryConfig>>,
}

/// Model and GPU whose sizes give the number of KV blocks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct MemoryConfig {
    /// Hugging Face name of the model, or that of a file of facts.
    pub model_name: String,
    /// Name of the GPU, likewise.
    pub hardware_sku: String,
    /// Number format of the weights; the checkpoint's own when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(default)]
    pub quantization: Option<String>,
    /// Tensor parallelism of the experts; 1 when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(default, range(min = 1))]
    pub moe_tp: Option<u32>,
    /// Expert parallelism; 1 when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(default, range(min = 1))]
    pub moe_ep: Option<u32>,
}

impl Default for Pool {
    /// One worker of one GPU.
    fn default() -> Self {
        Self {
            workers: 1,
            dp_size: 1,
            tensor_parallel_size: 1,
            pipeline_parallel_size: 1,
            startup_time_s: 0.0,
            router: None,
            engine: EngineOptions::default(),
            timing: TimingConfig::default(),
            memory: None,
        }
    }
}

impl Pool {
    /// GPUs that one worker occupies.
    pub fn gpus_per_worker(&self) -> u32 {
        self.dp_size * self.tensor_parallel_size * self.pipeline_parallel_size
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
    /// A registered engine that schedules in place of the backend's own, with a cache of its own. Prices, memory and flags stay
    /// those of the backend.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scheduler: Option<Box<PolicyConfig>>,
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
    /// Tokens that one pass may compute; `None` is unbounded. With SGLang passes are bounded by `sglang` instead, and this
    /// limit is what a router's waiting room and a memory model go by.
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
    /// Divides every pass; 1 changes nothing, nor does 0.
    #[schemars(range(min = 0.0))]
    pub speedup_ratio: f64,
    /// Divides the decode part of a pass beside `speedup_ratio`; 0 does not.
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

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands out references")]
fn is_one(number: &u32) -> bool {
    *number == 1
}

impl EngineOptions {
    /// KV blocks per rank where nothing else is known.
    pub const DEFAULT_NUM_GPU_BLOCKS: u32 = 16384;

    /// An engine of this kind with the defaults of the reference.
    pub fn for_backend(backend: Backend) -> Self {
        Self {
            backend,
            scheduler: None,
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

impl SglangOptions {
    /// The defaults of an engine with blocks of so many tokens: a chunk is whole blocks.
    pub fn of_blocks(block_size: u32) -> Self {
        let usual = Self::default();
        let whole_blocks = usual.chunked_prefill_size / block_size * block_size;
        Self { chunked_prefill_size: whole_blocks.max(block_size), ..usual }
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
