//! What a recorded run is reported as: its figures and its file.

#![allow(clippy::unwrap_used, reason = "helpers of tests may panic")]

use serde_json::{Value, json};
use spica::config::scenario::Sla;
use spica::report::files::{Report, write_atomically};
use spica::report::record::{Counters, PoolRecord, RequestRecord, Role, RunRecord, Status};
use spica::simulation::SimTime;
use spica::workload::InputTally;

use super::report_run::{Run, assert_metric, cut_short, mid_pass_arrival, ms};

fn sla(ttft_ms: Option<f64>, itl_ms: Option<f64>, e2e_ms: Option<f64>) -> Sla {
    Sla { ttft_ms, itl_ms, e2e_ms }
}

fn good(run: &Run, bounds: Sla) -> u64 {
    run.summary(Some(bounds)).goodput.unwrap().completed_requests
}

#[test]
fn a_single_request() {
    let mut run = Run::on_one_worker(14.0);
    run.complete(0.0, 8, &[10.0, 12.0, 14.0]);
    run.record.counters.committed_prefill_tokens = 8;
    let summary = run.summary(None);
    let expected = [
        ("num_requests", 1.0),
        ("completed_requests", 1.0),
        ("total_input_tokens", 8.0),
        ("total_output_tokens", 3.0),
        ("processed_tokens", 11.0),
        ("mean_ttft_ms", 10.0),
        ("mean_ttst_ms", 2.0),
        ("mean_tpot_ms", 2.0),
        ("mean_e2e_latency_ms", 14.0),
        ("duration_ms", 14.0),
        ("request_throughput_rps", 1000.0 / 14.0),
        ("input_throughput_tok_s", 8000.0 / 14.0),
        ("output_throughput_tok_s", 3000.0 / 14.0),
        ("total_throughput_tok_s", 11_000.0 / 14.0),
        ("mean_output_token_throughput_per_user", 500.0),
        ("prefill_worker_seconds", 0.0),
        ("decode_worker_seconds", 0.014),
        ("prefill_gpus_per_worker", 0.0),
        ("decode_gpus_per_worker", 1.0),
        ("gpu_hours", 0.014 / 3600.0),
        ("avg_gpu", 1.0),
        ("committed_prefill_tokens", 8.0),
        ("prefix_cache_reused_ratio", 0.0),
    ];
    for (name, figure) in expected {
        assert_metric(&summary, name, figure);
    }
}

#[test]
fn pooled_gaps_and_means_of_requests_differ() {
    let summary = mid_pass_arrival().summary(None);
    // Gaps 12, 2 and 2; mean gaps 7 and 2.
    assert_metric(&summary, "mean_itl_ms", 16.0 / 3.0);
    assert_metric(&summary, "std_itl_ms", (200.0_f64 / 9.0).sqrt());
    assert_metric(&summary, "median_itl_ms", 2.0);
    assert_metric(&summary, "p99_itl_ms", 12.0);
    assert_metric(&summary, "max_itl_ms", 12.0);
    assert_metric(&summary, "median_output_token_throughput_per_user", 500.0);
    assert_metric(&summary, "mean_tpot_ms", 4.5);
    assert_metric(&summary, "num_itl_samples", 3.0);
    assert_metric(&summary, "num_tpot_samples", 2.0);
    assert_metric(&summary, "mean_ttft_ms", 14.5);
}

#[test]
fn percentiles_are_members_of_the_sample() {
    for (samples, median, p75, p90, variance) in [(4, 30.0, 30.0, 40.0, 125.0), (5, 30.0, 40.0, 50.0, 200.0)]
    {
        let mut run = Run::default();
        for index in 0..samples {
            let arrival = 100.0 * f64::from(index);
            run.complete(arrival, 4, &[arrival + 10.0 * f64::from(index + 1)]);
        }
        let summary = run.summary(None);
        assert_metric(&summary, "median_ttft_ms", median);
        assert_metric(&summary, "p75_ttft_ms", p75);
        assert_metric(&summary, "p90_ttft_ms", p90);
        assert_metric(&summary, "std_ttft_ms", f64::sqrt(variance));
    }
}

#[test]
fn idle_time_before_the_first_request_counts() {
    let mut run = Run::on_one_worker(114.0);
    run.complete(100.0, 8, &[110.0, 112.0, 114.0]);
    let summary = run.summary(None);
    assert_metric(&summary, "duration_ms", 114.0);
    assert_metric(&summary, "output_throughput_tok_s", 3.0 / 0.114);
    assert_metric(&summary, "mean_ttft_ms", 10.0);
}

