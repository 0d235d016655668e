//! What is particular to vLLM among the paged schedulers: requests enter on the blocks they need now, and give way to
//! each other when they grow.

use super::kv::{KvCache, Match};
use super::paged::{Limits, PagedEngine, Rules};
use super::sequence::Sequence;
use crate::workload::Request;

/// An engine rank that schedules like vLLM.
pub type VllmEngine = PagedEngine<Vllm>;

/// vLLM's rules.
#[derive(Debug)]
pub struct Vllm;

impl Rules for Vllm {
    fn output_tokens(request: &Request, _limits: &Limits, _cache: &KvCache) -> u32 {
        request.output_length
    }

    /// The reference asks only of requests that never ran whether the cache is large enough, and hangs on one that
    /// outgrew it; here both are rejected.
    fn never_fits(sequence: &Sequence, cache: &KvCache) -> bool {
        sequence.known().div_ceil(cache.block_size()) > cache.capacity()
    }

    /// Room for the whole known sequence, although blocks are taken chunk by chunk and nothing is set aside: two long
    /// prompts may both enter and collide later.
    fn has_room<'a>(
        head: &Sequence,
        found: Match,
        _holders: impl Iterator<Item = &'a Sequence>,
        cache: &KvCache,
    ) -> bool {
        head.known().div_ceil(cache.block_size()) - found.referenced <= cache.available()
    }

    /// The last known token has to be computed, or there would be nothing to sample from.
    fn look_up_tokens(sequence: &Sequence) -> u32 {
        sequence.known() - u32::from(sequence.generated < sequence.wanted)
    }
}
