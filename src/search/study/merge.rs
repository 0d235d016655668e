//! The one order of the trials of several studies that run at the same time.
//!
//! Round for round: the trials of the first study's first round, those of the second study's first round, then the second
//! rounds, and so on. What comes too early waits.

use std::collections::VecDeque;

use super::schedule::StudyEnd;
use crate::search::trial::TrialRecord;

/// Trials of several studies on their way into one order.
pub(super) struct Merge {
    lanes: Vec<Lane>,
    /// Whose turn it is.
    lane: usize,
    /// In which round.
    round: u32,
    /// Trials that have passed.
    passed: u32,
}

#[derive(Default)]
struct Lane {
    waiting: VecDeque<TrialRecord>,
    /// The numbers that its trials got in the whole search.
    numbers: Vec<u32>,
    end: Option<(StudyEnd, bool)>,
    has_passed: bool,
}

/// What comes next.
pub(super) enum Next {
    /// A trial, numbered within the whole search.
    Trial(Box<TrialRecord>),
    /// The end of a study.
    End {
        /// Which.
        study: usize,
        /// Why.
        end: StudyEnd,
        /// Whether it has evaluated every point of its branch.
        covers_all_points: bool,
    },
    /// All studies have ended.
    Nothing,
}

impl Merge {
    /// Of so many studies.
    pub(super) fn of(studies: usize) -> Self {
        Self { lanes: (0..studies).map(|_| Lane::default()).collect(), lane: 0, round: 1, passed: 0 }
    }

    /// The next trial of a study.
    pub(super) fn put(&mut self, study: usize, record: TrialRecord) {
        self.lanes[study].waiting.push_back(record);
    }

    /// A study has no more trials.
    pub(super) fn end(&mut self, study: usize, end: StudyEnd, covers_all_points: bool) {
        self.lanes[study].end = Some((end, covers_all_points));
    }

    /// What comes next; `None` if that is not known yet.
    pub(super) fn next(&mut self) -> Option<Next> {
        loop {
            if self.lanes.iter().all(|lane| lane.has_passed) {
                return Some(Next::Nothing);
            }
            let lane = &mut self.lanes[self.lane];
            match lane.waiting.front() {
                Some(record) if record.round <= self.round => {
                    return lane.waiting.pop_front().map(|record| Next::Trial(Box::new(self.number(record))));
                }
                Some(_) => {}
                None => match lane.end {
                    None => return None,
                    Some((end, covers_all_points)) if !lane.has_passed => {
                        lane.has_passed = true;
                        return Some(Next::End { study: self.lane, end, covers_all_points });
                    }
                    Some(_) => {}
                },
            }
            self.lane += 1;
            if self.lane == self.lanes.len() {
                self.lane = 0;
                self.round += 1;
            }
        }
    }

    fn number(&mut self, mut record: TrialRecord) -> TrialRecord {
        self.passed += 1;
        let numbers = &mut self.lanes[self.lane].numbers;
        numbers.push(self.passed);
        record.trial = self.passed;
        record.repeats = record.repeats.map(|earlier| numbers[earlier as usize - 1]);
        record
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Map;

    use super::*;
    use crate::config::scenario::DeploymentMode;
    use crate::search::trial::{Outcome, Timings};

    fn trial(number: u32, round: u32, repeats: Option<u32>) -> TrialRecord {
        TrialRecord {
            trial: number,
            deployment_mode: DeploymentMode::Agg,
            round,
            portion: None,
            evaluation: String::new(),
            outcome: Outcome::Feasible,
            repeats,
            reason: None,
            attainment_so_far: None,
            reached_so_far: None,
            score: None,
            objectives: None,
            used_gpus: 0,
            config: Map::new(),
            metrics: None,
            timing: Timings::new(),
            scenario: None,
        }
    }

    /// Everything that passes now: round and number of trials, `(0, study)` for an end and `(0, 9)` for the end of all.
    fn passing(merge: &mut Merge) -> Vec<(u32, u32)> {
        let mut passed = Vec::new();
        while let Some(next) = merge.next() {
            match next {
                Next::Trial(record) => passed.push((record.round, record.repeats.unwrap_or(record.trial))),
                Next::End { study, .. } => passed.push((0, study as u32)),
                Next::Nothing => {
                    passed.push((0, 9));
                    break;
                }
            }
        }
        passed
    }

    #[test]
    fn rounds_take_turns_and_the_faster_study_waits() {
        let mut merge = Merge::of(2);
        for record in [trial(1, 1, None), trial(2, 1, None), trial(3, 2, None)] {
            merge.put(1, record);
        }
        merge.end(1, StudyEnd::RoundsDone, false);
        assert_eq!(passing(&mut merge), []);
        merge.put(0, trial(1, 1, None));
        assert_eq!(passing(&mut merge), [(1, 1)]);
        merge.put(0, trial(2, 2, Some(1)));
        // Its repetition names the number that the first trial got.
        assert_eq!(passing(&mut merge), [(1, 2), (1, 3), (2, 1)]);
        merge.put(0, trial(3, 3, None));
        assert_eq!(passing(&mut merge), [(2, 5), (0, 1), (3, 6)]);
        merge.end(0, StudyEnd::Exhausted, true);
        assert_eq!(passing(&mut merge), [(0, 0), (0, 9)]);
    }
}
