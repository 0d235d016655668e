//! The rounds of one branch: ask the sampler, skip what was tried before, commit results in order, tell the sampler.
//!
//! This is the whole logic of a study and knows neither threads nor clocks: its course depends on the configuration and
//! on the evaluations alone, in whatever order these come in.

use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};
use serde_json::{Map, Value};

use crate::config::scenario::Scenario;
use crate::config::search::SweepConfig;
use crate::search::branch::Branch;
use crate::search::journal::{PastTrial, evaluation_key};
use crate::search::objective::{Metrics, Verdict, Worth, judge};
use crate::search::sampler::{Observation, Sampler};
use crate::search::space::Point;
use crate::search::trial::{Evaluation, Outcome, Timings, TrialRecord};
use crate::serving;

/// Suggestions that a round may use up for each candidate that it wants.
const ATTEMPTS_PER_CANDIDATE: u32 = 11;

/// How long a study goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Schedule {
    /// Rounds of so many new candidates that count, until all rounds are done or one of them stalls.
    Rounds {
        /// Rounds at most.
        max_rounds: u32,
        /// New candidates that make a round.
        per_round: u32,
    },
    /// Whatever the sampler suggests, so many at a time: every point once, or a part of them.
    Exhaustive {
        /// Points that make a round.
        per_round: u32,
    },
}

impl Schedule {
    /// The schedule for a space of `points` points: exhaustive when that is asked for, or when it is no more effort than
    /// the rounds would be.
    pub(crate) fn new(sweep: &SweepConfig, points: u64) -> Self {
        let rounds = Self::Rounds { max_rounds: sweep.max_rounds, per_round: sweep.candidates_per_round };
        if sweep.exhaustive || points <= rounds.aim(points) {
            Self::Exhaustive { per_round: sweep.candidates_per_round }
        } else {
            rounds
        }
    }

    /// Candidates that it aims for in a space of `points` points.
    pub(crate) fn aim(self, points: u64) -> u64 {
        match self {
            Self::Rounds { max_rounds, per_round } => u64::from(max_rounds) * u64::from(per_round),
            Self::Exhaustive { .. } => points,
        }
    }
}

/// Why a study ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StudyEnd {
    /// All rounds are done.
    RoundsDone,
    /// The sampler has nothing left to suggest.
    Exhausted,
    /// A round used up its suggestions before it had enough new candidates.
    Stalled {
        /// New candidates of that round.
        found: u32,
        /// New candidates that it wanted.
        wanted: u32,
    },
    /// It was told to stop.
    Interrupted,
    /// The journal of an earlier run has another evaluation in the place of this trial.
    Diverged {
        /// Number of the trial in the whole search.
        trial: u32,
    },
}

/// A candidate to evaluate.
#[derive(Clone, Debug)]
pub(crate) struct Job {
    /// The trial that it is, by its place in the study.
    pub(crate) trial: usize,
    /// The candidate.
    pub(crate) scenario: Arc<Scenario>,
}

/// The state of one study.
pub(crate) struct Rounds {
    branch: Branch,
    sampler: Box<dyn Sampler>,
    schedule: Schedule,
    /// Number of the study's first trial in the whole search.
    first_trial: u32,
    trials: Vec<Trial>,
    /// Trials before this one are committed.
    committed: usize,
    /// The first trial of each evaluation.
    first_by_key: FxHashMap<String, usize>,
    points: FxHashSet<Point>,
    /// Trials of the whole search that an earlier run has committed.
    past: Arc<[PastTrial]>,
    /// What the evaluations depend on beside their scenarios.
    requests: u64,
    /// What prices each layout.
    timings: FxHashMap<u32, Timings>,
    any_failed: bool,
    round: u32,
    found_in_round: u32,
    asked_in_round: u32,
    end: Option<StudyEnd>,
}

struct Trial {
    point: Point,
    round: u32,
    used_gpus: u32,
    config: Map<String, Value>,
    timing: Timings,
    scenario: Option<Arc<Scenario>>,
    /// The key of its evaluation.
    evaluation: String,
    state: State,
}

