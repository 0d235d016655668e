//! The traffic: what a trial of a search replays, and the form in which files write it.

use std::path::PathBuf;

use serde::Serialize;

use super::scenario::{
    Arrival, ArrivalProcess, InlineRequest, Synthetic, TraceTimeUnit, WorkloadConfig, WorkloadSource,
    ZeroOutput,
};
use super::search::{KvLoadRatio, LoadShape, SearchTrace, SearchWorkload, SyntheticRequests};

/// Tokens that one hash id of a trace stands for, unless the configuration says otherwise.
pub(super) const DEFAULT_TRACE_BLOCK_SIZE: u32 = 512;

pub(super) fn of_trial(workload: &SearchWorkload, concurrency: Option<u32>) -> Option<WorkloadConfig> {
    let (source, cap, speedup, zero_output) = match &workload.load {
        LoadShape::Trace(trace) => {
            let source = WorkloadSource::Trace {
                path: trace.path.clone(),
                block_size: trace.block_size,
                time_unit: trace.time_unit,
                max_requests: trace.max_requests,
            };
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

/// The `workload:` block as files write it: one mapping for every shape of load.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct WorkloadForm {
    #[serde(skip_serializing_if = "Option::is_none")]
    trace_path: Option<PathBuf>,
    #[serde(skip_serializing_if = "Option::is_none")]
    trace_format: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    trace_block_size: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    trace_time_unit: Option<TraceTimeUnit>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_requests: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    arrival_speedup_ratio: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    replay_concurrency: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    zero_output: Option<ZeroOutput>,
    #[serde(skip_serializing_if = "Option::is_none")]
    isl: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    osl: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    request_rate: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    concurrency: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    kv_load_ratio: Option<KvLoadRatio>,
    #[serde(skip_serializing_if = "Option::is_none")]
    num_request_ratio: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    arrival: Option<Arrival>,
    #[serde(skip_serializing_if = "Option::is_none")]
    shared_prefix_ratio: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    num_prefix_groups: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    turns_per_session: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    inter_turn_delay_ms: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    requests: Option<Vec<InlineRequest>>,
    strict: bool,
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
            WorkloadSource::Trace { path, block_size, time_unit, max_requests } => {
                Self::of_trace(SearchTrace {
                    path,
                    block_size,
                    time_unit,
                    max_requests,
                    arrival_speedup_ratio: workload.arrival_speedup_ratio,
                    replay_concurrency: workload.concurrency,
                    zero_output: workload.zero_output,
                })
            }
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
        Self {
            trace_path: Some(trace.path),
            trace_format: Some("mooncake"),
            trace_block_size: Some(trace.block_size),
            trace_time_unit: Some(trace.time_unit),
            max_requests: trace.max_requests,
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
