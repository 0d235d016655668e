//! From YAML to a validated plan.
//!
//! [`scenario`] holds the plan of one replay and [`search`] that of a search. Everything in them has been checked: whoever
//! reads one need not ask again whether a number is positive.

pub mod diagnostics;
mod hints;
mod names;
mod numbers;
mod overrides;
pub mod presets;
mod print;
mod read_composite;
mod read_engine;
mod read_scenario;
mod read_search;
mod read_workload;
mod reader;
pub mod scenario;
pub mod search;
mod tree;
mod workload;
mod yaml;

use std::path::Path;

pub use diagnostics::Diagnostics;
pub use overrides::Override;

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

/// Reads and validates a configuration.
///
/// `origin` is the file that `text` came from: messages name it, and relative paths in the text start from its folder.
/// Relative paths in `overrides` start from the working directory. No file is opened.
///
/// # Errors
///
/// All problems that can be found, each with its place.
pub fn load(text: &str, origin: &Path, overrides: &[Override]) -> Result<Document, Diagnostics> {
    read(text, origin, overrides).map_err(|problems| {
        let file = Source { name: origin.display().to_string(), text: text.to_owned() };
        let given = overrides.iter().map(|change| Source { name: change.name(), text: change.value.clone() });
        Diagnostics::new(std::iter::once(file).chain(given).collect(), problems)
    })
}

fn read(text: &str, origin: &Path, overrides: &[Override]) -> Result<Document, Vec<Problem>> {
    let (mut tree, mut problems) = yaml::parse(text, 0);
    if tree.is_some() || problems.is_empty() {
        for (index, change) in overrides.iter().enumerate() {
            problems.extend(change.apply(&mut tree, index as u16 + 1));
        }
    }
    let Some(tree) = tree.filter(|tree| !tree.is_null()) else {
        if problems.is_empty() {
            problems.push(Problem::new(Span::default(), "", EMPTY.to_owned()));
        }
        return Err(problems);
    };
    let reader = Reader::new(origin, &[]);
    let document = match kind(&tree) {
        Kind::Search => reader.root(&tree).section(read_search::search).flatten().map(Document::Search),
        Kind::Scenario => {
            reader.root(&tree).section(read_scenario::scenario).flatten().map(Document::Scenario)
        }
    };
    problems.extend(reader.into_problems());
    document.filter(|_| problems.is_empty()).ok_or(problems)
}

const EMPTY: &str = "the file is empty; a scenario needs the keys `deployment` and `workload`, a search configuration \
                     `search_space` and `workload`";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Search,
    Scenario,
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
