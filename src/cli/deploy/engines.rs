//! The flags of each serving engine.

use serde_json::{Map, Value};

use super::account::{Account, PoolContext, Starter};

/// Where vLLM and SGLang publish what they cache; Dynamo's runtime listens there.
const KV_EVENTS_PORT: u16 = 20_080;

/// The engine of a pool.
#[derive(Clone, Copy, Debug)]
pub(super) struct Engine<'a> {
    /// The block of the pool in the scenario.
    pub(super) pool: &'a Value,
    /// Its `engine:`.
    pub(super) options: &'a Map<String, Value>,
    /// What else is known.
    pub(super) context: PoolContext<'a>,
}

impl Engine<'_> {
    fn number(&self, field: &str) -> u64 {
        self.pool[field].as_u64().unwrap_or(1)
    }

    fn given(&self, field: &str) -> Option<&Value> {
        self.options.get(field).filter(|value| !value.is_null())
    }

    /// The longest sequence: of the engine, or else the one that a search has asked room for.
    fn longest_sequence(&self) -> Option<&Value> {
        self.given("max_model_len").or_else(|| self.context.setting("context_length"))
    }

    /// Blocks are given only where the scenario pins them; otherwise the engine sizes its cache from the memory it may use.
    fn pinned_blocks(&self) -> Option<u64> {
        self.given("num_gpu_blocks").and_then(Value::as_u64).filter(|&blocks| blocks > 0)
    }

    /// The KV blocks that a memory model has found, of an engine that finds room by itself.
    fn list_modelled_blocks(&self, account: &mut Account, pin: &str) {
        if let (None, Some(blocks)) = (self.pinned_blocks(), self.context.modelled_blocks) {
            let why = format!(
                "a memory model's figure: the engine measures its own room, as it logs; {pin} pins it"
            );
            account.unsaid("num_gpu_blocks", &blocks.into(), &why);
        }
    }

    /// Attention ranks split the tensor-parallel group of SGLang and TensorRT-LLM, which counts all GPUs of a stage.
    fn gpus_of_a_stage(&self) -> Value {
        (self.number("tensor_parallel_size") * self.number("dp_size")).into()
    }

    fn reports_kv_events(&self) -> bool {
        self.context.starter == Starter::Dynamo { kv_events: true }
    }

    /// Flags of options that have one and are set.
    fn set_given(&self, account: &mut Account, flags: &[(&str, &str)]) {
        for (field, flag) in flags {
            if let Some(value) = self.given(field) {
                account.set(flag, value);
            }
        }
    }

    /// Options that are set and have no flag.
    fn list_given(&self, account: &mut Account, reasons: &[(&str, &str)]) {
        for (field, why) in reasons {
            if let Some(value) = self.given(field) {
                account.unsaid(field, value, why);
            }
        }
    }
}

