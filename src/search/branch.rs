//! The branches of a search: one per deployment mode, each with its own space of points.

use std::sync::Arc;

use serde::Serialize;
use serde_json::Value;

use super::policy_filter;
use super::refusal::{Refusal, refusals};
use super::space::{Condition, Dimension, Point, Space};
use crate::config::presets::ScalingPolicy;
use crate::config::scenario::{Backend, DeploymentMode, KvTransfer, PolicyConfig};
use crate::config::search::{ParallelConfig, SmartSearchConfig};

/// The router whose weights are knobs of a search.
pub(super) const KV_ROUTER: &str = "kv_router";

/// One deployment mode: what may vary in it.
#[derive(Clone, Debug)]
pub struct Branch {
    /// The mode.
    pub mode: DeploymentMode,
    /// The points to try.
    pub space: Arc<Space>,
    pub(super) config: Arc<SmartSearchConfig>,
    pub(super) layouts: Vec<ParallelConfig>,
    pub(super) choices: Choices,
}

/// The distinct choices of every knob, typed; in the order in which [`Space`] counts them.
#[derive(Clone, Debug)]
pub(super) struct Choices {
    pub(super) router_mode: Vec<PolicyConfig>,
    pub(super) overlap_score_credit: Vec<f64>,
    pub(super) prefill_load_scale: Vec<f64>,
    pub(super) router_temperature: Vec<f64>,
    pub(super) planner_scaling_policy: Vec<ScalingPolicy>,
    pub(super) agg_max_num_batched_tokens: Vec<u32>,
    pub(super) agg_max_num_seqs: Vec<u32>,
    pub(super) backend: Vec<Backend>,
}

/// The branches of a search, and what its author should know about them before it runs.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The configuration they come from.
    pub config: Arc<SmartSearchConfig>,
    /// One per deployment mode, in configured order.
    pub branches: Vec<Branch>,
    /// Settings that have no effect and choices that were dropped, one sentence each.
    pub notices: Vec<String>,
}

impl Plan {
    /// Plans a search.
    ///
    /// # Errors
    /// Everything that the configuration asks for and that cannot be done.
    pub fn new(config: SmartSearchConfig) -> Result<Self, Vec<Refusal>> {
        let refusals = refusals(&config);
        if !refusals.is_empty() {
            return Err(refusals);
        }
        let filtered = policy_filter::filter(&config.search_space.planner_scaling_policy, &config.goal)
            .map_err(|refusal| vec![refusal])?;
        let mut notices = inert_settings(&config);
        if !filtered.dropped.is_empty() {
            notices.push(format!(
                "search_space.planner_scaling_policy: the goal cannot support {}: dropped",
                filtered.dropped.join(", ")
            ));
        }
        let config = Arc::new(config);
        let branch = |mode: &DeploymentMode| Branch::new(&config, *mode, &filtered.kept);
        let branches = config.search_space.deployment_mode.iter().map(branch).collect();
        Ok(Self { config, branches, notices })
    }
}

impl Branch {
    fn new(config: &Arc<SmartSearchConfig>, mode: DeploymentMode, policies: &[ScalingPolicy]) -> Self {
        let space = &config.search_space;
        let choices = Choices {
            router_mode: distinct(&space.router_mode),
            overlap_score_credit: distinct(&space.overlap_score_credit),
            prefill_load_scale: distinct(&space.prefill_load_scale),
            router_temperature: distinct(&space.router_temperature),
            planner_scaling_policy: distinct(policies),
            agg_max_num_batched_tokens: distinct(&space.agg_max_num_batched_tokens),
            agg_max_num_seqs: distinct(&space.agg_max_num_seqs),
            backend: distinct(&space.backend),
        };
        let layouts = space.parallel_configs.clone();
        let points = Space::new(layouts.len() as u32, choices.dimensions());
        Self { mode, space: Arc::new(points), config: Arc::clone(config), layouts, choices }
    }

