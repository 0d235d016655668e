//! Comparing a run with the reference's report: every stamp to 1 ns, counts exactly, means to 1e-9, percentiles
//! exactly but for those that the reference takes from a sketch (0.1 %).

use std::collections::BTreeMap;

use serde_json::Value;
use spica::report::record::{RequestRecord, RunRecord, Status};
use spica::report::summary::Summary;
use spica::simulation::{SimDuration, SimTime};

use super::inputs::Case;
use crate::support::figure::near;

/// What the host took, what we do not model, and sums of other figures.
const NOT_COMPARED: &[&str] = &[
    "kv_eviction_policy",
    "power_coverage",
    "power_w",
    "processed_output_tokens_per_s",
    "processed_tokens",
    "processed_tokens_per_s",
    "wall_time_ms",
];

/// Stamps of a request and spans between them, all compared to the nanosecond.
const STAMPS: &[&str] = &[
    "arrival_time_ms",
    "first_admit_ms",
    "first_token_ms",
    "last_token_ms",
    "terminal_time_ms",
    "ttft_ms",
    "ttst_ms",
    "e2e_latency_ms",
    "itl_ms",
    "prefill_admit_ms",
    "source_held_ms",
    "destination_reserved_ms",
    "destination_activated_ms",
    "decode_admit_ms",
    "source_released_ms",
];

const COUNTS: &[&str] = &[
    "input_length",
    "output_length",
    "reused_input_tokens",
    "admission_count",
    "prefill_worker_idx",
    "decode_worker_idx",
];

/// One nanosecond, and what an `f64` of milliseconds may lose.
const STAMP_TOLERANCE_MS: f64 = 1.01e-6;

/// A request's row: the figures it has, by name.
type Row = BTreeMap<&'static str, f64>;

pub(super) fn faults(answer: &Value, case: &Case, record: &RunRecord) -> Vec<String> {
    let summary = Summary::new(record, &case.workload, case.scenario.sla.as_ref());
    let mut wrong = figure_faults(&answer["report"]["summary"], &summary, |name, expected, found| {
        figure_is_near(name, expected, found, case)
    });
    wrong.extend(all_row_faults(answer, case, record));
    wrong
}

/// As [`faults`], for a case in which a rule that delays a few requests is not known: counts and `exact` figures hold, all
/// others to within `relative`.
pub(super) fn faults_but_for(
    answer: &Value,
    case: &Case,
    record: &RunRecord,
    exact: &[&str],
    relative: f64,
) -> Vec<String> {
    let summary = Summary::new(record, &case.workload, case.scenario.sla.as_ref());
    let mut wrong = figure_faults(&answer["report"]["summary"], &summary, |name, expected, found| {
        figure_is_near(name, expected, found, case)
            || (!exact.contains(&name) && near(expected, found, relative))
    });
    wrong.extend(all_row_faults(answer, case, record));
    wrong
}

fn all_row_faults(answer: &Value, case: &Case, record: &RunRecord) -> Vec<String> {
    let mut wrong = Vec::new();
    let ours: Vec<Row> =
        (0..record.requests.len()).filter_map(|index| our_row(case, record, index)).collect();
    if let Some(rows) = answer["report"]["per_request"].as_array() {
        let theirs: Vec<Row> = rows.iter().map(|row| their_row(|key| row.get(key))).collect();
        if theirs.len() != ours.len() {
            wrong.push(format!("{} requests ended, expected {}", ours.len(), theirs.len()));
        }
        wrong.extend(row_faults(&theirs, ours));
    } else {
        let columns = &answer["per_request_first"];
        let length = columns["arrival_time_ms"].as_array().expect("columns").len();
        let row = |index| their_row(|key| columns.get(key).map(|column| &column[index]));
        wrong.extend(row_faults(&(0..length).map(row).collect::<Vec<_>>(), ours));
    }
    wrong
}

fn figure_faults(
    expected: &Value,
    summary: &Summary,
    near_enough: impl Fn(&str, f64, f64) -> bool,
) -> Vec<String> {
    let mut wrong = Vec::new();
    for (name, expected) in expected.as_object().expect("a summary") {
        if NOT_COMPARED.contains(&name.as_str()) {
            continue;
        }
        let exactly = expected.is_u64();
        let expected = expected.as_f64().expect("a figure");
        // The reference writes 0 where there is nothing to measure.
        let found = summary.metric(name).or((expected == 0.0).then_some(0.0));
        let good =
            found.is_some_and(
                |found| {
                    if exactly { expected == found } else { near_enough(name, expected, found) }
                },
            );
        if !good {
            wrong.push(format!("{name}: expected {expected}, found {found:?}"));
        }
    }
    wrong
}

