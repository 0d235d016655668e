mod columns;

use super::*;
use crate::config::scenario::ArrivalProcess;
use crate::workload::mooncake;

fn read_text(format: TraceFormat, text: &str, options: &Options) -> Result<Loaded, String> {
    let mut reader = text.as_bytes();
    let source = Source { origin: "trace".into(), reader: &mut reader };
    read(format, vec![source], options)
        .map_err(|errors| errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))
}

fn accepted(format: TraceFormat, text: &str) -> Loaded {
    read_text(format, text, &Options::default()).unwrap_or_else(|errors| panic!("{errors}"))
}

#[track_caller]
fn refused(format: TraceFormat, text: &str, options: &Options, parts: &[&str]) {
    let message = read_text(format, text, options).expect_err("should be refused");
    for part in parts {
        assert!(message.contains(part), "no {part:?} in\n{message}");
    }
}

/// Arrival in milliseconds, input and output of each request.
fn rows(loaded: &Loaded) -> Vec<(f64, u32, u32)> {
    let requests = loaded.workload.requests.iter();
    requests.map(|request| (request.arrival.as_ms(), request.input_length, request.output_length)).collect()
}

fn kinds(loaded: &Loaded) -> Vec<(&str, u64)> {
    loaded.warnings.iter().map(|warning| (warning.kind.as_str(), warning.count)).collect()
}

const AZURE: &str = "\u{feff}TIMESTAMP,ContextTokens,GeneratedTokens\r\n\
    2023-11-16 18:17:03.9799600,4808,10\r\n\r\n2023-11-16 18:17:04.0319600,3180,8\r\n";

#[test]
fn azure_rows_keep_their_100_ns() {
    let loaded = accepted(TraceFormat::Azure, AZURE);
    assert_eq!(rows(&loaded), [(0.0, 4808, 10), (52.0, 3180, 8)]);
    let fine = AZURE.replace("04.0319600", "03.9799601");
    assert_eq!(accepted(TraceFormat::Azure, &fine).workload.requests[1].arrival.as_ns(), 100);
    let with_offset = AZURE.replace("9799600", "979960+00:00").replace("0319600", "031960+00:00");
    assert_eq!(rows(&accepted(TraceFormat::Azure, &with_offset)), rows(&loaded));
}

#[test]
fn columns_are_found_by_name_and_extra_ones_are_reported_once() {
    let text = "GeneratedTokens,Region,TIMESTAMP,\"ContextTokens\"\n\
        10,eu,2023-11-16 18:17:03,\"4,808\"\n8,\"a,b\",2023-11-16 18:17:04,3180\n";
    refused(
        TraceFormat::Azure,
        text,
        &Options::default(),
        &["line 2, column 27: ContextTokens: \"4,808\"", "thousands"],
    );
    let loaded = accepted(TraceFormat::Azure, &text.replace("\"4,808\"", "4808"));
    assert_eq!(rows(&loaded), [(0.0, 4808, 10), (1000.0, 3180, 8)]);
    assert_eq!(loaded.workload.input.ignored["Region"], 2);
    let ignored = loaded.warnings.iter().filter(|warning| warning.message.contains("Region"));
    assert_eq!(ignored.count(), 1);
}

#[test]
fn every_bad_row_is_reported_with_line_and_column() {
    let text = "arrived_at,num_prefill_tokens,num_decode_tokens\n0.0,10\n-1,20,3\n1,2.5,x\n2,8,1\nNaN,1,1\n";
    let parts = [
        "trace: line 2: 2 values under 3 column names",
        "line 3, column 1: arrival_timestamp: -1 is negative",
        "line 4, column 3: prompt_size: 2.5 is not a whole number",
        "line 4, column 7: token_size: \"x\" is not a number",
        "line 6, column 1: arrival_timestamp: NaN is not a time",
    ];
    refused(TraceFormat::Splitwise, text, &Options::default(), &parts);
}

