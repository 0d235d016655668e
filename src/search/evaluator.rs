//! What turns a candidate into figures.

use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::Value;

use super::journal::Hash;
use super::trial::Evaluation;
use super::watchdog::Watchdog;
use crate::config::scenario::Scenario;
use crate::registry::Registry;
use crate::report::Summary;
use crate::serving::recorder::{AttainmentBar, EarlyEnd};
use crate::serving::{self, ReplayError, ReplayLimits, Traffic};
use crate::workload::{self, Workload};

/// Scores the scenarios of a search, from many threads at a time.
///
/// An answer may depend on nothing but the scenario. Any function from a scenario to an [`Evaluation`] is an evaluator.
pub trait Evaluator: Send + Sync {
    /// Evaluates one candidate.
    fn evaluate(&self, scenario: &Scenario) -> Evaluation;

    /// A hash of everything beside the scenario that its answers depend on, to tell whether the answers of an earlier run
    /// still hold.
    fn fingerprint(&self) -> u64 {
        0
    }
}

impl<F: Fn(&Scenario) -> Evaluation + Send + Sync> Evaluator for F {
    fn evaluate(&self, scenario: &Scenario) -> Evaluation {
        self(scenario)
    }
}

/// The requests that candidates are replayed with.
#[derive(Debug)]
pub enum Requests {
    /// The same for all candidates, prepared for each block size that their engines have.
    Shared(Vec<Traffic>),
    /// Generated for each candidate: how many they are depends on the room that it has.
    Generated,
}

impl Requests {
    /// The requests, if all candidates have the same.
    pub(super) fn shared(&self) -> Option<&Workload> {
        match self {
            Self::Shared(prepared) => prepared.first().map(|traffic| &**traffic.workload()),
            Self::Generated => None,
        }
    }

    fn fingerprint(&self) -> u64 {
        let Self::Shared(prepared) = self else { return 0 };
        let mut hash = Hash::default();
        if let Some(traffic) = prepared.first() {
            let workload = traffic.workload();
            write!(hash, "{:?} {:?} {:?}", workload.requests, workload.chunk_ids, workload.concurrency)
                .expect("hashing cannot fail");
        }
        hash.digest()
    }

    fn traffic(&self, scenario: &Scenario) -> Result<Traffic, ReplayError> {
        let block_size = scenario.deployment.block_size();
        match self {
            Self::Shared(prepared) => {
                let traffic = prepared.iter().find(|traffic| traffic.block_size() == block_size);
                Ok(traffic.expect("traffic is prepared for all block sizes of a search").clone())
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
    min_attainment: Option<f64>,
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
        Ok(Self {
            requests,
            registry,
            interrupt,
            limit: limit.transpose()?,
            max_passes: None,
            min_attainment: None,
        })
    }

    /// The same, each candidate for at most so many passes of all its workers together.
    #[must_use]
    pub fn with_pass_limit(self, max_passes: Option<u64>) -> Self {
        Self { max_passes, ..self }
    }

    /// The same, a replay being ended as infeasible as soon as too many requests have missed their bounds for this share of
    /// all to meet them.
    #[must_use]
    pub fn with_min_attainment(self, min_attainment: Option<f64>) -> Self {
        Self { min_attainment, ..self }
    }

    fn reason(&self, end: EarlyEnd) -> String {
        match end {
            EarlyEnd::OutOfPasses => {
                format!("exceed passes: replay > {} passes", self.max_passes.unwrap_or_default())
            }
            EarlyEnd::Hopeless { missed } => format!(
                "attainment cannot reach goal.min_attainment {}: {missed} requests have missed a bound",
                self.min_attainment.unwrap_or_default()
            ),
        }
    }

    fn replay(&self, scenario: &Scenario, interrupt: &Arc<AtomicBool>) -> Result<Evaluation, ReplayError> {
        let bar = scenario.sla.zip(self.min_attainment).map(|(sla, minimum)| AttainmentBar { sla, minimum });
        let limits = ReplayLimits {
            interrupt: Some(Arc::clone(interrupt)),
            max_passes: self.max_passes,
            bar,
            ..ReplayLimits::default()
        };
        let traffic = self.requests.traffic(scenario)?;
        let record = serving::replay(scenario, &traffic, &self.registry, &limits)?;
        Ok(measured(&Summary::new(&record, traffic.workload(), scenario.sla.as_ref())))
    }
}

impl Evaluator for ReplayEvaluator {
    fn fingerprint(&self) -> u64 {
        self.requests.fingerprint()
    }

    fn evaluate(&self, scenario: &Scenario) -> Evaluation {
        let result = match &self.limit {
            Some((_, watchdog)) => self.replay(scenario, watchdog.watch().flag()),
            None => self.replay(scenario, &self.interrupt),
        };
        let told_to_stop = self.interrupt.load(Ordering::Relaxed);
        match (result, &self.limit) {
            (Ok(evaluation), _) => evaluation,
            (Err(ReplayError::Refused(reason)), _) => {
                Evaluation::Failed(format!("candidate build failed: {reason}"))
            }
            (Err(ReplayError::EndedEarly(end)), _) => Evaluation::Infeasible(self.reason(end)),
            (Err(ReplayError::Interrupted), Some((seconds, _))) if !told_to_stop => {
                Evaluation::Infeasible(format!("{TIMED_OUT}: replay > {seconds}s"))
            }
            (Err(ReplayError::Interrupted), _) => Evaluation::Interrupted,
            (Err(error), _) => Evaluation::Failed(format!("replay failed: {error}")),
        }
    }
}

/// How the reason of a candidate begins whose replay took longer than the wall clock allowed.
pub(super) const TIMED_OUT: &str = "exceed runtime";

fn measured(summary: &Summary) -> Evaluation {
    if summary.completed_requests == 0 {
        let (rejected, unfinished) = (summary.rejected_requests, summary.unfinished_requests);
        return Evaluation::Infeasible(format!(
            "no request completed: {rejected} rejected because the engine can never run them, {unfinished} unfinished"
        ));
    }
    match serde_json::to_value(summary) {
        Ok(Value::Object(metrics)) => Evaluation::Measured(metrics),
        Ok(_) => Evaluation::Failed("replay failed: its summary has no named figures".into()),
        Err(error) => Evaluation::Failed(format!("replay failed: its summary cannot be written: {error}")),
    }
}
