//! `spica search shard` and `spica search merge`: a search in parts.

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::arguments::{MergeArguments, ShardArguments};
use super::console::Console;
use super::failure::{Failure, Status};
use super::input::load_document;
use super::output::OutputFolder;
use super::prepare;
use super::search::{self, ALL, Past, TRIALS};
use crate::config::scenario::Scenario;
use crate::registry::Registry;
use crate::report::files::write_json;
use crate::search::{Bar, Evaluation, Evaluator, Forecasts, Journal, Plan, Shard};

/// The files of a part beside its journal.
const CONFIG: &str = "config.yaml";
const SHARD: &str = "shard.json";
const SCHEMA_VERSION: u32 = 1;

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
    let ready = search::ready(file, loaded, arguments.timing, &registry, console);
    let output_dir = OutputFolder::look_at(&arguments.output_dir);
    Failure::first_or_all([ready.as_ref().err().cloned(), output_dir.err()])?;
    let ready = ready?;
    let parts = ready
        .plan
        .trials_of(shard)
        .map_err(|refusal| Failure::input(format!("{}: {refusal}", file.display())))?;
    let trials: u64 = parts.iter().map(|part| part.end - part.start).sum();
    let threads = arguments.threads.unwrap_or_else(|| search::default_threads(&ready.plan));
    search::announce(file, &ready, threads, console);
    let interrupt = search::interrupt_on_signal()?;
    let (plan, evaluator) = search::evaluator(ready, registry, &interrupt)?;

    let stale =
        ALL.iter().copied().filter(|name| *name != TRIALS || !arguments.resume).chain([SHARD, CONFIG]);
    let folder = OutputFolder::prepare(&arguments.output_dir, &stale.collect::<Vec<_>>())?;
    let resolved = plan.config.with_paths_from(folder.path()).to_yaml();
    folder.write(CONFIG, |out| std::io::Write::write_all(out, resolved.as_bytes()))?;
    let about = ShardFile {
        schema_version: SCHEMA_VERSION,
        index: shard.index,
        of: shard.of,
        requests: evaluator.fingerprint(),
        load_predictors: Forecasts::clone(&plan.forecasts),
    };
    folder.write(SHARD, |out| write_json(&about, out))?;
    let past = if arguments.resume {
        search::reopen(&folder, console)?
    } else {
        Past { journal: Some(folder.journal(TRIALS)?), trials: Vec::new() }
    };
    let mut options = search::options(threads, interrupt, past, console);
    options.shard = Some(shard);
    let result = search::search(&plan, &evaluator, options, &[&arguments.output_dir])?;
    if result.was_interrupted() {
        return Ok(Status::Interrupted);
    }
    let (index, of) = (shard.index, shard.of);
    Console::print(&format!("part {index} of {of}: {trials} trials, {} feasible\n", result.tally.feasible))?;
    Ok(Status::Success)
}

/// Answers for trials that are all in a journal.
struct Recorded {
    requests: u64,
}

impl Evaluator for Recorded {
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
        look_at_output(output, &arguments.parts)?;
    }
    let mut parts = Vec::new();
    for path in &arguments.parts {
        parts.push((read_part(path)?, path.as_path()));
    }
    parts.sort_by_key(|((about, _), _)| about.index);
    check_complete(&parts)?;
    let (first, folder) = (&parts[0].0.0, parts[0].1);
    let file = folder.join(CONFIG);
    // The part's way out of its folder, without the detour.
    let (config, places) = prepare::search_of(&file, load_document(&file, &[], console)?)?;
    let plan = prepare::plan(config.with_paths_from(Path::new("")), &places, registry)?;
    let plan = plan.forecasting(first.load_predictors.clone());
    check_finished(&plan, &parts)?;
    let evaluator: Arc<dyn Evaluator> = Arc::new(Recorded { requests: first.requests });
    let output = arguments.output_dir.as_deref().map(|path| OutputFolder::prepare(path, &ALL)).transpose()?;
    let past = Past {
        journal: output.as_ref().map(|folder| folder.journal(TRIALS)).transpose()?,
        trials: parts.iter().flat_map(|((_, journal), _)| journal.trials.iter().cloned()).collect(),
    };
    let interrupt = search::interrupt_on_signal()?;
    let mut options = search::options(NonZeroUsize::MIN, interrupt, past, console);
    options.journalled = 0;
    options.shard = Some(Shard::WHOLE);
    let folders: Vec<&Path> = parts.iter().map(|(_, folder)| *folder).collect();
    let result = search::search(&plan, &evaluator, options, &folders)?;
    search::present(&result, output.as_ref(), console)
}

/// The folder of the whole search is none of its parts, whose journals it would replace.
fn look_at_output(output: &Path, parts: &[PathBuf]) -> Result<(), Failure> {
    OutputFolder::look_at(output)?;
    let real = |path: &Path| path.canonicalize().ok();
    let is_part = |part: &&PathBuf| real(output).is_some_and(|output| real(part) == Some(output));
    match parts.iter().find(is_part) {
        None => Ok(()),
        Some(part) => {
            let (output, part) = (output.display(), part.display());
            Err(Failure::input(format!(
                "--output-dir {output}: is the part {part}; give a folder of its own"
            )))
        }
    }
}

type Part<'a> = ((ShardFile, Journal), &'a Path);

fn read_part(path: &Path) -> Result<(ShardFile, Journal), Failure> {
    let refuse = |name: &str, problem: &dyn std::fmt::Display| {
        Failure::input(format!("{}: {problem}", path.join(name).display()))
    };
    let read = |name: &str| {
        std::fs::read(path.join(name)).map_err(|error| refuse(name, &format!("cannot be read: {error}")))
    };
    let about: ShardFile = serde_json::from_slice(&read(SHARD)?)
        .map_err(|error| refuse(SHARD, &format!("does not describe a part of a search: {error}")))?;
    if about.schema_version != SCHEMA_VERSION {
        let version = about.schema_version;
        return Err(refuse(SHARD, &format!("schema_version {version} is not {SCHEMA_VERSION}")));
    }
    let journal = Journal::read(&read(TRIALS)?).map_err(|error| refuse(TRIALS, &error))?;
    Ok((about, journal))
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
    let missing: Vec<String> = (0..first.of)
        .filter(|index| !parts.iter().any(|((about, _), _)| about.index == *index))
        .map(|index| index.to_string())
        .collect();
    if !missing.is_empty() {
        return Err(Failure::input(format!("part {} of {} is missing", missing.join(", "), first.of)));
    }
    match parts.windows(2).find(|pair| pair[0].0.0.index == pair[1].0.0.index) {
        None => Ok(()),
        Some(pair) => {
            let (one, other) = (pair[0].1.display(), pair[1].1.display());
            Err(Failure::input(format!("{one} and {other} are the same part, {}", pair[0].0.0.index)))
        }
    }
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
