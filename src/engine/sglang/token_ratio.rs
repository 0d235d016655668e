//! How much of the output that running requests may still ask for is set aside for them.

/// Where the ratio starts, for a conservativeness of 1.
const START: f64 = 0.7;
/// Scales conservativeness where ranks share a worker's attention.
const SHARED_ATTENTION: f64 = 0.3;
/// Share of the start below which the ratio does not fall.
const LEAST: f64 = 0.14;
/// Decode passes from the start to the least.
const DECODES_TO_LEAST: f64 = 600.0;
/// Decode passes that a new estimate looks ahead.
const STEPS_AHEAD: u64 = 20;

/// The share of promised output tokens that counts. SGLang calls it the *new token ratio*.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct TokenRatio {
    now: f64,
    least: f64,
    fall: f64,
}

impl TokenRatio {
    pub(super) fn new(conservativeness: f64, dp_size: u32) -> Self {
        let start = START * conservativeness * if dp_size > 1 { SHARED_ATTENTION } else { 1.0 };
        let least = LEAST * start;
        Self { now: start, least, fall: (start - least) / DECODES_TO_LEAST }
    }

    /// What counts of `promised` tokens.
    pub(super) fn share(self, promised: u64) -> f64 {
        promised as f64 * self.now
    }

    /// A decode pass went well.
    pub(super) fn decay(&mut self) {
        self.now = (self.now - self.fall).max(self.least);
    }

    /// Requests were retracted; the `requests` that remain have generated `generated` tokens and asked for `wanted`.
    pub(super) fn estimate(&mut self, requests: u64, generated: u64, wanted: u64) {
        if requests > 0 {
            self.now = ((generated + STEPS_AHEAD * requests) as f64 / (wanted + 1) as f64).min(1.0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn falls_to_its_least_and_no_further() {
        let mut ratio = TokenRatio::new(1.0, 1);
        assert!((ratio.share(100) - 70.0).abs() < 1e-9);
        ratio.decay();
        assert!((ratio.share(1) - (0.7 - 0.7 * 0.86 / 600.0)).abs() < 1e-12);
        for _ in 0..1000 {
            ratio.decay();
        }
        assert!((ratio.share(1) - 0.098).abs() < 1e-12);
    }

    #[test]
    fn starts_lower_where_attention_is_shared() {
        assert!((TokenRatio::new(2.0, 4).share(1) - 0.42).abs() < 1e-12);
    }

    #[test]
    fn estimates_from_what_was_generated() {
        let mut ratio = TokenRatio::new(1.0, 1);
        ratio.estimate(2, 10, 199);
        assert_eq!(ratio.share(1), 0.25);
        ratio.estimate(2, 10, 20);
        assert_eq!(ratio.share(1), 1.0);
    }
}
