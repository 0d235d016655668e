//! Reads a pool of workers: its size, its engine and what prices its passes.

use super::inert::Rule;
use super::numbers::Limit;
use super::read_timing::{Timing, timing};
use super::reader::Section;
use super::scenario::{
    BACKEND_SCHEDULER, Backend, CapacitySource, EngineOptions, KvEvictionPolicy, MemoryConfig, PolicyConfig,
    Pool, PreemptionMode, SglangOptions, TimingConfig,
};
use super::value::{Value, listed};

/// More than any fleet; it keeps sums of workers and GPUs within their types.
pub(super) const MOST_WORKERS: u32 = 100_000;
/// More than any worker; it keeps the GPUs of a fleet within their type.
pub(super) const MOST_GPUS_PER_AXIS: u32 = 1024;
/// More than any engine; likewise.
const MOST_STAGES: u32 = 64;
/// Longest prompt, output or block.
pub(super) const MOST_TOKENS: u32 = i32::MAX as u32;
/// Deepest speculation that engines offer.
pub(super) const MOST_DRAFT_TOKENS: u32 = 5;

pub(super) fn pool(section: &Section<'_>) -> Pool {
    let workers = section.integer("workers", 1..=MOST_WORKERS).or(1);
    let dp_size = section.integer("dp_size", 1..=MOST_GPUS_PER_AXIS).or(1);
    let tensor_parallel_size = section.integer("tensor_parallel_size", 1..=MOST_GPUS_PER_AXIS).or(1);
    let pipeline_parallel_size = section.integer("pipeline_parallel_size", 1..=MOST_STAGES).or(1);
    let startup_time_s = section.float("startup_time_s", Limit::Seconds).or(0.0);
    let router = section.read("router", |value| value.policy(None).map(Box::new)).optional();
    let timing = section.read("timing", |value| timing(&value, Timing::OfPool)).or(TimingConfig::Polynomial);
    let memory = section.section("memory", read_memory).optional().flatten().map(Box::new);
    let estimated = matches!(timing, TimingConfig::Roofline(_));
    let sized_by_model = memory.is_some() || estimated || matches!(timing, TimingConfig::Profile { .. });
    let engine = section
        .section("engine", |engine| read_engine(engine, sized_by_model, dp_size))
        .or_else(|| with_capacity(EngineOptions::for_backend(Backend::Vllm), None, sized_by_model));
    check_memory(section, &timing, &engine);
    check_size(section, workers, dp_size, tensor_parallel_size * pipeline_parallel_size);
    let memory = memory.or_else(|| implied_memory(&timing, &engine));
    Pool {
        workers,
        dp_size,
        tensor_parallel_size,
        pipeline_parallel_size,
        startup_time_s,
        router,
        engine,
        timing,
        memory,
    }
}

fn read_memory(section: &Section<'_>) -> Option<MemoryConfig> {
    let (model_name, hardware_sku) =
        (section.text("model_name").required(), section.text("hardware_sku").required());
    let quantization = section.text("quantization").optional();
    let axis = |key| section.integer(key, 1..=MOST_GPUS_PER_AXIS).optional();
    let (moe_tp, moe_ep) = (axis("moe_tp"), axis("moe_ep"));
    Some(MemoryConfig { model_name: model_name?, hardware_sku: hardware_sku?, quantization, moe_tp, moe_ep })
}

/// An estimate of the timing names the model and the GPU of the memory model too.
fn implied_memory(timing: &TimingConfig, engine: &EngineOptions) -> Option<Box<MemoryConfig>> {
    match timing {
        TimingConfig::Roofline(config) if engine.capacity_source == CapacitySource::MemoryModel => {
            config.memory().map(Box::new)
        }
        _ => None,
    }
}

/// Every rank is simulated, and GPUs are counted.
fn check_size(section: &Section<'_>, workers: u32, dp_size: u32, gpus_per_rank: u32) {
    let gpus = u64::from(workers) * u64::from(dp_size) * u64::from(gpus_per_rank);
    if let Some(excess) = excess_of_ranks(workers, dp_size) {
        section.problem_between(&["dp_size", "workers"], excess);
    } else if gpus > MOST_GPUS {
        let keys = ["pipeline_parallel_size", "tensor_parallel_size", "dp_size", "workers"];
        section
            .problem_between(&keys, format!("{gpus} GPUs in all are more than any fleet has, {MOST_GPUS}"));
    }
}

/// More than any fleet.
const MOST_GPUS: u64 = 10_000_000;

