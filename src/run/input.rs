//! Files that runs read.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::sync::Arc;

use super::RunError;
use crate::config::facts::FactFiles;
use crate::config::scenario::{WorkloadConfig, WorkloadSource};
use crate::config::{self, Document, Override};
use crate::model::Catalogue;
use crate::search::{Branch, Plan, Portion, Prepared, Requests};
use crate::serving::Traffic;
use crate::workload::{self, Loaded, Warning};

/// Reads and validates a configuration file, and the files that it names and whose content belongs to it.
pub(crate) fn read_document(path: &Path, overrides: &[Override]) -> Result<config::Loaded, RunError> {
    document(&read_text(path)?, path, overrides)
}

/// The same of a text that stands at `path`.
pub(crate) fn document(text: &str, path: &Path, overrides: &[Override]) -> Result<config::Loaded, RunError> {
    let mut loaded = config::load_with_places(text, path, overrides)
        .map_err(|error| RunError::Input(error.to_string()))?;
    let mut problems = read_facts(&mut loaded.document);
    problems.extend(read_measured(&mut loaded.document));
    if problems.is_empty() { Ok(loaded) } else { Err(RunError::Input(loaded.places.explain(problems))) }
}

/// Reads the files of facts that a configuration names; returns what is wrong with them, each by its key.
fn read_facts(document: &mut Document) -> Vec<String> {
    let facts = match document {
        Document::Search(search) => &mut search.facts,
        Document::Scenario(scenario) => &mut scenario.facts,
    };
    let mut problems = Vec::new();
    for (key, file) in facts.files_by_key() {
        match read_text(&file.path) {
            Ok(text) => {
                file.content = Some(text.into());
                let one = FactFiles::of(&key, file);
                problems.extend(Catalogue::with(&one).err().map(|error| format!("{key}: {error}")));
            }
            Err(error) => problems.push(format!("{key}.path: {error}")),
        }
    }
    problems
}

/// Reads the files that the document's timing names; returns what is wrong with them, each by its key.
fn read_measured(document: &mut Document) -> Vec<String> {
    let mut problems = Vec::new();
    for (key, measured) in document.measured_files_mut() {
        match read_whole(&measured.path) {
            Ok(bytes) => measured.content = Some(bytes.into()),
            Err(error) => problems.push(format!("{key}: {error}")),
        }
    }
    problems
}

/// Longest file that is read as a whole. Traces are not.
const MOST_BYTES: u64 = 64 << 20;

/// What a text file holds.
fn read_text(path: &Path) -> Result<String, RunError> {
    String::from_utf8(read_whole(path)?).map_err(|error| {
        let place = error.utf8_error().valid_up_to();
        RunError::Input(format!("{}: not UTF-8 text: byte {} is not", path.display(), place + 1))
    })
}

/// What a file holds, if that is no more than a configuration or a table could be.
pub(crate) fn read_whole(path: &Path) -> Result<Vec<u8>, RunError> {
    let mut bytes = Vec::new();
    let read = open_file(path)?.take(MOST_BYTES + 1).read_to_end(&mut bytes);
    match read {
        Ok(length) if length as u64 > MOST_BYTES => {
            let most = MOST_BYTES >> 20;
            Err(RunError::Input(format!("{}: is longer than {most} MiB, as no such file is", path.display())))
        }
        Ok(_) => Ok(bytes),
        Err(error) => Err(unreadable(path, &error)),
    }
}

/// Opens a file.
pub(crate) fn open_file(path: &Path) -> Result<BufReader<File>, RunError> {
    let file = File::open(path).map_err(|error| unreadable(path, &error))?;
    match file.metadata() {
        Ok(metadata) if metadata.is_dir() => {
            Err(RunError::Input(format!("{}: is a folder, not a file", path.display())))
        }
        Ok(_) => Ok(BufReader::with_capacity(1 << 16, file)),
        Err(error) => Err(unreadable(path, &error)),
    }
}

fn unreadable(path: &Path, error: &std::io::Error) -> RunError {
    RunError::Input(format!("{}: cannot be read: {error}", path.display()))
}

/// Loads the requests of a workload for engines with blocks of so many tokens.
pub(crate) fn load_workload(config: &WorkloadConfig, block_size: u32) -> Result<Loaded, RunError> {
    let mut trace = match &config.source {
        WorkloadSource::Trace(trace) => Some(
            open_file(&trace.path)
                .map_err(|error| RunError::Input(format!("workload.trace_path: {error}")))?,
        ),
        WorkloadSource::Synthetic(_) | WorkloadSource::Requests { .. } => None,
    };
    let reader = trace.as_mut().map(|trace| trace as &mut dyn BufRead);
    workload::load(config, reader, block_size).map_err(|error| RunError::Input(error.to_string()))
}

/// The requests of a search, and what their owner should know about them; those of a load that depends on the candidate are
/// made when it is known.
pub(crate) fn load_requests(plan: &Plan) -> Result<(Requests, Vec<Warning>), RunError> {
    let Some(whole) = plan.config.workload.of_trial(None) else {
        return Ok((Requests::Generated, Vec::new()));
    };
    let block_sizes: BTreeSet<u32> = plan.branches.iter().map(Branch::block_size).collect();
    let (mut prepared, mut warnings) = (Vec::new(), Vec::new());
    let prepare = |workload: &WorkloadConfig, prepared: &mut Vec<Prepared>| -> Result<_, RunError> {
        let mut warnings = Vec::new();
        for &block_size in &block_sizes {
            let loaded = load_workload(workload, block_size)?;
            let traffic = Traffic::new(Arc::new(loaded.workload), block_size);
            prepared.push(Prepared { workload: workload.clone(), traffic });
            warnings.extend(loaded.warnings);
        }
        Ok(warnings)
    };
    warnings.extend(prepare(&whole, &mut prepared)?);
    if let Some(fidelity) = &plan.config.sweep.fidelity {
        let portions = Portion::all(fidelity, Requests::trace_rows(&prepared));
        for portion in portions.map_err(|refusal| RunError::Input(refusal.to_string()))? {
            // What is wrong with a portion has been said of the whole.
            prepare(&portion.of(whole.clone()), &mut prepared)?;
        }
    }
    Ok((Requests::Shared(prepared), warnings))
}
