//! The figures of one replay: every name and its definition.
//!
//! *Completed* requests are those that ran to their end; only they count in totals, rates and distributions. Rejected
//! and unfinished requests appear in `num_requests` and in their own counts. Each distribution `x` gives `mean_x`,
//! `min_x`, `max_x`, `median_x`, `p75_x`, `p90_x`, `p95_x`, `p99_x` and `std_x`, all null when it has no samples.
//!
//! | distribution | population |
//! |---|---|
//! | `ttft_ms` | per request, arrival to first token |
//! | `ttst_ms` | per request, first to second token |
//! | `tpot_ms` | per request with two tokens or more, its mean gap (last - first) / (n - 1) |
//! | `itl_ms` | every gap between neighbouring tokens of every request, pooled |
//! | `e2e_latency_ms` | per request, arrival to last token |
//! | `output_token_throughput_per_user` | 1000 / gap in ms over every gap that is not zero, pooled |

use serde::ser::{Serialize, Serializer};

use super::distribution::Distribution;
use super::gaps::PooledGaps;
use super::peaks::Peaks;
use super::record::{PoolRecord, RequestRecord, Role, RunRecord, Status};
use crate::config::scenario::Sla;
use crate::simulation::SimDuration;
use crate::workload::{Request, Workload};

const NS_PER_S: f64 = 1e9;
const NS_PER_HOUR: f64 = 3.6e12;
const MS_PER_S: f64 = 1e3;
const MS_PER_HOUR: f64 = 3.6e6;

/// What is to be said where no gap between tokens has a length.
pub const AT_ONCE: &str = "all tokens of each request came at one instant, so that TPOT and ITL are 0 and no user has tokens per second";

/// The figures of one replay. It serialises to one flat map, in a fixed order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Summary {
    /// Requests that arrived, whatever became of them.
    pub num_requests: u64,
    /// Requests that ran to their end.
    pub completed_requests: u64,
    /// Requests refused by an engine that could never run them.
    pub rejected_requests: u64,
    /// Requests that were waiting or running when the run ended.
    pub unfinished_requests: u64,
    /// Prompt tokens of completed requests.
    pub total_input_tokens: u64,
    /// Tokens sent to completed requests.
    pub total_output_tokens: u64,
    /// Latest end of a completed request, from time 0, in milliseconds; 0 when nothing completed.
    pub duration_ms: f64,
    /// Completed requests per second of the duration.
    pub request_throughput_rps: f64,
    /// Prompt tokens of completed requests per second.
    pub input_throughput_tok_s: f64,
    /// Tokens sent to completed requests per second.
    pub output_throughput_tok_s: f64,
    /// Both together.
    pub total_throughput_tok_s: f64,
    /// What met the SLA, if there is one with a bound in it.
    pub goodput: Option<Goodput>,
    /// Integral of provisioned prefill workers over the run.
    pub prefill_worker_seconds: f64,
    /// The same of decode workers; aggregated workers count here.
    pub decode_worker_seconds: f64,
    /// GPUs of one prefill worker; 0 without any.
    pub prefill_gpus_per_worker: u32,
    /// GPUs of one decode or aggregated worker; 0 without any.
    pub decode_gpus_per_worker: u32,
    /// Worker seconds times GPUs per worker over all pools, in hours.
    pub gpu_hours: f64,
    /// GPU hours per hour of the duration; `None` when nothing completed.
    pub avg_gpu: Option<f64>,
    /// The most GPUs at a time, those of workers that started or drained included.
    pub peak_gpus: u64,
    /// Prompt tokens of completed requests found in a cache, by each request's best admission, over all of them.
    pub prefix_cache_reused_ratio: Option<f64>,
    /// The same by each request's first admission.
    pub first_admission_prefix_cache_reused_ratio: Option<f64>,
    /// Tokens scheduled by prefill work, recomputation included.
    pub committed_prefill_tokens: u64,
    /// Prices of passes that lay outside what their timing was made from; `None` where that is a formula.
    pub extrapolated_lookups: Option<u64>,
    /// Ticks of the planner; `None` without one.
    pub planner_total_ticks: Option<u64>,
    /// The most that any prefill rank did at a time; `None` without one, or if its engine does not tell.
    pub prefill_peaks: Option<Peaks>,
    /// The same of decode ranks; aggregated ranks count here.
    pub decode_peaks: Option<Peaks>,
    /// Arrival to first token.
    pub ttft_ms: Distribution,
    /// First to second token.
    pub ttst_ms: Distribution,
    /// Mean gap of each request.
    pub tpot_ms: Distribution,
    /// All gaps.
    pub itl_ms: Distribution,
    /// Arrival to last token.
    pub e2e_latency_ms: Distribution,
    /// 1000 / gap in milliseconds, over all gaps that are not zero.
    pub output_token_throughput_per_user: Distribution,
}

