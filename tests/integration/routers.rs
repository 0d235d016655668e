//! Routers at work: who waits in front of them, where requests go, and how they are named.

#![allow(clippy::unwrap_used, reason = "helpers of tests may panic")]

use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;

use spica::config::{self, Document};
use spica::registry::Registry;
use spica::report::record::{RequestRecord, RunRecord, Status};
use spica::serving::router::{Needs, PolicyContext, RequestView, Route, RoutingPolicy, WorkerView};
use spica::serving::{ReplayError, ReplayLimits, Traffic, replay};
use spica::simulation::SimTime;
use spica::workload;

use super::cli_command::Workplace;
use super::config::assert_refused;

/// Replays a scenario whose requests are written out. Prompts have blocks of 4 tokens, a pass with prompts takes 10 ms, one
/// with decoding requests 2 ms.
fn run(seed: u64, deployment: &str, requests: &str) -> RunRecord {
    try_run(seed, deployment, requests, &Registry::builtin()).unwrap()
}

fn try_run(
    seed: u64,
    deployment: &str,
    requests: &str,
    registry: &Registry,
) -> Result<RunRecord, ReplayError> {
    let text = format!(
        "seed: {seed}\ndeployment:\n{deployment}\nworkload:\n  trace_block_size: 4\n  requests:\n{requests}"
    );
    let Document::Scenario(scenario) = config::load(&text, Path::new("test.yaml"), &[]).unwrap() else {
        panic!("is a scenario")
    };
    let workload = workload::load(&scenario.workload, None, 4).unwrap().workload;
    let traffic = Traffic::new(Arc::new(workload), 4);
    replay(&scenario, &traffic, registry, &ReplayLimits::default())
}

const POOL: &str = "engine: {block_size: 4, max_num_batched_tokens: 100}, \
                    timing: {model: fixed, prefill_ms: 10, decode_ms: 2}";

fn aggregated(workers: u32, router: &str) -> String {
    format!("  mode: agg\n  router: {router}\n  agg: {{workers: {workers}, {POOL}}}")
}

/// One prefill worker of one rank and two decode workers of two.
fn disaggregated(router: &str, decode_router: &str) -> String {
    format!(
        "  mode: disagg\n  router: {router}\n  prefill: {{{POOL}}}\n  \
         decode: {{workers: 2, dp_size: 2, {decode_router}{POOL}}}"
    )
}

/// Requests at `(ms, input tokens, hash ids)` with one output token each.
fn requests(list: &[(f64, u32, &str)]) -> String {
    list.iter().fold(String::new(), |mut text, (ms, tokens, ids)| {
        let ids = if ids.is_empty() { String::new() } else { format!(", hash_ids: [{ids}]") };
        let _ = writeln!(text, "    - {{arrival_ms: {ms}, input_length: {tokens}, output_length: 1{ids}}}");
        text
    })
}

fn dispatched_ms(record: &RunRecord) -> Vec<f64> {
    record.requests.iter().map(|request| request.dispatched.unwrap().as_ms()).collect()
}

fn workers(record: &RunRecord, of: impl Fn(&RequestRecord) -> Option<u32>) -> Vec<u32> {
    record.requests.iter().map(|request| of(request).unwrap()).collect()
}

/// C38: a prompt computed at 10 is known from 25 on with a lag of 15.
#[test]
fn reports_of_caches_lag() {
    let router = aggregated(2, "{policy: kv_router, kv_event_lag_ms: 15}");
    let prompt = "1, 2, 3, 4";
    for seed in 1..6 {
        // Equal workers are drawn, and a draw is counted: the second prompt draws as long as nothing is known of the first.
        let early = run(seed, &router, &requests(&[(0.0, 16, prompt), (20.0, 16, prompt)]));
        assert_eq!(early.counters.router_ties, 2);
        let late = run(seed, &router, &requests(&[(0.0, 16, prompt), (25.0, 16, prompt)]));
        assert_eq!(late.counters.router_ties, 1);
        let [first, second] = workers(&late, |request| request.decode_worker)[..] else { panic!() };
        assert_eq!(first, second);
    }
}

