//! Scenarios: defaults and rules.

use spica::config::scenario::{
    Backend, CapacitySource, DeploymentMode, EngineOptions, GridConfig, KvTransferTiming, PolicyConfig, Pool,
    SglangSchedulePolicy, TimingConfig, TraceFormat, TraceSource, WorkloadSource,
};

use crate::config::{SCENARIO, assert_refused, load, problems, scenario};

fn agg(overrides: &[&str]) -> Pool {
    scenario(overrides).deployment.agg.expect("is aggregated")
}

#[test]
fn defaults_are_the_documented_ones() {
    let scenario = scenario(&[]);
    assert_eq!(scenario.seed, 1);
    assert_eq!((scenario.sla, scenario.max_sim_time_ms), (None, None));
    let deployment = &scenario.deployment;
    assert_eq!(deployment.router, PolicyConfig::named("round_robin"));
    assert_eq!(deployment.planner, None);
    assert_eq!(deployment.agg, Some(Pool::default()));
    let engine = &Pool::default().engine;
    assert_eq!((engine.backend, engine.block_size, engine.num_gpu_blocks), (Backend::Vllm, 64, 16384));
    assert_eq!((engine.max_num_seqs, engine.max_num_batched_tokens), (Some(256), Some(8192)));
    assert!(engine.enable_prefix_caching && engine.enable_chunked_prefill);
    let WorkloadSource::Trace(trace) = &scenario.workload.source else { panic!("is a trace") };
    assert_eq!(*trace, TraceSource::new("folder/traces/a.jsonl".into(), TraceFormat::Mooncake));
    assert_eq!((scenario.workload.concurrency, scenario.workload.arrival_speedup_ratio), (None, 1.0));
}

#[test]
fn block_sizes_follow_the_backend() {
    for (backend, block_size) in [("vllm", 64), ("sglang", 1), ("trtllm", 32)] {
        let change = format!("deployment.agg.engine.backend={backend}");
        assert_eq!(agg(&[&change]).engine.block_size, block_size);
    }
    let one = "deployment.agg.engine.block_size=1";
    assert_refused(SCENARIO, &[one], "deployment.agg.engine.block_size", &["2 or more"]);
    assert_refused(
        SCENARIO,
        &["deployment.agg.engine={backend: trtllm, block_size: 1}"],
        "deployment.agg.engine.block_size",
        &["2 or more"],
    );
}

#[test]
fn null_unbounds_the_batch() {
    let pool = agg(&["deployment.agg.engine={max_num_seqs: null, max_num_batched_tokens: ~}"]);
    assert_eq!((pool.engine.max_num_seqs, pool.engine.max_num_batched_tokens), (None, None));
}

#[test]
fn engine_options_are_read_under_their_names() {
    let pool = agg(&[
        "deployment.agg={workers: 4, dp_size: 2, tensor_parallel_size: 8, startup_time_s: 30, engine: \
                      {backend: sglang, block_size: 16, num_gpu_blocks: 77, max_num_seqs: 9, max_num_batched_tokens: \
                      99, max_model_len: 1000, enable_prefix_caching: false, enable_chunked_prefill: false, \
                      speedup_ratio: 2, decode_speedup_ratio: 1, prefill_decode_interval: 3, aic_nextn: 2, \
                      aic_nextn_accept_rates: [0.8, 0.5], aic_mtp_seed: 7, first_token_decode: true, \
                      sglang: {schedule_policy: lpm, max_prefill_tokens: 100, \
                      chunked_prefill_size: 64, clip_max_new_tokens: 5, schedule_conservativeness: 0.5}}}",
    ]);
    assert_eq!((pool.workers, pool.gpus_per_worker(), pool.startup_time_s), (4, 16, 30.0));
    let engine = pool.engine;
    assert_eq!((engine.num_gpu_blocks, engine.max_num_seqs, engine.max_model_len), (77, Some(9), Some(1000)));
    assert_eq!((engine.aic_nextn, engine.aic_mtp_seed, engine.prefill_decode_interval), (Some(2), 7, 3));
    assert_eq!(engine.aic_nextn_accept_rates, Some(vec![0.8, 0.5]));
    assert!(engine.first_token_decode && !engine.enable_prefix_caching && !engine.enable_chunked_prefill);
    assert_eq!(engine.sglang.schedule_policy, SglangSchedulePolicy::Lpm);
    assert_eq!((engine.sglang.chunked_prefill_size, engine.sglang.clip_max_new_tokens), (64, 5));
}