pub(super) fn vllm(engine: Engine<'_>, account: &mut Account) {
    account.set("--tensor-parallel-size", &engine.number("tensor_parallel_size").into());
    for (field, flag) in
        [("pipeline_parallel_size", "--pipeline-parallel-size"), ("dp_size", "--data-parallel-size")]
    {
        if engine.number(field) > 1 {
            account.set(flag, &engine.number(field).into());
        }
    }
    if engine.context.expert_parallel(engine.pool).is_some() {
        account.switch("--enable-expert-parallel");
    }
    if let Some(blocks) = engine.pinned_blocks() {
        account.set("--num-gpu-blocks-override", &blocks.into());
    }
    engine.list_modelled_blocks(account, "--num-gpu-blocks-override");
    engine.set_given(
        account,
        &[
            ("block_size", "--block-size"),
            ("gpu_memory_utilization", "--gpu-memory-utilization"),
            ("max_num_seqs", "--max-num-seqs"),
            ("max_num_batched_tokens", "--max-num-batched-tokens"),
        ],
    );
    if let Some(tokens) = engine.longest_sequence() {
        account.set("--max-model-len", tokens);
    }
    for (field, on, off) in [
        ("enable_prefix_caching", "--enable-prefix-caching", "--no-enable-prefix-caching"),
        ("enable_chunked_prefill", "--enable-chunked-prefill", "--no-enable-chunked-prefill"),
    ] {
        account.switch(if engine.given(field) == Some(&Value::Bool(false)) { off } else { on });
    }
    if let Some(drafts) = engine.given("aic_nextn").and_then(Value::as_u64).filter(|&drafts| drafts > 0) {
        let config = format!("{{\"method\":\"mtp\",\"num_speculative_tokens\":{drafts}}}");
        account.set("--speculative-config", &Value::from(config));
    }
    if engine.context.is_disaggregated() {
        let config = "{\"kv_connector\":\"NixlConnector\",\"kv_role\":\"kv_both\"}";
        account.set("--kv-transfer-config", &Value::from(config));
        if engine.context.starter != Starter::Engine {
            account.set("--disaggregation-mode", &engine.context.name.into());
        }
    }
    if engine.reports_kv_events() && engine.context.name != "decode" {
        let config = format!(
            "{{\"publisher\":\"zmq\",\"topic\":\"kv-events\",\"endpoint\":\"tcp://*:{KV_EVENTS_PORT}\",\
             \"enable_kv_cache_events\":true}}"
        );
        account.set("--kv-events-config", &Value::from(config));
    }
}

pub(super) fn sglang(engine: Engine<'_>, account: &mut Account) {
    let ranks = engine.number("dp_size");
    account.set("--tp-size", &engine.gpus_of_a_stage());
    if engine.number("pipeline_parallel_size") > 1 {
        account.set("--pp-size", &engine.number("pipeline_parallel_size").into());
    }
    if ranks > 1 {
        account.set("--dp-size", &ranks.into());
        account.switch("--enable-dp-attention");
    }
    if let Some(ranks) = engine.context.expert_parallel(engine.pool) {
        account.set("--ep-size", &ranks.into());
    }
    // Its share of memory is for weights and cache alone: what the largest pass needs beside them is told by this cap only.
    let blocks = engine.pinned_blocks().or(engine.context.modelled_blocks.map(u64::from));
    if let (Some(blocks), Some(size)) = (blocks, engine.given("block_size").and_then(Value::as_u64)) {
        account.set("--max-total-tokens", &(blocks * size).into());
    }
    let own = engine.given("sglang").cloned().unwrap_or_default();
    let given =
        |field: &str| engine.options.get(field).or_else(|| own.get(field)).filter(|value| !value.is_null());
    for (field, flag) in [
        ("block_size", "--page-size"),
        ("gpu_memory_utilization", "--mem-fraction-static"),
        ("max_num_seqs", "--max-running-requests"),
        ("chunked_prefill_size", "--chunked-prefill-size"),
        ("max_prefill_tokens", "--max-prefill-tokens"),
        ("schedule_conservativeness", "--schedule-conservativeness"),
    ] {
        if let Some(value) = given(field) {
            account.set(flag, value);
        }
    }
    if let Some(tokens) = engine.longest_sequence() {
        account.set("--context-length", tokens);
    }
    if let Some(policy) = given("schedule_policy") {
        // The engine's own name for first come, first served.
        let policy = if policy == "fifo" { Value::from("fcfs") } else { policy.clone() };
        account.set("--schedule-policy", &policy);
    }
    if engine.given("enable_prefix_caching") == Some(&Value::Bool(false)) {
        account.switch("--disable-radix-cache");
    }
    if engine.context.is_disaggregated() {
        account.set("--disaggregation-mode", &Value::from(engine.context.name));
    }
    if engine.reports_kv_events() {
        let config = format!(
            "{{\"publisher\":\"zmq\",\"topic\":\"kv-events\",\"endpoint\":\"tcp://*:{KV_EVENTS_PORT}\"}}"
        );
        account.set("--kv-events-config", &Value::from(config));
    }
    for (field, why) in [
        (
            "max_num_batched_tokens",
            "SGLang bounds a pass by max_prefill_tokens and chunked_prefill_size; the room that is left for the cache is said",
        ),
        ("enable_chunked_prefill", "SGLang chunks by chunked_prefill_size"),
        ("clip_max_new_tokens", "set by the environment variable SGLANG_CLIP_MAX_NEW_TOKENS_ESTIMATION"),
        ("aic_nextn", "needs the draft model's own flags"),
    ] {
        if let Some(value) = given(field) {
            account.unsaid(field, value, why);
        }
    }
}

