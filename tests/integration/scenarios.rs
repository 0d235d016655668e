//! What every bundled scenario comes to: one snapshot each, in `snapshots/`.

#![allow(clippy::unwrap_used, reason = "helpers of tests may panic")]

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::panic::catch_unwind;
use std::path::Path;

use serde_json::Value;
use tempfile::TempDir;

use super::bundled::{Bundled, FOR_EXAMPLES, bundled_scenarios, names_in, repository, spica};

#[test]
fn every_scenario_gives_its_snapshot() {
    let changed: Vec<String> = bundled_scenarios()
        .into_iter()
        .filter(|scenario| {
            let folder = TempDir::new().unwrap();
            scenario.run(spica(), folder.path(), &[]);
            let outcome = outcome(scenario, folder.path());
            // All of them are looked at before the test fails.
            catch_unwind(|| assert_outcome(&scenario.name, &outcome)).is_err()
        })
        .map(|scenario| scenario.name)
        .collect();
    assert!(changed.is_empty(), "another outcome than in snapshots/: {changed:?}");
}

#[test]
fn every_snapshot_has_its_scenario() {
    let snapshots: BTreeSet<String> = names_in(&repository().join("snapshots"), "snap").into_iter().collect();
    let scenarios: BTreeSet<String> = names_in(&repository().join("scenarios"), "yaml").into_iter().collect();
    assert_eq!(snapshots, scenarios, "delete the snapshot of a scenario that is gone");
    assert!(FOR_EXAMPLES.iter().all(|name| scenarios.contains(*name)));
}

#[test]
fn every_scenario_says_what_it_shows() {
    for scenario in bundled_scenarios() {
        assert!(scenario.text.starts_with("# "), "{} starts without a comment", scenario.name);
    }
}

/// Compares with the snapshot of this name in `snapshots/`.
pub(crate) fn assert_outcome(name: &str, outcome: &str) {
    let mut settings = insta::Settings::new();
    settings.set_snapshot_path("../../snapshots");
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings.set_input_file(repository().join("scenarios").join(name).with_extension("yaml"));
    settings.bind(|| insta::assert_snapshot!(name, outcome));
}

/// What a run came to, exactly and readably, from the files that it wrote.
fn outcome(scenario: &Bundled, folder: &Path) -> String {
    let read = |name| serde_json::from_str(&std::fs::read_to_string(folder.join(name)).unwrap()).unwrap();
    if scenario.is_search() { ranking(&read("candidates.json")) } else { replay(&read("report.json")) }
}

/// Everything of a report but the scenario, which is the input.
pub(crate) fn replay(report: &Value) -> String {
    let mut parts = report.as_object().unwrap().clone();
    parts.remove("scenario").unwrap();
    serde_json::to_string_pretty(&parts).unwrap()
}

/// Every candidate with its score and the settings in which candidates differ; every reason of a rejection.
fn ranking(result: &Value) -> String {
    let candidates = result["candidates"].as_array().unwrap();
    let first = candidates[0]["config"].as_object().unwrap();
    let differs = |name: &str| candidates.iter().any(|one| one["config"].get(name) != first.get(name));
    let mut text =
        format!("tally: {}\ncertified optimum: {}\n", result["tally"], result["certified_optimum"]);
    for candidate in candidates {
        let _ =
            write!(text, "{}. {} on {} GPUs:", candidate["rank"], candidate["score"], candidate["used_gpus"]);
        for (name, value) in candidate["config"].as_object().unwrap() {
            if differs(name) && !matches!(value, Value::Null | Value::Bool(false)) {
                let _ = write!(text, " {name}={value}");
            }
        }
        text.push('\n');
    }
    for rejected in result["rejected"].as_array().unwrap() {
        let _ = writeln!(text, "{}: {}", rejected["outcome"], rejected["reason"]);
    }
    text
}
