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
fn misfits_are_listed_briefly_and_lead_to_the_size_that_fits() {
    let rows: Vec<String> = (0..30)
        .map(|n| {
            format!(r#"{{"timestamp": {n}, "input_length": 17, "output_length": 1, "hash_ids": [1, {n}]}}"#)
        })
        .collect();
    let message = refusal(&rows.join("\n"), &options());
    assert_eq!(message.matches("there must be 5").count(), 5, "{message}");
    assert!(message.contains("and 25 more problems"), "{message}");
    assert!(message.contains("`workload.trace_block_size: 16`"), "{message}");
}

#[test]
fn every_problem_of_a_file_is_reported_with_its_line() {
    let text = r#"{"timestamp": -1, "input_length": 4.5, "output_length": "3", "hash_ids": [1, "2", -3]}

{"timestamp": 0, "input_length": 4, "hash_ids": [1]}
{"timestamp": 0, "output_length": 4}
[1]
{"timestamp": 0, "output_length": 1, "output_length": 1, "hash_ids": [1]}
{"timestamp": 0, "output_length": 1, "note": 1, "note": 2, "hash_ids": [1]}
{"timestamp": null, "output_length": 1, "hash_ids": {"a": 1}}
{"output_length": 1, "hash_ids": [1], "output_token_ids": [5, 6]}"#;
    let message = refusal(text, &options());
    for part in [
        "line 1: timestamp: -1 is negative",
        "line 1: input_length: 4.5 is not a whole number",
        "line 1: output_length: \"3\" is a string; write the number without quotes: 3",
        "line 1: hash_ids[1]: \"2\" is a string",
        "line 1: hash_ids[2]: -3 is negative",
        "line 3: output_length: missing: every row needs it; found timestamp, input_length, hash_ids",
        "line 4: input_length: missing",
        "line 5, column 1: invalid type: sequence, expected one JSON object per line",
        "line 6: output_length: given twice in this row; the second value is 1",
        "line 7: note: given twice",
        "line 8: timestamp: null is not a number",
        "line 8: hash_ids: an object is not a list",
        "line 9: output_token_ids: 2 ids for an output_length of 1",
    ] {
        assert!(message.contains(part), "{part}\n---\n{message}");
    }
}

#[test]
fn very_many_problems_are_counted() {
    let text = "{\"output_length\": -1}\n".repeat(100);
    let errors = read(text.as_bytes(), &options()).unwrap_err();
    assert_eq!(errors.problems.len(), 20);
    assert_eq!(errors.unlisted, 180);
}

#[test]
fn syntax_errors_have_a_column_and_a_reason() {
    for (line, part) in [
        (r#"{"a": 1,}"#, "line 1, column 9: trailing comma"),
        (r#"  {"timestamp": NaN}"#, "line 1, column 17: timestamp: NaN is not a number in JSON"),
        (r#"{"timestamp": -Infinity}"#, "timestamp: -Infinity is not a number in JSON"),
        (r#"{"timestamp": 1e999}"#, "timestamp: number out of range"),
        (r#"{"session_id": None}"#, "session_id: None is Python, not JSON"),
        ("{'timestamp': 1}", "JSON strings take double quotes"),
        (r#"{"a": 1} {"b": 2}"#, "line 1, column 10: trailing characters"),
        (r#"{"a": 1 // one"#, "JSON has no comments"),
    ] {
        // The good row keeps the bad one from being the last, that is, cut off.
        let text = format!("{line}\n{{\"timestamp\": 0, \"output_length\": 1, \"hash_ids\": [1]}}");
        let message = refusal(&text, &options());
        assert!(message.contains(part), "{part}\n---\n{message}");
    }
}

#[test]
fn a_cut_off_last_row_is_called_truncated() {
    let good = r#"{"timestamp": 0, "output_length": 1, "hash_ids": [1]}"#;
    let message = refusal(&format!("{good}\n\n{good}\n{}", &good[..30]), &options());
    assert!(message.contains("line 4, column 30: the file is truncated"), "{message}");
    assert!(message.contains("the last good one is line 3"), "{message}");

    let message = refusal(&format!("{}\n{good}", &good[..30]), &options());
    assert!(message.contains("line 1, column 30: EOF while parsing"), "{message}");
}

#[test]
fn other_formats_are_recognised() {
    for (text, part) in [
        ("[\n{\"timestamp\": 0}\n]", "line 1: this is a JSON list"),
        ("TIMESTAMP,ContextTokens,GeneratedTokens\n1,2,3\n", "line 1: this looks like CSV"),
        ("PK\u{3}\u{4}\n", "expected value"),
        ("\u{0}\u{1}\n", "line 1: this is not text"),
        (
            r#"{"input_toks": 1, "output_toks": 2}"#,
            "hint: this looks like llmservingsim: set `workload.trace_format: llmservingsim`",
        ),
        (
            r#"{"timestamp": 0, "output_lenght": 2, "hash_ids": [1]}"#,
            "output_lenght looks like a misspelt output_length",
        ),
        ("", "trace: no requests: the input is empty"),
        ("\n  \n\r\n", "trace: no requests: the input is empty"),
    ] {
        let message = refusal(text, &options());
        assert!(message.contains(part), "{part}\n---\n{message}");
    }
}

#[test]
fn a_damaged_gzip_file_is_refused() {
    use std::io::Write as _;
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    for n in 0..2000 {
        writeln!(encoder, r#"{{"timestamp": {n}, "output_length": 1, "hash_ids": [{}]}}"#, n * 7919).unwrap();
    }
    let mut packed = encoder.finish().unwrap();
    assert_eq!(read(&packed[..], &options()).unwrap().workload.requests.len(), 2000);
    let message = read(&packed[..packed.len() / 2], &options()).unwrap_err().to_string();
    assert!(message.contains("truncated"), "{message}");
    let middle = packed.len() / 2;
    packed[middle] ^= 0xff;
    assert!(read(&packed[..], &options()).is_err());
}

#[test]
fn a_line_without_end_is_refused_with_the_limit() {
    let mut text =
        String::from("{\"timestamp\": 0, \"output_length\": 1, \"hash_ids\": [1]}\n{\"prompt\": \"");
    text.push_str(&"x".repeat(LINE_LIMIT));
    text.push_str("\"}\n{\"timestamp\": 0}\n");
    let message = refusal(&text, &options());
    assert!(message.contains("line 2: longer than 16777216 bytes"), "{message}");
    assert!(message.contains("line 3: output_length"), "{message}");
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
fn ids_of_a_session_are_no_ids_of_another() {
    let row = |session: &str, ids: &str, scope: &str| {
        format!(
            "{{\"timestamp\": 0, \"session_id\": \"{session}\", \"output_length\": 2, \"hash_ids\": {ids}{scope}}}\n"
        )
    };
    let local = ", \"hash_id_scope\": \"local\"";
    let text = [row("a", "[0, 1]", local), row("b", "[0, 7]", local), row("a", "[0, 1, 2]", local)].concat();
    let loaded = accept(&text, &options());
    assert_eq!(loaded.workload.chunk_ids, [0, 1, 2, 3, 0, 1, 4]);
    assert_eq!(loaded.workload.chunk_names, [0, 1, 2, 3, 4]);
    assert_eq!(loaded.warnings, []);
    // An export keeps them apart.
    let mut exported = Vec::new();
    write(&loaded.workload, &mut exported).unwrap().unwrap();
    let again = read(&exported[..], &options()).unwrap();
    assert_eq!((again.workload.chunk_ids.len(), again.workload.chunk_names.len()), (7, 5));

    let mixed = [row("a", "[0]", local), row("b", "[0]", ", \"hash_id_scope\": \"global\"")].concat();
    let message = refusal(&mixed, &options());
    assert!(message.contains("hash_id_scope: the ids of line 1 belong to their session"), "{message}");
    let message = refusal(&row("a", "[0]", ", \"hash_id_scope\": \"session\""), &options());
    assert!(message.contains("\"session\" is neither \"global\" nor \"local\""), "{message}");
    let alone = "{\"timestamp\": 0, \"output_length\": 2, \"hash_ids\": [1], \"hash_id_scope\": \"local\"}";
    assert!(refusal(alone, &options()).contains("has no session_id"));
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
fn turns_follow_one_another_within_their_session() {
    let loaded =
        accept(TWO_SESSIONS, &Options { pacing: Pacing { concurrency: None, speedup: 2.0 }, ..options() });
    let workload = &loaded.workload;
    // x with its four turns, then y (10 ms), then the row of its own (20 ms).
    assert_eq!(workload.session_starts, [RequestId(0), RequestId(4), RequestId(5)]);
    assert_eq!(each(&loaded, |r| r.session), [0, 0, 0, 0, 2, 1]);
    assert_eq!(each(&loaded, |r| r.turn), [0, 1, 2, 3, 0, 0]);
    assert_eq!(
        each(&loaded, |r| r.next_turn.map(|next| next.0)),
        [Some(1), Some(2), Some(3), None, None, None]
    );
    assert_eq!(each(&loaded, |r| r.arrival), [0.0, 0.0, 0.0, 0.0, 10.0, 20.0].map(ms));
    assert_eq!(each(&loaded, |r| r.delay.as_ms()), [0.0, 50.0, 3.5, 0.0, 0.0, 0.0]);
    assert_eq!(workload.session_names, [Some("x".into()), None, Some("y".into())]);
    assert_eq!(workload.input.repaired["out of order"], 1);
    assert_eq!(
        loaded.warnings.iter().map(|w| w.kind.as_str()).collect::<Vec<_>>(),
        ["out of order", "shrinking session"]
    );
}

#[test]
fn a_closed_loop_over_sessions_keeps_file_order_and_think_times() {
    let pacing = Pacing { concurrency: Some(1), speedup: 2.0 };
    let loaded = accept(TWO_SESSIONS, &Options { pacing, ..options() });
    assert_eq!(loaded.workload.concurrency, Some(1));
    assert_eq!(each(&loaded, |r| r.session), [0, 0, 0, 0, 1, 2]);
    assert_eq!(each(&loaded, |r| r.delay.as_ms()), [0.0, 100.0, 7.0, 0.0, 0.0, 0.0]);
    assert!(loaded.workload.input.repaired.is_empty());
    assert!(loaded.warnings.iter().any(|warning| warning.message.contains("no effect in a closed loop")));
}

#[test]
fn a_closed_loop_over_single_rows_sorts_by_arrival_or_needs_none() {
    let row = |field: &str| format!("{{{field}\"output_length\": 1, \"hash_ids\": [1]}}\n");
    let text = row("\"timestamp\": 9, \"request_id\": \"late\", ")
        + &row("\"timestamp\": 1, \"request_id\": \"early\", ");
    let loaded = accept(&text, &closed(4));
    assert_eq!(each(&loaded, |r| r.name.clone().unwrap()), ["early".into(), "late".into()]);
    assert_eq!(loaded.workload.input.repaired["out of order"], 1);

    let without = row("") + &row("");
    assert_eq!(accept(&without, &closed(4)).workload.requests.len(), 2);
    let message = refusal(&without, &options());
    assert!(message.contains("line 1: timestamp: missing") && message.contains("line 2: timestamp: missing"));
    let message = refusal(&(row("\"timestamp\": 9, ") + &row("")), &closed(4));
    assert!(message.contains("line 2: timestamp: missing here and in 1 row in all"), "{message}");
}

#[test]
fn impossible_turns_are_refused() {
    let turn = |fields: &str| {
        format!("{{\"session_id\": \"s\", {fields}, \"output_length\": 1, \"hash_ids\": [1]}}\n")
    };
    for (first, second, part) in [
        ("\"timestamp\": 0, \"delay\": 5", None, "line 1: delay: 5 ms: the first turn"),
        ("\"delay\": 0", None, "line 1: timestamp: missing"),
        ("\"timestamp\": 10", Some("\"timestamp\": 5"), "line 2: timestamp: 5 ms lies before 10 ms"),
        ("\"timestamp\": 10", Some("\"delay\": -5"), "line 2: delay: -5 is negative"),
        ("\"timestamp\": 10", Some("\"delay\": 1e300"), "line 2: delay: "),
    ] {
        let message = refusal(&(turn(first) + &second.map(turn).unwrap_or_default()), &options());
        assert!(message.contains(part), "{part}\n---\n{message}");
    }
    let unstamped = turn("\"timestamp\": 1") + &turn("\"delay\": 3") + &turn("\"timestamp\": 9");
    let message = refusal(&unstamped, &options());
    assert!(
        message.contains("line 3: timestamp: the previous turn of this session has no time stamp"),
        "{message}"
    );
}

#[test]
fn a_refused_row_does_not_cast_doubt_on_the_turns_after_it() {
    let text = r#"{"session_id": "s", "timestamp": -1, "output_length": 1, "hash_ids": [1]}
        {"session_id": "s", "delay": 5, "output_length": 1, "hash_ids": [1]}"#;
    let errors = read(text.as_bytes(), &options()).unwrap_err();
    assert_eq!(errors.problems.len(), 1, "{errors}");
}

#[test]
fn a_dropped_turn_takes_no_time() {
    let text = r#"{"session_id": "s", "timestamp": 100, "output_length": 0, "hash_ids": [1]}
        {"session_id": "s", "delay": 5, "output_length": 1, "hash_ids": [2]}
        {"session_id": "s", "timestamp": 0, "delay": 7, "output_length": 0, "hash_ids": [3]}
        {"session_id": "s", "timestamp": 30, "output_length": 1, "hash_ids": [4]}
        {"session_id": "t", "timestamp": 101, "output_length": 0, "hash_ids": [1]}
        {"timestamp": 90, "output_length": 1, "hash_ids": [5]}"#;
    let loaded = accept(text, &options());
    assert_eq!(each(&loaded, |r| (r.session, r.turn)), [(1, 0), (0, 0), (0, 1)]);
    assert_eq!(each(&loaded, |r| r.arrival), [0.0, 15.0, 0.0].map(ms));
    assert_eq!(loaded.workload.requests[2].delay, SimDuration::from_ms(37.0).unwrap());
    assert_eq!(loaded.workload.session_names, [Some("s".into()), None]);
}

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

#[test]
fn no_damage_to_a_trace_causes_a_panic() {
    use rand::RngExt;
    let bytes = format!(
        "{TWO_SESSIONS}\n{{\"timestamp\": 1e3, \"input_tokens\": 3, \"output_tokens\": 2, \"output_token_ids\": [1, 2], \"x\": \"\\u00e9\"}}\n"
    );
    let alphabet = b"{}[]\",:0123456789.eE+-\\ \n\r\x00\xff\x1f\x8bnulltrefas_id";
    let mut draws = crate::simulation::stream(1, "damage");
    let (mut accepted, mut refused) = (0, 0);
    for _ in 0..5000 {
        let mut damaged = bytes.clone().into_bytes();
        for _ in 0..draws.random_range(1..4) {
            let at = draws.random_range(0..damaged.len());
            let byte = alphabet[draws.random_range(0..alphabet.len())];
            match draws.random_range(0..4) {
                0 => damaged[at] = byte,
                1 => damaged.insert(at, byte),
                2 => drop(damaged.remove(at)),
                _ => damaged.truncate(at.max(1)),
            }
        }
        match read(&damaged[..], &options()) {
            Ok(loaded) => {
                accepted += 1;
                assert_eq!(loaded.workload.requests.len() as u64, loaded.workload.input.used);
            }
            Err(errors) => {
                refused += 1;
                assert!(errors.to_string().starts_with("trace: "), "{errors}");
            }
        }
    }
    assert!(accepted > 100 && refused > 1000, "{accepted} {refused}");
}

#[test]
fn names_tell_requests_apart() {
    let named =
        |name: &str| format!("{{\"timestamp\": 0, \"input_length\": 5, \"output_length\": 1{name}}}\n");
    let (a, empty) = (named(", \"request_id\": \"a\""), named(", \"request_id\": \"\""));
    let message = refusal(&format!("{a}{a}{empty}"), &options());
    assert_eq!(
        message,
        "trace: line 2: request_id: \"a\" is the name of line 1 already: no two requests may share one\n\
         trace: line 3: request_id: empty: give the request a name, or leave the field out"
    );
    let second = named(", \"request_id\": \"request_2\"");
    let message = refusal(&format!("{second}{}", named("")), &options());
    assert!(message.starts_with("trace: line 1: request_id: \"request_2\" is what request 2"), "{message}");
    accept(&format!("{}{second}", named("")), &options());
}

#[test]
fn ids_that_cannot_be_read_are_not_counted() {
    let text = r#"{"timestamp": 0, "input_length": 9, "output_length": 2, "hash_ids": [-1, 2, 3]}"#;
    let message = refusal(text, &options());
    assert_eq!(message, "trace: line 1: hash_ids[0]: -1 is negative; an id cannot be");
}

#[test]
fn a_slow_down_beyond_the_clock_is_said_once() {
    let text = r#"{"timestamp": 0, "input_length": 5, "output_length": 1}
        {"timestamp": 1e10, "input_length": 5, "output_length": 1}
        {"timestamp": 1e10, "input_length": 5, "output_length": 1}"#;
    let slow = Options { pacing: Pacing { concurrency: None, speedup: 1e-6 }, ..options() };
    let message = refusal(text, &slow);
    assert!(
        message.starts_with("trace: arrival_speedup_ratio: 0.000001 is too small for arrivals up to"),
        "{message}"
    );
    assert_eq!(message.lines().count(), 1, "{message}");
}
