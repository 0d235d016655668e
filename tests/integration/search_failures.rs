//! Searches in which something goes wrong: each ends with what can be said, and nothing is left half written.

#![allow(clippy::unwrap_used, reason = "helpers of tests may panic")]

use std::fs::File;
use std::io::Write;
use std::process::Command;

use serde_json::Value;
use tempfile::TempDir;

use super::bundled::run_in_repository;
use super::cli_command::{Answer, Workplace};
use super::search::{ROUTERS, TWO_ROLES, three_points};

#[test]
fn a_mode_of_which_nothing_is_left_does_not_keep_the_other_from_its_answer() {
    let both = TWO_ROLES
        .replace("deployment_mode: [disagg]", "deployment_mode: [disagg, agg]")
        .replace("gpu_budget: 4", "gpu_budget: 1");
    let place = Workplace::with("search.yaml", &both);
    let answer = place.run(&["search", "search.yaml", "--output-dir", "out"]).ending(0);
    let result = place.read_json("out/candidates.json");
    let candidates = result["candidates"].as_array().unwrap();
    assert!(!candidates.is_empty());
    assert!(candidates.iter().all(|candidate| candidate["config"]["deployment_mode"] == "agg"));
    assert_eq!(result["skipped"][0]["deployment_mode"], "disagg");
    assert!(result["skipped"][0]["reason"].as_str().unwrap().contains("at least two workers"), "{result}");
    assert!(answer.stdout.contains("left out: no disaggregated deployment with vllm"), "{}", answer.stdout);
}

#[test]
fn a_mode_of_which_nothing_is_feasible_does_not_keep_the_other_from_its_answer() {
    let both = TWO_ROLES.replace("deployment_mode: [disagg]", "deployment_mode: [disagg, agg]")
        + "sweep: {max_rounds: 2, candidates_per_round: 3}\n";
    let place = Workplace::with("search.yaml", &both);
    // Blocks are handed over so slowly that no request gets its second token in time.
    let sets = [
        "search_space.kv_transfer={bandwidth_gbps: 0.001}",
        "goal={target: throughput, sla: {e2e_ms: 5000}, min_attainment: 0.5}",
    ];
    let sets = sets.iter().flat_map(|set| ["--set", set]);
    let arguments: Vec<&str> =
        ["search", "search.yaml", "--output-dir", "out"].into_iter().chain(sets).collect();
    place.run(&arguments).ending(0);
    let result = place.read_json("out/candidates.json");
    let of_mode = |list: &str, mode: &str| {
        let trials = result[list].as_array().unwrap().iter();
        trials.filter(|trial| trial["config"]["deployment_mode"] == mode).count()
    };
    assert_eq!((of_mode("candidates", "disagg"), of_mode("rejected", "agg")), (0, 0), "{}", result["tally"]);
    assert!(of_mode("candidates", "agg") > 0 && of_mode("rejected", "disagg") > 0, "{}", result["tally"]);
}

/// A researcher's planner that panics at its first tick, beside a fleet that nobody changes.
fn with_panicking_planner(threads: &str, folder: &TempDir) -> Answer {
    let config = "\
search_space:
  model_name: a/model
  hardware_sku: b200_sxm
  deployment_mode: [agg]
  parallel_configs: [{tp: 4, replicas: 2}, {tp: 4, replicas: 4}]
  timing: {model: polynomial}
  planner_scaling_policy: [disabled, panicking]
  router_mode: [round_robin]
  agg_max_num_batched_tokens: [8192]
  agg_max_num_seqs: [256]
workload: {isl: 600, osl: 300, concurrency: 16, num_request_ratio: 10}
goal: {target: e2e_latency}
";
    let file = folder.path().join("search.yaml");
    std::fs::write(&file, config).unwrap();
    let mut example = Command::new(env!("CARGO"));
    example.args(["run", "--quiet", "--locked", "--example", "panicking_planner", "--", "search"]);
    example.arg(&file).args(["--threads", threads, "--output-dir"]).arg(folder.path().join("out"));
    let output = run_in_repository(&mut example);
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Answer { status: output.status.code().unwrap(), stdout: text(output.stdout), stderr: text(output.stderr) }
}

#[test]
fn a_policy_that_panics_fails_its_trials_and_leaves_what_replays_them() {
    let folder = TempDir::new().unwrap();
    let answer = with_panicking_planner("1", &folder).ending(0);
    let read = |name: &str| std::fs::read_to_string(folder.path().join("out").join(name)).unwrap();
    let result: Value = serde_json::from_str(&read("candidates.json")).unwrap();
    assert_eq!((&result["tally"]["feasible"], &result["tally"]["failed"]), (&2.into(), &2.into()));
    assert_eq!(result["certified_optimum"], false);
    for trial in result["rejected"].as_array().unwrap() {
        let reason = trial["reason"].as_str().unwrap();
        assert!(
            reason.starts_with("replay failed: internal error: the planner has lost its way"),
            "{reason}"
        );
        assert_eq!(trial["scenario"]["deployment"]["planner"]["policy"], "panicking");
    }
    // Nobody sees the panic itself, but everybody how to have it again.
    assert!(!answer.stderr.contains("panicked at"), "{}", answer.stderr);
    let failed = folder.path().join("out/failed-1.yaml");
    let command = format!("`spica replay {}` does it again", failed.display());
    assert!(answer.stderr.contains(&command), "{}", answer.stderr);
    let mut replay = Command::new(env!("CARGO"));
    replay.args(["run", "--quiet", "--locked", "--example", "panicking_planner", "--", "replay"]).arg(failed);
    let again = run_in_repository(&mut replay);
    let stderr = String::from_utf8_lossy(&again.stderr);
    assert_eq!(again.status.code(), Some(3), "{stderr}");
    assert!(stderr.contains("the planner has lost its way"), "{stderr}");

    let whole = ["candidates.json", "trials.jsonl", "best.yaml", "failed-1.yaml"].map(read);
    with_panicking_planner("8", &folder).ending(0);
    let read = |name: &str| std::fs::read_to_string(folder.path().join("out").join(name)).unwrap();
    assert!(["candidates.json", "trials.jsonl", "best.yaml", "failed-1.yaml"].map(read) == whole);
}

