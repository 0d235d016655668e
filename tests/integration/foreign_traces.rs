//! Traces of other tools as the workload of a scenario or a search, without converting them first.

#![allow(clippy::unwrap_used, reason = "helpers of tests may panic")]

use std::fmt::Write as _;

use serde_json::Value;

use super::bundled::repository;
use super::cli_command::Workplace;

const DEPLOYMENT: &str = "deployment: {mode: agg, agg: {workers: 2, engine: {num_gpu_blocks: 900}}}\n";

fn scenario(workload: &str) -> String {
    format!("{DEPLOYMENT}workload: {{trace_path: trace, {workload}}}\n")
}

/// One trace in every form: two requests, the second 1.5 s after the first.
const FORMS: [(&str, &str, &str); 9] = [
    (
        "azure",
        "TIMESTAMP,ContextTokens,GeneratedTokens\n2024-05-10 00:00:01+00:00,100,5\n2024-05-10 00:00:02.5+00:00,200,6\n",
        "",
    ),
    ("splitwise", "arrival_timestamp,prompt_size,token_size\n1,100,5\n2.5,200,6\n", ""),
    ("burstgpt", "Timestamp,Request tokens,Response tokens\n1,100,5\n2.5,200,6\n", ""),
    (
        "llmservingsim",
        "{\"arrival_time_ns\": 1000000000, \"input_toks\": 100, \"output_toks\": 5}\n{\"arrival_time_ns\": 2500000000, \"input_toks\": 200, \"output_toks\": 6}\n",
        "",
    ),
    (
        "columns",
        "at,who,in,out\n1,me,100,5\n2.5,you,200,6\n",
        ", trace_columns: {arrival: at, input_length: in, output_length: out}",
    ),
    ("lengths", "input_length,output_length\n100,5\n200,6\n", ", request_rate: 0.6666666666666666"),
    ("vllm", "{\"input_lens\": [100, 200], \"output_lens\": [5, 6], \"start_times\": [1.0, 2.5]}", ""),
    (
        "aiperf",
        concat!(
            "{\"metadata\": {\"request_start_ns\": 1000000000, \"request_end_ns\": 1100000000}, \"metrics\": ",
            "{\"input_sequence_length\": {\"value\": 100, \"unit\": \"tokens\"}, \"output_sequence_length\": {\"value\": 5, \"unit\": \"tokens\"}}}\n",
            "{\"metadata\": {\"request_start_ns\": 2500000000, \"request_end_ns\": 2600000000}, \"metrics\": ",
            "{\"input_sequence_length\": {\"value\": 200, \"unit\": \"tokens\"}, \"output_sequence_length\": {\"value\": 6, \"unit\": \"tokens\"}}}\n",
        ),
        "",
    ),
    (
        "dynamo",
        concat!(
            "{\"schema\": \"dynamo.request.trace.v1\", \"event_type\": \"request_end\", \"event\": {\"event_type\": \"request_end\", \"request\": {\"request_id\": \"a\", ",
            "\"request_received_ms\": 1000, \"input_tokens\": 100, \"output_tokens\": 5}}}\n",
        ),
        "",
    ),
];

#[test]
fn a_scenario_replays_every_form() {
    for (format, text, more) in FORMS.into_iter().filter(|(format, ..)| *format != "dynamo") {
        let place = Workplace::with("trace", text);
        place.write("scenario.yaml", &scenario(&format!("trace_format: {format}{more}")));
        let answer = place.run(&["replay", "scenario.yaml", "--output-dir", "out"]).ending(0);
        assert!(answer.stderr.contains(&format!("trace: read as {format}: ")), "{}", answer.stderr);
        let rows: Vec<Value> =
            place.read("out/requests.jsonl").lines().map(|row| serde_json::from_str(row).unwrap()).collect();
        let found: Vec<(f64, u64, u64)> = rows
            .iter()
            .map(|row| {
                let length = |key: &str| row[key].as_u64().unwrap();
                (row["arrival_ms"].as_f64().unwrap(), length("input_length"), length("output_length"))
            })
            .collect();
        assert_eq!(found, [(0.0, 100, 5), (1500.0, 200, 6)], "{format}");
        // What was written down reads back as itself.
        let resolved = place.run(&["check", "scenario.yaml"]).ending(0).stdout;
        place.write("resolved.yaml", &resolved);
        assert_eq!(place.run(&["check", "resolved.yaml"]).ending(0).stdout, resolved, "{format}");
    }
}

