//! What the model of passes says about a worker: how long its queue takes, how fast it generates, how much it can serve.

use super::model::{PassTimes, Query};
use crate::engine::metrics::PassMetrics;
use crate::report::record::Role;

/// Largest share of prompts that is ever taken to be cached.
const LARGEST_HIT_RATE: f64 = 0.95;
/// Batch sizes that are tried at most when looking for the best.
const MOST_BATCHES: u64 = 128;

/// What estimates go by beside the passes themselves.
#[derive(Clone, Copy, Debug)]
pub struct Worker<'a, M> {
    /// How long passes take.
    pub times: &'a M,
    /// What the worker does.
    pub role: Role,
    /// Tokens that one pass may compute.
    pub max_num_batched_tokens: u64,
    /// Requests that may run at a time.
    pub max_num_seqs: u64,
    /// KV tokens of one worker.
    pub max_kv_tokens: u64,
    /// Mean prompt tokens of the next request, 0 if unknown.
    pub average_isl: f64,
    /// Mean context of the next request, 0 if unknown.
    pub average_context: f64,
    /// Prompts that a pass has on average: requests and tokens.
    pub typical_prefill: (u64, u64),
    /// Share of prompts found in caches.
    pub kv_hit_rate: f64,
    /// Tokens that a decode step yields.
    pub accept_length: f64,
}

/// How much of a worker's load an estimate takes.
#[derive(Clone, Copy, Debug)]
pub struct Shares {
    /// Of its queued prompts.
    pub queue: f64,
    /// Of its generating requests.
    pub decode: f64,
    /// Whether those that wait to come back generate too.
    pub with_queued_decode: bool,
}

/// The best batch of a worker: what it can serve.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Capacity {
    /// Requests per second.
    pub requests_per_s: f64,
    /// Requests in the batch.
    pub batch: u64,
    /// Time to first token, of those that compute prompts.
    pub ttft_ms: Option<f64>,
    /// Gap between tokens, of those that generate.
    pub itl_ms: Option<f64>,
    /// Whether it meets the bounds.
    pub meets_sla: bool,
}

/// What a request and its bounds are.
#[derive(Clone, Copy, Debug)]
pub struct Demand {
    /// Prompt tokens.
    pub isl: f64,
    /// Output tokens.
    pub osl: f64,
    /// Bound of the time to first token.
    pub ttft_ms: f64,
    /// Bound of the gap between tokens.
    pub itl_ms: f64,
}

