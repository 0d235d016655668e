//! Rows that are read.

mod refusals;
mod turns;

use super::*;
use crate::simulation::{SimDuration, SimTime};
use crate::workload::{Request, RequestId};

fn options() -> Options {
    Options { block_size: 4, ..Options::default() }
}

fn closed(cap: u32) -> Options {
    Options { pacing: Pacing { concurrency: Some(cap), speedup: 1.0 }, ..options() }
}

fn accept(text: &str, options: &Options) -> Loaded {
    read(text.as_bytes(), options).unwrap_or_else(|errors| panic!("{errors}"))
}

fn refusal(text: &str, options: &Options) -> String {
    read(text.as_bytes(), options).expect_err("should be refused").to_string()
}

/// What `requests` look like at `field`.
fn each<T>(loaded: &Loaded, field: impl Fn(&Request) -> T) -> Vec<T> {
    loaded.workload.requests.iter().map(field).collect()
}

fn ms(time: f64) -> SimTime {
    SimTime::from_ms(time).unwrap()
}

#[test]
fn a_row_becomes_a_request() {
    let text = r#"{"timestamp": 3, "input_length": 9, "output_length": 2, "hash_ids": [7, 8, 7], "request_id": "r"}"#;
    let loaded = accept(text, &options());
    let request = &loaded.workload.requests[0];
    assert_eq!((request.input_length, request.output_length), (9, 2));
    assert_eq!(request.prompt, Prompt { first_chunk: 0, chunks: 3, tokens_per_chunk: 4 });
    assert_eq!(request.arrival, SimTime::ZERO);
    assert_eq!(request.name.as_deref(), Some("r"));
    assert_eq!(loaded.workload.chunk_ids, [0, 1, 0]);
    assert_eq!(loaded.workload.chunk_names, [7, 8]);
    assert_eq!(loaded.workload.session_names, [None]);
    assert_eq!(loaded.warnings, []);
}

#[test]
fn other_names_and_integral_floats_are_accepted() {
    let text = r#"{"created_time": 5.5, "input_tokens": 8.0, "output_tokens": 2e0, "hash_ids": [1.0, 2]}
        {"arrival_ms": 7.75, "input_length": 4, "input_tokens": 4, "output_length": 1, "hash_ids": [1]}"#;
    let loaded = accept(text, &options());
    assert_eq!(each(&loaded, |r| r.arrival), [ms(0.0), ms(2.25)]);
    assert_eq!(each(&loaded, |r| (r.input_length, r.output_length)), [(8, 2), (4, 1)]);
}

#[test]
fn names_that_contradict_each_other_are_refused() {
    let text =
        r#"{"timestamp": 0, "input_length": 8, "input_tokens": 7, "output_length": 2, "hash_ids": [1, 2]}"#;
    let message = refusal(text, &options());
    assert!(message.contains("trace: line 1: input_tokens: 7 contradicts input_length 8"), "{message}");
}

