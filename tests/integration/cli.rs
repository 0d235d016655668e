//! The command line: what it answers, where, and with which exit status.

#![allow(clippy::unwrap_used, reason = "helpers of tests may panic")]

use std::process::Stdio;

use super::cli_command::{Answer, Workplace};

const SCENARIO: &str = "\
deployment:
  mode: agg
  router: {policy: kv_router, router_temperature: 0.5}
  agg: {workers: 2, engine: {num_gpu_blocks: 4096}}
workload: {isl: 500, osl: 20, concurrency: 4, num_request_ratio: 10}
sla: {ttft_ms: 100, itl_ms: 20}
";

const SEARCH: &str = "\
search_space:
  model_name: a/model
  hardware_sku: h200_sxm
  deployment_mode: [agg]
  parallel_configs: [{tp: 1, replicas: 2}]
  timing: {model: polynomial}
  planner_scaling_policy: [disabled]
workload: {isl: 500, osl: 20, concurrency: 4, num_request_ratio: 4}
";

#[test]
fn help_and_version_are_answers() {
    let place = Workplace::new();
    for (arguments, word) in [
        (&["--help"][..], "Exit status"),
        (&["--version"], env!("CARGO_PKG_VERSION")),
        (&["search", "--help"], "--output-dir"),
        (&["replay", "--help"], "--set"),
        (&["check", "--help"], "resolved configuration"),
        (&["trace", "--help"], "trace"),
    ] {
        let answer = place.run(arguments).ending(0);
        assert!(answer.stdout.contains(word), "{arguments:?}: {}", answer.stdout);
        assert_eq!(answer.stderr, "");
    }
}

#[test]
fn wrong_arguments_are_refused_with_usage() {
    let place = Workplace::with("scenario.yaml", SCENARIO);
    for arguments in [
        &[][..],
        &["simulate"],
        &["replay"],
        &["replay", "scenario.yaml", "--threads", "2"],
        &["search", "scenario.yaml", "--threads", "0"],
        &["check", "scenario.yaml", "--format", "xml"],
        &["check", "scenario.yaml", "--set", "deployment"],
    ] {
        let answer = place.run(arguments).ending(2);
        assert!(answer.stderr.contains("--help") || answer.stderr.contains("Usage"), "{}", answer.stderr);
        assert_eq!(answer.stdout, "");
    }
}

#[test]
fn files_that_cannot_be_read_are_named() {
    let place = Workplace::with("folder/x", "");
    for command in ["search", "replay", "check"] {
        place.run(&[command, "absent.yaml"]).refusing(&["absent.yaml", "cannot be read"]);
        place.run(&[command, "folder"]).refusing(&["folder", "is a folder, not a file"]);
    }
    std::fs::write(place.path("latin1.yaml"), b"workload: \xe9").unwrap();
    place.run(&["check", "latin1.yaml"]).refusing(&["latin1.yaml", "not UTF-8", "byte 11"]);
    place.write("empty.yaml", "");
    place.run(&["check", "empty.yaml"]).refusing(&["empty.yaml", "empty"]);
}

#[test]
fn a_file_for_the_other_command_says_which() {
    let place = Workplace::with("scenario.yaml", SCENARIO);
    place.write("search.yaml", SEARCH);
    place.run(&["replay", "search.yaml"]).refusing(&["search.yaml", "spica search"]);
    place.run(&["search", "scenario.yaml"]).refusing(&["scenario.yaml", "spica replay"]);
}

#[test]
fn check_prints_a_configuration_that_reads_back_as_itself() {
    for text in [SCENARIO, SEARCH] {
        let place = Workplace::with("given.yaml", text);
        let resolved = place.run(&["check", "given.yaml", "--quiet"]).ending(0);
        assert_eq!(resolved.stderr, "");
        place.write("resolved.yaml", &resolved.stdout);
        assert_eq!(place.run(&["check", "resolved.yaml"]).ending(0).stdout, resolved.stdout);
        let json = place.run(&["check", "given.yaml", "--format", "json"]).ending(0);
        assert_eq!(json.json(), place.run(&["check", "resolved.yaml", "--format=json"]).ending(0).json());
        assert_eq!(place.files(), ["given.yaml", "resolved.yaml"]);
    }
}

