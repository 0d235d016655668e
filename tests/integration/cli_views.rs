//! `spica explain`, `diff`, `deploy`, `completions` and `man`.

#![allow(clippy::unwrap_used, reason = "helpers of tests may panic")]

use serde_json::Value;

use super::cli_command::Workplace;

const SCENARIO: &str = "\
deployment:
  mode: agg
  router: {policy: kv_router}
  agg: {workers: 2, engine: {num_gpu_blocks: 60, block_size: 16, max_num_batched_tokens: 256}, timing: {model: fixed, prefill_ms: 10, decode_ms: 2}}
workload:
  trace_block_size: 16
  requests:
    - {id: first, arrival_ms: 0, input_length: 400, output_length: 30, hash_ids: [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25]}
    - {id: second, arrival_ms: 100, input_length: 400, output_length: 5, hash_ids: [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25]}
    - {id: third, arrival_ms: 101, input_length: 100, output_length: 5}
";

const SEARCH: &str = "\
search_space:
  model_name: a/Model-1
  hardware_sku: h200_sxm
  deployment_mode: [agg]
  parallel_configs: [{tp: 1, replicas: 1}, {tp: 1, replicas: 2}, {tp: 2, replicas: 2}]
  router_mode: [round_robin, kv_router]
  timing: {model: polynomial}
  planner_scaling_policy: [disabled]
goal: {target: throughput, sla: {ttft_ms: 5000}}
workload: {isl: 500, osl: 20, concurrency: 4, num_request_ratio: 4}
sweep: {sampler: random, max_rounds: 2, candidates_per_round: 6, parallel_evals: 2}
";

fn searched() -> Workplace {
    let place = Workplace::with("search.yaml", SEARCH);
    place.run(&["search", "search.yaml", "--output-dir", "out"]).ending(0);
    place
}

#[test]
fn a_request_is_explained() {
    let place = Workplace::with("scenario.yaml", SCENARIO);
    let text = place.run(&["explain", "request", "scenario.yaml", "second"]).ending(0).stdout;
    for part in ["second: 400 prompt tokens", "where its time went", "prefill", "decode", "<- chosen", "25"] {
        assert!(text.contains(part), "no {part:?} in\n{text}");
    }
    let story =
        place.run(&["explain", "request", "scenario.yaml", "second", "--format=json"]).ending(0).json();
    // The router sends it where its prompt is cached, and what is not cached is computed.
    let route = &story["routes"][0];
    let chosen =
        route["candidates"].as_array().unwrap().iter().find(|seen| seen["rank"] == route["rank"]).unwrap();
    assert!(chosen["overlap_blocks"].as_u64().unwrap() >= 24, "{story}");
    let reused = story["admissions"][0]["reused_tokens"].as_u64().unwrap();
    let computed: u64 =
        story["chunks"].as_array().unwrap().iter().map(|chunk| chunk["new_tokens"].as_u64().unwrap()).sum();
    assert_eq!(reused + computed, 400);
    let phases = story["phases"].as_array().unwrap();
    assert_eq!(phases[0]["start_ms"], 100.0);
    for pair in phases.windows(2) {
        assert_eq!(pair[0]["end_ms"], pair[1]["start_ms"], "phases leave no gap");
    }
    place
        .run(&["explain", "request", "scenario.yaml", "fourth"])
        .refusing(&["fourth", "no such request among 3"]);
}

/// The rank of the best candidate that came out otherwise than the first.
fn rank_of_another(result: &Value) -> usize {
    let figures = |candidate: &Value| (candidate["used_gpus"].clone(), candidate["metrics"].clone());
    let candidates = result["candidates"].as_array().unwrap();
    let others = candidates.iter().take_while(|one| figures(one) == figures(&candidates[0])).count();
    others + 1
}

