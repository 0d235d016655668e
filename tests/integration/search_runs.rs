//! How searches run: threads, limits, parts, and first looks at portions of the requests.

#![allow(clippy::unwrap_used, reason = "helpers of tests may panic")]

use std::collections::BTreeSet;

use serde_json::Value;

use super::cli_command::Workplace;
use super::html_report::tile_adds_up;
use super::search::{ROUTERS, TWO_ROLES, metric, three_points};
use super::search_resumed::both_modes;

#[test]
fn any_number_of_threads_gives_the_same_files_and_the_same_output() {
    for config in [ROUTERS.to_owned(), both_modes()] {
        let place = Workplace::with("search.yaml", &config);
        let everything = |threads: &str| {
            let arguments = ["search", "search.yaml", "--threads", threads, "--output-dir", "out"];
            let table = place.run(&arguments).ending(0).stdout;
            let files = ["out/candidates.json", "out/config.yaml", "out/trials.jsonl", "out/best.yaml"]
                .map(|name| place.read(name));
            (table, files)
        };
        let alone = everything("1");
        for threads in ["2", "8"] {
            assert!(everything(threads) == alone, "{threads} threads gave another answer");
        }
        assert_eq!(place.files().len(), 5, "{:?}", place.files());
    }
}

#[test]
fn parts_of_a_search_come_together_as_the_whole() {
    let place = Workplace::with("search.yaml", ROUTERS);
    let every = ["--set", "sweep.exhaustive=true", "--set", "search_space.prefill_load_scale=[0.0, 4.0]"];
    let whole = [&["search", "search.yaml", "--output-dir", "whole"], &every[..]].concat();
    let table = place.run(&whole).ending(0).stdout;
    let folders = ["part2", "part0", "part1"];
    for folder in folders {
        let index = &folder[4..];
        let part = ["search", "shard", "search.yaml", "--index", index, "--of", "3", "--output-dir", folder];
        let said = place.run(&[&part[..], &every].concat()).ending(0).stdout;
        assert!(said.starts_with(&format!("part {index} of 3: ")), "{said}");
    }
    let merge = [&["search", "merge"], &folders[..], &["--output-dir", "merged"]].concat();
    assert_eq!(place.run(&merge).ending(0).stdout, table);
    for name in ["candidates.json", "trials.jsonl", "best.yaml"] {
        assert!(place.read(&format!("merged/{name}")) == place.read(&format!("whole/{name}")), "{name}");
    }

    place.run(&["search", "merge", "part0", "part2"]).refusing(&["part 1 of 3 is missing"]);
    place.run(&["search", "merge", "part0", "part2", "part0", "part1"]).refusing(&["same part, 0"]);
    let about = place.read("part1/shard.json");
    for (of, index, words) in [
        (
            4_000_000_000_u32,
            1,
            "part 0, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20 and 3999999979 more of",
        ),
        (3, 3, "part1/shard.json: index 3 is none of 3 parts"),
    ] {
        let other = about.replace("\"of\": 3", &format!("\"of\": {of}"));
        place.write("part1/shard.json", &other.replace("\"index\": 1", &format!("\"index\": {index}")));
        place.run(&["search", "merge", "part1"]).refusing(&[words]);
    }
    place.write("part1/shard.json", &about);
    let config = place.read("part1/config.yaml");
    for (from, to, words) in [
        ("round_robin", "random", "search_space.router_mode"),
        ("random_seed: 1", "random_seed: 2", "sweep.random_seed: 1 -> 2"),
        ("isl: 600", "isl: 601", "workload.isl: 600 -> 601"),
        ("target: e2e_latency", "target: throughput", "goal.target: e2e_latency -> throughput"),
    ] {
        assert!(config.contains(from), "{from} is not in {config}");
        place.write("part1/config.yaml", &config.replace(from, to));
        place.run(&merge).refusing(&["part0 and part1 are parts of different searches: ", words]);
    }
    place.write("part1/config.yaml", &config);
    let journal = place.read("part1/trials.jsonl");
    place.write("part1/trials.jsonl", journal.split_inclusive('\n').next().unwrap());
    place.run(&merge).refusing(&["part1: part 1 has 1 of its", "--resume"]);
    let again = ["search", "shard", "search.yaml", "--index", "1", "--of", "3", "--output-dir", "part1"];
    place.run(&[&again[..], &every, &["--resume"]].concat()).ending(0);
    assert_eq!(place.read("part1/trials.jsonl"), journal);
    let other: Vec<&str> = again.iter().map(|word| if *word == "1" { "2" } else { word }).collect();
    let other = [&other[..], &every, &["--resume"]].concat();
    place.run(&other).refusing(&["part1: holds part 1 of 3 of this search", "give part 2 of 3 a folder"]);
    // One that has not come to its end is known by its trials only.
    std::fs::rename(place.path("part1/shard.json"), place.path("kept.json")).unwrap();
    place.run(&other).refusing(&["or it is another part of the search"]);
    std::fs::rename(place.path("kept.json"), place.path("part1/shard.json")).unwrap();
    assert_eq!(place.run(&merge).ending(0).stdout, table);
}

