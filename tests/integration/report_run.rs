//! Recorded runs put together by hand.

#![allow(clippy::unwrap_used, reason = "helpers of tests may panic")]

use serde_json::Value;
use spica::config::scenario::Sla;
use spica::report::Summary;
use spica::report::record::{PassTimeline, PoolRecord, RequestRecord, Role, RunRecord, Status};
use spica::report::requests::write_requests;
use spica::simulation::{SimDuration, SimTime};
use spica::workload::{Prompt, Request, Workload};

/// A run put together request by request.
#[derive(Default)]
pub(crate) struct Run {
    pub(crate) record: RunRecord,
    pub(crate) workload: Workload,
}

pub(crate) fn ms(ms: f64) -> SimTime {
    SimTime::from_ms(ms).unwrap()
}

impl Run {
    /// The run of one aggregated worker with one GPU for `worker_ms`.
    pub(crate) fn on_one_worker(worker_ms: f64) -> Self {
        let worker_ns = u128::from(ms(worker_ms).as_ns());
        let mut run = Self::default();
        run.record.pools = vec![PoolRecord { role: Role::Agg, gpus_per_worker: 1, worker_ns }];
        run
    }

    /// A request of `input_length` prompt tokens; the caller says what became of it.
    pub(crate) fn push(
        &mut self,
        input_length: u32,
        output_length: u32,
        record: RequestRecord,
    ) -> &mut Request {
        self.record.requests.push(record);
        self.workload.requests.push(Request {
            arrival: record.arrival.unwrap_or_default(),
            delay: SimDuration::ZERO,
            input_length,
            output_length,
            prompt: Prompt { first_chunk: 0, chunks: 0, tokens_per_chunk: 512 },
            session: self.workload.requests.len() as u32,
            turn: 0,
            next_turn: None,
            dp_rank: None,
            name: None,
        });
        self.workload.requests.last_mut().unwrap()
    }

    /// A completed request with tokens at these times, on a timeline of its own.
    pub(crate) fn complete(&mut self, arrival_ms: f64, input_length: u32, tokens_ms: &[f64]) {
        let stamps: Vec<SimTime> = tokens_ms.iter().map(|&token| ms(token)).collect();
        let mut timeline = PassTimeline { ends: stamps.clone(), ..PassTimeline::default() };
        timeline.add_gaps(0, stamps.len() as u32 - 1);
        self.record.timelines.push(timeline);
        let record = RequestRecord {
            status: Status::Completed,
            output_tokens: stamps.len() as u32,
            admissions: 1,
            decode_worker: Some(0),
            arrival: Some(ms(arrival_ms)),
            dispatched: Some(ms(arrival_ms)),
            first_admit: Some(ms(arrival_ms)),
            first_token: stamps.first().copied(),
            second_token: stamps.get(1).copied(),
            last_token: stamps.last().copied(),
            terminal: stamps.last().copied(),
            ..RequestRecord::default()
        };
        self.push(input_length, stamps.len() as u32, record);
    }

    pub(crate) fn reject(&mut self, at_ms: f64) {
        let at = Some(ms(at_ms));
        let record =
            RequestRecord { status: Status::Rejected, arrival: at, terminal: at, ..RequestRecord::default() };
        self.push(1_000, 5, record);
    }

    pub(crate) fn summary(&self, sla: Option<Sla>) -> Summary {
        Summary::new(&self.record, &self.workload, sla.as_ref())
    }

    pub(crate) fn rows(&self) -> Vec<Value> {
        let mut lines = Vec::new();
        write_requests(&self.record, &self.workload, &mut lines).unwrap();
        let text = String::from_utf8(lines).unwrap();
        assert!(text.is_empty() || text.ends_with('\n'));
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

/// `a@0 8/3` beside `b@3 8/2`, which waits for the pass that is running.
pub(crate) fn mid_pass_arrival() -> Run {
    let mut run = Run::on_one_worker(24.0);
    run.complete(0.0, 8, &[10.0, 22.0, 24.0]);
    run.complete(3.0, 8, &[22.0, 24.0]);
    run
}

/// The run above cut short beside requests that were rejected, were running, waited or never came.
pub(crate) fn cut_short() -> Run {
    let mut run = Run::on_one_worker(24.0);
    run.complete(0.0, 8, &[10.0, 22.0, 24.0]);
    run.reject(2.0);
    let running = RequestRecord {
        status: Status::Unfinished,
        output_tokens: 2,
        max_reused_tokens: 4,
        first_reused_tokens: 4,
        admissions: 1,
        decode_worker: Some(0),
        arrival: Some(ms(1.0)),
        dispatched: Some(ms(1.0)),
        first_admit: Some(ms(10.0)),
        first_token: Some(ms(22.0)),
        second_token: Some(ms(24.0)),
        last_token: Some(ms(24.0)),
        ..RequestRecord::default()
    };
    run.push(8, 30, running);
    let waiting =
        RequestRecord { status: Status::Unfinished, arrival: Some(ms(24.0)), ..RequestRecord::default() };
    run.push(8, 30, waiting);
    run.push(8, 30, RequestRecord::default());
    run
}

#[track_caller]
pub(crate) fn assert_metric(summary: &Summary, name: &str, expected: f64) {
    let figure = summary.metric(name).unwrap_or_else(|| panic!("{name} is missing or null"));
    assert!((figure - expected).abs() <= 1e-9 * expected.abs(), "{name}: {figure} is not {expected}");
}
