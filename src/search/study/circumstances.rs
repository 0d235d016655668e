//! What the evaluation of a trial depends on beside its scenario, and what keeps it from being evaluated.

use crate::config::scenario::{BUILTIN_PLANNER, Scenario};
use crate::config::search::SearchSpace;
use crate::search::branch::Branch;
use crate::search::trial::Timings;

/// What ends the evaluations of a branch before their time, as text.
pub(super) fn limits(branch: &Branch) -> String {
    let (goal, sweep) = (&branch.config.goal, &branch.config.sweep);
    let gpu_budget = branch.config.search_space.gpu_budget;
    format!("{:?} {:?} {:?} {gpu_budget}", goal.min_attainment, sweep.max_eval_passes, sweep.top)
}

/// What tells one timing from another, as text.
pub(super) fn identity(timing: &Timings) -> String {
    let identities: Timings = timing.iter().map(|(pool, timing)| (*pool, timing.identity())).collect();
    serde_json::to_string(&identities).expect("an identity is plain data")
}

/// Why a candidate needs more GPUs than there are: those that it starts with, or those that its planner keeps whatever it finds.
pub(super) fn over_budget(space: &SearchSpace, used_gpus: u32, scenario: &Scenario) -> Option<String> {
    let deployment = &scenario.deployment;
    let budget = space.gpu_budget;
    if used_gpus > budget {
        return Some(format!("uses {used_gpus} GPUs, over search_space.gpu_budget {budget}"));
    }
    // What a planner that is given by name and fields goes by is among its own fields, or nowhere.
    let planner = deployment.planner.as_ref().filter(|planner| planner.policy == BUILTIN_PLANNER)?;
    let workers = planner.fields.get("min_endpoint")?.as_u64()?;
    let pools = [&deployment.agg, &deployment.prefill, &deployment.decode].into_iter().flatten();
    let kept = pools.map(|pool| workers * u64::from(pool.gpus_per_worker())).sum::<u64>();
    (kept > u64::from(budget))
        .then(|| format!("min_endpoint {workers} keeps {kept} GPUs, over search_space.gpu_budget {budget}"))
}
