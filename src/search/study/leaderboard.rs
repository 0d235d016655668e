//! The actor that brings the studies together.

use std::io::Write;
use std::sync::Arc;

use actix::{Actor, Context, Handler, Recipient, System};
use crossbeam_channel::Sender;

use super::SearchError;
use super::actor::{News, StudyReport};
use super::merge::{Merge, Next};
use super::progress::StudyEvent;
use super::schedule::StudyEnd;
use crate::config::scenario::DeploymentMode;
use crate::search::nearest::NearTrials;
use crate::search::ranking::Candidate;
use crate::search::result::{Rejected, Screening, StudySummary};
use crate::search::trial::{Outcome, Tally, TrialRecord};

/// Everything that the studies of a search have committed.
#[derive(Debug, Default)]
pub(crate) struct Standings {
    pub(crate) tally: Tally,
    pub(crate) candidates: Vec<Candidate>,
    pub(crate) rejected: Vec<Rejected>,
    pub(crate) screenings: Vec<Screening>,
    pub(crate) studies: Vec<StudySummary>,
    /// The trials that came nearest to the goal's bar without reaching it.
    pub(crate) near: NearTrials,
}

impl Standings {
    fn enter(&mut self, record: &TrialRecord) {
        self.tally.count(record.outcome);
        self.near.enter(record);
        match record.outcome {
            Outcome::CacheHit => {}
            Outcome::Feasible => self.candidates.extend(Candidate::of_trial(record)),
            Outcome::Screened => Screening::count(record, &mut self.screenings),
            Outcome::Infeasible | Outcome::Failed | Outcome::Unsupported | Outcome::StoppedEarly => {
                self.rejected.push(Rejected::of_trial(record));
            }
        }
    }
}

/// Merges what the studies commit, in an order that does not depend on which of them is faster, writes the journal, and
/// hands everything over when the last study has ended.
///
/// Receives [`StudyReport`]; sends its [`Standings`] through a channel and stops the actor system.
pub(crate) struct Leaderboard {
    modes: Vec<DeploymentMode>,
    merge: Merge,
    journal: Option<Box<dyn Write + Send>>,
    /// Trials that the journal holds already.
    journalled: u32,
    progress: Option<Recipient<StudyEvent>>,
    standings: Standings,
    result: Sender<Result<Standings, SearchError>>,
}

impl Leaderboard {
    /// For studies of these branches.
    pub(crate) fn new(modes: Vec<DeploymentMode>, result: Sender<Result<Standings, SearchError>>) -> Self {
        Self {
            merge: Merge::of(modes.len()),
            modes,
            journal: None,
            journalled: 0,
            progress: None,
            standings: Standings::default(),
            result,
        }
    }

    /// Writes a journal that holds so many trials already.
    pub(crate) fn writing(self, journal: Option<Box<dyn Write + Send>>, journalled: u32) -> Self {
        Self { journal, journalled, ..self }
    }

    /// Passes on what it hears.
    pub(crate) fn telling(self, progress: Option<Recipient<StudyEvent>>) -> Self {
        Self { progress, ..self }
    }

    fn tell(&self, event: StudyEvent) {
        if let Some(progress) = &self.progress {
            progress.do_send(event);
        }
    }

    fn enter(&mut self, record: TrialRecord) {
        tracing::debug!(
            trial = record.trial,
            round = record.round,
            outcome = ?record.outcome,
            score = record.score,
            reason = record.reason,
            "trial committed"
        );
        self.standings.enter(&record);
        if let Err(error) = self.write(&record) {
            self.finish(Err(SearchError::Journal(error)));
        }
        self.tell(StudyEvent::Committed(Arc::new(record)));
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

    fn end_study(&mut self, study: usize, end: StudyEnd, covers_all_points: bool) {
        let mode = self.modes[study];
        tracing::info!(?mode, ?end, covers_all_points, "study ended");
        match end {
            StudyEnd::Diverged { trial } => {
                return self.finish(Err(SearchError::Diverged { trial, remark: "" }));
            }
            StudyEnd::Contradicted { trial } => return self.finish(Err(SearchError::Contradicted { trial })),
            // Without the trials that this study did not come to, what follows has another place in the journal.
            StudyEnd::Interrupted { .. } => self.journal = None,
            _ => {}
        }
        self.standings.studies.push(StudySummary { mode, end, covers_all_points });
        self.tell(StudyEvent::Ended { mode, end, covers_all_points });
    }

    fn finish(&self, result: Result<Standings, SearchError>) {
        // The channel holds one result: only the first counts.
        let _ = self.result.try_send(result);
        System::current().stop();
    }
}

impl Actor for Leaderboard {
    type Context = Context<Self>;
}

impl Handler<StudyReport> for Leaderboard {
    type Result = ();

    fn handle(&mut self, report: StudyReport, _context: &mut Self::Context) {
        match report.news {
            News::Committed(record) => self.merge.put(report.study, *record),
            News::Ended { end, covers_all_points } => {
                self.merge.end(report.study, end, covers_all_points);
            }
        }
        while let Some(next) = self.merge.next() {
            match next {
                Next::Trial(record) => self.enter(*record),
                Next::End { study, end, covers_all_points } => self.end_study(study, end, covers_all_points),
                Next::Nothing => {
                    let standings = std::mem::take(&mut self.standings);
                    return self.finish(Ok(standings));
                }
            }
        }
    }
}
