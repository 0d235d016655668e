//! The answer of a search on a terminal.

use comfy_table::{CellAlignment, ContentArrangement, Table, presets};
use indexmap::IndexMap;
use serde_json::{Map, Value};

use super::alike::{alike, joined};
use super::nearest_table::nearest_lines;
use crate::report::record::{Standing, TimingSource};
use crate::report::shortfalls::incomplete;
use crate::search::predictor_sweep::Comparison;
use crate::search::{Candidate, Forecasts, SearchResult, StudyEnd, metric, reasons};

/// Rows that are shown; the files and the JSON form hold all candidates.
const SHOWN: usize = 20;
/// Different reasons that are shown.
const REASONS_SHOWN: usize = 3;
/// What stands where a candidate has no such setting or figure.
const ABSENT: &str = "-";

/// What a row of several candidates means.
const ALIKE: &str = "alike: so many candidates came out the same in every figure; of each setting, the values that it has among them";
/// Heading of what changes with a planner only.
const AVERAGE_GPUS: &str = "avg GPUs";
/// Figures that are shown when candidates have them: heading, name in the summary, factor.
const FIGURES: [(&str, &str, f64); 7] = [
    (AVERAGE_GPUS, "avg_gpu", 1.0),
    ("tok/s", "output_throughput_tok_s", 1.0),
    ("goodput tok/s", "goodput_output_throughput_tok_s", 1.0),
    ("attainment %", "attainment", 100.0),
    ("TTFT ms", "mean_ttft_ms", 1.0),
    ("TPOT ms", "mean_tpot_ms", 1.0),
    ("E2E ms", "mean_e2e_latency_ms", 1.0),
];

/// Counts of requests that did not complete, shown when there are any: heading, name in the summary.
const LOSSES: [(&str, &str); 2] = [("rejected", "rejected_requests"), ("unfinished", "unfinished_requests")];

/// The ranking, the tally, and the reasons why trials were rejected.
pub(super) fn search_table(result: &SearchResult) -> String {
    let mut lines = Vec::new();
    if !result.candidates.is_empty() {
        if result.goal.is_pareto() {
            lines.push(format!("pareto front ({} non-dominated):", result.candidates.len()));
        }
        let mut rows = alike(&result.candidates);
        let hidden: usize = rows.split_off(rows.len().min(SHOWN)).iter().map(Vec::len).sum();
        lines.push(ranking(&result.candidates, &rows));
        lines.extend(remarks(&result.candidates, &rows));
        if hidden > 0 {
            lines.push(format!("... and {hidden} more: `--format json` and `--output-dir` give all"));
        }
    }
    lines.extend(result.incomplete.iter().map(|shortfall| incomplete(&shortfall.reason)));
    let is_exhausted = result.studies.iter().any(|study| study.end == StudyEnd::Exhausted);
    if is_exhausted && !result.certified_optimum {
        lines.push("no points are left to try".into());
    }
    lines.extend(result.load_predictors.as_ref().map(load_predictors));
    lines.extend(result.screenings.iter().map(|screening| {
        let mode = setting(&serde_json::to_value(screening.deployment_mode).unwrap_or_default());
        format!("screened: {} {mode} candidates on {}", screening.candidates, screening.portion)
    }));
    let left_out = result.skipped.iter().filter(|skip| skip.shape.is_none());
    lines.extend(left_out.map(|skip| format!("left out: {skip}")));
    lines.push(tally(result));
    lines.extend(rejections(result));
    lines.extend(result.nearest.iter().flat_map(|nearest| nearest_lines(nearest, &result.rejected)));
    lines.join("\n") + "\n"
}

/// What planners forecast with, in a line.
fn load_predictors(forecasts: &Forecasts) -> String {
    let chosen = forecasts.by_interval_s.iter().map(|(interval_s, comparison)| {
        let Comparison { winner, loss, scored_windows: windows, .. } = comparison;
        match loss {
            Some(loss) => {
                format!("every {interval_s} s {winner} (loss {} over {windows} windows)", figure(*loss))
            }
            None => format!("every {interval_s} s {winner} (nothing to compare)"),
        }
    });
    format!("load predictors: {}", chosen.collect::<Vec<_>>().join(", "))
}

