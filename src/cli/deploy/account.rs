//! Every field of a candidate, and where it went.

use serde_json::{Map, Value};

/// What starts the workers of one pool, and what could not be said with it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Account {
    /// Flags with their values, in order.
    pub(super) flags: Vec<(String, Option<String>)>,
    /// Fields without a flag: the field with its value, and why.
    pub(super) unsaid: Vec<(String, String)>,
}

/// What is simulated only: no flag exists, or the engine does it by itself.
const SIMULATED: [(&str, &str); 9] = [
    ("speedup_ratio", "scales simulated time; 1 means as measured"),
    ("decode_speedup_ratio", "scales simulated time; 1 means as measured"),
    ("preemption_mode", "the engine decides by itself who gives way"),
    ("kv_eviction_policy", "the engine evicts by its own order"),
    ("prefill_schedule_interval", "a rule of the simulated scheduler"),
    ("prefill_decode_interval", "a rule of the simulated scheduler"),
    ("aic_nextn_accept_rates", "acceptance depends on model and text"),
    ("aic_mtp_seed", "a seed of the simulation"),
    ("first_token_decode", "how a pass is charged in the simulation"),
];

impl Account {
    /// Adds a flag with a value.
    fn set(&mut self, flag: &str, value: &Value) {
        let value = match value {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        self.flags.push((flag.to_owned(), Some(value)));
    }

    fn switch(&mut self, flag: &str) {
        self.flags.push((flag.to_owned(), None));
    }

    fn unsaid(&mut self, field: &str, value: &Value, why: &str) {
        self.unsaid.push((format!("{field}: {value}"), why.to_owned()));
    }

    /// The flags as arguments of a command.
    pub(super) fn arguments(&self) -> Vec<String> {
        self.flags
            .iter()
            .flat_map(|(flag, value)| std::iter::once(flag.clone()).chain(value.clone()))
            .collect()
    }
}

/// What is known of a pool beside its block in the scenario.
#[derive(Clone, Copy, Debug)]
pub(super) struct PoolContext<'a> {
    /// `agg`, `prefill` or `decode`.
    pub(super) name: &'a str,
    /// The settings of the candidate.
    pub(super) config: &'a Map<String, Value>,
}

impl PoolContext<'_> {
    /// A setting of this pool, with or without its prefix.
    fn setting(&self, name: &str) -> Option<&Value> {
        let prefixed = format!("{}_{name}", self.name);
        self.config.get(&prefixed).or_else(|| self.config.get(name)).filter(|value| !value.is_null())
    }

    /// Ranks over which experts are spread, as the candidate or else what prices or sizes the pool has it.
    fn expert_parallel(&self, pool: &Value) -> Option<u64> {
        let of_pool = ["timing", "memory"].into_iter().map(|part| &pool[part]["moe_ep"]);
        let given = self.setting("moe_ep").into_iter().chain(of_pool).find_map(Value::as_u64);
        given.filter(|&ranks| ranks > 1)
    }
}

/// Accounts for a pool: engine flags first, then what has none.
pub(super) fn account(pool: &Value, context: PoolContext<'_>) -> Account {
    let engine = pool["engine"].as_object().cloned().unwrap_or_default();
    let mut account = Account::default();
    match engine.get("backend").and_then(Value::as_str) {
        Some("sglang") => sglang(pool, &engine, context, &mut account),
        Some("trtllm") => trtllm(pool, &engine, context, &mut account),
        _ => vllm(pool, &engine, context, &mut account),
    }
    for (field, why) in SIMULATED {
        if let Some(value) = engine.get(field).filter(|value| !value.is_null()) {
            account.unsaid(field, value, why);
        }
    }
    for (field, why) in [
        ("timing", "how passes are priced in the simulation"),
        ("startup_time_s", "how long a worker takes to start is a property of the cluster"),
        ("router", "a router of its own for this pool: set it where the pool's router runs"),
    ] {
        if let Some(value) = pool.get(field).filter(|value| !value.is_null()) {
            account.unsaid(field, value, why);
        }
    }
    account
}

fn number(value: &Value, field: &str) -> u64 {
    value[field].as_u64().unwrap_or(1)
}

