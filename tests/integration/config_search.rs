//! Search configurations: defaults, workload, goal and effort.

use spica::config::scenario::{
    ArrivalProcess, Backend, DeploymentMode, PolicyConfig, PricedModel, ProfileConfig, Sla, TimingConfig,
    WorkloadSource,
};
use spica::config::search::{KvLoadRatio, LoadShape, OptimizationTarget};

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
    let TimingConfig::Profile(ProfileConfig {
        of: PricedModel { model_name, hardware_sku, .. },
        backend_version,
        ..
    }) = &space.timing
    else {
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
    assert_refused(
        SEARCH,
        &["workload.request_rate=0"],
        "workload.request_rate",
        &["from 0.000001 to 1000000000"],
    );
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
    assert_eq!(trace.source.path.to_str(), Some("folder/t.jsonl"));
    assert_eq!(
        (trace.source.block_size, trace.source.max_requests, trace.replay_concurrency),
        (64, Some(7), Some(3))
    );
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
    assert_refused(
        SEARCH,
        &["workload.num_prefix_groups=3"],
        "workload.num_prefix_groups",
        &["`shared_prefix_ratio` is 0"],
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
    refused(
        "goal={target: pareto, pareto_objectives: [throughput, throughput]}",
        "goal.pareto_objectives[1]",
        &["distinct"],
    );
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
fn a_list_where_one_number_is_expected_is_told_its_number() {
    for (set, written) in [
        ("search_space.agg_block_size=[64]", "write `agg_block_size: 64`"),
        ("search_space.agg_block_size=[16, 64]", "write `agg_block_size: 16`"),
        ("search_space.agg_block_size=[0]", "write `agg_block_size: 2`"),
        ("goal.min_attainment=[0.9]", "write `min_attainment: 0.9`"),
        ("goal.min_attainment=[9]", "write `min_attainment: 0.5`"),
    ] {
        assert_refused(SEARCH, &[set], set.split('=').next().unwrap_or_default(), &[written]);
    }
}

#[test]
fn stray_keys_are_sent_where_they_belong() {
    // The nearest key that has the name as a word comes before one of the same name that lies deeper.
    for (set, places) in [
        ("seed=8", "did you mean `sweep.random_seed` or `workload.arrival.seed`?"),
        ("workload.seed=8", "it belongs at `workload.arrival.seed`"),
        ("model=x", "did you mean `search_space.model_name` or `search_space.timing.model`?"),
        ("trace=x", "did you mean `workload.trace_path` or"),
    ] {
        let key = set.split('=').next().unwrap_or_default();
        assert_refused(SEARCH, &[set], key, &[places]);
    }
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
