//! What the tests of policies share.

#![allow(clippy::unwrap_used, reason = "helpers of tests may panic")]

use super::{PolicyContext, RequestView, Route, RoutingPolicy, WorkerView};
use crate::serving::message::{RouterMessage, Serving, WorkerId};
use crate::serving::order;
use crate::serving::recorder::Recorder;
use crate::simulation::{Actor, Context, Limits, SimTime, Simulation};
use crate::workload::RequestId;

struct Stage<F> {
    moments: std::vec::IntoIter<SimTime>,
    act: F,
}

impl<F: FnMut(&mut PolicyContext<'_, '_>) + Send> Actor<Serving> for Stage<F> {
    type Inbox = RouterMessage;

    fn start(&mut self, ctx: &mut Context<'_, Serving>) {
        if let Some(moment) = self.moments.next() {
            ctx.wake_at(moment, order::ARRIVAL);
        }
    }

    fn receive(&mut self, _message: RouterMessage, _ctx: &mut Context<'_, Serving>) {}

    fn wake(&mut self, ctx: &mut Context<'_, Serving>) {
        (self.act)(&mut PolicyContext::new(ctx));
        self.start(ctx);
    }
}

/// Acts as a router at each of some moments.
pub(super) fn at_each_ms(moments: &[f64], act: impl FnMut(&mut PolicyContext<'_, '_>) + Send + 'static) {
    let mut simulation = Simulation::new(1, Recorder::new(0));
    let router = simulation.reserve("router");
    let moments: Vec<_> = moments.iter().map(|&ms| SimTime::from_ms(ms).unwrap()).collect();
    simulation.install(router, Stage { moments: moments.into_iter(), act });
    simulation.run(&Limits::default()).unwrap();
}

/// Acts as a router once.
pub(super) fn in_context(act: impl FnMut(&mut PolicyContext<'_, '_>) + Send + 'static) {
    at_each_ms(&[0.0], act);
}

/// 16 prompt tokens in four blocks.
pub(super) const REQUEST: RequestView =
    RequestView { id: RequestId(0), input_length: 16, output_length: 2, block_size: 4, session: 0, turn: 0 };

/// Workers with so many `(requests, prefill tokens)`.
pub(super) fn loaded(loads: &[(u32, u64)]) -> Vec<WorkerView> {
    let worker = |(id, &(active_requests, active_prefill_tokens)): (usize, &(u32, u64))| WorkerView {
        active_prefill_tokens,
        active_requests,
        ..WorkerView::idle(WorkerId(id as u32))
    };
    loads.iter().enumerate().map(worker).collect()
}

/// Tells a policy of these workers and asks it.
pub(super) fn choice(
    policy: &mut impl RoutingPolicy,
    request: &RequestView,
    workers: &[WorkerView],
    ctx: &mut PolicyContext<'_, '_>,
) -> u32 {
    for worker in workers {
        policy.load_changed(worker);
    }
    match policy.route(request, workers, ctx) {
        Route::To(worker) => worker.0,
        Route::Hold => panic!("the policy holds the request"),
    }
}
