//! Points that a model of the whole space expects to be good, or knows too little about.
//!
//! Batched Bayesian optimisation by expected improvement, confidence bounds and pure exploration. Every objective has a Gaussian process
//! over the knobs ([`process`]), fitted anew for every batch to labels that are robust against outliers ([`warping`]); where there
//! is one objective, a [`forest`] is asked as well. The first point of a batch is, most of the time, the most hopeful one; the others are
//! mostly those about which least is known among all that may still be the best ([`acquisition`]); whatever was chosen earlier in the
//! batch counts as known. Hope is the improvement that is expected of a point: of one objective over the best, of several in the
//! hypervolume below their [`frontier`]. What may be a copy of a point that was tried is worth as much less, and what most likely is
//! one comes last ([`twins`]).
//!
//! The inner search is over points of the space itself, so nothing has to be rounded and nothing comes twice: all points of
//! a small space, and of a large one a random part and what lies around the best.

mod acquisition;
mod constraints;
mod forest;
mod frontier;
mod kernel;
mod minimise;
mod pool;
mod process;
mod twins;
mod warping;

use std::collections::VecDeque;
use std::sync::Arc;

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use self::acquisition::{Outlook, upper_bound};
use self::constraints::constraints;
use self::forest::Forest;
use self::pool::{Among, Pool};
use self::process::{Beliefs, Evidence, Process};
use self::twins::Twins;
use super::encoding::{Encoding, Features};
use super::halton::Halton;
use super::merit::best_first;
use super::{Observation, Sampler};
use crate::search::idle::Idle;
use crate::search::pool::Placement;
use crate::search::space::{Point, Space};

/// Points that are spread evenly before anything is modelled.
const FIRST_POINTS: usize = 8;
/// Growth of the number of observations after which a fit does not begin where the last one ended.
const AFRESH: f64 = 1.5;
/// How often the first point of a batch explores instead.
const EXPLORE_FIRST: f64 = 0.1;
/// How often a hopeful point is one that differs in a single thing from one of the best.
const STAY_NEAR: f64 = 0.5;
/// Observations with the best results that are looked around.
const MOST_BEST: usize = 24;
/// How often a later point of a batch is the most hopeful one instead.
const EXPLOIT_LATER: f64 = 0.5;
/// The same where there are several objectives: many points of a frontier are worth following.
const EXPLOIT_LATER_ON_FRONTIERS: f64 = 0.75;

/// The Gaussian-process bandit.
pub struct GpUcbPe {
    space: Arc<Space>,
    encoding: Encoding,
    first: Halton,
    stream: ChaCha8Rng,
    points: Vec<Point>,
    features: Vec<Features>,
    /// What was measured at each point; `None` is infeasible.
    figures: Vec<Option<Vec<f64>>>,
    /// By how much each point clears the goal's bar, where that is known.
    margins: Vec<Option<f64>>,
    /// Suggestions that have not been observed, the earliest first.
    pending: VecDeque<Point>,
    /// Where the last fit of each objective ended.
    ends: Vec<Vec<f64>>,
    /// Observations at the last fit that began in the middle.
    fitted_afresh: usize,
}

/// What is known of the space.
struct Model {
    /// The labels of each feasible observation.
    labels: Vec<Vec<f64>>,
    /// One process for each objective, then one for each constraint that was not always met.
    processes: Vec<Process>,
    objectives: usize,
    /// For each constraint, the label from which on it is met.
    thresholds: Vec<f64>,
}

/// What is chosen from a pool.
enum Choice {
    MostHopeful(Among),
    LeastKnown,
}

impl GpUcbPe {
    /// A sampler of the points of one branch.
    pub(in crate::search) fn new(space: Arc<Space>, placements: &[Placement], idle: Idle, seed: u64) -> Self {
        Self {
            encoding: Encoding::new(&space, placements).with_idle(idle),
            first: Halton::new(Arc::clone(&space), seed),
            stream: ChaCha8Rng::seed_from_u64(seed),
            points: Vec::new(),
            features: Vec::new(),
            figures: Vec::new(),
            margins: Vec::new(),
            pending: VecDeque::new(),
            ends: Vec::new(),
            fitted_afresh: 0,
            space,
        }
    }

    /// How many points are spread evenly before anything is modelled: a frontier has no centre to start from, so there are more.
    fn first_points(&self) -> usize {
        let axes = self.encoding.axes().len();
        if self.has_frontier() { FIRST_POINTS.max(axes + 1) } else { FIRST_POINTS }
    }

    fn has_frontier(&self) -> bool {
        self.figures.iter().flatten().next().is_some_and(|figures| figures.len() > 1)
    }

