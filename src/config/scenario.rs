//! The validated plan of one replay: what `spica replay` runs and what every trial of a search becomes.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize, Serializer};

use super::facts::FactFiles;
use super::schema::PlannerForm;

pub use super::pool::{
    Backend, CapacitySource, EngineOptions, KvEvictionPolicy, MemoryConfig, Pool, PreemptionMode,
    SglangOptions, SglangSchedulePolicy,
};
pub use super::timing::{
    GridConfig, MeasuredFile, MixedPasses, PricedModel, ProfileConfig, TimingConfig, UnevenPrompts,
};
pub use super::trace::{TraceColumns, TraceFormat, TraceRate, TraceSource, TraceTimeUnit};
pub use super::workload::{
    Arrival, ArrivalProcess, InlineRequest, Synthetic, WorkloadConfig, WorkloadSource, ZeroOutput,
};

/// One deployment under one workload.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct Scenario {
    /// The root of every random stream of the run.
    #[schemars(default = "default_seed")]
    pub seed: u64,
    /// What serves.
    pub deployment: Deployment,
    /// What is asked of it.
    pub workload: WorkloadConfig,
    /// The bounds a request has to meet to count as good.
    pub sla: Option<Sla>,
    /// The run stops before the first event later than this; events at exactly this time still happen.
    #[schemars(extend("exclusiveMinimum" = 0.0))]
    pub max_sim_time_ms: Option<f64>,
    /// Files of facts about models and GPUs that are not built in.
    #[serde(skip_serializing_if = "FactFiles::is_empty")]
    #[schemars(default)]
    pub facts: FactFiles,
}

/// What serves the requests.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct Deployment {
    /// One pool or two.
    pub mode: DeploymentMode,
    /// How requests are spread over the workers of a pool.
    #[schemars(default = "default_router")]
    pub router: PolicyConfig,
    /// The autoscaler, if any.
    #[schemars(with = "Option<PlannerForm>")]
    pub planner: Option<PolicyConfig>,
    /// The only pool of `mode: agg`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agg: Option<Pool>,
    /// The prefill pool of `mode: disagg`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prefill: Option<Pool>,
    /// The decode pool of `mode: disagg`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decode: Option<Pool>,
    /// How KV blocks travel from prefill to decode workers.
    #[schemars(default)]
    pub kv_transfer: KvTransfer,
    /// Changes of the number of workers by somebody else, beside a planner or without one.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(default)]
    pub replica_changes: Vec<ReplicaChange>,
}

/// Somebody changes the number of workers of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct ReplicaChange {
    /// When, in milliseconds.
    #[schemars(range(min = 0.0))]
    pub at_ms: f64,
    /// Which pool.
    pub pool: PoolName,
    /// Workers that are to be starting or serving from then on.
    pub workers: u32,
}

/// A pool by the key under which it is configured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum PoolName {
    /// The only pool of `mode: agg`.
    Agg,
    /// The prefill pool of `mode: disagg`.
    Prefill,
    /// The decode pool of `mode: disagg`.
    Decode,
}

impl Deployment {
    /// Tokens per KV block of the engines that take requests first.
    ///
    /// # Panics
    /// If the pools of the mode are missing, which no validated deployment is.
    pub fn block_size(&self) -> u32 {
        let pool = self.agg.as_ref().or(self.prefill.as_ref());
        pool.expect("a validated deployment has the pools of its mode").engine.block_size
    }

    /// Its pools.
    pub fn pools_mut(&mut self) -> impl Iterator<Item = &mut Pool> {
        [&mut self.agg, &mut self.prefill, &mut self.decode].into_iter().flatten()
    }

    /// GPUs of all workers at the start.
    pub fn gpus(&self) -> u64 {
        let pools = [&self.agg, &self.prefill, &self.decode].into_iter().flatten();
        pools.map(|pool| u64::from(pool.workers) * u64::from(pool.gpus_per_worker())).sum()
    }

    /// Every router that is named: the deployment's and those that pools have of their own.
    pub fn routers(&self) -> impl Iterator<Item = &PolicyConfig> {
        let pools = [&self.agg, &self.prefill, &self.decode].into_iter().flatten();
        std::iter::once(&self.router).chain(pools.filter_map(|pool| pool.router.as_deref()))
    }
}

