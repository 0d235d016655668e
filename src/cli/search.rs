//! `spica search`: the main job.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::arguments::{Format, SearchArguments, SearchCommand, StrictTiming};
use super::console::{Console, complain};
use super::failure::{Failure, Status};
use super::input::load_document;
use super::journal::{self, Changes, Past, unfinished, write_configuration};
use super::names::{BEST, CANDIDATES, FAILED, Kind, NEXT_TRIALS, PARETO, TRIALS};
use super::output::{OutputFolder, Replacement};
use super::overwrite;
use super::pareto_csv;
use super::prepare;
use super::progress::ProgressOnTerminal;
use super::ranking_table::search_table;
use super::shard;
use crate::config::scenario::Scenario;
use crate::config::search::SmartSearchConfig;
use crate::config::{Loaded, Places};
use crate::registry::Registry;
use crate::report::files::write_json;
use crate::run;
use crate::search::{
    self, Candidate, Evaluator, Options, Plan, Requests, SearchError, SearchResult, Watcher, metric,
};
use crate::serving;

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
    let output_dir = arguments.output_dir.as_deref();
    let inputs = overwrite::inputs(file, &loaded.document);
    let ready = ready(file, loaded, arguments.timing, &registry, console);
    let no_place = output_dir.and_then(|path| {
        let not_its_own = OutputFolder::look_at(path, Kind::Search).err();
        not_its_own.or_else(|| unfinished(path, Kind::Search).filter(|_| !arguments.resume))
    });
    Failure::first_or_all([
        ready.as_ref().err().cloned(),
        no_place,
        overwrite::refuse(&inputs, &overwrite::outputs(output_dir, Kind::Search)).err(),
    ])?;
    let ready = ready?;
    let threads = arguments.threads.unwrap_or_else(|| default_threads(&ready.plan));
    announce(file, &ready, threads, console);
    let folder = output_dir.map(|path| OutputFolder::open(path, Kind::Search)).transpose()?;
    let past = past(folder.as_ref(), arguments.resume, &ready.plan.config, console)?;
    let interrupt = interrupt_on_signal()?;
    let (plan, evaluator) = evaluator(ready, registry, &interrupt)?;
    let known = past.trials.len() as u64;
    let options = options(threads, interrupt, past, console);
    // What is only printed says where files are as the configuration does.
    let place = output_dir.or(file.parent()).unwrap_or(Path::new(""));
    let result = search(&plan, &evaluator, options, output_dir.as_slice())?.with_paths_from(place);
    if let Some(folder) = &folder {
        if result.was_interrupted() && folder.has_answer() && !goes_beyond(&result, folder, known) {
            keep_answer(folder, console);
        } else {
            write_files(&result, &plan.config, folder.replacement(), console)?;
        }
    }
    print(&result, console)
}

/// The trials to go on from.
pub(super) fn past(
    folder: Option<&OutputFolder>,
    resume: bool,
    config: &SmartSearchConfig,
    console: Console,
) -> Result<Past, Failure> {
    match folder {
        None => Ok(Past::default()),
        Some(folder) if resume => journal::resume(folder, config, console),
        Some(folder) => journal::begin(folder, config),
    }
}

/// Whether an interrupted search knows more than the answer in its folder, of which it is a continuation.
fn goes_beyond(result: &SearchResult, folder: &OutputFolder, known: u64) -> bool {
    !folder.file(NEXT_TRIALS).exists() && result.tally.total() > known
}

fn keep_answer(folder: &OutputFolder, console: Console) {
    let folder = folder.path().display();
    console.note(format!("interrupted: {folder} keeps the answer that it had; --resume goes on"));
}

