//! Search configurations: defaults, presets and rules.

use spica::config::presets::{PredictorFamily, ScalingPolicy};
use spica::config::scenario::{
    ArrivalProcess, Backend, DeploymentMode, PolicyConfig, Sla, TimingConfig, WorkloadSource,
};
use spica::config::search::{KvLoadRatio, LoadShape, OptimizationTarget, ParallelConfig, Shape};

use crate::config::{SEARCH, assert_refused, load, problems, search};

#[test]
fn defaults_are_the_documented_ones() {
    let config = search(&[]);
    let space = &config.search_space;
    assert_eq!(space.deployment_mode, [DeploymentMode::Disagg, DeploymentMode::Agg]);
    assert_eq!(space.backend, [Backend::Vllm]);
    assert_eq!((space.gpu_budget, space.min_gpu_budget), (32, None));
    assert_eq!(space.prefill_max_num_seqs, [1, 2, 4, 8, 16, 32, 64, 128, 256]);
    assert_eq!(space.decode_max_num_batched_tokens, [8192]);
    assert_eq!(space.agg_max_num_batched_tokens, [8192, 16384, 32768]);
    assert_eq!(space.agg_max_num_seqs, [256, 512, 1024]);
    assert!(space.prefill_enable_prefix_caching && space.agg_enable_prefix_caching);
    assert!(!space.decode_enable_prefix_caching);
    assert_eq!(space.router_mode, [PolicyConfig::named("kv_router"), PolicyConfig::named("round_robin")]);
    assert_eq!(space.prefill_load_scale, [0.0, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0]);
    assert_eq!(space.planner_scaling_policy.len(), 7);
    assert_eq!(space.load_predictor_candidates.len(), 11);
    assert_eq!(space.num_gpu_blocks, None);
    let TimingConfig::Profile { model_name, hardware_sku, backend_version, .. } = &space.timing else {
        panic!("a profile prices passes unless something else is asked for");
    };
    assert_eq!(model_name.as_deref(), Some("Qwen/Qwen3-32B"));
    assert_eq!(hardware_sku.as_deref(), Some("h200_sxm"));
    assert_eq!(*backend_version, None);
    assert_eq!(config.goal.target, OptimizationTarget::Throughput);
    let sweep = &config.sweep;
    assert_eq!((sweep.max_rounds, sweep.parallel_evals, sweep.candidates_per_round), (20, 16, 16));
    assert_eq!((sweep.random_seed, sweep.max_eval_seconds, sweep.max_eval_passes), (1, Some(600.0), None));
    assert!(!sweep.exhaustive);
}

#[test]
fn the_round_is_as_large_as_the_parallel_evaluations_unless_given() {
    assert_eq!(search(&["sweep.parallel_evals=4"]).sweep.candidates_per_round, 4);
    assert_eq!(
        search(&["sweep.parallel_evals=4", "sweep.candidates_per_round=null"]).sweep.candidates_per_round,
        4
    );
    assert_eq!(
        search(&["sweep.parallel_evals=4", "sweep.candidates_per_round=9"]).sweep.candidates_per_round,
        9
    );
    assert_eq!(search(&["sweep.max_eval_seconds=null"]).sweep.max_eval_seconds, None);
}

#[test]
fn request_counts_are_rounded_half_to_even() {
    let count = |changes: &[&str], concurrency| {
        let workload = search(changes).workload.of_trial(concurrency).expect("has a load");
        match workload.source {
            WorkloadSource::Synthetic(synthetic) => (synthetic.count, workload.concurrency),
            _ => panic!("is generated"),
        }
    };
    let closed = ["workload.request_rate=null", "workload.concurrency=256", "workload.num_request_ratio=10"];
    assert_eq!(count(&closed, None), (2560, Some(256)));
    assert_eq!(count(&closed, Some(8)), (80, Some(8)));
    assert_eq!(count(&["workload.request_rate=25", "workload.num_request_ratio=4"], None), (100, None));
    for (ratio, expected) in [("2.5", 2), ("3.5", 4), ("0.1", 1)] {
        let ratio = format!("workload.num_request_ratio={ratio}");
        assert_eq!(count(&["workload.request_rate=1", &ratio], None).0, expected);
    }
}

