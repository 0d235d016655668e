//! Reads the values within a `workload:` block.

use super::numbers::Limit;
use super::read_engine::MOST_TOKENS;
use super::reader::Section;
use super::scenario::{Arrival, ArrivalProcess, InlineRequest, TraceColumns, TraceFormat, TraceTimeUnit};
use super::search::KvLoadRatio;
use super::value::Value;
use super::workload_form::ArrivalKind;

/// The names of a trace's columns.
pub(super) fn columns(section: &Section<'_>) -> Option<TraceColumns> {
    let (input, output) = (section.text("input_length").required(), section.text("output_length").required());
    let (arrival, request_id) = (section.text("arrival").optional(), section.text("request_id").optional());
    if arrival.is_none() && section.has("arrival") {
        // What is wrong with the name has been said; that there is no such column would be wrong.
        return None;
    }
    let columns = TraceColumns { input_length: input?, output_length: output?, arrival, request_id };
    for (key, problem) in columns.problems() {
        section.problem(key, problem);
    }
    Some(columns)
}

pub(super) fn time_unit(value: &Value<'_>, format: TraceFormat) -> Option<TraceTimeUnit> {
    let unit = value.choice()?;
    if format == TraceFormat::Mooncake && matches!(unit, TraceTimeUnit::Us | TraceTimeUnit::Ns) {
        value.problem(format!("`{}`: the time stamps of mooncake are in ms or in s", unit.name()));
    }
    Some(unit)
}

pub(super) fn kv_load_ratio(value: &Value<'_>) -> Option<KvLoadRatio> {
    if !value.is_list() {
        return value.float(Limit::NotNegative).map(KvLoadRatio::Fixed);
    }
    let mut entries = 0;
    let bounds = value.list_or_empty(|bound| {
        entries += 1;
        bound.float(Limit::NotNegative)
    })?;
    match bounds.as_slice() {
        [low, high] if low < high => Some(KvLoadRatio::Range([*low, *high])),
        [low, high] => {
            value.problem(format!("[{low}, {high}] is no range: the first bound must be below the second"));
            None
        }
        _ if entries == 2 => None,
        _ => {
            value.problem(format!(
                "a range has exactly two bounds, not {entries}; write `kv_load_ratio: [0.0, 1.0]`"
            ));
            None
        }
    }
}

pub(super) fn arrival(section: &Section<'_>) -> Option<Arrival> {
    let defaults = Arrival::default();
    let process = section.choice("process").required();
    let seed = section.integer("seed", 0..=u64::MAX).or(defaults.seed);
    if section.has("smoothness") && process.is_some_and(|process| process != ArrivalKind::Gamma) {
        section.problem("smoothness", "belongs to `process: gamma`");
    }
    let process = match process? {
        ArrivalKind::Fixed => ArrivalProcess::Fixed,
        ArrivalKind::Poisson => ArrivalProcess::Poisson,
        ArrivalKind::Burst => ArrivalProcess::Burst,
        ArrivalKind::Gamma => {
            ArrivalProcess::Gamma { smoothness: section.float("smoothness", Limit::Scale).required()? }
        }
    };
    Some(Arrival { process, seed })
}

/// Types, signs and required keys; what the values mean together is the workload's business.
pub(super) fn inline_request(value: &Value<'_>) -> Option<InlineRequest> {
    value.section(|section| {
        let request = InlineRequest {
            id: section.text("id").optional(),
            arrival_ms: section.float("arrival_ms", Limit::Time).optional(),
            input_length: section.integer("input_length", 1..=MOST_TOKENS).optional(),
            output_length: section.integer("output_length", 0..=MOST_TOKENS).required().unwrap_or(0),
            hash_ids: section
                .read("hash_ids", |value| value.list_or_empty(|id| id.integer(0..=u64::MAX)))
                .optional(),
            input_token_ids: section
                .read("input_token_ids", |value| value.list_or_empty(|id| id.integer(0..=u32::MAX)))
                .optional(),
            session_id: section.text("session_id").optional(),
            delay_ms: section.float("delay_ms", Limit::Time).optional(),
            dp_rank: section.integer("dp_rank", 0..=u32::MAX).optional(),
        };
        if !["input_length", "hash_ids", "input_token_ids"].iter().any(|key| section.has(key)) {
            section.own_problem("`input_length` is missing, and there are no ids to count it from");
        }
        request
    })
}
