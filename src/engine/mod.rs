//! One inference engine: its scheduler and its KV cache.
//!
//! An engine has no clock of its own. Its worker tells it when a pass may start ([`Engine::start_pass`]) and when it is
//! over ([`Engine::complete_pass`]); the engine says how long it takes and what came out. A *pass* is one forward step of
//! the model; where nothing but generation goes on, the engine plans a run of passes at once and answers with the
//! end of the last. A request that arrives meanwhile cuts the run short at the pass in progress ([`Passes::cut`]), so the
//! result is the same as pass by pass.
//!
//! The built-in engines follow vLLM, TensorRT-LLM ([`paged`]) and SGLang ([`sglang`]); a scenario chooses among them by
//! `backend`. One of your own implements [`Engine`] and [`NewEngine`], is registered under a name
//! ([`crate::registry::Registry::with_engine`]) and takes the place of the backend's by `scheduler: {policy: name}` in a pool's `engine:`.
//!
//! In a disaggregated fleet a *prefill* engine computes prompts and keeps their blocks until they have been fetched; a *decode*
//! engine sets blocks aside and starts to generate when their content has arrived: [`HandOff`].

mod backlog;
pub mod kv;
mod maker;
pub mod metrics;
pub mod paged;
mod passes;
pub mod sequence;
pub mod sglang;
pub mod speculation;
pub mod trtllm;
pub mod vllm;
mod waiting;

use std::sync::Arc;

pub use self::maker::{EnginePool, EngineSetup, NewEngine};
pub use self::passes::Passes;

use self::kv::FutureUses;
use self::metrics::{Accepted, PassMetrics};
use crate::report::peaks::Peaks;
use crate::report::record::Counters;
use crate::simulation::{InvalidDuration, SimTime};
use crate::timing::{Chunk, PassPricer};
use crate::workload::prefix::{PrefixTree, SegmentId};
use crate::workload::{RequestId, Workload};

/// What an engine shares with all others of its pool.
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

/// The scheduler and the KV cache of one rank.
///
/// # What its worker calls, and when
///
/// Whenever a request is placed on the rank, [`enqueue`](Self::enqueue): between passes or while some are in progress. Then, as long
/// as the rank [has work](Self::has_work):
///
/// 1. [`start_pass`](Self::start_pass), at an instant at which everything else that happens then has happened. The engine composes a
///    pass, prices it by [`Inputs::pricer`], [begins](Passes::begin) it, appends its end to the timeline and answers that end. Where it
///    is sure that nothing but the lengths of contexts changes from pass to pass it may append the ends of several, a *run*
///    ([`PassPricer::decode_run`]).
/// 2. If a request is enqueued meanwhile and the engine says that it may matter, the worker cuts the run short behind the pass in
///    progress; if ranks wait for each other, it moves the ends. The engine is not told: it finds what is left when it
///    [completes](Passes::complete).
/// 3. [`complete_pass`](Self::complete_pass), at the end: tokens leave, requests end, blocks are given back, and the engine says so.
///
/// At the end of a replay that is cut off, passes that are not over never happened: those of a run that are over are completed once
/// more, and [`unfinished`](Self::unfinished) tells who is left.
///
/// # What has to hold
///
/// - *A run equals its passes.* Cut anywhere, or made of single passes, the outcome is the same to the nanosecond. So a run ends no
///   later than the first pass that ends a request, sends a first token, admits somebody or changes a cache that others see.
/// - *Everybody ends once.* Each request that was enqueued is reported as completed or rejected exactly once, or is among
///   the unfinished. One that can never run is rejected, not kept.
/// - *Blocks are given back.* [`blocks_held`](Self::blocks_held) is 0 when every request is gone; it is never more than the
///   cache has.
/// - *Gaps are counted.* A request that completes adds the gaps between its tokens to the timeline, and its stamps are ends of passes
///   there: [`sequence::Sequence`] does both.
/// - *Same input, same output.* No clock, no randomness but from a seed in the configuration, no order that depends on a hash.
///
/// A violated law, an [`EngineError`] and a panic end the replay, and in a search that trial, with a message that names the worker.
pub trait Engine: Send {
    /// Puts a request at the end of the waiting queue. True when it may change what is in progress, which is then
    /// [cut](Passes::cut) behind the present pass; true is always safe.
    fn enqueue(&mut self, request: RequestId) -> bool;

