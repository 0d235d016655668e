//! `spica report`: pages stand alone and their figures hold the numbers of the results.

#![allow(clippy::unwrap_used, reason = "helpers of tests may panic")]

use serde_json::Value;

use super::cli_command::Workplace;

const SCENARIO: &str = "\
deployment:
  mode: agg
  router: {policy: kv_router}
  agg: {workers: 2, engine: {num_gpu_blocks: 600, max_num_batched_tokens: 512}}
workload: {isl: 900, osl: 40, request_rate: 20, num_request_ratio: 40}
sla: {ttft_ms: 150, itl_ms: 20}
";

const SEARCH: &str = "\
search_space:
  model_name: a/model
  hardware_sku: h200_sxm
  deployment_mode: [agg]
  parallel_configs: [{tp: 1, replicas: 1}, {tp: 1, replicas: 2}, {tp: 2, replicas: 2}]
  router_mode: [round_robin, kv_router]
  timing: {model: polynomial}
  planner_scaling_policy: [disabled]
workload: {isl: 500, osl: 20, concurrency: 4, num_request_ratio: 4}
sweep: {sampler: random, max_rounds: 2, candidates_per_round: 6, parallel_evals: 2}
";

fn replayed() -> Workplace {
    let place = Workplace::with("scenario.yaml", SCENARIO);
    place.run(&["replay", "scenario.yaml", "--output-dir", "out"]).ending(0);
    place
}

fn searched() -> Workplace {
    let place = Workplace::with("search.yaml", SEARCH);
    place.run(&["search", "search.yaml", "--output-dir", "out"]).ending(0);
    place
}

/// The numbers of a figure: series, horizontal and vertical place.
fn numbers(place: &Workplace, figure: &str) -> Vec<(String, f64, f64)> {
    let csv = place.run(&["report", "out", "--format=csv", "--figure", figure]).ending(0).stdout;
    let rows = csv.lines().skip(1).filter(|line| line.split(',').count() >= 3);
    rows.filter_map(|line| {
        let mut cells = line.split(',');
        Some((cells.next()?.to_owned(), cells.next()?.parse().ok()?, cells.next()?.parse().ok()?))
    })
    .collect()
}

#[track_caller]
fn stands_alone(html: &str) {
    assert!(html.starts_with("<!DOCTYPE html>") && html.ends_with("</html>\n"));
    let foreign =
        html.match_indices("http").filter(|(at, _)| !html[*at..].starts_with("http://www.w3.org/2000/svg"));
    assert_eq!(foreign.count(), 0, "the page needs a network");
    for tag in ["section", "table", "figure", "svg", "div", "tr", "td"] {
        let opened = html.matches(&format!("<{tag}>")).count() + html.matches(&format!("<{tag} ")).count();
        assert_eq!(opened, html.matches(&format!("</{tag}>")).count(), "{tag}");
    }
    assert!(!html.contains("NaN") && !html.contains("inf\""), "a figure has a place that is none");
}

