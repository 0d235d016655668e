//! A point, spelt out: the flat `config` of a candidate and the scenario that replays it.

use serde::Serialize;
use serde_json::{Map, Value};

use super::branch::{Branch, KV_ROUTER, ROUTER_MODE, policy_value, value};
use super::memory::{self, KvLoad};
use super::policy_filter::PlannerTarget;
use super::pool::Placement;
use super::portion::Portion;
use super::role::Role;
use super::space::Point;
use super::{layout, profile};
use crate::config::presets::{ScalingPolicy, ScalingSettings};
use crate::config::scenario::{
    BACKEND_SCHEDULER, BUILTIN_PLANNER, Backend, CapacitySource, Deployment, DeploymentMode, EngineOptions,
    KvTransfer, PolicyConfig, Pool, Scenario, SglangOptions, TimingConfig, WorkloadSource,
};
use crate::config::search::{LoadShape, Shape};
use crate::report::record;
use crate::serving;

#[cfg(test)]
mod tests;

/// A candidate before its evaluation.
#[derive(Clone, Debug, PartialEq)]
pub struct Unrolled {
    /// Every setting by name, in a fixed order; a setting that does not apply is absent.
    pub config: Map<String, Value>,
    /// GPUs that it occupies.
    pub used_gpus: u32,
    /// What replays it.
    pub scenario: Scenario,
}

impl Unrolled {
    /// Two candidates are the same evaluation exactly when their keys are equal: inert settings and the way a choice
    /// was written do not enter the scenario, and where files lie does not matter: what measured passes and facts come to
    /// is in the identity of the timing and in the numbers of blocks.
    pub fn key(&self) -> String {
        let mut scenario = self.scenario.clone();
        for pool in scenario.deployment.pools_mut() {
            for file in pool.timing.files_mut() {
                file.path = std::path::PathBuf::new();
            }
        }
        for file in scenario.facts.files_mut() {
            file.path = std::path::PathBuf::new();
        }
        if let WorkloadSource::Trace(trace) = &mut scenario.workload.source {
            trace.path = std::path::PathBuf::new();
        }
        serde_json::to_string(&scenario).expect("a scenario is plain data")
    }
}

/// A point that no candidate can be made of.
#[derive(Clone, Debug, PartialEq)]
pub struct Unservable {
    /// Its settings, as far as there are any.
    pub config: Map<String, Value>,
    /// GPUs that it would occupy.
    pub used_gpus: u32,
    /// Why it cannot serve.
    pub reason: String,
}

/// A role of a candidate with what it is given.
struct RolePlan {
    role: Role,
    shape: Shape,
    /// KV blocks per rank, and where their number comes from; `None` for the engine's default.
    blocks: Option<(u32, CapacitySource)>,
}

impl RolePlan {
    /// Tokens that fit in all workers.
    fn capacity_tokens(&self, block_size: u32) -> u64 {
        let blocks = self.blocks.map_or(EngineOptions::DEFAULT_NUM_GPU_BLOCKS, |(blocks, _)| blocks);
        memory::pool_capacity_tokens(&self.shape, blocks, block_size)
    }
}

impl Branch {
    /// Spells a point out.
    ///
    /// # Errors
    /// Why no candidate can be made of it: its memory has no room.
    pub fn unroll(&self, point: &Point) -> Result<Unrolled, Unservable> {
        self.unroll_on(point, None)
    }

    /// Spells a point out, with a portion of the requests only if there is one.
    pub(super) fn unroll_on(&self, point: &Point, portion: Option<Portion>) -> Result<Unrolled, Unservable> {
        let placement = self.placements[point.layout as usize];
        let used_gpus = layout::used_gpus(&placement.layout);
        let mut flat = self.flat(point, &placement);
        let made = self.role_plans(point, &placement).and_then(|roles| {
            let load = self.kv_load(point, &roles)?;
            Ok((roles, load))
        });
        match made {
            Ok((roles, load)) => {
                self.put_load(&roles, load, &mut flat);
                let mut scenario = self.scenario(point, &placement, &roles, load);
                self.forget_idle_limits(&mut scenario, &mut flat);
                if let Some(portion) = portion {
                    scenario.workload = portion.of(scenario.workload);
                }
                Ok(Unrolled { config: flat.0, used_gpus, scenario })
            }
            Err(reason) => Err(Unservable { config: flat.0, used_gpus, reason }),
        }
    }

