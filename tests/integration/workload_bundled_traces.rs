//! The traces in `scenarios/traces`: what the generators make, byte for byte.

use std::fs;
use std::io;
use std::path::PathBuf;

use spica::workload::generate::{Conversation, Sine, ToolAgent};
use spica::workload::mooncake::{self, Options};
use spica::workload::stats::WorkloadStats;

/// Set to write the files anew after a deliberate change of a generator.
const RENEW: &str = "SPICA_RENEW_TRACES";

fn path(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("scenarios/traces").join(name)
}

/// Compares a bundled trace with what `write` makes, and gives its figures.
fn check(name: &str, write: impl FnOnce(&mut Vec<u8>) -> io::Result<()>) -> WorkloadStats {
    let mut generated = Vec::new();
    write(&mut generated).expect("the options are in range");
    if std::env::var_os(RENEW).is_some() {
        fs::write(path(name), &generated).expect("the folder is there");
    }
    let bundled = fs::read(path(name)).expect("the trace is in the repository");
    assert!(bundled == generated, "{name} is not what its generator makes; set {RENEW}=1 to write it anew");
    let options = Options { origin: name.into(), ..Options::default() };
    let loaded = mooncake::read(&bundled[..], &options).unwrap_or_else(|errors| panic!("{errors}"));
    assert!(loaded.workload.input.dropped.is_empty());
    WorkloadStats::new(&loaded.workload)
}

#[test]
fn conversation() {
    let options = Conversation { rows: 600, ..Conversation::default() };
    let stats = check("conversation.jsonl", |out| options.write(out));
    assert_eq!(stats.requests, 600);
    assert!(stats.reuse_bound.is_some_and(|reuse| reuse.token_ratio > 0.25), "{stats:?}");
}

#[test]
fn toolagent() {
    let options = ToolAgent { rows: 800, ..ToolAgent::default() };
    let stats = check("toolagent.jsonl", |out| options.write(out));
    assert_eq!(stats.requests, 800);
    assert!(stats.reuse_bound.is_some_and(|reuse| reuse.token_ratio > 0.5), "{stats:?}");
}

#[test]
fn sine() {
    let options =
        Sine { duration_s: 600, period_s: 300.0, base_rps: 2.0, amplitude_rps: 1.5, ..Sine::default() };
    let stats = check("sine.jsonl", |out| options.write(out));
    assert_eq!(stats.requests, 1200);
    assert_eq!((stats.reuse_bound, stats.input.repaired["no hash_ids"]), (None, 1200));
}

#[test]
fn together_they_stay_small() {
    let bytes: u64 = ["conversation.jsonl", "toolagent.jsonl", "sine.jsonl"]
        .map(|name| fs::metadata(path(name)).expect("the trace is in the repository").len())
        .iter()
        .sum();
    assert!(bytes < 400_000, "{bytes}");
}
