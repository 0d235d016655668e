//! What engines have in common: what they are given, what is asked of them, and what a pass of theirs does.

use spica::config::scenario::{Backend, Pool};
use spica::report::record::Role;
use spica::simulation::SimDuration;
use spica::workload::{Request, RequestId, Workload};

use super::content::Identities;
use super::price::Batch;
use super::{paged, sglang};

/// What all engines of a run share.
#[derive(Debug)]
pub(super) struct Shared<'a> {
    pub workload: &'a Workload,
    pub identities: Identities,
}

/// What a pass does. It was evaluated at its start; what it brings is seen at its end.
#[derive(Debug, Default)]
pub(super) struct Pass {
    pub duration: SimDuration,
    pub batch: Batch,
    /// Requests that were given a share, possibly of no tokens.
    pub scheduled: usize,
    /// Requests that joined the running ones, with the tokens they reuse.
    pub admitted: Vec<(RequestId, u32)>,
    /// Requests with a token, once for every token.
    pub emitted: Vec<RequestId>,
    /// Requests of a prefill worker whose prompt is computed and waits to be fetched.
    pub held: Vec<RequestId>,
    /// Requests that are done.
    pub finished: Vec<RequestId>,
    /// Requests that are refused.
    pub rejected: Vec<RequestId>,
    pub preemptions: u64,
    /// Blocks whose content made room for another's.
    pub evictions: u64,
    /// What a pass of no length did just before.
    pub settled: Settled,
    /// Tokens computed for requests with prompt tokens in the pass.
    pub prefill_tokens: u64,
    /// Requests that decode without prompt tokens in the pass.
    pub pure_decode_requests: u64,
    /// Their tokens, the new one not counted.
    pub pure_decode_tokens: u64,
}

/// What is over when a pass starts.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Settled {
    pub preemptions: u64,
    pub evictions: u64,
}

/// What comes of asking for blocks on a decode worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reservation {
    /// It has its blocks, of which this many are yet to be filled.
    Granted { missing_blocks: u32, evictions: u64 },
    /// It could never run here.
    Rejected,
}

/// One engine.
#[derive(Debug)]
pub(super) enum Engine<'a> {
    Paged(Box<paged::Engine<'a>>),
    Sglang(Box<sglang::Engine<'a>>),
}

impl<'a> Engine<'a> {
    /// The engine of rank `rank` of all that have this role.
    pub(super) fn new(role: Role, pool: &'a Pool, rank: u32, requests: usize) -> Self {
        let (options, timing) = (&pool.engine, &pool.timing);
        match options.backend {
            Backend::Vllm | Backend::Trtllm => {
                Self::Paged(Box::new(paged::Engine::new(role, options, timing, rank, requests)))
            }
            Backend::Sglang => {
                Self::Sglang(Box::new(sglang::Engine::new(role, options, timing, pool.dp_size, requests)))
            }
        }
    }

    pub(super) fn submit(&mut self, id: RequestId, request: &Request) {
        match self {
            Self::Paged(engine) => engine.submit(id, request),
            Self::Sglang(engine) => engine.submit(id, request),
        }
    }

    pub(super) fn has_work(&self) -> bool {
        match self {
            Self::Paged(engine) => engine.has_work(),
            Self::Sglang(engine) => engine.has_work(),
        }
    }

    /// Blocks held by requests.
    pub(super) fn blocks_held(&self) -> usize {
        match self {
            Self::Paged(engine) => engine.blocks_held(),
            Self::Sglang(engine) => engine.blocks_held(),
        }
    }

    /// Puts a pass together and carries it out. `cadence` tells whether prompts have their turn in it.
    pub(super) fn pass(&mut self, cadence: bool, shared: &mut Shared<'_>) -> Pass {
        match self {
            Self::Paged(engine) => engine.pass(cadence, shared),
            Self::Sglang(engine) => engine.pass(shared),
        }
    }

    /// Gives up the blocks of a prompt that was fetched, or will never be.
    pub(super) fn release_source(&mut self, request: RequestId, shared: &mut Shared<'_>) {
        match self {
            Self::Paged(engine) => engine.release_source(request),
            Self::Sglang(engine) => engine.release_source(request, shared),
        }
    }

    /// Queues for blocks on this engine.
    pub(super) fn ask(&mut self, id: RequestId, request: &Request) {
        match self {
            Self::Paged(engine) => engine.ask(id, request),
            Self::Sglang(engine) => engine.ask(id, request),
        }
    }

    /// Serves the head of those who ask; `None` when there is none or it has to wait.
    pub(super) fn reserve(&mut self, shared: &mut Shared<'_>) -> Option<(RequestId, Reservation)> {
        match self {
            Self::Paged(engine) => engine.reserve(shared),
            Self::Sglang(engine) => engine.reserve(shared),
        }
    }

    /// The content of a request's blocks has arrived: it may go on.
    pub(super) fn activate(&mut self, request: RequestId, shared: &mut Shared<'_>) {
        match self {
            Self::Paged(engine) => engine.activate(request),
            Self::Sglang(engine) => engine.activate(request, shared),
        }
    }
}

impl Pass {
    /// Whether anything came of it; a pass that does nothing does not take place.
    pub(super) fn acts(&self) -> bool {
        let preemptions = self.preemptions + self.settled.preemptions;
        self.scheduled > 0 || preemptions > 0 || !self.rejected.is_empty()
    }
}