#[test]
fn the_page_of_a_replay_holds_its_figures() {
    let place = replayed();
    let html = place.run(&["report", "out"]).ending(0).stdout;
    stands_alone(&html);
    for id in [
        "ttft_ms_attainment",
        "tpot_ms_distribution",
        "e2e_ms_attainment",
        "phases",
        "throughput",
        "prefill",
        "queue",
        "workers",
        "gpus",
        "busy",
        "batch",
        "kv_blocks",
    ] {
        assert!(html.contains(&format!("<figure id=\"{id}\">")), "{id}");
    }
    place.run(&["report", "out", "--output", "page.html"]).ending(0);
    assert_eq!(place.read("page.html"), html);

    let summary = &place.read_json("out/report.json")["summary"];
    let rows: Vec<Value> =
        place.read("out/requests.jsonl").lines().map(|row| serde_json::from_str(row).unwrap()).collect();
    // The curve of attainment passes through the share that meets the bound.
    let curve = numbers(&place, "ttft_ms_attainment");
    let reached = curve.iter().filter(|(_, x, _)| *x <= 150.0).map(|(.., y)| *y).fold(0.0, f64::max);
    let met = rows.iter().filter(|row| row["ttft_ms"].as_f64().is_some_and(|ttft| ttft <= 150.0)).count();
    let expected = met as f64 * 100.0 / rows.len() as f64;
    assert!((reached - expected).abs() < 1e-9, "{reached} {expected}");
    let longest = curve.iter().map(|(_, x, _)| *x).fold(0.0, f64::max);
    assert_eq!(longest, summary["max_ttft_ms"].as_f64().unwrap());
    // Throughput over time adds up to all tokens, the queue to the time that requests were there.
    let series = place.read_json("out/series.json");
    let bin_s = series["bin_ms"].as_f64().unwrap() / 1e3;
    let total = |name: &str, figure: &str| {
        numbers(&place, figure)
            .iter()
            .filter(|(series, ..)| series == name)
            .map(|(.., y)| y * bin_s)
            .sum::<f64>()
    };
    let tokens = summary["total_output_tokens"].as_f64().unwrap();
    assert!((total("generated", "throughput") / tokens - 1.0).abs() < 1e-9);
    let prefill = summary["committed_prefill_tokens"].as_f64().unwrap();
    assert!((total("computed", "prefill") / prefill - 1.0).abs() < 1e-6);
    assert!((total("arrived", "requests") - rows.len() as f64).abs() < 1e-6);
    let lives: f64 = rows.iter().map(|row| row["e2e_ms"].as_f64().unwrap() / 1e3).sum();
    assert!((total("in flight", "queue") / lives - 1.0).abs() < 1e-9);
    let gpu_hours = total("GPUs", "gpus") / 3600.0;
    assert!((gpu_hours / summary["gpu_hours"].as_f64().unwrap() - 1.0).abs() < 1e-6);
    // Where the time went is the mean end-to-end latency.
    let csv = place.run(&["report", "out", "--format=csv", "--figure=phases"]).ending(0).stdout;
    let phases: f64 =
        csv.lines().skip(1).map(|line| line.rsplit_once(',').unwrap().1.parse::<f64>().unwrap()).sum();
    assert!((phases - summary["mean_e2e_latency_ms"].as_f64().unwrap()).abs() < 1e-6);
}

#[test]
fn the_page_of_a_search_holds_its_figures() {
    let place = searched();
    let html = place.run(&["report", "out"]).ending(0).stdout;
    stands_alone(&html);
    let result = place.read_json("out/candidates.json");
    let candidates = result["candidates"].as_array().unwrap();
    for id in ["frontier", "best_so_far"] {
        assert!(html.contains(&format!("<figure id=\"{id}\">")), "{id}");
    }
    assert!(html.contains("Ranking") && html.contains("class=\"filter\""));
    let dots = numbers(&place, "frontier");
    let dots: Vec<_> = dots.iter().filter(|(series, ..)| series == "candidates").collect();
    assert_eq!(dots.len(), candidates.len());
    for (dot, candidate) in dots.iter().zip(candidates) {
        let metrics = &candidate["metrics"];
        assert_eq!(dot.1, metrics["mean_output_token_throughput_per_user"].as_f64().unwrap());
        let per_gpu =
            metrics["output_throughput_tok_s"].as_f64().unwrap() / candidate["used_gpus"].as_f64().unwrap();
        assert_eq!(dot.2, per_gpu);
    }
    let best = numbers(&place, "best_so_far");
    let last = best.iter().rfind(|(series, ..)| series == "best so far").unwrap();
    assert_eq!(last.2, candidates[0]["score"].as_f64().unwrap());
}