    /// Starts the next pass, or run of passes, and says when it ends; `None` when there is nothing to do. Who enters the batch is
    /// reported at once, everything else when the pass is over. A pass that schedules nobody but rejects some ends at
    /// `now` and is not on the timeline.
    ///
    /// # Errors
    /// When no request can be scheduled, or the timing model gives something that is not a duration.
    fn start_pass(
        &mut self,
        now: SimTime,
        cadence: Cadence,
        signals: &mut Signals,
    ) -> Result<Option<SimTime>, EngineError>;

    /// Makes visible what the passes in progress did. In order: of each request its first token, then its end.
    fn complete_pass(&mut self, signals: &mut Signals);

    /// The passes of this rank.
    fn passes(&self) -> &Passes;

    /// The passes of this rank, for its worker to cut and to move.
    fn passes_mut(&mut self) -> &mut Passes;

    /// Whether there are requests that a pass could work on, waiting or running.
    fn has_work(&self) -> bool;

    /// Requests that are still here, by ascending number, with what they have generated.
    fn unfinished(&self) -> Vec<(RequestId, TokenStamps)>;

    /// KV blocks that some request holds.
    fn blocks_held(&self) -> u32;

    /// What was counted in passes that are over.
    fn counters(&self) -> Counters;

    /// The most requests that ran at a time and the most tokens of a pass; `None` if it does not keep account of them. Reported only:
    /// a search knows of the built-in schedulers alone that limits above these numbers made no difference.
    fn peaks(&self) -> Option<Peaks> {
        None
    }

    /// What pass number `pass` of those in progress is made of: planners steer by it and timelines show it. Only asked for after
    /// [`watch`](Self::watch). `wall` is filled in by the worker; [`PassMetrics::after`] leads from the first pass of a run to a
    /// later one.
    fn pass_metrics(&self, pass: usize) -> PassMetrics;

    /// Appends the prompt work of the passes in progress, in the order of the batch; nothing in a run of decodes.
    fn pass_chunks(&self, chunks: &mut Vec<(RequestId, Chunk)>);

    /// From now on somebody asks for [`pass_metrics`](Self::pass_metrics): an engine that always has them need not care.
    fn watch(&mut self) {}

    /// Tokens that speculative decoding yielded since this was last asked; none without it.
    fn take_accepted(&mut self) -> Accepted {
        Accepted::default()
    }

    /// Whether no request is here in any way, so that the engine may go. Differs from having no work only where requests are
    /// [handed over](HandOff).
    fn is_empty(&self) -> bool {
        !self.has_work()
    }

    /// Between two passes: the earliest pass in which a request that is still here had a token, so that those before it can be
    /// forgotten when there are very many. Unless an engine knows better, passes are kept while anybody is here.
    fn oldest_token_pass(&self) -> Option<u32> {
        (!self.is_empty()).then_some(self.passes().timeline.folded)
    }

    /// One line on what keeps the requests that are here from running; `None` when there are none.
    fn waiting_for(&self) -> Option<String> {
        let unfinished = self.unfinished();
        let (first, _) = unfinished.first()?;
        Some(format!("{} requests have not ended, the first is request {}", unfinished.len(), first.0))
    }

    /// What the engine does in a pool of its own for one phase; `None` of an engine for aggregated pools only.
    fn hand_off(&mut self) -> Option<&mut dyn HandOff> {
        None
    }
}

/// What an engine does beside its passes in a disaggregated fleet. All of it happens between two passes.
pub trait HandOff {
    /// Prefill: gives up the blocks of a prompt that has been fetched. Where blocks are set aside before prompts are computed
    /// (SGLang), also a decode engine's, for a prompt that was rejected.
    fn release_source(&mut self, request: RequestId);

    /// Decode: asks for blocks for a prompt that is computed elsewhere; granted strictly in the order of asking.
    fn ask_for_reservation(&mut self, request: RequestId);

    /// Decode: grants, or refuses for ever, what can be.
    fn grant_reservations(&mut self, granted: &mut Vec<Reservation>);

    /// Decode: the content of reserved blocks has arrived, and the request may generate.
    fn activate(&mut self, request: RequestId);
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
    /// The engine broke one of its laws.
    #[error("{0}")]
    Broken(String),
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