#[test]
fn a_candidate_is_explained() {
    let place = searched();
    let text = place.run(&["explain", "candidate", "out"]).ending(0).stdout;
    let result = place.read_json("out/candidates.json");
    let before = format!("before rank {} by", rank_of_another(&result));
    for part in [
        "rank 1: score",
        "mean TTFT (SLA)",
        "met by 100 % of all requests",
        "has room",
        &before,
        "settings that differ",
    ] {
        assert!(text.contains(part), "no {part:?} in\n{text}");
    }
    let last = result["candidates"].as_array().unwrap().len().to_string();
    let answer = place.run(&["explain", "candidate", "out", "--rank", "0"]).ending(2);
    assert!(answer.stderr.contains(&format!("rank 0: ranks go from 1 to {last}")), "{}", answer.stderr);
    let text = place.run(&["explain", "candidate", "out", "--rank", &last]).ending(0).stdout;
    assert!(text.contains("the last of the ranking"), "{text}");
    place.run(&["explain", "candidate", "out", "--rank", "9999"]).refusing(&["rank 9999", "candidates"]);
    place.run(&["explain", "tick", "out", "1"]).refusing(&["no scaling.jsonl"]);
}

#[test]
fn the_bounds_and_the_average_of_a_planned_candidate_are_explained() {
    let place = Workplace::with("search.yaml", SEARCH);
    let planned = [
        "search_space.planner_scaling_policy=[load_180_5]",
        "search_space.parallel_configs=[{tp: 1, replicas: 3}]",
        "search_space.gpu_budget=4",
        "search_space.min_gpu_budget=2",
        "search_space.min_endpoint=2",
        "workload.num_request_ratio=100",
    ];
    let settings = planned.iter().flat_map(|setting| ["--set", setting]);
    let search: Vec<&str> =
        ["search", "search.yaml", "--output-dir", "out"].into_iter().chain(settings).collect();
    place.run(&search).ending(0);
    let best = &place.read_json("out/candidates.json")["candidates"][0];
    let metrics = &best["metrics"];
    let peak = |name: &str| metrics[format!("decode_peak_{name}")].as_f64().unwrap();
    let limit = |name: &str| best["config"][format!("agg_max_num_{name}")].as_f64().unwrap();
    let average = metrics["avg_gpu"].as_f64().unwrap();
    assert!(average > 2.0 && average < 3.0, "it goes down to 2 and stays: {average}");
    let json = place.run(&["explain", "candidate", "out", "--format=json"]).ending(0).json();
    assert_eq!((&json["used_gpus"], &json["avg_gpu"]), (&3.into(), &average.into()));
    let workers = metrics["decode_worker_seconds"].as_f64().unwrap()
        / (metrics["duration_ms"].as_f64().unwrap() / 1000.0);
    let rows: Vec<(&str, f64, f64)> = json["bounds"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| {
            (row["bound"].as_str().unwrap(), row["value"].as_f64().unwrap(), row["limit"].as_f64().unwrap())
        })
        .filter(|row| !row.0.contains("SLA"))
        .collect();
    let expected = [
        ("peak GPUs of the budget", 3.0, 4.0),
        ("GPUs at least at the start", 3.0, 2.0),
        ("peak GPUs of the planner", 3.0, 4.0),
        ("average GPUs of the planner", average, 2.0),
        ("average workers (agg)", workers, 2.0),
        ("requests of a rank (agg)", peak("running_requests"), limit("seqs")),
        ("tokens of a pass (agg)", peak("batched_tokens"), limit("batched_tokens")),
    ];
    assert_eq!(rows, expected);
    let text = place.run(&["explain", "candidate", "out"]).ending(0).stdout;
    assert!(
        text.contains(" on 3 GPUs at the start, 2.") && text.contains(" on average, 3 at the peak\n"),
        "{text}"
    );
}

