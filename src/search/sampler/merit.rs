//! Which of several observations are better, also when there is more than one objective.

/// Whether one observation is at least as good on every objective and better on one.
pub(in crate::search) fn dominates(left: &[f64], right: &[f64]) -> bool {
    let mut better = false;
    for (left, right) in left.iter().zip(right) {
        if left < right {
            return false;
        }
        better |= left > right;
    }
    better
}

/// The places of observations from best to worst: those that nothing dominates first, then those that only they dominate,
/// and so on; within such a layer those that are good on more objectives first.
pub(in crate::search) fn best_first(observations: &[&[f64]]) -> Vec<usize> {
    let objectives = observations.first().map_or(0, |first| first.len());
    let ranks: Vec<f64> = (0..observations.len())
        .map(|place| {
            let behind = |objective: &usize| {
                observations
                    .iter()
                    .filter(|other| other[*objective] > observations[place][*objective])
                    .count()
            };
            (0..objectives).map(|objective| behind(&objective) as f64).sum()
        })
        .collect();
    let layers = layers(observations);
    let mut places: Vec<usize> = (0..observations.len()).collect();
    places.sort_by(|&left, &right| {
        layers[left].cmp(&layers[right]).then(ranks[left].total_cmp(&ranks[right])).then(left.cmp(&right))
    });
    places
}

/// For each observation, how many layers have to be taken away before nothing dominates it.
fn layers(observations: &[&[f64]]) -> Vec<u32> {
    let mut layers = vec![u32::MAX; observations.len()];
    let mut left: Vec<usize> = (0..observations.len()).collect();
    let mut layer = 0;
    while !left.is_empty() {
        let is_dominated =
            |place: usize| left.iter().any(|&other| dominates(observations[other], observations[place]));
        let (behind, front): (Vec<usize>, Vec<usize>) = left.iter().partition(|&&place| is_dominated(place));
        for place in front {
            layers[place] = layer;
        }
        left = behind;
        layer += 1;
    }
    layers
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equals_do_not_dominate_each_other() {
        assert!(!dominates(&[1.0, 2.0], &[1.0, 2.0]));
        assert!(dominates(&[1.0, 3.0], &[1.0, 2.0]));
        assert!(!dominates(&[2.0, 1.0], &[1.0, 2.0]));
    }

    #[test]
    fn layers_come_first_and_the_balanced_lead_in_each() {
        let all: [&[f64]; 5] = [&[1.0, 1.0], &[5.0, 0.0], &[0.0, 5.0], &[3.0, 3.0], &[0.5, 0.5]];
        assert_eq!(best_first(&all), [3, 1, 2, 0, 4]);
        let single: [&[f64]; 3] = [&[1.0], &[3.0], &[2.0]];
        assert_eq!(best_first(&single), [1, 2, 0]);
    }
}
