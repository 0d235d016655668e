//! The branches of a search: one per deployment mode, each with its own space of points.

use std::sync::Arc;

use indexmap::IndexMap;
use serde::Serialize;
use serde_json::Value;

use super::forecasts::Forecasts;
use super::idle::Idle;
use super::policy_filter::PlannerTarget;
use super::pool::{Finder, Placement, Pool, Skipped, adjective};
use super::projection::StructuredPool;
use super::refusal::{Refusal, refusals};
use super::role::Role;
use super::schedulers::Schedulers;
use super::space::{Condition, Dimension, Point, Space};
use super::{memory, policy_filter, profile};
use crate::config::presets::{FpmSampling, LoadSensitivity, Preset, ScalingPolicy, ScalingSettings};
use crate::config::scenario::{Backend, DeploymentMode, KvTransfer, PolicyConfig};
use crate::config::search::{KvLoadRatio, LoadShape, SearchSpace, SmartSearchConfig};
use crate::model::Catalogue;
use crate::registry::Registry;

/// The router whose weights are knobs of a search.
pub(super) const KV_ROUTER: &str = "kv_router";

/// Places of the knobs that decide which others have an effect.
pub(super) const ROUTER_MODE: usize = 0;
pub(super) const PLANNER_SCALING_POLICY: usize = 4;

/// One deployment mode: what may vary in it.
#[derive(Clone, Debug)]
pub struct Branch {
    /// The mode.
    pub mode: DeploymentMode,
    /// The points to try.
    pub space: Arc<Space>,
    pub(super) config: Arc<SmartSearchConfig>,
    pub(super) catalogue: Arc<Catalogue>,
    /// Where samplers of one's own are.
    pub(super) registry: Arc<Registry>,
    pub(super) placements: Vec<Placement>,
    pub(super) choices: Choices,
    /// Versions of the profiles, by engine.
    pub(super) versions: Vec<(Backend, String)>,
    /// How KV blocks travel in disaggregated candidates.
    pub(super) kv_transfer: KvTransfer,
    /// With what planners forecast.
    pub(super) forecasts: Arc<Forecasts>,
}

/// The distinct choices of every knob, typed; in the order in which [`Space`] counts them.
#[derive(Clone, Debug)]
pub(super) struct Choices {
    pub(super) router_mode: Vec<PolicyConfig>,
    pub(super) overlap_score_credit: Vec<f64>,
    pub(super) prefill_load_scale: Vec<f64>,
    pub(super) router_temperature: Vec<f64>,
    pub(super) planner_scaling_policy: Vec<ScalingPolicy>,
    pub(super) planner_fpm_sampling: Vec<Preset<FpmSampling>>,
    pub(super) planner_load_sensitivity: Vec<Preset<LoadSensitivity>>,
    /// What planners aim for under the goal.
    pub(super) planner_target: PlannerTarget,
    /// Schedulers; none if only those of the backends are tried.
    pub(super) scheduler: Vec<PolicyConfig>,
    /// The knobs of batches, by name.
    pub(super) batches: Vec<(&'static str, Vec<u32>)>,
    /// Loads as shares of the KV cache; none if the load is given otherwise.
    pub(super) kv_load_ratio: Vec<f64>,
}

/// The branches of a search, and what its author should know about them before it runs.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The configuration they come from.
    pub config: Arc<SmartSearchConfig>,
    /// One per deployment mode, in configured order.
    pub branches: Vec<Branch>,
    /// What is left out of them, and branches of which nothing is left.
    pub skipped: Vec<Skipped>,
    /// Settings that have no effect and choices that were dropped, one sentence each.
    pub notices: Vec<String>,
    /// With what planners forecast; nothing until it has been compared.
    pub forecasts: Arc<Forecasts>,
}

impl Plan {
    /// Plans a search over what is known of models and GPUs.
    ///
    /// # Errors
    /// Everything that the configuration asks for and that cannot be done.
    pub fn new(config: SmartSearchConfig, catalogue: &Arc<Catalogue>) -> Result<Self, Vec<Refusal>> {
        Self::with_registry(config, catalogue, &Arc::new(Registry::builtin()))
    }

