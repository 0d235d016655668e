//! Prompts that share a link between two pools, which the reference does not know. Each case is a scenario and the stamps of its
//! tokens; of these the record keeps the number, the first, the second and the last.

use std::path::Path;
use std::sync::Arc;

use spica::config::{self, Document};
use spica::registry::Registry;
use spica::report::record::RunRecord;
use spica::report::requests::write_requests;
use spica::serving::{ReplayLimits, Traffic, replay};
use spica::simulation::SimTime;
use spica::workload::{self, Workload};

/// Fills a deployment and its requests into a scenario, replays it, and compares the token stamps in milliseconds.
fn check(deployment: &str, requests: &str, expected: &[(&str, &[f64])]) -> RunRecord {
    let requests: Vec<_> =
        requests.lines().map(|request| format!("    - {{{}}}\n", request.trim())).collect();
    let requests = requests.concat();
    let text = format!("deployment:\n{deployment}\nworkload:\n  requests:\n{requests}");
    let document =
        config::load(&text, Path::new("case.yaml"), &[]).unwrap_or_else(|error| panic!("{error}\n{text}"));
    let Document::Scenario(scenario) = document else { panic!("a scenario") };
    let pools = [&scenario.deployment.agg, &scenario.deployment.prefill];
    let block_size = pools.into_iter().flatten().next().expect("a pool").engine.block_size;
    let loaded =
        workload::load(&scenario.workload, None, block_size).unwrap_or_else(|error| panic!("{error}"));
    let workload: Arc<Workload> = Arc::new(loaded.workload);
    let traffic = Traffic::new(workload.clone(), block_size);
    let record = replay(&scenario, &traffic, &Registry::builtin(), &ReplayLimits::default()).unwrap();
    for (name, stamps) in expected {
        let index =
            workload.requests.iter().position(|request| request.name.as_deref() == Some(name)).unwrap();
        let request = &record.requests[index];
        let at = |index: usize| stamps.get(index).map(|&ms| SimTime::from_ms(ms).unwrap());
        let found =
            (request.output_tokens as usize, request.first_token, request.second_token, request.last_token);
        let last = at(stamps.len().wrapping_sub(1));
        assert_eq!(found, (stamps.len(), at(0), at(1), last), "tokens of {name}");
    }
    let mut rows = Vec::new();
    write_requests(&record, &workload, &mut rows).unwrap();
    let first: serde_json::Value =
        serde_json::Deserializer::from_slice(&rows).into_iter().next().unwrap().unwrap();
    let held = record.handoffs.first().and_then(|handoff| handoff.source_held).map(SimTime::as_ms);
    assert_eq!(first["handoff"]["source_held_ms"].as_f64(), held, "rows tell the steps of a hand-off");
    record
}

/// Two pools of one worker each with 10 ms prefill and 2 ms decode passes.
fn two_pools(kv_transfer: &str, blocks: u32, decode_blocks: u32) -> String {
    let pool = |blocks| {
        format!(
            "{{workers: 1, engine: {{block_size: 4, num_gpu_blocks: {blocks}}}, \
             timing: {{model: fixed, prefill_ms: 10, decode_ms: 2}}}}"
        )
    };
    let (prefill, decode) = (pool(blocks), pool(decode_blocks));
    format!("  mode: disagg\n  prefill: {prefill}\n  decode: {decode}\n  kv_transfer: {kv_transfer}")
}

#[test]
fn shared_links_slow_transfers_down() {
    let requests = "id: a, arrival_ms: 0, input_length: 1000, output_length: 1
        id: b, arrival_ms: 0, input_length: 1000, output_length: 1";
    let link = |sharing| {
        two_pools(&format!("{{bandwidth_gbps: 1, bytes_per_token: 1000, sharing: {sharing}}}"), 1000, 1000)
    };
    check(&link("none"), requests, &[("a", &[13.0]), ("b", &[13.0])]);
    check(&link("fair"), requests, &[("a", &[14.0]), ("b", &[14.0])]);
    check(&link("fifo"), requests, &[("a", &[13.0]), ("b", &[15.0])]);
}
