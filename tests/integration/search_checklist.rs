//! What any search of this kind has to get right, where no other test looks at it.

#![allow(clippy::unwrap_used, reason = "helpers of tests may panic")]

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::cli_command::Workplace;
use super::search::{ROUTERS, metric, three_points};

fn search(config: &str, sets: &[&str]) -> Value {
    let place = Workplace::with("search.yaml", config);
    let sets = sets.iter().flat_map(|set| ["--set", set]);
    let arguments: Vec<&str> = ["search", "search.yaml", "--format=json"].into_iter().chain(sets).collect();
    place.run(&arguments).ending(0).json()
}

#[test]
fn routers_have_nothing_to_choose_with_one_worker_and_something_with_two() {
    let latencies = |replicas: &str| -> BTreeSet<String> {
        let layout = format!("search_space.parallel_configs=[{{tp: 4, moe_ep: 4, replicas: {replicas}}}]");
        let result = search(ROUTERS, &[&layout, "sweep.exhaustive=true"]);
        let candidates = result["candidates"].as_array().unwrap();
        assert_eq!(candidates.len(), 109);
        candidates.iter().map(|candidate| candidate["metrics"]["mean_e2e_latency_ms"].to_string()).collect()
    };
    assert_eq!(latencies("1").len(), 1);
    assert!(latencies("2").len() > 1);
}

#[test]
fn fleets_that_scale_and_fleets_that_do_not_have_goodput_and_gpu_hours() {
    let config = three_points().replace("[disabled]", "[disabled, load_180_5]");
    let result = search(&config, &["goal.target=goodput_per_gpu", "sweep.exhaustive=true"]);
    let mut policies = BTreeSet::new();
    for candidate in result["candidates"].as_array().unwrap() {
        policies.insert(candidate["config"]["planner_scaling_policy"].to_string());
        let hours = metric(candidate, "duration_ms") / 3.6e6;
        let goodput = metric(candidate, "goodput_output_throughput_tok_s");
        let expected = goodput / (metric(candidate, "gpu_hours") / hours);
        assert!(goodput > 0.0);
        assert!((candidate["score"].as_f64().unwrap() / expected - 1.0).abs() < 1e-12);
    }
    assert_eq!(policies.len(), 2);
}

#[test]
fn mappings_come_back_as_they_were_written() {
    let policy = json!({
        "enable_throughput_scaling": false, "enable_load_scaling": true,
        "throughput_adjustment_interval_seconds": 170, "load_adjustment_interval_seconds": 7
    });
    let sensitivity = json!({"load_scaling_down_sensitivity": 33, "load_min_observations": 2});
    let router = json!({"policy": "kv_router", "queue_threshold": 0.5});
    let sets = [
        format!("search_space.planner_scaling_policy=[{policy}]"),
        format!("search_space.planner_load_sensitivity=[{sensitivity}]"),
        format!("search_space.router_mode=[{router}]"),
        "goal.target=goodput".to_owned(),
    ];
    let result = search(ROUTERS, &sets.each_ref().map(String::as_str));
    for candidate in result["candidates"].as_array().unwrap() {
        let config = &candidate["config"];
        assert_eq!((&config["planner_scaling_policy"], &config["router_mode"]), (&policy, &router));
        assert_eq!(config["load_scaling_down_sensitivity"], 33);
        assert_eq!(config["load_min_observations"], 2);
    }
}

#[test]
fn one_point_is_one_trial_and_the_optimum() {
    let pinned = three_points().replace("[256, 512, 1024]", "[512]");
    let result = search(&pinned, &[]);
    assert_eq!((&result["tally"]["feasible"], &result["certified_optimum"]), (&1.into(), &true.into()));
    assert_eq!(result["candidates"][0]["config"]["agg_max_num_seqs"], 512);
}
