//! The trace of a workload: its file, and how that is read.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::workload::Arrival;

/// A trace and how to read it.
#[derive(Clone, Debug, PartialEq)]
pub struct TraceSource {
    /// The file, already resolved against the configuration's folder.
    pub path: PathBuf,
    /// How it is written.
    pub format: TraceFormat,
    /// Tokens that one hash id stands for, or that the blocks have which token ids are put into. Without a meaning in
    /// other formats.
    pub block_size: u32,
    /// Unit of its time stamps, where that can be in doubt.
    pub time_unit: TraceTimeUnit,
    /// Rows of one session are turns that wait for each other; otherwise each arrives when it did. A Mooncake trace always
    /// keeps its sessions.
    pub sessions: bool,
    /// Which column is what, of a trace in a form of its own.
    pub columns: Option<TraceColumns>,
    /// The arrivals of a trace without time stamps.
    pub rate: Option<TraceRate>,
    /// Only the first rows, when set.
    pub max_requests: Option<u32>,
}

impl TraceSource {
    /// A trace in a format's usual form.
    pub fn new(path: PathBuf, format: TraceFormat) -> Self {
        Self {
            path,
            format,
            block_size: format.usual_block_size(),
            time_unit: format.usual_time_unit().unwrap_or(TraceTimeUnit::Ms),
            sessions: false,
            columns: None,
            rate: None,
            max_requests: None,
        }
    }
}

/// The names that a trace in a form of its own has for what is in it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct TraceColumns {
    /// Column of the prompt's tokens.
    pub input_length: String,
    /// Column of the output's tokens.
    pub output_length: String,
    /// Column of the time of arrival: a number in `trace_time_unit`, or a wall clock like `2024-05-10 09:00:01.25`. Without it
    /// `request_rate` or `replay_concurrency` is needed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub arrival: Option<String>,
    /// Column of the request's name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
}

impl TraceColumns {
    /// The columns, each with what it is called here; at least the two lengths.
    pub fn pairs(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let needed =
            [("input_length", Some(&self.input_length)), ("output_length", Some(&self.output_length))];
        let others = [("arrival", self.arrival.as_ref()), ("request_id", self.request_id.as_ref())];
        needed.into_iter().chain(others).filter_map(|(key, name)| Some((key, name?.as_str())))
    }

    /// What is wrong with the names: the key, and why.
    pub fn problems(&self) -> Vec<(&'static str, String)> {
        let pairs: Vec<_> = self.pairs().collect();
        let earlier = |at: usize| pairs[..at].iter().find(|(_, name)| name.eq_ignore_ascii_case(pairs[at].1));
        let problem = |(at, &(key, name)): (usize, &(&'static str, &str))| match earlier(at) {
            _ if name.trim().is_empty() => Some((key, "is empty: a column has a name".to_owned())),
            Some((other, _)) => Some((key, format!("is the column `{name}`, which is `{other}` already"))),
            None => None,
        };
        pairs.iter().enumerate().filter_map(problem).collect()
    }
}

/// How arrivals are made up.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TraceRate {
    /// Requests per second.
    pub request_rate: f64,
    /// How they are spread.
    pub arrival: Arrival,
}

/// How a trace is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum TraceFormat {
    /// One JSON object per line, with the keys of the Mooncake traces; also the requests.jsonl of a replay.
    Mooncake,
    /// Request traces of Dynamo (`dynamo.request.trace.v1`).
    Dynamo,
    /// The Azure traces of language model inference: CSV with a wall clock.
    Azure,
    /// The traces of the Splitwise simulator, and as processed for Vidur: CSV, seconds.
    Splitwise,
    /// BurstGPT, with or without sessions: CSV, seconds.
    BurstGpt,
    /// Workloads of `LLMServingSim`: JSONL, nanoseconds.
    LlmServingSim,
    /// Lengths alone, as taken from ShareGPT and other data sets: CSV or JSONL.
    Lengths,
    /// What `vllm bench serve --save-result --save-detailed` saves.
    Vllm,
    /// `profile_export.jsonl` of AIPerf.
    Aiperf,
    /// Any other CSV, or JSONL of flat objects: `trace_columns` says which column is what.
    Columns,
}

impl TraceFormat {
    /// Every format.
    pub const ALL: [Self; 10] = [
        Self::Mooncake,
        Self::Dynamo,
        Self::Azure,
        Self::Splitwise,
        Self::BurstGpt,
        Self::LlmServingSim,
        Self::Lengths,
        Self::Vllm,
        Self::Aiperf,
        Self::Columns,
    ];

    /// Whether the length of its blocks is for the reader to say.
    pub fn has_block_size(self) -> bool {
        matches!(self, Self::Mooncake | Self::LlmServingSim)
    }

    /// Tokens of its blocks, unless something else is said.
    pub fn usual_block_size(self) -> u32 {
        if self == Self::LlmServingSim { 16 } else { 512 }
    }

    /// The usual unit of its time stamps, where it can be another.
    pub fn usual_time_unit(self) -> Option<TraceTimeUnit> {
        match self {
            Self::Mooncake => Some(TraceTimeUnit::Ms),
            Self::Splitwise | Self::BurstGpt | Self::Vllm | Self::Columns => Some(TraceTimeUnit::S),
            _ => None,
        }
    }

    /// Whether its rows may be read as turns of sessions or each for itself.
    pub fn has_optional_sessions(self) -> bool {
        matches!(self, Self::Dynamo | Self::BurstGpt | Self::Aiperf)
    }

    /// Whether it may be without time stamps, so that arrivals can be made up.
    pub fn takes_rate(self) -> bool {
        matches!(self, Self::Lengths | Self::Vllm | Self::Columns)
    }
}

/// Unit of a trace's time stamps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum TraceTimeUnit {
    /// Milliseconds.
    Ms,
    /// Seconds.
    S,
    /// Microseconds; not of a Mooncake trace.
    Us,
    /// Nanoseconds; likewise.
    Ns,
}

impl TraceTimeUnit {
    /// All of them, from the longest to the shortest.
    pub const ALL: [Self; 4] = [Self::S, Self::Ms, Self::Us, Self::Ns];

    /// Many of it, in words.
    pub fn plural(self) -> &'static str {
        match self {
            Self::S => "seconds",
            Self::Ms => "milliseconds",
            Self::Us => "microseconds",
            Self::Ns => "nanoseconds",
        }
    }
}
