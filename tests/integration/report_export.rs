//! The rows of a replay hold enough to replay it again, to the same times.

#![allow(clippy::unwrap_used, reason = "helpers of tests may panic")]

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::cli_command::Workplace;

/// Replays a scenario and returns its rows and its summary.
fn replay(place: &Workplace, folder: &str, scenario: &Value) -> (Vec<Value>, Value) {
    let name = format!("{folder}.yaml");
    // JSON is YAML too.
    place.write(&name, &serde_json::to_string_pretty(scenario).unwrap());
    place.run(&["replay", &name, "--output-dir", folder]).ending(0);
    let rows = place.read(&format!("{folder}/requests.jsonl"));
    let rows = rows.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    (rows, place.read_json(&format!("{folder}/report.json"))["summary"].take())
}

/// The rows as a list of requests.
fn as_requests(rows: &[Value]) -> Vec<Value> {
    let mut ends: BTreeMap<&str, f64> = BTreeMap::new();
    let mut requests = Vec::new();
    for row in rows {
        let mut request = Map::new();
        request.insert("id".to_owned(), row["request_id"].clone());
        for key in ["input_length", "output_length"] {
            request.insert(key.to_owned(), row[key].clone());
        }
        let arrival = row["arrival_ms"].as_f64().unwrap();
        match row["session_id"].as_str() {
            Some(session) if row["turn_index"] != 0 => {
                request.insert("delay_ms".to_owned(), (arrival - ends[session]).into());
            }
            _ => _ = request.insert("arrival_ms".to_owned(), arrival.into()),
        }
        if let Some(session) = row["session_id"].as_str() {
            request.insert("session_id".to_owned(), session.into());
            ends.insert(session, row["terminal_ms"].as_f64().unwrap_or(f64::NAN));
        }
        let ids = row["hash_ids"].as_array().unwrap();
        let per_token = ids.len() as u64 == row["input_length"].as_u64().unwrap();
        if !ids.is_empty() {
            let key = if per_token { "input_token_ids" } else { "hash_ids" };
            request.insert(key.to_owned(), row["hash_ids"].clone());
        }
        requests.push(Value::Object(request));
    }
    requests
}

/// Small requests of every kind on two cramped workers.
fn cramped(requests: &[Value], max_sim_time_ms: Option<f64>) -> Value {
    json!({
        "deployment": {
            "mode": "agg",
            "agg": {
                "workers": 2,
                "engine": {"block_size": 4, "num_gpu_blocks": 12, "max_num_batched_tokens": 64, "max_model_len": 36},
                "timing": {"model": "polynomial"},
            },
        },
        "workload": {"requests": requests, "trace_block_size": 8},
        "sla": {"ttft_ms": 60.0, "itl_ms": 30.0},
        "max_sim_time_ms": max_sim_time_ms,
    })
}

fn requests() -> Vec<Value> {
    let mut requests = vec![
        json!({"id": "chat", "session_id": "s", "arrival_ms": 3.25, "input_length": 8, "output_length": 5, "hash_ids": [1]}),
        json!({"id": "again", "session_id": "s", "delay_ms": 7.125, "input_length": 16, "output_length": 6, "hash_ids": [1, 2]}),
        json!({"id": "too long", "arrival_ms": 4.0, "input_length": 40, "output_length": 3}),
        json!({"id": "cut short", "arrival_ms": 5.0, "input_length": 30, "output_length": 30}),
        json!({"id": "no output", "arrival_ms": 6.0, "input_length": 9, "output_length": 0}),
    ];
    for index in 0..12_u32 {
        let arrival_ms = 1.0 + f64::from(index * 37 % 19) * 2.031_250_1;
        requests.push(match index % 3 {
            0 => json!({"arrival_ms": arrival_ms, "input_length": 12, "output_length": 9, "hash_ids": [1, index]}),
            1 => json!({"arrival_ms": arrival_ms, "output_length": 14, "input_token_ids": [1, 2, 3, 4, 5, 6, index]}),
            _ => json!({"arrival_ms": arrival_ms, "input_length": 17, "output_length": 12}),
        });
    }
    requests
}

#[test]
fn an_exported_list_replays_to_the_same_rows() {
    let place = Workplace::new();
    let (rows, summary) = replay(&place, "first", &cramped(&requests(), None));
    let readmitted = rows.iter().filter(|row| row["admissions"].as_u64() > Some(1)).count();
    assert!(readmitted > 0, "somebody was preempted");
    let reused = rows.iter().filter(|row| row["reused_input_tokens"].as_u64() > Some(0)).count();
    assert!(reused > 0, "somebody found a prefix");
    let status = |name: &str| rows.iter().find(|row| row["request_id"] == name).unwrap()["status"].clone();
    assert_eq!(status("too long"), "rejected");
    assert_eq!(status("cut short"), "completed");

    let (again, same) = replay(&place, "second", &cramped(&as_requests(&rows), None));
    assert_eq!(rows, again);
    assert_eq!(summary, same);
}

