//! What a router believes to be in the caches of its workers, by whichever way it knows.

use std::collections::VecDeque;

use super::assumed::AssumedIndex;
use super::index::PrefixIndex;
use super::{Overlap, WorkerView};
use crate::serving::message::WorkerId;
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
    worker: WorkerId,
    segment: SegmentId,
    blocks: u32,
}

impl Caches {
    /// Empty caches.
    pub(super) fn new(overlap: Overlap, workers: usize, segments: usize) -> Self {
        match overlap {
            Overlap::Unknown => Self::Unknown,
            Overlap::Reported { lag } => {
                let index = PrefixIndex::new(workers, segments);
                Self::Reported(ReportedIndex { index, lag, lagging: VecDeque::new() })
            }
            Overlap::Assumed { ttl, capacity_blocks } => {
                Self::Assumed(AssumedIndex::new(workers, segments, ttl, capacity_blocks))
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

    /// A worker reported a change.
    pub(super) fn changed(&mut self, now: SimTime, worker: WorkerId, segment: SegmentId, blocks: u32) {
        let Self::Reported(ReportedIndex { index, lag, lagging }) = self else { return };
        if *lag == SimDuration::ZERO {
            index.set(worker, segment, blocks);
        } else {
            lagging.push_back(CacheReport { visible: now + *lag, worker, segment, blocks });
        }
    }

    /// A prompt was sent to a worker.
    pub(super) fn placed(&mut self, now: SimTime, worker: WorkerId, path: &[PathStep]) {
        if let Self::Assumed(assumed) = self {
            assumed.placed(now, worker, path);
        }
    }
}

impl ReportedIndex {
    fn catch_up(&mut self, now: SimTime) {
        while let Some(report) = self.lagging.pop_front_if(|report| report.visible <= now) {
            self.index.set(report.worker, report.segment, report.blocks);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_are_visible_from_the_lag_on() {
        let at = |ms| SimTime::from_ms(ms).unwrap();
        let path = [PathStep { segment: SegmentId(0), start: 0, blocks: 4 }];
        let lag = SimDuration::from_ms(15.0).unwrap();
        let mut caches = Caches::new(Overlap::Reported { lag }, 1, 1);
        let mut views = [WorkerView::idle(WorkerId(0))];
        caches.changed(at(10.0), WorkerId(0), SegmentId(0), 4);
        let mut overlap_at = |ms| {
            caches.overlaps(at(ms), &path, &mut views);
            views[0].overlap_blocks
        };
        assert_eq!([20.0, 24.999_999, 25.0].map(&mut overlap_at), [0, 0, 4]);
    }
}
