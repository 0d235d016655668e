//! `spica search`: the main job.

use std::io::Write;
use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::arguments::{Format, SearchArguments, SearchCommand, StrictTiming};
use super::console::{Console, complain};
use super::failure::{Failure, Status};
use super::input::load_document;
use super::output::OutputFolder;
use super::pareto_csv;
use super::prepare;
use super::progress::ProgressOnTerminal;
use super::ranking_table::search_table;
use super::shard;
use crate::config::{Loaded, Places};
use crate::registry::Registry;
use crate::report::files::write_json;
use crate::run;
use crate::search::{
    self, Evaluator, Journal, Options, PastTrial, Plan, Requests, SearchError, SearchResult, Watcher,
};

/// The files that a search writes.
const CANDIDATES: &str = "candidates.json";
pub(super) const TRIALS: &str = "trials.jsonl";
const BEST: &str = "best.yaml";
const PARETO: &str = "pareto.csv";
/// Scenarios of trials that failed, one for each of the first reasons.
const FAILED: [&str; 3] = ["failed-1.yaml", "failed-2.yaml", "failed-3.yaml"];
pub(super) const ALL: [&str; 7] = [CANDIDATES, BEST, PARETO, TRIALS, FAILED[0], FAILED[1], FAILED[2]];

pub(super) fn run(
    arguments: &SearchArguments,
    console: Console,
    registry: Arc<Registry>,
) -> Result<Status, Failure> {
    match &arguments.command {
        Some(SearchCommand::Shard(arguments)) => return shard::run_part(arguments, console, registry),
        Some(SearchCommand::Merge(arguments)) => return shard::merge(arguments, console, &registry),
        None => {}
    }
    let file = arguments.config.as_deref().expect("the parser asks for it");
    let loaded = load_document(file, &arguments.overrides.set, console)?;
    let ready = ready(file, loaded, arguments.timing, &registry, console);
    let output_dir = arguments.output_dir.as_deref();
    Failure::first_or_all([
        ready.as_ref().err().cloned(),
        output_dir.and_then(|path| OutputFolder::look_at(path).err()),
        output_dir.filter(|_| !arguments.resume).and_then(unfinished),
    ])?;
    let ready = ready?;
    let threads = arguments.threads.unwrap_or_else(|| default_threads(&ready.plan));
    announce(file, &ready, threads, console);
    let interrupt = interrupt_on_signal()?;
    let (plan, evaluator) = evaluator(ready, registry, &interrupt)?;
    // The answer of a run that is resumed is replaced by the next one, not before.
    let stale: &[&str] = if arguments.resume { &[] } else { &ALL };
    let folder =
        arguments.output_dir.as_deref().map(|path| OutputFolder::prepare(path, stale)).transpose()?;
    let past = match &folder {
        Some(folder) if arguments.resume => reopen(folder, console)?,
        Some(folder) => Past { journal: Some(folder.journal(TRIALS)?), trials: Vec::new() },
        None => Past::default(),
    };
    let result =
        search(&plan, &evaluator, options(threads, interrupt, past, console), output_dir.as_slice())?;
    present(&result, folder.as_ref(), console)
}

/// Why a search must not begin anew in a folder: it holds the trials of one that never came to an answer.
fn unfinished(folder: &Path) -> Option<Failure> {
    let journal = folder.join(TRIALS);
    let has_trials = std::fs::metadata(&journal).is_ok_and(|file| file.len() > 0);
    (has_trials && !folder.join(CANDIDATES).exists()).then(|| {
        Failure::input(format!(
            "{}: trials of a search that did not finish; --resume goes on with them, and without this file a search begins anew",
            journal.display()
        ))
    })
}

/// Runs a search; `folders` hold the journals that it goes on from.
pub(super) fn search(
    plan: &Plan,
    evaluator: &Arc<dyn Evaluator>,
    options: Options,
    folders: &[&Path],
) -> Result<SearchResult, Failure> {
    search::run(plan, evaluator, options).map_err(|error| match error {
        SearchError::Diverged { .. } => {
            let folders: Vec<String> = folders.iter().map(|folder| folder.display().to_string()).collect();
            Failure::input(format!("{}: {error}", folders.join(", ")))
        }
        SearchError::Unsplittable(_) => Failure::input(error),
        error => Failure::run(error),
    })
}

/// How a search is run that goes on from `past`.
pub(super) fn options(
    threads: NonZeroUsize,
    interrupt: Arc<AtomicBool>,
    past: Past,
    console: Console,
) -> Options {
    Options {
        threads,
        interrupt,
        journal: past.journal,
        journalled: past.trials.len() as u32,
        past: past.trials,
        shard: None,
        watcher: console.shows_progress().then(|| Box::new(ProgressOnTerminal::new()) as Box<dyn Watcher>),
    }
}

/// Writes and prints an answer.
pub(super) fn present(
    result: &SearchResult,
    folder: Option<&OutputFolder>,
    console: Console,
) -> Result<Status, Failure> {
    if let Some(folder) = folder {
        write_files(result, folder)?;
        write_failures(result, folder, console)?;
    }
    match console.format() {
        Format::Text => Console::print(&search_table(result))?,
        Format::Json => Console::print_json(result)?,
    }
    Ok(conclude(result))
}

