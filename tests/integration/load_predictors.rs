//! The comparison of load predictors before a search.

#![allow(clippy::unwrap_used, reason = "helpers of tests may panic")]

use std::fmt::Write;

use serde_json::{Value, json};

use super::cli_command::Workplace;

const SEARCH: &str = "\
search_space:
  model_name: a/model
  hardware_sku: b200_sxm
  deployment_mode: [agg]
  gpu_budget: 4
  parallel_configs: [{tp: 1, replicas: 2}]
  timing: {model: polynomial}
  router_mode: [round_robin]
  planner_scaling_policy:
    - disabled
    - enable_throughput_scaling: true
      enable_load_scaling: false
      throughput_adjustment_interval_seconds: 20
      load_adjustment_interval_seconds: 5
  planner_fpm_sampling: [default]
  agg_max_num_batched_tokens: [8192]
  agg_max_num_seqs: [256]
workload: {trace_path: rising.jsonl}
goal: {target: goodput_per_gpu, sla: {ttft_ms: 500, itl_ms: 50}}
sweep: {exhaustive: true}
";

/// Requests that come ever faster, for four minutes.
fn place() -> Workplace {
    let place = Workplace::with("search.yaml", SEARCH);
    let mut rows = String::new();
    for second in 0..240 {
        for _ in 0..=second / 30 {
            let at_ms = second * 1000;
            writeln!(rows, "{{\"timestamp\": {at_ms}, \"input_length\": 300, \"output_length\": 20}}")
                .unwrap();
        }
    }
    place.write("rising.jsonl", &rows);
    place
}

fn planned(result: &Value) -> &Value {
    let candidates = result["candidates"].as_array().unwrap();
    candidates.iter().find(|one| one["config"]["planner_scaling_policy"] != "disabled").unwrap()
}

#[test]
fn the_winner_is_shown_and_given_to_the_planners() {
    let place = place();
    let answer = place.run(&["search", "search.yaml", "--output-dir", "out"]).ending(0);
    let result = place.read_json("out/candidates.json");
    let comparison = &result["load_predictors"]["by_interval_s"]["20"];
    assert_eq!(result["load_predictors"]["reason"], "swept");
    let winner = comparison["winner"].as_str().unwrap();
    assert_ne!(winner, "constant_last", "{comparison}");
    assert!(
        answer.stdout.contains(&format!("load predictors: every 20 s {winner} (loss ")),
        "{}",
        answer.stdout
    );
    let planned = planned(&result);
    for name in ["load_predictor", "load_predictor_log1p"] {
        let chosen = &comparison["settings"][name];
        assert_eq!(
            (&planned["config"][name], chosen),
            (chosen, &planned["scenario"]["deployment"]["planner"][name])
        );
    }
    let best = place.run(&["replay", "out/best.yaml", "--format", "json"]).ending(0).json();
    assert_eq!(best["summary"], result["candidates"][0]["metrics"]);
}

#[test]
fn other_candidates_are_another_search() {
    let place = place();
    let constant = "search_space.load_predictor_candidates=[constant_last]";
    place.run(&["search", "search.yaml", "--output-dir", "out"]).ending(0);
    let resume = ["search", "search.yaml", "--output-dir", "out", "--resume"];
    let other = place.run(&[&resume[..], &["--set", constant]].concat());
    other.refusing(&["of the journal is not what this search would evaluate"]);
    place.run(&resume).ending(0);
    let alone = place.run(&["search", "search.yaml", "--set", constant, "--format", "json"]).ending(0).json();
    assert_eq!(planned(&alone)["config"]["load_predictor"], "constant");
    assert_eq!(alone["load_predictors"]["by_interval_s"]["20"]["losses"].as_object().unwrap().len(), 1);
}

#[test]
fn parts_forecast_as_the_whole() {
    let place = place();
    place.run(&["search", "search.yaml", "--output-dir", "whole"]).ending(0);
    for index in ["0", "1"] {
        let folder = format!("parts/{index}");
        let part = ["search", "shard", "search.yaml", "--index", index, "--of", "2", "--output-dir", &folder];
        place.run(&part).ending(0);
    }
    place.run(&["search", "merge", "parts/0", "parts/1", "--output-dir", "merged"]).ending(0);
    for file in ["candidates.json", "best.yaml", "trials.jsonl"] {
        assert!(place.read(&format!("merged/{file}")) == place.read(&format!("whole/{file}")), "{file}");
    }
}

#[test]
fn a_closed_loop_has_nothing_to_compare() {
    let place = place();
    let closed = ["search", "search.yaml", "--set", "workload.replay_concurrency=4", "--format", "json"];
    let result = place.run(&closed).ending(0).json();
    assert_eq!(result["load_predictors"]["reason"], "closed_loop_constant");
    assert_eq!(planned(&result)["config"]["load_predictor"], json!("constant"));
}

#[test]
fn candidates_without_effect_are_noted() {
    let place = place();
    let never = ["--set", "search_space.planner_scaling_policy=[disabled]"];
    let constant = ["--set", "search_space.load_predictor_candidates=[constant_last]"];
    let answer = place.run(&[&["search", "search.yaml"], &never[..], &constant].concat()).ending(0);
    assert!(answer.stderr.contains("load_predictor_candidates: has no effect"), "{}", answer.stderr);
    assert!(!answer.stdout.contains("load predictors"), "{}", answer.stdout);
}
