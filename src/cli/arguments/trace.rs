//! The arguments of `spica trace`.

use std::path::PathBuf;

use clap::builder::PossibleValue;
use clap::{Args, Subcommand, ValueEnum};

use crate::config::scenario::{TraceColumns, TraceFormat, TraceTimeUnit, ZeroOutput};
use crate::workload::generate::{Conversation, Sine, ToolAgent};

#[derive(Debug, Subcommand)]
pub(in crate::cli) enum TraceCommand {
    /// Print what is in a trace: rows, span, rate, lengths, and how much of its prompts could be reused
    Stats(TraceArguments),
    /// Write a trace of any form, or the requests.jsonl of a replay, to standard output as Mooncake JSONL
    ///
    /// Times are in milliseconds from the earliest arrival. Rows of a replay become requests that arrive when they arrived there, later turns of a session as long after the
    /// end of the turn before them.
    Convert(TraceArguments),
    /// Write a seeded trace to standard output: the same options give the same bytes
    #[command(subcommand)]
    Generate(GenerateCommand),
}

/// A trace to be read.
#[derive(Debug, Args)]
pub(in crate::cli) struct TraceArguments {
    /// The trace, plain or gzip; with `--from dynamo` also several that are parts of one
    #[arg(required = true, value_name = "FILE")]
    pub(in crate::cli) files: Vec<PathBuf>,
    /// Form that it is in
    #[arg(long, value_enum, default_value_t = TraceFormat::Mooncake)]
    pub(in crate::cli) from: TraceFormat,
    /// Which column is what, with `--from columns`: `input_length=NAME,output_length=NAME`, and `arrival=NAME` and
    /// `request_id=NAME` where there are such columns. A name that holds a comma stands in double quotes, within which a double
    /// quote is written twice: `input_length="in, cached"`
    #[arg(long, value_name = "KEY=NAME,...", value_parser = columns)]
    pub(in crate::cli) columns: Option<TraceColumns>,
    /// Tokens that one hash id stands for [default: 512]; with `--from llmservingsim`, tokens of the blocks that token ids
    /// are put into [default: 16]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(in crate::cli) block_size: Option<u32>,
    /// Unit of its time stamps, where that can be in doubt [default: ms; s with `--from splitwise`, `burstgpt`, `vllm` and `columns`]
    #[arg(long, value_enum)]
    pub(in crate::cli) time_unit: Option<TraceTimeUnit>,
    /// Requests per second for a trace without time stamps (`--from lengths`, `columns` without one of arrivals, and `vllm` where they were not saved)
    #[arg(long, value_name = "RATE", allow_negative_numbers = true)]
    pub(in crate::cli) request_rate: Option<f64>,
    /// How the arrivals of `--request-rate` are spread
    #[arg(long, value_enum, default_value_t = Spread::Fixed, requires = "request_rate")]
    pub(in crate::cli) arrival: Spread,
    /// Seed of random arrivals
    #[arg(long, value_name = "SEED", default_value_t = 42, requires = "request_rate")]
    pub(in crate::cli) arrival_seed: u64,
    /// Take the rows of a session (`dynamo`, `burstgpt`, `aiperf`) as turns that wait for each other, with the think times
    /// on record, instead of letting each arrive when it did
    #[arg(long)]
    pub(in crate::cli) sessions: bool,
    /// What becomes of rows that ask for no output [default: drop; `convert` keeps those of Mooncake traces]
    #[arg(long, value_enum)]
    pub(in crate::cli) zero_output: Option<ZeroOutputRows>,
    /// Refuse whatever would be dropped or repaired
    #[arg(long)]
    pub(in crate::cli) strict: bool,
    /// Only the first rows
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(in crate::cli) max_requests: Option<u32>,
}

/// Nothing is read by guess-work: what does not fit is refused, with a hint at what it looks like.
impl ValueEnum for TraceFormat {
    fn value_variants<'a>() -> &'a [Self] {
        &Self::ALL
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        let help = match self {
            Self::Mooncake => "Mooncake JSONL, or the requests.jsonl of a replay",
            Self::Dynamo => "Dynamo request traces (dynamo.request.trace.v1)",
            Self::Azure => "Azure traces: CSV with a wall clock",
            Self::Splitwise => "Splitwise traces, and as processed for Vidur: CSV, seconds",
            Self::BurstGpt => "BurstGPT: CSV, seconds",
            Self::LlmServingSim => "LLMServingSim workloads: JSONL, nanoseconds",
            Self::Lengths => "Lengths only, as taken from ShareGPT: CSV or JSONL; needs --request-rate",
            Self::Vllm => "Results of `vllm bench serve --save-result --save-detailed`",
            Self::Aiperf => "`profile_export.jsonl` of AIPerf",
            Self::Columns => "Any other CSV or JSONL, whose columns --columns names; seconds or a wall clock",
        };
        Some(PossibleValue::new(self.name()).help(help))
    }
}

