//! Where no candidate counts: the one that came nearest, replayed to its end.

use std::cmp::Ordering;
use std::fmt::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use serde::{Deserialize, Serialize, Serializer};
use serde_json::{Map, Value};

use super::evaluator::Evaluator;
use super::objective::{Metrics, metric};
use super::study::panic_message;
use super::trial::{Outcome, TrialRecord};
use crate::config::scenario::{Scenario, Sla};
use crate::config::search::OptimizationGoal;

/// Candidates whose planners may ask for more GPUs than there may be, and that are replayed to find one who does not.
const MOST_TRIED: usize = 16;

/// What a replay to the very end shows of a candidate whose trial ended early.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WholeReplay {
    /// Every figure of its summary.
    pub metrics: Metrics,
    /// For each bound of the goal, what the share of all injected requests that the goal asks for is within; `None` where fewer
    /// requests have such a figure.
    pub reached: Sla,
    /// The most GPUs that it was asked to have at any time.
    #[serde(default)]
    pub most_gpus: u64,
}

/// The candidates that come nearest to the goal's bar without reaching it, the nearest first: as many as it takes to find one that
/// keeps within the budget.
#[derive(Clone, Debug, Default)]
pub(super) struct NearTrials(Vec<NearTrial>);

/// A candidate that misses the goal's bar, as far as its trial tells.
#[derive(Clone, Debug)]
struct NearTrial {
    attainment: f64,
    /// What the required share was within, in multiples of the bound that is missed most; infinite where that is not known.
    excess: f64,
    used_gpus: u32,
    evaluation: String,
    config: Map<String, Value>,
    scenario: Arc<Scenario>,
    /// Whether it may have more GPUs than there may be: its trial was stopped before its planner had its whole say.
    may_exceed: bool,
}

impl NearTrial {
    /// The candidate of a committed trial, if it was replayed with all requests and missed the bar.
    fn of_trial(record: &TrialRecord) -> Option<Self> {
        let is_whole = record.outcome == Outcome::Infeasible && record.portion.is_none();
        let scenario = record.scenario.as_ref().filter(|_| is_whole)?;
        let measured = || metric(record.metrics.as_ref()?, "attainment");
        let reached = record.reached_so_far.unwrap_or_default();
        Some(Self {
            attainment: record.attainment_so_far.or_else(measured)?,
            excess: excess(&scenario.sla?, &reached),
            used_gpus: record.used_gpus,
            evaluation: record.evaluation.clone(),
            config: record.config.clone(),
            scenario: Arc::clone(scenario),
            may_exceed: scenario.deployment.planner.is_some() && record.metrics.is_none(),
        })
    }

    /// The nearer is less: the greater attainment, then the smaller excess, then fewer GPUs; the key of the evaluation decides
    /// at last, so that the order of the trials has no say.
    fn compare(&self, other: &Self) -> Ordering {
        let attainment = other.attainment.total_cmp(&self.attainment);
        let excess = self.excess.total_cmp(&other.excess);
        let rest = || (self.used_gpus, &self.evaluation).cmp(&(other.used_gpus, &other.evaluation));
        attainment.then(excess).then_with(rest)
    }

    /// Replays the candidate to its end; `None` if there is no such replay.
    fn replayed(&self, share: f64, evaluator: &dyn Evaluator) -> Result<Option<WholeReplay>, String> {
        let replay = || evaluator.replay_whole(&self.evaluation, &self.scenario, share);
        // Trials forgive a panic; so does this.
        catch_unwind(AssertUnwindSafe(replay))
            .unwrap_or_else(|payload| Err(format!("internal error: {}", panic_message(&*payload))))
    }
}

impl NearTrials {
    /// A trial is committed.
    pub(super) fn enter(&mut self, record: &TrialRecord) {
        let Some(trial) = NearTrial::of_trial(record) else { return };
        let place = self.0.partition_point(|other| other.compare(&trial) == Ordering::Less);
        self.0.insert(place, trial);
        let (mut doubtful, mut is_certain) = (0, false);
        self.0.retain(|trial| {
            let is_behind = is_certain;
            is_certain |= !trial.may_exceed;
            doubtful += usize::from(trial.may_exceed);
            !is_behind && (!trial.may_exceed || doubtful <= MOST_TRIED)
        });
    }