#[test]
fn a_run_that_was_stopped_replays_to_the_same_rows() {
    let place = Workplace::new();
    let stop = Some(60.0);
    let (rows, summary) = replay(&place, "first", &cramped(&requests(), stop));
    assert!(rows.iter().any(|row| row["status"] == "unfinished" && !row["first_token_ms"].is_null()));
    assert!(summary["unfinished_requests"].as_u64() > Some(0));
    let (again, same) = replay(&place, "second", &cramped(&as_requests(&rows), stop));
    assert_eq!(rows, again);
    assert_eq!(summary, same);
}

#[test]
fn an_exported_trace_replays_to_the_same_rows() {
    let place = Workplace::new();
    let scenario = |trace: &str| {
        json!({
            "deployment": {"mode": "agg", "agg": {"workers": 2, "timing": {"model": "polynomial"}}},
            "workload": {"trace_path": trace, "max_requests": 200},
        })
    };
    let bundled = concat!(env!("CARGO_MANIFEST_DIR"), "/scenarios/traces/conversation.jsonl");
    let (rows, summary) = replay(&place, "first", &scenario(bundled));
    let lines: Vec<String> = rows
        .iter()
        .map(|row| {
            json!({
                "request_id": row["request_id"], "timestamp": row["arrival_ms"], "input_length": row["input_length"],
                "output_length": row["output_length"], "hash_ids": row["hash_ids"],
            })
            .to_string()
        })
        .collect();
    place.write("export.jsonl", &lines.join("\n"));
    let (again, same) = replay(&place, "second", &scenario("export.jsonl"));
    assert_eq!(rows, again);
    assert_eq!(summary, same);
    assert!(summary["prefix_cache_reused_ratio"].as_f64() > Some(0.0));
}

/// Sessions with think times, closed and open, on two workers that lack room.
fn sessions(concurrency: Option<u32>) -> Value {
    let mut requests = Vec::new();
    for session in 0..8_u32 {
        let name = format!("user {session}");
        for turn in 0..4_u32 {
            let ids: Vec<u32> = (0..=turn).map(|block| 1 + session * 10 + block).chain([session]).collect();
            let mut request = json!({
                "id": format!("{name}, turn {turn}"), "session_id": name, "input_length": ids.len() * 8 - 3,
                "output_length": 4 + (session * 5 + turn * 3) % 7, "hash_ids": ids,
            });
            let (key, time) = match turn {
                0 => ("arrival_ms", f64::from(session) * 1.5),
                _ => ("delay_ms", f64::from(turn * 11 + session) * 0.765_432_1),
            };
            request[key] = json!(time);
            requests.push(request);
        }
    }
    let mut scenario = cramped(&requests, None);
    scenario["workload"]["replay_concurrency"] = json!(concurrency);
    scenario["deployment"]["agg"]["engine"]["max_model_len"] = json!(null);
    scenario
}

#[test]
fn rows_convert_to_a_trace_that_replays_to_the_same_times() {
    for concurrency in [None, Some(3)] {
        let place = Workplace::new();
        let first = sessions(concurrency);
        let (rows, summary) = replay(&place, "first", &first);
        assert!(rows.iter().any(|row| row["admissions"].as_u64() > Some(1)), "somebody was preempted");
        let converted =
            place.run(&["trace", "convert", "first/requests.jsonl", "--block-size", "8"]).ending(0);
        place.write("converted.jsonl", &converted.stdout);
        for trace in ["converted.jsonl", "first/requests.jsonl"] {
            let mut second = first.clone();
            second["workload"] = json!({"trace_path": trace, "trace_block_size": 8});
            let (again, same) = replay(&place, "second", &second);
            let text = |row: &Value| serde_json::to_string_pretty(row).unwrap();
            for (row, other) in rows.iter().zip(&again) {
                assert_eq!(text(row), text(other), "{trace}, concurrency {concurrency:?}");
            }
            assert_eq!(summary, same);
        }
        // What is a trace already stays what it is.
        let twice = place.run(&["trace", "convert", "converted.jsonl", "--block-size", "8"]).ending(0);
        assert_eq!(converted.stdout, twice.stdout);
    }
}

#[test]
fn what_a_trace_cannot_say_is_refused() {
    let place = Workplace::new();
    let (rows, _) = replay(&place, "first", &cramped(&requests(), None));
    assert!(!rows.is_empty());
    let convert = |size| place.run(&["trace", "convert", "first/requests.jsonl", "--block-size", size]);
    convert("8").refusing(&["line", "hash_ids", "with blocks of 8 tokens"]);
}
