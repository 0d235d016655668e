//! The trials of one branch: ask the sampler, skip what was tried before, commit results in order, tell the sampler.
//!
//! This is the whole logic of a study and knows neither threads nor clocks: its course depends on the configuration and
//! on the evaluations alone, in whatever order these come in. Suggestions come in chunks of half a round, of which two are
//! under way at a time: the sampler is asked for the next chunk when it has been told of exactly the chunk before the last.
//! The number of rounds has no say in this: the trials of a search are the first ones of every search with more rounds.

use std::collections::VecDeque;
use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};
use serde_json::{Map, Value};

use super::best::Best;
use super::circumstances::{bar, identity, limits, over_budget};
use super::conclusion::{Conclusion, conclude};
use super::copies::{Copies, Foreseen};
use super::schedule::{Course, Demand, Schedule, StudyEnd};
use super::screening::{Screened, Screening};
use crate::config::scenario::Scenario;
use crate::search::branch::Branch;
use crate::search::evaluator::Bar;
use crate::search::journal::{PastTrial, evaluation_key};
use crate::search::portion::Portion;
use crate::search::sampler::{Observation, Sampler};
use crate::search::space::Point;
use crate::search::trial::{Evaluation, Outcome, Timings, TrialRecord};
use crate::search::unreached::EngineLimits;
use crate::serving;

/// A candidate to evaluate.
#[derive(Clone, Debug)]
pub(crate) struct Job {
    /// The trial that it is, by its place in the study.
    pub(crate) trial: usize,
    /// The candidate.
    pub(crate) scenario: Arc<Scenario>,
    /// What it has to reach.
    pub(crate) bar: Bar,
}

/// The state of one study.
pub(crate) struct Rounds {
    branch: Branch,
    sampler: Box<dyn Sampler>,
    course: Course,
    screening: Screening,
    /// Rounds of the stages that are over.
    done_before: u32,
    trials: Vec<Trial>,
    /// Trials before this one are committed.
    committed: usize,
    /// Trials before this one are certain to be needed.
    started: usize,
    /// For each chunk that is under way, the number of trials at its end.
    chunks: VecDeque<usize>,
    /// The first trial of each evaluation.
    first_by_key: FxHashMap<String, usize>,
    points: FxHashSet<Point>,
    /// Trials of this branch that an earlier run has committed.
    past: Vec<PastTrial>,
    /// What the evaluations depend on beside their scenarios.
    requests: u64,
    /// What ends evaluations before their time.
    limits: String,
    copies: Copies,
    /// What prices each layout.
    timings: FxHashMap<u32, Timings>,
    any_failed: bool,
    /// The scores that count, where replays may stop that cannot be among them.
    best: Option<Best>,
    end: Option<StudyEnd>,
}

struct Trial {
    point: Point,
    used_gpus: u32,
    config: Map<String, Value>,
    timing: Timings,
    scenario: Option<Arc<Scenario>>,
    /// The key of its evaluation.
    evaluation: String,
    /// What it has to reach.
    bar: Bar,
    state: State,
}

enum State {
    Running,
    Repeats(usize),
    Evaluated(Evaluation),
    Committed(Conclusion),
}

/// What can be done without another evaluation.
#[derive(Default)]
pub(crate) struct Step {
    /// Trials that have their final result, in order.
    pub(crate) records: Vec<TrialRecord>,
    /// Candidates to evaluate.
    pub(crate) jobs: Vec<Job>,
}

impl Rounds {
    /// A study of `branch` that has not asked for anything yet.
    pub(crate) fn new(branch: Branch, sampler: Box<dyn Sampler>, schedule: Schedule) -> Self {
        let limits = limits(&branch);
        Self {
            branch,
            sampler,
            course: Course::new(schedule),
            screening: Screening::default(),
            done_before: 0,
            trials: Vec::new(),
            committed: 0,
            started: 0,
            chunks: VecDeque::new(),
            first_by_key: FxHashMap::default(),
            points: FxHashSet::default(),
            past: Vec::new(),
            requests: 0,
            limits,
            copies: Copies::default(),
            timings: FxHashMap::default(),
            any_failed: false,
            best: None,
            end: None,
        }
    }

    /// Lets it take over what an earlier run has committed, whose evaluations depended on `requests` as those of this run do.
    pub(crate) fn recalling(self, past: Vec<PastTrial>, requests: u64) -> Self {
        Self { past, requests, ..self }
    }

