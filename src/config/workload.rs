//! The traffic of a scenario and of a search, and how the one follows from the other.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::trace::TraceSource;
use super::workload_form::WorkloadForm;

/// What is asked of the deployment: exactly one load shape.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(into = "WorkloadForm")]
pub struct WorkloadConfig {
    /// Where the requests come from.
    pub source: WorkloadSource,
    /// Closed loop: requests (or sessions) in flight at most. `None` is open loop.
    pub concurrency: Option<u32>,
    /// Arrivals and think times of an open loop are divided by this: 2 means twice the traffic.
    pub arrival_speedup_ratio: f64,
    /// What becomes of file rows that ask for no output.
    pub zero_output: ZeroOutput,
    /// Turns every repair and drop into a refusal.
    pub strict: bool,
}

/// Where requests come from.
#[derive(Clone, Debug, PartialEq)]
pub enum WorkloadSource {
    /// A file, plain or gzip.
    Trace(TraceSource),
    /// Generated requests, all of one size.
    Synthetic(Synthetic),
    /// Requests written out in the scenario.
    Requests {
        /// In file order.
        requests: Vec<InlineRequest>,
        /// Tokens that one hash id stands for.
        block_size: u32,
    },
}

/// Generated requests, all of one size.
#[derive(Clone, Debug, PartialEq)]
pub struct Synthetic {
    /// Prompt tokens.
    pub isl: u32,
    /// Output tokens.
    pub osl: u32,
    /// Sessions (with one turn each: requests).
    pub count: u32,
    /// Requests per second of an open loop.
    pub request_rate: Option<f64>,
    /// How arrivals of an open loop are spread.
    pub arrival: Arrival,
    /// Share of a prompt's blocks that comes from its group, 0 to 1.
    pub shared_prefix_ratio: f64,
    /// Groups of sessions with a common prefix.
    pub num_prefix_groups: u32,
    /// Turns of each session.
    pub turns_per_session: u32,
    /// Think time before each further turn, in milliseconds.
    pub inter_turn_delay_ms: f64,
}

/// How arrivals are spread in time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Arrival {
    /// The process.
    #[serde(flatten)]
    pub process: ArrivalProcess,
    /// Seed of its draws.
    pub seed: u64,
}

/// A process of arrivals with a given mean rate.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(tag = "process", rename_all = "snake_case")]
pub enum ArrivalProcess {
    /// Equal gaps.
    Fixed,
    /// Exponential gaps.
    Poisson,
    /// Gamma gaps: `smoothness` is their shape, 1 being Poisson and more being more regular.
    Gamma {
        /// Shape of the gap distribution.
        smoothness: f64,
    },
    /// Everything at time 0.
    Burst,
}

/// A request written out in a scenario.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct InlineRequest {
    /// Its name; `request_<n>` when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// Arrival in milliseconds, used as it is; absent for the later turns of a session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub arrival_ms: Option<f64>,
    /// Prompt tokens; from the ids when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input_length: Option<u32>,
    /// Output tokens.
    pub output_length: u32,
    /// Identity of consecutive prompt chunks of `trace_block_size` tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hash_ids: Option<Vec<u64>>,
    /// The prompt's tokens, in place of `hash_ids`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input_token_ids: Option<Vec<u32>>,
    /// Groups requests into the turns of one session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_id: Option<String>,
    /// Think time before this turn, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delay_ms: Option<f64>,
    /// The data-parallel rank that has to take it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dp_rank: Option<u32>,
}

/// What becomes of file rows that ask for no output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ZeroOutput {
    /// Dropped and counted.
    Drop,
    /// Kept: the prompt is computed, nothing is generated.
    PrefillOnly,
}

/// The traffic of a search.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(into = "WorkloadForm")]
pub struct SearchWorkload {
    /// Where the requests come from and how fast.
    pub load: LoadShape,
    /// Turns every repair and drop of the input into a refusal.
    pub strict: bool,
}

/// Where requests come from and how fast: exactly one of these.
#[derive(Clone, Debug, PartialEq)]
pub enum LoadShape {
    /// A trace, at its own pace or capped.
    Trace(SearchTrace),
    /// Generated requests at a given rate, in an open loop.
    Rate {
        /// Requests per second.
        request_rate: f64,
        /// How arrivals are spread.
        arrival: Arrival,
        /// The requests.
        requests: SyntheticRequests,
    },
    /// Generated requests with a given number in flight.
    Concurrency {
        /// Requests (with several turns: sessions) in flight.
        concurrency: u32,
        /// The requests.
        requests: SyntheticRequests,
    },
    /// Generated requests with as many in flight as fill a share of a candidate's KV cache.
    KvLoad {
        /// Share of the cache: fixed, or searched.
        kv_load_ratio: KvLoadRatio,
        /// The requests.
        requests: SyntheticRequests,
    },
}

