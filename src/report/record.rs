//! What a replay leaves behind: raw stamps and counters, from which every figure is made.

use indexmap::IndexMap;

use super::activity::Activity;
use super::distribution::NS_PER_MS;
use super::gap_tally::GapTally;
use super::peaks::Peaks;
use super::scaling::ScalingRecord;
use crate::config::scenario::Sla;
use crate::simulation::{SimDuration, SimTime};

/// The whole record of one replay.
#[derive(Clone, Debug, Default)]
pub struct RunRecord {
    /// One entry per request of the workload, by request number.
    pub requests: Vec<RequestRecord>,
    /// What happened between prefill and decode workers, by request number; empty in an aggregated fleet.
    pub handoffs: Vec<HandoffRecord>,
    /// One timeline per worker rank.
    pub timelines: Vec<PassTimeline>,
    /// The gaps at passes that the timelines no longer hold, after very many.
    pub folded_gaps: Option<Box<GapTally>>,
    /// What priced the passes of each pool, under the pool's name, in the same order.
    pub timing: IndexMap<&'static str, TimingRecord>,
    /// How many KV blocks a memory model found room for, under the name of each pool that it sized.
    pub capacity: IndexMap<&'static str, CapacityRecord>,
    /// The pools, in the order prefill, decode or agg.
    pub pools: Vec<PoolRecord>,
    /// The most GPUs that all pools had together at a time, those of workers that started or drained included.
    pub peak_gpus: u64,
    /// Counters over all workers.
    pub counters: Counters,
    /// How far the ranks of each role went towards the limits of their engines, for engines that tell.
    pub peaks: IndexMap<Role, Option<Peaks>>,
    /// How the fleet changed; empty where nobody changes it.
    pub scaling: ScalingRecord,
    /// What was going on in detail; empty unless it was asked for.
    pub activity: Activity,
    /// Time of the last event.
    pub end: SimTime,
}

/// What happened to one request. A time that did not happen is `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestRecord {
    /// How it ended.
    pub status: Status,
    /// Output tokens that left.
    pub output_tokens: u32,
    /// Prompt tokens reused from the cache at the first admission.
    pub first_reused_tokens: u32,
    /// Prompt tokens reused from the cache, the most over all admissions.
    pub max_reused_tokens: u32,
    /// Times it was admitted to a batch.
    pub admissions: u32,
    /// Worker rank that computed the prompt, in a disaggregated fleet.
    pub prefill_worker: Option<u32>,
    /// Worker rank that generated (aggregated workers count here).
    pub decode_worker: Option<u32>,
    /// Arrival: the scheduled time in an open loop, the release in a closed one.
    pub arrival: Option<SimTime>,
    /// When the router handed it to a worker.
    pub dispatched: Option<SimTime>,
    /// First admission to a batch.
    pub first_admit: Option<SimTime>,
    /// First output token.
    pub first_token: Option<SimTime>,
    /// Second output token.
    pub second_token: Option<SimTime>,
    /// Latest output token.
    pub last_token: Option<SimTime>,
    /// End, whatever the status.
    pub terminal: Option<SimTime>,
}

impl RequestRecord {
    /// Time to first token: from arrival.
    pub fn ttft(&self) -> Option<SimDuration> {
        Some(self.first_token?.since(self.arrival?))
    }

    /// From the first token to the second.
    pub fn ttst(&self) -> Option<SimDuration> {
        Some(self.second_token?.since(self.first_token?))
    }

    /// From arrival to the last token; `None` until the request has completed.
    pub fn e2e(&self) -> Option<SimDuration> {
        if self.status != Status::Completed {
            return None;
        }
        Some(self.last_token?.since(self.arrival?))
    }

    /// Time per output token in milliseconds: the mean gap between the tokens of a completed request,
    /// (last - first) / (n - 1). `None` for a request with fewer than two tokens.
    pub fn tpot_ms(&self) -> Option<f64> {
        if self.status != Status::Completed || self.output_tokens < 2 {
            return None;
        }
        let span = self.last_token?.since(self.first_token?);
        // Divided once, so that a mean that is a whole number of milliseconds is exactly that.
        Some(span.as_ns() as f64 / (f64::from(self.output_tokens - 1) * NS_PER_MS))
    }

