//! How results reach the disk: whole or not at all.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use indexmap::IndexMap;
use serde::Serialize;

use super::Summary;
use super::record::{CapacityRecord, Counters, RunRecord, TimingRecord};
use super::scaling::ScalingSummary;
use crate::workload::InputTally;

/// Version of the layout of every result file; it changes when a reader of the old layout would go wrong.
pub const SCHEMA_VERSION: u32 = 1;

/// What `report.json` holds.
#[derive(Clone, Debug, Serialize)]
pub struct Report<'a> {
    schema_version: u32,
    scenario: &'a serde_json::Value,
    summary: &'a Summary,
    counters: &'a Counters,
    timing: &'a IndexMap<&'static str, TimingRecord>,
    #[serde(skip_serializing_if = "IndexMap::is_empty")]
    capacity: &'a IndexMap<&'static str, CapacityRecord>,
    #[serde(skip_serializing_if = "Option::is_none")]
    scaling: Option<ScalingSummary>,
    input: &'a InputTally,
}

impl<'a> Report<'a> {
    /// The report of a replay of `scenario`, given as resolved, on what `input` says was read.
    pub fn new(
        scenario: &'a serde_json::Value,
        summary: &'a Summary,
        record: &'a RunRecord,
        input: &'a InputTally,
    ) -> Self {
        let RunRecord { counters, timing, capacity, scaling, .. } = record;
        let scaling = ScalingSummary::new(scaling);
        Self { schema_version: SCHEMA_VERSION, scenario, summary, counters, timing, capacity, scaling, input }
    }

    /// Writes the report.
    pub fn write(&self, out: impl Write) -> io::Result<()> {
        write_json(self, out)
    }
}

/// Writes `value` as indented JSON with a final line break. Numbers are the shortest that read back as the same.
pub fn write_json(value: &impl Serialize, mut out: impl Write) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut out, value)?;
    out.write_all(b"\n")
}

/// Writes a file under a temporary name in the folder it belongs to and renames it when it is complete, so that
/// `path` holds either what it held before or all of what `write` wrote.
///
/// Any failure, of `write` too, removes the temporary file; the error names `path` and keeps its kind.
pub fn write_atomically(
    path: &Path,
    write: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>,
) -> io::Result<()> {
    replace(path, write).map_err(|error| {
        io::Error::new(error.kind(), format!("{} could not be written: {error}", path.display()))
    })
}

fn replace(path: &Path, write: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>) -> io::Result<()> {
    // A new file takes the place of an old one, and must not take that of a device or a pipe.
    if path.exists() && !path.is_file() {
        return Err(io::Error::other("it is there and no regular file"));
    }
    let (temporary, file) = Temporary::beside(path)?;
    let mut writer = BufWriter::new(file);
    write(&mut writer)?;
    // Closed before it is renamed: some systems refuse to rename an open file.
    drop(writer.into_inner().map_err(io::IntoInnerError::into_error)?);
    temporary.rename(path)
}

/// A file that is removed unless it is renamed.
struct Temporary {
    path: Option<PathBuf>,
}

impl Temporary {
    /// A new file in the folder of `path`, under a name that nobody else uses.
    fn beside(path: &Path) -> io::Result<(Self, File)> {
        let name = path.file_name().ok_or_else(|| io::Error::other("it does not name a file"))?;
        let mut attempt = 0_u64;
        loop {
            let mut hidden = std::ffi::OsString::from(".");
            hidden.push(name);
            hidden.push(format!(".{}-{attempt}.tmp", std::process::id()));
            let temporary = path.with_file_name(hidden);
            match OpenOptions::new().write(true).create_new(true).open(&temporary) {
                Ok(file) => return Ok((Self { path: Some(temporary) }, file)),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => attempt += 1,
                Err(error) => return Err(error),
            }
        }
    }

    fn rename(mut self, to: &Path) -> io::Result<()> {
        if let Some(path) = &self.path {
            fs::rename(path, to)?;
        }
        self.path = None;
        Ok(())
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        if let Some(path) = &self.path {
            // Nothing is left to be told: the failure that leads here is already on its way up.
            let _ = fs::remove_file(path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn a_complete_file_replaces_the_old_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("report.json");
        fs::write(&path, "old, and longer than the new one").unwrap();
        write_atomically(&path, |out| out.write_all(b"new")).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "new");
        assert_eq!(names(folder.path()), ["report.json"]);
    }

    #[test]
    fn a_failed_file_leaves_the_old_one_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("report.json");
        fs::write(&path, "old").unwrap();
        let error = write_atomically(&path, |out| {
            out.write_all(&vec![b'x'; 100_000])?;
            Err(io::Error::new(io::ErrorKind::StorageFull, "no space left"))
        })
        .unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        let message = error.to_string();
        assert!(message.contains("report.json") && message.contains("no space left"), "{message}");
        assert_eq!(fs::read_to_string(&path).unwrap(), "old");
        assert_eq!(names(folder.path()), ["report.json"]);
    }

    #[test]
    fn a_panic_while_writing_leaves_nothing_behind() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("report.json");
        let panic = std::panic::catch_unwind(|| write_atomically(&path, |_| panic!("half way")));
        assert!(panic.is_err());
        assert_eq!(names(folder.path()), Vec::<String>::new());
    }

    #[test]
    fn a_name_that_is_taken_is_passed_over() {
        let folder = tempfile::tempdir().unwrap();
        let taken = format!(".report.json.{}-0.tmp", std::process::id());
        fs::write(folder.path().join(&taken), "somebody else's").unwrap();
        write_atomically(&folder.path().join("report.json"), |out| out.write_all(b"new")).unwrap();
        assert_eq!(names(folder.path()), [taken, "report.json".to_owned()]);
    }

    #[test]
    fn a_folder_that_does_not_exist_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let error = write_atomically(&folder.path().join("no/where.json"), |_| Ok(())).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        assert!(error.to_string().contains("where.json"), "{error}");
        assert!(write_atomically(Path::new("/"), |_| Ok(())).is_err());
    }

    #[test]
    fn a_folder_in_the_way_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("report.json")).unwrap();
        write_atomically(&folder.path().join("report.json"), |_| Ok(())).unwrap_err();
        assert_eq!(names(folder.path()), ["report.json"]);
    }
}
