//! Requests that wait in front of a router.

use std::cmp::Reverse;

use priority_queue::PriorityQueue;
use rustc_hash::FxBuildHasher;
use serde::Deserialize;

use super::WorkerView;
use crate::serving::message::WorkerId;
use crate::simulation::SimTime;
use crate::workload::RequestId;

/// When requests wait, and in which order they are let in.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Queue {
    /// Requests wait while every worker that could take them has more prefill tokens than this share of the tokens that one
    /// pass may compute.
    pub threshold: f64,
    /// Who is next.
    pub policy: QueuePolicy,
}

/// Order of the waiting room. Equals go by their entrance.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum QueuePolicy {
    /// First come, first served.
    #[default]
    Fcfs,
    /// Last come, first served.
    Lcfs,
    /// Shortest processing time first: the fewest prompt tokens to compute on the worker that knows most of the prompt.
    Wspt,
}

/// The budget of a pass that has none.
const UNBOUNDED_BUDGET_TOKENS: u32 = 10_000_000;

/// Who waits, in the order in which they are let in.
///
/// With a [`Queue`], requests keep what the router knew of the caches when they came. Without one only requests that the policy
/// holds wait, first come, first served, and are looked at afresh.
pub(super) struct WaitingRoom {
    policy: QueuePolicy,
    /// Prefill tokens above which a worker takes nothing from here; only with a queue.
    most_prefill_tokens: Option<f64>,
    /// Places by who is next. The order is total, so the hasher cannot show.
    order: PriorityQueue<u32, Reverse<(u64, u64)>, FxBuildHasher>,
    places: Vec<Waiting>,
    free_places: Vec<u32>,
    entered: u64,
}

struct Waiting {
    request: RequestId,
    /// Workers that had blocks of the prompt, and how many.
    overlaps: Vec<(WorkerId, u32)>,
}

impl WaitingRoom {
    /// An empty room in front of workers whose passes compute at most `max_num_batched_tokens`.
    pub(super) fn new(queue: Option<Queue>, max_num_batched_tokens: Option<u32>) -> Self {
        let budget = f64::from(max_num_batched_tokens.unwrap_or(UNBOUNDED_BUDGET_TOKENS));
        Self {
            policy: queue.map(|queue| queue.policy).unwrap_or_default(),
            most_prefill_tokens: queue.map(|queue| queue.threshold * budget),
            order: PriorityQueue::with_default_hasher(),
            places: Vec::new(),
            free_places: Vec::new(),
            entered: 0,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.order.len()
    }

    /// Whether a request has to wait, as all of these workers have too much to do.
    pub(super) fn is_shut<'a>(&self, mut eligible: impl Iterator<Item = &'a WorkerView>) -> bool {
        self.most_prefill_tokens
            .is_some_and(|most| eligible.all(|worker| worker.active_prefill_tokens as f64 > most))
    }

    /// Takes a request in, with what is known of the caches. `new_tokens` is what it would have to compute at best.
    pub(super) fn enter(
        &mut self,
        request: RequestId,
        now: SimTime,
        new_tokens: u64,
        workers: &[WorkerView],
    ) {
        let place = self.free_places.pop().unwrap_or_else(|| {
            self.places.push(Waiting { request, overlaps: Vec::new() });
            self.places.len() as u32 - 1
        });
        let waiting = &mut self.places[place as usize];
        waiting.request = request;
        waiting.overlaps.clear();
        if self.most_prefill_tokens.is_some() {
            let known = workers.iter().filter(|worker| worker.overlap_blocks > 0);
            waiting.overlaps.extend(known.map(|worker| (worker.id, worker.overlap_blocks)));
        }
        let key = match self.policy {
            QueuePolicy::Fcfs => now.as_ns(),
            QueuePolicy::Lcfs => u64::MAX - now.as_ns(),
            QueuePolicy::Wspt => new_tokens.max(1),
        };
        self.order.push(place, Reverse((key, self.entered)));
        self.entered += 1;
    }

    /// Who is next.
    pub(super) fn first(&self) -> Option<RequestId> {
        self.order.peek().map(|(&place, _)| self.places[place as usize].request)
    }

