//! Scenarios and workloads the way a user's file becomes them.

use std::io::BufRead;
use std::path::Path;

use serde_json::Value;
use spica::config::scenario::Scenario;
use spica::config::{self, Document};
use spica::workload::{self, Workload};

/// The scenario of a document. A test's file is a user's file: whatever is wrong with it is said in full.
pub(crate) fn scenario(document: &Value) -> Scenario {
    let text = document.to_string();
    match config::load(&text, Path::new("case.yaml"), &[]) {
        Ok(Document::Scenario(scenario)) => scenario,
        Ok(Document::Search(_)) => panic!("a search: {text}"),
        Err(problems) => panic!("{problems}"),
    }
}

/// Tokens per KV block of a scenario's engines: the same in all its pools.
pub(crate) fn block_size(scenario: &Scenario) -> u32 {
    let deployment = &scenario.deployment;
    let first = [&deployment.agg, &deployment.prefill].into_iter().flatten().next();
    first.expect("a pool").engine.block_size
}

/// The workload of a scenario; `trace` is the file that it names, if it names one.
pub(crate) fn workload(scenario: &Scenario, trace: Option<&mut dyn BufRead>) -> Workload {
    match workload::load(&scenario.workload, trace, block_size(scenario)) {
        Ok(loaded) => loaded.workload,
        Err(problems) => panic!("{problems}"),
    }
}
