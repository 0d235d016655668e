//! From YAML to a validated plan.
//!
//! [`scenario`] holds the plan of one replay and [`search`] that of a search. Everything in them has been checked: whoever
//! reads one need not ask again whether a number is positive.

pub mod diagnostics;
pub(crate) mod excerpt;
pub mod facts;
pub(crate) mod hints;
mod inert;
mod names;
mod numbers;
mod overrides;
mod paths;
mod places;
mod pool;
pub mod presets;
mod print;
mod read_composite;
mod read_engine;
mod read_facts;
mod read_scenario;
mod read_search;
mod read_timing;
mod read_workload;
mod read_workload_parts;
mod reader;
pub mod scenario;
pub mod schema;
pub mod search;
mod timing;
mod trace;
mod tree;
mod value;
mod workload;
mod workload_form;
mod yaml;

use std::path::Path;

pub use diagnostics::Diagnostics;
pub use overrides::Override;
pub use places::Places;

use diagnostics::{Problem, Source};
use reader::Reader;
use scenario::Scenario;
use search::SmartSearchConfig;
use tree::{Node, Span};

/// A validated configuration.
#[derive(Clone, Debug, PartialEq)]
pub enum Document {
    /// What `spica search` runs: recognised by its key `search_space`.
    Search(SmartSearchConfig),
    /// What `spica replay` runs.
    Scenario(Scenario),
}

/// A value as YAML, one document.
pub fn to_yaml(value: &impl serde::Serialize) -> String {
    yaml::to_text(value)
}

/// A configuration that was read, with what can be said about it.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// What it says.
    pub document: Document,
    /// Where it says so.
    pub places: Places,
    /// Keys that are legal and have no effect, one line each.
    pub notes: Vec<String>,
}

/// Reads and validates a configuration.
///
/// `origin` is the file that `text` came from: messages name it, and relative paths in the text start from its folder.
/// Relative paths in `overrides` start from the working directory. No file is opened.
///
/// # Errors
///
/// All problems that can be found, each with its place.
pub fn load(text: &str, origin: &Path, overrides: &[Override]) -> Result<Document, Diagnostics> {
    load_with_places(text, origin, overrides).map(|loaded| loaded.document)
}

/// The same, with where everything was written.
///
/// # Errors
///
/// As [`load`].
pub fn load_with_places(text: &str, origin: &Path, overrides: &[Override]) -> Result<Loaded, Diagnostics> {
    let file = Source { name: origin.display().to_string(), text: text.to_owned() };
    let given = overrides.iter().map(|change| Source { name: change.name(), text: change.value.clone() });
    let sources: Vec<Source> = std::iter::once(file).chain(given).collect();
    match read(text, origin, overrides) {
        Ok((document, tree, notes)) => {
            let places = Places::new(sources, tree);
            let note = |note: Problem| places.remark("note", &format!("{}: {}", note.path, note.message));
            let notes = notes.into_iter().map(note).collect();
            Ok(Loaded { document, places, notes })
        }
        Err(problems) => Err(Diagnostics::new(sources, problems)),
    }
}

/// Problems of the form `key.path: what is wrong` with other files of YAML or JSON, in their places.
pub(crate) fn in_place(text: &str, origin: &Path, problems: &[String]) -> String {
    let name = origin.display().to_string();
    match yaml::parse(text, 0).0 {
        Some(tree) => Places::new(vec![Source { name, text: text.to_owned() }], tree).explain(problems),
        None => problems.iter().map(|line| format!("{name}: {line}")).collect::<Vec<_>>().join("\n"),
    }
}

/// The document, its tree and what there is to tell about it.
type Findings = (Document, Node, Vec<Problem>);

fn read(text: &str, origin: &Path, overrides: &[Override]) -> Result<Findings, Vec<Problem>> {
    let (mut tree, mut problems) = yaml::parse(text, 0);
    if tree.is_some() || problems.is_empty() {
        for (index, change) in overrides.iter().enumerate() {
            problems.extend(change.apply(&mut tree, index as u32 + 1));
        }
    }
    let Some(tree) = tree.filter(|tree| !tree.is_null()) else {
        if problems.is_empty() {
            problems.push(Problem::new(Span::default(), "", EMPTY.to_owned()));
        }
        return Err(problems);
    };
    let reader = Reader::new(origin, kind(&tree).paths());
    let document = document(&reader, &tree);
    let (found, notes) = reader.into_findings();
    problems.extend(found);
    match document {
        Some(document) if problems.is_empty() => Ok((document, tree, notes)),
        _ => Err(problems),
    }
}

