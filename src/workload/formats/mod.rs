//! Traces in all forms: those of other tools, one file for each, beside Mooncake's own reader.
//!
//! | name | rows | time stamps | contents of prompts |
//! |---|---|---|---|
//! | `dynamo` | JSONL events `dynamo.request.trace.v1`, of which `request_end` are requests; several files may be parts of one | `request_received_ms`, Unix milliseconds | sequence hashes, block size in the file |
//! | `azure` | CSV `TIMESTAMP, ContextTokens, GeneratedTokens` | wall clock, to 100 ns, with or without an offset | unknown |
//! | `splitwise` | CSV `arrival_timestamp, prompt_size, token_size`, or `arrived_at, num_prefill_tokens, num_decode_tokens` | seconds | unknown |
//! | `burstgpt` | CSV `Timestamp, Request tokens, Response tokens`; `Session ID` and `Elapsed time` if there | seconds | unknown |
//! | `llmservingsim` | JSONL `arrival_time_ns, input_toks, output_toks`; `input_tok_ids` if there | nanoseconds | token ids |
//! | `lengths` | CSV or JSONL with two lengths, as made from ShareGPT and other data sets | none: a rate has to be given | unknown |
//! | `vllm` | the JSON that `vllm bench serve --save-result --save-detailed` writes | `start_times`, seconds; a rate has to be given where they are absent | unknown |
//! | `aiperf` | `profile_export.jsonl` | `request_start_ns`, Unix nanoseconds | unknown |
//! | `columns` | any other CSV or JSONL of flat objects, whose columns the reader names | if there is a column of them: a number or a wall clock; otherwise a rate has to be given | unknown |
//!
//! Times are kept as whole nanoseconds and the earliest arrival becomes 0. Columns are found by name, never by place. A
//! reader goes on after a bad row, so that one run shows all problems, each with its line and column.

mod aiperf;
mod azure;
mod burstgpt;
mod cell;
mod clock;
mod columns;
mod dynamo;
mod guess;
mod intake;
mod jsonl;
mod lengths;
mod llmservingsim;
mod splitwise;
mod table;
#[cfg(test)]
mod tests;
mod vllm;

use std::io::{self, BufRead};

use self::intake::{Intake, Unit};
use super::input::unpacked;
use super::problem::{Place, WorkloadErrors};
use super::{Loaded, Pacing, mooncake};
use crate::config::scenario::{Arrival, TraceColumns, TraceFormat, TraceTimeUnit, ZeroOutput};
use crate::simulation::Shown;

pub(super) use self::guess::{guess, other_form};

impl TraceFormat {
    /// How a trace of this form is read, at a rate if one is given, in a unit if that is not the usual one: a line for its owner.
    pub fn reading(
        self,
        request_rate: Option<f64>,
        unit: Option<TraceTimeUnit>,
        columns: Option<&TraceColumns>,
    ) -> String {
        let unit = unit.or_else(|| self.usual_time_unit());
        let column = columns.and_then(|columns| columns.arrival.as_deref());
        let times = match (request_rate, unit, column) {
            (Some(rate), ..) => format!("{} requests per second as asked for", Shown(rate)),
            (None, Some(unit), Some(column)) => {
                format!(
                    "time stamps from {column}, a wall clock or a number of {}, the earliest becomes 0",
                    unit.plural()
                )
            }
            (None, Some(unit), None) => {
                let times = self.times().replace("in seconds", &format!("in {}", unit.plural()));
                format!("time stamps from {times}, the earliest becomes 0")
            }
            (None, None, _) => format!("time stamps from {}, the earliest becomes 0", self.times()),
        };
        format!("read as {}: {times}", self.name())
    }

    /// Where its time stamps come from and what they count.
    pub fn times(self) -> &'static str {
        match self {
            Self::Mooncake => "timestamp in milliseconds",
            Self::Dynamo => "request_received_ms in Unix milliseconds",
            Self::Azure => "TIMESTAMP as wall clock",
            Self::Splitwise => "arrival_timestamp or arrived_at in seconds",
            Self::BurstGpt => "Timestamp in seconds",
            Self::LlmServingSim => "arrival_time_ns in nanoseconds",
            Self::Lengths => "none",
            Self::Vllm => "start_times in seconds, if they were saved",
            Self::Aiperf => "request_start_ns in Unix nanoseconds",
            Self::Columns => "the column that is named, if one is",
        }
    }

    /// Whether several files may be parts of one trace.
    pub fn has_shards(self) -> bool {
        self == Self::Dynamo
    }
}

