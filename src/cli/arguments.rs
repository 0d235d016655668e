//! The arguments of the command line.

mod trace;

use std::num::NonZeroUsize;
use std::path::PathBuf;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, Parser, Subcommand, ValueEnum};

pub(super) use self::trace::*;
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

fn threads(text: &str) -> Result<NonZeroUsize, String> {
    text.parse().map_err(|_| "a whole number from 1 is wanted".to_owned())
}

fn tick(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| "a whole number from 0 is wanted".to_owned())
}

fn rank(text: &str) -> Result<usize, String> {
    text.parse().map_err(|_| "a whole number from 1 is wanted".to_owned())
}

/// How results and messages are shown.
#[derive(Clone, Copy, Debug, Args)]
pub(super) struct OutputArguments {
    /// Form of the results on standard output [default: text]
    #[arg(long, global = true, value_enum)]
    pub(super) format: Option<FormatChoice>,
    /// Print no progress, notes or warnings; errors are still printed
    #[arg(long, short, global = true)]
    pub(super) quiet: bool,
}

/// Form of the results on standard output. The hidden ones are those of `report`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum FormatChoice {
    /// For people
    Text,
    /// For programs: what the result file of the command holds
    Json,
    /// A page for a browser
    #[value(hide = true)]
    Html,
    /// A single figure
    #[value(hide = true)]
    Svg,
    /// The numbers of a single figure
    #[value(hide = true)]
    Csv,
}

/// Form of the results of all commands but `report`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    /// For people.
    Text,
    /// For programs.
    Json,
}

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Search for the best deployment and print the ranking
    Search(SearchArguments),
    /// Replay one deployment and print its figures
    Replay(ReplayArguments),
    /// Validate a file and print its resolved configuration, with every default
    ///
    /// Relative paths in what is printed start from the folder of FILE: it belongs beside FILE, and finds nothing, or something
    /// else, from another folder.
    Check(CheckArguments),
    /// Look into traces, or make them
    #[command(subcommand)]
    Trace(TraceCommand),
    /// Look into the timing profiles that come with the program, or price passes with them
    #[command(subcommand)]
    Profiles(ProfilesCommand),
    /// Make a page for a browser of what a replay or a search has written
    Report(ReportArguments),
    /// Say why: a request's way and time, a planner's tick, a candidate's place in the ranking
    #[command(subcommand)]
    Explain(ExplainCommand),
    /// Say where two replays or two searches part, and how their figures differ
    Diff(DiffArguments),
    /// Turn a candidate into command lines and manifests that start it
    Deploy(DeployArguments),
    /// Write a completion script for a shell to standard output
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Write the manual pages of all commands to a folder
    Man {
        /// The folder
        folder: PathBuf,
    },
}

#[derive(Debug, Subcommand)]
pub(super) enum ExplainCommand {
    /// Replay a scenario once more and tell where a request went, why, and where its time went
    Request {
        /// Scenario (YAML)
        scenario: PathBuf,
        /// Name of the request, as in requests.jsonl
        request: String,
        #[command(flatten)]
        overrides: Overrides,
    },
    /// Show what a planner saw and did at one tick of a replay
    Tick {
        /// Output folder of the replay
        folder: PathBuf,
        /// Number of the tick, from 0
        #[arg(value_parser = tick)]
        tick: u64,
    },
    /// Show which bounds a candidate is near, and what sets it apart from the next
    Candidate {
        /// Output folder of the search
        folder: PathBuf,
        /// Its place in the ranking, or along the frontier
        #[arg(long, default_value_t = 1, value_parser = rank)]
        rank: usize,
    },
}

#[derive(Debug, Args)]
pub(super) struct DiffArguments {
    /// Output folder of the one run
    pub(super) a: PathBuf,
    /// Output folder of the other
    pub(super) b: PathBuf,
}

#[derive(Debug, Args)]
pub(super) struct DeployArguments {
    /// Output folder of a search, or of a replay
    #[arg(value_name = "DIR")]
    pub(super) folder: PathBuf,
    /// Which candidate [default: the best; of a frontier, which has none, it has to be said]
    #[arg(long, value_parser = rank)]
    pub(super) rank: Option<usize>,
    /// What to write to standard output
    #[arg(long, value_enum, default_value_t = DeployForm::Commands)]
    pub(super) to: DeployForm,
    /// The model, if the scenario does not say
    #[arg(long, value_name = "NAME")]
    pub(super) model: Option<String>,
    /// Container image of manifests [default: the latest public one of the engine]
    #[arg(long, value_name = "IMAGE")]
    pub(super) image: Option<String>,
    /// Write commands.sh, dynamo.yaml and kubernetes.yaml to this folder, which must hold no results
    #[arg(long, value_name = "DIR")]
    pub(super) output_dir: Option<PathBuf>,
}

