//! What the workers should have in their caches, from nothing but what was sent to them.

use std::cmp::Reverse;

use priority_queue::PriorityQueue;
use rustc_hash::FxBuildHasher;

use super::WorkerView;
use super::index::PrefixIndex;
use crate::simulation::{SimDuration, SimTime};
use crate::workload::prefix::{PathStep, SegmentId};

/// Expiry times are rounded up to multiples of this.
const BUCKET_NS: u64 = 100_000_000;

/// Prefixes that were sent to a worker and are assumed to be cached there, until some time after they were last sent
/// or until later ones have pushed them out.
pub(super) struct AssumedIndex {
    index: PrefixIndex,
    ttl: SimDuration,
    capacity_blocks: u64,
    /// By slot.
    workers: Vec<AssumedCache>,
    placements: u64,
}

struct AssumedCache {
    blocks: u64,
    /// Segments of which something is assumed to be cached, least recently used first. A prefix is used whenever something
    /// beyond it is, so whatever goes first is the end of a chain.
    segments: PriorityQueue<u32, Reverse<Use>, FxBuildHasher>,
}

/// The last use of a segment. The order is total, so the hasher cannot show.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Use {
    placement: u64,
    deepest_first: Reverse<u32>,
    expiry: SimTime,
    blocks: u32,
}

impl AssumedCache {
    fn empty() -> Self {
        Self { blocks: 0, segments: PriorityQueue::with_default_hasher() }
    }
}

impl AssumedIndex {
    pub(super) fn new(
        workers: usize,
        segments: usize,
        ttl: SimDuration,
        capacity_blocks: Option<u64>,
    ) -> Self {
        Self {
            index: PrefixIndex::new(workers, segments),
            ttl,
            capacity_blocks: capacity_blocks.unwrap_or(u64::MAX),
            workers: std::iter::repeat_with(AssumedCache::empty).take(workers).collect(),
            placements: 0,
        }
    }

    /// Fills in, for every worker, the blocks of `path` that it should have from the start without a gap.
    pub(super) fn overlaps(&mut self, now: SimTime, path: &[PathStep], views: &mut [WorkerView]) {
        for worker in 0..self.workers.len() {
            while self.least_recent(worker).is_some_and(|(_, last)| last.expiry <= now) {
                self.shrink_least_recent(worker, u32::MAX);
            }
        }
        self.index.overlaps(path, views);
    }

    /// Makes room for a slot.
    pub(super) fn make_room(&mut self, slot: usize) {
        self.index.make_room(slot);
        if self.workers.len() <= slot {
            self.workers.resize_with(slot + 1, AssumedCache::empty);
        }
    }

    /// Forgets what a worker is assumed to have.
    pub(super) fn forget(&mut self, slot: usize) {
        self.index.forget(slot);
        self.workers[slot] = AssumedCache::empty();
    }

    /// A prompt was sent to the worker in a slot: all of it is going to be cached there.
    pub(super) fn placed(&mut self, now: SimTime, worker: usize, path: &[PathStep]) {
        let expiry = SimTime::from_ns((now + self.ttl).as_ns().div_ceil(BUCKET_NS).saturating_mul(BUCKET_NS));
        self.placements += 1;
        for step in path {
            let last = Use {
                placement: self.placements,
                deepest_first: Reverse(step.start),
                expiry,
                blocks: step.blocks,
            };
            let cache = &mut self.workers[worker];
            let before = cache.segments.push(step.segment.0, Reverse(last));
            cache.blocks += u64::from(step.blocks - before.map_or(0, |Reverse(before)| before.blocks));
            self.index.set(worker, step.segment, step.blocks);
        }
        while self.workers[worker].blocks > self.capacity_blocks {
            let excess = self.workers[worker].blocks - self.capacity_blocks;
            self.shrink_least_recent(worker, u32::try_from(excess).unwrap_or(u32::MAX));
        }
    }

    fn least_recent(&self, worker: usize) -> Option<(u32, Use)> {
        self.workers[worker].segments.peek().map(|(&segment, &Reverse(last))| (segment, last))
    }

    /// Takes up to `blocks` blocks off the end of the segment that was not used for longest.
    fn shrink_least_recent(&mut self, worker: usize, blocks: u32) {
        let Some((segment, last)) = self.least_recent(worker) else { return };
        let cache = &mut self.workers[worker];
        let left = last.blocks.saturating_sub(blocks);
        cache.blocks -= u64::from(last.blocks - left);
        if left == 0 {
            cache.segments.pop();
        } else {
            cache.segments.push(segment, Reverse(Use { blocks: left, ..last }));
        }
        self.index.set(worker, SegmentId(segment), left);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serving::message::WorkerId;

    fn step(segment: u32, start: u32, blocks: u32) -> PathStep {
        PathStep { segment: SegmentId(segment), start, blocks }
    }

    fn index(ttl_ms: f64, capacity_blocks: Option<u64>) -> AssumedIndex {
        AssumedIndex::new(2, 4, SimDuration::from_ms(ttl_ms).unwrap(), capacity_blocks)
    }

    fn overlap(index: &mut AssumedIndex, ms: f64, path: &[PathStep]) -> u32 {
        let mut views = [WorkerView::idle(WorkerId(0)), WorkerView::idle(WorkerId(1))];
        index.overlaps(SimTime::from_ms(ms).unwrap(), path, &mut views);
        assert_eq!(views[1].overlap_blocks, 0, "nothing was sent there");
        views[0].overlap_blocks
    }

    fn place(index: &mut AssumedIndex, ms: f64, path: &[PathStep]) {
        index.placed(SimTime::from_ms(ms).unwrap(), 0, path);
    }

    #[test]
    fn what_was_sent_expires_at_the_end_of_its_bucket_unless_it_is_sent_again() {
        let path = [step(0, 0, 4), step(1, 4, 2)];
        let mut index = index(1000.0, None);
        place(&mut index, 10.0, &path);
        assert_eq!(overlap(&mut index, 10.0, &path), 6);
        place(&mut index, 500.0, &path[..1]);
        assert_eq!(overlap(&mut index, 1099.999, &path), 6);
        assert_eq!(overlap(&mut index, 1100.0, &path), 4);
        assert_eq!(overlap(&mut index, 1499.999, &path), 4);
        assert_eq!(overlap(&mut index, 1500.0, &path), 0, "1500 is a bucket's end already");
    }

    #[test]
    fn a_full_cache_gives_up_the_end_of_what_was_used_longest_ago() {
        let (old, recent) = ([step(0, 0, 4), step(1, 4, 4)], [step(2, 0, 3)]);
        let mut index = index(1000.0, Some(8));
        place(&mut index, 0.0, &old);
        place(&mut index, 1.0, &recent);
        assert_eq!(overlap(&mut index, 2.0, &old), 5);
        assert_eq!(overlap(&mut index, 2.0, &recent), 3);
        place(&mut index, 3.0, &[step(3, 0, 20)]);
        assert_eq!(overlap(&mut index, 4.0, &old), 0);
        assert_eq!(overlap(&mut index, 4.0, &recent), 0);
        assert_eq!(
            overlap(&mut index, 4.0, &[step(3, 0, 20)]),
            8,
            "of a prompt that is too long its start stays"
        );
        place(&mut index, 5.0, &[step(3, 0, 20)]);
        assert_eq!(index.workers[0].blocks, 8);
    }
}
