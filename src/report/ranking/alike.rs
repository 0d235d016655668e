//! Candidates whose replays came out the same: one row of the ranking for all of them.

use std::cmp::Ordering;

use indexmap::IndexSet;
use serde_json::{Map, Value};

/// Different values of a setting that are written out.
const WRITTEN_OUT: usize = 3;

/// What a planner had to do with how a candidate came out, rather than how that was.
const WORK_OF_PLANNERS: &str = "planner_total_ticks";

/// Of the figures of a candidate those that say how its requests and its fleet came out: a planner that changes nothing comes
/// out as none does.
pub fn figures_of_outcome(metrics: &Map<String, Value>) -> impl Iterator<Item = (&String, &Value)> {
    metrics.iter().filter(|(name, _)| *name != WORK_OF_PLANNERS)
}

/// Whether the requests and the fleets of two candidates came out the same: as many GPUs, and the same value of every figure.
pub fn came_out_alike(one: &Value, other: &Value) -> bool {
    fn figures(one: &Value) -> impl Iterator<Item = (&String, &Value)> {
        one["metrics"].as_object().into_iter().flat_map(figures_of_outcome)
    }
    one["used_gpus"] == other["used_gpus"] && figures(one).eq(figures(other))
}

/// The places of the candidates by rows: those that came out alike stand together in a ranking.
pub(super) fn alike(candidates: &[Value]) -> Vec<Vec<usize>> {
    let mut before = 0;
    let row = |row: &[Value]| {
        let first = before;
        before += row.len();
        (first..before).collect()
    };
    candidates.chunk_by(came_out_alike).map(row).collect()
}

/// Different values of a setting in a cell: each, or the first and the last of many.
pub fn joined(values: &[impl AsRef<str>]) -> String {
    let values: Vec<&str> = values.iter().map(AsRef::as_ref).collect();
    match values[..] {
        [first, .., last] if values.len() > WRITTEN_OUT => format!("{first}|..|{last}"),
        _ => values.join("|"),
    }
}

/// Each value once; numbers in ascending order.
pub fn different<'a>(values: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let values: IndexSet<&str> = values.collect();
    let number = |value: &str| value.parse::<f64>().ok().filter(|number| number.is_finite());
    let mut values: Vec<&str> = values.into_iter().collect();
    if values.iter().all(|value| number(value).is_some()) {
        values.sort_by(|left, right| {
            number(left).zip(number(right)).map_or(Ordering::Equal, |(left, right)| left.total_cmp(&right))
        });
    }
    values
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_values_are_written_out_each_once() {
        let of = |values: &[&'static str]| joined(&different(values.iter().copied()));
        assert_eq!(of(&["256", "256"]), "256");
        assert_eq!(of(&["1024", "256", "256"]), "256|1024");
        assert_eq!(of(&["256", "-", "256", "1024"]), "256|-|1024");
        assert_eq!(of(&["0.0", "0.5", "1.0", "2.0"]), "0.0|..|2.0");
        assert_eq!(of(&[]), "");
    }
}
