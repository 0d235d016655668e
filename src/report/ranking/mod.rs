//! The candidates of a search as a table: which columns it has, which candidates share a row, and what is to be said below it. A
//! terminal and a page show the same. Candidates come as they stand in `candidates.json`.

mod alike;
mod settings;

use indexmap::IndexMap;
use serde::Deserialize as _;
use serde_json::{Number, Value};

use super::figure::significant;
use super::record::{Standing, TimingRecord, TimingSource};
use alike::alike;
pub use alike::{came_out_alike, different, figures_of_outcome, joined};
pub use settings::{ABSENT, settings, varying};

/// What a row of several candidates means.
const ALIKE: &str = "alike: so many candidates came out the same in every figure; of each setting, the values that it has among them";
/// What one of the marks means.
const OUTSIDE: &str = "extrapolated: some passes lie outside what their timing was sampled from";

/// When a figure has a column.
#[derive(Clone, Copy, PartialEq)]
enum Shown {
    /// Where candidates have it.
    Always,
    /// Where there is a planner.
    Planned,
    /// Where it is not 0 for all.
    Positive,
    /// Where there is room.
    Page,
}

use Shown::{Always, Page, Planned, Positive};

/// Figures by heading, name in the summary and factor.
const FIGURES: [(&str, &str, f64, Shown); 13] = [
    ("avg GPUs", "avg_gpu", 1.0, Planned),
    ("peak GPUs", "peak_gpus", 1.0, Planned),
    ("tok/s", "output_throughput_tok_s", 1.0, Always),
    ("goodput tok/s", "goodput_output_throughput_tok_s", 1.0, Always),
    ("attainment %", "attainment", 100.0, Always),
    ("TTFT ms", "mean_ttft_ms", 1.0, Always),
    ("p99 TTFT ms", "p99_ttft_ms", 1.0, Page),
    ("TPOT ms", "mean_tpot_ms", 1.0, Always),
    ("E2E ms", "mean_e2e_latency_ms", 1.0, Always),
    ("user tok/s", "mean_output_token_throughput_per_user", 1.0, Page),
    ("GPU hours", "gpu_hours", 1.0, Page),
    ("rejected", "rejected_requests", 1.0, Positive),
    ("unfinished", "unfinished_requests", 1.0, Positive),
];

/// Where a ranking is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Medium {
    /// Has room for the first rows and the figures that matter most; the files and the JSON form hold all.
    Terminal,
    /// Has room for all rows and some more figures.
    Page,
}

impl Medium {
    fn most_rows(self) -> usize {
        match self {
            Self::Terminal => 20,
            Self::Page => usize::MAX,
        }
    }
}

/// The table.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Ranking {
    /// From left to right, each with as many cells.
    pub columns: Vec<Column>,
    /// How many rows there are.
    pub rows: usize,
    /// Candidates in rows that are not shown.
    pub hidden: usize,
    /// What is to be said of the table, a line each.
    pub remarks: Vec<String>,
}

/// A column.
#[derive(Clone, Debug, PartialEq)]
pub struct Column {
    /// What it shows.
    pub heading: String,
    /// Row by row.
    pub cells: Vec<Cell>,
}

/// A cell.
#[derive(Clone, Debug, PartialEq)]
pub enum Cell {
    /// There is no such setting or figure.
    Absent,
    /// A number, in full.
    Figure(Value),
    /// A setting.
    Text(String),
    /// The different values of a setting among those that share the row.
    Several(Vec<String>),
}

impl Cell {
    fn of(texts: Vec<&str>) -> Self {
        match texts[..] {
            [text] => Self::Text(text.into()),
            _ => Self::Several(texts.into_iter().map(str::to_owned).collect()),
        }
    }

    fn figure(value: &Value) -> Self {
        if value.is_number() { Self::Figure(value.clone()) } else { Self::Absent }
    }

    fn scaled(value: &Value, factor: f64) -> Self {
        if factor == 1.0 {
            return Self::figure(value);
        }
        let number = value.as_f64().and_then(|value| Number::from_f64(value * factor));
        number.map_or(Self::Absent, |number| Self::Figure(number.into()))
    }
}

