//! How much each point is worth trying.

use rand::RngExt;
use rand_chacha::ChaCha8Rng;

use super::process::Beliefs;
use crate::search::sampler::merit::dominates;

/// Standard deviations above the expected label that a promising point may hope for.
const HOPE: f64 = 1.8;
/// Standard deviations within which a point has to reach the best for exploring it to be worthwhile.
const REACH: f64 = 0.5;
/// How certain it can be that a constraint is met, where labels span 1.
const LEAST_SPREAD: f64 = 0.1;
/// What falling short of that costs, in standard deviations.
const SHORTFALL: f64 = 10.0;
/// How far from the worst observation to the best a point has to reach to be of any interest.
const INTEREST: f64 = 0.5;
/// The least standard deviation of a label, so that one without doubt can be compared.
const LEAST_DOUBT: f64 = 1e-9;
/// Standard deviations below the best from which on an improvement is approximated.
const FAR_BELOW: f64 = -8.0;
/// Directions in which a frontier is looked at.
const DIRECTIONS: usize = 200;
/// How far below the worst label the reference of a frontier lies.
const MARGIN: f64 = 0.01;

/// What points are worth, given what was observed.
pub(super) struct Outlook {
    scalarisation: Scalarisation,
    /// The best label of the only objective.
    best: f64,
    /// With several objectives: what a point has to be worth more than to be of any interest.
    floor: f64,
    /// With one objective: the expected label of the observation with the highest upper confidence bound. With several: those
    /// of the observations that no other is expected to beat.
    front: Vec<Vec<f64>>,
    objectives: usize,
    /// For each constraint, the label from which on it is met.
    thresholds: Vec<f64>,
}

impl Outlook {
    /// Of the labels of the feasible observations, of what is believed of them, and of the labels from which on each constraint
    /// is met.
    pub(super) fn new(
        labels: &[Vec<f64>],
        scalarisation: Scalarisation,
        beliefs: &[Beliefs],
        thresholds: Vec<f64>,
    ) -> Self {
        let means: Vec<Vec<f64>> =
            (0..labels.len()).map(|place| beliefs.iter().map(|one| one.means[place]).collect()).collect();
        let worth = |place: &usize| scalarisation.worth(&upper_bounds(beliefs, *place));
        let front = if beliefs.len() == 1 {
            let best =
                (0..labels.len()).reduce(|best, next| if worth(&next) > worth(&best) { next } else { best });
            best.map(|best| means[best].clone()).into_iter().collect()
        } else {
            means.iter().filter(|one| !means.iter().any(|other| dominates(other, one))).cloned().collect()
        };
        let worths: Vec<f64> = labels.iter().map(|label| scalarisation.worth(label)).collect();
        let worst = worths.iter().copied().fold(f64::INFINITY, f64::min);
        let best = worths.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let floor = worst + INTEREST * (best - worst);
        Self { scalarisation, best, floor, front, objectives: beliefs.len(), thresholds }
    }

    /// What may be hoped for, by the chance that the point meets all constraints. With one objective, the logarithm of how much
    /// better than the best observation it is expected to be; with several, how much more than of no interest it may be worth,
    /// where what is of no interest is none the better for being unlikely.
    pub(super) fn hope(&self, beliefs: &[Beliefs], point: usize) -> f64 {
        let (objectives, constraints) = beliefs.split_at(self.objectives);
        let constraints = constraints.iter().zip(&self.thresholds);
        let chances = constraints.map(|(one, least)| chance(one, *least, point));
        if let [one] = objectives {
            let improvement = log_improvement(one, self.best, point);
            return chances.fold(improvement, |hope, chance| hope + libm::log(chance.max(f64::MIN_POSITIVE)));
        }
        let worth = self.scalarisation.worth(&upper_bounds(objectives, point)) - self.floor;
        if worth <= 0.0 { worth } else { chances.fold(worth, |worth, chance| worth * chance) }
    }