    /// The same with the samplers of a registry.
    ///
    /// # Errors
    /// Everything that the configuration asks for and that cannot be done.
    pub fn with_registry(
        config: SmartSearchConfig,
        catalogue: &Arc<Catalogue>,
        registry: &Arc<Registry>,
    ) -> Result<Self, Vec<Refusal>> {
        let mut refusals = refusals(&config, registry);
        refusals.extend(Finder::new(&config.search_space, catalogue).err().into_iter().flatten());
        // A model that nobody knows is refused where its layouts are looked for, too.
        let transfer = memory::kv_transfer(&config.search_space, catalogue).err();
        refusals.extend(transfer.filter(|refusal| refusals.iter().all(|known| known.key != refusal.key)));
        if !refusals.is_empty() {
            return Err(refusals);
        }
        let filtered = policy_filter::filter(&config.search_space.planner_scaling_policy, &config.goal)
            .map_err(|refusal| vec![refusal])?;
        let mut notices = Vec::new();
        let space = &config.search_space;
        if space.deployment_mode.contains(&DeploymentMode::Disagg)
            && space.kv_transfer == KvTransfer::default()
        {
            notices.push(
                "search_space.kv_transfer: is not given: disaggregated candidates hand KV blocks over instantly"
                    .into(),
            );
        }
        if !filtered.dropped.is_empty() {
            notices.push(format!(
                "search_space.planner_scaling_policy: the goal cannot support {}: dropped",
                filtered.dropped.join(", ")
            ));
        }
        let pools = pools(&config.search_space, catalogue)?;
        let config = Arc::new(config);
        let (mut branches, mut skipped) = (Vec::new(), Vec::new());
        notices.extend(memory::unknown_capacity(&config.search_space));
        for (mode, mut pool) in pools {
            let schedulers = Schedulers::of(&config.search_space, mode, registry);
            if schedulers.kept.is_empty() {
                skipped.extend(unscheduled(&config.search_space, mode, &schedulers));
                continue;
            }
            let dropped = schedulers.dropped.iter();
            notices.extend(
                dropped.map(|(key, why)| format!("{key}: {why}: no {} deployment has it", adjective(mode))),
            );
            notices.extend(memory::overcommitted(&config.search_space, catalogue, mode, &pool.placements));
            skipped.append(&mut pool.skipped);
            if !pool.placements.is_empty() {
                branches.push(Branch::new(
                    &config,
                    catalogue,
                    registry,
                    mode,
                    pool.placements,
                    (&filtered.kept, &schedulers.kept),
                ));
            }
        }
        notices.extend(skipped.iter().filter(|skip| skip.shape.is_none()).map(ToString::to_string));
        Ok(Self { config, branches, skipped, notices, forecasts: Arc::default() })
    }
}

impl Plan {
    /// Settings that differ between points, by their names in a candidate's `config`; `layout` is the shape of workers and their
    /// number.
    pub fn searched(&self) -> Vec<&'static str> {
        let placements = || self.branches.iter().flat_map(|branch| &branch.placements);
        let mut choices: IndexMap<&'static str, Vec<&Value>> = IndexMap::new();
        let dimensions = self.branches.iter().flat_map(|branch| branch.space.dimensions());
        let has_effect = |dimension: &&Dimension| {
            dimension.condition.as_ref().is_none_or(|condition| condition.active.contains(&true))
        };
        for dimension in dimensions.filter(has_effect) {
            choices.entry(dimension.name).or_default().extend(&dimension.choices);
        }
        let mut searched = Vec::new();
        searched.extend((!all_same(placements().map(|one| &one.layout))).then_some("layout"));
        searched.extend((!all_same(placements().map(|one| one.backend))).then_some("backend"));
        let several = choices.iter().filter(|(_, choices)| !all_same(choices.iter()));
        searched.extend(several.flat_map(|(name, _)| settings_of(name)));
        searched
    }

    /// Why the prices of candidates are no ground for a choice, for each engine with such prices: estimates, formulas, and
    /// profiles that are suspect.
    pub fn timing_doubts(&self) -> Vec<Refusal> {
        profile::doubts(&self.config.search_space)
    }
}

/// A mode of which nothing is left, since none of the schedulers serves its workers.
fn unscheduled(space: &SearchSpace, mode: DeploymentMode, schedulers: &Schedulers) -> Vec<Skipped> {
    let reasons: Vec<String> = schedulers.dropped.iter().map(|(_, reason)| reason.clone()).collect();
    let reason = reasons.join("; ");
    let skip =
        |backend: Backend| Skipped { deployment_mode: mode, backend, shape: None, reason: reason.clone() };
    distinct(&space.backend).into_iter().map(skip).collect()
}

/// The pool of every mode.
fn pools(space: &SearchSpace, catalogue: &Catalogue) -> Result<Vec<(DeploymentMode, Pool)>, Vec<Refusal>> {
    let finder = Finder::new(space, catalogue)?;
    space.deployment_mode.iter().map(|mode| Ok((*mode, finder.pool(*mode)?))).collect()
}