    /// The roles of a candidate with the KV blocks that they have room for.
    fn role_plans(&self, point: &Point, placement: &Placement) -> Result<Vec<RolePlan>, String> {
        let space = &self.config.search_space;
        let plan = |role: &Role| {
            let role = *role;
            let shape = role.shape(&placement.layout).expect("a branch has layouts of its own mode only");
            let blocks = match space.num_gpu_blocks {
                Some(blocks) => Some((blocks, CapacitySource::Given)),
                None if memory::sizes_caches(space) => {
                    let tokens = self.batch_choice(point, role.batched_tokens_knob());
                    let blocks =
                        memory::kv_blocks(space, &self.catalogue, role, placement.backend, &shape, tokens)?;
                    Some((blocks, CapacitySource::MemoryModel))
                }
                None => None,
            };
            Ok(RolePlan { role, shape, blocks })
        };
        Role::of_mode(self.mode).iter().map(plan).collect()
    }

    /// The requests in flight of a load that is given as a share of the KV cache.
    fn kv_load(&self, point: &Point, roles: &[RolePlan]) -> Result<Option<KvLoad>, String> {
        let LoadShape::KvLoad { requests, .. } = &self.config.workload.load else { return Ok(None) };
        let ratio = self.choices.kv_load_ratio[self.choice(point, "kv_load_ratio")];
        let bearer = Role::bearing_load(self.mode);
        let plan =
            roles.iter().find(|plan| plan.role == bearer).expect("a mode has the role that bears its load");
        let tokens = plan.capacity_tokens(bearer.block_size(&self.config.search_space));
        let load = KvLoad::new(ratio, tokens, requests.isl, requests.osl)?;
        match requests.excess(f64::from(load.concurrency)) {
            Some(excess) => Err(format!("workload.kv_load_ratio {ratio}: {excess}")),
            None => Ok(Some(load)),
        }
    }

    fn scenario(
        &self,
        point: &Point,
        placement: &Placement,
        roles: &[RolePlan],
        load: Option<KvLoad>,
    ) -> Scenario {
        let config = &self.config;
        let workload = config.workload.of_trial(load.map(|load| load.concurrency));
        let workload = workload.expect("a load without a number in flight is given as a share of the cache");
        let pool = |role| {
            let plan = roles.iter().find(|plan| plan.role == role)?;
            Some(self.pool(point, placement, plan))
        };
        Scenario {
            seed: config.sweep.random_seed,
            deployment: Deployment {
                mode: self.mode,
                router: self.router(point),
                planner: self.planner(point),
                agg: pool(Role::Agg),
                prefill: pool(Role::Prefill),
                decode: pool(Role::Decode),
                kv_transfer: match self.mode {
                    DeploymentMode::Agg => KvTransfer::default(),
                    DeploymentMode::Disagg => self.kv_transfer,
                },
                replica_changes: Vec::new(),
            },
            workload,
            sla: config.goal.sla,
            max_sim_time_ms: None,
            facts: config.facts.clone(),
        }
    }

    /// Puts limits that nobody goes by back to what they would be anyway: so candidates that differ in them only are one.
    fn forget_idle_limits(&self, scenario: &mut Scenario, flat: &mut Flat) {
        for (role, limit) in serving::idle_limits(scenario, &self.registry) {
            flat.0.shift_remove(&format!("{}_{limit}", role.name()));
            let Deployment { agg, prefill, decode, .. } = &mut scenario.deployment;
            let pool = match role {
                record::Role::Agg => agg,
                record::Role::Prefill => prefill,
                record::Role::Decode => decode,
            };
            let Some(Pool { engine, .. }) = pool else { continue };
            let usual = EngineOptions::for_backend(engine.backend);
            match limit {
                "max_num_seqs" => engine.max_num_seqs = usual.max_num_seqs,
                _ => engine.max_num_batched_tokens = usual.max_num_batched_tokens,
            }
        }
    }

