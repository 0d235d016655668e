//! One run at a time in a folder.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// The file that is locked; it says by whom, and is gone when the run has ended.
const NAME: &str = ".spica.lock";

/// How often a lock is asked for while others look whether anybody holds it.
const ATTEMPTS: u32 = 500;
const BETWEEN_ATTEMPTS: Duration = Duration::from_millis(10);

/// A folder that no other run writes to. The system takes the lock from a process that is killed; the file it leaves behind locks
/// nothing.
#[derive(Debug)]
pub(super) struct Lock {
    path: PathBuf,
    /// Open for as long as the lock is held.
    _file: File,
}

/// Why a folder is not locked.
#[derive(Debug)]
pub(super) enum Unlocked {
    /// Another run holds it, and says who it is.
    Held(String),
    Failed(io::Error),
}

impl Lock {
    /// Locks a folder.
    pub(super) fn of(folder: &Path) -> Result<Self, Unlocked> {
        let path = folder.join(NAME);
        let own = signature();
        let mut attempts = ATTEMPTS;
        loop {
            let mut file = open(&path).map_err(Unlocked::Failed)?;
            match file.try_lock() {
                Ok(()) => {}
                // Whoever only looks for a writer shares the lock, and not for long.
                Err(TryLockError::WouldBlock) if attempts > 1 && !is_held(&file) => {
                    attempts -= 1;
                    drop(file);
                    std::thread::sleep(BETWEEN_ATTEMPTS);
                    continue;
                }
                Err(TryLockError::WouldBlock) => return Err(Unlocked::Held(holder(&mut file))),
                Err(TryLockError::Error(error)) if error.kind() == io::ErrorKind::Unsupported => {
                    tracing::warn!(
                        "{}: the file system has no locks: nothing keeps two runs apart",
                        folder.display()
                    );
                }
                Err(TryLockError::Error(error)) => return Err(Unlocked::Failed(error)),
            }
            if let Err(error) = sign(&mut file, &own) {
                let _ = std::fs::remove_file(&path);
                return Err(Unlocked::Failed(error));
            }
            // The last holder may have removed the file between our opening and our locking it.
            if std::fs::read_to_string(&path).is_ok_and(|text| text == own) {
                return Ok(Self { path, _file: file });
            }
        }
    }
}

/// Who writes to a folder at the moment, if anybody does.
pub(super) fn writer(folder: &Path) -> Option<String> {
    let mut file = OpenOptions::new().read(true).write(true).open(folder.join(NAME)).ok()?;
    is_held(&file).then(|| holder(&mut file))
}

/// Whether a run holds the lock of a file, and not only others who look for one.
fn is_held(file: &File) -> bool {
    matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock))
}

impl Drop for Lock {
    fn drop(&mut self) {
        // A file that cannot be removed locks nothing once this process has closed it.
        let _ = std::fs::remove_file(&self.path);
    }
}

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)
}

fn sign(file: &mut File, own: &str) -> io::Result<()> {
    file.set_len(0)?;
    file.rewind()?;
    file.write_all(own.as_bytes())
}

/// This process for people, and what tells its locks apart.
fn signature() -> String {
    static LOCKS: AtomicU32 = AtomicU32::new(0);
    let words: Vec<String> =
        std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned()).collect();
    let number = LOCKS.fetch_add(1, Ordering::Relaxed);
    format!("process {} (spica {})\n{number}\n", std::process::id(), words.join(" "))
}

fn holder(file: &mut File) -> String {
    let mut text = String::new();
    let read = file.read_to_string(&mut text);
    let name = read.ok().and_then(|_| text.lines().next());
    name.unwrap_or("another run").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_holder_at_a_time_and_what_a_killed_one_left_is_no_lock() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join(NAME), "process 1 (killed long ago)").unwrap();
        let first = Lock::of(folder.path()).unwrap();
        let Err(Unlocked::Held(by)) = Lock::of(folder.path()) else { panic!("it is held") };
        assert!(by.starts_with(&format!("process {} (spica", std::process::id())), "{by}");
        assert_eq!(writer(folder.path()), Some(by));
        drop(first);
        assert_eq!(writer(folder.path()), None);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
        drop(Lock::of(folder.path()).unwrap());
        assert!(matches!(Lock::of(&folder.path().join("absent")), Err(Unlocked::Failed(_))));
    }

    #[test]
    fn whoever_looks_for_a_writer_and_is_held_up_keeps_none_out() {
        let folder = tempfile::tempdir().unwrap();
        let looking = open(&folder.path().join(NAME)).unwrap();
        assert!(!is_held(&looking), "nobody holds it, and now it is shared");
        std::thread::scope(|scope| {
            let locking = scope.spawn(|| Lock::of(folder.path()).is_ok());
            std::thread::sleep(Duration::from_millis(150));
            assert!(!locking.is_finished(), "the lock is shared still");
            drop(looking);
            assert!(locking.join().unwrap());
        });
    }

    #[test]
    fn whoever_looks_for_a_writer_keeps_none_out() {
        let folder = tempfile::tempdir().unwrap();
        let leave_a_file =
            || std::fs::write(folder.path().join(NAME), "process 1 (killed long ago)").unwrap();
        let is_over = AtomicU32::new(0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while is_over.load(Ordering::SeqCst) == 0 {
                    writer(folder.path());
                    std::thread::sleep(Duration::from_micros(50));
                }
            });
            let locked = (0..500).filter(|_| {
                leave_a_file();
                Lock::of(folder.path()).is_ok()
            });
            let locked = locked.count();
            is_over.store(1, Ordering::SeqCst);
            assert_eq!(locked, 500);
        });
    }

    #[test]
    fn many_at_once_take_turns() {
        let folder = tempfile::tempdir().unwrap();
        let inside = AtomicU32::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let mut held = 0;
                    while held < 100 {
                        if let Ok(_lock) = Lock::of(folder.path()) {
                            held += 1;
                            assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                            inside.fetch_sub(1, Ordering::SeqCst);
                        }
                    }
                });
            }
        });
    }
}