#[test]
fn a_mean_beside_a_bound_of_each_request_misses_nothing() {
    let place = Workplace::with("search.yaml", SEARCH);
    // Prompts of 500 tokens wait for each other, so that some requests come too late.
    let settings = ["--set", "goal.sla={ttft_ms: 40, itl_ms: 1000}", "--set", "goal.target=goodput"];
    place.run(&[&["search", "search.yaml", "--output-dir", "out"], &settings[..]].concat()).ending(0);
    let result = place.read_json("out/candidates.json");
    let candidates = result["candidates"].as_array().unwrap();
    let late = candidates.iter().find(|one| one["metrics"]["mean_ttft_ms"].as_f64().unwrap() > 40.0).unwrap();
    let rank = late["rank"].to_string();
    let text = place.run(&["explain", "candidate", "out", "--rank", &rank]).ending(0).stdout;
    let row = text.lines().find(|line| line.contains("mean TTFT (SLA)")).unwrap();
    let share = late["metrics"]["ttft_attainment"].as_f64().unwrap();
    assert!(share < 1.0 && row.contains("each at most") && !row.contains("missed"), "{row}");
    assert!(row.ends_with(" % of all requests"), "{row}");
    let json = place.run(&["explain", "candidate", "out", "--rank", &rank, "--format=json"]).ending(0).json();
    let met_by = |name: &str| {
        let row = json["bounds"].as_array().unwrap().iter().find(|row| row["bound"] == name).unwrap();
        row["met_by"].as_f64().unwrap()
    };
    assert_eq!((met_by("mean TTFT (SLA)"), met_by("mean TPOT (SLA)")), (share, 1.0));
}

#[test]
fn a_point_of_a_frontier_is_explained_as_one_and_has_to_be_chosen() {
    let place = Workplace::with("search.yaml", SEARCH);
    let frontier = "goal={target: pareto, pareto_objectives: [throughput_per_gpu, e2e_latency]}";
    let all = ["--set", frontier, "--set", "sweep.max_rounds=20"];
    place.run(&[&["search", "search.yaml", "--output-dir", "out"], &all[..]].concat()).ending(0);
    let result = place.read_json("out/candidates.json");
    let points = result["candidates"].as_array().unwrap().len();
    assert!(points > 1, "{result}");
    let text = place.run(&["explain", "candidate", "out"]).ending(0).stdout;
    let first = format!("rank 1 of {points} along the frontier: throughput_per_gpu ");
    assert!(text.starts_with(&first) && text.contains(", e2e_latency "), "{text}");
    let next = rank_of_another(&result);
    assert!(text.contains(&format!("next along it is rank {next}: throughput_per_gpu ")), "{text}");
    assert!(!text.contains("in score"), "{text}");
    let last = ["explain", "candidate", "out", "--rank", &points.to_string()];
    let answer = place.run(&last).ending(0).stdout;
    assert!(answer.contains("it is the last along the frontier"), "{answer}");
    let json = place.run(&["explain", "candidate", "out", "--format=json"]).ending(0).json();
    assert_eq!(json["objectives"], result["candidates"][0]["objectives"]);
    assert_eq!(json["next"]["objectives"], result["candidates"][next - 1]["objectives"]);
    let several =
        format!("out/candidates.json is a frontier of {points} candidates, of which none is the best");
    place.run(&["deploy", "out"]).refusing(&["--rank: missing", &several, "--rank 2: throughput_per_gpu "]);
    place.run(&["deploy", "out", "--rank", "2"]).ending(0);
}

#[test]
fn figures_that_differ_do_not_look_the_same() {
    let place = Workplace::with("scenario.yaml", SCENARIO);
    place.run(&["replay", "scenario.yaml", "--output-dir", "a"]).ending(0);
    place.run(&["replay", "scenario.yaml", "--output-dir", "b"]).ending(0);
    let report = place.read("b/report.json");
    let gpus = place.read_json("b/report.json")["summary"]["avg_gpu"].as_f64().unwrap();
    let with = |avg_gpu: &str| {
        let nearly = report.replace(&format!("\"avg_gpu\": {gpus:?}"), &format!("\"avg_gpu\": {avg_gpu}"));
        assert_ne!(nearly, report);
        place.write("b/report.json", &nearly);
        place.run(&["diff", "a", "b"]).ending(0).stdout
    };
    let text = with("2.000000004");
    assert!(text.contains("2.000000004") && text.contains("+2.0e-7 %"), "{text}");
    // What only the order of sums makes different is no figure that differs, but is not kept back.
    let text = with("2.0000000000000004");
    assert_eq!(
        text,
        "every event is the same\nevery figure is the same but for the last digits of avg_gpu\n"
    );
    let json = place.run(&["diff", "a", "b", "--format=json"]).ending(0).json();
    assert_eq!(json["metrics"][0]["b"], 2.000_000_000_000_000_4);
}

