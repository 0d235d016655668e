//! Where the trials of a search are kept while it runs, and found again when it goes on.

use std::fs::{File, OpenOptions};
use std::io::{self, Seek, SeekFrom, Write};
use std::path::Path;

use super::console::Console;
use super::failure::Failure;
use super::names::{Kind, NEXT_TRIALS, TRIALS};
use super::output::OutputFolder;
use crate::search::{Journal, PastTrial};

/// What an earlier run has left.
#[derive(Default)]
pub(super) struct Past {
    /// The journal to write on.
    pub(super) journal: Option<Box<dyn Write + Send>>,
    /// What it holds.
    pub(super) trials: Vec<PastTrial>,
}

/// Why a search must not begin anew in a folder: it holds the trials of one that never came to an answer.
pub(super) fn unfinished(folder: &Path, kind: Kind) -> Option<Failure> {
    let has_trials = |name: &&str| std::fs::metadata(folder.join(name)).is_ok_and(|file| file.len() > 0);
    let is_answered = folder.join(kind.answer()).exists();
    let names = if is_answered { [NEXT_TRIALS].as_slice() } else { &[NEXT_TRIALS, TRIALS] };
    names.iter().copied().find(|name| has_trials(name)).map(|name| {
        Failure::input(format!(
            "{}: trials of a search that did not finish; --resume goes on with them, and without this file a search begins anew",
            folder.join(name).display()
        ))
    })
}

/// Begins a journal: beside that of an earlier answer, which stays whole until there is another.
pub(super) fn begin(folder: &OutputFolder) -> Result<Past, Failure> {
    let path = folder.file(if folder.has_answer() { NEXT_TRIALS } else { TRIALS });
    let file = File::create(&path)
        .map_err(|error| Failure::input(format!("{} could not be written: {error}", path.display())))?;
    Ok(Past { journal: Some(Box::new(file)), trials: Vec::new() })
}

/// Opens the journal of an earlier run to go on with it: that of a search which was to replace an answer, if there is one.
pub(super) fn resume(folder: &OutputFolder, console: Console) -> Result<Past, Failure> {
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
    Ok(Past { journal: Some(Box::new(file)), trials: journal.trials })
}
