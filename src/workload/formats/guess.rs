//! Whose form a text may be in: for hints only, nothing is read by a guess.

use indexmap::IndexMap;
use serde::de::IgnoredAny;

use crate::config::scenario::TraceFormat;

/// A name that only one form has.
const TELLING: [(&str, TraceFormat); 14] = [
    ("contexttokens", TraceFormat::Azure),
    ("generatedtokens", TraceFormat::Azure),
    ("arrival_timestamp", TraceFormat::Splitwise),
    ("arrived_at", TraceFormat::Splitwise),
    ("arrived_at_s", TraceFormat::Splitwise),
    ("request tokens", TraceFormat::BurstGpt),
    ("response tokens", TraceFormat::BurstGpt),
    ("arrival_time_ns", TraceFormat::LlmServingSim),
    ("input_toks", TraceFormat::LlmServingSim),
    ("num_prefill_tokens", TraceFormat::Lengths),
    ("prompt_len", TraceFormat::Lengths),
    ("input_length", TraceFormat::Lengths),
    ("input_lens", TraceFormat::Vllm),
    ("request_throughput", TraceFormat::Vllm),
];

/// Names that Mooncake's rows have beside lengths; a table is none of theirs.
const OF_MOONCAKE: [&str; 5] = ["hash_ids", "timestamp", "created_time", "arrival_ms", "delay"];

/// Advice for a trace that is in another form than that it is read in.
pub(in crate::workload) fn other_form(format: TraceFormat) -> String {
    format!(
        "this looks like {0}: set `workload.trace_format: {0}`, or use --from {0} of `spica trace`",
        format.name()
    )
}

/// The form that names such as these belong to.
pub(super) fn guess_from_names(names: &[String]) -> Option<TraceFormat> {
    let names: Vec<String> = names.iter().map(|name| name.to_ascii_lowercase()).collect();
    let has = |name: &str| names.iter().any(|found| found == name);
    if has("event") {
        return Some(TraceFormat::Dynamo);
    }
    if has("metadata") && has("metrics") {
        return Some(TraceFormat::Aiperf);
    }
    TELLING.iter().find(|(name, _)| has(name)).map(|(_, format)| *format)
}

/// The form that a text with this first line may be in.
pub(in crate::workload) fn guess(line: &[u8]) -> Option<TraceFormat> {
    let text = std::str::from_utf8(line).ok()?;
    if !text.starts_with('{') {
        let names: Vec<String> =
            text.split(',').map(|name| name.trim().trim_matches('"').to_owned()).collect();
        return guess_from_names(&names);
    }
    let row = serde_json::from_str::<IndexMap<String, IgnoredAny>>(text).ok()?;
    guess_from_keys(&row.into_keys().collect::<Vec<_>>())
}

/// The form whose rows are objects with such keys.
pub(super) fn guess_from_keys(keys: &[String]) -> Option<TraceFormat> {
    let has = |name: &str| keys.iter().any(|key| key == name);
    let has_length = ["input_length", "input_tokens", "output_length", "output_tokens"].into_iter().any(has);
    if has_length && OF_MOONCAKE.into_iter().any(has) {
        return Some(TraceFormat::Mooncake);
    }
    guess_from_names(keys)
}
