//! What a valid configuration may ask for and this search cannot do: all of it, by name, before anything runs.

use std::fmt;

use super::policy_filter::{self, policy_name};
use super::{layout, sampler};
use crate::config::scenario::{DeploymentMode, TimingConfig};
use crate::config::search::{LoadShape, OptimizationTarget, ParallelConfig, SmartSearchConfig, SweepConfig};

/// One thing that a configuration asks for in vain.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct Refusal {
    /// Where it is asked for, as a path of configuration keys.
    pub key: String,
    /// What cannot be had, and what to write instead.
    pub message: String,
}

impl Refusal {
    /// A refusal of what stands at `key`.
    pub fn new(key: impl Into<String>, message: impl Into<String>) -> Self {
        Self { key: key.into(), message: message.into() }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: {}", self.key, self.message)
    }
}

/// The default wall-clock limit of one replay, which stands for "no limit asked for" while limits are not built.
const DEFAULT_MAX_EVAL_SECONDS: f64 = 600.0;

/// Everything in `config` that cannot be done.
pub(super) fn refusals(config: &SmartSearchConfig) -> Vec<Refusal> {
    let mut found = Vec::new();
    refuse_deployment(config, &mut found);
    refuse_layouts(config, &mut found);
    refuse_scaling(config, &mut found);
    refuse_workload_and_goal(config, &mut found);
    refuse_sweep(&config.sweep, &mut found);
    found
}

fn refuse_deployment(config: &SmartSearchConfig, found: &mut Vec<Refusal>) {
    let space = &config.search_space;
    if space.deployment_mode.contains(&DeploymentMode::Disagg) {
        found.push(Refusal::new(
            "search_space.deployment_mode",
            "disaggregated deployments cannot be searched yet; write `deployment_mode: [agg]`",
        ));
    }
    if let TimingConfig::Profile { .. } = space.timing {
        found.push(Refusal::new(
            "search_space.timing",
            format!(
                "there are no profiles yet, so passes of {} on {} cannot be priced; write `timing: {{model: polynomial}}` \
                 or another model that needs none",
                space.model_name, space.hardware_sku
            ),
        ));
    }
    if space.num_g2_blocks > 0 {
        found.push(Refusal::new(
            "search_space.num_g2_blocks",
            format!(
                "host offload is not built ({} blocks asked for); write 0 or leave it out",
                space.num_g2_blocks
            ),
        ));
    }
}

fn refuse_layouts(config: &SmartSearchConfig, found: &mut Vec<Refusal>) {
    let space = &config.search_space;
    if space.parallel_configs.len() != 1 {
        found.push(Refusal::new(
            "search_space.parallel_configs",
            format!(
                "exactly one pinned layout is needed for now, there are {}; write for example \
                 `parallel_configs: [{{tp: 4, replicas: 2}}]`",
                space.parallel_configs.len()
            ),
        ));
    }
    for (place, pinned) in space.parallel_configs.iter().enumerate() {
        // A layout of two roles comes with the disaggregated mode, which is refused already.
        if let ParallelConfig::Agg(_) = pinned {
            let key = format!("search_space.parallel_configs[{place}]");
            let problems = layout::problems(pinned, space);
            found.extend(problems.into_iter().map(|problem| Refusal::new(&key, problem)));
        }
    }
}

fn refuse_scaling(config: &SmartSearchConfig, found: &mut Vec<Refusal>) {
    let filtered = match policy_filter::filter(&config.search_space.planner_scaling_policy, &config.goal) {
        Ok(filtered) => filtered,
        Err(refusal) => return found.push(refusal),
    };
    let scaling: Vec<String> =
        filtered.kept.iter().filter(|policy| policy.scales()).map(policy_name).collect();
    if !scaling.is_empty() {
        found.push(Refusal::new(
            "search_space.planner_scaling_policy",
            format!(
                "planners are not built yet, so {} cannot be tried; write `planner_scaling_policy: [disabled]`",
                scaling.join(", ")
            ),
        ));
    }
}

fn refuse_workload_and_goal(config: &SmartSearchConfig, found: &mut Vec<Refusal>) {
    if let LoadShape::KvLoad { .. } = config.workload.load {
        found.push(Refusal::new(
            "workload.kv_load_ratio",
            "loads given as a share of the KV cache are not built yet; give `concurrency` or `request_rate`",
        ));
    }
    if config.goal.target == OptimizationTarget::Pareto {
        found.push(Refusal::new("goal.target", "`pareto` is not built yet; choose one objective"));
    }
}

fn refuse_sweep(sweep: &SweepConfig, found: &mut Vec<Refusal>) {
    if let Some(message) = sampler::refusal(&sweep.sampler) {
        found.push(Refusal::new("sweep.sampler", message));
    }
    if let Some(seconds) = sweep.max_eval_seconds
        && seconds != DEFAULT_MAX_EVAL_SECONDS
    {
        found.push(Refusal::new(
            "sweep.max_eval_seconds",
            format!("a limit of {seconds} s per replay is not built yet; leave it out"),
        ));
    }
    if let Some(passes) = sweep.max_eval_passes {
        found.push(Refusal::new(
            "sweep.max_eval_passes",
            format!("a limit of {passes} passes per replay is not built yet; leave it out"),
        ));
    }
    if sweep.fidelity.is_some() {
        found.push(Refusal::new("sweep.fidelity", "cheap first rounds are not built yet; leave it out"));
    }
}
