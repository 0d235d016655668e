//! Traces in the forms in which other tools keep them, one file for each form.
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
//!
//! Times are kept as whole nanoseconds and the earliest arrival becomes 0. Columns are found by name, never by place. A
//! reader goes on after a bad row, so that one run shows all problems, each with its line and column.

mod aiperf;
mod azure;
mod burstgpt;
mod cell;
mod clock;
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
use super::{Loaded, Pacing};
use crate::config::scenario::{Arrival, TraceFormat, ZeroOutput};

pub(super) use self::guess::guess;

/// A form of trace other than Mooncake's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Request traces of Dynamo.
    Dynamo,
    /// The Azure traces of language model inference.
    Azure,
    /// The traces of the Splitwise simulator, and as processed for Vidur.
    Splitwise,
    /// BurstGPT, with or without sessions.
    BurstGpt,
    /// Workloads of LLMServingSim.
    LlmServingSim,
    /// Lengths alone, as taken from ShareGPT and other data sets.
    Lengths,
    /// What vLLM's benchmark of a server saves.
    Vllm,
    /// What AIPerf saves of each request.
    Aiperf,
}

impl Format {
    /// Every form.
    pub const ALL: [Self; 8] = [
        Self::Dynamo,
        Self::Azure,
        Self::Splitwise,
        Self::BurstGpt,
        Self::LlmServingSim,
        Self::Lengths,
        Self::Vllm,
        Self::Aiperf,
    ];

    /// The form of a configured trace, unless it is Mooncake's.
    pub fn of(format: TraceFormat) -> Option<Self> {
        Some(match format {
            TraceFormat::Mooncake => return None,
            TraceFormat::Dynamo => Self::Dynamo,
            TraceFormat::Azure => Self::Azure,
            TraceFormat::Splitwise => Self::Splitwise,
            TraceFormat::BurstGpt => Self::BurstGpt,
            TraceFormat::LlmServingSim => Self::LlmServingSim,
            TraceFormat::Lengths => Self::Lengths,
            TraceFormat::Vllm => Self::Vllm,
            TraceFormat::Aiperf => Self::Aiperf,
        })
    }

    /// How a trace of this form is read, at a rate if one is given: a line for its owner.
    pub fn reading(self, request_rate: Option<f64>) -> String {
        let times = match request_rate {
            Some(rate) => format!("{rate} requests per second as asked for"),
            None => format!("time stamps from {}, the earliest becomes 0", self.times()),
        };
        format!("read as {}: {times}", self.name())
    }

    /// Its name on the command line and in configurations.
    pub fn name(self) -> &'static str {
        match self {
            Self::Dynamo => "dynamo",
            Self::Azure => "azure",
            Self::Splitwise => "splitwise",
            Self::BurstGpt => "burstgpt",
            Self::LlmServingSim => "llmservingsim",
            Self::Lengths => "lengths",
            Self::Vllm => "vllm",
            Self::Aiperf => "aiperf",
        }
    }

    /// Where its time stamps come from and what they count.
    pub fn times(self) -> &'static str {
        match self {
            Self::Dynamo => "request_received_ms in Unix milliseconds",
            Self::Azure => "TIMESTAMP as wall clock",
            Self::Splitwise => "arrival_timestamp or arrived_at in seconds",
            Self::BurstGpt => "Timestamp in seconds",
            Self::LlmServingSim => "arrival_time_ns in nanoseconds",
            Self::Lengths => "none",
            Self::Vllm => "start_times in seconds, if they were saved",
            Self::Aiperf => "request_start_ns in Unix nanoseconds",
        }
    }

    /// Whether several files may be parts of one trace.
    pub fn has_shards(self) -> bool {
        self == Self::Dynamo
    }

    /// Whether the unit of its time stamps can be something else than usual.
    fn has_open_unit(self) -> bool {
        matches!(self, Self::Splitwise | Self::BurstGpt | Self::Vllm)
    }

    fn has_sessions(self) -> bool {
        matches!(self, Self::Dynamo | Self::BurstGpt | Self::Aiperf)
    }
}

/// Unit of time stamps that are plain numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeUnit {
    /// Seconds.
    S,
    /// Milliseconds.
    Ms,
    /// Microseconds.
    Us,
    /// Nanoseconds.
    Ns,
}