#[test]
fn a_run_without_requests_has_counts_and_no_statistics() {
    let mut run = Run::on_one_worker(50.0);
    run.record.requests = vec![RequestRecord::default(); 3];
    let figures = serde_json::to_value(run.summary(Some(sla(Some(1.0), None, None)))).unwrap();
    for (name, figure) in figures.as_object().unwrap() {
        let is_statistic = ["mean", "min", "max", "median", "p75", "p90", "p95", "p99", "std"]
            .contains(&name.split('_').next().unwrap());
        let is_share = name.ends_with("_ratio") || name.ends_with("attainment") || name == "avg_gpu";
        assert_eq!(figure.is_null(), is_statistic || is_share, "{name}: {figure}");
        if !figure.is_null()
            && !["decode_worker_seconds", "decode_gpus_per_worker", "gpu_hours"].contains(&&**name)
        {
            assert_eq!(figure.as_f64(), Some(0.0), "{name}");
        }
    }
    assert_eq!(run.rows(), Vec::<Value>::new());
}

#[test]
fn a_lone_rejection_lasts_no_time() {
    let mut run = Run::default();
    run.reject(0.0);
    let summary = run.summary(Some(sla(Some(1.0), None, None)));
    assert_metric(&summary, "num_requests", 1.0);
    assert_metric(&summary, "rejected_requests", 1.0);
    assert_metric(&summary, "completed_requests", 0.0);
    assert_metric(&summary, "duration_ms", 0.0);
    assert_metric(&summary, "attainment", 0.0);
    assert_eq!(summary.metric("mean_ttft_ms"), None);
}

#[test]
fn requests_of_one_token_have_no_gaps() {
    let mut run = Run::default();
    run.complete(0.0, 8, &[10.0]);
    run.complete(0.0, 8, &[11.0]);
    let summary = run.summary(None);
    assert_metric(&summary, "num_ttft_samples", 2.0);
    for family in ["ttst", "tpot", "itl", "output_token_throughput_per_user"] {
        assert_eq!(summary.metric(&format!("num_{family}_samples")), Some(0.0), "{family}");
    }
    assert_eq!(summary.metric("mean_tpot_ms"), None);
    assert_eq!(run.rows()[0]["tpot_ms"], Value::Null);
    // A bound on gaps says nothing about them; one on the end does.
    assert_eq!(good(&run, sla(None, Some(0.001), None)), 2);
    assert_eq!(good(&run, sla(None, Some(0.001), Some(10.0))), 1);
}

#[test]
fn a_request_for_no_tokens_completes_without_samples() {
    let mut run = Run::on_one_worker(10.0);
    let (start, end) = (Some(SimTime::ZERO), Some(ms(10.0)));
    let prefill_only = RequestRecord {
        status: Status::Completed,
        admissions: 1,
        arrival: start,
        first_admit: start,
        terminal: end,
        ..RequestRecord::default()
    };
    run.push(8, 0, prefill_only);
    run.complete(0.0, 4, &[10.0]);
    let summary = run.summary(None);
    assert_metric(&summary, "num_ttft_samples", 1.0);
    assert_metric(&summary, "num_e2e_latency_samples", 1.0);
    assert_metric(&summary, "output_throughput_tok_s", 100.0);
    assert_metric(&summary, "request_throughput_rps", 200.0);
    assert_metric(&summary, "total_input_tokens", 12.0);
    // It has no token to be in time with: only bounds on the end alone can be met.
    assert_eq!(good(&run, sla(None, None, Some(10.0))), 2);
    assert_eq!(good(&run, sla(None, None, Some(9.999))), 0);
    assert_eq!(good(&run, sla(None, Some(5.0), None)), 1);
    assert_eq!(good(&run, sla(Some(50.0), None, Some(50.0))), 1);
    let row = &run.rows()[0];
    assert_eq!(
        (&row["terminal_ms"], &row["e2e_ms"], &row["ttft_ms"]),
        (&json!(10.0), &Value::Null, &Value::Null)
    );
}

#[test]
fn bounds_are_inclusive_and_all_have_to_hold() {
    let run = mid_pass_arrival();
    // ttft 10 and 19, mean gap 7 and 2, end to end 24 and 21.
    for (bounds, expected) in [
        (sla(Some(15.0), None, None), 1),
        (sla(Some(10.0), None, None), 1),
        (sla(Some(9.999_999), None, None), 0),
        (sla(Some(19.0), None, None), 2),
        (sla(None, Some(7.0), None), 2),
        (sla(None, Some(6.999_999), None), 1),
        (sla(None, None, Some(21.0)), 1),
        (sla(None, None, Some(24.0)), 2),
        (sla(Some(19.0), Some(2.0), None), 1),
        (sla(Some(10.0), Some(2.0), None), 0),
        (sla(Some(19.0), Some(7.0), Some(21.0)), 1),
    ] {
        assert_eq!(good(&run, bounds), expected, "{bounds:?}");
    }
    let summary = run.summary(Some(sla(Some(15.0), None, None)));
    assert_metric(&summary, "goodput_completed_requests", 1.0);
    assert_metric(&summary, "goodput_request_throughput_rps", 1.0 / 0.024);
    assert_metric(&summary, "goodput_output_throughput_tok_s", 125.0);
    assert_metric(&summary, "attainment", 0.5);
}

#[test]
fn a_bound_that_is_no_whole_number_is_met_by_its_equal() {
    let mut run = Run::default();
    run.complete(0.3, 8, &[0.4, 0.5, 0.7]);
    assert_eq!(good(&run, sla(Some(0.1), Some(0.15), Some(0.4))), 1);
}

