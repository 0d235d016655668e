//! What result files have to be like to be believed: every key that is read, with a value of its kind, and figures that do not
//! contradict each other.

use std::path::Path;

use serde_json::Value;

use crate::config::scenario::Scenario;
use crate::config::search::OptimizationTarget;
use crate::config::{self, Document};
use crate::search::{Metrics, objective_value, score};

/// What a value is.
#[derive(Clone, Copy)]
enum Form {
    Object,
    List,
    Count,
    Number,
    /// Or null.
    Figure,
    Text,
}

use Form::{Count, Figure, List, Number, Object, Text};

impl Form {
    fn is_of(self, value: &Value) -> bool {
        match self {
            Object => value.is_object(),
            List => value.is_array(),
            Count => value.is_u64(),
            Number => value.is_number(),
            Figure => value.is_number() || value.is_null(),
            Text => value.is_string(),
        }
    }

    fn name(self) -> &'static str {
        match self {
            Object => "an object",
            List => "a list",
            Count => "a whole number from 0",
            Number => "a number",
            Figure => "a number or null",
            Text => "a text",
        }
    }
}

type Fields = &'static [(&'static str, Form)];

const RESULT: Fields = &[("goal", Object), ("tally", Object), ("candidates", List), ("rejected", List)];
const TALLY: Fields = &[
    ("feasible", Count),
    ("infeasible", Count),
    ("failed", Count),
    ("unsupported", Count),
    ("cache_hit", Count),
];
const CANDIDATE: Fields = &[
    ("rank", Count),
    ("score", Number),
    ("used_gpus", Count),
    ("config", Object),
    ("metrics", Object),
    ("scenario", Object),
];
const REJECTED: Fields = &[("config", Object), ("outcome", Text), ("reason", Text)];
const SHORTFALL: Fields = &[("cause", Text), ("reason", Text)];
const TRIAL: Fields = &[("config", Object), ("used_gpus", Count), ("score", Figure)];
const REPORT: Fields = &[("scenario", Object), ("summary", Object)];
const SUMMARY: Fields = &[
    ("num_requests", Count),
    ("completed_requests", Count),
    ("rejected_requests", Count),
    ("unfinished_requests", Count),
];
const REQUEST: Fields = &[
    ("request_id", Text),
    ("status", Text),
    ("arrival_ms", Figure),
    ("dispatched_ms", Figure),
    ("first_admit_ms", Figure),
    ("first_token_ms", Figure),
    ("last_token_ms", Figure),
    ("terminal_ms", Figure),
    ("ttft_ms", Figure),
    ("e2e_ms", Figure),
    ("tpot_ms", Figure),
    ("input_length", Count),
    ("output_length", Count),
    ("reused_input_tokens", Count),
];
const TICK: Fields = &[("tick", Count), ("at_ms", Number)];
const SERIES: Fields = &[("bin_ms", Number), ("fleet", Object), ("pools", List), ("ranks", List)];

/// What is wrong with `candidates.json`: lines of the form `key.path: what is wrong`.
pub(super) fn search_result(result: &Value) -> Vec<String> {
    let mut problems = Problems::default();
    if !problems.fields(result, "", RESULT) || !problems.fields(&result["tally"], "tally", TALLY) {
        return problems.0;
    }
    let Some(goal) = problems.targets(&result["goal"]) else { return problems.0 };
    let (candidates, rejected) = (list(&result["candidates"]), list(&result["rejected"]));
    for (place, candidate) in candidates.iter().enumerate() {
        problems.candidate(candidate, place, &goal);
    }
    for (place, trial) in rejected.iter().enumerate() {
        problems.fields(trial, &format!("rejected[{place}]"), REJECTED);
    }
    problems.shortfalls(result);
    let count = |name: &str| result["tally"][name].as_u64().unwrap_or(0);
    let outcomes = ["infeasible", "failed", "unsupported", "stopped_early"];
    let (feasible, others) = (count("feasible"), outcomes.map(count).iter().sum::<u64>());
    if feasible < candidates.len() as u64 {
        problems
            .say("tally.feasible", format!("{feasible} are fewer than the {} candidates", candidates.len()));
    }
    if others != rejected.len() as u64 {
        problems.say("rejected", format!("has {} trials, and the tally {others} of them", rejected.len()));
    }
    problems.0
}