#[test]
fn check_says_where_its_paths_start() {
    let place = Workplace::with(
        "folder/given.yaml",
        &SCENARIO.replace(
            "{isl: 500, osl: 20, concurrency: 4, num_request_ratio: 10}",
            "{trace_path: ../t.jsonl}",
        ),
    );
    place.write("t.jsonl", "{\"timestamp\": 0, \"input_length\": 5, \"output_length\": 2}\n");
    let resolved = place.run(&["check", "folder/given.yaml"]).ending(0).stdout;
    assert!(
        resolved.starts_with("# Paths start from the folder of the file that was checked.\nseed: "),
        "{resolved}"
    );
    assert!(resolved.contains("trace_path: ../t.jsonl"), "{resolved}");
    place.write("folder/resolved.yaml", &resolved);
    assert_eq!(place.run(&["check", "folder/resolved.yaml"]).ending(0).stdout, resolved);
    // Nothing is said where no path depends on the folder.
    let here = place.path("t.jsonl").display().to_string();
    place.write("folder/given.yaml", &place.read("folder/given.yaml").replace("../t.jsonl", &here));
    let resolved = place.run(&["check", "folder/given.yaml"]).ending(0).stdout;
    assert!(resolved.starts_with("seed: "), "{resolved}");
    place.write("elsewhere.yaml", &resolved);
    assert_eq!(place.run(&["check", "elsewhere.yaml"]).ending(0).stdout, resolved);
    assert!(place.run(&["check", "--help"]).ending(0).stdout.contains("start from the folder of FILE"));
}

#[test]
fn check_makes_the_policies() {
    let place = Workplace::with("scenario.yaml", &SCENARIO.replace("kv_router", "kv_ruoter"));
    place.run(&["check", "scenario.yaml"]).refusing(&["scenario.yaml:3", "kv_ruoter", "kv_router"]);
    place.write("scenario.yaml", &SCENARIO.replace("router_temperature", "router_temprature"));
    place
        .run(&["check", "scenario.yaml"])
        .refusing(&["router_temprature", "did you mean `router_temperature`"]);
    place.run(&["replay", "scenario.yaml"]).refusing(&["router_temprature"]);
    place.write("search.yaml", SEARCH);
    place
        .run(&["check", "search.yaml", "--set", "search_space.router_mode=[round_robbin]"])
        .refusing(&["round_robbin", "round_robin"]);
}

#[test]
fn check_tells_of_limits_that_nobody_goes_by() {
    let sglang = "engine: {backend: sglang, num_gpu_blocks: 4096, max_num_batched_tokens: 100}";
    let place = Workplace::with("scenario.yaml", &SCENARIO.replace("engine: {num_gpu_blocks: 4096}", sglang));
    let told =
        "scenario.yaml:4: note: deployment.agg.engine.max_num_batched_tokens: has no effect on the passes";
    let queue = ["--set", "deployment.router={policy: kv_router, queue_threshold: 2}"];
    for command in ["check", "replay"] {
        let stderr = place.run(&[command, "scenario.yaml"]).ending(0).stderr;
        assert!(stderr.contains(told), "{stderr}");
        let stderr = place.run(&[&[command, "scenario.yaml"], &queue[..]].concat()).ending(0).stderr;
        assert!(!stderr.contains("has no effect"), "{stderr}");
    }
}

