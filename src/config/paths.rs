//! Where files are, seen from the folder of the text that names them.

use std::path::{Component, Path, PathBuf};

/// A folder as the way there from the working directory, so that what starts there does not depend on how it was written.
pub(super) fn from_here(folder: &Path) -> PathBuf {
    match std::path::absolute(".") {
        Ok(here) if folder.is_absolute() && beyond(folder, &here).0 > 0 => between(folder, &here),
        _ => folder.to_owned(),
    }
}

/// The path that leads from `folder` to where `path` leads from the working directory: by names, or an absolute one where a
/// symbolic link on the way makes names lead elsewhere.
pub(super) fn rebased(path: &Path, folder: &Path) -> PathBuf {
    let by_names = rebased_by_names(path, folder);
    let (Some(folder), Ok(wanted)) = (real(folder), path.canonicalize()) else { return by_names };
    let leads_there = tidy(&folder.join(&by_names)).canonicalize().is_ok_and(|found| found == wanted);
    if leads_there { by_names } else { wanted }
}

/// Where a folder really is, or will be once it is made.
fn real(folder: &Path) -> Option<PathBuf> {
    let absolute = std::path::absolute(Path::new(".").join(folder)).ok()?;
    absolute.ancestors().find_map(|above| {
        let below = absolute.strip_prefix(above).ok()?;
        Some(above.canonicalize().ok()?.join(below))
    })
}

/// The same without a look at the disk. An absolute path leads there from anywhere. Where the folder is absolute, or above the
/// working directory, the names of the latter decide; where they cannot be told, the path stays as it is.
fn rebased_by_names(path: &Path, folder: &Path) -> PathBuf {
    if path.is_absolute() {
        return path.to_owned();
    }
    let (by_names, from) = (tidy(path), tidy(folder));
    if folder.is_relative() && !beyond(&by_names, &from).1.contains(&Component::ParentDir) {
        return between(&by_names, &from);
    }
    match (std::path::absolute(path), std::path::absolute(folder)) {
        (Ok(path), Ok(folder)) => between(&tidy(&path), &tidy(&folder)),
        _ => path.to_owned(),
    }
}

/// How much a path has in common with a folder, and what the folder has beyond that.
fn beyond<'f>(path: &Path, folder: &'f Path) -> (usize, Vec<Component<'f>>) {
    let common = path.components().zip(folder.components()).take_while(|(a, b)| a == b).count();
    (common, folder.components().skip(common).collect())
}

/// The way from a folder to a path, both by names.
fn between(path: &Path, folder: &Path) -> PathBuf {
    let (common, above) = beyond(path, folder);
    let up = above.iter().map(|_| Component::ParentDir);
    up.chain(path.components().skip(common)).collect()
}

/// Without `.`, and without `name/..`.
fn tidy(path: &Path) -> PathBuf {
    let mut tidy = PathBuf::new();
    for component in path.components() {
        match component {
            Component::CurDir => {}
            Component::ParentDir if matches!(tidy.components().next_back(), Some(Component::Normal(_))) => {
                tidy.pop();
            }
            component => tidy.push(component),
        }
    }
    tidy
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_lead_to_the_same_place_from_another_folder() {
        let rebased = |path, folder| rebased(Path::new(path), Path::new(folder)).display().to_string();
        assert_eq!(rebased("scenarios/traces/a.jsonl", "scenarios"), "traces/a.jsonl");
        assert_eq!(rebased("scenarios/a.jsonl", "out/best"), "../../scenarios/a.jsonl");
        assert_eq!(rebased("a.jsonl", ""), "a.jsonl");
        assert_eq!(rebased("./x/../a.jsonl", "."), "a.jsonl");
        assert_eq!(rebased("/data/a.jsonl", "/data/out"), "/data/a.jsonl");
        assert_eq!(rebased("../a.jsonl", "../out"), "../a.jsonl");
        assert_eq!(rebased("../a.jsonl", "out"), "../../a.jsonl");
        let folder = std::path::absolute("out").expect("there is a working directory");
        let folder = folder.display().to_string();
        assert_eq!(rebased("a.jsonl", &folder), "../a.jsonl");
        // Out of a folder above this one the way leads back by its name.
        let here = std::env::current_dir().expect("there is one");
        let name = here.file_name().expect("it is no root").display();
        assert_eq!(rebased("b/a.jsonl", "../out"), format!("../{name}/b/a.jsonl"));
    }

    #[cfg(unix)]
    #[test]
    fn a_link_on_the_way_is_followed() {
        let place = tempfile::tempdir().expect("a folder");
        let root = place.path().canonicalize().expect("it is there");
        for folder in ["here", "deep/er/est", "traces"] {
            std::fs::create_dir_all(root.join(folder)).expect("a folder");
        }
        std::fs::write(root.join("traces/a.jsonl"), "").expect("a file");
        std::os::unix::fs::symlink(root.join("deep/er/est"), root.join("here/out")).expect("a link");
        let trace = root.join("here/../traces/a.jsonl");
        // An absolute path stays one; by names it would lead from deep/er/est to deep/traces.
        assert_eq!(rebased(&trace, &root.join("here/out")), trace);
        let cwd = std::env::current_dir().expect("there is one").canonicalize().expect("it is there");
        let up: PathBuf = cwd.components().skip(1).map(|_| Component::ParentDir).collect();
        let relative = up.join(root.strip_prefix("/").expect("absolute")).join("traces/a.jsonl");
        assert_eq!(rebased(&relative, &root.join("here/out")), root.join("traces/a.jsonl"));
        assert_eq!(rebased(Path::new("Cargo.toml"), Path::new("")), Path::new("Cargo.toml"));
        assert_eq!(rebased(&relative, &root.join("here/new/er")), Path::new("../../../traces/a.jsonl"));
        assert_eq!(rebased(&relative, &root.join("here/out/new")), root.join("traces/a.jsonl"));
    }
}
