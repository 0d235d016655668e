//! Labels of the observations: figures bent so that a Gaussian process can model them.

/// Spread of the logarithmic bend.
const BEND: f64 = 1.5;
/// How far below the median a figure may lie, in distances from there to the best.
const FARTHEST: f64 = 3.0;

/// The labels of one objective's figures.
///
/// Figures that lie further below the median than three times as far as the best lies above it are raised to there, so that
/// outliers lose their weight (unless more than half are as good as the best); then differences near the best are stretched and all labels brought between -1/2 and 1/2,
/// and moved so that their mean is 0.
pub(super) fn labels(figures: &[f64]) -> Vec<f64> {
    let warped = stretch_the_best(&raise_outliers(figures));
    let mean = warped.iter().sum::<f64>() / warped.len().max(1) as f64;
    warped.into_iter().map(|label| label - mean).collect()
}

fn raise_outliers(figures: &[f64]) -> Vec<f64> {
    let mut sorted = figures.to_vec();
    sorted.sort_by(f64::total_cmp);
    let (Some(best), count) = (sorted.last(), sorted.len()) else { return Vec::new() };
    let median = f64::midpoint(sorted[(count - 1) / 2], sorted[count / 2]);
    let least = if *best > median { median - FARTHEST * (best - median) } else { f64::NEG_INFINITY };
    figures.iter().map(|figure| figure.max(least)).collect()
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
    fn outliers_are_raised_and_the_others_stay() {
        // Median 3, the best 2 above it.
        assert_eq!(raise_outliers(&[5.0, 3.0, -1e9, 4.0, -2.9]), [5.0, 3.0, -3.0, 4.0, -2.9]);
        assert_eq!(raise_outliers(&[2.0, 2.0, 1.0]), [2.0, 2.0, 1.0], "nothing is above the median");
        assert_eq!(raise_outliers(&[1.0, 4.0]), [1.0, 4.0]);
    }

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
