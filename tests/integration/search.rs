//! Searches from the command line.

#![allow(clippy::unwrap_used, reason = "helpers of tests may panic")]

use std::collections::BTreeSet;

use serde_json::Value;

use super::cli_command::{Answer, Workplace};

/// 109 routers, 3 rounds of 6.
pub(crate) const ROUTERS: &str = "\
search_space:
  model_name: a/model
  hardware_sku: b200_sxm
  deployment_mode: [agg]
  parallel_configs: [{tp: 4, moe_ep: 4, replicas: 4}]
  timing: {model: polynomial}
  planner_scaling_policy: [disabled]
  agg_max_num_batched_tokens: [8192]
  agg_max_num_seqs: [256]
workload:
  isl: 600
  osl: 30
  concurrency: 16
  num_request_ratio: 6
  shared_prefix_ratio: 0.6
  num_prefix_groups: 5
goal: {target: e2e_latency, sla: {ttft_ms: 60, itl_ms: 12}}
sweep: {max_rounds: 3, candidates_per_round: 6}
";

/// The same with one knob of three choices.
pub(crate) fn three_points() -> String {
    ROUTERS.replace(
        "agg_max_num_seqs: [256]",
        "agg_max_num_seqs: [256, 512, 1024]\n  router_mode: [round_robin]",
    )
}

pub(crate) fn metric(candidate: &Value, name: &str) -> f64 {
    candidate["metrics"][name].as_f64().unwrap_or_else(|| panic!("{name} in {candidate}"))
}

#[test]
fn the_best_candidate_replays_to_its_score_from_anywhere() {
    let place = Workplace::with("search.yaml", ROUTERS);
    place.run(&["search", "search.yaml", "--output-dir", "deep/out"]).ending(0);
    let best = &place.read_json("deep/out/candidates.json")["candidates"][0];
    let report = place.run(&["replay", "deep/out/best.yaml", "--format", "json"]).ending(0).json();
    assert_eq!(report["summary"], best["metrics"]);
    assert_eq!(report["scenario"], best["scenario"]);
    assert_eq!(-report["summary"]["mean_e2e_latency_ms"].as_f64().unwrap(), best["score"].as_f64().unwrap());
}

#[test]
fn requests_that_the_model_cannot_take_are_told_of() {
    let place = Workplace::new();
    let row = |row: u32, tokens: u32| {
        format!(
            "{{\"timestamp\": {row}, \"input_length\": {tokens}, \"output_length\": 9, \"hash_ids\": []}}\n"
        )
    };
    place.write("rows.jsonl", &(row(0, 500) + &row(1, 40_960) + &row(2, 40_951)));
    let search = "{search_space: {model_name: Qwen/Qwen3-32B, hardware_sku: h200_sxm, deployment_mode: [agg], gpu_budget: 1, \
                  router_mode: [round_robin], planner_scaling_policy: [disabled], agg_max_num_seqs: [256], \
                  agg_max_num_batched_tokens: [8192]}, workload: {trace_path: rows.jsonl}, goal: {target: e2e_latency}}";
    place.write("search.yaml", search);
    let told = place.run(&["search", "search.yaml"]).ending(0).stderr;
    let words = "search_space.model_name: 1 of 3 requests are longer than the 40960 tokens that the model takes; they are served all \
                 the same";
    assert!(told.contains(words), "{told}");
    place.write("rows.jsonl", &(row(0, 500) + &row(2, 40_951)));
    assert!(!place.run(&["search", "search.yaml"]).ending(0).stderr.contains("longer than"));
}

#[test]
fn settings_that_were_searched_and_have_no_column_are_named() {
    let place = Workplace::with("search.yaml", &three_points());
    let told = |settings: &[&str]| {
        let settings = settings.iter().flat_map(|setting| ["--set", setting]);
        let command: Vec<&str> = ["search", "search.yaml"].into_iter().chain(settings).collect();
        let answer = place.run(&command).ending(0).stdout;
        answer.lines().find(|line| line.starts_with("the same in all rows: ")).map(str::to_owned)
    };
    assert_eq!(told(&[]), None, "nothing else was searched");
    let layouts =
        "search_space.parallel_configs=[{tp: 4, moe_ep: 4, replicas: 1}, {tp: 4, moe_ep: 4, replicas: 4}]";
    let one = ["search_space.agg_max_num_seqs=[256]", layouts, "goal.target=throughput", "sweep.top=1"];
    assert_eq!(told(&one).as_deref(), Some("the same in all rows: layout 4 x tep4"));
}

