//! `spica trace` on traces of other tools.

#![allow(clippy::unwrap_used, reason = "helpers of tests may panic")]

use super::cli_command::Workplace;

const BURSTGPT: &str = "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n\
    3.5,m,512,140,652,x\n9.25,m,80,12,92,x\n";

#[test]
fn a_converted_trace_replays() {
    let place = Workplace::with("burst.csv", BURSTGPT);
    let converted = place.run(&["trace", "convert", "--from", "burstgpt", "burst.csv"]).ending(0);
    assert!(
        converted.stderr.contains("read as burstgpt: time stamps from Timestamp in seconds"),
        "{converted:?}"
    );
    assert_eq!(
        converted.stdout,
        "{\"timestamp\":0.0,\"input_length\":512,\"output_length\":140}\n\
         {\"timestamp\":5750.0,\"input_length\":80,\"output_length\":12}\n"
    );
    place.write("trace.jsonl", &converted.stdout);
    place.write(
        "scenario.yaml",
        "deployment: {mode: agg, agg: {workers: 1}}\nworkload: {trace_path: trace.jsonl}\n",
    );
    let report = place.run(&["replay", "scenario.yaml", "--format=json"]).ending(0).json();
    assert_eq!(report["summary"]["total_input_tokens"], 592);
    let stats =
        place.run(&["trace", "stats", "--from=burstgpt", "burst.csv", "--format=json"]).ending(0).json();
    assert_eq!(stats["span_s"], 5.75);
    assert_eq!(stats["input"]["used"], 2);
}

#[test]
fn a_table_of_ones_own_is_read_by_the_names_of_its_columns() {
    let place = Workplace::with("own.csv", "when,model,in,out\n2,m,100,5\n3.5,m,200,6\n");
    let named = "--columns=arrival=when,input_length=in,output_length=out";
    let stats =
        place.run(&["trace", "stats", "--from=columns", named, "own.csv", "--format=json"]).ending(0).json();
    assert_eq!((&stats["span_s"], &stats["input"]["used"]), (&1.5.into(), &2.into()));
    for (wrong, part) in [
        ("input_length=in", "`output_length=NAME` is missing"),
        ("input_length=in,output=out", "`output` is none of input_length"),
        ("input_length=in,input_length=a,output_length=out", "`input_length` is given twice"),
        ("in", "`in` is not KEY=NAME"),
        (
            "input_length=in, cached,output_length=out",
            "` cached` is not KEY=NAME; a name that holds a comma stands in double quotes",
        ),
        ("input_length=\"in,output_length=out", "`\"in,output_length=out` has no closing quote"),
        ("input_length=\"in\" x,output_length=out", "`x,output_length=out` stands behind a closing quote"),
    ] {
        place
            .run(&["trace", "stats", "--from=columns", "--columns", wrong, "own.csv"])
            .refusing(&["--columns", part]);
    }
    place.run(&["trace", "stats", "--from=columns", "own.csv"]).refusing(&["--columns: missing"]);
    // What follows from an empty name is not said beside it.
    for rate in [&[][..], &["--request-rate=2"]] {
        let empty = "--columns=input_length=in,output_length=out,arrival=\"\"";
        let answer = place.run(&[&["trace", "stats", "--from=columns", empty, "own.csv"], rate].concat());
        assert!(
            answer.stderr.contains("--columns: arrival is empty: a column has a name"),
            "{}",
            answer.stderr
        );
        assert!(!answer.stderr.contains("line 1"), "{}", answer.stderr);
        assert!(!answer.stderr.contains("there is a column of arrivals"), "{}", answer.stderr);
        answer.refusing(&[]);
    }
    place
        .run(&["trace", "stats", "--from=azure", named, "own.csv"])
        .refusing(&["--columns: the columns of azure"]);
    place.run(&["trace", "stats", "--from=burstgpt", "own.csv"]).refusing(&["line 1", "--from columns"]);
    place.write("commas.csv", "\"tokens, in\",\"tokens \"\"out\"\"\",at\n100,5,7\n200,6,9\n");
    let named = "--columns=input_length=\"tokens, in\" , output_length = \"tokens \"\"out\"\"\",arrival=at";
    let stats = ["trace", "stats", "--from=columns", named, "--format=json", "--time-unit=us", "commas.csv"];
    let stats = place.run(&stats).ending(0).json();
    assert_eq!((&stats["span_s"], &stats["input"]["used"]), (&2e-6.into(), &2.into()), "{stats}");
    let columns = "{input_length: 'tokens, in', output_length: 'tokens \"out\"', arrival: at}";
    for (unit, duration_ms) in [("us", 0.002), ("ns", 2e-6), ("ms", 2.0), ("s", 2000.0)] {
        let trace = format!("{{trace_path: commas.csv, trace_format: columns, trace_columns: {columns}");
        place.write(
            "scenario.yaml",
            &format!("deployment: {{mode: agg, agg: {{timing: {{model: fixed, prefill_ms: 0, decode_ms: 0}}}}}}\nworkload: {trace}, trace_time_unit: {unit}}}\n"),
        );
        let report = place.run(&["replay", "scenario.yaml", "--format=json"]).ending(0).json();
        assert_eq!(report["summary"]["duration_ms"], duration_ms, "{unit}");
    }
}

