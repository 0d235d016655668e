//! How long a study goes on, and how many suggestions are wanted next.

use crate::config::search::SweepConfig;

/// Suggestions that a round may use up for each candidate that it wants.
const ATTEMPTS_PER_CANDIDATE: u64 = 11;

/// Chunks of suggestions, of half a round each, that are under way at a time.
const CHUNKS: usize = 2;
/// Rounds that are under way together where nobody waits for results: some trials wait for others that they may be copies of.
pub(super) const ROUNDS_AHEAD: usize = 8;

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
        /// Points that it suggests at most.
        points: u64,
        /// Points that make a round.
        per_round: u32,
    },
}

impl Schedule {
    /// The schedule for a space of `points` points: exhaustive when that is asked for, or when it is no more effort than
    /// the rounds would be.
    pub(crate) fn new(sweep: &SweepConfig, points: u64) -> Self {
        let rounds = Self::Rounds { max_rounds: sweep.max_rounds, per_round: sweep.candidates_per_round };
        if sweep.exhaustive || points <= rounds.aim() {
            Self::Exhaustive { points, per_round: sweep.candidates_per_round }
        } else {
            rounds
        }
    }

    /// Candidates that it aims for.
    pub(crate) fn aim(self) -> u64 {
        match self {
            Self::Rounds { max_rounds, per_round } => u64::from(max_rounds) * u64::from(per_round),
            Self::Exhaustive { points, .. } => points,
        }
    }

    pub(super) fn per_round(self) -> u64 {
        match self {
            Self::Rounds { per_round, .. } | Self::Exhaustive { per_round, .. } => u64::from(per_round),
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
    Interrupted {
        /// Trials that were still to come.
        missing: u64,
        /// Whether more than these may have come: it goes on until enough of them count, or to greater portions of the requests.
        is_least: bool,
    },
    /// The journal of an earlier run has another evaluation in the place of this trial.
    Diverged {
        /// Number of the trial in the whole search.
        trial: u32,
    },
    /// This trial in the journal of an earlier run is not worth what its figures come to.
    Contradicted {
        /// Number of the trial in the whole search.
        trial: u32,
    },
}

impl StudyEnd {
    /// Whether it was told to stop.
    pub fn is_interrupted(self) -> bool {
        matches!(self, Self::Interrupted { .. })
    }
}

/// What a study wants next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Demand {
    /// So many suggestions.
    Points(usize),
    /// Nothing before more of its trials are committed.
    Nothing,
    /// Nothing any more.
    Over(StudyEnd),
}

/// How far a schedule is, by the trials that are committed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Course {
    schedule: Schedule,
    /// Candidates that count.
    found: u64,
    committed: u64,
    /// Trials since the present round began.
    attempts: u64,
    /// Whether there are no more points.
    is_dry: bool,
    /// Rounds that are under way together.
    rounds_ahead: usize,
}

impl Course {
    pub(super) fn new(schedule: Schedule) -> Self {
        let rounds_ahead = match schedule {
            Schedule::Rounds { .. } => 1,
            Schedule::Exhaustive { .. } => ROUNDS_AHEAD,
        };
        Self { schedule, found: 0, committed: 0, attempts: 0, is_dry: false, rounds_ahead }
    }

    /// The same, one round at a time: what a trial has to reach depends on those before it.
    pub(super) fn in_step(self) -> Self {
        Self { rounds_ahead: 1, ..self }
    }

    /// Chunks of suggestions that are under way at a time.
    pub(super) fn chunks(&self) -> usize {
        CHUNKS * self.rounds_ahead
    }

    /// Whether points are suggested whatever comes of the others.
    pub(super) fn is_exhaustive(&self) -> bool {
        matches!(self.schedule, Schedule::Exhaustive { .. })
    }

    /// The round to which the next trial to be committed belongs, from 1.
    pub(super) fn round(&self) -> u32 {
        let done = match self.schedule {
            Schedule::Rounds { .. } => self.found,
            Schedule::Exhaustive { .. } => self.committed,
        };
        (done / self.schedule.per_round()) as u32 + 1
    }

    /// A trial was committed; whether it counts.
    pub(super) fn commit(&mut self, counts: bool) {
        self.committed += 1;
        self.attempts += 1;
        self.found += u64::from(counts);
        if counts && self.found.is_multiple_of(self.schedule.per_round()) {
            self.attempts = 0;
        }
    }