#[test]
fn tables_that_are_none_are_refused_with_a_hint() {
    let none = Options::default();
    refused(TraceFormat::Azure, "", &none, &["no requests"]);
    refused(TraceFormat::Azure, "TIMESTAMP,ContextTokens,GeneratedTokens\n", &none, &["no requests"]);
    refused(TraceFormat::Splitwise, "0.0,10,3\n0.5,20,3\n", &none, &["line 1", "no header"]);
    refused(
        TraceFormat::Azure,
        "arrived_at,num_prefill_tokens,num_decode_tokens\n0,1,1\n",
        &none,
        &[
            "TIMESTAMP: missing",
            "this looks like splitwise: set `workload.trace_format: splitwise`, or use --from splitwise",
        ],
    );
    refused(
        TraceFormat::BurstGpt,
        "Timestamp;Request tokens;Response tokens\n1;2;3\n",
        &none,
        &["not separated by commas"],
    );
    refused(
        TraceFormat::Azure,
        "TIMESTAMP,ContextTokens,contexttokens,GeneratedTokens\n",
        &none,
        &["ContextTokens: stands in columns 2 and 3"],
    );
    refused(TraceFormat::Dynamo, AZURE, &none, &["not a JSON object", "looks like azure"]);
}

#[test]
fn splitwise_has_two_dialects_and_an_open_unit() {
    let simulator = "request_id,request_type,application_id,arrival_timestamp,batch_size,prompt_size,token_size\n\
        0,2,0,0.5,1,100,7\n1,2,0,0.75,1,50,3\n";
    let loaded = accepted(TraceFormat::Splitwise, simulator);
    assert_eq!(rows(&loaded), [(0.0, 100, 7), (250.0, 50, 3)]);
    assert_eq!(loaded.workload.requests[1].name.as_deref(), Some("1"));
    let batched = simulator.replace(",1,50", ",4,50");
    refused(TraceFormat::Splitwise, &batched, &Options::default(), &["line 3: batch_size: 4 is not 1"]);

    let vidur = "arrived_at,num_prefill_tokens,num_decode_tokens\n10,4808,10\n62,3180,8\n";
    let ms = Options { time_unit: Some(TraceTimeUnit::Ms), ..Options::default() };
    let loaded = read_text(TraceFormat::Splitwise, vidur, &ms).unwrap();
    assert_eq!(rows(&loaded), [(0.0, 4808, 10), (52.0, 3180, 8)]);
    refused(TraceFormat::Azure, AZURE, &ms, &["time unit: azure has one by itself"]);
}

const SESSIONS: &str = "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type\n\
    5,a,2,m,100,10,110,x\n6,,,m,30,3,33,x\n9,a,1,m,120,10,130,x\n";

#[test]
fn burstgpt_sessions_wait_for_their_turns_when_asked_to() {
    let loaded = accepted(TraceFormat::BurstGpt, SESSIONS);
    assert_eq!(rows(&loaded), [(0.0, 100, 10), (1000.0, 30, 3), (4000.0, 120, 10)]);
    assert_eq!(loaded.workload.session_starts.len(), 3);

    let sessions = Options { sessions: true, ..Options::default() };
    let loaded = read_text(TraceFormat::BurstGpt, SESSIONS, &sessions).unwrap();
    assert_eq!(loaded.workload.session_starts.len(), 2);
    let turn = loaded.workload.requests.iter().find(|request| request.turn == 1).unwrap();
    assert_eq!(turn.delay.as_ms(), 2000.0, "it came 2 s after the end of the turn before");

    let overlapping = SESSIONS.replace("5,a,2", "5,a,7");
    refused(
        TraceFormat::BurstGpt,
        &overlapping,
        &sessions,
        &["line 4", "a delay cannot be negative", "overlap"],
    );
    refused(TraceFormat::Azure, AZURE, &sessions, &["azure does not record sessions"]);
}

