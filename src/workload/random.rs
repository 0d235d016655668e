//! Draws from the usual distributions, the same on every machine.
//!
//! Logarithms and the like come from `libm` instead of the standard library, whose results may differ in the last bit
//! from one platform to another.

use std::f64::consts::TAU;

use rand::{Rng, RngExt};

/// Draws from a stream of random bits.
#[derive(Debug)]
pub(super) struct Draws<R>(pub(super) R);

impl<R: Rng> Draws<R> {
    /// Uniform in [0, 1): the upper 53 bits of one word.
    pub(super) fn unit(&mut self) -> f64 {
        const STEP: f64 = 1.0 / (1_u64 << 53) as f64;
        (self.0.next_u64() >> 11) as f64 * STEP
    }

    /// Uniform in 0..count.
    pub(super) fn index(&mut self, count: usize) -> usize {
        self.0.random_range(0..count)
    }

    /// True with this probability.
    pub(super) fn chance(&mut self, probability: f64) -> bool {
        self.unit() < probability
    }

    /// Exponential with this mean, by inversion; one draw.
    pub(super) fn exponential(&mut self, mean: f64) -> f64 {
        -mean * libm::log(1.0 - self.unit())
    }

    /// Standard normal, by the transform of Box and Muller; two draws.
    pub(super) fn normal(&mut self) -> f64 {
        let radius = (-2.0 * libm::log(1.0 - self.unit())).sqrt();
        radius * libm::cos(TAU * self.unit())
    }

    /// Lognormal with this median and this standard deviation of the logarithm.
    pub(super) fn lognormal(&mut self, median: f64, sigma: f64) -> f64 {
        median * libm::exp(sigma * self.normal())
    }

    /// Gamma with this shape and mean, by the rejection method of Marsaglia and Tsang (2000).
    pub(super) fn gamma(&mut self, shape: f64, mean: f64) -> f64 {
        if shape < 1.0 {
            // Gamma(k) is Gamma(k + 1) times U^(1/k).
            let boost = libm::pow(1.0 - self.unit(), 1.0 / shape);
            return self.unit_gamma(shape + 1.0) * boost * mean / shape;
        }
        self.unit_gamma(shape) * mean / shape
    }

    /// Gamma of scale 1 with a shape of at least 1.
    fn unit_gamma(&mut self, shape: f64) -> f64 {
        let d = shape - 1.0 / 3.0;
        let slope = 1.0 / (9.0 * d).sqrt();
        loop {
            let x = self.normal();
            let root = 1.0 + slope * x;
            let v = root * root * root;
            let bound = 1.0 - self.unit();
            if v > 0.0 && libm::log(bound) < 0.5 * x * x + d - d * v + d * libm::log(v) {
                return d * v;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulation::stream;

    /// Mean and variance of many draws.
    fn moments(mut draw: impl FnMut(&mut Draws<crate::simulation::ActorRng>) -> f64) -> (f64, f64) {
        const COUNT: u32 = 200_000;
        let mut draws = Draws(stream(1, "moments"));
        let (mut sum, mut squares) = (0.0, 0.0);
        for _ in 0..COUNT {
            let value = draw(&mut draws);
            sum += value;
            squares += value * value;
        }
        let mean = sum / f64::from(COUNT);
        (mean, squares / f64::from(COUNT) - mean * mean)
    }

    fn near(actual: f64, expected: f64) {
        assert!((actual - expected).abs() < 0.05 * expected.abs().max(0.1), "{actual}, not {expected}");
    }

    #[test]
    fn means_and_variances_are_those_of_the_distributions() {
        let cases = [
            (moments(Draws::unit), 0.5, 1.0 / 12.0),
            (moments(|d| d.exponential(3.0)), 3.0, 9.0),
            (moments(Draws::normal), 0.0, 1.0),
            (moments(|d| d.gamma(4.0, 2.0)), 2.0, 1.0),
            (moments(|d| d.gamma(1.0, 2.0)), 2.0, 4.0),
            (moments(|d| d.gamma(0.25, 2.0)), 2.0, 16.0),
            (moments(|d| d.index(7) as f64), 3.0, 4.0),
            (moments(|d| libm::log(d.lognormal(5.0, 0.5))), libm::log(5.0), 0.25),
            (moments(|d| f64::from(u8::from(d.chance(0.3)))), 0.3, 0.21),
        ];
        for ((mean, variance), expected_mean, expected_variance) in cases {
            near(mean, expected_mean);
            near(variance, expected_variance);
        }
    }
}
