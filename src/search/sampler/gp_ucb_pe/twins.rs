//! Points that will most likely come out exactly like one that was tried, because they differ from it only in what has made
//! no difference so far.
//!
//! A replay has no noise, so that equal results mean that a setting had no effect. Half of a space can be such copies: more
//! running requests than ever come, a threshold that is never reached, engines that behave alike under this load. A Gaussian
//! process expects a copy of the best point to be as good as it, which makes it look like the next best thing to try.

use rustc_hash::FxHashMap;

use crate::search::sampler::encoding::Features;

/// A point is a copy if its chance of being one is greater.
const LIKELY: f64 = 0.5;

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

    /// Whether a point is most likely a copy of one that was tried.
    pub(super) fn has(&self, point: &Features) -> bool {
        self.tried.iter().any(|tried| self.are_twins(point, tried))
    }

    /// Whether two points most likely come out alike: the chance of each step between them to make no difference is estimated
    /// as `equal / (pairs + 1)`, as if it had made one once, and the chances are multiplied.
    pub(super) fn are_twins(&self, left: &Features, right: &Features) -> bool {
        let mut chance = 1.0;
        for (axis, (left, right)) in left.iter().zip(right).enumerate() {
            if left != right {
                let count = self.counts.get(&step(axis, *left, *right)).copied().unwrap_or_default();
                chance *= f64::from(count.equal) / f64::from(count.pairs + 1);
                if chance <= LIKELY {
                    return false;
                }
            }
        }
        true
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

    #[test]
    fn what_made_no_difference_twice_makes_none_the_third_time() {
        let once = twins(&[[0.0, 0.0], [0.0, 1.0], [0.5, 0.0]]);
        assert!(!once.has(&at([0.5, 1.0])), "one pair may be an accident");
        let twice = twins(&[[0.0, 0.0], [0.0, 1.0], [0.5, 0.0], [0.5, 1.0], [0.75, 0.0]]);
        assert!(twice.has(&at([0.75, 1.0])));
        assert!(!twice.has(&at([0.25, 1.0])), "nothing like it was tried");
        assert!(!twice.has(&at([0.75, 0.5])), "nobody took that step");
        assert!(!twice.are_twins(&at([0.0, 0.0]), &at([0.5, 0.0])), "this step made a difference");
    }

    #[test]
    fn a_difference_weighs_against_equals() {
        // Two pairs without a difference and one with: 2 of 4. Three and one: 3 of 5.
        let both = |first: f64| [[first, 0.0], [first, 1.0]];
        let tried = |firsts: &[f64]| {
            twins(&firsts.iter().copied().flat_map(both).chain([[0.25, 0.0]]).collect::<Vec<_>>())
        };
        assert!(!tried(&[0.0, 0.5, 1.0]).has(&at([0.25, 1.0])));
        assert!(tried(&[0.0, 0.5, 0.75, 1.0]).has(&at([0.25, 1.0])));
    }

    #[test]
    fn chances_of_several_steps_are_multiplied() {
        let observed: Vec<Features> = [[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]].map(at).to_vec();
        let twins = Twins::new(&observed, &[Some(7); 4]);
        // Two pairs each: 2 of 3, and 4 of 9 for both.
        assert!(twins.are_twins(&at([0.0, 0.5]), &at([1.0, 0.5])));
        assert!(!twins.are_twins(&at([0.0, 0.0]), &at([1.0, 1.0])));
    }

    #[test]
    fn what_says_nothing_does_not_count_and_what_is_pending_does() {
        let observed: Vec<Features> = [[0.0, 0.0], [0.0, 1.0]].map(at).to_vec();
        let mut twins = Twins::new(&observed, &[None::<u32>, None]);
        assert!(!twins.has(&at([0.5, 1.0])));
        twins.add(&at([0.5, 1.0]));
        assert!(twins.has(&at([0.5, 1.0])));
    }
}
