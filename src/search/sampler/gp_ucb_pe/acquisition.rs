//! How much each point is worth trying.

use rand_chacha::ChaCha8Rng;

use super::frontier::Frontier;
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
/// The least standard deviation of a label, so that one without doubt can be compared.
const LEAST_DOUBT: f64 = 1e-9;
/// A hypervolume that is as good as nothing.
const LEAST_GAIN: f64 = 1e-12;
/// Standard deviations below the best from which on an improvement is approximated.
const FAR_BELOW: f64 = -8.0;

/// What points are worth, given what was observed.
pub(super) struct Outlook {
    merit: Merit,
    /// With one objective: the expected label of the observation with the highest upper confidence bound. With several: those
    /// of the observations that no other is expected to beat.
    front: Vec<Vec<f64>>,
    objectives: usize,
    /// For each constraint, the label from which on it is met.
    thresholds: Vec<f64>,
}

/// What a point has to improve on.
enum Merit {
    /// The best label of the only objective.
    Best(f64),
    Frontier(Frontier),
}

impl Outlook {
    /// Of the labels of the feasible observations, of what is believed of them, and of the labels from which on each constraint
    /// is met.
    pub(super) fn new(
        labels: &[Vec<f64>],
        beliefs: &[Beliefs],
        thresholds: Vec<f64>,
        stream: &mut ChaCha8Rng,
    ) -> Self {
        let means: Vec<Vec<f64>> =
            (0..labels.len()).map(|place| beliefs.iter().map(|one| one.means[place]).collect()).collect();
        let (merit, front) = if let [one] = beliefs {
            let bound = |place: &usize| upper_bound(one, *place);
            let most =
                (0..labels.len()).reduce(|best, next| if bound(&next) > bound(&best) { next } else { best });
            let best = labels.iter().map(|label| label[0]).fold(f64::NEG_INFINITY, f64::max);
            (Merit::Best(best), most.map(|most| means[most].clone()).into_iter().collect())
        } else {
            let is_beaten = |one: &&Vec<f64>| means.iter().any(|other| dominates(other, one));
            let front = means.iter().filter(|one| !is_beaten(one)).cloned().collect();
            (Merit::Frontier(Frontier::new(labels, stream)), front)
        };
        Self { merit, front, objectives: beliefs.len(), thresholds }
    }

    /// What may be hoped for: with one objective, the logarithm of how much better than the best observation the point is
    /// expected to be, with several, that of the hypervolume that it is expected to add; and that of the chance that it meets
    /// all constraints.
    pub(super) fn hope(&self, beliefs: &[Beliefs], point: usize) -> f64 {
        let (objectives, constraints) = beliefs.split_at(self.objectives);
        let improvement = match &self.merit {
            Merit::Best(best) => log_improvement(&objectives[0], *best, point),
            Merit::Frontier(frontier) => log_gain(objectives, frontier, point),
        };
        let constraints = constraints.iter().zip(&self.thresholds);
        let chances = constraints.map(|(one, least)| chance(one, *least, point));
        chances.fold(improvement, |hope, chance| hope + libm::log(chance.max(f64::MIN_POSITIVE)))
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
        let spread: f64 = objectives.iter().map(|one| doubt(one, point)).sum();
        spread / objectives.len() as f64 - SHORTFALL * (shortfall + infeasible)
    }
}

/// The expected label of a point and the hope on top.
pub(super) fn upper_bound(objective: &Beliefs, point: usize) -> f64 {
    objective.means[point] + HOPE * libm::sqrt(objective.pending_variances[point])
}

/// The logarithm of the hypervolume that a point is expected to add. Points that are not expected to add any are told apart by
/// their upper bounds.
fn log_gain(objectives: &[Beliefs], frontier: &Frontier, point: usize) -> f64 {
    let means: Vec<f64> = objectives.iter().map(|one| one.means[point]).collect();
    let spreads: Vec<f64> = objectives.iter().map(|one| libm::sqrt(one.pending_variances[point])).collect();
    let gain = frontier.expected_gain(&means, &spreads);
    let bounds = objectives.iter().map(|one| upper_bound(one, point)).sum::<f64>();
    if gain > LEAST_GAIN { libm::log(gain) } else { libm::log(LEAST_GAIN) - 1.0 / (1.0 + libm::exp(bounds)) }
}

/// How little is known of a point: the standard deviation of its label, where there is a forest too the geometric mean of both.
fn doubt(objective: &Beliefs, point: usize) -> f64 {
    let own = libm::sqrt(objective.pending_variances[point]);
    let Some(opinion) = objective.second.of_points.get(point) else { return own };
    let other = libm::sqrt(opinion.variance).max(LEAST_DOUBT);
    libm::pow(own, 1.0 - objective.second.say) * libm::pow(other, objective.second.say)
}

