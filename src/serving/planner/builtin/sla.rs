//! Load scaling by estimates: what the next request would see, now and with one worker less.

use super::estimates::{Shares, Worker};
use super::model::PassTimes;
use crate::engine::metrics::PassMetrics;
use crate::report::record::Role;

/// Bounds, and how far from them workers have to stay after one has gone.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Time to first token, in milliseconds.
    pub ttft_ms: f64,
    /// Gap between tokens, in milliseconds.
    pub itl_ms: f64,
    /// Share of a bound that must not be reached then.
    pub sensitivity: f64,
    /// Fewest workers.
    pub min_endpoint: u32,
}

/// What one bound asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Opinion {
    /// Workers; `None` is no opinion.
    pub target: Option<u32>,
    /// The largest estimate over all ranks.
    pub estimate_ms: Option<f64>,
}

/// Whether one worker less would do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Down {
    Possible,
    /// A rank would come too near to its bound.
    Refused,
    /// Not known.
    Unknown,
}

impl Down {
    fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Refused, _) | (_, Self::Refused) => Self::Refused,
            (Self::Unknown, _) | (_, Self::Unknown) => Self::Unknown,
            (Self::Possible, Self::Possible) => Self::Possible,
        }
    }

    fn if_under(estimate: Option<f64>, limit: f64) -> Self {
        match estimate {
            None => Self::Unknown,
            Some(estimate) if estimate < limit => Self::Possible,
            Some(_) => Self::Refused,
        }
    }
}

/// What `ready` workers would have to take over, each, from one that goes.
fn consolidation(ready: u32) -> f64 {
    if ready > 1 { f64::from(ready) / f64::from(ready - 1) } else { 1.0 }
}

/// What the time to first token asks of a prefill or an aggregated pool.
pub fn by_ttft<M: PassTimes>(
    worker: &Worker<'_, M>,
    passes: &[PassMetrics],
    ready: u32,
    bounds: &Bounds,
) -> Opinion {
    let share = consolidation(ready);
    let aggregated = worker.role == Role::Agg;
    let now = Shares { queue: 1.0, decode: 1.0, with_queued_decode: false };
    let (decode, with_queued_decode) = if aggregated { (share, true) } else { (1.0, false) };
    let empty = Shares { queue: 0.0, decode, with_queued_decode };
    let fuller = Shares { queue: share, ..empty };
    let can_go = |pass: &PassMetrics| {
        let (Some(without_queue), Some(with_more)) =
            (worker.queue_ms(pass, empty), worker.queue_ms(pass, fuller))
        else {
            return match worker.queue_ms(pass, empty) {
                Some(without_queue) if (bounds.ttft_ms - without_queue) * bounds.sensitivity <= 0.0 => {
                    Down::Refused
                }
                _ => Down::Unknown,
            };
        };
        let budget = (bounds.ttft_ms - without_queue) * bounds.sensitivity;
        if budget <= 0.0 || with_more - without_queue >= budget { Down::Refused } else { Down::Possible }
    };
    decide(passes, ready, bounds, bounds.ttft_ms, |pass| worker.queue_ms(pass, now), can_go)
}

/// What the gap between tokens asks of a decode or an aggregated pool.
pub fn by_gap<M: PassTimes>(
    worker: &Worker<'_, M>,
    passes: &[PassMetrics],
    ready: u32,
    bounds: &Bounds,
    max_kv_tokens: Option<u64>,
) -> Opinion {
    let share = consolidation(ready);
    let aggregated = worker.role == Role::Agg;
    let can_go = |pass: &PassMetrics| {
        let mut tokens = pass.decode.tokens + pass.queued_decode.tokens;
        if aggregated {
            tokens += pass.queued_prefill.tokens;
        }
        if max_kv_tokens.is_some_and(|most| (tokens as f64 * share) as u64 >= most) {
            return Down::Refused;
        }
        Down::if_under(worker.gap_ms(pass, share, aggregated), bounds.itl_ms * bounds.sensitivity)
    };
    decide(passes, ready, bounds, bounds.itl_ms, |pass| worker.gap_ms(pass, 1.0, false), can_go)
}

fn decide(
    passes: &[PassMetrics],
    ready: u32,
    bounds: &Bounds,
    bound_ms: f64,
    estimate: impl Fn(&PassMetrics) -> Option<f64>,
    can_go: impl Fn(&PassMetrics) -> Down,
) -> Opinion {
    if ready == 0 {
        return Opinion::default();
    }
    let estimates: Vec<f64> = passes.iter().filter_map(estimate).collect();
    let Some(largest) = estimates.iter().copied().reduce(f64::max) else { return Opinion::default() };
    let target = if estimates.iter().all(|&estimate| estimate > bound_ms) {
        Some(ready + 1)
    } else if ready == 1 {
        None
    } else {
        match passes.iter().map(can_go).fold(Down::Possible, Down::and) {
            Down::Possible => Some((ready - 1).max(bounds.min_endpoint)),
            Down::Refused => Some(ready),
            Down::Unknown => None,
        }
    };
    Opinion { target, estimate_ms: Some(largest) }
}