/// What is wrong with `report.json`.
pub(super) fn replay_report(report: &Value) -> Vec<String> {
    let mut problems = Problems::default();
    let summary = &report["summary"];
    if !problems.fields(report, "", REPORT) || !problems.fields(summary, "summary", SUMMARY) {
        return problems.0;
    }
    problems.figures(summary, "summary");
    let count = |name: &str| summary[name].as_u64().unwrap_or(0);
    let parts = ["completed_requests", "rejected_requests", "unfinished_requests"].map(count);
    let sum = parts.iter().fold(0_u64, |sum, part| sum.saturating_add(*part));
    let all = count("num_requests");
    if sum != all {
        problems.say("summary.num_requests", format!("{all} is not the sum of those that ended, {sum}"));
    }
    problems.scenario(&report["scenario"], "scenario");
    problems.0
}

/// What is wrong with the scenario of a candidate, which stands under `path`.
pub(super) fn deployment(candidate: &Value, path: &str) -> Vec<String> {
    let mut problems = Problems::default();
    if let Some(scenario) = problems.scenario(&candidate["scenario"], &format!("{path}.scenario")) {
        let gpus = scenario.deployment.gpus();
        let used = &candidate["used_gpus"];
        if *used != gpus {
            problems.say(&format!("{path}.used_gpus"), format!("{used} GPUs, and its scenario has {gpus}"));
        }
    }
    problems.0
}

/// What is wrong with the rows of `requests.jsonl` beside their report.
pub(super) fn requests_against(summary: &Value, rows: &[Value]) -> Option<String> {
    for status in ["completed", "rejected", "unfinished"] {
        let name = format!("{status}_requests");
        let found = rows.iter().filter(|row| row["status"] == status).count() as u64;
        let counted = summary[&name].as_u64().unwrap_or(0);
        if found != counted {
            return Some(format!("{found} requests are {status}, and report.json counts {counted}"));
        }
    }
    None
}

/// What is wrong with a line of `requests.jsonl`.
pub(super) fn request(row: &Value) -> Vec<String> {
    Problems::of(row, REQUEST)
}

/// What is wrong with a line of `scaling.jsonl`.
pub(super) fn tick(row: &Value) -> Vec<String> {
    Problems::of(row, TICK)
}

/// What is wrong with a line of `trials.jsonl`.
pub(super) fn trial(row: &Value) -> Vec<String> {
    Problems::of(row, TRIAL)
}

