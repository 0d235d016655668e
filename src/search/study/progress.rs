//! The actor that shows how far a search is.

use std::sync::Arc;

use actix::{Actor, Context, Handler, Message};

use super::schedule::StudyEnd;
use crate::config::scenario::DeploymentMode;
use crate::search::trial::TrialRecord;

/// What happens in a search.
#[derive(Clone, Debug, Message)]
#[rtype(result = "()")]
pub enum StudyEvent {
    /// A study begins.
    Started {
        /// Its branch.
        mode: DeploymentMode,
        /// Candidates that it aims for.
        aim: u64,
    },
    /// A trial has its final result; trials come in their order, round for round of each branch in turn.
    Committed(Arc<TrialRecord>),
    /// A study is over.
    Ended {
        /// Its branch.
        mode: DeploymentMode,
        /// Why.
        end: StudyEnd,
        /// Whether every point of the branch has been evaluated.
        covers_all_points: bool,
    },
}

/// Looks on while a search runs; cannot influence it.
pub trait Watcher: Send {
    /// Something happened.
    fn notice(&mut self, event: &StudyEvent);
}

/// Passes what the studies tell on to a [`Watcher`].
pub(crate) struct Progress {
    pub(crate) watcher: Box<dyn Watcher>,
}

impl Actor for Progress {
    type Context = Context<Self>;
}

impl Handler<StudyEvent> for Progress {
    type Result = ();

    fn handle(&mut self, event: StudyEvent, _context: &mut Self::Context) {
        self.watcher.notice(&event);
    }
}
