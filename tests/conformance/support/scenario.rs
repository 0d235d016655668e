//! Scenarios and workloads the way a user's file becomes them.

use std::io::BufRead;
use std::path::Path;

use serde_json::Value;
use spica::config::scenario::{Pool, Scenario};
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

/// The only pool of an aggregated scenario.
pub(crate) fn pool(scenario: &Scenario) -> &Pool {
    scenario.deployment.agg.as_ref().expect("an aggregated scenario")
}

/// The workload of a scenario; `trace` is the file that it names, if it names one.
pub(crate) fn workload(scenario: &Scenario, trace: Option<&mut dyn BufRead>) -> Workload {
    match workload::load(&scenario.workload, trace, pool(scenario).engine.block_size) {
        Ok(loaded) => loaded.workload,
        Err(problems) => panic!("{problems}"),
    }
}
