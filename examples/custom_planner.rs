//! A planner of one's own, with the whole command line of `spica` around it:
//!
//! ```console
//! $ cargo run --release --example custom_planner -- replay scenarios/planner_burst.yaml \
//!       --set "deployment.planner={policy: one_for_each, requests_per_worker: 60}"
//! ```

use std::process::ExitCode;

use serde::Deserialize;
use spica::config::scenario::DeploymentMode;
use spica::registry::Registry;
use spica::serving::planner::{Decision, Observation, PlanningPolicy};
use spica::simulation::SimDuration;

/// One worker for so many requests under way, in every pool, at most `most_workers`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct OneForEach {
    requests_per_worker: u64,
    #[serde(default = "eight")]
    most_workers: u32,
}

fn eight() -> u32 {
    8
}

impl PlanningPolicy for OneForEach {
    fn tick_interval(&self) -> SimDuration {
        SimDuration::from_ns(2_000_000_000)
    }

    fn problems(&self, _: Option<DeploymentMode>) -> Vec<String> {
        let mut problems = Vec::new();
        if self.requests_per_worker == 0 {
            problems.push("requests_per_worker: 0 requests are no load for a worker".into());
        }
        if self.most_workers == 0 {
            problems.push("most_workers: 0 workers serve nobody".into());
        }
        problems
    }

    fn plan(&mut self, observation: &Observation) -> Decision {
        let wanted = observation.outstanding.requests.div_ceil(self.requests_per_worker);
        let workers = u32::try_from(wanted).unwrap_or(u32::MAX).clamp(1, self.most_workers);
        let targets = vec![Some(workers); observation.pools.len()];
        Decision { targets, rule: "one_for_each", ..Decision::default() }
    }
}

fn main() -> ExitCode {
    spica::cli::run(Registry::builtin().with_planner::<OneForEach>("one_for_each"))
}
