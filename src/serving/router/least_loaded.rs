//! The worker with the least to do.

use std::cmp::Reverse;

use priority_queue::PriorityQueue;
use rustc_hash::FxBuildHasher;
use serde::Deserialize;

use super::{Needs, PolicyContext, RequestView, Route, RoutingPolicy, WorkerView};
use crate::serving::message::WorkerId;

/// Takes the worker with the fewest active requests, among those the one with the fewest active prefill tokens, among
/// those the one with the lowest id.
///
/// The workers are kept in that order as their load changes, so a decision costs the same for ten workers and for a thousand.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LeastLoaded {
    #[serde(skip)]
    order: PriorityQueue<u32, Reverse<(u32, u64, u32)>, FxBuildHasher>,
}

/// What makes a worker busier than another, the lowest id being the least busy of equals.
pub(super) fn load_of(worker: &WorkerView) -> (u32, u64, u32) {
    (worker.active_requests, worker.active_prefill_tokens, worker.id.0)
}

impl LeastLoaded {
    /// The least busy of `workers`.
    pub(super) fn least_of(&self, workers: &[WorkerView]) -> WorkerId {
        // The order has all workers there are; a request that only some may take looks at those.
        let first = self.order.peek().filter(|_| self.order.len() == workers.len());
        let id = match first {
            Some((&id, _)) => id,
            None => workers.iter().map(load_of).min().expect("there is a worker").2,
        };
        WorkerId(id)
    }
}

impl RoutingPolicy for LeastLoaded {
    fn route(
        &mut self,
        _request: &RequestView,
        workers: &[WorkerView],
        _ctx: &mut PolicyContext<'_, '_>,
    ) -> Route {
        Route::To(self.least_of(workers))
    }

    fn needs(&self) -> Needs {
        Needs { load: true, ..Needs::default() }
    }

    fn load_changed(&mut self, worker: &WorkerView) {
        self.order.push(worker.id.0, Reverse(load_of(worker)));
    }

    fn worker_left(&mut self, worker: WorkerId) {
        self.order.remove(&worker.0);
    }
}

#[cfg(test)]
mod tests {
    use super::super::test_support::{REQUEST, choice, in_context, loaded};
    use super::*;

    #[test]
    fn requests_count_first_then_prefill_tokens_then_the_lowest_id() {
        in_context(|ctx| {
            let mut choice_of =
                |loads: &[(u32, u64)]| choice(&mut LeastLoaded::default(), &REQUEST, &loaded(loads), ctx);
            assert_eq!(choice_of(&[(2, 0), (1, 900), (2, 0)]), 1);
            assert_eq!(choice_of(&[(1, 10), (1, 9), (2, 0)]), 1);
            assert_eq!(choice_of(&[(3, 5), (1, 9), (1, 9)]), 1);
        });
    }

    #[test]
    fn the_order_follows_the_load_and_some_workers_are_looked_at_alone() {
        in_context(|ctx| {
            let mut policy = LeastLoaded::default();
            let mut workers = loaded(&[(0, 0), (0, 0), (0, 0)]);
            let mut route = |workers: &[WorkerView]| choice(&mut policy, &REQUEST, workers, ctx);
            assert_eq!(route(&workers), 0);
            workers[0].active_requests = 1;
            assert_eq!(route(&workers), 1);
            workers[1].active_requests = 2;
            workers[2].active_requests = 2;
            assert_eq!(route(&workers), 0);
            workers[0].active_requests = 3;
            workers[2].active_prefill_tokens = 1;
            assert_eq!(route(&workers), 1);
            assert_eq!(route(&workers[2..]), 2, "worker 1 may not take it");
        });
    }
}