/// What met the SLA.
#[derive(Clone, Debug, PartialEq)]
pub struct Goodput {
    /// Completed requests that met every bound ([`RequestRecord::meets`]).
    pub completed_requests: u64,
    /// The same per second of the duration.
    pub request_throughput_rps: f64,
    /// Tokens sent to them per second.
    pub output_throughput_tok_s: f64,
    /// Their share of the requests that arrived; `None` when none did.
    pub attainment: Option<f64>,
    /// For each bound, under the figure's name, the share that met it; `None` when none arrived.
    pub by_bound: Vec<(&'static str, Option<f64>)>,
}

/// The bounds of an SLA by themselves, each under the name of the share that meets it.
fn each_bound(sla: &Sla) -> impl Iterator<Item = (&'static str, Sla)> {
    let Sla { ttft_ms, itl_ms, e2e_ms } = *sla;
    let bounds = [
        ("ttft_attainment", Sla { ttft_ms, ..Sla::default() }),
        ("itl_attainment", Sla { itl_ms, ..Sla::default() }),
        ("e2e_attainment", Sla { e2e_ms, ..Sla::default() }),
    ];
    bounds.into_iter().filter(|(_, bound)| *bound != Sla::default())
}

/// One figure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Figure {
    /// A whole number.
    Count(u64),
    /// A measure; `None` where there was nothing to measure.
    Measure(Option<f64>),
}

impl Figure {
    /// The number, if there is one.
    pub fn value(self) -> Option<f64> {
        match self {
            Self::Count(count) => Some(count as f64),
            Self::Measure(measure) => measure,
        }
    }
}

impl Summary {
    /// The figures of the `record` that a replay of `workload` left. Goodput exists if `sla` sets a bound.
    pub fn new(record: &RunRecord, workload: &Workload, sla: Option<&Sla>) -> Self {
        let completed = Completed::of(record, workload);
        let ended = |status| record.requests.iter().filter(|request| request.status == status).count() as u64;
        let (rejected, unfinished) = (ended(Status::Rejected), ended(Status::Unfinished));
        let num_requests = completed.count() + rejected + unfinished;

        let input = completed.sum(|_, asked| asked.input_length);
        let output = completed.sum(|request, _| request.output_tokens);
        let reused = completed.sum(|request, _| request.max_reused_tokens);
        let first_reused = completed.sum(|request, _| request.first_reused_tokens);

        let duration_ms = completed.duration_ms();
        let per_second = |count: u64| count as f64 / (duration_ms / MS_PER_S).max(1e-9);
        let share = |count: u64| ratio(count as f64, num_requests as f64);
        let gpu_hours = gpu_hours(&record.pools);
        let (prefill, decode): (Vec<_>, Vec<_>) =
            record.pools.iter().copied().partition(|pool| pool.role == Role::Prefill);
        let gaps = match &record.folded_gaps {
            None => PooledGaps::new(&record.timelines),
            Some(folded) => folded.pooled(&record.timelines),
        };
        Self {
            num_requests,
            completed_requests: completed.count(),
            rejected_requests: rejected,
            unfinished_requests: unfinished,
            total_input_tokens: input,
            total_output_tokens: output,
            duration_ms,
            request_throughput_rps: per_second(completed.count()),
            input_throughput_tok_s: per_second(input),
            output_throughput_tok_s: per_second(output),
            total_throughput_tok_s: per_second(input + output),
            goodput: sla.filter(|sla| **sla != Sla::default()).map(|sla| {
                let good = completed.meeting(sla);
                Goodput {
                    completed_requests: good.count(),
                    request_throughput_rps: per_second(good.count()),
                    output_throughput_tok_s: per_second(good.sum(|request, _| request.output_tokens)),
                    attainment: share(good.count()),
                    by_bound: each_bound(sla)
                        .map(|(name, bound)| (name, share(completed.meeting(&bound).count())))
                        .collect(),
                }
            }),
            prefill_worker_seconds: worker_seconds(&prefill),
            decode_worker_seconds: worker_seconds(&decode),
            prefill_gpus_per_worker: gpus_per_worker(&prefill),
            decode_gpus_per_worker: gpus_per_worker(&decode),
            gpu_hours,
            avg_gpu: ratio(gpu_hours, duration_ms / MS_PER_HOUR),
            peak_gpus: record.peak_gpus,
            prefix_cache_reused_ratio: ratio(reused as f64, input as f64),
            first_admission_prefix_cache_reused_ratio: ratio(first_reused as f64, input as f64),
            committed_prefill_tokens: record.counters.committed_prefill_tokens,
            extrapolated_lookups: extrapolated_lookups(record),
            prefill_peaks: peaks(record, |role| role == Role::Prefill),
            decode_peaks: peaks(record, |role| role != Role::Prefill),
            planner_total_ticks: record.scaling.is_planned.then_some(record.scaling.ticks.len() as u64),
            ttft_ms: completed.times(RequestRecord::ttft),
            ttst_ms: completed.times(RequestRecord::ttst),
            tpot_ms: completed.values(RequestRecord::tpot_ms),
            itl_ms: gaps.itl_ms,
            e2e_latency_ms: completed.times(RequestRecord::e2e),
            output_token_throughput_per_user: gaps.throughput_per_user,
        }
    }

