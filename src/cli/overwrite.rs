//! No run writes over what it reads, nor one of its files over another.

use std::path::{Path, PathBuf};

use super::failure::Failure;
use super::names::Kind;
use crate::config::Document;
use crate::config::scenario::WorkloadSource;
use crate::config::search::LoadShape;

/// A file of a run: what it is called, and where it is.
pub(super) type RunFile = (String, PathBuf);

/// Every file that a run of a document reads, its own among them.
pub(super) fn inputs(file: &Path, document: &Document) -> Vec<RunFile> {
    let mut document = document.clone();
    let mut files = vec![("the configuration".to_owned(), file.to_owned())];
    files.extend(
        document.measured_files_mut().into_iter().map(|(key, measured)| (key, measured.path.clone())),
    );
    let (facts, trace) = match &mut document {
        Document::Search(search) => {
            let trace = match &search.workload.load {
                LoadShape::Trace(trace) => Some(&trace.source.path),
                _ => None,
            };
            (&mut search.facts, trace.cloned())
        }
        Document::Scenario(scenario) => {
            let trace = match &scenario.workload.source {
                WorkloadSource::Trace(trace) => Some(&trace.path),
                _ => None,
            };
            (&mut scenario.facts, trace.cloned())
        }
    };
    files.extend(facts.files_by_key().map(|(key, fact)| (key, fact.path.clone())));
    files.extend(trace.map(|path| ("workload.trace_path".to_owned(), path)));
    files
}

/// Every file that a run of a kind may write to its folder.
pub(super) fn outputs(folder: Option<&Path>, kind: Kind) -> Vec<RunFile> {
    folder.map(|folder| files("--output-dir", folder, kind)).unwrap_or_default()
}

/// Every file that a folder of a kind may hold.
pub(super) fn files(called: &str, folder: &Path, kind: Kind) -> Vec<RunFile> {
    kind.files().iter().map(|name| (called.to_owned(), folder.join(name))).collect()
}

/// Refuses outputs that are inputs, or other outputs, by whatever name.
pub(super) fn refuse(inputs: &[RunFile], outputs: &[RunFile]) -> Result<(), Failure> {
    let inputs: Vec<_> = inputs.iter().map(|file| (real(&file.1), file)).collect();
    let mut seen: Vec<(PathBuf, &RunFile)> = Vec::new();
    let mut problems = Vec::new();
    for output in outputs {
        let (path, (option, name)) = (real(&output.1), output);
        let name = name.display();
        if let Some((_, (what, _))) = inputs.iter().find(|(input, _)| *input == path) {
            problems.push(format!(
                "{option}: {name} would be written over, and it is read: it is {what}; write to another place"
            ));
        } else if let Some((_, (other, _))) = seen.iter().find(|(other, _)| *other == path) {
            problems.push(format!("{option}: {name} is written by {other} too; give another name"));
        }
        seen.push((path, output));
    }
    if problems.is_empty() { Ok(()) } else { Err(Failure::input(problems.join("\n"))) }
}

/// The same for every spelling of a path, and for every link to it; the file need not be there.
fn real(path: &Path) -> PathBuf {
    if let Ok(path) = path.canonicalize() {
        return path;
    }
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    match (path.file_name(), folder == path) {
        (Some(name), false) => real(folder).join(name),
        _ => path.to_owned(),
    }
}