/// The seed of a scenario that gives none.
pub(super) fn default_seed() -> u64 {
    1
}

pub(super) fn default_router() -> PolicyConfig {
    PolicyConfig::named(DEFAULT_ROUTER)
}

/// Whether prefill and decode share workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum DeploymentMode {
    /// Prefill and decode in separate pools.
    Disagg,
    /// One pool does both.
    Agg,
}

/// The router of a scenario that names none.
pub const DEFAULT_ROUTER: &str = "round_robin";

/// What the backend's own scheduler is called among schedulers.
pub const BACKEND_SCHEDULER: &str = "backend";

/// The planner of a `planner:` block without a policy's name.
pub const BUILTIN_PLANNER: &str = "planner";

/// A policy by name with the fields it was given, kept until the registry turns them into the policy.
///
/// Two of them are equal when they say the same, wherever they were written.
#[derive(Clone, Debug, Serialize)]
pub struct PolicyConfig {
    /// The name under which the policy is registered.
    pub policy: String,
    /// Its own fields, as written.
    #[serde(flatten)]
    pub fields: serde_json::Map<String, serde_json::Value>,
    /// The path of its key, for error messages: `deployment.router`.
    #[serde(skip)]
    pub location: String,
}

impl PolicyConfig {
    /// A policy with its defaults.
    pub fn named(policy: &str) -> Self {
        Self { policy: policy.to_owned(), fields: serde_json::Map::new(), location: String::new() }
    }

    /// Serialises a list of policies: the name alone where a policy has no fields.
    pub(super) fn serialize_briefly<S: Serializer>(
        policies: &[Self],
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(policies.iter().map(Brief))
    }

    /// Serialises one policy: its name alone when it has no fields.
    pub(super) fn serialize_one_briefly<S: Serializer>(
        policy: &Self,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        Brief(policy).serialize(serializer)
    }
}

impl PartialEq for PolicyConfig {
    fn eq(&self, other: &Self) -> bool {
        self.policy == other.policy && self.fields == other.fields
    }
}

struct Brief<'a>(&'a PolicyConfig);

impl Serialize for Brief<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.0.fields.is_empty() {
            serializer.serialize_str(&self.0.policy)
        } else {
            self.0.serialize(serializer)
        }
    }
}

/// How KV blocks travel from prefill to decode workers.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields, default)]
pub struct KvTransfer {
    /// Fixed delay, counted only where there is no bandwidth, in milliseconds.
    #[schemars(range(min = 0.0))]
    pub latency_ms: f64,
    /// Link bandwidth in 1e9 bytes per second.
    #[schemars(extend("exclusiveMinimum" = 0.0))]
    pub bandwidth_gbps: Option<f64>,
    /// KV bytes of one token.
    #[schemars(range(min = 1))]
    pub bytes_per_token: Option<u64>,
    /// Which tokens travel.
    pub timing: KvTransferTiming,
    /// Whether transfers slow each other down.
    pub sharing: LinkSharing,
}

impl Default for KvTransfer {
    fn default() -> Self {
        Self {
            latency_ms: 0.0,
            bandwidth_gbps: None,
            bytes_per_token: None,
            timing: KvTransferTiming::FullPrompt,
            sharing: LinkSharing::None,
        }
    }
}

/// How transfers that are under way together use the link between the pools.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LinkSharing {
    /// Each has the full bandwidth, as in the reference.
    None,
    /// All have equal parts of the bandwidth.
    Fair,
    /// One after the other, each with the full bandwidth.
    Fifo,
}

/// Which tokens a KV transfer moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum KvTransferTiming {
    /// The whole prompt.
    FullPrompt,
    /// The blocks that the destination does not hold yet.
    DestinationMissing,
}

/// The bounds a completed request has to meet, all that are set, each inclusive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct Sla {
    /// Time to first token, in milliseconds.
    #[schemars(extend("exclusiveMinimum" = 0.0))]
    pub ttft_ms: Option<f64>,
    /// Mean gap between tokens, in milliseconds.
    #[schemars(extend("exclusiveMinimum" = 0.0))]
    pub itl_ms: Option<f64>,
    /// Arrival to last token, in milliseconds.
    #[schemars(extend("exclusiveMinimum" = 0.0))]
    pub e2e_ms: Option<f64>,
}