/// C39: half of a budget of 100 tokens is 50, and 51 are too many.
#[test]
fn requests_wait_while_all_workers_are_above_the_threshold() {
    let queue = |workers| aggregated(workers, "{policy: kv_router, queue_threshold: 0.5}");
    let at_threshold = run(1, &queue(1), &requests(&[(0.0, 50, ""), (1.0, 8, "")]));
    assert_eq!(dispatched_ms(&at_threshold), [0.0, 1.0]);
    let above = run(1, &queue(1), &requests(&[(0.0, 51, ""), (1.0, 8, "")]));
    assert_eq!(dispatched_ms(&above), [0.0, 10.0]);
    let another = run(1, &queue(2), &requests(&[(0.0, 51, ""), (1.0, 8, "")]));
    assert_eq!(dispatched_ms(&another), [0.0, 1.0]);
}

#[test]
fn the_waiting_room_has_three_orders() {
    let list = [(0.0, 60, ""), (1.0, 40, ""), (2.0, 20, ""), (3.0, 30, "")];
    for (policy, expected) in [
        ("fcfs", [0.0, 10.0, 20.0, 30.0]),
        ("lcfs", [0.0, 30.0, 20.0, 10.0]),
        ("wspt", [0.0, 30.0, 10.0, 20.0]),
    ] {
        let router = format!("{{policy: kv_router, queue_threshold: 0, queue_policy: {policy}}}");
        let record = run(1, &aggregated(1, &router), &requests(&list));
        assert_eq!(dispatched_ms(&record), expected, "{policy}");
    }
}

#[test]
fn who_waits_keeps_what_was_known_of_the_caches() {
    // The second request is let in at 10, when its prompt is cached; but it came before, so it counts as 20 tokens, which
    // keep the third out until 20.
    let prompt = "1, 2, 3, 4, 5";
    let list = requests(&[(0.0, 20, prompt), (1.0, 20, prompt), (2.0, 8, "")]);
    let router = aggregated(1, "{policy: kv_router, queue_threshold: 0.1}");
    assert_eq!(dispatched_ms(&run(1, &router, &list)), [0.0, 10.0, 20.0]);
}

#[test]
fn the_prefill_router_has_the_waiting_room_of_two_pools() {
    let pools = disaggregated("{policy: kv_router, queue_threshold: 0.5}", "");
    let record = run(1, &pools, &requests(&[(0.0, 51, ""), (1.0, 8, "")]));
    assert_eq!(dispatched_ms(&record), [0.0, 10.0]);
}

/// Lets one request at a time into the pool.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct OneAtATime {
    /// Whether it asks for the load, by which it would be woken.
    listens: bool,
}

impl RoutingPolicy for OneAtATime {
    fn route(
        &mut self,
        request: &RequestView,
        workers: &[WorkerView],
        _: &mut PolicyContext<'_, '_>,
    ) -> Route {
        let free = workers.iter().all(|worker| worker.active_requests == 0);
        let holds = if self.listens { !free } else { request.id.0 > 0 };
        if holds { Route::Hold } else { Route::To(workers[0].id) }
    }

    fn needs(&self) -> Needs {
        Needs { load: self.listens, ..Needs::default() }
    }
}

#[test]
fn a_policy_may_hold_requests_if_it_hears_of_the_load() {
    let registry = Registry::builtin().with_router::<OneAtATime>("one_at_a_time");
    let list = requests(&[(0.0, 8, ""), (1.0, 60, ""), (2.0, 8, ""), (45.0, 8, "")]);
    let pool = |listens| aggregated(2, &format!("{{policy: one_at_a_time, listens: {listens}}}"));
    let record = try_run(1, &pool(true), &list, &registry).unwrap();
    assert_eq!(dispatched_ms(&record), [0.0, 10.0, 20.0, 45.0]);
    let error = try_run(1, &pool(false), &list, &registry).unwrap_err().to_string();
    assert!(error.contains("nothing would ever wake it"), "{error}");
}