    /// What it is worth to learn about a point: its uncertainty, less a penalty if it is unlikely to be among the best or to be
    /// feasible.
    pub(super) fn exploration(&self, beliefs: &[Beliefs], point: usize) -> f64 {
        let (objectives, constraints) = beliefs.split_at(self.objectives);
        let reach = |one: &Beliefs| one.means[point] + REACH * libm::sqrt(one.variances[point]);
        let reaches: Vec<f64> = objectives.iter().map(reach).collect();
        // How far the point stays behind one of the best in every objective.
        let behind = |best: &Vec<f64>| {
            best.iter().zip(&reaches).map(|(best, own)| best - own).fold(f64::INFINITY, f64::min)
        };
        let shortfall = self.front.iter().map(behind).fold(0.0, f64::max);
        let constraints = constraints.iter().zip(&self.thresholds);
        let infeasible: f64 = constraints.map(|(one, least)| (least - reach(one)).max(0.0)).sum();
        let spread: f64 = objectives.iter().map(|one| libm::sqrt(one.pending_variances[point])).sum();
        spread / objectives.len() as f64 - SHORTFALL * (shortfall + infeasible)
    }
}

/// The expected label of a point and the hope on top, one per objective.
pub(super) fn upper_bounds(beliefs: &[Beliefs], point: usize) -> Vec<f64> {
    let bound = |one: &Beliefs| one.means[point] + HOPE * libm::sqrt(one.pending_variances[point]);
    beliefs.iter().map(bound).collect()
}

/// The logarithm of the improvement over the best label that is expected of a point (Jones, Schonlau and Welch 1998): with `z`
/// standard deviations `s` from the best to the mean, `s (z N(z) + n(z))`. Far below the best, where that is too small for a
/// number, it follows the first term of its asymptotic series, `s n(z) / z²`, so that points can still be told apart.
fn log_improvement(objective: &Beliefs, best: f64, point: usize) -> f64 {
    let spread = libm::sqrt(objective.pending_variances[point]).max(LEAST_DOUBT);
    let distance = (objective.means[point] - best) / spread;
    let log_density = -0.5 * (distance * distance + libm::log(std::f64::consts::TAU));
    let share = if distance < FAR_BELOW {
        log_density - 2.0 * libm::log(-distance)
    } else {
        let below = 0.5 * libm::erfc(-distance * std::f64::consts::FRAC_1_SQRT_2);
        libm::log(libm::exp(log_density) + distance * below)
    };
    libm::log(spread) + share
}

/// The chance that a point meets a constraint: that its label is not below the least there.
fn chance(constraint: &Beliefs, least: f64, point: usize) -> f64 {
    let spread = libm::sqrt(constraint.variances[point] + LEAST_SPREAD * LEAST_SPREAD);
    0.5 * libm::erfc((least - constraint.means[point]) / spread * std::f64::consts::FRAC_1_SQRT_2)
}

/// Makes one number of several labels: more is better.
pub(super) enum Scalarisation {
    /// The label of the only objective.
    Single,
    /// The hypervolume that a point would add, estimated along random directions: along each, how far the point reaches from
    /// the reference in the objective in which it reaches least, but never less than the best observation does.
    Frontier { reference: Vec<f64>, directions: Vec<Vec<f64>>, reached: Vec<f64> },
}

impl Scalarisation {
    /// For the labels of all feasible observations, at least one.
    pub(super) fn new(labels: &[Vec<f64>], stream: &mut ChaCha8Rng) -> Self {
        let objectives = labels.first().map_or(1, Vec::len);
        if objectives == 1 {
            return Self::Single;
        }
        let worst =
            |objective: usize| labels.iter().map(|label| label[objective]).fold(f64::INFINITY, f64::min);
        let reference: Vec<f64> = (0..objectives).map(|objective| worst(objective) - MARGIN).collect();
        let directions: Vec<Vec<f64>> = (0..DIRECTIONS).map(|_| direction(objectives, stream)).collect();
        let reached = directions.iter().map(|direction| {
            labels.iter().map(|label| reach(label, &reference, direction)).fold(0.0, f64::max)
        });
        let reached = reached.collect();
        Self::Frontier { reference, directions, reached }
    }

    /// The worth of labels.
    pub(super) fn worth(&self, labels: &[f64]) -> f64 {
        match self {
            Self::Single => labels[0],
            Self::Frontier { reference, directions, reached } => {
                let volume = |(direction, reached): (&Vec<f64>, &f64)| {
                    libm::pow(reach(labels, reference, direction).max(*reached), labels.len() as f64)
                };
                directions.iter().zip(reached).map(volume).sum::<f64>() / directions.len() as f64
            }
        }
    }
}

