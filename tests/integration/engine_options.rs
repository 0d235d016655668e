//! Every option of an engine acts: turned by itself, it changes what becomes of the requests, or it is refused by name.

#![allow(clippy::unwrap_used, reason = "helpers of tests may panic")]

use serde_json::{Value, json};

use super::cli_command::Workplace;

/// A deployment in which any option could matter: little room, long prompts, many at a time, prefixes in common.
fn cramped(mode: &str, backend: &str) -> Value {
    let pool = |blocks: u32| {
        json!({
            "workers": 1,
            "engine": {"backend": backend, "block_size": 8, "num_gpu_blocks": blocks, "max_num_seqs": 4,
                "max_num_batched_tokens": 192},
            "timing": {"model": "polynomial"},
        })
    };
    let mut deployment = json!({"mode": mode});
    if mode == "agg" {
        deployment["agg"] = pool(90);
    } else {
        deployment["prefill"] = pool(90);
        deployment["prefill"]["workers"] = json!(2);
        deployment["prefill"]["engine"]["max_num_batched_tokens"] = json!(512);
        deployment["decode"] = pool(70);
        deployment["kv_transfer"] = json!({"bandwidth_gbps": 0.25, "bytes_per_token": 100_000});
    }
    if backend == "sglang" {
        for name in ["agg", "prefill", "decode"] {
            if let Some(pool) = deployment.get_mut(name) {
                pool["engine"]["sglang"] = sglang(backend, 64);
            }
        }
    }
    json!({
        "deployment": deployment,
        "workload": {"isl": 160, "osl": 70, "concurrency": 14, "num_request_ratio": 6, "shared_prefix_ratio": 0.5,
            "num_prefix_groups": 4},
    })
}

/// The options that only SGLang has, or none.
fn sglang(backend: &str, chunked_prefill_size: u32) -> Value {
    if backend == "sglang" {
        json!({"chunked_prefill_size": chunked_prefill_size, "max_prefill_tokens": 2 * chunked_prefill_size})
    } else {
        json!({})
    }
}

/// What becomes of the requests: their rows and all figures; `Err` with the message of a refusal.
fn outcome(scenario: &Value) -> Result<String, String> {
    let place = Workplace::with("scenario.yaml", &serde_json::to_string_pretty(scenario).unwrap());
    let answer = place.run(&["replay", "scenario.yaml", "--output-dir", "run", "--quiet"]);
    match answer.status {
        0 => {
            let summary = place.read_json("run/report.json")["summary"].to_string();
            Ok(format!("{}{summary}", place.read("run/requests.jsonl")))
        }
        2 => Err(answer.stderr),
        _ => panic!("{answer:?}"),
    }
}

/// Sets values at paths such as `agg.engine.block_size` below `deployment`.
fn with(mut scenario: Value, changes: &[(&str, Value)]) -> Value {
    for (path, value) in changes {
        let place = path.split('.').fold(&mut scenario["deployment"], |place, key| &mut place[key]);
        *place = value.clone();
    }
    scenario
}

/// Requires that `changes` act, after `before` has set the scene.
#[track_caller]
fn acts(base: &Value, before: &[(&str, Value)], changes: &[(&str, Value)]) {
    let scene = with(base.clone(), before);
    let first = outcome(&scene).unwrap_or_else(|message| panic!("{before:?}: {message}"));
    let second = outcome(&with(scene, changes)).unwrap_or_else(|message| panic!("{changes:?}: {message}"));
    assert!(first != second, "{changes:?} changed nothing in {base}");
}

/// Requires that `change` is refused with its key and `words`.
#[track_caller]
fn refused(base: &Value, (key, value): (&str, Value), words: &str) {
    let change = [(key, value)];
    let message = outcome(&with(base.clone(), &change)).expect_err(key);
    assert!(message.contains(key) && message.contains(words), "{change:?}:\n{message}");
}

