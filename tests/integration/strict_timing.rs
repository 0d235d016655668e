//! Prices that are no ground for a choice are marked, and refused where that is asked for.

use super::cli_command::Workplace;

const SCENARIO: &str = "
deployment:
  mode: agg
  agg:
    tensor_parallel_size: 8
    engine: {backend: vllm, num_gpu_blocks: 5000}
    timing: {model: profile, model_name: MiniMaxAI/MiniMax-M2.5, hardware_sku: h200_sxm, moe_ep: 8}
workload:
  requests:
    - {id: a, arrival_ms: 0, input_length: 100, output_length: 3}
";

/// Two engines on one GPU; the profile of the one is suspect, that of the other is not.
const SEARCH: &str = "
search_space:
  model_name: MiniMaxAI/MiniMax-M2.5
  hardware_sku: h200_sxm
  deployment_mode: [agg]
  backend: [vllm, sglang]
  parallel_configs: [{tp: 8, moe_ep: 8, replicas: 1}]
  gpu_budget: 8
  router_mode: [round_robin]
  planner_scaling_policy: [disabled]
  agg_max_num_batched_tokens: [8192]
  agg_max_num_seqs: [256]
workload: {isl: 600, osl: 30, concurrency: 4, num_request_ratio: 2}
goal: {target: e2e_latency}
";

const STRICT: &str = "--strict-timing";

fn replay<'a>(sets: &[&'a str]) -> Vec<&'a str> {
    let mut arguments = vec!["replay", "scenario.yaml", STRICT];
    for set in sets {
        arguments.extend(["--set", set]);
    }
    arguments
}

#[test]
fn a_replay_may_insist_on_sound_prices() {
    let place = Workplace::with("scenario.yaml", SCENARIO);
    let suspect =
        ["scenario.yaml:7: --strict-timing: deployment.agg.timing", "m25_fp8_h200_vllm024", "are suspect"];
    place.run(&replay(&[])).refusing(&suspect);
    let sound = ["deployment.agg.engine.backend=sglang"];
    place.run(&replay(&sound)).ending(0);
    let estimate = "deployment.agg.timing.model=roofline";
    place.run(&replay(&[estimate])).refusing(&["MiniMaxAI/MiniMax-M2.5 on h200_sxm", "rough estimate"]);
    let formula = "deployment.agg.timing={model: polynomial}";
    place.run(&replay(&[formula])).refusing(&["deployment.agg.timing: its prices are a formula"]);
}

#[test]
fn a_search_may_insist_on_sound_prices() {
    let place = Workplace::with("search.yaml", SEARCH);
    let run = |sets: &[&str]| {
        let mut arguments = vec!["search", "search.yaml", STRICT];
        for set in sets {
            arguments.extend(["--set", set]);
        }
        place.run(&arguments)
    };
    run(&[]).refusing(&[
        "search_space.timing: candidates with vllm: the numbers of m25_fp8_h200_vllm024 are suspect",
    ]);
    let sound = run(&["search_space.backend=[sglang]"]).ending(0).stdout;
    assert!(!sound.contains("timing"), "{sound}");
    run(&["search_space.timing={model: roofline}"]).refusing(&[
        "candidates with vllm: the prices of MiniMaxAI/MiniMax-M2.5 on h200_sxm are a rough estimate",
        "candidates with sglang: the prices of MiniMaxAI/MiniMax-M2.5 on h200_sxm are a rough estimate",
    ]);
    run(&["search_space.timing={model: polynomial}"]).refusing(&["a formula"]);
    let part =
        ["search", "shard", "search.yaml", "--index", "0", "--of", "1", "--output-dir", "part", STRICT];
    place.run(&part).refusing(&["--strict-timing", "are suspect"]);
}

#[test]
fn a_ranking_marks_what_is_doubtful_beside_what_is_not() {
    let place = Workplace::with("search.yaml", SEARCH);
    let table = place.run(&["search", "search.yaml", "--output-dir", "out"]).ending(0).stdout;
    let line =
        |engine: &str| table.lines().find(|line| line.contains(engine)).unwrap_or_else(|| panic!("{table}"));
    assert!(line(" vllm ").contains(" suspect ") && line(" sglang ").contains(" profile "), "{table}");
    assert!(table.contains("the numbers of m25_fp8_h200_vllm024_g8_tep are suspect: "), "{table}");
    let answer = place.read_json("out/candidates.json");
    for candidate in answer["candidates"].as_array().expect("a list") {
        let timing = &candidate["timing"]["agg"];
        assert_eq!(timing["source"], "profile");
        assert_eq!(timing["suspect"].is_string(), candidate["config"]["backend"] == "vllm", "{timing}");
        assert_eq!(candidate["metrics"]["extrapolated_lookups"], 0);
    }
    let estimated = ["search", "search.yaml", "--set", "search_space.timing={model: roofline}"];
    let table = place.run(&estimated).ending(0).stdout;
    assert!(table.contains(" rough ") && table.contains("are a rough estimate: "), "{table}");
    // Prompts longer than any that were sampled.
    let long =
        ["search", "search.yaml", "--set", "workload.isl=150000", "--set", "search_space.backend=[sglang]"];
    let table = place.run(&long).ending(0).stdout;
    assert!(table.contains(" extrapolated ") && table.contains("extrapolated: some passes"), "{table}");
}

#[test]
fn a_search_is_not_resumed_with_other_numbers() {
    let place = Workplace::with("search.yaml", SEARCH);
    place.write("grid.csv", &super::profiles::measured());
    let grid = "search_space.timing={model: grid, path: grid.csv}";
    let run = ["search", "search.yaml", "--output-dir", "out", "--set", grid];
    place.run(&run).ending(0);
    let first = place.read("out/trials.jsonl");
    let trial: serde_json::Value =
        first.lines().next().and_then(|line| serde_json::from_str(line).ok()).expect("a trial");
    let timing = &trial["timing"]["agg"];
    assert_eq!(timing["source"], "grid");
    assert_eq!(timing["digest"].as_str().map(str::len), Some(16));
    let resumed = [&run[..], &["--resume"]].concat();
    place.run(&resumed).ending(0);
    assert_eq!(place.read("out/trials.jsonl"), first);
    // Where the file lies does not matter, what it says does.
    place.write("elsewhere/grid.csv", &super::profiles::measured());
    let elsewhere = "search_space.timing={model: grid, path: elsewhere/grid.csv}";
    place.run(&["search", "search.yaml", "--output-dir", "out", "--resume", "--set", elsewhere]).ending(0);
    assert_eq!(place.read("out/trials.jsonl"), first);
    place.write("grid.csv", &super::profiles::measured().replace("1,64,0,,6.28", "1,64,0,,6.29"));
    assert_ne!(super::profiles::measured(), place.read("grid.csv"));
    place.run(&resumed).refusing(&["trial 1 of the journal", "the numbers that price its passes"]);
}
