//! JSONL: an object a line.

use std::io::{self, BufRead};

use serde::de::Deserialize;

use super::guess::guess;
use super::intake::{Intake, LINE_LIMIT};
use crate::workload::input::Lines;
use crate::workload::mooncake::number::Scalar;
use crate::workload::problem::Place;

/// Reads the objects of a text; `take` gets each one that is well-formed, with its line.
///
/// Rows that `is_row` does not take for one are not counted as rows.
pub(super) fn read<T>(
    text: impl BufRead,
    intake: &mut Intake<'_>,
    mut take: impl FnMut(Place, T, &mut Intake<'_>),
) -> io::Result<()>
where
    T: for<'de> Deserialize<'de>,
{
    let mut lines = Lines::new(text, LINE_LIMIT);
    let mut last_good = 0;
    let mut cut_off: Option<(Place, String, Option<String>)> = None;
    while !intake.is_full()
        && let Some(line) = lines.next()?
    {
        if let Some((place, message, excerpt)) = cut_off.take() {
            intake.problem_quoting(place, message, excerpt);
        }
        let known = intake.problem_count();
        let place = Place::Line(line.number);
        let Some(text) = line.text else {
            intake.problem(
                place,
                "",
                format!("longer than {LINE_LIMIT} bytes, the most that one row may have"),
            );
            continue;
        };
        if last_good == 0 && !text.starts_with(b"{") {
            let message = "not a JSON object: this form has one on each line";
            intake.problem_quoting(place, message, line.excerpt(place, ""));
            intake.suggest(guess(text));
            return Ok(());
        }
        match serde_json::from_slice(text) {
            Ok(row) => {
                let is_first = last_good == 0;
                last_good = line.number;
                take(place, row, intake);
                if is_first && intake.problem_count() > known {
                    intake.suggest(guess(text));
                }
            }
            Err(error) => {
                let place = Place::Column(line.number, error.column().max(1) + line.indent);
                let (line_text, text) = (text, error.to_string());
                let reason = text.rsplit_once(" at line ").map_or(text.as_str(), |(reason, _)| reason);
                if error.is_eof() {
                    cut_off = Some((place, reason.to_owned(), line.excerpt(place, "")));
                } else {
                    intake.problem(place, "", reason.to_owned());
                    if last_good == 0 && error.is_data() {
                        intake.suggest(guess(line_text));
                    }
                }
            }
        }
        intake.quote_since(known, &line);
    }
    if let Some((place, reason, excerpt)) = cut_off {
        let good = match last_good {
            0 => String::new(),
            line => format!("; the last good row is line {line}"),
        };
        let message = format!("the file is truncated: its last row ends in the middle ({reason}){good}");
        intake.problem_quoting(place, message, excerpt);
    }
    Ok(())
}

/// A value of which anything is known only when it is read; absent and null are the same.
#[derive(Debug, Default)]
pub(super) struct Field(pub(super) Option<Scalar<'static>>);

impl<'de> Deserialize<'de> for Field {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let scalar = Scalar::deserialize(deserializer)?;
        Ok(Self((scalar != Scalar::Null).then(|| scalar.into_owned())))
    }
}

impl Field {
    /// The number of tokens; `None` after noting that it is missing or none.
    pub(super) fn length(&self, place: Place, name: &str, intake: &mut Intake<'_>) -> Option<u32> {
        intake.good(place, name, self.required().and_then(Scalar::length))
    }

    /// What is written, a number or a text.
    pub(super) fn text(&self) -> Option<String> {
        self.0.as_ref().map(|value| match value {
            Scalar::Text(text) => text.to_string(),
            other => other.to_string(),
        })
    }

    /// A whole number of 64 bits.
    pub(super) fn whole(&self, place: Place, name: &str, intake: &mut Intake<'_>) -> Option<u64> {
        intake.good(place, name, self.required().and_then(|value| value.whole("a time")))
    }

    fn required(&self) -> Result<&Scalar<'static>, String> {
        self.0.as_ref().ok_or_else(|| "missing".into())
    }
}