    /// The choice that a point makes of a knob, as its place among the knob's choices.
    ///
    /// # Panics
    /// If the branch has no such knob.
    pub(super) fn choice(&self, point: &Point, name: &str) -> usize {
        let place = self.space.dimensions().iter().position(|dimension| dimension.name == name);
        point.choices[place.unwrap_or_else(|| panic!("no knob `{name}`"))] as usize
    }
}

impl Choices {
    fn dimensions(&self) -> Vec<Dimension> {
        let weight = |name, values: &[f64]| Dimension {
            condition: Some(Condition { dimension: 0, active: self.routers_without_own(name) }),
            ..dimension(name, values)
        };
        vec![
            Dimension {
                choices: self.router_mode.iter().map(router_value).collect(),
                ..dimension("router_mode", &self.router_mode)
            },
            weight("overlap_score_credit", &self.overlap_score_credit),
            weight("prefill_load_scale", &self.prefill_load_scale),
            weight("router_temperature", &self.router_temperature),
            dimension("planner_scaling_policy", &self.planner_scaling_policy),
            dimension("agg_max_num_batched_tokens", &self.agg_max_num_batched_tokens),
            dimension("agg_max_num_seqs", &self.agg_max_num_seqs),
            dimension("backend", &self.backend),
        ]
    }

    /// For each router, whether it takes this weight from the search: it has such a weight and none of its own.
    fn routers_without_own(&self, weight: &str) -> Vec<bool> {
        self.router_mode
            .iter()
            .map(|router| router.policy == KV_ROUTER && !router.fields.contains_key(weight))
            .collect()
    }
}

/// A router as a configuration writes it: its name alone when it has no fields.
pub(super) fn router_value(router: &PolicyConfig) -> Value {
    if router.fields.is_empty() { Value::from(router.policy.as_str()) } else { value(router) }
}

/// Any configured value as JSON.
pub(super) fn value(value: &impl Serialize) -> Value {
    serde_json::to_value(value).expect("configured values are plain data")
}

fn dimension(name: &'static str, choices: &[impl Serialize]) -> Dimension {
    Dimension { name, choices: choices.iter().map(value).collect(), condition: None }
}

fn distinct<T: Clone + PartialEq>(choices: &[T]) -> Vec<T> {
    let mut kept: Vec<T> = Vec::with_capacity(choices.len());
    for choice in choices {
        if !kept.contains(choice) {
            kept.push(choice.clone());
        }
    }
    kept
}

/// Settings that are legal but that nothing in this search reads.
fn inert_settings(config: &SmartSearchConfig) -> Vec<String> {
    let space = &config.search_space;
    let without_planner = "only a planner uses it, and no candidate has one";
    let reserved = "it is reserved: no router uses it";
    let inert = [
        (space.min_endpoint.is_some(), "min_endpoint", without_planner),
        (space.startup_time.is_some(), "startup_time", without_planner),
        (space.backend_version.is_some(), "backend_version", "only a profile has versions"),
        (space.kv_bytes_per_token.is_some(), "kv_bytes_per_token", "there is no host offload"),
        (space.bandwidth_g1_to_g2_gbps.is_some(), "bandwidth_g1_to_g2_gbps", "there is no host offload"),
        (space.bandwidth_g2_to_g1_gbps.is_some(), "bandwidth_g2_to_g1_gbps", "there is no host offload"),
        (space.offload_batch_size.is_some(), "offload_batch_size", "there is no host offload"),
        (space.kv_transfer != KvTransfer::default(), "kv_transfer", "no candidate is disaggregated"),
        (space.active_decode_blocks_threshold.is_some(), "active_decode_blocks_threshold", reserved),
        (space.active_prefill_tokens_threshold.is_some(), "active_prefill_tokens_threshold", reserved),
        (
            space.active_prefill_tokens_threshold_frac.is_some(),
            "active_prefill_tokens_threshold_frac",
            reserved,
        ),
        (space.no_admission_control, "no_admission_control", reserved),
    ];
    inert
        .into_iter()
        .filter(|(set, ..)| *set)
        .map(|(_, name, why)| format!("search_space.{name} has no effect: {why}"))
        .collect()
}
