//! What a routing policy sees and answers.

use crate::report::activity::RouteCandidate;
use crate::report::record::Role;
use crate::serving::message::{Serving, WorkerId};
use crate::simulation::{ActorRng, Context, SimDuration, SimTime};
use crate::workload::RequestId;

use super::waiting_room::Queue;

/// Decides which worker serves a request.
///
/// A policy's fields are its configuration (derive `Deserialize` with `deny_unknown_fields`; mark running state
/// `#[serde(skip)]`). Ties are broken as the policy documents: by the lowest worker, or by its own random stream.
pub trait RoutingPolicy: Send {
    /// Chooses a worker for a request. `workers` holds the workers that take requests, by ascending id; it is never empty.
    fn route(
        &mut self,
        request: &RequestView,
        workers: &[WorkerView],
        ctx: &mut PolicyContext<'_, '_>,
    ) -> Route;

    /// What the policy wants to know, and whether requests queue in front of it. What is not needed costs nothing.
    fn needs(&self) -> Needs {
        Needs::default()
    }

    /// Told of every worker at the start and again whenever the load of one changes, if the policy
    /// [needs](Needs::load) the load: enough to keep an order of the workers instead of looking at all of them for each request.
    /// Fields that concern one request, such as `overlap_blocks`, mean nothing here.
    fn load_changed(&mut self, _worker: &WorkerView) {}

    /// Told when a worker stops taking requests, if the policy [needs](Needs::load) the load; it is not among the views any more,
    /// and its id never comes back.
    fn worker_left(&mut self, _worker: WorkerId) {}

    /// Told once, before anything else, which pool the policy serves.
    fn serve_role(&mut self, _role: Role) {}

    /// Adapts a policy that is written once for a deployment of two pools to one of them. Not called for a router that a
    /// pool has of its own, which means what it says.
    fn derive_for(&mut self, _role: Role) {}

    /// Problems of the configuration, one sentence each, naming the field.
    fn problems(&self) -> Vec<String> {
        Vec::new()
    }
}

/// A routing decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// Send it to this worker.
    To(WorkerId),
    /// Keep it in front of the router; the policy is asked again when its load changes.
    Hold,
}

/// What a policy wants to know about the workers.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Needs {
    /// The load placed and not finished: [`WorkerView::active_requests`] and [`WorkerView::active_prefill_tokens`].
    pub load: bool,
    /// The blocks of that load: [`WorkerView::active_blocks`], [`WorkerView::active_blocks_unshared`] and
    /// [`WorkerView::shared_active_blocks`].
    pub blocks: bool,
    /// [`WorkerView::overlap_blocks`].
    pub overlap: Overlap,
    /// When requests wait in front of the router before the policy is asked at all.
    pub queue: Option<Queue>,
}

impl Needs {
    /// Whether the router has to hear of first tokens and ends.
    pub fn hears_of_load(&self) -> bool {
        self.load || self.blocks || self.queue.is_some()
    }

    /// Whether the router has to hear of changes of the caches.
    pub fn hears_of_caches(&self) -> bool {
        matches!(self.overlap, Overlap::Reported { .. })
    }
}

/// How a router knows what is in the workers' caches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Overlap {
    /// It does not.
    #[default]
    Unknown,
    /// The workers report changes.
    Reported {
        /// How much later than the end of a pass the router hears of them.
        lag: SimDuration,
    },
    /// It assumes that what it placed on a worker stays there for a while.
    Assumed {
        /// How long.
        ttl: SimDuration,
        /// How many blocks it assumes to fit into a worker's cache; without a number, any.
        capacity_blocks: Option<u64>,
    },
}

/// A request as a router sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestView {
    /// Which.
    pub id: RequestId,
    /// Prompt tokens.
    pub input_length: u32,
    /// Output tokens asked for.
    pub output_length: u32,
    /// Tokens per KV block.
    pub block_size: u32,
    /// Its session; requests without one have a session of their own.
    pub session: u32,
    /// Place within the session.
    pub turn: u32,
}

impl RequestView {
    /// Whole KV blocks of the prompt.
    pub fn blocks(&self) -> u32 {
        self.input_length / self.block_size
    }

    /// Prompt tokens that a worker with `overlap_blocks` of them in its cache would have to compute.
    pub fn new_tokens(&self, overlap_blocks: u32) -> u64 {
        let cached = u64::from(overlap_blocks) * u64::from(self.block_size);
        u64::from(self.input_length).saturating_sub(cached)
    }
}

/// A worker as a router sees it, with respect to one request. Fields that the policy does not [need](Needs) stay 0.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WorkerView {
    /// Which.
    pub id: WorkerId,
    /// Place of this attention-data-parallel rank within its worker.
    pub rank: u32,
    /// Blocks of the request, from its start, that the worker is known or assumed to have in its cache.
    pub overlap_blocks: u32,
    /// Prompt tokens placed there that have not led to a first token yet, without those found in the cache.
    pub active_prefill_tokens: u64,
    /// Distinct prompt blocks of the requests placed there.
    pub active_blocks: u64,
    /// The same, shared blocks counted for each request.
    pub active_blocks_unshared: u64,
    /// Blocks of the request that are among `active_blocks` already.
    pub shared_active_blocks: u32,
    /// Requests placed there that have not ended.
    pub active_requests: u32,
}

impl WorkerView {
    /// What the record of a choice holds of it.
    pub(super) fn candidate(&self) -> RouteCandidate {
        RouteCandidate {
            rank: self.id.0,
            overlap_blocks: self.overlap_blocks,
            active_prefill_tokens: self.active_prefill_tokens,
            active_blocks: self.active_blocks,
            active_requests: self.active_requests,
        }
    }

    /// A worker without load.
    pub fn idle(id: WorkerId) -> Self {
        Self {
            id,
            rank: 0,
            overlap_blocks: 0,
            active_prefill_tokens: 0,
            active_blocks: 0,
            active_blocks_unshared: 0,
            shared_active_blocks: 0,
            active_requests: 0,
        }
    }
}

/// What a policy may use beside its views.
pub struct PolicyContext<'a, 'b> {
    ctx: &'a mut Context<'b, Serving>,
}

impl<'a, 'b> PolicyContext<'a, 'b> {
    pub(super) fn new(ctx: &'a mut Context<'b, Serving>) -> Self {
        Self { ctx }
    }

    /// The present time.
    pub fn now(&self) -> SimTime {
        self.ctx.now()
    }

    /// The router's own random stream.
    pub fn rng(&mut self) -> &mut ActorRng {
        self.ctx.rng()
    }

    /// Counts a decision between equally good workers.
    pub fn note_tie(&mut self) {
        self.ctx.record().router_tie();
    }
}
