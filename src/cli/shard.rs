//! `spica search shard` and `spica search merge`: a search in parts.

use std::collections::BTreeSet;
use std::io::Write;
use std::iter;
use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::arguments::{MergeArguments, ShardArguments};
use super::console::Console;
use super::failure::{Failure, Status};
use super::input::load_document;
use super::journal::{Changes, Past, unfinished, write_configuration};
use super::names::{CANDIDATES, CONFIG, Kind, NEXT_TRIALS, SHARD, TRIALS};
use super::output::OutputFolder;
use super::overwrite;
use super::prepare;
use super::results::{changes, listed};
use super::search;
use crate::config::Places;
use crate::config::scenario::Scenario;
use crate::config::search::SmartSearchConfig;
use crate::registry::Registry;
use crate::report::files::write_json;
use crate::search::{Bar, Evaluation, Evaluator, Forecasts, Journal, NearestMiss, Plan, Shard, WholeReplay};

const SCHEMA_VERSION: u32 = 1;
/// Parts that are missing and named.
const MISSING_NAMED: usize = 20;

/// What `shard.json` holds.
#[derive(Serialize, Deserialize)]
struct ShardFile {
    schema_version: u32,
    /// Which part, from 0.
    index: u32,
    /// Of how many.
    of: u32,
    /// Hash of the requests that were replayed.
    requests: u64,
    /// With what planners forecast them.
    #[serde(default)]
    load_predictors: Forecasts,
    /// Where nothing of the part is feasible, what came nearest, and what was passed over for it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    nearest: Vec<NearestOfPart>,
}

/// A candidate of a part that came near to the goal's bar, replayed to its end.
#[derive(Serialize, Deserialize)]
struct NearestOfPart {
    /// The key of its trial's evaluation.
    evaluation: String,
    /// What the replay showed.
    #[serde(flatten)]
    whole: WholeReplay,
}

pub(super) fn run_part(
    arguments: &ShardArguments,
    console: Console,
    registry: Arc<Registry>,
) -> Result<Status, Failure> {
    let shard = Shard { index: arguments.index, of: arguments.of };
    if shard.index >= shard.of {
        let last = shard.of - 1;
        return Err(Failure::input(format!(
            "--index {} of --of {}: it is 0 to {last}",
            shard.index, shard.of
        )));
    }
    let file = &arguments.config;
    let loaded = load_document(file, &arguments.overrides.set, console)?;
    let inputs = overwrite::inputs(file, &loaded.document);
    let outputs = overwrite::outputs(Some(&arguments.output_dir), Kind::Part);
    let ready = search::ready(file, loaded, arguments.timing, &registry, console);
    let config = ready.as_ref().ok().map(|ready| &ready.plan.config);
    // What is in a folder that is not this part's is not this part's to go on with.
    let no_place = OutputFolder::look_at(&arguments.output_dir, Kind::Part)
        .err()
        .or_else(|| another_part(&arguments.output_dir, shard, config?))
        .or_else(|| unfinished(&arguments.output_dir, Kind::Part).filter(|_| !arguments.resume));
    Failure::first_or_all([
        ready.as_ref().err().cloned(),
        no_place,
        overwrite::refuse(&inputs, &outputs).err(),
    ])?;
    let ready = ready?;
    let parts = ready
        .plan
        .trials_of(shard)
        .map_err(|refusal| Failure::input(format!("{}: {refusal}", file.display())))?;
    let trials: u64 = parts.iter().map(|part| part.end - part.start).sum();
    let threads = arguments.threads.unwrap_or_else(|| search::default_threads(&ready.plan));
    search::announce(file, &ready, threads, console);
    let folder = OutputFolder::open(&arguments.output_dir, Kind::Part)?;
    let past = search::past(Some(&folder), arguments.resume, &ready.plan.config, console)?;
    let interrupt = search::interrupt_on_signal()?;
    let (plan, evaluator) = search::evaluator(ready, registry, &interrupt)?;
    let mut about = ShardFile {
        schema_version: SCHEMA_VERSION,
        index: shard.index,
        of: shard.of,
        requests: evaluator.fingerprint(),
        load_predictors: Forecasts::clone(&plan.forecasts),
        nearest: Vec::new(),
    };
    let mut options = search::options(threads, interrupt, past, console);
    options.shard = Some(shard);
    let result = search::search(&plan, &evaluator, options, &[&arguments.output_dir])?;
    if result.was_interrupted() {
        let done = result.tally.total();
        console.note(format!("interrupted after {done} of {trials} trials: --resume goes on"));
        return Ok(Status::Interrupted);
    }
    let near = result.nearest.iter().flat_map(|nearest| iter::once(nearest).chain(&nearest.passed_over));
    let kept =
        |miss: &NearestMiss| NearestOfPart { evaluation: miss.evaluation.clone(), whole: miss.whole() };
    about.nearest = near.map(kept).collect();
    let mut files = folder.replacement();
    write_configuration(&plan.config, &mut files)?;
    files.write(SHARD, |out| write_json(&about, out))?;
    files.take_over(NEXT_TRIALS, TRIALS);
    files.put()?;
    let (index, of) = (shard.index, shard.of);
    Console::print(&format!("part {index} of {of}: {trials} trials, {} feasible\n", result.tally.feasible))?;
    Ok(Status::Success)
}