#[test]
fn check_refuses_what_the_run_would_refuse() {
    let place = Workplace::with("scenario.yaml", SCENARIO);
    place.write("search.yaml", SEARCH);
    place.write("bad.jsonl", "{\"timestamp\": 0, \"input_length\": 5}\n");
    place.write("bad.csv", "a,b\n");
    assert_eq!(place.run(&["check", "scenario.yaml"]).ending(0).stderr, "");
    assert_eq!(place.run(&["check", "search.yaml", "--quiet"]).ending(0).stderr, "");
    let trace = "{trace_path: bad.jsonl}";
    let missing = "{trace_path: no.jsonl}";
    let facts = "facts={models: [{name: a/model, path: no.json}]}";
    for (run, file, set, words) in [
        ("replay", "scenario.yaml", "deployment.agg.startup_time_s=5".to_owned(), &["startup_time_s"][..]),
        ("replay", "scenario.yaml", format!("workload={missing}"), &["workload.trace_path: no.jsonl"]),
        ("replay", "scenario.yaml", format!("workload={trace}"), &["bad.jsonl: line 1", "output_length"]),
        ("replay", "scenario.yaml", facts.to_owned(), &["facts.models[0].path: no.json: cannot be read"]),
        (
            "replay",
            "scenario.yaml",
            "deployment.agg.timing={model: grid, path: bad.csv}".to_owned(),
            &["deployment.agg.timing: bad.csv"],
        ),
        ("search", "search.yaml", format!("workload={missing}"), &["workload.trace_path: no.jsonl"]),
        ("search", "search.yaml", format!("workload={trace}"), &["bad.jsonl: line 1", "output_length"]),
        ("search", "search.yaml", facts.to_owned(), &["facts.models[0].path: no.json: cannot be read"]),
        (
            "search",
            "search.yaml",
            "search_space.gpu_budget=1".to_owned(),
            &["search_space.parallel_configs[0]: "],
        ),
        (
            "search",
            "search.yaml",
            "search_space={num_g2_blocks: 5, kv_bytes_per_token: 1, model_name: a/model, hardware_sku: b}"
                .to_owned(),
            &["search_space.num_g2_blocks: "],
        ),
    ] {
        let [checked, ran] = ["check", run].map(|command| place.run(&[command, file, "--set", &set]));
        assert_eq!(checked.stderr, ran.stderr, "{set}");
        checked.refusing(words);
        ran.refusing(words);
    }
}

#[test]
fn overrides_act_and_unknown_ones_are_refused() {
    let place = Workplace::with("scenario.yaml", SCENARIO);
    let resolved =
        place.run(&["check", "scenario.yaml", "--format", "json", "--set", "deployment.agg.workers=7"]);
    assert_eq!(resolved.ending(0).json()["deployment"]["agg"]["workers"], 7);
    place
        .run(&["check", "scenario.yaml", "--set", "deployment.agg.wrokers=7"])
        .refusing(&["wrokers", "workers"]);
}

#[test]
fn a_replay_prints_a_table_or_its_report() {
    let place = Workplace::with("scenario.yaml", SCENARIO);
    let table = place.run(&["replay", "scenario.yaml"]).ending(0);
    assert!(table.stdout.contains("40 completed"), "{}", table.stdout);
    assert!(table.stdout.contains("TTFT ms"));
    assert!(table.stderr.contains("wall_time_ms"));
    assert!(!table.stdout.contains("wall_time_ms"));
    let report = place.run(&["replay", "scenario.yaml", "--format", "json", "--quiet"]).ending(0);
    assert_eq!(report.stderr, "");
    let json = report.json();
    assert_eq!(json["schema_version"], 1);
    assert_eq!(json["scenario"]["deployment"]["router"]["router_temperature"], 0.5);
    assert_eq!(json["summary"]["completed_requests"], 40);
    assert!(json["summary"]["attainment"].is_number());
    assert_eq!(place.files(), ["scenario.yaml"], "nothing is written without --output-dir");
}

#[test]
fn a_replay_writes_what_it_prints() {
    let place = Workplace::with("scenario.yaml", SCENARIO);
    let answer =
        place.run(&["replay", "scenario.yaml", "--format", "json", "--output-dir", "out/deep"]).ending(0);
    assert_eq!(
        place.files(),
        ["out/deep/report.json", "out/deep/requests.jsonl", "out/deep/series.json", "scenario.yaml"]
    );
    assert_eq!(place.read("out/deep/report.json"), answer.stdout);
    let rows = place.read("out/deep/requests.jsonl");
    assert_eq!(rows.lines().count(), 40);
    let again =
        place.run(&["replay", "scenario.yaml", "--format", "json", "--output-dir", "out/deep"]).ending(0);
    assert_eq!((again.stdout, place.read("out/deep/requests.jsonl")), (answer.stdout, rows));
}