/// The candidates in `rows`, those of each row being alike.
fn ranking(candidates: &[Candidate], rows: &[Vec<usize>]) -> String {
    let settings: Vec<_> = candidates.iter().map(|candidate| settings(&candidate.config)).collect();
    let knobs = varying(&settings);
    let figures: Vec<_> = FIGURES
        .into_iter()
        .filter(|(_, name, _)| candidates.iter().any(|one| metric(&one.metrics, name).is_some()))
        .filter(|(heading, ..)| *heading != AVERAGE_GPUS || candidates.iter().any(has_planner))
        .chain(LOSSES.into_iter().map(|(heading, name)| (heading, name, 1.0)).filter(|(_, name, _)| {
            candidates.iter().any(|one| metric(&one.metrics, name).is_some_and(|count| count > 0.0))
        }))
        .collect();
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    let objectives = objectives(&candidates[0]);
    let has_marks = candidates.iter().any(|candidate| !marks(candidate).is_empty());
    let regret = candidates[0].regret.map(|_| "regret %");
    let headings = ["rank"].into_iter().chain(objectives.iter().copied()).chain(regret).chain(["GPUs"]);
    let has_alike = rows.iter().any(|row| row.len() > 1);
    let headings = headings.chain(has_alike.then_some("alike"));
    let headings = headings.chain(has_marks.then_some("timing")).chain(knobs.iter().copied());
    table.set_header(headings.chain(figures.iter().map(|(heading, ..)| *heading)));
    for row in rows {
        let candidate = &candidates[row[0]];
        let worth = objectives.iter().map(|name| figure(worth(candidate, name)));
        let regret = regret.map(|_| candidate.regret.map_or(ABSENT.into(), |regret| figure(regret * 100.0)));
        let place = [candidate.rank.to_string()].into_iter().chain(worth).chain(regret);
        let place = place.chain([candidate.used_gpus.to_string()]);
        let place = place.chain(has_alike.then(|| row.len().to_string()));
        let marks = has_marks.then(|| told_marks(candidate));
        let settings = knobs.iter().map(|knob| {
            joined(row.iter().map(|&place| settings[place].get(*knob).map_or(ABSENT, String::as_str)))
        });
        let measured = figures.iter().map(|(_, name, factor)| {
            metric(&candidate.metrics, name).map_or(ABSENT.into(), |value| figure(value * factor))
        });
        table.add_row(place.chain(marks).chain(settings).chain(measured));
    }
    for column in table.column_iter_mut() {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table.trim_fmt()
}

/// What is against the prices of a candidate's passes.
fn marks(candidate: &Candidate) -> Vec<&'static str> {
    let mut marks = Vec::new();
    for timing in candidate.timing.values() {
        let mark = match timing.standing() {
            Standing::Sound | Standing::Formula => continue,
            Standing::Suspect => "suspect",
            Standing::RoughEstimate => "rough",
        };
        if !marks.contains(&mark) {
            marks.push(mark);
        }
    }
    let outside = metric(&candidate.metrics, "extrapolated_lookups").unwrap_or(0.0);
    marks.extend((outside > 0.0).then_some("extrapolated"));
    marks
}

fn told_marks(candidate: &Candidate) -> String {
    let marks = marks(candidate);
    let is_measured = candidate.timing.values().any(|timing| timing.source == TimingSource::Grid);
    match marks.as_slice() {
        [] if is_measured => "measured".into(),
        [] => "profile".into(),
        marks => marks.join(", "),
    }
}

