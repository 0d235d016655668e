//! The malformed and unusual traces that are met in the wild, kind by kind: each is refused with what helps, or taken with a word
//! about what was done.

use spica::config::scenario::TraceFormat;
use spica::workload::formats::{self, Source};
use spica::workload::mooncake;
use spica::workload::{Loaded, WorkloadErrors};

use super::cli_command::Workplace;

/// What becomes of an input.
enum Expected {
    /// A refusal that says all of this.
    Refused(&'static [&'static str]),
    /// So many requests, and warnings of exactly these kinds, in words.
    Taken(usize, &'static [&'static str]),
}

use Expected::{Refused, Taken};

/// How a trace is read.
#[derive(Clone, Copy)]
enum Form {
    Mooncake,
    Foreign(TraceFormat),
}

use Form::{Foreign, Mooncake};

const GOOD: &str = r#"{"timestamp": 0, "input_length": 600, "output_length": 2, "hash_ids": [1, 2]}"#;

fn read(form: Form, bytes: &[u8]) -> Result<Loaded, String> {
    let joined =
        |errors: Vec<WorkloadErrors>| errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n");
    match form {
        Mooncake => mooncake::read(bytes, &mooncake::Options::default()).map_err(|error| error.to_string()),
        Foreign(format) => {
            let mut reader = bytes;
            let source = Source { origin: "trace".into(), reader: &mut reader };
            formats::read(format, vec![source], &formats::Options::default()).map_err(joined)
        }
    }
}