    /// Whether there are gaps between tokens, and none of them has a length.
    pub fn tokens_come_at_once(&self) -> bool {
        self.itl_ms.count > 0 && self.output_token_throughput_per_user.count == 0
    }

    /// The figure of that name; `None` if there is no such figure or there was nothing to measure.
    pub fn metric(&self, name: &str) -> Option<f64> {
        self.figures().into_iter().find(|(figure, _)| figure == name)?.1.value()
    }

    /// Every figure under its name, in the order of the report. Those of the SLA are there only with one, that of
    /// extrapolated prices only where prices were sampled.
    pub fn figures(&self) -> Vec<(String, Figure)> {
        let count = |name: &str, count: u64| (name.to_owned(), Figure::Count(count));
        let measure = |name: &str, measure: f64| (name.to_owned(), Figure::Measure(Some(measure)));
        let maybe = |name: &str, measure: Option<f64>| (name.to_owned(), Figure::Measure(measure));

        let mut figures = vec![
            count("num_requests", self.num_requests),
            count("completed_requests", self.completed_requests),
            count("rejected_requests", self.rejected_requests),
            count("unfinished_requests", self.unfinished_requests),
            count("total_input_tokens", self.total_input_tokens),
            count("total_output_tokens", self.total_output_tokens),
            count("processed_tokens", self.total_input_tokens + self.total_output_tokens),
            count("committed_prefill_tokens", self.committed_prefill_tokens),
            measure("duration_ms", self.duration_ms),
            measure("request_throughput_rps", self.request_throughput_rps),
            measure("input_throughput_tok_s", self.input_throughput_tok_s),
            measure("output_throughput_tok_s", self.output_throughput_tok_s),
            measure("total_throughput_tok_s", self.total_throughput_tok_s),
        ];
        if let Some(goodput) = &self.goodput {
            figures.extend([
                count("goodput_completed_requests", goodput.completed_requests),
                measure("goodput_request_throughput_rps", goodput.request_throughput_rps),
                measure("goodput_output_throughput_tok_s", goodput.output_throughput_tok_s),
                maybe("attainment", goodput.attainment),
            ]);
            figures.extend(goodput.by_bound.iter().map(|(name, share)| maybe(name, *share)));
        }
        figures.extend([
            measure("prefill_worker_seconds", self.prefill_worker_seconds),
            measure("decode_worker_seconds", self.decode_worker_seconds),
            count("prefill_gpus_per_worker", self.prefill_gpus_per_worker.into()),
            count("decode_gpus_per_worker", self.decode_gpus_per_worker.into()),
            measure("gpu_hours", self.gpu_hours),
            maybe("avg_gpu", self.avg_gpu),
            count("peak_gpus", self.peak_gpus),
            maybe("prefix_cache_reused_ratio", self.prefix_cache_reused_ratio),
            maybe(
                "first_admission_prefix_cache_reused_ratio",
                self.first_admission_prefix_cache_reused_ratio,
            ),
        ]);
        figures.extend(self.extrapolated_lookups.map(|lookups| count("extrapolated_lookups", lookups)));
        for (pool, peaks) in [("prefill", self.prefill_peaks), ("decode", self.decode_peaks)] {
            let Some(peaks) = peaks else { continue };
            figures.push(count(&format!("{pool}_peak_running_requests"), peaks.running_requests.into()));
            figures.push(count(&format!("{pool}_peak_batched_tokens"), peaks.batched_tokens.into()));
        }
        figures.extend(self.planner_total_ticks.map(|ticks| count("planner_total_ticks", ticks)));
        for (name, _, distribution) in self.distributions() {
            figures.push(count(&format!("num_{name}_samples"), distribution.count));
        }
        for (name, unit, distribution) in self.distributions() {
            let named = distribution.named();
            figures
                .extend(named.map(|(prefix, statistic)| maybe(&format!("{prefix}_{name}{unit}"), statistic)));
        }
        figures
    }

