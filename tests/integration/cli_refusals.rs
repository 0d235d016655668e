//! Exit status 2, with the key and the rule, for what no run could make sense of: impossible times, more than a machine can
//! hold, names that nobody knows, places that cannot be written to.

#![allow(clippy::unwrap_used, reason = "helpers of tests may panic")]

use super::cli_command::Workplace;

const SCENARIO: &str = "\
deployment:
  mode: agg
  router: {policy: kv_router}
  agg: {workers: 2, engine: {num_gpu_blocks: 4096}}
workload: {isl: 500, osl: 20, concurrency: 4, num_request_ratio: 10}
";

const SEARCH: &str = "\
search_space:
  model_name: MiniMaxAI/MiniMax-M2.5
  hardware_sku: h200_sxm
  deployment_mode: [agg]
  parallel_configs: [{tp: 8, moe_ep: 8, replicas: 1}]
  gpu_budget: 8
  planner_scaling_policy: [disabled]
  router_mode: [round_robin]
workload: {isl: 500, osl: 20, concurrency: 4, num_request_ratio: 4}
";

/// Each change of the file is refused by `check` and by the run, with all of the words and nothing written.
#[track_caller]
fn assert_refused(command: &str, text: &str, cases: &[(&str, &[&str])]) {
    let place = Workplace::with("file.yaml", text);
    for (set, words) in cases {
        for command in ["check", command] {
            let mut arguments = vec![command, "file.yaml", "--set", set];
            if command != "check" {
                arguments.extend(["--output-dir", "out"]);
            }
            let answer = place.run(&arguments);
            assert_eq!(answer.status, 2, "{set}: {}", answer.stderr);
            let longest = answer.stderr.split_whitespace().map(str::len).max().unwrap_or(0);
            assert!(longest < 90, "{set}: a figure without end: {}", answer.stderr);
            answer.refusing(words);
            assert_eq!(place.files(), ["file.yaml"], "{set}");
        }
    }
}

#[test]
fn impossible_times() {
    let planner = "deployment.planner";
    assert_refused(
        "replay",
        SCENARIO,
        &[
            (
                "deployment.agg.timing={model: fixed, prefill_ms: 1e12, decode_ms: 1}",
                &["prefill_ms", "11 days"],
            ),
            ("deployment.agg.timing={model: polynomial, pass_overhead_ms: 1}", &["pass_overhead_ms"]),
            ("deployment.agg.startup_time_s=1e12", &["startup_time_s", "31 years"]),
            ("deployment.agg.engine.speedup_ratio=1e-300", &["speedup_ratio", "from 0.000001"]),
            ("deployment.agg.engine.decode_speedup_ratio=1e300", &["decode_speedup_ratio", "to 1000000000"]),
            ("deployment.router.router_temperature=1e300", &["router_temperature: 1e300", "below 1e15"]),
            ("deployment.router.kv_event_lag_ms=1e300", &["kv_event_lag_ms: 1e300", "a year"]),
            ("deployment.planner={policy: queue_aware, interval_s: 1e300}", &["interval_s: 1e300", "a year"]),
            (
                "workload={isl: 5, osl: 5, request_rate: 1e-300, num_request_ratio: 2e300}",
                &["request_rate: `1e-300`"],
            ),
            (
                "workload={requests: [{arrival_ms: 0, input_length: 5, output_length: 5}, \
                 {arrival_ms: 1, input_length: 5, output_length: 5}], arrival_speedup_ratio: 1e-300}",
                &["workload.arrival_speedup_ratio"],
            ),
            (
                &format!("{planner}={{policy: load_180_5, load_adjustment_interval_seconds: 5000000000}}"),
                &["load_adjustment_interval_seconds", "a whole number from 0 to 4294967295"],
            ),
        ],
    );
}

#[test]
fn times_that_add_up_to_more_than_the_clock_has() {
    let place = Workplace::with("file.yaml", SCENARIO);
    let workload = "workload={isl: 5, osl: 5, concurrency: 1, num_request_ratio: 1, turns_per_session: 200, \
                    inter_turn_delay_ms: 1e12}";
    place.run(&["replay", "file.yaml", "--set", workload]).refusing(&["file.yaml: ", "584 years"]);
}

