//! Timelines keep to the trace event format: a validator written from its documentation, and what they hold.

#![allow(clippy::unwrap_used, reason = "helpers of tests may panic")]

use std::collections::BTreeMap;
use std::io::Read;

use flate2::read::GzDecoder;
use serde_json::Value;

use super::cli_command::Workplace;
use super::shared_folder::shared_file;

const SCENARIO: &str = "\
deployment:
  mode: agg
  router: {policy: kv_router}
  agg: {workers: 2, engine: {num_gpu_blocks: 600, max_num_batched_tokens: 512}}
workload: {isl: 900, osl: 40, request_rate: 20, num_request_ratio: 40, shared_prefix_ratio: 0.5, num_prefix_groups: 2}
";

const DISAGGREGATED: &str = "\
deployment:
  mode: disagg
  prefill: {workers: 1, engine: {num_gpu_blocks: 2000}}
  decode: {workers: 2, engine: {num_gpu_blocks: 2000}}
  kv_transfer: {bandwidth_gbps: 1, bytes_per_token: 20000}
workload: {isl: 900, osl: 40, request_rate: 20, num_request_ratio: 40}
";

/// Checks a text against the JSON object form of the trace event format; its events.
///
/// Every event has a phase, and of the phases used here: complete events (`X`) have a name, a time and a duration and,
/// within a thread, are apart or nested; asynchronous ones (`b`, `e`) have a name, a category and an id and close in
/// reverse order of opening; counters (`C`) have numbers as arguments; instants (`i`) have a scope; metadata (`M`) has a
/// known name and names something. Times are microseconds from 0 on, process and thread ids whole numbers.
fn validated(text: &str) -> Vec<Value> {
    let trace: Value = serde_json::from_str(text).unwrap();
    assert!(["ms", "ns"].contains(&trace["displayTimeUnit"].as_str().unwrap()));
    let events = trace["traceEvents"].as_array().unwrap();
    let mut open: BTreeMap<(String, String), Vec<(String, f64)>> = BTreeMap::new();
    let mut slices: BTreeMap<(u64, u64), Vec<(f64, f64)>> = BTreeMap::new();
    for event in events {
        let name = event["name"].as_str().unwrap_or_else(|| panic!("no name: {event}")).to_owned();
        let (pid, tid) = (event["pid"].as_u64().unwrap(), event["tid"].as_u64().unwrap());
        let at = event["ts"].as_f64().unwrap_or_else(|| panic!("no time: {event}"));
        assert!(at >= 0.0 && at.is_finite(), "{event}");
        match event["ph"].as_str().unwrap() {
            "X" => {
                let duration = event["dur"].as_f64().unwrap();
                assert!(duration >= 0.0, "{event}");
                slices.entry((pid, tid)).or_default().push((at, at + duration));
            }
            kind @ ("b" | "e") => {
                let id = (event["cat"].as_str().unwrap().to_owned(), event["id"].to_string());
                let stack = open.entry(id).or_default();
                if kind == "b" {
                    assert!(stack.last().is_none_or(|(_, before)| *before <= at), "{event}");
                    stack.push((name, at));
                } else {
                    let (opened, from) = stack.pop().unwrap_or_else(|| panic!("nothing is open: {event}"));
                    assert!(opened == name && from <= at, "{event} closes {opened} of {from}");
                }
            }
            "C" => {
                let counters = event["args"].as_object().unwrap();
                assert!(!counters.is_empty() && counters.values().all(Value::is_number), "{event}");
            }
            "i" => assert!(["g", "p", "t"].contains(&event["s"].as_str().unwrap()), "{event}"),
            "M" => {
                assert!(["process_name", "thread_name"].contains(&name.as_str()), "{event}");
                assert!(event["args"]["name"].is_string(), "{event}");
            }
            other => panic!("unknown phase {other}: {event}"),
        }
    }
    assert!(open.values().all(Vec::is_empty), "something is never closed");
    for slices in slices.values_mut() {
        // Stamps have three decimals, so sums of them agree to less than half of the last.
        slices.sort_by(|a, b| a.0.total_cmp(&b.0).then(b.1.total_cmp(&a.1)));
        for pair in slices.windows(2) {
            assert!(pair[1].0 > pair[0].1 - 5e-4 || pair[1].1 <= pair[0].1, "{pair:?} overlap");
        }
    }
    events.clone()
}

fn timeline(scenario: &str, more: &[&str]) -> (Vec<Value>, Vec<Value>) {
    let place = Workplace::with("scenario.yaml", scenario);
    let arguments = ["replay", "scenario.yaml", "--timeline", "t.json", "--output-dir", "out"];
    place.run(&[&arguments, more].concat()).ending(0);
    let rows = place.read("out/requests.jsonl");
    (validated(&place.read("t.json")), rows.lines().map(|row| serde_json::from_str(row).unwrap()).collect())
}