#[test]
fn token_ids_become_blocks_that_know_what_precedes_them() {
    let row = |ids: &[u32], at: u64| {
        let toks = ids.len();
        format!(
            "{{\"input_toks\":{toks},\"output_toks\":2,\"arrival_time_ns\":{at},\"input_tok_ids\":{ids:?}}}\n"
        )
    };
    let text =
        [row(&[1, 2, 3, 4, 5], 7), row(&[1, 2, 3, 4, 5, 6], 1_000_007), row(&[3, 4, 1, 2], 500_007)].concat();
    let options = Options { block_size: Some(2), ..Options::default() };
    let loaded = read_text(TraceFormat::LlmServingSim, &text, &options).unwrap();
    assert_eq!(rows(&loaded), [(0.0, 5, 2), (0.5, 4, 2), (1.0, 6, 2)]);
    assert_eq!(loaded.workload.input.repaired["out of order"], 1);
    let mut written = Vec::new();
    mooncake::write(&loaded.workload, &mut written).unwrap().unwrap();
    let written = String::from_utf8(written).unwrap();
    let ids: Vec<&str> = written.lines().map(|line| line.split_once("hash_ids\":").unwrap().1).collect();
    // Blocks [1 2], [3 4] behind [1 2], [5]; then the third row's, which comes before the second; then the second row's last.
    assert_eq!(ids, ["[1,2,3]}", "[5,6]}", "[1,2,4]}"]);

    refused(
        TraceFormat::LlmServingSim,
        "{\"input_toks\":3,\"output_toks\":2,\"arrival_time_ns\":0,\"input_tok_ids\":[1]}\n{\"input_toks\":3}\n",
        &Options::default(),
        &["line 1: input_tok_ids: 1 ids for input_toks 3", "line 2: arrival_time_ns: missing"],
    );
}

#[test]
fn lengths_need_a_rate() {
    let text =
        "num_prefill_tokens,num_decode_tokens,num_total_tokens,pd_ratio\n100,50,150,2\n7,7,14,1\n3,1,4,3\n";
    refused(TraceFormat::Lengths, text, &Options::default(), &["request rate: missing"]);
    let arrival = |process| Options { rate: Some((4.0, Arrival { process, seed: 1 })), ..Options::default() };
    let fixed = arrival(ArrivalProcess::Fixed);
    let loaded = read_text(TraceFormat::Lengths, text, &fixed).unwrap();
    assert_eq!(rows(&loaded), [(0.0, 100, 50), (250.0, 7, 7), (500.0, 3, 1)]);
    let json = "{\"prompt_len\": 100, \"output_len\": 50}\n{\"prompt_len\": 7, \"output_len\": 7.0}\n{\"isl\": 3, \"osl\": 1}\n";
    assert_eq!(rows(&read_text(TraceFormat::Lengths, json, &fixed).unwrap()), rows(&loaded));
    let random = read_text(TraceFormat::Lengths, text, &arrival(ArrivalProcess::Poisson)).unwrap();
    assert_ne!(rows(&random), rows(&loaded));

    refused(
        TraceFormat::Lengths,
        "{\"prompt_len\": 5, \"isl\": 6, \"osl\": 1}\n",
        &fixed,
        &["line 1: isl: 6 contradicts prompt_len 5"],
    );
    refused(TraceFormat::Lengths, "[{\"conversations\": []}]", &fixed, &["JSON list", "tokenizer"]);
    let negative =
        Options { rate: Some((-1.0, Arrival { process: ArrivalProcess::Fixed, seed: 1 })), ..fixed };
    refused(TraceFormat::Lengths, text, &negative, &["request rate: -1 requests per second"]);
    refused(TraceFormat::Azure, AZURE, &negative, &["azure has time stamps of its own"]);
}

