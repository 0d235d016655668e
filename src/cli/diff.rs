//! `spica diff`: where two runs part, and how their figures differ.

use std::fmt::Write as _;
use std::path::Path;

use rustc_hash::FxHashMap;
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::arguments::{DiffArguments, Format};
use super::console::Console;
use super::failure::{Failure, Status};
use super::names::{CONFIG, Kind, REPORT};
use super::results::{
    answer, apart, differing, figure, find, note_unfinished, replay_report, request_rows, search_result,
    shown, trial_rows,
};
use crate::config::{self, Document, Loaded};
use crate::report::shortfalls::{shortfall_lines, shortfalls};
use crate::run;

/// Steps in the life of a request, in order, with what they are called.
const STEPS: [(&str, &str); 6] = [
    ("arrival_ms", "arrives"),
    ("dispatched_ms", "is dispatched"),
    ("first_admit_ms", "enters a batch"),
    ("first_token_ms", "gets its first token"),
    ("last_token_ms", "gets its last token"),
    ("terminal_ms", "ends"),
];

/// What differs between two runs.
#[derive(Serialize)]
struct Difference {
    /// What either answer lacks.
    incomplete: Incomplete,
    /// Where the goals of two searches differ in what a score is, so that their scores are not compared.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    goals: Vec<Setting>,
    /// The earliest event that is not the same in both; absent if all are.
    first_event: Option<Event>,
    /// Figures that are not the same.
    metrics: Vec<Metric>,
    /// Keys of the configurations of two searches that are not the same, by path; places of files as they are seen from here.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    configuration: Vec<Setting>,
    /// Settings that are not the same, by path; of two searches those of their first candidates.
    settings: Vec<Setting>,
}

#[derive(Default, Serialize)]
struct Incomplete {
    a: Vec<Value>,
    b: Vec<Value>,
}

#[derive(Serialize)]
struct Event {
    at_ms: f64,
    what: String,
    a: Value,
    b: Value,
}

#[derive(Serialize)]
struct Metric {
    name: String,
    a: Option<f64>,
    b: Option<f64>,
}

#[derive(Clone, Serialize)]
struct Setting {
    path: String,
    a: Value,
    b: Value,
}

pub(super) fn run(arguments: &DiffArguments, console: Console) -> Result<Status, Failure> {
    let (a, b) = (&arguments.a, &arguments.b);
    let difference = match (answer(a)?, answer(b)?) {
        (Kind::Replay, Kind::Replay) => replays(a, b)?,
        (Kind::Search, Kind::Search) => searches(a, b, console)?,
        (kind_a, kind_b) => {
            return Err(Failure::input(format!(
                "{} has {} and {} has {}: two replays or two searches can be compared",
                a.display(),
                kind_a.answer(),
                b.display(),
                kind_b.answer()
            )));
        }
    };
    for folder in [a, b] {
        note_unfinished(folder, console);
    }
    match console.format() {
        Format::Text => Console::print(&difference.text())?,
        Format::Json => Console::print_json(&difference)?,
    }
    Ok(Status::Success)
}

fn replays(a: &Path, b: &Path) -> Result<Difference, Failure> {
    let (report_a, report_b) = (replay_report(a)?, replay_report(b)?);
    let (rows_a, rows_b) = (request_rows(a, &report_a)?, request_rows(b, &report_b)?);
    Ok(Difference {
        incomplete: Incomplete::default(),
        goals: Vec::new(),
        first_event: first_event(&rows_a, &rows_b),
        metrics: metrics(&report_a["summary"], &report_b["summary"]),
        configuration: Vec::new(),
        settings: settings(
            &seen_from_here(&report_a["scenario"], a),
            &seen_from_here(&report_b["scenario"], b),
        ),
    })
}

fn searches(a: &Path, b: &Path, console: Console) -> Result<Difference, Failure> {
    let (result_a, result_b) = (search_result(a)?, search_result(b)?);
    let (best_a, best_b) = (&result_a["candidates"][0], &result_b["candidates"][0]);
    let goals = settings(&what_scores_are(&result_a["goal"]), &what_scores_are(&result_b["goal"]));
    let configuration = configurations(a, b, console);
    // What a search has as its goal, its scenarios have at their top.
    let is_told = |path: &str| {
        configuration.iter().any(|told| told.path == path || told.path.strip_prefix("goal.") == Some(path))
    };
    let scenarios = (seen_from_here(&best_a["scenario"], a), seen_from_here(&best_b["scenario"], b));
    let surroundings =
        surroundings(&scenarios.0, &scenarios.1).into_iter().filter(|setting| !is_told(&setting.path));
    Ok(Difference {
        incomplete: Incomplete { a: shortfalls(&result_a).to_vec(), b: shortfalls(&result_b).to_vec() },
        first_event: first_trial(&trial_rows(a)?, &trial_rows(b)?, goals.is_empty()),
        goals,
        metrics: metrics(&best_a["metrics"], &best_b["metrics"]),
        settings: settings(&best_a["config"], &best_b["config"]).into_iter().chain(surroundings).collect(),
        configuration,
    })
}

