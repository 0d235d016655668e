//! From a case's inputs, as they were passed to the reference, to a deployment and its requests.

use std::fs::File;
use std::io::BufReader;
use std::path::Path;
use std::sync::Arc;

use serde_json::{Map, Value};
use spica::config::scenario::{InlineRequest, Scenario, Sla, TimingConfig};
use spica::workload::{Pacing, Workload};

use crate::support::requests;
use crate::support::scenario::{default_scenario, pool_mut, ratio, set_engine, whole};

/// One case, ready to be replayed.
#[derive(Debug)]
pub(super) struct Case {
    pub scenario: Scenario,
    pub workload: Arc<Workload>,
    /// Arrivals are not whole nanoseconds in the reference.
    pub fractional_arrivals: bool,
}

/// Arguments of the replay that say how requests arrive.
#[derive(Debug)]
struct Load {
    trace_block_size: u32,
    pacing: Pacing,
    interval_ms: Option<f64>,
}

/// Reads `inputs`; anything unknown in it is a failure, for nothing may be left out silently.
pub(super) fn case(inputs: &Value, first_token_decode: bool, shared: Option<&Path>) -> Case {
    let mut scenario = default_scenario();
    let mut load = Load { trace_block_size: 512, pacing: Pacing::default(), interval_ms: None };
    for (key, value) in object(inputs) {
        match key.as_str() {
            "kw" => arguments(&mut scenario, &mut load, object(value)),
            "engine" => engine(&mut scenario, object(value)),
            "kind" | "rows" | "trace" | "synthetic" => {}
            _ => panic!("no such input: {key}"),
        }
    }
    pool_mut(&mut scenario).engine.first_token_decode = first_token_decode;
    scenario.workload.concurrency = load.pacing.concurrency;
    let workload = workload(inputs, &load, shared);
    Case { scenario, workload: Arc::new(workload), fractional_arrivals: false }
}

fn arguments(scenario: &mut Scenario, load: &mut Load, arguments: &Map<String, Value>) {
    let mut sla = Sla::default();
    for (key, value) in arguments {
        match key.as_str() {
            "num_workers" => pool_mut(scenario).workers = whole(value),
            "replay_concurrency" => load.pacing.concurrency = Some(whole(value)),
            "arrival_speedup_ratio" => load.pacing.speedup = ratio(value),
            "trace_block_size" => load.trace_block_size = whole(value),
            "arrival_interval_ms" => load.interval_ms = Some(ratio(value)),
            "sla_ttft_ms" => sla.ttft_ms = Some(ratio(value)),
            "sla_itl_ms" => sla.itl_ms = Some(ratio(value)),
            "sla_e2e_ms" => sla.e2e_ms = Some(ratio(value)),
            "max_sim_time_ms" => scenario.max_sim_time_ms = Some(ratio(value)),
            _ => panic!("no such argument: {key}"),
        }
    }
    scenario.sla = (sla != Sla::default()).then_some(sla);
}

fn engine(scenario: &mut Scenario, options: &Map<String, Value>) {
    let mut options = options.clone();
    if let Some(timing) = options.remove("timing_model") {
        let ms = |key: &str| ratio(&timing[key]);
        pool_mut(scenario).timing = match timing["type"].as_str() {
            Some("fixed") => TimingConfig::Fixed { prefill_ms: ms("prefill_ms"), decode_ms: ms("decode_ms") },
            Some("polynomial") => TimingConfig::Polynomial,
            _ => panic!("no such timing: {timing}"),
        };
    }
    set_engine(&mut pool_mut(scenario).engine, &options);
}

fn workload(inputs: &Value, load: &Load, shared: Option<&Path>) -> Workload {
    if let Some(rows) = inputs["rows"].as_array() {
        return requests::of_rows(rows, load.trace_block_size, load.pacing);
    }
    if let Some(name) = inputs["trace"].as_str() {
        let file = match name {
            "conversation_trace.jsonl" => "mooncake_fast25_conversation.jsonl.gz",
            "synthetic_trace.jsonl" => "mooncake_fast25_synthetic.jsonl",
            _ => panic!("no such trace: {name}"),
        };
        let path = shared.expect("large cases come from the shared folder").join("traces").join(file);
        let file = File::open(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        return requests::of_trace(BufReader::new(file), load.trace_block_size, load.pacing);
    }
    let synthetic: Vec<u32> = serde_json::from_value(inputs["synthetic"].clone()).expect("three numbers");
    let request = |index: u32| InlineRequest {
        arrival_ms: Some(load.interval_ms.unwrap_or(0.0) * f64::from(index)),
        input_length: Some(synthetic[0]),
        output_length: synthetic[1],
        ..InlineRequest::default()
    };
    let asked: Vec<InlineRequest> = (0..synthetic[2]).map(request).collect();
    requests::of_list(&asked, 1, load.pacing.concurrency)
}

fn object(value: &Value) -> &Map<String, Value> {
    value.as_object().expect("a mapping")
}
