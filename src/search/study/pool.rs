//! The threads that evaluate candidates.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread;

use actix::Recipient;
use crossbeam_channel::{Receiver, Sender, bounded};

use super::actor::TrialFinished;
use super::rounds::Job;
use crate::search::evaluator::Evaluator;
use crate::search::trial::Evaluation;

/// How the threads of a pool are named: a panic in one of them becomes a failed trial, so nobody need print it.
pub const TRIAL_THREAD_NAME: &str = "spica-trial";

/// Evaluates candidates on threads of its own.
#[derive(Clone)]
pub(crate) struct TrialPool {
    queue: Sender<TrialJob>,
}

/// A candidate and who wants to know.
pub(crate) struct TrialJob {
    pub(crate) job: Job,
    pub(crate) reply_to: Recipient<TrialFinished>,
}

impl TrialPool {
    /// Starts `threads` threads, before which so many candidates can wait. They end when the pool and its clones are gone and their last candidate is done; nobody
    /// waits for that, so that an interrupted search need not.
    pub(crate) fn start(
        threads: usize,
        waiting: usize,
        evaluator: &Arc<dyn Evaluator>,
    ) -> std::io::Result<Self> {
        let (queue, jobs) = bounded(waiting);
        for _ in 0..threads {
            let (jobs, evaluator) = (jobs.clone(), Arc::clone(evaluator));
            thread::Builder::new().name(TRIAL_THREAD_NAME.into()).spawn(move || work(&jobs, &*evaluator))?;
        }
        Ok(Self { queue })
    }

    /// Hands a candidate to the next free thread.
    pub(crate) fn evaluate(&self, job: TrialJob) {
        // Threads end with the pool, so one is there; and there is room for all candidates that may be under way.
        let _ = self.queue.send(job);
    }
}

fn work(jobs: &Receiver<TrialJob>, evaluator: &dyn Evaluator) {
    for TrialJob { job, reply_to } in jobs {
        let evaluation = evaluate(evaluator, &job);
        reply_to.do_send(TrialFinished { trial: job.trial, evaluation });
    }
}

/// A panic is the fault of one candidate's replay and must not take the others with it.
fn evaluate(evaluator: &dyn Evaluator, job: &Job) -> Evaluation {
    catch_unwind(AssertUnwindSafe(|| evaluator.evaluate(&job.scenario, &job.bar))).unwrap_or_else(|payload| {
        Evaluation::Failed(format!("replay failed: internal error: {}", panic_message(&*payload)))
    })
}

/// What a panic said.
pub fn panic_message(payload: &(dyn Any + Send)) -> &str {
    let literal = payload.downcast_ref::<&str>().copied();
    literal.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}
