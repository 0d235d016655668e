//! `spica explain`: why a request went where it did, why the fleet changed, why a candidate is where it is.

use std::fmt::Write as _;
use std::path::Path;

use indexmap::IndexMap;
use serde_json::{Value, json};

use super::alike::different;
use super::arguments::{ExplainCommand, Format, StrictTiming};
use super::console::Console;
use super::failure::{Failure, Status};
use super::input::load_document;
use super::names::Kind;
use super::prepare::{self, ReadyReplay};
use super::replay::replay_failure;
use super::results::{
    answer, apart, candidate, differing, figure, is_frontier, note_unfinished, objectives, search_result,
    shown, tick_rows,
};
use crate::config::Override;
use crate::registry::Registry;
use crate::report::activity::{ActivityDetail, RouteRecord};
use crate::report::phases::phases;
use crate::report::record::RunRecord;
use crate::report::requests::request_name;
use crate::serving::{self, ReplayLimits, Traffic};
use crate::simulation::SimTime;
use crate::workload::{RequestId, Workload};

/// Figures of two neighbours in a ranking that are set side by side.
const COMPARED: [&str; 8] = [
    "output_throughput_tok_s",
    "goodput_output_throughput_tok_s",
    "attainment",
    "mean_ttft_ms",
    "mean_tpot_ms",
    "mean_e2e_latency_ms",
    "prefix_cache_reused_ratio",
    "gpu_hours",
];

pub(super) fn run(
    command: &ExplainCommand,
    console: Console,
    registry: &Registry,
) -> Result<Status, Failure> {
    let explanation = match command {
        ExplainCommand::Request { scenario, request, overrides } => {
            explain_request(scenario, request, &overrides.set, registry, console)?
        }
        ExplainCommand::Tick { folder, tick } => explain_tick(folder, *tick)?,
        ExplainCommand::Candidate { folder, rank } => {
            note_unfinished(folder, console);
            explain_candidate(folder, *rank)?
        }
    };
    match console.format() {
        Format::Text => Console::print(&explanation.text)?,
        Format::Json => Console::print_json(&explanation.json)?,
    }
    Ok(Status::Success)
}

struct Explanation {
    text: String,
    json: Value,
}

/// Replays the scenario once more, keeping what went on, and tells the story of one request.
fn explain_request(
    file: &Path,
    name: &str,
    overrides: &[Override],
    registry: &Registry,
    console: Console,
) -> Result<Explanation, Failure> {
    let loaded = load_document(file, overrides, console)?;
    let instead = "its candidates are explained by `spica explain candidate`";
    let (scenario, places) = prepare::scenario_of(file, loaded, instead)?;
    let block_size = scenario.deployment.block_size();
    let ready = prepare::replay(scenario, places, StrictTiming { strict_timing: false }, registry, console)?;
    let ReadyReplay { scenario, workload, places } = ready;
    let traffic = Traffic::new(workload, block_size);
    let workload = traffic.workload();
    let known = (0..workload.requests.len() as u32).map(RequestId);
    let Some(id) = known.into_iter().find(|&id| request_name(workload, id) == name) else {
        let count = workload.requests.len();
        let message = format!(
            "{name}: there is no such request among {count}; those without a name are request_1 and so on"
        );
        return Err(Failure::input(message));
    };
    let limits = ReplayLimits { detail: ActivityDetail::Everything, ..ReplayLimits::default() };
    let record = serving::replay(&scenario, &traffic, registry, &limits)
        .map_err(|error| replay_failure(file, &places, &error))?;
    Ok(story(id, &record, workload))
}

fn ms(time: SimTime) -> String {
    figure(time.as_ms())
}