#[test]
fn who_still_waits_at_the_end_is_unfinished() {
    let router = aggregated(1, "{policy: kv_router, queue_threshold: 0}");
    let list = requests(&[(0.0, 8, ""), (1.0, 8, "")]);
    let record = run(1, &router, &format!("{list}max_sim_time_ms: 5\n"));
    let ends: Vec<_> = record.requests.iter().map(|request| (request.status, request.dispatched)).collect();
    assert_eq!(ends, [(Status::Unfinished, Some(SimTime::ZERO)), (Status::Unfinished, None)]);
}

/// Two workers look the same to the first turn and differ ever after.
#[test]
fn a_session_stays_where_its_blocks_are() {
    let mut turns = String::new();
    for (turn, ids) in ["1, 2", "1, 2, 3, 4", "1, 2, 3, 4, 5, 6"].iter().enumerate() {
        let start = if turn == 0 { "arrival_ms: 0" } else { "delay_ms: 50" };
        let tokens = 8 * (turn + 1);
        let _ = writeln!(
            turns,
            "    - {{session_id: chat, {start}, input_length: {tokens}, output_length: 3, hash_ids: [{ids}]}}"
        );
    }
    let mut first_workers = Vec::new();
    for seed in 1..9 {
        for policy in ["kv_router", "approximate_kv", "session_affinity"] {
            let record = run(seed, &aggregated(2, policy), &turns);
            let workers = workers(&record, |request| request.decode_worker);
            assert!(workers.iter().all(|&worker| worker == workers[0]), "{policy}: {workers:?}");
            first_workers.push(workers[0]);
        }
    }
    assert!(first_workers.contains(&1), "the first turn is not always drawn to the same worker");
}

#[test]
fn assumed_caches_are_forgotten() {
    let prompt = "1, 2, 3, 4";
    let at = |ms| requests(&[(0.0, 16, prompt), (ms, 16, prompt)]);
    let router = aggregated(2, "{policy: approximate_kv, ttl_ms: 950}");
    assert_eq!(run(1, &router, &at(999.0)).counters.router_ties, 1);
    assert_eq!(run(1, &router, &at(1000.0)).counters.router_ties, 2);
}

#[test]
fn a_request_bound_to_a_rank_goes_to_the_least_loaded_worker_of_that_rank() {
    let bound =
        |ms: f64| format!("    - {{arrival_ms: {ms}, input_length: 8, output_length: 5, dp_rank: 1}}\n");
    let pool = format!("  mode: agg\n  router: least_loaded\n  agg: {{workers: 2, dp_size: 2, {POOL}}}");
    let free = requests(&[(0.0, 8, "")]);
    let record = run(1, &pool, &format!("{free}{}{}{}", bound(1.0), bound(2.0), bound(3.0)));
    assert_eq!(workers(&record, |request| request.decode_worker), [0, 1, 3, 1]);
}

#[test]
fn a_pool_may_have_a_router_of_its_own() {
    let prompt = "1, 2, 3, 4";
    let list = requests(&[(0.0, 16, prompt), (100.0, 16, prompt), (200.0, 16, prompt), (300.0, 16, prompt)]);
    let decode_workers = |decode_router: &str| {
        let record = run(1, &disaggregated("kv_router", decode_router), &list);
        (workers(&record, |request| request.decode_worker), record.counters.router_ties)
    };
    // What follows from the deployment's router looks at active blocks, and there are none.
    assert_eq!(decode_workers("").1, 4);
    // All ranks stand in one row.
    assert_eq!(decode_workers("router: round_robin, "), (vec![0, 1, 2, 3], 0));
    assert_eq!(decode_workers("router: least_loaded, "), (vec![0, 0, 0, 0], 0));
    // Its own KV router means what it says: it looks at prompts, which only the first worker has after a while.
    let (workers, ties) = decode_workers("router: kv_router, ");
    assert!(workers.iter().all(|worker| *worker == workers[0]), "{workers:?}");
    assert_eq!(ties, 1);
}