#[test]
fn the_best_candidate_of_a_trace_finds_its_trace() {
    let place = Workplace::new();
    let row = |row: u32| {
        format!(
            "{{\"timestamp\": {}, \"input_length\": 600, \"output_length\": 9, \"hash_ids\": [{}, {row}]}}\n",
            row * 40,
            row % 3
        )
    };
    place.write("data/rows.jsonl", &(0..30).map(row).collect::<String>());
    let (before, after) =
        three_points().split_once("workload:").map(|(a, b)| (a.to_owned(), b.to_owned())).unwrap();
    let after = after.split_once("goal:").unwrap().1;
    place.write(
        "runs/search.yaml",
        &format!("{before}workload: {{trace_path: ../data/rows.jsonl}}\ngoal:{after}"),
    );
    place.run(&["search", "runs/search.yaml", "--output-dir", "out"]).ending(0);
    let best = &place.read_json("out/candidates.json")["candidates"][0];
    assert_eq!(metric(best, "completed_requests"), 30.0);
    let elsewhere = place.path("data");
    let mut replay = place.command(&["replay", "../out/best.yaml", "--format", "json"]);
    let report = Answer::from(replay.current_dir(elsewhere).output().unwrap()).ending(0).json();
    assert_eq!(report["summary"], best["metrics"]);
}

#[test]
fn the_journal_and_the_tally_agree() {
    let place = Workplace::with("search.yaml", ROUTERS);
    let answer = place.run(&["search", "search.yaml", "--format", "json", "--output-dir", "out"]).ending(0);
    assert_eq!(answer.stdout, place.read("out/candidates.json"));
    let result = answer.json();
    assert_eq!(result["schema_version"], 1);
    assert_eq!(result["certified_optimum"], false);
    let candidates = result["candidates"].as_array().unwrap();
    assert_eq!(result["tally"]["feasible"], candidates.len());
    assert_eq!(candidates.len(), 18);

    let journal = place.read("out/trials.jsonl");
    let trials: Vec<Value> = journal.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let total: u64 = result["tally"].as_object().unwrap().values().map(|count| count.as_u64().unwrap()).sum();
    assert_eq!(trials.len() as u64, total);
    for (place, trial) in trials.iter().enumerate() {
        assert_eq!(trial["trial"], place + 1);
    }
    let configs = |list: &[Value]| list.iter().map(|one| one["config"].to_string()).collect::<BTreeSet<_>>();
    assert_eq!(configs(&trials), configs(candidates));
    let scores: Vec<f64> = candidates.iter().map(|one| one["score"].as_f64().unwrap()).collect();
    assert!(scores.is_sorted_by(|left, right| left >= right), "{scores:?}");
}

#[test]
fn a_small_space_is_walked_whole() {
    let place = Workplace::with("search.yaml", &three_points());
    let result = place.run(&["search", "search.yaml", "--format", "json"]).ending(0).json();
    assert_eq!(result["certified_optimum"], true);
    assert_eq!(result["tally"]["feasible"], 3);
    let table = place.run(&["search", "search.yaml"]).ending(0).stdout;
    assert!(table.contains(" max_num_seqs") && table.contains("attainment"), "{table}");
    assert!(table.contains("3 of 3 trials feasible") && table.contains("optimum"), "{table}");
    assert!(!table.contains("overlap_score_credit"), "{table}");
    assert_eq!(place.files(), ["search.yaml"], "nothing is written without --output-dir");

    let budget = place.run(&[
        "search",
        "search.yaml",
        "--set",
        "sweep={max_rounds: 1, candidates_per_round: 2}",
        "--format=json",
    ]);
    assert_eq!(budget.ending(0).json()["tally"]["feasible"], 2);
    let exhaustive = place.run(&[
        "search",
        "search.yaml",
        "--set",
        "sweep={max_rounds: 1, candidates_per_round: 2, exhaustive: true}",
        "--format=json",
    ]);
    assert_eq!(exhaustive.ending(0).json()["candidates"], result["candidates"]);
}