#[test]
fn exactly_one_load_is_needed() {
    assert_refused(SEARCH, &["workload.request_rate=null"], "workload", &["exactly one", "none is given"]);
    assert_refused(SEARCH, &["workload.concurrency=4"], "workload.concurrency", &["`request_rate`"]);
    assert_refused(
        SEARCH,
        &["workload.concurrency=1.9", "workload.request_rate=null"],
        "workload.concurrency",
        &["not a whole number"],
    );
    for key in ["isl", "osl", "num_request_ratio"] {
        let path = format!("workload.{key}");
        assert_refused(SEARCH, &[&format!("{path}=null")], &path, &["required key is missing"]);
        assert_refused(SEARCH, &[&format!("{path}=0")], &path, &["`0` is out of range"]);
        assert_refused(SEARCH, &[&format!("{path}=-1")], &path, &["`-1` is out of range"]);
    }
    assert_refused(SEARCH, &["workload.request_rate=0"], "workload.request_rate", &["above 0"]);
    assert_refused(
        SEARCH,
        &["workload.replay_concurrency=2"],
        "workload.replay_concurrency",
        &["`concurrency`"],
    );
}

#[test]
fn kv_load_ratios_are_one_number_or_a_range() {
    let pareto = ["workload.request_rate=null", "goal.target=pareto"];
    let with = |value: &str| {
        let change = format!("workload.kv_load_ratio={value}");
        let changes = [pareto[0], pareto[1], change.as_str()];
        (problems(SEARCH, &changes), load(SEARCH, &changes))
    };
    for value in ["[]", "[0]", "[0, .5, 1]", "[-.1, 1]", "[1, 1]", "[1, 0]", ".inf", "[0, .inf]", "-1"] {
        let (found, _) = with(value);
        assert_eq!(found.len(), 1, "{value}: {found:?}");
        assert!(found[0].contains("workload.kv_load_ratio"), "{value}: {found:?}");
    }
    for value in ["0.5", "[0.2, 1.5]", "0"] {
        assert!(with(value).1.is_ok(), "{value}");
    }
    let fixed = search(&["workload.request_rate=null", "workload.kv_load_ratio=0.5"]);
    assert!(matches!(fixed.workload.load, LoadShape::KvLoad { kv_load_ratio: KvLoadRatio::Fixed(0.5), .. }));
    assert_eq!(fixed.workload.of_trial(None), None);
    assert_refused(
        SEARCH,
        &["workload.request_rate=null", "workload.kv_load_ratio=[0, 1]"],
        "workload.kv_load_ratio",
        &["only allowed when `goal.target` is `pareto`"],
    );
}

#[test]
fn a_frontier_without_a_load_searches_the_whole_range() {
    let config = search(&["workload.request_rate=null", "goal.target=pareto"]);
    let LoadShape::KvLoad { kv_load_ratio, .. } = config.workload.load else { panic!("is a KV load") };
    assert_eq!(kv_load_ratio, KvLoadRatio::Range([0.0, 1.0]));
    let objectives = [OptimizationTarget::ThroughputPerGpu, OptimizationTarget::ThroughputPerUser];
    assert_eq!(config.goal.pareto_objectives, objectives);
    let rate = search(&["goal.target=pareto"]);
    assert!(matches!(rate.workload.load, LoadShape::Rate { .. }));
    let without = "search_space: {model_name: a, hardware_sku: b}\ngoal: {target: pareto}\n";
    assert_refused(without, &[], "workload", &["required key is missing"]);
}