#[test]
fn a_router_of_a_pool_needs_two_pools() {
    let agg = "deployment: {mode: agg, agg: {router: random}}\nworkload: {trace_path: a}\n";
    assert_refused(agg, &[], "deployment.agg.router", &["`deployment.router`"]);
    let disagg = "deployment: {mode: disagg, router: kv_router, prefill: {router: random}, \
                  decode: {router: least_loaded}}\nworkload: {trace_path: a}\n";
    assert_refused(disagg, &[], "deployment.router", &["has no effect"]);
    let own: Vec<_> = match config::load(
        disagg,
        Path::new("a.yaml"),
        &["deployment.router=round_robin".parse().unwrap()],
    ) {
        Ok(Document::Scenario(scenario)) => {
            scenario.deployment.routers().map(|router| router.policy.clone()).collect()
        }
        other => panic!("{other:?}"),
    };
    assert_eq!(own, ["round_robin", "random", "least_loaded"]);
}

/// A search over every router but the two of the defaults.
const SEARCH: &str = "\
search_space:
  model_name: a/model
  hardware_sku: h200_sxm
  deployment_mode: [agg]
  parallel_configs: [{tp: 1, replicas: 3}]
  timing: {model: polynomial}
  planner_scaling_policy: [disabled]
  agg_max_num_batched_tokens: [8192]
  agg_max_num_seqs: [256]
  router_mode:
    - random
    - least_loaded
    - power_of_two
    - session_affinity
    - approximate_kv
    - {policy: cost_terms, terms: [{term: new_tokens, weight: 1}]}
workload: {isl: 500, osl: 20, concurrency: 6, num_request_ratio: 4}
";

/// Whoever mistypes a name hears of all there are.
#[test]
fn all_names_are_listed() {
    let scenario = "deployment: {mode: disagg, prefill: {router: least_loadd}, decode: {}}\n\
                    workload: {isl: 8, osl: 2, concurrency: 1, num_request_ratio: 1}\n";
    let known = Registry::builtin().router_names().collect::<Vec<_>>().join(", ");
    let place = Workplace::with("scenario.yaml", scenario);
    for command in ["check", "replay"] {
        let answer = place.run(&[command, "scenario.yaml"]).ending(2);
        assert!(answer.stderr.contains("deployment.prefill.router"), "{}", answer.stderr);
        assert!(answer.stderr.contains(&format!("known are {known}; did you mean `least_loaded`?")));
    }
    let place = Workplace::with("search.yaml", SEARCH);
    for command in ["check", "search"] {
        let change = "search_space.router_mode=[random, cost_term]";
        let answer = place.run(&[command, "search.yaml", "--set", change]).ending(2);
        assert!(answer.stderr.contains(&format!("known are {known}; did you mean `cost_terms`?")));
    }
}

#[test]
fn a_search_tries_any_router() {
    let place = Workplace::with("search.yaml", SEARCH);
    let answer = place.run(&["search", "search.yaml", "--format", "json", "--quiet"]).ending(0);
    let result: serde_json::Value = serde_json::from_str(&answer.stdout).unwrap();
    assert_eq!(result["tally"]["feasible"], 6, "{result:#}");
}

#[test]
fn stickiness_without_anybody_who_returns_is_remarked() {
    let said = |turns: u32| {
        let text = format!(
            "deployment: {{mode: agg, router: {{policy: session_affinity}}, agg: {{workers: 2}}}}\n\
             workload: {{isl: 64, osl: 2, concurrency: 2, num_request_ratio: 2, turns_per_session: {turns}}}\n"
        );
        Workplace::with("scenario.yaml", &text).run(&["replay", "scenario.yaml"]).ending(0).stderr
    };
    let remark = "scenario.yaml:1: warning: deployment.router: no session has a second turn";
    assert!(said(1).contains(remark), "{}", said(1));
    assert!(!said(2).contains("second turn"), "{}", said(2));
}
