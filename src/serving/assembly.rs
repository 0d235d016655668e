//! From a scenario to actors, and what must hold when they are done.

use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use super::client::Client;
use super::message::{RouterMessage, Serving, WorkerId, WorkerMessage};
use super::recorder::Recorder;
use super::router::{Needs, Router};
use super::worker::{Listeners, Worker};
use crate::config::scenario::{Backend, DeploymentMode, KvEvictionPolicy, Pool, Scenario, TimingConfig};
use crate::engine::Engine;
use crate::engine::vllm::VllmEngine;
use crate::registry::{PolicyError, Registry};
use crate::report::record::{PoolRecord, Role, RunRecord, Status};
use crate::simulation::{Address, Limits, SimTime, Simulation, SimulationError};
use crate::timing::{Fixed, PassPricer, Polynomial, TimingModel};
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

/// What may end a replay early from outside.
#[derive(Clone, Debug, Default)]
pub struct ReplayLimits {
    /// Set to stop the replay, which then fails with [`ReplayError::Interrupted`].
    pub interrupt: Option<Arc<AtomicBool>>,
}

/// Why a replay could not be carried out.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ReplayError {
    /// The scenario asks for what cannot be built; found before anything runs. One line for each problem.
    #[error("{0}")]
    Refused(String),
    /// The run itself failed: a violated law, a stall, a run-away loop.
    #[error("{0}")]
    Failed(String),
    /// Stopped from outside.
    #[error("interrupted")]
    Interrupted,
}

impl From<PolicyError> for ReplayError {
    fn from(error: PolicyError) -> Self {
        Self::Refused(error.to_string())
    }
}

impl From<SimulationError> for ReplayError {
    fn from(error: SimulationError) -> Self {
        match error {
            SimulationError::Interrupted => Self::Interrupted,
            error => Self::Failed(error.to_string()),
        }
    }
}

/// What a scenario asks for that is validated but not built, one line each.
pub fn unsupported(scenario: &Scenario) -> Vec<String> {
    let deployment = &scenario.deployment;
    let mut problems = Vec::new();
    let mut refuse = |refused: bool, what: &str| {
        if refused {
            problems.push(what.to_string());
        }
    };
    refuse(deployment.mode == DeploymentMode::Disagg, "deployment.mode: disagg is not built yet");
    refuse(deployment.planner.is_some(), "deployment.planner: planners are not built yet");
    if let Some(pool) = &deployment.agg {
        let engine = &pool.engine;
        refuse(pool.dp_size > 1, "deployment.agg.dp_size: attention data parallelism is not built yet");
        refuse(engine.backend != Backend::Vllm, "engine.backend: only vllm is built yet");
        refuse(
            engine.kv_eviction_policy != KvEvictionPolicy::Lru,
            "engine.kv_eviction_policy: only lru is built yet",
        );
        refuse(engine.aic_nextn.is_some(), "engine.aic_nextn: speculative decoding is not built yet");
        refuse(
            engine.prefill_schedule_interval > 1,
            "engine.prefill_schedule_interval: needs dp_size above 1",
        );
        refuse(engine.prefill_decode_interval > 0, "engine.prefill_decode_interval: needs backend sglang");
        refuse(matches!(pool.timing, TimingConfig::Grid { .. }), "timing.model: grid is not built yet");
        refuse(matches!(pool.timing, TimingConfig::Profile { .. }), "timing.model: profile is not built yet");
    }
    problems
}

