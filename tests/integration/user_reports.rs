//! Faults that users of such simulators have reported elsewhere, and what happens here.

#![allow(clippy::unwrap_used, reason = "helpers of tests may panic")]

use std::path::Path;
use std::sync::Arc;

use serde_json::{Value, json};
use spica::config::{self, Document};
use spica::registry::Registry;
use spica::report::record::{RunRecord, Status};
use spica::serving::router::{Needs, PolicyContext, RequestView, Route, RoutingPolicy, WorkerView};
use spica::serving::{ReplayError, ReplayLimits, Traffic, replay};
use spica::workload;

use super::cli_command::Workplace;

fn try_run(scenario: &Value, registry: &Registry) -> Result<RunRecord, ReplayError> {
    let document = config::load(&scenario.to_string(), Path::new("test.yaml"), &[]);
    let Document::Scenario(scenario) = document.unwrap_or_else(|problems| panic!("{problems}")) else {
        panic!("is a scenario")
    };
    let deployment = &scenario.deployment;
    let pool = deployment.agg.as_ref().or(deployment.prefill.as_ref()).unwrap();
    let block_size = pool.engine.block_size;
    let workload = workload::load(&scenario.workload, None, block_size).unwrap().workload;
    replay(&scenario, &Traffic::new(Arc::new(workload), block_size), registry, &ReplayLimits::default())
}

fn run(scenario: &Value) -> RunRecord {
    try_run(scenario, &Registry::builtin()).unwrap()
}

fn pool(workers: u32, blocks: u32) -> Value {
    json!({
        "workers": workers,
        "engine": {"block_size": 16, "num_gpu_blocks": blocks},
        "timing": {"model": "polynomial"},
    })
}

/// How many requests ended how.
fn count(record: &RunRecord, status: Status) -> usize {
    record.requests.iter().filter(|request| request.status == status).count()
}

/// Prompts that do not fit beside what runs wait until they do: nobody runs out of blocks, since nobody grows.
#[test]
fn a_waiting_prompt_never_displaces_running_work() {
    let requests: Vec<Value> = (0..60_u32)
        .map(|index| json!({"arrival_ms": index * 3, "input_length": 900 + index % 7 * 16, "output_length": 1}))
        .collect();
    let mut pool = pool(1, 130);
    pool["engine"]["max_num_batched_tokens"] = json!(256);
    let record =
        run(&json!({"deployment": {"mode": "agg", "agg": pool}, "workload": {"requests": requests}}));
    assert_eq!((record.counters.preemptions, count(&record, Status::Completed)), (0, 60));
    assert!(record.requests.iter().all(|request| request.admissions == 1));
}

/// Reuse is not lost behind a hand-off: with room enough it is what one pool finds.
#[test]
fn reuse_is_the_same_in_one_pool_and_in_two() {
    let requests: Vec<Value> = (0..40_u32)
        .map(|index| {
            let ids: Vec<u32> = (0..6)
                .map(|depth| if depth < 3 { index % 4 * 10 + depth } else { 100 * index + depth })
                .collect();
            json!({"arrival_ms": index * 400, "input_length": 6 * 64, "output_length": 20, "hash_ids": ids})
        })
        .collect();
    let workload = json!({"requests": requests, "trace_block_size": 64});
    let reused = |deployment: Value| {
        let record = run(&json!({"deployment": deployment, "workload": workload}));
        record.requests.iter().map(|request| u64::from(request.max_reused_tokens)).sum::<u64>()
    };
    let together = reused(json!({"mode": "agg", "agg": pool(1, 4000)}));
    let apart = reused(json!({"mode": "disagg", "prefill": pool(1, 4000), "decode": pool(1, 4000)}));
    assert_eq!(together, 36 * 3 * 64);
    assert_eq!(apart, together);
}

/// A burst of prompts that are done together: the link carries no more than it can, unless transfers are said not to share.
#[test]
fn transfers_share_the_link() {
    let requests = vec![json!({"arrival_ms": 0, "input_length": 1600, "output_length": 2}); 4];
    let seconds_of_transfer = |sharing: &str| {
        let kv_transfer = json!({"bandwidth_gbps": 1.0, "bytes_per_token": 131_072, "sharing": sharing});
        let deployment = json!({"mode": "disagg", "prefill": pool(4, 4000), "decode": pool(1, 4000), "kv_transfer": kv_transfer});
        let record = run(&json!({"deployment": deployment, "workload": {"requests": requests}}));
        let handoffs = || record.handoffs.iter();
        let first = handoffs().map(|handoff| handoff.destination_reserved.unwrap()).min().unwrap();
        let last = handoffs().map(|handoff| handoff.destination_activated.unwrap()).max().unwrap();
        (last - first).as_ms() / 1e3
    };
    let bytes = 4.0 * 1600.0 * 131_072.0;
    for sharing in ["fair", "fifo"] {
        let rate = bytes / seconds_of_transfer(sharing);
        assert!(rate <= 1e9 * (1.0 + 1e-6), "{sharing}: {rate} bytes per second");
        assert!(rate > 0.99e9, "{sharing}: the link was not idle: {rate}");
    }
    assert!(bytes / seconds_of_transfer("none") > 3.9e9);
}

