//! Studies: actors on the wall clock that evaluate candidates on many threads and come to the same answer on any number of
//! them.
//!
//! ```text
//!   Leaderboard ◀──StudyReport── StudyActor ──candidates──▶ TrialPool (threads)
//!        │                       (one per branch)                │
//!        └──StudyEvent──▶ Progress      ▲                        │
//!                                       └─────TrialFinished──────┘
//! ```

mod actor;
mod best;
mod circumstances;
mod conclusion;
mod copies;
mod leaderboard;
mod merge;
mod pool;
mod progress;
mod rounds;
mod schedule;
mod screening;
#[cfg(test)]
mod tests;

use std::io::Write;
use std::num::NonZeroUsize;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use actix::{Actor, Arbiter, System};
use crossbeam_channel::bounded;

use actor::StudyActor;
use leaderboard::Leaderboard;
pub(super) use leaderboard::Standings;
use pool::TrialPool;
pub use pool::{TRIAL_THREAD_NAME, panic_message};
use progress::Progress;
pub use progress::{StudyEvent, Watcher};
use rounds::Rounds;
pub(super) use schedule::Schedule;
pub use schedule::StudyEnd;

use super::branch::{Branch, Plan};
use super::evaluator::Evaluator;
use super::journal::PastTrial;
use super::nearest::NearestMiss;
use super::portion::Portion;
use super::refusal::Refusal;
use super::result::SearchResult;
use super::sampler::{self, Sampler};
use super::shard::{Shard, Stretch};

/// How a search is run; none of it changes the answer.
pub struct Options {
    /// Candidates that are evaluated at the same time.
    pub threads: NonZeroUsize,
    /// Set to end the search with what it has.
    pub interrupt: Arc<AtomicBool>,
    /// Takes one line of JSON per committed trial, as soon as it is committed.
    pub journal: Option<Box<dyn Write + Send>>,
    /// Trials that are known from an earlier run of the same search.
    pub past: Vec<PastTrial>,
    /// How many of them the journal holds already.
    pub journalled: u32,
    /// Runs only this part of the search; the candidates of the answer are then those of the part.
    pub shard: Option<Shard>,
    /// Looks on.
    pub watcher: Option<Box<dyn Watcher>>,
}

/// Why a search broke down.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SearchError {
    /// The journal cannot be written.
    #[error("cannot write the journal: {0}")]
    Journal(std::io::Error),
    /// The journal of an earlier run is that of another search.
    #[error(
        "trial {trial} of the journal is not what this search would evaluate there: its configuration, its requests, the \
         numbers that price its passes or the version of the program has changed{remark}"
    )]
    Diverged {
        /// The first trial that differs.
        trial: u32,
        /// What else may have made it differ, such as more rounds.
        remark: &'static str,
    },
    /// The journal of an earlier run contradicts itself.
    #[error(
        "trial {trial} of the journal is not worth what it says: its outcome or its score is not what its metrics come to"
    )]
    Contradicted {
        /// The first trial that does.
        trial: u32,
    },
    /// The search cannot be split.
    #[error("{0}")]
    Unsplittable(Refusal),
    /// A portion of the requests is none.
    #[error("{0}")]
    Portions(Refusal),
    /// The machine gives no threads.
    #[error("cannot start the trial threads: {0}")]
    Threads(std::io::Error),
    /// The actor system ended before the search did.
    #[error("the search ended without a result")]
    NoResult,
}

/// Runs the studies of `plan`, all at the same time, and ranks what they found.
///
/// # Errors
/// When the search itself cannot go on. A candidate that cannot be evaluated is a failed trial instead.
pub fn run(
    plan: &Plan,
    evaluator: &Arc<dyn Evaluator>,
    options: Options,
) -> Result<SearchResult, SearchError> {
    if plan.branches.is_empty() {
        return Ok(SearchResult::new(plan, Standings::default(), None));
    }
    let interrupt = Arc::clone(&options.interrupt);
    let studies = studies(plan, evaluator, &options)?;
    let remark = match options.shard {
        Some(_) => OTHER_PART,
        None if has_more_rounds(&options.past, plan) => MORE_ROUNDS,
        None => no_extension(plan),
    };
    // A study never has more candidates under way than make a round, however many threads there are.
    let most = plan.config.sweep.candidates_per_round as usize * schedule::ROUNDS_AHEAD * studies.len();
    let pool =
        TrialPool::start(options.threads.get().min(most), most, evaluator).map_err(SearchError::Threads)?;
    let (sender, receiver) = bounded(1);
    let system = System::new();
    system.block_on(async {
        let progress = options.watcher.map(|watcher| Progress { watcher }.start().recipient());
        for (branch, (_, aim)) in plan.branches.iter().zip(&studies) {
            tracing::info!(mode = ?branch.mode, aim, "study started");
            if let Some(progress) = &progress {
                progress.do_send(StudyEvent::Started { mode: branch.mode, aim: *aim });
            }
        }
        let modes = plan.branches.iter().map(|branch| branch.mode).collect();
        let leaderboard = Leaderboard::new(modes, sender)
            .writing(options.journal, options.journalled)
            .telling(progress)
            .start();
        for (study, (rounds, _)) in studies.into_iter().enumerate() {
            let (pool, interrupt) = (pool.clone(), Arc::clone(&options.interrupt));
            let leaderboard = leaderboard.clone().recipient();
            StudyActor::start_in_arbiter(&Arbiter::new().handle(), move |_| StudyActor {
                study,
                rounds,
                pool,
                interrupt,
                leaderboard,
            });
        }
    });
    system.run().map_err(SearchError::Threads)?;
    let standings = receiver.try_recv().unwrap_or(Err(SearchError::NoResult));
    let mut standings = standings.map_err(|error| match error {
        SearchError::Diverged { trial, .. } => SearchError::Diverged { trial, remark },
        other => other,
    })?;
    let nearest = nearest(plan, evaluator, &interrupt, &mut standings);
    Ok(SearchResult::new(plan, standings, nearest))
}