#[test]
fn traces_take_no_keys_of_generated_requests() {
    let trace = "search_space: {model_name: a, hardware_sku: b}\nworkload: {trace_path: t.jsonl}\n";
    for change in [
        "isl=1",
        "osl=1",
        "request_rate=1",
        "concurrency=1",
        "kv_load_ratio=1",
        "num_request_ratio=1",
        "shared_prefix_ratio=0.5",
        "num_prefix_groups=2",
        "turns_per_session=2",
        "inter_turn_delay_ms=5",
        "arrival={process: poisson}",
    ] {
        let (key, _) = change.split_once('=').unwrap();
        let words = ["generated requests"];
        assert_refused(trace, &[&format!("workload.{change}")], &format!("workload.{key}"), &words);
    }
    assert_refused(trace, &["workload.replay_concurrency=0"], "workload.replay_concurrency", &["1 or more"]);
    assert_refused(trace, &["workload.trace_format=weka"], "workload.trace_format", &["mooncake"]);
    assert_refused(trace, &["workload.requests=[]"], "workload.requests", &["scenarios"]);
    let all = "search_space: {model_name: a, hardware_sku: b}
workload:
  {trace_path: t.jsonl, trace_format: mooncake, trace_block_size: 64, trace_time_unit: s, zero_output: prefill_only,
   strict: true, max_requests: 7, replay_concurrency: 3, turns_per_session: 1, shared_prefix_ratio: 0}
";
    let Ok(spica::config::Document::Search(config)) = load(all, &[]) else {
        panic!("{:?}", problems(all, &[]))
    };
    let LoadShape::Trace(trace) = &config.workload.load else { panic!("is a trace") };
    assert_eq!(trace.path.to_str(), Some("folder/t.jsonl"));
    assert_eq!((trace.block_size, trace.max_requests, trace.replay_concurrency), (64, Some(7), Some(3)));
    let trial = config.workload.of_trial(Some(99)).expect("is a trace");
    assert_eq!(trial.concurrency, Some(3), "a trace ignores a trial's own number in flight");
}

#[test]
fn generated_requests_take_no_keys_of_traces() {
    for change in [
        "trace_block_size=64",
        "trace_time_unit=s",
        "zero_output=prefill_only",
        "max_requests=3",
        "arrival_speedup_ratio=2",
    ] {
        let (key, _) = change.split_once('=').unwrap();
        assert_refused(SEARCH, &[&format!("workload.{change}")], &format!("workload.{key}"), &["traces"]);
    }
    assert_refused(
        SEARCH,
        &["workload.shared_prefix_ratio=0.5"],
        "workload.shared_prefix_ratio",
        &["`num_prefix_groups` is 0"],
    );
    assert_refused(SEARCH, &["workload.shared_prefix_ratio=50"], "workload.shared_prefix_ratio", &["0.5"]);
    assert_refused(SEARCH, &["workload.inter_turn_delay_ms=5"], "workload.inter_turn_delay_ms", &["turns"]);
    let closed =
        ["workload.request_rate=null", "workload.concurrency=3", "workload.arrival={process: poisson}"];
    assert_refused(SEARCH, &closed, "workload.arrival", &["`request_rate`"]);
}

#[test]
fn arrivals_have_a_process_and_a_seed() {
    let gamma = search(&["workload.arrival={process: gamma, smoothness: 2, seed: 7}"]);
    let LoadShape::Rate { arrival, .. } = gamma.workload.load else { panic!("is a rate") };
    assert_eq!((arrival.process, arrival.seed), (ArrivalProcess::Gamma { smoothness: 2.0 }, 7));
    let refused = |value: &str, path: &str, word: &str| {
        assert_refused(SEARCH, &[&format!("workload.arrival={value}")], path, &[word]);
    };
    refused("{process: gamma}", "workload.arrival.smoothness", "required key is missing");
    refused("{process: poisson, smoothness: 2}", "workload.arrival.smoothness", "`process: gamma`");
    refused("{process: possion}", "workload.arrival.process", "did you mean `poisson`?");
    refused("{seed: 1}", "workload.arrival.process", "required key is missing");
    refused("{process: burst, seed: -1}", "workload.arrival.seed", "0 or more");
    refused("{process: burst, seed: 1.5}", "workload.arrival.seed", "not a whole number");
    refused(
        "{process: burst, seed: 18446744073709551616}",
        "workload.arrival.seed",
        "at most 18446744073709551615",
    );
}