    /// There are no more points.
    pub(super) fn run_dry(&mut self) {
        self.is_dry = true;
    }

    /// Candidates that are missing; `None` where the points decide, and not their number.
    pub(super) fn missing(&self) -> Option<u64> {
        match self.schedule {
            Schedule::Rounds { .. } => Some(self.schedule.aim() - self.found),
            Schedule::Exhaustive { .. } => None,
        }
    }

    /// Trials that are still to come, at least.
    pub(super) fn still_to_come(&self) -> u64 {
        self.missing().unwrap_or_else(|| self.schedule.aim().saturating_sub(self.committed))
    }

    /// What is wanted while `in_flight` trials are not committed yet.
    ///
    /// Half a round is suggested at a time, so that the next half can be thought about while this one is being evaluated; a
    /// suggestion knows the results of all but the last `per_round - 1` before it at worst, as if whole rounds were suggested.
    /// How many rounds there are makes no difference, so that a search can go on with more of them.
    pub(super) fn demand(&self, in_flight: u64) -> Demand {
        let over = |end| if in_flight == 0 { Demand::Over(end) } else { Demand::Nothing };
        if self.missing() == Some(0) {
            return Demand::Over(StudyEnd::RoundsDone);
        }
        if self.is_dry {
            return over(StudyEnd::Exhausted);
        }
        let per_round = self.schedule.per_round();
        let room = (per_round * self.rounds_ahead as u64).saturating_sub(in_flight);
        let mut points = per_round.div_ceil(CHUNKS as u64).min(room);
        if let Schedule::Rounds { .. } = self.schedule {
            let left = (per_round * ATTEMPTS_PER_CANDIDATE).saturating_sub(self.attempts + in_flight);
            if left == 0 {
                let found = (self.found % per_round) as u32;
                return over(StudyEnd::Stalled { found, wanted: per_round as u32 });
            }
            points = points.min(left);
        }
        if points == 0 { Demand::Nothing } else { Demand::Points(points as usize) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_a_round_is_suggested_while_the_other_half_is_evaluated() {
        let mut course = Course::new(Schedule::Rounds { max_rounds: 2, per_round: 5 });
        assert_eq!(course.demand(0), Demand::Points(3));
        assert_eq!(course.demand(3), Demand::Points(2));
        assert_eq!(course.demand(5), Demand::Nothing);
        for _ in 0..9 {
            course.commit(true);
        }
        assert_eq!(
            (course.round(), course.demand(0), course.demand(1)),
            (2, Demand::Points(3), Demand::Points(3))
        );
        let longer = Course { schedule: Schedule::Rounds { max_rounds: 9, per_round: 5 }, ..course };
        assert!((0..=5).all(|in_flight| longer.demand(in_flight) == course.demand(in_flight)));
        assert_eq!(course.missing(), Some(1));
        course.commit(true);
        assert_eq!(course.demand(2), Demand::Over(StudyEnd::RoundsDone));
    }

    #[test]
    fn rounds_of_points_that_nobody_waits_for_are_under_way_together() {
        let course = Course::new(Schedule::Exhaustive { points: 100, per_round: 3 });
        assert_eq!((course.demand(0), course.demand(23)), (Demand::Points(2), Demand::Points(1)));
        assert_eq!(course.demand(24), Demand::Nothing);
        assert_eq!(course.in_step().demand(3), Demand::Nothing);
    }

    #[test]
    fn one_at_a_time_is_one_at_a_time() {
        let course = Course::new(Schedule::Exhaustive { points: 100, per_round: 1 }).in_step();
        assert_eq!((course.demand(0), course.demand(1)), (Demand::Points(1), Demand::Nothing));
    }

    #[test]
    fn a_round_stalls_when_its_attempts_are_used_up() {
        let mut course = Course::new(Schedule::Rounds { max_rounds: 2, per_round: 2 });
        course.commit(true);
        for _ in 1..21 {
            course.commit(false);
        }
        assert_eq!((course.demand(0), course.demand(1)), (Demand::Points(1), Demand::Nothing));
        course.commit(false);
        assert_eq!(course.demand(0), Demand::Over(StudyEnd::Stalled { found: 1, wanted: 2 }));
    }
}