#[test]
fn effects_and_lines_show_every_deployment_that_was_tried() {
    let place = searched();
    let html = place.run(&["report", "out"]).ending(0).stdout;
    let result = place.read_json("out/candidates.json");
    let candidates = result["candidates"].as_array().unwrap();
    for id in ["settings", "effect_replicas", "effect_tp"] {
        assert!(html.contains(&format!("<figure id=\"{id}\"")), "{id}");
    }
    assert!(!html.contains("effect_backend"), "a setting that is the same everywhere has no effect to show");
    let csv =
        |figure: &str| place.run(&["report", "out", "--format=csv", "--figure", figure]).ending(0).stdout;
    // The best of a strip is the best score with that value.
    let strips = csv("effect_replicas");
    for replicas in ["1", "2"] {
        let of_it = candidates
            .iter()
            .filter(|candidate| candidate["config"]["replicas"] == replicas.parse::<u64>().unwrap());
        let scores: Vec<f64> = of_it.map(|candidate| candidate["score"].as_f64().unwrap()).collect();
        let mut shown: Vec<f64> = strips
            .lines()
            .filter_map(|line| line.strip_prefix(&format!("{replicas},"))?.split(',').next()?.parse().ok())
            .collect();
        shown.sort_by(|a, b| b.total_cmp(a));
        assert!(!scores.is_empty());
        assert_eq!(shown, scores, "{replicas}");
    }
    // A line for each, with its own settings and score.
    let lines = csv("settings");
    let names: Vec<&str> = lines.lines().next().unwrap().split(',').collect();
    let (score, replicas) = (names.len() - 1, names.iter().position(|name| *name == "replicas").unwrap());
    assert_eq!(names[score], "score");
    assert_eq!(lines.lines().count() - 1, candidates.len());
    for candidate in candidates {
        let own = |line: &&str| line.ends_with(&format!(",{}", candidate["score"]));
        let line = lines.lines().find(own).unwrap_or_else(|| panic!("{lines}"));
        assert_eq!(line.split(',').nth(replicas).unwrap(), candidate["config"]["replicas"].to_string());
    }
    let policies = html.split("Router and planner of the best candidate").nth(1).unwrap();
    let policies = policies.split("</table>").next().unwrap();
    let policy = candidates[0]["scenario"]["deployment"]["router"]["policy"].as_str().unwrap();
    assert!(
        policies.contains(policy) && policies.contains("<td>planner</td><td>-</td><td>none</td>"),
        "{policies}"
    );
}

#[test]
fn a_wide_ranking_keeps_its_first_columns_in_sight_and_breaks_long_names() {
    let place = Workplace::with("search.yaml", SEARCH);
    place.run(&["search", "search.yaml", "--output-dir", "out"]).ending(0);
    let html = place.run(&["report", "out"]).ending(0).stdout;
    assert_eq!(html.matches("<table class=\"sortable ranked\">").count(), 1, "the ranking alone");
    assert!(html.contains(">prefill_<wbr>load_<wbr>scale</button>"));
    for rule in [".ranked td:nth-child(-n+2) { position: sticky;", ".ranked td { position: static; }"] {
        assert!(html.contains(rule), "{rule}");
    }
}

/// The columns of the ranking on a terminal, and those of the page.
fn columns(place: &Workplace, search: &[&str]) -> (Vec<String>, Vec<String>) {
    let told =
        place.run(&[&["search", "search.yaml", "--output-dir", "out"], search].concat()).ending(0).stdout;
    let heading = told.lines().find(|line| line.trim_start().starts_with("rank")).unwrap();
    let on_terminal = heading.split("  ").map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned);
    let page = place.run(&["report", "out", "--format=json"]).ending(0).json();
    let sections = page["sections"].as_array().unwrap();
    let table = sections.iter().find(|section| section["table"]["columns"][0] == "rank").unwrap();
    let on_page = table["table"]["columns"].as_array().unwrap().iter();
    let remarks: Vec<&str> = sections
        .iter()
        .flat_map(|section| section["remarks"]["lines"].as_array().into_iter().flatten())
        .map(|line| line.as_str().unwrap())
        .collect();
    assert!(!remarks.is_empty() && told.contains(&remarks.join("\n")), "{remarks:?} {told}");
    (on_terminal.collect(), on_page.map(|name| name.as_str().unwrap().to_owned()).collect())
}

