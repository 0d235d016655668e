//! The form in which files write a workload.

use std::borrow::Cow;
use std::path::PathBuf;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Serialize;

use super::trace::{TraceColumns, TraceFormat, TraceRate, TraceTimeUnit};
use super::workload::{
    Arrival, InlineRequest, KvLoadRatio, LoadShape, SearchTrace, SearchWorkload, Synthetic,
    SyntheticRequests, WorkloadConfig, WorkloadSource, ZeroOutput,
};

/// The `workload:` block as files write it: one mapping for every shape of load.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(super) struct WorkloadForm {
    /// A file, plain or gzip; its presence makes the workload a trace.
    #[serde(skip_serializing_if = "Option::is_none")]
    trace_path: Option<PathBuf>,
    /// How the trace is written: `mooncake` unless given.
    #[serde(skip_serializing_if = "Option::is_none")]
    trace_format: Option<TraceFormat>,
    /// Which column is what, with `trace_format: columns`.
    #[serde(skip_serializing_if = "Option::is_none")]
    trace_columns: Option<TraceColumns>,
    /// Tokens that one hash id stands for: 512 unless given. With `llmservingsim`, tokens of the blocks that token ids are
    /// put into: 16 unless given.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    trace_block_size: Option<u32>,
    /// Unit of the trace's time stamps, where that can be in doubt: unless given, `ms` with `mooncake` and `s` with
    /// `splitwise`, `burstgpt`, `vllm` and `columns`.
    #[serde(skip_serializing_if = "Option::is_none")]
    trace_time_unit: Option<TraceTimeUnit>,
    /// Takes the rows of a session (`dynamo`, `burstgpt`, `aiperf`) as turns that wait for each other, instead of letting each
    /// arrive when it did.
    #[serde(skip_serializing_if = "Option::is_none")]
    trace_sessions: Option<bool>,
    /// Only the first rows of the trace.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    max_requests: Option<u32>,
    /// Arrivals and think times of an open loop are divided by this.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("exclusiveMinimum" = 0.0))]
    arrival_speedup_ratio: Option<f64>,
    /// Sessions of a trace or list in flight at most; arrival times are then ignored.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    replay_concurrency: Option<u32>,
    /// What becomes of rows that ask for no output: `drop` unless given.
    #[serde(skip_serializing_if = "Option::is_none")]
    zero_output: Option<ZeroOutput>,
    /// Prompt tokens of generated requests.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    isl: Option<u32>,
    /// Output tokens of generated requests.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    osl: Option<u32>,
    /// Requests per second, in an open loop: of generated requests, or of a trace without time stamps.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("exclusiveMinimum" = 0.0))]
    request_rate: Option<f64>,
    /// Generated requests (with several turns: sessions) in flight.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    concurrency: Option<u32>,
    /// Share of a candidate's KV cache that generated requests fill.
    #[serde(skip_serializing_if = "Option::is_none")]
    kv_load_ratio: Option<KvLoadRatio>,
    /// Generated requests per unit of load (rate or concurrency).
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("exclusiveMinimum" = 0.0))]
    num_request_ratio: Option<f64>,
    /// How the arrivals of a `request_rate` are spread: evenly unless given.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<ArrivalForm>")]
    arrival: Option<Arrival>,
    /// Share of a generated prompt's blocks that comes from its group.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0.0, max = 1.0))]
    shared_prefix_ratio: Option<f64>,
    /// Groups of generated sessions with a common prefix.
    #[serde(skip_serializing_if = "Option::is_none")]
    num_prefix_groups: Option<u32>,
    /// Turns of each generated session.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    turns_per_session: Option<u32>,
    /// Think time before each further generated turn, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0.0))]
    inter_turn_delay_ms: Option<f64>,
    /// Requests written out, as the whole workload.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1))]
    requests: Option<Vec<InlineRequest>>,
    /// Turns every repair and drop of the input into a refusal.
    #[schemars(default)]
    strict: bool,
}

/// The `arrival:` block as files write it.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
#[expect(dead_code, reason = "describes the form; the values are read and written by other means")]
struct ArrivalForm {
    /// The process.
    process: ArrivalKind,
    /// Shape of the gaps of `gamma`: 1 is Poisson, more is more regular.
    #[schemars(extend("exclusiveMinimum" = 0.0))]
    smoothness: Option<f64>,
    /// Seed of the draws.
    #[schemars(default = "default_arrival_seed")]
    seed: u64,
}

/// A process of arrivals.
#[derive(Clone, Copy, Debug, PartialEq, Eq, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum ArrivalKind {
    /// Equal gaps.
    Fixed,
    /// Exponential gaps.
    Poisson,
    /// Gamma gaps.
    Gamma,
    /// Everything at time 0.
    Burst,
}