#[test]
fn more_than_a_machine_can_hold() {
    let far = "{requests: [{arrival_ms: 0, input_length: 5, output_length: 5}, \
               {arrival_ms: 1e12, input_length: 5, output_length: 5}]}";
    let with_planner = format!("{SCENARIO}sla: null\n").replace("  agg:", "  planner: load_180_5\n  agg:");
    assert_refused(
        "replay",
        &with_planner,
        &[(
            &format!("workload={far}"),
            &["file.yaml:4: deployment.planner: it would decide 200000000 times"],
        )],
    );
    assert_refused(
        "replay",
        SCENARIO,
        &[
            ("workload.turns_per_session=4294967295", &["turns_per_session", "at most 20000000"]),
            ("workload.num_request_ratio=1e9", &["num_request_ratio: 4000000000 requests"]),
            ("workload.num_request_ratio=1e300", &["num_request_ratio: `1e300`", "to 1000000000"]),
            ("workload.isl=4294967295", &["isl", "at most 2147483647"]),
            ("workload.osl=4294967295", &["osl", "at most 2147483647"]),
            ("deployment.agg.engine.block_size=4294967295", &["block_size", "at most 2147483647"]),
            ("deployment.agg={workers: 100000, dp_size: 1024}", &["workers", "at most 100000 ranks"]),
            (
                "deployment.agg={workers: 100000, tensor_parallel_size: 1024, pipeline_parallel_size: 64}",
                &["6553600000 GPUs"],
            ),
            (
                "workload={isl: 2147483647, osl: 5, concurrency: 9, num_request_ratio: 9, num_prefix_groups: 2, \
                 shared_prefix_ratio: 0.5}",
                &["workload.shared_prefix_ratio: ", "more than 100000000"],
            ),
            (
                "workload={isl: 500, osl: 5, concurrency: 9, num_request_ratio: 9, num_prefix_groups: 4294967295, \
                 shared_prefix_ratio: 0.5}",
                &["workload.num_prefix_groups: ", "more than 100000000"],
            ),
            (
                "deployment.planner={policy: load_180_5, min_endpoint: 4294967295}",
                &["min_endpoint", "100000"],
            ),
            (
                "deployment.planner={policy: queue_aware, min_endpoint: 4294967295}",
                &["min_endpoint", "100000"],
            ),
            (
                "deployment.planner={policy: load_180_5, min_gpu_budget: 900000, max_gpu_budget: -1}",
                &["min_gpu_budget"],
            ),
        ],
    );
    let replicas = format!("{SCENARIO}sla: null\n").replace("  agg: {", "  agg: {dp_size: 1024, ");
    let change = "deployment.replica_changes=[{at_ms: 1, workers: 100000}]";
    assert_refused("replay", &replicas, &[(change, &["replica_changes[0].workers", "at most 100000 ranks"])]);
    assert_refused(
        "search",
        SEARCH,
        &[
            ("sweep.candidates_per_round=4294967295", &["candidates_per_round", "at most 65536"]),
            ("search_space.gpu_budget=4294967295", &["gpu_budget", "at most 100000"]),
            ("search_space.min_endpoint=4294967295", &["min_endpoint", "at most 100000"]),
            (
                "search_space={model_name: MiniMaxAI/MiniMax-M2.5, hardware_sku: h200_sxm, deployment_mode: [disagg], \
                 gpu_budget: 600}",
                &["search_space.gpu_budget: ", "at most those of 512"],
            ),
            (
                "search_space.parallel_configs=[{tp: 1, attention_dp: 1024, replicas: 100000}]",
                &["at most 100000 ranks"],
            ),
            (
                "workload={isl: 5, osl: 5, kv_load_ratio: 1, num_request_ratio: 1e9}",
                &["num_request_ratio", "at most 20000000"],
            ),
        ],
    );
}

#[test]
fn names_that_nobody_knows() {
    assert_refused(
        "search",
        SEARCH,
        &[
            (
                "search_space.backend_version=9",
                &["search_space.backend_version: ", "with vllm for `9`; known: 0.24.0"],
            ),
            (
                "search_space.timing={model: profile, quantization: fp7}",
                &["search_space.timing.quantization: ", "known: fp8_block"],
            ),
            ("sweep.sampler=rnadom", &["sweep.sampler: `rnadom` is not a sampler", "first, `random`"]),
            (
                "search_space.router_mode=[round_robbin]",
                &["search_space.router_mode[0].policy: ", "did you mean `round_robin`?"],
            ),
            (
                "search_space.planner_scaling_policy=[{policy: hybrid_180_5, ttft_ms: 100}]",
                &["search_space.planner_scaling_policy[0].policy: ", "`optimization_target: sla`"],
            ),
            (
                "search_space.planner_scaling_policy=[queue_awar]",
                &["search_space.planner_scaling_policy[0].policy: ", "did you mean `queue_aware`?"],
            ),
        ],
    );
    assert_refused(
        "replay",
        SCENARIO,
        &[
            (
                "deployment.planner={optimization_target: sla, load_predictor: klaman}",
                &[
                    "deployment.planner.load_predictor: unknown load predictor `klaman`",
                    "did you mean `kalman`?",
                ],
            ),
            (
                "deployment.planner={policy: disabled, ttft_ms: 1, itl_ms: 2}",
                &["deployment.planner.ttft_ms: has no effect", "deployment.planner.itl_ms: has no effect"],
            ),
        ],
    );
}

