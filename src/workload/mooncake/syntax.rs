//! What to say about a line that is not a row.

use indexmap::IndexMap;
use serde::de::IgnoredAny;

use super::number::shortened;
use super::row::nearest_name;
use crate::config::scenario::TraceFormat;
use crate::workload::formats;

/// Field names of forms that cannot be converted here.
const DIALECTS: [(&str, &str); 4] = [
    ("in", "Weka-style traces"),
    ("out", "Weka-style traces"),
    ("num_turns", "Applied Compute agentic traces"),
    ("play_id", "agentic Mooncake traces"),
];

/// The column of a syntax error in `line`, and what is wrong there.
pub(super) fn explain(line: &[u8], error: &serde_json::Error) -> (usize, String) {
    let text = error.to_string();
    let reason = text.rsplit_once(" at line ").map_or(text.as_str(), |(reason, _)| reason);
    let column = error.column().max(1);
    let word = word_at(line, column - 1);
    let message = match word.as_str() {
        "NaN" | "nan" | "Infinity" | "inf" | "-Infinity" | "-inf" | "-NaN" => {
            format!("{word} is not a number in JSON and means nothing here")
        }
        "None" | "True" | "False" => format!("{word} is Python, not JSON"),
        _ if line.get(column - 1) == Some(&b'\'') => format!("{reason}; JSON strings take double quotes"),
        _ if matches!(line.get(column - 1), Some(b'#' | b'/')) => format!("{reason}; JSON has no comments"),
        _ => reason.to_owned(),
    };
    (column, message)
}

/// The word, sign included, that `at` lies in.
fn word_at(line: &[u8], at: usize) -> String {
    let is_part = |byte: &u8| byte.is_ascii_alphabetic() || *byte == b'-';
    let at = at.min(line.len());
    let start = line[..at].iter().rposition(|byte| !is_part(byte)).map_or(0, |before| before + 1);
    let length = line[start..].iter().take_while(|byte| is_part(byte)).count();
    String::from_utf8_lossy(&line[start..start + length]).into_owned()
}

/// Why a text that starts with `line` holds no rows at all, if that is so.
pub(super) fn other_format(line: &[u8]) -> Option<&'static str> {
    match line.first() {
        Some(b'{') | None => None,
        Some(b'[') => Some(
            "this is a JSON list; a trace has one JSON object per line, without brackets or commas between",
        ),
        Some(_) if line.contains(&b',') && !line.contains(&b'{') => {
            Some("this looks like CSV; a trace has one JSON object per line")
        }
        Some(byte) if !byte.is_ascii() || byte.is_ascii_control() => {
            Some("this is not text; a trace is JSONL, plain or gzip")
        }
        Some(_) => None,
    }
}

/// The names in a row, and whose they are if they are known from elsewhere.
pub(super) fn fields_found(line: &[u8]) -> String {
    let row: IndexMap<String, IgnoredAny> = serde_json::from_slice(line).unwrap_or_default();
    if row.is_empty() {
        return "the row is empty".into();
    }
    let names: Vec<_> = row.keys().map(|name| shortened(name)).collect();
    format!("found {}", names.join(", "))
}

/// Advice for a row that lacks a field, from the names that it does have.
pub(super) fn likely_meaning(line: &[u8], missing: &str) -> Option<String> {
    let row: IndexMap<String, IgnoredAny> = serde_json::from_slice(line).ok()?;
    if let Some(format) = formats::guess(line).filter(|format| *format != TraceFormat::Mooncake) {
        return Some(formats::other_form(format));
    }
    if let Some(name) =
        row.keys().find(|name| name.as_str() != missing && nearest_name(name) == Some(missing))
    {
        return Some(format!("{} looks like a misspelt {missing}", shortened(name)));
    }
    let (name, format) = DIALECTS.iter().find(|(name, _)| row.contains_key(*name))?;
    Some(format!("{name} is a name used by {format}: convert the file to Mooncake JSONL first"))
}