/// Where the configurations of two searches differ, if both have left one that can be read.
fn configurations(a: &Path, b: &Path, console: Console) -> Vec<Setting> {
    let (Some(a), Some(b)) = (find(a, CONFIG), find(b, CONFIG)) else { return Vec::new() };
    let read = |path: &Path| match run::read_document(path, &[]) {
        Ok(Loaded { document: Document::Search(config), .. }) => {
            Some(config.with_paths_from(Path::new("")).to_json())
        }
        Ok(_) => {
            console.note(format!("{}: is a scenario: configurations are not compared", path.display()));
            None
        }
        Err(problem) => {
            console.note(format!("{problem}\nnote: configurations are not compared"));
            None
        }
    };
    let (Some(a), Some(b)) = (read(&a), read(&b)) else { return Vec::new() };
    settings(&a, &b)
}

/// What of a goal says what a score is.
fn what_scores_are(goal: &Value) -> Value {
    let has_bounds = goal["target"].as_str().is_some_and(|target| target.starts_with("goodput"));
    let sla = if has_bounds { goal["sla"].clone() } else { Value::Null };
    json!({"goal": {"target": goal["target"], "pareto_objectives": goal["pareto_objectives"], "sla": sla}})
}

/// What two searches give all of their candidates, and no candidate says in its own settings: the requests, and what prices passes.
fn surroundings(a: &Value, b: &Value) -> Vec<Setting> {
    let is_common = |path: &str| !path.starts_with("deployment.") || path.contains(".timing.");
    let differing = settings(a, b).into_iter();
    differing.filter(|setting| is_common(&setting.path)).collect()
}

/// A scenario of the results in a folder, where its paths start, with paths from here: so the same file has the same path in two.
fn seen_from_here(scenario: &Value, folder: &Path) -> Value {
    match config::load(&scenario.to_string(), &folder.join(REPORT), &[]) {
        Ok(Document::Scenario(scenario)) => scenario.with_paths_from(Path::new("")).to_json(),
        // What is wrong with it is no matter of its paths.
        Ok(Document::Search(_)) | Err(_) => scenario.clone(),
    }
}

/// The earliest step of any request that is not the same in both runs.
fn first_event(a: &[Value], b: &[Value]) -> Option<Event> {
    let name = |row: &Value| shown(&row["request_id"]);
    let in_b: FxHashMap<String, &Value> = b.iter().map(|row| (name(row), row)).collect();
    let mut first: Option<Event> = None;
    let mut consider = |event: Option<Event>| {
        if let Some(event) = event
            && first.as_ref().is_none_or(|first| event.at_ms < first.at_ms)
        {
            first = Some(event);
        }
    };
    let mut met = 0;
    for row in a {
        let other = in_b.get(&name(row)).copied();
        met += usize::from(other.is_some());
        consider(parting(&name(row), row, other));
    }
    if met < in_b.len() {
        let in_a: FxHashMap<String, &Value> = a.iter().map(|row| (name(row), row)).collect();
        for row in b.iter().filter(|row| !in_a.contains_key(&name(row))) {
            let event = Event {
                at_ms: row["arrival_ms"].as_f64().unwrap_or(0.0),
                what: format!("{} arrives in the second run only", name(row)),
                a: Value::Null,
                b: row["arrival_ms"].clone(),
            };
            consider(Some(event));
        }
    }
    first
}

/// The first step in which two rows of one request differ.
fn parting(name: &str, a: &Value, b: Option<&Value>) -> Option<Event> {
    let at = |row: &Value, key: &str| row[key].as_f64();
    let Some(b) = b else {
        return Some(Event {
            at_ms: at(a, "arrival_ms").unwrap_or(0.0),
            what: format!("{name} arrives in the first run only"),
            a: a["arrival_ms"].clone(),
            b: Value::Null,
        });
    };
    let event = |at_ms: Option<f64>, what: String, key: &str| {
        Some(Event {
            at_ms: at_ms.unwrap_or(0.0),
            what: format!("{name} {what}"),
            a: a[key].clone(),
            b: b[key].clone(),
        })
    };
    for (key, what) in STEPS {
        if a[key] != b[key] {
            let earlier = at(a, key).into_iter().chain(at(b, key)).reduce(f64::min);
            return event(earlier, format!("{what} at another time (ms)"), key);
        }
        if key == "dispatched_ms" {
            for worker in ["prefill_worker", "decode_worker"] {
                if a[worker] != b[worker] {
                    return event(
                        at(a, key),
                        format!("goes to another {}", worker.replace('_', " ")),
                        worker,
                    );
                }
            }
        }
        if key == "first_admit_ms" && a["reused_input_tokens"] != b["reused_input_tokens"] {
            return event(at(a, key), "reuses another number of tokens".into(), "reused_input_tokens");
        }
    }
    (a["status"] != b["status"])
        .then(|| event(at(a, "terminal_ms"), "ends with another status".into(), "status"))?
}

