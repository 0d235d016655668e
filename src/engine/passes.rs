//! The passes of one rank: those that are over, and those in progress.

use std::ops::Range;

use crate::report::record::PassTimeline;
use crate::simulation::SimTime;

/// What the built-in engines do in the passes in progress.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum PassKind {
    #[default]
    None,
    /// One pass in which anything may happen.
    Evaluated,
    /// Decode passes.
    Run,
}

/// The passes of one rank, on its timeline.
///
/// An engine [begins](Self::begin) one pass or a run of them, appends their ends to `timeline.ends`, and
/// [completes](Self::complete) them when it is told that they are over. In between, its worker may cut a run short or move its ends.
#[derive(Debug, Default)]
pub struct Passes {
    /// The ends of all passes, and what completed requests counted of the gaps between their tokens.
    pub timeline: PassTimeline,
    /// Number of the first pass in progress.
    first: Option<u32>,
}

impl Passes {
    /// Most passes that the built-in engines plan at once: it bounds the work that a cut run throws away.
    pub const LOOKAHEAD: u32 = 128;

    /// From here on, ends that are appended to the timeline are those of passes in progress. Returns the number of the first.
    pub fn begin(&mut self) -> u32 {
        *self.first.insert(self.timeline.passes())
    }

    /// The ends of the passes in progress; empty between passes, and in one in which nobody does any work.
    pub fn in_progress(&self) -> &[SimTime] {
        self.first.map_or(&[], |first| &self.timeline.ends[self.timeline.place(first)..])
    }

    /// The passes in progress are over: returns their numbers.
    pub fn complete(&mut self) -> Range<u32> {
        let end = self.timeline.passes();
        self.first.take().unwrap_or(end)..end
    }

    /// Replaces the ends of the passes in progress, keeping the first `ends.len()` of them.
    pub fn set_ends(&mut self, ends: &[SimTime]) {
        if let Some(first) = self.first {
            let first = self.timeline.place(first);
            let kept = ends.len().min(self.timeline.ends.len() - first);
            self.timeline.ends.truncate(first + kept);
            self.timeline.ends[first..].copy_from_slice(&ends[..kept]);
        }
    }

    /// Drops the passes of a run that have not begun at `now`; returns the new end if there were any. `started` tells
    /// whether a pass that starts at exactly this time has begun already.
    pub fn cut(&mut self, now: SimTime, started: bool) -> Option<SimTime> {
        let place = self.timeline.place(self.first?);
        let ends = &self.timeline.ends[place..];
        let over = ends.partition_point(|&end| end <= now);
        let at_boundary = over > 0 && ends[over - 1] == now;
        let begun = if at_boundary && !started { over } else { over + 1 };
        if begun >= ends.len() {
            return None;
        }
        self.timeline.ends.truncate(place + begun);
        self.timeline.ends.last().copied()
    }

    /// Drops the passes that are not over at `limit`; whether some of those in progress are.
    pub fn stop(&mut self, limit: SimTime) -> bool {
        let over = self.timeline.ends.partition_point(|&end| end <= limit);
        self.timeline.ends.truncate(over);
        let some_are_over = self.first.is_some_and(|first| over > self.timeline.place(first));
        if !some_are_over {
            self.first = None;
        }
        some_are_over
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn time(ns: u64) -> SimTime {
        SimTime::from_ns(ns)
    }

    /// Passes that end at 10, and three in progress that end at 20, 30 and 40.
    fn run() -> Passes {
        let mut passes = Passes::default();
        passes.begin();
        passes.timeline.ends.push(time(10));
        assert_eq!(passes.complete(), 0..1);
        assert_eq!(passes.in_progress(), []);
        assert_eq!(passes.begin(), 1);
        passes.timeline.ends.extend([20, 30, 40].map(time));
        passes
    }

    #[test]
    fn a_run_is_cut_behind_the_pass_in_progress() {
        for (now, started, end) in [
            (15, true, Some(20)),
            (20, false, Some(20)),
            (20, true, Some(30)),
            (30, true, None),
            (35, true, None),
        ] {
            let mut passes = run();
            assert_eq!(passes.cut(time(now), started), end.map(time), "{now}");
            assert_eq!(passes.in_progress().last().copied(), Some(time(end.unwrap_or(40))));
        }
        assert_eq!(Passes::default().cut(time(5), true), None);
    }

    #[test]
    fn a_stop_keeps_what_is_over() {
        let mut passes = run();
        assert!(passes.stop(time(30)));
        assert_eq!(passes.complete(), 1..3);
        let mut passes = run();
        assert!(!passes.stop(time(19)));
        assert_eq!((passes.complete(), passes.timeline.passes()), (1..1, 1));
    }

    #[test]
    fn ends_are_moved() {
        let mut passes = run();
        passes.set_ends(&[22, 33].map(time));
        assert_eq!(passes.timeline.ends, [10, 22, 33].map(time));
        assert_eq!(passes.complete(), 1..3);
        passes.set_ends(&[time(50)]);
        assert_eq!(passes.timeline.ends.len(), 3, "nothing is in progress");
    }
}