/// Replays `traffic` on the deployment of `scenario`.
pub fn replay(
    scenario: &Scenario,
    traffic: &Traffic,
    registry: &Registry,
    limits: &ReplayLimits,
) -> Result<RunRecord, ReplayError> {
    let problems = unsupported(scenario);
    if !problems.is_empty() {
        return Err(ReplayError::Refused(problems.join("\n")));
    }
    let pool = scenario
        .deployment
        .agg
        .as_ref()
        .ok_or_else(|| ReplayError::Refused("deployment.agg: required in mode agg".into()))?;
    let mut simulation = assemble(scenario.seed, pool, scenario, traffic, registry)?;
    let until = match scenario.max_sim_time_ms {
        None => SimTime::MAX,
        Some(ms) => {
            SimTime::from_ms(ms).map_err(|error| ReplayError::Refused(format!("max_sim_time_ms: {error}")))?
        }
    };
    let run_limits = Limits { until, interrupt: limits.interrupt.clone(), ..Limits::default() };
    let last_event = simulation.run(&run_limits)?;
    let waiting = simulation.waiting();
    let mut recorder = simulation.into_record();
    recorder.happened(last_event);
    let mut record = recorder.into_record();
    if until == SimTime::MAX {
        check_nothing_lost(&record, &waiting)?;
    }
    record.pools.push(PoolRecord {
        role: Role::Agg,
        gpus_per_worker: pool.gpus_per_worker(),
        worker_ns: u128::from(pool.workers) * u128::from(record.end.as_ns()),
    });
    Ok(record)
}

fn assemble(
    seed: u64,
    pool: &Pool,
    scenario: &Scenario,
    traffic: &Traffic,
    registry: &Registry,
) -> Result<Simulation<Serving>, ReplayError> {
    let Traffic { workload, tree } = traffic;
    assert_eq!(pool.engine.block_size, tree.block_size(), "traffic is prepared for the engine's block size");
    let policy = registry.router(&scenario.deployment.router)?;
    let needs = policy.needs();
    let mut simulation = Simulation::new(seed, Recorder::new(workload.requests.len()));
    let client = simulation.reserve("client");
    let router: Address<RouterMessage> = simulation.reserve("router");
    let workers: Vec<Address<WorkerMessage>> =
        (0..pool.workers).map(|worker| simulation.reserve(format!("worker/{worker}"))).collect();
    let listeners = Listeners {
        client: Client::wants_ends(workload).then_some(client),
        router_load: needs.load.then_some(router),
        router_kv: needs.overlap.then_some(router),
    };
    for (worker, &address) in workers.iter().enumerate() {
        let engine = build_engine(pool, traffic, needs);
        simulation.install(address, Worker::new(WorkerId(worker as u32), Role::Agg, engine, listeners));
    }
    simulation.install(client, Client::new(workload.clone(), router));
    simulation.install(router, Router::new(policy, workload.clone(), tree.clone(), workers));
    Ok(simulation)
}

fn build_engine(pool: &Pool, traffic: &Traffic, needs: Needs) -> Box<dyn Engine> {
    let options = &pool.engine;
    let pricer = PassPricer::new(build_timing(pool), options.speedup_ratio, options.decode_speedup_ratio);
    let (workload, tree) = (traffic.workload.clone(), traffic.tree.clone());
    Box::new(VllmEngine::new(options, workload, tree, pricer, needs.overlap))
}

fn build_timing(pool: &Pool) -> Arc<dyn TimingModel> {
    match pool.timing {
        TimingConfig::Fixed { prefill_ms, decode_ms } => Arc::new(Fixed { prefill_ms, decode_ms }),
        TimingConfig::Polynomial => {
            let capacity = u64::from(pool.engine.num_gpu_blocks) * u64::from(pool.engine.block_size);
            Arc::new(Polynomial::new(capacity))
        }
        TimingConfig::Grid { .. } | TimingConfig::Profile { .. } => unreachable!("refused before assembly"),
    }
}

/// Every request was injected and came to an end; otherwise the run stalled, and the actors say who waits for what.
fn check_nothing_lost(record: &RunRecord, waiting: &[(String, String)]) -> Result<(), ReplayError> {
    let ended = |status| matches!(status, Status::Completed | Status::Rejected);
    let lost: Vec<_> = (0..record.requests.len()).filter(|&id| !ended(record.requests[id].status)).collect();
    let Some(&first) = lost.first() else { return Ok(()) };
    let status = record.requests[first].status;
    let mut message = format!(
        "the replay came to a halt at {} with {} of {} requests not ended; the first is request {first} ({status:?})",
        record.end,
        lost.len(),
        record.requests.len(),
    );
    for (path, reason) in waiting {
        let _ = write!(message, "\n  {path}: {reason}");
    }
    Err(ReplayError::Failed(message))
}