/// Why a part must not take the place of what a folder holds: that is another part of the same search.
fn another_part(folder: &Path, shard: Shard, config: &SmartSearchConfig) -> Option<Failure> {
    let about: ShardFile = serde_json::from_slice(&std::fs::read(folder.join(SHARD)).ok()?).ok()?;
    let is_same =
        || Changes::since(&folder.join(CONFIG), config).is_some_and(|changes| changes.are_harmless());
    let is_another = (about.index, about.of) != (shard.index, shard.of) && is_same();
    is_another.then(|| {
        Failure::input(format!(
            "--output-dir {}: holds part {} of {} of this search ({SHARD}); give part {} of {} a folder of its own",
            folder.display(),
            about.index,
            about.of,
            shard.index,
            shard.of
        ))
    })
}

/// Answers for trials that are all in a journal.
struct Recorded {
    requests: u64,
    /// What came nearest in each part of which nothing is feasible, and what was passed over for it.
    nearest: Vec<NearestOfPart>,
}

impl Evaluator for Recorded {
    fn replay_whole(
        &self,
        evaluation: &str,
        _scenario: &Scenario,
        _share: f64,
    ) -> Result<Option<WholeReplay>, String> {
        let known = self.nearest.iter().find(|nearest| nearest.evaluation == evaluation);
        known.map(|nearest| Some(nearest.whole.clone())).ok_or_else(|| "it is in none of the parts".into())
    }

    fn evaluate(&self, _scenario: &Scenario, _bar: &Bar) -> Evaluation {
        Evaluation::Failed("replay failed: it is in none of the parts".into())
    }

    fn fingerprint(&self) -> u64 {
        self.requests
    }
}

pub(super) fn merge(
    arguments: &MergeArguments,
    console: Console,
    registry: &Registry,
) -> Result<Status, Failure> {
    if let Some(output) = &arguments.output_dir {
        // None of the parts, whose trials it would replace, is a folder for a search.
        OutputFolder::look_at(output, Kind::Search)?;
        unfinished(output, Kind::Search).map_or(Ok(()), Err)?;
    }
    let mut parts = Vec::new();
    for path in &arguments.parts {
        parts.push((read_part(path)?, path.as_path()));
    }
    parts.sort_by_key(|((about, _), _)| about.index);
    check_complete(&parts)?;
    let first = &parts[0].0.0;
    let (config, places) = configuration(&parts, console)?;
    let plan = prepare::plan_of_made_trials(config, &places, registry)?;
    let plan = plan.forecasting(first.load_predictors.clone());
    check_finished(&plan, &parts)?;
    let requests = first.requests;
    let nearest = parts.iter_mut().flat_map(|((about, _), _)| std::mem::take(&mut about.nearest)).collect();
    let evaluator: Arc<dyn Evaluator> = Arc::new(Recorded { requests, nearest });
    let trials = parts.iter().flat_map(|((_, journal), _)| journal.trials.iter().cloned()).collect();
    let output = arguments.output_dir.as_deref();
    let output = output.map(|path| OutputFolder::open(path, Kind::Search)).transpose()?;
    let mut files = output.as_ref().map(OutputFolder::replacement);
    let journal = match &mut files {
        Some(files) => Some(Box::new(files.open(TRIALS)?) as Box<dyn Write + Send>),
        None => None,
    };
    let interrupt = search::interrupt_on_signal()?;
    let mut options = search::options(NonZeroUsize::MIN, interrupt, Past { journal, trials }, console);
    options.journalled = 0;
    options.shard = Some(Shard::WHOLE);
    let folders: Vec<&Path> = parts.iter().map(|(_, folder)| *folder).collect();
    let place = arguments.output_dir.as_deref().unwrap_or(folders[0]);
    let result = search::search(&plan, &evaluator, options, &folders)?.with_paths_from(place);
    if let Some(files) = files.filter(|_| !result.was_interrupted()) {
        search::write_files(&result, &plan.config, files, console)?;
    }
    search::print(&result, console)
}

type Part<'a> = ((ShardFile, Journal), &'a Path);