#[test]
fn a_page_has_the_columns_of_the_terminal() {
    let place = Workplace::with("search.yaml", SEARCH);
    let planned = [
        "--set",
        "search_space.planner_scaling_policy=[disabled, load_180_5]",
        "--set",
        "search_space.agg_max_num_seqs=[256, 512]",
        "--set",
        "search_space.router_mode=[kv_router]",
        "--set",
        "search_space.router_temperature=[0.0]",
        "--set",
        "goal={target: goodput, sla: {ttft_ms: 5000, itl_ms: 500}}",
    ];
    let frontier = ["--set", "goal={target: pareto, pareto_objectives: [throughput_per_gpu, e2e_latency]}"];
    for search in [&planned[..], &[&planned[..6], &frontier[..]].concat()] {
        let (on_terminal, on_page) = columns(&place, search);
        let also = ["p99 TTFT ms", "user tok/s", "GPU hours"];
        let common: Vec<&String> = on_page.iter().filter(|name| !also.contains(&name.as_str())).collect();
        assert_eq!(common, on_terminal.iter().collect::<Vec<_>>());
        assert_eq!(on_page.len(), on_terminal.len() + also.len(), "a page has room for these too");
        for name in ["layout", "alike", "GPUs"] {
            assert!(on_page.iter().any(|one| one == name), "{name}: {on_page:?}");
        }
    }
    let (on_terminal, _) = columns(&place, &planned);
    for name in ["avg GPUs", "peak GPUs"] {
        assert!(on_terminal.iter().any(|one| one == name), "{on_terminal:?}");
    }
    let html = place.run(&["report", "out"]).ending(0).stdout;
    let best = &place.read_json("out/candidates.json")["candidates"][0];
    assert!(best["metrics"]["planner_total_ticks"].is_number(), "{best}");
    let average = best["metrics"]["avg_gpu"].as_f64().unwrap();
    assert!(html.contains(&format!("<small>agg; at the start, {average} on average, ")), "{average}");
    assert!(html.contains(&format!("{} GPUs at the start, ", best["used_gpus"])), "dots say so too");
}

#[test]
fn a_frontier_stands_before_the_other_trials() {
    let goal = "goal: {target: pareto, pareto_objectives: [throughput_per_gpu, e2e_latency]}\nworkload";
    let place = Workplace::with("search.yaml", &SEARCH.replacen("workload", goal, 1));
    place.run(&["search", "search.yaml", "--output-dir", "out"]).ending(0);
    let html = place.run(&["report", "out"]).ending(0).stdout;
    stands_alone(&html);
    assert!(html.contains("<h2>Router and planner of rank 1, one end of the frontier</h2>"));
    let head = html.split("<h2>Frontier</h2>").nth(1).unwrap().split("</thead>").next().unwrap();
    let named: Vec<&str> = head.split("<button type=\"button\">").skip(1).take(4).collect();
    let named = named.iter().map(|name| name.split("</button>").next().unwrap().replace("<wbr>", ""));
    assert_eq!(named.collect::<Vec<_>>(), ["rank", "throughput_per_gpu", "e2e_latency", "GPUs"]);
    let result = place.read_json("out/candidates.json");
    let candidates = result["candidates"].as_array().unwrap();
    let feasible = result["tally"]["feasible"].as_u64().unwrap() as usize;
    let points = numbers(&place, "frontier");
    let of = |name: &'static str| {
        points.iter().filter(move |(series, ..)| series == name).map(|(_, x, y)| (*x, *y))
    };
    let mut expected: Vec<(f64, f64)> = candidates
        .iter()
        .map(|candidate| {
            let objective = |name: &str| candidate["objectives"][name].as_f64().unwrap();
            (objective("throughput_per_gpu"), objective("e2e_latency"))
        })
        .collect();
    let mut frontier: Vec<(f64, f64)> = of("frontier").collect();
    for points in [&mut expected, &mut frontier] {
        points.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1)));
        points.dedup();
    }
    assert_eq!(frontier, expected);
    assert!(!candidates.is_empty() && candidates.len() < feasible, "there is something behind the frontier");
    assert_eq!(of("other trials").count(), feasible - candidates.len());
    assert!(html.contains("throughput_per_gpu against e2e_latency"));
}

