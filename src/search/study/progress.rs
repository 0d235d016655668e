//! The actor that shows how far a search is.

use actix::{Actor, Context, Handler};

use super::actor::StudyEvent;

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