/// How to read a trace.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// Unit of its time stamps, where that is not the usual one.
    pub time_unit: Option<TraceTimeUnit>,
    /// Requests per second and how they are spread, for a trace without time stamps.
    pub rate: Option<(f64, Arrival)>,
    /// Takes the rows of one session as its turns, each as long after the end of the one before it as it was on record.
    /// Otherwise every row arrives when it did on record.
    pub sessions: bool,
    /// Which column is what, for [`TraceFormat::Columns`].
    pub columns: Option<TraceColumns>,
    /// Tokens that one hash id stands for, or of the blocks that token ids are put into;
    /// [`TraceFormat::usual_block_size`] when absent.
    pub block_size: Option<u32>,
    /// Only the first rows, when set.
    pub max_requests: Option<u32>,
    /// What becomes of rows that ask for no output.
    pub zero_output: ZeroOutput,
    /// Refuses whatever would be dropped or repaired.
    pub strict: bool,
    /// Open or closed loop, and how fast.
    pub pacing: Pacing,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            time_unit: None,
            rate: None,
            sessions: false,
            columns: None,
            block_size: None,
            max_requests: None,
            zero_output: ZeroOutput::Drop,
            strict: false,
            pacing: Pacing::default(),
        }
    }
}

/// A file to read, with what it is called in messages.
pub struct Source<'r> {
    /// Its name.
    pub origin: String,
    /// Its bytes, plain or gzip.
    pub reader: &'r mut dyn BufRead,
}

/// Reads a trace from one file, or from several that are parts of one.
///
/// # Errors
/// Everything that is wrong with it, with lines and columns; one entry for each file that has problems of its own.
pub fn read(
    format: TraceFormat,
    sources: Vec<Source<'_>>,
    options: &Options,
) -> Result<Loaded, Vec<WorkloadErrors>> {
    let origins: Vec<String> = sources.iter().map(|source| source.origin.clone()).collect();
    let origin = origins.join(", ");
    let mut intake = Intake::new(format, options);
    check_options(format, origins.len(), &mut intake);
    intake.end_of_file(&origin);
    if format == TraceFormat::Mooncake {
        return read_mooncake(sources, intake, options);
    }
    for source in sources {
        let text = unpacked(source.reader);
        let read = text.and_then(|text| match format {
            TraceFormat::Dynamo => dynamo::read(text, &mut intake),
            TraceFormat::Azure => azure::read(text, &mut intake),
            TraceFormat::Splitwise => splitwise::read(text, Unit::of(options, TraceTimeUnit::S), &mut intake),
            TraceFormat::BurstGpt => burstgpt::read(text, Unit::of(options, TraceTimeUnit::S), &mut intake),
            TraceFormat::LlmServingSim => llmservingsim::read(text, &mut intake),
            TraceFormat::Lengths => lengths::read(text, &mut intake),
            TraceFormat::Vllm => vllm::read(text, Unit::of(options, TraceTimeUnit::S), &mut intake),
            TraceFormat::Aiperf => aiperf::read(text, &mut intake),
            TraceFormat::Columns => columns::read(text, Unit::of(options, TraceTimeUnit::S), &mut intake),
            TraceFormat::Mooncake => unreachable!("has been read already"),
        });
        if let Err(error) = read {
            unreadable(&error, &mut intake);
        }
        intake.end_of_file(&source.origin);
    }
    intake.finish(&origin)
}

