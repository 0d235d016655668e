//! The job scripts of `docs/big_searches.md` do what they say: with three parts instead of 64, and with stand-ins for what schedulers
//! are, each ends in the answer of the whole search.

#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "helpers of tests may panic")]

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;
use tempfile::TempDir;

use super::bundled::{repository, spica};

const PARTS: usize = 3;

/// What `ray` is to a script that starts everything at once and waits for it.
const RAY: &str = "def remote(**options):
    def wrapped(function):
        function.remote = function
        return function
    return wrapped

def get(results):
    return results
";

/// The block of this kind under a heading, with fewer parts.
fn script(heading: &str, kind: &str) -> String {
    let text = std::fs::read_to_string(repository().join("docs/big_searches.md")).unwrap();
    let section =
        text.split("\n## ").find(|section| section.starts_with(heading)).expect("the heading is there");
    let (_, block) = section.split_once(&format!("```{kind}\n")).expect("the block is there");
    let block = block.split("```").next().unwrap();
    assert!(block.contains("64"), "{block}");
    block.replace("64", &PARTS.to_string())
}

/// A folder with a search that can be cut, as `search.yaml`, and `tools` that are found first.
struct Cluster {
    work: TempDir,
}

impl Cluster {
    fn new() -> Self {
        let work = TempDir::new().unwrap();
        std::fs::create_dir(work.path().join("tools")).unwrap();
        std::fs::create_dir(work.path().join("parts")).unwrap();
        let scenarios = repository().join("scenarios");
        let search = std::fs::read_to_string(scenarios.join("router_comparison.yaml")).unwrap();
        let traces = scenarios.join("traces").display().to_string();
        std::fs::write(work.path().join("search.yaml"), search.replace("traces", &traces)).unwrap();
        std::os::unix::fs::symlink(spica(), work.path().join("tools/spica")).unwrap();
        Self { work }
    }

    fn path(&self) -> &Path {
        self.work.path()
    }

    fn tool(&self, name: &str, text: &str) {
        let path = self.path().join("tools").join(name);
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }

    fn run(&self, program: &str, arguments: &[&str], (name, value): (&str, &str)) {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let tools = [self.path().join("tools")].into_iter().chain(std::env::split_paths(&path));
        let output = Command::new(program)
            .args(arguments)
            .current_dir(self.path())
            .env("PATH", std::env::join_paths(tools).unwrap())
            .env("PYTHONPATH", self.path().join("tools"))
            .env(name, value)
            .env_remove("RUST_LOG")
            .stdin(Stdio::null())
            .output()
            .unwrap();
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    }

    fn merge(&self) {
        let merge = "spica search merge parts/* --output-dir answer";
        self.run("sh", &["-c", merge], ("NAME", "merge"));
    }

    /// The answer is that of the whole search.
    fn check(&self) {
        let whole = "spica search search.yaml --output-dir one_piece";
        self.run("sh", &["-c", whole], ("NAME", "whole"));
        let read = |folder: &str| std::fs::read(self.path().join(folder).join("candidates.json")).unwrap();
        assert!(read("answer") == read("one_piece"), "another answer");
    }
}

#[test]
fn a_slurm_array() {
    let cluster = Cluster::new();
    cluster.tool("srun", "#!/bin/sh\nexec \"$@\"\n");
    let script = script("Slurm", "bash");
    assert!(script.contains("--array=0-63"), "{script}");
    for index in 0..PARTS {
        cluster.run("bash", &["-c", &script], ("SLURM_ARRAY_TASK_ID", &index.to_string()));
    }
    cluster.merge();
    cluster.check();
}

#[test]
fn a_kubernetes_job() {
    let cluster = Cluster::new();
    let job: Value = serde_yaml::from_str(&script("Kubernetes", "yaml")).unwrap();
    assert_eq!(job["spec"]["completions"], PARTS);
    assert_eq!(job["spec"]["completionMode"], "Indexed");
    let container = &job["spec"]["template"]["spec"]["containers"][0];
    let mount = container["volumeMounts"][0]["mountPath"].as_str().unwrap();
    let folder = cluster.path().display().to_string();
    let words = [&container["command"], &container["args"]].map(|words| words.as_array().unwrap().clone());
    let words: Vec<String> =
        words.iter().flatten().map(|word| word.as_str().unwrap().replace(mount, &folder)).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    for index in 0..PARTS {
        cluster.run(words[0], &words[1..], ("JOB_COMPLETION_INDEX", &index.to_string()));
    }
    cluster.merge();
    cluster.check();
}

#[test]
fn ray_tasks() {
    if Command::new("python3").arg("--version").output().is_err() {
        println!("skipped: there is no python3 on this machine");
        return;
    }
    let cluster = Cluster::new();
    cluster.tool("ray.py", RAY);
    cluster.run("python3", &["-c", &script("Ray", "python")], ("PYTHONDONTWRITEBYTECODE", "1"));
    cluster.check();
}
