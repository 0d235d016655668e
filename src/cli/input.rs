//! Files that commands read.

use std::fs::File;
use std::io::BufReader;
use std::path::Path;
use std::sync::Arc;

use super::console::Console;
use super::failure::Failure;
use crate::config::scenario::{TraceFormat, WorkloadConfig, WorkloadSource};
use crate::config::{Loaded, Override};
use crate::run;
use crate::search::{Plan, Requests};
use crate::workload::{Warning, Workload};

/// Reads and validates a configuration file, and passes on what in it has no effect.
pub(super) fn load_document(
    path: &Path,
    overrides: &[Override],
    console: Console,
) -> Result<Loaded, Failure> {
    let loaded = run::read_document(path, overrides).map_err(Failure::input)?;
    for note in &loaded.notes {
        console.note(note);
    }
    Ok(loaded)
}

/// What a file holds, if that is no more than a table could be.
pub(super) fn read_whole(path: &Path) -> Result<Vec<u8>, Failure> {
    run::read_whole(path).map_err(Failure::input)
}

/// Opens a file.
pub(super) fn open_file(path: &Path) -> Result<BufReader<File>, Failure> {
    run::open_file(path).map_err(Failure::input)
}

/// Loads the requests of a workload and passes on what its owner should know about them.
///
/// `block_size` is that of the engines.
pub(super) fn load_workload(
    config: &WorkloadConfig,
    block_size: u32,
    console: Console,
) -> Result<Arc<Workload>, Failure> {
    let loaded = run::load_workload(config, block_size).map_err(Failure::input)?;
    name_format(config, console);
    pass_on(&loaded.warnings, console);
    Ok(Arc::new(loaded.workload))
}

/// The same for all candidates of a search.
pub(super) fn load_requests(plan: &Plan, console: Console) -> Result<Requests, Failure> {
    let (requests, warnings) = run::load_requests(plan).map_err(Failure::input)?;
    if let Some(workload) = plan.config.workload.of_trial(None) {
        name_format(&workload, console);
    }
    pass_on(&warnings, console);
    Ok(requests)
}

/// Says as what a trace was read, where that is not this program's own form.
fn name_format(config: &WorkloadConfig, console: Console) {
    if let WorkloadSource::Trace(trace) = &config.source
        && trace.format != TraceFormat::Mooncake
    {
        let path = trace.path.display();
        console.note(format!(
            "{path}: {}",
            trace.format.reading(
                trace.rate.map(|rate| rate.request_rate),
                trace.format.usual_time_unit().map(|_| trace.time_unit),
                trace.columns.as_ref()
            )
        ));
    }
}

fn pass_on(warnings: &[Warning], console: Console) {
    for warning in warnings {
        console.note(format!("warning: {warning}"));
    }
}