#[test]
fn searches_that_cannot_be_split_say_why() {
    let place = Workplace::with("search.yaml", ROUTERS);
    let part = |index: &str| {
        place.run(&["search", "shard", "search.yaml", "--index", index, "--of", "2", "--output-dir", "out"])
    };
    part("0").refusing(&["sweep.sampler: `gp_ucb_pe` learns", "sweep.exhaustive: true"]);
    part("2").refusing(&["--index 2 of --of 2: it is 0 to 1"]);
    place.run(&["search", "merge", "nowhere"]).refusing(&["nowhere: there is no such folder"]);
    assert_eq!(place.files(), ["search.yaml"]);
}

#[test]
fn a_limit_of_passes_is_the_same_on_every_machine() {
    let place = Workplace::with("search.yaml", &three_points());
    let search = |passes: &str, status| {
        let set = format!("sweep.max_eval_passes={passes}");
        place.run(&["search", "search.yaml", "--set", &set, "--format=json"]).ending(status).json()
    };
    let strict = search("5", 1);
    assert_eq!((&strict["tally"]["infeasible"], &strict["reproducible"]), (&3.into(), &true.into()));
    assert_eq!(strict["rejected"][0]["reason"], "exceed passes: replay > 5 passes");
    let ample = search("1000000", 0);
    assert_eq!(ample["tally"]["feasible"], 3);
}

#[test]
fn a_replay_that_cannot_reach_the_bar_ends_early_and_changes_no_answer() {
    let place = Workplace::with("search.yaml", ROUTERS);
    let goal = |more: &str| format!("goal={{target: e2e_latency, sla: {{ttft_ms: 25, itl_ms: 12}}{more}}}");
    let search = |goal: &str| {
        let sweep = "sweep.exhaustive=true";
        place.run(&["search", "search.yaml", "--set", goal, "--set", sweep, "--format=json"]).ending(0).json()
    };
    let all = search(&goal(""));
    let all = all["candidates"].as_array().unwrap();
    let mut attainments: Vec<f64> = all.iter().map(|one| metric(one, "attainment")).collect();
    attainments.sort_by(f64::total_cmp);
    let bar = attainments[attainments.len() / 2];
    assert!(attainments[0] < bar && bar < 1.0, "{attainments:?}");
    let clearing: Vec<&Value> = all.iter().filter(|one| metric(one, "attainment") >= bar).collect();
    let barred = search(&goal(&format!(", min_attainment: {bar}")));
    let found = barred["candidates"].as_array().unwrap();
    let configs = |list: &[&Value]| list.iter().map(|one| one["config"].clone()).collect::<Vec<_>>();
    assert_eq!(configs(&found.iter().collect::<Vec<_>>()), configs(&clearing));
    let rejected = barred["rejected"].as_array().unwrap();
    assert!(
        rejected.iter().all(|one| one["reason"].as_str().unwrap().contains("attainment")),
        "{rejected:?}"
    );
    let early = rejected.iter().filter(|one| one["reason"].as_str().unwrap().contains("have missed a bound"));
    assert!(early.count() > 0, "{rejected:?}");
}

/// A trace of 60 rows that share two prompts.
fn small_trace(place: &Workplace) {
    let row = |row: u32| {
        format!(
            "{{\"timestamp\": {}, \"input_length\": {}, \"output_length\": {}, \"hash_ids\": [{}, {row}]}}\n",
            row * 25,
            600 + row % 7 * 60,
            9 + row % 5 * 8,
            row % 2
        )
    };
    place.write("rows.jsonl", &(0..60).map(row).collect::<String>());
}

