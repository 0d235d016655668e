//! The one door: from the workload of a scenario to its requests.

use std::io::BufRead;

use super::formats;
use super::problem::{Place, Problem, Warning, WorkloadErrors};
use super::{Workload, inline, synthetic};
use crate::config::scenario::{TraceSource, WorkloadConfig, WorkloadSource};
use crate::workload::Pacing;

/// A workload, and what its owner should know about its input.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// The requests.
    pub workload: Workload,
    /// One per kind, in words.
    pub warnings: Vec<Warning>,
}

/// Loads the workload of a scenario.
///
/// `trace` is the opened file of a [`WorkloadSource::Trace`], plain or gzip; other sources leave it alone.
/// `engine_block_size` is the unit in which generated prompts share prefixes.
///
/// # Errors
/// Everything that is wrong with the input; nothing of it is used then.
pub fn load(
    config: &WorkloadConfig,
    trace: Option<&mut dyn BufRead>,
    engine_block_size: u32,
) -> Result<Loaded, WorkloadErrors> {
    let pacing = Pacing { concurrency: config.concurrency, speedup: config.arrival_speedup_ratio };
    match &config.source {
        WorkloadSource::Trace(source) => {
            let origin = source.path.display().to_string();
            let Some(reader) = trace else { return Err(not_opened(origin)) };
            let sources = vec![formats::Source { origin, reader }];
            formats::read(source.format, sources, &trace_options(source, config, pacing)).map_err(joined)
        }
        WorkloadSource::Synthetic(synthetic) => synthetic::generate(synthetic, engine_block_size, pacing),
        WorkloadSource::Requests { requests, block_size } => inline::read(requests, *block_size, pacing),
    }
}

fn trace_options(source: &TraceSource, config: &WorkloadConfig, pacing: Pacing) -> formats::Options {
    let format = source.format;
    formats::Options {
        // The usual unit is not asked for, so that it can be called into question.
        time_unit: format
            .usual_time_unit()
            .filter(|usual| *usual != source.time_unit)
            .map(|_| source.time_unit),
        rate: source.rate.map(|rate| (rate.request_rate, rate.arrival)),
        sessions: source.sessions,
        columns: source.columns.clone(),
        block_size: format.has_block_size().then_some(source.block_size),
        max_requests: source.max_requests,
        zero_output: config.zero_output,
        strict: config.strict,
        pacing,
    }
}

/// The problems of one file, which come apart where some are about how it is read.
fn joined(errors: Vec<WorkloadErrors>) -> WorkloadErrors {
    let mut errors = errors.into_iter();
    let mut all = errors.next().expect("a refusal has a reason");
    for more in errors {
        all.problems.extend(more.problems);
        all.unlisted += more.unlisted;
        all.hints.extend(more.hints);
    }
    all
}

fn not_opened(origin: String) -> WorkloadErrors {
    let problem = Problem {
        place: Place::Whole,
        name: None,
        field: String::new(),
        message: "the trace was not opened".into(),
        excerpt: None,
    };
    WorkloadErrors { origin, problems: vec![problem], unlisted: 0, hints: Vec::new() }
}
