//! The power of two choices.

use rand::RngExt;
use serde::Deserialize;

use super::{Needs, PolicyContext, RequestView, Route, RoutingPolicy, WorkerView};

/// Draws two different workers from the router's random stream and takes the one with fewer active requests, among equals the
/// one with fewer active prefill tokens, among equals the one drawn first (which counts as a tie). A single worker is
/// taken as it is.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PowerOfTwo {}

impl RoutingPolicy for PowerOfTwo {
    fn route(
        &mut self,
        _request: &RequestView,
        workers: &[WorkerView],
        ctx: &mut PolicyContext<'_, '_>,
    ) -> Route {
        let count = workers.len() as u32;
        if count == 1 {
            return Route::To(workers[0].id);
        }
        let one = ctx.rng().random_range(0..count);
        // Drawn out of the others, so never the same.
        let other = (one + ctx.rng().random_range(1..count)) % count;
        let (one, other) = (&workers[one as usize], &workers[other as usize]);
        let load = |worker: &WorkerView| (worker.active_requests, worker.active_prefill_tokens);
        if load(one) == load(other) {
            ctx.note_tie();
        }
        Route::To(if load(other) < load(one) { other.id } else { one.id })
    }

    fn needs(&self) -> Needs {
        Needs { load: true, ..Needs::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::super::test_support::{REQUEST, choice, in_context, loaded};
    use super::*;

    #[test]
    fn the_busiest_of_three_is_never_taken_and_the_idlest_whenever_it_is_drawn() {
        in_context(|ctx| {
            let workers = loaded(&[(1, 5), (2, 0), (1, 6)]);
            let mut times = [0; 3];
            for _ in 0..3000 {
                times[choice(&mut PowerOfTwo {}, &REQUEST, &workers, ctx) as usize] += 1;
            }
            // Two of the three pairs have worker 0 in them.
            assert_eq!(times[1], 0);
            assert!((1900..2100).contains(&times[0]), "{times:?}");
        });
    }

    #[test]
    fn equals_are_as_likely_and_a_single_worker_is_taken() {
        in_context(|ctx| {
            let workers = loaded(&[(1, 5); 4]);
            let mut times = [0; 4];
            for _ in 0..4000 {
                times[choice(&mut PowerOfTwo {}, &REQUEST, &workers, ctx) as usize] += 1;
            }
            assert!(times.iter().all(|times| (900..1100).contains(times)), "{times:?}");
            assert_eq!(choice(&mut PowerOfTwo {}, &REQUEST, &loaded(&[(9, 9)]), ctx), 0);
        });
    }
}