const SCREENED: [&str; 6] = [
    "--set",
    "workload={trace_path: rows.jsonl}",
    "--set",
    "sweep.fidelity={rows: [10, 30], keep: 0.3}",
    "--set",
    "sweep.candidates_per_round=5",
];

#[test]
fn portions_are_looked_at_first_and_the_whole_decides() {
    let place = Workplace::with("search.yaml", ROUTERS);
    small_trace(&place);
    let search = |more: &[&str]| {
        let arguments = [&["search", "search.yaml", "--output-dir", "out"], &SCREENED[..], more].concat();
        let table = place.run(&arguments).ending(0).stdout;
        (table, place.read_json("out/candidates.json"), place.read("out/trials.jsonl"))
    };
    let (table, result, journal) = search(&[]);
    // 3 rounds of 5 on the first rows, then the best 30 %, rounded up, and of those again.
    let trials: Vec<Value> = journal.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let on = |rows: Value| trials.iter().filter(|trial| trial["portion"] == rows).collect::<Vec<_>>();
    let (small, middle, all) =
        (on(serde_json::json!({"rows": 10})), on(serde_json::json!({"rows": 30})), on(Value::Null));
    assert_eq!((small.len(), middle.len(), all.len()), (15, 5, 2));
    let best = |trials: &[&Value], count: usize| {
        let mut order: Vec<&Value> = trials.to_vec();
        order.sort_by(|left, right| {
            right["score"].as_f64().unwrap().total_cmp(&left["score"].as_f64().unwrap())
        });
        order[..count].iter().map(|trial| trial["config"].clone()).collect::<Vec<_>>()
    };
    let configs = |trials: &[&Value]| trials.iter().map(|trial| trial["config"].clone()).collect::<Vec<_>>();
    assert_eq!(configs(&middle), best(&small, 5));
    assert_eq!(configs(&all), best(&middle, 2));
    assert_eq!((&result["tally"]["screened"], &result["tally"]["feasible"]), (&20.into(), &2.into()));
    assert_eq!(result["certified_optimum"], false);
    for candidate in result["candidates"].as_array().unwrap() {
        assert_eq!(metric(candidate, "num_requests"), 60.0);
    }
    assert_eq!(small[0]["metrics"]["num_requests"], 10);
    assert!(table.contains("screened: 15 agg candidates on the first 10 rows"), "{table}");
    let replayed = place.run(&["replay", "out/best.yaml", "--format", "json"]).ending(0).json();
    assert_eq!(replayed["summary"], result["candidates"][0]["metrics"]);

    for threads in ["1", "8"] {
        assert!(
            search(&["--threads", threads]) == (table.clone(), result.clone(), journal.clone()),
            "{threads}"
        );
    }
    let lines: Vec<&str> = journal.split_inclusive('\n').collect();
    for kept in [4, 16, 21] {
        place.write("out/trials.jsonl", &lines[..kept].concat());
        assert!(search(&["--resume"]) == (table.clone(), result.clone(), journal.clone()), "{kept} lines");
    }
}

#[test]
fn portions_of_generated_requests_are_shares_and_both_modes_have_theirs() {
    let place = Workplace::with("search.yaml", TWO_ROLES);
    let sets = [
        "search_space.deployment_mode=[disagg, agg]",
        "search_space.agg_max_num_seqs=[256]",
        "search_space.agg_max_num_batched_tokens=[8192]",
        "sweep={fidelity: {fractions: [0.5]}, max_rounds: 2, candidates_per_round: 3}",
    ];
    let sets = sets.iter().flat_map(|set| ["--set", set]);
    let arguments: Vec<&str> = ["search", "search.yaml", "--format=json"].into_iter().chain(sets).collect();
    let result = place.run(&arguments).ending(0).json();
    // Six of each mode on 16 requests, of which a quarter goes on.
    let expected = serde_json::json!([
        {"deployment_mode": "disagg", "portion": {"fraction": 0.5}, "candidates": 6},
        {"deployment_mode": "agg", "portion": {"fraction": 0.5}, "candidates": 6},
    ]);
    assert_eq!(result["screenings"], expected);
    assert_eq!(result["tally"]["feasible"], 4);
    assert_eq!(metric(&result["candidates"][0], "num_requests"), 32.0);
}