/// The logarithm of the improvement over the best label that is expected of a point: by the process or, where there is a forest
/// too, the mean of what both say, so that either can tell that nothing is to be expected.
fn log_improvement(objective: &Beliefs, best: f64, point: usize) -> f64 {
    let own = log_expected_improvement(objective.means[point], objective.pending_variances[point], best);
    let Some(opinion) = objective.second.of_points.get(point) else { return own };
    let other = log_expected_improvement(opinion.mean, opinion.variance, best);
    (1.0 - objective.second.say) * own + objective.second.say * other
}

/// The logarithm of the improvement over the best that is expected of a normal distribution (Jones, Schonlau and Welch 1998): with
/// `z` standard deviations `s` from the best to the mean, `s (z N(z) + n(z))`. Far below the best, where that is too small for a
/// number, it follows the first term of its asymptotic series, `s n(z) / z²`, so that points can still be told apart.
fn log_expected_improvement(mean: f64, variance: f64, best: f64) -> f64 {
    let spread = libm::sqrt(variance).max(LEAST_DOUBT);
    let distance = (mean - best) / spread;
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

#[cfg(test)]
mod tests {
    use rand::SeedableRng;

    use super::super::forest::Opinion;
    use super::super::process::SecondOpinion;
    use super::*;

    fn beliefs(means: &[f64], variances: &[f64], pending: &[f64]) -> Beliefs {
        Beliefs::made_up(means, variances, pending)
    }

    /// An outlook in which labels from this one on are the best.
    fn outlook(best: &[&[f64]]) -> Outlook {
        let front: Vec<Vec<f64>> = best.iter().map(|labels| labels.to_vec()).collect();
        Outlook { merit: Merit::Best(0.3), objectives: front[0].len(), front, thresholds: vec![0.0] }
    }

    #[test]
    fn hope_counts_what_is_pending_and_reach_does_not() {
        let one = beliefs(&[0.2, 0.4], &[0.09, 0.04], &[0.01, 0.0]);
        assert_eq!(upper_bound(&one, 0), 0.2 + 1.8 * 0.1);
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
    fn a_second_opinion_counts_as_far_as_it_has_a_say() {
        let with = |say: f64, mean: f64, variance: f64| {
            let second = SecondOpinion { of_points: vec![Opinion { mean, variance }], say };
            let mut one = beliefs(&[0.2], &[9.0], &[0.01]);
            one.second = second;
            [one]
        };
        let hope = |say: f64| outlook(&[&[0.3]]).hope(&with(say, 0.4, 0.04), 0);
        let expected = |mean: f64, variance: f64| log_expected_improvement(mean, variance, 0.3);
        let (own, other) = (expected(0.2, 0.01), expected(0.4, 0.04));
        for say in [0.0, 0.25, 1.0] {
            assert!((hope(say) - (own + say * (other - own))).abs() < 1e-12);
        }
        // Standard deviations of 0.1 and 0.4.
        assert!((doubt(&with(0.5, 0.0, 0.16)[0], 0) - 0.2).abs() < 1e-12);
        assert!((doubt(&with(0.0, 0.0, 0.16)[0], 0) - 0.1).abs() < 1e-12);
        assert!(doubt(&with(0.5, 0.0, 0.0)[0], 0) > 0.0);
        let certain = outlook(&[&[0.3]]).hope(&with(0.5, 0.3, 0.0), 0);
        assert!(certain.is_finite() && certain < hope(0.0));
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

    /// An outlook on a frontier of two observations.
    fn frontier(thresholds: Vec<f64>) -> Outlook {
        let labels = [vec![0.1, 0.0], vec![0.0, 0.1]];
        let objective = || beliefs(&[0.1, 0.0], &[0.0; 2], &[0.0; 2]);
        let mut stream = ChaCha8Rng::seed_from_u64(1);
        Outlook::new(&labels, &[objective(), objective()], thresholds, &mut stream)
    }

    #[test]
    fn a_frontier_hopes_for_volume_and_a_chance_to_count() {
        let certain = |label: f64| beliefs(&[label], &[0.0], &[0.0]);
        let unlikely = beliefs(&[-0.3], &[0.03], &[0.03]);
        let outlook = frontier(vec![0.0]);
        let hope = |label: f64| outlook.hope(&[certain(label), certain(label)], 0);
        assert!(hope(0.2) > hope(0.15));
        // What adds nothing comes behind all that does, the better first.
        assert!(hope(0.15) > hope(-0.1) && hope(-0.1) > hope(-0.2));
        let both = outlook.hope(&[certain(0.2), certain(0.2), unlikely], 0);
        assert!((both - hope(0.2) - (1.0 - 0.933_192_798_731_141_9_f64).ln()).abs() < 1e-12);
    }
}