#[test]
fn a_tick_is_what_the_planner_wrote() {
    let rows = "{\"tick\": 0, \"at_ms\": 5, \"decision\": {\"agg\": 2}}\n{\"tick\": 1, \"at_ms\": 9}\n";
    let place = Workplace::with("out/scaling.jsonl", rows);
    let text = place.run(&["explain", "tick", "out", "0"]).ending(0).stdout;
    assert_eq!(text, "tick: 0\nat_ms: 5\ndecision.agg: 2\n");
    place.run(&["explain", "tick", "out", "3"]).refusing(&["ticks go from 0 to 1"]);
}

#[test]
fn two_replays_part_at_their_first_different_event() {
    let place = Workplace::with("scenario.yaml", SCENARIO);
    place.run(&["replay", "scenario.yaml", "--output-dir", "a"]).ending(0);
    place.run(&["replay", "scenario.yaml", "--output-dir", "same"]).ending(0);
    let other = ["--set", "deployment.router={policy: round_robin}"];
    place.run(&[&["replay", "scenario.yaml", "--output-dir", "b"][..], &other].concat()).ending(0);
    assert_eq!(place.run(&["diff", "a", "same"]).ending(0).stdout, "the runs are the same\n");

    let difference = place.run(&["diff", "a", "b", "--format=json"]).ending(0).json();
    let (first, mut earliest) = (&difference["first_event"], f64::INFINITY);
    let rows = |folder: &str| -> Vec<Value> {
        let rows = place.read(&format!("{folder}/requests.jsonl"));
        rows.lines().map(|row| serde_json::from_str(row).unwrap()).collect()
    };
    for (a, b) in rows("a").iter().zip(&rows("b")) {
        let worker = (a["decode_worker"] != b["decode_worker"]).then(|| a["dispatched_ms"].as_f64().unwrap());
        let stamp =
            ["first_admit_ms", "first_token_ms", "terminal_ms"].into_iter().find(|key| a[*key] != b[*key]);
        let stamp = stamp.map(|key| a[key].as_f64().unwrap().min(b[key].as_f64().unwrap()));
        earliest = [worker, stamp].into_iter().flatten().fold(earliest, f64::min);
    }
    assert_eq!(first["at_ms"].as_f64().unwrap(), earliest, "{difference}");
    let paths: Vec<&str> =
        difference["settings"].as_array().unwrap().iter().map(|one| one["path"].as_str().unwrap()).collect();
    assert!(paths.contains(&"deployment.router.policy"), "{paths:?}");
    let text = place.run(&["diff", "a", "b"]).ending(0).stdout;
    for part in
        ["settings that differ", "first event that differs, at", "figures that differ", "mean_ttft_ms"]
    {
        assert!(text.contains(part), "no {part:?} in\n{text}");
    }
    place.run(&["diff", "a", "."]).refusing(&["neither report.json nor candidates.json"]);
}

#[test]
fn two_searches_are_compared_by_their_trials_and_best_candidates() {
    let place = searched();
    let less = ["--set", "workload.osl=10"];
    place.run(&[&["search", "search.yaml", "--output-dir", "less"][..], &less].concat()).ending(0);
    let text = place.run(&["diff", "out", "less"]).ending(0).stdout;
    assert!(text.contains("trial 1 has another score"), "{text}");
    assert!(text.contains("workload.osl: 20 -> 10"), "{text}");
    let priced = ["--set", "search_space.timing={model: fixed, prefill_ms: 10, decode_ms: 2}"];
    place.run(&[&["search", "search.yaml", "--output-dir", "priced"][..], &priced].concat()).ending(0);
    let text = place.run(&["diff", "out", "priced"]).ending(0).stdout;
    assert!(text.contains("settings that differ\n"), "{text}");
    assert!(text.contains("deployment.agg.timing.model: polynomial -> fixed"), "{text}");
    let replay = Workplace::with("scenario.yaml", SCENARIO);
    replay.run(&["replay", "scenario.yaml", "--output-dir", "run"]).ending(0);
    let run = replay.path("run");
    place.run(&["diff", "out", run.to_str().unwrap()]).refusing(&["two replays or two searches"]);
}

