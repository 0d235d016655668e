//! Every case of `cases/`, through both arms as far as the slow one goes.

use std::sync::Arc;

use serde_json::{Map, Value, json};
use spica::config::scenario::Scenario;
use spica::report::record::{Counters, HandoffRecord, RequestRecord, RunRecord};
use spica::report::summary::Summary;
use spica::simulation::SimTime;
use spica::workload::Workload;

use crate::slow::{self, SlowRun};
use crate::support::arms;
use crate::support::case::{self, Expected, HandoffMs, Variant};
use crate::support::figure::{near, stamp};
use crate::support::scenario;

macro_rules! cases {
    (
        both_arms { $($test:ident: $file:literal,)* }
        fast_only { $($alone:ident: $alone_file:literal,)* }
    ) => {
        const FILES: &[&str] = &[$($file,)* $($alone_file),*];
        $(
            #[test]
            fn $test() {
                for variant in case::read::<Vec<Variant>>($file) {
                    check(&variant);
                }
            }
        )*
        $(
            #[test]
            fn $alone() {
                for variant in case::read::<Vec<Variant>>($alone_file) {
                    check_fast(&variant);
                }
            }
        )*
    };
}

cases! {
    both_arms {
    c01: "C01",
    c02: "C02",
    c03: "C03",
    c04: "C04",
    c05: "C05",
    c06: "C06",
    c07: "C07",
    c08: "C08",
    c09: "C09",
    c10: "C10",
    c11: "C11",
    c12: "C12",
    c13: "C13",
    c14: "C14",
    c15: "C15",
    c16: "C16",
    c17: "C17",
    c18: "C18",
    c19: "C19",
    c20: "C20",
    c21: "C21",
    c22: "C22",
    c23: "C23",
    c24: "C24",
    c25: "C25",
    c26: "C26",
    c27: "C27",
    c28: "C28",
    c29: "C29",
    c30: "C30",
    c31: "C31",
    c32: "C32",
    c33: "C33",
    c34: "C34",
    c35: "C35",
    d01: "D01",
    d02: "D02",
    d03: "D03",
    d10: "D10",
    }
    // The slow replay has no KV router.
    fast_only {
        c37: "C37",
        c38: "C38",
        c39: "C39",
    }
}

/// Files that other tests read.
const READ_ELSEWHERE: &[&str] = &["C36", "C42"];

#[test]
fn every_case_file_is_tried() {
    for entry in std::fs::read_dir(case::folder()).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "yaml") {
            let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
            assert!(FILES.iter().chain(READ_ELSEWHERE).any(|file| *file == name), "nobody reads {name}.yaml");
        }
    }
}

fn check(variant: &Variant) {
    let (scenario, workload) = build(variant);
    let slow = slow::run(&scenario, &workload).expect("the case is within what the slow replay covers");
    let mut wrong = slow_faults(variant, &workload, &slow);
    wrong.extend(figure_faults("slow", variant, &summary(&scenario, &workload, &slow.record)));
    let workload = Arc::new(workload);
    let fast = arms::fast(&scenario, &workload);
    wrong.extend(record_faults("fast", variant, &workload, &fast));
    wrong.extend(figure_faults("fast", variant, &summary(&scenario, &workload, &fast)));
    wrong.extend(arms::differences(&workload, &slow.record, &fast));
    assert!(wrong.is_empty(), "{}:\n{}", variant.name, wrong.join("\n"));
}

fn check_fast(variant: &Variant) {
    let (scenario, workload) = build(variant);
    let workload = Arc::new(workload);
    let fast = arms::fast(&scenario, &workload);
    let mut wrong = record_faults("fast", variant, &workload, &fast);
    wrong.extend(figure_faults("fast", variant, &summary(&scenario, &workload, &fast)));
    assert!(wrong.is_empty(), "{}:\n{}", variant.name, wrong.join("\n"));
}

fn build(variant: &Variant) -> (Scenario, Workload) {
    let mut workload = json!({});
    extend(&mut workload, &variant.workload);
    let lines: Vec<String> = variant.rows.iter().map(Value::to_string).collect();
    if lines.is_empty() {
        workload["requests"] = json!(variant.requests);
    } else {
        workload["trace_path"] = json!("case.jsonl");
    }
    let mut document = json!({"deployment": deployment(variant), "workload": workload});
    for (key, value) in [("sla", &variant.sla), ("max_sim_time_ms", &variant.max_sim_time_ms)] {
        if let Some(value) = value {
            document[key] = value.clone();
        }
    }
    let scenario = scenario::scenario(&document);
    let workload = scenario::workload(&scenario, Some(&mut lines.join("\n").as_bytes()));
    (scenario, workload)
}

fn deployment(variant: &Variant) -> Value {
    let mut engine = json!({"block_size": 4, "num_gpu_blocks": 100});
    extend(&mut engine, &variant.engine);
    let fixed = json!({"model": "fixed", "prefill_ms": 10, "decode_ms": 2});
    let pool = json!({
        "workers": variant.workers.unwrap_or(1),
        "dp_size": variant.dp_size.unwrap_or(1),
        "engine": engine,
        "timing": variant.timing.clone().unwrap_or(fixed),
    });
    let mut deployment = match &variant.decode {
        None => json!({"mode": "agg", "agg": pool}),
        Some(differs) => {
            let mut decode = pool.clone();
            extend(&mut decode["engine"], differs);
            json!({"mode": "disagg", "prefill": pool, "decode": decode})
        }
    };
    for (key, value) in [("router", &variant.router), ("kv_transfer", &variant.kv_transfer)] {
        if let Some(value) = value {
            deployment[key] = value.clone();
        }
    }
    deployment
}

