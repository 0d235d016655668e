//! What turns a candidate into figures.

use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::Value;

use super::journal::Hash;
use super::nearest::{WholeReplay, over_budget};
use super::objective::{Metrics, objective_name};
use super::trial::Evaluation;
use super::watchdog::Watchdog;
use crate::config::scenario::{Pool, Scenario, WorkloadConfig, WorkloadSource};
use crate::config::search::OptimizationTarget;
use crate::registry::Registry;
use crate::report::Summary;
use crate::report::attainment::within_share;
use crate::report::figure::significant;
use crate::report::record::{Role, Status};
use crate::report::scaling::ScalingEvent;
use crate::serving::outlook::WorthBar;
use crate::serving::recorder::{AttainmentBar, EarlyEnd};
use crate::serving::{self, ReplayError, ReplayLimits, Traffic};
use crate::workload::{self, Workload};

/// Scores the scenarios of a search, from many threads at a time.
///
/// An answer may depend on nothing but the scenario and the bar. Any function from a scenario to an [`Evaluation`] is an
/// evaluator.
pub trait Evaluator: Send + Sync {
    /// Evaluates one candidate, or ends as soon as it is certain that it does not clear the bar.
    fn evaluate(&self, scenario: &Scenario, bar: &Bar) -> Evaluation;

    /// Replays a candidate to its end whatever it misses, and says what `share` of its requests is within for each bound that its
    /// scenario sets. `evaluation` is the key of its trial. `None` if there is no such replay, or the search was told to stop.
    ///
    /// # Errors
    /// Why it cannot be replayed.
    fn replay_whole(
        &self,
        _evaluation: &str,
        _scenario: &Scenario,
        _share: f64,
    ) -> Result<Option<WholeReplay>, String> {
        Ok(None)
    }

    /// Rows of the trace that is replayed, if it is one.
    fn trace_rows(&self) -> Option<u32> {
        None
    }

    /// A hash of everything beside the scenario that its answers depend on, to tell whether the answers of an earlier run
    /// still hold.
    fn fingerprint(&self) -> u64 {
        0
    }
}

/// What a candidate has to reach for its replay to be worth its end.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Bar {
    /// Share of all requests that have to meet their bounds.
    pub min_attainment: Option<f64>,
    /// GPUs that its planner may ask for at most.
    pub max_gpus: Option<u32>,
    /// The score of the last candidate that is ranked, on this objective: what is certain to be worse need not go on.
    pub worth: Option<(OptimizationTarget, f64)>,
}

impl<F: Fn(&Scenario) -> Evaluation + Send + Sync> Evaluator for F {
    fn evaluate(&self, scenario: &Scenario, _bar: &Bar) -> Evaluation {
        self(scenario)
    }
}

/// The requests that candidates are replayed with.
#[derive(Debug)]
pub enum Requests {
    /// The same for all candidates: all of them or a portion, prepared for each block size that engines have; all of them
    /// first.
    Shared(Vec<Prepared>),
    /// Generated for each candidate: how many they are depends on the room that it has.
    Generated,
}

/// Requests that are ready to be replayed.
#[derive(Debug)]
pub struct Prepared {
    /// Where they come from.
    pub workload: WorkloadConfig,
    /// They themselves.
    pub traffic: Traffic,
}

impl Requests {
    /// The requests, if all candidates have the same.
    pub(super) fn shared(&self) -> Option<&Workload> {
        match self {
            Self::Shared(prepared) => prepared.first().map(|prepared| &**prepared.traffic.workload()),
            Self::Generated => None,
        }
    }

    fn fingerprint(&self) -> u64 {
        let Self::Shared(prepared) = self else { return 0 };
        let mut hash = Hash::default();
        if let Some(prepared) = prepared.first() {
            let workload = prepared.traffic.workload();
            write!(hash, "{:?} {:?} {:?}", workload.requests, workload.chunk_ids, workload.concurrency)
                .expect("hashing cannot fail");
        }
        hash.digest()
    }