#[test]
fn numbers_have_bounds() {
    for (path, value, word) in [
        ("seed", "-1", "0 or more"),
        ("seed", "1.5", "not a whole number"),
        ("seed", "18446744073709551616", "at most 18446744073709551615"),
        ("max_sim_time_ms", "0", "above 0"),
        ("max_sim_time_ms", "1e13", "at most 1000000000000"),
        ("sla.ttft_ms", "0", "above 0"),
        ("deployment.agg.workers", "0", "1 or more"),
        ("deployment.agg.workers", "16 GPUs", "`workers: 16`"),
        ("deployment.agg.dp_size", "0", "1 or more"),
        ("deployment.agg.tensor_parallel_size", "-1", "1 or more"),
        ("deployment.agg.startup_time_s", "-1", "0 or more"),
        ("deployment.agg.startup_time_s", "2min", "`startup_time_s: 120`"),
        ("deployment.agg.engine.block_size", "0", "2 or more"),
        ("deployment.agg.engine.num_gpu_blocks", "0", "1 or more"),
        ("deployment.agg.engine.max_num_seqs", "0", "1 or more"),
        ("deployment.agg.engine.max_num_batched_tokens", "-5", "1 or more"),
        ("deployment.agg.engine.max_model_len", "0", "1 or more"),
        ("deployment.agg.engine.speedup_ratio", "-1", "0 or more"),
        ("deployment.agg.engine.prefill_schedule_interval", "0", "1 or more"),
        ("deployment.agg.engine.aic_nextn", "6", "at most 5"),
        ("deployment.agg.engine.gpu_memory_utilization", "90", "0.9"),
        ("deployment.agg.timing.prefill_ms", "-1", "0 or more"),
        ("workload.trace_block_size", "0", "1 or more"),
        ("workload.arrival_speedup_ratio", "0", "from 0.000001 to 1000000000"),
        ("workload.replay_concurrency", "0", "1 or more"),
        ("workload.max_requests", "0", "1 or more"),
    ] {
        let timing = "deployment.agg.timing={model: fixed, prefill_ms: 1, decode_ms: 1}";
        assert_refused(SCENARIO, &[timing, &format!("{path}={value}")], path, &[word]);
    }
}

#[test]
fn a_speed_up_of_zero_is_none() {
    let pool = agg(&["deployment.agg.engine={speedup_ratio: 0, decode_speedup_ratio: 0}"]);
    assert_eq!((pool.engine.speedup_ratio, pool.engine.decode_speedup_ratio), (1.0, 1.0));
}

#[test]
fn options_without_effect_are_refused() {
    for (engine, key, word) in [
        ("backend: sglang, preemption_mode: fifo", "preemption_mode", "vllm"),
        ("prefill_schedule_interval: 2", "prefill_schedule_interval", "dp_size"),
        ("prefill_decode_interval: 2", "prefill_decode_interval", "sglang"),
        ("sglang: {clip_max_new_tokens: 3}", "sglang", "sglang"),
        (
            "kv_eviction_policy: belady, enable_prefix_caching: false",
            "kv_eviction_policy",
            "enable_prefix_caching",
        ),
        ("gpu_memory_utilization: 0.8", "gpu_memory_utilization", "memory model"),
        ("aic_mtp_seed: 3", "aic_mtp_seed", "aic_nextn"),
        ("aic_nextn_accept_rates: [0.5]", "aic_nextn_accept_rates", "aic_nextn"),
        ("aic_nextn: 2, aic_nextn_accept_rates: [0.5]", "aic_nextn_accept_rates", "one per draft token"),
        ("aic_nextn: 2, decode_speedup_ratio: 2", "decode_speedup_ratio", "must be 1"),
        (
            "backend: sglang, block_size: 64, sglang: {chunked_prefill_size: 100}",
            "sglang.chunked_prefill_size",
            "multiple",
        ),
    ] {
        let change = format!("deployment.agg.engine={{{engine}}}");
        assert_refused(SCENARIO, &[&change], &format!("deployment.agg.engine.{key}"), &[word]);
    }
    let capped = ["workload.replay_concurrency=2", "workload.arrival_speedup_ratio=2"];
    assert_refused(SCENARIO, &capped, "workload.arrival_speedup_ratio", &["ignores arrival times"]);
    let travel = "deployment.kv_transfer.latency_ms=5";
    assert_refused(SCENARIO, &[travel], "deployment.kv_transfer", &["no effect"]);
    scenario(&["deployment.kv_transfer.latency_ms=0"]);
    scenario(&["deployment.agg.engine={sglang: {schedule_policy: fifo}, preemption_mode: lifo}"]);
}