#[test]
fn the_goal_chooses_and_scores() {
    let place = Workplace::with("search.yaml", &three_points());
    for (goal, figure, per_gpu) in [
        ("throughput", "output_throughput_tok_s", false),
        ("throughput_per_gpu", "output_throughput_tok_s", true),
        ("throughput_per_user", "mean_output_token_throughput_per_user", false),
        ("goodput", "goodput_output_throughput_tok_s", false),
        ("goodput_per_gpu", "goodput_output_throughput_tok_s", true),
    ] {
        let set = format!("goal.target={goal}");
        let result = place.run(&["search", "search.yaml", "--set", &set, "--format=json"]).ending(0).json();
        assert_eq!(result["goal"]["target"], goal);
        for candidate in result["candidates"].as_array().unwrap() {
            let hours = metric(candidate, "duration_ms") / 3.6e6;
            let gpus = if per_gpu { metric(candidate, "gpu_hours") / hours } else { 1.0 };
            let expected = metric(candidate, figure) / gpus;
            let score = candidate["score"].as_f64().unwrap();
            assert!((score / expected - 1.0).abs() < 1e-12, "{goal}: {score} is not {expected}");
        }
    }
}

#[test]
fn what_cannot_be_done_is_refused_by_name_and_all_at_once() {
    let asks_too_much = "\
search_space:
  model_name: a/model
  hardware_sku: h200_sxm
  backend: [vllm]
  num_g2_blocks: 128
  kv_bytes_per_token: 1000
workload: {isl: 600, osl: 30, concurrency: 4, num_request_ratio: 6}
sweep: {sampler: oracle}
";
    let place = Workplace::with("search.yaml", asks_too_much);
    place.run(&["search", "search.yaml", "--output-dir", "out"]).refusing(&[
        "search.yaml:2: search_space.model_name: model `a/model` is not known",
        "search.yaml:5: search_space.num_g2_blocks: ",
        "search.yaml:8: sweep.sampler: ",
    ]);
    place.write("search.yaml", ROUTERS);
    place.run(&["search", "search.yaml", "--resume"]).refusing(&["--output-dir"]);
    place
        .run(&["search", "search.yaml", "--set", "search_space.router_mode=[round_robin, dice]"])
        .refusing(&[
            "--set search_space.router_mode=[round_robin, dice]: search_space.router_mode[1].policy: unknown router `dice`",
            "round_robin",
        ]);
    place
        .run(&["search", "search.yaml", "--set", "search_space.parallel_configs=[{tp: 3}]"])
        .refusing(&["search_space.parallel_configs[0]", "3 GPUs"]);
    assert_eq!(place.files(), ["search.yaml"]);
}

#[test]
fn loads_become_requests() {
    let place = Workplace::with("search.yaml", &three_points());
    let requests = |workload: &str| {
        let set = format!("workload={{isl: 100, osl: 2, {workload}}}");
        let result = place.run(&["search", "search.yaml", "--set", &set, "--format=json"]).ending(0).json();
        metric(&result["candidates"][0], "num_requests")
    };
    assert_eq!(requests("concurrency: 256, num_request_ratio: 10"), 2560.0);
    assert_eq!(requests("concurrency: 8, num_request_ratio: 10"), 80.0);
    assert_eq!(requests("request_rate: 25, num_request_ratio: 4"), 100.0);
    for (workload, key) in [
        ("concurrency: 1.9", "concurrency"),
        ("kv_load_ratio: []", "kv_load_ratio"),
        ("kv_load_ratio: [0]", "kv_load_ratio"),
        ("kv_load_ratio: [0, 0.5, 1]", "kv_load_ratio"),
        ("kv_load_ratio: [-0.1, 1]", "kv_load_ratio"),
        ("kv_load_ratio: [1, 1]", "kv_load_ratio"),
        ("kv_load_ratio: .inf", "kv_load_ratio"),
    ] {
        let set = format!("workload={{isl: 100, osl: 2, num_request_ratio: 1, {workload}}}");
        place.run(&["search", "search.yaml", "--set", &set]).refusing(&[key]);
    }
}