    /// Rows of the trace that was prepared, if it is one.
    pub(crate) fn trace_rows(prepared: &[Prepared]) -> Option<u32> {
        let all = prepared.first()?;
        let is_trace = matches!(all.workload.source, WorkloadSource::Trace(_));
        is_trace.then(|| u32::try_from(all.traffic.workload().input.read).unwrap_or(u32::MAX))
    }

    fn traffic(&self, scenario: &Scenario) -> Result<Traffic, ReplayError> {
        let block_size = scenario.deployment.block_size();
        match self {
            Self::Shared(prepared) => {
                let suits = |one: &&Prepared| {
                    one.traffic.block_size() == block_size && one.workload == scenario.workload
                };
                let prepared = prepared.iter().find(suits);
                Ok(prepared
                    .expect("requests are prepared for all block sizes and portions of a search")
                    .traffic
                    .clone())
            }
            Self::Generated => {
                let loaded = workload::load(&scenario.workload, None, block_size)
                    .map_err(|error| ReplayError::Refused(error.to_string()))?;
                Ok(Traffic::new(Arc::new(loaded.workload), block_size))
            }
        }
    }
}

/// Evaluates candidates by replaying requests on each.
#[derive(Debug)]
pub struct ReplayEvaluator {
    requests: Requests,
    registry: Arc<Registry>,
    interrupt: Arc<AtomicBool>,
    limit: Option<(f64, Watchdog)>,
    max_passes: Option<u64>,
}

impl ReplayEvaluator {
    /// Replays `requests` with the policies of `registry`, each candidate for at most `max_eval_seconds` of the wall clock,
    /// until `interrupt` is set.
    ///
    /// # Errors
    /// When the machine gives no thread to watch the clock.
    pub fn new(
        requests: Requests,
        registry: Arc<Registry>,
        max_eval_seconds: Option<f64>,
        interrupt: Arc<AtomicBool>,
    ) -> std::io::Result<Self> {
        let limit = max_eval_seconds.map(|seconds| {
            let limit = Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX);
            Watchdog::start(limit, Arc::clone(&interrupt)).map(|watchdog| (seconds, watchdog))
        });
        Ok(Self { requests, registry, interrupt, limit: limit.transpose()?, max_passes: None })
    }

    /// The same, each candidate for at most so many passes of all its workers together.
    #[must_use]
    pub fn with_pass_limit(self, max_passes: Option<u64>) -> Self {
        Self { max_passes, ..self }
    }

    fn reason(&self, end: EarlyEnd, scenario: &Scenario, bar: &Bar) -> String {
        match end {
            EarlyEnd::OutOfPasses => {
                format!("{OUT_OF_PASSES}: replay > {} passes", self.max_passes.unwrap_or_default())
            }
            EarlyEnd::Outclassed { bound } => {
                bar.worth.map_or_else(String::new, |worth| outclassed(bound, worth, scenario))
            }
            EarlyEnd::Hopeless { missed, rejected, .. } => {
                let bar = bar.min_attainment.unwrap_or_default();
                let start = format!("attainment cannot reach goal.min_attainment {bar}");
                match rejected {
                    0 => format!("{start}: {missed} requests have missed a bound"),
                    _ => format!(
                        "{start}: {missed} requests have missed a bound, and {rejected} were rejected because the engine can \
                         never run them"
                    ),
                }
            }
        }
    }

    fn replay(
        &self,
        scenario: &Scenario,
        bar: &Bar,
        interrupt: &Arc<AtomicBool>,
    ) -> Result<Evaluation, ReplayError> {
        let (worth, max_gpus) = (worth_bar(scenario, bar), bar.max_gpus);
        let bar = scenario.sla.zip(bar.min_attainment).map(|(sla, minimum)| AttainmentBar { sla, minimum });
        let limits = ReplayLimits {
            interrupt: Some(Arc::clone(interrupt)),
            max_passes: self.max_passes,
            bar,
            worth,
            ..ReplayLimits::default()
        };
        let traffic = self.requests.traffic(scenario)?;
        let record = serving::replay(scenario, &traffic, &self.registry, &limits)?;
        let asked = most_gpus(scenario, &record.scaling.events);
        if let Some(reason) = max_gpus.and_then(|budget| over_budget(asked, budget)) {
            return Ok(Evaluation::Infeasible(reason));
        }
        Ok(measured(&Summary::new(&record, traffic.workload(), scenario.sla.as_ref())))
    }
}

