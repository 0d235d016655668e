//! Measured passes as people write them down.

use std::collections::BTreeMap;
use std::io::BufRead;

use crate::timing::csv::{Csv, Row, RowProblem};

/// Passes that computed prompts: prompts, new tokens of each, tokens before them; and the milliseconds.
pub type PrefillPoint = ([f64; 3], f64);
/// Decode passes: requests, their mean length in tokens; and the milliseconds.
pub type DecodePoint = ([f64; 2], f64);

/// Measured passes of one deployment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Measured {
    /// Passes that computed prompts.
    pub prefill: Vec<PrefillPoint>,
    /// Decode passes.
    pub decode: Vec<DecodePoint>,
}

/// What tells one pass from another: a decode pass has no tokens before it, -1.
type PassKey = [u64; 3];

/// The columns of a file of measured passes, in their usual order.
const COLUMNS: [&str; 6] =
    ["deployment", "batch", "new_tokens", "prefix_tokens", "context_tokens", "latency_ms"];
/// Longest pass, eleven days in milliseconds.
const LONGEST_MS: f64 = 1e9;
/// The columns that a priced query has instead.
const QUERY_COLUMNS: [&str; 3] = ["phase", "new_or_context", "prefix"];

impl Measured {
    /// Reads rows of `batch, new_tokens, prefix_tokens, latency_ms` for passes that computed prompts and `batch,
    /// context_tokens, latency_ms` for decode passes, in one file or the other or both; or of `phase, batch,
    /// new_or_context, prefix, latency_ms`. Other columns do not matter, but a `deployment` column has to name one only.
    ///
    /// # Errors
    /// Every row that cannot be used.
    pub fn read(reader: impl BufRead) -> Result<Self, Vec<RowProblem>> {
        let usual: Vec<&str> = COLUMNS.into_iter().chain(QUERY_COLUMNS).collect();
        let csv = Csv::read(reader, &usual)?;
        let repeated = csv.repeated(|name| usual.contains(&name));
        if !repeated.is_empty() {
            return Err(repeated);
        }
        let by_query = csv.column("phase").is_some();
        let needed: &[&str] =
            if by_query { &["batch", "new_or_context", "latency_ms"] } else { &["batch", "latency_ms"] };
        let mut missing: Vec<&str> =
            needed.iter().copied().filter(|name| csv.column(name).is_none()).collect();
        if !by_query && csv.column("new_tokens").is_none() && csv.column("context_tokens").is_none() {
            missing.push("new_tokens or context_tokens");
        }
        if !missing.is_empty() {
            let found = if csv.columns.is_empty() { "nothing".into() } else { csv.columns.join(", ") };
            let message = format!("columns are missing: {}; found {found}", missing.join(", "));
            return Err(vec![RowProblem::new(1, message)]);
        }
        let (mut measured, mut problems) = (Self::default(), Vec::new());
        let mut lines: BTreeMap<PassKey, usize> = BTreeMap::new();
        let mut deployment = None;
        for row in &csv.rows {
            let field = |name: &str| csv.column(name).map_or("", |place| row.fields[place].as_str());
            let name = field("deployment");
            let first = *deployment.get_or_insert(name);
            if name != first {
                problems.push(RowProblem::new(
                    row.line,
                    format!(
                        "deployment: `{name}`, after rows of `{first}`: one file measures one deployment"
                    ),
                ));
                break;
            }
            let Some(pass) = measured.push(row, field, by_query, &mut problems) else { continue };
            let first = *lines.entry(pass).or_insert(row.line);
            if first != row.line {
                let message =
                    format!("measures the pass of line {first} again: one row has to say what it takes");
                problems.push(RowProblem::new(row.line, message));
            }
        }
        if csv.rows.is_empty() {
            problems.push(RowProblem::new(0, "there are no rows"));
        }
        if problems.is_empty() { Ok(measured) } else { Err(problems) }
    }

