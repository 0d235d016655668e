//! The points of one branch: which choices there are and how to walk over them.

use std::sync::Arc;

use serde_json::Value;

/// Everything that one branch of a search may vary: a pool of parallel layouts and, beside it, a list of knobs.
#[derive(Clone, Debug)]
pub struct Space {
    layouts: u32,
    dimensions: Vec<Dimension>,
}

/// One knob and its choices.
#[derive(Clone, Debug)]
pub struct Dimension {
    /// The knob's name in the configuration and in a candidate's `config`.
    pub name: &'static str,
    /// Its distinct choices, in configured order; at least one.
    pub choices: Vec<Value>,
    /// When the knob has an effect; `None` is always.
    pub condition: Option<Condition>,
}

/// A knob has an effect only under some choices of an earlier, unconditional one.
#[derive(Clone, Debug)]
pub struct Condition {
    /// Place of the earlier knob among the dimensions.
    pub dimension: usize,
    /// For each of its choices, whether it gives this knob an effect.
    pub active: Vec<bool>,
}

/// One point of a [`Space`]: a layout and one choice for every knob.
///
/// Points are canonical: a knob without effect stands at its first choice, so that two points are equal exactly when
/// they mean the same.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Point {
    /// Place of the layout in the pool.
    pub layout: u32,
    /// Place of the choice of each dimension.
    pub choices: Arc<[u32]>,
}

impl Space {
    /// A space over `layouts` parallel layouts and these knobs.
    ///
    /// # Panics
    /// If a knob has no choice or depends on one that does not come before it or is conditional itself.
    pub fn new(layouts: u32, dimensions: Vec<Dimension>) -> Self {
        for (place, dimension) in dimensions.iter().enumerate() {
            assert!(!dimension.choices.is_empty(), "{} has no choice", dimension.name);
            if let Some(condition) = &dimension.condition {
                assert!(condition.dimension < place, "{} depends on a later knob", dimension.name);
                let earlier = &dimensions[condition.dimension];
                assert!(earlier.condition.is_none(), "{} depends on a conditional knob", dimension.name);
                assert_eq!(condition.active.len(), earlier.choices.len(), "{}", dimension.name);
            }
        }
        Self { layouts, dimensions }
    }

    /// Number of parallel layouts.
    pub fn layouts(&self) -> u32 {
        self.layouts
    }

    /// The knobs, in order.
    pub fn dimensions(&self) -> &[Dimension] {
        &self.dimensions
    }

    /// Number of different points; `u64::MAX` when there are more than that.
    pub fn size(&self) -> u64 {
        self.leaders()
            .fold(u64::from(self.layouts), |size, leader| size.saturating_mul(self.group_size(leader)))
    }

    /// The point at `index` of the canonical order: layouts outermost, then the knobs, the last one varying fastest
    /// (a knob and those that depend on it vary together).
    ///
    /// # Panics
    /// If `index` is not below [`Space::size`].
    pub fn point(&self, index: u64) -> Point {
        assert!(index < self.size(), "point {index} of {}", self.size());
        let mut choices = vec![0; self.dimensions.len()];
        let mut rest = index;
        let leaders: Vec<usize> = self.leaders().collect();
        for leader in leaders.into_iter().rev() {
            let size = self.group_size(leader);
            self.choose_in_group(leader, rest % size, &mut choices);
            rest /= size;
        }
        Point { layout: rest as u32, choices: choices.into() }
    }

    /// Whether a knob has an effect at a point.
    pub fn is_active(&self, choices: &[u32], dimension: usize) -> bool {
        self.dimensions[dimension]
            .condition
            .as_ref()
            .is_none_or(|condition| condition.active[choices[condition.dimension] as usize])
    }

    /// The point with these choices, knobs without effect put back to their first choice.
    pub fn canonical(&self, layout: u32, mut choices: Vec<u32>) -> Point {
        for dimension in 0..self.dimensions.len() {
            if !self.is_active(&choices, dimension) {
                choices[dimension] = 0;
            }
        }
        Point { layout, choices: choices.into() }
    }

