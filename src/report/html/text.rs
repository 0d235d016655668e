//! Text within markup.

use serde_json::Value;

use crate::report::figure::significant;

/// A text that cannot be taken for markup.
pub(super) fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            other => safe.push(other),
        }
    }
    safe
}

/// A value in a table: numbers with at most five significant digits behind the point.
pub(super) fn shown(value: &Value) -> String {
    match value {
        Value::Null => "-".into(),
        Value::String(text) => text.clone(),
        Value::Number(number) => match number.as_f64() {
            Some(float) if !number.is_u64() && !number.is_i64() => figure(float),
            _ => number.to_string(),
        },
        other => other.to_string(),
    }
}

/// A figure with five significant digits, without zeros at the end.
pub(super) fn figure(value: f64) -> String {
    if value.is_finite() { significant(value, 5) } else { "-".into() }
}

/// A text as a cell of a CSV file.
pub(super) fn cell(text: &str) -> String {
    if text.contains([',', '"', '\n']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}