fn story(id: RequestId, record: &RunRecord, workload: &Workload) -> Explanation {
    let number = id.0 as usize;
    let (request, asked) = (&record.requests[number], &workload.requests[number]);
    let phases = phases(request, record.handoffs.get(number), record.end);
    let mut text = format!(
        "{}: {} prompt tokens, {} output tokens asked for; {:?}\n",
        request_name(workload, id),
        asked.input_length,
        asked.output_length,
        request.status
    )
    .to_lowercase();
    if request.arrival.is_none() {
        text += "it never arrived: the run ended first\n";
    }
    let total = phases.iter().map(|phase| phase.end.since(phase.start).as_ms()).sum::<f64>();
    text += "where its time went\n";
    for phase in &phases {
        let length = phase.end.since(phase.start).as_ms();
        let _ = writeln!(
            text,
            "  {:<24} {:>12} ms {:>6.1} %   from {} ms",
            phase.name,
            figure(length),
            length / total * 100.0,
            ms(phase.start)
        );
    }
    let routes: Vec<&RouteRecord> =
        record.activity.routes.iter().filter(|route| route.request == id).collect();
    for route in &routes {
        text += &route_text(route);
    }
    let admissions = record.activity.admissions.iter().filter(|admission| admission.request == id);
    for (count, admission) in admissions.clone().enumerate() {
        let again = if count == 0 { "" } else { " again, after it had to give way" };
        let reused = admission.reused_tokens;
        let _ = writeln!(
            text,
            "entered a batch{again} at {} ms with {reused} prompt tokens found in the cache",
            ms(admission.at)
        );
    }
    let chunks: Vec<_> = record.activity.chunks.iter().filter(|chunk| chunk.request == id).collect();
    if !chunks.is_empty() {
        let _ = writeln!(text, "prompt computed in {} chunks", chunks.len());
        for chunk in &chunks {
            let _ = writeln!(
                text,
                "  rank {}: {} tokens behind {}, {} to {} ms",
                chunk.rank,
                chunk.new_tokens,
                chunk.prefix_tokens,
                ms(chunk.start),
                ms(chunk.end)
            );
        }
    }
    let json = json!({
        "request_id": request_name(workload, id),
        "status": request.status,
        "phases": phases.iter().map(|phase| json!({
            "name": phase.name, "start_ms": phase.start.as_ms(), "end_ms": phase.end.as_ms(),
        })).collect::<Vec<_>>(),
        "routes": routes.iter().map(|route| route_json(route)).collect::<Vec<_>>(),
        "admissions": admissions.map(|admission| json!({
            "at_ms": admission.at.as_ms(), "reused_tokens": admission.reused_tokens,
        })).collect::<Vec<_>>(),
        "chunks": chunks.iter().map(|chunk| json!({
            "rank": chunk.rank, "new_tokens": chunk.new_tokens, "prefix_tokens": chunk.prefix_tokens,
            "start_ms": chunk.start.as_ms(), "end_ms": chunk.end.as_ms(),
        })).collect::<Vec<_>>(),
    });
    Explanation { text, json }
}

fn route_text(route: &RouteRecord) -> String {
    let mut text = format!(
        "placed on {} rank {} at {} ms; what its router saw\n",
        route.role.name(),
        route.rank,
        ms(route.at)
    );
    let _ = writeln!(
        text,
        "  {:>6} {:>15} {:>22} {:>14} {:>16}",
        "rank", "blocks cached", "prompt tokens placed", "blocks placed", "requests placed"
    );
    for seen in &route.candidates {
        let mark = if seen.rank == route.rank { " <- chosen" } else { "" };
        let _ = writeln!(
            text,
            "  {:>6} {:>15} {:>22} {:>14} {:>16}{mark}",
            seen.rank,
            seen.overlap_blocks,
            seen.active_prefill_tokens,
            seen.active_blocks,
            seen.active_requests
        );
    }
    text
}

fn route_json(route: &RouteRecord) -> Value {
    let seen = route.candidates.iter().map(|seen| {
        json!({
            "rank": seen.rank, "overlap_blocks": seen.overlap_blocks,
            "active_prefill_tokens": seen.active_prefill_tokens, "active_blocks": seen.active_blocks,
            "active_requests": seen.active_requests,
        })
    });
    json!({"at_ms": route.at.as_ms(), "pool": route.role, "rank": route.rank, "candidates": seen.collect::<Vec<_>>()})
}

/// What a planner saw and did at one tick.
fn explain_tick(folder: &Path, tick: u64) -> Result<Explanation, Failure> {
    let Some(rows) = tick_rows(folder)? else {
        let message =
            "holds no scaling.jsonl: a folder is wanted that a replay with a planner wrote (--output-dir)";
        return Err(Failure::input(format!("{}: {message}", folder.display())));
    };
    if Kind::Replay.is_cut_off(folder) {
        // These rows may still be those of the replay before it.
        answer(folder)?;
    }
    let Some(row) = rows.iter().find(|row| row["tick"].as_u64() == Some(tick)) else {
        let last = rows.last().map_or_else(|| "none".into(), |row| shown(&row["tick"]));
        return Err(Failure::input(format!("tick {tick}: ticks go from 0 to {last}")));
    };
    let mut text = String::new();
    for (path, value) in super::results::flattened(row) {
        let _ = writeln!(text, "{path}: {}", shown(&value));
    }
    Ok(Explanation { text, json: row.clone() })
}

