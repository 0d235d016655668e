//! `spica report`: a page of what a replay or a search has written.

use std::path::Path;

use super::arguments::{FormatChoice, ReportArguments};
use super::console::Console;
use super::failure::{Failure, Status};
use super::names::{Kind, REQUESTS};
use super::output::look_at_file;
use super::overwrite;
use super::results::{
    answer, find, note_unfinished, replay_report, request_rows, search_result, series, tick_rows, trial_rows,
};
use crate::report::files::write_atomically;
use crate::report::html::{Figure, Page, ReplayFiles, STYLE, SearchFiles, replay_page, search_page};

pub(super) fn run(
    arguments: &ReportArguments,
    form: FormatChoice,
    console: Console,
) -> Result<Status, Failure> {
    if let Some(path) = &arguments.output {
        look_at_file("--output", path)?;
        let results = [Kind::Replay, Kind::Search].into_iter();
        let inputs = results.flat_map(|kind| overwrite::files("what is shown", &arguments.folder, kind));
        overwrite::refuse(&inputs.collect::<Vec<_>>(), &[("--output".to_owned(), path.clone())])?;
    }
    let page = load(&arguments.folder)?;
    note_unfinished(&arguments.folder, console);
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
    if answer(folder)? == Kind::Search {
        let files = SearchFiles { result: search_result(folder)?, trials: trial_rows(folder)? };
        return Ok(search_page(&name, &files));
    }
    let report = replay_report(folder)?;
    let has_requests = find(folder, REQUESTS).is_some();
    let requests = if has_requests { request_rows(folder, &report)? } else { Vec::new() };
    let ticks = tick_rows(folder)?.unwrap_or_default();
    let files = ReplayFiles { report, requests, series: series(folder)?, ticks };
    Ok(replay_page(&name, &files))
}
