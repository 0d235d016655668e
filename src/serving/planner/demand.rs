//! What planners by demand have in common: their bounds and their budget.

use super::builtin::budget::{Budget, Endpoint};
use super::{Observation, PoolSetup};
use crate::simulation::Shown;

/// How many workers each of one or two pools may have at most, given what each wants: the budget is shared in proportion.
pub(super) fn within_budget(pools: &[PoolSetup], wanted: &[u32], max_gpu_budget: u32, min: u32) -> Vec<u32> {
    let budget = Budget { min: None, max: Some(max_gpu_budget) };
    let endpoint = |pool: &PoolSetup| Endpoint { gpus: pool.gpus_per_worker, min };
    let bounded = match (pools, wanted) {
        ([pool], &[workers]) => vec![budget.clamp_single(endpoint(pool), workers)],
        ([prefill, decode], &[p, d]) => {
            budget.clamp_pair([endpoint(prefill), endpoint(decode)], [p, d]).to_vec()
        }
        _ => wanted.to_vec(),
    };
    // A budget too small for the minimum gives way.
    bounded.into_iter().map(|workers| workers.max(min)).collect()
}

/// Targets that differ from the workers that are there or soon will be.
pub(super) fn changes(observation: &Observation, targets: &[u32]) -> Vec<Option<u32>> {
    let staying = observation.pools.iter().map(|pool| pool.state.staying());
    targets.iter().zip(staying).map(|(&target, staying)| (target != staying).then_some(target)).collect()
}

/// Shortest time between two ticks, in seconds.
const LEAST_INTERVAL_S: f64 = 0.01;

/// Longest time that such a planner looks at.
const YEAR_S: f64 = 31_536_000.0;

/// Most workers that any planner may insist on.
pub(super) const MOST_WORKERS: u32 = 100_000;

/// Problems of the fields that these planners share.
pub(super) fn problems(fields: &[(&str, f64)], min_endpoint: u32, max_gpu_budget: u32) -> Vec<String> {
    let mut problems: Vec<String> = fields
        .iter()
        .filter(|(_, value)| !(value.is_finite() && *value > 0.0))
        .map(|(name, value)| format!("{name}: {} must be finite and above 0", Shown(*value)))
        .collect();
    let interval =
        fields.iter().find(|(name, value)| *name == "interval_s" && (0.0..LEAST_INTERVAL_S).contains(value));
    if let Some((name, value)) = interval.filter(|(_, value)| *value > 0.0) {
        problems.push(format!(
            "{name}: {value:e} is less than {LEAST_INTERVAL_S}, the shortest time between two ticks"
        ));
    }
    let long = fields.iter().filter(|(name, value)| name.ends_with("_s") && *value > YEAR_S);
    problems.extend(long.map(|(name, value)| {
        format!("{name}: {} is more than {YEAR_S}, the seconds of a year", Shown(*value))
    }));
    if min_endpoint > MOST_WORKERS {
        problems.push(format!(
            "min_endpoint: {min_endpoint} is more than {MOST_WORKERS}, the most workers of a pool"
        ));
    }
    if min_endpoint == 0 {
        problems.push("min_endpoint: 0 must be at least 1".into());
    }
    if max_gpu_budget == 0 {
        problems.push("max_gpu_budget: 0 leaves no GPU".into());
    }
    problems
}
