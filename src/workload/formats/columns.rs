//! A form of somebody's own: CSV, or JSONL of flat objects, whose columns are named by the reader.

use std::io::{self, BufRead};

use indexmap::IndexMap;

use super::cell::{self, Nanoseconds};
use super::clock::Clock;
use super::intake::{Intake, Row, Unit};
use super::jsonl::{self, Field};
use super::table::{self, Column, Need};
use crate::config::scenario::TraceColumns;
use crate::workload::problem::Place;

pub(super) const NO_TIMES: &str =
    "missing: no column of arrivals is named, so the requests per second have to be given";

pub(super) fn read(mut text: impl BufRead, unit: Unit, intake: &mut Intake<'_>) -> io::Result<()> {
    // Without names, or with wrong ones, there is a refusal already.
    let names = intake.options().columns.as_ref();
    let Some(names) = names.filter(|names| names.problems().is_empty()) else { return Ok(()) };
    let mut times = Times::new(unit, intake.options().time_unit.is_some());
    let start = text.fill_buf()?;
    let first = start.iter().find(|byte| byte.is_ascii() && !byte.is_ascii_whitespace()).copied();
    if first == Some(b'{') {
        return jsonl::read(text, intake, |place, object, intake| {
            take_object(place, &object, names, &mut times, intake);
        });
    }
    let required = |name| Column { names: name, need: Need::Required };
    let (input, output) = ([names.input_length.as_str()], [names.output_length.as_str()]);
    let (arrival, id) = (names.arrival.as_deref(), names.request_id.as_deref());
    let columns =
        [required(&input), required(&output), required(arrival.as_slice()), required(id.as_slice())];
    table::read(text, &columns, intake, |row, intake| {
        let input = row.get(0, cell::length, intake);
        let output = row.get(1, cell::length, intake);
        let time = arrival.map(|_| row.get(2, |text| times.instant(text), intake));
        let (Some(input), Some(output)) = (input, output) else { return };
        if time.is_none_or(|time| time.is_some()) {
            let name = Some(row.text(3)).filter(|name| !name.is_empty()).map(Into::into);
            intake.take(Row { name, ..Row::plain(row.place, time.flatten(), input, output) });
        }
    })
}

/// The times of one trace: all numbers, or all of a wall clock.
struct Times {
    unit: Unit,
    /// Whether somebody asked for that unit.
    is_asked_for: bool,
    is_clock: Option<bool>,
    clock: Clock,
}

impl Times {
    fn new(unit: Unit, is_asked_for: bool) -> Self {
        Self { unit, is_asked_for, is_clock: None, clock: Clock::default() }
    }

    fn instant(&mut self, text: &str) -> Result<Nanoseconds, String> {
        let is_clock = text.contains(':');
        let instant = if is_clock { self.clock.instant(text)? } else { self.unit.time(text)? };
        if *self.is_clock.get_or_insert(is_clock) != is_clock {
            let (this, others) =
                if is_clock { ("a wall clock", "numbers") } else { ("a number", "a wall clock") };
            return Err(format!("\"{text}\" is {this}, and the rows before it have {others}"));
        }
        if is_clock && self.is_asked_for {
            return Err(format!("\"{text}\" is a wall clock, so no time unit can be given"));
        }
        Ok(instant)
    }
}

fn take_object(
    place: Place,
    object: &IndexMap<String, Field>,
    names: &TraceColumns,
    times: &mut Times,
    intake: &mut Intake<'_>,
) {
    intake.count_row();
    for name in object.keys().filter(|name| names.pairs().all(|(_, known)| known != name.as_str())) {
        intake.ignore(name, place);
    }
    let absent = Field::default();
    let field = |name: &str| object.get(name).unwrap_or(&absent);
    let input = field(&names.input_length).length(place, &names.input_length, intake);
    let output = field(&names.output_length).length(place, &names.output_length, intake);
    let time = names.arrival.as_ref().map(|name| {
        let text = field(name).text();
        intake.good(place, name, text.ok_or_else(|| "missing".into()).and_then(|text| times.instant(&text)))
    });
    let (Some(input), Some(output)) = (input, output) else { return };
    if time.is_none_or(|time| time.is_some()) {
        let name = names.request_id.as_ref().and_then(|name| field(name).text()).map(Into::into);
        intake.take(Row { name, ..Row::plain(place, time.flatten(), input, output) });
    }
}