fn extend(section: &mut Value, changes: &Map<String, Value>) {
    for (key, value) in changes {
        section[key] = value.clone();
    }
}

fn slow_faults(variant: &Variant, workload: &Workload, run: &SlowRun) -> Vec<String> {
    let mut wrong = record_faults("slow", variant, workload, &run.record);
    for (name, expected) in &variant.expect {
        let Some(tokens_ms) = &expected.tokens_ms else { continue };
        let tokens: Vec<SimTime> = tokens_ms.iter().copied().map(stamp).collect();
        let found = &run.tokens[index_of(workload, name)];
        if tokens != *found {
            wrong.push(format!("slow: tokens of {name}: expected {tokens:?}, found {found:?}"));
        }
    }
    wrong
}

fn record_faults(arm: &str, variant: &Variant, workload: &Workload, run: &RunRecord) -> Vec<String> {
    let mut wrong = Vec::new();
    for (name, expected) in &variant.expect {
        let record = &run.requests[index_of(workload, name)];
        let mut faults = request_faults(expected, record);
        let handoff = run.handoffs.get(index_of(workload, name)).copied().unwrap_or_default();
        faults.extend(handoff_faults(expected.handoff, handoff));
        wrong.extend(faults.into_iter().map(|fault| format!("{arm}: {name}: {fault}")));
    }
    for (name, expected) in &variant.counters {
        let found = counter(&run.counters, name);
        if found != *expected {
            wrong.push(format!("{arm}: {name}: expected {expected}, found {found}"));
        }
    }
    wrong
}

fn request_faults(expected: &Expected, record: &RequestRecord) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut same = |what: &str, expected: String, found: String| {
        if expected != found {
            wrong.push(format!("{what}: expected {expected}, found {found}"));
        }
    };
    same("status", format!("{:?}", expected.status.status()), format!("{:?}", record.status));
    let mut stamps = vec![
        ("arrival", expected.arrival_ms, record.arrival),
        ("first_admit", expected.first_admit_ms, record.first_admit),
        ("terminal", expected.terminal_ms, record.terminal),
    ];
    if let Some(tokens) = &expected.tokens_ms {
        same("tokens", tokens.len().to_string(), record.output_tokens.to_string());
        stamps.extend([
            ("first_token", tokens.first().copied(), record.first_token),
            ("second_token", tokens.get(1).copied(), record.second_token),
            ("last_token", tokens.last().copied(), record.last_token),
        ]);
    }
    for (what, ms, found) in stamps {
        if let Some(ms) = ms {
            same(what, format!("{:?}", Some(stamp(ms))), format!("{found:?}"));
        }
    }
    let numbers = [
        ("reused", expected.reused, Some(record.max_reused_tokens)),
        ("admissions", expected.admissions, Some(record.admissions)),
        ("worker", expected.worker, record.decode_worker),
    ];
    for (what, number, found) in numbers {
        if number.is_some() {
            same(what, format!("{number:?}"), format!("{found:?}"));
        }
    }
    wrong
}

fn handoff_faults(expected: HandoffMs, record: HandoffRecord) -> Vec<String> {
    let steps = [
        ("source_held", expected.source_held, record.source_held),
        ("destination_reserved", expected.destination_reserved, record.destination_reserved),
        ("destination_activated", expected.destination_activated, record.destination_activated),
        ("decode_admit", expected.decode_admit, record.decode_admit),
        ("source_released", expected.source_released, record.source_released),
    ];
    let wrong = steps.iter().filter(|(_, ms, found)| ms.is_some_and(|ms| *found != Some(stamp(ms))));
    wrong.map(|(what, ms, found)| format!("{what}: expected {ms:?}, found {found:?}")).collect()
}

fn summary(scenario: &Scenario, workload: &Workload, run: &RunRecord) -> Summary {
    Summary::new(run, workload, scenario.sla.as_ref())
}

fn figure_faults(arm: &str, variant: &Variant, summary: &Summary) -> Vec<String> {
    let exact = variant.summary.iter().map(|entry| (entry, 1e-9));
    let about = variant.about.iter().map(|entry| (entry, 1e-3));
    let mut wrong = Vec::new();
    for ((name, expected), tolerance) in exact.chain(about) {
        let found = summary.metric(name);
        if !found.is_some_and(|found| near(expected.value(), found, tolerance)) {
            wrong.push(format!("{arm}: {name}: expected {}, found {found:?}", expected.value()));
        }
    }
    wrong
}

fn counter(counters: &Counters, name: &str) -> u64 {
    match name {
        "passes" => counters.passes,
        "preemptions" => counters.preemptions,
        "evictions" => counters.evictions,
        "committed_prefill_tokens" => counters.committed_prefill_tokens,
        _ => panic!("no such counter: {name}"),
    }
}

fn index_of(workload: &Workload, name: &str) -> usize {
    let found = workload.requests.iter().position(|request| request.name.as_deref() == Some(name));
    found.unwrap_or_else(|| panic!("no request is called {name}"))
}
