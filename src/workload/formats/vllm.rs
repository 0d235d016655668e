//! What `vllm bench serve --save-result --save-detailed` saves: one JSON object with a list for each figure.

use std::io::{self, BufRead, Read};

use serde::Deserialize;
use serde::de::IgnoredAny;

use super::guess::guess;
use super::intake::{Intake, Row, Unit};
use super::jsonl::Field;
use crate::config::scenario::TraceFormat;
use crate::workload::input::Line;
use crate::workload::problem::Place;

/// Largest file that is read.
const SIZE_LIMIT: u64 = 1 << 30;

#[derive(Deserialize)]
struct Run {
    input_lens: Option<Vec<Field>>,
    output_lens: Option<Vec<Field>>,
    start_times: Option<Vec<f64>>,
    errors: Option<Vec<IgnoredError>>,
    num_prompts: Option<IgnoredAny>,
}

/// Whether a request failed: an empty text is no error.
struct IgnoredError(bool);

impl<'de> Deserialize<'de> for IgnoredError {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Option::<std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
        Ok(Self(text.is_some_and(|text| !text.is_empty())))
    }
}

pub(super) fn read(text: impl BufRead, unit: Unit, intake: &mut Intake<'_>) -> io::Result<()> {
    let mut bytes = Vec::new();
    text.take(SIZE_LIMIT + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > SIZE_LIMIT {
        intake.problem(Place::Whole, "", format!("longer than {SIZE_LIMIT} bytes, the most that is read"));
        return Ok(());
    }
    match serde_json::from_slice::<Run>(&bytes) {
        Ok(run) => {
            if run.input_lens.is_none() {
                intake.suggest(guess(bytes.trim_ascii()));
            }
            take(&run, unit, intake);
        }
        Err(error) => {
            let text = error.to_string();
            let reason = text.rsplit_once(" at line ").map_or(text.as_str(), |(reason, _)| reason);
            let (number, column) = (error.line().max(1), error.column().max(1));
            let place = Place::Column(number as u64, column);
            let text = bytes.split(|byte| *byte == b'\n').nth(number - 1);
            let line = Line { number: number as u64, indent: 0, text };
            intake.problem_quoting(place, reason.to_owned(), line.excerpt(place, ""));
            let first = bytes.split(|byte| *byte == b'\n').next().and_then(|line| guess(line.trim_ascii()));
            match first.filter(|format| *format != TraceFormat::Vllm) {
                None if reason.starts_with("trailing characters") => {
                    intake.hint("the file holds several runs, one after the other: give it one");
                }
                other => intake.suggest(other),
            }
        }
    }
    Ok(())
}

fn take(run: &Run, unit: Unit, intake: &mut Intake<'_>) {
    let (Some(inputs), Some(outputs)) = (&run.input_lens, &run.output_lens) else {
        let field = if run.input_lens.is_none() { "input_lens" } else { "output_lens" };
        intake.problem(Place::Whole, field, "missing: the run was not saved with every request");
        if run.num_prompts.is_some() {
            intake.hint("run the benchmark with --save-detailed");
        }
        return;
    };
    let starts = run.start_times.as_deref();
    let needs_times = intake.options().pacing.is_open();
    if needs_times && starts.is_none() && intake.options().rate.is_none() {
        let message = "missing: this run did not save when requests were sent, so the requests per second have to be given";
        intake.problem(Place::Whole, "start_times", message);
    }
    if starts.is_some() && intake.options().rate.is_some() {
        let message = "are there: no request rate can be given beside them";
        intake.problem(Place::Whole, "start_times", message);
    }
    let rows = inputs.len();
    let lists = [("output_lens", Some(outputs.len())), ("start_times", starts.map(<[f64]>::len))];
    for (name, length) in lists {
        if let Some(length) = length.filter(|&length| length != rows) {
            intake.problem(Place::Whole, name, format!("{length} values beside {rows} input_lens"));
            return;
        }
    }
    for (index, (input, output)) in inputs.iter().zip(outputs).enumerate() {
        if intake.is_full() {
            break;
        }
        intake.count_row();
        let place = Place::Request(index as u32);
        let failed = run.errors.as_ref().and_then(|errors| errors.get(index)).is_some_and(|error| error.0);
        if failed {
            intake.drop("failed request", place);
            continue;
        }
        let arrival = starts.map(|starts| intake.good(place, "start_times", unit.time_of(starts[index])));
        let input = input.length(place, "input_lens", intake);
        let output = output.length(place, "output_lens", intake);
        if let (Some(input), Some(output)) = (input, output) {
            intake.take(Row::plain(place, arrival.flatten(), input, output));
        }
    }
}
