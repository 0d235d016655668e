//! What a search found.

use std::path::Path;

use serde::{Serialize, Serializer};
use serde_json::{Map, Value};

use super::branch::Plan;
use super::forecasts::Forecasts;
use super::nearest::NearestMiss;
use super::policy_filter::DroppedPolicy;
use super::pool::Skipped;
use super::portion::Portion;
use super::ranking::{Candidate, frontier, rank};
use super::shortfall::{Cause, Shortfall};
use super::study::{Standings, StudyEnd};
use super::trial::{Outcome, Tally, TrialRecord};
use crate::config::scenario::{DeploymentMode, Scenario};
use crate::config::search::OptimizationGoal;

/// The version of the form in which a result is written.
const SCHEMA_VERSION: u32 = 1;

/// The answer of a search, in the form of `candidates.json`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SearchResult {
    /// The version of this form.
    pub schema_version: u32,
    /// What was searched for.
    pub goal: OptimizationGoal,
    /// Whether the first candidate is known to be the best of all points, or the frontier to be theirs: every point was
    /// evaluated, and nothing that is said in `incomplete` kept its worth from being known.
    pub certified_optimum: bool,
    /// Whether another run has to come to the same answer: no replay was cut off by the wall clock, and the search was not
    /// interrupted.
    pub reproducible: bool,
    /// What this answer lacks; absent if it is all that was searched for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub incomplete: Vec<Shortfall>,
    /// With what planners that scale ahead of traffic forecast, and how that was chosen; absent where there are none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub load_predictors: Option<Forecasts>,
    /// Settings of which there were several to choose from, by their names in `config`; `layout` is the shape of workers and their
    /// number.
    pub searched: Vec<&'static str>,
    /// Trials by outcome.
    pub tally: Tally,
    /// The candidates that count, best first; of a Pareto goal those on the frontier, along it.
    pub candidates: Vec<Candidate>,
    /// The trials that do not count, in the order of suggestion; repetitions are left out.
    pub rejected: Vec<Rejected>,
    /// Where no candidate counts because of the goal's bounds: the one that came nearest, replayed to its end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nearest: Option<NearestMiss>,
    /// How many candidates were replayed on which portion of the requests before the others.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub screenings: Vec<Screening>,
    /// Shapes of workers that were left out, and branches of which nothing was left, with the reasons.
    pub skipped: Vec<Skipped>,
    /// Scaling policies that the goal cannot support.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub dropped_policies: Vec<DroppedPolicy>,
    /// How each study ended.
    #[serde(skip)]
    pub studies: Vec<StudySummary>,
}

/// A trial that does not count.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Rejected {
    /// Every setting by name.
    pub config: Map<String, Value>,
    /// How it ended.
    pub outcome: Outcome,
    /// Why.
    pub reason: String,
    /// What replays a trial that failed, so that its failure can be looked into.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "as_in_its_file")]
    pub scenario: Option<Scenario>,
}

#[allow(clippy::ref_option, reason = "serde passes a reference to the field")]
fn as_in_its_file<S: Serializer>(scenario: &Option<Scenario>, serializer: S) -> Result<S::Ok, S::Error> {
    scenario.as_ref().map(Scenario::to_json).serialize(serializer)
}

impl Rejected {
    pub(super) fn of_trial(record: &TrialRecord) -> Self {
        Self {
            config: record.config.clone(),
            outcome: record.outcome,
            reason: record.reason.clone().unwrap_or_default(),
            scenario: record.scenario.as_deref().filter(|_| record.outcome == Outcome::Failed).cloned(),
        }
    }
}

/// A first look at candidates of a branch.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Screening {
    /// The branch.
    pub deployment_mode: DeploymentMode,
    /// What was replayed.
    pub portion: Portion,
    /// How many candidates.
    pub candidates: u64,
}

impl Screening {
    /// Counts a trial where it belongs.
    pub(super) fn count(record: &TrialRecord, screenings: &mut Vec<Self>) {
        let Some(portion) = record.portion else { return };
        let deployment_mode = record.deployment_mode;
        let same = |one: &&mut Self| (one.deployment_mode, one.portion) == (deployment_mode, portion);
        match screenings.iter_mut().find(same) {
            Some(one) => one.candidates += 1,
            None => screenings.push(Self { deployment_mode, portion, candidates: 1 }),
        }
    }
}

/// How a study ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StudySummary {
    /// Its branch.
    pub mode: DeploymentMode,
    /// Why it ended.
    pub end: StudyEnd,
    /// Whether every point of the branch has been evaluated.
    pub covers_all_points: bool,
}

impl SearchResult {
    pub(super) fn new(plan: &Plan, standings: Standings, nearest: Option<NearestMiss>) -> Self {
        let Standings { tally, candidates, rejected, screenings, mut studies, .. } = standings;
        // The first to end is not always the same.
        studies.sort_by_key(|study| plan.branches.iter().position(|branch| branch.mode == study.mode));
        let all_covered =
            studies.len() == plan.branches.len() && studies.iter().all(|study| study.covers_all_points);
        let incomplete = Shortfall::all(&tally, &rejected, &studies);
        // Another run may be stopped at another trial.
        let depends_on_clock =
            |one: &Shortfall| matches!(one.cause, Cause::Interrupted { .. } | Cause::OutOfTime { .. });
        Self {
            schema_version: SCHEMA_VERSION,
            goal: plan.config.goal.clone(),
            reproducible: !incomplete.iter().any(depends_on_clock),
            certified_optimum: all_covered && !candidates.is_empty() && incomplete.is_empty(),
            incomplete,
            load_predictors: (!plan.forecasts.is_empty()).then(|| Forecasts::clone(&plan.forecasts)),
            searched: plan.searched(),
            tally,
            candidates: if plan.config.goal.is_pareto() {
                frontier(candidates, plan.config.goal.objectives())
            } else {
                rank(candidates, plan.config.sweep.top)
            },
            nearest,
            rejected,
            screenings,
            skipped: plan.skipped.clone(),
            dropped_policies: DroppedPolicy::of(
                &plan.config.search_space.planner_scaling_policy,
                &plan.config.goal,
            ),
            studies,
        }
    }

    /// The same with file paths in its scenarios that start from `folder`, where it is going to be.
    #[must_use]
    pub fn with_paths_from(mut self, folder: &Path) -> Self {
        let candidates = self.candidates.iter_mut().map(|candidate| &mut candidate.scenario);
        let failed = self.rejected.iter_mut().filter_map(|rejected| rejected.scenario.as_mut());
        let nearest = self.nearest.iter_mut().map(|nearest| &mut nearest.scenario);
        for scenario in candidates.chain(failed).chain(nearest) {
            *scenario = scenario.with_paths_from(folder);
        }
        self
    }

    /// The best candidate, if any counts. A frontier has no best.
    pub fn best(&self) -> Option<&Candidate> {
        self.candidates.first().filter(|_| !self.goal.is_pareto())
    }

    /// The first trial that failed for each reason, in the order of suggestion.
    pub fn failures(&self) -> impl Iterator<Item = (&str, &Scenario)> {
        let failed = self.rejected.iter().enumerate().filter(|(_, trial)| trial.scenario.is_some());
        let first = failed.filter(|(place, trial)| {
            !self.rejected[..*place].iter().any(|earlier| earlier.reason == trial.reason)
        });
        first.filter_map(|(_, trial)| Some((trial.reason.as_str(), trial.scenario.as_ref()?)))
    }

    /// Whether the search was told to stop before its end.
    pub fn was_interrupted(&self) -> bool {
        self.studies.iter().any(|study| study.end.is_interrupted())
    }
}