#[test]
fn numbers_have_bounds() {
    for (path, value, word) in [
        ("search_space.gpu_budget", "0", "1 or more"),
        ("search_space.gpu_budget", "-8", "1 or more"),
        ("search_space.gpu_budget", "4294967296", "at most 4294967295"),
        ("search_space.min_gpu_budget", "0", "1 or more"),
        ("search_space.min_gpu_budget", "33", "more than `gpu_budget`, which is 32"),
        ("search_space.min_endpoint", "-1", "0 or more"),
        ("search_space.context_length", "0", "1 or more"),
        ("search_space.startup_time", "-1", "0 or more"),
        ("search_space.startup_time", "500ms", "`startup_time: 0.5`"),
        ("search_space.aic_nextn", "0", "1 or more"),
        ("search_space.aic_nextn", "6", "at most 5"),
        ("search_space.num_gpu_blocks", "0", "1 or more"),
        ("search_space.agg_block_size", "1", "2 or more"),
        ("search_space.prefill_gpu_memory_utilization", "0", "above 0"),
        ("search_space.decode_gpu_memory_utilization", "1.1", "at most 1"),
        ("search_space.num_g2_blocks", "-1", "0 or more"),
        ("sweep.max_rounds", "0", "1 or more"),
        ("sweep.parallel_evals", "0", "1 or more"),
        ("sweep.candidates_per_round", "0", "1 or more"),
        ("sweep.max_eval_seconds", "0", "above 0"),
        ("sweep.max_eval_passes", "0", "1 or more"),
        ("sweep.random_seed", "-1", "0 or more"),
        ("sweep.random_seed", "1.5", "not a whole number"),
        ("sweep.fidelity", "3", "keys with values"),
    ] {
        assert_refused(SEARCH, &[&format!("{path}={value}")], path, &[word]);
    }
    let sglang = ["search_space.backend=[sglang]", "search_space.agg_block_size=1"];
    assert_eq!(search(&sglang).search_space.agg_block_size, 1);
    assert_refused(
        SEARCH,
        &["search_space.prefill_block_size=16"],
        "search_space.decode_block_size",
        &["16"],
    );
    let agg = ["search_space.prefill_block_size=16", "search_space.deployment_mode=[agg]"];
    assert_eq!(search(&agg).search_space.prefill_block_size, 16);
}

#[test]
fn lists_hold_allowed_choices_only() {
    for (key, value, word) in [
        ("deployment_mode", "[]", "at least one choice"),
        ("deployment_mode", "[aggregated]", "one of: disagg, agg"),
        ("deployment_mode", "agg", "write `deployment_mode: [agg]`"),
        ("backend", "vllm", "write `backend: [vllm]`"),
        ("agg_max_num_seqs", "256", "write `agg_max_num_seqs: [256]`"),
        ("agg_max_num_seqs", "[]", "at least one choice"),
        ("overlap_score_credit", "0.5", "write `overlap_score_credit: [0.5]`"),
        ("router_mode", "kv_router", "write `router_mode: [kv_router]`"),
        ("planner_scaling_policy", "[]", "at least one choice"),
    ] {
        let path = format!("search_space.{key}");
        let words = [if value == "[aggregated]" { "did you mean `agg`? One of: disagg, agg" } else { word }];
        let found = problems(SEARCH, &[&format!("{path}={value}")]);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].contains(&path) && found[0].contains(words[0]), "{found:?}");
    }
    for (key, value, words) in [
        ("backend", "vlm", ["`vlm`", "did you mean `vllm`? One of: vllm, sglang, trtllm"]),
        ("agg_max_num_seqs", "3", ["invalid choice `3`", "256, 512, 1024"]),
        ("decode_max_num_batched_tokens", "16384", ["invalid choice", "8192"]),
        ("prefill_load_scale", "3", ["invalid choice", "0.25"]),
        ("router_temperature", "-0.5", ["out of range", "0 or more"]),
        ("overlap_score_credit", "{a: 1}", ["a mapping", "one finite number"]),
        ("planner_fpm_sampling", "tiny", ["invalid choice `tiny`", "small, default, large, fine"]),
        ("load_predictor_candidates", "arima", ["did you mean `arima_raw`?", "constant_last"]),
    ] {
        let path = format!("search_space.{key}");
        assert_refused(SEARCH, &[&format!("{path}=[{value}]")], &format!("{path}[0]"), &words);
    }
    let twice = search(&["search_space.deployment_mode=[agg, disagg, agg]"]);
    assert_eq!(twice.search_space.deployment_mode, [DeploymentMode::Agg, DeploymentMode::Disagg]);
}