fn document<'a>(reader: &'a Reader, tree: &'a Node) -> Option<Document> {
    let root = reader.root(tree);
    match kind(tree) {
        Kind::Search => {
            let search = root.section(read_search::search).flatten()?;
            inert::report_search(reader, tree, &search);
            Some(Document::Search(search))
        }
        Kind::Scenario => {
            let scenario = root.section(read_scenario::scenario).flatten()?;
            inert::report_scenario(reader, tree, &scenario);
            Some(Document::Scenario(scenario))
        }
    }
}

const EMPTY: &str = "the file is empty; a scenario needs the keys `deployment` and `workload`, a search configuration \
                     `search_space` and `workload`";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Search,
    Scenario,
}

impl Kind {
    /// Makes the paths of all keys that this kind of document has.
    fn paths(self) -> fn() -> Vec<String> {
        match self {
            Self::Search => schema::paths_of_searches,
            Self::Scenario => schema::paths_of_scenarios,
        }
    }
}

/// A search has a `search_space`; without one, its other keys give away what was meant.
fn kind(tree: &Node) -> Kind {
    let has = |key| tree.get(key).is_some();
    if has("search_space") || (!has("deployment") && (has("goal") || has("sweep"))) {
        Kind::Search
    } else {
        Kind::Scenario
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// The keys that are asked for while these documents are read.
    fn asked(texts: &[&str]) -> BTreeSet<String> {
        let mut asked = BTreeSet::new();
        for text in texts {
            let (tree, problems) = yaml::parse(text, 0);
            assert_eq!(problems, []);
            let tree = tree.expect("is not empty");
            let reader = Reader::new(Path::new("test.yaml"), kind(&tree).paths());
            let _ = document(&reader, &tree);
            asked.extend(reader.asked());
        }
        asked
    }

    fn assert_same(asked: &BTreeSet<String>, described: Vec<String>) {
        let described = BTreeSet::from_iter(described);
        let undescribed: Vec<_> = asked.difference(&described).collect();
        let unasked: Vec<_> = described.difference(asked).collect();
        assert!(undescribed.is_empty(), "read but not in the schema: {undescribed:?}");
        assert!(unasked.is_empty(), "in the schema but never read: {unasked:?}");
    }

    #[test]
    fn the_schema_of_scenarios_has_exactly_the_keys_that_are_read() {
        let agg = "
deployment:
  mode: agg
  router: {policy: kv_router}
  planner: {policy: x}
  kv_transfer: {}
  replica_changes: [{}]
  agg: {router: {policy: x}, engine: {sglang: {}, scheduler: {policy: x}}, timing: {model: fixed}, memory: {}}
workload: {trace_path: a, trace_columns: {}, arrival: {process: gamma}}
facts: {models: [{}], hardware: [{}]}
sla: {}
";
        let disagg = "
deployment:
  mode: disagg
  prefill: {router: {policy: x}, engine: {sglang: {}, scheduler: {policy: x}}, timing: {model: grid}, memory: {}}
  decode: {router: {policy: x}, engine: {sglang: {}, scheduler: {policy: x}}, timing: {model: profile}, memory: {}}
workload: {requests: [{}]}
";
        let rest = "
deployment:
  agg: {timing: {model: profile}}
  prefill: {timing: {model: fixed}}
workload: {}
";
        assert_same(&asked(&[agg, disagg, rest]), schema::paths_of_scenarios());
    }

    #[test]
    fn the_schema_of_searches_has_exactly_the_keys_that_are_read() {
        let mappings = "
search_space:
  deployment_mode: [agg]
  parallel_configs: [{}]
  timing: {model: profile}
  kv_transfer: {}
  router_mode: [{policy: x}]
  scheduler: [{policy: x}]
  planner_scaling_policy: [{enable_load_scaling: true}, {policy: x}]
  planner_fpm_sampling: [{}]
  planner_load_sensitivity: [{}]
  load_predictor_candidates: [{}]
workload: {arrival: {process: gamma}}
goal: {sla: {}}
sweep: {sampler: {policy: x}, fidelity: {}}
facts: {models: [{}], hardware: [{}]}
";
        let disagg = "
search_space:
  deployment_mode: [disagg]
  parallel_configs: [{prefill: {}, decode: {}}]
  timing: {model: fixed}
workload: {trace_path: a, trace_columns: {}}
";
        let grid = "search_space: {timing: {model: grid}}";
        assert_same(&asked(&[mappings, disagg, grid]), schema::paths_of_searches());
    }

    #[test]
    fn a_document_is_recognised_by_its_keys() {
        let kind_of = |text| kind(&yaml::parse(text, 0).0.expect("is not empty"));
        assert_eq!(kind_of("search_space: {}"), Kind::Search);
        assert_eq!(kind_of("goal: {}"), Kind::Search);
        assert_eq!(kind_of("deployment: {}\ngoal: {}"), Kind::Scenario);
        assert_eq!(kind_of("workload: {}"), Kind::Scenario);
    }
}