/// How far labels reach from the reference in a direction.
fn reach(labels: &[f64], reference: &[f64], direction: &[f64]) -> f64 {
    let shares = labels.iter().zip(reference).zip(direction);
    shares.map(|((label, reference), part)| (label - reference) / part).fold(f64::INFINITY, f64::min)
}

/// A direction into the positive quadrant, all equally likely.
fn direction(objectives: usize, stream: &mut ChaCha8Rng) -> Vec<f64> {
    loop {
        let parts: Vec<f64> = (0..objectives).map(|_| stream.random_range(0.0..1.0)).collect();
        let length = libm::sqrt(parts.iter().map(|part| part * part).sum());
        if length <= 1.0 && parts.iter().all(|part| *part > 1e-6) {
            return parts.into_iter().map(|part| part / length).collect();
        }
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;

    use super::*;

    fn beliefs(means: &[f64], variances: &[f64], pending: &[f64]) -> Beliefs {
        Beliefs::made_up(means, variances, pending)
    }

    /// An outlook in which labels from this one on are the best.
    fn outlook(best: &[&[f64]]) -> Outlook {
        let front: Vec<Vec<f64>> = best.iter().map(|labels| labels.to_vec()).collect();
        let thresholds = vec![0.0];
        Outlook {
            scalarisation: Scalarisation::Single,
            best: 0.3,
            floor: -0.5,
            objectives: front[0].len(),
            front,
            thresholds,
        }
    }

    #[test]
    fn hope_counts_what_is_pending_and_reach_does_not() {
        let one = beliefs(&[0.2, 0.4], &[0.09, 0.04], &[0.01, 0.0]);
        assert_eq!(upper_bounds(std::slice::from_ref(&one), 0), [0.2 + 1.8 * 0.1]);
        let worth = |best: f64, point| outlook(&[&[best]]).exploration(std::slice::from_ref(&one), point);
        assert!((worth(0.3, 0) - 0.1).abs() < 1e-15, "within reach");
        assert!((worth(0.45, 0) - (0.1 - 10.0 * 0.1)).abs() < 1e-12, "out of reach by 0.1");
        assert_eq!(worth(0.45, 1), 0.0);
    }

    #[test]
    fn a_point_is_explored_unless_one_of_the_best_beats_it_in_everything() {
        // It reaches 0.35 and 0.5.
        let two = [beliefs(&[0.2], &[0.09], &[0.01]), beliefs(&[0.4], &[0.04], &[0.04])];
        let worth = |best: &[&[f64]]| outlook(best).exploration(&two, 0);
        assert!((worth(&[&[0.9, 0.45], &[0.3, 0.9]]) - 0.15).abs() < 1e-12);
        assert!((worth(&[&[0.9, 0.53], &[0.3, 0.9]]) - (0.15 - 10.0 * 0.03)).abs() < 1e-12);
    }

    /// An outlook on a frontier of which the worst observation is worth 0 and the best, at these labels, something.
    fn frontier(best: [f64; 2], thresholds: Vec<f64>) -> Outlook {
        let labels = [vec![-0.5, -0.5], best.to_vec()];
        let mut stream = ChaCha8Rng::seed_from_u64(1);
        let none = [beliefs(&[0.0; 2], &[0.0; 2], &[0.0; 2]), beliefs(&[0.0; 2], &[0.0; 2], &[0.0; 2])];
        Outlook::new(&labels, Scalarisation::new(&labels, &mut stream), &none, thresholds)
    }

    #[test]
    fn of_interest_is_what_reaches_half_way_from_the_worst_to_the_best() {
        let outlook = frontier([0.1, 0.2], Vec::new());
        let labels = [0.4, 0.3];
        let worth = |labels: &[f64]| outlook.scalarisation.worth(labels);
        // Nothing is worth less than what was reached, so that half way is all of it.
        assert_eq!(worth(&[-0.5, -0.5]), worth(&[0.1, 0.2]));
        let point = labels.map(|label| beliefs(&[label], &[0.0], &[0.0]));
        assert!((outlook.hope(&point, 0) - (worth(&labels) - worth(&[0.1, 0.2]))).abs() < 1e-12);
    }

    #[test]
    fn an_improvement_is_expected_where_the_mean_or_the_doubt_is_great() {
        // From the formula, in another language; the last is its asymptotic series, exact to a twentieth at 10 deviations.
        for (mean, spread, expected) in [
            (0.2, 0.1_f64, -4.787_706_118_706_686),
            (0.4, 0.2, -1.969_265_596_179_164),
            (-0.4, 0.1, -31.670_692_276_135_398),
            (-0.7, 0.1, -57.855_3),
        ] {
            let one = beliefs(&[mean], &[9.0], &[spread * spread]);
            let found = outlook(&[&[0.3]]).hope(std::slice::from_ref(&one), 0);
            let tolerance = if mean < -0.5 { 0.05 } else { 1e-9 };
            assert!((found - expected).abs() < tolerance, "{mean}: {found} is not {expected}");
        }
        let certain = outlook(&[&[0.3]]).hope(&[beliefs(&[0.2], &[0.0], &[0.0])], 0);
        assert!(certain.is_finite() && certain < -1e6);
    }

    #[test]
    fn what_is_hardly_feasible_is_hardly_worth_anything() {
        let objective = || beliefs(&[0.2, 0.2], &[0.01, 0.01], &[0.01, 0.01]);
        let feasibility = beliefs(&[0.3, -0.3], &[0.03, 0.03], &[0.03, 0.03]);
        // The spread is 0.2: 1.5 standard deviations from 0.
        let chance = 0.933_192_798_731_141_9_f64;
        let both = [objective(), feasibility];
        let usual = outlook(&[&[0.2]]);
        let alone = usual.hope(&both[..1], 0);
        assert!((usual.hope(&both, 0) - alone - chance.ln()).abs() < 1e-12);
        assert!((usual.hope(&both, 1) - alone - (1.0 - chance).ln()).abs() < 1e-12);
        let stricter = Outlook { thresholds: vec![0.6], ..outlook(&[&[0.2]]) };
        assert!((stricter.hope(&both, 0) - alone - (1.0 - chance).ln()).abs() < 1e-12);
        assert_eq!(usual.exploration(&both, 0), 0.1);
        let shortfall = 0.3 - 0.5 * 0.03_f64.sqrt();
        assert!((usual.exploration(&both, 1) - 0.1 + 10.0 * shortfall).abs() < 1e-12);
    }

    #[test]
    fn on_a_frontier_only_what_is_of_interest_is_the_worse_for_being_unlikely() {
        let all = |label: f64| {
            let objective = || beliefs(&[label], &[0.0], &[0.0]);
            [objective(), objective(), beliefs(&[-0.3], &[0.03], &[0.03])]
        };
        let outlook = frontier([0.1, 0.1], vec![0.0]);
        let unlikely = 1.0 - 0.933_192_798_731_141_9;
        let alone = outlook.hope(&all(0.4)[..2], 0);
        assert!(alone > 0.0);
        assert!((outlook.hope(&all(0.4), 0) - alone * unlikely).abs() < 1e-12);
        let choosy = Outlook { floor: 9.0, ..frontier([0.1, 0.1], vec![0.0]) };
        assert_eq!(choosy.hope(&all(0.4), 0), choosy.hope(&all(0.4)[..2], 0));
    }

    /// The mean over all directions of reach² is the area by a quarter of π, so that the estimate can be checked.
    #[test]
    fn a_frontier_grows_by_the_area_that_a_point_adds() {
        let mut stream = ChaCha8Rng::seed_from_u64(1);
        let labels = [vec![1.0, 3.0], vec![3.0, 1.0], vec![0.01, 0.01]];
        let scalarisation = Scalarisation::new(&labels, &mut stream);
        let area = |labels: [f64; 2]| scalarisation.worth(&labels) * std::f64::consts::FRAC_PI_4;
        let before = area([0.0, 0.0]);
        assert!((before - 5.0).abs() < 0.4, "{before}");
        let added = area([2.0, 2.0]) - before;
        assert!((added - 1.0).abs() < 0.2, "{added}");
        assert_eq!(area([-1.0, -1.0]), before);
    }

    #[test]
    fn a_single_objective_is_its_own_worth() {
        let mut stream = ChaCha8Rng::seed_from_u64(1);
        assert_eq!(Scalarisation::new(&[vec![0.5]], &mut stream).worth(&[0.7]), 0.7);
    }
}
