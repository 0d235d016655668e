//! Fleets that change while they serve: what workers cost, who takes requests, and that nothing gets lost.

#![allow(clippy::unwrap_used, reason = "helpers of tests may panic")]

use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;

use spica::config::{self, Document};
use spica::registry::Registry;
use spica::report::record::{RunRecord, Status};
use spica::report::scaling::FleetStep;
use spica::report::summary::Summary;
use spica::serving::{ReplayError, ReplayLimits, Traffic, replay};
use spica::workload::{self, Workload};

/// Workers whose prompts take 10 ms and whose decode passes 2 ms; requests at these times, of 8 tokens and `output` more.
fn run(deployment: &str, arrivals_ms: &[u32], output: u32) -> Result<RunRecord, ReplayError> {
    run_and_keep(deployment, arrivals_ms, output).0
}

/// The same with what was asked.
fn run_and_keep(
    deployment: &str,
    arrivals_ms: &[u32],
    output: u32,
) -> (Result<RunRecord, ReplayError>, Arc<Workload>) {
    let mut text = format!("deployment:\n{deployment}\nworkload:\n  trace_block_size: 4\n  requests:\n");
    for ms in arrivals_ms {
        let _ = writeln!(text, "    - {{arrival_ms: {ms}, input_length: 8, output_length: {output}}}");
    }
    let Document::Scenario(scenario) = config::load(&text, Path::new("test.yaml"), &[]).unwrap() else {
        panic!("is a scenario")
    };
    let workload = Arc::new(workload::load(&scenario.workload, None, 4).unwrap().workload);
    let traffic = Traffic::new(Arc::clone(&workload), 4);
    (replay(&scenario, &traffic, &Registry::builtin(), &ReplayLimits::default()), workload)
}

const ENGINE: &str = "engine: {block_size: 4}, timing: {model: fixed, prefill_ms: 10, decode_ms: 2}";

fn agg(workers: u32, startup_s: f64, changes: &str) -> String {
    format!(
        "  mode: agg\n  agg: {{workers: {workers}, startup_time_s: {startup_s}, {ENGINE}}}\n  replica_changes: [{changes}]"
    )
}

fn steps(record: &RunRecord) -> Vec<(f64, u32, FleetStep)> {
    record.scaling.changes.iter().map(|change| (change.at.as_ms(), change.worker, change.step)).collect()
}

fn workers(record: &RunRecord) -> Vec<u32> {
    record.requests.iter().map(|request| request.decode_worker.unwrap()).collect()
}

#[test]
fn a_worker_costs_from_its_order_to_its_last_pass() {
    // Three requests of 10 + 9 * 2 ms from 0 on, on three workers; one has to go at 5 and has a pass until 28.
    let record = run(&agg(3, 0.0, "{at_ms: 5, pool: agg, workers: 2}"), &[0, 0, 0, 100], 10).unwrap();
    assert_eq!(steps(&record), [(5.0, 2, FleetStep::Draining), (28.0, 2, FleetStep::Removed)]);
    assert_eq!(record.requests[2].terminal.unwrap().as_ms(), 28.0, "it finishes what it has");
    assert_eq!(record.end.as_ms(), 128.0);
    assert_eq!(record.pools[0].worker_ns, (2 * 128 + 28) * 1_000_000);
}

#[test]
fn the_peak_counts_what_starts_and_drains_and_nothing_that_is_gone_at_once() {
    let peak = |changes: &str| run(&agg(2, 0.05, changes), &[0, 0, 100], 10).unwrap().peak_gpus;
    let fixed = format!("  mode: agg\n  agg: {{workers: 2, tensor_parallel_size: 4, {ENGINE}}}");
    assert_eq!(run(&fixed, &[0], 10).unwrap().peak_gpus, 8, "nobody changes it");
    assert_eq!(peak("{at_ms: 5, pool: agg, workers: 1}"), 2, "at the start");
    // The second worker has a pass until 28, the third starts until 56.
    let replaced = "{at_ms: 5, pool: agg, workers: 1}, {at_ms: 6, pool: agg, workers: 2}";
    assert_eq!(peak(replaced), 3);
    let at_once = "{at_ms: 5, pool: agg, workers: 9}, {at_ms: 5, pool: agg, workers: 3}";
    assert_eq!(peak(at_once), 3, "those that come and go at one instant cost nothing");
}