/// What starts a deployment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum DeployForm {
    /// Command lines of the engines
    Commands,
    /// A Dynamo graph deployment with its router
    Dynamo,
    /// Deployments and services for plain Kubernetes
    Kubernetes,
}

/// Takes every form, and shows those that a report has.
fn report_form() -> impl TypedValueParser<Value = FormatChoice> {
    let forms = FormatChoice::value_variants().iter().filter_map(|form| {
        let shown = form.to_possible_value()?;
        Some(shown.hide(*form == FormatChoice::Text))
    });
    PossibleValuesParser::new(forms)
        .map(|name| FormatChoice::from_str(&name, false).expect("is the name of a form"))
}

#[derive(Debug, Args)]
pub(super) struct ReportArguments {
    /// Output folder of a replay or a search
    #[arg(value_name = "DIR")]
    pub(super) folder: PathBuf,
    /// Write to this file instead of standard output
    #[arg(long, short, value_name = "FILE")]
    pub(super) output: Option<PathBuf>,
    /// Form of the report [default: html]
    #[arg(long, value_parser = report_form())]
    pub(super) format: Option<FormatChoice>,
    /// The figure that `--format svg` or `--format csv` writes
    #[arg(long, value_name = "NAME")]
    pub(super) figure: Option<String>,
}

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(super) struct SearchArguments {
    #[command(subcommand)]
    pub(super) command: Option<SearchCommand>,
    /// Search configuration (YAML with a `search_space:` key)
    #[arg(required = true)]
    pub(super) config: Option<PathBuf>,
    /// Write candidates.json, trials.jsonl, config.yaml and best.yaml (pareto.csv for a frontier) to this folder
    #[arg(long, value_name = "DIR")]
    pub(super) output_dir: Option<PathBuf>,
    /// Replays that run at the same time; never changes the answer [default: one per core, at most
    /// `sweep.parallel_evals`]
    #[arg(long, value_name = "N", value_parser = threads)]
    pub(super) threads: Option<NonZeroUsize>,
    /// Go on where a search into the same folder stopped, however it ended: its trials are taken from trials.jsonl. One that has
    /// come to its end goes on with a greater `sweep.max_rounds`
    #[arg(long, requires = "output_dir")]
    pub(super) resume: bool,
    #[command(flatten)]
    pub(super) timing: StrictTiming,
    #[command(flatten)]
    pub(super) overrides: Overrides,
}

/// A search in parts, for many machines.
#[derive(Debug, Subcommand)]
pub(super) enum SearchCommand {
    /// Run one part of a search and write what `merge` needs to a folder
    ///
    /// Parts are equal stretches of the trials of an exhaustive search, or of one whose sampler does not learn.
    Shard(ShardArguments),
    /// Bring all parts of a search together and print the answer of the whole
    Merge(MergeArguments),
}

#[derive(Debug, Args)]
pub(super) struct ShardArguments {
    /// Search configuration (YAML with a `search_space:` key)
    pub(super) config: PathBuf,
    /// Which part, from 0
    #[arg(long, value_name = "I")]
    pub(super) index: u32,
    /// Of how many
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) of: u32,
    /// Write trials.jsonl, shard.json and config.yaml to this folder
    #[arg(long, value_name = "DIR")]
    pub(super) output_dir: PathBuf,
    /// Replays that run at the same time; never changes the answer [default: one per core, at most
    /// `sweep.parallel_evals`]
    #[arg(long, value_name = "N", value_parser = threads)]
    pub(super) threads: Option<NonZeroUsize>,
    /// Go on where a run of this part into the same folder stopped
    #[arg(long)]
    pub(super) resume: bool,
    #[command(flatten)]
    pub(super) timing: StrictTiming,
    #[command(flatten)]
    pub(super) overrides: Overrides,
}

