//! What a valid configuration may ask for and this search cannot do: all of it, by name, before anything runs.

use std::fmt;

use super::policy_filter;
use super::role::Role;
use super::{layout, memory, profile, sampler, schedulers};
use crate::config::scenario::{DeploymentMode, EngineOptions};
use crate::config::search::{SearchSpace, SmartSearchConfig, SweepConfig};
use crate::registry::Registry;

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

/// Everything in `config` that cannot be done.
pub(super) fn refusals(config: &SmartSearchConfig, registry: &Registry) -> Vec<Refusal> {
    let mut found = Vec::new();
    refuse_deployment(config, &mut found);
    refuse_layouts(config, &mut found);
    found.extend(profile::contradictions(&config.search_space));
    found.extend(profile::unknown(&config.search_space));
    refuse_scaling(config, &mut found);
    refuse_sweep(&config.sweep, registry, &mut found);
    found.extend(schedulers::refusals(&config.search_space, registry));
    found
}

fn refuse_deployment(config: &SmartSearchConfig, found: &mut Vec<Refusal>) {
    let space = &config.search_space;
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
    for (place, pinned) in space.parallel_configs.iter().enumerate() {
        let key = format!("search_space.parallel_configs[{place}]");
        let problems = layout::problems(pinned, space);
        found.extend(problems.into_iter().map(|problem| Refusal::new(&key, problem)));
    }
    let listed = space.deployment_mode.contains(&DeploymentMode::Disagg) && space.parallel_configs.is_empty();
    if listed && space.gpu_budget > MOST_GPUS_IN_PAIRS {
        let message = format!(
            "the disaggregated layouts of {} GPUs are too many to list, at most those of {MOST_GPUS_IN_PAIRS}; give some in \
             parallel_configs",
            space.gpu_budget
        );
        found.push(Refusal::new("search_space.gpu_budget", message));
    }
    refuse_small_caches(space, found);
}

/// The layouts of two roles grow with the square of the GPUs that they share.
const MOST_GPUS_IN_PAIRS: u32 = 512;

/// A deployment has to hold the longest sequence that it promises, with room to spare.
fn refuse_small_caches(space: &SearchSpace, found: &mut Vec<Refusal>) {
    if memory::sizes_caches(space) {
        return;
    }
    let blocks = space.num_gpu_blocks.unwrap_or(EngineOptions::DEFAULT_NUM_GPU_BLOCKS);
    let roles = space.deployment_mode.iter().flat_map(|mode| Role::of_mode(*mode));
    let Some(block_size) = roles.map(|role| role.block_size(space)).min() else { return };
    let tokens = u64::from(blocks) * u64::from(block_size);
    if let Some(context_length) = space.context_length
        && tokens <= u64::from(context_length)
    {
        found.push(Refusal::new(
            "search_space.context_length",
            format!(
                "a sequence of {context_length} tokens must fit with room to spare, but a rank's KV cache holds {tokens} \
                 ({blocks} blocks of {block_size}); raise num_gpu_blocks or lower context_length"
            ),
        ));
    }
}

fn refuse_scaling(config: &SmartSearchConfig, found: &mut Vec<Refusal>) {
    found.extend(policy_filter::filter(&config.search_space.planner_scaling_policy, &config.goal).err());
}

