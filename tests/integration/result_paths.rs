//! Where the paths in results start: in the folder that the results are in, wherever the command was run.

#![allow(clippy::unwrap_used, reason = "helpers of tests may panic")]

use super::cli_command::{Answer, Workplace};

const SEARCH: &str = "\
search_space:
  model_name: a/model
  hardware_sku: b200_sxm
  deployment_mode: [agg]
  parallel_configs: [{tp: 1, replicas: 2}]
  timing: {model: polynomial}
  planner_scaling_policy: [disabled]
  router_mode: [round_robin]
  agg_max_num_seqs: [256]
workload: {trace_path: data/rows.jsonl}
";

/// A search of a trace and a folder to run it from that is not its own.
fn workplace() -> Workplace {
    let place = Workplace::with("search.yaml", SEARCH);
    let row = "{\"timestamp\": 0, \"input_length\": 600, \"output_length\": 9, \"hash_ids\": [1, 2]}\n";
    place.write("data/rows.jsonl", row);
    std::fs::create_dir_all(place.path("some/where")).unwrap();
    place
}

#[track_caller]
fn run_in(place: &Workplace, folder: &str, arguments: &[&str]) -> Answer {
    let output = place.command(arguments).current_dir(place.path(folder)).output().unwrap();
    Answer::from(output).ending(0)
}

#[test]
fn the_bytes_of_an_answer_do_not_depend_on_where_the_command_was_run() {
    let place = workplace();
    let search = ["search", "search.yaml", "--output-dir", "here"];
    let printed = run_in(&place, "", &[&search[..], &["--format=json"]].concat()).stdout;
    assert_eq!(printed, place.read("here/candidates.json"));
    run_in(&place, "some/where", &["search", "../../search.yaml", "--output-dir", "../../there"]);
    // Nor on how its file was named, from wherever.
    let absolute = place.path("search.yaml").display().to_string();
    run_in(&place, "", &["search", &absolute, "--output-dir", "absolute"]);
    let output = place.path("far").display().to_string();
    run_in(&place, "some/where", &["search", &absolute, "--output-dir", &output]);
    for name in ["candidates.json", "best.yaml", "config.yaml"] {
        for folder in ["there", "absolute", "far"] {
            let (one, other) = (place.read(&format!("{folder}/{name}")), place.read(&format!("here/{name}")));
            assert_eq!(one, other, "{folder}/{name}");
        }
    }
    let trace =
        &place.read_json("here/candidates.json")["candidates"][0]["scenario"]["workload"]["trace_path"];
    assert_eq!(trace, "../data/rows.jsonl");
    // Without a folder, paths are those of the configuration, which stands beside the data.
    let here = run_in(&place, "", &["search", "search.yaml", "--format=json"]).stdout;
    assert!(here.contains("\"trace_path\": \"data/rows.jsonl\""), "{here}");
    assert_eq!(run_in(&place, "some/where", &["search", "../../search.yaml", "--format=json"]).stdout, here);
    assert_eq!(run_in(&place, "some/where", &["search", &absolute, "--format=json"]).stdout, here);
    // Of a path that is written in full nothing is known but that it leads there from anywhere.
    let trace = format!("workload.trace_path={}", place.path("data/rows.jsonl").display());
    let set = run_in(&place, "", &["search", "search.yaml", "--format=json", "--set", &trace]).json();
    let path = &set["candidates"][0]["scenario"]["workload"]["trace_path"];
    assert!(trace.ends_with(path.as_str().unwrap()), "{path}");

    let replay = |from: &str, scenario: &str, output: &str| {
        run_in(&place, from, &["replay", scenario, "--output-dir", output]);
    };
    replay("", "here/best.yaml", "run");
    replay("some/where", "../../here/best.yaml", "../../again");
    assert_eq!(place.read("again/report.json"), place.read("run/report.json"));
    let printed = run_in(&place, "", &["replay", "here/best.yaml", "--format=json"]).stdout;
    assert!(printed.contains("\"trace_path\": \"../data/rows.jsonl\""), "{printed}");
    assert_eq!(
        run_in(&place, "some/where", &["replay", "../../here/best.yaml", "--format=json"]).stdout,
        printed
    );
}

#[test]
fn scenarios_of_an_answer_replay_beside_it_and_results_elsewhere_are_compared() {
    let place = workplace();
    run_in(&place, "", &["search", "search.yaml", "--output-dir", "here"]);
    run_in(&place, "some", &["search", "../search.yaml", "--output-dir", "where/deep"]);
    let result = place.read_json("some/where/deep/candidates.json");
    let candidate = &result["candidates"][0];
    place.write("some/where/deep/one.yaml", &candidate["scenario"].to_string());
    let again = run_in(&place, "data", &["replay", "../some/where/deep/one.yaml", "--format=json"]).json();
    assert_eq!((&again["summary"], &again["scenario"]), (&candidate["metrics"], &candidate["scenario"]));
    let same = run_in(&place, "some", &["diff", "../here", "where/deep"]).stdout;
    assert_eq!(same, "the runs are the same\n");
    // A trace and how much of it is used are told in one place.
    let row = "{\"timestamp\": 0, \"input_length\": 70, \"output_length\": 9, \"hash_ids\": [1]}\n";
    place.write("data/other.jsonl", &row.repeat(2));
    let sets = ["--set", "workload.trace_path=data/other.jsonl", "--set", "workload.max_requests=1"];
    run_in(&place, "", &[&["search", "search.yaml", "--output-dir", "other"], &sets[..]].concat());
    let told = run_in(&place, "some", &["diff", "../here", "../other"]).stdout;
    let both = "configurations differ in\n  workload.trace_path: ../data/rows.jsonl -> ../data/other.jsonl\n  \
                workload.max_requests: - -> 1\n";
    assert!(told.starts_with(both) && told.matches("rows.jsonl").count() == 1, "{told}");
    run_in(&place, "", &["replay", "here/best.yaml", "--output-dir", "run"]);
    run_in(&place, "", &["replay", "here/best.yaml", "--output-dir", "some/run"]);
    assert_eq!(run_in(&place, "data", &["diff", "../run", "../some/run"]).stdout, "the runs are the same\n");
}

#[test]
fn parts_come_together_where_their_trace_is_not() {
    let place = workplace();
    let whole = place.run(&["search", "search.yaml", "--set", "sweep.exhaustive=true"]).ending(0).stdout;
    for (index, folder) in [("0", "parts/0"), ("1", "parts/1")] {
        let part = ["search", "shard", "search.yaml", "--index", index, "--of", "2", "--output-dir", folder];
        place.run(&[&part[..], &["--set", "sweep.exhaustive=true"]].concat()).ending(0);
    }
    std::fs::remove_file(place.path("data/rows.jsonl")).unwrap();
    assert_eq!(place.run(&["search", "merge", "parts/0", "parts/1"]).ending(0).stdout, whole);
    place.run(&["search", "search.yaml"]).refusing(&["workload.trace_path: ", "cannot be read"]);
}
