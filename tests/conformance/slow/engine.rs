//! What engines have in common: what they are given, and what a pass of theirs does.

use spica::simulation::SimDuration;
use spica::workload::{RequestId, Workload};

use super::content::Identities;
use super::price::Batch;

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
    /// Tokens computed for requests with prompt tokens in the pass.
    pub prefill_tokens: u64,
    /// Requests that decode without prompt tokens in the pass.
    pub pure_decode_requests: u64,
    /// Their tokens, the new one not counted.
    pub pure_decode_tokens: u64,
}

impl Pass {
    /// Whether anything came of it; a pass that does nothing does not take place.
    pub(super) fn acts(&self) -> bool {
        self.scheduled > 0 || self.preemptions > 0 || !self.rejected.is_empty()
    }
}