#[test]
fn kv_use_stands_below_the_capacity_and_workers_add_up() {
    let place = replayed();
    let html = place.run(&["report", "out"]).ending(0).stdout;
    let figure = html.split("<figure id=\"kv_blocks\">").nth(1).unwrap().split("</figure>").next().unwrap();
    assert!(figure.contains(">capacity: 600</text>"), "{figure}");
    let most = numbers(&place, "kv_blocks").iter().map(|(.., y)| *y).fold(0.0, f64::max);
    assert!(most > 100.0 && most <= 600.0, "{most}");

    let table = html.split("<h2>Workers</h2>").nth(1).unwrap().split("</table>").next().unwrap();
    let summary = &place.read_json("out/report.json")["summary"];
    let total = |column: usize| -> u64 {
        let rows = table.split("<tr>").skip(2);
        let cell =
            |row: &str| row.split("<td").nth(column + 1)?.split('>').nth(1)?.split('<').next()?.parse().ok();
        rows.map(|row| -> u64 { cell(row).unwrap_or_else(|| panic!("{row}")) }).sum()
    };
    assert_eq!(table.matches("<td>agg</td>").count(), 2);
    assert_eq!(total(2), summary["completed_requests"].as_u64().unwrap());
    assert_eq!(total(3), summary["total_input_tokens"].as_u64().unwrap());
    assert_eq!(total(5), summary["total_output_tokens"].as_u64().unwrap());
}

#[test]
fn ticks_of_a_planner_are_listed() {
    let place = Workplace::new();
    let scenario = concat!(env!("CARGO_MANIFEST_DIR"), "/scenarios/planner_idle.yaml");
    place.run(&["replay", scenario, "--output-dir", "out"]).ending(0);
    let html = place.run(&["report", "out"]).ending(0).stdout;
    stands_alone(&html);
    let table = html.split("<h2>Planner</h2>").nth(1).unwrap().split("</table>").next().unwrap();
    let ticks = place.read("out/scaling.jsonl").lines().count();
    assert_eq!(table.matches("<tr>").count(), ticks + 1, "a row for each tick and one for the names");
}

#[test]
fn workers_over_time_are_those_that_are_paid_for() {
    let changes = "  replica_changes: [{at_ms: 500, pool: agg, workers: 4}, {at_ms: 1500, pool: agg, workers: 1}]\nworkload";
    for startup in ["0", "0.25"] {
        let pool = format!("workers: 2, startup_time_s: {startup},");
        let scenario = SCENARIO.replace("\nworkload", &format!("\n{changes}")).replace("workers: 2,", &pool);
        let place = Workplace::with("scenario.yaml", &scenario);
        place.run(&["replay", "scenario.yaml", "--output-dir", "out"]).ending(0);
        let series = place.read_json("out/series.json");
        let bin_s = series["bin_ms"].as_f64().unwrap() / 1e3;
        let workers: Vec<f64> = numbers(&place, "workers").into_iter().map(|(.., y)| y).collect();
        assert!((workers[0] - 2.0).abs() < 1e-9 && workers.iter().any(|&count| count > 3.9), "{workers:?}");
        let gpu_hours = numbers(&place, "gpus").iter().map(|(.., y)| y * bin_s).sum::<f64>() / 3600.0;
        let paid = place.read_json("out/report.json")["summary"]["gpu_hours"].as_f64().unwrap();
        assert!((gpu_hours / paid - 1.0).abs() < 1e-6, "{gpu_hours} {paid}");
    }
}

