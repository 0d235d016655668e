//! Searches and replays as functions, for programs that use this crate as a library.
//!
//! ```no_run
//! use spica::run::{Cancel, Replay, Search};
//!
//! let cancel = Cancel::new();
//! let answer = Search::from_file("search.yaml", &["sweep.max_rounds=3".parse()?])?
//!     .on_round(|round| println!("round {}: {} trials", round.number, round.trials.len()))
//!     .cancelled_by(&cancel)
//!     .run()?;
//! if let Some(best) = answer.best() {
//!     let again = Replay::new(best.scenario.clone()).run()?;
//!     println!("{} tokens per second", again.summary.output_throughput_tok_s);
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod input;
mod rounds;

use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

pub(crate) use self::input::{document, load_requests, load_workload, open_file, read_document, read_whole};
pub use self::rounds::Round;
use self::rounds::RoundWatcher;
use crate::config::scenario::Scenario;
use crate::config::search::SmartSearchConfig;
use crate::config::{Document, Override};
use crate::model::Catalogue;
use crate::registry::Registry;
use crate::report::Summary;
use crate::report::record::RunRecord;
use crate::search::{
    self, Evaluator, Options, Plan, Refusal, ReplayEvaluator, Requests, SearchResult, Watcher,
};
use crate::serving::{self, ReplayError, ReplayLimits, Traffic};
use crate::workload::Warning;

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// The configuration or a file that it names is wrong; one line for each problem. Nothing was run.
    #[error("{0}")]
    Input(String),
    /// The run itself failed.
    #[error("{0}")]
    Failed(String),
    /// A replay was cancelled. A search that is cancelled has an answer: the best so far.
    #[error("cancelled")]
    Cancelled,
}

/// Ends searches and replays from another thread.
#[derive(Clone, Debug, Default)]
pub struct Cancel(Arc<AtomicBool>);

impl Cancel {
    /// A handle that has not cancelled anything.
    pub fn new() -> Self {
        Self::default()
    }

    /// Ends everything that was started with this handle or a clone of it, and whatever will be.
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A search to be run.
#[must_use]
pub struct Search {
    config: SmartSearchConfig,
    registry: Registry,
    threads: NonZeroUsize,
    cancel: Cancel,
    watcher: Option<Box<dyn Watcher>>,
}

impl Search {
    /// A search by this configuration, with the policies that come with the crate, on one thread per core.
    pub fn new(config: SmartSearchConfig) -> Self {
        let threads = std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
        Self { config, registry: Registry::builtin(), threads, cancel: Cancel::new(), watcher: None }
    }

    /// A search by the configuration in a YAML file, with `overrides` as `--set` takes them.
    ///
    /// # Errors
    /// Everything that is wrong with it.
    pub fn from_file(path: impl AsRef<Path>, overrides: &[Override]) -> Result<Self, RunError> {
        match read_document(path.as_ref(), overrides)?.document {
            Document::Search(config) => Ok(Self::new(config)),
            Document::Scenario(_) => Err(RunError::Input(format!(
                "{}: is a scenario, not a search configuration",
                path.as_ref().display()
            ))),
        }
    }

    /// Uses these policies.
    pub fn with_registry(self, registry: Registry) -> Self {
        Self { registry, ..self }
    }

    /// Runs so many replays at a time; the answer does not depend on it.
    pub fn with_threads(self, threads: NonZeroUsize) -> Self {
        Self { threads, ..self }
    }

    /// Can be ended by this handle.
    pub fn cancelled_by(self, cancel: &Cancel) -> Self {
        Self { cancel: cancel.clone(), ..self }
    }

    /// Calls back at the end of every round, from another thread.
    pub fn on_round(self, callback: impl FnMut(&Round) + Send + 'static) -> Self {
        Self { watcher: Some(Box::new(RoundWatcher::new(callback))), ..self }
    }

    /// Runs it.
    ///
    /// # Errors
    /// [`RunError::Input`] with everything that stands in its way, or [`RunError::Failed`].
    pub fn run(self) -> Result<SearchResult, RunError> {
        let catalogue =
            Catalogue::with(&self.config.facts).map_err(|error| RunError::Input(error.to_string()))?;
        let registry = Arc::new(self.registry);
        let plan = Plan::with_registry(self.config, &Arc::new(catalogue), &registry)
            .map_err(|refusals| refused(&refusals))?;
        let refusals = plan.refusals(&registry);
        if !refusals.is_empty() {
            return Err(refused(&refusals));
        }
        let (requests, _) = load_requests(&plan)?;
        let plan = plan.with_forecasts(&requests, &registry).map_err(|refusal| refused(&[refusal]))?;
        let evaluator = evaluator(&plan, requests, registry, &self.cancel.0)?;
        let options = Options {
            threads: self.threads,
            interrupt: self.cancel.0,
            journal: None,
            past: Vec::new(),
            journalled: 0,
            shard: None,
            watcher: self.watcher,
        };
        search::run(&plan, &evaluator, options).map_err(|error| RunError::Failed(error.to_string()))
    }
}

fn refused(refusals: &[Refusal]) -> RunError {
    let lines: Vec<String> = refusals.iter().map(ToString::to_string).collect();
    RunError::Input(lines.join("\n"))
}

/// What scores the candidates of a search by replaying `requests` on them.
pub(crate) fn evaluator(
    plan: &Plan,
    requests: Requests,
    registry: Arc<Registry>,
    interrupt: &Arc<AtomicBool>,
) -> Result<Arc<dyn Evaluator>, RunError> {
    let sweep = &plan.config.sweep;
    let evaluator = ReplayEvaluator::new(requests, registry, sweep.max_eval_seconds, Arc::clone(interrupt))
        .map_err(|error| RunError::Failed(error.to_string()))?;
    Ok(Arc::new(evaluator.with_pass_limit(sweep.max_eval_passes)))
}

/// A replay to be run.
#[must_use]
pub struct Replay {
    scenario: Scenario,
    registry: Registry,
    cancel: Cancel,
}

/// What a replay found.
#[derive(Clone, Debug)]
pub struct Replayed {
    /// What happened to every request.
    pub record: RunRecord,
    /// The figures made from it.
    pub summary: Summary,
    /// What the owner of the workload should know about it.
    pub warnings: Vec<Warning>,
}

impl Replay {
    /// A replay of this scenario, with the policies that come with the crate.
    pub fn new(scenario: Scenario) -> Self {
        Self { scenario, registry: Registry::builtin(), cancel: Cancel::new() }
    }

