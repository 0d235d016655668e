//! Replays with a planner: the number of workers at every tick, every change, and what it cost.
//!
//! With round-robin routing nothing is left to chance, and all of it is equal to the reference. Behind the KV router ties are
//! drawn, and one other draw makes another history: there the mean cost of several seeds has to be within 3 %.

use serde_json::Value;
use spica::report::record::RunRecord;
use spica::report::summary::Summary;

use super::{answer, open};
use crate::support::arms;

#[test]
fn conv_planner_agg_throughput() {
    try_exactly("conv_planner_agg_throughput");
}

#[test]
fn conv_planner_disagg_throughput() {
    try_exactly("conv_planner_disagg_throughput");
}

#[test]
fn conv_planner_agg_load() {
    let name = "conv_planner_agg_load";
    let Some((answer, mut case)) = open(name) else { return };
    let seeds = 5;
    let (mut gpu_hours, mut equal, mut ticks) = (0.0, 0, 0);
    for seed in 1..=seeds {
        case.scenario.seed = seed;
        let record = arms::fast(&case.scenario, &case.workload);
        let summary = Summary::new(&record, &case.workload, None);
        gpu_hours += summary.gpu_hours / seeds as f64;
        let (expected, found) = (expected_replicas(&answer), replicas(&record));
        equal += expected.iter().zip(&found).filter(|(expected, found)| expected == found).count();
        ticks += expected.len();
    }
    let expected = answer["report"]["summary"]["gpu_hours"].as_f64().unwrap();
    println!("{name}: {equal} of {ticks} ticks equal, {gpu_hours} GPU hours, the reference has {expected}");
    assert!((gpu_hours / expected - 1.0).abs() <= 0.03, "{gpu_hours} GPU hours, expected {expected}");
    assert!(10 * equal >= 8 * ticks, "{equal} of {ticks} ticks equal");
}

fn try_exactly(name: &str) {
    let Some((answer, case)) = open(name) else { return };
    let record = arms::fast(&case.scenario, &case.workload);
    let (expected, found) = (expected_replicas(&answer), replicas(&record));
    let differing = expected.iter().zip(&found).find(|(expected, found)| expected != found);
    assert_eq!(differing, None, "{name}: (ms, prefill, decode) of the first other tick");
    assert_eq!(found.len(), expected.len(), "{name}: ticks");
    assert_eq!(events(&record), expected_events(&answer), "{name}");
    let faults = answer::faults(&answer, &case, &record);
    assert!(faults.is_empty(), "{name}:\n{}", faults.join("\n"));
}

/// Workers that take requests before each tick: milliseconds, prefill, decode (or aggregated).
type Replicas = (u64, u64, u64);

fn expected_replicas(answer: &Value) -> Vec<Replicas> {
    let rows = answer["report"]["planner"]["replicas_by_tick"].as_array().expect("ticks");
    let number = |row: &Value, place: usize| row[place].as_f64().expect("a number") as u64;
    rows.iter().map(|row| (number(row, 0), number(row, 1), number(row, 2))).collect()
}

fn replicas(record: &RunRecord) -> Vec<Replicas> {
    let rows = record.scaling.ticks.iter();
    rows.map(|row| match row.pools.as_slice() {
        [agg] => (row.at_ms as u64, 0, agg.active.into()),
        [prefill, decode] => (row.at_ms as u64, prefill.active.into(), decode.active.into()),
        other => panic!("{} pools", other.len()),
    })
    .collect()
}

/// Seconds, pool, from, to.
type Event = (u64, String, u64, u64);

fn expected_events(answer: &Value) -> Vec<Event> {
    let rows = answer["report"]["planner"]["scaling_events"].as_array().expect("events");
    let count = |row: &Value, key: &str| row[key].as_u64().expect("a count");
    let pool = |row: &Value| row["component"].as_str().expect("a pool").to_owned();
    rows.iter()
        .map(|row| {
            (
                row["at_s"].as_f64().expect("a time") as u64,
                pool(row),
                count(row, "from_count"),
                count(row, "to_count"),
            )
        })
        .collect()
}

fn events(record: &RunRecord) -> Vec<Event> {
    let event = |event: &spica::report::scaling::ScalingEvent| {
        (event.at.as_ns() / 1_000_000_000, event.role.name().to_owned(), event.from.into(), event.to.into())
    };
    record.scaling.events.iter().map(event).collect()
}