#[test]
fn host_offload_needs_the_size_of_a_token() {
    let offload = "search_space.num_g2_blocks=128";
    assert_refused(SEARCH, &[offload], "search_space.kv_bytes_per_token", &["required", "num_g2_blocks"]);
    let sized = search(&[offload, "search_space.kv_bytes_per_token=1000"]);
    assert_eq!((sized.search_space.num_g2_blocks, sized.search_space.kv_bytes_per_token), (128, Some(1000)));
    for value in ["0", "-1"] {
        let size = format!("search_space.kv_bytes_per_token={value}");
        assert_refused(SEARCH, &[offload, &size], "search_space.kv_bytes_per_token", &["1 or more"]);
    }
    assert_refused(
        SEARCH,
        &["search_space.offload_batch_size=4"],
        "search_space.offload_batch_size",
        &["`num_g2_blocks` is 0"],
    );
}

#[test]
fn admission_control_and_the_cost_based_router_exclude_each_other() {
    for (key, value) in [
        ("active_decode_blocks_threshold", "5"),
        ("active_prefill_tokens_threshold", "5"),
        ("active_prefill_tokens_threshold_frac", "0.5"),
        ("no_admission_control", "true"),
    ] {
        let (path, change) = (format!("search_space.{key}"), format!("search_space.{key}={value}"));
        assert_refused(SEARCH, &[&change], &path, &["not supported by the replay"]);
        search(&[&change, "search_space.router_mode=[round_robin]"]);
    }
}

#[test]
fn routers_are_names_or_mappings() {
    let config = search(&["search_space.router_mode=[{policy: kv_router, queue_threshold: 2}, my_router]"]);
    let routers = &config.search_space.router_mode;
    assert_eq!(routers[0].fields["queue_threshold"], 2);
    assert_eq!(routers[1], PolicyConfig::named("my_router"));
    assert_eq!(routers[1].location, "--set: search_space.router_mode[1]");
    assert_refused(
        SEARCH,
        &["search_space.router_mode=[{a: 1}]"],
        "search_space.router_mode[0]",
        &["`policy`"],
    );
    assert_refused(
        SEARCH,
        &["search_space.router_mode=[3]"],
        "search_space.router_mode[0]",
        &["not a policy"],
    );
}

#[test]
fn presets_stand_for_their_settings() {
    let space = search(&[]).search_space;
    let settings: Vec<_> = space
        .planner_scaling_policy
        .iter()
        .map(|policy| {
            let settings = policy.settings().expect("is a preset");
            (
                settings.enable_throughput_scaling,
                settings.enable_load_scaling,
                settings.throughput_adjustment_interval_seconds,
                settings.load_adjustment_interval_seconds,
            )
        })
        .collect();
    let expected = [
        (false, false, None, None),
        (true, false, Some(180), Some(5)),
        (true, false, Some(600), Some(5)),
        (false, true, Some(180), Some(5)),
        (false, true, Some(180), Some(10)),
        (true, true, Some(180), Some(5)),
        (true, true, Some(600), Some(5)),
    ];
    assert_eq!(settings, expected);
    let sampling: Vec<_> = space
        .planner_fpm_sampling
        .iter()
        .map(|preset| (preset.values.max_num_fpm_samples, preset.values.fpm_sample_bucket_size))
        .collect();
    assert_eq!(sampling, [(32, 4), (64, 16), (128, 16), (128, 64)]);
    let sensitivity: Vec<_> = space
        .planner_load_sensitivity
        .iter()
        .map(|preset| (preset.values.load_scaling_down_sensitivity, preset.values.load_min_observations))
        .collect();
    assert_eq!(sensitivity, [(70, 3), (80, 5), (90, 8)]);
    let reactive = &space.load_predictor_candidates[10];
    assert_eq!(reactive.name, Some("kalman_reactive_log1p"));
    assert_eq!(reactive.values.load_predictor, PredictorFamily::Kalman);
    assert_eq!((reactive.values.kalman_q_level, reactive.values.kalman_min_points), (10.0, 3));
}