/// Blocks are given only where the scenario pins them; otherwise the engine sizes its cache from the memory it may use.
fn pinned_blocks(engine: &Map<String, Value>) -> Option<u64> {
    engine.get("num_gpu_blocks").and_then(Value::as_u64).filter(|&blocks| blocks > 0)
}

fn vllm(pool: &Value, engine: &Map<String, Value>, context: PoolContext<'_>, account: &mut Account) {
    account.set("--tensor-parallel-size", &number(pool, "tensor_parallel_size").into());
    for (field, flag) in
        [("pipeline_parallel_size", "--pipeline-parallel-size"), ("dp_size", "--data-parallel-size")]
    {
        if number(pool, field) > 1 {
            account.set(flag, &number(pool, field).into());
        }
    }
    if context.expert_parallel(pool).is_some() {
        account.switch("--enable-expert-parallel");
    }
    if let Some(blocks) = pinned_blocks(engine) {
        account.set("--num-gpu-blocks-override", &blocks.into());
    }
    for (field, flag) in [
        ("block_size", "--block-size"),
        ("gpu_memory_utilization", "--gpu-memory-utilization"),
        ("max_num_seqs", "--max-num-seqs"),
        ("max_num_batched_tokens", "--max-num-batched-tokens"),
        ("max_model_len", "--max-model-len"),
    ] {
        if let Some(value) = engine.get(field).filter(|value| !value.is_null()) {
            account.set(flag, value);
        }
    }
    for (field, on, off) in [
        ("enable_prefix_caching", "--enable-prefix-caching", "--no-enable-prefix-caching"),
        ("enable_chunked_prefill", "--enable-chunked-prefill", "--no-enable-chunked-prefill"),
    ] {
        account.switch(if engine.get(field) == Some(&Value::Bool(false)) { off } else { on });
    }
    if let Some(drafts) = engine.get("aic_nextn").and_then(Value::as_u64).filter(|&drafts| drafts > 0) {
        let config = format!("{{\"method\":\"mtp\",\"num_speculative_tokens\":{drafts}}}");
        account.set("--speculative-config", &Value::from(config));
    }
    if context.name != "agg" {
        let config = "{\"kv_connector\":\"NixlConnector\",\"kv_role\":\"kv_both\"}";
        account.set("--kv-transfer-config", &Value::from(config));
    }
}

fn sglang(pool: &Value, engine: &Map<String, Value>, context: PoolContext<'_>, account: &mut Account) {
    // Attention ranks split the tensor-parallel group, so that counts all GPUs of a stage.
    let ranks = number(pool, "dp_size");
    account.set("--tp-size", &(number(pool, "tensor_parallel_size") * ranks).into());
    if number(pool, "pipeline_parallel_size") > 1 {
        account.set("--pp-size", &number(pool, "pipeline_parallel_size").into());
    }
    if ranks > 1 {
        account.set("--dp-size", &ranks.into());
        account.switch("--enable-dp-attention");
    }
    if let Some(ranks) = context.expert_parallel(pool) {
        account.set("--ep-size", &ranks.into());
    }
    if let (Some(blocks), Some(size)) =
        (pinned_blocks(engine), engine.get("block_size").and_then(Value::as_u64))
    {
        account.set("--max-total-tokens", &(blocks * size).into());
    }
    let own = engine.get("sglang").cloned().unwrap_or_default();
    let given = |field: &str| engine.get(field).or_else(|| own.get(field)).filter(|value| !value.is_null());
    for (field, flag) in [
        ("block_size", "--page-size"),
        ("gpu_memory_utilization", "--mem-fraction-static"),
        ("max_num_seqs", "--max-running-requests"),
        ("chunked_prefill_size", "--chunked-prefill-size"),
        ("max_prefill_tokens", "--max-prefill-tokens"),
        ("max_model_len", "--context-length"),
        ("schedule_conservativeness", "--schedule-conservativeness"),
    ] {
        if let Some(value) = given(field) {
            account.set(flag, value);
        }
    }
    if let Some(policy) = given("schedule_policy") {
        // The engine's own name for first come, first served.
        let policy = if policy == "fifo" { Value::from("fcfs") } else { policy.clone() };
        account.set("--schedule-policy", &policy);
    }
    if engine.get("enable_prefix_caching") == Some(&Value::Bool(false)) {
        account.switch("--disable-radix-cache");
    }
    if context.name != "agg" {
        account.set("--disaggregation-mode", &Value::from(context.name));
    }
    for (field, why) in [
        ("max_num_batched_tokens", "SGLang bounds a pass by max_prefill_tokens and chunked_prefill_size"),
        ("enable_chunked_prefill", "SGLang chunks by chunked_prefill_size"),
        ("clip_max_new_tokens", "set by the environment variable SGLANG_CLIP_MAX_NEW_TOKENS_ESTIMATION"),
        ("aic_nextn", "needs the draft model's own flags"),
    ] {
        if let Some(value) = given(field) {
            account.unsaid(field, value, why);
        }
    }
}