/// What is wrong with `series.json`.
pub(super) fn series(series: &Value) -> Vec<String> {
    Problems::of(series, SERIES)
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

#[derive(Default)]
struct Problems(Vec<String>);

impl Problems {
    fn of(value: &Value, fields: Fields) -> Vec<String> {
        let mut problems = Self::default();
        problems.fields(value, "", fields);
        problems.0
    }

    fn say(&mut self, path: &str, problem: impl std::fmt::Display) {
        self.0.push(format!("{path}: {problem}"));
    }

    /// Whether these fields are there, each with a value of its form.
    fn fields(&mut self, value: &Value, path: &str, fields: Fields) -> bool {
        let before = self.0.len();
        if !value.is_object() {
            let path = if path.is_empty() { "the whole" } else { path };
            self.say(path, format!("{} is not an object", brief(value)));
            return false;
        }
        for (name, form) in fields {
            let path = if path.is_empty() { (*name).to_owned() } else { format!("{path}.{name}") };
            match value.get(name) {
                None => self.say(&path, format!("is missing; it has to be {}", form.name())),
                Some(value) if !form.is_of(value) => {
                    self.say(&path, format!("{} is not {}", brief(value), form.name()));
                }
                Some(_) => {}
            }
        }
        self.0.len() == before
    }

    /// What the answer says that it lacks, if it says so.
    fn shortfalls(&mut self, result: &Value) {
        let Some(shortfalls) = result.get("incomplete") else { return };
        if self.fields(result, "", &[("incomplete", List)]) {
            for (place, shortfall) in list(shortfalls).iter().enumerate() {
                self.fields(shortfall, &format!("incomplete[{place}]"), SHORTFALL);
            }
        }
    }

    /// Whether every figure is a number, or null.
    fn figures(&mut self, metrics: &Value, path: &str) {
        for (name, value) in
            metrics.as_object().into_iter().flatten().filter(|(_, value)| !Figure.is_of(value))
        {
            self.say(&format!("{path}.{name}"), format!("{} is not {}", brief(value), Figure.name()));
        }
    }

    /// A scenario, if it is one.
    fn scenario(&mut self, value: &Value, path: &str) -> Option<Scenario> {
        match config::load(&value.to_string(), Path::new(path), &[]) {
            Ok(Document::Scenario(scenario)) => Some(scenario),
            Ok(Document::Search(_)) => {
                self.say(path, "is a search configuration, not a scenario");
                None
            }
            Err(found) => {
                for problem in found.problems() {
                    let dot = if problem.path.is_empty() { "" } else { "." };
                    self.say(&format!("{path}{dot}{}", problem.path), &problem.message);
                }
                None
            }
        }
    }

    /// What is searched for: whether it is a frontier, and its objectives.
    fn targets(&mut self, goal: &Value) -> Option<(bool, Vec<OptimizationTarget>)> {
        let mut target = |value: &Value, path: &str| {
            let known = serde_json::from_value::<OptimizationTarget>(value.clone());
            known.inspect_err(|_| self.say(path, format!("{} is no objective", brief(value)))).ok()
        };
        match target(&goal["target"], "goal.target")? {
            OptimizationTarget::Pareto => {
                let names = list(&goal["pareto_objectives"]).iter();
                let targets = names.map(|name| target(name, "goal.pareto_objectives"));
                let targets: Vec<_> = targets.collect::<Option<_>>()?;
                let is_nested = targets.is_empty() || targets.contains(&OptimizationTarget::Pareto);
                if is_nested {
                    self.say("goal.pareto_objectives", "are no objectives of a frontier");
                }
                (!is_nested).then_some((true, targets))
            }
            single => Some((false, vec![single])),
        }
    }

    fn candidate(&mut self, candidate: &Value, place: usize, goal: &(bool, Vec<OptimizationTarget>)) {
        let path = format!("candidates[{place}]");
        if !self.fields(candidate, &path, CANDIDATE) {
            return;
        }
        if candidate["rank"] != place + 1 {
            self.say(
                &format!("{path}.rank"),
                format!("{} is in the place of {}", candidate["rank"], place + 1),
            );
        }
        let (used, config) = (&candidate["used_gpus"], &candidate["config"]["used_gpus"]);
        if config.is_number() && config != used {
            self.say(&format!("{path}.used_gpus"), format!("{used} GPUs, and its config has {config}"));
        }
        self.figures(&candidate["metrics"], &format!("{path}.metrics"));
        let Some(metrics) = candidate["metrics"].as_object() else { return };
        let (is_frontier, targets) = goal;
        if *is_frontier {
            self.objectives(candidate, &path, targets, metrics);
        } else {
            self.worth(&candidate["score"], &format!("{path}.score"), targets[0], metrics, score);
        }
    }

    /// Whether the objectives of a candidate on a frontier are those of its figures, and its score is the first of them.
    fn objectives(
        &mut self,
        candidate: &Value,
        path: &str,
        targets: &[OptimizationTarget],
        metrics: &Metrics,
    ) {
        let as_it_is = |_, value| value;
        self.worth(&candidate["score"], &format!("{path}.score"), targets[0], metrics, as_it_is);
        for &target in targets {
            let name = crate::search::objective_name(target);
            let value = &candidate["objectives"][&name];
            self.worth(value, &format!("{path}.objectives.{name}"), target, metrics, as_it_is);
        }
    }

    fn worth(
        &mut self,
        said: &Value,
        path: &str,
        target: OptimizationTarget,
        metrics: &Metrics,
        signed: impl Fn(OptimizationTarget, f64) -> f64,
    ) {
        match objective_value(target, metrics) {
            Ok(value) if said.as_f64() == Some(signed(target, value)) => {}
            Ok(value) => {
                let value = signed(target, value);
                self.say(path, format!("{} is not what its metrics come to, {value}", brief(said)));
            }
            Err(name) => self.say(path, format!("{}, but its metrics have no {name}", brief(said))),
        }
    }
}

/// A value for a message.
fn brief(value: &Value) -> String {
    const MOST: usize = 40;
    let text = value.to_string();
    if text.chars().count() <= MOST { text } else { text.chars().take(MOST).chain("…".chars()).collect() }
}