#[test]
fn refused_input_leaves_no_files() {
    let place = Workplace::with("scenario.yaml", &SCENARIO.replace("isl: 500", "isl: 0"));
    place.run(&["replay", "scenario.yaml", "--output-dir", "out"]).refusing(&[
        "scenario.yaml:5",
        "workload.isl",
        "0",
    ]);
    place.write("scenario.yaml", &SCENARIO.replace("{num_gpu", "{prefill_decode_interval: 3, num_gpu"));
    place
        .run(&["replay", "scenario.yaml", "--output-dir", "out"])
        .refusing(&["scenario.yaml", "prefill_decode_interval"]);
    assert_eq!(place.files(), ["scenario.yaml"]);
}

#[test]
fn traces_are_read_beside_the_file_that_names_them() {
    let place = Workplace::with("runs/traces/rows.jsonl", &rows(10));
    let workload = "workload: {trace_path: traces/rows.jsonl, trace_block_size: 64}";
    let scenario =
        SCENARIO.lines().filter(|line| !line.starts_with("workload")).collect::<Vec<_>>().join("\n");
    place.write("runs/scenario.yaml", &format!("{scenario}\n{workload}\n"));
    let report = place.run(&["replay", "runs/scenario.yaml", "--format", "json"]).ending(0).json();
    assert_eq!(report["input"]["read"], 10);
    assert_eq!(report["summary"]["completed_requests"], 10);

    place.write("runs/traces/rows.jsonl", &(rows(2) + "{\"timestamp\": 3, \"input_length\": 64}\n"));
    place.run(&["replay", "runs/scenario.yaml"]).refusing(&["rows.jsonl", "line 3", "output_length"]);
    std::fs::remove_file(place.path("runs/traces/rows.jsonl")).unwrap();
    place.run(&["replay", "runs/scenario.yaml"]).refusing(&["runs/traces/rows.jsonl", "cannot be read"]);
    std::fs::create_dir(place.path("runs/traces/rows.jsonl")).unwrap();
    place.run(&["replay", "runs/scenario.yaml"]).refusing(&["runs/traces/rows.jsonl", "folder"]);
}

/// Warnings about the input are notes: on standard error, and not with --quiet.
#[test]
fn warnings_can_be_silenced() {
    let place = Workplace::with(
        "rows.jsonl",
        &(rows(3) + "{\"timestamp\": 400, \"input_length\": 64, \"output_length\": 0, \"hash_ids\": [9]}\n"),
    );
    let scenario =
        SCENARIO.lines().filter(|line| !line.starts_with("workload")).collect::<Vec<_>>().join("\n");
    place.write(
        "s.yaml",
        &format!("{scenario}\nworkload: {{trace_path: rows.jsonl, trace_block_size: 64}}\n"),
    );
    let loud = place.run(&["replay", "s.yaml", "--format", "json"]).ending(0);
    assert!(loud.stderr.contains("zero output"), "{}", loud.stderr);
    assert_eq!(loud.json()["input"]["dropped"]["zero output"], 1);
    let quiet = place.run(&["replay", "s.yaml", "--format", "json", "-q"]).ending(0);
    assert_eq!((quiet.stderr.as_str(), quiet.stdout), ("", loud.stdout));
}

