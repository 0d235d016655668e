//! `spica check`: is this file right, and what does it say in full?

use std::path::Path;

use super::arguments::{CheckArguments, Format};
use super::console::Console;
use super::failure::{Failure, Status};
use super::input::load_document;
use super::overwrite;
use super::prepare;
use super::search::notice;
use crate::config::{Document, Loaded};
use crate::registry::Registry;

/// Everything that a run of the file would look at before it starts is looked at here too.
pub(super) fn run(
    arguments: &CheckArguments,
    console: Console,
    registry: &Registry,
) -> Result<Status, Failure> {
    let Loaded { document, places, .. } = load_document(&arguments.file, &arguments.overrides.set, console)?;
    match &document {
        Document::Search(config) => {
            let plan = prepare::plan(config.clone(), &places, registry)?;
            prepare::requests(&plan, &places, console)?;
            notice(&plan, &places, console);
        }
        Document::Scenario(scenario) => {
            prepare::replay(scenario.clone(), places, arguments.timing, registry, console)?;
        }
    }
    // Paths as the file itself would have to give them, so that the text can stand beside it.
    let document = document.with_paths_from(arguments.file.parent().unwrap_or(Path::new("")));
    match console.format() {
        Format::Text => Console::print(&(remark(&document) + &document.to_yaml()))?,
        Format::Json => Console::print_json(&document.to_json())?,
    }
    Ok(Status::Success)
}

/// Where the text can stand, if that matters.
fn remark(document: &Document) -> String {
    let files = overwrite::inputs(Path::new(""), document);
    // The first is the document itself.
    let is_bound = files.iter().skip(1).any(|(_, path)| path.is_relative());
    if is_bound {
        "# Paths start from the folder of the file that was checked.\n".into()
    } else {
        String::new()
    }
}
