//! What a fleet was doing over time, in a fixed number of equal stretches: `series.json`.

use serde::Serialize;

use super::activity::PassSpan;
use super::files::SCHEMA_VERSION;
use super::record::{Role, RunRecord, Status};
use super::scaling::{FleetChange, FleetStep};
use crate::simulation::SimTime;

/// Stretches of a series.
pub const BINS: usize = 240;

/// Figures over time. Each list has one entry for every stretch of `bin_ms`, the first from time 0.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Series {
    schema_version: u32,
    /// Length of a stretch in milliseconds.
    pub bin_ms: f64,
    /// The whole fleet.
    pub fleet: FleetSeries,
    /// Workers of each pool; those that start or drain count.
    pub pools: Vec<PoolSeries>,
    /// Each rank that passed at least once.
    pub ranks: Vec<RankSeries>,
}

/// Figures of all requests.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct FleetSeries {
    /// Requests that arrived, per second.
    pub arrivals_per_s: Vec<f64>,
    /// Requests that completed, per second.
    pub completions_per_s: Vec<f64>,
    /// Tokens generated per second.
    pub output_tokens_per_s: Vec<f64>,
    /// Prompt tokens computed per second.
    pub prefill_tokens_per_s: Vec<f64>,
    /// Requests that had arrived and not ended, on average.
    pub in_flight: Vec<f64>,
}

/// Workers of a pool.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PoolSeries {
    /// The pool.
    pub role: Role,
    /// GPUs of one worker.
    pub gpus_per_worker: u32,
    /// Workers that were there, on average.
    pub workers: Vec<f64>,
}

/// What one rank did.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RankSeries {
    /// Its pool.
    pub role: Role,
    /// Its number.
    pub rank: u32,
    /// Share of the time in which a pass was under way.
    pub busy: Vec<f64>,
    /// Requests in its passes, on average over all the time.
    pub running: Vec<f64>,
    /// Requests waiting on it during its passes, on average over all the time.
    pub waiting: Vec<f64>,
    /// KV blocks that requests held at the end of its passes, on average over the time of its passes.
    pub kv_blocks: Vec<f64>,
}

