//! The load that a router placed and that has not ended: requests, prefill tokens and prompt blocks per worker.

use super::WorkerView;
use super::index::widen;
use crate::workload::RequestId;
use crate::workload::prefix::{PathStep, SegmentId};

/// Bookkeeping of the placed load, which it keeps up in the views of the workers as it changes. Generated blocks are not part
/// of it.
#[derive(Debug)]
pub struct LoadBook {
    slots: usize,
    /// Active requests that run through a segment, for each segment and worker, by its slot; empty where blocks do not count.
    users: Vec<u32>,
    /// Prefill tokens that each request stands for until its first token.
    prefill_tokens: Vec<u64>,
}

impl LoadBook {
    /// An empty book. Without `segments` it leaves blocks alone.
    pub fn new(slots: usize, segments: usize, requests: usize) -> Self {
        Self { slots, users: vec![0; segments * slots], prefill_tokens: vec![0; requests] }
    }

    /// Makes room for a slot.
    pub fn make_room(&mut self, slot: usize) {
        widen(&mut self.users, &mut self.slots, slot);
    }

    /// A request with `new_tokens` prompt tokens to compute was placed on the worker in `slot`.
    pub fn placed(
        &mut self,
        slot: usize,
        view: &mut WorkerView,
        request: RequestId,
        new_tokens: u64,
        path: &[PathStep],
    ) {
        self.prefill_tokens[request.0 as usize] = new_tokens;
        view.active_prefill_tokens += new_tokens;
        view.active_requests += 1;
        for step in path {
            let Some(users) = self.users_mut(step.segment, slot) else { return };
            *users += 1;
            view.active_blocks += u64::from(step.blocks) * u64::from(*users == 1);
            view.active_blocks_unshared += u64::from(step.blocks);
        }
    }

    /// The first token of a request left: its prompt is computed.
    pub fn first_token(&mut self, view: &mut WorkerView, request: RequestId) {
        view.active_prefill_tokens -= std::mem::take(&mut self.prefill_tokens[request.0 as usize]);
    }

    /// A request left the worker in `slot`.
    pub fn ended(&mut self, slot: usize, view: &mut WorkerView, request: RequestId, path: &[PathStep]) {
        self.first_token(view, request);
        view.active_requests -= 1;
        for step in path {
            let Some(users) = self.users_mut(step.segment, slot) else { return };
            *users -= 1;
            view.active_blocks -= u64::from(step.blocks) * u64::from(*users == 0);
            view.active_blocks_unshared -= u64::from(step.blocks);
        }
    }

    /// Fills in, for every worker, how much of `path` is active there.
    pub fn shared_blocks(&self, path: &[PathStep], views: &mut [WorkerView]) {
        for view in &mut *views {
            view.shared_active_blocks = 0;
        }
        for step in path {
            let users = &self.users[step.segment.0 as usize * self.slots..][..self.slots];
            for (view, &users) in views.iter_mut().zip(users) {
                view.shared_active_blocks += if users > 0 { step.blocks } else { 0 };
            }
        }
    }

    fn users_mut(&mut self, segment: SegmentId, slot: usize) -> Option<&mut u32> {
        self.users.get_mut(segment.0 as usize * self.slots + slot)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serving::message::WorkerId;

    #[test]
    fn load_lasts_from_the_placement_to_the_first_token_and_the_end() {
        let step = |segment, start, blocks| PathStep { segment: SegmentId(segment), start, blocks };
        let (long, short) = ([step(0, 0, 2), step(1, 2, 3)], [step(0, 0, 2)]);
        let mut book = LoadBook::new(2, 2, 2);
        let mut views = [WorkerView::idle(WorkerId(0)), WorkerView::idle(WorkerId(1))];
        book.placed(1, &mut views[1], RequestId(0), 20, &long);
        book.placed(1, &mut views[1], RequestId(1), 8, &short);
        let expected = WorkerView {
            active_prefill_tokens: 28,
            active_requests: 2,
            active_blocks: 5,
            active_blocks_unshared: 7,
            ..WorkerView::idle(WorkerId(1))
        };
        assert_eq!(views[1], expected);
        book.shared_blocks(&short, &mut views);
        assert_eq!(views.map(|view| view.shared_active_blocks), [0, 2]);
        book.first_token(&mut views[1], RequestId(0));
        assert_eq!(views[1].active_prefill_tokens, 8);
        book.ended(1, &mut views[1], RequestId(0), &long);
        assert_eq!((views[1].active_blocks, views[1].active_blocks_unshared), (2, 2));
        book.ended(1, &mut views[1], RequestId(1), &short);
        assert_eq!(views[1], WorkerView { shared_active_blocks: 2, ..WorkerView::idle(WorkerId(1)) });
    }
}