/// Case 20, last part.
#[test]
fn gpu_hours_are_the_integral_over_all_that_is_there() {
    let engine = "engine: {block_size: 4}, timing: {model: fixed, prefill_ms: 10000, decode_ms: 10000}";
    let deployment = format!(
        "  mode: agg\n  agg: {{workers: 8, tensor_parallel_size: 4, {engine}}}\n  \
         replica_changes: [{{at_ms: 100000, pool: agg, workers: 6}}]"
    );
    // Every worker has a request from 90 to 120 s; another one is served from 180 to 200 s.
    let mut arrivals = vec![90_000; 8];
    arrivals.push(170_000);
    let (record, workload) = run_and_keep(&deployment, &arrivals, 3);
    let record = record.unwrap();
    let removed = steps(&record).into_iter().filter(|(.., step)| *step == FleetStep::Removed);
    assert_eq!(
        removed.map(|(at_ms, worker, _)| (at_ms, worker)).collect::<Vec<_>>(),
        [(120e3, 6), (120e3, 7)]
    );
    assert_eq!((record.end.as_ms(), record.pools[0].worker_ns), (200e3, 1440 * 1_000_000_000));
    let summary = Summary::new(&record, &workload, None);
    assert_eq!(summary.gpu_hours, 1.6);
    assert!((summary.avg_gpu.unwrap() - 28.8).abs() < 1e-12, "{:?}", summary.avg_gpu);
}

#[test]
fn an_idle_worker_goes_at_once_and_one_that_starts_never_comes() {
    let changes = "{at_ms: 5, pool: agg, workers: 3}, {at_ms: 9, pool: agg, workers: 1}";
    let record = run(&agg(2, 0.01, changes), &[50], 1).unwrap();
    let expected = [
        (5.0, 2, FleetStep::Starting),
        (9.0, 2, FleetStep::Cancelled),
        (9.0, 1, FleetStep::Draining),
        (9.0, 1, FleetStep::Removed),
    ];
    assert_eq!(steps(&record), expected);
    assert_eq!(record.pools[0].worker_ns, (60 + 9 + 4) * 1_000_000);
}

#[test]
fn workers_that_never_came_leave_gaps_in_the_numbers() {
    let changes = "{at_ms: 5, pool: agg, workers: 4}, {at_ms: 9, pool: agg, workers: 2}, \
                   {at_ms: 12, pool: agg, workers: 3}";
    let deployment = agg(1, 0.02, changes).replace("workers: 1,", "workers: 1, dp_size: 2,");
    let record = run(&deployment, &(0..12).map(|request| 8 * request).collect::<Vec<_>>(), 1).unwrap();
    let ready: Vec<u32> = steps(&record)
        .into_iter()
        .filter(|(.., step)| *step == FleetStep::Ready)
        .map(|(_, worker, _)| worker)
        .collect();
    assert_eq!(ready, [1, 4], "2 and 3 were cancelled");
    assert!(workers(&record).iter().any(|&rank| rank >= 8), "{:?}", workers(&record));
    assert!(workers(&record).iter().all(|rank| [0, 1, 2, 3, 8, 9].contains(rank)));
}

