//! What an engine rank reports about a pass to whoever steers the fleet.

use serde::Serialize;

use crate::simulation::SimDuration;

/// A number of requests with the sum and the sum of squares of some length of theirs, in tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Requests.
    pub requests: u32,
    /// Sum of the lengths.
    pub tokens: u64,
    squares: u128,
}

impl Tally {
    /// Counts a request.
    pub fn add(&mut self, tokens: u32) {
        self.requests += 1;
        self.tokens += u64::from(tokens);
        self.squares += u128::from(tokens) * u128::from(tokens);
    }

    /// Counts a request no longer.
    pub fn remove(&mut self, tokens: u32) {
        self.requests -= 1;
        self.tokens -= u64::from(tokens);
        self.squares -= u128::from(tokens) * u128::from(tokens);
    }

    /// Both counts together.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            requests: self.requests + other.requests,
            tokens: self.tokens + other.tokens,
            squares: self.squares + other.squares,
        }
    }

    /// Variance of the lengths over the requests, 0 without any.
    pub fn variance(self) -> f64 {
        if self.requests == 0 {
            return 0.0;
        }
        // n * squares - sum^2 is a whole number and cannot cancel.
        let count = u128::from(self.requests);
        let spread = count * self.squares - u128::from(self.tokens) * u128::from(self.tokens);
        spread as f64 / (count * count) as f64
    }
}

/// A pass of one rank: what was scheduled in it and what waited right after it had been composed. All zero when the rank is idle.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PassMetrics {
    /// From its start to its end.
    pub wall: SimDuration,
    /// Scheduled prompts, by their full length.
    pub prefill: Tally,
    /// Prompt tokens computed.
    pub prefill_tokens: u64,
    /// Prompt tokens that were computed or reused before.
    pub prefill_kv_tokens: u64,
    /// Generating requests, by the length of their context.
    pub decode: Tally,
    /// Prompts that had never been in a batch, by their full length.
    pub queued_prefill: Tally,
    /// Requests that were in a batch and wait to come back, and those whose prompt comes from elsewhere, by their length.
    pub queued_decode: Tally,
}

impl Serialize for PassMetrics {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map([
            ("wall_time_s", self.wall.as_ns() as f64 / 1e9),
            ("num_prefill_requests", f64::from(self.prefill.requests)),
            ("sum_prefill_tokens", self.prefill_tokens as f64),
            ("var_prefill_length", self.prefill.variance()),
            ("sum_prefill_kv_tokens", self.prefill_kv_tokens as f64),
            ("num_decode_requests", f64::from(self.decode.requests)),
            ("sum_decode_kv_tokens", self.decode.tokens as f64),
            ("var_decode_kv_tokens", self.decode.variance()),
            ("queued_prefill_requests", f64::from(self.queued_prefill.requests)),
            ("queued_prefill_tokens", self.queued_prefill.tokens as f64),
            ("var_queued_prefill_length", self.queued_prefill.variance()),
            ("queued_decode_requests", f64::from(self.queued_decode.requests)),
            ("queued_decode_kv_tokens", self.queued_decode.tokens as f64),
            ("var_queued_decode_kv_tokens", self.queued_decode.variance()),
        ])
    }
}

/// Tokens that generating requests got, with the number of their steps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Accepted {
    /// Tokens.
    pub tokens: u64,
    /// Steps of single requests.
    pub steps: u64,
}

impl PassMetrics {
    /// The same pass `later` decode passes on: every context is so much longer.
    #[must_use]
    pub fn after(mut self, later: u32) -> Self {
        let (count, later) = (u128::from(self.decode.requests), u128::from(later));
        self.decode.squares += 2 * later * u128::from(self.decode.tokens) + count * later * later;
        self.decode.tokens += (count * later) as u64;
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tally(lengths: &[u32]) -> Tally {
        let mut tally = Tally::default();
        for &length in lengths {
            tally.add(length);
        }
        tally
    }

    #[test]
    fn variance_is_that_of_the_population() {
        assert_eq!(tally(&[2, 4, 4, 4, 5, 5, 7, 9]).variance(), 4.0);
        assert_eq!(Tally::default().variance(), 0.0);
        let mut less = tally(&[3, 8]);
        less.remove(8);
        assert_eq!(less, tally(&[3]));
        assert_eq!(tally(&[1, 2]).and(tally(&[3])), tally(&[1, 2, 3]));
    }

    #[test]
    fn contexts_grow_by_a_token_in_every_pass() {
        let start = PassMetrics { decode: tally(&[10, 20, 3]), ..PassMetrics::default() };
        assert_eq!(start.after(5).decode, tally(&[15, 25, 8]));
    }
}
