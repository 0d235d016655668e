//! Planners at work: whatever they are told and however long workers take to start, they keep their bounds.

#![allow(clippy::unwrap_used, reason = "helpers of tests may panic")]

use serde_json::Value;

use super::bundled::{repository, spica};

/// The summary and the rows of `scaling.jsonl` of a bundled scenario.
fn replay(scenario: &str, settings: &[&str]) -> (Value, Vec<Value>, String) {
    let folder = tempfile::TempDir::new().unwrap();
    let mut command = std::process::Command::new(spica());
    command.arg("replay").arg(repository().join(format!("scenarios/{scenario}.yaml")));
    for setting in settings {
        command.args(["--set", setting]);
    }
    let output = command.arg("--output-dir").arg(folder.path()).output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{scenario} {settings:?}: {stderr}");
    let read = |name| std::fs::read_to_string(folder.path().join(name)).unwrap();
    let report: Value = serde_json::from_str(&read("report.json")).unwrap();
    let rows = read("scaling.jsonl").lines().map(|row| serde_json::from_str(row).unwrap()).collect();
    (report["summary"].clone(), rows, stderr)
}

#[test]
fn bounds_hold_however_long_workers_take_to_start() {
    let scenarios = [("planner_idle", 2, 8), ("planner_startup", 1, 8), ("planner_oscillation", 1, 2)];
    for (scenario, fewest, most) in scenarios {
        for startup_s in [0, 5, 30, 100, 300] {
            let startup = format!("deployment.agg.startup_time_s={startup_s}");
            let (summary, rows, _) = replay(scenario, &[&startup]);
            let case = format!("{scenario}, {startup_s} s");
            assert_eq!(summary["completed_requests"], summary["num_requests"], "{case}");
            for row in &rows {
                let pool = &row["pools"][0];
                let serving = pool["active"].as_u64().unwrap();
                let staying = serving + pool["starting"].as_u64().unwrap();
                assert!(staying <= most, "{case}: {row}");
                if let Some(workers) = row["decided"][0].as_u64() {
                    assert!((fewest..=most).contains(&workers), "{case}: {row}");
                    assert!(
                        workers.abs_diff(serving) <= 1 || serving < fewest,
                        "{case}: one at a time: {row}"
                    );
                }
            }
            for figure in ["gpu_hours", "avg_gpu", "mean_ttft_ms", "mean_e2e_latency_ms"] {
                let value = summary[figure].as_f64();
                assert!(
                    value.is_some_and(|value| value.is_finite() && value > 0.0),
                    "{case}: {figure} {value:?}"
                );
            }
        }
    }
}

#[test]
fn a_fleet_outside_its_budget_is_remarked_and_repaired() {
    let settings = ["deployment.agg.workers=6", "deployment.planner.max_gpu_budget=3"];
    let (_, rows, stderr) = replay("planner_startup", &settings);
    assert!(stderr.contains("starts on 6 GPUs, more than the 3 of the budget"), "{stderr}");
    assert_eq!((&rows[0]["pools"][0]["active"], &rows[0]["decided"][0]), (&6.into(), &3.into()));
    let open = ["deployment.agg.workers=6", "deployment.planner.max_gpu_budget=-1"];
    assert!(!replay("planner_startup", &open).2.contains("budget"));
}

#[test]
fn the_minimum_wins_over_the_budget_and_that_is_said() {
    let settings = ["deployment.planner.max_gpu_budget=3", "deployment.planner.min_endpoint=5"];
    let (_, rows, stderr) = replay("planner_startup", &settings);
    assert!(stderr.contains("take 5 GPUs, more than the 3 of max_gpu_budget: the minimum wins"), "{stderr}");
    assert!(rows.iter().any(|row| row["decided"][0] == 5), "it grows beyond the budget");
    assert!(rows.iter().all(|row| row["decided"][0].as_u64().is_none_or(|workers| workers == 5)));
    let scenario = repository().join("scenarios/planner_startup.yaml");
    let check = ["check", scenario.to_str().unwrap(), "--set", settings[0], "--set", settings[1]];
    let output = std::process::Command::new(spica()).args(check).output().unwrap();
    assert!(output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("the minimum wins"));
}
