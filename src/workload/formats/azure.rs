//! The Azure traces of language model inference (2023, 2024 and the multimodal ones of 2025), and files made like them.

use std::io::{self, BufRead};

use super::cell;
use super::clock::Clock;
use super::intake::{Intake, Row};
use super::table::{self, Column, required, unused};

const COLUMNS: [Column; 4] = [
    required(&["TIMESTAMP"]),
    required(&["ContextTokens"]),
    required(&["GeneratedTokens"]),
    unused(&["NumImages"]),
];

pub(super) fn read(text: impl BufRead, intake: &mut Intake<'_>) -> io::Result<()> {
    let mut clock = Clock::default();
    table::read(text, &COLUMNS, intake, |row, intake| {
        let arrival = row.get(0, |text| clock.instant(text), intake);
        let input = row.get(1, cell::length, intake);
        let output = row.get(2, cell::length, intake);
        if !matches!(row.text(3), "" | "0") {
            intake.ignore("NumImages", row.place);
        }
        if let (Some(arrival), Some(input), Some(output)) = (arrival, input, output) {
            intake.take(Row::plain(row.place, Some(arrival), input, output));
        }
    })
}