#[test]
fn a_new_worker_serves_from_when_it_is_ready() {
    let arrivals: Vec<u32> = (0..10).map(|request| 10 * request).collect();
    let record = run(&agg(1, 0.04, "{at_ms: 11, pool: agg, workers: 2}"), &arrivals, 1).unwrap();
    assert_eq!(steps(&record), [(11.0, 1, FleetStep::Starting), (51.0, 1, FleetStep::Ready)]);
    assert_eq!(workers(&record)[..6], [0; 6]);
    assert_eq!(workers(&record).iter().filter(|&&worker| worker == 1).count(), 2, "every other from 60 on");
}

#[test]
fn requests_wait_while_there_is_no_worker() {
    let changes = "{at_ms: 1, pool: agg, workers: 0}, {at_ms: 40, pool: agg, workers: 1}";
    let record = run(&agg(1, 0.0, changes), &[0, 5, 20], 1).unwrap();
    let first_tokens: Vec<f64> =
        record.requests.iter().map(|request| request.first_token.unwrap().as_ms()).collect();
    assert_eq!(first_tokens, [10.0, 50.0, 50.0]);
    assert_eq!(workers(&record), [0, 1, 1], "numbers are never used again");
    let stall = run(&agg(1, 0.0, "{at_ms: 1, pool: agg, workers: 0}"), &[0, 5], 1).unwrap_err();
    assert!(stall.to_string().contains("1 requests wait in front of the router"), "{stall}");
    assert_eq!(
        stall.to_string().lines().take(2).collect::<Vec<_>>(),
        [
            "the replay came to a halt at 10.000000 ms with 1 of 2 requests not ended; the first is request_2, which is waiting",
            "  agg: no worker takes requests since 1.000000 ms, when deployment.replica_changes[0] asks for 0",
        ]
    );
}

#[test]
fn changes_after_the_last_request_do_not_prolong_the_run() {
    let record = run(&agg(1, 1.0, "{at_ms: 5, pool: agg, workers: 2}"), &[0], 1).unwrap();
    assert_eq!(record.end.as_ms(), 10.0);
    assert_eq!(record.pools[0].worker_ns, (10 + 5) * 1_000_000);
}

#[test]
fn both_pools_of_a_disaggregated_fleet_change() {
    for backend in ["vllm", "trtllm", "sglang"] {
        let pool = format!("{{workers: 2, dp_size: 2, engine: {{backend: {backend}, block_size: 4}}}}");
        let deployment = format!(
            "  mode: disagg\n  router: {{policy: kv_router}}\n  prefill: {pool}\n  decode: {pool}\n  replica_changes:\n    \
             [{{at_ms: 30, pool: prefill, workers: 1}}, {{at_ms: 45, pool: decode, workers: 1}}, \
              {{at_ms: 60, pool: decode, workers: 3}}, {{at_ms: 90, pool: prefill, workers: 3}}, \
              {{at_ms: 150, pool: decode, workers: 1}}]"
        );
        let arrivals: Vec<u32> = (0..60).map(|request| 4 * request).collect();
        let record = run(&deployment, &arrivals, 6).unwrap();
        assert!(record.requests.iter().all(|request| request.status == Status::Completed), "{backend}");
        let removed =
            record.scaling.changes.iter().filter(|change| change.step == FleetStep::Removed).count();
        assert_eq!(removed, 4, "{backend}");
        let used = |worker: Option<u32>| worker.is_some_and(|worker| worker >= 4);
        assert!(record.requests.iter().any(|request| used(request.prefill_worker)), "{backend}");
        assert!(record.requests.iter().any(|request| used(request.decode_worker)), "{backend}");
    }
}

#[test]
fn a_pool_of_another_mode_cannot_change() {
    let text = "deployment:\n  mode: agg\n  agg: {}\n  replica_changes: [{at_ms: 1, pool: decode, workers: 2}]\n\
                workload: {requests: [{arrival_ms: 0, input_length: 8, output_length: 1}]}";
    let error = config::load(text, Path::new("test.yaml"), &[]).unwrap_err().to_string();
    assert!(error.contains("deployment.replica_changes[0].pool"), "{error}");
}
