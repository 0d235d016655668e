//! From a scenario to actors.

use std::sync::Arc;

use super::capacity::sized;
use super::client::{Client, SteeredBy};
use super::error::ReplayError;
use super::fleet::{Fleet, FleetPool, ScriptedChange};
use super::link::Link;
use super::message::{
    ClientMessage, FleetMessage, LinkMessage, PlannerMessage, RouterMessage, Serving, WorkerMessage,
};
use super::planner::ticks::too_many_ticks;
use super::planner::{Planner, PlannerWiring, PoolSetup, Setup};
use super::pool::{HandoffWiring, WorkerMaker};
use super::predictor::Predictor;
use super::pricing::Pricing;
use super::recorder::Recorder;
use super::router::{RoutedPool, Router, RoutingPolicy};
use super::scheduler::engine_pool;
use super::worker::{HandoffOrder, Listeners, Transfer};
use crate::config::scenario::{
    Backend, Deployment, DeploymentMode, EngineOptions, KvEvictionPolicy, KvTransfer, LinkSharing, Pool,
    PoolName, PreemptionMode, ReplicaChange, Scenario,
};
use crate::engine::kv::FutureUses;
use crate::engine::{Inputs, NewEngine};
use crate::registry::{NewPlanner, Registry};
use crate::report::record::Role;
use crate::simulation::{Address, SimDuration, SimTime, Simulation};
use crate::timing::PassPricer;
use crate::workload::Workload;
use crate::workload::prefix::PrefixTree;

/// A workload prepared for engines of one block size; cheap to clone and shared by all replays of a search.
#[derive(Clone, Debug)]
pub struct Traffic {
    workload: Arc<Workload>,
    tree: Arc<PrefixTree>,
}

impl Traffic {
    /// Works out which prompts share which blocks.
    pub fn new(workload: Arc<Workload>, block_size: u32) -> Self {
        let tree = Arc::new(PrefixTree::build(&workload, block_size));
        Self { workload, tree }
    }

    /// The requests.
    pub fn workload(&self) -> &Arc<Workload> {
        &self.workload
    }

    /// Tokens per KV block.
    pub fn block_size(&self) -> u32 {
        self.tree.block_size()
    }
}

/// What a scenario asks for that is validated but not built, or does not go together; one line each.
pub fn unsupported(scenario: &Scenario) -> Vec<String> {
    let deployment = &scenario.deployment;
    let mut problems = sized(scenario).err().unwrap_or_default();
    let changes = deployment.planner.is_some() || !deployment.replica_changes.is_empty();
    for (role, pool) in pools(scenario) {
        refuse_pool(role, pool, changes, &mut problems);
        if let Err(problem) = Pricing::of(pool, &scenario.facts) {
            problems.push(format!("deployment.{}.{problem}", role.name()));
        }
    }
    if let (Some(prefill), Some(decode)) = (&deployment.prefill, &deployment.decode) {
        let mut same = |equal: bool, field: &str| {
            if !equal {
                problems.push(format!(
                    "deployment.decode.engine.{field}: has to be the same as in deployment.prefill"
                ));
            }
        };
        same(prefill.engine.backend == decode.engine.backend, "backend");
        same(prefill.engine.block_size == decode.engine.block_size, "block_size");
    }
    problems
}