/// Names of the same flags in `trtllm-serve` and behind Dynamo's runtime.
struct TrtllmFlags {
    tensor: &'static str,
    pipeline: &'static str,
    expert: &'static str,
    longest_sequence: &'static str,
    options: &'static [(&'static str, &'static str)],
}

const TRTLLM_SERVE: TrtllmFlags = TrtllmFlags {
    tensor: "--tp_size",
    pipeline: "--pp_size",
    expert: "--ep_size",
    longest_sequence: "--max_seq_len",
    options: &[
        ("max_num_seqs", "--max_batch_size"),
        ("max_num_batched_tokens", "--max_num_tokens"),
        ("gpu_memory_utilization", "--kv_cache_free_gpu_memory_fraction"),
    ],
};

const DYNAMO_TRTLLM: TrtllmFlags = TrtllmFlags {
    tensor: "--tensor-parallel-size",
    pipeline: "--pipeline-parallel-size",
    expert: "--expert-parallel-size",
    longest_sequence: "--max-seq-len",
    options: &[
        ("max_num_seqs", "--max-batch-size"),
        ("max_num_batched_tokens", "--max-num-tokens"),
        ("gpu_memory_utilization", "--free-gpu-memory-fraction"),
        ("block_size", "--kv-block-size"),
    ],
};

pub(super) fn trtllm(engine: Engine<'_>, account: &mut Account) {
    let alone = engine.context.starter == Starter::Engine;
    let names = if alone { TRTLLM_SERVE } else { DYNAMO_TRTLLM };
    let ranks = engine.number("dp_size");
    account.set(names.tensor, &engine.gpus_of_a_stage());
    if engine.number("pipeline_parallel_size") > 1 {
        account.set(names.pipeline, &engine.number("pipeline_parallel_size").into());
    }
    if let Some(ranks) = engine.context.expert_parallel(engine.pool) {
        account.set(names.expert, &ranks.into());
    }
    engine.set_given(account, names.options);
    if let Some(tokens) = engine.longest_sequence() {
        account.set(names.longest_sequence, tokens);
    }
    if alone {
        engine.list_given(
            account,
            &[("block_size", "set kv_cache_config.tokens_per_block in the extra options file")],
        );
    }
    if ranks > 1 {
        // There the number of ranks is that of the tensor-parallel group.
        if !alone {
            account.switch("--enable-attention-dp");
        }
        if alone || engine.number("tensor_parallel_size") > 1 {
            let why = "set enable_attention_dp in the extra options file; its ranks are all GPUs of a stage";
            account.unsaid("dp_size", &ranks.into(), why);
        }
    }
    if engine.context.is_disaggregated() {
        if alone {
            let why = "name the servers and their roles in the file of `trtllm-serve disaggregated`";
            account.unsaid("role", &engine.context.name.into(), why);
        } else {
            account.set("--disaggregation-mode", &engine.context.name.into());
        }
    }
    if engine.reports_kv_events() {
        account.switch("--publish-kv-events");
    }
    engine.list_modelled_blocks(account, "kv_cache_config.max_tokens in the extra options file");
    engine.list_given(
        account,
        &[
            ("num_gpu_blocks", "set kv_cache_config.max_tokens in the extra options file"),
            ("enable_prefix_caching", "set kv_cache_config.enable_block_reuse in the extra options file"),
            ("enable_chunked_prefill", "set enable_chunked_prefill in the extra options file"),
            ("aic_nextn", "set speculative_config in the extra options file"),
        ],
    );
}
