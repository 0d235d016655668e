//! Who came nearest to the goal, where no candidate counts, for a terminal.

use super::ranking_table::figure;
use crate::report::figure::at_least;
use crate::report::ranking::{settings, varying};
use crate::search::{BoundReached, NearestMiss, Rejected};

/// The candidate by its layout and the settings in which it may differ from the others, its attainment, and a line for each bound.
pub(super) fn nearest_lines(nearest: &NearestMiss, rejected: &[Rejected]) -> Vec<String> {
    let all: Vec<_> = rejected.iter().map(|rejected| settings(&rejected.config)).collect();
    let told = varying(&all);
    let named = settings(&nearest.config)
        .into_iter()
        .filter(|(name, _)| name == "layout" || told.contains(&name.as_str()))
        .map(|(name, value)| format!("{name} {value}"));
    let attainment = nearest.attainment.map_or("nothing".into(), percent);
    let least = percent(nearest.min_attainment);
    let mut lines = vec![
        format!("nearest, replayed to its end: {}", named.collect::<Vec<_>>().join(", ")),
        format!(
            "  {attainment} of all requests meet every bound, goal.min_attainment asks for {least}; by themselves:"
        ),
    ];
    let rows: Vec<[String; 3]> = nearest.bounds.iter().map(|bound| row(bound, &least)).collect();
    let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or(0);
    let widths = [width(0), width(1), width(2)];
    lines.extend(nearest.bounds.iter().zip(&rows).map(|(bound, [name, limit, reached])| {
        let verdict = if bound.missed { "missed" } else { "kept" };
        let [first, second, third] = widths;
        format!("  {name:<first$}  {limit:>second$}  {reached:<third$}  {verdict}")
    }));
    lines.extend(
        nearest
            .over_budget
            .iter()
            .map(|reason| format!("  it would not count with these bounds either: {reason}")),
    );
    lines
}

fn row(bound: &BoundReached, least: &str) -> [String; 3] {
    let reached = match bound.reached_ms {
        Some(reached_ms) => format!("{least} within {} ms", at_least(reached_ms)),
        None => format!("fewer than {least} have such a figure"),
    };
    [format!("goal.sla.{}", bound.bound), figure(bound.limit_ms), reached]
}

fn percent(share: f64) -> String {
    format!("{} %", figure(share * 100.0))
}