fn refuse_sweep(sweep: &SweepConfig, registry: &Registry, found: &mut Vec<Refusal>) {
    found.extend(sampler::refusals(&sweep.sampler, registry));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::presets::{SCALING_POLICIES, ScalingPolicy};
    use crate::config::scenario::{PolicyConfig, PricedModel, ProfileConfig, TimingConfig};
    use crate::config::search::ParallelConfig;
    use crate::search::test_support::{config, plan, refusals};

    fn refused_keys(config: SmartSearchConfig) -> Vec<String> {
        refusals(config).into_iter().map(|refusal| refusal.key).collect()
    }

    #[test]
    fn everything_that_cannot_be_done_is_named_at_once() {
        let mut config = config();
        let space = &mut config.search_space;
        space.num_g2_blocks = 5;
        // The goal has no use for scaling ahead of traffic.
        space.planner_scaling_policy = vec![ScalingPolicy::Builtin(SCALING_POLICIES[1].clone())];
        config.sweep.sampler = PolicyConfig::named("oracle");
        assert_eq!(
            refused_keys(config),
            ["search_space.num_g2_blocks", "search_space.planner_scaling_policy", "sweep.sampler",]
        );
    }

    #[test]
    fn pinned_layouts_have_to_be_legal() {
        let mut config = config();
        config.search_space.gpu_budget = 4;
        let ParallelConfig::Agg(shape) = &mut config.search_space.parallel_configs[0] else { unreachable!() };
        shape.attention_dp = 2;
        let refusals = refusals(config);
        let text: Vec<String> = refusals.iter().map(ToString::to_string).collect();
        assert_eq!(text.len(), 2, "{text:?}");
        assert!(text[0].starts_with("search_space.parallel_configs[0]: tp 4 x attention_dp 2"), "{text:?}");
        assert!(text[1].contains("uses 16 GPUs, over search_space.gpu_budget 4"), "{text:?}");
    }

    #[test]
    fn prices_are_those_of_what_is_served() {
        let refused = |model_name: &str, hardware_sku: &str, is_estimate: bool| {
            let mut config = config();
            let space = &mut config.search_space;
            (space.model_name, space.hardware_sku) = ("Qwen/Qwen3-32B".into(), "h200_sxm".into());
            let of = PricedModel {
                model_name: Some(model_name.into()),
                hardware_sku: Some(hardware_sku.into()),
                ..PricedModel::default()
            };
            space.timing = if is_estimate {
                TimingConfig::Roofline(of)
            } else {
                TimingConfig::Profile(ProfileConfig { of, ..ProfileConfig::default() })
            };
            let refusals = super::profile::contradictions(&config.search_space);
            let named = super::refusals(&config, &Registry::builtin());
            assert!(refusals.iter().all(|refusal| named.contains(refusal)));
            refusals.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        for is_estimate in [false, true] {
            assert_eq!(refused("Qwen/Qwen3-32B", "h200_sxm", is_estimate), [""; 0]);
            assert_eq!(refused("qwen/qwen3-32b", "H200_SXM", is_estimate), [""; 0]);
            assert_eq!(
                refused("MiniMaxAI/MiniMax-M2.5", "b200_sxm", is_estimate),
                [
                    "search_space.timing.model_name: `MiniMaxAI/MiniMax-M2.5` differs from `Qwen/Qwen3-32B` in \
                     `search_space.model_name`",
                    "search_space.timing.hardware_sku: `b200_sxm` differs from `h200_sxm` in `search_space.hardware_sku`",
                ]
            );
        }
    }

    #[test]
    fn caches_have_to_hold_more_than_the_longest_sequence() {
        let mut config = config();
        config.search_space.num_gpu_blocks = Some(100);
        config.search_space.context_length = Some(6399);
        assert!(!plan(config.clone()).branches.is_empty());
        config.search_space.context_length = Some(6400);
        assert_eq!(refused_keys(config), ["search_space.context_length"]);
    }

    #[test]
    fn samplers_are_known_or_unknown_and_take_no_fields() {
        let refusal = |name: &str, field: Option<&str>| {
            let mut sampler = PolicyConfig::named(name);
            sampler.fields.extend(field.map(|field| (field.to_owned(), 1.into())));
            let refusals = sampler::refusals(&sampler, &Registry::builtin());
            refusals.into_iter().next().map(|refusal| refusal.message)
        };
        assert_eq!(refusal("random", None), None);
        assert_eq!(refusal("gp_ucb_pe", None), None);
        assert!(refusal("annealing", None).unwrap().contains("is not a sampler"));
        assert!(refusal("random", Some("jitter")).unwrap().contains("`jitter`"));
    }
}