    fn leaders(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.dimensions.len()).filter(|&place| self.dimensions[place].condition.is_none())
    }

    /// The knobs that have an effect only under some choices of `leader`.
    fn followers(&self, leader: usize) -> impl DoubleEndedIterator<Item = usize> + '_ {
        (leader + 1..self.dimensions.len()).filter(move |&place| {
            self.dimensions[place].condition.as_ref().is_some_and(|condition| condition.dimension == leader)
        })
    }

    /// Ways to choose an unconditional knob together with those that depend on it.
    fn group_size(&self, leader: usize) -> u64 {
        (0..self.dimensions[leader].choices.len())
            .map(|choice| self.ways_below(leader, choice))
            .fold(0, u64::saturating_add)
    }

    /// Ways to choose the dependent knobs once their leader stands at `choice`.
    fn ways_below(&self, leader: usize, choice: usize) -> u64 {
        self.followers(leader)
            .filter(|&follower| self.is_active_under(follower, choice))
            .map(|follower| self.dimensions[follower].choices.len() as u64)
            .fold(1, u64::saturating_mul)
    }

    fn is_active_under(&self, follower: usize, leader_choice: usize) -> bool {
        self.dimensions[follower].condition.as_ref().is_some_and(|condition| condition.active[leader_choice])
    }

    fn choose_in_group(&self, leader: usize, mut rest: u64, choices: &mut [u32]) {
        let mut choice = 0;
        loop {
            let ways = self.ways_below(leader, choice);
            if rest < ways {
                break;
            }
            rest -= ways;
            choice += 1;
        }
        choices[leader] = choice as u32;
        for follower in self.followers(leader).rev() {
            if self.is_active_under(follower, choice) {
                let size = self.dimensions[follower].choices.len() as u64;
                choices[follower] = (rest % size) as u32;
                rest /= size;
            }
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn knob(name: &'static str, count: u32, condition: Option<Condition>) -> Dimension {
        Dimension { name, choices: (0..count).map(Value::from).collect(), condition }
    }

    /// Two routers, the first with a weight of 3 and a temperature of 2 choices, and an independent knob of 2.
    pub(crate) fn small_space() -> Space {
        let weighted = || Some(Condition { dimension: 0, active: vec![true, false] });
        Space::new(
            2,
            vec![
                knob("router", 2, None),
                knob("weight", 3, weighted()),
                knob("temperature", 2, weighted()),
                knob("sequences", 2, None),
            ],
        )
    }

    #[test]
    fn knobs_without_effect_do_not_multiply_the_points() {
        assert_eq!(small_space().size(), 2 * (3 * 2 + 1) * 2);
    }

    #[test]
    fn every_index_is_a_different_canonical_point_in_ascending_order() {
        let space = small_space();
        let points: Vec<Point> = (0..space.size()).map(|index| space.point(index)).collect();
        assert_eq!(points.iter().collect::<BTreeSet<_>>().len(), points.len());
        assert!(points.is_sorted());
        for point in &points {
            assert_eq!(*point, space.canonical(point.layout, point.choices.to_vec()));
        }
    }

    #[test]
    fn canonical_points_forget_the_weights_of_a_router_without_weights() {
        let space = small_space();
        assert_eq!(space.canonical(0, vec![1, 2, 1, 1]), space.canonical(0, vec![1, 0, 0, 1]));
        assert_ne!(space.canonical(0, vec![0, 2, 1, 1]), space.canonical(0, vec![0, 0, 0, 1]));
    }

    #[test]
    fn a_space_without_knobs_has_its_layouts() {
        let space = Space::new(3, Vec::new());
        assert_eq!(space.size(), 3);
        assert_eq!(space.point(2).layout, 2);
    }

    #[test]
    fn a_space_too_large_to_count_says_so() {
        let knobs = (0..20).map(|_| knob("many", 1000, None)).collect();
        assert_eq!(Space::new(1, knobs).size(), u64::MAX);
    }
}