#[derive(Debug, Args)]
pub(super) struct MergeArguments {
    /// The folders of all parts, in any order
    #[arg(required = true, value_name = "DIR")]
    pub(super) parts: Vec<PathBuf>,
    /// Write the files of the whole search to this folder
    #[arg(long, value_name = "DIR")]
    pub(super) output_dir: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(super) struct ReplayArguments {
    /// Scenario (YAML)
    pub(super) scenario: PathBuf,
    /// Write report.json, requests.jsonl and series.json to this folder
    #[arg(long, value_name = "DIR")]
    pub(super) output_dir: Option<PathBuf>,
    /// Write a timeline for Perfetto or Chrome's trace viewer; gzip if the name ends in .gz
    #[arg(long, value_name = "FILE")]
    pub(super) timeline: Option<PathBuf>,
    /// Show one in so many requests on the timeline; passes are always complete
    #[arg(long, value_name = "N", default_value_t = 1, requires = "timeline", value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) timeline_sample: u32,
    #[command(flatten)]
    pub(super) timing: StrictTiming,
    #[command(flatten)]
    pub(super) overrides: Overrides,
}

#[derive(Debug, Args)]
pub(super) struct CheckArguments {
    /// Search configuration or scenario (YAML)
    pub(super) file: PathBuf,
    #[command(flatten)]
    pub(super) timing: StrictTiming,
    #[command(flatten)]
    pub(super) overrides: Overrides,
}

/// Which timings are good enough.
#[derive(Clone, Copy, Debug, Args)]
pub(super) struct StrictTiming {
    /// Refuse passes that are priced by a rough estimate, by a formula, or by a profile whose numbers are suspect
    #[arg(long)]
    pub(super) strict_timing: bool,
}

/// Values that take the place of those in the file.
#[derive(Debug, Args)]
pub(super) struct Overrides {
    /// Set a key of the file to a YAML value, as in `--set sweep.max_rounds=3`; may be repeated
    #[arg(long = "set", value_name = "KEY.PATH=VALUE")]
    pub(super) set: Vec<Override>,
}

#[derive(Debug, Subcommand)]
pub(super) enum ProfilesCommand {
    /// List the families of profiles, or the profiles that have all of some words in their description
    List {
        /// Parts of a profile's name, model, GPU, engine, number format or layout
        #[arg(value_name = "WORD")]
        words: Vec<String>,
    },
    /// Print what is known of a profile, with some of its prices
    Show {
        /// Its name
        id: String,
    },
    /// Fit a table to a file of measured passes, or read one of the reference, and print how well it meets them
    Check {
        /// The measurements (CSV or NPZ)
        file: PathBuf,
    },
    /// Price passes: rows of `deployment,phase,batch,new_or_context,prefix` come back with their times
    ///
    /// What is added: `latency_ms,source,extrapolated`. The phase is `prefill` (prompts, new tokens of each, tokens before them) or `decode` (requests, their mean length).
    Query {
        /// The rows (CSV), or - for standard input
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },
    /// Sample a table of passes from a database of AI Configurator, for `timing: {model: grid}`
    ///
    /// Only in programs that were built with the feature `aic`. The deployment is named by its model and layout, or was
    /// exported (`--spec`); the database is the folder `systems` of the package aiconfigurator-core.
    Sample(SampleArguments),
}

/// A deployment and a database that prices its passes.
#[derive(Debug, Args)]
pub(super) struct SampleArguments {
    /// The folder `systems` of the package
    #[arg(long, value_name = "DIR")]
    pub(super) systems: PathBuf,
    /// The deployment in its compiled form (JSON), as the package exports it
    #[arg(long, value_name = "FILE", conflicts_with_all = ["model", "hardware", "backend", "backend_version"])]
    pub(super) spec: Option<PathBuf>,
    /// Hugging Face name of a dense model or a mixture of experts with grouped-query attention
    #[arg(long, value_name = "NAME")]
    pub(super) model: Option<String>,
    /// Name of the GPU in the database, such as `h200_sxm`
    #[arg(long, value_name = "SKU")]
    pub(super) hardware: Option<String>,
    /// vllm, sglang or trtllm
    #[arg(long, value_name = "ENGINE")]
    pub(super) backend: Option<String>,
    /// Version of the engine in the database
    #[arg(long, value_name = "VERSION")]
    pub(super) backend_version: Option<String>,
    /// Number format of the weights [default: the checkpoint's own]
    #[arg(long, value_name = "FORMAT")]
    pub(super) quantization: Option<String>,
    /// Tensor parallelism of attention
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(super) tp: u32,
    /// Pipeline stages
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(super) pp: u32,
    /// Attention-data-parallel ranks
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(super) attention_dp: u32,
    /// Tensor parallelism of experts
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(super) moe_tp: u32,
    /// Expert parallelism
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(super) moe_ep: u32,
    /// Keep the table in this folder, under a name that follows from the deployment and the data
    #[arg(long, value_name = "DIR")]
    pub(super) cache: Option<PathBuf>,
}