#[test]
fn generated_traces_are_the_bundled_ones_and_have_figures() {
    let place = Workplace::new();
    let bundled = |name: &str| {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/scenarios/traces/");
        std::fs::read_to_string(format!("{folder}{name}")).unwrap()
    };
    let generate =
        |arguments: &[&str]| place.run(&[&["trace", "generate"], arguments].concat()).ending(0).stdout;
    let conversation = generate(&["conversation", "--rows", "600"]);
    assert_eq!(conversation, bundled("conversation.jsonl"));
    assert_eq!(generate(&["tool-agent", "--rows", "800", "--seed", "1"]), bundled("toolagent.jsonl"));
    let sine =
        ["sine", "--duration-s", "600", "--period-s", "300", "--base-rps", "2", "--amplitude-rps", "1.5"];
    assert_eq!(generate(&sine), bundled("sine.jsonl"));
    assert_ne!(generate(&["conversation", "--rows", "600", "--seed", "2"]), conversation);

    place.write("trace.jsonl", &conversation);
    let table = place.run(&["trace", "stats", "trace.jsonl"]).ending(0).stdout;
    assert!(table.contains("600 read, 600 used") && table.contains("reuse     at most"), "{table}");
    let figures = place.run(&["trace", "stats", "trace.jsonl", "--format", "json"]).ending(0).json();
    assert_eq!(figures["requests"], 600);
    let first = place.run(&["trace", "stats", "trace.jsonl", "--max-requests=5", "--format=json"]).ending(0);
    assert_eq!(first.json()["requests"], 5);
    place.run(&["trace", "stats", "trace.jsonl", "--block-size", "64"]).refusing(&[
        "trace.jsonl",
        "line 1",
        "512",
    ]);
    place.run(&["trace", "stats", "absent.jsonl"]).refusing(&["absent.jsonl", "cannot be read"]);
    assert_eq!(place.files(), ["trace.jsonl"]);
}

#[test]
fn impossible_traces_are_refused() {
    let place = Workplace::new();
    let generate = |arguments: &[&str]| place.run(&[&["trace", "generate"], arguments].concat());
    generate(&["conversation", "--rows", "0"]).refusing(&["rows"]);
    generate(&["tool-agent", "--requests-per-second", "NaN"]).refusing(&["requests_per_second"]);
    generate(&["sine", "--period-s=-1"]).refusing(&["period_s"]);
    generate(&["waves"]).refusing(&["waves"]);
}

/// Times in seconds look like a rush of milliseconds, until it is said that they are seconds.
#[test]
fn the_unit_of_a_trace_can_be_told() {
    let place = Workplace::with("seconds.jsonl", &rows(30).replace("00,", ","));
    let milliseconds = place.run(&["trace", "stats", "seconds.jsonl"]).ending(0);
    assert!(milliseconds.stderr.contains("warning"), "{}", milliseconds.stderr);
    let seconds =
        place.run(&["trace", "stats", "seconds.jsonl", "--time-unit", "s", "--format=json"]).ending(0);
    assert_eq!((seconds.json()["span_s"].as_f64(), seconds.stderr.as_str()), (Some(29.0), ""));
}

/// Trace rows, 100 ms apart, that share nothing.
fn rows(count: u32) -> String {
    let row = |row: u32| {
        let time = row * 100;
        format!(
            "{{\"timestamp\": {time}, \"input_length\": 64, \"output_length\": 5, \"hash_ids\": [{row}]}}\n"
        )
    };
    (0..count).map(row).collect()
}

#[test]
fn a_reader_who_leaves_is_no_failure() {
    let place = Workplace::with("search.yaml", SEARCH);
    let mut child = place
        .command(&["check", "search.yaml"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let answer = Answer::from(child.wait_with_output().unwrap());
    assert!(!answer.ending(0).stderr.contains("standard output"));
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_is_a_failed_run() {
    let place = Workplace::with("scenario.yaml", SCENARIO);
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    let output = place.command(&["replay", "scenario.yaml"]).stdout(full).output().unwrap();
    let answer = Answer::from(output).ending(3);
    assert!(answer.stderr.contains("cannot write to standard output"), "{}", answer.stderr);
}

#[test]
fn an_output_folder_that_cannot_be_is_refused_before_the_run() {
    let place = Workplace::with("scenario.yaml", SCENARIO);
    place.write("search.yaml", SEARCH);
    place.write("file", "");
    place
        .run(&["replay", "scenario.yaml", "--output-dir", "file"])
        .refusing(&["--output-dir file: ", "is a file, not a folder"]);
    place
        .run(&["search", "search.yaml", "--output-dir", "file/below"])
        .refusing(&["--output-dir file/below: ", "is a file, not a folder"]);
}