    /// Whether a completed request meets every bound that is set, each inclusive.
    ///
    /// The bound on the mean gap says nothing about a request with one token. A request without tokens has no time to
    /// first token and no gaps: it meets bounds on the end alone, measured to its completion.
    pub fn meets(&self, sla: &Sla) -> bool {
        if self.status != Status::Completed {
            return false;
        }
        if self.output_tokens == 0 {
            let token_bounds = sla.ttft_ms.is_some() || sla.itl_ms.is_some();
            let end = self.terminal.zip(self.arrival).map(|(end, arrival)| end.since(arrival));
            return !token_bounds && within(end.map(SimDuration::as_ms), sla.e2e_ms);
        }
        within(self.ttft().map(SimDuration::as_ms), sla.ttft_ms)
            && within(self.e2e().map(SimDuration::as_ms), sla.e2e_ms)
            && (self.output_tokens == 1 || within(self.tpot_ms(), sla.itl_ms))
    }
}

/// Whether a figure is at most `bound`, if there is one; a figure that does not exist meets none.
fn within(figure_ms: Option<f64>, bound_ms: Option<f64>) -> bool {
    bound_ms.is_none_or(|bound| figure_ms.is_some_and(|figure| figure <= bound))
}

/// The hand-off of one request. A step that was not taken is `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HandoffRecord {
    /// The prompt was computed and its blocks waited to be fetched.
    pub source_held: Option<SimTime>,
    /// Blocks were set aside on the decode worker.
    pub destination_reserved: Option<SimTime>,
    /// The content had arrived there and the request could go on.
    pub destination_activated: Option<SimTime>,
    /// First admission to a batch there.
    pub decode_admit: Option<SimTime>,
    /// The prefill worker gave its blocks up.
    pub source_released: Option<SimTime>,
}

/// How a request ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// Never arrived: the run ended first.
    #[default]
    Absent,
    /// Arrived and was still waiting or running when the run ended.
    Unfinished,
    /// Refused by an engine that could never run it.
    Rejected,
    /// Ran to its end.
    Completed,
}

/// When the passes of one worker rank ended, and how many completed requests have a token gap at each.
///
/// A gap *at* pass `p` is the time from the end of pass `p - 1` to the end of pass `p`, for a request with a token in
/// both. Tokens of one request that are not from neighbouring passes (preemption) leave a loose gap instead.
///
/// Passes are numbered from 0 on. After very many, those that no request refers to any more are folded: `ends` then begins
/// at pass `folded`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PassTimeline {
    /// Number of the first pass that is kept.
    pub folded: u32,
    /// Number of gaps at that pass, which are counted elsewhere.
    pub folded_weight: u64,
    /// End of each pass, not decreasing.
    pub ends: Vec<SimTime>,
    /// For each stretch of passes in which a completed request had tokens, the first pass at which it had a gap, in no order.
    pub gap_starts: Vec<u32>,
    /// For each such stretch, the first pass at which it had none any more, in no order.
    pub gap_stops: Vec<u32>,
    /// Gaps of completed requests between passes that are not neighbours.
    pub loose_gaps: Vec<SimDuration>,
    /// Gaps of completed requests between tokens that left together.
    pub zero_gaps: u64,
}

impl PassTimeline {
    /// Number of passes, those that are not kept included: the number of the next one.
    pub fn passes(&self) -> u32 {
        self.folded + self.ends.len() as u32
    }

    /// End of a pass.
    ///
    /// # Panics
    /// If it is not kept.
    pub fn end(&self, pass: u32) -> SimTime {
        self.ends[self.place(pass)]
    }

    /// Place of a pass among those that are kept.
    pub(crate) fn place(&self, pass: u32) -> usize {
        (pass - self.folded) as usize
    }

    /// Counts the gaps of a completed request that had a token in every pass from `first` to `last`.
    pub fn add_gaps(&mut self, first: u32, last: u32) {
        if first == last {
            return;
        }
        self.gap_starts.push(first + 1);
        self.gap_stops.push(last + 1);
    }