#[test]
fn chunks_of_sglang_are_whole_blocks_unless_given() {
    let chunk = |engine: &str| {
        agg(&[&format!("deployment.agg.engine={{{engine}}}")]).engine.sglang.chunked_prefill_size
    };
    assert_eq!(chunk("backend: sglang"), 8192);
    assert_eq!(chunk("backend: sglang, block_size: 48"), 170 * 48);
    assert_eq!(chunk("backend: sglang, block_size: 10000, sglang: {schedule_policy: lpm}"), 10_000);
    assert_eq!(chunk("block_size: 48"), 8192, "another engine does not go by it");
}

#[test]
fn timing_has_the_keys_of_its_model() {
    let fixed = agg(&["deployment.agg.timing={model: fixed, prefill_ms: 10, decode_ms: 2.5}"]);
    assert_eq!(fixed.timing, TimingConfig::Fixed { prefill_ms: 10.0, decode_ms: 2.5 });
    let grid = agg(&["deployment.agg.timing={model: grid, path: x.csv}"]);
    assert_eq!(
        grid.timing,
        TimingConfig::Grid(GridConfig { path: "x.csv".into(), pass_overhead_ms: 0.0 }),
        "an override starts from where it is given"
    );
    let profile = agg(&["deployment.agg.timing={model: profile, model_name: m, hardware_sku: h}"]);
    assert_eq!(profile.engine.capacity_source, CapacitySource::MemoryModel);
    assert_eq!(profile.engine.num_gpu_blocks, 0);
    let pinned = agg(&[
        "deployment.agg.timing={model: profile, model_name: m, hardware_sku: h}",
        "deployment.agg.engine.num_gpu_blocks=5",
    ]);
    assert_eq!((pinned.engine.capacity_source, pinned.engine.num_gpu_blocks), (CapacitySource::Given, 5));
    for (timing, key, word) in [
        ("model: fixed, decode_ms: 1", "prefill_ms", "required key is missing"),
        ("model: polynomial, decode_ms: 1", "decode_ms", "`model: fixed`"),
        ("model: fixed, prefill_ms: 1, decode_ms: 1, path: x", "path", "`model: grid`"),
        ("model: grid", "path", "required key is missing"),
        ("model: profile, model_name: m", "hardware_sku", "required key is missing"),
        ("model: polynom", "model", "did you mean `polynomial`?"),
        ("model: profile, model_name: m, hardware_sku: h, moe_ep: 0", "moe_ep", "1 or more"),
    ] {
        let change = format!("deployment.agg.timing={{{timing}}}");
        assert_refused(SCENARIO, &[&change], &format!("deployment.agg.timing.{key}"), &[word]);
    }
}

