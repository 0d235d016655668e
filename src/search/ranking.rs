//! The answer of a search: candidates, best first.

use std::cmp::Ordering;
use std::fmt::Write;

use indexmap::IndexMap;
use serde::{Serialize, Serializer};
use serde_json::{Map, Value};

use super::journal::Hash;
use super::objective::{Metrics, metric, objective_name, score};
use super::sampler::merit::dominates;
use super::trial::{Timings, TrialRecord};
use crate::config::scenario::Scenario;
use crate::config::search::OptimizationTarget;
use crate::report::ranking::figures_of_outcome;

/// The planner by which the others are measured: it knows every request beforehand.
const YARDSTICK: &str = "clairvoyant";

/// A deployment that was replayed and counts.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Candidate {
    /// Its place in the ranking or along the frontier, from 1.
    pub rank: usize,
    /// The goal's objective, signed so that higher is better; the first of a Pareto goal as it is.
    pub score: f64,
    /// How much of the score of the best planner that knows the future it misses, as a share; absent in a search without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub regret: Option<f64>,
    /// GPUs that it occupies.
    pub used_gpus: u32,
    /// Every setting by name.
    pub config: Map<String, Value>,
    /// Every figure of its replay's summary.
    pub metrics: Metrics,
    /// Its value on each objective of a Pareto goal.
    pub objectives: Option<Map<String, Value>>,
    /// What priced the passes of each of its pools.
    pub timing: Timings,
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
            regret: None,
            used_gpus: record.used_gpus,
            config: record.config.clone(),
            metrics: record.metrics.clone()?,
            objectives: record.objectives.clone(),
            timing: record.timing.clone(),
            scenario: record.scenario.as_deref()?.clone(),
        })
    }

    fn knows_the_future(&self) -> bool {
        let planner = self.scenario.deployment.planner.as_ref();
        planner.is_some_and(|planner| planner.policy == YARDSTICK)
    }

    /// The value of each objective of a Pareto goal, signed so that higher is better.
    fn signed(&self, objectives: &[OptimizationTarget]) -> Vec<f64> {
        let value = |&target: &OptimizationTarget| {
            let value = self.objectives.as_ref().and_then(|values| metric(values, &objective_name(target)));
            score(target, value.unwrap_or(0.0))
        };
        objectives.iter().map(value).collect()
    }
}

fn as_in_its_file<S: Serializer>(scenario: &Scenario, serializer: S) -> Result<S::Ok, S::Error> {
    scenario.to_json().serialize(serializer)
}

/// The candidates that no other is better than: every other is worse on one objective, or equal on all. In ascending order
/// of the last objective, as it is; among equals by their settings, those together that came out the same.
pub fn frontier(candidates: Vec<Candidate>, objectives: &[OptimizationTarget]) -> Vec<Candidate> {
    let signed: Vec<Vec<f64>> = candidates.iter().map(|candidate| candidate.signed(objectives)).collect();
    let mut kept: Vec<(f64, String, Candidate)> = Vec::new();
    for (candidate, own) in candidates.into_iter().zip(&signed) {
        if !signed.iter().any(|other| dominates(other, own)) {
            let last =
                objectives.last().zip(own.last()).map_or(0.0, |(&target, &value)| score(target, value));
            kept.push((last, Value::Object(candidate.config.clone()).to_string(), candidate));
        }
    }
    kept.sort_by(|left, right| left.0.total_cmp(&right.0).then_with(|| left.1.cmp(&right.1)));
    numbered(rows(kept.into_iter().map(|(.., candidate)| candidate)).into_iter().flatten().collect())
}

/// Ranks candidates: the higher score first, then fewer GPUs, then by their settings, so that the order never depends
/// on the order of evaluation; those that came out the same stand together, where the first of them does. A score that is no
/// number comes last. What ranks behind the first `top` results is left out, of whatever many candidates each is.
pub fn rank(mut candidates: Vec<Candidate>, top: Option<u32>) -> Vec<Candidate> {
    candidates.sort_by_cached_key(|candidate| RankingKey {
        score: candidate.score,
        used_gpus: candidate.used_gpus,
        config: Value::Object(candidate.config.clone()).to_string(),
    });
    let best = candidates.iter().find(|candidate| candidate.knows_the_future());
    if let Some(best) = best.map(|candidate| candidate.score).filter(|&score| score != 0.0) {
        for candidate in &mut candidates {
            candidate.regret = Some((best - candidate.score) / best.abs());
        }
    }
    let rows = rows(candidates).into_iter();
    numbered(rows.take(top.map_or(usize::MAX, |top| top as usize)).flatten().collect())
}

/// Candidates by what they came to, in the order of the first of each.
fn rows(candidates: impl IntoIterator<Item = Candidate>) -> Vec<Vec<Candidate>> {
    let mut rows: IndexMap<u64, Vec<Candidate>> = IndexMap::new();
    for candidate in candidates {
        let result = fingerprint(candidate.used_gpus, &candidate.metrics);
        rows.entry(result).or_default().push(candidate);
    }
    rows.into_values().collect()
}

/// The same for candidates that came out the same: on as many GPUs, in every figure of their requests and their fleets.
pub(super) fn fingerprint(used_gpus: u32, metrics: &Metrics) -> u64 {
    let mut hash = Hash::default();
    write!(hash, "{used_gpus}").expect("hashing cannot fail");
    for (name, value) in figures_of_outcome(metrics) {
        write!(hash, " {name} {value}").expect("hashing cannot fail");
    }
    hash.digest()
}

