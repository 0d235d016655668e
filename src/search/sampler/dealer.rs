//! Which points were suggested already, and a shuffle of those that were not.

use std::sync::Arc;

use rustc_hash::FxHashSet;

use super::Random;
use crate::search::space::{Point, Space};

/// Sees to it that a sampler suggests every point at most once.
#[derive(Debug)]
pub(super) struct Dealer {
    points: u64,
    deck: Random,
    taken: FxHashSet<Point>,
}

impl Dealer {
    pub(super) fn new(space: &Arc<Space>, seed: u64) -> Self {
        Self { points: space.size(), deck: Random::new(Arc::clone(space), seed), taken: FxHashSet::default() }
    }

    /// Marks a point as suggested; whether it was free.
    pub(super) fn take(&mut self, point: &Point) -> bool {
        self.taken.insert(point.clone())
    }

    /// Whether a point was suggested.
    pub(super) fn is_taken(&self, point: &Point) -> bool {
        self.taken.contains(point)
    }

    /// Takes a random free point, if there is one.
    pub(super) fn deal(&mut self) -> Option<Point> {
        loop {
            let point = self.deck.deal()?;
            if self.take(&point) {
                return Some(point);
            }
        }
    }

    /// Number of free points.
    pub(super) fn left(&self) -> u64 {
        self.points.saturating_sub(self.taken.len() as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::search::space::tests::small_space;

    #[test]
    fn every_point_is_dealt_once_and_those_taken_by_hand_are_not() {
        let space = Arc::new(small_space());
        let mut dealer = Dealer::new(&space, 1);
        assert!(dealer.take(&space.point(3)));
        assert!(!dealer.take(&space.point(3)));
        let mut dealt = 0;
        while let Some(point) = dealer.deal() {
            assert_ne!(point, space.point(3));
            dealt += 1;
        }
        assert_eq!((dealt, dealer.left()), (space.size() - 1, 0));
    }
}