#[cfg(unix)]
#[test]
fn settings_without_effect_are_noted_unless_quiet() {
    let place = Workplace::with("search.yaml", &three_points());
    let set = ["search", "search.yaml", "--set", "search_space.min_endpoint=1"];
    let loud = place.run(&set).ending(0);
    assert!(
        loud.stderr
            .contains("--set search_space.min_endpoint=1: note: search_space.min_endpoint: has no effect"),
        "{}",
        loud.stderr
    );
    assert!(loud.stderr.contains("3 points, seed 1"), "{}", loud.stderr);
    let quiet = place.run(&[&set[..], &["--quiet"]].concat()).ending(0);
    assert_eq!((quiet.stderr.as_str(), quiet.stdout), ("", loud.stdout));
}

/// All pairs of roles of a dense model on four GPUs.
pub(crate) const TWO_ROLES: &str = "\
search_space:
  deployment_mode: [disagg]
  model_name: Qwen/Qwen3-32B
  hardware_sku: h200_sxm
  timing: {model: polynomial}
  gpu_budget: 4
  planner_scaling_policy: [disabled]
  router_mode: [round_robin]
  kv_transfer: {bandwidth_gbps: 50}
  prefill_max_num_batched_tokens: [8192]
  prefill_max_num_seqs: [16]
  decode_max_num_seqs: [256]
workload: {isl: 600, osl: 30, concurrency: 8, num_request_ratio: 4}
goal: {target: throughput}
";

#[test]
fn disaggregated_candidates_compete() {
    let place = Workplace::with("search.yaml", TWO_ROLES);
    let answer = place.run(&["search", "search.yaml", "--output-dir", "out"]).ending(0);
    let result = place.read_json("out/candidates.json");
    assert_eq!((&result["tally"]["feasible"], &result["certified_optimum"]), (&11.into(), &true.into()));
    let best = &result["candidates"][0];
    assert!(best["config"]["prefill_tp"].is_number() && best["config"]["decode_max_num_seqs"] == 256);
    // 64 layers with keys and values of 8 heads of 128 numbers of two bytes.
    assert_eq!(best["scenario"]["deployment"]["kv_transfer"]["bytes_per_token"], 64 * 2 * 8 * 128 * 2);
    let report = place.run(&["replay", "out/best.yaml", "--format", "json"]).ending(0).json();
    assert_eq!(report["summary"], best["metrics"]);
    assert!(!answer.stderr.contains("instantly"), "{}", answer.stderr);
    let instant = place.run(&["search", "search.yaml", "--set", "search_space.kv_transfer={latency_ms: 0}"]);
    assert!(instant.ending(0).stderr.contains("hand KV blocks over instantly"));
}

#[test]
fn both_modes_compete_in_one_ranking() {
    let place = Workplace::with("search.yaml", TWO_ROLES);
    let set = ["search_space.deployment_mode=[disagg, agg]", "search_space.agg_max_num_seqs=[256]"];
    let more = ["search_space.agg_max_num_batched_tokens=[8192]", "search_space.agg_block_size=32"];
    let overrides = [set, more].concat().into_iter().flat_map(|set| ["--set", set]);
    let arguments: Vec<&str> =
        ["search", "search.yaml", "--format=json"].into_iter().chain(overrides).collect();
    let result = place.run(&arguments).ending(0).json();
    let modes = |mode: &str| {
        result["candidates"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|one| one["config"]["deployment_mode"] == mode)
            .count()
    };
    assert_eq!((modes("disagg"), modes("agg")), (11, 7));
}