    /// The scheduler of a candidate, if it is not its backend's own.
    fn scheduler(&self, point: &Point) -> Option<&PolicyConfig> {
        let chosen = self.choices.scheduler.get(self.active_choice(point, "scheduler")?)?;
        (chosen.policy != BACKEND_SCHEDULER).then_some(chosen)
    }

    fn pool(&self, point: &Point, placement: &Placement, plan: &RolePlan) -> Pool {
        let space = &self.config.search_space;
        let RolePlan { role, shape, blocks } = plan;
        let mut engine = EngineOptions::for_backend(placement.backend);
        engine.block_size = role.block_size(space);
        if engine.backend == Backend::Sglang {
            engine.sglang = SglangOptions::of_blocks(engine.block_size);
        }
        engine.gpu_memory_utilization = role.gpu_memory_utilization(space);
        engine.enable_prefix_caching = role.enable_prefix_caching(space);
        engine.max_num_batched_tokens = Some(self.batch_choice(point, role.batched_tokens_knob()));
        engine.max_num_seqs = Some(self.batch_choice(point, role.sequences_knob()));
        engine.aic_nextn = space.aic_nextn;
        engine.scheduler = self.scheduler(point).cloned().map(Box::new);
        if let Some((blocks, source)) = *blocks {
            engine.num_gpu_blocks = blocks;
            engine.capacity_source = source;
        }
        let mut timing = profile::narrowed(&space.timing, shape, self.version(placement.backend));
        timing.settle((*role != Role::Decode).then_some(engine.first_token_decode));
        let memory = match &timing {
            TimingConfig::Roofline(estimate) if engine.capacity_source == CapacitySource::MemoryModel => {
                estimate.memory().map(Box::new)
            }
            _ => None,
        };
        Pool {
            workers: shape.replicas,
            dp_size: shape.attention_dp,
            tensor_parallel_size: shape.tp,
            startup_time_s: self
                .scaling_policy(point)
                .scales()
                .then_some(space.startup_time)
                .flatten()
                .unwrap_or(0.0),
            router: None,
            engine,
            timing,
            memory,
            ..Pool::default()
        }
    }

    /// The version of an engine's profile.
    fn version(&self, backend: Backend) -> Option<&str> {
        let version = self.versions.iter().find(|(engine, _)| *engine == backend);
        version.map(|(_, version)| version.as_str())
    }

    /// The chosen router with the weights that the search chooses for it.
    fn router(&self, point: &Point) -> PolicyConfig {
        let mut router = self.choices.router_mode[self.choice(point, "router_mode")].clone();
        for (name, weight) in self.weights(point) {
            router.fields.insert(name.into(), weight);
        }
        router
    }