    /// Lets it look at portions of the requests first, and at all of them only where that went well.
    pub(crate) fn screening(self, portions: Vec<Portion>, keep: f64) -> Self {
        Self { screening: Screening::new(portions, keep), ..self }
    }

    /// Lets it stop replays that are certain not to be among so many of its best. Its suggestions must not depend on results,
    /// since those of stopped replays are not known.
    pub(crate) fn for_the_best(self, wanted: usize) -> Self {
        Self { best: Some(Best::of(wanted)), course: self.course.in_step(), ..self }
    }

    /// Why it ended, once it has.
    pub(crate) fn end(&self) -> Option<StudyEnd> {
        // What had come in before it was told to stop is committed after that.
        self.end.map(|end| if end.is_interrupted() { self.interrupted() } else { end })
    }

    /// Ends it where it stands.
    pub(crate) fn interrupt(&mut self) {
        self.end.get_or_insert(self.interrupted());
    }

    fn interrupted(&self) -> StudyEnd {
        let is_least = !self.course.is_exhaustive() || self.screening.is_under_way();
        StudyEnd::Interrupted { missing: self.course.still_to_come(), is_least }
    }

    /// Whether every point of the branch has been evaluated, so that its best candidate is the best there is. A failed
    /// evaluation leaves its point's worth unknown, and so does one on a portion of the requests.
    pub(crate) fn covers_all_points(&self) -> bool {
        !self.any_failed
            && !self.screening.is_used()
            && self.in_flight() == 0
            && self.points.len() as u64 == self.branch.space.size()
    }

    fn in_flight(&self) -> usize {
        self.trials.len() - self.committed
    }

    /// Goes as far as is possible without another evaluation.
    pub(crate) fn proceed(&mut self) -> Step {
        let mut step = Step::default();
        loop {
            if self.end.is_none() && self.course.missing() == Some(0) {
                self.end_stage(StudyEnd::RoundsDone);
            }
            while self.chunks.len() < self.course.chunks() && self.end.is_none() && self.ask() {}
            if self.end.is_none() {
                let waiting = self.copies.take_waiting();
                step.jobs.extend(waiting.into_iter().filter_map(|trial| self.job(trial)));
            }
            while self.end.is_none() && self.is_needed(self.started) {
                step.jobs.extend(self.start());
            }
            match self.commit() {
                Some(record) => step.records.push(record),
                None => return step,
            }
        }
    }

    /// Whether a trial is needed even if all before it count.
    fn is_needed(&self, trial: usize) -> bool {
        let before = (trial - self.committed) as u64;
        trial < self.trials.len() && self.course.missing().is_none_or(|missing| before < missing)
    }

    /// Starts the next trial; a job if it has to be evaluated.
    fn start(&mut self) -> Option<Job> {
        let number = self.started;
        self.started += 1;
        self.recall(number);
        self.job(number)
    }

    /// The evaluation of a started trial, if it is certain by now that there has to be one.
    fn job(&mut self, number: usize) -> Option<Job> {
        let trial = &self.trials[number];
        let scenario = trial.scenario.clone().filter(|_| matches!(trial.state, State::Running))?;
        match self.copies.of(number) {
            // Elsewhere a sampler waits for the result, and its suggestions are seldom copies.
            Foreseen::TooEarly if self.course.is_exhaustive() => self.copies.wait(number),
            Foreseen::TooEarly | Foreseen::Unknown => {
                return Some(Job { trial: number, scenario, bar: trial.bar });
            }
            Foreseen::As(metrics) => {
                tracing::debug!(trial = number, "comes out as an earlier one, whose limits were not reached");
                self.evaluated(number, Evaluation::Measured((*metrics).clone()));
            }
        }
        None
    }

    /// Keeps the evaluation of a trial until it is committed.
    fn evaluated(&mut self, number: usize, evaluation: Evaluation) {
        self.copies.settle(number, &evaluation);
        self.trials[number].state = State::Evaluated(evaluation);
    }

    /// Asks for the next suggestions; returns whether there are any.
    fn ask(&mut self) -> bool {
        loop {
            let count = match self.course.demand(self.in_flight() as u64) {
                Demand::Points(count) => count,
                Demand::Nothing => return false,
                Demand::Over(end) => {
                    self.end_stage(end);
                    if self.end.is_some() {
                        return false;
                    }
                    continue;
                }
            };
            let points = match self.screening.chosen(count) {
                Some(points) => points,
                None => self.sampler.suggest(count),
            };
            if points.len() < count {
                self.course.run_dry();
            }
            if !points.is_empty() {
                self.chunks.push_back(self.trials.len() + points.len());
                for point in points {
                    self.open(point);
                }
                return true;
            }
        }
    }

