//! Points spread evenly.

use std::sync::Arc;

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::dealer::Dealer;
use super::{Observation, Sampler};
use crate::search::space::{Point, Space};

/// Digits further behind than this are left out.
const RESOLUTION: f64 = 1e-9;
/// Points of the sequence in a row that may fall on points suggested before; then the rest is dealt at random.
const PATIENCE: u32 = 256;

/// Walks along a scrambled Halton sequence: every stretch of it covers every knob evenly.
///
/// Each coordinate is the index of the point in a prime base of its own, its digits permuted and mirrored at the point. A
/// coordinate chooses among the choices of one knob. What was suggested before is skipped.
#[derive(Debug)]
pub struct Halton {
    space: Arc<Space>,
    dealer: Dealer,
    coordinates: Vec<Coordinate>,
    next: u64,
}

impl Halton {
    /// A walk over all of `space`.
    pub fn new(space: Arc<Space>, seed: u64) -> Self {
        let mut stream = ChaCha8Rng::seed_from_u64(seed);
        let coordinates =
            primes().take(space.dimensions().len() + 1).map(|base| Coordinate::new(base, &mut stream));
        Self { dealer: Dealer::new(&space, seed), coordinates: coordinates.collect(), next: 0, space }
    }

    fn point(&self, index: u64) -> Point {
        let mut shares = self.coordinates.iter().map(|coordinate| coordinate.share(index));
        let mut choose = |count: u32| {
            let share = shares.next().expect("there is a coordinate for the layout and for each knob");
            ((share * f64::from(count)) as u32).min(count - 1)
        };
        let layout = choose(self.space.layouts());
        let dimensions = self.space.dimensions().iter();
        let choices = dimensions.map(|dimension| choose(dimension.choices.len() as u32)).collect();
        self.space.canonical(layout, choices)
    }

    /// Takes the next point that is free.
    pub(super) fn walk(&mut self) -> Option<Point> {
        for _ in 0..PATIENCE {
            if self.dealer.left() == 0 {
                return None;
            }
            let point = self.point(self.next);
            self.next += 1;
            if self.dealer.take(&point) {
                return Some(point);
            }
        }
        self.dealer.deal()
    }

    /// The points that are left.
    pub(super) fn dealer(&mut self) -> &mut Dealer {
        &mut self.dealer
    }
}

impl Sampler for Halton {
    fn suggest(&mut self, count: usize) -> Vec<Point> {
        (0..count).map_while(|_| self.walk()).collect()
    }

    fn observe(&mut self, _point: &Point, _observation: &Observation<'_>) {}
}

/// One coordinate of the sequence.
#[derive(Debug)]
struct Coordinate {
    base: u64,
    permutation: Vec<u64>,
}

impl Coordinate {
    fn new(base: u64, stream: &mut ChaCha8Rng) -> Self {
        let mut permutation: Vec<u64> = (0..base).collect();
        for place in (1..permutation.len()).rev() {
            permutation.swap(place, stream.random_range(0..=place));
        }
        Self { base, permutation }
    }

    /// Where a point stands, above 0 and below 1: in the middle of the cell that its digits name, so that no rounding
    /// moves it into the next.
    fn share(&self, mut index: u64) -> f64 {
        let (mut share, mut weight) = (0.0, 1.0);
        while weight > RESOLUTION {
            weight /= self.base as f64;
            share += weight * self.permutation[(index % self.base) as usize] as f64;
            index /= self.base;
        }
        share + weight / 2.0
    }
}

fn primes() -> impl Iterator<Item = u64> {
    (2..).filter(|candidate| (2..*candidate).take_while(|d| d * d <= *candidate).all(|d| candidate % d != 0))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::search::space::tests::small_space;

    #[test]
    fn the_first_primes() {
        assert_eq!(primes().take(8).collect::<Vec<_>>(), [2, 3, 5, 7, 11, 13, 17, 19]);
    }

    #[test]
    fn the_plain_sequence_is_the_digits_mirrored() {
        let plain = |base| Coordinate { base, permutation: (0..base).collect() };
        let cells = |base, count: u64, cells: f64| {
            (0..count).map(|index| (plain(base).share(index) * cells) as u64).collect::<Vec<_>>()
        };
        assert_eq!(cells(2, 5, 8.0), [0, 4, 2, 6, 1]);
        assert_eq!(cells(3, 4, 9.0), [0, 3, 6, 1]);
    }

    #[test]
    fn a_stretch_as_long_as_the_base_meets_every_choice() {
        let mut stream = ChaCha8Rng::seed_from_u64(3);
        for base in [2, 3, 5, 7] {
            let coordinate = Coordinate::new(base, &mut stream);
            let met: BTreeSet<u64> =
                (10..10 + base).map(|index| (coordinate.share(index) * base as f64) as u64).collect();
            assert_eq!(met.len() as u64, base);
        }
    }

    #[test]
    fn every_point_comes_once_whatever_the_batches_and_the_seed_decides() {
        let walk = |seed, batches: &[usize]| {
            let mut halton = Halton::new(Arc::new(small_space()), seed);
            batches.iter().flat_map(|&count| halton.suggest(count)).collect::<Vec<Point>>()
        };
        let points = walk(1, &[1000]);
        assert_eq!(points.len() as u64, small_space().size());
        assert_eq!(points.iter().collect::<BTreeSet<_>>().len(), points.len());
        assert_eq!(points, walk(1, &[3, 1, 1000]));
        assert_ne!(points, walk(2, &[1000]));
    }
}