#[test]
fn a_saved_vllm_run() {
    let text = "{\"date\": \"x\", \"num_prompts\": 3, \"input_lens\": [100, 200, 5],\n\"output_lens\": [3, 2, 0],
        \"ttfts\": [0.1], \"itls\": [[0.05]], \"errors\": [\"\", \"\", \"timed out\"], \"start_times\": [10.0, 11.5, 12]}";
    let loaded = accepted(TraceFormat::Vllm, text);
    assert_eq!(rows(&loaded), [(0.0, 100, 3), (1500.0, 200, 2)]);
    assert_eq!(loaded.workload.input.dropped["failed request"], 1);

    let none = Options::default();
    refused(TraceFormat::Vllm, &text.replace("start_times", "other"), &none, &["start_times: missing"]);
    refused(
        TraceFormat::Vllm,
        &text.replace("output_lens", "other"),
        &none,
        &["output_lens", "--save-detailed"],
    );
    refused(
        TraceFormat::Vllm,
        &text.replace("[3, 2, 0]", "[3, 2]"),
        &none,
        &["2 values beside 3 input_lens"],
    );
    refused(
        TraceFormat::Vllm,
        &text.replace("[3, 2, 0]", "[3, -2, 0]"),
        &none,
        &["trace[1]: output_lens: -2 is negative"],
    );
    refused(TraceFormat::Vllm, &text.repeat(2), &none, &["line 3, column", "several runs"]);
    let rate = Some((2.0, Arrival { process: ArrivalProcess::Fixed, seed: 0 }));
    let rated = Options { rate, ..Options::default() };
    refused(TraceFormat::Vllm, text, &rated, &["start_times", "no request rate"]);
    let loaded = read_text(TraceFormat::Vllm, &text.replace("start_times", "other"), &rated).unwrap();
    assert_eq!(rows(&loaded), [(0.0, 100, 3), (500.0, 200, 2)]);
}

fn aiperf(start: u64, end: u64, metrics: &str, rest: &str) -> String {
    format!(
        "{{\"metadata\": {{\"session_num\": 4, \"x_request_id\": \"r{start}\", \"x_correlation_id\": \"s\", \"turn_index\": 0, \
         \"request_start_ns\": {start}, \"request_end_ns\": {end}, \"benchmark_phase\": \"profiling\"{rest}}}, \
         \"metrics\": {{{metrics}}}, \"error\": null}}\n"
    )
}

#[test]
fn aiperf_records() {
    let lengths = "\"input_sequence_length\": {\"value\": 550, \"unit\": \"tokens\"}, \"output_sequence_length\": {\"value\": 9, \"unit\": \"tokens\"}";
    let start = 1_759_813_207_532_900_363;
    let text = [
        aiperf(start, start + 1_000_000, lengths, ""),
        aiperf(start + 3_000_001, start + 4_000_000, lengths, ""),
        aiperf(start + 5, start + 6, "\"error_isl\": {\"value\": 1}", ", \"was_cancelled\": true"),
    ]
    .concat();
    let loaded = accepted(TraceFormat::Aiperf, &text);
    assert_eq!(rows(&loaded), [(0.0, 550, 9), (3.000_001, 550, 9)]);
    assert_eq!(loaded.workload.input.dropped["failed request"], 1);
    let sessions = Options { sessions: true, ..Options::default() };
    let loaded = read_text(TraceFormat::Aiperf, &text, &sessions).unwrap();
    assert_eq!(loaded.workload.requests[1].delay.as_ns(), 2_000_001);

    let bad = aiperf(1, 2, "\"input_sequence_length\": {\"value\": \"550\"}", "");
    let parts = ["line 1: input_sequence_length: \"550\" is a string", "output_sequence_length: missing"];
    refused(TraceFormat::Aiperf, &bad, &Options::default(), &parts);
}

fn dynamo(received: &str, block_size: u32, hashes: &str, input: u32) -> String {
    format!(
        "{{\"timestamp\":1,\"event\":{{\"schema\":\"dynamo.request.trace.v1\",\"event_type\":\"request_end\",\"agent_context\":\
         {{\"session_id\":\"a\"}},\"request\":{{\"request_id\":\"r\",\"input_tokens\":{input},\"output_tokens\":3,\
         \"request_received_ms\":{received},\"total_time_ms\":2.5,\"replay\":{{\"trace_block_size\":{block_size},\
         \"input_length\":20,\"input_sequence_hashes\":[{hashes}]}}}}}}}}\n"
    )
}