    /// With a queue, replaces the overlaps in `workers` by those of the time when the next one came.
    pub(super) fn recall_overlaps(&self, workers: &mut [WorkerView]) {
        if self.most_prefill_tokens.is_none() {
            return;
        }
        let Some((&place, _)) = self.order.peek() else { return };
        for worker in &mut *workers {
            worker.overlap_blocks = 0;
        }
        for &(id, blocks) in &self.places[place as usize].overlaps {
            // Who has left since is not there any more; in a fleet that never changes a worker's place is its id.
            let worker = match workers.get(id.0 as usize) {
                Some(worker) if worker.id == id => Some(id.0 as usize),
                _ => workers.iter().position(|worker| worker.id == id),
            };
            if let Some(worker) = worker {
                workers[worker].overlap_blocks = blocks;
            }
        }
    }

    /// The next one leaves.
    pub(super) fn leave(&mut self) {
        if let Some((place, _)) = self.order.pop() {
            self.free_places.push(place);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn room(policy: QueuePolicy) -> WaitingRoom {
        WaitingRoom::new(Some(Queue { threshold: 0.5, policy }), Some(100))
    }

    fn busy(tokens: u64) -> WorkerView {
        WorkerView { active_prefill_tokens: tokens, ..WorkerView::idle(WorkerId(0)) }
    }

    /// Who leaves in which order when `(ms, new tokens)` came one after the other.
    fn order(policy: QueuePolicy, entrances: &[(f64, u64)]) -> Vec<u32> {
        let mut room = room(policy);
        for (id, &(ms, new_tokens)) in entrances.iter().enumerate() {
            room.enter(RequestId(id as u32), SimTime::from_ms(ms).unwrap(), new_tokens, &[]);
        }
        let next = |room: &mut WaitingRoom| {
            let first = room.first()?;
            room.leave();
            Some(first.0)
        };
        std::iter::from_fn(|| next(&mut room)).collect()
    }

    #[test]
    fn each_policy_has_its_order_and_equals_go_by_entrance() {
        let entrances = [(1.0, 30), (2.0, 10), (2.0, 20), (3.0, 10), (4.0, 0)];
        assert_eq!(order(QueuePolicy::Fcfs, &entrances), [0, 1, 2, 3, 4]);
        assert_eq!(order(QueuePolicy::Lcfs, &entrances), [4, 3, 1, 2, 0]);
        assert_eq!(order(QueuePolicy::Wspt, &entrances), [4, 1, 3, 2, 0]);
    }

    #[test]
    fn it_is_shut_when_every_worker_is_strictly_above_the_threshold() {
        let room = room(QueuePolicy::Fcfs);
        assert!(!room.is_shut([busy(50)].iter()));
        assert!(room.is_shut([busy(51)].iter()));
        assert!(!room.is_shut([busy(51), busy(50)].iter()));
        let unbounded = WaitingRoom::new(Some(Queue { threshold: 0.5, policy: QueuePolicy::Fcfs }), None);
        assert!(!unbounded.is_shut([busy(5_000_000)].iter()));
        assert!(unbounded.is_shut([busy(5_000_001)].iter()));
        assert!(!WaitingRoom::new(None, Some(100)).is_shut([busy(u64::MAX)].iter()));
    }

    #[test]
    fn overlaps_are_those_of_the_entrance() {
        let mut room = room(QueuePolicy::Fcfs);
        let view = |id, overlap_blocks| WorkerView { overlap_blocks, ..WorkerView::idle(WorkerId(id)) };
        room.enter(RequestId(7), SimTime::ZERO, 1, &[view(0, 0), view(1, 4)]);
        let mut later = [view(0, 9), view(1, 8)];
        room.recall_overlaps(&mut later);
        assert_eq!(later, [view(0, 0), view(1, 4)]);
        room.leave();
        room.enter(RequestId(8), SimTime::ZERO, 1, &[view(0, 0), view(1, 0)]);
        room.recall_overlaps(&mut later);
        assert_eq!(later, [view(0, 0), view(1, 0)], "a place is cleared before it is used again");
    }
}