    /// Forgets what was asked for and is not needed: a search with more rounds would have gone on with it.
    fn drop_unneeded(&mut self) {
        self.trials.truncate(self.committed);
        self.first_by_key.retain(|_, first| *first < self.committed);
        self.copies.forget_from(self.committed);
        self.started = self.committed;
        self.chunks.clear();
    }

    /// Goes on to the next greater portion of the requests with the best of this one, or ends.
    fn end_stage(&mut self, end: StudyEnd) {
        self.drop_unneeded();
        let stage = self.screening.first_trial..self.trials.len();
        let screened = self.trials[stage].iter().filter_map(|trial| match &trial.state {
            // A repetition stands for the trial that it repeats, which is in this stage too.
            State::Committed(Conclusion::Screened(worth, shortfall)) => Some(Screened {
                point: &trial.point,
                worth,
                falls_short: shortfall.is_some(),
                evaluation: &trial.evaluation,
            }),
            _ => None,
        });
        let screened: Vec<Screened<'_>> = screened.collect();
        if !self.screening.is_under_way() || screened.is_empty() {
            let end = match self.past.get(self.committed) {
                Some(past) => StudyEnd::Diverged { trial: past.trial() },
                None => self.screening.first_end.unwrap_or(end),
            };
            self.end.get_or_insert(end);
            return;
        }
        self.done_before += self.course.round();
        let chosen = self.screening.advance(&screened, self.trials.len(), end);
        let per_round = self.branch.config.sweep.candidates_per_round;
        tracing::debug!(?end, candidates = chosen, "screening goes on");
        self.course = Course::new(Schedule::Exhaustive { points: chosen as u64, per_round });
    }

