//! Options that cannot act where they stand: refused where they are the program's own, told of where the reference takes them.

use std::path::Path;

use spica::config::{self, Override};

use crate::config::{SCENARIO, SEARCH, assert_refused};

/// What there is to tell about a configuration that is accepted.
fn notes(text: &str, changes: &[&str]) -> Vec<String> {
    let changes: Vec<Override> =
        changes.iter().map(|change| change.parse().expect("is an override")).collect();
    let loaded = config::load_with_places(text, Path::new("test.yaml"), &changes);
    loaded.unwrap_or_else(|problems| panic!("{changes:?}: {problems}")).notes
}

/// Expects one note, about the key that the last change sets.
#[track_caller]
fn assert_told(text: &str, changes: &[&str], why: &str) {
    let found = notes(text, changes);
    let key = changes.last().and_then(|change| change.split_once('=')).expect("is an override").0;
    let [note] = found.as_slice() else { panic!("{changes:?}: not one note but {found:#?}") };
    assert!(note.contains(&format!(": note: {key}: has no effect ")), "{changes:?}: {note}");
    assert!(note.contains(why), "{changes:?}: {note}");
}

const AGG: &str = "search_space.deployment_mode=[agg]";
const DISAGG: &str = "search_space.deployment_mode=[disagg]";
const ROUND_ROBIN: &str = "search_space.router_mode=[round_robin]";
const DISABLED: &str = "search_space.planner_scaling_policy=[disabled]";
const BOUNDS: &str = "goal={target: goodput, sla: {ttft_ms: 500, itl_ms: 50}}";

#[test]
fn defaults_have_nothing_to_tell() {
    assert_eq!(notes(SEARCH, &[]), [""; 0]);
    assert_eq!(notes(SCENARIO, &[]), [""; 0]);
    // A resolved configuration spells every default out.
    let config::Document::Search(search) =
        crate::config::load(SEARCH, &[AGG, ROUND_ROBIN, DISABLED]).unwrap()
    else {
        panic!("is a search")
    };
    assert_eq!(notes(&search.to_yaml(), &[]), [""; 0]);
}

#[test]
fn knobs_of_roles_that_no_candidate_has_are_told_of() {
    for change in [
        "prefill_max_num_batched_tokens=[8192]",
        "prefill_max_num_seqs=[1]",
        "prefill_block_size=32",
        "prefill_gpu_memory_utilization=0.8",
        "prefill_enable_prefix_caching=false",
        "decode_max_num_seqs=[256]",
        "decode_block_size=32",
        "decode_gpu_memory_utilization=0.8",
        "decode_enable_prefix_caching=true",
    ] {
        let change = format!("search_space.{change}");
        assert_told(SEARCH, &[AGG, &change], "without `disagg` in `deployment_mode`");
    }
    for change in [
        "agg_max_num_batched_tokens=[8192]",
        "agg_max_num_seqs=[256]",
        "agg_block_size=32",
        "agg_gpu_memory_utilization=0.8",
        "agg_enable_prefix_caching=false",
    ] {
        let change = format!("search_space.{change}");
        assert_told(SEARCH, &[DISAGG, &change], "without `agg` in `deployment_mode`");
        assert_eq!(notes(SEARCH, &[&change]), [""; 0]);
    }
}

#[test]
fn weights_without_a_router_that_takes_them_are_told_of() {
    for change in ["overlap_score_credit=[0.5]", "prefill_load_scale=[2]", "router_temperature=[0]"] {
        let change = format!("search_space.{change}");
        assert_told(SEARCH, &[ROUND_ROBIN, &change], "without `kv_router` in `router_mode`");
        assert_eq!(notes(SEARCH, &[&change]), [""; 0]);
    }
    let own = "search_space.router_mode=[{policy: kv_router, router_temperature: 0.1}]";
    assert_told(SEARCH, &[own, "search_space.router_temperature=[0]"], "has of its own");
    assert_eq!(notes(SEARCH, &[own, "search_space.prefill_load_scale=[2]"]), [""; 0]);
    for change in ["active_decode_blocks_threshold=5", "no_admission_control=true"] {
        let change = format!("search_space.{change}");
        assert_told(SEARCH, &[ROUND_ROBIN, &change], "reserved");
    }
}

#[test]
fn offload_without_a_host_cache_is_told_of() {
    for change in [
        "host_cache_hit_weight=[0.5]",
        "disk_cache_hit_weight=[0.5]",
        "kv_bytes_per_token=1000",
        "bandwidth_g1_to_g2_gbps=10",
        "bandwidth_g2_to_g1_gbps=10",
        "offload_batch_size=4",
    ] {
        assert_told(SEARCH, &[&format!("search_space.{change}")], "`num_g2_blocks` is 0");
    }
}

