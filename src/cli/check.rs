//! `spica check`: is this file right, and what does it say in full?

use std::path::Path;
use std::sync::Arc;

use super::arguments::{CheckArguments, Format};
use super::console::Console;
use super::failure::{Failure, Status};
use super::input::load_document;
use crate::config::Document;
use crate::config::scenario::PolicyConfig;
use crate::model::Catalogue;
use crate::registry::Registry;
use crate::search::Plan;
use crate::serving;

pub(super) fn run(
    arguments: &CheckArguments,
    console: Console,
    registry: &Registry,
) -> Result<Status, Failure> {
    let document = load_document(&arguments.file, &arguments.overrides.set)?;
    check_policies(&arguments.file, &document, registry)?;
    note_refusals(&arguments.file, &document, registry, console);
    // Paths as the file itself would have to give them, so that the text can stand beside it.
    let document = document.with_paths_from(arguments.file.parent().unwrap_or(Path::new("")));
    match console.format() {
        Format::Text => Console::print(&document.to_yaml())?,
        Format::Json => Console::print_json(&document.to_json())?,
    }
    Ok(Status::Success)
}

/// Makes every policy that the document names, to see whether it can be made.
pub(super) fn check_policies(file: &Path, document: &Document, registry: &Registry) -> Result<(), Failure> {
    let routers: Vec<&PolicyConfig> = match document {
        Document::Search(search) => search.search_space.router_mode.iter().collect(),
        Document::Scenario(scenario) => scenario.deployment.routers().collect(),
    };
    let planner = match document {
        Document::Search(_) => None,
        Document::Scenario(scenario) => {
            let deployment = &scenario.deployment;
            let planner = deployment.planner.as_ref();
            planner.and_then(|planner| registry.planner(planner, deployment.mode).err())
        }
    };
    let problems: Vec<String> = routers
        .iter()
        .filter_map(|router| registry.router(router).err())
        .chain(planner)
        .map(|error| {
            if error.location.is_empty() { format!("{}: {error}", file.display()) } else { error.to_string() }
        })
        .collect();
    if problems.is_empty() { Ok(()) } else { Err(Failure::input(problems.join("\n"))) }
}

/// A valid file may still ask for what this program cannot do.
fn note_refusals(file: &Path, document: &Document, registry: &Registry, console: Console) {
    let (command, refusals) = match document {
        Document::Search(config) => {
            let catalogue =
                Catalogue::with(&config.facts).expect("files of facts were looked at when they were read");
            let plan = Plan::new(config.clone(), &Arc::new(catalogue));
            let refusals = plan.map_or_else(|refusals| refusals, |plan| plan.refusals(registry));
            ("search", refusals.iter().map(ToString::to_string).collect())
        }
        Document::Scenario(scenario) => ("replay", serving::unsupported(scenario)),
    };
    if let Document::Scenario(scenario) = document {
        for remark in serving::planner::remarks(scenario, registry) {
            console.note(format!("{}: warning: {remark}", file.display()));
        }
    }
    for refusal in refusals {
        console.note(format!("{}: `spica {command}` will refuse {refusal}", file.display()));
    }
}