#[test]
fn an_absent_input_length_is_the_capacity_of_the_blocks() {
    let loaded = accept(r#"{"timestamp": 0, "output_length": 2, "hash_ids": [1, 2, 3]}"#, &options());
    assert_eq!(loaded.workload.requests[0].input_length, 12);
}

#[test]
fn block_counts_are_rounded_up() {
    for (length, ids, good) in [(12, 3, true), (13, 3, false), (9, 3, true), (8, 3, false), (8, 2, true)] {
        let ids: Vec<u32> = (0..ids).collect();
        let text = format!(
            r#"{{"timestamp": 0, "input_length": {length}, "output_length": 1, "hash_ids": {ids:?}}}"#
        );
        assert_eq!(read(text.as_bytes(), &options()).is_ok(), good, "{length}");
    }
}

#[test]
fn rows_without_content_share_nothing_and_are_counted() {
    let text = r#"{"timestamp": 0, "input_length": 4, "output_length": 1, "hash_ids": []}
        {"timestamp": 0, "input_length": 4, "output_length": 1}
        {"timestamp": 0, "input_length": 4, "output_length": 1, "hash_ids": [1]}"#;
    let loaded = accept(text, &options());
    assert_eq!(each(&loaded, |r| r.prompt.chunks), [0, 0, 1]);
    assert_eq!(loaded.workload.input.repaired["no hash_ids"], 2);
    assert_eq!(loaded.warnings.len(), 1);
    let message = refusal(text, &Options { strict: true, ..options() });
    assert!(message.contains("line 1: no hash_ids: 2 rows in all"), "{message}");
}

#[test]
fn rows_with_nothing_to_do_are_dropped_or_kept() {
    let text = r#"{"timestamp": 0, "input_length": 4, "output_length": 0, "hash_ids": [1]}
        {"timestamp": 5, "input_length": 0, "output_length": 3}
        {"timestamp": 9, "input_length": 4, "output_length": 1, "hash_ids": [2]}"#;
    let loaded = accept(text, &options());
    let input = &loaded.workload.input;
    assert_eq!((input.read, input.used), (3, 1));
    assert_eq!((input.dropped["zero output"], input.dropped["zero input"]), (1, 1));
    assert_eq!(each(&loaded, |r| r.arrival), [ms(0.0)]);
    assert_eq!(loaded.workload.chunk_ids.len(), 1);

    let kept = accept(text, &Options { zero_output: ZeroOutput::PrefillOnly, ..options() });
    assert_eq!(each(&kept, |r| (r.output_length, r.arrival)), [(0, ms(0.0)), (1, ms(9.0))]);

    let only_zero = text.lines().next().unwrap();
    let message = refusal(only_zero, &options());
    for part in [
        "no requests: of 1 row none can be used; zero output",
        "first at line 1",
        "`zero_output: prefill_only`",
    ] {
        assert!(message.contains(part), "{message}");
    }
    let message = refusal(text, &Options { strict: true, ..options() });
    assert!(message.contains("zero output") && message.contains("zero input"), "{message}");
}

#[test]
fn fields_without_effect_are_checked_and_counted() {
    let text = r#"{"timestamp": 0, "output_length": 2, "hash_ids": [1], "priority": -3, "strict_priority": 4, "policy_class": "x", "output_token_ids": [1, 2], "colour": "red"}
        {"timestamp": 0, "output_length": 2, "hash_ids": [1], "priority": 1, "colour": {"deep": [1]}}"#;
    let loaded = accept(text, &options());
    let ignored: Vec<_> =
        loaded.workload.input.ignored.iter().map(|(field, rows)| (field.as_str(), *rows)).collect();
    let expected = [
        ("priority", 2),
        ("strict_priority", 1),
        ("policy_class", 1),
        ("output_token_ids", 1),
        ("colour", 2),
    ];
    assert_eq!(ignored, expected);
    assert_eq!(loaded.warnings.len(), 1);
    assert!(loaded.warnings[0].message.contains("colour (2 rows, first at line 1)"));

    for (field, part) in [
        (r#""priority": 3000000000"#, "priority: 3000000000 is not between"),
        (r#""strict_priority": -1"#, "strict_priority: -1 is not between"),
        (r#""policy_class": 5"#, "policy_class: 5 is not a string"),
        (r#""output_token_ids": [1, -1]"#, "output_token_ids[1]: -1 is not between"),
        (r#""session_id": 5"#, "session_id: 5 is not a string"),
    ] {
        let text = format!(r#"{{"timestamp": 0, "output_length": 2, "hash_ids": [1], {field}}}"#);
        let message = refusal(&text, &options());
        assert!(message.contains(part), "{part}\n---\n{message}");
    }
}

#[test]
fn only_the_first_rows_are_read_when_so_many_are_wanted() {
    let text = "{\"timestamp\": 0, \"output_length\": 1, \"hash_ids\": [1]}\n\n".repeat(5) + "not a row";
    let loaded = accept(&text, &Options { max_requests: Some(3), ..options() });
    assert_eq!((loaded.workload.input.read, loaded.workload.requests.len()), (3, 3));
    assert!(read(text.as_bytes(), &options()).is_err());
}

#[test]
fn seconds_are_scaled_and_fields_in_ms_are_not() {
    let text = r#"{"session_id": "s", "timestamp": 1.5, "output_length": 1, "hash_ids": [1]}
        {"session_id": "s", "delay": 0.5, "output_length": 1, "hash_ids": [1]}
        {"session_id": "s", "delay_ms": 0.5, "output_length": 1, "hash_ids": [1]}
        {"timestamp": 1.75, "output_length": 1, "hash_ids": [1]}"#;
    let loaded = accept(text, &Options { time_unit: TraceTimeUnit::S, ..options() });
    assert_eq!(each(&loaded, |r| r.delay.as_ms()), [0.0, 500.0, 0.5, 0.0]);
    assert_eq!(loaded.workload.requests[3].arrival, ms(250.0));
}

const TWO_SESSIONS: &str = r#"{"session_id": "x", "timestamp": 1000, "output_length": 2, "hash_ids": [1, 2]}
{"timestamp": 1040, "output_length": 2, "hash_ids": [9, 8], "request_id": "u"}
{"session_id": "x", "timestamp": 1100, "output_length": 2, "hash_ids": [1, 2, 3]}
{"session_id": "y", "timestamp": 1020, "output_length": 2, "hash_ids": [1]}
{"session_id": "x", "delay": 7, "timestamp": 5, "output_length": 2, "hash_ids": [4]}
{"session_id": "x", "output_length": 2, "hash_ids": [5]}"#;

#[test]
fn odd_arrivals_are_pointed_out() {
    let rows = |stamps: &[f64]| {
        let row = |t: &f64| format!("{{\"timestamp\": {t}, \"output_length\": 1, \"hash_ids\": [1]}}");
        stamps.iter().map(row).collect::<Vec<_>>().join("\n")
    };
    let kinds = |text: &str, options: &Options| -> Vec<String> {
        accept(text, options).warnings.into_iter().map(|warning| warning.kind).collect()
    };
    let seconds = rows(&[0.0, 0.5, 1.0, 1.5, 2.0, 2.5]);
    assert_eq!(kinds(&seconds, &options()), ["tiny span"]);
    assert!(kinds(&seconds, &Options { time_unit: TraceTimeUnit::S, ..options() }).is_empty());
    assert!(kinds(&seconds, &closed(2)).is_empty());
    assert!(kinds(&rows(&[0.0; 20]), &options()).is_empty(), "a burst is no mistake");
    let gap: Vec<f64> = (0..12).map(|n| if n < 11 { f64::from(n) * 100.0 } else { 1e6 }).collect();
    assert_eq!(kinds(&rows(&gap), &options()), ["long gap"]);
}
