//! Written-out cases beyond one aggregated vLLM pool: disaggregated pools, ranks in lock-step, TensorRT-LLM rules and
//! speculative decoding. Each is a scenario and the stamps of its tokens; of these the record keeps the number, the
//! first, the second and the last.

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

fn one_pool(pool: &str, engine: &str) -> String {
    format!(
        "  mode: agg\n  agg: {{workers: 1, {pool}engine: {{block_size: 4, num_gpu_blocks: 100, {engine}}}, \
         timing: {{model: fixed, prefill_ms: 10, decode_ms: 2}}}}"
    )
}

#[test]
fn c17_disaggregated_without_delay() {
    let requests = "id: a, arrival_ms: 0, input_length: 8, output_length: 2";
    let record = check(&two_pools("{latency_ms: 0}", 100, 100), requests, &[("a", &[12.0, 14.0])]);
    assert_eq!(record.requests[0].admissions, 2);
    assert_eq!(record.requests[0].max_reused_tokens, 0);
    assert_eq!(record.requests[0].first_admit, Some(SimTime::ZERO));
    assert_eq!(record.handoffs[0].decode_admit, Some(SimTime::from_ms(10.0).unwrap()));
}

#[test]
fn c17_transfers_take_time() {
    let requests = "id: a, arrival_ms: 0, input_length: 1000, output_length: 2";
    let slow = two_pools("{bandwidth_gbps: 1, bytes_per_token: 1000}", 1000, 1000);
    check(&slow, requests, &[("a", &[13.0, 15.0])]);
    let fast = two_pools("{bandwidth_gbps: 10, bytes_per_token: 131072}", 1000, 1000);
    check(&fast, requests, &[("a", &[25.1072, 27.1072])]);
    let one_more = "id: a, arrival_ms: 0, input_length: 1001, output_length: 1";
    // The reference does not round the end of the transfer to whole nanoseconds (25.1203072 ms).
    check(&fast, one_more, &[("a", &[25.120_307])]);
}

#[test]
fn c18_reservation_waits_for_the_decode_pass() {
    let requests = "id: a, arrival_ms: 0, input_length: 8, output_length: 3
        id: b, arrival_ms: 0, input_length: 8, output_length: 3
        id: c, arrival_ms: 5, input_length: 8, output_length: 2";
    let expected: &[(&str, &[f64])] =
        &[("a", &[17.0, 19.0, 21.0]), ("b", &[17.0, 19.0, 21.0]), ("c", &[28.0, 30.0])];
    let record = check(&two_pools("{latency_ms: 5}", 100, 100), requests, expected);
    let ms = |ms| Some(SimTime::from_ms(ms).unwrap());
    assert_eq!(record.handoffs[0].source_released, ms(20.0));
    let c = record.handoffs[2];
    assert_eq!(
        (c.source_held, c.destination_reserved, c.destination_activated),
        (ms(20.0), ms(21.0), ms(26.0))
    );
}

#[test]
fn c19_decode_pressure() {
    let requests = "id: a, arrival_ms: 0, input_length: 8, output_length: 3
        id: b, arrival_ms: 0, input_length: 8, output_length: 3";
    let expected: &[(&str, &[f64])] = &[("a", &[12.0, 14.0, 16.0]), ("b", &[18.0, 20.0, 22.0])];
    check(&two_pools("{latency_ms: 0}", 100, 3), requests, expected);
    let longer = requests.replace("output_length: 3", "output_length: 6");
    let expected: &[(&str, &[f64])] =
        &[("a", &[12.0, 14.0, 16.0, 18.0, 20.0, 22.0]), ("b", &[12.0, 24.0, 26.0, 28.0, 30.0, 32.0])];
    let record = check(&two_pools("{latency_ms: 0}", 100, 4), &longer, expected);
    assert_eq!(record.requests[1].admissions, 3);
}

#[test]
fn c23_ranks_wait_for_each_other() {
    let requests = "id: a, arrival_ms: 0, input_length: 8, output_length: 3, dp_rank: 0
        id: b, arrival_ms: 10, input_length: 8, output_length: 1, dp_rank: 1";
    check(&one_pool("dp_size: 2, ", ""), requests, &[("a", &[10.0, 20.0, 22.0]), ("b", &[20.0])]);
}

#[test]
fn c24_prefill_in_every_nth_pass() {
    let deployment = one_pool("dp_size: 2, ", "prefill_schedule_interval: 4");
    let requests = "id: a, arrival_ms: 0, input_length: 8, output_length: 6, dp_rank: 0
        id: b, arrival_ms: 5, input_length: 8, output_length: 2, dp_rank: 0";
    check(&deployment, requests, &[("a", &[10.0, 12.0, 14.0, 16.0, 28.0, 30.0]), ("b", &[28.0, 30.0])]);
    let apart = requests.replace("output_length: 2, dp_rank: 0", "output_length: 2, dp_rank: 1");
    check(&deployment, &apart, &[("a", &[10.0, 20.0, 22.0, 24.0, 26.0, 28.0]), ("b", &[20.0, 22.0])]);
}

#[test]
fn c29_nobody_gives_way_in_trtllm() {
    let requests = "id: a, arrival_ms: 0, input_length: 8, output_length: 4
        id: b, arrival_ms: 0, input_length: 4, output_length: 4";
    let tight = one_pool("", "backend: trtllm").replace("num_gpu_blocks: 100", "num_gpu_blocks: 4");
    check(&tight, requests, &[("a", &[10.0, 12.0, 14.0, 16.0]), ("b", &[26.0, 28.0, 30.0, 32.0])]);
    let cached = "id: a, arrival_ms: 0, output_length: 1, input_token_ids: [1, 2, 3, 4, 5, 6, 7, 8]
        id: b, arrival_ms: 20, output_length: 2, input_token_ids: [1, 2, 3, 4, 5, 6, 7, 8]";
    let record = check(&one_pool("", "backend: trtllm"), cached, &[("a", &[10.0]), ("b", &[22.0, 24.0])]);
    assert_eq!(record.requests[1].max_reused_tokens, 8);
}

#[test]
fn c32_speculative_decoding() {
    let requests = "id: a, arrival_ms: 0, input_length: 8, output_length: 5";
    let sure = one_pool("", "aic_nextn: 1, aic_nextn_accept_rates: [1.0]");
    check(&sure, requests, &[("a", &[12.0, 12.0, 14.0, 14.0, 16.0])]);
    let never = one_pool("", "aic_nextn: 1, aic_nextn_accept_rates: [0.0]");
    let shared = "id: a, arrival_ms: 0, output_length: 2, input_token_ids: [1, 2, 3, 4, 5, 6, 7, 8, 9]
        id: b, arrival_ms: 30, output_length: 2, input_token_ids: [1, 2, 3, 4, 5, 6, 7, 8, 9]";
    let record = check(&never, shared, &[("a", &[12.0, 14.0]), ("b", &[42.0, 44.0])]);
    assert_eq!(record.requests[1].max_reused_tokens, 4);
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
