//! Which schedulers can serve the workers of a mode.

use super::refusal::Refusal;
use crate::config::scenario::{BACKEND_SCHEDULER, DeploymentMode, EngineOptions, PolicyConfig};
use crate::config::search::SearchSpace;
use crate::engine::EnginePool;
use crate::registry::Registry;
use crate::report::record::Role;

/// The schedulers of one mode.
#[derive(Debug, Default)]
pub(super) struct Schedulers {
    /// Those to try, in configured order.
    pub(super) kept: Vec<PolicyConfig>,
    /// The others, each by the path of its key and with the reason.
    pub(super) dropped: Vec<(String, String)>,
}

impl Schedulers {
    /// The schedulers of a mode. Those that cannot be made at all are kept: they are refused in their own place.
    pub(super) fn of(space: &SearchSpace, mode: DeploymentMode, registry: &Registry) -> Self {
        let mut schedulers = Self::default();
        for config in &space.scheduler {
            match problem(config, mode, registry) {
                None => schedulers.kept.push(config.clone()),
                Some(problem) => schedulers.dropped.push((config.location.clone(), problem)),
            }
        }
        schedulers
    }
}

fn problem(config: &PolicyConfig, mode: DeploymentMode, registry: &Registry) -> Option<String> {
    let roles: &[Role] = match mode {
        _ if config.policy == BACKEND_SCHEDULER => &[],
        DeploymentMode::Agg => &[Role::Agg],
        DeploymentMode::Disagg => &[Role::Prefill, Role::Decode],
    };
    let options = EngineOptions { scheduler: Some(Box::new(config.clone())), ..EngineOptions::default() };
    let pool = |role: &Role| EnginePool { role: *role, dp_size: 1, options: &options };
    roles.iter().find_map(|role| registry.unserved_role(&pool(role)))
}

/// The schedulers that can serve in none of the modes that are asked for.
pub(super) fn refusals(space: &SearchSpace, registry: &Registry) -> Vec<Refusal> {
    let mut refusals = Vec::new();
    for config in &space.scheduler {
        let problems: Option<Vec<String>> =
            space.deployment_mode.iter().map(|mode| problem(config, *mode, registry)).collect();
        for problem in problems.into_iter().flatten() {
            refusals.push(Refusal::new(format!("{}.policy", config.location), problem));
        }
    }
    refusals
}
