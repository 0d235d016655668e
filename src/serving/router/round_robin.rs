//! One worker after the other, whatever their load. There are no ties.

use rustc_hash::FxHashMap;
use serde::Deserialize;

use super::{PolicyContext, RequestView, Route, RoutingPolicy, WorkerView};
use crate::report::record::Role;

/// Takes the workers in turn, by ascending id. What is kept is a place in that order: when the fleet changes, the turn goes on
/// with whoever has the place then, or with the first if nobody has. An aggregated worker's attention-data-parallel ranks take turns among
/// themselves; the ranks of prefill and decode pools all stand in one row.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RoundRobin {
    /// Place of the worker whose turn it is; may be one too far.
    #[serde(skip)]
    next: usize,
    /// Requests placed on each worker, by the number of its first rank.
    #[serde(skip)]
    placed_on_worker: FxHashMap<u32, usize>,
    #[serde(skip)]
    one_row: bool,
}

impl RoutingPolicy for RoundRobin {
    fn route(
        &mut self,
        _request: &RequestView,
        workers: &[WorkerView],
        _ctx: &mut PolicyContext<'_, '_>,
    ) -> Route {
        // All workers have as many ranks as the first. A request that is bound to one rank sees that rank of each worker, and
        // takes no turn of the ranks.
        let first = worker_of(&workers[0]);
        let ranks = workers.iter().take_while(|view| worker_of(view) == first).count();
        let step = if self.one_row { 1 } else { ranks };
        let turn = self.next % (workers.len() / step);
        self.next = turn + 1;
        if step == 1 {
            return Route::To(workers[turn].id);
        }
        let start = turn * ranks;
        let placed = self.placed_on_worker.entry(worker_of(&workers[start])).or_default();
        let rank = workers[start + *placed % ranks];
        *placed += 1;
        Route::To(rank.id)
    }

    fn serve_role(&mut self, role: Role) {
        self.one_row = role != Role::Agg;
    }
}

/// Number of the first rank of a rank's worker.
fn worker_of(view: &WorkerView) -> u32 {
    view.id.0 - view.rank
}

#[cfg(test)]
mod tests {
    use super::super::test_support::{REQUEST, choice, in_context, loaded};
    use super::*;
    use crate::serving::message::WorkerId;

    fn turns(mut policy: RoundRobin, workers: Vec<WorkerView>, expected: &'static [u32]) {
        in_context(move |ctx| {
            let found: Vec<_> =
                expected.iter().map(|_| choice(&mut policy, &REQUEST, &workers, ctx)).collect();
            assert_eq!(found, expected);
        });
    }

    #[test]
    fn the_place_in_the_row_outlasts_changes_of_the_fleet() {
        in_context(|ctx| {
            let mut policy = RoundRobin::default();
            let mut turn = |ids: &[u32]| {
                let workers: Vec<_> = ids.iter().map(|&id| WorkerView::idle(WorkerId(id))).collect();
                choice(&mut policy, &REQUEST, &workers, ctx)
            };
            assert_eq!([turn(&[0, 1, 2]), turn(&[0, 1, 2]), turn(&[0, 1, 2])], [0, 1, 2]);
            assert_eq!([turn(&[0]), turn(&[0])], [0, 0]);
            assert_eq!([turn(&[0, 4]), turn(&[0, 4]), turn(&[0, 4, 5]), turn(&[0, 4, 5])], [4, 0, 4, 5]);
        });
    }

    /// Two workers of two ranks each.
    fn ranks() -> Vec<WorkerView> {
        loaded(&[(0, 0); 4]).into_iter().map(|view| WorkerView { rank: view.id.0 % 2, ..view }).collect()
    }

    #[test]
    fn workers_take_turns_and_so_do_the_ranks_of_each() {
        turns(RoundRobin::default(), loaded(&[(9, 0), (0, 0), (3, 0)]), &[0, 1, 2, 0]);
        turns(RoundRobin::default(), ranks(), &[0, 2, 1, 3, 0]);
        let mut decode = RoundRobin::default();
        decode.serve_role(Role::Decode);
        turns(decode, ranks(), &[0, 1, 2, 3, 0]);
        let second: Vec<_> = ranks().into_iter().filter(|view| view.rank == 1).collect();
        turns(RoundRobin::default(), second, &[1, 3, 1]);
    }

    #[test]
    fn a_bound_request_takes_no_turn_of_the_ranks() {
        for bound in [0, 1] {
            in_context(move |ctx| {
                let of_one: Vec<_> = ranks().into_iter().filter(|view| view.rank == bound).collect();
                let mut policy = RoundRobin::default();
                let mut route = |workers: &[WorkerView]| choice(&mut policy, &REQUEST, workers, ctx);
                assert_eq!([route(&of_one), route(&of_one)], [bound, 2 + bound]);
                assert_eq!([route(&ranks()), route(&of_one), route(&ranks())], [0, 2 + bound, 1]);
            });
        }
    }
}
