//! Distributions given by some of their quantiles.

use rand::Rng;

use crate::workload::random::Draws;

/// Pairs of a probability and the value below which that share lies; from 0 to 1, straight in between.
#[derive(Clone, Copy, Debug)]
pub(super) struct Quantiles(pub(super) &'static [(f64, f64)]);

impl Quantiles {
    /// A whole number of tokens drawn from the distribution.
    pub(super) fn draw<R: Rng>(self, draws: &mut Draws<R>) -> u32 {
        self.at(draws.unit()).round() as u32
    }

    fn at(self, probability: f64) -> f64 {
        let above = self.0.partition_point(|(p, _)| *p <= probability).clamp(1, self.0.len() - 1);
        let ((p0, v0), (p1, v1)) = (self.0[above - 1], self.0[above]);
        v0 + (v1 - v0) * (probability - p0) / (p1 - p0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_lie_on_straight_lines() {
        let quantiles = Quantiles(&[(0.0, 10.0), (0.5, 20.0), (1.0, 100.0)]);
        let cases = [(0.0, 10.0), (0.25, 15.0), (0.5, 20.0), (0.75, 60.0), (1.0, 100.0)];
        for (probability, value) in cases {
            assert_eq!(quantiles.at(probability), value);
        }
    }
}