#[test]
fn portions_have_to_be_portions_and_cannot_be_split() {
    let place = Workplace::with("search.yaml", ROUTERS);
    small_trace(&place);
    let with = |fidelity: &str| {
        let fidelity = format!("sweep.fidelity={fidelity}");
        let arguments =
            ["search", "search.yaml", "--set", "workload={trace_path: rows.jsonl}", "--set", &fidelity];
        place.run(&arguments)
    };
    with("{rows: [20, 60]}").refusing(&["sweep.fidelity.rows: 60 rows", "60 rows are replayed"]);
    let part = ["search", "shard", "search.yaml", "--index", "0", "--of", "2", "--output-dir", "out"];
    place.run(&[&part[..], &SCREENED].concat()).refusing(&["sweep.fidelity: which candidates go on"]);
}

#[test]
fn replays_that_cannot_be_among_the_best_stop_and_change_no_ranking() {
    let place = Workplace::with("search.yaml", ROUTERS);
    let open_loop = "workload={isl: 600, osl: 30, request_rate: 300, num_request_ratio: 1, shared_prefix_ratio: 0.6, \
                     num_prefix_groups: 5}";
    let closed_loop = "workload.concurrency=16";
    let mut stopped = 0;
    for (goal, workload) in [
        ("goal={target: e2e_latency}", closed_loop),
        ("goal={target: throughput}", closed_loop),
        ("goal={target: goodput, sla: {ttft_ms: 25, itl_ms: 12}}", open_loop),
        ("goal={target: goodput_per_gpu, sla: {ttft_ms: 25, itl_ms: 12}}", open_loop),
    ] {
        let search = |more: &[&str]| {
            let whole = ["--set", goal, "--set", workload, "--set", "sweep.exhaustive=true"];
            let arguments = [&["search", "search.yaml", "--output-dir", "out"], &whole[..], more].concat();
            place.run(&arguments).ending(0);
            (place.read_json("out/candidates.json"), place.read("out/trials.jsonl"))
        };
        let (whole, _) = search(&[]);
        let top = ["--set", "sweep.top=3"];
        let (best, journal) = search(&top);
        assert_eq!(*best["candidates"].as_array().unwrap(), best_results(&whole, 3), "{goal}");
        assert_eq!(best["certified_optimum"], true);
        let early: Vec<&Value> = best["rejected"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|rejected| rejected["outcome"] == "stopped_early")
            .collect();
        stopped += early.len();
        for rejected in early {
            let reason = rejected["reason"].as_str().unwrap();
            assert!(reason.contains("not among the best (sweep.top)"), "{reason}");
            let target = goal.trim_start_matches("goal={target: ").split([',', '}']).next().unwrap();
            assert!(reason.starts_with(&format!("{target} of at ")), "{reason}");
            // What the last of the best has is that of a candidate, and the bound is on the wrong side of it.
            let numbers: Vec<f64> = reason.split(' ').filter_map(|word| word.parse().ok()).collect();
            let [bound, last] = numbers[..] else { panic!("{reason}") };
            let is_latency = target == "e2e_latency";
            assert!(if is_latency { bound > last } else { bound < last }, "{reason}");
            let third = best["candidates"][2]["score"].as_f64().unwrap().abs();
            assert!(if is_latency { last >= third * 0.99999 } else { last <= third * 1.00001 }, "{reason}");
        }
        for threads in ["1", "8"] {
            let again = search(&[&top[..], &["--threads", threads]].concat());
            assert!(again == (best.clone(), journal.clone()), "{goal}: {threads} threads");
        }
        let half: Vec<&str> = journal.split_inclusive('\n').take(50).collect();
        place.write("out/trials.jsonl", &half.concat());
        assert!(search(&[&top[..], &["--resume"]].concat()) == (best, journal), "{goal}: resumed");
    }
    assert!(stopped > 50, "{stopped}");
}

/// The first candidates of a ranking, as many results as are asked for: what came out the same counts once.
fn best_results(result: &Value, wanted: usize) -> Vec<Value> {
    let candidates = result["candidates"].as_array().unwrap();
    let rows =
        candidates.chunk_by(|a, b| (&a["used_gpus"], &a["metrics"]) == (&b["used_gpus"], &b["metrics"]));
    rows.take(wanted).flatten().cloned().collect()
}

