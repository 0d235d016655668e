//! How strongly what is known of one point says something about another.

use crate::search::sampler::encoding::Axis;

/// A Matérn kernel of smoothness 5/2 with a length of its own for every axis, and the noise of an observation.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Kernel {
    /// Variance of the function at any point.
    pub(super) variance: f64,
    /// For each axis, one over the square of the length over which the function changes.
    pub(super) inverse_squared_lengths: Vec<f64>,
    /// Variance of an observation around the function.
    pub(super) noise: f64,
}

impl Kernel {
    /// The covariance of the function at two points.
    pub(super) fn covariance(&self, axes: &[Axis], left: &[f64], right: &[f64]) -> f64 {
        let mut squared = 0.0;
        for (place, axis) in axes.iter().enumerate() {
            squared += axis.squared_distance(left[place], right[place]) * self.inverse_squared_lengths[place];
        }
        self.variance * matern(squared).0
    }
}

/// The correlation at a squared distance `r²`, `(1 + s + s²/3) e^-s` with `s = √5 r`, and its derivative by `r²`.
pub(super) fn matern(squared_distance: f64) -> (f64, f64) {
    let scaled = (5.0 * squared_distance).sqrt();
    let decay = libm::exp(-scaled);
    ((1.0 + scaled + scaled * scaled / 3.0) * decay, -5.0 / 6.0 * (1.0 + scaled) * decay)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn correlations_at_known_distances() {
        // From a table made with 50-digit arithmetic.
        for (distance, correlation) in MATERN {
            let found = matern(distance * distance).0;
            assert!((found - correlation).abs() < 1e-15, "{distance}: {found}");
        }
    }

    const MATERN: [(f64, f64); 4] = [
        (0.0, 1.0),
        (0.5, 0.828_649_142_418_125_3),
        (1.0, 0.523_994_108_831_820_3),
        (2.0, 0.138_660_219_138_504_3),
    ];

    #[test]
    fn the_slope_is_the_slope() {
        for squared in [0.01, 0.1, 1.0, 7.0] {
            let step = 1e-4 * squared;
            let slope = (matern(squared + step).0 - matern(squared - step).0) / (2.0 * step);
            assert!((slope - matern(squared).1).abs() < 1e-7, "{squared}");
        }
    }

    #[test]
    fn every_axis_has_its_length_and_names_are_alike_or_not() {
        let kernel = Kernel { variance: 0.25, inverse_squared_lengths: vec![4.0, 3.0], noise: 0.0 };
        let axes = [Axis::Ordered, Axis::Named];
        let covariance = |left: [f64; 2], right: [f64; 2]| kernel.covariance(&axes, &left, &right);
        assert_eq!(covariance([0.1, 2.0], [0.1, 2.0]), 0.25);
        assert!((covariance([0.0, 2.0], [0.5, 2.0]) - 0.25 * MATERN[2].1).abs() < 1e-15);
        assert!((covariance([0.0, 2.0], [0.5, 7.0]) - 0.25 * MATERN[3].1).abs() < 1e-15);
    }
}