#[test]
fn what_reaches_no_planner_is_told_of() {
    let sampling = "search_space.planner_fpm_sampling=[small]";
    let sensitivity = "search_space.planner_load_sensitivity=[default]";
    let predictors = "search_space.load_predictor_candidates=[arima_raw]";
    assert_told(SEARCH, &[DISABLED, "search_space.min_endpoint=2"], "built-in planner");
    let own = "search_space.planner_scaling_policy=[disabled, {policy: queue_aware, max_gpu_budget: 8}]";
    for change in ["search_space.min_endpoint=2", "search_space.min_gpu_budget=8"] {
        assert_told(SEARCH, &[own, change], "they bring bounds of their own");
    }
    assert_told(SEARCH, &[DISABLED, "search_space.startup_time=20"], "unless a policy scales");
    for goal in ["goal.target=throughput", BOUNDS] {
        assert_told(SEARCH, &[goal, DISABLED, sampling], "ahead of traffic");
        assert_told(SEARCH, &[goal, DISABLED, sensitivity], "after load");
        assert_told(SEARCH, &[goal, DISABLED, predictors], "ahead of traffic");
    }
    // Without bounds to aim for, planners go by thresholds of their own.
    assert_told(SEARCH, &[sensitivity], "under a goodput goal");
    assert_told(
        SEARCH,
        &[BOUNDS, "search_space.planner_scaling_policy=[load_180_5]", sampling],
        "ahead of traffic",
    );
    assert_eq!(notes(SEARCH, &[BOUNDS, sampling]), [""; 0]);
    assert_eq!(notes(SEARCH, &[BOUNDS, sensitivity]), [""; 0]);
    // Generated traffic is forecast by its last value, whatever the candidates.
    assert_told(SEARCH, &[BOUNDS, predictors], "without a trace");
    let trace = "workload={trace_path: t.jsonl}";
    assert_eq!(notes(SEARCH, &[BOUNDS, trace, predictors]), [""; 0]);
    let closed = "workload={trace_path: t.jsonl, replay_concurrency: 3}";
    assert_told(SEARCH, &[BOUNDS, closed, predictors], "at its own pace");
}

#[test]
fn intervals_of_scaling_that_is_off_are_told_of() {
    let policy = |values: &str| {
        format!(
            "search_space.planner_scaling_policy=[{{enable_throughput_scaling: false, enable_load_scaling: true, {values}}}]"
        )
    };
    let both = "throughput_adjustment_interval_seconds: 180, load_adjustment_interval_seconds: 5";
    let found = notes(SEARCH, &[&policy(both)]);
    assert_eq!(found.len(), 1, "{found:?}");
    let key = "search_space.planner_scaling_policy[0].throughput_adjustment_interval_seconds: has no effect";
    assert!(found[0].contains(key), "{found:?}");
    let one = "throughput_adjustment_interval_seconds: null, load_adjustment_interval_seconds: 5";
    assert_eq!(notes(SEARCH, &[&policy(one)]), [""; 0]);
}

#[test]
fn fields_of_another_family_of_forecasters_are_refused() {
    let key = "search_space.load_predictor_candidates";
    for (entry, field, word) in [
        ("load_predictor: arima, kalman_r: 5", "kalman_r", "`load_predictor: kalman`"),
        ("load_predictor: constant, kalman_q_level: 5", "kalman_q_level", "`load_predictor: kalman`"),
        ("load_predictor: prophet, kalman_q_trend: 5", "kalman_q_trend", "`load_predictor: kalman`"),
        ("load_predictor: arima, kalman_min_points: 3", "kalman_min_points", "`load_predictor: kalman`"),
        (
            "load_predictor: kalman, prophet_window_size: 7",
            "prophet_window_size",
            "`load_predictor: prophet`",
        ),
        ("load_predictor: constant, load_predictor_log1p: true", "load_predictor_log1p", "constant"),
    ] {
        assert_refused(SEARCH, &[&format!("{key}=[{{{entry}}}]")], &format!("{key}[0].{field}"), &[word]);
    }
    // What would be so anyway may stand.
    crate::config::search(&[&format!(
        "{key}=[{{load_predictor: arima, kalman_r: 10, prophet_window_size: 50}}]"
    )]);
}

#[test]
fn samplers_beside_an_exhaustive_search_are_refused() {
    let exhaustive = "sweep.exhaustive=true";
    assert_refused(SEARCH, &[exhaustive, "sweep.sampler=random"], "sweep.sampler", &["every point"]);
    assert_told(SEARCH, &[exhaustive, "sweep.max_rounds=3"], "every point");
    assert_eq!(notes(SEARCH, &[exhaustive, "sweep.candidates_per_round=3"]), [""; 0]);
    assert_refused(SEARCH, &["goal.target=pareto", "sweep.top=3"], "sweep.top", &["frontier"]);
}

#[test]
fn experts_of_a_timing_beside_those_of_the_layouts_are_refused() {
    let why = &["has no effect", "the layout of each candidate says it"];
    for model in ["profile", "roofline"] {
        for key in ["moe_tp", "moe_ep"] {
            let timing = format!("search_space.timing={{model: {model}, {key}: 1}}");
            assert_refused(SEARCH, &[&timing], &format!("search_space.timing.{key}"), why);
        }
        let timing = format!("search_space.timing={{model: {model}}}");
        assert_eq!(notes(SEARCH, &[&timing]), [""; 0]);
    }
}