/// Mooncake's form has a reader of its own.
fn read_mooncake(
    sources: Vec<Source<'_>>,
    intake: Intake<'_>,
    options: &Options,
) -> Result<Loaded, Vec<WorkloadErrors>> {
    intake.into_refusals()?;
    let mut traces = sources.into_iter().map(|Source { origin, reader }| {
        let usual = mooncake::Options::default();
        let options = mooncake::Options {
            origin,
            block_size: options.block_size.unwrap_or(usual.block_size),
            time_unit: if options.time_unit == Some(TraceTimeUnit::S) {
                TraceTimeUnit::S
            } else {
                TraceTimeUnit::Ms
            },
            max_requests: options.max_requests,
            zero_output: options.zero_output,
            strict: options.strict,
            pacing: options.pacing,
        };
        mooncake::read(reader, &options).map_err(|errors| vec![errors])
    });
    traces.next().expect("a trace is one file")
}

fn unreadable(error: &io::Error, intake: &mut Intake<'_>) {
    let message = match error.kind() {
        io::ErrorKind::UnexpectedEof => "the gzip data is truncated".to_owned(),
        _ => format!("cannot be read: {error}"),
    };
    intake.problem(Place::Whole, "", message);
}

/// Refuses options that the format has no use for, and asks for those that it needs.
fn check_options(format: TraceFormat, files: usize, intake: &mut Intake<'_>) {
    let Options { time_unit, rate, sessions, block_size, pacing, .. } = *intake.options();
    let name = format.name();
    let columns = intake.options().columns.as_ref();
    let has_columns = columns.is_some();
    let arrival = columns.and_then(|columns| columns.arrival.as_deref());
    let has_arrivals = arrival.is_some_and(|name| !name.is_empty());
    for (key, problem) in columns.map(TraceColumns::problems).unwrap_or_default() {
        intake.problem(Place::Whole, "columns", format!("{key} {problem}"));
    }
    let mut refuse = |refused: bool, field: &str, message: String| {
        if refused {
            intake.problem(Place::Whole, field, message);
        }
    };
    let times = format.times();
    refuse(
        time_unit.is_some() && format.usual_time_unit().is_none(),
        "time unit",
        format!("{name} has one by itself ({times}), so no other can be given"),
    );
    refuse(
        format == TraceFormat::Mooncake && matches!(time_unit, Some(TraceTimeUnit::Us | TraceTimeUnit::Ns)),
        "time unit",
        format!("the time stamps of {name} are in ms or in s"),
    );
    refuse(
        rate.is_some() && !format.takes_rate(),
        "request rate",
        format!("{name} has time stamps of its own ({times}), so no rate can be given"),
    );
    refuse(
        pacing.is_open() && rate.is_none() && format == TraceFormat::Lengths,
        "request rate",
        lengths::NO_TIMES.into(),
    );
    refuse(
        pacing.is_open() && rate.is_none() && has_columns && !has_arrivals,
        "request rate",
        columns::NO_TIMES.into(),
    );
    refuse(
        rate.is_some() && has_arrivals,
        "request rate",
        "there is a column of arrivals, so no rate can be given".into(),
    );
    refuse(
        time_unit.is_some() && has_columns && !has_arrivals,
        "time unit",
        "there is no column of arrivals, so they have no unit".into(),
    );
    refuse(
        has_columns && format != TraceFormat::Columns,
        "columns",
        format!("the columns of {name} have names of their own; others can be named with columns"),
    );
    refuse(
        !has_columns && format == TraceFormat::Columns,
        "columns",
        "missing: which column is input_length and which is output_length has to be said".into(),
    );
    refuse(
        rate.is_some_and(|(rate, _)| !(rate > 0.0 && rate.is_finite())),
        "request rate",
        format!(
            "{} requests per second: it must be finite and above 0",
            Shown(rate.map_or(0.0, |(rate, _)| rate))
        ),
    );
    refuse(
        block_size.is_some() && !format.has_block_size(),
        "block size",
        format!("{name} has no token ids to put into blocks"),
    );
    let without_sessions = match format {
        TraceFormat::Mooncake => "the sessions of a mooncake trace are always kept".to_owned(),
        _ => format!("{name} does not record sessions"),
    };
    refuse(sessions && !format.has_optional_sessions(), "sessions", without_sessions);
    refuse(
        files > 1 && !format.has_shards(),
        "",
        format!("{files} files: only a dynamo trace may be in several files"),
    );
}