impl Series {
    /// The series of a replay whose passes were kept.
    pub fn new(record: &RunRecord) -> Self {
        let bins = Bins::over(record.end);
        Self {
            schema_version: SCHEMA_VERSION,
            bin_ms: bins.width_ns / 1e6,
            fleet: fleet(record, bins),
            pools: pools(record, bins),
            ranks: ranks(record, bins),
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Bins {
    width_ns: f64,
}

impl Bins {
    fn over(end: SimTime) -> Self {
        Self { width_ns: (end.as_ns().max(1) as f64 / BINS as f64).max(1.0) }
    }

    fn at(self, time_ns: f64) -> usize {
        ((time_ns / self.width_ns) as usize).min(BINS - 1)
    }

    fn seconds(self) -> f64 {
        self.width_ns / 1e9
    }

    /// Calls with each stretch that a span touches and the share of the stretch that it fills.
    fn each(self, start: SimTime, end: SimTime, mut call: impl FnMut(usize, f64)) {
        let (start, end) = (start.as_ns() as f64, end.as_ns() as f64);
        if end <= start {
            return;
        }
        for bin in self.at(start)..=self.at(end) {
            let from = start.max(bin as f64 * self.width_ns);
            let to = if bin == BINS - 1 { end } else { end.min((bin + 1) as f64 * self.width_ns) };
            if to > from {
                call(bin, (to - from) / self.width_ns);
            }
        }
    }

    fn add(self, series: &mut [f64], start: SimTime, end: SimTime, height: f64) {
        self.each(start, end, |bin, share| series[bin] += height * share);
    }
}

fn empty() -> Vec<f64> {
    vec![0.0; BINS]
}

fn fleet(record: &RunRecord, bins: Bins) -> FleetSeries {
    let mut series = FleetSeries {
        arrivals_per_s: empty(),
        completions_per_s: empty(),
        output_tokens_per_s: empty(),
        prefill_tokens_per_s: empty(),
        in_flight: empty(),
    };
    let per_event = 1.0 / bins.seconds();
    for request in &record.requests {
        let Some(arrival) = request.arrival else { continue };
        let end = request.terminal.unwrap_or(record.end);
        series.arrivals_per_s[bins.at(arrival.as_ns() as f64)] += per_event;
        bins.add(&mut series.in_flight, arrival, end, 1.0);
        if request.status == Status::Completed {
            series.completions_per_s[bins.at(end.as_ns() as f64)] += per_event;
        }
        // The first token falls on one moment, the others are spread evenly to the last.
        if let (Some(first), Some(last), tokens @ 1..) =
            (request.first_token, request.last_token, request.output_tokens)
        {
            series.output_tokens_per_s[bins.at(first.as_ns() as f64)] += per_event;
            let seconds = last.since(first).as_ns() as f64 / 1e9;
            if tokens > 1 && seconds > 0.0 {
                bins.add(&mut series.output_tokens_per_s, first, last, f64::from(tokens - 1) / seconds);
            } else {
                series.output_tokens_per_s[bins.at(last.as_ns() as f64)] += f64::from(tokens - 1) * per_event;
            }
        }
    }
    for span in &record.activity.passes {
        let seconds = span.end.since(span.start).as_ns() as f64 / 1e9;
        if seconds > 0.0 {
            let rate = span.prefill_tokens as f64 * f64::from(span.passes) / seconds;
            bins.add(&mut series.prefill_tokens_per_s, span.start, span.end, rate);
        }
    }
    series
}

/// Workers over time: constant, unless the fleet changed.
fn pools(record: &RunRecord, bins: Bins) -> Vec<PoolSeries> {
    let pool = |pool: &super::record::PoolRecord| {
        let mut workers = empty();
        let changes: Vec<&FleetChange> =
            record.scaling.changes.iter().filter(|change| change.role == pool.role).collect();
        let total = pool.worker_ns as f64;
        let end_ns = record.end.as_ns().max(1) as f64;
        let mut changed_ns = 0.0;
        let mut ordered = Vec::new();
        for change in changes {
            let sign = match change.step {
                // A worker that needs no time to start is ready at once.
                FleetStep::Starting | FleetStep::Ready if !ordered.contains(&change.worker) => {
                    ordered.push(change.worker);
                    1.0
                }
                FleetStep::Cancelled | FleetStep::Removed => -1.0,
                FleetStep::Starting | FleetStep::Ready | FleetStep::Draining => continue,
            };
            bins.add(&mut workers, change.at, record.end, sign);
            changed_ns += sign * record.end.since(change.at).as_ns() as f64;
        }
        // Whoever was there from the start on is what the integral has beyond the changes.
        let from_start = ((total - changed_ns) / end_ns).round();
        for count in &mut workers {
            *count += from_start;
        }
        PoolSeries { role: pool.role, gpus_per_worker: pool.gpus_per_worker, workers }
    };
    record.pools.iter().map(pool).collect()
}

fn ranks(record: &RunRecord, bins: Bins) -> Vec<RankSeries> {
    let mut spans: Vec<&PassSpan> = record.activity.passes.iter().collect();
    spans.sort_by_key(|span| (span.role as u32, span.rank));
    spans.chunk_by(|a, b| (a.role, a.rank) == (b.role, b.rank)).map(|spans| rank(spans, bins)).collect()
}

fn rank(spans: &[&PassSpan], bins: Bins) -> RankSeries {
    let PassSpan { role, rank, .. } = *spans[0];
    let mut series =
        RankSeries { role, rank, busy: empty(), running: empty(), waiting: empty(), kv_blocks: empty() };
    for span in spans {
        let running = f64::from(span.prefill_requests + span.decode_requests);
        bins.each(span.start, span.end, |bin, share| {
            series.busy[bin] += share;
            series.running[bin] += share * running;
            series.waiting[bin] += share * f64::from(span.waiting);
            series.kv_blocks[bin] += share * f64::from(span.blocks_held);
        });
    }
    for (blocks, &busy) in series.kv_blocks.iter_mut().zip(&series.busy) {
        if busy > 0.0 {
            *blocks /= busy;
        }
    }
    series
}