enum State {
    Running,
    Repeats(usize),
    Evaluated(Evaluation),
    Committed(Conclusion),
}

/// What a committed trial told the sampler.
#[derive(Clone)]
enum Conclusion {
    Counts(Arc<Worth>),
    Rejected(Outcome, Arc<str>),
}

impl Rounds {
    /// A study of `branch` that has not asked for anything yet.
    pub(crate) fn new(
        branch: Branch,
        sampler: Box<dyn Sampler>,
        schedule: Schedule,
        first_trial: u32,
    ) -> Self {
        Self {
            branch,
            sampler,
            schedule,
            first_trial,
            trials: Vec::new(),
            committed: 0,
            first_by_key: FxHashMap::default(),
            points: FxHashSet::default(),
            past: Arc::new([]),
            requests: 0,
            timings: FxHashMap::default(),
            any_failed: false,
            round: 1,
            found_in_round: 0,
            asked_in_round: 0,
            end: None,
        }
    }

    /// Lets it take over what an earlier run has committed, whose evaluations depended on `requests` as those of this run do.
    pub(crate) fn recalling(self, past: Arc<[PastTrial]>, requests: u64) -> Self {
        Self { past, requests, ..self }
    }

    /// The branch it studies.
    pub(crate) fn branch(&self) -> &Branch {
        &self.branch
    }

    /// Candidates that it aims for.
    pub(crate) fn aim(&self) -> u64 {
        self.schedule.aim(self.branch.space.size())
    }

    /// Whether suggestions are still being evaluated.
    pub(crate) fn is_waiting(&self) -> bool {
        self.committed < self.trials.len()
    }

    /// Why it ended, once it has.
    pub(crate) fn end(&self) -> Option<StudyEnd> {
        self.end
    }

    /// Ends it where it stands.
    pub(crate) fn interrupt(&mut self) {
        self.end.get_or_insert(StudyEnd::Interrupted);
    }

    /// Whether every point of the branch has been evaluated, so that its best candidate is the best there is. A failed
    /// evaluation leaves its point's worth unknown.
    pub(crate) fn covers_all_points(&self) -> bool {
        !self.any_failed && !self.is_waiting() && self.points.len() as u64 == self.branch.space.size()
    }

    /// Asks for the next suggestions and returns those that have to be evaluated.
    ///
    /// # Panics
    /// If earlier suggestions are still being evaluated.
    pub(crate) fn ask(&mut self) -> Vec<Job> {
        assert!(!self.is_waiting(), "a sampler is asked only when it has been told of everything");
        let count = match self.schedule {
            Schedule::Rounds { max_rounds, per_round } => self.next_count(max_rounds, per_round),
            Schedule::Exhaustive { per_round } => {
                self.round += u32::from(!self.trials.is_empty());
                per_round
            }
        };
        if self.end.is_some() {
            return Vec::new();
        }
        let points = self.sampler.suggest(count as usize);
        if points.is_empty() {
            self.end = Some(StudyEnd::Exhausted);
        }
        self.asked_in_round += points.len() as u32;
        points.into_iter().filter_map(|point| self.open(point)).collect()
    }

    /// How many suggestions the round still wants; opens the next round or ends the study when it wants none.
    fn next_count(&mut self, max_rounds: u32, per_round: u32) -> u32 {
        if self.found_in_round >= per_round {
            self.round += 1;
            self.found_in_round = 0;
            self.asked_in_round = 0;
        }
        let left = per_round.saturating_mul(ATTEMPTS_PER_CANDIDATE) - self.asked_in_round;
        if self.round > max_rounds {
            self.end = Some(StudyEnd::RoundsDone);
        } else if left == 0 {
            self.end = Some(StudyEnd::Stalled { found: self.found_in_round, wanted: per_round });
        }
        left.min(per_round - self.found_in_round)
    }