fn refuse_pool(role: Role, pool: &Pool, deployment_changes: bool, problems: &mut Vec<String>) {
    let (name, engine) = (role.name(), &pool.engine);
    // What a scheduler of one's own goes by is for itself to say.
    let is_own = engine.scheduler.is_some();
    let sglang = engine.backend == Backend::Sglang && !is_own;
    let mut refuse = |refused: bool, what: &str| {
        if refused {
            problems.push(format!("deployment.{name}.{what}"));
        }
    };
    let cadence = engine.prefill_schedule_interval > 1;
    let trtllm = engine.backend == Backend::Trtllm && !is_own;
    refuse(
        pool.startup_time_s > 0.0 && !deployment_changes,
        "startup_time_s: has an effect with a planner or replica_changes only",
    );
    refuse(
        engine.first_token_decode && (role != Role::Agg || sglang),
        "engine.first_token_decode: has an effect in a pool that does both phases, with vllm or trtllm, only",
    );
    refuse(
        engine.decode_speedup_ratio != 1.0 && role == Role::Prefill,
        "engine.decode_speedup_ratio: has no effect in a prefill pool",
    );
    refuse(
        engine.preemption_mode != PreemptionMode::Lifo && trtllm,
        "engine.preemption_mode: has no effect with backend trtllm, where nobody gives way",
    );
    refuse(
        foresees(engine) && sglang,
        "engine.kv_eviction_policy: belady is not built with backend sglang, whose cache is another",
    );
    refuse(
        foresees(engine) && !engine.enable_prefix_caching,
        "engine.kv_eviction_policy: has no effect without enable_prefix_caching",
    );
    refuse(
        cadence && pool.dp_size == 1,
        "engine.prefill_schedule_interval: has an effect with dp_size above 1 only",
    );
    refuse(
        cadence && engine.backend != Backend::Vllm && !is_own,
        "engine.prefill_schedule_interval: needs backend vllm",
    );
    refuse(
        engine.prefill_decode_interval > 0 && !sglang && !is_own,
        "engine.prefill_decode_interval: needs backend sglang",
    );
    refuse(
        engine.aic_nextn.is_some_and(|drafts| drafts > 0) && sglang,
        "engine.aic_nextn: speculative decoding is not built with backend sglang",
    );
    refuse(
        engine.aic_nextn.is_some_and(|drafts| drafts > 0) && engine.decode_speedup_ratio != 1.0,
        "engine.decode_speedup_ratio: has to be 1 with speculative decoding",
    );
}

/// Whether an engine evicts by what the workload will ask for.
fn foresees(engine: &EngineOptions) -> bool {
    engine.kv_eviction_policy == KvEvictionPolicy::Belady
}

/// The pools of a deployment with their roles, in the order in which requests pass through them.
pub(super) fn pools(scenario: &Scenario) -> Vec<(Role, &Pool)> {
    let Deployment { mode, agg, prefill, decode, .. } = &scenario.deployment;
    let pools = match mode {
        DeploymentMode::Agg => vec![(Role::Agg, agg)],
        DeploymentMode::Disagg => vec![(Role::Prefill, prefill), (Role::Decode, decode)],
    };
    pools.into_iter().filter_map(|(role, pool)| Some((role, pool.as_ref()?))).collect()
}

/// A pool under assembly.
struct PoolPlan<'a> {
    role: Role,
    pool: &'a Pool,
    router: Address<RouterMessage>,
    policy: Box<dyn RoutingPolicy>,
    scheduler: Option<Arc<dyn NewEngine>>,
    /// Address of the worker of each rank.
    workers: Vec<Address<WorkerMessage>>,
    pricing: &'a Pricing,
}

impl PoolPlan<'_> {
    /// Address of each worker.
    fn worker_addresses(&self) -> Vec<Address<WorkerMessage>> {
        self.workers.iter().copied().step_by(self.pool.dp_size as usize).collect()
    }
}

/// What prices the passes of each pool.
pub(super) fn pricings(scenario: &Scenario) -> Result<Vec<(Role, Pricing)>, ReplayError> {
    let price = |(role, pool): (Role, &Pool)| {
        let refuse = |problem| ReplayError::Refused(format!("deployment.{}.{problem}", role.name()));
        Ok((role, Pricing::of(pool, &scenario.facts).map_err(refuse)?))
    };
    pools(scenario).into_iter().map(price).collect()
}

