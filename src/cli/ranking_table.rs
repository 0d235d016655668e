//! The answer of a search on a terminal.

use comfy_table::{CellAlignment, ContentArrangement, Table, presets};
use serde_json::{Value, json};

use super::nearest_table::nearest_lines;
use crate::report::ranking::{ABSENT, Cell, Medium, Ranking, joined, left_out};
use crate::report::reasons::{Reason, reasons};
use crate::report::shortfalls::incomplete;
use crate::search::predictor_sweep::Comparison;
use crate::search::{Candidate, Forecasts, SearchResult, StudyEnd, StudySummary};

/// Different reasons that are shown.
const REASONS_SHOWN: usize = 3;

/// The ranking, the tally, and the reasons why trials were rejected.
pub(super) fn search_table(result: &SearchResult) -> String {
    let mut lines = Vec::new();
    if !result.candidates.is_empty() {
        if result.goal.is_pareto() {
            lines.push(format!("pareto front ({} non-dominated):", result.candidates.len()));
        }
        lines.extend(ranking(result));
    }
    lines.extend(result.incomplete.iter().map(|shortfall| incomplete(&shortfall.reason)));
    if !result.certified_optimum {
        lines.extend(exhausted(&result.studies));
    }
    lines.extend(result.load_predictors.as_ref().map(load_predictors));
    lines.extend(result.screenings.iter().map(|screening| {
        let mode = screening.deployment_mode.name();
        format!("screened: {} {mode} candidates on {}", screening.candidates, screening.portion)
    }));
    let left_out = result.skipped.iter().filter(|skip| skip.shape.is_none());
    lines.extend(left_out.map(|skip| format!("left out: {skip}")));
    lines.push(tally(result));
    lines.extend(rejections(result));
    lines.extend(result.nearest.iter().flat_map(|nearest| nearest_lines(nearest, &result.rejected)));
    lines.join("\n") + "\n"
}

/// That no points are left to try, or of which modes. Once one study is interrupted, the others may not have tried all that they
/// have taken.
fn exhausted(studies: &[StudySummary]) -> Option<String> {
    let ended: Vec<&str> = studies
        .iter()
        .filter(|study| study.end == StudyEnd::Exhausted)
        .map(|study| study.mode.name())
        .collect();
    match ended.len() {
        0 => None,
        _ if studies.iter().any(|study| study.end.is_interrupted()) => None,
        all if all == studies.len() => Some("no points are left to try".into()),
        _ => Some(format!("no {} points are left to try", ended.join(" and "))),
    }
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

/// The ranking with what is to be said below it.
fn ranking(result: &SearchResult) -> Vec<String> {
    let candidates: Vec<Value> = result.candidates.iter().map(row).collect();
    let ranking = Ranking::new(&candidates, &result.searched, Medium::Terminal);
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(ranking.columns.iter().map(|column| column.heading.as_str()));
    for row in 0..ranking.rows {
        table.add_row(ranking.columns.iter().map(|column| shown(&column.cells[row])));
    }
    for column in table.column_iter_mut() {
        column.set_cell_alignment(CellAlignment::Right);
    }
    let mut lines = vec![table.trim_fmt()];
    lines.extend(ranking.remarks);
    if ranking.hidden > 0 {
        lines.push(format!("... and {} more: `--format json` and `--output-dir` give all", ranking.hidden));
    }
    if !result.goal.is_pareto() {
        lines.extend(left_out(result.candidates.len(), result.tally.feasible, result.tally.stopped_early));
    }
    lines
}

/// A candidate as its file has it, but for its scenario.
fn row(candidate: &Candidate) -> Value {
    let Candidate { rank, score, regret, used_gpus, config, metrics, objectives, timing, scenario: _ } =
        candidate;
    json!({
        "rank": rank, "score": score, "regret": regret, "used_gpus": used_gpus, "config": config, "metrics": metrics,
        "objectives": objectives, "timing": timing,
    })
}

fn shown(cell: &Cell) -> String {
    match cell {
        Cell::Absent => ABSENT.into(),
        Cell::Figure(value) => value.as_f64().map_or_else(|| ABSENT.into(), figure),
        Cell::Text(text) => text.clone(),
        Cell::Several(texts) => joined(texts),
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
    let all = result.rejected.iter().map(|rejected| (rejected.outcome, rejected.reason.as_str()));
    let reasons = reasons(all);
    let mut lines: Vec<String> = reasons
        .iter()
        .take(REASONS_SHOWN)
        .map(|Reason { text, trials, .. }| format!("rejected {trials}x: {text}"))
        .collect();
    if let Some(more) = reasons.len().checked_sub(REASONS_SHOWN).filter(|&more| more > 0) {
        lines.push(format!("+{more} more reasons"));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::scenario::DeploymentMode;

    #[test]
    fn modes_without_points_are_named_while_others_have_some() {
        let told = |ends: &[StudyEnd]| {
            let modes = [DeploymentMode::Agg, DeploymentMode::Disagg];
            let studies = modes.into_iter().zip(ends);
            let studies: Vec<StudySummary> =
                studies.map(|(mode, &end)| StudySummary { mode, end, covers_all_points: false }).collect();
            exhausted(&studies).unwrap_or_default()
        };
        let (none_left, done) = (StudyEnd::Exhausted, StudyEnd::RoundsDone);
        let interrupted = StudyEnd::Interrupted { missing: 1, is_least: false };
        assert_eq!(told(&[none_left]), "no points are left to try");
        assert_eq!(told(&[none_left, none_left]), "no points are left to try");
        assert_eq!(told(&[done, none_left]), "no disagg points are left to try");
        assert_eq!(told(&[done, done]), "");
        assert_eq!(told(&[none_left, interrupted]), "");
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
