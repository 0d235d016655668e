//! `spica explain`: why a request went where it did, why the fleet changed, why a candidate is where it is.

use std::fmt::Write as _;
use std::path::Path;

use serde_json::{Value, json};

use super::arguments::{ExplainCommand, Format, StrictTiming};
use super::console::Console;
use super::explain_candidate;
use super::failure::{Failure, Status};
use super::input::load_document;
use super::names::Kind;
use super::prepare::{self, ReadyReplay};
use super::replay::replay_failure;
use super::results::{answer, figure, note_unfinished, shown, tick_rows};
use crate::config::Override;
use crate::registry::Registry;
use crate::report::activity::{ActivityDetail, RouteRecord};
use crate::report::phases::phases;
use crate::report::record::RunRecord;
use crate::report::requests::request_name;
use crate::serving::{self, ReplayLimits, Traffic};
use crate::simulation::SimTime;
use crate::workload::{RequestId, Workload};

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
            explain_candidate::explain(folder, *rank)?
        }
    };
    match console.format() {
        Format::Text => Console::print(&explanation.text)?,
        Format::Json => Console::print_json(&explanation.json)?,
    }
    Ok(Status::Success)
}

/// An answer in both forms.
pub(super) struct Explanation {
    pub(super) text: String,
    pub(super) json: Value,
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
