//! Candidates whose replays came out the same: one row of the ranking for all of them.

use std::cmp::Ordering;

use indexmap::IndexSet;
use serde_json::Value;

/// Different values of a setting that are written out.
const WRITTEN_OUT: usize = 3;

/// Whether two candidates have as many GPUs and the same value of every figure.
pub fn came_out_alike(one: &Value, other: &Value) -> bool {
    one["used_gpus"] == other["used_gpus"] && one["metrics"] == other["metrics"]
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

/// The values of a setting among candidates that came out the same: each once, or the first and the last of many.
pub(super) fn joined<'a>(values: impl Iterator<Item = &'a str>) -> String {
    let values = different(values);
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
        let of = |values: &[&'static str]| joined(values.iter().copied());
        assert_eq!(of(&["256", "256"]), "256");
        assert_eq!(of(&["1024", "256", "256"]), "256|1024");
        assert_eq!(of(&["256", "-", "256", "1024"]), "256|-|1024");
        assert_eq!(of(&["0.0", "0.5", "1.0", "2.0"]), "0.0|..|2.0");
        assert_eq!(of(&[]), "");
    }
}