/// Every kind of trace input: what it is, how it is read, the text, and what becomes of it.
fn traces() -> Vec<(&'static str, Form, String, Expected)> {
    let rows = |rows: &[&str]| rows.join("\n") + "\n";
    let azure = Foreign(TraceFormat::Azure);
    let burstgpt = Foreign(TraceFormat::BurstGpt);
    let many: Vec<String> = (0..300)
        .map(|row| {
            format!(
                "{{\"timestamp\": {}, \"input_length\": 9, \"output_length\": 1, \"hash_ids\": [{row}]}}\n",
                f64::from(row) / 150.0
            )
        })
        .collect();
    let gap: Vec<String> = (0..12)
        .map(|row| {
            let at = if row == 11 { 9_000_000 } else { row * 1000 };
            format!(
                "{{\"timestamp\": {at}, \"input_length\": 9, \"output_length\": 1, \"hash_ids\": [{row}]}}\n"
            )
        })
        .collect();
    vec![
        (
            "a required field is missing",
            Mooncake,
            rows(&[GOOD, r#"{"timestamp": 1, "input_length": 600, "hash_ids": [1, 2]}"#]),
            Refused(&["line 2: output_length: missing", "found timestamp, input_length, hash_ids"]),
        ),
        (
            "a later turn has no time stamp but a delay",
            Mooncake,
            rows(&[
                r#"{"timestamp": 0, "session_id": "a", "input_length": 5, "output_length": 2, "hash_ids": [1]}"#,
                r#"{"delay": 40, "session_id": "a", "input_length": 9, "output_length": 2, "hash_ids": [1]}"#,
            ]),
            Taken(2, &[]),
        ),
        (
            "a row has no time stamp and no session",
            Mooncake,
            rows(&[GOOD, r#"{"input_length": 600, "output_length": 2, "hash_ids": [1, 2]}"#]),
            Refused(&["line 2: timestamp: missing"]),
        ),
        (
            "the names of another dialect",
            Mooncake,
            rows(&[r#"{"timestamp": 1, "ContextTokens": 5, "GeneratedTokens": 2}"#]),
            Refused(&["found timestamp, ContextTokens, GeneratedTokens", "this looks like azure"]),
        ),
        (
            "names of our own dialect that others use",
            Mooncake,
            rows(&[r#"{"timestamp": 1, "input_tokens": 5, "output_tokens": 2, "hash_ids": [1]}"#]),
            Taken(1, &[]),
        ),
        (
            "two names of one field disagree",
            Mooncake,
            rows(&[
                r#"{"timestamp": 1, "input_length": 5, "input_tokens": 6, "output_length": 2, "hash_ids": [1]}"#,
            ]),
            Refused(&["input_tokens: 6 contradicts input_length 5"]),
        ),
        ("seconds where milliseconds are expected", Mooncake, many.concat(), Taken(300, &["tiny span"])),
        (
            "time stamps with fractions",
            Mooncake,
            rows(&[&GOOD.replace("\"timestamp\": 0", "\"timestamp\": 27482.5"), GOOD]),
            Taken(2, &["out of order"]),
        ),
        (
            "rows out of order",
            Mooncake,
            rows(&[&GOOD.replace("\"timestamp\": 0", "\"timestamp\": 9"), GOOD]),
            Taken(2, &["out of order"]),
        ),
        ("equal time stamps", Mooncake, rows(&[GOOD, GOOD, GOOD]), Taken(3, &[])),
        ("one gap that is most of the span", Mooncake, gap.concat(), Taken(12, &["long gap"])),
        (
            "no output asked for",
            Mooncake,
            rows(&[GOOD, &GOOD.replace("\"output_length\": 2", "\"output_length\": 0")]),
            Taken(1, &["zero output"]),
        ),
        (
            "no prompt",
            Mooncake,
            rows(&[GOOD, r#"{"timestamp": 1, "input_length": 0, "output_length": 2, "hash_ids": []}"#]),
            Taken(1, &["zero input"]),
        ),
        (
            "negative length and time",
            Mooncake,
            rows(&[r#"{"timestamp": -1, "input_length": -5, "output_length": 2, "hash_ids": [1]}"#]),
            Refused(&["timestamp: -1 is negative", "input_length: -5 is negative"]),
        ),
        (
            "NaN, Infinity and null",
            Mooncake,
            rows(&[
                &GOOD.replace("\"timestamp\": 0", "\"timestamp\": NaN"),
                &GOOD.replace("\"timestamp\": 0", "\"timestamp\": Infinity"),
                &GOOD.replace("\"timestamp\": 0", "\"timestamp\": null"),
            ]),
            Refused(&[
                "line 1, column 15: timestamp: NaN",
                "line 2, column 15: timestamp: Infinity",
                "line 3: timestamp: null",
            ]),
        ),
        (
            "no ids for a prompt",
            Mooncake,
            rows(&[GOOD, &GOOD.replace("[1, 2]", "[]")]),
            Taken(2, &["no hash_ids"]),
        ),
        (
            "the number of ids is of another block size",
            Mooncake,
            rows(&[r#"{"timestamp": 0, "input_length": 130, "output_length": 2, "hash_ids": [1, 2, 3]}"#]),
            Refused(&["3 ids for 130 tokens", "hint: a block size of 64 fits every row"]),
        ),
        (
            "ids of 64 bits",
            Mooncake,
            rows(&[&GOOD.replace("[1, 2]", "[4294967297, 18446744073709551615]"), GOOD]),
            Taken(2, &[]),
        ),
        (
            "a negative id",
            Mooncake,
            rows(&[&GOOD.replace("[1, 2]", "[1, -2]")]),
            Refused(&["hash_ids[1]: -2 is negative"]),
        ),
        (
            "ids as strings and in hex",
            Mooncake,
            rows(&[&GOOD.replace("[1, 2]", "[\"7\", \"0xff\"]")]),
            Refused(&[
                "hash_ids[0]: \"7\" is a string",
                "hash_ids[1]: \"0xff\" is a string: ids are whole numbers",
            ]),
        ),
        (
            "ids that are local to a session",
            Mooncake,
            rows(&[
                r#"{"timestamp": 0, "session_id": "a", "input_length": 5, "output_length": 2, "hash_ids": [0], "hash_id_scope": "local"}"#,
                r#"{"timestamp": 0, "session_id": "b", "input_length": 5, "output_length": 2, "hash_ids": [0], "hash_id_scope": "local"}"#,
            ]),
            Taken(2, &[]),
        ),
        (
            "numbers as strings",
            Mooncake,
            rows(&[&GOOD.replace("600", "\"600\"")]),
            Refused(&["input_length: \"600\" is a string; write the number without quotes: 600"]),
        ),
        ("whole numbers as floats", Mooncake, rows(&[&GOOD.replace("600", "600.0")]), Taken(1, &[])),
        (
            "a fraction where a whole number belongs",
            Mooncake,
            rows(&[&GOOD.replace("600", "600.5")]),
            Refused(&["input_length: 600.5 is not a whole number"]),
        ),
        (
            "integers beyond 2^64",
            Mooncake,
            rows(&[&GOOD.replace("[1, 2]", "[1, 18446744073709551616]")]),
            Refused(&[
                "hash_ids[1]: 18446744073709551616 is beyond what can be read exactly",
                "\"hash_ids\": [1, 18446744073709551616]",
            ]),
        ),
        (
            "a length beyond 2^64",
            Mooncake,
            rows(&[&GOOD.replace("600", "12345678901234567890123")]),
            Refused(&["input_length: 12345678901234567890123 tokens is more than 2147483647, the longest"]),
        ),
        (
            "a time of 2^53 behind one of 0",
            Mooncake,
            rows(&[GOOD, &GOOD.replace("\"timestamp\": 0", "\"timestamp\": 9007199254740992")]),
            Refused(&[
                "line 2: timestamp: 9007199254740992 ms is beyond 584 years; times are milliseconds, or seconds",
                "^^^^^^^^^^^^^^^^",
                "nanoseconds by 1000000",
            ]),
        ),
        (
            "a time beyond 2^64",
            Mooncake,
            rows(&[&GOOD.replace("\"timestamp\": 0", "\"timestamp\": 18446744073709551616")]),
            Refused(&["timestamp: 18446744073709551616 ms is beyond 584 years"]),
        ),
        (
            "a key given twice",
            Mooncake,
            rows(&[&GOOD.replace("\"timestamp\": 0", "\"timestamp\": 0, \"timestamp\": 1")]),
            Refused(&["line 1: timestamp: given twice"]),
        ),
        (
            "a trailing comma",
            Mooncake,
            rows(&[&GOOD.replace("2]}", "2],}"), GOOD]),
            Refused(&["line 1, column 78: trailing comma"]),
        ),
        (
            "a comment",
            Mooncake,
            rows(&[&GOOD.replace("600,", "600, // words"), GOOD]),
            Refused(&["JSON has no comments"]),
        ),
        (
            "single quotes",
            Mooncake,
            rows(&[&GOOD.replace('"', "'"), GOOD]),
            Refused(&["JSON strings take double quotes"]),
        ),
        (
            "half a last row",
            Mooncake,
            rows(&[GOOD]) + &GOOD[..30],
            Refused(&["line 2, column 30: the file is truncated", "the last good one is line 1"]),
        ),
        (
            "a byte order mark, Windows line ends, blank lines and trailing spaces",
            Mooncake,
            format!("\u{feff}{GOOD}  \r\n\r\n{GOOD}\t\r\n"),
            Taken(2, &[]),
        ),
        ("an empty file", Mooncake, String::new(), Refused(&["no requests"])),
        (
            "a header and nothing else",
            azure,
            "TIMESTAMP,ContextTokens,GeneratedTokens\n".into(),
            Refused(&["no requests"]),
        ),
        (
            "columns in another order, and one more",
            burstgpt,
            "Response tokens,Colour,Timestamp,Request tokens\n5,x,1,10\n6,x,2,11\n".into(),
            Taken(2, &["ignored fields", "no hash_ids"]),
        ),
        (
            "a column is missing",
            burstgpt,
            "Timestamp,Request tokens\n1,10\n".into(),
            Refused(&["Response tokens: missing; found Timestamp, Request tokens"]),
        ),
        (
            "a table without a header",
            azure,
            "2024-05-10 00:00:00.009930+00:00,2162,5\n2024-05-10 00:00:00.017335+00:00,2399,6\n".into(),
            Refused(&["line 1: TIMESTAMP: missing"]),
        ),
        (
            "quoted fields",
            burstgpt,
            "\"Timestamp\",\"Request tokens\",\"Response tokens\"\n\"1\",\"10\",\"5\"\n".into(),
            Taken(1, &["no hash_ids"]),
        ),
        (
            "semicolons for commas",
            burstgpt,
            "Timestamp;Request tokens;Response tokens\n1;10;5\n".into(),
            Refused(&["the columns are not separated by commas"]),
        ),
        (
            "thousands separators and decimal commas",
            burstgpt,
            "Timestamp,Request tokens,Response tokens\n\"1,5\",\"2,162\",5\n".into(),
            Refused(&[
                "line 2, column 1: Timestamp: \"1,5\"",
                "line 2, column 7: Request tokens: \"2,162\"",
                "without thousands separators",
            ]),
        ),
        (
            "a row with too few fields",
            burstgpt,
            "Timestamp,Request tokens,Response tokens\n1,10\n".into(),
            Refused(&["line 2: 2 values under 3 column names"]),
        ),
        (
            "a prompt shorter than that of the turn before",
            Mooncake,
            rows(&[
                r#"{"timestamp": 0, "session_id": "a", "input_length": 900, "output_length": 2, "hash_ids": [1, 2]}"#,
                r#"{"delay": 1, "session_id": "a", "input_length": 9, "output_length": 2, "hash_ids": [1]}"#,
            ]),
            Taken(2, &["shorter prompt"]),
        ),
        (
            "lengths that no engine has",
            Mooncake,
            rows(&[r#"{"timestamp": 0, "input_length": 5000000000, "output_length": 2}"#]),
            Refused(&["input_length: 5000000000 tokens is more than 2147483647"]),
        ),
        (
            "one row of more than 16 MiB",
            Mooncake,
            rows(&[GOOD, &format!("{{\"text\": \"{}\"}}", "x".repeat(17 << 20))]),
            Refused(&["line 2: longer than 16777216 bytes"]),
        ),
    ]
}

#[test]
fn every_kind_of_trace() {
    for (kind, form, text, expected) in traces() {
        check_trace(kind, &read(form, text.as_bytes()), &expected);
    }
}

fn check_trace(kind: &str, read: &Result<Loaded, String>, expected: &Expected) {
    match (read, expected) {
        (Ok(loaded), Taken(requests, warnings)) => {
            assert_eq!(loaded.workload.requests.len(), *requests, "{kind}");
            let found: Vec<&str> = loaded.warnings.iter().map(|warning| warning.message.as_str()).collect();
            let kinds: Vec<&str> = loaded.warnings.iter().map(|warning| warning.kind.as_str()).collect();
            assert_eq!(found.len(), warnings.len(), "{kind}: {found:?}");
            for ((kind_found, message), wanted) in kinds.iter().zip(&found).zip(*warnings) {
                assert!(
                    kind_found.contains(wanted) || message.contains(wanted),
                    "{kind}: {wanted:?} {found:?}"
                );
            }
        }
        (Err(message), Refused(parts)) => {
            for part in *parts {
                assert!(message.contains(part), "{kind}: no {part:?} in\n{message}");
            }
        }
        (Ok(_), Refused(_)) => panic!("{kind}: should be refused"),
        (Err(message), Taken(..)) => panic!("{kind}: {message}"),
    }
}

#[test]
fn gzip_by_another_name_and_plain_text_called_gzip() {
    use std::io::Write as _;
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packed.write_all(GOOD.as_bytes()).unwrap();
    let packed = packed.finish().unwrap();
    for bytes in [&packed[..], GOOD.as_bytes()] {
        check_trace("gzip by its content", &read(Mooncake, bytes), &Taken(1, &[]));
    }
    check_trace("half a gzip file", &read(Mooncake, &packed[..packed.len() - 9]), &Refused(&["truncated"]));
}

#[test]
fn prompts_beyond_the_model_fail_alone_and_many_of_them_are_pointed_out() {
    let row = |input: u32| format!("{{\"timestamp\": 0, \"input_length\": {input}, \"output_length\": 2}}\n");
    let place = Workplace::with("trace.jsonl", &(row(9000) + &row(9000) + &row(10)));
    let engine = "{workers: 1, engine: {num_gpu_blocks: 100, max_model_len: 512}}";
    let text = format!("deployment: {{mode: agg, agg: {engine}}}\nworkload: {{trace_path: trace.jsonl}}\n");
    place.write("scenario.yaml", &text);
    let answer = place.run(&["replay", "scenario.yaml"]).ending(0);
    assert!(answer.stdout.contains("1 completed, 2 rejected"), "{}", answer.stdout);
    assert!(
        answer.stderr.contains("1 of 3 requests completed: 2 rejected, since the engine can never run them"),
        "{}",
        answer.stderr
    );
}
