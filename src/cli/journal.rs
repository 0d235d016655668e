//! Where the trials of a search and its configuration are kept while it runs, and found again when it goes on.

use std::fs::{File, OpenOptions};
use std::io::{self, Seek, SeekFrom, Write};
use std::path::Path;

use super::console::Console;
use super::failure::Failure;
use super::lock;
use super::names::{CONFIG, CONFIG_HEADER, Kind, NEXT_CONFIG, NEXT_TRIALS, TRIALS};
use super::output::{OutputFolder, Replacement};
use super::results::{changes, how_it_ended, listed};
use crate::config::Document;
use crate::config::search::SmartSearchConfig;
use crate::report::files::write_atomically;
use crate::run;
use crate::search::{Journal, PastTrial};

const MAX_ROUNDS: &str = "sweep.max_rounds";

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
    let there: Vec<&str> = names.iter().copied().filter(has_trials).collect();
    there.first().map(|name| {
        if let Some(writer) = lock::writer(folder) {
            return Failure::input(format!("--output-dir {}: {writer} is writing to it", folder.display()));
        }
        let without = if there.len() > 1 { format!("{NEXT_TRIALS} and {TRIALS}") } else { "this file".into() };
        let what = kind.name();
        let how = if is_answered { "did not finish" } else { how_it_ended(folder, kind) };
        Failure::input(format!(
            "{}: trials of a {what} that {how}; --resume goes on with them, and without {without} a {what} begins anew",
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

/// What differs between a configuration and an earlier one.
pub(super) struct Changes {
    /// What another trial may come of, by path.
    decisive: Vec<(String, String)>,
    /// What decides how long a search goes on and how it is run, the wall clock's say included, and no figure of any trial.
    harmless: Vec<(String, String)>,
}

impl Changes {
    /// From the configuration in a file; nothing if there is none.
    pub(super) fn since(earlier: &Path, config: &SmartSearchConfig) -> Option<Self> {
        const HARMLESS: [&str; 3] = [MAX_ROUNDS, "sweep.parallel_evals", "sweep.max_eval_seconds"];
        let Document::Search(earlier) = run::read_document(earlier, &[]).ok()?.document else { return None };
        let changes = changes(&earlier.to_json(), &config.to_json());
        let (harmless, decisive) =
            changes.into_iter().partition(|(path, _)| HARMLESS.contains(&path.as_str()));
        Some(Self { decisive, harmless })
    }

    /// Since the trials in a folder.
    pub(super) fn since_trials(folder: &Path, config: &SmartSearchConfig) -> Option<Self> {
        // A run that was killed while its answer took its place may have taken its configuration there already.
        let names = [configuration_name(folder), CONFIG];
        names.iter().find_map(|name| Self::since(&folder.join(name), config))
    }

    /// Whether it is the same search.
    pub(super) fn are_harmless(&self) -> bool {
        self.decisive.is_empty()
    }

    /// In words, behind those that refuse trials.
    pub(super) fn in_words(&self, about_rounds: bool) -> String {
        let rounds = || self.harmless.iter().filter(|(path, _)| about_rounds && path == MAX_ROUNDS);
        let told: Vec<_> = self.decisive.iter().chain(rounds()).cloned().collect();
        if !told.is_empty() {
            format!("; in the configuration, {}", listed(&told))
        } else if self.harmless.is_empty() {
            "; the configuration has not (paths of files apart)".to_owned()
        } else {
            format!(
                "; the configuration has not (paths of files apart, and {}, which may change)",
                listed(&self.harmless)
            )
        }
    }
}
