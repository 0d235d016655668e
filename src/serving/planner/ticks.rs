//! How often a planner decides while requests come.

use crate::config::scenario::Scenario;
use crate::registry::{NewPlanner, Registry};
use crate::simulation::SimTime;
use crate::workload::Workload;

/// Ticks of a planner that a run can be expected to hold.
const MOST_TICKS: u64 = 1_000_000;

/// Why a planner has too many decisions to make while requests come, if it has.
pub(in crate::serving) fn too_many_ticks(
    scenario: &Scenario,
    workload: &Workload,
    planner: &NewPlanner,
) -> Option<String> {
    let interval = planner.policy.tick_interval().as_ns().max(1);
    let until = scenario.max_sim_time_ms.and_then(|ms| SimTime::from_ms(ms).ok()).unwrap_or(SimTime::MAX);
    let last_ns = workload.latest_arrival().min(until).as_ns();
    let ticks = last_ns / interval;
    (ticks > MOST_TICKS).then(|| {
        format!(
            "deployment.planner: it would decide {ticks} times before the last request, which comes after {} s; at most \
             {MOST_TICKS} times can be replayed",
            last_ns / 1_000_000_000
        )
    })
}

/// Why the planner of a scenario cannot go along with the workload, if so.
pub fn planner_problem(scenario: &Scenario, workload: &Workload, registry: &Registry) -> Option<String> {
    let config = scenario.deployment.planner.as_ref()?;
    let planner = registry.planner(config, scenario.deployment.mode).ok()??;
    too_many_ticks(scenario, workload, &planner)
}
