//! Answers that lack something of what their search was to find, and how this is told.

#![allow(clippy::unwrap_used, reason = "helpers of tests may panic")]

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::json;

use super::cli_command::{Answer, Workplace};
use super::search::{ROUTERS, three_points};

/// Whatever shows the answer in `out` says these reasons, each in a line.
#[track_caller]
fn told_by_all(place: &Workplace, reasons: &[&str]) {
    let run = |command: &[&str]| place.run(command).ending(0);
    let (explained, deployed) = (run(&["explain", "candidate", "out"]), run(&["deploy", "out"]));
    let (compared, page) = (run(&["diff", "out", "out"]), run(&["report", "out"]));
    for reason in reasons {
        let line = format!("incomplete: {reason}\n");
        assert!(explained.stdout.contains(&format!("\n{line}")), "{}", explained.stdout);
        assert!(deployed.stdout.contains(&format!("\n# {line}")), "{}", deployed.stdout);
        assert!(deployed.stderr.contains(&line), "{}", deployed.stderr);
        for which in ["first", "second"] {
            let line = format!("the {which} run is {line}");
            assert!(compared.stdout.contains(&line), "{}", compared.stdout);
        }
        assert!(page.stdout.contains(&format!("; incomplete: {reason}")));
    }
    let incomplete = &place.read_json("out/candidates.json")["incomplete"];
    let json = |command: &[&str]| run(&[command, &["--format=json"]].concat()).json();
    assert_eq!(json(&["explain", "candidate", "out"])["incomplete"], *incomplete);
    assert_eq!(json(&["deploy", "out"])["incomplete"], *incomplete);
    assert_eq!(json(&["diff", "out", "out"])["incomplete"], json!({"a": incomplete, "b": incomplete}));
}

/// Every router with a workload that takes long enough to be interrupted.
fn long_search(place: &Workplace) -> Command {
    let mut command = place.command(&["search", "search.yaml", "--output-dir", "out", "--threads", "2"]);
    command.args(["--set", "sweep.exhaustive=true", "--set", "workload.num_request_ratio=400"]);
    command
}

#[test]
fn an_interrupted_search_leaves_the_best_so_far() {
    let place = Workplace::with("search.yaml", ROUTERS);
    let mut search = long_search(&place);
    let child = search.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let journal = place.path("out/trials.jsonl");
    let started = Instant::now();
    while std::fs::read_to_string(&journal).map_or(0, |text| text.lines().count()) < 3 {
        assert!(started.elapsed() < Duration::from_secs(50), "no trials");
        std::thread::sleep(Duration::from_millis(5));
    }
    let kill = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(kill.success());
    let answer = Answer::from(child.wait_with_output().unwrap()).ending(130);
    let result = place.read_json("out/candidates.json");
    let candidates = result["candidates"].as_array().unwrap();
    assert!((3..109).contains(&candidates.len()), "{}", candidates.len());
    assert_eq!(place.read("out/trials.jsonl").lines().count(), candidates.len());
    assert_eq!((&result["certified_optimum"], &result["reproducible"]), (&false.into(), &false.into()));
    let reason = format!("interrupted after {} of 109 trials: this is the best so far", candidates.len());
    let expected = json!([{
        "cause": "interrupted", "trials": candidates.len(), "of": 109, "is_least": false, "reason": reason,
    }]);
    assert_eq!(result["incomplete"], expected);
    assert!(answer.stdout.contains(&format!("\nincomplete: {reason}\n")), "{}", answer.stdout);
    told_by_all(&place, &[&reason]);
    let report = place.run(&["replay", "out/best.yaml", "--format", "json"]).ending(0).json();
    assert_eq!(report["summary"], candidates[0]["metrics"]);
    assert_eq!(place.files().len(), 5, "{:?}", place.files());
}