    /// Makes a trial of a suggestion; a job if it has to be evaluated.
    fn open(&mut self, point: Point) -> Option<Job> {
        let number = self.trials.len();
        self.points.insert(point.clone());
        let mut trial = Trial {
            point,
            round: self.round,
            used_gpus: 0,
            config: Map::new(),
            timing: Timings::new(),
            scenario: None,
            evaluation: String::new(),
            state: State::Running,
        };
        match self.branch.unroll(&trial.point) {
            Ok(unrolled) => {
                trial.timing = self.timing(trial.point.layout, &unrolled.scenario);
                trial.evaluation = evaluation_key(&unrolled.key(), &identity(&trial.timing), self.requests);
                trial.state = self.known(number, &trial.evaluation, unrolled.used_gpus);
                trial.used_gpus = unrolled.used_gpus;
                trial.config = unrolled.config;
                trial.scenario = Some(Arc::new(unrolled.scenario));
            }
            Err(unservable) => {
                trial.used_gpus = unservable.used_gpus;
                trial.config = unservable.config;
                trial.evaluation = evaluation_key(&Value::Object(trial.config.clone()).to_string(), "", 0);
                trial.state = State::Evaluated(Evaluation::Infeasible(unservable.reason));
            }
        }
        self.recall(number, &mut trial);
        let scenario = trial.scenario.clone().filter(|_| matches!(trial.state, State::Running));
        self.trials.push(trial);
        scenario.map(|scenario| Job { trial: number, scenario })
    }

    /// What prices the passes of a candidate: nothing but its layout decides that.
    fn timing(&mut self, layout: u32, scenario: &Scenario) -> Timings {
        let records = || serving::timing_records(scenario).into_iter().collect();
        self.timings.entry(layout).or_insert_with(records).clone()
    }

    /// Takes over what an earlier run has found out about a trial; ends the study if that was another trial.
    fn recall(&mut self, number: usize, trial: &mut Trial) {
        let global = self.number(number);
        let Some(past) = self.past.get(global as usize - 1) else { return };
        let same = match trial.state {
            State::Repeats(_) => past.is(&trial.evaluation),
            _ => match past.recall(&trial.evaluation) {
                Some(evaluation) => {
                    trial.state = State::Evaluated(evaluation);
                    true
                }
                None => false,
            },
        };
        if !same {
            self.end.get_or_insert(StudyEnd::Diverged { trial: global });
        }
    }

    /// What is known of a trial before any replay.
    fn known(&mut self, trial: usize, key: &str, used_gpus: u32) -> State {
        if let Some(&first) = self.first_by_key.get(key) {
            return State::Repeats(first);
        }
        self.first_by_key.insert(key.to_owned(), trial);
        let budget = self.branch.config.search_space.gpu_budget;
        if used_gpus > budget {
            let reason = format!("uses {used_gpus} GPUs, over search_space.gpu_budget {budget}");
            return State::Evaluated(Evaluation::Infeasible(reason));
        }
        State::Running
    }

    /// Takes in the evaluation of a trial; one that was interrupted ends the study.
    ///
    /// # Panics
    /// If the trial is not being evaluated.
    pub(crate) fn finish(&mut self, trial: usize, evaluation: Evaluation) {
        let state = &mut self.trials[trial].state;
        assert!(matches!(state, State::Running), "trial {trial} is not being evaluated");
        if evaluation == Evaluation::Interrupted {
            return self.interrupt();
        }
        *state = State::Evaluated(evaluation);
    }

    /// Commits the trials that can be: in the order of suggestion, up to the first that is still being evaluated.
    pub(crate) fn commit(&mut self) -> Vec<TrialRecord> {
        let mut records = Vec::new();
        while let Some(trial) = self.trials.get_mut(self.committed) {
            let record = match std::mem::replace(&mut trial.state, State::Running) {
                State::Running | State::Committed(_) => break,
                State::Repeats(first) => self.commit_repetition(first),
                State::Evaluated(evaluation) => self.commit_evaluation(evaluation),
            };
            records.push(record);
            self.committed += 1;
        }
        records
    }

