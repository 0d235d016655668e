//! Keeps what happened. Actors write into it and cannot read it back, so it has no influence on the
//! run, but that it ends one which may not or need not go on.

use super::fleet::PoolLedger;
use super::outlook::{Outlook, WorthBar};
use crate::config::scenario::Sla;
use crate::engine::TokenStamps;
use crate::report::activity::{ActivityDetail, AdmissionRecord, ChunkSpan, PassSpan, RouteRecord};
use crate::report::attainment::within_share;
use crate::report::gap_tally::GapTally;
use crate::report::peaks::Peaks;
use crate::report::record::{Counters, HandoffRecord, PassTimeline, RequestRecord, Role, RunRecord, Status};
use crate::report::scaling::{FleetChange, FleetStep, ScalingCause, ScalingEvent, TickRow};
use crate::simulation::SimTime;
use crate::workload::{RequestId, Workload};

/// A step of the hand-off of a prompt from a prefill to a decode worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HandoffStep {
    /// The prompt is computed and its blocks wait to be fetched.
    SourceHeld,
    /// Blocks are set aside on the decode worker.
    DestinationReserved,
    /// The content has arrived there.
    DestinationActivated,
    /// The request entered a batch there.
    DecodeAdmitted,
    /// The prefill worker gave its blocks up.
    SourceReleased,
}

/// The write-only record of a run in progress.
#[derive(Debug)]
pub struct Recorder {
    record: RunRecord,
    ledgers: Vec<PoolLedger>,
    /// Passes that may still happen.
    passes_left: u64,
    /// Passes that each worker rank may keep.
    passes_kept: usize,
    bar: Option<AttainmentBar>,
    /// Requests that have missed a bound.
    missed: usize,
    /// Requests among them that were rejected.
    rejected: usize,
    /// Requests whose fate is known.
    ended: usize,
    outlook: Option<Outlook>,
    stop: Option<EarlyEnd>,
}

/// What share of all requests has to meet which bounds for a run to be worth its end.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AttainmentBar {
    /// The bounds.
    pub sla: Sla,
    /// The share, from 0 to 1.
    pub minimum: f64,
}

/// Why a run has to end before its time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum EarlyEnd {
    /// There were more passes than it may have.
    OutOfPasses,
    /// So many requests have missed a bound that the bar cannot be reached any more.
    Hopeless {
        /// Requests that have completed and missed a bound.
        missed: usize,
        /// Requests that were rejected.
        rejected: usize,
        /// All requests that have come to an end by now.
        ended: usize,
        /// For each bound, what the share that the bar asks for of those requests is within; absent where too many have no such
        /// figure.
        reached: Sla,
    },
    /// The figure that decides cannot reach what it has to any more.
    Outclassed {
        /// The best that it could have reached, in its own unit.
        bound: f64,
    },
}

impl Recorder {
    /// An empty record of a workload with so many requests.
    pub fn new(requests: usize) -> Self {
        Self {
            record: RunRecord { requests: vec![RequestRecord::default(); requests], ..RunRecord::default() },
            ledgers: Vec::new(),
            passes_left: u64::MAX,
            passes_kept: usize::MAX,
            bar: None,
            missed: 0,
            rejected: 0,
            ended: 0,
            outlook: None,
            stop: None,
        }
    }

    /// Allows the run so many passes.
    pub fn limit_passes(&mut self, passes: u64) {
        self.passes_left = passes;
    }

    /// Lets each worker rank keep so many passes.
    pub fn keep_passes(&mut self, passes: usize) {
        self.passes_kept = passes;
    }

    /// How many passes a worker rank may keep.
    pub fn passes_kept(&self) -> usize {
        self.passes_kept
    }

    /// Takes the gaps between tokens of passes that are not kept.
    pub fn folded_gaps(&mut self) -> &mut GapTally {
        self.record.folded_gaps.get_or_insert_default()
    }

    /// Ends the run when it cannot clear this bar any more.
    pub fn set_bar(&mut self, bar: AttainmentBar) {
        self.bar = Some(bar);
    }

    /// Ends the run when a figure cannot reach this bar any more.
    pub fn set_worth(&mut self, bar: WorthBar, workload: &Workload) {
        self.outlook = Some(Outlook::new(bar, workload));
    }

    /// A worker has made so many passes; whether the run goes on.
    pub fn passed(&mut self, passes: u64) -> bool {
        if passes > self.passes_left {
            self.stop.get_or_insert(EarlyEnd::OutOfPasses);
        }
        self.passes_left = self.passes_left.saturating_sub(passes);
        self.stop.is_none()
    }