fn numbered(mut candidates: Vec<Candidate>) -> Vec<Candidate> {
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
    use crate::config::scenario::PolicyConfig;
    use crate::search::test_support::{config, plan};

    fn candidates(of: &[(f64, u32, &str)]) -> Vec<Candidate> {
        let branch = plan(config()).branches.remove(0);
        let scenario = branch.unroll(&branch.space.point(0)).unwrap().scenario;
        let candidate = |&(score, used_gpus, name): &(f64, u32, &str)| Candidate {
            rank: 0,
            score,
            regret: None,
            used_gpus,
            config: Map::from_iter([("name".into(), Value::from(name))]),
            metrics: Metrics::new(),
            objectives: None,
            timing: Timings::new(),
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
            let ranked = rank(candidates(&shuffled), None);
            let names: String = ranked.iter().map(|one| one.config["name"].as_str().unwrap()).collect();
            assert_eq!(names, "abcegdf");
            assert_eq!(ranked.iter().map(|one| one.rank).collect::<Vec<_>>(), [1, 2, 3, 4, 5, 6, 7]);
        }
    }

    #[test]
    fn what_came_out_the_same_stands_together_and_counts_once_of_the_top() {
        // With as good a score, `c` came out otherwise and `e` needs more GPUs.
        let mut all = candidates(&[
            (2.0, 4, "d"),
            (2.0, 4, "b"),
            (2.0, 4, "c"),
            (2.0, 8, "e"),
            (3.0, 4, "a"),
            (1.0, 4, "f"),
        ]);
        all[2].metrics.insert("mean_ttft_ms".into(), 5.into());
        all[4].metrics.insert("mean_ttft_ms".into(), 7.into());
        all[5].metrics.insert("mean_ttft_ms".into(), 9.into());
        for (top, expected) in
            [(None, "abdcef"), (Some(1), "a"), (Some(2), "abd"), (Some(3), "abdc"), (Some(9), "abdcef")]
        {
            for _ in 0..all.len() {
                all.rotate_left(1);
                let ranked = rank(all.clone(), top);
                assert_eq!(names(&ranked).concat(), expected, "{top:?}");
                assert!(ranked.iter().enumerate().all(|(place, one)| one.rank == place + 1));
            }
        }
    }

    #[test]
    fn regret_is_what_foresight_would_have_gained() {
        let mut all = candidates(&[(8.0, 1, "a"), (10.0, 1, "b"), (12.0, 1, "c"), (5.0, 1, "d")]);
        assert!(rank(all.clone(), None).iter().all(|one| one.regret.is_none()), "nobody knows the future");
        for place in [1, 3] {
            all[place].scenario.deployment.planner = Some(PolicyConfig::named(YARDSTICK));
        }
        let regrets: Vec<_> = rank(all, None).iter().map(|one| one.regret.unwrap()).collect();
        assert_eq!(regrets, [-0.2, 0.0, 0.2, 0.5], "by the better of the two that do");
        let mut late = candidates(&[(-150.0, 1, "a"), (-100.0, 1, "b")]);
        late[1].scenario.deployment.planner = Some(PolicyConfig::named(YARDSTICK));
        assert_eq!(rank(late, None)[1].regret, Some(0.5), "latencies are negative scores");
    }

    fn on(name: &str, first: (&str, f64), second: (&str, f64)) -> Candidate {
        let mut candidate = candidates(&[(first.1, 1, name)]).remove(0);
        candidate.objectives =
            Some([first, second].map(|(name, value)| (name.into(), value.into())).into_iter().collect());
        candidate
    }

    fn names(front: &[Candidate]) -> Vec<&str> {
        front.iter().map(|one| one.config["name"].as_str().unwrap()).collect()
    }

    #[test]
    fn a_frontier_keeps_what_nothing_beats_along_its_last_objective() {
        let on = |name, per_gpu, per_user| {
            on(name, ("throughput_per_gpu", per_gpu), ("throughput_per_user", per_user))
        };
        let all = vec![
            on("middle", 150.0, 25.0),
            on("beaten", 149.0, 25.0),
            on("left a", 180.0, 12.0),
            on("right", 100.0, 40.0),
            on("left b", 180.0, 12.0),
        ];
        let objectives = [OptimizationTarget::ThroughputPerGpu, OptimizationTarget::ThroughputPerUser];
        let front = frontier(all, &objectives);
        assert_eq!(names(&front), ["left a", "left b", "middle", "right"]);
        assert_eq!(front.iter().map(|one| one.rank).collect::<Vec<_>>(), [1, 2, 3, 4]);
    }

    #[test]
    fn latency_on_a_frontier_is_better_when_smaller() {
        let on = |name, latency, throughput| on(name, ("e2e_latency", latency), ("throughput", throughput));
        let all = vec![on("slow", 9.0, 8.0), on("fast", 2.0, 5.0), on("beaten", 3.0, 5.0)];
        let front = frontier(all, &[OptimizationTarget::Throughput, OptimizationTarget::E2eLatency]);
        assert_eq!(names(&front), ["fast", "slow"]);
    }
}
