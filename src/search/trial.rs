//! What became of the trials: outcomes, tallies, and the record of each.

use std::sync::Arc;

use indexmap::IndexMap;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::{Map, Value};

use super::objective::Metrics;
use super::portion::Portion;
use crate::config::scenario::{DeploymentMode, Scenario, Sla};
use crate::report::record::TimingRecord;

/// What an evaluation found.
#[derive(Clone, Debug, PartialEq)]
pub enum Evaluation {
    /// The replay's summary.
    Measured(Metrics),
    /// The deployment can not serve, for this reason.
    Infeasible(String),
    /// Its replay was stopped when it was certain that it misses the goal's bar.
    BelowBar {
        /// Why that is certain.
        reason: String,
        /// Share of the requests that had come to an end by then that met their bounds; below the bar.
        attainment_so_far: f64,
        /// For each bound, what the share that the bar asks for of those requests was within.
        reached_so_far: Sla,
    },
    /// Its replay was stopped when it was certain that it is not among the best, for this reason.
    StoppedEarly(String),
    /// The evaluation itself failed, for this reason.
    Failed(String),
    /// The search was told to stop before there was an answer.
    Interrupted,
}

/// How a trial ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// It was replayed and counts.
    Feasible,
    /// It can not serve, or misses a bar that the goal sets.
    Infeasible,
    /// It could not be built or replayed.
    Failed,
    /// The engine does not support its layout.
    Unsupported,
    /// It was replayed on a portion of the requests, to see whether it is worth a replay on all of them.
    Screened,
    /// Its replay was stopped, because it cannot be among the best that were asked for.
    StoppedEarly,
    /// It repeats an earlier trial, of whatever outcome, and was not replayed again.
    CacheHit,
}

/// Trials by outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Tally {
    /// Trials that count.
    pub feasible: u64,
    /// Trials that can not serve or miss a bar.
    pub infeasible: u64,
    /// Trials that could not be built or replayed.
    pub failed: u64,
    /// Trials whose engine does not support their layout.
    pub unsupported: u64,
    /// Trials that repeat another.
    pub cache_hit: u64,
    /// Trials that were replayed on a portion of the requests.
    #[serde(skip_serializing_if = "is_zero")]
    pub screened: u64,
    /// Trials whose replay was stopped, because they cannot be among the best.
    #[serde(skip_serializing_if = "is_zero")]
    pub stopped_early: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
fn is_zero(count: &u64) -> bool {
    *count == 0
}

impl Tally {
    /// Counts one trial.
    pub fn count(&mut self, outcome: Outcome) {
        let counter = match outcome {
            Outcome::Feasible => &mut self.feasible,
            Outcome::Infeasible => &mut self.infeasible,
            Outcome::Failed => &mut self.failed,
            Outcome::Unsupported => &mut self.unsupported,
            Outcome::CacheHit => &mut self.cache_hit,
            Outcome::Screened => &mut self.screened,
            Outcome::StoppedEarly => &mut self.stopped_early,
        };
        *counter += 1;
    }

    /// Trials of every outcome.
    pub fn total(&self) -> u64 {
        self.attempts() + self.unsupported + self.cache_hit
    }

    /// Trials that were evaluated.
    pub fn attempts(&self) -> u64 {
        self.feasible + self.infeasible + self.failed + self.screened + self.stopped_early
    }
}

/// What prices the passes of each pool of a candidate, by the pool's name.
pub type Timings = IndexMap<&'static str, TimingRecord>;

/// A committed trial: one line of the journal.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TrialRecord {
    /// Its number, from 1, in the order of suggestion over all branches.
    pub trial: u32,
    /// Its branch.
    pub deployment_mode: DeploymentMode,
    /// The round of its branch, from 1.
    pub round: u32,
    /// The portion of the requests that was replayed; all of them if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub portion: Option<Portion>,
    /// What was evaluated: equal for equal scenarios, requests, prices and limits in the same version of the program.
    pub evaluation: String,
    /// How it ended.
    pub outcome: Outcome,
    /// The trial it repeats, for a [`Outcome::CacheHit`].
    pub repeats: Option<u32>,
    /// Why it does not count, or falls short on a portion of the requests.
    pub reason: Option<String>,
    /// Where its replay was stopped because it cannot reach the goal's bar: the share of the requests that had come to an end
    /// by then that met their bounds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attainment_so_far: Option<f64>,
    /// And for each bound, what the share that the bar asks for of those requests was within.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reached_so_far: Option<Sla>,
    /// Its score, if it counts: higher is better, or the first objective of a Pareto goal as it is.
    pub score: Option<f64>,
    /// Its value on each objective of a Pareto goal, if it counts.
    pub objectives: Option<Map<String, Value>>,
    /// GPUs that it occupies.
    pub used_gpus: u32,
    /// Every setting by name.
    pub config: Map<String, Value>,
    /// What prices the passes of each of its pools.
    #[serde(serialize_with = "identities")]
    pub timing: Timings,
    /// Every figure of its replay's summary, if there was one and this is not a repetition.
    pub metrics: Option<Metrics>,
    /// What replays it; absent if it could not be built.
    #[serde(skip)]
    pub scenario: Option<Arc<Scenario>>,
}

fn identities<S: Serializer>(timings: &Timings, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(timings.iter().map(|(pool, timing)| (pool, timing.identity())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tally_adds_up() {
        let mut tally = Tally::default();
        for outcome in [Outcome::Feasible, Outcome::Feasible, Outcome::CacheHit, Outcome::Failed] {
            tally.count(outcome);
        }
        assert_eq!((tally.feasible, tally.attempts(), tally.total()), (2, 3, 4));
    }
}