#[test]
fn of_a_vllm_engine() {
    let base = cramped("agg", "vllm");
    for (key, value) in [
        ("agg.engine.backend", json!("trtllm")),
        ("agg.engine.backend", json!("sglang")),
        ("agg.engine.block_size", json!(16)),
        ("agg.engine.num_gpu_blocks", json!(80)),
        ("agg.engine.max_num_seqs", json!(2)),
        ("agg.engine.max_num_seqs", Value::Null),
        ("agg.engine.max_num_batched_tokens", json!(100)),
        ("agg.engine.max_num_batched_tokens", Value::Null),
        ("agg.engine.max_model_len", json!(200)),
        ("agg.engine.enable_prefix_caching", json!(false)),
        ("agg.engine.enable_chunked_prefill", json!(false)),
        ("agg.engine.preemption_mode", json!("fifo")),
        ("agg.engine.kv_eviction_policy", json!("belady")),
        ("agg.engine.speedup_ratio", json!(2.0)),
        ("agg.engine.decode_speedup_ratio", json!(2.0)),
        ("agg.engine.aic_nextn", json!(2)),
        ("agg.engine.first_token_decode", json!(true)),
        ("agg.timing", json!({"model": "fixed", "prefill_ms": 10, "decode_ms": 2})),
        ("agg.dp_size", json!(2)),
        ("agg.workers", json!(2)),
    ] {
        acts(&base, &[], &[(key, value)]);
    }
    let drafts = [("agg.engine.aic_nextn", json!(2))];
    acts(&base, &drafts, &[("agg.engine.aic_mtp_seed", json!(7))]);
    acts(&base, &drafts, &[("agg.engine.aic_nextn_accept_rates", json!([0.9, 0.1]))]);
    let ranks = [("agg.dp_size", json!(2))];
    acts(&base, &ranks, &[("agg.engine.prefill_schedule_interval", json!(3))]);
}

#[test]
fn of_a_trtllm_engine() {
    let base = cramped("agg", "trtllm");
    for (key, value) in [
        ("agg.engine.block_size", json!(16)),
        ("agg.engine.num_gpu_blocks", json!(80)),
        ("agg.engine.max_num_seqs", json!(2)),
        ("agg.engine.max_num_batched_tokens", json!(100)),
        ("agg.engine.max_model_len", json!(200)),
        ("agg.engine.enable_prefix_caching", json!(false)),
        ("agg.engine.enable_chunked_prefill", json!(false)),
        ("agg.engine.kv_eviction_policy", json!("belady")),
        ("agg.engine.speedup_ratio", json!(2.0)),
        ("agg.engine.decode_speedup_ratio", json!(2.0)),
        ("agg.engine.aic_nextn", json!(2)),
        ("agg.engine.first_token_decode", json!(true)),
    ] {
        acts(&base, &[], &[(key, value)]);
    }
    refused(&base, ("agg.engine.preemption_mode", json!("fifo")), "has no effect without `backend: vllm`");
}

#[test]
fn of_an_sglang_engine() {
    let base = cramped("agg", "sglang");
    for (key, value) in [
        ("agg.engine.block_size", json!(16)),
        ("agg.engine.num_gpu_blocks", json!(80)),
        ("agg.engine.max_num_seqs", json!(2)),
        ("agg.engine.max_model_len", json!(200)),
        ("agg.engine.enable_prefix_caching", json!(false)),
        ("agg.engine.enable_chunked_prefill", json!(false)),
        ("agg.engine.speedup_ratio", json!(2.0)),
        ("agg.engine.decode_speedup_ratio", json!(2.0)),
        ("agg.engine.prefill_decode_interval", json!(3)),
        ("agg.engine.sglang.schedule_policy", json!("lpm")),
        ("agg.engine.sglang.max_prefill_tokens", json!(64)),
        ("agg.engine.sglang.chunked_prefill_size", json!(32)),
        ("agg.engine.sglang.clip_max_new_tokens", json!(8)),
        ("agg.engine.sglang.schedule_conservativeness", json!(0.3)),
    ] {
        acts(&base, &[], &[(key, value)]);
    }
    // Its passes are bounded by `sglang:`; this limit is what the router's waiting room goes by.
    let waiting = [("router", json!({"policy": "kv_router", "queue_threshold": 1.0}))];
    acts(&base, &waiting, &[("agg.engine.max_num_batched_tokens", json!(64))]);
    for (key, value, words) in [
        ("agg.engine.preemption_mode", json!("fifo"), "has no effect without `backend: vllm`"),
        ("agg.engine.kv_eviction_policy", json!("belady"), "not built with backend sglang"),
        ("agg.engine.aic_nextn", json!(2), "not built with backend sglang"),
        ("agg.engine.first_token_decode", json!(true), "with vllm or trtllm, only"),
    ] {
        refused(&base, (key, value), words);
    }
}

