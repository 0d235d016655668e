//! What the workers reported to have in their caches.

use super::WorkerView;
use crate::serving::message::WorkerId;
use crate::workload::prefix::{PathStep, SegmentId};

/// For each segment of the prefix tree and each worker: how many blocks from the segment's start are cached there.
#[derive(Debug)]
pub struct PrefixIndex {
    workers: usize,
    extents: Vec<u32>,
}

impl PrefixIndex {
    /// An index of empty caches.
    pub fn new(workers: usize, segments: usize) -> Self {
        Self { workers, extents: vec![0; segments * workers] }
    }

    /// A worker reported a change.
    pub fn set(&mut self, worker: WorkerId, segment: SegmentId, blocks: u32) {
        self.extents[segment.0 as usize * self.workers + worker.0 as usize] = blocks;
    }

    /// Fills in, for every worker, the blocks of `path` that it has from the start without a gap.
    pub fn overlaps(&self, path: &[PathStep], views: &mut [WorkerView]) {
        for view in &mut *views {
            view.overlap_blocks = 0;
        }
        for step in path {
            let extents = &self.extents[step.segment.0 as usize * self.workers..][..self.workers];
            let mut anybody = false;
            for (view, &blocks) in views.iter_mut().zip(extents) {
                // Whoever has everything so far may go on.
                if view.overlap_blocks == step.start {
                    view.overlap_blocks += blocks;
                    anybody |= blocks == step.blocks;
                }
            }
            if !anybody {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlap_stops_at_the_first_gap() {
        let step = |segment, start, blocks| PathStep { segment: SegmentId(segment), start, blocks };
        let path = [step(0, 0, 4), step(2, 4, 3), step(1, 7, 2)];
        let mut index = PrefixIndex::new(4, 3);
        for (worker, extents) in [(0, [4, 2, 3]), (1, [4, 2, 1]), (2, [3, 2, 3]), (3, [0, 2, 3])] {
            for (segment, blocks) in extents.into_iter().enumerate() {
                index.set(WorkerId(worker), SegmentId(segment as u32), blocks);
            }
        }
        let mut views: Vec<_> = (0..4).map(|id| WorkerView::idle(WorkerId(id))).collect();
        index.overlaps(&path, &mut views);
        assert_eq!(views.iter().map(|view| view.overlap_blocks).collect::<Vec<_>>(), [9, 5, 3, 0]);
    }
}