#[test]
fn dynamo_events() {
    let tool = "{\"timestamp\":1,\"event\":{\"schema\":\"dynamo.request.trace.v1\",\"event_type\":\"tool_start\"}}\n";
    let first = dynamo("1779163048815", 16, "18446744073709551615,1", 20);
    let second = dynamo("1779163048825", 16, "18446744073709551615,2", 20).replace("\"r\"", "\"s\"");
    let loaded = accepted(TraceFormat::Dynamo, &[&first, tool, &second].concat());
    assert_eq!(rows(&loaded), [(0.0, 20, 3), (10.0, 20, 3)]);
    assert_eq!(loaded.workload.chunk_ids, [0, 1, 0, 2]);
    assert_eq!(loaded.workload.requests[0].prompt.tokens_per_chunk, 16);
    assert_eq!(kinds(&loaded), [("other events", 1)]);
    let sessions = Options { sessions: true, ..Options::default() };
    let turns = read_text(TraceFormat::Dynamo, &[&second[..], &first].concat(), &sessions).unwrap();
    assert_eq!(turns.workload.requests[1].delay.as_ms(), 7.5);

    let bad = [
        dynamo("\"soon\"", 16, "1,2", 20),
        dynamo("1", 16, "1", 20),
        dynamo("1", 8, "1,2,3", 20),
        dynamo("1", 16, "1,2", 21),
        first.replace("trace.v1", "trace.v9"),
        "{\"event\":{\"schema\":\"dynamo.request.trace.v1\",\"event_type\":\"request_end\",\"request\":{\"input_tok".into(),
    ];
    let parts = [
        "line 1: request_received_ms: \"soon\" is not a number",
        "line 2: input_sequence_hashes: 1 hashes for 20 tokens",
        "line 3: trace_block_size: 8, but 16 at line 2",
        "line 4: replay.input_length: 20 contradicts input_tokens 21",
        "line 5: event.schema: \"dynamo.request.trace.v9\"",
        "line 6, column",
        "the file is truncated",
    ];
    refused(TraceFormat::Dynamo, &bad.concat(), &Options::default(), &parts);
}

#[test]
fn shards_are_one_trace_and_must_agree() {
    let read_shards = |format, texts: [&str; 2]| {
        let (mut a, mut b) = (texts[0].as_bytes(), texts[1].as_bytes());
        let sources = vec![
            Source { origin: "a".into(), reader: &mut a },
            Source { origin: "b".into(), reader: &mut b },
        ];
        read(format, sources, &Options::default())
            .map_err(|errors| errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))
    };
    let (first, second) =
        (dynamo("100", 16, "1,2", 20), dynamo("103", 16, "1,3", 20).replace("\"r\"", "\"s\""));
    let loaded = read_shards(TraceFormat::Dynamo, [&second, &first]).unwrap();
    assert_eq!(rows(&loaded), [(0.0, 20, 3), (3.0, 20, 3)]);
    let other = dynamo("103", 32, "1", 20);
    let message = read_shards(TraceFormat::Dynamo, [&first, &other]).unwrap_err();
    assert!(message.contains("b: line 1: trace_block_size: 32, but 16 at line 1"), "{message}");
    let message = read_shards(TraceFormat::Azure, [AZURE, AZURE]).unwrap_err();
    assert!(message.contains("only a dynamo trace may be in several files"), "{message}");
}

#[test]
fn strict_refuses_what_would_be_dropped() {
    let text = "Timestamp,Request tokens,Response tokens\n1,0,0\n2,5,5\n";
    let strict = Options { strict: true, ..Options::default() };
    refused(TraceFormat::BurstGpt, text, &strict, &["line 2", "zero input: 1 row", "strict"]);
    let kept = Options { zero_output: ZeroOutput::PrefillOnly, ..Options::default() };
    let loaded = read_text(TraceFormat::BurstGpt, &text.replace("1,0,0", "1,9,0"), &kept).unwrap();
    assert_eq!(rows(&loaded), [(0.0, 9, 0), (1000.0, 5, 5)]);
}

#[test]
fn only_the_first_rows_are_read_when_asked() {
    let text = "Timestamp,Request tokens,Response tokens\n1,4,4\n2,5,5\nbad,5,5\n";
    let first = Options { max_requests: Some(2), ..Options::default() };
    assert_eq!(read_text(TraceFormat::BurstGpt, text, &first).unwrap().workload.requests.len(), 2);
}

