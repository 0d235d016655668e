//! What the answer of a search lacks, in the one form in which everything that shows the answer says so.

use serde_json::Value;

/// What `candidates.json` says that the answer lacks.
pub fn shortfalls(result: &Value) -> &[Value] {
    result["incomplete"].as_array().map(Vec::as_slice).unwrap_or_default()
}

/// The same, a line each.
pub fn shortfall_lines(shortfalls: &[Value]) -> impl Iterator<Item = String> {
    shortfalls.iter().filter_map(|shortfall| shortfall["reason"].as_str().map(incomplete))
}

/// The line of one of them.
pub fn incomplete(reason: &str) -> String {
    format!("incomplete: {reason}")
}