/// Runs a search; `folders` hold the journals that it goes on from.
pub(super) fn search(
    plan: &Plan,
    evaluator: &Arc<dyn Evaluator>,
    options: Options,
    folders: &[&Path],
) -> Result<SearchResult, Failure> {
    let changes = || Changes::since_trials(folders.first()?, &plan.config);
    let refuse = |words: String| {
        let folders: Vec<String> = folders.iter().map(|folder| folder.display().to_string()).collect();
        Failure::input(format!("{}: {words}", folders.join(", ")))
    };
    search::run(plan, evaluator, options).map_err(|error| match error {
        SearchError::Diverged { trial, remark } => {
            let about_rounds = !remark.is_empty();
            // What is sure to have made another search of it comes before what may have.
            refuse(match changes() {
                Some(changes) if !changes.are_harmless() => {
                    let plain = SearchError::Diverged { trial, remark: "" };
                    format!("{plain}{}{remark}", changes.in_words(about_rounds))
                }
                changes => {
                    let changes = changes.map(|changes| changes.in_words(about_rounds)).unwrap_or_default();
                    format!("{}{changes}", SearchError::Diverged { trial, remark })
                }
            })
        }
        SearchError::Contradicted { .. } => {
            let changes = changes().map(|changes| changes.in_words(false)).unwrap_or_default();
            refuse(format!("{error}{changes}"))
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

/// Prints an answer.
pub(super) fn print(result: &SearchResult, console: Console) -> Result<Status, Failure> {
    if nobody_meets_the_bounds(result) {
        console.note("no request of any candidate met the bounds: every score is 0");
    }
    match console.format() {
        Format::Text => Console::print(&search_table(result))?,
        Format::Json => Console::print_json(result)?,
    }
    Ok(conclude(result))
}

/// Whether candidates count though none is worth anything, because no request met the bounds of the goal.
fn nobody_meets_the_bounds(result: &SearchResult) -> bool {
    let is_worthless = |one: &Candidate| one.score == 0.0 && metric(&one.metrics, "attainment") == Some(0.0);
    !result.candidates.is_empty() && result.candidates.iter().all(is_worthless)
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
    let ReadySearch { plan, places, requests } = ready;
    let sweep = &plan.config.sweep;
    let points: u64 = plan.branches.iter().map(|branch| branch.space.size()).sum();
    console.note(format!(
        "spica {}: {}, {points} points, seed {}, {threads} threads",
        env!("CARGO_PKG_VERSION"),
        file.display(),
        sweep.random_seed,
    ));
    notice(plan, places, console);
    if let Some(words) = too_long(plan, requests) {
        console.note(places.remark("warning", &format!("search_space.model_name: {words}")));
    }
}

/// How many requests the model cannot take, if all candidates have the same.
fn too_long(plan: &Plan, requests: &Requests) -> Option<String> {
    let Requests::Shared(prepared) = requests else { return None };
    let branch = plan.branches.first()?;
    let first = branch.unroll(&branch.space.point(0)).ok()?;
    serving::requests_too_long(&first.scenario, prepared.first()?.traffic.workload())
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

/// Writes an answer, whose paths start from the folder, in the place of an earlier one.
pub(super) fn write_files(
    result: &SearchResult,
    config: &SmartSearchConfig,
    mut files: Replacement<'_>,
    console: Console,
) -> Result<(), Failure> {
    files.write(CANDIDATES, |out| write_json(result, out))?;
    write_configuration(config, &mut files)?;
    if result.goal.is_pareto() {
        files.write(PARETO, |out| pareto_csv::write(result, out))?;
    } else {
        files.remove(PARETO);
    }
    match result.best() {
        Some(best) => files.write(BEST, yaml(&best.scenario))?,
        None => files.remove(BEST),
    }
    let mut notes = Vec::new();
    let mut failures = result.failures();
    for name in FAILED {
        let Some((reason, scenario)) = failures.next() else {
            files.remove(name);
            continue;
        };
        files.write(name, yaml(scenario))?;
        let file = files.folder().file(name);
        notes.push(format!("{reason}: `spica replay {}` does it again", file.display()));
    }
    files.take_over(NEXT_TRIALS, TRIALS);
    files.put()?;
    for note in &notes {
        console.note(note);
    }
    Ok(())
}

/// Writes a scenario.
fn yaml(scenario: &Scenario) -> impl FnOnce(&mut BufWriter<File>) -> io::Result<()> + use<> {
    let text = scenario.to_yaml();
    move |out| out.write_all(text.as_bytes())
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
