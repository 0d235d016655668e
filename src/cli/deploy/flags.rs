//! Command lines against the documented flags of what they start.
//!
//! `tests/data/deploy/flags.json` keeps those flags with what each takes and with the documentation they are from.

use serde_json::{Map, Value};

/// The documented flags of a command, with what each takes.
pub(super) fn documented(command: &str) -> Map<String, Value> {
    let flags: Value = serde_json::from_str(include_str!("../../../tests/data/deploy/flags.json")).unwrap();
    flags[command]["flags"].as_object().unwrap_or_else(|| panic!("no flags of {command}")).clone()
}

/// Whether a command takes these arguments.
pub(super) fn check(command: &str, arguments: &[String]) -> Result<(), String> {
    let known = documented(command);
    let mut words = arguments.iter();
    while let Some(flag) = words.next() {
        let takes = known.get(flag).ok_or_else(|| format!("{command}: {flag} is not documented"))?;
        let kind = takes.as_str().unwrap_or_default();
        if kind == "switch" {
            continue;
        }
        let value = words.next().ok_or_else(|| format!("{command}: {flag} takes a value"))?;
        let fits = match kind {
            "integer" => value.parse::<i64>().is_ok(),
            "number" => value.parse::<f64>().is_ok(),
            "json" => serde_json::from_str::<Value>(value).is_ok_and(|value| value.is_object()),
            "text" => !value.starts_with("--"),
            _ => takes.as_array().is_some_and(|values| values.iter().any(|known| known == value)),
        };
        if !fits {
            return Err(format!("{command}: {flag} takes {takes}, not {value}"));
        }
    }
    Ok(())
}