#[test]
fn a_share_of_the_cache_is_a_load() {
    let place = Workplace::with("search.yaml", TWO_ROLES);
    let load = "workload={isl: 600, osl: 30, kv_load_ratio: 0.5, num_request_ratio: 2}";
    let blocks = "search_space.num_gpu_blocks=100";
    let result = place
        .run(&["search", "search.yaml", "--set", load, "--set", blocks, "--format=json"])
        .ending(0)
        .json();
    let candidates = result["candidates"].as_array().unwrap();
    assert_eq!(candidates.len(), 11);
    for candidate in candidates {
        let config = &candidate["config"];
        // Decode workers hold 100 blocks of 64 tokens each; a request has 615 half way.
        let tokens = 6400 * config["decode_replicas"].as_u64().unwrap();
        assert_eq!(config["kv_load_capacity_tokens"], tokens);
        assert_eq!(config["kv_load_concurrency_capacity"], tokens / 615);
        assert_eq!(config["concurrency"], tokens / 615 / 2);
        assert_eq!(metric(candidate, "num_requests"), (tokens / 615 / 2 * 2) as f64);
    }
    let tight = "search_space.num_gpu_blocks=9";
    let answer = place.run(&["search", "search.yaml", "--set", load, "--set", tight]).ending(1);
    assert!(answer.stdout.contains("candidate KV capacity infeasible"), "{}", answer.stdout);
}

