//! Labels of the observations: figures bent so that a Gaussian process can model them.

/// Spread of the logarithmic bend.
const BEND: f64 = 1.5;

/// The labels of one objective's figures.
///
/// The worse half is replaced by the quantiles of a normal distribution as wide as the better half, so that outliers lose
/// their weight but not their order; then differences near the best are stretched and all labels brought between -1/2
/// and 1/2, and moved so that their mean is 0.
pub(super) fn labels(figures: &[f64]) -> Vec<f64> {
    let warped = stretch_the_best(&rank_the_worse_half(figures));
    let mean = warped.iter().sum::<f64>() / warped.len().max(1) as f64;
    warped.into_iter().map(|label| label - mean).collect()
}

fn rank_the_worse_half(figures: &[f64]) -> Vec<f64> {
    let mut sorted = figures.to_vec();
    sorted.sort_by(f64::total_cmp);
    let count = sorted.len();
    if count < 2 {
        return figures.to_vec();
    }
    let median = f64::midpoint(sorted[(count - 1) / 2], sorted[count / 2]);
    let better: Vec<f64> = sorted.iter().copied().filter(|&figure| figure >= median).collect();
    let squares: f64 = better.iter().map(|figure| (figure - median) * (figure - median)).sum();
    let mut spread = libm::sqrt(squares / better.len() as f64);
    if spread == 0.0 {
        spread = if median > sorted[0] { median - sorted[0] } else { 1.0 };
    }
    let rank = |figure: f64| {
        let below = sorted.partition_point(|&other| other < figure);
        let up_to = sorted.partition_point(|&other| other <= figure);
        (below + up_to) as f64 / 2.0
    };
    let warp = |&figure: &f64| {
        if figure >= median { figure } else { median + spread * normal_quantile(rank(figure) / count as f64) }
    };
    figures.iter().map(warp).collect()
}

fn stretch_the_best(figures: &[f64]) -> Vec<f64> {
    let best = figures.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let worst = figures.iter().copied().fold(f64::INFINITY, f64::min);
    if best <= worst {
        return vec![0.0; figures.len()];
    }
    let warp = |figure: &f64| {
        let behind = (best - figure) / (best - worst);
        0.5 - libm::log1p((BEND - 1.0) * behind) / libm::log(BEND)
    };
    figures.iter().map(warp).collect()
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
    use super::*;

    fn assert_near(found: &[f64], expected: &[f64]) {
        assert_eq!(found.len(), expected.len());
        for (found, expected) in found.iter().zip(expected) {
            assert!((found - expected).abs() < 1e-12, "{found} is not {expected}");
        }
    }

    #[test]
    fn quantiles_of_the_normal_distribution() {
        // From a published table, to all its digits.
        for (probability, quantile) in [(0.5, 0.0), (0.1, -1.281_551_565_5), (0.01, -2.326_347_874_0)] {
            assert!((normal_quantile(probability) - quantile).abs() < 1e-9);
        }
    }

    #[test]
    fn the_worse_half_is_ranked() {
        // Median 3, spread of the better half sqrt((0 + 1 + 4) / 3); ranks 1/2 and 3/2 of 5.
        let warped = rank_the_worse_half(&[5.0, 3.0, -1e9, 4.0, 2.9]);
        assert_near(&warped, &WARPED);
    }

    const WARPED: [f64; 5] = [5.0, 3.0, 1.345_524_043_113_239_4, 4.0, 2.323_001_849_179_709_3];

    #[test]
    fn the_best_are_stretched() {
        assert_near(&stretch_the_best(&[0.0, 10.0, 9.0, 5.0]), &[-0.5, 0.5, STRETCHED[0], STRETCHED[1]]);
        assert_eq!(stretch_the_best(&[3.0, 3.0]), [0.0, 0.0]);
    }

    const STRETCHED: [f64; 2] = [0.379_668_649_179_015_3, -0.050_339_713_213_208_515];

    #[test]
    fn labels_keep_their_order_and_average_to_nothing() {
        let found = labels(&[1.0, 2.0, 7.0]);
        assert!(found.is_sorted() && found[0] < found[2], "{found:?}");
        assert!(found.iter().sum::<f64>().abs() < 1e-12);
        assert_eq!(labels(&[]), [0.0; 0]);
        assert_eq!(labels(&[4.0]), [0.0]);
    }
}