    /// The first points: the centre of the space, then an even spread.
    fn spread(&mut self, count: usize) -> Vec<Point> {
        let is_first = self.points.is_empty() && self.pending.is_empty();
        let centre = is_first.then(|| self.encoding.centre());
        let centre = centre.filter(|centre| count > 0 && self.first.dealer().take(centre));
        let others = count - usize::from(centre.is_some());
        let others: Vec<Point> = (0..others).map_while(|_| self.first.walk()).collect();
        centre.into_iter().chain(others).collect()
    }

    /// Where the feasible observations lie.
    fn feasible_features(&self) -> Vec<Features> {
        let observed = self.features.iter().zip(&self.figures);
        observed.filter(|(_, figures)| figures.is_some()).map(|(at, _)| at.clone()).collect()
    }

    /// A process for each objective, made from the feasible observations, with their labels, and for each constraint.
    fn model(&mut self) -> Option<Model> {
        let feasible: Vec<&Vec<f64>> = self.figures.iter().flatten().collect();
        let objectives = feasible.first()?.len();
        let features = self.feasible_features();
        let columns: Vec<Vec<f64>> = (0..objectives)
            .map(|objective| {
                warping::labels(&feasible.iter().map(|figures| figures[objective]).collect::<Vec<_>>())
            })
            .collect();
        let labels: Vec<Vec<f64>> =
            (0..features.len()).map(|place| columns.iter().map(|column| column[place]).collect()).collect();
        if self.figures.len() as f64 > AFRESH * self.fitted_afresh as f64 {
            self.fitted_afresh = self.figures.len();
            self.ends.clear();
        }
        let are_feasible: Vec<bool> = self.figures.iter().map(Option::is_some).collect();
        let constraints = constraints(&self.features, &are_feasible, &self.margins);
        let thresholds = constraints.iter().map(|one| one.threshold).collect();
        let of_objectives = columns.into_iter().map(|column| (features.clone(), column));
        let of_constraints = constraints.into_iter().map(|one| (one.features, one.labels));
        let (mut processes, mut ends) = (Vec::new(), Vec::new());
        for (place, (features, column)) in of_objectives.chain(of_constraints).enumerate() {
            let evidence = Evidence::new(self.encoding.axes(), &features, column);
            let is_of_frontier = objectives > 1 && place < objectives;
            let evidence = if is_of_frontier { evidence.with_weak_prior() } else { evidence };
            let (process, end) = evidence.fit(self.ends.get(place).map(Vec::as_slice))?;
            let is_only_objective = objectives == 1 && place == 0;
            processes.push(if is_only_objective { self.with_forest(process, &labels) } else { process });
            ends.push(end);
        }
        self.ends = ends;
        Some(Model { labels, processes, objectives, thresholds })
    }

    /// The process of the only objective, with a forest of the same observations; what is pending counts as if it came out as
    /// the process expects.
    fn with_forest(&mut self, process: Process, labels: &[Vec<f64>]) -> Process {
        let pending: Vec<Features> = self.pending.iter().map(|point| self.encoding.encode(point)).collect();
        let expected = process.beliefs(&pending).means;
        let observed = labels.len();
        let labels: Vec<f64> = labels.iter().map(|label| label[0]).chain(expected).collect();
        let points: Vec<Features> = self.feasible_features().into_iter().chain(pending).collect();
        let forest = Forest::grow(self.encoding.axes(), &points, &labels, observed, &mut self.stream);
        process.with_forest(forest)
    }

    fn choose_batch(&mut self, count: usize) -> Option<Vec<Point>> {
        let model = self.model()?;
        let outlook = self.outlook(&model);
        let best = self.best();
        let mut pool = self.pool(&model.processes, &best, |beliefs, point| outlook.hope(beliefs, point));
        pool.choose_pending(&self.encoding, &model.processes, self.pending.iter().cloned().collect());
        let later = if self.has_frontier() { EXPLOIT_LATER_ON_FRONTIERS } else { EXPLOIT_LATER };
        let mut batch = Vec::with_capacity(count);
        while batch.len() < count {
            let chosen = match self.choice(batch.is_empty(), later) {
                Choice::MostHopeful(among) => pool.best(among, |beliefs, point| outlook.hope(beliefs, point)),
                Choice::LeastKnown => {
                    pool.best(Among::All, |beliefs, point| outlook.exploration(beliefs, point))
                }
            };
            let Some(chosen) = chosen else { break };
            let point = pool.choose(chosen, &model.processes);
            self.first.dealer().take(&point);
            batch.push(point);
        }
        Some(batch)
    }

    /// What the next point of a batch is to be.
    fn choice(&mut self, is_first: bool, exploit_later: f64) -> Choice {
        let switches = self.stream.random_bool(if is_first { EXPLORE_FIRST } else { exploit_later });
        let among = if self.stream.random_bool(STAY_NEAR) { Among::Near } else { Among::All };
        if is_first == switches { Choice::LeastKnown } else { Choice::MostHopeful(among) }
    }