/// Which bounds a candidate is near, and what sets it apart from the one behind it.
fn explain_candidate(folder: &Path, rank: usize) -> Result<Explanation, Failure> {
    let result = search_result(folder)?;
    let one = candidate(folder, &result, rank)?;
    let candidates = result["candidates"].as_array().map_or(&[][..], Vec::as_slice);
    let numbered = || (1..).zip(candidates);
    let next = numbered().skip(rank).find(|(_, other)| !came_out_as(one, other));
    let is_frontier = is_frontier(&result);
    let gpus = gpus(one);
    let mut text = if is_frontier {
        let count = candidates.len();
        format!("rank {rank} of {count} along the frontier: {} {gpus}\n", objectives(one))
    } else {
        format!("rank {rank}: score {} {gpus}\n", shown(&one["score"]))
    };
    let bounds = bounds(one, &result["goal"]);
    if !bounds.is_empty() {
        text += "bounds\n";
    }
    let mut rows = Vec::new();
    for (name, value, bound, most) in bounds {
        let used = if most { value / bound } else { bound / value.max(f64::MIN_POSITIVE) };
        let verdict = match used {
            used if used > 1.0 => "missed",
            used if used >= 0.95 => "binds",
            _ => "has room",
        };
        let sign = if most { "at most" } else { "at least" };
        let _ =
            writeln!(text, "  {name:<28} {:>12}   {sign} {:>10}   {verdict}", figure(value), figure(bound));
        rows.push(json!({"bound": name, "value": value, "limit": bound, "verdict": verdict}));
    }
    let alike: Vec<(usize, &Value)> =
        numbered().filter(|&(place, other)| place != rank && came_out_as(one, other)).collect();
    text += &alike_text(one, &alike);
    let mut changes = Vec::new();
    match next {
        None if alike.iter().any(|&(place, _)| place > rank) => text += "no other result comes behind it\n",
        None if is_frontier => text += "it is the last along the frontier\n",
        None => text += "it is the last of the ranking\n",
        Some((place, next)) => {
            let _ = if is_frontier {
                writeln!(text, "next along it is rank {place}: {}; settings that differ", objectives(next))
            } else {
                let gap = one["score"].as_f64().unwrap_or(0.0) - next["score"].as_f64().unwrap_or(0.0);
                writeln!(text, "before rank {place} by {} in score; settings that differ", figure(gap))
            };
            changes = differing(&one["config"], &next["config"]);
            for (path, own, other) in &changes {
                let (own, other) = apart(own, other);
                let _ = writeln!(text, "  {path}: {own} here, {other} there");
            }
            text += "figures\n";
            for name in COMPARED {
                if let (Some(own), Some(other)) =
                    (one["metrics"][name].as_f64(), next["metrics"][name].as_f64())
                {
                    let _ =
                        writeln!(text, "  {name:<34} {:>12} here {:>12} there", figure(own), figure(other));
                }
            }
        }
    }
    let changes =
        changes.iter().map(|(path, own, other)| json!({"setting": path, "here": own, "there": other}));
    let worth = if is_frontier { "objectives" } else { "score" };
    let alike: Vec<usize> = alike.iter().map(|(place, _)| *place).collect();
    let json = json!({
        "rank": rank, worth: one[worth], "used_gpus": one["used_gpus"], "avg_gpu": one["metrics"]["avg_gpu"], "bounds": rows,
        "alike": alike,
        "next": next.map(|(place, next)| {
            json!({"rank": place, worth: next[worth], "settings": changes.collect::<Vec<_>>()})
        }),
    });
    Ok(Explanation { text, json })
}

/// Whether two candidates have as many GPUs and the same value of every figure.
fn came_out_as(one: &Value, other: &Value) -> bool {
    one["used_gpus"] == other["used_gpus"] && one["metrics"] == other["metrics"]
}

/// Which settings made no difference, seen from those that came out as this one did.
fn alike_text(one: &Value, alike: &[(usize, &Value)]) -> String {
    let Some((first, _)) = alike.first() else { return String::new() };
    let others = match alike.len() {
        1 => String::new(),
        count => format!(" and {} more", count - 1),
    };
    let mut settings: IndexMap<String, (String, Vec<String>)> = IndexMap::new();
    for (_, other) in alike {
        for (path, own, there) in differing(&one["config"], &other["config"]) {
            let (own, there) = apart(&own, &there);
            settings.entry(path).or_insert_with(|| (own, Vec::new())).1.push(there);
        }
    }
    let mut text =
        format!("the same in every figure as rank {first}{others}; settings that made no difference\n");
    for (path, (own, there)) in settings {
        let there = different(there.iter().map(String::as_str)).join(" or ");
        let _ = writeln!(text, "  {path}: {own} here, {there} there");
    }
    text
}

