//! The folder `shared` beside the repository: real traces and reference results that are not ours to pass on.

use std::path::{Path, PathBuf};

/// A file of that folder, or `None` with a note when it is not there.
pub(crate) fn shared_file(name: &str) -> Option<PathBuf> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .skip(1)
        .take(2)
        .map(|folder| folder.join("shared").join(name))
        .find(|path| path.exists());
    if path.is_none() {
        eprintln!("skipped: no ../shared/{name}");
    }
    path
}
