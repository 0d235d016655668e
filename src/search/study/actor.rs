//! The actor that runs one study.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use actix::{Actor, ActorContext, AsyncContext, Context, Handler, Message, Recipient};

use super::pool::{TrialJob, TrialPool};
use super::rounds::Rounds;
use super::schedule::StudyEnd;
use crate::search::trial::{Evaluation, TrialRecord};

/// How often a study looks whether it has been told to stop.
const INTERRUPT_CHECK: Duration = Duration::from_millis(20);

/// From a trial thread to the study: a candidate has been evaluated.
#[derive(Message)]
#[rtype(result = "()")]
pub(crate) struct TrialFinished {
    pub(crate) trial: usize,
    pub(crate) evaluation: Evaluation,
}

/// From a study to the leaderboard.
#[derive(Message)]
#[rtype(result = "()")]
pub(crate) struct StudyReport {
    /// Which of the studies.
    pub(crate) study: usize,
    pub(crate) news: News,
}

/// What a study has to tell.
pub(crate) enum News {
    /// A trial has its final result; trials come in their order and are numbered within the study.
    Committed(Box<TrialRecord>),
    /// It is over.
    Ended {
        /// Why.
        end: StudyEnd,
        /// Whether every point of the branch has been evaluated.
        covers_all_points: bool,
    },
}

/// Runs the study of one branch, on a thread of its own: keeps the trial threads busy and commits what they find.
///
/// Receives [`TrialFinished`]; sends [`StudyReport`] to the leaderboard and candidates to the [`TrialPool`]. While it thinks
/// about its next suggestions, the trial threads go on with the last.
pub(crate) struct StudyActor {
    /// Its place among the studies.
    pub(crate) study: usize,
    pub(crate) rounds: Rounds,
    pub(crate) pool: TrialPool,
    pub(crate) interrupt: Arc<AtomicBool>,
    pub(crate) leaderboard: Recipient<StudyReport>,
}

impl StudyActor {
    fn tell(&self, news: News) {
        self.leaderboard.do_send(StudyReport { study: self.study, news });
    }

    /// Goes as far as is possible without another evaluation.
    fn proceed(&mut self, context: &mut Context<Self>) {
        let step = self.rounds.proceed();
        for job in step.jobs {
            self.pool.evaluate(TrialJob { job, reply_to: context.address().recipient() });
        }
        for record in step.records {
            self.tell(News::Committed(Box::new(record)));
        }
        if let Some(end) = self.rounds.end() {
            self.tell(News::Ended { end, covers_all_points: self.rounds.covers_all_points() });
            context.stop();
        }
    }
}

impl Actor for StudyActor {
    type Context = Context<Self>;

    fn started(&mut self, context: &mut Self::Context) {
        context.run_interval(INTERRUPT_CHECK, |study, context| {
            if study.interrupt.load(Ordering::Relaxed) {
                study.rounds.interrupt();
                study.proceed(context);
            }
        });
        self.proceed(context);
    }
}

impl Handler<TrialFinished> for StudyActor {
    type Result = ();

    fn handle(&mut self, message: TrialFinished, context: &mut Self::Context) {
        self.rounds.finish(message.trial, message.evaluation);
        self.proceed(context);
    }
}
