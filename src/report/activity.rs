//! What workers and routers were doing all along; kept only if it is asked for, and without influence on the run.

use super::record::Role;
use crate::simulation::SimTime;
use crate::workload::RequestId;

/// How much is kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ActivityDetail {
    /// Nothing: it costs nothing.
    #[default]
    None,
    /// What each worker did from pass to pass.
    Passes,
    /// Also every chunk of every prompt, every admission and every choice of a router.
    Everything,
}

/// What was going on, each list in the order of the ends of what it lists.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Activity {
    /// How much was kept.
    pub detail: ActivityDetail,
    /// Work of each worker rank.
    pub passes: Vec<PassSpan>,
    /// Prompt work of each request.
    pub chunks: Vec<ChunkSpan>,
    /// Entries of requests into a batch.
    pub admissions: Vec<AdmissionRecord>,
    /// Choices of routers.
    pub routes: Vec<RouteRecord>,
}

/// Passes of one rank that follow each other with the same requests in them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PassSpan {
    /// The pool.
    pub role: Role,
    /// The rank within it.
    pub rank: u32,
    /// Start of the first pass.
    pub start: SimTime,
    /// End of the last.
    pub end: SimTime,
    /// Number of passes.
    pub passes: u32,
    /// Prompts in each of them.
    pub prefill_requests: u32,
    /// Prompt tokens computed in each.
    pub prefill_tokens: u64,
    /// Requests that generate in each.
    pub decode_requests: u32,
    /// Sum of their known lengths before the first pass, in tokens.
    pub context_tokens: u64,
    /// Requests waiting on the rank when the first pass was composed.
    pub waiting: u32,
    /// KV blocks held by requests at the end.
    pub blocks_held: u32,
}

/// Prompt tokens of one request in one pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkSpan {
    /// The pool.
    pub role: Role,
    /// The rank within it.
    pub rank: u32,
    /// Whose prompt.
    pub request: RequestId,
    /// Start of the pass.
    pub start: SimTime,
    /// End of the pass.
    pub end: SimTime,
    /// Tokens computed.
    pub new_tokens: u32,
    /// Tokens computed or reused before.
    pub prefix_tokens: u32,
}

/// A request entered a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AdmissionRecord {
    /// When.
    pub at: SimTime,
    /// Which.
    pub request: RequestId,
    /// Prompt tokens found in the cache.
    pub reused_tokens: u32,
}

/// A router placed a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouteRecord {
    /// When.
    pub at: SimTime,
    /// The pool.
    pub role: Role,
    /// Which request.
    pub request: RequestId,
    /// The rank that it was given to.
    pub rank: u32,
    /// Every rank that could take it, as the router saw it.
    pub candidates: Vec<RouteCandidate>,
}

/// A rank in the eyes of a router. What the policy does not ask for is 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RouteCandidate {
    /// Which.
    pub rank: u32,
    /// Blocks of the request that it is known or assumed to have in its cache.
    pub overlap_blocks: u32,
    /// Prompt tokens placed there and not computed yet.
    pub active_prefill_tokens: u64,
    /// Blocks of the requests placed there.
    pub active_blocks: u64,
    /// Requests placed there that have not ended.
    pub active_requests: u32,
}