/// Reads `input_length=in,output_length=out,arrival=at`, with quotes around names that hold commas.
fn columns(text: &str) -> Result<TraceColumns, String> {
    let [mut input, mut output, mut arrival, mut id] = [const { None }; 4];
    let mut rest = Some(text);
    while let Some(pairs) = rest {
        let (key, name);
        (key, name, rest) = pair(pairs)?;
        let place = match key.trim() {
            "input_length" => &mut input,
            "output_length" => &mut output,
            "arrival" => &mut arrival,
            "request_id" => &mut id,
            other => {
                return Err(format!(
                    "`{other}` is none of input_length, output_length, arrival and request_id"
                ));
            }
        };
        if place.replace(name).is_some() {
            return Err(format!("`{}` is given twice", key.trim()));
        }
    }
    let needed = |name: Option<String>, key: &str| name.ok_or_else(|| format!("`{key}=NAME` is missing"));
    let (input_length, output_length) = (needed(input, "input_length")?, needed(output, "output_length")?);
    Ok(TraceColumns { input_length, output_length, arrival, request_id: id })
}

/// The first of `KEY=NAME,KEY="NAME",...`, and what is behind it.
fn pair(pairs: &str) -> Result<(&str, String, Option<&str>), String> {
    let end = pairs.find(',').unwrap_or(pairs.len());
    let Some(equals) = pairs[..end].find('=') else {
        let pair = &pairs[..end];
        return Err(format!("`{pair}` is not KEY=NAME; a name that holds a comma stands in double quotes"));
    };
    let (key, value) = (&pairs[..equals], pairs[equals + 1..].trim_start());
    let Some(quoted) = value.strip_prefix('"') else {
        let (name, rest) = value.split_once(',').map_or((value, None), |(name, rest)| (name, Some(rest)));
        return Ok((key, name.trim().to_owned(), rest));
    };
    let (name, rest) = unquoted(quoted).ok_or_else(|| format!("`{value}` has no closing quote"))?;
    match rest.trim_start() {
        "" => Ok((key, name, None)),
        rest => match rest.strip_prefix(',') {
            Some(rest) => Ok((key, name, Some(rest))),
            None => Err(format!("`{rest}` stands behind a closing quote, where a comma belongs")),
        },
    }
}

/// What is within quotes, of which the first is gone, and what is behind them. A quote in the name is written twice, as in CSV.
fn unquoted(text: &str) -> Option<(String, &str)> {
    let mut name = String::new();
    let mut rest = text;
    loop {
        let (part, behind) = rest.split_once('"')?;
        name.push_str(part);
        match behind.strip_prefix('"') {
            Some(more) => {
                name.push('"');
                rest = more;
            }
            None => return Some((name, behind)),
        }
    }
}

impl ValueEnum for TraceTimeUnit {
    fn value_variants<'a>() -> &'a [Self] {
        &Self::ALL
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        Some(PossibleValue::new(self.name()).help(self.plural()))
    }
}

/// How arrivals are spread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(in crate::cli) enum Spread {
    /// Equal gaps
    Fixed,
    /// Random gaps, as of many independent users
    Poisson,
}

/// What becomes of rows that ask for no output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(in crate::cli) enum ZeroOutputRows {
    /// Left out and counted
    Drop,
    /// Kept: their prompts are computed and nothing is generated
    PrefillOnly,
}

impl From<ZeroOutputRows> for ZeroOutput {
    fn from(rows: ZeroOutputRows) -> Self {
        match rows {
            ZeroOutputRows::Drop => Self::Drop,
            ZeroOutputRows::PrefillOnly => Self::PrefillOnly,
        }
    }
}

/// The generators. Their defaults are those of the library.
#[derive(Debug, Subcommand)]
pub(in crate::cli) enum GenerateCommand {
    /// Chat sessions whose turns share their history
    Conversation {
        /// Rows to write
        #[arg(long, default_value_t = Conversation::default().rows)]
        rows: u32,
        /// Seed of all draws
        #[arg(long, default_value_t = Conversation::default().seed)]
        seed: u64,
        /// Requests per second in the long run
        #[arg(long, default_value_t = Conversation::default().requests_per_second, allow_negative_numbers = true)]
        requests_per_second: f64,
    },
    /// Tool calls of agents behind large shared preambles, beside chat
    ToolAgent {
        /// Rows to write
        #[arg(long, default_value_t = ToolAgent::default().rows)]
        rows: u32,
        /// Seed of all draws
        #[arg(long, default_value_t = ToolAgent::default().seed)]
        seed: u64,
        /// Requests per second in the long run
        #[arg(long, default_value_t = ToolAgent::default().requests_per_second, allow_negative_numbers = true)]
        requests_per_second: f64,
    },
    /// A rate that swings, with requests of one size that share nothing
    Sine {
        /// Length of the trace in seconds
        #[arg(long, default_value_t = Sine::default().duration_s)]
        duration_s: u32,
        /// Seconds from one peak to the next
        #[arg(long, default_value_t = Sine::default().period_s, allow_negative_numbers = true)]
        period_s: f64,
        /// Mean rate in requests per second
        #[arg(long, default_value_t = Sine::default().base_rps, allow_negative_numbers = true)]
        base_rps: f64,
        /// Swing of the rate to either side, in requests per second
        #[arg(long, default_value_t = Sine::default().amplitude_rps, allow_negative_numbers = true)]
        amplitude_rps: f64,
        /// Prompt tokens of each request
        #[arg(long, default_value_t = Sine::default().isl)]
        isl: u32,
        /// Output tokens of each request
        #[arg(long, default_value_t = Sine::default().osl)]
        osl: u32,
    },
}