    /// Why the run has to end before its time, if so.
    pub fn early_end(&self) -> Option<EarlyEnd> {
        self.stop
    }

    /// From now on keeps so much detail of what goes on.
    pub fn keep(&mut self, detail: ActivityDetail) {
        self.record.activity.detail = detail;
    }

    /// Whether passes are of interest.
    pub fn keeps_passes(&self) -> bool {
        self.record.activity.detail != ActivityDetail::None
    }

    /// Whether chunks, admissions and routes are of interest.
    pub fn keeps_everything(&self) -> bool {
        self.record.activity.detail == ActivityDetail::Everything
    }

    /// Passes of a rank are over, and this is what they were made of.
    pub fn passes_of(&mut self, span: PassSpan) {
        self.record.activity.passes.push(span);
    }

    /// A chunk of a prompt was computed.
    pub fn computed(&mut self, chunk: ChunkSpan) {
        if self.keeps_everything() {
            self.record.activity.chunks.push(chunk);
        }
    }

    /// A router placed a request.
    pub fn routed(&mut self, route: RouteRecord) {
        self.record.activity.routes.push(route);
    }

    /// A request was injected.
    pub fn arrived(&mut self, request: RequestId, now: SimTime) {
        let request = self.request(request);
        request.status = Status::Unfinished;
        request.arrival = Some(now);
    }

    /// The router handed a request to a worker rank.
    pub fn dispatched(&mut self, request: RequestId, role: Role, rank: u32, now: SimTime) {
        let request = self.request(request);
        request.dispatched = request.dispatched.or(Some(now));
        match role {
            Role::Prefill => request.prefill_worker = Some(rank),
            Role::Agg | Role::Decode => request.decode_worker = Some(rank),
        }
    }

    /// A decision between equally good workers was left to chance.
    pub fn router_tie(&mut self) {
        self.record.counters.router_ties += 1;
    }

    /// A request entered a batch, finding `reused_tokens` of its prompt in the cache.
    pub fn admitted(&mut self, request: RequestId, reused_tokens: u32, now: SimTime) {
        if self.keeps_everything() {
            self.record.activity.admissions.push(AdmissionRecord { at: now, request, reused_tokens });
        }
        let request = self.request(request);
        if request.admissions == 0 {
            request.first_admit = Some(now);
            request.first_reused_tokens = reused_tokens;
        }
        request.admissions += 1;
        request.max_reused_tokens = request.max_reused_tokens.max(reused_tokens);
    }

    /// A step of a hand-off was taken.
    pub fn handed_off(&mut self, request: RequestId, step: HandoffStep, now: SimTime) {
        let handoffs = &mut self.record.handoffs;
        if handoffs.is_empty() {
            handoffs.resize(self.record.requests.len(), HandoffRecord::default());
        }
        let handoff = &mut handoffs[request.0 as usize];
        let stamp = match step {
            HandoffStep::SourceHeld => &mut handoff.source_held,
            HandoffStep::DestinationReserved => &mut handoff.destination_reserved,
            HandoffStep::DestinationActivated => &mut handoff.destination_activated,
            HandoffStep::DecodeAdmitted => &mut handoff.decode_admit,
            HandoffStep::SourceReleased => &mut handoff.source_released,
        };
        *stamp = stamp.or(Some(now));
    }

    /// Whether a request has completed or was rejected.
    pub fn has_ended(&self, request: RequestId) -> bool {
        self.record.requests[request.0 as usize].terminal.is_some()
    }

    /// A request ran to its end.
    pub fn completed(&mut self, request: RequestId, stamps: TokenStamps, now: SimTime) {
        self.ended(request, Status::Completed, stamps, Some(now));
    }

    /// A request was refused by an engine that can never run it.
    pub fn rejected(&mut self, request: RequestId, stamps: TokenStamps, now: SimTime) {
        self.ended(request, Status::Rejected, stamps, Some(now));
    }

    /// A request was still there when the run ended. One that was rejected elsewhere, and whose blocks are about to be given back,
    /// stays rejected.
    pub fn unfinished(&mut self, request: RequestId, stamps: TokenStamps) {
        if self.record.requests[request.0 as usize].terminal.is_none() {
            self.ended(request, Status::Unfinished, stamps, None);
        }
    }

    /// The last word of a worker rank.
    pub fn rank_finished(
        &mut self,
        role: Role,
        timeline: PassTimeline,
        counters: Counters,
        peaks: Option<Peaks>,
    ) {
        self.happened(timeline.ends.last().copied().unwrap_or_default());
        let most = self.record.peaks.entry(role).or_insert(Some(Peaks::default()));
        *most = most.zip(peaks).map(|(most, peaks)| most.or(peaks));
        self.record.timelines.push(timeline);
        self.record.counters.add(counters);
    }

