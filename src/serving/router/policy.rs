//! What a routing policy sees and answers.

use crate::report::record::Role;
use crate::serving::message::{Serving, WorkerId};
use crate::simulation::{ActorRng, Context, SimDuration, SimTime};
use crate::workload::RequestId;

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

    /// Which parts of the views have to be kept up to date. What is not needed costs nothing.
    fn needs(&self) -> Needs {
        Needs::default()
    }

    /// Told once, before anything else, which pool the policy serves: prefill and decode pools may be routed by two
    /// instances of one policy.
    fn serve_role(&mut self, _role: Role) {}

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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// The load placed and not finished: every field of [`WorkerView`] but `overlap_blocks`.
    pub load: bool,
    /// [`WorkerView::overlap_blocks`].
    pub overlap: bool,
    /// How much later than the end of a pass the router hears of changes of a cache.
    pub kv_event_lag: SimDuration,
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
}

/// A worker as a router sees it, with respect to one request. Fields that the policy does not [need](Needs) stay 0.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WorkerView {
    /// Which.
    pub id: WorkerId,
    /// Place of this attention-data-parallel rank within its worker.
    pub rank: u32,
    /// Blocks of the request, from its start, that the worker reported to have in its cache.
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