#[test]
fn what_candidates_cannot_have_stands_at_the_key_of_the_search() {
    let place = Workplace::with("file.yaml", SEARCH);
    place.write("ab.csv", "a,b\n");
    let trace = |row: u32| format!("{{\"timestamp\": {row}, \"input_length\": 5, \"output_length\": 5}}\n");
    place.write("t.jsonl", &(0..9).map(trace).collect::<String>());
    for (set, words) in [
        (
            "search_space.timing={model: grid, path: ab.csv}",
            ": search_space.timing: ab.csv:1: columns are missing",
        ),
        ("search_space.timing={model: profile, rescale: ab.csv}", ": search_space.timing: ab.csv:1: columns"),
        (
            "search_space={model_name: MiniMaxAI/MiniMax-M2.5, hardware_sku: h200_sxm, deployment_mode: [agg], gpu_budget: 8, \
          backend: [sglang], aic_nextn: 2}",
            ": search_space.aic_nextn: speculative decoding is not built",
        ),
        (
            "search_space.planner_scaling_policy=[{policy: queue_aware, max_gpu_budget: 400}]",
            ": search_space.planner_scaling_policy: the planner may use 400 GPUs",
        ),
    ] {
        for command in ["check", "search"] {
            place.run(&[command, "file.yaml", "--set", set]).refusing(&["--set search_space", words]);
        }
    }
    let rows = [
        "check",
        "file.yaml",
        "--set",
        "workload={trace_path: t.jsonl}",
        "--set",
        "sweep.fidelity={rows: [5, 2000]}",
    ];
    place.run(&rows).refusing(&["--set sweep.fidelity={rows: [5, 2000]}: sweep.fidelity.rows: 2000"]);
}

#[test]
fn a_version_that_some_engine_has_is_searched() {
    let place = Workplace::with("file.yaml", SEARCH);
    let both = "search_space.backend=[vllm, sglang]";
    let set = ["check", "file.yaml", "--set", "search_space.backend_version=0.24.0", "--set", both];
    let answer = place.run(&set).ending(0);
    assert!(answer.stderr.contains("no aggregated deployment with sglang"), "{}", answer.stderr);
}

#[cfg(unix)]
#[test]
fn places_that_cannot_be_written_to() {
    let place = Workplace::with("file.yaml", SCENARIO);
    place.write("search.yaml", SEARCH);
    place.write("there", "");
    std::fs::create_dir(place.path("folder")).unwrap();
    let before = place.files();
    for arguments in [
        &["replay", "file.yaml", "--output-dir", "there"][..],
        &["replay", "file.yaml", "--output-dir", "there/below"],
        &["search", "search.yaml", "--output-dir", "there"],
        &["search", "shard", "search.yaml", "--index", "0", "--of", "1", "--output-dir", "there"],
        &["man", "there"],
    ] {
        place.run(arguments).refusing(&["there is a file, not a folder"]);
    }
    place.run(&["replay", "file.yaml", "--timeline", "folder"]).refusing(&["--timeline folder: is a folder"]);
    place
        .run(&["replay", "file.yaml", "--timeline", "no/x.json"])
        .refusing(&["--timeline no/x.json: there is no folder no"]);
    // A device would be replaced by the file.
    std::os::unix::fs::symlink("/dev/null", place.path("device")).unwrap();
    place
        .run(&["replay", "file.yaml", "--timeline", "device"])
        .refusing(&["--timeline device: is no regular file"]);
    std::fs::remove_file(place.path("device")).unwrap();
    // Everything that is wrong comes at once.
    let all =
        ["replay", "file.yaml", "--output-dir", "there", "--timeline", "folder", "--set", "workload.isl=0"];
    place.run(&all).refusing(&["workload.isl"]);
    let all = [
        "replay",
        "file.yaml",
        "--output-dir",
        "there",
        "--timeline",
        "folder",
        "--set",
        "deployment.router=dice",
    ];
    place.run(&all).refusing(&["unknown router `dice`", "--output-dir there", "--timeline folder"]);
    assert_eq!(place.files(), before);
}

