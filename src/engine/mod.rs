//! One inference engine: its scheduler and its KV cache.
//!
//! An engine has no clock of its own. Its worker tells it when a pass may start ([`Engine::start_pass`]) and when it is
//! over ([`Engine::complete_pass`]); the engine says how long it takes and what came out. A *pass* is one forward step of
//! the model; where nothing but generation goes on, the engine plans a run of passes at once and answers with the
//! end of the last. A request that arrives meanwhile cuts the run short at the pass in progress ([`Engine::cut`]), so the
//! result is the same as pass by pass.
//!
//! In a disaggregated fleet a *prefill* engine computes prompts and keeps their blocks until they have been fetched
//! ([`Engine::release_source`]); a *decode* engine sets blocks aside ([`Engine::ask_for_reservation`],
//! [`Engine::grant_reservations`]) and starts to generate when their content has arrived ([`Engine::activate`]).

mod backlog;
pub mod kv;
pub mod metrics;
pub mod paged;
mod progress;
mod sequence;
pub mod sglang;
pub mod speculation;
pub mod trtllm;
pub mod vllm;
mod waiting;

use std::sync::Arc;

use self::kv::FutureUses;
use self::metrics::{Accepted, PassMetrics};
use crate::report::record::{Counters, PassTimeline};
use crate::simulation::{InvalidDuration, SimTime};
use crate::timing::{Chunk, PassPricer};
use crate::workload::prefix::{PrefixTree, SegmentId};
use crate::workload::{RequestId, Workload};

/// What an engine shares with all others of its run.
#[derive(Clone, Debug)]
pub struct Inputs {
    /// The requests.
    pub workload: Arc<Workload>,
    /// Their shared prefixes.
    pub tree: Arc<PrefixTree>,
    /// When they will need which prefixes, for engines that evict by that.
    pub future: Option<Arc<FutureUses>>,
    /// How long passes take.
    pub pricer: PassPricer,
}

/// A scheduler with its KV cache.
pub trait Engine: Send {
    /// Puts a request at the end of the waiting queue. True when it may change what is in progress, which then has to be
    /// [cut](Engine::cut).
    fn enqueue(&mut self, request: RequestId) -> bool;

    /// Drops the passes in progress that have not begun at `now`; returns the new end if there were any. `started` tells
    /// whether a pass that starts at exactly this time has begun already.
    fn cut(&mut self, now: SimTime, started: bool) -> Option<SimTime>;

    /// Starts the next pass, or run of passes, and says when it ends; `None` when there is nothing to do. Admissions are
    /// reported at once.
    fn start_pass(
        &mut self,
        now: SimTime,
        cadence: Cadence,
        signals: &mut Signals,
    ) -> Result<Option<SimTime>, EngineError>;

    /// The ends of the passes in progress; empty when none has work in it.
    fn pass_ends(&self) -> &[SimTime];

    /// Replaces the ends of the passes in progress, keeping the first `ends.len()` of them: ranks of one group wait for
    /// each other.
    fn set_pass_ends(&mut self, ends: &[SimTime]);

    /// Makes what the pass did visible.
    fn complete_pass(&mut self, signals: &mut Signals);

    /// From now on keeps what [`Engine::pass_metrics`] needs.
    fn watch(&mut self);

    /// Pass number `pass` of those in progress ([`Engine::pass_ends`]); `wall` is left out. Only while it is watched.
    fn pass_metrics(&self, pass: usize) -> PassMetrics;

    /// The prompt work of the passes in progress, in the order of the batch.
    fn pass_chunks(&self, chunks: &mut Vec<(RequestId, Chunk)>);

    /// Tokens that speculative decoding yielded since this was last asked; none without it.
    fn take_accepted(&mut self) -> Accepted;

    /// Whether there are requests that a pass could work on, waiting or running.
    fn has_work(&self) -> bool;

    /// Whether no request is here in any way, so that the engine may go.
    fn is_empty(&self) -> bool;

    /// Gives up the blocks of a prompt that has been fetched.
    fn release_source(&mut self, request: RequestId);

    /// Asks for blocks for a prompt that will be computed elsewhere; granted strictly in the order of asking.
    fn ask_for_reservation(&mut self, request: RequestId);

    /// Grants what can be granted, between two passes.
    fn grant_reservations(&mut self, granted: &mut Vec<Reservation>);

    /// The content of reserved blocks has arrived: the request may generate.
    fn activate(&mut self, request: RequestId);

    /// Ends the run at `limit`: passes that are not over by then never happened.
    fn stop(&mut self, limit: SimTime);

    /// Requests that are still here, with what they have generated.
    fn unfinished(&self) -> Vec<(RequestId, TokenStamps)>;

    /// What was counted so far.
    fn counters(&self) -> Counters;

    /// KV blocks that some request holds; 0 when there are none left.
    fn blocks_held(&self) -> u32;

    /// The ends of all passes.
    fn timeline(&mut self) -> &mut PassTimeline;

    /// Between two passes: the earliest pass in which a request that is still here had a token.
    fn oldest_token_pass(&self) -> Option<u32>;

    /// One line on what keeps the requests that are here from running; `None` when there are none.
    fn waiting_for(&self) -> Option<String>;
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

/// Whether the passes to start may take up prompt work beside decodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cadence {
    /// Every pass may.
    Free,
    /// Ranks of a group take turns: this pass and those after it may not, until `passes` have gone by.
    Deferred {
        /// Passes until the next that may.
        passes: u32,
    },
    /// This pass may, the next one starts a deferral.
    Open,
}

/// Blocks set aside for a request on their way, or the refusal to ever do so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reservation {
    /// Blocks are there.
    Granted {
        /// For whom.
        request: RequestId,
        /// Blocks that the cache did not have yet.
        new_blocks: u32,
    },
    /// The request can never run here.
    Refused {
        /// Which.
        request: RequestId,
    },
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
    /// Tokens found in the cache; of a request that comes back, generated ones too.
    pub reused_tokens: u32,
}

/// A change that the outside sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output {
    /// The first token left: the prompt is computed.
    FirstToken(RequestId),
    /// A prefill engine has computed the prompt; its blocks wait to be fetched.
    PromptComputed(RequestId),
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
