//! Any worker.

use rand::RngExt;
use serde::Deserialize;

use super::{PolicyContext, RequestView, Route, RoutingPolicy, WorkerView};

/// Draws a worker, each being as likely, from the router's random stream. There are no ties.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Random {}

impl RoutingPolicy for Random {
    fn route(
        &mut self,
        _request: &RequestView,
        workers: &[WorkerView],
        ctx: &mut PolicyContext<'_, '_>,
    ) -> Route {
        let drawn = ctx.rng().random_range(0..workers.len() as u32);
        Route::To(workers[drawn as usize].id)
    }
}

#[cfg(test)]
mod tests {
    use super::super::test_support::{REQUEST, choice, in_context, loaded};
    use super::*;

    #[test]
    fn every_worker_is_as_likely() {
        in_context(|ctx| {
            let workers = loaded(&[(9, 900), (0, 0), (1, 0), (0, 0)]);
            let mut times = [0; 4];
            for _ in 0..4000 {
                times[choice(&mut Random {}, &REQUEST, &workers, ctx) as usize] += 1;
            }
            assert!(times.iter().all(|times| (900..1100).contains(times)), "{times:?}");
        });
    }
}