#[test]
fn keys_of_traces_on_other_workloads() {
    assert_refused(SEARCH, &["workload.strict=true"], "workload.strict", &["it is for traces"]);
    assert_told(SEARCH, &["workload.trace_format=mooncake"], "it is for traces");
    let seed = |process: &str| format!("workload.arrival={{process: {process}, seed: 7}}");
    for process in ["fixed", "burst"] {
        assert_refused(SEARCH, &[&seed(process)], "workload.arrival.seed", &["nothing else is drawn"]);
    }
    for process in ["poisson", "gamma, smoothness: 2"] {
        crate::config::search(&[&seed(process)]);
    }
    let list = "workload={requests: [{arrival_ms: 0, input_length: 5, output_length: 2}]}";
    assert_refused(SCENARIO, &[list, "workload.strict=true"], "workload.strict", &["`requests`"]);
    assert_told(SCENARIO, &[list, "workload.trace_block_size=16"], "without `hash_ids`");
    let with_ids = "workload={requests: [{arrival_ms: 0, hash_ids: [1], input_length: 5, output_length: 2}]}";
    assert_eq!(notes(SCENARIO, &[with_ids, "workload.trace_block_size=16"]), [""; 0]);
}

#[test]
fn rates_have_a_draft_token_each() {
    let rates = "deployment.agg.engine.aic_nextn_accept_rates";
    let two = format!("{rates}=[0.8, 0.5]");
    let found = |nextn: &str| crate::config::problems(SCENARIO, &[nextn, &two]);
    assert_eq!(found("deployment.agg.engine.aic_nextn=2"), [""; 0]);
    for nextn in ["deployment.agg.engine.aic_nextn=1", "deployment.agg.engine.aic_nextn=3"] {
        assert_refused(SCENARIO, &[nextn, &two], rates, &["2 rates", "one per draft token"]);
    }
    assert_refused(SCENARIO, &[&two], rates, &["without `aic_nextn`"]);
}

#[test]
fn prices_of_prompts_where_there_are_none_are_told_of() {
    const PROFILE: &str = "{model: profile, model_name: Qwen/Qwen3-32B, hardware_sku: h200_sxm}";
    let pools =
        ["prefill", "decode"].map(|pool| format!("deployment.{pool}={{workers: 1, timing: {PROFILE}}}"));
    let disaggregated =
        ["deployment.mode=disagg", "deployment.agg=null", pools[0].as_str(), pools[1].as_str()];
    for change in ["mixed_passes=summed", "mixed_passes=shared", "uneven_prompts=mean", "uneven_prompts=each"]
    {
        let told = format!("deployment.decode.timing.{change}");
        assert_told(SCENARIO, &[&disaggregated[..], &[told.as_str()]].concat(), "on decode workers");
        let silent = format!("deployment.prefill.timing.{change}");
        assert_eq!(notes(SCENARIO, &[&disaggregated[..], &[silent.as_str()]].concat()), [""; 0]);
    }
}

#[test]
fn facts_that_nothing_asks_for_are_told_of() {
    let facts = "facts={models: [{name: my/model, path: m.json}], hardware: [{name: my_gpu, path: g.json}]}";
    let found = notes(SEARCH, &[facts]);
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(
        found[0].contains("facts.models[0].name: has no effect here: nothing asks for `my/model`"),
        "{found:?}"
    );
    let used = ["search_space.model_name=My/Model", "search_space.hardware_sku=my_gpu", facts];
    assert_eq!(notes(SEARCH, &used), [""; 0]);
    let timing = "deployment.agg.timing={model: roofline, model_name: my/model, hardware_sku: my_gpu}";
    assert_eq!(notes(SCENARIO, &[facts]).len(), 2);
    assert_eq!(notes(SCENARIO, &[timing, facts]), [""; 0]);
}

#[test]
fn choices_that_are_there_twice_are_told_of() {
    let lists = [
        ("router_mode", "[round_robin, kv_router, {policy: round_robin}]", 2, 0),
        ("backend", "[vllm, vllm]", 1, 0),
        ("deployment_mode", "[agg, agg]", 1, 0),
        ("planner_scaling_policy", "[disabled, load_180_5, disabled]", 2, 0),
        ("agg_max_num_seqs", "[256, 512, 512]", 2, 1),
        ("agg_max_num_batched_tokens", "[8192, 8192]", 1, 0),
        ("overlap_score_credit", "[0.5, 1, 1.0]", 2, 1),
        ("parallel_configs", "[{tp: 1, replicas: 2}, {tp: 1, replicas: 2}]", 1, 0),
    ];
    for (key, list, second, first) in lists {
        let change = format!("search_space.{key}={list}");
        let agg = if key == "deployment_mode" { &[][..] } else { &[AGG] };
        let found = notes(SEARCH, &[agg, &[change.as_str()]].concat());
        let told = format!("search_space.{key}[{second}]: is the same as [{first}], and adds nothing");
        let again = found.iter().filter(|note| note.contains("is the same as")).collect::<Vec<_>>();
        assert!(again.len() == 1 && again[0].ends_with(&told), "{key}: {found:?}");
    }
}
