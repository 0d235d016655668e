//! What points have to meet in order to count, as functions that a process can learn.

use crate::search::sampler::encoding::Features;

/// A figure as far as it goes below the least is no worse than this.
const LEAST_SCALE: f64 = 1e-3;

/// A constraint, by the observations that say something about it.
pub(super) struct Constraint {
    pub(super) features: Vec<Features>,
    pub(super) labels: Vec<f64>,
    /// The label from which on it is met.
    pub(super) threshold: f64,
}

/// The constraints that some observation did not meet: the goal's bar, by how much it is cleared, and whether a point can be
/// evaluated at all.
pub(super) fn constraints(
    features: &[Features],
    are_feasible: &[bool],
    margins: &[Option<f64>],
) -> Vec<Constraint> {
    let mut constraints = Vec::new();
    let (known, of_bar): (Vec<Features>, Vec<f64>) =
        features.iter().zip(margins).filter_map(|(at, margin)| Some((at.clone(), (*margin)?))).unzip();
    if of_bar.iter().any(|margin| *margin < 0.0) {
        constraints.push(Constraint::of_labels(known, margin_labels(&of_bar)));
    }
    if are_feasible.iter().zip(margins).any(|(is_feasible, margin)| !is_feasible && margin.is_none()) {
        let labels = are_feasible.iter().map(|&is_feasible| if is_feasible { 0.5 } else { -0.5 }).collect();
        constraints.push(Constraint { features: features.to_vec(), labels, threshold: 0.0 });
    }
    constraints
}

impl Constraint {
    /// A process expects 0 where it knows nothing, so the labels are moved for their mean to be that.
    fn of_labels(features: Vec<Features>, labels: Vec<f64>) -> Self {
        let mean = labels.iter().sum::<f64>() / labels.len() as f64;
        let labels = labels.into_iter().map(|label| label - mean).collect();
        Self { features, labels, threshold: -mean }
    }
}

/// Labels of margins between -1/2 and 1/2, of the same sign: what lies far beyond the bar, on either side, counts for less than
/// what lies near it.
fn margin_labels(margins: &[f64]) -> Vec<f64> {
    let most = margins.iter().copied().fold(LEAST_SCALE, f64::max);
    let least = margins.iter().map(|margin| -margin).fold(LEAST_SCALE, f64::max);
    let label = |margin: &f64| {
        if *margin >= 0.0 { 0.5 * libm::sqrt(margin / most) } else { -0.5 * libm::sqrt(-margin / least) }
    };
    margins.iter().map(label).collect()
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
    fn margins_keep_their_sign_and_order_and_differ_most_near_the_bar() {
        assert_near(&margin_labels(&[0.1, 0.025, 0.0, -0.09, -0.81]), &[0.5, 0.25, 0.0, -1.0 / 6.0, -0.5]);
        assert_near(&margin_labels(&[-0.0001]), &[-0.5 * 0.1_f64.sqrt()]);
    }

    #[test]
    fn each_reason_not_to_count_is_a_constraint_of_its_own() {
        let features: Vec<Features> = (0..4).map(|place| [f64::from(place)].into()).collect();
        let names = |feasible: [bool; 4], margins: [Option<f64>; 4]| -> Vec<(usize, Vec<f64>, f64)> {
            let found = constraints(&features, &feasible, &margins);
            found.into_iter().map(|one| (one.features.len(), one.labels, one.threshold)).collect()
        };
        assert_eq!(names([true; 4], [Some(0.1); 4]), []);
        // One point has no room for a cache, one misses the bar.
        let margins = [Some(0.04), None, Some(-0.09), Some(0.01)];
        let both = names([true, false, false, true], margins);
        assert_eq!(both.len(), 2);
        let mean = (0.5 - 0.5 + 0.25) / 3.0;
        assert_eq!(both[0].0, 3);
        assert_near(&both[0].1, &[0.5 - mean, -0.5 - mean, 0.25 - mean]);
        assert_near(&[both[0].2], &[-mean]);
        assert_eq!(both[1], (4, vec![0.5, -0.5, -0.5, 0.5], 0.0));
    }
}
