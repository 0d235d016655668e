//! Cases that need the whole policy: budgets, the bound of throughput scaling, and what blocks load scaling.

use std::sync::Arc;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::estimates::tests::tally;
use super::*;
use crate::engine::metrics::{Accepted, PassMetrics, Tally};
use crate::serving::fleet::PoolState;
use crate::serving::planner::Outstanding;
use crate::serving::planner::traffic::Mean;
use crate::serving::predictor::Forecast;
use crate::timing::{Fixed, PassPricer};
use crate::workload::Workload;

fn setup(role: Role, gpus_per_worker: u32) -> PoolSetup {
    PoolSetup {
        role,
        workers: 2,
        dp_size: 1,
        gpus_per_worker,
        startup: SimDuration::ZERO,
        max_num_batched_tokens: Some(8192),
        max_num_seqs: Some(256),
        context_length: Some(8192),
        block_size: 50,
        rank_kv_tokens: 100_000,
        speculative_nextn: 0,
        pricer: PassPricer::new(Arc::new(Fixed { prefill_ms: 10.0, decode_ms: 2.0 }), 1.0, 1.0),
    }
}

fn planner(fields: Value, pools: &[PoolSetup]) -> BuiltinPlanner {
    let mut planner: BuiltinPlanner = serde_json::from_value(fields).unwrap();
    let mode = if pools.len() == 1 { DeploymentMode::Agg } else { DeploymentMode::Disagg };
    assert_eq!(planner.problems(Some(mode)), Vec::<String>::new());
    planner.attach(&Setup { mode, pools: pools.to_vec(), workload: Arc::new(Workload::default()) });
    planner
}

fn agg(fields: Value) -> BuiltinPlanner {
    planner(fields, &[setup(Role::Agg, 4)])
}

fn pool(ready: u32, starting: u32, passes: Vec<PassMetrics>) -> PoolObservation {
    PoolObservation {
        state: PoolState {
            active: (0..ready).collect(),
            starting: (ready..ready + starting).collect(),
            draining: Vec::new(),
        },
        passes: passes.into_iter().enumerate().map(|(rank, pass)| (rank as u32, pass)).collect(),
        accepted: Accepted::default(),
    }
}

fn at(seconds: u64, pools: Vec<PoolObservation>) -> Observation {
    Observation {
        now: SimTime::from_ns(seconds * 1_000_000_000),
        tick: 0,
        pools,
        traffic: None,
        forecast: None,
        outstanding: Outstanding::default(),
    }
}

/// The same with a window of 180 s and a forecast for the next.
fn with_forecast(observation: Observation, num_req: f64) -> Observation {
    let window = TrafficWindow { duration_s: 180.0, ..TrafficWindow::default() };
    let forecast = Forecast { num_req, isl: 1000.0, osl: 100.0 };
    Observation { traffic: Some(window), forecast: Some(forecast), ..observation }
}

fn mixed(prefill_tokens: u32, decodes: u32, context: u32, wall_ms: f64) -> PassMetrics {
    PassMetrics {
        wall: SimDuration::from_ms(wall_ms).unwrap(),
        prefill: tally(1, prefill_tokens),
        prefill_tokens: prefill_tokens.into(),
        decode: tally(decodes, decodes * context),
        ..PassMetrics::default()
    }
}

fn busy() -> PassMetrics {
    PassMetrics { decode: tally(1, 100_001), ..PassMetrics::default() }
}

const HYBRID: &str = r#"{"optimization_target": "sla", "enable_load_scaling": true, "load_predictor": "constant",
    "max_gpu_budget": 32, "load_min_observations": 2, "ttft_ms": 9000, "itl_ms": 900}"#;

/// Case 1, second part, and the order of both kinds of scaling.
#[test]
fn throughput_scaling_comes_at_every_36th_tick_of_a_hybrid_planner() {
    let planner = agg(serde_json::from_str(HYBRID).unwrap());
    assert_eq!(planner.tick_interval().as_ns(), 5_000_000_000);
    let first = (1..100).find(|tick| planner.throughput_is_due(SimTime::from_ns(tick * 5_000_000_000)));
    assert_eq!(first, Some(36), "ordinal 35, at 180 s");
}

