//! The points among which a batch is chosen, and what is believed of them.

use std::sync::Arc;

use rand::RngExt;
use rand_chacha::ChaCha8Rng;
use rustc_hash::FxHashSet;

use super::process::{Beliefs, Process};
use super::twins::Twins;
use crate::search::sampler::dealer::Dealer;
use crate::search::sampler::encoding::{Encoding, Features};
use crate::search::space::{Point, Space};

/// A space of up to so many points is looked at whole.
pub(super) const ALL: u64 = 2048;
/// Points of a larger one that are looked at without a reason.
const RANDOM: usize = 1024;
/// Points whose surroundings are looked at.
pub(super) const STARTS: usize = 4;
/// How often the surroundings of the most promising points are looked at.
pub(super) const CLIMBS: usize = 3;

/// What is a copy with a greater chance is taken for one.
const LIKELY: f64 = 0.5;

/// Which points of a pool are looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Among {
    All,
    /// Those that differ in one thing from one of the best observations; all, if there is none.
    Near,
}

/// Different points of a space, all free, and what each objective's process believes of them.
pub(super) struct Pool {
    points: Vec<Point>,
    features: Vec<Features>,
    members: FxHashSet<Point>,
    /// What differs in one thing from one of the best observations.
    near: FxHashSet<Point>,
    beliefs: Vec<Beliefs>,
    chosen: Vec<bool>,
    /// What was tried or chosen, and for each point how likely it is a copy of some of that.
    twins: Twins,
    chances: Vec<f64>,
}

impl Pool {
    /// A pool of these points, of which those are `near` that differ in one thing from one of the best observations.
    pub(super) fn new(
        encoding: &Encoding,
        processes: &[Process],
        twins: Twins,
        points: Vec<Point>,
        near: Vec<Point>,
    ) -> Self {
        let mut pool = Self {
            points: Vec::new(),
            features: Vec::new(),
            members: FxHashSet::default(),
            near: near.into_iter().collect(),
            beliefs: processes.iter().map(|process| process.beliefs(&[])).collect(),
            chosen: Vec::new(),
            twins,
            chances: Vec::new(),
        };
        pool.extend(encoding, processes, points);
        pool
    }

    /// Adds points; those that are in it already are left out.
    pub(super) fn extend(&mut self, encoding: &Encoding, processes: &[Process], mut points: Vec<Point>) {
        points.retain(|point| self.members.insert(point.clone()));
        let features: Vec<Features> = points.iter().map(|point| encoding.encode(point)).collect();
        for (beliefs, process) in self.beliefs.iter_mut().zip(processes) {
            beliefs.append(process.beliefs(&features));
        }
        self.chances.extend(features.iter().map(|at| self.twins.chance(at)));
        self.chosen.resize(self.chosen.len() + points.len(), false);
        self.points.append(&mut points);
        self.features.extend(features);
    }

    /// Takes into account that these points, which were chosen earlier, will be observed; nothing can be added afterwards.
    pub(super) fn choose_pending(&mut self, encoding: &Encoding, processes: &[Process], pending: Vec<Point>) {
        let first = self.points.len();
        self.extend(encoding, processes, pending);
        for place in first..self.points.len() {
            self.choose(place, processes);
        }
    }

    /// The place of the point that is worth most, the first of equals; `None` when all were chosen. Worth is a logarithm of which
    /// that of the chance not to be a copy is a part; what is likely a copy comes only when there is nothing else.
    pub(super) fn best(&self, among: Among, worth: impl Fn(&[Beliefs], usize) -> f64) -> Option<usize> {
        let worth = |place: usize| worth(&self.beliefs, place) + libm::log1p(-self.chances[place]);
        let is_new = |place: usize| self.chances[place] <= LIKELY;
        let is_near = |place: usize| is_new(place) && self.near.contains(&self.points[place]);
        let near = (among == Among::Near).then(|| self.best_of(worth, is_near)).flatten();
        near.or_else(|| self.best_of(worth, is_new)).or_else(|| self.best_of(worth, |_| true))
    }

    fn best_of(&self, worth: impl Fn(usize) -> f64, is_wanted: impl Fn(usize) -> bool) -> Option<usize> {
        let mut best: Option<(f64, usize)> = None;
        for place in (0..self.points.len()).filter(|&place| !self.chosen[place] && is_wanted(place)) {
            let worth = worth(place);
            if best.is_none_or(|(most, _)| worth > most) {
                best = Some((worth, place));
            }
        }
        best.map(|(_, place)| place)
    }

    /// The points that are worth most, copies of what was tried left out.
    pub(super) fn top(&self, count: usize, worth: impl Fn(&[Beliefs], usize) -> f64) -> Vec<Point> {
        let mut order: Vec<(f64, usize)> = (0..self.points.len())
            .filter(|&place| self.chances[place] <= LIKELY)
            .map(|place| (worth(&self.beliefs, place), place))
            .collect();
        order.sort_by(|left, right| right.0.total_cmp(&left.0).then(left.1.cmp(&right.1)));
        order.into_iter().take(count).map(|(_, place)| self.points[place].clone()).collect()
    }

