//! One worker after the other, whatever their load.

use rustc_hash::FxHashMap;
use serde::Deserialize;

use super::{PolicyContext, RequestView, Route, RoutingPolicy, WorkerView};
use crate::report::record::Role;

/// Takes the workers in turn, by ascending id. An aggregated worker's attention-data-parallel ranks take turns among
/// themselves; the ranks of prefill and decode pools all stand in one row.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RoundRobin {
    #[serde(skip)]
    placed: usize,
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
        let turn = self.placed;
        self.placed += 1;
        let one_each = self.one_row || workers.last().is_some_and(|last| last.rank == 0);
        if one_each {
            return Route::To(workers[turn % workers.len()].id);
        }
        let ranks: Vec<_> = workers.chunk_by(|a, b| worker_of(a) == worker_of(b)).collect();
        let ranks = ranks[turn % ranks.len()];
        let placed = self.placed_on_worker.entry(worker_of(&ranks[0])).or_default();
        let rank = ranks[*placed % ranks.len()];
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
