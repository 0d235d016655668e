//! Files that earlier commands have written.

use std::io::{BufRead, Read};
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use super::checks;
use super::console::Console;
use super::failure::Failure;
use super::input::open_file;
use super::names::{CANDIDATES, Kind, NEXT_TRIALS, REPORT, REQUESTS, SCALING, SERIES, TRIALS};
use crate::config;
use crate::report::figure::significant;
use crate::report::files::SCHEMA_VERSION;
use crate::search::Journal;

/// A file of a folder, if it is there.
pub(super) fn find(folder: &Path, name: &str) -> Option<PathBuf> {
    Some(folder.join(name)).filter(|path| path.is_file())
}

/// Whether a folder holds the answer of a replay or of a search.
pub(super) fn answer(folder: &Path) -> Result<Kind, Failure> {
    let refuse = |problem: &str| Err(Failure::input(format!("{}: {problem}", folder.display())));
    let has = |kind: Kind| find(folder, kind.answer()).is_some();
    // Those that `--resume` goes on from come first.
    let mut trials = vec![NEXT_TRIALS, TRIALS];
    trials.retain(|name| find(folder, name).is_some());
    match (has(Kind::Replay), has(Kind::Search)) {
        (true, false) => Ok(Kind::Replay),
        (false, true) => Ok(Kind::Search),
        (true, true) => refuse(
            "holds a replay (report.json) and a search (candidates.json): move the files of one of them to another folder",
        ),
        (false, false) if has(Kind::Part) => {
            refuse("holds a part of a search: `spica search merge` makes an answer of all parts")
        }
        (false, false) if !trials.is_empty() => refuse(&format!(
            "holds the trials of a search that {} ({}) and no answer: run it again with --resume",
            how_it_ended(folder, Kind::Search),
            trials[0]
        )),
        (false, false) if Kind::Replay.is_cut_off(folder) => {
            refuse("holds a replay that was cut off before its answer was in place: run it again")
        }
        (false, false) if !folder.is_dir() => refuse("there is no such folder"),
        (false, false) => refuse(
            "holds neither report.json nor candidates.json: give the --output-dir of a replay or a search",
        ),
    }
}

/// How a run ended that has left no answer.
pub(super) fn how_it_ended(folder: &Path, kind: Kind) -> &'static str {
    if kind.is_cut_off(folder) { "was cut off before its answer was in place" } else { "did not finish" }
}

/// Says so where a folder holds the trials of a later search than the one whose answer is read.
pub(super) fn note_unfinished(folder: &Path, console: Console) {
    if find(folder, NEXT_TRIALS).is_some() && find(folder, CANDIDATES).is_some() {
        let folder = folder.display();
        console.note(format!(
            "note: {folder}: a later search has not finished ({NEXT_TRIALS}); this is the answer before it"
        ));
    }
}

/// A folder that has to hold the answer of a search.
fn search_answer(folder: &Path) -> Result<(), Failure> {
    match answer(folder)? {
        Kind::Search => Ok(()),
        _ => Err(Failure::input(format!(
            "{}: holds a replay (report.json): give the --output-dir of a search",
            folder.display()
        ))),
    }
}

/// Reads a result file, and believes it if `check` finds nothing wrong with it.
fn json_file(path: &Path, check: fn(&Value) -> Vec<String>) -> Result<Value, Failure> {
    let mut text = String::new();
    open_file(path)?
        .read_to_string(&mut text)
        .map_err(|error| Failure::input(format!("{}: cannot be read: {error}", path.display())))?;
    let value: Value = serde_json::from_str(&text).map_err(|error| malformed(path, error.line(), &error))?;
    let version = value["schema_version"].as_u64();
    if version != Some(u64::from(SCHEMA_VERSION)) {
        let found = version.map_or("none".into(), |version| version.to_string());
        let message = format!("has schema_version {found}; this program reads {SCHEMA_VERSION}");
        return Err(Failure::input(format!("{}: {message}", path.display())));
    }
    let problems = check(&value);
    if problems.is_empty() {
        Ok(value)
    } else {
        Err(Failure::input(config::in_place(&text, path, &problems)))
    }
}

