//! What the fields of policies may be.

use crate::simulation::{Shown, SimDuration};

/// Bound of every weight; sums of weighted figures stay finite below it.
const MOST: f64 = 1e15;

/// A year, as no duration in a router's configuration is longer.
const YEAR_MS: f64 = 365.0 * 86_400_000.0;

/// A problem for each of these fields that is not a number from 0 on.
pub(super) fn not_negative(fields: &[(&str, f64)]) -> Vec<String> {
    let bad = fields.iter().filter(|(_, value)| !(0.0..MOST).contains(value));
    bad.map(|(name, value)| {
        let least = if *value < 0.0 { "0 or more".to_owned() } else { format!("below {}", Shown(MOST)) };
        format!("{name}: {} is out of range: it must be {least}", Shown(*value))
    })
    .collect()
}

/// The problem of a weight that is not a number.
pub(super) fn weight_problem(name: &str, value: f64) -> Option<String> {
    let sound = value.abs() < MOST;
    (!sound).then(|| {
        format!(
            "{name}: {} is out of range: it must be between {} and {}",
            Shown(value),
            Shown(-MOST),
            Shown(MOST)
        )
    })
}

/// The problem of a duration that is shorter than `least_ms` or longer than a year.
pub(super) fn duration_problem(name: &str, ms: f64, least_ms: f64) -> Option<String> {
    let sound = (least_ms..=YEAR_MS).contains(&ms);
    (!sound).then(|| format!("{name}: {} must lie between {least_ms} and {YEAR_MS} (a year)", Shown(ms)))
}

/// The problem of a lag of cache events.
pub(super) fn lag_problem(ms: f64) -> Option<String> {
    duration_problem("kv_event_lag_ms", ms, 0.0)
}

/// A duration that was checked; what is not one is taken for none, as nothing runs with it.
pub(super) fn duration(ms: f64) -> SimDuration {
    SimDuration::from_ms(ms).unwrap_or_default()
}
