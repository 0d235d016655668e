//! The rows of `requests.jsonl`.

use serde_json::{Value, json};
use spica::report::requests::write_requests;
use spica::workload::{Prompt, RequestId};

use super::report_run::{Run, assert_metric, cut_short, mid_pass_arrival};

#[test]
fn every_request_that_arrived_has_a_row() {
    let rows = cut_short().rows();
    let ids: Vec<_> = rows.iter().map(|row| row["request_id"].as_str().unwrap()).collect();
    assert_eq!(ids, ["request_1", "request_3", "request_2", "request_4"], "by arrival");
    let statuses: Vec<_> = rows.iter().map(|row| row["status"].as_str().unwrap()).collect();
    assert_eq!(statuses, ["completed", "unfinished", "rejected", "unfinished"]);
    assert_eq!(
        rows[0],
        json!({
            "request_id": "request_1", "session_id": null, "turn_index": 0, "status": "completed",
            "arrival_ms": 0.0, "dispatched_ms": 0.0, "first_admit_ms": 0.0, "first_token_ms": 10.0,
            "last_token_ms": 24.0, "terminal_ms": 24.0, "ttft_ms": 10.0, "e2e_ms": 24.0, "tpot_ms": 7.0,
            "input_length": 8, "output_length": 3, "reused_input_tokens": 0, "prefill_worker": null,
            "decode_worker": 0, "admissions": 1, "hash_ids": []
        })
    );
    let running = &rows[1];
    assert_eq!(running["ttft_ms"], 21.0);
    assert_eq!(running["output_length"], 30, "what replays the request");
    for key in ["terminal_ms", "e2e_ms", "tpot_ms"] {
        assert_eq!(running[key], Value::Null, "{key} of a running request");
    }
    let waiting = &rows[3];
    for (key, value) in waiting.as_object().unwrap() {
        let happened = key == "arrival_ms" || !key.ends_with("_ms");
        let assigned = key != "session_id" && !key.ends_with("_worker");
        assert_eq!(!value.is_null(), happened && assigned, "{key} of a waiting request");
    }
}

#[test]
fn equal_arrivals_keep_the_order_of_the_workload() {
    let mut run = Run::default();
    for _ in 0..100 {
        run.complete(5.0, 8, &[10.0]);
    }
    run.complete(4.0, 8, &[9.0]);
    let ids: Vec<_> = run.rows().iter().map(|row| row["request_id"].as_str().unwrap().to_owned()).collect();
    let expected: Vec<_> =
        [101].into_iter().chain(1..=100).map(|number| format!("request_{number}")).collect();
    assert_eq!(ids, expected);
}

#[test]
fn rows_hold_what_replays_a_request() {
    let mut run = Run::default();
    for _ in 0..5 {
        run.complete(0.0, 600, &[10.0]);
    }
    let prompts = [(0, 2, 512), (2, 1, 600), (0, 0, 512), (3, 3, 1), (0, 0, 512)];
    for (request, (first_chunk, chunks, tokens_per_chunk)) in run.workload.requests.iter_mut().zip(prompts) {
        request.prompt = Prompt { first_chunk, chunks, tokens_per_chunk };
    }
    run.workload.chunk_ids = vec![0, 1, 0, 2, 3, 2];
    run.workload.chunk_names = vec![u64::MAX, u64::from(u32::MAX) + 1, 17, 5];
    run.workload.requests[0].name = Some("first \"quoted\"".into());
    run.workload.session_names = vec![None, Some("chat".to_owned())];
    run.workload.requests[1].session = 1;
    // Two turns without a session's name still belong together.
    run.workload.requests[2].next_turn = Some(RequestId(4));
    run.workload.requests[4].session = 2;
    run.workload.requests[4].turn = 1;

    let rows = run.rows();
    let column = |key: &str| rows.iter().map(|row| row[key].clone()).collect::<Vec<_>>();
    assert_eq!(rows[0]["hash_ids"], json!([u64::MAX, 4_294_967_296_u64]));
    assert_eq!(rows[1]["hash_ids"], json!([u64::MAX]));
    assert_eq!(rows[2]["hash_ids"], json!([]), "shares nothing");
    assert_eq!(rows[3]["hash_ids"], json!([17, 5, 17]), "one id per token");
    assert_eq!(column("request_id")[..2], ["first \"quoted\"", "request_2"]);
    assert_eq!(
        column("session_id"),
        [json!(null), json!("chat"), json!("session_3"), json!(null), json!("session_3")]
    );
    assert_eq!(column("turn_index"), [0, 0, 0, 0, 1]);

    run.workload.chunk_names.clear();
    assert_eq!(
        run.rows()[3]["hash_ids"],
        json!([2, 3, 2]),
        "generated prompts go by the number of their chunks"
    );
}

#[test]
fn the_summary_follows_from_the_rows() {
    let mut run = Run::on_one_worker(40.0);
    for index in 0..37_u32 {
        let arrival = f64::from(index * index % 23) / 7.0;
        let tokens: Vec<f64> = (0..=index % 5)
            .map(|token| arrival + 3.3 + f64::from(token) * 1.7 + f64::from(index) / 9.0)
            .collect();
        run.complete(arrival, 10 + index, &tokens);
    }
    run.reject(1.0);
    let summary = run.summary(None);
    let rows = run.rows();
    let sum = |key: &str| {
        rows.iter()
            .filter(|row| row["status"] == "completed")
            .map(|row| row[key].as_f64().unwrap())
            .sum::<f64>()
    };
    assert_metric(&summary, "num_requests", rows.len() as f64);
    assert_metric(&summary, "total_input_tokens", sum("input_length"));
    assert_metric(&summary, "total_output_tokens", sum("output_length"));
    for (column, family) in [("ttft_ms", "ttft"), ("e2e_ms", "e2e_latency"), ("tpot_ms", "tpot")] {
        let mut samples: Vec<f64> = rows.iter().filter_map(|row| row[column].as_f64()).collect();
        samples.sort_by(f64::total_cmp);
        let count = samples.len() as f64;
        assert_eq!(summary.metric(&format!("num_{family}_samples")), Some(count));
        assert_metric(&summary, &format!("mean_{family}_ms"), samples.iter().sum::<f64>() / count);
        for (prefix, percentile) in
            [("median", 50.0), ("p75", 75.0), ("p90", 90.0), ("p95", 95.0), ("p99", 99.0)]
        {
            let sample = samples[((count - 1.0) * percentile / 100.0).round() as usize];
            assert_eq!(summary.metric(&format!("{prefix}_{family}_ms")), Some(sample), "{prefix} {family}");
        }
    }
}

#[test]
fn a_full_disk_is_an_error() {
    struct Full;
    impl std::io::Write for Full {
        fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
            Err(std::io::ErrorKind::StorageFull.into())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let run = mid_pass_arrival();
    let error = write_requests(&run.record, &run.workload, Full).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::StorageFull);
}