/// The trace of a search.
#[derive(Clone, Debug, PartialEq)]
pub struct SearchTrace {
    /// The file and how it is read.
    pub source: TraceSource,
    /// Arrivals and think times of an open loop are divided by this: 2 means twice the traffic.
    pub arrival_speedup_ratio: f64,
    /// Closed loop: sessions in flight at most; time stamps are then ignored.
    pub replay_concurrency: Option<u32>,
    /// What becomes of rows that ask for no output.
    pub zero_output: ZeroOutput,
}

/// Generated requests, all of one size.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SyntheticRequests {
    /// Prompt tokens.
    pub isl: u32,
    /// Output tokens.
    pub osl: u32,
    /// Requests per unit of load (rate or concurrency).
    pub num_request_ratio: f64,
    /// Share of a prompt's blocks that comes from its group, 0 to 1.
    pub shared_prefix_ratio: f64,
    /// Groups of sessions with a common prefix.
    pub num_prefix_groups: u32,
    /// Turns of each session.
    pub turns_per_session: u32,
    /// Think time before each further turn, in milliseconds.
    pub inter_turn_delay_ms: f64,
}

/// Share of a candidate's KV cache to fill; above 1 oversubscribes it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum KvLoadRatio {
    /// The same for every candidate.
    Fixed(f64),
    /// Searched between two bounds, the first smaller; with a Pareto goal only.
    Range([f64; 2]),
}

impl SearchWorkload {
    /// Whether a trace is replayed.
    pub fn is_trace_based(&self) -> bool {
        matches!(self.load, LoadShape::Trace(_))
    }

    /// The workload of one trial. `concurrency` is the trial's own number in flight, as derived from
    /// [`LoadShape::KvLoad`] or overriding [`LoadShape::Concurrency`]; a trace ignores it.
    ///
    /// `None` for a KV load without a number in flight.
    pub fn of_trial(&self, concurrency: Option<u32>) -> Option<WorkloadConfig> {
        of_trial(self, concurrency)
    }
}

impl SyntheticRequests {
    /// Most requests, turn by turn, that are generated: about 6 GiB, and twice what fleets of a thousand workers are tried with.
    pub const MOST: u32 = 20_000_000;

    /// Why so much load is more than can be generated, if it is.
    pub fn excess(&self, load: f64) -> Option<String> {
        let sessions = (self.num_request_ratio * load).round_ties_even().max(1.0);
        let all = sessions * f64::from(self.turns_per_session);
        let most = Self::MOST;
        (all > f64::from(most)).then(|| {
            let all = if all < 1e15 { format!("{all:.0}") } else { format!("{all:e}") };
            format!("{all} requests in all are too many: at most {most} can be replayed (sessions times `turns_per_session`)")
        })
    }

    /// How many requests are generated for a load: the product with the ratio, rounded half to even, at least 1.
    pub fn count(&self, load: f64) -> u32 {
        (self.num_request_ratio * load).round_ties_even().clamp(1.0, f64::from(u32::MAX)) as u32
    }
}

fn of_trial(workload: &SearchWorkload, concurrency: Option<u32>) -> Option<WorkloadConfig> {
    let (source, cap, speedup, zero_output) = match &workload.load {
        LoadShape::Trace(trace) => {
            let source = WorkloadSource::Trace(trace.source.clone());
            (source, trace.replay_concurrency, trace.arrival_speedup_ratio, trace.zero_output)
        }
        LoadShape::Rate { request_rate, arrival, requests } => {
            let source = synthetic(requests, *request_rate, Some(*request_rate), *arrival);
            (source, None, 1.0, ZeroOutput::Drop)
        }
        LoadShape::Concurrency { concurrency: own, requests } => {
            let cap = concurrency.unwrap_or(*own);
            (synthetic(requests, f64::from(cap), None, Arrival::default()), Some(cap), 1.0, ZeroOutput::Drop)
        }
        LoadShape::KvLoad { requests, .. } => {
            let cap = concurrency?;
            (synthetic(requests, f64::from(cap), None, Arrival::default()), Some(cap), 1.0, ZeroOutput::Drop)
        }
    };
    Some(WorkloadConfig {
        source,
        concurrency: cap,
        arrival_speedup_ratio: speedup,
        zero_output,
        strict: workload.strict,
    })
}

fn synthetic(
    requests: &SyntheticRequests,
    load: f64,
    request_rate: Option<f64>,
    arrival: Arrival,
) -> WorkloadSource {
    WorkloadSource::Synthetic(Synthetic {
        isl: requests.isl,
        osl: requests.osl,
        count: requests.count(load),
        request_rate,
        arrival,
        shared_prefix_ratio: requests.shared_prefix_ratio,
        num_prefix_groups: requests.num_prefix_groups,
        turns_per_session: requests.turns_per_session,
        inter_turn_delay_ms: requests.inter_turn_delay_ms,
    })
}

impl Default for Arrival {
    fn default() -> Self {
        Self { process: ArrivalProcess::Fixed, seed: 42 }
    }
}
