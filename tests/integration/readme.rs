//! The README and the documents say what is true: their commands are run, and what they show is what comes out.
//!
//! A `sh` block is a script that has to succeed. A `console` block holds commands behind `$ `, each followed by what it
//! writes to standard output. Both run in a folder of their own that holds the bundled scenarios, with `spica` and
//! `cargo run` standing for the program under test. After a deliberate change, write the outputs anew with
//!
//! ```text
//! SPICA_RENEW_DOCUMENTS=1 cargo test --test integration readme
//! ```

#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "helpers of tests may panic")]

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tempfile::TempDir;

use super::bundled::{names_in, repository, spica};

/// Stands for cargo in documents: what it would build is built.
const CARGO: &str = r#"#!/bin/sh
case "$*" in
    "run --release -- "*) shift 3; exec spica "$@" ;;
    "run --release --example "*) name="$4"; shift 5
        exec "$REAL_CARGO" run --quiet --locked --manifest-path "$REPOSITORY/Cargo.toml" --example "$name" -- "$@" ;;
    # These would take long, or run this very test; .ci/run has them, or the bench is there.
    test | "build --release") grep -q "^cargo ${1} --locked" "$REPOSITORY/.ci/run" ;;
    "bench --bench "*) test -f "$REPOSITORY/benches/$3.rs" ;;
    *) echo "a document has: cargo $*" >&2; exit 1 ;;
esac
"#;

/// Folders of the repository that commands of documents read.
const FOLDERS: [&str; 3] = ["scenarios", "examples", ".ci"];

/// A folder as a reader would have it before the first command.
struct Desk {
    work: TempDir,
    tools: TempDir,
}

impl Desk {
    fn new() -> Self {
        let desk = Self { work: TempDir::new().unwrap(), tools: TempDir::new().unwrap() };
        for folder in FOLDERS {
            copy(&repository().join(folder), &desk.work.path().join(folder));
        }
        std::os::unix::fs::symlink(spica(), desk.tools.path().join("spica")).unwrap();
        let cargo = desk.tools.path().join("cargo");
        std::fs::write(&cargo, CARGO).unwrap();
        std::fs::set_permissions(&cargo, std::fs::Permissions::from_mode(0o755)).unwrap();
        desk
    }

    /// Runs a script; its standard output.
    fn run(&self, script: &str) -> String {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let tools = [self.tools.path().to_owned()].into_iter().chain(std::env::split_paths(&path));
        let output = Command::new("bash")
            .args(["-euo", "pipefail", "-c", script])
            .current_dir(self.work.path())
            .env("PATH", std::env::join_paths(tools).unwrap())
            .env("REAL_CARGO", env!("CARGO"))
            .env("REPOSITORY", repository())
            .env_remove("RUST_LOG")
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        assert!(output.status.success(), "{script}\n{}{}", text(output.stdout), text(output.stderr));
        text(output.stdout)
    }

    /// Names of what commands have written.
    fn left_behind(&self) -> BTreeSet<String> {
        let entries = std::fs::read_dir(self.work.path()).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.filter(|name| !FOLDERS.contains(&name.as_str())).collect()
    }
}

/// What git overlooks at the top of the repository, beside what is built.
fn ignored() -> BTreeSet<String> {
    let text = std::fs::read_to_string(repository().join(".gitignore")).unwrap();
    text.lines()
        .filter_map(|line| line.strip_prefix('/'))
        .filter(|name| *name != "target")
        .map(str::to_owned)
        .collect()
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let target = to.join(path.file_name().unwrap());
        if path.is_dir() {
            copy(&path, &target);
        } else {
            std::fs::copy(path, target).unwrap();
        }
    }
}

/// The text of a document with what its commands write today.
fn renewed(text: &str, desk: &Desk) -> String {
    let mut renewed = String::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let _ = writeln!(renewed, "{line}");
        if line != "```sh" && line != "```console" {
            continue;
        }
        let block: Vec<&str> = lines.by_ref().take_while(|line| *line != "```").collect();
        if line == "```sh" {
            desk.run(&block.join("\n"));
            renewed.extend(block.iter().map(|line| format!("{line}\n")));
        } else {
            for command in commands(&block) {
                let output = desk.run(&command);
                let _ = write!(renewed, "$ {command}\n{output}");
            }
        }
        renewed.push_str("```\n");
    }
    renewed
}

/// The commands of a `console` block; a backslash at the end of a line continues on the next.
fn commands(block: &[&str]) -> Vec<String> {
    let mut commands: Vec<String> = Vec::new();
    let mut continues = false;
    for line in block {
        match line.strip_prefix("$ ") {
            Some(command) => commands.push(command.to_owned()),
            None if continues => {
                let command = commands.last_mut().unwrap();
                let _ = write!(command, "\n{line}");
            }
            None => continue,
        }
        continues = line.ends_with('\\');
    }
    assert!(!commands.is_empty(), "a console block without a command: {block:?}");
    commands
}

