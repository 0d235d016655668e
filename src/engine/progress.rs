//! The passes in progress, on the timeline of their rank.

use crate::report::record::PassTimeline;
use crate::simulation::SimTime;

/// Most passes that are planned at once: bounds the work that a cut run throws away.
pub(super) const LOOKAHEAD: u32 = 128;

/// What is under way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum PassKind {
    #[default]
    None,
    /// One pass in which anything may happen; `first` is its place in the timeline, unless it only rejects.
    Evaluated { first: u32 },
    /// Decode passes from this one of the timeline on.
    Run { first: u32 },
}

impl PassKind {
    /// The ends of the passes in progress.
    pub(super) fn ends(self, timeline: &PassTimeline) -> &[SimTime] {
        match self {
            Self::None => &[],
            Self::Evaluated { first } | Self::Run { first } => &timeline.ends[timeline.place(first)..],
        }
    }

    /// Replaces the ends of the passes in progress, keeping the first `ends.len()` of them.
    pub(super) fn set_ends(self, ends: &[SimTime], timeline: &mut PassTimeline) {
        if let Self::Evaluated { first } | Self::Run { first } = self {
            let first = timeline.place(first);
            let kept = ends.len().min(timeline.ends.len() - first);
            timeline.ends.truncate(first + kept);
            timeline.ends[first..].copy_from_slice(&ends[..kept]);
        }
    }

    /// Drops the passes of a run that have not begun at `now`; returns the new end if there were any. `started` tells
    /// whether a pass that starts at exactly this time has begun already.
    pub(super) fn cut(self, now: SimTime, started: bool, timeline: &mut PassTimeline) -> Option<SimTime> {
        let Self::Run { first } = self else { return None };
        let place = timeline.place(first);
        let ends = &timeline.ends[place..];
        let over = ends.partition_point(|&end| end <= now);
        let at_boundary = over > 0 && ends[over - 1] == now;
        let begun = if at_boundary && !started { over } else { over + 1 };
        if begun >= ends.len() {
            return None;
        }
        timeline.ends.truncate(place + begun);
        timeline.ends.last().copied()
    }

    /// Drops the passes that are not over at `limit`; returns the first pass of the run that some remain of.
    pub(super) fn stop(self, limit: SimTime, timeline: &mut PassTimeline) -> Option<u32> {
        let over = timeline.ends.partition_point(|&end| end <= limit);
        timeline.ends.truncate(over);
        match self {
            Self::Run { first } if over > timeline.place(first) => Some(first),
            Self::None | Self::Evaluated { .. } | Self::Run { .. } => None,
        }
    }
}