#[test]
fn measured_files_say_what_their_head_has() {
    let place = Workplace::with("ab.csv", "a,b\n");
    place.run(&["profiles", "check", "ab.csv"]).refusing(&[
        "ab.csv:1: columns are missing: batch, latency_ms, new_tokens or context_tokens; found a, b",
    ]);
    place.write("empty.csv", "");
    place
        .run(&["profiles", "check", "empty.csv"])
        .refusing(&["empty.csv:1: columns are missing", "found nothing"]);
    place.write("long.csv", "batch,context_tokens,latency_ms\n1,1,1e300\n");
    place
        .run(&["profiles", "check", "long.csv"])
        .refusing(&["long.csv:2: latency_ms: `1e300` is not a number from"]);
    place
        .run(&["trace", "generate", "sine", "--base-rps", "1e300"])
        .refusing(&["base_rps: 1e300", "more than 1e8"]);
    place.run(&["trace", "generate", "sine", "--base-rps", "-7"]).refusing(&["base_rps: -7"]);
    place.run(&["trace", "generate", "sine", "--duration-s", "0"]).refusing(&["duration_s: 0"]);
}

#[test]
fn requests_bound_to_a_rank_that_is_not_there() {
    let list = "{requests: [{arrival_ms: 0, input_length: 5, output_length: 5}, \
                {arrival_ms: 0, dp_rank: 7, input_length: 5, output_length: 5}]}";
    let words = ["workload.requests[1].dp_rank: 7 is no rank", "they have 1, counted from 0"];
    assert_refused("replay", SCENARIO, &[(&format!("workload={list}"), &words)]);
}

#[test]
fn a_file_is_a_scenario_or_a_search() {
    let both = format!("{SCENARIO}search_space: {{model_name: a, hardware_sku: b}}\n");
    Workplace::with("file.yaml", &both)
        .run(&["check", "file.yaml"])
        .refusing(&["file.yaml:1: deployment: belongs to a scenario", "`search_space`"]);
    let goal = format!("{SCENARIO}goal: {{target: throughput}}\nsweep: {{}}\n");
    Workplace::with("file.yaml", &goal).run(&["check", "file.yaml"]).refusing(&[
        "file.yaml:6: goal: belongs to a search configuration",
        "file.yaml:7: sweep: belongs to a search configuration",
    ]);
}

#[test]
fn journals_of_another_search_and_folders_of_parts() {
    let text = format!("{SEARCH}sweep: {{sampler: random, max_rounds: 2, candidates_per_round: 2}}\n");
    let place = Workplace::with("search.yaml", &text);
    let other = "workload.isl=400";
    place.run(&["search", "search.yaml", "--output-dir", "out", "--quiet"]).ending(0);
    let journal = place.read("out/trials.jsonl");
    place
        .run(&["search", "search.yaml", "--output-dir", "out", "--resume", "--set", other])
        .refusing(&["out: trial 1 of the journal is not what this search would evaluate"]);
    assert_eq!(place.read("out/trials.jsonl"), journal);
    for part in ["0", "1"] {
        let folder = format!("part{part}");
        let shard = ["search", "shard", "search.yaml", "--index", part, "--of", "2", "--output-dir", &folder];
        place.run(&shard).ending(0);
    }
    let parts = [place.read("part0/trials.jsonl"), place.read("part1/trials.jsonl")];
    place
        .run(&["search", "merge", "part0", "part1", "--output-dir", "./part1"])
        .refusing(&["--output-dir ./part1: holds a part of a search (shard.json); give the search a folder"]);
    place
        .run(&["search", "merge", "part0", "part1", "--output-dir", "search.yaml"])
        .refusing(&["search.yaml is a file, not a folder"]);
    assert_eq!([place.read("part0/trials.jsonl"), place.read("part1/trials.jsonl")], parts);
}