    /// The gaps at passes that are kept, in the order of the passes.
    pub(crate) fn gap_runs(&self) -> Vec<GapRun> {
        let (mut starts, mut stops) = (self.gap_starts.clone(), self.gap_stops.clone());
        starts.sort_unstable();
        stops.sort_unstable();
        self.runs(&starts, &stops, self.passes()).0
    }

    /// The gaps at the kept passes before `end`, and their number at the last of them. `starts` and `stops` ascend and lie before
    /// or at `end`.
    fn runs(&self, starts: &[u32], stops: &[u32], end: u32) -> (Vec<GapRun>, u64) {
        let mut runs = Vec::with_capacity(starts.len() + stops.len() + 1);
        let (mut starts, mut stops) = (starts.iter().copied().peekable(), stops.iter().copied().peekable());
        let (mut pass, mut weight) = (self.folded + 1, self.folded_weight);
        while pass < end {
            let next =
                starts.peek().into_iter().chain(stops.peek()).fold(end, |next, change| next.min(*change));
            if next > pass && weight > 0 {
                runs.push(GapRun { before: self.place(pass) - 1, last: self.place(next) - 1, weight });
            }
            pass = next.max(pass);
            while starts.next_if(|start| *start <= pass).is_some() {
                weight += 1;
            }
            while stops.next_if(|stop| *stop <= pass).is_some() {
                weight -= 1;
            }
        }
        (runs, weight)
    }

    /// Moves the gaps up to and including pass `oldest` to `tally` and forgets the passes before it. No request that goes on may have
    /// had a token before that pass.
    pub(crate) fn fold(&mut self, oldest: u32, tally: &mut GapTally) {
        let starts = take_through(&mut self.gap_starts, oldest);
        let stops = take_through(&mut self.gap_stops, oldest);
        let (runs, weight) = self.runs(&starts, &stops, oldest + 1);
        for run in &runs {
            tally.add_run(run.stamps(&self.ends), run.weight);
        }
        for gap in self.loose_gaps.drain(..) {
            tally.add_run(&[SimTime::ZERO, SimTime::ZERO + gap], 1);
        }
        if self.zero_gaps > 0 {
            tally.add_run(&[SimTime::ZERO; 2], std::mem::take(&mut self.zero_gaps));
        }
        self.ends.drain(..self.place(oldest));
        self.folded = oldest;
        self.folded_weight = weight;
    }
}

/// Takes what is not above `most` from `passes`, ascending.
fn take_through(passes: &mut Vec<u32>, most: u32) -> Vec<u32> {
    passes.sort_unstable();
    let rest = passes.split_off(passes.partition_point(|pass| *pass <= most));
    std::mem::replace(passes, rest)
}

/// Passes in a row at which equally many completed requests had a gap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GapRun {
    /// Place, among the ends that are kept, of that before the first gap.
    before: usize,
    /// Place of the end of the last gap.
    last: usize,
    /// Requests.
    pub(crate) weight: u64,
}

impl GapRun {
    /// The stamps between which the gaps lie; `ends` are those of the timeline.
    pub(crate) fn stamps(self, ends: &[SimTime]) -> &[SimTime] {
        &ends[self.before..=self.last]
    }
}

/// What priced the passes of a pool.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct TimingRecord {
    /// What kind of model it was.
    pub source: TimingSource,
    /// Its name, if it has one: that of a profile, or the path of a measured grid.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// A digest of its numbers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
    /// Why the numbers are doubted, if they are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub suspect: Option<String>,
    /// A remark on the numbers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub caution: Option<String>,
    /// What measured passes multiplied its prompt work by.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prefill_scale: Option<f64>,
    /// What measured passes multiplied its decode work by.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decode_scale: Option<f64>,
    /// Prices that lay outside what the model was made from; `None` for a formula, which has no outside.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub extrapolated_lookups: Option<u64>,
}

/// How far the prices of passes can be relied on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// They were sampled or measured, and nobody doubts them.
    Sound,
    /// Somebody does.
    Suspect,
    /// They follow from the sizes of a model and the peaks of a GPU alone.
    RoughEstimate,
    /// They are of no GPU at all.
    Formula,
}