/// What the marks of the candidates that are shown mean.
fn remarks(candidates: &[Candidate], rows: &[Vec<usize>]) -> Vec<String> {
    let mut remarks: Vec<String> = Vec::new();
    let shown = || rows.iter().map(|row| &candidates[row[0]]);
    if rows.iter().any(|row| row.len() > 1) {
        remarks.push(ALIKE.into());
    }
    for candidate in shown() {
        for timing in candidate.timing.values().filter(|timing| timing.standing() != Standing::Formula) {
            remarks.extend(timing.doubt().filter(|doubt| !remarks.contains(doubt)));
        }
    }
    let extrapolated = shown().any(|one| marks(one).contains(&"extrapolated"));
    let outside = "extrapolated: some passes lie outside what their timing was sampled from";
    remarks.extend(extrapolated.then(|| outside.to_owned()));
    remarks
}

fn has_planner(candidate: &Candidate) -> bool {
    candidate.scenario.deployment.planner.is_some()
}

/// Headings of what the candidates are judged by.
fn objectives(candidate: &Candidate) -> Vec<&str> {
    match &candidate.objectives {
        Some(values) => values.keys().map(String::as_str).collect(),
        None => vec!["score"],
    }
}

fn worth(candidate: &Candidate, objective: &str) -> f64 {
    let value = candidate.objectives.as_ref().and_then(|values| metric(values, objective));
    value.unwrap_or(candidate.score)
}

/// Settings that another column tells already: the first that of GPUs, the others that of layouts.
const TOLD: [&str; 9] =
    ["used_gpus", "deployment_mode", "tp", "pp", "attention_dp", "moe_tp", "moe_ep", "strategy", "replicas"];

/// A candidate's settings by their headings, in their order: its layout in short, and what is set for both pools under
/// one heading, `prefill/decode`.
pub(super) fn settings(config: &Map<String, Value>) -> IndexMap<String, String> {
    let mut settings = IndexMap::new();
    let layout = layout(config);
    let told: &[&str] = if layout.is_some() { &TOLD } else { &TOLD[..1] };
    settings.extend(layout.map(|layout| ("layout".to_owned(), layout)));
    let of_role = |role: &str, stem: &str| config.get(&format!("{role}_{stem}")).map(setting);
    for (name, value) in config {
        let stem = ["agg_", "prefill_", "decode_"].iter().find_map(|role| name.strip_prefix(role));
        let pools = stem.map(|stem| (stem, of_role("prefill", stem), of_role("decode", stem)));
        let (heading, text) = match pools {
            Some((stem, Some(prefill), Some(decode))) if prefill == decode => (stem, prefill),
            Some((stem, Some(prefill), Some(decode))) => (stem, format!("{prefill}/{decode}")),
            Some((stem, None, None)) => (stem, setting(value)),
            _ => (name.as_str(), setting(value)),
        };
        if !told.contains(&heading) {
            settings.insert(heading.to_owned(), text);
        }
    }
    settings
}

/// Workers and their shapes: `4 x tp2`, or with two pools `1 x tp2 + 3 x dep4`.
fn layout(config: &Map<String, Value>) -> Option<String> {
    let pool = |role: &str| {
        let number = |name: &str| config.get(&format!("{role}{name}")).and_then(Value::as_u64);
        let strategy = config.get(&format!("{role}strategy")).and_then(Value::as_str).unwrap_or("tp");
        let gpus = number("tp")? * number("attention_dp").unwrap_or(1);
        let stages = number("pp").filter(|&pp| pp > 1).map_or(String::new(), |pp| format!("pp{pp}"));
        Some(format!("{} x {strategy}{gpus}{stages}", number("replicas")?))
    };
    pool("").or_else(|| Some(format!("{} + {}", pool("prefill_")?, pool("decode_")?)))
}

/// Headings of the settings in which the candidates that have them differ, in their order: what one mode or one router
/// has and another has not says no more than the mode or the router.
pub(super) fn varying(candidates: &[IndexMap<String, String>]) -> Vec<&str> {
    let mut first: IndexMap<&str, &str> = IndexMap::new();
    let mut varying: Vec<&str> = Vec::new();
    for (name, text) in candidates.iter().flatten() {
        let differs = *first.entry(name).or_insert(text) != text;
        if differs && !varying.contains(&name.as_str()) {
            varying.push(name);
        }
    }
    first.keys().copied().filter(|name| varying.contains(name)).collect()
}