/// The GPUs of a candidate in words: those of a fleet that changes only begin with what its layout says.
fn gpus(candidate: &Value) -> String {
    let used = shown(&candidate["used_gpus"]);
    match candidate["metrics"]["avg_gpu"].as_f64().filter(|_| is_planned(candidate)) {
        Some(average) => format!("on {used} GPUs at the start, {} on average", figure(average)),
        None => format!("on {used} GPUs"),
    }
}

fn is_planned(candidate: &Value) -> bool {
    let planner = &candidate["scenario"]["deployment"]["planner"];
    planner.is_object() && planner["policy"] != "disabled"
}

/// Name, value and limit of each bound, and whether the limit is the most that is allowed.
fn bounds(candidate: &Value, goal: &Value) -> Vec<(String, f64, f64, bool)> {
    let metric = |name: &str| candidate["metrics"][name].as_f64();
    let mut bounds = Vec::new();
    let used = candidate["used_gpus"].as_f64();
    for (key, name, most) in
        [("gpu_budget", "GPUs of the budget", true), ("min_gpu_budget", "GPUs at least at the start", false)]
    {
        if let (Some(bound), Some(used)) = (candidate["config"][key].as_f64(), used) {
            bounds.push((name.to_owned(), used, bound, most));
        }
    }
    bounds.extend(bounds_of_planner(candidate));
    bounds.extend(bounds_of_engines(candidate));
    for (key, name, figure) in [
        ("ttft_ms", "mean TTFT of the SLA", "mean_ttft_ms"),
        ("itl_ms", "mean TPOT of the SLA", "mean_tpot_ms"),
        ("e2e_ms", "mean E2E of the SLA", "mean_e2e_latency_ms"),
    ] {
        if let (Some(bound), Some(value)) = (goal["sla"][key].as_f64(), metric(figure)) {
            bounds.push((name.to_owned(), value, bound, true));
        }
    }
    if let (Some(bound), Some(value)) = (goal["min_attainment"].as_f64(), metric("attainment")) {
        bounds.push(("attainment".to_owned(), value, bound, false));
    }
    bounds
}

/// The limits of each pool's engines, beside the most that any of its ranks did.
fn bounds_of_engines(candidate: &Value) -> Vec<(String, f64, f64, bool)> {
    let mut bounds = Vec::new();
    // Aggregated workers count as decode.
    for (pool, role) in [("agg", "decode"), ("prefill", "prefill"), ("decode", "decode")] {
        let engine = &candidate["scenario"]["deployment"][pool]["engine"];
        for (limit, peak, name) in [
            ("max_num_seqs", "peak_running_requests", "requests of a rank"),
            ("max_num_batched_tokens", "peak_batched_tokens", "tokens of a pass"),
        ] {
            let most = candidate["metrics"][format!("{role}_{peak}")].as_f64();
            // SGLang's chunks are an option of its own.
            let is_followed = limit == "max_num_seqs" || engine["backend"] != "sglang";
            if let (Some(limit), Some(most), true) = (engine[limit].as_f64(), most, is_followed) {
                bounds.push((format!("{name} ({pool})"), most, limit, true));
            }
        }
    }
    bounds
}

/// The bounds that a planner was given, beside the averages of its fleet; a negative number bounds nothing.
fn bounds_of_planner(candidate: &Value) -> Vec<(String, f64, f64, bool)> {
    let deployment = &candidate["scenario"]["deployment"];
    let metric = |name: &str| candidate["metrics"][name].as_f64();
    let bound = |key: &str| deployment["planner"][key].as_f64().filter(|bound| *bound >= 0.0);
    let mut bounds = Vec::new();
    for (key, most) in [("max_gpu_budget", true), ("min_gpu_budget", false)] {
        if let (Some(bound), Some(average)) = (bound(key), metric("avg_gpu")) {
            bounds.push(("average GPUs of the planner".to_owned(), average, bound, most));
        }
    }
    let duration_s = metric("duration_ms").map(|duration_ms| duration_ms / 1000.0);
    // Aggregated workers count as decode.
    for (pool, seconds) in [
        ("agg", "decode_worker_seconds"),
        ("prefill", "prefill_worker_seconds"),
        ("decode", "decode_worker_seconds"),
    ] {
        let least = bound(&format!("{pool}_min_endpoint")).or_else(|| bound("min_endpoint"));
        if let (true, Some(least), Some(worker_s), Some(duration_s)) =
            (deployment[pool].is_object(), least, metric(seconds), duration_s.filter(|s| *s > 0.0))
        {
            bounds.push((format!("average workers ({pool})"), worker_s / duration_s, least, false));
        }
    }
    bounds
}
