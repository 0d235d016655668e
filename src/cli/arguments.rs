//! The arguments of the command line.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::config::Override;

/// Finds the deployment of a language model that serves a given traffic best.
///
/// Spica proposes deployments, replays the traffic on a simulated fleet for each, and ranks them. The same input gives
/// the same answer on any machine and with any number of threads.
///
/// Exit status: 0 success, 1 a search found nothing feasible, 2 bad input, 3 the run itself failed, 130 interrupted.
#[derive(Debug, Parser)]
#[command(name = "spica", version, max_term_width = 100)]
pub(super) struct Arguments {
    #[command(flatten)]
    pub(super) output: OutputArguments,
    #[command(subcommand)]
    pub(super) command: Command,
}

/// How results and messages are shown.
#[derive(Clone, Copy, Debug, Args)]
pub(super) struct OutputArguments {
    /// Form of the results on standard output
    #[arg(long, global = true, value_enum, default_value_t = Format::Text)]
    pub(super) format: Format,
    /// Print no progress, notes or warnings; errors are still printed
    #[arg(long, short, global = true)]
    pub(super) quiet: bool,
}

/// Form of the results on standard output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Format {
    /// For people
    Text,
    /// For programs: what the result file of the command holds
    Json,
}

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Search for the best deployment and print the ranking
    Search(SearchArguments),
    /// Replay one deployment and print its figures
    Replay(ReplayArguments),
    /// Validate a file and print its resolved configuration, with every default
    Check(CheckArguments),
    /// Look into traces, or make them
    #[command(subcommand)]
    Trace(TraceCommand),
}

#[derive(Debug, Args)]
pub(super) struct SearchArguments {
    /// Search configuration (YAML with a `search_space:` key)
    pub(super) config: PathBuf,
    /// Write candidates.json, trials.jsonl and best.yaml to this folder
    #[arg(long, value_name = "DIR")]
    pub(super) output_dir: Option<PathBuf>,
    /// Replays that run at the same time; never changes the answer [default: one per core, at most
    /// sweep.parallel_evals]
    #[arg(long, value_name = "N")]
    pub(super) threads: Option<NonZeroUsize>,
    /// Go on where an interrupted search stopped
    #[arg(long, hide = true)]
    pub(super) resume: bool,
    #[command(flatten)]
    pub(super) overrides: Overrides,
}

#[derive(Debug, Args)]
pub(super) struct ReplayArguments {
    /// Scenario (YAML)
    pub(super) scenario: PathBuf,
    /// Write report.json and requests.jsonl to this folder
    #[arg(long, value_name = "DIR")]
    pub(super) output_dir: Option<PathBuf>,
    #[command(flatten)]
    pub(super) overrides: Overrides,
}

#[derive(Debug, Args)]
pub(super) struct CheckArguments {
    /// Search configuration or scenario (YAML)
    pub(super) file: PathBuf,
    #[command(flatten)]
    pub(super) overrides: Overrides,
}

/// Values that take the place of those in the file.
#[derive(Debug, Args)]
pub(super) struct Overrides {
    /// Set a key of the file to a YAML value, as in `--set sweep.max_rounds=3`; may be repeated
    #[arg(long = "set", value_name = "KEY.PATH=VALUE")]
    pub(super) set: Vec<Override>,
}

#[derive(Debug, Subcommand)]
pub(super) enum TraceCommand {}