fn figure_is_near(name: &str, expected: f64, found: f64, case: &Case) -> bool {
    let per_gap = name.ends_with("_itl_ms") || name.ends_with("_per_user");
    let percentile =
        ["median_", "p75_", "p90_", "p95_", "p99_"].iter().any(|prefix| name.starts_with(prefix));
    if per_gap && percentile {
        return near(expected, found, 1e-3);
    }
    let within_stamps = name.ends_with("_ms") && (expected - found).abs() <= STAMP_TOLERANCE_MS;
    let relative = if case.fractional_arrivals { 1e-6 } else { 1e-9 };
    // A mean has no tolerance of a nanosecond, unless arrivals themselves are rounded to one.
    let mean = name.starts_with("mean_") && !case.fractional_arrivals;
    near(expected, found, relative) || (within_stamps && !mean)
}

/// Every row of the reference has to have one of its own among ours.
fn row_faults(theirs: &[Row], mut ours: Vec<Row>) -> Vec<String> {
    let mut wrong = Vec::new();
    for row in theirs {
        if let Some(place) = ours.iter().position(|other| rows_match(row, other)) {
            ours.swap_remove(place);
        } else {
            let arrival = row["arrival_time_ms"];
            let near: Vec<&Row> = ours
                .iter()
                .filter(|other| (other["arrival_time_ms"] - arrival).abs() <= STAMP_TOLERANCE_MS)
                .take(3)
                .collect();
            wrong.push(format!("no request is like\n  {row:?}\n  at its arrival there are {near:?}"));
        }
    }
    wrong
}

fn rows_match(theirs: &Row, ours: &Row) -> bool {
    let of_interest =
        STAMPS.iter().map(|name| (name, STAMP_TOLERANCE_MS)).chain(COUNTS.iter().map(|name| (name, 0.0)));
    for (name, tolerance) in of_interest {
        let Some(expected) = theirs.get(name) else { continue };
        if !ours.get(name).is_some_and(|found| (expected - found).abs() <= tolerance) {
            return false;
        }
    }
    true
}

fn their_row<'a>(field: impl Fn(&str) -> Option<&'a Value>) -> Row {
    let names = STAMPS.iter().chain(COUNTS);
    names.filter_map(|&name| Some((name, field(name)?.as_f64()?))).collect()
}

/// The row of a request that ended.
fn our_row(case: &Case, record: &RunRecord, index: usize) -> Option<Row> {
    let RequestRecord { status: Status::Completed | Status::Rejected, arrival: Some(arrival), .. } =
        record.requests[index]
    else {
        return None;
    };
    let request = &record.requests[index];
    let mut row = Row::new();
    let mut put = |name, value: Option<f64>| {
        if let Some(value) = value {
            row.insert(name, value);
        }
    };
    let ms = |time: Option<SimTime>| time.map(SimTime::as_ms);
    let span = |from: Option<SimTime>, to: Option<SimTime>| Some((to? - from?).as_ms());
    put("arrival_time_ms", Some(arrival.as_ms()));
    put("first_admit_ms", ms(request.first_admit));
    put("first_token_ms", ms(request.first_token));
    put("last_token_ms", ms(request.last_token));
    put("terminal_time_ms", ms(request.terminal));
    put("ttft_ms", span(Some(arrival), request.first_token));
    put("ttst_ms", span(request.first_token, request.second_token));
    put("e2e_latency_ms", span(Some(arrival), request.last_token));
    put("itl_ms", mean_gap(request).map(|gap| gap / 1e6));
    if let Some(handoff) = record.handoffs.get(index) {
        put("prefill_admit_ms", ms(request.first_admit));
        put("source_held_ms", ms(handoff.source_held));
        put("destination_reserved_ms", ms(handoff.destination_reserved));
        put("destination_activated_ms", ms(handoff.destination_activated));
        put("decode_admit_ms", ms(handoff.decode_admit));
        put("source_released_ms", ms(handoff.source_released));
    }
    put("input_length", Some(f64::from(case.workload.requests[index].input_length)));
    put("output_length", Some(f64::from(request.output_tokens)));
    put("reused_input_tokens", Some(f64::from(request.max_reused_tokens)));
    put("admission_count", Some(f64::from(request.admissions)));
    put("prefill_worker_idx", request.prefill_worker.map(f64::from));
    put("decode_worker_idx", request.decode_worker.map(f64::from));
    Some(row)
}

/// Mean gap of a request with two tokens or more, in nanoseconds.
fn mean_gap(request: &RequestRecord) -> Option<f64> {
    let between: SimDuration = request.last_token? - request.first_token?;
    let gaps = request.output_tokens.checked_sub(1).filter(|gaps| *gaps > 0)?;
    Some(between.as_ns() as f64 / f64::from(gaps))
}
