//! `spica replay`: one deployment, one workload.

use std::io::BufWriter;
use std::path::Path;
use std::time::Instant;

use flate2::Compression;
use flate2::write::GzEncoder;

use super::arguments::{Format, ReplayArguments};
use super::console::Console;
use super::failure::{Failure, Status};
use super::input::load_document;
use super::names::{Kind, REPORT, REQUESTS, SCALING, SERIES};
use super::output::{OutputFolder, look_at_file};
use super::overwrite;
use super::prepare::{self, ReadyReplay};
use crate::config::Places;
use crate::config::scenario::Scenario;
use crate::registry::Registry;
use crate::report::Summary;
use crate::report::activity::ActivityDetail;
use crate::report::files::{Batch, Report, write_json};
use crate::report::gap_tally;
use crate::report::record::RunRecord;
use crate::report::requests::write_requests;
use crate::report::scaling::{ScalingSummary, write_scaling};
use crate::report::series::Series;
use crate::report::summary::AT_ONCE;
use crate::report::table::replay_table;
use crate::report::timeline::{TimelineOptions, write_timeline};
use crate::serving::{self, ReplayError, ReplayLimits, Traffic};
use crate::workload::Workload;

pub(super) fn run(
    arguments: &ReplayArguments,
    console: Console,
    registry: &Registry,
) -> Result<Status, Failure> {
    let file = &arguments.scenario;
    let loaded = load_document(file, &arguments.overrides.set, console)?;
    let (output_dir, timeline) = (arguments.output_dir.as_deref(), arguments.timeline.as_deref());
    let inputs = overwrite::inputs(file, &loaded.document);
    let mut outputs = overwrite::outputs(output_dir, Kind::Replay);
    outputs.extend(timeline.map(|path| ("--timeline".to_owned(), path.to_owned())));
    let (scenario, places) = prepare::scenario_of(file, loaded, "run `spica search` on it")?;
    let block_size = scenario.deployment.block_size();
    let ready = prepare::replay(scenario, places, arguments.timing, registry, console);
    Failure::first_or_all([
        ready.as_ref().err().cloned(),
        output_dir.and_then(|path| OutputFolder::look_at(path, Kind::Replay).err()),
        timeline.and_then(|path| look_at_file("--timeline", path).err()),
        overwrite::refuse(&inputs, &outputs).err(),
    ])?;
    let ReadyReplay { scenario, workload, places } = ready?;
    let folder = output_dir.map(|path| OutputFolder::open(path, Kind::Replay)).transpose()?;

    let detail = match (timeline, &folder) {
        (Some(_), _) => ActivityDetail::Everything,
        (None, Some(_)) => ActivityDetail::Passes,
        (None, None) => ActivityDetail::None,
    };
    let limits = ReplayLimits { detail, ..ReplayLimits::default() };
    let traffic = Traffic::new(workload, block_size);
    let started = Instant::now();
    let record = serving::replay(&scenario, &traffic, registry, &limits)
        .map_err(|error| replay_failure(file, &places, &error))?;
    let summary = Summary::new(&record, traffic.workload(), scenario.sla.as_ref());
    if record.folded_gaps.is_some() {
        console.note(format!("note: {}", gap_tally::REMARK));
    }
    if summary.tokens_come_at_once() {
        console.note(format!("note: {AT_ONCE}"));
    }
    note_losses(&summary, console);
    note_timing(&places, &record, console);
    note_host_time(started, &summary, console);
    let options = TimelineOptions { one_request_in: arguments.timeline_sample };
    let timeline = timeline.map(|path| save_timeline(path, &record, traffic.workload(), options));
    let files = Files { folder, timeline: timeline.transpose()?.unwrap_or_default() };
    // What is only printed says where files are as the scenario does.
    let place = files.folder.as_ref().map(OutputFolder::path).or(file.parent()).unwrap_or(Path::new(""));
    let scenario = scenario.with_paths_from(place);
    present(&scenario, &traffic, &record, &summary, files, console)
}

/// Where the results go.
struct Files {
    folder: Option<OutputFolder>,
    /// Written, and not in its place yet.
    timeline: Batch,
}

