//! The folder that results are written to.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use super::failure::Failure;
use crate::report::files::write_atomically;

/// A folder of results, all of one run.
#[derive(Clone, Debug)]
pub(super) struct OutputFolder {
    path: PathBuf,
}

impl OutputFolder {
    /// Makes sure that the folder is there and holds none of `names` from an earlier run.
    pub(super) fn prepare(path: &Path, names: &[&str]) -> Result<Self, Failure> {
        let cannot = |error: io::Error| Failure::input(format!("--output-dir {}: {error}", path.display()));
        std::fs::create_dir_all(path).map_err(cannot)?;
        for name in names {
            match std::fs::remove_file(path.join(name)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(cannot(error)),
                _ => {}
            }
        }
        Ok(Self { path: path.to_owned() })
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

    /// Opens a file that grows line by line.
    pub(super) fn journal(&self, name: &str) -> Result<Box<dyn Write + Send>, Failure> {
        let path = self.path.join(name);
        let file = File::create(&path)
            .map_err(|error| Failure::input(format!("{} could not be written: {error}", path.display())))?;
        Ok(Box::new(file))
    }
}
