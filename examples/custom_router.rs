//! A router of one's own, with the whole command line kept:
//! `cargo run --release --example custom_router -- replay scenarios/custom_router.yaml`

use std::cmp::Reverse;

use serde::Deserialize;
use spica::registry::Registry;
use spica::serving::router::{Needs, Overlap, PolicyContext, RequestView, Route, RoutingPolicy, WorkerView};
use spica::simulation::SimDuration;

/// Goes where most of the prompt is cached, but only to workers that are calm; then to the calmest. Ties: lowest id.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CachedIfCalm {
    /// A worker with fewer prompt tokens waiting than this is calm.
    calm_tokens: u64,
}

impl RoutingPolicy for CachedIfCalm {
    fn route(&mut self, _: &RequestView, workers: &[WorkerView], _: &mut PolicyContext<'_, '_>) -> Route {
        let calm = |worker: &&WorkerView| worker.active_prefill_tokens < self.calm_tokens;
        let appeal = |worker: &&WorkerView| {
            let cached = if calm(worker) { worker.overlap_blocks } else { 0 };
            (calm(worker), cached, Reverse((worker.active_prefill_tokens, worker.id)))
        };
        Route::To(workers.iter().max_by_key(appeal).expect("there is always a worker").id)
    }

    fn needs(&self) -> Needs {
        let overlap = Overlap::Reported { lag: SimDuration::ZERO };
        Needs { load: true, overlap, ..Needs::default() }
    }
}

fn main() -> std::process::ExitCode {
    spica::cli::run(Registry::builtin().with_router::<CachedIfCalm>("cached_if_calm"))
}