impl Branch {
    fn new(
        config: &Arc<SmartSearchConfig>,
        catalogue: &Arc<Catalogue>,
        registry: &Arc<Registry>,
        mode: DeploymentMode,
        placements: Vec<Placement>,
        (policies, schedulers): (&[ScalingPolicy], &[PolicyConfig]),
    ) -> Self {
        let space = &config.search_space;
        let choices = Choices {
            router_mode: distinct(&space.router_mode),
            overlap_score_credit: distinct(&space.overlap_score_credit),
            prefill_load_scale: distinct(&space.prefill_load_scale),
            router_temperature: distinct(&space.router_temperature),
            planner_scaling_policy: distinct(policies),
            planner_fpm_sampling: distinct(&space.planner_fpm_sampling),
            planner_load_sensitivity: distinct(&space.planner_load_sensitivity),
            planner_target: policy_filter::planner_target(config.goal.target),
            scheduler: if space.tries_schedulers() { distinct(schedulers) } else { Vec::new() },
            batches: Role::of_mode(mode)
                .iter()
                .flat_map(|role| role.batch_knobs(space))
                .map(|(name, choices)| (name, distinct(choices)))
                .collect(),
            kv_load_ratio: kv_load_ratios(&config.workload.load),
        };
        let points = Space::new(placements.len() as u32, choices.dimensions());
        Self {
            mode,
            space: Arc::new(points),
            config: Arc::clone(config),
            catalogue: Arc::clone(catalogue),
            registry: Arc::clone(registry),
            placements,
            choices,
            versions: profile::versions(space),
            kv_transfer: memory::kv_transfer(space, catalogue).unwrap_or(space.kv_transfer),
            forecasts: Arc::default(),
        }
    }

    /// Tokens per KV block of the engines that take requests first; all engines of a branch have the same.
    pub fn block_size(&self) -> u32 {
        Role::of_mode(self.mode)[0].block_size(&self.config.search_space)
    }

    /// What tells which knobs make no difference at a point.
    pub(super) fn idle(&self) -> Idle {
        let is_sized = self.config.search_space.num_gpu_blocks.is_none();
        Idle::new(&self.space, &self.placements, is_sized)
    }

    /// The layouts by the dimensions along which they differ, for samplers that learn; places are those of
    /// [`Point::layout`].
    pub fn structured_pool(&self) -> StructuredPool {
        StructuredPool::new(&self.placements, self.config.search_space.gpu_budget)
    }

    /// The first placement of every engine.
    pub(super) fn first_placements(&self) -> impl Iterator<Item = u32> + '_ {
        let placements = self.placements.iter().enumerate();
        let first = placements.filter(|(place, one)| {
            !self.placements[..*place].iter().any(|earlier| earlier.backend == one.backend)
        });
        first.map(|(place, _)| place as u32)
    }

    /// The choice that a point makes of a knob of batches.
    ///
    /// # Panics
    /// If the branch has no such knob.
    pub(super) fn batch_choice(&self, point: &Point, name: &str) -> u32 {
        let knob = self.choices.batches.iter().find(|(knob, _)| *knob == name);
        let (_, choices) = knob.unwrap_or_else(|| panic!("no knob `{name}`"));
        choices[self.choice(point, name)]
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
            condition: Some(Condition { dimension: ROUTER_MODE, active: self.routers_without_own(name) }),
            ..dimension(name, values)
        };
        let mut dimensions = vec![
            Dimension {
                choices: self.router_mode.iter().map(policy_value).collect(),
                ..dimension("router_mode", &self.router_mode)
            },
            weight("overlap_score_credit", &self.overlap_score_credit),
            weight("prefill_load_scale", &self.prefill_load_scale),
            weight("router_temperature", &self.router_temperature),
            dimension("planner_scaling_policy", &self.planner_scaling_policy),
        ];
        // How passes are sampled reaches planners that scale ahead of traffic, sensitivity those that scale after load; both
        // only where the bounds of requests are aimed for.
        let knobs = [
            (
                dimension("planner_fpm_sampling", &self.planner_fpm_sampling),
                self.policies(|settings| settings.enable_throughput_scaling),
            ),
            (
                dimension("planner_load_sensitivity", &self.planner_load_sensitivity),
                self.policies(|settings| settings.enable_load_scaling),
            ),
        ];
        for (knob, active) in knobs {
            if active.contains(&true) {
                let condition = Some(Condition { dimension: PLANNER_SCALING_POLICY, active });
                dimensions.push(Dimension { condition, ..knob });
            }
        }
        if !self.scheduler.is_empty() {
            dimensions.push(Dimension {
                choices: self.scheduler.iter().map(policy_value).collect(),
                ..dimension("scheduler", &self.scheduler)
            });
        }
        dimensions.extend(self.batches.iter().map(|(name, choices)| dimension(name, choices)));
        if !self.kv_load_ratio.is_empty() {
            dimensions.push(dimension("kv_load_ratio", &self.kv_load_ratio));
        }
        dimensions
    }

    /// For each scaling policy, whether it is of this kind and goes by the bounds of requests.
    fn policies(&self, is_of_kind: impl Fn(&ScalingSettings) -> bool) -> Vec<bool> {
        let by_bounds = self.planner_target == PlannerTarget::Sla;
        let policies = self.planner_scaling_policy.iter();
        policies.map(|policy| by_bounds && policy.settings().is_some_and(&is_of_kind)).collect()
    }

    /// For each router, whether it takes this weight from the search: it has such a weight and none of its own.
    fn routers_without_own(&self, weight: &str) -> Vec<bool> {
        self.router_mode
            .iter()
            .map(|router| router.policy == KV_ROUTER && !router.fields.contains_key(weight))
            .collect()
    }
}

