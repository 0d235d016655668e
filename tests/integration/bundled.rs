//! The scenarios that come with the crate, and running them.

#![allow(clippy::unwrap_used, reason = "helpers of tests may panic")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// The root of the repository.
pub(crate) fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The program as built for these tests.
pub(crate) fn spica() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_spica"))
}

/// The scenarios that need the policy of the example of that name: `spica` itself refuses them.
pub(crate) const FOR_EXAMPLES: [&str; 2] = ["custom_router", "custom_engine"];

/// A file of `scenarios/`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Bundled {
    /// Its name without the extension.
    pub(crate) name: String,
    /// What it says.
    pub(crate) text: String,
}

impl Bundled {
    /// Its path as a user would write it, from the root of the repository.
    pub(crate) fn path(&self) -> String {
        format!("scenarios/{}.yaml", self.name)
    }

    /// Whether it is a search configuration.
    pub(crate) fn is_search(&self) -> bool {
        self.text.lines().any(|line| line.starts_with("search_space:"))
    }

    /// Runs it with its own command, from the root of the repository, with all files written to `folder`.
    pub(crate) fn run(&self, program: &Path, folder: &Path, arguments: &[&str]) -> Output {
        let command = if self.is_search() { "search" } else { "replay" };
        let mut process = Command::new(program);
        process.args([command, &self.path(), "--quiet", "--output-dir"]).arg(folder).args(arguments);
        let output = run_in_repository(&mut process);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{}: {:?}\n{stderr}", self.name, output.status);
        output
    }
}

/// Runs a command from the root of the repository, with nothing in the environment that would steer it.
pub(crate) fn run_in_repository(command: &mut Command) -> Output {
    command.current_dir(repository()).env_remove("RUST_LOG").stdin(Stdio::null()).output().unwrap()
}

/// Every scenario that `spica` itself can run, by name.
pub(crate) fn bundled_scenarios() -> Vec<Bundled> {
    let mut found: Vec<Bundled> = names_in(&repository().join("scenarios"), "yaml")
        .into_iter()
        .filter(|name| !FOR_EXAMPLES.contains(&name.as_str()))
        .map(|name| {
            let path = repository().join("scenarios").join(&name).with_extension("yaml");
            Bundled { name, text: std::fs::read_to_string(path).unwrap() }
        })
        .collect();
    found.sort();
    assert!(found.len() > 10, "the scenarios are where this looks: {found:?}");
    found
}

/// Names, without the extension, of the files in a folder that have it.
pub(crate) fn names_in(folder: &Path, extension: &str) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    entries
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|found| found == extension))
        .map(|path| path.file_stem().unwrap().to_string_lossy().into_owned())
        .collect()
}

/// The files of a folder with what they hold, by name.
pub(crate) fn contents(folder: &Path) -> Vec<(String, String)> {
    let mut paths: Vec<PathBuf> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths
        .into_iter()
        .map(|path| {
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            (name, std::fs::read_to_string(path).unwrap())
        })
        .collect()
}
