//! The folder that results are written to.

use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Seek, Write};
use std::path::{Path, PathBuf};

use super::failure::Failure;
use crate::report::files::write_atomically;

/// A folder of results, all of one run.
#[derive(Clone, Debug)]
pub(super) struct OutputFolder {
    path: PathBuf,
}

impl OutputFolder {
    /// Whether a folder can be there: nothing is made yet.
    pub(super) fn look_at(path: &Path) -> Result<(), Failure> {
        look_at_folder("--output-dir", path)
    }

    /// Makes sure that the folder is there and holds none of `names` from an earlier run.
    pub(super) fn prepare(path: &Path, names: &[&str]) -> Result<Self, Failure> {
        let folder = Self { path: path.to_owned() };
        std::fs::create_dir_all(path).map_err(|error| folder.failure(&error))?;
        names.iter().try_for_each(|name| folder.remove(name))?;
        Ok(folder)
    }

    /// Removes a file of an earlier run, if it is there.
    pub(super) fn remove(&self, name: &str) -> Result<(), Failure> {
        match std::fs::remove_file(self.path.join(name)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(self.failure(&error)),
            _ => Ok(()),
        }
    }

    fn failure(&self, error: &io::Error) -> Failure {
        Failure::input(format!("--output-dir {}: {error}", self.path.display()))
    }

    /// Where it is.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Writes a file, whole or not at all.
    pub(super) fn write(
        &self,
        name: &str,
        write: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>,
    ) -> Result<(), Failure> {
        write_atomically(&self.path.join(name), write).map_err(Failure::run)
    }

    /// What a file that grows line by line holds; nothing if it is not there.
    pub(super) fn read_journal(&self, name: &str) -> Result<Vec<u8>, Failure> {
        let path = self.path.join(name);
        match std::fs::read(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            result => {
                result.map_err(|error| Failure::input(format!("{} cannot be read: {error}", path.display())))
            }
        }
    }

    /// Opens a file that grows line by line after its first `length` bytes; what follows these is cut off.
    pub(super) fn append_to_journal(
        &self,
        name: &str,
        length: u64,
    ) -> Result<Box<dyn Write + Send>, Failure> {
        let path = self.path.join(name);
        let open = || {
            let mut file = OpenOptions::new().create(true).truncate(false).write(true).open(&path)?;
            file.set_len(length)?;
            file.seek(io::SeekFrom::End(0))?;
            Ok(file)
        };
        let file = open().map_err(|error: io::Error| {
            Failure::input(format!("{} could not be written: {error}", path.display()))
        })?;
        Ok(Box::new(file))
    }

    /// Opens a file that grows line by line.
    pub(super) fn journal(&self, name: &str) -> Result<Box<dyn Write + Send>, Failure> {
        let path = self.path.join(name);
        let file = File::create(&path)
            .map_err(|error| Failure::input(format!("{} could not be written: {error}", path.display())))?;
        Ok(Box::new(file))
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