#[test]
fn models_and_gpus_may_come_from_files() {
    let own = TWO_ROLES.replace("Qwen/Qwen3-32B", "my/model")
        + "facts: {models: [{name: my/model, path: my/config.json}]}\n";
    let place = Workplace::with("search.yaml", &own);
    place.run(&["search", "search.yaml"]).refusing(&["my/config.json: cannot be read"]);
    place.write("my/config.json", r#"{"architectures": ["LlamaForCausalLM"], "hidden_size": "4096"}"#);
    place
        .run(&["search", "search.yaml"])
        .refusing(&["my/config.json: hidden_size: `\"4096\"`", "num_hidden_layers"]);
    let config = include_str!("../../src/model/configs/meta-llama--Meta-Llama-3.1-8B.json");
    place.write("my/config.json", config);
    let best =
        place.run(&["search", "search.yaml", "--format=json"]).ending(0).json()["candidates"][0].clone();
    assert_eq!(best["scenario"]["deployment"]["kv_transfer"]["bytes_per_token"], 32 * 2 * 8 * 128 * 2);
}

#[test]
fn a_frontier_is_printed_and_written() {
    let place = Workplace::with("search.yaml", &three_points());
    let pareto = [
        "--set",
        "goal={target: pareto}",
        "--set",
        "workload={isl: 600, osl: 30, kv_load_ratio: [0.0, 0.4], num_request_ratio: 2}",
        "--set",
        "sweep={max_rounds: 4, candidates_per_round: 4}",
        "--set",
        "search_space.num_gpu_blocks=64",
    ];
    let run = |more: &[&str]| place.run(&[&["search", "search.yaml"], &pareto[..], more].concat()).ending(0);
    let table = run(&["--output-dir", "out"]).stdout;
    assert!(table.contains("pareto front (") && table.contains("throughput_per_user"), "{table}");
    let result = place.read_json("out/candidates.json");
    let front = result["candidates"].as_array().unwrap();
    let objective = |name: &str| -> Vec<f64> {
        front.iter().map(|one| one["objectives"][name].as_f64().unwrap()).collect()
    };
    let (per_gpu, per_user) = (objective("throughput_per_gpu"), objective("throughput_per_user"));
    assert!(front.len() > 1 && per_user.is_sorted(), "{per_user:?}");
    assert!(per_gpu.is_sorted_by(|left, right| left >= right), "{per_gpu:?}");
    let csv = place.read("out/pareto.csv");
    assert_eq!(csv.lines().count(), front.len() + 1);
    assert!(
        csv.starts_with("rank,throughput_per_gpu,throughput_per_user,used_gpus,deployment_mode,"),
        "{csv}"
    );
    assert!(csv.contains("kv_load_ratio"), "{csv}");
    assert!(!place.path("out/best.yaml").exists());
    assert_eq!(run(&["--format", "json"]).json(), result);
}

#[test]
fn requests_that_are_rejected_are_seen_in_the_ranking_and_by_a_replay() {
    let place = Workplace::with("search.yaml", &three_points());
    assert!(!place.run(&["search", "search.yaml"]).ending(0).stdout.contains("rejected"));
    // One of ten requests is longer than a cache of 1,280 tokens.
    let row = |row: u32| {
        let tokens = if row % 10 == 5 { 2000 } else { 600 };
        format!("{{\"timestamp\": {}, \"input_length\": {tokens}, \"output_length\": 9}}\n", row * 40)
    };
    place.write("rows.jsonl", &(0..30).map(row).collect::<String>());
    let trace = "workload={trace_path: rows.jsonl}";
    let sets = ["--set", trace, "--set", "search_space.num_gpu_blocks=20"];
    let search = [&["search", "search.yaml", "--output-dir", "out"], &sets[..]].concat();
    let table = place.run(&search).ending(0).stdout;
    let best = &place.read_json("out/candidates.json")["candidates"][0];
    let (rejected, all) = (metric(best, "rejected_requests"), metric(best, "num_requests"));
    assert!(rejected > 0.0 && table.contains(" rejected"), "{table}");
    let replay = place.run(&["replay", "out/best.yaml"]).ending(0);
    let warning =
        format!("warning: {} of {all} requests completed: {rejected} rejected, since", all - rejected);
    assert!(replay.stderr.contains(&warning), "{}", replay.stderr);
    let bar = [&search[..], &["--set", "goal.min_attainment=0.99"]].concat();
    let reasons = place.run(&bar).ending(1).stdout;
    assert!(reasons.contains("were rejected because the engine can never run them"), "{reasons}");
}

#[test]
fn policies_that_a_frontier_cannot_support_are_told_of_in_its_answer() {
    let place = Workplace::with("search.yaml", ROUTERS);
    let settings = [
        "search_space.planner_scaling_policy=[disabled, load_180_5, throughput_180_5, {enable_throughput_scaling: true, \
         enable_load_scaling: true, throughput_adjustment_interval_seconds: 60, load_adjustment_interval_seconds: 5}]",
        "goal={target: pareto, pareto_objectives: [goodput, throughput_per_gpu], sla: {ttft_ms: 60, itl_ms: 12}}",
        "sweep={sampler: halton, max_rounds: 1, candidates_per_round: 4}",
    ];
    let run = |command: &[&str]| {
        let settings = settings.iter().flat_map(|setting| ["--set", setting]);
        place.run(&command.iter().copied().chain(settings).collect::<Vec<_>>()).ending(0)
    };
    run(&["search", "search.yaml", "--output-dir", "whole"]);
    let result = place.read_json("whole/candidates.json");
    let dropped = result["dropped_policies"].as_array().unwrap();
    assert_eq!(dropped[0]["policy"], "throughput_180_5");
    assert_eq!(dropped[1]["policy"]["throughput_adjustment_interval_seconds"], 60);
    assert_eq!(dropped.len(), 2);
    assert!(dropped[0]["reason"].as_str().unwrap().starts_with("planners of a frontier aim for throughput"));
    for index in ["0", "1"] {
        let out = format!("--output-dir=part{index}");
        run(&["search", "shard", "search.yaml", "--of=2", "--index", index, &out]);
    }
    place.run(&["search", "merge", "part0", "part1", "--output-dir", "merged"]).ending(0);
    assert!(place.read("merged/candidates.json") == place.read("whole/candidates.json"));
    place.run(&["report", "whole", "-o", "page.html"]).ending(0);
    let page = place.read("page.html");
    assert!(page.contains("Scaling policies that the goal cannot support"), "a table of them");
    let unaffected = ["search", "search.yaml", "--output-dir", "other"];
    place.run(&unaffected).ending(0);
    assert!(place.read_json("other/candidates.json").get("dropped_policies").is_none());
}
