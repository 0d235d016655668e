//! BurstGPT; its third version puts two columns in after the first.

use std::io::{self, BufRead};

use super::cell;
use super::intake::{Intake, Row, TOTAL_DIFFERS, Unit};
use super::table::{self, Column, optional, required, unused};

const COLUMNS: [Column; 8] = [
    required(&["Timestamp"]),
    required(&["Request tokens"]),
    required(&["Response tokens"]),
    optional(&["Session ID", "SessionID"]),
    optional(&["Elapsed time"]),
    optional(&["Total tokens"]),
    unused(&["Model"]),
    unused(&["Log Type"]),
];

pub(super) fn read(text: impl BufRead, unit: Unit, intake: &mut Intake<'_>) -> io::Result<()> {
    table::read(text, &COLUMNS, intake, |row, intake| {
        let arrival = row.get(0, |text| unit.time(text), intake);
        let input = row.get(1, cell::length, intake);
        let output = row.get(2, cell::length, intake);
        // Only sessions need to know how long the answer took, so only there it has to be right.
        let sessions = intake.options().sessions;
        let elapsed = (sessions && !row.text(4).is_empty())
            .then(|| row.get(4, |text| unit.time(text), intake))
            .flatten();
        let (Some(arrival), Some(input), Some(output)) = (arrival, input, output) else { return };
        if cell::length(row.text(5))
            .is_ok_and(|total| u64::from(total) != u64::from(input) + u64::from(output))
        {
            intake.notice(TOTAL_DIFFERS, row.place);
        }
        let session = Some(row.text(3)).filter(|name| !name.is_empty()).map(Into::into);
        let end = elapsed.and_then(|elapsed| arrival.checked_add(elapsed));
        intake.take(Row { end, session, ..Row::plain(row.place, Some(arrival), input, output) });
    })
}
