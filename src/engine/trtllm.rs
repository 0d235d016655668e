//! What is particular to TensorRT-LLM among the paged schedulers: a request enters only when it is sure to run to its
//! end, so nobody ever gives way ("guaranteed no evict").

use super::kv::{KvCache, Match};
use super::paged::{Limits, PagedEngine, Rules};
use super::sequence::Sequence;
use crate::workload::Request;

/// An engine rank that schedules like TensorRT-LLM.
pub type TrtllmEngine = PagedEngine<Trtllm>;

/// TensorRT-LLM's rules.
#[derive(Debug)]
pub struct Trtllm;

impl Rules for Trtllm {
    /// Cut to what the cache and the model can hold beside the prompt.
    fn output_tokens(request: &Request, limits: &Limits, cache: &KvCache) -> u32 {
        let cache_tokens = u64::from(cache.capacity()) * u64::from(cache.block_size());
        let room =
            cache_tokens.min(u64::from(limits.max_model_len)).saturating_sub(u64::from(request.input_length));
        request.output_length.min(u32::try_from(room).unwrap_or(u32::MAX))
    }

    fn never_fits(sequence: &Sequence, cache: &KvCache) -> bool {
        u64::from(sequence.prompt) >= u64::from(cache.capacity()) * u64::from(cache.block_size())
    }

    /// Room for the sequence at its longest, beside what everybody admitted may still take.
    fn has_room<'a>(
        head: &Sequence,
        found: Match,
        holders: impl Iterator<Item = &'a Sequence>,
        cache: &KvCache,
    ) -> bool {
        let at_most =
            |sequence: &Sequence| u64::from((sequence.prompt + sequence.wanted).div_ceil(cache.block_size()));
        let still_to_take =
            |sequence: &Sequence| at_most(sequence).saturating_sub(u64::from(sequence.hold.blocks()));
        let promised: u64 = holders.map(still_to_take).sum();
        at_most(head) + promised <= u64::from(cache.available()) + u64::from(found.referenced)
    }

    /// A prompt may be found whole.
    fn look_up_tokens(sequence: &Sequence) -> u32 {
        sequence.known()
    }
}