#[test]
fn of_two_pools() {
    for backend in ["vllm", "trtllm", "sglang"] {
        let base = cramped("disagg", backend);
        for (key, value) in [
            ("prefill.engine.num_gpu_blocks", json!(60)),
            ("prefill.engine.enable_prefix_caching", json!(false)),
            ("prefill.engine.speedup_ratio", json!(2.0)),
            ("decode.engine.num_gpu_blocks", json!(60)),
            ("decode.engine.max_num_seqs", json!(2)),
            ("decode.engine.speedup_ratio", json!(2.0)),
            ("decode.engine.decode_speedup_ratio", json!(2.0)),
            ("kv_transfer.bandwidth_gbps", json!(2.0)),
            ("kv_transfer.bytes_per_token", json!(50_000)),
            ("kv_transfer.timing", json!("destination_missing")),
            ("kv_transfer.sharing", json!("fair")),
            ("kv_transfer.sharing", json!("fifo")),
        ] {
            acts(&base, &[], &[(key, value)]);
        }
        let room = [
            ("decode.engine.num_gpu_blocks", json!(900)),
            ("decode.engine.max_num_seqs", json!(16)),
            ("prefill.engine.sglang", sglang(backend, 512)),
        ];
        acts(&base, &room, &[("prefill.engine.max_num_seqs", json!(1))]);
        acts(&base, &[("kv_transfer", json!({}))], &[("kv_transfer.latency_ms", json!(3.0))]);
    }
    let base = cramped("disagg", "vllm");
    for (key, value, words) in [
        ("prefill.engine.decode_speedup_ratio", json!(2.0), "no effect in a prefill pool"),
        ("prefill.engine.first_token_decode", json!(true), "does both phases"),
    ] {
        refused(&base, (key, value), words);
    }
    for (key, value) in [("backend", json!("trtllm")), ("block_size", json!(16))] {
        let changed = with(base.clone(), &[(&format!("decode.engine.{key}"), value)]);
        let message = outcome(&changed).expect_err(key);
        assert!(message.contains(&format!("need the same `engine.{key}`")), "{message}");
    }
}

#[test]
fn that_nobody_has_is_refused() {
    let base = cramped("agg", "vllm");
    for (key, value, words) in [
        ("agg.engine.prefill_schedule_interval", json!(3), "`dp_size` above 1"),
        ("agg.engine.prefill_decode_interval", json!(3), "`backend: sglang`"),
        ("agg.engine.sglang", json!({"max_prefill_tokens": 64}), "`backend: sglang`"),
        ("agg.engine.aic_mtp_seed", json!(7), "`aic_nextn`"),
        ("agg.engine.aic_nextn_accept_rates", json!([0.5]), "`aic_nextn`"),
        ("agg.engine.gpu_memory_utilization", json!(0.8), "a memory model"),
        ("agg.engine.num_g2_blocks", json!(10), "unknown key"),
        ("agg.engine.max_num_sequences", json!(10), "max_num_seqs"),
        ("agg.engine.watermark", json!(0.1), "watermark"),
        ("agg.engine.worker_type", json!("prefill"), "worker_type"),
    ] {
        refused(&base, (key, value), words);
    }
}
