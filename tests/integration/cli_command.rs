//! Runs the program in a folder of its own.

#![allow(clippy::unwrap_used, reason = "helpers of tests may panic")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use tempfile::TempDir;

/// A folder that the program runs in, and that knows what is in it.
pub(crate) struct Workplace {
    folder: TempDir,
}

/// What the program said, and how it ended.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Workplace {
    pub(crate) fn new() -> Self {
        Self { folder: TempDir::new().unwrap() }
    }

    /// A folder with one file.
    pub(crate) fn with(name: &str, text: &str) -> Self {
        let workplace = Self::new();
        workplace.write(name, text);
        workplace
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    pub(crate) fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    pub(crate) fn read_json(&self, name: &str) -> Value {
        serde_json::from_str(&self.read(name)).unwrap()
    }

    /// Every file below the folder, by relative path, in order.
    pub(crate) fn files(&self) -> Vec<String> {
        let mut files = Vec::new();
        list(self.folder.path(), self.folder.path(), &mut files);
        files.sort();
        files
    }

    /// The program, ready to start in this folder; tests on the same machine must not steer it by its environment.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_spica"));
        command.args(arguments).current_dir(self.folder.path()).env_remove("RUST_LOG").stdin(Stdio::null());
        command
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> Answer {
        Answer::from(self.command(arguments).output().unwrap())
    }
}

impl From<Output> for Answer {
    fn from(output: Output) -> Self {
        let text = |bytes| String::from_utf8(bytes).unwrap();
        let answer = Self {
            status: output.status.code().unwrap_or(-1),
            stdout: text(output.stdout),
            stderr: text(output.stderr),
        };
        assert!(
            !answer.stderr.contains("internal error") && !answer.stderr.contains("panicked"),
            "{answer:?}"
        );
        answer
    }
}

impl Answer {
    /// The answer, which must have ended like this.
    #[track_caller]
    pub(crate) fn ending(self, status: i32) -> Self {
        assert_eq!(self.status, status, "stdout:\n{}\nstderr:\n{}", self.stdout, self.stderr);
        self
    }

    /// A refusal: exit status 2, nothing on standard output, and all of these on standard error.
    #[track_caller]
    pub(crate) fn refusing(self, words: &[&str]) {
        let answer = self.ending(2);
        assert_eq!(answer.stdout, "");
        for word in words {
            assert!(answer.stderr.contains(word), "`{word}` is not in:\n{}", answer.stderr);
        }
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}:\n{}", self.stdout))
    }
}

fn list(root: &Path, folder: &Path, files: &mut Vec<String>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            list(root, &path, files);
        } else {
            files.push(path.strip_prefix(root).unwrap().display().to_string());
        }
    }
}
