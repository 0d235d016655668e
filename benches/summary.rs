//! What it costs to make the figures of an hour of traffic: 1.4 million passes on four workers, 12,031 requests.

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use spica::report::Summary;
use spica::report::record::{PassTimeline, RequestRecord, RunRecord, Status};
use spica::simulation::{SimDuration, SimTime};
use spica::workload::{Prompt, Request, Workload};

const PASSES: usize = 1_400_000;
const WORKERS: usize = 4;
const REQUESTS: usize = 12_031;
const TOKENS: u32 = 343;

/// A reproducible stream of numbers below `bound`.
struct Stream(u64);

impl Stream {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

/// Decode passes of 6 to 16 ms that drift with the fill of the cache, with a prompt among every thirty.
fn timeline(stream: &mut Stream) -> PassTimeline {
    let mut now = 0;
    let mut duration = 8_000_000;
    let ends = (0..PASSES / WORKERS).map(|_| {
        duration = (duration + stream.below(40_001) - 20_000).clamp(6_000_000, 16_000_000);
        let prompt = if stream.below(30) == 0 { 16_000_000 + stream.below(400_000_000) } else { 0 };
        now += duration + prompt;
        SimTime::from_ns(now)
    });
    PassTimeline { ends: ends.collect(), ..PassTimeline::default() }
}

fn run() -> (RunRecord, Workload) {
    let mut stream = Stream(1);
    let mut timelines: Vec<PassTimeline> = (0..WORKERS).map(|_| timeline(&mut stream)).collect();
    let (mut requests, mut asked) = (Vec::new(), Vec::new());
    for number in 0..REQUESTS {
        let timeline = &mut timelines[number % WORKERS];
        let first = stream.below(timeline.ends.len() as u64 - u64::from(TOKENS)) as u32;
        let last = first + TOKENS - 1;
        timeline.add_gaps(first, last);
        let token = |pass: u32| Some(timeline.ends[pass as usize]);
        let waited = SimDuration::from_ns(stream.below(1_000_000_000));
        let first_ns = timeline.ends[first as usize].as_ns();
        requests.push(RequestRecord {
            status: Status::Completed,
            output_tokens: TOKENS,
            arrival: Some(SimTime::from_ns(first_ns.saturating_sub(waited.as_ns()))),
            first_token: token(first),
            second_token: token(first + 1),
            last_token: token(last),
            terminal: token(last),
            ..RequestRecord::default()
        });
        asked.push(Request {
            arrival: SimTime::ZERO,
            delay: SimDuration::ZERO,
            input_length: 12_000,
            output_length: TOKENS,
            prompt: Prompt { first_chunk: 0, chunks: 0, tokens_per_chunk: 512 },
            session: number as u32,
            turn: 0,
            next_turn: None,
            dp_rank: None,
            name: None,
        });
    }
    (
        RunRecord { requests, timelines, ..RunRecord::default() },
        Workload { requests: asked, ..Workload::default() },
    )
}

fn summary(criterion: &mut Criterion) {
    let (record, workload) = run();
    let mut group = criterion.benchmark_group("summary");
    group.throughput(Throughput::Elements(PASSES as u64));
    group.bench_function("an_hour", |bencher| {
        bencher.iter(|| Summary::new(black_box(&record), &workload, None));
    });
    group.finish();
}

criterion_group!(benches, summary);
criterion_main!(benches);
