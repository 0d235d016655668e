//! A researcher's own binary: the example, and what the plain program says to its scenario.

#![allow(clippy::unwrap_used, reason = "helpers of tests may panic")]

use std::process::Command;

use tempfile::TempDir;

use super::bundled::{FOR_EXAMPLES, repository, run_in_repository, spica};
use super::scenarios::{assert_outcome, replay};

#[test]
fn policies_of_ones_own_take_part_under_their_names() {
    for name in FOR_EXAMPLES {
        let folder = TempDir::new().unwrap();
        // Cargo finds the example built already when all tests run, and builds it when this one runs alone.
        let mut example = Command::new(env!("CARGO"));
        example.args(["run", "--quiet", "--locked", "--example", name, "--"]);
        example.args(["replay", &format!("scenarios/{name}.yaml"), "--quiet", "--output-dir"]);
        let output = run_in_repository(example.arg(folder.path()));
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let report = std::fs::read_to_string(folder.path().join("report.json")).unwrap();
        assert_outcome(name, &replay(&serde_json::from_str(&report).unwrap()));
    }
}

#[test]
fn a_planner_of_ones_own_scales_a_bundled_scenario() {
    let folder = TempDir::new().unwrap();
    let mut example = Command::new(env!("CARGO"));
    example.args(["run", "--quiet", "--locked", "--example", "custom_planner", "--"]);
    example.args(["replay", "scenarios/planner_burst.yaml", "--quiet", "--output-dir"]).arg(folder.path());
    example.args(["--set", "deployment.planner={policy: one_for_each, requests_per_worker: 60}"]);
    let output = run_in_repository(&mut example);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let rows = std::fs::read_to_string(folder.path().join("scaling.jsonl")).unwrap();
    let first: serde_json::Value = serde_json::from_str(rows.lines().next().unwrap()).unwrap();
    assert_eq!(first["rule"], "one_for_each");
    assert_eq!(first["decided"], serde_json::json!([8]));
    // What nobody can want is refused before anything runs.
    let mut example = Command::new(env!("CARGO"));
    example.args(["run", "--quiet", "--locked", "--example", "custom_planner", "--"]);
    example.args(["check", "scenarios/planner_burst.yaml"]);
    example.args([
        "--set",
        "deployment.planner={policy: one_for_each, requests_per_worker: 0, most_workers: 0}",
    ]);
    let output = run_in_repository(&mut example);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    for problem in ["requests_per_worker: 0 requests", "most_workers: 0 workers"] {
        assert!(stderr.contains(&format!("deployment.planner.{problem}")), "{stderr}");
    }
}

#[test]
fn a_forecaster_of_ones_own_serves_a_bundled_scenario() {
    let folder = TempDir::new().unwrap();
    let run = |smoothing: &str| {
        let mut example = Command::new(env!("CARGO"));
        example.args(["run", "--quiet", "--locked", "--example", "custom_predictor", "--"]);
        example
            .args(["replay", "scenarios/planner_hybrid.yaml", "--quiet", "--output-dir"])
            .arg(folder.path());
        let predictor = format!("deployment.planner.load_predictor={{policy: holt, smoothing: {smoothing}}}");
        example.args(["--set", &predictor, "--set", "deployment.planner.kalman_min_points=null"]);
        run_in_repository(&mut example)
    };
    let refused = run("2");
    let stderr = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(2), "{stderr}");
    assert!(stderr.contains("deployment.planner.load_predictor.smoothing: 2 must be"), "{stderr}");
    let output = run("0.6");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let rows = std::fs::read_to_string(folder.path().join("scaling.jsonl")).unwrap();
    let rows = rows.lines().map(|row| serde_json::from_str::<serde_json::Value>(row).unwrap());
    let forecasts: Vec<_> = rows.filter(|row| row["forecast"].is_object()).collect();
    let first = &forecasts[0];
    assert_eq!(first["forecast"]["num_req"].as_f64(), first["traffic"]["num_req"].as_f64(), "no slope yet");
    assert_ne!(forecasts[1]["forecast"]["num_req"].as_f64(), forecasts[1]["traffic"]["num_req"].as_f64());
}

