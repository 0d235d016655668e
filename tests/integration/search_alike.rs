//! Candidates that came out the same are one result.

#![allow(clippy::unwrap_used, reason = "helpers of tests may panic")]

use super::cli_command::Workplace;
use super::search::three_points;

#[test]
fn candidates_that_come_out_the_same_share_a_row() {
    let place = Workplace::with("search.yaml", &three_points());
    let answer = place.run(&["search", "search.yaml", "--output-dir", "out"]).ending(0);
    assert_eq!(place.read_json("out/candidates.json")["candidates"].as_array().unwrap().len(), 3);
    let rows: Vec<Vec<&str>> =
        answer.stdout.lines().take(2).map(|line| line.split_whitespace().collect()).collect();
    let cell = |heading: &str| rows[1][rows[0].iter().position(|one| *one == heading).unwrap()];
    assert_eq!((cell("rank"), cell("alike"), cell("max_num_seqs")), ("1", "3", "256|512|1024"));
    assert!(answer.stdout.lines().nth(2).unwrap().starts_with("alike: "), "{}", answer.stdout);
    assert!(!answer.stdout.contains("more: `--format json`"), "{}", answer.stdout);
    let told = place.run(&["explain", "candidate", "out", "--rank", "1"]).ending(0).stdout;
    for line in [
        "the same in every figure as rank 2 and 1 more; where these differ",
        "  agg_max_num_seqs: 1024 here, 256 or 512 there",
        "no other result comes behind it",
    ] {
        assert!(told.lines().any(|one| one == line), "{line}: {told}");
    }
    let different =
        ["search_space.agg_max_num_seqs=[256]", "search_space.router_mode=[round_robin, power_of_two]"];
    let answer =
        place.run(&["search", "search.yaml", "--set", different[0], "--set", different[1]]).ending(0);
    assert!(!answer.stdout.contains("alike"), "{}", answer.stdout);
}

#[test]
fn a_planner_that_never_acts_comes_out_as_none_does() {
    let place = Workplace::with("search.yaml", &three_points());
    let sets = [
        "search_space.agg_max_num_seqs=[256]",
        "search_space.planner_scaling_policy=[disabled, load_180_5]",
        "search_space.gpu_budget=16",
        "search_space.min_endpoint=4",
        // Long enough for ticks.
        "workload.num_request_ratio=80",
        "goal={target: goodput, sla: {ttft_ms: 60, itl_ms: 12}}",
        "sweep.top=1",
    ];
    let sets = sets.iter().flat_map(|set| ["--set", set]);
    let command: Vec<&str> =
        ["search", "search.yaml", "--output-dir", "out"].into_iter().chain(sets).collect();
    let told = place.run(&command).ending(0).stdout;
    let result = place.read_json("out/candidates.json");
    let [none, planned, ..] = result["candidates"].as_array().unwrap().as_slice() else { panic!("{told}") };
    assert!(none["metrics"].get("planner_total_ticks").is_none(), "{told}");
    assert!(planned["metrics"]["planner_total_ticks"].as_u64().unwrap() > 0, "{told}");
    assert!(told.contains("disabled|load_180_5"), "{told}");
    let told = place.run(&["explain", "candidate", "out"]).ending(0).stdout;
    assert!(told.contains("the same in every figure as rank 2"), "{told}");
}

#[test]
fn a_page_finds_every_value_of_a_row() {
    let place = Workplace::with("search.yaml", &three_points());
    place.run(&["search", "search.yaml", "--output-dir", "out"]).ending(0);
    let html = place.run(&["report", "out"]).ending(0).stdout;
    let cell = " data-sort=\"256\" title=\"256|512|1024\">256|512|1024</td>";
    assert!(html.contains(cell) && html.contains("${cell.title}"), "no cell");
}