#[test]
fn pools_follow_the_mode() {
    assert_refused(SCENARIO, &["deployment.prefill={}"], "deployment.prefill", &["mode: agg"]);
    assert_refused(SCENARIO, &["deployment.agg=null"], "deployment.agg", &["required key is missing"]);
    let disagg = "
deployment:
  mode: disagg
  prefill: {workers: 2}
  decode: {workers: 3}
  kv_transfer: {bandwidth_gbps: 50, bytes_per_token: 131072, timing: destination_missing}
workload: {trace_path: a}
";
    let Ok(spica::config::Document::Scenario(scenario)) = load(disagg, &[]) else { panic!("is a scenario") };
    assert_eq!(scenario.deployment.mode, DeploymentMode::Disagg);
    assert_eq!(scenario.deployment.decode.map(|pool| pool.workers), Some(3));
    assert_eq!(scenario.deployment.kv_transfer.timing, KvTransferTiming::DestinationMissing);
    for (change, path, word) in [
        ("deployment.decode=null", "deployment.decode", "required key is missing"),
        ("deployment.decode.workers=0", "deployment.decode.workers", "1 or more"),
        ("deployment.agg={}", "deployment.agg", "`prefill` and `decode`"),
        (
            "deployment.decode.engine.backend=trtllm",
            "deployment.decode.engine.backend",
            "same `engine.backend`",
        ),
        ("deployment.decode.engine.block_size=16", "deployment.decode.engine.block_size", "not 64 and 16"),
        (
            "deployment.kv_transfer.bytes_per_token=null",
            "deployment.kv_transfer.bandwidth_gbps",
            "`bytes_per_token`",
        ),
        (
            "deployment.kv_transfer.bandwidth_gbps=null",
            "deployment.kv_transfer.bytes_per_token",
            "`bandwidth_gbps`",
        ),
        (
            "deployment.kv_transfer={timing: destination_missing}",
            "deployment.kv_transfer.timing",
            "no effect",
        ),
        ("deployment.kv_transfer={sharing: fair}", "deployment.kv_transfer.sharing", "no effect"),
        ("deployment.kv_transfer.sharing=fiar", "deployment.kv_transfer.sharing", "did you mean `fair`?"),
        (
            "deployment.kv_transfer.bandwidth_gbps=0",
            "deployment.kv_transfer.bandwidth_gbps",
            "from 0.001 to 1000000000",
        ),
        ("deployment.kv_transfer.latency_ms=-1", "deployment.kv_transfer.latency_ms", "0 or more"),
        ("deployment.mode=disaggregated", "deployment.mode", "did you mean `disagg`?"),
    ] {
        assert_refused(disagg, &[change], path, &[word]);
    }
}

#[test]
fn policies_keep_their_fields_and_their_place() {
    let text = SCENARIO
        .replace("  mode: agg", "  mode: agg\n  router:\n    policy: kv_router\n    router_temperature: 0.5");
    let Ok(spica::config::Document::Scenario(scenario)) = load(&text, &[]) else { panic!("is a scenario") };
    let router = scenario.deployment.router;
    assert_eq!(
        (router.policy.as_str(), &router.fields["router_temperature"]),
        ("kv_router", &serde_json::json!(0.5))
    );
    assert_eq!(router.location, "deployment.router");
    let planner = crate::config::scenario(&["deployment.planner={max_gpu_budget: 4}"]).deployment.planner;
    let planner = planner.expect("is there");
    assert_eq!(
        (planner.policy.as_str(), &planner.fields["max_gpu_budget"]),
        ("planner", &serde_json::json!(4))
    );
    assert_refused(SCENARIO, &["deployment.router={a: 1}"], "deployment.router", &["`policy`"]);
    assert_refused(SCENARIO, &["deployment.router=[kv_router]"], "deployment.router", &["not a policy"]);
}

