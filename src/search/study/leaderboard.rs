//! The actor that brings the studies together.

use std::collections::VecDeque;
use std::io::Write;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use actix::{Actor, AsyncContext, Context, Handler, Recipient, System};
use crossbeam_channel::Sender;

use super::SearchError;
use super::actor::{StudyActor, StudyEvent};
use super::pool::TrialPool;
use super::rounds::{Rounds, Schedule, StudyEnd};
use crate::search::branch::Branch;
use crate::search::journal::PastTrial;
use crate::search::ranking::Candidate;
use crate::search::result::{Rejected, StudySummary};
use crate::search::sampler::{self, Sampler};
use crate::search::shard::Stretch;
use crate::search::trial::{Outcome, Tally, TrialRecord};

/// Everything that the studies of a search have committed.
#[derive(Debug, Default)]
pub(crate) struct Standings {
    pub(crate) tally: Tally,
    pub(crate) candidates: Vec<Candidate>,
    pub(crate) rejected: Vec<Rejected>,
    pub(crate) studies: Vec<StudySummary>,
    trials: u32,
}

impl Standings {
    fn enter(&mut self, record: &TrialRecord) {
        self.trials += 1;
        self.tally.count(record.outcome);
        match record.outcome {
            Outcome::CacheHit => {}
            Outcome::Feasible => self.candidates.extend(Candidate::of_trial(record)),
            Outcome::Infeasible | Outcome::Failed | Outcome::Unsupported => {
                self.rejected.push(Rejected::of_trial(record));
            }
        }
    }
}

/// Starts the studies one after another, in the order of their branches, writes the journal, merges what they commit,
/// and hands it over when the last has ended.
///
/// Receives [`StudyEvent`]; sends its [`Standings`] through a channel and stops the actor system.
pub(crate) struct Leaderboard {
    /// The branches that are still to be studied, and which part of them if not the whole.
    pub(crate) branches: VecDeque<(Branch, Option<Range<u64>>)>,
    pub(crate) pool: TrialPool,
    pub(crate) interrupt: Arc<AtomicBool>,
    pub(crate) journal: Option<Box<dyn Write + Send>>,
    /// Trials that the journal holds already.
    pub(crate) journalled: u32,
    /// Trials that are known from earlier.
    pub(crate) past: Arc<[PastTrial]>,
    /// What evaluations depend on beside their scenarios.
    pub(crate) requests: u64,
    pub(crate) progress: Option<Recipient<StudyEvent>>,
    pub(crate) standings: Standings,
    pub(crate) result: Sender<Result<Standings, SearchError>>,
}

impl Leaderboard {
    fn start_next_study(&mut self, context: &Context<Self>) {
        let Some((branch, part)) = self.branches.pop_front() else {
            let standings = std::mem::take(&mut self.standings);
            return self.finish(Ok(standings));
        };
        let sweep = &branch.config.sweep;
        let mut schedule = Schedule::new(sweep, branch.space.size());
        let sampler: Box<dyn Sampler> = match (schedule, part) {
            (_, Some(part)) => {
                schedule = Schedule::Exhaustive { per_round: sweep.candidates_per_round };
                Box::new(Stretch::of(&branch, &part))
            }
            (Schedule::Exhaustive { .. }, None) => sampler::create_grid(&branch.space),
            (Schedule::Rounds { .. }, None) => {
                let seed = sampler::branch_seed(sweep.random_seed, branch.mode);
                let sampler = branch.sampler(&sweep.sampler.policy, seed);
                sampler.expect("unknown samplers have been refused")
            }
        };
        let listeners = [Some(context.address().recipient()), self.progress.clone()];
        StudyActor {
            rounds: Rounds::new(branch, sampler, schedule, self.standings.trials + 1)
                .recalling(Arc::clone(&self.past), self.requests),
            pool: self.pool.clone(),
            interrupt: Arc::clone(&self.interrupt),
            listeners: listeners.into_iter().flatten().collect(),
            waiting: VecDeque::new(),
        }
        .start();
    }

    fn record(&mut self, record: &TrialRecord) {
        tracing::debug!(
            trial = record.trial,
            round = record.round,
            outcome = ?record.outcome,
            score = record.score,
            reason = record.reason,
            "trial committed"
        );
        self.standings.enter(record);
        if let Err(error) = self.write(record) {
            self.finish(Err(SearchError::Journal(error)));
        }
    }

    fn write(&mut self, record: &TrialRecord) -> std::io::Result<()> {
        let Some(journal) = &mut self.journal else { return Ok(()) };
        if record.trial <= self.journalled {
            return Ok(());
        }
        let mut line = serde_json::to_vec(record)?;
        line.push(b'\n');
        journal.write_all(&line)?;
        journal.flush()
    }

    fn finish(&self, result: Result<Standings, SearchError>) {
        // The channel holds one result: only the first counts.
        let _ = self.result.try_send(result);
        System::current().stop();
    }
}

impl Actor for Leaderboard {
    type Context = Context<Self>;

    fn started(&mut self, context: &mut Self::Context) {
        self.start_next_study(context);
    }
}

impl Handler<StudyEvent> for Leaderboard {
    type Result = ();

    fn handle(&mut self, event: StudyEvent, context: &mut Self::Context) {
        match event {
            StudyEvent::Started { mode, aim } => tracing::info!(?mode, aim, "study started"),
            StudyEvent::Committed(record) => self.record(&record),
            StudyEvent::Ended { mode, end, covers_all_points } => {
                tracing::info!(?mode, ?end, covers_all_points, trials = self.standings.trials, "study ended");
                if let StudyEnd::Diverged { trial } = end {
                    return self.finish(Err(SearchError::Diverged { trial }));
                }
                self.standings.studies.push(StudySummary { mode, end, covers_all_points });
                if end == StudyEnd::Interrupted {
                    self.branches.clear();
                }
                self.start_next_study(context);
            }
        }
    }
}