    /// Makes a trial of a suggestion.
    fn open(&mut self, point: Point) {
        let number = self.trials.len();
        let mut trial = Trial {
            point,
            used_gpus: 0,
            config: Map::new(),
            timing: Timings::new(),
            scenario: None,
            evaluation: String::new(),
            bar: self.bar(),
            state: State::Running,
        };
        match self.branch.unroll_on(&trial.point, self.screening.portion()) {
            Ok(unrolled) => {
                trial.timing = self.timing(trial.point.layout, &unrolled.scenario);
                let circumstances = [identity(&trial.timing), self.limits.clone()].concat();
                trial.evaluation = evaluation_key(&unrolled.key(), &circumstances, self.requests);
                let over_budget = over_budget(&self.branch, unrolled.used_gpus, &unrolled.scenario);
                trial.state = self.known(number, &trial.evaluation, over_budget);
                let limits = EngineLimits::of(&unrolled, &self.branch.registry);
                if let (State::Running, Some(limits)) = (&trial.state, limits) {
                    self.copies.enter(number, limits, trial.bar);
                }
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
        self.trials.push(trial);
    }

    /// What a candidate that is asked for now has to reach. Nothing is asked of one that is replayed on a portion of the
    /// requests: what it does with the others may be better.
    fn bar(&self) -> Bar {
        if self.screening.portion().is_some() {
            return Bar::default();
        }
        bar(&self.branch, self.best.as_ref().and_then(Best::last))
    }

    /// What prices the passes of a candidate: nothing but its layout decides that.
    fn timing(&mut self, layout: u32, scenario: &Scenario) -> Timings {
        let records = || serving::timing_records(scenario).into_iter().collect();
        self.timings.entry(layout).or_insert_with(records).clone()
    }

    /// Takes over what an earlier run has found out about a trial; ends the study if that was another trial.
    fn recall(&mut self, number: usize) {
        let Some(past) = self.past.get(number) else { return };
        let own = &self.trials[number];
        let repeats = matches!(own.state, State::Repeats(_));
        let recalled = past.recall(&own.evaluation).filter(|_| !repeats);
        let same = recalled.is_some() || (repeats && past.is(&own.evaluation));
        let trial = past.trial();
        if !same {
            self.end.get_or_insert(StudyEnd::Diverged { trial });
        } else if !past.agrees_with_itself(&self.branch.config.goal) {
            self.end.get_or_insert(StudyEnd::Contradicted { trial });
        }
        if let Some(evaluation) = recalled {
            self.evaluated(number, evaluation);
        }
    }

    /// What is known of a trial before any replay.
    fn known(&mut self, trial: usize, key: &str, over_budget: Option<String>) -> State {
        if let Some(&first) = self.first_by_key.get(key) {
            return State::Repeats(first);
        }
        self.first_by_key.insert(key.to_owned(), trial);
        over_budget.map_or(State::Running, |reason| State::Evaluated(Evaluation::Infeasible(reason)))
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
        self.evaluated(trial, evaluation);
    }

    /// Commits the next trial if that can be: in the order of suggestion, up to the first that is still being evaluated.
    fn commit(&mut self) -> Option<TrialRecord> {
        let trial = self.trials[..self.started].get_mut(self.committed)?;
        let (conclusion, record) = match std::mem::replace(&mut trial.state, State::Running) {
            State::Running | State::Committed(_) => return None,
            State::Repeats(first) => self.commit_repetition(first),
            State::Evaluated(evaluation) => self.commit_evaluation(evaluation),
        };
        self.course.commit(matches!(record.outcome, Outcome::Feasible | Outcome::Screened));
        self.any_failed |= record.outcome == Outcome::Failed;
        if let Some(best) = &mut self.best {
            best.enter(&record);
        }
        self.settle(conclusion);
        Some(record)
    }

    fn commit_repetition(&self, first: usize) -> (Conclusion, TrialRecord) {
        let State::Committed(conclusion) = &self.trials[first].state else {
            unreachable!("a trial repeats an earlier one, which is committed before it");
        };
        let mut record = self.record(Outcome::CacheHit, conclusion);
        record.repeats = Some(first as u32 + 1);
        (conclusion.clone(), record)
    }

    fn commit_evaluation(&self, evaluation: Evaluation) -> (Conclusion, TrialRecord) {
        let (attainment_so_far, reached_so_far) = match &evaluation {
            Evaluation::BelowBar { attainment_so_far, reached_so_far, .. } => {
                (Some(*attainment_so_far), Some(*reached_so_far))
            }
            _ => (None, None),
        };
        let (conclusion, metrics) = conclude(&self.branch, evaluation, self.screening.portion().is_some());
        let outcome = match &conclusion {
            Conclusion::Counts(_) => Outcome::Feasible,
            Conclusion::Screened(..) => Outcome::Screened,
            Conclusion::Rejected(outcome, ..) => *outcome,
        };
        let mut record = self.record(outcome, &conclusion);
        record.metrics = metrics;
        record.attainment_so_far = attainment_so_far;
        record.reached_so_far = reached_so_far;
        (conclusion, record)
    }

    /// Tells the sampler what became of the trial that is being committed, and keeps it for repetitions.
    fn settle(&mut self, conclusion: Conclusion) {
        let trial = &mut self.trials[self.committed];
        if self.screening.is_by_sampler() {
            let observation = match &conclusion {
                Conclusion::Counts(worth) | Conclusion::Screened(worth, None) => {
                    Observation::Measured { figures: &worth.signed, margin: worth.margin }
                }
                Conclusion::Screened(worth, Some(reason)) => {
                    Observation::Infeasible { reason, margin: worth.margin }
                }
                Conclusion::Rejected(_, reason, margin) => {
                    Observation::Infeasible { reason, margin: *margin }
                }
            };
            self.sampler.observe(&trial.point, &observation);
        }
        trial.state = State::Committed(conclusion);
        self.points.insert(trial.point.clone());
        self.committed += 1;
        if self.chunks.front() == Some(&self.committed) {
            self.chunks.pop_front();
        }
    }

    /// The record of the trial that is being committed, by its number in the study.
    fn record(&self, outcome: Outcome, conclusion: &Conclusion) -> TrialRecord {
        let trial = &self.trials[self.committed];
        let (worth, reason) = match conclusion {
            Conclusion::Counts(worth) => (Some(worth), None),
            Conclusion::Screened(worth, reason) => (Some(worth), reason.as_deref()),
            Conclusion::Rejected(_, reason, _) => (None, Some(&**reason)),
        };
        TrialRecord {
            trial: self.committed as u32 + 1,
            deployment_mode: self.branch.mode,
            round: self.done_before + self.course.round(),
            portion: self.screening.portion(),
            evaluation: trial.evaluation.clone(),
            outcome,
            repeats: None,
            reason: reason.map(str::to_owned),
            attainment_so_far: None,
            reached_so_far: None,
            score: worth.map(|worth| worth.score),
            objectives: worth.and_then(|worth| worth.objectives.clone()),
            used_gpus: trial.used_gpus,
            config: trial.config.clone(),
            timing: trial.timing.clone(),
            metrics: None,
            scenario: trial.scenario.clone(),
        }
    }
}
