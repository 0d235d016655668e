//! Where messages say that something is wrong: the line of the key, the entry of a list, the argument of the command line.

use crate::cli_command::Workplace;
use crate::config::{SEARCH, problems};

const SCENARIO: &str = "\
deployment:
  mode: agg
  router:
    policy: kv_router
    router_temperature: -1
    overlap_score_credit: 3
    queue_policy: lcfs
  planner:
    policy: planner
    optimization_target: sla
    load_predictor: kalman
    kalman_q_level: -1
    ttft_ms: -5
  agg:
    workers: 2
    startup_time_s: 5
workload:
  isl: 500
  osl: 20
  concurrency: 4
  num_request_ratio: 10
";

/// The first words of every line of an answer, up to the second `: `.
fn places(stderr: &str) -> Vec<String> {
    let lines = stderr.lines().filter(|line| !line.starts_with(' '));
    lines.map(|line| line.split(": ").take(2).collect::<Vec<_>>().join(": ")).collect()
}

#[test]
fn fields_of_policies_are_found_at_their_own_lines_and_all_at_once() {
    let place = Workplace::with("s.yaml", SCENARIO);
    for command in ["check", "replay"] {
        let answer = place.run(&[command, "s.yaml"]).ending(2);
        let expected = [
            "s.yaml:5: deployment.router.router_temperature",
            "s.yaml:6: deployment.router.overlap_score_credit",
            "s.yaml:7: deployment.router.queue_policy",
            "s.yaml:12: deployment.planner.kalman_q_level",
            "s.yaml:13: deployment.planner.ttft_ms",
        ];
        assert_eq!(places(&answer.stderr), expected, "{}", answer.stderr);
        assert!(answer.stderr.contains(" 13 |     ttft_ms: -5\n"), "{}", answer.stderr);
    }
}

#[test]
fn fields_that_cannot_be_read_and_impossible_ones_are_told_together() {
    let text = SCENARIO
        .replace("kalman_q_level: -1", "max_gpu_budget: many")
        .replace("router_temperature: -1", "foo: 1");
    let place = Workplace::with("s.yaml", &text);
    let answer = place.run(&["check", "s.yaml"]).ending(2);
    let expected = [
        "s.yaml:5: deployment.router.foo",
        "s.yaml:12: deployment.planner.max_gpu_budget",
        "s.yaml:13: deployment.planner.ttft_ms",
    ];
    assert_eq!(places(&answer.stderr), expected, "{}", answer.stderr);
    assert!(answer.stderr.contains("the text \"many\", expected a whole number"), "{}", answer.stderr);
}

#[test]
fn what_the_command_line_sets_is_blamed_on_it() {
    let sound = SCENARIO
        .lines()
        .filter(|line| !line.contains("-1") && !line.contains("-5") && !line.contains("lcfs"));
    let sound: Vec<&str> = sound.filter(|line| !line.contains("credit: 3")).collect();
    let place = Workplace::with("s.yaml", &sound.join("\n"));
    let blamed = |set: &str, words: &[&str]| {
        let answer = place.run(&["check", "s.yaml", "--set", set]).ending(2);
        let first = places(&answer.stderr);
        assert_eq!(first.len(), 1, "{}", answer.stderr);
        for word in words {
            assert!(answer.stderr.contains(word), "{word}: {}", answer.stderr);
        }
        assert!(answer.stderr.starts_with(&format!("--set {set}: ")), "{}", answer.stderr);
    };
    blamed("deployment.router.router_temperature=-1", &["deployment.router.router_temperature: -1"]);
    blamed("deployment.planner.itl_ms=0", &["deployment.planner.itl_ms: 0"]);
    blamed("workload.request_rate=1", &["workload.request_rate: ", "`concurrency`"]);
    blamed("deployment.agg.timing.model=grid", &["deployment.agg.timing.path: required key is missing"]);
    blamed("deployment.agg.engine.num_gpu_blocks=0", &["deployment.agg.engine.num_gpu_blocks: `0`"]);
    // What was there before stands where it stood.
    let answer = place.run(&[
        "check",
        "s.yaml",
        "--set",
        "deployment.agg.workers=0",
        "--set",
        "deployment.agg.dp_size=x",
    ]);
    assert_eq!(places(&answer.ending(2).stderr).len(), 2);
}

#[test]
fn of_two_keys_that_exclude_each_other_the_one_from_the_command_line_is_blamed() {
    let search = SEARCH.replace("h200_sxm", "h200_sxm\n  min_gpu_budget: 8");
    for (change, path) in [
        ("search_space.gpu_budget=4", "search_space.gpu_budget"),
        ("search_space.min_gpu_budget=64", "search_space.min_gpu_budget"),
    ] {
        let found = problems(&search, &[change]);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].starts_with(&format!("--set {change}: {path}: ")), "{found:?}");
    }
    let file = search.replace("min_gpu_budget: 8", "min_gpu_budget: 8\n  gpu_budget: 4");
    let found = problems(&file, &[]);
    assert!(found[0].starts_with("folder/test.yaml:4: search_space.min_gpu_budget: "), "{found:?}");
}

#[test]
fn entries_of_lists_are_named_and_shown() {
    let text = SEARCH.replace(
        "  hardware_sku: h200_sxm\n",
        "  hardware_sku: h200_sxm\n  agg_max_num_seqs:\n    - 256\n    - 3\n    - foo\n  router_mode:\n    - round_robin\n    \
         - policy: kv_router\n      overlap_score_credit: 7\n    - dice\n",
    );
    let twice = format!(
        "{SEARCH}goal:\n  target: pareto\n  pareto_objectives:\n    - throughput\n    - throughput\nsweep:\n  fidelity:\n    \
         fractions:\n      - 0.5\n      - 0.1\nfacts:\n  models:\n    - {{name: a, path: x}}\n    - {{name: a, path: y}}\n"
    );
    let found = problems(&twice, &[]);
    let found_at: Vec<String> =
        found.iter().map(|line| line.split(": ").take(2).collect::<Vec<_>>().join(": ")).collect();
    let expected = [
        "folder/test.yaml:13: goal.pareto_objectives[1]",
        "folder/test.yaml:18: sweep.fidelity.fractions[1]",
        "folder/test.yaml:22: facts.models[1].name",
    ];
    assert_eq!(found_at, expected, "{found:#?}");
    let found = problems(&text, &[]);
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(found[0].starts_with("folder/test.yaml:6: search_space.agg_max_num_seqs[1]: "), "{found:?}");
    assert!(found[1].starts_with("folder/test.yaml:7: search_space.agg_max_num_seqs[2]: "), "{found:?}");
    let place = Workplace::with("q.yaml", &text.replace("    - 3\n    - foo\n", ""));
    let answer = place.run(&["search", "q.yaml"]).ending(2);
    let expected = [
        "q.yaml:9: search_space.router_mode[1].overlap_score_credit",
        "q.yaml:10: search_space.router_mode[2].policy",
    ];
    assert_eq!(places(&answer.stderr), expected, "{}", answer.stderr);
}