/// Why a pool of so many workers is more than can be simulated, if it is.
pub(super) fn excess_of_ranks(workers: u32, dp_size: u32) -> Option<String> {
    let ranks = u64::from(workers) * u64::from(dp_size);
    (ranks > u64::from(MOST_WORKERS)).then(|| {
        format!(
            "{workers} workers of {dp_size} ranks are too many: at most {MOST_WORKERS} ranks can be simulated"
        )
    })
}

/// A memory model that nobody asks is refused.
fn check_memory(section: &Section<'_>, timing: &TimingConfig, engine: &EngineOptions) {
    if !section.has("memory") {
        return;
    }
    if matches!(timing, TimingConfig::Profile { .. }) {
        section.problem(
            "memory",
            "has no effect beside `timing.model: profile`, which names model and hardware",
        );
    } else if engine.capacity_source == CapacitySource::Given {
        section.problem("memory", "has no effect beside `engine.num_gpu_blocks`");
    }
}

/// Takes the blocks that were given, or the default where only a memory model could know better.
fn with_capacity(engine: EngineOptions, given: Option<u32>, sized_by_model: bool) -> EngineOptions {
    match given {
        Some(num_gpu_blocks) => EngineOptions { num_gpu_blocks, ..engine },
        None if sized_by_model => {
            EngineOptions { num_gpu_blocks: 0, capacity_source: CapacitySource::MemoryModel, ..engine }
        }
        None => engine,
    }
}

fn read_engine(section: &Section<'_>, sized_by_model: bool, dp_size: u32) -> EngineOptions {
    let backend = section.choice("backend").or(Backend::Vllm);
    let defaults = EngineOptions::for_backend(backend);
    let num_gpu_blocks = section.integer("num_gpu_blocks", 1..=u32::MAX).optional();
    let block_size =
        section.integer("block_size", least_block_size(backend)..=MOST_TOKENS).or(defaults.block_size);
    let engine = EngineOptions {
        scheduler: section
            .read("scheduler", |value| scheduler(&value))
            .optional()
            .filter(|scheduler| scheduler.policy != BACKEND_SCHEDULER)
            .map(Box::new),
        block_size,
        max_num_seqs: section.integer("max_num_seqs", 1..=u32::MAX).or_null(defaults.max_num_seqs),
        max_num_batched_tokens: section
            .integer("max_num_batched_tokens", 1..=u32::MAX)
            .or_null(defaults.max_num_batched_tokens),
        max_model_len: section.integer("max_model_len", 1..=u32::MAX).optional(),
        enable_prefix_caching: section.boolean("enable_prefix_caching").or(defaults.enable_prefix_caching),
        enable_chunked_prefill: section.boolean("enable_chunked_prefill").or(defaults.enable_chunked_prefill),
        preemption_mode: section.choice("preemption_mode").or(defaults.preemption_mode),
        kv_eviction_policy: section.choice("kv_eviction_policy").or(defaults.kv_eviction_policy),
        speedup_ratio: speedup(section, "speedup_ratio"),
        decode_speedup_ratio: speedup(section, "decode_speedup_ratio"),
        prefill_schedule_interval: section
            .integer("prefill_schedule_interval", 1..=u32::MAX)
            .or(defaults.prefill_schedule_interval),
        prefill_decode_interval: section
            .integer("prefill_decode_interval", 0..=u32::MAX)
            .or(defaults.prefill_decode_interval),
        aic_nextn: section.integer("aic_nextn", 1..=MOST_DRAFT_TOKENS).optional(),
        aic_nextn_accept_rates: section
            .read("aic_nextn_accept_rates", |value| value.list(|rate| rate.float(Limit::Share)))
            .optional(),
        aic_mtp_seed: section.integer("aic_mtp_seed", 0..=u64::MAX).or(defaults.aic_mtp_seed),
        first_token_decode: section.boolean("first_token_decode").or(defaults.first_token_decode),
        gpu_memory_utilization: section
            .float("gpu_memory_utilization", Limit::PositiveShare)
            .or(defaults.gpu_memory_utilization),
        sglang: section
            .section("sglang", |sglang| read_sglang(sglang, backend, block_size))
            .or_else(|| default_sglang(backend, block_size)),
        ..defaults
    };
    let engine = with_capacity(engine, num_gpu_blocks, sized_by_model);
    check_speculation(section, &engine);
    check_inert(section, &engine, dp_size);
    engine
}

/// A registered engine, or the backend's own by its name.
pub(super) fn scheduler(value: &Value<'_>) -> Option<PolicyConfig> {
    let scheduler = value.policy(None)?;
    if scheduler.policy == BACKEND_SCHEDULER && !scheduler.fields.is_empty() {
        let names = listed(scheduler.fields.keys().map(String::as_str));
        value.problem(format!(
            "the backend's own scheduler takes its options from the keys around, not here: {names}"
        ));
        return None;
    }
    Some(scheduler)
}