fn read_part(path: &Path) -> Result<(ShardFile, Journal), Failure> {
    let refuse = |name: &str, problem: &dyn std::fmt::Display| {
        Failure::input(format!("{}: {problem}", path.join(name).display()))
    };
    let read = |name: &str| {
        std::fs::read(path.join(name)).map_err(|error| refuse(name, &format!("cannot be read: {error}")))
    };
    if !path.join(SHARD).exists() {
        return Err(no_part(path));
    }
    let about: ShardFile = serde_json::from_slice(&read(SHARD)?)
        .map_err(|error| refuse(SHARD, &format!("does not describe a part of a search: {error}")))?;
    if about.schema_version != SCHEMA_VERSION {
        let version = about.schema_version;
        return Err(refuse(SHARD, &format!("schema_version {version} is not {SCHEMA_VERSION}")));
    }
    if about.index >= about.of {
        let (index, of) = (about.index, about.of);
        return Err(refuse(SHARD, &format!("index {index} is none of {of} parts, which count from 0")));
    }
    let journal = Journal::read(&read(TRIALS)?).map_err(|error| refuse(TRIALS, &error))?;
    Ok((about, journal))
}

/// Why a folder without `shard.json` cannot be merged.
fn no_part(path: &Path) -> Failure {
    let problem = if !path.is_dir() {
        "there is no such folder"
    } else if path.join(CANDIDATES).exists() {
        "holds a whole search (candidates.json), not a part of one"
    } else if path.join(TRIALS).exists() {
        "holds trials but no shard.json: the part has not come to its end; run it again with --resume"
    } else {
        "holds no part of a search (shard.json): give folders that `spica search shard` has written"
    };
    Failure::input(format!("{}: {problem}", path.display()))
}

/// Every part has to be there once, of the same search.
fn check_complete(parts: &[Part<'_>]) -> Result<(), Failure> {
    let ((first, _), first_folder) = &parts[0];
    for ((about, _), folder) in parts {
        if (about.of, about.requests) != (first.of, first.requests) {
            let (one, other) = (first_folder.display(), folder.display());
            let problem = "are parts of different searches: their number of parts or their requests differ";
            return Err(Failure::input(format!("{one} and {other} {problem}")));
        }
    }
    let there: BTreeSet<u32> = parts.iter().map(|((about, _), _)| about.index).collect();
    let missing = u64::from(first.of) - there.len() as u64;
    if missing > 0 {
        let named = (0..first.of).filter(|index| !there.contains(index)).take(MISSING_NAMED);
        let named: Vec<String> = named.map(|index| index.to_string()).collect();
        let more = match missing - named.len() as u64 {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        return Err(Failure::input(format!("part {}{more} of {} is missing", named.join(", "), first.of)));
    }
    match parts.windows(2).find(|pair| pair[0].0.0.index == pair[1].0.0.index) {
        None => Ok(()),
        Some(pair) => {
            let (one, other) = (pair[0].1.display(), pair[1].1.display());
            Err(Failure::input(format!("{one} and {other} are the same part, {}", pair[0].0.0.index)))
        }
    }
}

/// The configuration that all parts have.
fn configuration(parts: &[Part<'_>], console: Console) -> Result<(SmartSearchConfig, Places), Failure> {
    let read = |folder: &Path| {
        let file = folder.join(CONFIG);
        let (config, places) = prepare::search_of(&file, load_document(&file, &[], console)?)?;
        // The part's way out of its folder, without the detour.
        Ok::<_, Failure>((config.with_paths_from(Path::new("")), places))
    };
    let (first, places) = read(parts[0].1)?;
    for (_, folder) in &parts[1..] {
        let changes = changes(&first.to_json(), &read(folder)?.0.to_json());
        if !changes.is_empty() {
            let (one, other) = (parts[0].1.display(), folder.display());
            return Err(Failure::input(format!(
                "{one} and {other} are parts of different searches: {}",
                listed(&changes)
            )));
        }
    }
    Ok((first, places))
}

/// Every part has to have run to its end.
fn check_finished(plan: &Plan, parts: &[Part<'_>]) -> Result<(), Failure> {
    for ((about, journal), folder) in parts {
        let shard = Shard { index: about.index, of: about.of };
        let stretches = plan.trials_of(shard).map_err(|refusal| Failure::input(refusal.to_string()))?;
        let wanted: u64 = stretches.iter().map(|part| part.end - part.start).sum();
        let found = journal.trials.len() as u64;
        if found != wanted {
            return Err(Failure::input(format!(
                "{}: part {} has {found} of its {wanted} trials; run it again with --resume",
                folder.display(),
                about.index
            )));
        }
    }
    Ok(())
}
