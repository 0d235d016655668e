//! Passes that the planner is shown before the first tick, from the timing of its workers.

use crate::engine::metrics::{PassMetrics, Tally};
use crate::serving::planner::PoolSetup;
use crate::timing::{Chunk, DecodeBatch};

/// Steps of prompt lengths and of batch sizes.
const GRANULARITY: u32 = 8;
const SHORTEST_PROMPT: u32 = 100;
const CONTEXTS: [u32; 4] = [500, 2000, 4000, 8000];
/// What is assumed of a worker without limits.
const DEFAULT_BATCHED_TOKENS: u32 = 8192;
const DEFAULT_SEQS: u32 = 512;

/// Single prompts of growing length.
pub(super) fn prefill_passes(pool: &PoolSetup) -> Vec<PassMetrics> {
    let most = pool.max_num_batched_tokens.unwrap_or(DEFAULT_BATCHED_TOKENS);
    let step = (most.saturating_sub(SHORTEST_PROMPT) / GRANULARITY).max(1);
    let mut passes = Vec::new();
    for tokens in (SHORTEST_PROMPT..=most).step_by(step as usize) {
        let nobody = DecodeBatch { requests: 0, context_tokens: 0 };
        let prompt = [Chunk { new_tokens: tokens, prefix_tokens: 0 }];
        if let Ok(wall) = pool.pricer.pass(&prompt, nobody) {
            let mut prefill = Tally::default();
            prefill.add(tokens);
            let prefill_tokens = u64::from(tokens);
            passes.push(PassMetrics { wall, prefill, prefill_tokens, ..PassMetrics::default() });
        }
    }
    passes
}

/// Batches of growing size over contexts of growing length, as far as they fit.
pub(super) fn decode_passes(pool: &PoolSetup) -> Vec<PassMetrics> {
    let most = pool.max_num_seqs.unwrap_or(DEFAULT_SEQS);
    let step = (most / GRANULARITY).max(1);
    let mut passes = Vec::new();
    for context in CONTEXTS {
        for requests in (1..=most).step_by(step as usize) {
            let context_tokens = u64::from(requests) * u64::from(context);
            if context_tokens > pool.rank_kv_tokens {
                break;
            }
            if let Ok(wall) = pool.pricer.pass(&[], DecodeBatch { requests, context_tokens }) {
                let mut decode = Tally::default();
                for _ in 0..requests {
                    decode.add(context);
                }
                passes.push(PassMetrics { wall, decode, ..PassMetrics::default() });
            }
        }
    }
    passes
}