fn setting(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => ABSENT.into(),
        other => other.to_string(),
    }
}

/// A figure with five significant digits, without zeros at the end, and with an exponent only from a thousand million on.
pub(super) fn figure(value: f64) -> String {
    if value == 0.0 {
        return "0".into();
    }
    let magnitude = value.abs().log10().floor() as i32;
    if magnitude >= 9 {
        return format!("{value:.4e}");
    }
    let decimals = (4 - magnitude).clamp(0, 9) as usize;
    let text = format!("{value:.decimals$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').into() } else { text }
}

fn tally(result: &SearchResult) -> String {
    let tally = &result.tally;
    let certified = match (result.certified_optimum, result.goal.is_pareto()) {
        (true, false) => "; every point was evaluated: rank 1 is the optimum",
        (true, true) => "; every point was evaluated: the front is that of the whole space",
        (false, _) => "",
    };
    let screened = match tally.screened {
        0 => String::new(),
        count => format!(", {count} screened"),
    };
    let screened = match tally.stopped_early {
        0 => screened,
        count => format!("{screened}, {count} stopped early"),
    };
    format!(
        "{} of {} trials feasible, {} infeasible, {} failed, {} unsupported{screened}; {} repeated an earlier one{certified}",
        tally.feasible,
        tally.attempts() + tally.unsupported,
        tally.infeasible,
        tally.failed,
        tally.unsupported,
        tally.cache_hit,
    )
}

fn rejections(result: &SearchResult) -> Vec<String> {
    let reasons = reasons(result.rejected.iter().map(|rejected| rejected.reason.as_str()));
    let mut lines: Vec<String> = reasons
        .iter()
        .take(REASONS_SHOWN)
        .map(|(reason, count)| format!("rejected {count}x: {reason}"))
        .collect();
    if let Some(more) = reasons.len().checked_sub(REASONS_SHOWN).filter(|&more| more > 0) {
        lines.push(format!("+{more} more reasons"));
    }
    lines
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn config(value: Value) -> Map<String, Value> {
        let Value::Object(config) = value else { panic!("an object") };
        config
    }

    #[test]
    fn settings_of_two_pools_share_a_heading() {
        let disaggregated = config(json!({
            "deployment_mode": "disagg", "prefill_tp": 2, "prefill_pp": 1, "prefill_attention_dp": 1,
            "prefill_strategy": "tep", "prefill_replicas": 1, "decode_tp": 1, "decode_pp": 2,
            "decode_attention_dp": 4, "decode_strategy": "dep", "decode_replicas": 3, "used_gpus": 14,
            "prefill_max_num_seqs": 256, "decode_max_num_seqs": 512, "prefill_block_size": 64,
            "decode_block_size": 64, "prefill_load_scale": 4.0,
        }));
        let texts: Vec<_> = settings(&disaggregated).into_iter().collect();
        let expected = [
            ("layout", "1 x tep2 + 3 x dep4pp2"),
            ("max_num_seqs", "256/512"),
            ("block_size", "64"),
            ("prefill_load_scale", "4.0"),
        ];
        assert_eq!(texts, expected.map(|(name, text)| (name.to_owned(), text.to_owned())));
        let aggregated = config(json!({"tp": 4, "replicas": 2, "agg_max_num_seqs": 64}));
        let texts: Vec<_> = settings(&aggregated).into_values().collect();
        assert_eq!(texts, ["2 x tp4", "64"]);
    }

    #[test]
    fn figures_keep_five_digits() {
        let cases = [
            (0.0, "0"),
            (1961.04, "1961"),
            (1961.06, "1961.1"),
            (123_456.7, "123457"),
            (0.000_123_456, "0.00012346"),
            (-12.5, "-12.5"),
            (100.0, "100"),
            (99.99999, "100"),
            (1.234_567e12, "1.2346e12"),
        ];
        for (value, text) in cases {
            assert_eq!(figure(value), text);
        }
    }
}