#[test]
fn what_cannot_be_read_is_refused_with_a_hint() {
    let place = Workplace::with("burst.csv", BURSTGPT);
    place.run(&["trace", "stats", "burst.csv"]).refusing(&["burst.csv", "--from burstgpt"]);
    place.run(&["trace", "stats", "--from=azure", "burst.csv"]).refusing(&["line 1", "--from burstgpt"]);
    place.run(&["trace", "stats", "--from=lengths", "burst.csv"]).refusing(&["--request-rate: missing"]);
    place
        .run(&["trace", "stats", "--from=dynamo", "absent.jsonl"])
        .refusing(&["absent.jsonl", "cannot be read"]);
    place.run(&["trace", "stats", "burst.csv", "burst.csv"]).refusing(&["2 files"]);
    place
        .run(&["trace", "stats", "burst.csv", "--sessions", "--request-rate=2", "--time-unit=ns"])
        .refusing(&["--sessions", "--request-rate", "--time-unit"]);
    place.run(&["trace", "stats", "--from=azure", "--time-unit=s", "burst.csv"]).refusing(&["--time-unit"]);
    place.write("empty.csv", "");
    place.run(&["trace", "convert", "--from=azure", "empty.csv"]).refusing(&["empty.csv", "no requests"]);
    place.write("strict.csv", &BURSTGPT.replace(",80,12,92", ",80,0,80"));
    let strict = ["trace", "convert", "--from=burstgpt", "--strict", "strict.csv"];
    place.run(&strict).refusing(&["strict.csv: line 3", "zero output"]);
    let kept = ["trace", "convert", "--from=burstgpt", "--zero-output=prefill-only", "strict.csv"];
    assert_eq!(place.run(&kept).ending(0).stdout.lines().count(), 2);
}

#[test]
fn a_trace_that_was_sorted_is_written_so() {
    let row = |at: u32, input: u32, more: &str| {
        format!("{{\"timestamp\": {at}, \"input_length\": {input}, \"output_length\": 2{more}}}\n")
    };
    let place = Workplace::with(
        "mixed.jsonl",
        &[row(30, 1, ""), row(10, 2, ""), row(40, 3, ""), row(0, 4, ""), row(10, 5, "")].concat(),
    );
    let inputs = |text: &str| -> Vec<u64> {
        text.lines()
            .map(|line| {
                serde_json::from_str::<serde_json::Value>(line).unwrap()["input_length"].as_u64().unwrap()
            })
            .collect()
    };
    let sorted = place.run(&["trace", "convert", "mixed.jsonl"]).ending(0);
    assert!(sorted.stderr.contains("were sorted by arrival"), "{}", sorted.stderr);
    assert_eq!(inputs(&sorted.stdout), [4, 2, 5, 1, 3]);
    place.write("sorted.jsonl", &sorted.stdout);
    let again = place.run(&["trace", "convert", "sorted.jsonl"]).ending(0);
    assert_eq!(again.stdout, sorted.stdout);
    assert!(!again.stderr.contains("out of order"), "{}", again.stderr);
    // Both ask for the same in the same order.
    let replayed = |trace: &str| {
        place.write(
            "scenario.yaml",
            &format!("deployment: {{mode: agg, agg: {{workers: 1}}}}\nworkload: {{trace_path: {trace}}}\n"),
        );
        place.run(&["replay", "scenario.yaml", "--output-dir", trace.trim_end_matches(".jsonl")]).ending(0);
        place.read(&format!("{}/requests.jsonl", trace.trim_end_matches(".jsonl")))
    };
    assert!(replayed("mixed.jsonl") == replayed("sorted.jsonl"));

    // Sessions are sorted with all of their turns, equal arrivals as they stand in the file.
    let turn =
        |at: u32, input: u32, session: &str| row(at, input, &format!(", \"session_id\": \"{session}\""));
    let turns = [turn(30, 1, "b"), turn(0, 2, "a"), turn(30, 3, "b"), turn(30, 4, "c"), turn(5, 5, "a")];
    place.write("turns.jsonl", &turns.concat());
    let sorted = place.run(&["trace", "convert", "turns.jsonl"]).ending(0);
    assert_eq!(inputs(&sorted.stdout), [2, 5, 1, 3, 4]);
    assert!(sorted.stderr.contains("sessions are sorted by arrival"), "{}", sorted.stderr);
    place.write("sorted.jsonl", &sorted.stdout);
    let again = place.run(&["trace", "convert", "sorted.jsonl"]).ending(0);
    assert_eq!(again.stdout, sorted.stdout);
    assert!(!again.stderr.contains("sorted"), "{}", again.stderr);
}