    /// Each distribution with its name and the unit that ends the names of its statistics.
    fn distributions(&self) -> [(&'static str, &'static str, &Distribution); 6] {
        [
            ("ttft", "_ms", &self.ttft_ms),
            ("ttst", "_ms", &self.ttst_ms),
            ("tpot", "_ms", &self.tpot_ms),
            ("itl", "_ms", &self.itl_ms),
            ("e2e_latency", "_ms", &self.e2e_latency_ms),
            ("output_token_throughput_per_user", "", &self.output_token_throughput_per_user),
        ]
    }
}

impl Serialize for Summary {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.figures())
    }
}

impl Serialize for Figure {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Count(count) => serializer.serialize_u64(*count),
            Self::Measure(measure) => measure.serialize(serializer),
        }
    }
}

/// The completed requests of a run, with what was asked for.
struct Completed<'a>(Vec<(&'a RequestRecord, &'a Request)>);

impl<'a> Completed<'a> {
    fn of(record: &'a RunRecord, workload: &'a Workload) -> Self {
        let requests = record.requests.iter().zip(&workload.requests);
        Self(requests.filter(|(request, _)| request.status == Status::Completed).collect())
    }

    /// Those that meet the SLA.
    fn meeting(&self, sla: &Sla) -> Self {
        Self(self.0.iter().copied().filter(|(request, _)| request.meets(sla)).collect())
    }

    fn count(&self) -> u64 {
        self.0.len() as u64
    }

    fn sum(&self, tokens: impl Fn(&RequestRecord, &Request) -> u32) -> u64 {
        self.0.iter().map(|(request, asked)| u64::from(tokens(request, asked))).sum()
    }

    fn duration_ms(&self) -> f64 {
        self.0.iter().filter_map(|(request, _)| request.terminal).max().unwrap_or_default().as_ms()
    }

    fn times(&self, time: impl Fn(&RequestRecord) -> Option<SimDuration>) -> Distribution {
        let mut times: Vec<u64> =
            self.0.iter().filter_map(|(request, _)| time(request)).map(SimDuration::as_ns).collect();
        Distribution::of_times(&mut times)
    }

    fn values(&self, value: impl Fn(&RequestRecord) -> Option<f64>) -> Distribution {
        let mut values: Vec<f64> = self.0.iter().filter_map(|(request, _)| value(request)).collect();
        Distribution::of_values(&mut values)
    }
}

/// Of all ranks of some roles, if there are any and all of them tell.
fn peaks(record: &RunRecord, is_wanted: impl Fn(Role) -> bool) -> Option<Peaks> {
    let mut wanted = record.peaks.iter().filter(|(role, _)| is_wanted(**role)).map(|(_, peaks)| *peaks);
    let first = wanted.next()??;
    wanted.try_fold(first, |most, peaks| Some(most.or(peaks?)))
}

/// Of all pools whose timing has an outside, if there are any.
fn extrapolated_lookups(record: &RunRecord) -> Option<u64> {
    record
        .timing
        .values()
        .filter_map(|timing| timing.extrapolated_lookups)
        .reduce(|sum, lookups| sum + lookups)
}

/// `part / whole`, if there is a whole.
fn ratio(part: f64, whole: f64) -> Option<f64> {
    (whole > 0.0).then(|| part / whole)
}

fn worker_seconds(pools: &[PoolRecord]) -> f64 {
    let worker_ns: u128 = pools.iter().map(|pool| pool.worker_ns).sum();
    worker_ns as f64 / NS_PER_S
}

fn gpu_hours(pools: &[PoolRecord]) -> f64 {
    let gpu_ns: u128 = pools.iter().map(|pool| pool.worker_ns * u128::from(pool.gpus_per_worker)).sum();
    gpu_ns as f64 / NS_PER_HOUR
}

fn gpus_per_worker(pools: &[PoolRecord]) -> u32 {
    pools.first().map_or(0, |pool| pool.gpus_per_worker)
}
