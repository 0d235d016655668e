//! What the evaluation of a trial depends on beside its scenario, and what keeps it from being evaluated.

use indexmap::IndexSet;
use serde_json::Value;

use crate::config::scenario::{BUILTIN_PLANNER, Scenario};
use crate::config::search::SearchSpace;
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
pub(super) fn over_budget(space: &SearchSpace, used_gpus: u32, scenario: &Scenario) -> Option<String> {
    let deployment = &scenario.deployment;
    let budget = space.gpu_budget;
    if used_gpus > budget {
        return Some(format!("uses {used_gpus} GPUs, over search_space.gpu_budget {budget}"));
    }
    // What a planner that is given by name and fields goes by is among its own fields, or nowhere.
    let planner = deployment.planner.as_ref().filter(|planner| planner.policy == BUILTIN_PLANNER)?;
    let field = |name: &str| planner.fields.get(name).and_then(Value::as_u64);
    let pools = [
        ("decode_min_endpoint", &deployment.agg),
        ("prefill_min_endpoint", &deployment.prefill),
        ("decode_min_endpoint", &deployment.decode),
    ];
    let kept = pools.into_iter().filter_map(|(name, pool)| {
        let workers = field(name).or_else(|| field("min_endpoint"))?;
        Some((workers, workers * u64::from(pool.as_ref()?.gpus_per_worker())))
    });
    let (workers, gpus): (IndexSet<u64>, Vec<u64>) = kept.unzip();
    let gpus: u64 = gpus.into_iter().sum();
    let workers: Vec<String> = workers.iter().map(u64::to_string).collect();
    (gpus > u64::from(budget)).then(|| {
        let workers = workers.join(" and ");
        format!("min_endpoint {workers} keeps {gpus} GPUs, over search_space.gpu_budget {budget}")
    })
}