#[test]
fn composite_mappings_give_every_setting() {
    let policy = "search_space.planner_scaling_policy";
    let all = "enable_throughput_scaling: true, enable_load_scaling: true, \
               throughput_adjustment_interval_seconds: 60";
    let refused = |entry: &str, key: &str, word: &str| {
        let path = if key.is_empty() { format!("{policy}[0]") } else { format!("{policy}[0].{key}") };
        assert_refused(SEARCH, &[&format!("{policy}=[{{{entry}}}]")], &path, &[word]);
    };
    refused(all, "load_adjustment_interval_seconds", "required key is missing");
    refused(
        &format!("{all}, load_adjustment_interval_seconds: 0"),
        "load_adjustment_interval_seconds",
        "1 or more",
    );
    refused(
        &format!("{all}, load_adjustment_interval_seconds: 60"),
        "load_adjustment_interval_seconds",
        "not below",
    );
    refused(
        &format!("{all}, load_adjustment_interval_seconds: null"),
        "load_adjustment_interval_seconds",
        "missing",
    );
    refused(&format!("{all}, load_adjustment_interval_seconds: 5, x: 1"), "x", "unknown key");
    let good = search(&[&format!("{policy}=[{{{all}, load_adjustment_interval_seconds: 5}}]")]);
    let ScalingPolicy::Builtin(preset) = &good.search_space.planner_scaling_policy[0] else {
        panic!("is built in")
    };
    assert_eq!(preset.name, None);
    assert!(good.search_space.planner_scaling_policy[0].scales());
    assert_eq!(problems(SEARCH, &[&format!("{policy}=[{{}}]")]).len(), 4, "an empty mapping lacks all four");

    let off = "{enable_throughput_scaling: false, enable_load_scaling: false, \
               throughput_adjustment_interval_seconds: null, load_adjustment_interval_seconds: null}";
    assert!(!search(&[&format!("{policy}=[{off}]")]).search_space.planner_scaling_policy[0].scales());

    let registered = search(&[&format!("{policy}=[{{policy: mine, gain: 2}}, other]")]);
    let ScalingPolicy::Registered(mine) = &registered.search_space.planner_scaling_policy[0] else {
        panic!("is known to the registry only");
    };
    assert_eq!((mine.policy.as_str(), &mine.fields["gain"]), ("mine", &serde_json::json!(2)));
}

#[test]
fn composite_settings_have_bounds() {
    for (key, entry, inner, word) in [
        (
            "planner_fpm_sampling",
            "max_num_fpm_samples: 8, fpm_sample_bucket_size: 5",
            "fpm_sample_bucket_size",
            "4 and 9",
        ),
        ("planner_fpm_sampling", "max_num_fpm_samples: 8", "fpm_sample_bucket_size", "missing"),
        (
            "planner_fpm_sampling",
            "max_num_fpm_samples: 0, fpm_sample_bucket_size: 4",
            "max_num_fpm_samples",
            "1 or more",
        ),
        (
            "planner_load_sensitivity",
            "load_scaling_down_sensitivity: 101, load_min_observations: 1",
            "load_scaling_down_sensitivity",
            "at most 100",
        ),
        (
            "planner_load_sensitivity",
            "load_scaling_down_sensitivity: 50, load_min_observations: 0",
            "load_min_observations",
            "1 or more",
        ),
        (
            "load_predictor_candidates",
            "load_predictor: lstm",
            "load_predictor",
            "constant, arima, prophet, kalman",
        ),
        ("load_predictor_candidates", "prophet_window_size: 5", "load_predictor", "missing"),
        ("load_predictor_candidates", "load_predictor: kalman, kalman_r: -1", "kalman_r", "0 or more"),
    ] {
        let path = format!("search_space.{key}[0].{inner}");
        assert_refused(SEARCH, &[&format!("search_space.{key}=[{{{entry}}}]")], &path, &[word]);
    }
    let kalman = search(&["search_space.load_predictor_candidates=[{load_predictor: kalman}]"]);
    let values = kalman.search_space.load_predictor_candidates[0].values;
    assert_eq!((values.kalman_q_level, values.kalman_q_trend, values.kalman_r), (1.0, 0.1, 10.0));
    assert_eq!(
        (values.prophet_window_size, values.kalman_min_points, values.load_predictor_log1p),
        (50, 5, false)
    );
}