/// The actors of a scenario, wired and ready to run.
pub(super) fn assemble(
    scenario: &Scenario,
    traffic: &Traffic,
    registry: &Registry,
    pricings: &[(Role, Pricing)],
) -> Result<Simulation<Serving>, ReplayError> {
    let workload = &traffic.workload;
    let mut simulation = Simulation::new(scenario.seed, Recorder::new(workload.requests.len()));
    let client = simulation.reserve("client");
    let mut plans = Vec::new();
    for ((role, pool), (_, pricing)) in pools(scenario).into_iter().zip(pricings) {
        plans.push(plan_pool(role, pool, pricing, scenario, &mut simulation, registry)?);
    }
    let order = HandoffOrder::of(scenario);
    let entry = match order {
        HandoffOrder::SourceFirst => plans.first(),
        HandoffOrder::DestinationFirst => plans.last(),
    };
    let Some(entry) = entry.map(|plan| plan.router) else {
        return Err(ReplayError::Refused("deployment: has no workers".into()));
    };
    let routers: Vec<_> = plans.iter().map(|plan| plan.router).collect();
    let link = plans.last().and_then(|decode| install_link(scenario, decode, &mut simulation));
    let changes = scripted_changes(scenario)?;
    let new_planner = match &scenario.deployment.planner {
        Some(config) => registry.planner(config, scenario.deployment.mode)?,
        None => None,
    };
    let endless = new_planner.as_ref().and_then(|planner| too_many_ticks(scenario, workload, planner));
    if let Some(problem) = endless {
        return Err(ReplayError::Refused(problem));
    }
    let is_steered = !changes.is_empty() || new_planner.is_some();
    let fleet = is_steered.then(|| simulation.reserve("fleet"));
    let planner = new_planner.is_some().then(|| simulation.reserve("planner"));
    let client_listens = (Client::wants_ends(workload) || fleet.is_some()).then_some(client);
    let mut fleet_pools = Vec::new();
    for (index, plan) in plans.into_iter().enumerate() {
        // A hand-off crosses from the one pool to the other.
        let other_router = routers.iter().copied().enumerate().find(|&(other, _)| other != index);
        let wiring = Wiring {
            client: client_listens,
            other_router: other_router.map(|(_, router)| router),
            link,
            order,
            fleet: fleet.map(|fleet| (fleet, index as u8)),
            planner,
        };
        let startup = startup_time(plan.role, plan.pool)?;
        let (router, workers) = (plan.router, plan.worker_addresses());
        let maker = install_pool(plan, &wiring, scenario, traffic, &mut simulation);
        fleet_pools.push(FleetPool::new(maker, router, startup, &workers));
    }
    let steered_by = SteeredBy { fleet, planner };
    simulation.install(client, Client::new(workload.clone(), entry, steered_by));
    if let Some(fleet) = fleet {
        if let (Some(new), Some(planner)) = (new_planner, planner) {
            let setups: Vec<_> = fleet_pools.iter().map(FleetPool::setup).collect();
            install_planner(new, planner, fleet, setups, scenario, workload, &mut simulation);
        }
        simulation.install(fleet, Fleet::new(fleet_pools, planner, changes));
    }
    Ok(simulation)
}

fn install_planner(
    new: NewPlanner,
    planner: Address<PlannerMessage>,
    fleet: Address<FleetMessage>,
    setups: Vec<PoolSetup>,
    scenario: &Scenario,
    workload: &Arc<Workload>,
    simulation: &mut Simulation<Serving>,
) {
    let NewPlanner { mut policy, forecasters } = new;
    let predictor = forecasters.map(|forecasters| {
        let predictor = simulation.reserve("predictor");
        simulation.install(predictor, Predictor::new(planner, forecasters));
        predictor
    });
    let pools = setups.iter().map(|setup| (setup.role, setup.dp_size)).collect();
    let mode = scenario.deployment.mode;
    policy.attach(&Setup { mode, pools: setups, workload: workload.clone() });
    let wiring = PlannerWiring { fleet, predictor };
    simulation.install(planner, Planner::new(policy, wiring, pools, workload.clone()));
}

/// Changes of the fleet that the scenario prescribes.
fn scripted_changes(scenario: &Scenario) -> Result<Vec<ScriptedChange>, ReplayError> {
    let place = |role| pools(scenario).iter().position(|&(other, _)| other == role);
    let change = |change: &ReplicaChange| {
        let refuse = |problem: String| ReplayError::Refused(format!("deployment.replica_changes: {problem}"));
        let at = SimTime::from_ms(change.at_ms).map_err(|error| refuse(error.to_string()))?;
        let pool = place(role_of(change.pool))
            .ok_or_else(|| refuse(format!("there is no pool `{}`", role_of(change.pool).name())))?;
        Ok(ScriptedChange { at, pool: pool as u8, workers: change.workers })
    };
    scenario.deployment.replica_changes.iter().map(change).collect()
}

pub(super) fn role_of(pool: PoolName) -> Role {
    match pool {
        PoolName::Agg => Role::Agg,
        PoolName::Prefill => Role::Prefill,
        PoolName::Decode => Role::Decode,
    }
}

fn startup_time(role: Role, pool: &Pool) -> Result<SimDuration, ReplayError> {
    SimDuration::from_seconds(pool.startup_time_s)
        .map_err(|error| ReplayError::Refused(format!("deployment.{}.startup_time_s: {error}", role.name())))
}