#[test]
fn requests_may_be_written_out() {
    let text = "
deployment: {mode: agg, agg: {dp_size: 2}}
workload:
  trace_block_size: 4
  replay_concurrency: 2
  requests:
    - {id: a, arrival_ms: 0, input_length: 8, output_length: 3, hash_ids: [18446744073709551615, 2]}
    - {arrival_ms: 1.5, output_length: 0, input_token_ids: [1, 2, 3], session_id: 7, dp_rank: 1}
    - {delay_ms: 10, input_length: 5, output_length: 1, session_id: 7}
";
    let Ok(spica::config::Document::Scenario(scenario)) = load(text, &[]) else {
        panic!("{:?}", problems(text, &[]))
    };
    assert_eq!(scenario.workload.concurrency, Some(2));
    let WorkloadSource::Requests { requests, block_size } = scenario.workload.source else {
        panic!("is a list")
    };
    assert_eq!((block_size, requests.len()), (4, 3));
    assert_eq!(requests[0].hash_ids, Some(vec![u64::MAX, 2]));
    assert_eq!((requests[1].session_id.as_deref(), requests[1].dp_rank), (Some("7"), Some(1)));
    assert_eq!(requests[2].delay_ms, Some(10.0));
    for (change, path, word) in [
        ("workload.requests[0].output_length=null", "workload.requests[0].output_length", "required"),
        ("workload.requests[0].output_length=-1", "workload.requests[0].output_length", "0 or more"),
        ("workload.requests[0].input_length=0", "workload.requests[0].input_length", "1 or more"),
        ("workload.requests[0].arrival_ms=-1", "workload.requests[0].arrival_ms", "0 or more"),
        ("workload.requests[0].hash_ids=[-1]", "workload.requests[0].hash_ids[0]", "0 or more"),
        ("workload.requests[0].hash_ids=[1.5]", "workload.requests[0].hash_ids[0]", "not a whole number"),
        ("workload.requests[0].hash_ids=[\"1\"]", "workload.requests[0].hash_ids[0]", "without quotes"),
        ("workload.requests[2].input_length=null", "workload.requests[2]", "`input_length` is missing"),
        ("workload.requests[0].output_tokens=3", "workload.requests[0].output_tokens", "did you mean"),
        ("workload.requests=[]", "workload.requests", "an empty list"),
        ("workload.trace_path=a", "workload.trace_path", "beside `requests`"),
        ("workload.isl=4", "workload.isl", "beside `requests`"),
        ("workload.max_requests=4", "workload.max_requests", "beside `requests`"),
        ("workload.turns_per_session=4", "workload.turns_per_session", "beside `requests`"),
    ] {
        assert_refused(text, &[change], path, &[word]);
    }
}

#[test]
fn generated_requests_of_a_scenario_have_a_rate_or_a_concurrency() {
    let text = "deployment: {mode: agg, agg: {}}\nworkload: {isl: 8, osl: 3, concurrency: 4, num_request_ratio: 2.5}\n";
    let Ok(spica::config::Document::Scenario(scenario)) = load(text, &[]) else {
        panic!("{:?}", problems(text, &[]))
    };
    let WorkloadSource::Synthetic(synthetic) = scenario.workload.source else { panic!("is generated") };
    assert_eq!((synthetic.count, scenario.workload.concurrency), (10, Some(4)));
    assert_refused(text, &["workload.kv_load_ratio=1"], "workload.kv_load_ratio", &["a search"]);
    assert_refused(text, &["workload.concurrency=null"], "workload", &["`request_rate` and `concurrency`"]);
    assert_refused(text, &["workload.num_request_ratio=1e9"], "workload.num_request_ratio", &["too many"]);
}

#[test]
fn required_keys_are_missed() {
    let found = problems("seed: 3\n", &[]);
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(found[0].contains(": deployment: required key is missing"), "{found:?}");
    assert!(found[1].contains(": workload: required key is missing"), "{found:?}");
    assert_refused(SCENARIO, &["deployment.mode=null"], "deployment.mode", &["required key is missing"]);
}

#[test]
fn stray_keys_are_sent_where_they_belong() {
    assert_refused(SCENARIO, &["deployment.workers=3"], "deployment.workers", &["`deployment.agg.workers`"]);
    assert_refused(SCENARIO, &["deployment.sla={}"], "deployment.sla", &["it belongs at `sla`"]);
    assert_refused(
        SCENARIO,
        &["deployment.agg.engine.max_num_seq=3"],
        "deployment.agg.engine.max_num_seq",
        &["did you mean `max_num_seqs`?"],
    );
    assert_refused(
        SCENARIO,
        &["deployment.agg.wrkers.x=3"],
        "deployment.agg.wrkers",
        &["did you mean `workers`?"],
    );
}

#[test]
fn defaults_of_types_and_of_files_agree() {
    for backend in [Backend::Vllm, Backend::Sglang, Backend::Trtllm] {
        let name = format!("{backend:?}").to_lowercase();
        let read = agg(&[&format!("deployment.agg.engine.backend={name}")]).engine;
        assert_eq!(read, EngineOptions::for_backend(backend));
    }
}
