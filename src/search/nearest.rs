//! Where no candidate counts: the one that came nearest, replayed to its end.

use std::cmp::Ordering;
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

/// A candidate that misses the goal's bar, as far as its trial tells.
#[derive(Clone, Debug)]
pub(super) struct NearTrial {
    attainment: f64,
    /// What the required share was within, in multiples of the bound that is missed most; infinite where that is not known.
    excess: f64,
    used_gpus: u32,
    evaluation: String,
    config: Map<String, Value>,
    scenario: Arc<Scenario>,
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
        })
    }

    /// Keeps the nearer of what is known and a committed trial, whichever comes first.
    pub(super) fn keep(known: &mut Option<Self>, record: &TrialRecord) {
        let Some(other) = Self::of_trial(record) else { return };
        if known.as_ref().is_none_or(|known| other.compare(known) == Ordering::Less) {
            *known = Some(other);
        }
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
    pub(super) fn replayed(
        self,
        goal: &OptimizationGoal,
        gpu_budget: u32,
        evaluator: &dyn Evaluator,
    ) -> Option<NearestMiss> {
        let (sla, share) = (goal.sla?, goal.min_attainment?);
        let replay = || evaluator.replay_whole(&self.evaluation, &self.scenario, share);
        // Trials forgive a panic; so does this.
        let whole = catch_unwind(AssertUnwindSafe(replay))
            .unwrap_or_else(|payload| Err(format!("internal error: {}", panic_message(&*payload))));
        match whole {
            Ok(whole) => whole.map(|whole| NearestMiss::new(self, &sla, share, whole).within(gpu_budget)),
            Err(problem) => {
                tracing::warn!(problem, "the candidate that came nearest cannot be replayed to its end");
                None
            }
        }
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

/// The candidate that came nearest to the goal's bar, by what the trials know of it, and what a replay to its end shows.
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
        }
    }

    fn within(self, gpu_budget: u32) -> Self {
        Self { over_budget: over_budget(self.most_gpus, gpu_budget), ..self }
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
