//! The folder that results are written to.

use std::fs::File;
use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};

use super::failure::{Failure, Status};
use super::lock::{Lock, Unlocked};
use super::names::Kind;
use crate::report::files::{Batch, is_leftover};

/// A folder of results, all of one run, which no other run writes to meanwhile.
#[derive(Debug)]
pub(super) struct OutputFolder {
    path: PathBuf,
    kind: Kind,
    _lock: Lock,
}

impl OutputFolder {
    /// Whether a folder of this kind can be there: nothing is made yet.
    pub(super) fn look_at(path: &Path, kind: Kind) -> Result<(), Failure> {
        look_at_folder("--output-dir", path)?;
        let (foreign, own) = (kind.foreign(path), kind.name());
        let problem = if let Some((other, file)) = kind.stranger(path) {
            format!("holds a {} ({file}); give the {own} a folder of its own", other.name())
        } else if !foreign.is_empty() {
            let files = foreign.join(", ");
            format!(
                "{files} would be written over, and no {own} has written it; give the {own} a folder of its own"
            )
        } else {
            return Ok(());
        };
        Err(Failure::input(format!("--output-dir {}: {problem}", path.display())))
    }

    /// Makes sure that the folder is there and nobody else's, and tidies up after runs that were killed. What an earlier run
    /// has written stays until there is something to take its place.
    pub(super) fn open(path: &Path, kind: Kind) -> Result<Self, Failure> {
        let failure = |error| Failure::input(format!("--output-dir {}: {error}", path.display()));
        std::fs::create_dir_all(path).map_err(|error| failure(error.to_string()))?;
        let lock = Lock::of(path).map_err(|why| match why {
            Unlocked::Held(holder) => failure(format!("{holder} is writing to it")),
            Unlocked::Failed(error) => {
                let is_full = matches!(
                    error.kind(),
                    io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge
                );
                let status = if is_full { Status::RunFailed } else { Status::BadInput };
                Failure { status, ..failure(error.to_string()) }
            }
        })?;
        Self::look_at(path, kind)?;
        let folder = Self { path: path.to_owned(), kind, _lock: lock };
        folder.tidy().map_err(|error| failure(error.to_string()))?;
        Ok(folder)
    }

    /// Removes files that runs which were killed did not write to their end.
    fn tidy(&self) -> io::Result<()> {
        for entry in std::fs::read_dir(&self.path)? {
            let name = entry?.file_name();
            let Some(file) = name.to_str() else { continue };
            if self.kind.files().iter().any(|name| is_leftover(file, name)) {
                std::fs::remove_file(self.path.join(file))?;
            }
        }
        Ok(())
    }

    /// Where it is.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Where a file of it is.
    pub(super) fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Whether an earlier run has come to its end here.
    pub(super) fn has_answer(&self) -> bool {
        self.file(self.kind.answer()).exists()
    }

    /// A new answer, of which nothing is seen before all of it is there.
    pub(super) fn replacement(&self) -> Replacement<'_> {
        Replacement { folder: self, batch: Batch::concluded_by(self.file(self.kind.answer())) }
    }
}

/// The files of a run that take the place of those of an earlier one, all together.
#[must_use]
pub(super) struct Replacement<'f> {
    folder: &'f OutputFolder,
    batch: Batch,
}

impl Replacement<'_> {
    /// Writes a file.
    pub(super) fn write(
        &mut self,
        name: &str,
        write: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>,
    ) -> Result<(), Failure> {
        self.batch.write(&self.folder.file(name), write).map_err(Failure::run)
    }

    /// A file that grows line by line.
    pub(super) fn open(&mut self, name: &str) -> Result<File, Failure> {
        let path = self.folder.file(name);
        self.batch
            .open(&path)
            .map_err(|error| Failure::run(format!("{} could not be written: {error}", path.display())))
    }

    /// Lets a file of an earlier run go.
    pub(super) fn remove(&mut self, name: &str) {
        self.batch.remove(self.folder.file(name));
    }

    /// Lets a file go by another name, if it is there.
    pub(super) fn take_over(&mut self, from: &str, to: &str) {
        let from = self.folder.file(from);
        if from.exists() {
            self.batch.rename(from, self.folder.file(to));
        }
    }

    /// The folder they belong to.
    pub(super) fn folder(&self) -> &OutputFolder {
        self.folder
    }

    /// Puts all of it in place.
    pub(super) fn put(self) -> Result<(), Failure> {
        self.batch.put().map_err(Failure::run)
    }
}

/// Whether there can be a folder under this path: nothing is made yet.
pub(super) fn look_at_folder(option: &str, path: &Path) -> Result<(), Failure> {
    let there = path.ancestors().find(|part| part.exists());
    match there.filter(|part| !part.is_dir()) {
        Some(part) => {
            let (path, part) = (path.display(), part.display());
            Err(Failure::input(format!("{option} {path}: {part} is a file, not a folder")))
        }
        None => Ok(()),
    }
}

/// Whether a file can be written under this path: nothing is made yet.
pub(super) fn look_at_file(option: &str, path: &Path) -> Result<(), Failure> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let problem = if path.is_dir() {
        "is a folder, not a file".to_owned()
    } else if path.exists() && !path.is_file() {
        // A new file takes the place of an old one, and must not take that of a device or a pipe.
        "is no regular file".to_owned()
    } else if let Some(folder) = folder.filter(|folder| !folder.is_dir()) {
        format!("there is no folder {}", folder.display())
    } else {
        return Ok(());
    };
    Err(Failure::input(format!("{option} {}: {problem}", path.display())))
}