impl TimingRecord {
    /// How far its prices can be relied on.
    pub fn standing(&self) -> Standing {
        match self.source {
            TimingSource::Polynomial | TimingSource::Fixed => Standing::Formula,
            TimingSource::Roofline => Standing::RoughEstimate,
            TimingSource::Grid | TimingSource::Profile if self.suspect.is_some() => Standing::Suspect,
            TimingSource::Grid | TimingSource::Profile => Standing::Sound,
        }
    }

    /// Why its prices are no ground for a choice; `None` if they are sound.
    pub fn doubt(&self) -> Option<String> {
        let id = self.id.as_deref().unwrap_or_default();
        match self.standing() {
            Standing::Sound => None,
            Standing::Suspect => Some(format!(
                "the numbers of {id} are suspect: {}",
                self.suspect.as_deref().unwrap_or_default()
            )),
            Standing::RoughEstimate => {
                let caution = self.caution.as_deref().unwrap_or("from sizes and peaks alone");
                Some(format!("the prices of {id} are a rough estimate: {caution}"))
            }
            Standing::Formula => Some("its prices are a formula that knows no GPU".into()),
        }
    }

    /// What tells one timing from another before a run: no remarks, and of measured passes not where they lie.
    #[must_use]
    pub fn identity(&self) -> Self {
        let id = self.id.clone().filter(|_| self.source != TimingSource::Grid);
        Self { id, suspect: None, caution: None, extrapolated_lookups: None, ..self.clone() }
    }
}

/// What a memory model found of one rank's GPU; all bytes are of that GPU.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct CapacityRecord {
    /// Where its figures come from.
    pub source: MemoryOrigin,
    /// KV blocks of one rank.
    pub num_gpu_blocks: u32,
    /// Tokens per block.
    pub block_size: u32,
    /// Memory.
    pub capacity_bytes: u64,
    /// What may be used for everything: with engines whose share is of what is free, all of it.
    pub available_bytes: u64,
    /// What has to be there before the first block.
    pub needed_bytes: u64,
    /// Weights among it.
    pub weights_bytes: u64,
    /// Activations among it.
    pub activation_bytes: u64,
    /// What is left for blocks.
    pub kv_bytes: u64,
    /// KV bytes of a token.
    pub kv_bytes_per_token: u64,
}

/// Where the figures of a memory model come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum MemoryOrigin {
    /// Facts that were recorded with a profile.
    Profile,
    /// The sizes of model and GPU.
    ClosedForm,
}

/// Kinds of timing models.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TimingSource {
    /// The built-in polynomial of the reference.
    #[default]
    Polynomial,
    /// A constant for each phase.
    Fixed,
    /// Measured passes.
    Grid,
    /// A profile that comes with the program.
    Profile,
    /// A rough estimate from the sizes of a model and the peaks of a GPU.
    Roofline,
}

/// What the workers of one role cost.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PoolRecord {
    /// Prefill pools are reported apart; aggregated pools count as decode.
    pub role: Role,
    /// GPUs of one worker.
    pub gpus_per_worker: u32,
    /// Integral of provisioned workers (starting, serving and draining) over the run, in whole nanoseconds.
    pub worker_ns: u128,
}

/// What a worker does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Prefill and decode.
    Agg,
    /// Prompts only.
    Prefill,
    /// Generation only.
    Decode,
}

impl Role {
    /// The name that files use.
    pub fn name(self) -> &'static str {
        match self {
            Self::Agg => "agg",
            Self::Prefill => "prefill",
            Self::Decode => "decode",
        }
    }
}

/// Counters over all workers of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Counters {
    /// Passes in which at least one request was scheduled.
    pub passes: u64,
    /// Running requests that had to give up their blocks.
    pub preemptions: u64,
    /// Blocks whose content was given up for another.
    pub evictions: u64,
    /// Tokens scheduled by prefill work in completed passes, recomputation included.
    pub committed_prefill_tokens: u64,
    /// Routing decisions with more than one best worker.
    pub router_ties: u64,
}

impl Counters {
    /// Adds the counts of another part of the fleet.
    pub fn add(&mut self, other: Self) {
        let Self { passes, preemptions, evictions, committed_prefill_tokens, router_ties } = other;
        self.passes += passes;
        self.preemptions += preemptions;
        self.evictions += evictions;
        self.committed_prefill_tokens += committed_prefill_tokens;
        self.router_ties += router_ties;
    }
}
