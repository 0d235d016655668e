//! A session stays where it began.

use rustc_hash::FxHashMap;
use serde::Deserialize;

use super::least_loaded::LeastLoaded;
use super::limits::{duration, duration_problem};
use super::{Needs, PolicyContext, RequestView, Route, RoutingPolicy, WorkerView};
use crate::serving::message::WorkerId;
use crate::simulation::SimTime;

/// Shortest time to live of a binding.
const LEAST_TTL_MS: f64 = 1000.0;

/// Sends every turn of a session to the worker of the turn before, whatever its load, as long as that worker takes requests.
/// First turns, requests without a session and sessions that were silent for longer than `ttl_ms` go where
/// [`LeastLoaded`] sends them, with its rule for ties.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SessionAffinity {
    /// How long a session is remembered after the arrival of its latest turn, in milliseconds; absent: for ever.
    pub ttl_ms: Option<f64>,
    #[serde(skip)]
    least_loaded: LeastLoaded,
    /// Worker and latest turn of each session.
    #[serde(skip)]
    bindings: FxHashMap<u32, (WorkerId, SimTime)>,
}

impl SessionAffinity {
    /// The worker of a session that is remembered.
    fn bound(&self, session: u32, now: SimTime) -> Option<WorkerId> {
        let &(worker, latest) = self.bindings.get(&session)?;
        let alive = self.ttl_ms.is_none_or(|ttl_ms| now <= latest + duration(ttl_ms));
        alive.then_some(worker)
    }
}

impl RoutingPolicy for SessionAffinity {
    fn route(
        &mut self,
        request: &RequestView,
        workers: &[WorkerView],
        ctx: &mut PolicyContext<'_, '_>,
    ) -> Route {
        let takes_requests = |id: &WorkerId| workers.binary_search_by_key(id, |worker| worker.id).is_ok();
        let worker = self
            .bound(request.session, ctx.now())
            .filter(takes_requests)
            .unwrap_or_else(|| self.least_loaded.least_of(workers));
        self.bindings.insert(request.session, (worker, ctx.now()));
        Route::To(worker)
    }

    fn needs(&self) -> Needs {
        self.least_loaded.needs()
    }

    fn load_changed(&mut self, worker: &WorkerView) {
        self.least_loaded.load_changed(worker);
    }

    fn worker_left(&mut self, worker: WorkerId) {
        self.least_loaded.worker_left(worker);
    }

    fn problems(&self) -> Vec<String> {
        self.ttl_ms.and_then(|ttl_ms| duration_problem("ttl_ms", ttl_ms, LEAST_TTL_MS)).into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::test_support::{REQUEST, at_each_ms, choice, in_context, loaded};
    use super::*;

    fn turn_of(session: u32) -> RequestView {
        RequestView { session, ..REQUEST }
    }

    #[test]
    fn a_session_stays_although_its_worker_is_the_busiest() {
        in_context(|ctx| {
            let mut policy = SessionAffinity::default();
            let mut route =
                |session, workers: &[WorkerView]| choice(&mut policy, &turn_of(session), workers, ctx);
            assert_eq!(route(7, &loaded(&[(1, 0), (0, 0), (2, 0)])), 1);
            let busy = loaded(&[(1, 0), (9, 900), (2, 0)]);
            assert_eq!(route(7, &busy), 1);
            assert_eq!(route(8, &busy), 0);
            assert_eq!(route(7, &busy[2..]), 2, "its worker does not take requests any more");
            assert_eq!(route(7, &busy), 2, "where it went since");
        });
    }

    #[test]
    fn a_session_is_forgotten_after_its_time_to_live() {
        let mut policy = SessionAffinity { ttl_ms: Some(1000.0), ..SessionAffinity::default() };
        let mut load = vec![(0, 0), (1, 0)];
        let mut expected = [0, 0, 0, 1].into_iter();
        at_each_ms(&[0.0, 1000.0, 2000.0, 3000.001], move |ctx| {
            assert_eq!(Some(choice(&mut policy, &REQUEST, &loaded(&load), ctx)), expected.next());
            load[0].0 = 5;
        });
    }

    #[test]
    fn a_time_to_live_lies_between_a_second_and_a_year() {
        let problems =
            |ttl_ms| SessionAffinity { ttl_ms: Some(ttl_ms), ..SessionAffinity::default() }.problems();
        assert!(problems(1000.0).is_empty());
        for bad in [999.0, -1.0, f64::NAN, f64::INFINITY, 4e10] {
            assert!(problems(bad)[0].starts_with("ttl_ms: "), "{bad}");
        }
    }
}