#[test]
fn every_key_in_which_two_searches_differ_is_told() {
    let place = searched();
    let search = |folder: &str, setting: &str| {
        place.run(&["search", "search.yaml", "--output-dir", folder, "--set", setting]).ending(0);
        place.run(&["diff", "out", folder]).ending(0).stdout
    };
    assert_eq!(search("deep/again", "sweep.max_rounds=2"), "the runs are the same\n");
    let few = search("few", "sweep.top=99");
    assert!(
        few.starts_with("configurations differ in\n  sweep.top: - -> 99\nevery event is the same\n"),
        "{few}"
    );
    let json = place.run(&["diff", "out", "few", "--format=json"]).ending(0).json();
    assert_eq!(json["configuration"][0]["path"], "sweep.top");
    assert_eq!(json["settings"].as_array().unwrap().len(), 0);
    // Scores of another goal are none to compare; those of one that has other bounds are, unless it is about them.
    let goal = search("goal", "goal.target=e2e_latency");
    let words = "scores are of different goals and not compared (goal.target: throughput -> e2e_latency)\n";
    assert!(goal.starts_with(words) && !goal.contains("has another score"), "{goal}");
    let bound = search("bound", "goal.sla.ttft_ms=6000");
    assert!(
        !bound.contains("different goals") && bound.matches("sla.ttft_ms: 5000 -> 6000").count() == 1,
        "{bound}"
    );
    // What the configurations tell already is not told again of the first candidates.
    let less = search("less", "workload.osl=10");
    assert_eq!(less.matches("workload.osl: 20 -> 10").count(), 1, "{less}");
    place.write("few/config.yaml", "seed: [\n");
    let told = place.run(&["diff", "out", "few"]).ending(0).stderr;
    assert!(told.contains("few/config.yaml") && told.contains("configurations are not compared"), "{told}");
}

#[test]
fn a_candidate_becomes_commands_and_manifests() {
    let place = searched();
    let best = &place.read_json("out/candidates.json")["candidates"][0];
    let pool = &best["scenario"]["deployment"]["agg"];
    let commands = place.run(&["deploy", "out"]).ending(0);
    let tensor = format!("--tensor-parallel-size {}", pool["tensor_parallel_size"]);
    let start = format!("start {} of these", pool["workers"]);
    for part in
        ["vllm serve a/Model-1", &tensor, &start, "--block-size 64", "# Not said below:", "agg.timing"]
    {
        assert!(commands.stdout.contains(part), "no {part:?} in\n{}", commands.stdout);
    }
    assert!(commands.stderr.contains("not said: router"), "{}", commands.stderr);

    place.run(&["deploy", "out", "--output-dir", "deployed", "--image", "registry/engine:1"]).ending(0);
    assert_eq!(place.read("deployed/commands.sh"), commands.stdout);
    place.run(&["deploy", "out", "--output-dir", "out"]).refusing(&[
        "--output-dir out: holds a search (candidates.json); give the deployment a folder of its own",
    ]);
    assert!(!place.path("out/commands.sh").exists());
    for (name, kind) in [("dynamo.yaml", "DynamoGraphDeployment"), ("kubernetes.yaml", "Deployment")] {
        let text = place.read(&format!("deployed/{name}"));
        assert!(text.contains(&format!("kind: {kind}")), "{text}");
        assert!(text.contains(&format!("replicas: {}", pool["workers"])), "{text}");
        assert!(text.contains("registry/engine:1"), "{text}");
    }
    let router = best["scenario"]["deployment"]["router"]["policy"].as_str().unwrap();
    let mode = if router == "kv_router" { "kv" } else { "round-robin" };
    assert!(place.read("deployed/dynamo.yaml").contains(mode));
    // The script is one that a shell takes.
    let checked =
        std::process::Command::new("bash").arg("-n").arg(place.path("deployed/commands.sh")).status();
    assert!(checked.unwrap().success());

    let json = place.run(&["deploy", "out", "--rank=2", "--format=json"]).ending(0).json();
    assert_eq!(json["pools"][0]["command"][0], "vllm");
    place.run(&["deploy", "out", "--rank=9999"]).refusing(&["rank 9999"]);

    let replay = Workplace::with("scenario.yaml", SCENARIO);
    replay.run(&["replay", "scenario.yaml", "--output-dir", "run"]).ending(0);
    replay.run(&["deploy", "run"]).refusing(&["--model"]);
    let sglang =
        ["--set", "deployment.agg.engine={backend: sglang}", "--set", "deployment.router={policy: random}"];
    replay.run(&[&["replay", "scenario.yaml", "--output-dir", "run"][..], &sglang].concat()).ending(0);
    let commands = replay.run(&["deploy", "run", "--model", "m"]).ending(0).stdout;
    assert!(commands.contains("sglang.launch_server") && commands.contains("--page-size"), "{commands}");
}