#[test]
fn another_form_is_refused_with_the_nearest_dialect() {
    for (format, text, _) in
        FORMS.into_iter().filter(|(format, ..)| !["columns", "lengths", "vllm"].contains(format))
    {
        let place = Workplace::with("trace", text);
        place.write("scenario.yaml", &scenario("trace_format: mooncake"));
        let hint = format!("this looks like {format}: set `workload.trace_format: {format}`");
        place.run(&["replay", "scenario.yaml"]).refusing(&["trace", &hint]);
        let other = if format == "splitwise" { "burstgpt" } else { "splitwise" };
        place.write("scenario.yaml", &scenario(&format!("trace_format: {other}")));
        place.run(&["replay", "scenario.yaml"]).refusing(&["trace", &hint]);
    }
    let row = r#"{"timestamp": 0, "input_length": 600, "output_length": 2, "hash_ids": [1, 2]}"#;
    let place = Workplace::with("trace", &format!("{row}\n{row}\n"));
    for (format, ..) in FORMS.into_iter().filter(|(format, ..)| *format != "columns") {
        let hint =
            "this looks like mooncake: set `workload.trace_format: mooncake`, or use --from mooncake of";
        let answer = place.run(&["trace", "stats", "trace", "--from", format]).ending(2);
        assert!(answer.stderr.contains(hint), "{format}: {}", answer.stderr);
    }
    let place = Workplace::with("scenario.yaml", &scenario("trace_format: azur"));
    place
        .run(&["check", "scenario.yaml"])
        .refusing(&["invalid choice `azur`; did you mean `azure`?", "aiperf"]);
}

#[test]
fn keys_without_a_meaning_in_the_form_are_refused() {
    for (workload, parts) in [
        ("trace_format: azure, trace_block_size: 64", ["workload.trace_block_size", "which has no blocks"]),
        (
            "trace_format: azure, trace_time_unit: s",
            ["workload.trace_time_unit", "says itself what they count"],
        ),
        ("trace_format: splitwise, trace_sessions: true", ["workload.trace_sessions", "has no sessions"]),
        ("trace_time_unit: us", ["workload.trace_time_unit: `us`", "of mooncake are in ms or in s"]),
        ("trace_sessions: true", ["workload.trace_sessions", "always keeps them"]),
        ("trace_format: azure, request_rate: 2", ["workload.request_rate", "is for generated requests"]),
        ("trace_format: lengths", ["`trace_format: lengths` has no time stamps", "request_rate"]),
        (
            "trace_format: lengths, request_rate: 2, replay_concurrency: 3",
            ["workload.request_rate", "ignores arrival times"],
        ),
        (
            "trace_format: lengths, request_rate: 2, arrival: {process: fixed, seed: 7}",
            ["workload.arrival.seed", "nothing else is drawn"],
        ),
        ("trace_format: columns", ["needs `trace_columns`", "`input_length`"]),
        (
            "trace_format: columns, trace_columns: {input_length: a}",
            ["workload.trace_columns.output_length", "required"],
        ),
        (
            "trace_format: columns, trace_columns: {input_length: a, output_length: b}",
            ["a trace without `trace_columns.arrival` has no time stamps", "request_rate"],
        ),
        (
            "trace_format: columns, trace_columns: {input_length: a, output_length: A, arrival: t}",
            ["workload.trace_columns.output_length", "is the column `A`, which is `input_length` already"],
        ),
        (
            "trace_format: columns, trace_columns: {input_length: a, output_length: b, arrivals: t}",
            ["workload.trace_columns.arrivals", "did you mean `arrival`?"],
        ),
        (
            "trace_format: columns, trace_columns: {input_length: a, output_length: b, arrival: t}, request_rate: 2",
            ["workload.request_rate", "which says when requests arrive"],
        ),
        (
            "trace_format: columns, trace_columns: {input_length: a, output_length: b}, request_rate: 2, trace_time_unit: ms",
            ["workload.trace_time_unit", "has no time stamps"],
        ),
        (
            "trace_format: azure, trace_columns: {input_length: a, output_length: b}",
            ["workload.trace_columns", "`columns` takes yours"],
        ),
        ("trace_format: burstgpt, arrival: {process: poisson}", ["workload.arrival", "on a trace"]),
    ] {
        let place = Workplace::with("trace", "");
        place.write("scenario.yaml", &scenario(workload));
        place.run(&["check", "scenario.yaml"]).refusing(&parts);
    }
    // What would follow from an empty name is not said beside it.
    let place = Workplace::with("trace", "");
    let empty = "trace_format: columns, trace_columns: {input_length: a, output_length: b, arrival: \"\"}";
    place.write("scenario.yaml", &scenario(empty));
    let answer = place.run(&["check", "scenario.yaml"]).ending(2);
    assert!(
        answer.stderr.contains("workload.trace_columns.arrival: `\"\"` is not a name"),
        "{}",
        answer.stderr
    );
    assert!(!answer.stderr.contains("has no time stamps"), "{}", answer.stderr);
}

