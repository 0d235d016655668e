//! Searches that were killed, refused or have ended, and go on.

#![allow(clippy::unwrap_used, reason = "helpers of tests may panic")]

use std::process::Stdio;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::cli_command::Workplace;
use super::search::{ROUTERS, TWO_ROLES, three_points};

/// Two branches, 4 rounds of 5 in each, of replays that take a while.
pub(crate) fn both_modes() -> String {
    TWO_ROLES
        .replace("deployment_mode: [disagg]", "deployment_mode: [disagg, agg]")
        .replace("num_request_ratio: 4", "num_request_ratio: 60")
        .replace("router_mode: [round_robin]", "router_mode: [kv_router, round_robin]")
        + "sweep: {max_rounds: 4, candidates_per_round: 5}\n"
}

#[test]
fn a_killed_search_goes_on_where_it_stopped() {
    for config in [ROUTERS.to_owned(), both_modes()] {
        let place = Workplace::with("search.yaml", &config);
        let everything = |folder: &str| {
            ["candidates.json", "trials.jsonl", "best.yaml"]
                .map(|name| place.read(&format!("{folder}/{name}")))
        };
        place.run(&["search", "search.yaml", "--output-dir", "whole"]).ending(0);
        let whole = everything("whole");
        // Every run of this test kills at other points, in the beginning, the middle and the end.
        let chance = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().subsec_nanos() as usize;
        for (earliest, threads) in [(1, "1"), (6, "2"), (11, "8")] {
            let _ = std::fs::remove_dir_all(place.path("out"));
            let committed = earliest + chance % 5;
            kill_after(&place, committed);
            let torn = place.read("out/trials.jsonl") + "{\"trial\": 9";
            place.write("out/trials.jsonl", &torn);
            if !place.path("out/candidates.json").exists() {
                place
                    .run(&["search", "search.yaml", "--output-dir", "out"])
                    .refusing(&["trials.jsonl: trials of a search that did not finish; --resume goes on"]);
                assert_eq!(place.read("out/trials.jsonl"), torn);
            }
            let resume = ["search", "search.yaml", "--output-dir", "out", "--resume", "--threads", threads];
            let answer = place.run(&resume).ending(0);
            assert!(answer.stderr.contains("resuming after"), "{}", answer.stderr);
            assert!(answer.stderr.contains("the last line was cut off"), "{}", answer.stderr);
            assert!(
                everything("out") == whole,
                "killed after {committed} trials, {threads} threads: another answer"
            );
        }
        let other = |setting: &str, words: &str| {
            let other = ["search", "search.yaml", "--output-dir", "out", "--resume", "--set", setting];
            place.run(&other).refusing(&["trial 1 of the journal is not", words]);
        };
        other("workload.isl=601", "; in the configuration, workload.isl: 600 -> 601");
        other("sweep.max_eval_passes=1000000", "; in the configuration, sweep.max_eval_passes: - -> 1000000");
        let bar = "goal={target: e2e_latency, sla: {e2e_ms: 1}, min_attainment: 0.5}";
        other(bar, "goal.min_attainment: - -> 0.5");
        // What may change is not what was refused.
        let resume = ["search", "search.yaml", "--output-dir", "out", "--resume"];
        let harmless = ["--set", "sweep.max_rounds=3", "--set", "sweep.max_eval_seconds=5"];
        let refused = [&resume[..], &harmless, &["--set", "workload.isl=601"]].concat();
        let stderr = place.run(&refused).ending(2).stderr;
        assert!(stderr.contains("; in the configuration, workload.isl: 600 -> 601"), "{stderr}");
        assert!(!stderr.contains("max_eval_seconds"), "{stderr}");
        if stderr.contains("more rounds than") {
            assert!(stderr.find("workload.isl:") < stderr.find("more rounds than"), "{stderr}");
        } else {
            assert!(!stderr.contains("max_rounds"), "{stderr}");
        }
        let config = place.read("out/config.yaml");
        assert_eq!(config, place.read("whole/config.yaml"));
        let (header, _) = config.split_once('\n').unwrap();
        place.write("out/config.yaml", &config.replace("isl: 600", "isl: 601"));
        other("workload.isl=601", "; the configuration has not (paths of files apart)");
        place.write("out/config.yaml", &format!("{header}\nno configuration"));
        other("workload.isl=601", "the version of the program has changed");
    }
}

#[test]
fn a_finished_search_goes_on_with_more_rounds() {
    let bar = "goal={target: e2e_latency, sla: {ttft_ms: 35, itl_ms: 13}, min_attainment: 0.6}";
    for config in [ROUTERS.to_owned(), both_modes()] {
        let place = Workplace::with("search.yaml", &config);
        let search = |folder: &str, rounds: &str, resume: bool| {
            let rounds = format!("sweep.max_rounds={rounds}");
            let mut arguments =
                vec!["search", "search.yaml", "--output-dir", folder, "--set", bar, "--set", &rounds];
            arguments.extend(resume.then_some("--resume"));
            place.run(&arguments).ending(0);
            let names = ["candidates.json", "trials.jsonl", "best.yaml"];
            names.map(|name| place.read(&format!("{folder}/{name}")))
        };
        let whole = search("whole", "4", false);
        assert!(whole[1].contains("\"infeasible\""), "some trials do not count");
        search("out", "1", false);
        search("out", "2", true);
        assert!(search("out", "4", true) == whole);
        let fewer = ["search", "search.yaml", "--output-dir", "out", "--resume", "--set", bar];
        place.run(&[&fewer[..], &["--set", "sweep.max_rounds=2"]].concat()).refusing(&[
            "of the journal is not",
            "the journal has more rounds than `sweep.max_rounds` now allows",
        ]);
        assert!(
            ["candidates.json", "trials.jsonl", "best.yaml"].map(|name| place.read(&format!("out/{name}")))
                == whole
        );
    }
}

/// Starts a search and ends it by a SIGKILL, so that nothing is tidied up, when its journal has so many lines.
fn kill_after(place: &Workplace, committed: usize) {
    let arguments = ["search", "search.yaml", "--output-dir", "out", "--threads", "2"];
    let mut search = place.command(&arguments).stderr(Stdio::null()).stdout(Stdio::null()).spawn().unwrap();
    let started = Instant::now();
    let written = || {
        let text = std::fs::read_to_string(place.path("out/trials.jsonl")).unwrap_or_default();
        text.lines().count()
    };
    while written() < committed && started.elapsed() < Duration::from_mins(1) {
        std::thread::sleep(Duration::from_millis(2));
    }
    search.kill().unwrap();
    search.wait().unwrap();
}

#[test]
fn a_refused_resumption_leaves_the_answer_alone() {
    let place = Workplace::with("search.yaml", &three_points());
    place.run(&["search", "search.yaml", "--output-dir", "out"]).ending(0);
    let before = ["out/candidates.json", "out/best.yaml", "out/trials.jsonl"].map(|name| place.read(name));
    let other = ["--resume", "--set", "workload.isl=601"];
    let answer = place.run(&[&["search", "search.yaml", "--output-dir", "out"][..], &other].concat());
    answer.ending(2);
    let after = ["out/candidates.json", "out/best.yaml", "out/trials.jsonl"].map(|name| place.read(name));
    assert!(before == after, "the files of the first search are still there");
}
