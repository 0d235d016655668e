//! Points drawn blindly.

use std::sync::Arc;

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rustc_hash::FxHashMap;

use super::{Observation, Sampler};
use crate::search::space::{Point, Space};

/// Draws points uniformly and without replacement: a seeded shuffle of the space, of which only the part that was
/// dealt is ever stored.
#[derive(Debug)]
pub struct Random {
    space: Arc<Space>,
    stream: ChaCha8Rng,
    dealt: u64,
    /// Places of the deck that no longer hold their own index.
    moved: FxHashMap<u64, u64>,
}

impl Random {
    /// A shuffle of `space`.
    pub fn new(space: Arc<Space>, seed: u64) -> Self {
        Self { space, stream: ChaCha8Rng::seed_from_u64(seed), dealt: 0, moved: FxHashMap::default() }
    }

    /// One step of a Fisher-Yates shuffle: swaps a random place with the first that was not dealt, and deals it.
    pub(super) fn deal(&mut self) -> Option<Point> {
        let size = self.space.size();
        if self.dealt == size {
            return None;
        }
        let place = self.stream.random_range(self.dealt..size);
        let card = self.moved.get(&place).copied().unwrap_or(place);
        let first = self.moved.remove(&self.dealt).unwrap_or(self.dealt);
        if place != self.dealt {
            self.moved.insert(place, first);
        }
        self.dealt += 1;
        Some(self.space.point(card))
    }
}

impl Sampler for Random {
    fn suggest(&mut self, count: usize) -> Vec<Point> {
        (0..count).map_while(|_| self.deal()).collect()
    }

    fn observe(&mut self, _point: &Point, _observation: &Observation<'_>) {}
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::search::space::tests::small_space;

    fn deal_all(seed: u64) -> Vec<Point> {
        let mut sampler = Random::new(Arc::new(small_space()), seed);
        let points = sampler.suggest(1000);
        assert!(sampler.suggest(1).is_empty());
        points
    }

    #[test]
    fn deals_every_point_once() {
        let points = deal_all(1);
        assert_eq!(points.len() as u64, small_space().size());
        assert_eq!(points.iter().collect::<BTreeSet<_>>().len(), points.len());
        assert!(!points.is_sorted());
    }

    #[test]
    fn the_seed_decides() {
        assert_eq!(deal_all(7), deal_all(7));
        assert_ne!(deal_all(7), deal_all(8));
    }

    #[test]
    fn the_size_of_the_batches_does_not_matter() {
        let mut sampler = Random::new(Arc::new(small_space()), 3);
        let points: Vec<Point> =
            [1, 4, 2, 100].into_iter().flat_map(|count| sampler.suggest(count)).collect();
        assert_eq!(points, deal_all(3));
    }

    #[test]
    fn first_draws_are_spread_evenly() {
        let space = Arc::new(small_space());
        let mut counts = vec![0_u32; space.size() as usize];
        for seed in 0..2800 {
            let point = Random::new(Arc::clone(&space), seed).suggest(1).remove(0);
            let index = (0..space.size()).find(|&index| space.point(index) == point).unwrap();
            counts[index as usize] += 1;
        }
        assert!(counts.iter().all(|count| (60..=145).contains(count)), "{counts:?}");
    }
}