impl Evaluator for ReplayEvaluator {
    fn replay_whole(
        &self,
        _evaluation: &str,
        scenario: &Scenario,
        share: f64,
    ) -> Result<Option<WholeReplay>, String> {
        let traffic = self.requests.traffic(scenario).map_err(|error| error.to_string())?;
        let limits = ReplayLimits { interrupt: Some(Arc::clone(&self.interrupt)), ..ReplayLimits::default() };
        let record = match serving::replay(scenario, &traffic, &self.registry, &limits) {
            Ok(record) => record,
            Err(ReplayError::Interrupted) => return Ok(None),
            Err(error) => return Err(error.to_string()),
        };
        let metrics = metrics(&Summary::new(&record, traffic.workload(), scenario.sla.as_ref()))?;
        let injected = record.requests.iter().filter(|request| request.status != Status::Absent);
        let reached = within_share(&injected, &scenario.sla.unwrap_or_default(), share);
        let most_gpus = most_gpus(scenario, &record.scaling.events);
        Ok(Some(WholeReplay { metrics, reached, most_gpus }))
    }

    fn fingerprint(&self) -> u64 {
        self.requests.fingerprint()
    }

    fn trace_rows(&self) -> Option<u32> {
        match &self.requests {
            Requests::Shared(prepared) => Requests::trace_rows(prepared),
            Requests::Generated => None,
        }
    }

    fn evaluate(&self, scenario: &Scenario, bar: &Bar) -> Evaluation {
        let result = match &self.limit {
            Some((_, watchdog)) => {
                let leash = watchdog.watch();
                let result = self.replay(scenario, bar, leash.flag());
                // A replay that came to its end too late was too long all the same.
                if result.is_ok() && leash.is_over() { Err(ReplayError::Interrupted) } else { result }
            }
            None => self.replay(scenario, bar, &self.interrupt),
        };
        let told_to_stop = self.interrupt.load(Ordering::Relaxed);
        match (result, &self.limit) {
            (Ok(evaluation), _) => evaluation,
            (Err(ReplayError::Refused(reason)), _) => {
                Evaluation::Failed(format!("candidate build failed: {reason}"))
            }
            (Err(ReplayError::EndedEarly(end @ EarlyEnd::Outclassed { .. })), _) => {
                Evaluation::StoppedEarly(self.reason(end, scenario, bar))
            }
            (
                Err(ReplayError::EndedEarly(end @ EarlyEnd::Hopeless { missed, rejected, ended, reached })),
                _,
            ) => {
                let attainment_so_far = 1.0 - (missed + rejected) as f64 / ended as f64;
                let reason = self.reason(end, scenario, bar);
                Evaluation::BelowBar { reason, attainment_so_far, reached_so_far: reached }
            }
            (Err(ReplayError::EndedEarly(end)), _) => Evaluation::Infeasible(self.reason(end, scenario, bar)),
            (Err(ReplayError::Interrupted), Some((seconds, _))) if !told_to_stop => {
                Evaluation::Infeasible(format!("{TIMED_OUT}: replay > {seconds}s"))
            }
            (Err(ReplayError::Interrupted), _) => Evaluation::Interrupted,
            (Err(error), _) => Evaluation::Failed(format!("replay failed: {error}")),
        }
    }
}

