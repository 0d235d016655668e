//! The load that a router placed and that has not ended: prefill tokens and prompt blocks per worker.

use super::WorkerView;
use crate::serving::message::WorkerId;
use crate::workload::RequestId;
use crate::workload::prefix::{PathStep, SegmentId};

/// Bookkeeping of the placed load. Generated blocks are not part of it.
#[derive(Debug)]
pub struct LoadBook {
    workers: Vec<WorkerLoad>,
    /// Active requests that run through a segment, for each segment and worker.
    users: Vec<u32>,
    /// Prefill tokens that each request stands for until its first token.
    prefill_tokens: Vec<u64>,
}

#[derive(Clone, Debug, Default)]
struct WorkerLoad {
    prefill_tokens: u64,
    blocks: u64,
    blocks_unshared: u64,
    requests: u32,
}

impl LoadBook {
    /// An empty book.
    pub fn new(workers: usize, segments: usize, requests: usize) -> Self {
        Self {
            workers: vec![WorkerLoad::default(); workers],
            users: vec![0; segments * workers],
            prefill_tokens: vec![0; requests],
        }
    }

    /// A request with `new_tokens` prompt tokens to compute was placed.
    pub fn placed(&mut self, worker: WorkerId, request: RequestId, new_tokens: u64, path: &[PathStep]) {
        self.prefill_tokens[request.0 as usize] = new_tokens;
        for step in path {
            let users = self.users_mut(step.segment, worker);
            *users += 1;
            let first = *users == 1;
            let load = &mut self.workers[worker.0 as usize];
            load.blocks += u64::from(step.blocks) * u64::from(first);
            load.blocks_unshared += u64::from(step.blocks);
        }
        let load = &mut self.workers[worker.0 as usize];
        load.prefill_tokens += new_tokens;
        load.requests += 1;
    }

    /// The first token of a request left: its prompt is computed.
    pub fn first_token(&mut self, worker: WorkerId, request: RequestId) {
        let tokens = std::mem::take(&mut self.prefill_tokens[request.0 as usize]);
        self.workers[worker.0 as usize].prefill_tokens -= tokens;
    }

    /// A request left its worker.
    pub fn ended(&mut self, worker: WorkerId, request: RequestId, path: &[PathStep]) {
        self.first_token(worker, request);
        for step in path {
            let users = self.users_mut(step.segment, worker);
            *users -= 1;
            let last = *users == 0;
            let load = &mut self.workers[worker.0 as usize];
            load.blocks -= u64::from(step.blocks) * u64::from(last);
            load.blocks_unshared -= u64::from(step.blocks);
        }
        self.workers[worker.0 as usize].requests -= 1;
    }

    /// Fills in the load of every worker, with respect to a request whose prompt is `path`.
    pub fn view(&self, path: &[PathStep], views: &mut [WorkerView]) {
        for (view, load) in views.iter_mut().zip(&self.workers) {
            view.active_prefill_tokens = load.prefill_tokens;
            view.active_blocks = load.blocks;
            view.active_blocks_unshared = load.blocks_unshared;
            view.active_requests = load.requests;
            view.shared_active_blocks = 0;
        }
        for step in path {
            let users = self.users(step.segment);
            for (view, &users) in views.iter_mut().zip(users) {
                view.shared_active_blocks += if users > 0 { step.blocks } else { 0 };
            }
        }
    }

    fn users(&self, segment: SegmentId) -> &[u32] {
        let workers = self.workers.len();
        &self.users[segment.0 as usize * workers..][..workers]
    }

    fn users_mut(&mut self, segment: SegmentId, worker: WorkerId) -> &mut u32 {
        &mut self.users[segment.0 as usize * self.workers.len() + worker.0 as usize]
    }
}
