//! What the evaluation of a trial depends on beside its scenario, and what keeps it from being evaluated.

use indexmap::IndexSet;

use crate::config::scenario::Scenario;
use crate::report::record::Role;
use crate::search::branch::Branch;
use crate::search::evaluator::Bar;
use crate::search::trial::Timings;

/// What ends the evaluations of a branch before their time, as text.
pub(super) fn limits(branch: &Branch) -> String {
    let (goal, sweep) = (&branch.config.goal, &branch.config.sweep);
    let gpu_budget = branch.config.search_space.gpu_budget;
    format!("{:?} {:?} {:?} {gpu_budget}", goal.min_attainment, sweep.max_eval_passes, sweep.top)
}

/// What a candidate of a branch has to reach where only those are ranked whose score is above `last`.
pub(super) fn bar(branch: &Branch, last: Option<f64>) -> Bar {
    let goal = &branch.config.goal;
    Bar {
        min_attainment: goal.min_attainment,
        max_gpus: Some(branch.config.search_space.gpu_budget),
        worth: last.map(|score| (goal.target, score)),
    }
}

/// What tells one timing from another, as text.
pub(super) fn identity(timing: &Timings) -> String {
    let identities: Timings = timing.iter().map(|(pool, timing)| (*pool, timing.identity())).collect();
    serde_json::to_string(&identities).expect("an identity is plain data")
}

/// Why a candidate needs more GPUs than there are: those that it starts with, or those that its planner keeps whatever it finds.
pub(super) fn over_budget(branch: &Branch, used_gpus: u32, scenario: &Scenario) -> Option<String> {
    let deployment = &scenario.deployment;
    let budget = branch.config.search_space.gpu_budget;
    if used_gpus > budget {
        return Some(format!("uses {used_gpus} GPUs, over search_space.gpu_budget {budget}"));
    }
    let planner = deployment.planner.as_ref()?;
    // What cannot be made fails where it is to be replayed.
    let planner = branch.registry.planner(planner, deployment.mode).ok().flatten()?;
    let pools = [
        (Role::Agg, &deployment.agg),
        (Role::Prefill, &deployment.prefill),
        (Role::Decode, &deployment.decode),
    ];
    let kept = pools.into_iter().filter_map(|(role, pool)| {
        let workers = u64::from(planner.policy.least_workers(role));
        Some((workers, workers * u64::from(pool.as_ref()?.gpus_per_worker())))
    });
    let (workers, gpus): (IndexSet<u64>, Vec<u64>) = kept.unzip();
    let gpus: u64 = gpus.into_iter().sum();
    let workers: Vec<String> = workers.iter().map(u64::to_string).collect();
    (gpus > u64::from(budget)).then(|| {
        let workers = workers.join(" and ");
        format!(
            "the fewest workers that its planner keeps ({workers}) take {gpus} GPUs, over search_space.gpu_budget {budget}"
        )
    })
}
