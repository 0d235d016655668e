//! `spica` with a planner that panics at its first tick, for tests of what becomes of that.

use std::process::ExitCode;

use serde::Deserialize;
use spica::registry::Registry;
use spica::serving::planner::{Decision, Observation, PlanningPolicy};
use spica::simulation::SimDuration;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Panicking {}

impl PlanningPolicy for Panicking {
    fn tick_interval(&self) -> SimDuration {
        SimDuration::from_ns(2_000_000_000)
    }

    fn plan(&mut self, _: &Observation) -> Decision {
        panic!("the planner has lost its way");
    }
}

fn main() -> ExitCode {
    spica::cli::run(Registry::builtin().with_planner::<Panicking>("panicking"))
}
