//! What looks odd about the arrivals of an open loop, and may be right all the same.

use super::problem::Warning;
use super::{Loaded, Pacing, Workload};

/// Fewer requests than this say nothing about the unit of their time stamps.
const TELLING_REQUESTS: usize = 5;
/// Fewer requests than this say nothing about gaps between them.
const TELLING_GAPS: usize = 10;
/// Requests per second above which time stamps are likelier to be seconds than milliseconds.
const IMPLAUSIBLE_RATE: f64 = 1000.0;

/// Adds warnings about the arrivals of a trace and counts them. `other_unit` says what to do if the unit is wrong; without
/// it the unit is beyond doubt.
pub(super) fn note(loaded: &mut Loaded, pacing: Pacing, other_unit: Option<&str>) {
    if !pacing.is_open() {
        return;
    }
    for warning in warnings(&loaded.workload, pacing, other_unit) {
        loaded.workload.input.suspicious.insert(warning.kind.clone(), warning.count);
        loaded.warnings.push(warning);
    }
}

fn warnings(workload: &Workload, pacing: Pacing, other_unit: Option<&str>) -> Vec<Warning> {
    let arrivals_ms: Vec<f64> = workload
        .session_starts
        .iter()
        .map(|start| workload.requests[start.0 as usize].arrival.as_ms() * pacing.speedup)
        .collect();
    let span_ms = arrivals_ms.last().copied().unwrap_or(0.0);
    let mut warnings = Vec::new();
    let requests = workload.requests.len();
    let rate = requests as f64 / span_ms * 1e3;
    if let Some(advice) = other_unit
        && span_ms > 0.0
        && arrivals_ms.len() >= TELLING_REQUESTS
        && rate > IMPLAUSIBLE_RATE
    {
        warnings.push(Warning {
            kind: "tiny span".into(),
            count: requests as u64,
            message: format!(
                "{requests} requests arrive within {span_ms} ms, {rate:.0} requests per second; {advice}"
            ),
        });
    }
    let gaps = arrivals_ms.windows(2).map(|pair| (pair[1] - pair[0], pair[1]));
    if arrivals_ms.len() >= TELLING_GAPS
        && let Some((gap_ms, until_ms)) = gaps.max_by(|a, b| a.0.total_cmp(&b.0))
        && gap_ms > span_ms / 2.0
    {
        warnings.push(Warning {
            kind: "long gap".into(),
            count: 1,
            message: format!(
                "nothing arrives for {gap_ms} ms before {until_ms} ms, most of the span of {span_ms} ms: is a time stamp wrong?"
            ),
        });
    }
    warnings
}