    /// The feasible observations with the best results: several that came out the same are one result.
    fn best(&self) -> Vec<Point> {
        let feasible: Vec<(&Point, &[f64])> = self
            .points
            .iter()
            .zip(&self.figures)
            .filter_map(|(point, figures)| Some((point, figures.as_deref()?)))
            .collect();
        let figures: Vec<&[f64]> = feasible.iter().map(|(_, figures)| *figures).collect();
        let (mut results, mut best): (Vec<&[f64]>, Vec<Point>) = (Vec::new(), Vec::new());
        for place in best_first(&figures) {
            if !results.contains(&figures[place]) {
                if results.len() == pool::STARTS {
                    break;
                }
                results.push(figures[place]);
            }
            best.push(feasible[place].0.clone());
        }
        best.truncate(MOST_BEST);
        best
    }

    /// While nothing is feasible: points that may come nearest to the bar, if it is known by how much others miss it.
    fn approach(&mut self, count: usize) -> Option<Vec<Point>> {
        let missed: Vec<(usize, f64)> =
            self.margins.iter().enumerate().filter_map(|(place, margin)| Some((place, (*margin)?))).collect();
        if missed.is_empty() || self.figures.iter().any(Option::is_some) {
            return None;
        }
        let features: Vec<Features> = missed.iter().map(|(place, _)| self.features[*place].clone()).collect();
        let labels = warping::labels(&missed.iter().map(|(_, margin)| *margin).collect::<Vec<_>>());
        let (process, _) = Evidence::new(self.encoding.axes(), &features, labels).fit(None)?;
        let processes = [process];
        let mut nearest = missed;
        nearest.sort_by(|left, right| right.1.total_cmp(&left.1));
        let best: Vec<Point> =
            nearest.iter().take(pool::STARTS).map(|(place, _)| self.points[*place].clone()).collect();
        let hope = |beliefs: &[Beliefs], point: usize| upper_bound(&beliefs[0], point);
        let mut pool = self.pool(&processes, &best, hope);
        pool.choose_pending(&self.encoding, &processes, self.pending.iter().cloned().collect());
        let mut batch = Vec::with_capacity(count);
        while batch.len() < count
            && let Some(chosen) = pool.best(Among::All, hope)
        {
            let point = pool.choose(chosen, &processes);
            self.first.dealer().take(&point);
            batch.push(point);
        }
        Some(batch)
    }

    /// What points are worth, seen from the feasible observations.
    fn outlook(&mut self, model: &Model) -> Outlook {
        let feasible = self.feasible_features();
        let beliefs: Vec<Beliefs> =
            model.processes[..model.objectives].iter().map(|process| process.beliefs(&feasible)).collect();
        Outlook::new(&model.labels, &beliefs, model.thresholds.clone(), &mut self.stream)
    }

    /// What was tried, and which settings made a difference. That two points do not count is no result unless it is known by
    /// how much they miss the bar.
    fn twins(&self) -> Twins {
        let result = |(figures, margin): (&Option<Vec<f64>>, &Option<f64>)| {
            (figures.is_some() || margin.is_some()).then(|| (figures.clone(), *margin))
        };
        let results: Vec<_> = self.figures.iter().zip(&self.margins).map(result).collect();
        Twins::new(&self.features, &results)
    }

    /// The points among which a batch is chosen.
    fn pool(
        &mut self,
        processes: &[Process],
        best: &[Point],
        hope: impl Fn(&[Beliefs], usize) -> f64,
    ) -> Pool {
        let near: Vec<Point> = best.iter().flat_map(|point| pool::neighbours(&self.space, point)).collect();
        let twins = self.twins();
        let dealer = self.first.dealer();
        if self.space.size() <= pool::ALL {
            let all = (0..self.space.size()).map(|index| self.space.point(index));
            let free = all.filter(|point| !dealer.is_taken(point)).collect();
            return Pool::new(&self.encoding, processes, twins, free, near);
        }
        let mut points = pool::random_points(&self.space, dealer, &mut self.stream);
        points.extend(near.iter().cloned());
        points.retain(|point| !dealer.is_taken(point));
        let mut pool = Pool::new(&self.encoding, processes, twins, points, near);
        for _ in 0..pool::CLIMBS {
            let around = pool.top(pool::STARTS, &hope);
            let mut more: Vec<Point> =
                around.iter().flat_map(|point| pool::neighbours(&self.space, point)).collect();
            more.retain(|point| !dealer.is_taken(point));
            pool.extend(&self.encoding, processes, more);
        }
        pool
    }
}