    /// A replay of the scenario in a YAML file, with `overrides` as `--set` takes them.
    ///
    /// # Errors
    /// Everything that is wrong with it.
    pub fn from_file(path: impl AsRef<Path>, overrides: &[Override]) -> Result<Self, RunError> {
        match read_document(path.as_ref(), overrides)?.document {
            Document::Scenario(scenario) => Ok(Self::new(scenario)),
            Document::Search(_) => Err(RunError::Input(format!(
                "{}: is a search configuration, not a scenario",
                path.as_ref().display()
            ))),
        }
    }

    /// Uses these policies.
    pub fn with_registry(self, registry: Registry) -> Self {
        Self { registry, ..self }
    }

    /// Can be ended by this handle.
    pub fn cancelled_by(self, cancel: &Cancel) -> Self {
        Self { cancel: cancel.clone(), ..self }
    }

    /// Runs it.
    ///
    /// # Errors
    /// [`RunError::Input`] for what cannot be replayed, [`RunError::Failed`] or [`RunError::Cancelled`].
    pub fn run(self) -> Result<Replayed, RunError> {
        let block_size = self.scenario.deployment.block_size();
        let loaded = load_workload(&self.scenario.workload, block_size)?;
        let traffic = Traffic::new(Arc::new(loaded.workload), block_size);
        let limits = ReplayLimits { interrupt: Some(self.cancel.0), ..ReplayLimits::default() };
        let record =
            serving::replay(&self.scenario, &traffic, &self.registry, &limits).map_err(
                |error| match error {
                    ReplayError::Refused(reason) => RunError::Input(reason),
                    error @ ReplayError::TooLong(_) => RunError::Input(error.to_string()),
                    ReplayError::Interrupted => RunError::Cancelled,
                    error => RunError::Failed(error.to_string()),
                },
            )?;
        let summary = Summary::new(&record, traffic.workload(), self.scenario.sla.as_ref());
        Ok(Replayed { record, summary, warnings: loaded.warnings })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;
    use crate::search::Cause;

    const SEARCH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/scenarios/router_comparison.yaml");

    fn search(overrides: &[&str]) -> Search {
        let overrides: Vec<Override> = overrides.iter().map(|text| text.parse().unwrap()).collect();
        Search::from_file(SEARCH, &overrides).unwrap()
    }

    #[test]
    fn rounds_are_told_and_a_search_can_be_ended_between_them() {
        let cancel = Cancel::new();
        let told = Arc::new(Mutex::new(Vec::new()));
        let (canceller, teller) = (cancel.clone(), Arc::clone(&told));
        let answer = search(&["sweep.max_rounds=3", "sweep.candidates_per_round=2"])
            .cancelled_by(&cancel)
            .on_round(move |round| {
                teller.lock().unwrap().push((round.number, round.trials.len()));
                canceller.cancel();
            })
            .run()
            .unwrap();
        assert_eq!(told.lock().unwrap()[0], (1, 2));
        assert!(answer.candidates.len() >= 2 && !answer.reproducible);
        let Cause::Interrupted { trials, of, is_least } = answer.incomplete[0].cause else {
            panic!("{:?}", answer.incomplete);
        };
        assert_eq!((trials, is_least), (answer.tally.total(), true));
        // Each of those that are missing may be found by the next trial.
        assert_eq!(of - trials, 6 - answer.tally.feasible);
    }

    #[test]
    fn what_is_wrong_is_said_before_anything_runs() {
        let problem = |search: Search| search.run().unwrap_err();
        let unknown = problem(search(&["search_space.router_mode=[dice]"]));
        assert!(matches!(&unknown, RunError::Input(text) if text.contains("`dice`")), "{unknown}");
        let missing = problem(search(&["workload.trace_path=nowhere.jsonl"]));
        assert!(matches!(&missing, RunError::Input(text) if text.contains("nowhere.jsonl")), "{missing}");
        let other = Replay::from_file(SEARCH, &[]).err().unwrap();
        assert!(other.to_string().ends_with("is a search configuration, not a scenario"), "{other}");
    }

    #[test]
    fn a_replay_can_be_cancelled() {
        let cancel = Cancel::new();
        cancel.cancel();
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/scenarios/conversation.yaml");
        let replay = Replay::from_file(path, &[]).unwrap();
        assert_eq!(replay.cancelled_by(&cancel).run().err(), Some(RunError::Cancelled));
    }
}