#[cfg(target_os = "linux")]
#[test]
fn files_without_an_end_are_not_read_to_it() {
    let place = Workplace::with("file.yaml", SCENARIO);
    std::os::unix::fs::symlink("/dev/zero", place.path("endless")).unwrap();
    let words = ["endless: is longer than 64 MiB"];
    place.run(&["check", "endless"]).refusing(&words);
    place.run(&["profiles", "check", "endless"]).refusing(&words);
    place.run(&["profiles", "query", "endless"]).refusing(&["endless:1: is longer than 1048576 bytes"]);
    for set in [
        "deployment.agg.timing={model: grid, path: endless}",
        "facts={models: [{name: a, path: endless}]}",
        "facts={hardware: [{name: a, path: endless}]}",
    ] {
        place.run(&["check", "file.yaml", "--set", set]).refusing(&words);
    }
}

#[test]
fn rates_and_ratios_that_no_clock_can_hold() {
    assert_refused(
        "replay",
        SCENARIO,
        &[
            (
                "workload={isl: 500, osl: 20, request_rate: 1e-300, num_request_ratio: 10}",
                &["request_rate", "0.000001"],
            ),
            ("workload.num_request_ratio=1e-300", &["num_request_ratio", "0.000001 to 1000000000"]),
            (
                "workload={trace_path: none.jsonl, arrival_speedup_ratio: 1e-300}",
                &["workload.arrival_speedup_ratio", "from 0.000001 to 1000000000"],
            ),
            (
                "workload={isl: 500, osl: 20, request_rate: 1, num_request_ratio: 10, arrival: poisson}",
                &["workload.arrival", "`poisson` where keys with values are expected", "process"],
            ),
        ],
    );
    let disaggregated = SCENARIO.replace("mode: agg", "mode: disagg").replace(
        "  agg: {workers: 2, engine: {num_gpu_blocks: 4096}}",
        "  prefill: {workers: 1}\n  decode: {workers: 1}\n  kv_transfer: {bandwidth_gbps: 50, bytes_per_token: 1000}",
    );
    assert_refused(
        "replay",
        &disaggregated,
        &[
            (
                "deployment.kv_transfer.bandwidth_gbps=1e-300",
                &["kv_transfer.bandwidth_gbps", "from 0.001 to 1000000000"],
            ),
            (
                "deployment.kv_transfer.bytes_per_token=1000000000001",
                &["kv_transfer.bytes_per_token", "at most 1000000000"],
            ),
        ],
    );
}

#[test]
fn hints_about_speculation() {
    let place = Workplace::with("file.yaml", SCENARIO);
    let rates = "deployment.agg.engine.aic_nextn_accept_rates=[0.5, 2]";
    let answer =
        place.run(&["check", "file.yaml", "--set", rates, "--set", "deployment.agg.engine.aic_nextn=6"]);
    assert_eq!(answer.status, 2);
    assert!(!answer.stderr.contains("no effect"), "{}", answer.stderr);
    answer.refusing(&["aic_nextn_accept_rates[1]", "from 0 to 1; write `0.02`", "at most 5"]);
}

#[test]
fn numbers_of_the_command_line_say_their_range() {
    let place = Workplace::with("file.yaml", SEARCH);
    for (arguments, words) in [
        (&["search", "file.yaml", "--threads", "0"][..], "--threads <N>': a whole number from 1 is wanted"),
        (&["explain", "tick", "out", "abc"], "'abc' for '<TICK>': a whole number from 0 is wanted"),
        (
            &["explain", "candidate", "out", "--rank", "x"],
            "'x' for '--rank <RANK>': a whole number from 1 is wanted",
        ),
    ] {
        let answer = place.run(arguments);
        assert_eq!(answer.status, 2, "{}", answer.stderr);
        assert!(answer.stderr.contains(words), "{}", answer.stderr);
    }
}

#[test]
fn a_model_of_the_command_line_is_to_blame_itself() {
    let text = SEARCH.replace("deployment_mode: [agg]", "deployment_mode: [agg, disagg]").replace(
        "  parallel_configs: [{tp: 8, moe_ep: 8, replicas: 1}]",
        "  kv_transfer: {bandwidth_gbps: 50}",
    );
    let place = Workplace::with("file.yaml", &text);
    let answer = place.run(&["check", "file.yaml", "--set", "search_space.model_name=nope/x"]);
    assert!(!answer.stderr.contains("kv_transfer"), "{}", answer.stderr);
    answer.refusing(&[
        "--set search_space.model_name=nope/x: search_space.model_name: model `nope/x` is not known",
    ]);
}
