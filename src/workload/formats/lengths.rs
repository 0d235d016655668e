//! Lengths without times, as people take them from ShareGPT and other data sets: CSV or JSONL.

use std::io::{self, BufRead};

use indexmap::IndexMap;

use super::cell;
use super::guess::guess_from_keys;
use super::intake::{Intake, Row};
use super::jsonl::{self, Field};
use super::table::{self, Column, required, unused};
use crate::config::scenario::TraceFormat;
use crate::workload::problem::Place;

pub(super) const NO_TIMES: &str =
    "missing: lengths have no time stamps, so the requests per second have to be given";

const INPUT: &[&str] = &[
    "input_length",
    "prompt_len",
    "num_prefill_tokens",
    "input_len",
    "prompt_length",
    "input_tokens",
    "prompt_tokens",
    "isl",
];
const OUTPUT: &[&str] = &[
    "output_length",
    "output_len",
    "num_decode_tokens",
    "response_length",
    "completion_len",
    "output_tokens",
    "completion_tokens",
    "osl",
];
const COLUMNS: [Column; 4] =
    [required(INPUT), required(OUTPUT), unused(&["num_total_tokens"]), unused(&["pd_ratio"])];

/// Columns of times: whoever has them wants another form.
const TIMES: &[&str] = &["arrived_at", "arrived_at_s", "arrival_timestamp", "TIMESTAMP", "timestamp"];

pub(super) fn read(mut text: impl BufRead, intake: &mut Intake<'_>) -> io::Result<()> {
    let start = text.fill_buf()?;
    let first = start.iter().find(|byte| byte.is_ascii() && !byte.is_ascii_whitespace()).copied();
    match first {
        Some(b'{') => jsonl::read(text, intake, |place, object, intake| take_object(place, &object, intake)),
        Some(b'[') => {
            intake.problem(
                Place::Whole,
                "",
                "this is a JSON list: write one object with two lengths on each line",
            );
            intake.hint("a ShareGPT file holds texts: its lengths depend on the model's tokenizer and have to be counted with it first");
            Ok(())
        }
        _ => table::read(text, &COLUMNS, intake, |row, intake| {
            let input = row.get(0, cell::length, intake);
            let output = row.get(1, cell::length, intake);
            if let (Some(input), Some(output)) = (input, output) {
                intake.take(Row::plain(row.place, None, input, output));
            }
        }),
    }
}

fn take_object(place: Place, object: &IndexMap<String, Field>, intake: &mut Intake<'_>) {
    intake.count_row();
    let input = length(object, INPUT, place, intake);
    let output = length(object, OUTPUT, place, intake);
    for name in
        object.keys().filter(|name| !INPUT.contains(&name.as_str()) && !OUTPUT.contains(&name.as_str()))
    {
        intake.ignore(name, place);
    }
    if TIMES.iter().any(|name| object.contains_key(*name)) {
        let keys: Vec<String> = object.keys().cloned().collect();
        match guess_from_keys(&keys) {
            guess @ Some(TraceFormat::Mooncake) => intake.suggest(guess),
            _ => {
                intake.hint("the rows have times: if they should be used, read them in a form that has them");
            }
        }
    }
    if let (Some(input), Some(output)) = (input, output) {
        intake.take(Row::plain(place, None, input, output));
    }
}

fn length(
    object: &IndexMap<String, Field>,
    names: &[&str],
    place: Place,
    intake: &mut Intake<'_>,
) -> Option<u32> {
    let mut found = names.iter().filter_map(|name| Some((*name, object.get(*name)?)));
    let Some((name, field)) = found.next() else {
        let keys: Vec<&str> = object.keys().map(String::as_str).collect();
        intake.problem(place, names[0], format!("missing; found {}", keys.join(", ")));
        return None;
    };
    let length = field.length(place, name, intake)?;
    for (other, field) in found {
        let second = field.length(place, other, intake)?;
        if second != length {
            intake.problem(place, other, format!("{second} contradicts {name} {length} in the same row"));
            return None;
        }
    }
    Some(length)
}
