//! Traffic as a planner sees it, window by window.

use crate::report::scaling::TrafficRow;

/// A mean with the number of samples behind it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Mean {
    sum: f64,
    samples: u64,
}

impl Mean {
    /// Counts a sample.
    pub fn add(&mut self, value: f64) {
        self.sum += value;
        self.samples += 1;
    }

    /// Counts so many samples with this sum.
    pub fn add_many(&mut self, sum: f64, samples: u64) {
        self.sum += sum;
        self.samples += samples;
    }

    /// `None` without samples.
    pub fn value(self) -> Option<f64> {
        (self.samples > 0).then(|| self.sum / self.samples as f64)
    }

    /// Samples.
    pub fn samples(self) -> u64 {
        self.samples
    }

    fn merge(&mut self, later: Self) {
        self.sum += later.sum;
        self.samples += later.samples;
    }
}

/// What happened in a span of time. Requests count when they arrive; lengths and latencies are those of requests that
/// completed in it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct TrafficWindow {
    /// Length of the span.
    pub duration_s: f64,
    /// Requests that arrived.
    pub num_req: u64,
    /// Requests that completed.
    pub completed: u64,
    /// Their prompt tokens.
    pub isl: Mean,
    /// Their output tokens.
    pub osl: Mean,
    /// Their time to first token.
    pub ttft_ms: Mean,
    /// Their mean gap between tokens.
    pub itl_ms: Mean,
    /// Share of each placed prompt that was known to be cached.
    pub kv_hit_rate: Mean,
    /// Tokens per step of a generating request, with speculative decoding.
    pub accept_length: Mean,
}

impl TrafficWindow {
    /// The window as a report shows it.
    pub fn row(&self) -> TrafficRow {
        TrafficRow {
            duration_s: self.duration_s,
            num_req: self.num_req,
            completed: self.completed,
            isl: self.isl.value(),
            osl: self.osl.value(),
            ttft_ms: self.ttft_ms.value(),
            itl_ms: self.itl_ms.value(),
            kv_hit_rate: self.kv_hit_rate.value(),
            accept_length: self.accept_length.value(),
        }
    }

    /// Adds what happened after it.
    pub fn merge(&mut self, later: &Self) {
        self.duration_s += later.duration_s;
        self.num_req += later.num_req;
        self.completed += later.completed;
        for (mean, later) in [
            (&mut self.isl, later.isl),
            (&mut self.osl, later.osl),
            (&mut self.ttft_ms, later.ttft_ms),
            (&mut self.itl_ms, later.itl_ms),
            (&mut self.kv_hit_rate, later.kv_hit_rate),
            (&mut self.accept_length, later.accept_length),
        ] {
            mean.merge(later);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Case 17, first part.
    #[test]
    fn windows_add_up_and_means_by_their_samples() {
        let window = |num_req, completed: u64, isl: f64| {
            let mut mean = Mean::default();
            mean.add_many(isl * completed as f64, completed);
            TrafficWindow { duration_s: 5.0, num_req, completed, isl: mean, ..TrafficWindow::default() }
        };
        let mut merged = window(10, 8, 1000.0);
        merged.merge(&window(20, 24, 2000.0));
        assert_eq!((merged.duration_s, merged.num_req, merged.isl.value()), (10.0, 30, Some(1750.0)));
        assert_eq!(merged.kv_hit_rate.value(), None);
    }
}
