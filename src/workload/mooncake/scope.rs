//! Ids that mean something within their session only.
//!
//! Some recorders number the blocks of every session from 0 (`hash_id_scope: local`). Such ids are renumbered in the order in
//! which they are met, so that an id of one session is never that of another; an export has the new numbers.

use rustc_hash::FxHashMap;

use super::row::{HashIdScope, Key};
use crate::workload::interner::Interner;
use crate::workload::problem::{Place, Problems};

/// Numbers for the ids of each session.
#[derive(Debug, Default)]
pub(super) struct LocalIds {
    sessions: FxHashMap<Box<str>, u32>,
    numbers: FxHashMap<(u32, u64), u32>,
    first_local: Option<Place>,
    first_global: Option<Place>,
}

impl LocalIds {
    /// Takes the ids of a row, which `interner` has numbered, and renumbers them if they belong to its session.
    pub(super) fn take(
        &mut self,
        scope: HashIdScope,
        session: Option<&str>,
        ids: &mut [u32],
        interner: &Interner,
        place: Place,
        problems: &mut Problems,
    ) {
        if ids.is_empty() {
            return;
        }
        if scope == HashIdScope::Global {
            self.first_global.get_or_insert(place);
            return;
        }
        self.first_local.get_or_insert(place);
        let Some(session) = session else {
            let message = "`local` ids belong to a session, and the row has no session_id";
            problems.add(place, Key::HashIdScope.name(), message);
            return;
        };
        let next = self.sessions.len() as u32;
        let session = match self.sessions.get(session) {
            Some(&number) => number,
            None => *self.sessions.entry(session.into()).or_insert(next),
        };
        for id in ids {
            let next = self.numbers.len() as u32;
            *id = *self.numbers.entry((session, interner.name(*id))).or_insert(next);
        }
    }

    /// Refuses a trace whose rows disagree on the scope.
    pub(super) fn check(&self, problems: &mut Problems) {
        if let (Some(local), Some(global)) = (self.first_local, self.first_global) {
            let message = format!(
                "the ids of {local} belong to their session and those of {global} to the whole trace: \
                all rows have to agree"
            );
            problems.add(Place::Whole, Key::HashIdScope.name(), message);
        }
    }

    /// The names of all numbers: the numbers themselves if ids belong to sessions, else those that `interner` has.
    pub(super) fn into_names(self, interner: Interner) -> Vec<u64> {
        match self.first_local {
            Some(_) => (0..self.numbers.len() as u64).collect(),
            None => interner.into_names(),
        }
    }
}
