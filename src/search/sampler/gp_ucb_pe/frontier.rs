//! The hypervolume below a frontier, and how much a point is expected to add to it.

use rand::RngExt;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;

/// Directions in which a frontier is looked at.
const DIRECTIONS: usize = 64;
/// Outcomes over which a gain is averaged.
const OUTCOMES: usize = 12;
/// How far below the worst label the reference of a frontier lies.
const MARGIN: f64 = 0.01;

/// A frontier of labels of several objectives, of which more is better.
///
/// Its hypervolume is estimated along random directions from a reference point: along each, how far the observations reach in
/// the objective in which they reach least, to the power of the number of objectives (Zhang and Golovin 2020).
pub(super) struct Frontier {
    reference: Vec<f64>,
    directions: Vec<Vec<f64>>,
    /// How far the observations reach in each direction.
    reached: Vec<f64>,
    /// For each outcome, the standard deviations from the mean of each objective.
    outcomes: Vec<Vec<f64>>,
}

impl Frontier {
    /// Of the labels of all feasible observations, at least one.
    pub(super) fn new(labels: &[Vec<f64>], stream: &mut ChaCha8Rng) -> Self {
        let objectives = labels[0].len();
        let worst =
            |objective: usize| labels.iter().map(|label| label[objective]).fold(f64::INFINITY, f64::min);
        let reference: Vec<f64> = (0..objectives).map(|objective| worst(objective) - MARGIN).collect();
        let directions: Vec<Vec<f64>> = (0..DIRECTIONS).map(|_| direction(objectives, stream)).collect();
        let furthest = |direction: &Vec<f64>| {
            labels.iter().map(|label| reach(label, &reference, direction)).fold(0.0, f64::max)
        };
        let reached = directions.iter().map(furthest).collect();
        Self { reference, directions, reached, outcomes: outcomes(objectives, stream) }
    }

    /// The hypervolume that a point with these labels adds, in units of its own.
    fn gain(&self, labels: &[f64]) -> f64 {
        let power = labels.len() as i32;
        let gain = |(direction, reached): (&Vec<f64>, &f64)| {
            let reach = reach(labels, &self.reference, direction);
            if reach > *reached { power_of(reach, power) - power_of(*reached, power) } else { 0.0 }
        };
        self.directions.iter().zip(&self.reached).map(gain).sum::<f64>() / self.directions.len() as f64
    }

    /// The hypervolume that a point is expected to add whose labels have these means and standard deviations.
    pub(super) fn expected_gain(&self, means: &[f64], spreads: &[f64]) -> f64 {
        let mut labels = means.to_vec();
        let mut sum = 0.0;
        for outcome in &self.outcomes {
            for (place, label) in labels.iter_mut().enumerate() {
                *label = means[place] + spreads[place] * outcome[place];
            }
            sum += self.gain(&labels);
        }
        sum / self.outcomes.len() as f64
    }
}

/// Powers by multiplication are the same on every machine.
fn power_of(base: f64, exponent: i32) -> f64 {
    (0..exponent).fold(1.0, |product, _| product * base)
}

/// How far labels reach from the reference in a direction.
fn reach(labels: &[f64], reference: &[f64], direction: &[f64]) -> f64 {
    let shares = labels.iter().zip(reference).zip(direction);
    shares.map(|((label, reference), part)| (label - reference) / part).fold(f64::INFINITY, f64::min)
}

/// A direction into the positive quadrant, all equally likely.
fn direction(objectives: usize, stream: &mut ChaCha8Rng) -> Vec<f64> {
    loop {
        let parts: Vec<f64> = (0..objectives).map(|_| stream.random_range(0.0..1.0)).collect();
        let length = libm::sqrt(parts.iter().map(|part| part * part).sum());
        if length <= 1.0 && parts.iter().all(|part| *part > 1e-6) {
            return parts.into_iter().map(|part| part / length).collect();
        }
    }
}

/// Draws from independent normal distributions in which each objective takes every one of the middle quantiles once.
fn outcomes(objectives: usize, stream: &mut ChaCha8Rng) -> Vec<Vec<f64>> {
    let quantiles: Vec<f64> =
        (0..OUTCOMES).map(|place| normal_quantile((place as f64 + 0.5) / OUTCOMES as f64)).collect();
    let columns: Vec<Vec<f64>> = (0..objectives)
        .map(|_| {
            let mut column = quantiles.clone();
            column.shuffle(stream);
            column
        })
        .collect();
    (0..OUTCOMES).map(|place| columns.iter().map(|column| column[place]).collect()).collect()
}

/// Below which value a standard normal variable is with this probability, by bisection.
fn normal_quantile(probability: f64) -> f64 {
    let (mut low, mut high) = (-40.0, 40.0);
    for _ in 0..80 {
        let middle = f64::midpoint(low, high);
        if 0.5 * libm::erfc(-middle * std::f64::consts::FRAC_1_SQRT_2) < probability {
            low = middle;
        } else {
            high = middle;
        }
    }
    f64::midpoint(low, high)
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;

    use super::*;

    fn frontier(labels: &[[f64; 2]]) -> Frontier {
        let labels: Vec<Vec<f64>> = labels.iter().map(|labels| labels.to_vec()).collect();
        Frontier::new(&labels, &mut ChaCha8Rng::seed_from_u64(1))
    }

    /// The mean over all directions of reach² is the area by a quarter of π, so that the estimate can be checked.
    #[test]
    fn a_point_adds_the_area_that_nothing_else_covers() {
        let frontier = frontier(&[[1.0, 3.0], [3.0, 1.0], [0.01, 0.01]]);
        let area = |labels: [f64; 2]| frontier.gain(&labels) * std::f64::consts::FRAC_PI_4;
        assert!((area([2.0, 2.0]) - 1.0).abs() < 0.3, "{}", area([2.0, 2.0]));
        assert!((area([4.0, 4.0]) - 11.0).abs() < 1.5, "{}", area([4.0, 4.0]));
        assert_eq!(area([1.0, 2.0]), 0.0);
        assert_eq!(area([-1.0, -1.0]), 0.0);
    }

    #[test]
    fn doubt_adds_to_what_is_expected() {
        let frontier = frontier(&[[0.0, 1.0], [1.0, 0.0]]);
        let gain = |spread: f64| frontier.expected_gain(&[0.4, 0.4], &[spread; 2]);
        assert!((gain(0.0) - frontier.gain(&[0.4, 0.4])).abs() < 1e-12);
        assert!(gain(0.0) < gain(0.3) && gain(0.3) < gain(0.6));
    }

    #[test]
    fn quantiles_of_the_normal_distribution() {
        // From a published table, to all its digits.
        for (probability, quantile) in [(0.5, 0.0), (0.1, -1.281_551_565_5), (0.01, -2.326_347_874_0)] {
            assert!((normal_quantile(probability) - quantile).abs() < 1e-9);
        }
    }

    #[test]
    fn outcomes_are_spread_evenly_around_the_mean() {
        let outcomes = outcomes(3, &mut ChaCha8Rng::seed_from_u64(1));
        for objective in 0..3 {
            let mean: f64 = outcomes.iter().map(|outcome| outcome[objective]).sum::<f64>() / OUTCOMES as f64;
            let square: f64 = outcomes.iter().map(|outcome| outcome[objective] * outcome[objective]).sum();
            assert!(mean.abs() < 1e-9);
            // That of twelve middle quantiles is 0.899, whatever their order.
            assert!((0.89..0.91).contains(&(square / OUTCOMES as f64)), "{square}");
        }
    }
}