impl<M: PassTimes> Worker<'_, M> {
    fn hit_rate(&self) -> f64 {
        if self.kv_hit_rate.is_nan() { 0.0 } else { self.kv_hit_rate.clamp(0.0, LARGEST_HIT_RATE) }
    }

    /// Time to compute what is queued and one request more, in milliseconds; `None` where nothing is known.
    pub fn queue_ms(&self, pass: &PassMetrics, shares: Shares) -> Option<f64> {
        let mut tokens = pass.queued_prefill.tokens as f64 * shares.queue;
        let mut requests = f64::from(pass.queued_prefill.requests) * shares.queue;
        if self.average_isl > 0.0 {
            tokens += self.average_isl;
            requests += 1.0;
        }
        tokens *= 1.0 - self.hit_rate();
        let mut decode = pass.decode;
        if shares.with_queued_decode {
            decode = decode.and(pass.queued_decode);
        }
        let mut load = Query { prefill_requests: whole(requests).max(1), ..Query::default() };
        if self.role == Role::Agg {
            load.decode_requests = whole(f64::from(decode.requests) * shares.decode);
            load.decode_kv_tokens = whole(decode.tokens as f64 * shares.decode);
        }
        self.chunked_ms(whole(tokens), load)
    }

    /// Time to compute `tokens` prompt tokens, pass by pass, beside the decode load of `load`.
    fn chunked_ms(&self, tokens: u64, load: Query) -> Option<f64> {
        let budget = self.max_num_batched_tokens;
        let pass = |prefill_tokens| self.times.predict_ms(&Query { prefill_tokens, ..load });
        let (full, tail) = (tokens / budget, tokens % budget);
        let mut ms = 0.0;
        if full > 0 {
            ms += full as f64 * pass(budget)?;
        }
        if tail > 0 {
            ms += pass(tail)?;
        }
        Some(ms)
    }

    /// Gap between tokens with one request more, in milliseconds, taking `share` of the load; queued prompts count as
    /// contexts if they are going to be. `None` where nothing is known.
    pub fn gap_ms(&self, pass: &PassMetrics, share: f64, with_queued_prefill: bool) -> Option<f64> {
        let mut load = pass.decode.and(pass.queued_decode);
        if with_queued_prefill {
            load = load.and(pass.queued_prefill);
        }
        let (mut tokens, mut requests) = (load.tokens as f64 * share, f64::from(load.requests) * share);
        if self.average_context > 0.0 {
            tokens += self.average_context;
            requests += 1.0;
        }
        let (prefill_requests, prefill_tokens) =
            if self.role == Role::Agg { self.typical_prefill } else { (0, 0) };
        let query = Query {
            prefill_requests,
            prefill_tokens,
            prefill_kv_tokens: 0,
            decode_requests: whole(requests),
            decode_kv_tokens: whole(tokens),
        };
        Some(self.times.predict_ms(&query)? / self.accept_length)
    }

    /// The batch that serves most requests, of those that meet the bounds if any does; `None` where nothing is known.
    pub fn capacity(&self, demand: &Demand) -> Option<Capacity> {
        if demand.isl <= 0.0 || (self.role != Role::Prefill && demand.osl <= 0.0) {
            return None;
        }
        let (isl, osl) = (whole(demand.isl), whole(demand.osl).max(1));
        let new_tokens = whole(isl as f64 * (1.0 - self.hit_rate())).max(1);
        let context = (isl + osl / 2).max(1);
        let most = match self.role {
            Role::Prefill if new_tokens > self.max_num_batched_tokens => 1,
            Role::Prefill => self.max_num_seqs.min(self.max_num_batched_tokens / new_tokens),
            Role::Decode => self.max_num_seqs.min(self.max_kv_tokens / context),
            Role::Agg if self.max_num_batched_tokens <= 1 => 0,
            Role::Agg => {
                self.max_num_seqs.min(self.max_kv_tokens / context).min(self.max_num_batched_tokens - 1)
            }
        };
        let mut best: Option<Capacity> = None;
        for batch in batches(most) {
            let found = match self.role {
                Role::Prefill => self.prefill_batch(batch, new_tokens, demand)?,
                Role::Decode => self.decode_batch(batch, context, osl, demand)?,
                Role::Agg => {
                    // As many prompt tokens as replace the requests that end in a pass.
                    let ending = batch as f64 * self.accept_length;
                    let replacing = whole(ending * new_tokens as f64 / osl as f64);
                    if replacing > self.max_num_batched_tokens - batch {
                        continue;
                    }
                    self.mixed_batch(batch, replacing, new_tokens, context, osl, demand)?
                }
            };
            if !found.requests_per_s.is_finite() {
                continue;
            }
            let rank = |capacity: &Capacity| (capacity.meets_sla, capacity.requests_per_s);
            if best.as_ref().is_none_or(|best| rank(&found) > rank(best)) {
                best = Some(found);
            }
        }
        best
    }

    fn prefill_batch(&self, batch: u64, new_tokens: u64, demand: &Demand) -> Option<Capacity> {
        let one_request = Query { prefill_requests: 1, ..Query::default() };
        let ms = self.chunked_ms(new_tokens * batch, one_request)?;
        Some(Capacity {
            requests_per_s: batch as f64 / ms * 1e3,
            batch,
            ttft_ms: Some(ms),
            itl_ms: None,
            meets_sla: ms <= demand.ttft_ms,
        })
    }

    fn decode_batch(&self, batch: u64, context: u64, osl: u64, demand: &Demand) -> Option<Capacity> {
        let query = Query { decode_requests: batch, decode_kv_tokens: batch * context, ..Query::default() };
        let gap_ms = self.times.predict_ms(&query)? / self.accept_length;
        Some(Capacity {
            requests_per_s: batch as f64 / (osl as f64 * gap_ms) * 1e3,
            batch,
            ttft_ms: None,
            itl_ms: Some(gap_ms),
            meets_sla: gap_ms <= demand.itl_ms,
        })
    }

    /// A steady state of `batch` generating requests beside the `replacing` prompt tokens that replace them.
    fn mixed_batch(
        &self,
        batch: u64,
        replacing: u64,
        new_tokens: u64,
        context: u64,
        osl: u64,
        demand: &Demand,
    ) -> Option<Capacity> {
        let load = Query {
            prefill_requests: 1,
            decode_requests: batch,
            decode_kv_tokens: batch * context,
            ..Query::default()
        };
        let pass_ms = self.times.predict_ms(&Query { prefill_tokens: replacing, ..load })?;
        let gap_ms = pass_ms / self.accept_length;
        let ttft_ms = self.chunked_ms(replacing + new_tokens, load)?;
        Some(Capacity {
            requests_per_s: batch as f64 / (osl as f64 * gap_ms) * 1e3,
            batch,
            ttft_ms: Some(ttft_ms),
            itl_ms: Some(gap_ms),
            meets_sla: gap_ms <= demand.itl_ms && ttft_ms <= demand.ttft_ms,
        })
    }
}

