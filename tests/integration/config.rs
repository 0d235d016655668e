//! Helpers for the tests of configurations, which are beside this file.

use std::path::Path;

use spica::config::scenario::Scenario;
use spica::config::search::SmartSearchConfig;
use spica::config::{self, Diagnostics, Document, Override};

/// A valid search configuration with nothing but what it needs.
pub(crate) const SEARCH: &str = "\
search_space:
  model_name: Qwen/Qwen3-32B
  hardware_sku: h200_sxm
workload:
  isl: 3000
  osl: 300
  request_rate: 4.0
  num_request_ratio: 20
";

/// A valid scenario with nothing but what it needs.
pub(crate) const SCENARIO: &str = "\
deployment:
  mode: agg
  agg: {}
workload:
  trace_path: traces/a.jsonl
";

pub(crate) fn load(text: &str, overrides: &[&str]) -> Result<Document, Diagnostics> {
    let overrides: Vec<Override> =
        overrides.iter().map(|change| change.parse().expect("is a key path with a value")).collect();
    config::load(text, Path::new("folder/test.yaml"), &overrides)
}

pub(crate) fn search(overrides: &[&str]) -> SmartSearchConfig {
    match load(SEARCH, overrides) {
        Ok(Document::Search(search)) => search,
        Ok(Document::Scenario(_)) => panic!("a scenario"),
        Err(problems) => panic!("{overrides:?}: {problems}"),
    }
}

pub(crate) fn scenario(overrides: &[&str]) -> Scenario {
    match load(SCENARIO, overrides) {
        Ok(Document::Scenario(scenario)) => scenario,
        Ok(Document::Search(_)) => panic!("a search"),
        Err(problems) => panic!("{overrides:?}: {problems}"),
    }
}

/// The problems of a text, one line each.
pub(crate) fn problems(text: &str, overrides: &[&str]) -> Vec<String> {
    match load(text, overrides) {
        Ok(_) => Vec::new(),
        Err(problems) => problems.problems().iter().map(|problem| problems.line(problem)).collect(),
    }
}

/// Expects exactly one problem, at `path` and with all of `words`.
pub(crate) fn assert_refused(text: &str, overrides: &[&str], path: &str, words: &[&str]) {
    let found = problems(text, overrides);
    let [line] = found.as_slice() else { panic!("{overrides:?}: not one problem but {found:#?}") };
    assert!(line.contains(&format!(": {path}: ")), "{overrides:?}: {line}");
    for word in words {
        assert!(line.contains(word), "{overrides:?}: no {word:?} in {line}");
    }
}
