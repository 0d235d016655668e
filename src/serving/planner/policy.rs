//! What a planning policy sees and answers.

use std::sync::Arc;

use super::traffic::TrafficWindow;
use crate::config::scenario::{DeploymentMode, PolicyConfig};
use crate::engine::metrics::{Accepted, PassMetrics};
use crate::report::record::Role;
use crate::report::scaling::Proposal;
use crate::serving::fleet::PoolState;
use crate::serving::predictor::Forecast;
use crate::simulation::{SimDuration, SimTime};
use crate::timing::PassPricer;
use crate::workload::Workload;

/// Decides how many workers each pool shall have.
///
/// A policy's fields are its configuration (derive `Deserialize` with `deny_unknown_fields`; mark running state
/// `#[serde(skip)]`).
pub trait PlanningPolicy: Send {
    /// Told once, before anything else, what it steers.
    fn attach(&mut self, _setup: &Setup) {}

    /// Time between two ticks; the first comes so long after the start.
    fn tick_interval(&self) -> SimDuration;

    /// What the policy wants to see at a tick.
    fn looks_at(&self, _now: SimTime) -> Interest {
        Interest::default()
    }

    /// The load predictor that makes forecasts, if the policy wants any.
    fn predictor(&self) -> Option<PolicyConfig> {
        None
    }

    /// A problem of that predictor, `field: what is wrong`, in terms of the policy's own fields.
    fn predictor_problem(&self, problem: &str) -> String {
        format!("load_predictor.{problem}")
    }

    /// Decides, given what was observed.
    fn plan(&mut self, observation: &Observation) -> Decision;

    /// The GPUs that the policy keeps the deployment within.
    fn gpu_bounds(&self) -> GpuBounds {
        GpuBounds::default()
    }

    /// The fewest workers that the policy keeps in a pool of this role, whatever its GPUs are bound by.
    fn least_workers(&self, _role: Role) -> u32 {
        0
    }

    /// Problems of the configuration in a deployment of this mode, one sentence each, naming the field. Without a mode, those
    /// that there are in any.
    fn problems(&self, _mode: Option<DeploymentMode>) -> Vec<String> {
        Vec::new()
    }
}

/// GPUs that a deployment may have; without a number there is no such bound.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GpuBounds {
    /// At least.
    pub least: Option<u32>,
    /// At most.
    pub most: Option<u32>,
}

/// What a policy wants to see at a tick.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interest {
    /// The traffic since the last tick at which it wanted to see that.
    pub traffic: bool,
    /// A forecast from that traffic and all before.
    pub forecast: bool,
}

impl Default for Interest {
    fn default() -> Self {
        Self { traffic: true, forecast: false }
    }
}

/// What a policy steers.
#[derive(Clone, Debug)]
pub struct Setup {
    /// One pool or two.
    pub mode: DeploymentMode,
    /// The pools, in the order in which requests pass through them.
    pub pools: Vec<PoolSetup>,
    /// Everything that will be asked. Only a policy that means to know the future may look.
    pub workload: Arc<Workload>,
}

/// A pool that a policy steers.
#[derive(Clone, Debug)]
pub struct PoolSetup {
    /// What its workers do.
    pub role: Role,
    /// Workers at the start.
    pub workers: u32,
    /// Attention-data-parallel ranks of a worker.
    pub dp_size: u32,
    /// GPUs of a worker.
    pub gpus_per_worker: u32,
    /// How long a worker takes to start.
    pub startup: SimDuration,
    /// Tokens that one pass may compute.
    pub max_num_batched_tokens: Option<u32>,
    /// Requests that may run at a time, on one rank.
    pub max_num_seqs: Option<u32>,
    /// Longest sequence.
    pub context_length: Option<u32>,
    /// Tokens per KV block.
    pub block_size: u32,
    /// KV tokens of one rank.
    pub rank_kv_tokens: u64,
    /// Draft tokens per step of speculative decoding.
    pub speculative_nextn: u32,
    /// How long passes of its workers take.
    pub pricer: PassPricer,
}

/// What a policy knows at a tick.
#[derive(Clone, Debug)]
pub struct Observation {
    /// When.
    pub now: SimTime,
    /// Number of the tick, from 0.
    pub tick: u64,
    /// The pools, in the order of [`Setup::pools`].
    pub pools: Vec<PoolObservation>,
    /// The traffic, if the policy wanted to see it.
    pub traffic: Option<TrafficWindow>,
    /// What is expected of the next window of that length, if the policy wanted that and there is an answer.
    pub forecast: Option<Forecast>,
    /// Requests that arrived and have not ended.
    pub outstanding: Outstanding,
}

/// Requests that arrived and have not ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outstanding {
    /// How many.
    pub requests: u64,
    /// Their prompt tokens.
    pub input_tokens: u64,
    /// The output tokens that they asked for.
    pub output_tokens: u64,
}

/// What a policy knows of a pool at a tick.
#[derive(Clone, Debug, Default)]
pub struct PoolObservation {
    /// Its workers.
    pub state: PoolState,
    /// The latest pass of each rank of the workers that take requests, by ascending number of the rank; those of which nothing was
    /// ever heard are missing.
    pub passes: Vec<(u32, PassMetrics)>,
    /// What speculative decoding yielded since the last tick.
    pub accepted: Accepted,
}

/// What a policy wants.
#[derive(Clone, Debug, Default)]
pub struct Decision {
    /// Workers of each pool, starting or serving; `None`, like the present number, changes nothing.
    pub targets: Vec<Option<u32>>,
    /// What each part of the policy wanted and why, for whoever reads it later.
    pub proposals: Vec<Proposal>,
    /// The rule that decided.
    pub rule: &'static str,
    /// What kept the decision from being what was proposed.
    pub clamps: Vec<&'static str>,
}