fn of_phase<'e>(events: &'e [Value], phase: &'e str, category: &'e str) -> impl Iterator<Item = &'e Value> {
    events.iter().filter(move |event| event["ph"] == phase && event["cat"] == category)
}

#[test]
fn passes_requests_chunks_and_routes_are_there() {
    let (events, rows) = timeline(SCENARIO, &[]);
    let requests = of_phase(&events, "b", "request").filter(|event| event["args"]["admissions"].is_number());
    assert_eq!(requests.count(), rows.len());
    assert_eq!(of_phase(&events, "i", "route").count(), rows.len());
    let computed = |of: &str, key: &str| -> u64 {
        let events = events.iter().filter(|event| event["name"] == "chunk" || event["cat"] == "pass");
        let events = events.filter(|event| (event["name"] == "chunk") == (of == "chunk"));
        events.filter_map(|event| event["args"][key].as_u64()).sum()
    };
    let tokens = computed("pass", "prefill_tokens");
    assert_eq!(computed("chunk", "new_tokens"), tokens, "chunks add up to the work of the passes");
    let longest = events.iter().filter_map(|event| event["args"]["new_tokens"].as_u64()).max();
    assert!(longest <= Some(512), "no chunk is longer than a pass may compute");
    // The phases of a request are its row: from arrival to end.
    for row in &rows {
        let name = &row["request_id"];
        let at = |phase: &str| {
            let event = of_phase(&events, phase, "request").find(|event| event["name"] == *name).unwrap();
            event["ts"].as_f64().unwrap() / 1e3
        };
        assert!((at("b") - row["arrival_ms"].as_f64().unwrap()).abs() < 1e-6);
        assert!((at("e") - row["terminal_ms"].as_f64().unwrap()).abs() < 1e-6);
    }
}

#[test]
fn transfers_have_their_length() {
    let (events, rows) = timeline(DISAGGREGATED, &[]);
    let transfers = of_phase(&events, "b", "request").filter(|event| event["name"] == "transfer");
    assert_eq!(transfers.count(), rows.len());
    let processes: Vec<&str> = events
        .iter()
        .filter(|event| event["name"] == "process_name")
        .map(|event| event["args"]["name"].as_str().unwrap())
        .collect();
    assert_eq!(processes, ["requests", "routers", "fleet", "workers: prefill", "workers: decode"]);
}

#[test]
fn a_sample_has_fewer_requests_and_all_passes() {
    let (all, rows) = timeline(SCENARIO, &[]);
    let (some, _) = timeline(SCENARIO, &["--timeline-sample", "10"]);
    let count = |events: &[Value], phase: &str, category: &str| of_phase(events, phase, category).count();
    assert_eq!(count(&some, "i", "route"), rows.len().div_ceil(10));
    assert_eq!(count(&some, "X", "pass"), count(&all, "X", "pass"));
}

#[test]
fn watching_changes_nothing_and_names_ending_in_gz_are_packed() {
    let place = Workplace::with("scenario.yaml", SCENARIO);
    let plain = place.run(&["replay", "scenario.yaml", "--format=json"]).ending(0);
    let watched = place.run(&["replay", "scenario.yaml", "--format=json", "--timeline=t.json"]).ending(0);
    assert_eq!(plain.stdout, watched.stdout);
    place.run(&["replay", "scenario.yaml", "--timeline=t.json.gz"]).ending(0);
    let packed = std::fs::read(place.path("t.json.gz")).unwrap();
    let mut text = String::new();
    GzDecoder::new(&packed[..]).read_to_string(&mut text).unwrap();
    assert_eq!(text, place.read("t.json"));
    let refused = place.run(&["replay", "scenario.yaml", "--timeline-sample=2"]).ending(2);
    assert!(refused.stderr.contains("--timeline"), "{}", refused.stderr);
    let nowhere = place.run(&["replay", "scenario.yaml", "--timeline=no/where.json"]).ending(2);
    assert!(nowhere.stderr.contains("no/where.json"), "{}", nowhere.stderr);
}

#[test]
fn the_conversation_trace_stays_below_60_mb() {
    let Some(trace) = shared_file("traces/mooncake_fast25_conversation.jsonl.gz") else { return };
    let workload = format!("workload: {{trace_path: {}}}\n", trace.display());
    let place = Workplace::with(
        "conversation.yaml",
        &format!("deployment: {{mode: agg, agg: {{workers: 4}}}}\n{workload}"),
    );
    place.run(&["replay", "conversation.yaml", "--timeline=t.json"]).ending(0);
    let size = std::fs::metadata(place.path("t.json")).unwrap().len();
    assert!(size < 60_000_000, "{size}");
    assert!(validated(&place.read("t.json")).len() > 100_000);
}