/// What a candidate's `config` says of a knob: presets are spelled out.
fn settings_of(knob: &'static str) -> Vec<&'static str> {
    match knob {
        "planner_fpm_sampling" => vec!["max_num_fpm_samples", "fpm_sample_bucket_size"],
        "planner_load_sensitivity" => vec!["load_scaling_down_sensitivity", "load_min_observations"],
        _ => vec![knob],
    }
}

fn all_same<T: PartialEq>(mut values: impl Iterator<Item = T>) -> bool {
    values.next().is_none_or(|first| values.all(|value| value == first))
}

/// The shares of the KV cache that are tried as loads: of a range its ends and 99 between them at even distances.
fn kv_load_ratios(load: &LoadShape) -> Vec<f64> {
    match load {
        LoadShape::KvLoad { kv_load_ratio: KvLoadRatio::Fixed(ratio), .. } => vec![*ratio],
        LoadShape::KvLoad { kv_load_ratio: KvLoadRatio::Range([low, high]), .. } => (0..=LOAD_STEPS)
            .map(|step| (low * f64::from(LOAD_STEPS - step) + high * f64::from(step)) / f64::from(LOAD_STEPS))
            .collect(),
        LoadShape::Trace(_) | LoadShape::Rate { .. } | LoadShape::Concurrency { .. } => Vec::new(),
    }
}

/// Steps from the one end of a range of loads to the other.
const LOAD_STEPS: u32 = 100;

/// A policy as a configuration writes it: its name alone when it has no fields.
pub(super) fn policy_value(policy: &PolicyConfig) -> Value {
    if policy.fields.is_empty() { Value::from(policy.policy.as_str()) } else { value(policy) }
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

#[cfg(test)]
mod tests {
    use crate::config::presets::{LOAD_SENSITIVITIES, SCALING_POLICIES, ScalingPolicy};
    use crate::config::scenario::{PolicyConfig, Sla};
    use crate::config::search::OptimizationTarget;
    use crate::search::test_support::{config, plan};

    #[test]
    fn what_was_searched_is_known_by_the_names_of_settings() {
        let mut config = config();
        let space = &mut config.search_space;
        space.router_mode = vec![PolicyConfig::named("round_robin")];
        space.agg_max_num_seqs = vec![256, 512, 256];
        space.agg_max_num_batched_tokens = vec![8192, 8192];
        assert_eq!(plan(config.clone()).searched(), ["agg_max_num_seqs"]);
        let space = &mut config.search_space;
        let after_load = SCALING_POLICIES.iter().find(|policy| policy.name == Some("load_180_5")).unwrap();
        space.planner_scaling_policy = vec![ScalingPolicy::Builtin(after_load.clone())];
        space.planner_load_sensitivity = LOAD_SENSITIVITIES.to_vec();
        config.goal.target = OptimizationTarget::Goodput;
        config.goal.sla = Some(Sla { ttft_ms: Some(500.0), itl_ms: Some(50.0), e2e_ms: None });
        let plan = plan(config);
        let expected = ["load_scaling_down_sensitivity", "load_min_observations", "agg_max_num_seqs"];
        assert_eq!(plan.searched(), expected);
        let branch = &plan.branches[0];
        let settings = branch.unroll(&branch.space.point(0)).unwrap().config;
        assert!(expected.iter().all(|name| settings.contains_key(*name)), "{settings:?}");
    }
}