    /// The nearest that keeps within the budget, replayed to its end, or the nearest of all where none does; `None` if there is no
    /// such replay.
    pub(super) fn replayed(
        self,
        goal: &OptimizationGoal,
        gpu_budget: u32,
        evaluator: &dyn Evaluator,
    ) -> Option<NearestMiss> {
        let (sla, share) = (goal.sla?, goal.min_attainment?);
        let mut exceeding: Vec<NearestMiss> = Vec::new();
        for trial in self.0 {
            match trial.replayed(share, evaluator) {
                Ok(None) => return None,
                Ok(Some(whole)) => {
                    let over_budget = over_budget(whole.most_gpus, gpu_budget);
                    let is_within = over_budget.is_none();
                    let miss = NearestMiss { over_budget, ..NearestMiss::new(trial, &sla, share, whole) };
                    if is_within {
                        return Some(NearestMiss { passed_over: exceeding, ..miss });
                    }
                    exceeding.push(miss);
                }
                Err(problem) => {
                    tracing::warn!(problem, "a candidate that came near cannot be replayed to its end");
                }
            }
        }
        let passed_over = exceeding.split_off(exceeding.len().min(1));
        let mut nearest = exceeding.pop()?;
        if let (Some(reason), 1..) = (&mut nearest.over_budget, passed_over.len()) {
            let _ = write!(reason, ", and none of the {} nearest keeps within it", passed_over.len() + 1);
        }
        Some(NearestMiss { passed_over, ..nearest })
    }
}

/// The greatest quotient of what was reached and its bound.
fn excess(sla: &Sla, reached: &Sla) -> f64 {
    let quotients =
        bounds(sla, reached).map(|(_, limit, reached)| reached.map_or(f64::INFINITY, |ms| ms / limit));
    quotients.fold(0.0, f64::max)
}

/// Name, limit and what was reached of each bound that is set.
fn bounds(sla: &Sla, reached: &Sla) -> impl Iterator<Item = (&'static str, f64, Option<f64>)> {
    let all = [
        ("ttft_ms", sla.ttft_ms, reached.ttft_ms),
        ("itl_ms", sla.itl_ms, reached.itl_ms),
        ("e2e_ms", sla.e2e_ms, reached.e2e_ms),
    ];
    all.into_iter().filter_map(|(name, limit, reached)| Some((name, limit?, reached)))
}

/// The candidate that came nearest to the goal's bar, by what the trials know of it, and what a replay to its end shows. One that
/// keeps within the budget comes before those whose planners ask for more.
///
/// That replay is stopped by nothing but the end of the search: neither by the bar nor by limits on passes or on time.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct NearestMiss {
    /// The share of all requests that has to meet every bound: `goal.min_attainment`.
    pub min_attainment: f64,
    /// The share that does.
    pub attainment: Option<f64>,
    /// Every bound of the goal, each by itself.
    pub bounds: Vec<BoundReached>,
    /// Why it would not count even if it kept every bound: its planner asked for more GPUs than there may be.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub over_budget: Option<String>,
    /// GPUs that it occupies.
    pub used_gpus: u32,
    /// Every setting by name.
    pub config: Map<String, Value>,
    /// Every figure of the replay's summary.
    pub metrics: Metrics,
    /// What replays it.
    #[serde(serialize_with = "as_in_its_file")]
    pub scenario: Scenario,
    /// The key of its trial's evaluation.
    #[serde(skip)]
    pub evaluation: String,
    /// What the replay showed of each bound.
    #[serde(skip)]
    pub reached: Sla,
    /// The most GPUs that it was asked to have.
    #[serde(skip)]
    pub most_gpus: u64,
    /// The others that were replayed to their ends, whose planners asked for too many GPUs.
    #[serde(skip)]
    pub passed_over: Vec<NearestMiss>,
}

/// A bound and what it would have to be.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct BoundReached {
    /// Its key in `goal.sla`.
    pub bound: &'static str,
    /// What it allows, in milliseconds.
    pub limit_ms: f64,
    /// What the required share of all injected requests is within, in milliseconds; null if fewer have such a figure.
    pub reached_ms: Option<f64>,
    /// Whether fewer requests than required keep it.
    pub missed: bool,
}

impl NearestMiss {
    fn new(trial: NearTrial, sla: &Sla, share: f64, whole: WholeReplay) -> Self {
        let bounds = bounds(sla, &whole.reached).map(|(bound, limit_ms, reached_ms)| BoundReached {
            bound,
            limit_ms,
            reached_ms,
            missed: reached_ms.is_none_or(|reached_ms| reached_ms > limit_ms),
        });
        Self {
            min_attainment: share,
            attainment: metric(&whole.metrics, "attainment"),
            bounds: bounds.collect(),
            over_budget: None,
            used_gpus: trial.used_gpus,
            config: trial.config,
            metrics: whole.metrics,
            scenario: (*trial.scenario).clone(),
            evaluation: trial.evaluation,
            reached: whole.reached,
            most_gpus: whole.most_gpus,
            passed_over: Vec::new(),
        }
    }

    /// What it was made of, so that it can be made again.
    pub fn whole(&self) -> WholeReplay {
        WholeReplay { metrics: self.metrics.clone(), reached: self.reached, most_gpus: self.most_gpus }
    }
}

