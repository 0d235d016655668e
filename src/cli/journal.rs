//! Where the trials of a search and its configuration are kept while it runs, and found again when it goes on.

use std::fs::{File, OpenOptions};
use std::io::{self, Seek, SeekFrom, Write};
use std::path::Path;

use super::console::Console;
use super::failure::Failure;
use super::lock;
use super::names::{CONFIG, CONFIG_HEADER, Kind, NEXT_CONFIG, NEXT_TRIALS, TRIALS};
use super::output::{OutputFolder, Replacement};
use super::results::changes;
use crate::config::Document;
use crate::config::search::SmartSearchConfig;
use crate::report::files::write_atomically;
use crate::run;
use crate::search::{Journal, PastTrial};

/// What an earlier run has left.
#[derive(Default)]
pub(super) struct Past {
    /// The journal to write on.
    pub(super) journal: Option<Box<dyn Write + Send>>,
    /// What it holds.
    pub(super) trials: Vec<PastTrial>,
}

/// Why a search must not begin anew in a folder: it holds the trials of one that never came to an answer, or has not yet.
pub(super) fn unfinished(folder: &Path, kind: Kind) -> Option<Failure> {
    let has_trials = |name: &&str| std::fs::metadata(folder.join(name)).is_ok_and(|file| file.len() > 0);
    let is_answered = folder.join(kind.answer()).exists();
    let names = if is_answered { [NEXT_TRIALS].as_slice() } else { &[NEXT_TRIALS, TRIALS] };
    names.iter().copied().find(|name| has_trials(name)).map(|name| {
        if let Some(writer) = lock::writer(folder) {
            return Failure::input(format!("--output-dir {}: {writer} is writing to it", folder.display()));
        }
        Failure::input(format!(
            "{}: trials of a search that did not finish; --resume goes on with them, and without this file a search begins anew",
            folder.join(name).display()
        ))
    })
}

/// Begins a journal: beside that of an earlier answer, which stays whole until there is another.
pub(super) fn begin(folder: &OutputFolder, config: &SmartSearchConfig) -> Result<Past, Failure> {
    let path = folder.file(if folder.has_answer() { NEXT_TRIALS } else { TRIALS });
    let file = File::create(&path)
        .map_err(|error| Failure::input(format!("{} could not be written: {error}", path.display())))?;
    keep_configuration(folder, config)?;
    Ok(Past { journal: Some(Box::new(file)), trials: Vec::new() })
}

/// Opens the journal of an earlier run to go on with it: that of a search which was to replace an answer, if there is one.
pub(super) fn resume(
    folder: &OutputFolder,
    config: &SmartSearchConfig,
    console: Console,
) -> Result<Past, Failure> {
    let next = folder.file(NEXT_TRIALS);
    let path = if next.exists() { next } else { folder.file(TRIALS) };
    let bytes = match std::fs::read(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        read => {
            read.map_err(|error| Failure::input(format!("{} cannot be read: {error}", path.display())))?
        }
    };
    let journal = Journal::read(&bytes)
        .map_err(|error| Failure::input(format!("--resume: {}: {error}", path.display())))?;
    console.note(format!("resuming after {} trials", journal.trials.len()));
    if journal.is_torn {
        let name = path.file_name().unwrap_or_default().display();
        console.note(format!("{name}: the last line was cut off and has been removed"));
    }
    let open = || {
        let mut file = OpenOptions::new().create(true).truncate(false).write(true).open(&path)?;
        file.set_len(journal.length)?;
        file.seek(SeekFrom::End(0))?;
        Ok(file)
    };
    let file = open().map_err(|error: io::Error| {
        Failure::input(format!("{} could not be written: {error}", path.display()))
    })?;
    if journal.trials.is_empty() {
        keep_configuration(folder, config)?;
    }
    Ok(Past { journal: Some(Box::new(file)), trials: journal.trials })
}

/// Writes down what the trials of a journal that has just begun are trials of.
fn keep_configuration(folder: &OutputFolder, config: &SmartSearchConfig) -> Result<(), Failure> {
    let text = configuration_text(config, folder.path());
    let path = folder.file(configuration_name(folder.path()));
    write_atomically(&path, |out| out.write_all(text.as_bytes())).map_err(Failure::run)
}

/// Puts the configuration of an answer beside it.
pub(super) fn write_configuration(
    config: &SmartSearchConfig,
    files: &mut Replacement<'_>,
) -> Result<(), Failure> {
    let text = configuration_text(config, files.folder().path());
    files.write(CONFIG, |out| out.write_all(text.as_bytes()))?;
    files.remove(NEXT_CONFIG);
    Ok(())
}

/// Where the configuration is of the trials that a search would go on from.
fn configuration_name(folder: &Path) -> &'static str {
    if folder.join(NEXT_TRIALS).exists() { NEXT_CONFIG } else { CONFIG }
}

fn configuration_text(config: &SmartSearchConfig, folder: &Path) -> String {
    CONFIG_HEADER.to_owned() + &config.with_paths_from(folder).to_yaml()
}

/// Where a configuration is another than that of the trials in a folder, in words; nothing if that is not known.
pub(super) fn changes_since(folder: &Path, config: &SmartSearchConfig) -> Option<String> {
    let earlier = folder.join(configuration_name(folder));
    let Document::Search(earlier) = run::read_document(&earlier, &[]).ok()?.document else { return None };
    let changes = changes(&earlier.to_json(), &config.to_json());
    Some(if changes.is_empty() {
        "the configuration has not (paths of files apart)".to_owned()
    } else {
        format!("in the configuration, {changes}")
    })
}
