//! A random forest: what regression trees say of a point that each saw another part of the observations (Breiman 2001; as
//! the model of a search: Hutter, Hoos and Leyton-Brown 2011).
//!
//! A tree divides the observations again and again where that separates good from bad best, so that it expects the same of
//! points that differ only in what made no difference, and something else beyond a threshold or beside another name. A
//! Gaussian process knows none of that: it expects what is near to be alike, everywhere to the same degree.

use rand::RngExt;
use rand_chacha::ChaCha8Rng;

use crate::search::sampler::encoding::{Axis, Features};

/// Trees of a forest.
const TREES: usize = 50;
/// Fewer observations are not divided.
const LEAST_DIVIDED: usize = 3;
/// The axes that are looked at for a division, of all: so many of so many.
const LOOKED_AT: (usize, usize) = (5, 6);
/// A variance that is as good as none.
const NO_VARIANCE: f64 = 1e-18;

/// What a forest says of a point.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Opinion {
    pub(super) mean: f64,
    /// Of the trees' means, and within their leaves.
    pub(super) variance: f64,
}

/// Trees that were grown on random parts of the same observations.
pub(super) struct Forest {
    trees: Vec<Tree>,
    /// The mean square of what observations are off from what the trees expect that did not see them.
    pub(super) squared_error: f64,
}

/// The first node is the root.
struct Tree {
    nodes: Vec<Node>,
}

enum Node {
    Leaf(Opinion),
    Division { cut: Cut, yes: usize, no: usize },
}

/// What divides points: an axis, and which numbers on it are on the one side.
#[derive(Clone, Copy)]
struct Cut {
    axis: usize,
    numbers: Numbers,
}

#[derive(Clone, Copy)]
enum Numbers {
    UpTo(f64),
    Only(f64),
}

/// What was observed: where, and how good that is.
#[derive(Clone, Copy)]
struct Observations<'a> {
    axes: &'a [Axis],
    points: &'a [Features],
    labels: &'a [f64],
}

/// How many labels there are, their sum and that of their squares.
#[derive(Clone, Copy, Default)]
struct Sums {
    count: f64,
    sum: f64,
    squares: f64,
}

impl Forest {
    /// Grows a forest on at least one observation. Its error is that of the first `observed`; the others are made up.
    pub(super) fn grow(
        axes: &[Axis],
        points: &[Features],
        labels: &[f64],
        observed: usize,
        stream: &mut ChaCha8Rng,
    ) -> Self {
        let observations = Observations { axes, points, labels };
        let mut from_outside = vec![Sums::default(); observed];
        let tree = |_| {
            let drawn: Vec<usize> = (0..points.len()).map(|_| stream.random_range(0..points.len())).collect();
            let mut is_seen = vec![false; points.len()];
            for &place in &drawn {
                is_seen[place] = true;
            }
            let mut tree = Tree { nodes: Vec::new() };
            tree.add(observations, drawn, stream);
            for ((sums, point), _) in
                from_outside.iter_mut().zip(points).zip(is_seen).filter(|(_, seen)| !seen)
            {
                sums.add(tree.opinion(point).mean);
            }
            tree
        };
        let trees = (0..TREES).map(tree).collect();
        let mut squares = Sums::default();
        for (sums, label) in from_outside.iter().zip(labels).filter(|(sums, _)| sums.count > 0.0) {
            let off = sums.opinion().mean - label;
            squares.add(off * off);
        }
        Self { trees, squared_error: squares.sum / squares.count.max(1.0) }
    }

    #[cfg(test)]
    pub(super) fn made_up(squared_error: f64) -> Self {
        Self { trees: Vec::new(), squared_error }
    }

    /// What its trees expect of a point, and how much they disagree.
    pub(super) fn opinion(&self, point: &Features) -> Opinion {
        let (mut means, mut within) = (Sums::default(), 0.0);
        for tree in &self.trees {
            let opinion = tree.opinion(point);
            means.add(opinion.mean);
            within += opinion.variance;
        }
        let Opinion { mean, variance } = means.opinion();
        Opinion { mean, variance: variance + within / means.count }
    }
}

