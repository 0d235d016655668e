//! The broken configurations of `tests/data/bad-inputs`.

use std::path::Path;

use spica::config::{self, Diagnostics, Document};

fn load(name: &str) -> Result<Document, Diagnostics> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/bad-inputs").join(name);
    let text = std::fs::read_to_string(path).expect("is part of the repository");
    config::load(&text, Path::new(name), &[])
}

/// Expects one line for each problem that has all of its words, and no further problem.
fn assert_refused(name: &str, expected: &[&[&str]]) {
    let problems = load(name).expect_err("has to be refused");
    let text = problems.to_string();
    for words in expected {
        let found =
            text.lines().any(|line| line.starts_with(name) && words.iter().all(|word| line.contains(word)));
        assert!(found, "no line with {words:?} in\n{text}");
    }
    assert_eq!(problems.problems().len(), expected.len(), "{text}");
}

#[test]
fn unknown_keys_are_named_together_with_what_was_meant() {
    assert_refused(
        "15-unknown-keys.yaml",
        &[
            &["15-unknown-keys.yaml:6: search_space.gpu_bugdet: ", "did you mean `gpu_budget`"],
            &["15-unknown-keys.yaml:16: goal.sla.itl: ", "did you mean `itl_ms`"],
            &["15-unknown-keys.yaml:19: sweep.retries: ", "max_rounds"],
            &["goal.target: ", "goodput_per_gpu", "SLA", "itl_ms"],
        ],
    );
}

#[test]
fn two_loads_and_a_goal_without_bounds_are_reported_together() {
    assert_refused(
        "16-two-loads-and-no-sla.yaml",
        &[&["workload.concurrency: ", "`request_rate`", "exactly one"], &["goal.target: ", "SLA"]],
    );
}

#[test]
fn units_are_refused_with_the_right_form() {
    assert_refused(
        "17-units-in-numbers.yaml",
        &[
            &["search_space.gpu_budget: `16 GPUs`", "`gpu_budget: 16`"],
            &["search_space.agg_gpu_memory_utilization: `90`", "`agg_gpu_memory_utilization: 0.9`"],
            &["workload.isl: `3k`", "`isl: 3000`"],
            &["workload.request_rate: `\"4.0\"`", "without quotes", "`request_rate: 4`"],
            &["goal.sla.ttft_ms: `2s`", "`ttft_ms: 2000`"],
        ],
    );
}

#[test]
fn a_duplicate_key_is_refused_with_both_lines() {
    assert_refused(
        "18-duplicate-key.yaml",
        &[&["18-duplicate-key.yaml:6: search_space.backend: duplicate key", "line 3", "line 6"]],
    );
}

#[test]
fn a_tab_is_refused_with_its_line() {
    assert_refused("19-tab-indent.yaml", &[&["19-tab-indent.yaml:8: ", "line 8", "tab"]]);
}

#[test]
fn what_cannot_fit_is_a_valid_configuration_all_the_same() {
    let Ok(Document::Search(search)) = load("20-nothing-can-fit.yaml") else { panic!("is a valid search") };
    assert_eq!(search.search_space.gpu_budget, 1);
}

#[test]
fn a_problem_shows_the_line_it_is_about() {
    let text = load("17-units-in-numbers.yaml").expect_err("has to be refused").to_string();
    let excerpt = "\n  9 |   isl: 3k\n    |        ^^\n";
    assert!(text.contains(excerpt), "{text}");
}
