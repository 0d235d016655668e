//! The actor that runs one study.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use actix::{Actor, ActorContext, AsyncContext, Context, Handler, Message, Recipient};

use super::pool::{TrialJob, TrialPool};
use super::rounds::{Job, Rounds, StudyEnd};
use crate::config::scenario::DeploymentMode;
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

/// From a study to whoever listens.
#[derive(Clone, Debug, Message)]
#[rtype(result = "()")]
pub enum StudyEvent {
    /// It begins.
    Started {
        /// Its branch.
        mode: DeploymentMode,
        /// Candidates that it aims for.
        aim: u64,
    },
    /// A trial has its final result; trials come in their order.
    Committed(Arc<TrialRecord>),
    /// It is over.
    Ended {
        /// Its branch.
        mode: DeploymentMode,
        /// Why.
        end: StudyEnd,
        /// Whether every point of the branch has been evaluated.
        covers_all_points: bool,
    },
}

/// Runs the study of one branch: keeps the trial threads busy and commits what they find.
///
/// Receives [`TrialFinished`]; sends [`StudyEvent`] to its listeners and candidates to the [`TrialPool`]. It never blocks:
/// what the pool has no room for waits in a queue of its own.
pub(crate) struct StudyActor {
    pub(crate) rounds: Rounds,
    pub(crate) pool: TrialPool,
    pub(crate) interrupt: Arc<AtomicBool>,
    pub(crate) listeners: Vec<Recipient<StudyEvent>>,
    /// Candidates that the pool has not taken yet.
    pub(crate) waiting: VecDeque<Job>,
}

impl StudyActor {
    fn tell(&self, event: &StudyEvent) {
        for listener in &self.listeners {
            listener.do_send(event.clone());
        }
    }

    /// Goes as far as is possible without another evaluation.
    fn proceed(&mut self, context: &mut Context<Self>) {
        loop {
            for record in self.rounds.commit() {
                self.tell(&StudyEvent::Committed(Arc::new(record)));
            }
            if let Some(end) = self.rounds.end() {
                return self.conclude(end, context);
            }
            if self.rounds.is_waiting() {
                return self.feed(context);
            }
            let jobs = self.rounds.ask();
            self.waiting.extend(jobs);
        }
    }

    fn feed(&mut self, context: &Context<Self>) {
        while let Some(job) = self.waiting.pop_front() {
            let offer = TrialJob { job, reply_to: context.address().recipient() };
            if let Some(refused) = self.pool.offer(offer) {
                return self.waiting.push_front(refused.job);
            }
        }
    }

    fn conclude(&mut self, end: StudyEnd, context: &mut Context<Self>) {
        let mode = self.rounds.branch().mode;
        let covers_all_points = self.rounds.covers_all_points();
        self.tell(&StudyEvent::Ended { mode, end, covers_all_points });
        context.stop();
    }
}

impl Actor for StudyActor {
    type Context = Context<Self>;

    fn started(&mut self, context: &mut Self::Context) {
        self.tell(&StudyEvent::Started { mode: self.rounds.branch().mode, aim: self.rounds.aim() });
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