impl Tree {
    /// Adds the node of these observations and all below it; returns its place.
    fn add(&mut self, seen: Observations<'_>, members: Vec<usize>, stream: &mut ChaCha8Rng) -> usize {
        let place = self.nodes.len();
        let opinion = Sums::of(seen.labels, &members).opinion();
        self.nodes.push(Node::Leaf(opinion));
        if members.len() < LEAST_DIVIDED || opinion.variance < NO_VARIANCE {
            return place;
        }
        if let Some(cut) = seen.best_cut(&members, stream) {
            let (yes, no) = members.into_iter().partition(|&member| cut.holds(&seen.points[member]));
            let (yes, no) = (self.add(seen, yes, stream), self.add(seen, no, stream));
            self.nodes[place] = Node::Division { cut, yes, no };
        }
        place
    }

    fn opinion(&self, point: &Features) -> Opinion {
        let mut place = 0;
        loop {
            match &self.nodes[place] {
                Node::Leaf(opinion) => return *opinion,
                Node::Division { cut, yes, no } => place = if cut.holds(point) { *yes } else { *no },
            }
        }
    }
}

impl Cut {
    fn holds(&self, point: &Features) -> bool {
        let number = point[self.axis];
        match self.numbers {
            Numbers::UpTo(most) => number <= most,
            Numbers::Only(one) => number == one,
        }
    }
}

impl Observations<'_> {
    /// The cut that leaves the least variance on its two sides, of those on some of the axes on which these observations differ.
    fn best_cut(&self, members: &[usize], stream: &mut ChaCha8Rng) -> Option<Cut> {
        let all = Sums::of(self.labels, members);
        let mut axes: Vec<usize> = (0..self.axes.len()).collect();
        let (some, of) = LOOKED_AT;
        let wanted = (axes.len() * some).div_ceil(of);
        let mut best: Option<(f64, Cut)> = None;
        for looked_at in 0..axes.len() {
            if looked_at >= wanted && best.is_some() {
                break;
            }
            let drawn = stream.random_range(looked_at..axes.len());
            axes.swap(looked_at, drawn);
            for cut in self.cuts(axes[looked_at], members, stream) {
                let mut yes = Sums::default();
                for &member in members.iter().filter(|&&member| cut.holds(&self.points[member])) {
                    yes.add(self.labels[member]);
                }
                let left = yes.deviations() + all.without(yes).deviations();
                if best.is_none_or(|(least, _)| left < least) {
                    best = Some((left, cut));
                }
            }
        }
        best.map(|(_, cut)| cut)
    }

    /// What can divide these observations on one axis: each name from the others, or somewhere between two neighbouring numbers.
    fn cuts(&self, axis: usize, members: &[usize], stream: &mut ChaCha8Rng) -> Vec<Cut> {
        let mut numbers: Vec<f64> = members.iter().map(|&member| self.points[member][axis]).collect();
        numbers.sort_by(f64::total_cmp);
        numbers.dedup();
        let between = |pair: &[f64]| pair[0] + (pair[1] - pair[0]) * stream.random_range(0.0..1.0);
        let numbers: Vec<Numbers> = match self.axes[axis] {
            _ if numbers.len() < 2 => Vec::new(),
            Axis::Named => numbers.into_iter().map(Numbers::Only).collect(),
            Axis::Ordered => numbers.windows(2).map(between).map(Numbers::UpTo).collect(),
        };
        numbers.into_iter().map(|numbers| Cut { axis, numbers }).collect()
    }
}

impl Sums {
    fn of(labels: &[f64], members: &[usize]) -> Self {
        let mut sums = Self::default();
        for &member in members {
            sums.add(labels[member]);
        }
        sums
    }

    fn add(&mut self, label: f64) {
        self.count += 1.0;
        self.sum += label;
        self.squares += label * label;
    }

    fn without(self, some: Self) -> Self {
        Self {
            count: self.count - some.count,
            sum: self.sum - some.sum,
            squares: self.squares - some.squares,
        }
    }

    /// The sum of the squared deviations from the mean.
    fn deviations(self) -> f64 {
        (self.squares - self.sum * self.sum / self.count).max(0.0)
    }