/// The program where no file can grow beyond so many blocks of 512 bytes: writing on fails as it does on a full disk.
#[cfg(unix)]
pub(crate) fn on_a_small_disk(place: &Workplace, blocks: u64, arguments: &str) -> Answer {
    let program = env!("CARGO_BIN_EXE_spica");
    // Without the trap the signal of the limit would end the program before it sees the error.
    let script = format!("trap '' XFSZ; ulimit -f {blocks}; exec '{program}' {arguments}");
    let mut shell = Command::new("sh");
    shell.args(["-c", &script]).current_dir(place.path("")).env_remove("RUST_LOG");
    Answer::from(shell.output().unwrap())
}

#[cfg(unix)]
#[test]
fn a_full_disk_ends_a_search_that_can_be_resumed() {
    let place = Workplace::with("search.yaml", ROUTERS);
    place.run(&["search", "search.yaml", "--output-dir", "whole"]).ending(0);
    let names = ["candidates.json", "trials.jsonl", "best.yaml"];
    let everything = |folder: &str| names.map(|name| place.read(&format!("{folder}/{name}")));
    let whole = everything("whole");
    let blocks = |text: &str| text.len() as u64 / 512;

    // The journal does not fit.
    let small = blocks(&whole[1]) / 2;
    let full = on_a_small_disk(&place, small, "search search.yaml --output-dir out").ending(3);
    assert!(full.stderr.contains("cannot write the journal: "), "{}", full.stderr);
    assert!(place.files().iter().all(|name| name != "out/candidates.json"), "{:?}", place.files());
    let resumed = place.run(&["search", "search.yaml", "--output-dir", "out", "--resume"]).ending(0);
    assert!(resumed.stderr.contains("resuming after"), "{}", resumed.stderr);
    assert!(everything("out") == whole);

    // The journal fits, the answer does not.
    assert!(blocks(&whole[0]) > blocks(&whole[1]) + 2, "the answer is the longer of the two");
    let full =
        on_a_small_disk(&place, blocks(&whole[1]) + 1, "search search.yaml --output-dir late").ending(3);
    assert!(full.stderr.contains("candidates.json"), "{}", full.stderr);
    let left: Vec<String> = place.files().into_iter().filter(|name| name.starts_with("late/")).collect();
    assert_eq!(left, ["late/config.yaml", "late/trials.jsonl"], "nothing half written is left");
    place.run(&["search", "search.yaml", "--output-dir", "late", "--resume"]).ending(0);
    assert!(everything("late") == whole);
}

#[cfg(target_os = "linux")]
#[test]
fn an_answer_that_cannot_be_printed_is_a_failure() {
    let place = Workplace::with("search.yaml", &three_points());
    for format in ["text", "json"] {
        let mut search = place.command(&["search", "search.yaml", "--quiet", "--format", format]);
        let full = File::create("/dev/full").unwrap();
        let answer = Answer::from(search.stdout(full).output().unwrap()).ending(3);
        assert!(answer.stderr.contains("No space left"), "{}", answer.stderr);
    }
}

#[test]
fn a_trace_that_cannot_be_read_is_refused_before_anything_is_written() {
    let traced = three_points().split("workload:").next().unwrap().to_owned()
        + "workload: {trace_path: the.jsonl}\ngoal: {target: e2e_latency}\n";
    let place = Workplace::with("search.yaml", &traced);
    let search = || place.run(&["search", "search.yaml", "--output-dir", "out"]);
    search().refusing(&["the.jsonl"]);
    std::fs::create_dir(place.path("the.jsonl")).unwrap();
    search().refusing(&["the.jsonl"]);
    std::fs::remove_dir(place.path("the.jsonl")).unwrap();
    place.write("the.jsonl", "");
    search().refusing(&["the.jsonl"]);
    let row = "{\"timestamp\": 0, \"input_length\": 100, \"output_length\": 3, \"hash_ids\": [1]}\n";
    place.write("the.jsonl", &format!("{row}{{\"timestamp\": 5\n{row}"));
    search().refusing(&["the.jsonl", "2"]);
    File::create(place.path("the.jsonl")).unwrap().write_all(b"\xff\xfe\x00{}\n").unwrap();
    search().refusing(&["the.jsonl"]);
    assert_eq!(place.files(), ["search.yaml", "the.jsonl"]);
}
