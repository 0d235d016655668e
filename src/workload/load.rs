//! The one door: from the workload of a scenario to its requests.

use std::io::BufRead;

use super::problem::{Place, Problem, Warning, WorkloadErrors};
use super::{Workload, inline, mooncake, synthetic};
use crate::config::scenario::{WorkloadConfig, WorkloadSource};
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
        WorkloadSource::Trace { path, block_size, time_unit, max_requests } => {
            let options = mooncake::Options {
                origin: path.display().to_string(),
                block_size: *block_size,
                time_unit: *time_unit,
                max_requests: *max_requests,
                zero_output: config.zero_output,
                strict: config.strict,
                pacing,
            };
            match trace {
                Some(reader) => mooncake::read(reader, &options),
                None => Err(not_opened(options.origin)),
            }
        }
        WorkloadSource::Synthetic(synthetic) => synthetic::generate(synthetic, engine_block_size, pacing),
        WorkloadSource::Requests { requests, block_size } => inline::read(requests, *block_size, pacing),
    }
}

fn not_opened(origin: String) -> WorkloadErrors {
    let problem = Problem {
        place: Place::Whole,
        name: None,
        field: String::new(),
        message: "the trace was not opened".into(),
    };
    WorkloadErrors { origin, problems: vec![problem], unlisted: 0, hints: Vec::new() }
}