#[test]
fn thresholds_move_a_pool_by_one_worker() {
    let mut planner = agg(json!({"max_gpu_budget": 16}));
    let grows = planner.plan(&at(5, vec![pool(2, 0, vec![busy(), PassMetrics::default()])]));
    assert_eq!((grows.targets, grows.rule), (vec![Some(3)], "load"));
    assert_eq!(grows.proposals[0].reason, "scale_up");
    let shrinks = planner.plan(&at(10, vec![pool(3, 0, vec![PassMetrics::default(); 3])]));
    assert_eq!((shrinks.targets, shrinks.proposals[0].reason), (vec![Some(2)], "scale_down"));
    let full = planner.plan(&at(15, vec![pool(4, 0, vec![busy(); 4])]));
    assert_eq!((full.targets, full.clamps), (vec![None], vec!["gpu_budget"]));
}

/// Case 17, last part, and what else blocks load scaling.
#[test]
fn load_scaling_waits_for_all_workers_to_be_heard_and_ready() {
    let mut planner = agg(json!({"max_gpu_budget": 64}));
    let mut reason = |seconds, pool| {
        let decision = planner.plan(&at(seconds, vec![pool]));
        assert_eq!(decision.targets, [None]);
        decision.proposals[0].reason
    };
    assert_eq!(reason(5, pool(3, 0, vec![busy(); 2])), "worker_count_mismatch");
    assert_eq!(reason(10, pool(2, 1, vec![busy(); 2])), "scaling_in_progress");
    assert_eq!(reason(15, pool(2, 0, vec![])), "insufficient_data");
}

/// Case 14, third part.
#[test]
fn a_fleet_beyond_its_budget_is_repaired() {
    let mut planner = agg(json!({"max_gpu_budget": 32}));
    let middling = PassMetrics { decode: tally(1, 80_000), ..PassMetrics::default() };
    let decision = planner.plan(&at(5, vec![pool(10, 0, vec![middling; 10])]));
    assert_eq!((decision.targets, decision.rule), (vec![Some(8)], "repair"));
    let below = agg(json!({"max_gpu_budget": 32, "min_endpoint": 3}))
        .plan(&at(5, vec![pool(2, 0, vec![middling; 2])]));
    assert_eq!(below.targets, [Some(3)]);
}

/// Learns that passes take 50 ms, more with more in them, from two mixed samples at a tick of its own.
fn taught(fields: &str) -> BuiltinPlanner {
    let mut planner = agg(serde_json::from_str(fields).unwrap());
    let passes = vec![mixed(1000, 10, 1000, 40.0), mixed(4000, 40, 1000, 100.0)];
    let learning = Observation { now: SimTime::from_ns(5_000_000_000), ..at(5, vec![pool(2, 0, passes)]) };
    planner.learn(&learning);
    planner
}

/// Case 14, first part, and case 12: one decision may go several workers up, as far as step and budget allow.
#[test]
fn throughput_scaling_goes_where_the_forecast_is_in_one_step() {
    let alone = r#"{"optimization_target": "sla", "load_predictor": "constant", "max_gpu_budget": 32,
        "load_min_observations": 2}"#;
    let mut planner = taught(alone);
    let passes = || vec![PassMetrics::default(); 2];
    let flood = planner.plan(&with_forecast(at(180, vec![pool(2, 0, passes())]), 1e6));
    assert_eq!((flood.targets, flood.rule), (vec![Some(8)], "throughput"));
    assert_eq!(flood.clamps, ["max_throughput_scaling_replicas", "max_gpu_budget"]);
    let early = planner.plan(&at(185, vec![pool(8, 0, vec![PassMetrics::default(); 8])]));
    assert_eq!((early.targets, early.proposals.len()), (vec![None], 0));
    let calm = planner.plan(&with_forecast(at(360, vec![pool(8, 0, vec![PassMetrics::default(); 8])]), 1.0));
    assert_eq!(calm.targets, [Some(1)]);
}

