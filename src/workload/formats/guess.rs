//! Whose form a text may be in: for hints only, nothing is read by a guess.

use indexmap::IndexMap;
use serde::de::IgnoredAny;

use super::Format;

/// A name that only one form has.
const TELLING: [(&str, Format); 13] = [
    ("contexttokens", Format::Azure),
    ("generatedtokens", Format::Azure),
    ("arrival_timestamp", Format::Splitwise),
    ("arrived_at", Format::Splitwise),
    ("arrived_at_s", Format::Splitwise),
    ("request tokens", Format::BurstGpt),
    ("response tokens", Format::BurstGpt),
    ("arrival_time_ns", Format::LlmServingSim),
    ("input_toks", Format::LlmServingSim),
    ("num_prefill_tokens", Format::Lengths),
    ("prompt_len", Format::Lengths),
    ("input_lens", Format::Vllm),
    ("request_throughput", Format::Vllm),
];

/// The form that names such as these belong to.
pub(super) fn guess_from_names(names: &[String]) -> Option<Format> {
    let names: Vec<String> = names.iter().map(|name| name.to_ascii_lowercase()).collect();
    let has = |name: &str| names.iter().any(|found| found == name);
    if has("event") {
        return Some(Format::Dynamo);
    }
    if has("metadata") && has("metrics") {
        return Some(Format::Aiperf);
    }
    TELLING.iter().find(|(name, _)| has(name)).map(|(_, format)| *format)
}

/// The form that a text with this first line may be in.
pub(in crate::workload) fn guess(line: &[u8]) -> Option<Format> {
    let text = std::str::from_utf8(line).ok()?;
    let names: Vec<String> = if text.starts_with('{') {
        serde_json::from_str::<IndexMap<String, IgnoredAny>>(text).ok()?.into_keys().collect()
    } else {
        text.split(',').map(|name| name.trim().trim_matches('"').to_owned()).collect()
    };
    guess_from_names(&names)
}