/// Why a deployment that was asked to have so many GPUs does not count.
pub(super) fn over_budget(most_gpus: u64, gpu_budget: u32) -> Option<String> {
    (most_gpus > u64::from(gpu_budget))
        .then(|| format!("its planner asked for {most_gpus} GPUs, over search_space.gpu_budget {gpu_budget}"))
}

fn as_in_its_file<S: Serializer>(scenario: &Scenario, serializer: S) -> Result<S::Ok, S::Error> {
    scenario.to_json().serialize(serializer)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::scenario::{DeploymentMode, PolicyConfig};
    use crate::search::test_support::{config, plan};
    use crate::search::trial::Timings;
    use crate::search::{Bar, Evaluation};

    /// A trial that was stopped when so many of its requests had met their bounds, with a planner that asks for so many GPUs.
    fn stopped(attainment: f64, asks_for: Option<u64>) -> TrialRecord {
        let branch = plan(config()).branches.remove(0);
        let mut scenario = branch.unroll(&branch.space.point(0)).unwrap().scenario;
        scenario.sla = Some(Sla { ttft_ms: Some(10.0), ..Sla::default() });
        scenario.deployment.planner = asks_for.map(|_| PolicyConfig::named("any"));
        TrialRecord {
            trial: 1,
            deployment_mode: DeploymentMode::Agg,
            round: 1,
            portion: None,
            evaluation: format!("{attainment} {}", asks_for.unwrap_or(0)),
            outcome: Outcome::Infeasible,
            repeats: None,
            reason: None,
            attainment_so_far: Some(attainment),
            reached_so_far: None,
            score: None,
            objectives: None,
            used_gpus: 4,
            config: Map::new(),
            timing: Timings::new(),
            metrics: None,
            scenario: Some(Arc::new(scenario)),
        }
    }

    /// Replays of the trials above.
    struct Replays;

    impl Evaluator for Replays {
        fn evaluate(&self, _scenario: &Scenario, _bar: &Bar) -> Evaluation {
            unreachable!("only whole replays are asked for")
        }

        fn replay_whole(&self, key: &str, _: &Scenario, _: f64) -> Result<Option<WholeReplay>, String> {
            let (attainment, gpus) = key.split_once(' ').unwrap();
            let metrics = Map::from_iter([("attainment".into(), attainment.parse::<f64>().unwrap().into())]);
            let most_gpus = gpus.parse().unwrap();
            Ok(Some(WholeReplay { metrics, reached: Sla::default(), most_gpus }))
        }
    }

    /// Who is nearest of these under a budget of 8 GPUs, in any order, and how many were passed over.
    fn nearest(trials: &[(f64, Option<u64>)]) -> (f64, Option<String>, usize) {
        let mut goal = config().goal;
        goal.sla = Some(Sla { ttft_ms: Some(10.0), ..Sla::default() });
        goal.min_attainment = Some(0.9);
        let found = |trials: &mut dyn Iterator<Item = &(f64, Option<u64>)>| {
            let mut near = NearTrials::default();
            trials.for_each(|&(attainment, asks_for)| near.enter(&stopped(attainment, asks_for)));
            let miss = near.replayed(&goal, 8, &Replays).unwrap();
            (miss.attainment.unwrap(), miss.over_budget, miss.passed_over.len())
        };
        let forwards = found(&mut trials.iter());
        assert_eq!(found(&mut trials.iter().rev()), forwards, "the order of the trials has no say");
        forwards
    }

    #[test]
    fn what_keeps_within_the_budget_comes_before_what_is_nearer() {
        assert_eq!(nearest(&[(0.5, Some(40)), (0.4, Some(8)), (0.3, None)]), (0.4, None, 1));
        assert_eq!(nearest(&[(0.5, Some(40)), (0.4, Some(9)), (0.3, None)]), (0.3, None, 2));
        assert_eq!(nearest(&[(0.5, None), (0.4, Some(9))]), (0.5, None, 0));
        let reason = "its planner asked for 40 GPUs, over search_space.gpu_budget 8";
        assert_eq!(nearest(&[(0.5, Some(40))]), (0.5, Some(reason.into()), 0));
        let both = format!("{reason}, and none of the 2 nearest keeps within it");
        assert_eq!(nearest(&[(0.5, Some(40)), (0.4, Some(9))]), (0.5, Some(both), 1));
    }

    #[test]
    fn not_all_who_may_exceed_the_budget_are_replayed_and_who_cannot_is_found() {
        let mut trials: Vec<(f64, Option<u64>)> =
            (0..40).map(|place| (0.8 - f64::from(place) / 100.0, Some(40))).collect();
        let (attainment, over_budget, passed_over) = nearest(&trials);
        assert_eq!((attainment, passed_over), (0.8, MOST_TRIED - 1));
        assert!(over_budget.unwrap().ends_with("and none of the 16 nearest keeps within it"));
        trials.push((0.1, None));
        assert_eq!(nearest(&trials), (0.1, None, MOST_TRIED));
    }
}