#[test]
fn a_ranking_is_never_cut_within_a_row_of_what_came_out_the_same() {
    // Two layouts with three choices each that make no difference.
    let layouts = "{tp: 4, moe_ep: 4, replicas: 4}, {tp: 4, moe_ep: 4, replicas: 2}";
    let place =
        Workplace::with("search.yaml", &three_points().replace("{tp: 4, moe_ep: 4, replicas: 4}", layouts));
    for (top, candidates) in [("1", 3), ("2", 6), ("5", 6)] {
        let top = format!("sweep.top={top}");
        let search = |threads: &str| {
            let command = ["search", "search.yaml", "--threads", threads, "--set", &top, "--format=json"];
            place.run(&command).ending(0).json()
        };
        let result = search("1");
        let found = result["candidates"].as_array().unwrap();
        assert_eq!(found.len(), candidates, "{top}");
        let came_to = |one: &Value| (one["used_gpus"].clone(), one["metrics"].clone());
        assert!(found.chunks(3).all(|row| row.iter().all(|one| came_to(one) == came_to(&row[0]))));
        assert_eq!(search("8"), result);
    }
}

#[test]
fn the_top_of_any_ranking_can_be_asked_for_but_not_of_a_frontier() {
    let place = Workplace::with("search.yaml", ROUTERS);
    let search = |more: &[&str]| place.run(&[&["search", "search.yaml", "--format=json"], more].concat());
    let whole = search(&[]).ending(0).json();
    let top = search(&["--set", "sweep.top=2"]).ending(0).json();
    assert_eq!(*top["candidates"].as_array().unwrap(), best_results(&whole, 2));
    assert_eq!(top["tally"], whole["tally"]);
    // Whatever shows the ranking says how many there are behind it, and the reasons of those that were stopped are one.
    let behind = whole["candidates"].as_array().unwrap().len() - top["candidates"].as_array().unwrap().len();
    let words =
        format!("only the best are ranked (sweep.top), without {behind} feasible candidates behind them\n");
    let into = ["search", "search.yaml", "--output-dir", "out", "--set", "sweep.top=2"];
    let told = place.run(&into).ending(0).stdout;
    let last = top["candidates"].as_array().unwrap().len().to_string();
    let explained = place.run(&["explain", "candidate", "out", "--rank", &last]).ending(0).stdout;
    let page = place.run(&["report", "out"]).ending(0).stdout;
    assert!(told.contains(&words) && explained.ends_with(&words), "{told} {explained}");
    assert!(page.contains(words.trim()) && !page.contains("stopped early"), "no remark");
    let told = place.run(&[&into[..], &["--set", "sweep.exhaustive=true"]].concat()).ending(0).stdout;
    let stopped = place.read_json("out/candidates.json")["tally"]["stopped_early"].as_u64().unwrap();
    assert!(stopped > 1 && told.contains(&format!(" and {stopped} whose replays stopped early\n")), "{told}");
    let page = place.run(&["report", "out"]).ending(0).stdout;
    tile_adds_up(&place, "stopped early");
    // A page has a bar for it too.
    for (text, times) in [(&told, 1), (&page, 2)] {
        assert_eq!(text.matches("not among the best (sweep.top)").count(), times, "{told}");
    }
    let frontier = "goal={target: pareto, pareto_objectives: [throughput, e2e_latency]}";
    search(&["--set", "sweep.top=2", "--set", frontier]).refusing(&["sweep.top", "frontier"]);
}

/// Several limits and routers of which some are never reached or make no difference, so that some candidates are not replayed.
const UNREACHED: &str = "\
search_space:
  model_name: Qwen/Qwen3-32B
  hardware_sku: h200_sxm
  deployment_mode: [agg, disagg]
  gpu_budget: 2
  timing: {model: polynomial}
  num_gpu_blocks: 400
  planner_scaling_policy: [disabled]
  backend: [vllm, sglang]
  router_mode: [kv_router, round_robin, random]
  overlap_score_credit: [0.0, 1.0]
  prefill_load_scale: [0.0, 2.0]
  router_temperature: [0.0]
  prefill_max_num_batched_tokens: [8192]
  prefill_max_num_seqs: [1, 4, 64]
  decode_max_num_seqs: [256, 512]
workload: {isl: 900, osl: 30, concurrency: 24, num_request_ratio: 4, shared_prefix_ratio: 0.5, num_prefix_groups: 5}
goal: {target: throughput}
sweep: {exhaustive: true}
";

