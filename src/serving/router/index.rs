//! What the workers reported to have in their caches.

use super::WorkerView;
use crate::workload::prefix::{PathStep, SegmentId};

/// For each segment of the prefix tree and each worker, by its slot: how many blocks from the segment's start are cached there.
#[derive(Debug)]
pub struct PrefixIndex {
    slots: usize,
    extents: Vec<u32>,
}

impl PrefixIndex {
    /// An index of empty caches.
    pub fn new(slots: usize, segments: usize) -> Self {
        Self { slots, extents: vec![0; segments * slots] }
    }

    /// A worker reported a change.
    pub fn set(&mut self, slot: usize, segment: SegmentId, blocks: u32) {
        self.extents[segment.0 as usize * self.slots + slot] = blocks;
    }

    /// Makes room for a slot.
    pub fn make_room(&mut self, slot: usize) {
        widen(&mut self.extents, &mut self.slots, slot);
    }

    /// Forgets what a worker had.
    pub fn forget(&mut self, slot: usize) {
        self.extents.iter_mut().skip(slot).step_by(self.slots.max(1)).for_each(|blocks| *blocks = 0);
    }

    /// Fills in, for every worker, the blocks of `path` that it has from the start without a gap.
    pub fn overlaps(&self, path: &[PathStep], views: &mut [WorkerView]) {
        for view in &mut *views {
            view.overlap_blocks = 0;
        }
        for step in path {
            let extents = &self.extents[step.segment.0 as usize * self.slots..][..self.slots];
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

/// Lays a table of rows of `slots` numbers out anew, with wider rows, if its rows have no place `slot`.
pub(super) fn widen(table: &mut Vec<u32>, slots: &mut usize, slot: usize) {
    if slot < *slots {
        return;
    }
    let wider = (slot + 1).next_power_of_two();
    let rows = table.len().checked_div(*slots).unwrap_or(0);
    let mut wide = vec![0; rows * wider];
    for (row, wide_row) in table.chunks(*slots.max(&mut 1)).zip(wide.chunks_mut(wider)) {
        wide_row[..row.len()].copy_from_slice(row);
    }
    (*table, *slots) = (wide, wider);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serving::message::WorkerId;

    #[test]
    fn overlap_stops_at_the_first_gap() {
        let step = |segment, start, blocks| PathStep { segment: SegmentId(segment), start, blocks };
        let path = [step(0, 0, 4), step(2, 4, 3), step(1, 7, 2)];
        let mut index = PrefixIndex::new(4, 3);
        for (worker, extents) in [(0, [4, 2, 3]), (1, [4, 2, 1]), (2, [3, 2, 3]), (3, [0, 2, 3])] {
            for (segment, blocks) in extents.into_iter().enumerate() {
                index.set(worker, SegmentId(segment as u32), blocks);
            }
        }
        let mut views: Vec<_> = (0..4).map(|id| WorkerView::idle(WorkerId(id))).collect();
        index.overlaps(&path, &mut views);
        let overlaps =
            |views: &[WorkerView]| views.iter().map(|view| view.overlap_blocks).collect::<Vec<_>>();
        assert_eq!(overlaps(&views), [9, 5, 3, 0]);
        index.make_room(4);
        index.forget(1);
        index.set(4, SegmentId(0), 4);
        views.push(WorkerView::idle(WorkerId(4)));
        index.overlaps(&path, &mut views);
        assert_eq!(overlaps(&views), [9, 0, 3, 0, 4]);
    }
}