#[test]
fn layouts_belong_to_exactly_one_mode() {
    let pinned = |mode: &str, layouts: &str| {
        [format!("search_space.deployment_mode={mode}"), format!("search_space.parallel_configs={layouts}")]
    };
    let refused = |mode: &str, layouts: &str, path: &str, word: &str| {
        let [mode, layouts] = pinned(mode, layouts);
        assert_refused(SEARCH, &[&mode, &layouts], &format!("search_space.{path}"), &[word]);
    };
    refused("[agg, disagg]", "[{tp: 4}]", "parallel_configs", "exactly one mode");
    refused("[agg, agg]", "[{tp: 4}]", "parallel_configs", "exactly one mode");
    refused("[agg]", "[{attention_dp: 4}]", "parallel_configs[0].tp", "required key is missing");
    refused("[agg]", "[{tp: 4, dp: 2}]", "parallel_configs[0].dp", "did you mean `attention_dp`?");
    refused("[agg]", "[{tp: 4, replica: 2}]", "parallel_configs[0].replica", "did you mean `replicas`?");
    refused("[agg]", "[{tp: 0}]", "parallel_configs[0].tp", "1 or more");
    refused("[agg]", "[{tp: 4, replicas: -1}]", "parallel_configs[0].replicas", "1 or more");
    refused("[disagg]", "[{prefill: {tp: 1}}]", "parallel_configs[0].decode", "required key is missing");
    let [mode, layouts] = pinned("[agg]", "[{tp: 4, replicas: 2}]");
    let shape = Shape { tp: 4, attention_dp: 1, moe_tp: 1, moe_ep: 1, pp: 1, replicas: 2 };
    assert_eq!(search(&[&mode, &layouts]).search_space.parallel_configs, [ParallelConfig::Agg(shape)]);
    let [mode, layouts] =
        pinned("[disagg]", "[{prefill: {tp: 4, replicas: 2}, decode: {tp: 4, replicas: 2}}]");
    let pair = ParallelConfig::Disagg { prefill: shape, decode: shape };
    assert_eq!(search(&[&mode, &layouts]).search_space.parallel_configs, [pair]);
    assert_eq!(search(&["search_space.parallel_configs=[]"]).search_space.parallel_configs, []);
}