impl Ranking {
    /// The ranking of `candidates`, in their order; `searched` are the settings of which there were several to choose from.
    pub fn new(candidates: &[Value], searched: &[impl AsRef<str>], medium: Medium) -> Self {
        let Some(best) = candidates.first() else { return Self::default() };
        let settings: Vec<_> = candidates.iter().map(settings_of).collect();
        let mut rows = alike(candidates);
        let hidden = rows.split_off(rows.len().min(medium.most_rows())).iter().map(Vec::len).sum();
        let column = |heading: &str, cell: &dyn Fn(&[usize]) -> Cell| Column {
            heading: heading.into(),
            cells: rows.iter().map(|row| cell(row)).collect(),
        };
        let of_first =
            |heading: &str, cell: &dyn Fn(&Value) -> Cell| column(heading, &|row| cell(&candidates[row[0]]));
        let mut columns = vec![of_first("rank", &|one| Cell::figure(&one["rank"]))];
        columns.extend(match best["objectives"].as_object() {
            Some(objectives) => objectives
                .keys()
                .map(|name| of_first(name, &|one| Cell::figure(&one["objectives"][name])))
                .collect(),
            None => vec![of_first("score", &|one| Cell::figure(&one["score"]))],
        });
        if best["regret"].is_number() {
            columns.push(of_first("regret %", &|one| Cell::scaled(&one["regret"], 100.0)));
        }
        columns.push(of_first("GPUs", &|one| Cell::figure(&one["used_gpus"])));
        if rows.iter().any(|row| row.len() > 1) {
            columns.push(column("alike", &|row| Cell::Figure(row.len().into())));
        }
        if candidates.iter().any(|one| !marks(one).is_empty()) {
            columns.push(of_first("timing", &|one| Cell::Text(told_marks(one))));
        }
        columns.extend(varying(&settings).into_iter().map(|name| {
            let of_one = |place: usize| settings[place].get(name).map_or(ABSENT, String::as_str);
            column(name, &|row| Cell::of(different(row.iter().map(|&place| of_one(place)))))
        }));
        columns.extend(figures(candidates, medium).map(|(heading, name, factor)| {
            of_first(heading, &|one| Cell::scaled(&one["metrics"][name], factor))
        }));
        let remarks = remarks(candidates, &rows, same_in_all(&settings, searched));
        Self { columns, rows: rows.len(), hidden, remarks }
    }
}

/// What a ranking leaves out because only the best were asked for.
pub fn left_out(ranked: usize, feasible: u64, stopped_early: u64) -> Option<String> {
    let behind = feasible.saturating_sub(ranked as u64);
    let kinds = [
        (
            behind,
            if behind == 1 { "feasible candidate behind them" } else { "feasible candidates behind them" },
        ),
        (
            stopped_early,
            if stopped_early == 1 { "whose replay stopped early" } else { "whose replays stopped early" },
        ),
    ];
    let left_out =
        kinds.iter().filter(|(count, _)| *count > 0).map(|(count, kind)| format!("{count} {kind}"));
    let left_out: Vec<String> = left_out.collect();
    (!left_out.is_empty())
        .then(|| format!("only the best are ranked (sweep.top), without {}", left_out.join(" and ")))
}

/// The same of a result as it stands in its file; a frontier is asked for as a whole.
pub fn left_out_of(result: &Value) -> Option<String> {
    let ranked = result["candidates"].as_array().filter(|_| result["goal"]["target"] != "pareto")?.len();
    let count = |outcome: &str| result["tally"][outcome].as_u64().unwrap_or(0);
    left_out(ranked, count("feasible"), count("stopped_early"))
}

/// The GPUs of a candidate in words: of a fleet that a planner changes, its layout says only what it starts with.
pub fn gpus_in_words(candidate: &Value) -> String {
    let used = &candidate["used_gpus"];
    match changing_gpus(candidate) {
        Some(later) => format!("{used} GPUs at the start, {later}"),
        None => format!("{used} GPUs"),
    }
}

/// What the GPUs of a fleet that a planner changes come to.
pub fn changing_gpus(candidate: &Value) -> Option<String> {
    let metrics = &candidate["metrics"];
    let figure = |name: &str| metrics[name].as_f64().map(|value| significant(value, 5));
    let average = figure("avg_gpu").filter(|_| metrics["planner_total_ticks"].is_number())?;
    let peak = figure("peak_gpus").map_or_else(String::new, |peak| format!(", {peak} at the peak"));
    Some(format!("{average} on average{peak}"))
}

