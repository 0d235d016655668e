//! Files that commands read.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::sync::Arc;

use super::console::Console;
use super::failure::Failure;
use crate::config::scenario::{WorkloadConfig, WorkloadSource};
use crate::config::{self, Document, Override};
use crate::model::Catalogue;
use crate::workload::{self, Workload};

/// Reads and validates a configuration file.
pub(super) fn load_document(path: &Path, overrides: &[Override]) -> Result<Document, Failure> {
    let bytes = std::fs::read(path).map_err(|error| unreadable(path, &error))?;
    let text = String::from_utf8(bytes).map_err(|error| {
        let place = error.utf8_error().valid_up_to();
        Failure::input(format!("{}: not UTF-8 text: byte {} is not", path.display(), place + 1))
    })?;
    let mut document = config::load(&text, path, overrides).map_err(Failure::input)?;
    let facts = read_facts(&mut document);
    let measured = read_measured(path, &mut document);
    Failure::first_or_all([facts.err(), measured.err()])?;
    Ok(document)
}

/// Reads the files of facts that a configuration names.
fn read_facts(document: &mut Document) -> Result<(), Failure> {
    let facts = match document {
        Document::Search(search) => &mut search.facts,
        Document::Scenario(scenario) => &mut scenario.facts,
    };
    let mut problems = Vec::new();
    for file in facts.files_mut() {
        match std::fs::read_to_string(&file.path) {
            Ok(text) => file.content = Some(text.into()),
            Err(error) => problems.push(unreadable(&file.path, &error)),
        }
    }
    Catalogue::with(facts).map_err(|error| problems.push(Failure::input(error))).ok();
    if problems.is_empty() { Ok(()) } else { Failure::first_or_all(problems.into_iter().map(Some)) }
}

/// Reads the files that the document's timing names.
fn read_measured(file: &Path, document: &mut Document) -> Result<(), Failure> {
    let mut problems = Vec::new();
    for measured in document.measured_files_mut() {
        match std::fs::read(&measured.path) {
            Ok(bytes) => measured.content = Some(bytes.into()),
            Err(error) => {
                problems.push(format!("{}: {}", file.display(), unreadable(&measured.path, &error).message));
            }
        }
    }
    if problems.is_empty() { Ok(()) } else { Err(Failure::input(problems.join("\n"))) }
}

/// Opens a file.
pub(super) fn open_file(path: &Path) -> Result<BufReader<File>, Failure> {
    let file = File::open(path).map_err(|error| unreadable(path, &error))?;
    match file.metadata() {
        Ok(metadata) if metadata.is_dir() => {
            Err(Failure::input(format!("{}: is a folder, not a file", path.display())))
        }
        Ok(_) => Ok(BufReader::with_capacity(1 << 16, file)),
        Err(error) => Err(unreadable(path, &error)),
    }
}

fn unreadable(path: &Path, error: &std::io::Error) -> Failure {
    Failure::input(format!("{}: cannot be read: {error}", path.display()))
}

/// Loads the requests of a workload and passes on what its owner should know about them.
///
/// `block_size` is that of the engines.
pub(super) fn load_workload(
    config: &WorkloadConfig,
    block_size: u32,
    console: Console,
) -> Result<Arc<Workload>, Failure> {
    let mut trace = match &config.source {
        WorkloadSource::Trace { path, .. } => Some(open_file(path)?),
        WorkloadSource::Synthetic(_) | WorkloadSource::Requests { .. } => None,
    };
    let reader = trace.as_mut().map(|trace| trace as &mut dyn BufRead);
    let loaded = workload::load(config, reader, block_size).map_err(Failure::input)?;
    for warning in &loaded.warnings {
        console.note(format!("warning: {warning}"));
    }
    Ok(Arc::new(loaded.workload))
}