fn trtllm(pool: &Value, engine: &Map<String, Value>, context: PoolContext<'_>, account: &mut Account) {
    let ranks = number(pool, "dp_size");
    account.set("--tp_size", &(number(pool, "tensor_parallel_size") * ranks).into());
    if number(pool, "pipeline_parallel_size") > 1 {
        account.set("--pp_size", &number(pool, "pipeline_parallel_size").into());
    }
    if let Some(ranks) = context.expert_parallel(pool) {
        account.set("--ep_size", &ranks.into());
    }
    for (field, flag) in [
        ("max_num_seqs", "--max_batch_size"),
        ("max_num_batched_tokens", "--max_num_tokens"),
        ("max_model_len", "--max_seq_len"),
        ("gpu_memory_utilization", "--kv_cache_free_gpu_memory_fraction"),
    ] {
        if let Some(value) = engine.get(field).filter(|value| !value.is_null()) {
            account.set(flag, value);
        }
    }
    if ranks > 1 {
        account.unsaid("dp_size", &ranks.into(), "set enable_attention_dp in the extra options file");
    }
    for (field, why) in [
        ("block_size", "set kv_cache_config.tokens_per_block in the extra options file"),
        ("num_gpu_blocks", "set kv_cache_config.max_tokens in the extra options file"),
        ("enable_prefix_caching", "set kv_cache_config.enable_block_reuse in the extra options file"),
        ("enable_chunked_prefill", "set enable_chunked_prefill in the extra options file"),
        ("aic_nextn", "set speculative_config in the extra options file"),
    ] {
        if let Some(value) = engine.get(field).filter(|value| !value.is_null()) {
            account.unsaid(field, value, why);
        }
    }
}