/// Who came nearest, where nobody counts and the search has come to its end.
fn nearest(
    plan: &Plan,
    evaluator: &Arc<dyn Evaluator>,
    interrupt: &AtomicBool,
    standings: &mut Standings,
) -> Option<NearestMiss> {
    let is_over = standings.studies.iter().all(|study| !study.end.is_interrupted());
    if !is_over || standings.tally.feasible > 0 {
        return None;
    }
    let near = std::mem::take(&mut standings.near);
    let nearest = near.replayed(&plan.config.goal, plan.config.search_space.gpu_budget, &**evaluator);
    if nearest.is_none() && interrupt.load(Ordering::Relaxed) {
        // What is missing is the end of every study.
        let end = StudyEnd::Interrupted { missing: 0, is_least: false };
        standings.studies.iter_mut().for_each(|study| study.end = end);
    }
    nearest
}

const OTHER_PART: &str = ", or it is another part of the search";

const MORE_ROUNDS: &str = "; the journal has more rounds than `sweep.max_rounds` now allows";

/// Whether an earlier run went through more rounds than there are to be now.
fn has_more_rounds(past: &[PastTrial], plan: &Plan) -> bool {
    let sweep = &plan.config.sweep;
    let has_rounds = |branch: &Branch| {
        let schedule = Schedule::new(sweep, branch.space.size());
        matches!(schedule, Schedule::Rounds { .. }) && sweep.fidelity.is_none()
    };
    let is_beyond = |trial: &PastTrial| trial.round() > sweep.max_rounds;
    let branches = plan.branches.iter().filter(|branch| has_rounds(branch));
    branches.flat_map(|branch| past.iter().filter(|trial| trial.mode() == branch.mode)).any(is_beyond)
}

/// Why a search cannot go on where one with fewer rounds ended, where it cannot: a remark on the trial that differs.
fn no_extension(plan: &Plan) -> &'static str {
    let sweep = &plan.config.sweep;
    let is_exhaustive =
        |branch: &Branch| matches!(Schedule::new(sweep, branch.space.size()), Schedule::Exhaustive { .. });
    if sweep.fidelity.is_some() {
        "; with sweep.fidelity the trials depend on the number of rounds, so that a search cannot go on with more of them"
    } else if !sweep.exhaustive && plan.branches.iter().any(is_exhaustive) {
        "; sweep.max_rounds times sweep.candidates_per_round is no less than the number of points, which are then tried in their \
         own order: a search with fewer rounds cannot go on so"
    } else {
        ""
    }
}

/// The study of each branch, and how many candidates it aims for.
fn studies(
    plan: &Plan,
    evaluator: &Arc<dyn Evaluator>,
    options: &Options,
) -> Result<Vec<(Rounds, u64)>, SearchError> {
    let parts: Vec<Option<Range<u64>>> = match options.shard {
        None => vec![None; plan.branches.len()],
        Some(shard) => {
            let parts = plan.trials_of(shard).map_err(SearchError::Unsplittable)?;
            parts.into_iter().map(Some).collect()
        }
    };
    let portions = plan.config.sweep.fidelity.as_ref().map(|fidelity| {
        let portions = Portion::all(fidelity, evaluator.trace_rows());
        portions.map(|portions| (portions, fidelity.keep)).map_err(SearchError::Portions)
    });
    let portions = portions.transpose()?;
    let requests = evaluator.fingerprint();
    let study = |(branch, part): (&Branch, Option<Range<u64>>)| {
        let past = options.past.iter().filter(|trial| trial.mode() == branch.mode).cloned().collect();
        let (sampler, schedule) = sampler(branch, part);
        let aim = schedule.aim();
        let mut rounds = Rounds::new(branch.clone(), sampler, schedule).recalling(past, requests);
        if let Some((portions, keep)) = &portions {
            rounds = rounds.screening(portions.clone(), *keep);
        }
        let top = plan.config.sweep.top.filter(|_| {
            let is_exhaustive = matches!(schedule, Schedule::Exhaustive { .. });
            is_exhaustive && options.shard.is_none() && portions.is_none()
        });
        if let Some(top) = top {
            rounds = rounds.for_the_best(top as usize);
        }
        (rounds, aim)
    };
    Ok(plan.branches.iter().zip(parts).map(study).collect())
}

/// What suggests the points of a branch or of a part of it, and for how long.
fn sampler(branch: &Branch, part: Option<Range<u64>>) -> (Box<dyn Sampler>, Schedule) {
    let sweep = &branch.config.sweep;
    let schedule = Schedule::new(sweep, branch.space.size());
    if let Some(part) = part {
        let points = part.end - part.start;
        let schedule = Schedule::Exhaustive { points, per_round: sweep.candidates_per_round };
        return (Box::new(Stretch::of(branch, &part)), schedule);
    }
    let sampler = match schedule {
        Schedule::Exhaustive { .. } => sampler::create_grid(&branch.space),
        Schedule::Rounds { .. } => {
            let seed = sampler::branch_seed(sweep.random_seed, branch.mode);
            branch.sampler(&sweep.sampler, seed).expect("unknown samplers have been refused")
        }
    };
    (sampler, schedule)
}