/// What both bounds together ask of an aggregated pool of `ready` workers.
pub fn combine(by_ttft: Option<u32>, by_gap: Option<u32>, ready: u32) -> u32 {
    let grows = |target: Option<u32>| target.filter(|&target| target > ready);
    let shrinks = |target: Option<u32>| target.filter(|&target| target < ready);
    match (by_ttft, by_gap) {
        (ttft, gap) if grows(ttft).or(grows(gap)).is_some() => grows(ttft).or(grows(gap)).unwrap_or(ready),
        (None, gap) => shrinks(gap).unwrap_or(ready),
        (ttft, gap) => match (shrinks(ttft), shrinks(gap)) {
            (Some(ttft), Some(gap)) => ttft.max(gap),
            _ => ready,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::super::estimates::tests::{Cold, DECODE, PREFILL, queued, tally, worker};
    use super::*;

    fn bounds(sensitivity: f64) -> Bounds {
        Bounds { ttft_ms: 500.0, itl_ms: 50.0, sensitivity, min_endpoint: 1 }
    }

    /// Case 5.
    #[test]
    fn a_prefill_pool_shrinks_if_the_rest_can_take_the_queue() {
        let worker = Worker { average_isl: 2000.0, kv_hit_rate: 0.5, ..worker(&PREFILL, Role::Prefill) };
        let passes = [queued(3, 6000); 2];
        let found = by_ttft(&worker, &passes, 2, &bounds(0.8));
        assert_eq!(found.target, Some(1));
        assert!((found.estimate_ms.unwrap() - 205.0).abs() < 1e-9);
        assert_eq!(by_ttft(&worker, &passes, 2, &bounds(0.6)).target, Some(2));
    }

    #[test]
    fn a_prefill_pool_grows_when_every_queue_is_too_long() {
        let worker = Worker { average_isl: 2000.0, ..worker(&PREFILL, Role::Prefill) };
        let full = queued(10, 20_000);
        assert_eq!(by_ttft(&worker, &[full; 3], 3, &bounds(0.8)).target, Some(4));
        assert_ne!(by_ttft(&worker, &[full, full, queued(0, 0)], 3, &bounds(0.8)).target, Some(4));
    }

    fn decoding(requests: u32, tokens: u32) -> PassMetrics {
        PassMetrics { decode: tally(requests, tokens), ..PassMetrics::default() }
    }

    fn decode(passes: &[PassMetrics], sensitivity: f64, max_kv_tokens: u64) -> Opinion {
        let worker = Worker { average_context: 3125.0, ..worker(&DECODE, Role::Decode) };
        by_gap(&worker, passes, 3, &bounds(sensitivity), Some(max_kv_tokens))
    }

    /// Cases 7, 8 and 9.
    #[test]
    fn a_decode_pool_by_the_gap_that_would_be() {
        let usual = decoding(64, 200_000);
        let found = decode(&[usual; 3], 0.8, 500_000);
        assert!((found.estimate_ms.unwrap() - 33.5625).abs() < 1e-9);
        assert_eq!(found.target, Some(3));
        assert_eq!(decode(&[usual; 3], 0.9, 500_000).target, Some(3));
        assert_eq!(decode(&[usual; 3], 0.95, 500_000).target, Some(2));

        let high = decoding(128, 400_000);
        let mixed = decode(&[high, high, usual], 0.8, 500_000);
        assert!((mixed.estimate_ms.unwrap() - 56.7625).abs() < 1e-9);
        assert_eq!(mixed.target, Some(3));
        assert_eq!(decode(&[high; 3], 0.8, 500_000).target, Some(4));

        assert_eq!(decode(&[usual; 3], 1.0, 300_000).target, Some(3), "it would not fit");
    }

    /// Case 10.
    #[test]
    fn both_bounds_of_an_aggregated_pool() {
        let four = |ttft, gap| combine(ttft, gap, 4);
        assert_eq!(four(Some(3), Some(3)), 3);
        assert_eq!(four(Some(3), None), 4);
        assert_eq!(four(None, Some(3)), 3);
        assert_eq!(four(Some(4), Some(3)), 4);
        assert_eq!(four(Some(5), Some(3)), 5);
        assert_eq!(four(None, Some(5)), 5);
        assert_eq!(four(None, None), 4);
    }

    #[test]
    fn what_is_not_known_changes_nothing() {
        let worker = worker(&Cold, Role::Agg);
        assert_eq!(by_ttft(&worker, &[queued(1, 100); 2], 2, &bounds(0.8)), Opinion::default());
        assert_eq!(by_gap(&worker, &[queued(1, 100); 2], 2, &bounds(0.8), None), Opinion::default());
        assert_eq!(by_gap(&worker, &[], 0, &bounds(0.8), None), Opinion::default());
    }

    proptest::proptest! {
        /// A higher sensitivity never keeps more workers.
        #[test]
        fn sensitivity_is_monotonic(
            loads in proptest::collection::vec((0_u32..200, 0_u32..4000, 0_u32..40_000), 1..6),
            low in 1_u32..100, more in 0_u32..40,
        ) {
            let passes: Vec<PassMetrics> = loads
                .iter()
                .map(|&(requests, context, queue)| PassMetrics {
                    decode: tally(requests, requests * context),
                    queued_prefill: tally(u32::from(queue > 0), queue),
                    ..PassMetrics::default()
                })
                .collect();
            let ready = passes.len() as u32;
            let worker = Worker { average_context: 900.0, average_isl: 700.0, ..worker(&super::super::estimates::tests::MIXED, Role::Agg) };
            let chosen = |percent: u32| {
                let bounds = bounds(f64::from(percent) / 100.0);
                combine(by_ttft(&worker, &passes, ready, &bounds).target,
                    by_gap(&worker, &passes, ready, &bounds, Some(500_000)).target, ready)
            };
            let (few, many) = (chosen(low + more), chosen(low));
            proptest::prop_assert!(few <= many);
            proptest::prop_assert!(many.abs_diff(ready) <= 1 && few.abs_diff(ready) <= 1);
            let mut turned = passes.clone();
            turned.reverse();
            let bounds = bounds(f64::from(low) / 100.0);
            proptest::prop_assert_eq!(
                by_ttft(&worker, &turned, ready, &bounds), by_ttft(&worker, &passes, ready, &bounds));
        }
    }
}
