//! Load scaling by fixed thresholds: how full the caches and how long the queues are.

use crate::engine::metrics::PassMetrics;

/// When a worker has too much to do, and when too little.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Thresholds {
    /// From here on, or above it, one worker more.
    pub up: f64,
    /// Whether `up` itself is too much.
    pub up_inclusive: bool,
    /// Up to here, or below it, one worker less.
    pub down: f64,
    /// Whether `down` itself is too little.
    pub down_inclusive: bool,
}

impl Thresholds {
    fn is_too_much(&self, load: f64) -> bool {
        load > self.up || (self.up_inclusive && load == self.up)
    }

    fn is_too_little(&self, load: f64) -> bool {
        load < self.down || (self.down_inclusive && load == self.down)
    }
}

/// How a pool of `ready` workers should change when their ranks have these loads: by one up if any has too much, by one
/// down if all have too little and the rest can take their load over; `None` is no opinion.
pub fn decide(loads: &[f64], ready: u32, min_endpoint: u32, thresholds: &Thresholds) -> Option<u32> {
    if ready == 0 || loads.is_empty() {
        return None;
    }
    if loads.iter().any(|&load| thresholds.is_too_much(load)) {
        return Some(ready + 1);
    }
    if ready == 1 || !loads.iter().all(|&load| thresholds.is_too_little(load)) {
        return None;
    }
    let target = (ready - 1).max(min_endpoint);
    if target > 0 && target < ready {
        let most = loads.iter().copied().fold(0.0, f64::max);
        if most * f64::from(ready) / f64::from(target) >= thresholds.up {
            return Some(ready);
        }
    }
    Some(target)
}

/// Queued prompt tokens.
pub fn queued_tokens(pass: &PassMetrics) -> f64 {
    pass.queued_prefill.tokens as f64
}

/// KV tokens of requests that generate or wait to come back, as a share of what a worker can hold; with queued prompts, where
/// the worker computes them.
pub fn kv_share(pass: &PassMetrics, max_kv_tokens: u64, with_queued_prefill: bool) -> f64 {
    let mut tokens = pass.decode.tokens + pass.queued_decode.tokens;
    if with_queued_prefill {
        tokens += pass.queued_prefill.tokens;
    }
    tokens as f64 / max_kv_tokens as f64
}

#[cfg(test)]
mod tests {
    use super::super::config::{EasyTarget, Target};
    use super::super::estimates::tests::tally;
    use super::*;

    fn throughput() -> Thresholds {
        EasyTarget::Throughput.decode_thresholds()
    }

    fn engine(decode: u32, queued: u32) -> f64 {
        let pass = PassMetrics {
            decode: tally(1, decode),
            queued_prefill: tally(1, queued),
            ..PassMetrics::default()
        };
        kv_share(&pass, 100_000, true)
    }

    /// Case 2.
    #[test]
    fn one_full_worker_is_enough_to_grow() {
        let loads = [engine(99_000, 2_000), engine(10_000, 0)];
        assert_eq!(decide(&loads, 2, 1, &throughput()), Some(3));
        let exactly_full = [engine(98_000, 2_000), engine(10_000, 0)];
        assert_eq!(decide(&exactly_full, 2, 1, &throughput()), None);
    }

    /// Case 3.
    #[test]
    fn the_rest_has_to_have_room() {
        assert_eq!(decide(&[0.55, 0.58], 2, 1, &throughput()), Some(2));
        assert_eq!(decide(&[0.58; 4], 4, 1, &throughput()), Some(3));
    }

    /// Case 4.
    #[test]
    fn prefill_workers_by_their_queues() {
        let Target::Easy(latency) = Target::LATENCY else { unreachable!() };
        let thresholds = latency.prefill_thresholds();
        let load = |tokens: f64| tokens / 8192.0;
        let decided = |loads: [f64; 2]| decide(&loads.map(load), 2, 1, &thresholds);
        assert_eq!(decided([820.0, 0.0]), Some(3));
        assert_eq!(decided([818.0, 0.0]), None);
        assert_eq!(decided([0.0, 0.0]), Some(1));
    }

    #[test]
    fn nobody_has_no_opinion() {
        assert_eq!(decide(&[], 2, 1, &throughput()), None);
        assert_eq!(decide(&[0.0], 1, 1, &throughput()), None, "the last one stays");
        assert_eq!(decide(&[0.0, 0.0], 2, 2, &throughput()), Some(2));
    }
}