/// An aggregated planner that has seen no mixed pass never scales.
#[test]
fn a_cold_model_holds_what_there_is() {
    let mut planner = agg(json!({"optimization_target": "sla", "load_predictor": "constant",
        "enable_load_scaling": true, "max_gpu_budget": 32}));
    for step in 1..80 {
        let idle = vec![PassMetrics { decode: tally(3, 900), ..PassMetrics::default() }; 2];
        let observation = with_forecast(at(5 * step, vec![pool(2, 0, idle)]), 500.0);
        let decision = planner.plan(&observation);
        assert_eq!(decision.targets, [None], "at {} s: {decision:?}", 5 * step);
    }
}

/// Case 15.
#[test]
fn throughput_scaling_bounds_load_scaling_from_below() {
    let mut planner = taught(HYBRID);
    let idle = |workers: u32| pool(workers, 0, vec![PassMetrics::default(); workers as usize]);
    assert_eq!(planner.plan(&at(5, vec![idle(7)])).targets, [Some(6)], "no bound yet");
    // 60 workers' worth of demand, cut to 7 + 8 by the step and to 8 by the budget.
    let lifted = planner.plan(&with_forecast(at(180, vec![idle(7)]), 1e6));
    assert_eq!((lifted.targets, lifted.rule), (vec![Some(8)], "load"));
    assert!(lifted.clamps.contains(&"throughput_bound"), "{:?}", lifted.clamps);
    let held = planner.plan(&at(185, vec![idle(8)]));
    assert_eq!((held.targets, held.clamps), (vec![None], vec!["throughput_bound"]));
}

#[test]
fn both_pools_of_a_disaggregated_fleet_are_planned_together() {
    let pools = [setup(Role::Prefill, 2), setup(Role::Decode, 2)];
    let fields = json!({"optimization_target": "load", "max_gpu_budget": 12, "prefill_scale_up_queue_tokens": 100,
        "prefill_scale_down_queue_tokens": 10, "decode_scale_up_kv_rate": 60, "decode_scale_down_kv_rate": 20});
    let mut planner = planner(fields, &pools);
    let queue = PassMetrics { queued_prefill: tally(1, 500), ..PassMetrics::default() };
    let decode = PassMetrics { decode: tally(1, 30_000), ..PassMetrics::default() };
    let seen =
        |p: u32, d: u32| vec![pool(p, 0, vec![queue; p as usize]), pool(d, 0, vec![decode; d as usize])];
    assert_eq!(planner.plan(&at(5, seen(2, 3))).targets, [Some(3), None]);
    let full = planner.plan(&at(10, seen(2, 4)));
    assert_eq!((full.targets, full.clamps), (vec![None, None], vec!["gpu_budget"]));
    let mut one_changes = seen(2, 3);
    one_changes[1] = pool(3, 1, vec![decode; 3]);
    let blocked = planner.plan(&at(15, one_changes));
    assert_eq!(blocked.proposals[0].reason, "scaling_in_progress");
}

/// The bound holds for pools of one worker too, which have no opinion of their own.
#[test]
fn throughput_scaling_bounds_pools_that_have_no_opinion() {
    let pools = [setup(Role::Prefill, 2), setup(Role::Decode, 2)];
    let mut planner = planner(serde_json::from_str(HYBRID).unwrap(), &pools);
    let prompt = |tokens: u32, wall_ms| mixed(tokens, 0, 0, wall_ms);
    let step = |requests: u32, wall_ms| PassMetrics {
        prefill: Tally::default(),
        prefill_tokens: 0,
        ..mixed(0, requests, 1000, wall_ms)
    };
    for passes in [[prompt(1000, 40.0), step(10, 10.0)], [prompt(4000, 100.0), step(40, 20.0)]] {
        planner.learn(&at(5, passes.map(|pass| pool(1, 0, vec![pass])).to_vec()));
    }
    let idle = || vec![pool(1, 0, vec![PassMetrics::default()]); 2];
    let alone = planner.plan(&at(5, idle()));
    assert_eq!((alone.targets, alone.proposals[0].reason), (vec![None, None], "no_change"));
    let lifted = planner.plan(&with_forecast(at(180, idle()), 1e6));
    // 5,556 requests per second: at 800 of a prefill worker 7 of them, at 475 of a decode worker 12, cut to 1 + 8.
    assert_eq!((lifted.targets, lifted.rule), (vec![Some(7), Some(9)], "load"));
}

