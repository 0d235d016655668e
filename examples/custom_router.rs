//! A router of one's own, with the whole command line kept:
//! `cargo run --example custom_router -- replay scenarios/custom_router.yaml`

use rand::RngExt;
use serde::Deserialize;
use spica::registry::Registry;
use spica::serving::router::{Needs, PolicyContext, RequestView, Route, RoutingPolicy, WorkerView};

/// The power of two choices: of two workers drawn at random, the one with less prefill work queued.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct TwoChoices {
    /// Prompt tokens that one running request counts for.
    tokens_per_request: u64,
}

impl RoutingPolicy for TwoChoices {
    fn route(&mut self, _: &RequestView, workers: &[WorkerView], ctx: &mut PolicyContext<'_, '_>) -> Route {
        let mut draw = || &workers[ctx.rng().random_range(0..workers.len())];
        let work = |worker: &WorkerView| {
            worker.active_prefill_tokens + self.tokens_per_request * u64::from(worker.active_requests)
        };
        let (one, other) = (draw(), draw());
        Route::To(if work(other) < work(one) { other.id } else { one.id })
    }

    fn needs(&self) -> Needs {
        Needs { load: true, ..Needs::default() }
    }
}

fn main() -> std::process::ExitCode {
    spica::cli::run(Registry::builtin().with_router::<TwoChoices>("two_choices"))
}