#[test]
fn workers_over_time_are_those_that_a_planner_decided_on() {
    let place = Workplace::new();
    let scenario = concat!(env!("CARGO_MANIFEST_DIR"), "/scenarios/planner_hybrid.yaml");
    place.run(&["replay", scenario, "--output-dir", "out"]).ending(0);
    let ticks: Vec<serde_json::Value> =
        place.read("out/scaling.jsonl").lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let half_bin_s = place.read_json("out/series.json")["bin_ms"].as_f64().unwrap() / 2e3;
    let figures = [numbers(&place, "workers"), numbers(&place, "gpus")];
    let mut most = 0.0;
    for pair in ticks.windows(2) {
        let seconds = |tick: &serde_json::Value| tick["at_ms"].as_f64().unwrap() / 1e3;
        let (from, to) = (seconds(&pair[0]), seconds(&pair[1]));
        let pool = &pair[1]["pools"][0];
        let count = |state: &str| pool[state].as_f64().unwrap();
        if count("draining") > 0.0 {
            continue;
        }
        let workers = count("active") + count("starting");
        most = f64::max(most, workers);
        // Of bins that lie between the two ticks, the last: whoever drained is gone by then.
        for figure in &figures {
            let within = figure.iter().rfind(|(_, at, _)| at - half_bin_s > from && at + half_bin_s < to);
            let (.., shown) = within.expect("ticks are longer than bins");
            assert!((shown - workers).abs() < 1e-9, "{shown} for {workers} from {from} s to {to} s");
        }
    }
    assert_eq!(most, 8.0, "the fleet grew as far as it may");
}

#[test]
fn fleets_that_change_have_their_peak_beside_the_average() {
    for (scenario, can_change) in
        [("external_change", true), ("planner_idle", true), ("inline_requests", false)]
    {
        let place = Workplace::new();
        let path = format!("{}/scenarios/{scenario}.yaml", env!("CARGO_MANIFEST_DIR"));
        let told = place.run(&["replay", &path, "--output-dir", "out"]).ending(0).stdout;
        let page = place.run(&["report", "out", "--format=json"]).ending(0).json();
        let tiles = page["tiles"].as_array().unwrap();
        let tile = tiles.iter().find(|tile| tile[0] == "GPU hours").unwrap();
        let peak = &place.read_json("out/report.json")["summary"]["peak_gpus"];
        let words = format!("on average, {peak} at the peak");
        let is_told = [told.contains(&words), tile[2].as_str().unwrap().ends_with(&words)];
        assert_eq!(is_told, [can_change; 2], "{scenario}: {told} {tile}");
    }
}

/// The tile of a search's page counts all of its trials.
#[track_caller]
pub(crate) fn tile_adds_up(place: &Workplace, word: &str) {
    let trials = place.read("out/trials.jsonl").lines().count() as u64;
    let page = place.run(&["report", "out", "--format=json"]).ending(0).json();
    let tile = page["tiles"][0].as_array().unwrap();
    assert_eq!(tile[0], "feasible trials");
    assert!(tile[2].as_str().unwrap().contains(word), "{tile:?}");
    let counts = tile[1..].iter().flat_map(|cell| cell.as_str().unwrap().split(' '));
    assert_eq!(counts.filter_map(|count| count.parse::<u64>().ok()).sum::<u64>(), trials, "{tile:?}");
}

#[test]
fn the_trials_of_the_tile_add_up() {
    let place = Workplace::with("search.yaml", SEARCH);
    let screened = ["--set", "sweep.fidelity={fractions: [0.5], keep: 0.5}"];
    place.run(&[&["search", "search.yaml", "--output-dir", "out"], &screened[..]].concat()).ending(0);
    tile_adds_up(&place, "screened");
}