impl Sampler for GpUcbPe {
    fn suggest(&mut self, count: usize) -> Vec<Point> {
        let suggested = self.points.len() + self.pending.len();
        let batch = if suggested < self.first_points() {
            self.spread(count)
        } else {
            // Without a feasible observation, or with labels that no kernel explains, there is nothing to go by.
            let batch = self.choose_batch(count).or_else(|| self.approach(count));
            let mut batch = batch.unwrap_or_default();
            while batch.len() < count
                && let Some(point) = self.first.walk()
            {
                batch.push(point);
            }
            batch
        };
        self.pending.extend(batch.iter().cloned());
        batch
    }

    fn observe(&mut self, point: &Point, observation: &Observation<'_>) {
        // Observations come in the order of the suggestions, so that this is the first one.
        if let Some(place) = self.pending.iter().position(|pending| pending == point) {
            self.pending.remove(place);
        }
        self.features.push(self.encoding.encode(point));
        self.points.push(point.clone());
        self.figures.push(match observation {
            Observation::Measured { figures, .. } => Some(figures.to_vec()),
            Observation::Infeasible { .. } => None,
        });
        let (Observation::Measured { margin, .. } | Observation::Infeasible { margin, .. }) = observation;
        self.margins.push(*margin);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::config::scenario::PolicyConfig;
    use crate::search::test_support::{config, plan};

    /// A space of 981 points in which one is best, and how good each is: 0 at best.
    fn bowl(point: &Point) -> f64 {
        let off =
            [0, 0, 6, 1].iter().zip(&*point.choices).map(|(best, choice)| f64::from(choice.abs_diff(*best)));
        -off.map(|off| off * off).sum::<f64>()
    }

    fn sampler(seed: u64) -> Box<dyn Sampler> {
        plan(config()).branches[0].sampler(&PolicyConfig::named("gp_ucb_pe"), seed).unwrap()
    }

    /// The points that are suggested in batches of four.
    fn course(seed: u64, points: usize) -> Vec<Point> {
        let mut sampler = sampler(seed);
        let mut all = Vec::new();
        while all.len() < points {
            let batch = sampler.suggest(4);
            for point in &batch {
                match bowl(point) {
                    bad if bad < -30.0 => {
                        sampler.observe(point, &Observation::Infeasible { reason: "too far", margin: None });
                    }
                    good => sampler.observe(point, &Observation::Measured { figures: &[good], margin: None }),
                }
            }
            all.extend(batch);
        }
        all
    }

    #[test]
    fn the_best_of_many_points_is_found_by_few() {
        for seed in 1..=3 {
            let best = course(seed, 40).iter().map(bowl).fold(f64::NEG_INFINITY, f64::max);
            assert!(best >= -1.0, "seed {seed}: {best}");
        }
    }

    #[test]
    fn the_best_are_so_many_results_and_all_that_came_to_one_of_them() {
        let space = plan(config()).branches[0].space.clone();
        let mut sampler = GpUcbPe::new(Arc::clone(&space), &[], Idle::default(), 1);
        let observe = |sampler: &mut GpUcbPe, index: u64, figure: f64| {
            let measured = Observation::Measured { figures: &[figure], margin: None };
            sampler.observe(&space.point(index), &measured);
        };
        for (index, figure) in [4.0, 7.0, 5.0, 7.0, 3.0, 6.0, 4.0].into_iter().enumerate() {
            observe(&mut sampler, index as u64, figure);
        }
        let best = |sampler: &GpUcbPe| -> Vec<u64> {
            let place =
                |point: &Point| (0..space.size()).find(|&index| space.point(index) == *point).unwrap();
            sampler.best().iter().map(place).collect()
        };
        assert_eq!(best(&sampler), [1, 3, 5, 2, 0, 6]);
        for index in 7..100 {
            observe(&mut sampler, index, 7.0);
        }
        assert_eq!(best(&sampler).len(), MOST_BEST);
    }

    #[test]
    fn the_seed_decides_and_nothing_comes_twice() {
        let points = course(1, 24);
        assert_eq!(points, course(1, 24));
        assert_ne!(points, course(2, 24));
        assert_eq!(points.iter().collect::<BTreeSet<_>>().len(), points.len());
    }

    #[test]
    fn a_space_is_exhausted_and_observations_without_a_difference_do_no_harm() {
        let space = crate::search::sampler::encoding::tests::space();
        let placements = crate::search::sampler::encoding::tests::placements();
        for observation in [
            Observation::Infeasible { reason: "no", margin: None },
            Observation::Measured { figures: &[1.0, 2.0], margin: None },
        ] {
            let mut sampler = GpUcbPe::new(Arc::clone(&space), &placements, Idle::default(), 1);
            let mut seen = BTreeSet::new();
            while let batch = sampler.suggest(5)
                && !batch.is_empty()
            {
                for point in batch {
                    sampler.observe(&point, &observation);
                    assert!(seen.insert(point));
                }
            }
            assert_eq!(seen.len() as u64, space.size());
        }
    }
}