#[test]
fn goodput_needs_a_bound() {
    let run = mid_pass_arrival();
    for bounds in [None, Some(Sla::default())] {
        let summary = run.summary(bounds);
        assert!(
            summary.figures().iter().all(|(name, _)| !name.starts_with("goodput") && name != "attainment")
        );
        assert_eq!(summary.metric("goodput_output_throughput_tok_s"), None);
    }
}

#[test]
fn only_completed_requests_make_figures() {
    let summary = cut_short().summary(Some(sla(None, None, Some(1000.0))));
    let counts = ["num_requests", "completed_requests", "rejected_requests", "unfinished_requests"];
    assert_eq!(counts.map(|name| summary.metric(name).unwrap()), [4.0, 1.0, 1.0, 2.0]);
    assert_metric(&summary, "total_output_tokens", 3.0);
    assert_metric(&summary, "num_ttft_samples", 1.0);
    assert_metric(&summary, "num_ttst_samples", 1.0);
    assert_metric(&summary, "num_e2e_latency_samples", 1.0);
    assert_metric(&summary, "num_itl_samples", 2.0);
    assert_metric(&summary, "prefix_cache_reused_ratio", 0.0);
    assert_metric(&summary, "duration_ms", 24.0);
    assert_metric(&summary, "attainment", 0.25);
}

#[test]
fn reuse_counts_the_best_and_the_first_admission() {
    let mut run = Run::default();
    run.complete(0.0, 8, &[10.0]);
    run.complete(0.0, 8, &[10.0]);
    // Preempted, then found its own blocks again.
    run.record.requests[1].max_reused_tokens = 4;
    let summary = run.summary(None);
    assert_metric(&summary, "prefix_cache_reused_ratio", 0.25);
    assert_metric(&summary, "first_admission_prefix_cache_reused_ratio", 0.0);
}

#[test]
fn pools_cost_what_was_provisioned() {
    let mut run = Run::default();
    run.complete(0.0, 8, &[20.0]);
    // Two prefill workers of 2 GPUs and one decode worker of 8, which ran on after the last completion.
    run.record.pools = vec![
        PoolRecord { role: Role::Prefill, gpus_per_worker: 2, worker_ns: 35_000_000 },
        PoolRecord { role: Role::Decode, gpus_per_worker: 8, worker_ns: 20_000_000 },
    ];
    let summary = run.summary(None);
    assert_metric(&summary, "prefill_worker_seconds", 0.035);
    assert_metric(&summary, "decode_worker_seconds", 0.02);
    assert_metric(&summary, "prefill_gpus_per_worker", 2.0);
    assert_metric(&summary, "decode_gpus_per_worker", 8.0);
    assert_metric(&summary, "gpu_hours", (0.07 + 0.16) / 3600.0);
    assert_metric(&summary, "avg_gpu", 11.5);
}

#[test]
fn figures_have_fixed_names_in_a_fixed_order() {
    let summary = mid_pass_arrival().summary(Some(sla(Some(15.0), None, None)));
    let names: Vec<String> = summary.figures().into_iter().map(|(name, _)| name).collect();
    let map: serde_json::Map<String, Value> =
        serde_json::from_str(&serde_json::to_string(&summary).unwrap()).unwrap();
    assert_eq!(names, map.keys().cloned().collect::<Vec<_>>(), "no name twice, nothing reordered");
    insta::assert_snapshot!(names.join("\n"));
    assert_eq!(summary.metric("mean_ttft"), None, "no such name");
}

#[test]
fn the_report_file() {
    let summary = mid_pass_arrival().summary(None);
    let record =
        RunRecord { counters: Counters { passes: 3, ..Counters::default() }, ..RunRecord::default() };
    let mut input = InputTally { read: 3, used: 2, ..InputTally::default() };
    input.dropped.insert("zero output".to_owned(), 1);
    let scenario = json!({"seed": 1, "b": 0.1, "a": null});
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("report.json");
    write_atomically(&path, |out| Report::new(&scenario, &summary, &record, &input).write(out)).unwrap();

    let text = std::fs::read_to_string(&path).unwrap();
    assert!(text.ends_with("}\n") && text.contains("\"b\": 0.1,"));
    let report: serde_json::Map<String, Value> = serde_json::from_str(&text).unwrap();
    let keys: Vec<_> = report.keys().collect();
    assert_eq!(keys, ["schema_version", "scenario", "summary", "counters", "timing", "input"]);
    assert_eq!(report["schema_version"], 1);
    assert_eq!(report["scenario"], scenario);
    assert_eq!(
        report["summary"]["mean_itl_ms"].as_f64(),
        summary.metric("mean_itl_ms"),
        "numbers read back exactly"
    );
    assert_eq!(report["summary"]["num_requests"], 2);
    assert_eq!(report["counters"]["passes"], 3);
    assert_eq!(report["input"]["read"], 3);
    assert_eq!(report["input"]["dropped"], json!({"zero output": 1}));
}
