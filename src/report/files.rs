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
    let mut batch = Batch::default();
    batch.write(path, write)?;
    batch.put()
}

/// Files that take their places all together: each is complete under a temporary name before the first is renamed.
///
/// What is dropped before that leaves everything as it was.
#[derive(Debug, Default)]
pub struct Batch {
    ready: Vec<(Temporary, PathBuf)>,
    stale: Vec<PathBuf>,
    moved: Vec<(PathBuf, PathBuf)>,
    /// Tells by being there that all of the others are.
    last: Option<PathBuf>,
}

impl Batch {
    /// A batch of which the file at `path`, if it is one of them, is gone before the first other file takes its place, and is
    /// in its own after the last: where it is there, none of the others is of an earlier batch.
    pub fn concluded_by(path: PathBuf) -> Self {
        Self { last: Some(path), ..Self::default() }
    }

    /// Writes what is going to be at `path` under a temporary name beside it.
    ///
    /// # Errors
    /// Any failure, of `write` too; it names `path` and keeps its kind.
    pub fn write(
        &mut self,
        path: &Path,
        write: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>,
    ) -> io::Result<()> {
        self.prepare(path, write).map_err(|error| unwritten(path, &error))
    }

    fn prepare(
        &mut self,
        path: &Path,
        write: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>,
    ) -> io::Result<()> {
        let mut writer = BufWriter::new(self.open(path)?);
        write(&mut writer)?;
        // Closed before it is renamed: some systems refuse to rename an open file.
        drop(writer.into_inner().map_err(io::IntoInnerError::into_error)?);
        Ok(())
    }

    /// A file under a temporary name that is going to be at `path`.
    ///
    /// # Errors
    /// When it cannot be made, or `path` is something else than a file.
    pub fn open(&mut self, path: &Path) -> io::Result<File> {
        // A new file takes the place of an old one, and must not take that of a device or a pipe.
        if path.exists() && !path.is_file() {
            return Err(io::Error::other("it is there and no regular file"));
        }
        let (temporary, file) = Temporary::beside(path)?;
        self.ready.push((temporary, path.to_owned()));
        Ok(file)
    }

    /// Lets `path` be gone afterwards.
    pub fn remove(&mut self, path: PathBuf) {
        self.stale.push(path);
    }

    /// Lets what is at `from` be at `to` afterwards.
    pub fn rename(&mut self, from: PathBuf, to: PathBuf) {
        self.moved.push((from, to));
    }

    /// Puts all of it in place.
    ///
    /// # Errors
    /// When a file cannot be renamed or removed; those before it are in their places then.
    pub fn put(self) -> io::Result<()> {
        let is_last = |path: &PathBuf| self.last.as_ref() == Some(path);
        let (last, ready): (Vec<_>, Vec<_>) = self.ready.into_iter().partition(|(_, path)| is_last(path));
        for (_, path) in &last {
            remove(path)?;
        }
        place(ready)?;
        self.stale.iter().try_for_each(|path| remove(path))?;
        let rename =
            |(from, to): &(PathBuf, PathBuf)| fs::rename(from, to).map_err(|error| unwritten(to, &error));
        self.moved.iter().try_for_each(rename)?;
        place(last)
    }
}

fn place(files: Vec<(Temporary, PathBuf)>) -> io::Result<()> {
    let mut files = files.into_iter();
    files.try_for_each(|(file, path)| file.rename(&path).map_err(|error| unwritten(&path, &error)))
}

fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(unwritten(path, &error)),
        _ => Ok(()),
    }
}

fn unwritten(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{} could not be written: {error}", path.display()))
}

/// Whether a file in the folder of `name` is what a process that was killed while it wrote `name` has left.
pub fn is_leftover(file: &str, name: &str) -> bool {
    let number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let rest = file.strip_prefix('.').and_then(|file| file.strip_prefix(name));
    let numbers = rest.and_then(|rest| rest.strip_prefix('.')).and_then(|rest| rest.strip_suffix(".tmp"));
    numbers
        .and_then(|numbers| numbers.split_once('-'))
        .is_some_and(|(process, attempt)| number(process) && number(attempt))
}

/// A file that is removed unless it is renamed.
#[derive(Debug)]
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
    fn a_batch_takes_its_places_together_or_not_at_all() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        for name in ["a", "b", "stale", "next"] {
            fs::write(path(name), "old").unwrap();
        }
        let batch = |last: io::Result<()>| {
            let mut batch = Batch::default();
            batch.write(&path("a"), |out| out.write_all(b"new"))?;
            batch.remove(path("stale"));
            batch.remove(path("absent"));
            batch.rename(path("next"), path("b"));
            batch.write(&path("c"), |_| last)?;
            batch.put()
        };
        let error = batch(Err(io::Error::other("no"))).unwrap_err();
        assert!(error.to_string().ends_with("c could not be written: no"), "{error}");
        assert_eq!(names(folder.path()), ["a", "b", "next", "stale"]);
        assert_eq!(fs::read_to_string(path("a")).unwrap(), "old");
        batch(Ok(())).unwrap();
        assert_eq!(names(folder.path()), ["a", "b", "c"]);
        assert_eq!(fs::read_to_string(path("a")).unwrap(), "new");
    }

    #[test]
    fn the_file_that_concludes_a_batch_is_there_when_all_others_are() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let batch = || {
            let mut batch = Batch::concluded_by(path("answer"));
            batch.write(&path("answer"), |out| out.write_all(b"new")).unwrap();
            batch.write(&path("best"), |out| out.write_all(b"new")).unwrap();
            batch
        };
        let renew = |name: &str| fs::write(path(name), "old").unwrap();
        renew("answer");
        // Cut off at the first file, by a folder in its place.
        let cut_off = batch();
        fs::create_dir_all(path("best/full")).unwrap();
        cut_off.put().unwrap_err();
        assert_eq!(names(folder.path()), ["best"]);
        fs::remove_dir_all(path("best")).unwrap();
        // Cut off at the last of the others.
        renew("answer");
        renew("best");
        let mut cut_off = batch();
        cut_off.rename(path("absent"), path("trials"));
        cut_off.put().unwrap_err();
        assert_eq!(names(folder.path()), ["best"]);
        renew("answer");
        batch().put().unwrap();
        assert_eq!(["answer", "best"].map(|name| fs::read_to_string(path(name)).unwrap()), ["new", "new"]);
    }

    #[test]
    fn leftovers_are_told_by_their_names() {
        assert!(is_leftover(".report.json.123-0.tmp", "report.json"));
        for other in [
            "report.json",
            ".report.json.tmp",
            ".report.json.1-.tmp",
            ".report.json.a-0.tmp",
            ".other.json.1-0.tmp",
            "report.json.1-0.tmp",
        ] {
            assert!(!is_leftover(other, "report.json"), "{other}");
        }
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