    /// The router weights that have an effect at this point.
    fn weights<'a>(&'a self, point: &'a Point) -> impl Iterator<Item = (&'static str, Value)> + 'a {
        self.space.dimensions().iter().enumerate().filter_map(|(place, dimension)| {
            let of_router =
                dimension.condition.as_ref().is_some_and(|condition| condition.dimension == ROUTER_MODE);
            let active = of_router && self.space.is_active(&point.choices, place);
            active.then(|| (dimension.name, dimension.choices[point.choices[place] as usize].clone()))
        })
    }

    fn flat(&self, point: &Point, placement: &Placement) -> Flat {
        let mut flat = Flat::default();
        self.put_deployment(placement.backend, &mut flat);
        put_shapes(self.mode, placement, &mut flat);
        self.put_engines(point, &mut flat);
        self.put_router(point, &mut flat);
        self.put_planner(point, &mut flat);
        if let Some(version) = self.version(placement.backend) {
            flat.put("backend_version", &version);
        }
        if let LoadShape::Concurrency { concurrency, .. } = self.config.workload.load {
            flat.put("concurrency", &concurrency);
        }
        flat
    }

    /// What a share of the cache came to.
    fn put_load(&self, roles: &[RolePlan], load: Option<KvLoad>, flat: &mut Flat) {
        let Some(load) = load else { return };
        flat.put("kv_load_ratio", &load.ratio);
        flat.put("concurrency", &load.concurrency);
        flat.put("kv_load_concurrency_capacity", &load.capacity_requests);
        flat.put("kv_load_capacity_tokens", &load.capacity_tokens);
        for plan in roles {
            let tokens = plan.capacity_tokens(plan.role.block_size(&self.config.search_space));
            flat.put(&format!("{}_kv_capacity_tokens", plan.role.name()), &tokens);
        }
    }

    fn put_deployment(&self, backend: Backend, flat: &mut Flat) {
        let space = &self.config.search_space;
        flat.put("deployment_mode", &self.mode);
        flat.put("backend", &backend);
        flat.put("model_name", &space.model_name);
        flat.put("hardware_sku", &space.hardware_sku);
        flat.put("gpu_budget", &space.gpu_budget);
        flat.put("min_gpu_budget", &space.min_gpu_budget);
        flat.put("min_endpoint", &space.min_endpoint);
        flat.put("context_length", &space.context_length);
        flat.put("startup_time", &space.startup_time);
        flat.put("aic_nextn", &space.aic_nextn);
        flat.put("num_g2_blocks", &space.num_g2_blocks);
        flat.put("kv_bytes_per_token", &space.kv_bytes_per_token);
        flat.put("bandwidth_g1_to_g2_gbps", &space.bandwidth_g1_to_g2_gbps);
        flat.put("bandwidth_g2_to_g1_gbps", &space.bandwidth_g2_to_g1_gbps);
        flat.put("offload_batch_size", &space.offload_batch_size);
    }

    fn put_engines(&self, point: &Point, flat: &mut Flat) {
        let space = &self.config.search_space;
        if let Some(choice) = self.active_choice(point, "scheduler") {
            flat.put("scheduler", &policy_value(&self.choices.scheduler[choice]));
        }
        for (name, _) in &self.choices.batches {
            flat.put(name, &self.batch_choice(point, name));
        }
        for role in Role::of_mode(self.mode) {
            let name = role.name();
            flat.put(&format!("{name}_block_size"), &role.block_size(space));
            flat.put(&format!("{name}_gpu_memory_utilization"), &role.gpu_memory_utilization(space));
            flat.put(&format!("{name}_enable_prefix_caching"), &role.enable_prefix_caching(space));
        }
    }

    fn put_router(&self, point: &Point, flat: &mut Flat) {
        let space = &self.config.search_space;
        let router = &self.choices.router_mode[self.choice(point, "router_mode")];
        flat.put("router_mode", &policy_value(router));
        if router.policy != KV_ROUTER {
            return;
        }
        for (name, weight) in self.weights(point) {
            flat.put(name, &weight);
        }
        flat.put("active_decode_blocks_threshold", &space.active_decode_blocks_threshold);
        flat.put("active_prefill_tokens_threshold", &space.active_prefill_tokens_threshold);
        flat.put("active_prefill_tokens_threshold_frac", &space.active_prefill_tokens_threshold_frac);
        flat.put("no_admission_control", &space.no_admission_control);
    }

    fn put_planner(&self, point: &Point, flat: &mut Flat) {
        let policy = self.scaling_policy(point);
        flat.put("planner_scaling_policy", policy);
        if let Some(settings) = policy.settings() {
            flat.put("enable_throughput_scaling", &settings.enable_throughput_scaling);
            flat.put("enable_load_scaling", &settings.enable_load_scaling);
            if policy.scales() {
                flat.0.extend(self.planner_settings(point, settings));
            }
        }
    }

    fn scaling_policy(&self, point: &Point) -> &ScalingPolicy {
        &self.choices.planner_scaling_policy[self.choice(point, "planner_scaling_policy")]
    }

    /// Whether a knob that a branch need not have has an effect at a point, and the place of its choice.
    fn active_choice(&self, point: &Point, name: &str) -> Option<usize> {
        let place = self.space.dimensions().iter().position(|dimension| dimension.name == name)?;
        self.space.is_active(&point.choices, place).then(|| point.choices[place] as usize)
    }

    /// The settings of the built-in planner that the search chooses and that reach it.
    fn planner_settings(&self, point: &Point, settings: &ScalingSettings) -> Map<String, Value> {
        let mut fields = Flat::default();
        if settings.enable_throughput_scaling {
            fields.put(
                "throughput_adjustment_interval_seconds",
                &settings.throughput_adjustment_interval_seconds,
            );
        }
        if settings.load_adjustment_interval_seconds.is_some() {
            fields.put("load_adjustment_interval_seconds", &settings.load_adjustment_interval_seconds);
        }
        if let Some(choice) = self.active_choice(point, "planner_fpm_sampling") {
            let sampling = &self.choices.planner_fpm_sampling[choice].values;
            fields.put("max_num_fpm_samples", &sampling.max_num_fpm_samples);
            fields.put("fpm_sample_bucket_size", &sampling.fpm_sample_bucket_size);
        }
        if let Some(choice) = self.active_choice(point, "planner_load_sensitivity") {
            let sensitivity = &self.choices.planner_load_sensitivity[choice].values;
            fields.put("load_scaling_down_sensitivity", &sensitivity.load_scaling_down_sensitivity);
            fields.put("load_min_observations", &sensitivity.load_min_observations);
        }
        if settings.enable_throughput_scaling {
            fields.0.extend(self.forecasts.settings(settings.throughput_adjustment_interval_seconds));
        }
        fields.0
    }

    /// The planner of a candidate: what the search chooses, aimed at the goal and bound by the budget. The replicas of the
    /// layout are what it starts with.
    fn planner(&self, point: &Point) -> Option<PolicyConfig> {
        let policy = self.scaling_policy(point);
        let settings = match policy {
            ScalingPolicy::Registered(config) => return Some(config.clone()),
            ScalingPolicy::Builtin(preset) => &preset.values,
        };
        if !policy.scales() {
            return None;
        }
        let space = &self.config.search_space;
        let target = self.choices.planner_target;
        let mut fields = Flat::default();
        fields.put("optimization_target", &target.name());
        if target == PlannerTarget::Sla {
            fields.put("enable_throughput_scaling", &settings.enable_throughput_scaling);
            fields.put("enable_load_scaling", &settings.enable_load_scaling);
            let sla = self.config.goal.sla.unwrap_or_default();
            fields.put("ttft_ms", &sla.ttft_ms);
            fields.put("itl_ms", &sla.itl_ms);
        }
        fields.0.extend(self.planner_settings(point, settings));
        fields.put("max_gpu_budget", &space.gpu_budget);
        if let Some(gpus) = space.min_gpu_budget {
            fields.put("min_gpu_budget", &gpus);
        }
        if let Some(workers) = space.min_endpoint {
            fields.put("min_endpoint", &workers);
        }
        Some(PolicyConfig { fields: fields.0, ..PolicyConfig::named(BUILTIN_PLANNER) })
    }
}

#[derive(Default)]
struct Flat(Map<String, Value>);

impl Flat {
    fn put(&mut self, name: &str, setting: &impl Serialize) {
        self.0.insert(name.into(), value(setting));
    }
}

/// The shape of every role, its name in front in a mode of two.
fn put_shapes(mode: DeploymentMode, placement: &Placement, flat: &mut Flat) {
    for role in Role::of_mode(mode) {
        let Some(shape) = role.shape(&placement.layout) else { continue };
        let prefix = if mode == DeploymentMode::Agg { String::new() } else { format!("{}_", role.name()) };
        flat.put(&format!("{prefix}tp"), &shape.tp);
        flat.put(&format!("{prefix}pp"), &shape.pp);
        flat.put(&format!("{prefix}attention_dp"), &shape.attention_dp);
        flat.put(&format!("{prefix}moe_tp"), &shape.moe_tp);
        flat.put(&format!("{prefix}moe_ep"), &shape.moe_ep);
        flat.put(&format!("{prefix}strategy"), &layout::strategy(&shape));
        flat.put(&format!("{prefix}replicas"), &shape.replicas);
    }
    flat.put("used_gpus", &layout::used_gpus(&placement.layout));
}