/// What the workers of a pool are connected to.
struct Wiring {
    client: Option<Address<ClientMessage>>,
    other_router: Option<Address<RouterMessage>>,
    link: Option<Address<LinkMessage>>,
    order: HandoffOrder,
    fleet: Option<(Address<FleetMessage>, u8)>,
    planner: Option<Address<PlannerMessage>>,
}

/// Puts a link between two pools if their transfers share one.
fn install_link(
    scenario: &Scenario,
    decode: &PoolPlan<'_>,
    simulation: &mut Simulation<Serving>,
) -> Option<Address<LinkMessage>> {
    let KvTransfer { sharing, bandwidth_gbps, bytes_per_token, .. } = scenario.deployment.kv_transfer;
    if decode.role != Role::Decode || sharing == LinkSharing::None {
        return None;
    }
    let address = simulation.reserve("link");
    simulation.install(address, Link::new(sharing, bandwidth_gbps?, bytes_per_token?));
    Some(address)
}

fn plan_pool<'a>(
    role: Role,
    pool: &'a Pool,
    pricing: &'a Pricing,
    scenario: &Scenario,
    simulation: &mut Simulation<Serving>,
    registry: &Registry,
) -> Result<PoolPlan<'a>, ReplayError> {
    let mut policy = registry.router(pool.router.as_deref().unwrap_or(&scenario.deployment.router))?;
    policy.serve_role(role);
    if pool.router.is_none() {
        policy.derive_for(role);
    }
    let scheduler = registry.engine(&engine_pool(role, pool))?.map(Arc::from);
    let prefix = if role == Role::Agg { String::new() } else { format!("{}/", role.name()) };
    let router = simulation.reserve(format!("{prefix}router"));
    let workers = (0..pool.workers).flat_map(|worker| {
        let address = simulation.reserve(format!("{prefix}worker/{worker}"));
        std::iter::repeat_n(address, pool.dp_size as usize)
    });
    Ok(PoolPlan { role, pool, router, policy, scheduler, workers: workers.collect(), pricing })
}

fn install_pool(
    plan: PoolPlan<'_>,
    wiring: &Wiring,
    scenario: &Scenario,
    traffic: &Traffic,
    simulation: &mut Simulation<Serving>,
) -> WorkerMaker {
    let addresses = plan.worker_addresses();
    let PoolPlan { role, pool, router, policy, scheduler, workers, pricing } = plan;
    let needs = policy.needs();
    let listeners = Listeners {
        client: wiring.client,
        router_load: needs.hears_of_load().then_some(router),
        router_kv: needs.hears_of_caches().then_some(router),
        fleet: wiring.fleet,
        planner: wiring.planner,
    };
    let transfer = Transfer::new(scenario.deployment.kv_transfer);
    let block_size = traffic.block_size();
    assert_eq!(pool.engine.block_size, block_size, "traffic is prepared for the engine's block size");
    let handoff = wiring.other_router.map(|router| HandoffWiring {
        order: wiring.order,
        router,
        transfer,
        link: wiring.link,
    });
    let inputs = engine_inputs(pool, pricing, traffic);
    let maker = WorkerMaker { role, pool: pool.clone(), scheduler, inputs, listeners, handoff };
    for (number, &address) in addresses.iter().enumerate() {
        simulation.install(address, maker.make(number as u32, address));
    }
    let (workload, tree) = (traffic.workload.clone(), traffic.tree.clone());
    let routed = RoutedPool {
        workers,
        dp_size: pool.dp_size,
        max_num_batched_tokens: pool.engine.max_num_batched_tokens,
        role,
        relay: role != Role::Agg,
        // In a fleet of two pools prompts are placed by the first.
        planner: wiring.planner.filter(|_| role != Role::Decode),
    };
    simulation.install(router, Router::new(policy, workload, tree, routed));
    maker
}

/// What the engines of a pool share.
fn engine_inputs(pool: &Pool, pricing: &Pricing, traffic: &Traffic) -> Inputs {
    let options = &pool.engine;
    let future = foresees(options).then(|| Arc::new(FutureUses::of(&traffic.workload, &traffic.tree)));
    Inputs {
        workload: traffic.workload.clone(),
        tree: traffic.tree.clone(),
        future,
        pricer: PassPricer::new(pricing.model.clone(), options.speedup_ratio, options.decode_speedup_ratio),
    }
}
