//! Requests: where they come from, when they arrive and which prompts share a prefix.
//!
//! A [`Workload`] is immutable once loaded; every replay of a search shares one. Prompts are never token vectors: a
//! prompt is a run of interned chunk ids ([`Prompt`]), from which the prefix tree derives the block identities that engines
//! and routers compare.

mod assembly;
pub mod formats;
pub mod generate;
pub mod inline;
mod input;
mod interner;
mod load;
pub mod mooncake;
mod pacing;
pub mod prefix;
mod problem;
mod random;
pub mod stats;
mod suspicion;
pub mod synthetic;

pub use input::unpacked;
pub use load::{Loaded, load};
pub use pacing::Pacing;
pub use problem::{OUT_OF_ORDER, Place, Problem, Warning, WorkloadErrors};

use crate::simulation::{SimDuration, SimTime};

/// Dense number of a request: its place in [`Workload::requests`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
pub struct RequestId(pub u32);

/// Everything that will be asked of a deployment.
#[derive(Clone, Debug, Default)]
pub struct Workload {
    /// All requests; the turns of one session in order, sessions in the order in which they are started:
    /// first turns by arrival (file order among equals) when every session has one turn or the loop is open,
    /// by first appearance in the file in a closed loop over sessions of several turns.
    pub requests: Vec<Request>,
    /// First request of each session, in the order in which sessions start.
    pub session_starts: Vec<RequestId>,
    /// Names of sessions that were given one, by session number. Sessions are numbered in the order of the input.
    pub session_names: Vec<Option<String>>,
    /// Interned chunk ids of all prompts, back to back; see [`Request::prompt`].
    pub chunk_ids: Vec<u32>,
    /// The id as read for each interned chunk id; empty for generated prompts.
    pub chunk_names: Vec<u64>,
    /// The time stamp of the input that became time 0, in milliseconds of virtual time.
    pub origin_ms: f64,
    /// Closed loop: sessions in flight at most.
    pub concurrency: Option<u32>,
    /// What was read, used, dropped and repaired.
    pub input: InputTally,
}

impl Workload {
    /// When the last request comes if every one is answered at once.
    pub fn latest_arrival(&self) -> SimTime {
        let is_open = self.concurrency.is_none();
        let last_turn = |&start: &RequestId| {
            let first = &self.requests[start.0 as usize];
            let mut at = if is_open { first.arrival } else { SimTime::ZERO };
            let mut next = first.next_turn;
            while let Some(turn) = next {
                let turn = &self.requests[turn.0 as usize];
                at += turn.delay;
                next = turn.next_turn;
            }
            at
        };
        self.session_starts.iter().map(last_turn).max().unwrap_or(SimTime::ZERO)
    }
}

/// What the request at `index` is called if nobody gave it a name.
pub(crate) fn default_name(index: usize) -> String {
    format!("request_{}", index as u64 + 1)
}

/// One request.
#[derive(Clone, Debug)]
pub struct Request {
    /// Arrival of a session's first turn in an open loop. Closed loops and later turns do not use it.
    pub arrival: SimTime,
    /// Think time between the end of the previous turn and this one.
    pub delay: SimDuration,
    /// Prompt tokens; at least 1.
    pub input_length: u32,
    /// Output tokens asked for; 0 asks for the prompt to be computed only.
    pub output_length: u32,
    /// Identity of the prompt's content.
    pub prompt: Prompt,
    /// Session number, in the order of the input; among turns that are ready at one time the lowest goes first.
    pub session: u32,
    /// Place within the session, from 0.
    pub turn: u32,
    /// The turn that follows in the same session.
    pub next_turn: Option<RequestId>,
    /// The data-parallel rank that has to take it, if that matters.
    pub dp_rank: Option<u32>,
    /// The name it was given, if any.
    pub name: Option<Box<str>>,
}

/// The content of a prompt as a run of chunk ids: equal ids at equal places mean equal tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prompt {
    /// First chunk in [`Workload::chunk_ids`].
    pub first_chunk: u32,
    /// Number of chunks; 0 means that the prompt shares nothing with any other.
    pub chunks: u32,
    /// Tokens per chunk; the last chunk may be cut short by the prompt's length.
    pub tokens_per_chunk: u32,
}

/// What became of the rows of the input.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct InputTally {
    /// Rows read (blank lines do not count).
    pub read: u64,
    /// Requests made from them.
    pub used: u64,
    /// Rows left out, by kind.
    pub dropped: indexmap::IndexMap<String, u64>,
    /// Rows changed to be usable, by kind.
    pub repaired: indexmap::IndexMap<String, u64>,
    /// Rows with a field that has no effect, by field.
    pub ignored: indexmap::IndexMap<String, u64>,
    /// Requests that look wrong and are used all the same, by kind.
    pub suspicious: indexmap::IndexMap<String, u64>,
}