    fn opinion(self) -> Opinion {
        Opinion { mean: self.sum / self.count, variance: self.deviations() / self.count }
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;

    use super::*;

    /// Twelve points of two numbers and a name, and a forest that saw them: what is good is a large first number beside the
    /// name 1; the second number makes no difference.
    fn forest() -> (Vec<Features>, Vec<f64>, Forest) {
        let axes = [Axis::Ordered, Axis::Ordered, Axis::Named];
        let mut points: Vec<Features> = Vec::new();
        for first in [0.0, 0.5, 1.0] {
            for second in [0.0, 1.0] {
                points.extend([0.0, 1.0].map(|name| Features::from([first, second, name])));
            }
        }
        let label = |at: &Features| if at[0] > 0.7 && at[2] == 1.0 { 0.5 } else { -0.25 };
        let labels: Vec<f64> = points.iter().map(label).collect();
        let forest = Forest::grow(&axes, &points, &labels, 12, &mut ChaCha8Rng::seed_from_u64(1));
        (points, labels, forest)
    }

    #[test]
    fn what_goes_together_is_found() {
        let (points, labels, forest) = forest();
        for (point, label) in points.iter().zip(labels) {
            let opinion = forest.opinion(point);
            assert!((opinion.mean - label).abs() < 0.25, "{point:?}: {opinion:?}, not {label}");
            assert!(opinion.variance >= 0.0);
        }
        let unseen = |second: f64| forest.opinion(&Features::from([0.95, second, 1.0])).mean;
        assert!(unseen(0.5) > 0.2 && (unseen(0.0) - unseen(1.0)).abs() < 0.15);
    }

    #[test]
    fn its_error_is_that_of_trees_that_did_not_see_the_observation() {
        let (points, labels, forest) = forest();
        // Two in twelve are 0.75 above the others: who knows nothing is off by 0.078 in the mean square, who knows all by nothing.
        assert!(forest.squared_error > 1e-3 && forest.squared_error < 0.1, "{}", forest.squared_error);
        let axes = [Axis::Ordered, Axis::Ordered, Axis::Named];
        let grow = |labels: &[f64], observed| {
            Forest::grow(&axes, &points, labels, observed, &mut ChaCha8Rng::seed_from_u64(1)).squared_error
        };
        assert_eq!(grow(&[0.5; 12], 12), 0.0);
        // What is made up is not judged by.
        let mut odd = labels.clone();
        odd[11] = 50.0;
        assert!(grow(&odd, 12) > 100.0);
        assert_eq!(grow(&labels, 0), 0.0);
    }

    #[test]
    fn equals_are_certain_and_single_observations_have_an_opinion() {
        let axes = [Axis::Ordered];
        let mut stream = ChaCha8Rng::seed_from_u64(1);
        let points = [[0.0], [1.0]].map(Features::from);
        let equal = Forest::grow(&axes, &points, &[0.25, 0.25], 2, &mut stream);
        assert_eq!(equal.opinion(&points[0]), Opinion { mean: 0.25, variance: 0.0 });
        let alone = Forest::grow(&axes, &points[..1], &[-0.5], 1, &mut stream);
        assert_eq!(alone.opinion(&points[1]), Opinion { mean: -0.5, variance: 0.0 });
    }

    #[test]
    fn a_cut_leaves_the_least_variance() {
        let points = [[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [1.0, 1.0]].map(Features::from);
        let seen = Observations {
            axes: &[Axis::Ordered, Axis::Named],
            points: &points,
            labels: &[1.0, 2.0, 5.0, 6.0],
        };
        let cut = seen.best_cut(&[0, 1, 2, 3], &mut ChaCha8Rng::seed_from_u64(1)).unwrap();
        assert!(cut.axis == 1 && cut.holds(&points[0]) == cut.holds(&points[1]));
        assert!(seen.best_cut(&[0, 0], &mut ChaCha8Rng::seed_from_u64(1)).is_none());
        // Within 1, 2 and 5, 6.
        let yes = Sums::of(seen.labels, &[0, 1]);
        let all = Sums::of(seen.labels, &[0, 1, 2, 3]);
        assert!(
            (yes.deviations() - 0.5).abs() < 1e-12 && (all.without(yes).deviations() - 0.5).abs() < 1e-12
        );
    }
}