/// Reads a file of one JSON value a line, and believes it if `check` finds nothing wrong with any.
fn json_lines(path: &Path, check: fn(&Value) -> Vec<String>) -> Result<Vec<Value>, Failure> {
    let mut values = Vec::new();
    for (number, line) in (1..).zip(open_file(path)?.lines()) {
        let line = line.map_err(|error| Failure::input(format!("{}:{number}: {error}", path.display())))?;
        if line.trim().is_empty() {
            continue;
        }
        let value = serde_json::from_str(&line).map_err(|error| malformed(path, number, &error))?;
        believe(path, number, &check(&value))?;
        values.push(value);
    }
    Ok(values)
}

fn malformed(path: &Path, line: usize, error: &serde_json::Error) -> Failure {
    let text = error.to_string();
    let what = text.split(" at line ").next().unwrap_or_default();
    Failure::input(format!("{}:{line}: is no JSON: {what}, column {}", path.display(), error.column()))
}

fn believe(path: &Path, line: usize, problems: &[String]) -> Result<(), Failure> {
    match problems.first() {
        None => Ok(()),
        Some(problem) => Err(Failure::input(format!("{}:{line}: {problem}", path.display()))),
    }
}

/// The answer of a search.
pub(super) fn search_result(folder: &Path) -> Result<Value, Failure> {
    search_answer(folder)?;
    json_file(&folder.join(CANDIDATES), checks::search_result)
}

/// The committed trials of a search, if they are there. What a kill has left of a last line is no trial.
pub(super) fn trial_rows(folder: &Path) -> Result<Vec<Value>, Failure> {
    let Some(path) = find(folder, TRIALS) else { return Ok(Vec::new()) };
    let bytes = std::fs::read(&path)
        .map_err(|error| Failure::input(format!("{}: cannot be read: {error}", path.display())))?;
    let journal = Journal::read(&bytes)
        .map_err(|error| Failure::input(format!("{}:{}: {}", path.display(), error.line, error.problem)))?;
    let lines = bytes[..journal.length as usize].split_inclusive(|byte| *byte == b'\n');
    let row = |(number, line): (usize, &[u8])| {
        let value = serde_json::from_slice(line).map_err(|error| malformed(&path, number, &error))?;
        believe(&path, number, &checks::trial(&value))?;
        Ok(value)
    };
    (1..).zip(lines).map(row).collect()
}

/// The report of a replay.
pub(super) fn replay_report(folder: &Path) -> Result<Value, Failure> {
    json_file(&folder.join(REPORT), checks::replay_report)
}

/// The requests of a replay, as many as its report counts.
pub(super) fn request_rows(folder: &Path, report: &Value) -> Result<Vec<Value>, Failure> {
    let path = folder.join(REQUESTS);
    let rows = json_lines(&path, checks::request)?;
    match checks::requests_against(&report["summary"], &rows) {
        None => Ok(rows),
        Some(problem) => Err(Failure::input(format!("{}: {problem}", path.display()))),
    }
}

/// The ticks of a planner, if there was one.
pub(super) fn tick_rows(folder: &Path) -> Result<Option<Vec<Value>>, Failure> {
    find(folder, SCALING).map(|path| json_lines(&path, checks::tick)).transpose()
}

/// The series of a replay, if they are there.
pub(super) fn series(folder: &Path) -> Result<Option<Value>, Failure> {
    find(folder, SERIES).map(|path| json_file(&path, checks::series)).transpose()
}

/// Whether the candidates of a result are a frontier, of which none is the best.
pub(super) fn is_frontier(result: &Value) -> bool {
    result["goal"]["target"] == "pareto"
}

/// The objectives of a candidate on a frontier, in words.
pub(super) fn objectives(candidate: &Value) -> String {
    let values = candidate["objectives"].as_object().into_iter().flatten();
    values.map(|(name, value)| format!("{name} {}", shown(value))).collect::<Vec<_>>().join(", ")
}

/// The candidate of a rank of the result that a folder holds, or the only one to choose.
pub(super) fn chosen<'r>(
    folder: &Path,
    result: &'r Value,
    rank: Option<usize>,
) -> Result<&'r Value, Failure> {
    let candidates = candidates(result);
    if rank.is_none() && is_frontier(result) && candidates.len() > 1 {
        let points =
            candidates.iter().map(|one| format!("\n  --rank {}: {}", shown(&one["rank"]), objectives(one)));
        return Err(Failure::input(format!(
            "--rank: missing: {} is a frontier of {} candidates, of which none is the best{}",
            folder.join(CANDIDATES).display(),
            candidates.len(),
            points.collect::<String>()
        )));
    }
    candidate(folder, result, rank.unwrap_or(1))
}