/// Five prompts of a thousand are larger than the cache: they fail alone.
#[test]
fn prompts_that_cannot_fit_fail_alone() {
    for backend in ["vllm", "trtllm", "sglang"] {
        let requests: Vec<Value> = (0..1000_u32)
            .map(|index| {
                let length = if index % 200 == 7 { 5000 } else { 300 + index % 50 };
                json!({"arrival_ms": index * 9, "input_length": length, "output_length": 8})
            })
            .collect();
        let mut pool = pool(2, 128);
        pool["engine"]["backend"] = json!(backend);
        let deployment = json!({"mode": "agg", "agg": pool});
        let record = run(&json!({"deployment": deployment, "workload": {"requests": requests}}));
        let counts = (count(&record, Status::Rejected), count(&record, Status::Completed));
        assert_eq!(counts, (5, 995), "{backend}");
    }
}

/// A tiny cache, five places and many prompts at once, on every engine and with every router: nothing freezes.
#[test]
fn a_tiny_engine_works_its_queue_off() {
    for backend in ["vllm", "trtllm", "sglang"] {
        for policy in ["round_robin", "kv_router", "least_loaded"] {
            for disaggregated in [false, true] {
                let mut pool = pool(2, 1024);
                pool["engine"]["backend"] = json!(backend);
                pool["engine"]["max_num_seqs"] = json!(5);
                let mut deployment = json!({"mode": "agg", "router": {"policy": policy}});
                if disaggregated {
                    deployment["mode"] = json!("disagg");
                    deployment["prefill"] = pool.clone();
                    deployment["decode"] = pool;
                } else {
                    deployment["agg"] = pool;
                }
                let requests = vec![json!({"arrival_ms": 0, "input_length": 6000, "output_length": 300}); 40];
                let record = run(&json!({"deployment": deployment, "workload": {"requests": requests}}));
                assert_eq!(count(&record, Status::Completed), 40, "{backend}, {policy}, {disaggregated}");
            }
        }
    }
}

/// Every request is accounted for at any load, also when the run is cut off.
#[test]
fn requests_are_conserved_at_any_load() {
    for rate in [2.0, 20.0, 60.0, 400.0] {
        for limit in [Value::Null, json!(3000)] {
            let workload = json!({"isl": 700, "osl": 60, "request_rate": rate, "num_request_ratio": 5,
                "arrival": {"process": "poisson"}});
            let deployment = json!({"mode": "agg", "agg": pool(2, 600)});
            let cut_off = !limit.is_null();
            let record =
                run(&json!({"deployment": deployment, "workload": workload, "max_sim_time_ms": limit}));
            let [completed, unfinished, absent] =
                [Status::Completed, Status::Unfinished, Status::Absent].map(|status| count(&record, status));
            assert_eq!(completed + unfinished + absent, record.requests.len());
            assert_eq!(unfinished + absent > 0, cut_off, "{rate}");
        }
    }
}

/// Listens, and lets nobody in.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct NeverMind {}

impl RoutingPolicy for NeverMind {
    fn route(&mut self, _: &RequestView, _: &[WorkerView], _: &mut PolicyContext<'_, '_>) -> Route {
        Route::Hold
    }

    fn needs(&self) -> Needs {
        Needs { load: true, ..Needs::default() }
    }
}

#[test]
fn a_run_that_stalls_says_who_waits_for_what() {
    let requests = vec![json!({"arrival_ms": 5, "input_length": 60, "output_length": 3}); 3];
    let registry = Registry::builtin().with_router::<NeverMind>("never_mind");
    let scenario = json!({
        "deployment": {"mode": "agg", "router": {"policy": "never_mind"}, "agg": pool(1, 100)},
        "workload": {"requests": requests},
    });
    let error = try_run(&scenario, &registry).unwrap_err().to_string();
    assert!(error.contains("3 of 3 requests not ended"), "{error}");
    assert!(error.contains("router: "), "{error}");
}

#[test]
fn a_run_that_completes_nothing_is_pointed_out() {
    let requests = vec![json!({"arrival_ms": 0, "input_length": 6000, "output_length": 3}); 2];
    let scenario =
        json!({"deployment": {"mode": "agg", "agg": pool(1, 100)}, "workload": {"requests": requests}});
    let place = Workplace::with("nothing.yaml", &scenario.to_string());
    let answer = place.run(&["replay", "nothing.yaml"]).ending(0);
    assert!(answer.stderr.contains("warning: no request completed: 2 rejected"), "{}", answer.stderr);
    let limits = ["deployment.agg.engine.max_num_seqs", "deployment.agg.engine.max_num_batched_tokens"];
    for limit in limits {
        place
            .run(&["replay", "nothing.yaml", "--set", &format!("{limit}=0")])
            .refusing(&[limit, "1 or more"]);
        place.run(&["replay", "nothing.yaml", "--set", &format!("{limit}=-3")]).refusing(&[limit]);
    }
}
