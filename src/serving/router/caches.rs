//! What a router believes to be in the caches of its workers, by whichever way it knows.

use std::collections::VecDeque;

use super::assumed::AssumedIndex;
use super::index::PrefixIndex;
use super::{Overlap, WorkerView};
use crate::simulation::{SimDuration, SimTime};
use crate::workload::prefix::{PathStep, SegmentId};

/// The caches as the router knows them.
pub(super) enum Caches {
    /// Nothing is known.
    Unknown,
    /// As the workers report.
    Reported(ReportedIndex),
    /// As the router placed.
    Assumed(AssumedIndex),
}

/// An index of reports, some of which are still on their way.
pub(super) struct ReportedIndex {
    index: PrefixIndex,
    lag: SimDuration,
    lagging: VecDeque<CacheReport>,
}

/// A change of a cache on its way to the index.
#[derive(Clone, Copy, Debug)]
struct CacheReport {
    visible: SimTime,
    slot: usize,
    segment: SegmentId,
    blocks: u32,
}

impl Caches {
    /// Empty caches.
    pub(super) fn new(overlap: Overlap, slots: usize, segments: usize) -> Self {
        match overlap {
            Overlap::Unknown => Self::Unknown,
            Overlap::Reported { lag } => {
                let index = PrefixIndex::new(slots, segments);
                Self::Reported(ReportedIndex { index, lag, lagging: VecDeque::new() })
            }
            Overlap::Assumed { ttl, capacity_blocks } => {
                Self::Assumed(AssumedIndex::new(slots, segments, ttl, capacity_blocks))
            }
        }
    }

    /// Fills in, for every worker, the blocks of `path` that it has from the start without a gap, as known at `now`.
    pub(super) fn overlaps(&mut self, now: SimTime, path: &[PathStep], views: &mut [WorkerView]) {
        match self {
            Self::Unknown => {}
            Self::Reported(reported) => {
                reported.catch_up(now);
                reported.index.overlaps(path, views);
            }
            Self::Assumed(assumed) => assumed.overlaps(now, path, views),
        }
    }

    /// The worker in `slot` reported a change.
    pub(super) fn changed(&mut self, now: SimTime, slot: usize, segment: SegmentId, blocks: u32) {
        let Self::Reported(ReportedIndex { index, lag, lagging }) = self else { return };
        if *lag == SimDuration::ZERO {
            index.set(slot, segment, blocks);
        } else {
            lagging.push_back(CacheReport { visible: now + *lag, slot, segment, blocks });
        }
    }

    /// A prompt was sent to the worker in `slot`.
    pub(super) fn placed(&mut self, now: SimTime, slot: usize, path: &[PathStep]) {
        if let Self::Assumed(assumed) = self {
            assumed.placed(now, slot, path);
        }
    }

    /// A worker with an empty cache takes `slot`.
    pub(super) fn joined(&mut self, slot: usize) {
        match self {
            Self::Unknown => {}
            Self::Reported(reported) => reported.index.make_room(slot),
            Self::Assumed(assumed) => assumed.make_room(slot),
        }
    }

    /// The worker in `slot` is gone.
    pub(super) fn left(&mut self, slot: usize) {
        match self {
            Self::Unknown => {}
            Self::Reported(ReportedIndex { index, lagging, .. }) => {
                index.forget(slot);
                lagging.retain(|report| report.slot != slot);
            }
            Self::Assumed(assumed) => assumed.forget(slot),
        }
    }
}

impl ReportedIndex {
    fn catch_up(&mut self, now: SimTime) {
        while let Some(report) = self.lagging.pop_front_if(|report| report.visible <= now) {
            self.index.set(report.slot, report.segment, report.blocks);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serving::message::WorkerId;

    #[test]
    fn reports_are_visible_from_the_lag_on() {
        let at = |ms| SimTime::from_ms(ms).unwrap();
        let path = [PathStep { segment: SegmentId(0), start: 0, blocks: 4 }];
        let lag = SimDuration::from_ms(15.0).unwrap();
        let mut caches = Caches::new(Overlap::Reported { lag }, 1, 1);
        let mut views = [WorkerView::idle(WorkerId(0))];
        caches.changed(at(10.0), 0, SegmentId(0), 4);
        let mut overlap_at = |ms| {
            caches.overlaps(at(ms), &path, &mut views);
            views[0].overlap_blocks
        };
        assert_eq!([20.0, 24.999_999, 25.0].map(&mut overlap_at), [0, 0, 4]);
    }
}