    /// A pool was asked to have `to` workers instead of `from`.
    pub fn scaled(&mut self, at: SimTime, role: Role, from: u32, to: u32, cause: ScalingCause) {
        self.record.scaling.events.push(ScalingEvent { at, role, from, to, cause });
    }

    /// There is a planner.
    pub fn is_planned(&mut self) {
        self.record.scaling.is_planned = true;
    }

    /// The planner saw and decided something.
    pub fn planned(&mut self, row: TickRow) {
        self.record.scaling.ticks.push(row);
    }

    /// Something happened to a worker.
    pub fn fleet_changed(&mut self, at: SimTime, role: Role, worker: u32, step: FleetStep) {
        self.record.scaling.changes.push(FleetChange { at, role, worker, step });
    }

    /// The last word of the fleet on a pool.
    pub fn pool_finished(&mut self, ledger: PoolLedger) {
        self.ledgers.push(ledger);
    }

    /// The most GPUs that a fleet which could change had at a time.
    pub fn gpus_peaked(&mut self, gpus: u64) {
        self.record.peak_gpus = gpus;
    }

    /// Something happened at this time: the run lasted at least so long.
    pub fn happened(&mut self, time: SimTime) {
        self.record.end = self.record.end.max(time);
    }

    /// The finished record, in which pools are still missing, and what the fleet said of them if it could change.
    pub fn into_record(self) -> (RunRecord, Vec<PoolLedger>) {
        (self.record, self.ledgers)
    }

    fn request(&mut self, request: RequestId) -> &mut RequestRecord {
        &mut self.record.requests[request.0 as usize]
    }

    fn ended(&mut self, request: RequestId, status: Status, stamps: TokenStamps, terminal: Option<SimTime>) {
        let place = request.0 as usize;
        let request = self.request(request);
        request.status = status;
        request.output_tokens = stamps.count;
        request.first_token = stamps.first;
        request.second_token = stamps.second;
        request.last_token = stamps.last;
        request.terminal = terminal;
        self.ended += 1;
        if let Some(outlook) = &mut self.outlook
            && let Some(bound) = outlook.ended(&self.record.requests[place])
        {
            self.stop.get_or_insert(EarlyEnd::Outclassed { bound });
        }
        if let Some(bar) = self.bar
            && !self.record.requests[place].meets(&bar.sla)
        {
            self.missed += 1;
            self.rejected += usize::from(status == Status::Rejected);
            // Requests that never arrive only lower what can be reached.
            let all = self.record.requests.len();
            if ((all - self.missed) as f64 / all as f64) < bar.minimum {
                let (missed, rejected, ended) = (self.missed - self.rejected, self.rejected, self.ended);
                let reached = || reached(&self.record.requests, &bar);
                self.stop.get_or_insert_with(|| EarlyEnd::Hopeless {
                    missed,
                    rejected,
                    ended,
                    reached: reached(),
                });
            }
        }
    }
}

/// For each bound of a bar, what its share of the requests that have ended is within.
fn reached(requests: &[RequestRecord], bar: &AttainmentBar) -> Sla {
    let ended = requests.iter().filter(|request| request.terminal.is_some());
    within_share(&ended, &bar.sla, bar.minimum)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hopeless_run_says_what_its_requests_were_within() {
        let mut recorder = Recorder::new(4);
        let sla = Sla { ttft_ms: Some(5.0), itl_ms: Some(1.0), e2e_ms: None };
        recorder.set_bar(AttainmentBar { sla, minimum: 0.5 });
        let ms = |ms: u64| SimTime::from_ns(ms * 1_000_000);
        for (number, first) in [(0, 9), (1, 7), (2, 8)] {
            let request = RequestId(number);
            recorder.arrived(request, SimTime::ZERO);
            let stamps = TokenStamps {
                count: 3,
                first: Some(ms(first)),
                second: Some(ms(20)),
                last: Some(ms(first + 2)),
            };
            recorder.completed(request, stamps, ms(30));
            assert!(recorder.early_end().is_some() == (number == 2), "{number}");
        }
        let reached = Sla { ttft_ms: Some(8.0), itl_ms: Some(1.0), e2e_ms: None };
        let expected = EarlyEnd::Hopeless { missed: 3, rejected: 0, ended: 3, reached };
        assert_eq!(recorder.early_end(), Some(expected));
    }
}