    /// Chooses a point: what is believed of the others takes into account that it will be observed.
    pub(super) fn choose(&mut self, place: usize, processes: &[Process]) -> Point {
        self.chosen[place] = true;
        let chosen = &self.features[place];
        self.twins.add(chosen);
        for (chance, at) in self.chances.iter_mut().zip(&self.features) {
            *chance = chance.max(self.twins.chance_of_both(at, chosen));
        }
        for (beliefs, process) in self.beliefs.iter_mut().zip(processes) {
            beliefs.choose(place, process, &self.features);
        }
        self.points[place].clone()
    }
}

/// Free points, drawn blindly.
pub(super) fn random_points(space: &Arc<Space>, dealer: &Dealer, stream: &mut ChaCha8Rng) -> Vec<Point> {
    let draw = |_| {
        let layout = stream.random_range(0..space.layouts());
        let choices = space.dimensions().iter().map(|knob| stream.random_range(0..knob.choices.len() as u32));
        let choices = choices.collect();
        space.canonical(layout, choices)
    };
    (0..RANDOM).map(draw).filter(|point| !dealer.is_taken(point)).collect()
}

/// All points that differ from this one in its layout or in one knob.
pub(super) fn neighbours(space: &Space, point: &Point) -> Vec<Point> {
    let mut found: Vec<Point> = (0..space.layouts())
        .filter(|&layout| layout != point.layout)
        .map(|layout| Point { layout, choices: Arc::clone(&point.choices) })
        .collect();
    for (place, knob) in space.dimensions().iter().enumerate() {
        if !space.is_active(&point.choices, place) {
            continue;
        }
        for choice in (0..knob.choices.len() as u32).filter(|&choice| choice != point.choices[place]) {
            let mut choices = point.choices.to_vec();
            choices[place] = choice;
            found.push(space.canonical(point.layout, choices));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::search::sampler::encoding;
    use crate::search::space::tests::small_space;

    #[test]
    fn what_is_near_comes_first_if_that_is_asked_for() {
        let space = encoding::tests::space();
        let encoding = Encoding::new(&space, &encoding::tests::placements());
        let points: Vec<Point> = (0..space.size()).map(|index| space.point(index)).collect();
        let near = vec![points[1].clone(), points[3].clone()];
        let twins = Twins::new(&[], &[None::<u32>; 0]);
        let mut pool = Pool::new(&encoding, &[], twins, points, near);
        let last = |_: &[Beliefs], place: usize| place as f64;
        let chosen: Vec<usize> = (0..4)
            .map(|turn| {
                let among = if turn == 1 { Among::All } else { Among::Near };
                let place = pool.best(among, last).unwrap();
                pool.choose(place, &[]);
                place
            })
            .collect();
        let all = space.size() as usize;
        assert_eq!(chosen, [3, all - 1, 1, all - 2]);
    }

    #[test]
    fn what_may_be_a_copy_is_worth_as_much_less() {
        let space = encoding::tests::space();
        let encoding = Encoding::new(&space, &encoding::tests::placements());
        let points: Vec<Point> =
            [(0, [0, 0, 0]), (0, [0, 1, 0]), (1, [0, 0, 0]), (1, [0, 1, 0]), (2, [0, 0, 0]), (2, [0, 1, 0])]
                .map(|(layout, choices)| space.canonical(layout, choices.to_vec()))
                .to_vec();
        // At the first layout the weight made no difference, and at the second the heavier one was tried.
        let tried: Vec<Features> = points[..3].iter().map(|point| encoding.encode(point)).collect();
        let twins = Twins::new(&tried, &[Some(1), Some(1), Some(2)]);
        let pool = Pool::new(&encoding, &[], twins, points[3..].to_vec(), Vec::new());
        assert_eq!(pool.chances, [0.5, 0.0, 0.0]);
        let best = |of_copy: f64| pool.best(Among::All, |_, place| if place == 0 { of_copy } else { 0.0 });
        // The logarithm of a half.
        assert_eq!((best(0.7), best(0.69)), (Some(0), Some(1)));
    }

    #[test]
    fn neighbours_differ_in_one_thing_that_has_an_effect() {
        let space = small_space();
        let of = |layout, choices: [u32; 4]| {
            neighbours(&space, &space.canonical(layout, choices.to_vec()))
                .iter()
                .map(|point| (point.layout, point.choices.to_vec()))
                .collect::<Vec<_>>()
        };
        assert_eq!(
            of(0, [1, 0, 0, 1]),
            [(1, vec![1, 0, 0, 1]), (0, vec![0, 0, 0, 1]), (0, vec![1, 0, 0, 0])]
        );
        assert_eq!(of(0, [0, 2, 1, 1]).len(), 1 + 1 + 2 + 1 + 1);
    }
}