fn present(
    scenario: &Scenario,
    traffic: &Traffic,
    record: &RunRecord,
    summary: &Summary,
    files: Files,
    console: Console,
) -> Result<Status, Failure> {
    let Files { folder, timeline } = files;
    let input = &traffic.workload().input;
    let resolved = scenario.to_json();
    let report = Report::new(&resolved, summary, record, input);
    if let Some(folder) = &folder {
        let mut files = folder.replacement();
        files.write(REQUESTS, |out| write_requests(record, traffic.workload(), out))?;
        if scenario.deployment.planner.is_some() {
            files.write(SCALING, |out| write_scaling(&record.scaling, out))?;
        } else {
            files.remove(SCALING);
        }
        files.write(SERIES, |out| write_json(&Series::new(record), out))?;
        files.write(REPORT, |out| report.write(out))?;
        files.put()?;
    }
    timeline.put().map_err(Failure::run)?;
    match console.format() {
        Format::Text => {
            let scaling = ScalingSummary::new(&record.scaling);
            let colours = Console::colours();
            Console::print(&replay_table(summary, &record.counters, input, scaling.as_ref(), colours))?;
        }
        Format::Json => Console::print_json(&report)?,
    }
    Ok(Status::Success)
}

/// Writes the timeline, packed if its name says so; it takes its place with the other files.
fn save_timeline(
    path: &Path,
    record: &RunRecord,
    workload: &Workload,
    options: TimelineOptions,
) -> Result<Batch, Failure> {
    let mut file = Batch::default();
    let written = file.write(path, |out| {
        if path.extension().is_some_and(|extension| extension == "gz") {
            let mut packed = BufWriter::new(GzEncoder::new(out, Compression::default()));
            write_timeline(record, workload, options, &mut packed)?;
            let encoder = packed.into_inner().map_err(std::io::IntoInnerError::into_error)?;
            encoder.finish().map(drop)
        } else {
            write_timeline(record, workload, options, out)
        }
    });
    written.map_err(Failure::run)?;
    Ok(file)
}

/// Why a replay did not come to its end.
pub(super) fn replay_failure(file: &Path, places: &Places, error: &ReplayError) -> Failure {
    match error {
        ReplayError::Refused(reason) => Failure::input(places.explain(reason.lines())),
        error @ ReplayError::TooLong(_) => Failure::input(format!("{}: {error}", file.display())),
        error => Failure::run(format!("{}: the replay failed: {error}", file.display())),
    }
}

/// Requests that did not complete, and why.
fn note_losses(summary: &Summary, console: Console) {
    let reasons = [
        (
            summary.rejected_requests,
            "rejected, since the engine can never run them (too long for its context or its cache)",
        ),
        (summary.unfinished_requests, "unfinished when the run ended (max_sim_time_ms)"),
    ];
    let losses = reasons.iter().filter(|(count, _)| *count > 0).map(|(count, why)| format!("{count} {why}"));
    let losses: Vec<String> = losses.collect();
    if losses.is_empty() {
        return;
    }
    let completed = match summary.completed_requests {
        0 => "no request completed".to_owned(),
        count => format!("{count} of {} requests completed", summary.num_requests),
    };
    console.note(format!("warning: {completed}: {}", losses.join(", and ")));
}

/// What is odd about the prices of the passes.
fn note_timing(places: &Places, record: &RunRecord, console: Console) {
    for (pool, timing) in &record.timing {
        let name = timing.id.as_deref().unwrap_or_default();
        let note = |what: &str| {
            let line = format!("deployment.{pool}.timing: {name}: {what}");
            console.note(places.remark("warning", &line));
        };
        if let Some(reason) = &timing.suspect {
            note(&format!("its numbers are suspect: {reason}"));
        }
        if let Some(remark) = &timing.caution {
            note(remark);
        }
        if let Some(outside @ 1..) = timing.extrapolated_lookups {
            note(&format!("{outside} prices lie outside what was sampled"));
        }
    }
}

/// How fast the host was; never part of a file, since it is never the same twice.
fn note_host_time(started: Instant, summary: &Summary, console: Console) {
    let seconds = started.elapsed().as_secs_f64();
    let tokens = (summary.total_input_tokens + summary.total_output_tokens) as f64;
    console.note(format!(
        "wall_time_ms {:.1}, processed_tokens_per_s {:.0}, processed_output_tokens_per_s {:.0}",
        seconds * 1e3,
        tokens / seconds,
        summary.total_output_tokens as f64 / seconds
    ));
}