/// The most GPUs that a deployment was asked to have at any time, those that it starts with among them.
fn most_gpus(scenario: &Scenario, events: &[ScalingEvent]) -> u64 {
    let deployment = &scenario.deployment;
    let pools = [&deployment.agg, &deployment.prefill, &deployment.decode];
    let place = |role| match role {
        Role::Agg => 0,
        Role::Prefill => 1,
        Role::Decode => 2,
    };
    let mut gpus = pools.map(|pool| {
        pool.as_ref().map_or(0, |pool| u64::from(pool.workers) * u64::from(pool.gpus_per_worker()))
    });
    let mut most: u64 = gpus.iter().sum();
    // What is decided at one instant for several pools counts together.
    for together in events.chunk_by(|one, next| one.at == next.at) {
        for event in together {
            let of_worker = pools[place(event.role)].as_ref().map_or(0, Pool::gpus_per_worker);
            gpus[place(event.role)] = u64::from(event.to) * u64::from(of_worker);
        }
        most = most.max(gpus.iter().sum());
    }
    most
}

/// What the figure behind an objective has to reach in a replay; `None` where no bound on it is known.
fn worth_bar(scenario: &Scenario, bar: &Bar) -> Option<WorthBar> {
    let (target, score) = bar.worth?;
    let deployment = &scenario.deployment;
    let is_static = deployment.planner.is_none() && deployment.replica_changes.is_empty();
    // A fleet that nobody changes has all its GPUs until the end.
    let gpus = || is_static.then(|| deployment.gpus() as f64);
    let tokens = |sla, least| Some(WorthBar::TokensPerSecond { sla, least });
    match target {
        OptimizationTarget::Throughput => tokens(None, score),
        OptimizationTarget::ThroughputPerGpu => tokens(None, score * gpus()?),
        OptimizationTarget::Goodput => tokens(Some(scenario.sla?), score),
        OptimizationTarget::GoodputPerGpu => tokens(Some(scenario.sla?), score * gpus()?),
        OptimizationTarget::E2eLatency => Some(WorthBar::MeanLatencyMs(-score)),
        OptimizationTarget::ThroughputPerUser | OptimizationTarget::Pareto => None,
    }
}

/// Why a candidate is not among the best whose figure stays within `bound`: in the unit of the goal, whatever the bound was found by.
fn outclassed(bound: f64, (target, score): (OptimizationTarget, f64), scenario: &Scenario) -> String {
    use OptimizationTarget::{E2eLatency, GoodputPerGpu, ThroughputPerGpu};
    let (side, bound, last, unit) = match target {
        E2eLatency => ("at least", bound, -score, "ms"),
        ThroughputPerGpu | GoodputPerGpu => {
            ("at most", bound / scenario.deployment.gpus() as f64, score, "tok/s per GPU")
        }
        _ => ("at most", bound, score, "tok/s"),
    };
    let digits = |value: f64| significant(value, 6);
    let (bound, last) = match (digits(bound), digits(last)) {
        (one, other) if one == other => (bound.to_string(), last.to_string()),
        rounded => rounded,
    };
    let name = objective_name(target);
    format!(
        "{name} of {side} {bound} {unit}: not among the best (sweep.top), the last of which has {last} {unit}"
    )
}

/// How the reason of a candidate begins whose replay took longer than the wall clock allowed.
pub(super) const TIMED_OUT: &str = "exceed runtime";
/// And of one whose replay took more passes than allowed.
pub(super) const OUT_OF_PASSES: &str = "exceed passes";

fn measured(summary: &Summary) -> Evaluation {
    if summary.completed_requests == 0 {
        let (rejected, unfinished) = (summary.rejected_requests, summary.unfinished_requests);
        return Evaluation::Infeasible(format!(
            "no request completed: {rejected} rejected because the engine can never run them, {unfinished} unfinished"
        ));
    }
    match metrics(summary) {
        Ok(metrics) => Evaluation::Measured(metrics),
        Err(problem) => Evaluation::Failed(format!("replay failed: {problem}")),
    }
}

fn metrics(summary: &Summary) -> Result<Metrics, String> {
    match serde_json::to_value(summary) {
        Ok(Value::Object(metrics)) => Ok(metrics),
        Ok(_) => Err("its summary has no named figures".into()),
        Err(error) => Err(format!("its summary cannot be written: {error}")),
    }
}

#[cfg(test)]
mod tests;