    fn commit_repetition(&mut self, first: usize) -> TrialRecord {
        let State::Committed(conclusion) = &self.trials[first].state else {
            unreachable!("a trial repeats an earlier one, which is committed before it");
        };
        let conclusion = conclusion.clone();
        let mut record = self.record(Outcome::CacheHit, &conclusion);
        record.repeats = Some(self.number(first));
        self.settle(conclusion);
        record
    }

    fn commit_evaluation(&mut self, evaluation: Evaluation) -> TrialRecord {
        let (conclusion, metrics) = conclude(&self.branch, evaluation);
        let outcome = match &conclusion {
            Conclusion::Counts(_) => Outcome::Feasible,
            Conclusion::Rejected(outcome, _) => *outcome,
        };
        self.found_in_round += u32::from(outcome == Outcome::Feasible);
        self.any_failed |= outcome == Outcome::Failed;
        let mut record = self.record(outcome, &conclusion);
        record.metrics = metrics;
        self.settle(conclusion);
        record
    }

    /// Tells the sampler what became of the trial that is being committed, and keeps it for repetitions.
    fn settle(&mut self, conclusion: Conclusion) {
        let trial = &mut self.trials[self.committed];
        match &conclusion {
            Conclusion::Counts(worth) => {
                self.sampler.observe(&trial.point, &Observation::Measured(&worth.signed));
            }
            Conclusion::Rejected(_, reason) => {
                self.sampler.observe(&trial.point, &Observation::Infeasible(reason));
            }
        }
        trial.state = State::Committed(conclusion);
    }

    /// The record of the trial that is being committed.
    fn record(&self, outcome: Outcome, conclusion: &Conclusion) -> TrialRecord {
        let trial = &self.trials[self.committed];
        let (worth, reason) = match conclusion {
            Conclusion::Counts(worth) => (Some(worth), None),
            Conclusion::Rejected(_, reason) => (None, Some(reason.to_string())),
        };
        TrialRecord {
            trial: self.number(self.committed),
            deployment_mode: self.branch.mode,
            round: trial.round,
            evaluation: trial.evaluation.clone(),
            outcome,
            repeats: None,
            reason,
            score: worth.map(|worth| worth.score),
            objectives: worth.and_then(|worth| worth.objectives.clone()),
            used_gpus: trial.used_gpus,
            config: trial.config.clone(),
            timing: trial.timing.clone(),
            metrics: None,
            scenario: trial.scenario.clone(),
        }
    }

    fn number(&self, trial: usize) -> u32 {
        self.first_trial + trial as u32
    }
}

/// What tells one timing from another, as text.
fn identity(timing: &Timings) -> String {
    let identities: Timings = timing.iter().map(|(pool, timing)| (*pool, timing.identity())).collect();
    serde_json::to_string(&identities).expect("an identity is plain data")
}

/// What an evaluation means for the goal, and the figures behind it.
fn conclude(branch: &Branch, evaluation: Evaluation) -> (Conclusion, Option<Metrics>) {
    let reject = |outcome, reason: String| Conclusion::Rejected(outcome, reason.into());
    let metrics = match evaluation {
        Evaluation::Measured(metrics) => metrics,
        Evaluation::Infeasible(reason) => return (reject(Outcome::Infeasible, reason), None),
        Evaluation::Failed(reason) => return (reject(Outcome::Failed, reason), None),
        Evaluation::Interrupted => unreachable!("it has ended the study"),
    };
    let conclusion = match judge(&branch.config.goal, &metrics) {
        Verdict::Feasible(worth) => Conclusion::Counts(Arc::new(worth)),
        Verdict::Infeasible(reason) => reject(Outcome::Infeasible, reason),
        Verdict::Unscored(reason) => reject(Outcome::Failed, reason),
    };
    (conclusion, Some(metrics))
}