#[test]
fn the_model_is_shown_the_timing_of_its_workers() {
    let mut of_reference = setup(Role::Agg, 1);
    of_reference.rank_kv_tokens = 16_384 * 64;
    assert_eq!(bootstrap::prefill_passes(&of_reference).len(), 9);
    assert_eq!(bootstrap::decode_passes(&of_reference).len(), 29);
}

#[test]
fn a_planner_can_be_told_another_capacity_than_workers_have() {
    // A share of 90 % grows to 135 % on a third as much.
    let full = PassMetrics { decode: tally(1, 90_000), ..PassMetrics::default() };
    let seen = || vec![pool(2, 0, vec![full; 2])];
    let plan = |fields| agg(fields).plan(&at(5, seen())).targets;
    assert_eq!(plan(json!({"max_gpu_budget": 32})), [None]);
    assert_eq!(plan(json!({"max_gpu_budget": 32, "assumed_gpu_blocks": 1000})), [Some(3)]);
}

#[test]
fn what_was_not_placed_was_not_cached() {
    let mut planner = agg(serde_json::from_str(HYBRID).unwrap());
    let mut hits = Mean::default();
    hits.add(0.5);
    planner.note_traffic(&TrafficWindow { kv_hit_rate: hits, ..TrafficWindow::default() });
    assert_eq!(planner.kv_hit_rate, 0.5);
    planner.note_traffic(&TrafficWindow::default());
    assert_eq!(planner.kv_hit_rate, 0.0);
}

proptest! {
    /// Within its bounds, a fleet moves by one worker at most and stays within them; the order of workers does not matter.
    #[test]
    fn load_decisions_stay_within_bounds(
        loads in prop::collection::vec((0_u32..150_000, 0_u32..40_000), 1..9),
        min_endpoint in 1_u32..3, budget in 8_i64..40,
    ) {
        let ready = loads.len() as u32;
        let pass = |&(decode, queue): &(u32, u32)| PassMetrics {
            decode: tally(u32::from(decode > 0), decode),
            queued_prefill: tally(u32::from(queue > 0), queue),
            ..PassMetrics::default()
        };
        let fields = || json!({"max_gpu_budget": budget, "min_endpoint": min_endpoint});
        let passes: Vec<PassMetrics> = loads.iter().map(pass).collect();
        let decision = agg(fields()).plan(&at(5, vec![pool(ready, 0, passes.clone())]));
        let target = decision.targets[0].unwrap_or(ready);
        let most = (budget / 4) as u32;
        if (min_endpoint..=most).contains(&ready) {
            prop_assert!((min_endpoint..=most).contains(&target), "{ready} -> {target}");
            prop_assert!(target.abs_diff(ready) <= 1);
        }
        let turned: Vec<PassMetrics> = passes.into_iter().rev().collect();
        prop_assert_eq!(agg(fields()).plan(&at(5, vec![pool(ready, 0, turned)])).targets, decision.targets);
    }

    /// The same decisions whatever the unit of time.
    #[test]
    fn scaled_time_changes_nothing(loads in prop::collection::vec(0_u32..150_000, 1..6), factor in 1_u32..7) {
        let passes: Vec<PassMetrics> = loads
            .iter()
            .map(|&decode| PassMetrics { decode: tally(u32::from(decode > 0), decode), ..PassMetrics::default() })
            .collect();
        let decide = |factor: u32| {
            let mut planner = agg(json!({"max_gpu_budget": 99, "load_adjustment_interval_seconds": 5 * factor}));
            let seen = pool(passes.len() as u32, 0, passes.clone());
            (1..4).map(|step| planner.plan(&at(u64::from(5 * factor * step), vec![seen.clone()])).targets).collect::<Vec<_>>()
        };
        prop_assert_eq!(decide(1), decide(factor));
    }
}

#[test]
fn idle_tallies_are_empty() {
    assert_eq!(tally(0, 0), Tally::default());
}
