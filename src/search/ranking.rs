//! The answer of a search: candidates, best first.

use std::cmp::Ordering;

use serde::{Serialize, Serializer};
use serde_json::{Map, Value};

use super::objective::Metrics;
use super::trial::TrialRecord;
use crate::config::scenario::Scenario;

/// A deployment that was replayed and counts.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Candidate {
    /// Its place in the ranking, from 1.
    pub rank: usize,
    /// The goal's objective, signed so that higher is better.
    pub score: f64,
    /// GPUs that it occupies.
    pub used_gpus: u32,
    /// Every setting by name.
    pub config: Map<String, Value>,
    /// Every figure of its replay's summary.
    pub metrics: Metrics,
    /// Its value on each objective of a Pareto goal.
    pub objectives: Option<Map<String, Value>>,
    /// What replays it.
    #[serde(serialize_with = "as_in_its_file")]
    pub scenario: Scenario,
}

impl Candidate {
    /// The candidate of a committed trial, not ranked yet; `None` if the trial does not count.
    pub(super) fn of_trial(record: &TrialRecord) -> Option<Self> {
        Some(Self {
            rank: 0,
            score: record.score?,
            used_gpus: record.used_gpus,
            config: record.config.clone(),
            metrics: record.metrics.clone()?,
            objectives: None,
            scenario: record.scenario.as_deref()?.clone(),
        })
    }
}

fn as_in_its_file<S: Serializer>(scenario: &Scenario, serializer: S) -> Result<S::Ok, S::Error> {
    scenario.to_json().serialize(serializer)
}

/// Ranks candidates: the higher score first, then fewer GPUs, then by their settings, so that the order never depends
/// on the order of evaluation. A score that is no number comes last.
pub fn rank(mut candidates: Vec<Candidate>) -> Vec<Candidate> {
    candidates.sort_by_cached_key(|candidate| RankingKey {
        score: candidate.score,
        used_gpus: candidate.used_gpus,
        config: Value::Object(candidate.config.clone()).to_string(),
    });
    for (place, candidate) in candidates.iter_mut().enumerate() {
        candidate.rank = place + 1;
    }
    candidates
}

struct RankingKey {
    score: f64,
    used_gpus: u32,
    config: String,
}

impl Ord for RankingKey {
    fn cmp(&self, other: &Self) -> Ordering {
        higher_first(self.score, other.score)
            .then(self.used_gpus.cmp(&other.used_gpus))
            .then_with(|| self.config.cmp(&other.config))
    }
}

impl PartialOrd for RankingKey {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for RankingKey {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for RankingKey {}

fn higher_first(left: f64, right: f64) -> Ordering {
    match (left.is_nan(), right.is_nan()) {
        (false, false) => right.partial_cmp(&left).unwrap_or(Ordering::Equal),
        (left_is_nan, right_is_nan) => left_is_nan.cmp(&right_is_nan),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::search::test_support::{config, plan};

    fn candidates(of: &[(f64, u32, &str)]) -> Vec<Candidate> {
        let branch = plan(config()).branches.remove(0);
        let scenario = branch.unroll(&branch.space.point(0)).unwrap().scenario;
        let candidate = |&(score, used_gpus, name): &(f64, u32, &str)| Candidate {
            rank: 0,
            score,
            used_gpus,
            config: Map::from_iter([("name".into(), Value::from(name))]),
            metrics: Metrics::new(),
            objectives: None,
            scenario: scenario.clone(),
        };
        of.iter().map(candidate).collect()
    }

    #[test]
    fn score_then_gpus_then_settings_decide_and_no_number_comes_last() {
        let mut shuffled = [
            (f64::NAN, 1, "f"),
            (1.0, 8, "e"),
            (-3.0, 1, "g"),
            (2.0, 8, "c"),
            (2.0, 4, "a"),
            (2.0, 8, "b"),
            (f64::NAN, 1, "d"),
        ];
        for _ in 0..shuffled.len() {
            shuffled.rotate_left(1);
            let ranked = rank(candidates(&shuffled));
            let names: String = ranked.iter().map(|one| one.config["name"].as_str().unwrap()).collect();
            assert_eq!(names, "abcegdf");
            assert_eq!(ranked.iter().map(|one| one.rank).collect::<Vec<_>>(), [1, 2, 3, 4, 5, 6, 7]);
        }
    }
}
