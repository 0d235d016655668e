//! Points that look like the good ones.

use std::sync::Arc;

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::encoding::{Axis, Encoding};
use super::halton::Halton;
use super::merit::best_first;
use super::{Observation, Sampler};
use crate::search::pool::Placement;
use crate::search::space::{Point, Space};

/// Points that are spread evenly before anything is learnt.
const FIRST_POINTS: usize = 10;
/// Candidates of which the most promising is suggested.
const CANDIDATES: usize = 24;
/// Every tenth observation is a good one, but no more than this.
const MOST_GOOD: usize = 25;
/// Weight of knowing nothing, in observations.
const PRIOR: f64 = 1.0;

/// Tree-structured Parzen estimators: a density of the good observations and one of the others, each a product over the
/// knobs; of some points drawn from the first, the one is suggested that is most likely under it and least under the other.
pub struct Tpe {
    space: Arc<Space>,
    first: Halton,
    stream: ChaCha8Rng,
    /// How much alike the choices of each factor are: the layout, then the knobs.
    factors: Vec<Likeness>,
    good_or_bad: Vec<(Point, Vec<f64>)>,
    /// Points that do not count, and by how much they miss the goal's bar if that is why.
    infeasible: Vec<(Point, Option<f64>)>,
}

impl Tpe {
    /// A sampler of the points of one branch.
    pub(in crate::search) fn new(space: Arc<Space>, placements: &[Placement], seed: u64) -> Self {
        let encoding = Encoding::new(&space, placements);
        let layout_axes = &encoding.axes()[..encoding.layout(0).len()];
        let of_layouts = Likeness::new(space.layouts(), |left, right| {
            let numbers = encoding.layout(left).iter().zip(encoding.layout(right));
            layout_axes
                .iter()
                .zip(numbers)
                .map(|(&axis, (left, right))| likeness(axis, *left, *right, LAYOUT_WIDTH))
                .product()
        });
        let of_knobs = space.dimensions().iter().enumerate().map(|(place, dimension)| {
            let choices = dimension.choices.len() as u32;
            match encoding.knob(place) {
                Some((axis, numbers)) => Likeness::new(choices, |left, right| {
                    likeness(axis, numbers[left as usize], numbers[right as usize], 1.0 / f64::from(choices))
                }),
                None => Likeness::new(choices, |_, _| 1.0),
            }
        });
        Self {
            factors: std::iter::once(of_layouts).chain(of_knobs).collect(),
            first: Halton::new(Arc::clone(&space), seed),
            stream: ChaCha8Rng::seed_from_u64(seed),
            good_or_bad: Vec::new(),
            infeasible: Vec::new(),
            space,
        }
    }

    fn observations(&self) -> usize {
        self.good_or_bad.len() + self.infeasible.len()
    }

    /// The good observations and the others.
    fn split(&self) -> (Vec<&Point>, Vec<&Point>) {
        let scores: Vec<&[f64]> = self.good_or_bad.iter().map(|(_, scores)| scores.as_slice()).collect();
        let good = self.observations().div_ceil(10).min(MOST_GOOD);
        let mut points: Vec<&Point> =
            best_first(&scores).into_iter().map(|place| &self.good_or_bad[place].0).collect();
        // While too few count, those that miss the bar by least are the best there are.
        let mut infeasible: Vec<&(Point, Option<f64>)> = self.infeasible.iter().collect();
        infeasible.sort_by(|left, right| {
            let margin = |one: &(Point, Option<f64>)| one.1.unwrap_or(f64::NEG_INFINITY);
            margin(right).total_cmp(&margin(left))
        });
        let close = infeasible.iter().take_while(|(_, margin)| margin.is_some()).count();
        points.extend(infeasible.iter().map(|(point, _)| point));
        let most = self.good_or_bad.len() + close;
        let others = points.split_off(good.min(most));
        (points, others)
    }

    fn suggest_one(&mut self) -> Option<Point> {
        if self.observations() < FIRST_POINTS {
            return self.first.walk();
        }
        let (good, others) = self.split();
        let (good, others) = (self.densities(&good), self.densities(&others));
        let mut best: Option<(f64, Point)> = None;
        for _ in 0..CANDIDATES {
            let point = self.draw(&good);
            if self.first.dealer().is_taken(&point) {
                continue;
            }
            let promise = self.log_density(&good, &point) - self.log_density(&others, &point);
            if best.as_ref().is_none_or(|(most, _)| promise > *most) {
                best = Some((promise, point));
            }
        }
        let Some((_, point)) = best else { return self.first.dealer().deal() };
        self.first.dealer().take(&point);
        Some(point)
    }

    /// For each factor, how likely each choice is among `points`.
    fn densities(&self, points: &[&Point]) -> Vec<Vec<f64>> {
        let density = |(factor, likeness): (usize, &Likeness)| {
            let choices = likeness.rows.len();
            let mut density = vec![PRIOR / choices as f64; choices];
            let mut total = PRIOR;
            for point in points {
                if let Some(choice) = self.choice(point, factor) {
                    total += 1.0;
                    for (density, likeness) in density.iter_mut().zip(&likeness.rows[choice as usize]) {
                        *density += likeness;
                    }
                }
            }
            for density in &mut density {
                *density /= total;
            }
            density
        };
        self.factors.iter().enumerate().map(density).collect()
    }