#[test]
fn a_closed_loop_needs_no_times_and_a_search_takes_every_form() {
    let place = Workplace::with("trace", "input_length,output_length\n100,5\n200,6\n300,7\n");
    place.write("scenario.yaml", &scenario("trace_format: lengths, replay_concurrency: 1"));
    let text = place.run(&["replay", "scenario.yaml"]).ending(0).stdout;
    assert!(text.contains("3 arrived: 3 completed"), "{text}");
    let search = "\
search_space: {model_name: m, hardware_sku: h200_sxm, deployment_mode: [agg], timing: {model: polynomial}, parallel_configs: [{tp: 1, replicas: 1}, {tp: 1, replicas: 2}], router_mode: [round_robin], planner_scaling_policy: [disabled], vllm_max_num_seqs: [256], vllm_max_num_batched_tokens: [8192]}
goal: {target: e2e_latency}
workload: {trace_path: trace, trace_format: lengths, request_rate: 2, arrival: {process: poisson, seed: 5}}
sweep: {exhaustive: true}
";
    let search = search.replace(", vllm_max_num_seqs: [256], vllm_max_num_batched_tokens: [8192]", "");
    place.write("search.yaml", &search);
    let answer = place.run(&["search", "search.yaml", "--output-dir", "out"]).ending(0);
    assert!(answer.stderr.contains("trace: read as lengths: 2 requests per second"), "{}", answer.stderr);
    // The winner replays to its score.
    let won = &place.read_json("out/candidates.json")["candidates"][0];
    place.run(&["replay", "out/best.yaml", "--output-dir", "best"]).ending(0);
    let summary = &place.read_json("best/report.json")["summary"];
    assert_eq!(summary["mean_e2e_latency_ms"], won["metrics"]["mean_e2e_latency_ms"]);
    assert!(summary["mean_e2e_latency_ms"].is_f64());
}

/// The bundled trace in BurstGPT's form: sessions of five turns, with lengths from the bundled conversation trace.
fn bundled() -> String {
    const SESSIONS: usize = 60;
    const TURNS: usize = 5;
    let lengths = std::fs::read_to_string(repository().join("scenarios/traces/conversation.jsonl")).unwrap();
    let lengths: Vec<(u64, u64)> = lengths
        .lines()
        .map(|line| {
            let row: Value = serde_json::from_str(line).unwrap();
            (row["input_length"].as_u64().unwrap() % 4000 + 1, row["output_length"].as_u64().unwrap())
        })
        .collect();
    // Milliseconds; turns begin some seconds after the answer to the one before.
    let mut rows = Vec::new();
    for session in 0..SESSIONS {
        let mut at = 1500 * session as u64;
        for turn in 0..TURNS {
            let (input, output) = lengths[session * TURNS + turn];
            let elapsed = 250 + 8 * output;
            rows.push((at, input, output, session, elapsed));
            at += elapsed + 2000 + 10 * (input % 400);
        }
    }
    rows.sort_unstable();
    let mut text = String::from(
        "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type\n",
    );
    for (at, input, output, session, elapsed) in rows {
        let (at, elapsed, total) = (at as f64 / 1e3, elapsed as f64 / 1e3, input + output);
        let _ = writeln!(text, "{at},{session},{elapsed},ChatGPT,{input},{output},{total},Conversation log");
    }
    text
}

#[test]
fn the_bundled_trace_is_a_generated_one() {
    let path = repository().join("scenarios/traces/chat_burstgpt.csv");
    if std::env::var_os("SPICA_RENEW_TRACES").is_some() {
        std::fs::write(&path, bundled()).unwrap();
    }
    assert_eq!(std::fs::read_to_string(&path).unwrap(), bundled());
}
