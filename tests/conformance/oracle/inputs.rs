//! From a case's inputs, as they were passed to the reference, to a deployment and its requests.

use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::{Map, Value, json};
use spica::config::scenario::Scenario;
use spica::workload::Workload;

use crate::support::scenario;

/// One case, ready to be replayed.
#[derive(Debug)]
pub(super) struct Case {
    pub scenario: Scenario,
    pub workload: Arc<Workload>,
    /// Arrivals are not whole nanoseconds in the reference.
    pub fractional_arrivals: bool,
}

/// Reads `inputs`; anything unknown in it is a failure, for nothing may be left out silently.
pub(super) fn case(inputs: &Value, first_token_decode: bool, shared: Option<&Path>) -> Case {
    let mut document = json!({"deployment": {}, "workload": {}});
    deployment(&mut document["deployment"], inputs, first_token_decode);
    for (key, value) in object(inputs) {
        match key.as_str() {
            "synthetic" => synthetic(&mut document["workload"], value, &inputs["kw"]),
            "engine" | "prefill" | "decode" | "launch" | "kw" | "kind" | "rows" | "trace" => {}
            _ => panic!("no such input: {key}"),
        }
    }
    arguments(&mut document, object(&inputs["kw"]), inputs["synthetic"].is_array());
    let lines: Option<Vec<String>> =
        inputs["rows"].as_array().map(|rows| rows.iter().map(Value::to_string).collect());
    let trace = inputs["trace"].as_str().map(|name| trace_file(name, shared));
    if lines.is_some() || trace.is_some() {
        document["workload"]["trace_path"] = json!("case.jsonl");
    }
    let scenario = scenario::scenario(&document);
    let workload = match trace {
        Some(path) => {
            let file = File::open(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            scenario::workload(&scenario, Some(&mut BufReader::new(file)))
        }
        None => scenario::workload(&scenario, Some(&mut lines.unwrap_or_default().join("\n").as_bytes())),
    };
    let fractional_arrivals = inputs["kw"].get("request_rate").is_some();
    Case { scenario, workload: Arc::new(workload), fractional_arrivals }
}

/// The planner's fields; the reference repeats in them what the deployment says, and where its own reports go.
fn planner(fields: &Map<String, Value>) -> Value {
    let repeated = ["backend", "mode", "report_interval_hours"];
    fields
        .iter()
        .filter(|(key, _)| !repeated.contains(&key.as_str()))
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect()
}

fn arguments(document: &mut Value, arguments: &Map<String, Value>, is_synthetic: bool) {
    for (key, value) in arguments {
        let place = match key.as_str() {
            "num_workers" => &mut document["deployment"]["agg"]["workers"],
            "num_prefill_workers" => &mut document["deployment"]["prefill"]["workers"],
            "num_decode_workers" => &mut document["deployment"]["decode"]["workers"],
            "router_mode" => &mut document["deployment"]["router"]["policy"],
            "sla_ttft_ms" => &mut document["sla"]["ttft_ms"],
            "sla_itl_ms" => &mut document["sla"]["itl_ms"],
            "sla_e2e_ms" => &mut document["sla"]["e2e_ms"],
            "max_sim_time_ms" => &mut document["max_sim_time_ms"],
            "planner_config" => {
                document["deployment"]["planner"] = planner(object(value));
                continue;
            }
            "replay_concurrency" if is_synthetic => &mut document["workload"]["concurrency"],
            "replay_concurrency"
            | "arrival_speedup_ratio"
            | "trace_block_size"
            | "shared_prefix_ratio"
            | "num_prefix_groups"
            | "turns_per_session"
            | "inter_turn_delay_ms" => &mut document["workload"][key],
            // How generated requests arrive: said together.
            "request_rate" | "arrival_interval_ms" | "arrival_seed" if is_synthetic => continue,
            _ => panic!("no such argument: {key}"),
        };
        *place = value.clone();
    }
}

/// One pool, or two where engines of two roles are given; what is said of all engines holds for both.
fn deployment(deployment: &mut Value, inputs: &Value, first_token_decode: bool) {
    let disaggregated = inputs["prefill"].is_object();
    deployment["mode"] = json!(if disaggregated { "disagg" } else { "agg" });
    for name in if disaggregated { &["prefill", "decode"][..] } else { &["agg"] } {
        let mut pool = json!({"workers": 1, "engine": {}, "timing": {"model": "polynomial"}});
        if first_token_decode {
            pool["engine"]["first_token_decode"] = json!(true);
        }
        for options in [&inputs["engine"], &inputs[*name]].into_iter().filter_map(Value::as_object) {
            engine(&mut pool, deployment, options);
        }
        for (key, value) in inputs["launch"].as_object().into_iter().flatten() {
            match key.as_str() {
                "dp_size" | "tensor_parallel_size" => pool[key] = value.clone(),
                _ => panic!("no such input of a replica: {key}"),
            }
        }
        deployment[*name] = pool;
    }
}

fn engine(pool: &mut Value, deployment: &mut Value, options: &Map<String, Value>) {
    for (key, value) in options {
        let place = match key.as_str() {
            "timing_model" => {
                let mut timing = value.clone();
                timing["model"] = object_mut(&mut timing).remove("type").expect("a kind of timing");
                pool["timing"] = timing;
                continue;
            }
            "kv_transfer_bandwidth" => &mut deployment["kv_transfer"]["bandwidth_gbps"],
            "kv_transfer_bytes_per_token" => &mut deployment["kv_transfer"]["bytes_per_token"],
            "kv_transfer_timing_mode" => &mut deployment["kv_transfer"]["timing"],
            _ => &mut pool["engine"][key],
        };
        *place = value.clone();
    }
}

/// Generated requests: `sizes` are prompt tokens, output tokens and how many requests.
fn synthetic(workload: &mut Value, sizes: &Value, arguments: &Value) {
    let number = |index: usize| sizes[index].as_u64().expect("three whole numbers");
    let argument = |key: &str| arguments.get(key).and_then(Value::as_f64);
    workload["isl"] = json!(number(0));
    workload["osl"] = json!(number(1));
    let rate = argument("request_rate").or(argument("arrival_interval_ms").map(|gap| 1000.0 / gap));
    if let Some(rate) = rate {
        let process = if argument("request_rate").is_some() { "poisson" } else { "fixed" };
        workload["request_rate"] = json!(rate);
        workload["arrival"] =
            json!({"process": process, "seed": argument("arrival_seed").map_or(42, |seed| seed as u64)});
    }
    let load = rate.or(argument("replay_concurrency")).expect("a load");
    workload["num_request_ratio"] = json!(number(2) as f64 / load);
}

fn trace_file(name: &str, shared: Option<&Path>) -> PathBuf {
    let file = match name {
        "conversation_trace.jsonl" => "mooncake_fast25_conversation.jsonl.gz",
        "synthetic_trace.jsonl" => "mooncake_fast25_synthetic.jsonl",
        _ => panic!("no such trace: {name}"),
    };
    shared.expect("large cases come from the shared folder").join("traces").join(file)
}

fn object(value: &Value) -> &Map<String, Value> {
    value.as_object().expect("a mapping")
}

fn object_mut(value: &mut Value) -> &mut Map<String, Value> {
    value.as_object_mut().expect("a mapping")
}