fn default_arrival_seed() -> u64 {
    Arrival::default().seed
}

impl From<SearchWorkload> for WorkloadForm {
    fn from(workload: SearchWorkload) -> Self {
        let strict = workload.strict;
        let form = match workload.load {
            LoadShape::Trace(trace) => Self::of_trace(trace),
            LoadShape::Rate { request_rate, arrival, requests } => Self {
                request_rate: Some(request_rate),
                arrival: Some(arrival),
                ..Self::of_requests(&requests)
            },
            LoadShape::Concurrency { concurrency, requests } => {
                Self { concurrency: Some(concurrency), ..Self::of_requests(&requests) }
            }
            LoadShape::KvLoad { kv_load_ratio, requests } => {
                Self { kv_load_ratio: Some(kv_load_ratio), ..Self::of_requests(&requests) }
            }
        };
        Self { strict, ..form }
    }
}

impl From<WorkloadConfig> for WorkloadForm {
    fn from(workload: WorkloadConfig) -> Self {
        let form = match workload.source {
            WorkloadSource::Trace(source) => Self::of_trace(SearchTrace {
                source,
                arrival_speedup_ratio: workload.arrival_speedup_ratio,
                replay_concurrency: workload.concurrency,
                zero_output: workload.zero_output,
            }),
            WorkloadSource::Synthetic(synthetic) => Self::of_synthetic(&synthetic, workload.concurrency),
            WorkloadSource::Requests { requests, block_size } => Self {
                requests: Some(requests),
                trace_block_size: Some(block_size),
                arrival_speedup_ratio: Some(workload.arrival_speedup_ratio),
                replay_concurrency: workload.concurrency,
                ..Self::default()
            },
        };
        Self { strict: workload.strict, ..form }
    }
}

impl WorkloadForm {
    fn of_trace(trace: SearchTrace) -> Self {
        let source = trace.source;
        let format = source.format;
        Self {
            trace_path: Some(source.path),
            trace_format: Some(format),
            trace_columns: source.columns,
            trace_block_size: format.has_block_size().then_some(source.block_size),
            trace_time_unit: format.usual_time_unit().map(|_| source.time_unit),
            trace_sessions: format.has_optional_sessions().then_some(source.sessions),
            request_rate: source.rate.map(|TraceRate { request_rate, .. }| request_rate),
            arrival: source.rate.map(|TraceRate { arrival, .. }| arrival),
            max_requests: source.max_requests,
            arrival_speedup_ratio: Some(trace.arrival_speedup_ratio),
            replay_concurrency: trace.replay_concurrency,
            zero_output: Some(trace.zero_output),
            ..Self::default()
        }
    }

    fn of_requests(requests: &SyntheticRequests) -> Self {
        Self {
            isl: Some(requests.isl),
            osl: Some(requests.osl),
            num_request_ratio: Some(requests.num_request_ratio),
            shared_prefix_ratio: Some(requests.shared_prefix_ratio),
            num_prefix_groups: Some(requests.num_prefix_groups),
            turns_per_session: Some(requests.turns_per_session),
            inter_turn_delay_ms: Some(requests.inter_turn_delay_ms),
            ..Self::default()
        }
    }

    /// The count is written as the ratio that gives it back.
    fn of_synthetic(synthetic: &Synthetic, concurrency: Option<u32>) -> Self {
        let load = concurrency.map(f64::from).or(synthetic.request_rate).unwrap_or(1.0);
        let requests = SyntheticRequests {
            isl: synthetic.isl,
            osl: synthetic.osl,
            num_request_ratio: f64::from(synthetic.count) / load,
            shared_prefix_ratio: synthetic.shared_prefix_ratio,
            num_prefix_groups: synthetic.num_prefix_groups,
            turns_per_session: synthetic.turns_per_session,
            inter_turn_delay_ms: synthetic.inter_turn_delay_ms,
        };
        Self {
            concurrency,
            request_rate: if concurrency.is_none() { synthetic.request_rate } else { None },
            arrival: if concurrency.is_none() { Some(synthetic.arrival) } else { None },
            ..Self::of_requests(&requests)
        }
    }
}

impl JsonSchema for WorkloadConfig {
    fn schema_name() -> Cow<'static, str> {
        "Workload".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        form_without("kv_load_ratio", generator)
    }
}

impl JsonSchema for SearchWorkload {
    fn schema_name() -> Cow<'static, str> {
        "SearchWorkload".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        form_without("requests", generator)
    }
}

/// The form of a workload without the key that belongs to the other kind of document.
fn form_without(key: &str, generator: &mut SchemaGenerator) -> Schema {
    let mut schema = WorkloadForm::json_schema(generator);
    if let Some(properties) = schema.get_mut("properties").and_then(serde_json::Value::as_object_mut) {
        properties.shift_remove(key);
    }
    schema
}