#[test]
fn candidates_that_need_no_replay_have_the_figures_of_theirs() {
    let place = Workplace::with("search.yaml", UNREACHED);
    place.run(&["search", "search.yaml", "--output-dir", "out"]).ending(0);
    let result = place.read_json("out/candidates.json");
    let candidates = result["candidates"].as_array().unwrap();
    assert!(candidates.len() > 100, "{}", candidates.len());
    let different: BTreeSet<String> =
        candidates.iter().map(|candidate| candidate["metrics"].to_string()).collect();
    assert!(different.len() * 3 < candidates.len() && different.len() > 10, "{}", different.len());
    for candidate in candidates {
        place.write("own.yaml", &candidate["scenario"].to_string());
        let report = place.run(&["replay", "own.yaml", "--format", "json"]).ending(0).json();
        assert_eq!(report["summary"], candidate["metrics"], "{}", candidate["config"]);
    }
}

#[test]
fn planners_keep_within_the_budget_of_the_search() {
    let scaled = ROUTERS
        .replace(
            "planner_scaling_policy: [disabled]",
            "planner_scaling_policy: [disabled, load_180_5]\n  min_endpoint: 9",
        )
        .replace("router_mode", "# router_mode")
        .replace("goal: {target: e2e_latency", "goal: {target: goodput_per_gpu");
    let place = Workplace::with("search.yaml", &scaled);
    place
        .run(&[
            "search",
            "search.yaml",
            "--output-dir",
            "out",
            "--set",
            "search_space.router_mode=[round_robin]",
        ])
        .ending(0);
    let result = place.read_json("out/candidates.json");
    let rejected = result["rejected"].as_array().unwrap();
    assert!(!rejected.is_empty(), "{result}");
    for trial in rejected {
        assert_eq!(
            trial["reason"],
            "the fewest workers that its planner keeps (9) take 36 GPUs, over search_space.gpu_budget 32"
        );
    }
    for candidate in result["candidates"].as_array().unwrap() {
        assert_eq!(candidate["config"]["planner_scaling_policy"], "disabled");
    }
    // Planners that are given by name and fields bring bounds of their own, as a notice says; those are kept to.
    let route = ["--set", "search_space.router_mode=[round_robin]"];
    let searched = |planner: &str, status| {
        let planner =
            format!("search_space.planner_scaling_policy=[{{policy: planner, max_gpu_budget: 32{planner}}}]");
        let command = ["search", "search.yaml", "--format=json", "--set", &planner];
        place.run(&[&command[..], &route].concat()).ending(status)
    };
    let answer = searched("", 0);
    assert!(
        answer.stderr.contains("search_space.min_endpoint: has no effect on scaling policies"),
        "{answer:?}"
    );
    assert_eq!(answer.json()["tally"]["infeasible"], 0);
    let bounded = searched(", min_endpoint: 10", 1).json();
    assert_eq!(
        bounded["rejected"][0]["reason"],
        "the fewest workers that its planner keeps (10) take 40 GPUs, over search_space.gpu_budget 32"
    );
    // So are those of other planners, whatever their fields are called, before any replay.
    let least = "the fewest workers that its planner keeps (9) take 36 GPUs, over search_space.gpu_budget 32";
    for planner in ["queue_aware", "clairvoyant"] {
        let own = format!(
            "search_space.planner_scaling_policy=[{{policy: {planner}, max_gpu_budget: 32, min_endpoint: 9}}]"
        );
        let command = ["search", "search.yaml", "--format=json", "--set", &own];
        let result = place.run(&[&command[..], &route].concat()).ending(1).json();
        assert_eq!(result["rejected"][0]["reason"], least, "{planner}");
    }
    let own = "search_space.planner_scaling_policy=[{policy: queue_aware, max_gpu_budget: 64}]";
    place
        .run(&["search", "search.yaml", "--set", own])
        .refusing(&["the planner may use 64 GPUs (max_gpu_budget), over search_space.gpu_budget 32"]);
}

#[test]
fn loads_that_no_machine_could_hold_are_refused() {
    let place = Workplace::with("search.yaml", ROUTERS);
    place
        .run(&["search", "search.yaml", "--set", "workload.num_request_ratio=4e8"])
        .refusing(&["workload.num_request_ratio", "requests in all are too many: at most 20000000"]);
    let filled = place
        .run(&[
            "search",
            "search.yaml",
            "--set",
            "workload.concurrency=null",
            "--set",
            "workload.kv_load_ratio=1e12",
        ])
        .ending(1);
    assert!(filled.stdout.contains("requests in flight, more than 1e6"), "{}", filled.stdout);
}
