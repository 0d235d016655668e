//! `spica report`: a page of what a replay or a search has written.

use std::path::Path;

use serde_json::Value;

use super::arguments::{FormatChoice, ReportArguments};
use super::console::Console;
use super::failure::{Failure, Status};
use super::results::{find, json_file, json_lines};
use crate::report::files::write_atomically;
use crate::report::html::{Figure, Page, ReplayFiles, STYLE, SearchFiles, replay_page, search_page};

pub(super) fn run(arguments: &ReportArguments, form: FormatChoice) -> Result<Status, Failure> {
    let page = load(&arguments.folder)?;
    let text = match form {
        FormatChoice::Html if arguments.figure.is_some() => {
            return Err(Failure::input("--figure: a single figure needs --format svg, csv or json"));
        }
        FormatChoice::Html => page.html(),
        FormatChoice::Svg => single(arguments, &page)?.svg(Some(STYLE)) + "\n",
        FormatChoice::Csv => single(arguments, &page)?.csv(),
        FormatChoice::Json => match &arguments.figure {
            None => as_json(&page),
            Some(_) => as_json(single(arguments, &page)?),
        },
        FormatChoice::Text => {
            return Err(Failure::input("--format: `spica report` makes html, svg, csv or json"));
        }
    };
    match &arguments.output {
        None => Console::print(&text)?,
        Some(path) => {
            write_atomically(path, |out| std::io::Write::write_all(out, text.as_bytes()))
                .map_err(Failure::run)?;
        }
    }
    Ok(Status::Success)
}

/// What is shown, as data.
fn as_json(shown: &impl serde::Serialize) -> String {
    let text = serde_json::to_string_pretty(shown).expect("plain data with string keys has a JSON form");
    text + "\n"
}

fn single<'p>(arguments: &ReportArguments, page: &'p Page) -> Result<&'p Figure, Failure> {
    let known = || page.figures().map(|figure| figure.id.as_str()).collect::<Vec<_>>().join(", ");
    let Some(name) = &arguments.figure else {
        return Err(Failure::input(format!("--figure: missing; there are {}", known())));
    };
    let found = page.figures().find(|figure| figure.id == *name);
    found.ok_or_else(|| {
        Failure::input(format!("--figure {name}: there is no such figure; there are {}", known()))
    })
}

fn load(folder: &Path) -> Result<Page, Failure> {
    let name =
        folder.canonicalize().ok().and_then(|path| Some(path.file_name()?.to_string_lossy().into_owned()));
    let name = name.unwrap_or_else(|| folder.display().to_string());
    if let Some(path) = find(folder, "candidates.json") {
        let trials = find(folder, "trials.jsonl").map(|path| json_lines(&path)).transpose()?;
        let files = SearchFiles { result: json_file(&path)?, trials: trials.unwrap_or_default() };
        return Ok(search_page(&name, &files));
    }
    let Some(path) = find(folder, "report.json") else {
        return Err(Failure::input(format!(
            "{}: holds neither report.json nor candidates.json: give the --output-dir of a replay or a search",
            folder.display()
        )));
    };
    let requests = find(folder, "requests.jsonl").map(|path| json_lines(&path)).transpose()?;
    let series: Option<Value> = find(folder, "series.json").map(|path| json_file(&path)).transpose()?;
    let ticks = find(folder, "scaling.jsonl").map(|path| json_lines(&path)).transpose()?.unwrap_or_default();
    let files =
        ReplayFiles { report: json_file(&path)?, requests: requests.unwrap_or_default(), series, ticks };
    Ok(replay_page(&name, &files))
}