fn settings_of(candidate: &Value) -> IndexMap<String, String> {
    candidate["config"].as_object().map(settings).unwrap_or_default()
}

/// The figures that have a column.
fn figures(candidates: &[Value], medium: Medium) -> impl Iterator<Item = (&'static str, &'static str, f64)> {
    let is_there = move |name: &str| candidates.iter().any(|one| one["metrics"][name].is_number());
    let is_positive = move |name: &str| {
        candidates.iter().any(|one| one["metrics"][name].as_f64().is_some_and(|count| count > 0.0))
    };
    FIGURES.into_iter().filter_map(move |(heading, name, factor, shown)| {
        let is_shown = match shown {
            Always => true,
            Planned => is_there("planner_total_ticks"),
            Positive => is_positive(name),
            Page => medium == Medium::Page,
        };
        (is_shown && is_there(name)).then_some((heading, name, factor))
    })
}

/// What priced the passes of each pool of a candidate.
fn timings(candidate: &Value) -> Vec<TimingRecord> {
    let pools = candidate["timing"].as_object().into_iter().flat_map(|pools| pools.values());
    pools.filter_map(|timing| TimingRecord::deserialize(timing).ok()).collect()
}

/// What is against the prices of a candidate's passes.
fn marks(candidate: &Value) -> Vec<&'static str> {
    let mut marks = Vec::new();
    for timing in timings(candidate) {
        let mark = match timing.standing() {
            Standing::Sound | Standing::Formula => continue,
            Standing::Suspect => "suspect",
            Standing::RoughEstimate => "rough",
        };
        if !marks.contains(&mark) {
            marks.push(mark);
        }
    }
    let outside = candidate["metrics"]["extrapolated_lookups"].as_f64().unwrap_or(0.0);
    marks.extend((outside > 0.0).then_some("extrapolated"));
    marks
}

fn told_marks(candidate: &Value) -> String {
    let marks = marks(candidate);
    let is_measured = timings(candidate).iter().any(|timing| timing.source == TimingSource::Grid);
    match marks.as_slice() {
        [] if is_measured => "measured".into(),
        [] => "profile".into(),
        marks => marks.join(", "),
    }
}

/// What was searched and has no column, since it is the same in all rows.
fn same_in_all(settings: &[IndexMap<String, String>], searched: &[impl AsRef<str>]) -> Option<String> {
    let searched: Vec<&str> = searched.iter().map(AsRef::as_ref).collect();
    let same = settings::same(settings, &searched);
    let words: Vec<String> = same.into_iter().map(|(heading, text)| format!("{heading} {text}")).collect();
    (!words.is_empty()).then(|| format!("the same in all rows: {}", words.join(", ")))
}

/// What is to be said of the candidates that are shown.
fn remarks(candidates: &[Value], rows: &[Vec<usize>], same: Option<String>) -> Vec<String> {
    let mut remarks: Vec<String> = same.into_iter().collect();
    if rows.iter().any(|row| row.len() > 1) {
        remarks.push(ALIKE.into());
    }
    let shown = || rows.iter().map(|row| &candidates[row[0]]);
    for timing in shown().flat_map(timings).filter(|timing| timing.standing() != Standing::Formula) {
        remarks.extend(timing.doubt().filter(|doubt| !remarks.contains(doubt)));
    }
    let is_outside = shown().any(|one| marks(one).contains(&"extrapolated"));
    remarks.extend(is_outside.then(|| OUTSIDE.to_owned()));
    remarks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_out_is_counted() {
        let start = "only the best are ranked (sweep.top), without ";
        let told = |ranked, feasible, early| {
            left_out(ranked, feasible, early).map(|words| words.strip_prefix(start).unwrap().to_owned())
        };
        assert_eq!(told(3, 3, 0), None);
        assert_eq!(told(3, 4, 0).unwrap(), "1 feasible candidate behind them");
        let both = "2 feasible candidates behind them and 1 whose replay stopped early";
        assert_eq!(told(3, 5, 1).unwrap(), both);
        assert_eq!(told(3, 3, 2).unwrap(), "2 whose replays stopped early");
    }
}