    /// The choice of a factor at a point; `None` where it has no effect.
    fn choice(&self, point: &Point, factor: usize) -> Option<u32> {
        let Some(dimension) = factor.checked_sub(1) else { return Some(point.layout) };
        self.space.is_active(&point.choices, dimension).then(|| point.choices[dimension])
    }

    fn draw(&mut self, densities: &[Vec<f64>]) -> Point {
        let mut choices = densities.iter().map(|density| {
            let mut left = self.stream.random_range(0.0..1.0);
            let chosen = density.iter().position(|share| {
                left -= share;
                left < 0.0
            });
            chosen.unwrap_or(density.len() - 1) as u32
        });
        let layout = choices.next().expect("the layout is the first factor");
        let choices = choices.collect();
        self.space.canonical(layout, choices)
    }

    fn log_density(&self, densities: &[Vec<f64>], point: &Point) -> f64 {
        let factors = densities.iter().enumerate();
        factors
            .filter_map(|(factor, density)| Some(density[self.choice(point, factor)? as usize]))
            .map(libm::log)
            .sum()
    }
}

impl Sampler for Tpe {
    fn suggest(&mut self, count: usize) -> Vec<Point> {
        (0..count).map_while(|_| self.suggest_one()).collect()
    }

    fn observe(&mut self, point: &Point, observation: &Observation<'_>) {
        match observation {
            Observation::Measured { figures, .. } => {
                self.good_or_bad.push((point.clone(), figures.to_vec()));
            }
            Observation::Infeasible { margin, .. } => self.infeasible.push((point.clone(), *margin)),
        }
    }
}

/// How far likeness reaches between layouts, as a share of the range of each of their axes.
const LAYOUT_WIDTH: f64 = 0.15;

fn likeness(axis: Axis, left: f64, right: f64, width: f64) -> f64 {
    match axis {
        Axis::Named => f64::from(u8::from(left == right)),
        Axis::Ordered => libm::exp(-0.5 * axis.squared_distance(left, right) / (width * width)),
    }
}

/// For each choice, how an observation of it spreads over all choices; every row adds up to 1.
struct Likeness {
    rows: Vec<Vec<f64>>,
}

impl Likeness {
    fn new(choices: u32, likeness: impl Fn(u32, u32) -> f64) -> Self {
        let row = |left| {
            let row: Vec<f64> = (0..choices).map(|right| likeness(left, right)).collect();
            let total: f64 = row.iter().sum();
            row.into_iter().map(|likeness| likeness / total).collect()
        };
        Self { rows: (0..choices).map(row).collect() }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::search::sampler::encoding::tests::{placements, space};

    fn score(point: &Point) -> [f64; 1] {
        [f64::from(point.layout) + f64::from(point.choices[0]) - f64::from(point.choices[1])]
    }

    #[test]
    fn every_point_comes_once() {
        let space = space();
        let mut tpe = Tpe::new(Arc::clone(&space), &placements(), 1);
        let mut seen = BTreeSet::new();
        while let [point] = &tpe.suggest(1)[..] {
            assert!(seen.insert(point.clone()));
            let figures = &score(point);
            tpe.observe(point, &Observation::Measured { figures, margin: None });
        }
        assert_eq!(seen.len() as u64, space.size());
    }

    #[test]
    fn densities_add_up_and_prefer_what_was_seen() {
        let space = space();
        let tpe = Tpe::new(Arc::clone(&space), &placements(), 1);
        let seen = space.canonical(2, vec![0, 1, 0]);
        let densities = tpe.densities(&[&seen]);
        for density in &densities {
            assert!((density.iter().sum::<f64>() - 1.0).abs() < 1e-12);
        }
        // Half a prior of 1/3 each, half an observation that spreads by exp(-0.5 (3 d)^2) over 1, 0 and 0.5.
        let spread = [-4.5_f64, 0.0, -1.125].map(f64::exp);
        let total: f64 = spread.iter().sum();
        for (density, spread) in densities[2].iter().zip(spread) {
            assert!((density - f64::midpoint(1.0 / 3.0, spread / total)).abs() < 1e-12);
        }
        assert_eq!(densities[3], [1.0]);
        // A knob without effect says nothing about itself.
        let without = space.canonical(0, vec![1, 0, 0]);
        assert_eq!(tpe.densities(&[&without])[2], [1.0 / 3.0; 3]);
    }

    #[test]
    fn infeasible_points_are_never_good() {
        let space = space();
        let mut tpe = Tpe::new(Arc::clone(&space), &placements(), 1);
        tpe.observe(&space.point(0), &Observation::Infeasible { reason: "no", margin: None });
        tpe.observe(&space.point(1), &Observation::Measured { figures: &[-7.0], margin: None });
        let (good, others) = tpe.split();
        assert_eq!((good, others), (vec![&space.point(1)], vec![&space.point(0)]));
    }

    #[test]
    fn while_nothing_counts_what_misses_the_bar_by_least_is_good() {
        let space = space();
        let mut tpe = Tpe::new(Arc::clone(&space), &placements(), 1);
        for (index, margin) in [(0, None), (1, Some(-0.5)), (2, Some(-0.1))] {
            tpe.observe(&space.point(index), &Observation::Infeasible { reason: "no", margin });
        }
        assert_eq!(tpe.split().0, [&space.point(2)]);
    }
}