    fn push<'a>(
        &mut self,
        row: &Row,
        field: impl Fn(&str) -> &'a str,
        by_query: bool,
        problems: &mut Vec<RowProblem>,
    ) -> Option<PassKey> {
        let before = problems.len();
        let decode = if by_query {
            match field("phase") {
                "prefill" => false,
                "decode" => true,
                other => {
                    let message = format!("phase: `{other}` is neither `prefill` nor `decode`");
                    problems.push(RowProblem::new(row.line, message));
                    return None;
                }
            }
        } else {
            match (field("new_tokens").is_empty(), field("context_tokens").is_empty()) {
                (false, true) => false,
                (true, false) => true,
                _ => {
                    let message = "exactly one of new_tokens and context_tokens has to be given";
                    problems.push(RowProblem::new(row.line, message));
                    return None;
                }
            }
        };
        let mut number = |name: &str, least: f64| {
            let text = field(name);
            let text = if text.is_empty() && least == 0.0 { "0" } else { text };
            let range = least..=if name == "latency_ms" { LONGEST_MS } else { f64::MAX };
            let number = text.parse::<f64>().ok().filter(|number| range.contains(number));
            if number.is_none() {
                problems.push(RowProblem::new(
                    row.line,
                    match name {
                        "latency_ms" => {
                            format!("{name}: `{text}` is not a number from {least} to {LONGEST_MS}")
                        }
                        _ => format!("{name}: `{text}` is not a number from {least} up"),
                    },
                ));
            }
            number.unwrap_or(1.0)
        };
        let batch = number("batch", 1.0);
        // The clock of no pass runs below a nanosecond; a zero has no logarithm.
        let ms = number("latency_ms", 1e-6);
        let pass = if decode {
            let context = number(if by_query { "new_or_context" } else { "context_tokens" }, 1.0);
            self.decode.push(([batch, context], ms));
            [batch, context, -1.0]
        } else {
            let new = number(if by_query { "new_or_context" } else { "new_tokens" }, 1.0);
            let prefix = number(if by_query { "prefix" } else { "prefix_tokens" }, 0.0);
            self.prefill.push(([batch, new, prefix], ms));
            [batch, new, prefix]
        };
        (problems.len() == before).then(|| pass.map(f64::to_bits))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Measured, Vec<String>> {
        Measured::read(text.as_bytes()).map_err(|problems| {
            problems.into_iter().map(|problem| format!("{}: {}", problem.line, problem.message)).collect()
        })
    }

    #[test]
    fn both_phases_may_share_a_file() {
        let text = "batch,new_tokens,prefix_tokens,context_tokens,latency_ms\n1,8,16,,2.5\n4,,,100,3\n";
        let measured = read(text).unwrap();
        assert_eq!(measured.prefill, [([1.0, 8.0, 16.0], 2.5)]);
        assert_eq!(measured.decode, [([4.0, 100.0], 3.0)]);
        let priced = "deployment,phase,batch,new_or_context,prefix,latency_ms,source\n\
                      a,prefill,1,8,16,2.5,x\na,decode,4,100,,3,x\n";
        assert_eq!(read(priced).unwrap(), measured);
        let only = read("deployment,batch,context_tokens,latency_ms\na,1,64,6.2\n").unwrap();
        assert_eq!((only.prefill.len(), only.decode.len()), (0, 1));
    }

    #[test]
    fn every_bad_row_is_named() {
        let text = "batch,new_tokens,context_tokens,latency_ms\n0,8,,1\n1,8,9,1\n1,,,1\n1,8,,0\nx,,5,inf\n";
        let problems = read(text).unwrap_err();
        let expected = [
            "2: batch: `0`",
            "3: exactly one",
            "4: exactly one",
            "5: latency_ms: `0`",
            "6: batch: `x`",
            "6: latency_ms",
        ];
        assert_eq!(problems.len(), expected.len(), "{problems:?}");
        assert!(problems.iter().zip(expected).all(|(found, start)| found.starts_with(start)), "{problems:?}");
        assert_eq!(
            read("batch,x\n").unwrap_err(),
            ["1: columns are missing: latency_ms, new_tokens or context_tokens; found batch, x"]
        );
        let again = "batch,new_tokens,context_tokens,latency_ms\n1,8,,2\n1,,8,2\n1,9,,2\n1.0,8,,3\n1,,8,2\n";
        assert_eq!(
            read(again).unwrap_err(),
            [
                "5: measures the pass of line 2 again: one row has to say what it takes",
                "6: measures the pass of line 3 again: one row has to say what it takes"
            ]
        );
        let two = read("deployment,batch,context_tokens,latency_ms\na,1,64,6.2\nb,1,64,6\n").unwrap_err();
        assert!(two[0].contains("`b`, after rows of `a`"), "{two:?}");
        assert_eq!(read("batch,context_tokens,latency_ms\n").unwrap_err(), ["0: there are no rows"]);
    }
}
