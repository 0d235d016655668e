//! What happened, round by round.

use std::sync::Arc;

use crate::config::scenario::DeploymentMode;
use crate::search::{StudyEvent, TrialRecord, Watcher};

/// A round that is over.
#[derive(Clone, Debug)]
pub struct Round {
    /// Its branch.
    pub mode: DeploymentMode,
    /// Its number in the branch, from 1.
    pub number: u32,
    /// All trials of the search so far, in their order.
    pub trials: Vec<Arc<TrialRecord>>,
}

/// Calls back at the end of each round: when the first trial of the next has come, or the branch has ended.
pub(super) struct RoundWatcher<F> {
    callback: F,
    trials: Vec<Arc<TrialRecord>>,
    /// The round that is under way, by branch and number.
    current: Option<(DeploymentMode, u32)>,
}

impl<F: FnMut(&Round) + Send> RoundWatcher<F> {
    pub(super) fn new(callback: F) -> Self {
        Self { callback, trials: Vec::new(), current: None }
    }

    fn close(&mut self) {
        if let Some((mode, number)) = self.current.take() {
            (self.callback)(&Round { mode, number, trials: self.trials.clone() });
        }
    }
}

impl<F: FnMut(&Round) + Send> Watcher for RoundWatcher<F> {
    fn notice(&mut self, event: &StudyEvent) {
        match event {
            StudyEvent::Started { .. } => {}
            StudyEvent::Committed(record) => {
                let round = (record.deployment_mode, record.round);
                if self.current != Some(round) {
                    self.close();
                    self.current = Some(round);
                }
                self.trials.push(Arc::clone(record));
            }
            StudyEvent::Ended { .. } => self.close(),
        }
    }
}
