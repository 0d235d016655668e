//! One inference engine: its scheduler and its KV cache.
//!
//! An engine has no clock of its own. Its worker tells it when a pass may start ([`Engine::start_pass`]) and when it is
//! over ([`Engine::complete_pass`]); the engine says how long it takes and what came out. A *pass* is one forward step of
//! the model; where nothing but generation goes on, the engine plans a run of passes at once and answers with the
//! end of the last. A request that arrives meanwhile cuts the run short at the pass in progress
//! ([`Engine::enqueue`]), so the result is the same as pass by pass.

pub mod kv;
mod sequence;
pub mod vllm;

use crate::report::record::{Counters, PassTimeline};
use crate::simulation::{InvalidDuration, SimTime};
use crate::workload::RequestId;
use crate::workload::prefix::SegmentId;

/// A scheduler with its KV cache.
pub trait Engine: Send {
    /// Puts a request at the end of the waiting queue. If that cuts a run of passes short, the answer is the new end of
    /// the work in progress.
    fn enqueue(&mut self, request: RequestId, now: SimTime) -> Option<SimTime>;

    /// Starts the next pass, or run of passes, and says when it ends; `None` when there is nothing to do. Admissions are
    /// reported at once.
    fn start_pass(&mut self, now: SimTime, signals: &mut Signals) -> Result<Option<SimTime>, EngineError>;

    /// Makes what the pass did visible.
    fn complete_pass(&mut self, signals: &mut Signals);

    /// Whether there are requests, waiting or running.
    fn has_work(&self) -> bool;

    /// Ends the run at `limit`: passes that are not over by then never happened. Returns the end of the last one that did.
    fn stop(&mut self, limit: SimTime) -> Option<SimTime>;

    /// Requests that are still here, with what they have generated.
    fn unfinished(&self) -> Vec<(RequestId, TokenStamps)>;

    /// What was counted so far.
    fn counters(&self) -> Counters;

    /// KV blocks that some request holds; 0 when there are none left.
    fn blocks_held(&self) -> u32;

    /// The ends of all passes, taken out.
    fn take_timeline(&mut self) -> PassTimeline;

    /// One line on what keeps the requests that are here from running.
    fn waiting_for(&self) -> String;
}

/// Why an engine cannot go on.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum EngineError {
    /// The timing model gave something that is not a duration.
    #[error("the timing model priced a pass at an impossible duration: {0}")]
    Timing(#[from] InvalidDuration),
    /// Requests are waiting, nothing is running, and none can start.
    #[error("no request can be scheduled: {0}")]
    Stuck(String),
}

/// What a pass did, in the order in which it did it. Buffers are reused from pass to pass.
#[derive(Debug, Default)]
pub struct Signals {
    /// Requests that entered the batch.
    pub admitted: Vec<Admission>,
    /// Requests whose state the outside sees change.
    pub outputs: Vec<Output>,
    /// Segments whose findable blocks changed, with their number now.
    pub kv_changes: Vec<(SegmentId, u32)>,
}

impl Signals {
    /// Empties all buffers.
    pub fn clear(&mut self) {
        self.admitted.clear();
        self.outputs.clear();
        self.kv_changes.clear();
    }
}

/// A request entered the batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Admission {
    /// Which.
    pub request: RequestId,
    /// Tokens found in the cache.
    pub reused_tokens: u32,
}

/// A change that the outside sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output {
    /// The first token left: the prompt is computed.
    FirstToken(RequestId),
    /// The request ran to its end.
    Completed(RequestId, TokenStamps),
    /// The engine can never run this request; it may have generated before it outgrew the cache.
    Rejected(RequestId, TokenStamps),
}

/// When the tokens of a request left.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TokenStamps {
    /// How many.
    pub count: u32,
    /// The first.
    pub first: Option<SimTime>,
    /// The second.
    pub second: Option<SimTime>,
    /// The latest.
    pub last: Option<SimTime>,
}