#[test]
fn goals_and_their_objectives() {
    let refused = |change: &str, path: &str, words: &[&str]| assert_refused(SEARCH, &[change], path, words);
    refused("goal={target: goodput}", "goal.target", &["require an SLA target", "goodput"]);
    refused("goal={target: goodput, sla: {ttft_ms: 5}}", "goal.target", &["SLA", "itl_ms"]);
    refused("goal={target: goodput, sla: {}}", "goal.target", &["SLA"]);
    refused("goal={target: fastest}", "goal.target", &["invalid choice", "throughput_per_gpu"]);
    refused("goal={target: throughput, sla: {ttft_ms: 0}}", "goal.sla.ttft_ms", &["above 0"]);
    refused("goal={target: throughput, sla: {e2e_ms: -3}}", "goal.sla.e2e_ms", &["above 0"]);
    let objectives = "goal.pareto_objectives";
    refused("goal={pareto_objectives: [goodput, throughput]}", objectives, &["only valid when"]);
    refused("goal={target: pareto, pareto_objectives: []}", objectives, &["at least 2 objectives"]);
    refused("goal={target: pareto, pareto_objectives: [throughput]}", objectives, &["at least 2 objectives"]);
    refused("goal={target: pareto, pareto_objectives: [throughput, throughput]}", objectives, &["distinct"]);
    refused(
        "goal={target: pareto, pareto_objectives: [pareto, throughput]}",
        "goal.pareto_objectives[0]",
        &["not an"],
    );
    refused(
        "goal={target: pareto, pareto_objectives: [throughput, goodput]}",
        objectives,
        &["SLA", "(goodput)"],
    );
    refused("goal={min_attainment: 0.9}", "goal.min_attainment", &["SLA"]);
    refused("goal={min_attainment: 90, sla: {e2e_ms: 5}}", "goal.min_attainment", &["0.9"]);

    search(&["goal={target: goodput, sla: {e2e_ms: 5}}"]);
    search(&["goal={target: goodput_per_gpu, sla: {ttft_ms: 5, itl_ms: 5, e2e_ms: 5}}"]);
    let partial = search(&["goal={sla: {ttft_ms: 5, itl_ms: null}, min_attainment: 1}"]);
    assert_eq!(partial.goal.sla, Some(Sla { ttft_ms: Some(5.0), itl_ms: None, e2e_ms: None }));
    assert_eq!(search(&["goal={sla: {}}"]).goal.sla, Some(Sla::default()));
    let pareto = search(&["goal={target: pareto, pareto_objectives: [e2e_latency, throughput]}"]);
    assert_eq!(
        pareto.goal.pareto_objectives,
        [OptimizationTarget::E2eLatency, OptimizationTarget::Throughput]
    );
}

#[test]
fn timing_decides_where_the_cache_size_comes_from() {
    let fixed = search(&["search_space.timing={model: fixed, prefill_ms: 10, decode_ms: 2}"]);
    assert_eq!(fixed.search_space.num_gpu_blocks, Some(16384));
    assert_eq!(search(&["search_space.timing={model: polynomial}"]).search_space.num_gpu_blocks, Some(16384));
    let given = ["search_space.timing={model: polynomial}", "search_space.num_gpu_blocks=100"];
    assert_eq!(search(&given).search_space.num_gpu_blocks, Some(100));
    let profile =
        search(&["search_space.backend_version=0.19", "search_space.timing={model: profile, moe_tp: 2}"]);
    let TimingConfig::Profile { model_name, backend_version, moe_tp, .. } = profile.search_space.timing
    else {
        panic!("is a profile");
    };
    assert_eq!(model_name.as_deref(), Some("Qwen/Qwen3-32B"));
    assert_eq!((backend_version.as_deref(), moe_tp), (Some("0.19"), Some(2)));
    let path = "search_space.backend_version";
    let both =
        ["search_space.backend_version=1.0", "search_space.timing={model: profile, backend_version: 2.0}"];
    assert_refused(SEARCH, &both, path, &["differs"]);
    let inert = ["search_space.backend_version=1.0", "search_space.timing={model: polynomial}"];
    assert_refused(SEARCH, &inert, path, &["has no effect"]);
}

#[test]
fn stray_keys_are_sent_where_they_belong() {
    assert_refused(SEARCH, &["goal.ttft_ms=5"], "goal.ttft_ms", &["it belongs at `goal.sla.ttft_ms`"]);
    assert_refused(SEARCH, &["gpu_budget=5"], "gpu_budget", &["it belongs at `search_space.gpu_budget`"]);
    assert_refused(
        SEARCH,
        &["search_space.max_rounds=5"],
        "search_space.max_rounds",
        &["`sweep.max_rounds`"],
    );
    assert_refused(
        SEARCH,
        &["search_space.adapters={}"],
        "search_space.adapters",
        &["directly in `search_space`"],
    );
    assert_refused(
        SEARCH,
        &["workload.islx=5"],
        "workload.islx",
        &["--set workload.islx=5: ", "did you mean `isl`?"],
    );
}