fn candidates(result: &Value) -> &[Value] {
    result["candidates"].as_array().map(Vec::as_slice).unwrap_or_default()
}

/// The candidate of a rank of the result that a folder holds.
pub(super) fn candidate<'r>(folder: &Path, result: &'r Value, rank: usize) -> Result<&'r Value, Failure> {
    let path = folder.join(CANDIDATES);
    let candidates = candidates(result);
    let Some(found) = rank.checked_sub(1).and_then(|index| candidates.get(index)) else {
        let ranks = match candidates.len() {
            0 => "there are no candidates".to_owned(),
            1 => "the only rank is 1".to_owned(),
            last => format!("ranks go from 1 to {last}"),
        };
        return Err(Failure::input(format!("{}: rank {rank}: {ranks}", path.display())));
    };
    let problems = checks::deployment(found, &format!("candidates[{}]", rank - 1));
    if problems.is_empty() {
        return Ok(found);
    }
    let text = std::fs::read_to_string(&path).unwrap_or_default();
    Err(Failure::input(config::in_place(&text, &path, &problems)))
}

/// The values of nested objects, and of objects in lists, by their paths.
pub(super) fn flattened(value: &Value) -> Map<String, Value> {
    let mut flat = Map::new();
    flatten(value, "", &mut flat);
    flat
}

fn flatten(value: &Value, path: &str, flat: &mut Map<String, Value>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                let inner = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                flatten(value, &inner, flat);
            }
        }
        Value::Array(items) if items.iter().any(Value::is_object) => {
            for (index, item) in items.iter().enumerate() {
                flatten(item, &format!("{path}[{index}]"), flat);
            }
        }
        other => {
            flat.insert(path.to_owned(), other.clone());
        }
    }
}

/// Where nested values differ: the path, and both values.
pub(super) fn differing(a: &Value, b: &Value) -> Vec<(String, Value, Value)> {
    let (a, b) = (flattened(a), flattened(b));
    let paths = a.keys().chain(b.keys().filter(|path| !a.contains_key(*path)));
    paths
        .map(|path| {
            let value = |values: &Map<String, Value>| values.get(path).cloned().unwrap_or_default();
            (path.clone(), value(&a), value(&b))
        })
        .filter(|(_, a, b)| a != b)
        .collect()
}

/// Whether a key of a configuration says where a file is.
pub(super) fn is_place(path: &str) -> bool {
    matches!(path.rsplit('.').next(), Some("path" | "trace_path" | "rescale"))
}

/// Where two configurations of searches differ: the paths, each with what is said of it. Where files are does not matter: their
/// content is part of what each trial is known by.
pub(super) fn changes(a: &Value, b: &Value) -> Vec<(String, String)> {
    let differing = differing(a, b).into_iter().filter(|(path, _, _)| !is_place(path));
    let in_words = differing.map(|(path, a, b)| {
        let (a, b) = apart(&a, &b);
        let words = format!("{path}: {a} -> {b}");
        (path, words)
    });
    in_words.collect()
}

/// Changes in words, one after the other.
pub(super) fn listed(changes: &[(String, String)]) -> String {
    changes.iter().map(|(_, words)| words.as_str()).collect::<Vec<_>>().join(", ")
}

/// A value for people.
pub(super) fn shown(value: &Value) -> String {
    match value {
        Value::Null => "-".into(),
        Value::String(text) => text.clone(),
        Value::Number(number) if number.is_f64() => number.as_f64().map_or_else(String::new, figure),
        other => other.to_string(),
    }
}

/// Two values that are not the same, for people: so exactly that they do not look the same.
pub(super) fn apart(a: &Value, b: &Value) -> (String, String) {
    let (one, other) = (shown(a), shown(b));
    if one == other { (a.to_string(), b.to_string()) } else { (one, other) }
}

/// A figure with six significant digits, without zeros at the end.
pub(super) fn figure(value: f64) -> String {
    if value.is_finite() { significant(value, 6) } else { value.to_string() }
}
