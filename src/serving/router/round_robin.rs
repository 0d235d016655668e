//! One worker after the other, whatever their load.

use serde::Deserialize;

use super::{PolicyContext, RequestView, Route, RoutingPolicy, WorkerView};

/// Takes the workers in turn, by ascending id.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RoundRobin {
    #[serde(skip)]
    placed: usize,
}

impl RoutingPolicy for RoundRobin {
    fn route(
        &mut self,
        _request: &RequestView,
        workers: &[WorkerView],
        _ctx: &mut PolicyContext<'_, '_>,
    ) -> Route {
        let worker = workers[self.placed % workers.len()].id;
        self.placed += 1;
        Route::To(worker)
    }
}
