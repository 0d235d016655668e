//! From a case's inputs, as they were passed to the reference, to a deployment and its requests.

use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use flate2::read::MultiGzDecoder;
use serde_json::{Map, Value};
use spica::config::scenario::{InlineRequest, Scenario, Sla, TimingConfig};

use super::SharedWorkload;
use crate::support::requests;
use crate::support::scenario::{default_scenario, pool_mut, ratio, set_engine, whole};

/// One case, ready to be replayed.
#[derive(Debug)]
pub(super) struct Case {
    pub scenario: Scenario,
    pub workload: SharedWorkload,
    /// Arrivals are not whole nanoseconds in the reference.
    pub fractional_arrivals: bool,
}

/// Arguments of the replay that say how requests arrive.
#[derive(Debug)]
struct Load {
    trace_block_size: u32,
    concurrency: Option<u32>,
    speedup: f64,
    interval_ms: Option<f64>,
}

/// Reads `inputs`; anything unknown in it is a failure, for nothing may be left out silently.
pub(super) fn case(inputs: &Value, first_token_decode: bool, shared: Option<&Path>) -> Case {
    let mut scenario = default_scenario();
    let mut load = Load { trace_block_size: 512, concurrency: None, speedup: 1.0, interval_ms: None };
    for (key, value) in object(inputs) {
        match key.as_str() {
            "kw" => arguments(&mut scenario, &mut load, object(value)),
            "engine" => engine(&mut scenario, object(value)),
            "kind" | "rows" | "trace" | "synthetic" => {}
            _ => panic!("no such input: {key}"),
        }
    }
    pool_mut(&mut scenario).engine.first_token_decode = first_token_decode;
    scenario.workload.concurrency = load.concurrency;
    let asked = requests_of(inputs, &load, shared);
    let workload = requests::workload(&asked, load.trace_block_size, load.concurrency, load.speedup, true);
    Case { scenario, workload: Arc::new(workload), fractional_arrivals: false }
}

fn arguments(scenario: &mut Scenario, load: &mut Load, arguments: &Map<String, Value>) {
    let mut sla = Sla::default();
    for (key, value) in arguments {
        match key.as_str() {
            "num_workers" => pool_mut(scenario).workers = whole(value),
            "replay_concurrency" => load.concurrency = Some(whole(value)),
            "arrival_speedup_ratio" => load.speedup = ratio(value),
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

fn requests_of(inputs: &Value, load: &Load, shared: Option<&Path>) -> Vec<InlineRequest> {
    if let Some(rows) = inputs["rows"].as_array() {
        return rows.iter().zip(1..).map(|(row, line)| requests::request_of_row(line, row)).collect();
    }
    if let Some(name) = inputs["trace"].as_str() {
        let file = match name {
            "conversation_trace.jsonl" => "mooncake_fast25_conversation.jsonl.gz",
            "synthetic_trace.jsonl" => "mooncake_fast25_synthetic.jsonl",
            _ => panic!("no such trace: {name}"),
        };
        let folder = shared.expect("large cases come from the shared folder").join("traces");
        let text = read(&folder.join(file));
        let rows = text.lines().map(|line| serde_json::from_str(line).expect("a row"));
        return rows.zip(1..).map(|(row, line)| requests::request_of_row(line, &row)).collect();
    }
    let synthetic: Vec<u32> = serde_json::from_value(inputs["synthetic"].clone()).expect("three numbers");
    let request = |index: u32| InlineRequest {
        arrival_ms: Some(load.interval_ms.unwrap_or(0.0) * f64::from(index)),
        input_length: Some(synthetic[0]),
        output_length: synthetic[1],
        ..InlineRequest::default()
    };
    (0..synthetic[2]).map(request).collect()
}

fn read(path: &Path) -> String {
    let mut text = String::new();
    let file = std::fs::File::open(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let read = if path.extension().is_some_and(|extension| extension == "gz") {
        MultiGzDecoder::new(file).read_to_string(&mut text)
    } else {
        std::io::BufReader::new(file).read_to_string(&mut text)
    };
    read.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    text
}

fn object(value: &Value) -> &Map<String, Value> {
    value.as_object().expect("a mapping")
}