fn documents() -> Vec<PathBuf> {
    let docs = repository().join("docs");
    let mut found: Vec<PathBuf> =
        names_in(&docs, "md").into_iter().map(|name| docs.join(name).with_extension("md")).collect();
    found.sort();
    found.insert(0, repository().join("README.md"));
    found
}

#[test]
fn commands_do_what_the_documents_show() {
    for path in documents() {
        let text = std::fs::read_to_string(&path).unwrap();
        let desk = Desk::new();
        let today = renewed(&text, &desk);
        if path.ends_with("README.md") {
            assert_eq!(desk.left_behind(), ignored());
        }
        if std::env::var_os("SPICA_RENEW_DOCUMENTS").is_some() {
            std::fs::write(&path, &today).unwrap();
        } else if let Some((number, (says, is))) =
            (1..).zip(text.lines().zip(today.lines())).find(|(_, (says, is))| says != is)
        {
            panic!("{}:{number} says\n{says}\nbut today it is\n{is}", path.display());
        } else {
            assert_eq!(text, today, "{}", path.display());
        }
    }
}

#[test]
fn code_in_documents_is_the_code_of_the_examples() {
    let examples: Vec<String> = names_in(&repository().join("examples"), "rs")
        .iter()
        .map(|name| std::fs::read_to_string(repository().join("examples").join(name).with_extension("rs")))
        .map(Result::unwrap)
        .collect();
    for path in documents() {
        let text = std::fs::read_to_string(&path).unwrap();
        for block in text.split("```rust\n").skip(1) {
            let code = block.split("```").next().unwrap();
            assert!(examples.iter().any(|example| example.contains(code)), "{}:\n{code}", path.display());
        }
    }
}

#[test]
fn no_block_of_commands_goes_unrun() {
    for path in documents() {
        let text = std::fs::read_to_string(&path).unwrap();
        let fences: Vec<&str> =
            text.lines().filter_map(|line| line.trim_start().strip_prefix("```")).collect();
        for pair in fences.chunks(2) {
            // Job scripts of schedulers, in bash and Python, have tests of their own.
            let kinds = ["sh", "console", "rust", "yaml", "json", "csv", "text", "bash", "python"];
            assert!(kinds.contains(&pair[0]), "{}: a block of kind {:?}", path.display(), pair[0]);
            assert_eq!(pair.get(1), Some(&""), "{}: a block without an end", path.display());
        }
        for block in text.split("```text\n").skip(1) {
            let body = block.split("```").next().unwrap();
            // Data that is not ours to pass on stands as FOLDER.
            if body.contains("FOLDER") {
                continue;
            }
            let commands = ["spica ", "$ ", "cargo "];
            let is_command = |line: &&str| commands.iter().any(|start| line.starts_with(start));
            assert_eq!(body.lines().find(is_command), None, "{}: a command that is not run", path.display());
        }
    }
}

#[test]
fn the_readme_names_every_scenario() {
    let text = std::fs::read_to_string(repository().join("README.md")).unwrap();
    for name in names_in(&repository().join("scenarios"), "yaml") {
        assert!(text.contains(&format!("`{name}.yaml`")), "README.md does not mention {name}.yaml");
    }
}

#[test]
fn links_lead_somewhere() {
    for path in documents() {
        let text = std::fs::read_to_string(&path).unwrap();
        let links = text.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(link, _)| link);
        for link in links.filter(|link| !link.starts_with("https://")) {
            let file = link.split('#').next().unwrap();
            assert!(path.parent().unwrap().join(file).exists(), "{} links to {link}", path.display());
        }
    }
}

#[test]
fn blocks_are_read_and_renewed() {
    let desk = Desk::new();
    let old = "a\n```console\n$ echo one \\\n  two\nold\n$ echo x > file\n```\nb\n```sh\ntest -f file\n```\n";
    let new =
        "a\n```console\n$ echo one \\\n  two\none two\n$ echo x > file\n```\nb\n```sh\ntest -f file\n```\n";
    assert_eq!(renewed(old, &desk), new);
    assert_eq!(renewed("```text\n$ false\n```\n", &desk), "```text\n$ false\n```\n");
    assert!(desk.run("spica --version").contains(env!("CARGO_PKG_VERSION")));
    assert!(desk.run("cargo run --release -- --version").contains(env!("CARGO_PKG_VERSION")));
    for wrong in ["false", "cargo publish", "cargo bench --bench absent"] {
        assert!(std::panic::catch_unwind(|| desk.run(wrong)).is_err(), "{wrong}");
    }
}
