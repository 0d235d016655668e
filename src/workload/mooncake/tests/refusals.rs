//! Rows and files that are refused.

use super::*;

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
        r#"trace: line 2: request_id: "a" is the name of line 1 already: no two requests may share one
  2 | {"timestamp": 0, "input_length": 5, "output_length": 1, "request_id": "a"}
    |                                                                       ^^^
trace: line 3: request_id: empty: give the request a name, or leave the field out
  3 | {"timestamp": 0, "input_length": 5, "output_length": 1, "request_id": ""}
    |                                                                       ^^"#
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
    assert_eq!(message.lines().next(), Some("trace: line 1: hash_ids[0]: -1 is negative; an id cannot be"));
    assert_eq!(message.lines().count(), 3, "{message}");
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