#[test]
fn completions_and_manual_pages_know_every_command() {
    let place = Workplace::new();
    for shell in ["bash", "zsh", "fish"] {
        let script = place.run(&["completions", shell]).ending(0).stdout;
        assert!(script.contains("timeline") && script.contains("explain"), "{shell}");
    }
    place.run(&["man", "pages"]).ending(0);
    let files = place.files();
    for page in
        ["spica.1", "spica-replay.1", "spica-trace-convert.1", "spica-explain-request.1", "spica-deploy.1"]
    {
        assert!(files.contains(&format!("pages/{page}")), "{page}: {files:?}");
    }
    assert!(place.read("pages/spica-trace-convert.1").contains("burstgpt"));
}

#[test]
fn every_command_with_a_result_has_it_as_json() {
    let place = searched();
    place.write("scenario.yaml", SCENARIO);
    place.run(&["replay", "scenario.yaml", "--output-dir", "run"]).ending(0);
    place.write("trace.jsonl", "{\"timestamp\": 0, \"input_length\": 9, \"output_length\": 2}\n");
    let scaling = "{\"tick\": 0, \"at_ms\": 5}\n";
    place.write("ticks/scaling.jsonl", scaling);
    for command in [
        &["search", "search.yaml"][..],
        &["replay", "scenario.yaml"],
        &["check", "scenario.yaml"],
        &["check", "search.yaml"],
        &["trace", "stats", "trace.jsonl"],
        &["profiles", "list"],
        &["explain", "request", "scenario.yaml", "first"],
        &["explain", "candidate", "out"],
        &["explain", "tick", "ticks", "0"],
        &["diff", "run", "run"],
        &["deploy", "out"],
        &["report", "out"],
        &["report", "run"],
    ] {
        let answer = place.run(&[command, &["--format", "json"]].concat()).ending(0);
        assert!(answer.json().is_object() || answer.json().is_array(), "{command:?}");
        // Nothing is coloured that does not go to a terminal.
        assert!(!answer.stdout.contains('\u{1b}') && !answer.stderr.contains('\u{1b}'), "{command:?}");
    }
    // Traces are JSON already, line by line.
    for command in
        [&["trace", "convert", "trace.jsonl"][..], &["trace", "generate", "sine", "--duration-s", "5"]]
    {
        let text = place.run(&[command, &["--format", "json"]].concat()).ending(0).stdout;
        assert!(
            text.lines().count() > 0 && text.lines().all(|line| serde_json::from_str::<Value>(line).is_ok())
        );
    }
    for command in [&["completions", "bash"][..], &["man", "pages"]] {
        place.run(&[command, &["--format", "json"]].concat()).refusing(&["--format", "one form only"]);
    }
    for wrong in [&["replay"][..], &["replay", "scenario.yaml", "--set", "sede=2"], &["frobnicate"]] {
        assert!(!place.run(wrong).ending(2).stderr.contains('\u{1b}'), "{wrong:?}");
    }
}