/// What an earlier run has left.
#[derive(Default)]
pub(super) struct Past {
    /// The journal to write on.
    pub(super) journal: Option<Box<dyn Write + Send>>,
    /// What it holds.
    pub(super) trials: Vec<PastTrial>,
}

/// Opens the journal of an earlier run to go on with it.
pub(super) fn reopen(folder: &OutputFolder, console: Console) -> Result<Past, Failure> {
    let journal = Journal::read(&folder.read_journal(TRIALS)?).map_err(|error| {
        Failure::input(format!("--resume: {}: {error}", folder.path().join(TRIALS).display()))
    })?;
    console.note(format!("resuming after {} trials", journal.trials.len()));
    if journal.is_torn {
        console.note(format!("{TRIALS}: the last line was cut off and has been removed"));
    }
    Ok(Past { journal: Some(folder.append_to_journal(TRIALS, journal.length)?), trials: journal.trials })
}

/// A search with all that it needs.
pub(super) struct ReadySearch {
    pub(super) plan: Plan,
    requests: Requests,
    places: Places,
}

/// Plans a search and loads its requests, or lists everything that stands in its way.
pub(super) fn ready(
    file: &Path,
    loaded: Loaded,
    timing: StrictTiming,
    registry: &Registry,
    console: Console,
) -> Result<ReadySearch, Failure> {
    let (config, places) = prepare::search_of(file, loaded)?;
    let plan = prepare::plan(config, &places, registry)?;
    prepare::refuse_doubts(file, &plan, timing)?;
    let requests = prepare::requests(&plan, &places, console)?;
    Ok(ReadySearch { plan, requests, places })
}

/// Says what is about to be run, so that a saved log tells how to run it again.
pub(super) fn announce(file: &Path, ready: &ReadySearch, threads: NonZeroUsize, console: Console) {
    let ReadySearch { plan, places, .. } = ready;
    let sweep = &plan.config.sweep;
    let points: u64 = plan.branches.iter().map(|branch| branch.space.size()).sum();
    console.note(format!(
        "spica {}: {}, {points} points, seed {}, {threads} threads",
        env!("CARGO_PKG_VERSION"),
        file.display(),
        sweep.random_seed,
    ));
    notice(plan, places, console);
}

/// Passes on what the author of a search should know before it runs.
pub(super) fn notice(plan: &Plan, places: &Places, console: Console) {
    for notice in &plan.notices {
        console.note(places.remark("note", notice));
    }
}

/// Chooses what planners forecast the requests with, and makes what scores candidates.
pub(super) fn evaluator(
    ready: ReadySearch,
    registry: Arc<Registry>,
    interrupt: &Arc<AtomicBool>,
) -> Result<(Plan, Arc<dyn Evaluator>), Failure> {
    let ReadySearch { plan, requests, places } = ready;
    let plan = plan
        .with_forecasts(&requests, &registry)
        .map_err(|refusal| Failure::input(places.explain([refusal.to_string()])))?;
    let evaluator = run::evaluator(&plan, requests, registry, interrupt).map_err(Failure::run)?;
    Ok((plan, evaluator))
}

/// A flag that the first interrupt or termination signal raises.
pub(super) fn interrupt_on_signal() -> Result<Arc<AtomicBool>, Failure> {
    let interrupt = Arc::new(AtomicBool::new(false));
    let raised = Arc::clone(&interrupt);
    ctrlc::set_handler(move || raised.store(true, Ordering::Relaxed))
        .map_err(|error| Failure::run(format!("cannot listen for signals: {error}")))?;
    Ok(interrupt)
}

/// One thread per core, but no more replays at a time than the configuration allows.
pub(super) fn default_threads(plan: &Plan) -> NonZeroUsize {
    let cores = std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
    NonZeroUsize::new(plan.config.sweep.parallel_evals as usize).map_or(cores, |most| most.min(cores))
}

fn write_files(result: &SearchResult, folder: &OutputFolder) -> Result<(), Failure> {
    folder.write(CANDIDATES, |out| write_json(result, out))?;
    if result.goal.is_pareto() {
        folder.write(PARETO, |out| pareto_csv::write(result, out))?;
    } else {
        folder.remove(PARETO)?;
    }
    if let Some(best) = result.best() {
        let yaml = best.scenario.with_paths_from(folder.path()).to_yaml();
        folder.write(BEST, |out| out.write_all(yaml.as_bytes()))
    } else {
        folder.remove(BEST)
    }
}

/// Leaves behind what replays trials that failed, and says how.
fn write_failures(result: &SearchResult, folder: &OutputFolder, console: Console) -> Result<(), Failure> {
    let mut failures = result.failures();
    for name in FAILED {
        let Some((reason, scenario)) = failures.next() else {
            folder.remove(name)?;
            continue;
        };
        let yaml = scenario.with_paths_from(folder.path()).to_yaml();
        folder.write(name, |out| out.write_all(yaml.as_bytes()))?;
        console
            .note(format!("{reason}: `spica replay {}` does it again", folder.path().join(name).display()));
    }
    Ok(())
}

fn conclude(result: &SearchResult) -> Status {
    if result.was_interrupted() {
        return Status::Interrupted;
    }
    if result.candidates.is_empty() {
        complain("no feasible candidate");
        return Status::NothingFeasible;
    }
    Status::Success
}
