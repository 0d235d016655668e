//! Studies: actors on the wall clock that evaluate candidates on many threads and come to the same answer on any number of
//! them.
//!
//! ```text
//!   Leaderboard ──starts──▶ StudyActor ──candidates──▶ TrialPool (threads)
//!        ▲                    │    ▲                        │
//!        └─────StudyEvent─────┤    └─────TrialFinished──────┘
//!   Progress ◀────────────────┘
//! ```

mod actor;
mod leaderboard;
mod pool;
mod progress;
mod rounds;
#[cfg(test)]
mod tests;

use std::io::Write;
use std::num::NonZeroUsize;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use actix::{Actor, System};
use crossbeam_channel::bounded;

pub use actor::StudyEvent;
use leaderboard::Leaderboard;
pub(super) use leaderboard::Standings;
use pool::TrialPool;
pub use pool::{TRIAL_THREAD_NAME, panic_message};
use progress::Progress;
pub use progress::Watcher;
pub(super) use rounds::Schedule;
pub use rounds::StudyEnd;

use super::branch::Plan;
use super::evaluator::Evaluator;
use super::journal::PastTrial;
use super::refusal::Refusal;
use super::result::SearchResult;
use super::shard::Shard;

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
         numbers that price its passes or the version of the program has changed"
    )]
    Diverged {
        /// The first trial that differs.
        trial: u32,
    },
    /// The search cannot be split.
    #[error("{0}")]
    Unsplittable(Refusal),
    /// The machine gives no threads.
    #[error("cannot start the trial threads: {0}")]
    Threads(std::io::Error),
    /// The actor system ended before the search did.
    #[error("the search ended without a result")]
    NoResult,
}

/// Runs the studies of `plan` and ranks what they found.
///
/// # Errors
/// When the search itself cannot go on. A candidate that cannot be evaluated is a failed trial instead.
pub fn run(
    plan: &Plan,
    evaluator: &Arc<dyn Evaluator>,
    options: Options,
) -> Result<SearchResult, SearchError> {
    if plan.branches.is_empty() {
        return Ok(SearchResult::new(plan, Standings::default()));
    }
    let parts: Vec<Option<Range<u64>>> = match options.shard {
        None => vec![None; plan.branches.len()],
        Some(shard) => {
            let parts = plan.trials_of(shard).map_err(SearchError::Unsplittable)?;
            parts.into_iter().map(Some).collect()
        }
    };
    // A round never has more candidates under way than this, however many threads there are.
    let most = plan.config.sweep.candidates_per_round as usize;
    let threads = options.threads.get().min(most.max(1));
    let pool = TrialPool::start(threads, evaluator).map_err(SearchError::Threads)?;
    let (sender, receiver) = bounded(1);
    let system = System::new();
    system.block_on(async {
        let progress = options.watcher.map(|watcher| Progress { watcher }.start().recipient());
        Leaderboard {
            branches: plan.branches.iter().cloned().zip(parts).collect(),
            pool,
            interrupt: options.interrupt,
            journal: options.journal,
            past: options.past.into(),
            journalled: options.journalled,
            requests: evaluator.fingerprint(),
            progress,
            standings: Standings::default(),
            result: sender,
        }
        .start();
    });
    system.run().map_err(SearchError::Threads)?;
    let standings = receiver.try_recv().unwrap_or(Err(SearchError::NoResult))?;
    Ok(SearchResult::new(plan, standings))
}