#[test]
fn a_search_that_is_interrupted_before_its_first_trial_has_no_best() {
    let place = Workplace::with("search.yaml", ROUTERS);
    let mut search = place.command(&["search", "search.yaml", "--output-dir", "out"]);
    search.args(["--set", "sweep.exhaustive=true", "--set", "workload.num_request_ratio=40000"]);
    let child = search.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let started = Instant::now();
    while !place.path("out/trials.jsonl").exists() {
        assert!(started.elapsed() < Duration::from_secs(50), "no journal");
        std::thread::sleep(Duration::from_millis(5));
    }
    // The handler of signals is there soon after the journal.
    std::thread::sleep(Duration::from_millis(300));
    let kill = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(kill.success());
    let answer = Answer::from(child.wait_with_output().unwrap()).ending(130);
    let reason = "incomplete: interrupted after 0 of 109 trials: nothing counts so far\n";
    assert!(answer.stdout.contains(reason), "{}", answer.stdout);
}

#[test]
fn a_replay_over_its_time_is_infeasible_and_its_worth_unknown() {
    let place = Workplace::with("search.yaml", &three_points());
    let sets = ["--set", "sweep.max_eval_seconds=0.000001", "--set", "workload.num_request_ratio=4000"];
    let arguments = [&["search", "search.yaml", "--format=json"][..], &sets].concat();
    let result = place.run(&arguments).ending(1).json();
    assert_eq!(result["tally"]["infeasible"], 3);
    assert_eq!(result["rejected"][0]["reason"], "exceed runtime: replay > 0.000001s");
    assert_eq!(result["incomplete"][0]["cause"], "out_of_time");
    assert_eq!((&result["incomplete"][0]["trials"], &result["reproducible"]), (&3.into(), &false.into()));
}

/// One worker or four, whose replays differ in their passes.
fn two_layouts() -> String {
    let one = "{tp: 4, moe_ep: 4, replicas: 4}";
    three_points()
        .replace(one, &format!("{one}, {{tp: 4, moe_ep: 4, replicas: 1}}"))
        .replace("[256, 512, 1024]", "[256]")
}

#[test]
fn what_a_budget_of_passes_cut_off_leaves_the_optimum_uncertified() {
    let place = Workplace::with("search.yaml", &two_layouts());
    let search = ["search", "search.yaml", "--output-dir", "out"];
    place.run(&search).ending(0);
    let whole = place.read_json("out/candidates.json");
    assert_eq!((&whole["certified_optimum"], whole.get("incomplete")), (&true.into(), None));
    told_by_nobody(&place);

    let answer = place.run(&[&search[..], &["--set", "sweep.max_eval_passes=500"]].concat()).ending(0);
    let result = place.read_json("out/candidates.json");
    let reason = "the budget of passes cut off 1 replay of unknown worth (sweep.max_eval_passes)";
    assert_eq!(result["incomplete"], json!([{"cause": "out_of_passes", "trials": 1, "reason": reason}]));
    assert_eq!((&result["certified_optimum"], &result["reproducible"]), (&false.into(), &true.into()));
    assert!(answer.stdout.contains(&format!("\nincomplete: {reason}\n")), "{}", answer.stdout);
    assert!(!answer.stdout.contains("is the optimum"), "{}", answer.stdout);
    told_by_all(&place, &[reason]);

    // What is not in the form in which it is written is not believed.
    for (incomplete, words) in [
        (json!("yes"), "incomplete: \"yes\" is not a list"),
        (json!([{"cause": "interrupted"}]), "incomplete[0].reason: is missing"),
    ] {
        let mut result = result.clone();
        result["incomplete"] = incomplete;
        place.write("out/candidates.json", &result.to_string());
        place.run(&["explain", "candidate", "out"]).refusing(&[words]);
    }
}

#[track_caller]
fn told_by_nobody(place: &Workplace) {
    for command in [
        &["explain", "candidate", "out"][..],
        &["deploy", "out"],
        &["diff", "out", "out"],
        &["report", "out"],
    ] {
        let answer = place.run(command).ending(0);
        assert!(!answer.stdout.contains("incomplete: ") && !answer.stderr.contains("incomplete: "));
    }
}