#[test]
fn single_figures_stand_alone() {
    let place = replayed();
    let svg = place.run(&["report", "out", "--format=svg", "--figure=queue"]).ending(0).stdout;
    assert!(svg.starts_with("<svg xmlns=\"http://www.w3.org/2000/svg\"") && svg.contains("<style>"), "{svg}");
    place.run(&["report", "out", "--format=svg"]).refusing(&["--figure: missing", "ttft_ms_attainment"]);
    place.run(&["report", "out", "--format=csv", "--figure=que"]).refusing(&["no such figure", "queue"]);
    place.run(&["report", "out", "--figure=queue"]).refusing(&["--format svg"]);
    place.run(&["report", "out", "--format=text"]).refusing(&["html, svg, csv or json"]);
    let figure = place.run(&["report", "out", "--format=json", "--figure=queue"]).ending(0).json();
    let points = &figure["chart"]["plot"]["series"][0]["points"];
    let expected = numbers(&place, "queue");
    assert_eq!(
        (points[3]["x"].as_f64(), points[3]["y"].as_f64()),
        (Some(expected[3].1), Some(expected[3].2))
    );
    let page = place.run(&["report", "out", "--format=json"]).ending(0).json();
    assert!(page["title"] == "Replay: out" && page["sections"].as_array().unwrap().len() > 5, "{page}");
    place.run(&["check", "scenario.yaml", "--format=svg"]).refusing(&["spica report"]);
    place.run(&["report", "."]).refusing(&["neither report.json nor candidates.json"]);
    place.write("out/report.json", "{\"schema_version\": 9}");
    place.run(&["report", "out"]).refusing(&["out/report.json", "schema_version 9"]);
}

#[test]
fn every_command_lists_the_forms_that_it_has() {
    let place = Workplace::with("scenario.yaml", "");
    let shown = |command: &str| {
        let help = place.run(&[command, "-h"]).ending(0).stdout;
        // Narrow terminals break the list.
        let words = help.split_whitespace().collect::<Vec<_>>().join(" ");
        let form = words.split("--format <FORMAT>").nth(1).unwrap().to_owned();
        form.split("possible values: ").nth(1).unwrap().split(']').next().unwrap().to_owned()
    };
    assert_eq!(shown("replay"), "text, json");
    assert_eq!(shown("search"), "text, json");
    assert_eq!(shown("report"), "json, html, svg, csv");
    place.run(&["replay", "scenario.yaml", "--format=svg"]).refusing(&["`spica report` only"]);
}

#[test]
fn the_page_of_a_search_without_candidates_tells_what_came_nearest() {
    let place = Workplace::with("search.yaml", SEARCH);
    let sets = ["--set", "goal={target: goodput, sla: {ttft_ms: 0.25, itl_ms: 9000}, min_attainment: 0.5}"];
    place.run(&[&["search", "search.yaml", "--output-dir", "out"][..], &sets].concat()).ending(1);
    let nearest = &place.read_json("out/candidates.json")["nearest"];
    let page = place.run(&["report", "out"]).ending(0);
    let html = page.stdout;
    assert!(html.contains("Nothing counts; nearest came one with 0 % of 50 % attainment"), "no heading");
    assert!(html.contains("50 % of its requests within ms"));
    let cells = ["goal.sla.ttft_ms", "0.25", "missed", "goal.sla.itl_ms", "9000", "kept"];
    assert!(cells.iter().all(|cell| html.contains(&format!(">{cell}</td>"))), "{html}");
    let reached = nearest["bounds"][0]["reached_ms"].as_f64().unwrap();
    let sections = place.run(&["report", "out", "--format=json"]).ending(0).json()["sections"].clone();
    let shown = sections[0]["table"]["rows"][0][2].as_f64().expect("is sorted as a number");
    assert!(reached > 0.25 && shown >= reached && shown < reached * 1.0002, "{shown} {reached}");
    assert!(html.contains("Scenario of what came nearest"));
}