#[test]
fn a_sampler_of_ones_own_finds_the_optimum_of_a_bundled_search() {
    let folder = TempDir::new().unwrap();
    let run = |sampler: &str, more: &[&str]| {
        let mut example = Command::new(env!("CARGO"));
        example.args(["run", "--quiet", "--locked", "--example", "custom_sampler", "--"]);
        example.args(["search", "scenarios/router_comparison.yaml", "--quiet", "--output-dir"]);
        example.arg(folder.path());
        // With twelve trials the thirteen points are not simply walked.
        example.args(["--set", "sweep.max_rounds=4", "--set", "sweep.candidates_per_round=3", "--set"]);
        run_in_repository(example.arg(format!("sweep.sampler={sampler}")).args(more))
    };
    for (sampler, part) in [
        ("{policy: one_at_a_time, budget: 0}", "budget: 0 deployments are none"),
        ("{policy: one_at_a_time, bugdet: 9}", "unknown field `bugdet`"),
        ("one_at_time", "the samplers are, the most similar first, `one_at_a_time`"),
    ] {
        let refused = run(sampler, &[]);
        let stderr = String::from_utf8_lossy(&refused.stderr);
        assert_eq!(refused.status.code(), Some(2), "{stderr}");
        assert!(stderr.contains("sweep.sampler") && stderr.contains(part), "{stderr}");
    }
    let found = |threads: &str| {
        let output = run("{policy: one_at_a_time, budget: 9}", &["--threads", threads]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        std::fs::read_to_string(folder.path().join("candidates.json")).unwrap()
    };
    let result = found("1");
    assert_eq!(result, found("2"), "the answer does not depend on the threads");
    let result: serde_json::Value = serde_json::from_str(&result).unwrap();
    assert!(result["tally"]["feasible"].as_u64().unwrap() <= 9);
    let mut plain = Command::new(spica());
    plain.args(["search", "scenarios/router_comparison.yaml", "--quiet", "--output-dir"]).arg(folder.path());
    assert!(run_in_repository(&mut plain).status.success());
    let optimum = std::fs::read_to_string(folder.path().join("candidates.json")).unwrap();
    let optimum: serde_json::Value = serde_json::from_str(&optimum).unwrap();
    assert_eq!(result["candidates"][0]["score"], optimum["candidates"][0]["score"]);
}

#[test]
fn without_it_the_known_routers_are_named() {
    for command in ["replay", "check"] {
        let scenario = "scenarios/custom_router.yaml";
        let output = run_in_repository(Command::new(spica()).args([command, scenario]));
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!((output.status.code(), output.stdout), (Some(2), Vec::new()), "{stderr}");
        for word in ["custom_router.yaml:", "deployment.router", "cached_if_calm", "kv_router", "round_robin"]
        {
            assert!(stderr.contains(word), "`{word}` is not in: {stderr}");
        }
    }
}

#[test]
fn it_is_short() {
    let source = std::fs::read_to_string(repository().join("examples/custom_router.rs")).unwrap();
    assert!(source.lines().count() < 40, "a new router is one file of under 40 lines");
}

#[test]
fn a_program_searches_looks_on_and_replays_the_best() {
    let mut example = Command::new(env!("CARGO"));
    example.args(["run", "--quiet", "--locked", "--example", "library"]);
    let output = run_in_repository(&mut example);
    let (stdout, stderr) =
        (String::from_utf8(output.stdout).unwrap(), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{stderr}");
    assert!(stdout.starts_with("round 1: 6 trials, best "), "{stdout}");
    assert!(stdout.contains("router:") && stdout.trim_end().ends_with("ms on average"), "{stdout}");
}
