//! The traces of the Splitwise simulator, and those that Vidur made from them.

use std::io::{self, BufRead};

use super::cell;
use super::intake::{Intake, Row, Unit};
use super::table::{self, Column, optional, required, unused};

const COLUMNS: [Column; 8] = [
    required(&["arrival_timestamp", "arrived_at", "arrived_at_s"]),
    required(&["prompt_size", "num_prefill_tokens"]),
    required(&["token_size", "num_decode_tokens"]),
    optional(&["request_id"]),
    unused(&["batch_size"]),
    unused(&["request_type"]),
    unused(&["application_id"]),
    unused(&["num_total_tokens"]),
];

pub(super) fn read(text: impl BufRead, unit: Unit, intake: &mut Intake<'_>) -> io::Result<()> {
    table::read(text, &COLUMNS, intake, |row, intake| {
        let arrival = row.get(0, |text| unit.time(text), intake);
        let input = row.get(1, cell::length, intake);
        let output = row.get(2, cell::length, intake);
        if !matches!(row.text(4), "" | "1") {
            intake.problem(
                row.place,
                "batch_size",
                format!("{} is not 1: a row is one request", row.text(4)),
            );
        }
        if let (Some(arrival), Some(input), Some(output)) = (arrival, input, output) {
            let name = Some(row.text(3)).filter(|name| !name.is_empty()).map(Into::into);
            intake.take(Row { name, ..Row::plain(row.place, Some(arrival), input, output) });
        }
    })
}