/// All batch sizes up to `most`, or as many as are tried, spread evenly.
fn batches(most: u64) -> impl Iterator<Item = u64> {
    let tried = most.min(MOST_BATCHES);
    let (span, steps) = (most.saturating_sub(1), tried.saturating_sub(1).max(1));
    // Rounded to the nearest whole number.
    (0..tried).map(move |index| 1 + (2 * index * span + steps) / (2 * steps))
}

/// Rounded up, and not below 0.
fn whole(number: f64) -> u64 {
    number.max(0.0).ceil() as u64
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::model::FeatureKind;
    use super::*;
    use crate::engine::metrics::Tally;

    /// Times by a formula.
    pub(in super::super) struct Formula(pub fn(&Query) -> f64);

    impl PassTimes for Formula {
        fn predict_ms(&self, query: &Query) -> Option<f64> {
            Some((self.0)(query))
        }
    }

    /// Nothing is known.
    pub(in super::super) struct Cold;

    impl PassTimes for Cold {
        fn predict_ms(&self, _: &Query) -> Option<f64> {
            None
        }
    }

    pub(in super::super) const PREFILL: Formula = Formula(|query| 5.0 + 0.05 * query.prefill_tokens as f64);
    pub(in super::super) const DECODE: Formula =
        Formula(|query| 10.0 + 1e-4 * query.decode_kv_tokens as f64 + 0.05 * query.decode_requests as f64);
    pub(in super::super) const MIXED: Formula = Formula(|query| {
        let features = query.features(Role::Agg, FeatureKind::AttentionFfn);
        8.0 + 5e-5 * features.attention + 0.02 * features.ffn
    });

    pub(in super::super) fn worker<M>(times: &M, role: Role) -> Worker<'_, M> {
        Worker {
            times,
            role,
            max_num_batched_tokens: 8192,
            max_num_seqs: 256,
            max_kv_tokens: 500_000,
            average_isl: 0.0,
            average_context: 0.0,
            typical_prefill: (0, 0),
            kv_hit_rate: 0.0,
            accept_length: 1.0,
        }
    }

    /// So many requests with so many tokens altogether.
    pub(in super::super) fn tally(requests: u32, tokens: u32) -> Tally {
        let mut tally = Tally::default();
        let (each, rest) =
            (tokens.checked_div(requests).unwrap_or(0), tokens.checked_rem(requests).unwrap_or(0));
        for request in 0..requests {
            tally.add(if request == 0 { each + rest } else { each });
        }
        tally
    }

    pub(in super::super) fn queued(requests: u32, tokens: u32) -> PassMetrics {
        PassMetrics { queued_prefill: tally(requests, tokens), ..PassMetrics::default() }
    }

    const ALL: Shares = Shares { queue: 1.0, decode: 1.0, with_queued_decode: false };

    /// Case 6.
    #[test]
    fn a_long_queue_is_computed_in_chunks() {
        let worker = Worker { average_isl: 2000.0, ..worker(&PREFILL, Role::Prefill) };
        let ms = worker.queue_ms(&queued(10, 20_000), ALL).unwrap();
        assert!((ms - 1115.0).abs() < 1e-9, "{ms}");
        let nothing = Worker { average_isl: 0.0, ..worker };
        assert_eq!(nothing.queue_ms(&queued(0, 0), ALL), Some(0.0));
        assert_eq!(super::tests::worker(&Cold, Role::Prefill).queue_ms(&queued(1, 5), ALL), None);
    }

    /// Case 11 and 12.
    #[test]
    fn the_capacity_of_an_aggregated_worker() {
        let worker = Worker {
            max_num_batched_tokens: 2048,
            max_num_seqs: 64,
            max_kv_tokens: 200_000,
            ..worker(&MIXED, Role::Agg)
        };
        let demand = Demand { isl: 1000.0, osl: 100.0, ttft_ms: 500.0, itl_ms: 30.0 };
        let best = worker.capacity(&demand).unwrap();
        assert_eq!((best.batch, best.meets_sla), (53, true));
        assert!((best.itl_ms.unwrap() - 29.478_25).abs() < 1e-5, "{best:?}");
        assert!((best.ttft_ms.unwrap() - 101.003).abs() < 1e-3, "{best:?}");
        assert!((best.requests_per_s - 17.9794).abs() < 1e-4, "{best:?}");
        let unreachable = worker.capacity(&Demand { itl_ms: 5.0, ..demand }).unwrap();
        assert_eq!((unreachable.batch, unreachable.meets_sla), (57, false));
        assert!((unreachable.itl_ms.unwrap() - 31.669_25).abs() < 1e-5, "{unreachable:?}");
        assert!((unreachable.requests_per_s - 17.9985).abs() < 1e-4, "{unreachable:?}");
        assert_eq!(worker.capacity(&Demand { isl: 0.0, ..demand }), None);
    }

    /// Case 13.
    #[test]
    fn the_capacity_of_a_decode_worker() {
        let worker = worker(&DECODE, Role::Decode);
        let demand = Demand { isl: 3000.0, osl: 200.0, ttft_ms: 500.0, itl_ms: 40.0 };
        let best = worker.capacity(&demand).unwrap();
        assert_eq!(best.batch, 83);
        assert!(
            (best.itl_ms.unwrap() - 39.88).abs() < 1e-9 && (best.requests_per_s - 10.406_22).abs() < 1e-5
        );
        let loose = worker.capacity(&Demand { itl_ms: 50.0, ..demand }).unwrap();
        assert_eq!(loose.batch, 111);
        assert!((loose.requests_per_s - 11.108_89).abs() < 1e-5, "{loose:?}");
    }

    #[test]
    fn many_batch_sizes_are_spread_evenly() {
        let spread: Vec<u64> = batches(1000).collect();
        assert_eq!((spread.len(), spread[0], spread[127]), (128, 1, 1000));
        assert_eq!(batches(3).collect::<Vec<_>>(), [1, 2, 3]);
        assert_eq!(batches(0).count(), 0);
    }
}
