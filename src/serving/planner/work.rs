//! How much work a request is, from the timing of the workers.
//!
//! A worker that computes prompts spends the time of a pass over the prompt; one that generates spends, for each output token, its
//! part of a pass over the largest batch that keeps the gap between tokens within a bound. An aggregated worker does both. It is a
//! fluid picture: passes that do both at once, caches and queues are left out.

use crate::report::record::Role;
use crate::timing::{Chunk, DecodeBatch};

use super::PoolSetup;

/// Requests that run at a time where a worker has no limit.
const DEFAULT_SEQS: u32 = 512;

/// The work of requests on the workers of a pool.
#[derive(Clone, Debug)]
pub struct WorkModel {
    pool: PoolSetup,
    itl_ms: f64,
}

impl WorkModel {
    /// Work in a pool whose tokens are to come at most `itl_ms` apart.
    pub fn new(pool: &PoolSetup, itl_ms: f64) -> Self {
        Self { pool: pool.clone(), itl_ms }
    }

    /// Seconds that one worker is busy with a request of so many tokens.
    pub fn seconds(&self, input_tokens: u32, output_tokens: u32) -> f64 {
        let prompt_ms = if self.pool.role == Role::Decode { 0.0 } else { self.prefill_ms(input_tokens) };
        let output_ms = if self.pool.role == Role::Prefill {
            0.0
        } else {
            f64::from(output_tokens) * self.token_ms(input_tokens.saturating_add(output_tokens / 2))
        };
        (prompt_ms + output_ms) / 1e3 / f64::from(self.pool.dp_size)
    }

    /// Time to compute a prompt, in passes as large as they may be.
    fn prefill_ms(&self, tokens: u32) -> f64 {
        let most = self.pool.max_num_batched_tokens.unwrap_or(u32::MAX).max(1);
        let pass = |new_tokens: u32| {
            let nobody = DecodeBatch { requests: 0, context_tokens: 0 };
            let chunk = [Chunk { new_tokens, prefix_tokens: 0 }];
            self.pool.pricer.pass(&chunk, nobody).map_or(0.0, crate::simulation::SimDuration::as_ms)
        };
        let (full, rest) = (tokens / most, tokens % most);
        let mut ms = 0.0;
        if full > 0 {
            ms += f64::from(full) * pass(most);
        }
        if rest > 0 {
            ms += pass(rest);
        }
        ms
    }

    /// Time of a token in the largest batch of these contexts that keeps the bound.
    fn token_ms(&self, context: u32) -> f64 {
        let context_tokens = u64::from(context.max(1));
        let by_memory = self.pool.rank_kv_tokens / context_tokens;
        let most = u64::from(self.pool.max_num_seqs.unwrap_or(DEFAULT_SEQS)).min(by_memory).max(1) as u32;
        let pass_ms = |requests: u32| {
            let batch = DecodeBatch { requests, context_tokens: u64::from(requests) * context_tokens };
            self.pool.pricer.pass(&[], batch).map_or(f64::INFINITY, crate::simulation::SimDuration::as_ms)
        };
        let (mut fits, mut fails) = (1, most + 1);
        while fails - fits > 1 {
            let middle = fits + (fails - fits) / 2;
            if pass_ms(middle) <= self.itl_ms { fits = middle } else { fails = middle }
        }
        pass_ms(fits) / f64::from(fits)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::simulation::SimDuration;
    use crate::timing::{Fixed, PassPricer};

    /// Prompts take 10 ms a pass, decode passes 2 ms; 10,000 KV tokens and four requests at a time.
    pub(in super::super) fn pool(role: Role) -> PoolSetup {
        PoolSetup {
            role,
            workers: 1,
            dp_size: 1,
            gpus_per_worker: 1,
            startup: SimDuration::ZERO,
            max_num_batched_tokens: Some(1000),
            max_num_seqs: Some(4),
            context_length: None,
            block_size: 50,
            rank_kv_tokens: 10_000,
            speculative_nextn: 0,
            pricer: PassPricer::new(Arc::new(Fixed { prefill_ms: 10.0, decode_ms: 2.0 }), 1.0, 1.0),
        }
    }

    #[test]
    fn a_worker_is_busy_with_its_part_of_a_request() {
        let seconds = |role, itl_ms| WorkModel::new(&pool(role), itl_ms).seconds(1500, 100);
        assert!((seconds(Role::Prefill, 50.0) - 0.02).abs() < 1e-12, "two passes");
        assert!((seconds(Role::Decode, 50.0) - 0.05).abs() < 1e-12, "100 tokens in batches of four");
        assert!((seconds(Role::Agg, 50.0) - 0.07).abs() < 1e-12);
        assert!((seconds(Role::Decode, 1.0) - 0.2).abs() < 1e-12, "a bound that no batch keeps leaves one");
    }
}