/// Flags of Dynamo's frontend for the router of a deployment, and what they cannot say.
pub(super) fn frontend(deployment: &Value) -> Account {
    let mut account = Account::default();
    let router = deployment["router"].as_object().cloned().unwrap_or_default();
    let policy = router.get("policy").and_then(Value::as_str).unwrap_or("round_robin");
    let mode = match policy {
        "round_robin" => Some("round-robin"),
        "random" => Some("random"),
        "power_of_two" => Some("power-of-two"),
        "least_loaded" => Some("least-loaded"),
        "kv_router" => Some("kv"),
        _ => None,
    };
    match mode {
        Some(mode) => account.set("--router-mode", &Value::from(mode)),
        None => account.unsaid("router.policy", &Value::from(policy), "Dynamo's frontend has no such router"),
    }
    for (field, value) in router.iter().filter(|(field, value)| *field != "policy" && !value.is_null()) {
        let flag = match field.as_str() {
            "overlap_score_credit" => "--router-kv-overlap-score-credit",
            "overlap_score_credit_decay" => "--router-kv-overlap-score-credit-decay",
            "prefill_load_scale" => "--router-prefill-load-scale",
            "decode_active_request_weight" => "--router-decode-active-request-weight",
            "router_temperature" => "--router-temperature",
            "queue_threshold" => "--router-queue-threshold",
            "kv_event_lag_ms" => {
                account.unsaid("router.kv_event_lag_ms", value, "a property of the network");
                continue;
            }
            other => {
                account.unsaid(
                    &format!("router.{other}"),
                    value,
                    "has no flag in the list that this program keeps",
                );
                continue;
            }
        };
        if mode == Some("kv") {
            account.set(flag, value);
        } else {
            account.unsaid(&format!("router.{field}"), value, "belongs to the kv router only");
        }
    }
    if let Some(planner) = deployment.get("planner").filter(|planner| !planner.is_null()) {
        account.unsaid("planner", planner, "put these into the configuration of Dynamo's planner");
    }
    account
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::flags;
    use super::*;
    use crate::config::scenario::{Backend, EngineOptions, Pool};

    /// The documented flags of an engine.
    fn documented(backend: &str) -> &'static [&'static str] {
        match backend {
            "sglang" => flags::SGLANG,
            "trtllm" => flags::TRTLLM,
            _ => flags::VLLM,
        }
    }

    fn pool(backend: Backend) -> Value {
        let engine = EngineOptions {
            max_model_len: Some(4096),
            aic_nextn: Some(2),
            aic_nextn_accept_rates: Some(vec![0.8, 0.6]),
            ..EngineOptions::for_backend(backend)
        };
        let pool = Pool {
            dp_size: 2,
            tensor_parallel_size: 4,
            pipeline_parallel_size: 2,
            engine,
            ..Pool::default()
        };
        serde_json::to_value(&pool).unwrap()
    }

    #[test]
    fn every_field_of_an_engine_is_said_or_listed_and_every_flag_is_documented() {
        for (backend, name) in
            [(Backend::Vllm, "vllm"), (Backend::Sglang, "sglang"), (Backend::Trtllm, "trtllm")]
        {
            let pool = pool(backend);
            let config = json!({"moe_ep": 8});
            let context = PoolContext { name: "prefill", config: config.as_object().unwrap() };
            let whole = account(&pool, context);
            for (flag, _) in &whole.flags {
                assert!(documented(name).contains(&flag.as_str()), "{name}: {flag}");
            }
            // A field is accounted for if leaving it out or changing it changes the account.
            let engine = pool["engine"].as_object().unwrap();
            // The backend chooses the command itself.
            let own = |field: &str| field != "backend" && (field != "sglang" || name == "sglang");
            for (field, value) in engine.iter().filter(|(field, _)| own(field)) {
                let leaves: Vec<(Option<&str>, &Value)> = match value.as_object() {
                    Some(fields) => {
                        fields.iter().map(|(inner, value)| (Some(inner.as_str()), value)).collect()
                    }
                    None => vec![(None, value)],
                };
                for (inner, value) in leaves.into_iter().filter(|(_, value)| !value.is_null()) {
                    let changed = match value {
                        Value::Bool(value) => json!(!value),
                        Value::Number(_) => json!(77),
                        Value::Array(_) => json!([0.5]),
                        _ => json!("another"),
                    };
                    let mut other = pool.clone();
                    match inner {
                        Some(inner) => other["engine"][field][inner] = changed,
                        None => other["engine"][field] = changed,
                    }
                    assert_ne!(account(&other, context), whole, "{name}: {field} {inner:?} leaves no trace");
                }
            }
        }
    }

    #[test]
    fn experts_are_spread_as_they_were_priced() {
        for (name, flag) in
            [("vllm", "--enable-expert-parallel"), ("sglang", "--ep-size"), ("trtllm", "--ep_size")]
        {
            let pool = json!({
                "dp_size": 1, "tensor_parallel_size": 4, "pipeline_parallel_size": 1,
                "engine": {"backend": name, "sglang": {"schedule_policy": "fifo"}},
                "timing": {"model": "profile", "moe_ep": 4},
            });
            let nothing = Map::new();
            let account = account(&pool, PoolContext { name: "agg", config: &nothing });
            let value = |wanted: &str| account.flags.iter().find(|(flag, _)| flag == wanted);
            assert!(value(flag).is_some(), "{name}");
            if name == "sglang" {
                assert!(format!("{:?}", value("--schedule-policy")).contains("fcfs"));
            }
        }
    }

    #[test]
    fn routers_become_flags_of_the_frontend() {
        let deployment = json!({"router": {"policy": "kv_router", "overlap_score_credit": 0.5, "track_active_blocks": true},
            "planner": {"policy": "load_180_5"}});
        let account = frontend(&deployment);
        assert_eq!(account.arguments(), ["--router-mode", "kv", "--router-kv-overlap-score-credit", "0.5"]);
        assert_eq!(account.unsaid.len(), 2);
        assert!(account.flags.iter().all(|(flag, _)| flags::FRONTEND.contains(&flag.as_str())));
        let own = frontend(&json!({"router": {"policy": "my_router", "depth": 3}}));
        assert_eq!((own.flags.len(), own.unsaid.len()), (0, 2));
    }
}