/// vLLM and TensorRT-LLM have no blocks of one token.
pub(super) fn least_block_size(backend: Backend) -> u32 {
    match backend {
        Backend::Sglang => 1,
        Backend::Vllm | Backend::Trtllm => 2,
    }
}

/// A speed-up of 0 stands for none, as in the reference.
fn speedup(section: &Section<'_>, key: &'static str) -> f64 {
    let ratio = section.float(key, Limit::SpeedUp).or(1.0);
    if ratio == 0.0 { 1.0 } else { ratio }
}

/// With other backends the size of their blocks means nothing to these options.
fn default_sglang(backend: Backend, block_size: u32) -> SglangOptions {
    match backend {
        Backend::Sglang => SglangOptions::of_blocks(block_size),
        Backend::Vllm | Backend::Trtllm => SglangOptions::default(),
    }
}

fn read_sglang(section: &Section<'_>, backend: Backend, block_size: u32) -> SglangOptions {
    let defaults = default_sglang(backend, block_size);
    let options = SglangOptions {
        schedule_policy: section.choice("schedule_policy").or(defaults.schedule_policy),
        max_prefill_tokens: section
            .integer("max_prefill_tokens", 1..=u32::MAX)
            .or(defaults.max_prefill_tokens),
        chunked_prefill_size: section
            .integer("chunked_prefill_size", 1..=u32::MAX)
            .or(defaults.chunked_prefill_size),
        clip_max_new_tokens: section
            .integer("clip_max_new_tokens", 1..=u32::MAX)
            .or(defaults.clip_max_new_tokens),
        schedule_conservativeness: section
            .float("schedule_conservativeness", Limit::Scale)
            .or(defaults.schedule_conservativeness),
    };
    if section.has("chunked_prefill_size") && !options.chunked_prefill_size.is_multiple_of(block_size) {
        let size = options.chunked_prefill_size;
        section.problem(
            "chunked_prefill_size",
            format!("{size} is not a multiple of the block size {block_size}"),
        );
    }
    options
}

fn check_speculation(section: &Section<'_>, engine: &EngineOptions) {
    let Some(depth) = engine.aic_nextn else { return };
    if engine.decode_speedup_ratio != 1.0 {
        section.problem("decode_speedup_ratio", "must be 1 with speculative decoding (`aic_nextn`)");
    }
    // Rates that cannot be read are left out of the list, and have been reported.
    if let Some(rates) =
        section.list_length("aic_nextn_accept_rates").filter(|rates| *rates != depth as usize)
    {
        let message = format!("{rates} rates for `aic_nextn: {depth}`; one per draft token is needed");
        section.problem_between(&["aic_nextn", "aic_nextn_accept_rates"], message);
    }
}

/// Options that another engine has.
fn check_inert(section: &Section<'_>, engine: &EngineOptions, dp_size: u32) {
    let (vllm, sglang) = (engine.backend == Backend::Vllm, engine.backend == Backend::Sglang);
    // What a scheduler of one's own goes by is for itself to say.
    let is_own = engine.scheduler.is_some();
    // A depth that cannot be read has been reported.
    let speculates = section.has("aic_nextn");
    section.check_inert([
        Rule::refusing(
            "preemption_mode",
            engine.preemption_mode != PreemptionMode::Lifo,
            vllm || is_own,
            "without `backend: vllm`",
        ),
        Rule::refusing(
            "prefill_schedule_interval",
            engine.prefill_schedule_interval != 1,
            (vllm || is_own) && dp_size > 1,
            "without `backend: vllm` and a `dp_size` above 1",
        ),
        Rule::refusing(
            "prefill_decode_interval",
            engine.prefill_decode_interval != 0,
            sglang || is_own,
            "without `backend: sglang`",
        ),
        Rule::refusing(
            "sglang",
            engine.sglang != SglangOptions::default(),
            sglang,
            "without `backend: sglang`",
        ),
        Rule::refusing(
            "kv_eviction_policy",
            engine.kv_eviction_policy != KvEvictionPolicy::Lru,
            engine.enable_prefix_caching,
            "without `enable_prefix_caching: true`",
        ),
        Rule::refusing(
            "gpu_memory_utilization",
            engine.gpu_memory_utilization != 0.9,
            engine.capacity_source == CapacitySource::MemoryModel,
            "without a memory model: the number of KV blocks is given, or its default",
        ),
        Rule::refusing(
            "aic_nextn_accept_rates",
            engine.aic_nextn_accept_rates.is_some(),
            speculates,
            "without `aic_nextn`",
        ),
        Rule::refusing("aic_mtp_seed", engine.aic_mtp_seed != 42, speculates, "without `aic_nextn`"),
    ]);
}