/// How to read a trace.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// Unit of its time stamps, where that is not the usual one.
    pub time_unit: Option<TimeUnit>,
    /// Requests per second and how they are spread, for a trace without time stamps.
    pub rate: Option<(f64, Arrival)>,
    /// Takes the rows of one session as its turns, each as long after the end of the one before it as it was on record.
    /// Otherwise every row arrives when it did on record.
    pub sessions: bool,
    /// Tokens of the blocks that token ids are put into; [`Options::TOKEN_BLOCK_SIZE`] when absent.
    pub token_block_size: Option<u32>,
    /// Only the first rows, when set.
    pub max_requests: Option<u32>,
    /// What becomes of rows that ask for no output.
    pub zero_output: ZeroOutput,
    /// Refuses whatever would be dropped or repaired.
    pub strict: bool,
    /// Open or closed loop, and how fast.
    pub pacing: Pacing,
}

impl Options {
    /// Tokens of the blocks that token ids are put into, unless something else is asked for.
    pub const TOKEN_BLOCK_SIZE: u32 = 16;
}

impl Default for Options {
    fn default() -> Self {
        Self {
            time_unit: None,
            rate: None,
            sessions: false,
            token_block_size: None,
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
    format: Format,
    sources: Vec<Source<'_>>,
    options: &Options,
) -> Result<Loaded, Vec<WorkloadErrors>> {
    let origins: Vec<String> = sources.iter().map(|source| source.origin.clone()).collect();
    let origin = origins.join(", ");
    let mut intake = Intake::new(format, options);
    check_options(format, origins.len(), &mut intake);
    intake.end_of_file(&origin);
    for source in sources {
        let text = unpacked(source.reader);
        let read = text.and_then(|text| match format {
            Format::Dynamo => dynamo::read(text, &mut intake),
            Format::Azure => azure::read(text, &mut intake),
            Format::Splitwise => splitwise::read(text, Unit::of(options, TimeUnit::S), &mut intake),
            Format::BurstGpt => burstgpt::read(text, Unit::of(options, TimeUnit::S), &mut intake),
            Format::LlmServingSim => llmservingsim::read(text, &mut intake),
            Format::Lengths => lengths::read(text, &mut intake),
            Format::Vllm => vllm::read(text, Unit::of(options, TimeUnit::S), &mut intake),
            Format::Aiperf => aiperf::read(text, &mut intake),
        });
        if let Err(error) = read {
            unreadable(&error, &mut intake);
        }
        intake.end_of_file(&source.origin);
    }
    intake.finish(&origin)
}

fn unreadable(error: &io::Error, intake: &mut Intake<'_>) {
    let message = match error.kind() {
        io::ErrorKind::UnexpectedEof => "the gzip data is truncated".to_owned(),
        _ => format!("cannot be read: {error}"),
    };
    intake.problem(Place::Whole, "", message);
}

/// Refuses options that the format has no use for, and asks for those that it needs.
fn check_options(format: Format, files: usize, intake: &mut Intake<'_>) {
    let Options { time_unit, rate, sessions, token_block_size: block_size, pacing, .. } = *intake.options();
    let name = format.name();
    let mut refuse = |refused: bool, field: &str, message: String| {
        if refused {
            intake.problem(Place::Whole, field, message);
        }
    };
    let times = format.times();
    refuse(
        time_unit.is_some() && !format.has_open_unit(),
        "time unit",
        format!("{name} has one by itself ({times}), so no other can be given"),
    );
    let takes_rate = matches!(format, Format::Lengths | Format::Vllm);
    refuse(
        rate.is_some() && !takes_rate,
        "request rate",
        format!("{name} has time stamps of its own ({times}), so no rate can be given"),
    );
    refuse(
        pacing.is_open() && rate.is_none() && format == Format::Lengths,
        "request rate",
        lengths::NO_TIMES.into(),
    );
    refuse(
        rate.is_some_and(|(rate, _)| !(rate > 0.0 && rate.is_finite())),
        "request rate",
        format!("{} requests per second: it must be finite and above 0", rate.map_or(0.0, |(rate, _)| rate)),
    );
    refuse(
        block_size.is_some() && format != Format::LlmServingSim,
        "block size",
        format!("{name} has no token ids to put into blocks"),
    );
    refuse(sessions && !format.has_sessions(), "sessions", format!("{name} does not record sessions"));
    refuse(
        files > 1 && !format.has_shards(),
        "",
        format!("{files} files: only a dynamo trace may be in several files"),
    );
}
