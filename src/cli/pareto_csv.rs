//! A frontier as a table for spreadsheets and plots.

use std::io::{self, Write};

use serde_json::Value;

use crate::search::{Candidate, SearchResult};

/// Writes one row per candidate of the frontier: its place, its objectives, its GPUs and every setting.
pub(super) fn write(result: &SearchResult, out: &mut impl Write) -> io::Result<()> {
    let objectives = names(result, |candidate| candidate.objectives.iter().flatten());
    let settings =
        names(result, |candidate| candidate.config.iter().filter(|(name, _)| *name != "used_gpus"));
    let heading = ["rank"].into_iter().chain(objectives.iter().copied()).chain(["used_gpus"]);
    row(heading.chain(settings.iter().copied()).map(quoted), out)?;
    for candidate in &result.candidates {
        let place = [candidate.rank.to_string()].into_iter();
        let values = objectives.iter().map(|name| {
            candidate.objectives.as_ref().and_then(|values| values.get(*name)).map_or(String::new(), cell)
        });
        let gpus = [candidate.used_gpus.to_string()];
        let chosen = settings.iter().map(|name| candidate.config.get(*name).map_or(String::new(), cell));
        row(place.chain(values).chain(gpus).chain(chosen), out)?;
    }
    Ok(())
}

/// All names that occur, in the order of their first occurrence.
fn names<'a, I: Iterator<Item = (&'a String, &'a Value)>>(
    result: &'a SearchResult,
    of: impl Fn(&'a Candidate) -> I,
) -> Vec<&'a str> {
    let mut names: Vec<&str> = Vec::new();
    for (name, _) in result.candidates.iter().flat_map(of) {
        if !names.contains(&name.as_str()) {
            names.push(name);
        }
    }
    names
}

fn row(cells: impl Iterator<Item = String>, out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "{}", cells.collect::<Vec<_>>().join(","))
}

fn cell(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => quoted(text),
        other => quoted(&other.to_string()),
    }
}

/// Quoted where commas, quotes or line ends would be taken for the table's own.
fn quoted(text: &str) -> String {
    if text.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_are_quoted_where_they_have_to_be() {
        assert_eq!(cell(&Value::from("plain text")), "plain text");
        assert_eq!(cell(&serde_json::json!({"policy": "a,b"})), "\"{\"\"policy\"\":\"\"a,b\"\"}\"");
        assert_eq!(cell(&Value::Null), "");
        assert_eq!(cell(&Value::from(0.25)), "0.25");
    }
}