/// The first trial that is not the same in both searches; scores of different goals say nothing.
fn first_trial(a: &[Value], b: &[Value], of_one_goal: bool) -> Option<Event> {
    let longest = a.len().max(b.len());
    (0..longest).find_map(|index| {
        let (left, right) = (a.get(index), b.get(index));
        let differs = ["config", "outcome", "score"]
            .into_iter()
            .filter(|key| of_one_goal || *key != "score")
            .find(|key| left.map(|trial| &trial[*key]) != right.map(|trial| &trial[*key]))?;
        let value = |trial: Option<&Value>| trial.map_or(Value::Null, |trial| trial[differs].clone());
        Some(Event {
            at_ms: 0.0,
            what: format!("trial {} has another {differs}", index + 1),
            a: value(left),
            b: value(right),
        })
    })
}

fn metrics(a: &Value, b: &Value) -> Vec<Metric> {
    let empty = Map::new();
    let (a, b) = (a.as_object().unwrap_or(&empty), b.as_object().unwrap_or(&empty));
    let names = a.keys().chain(b.keys().filter(|name| !a.contains_key(*name)));
    names
        .map(|name| {
            let value = |figures: &Map<String, Value>| figures.get(name).and_then(Value::as_f64);
            Metric { name: name.clone(), a: value(a), b: value(b) }
        })
        .filter(|metric| metric.a != metric.b)
        .collect()
}

fn settings(a: &Value, b: &Value) -> Vec<Setting> {
    differing(a, b).into_iter().map(|(path, a, b)| Setting { path, a, b }).collect()
}

impl Difference {
    fn text(&self) -> String {
        let mut text = String::new();
        for (which, shortfalls) in [("first", &self.incomplete.a), ("second", &self.incomplete.b)] {
            text.extend(shortfall_lines(shortfalls).map(|line| format!("the {which} run is {line}\n")));
        }
        if !self.goals.is_empty() {
            let words = |Setting { path, a, b }: &Setting| {
                let (a, b) = apart(a, b);
                format!("{path}: {a} -> {b}")
            };
            let goals: Vec<String> = self.goals.iter().map(words).collect();
            let _ = writeln!(text, "scores are of different goals and not compared ({})", goals.join(", "));
        }
        let are_set_alike = self.settings.is_empty() && self.configuration.is_empty();
        if self.first_event.is_none() && self.metrics.is_empty() && are_set_alike {
            return text + "the runs are the same\n";
        }
        for (heading, settings) in
            [("configurations differ in", &self.configuration), ("settings that differ", &self.settings)]
        {
            if !settings.is_empty() {
                let _ = writeln!(text, "{heading}");
            }
            for Setting { path, a, b } in settings {
                let (a, b) = apart(a, b);
                let _ = writeln!(text, "  {path}: {a} -> {b}");
            }
        }
        match &self.first_event {
            None => text += "every event is the same\n",
            Some(Event { at_ms, what, a, b }) => {
                let (at_ms, (a, b)) = (figure(*at_ms), apart(a, b));
                let _ = writeln!(text, "first event that differs, at {at_ms} ms\n  {what}: {a} -> {b}");
            }
        }
        text += &figures_text(&self.metrics);
        text
    }
}

impl Metric {
    /// By how much the second is more than the first, as a share.
    fn change(&self) -> Option<f64> {
        let (a, b) = self.a.zip(self.b).filter(|(a, _)| *a != 0.0)?;
        Some(b / a - 1.0)
    }

    /// Whether the two differ by no more than sums of floating-point numbers do that are added in another order.
    fn is_rounding(&self) -> bool {
        self.change().is_some_and(|change| change.abs() < 1e-12)
    }
}

fn figures_text(metrics: &[Metric]) -> String {
    let (rounding, metrics): (Vec<&Metric>, Vec<&Metric>) =
        metrics.iter().partition(|metric| metric.is_rounding());
    let names: Vec<&str> = rounding.iter().map(|metric| metric.name.as_str()).collect();
    let but = match names.len() {
        0 => String::new(),
        _ => format!(" but for the last digits of {}", names.join(", ")),
    };
    if metrics.is_empty() {
        return format!("every figure is the same{but}\n");
    }
    let mut text = String::from("figures that differ\n");
    let width = metrics.iter().map(|metric| metric.name.len()).max().unwrap_or(0);
    for metric in metrics {
        let (one, other) = apart(&json!(metric.a), &json!(metric.b));
        // A change that two digits do not show is shown as it is.
        let percent = |change: f64| {
            let change = change * 100.0;
            if change.abs() < 0.005 { format!("{change:+.1e} %") } else { format!("{change:+.2} %") }
        };
        let change = metric.change().map_or_else(String::new, percent);
        let _ = writeln!(text, "  {:<width$} {one:>14} {other:>14} {change:>12}", metric.name);
    }
    if !but.is_empty() {
        let _ = writeln!(text, "all others are the same{but}");
    }
    text
}