#[test]
fn problems_come_with_their_lines() {
    let options = Options::default();
    let shown = |format, text: &str| read_text(format, text, &options).expect_err("should be refused");
    let cells =
        "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03,48o8,10\n2023-11-16 18:17:03,1\n";
    let message = shown(TraceFormat::Azure, cells);
    let lines: Vec<&str> = message.lines().collect();
    assert_eq!(
        lines[1..3],
        ["  2 | 2023-11-16 18:17:03,48o8,10", "    |                     ^^^^"],
        "{message}"
    );
    assert_eq!(lines[4], "  3 | 2023-11-16 18:17:03,1", "{message}");
    let row = |ns: &str| format!("{{\"arrival_time_ns\": {ns}, \"input_toks\": 5, \"output_toks\": 2}}\n");
    let message = shown(
        TraceFormat::LlmServingSim,
        &format!("{}{}", row("\"soon\""), row("7").trim_end_matches("}\n")),
    );
    let expected = "  1 | {\"arrival_time_ns\": \"soon\", \"input_toks\": 5, \"output_toks\": 2}\n    |                     ^^^^^^";
    assert!(message.contains(expected), "{message}");
    assert!(
        message.contains("the file is truncated") && message.lines().last().unwrap().ends_with('^'),
        "{message}"
    );
    let hidden = format!("{{\"x\": \"\u{1b}[2J{}\"", "y".repeat(1 << 16));
    let message = shown(TraceFormat::LlmServingSim, &hidden);
    assert!(
        !message.contains('\u{1b}') && message.lines().all(|line| line.chars().count() < 200),
        "{message}"
    );
    let message = shown(TraceFormat::Vllm, "{\n\"input_lens\": [1,\n  oops]}");
    assert!(message.contains("  3 |   oops]}\n    |   ^"), "{message}");
}

#[test]
fn what_a_line_of_dynamo_lacks_is_named_with_its_path() {
    let none = Options::default();
    let whole = dynamo("100", 16, "1,2", 20);
    let schema = "\"schema\":\"dynamo.request.trace.v1\"";
    assert!(whole.contains(schema), "{whole}");
    refused(
        TraceFormat::Dynamo,
        &whole.replace(schema, "\"x\":1"),
        &none,
        &["line 1: event.schema: missing"],
    );
    refused(
        TraceFormat::Dynamo,
        &whole.replace("\"event_type\"", "\"x\""),
        &none,
        &["line 1: event.event_type: missing"],
    );
    refused(TraceFormat::Dynamo, &whole.replace("\"event\":", "\"x\":"), &none, &["line 1: event: missing"]);
    let unsized_blocks = whole.replace("\"trace_block_size\"", "\"x\"");
    refused(
        TraceFormat::Dynamo,
        &unsized_blocks,
        &none,
        &["line 1: request.replay.trace_block_size: missing"],
    );
}

#[test]
fn what_is_read_is_said_with_its_unit() {
    let columns = columns::own_columns(true).columns;
    let reading = |format: TraceFormat, unit, columns| format.reading(None, unit, columns);
    assert_eq!(
        reading(TraceFormat::Columns, Some(TraceTimeUnit::Ms), columns.as_ref()),
        "read as columns: time stamps from ts, a wall clock or a number of milliseconds, the earliest becomes 0"
    );
    assert_eq!(
        reading(TraceFormat::BurstGpt, Some(TraceTimeUnit::Ms), None),
        "read as burstgpt: time stamps from Timestamp in milliseconds, the earliest becomes 0"
    );
    assert_eq!(
        reading(TraceFormat::BurstGpt, None, None),
        "read as burstgpt: time stamps from Timestamp in seconds, the earliest becomes 0"
    );
    let rate = TraceFormat::Columns.reading(Some(2.0), None, columns::own_columns(false).columns.as_ref());
    assert_eq!(rate, "read as columns: 2 requests per second as asked for");
}
