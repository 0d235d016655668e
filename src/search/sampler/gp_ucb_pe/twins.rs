//! Points that will most likely come out exactly like one that was tried, because they differ from it only in what has made
//! no difference so far.
//!
//! A replay has no noise, so that equal results mean that a setting had no effect. Half of a space can be such copies: more
//! running requests than ever come, a threshold that is never reached, engines that behave alike under this load. A Gaussian
//! process expects a copy of the best point to be as good as it, which makes it look like the next best thing to try.

use rustc_hash::FxHashMap;

use crate::search::sampler::encoding::Features;

/// A chance of being a copy that is as good as none.
const UNLIKELY: f64 = 0.1;

/// A change of one number of a point: the axis and the bits of both numbers.
type Step = (usize, u64, u64);

/// How often one step was seen, and how often it made no difference.
#[derive(Clone, Copy, Default)]
struct Count {
    pairs: u32,
    equal: u32,
}

/// What was tried, and which steps made a difference.
pub(super) struct Twins {
    tried: Vec<Features>,
    counts: FxHashMap<Step, Count>,
}

impl Twins {
    /// From observations and what came out at each; `None` says nothing. Pairs of observations count that are one step apart.
    pub(super) fn new<R: PartialEq>(observed: &[Features], results: &[Option<R>]) -> Self {
        let mut counts: FxHashMap<Step, Count> = FxHashMap::default();
        for (place, (left, result)) in observed.iter().zip(results).enumerate() {
            for (right, other) in observed[..place].iter().zip(results) {
                if let (Some(result), Some(other), Some(step)) = (result, other, only_step(left, right)) {
                    let count = counts.entry(step).or_default();
                    count.pairs += 1;
                    count.equal += u32::from(result == other);
                }
            }
        }
        Self { tried: observed.to_vec(), counts }
    }

    /// Counts a point as tried.
    pub(super) fn add(&mut self, point: &Features) {
        self.tried.push(point.clone());
    }

    /// How likely it is that a point is a copy of one that was tried.
    pub(super) fn chance(&self, point: &Features) -> f64 {
        self.tried.iter().map(|tried| self.chance_of_both(point, tried)).fold(0.0, f64::max)
    }

    /// How likely it is that two points come out alike: the chance of each step between them to make no difference is estimated
    /// as `equal / (pairs + 1)`, as if it had made one once, and the chances are multiplied.
    pub(super) fn chance_of_both(&self, left: &Features, right: &Features) -> f64 {
        let mut chance = 1.0;
        for (axis, (left, right)) in left.iter().zip(right).enumerate() {
            if left != right {
                let count = self.counts.get(&step(axis, *left, *right)).copied().unwrap_or_default();
                chance *= f64::from(count.equal) / f64::from(count.pairs + 1);
                if chance < UNLIKELY {
                    return 0.0;
                }
            }
        }
        chance
    }
}

fn step(axis: usize, left: f64, right: f64) -> Step {
    (axis, left.min(right).to_bits(), left.max(right).to_bits())
}

/// The step between two points that differ on one axis only.
fn only_step(left: &Features, right: &Features) -> Option<Step> {
    let mut apart = left.iter().zip(right).enumerate().filter(|(_, (left, right))| left != right);
    let (axis, (left, right)) = apart.next()?;
    apart.next().is_none().then(|| step(axis, *left, *right))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(numbers: [f64; 2]) -> Features {
        numbers.into()
    }

    /// Points of a function of the first number, at which the second has an effect only beside a first number of 1.
    fn twins(observed: &[[f64; 2]]) -> Twins {
        let result = |numbers: &[f64; 2]| Some(if numbers[0] < 1.0 { numbers[0] } else { numbers[1] + 2.0 });
        let results: Vec<Option<f64>> = observed.iter().map(result).collect();
        Twins::new(&observed.iter().copied().map(at).collect::<Vec<_>>(), &results)
    }

    #[track_caller]
    fn assert_chance(twins: &Twins, numbers: [f64; 2], expected: f64) {
        let found = twins.chance(&at(numbers));
        assert!((found - expected).abs() < 1e-12, "{found} is not {expected}");
    }

    #[test]
    fn what_made_no_difference_is_expected_to_make_none_again() {
        let once = twins(&[[0.0, 0.0], [0.0, 1.0], [0.5, 0.0]]);
        assert_chance(&once, [0.5, 1.0], 0.5);
        let twice = twins(&[[0.0, 0.0], [0.0, 1.0], [0.5, 0.0], [0.5, 1.0], [0.75, 0.0]]);
        assert_chance(&twice, [0.75, 1.0], 2.0 / 3.0);
        // Nothing like it was tried; nobody took that step; this step made a difference.
        assert_chance(&twice, [0.25, 1.0], 0.0);
        assert_chance(&twice, [0.75, 0.5], 0.0);
        assert_eq!(twice.chance_of_both(&at([0.0, 0.0]), &at([0.5, 0.0])), 0.0);
    }

    #[test]
    fn a_difference_weighs_against_equals() {
        let both = |first: f64| [[first, 0.0], [first, 1.0]];
        let tried = |firsts: &[f64]| {
            twins(&firsts.iter().copied().flat_map(both).chain([[0.25, 0.0]]).collect::<Vec<_>>())
        };
        // Two pairs without a difference and one with; three and one.
        assert_chance(&tried(&[0.0, 0.5, 1.0]), [0.25, 1.0], 2.0 / 4.0);
        assert_chance(&tried(&[0.0, 0.5, 0.75, 1.0]), [0.25, 1.0], 3.0 / 5.0);
    }

    #[test]
    fn chances_of_several_steps_are_multiplied_until_there_is_as_good_as_none() {
        let observed: Vec<Features> = [[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]].map(at).to_vec();
        let chance = |twins: &Twins| twins.chance_of_both(&at([0.0, 0.0]), &at([1.0, 1.0]));
        // Two pairs each: 2 of 3, and 4 of 9 for both.
        let equal = Twins::new(&observed, &[Some(7); 4]);
        assert!((equal.chance_of_both(&at([0.0, 0.5]), &at([1.0, 0.5])) - 2.0 / 3.0).abs() < 1e-12);
        assert!((chance(&equal) - 4.0 / 9.0).abs() < 1e-12);
        // One of two pairs each: 1 of 3, and 1 of 9 for both; that is still something, a third of it is not.
        let mixed = Twins::new(&observed, &[Some(7), Some(7), Some(7), Some(8)]);
        assert!((chance(&mixed) - 1.0 / 9.0).abs() < 1e-12);
        let points: Vec<Features> =
            [[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0], [2.0, 0.0], [2.0, 1.0]].map(at).to_vec();
        let worse = Twins::new(&points, &[Some(7), Some(7), Some(7), Some(8), Some(1), Some(2)]);
        assert_eq!(chance(&worse), 0.0, "1 of 3 and 1 of 4");
    }

    #[test]
    fn what_says_nothing_does_not_count_and_what_is_pending_does() {
        let observed: Vec<Features> = [[0.0, 0.0], [0.0, 1.0]].map(at).to_vec();
        let mut twins = Twins::new(&observed, &[None::<u32>, None]);
        assert_chance(&twins, [0.5, 1.0], 0.0);
        twins.add(&at([0.5, 1.0]));
        assert_chance(&twins, [0.5, 1.0], 1.0);
    }
}
