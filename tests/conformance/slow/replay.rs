//! The loop over moments: what happens, in which order.

use spica::config::scenario::{KvTransfer, Pool};
use spica::report::record::{HandoffRecord, PassTimeline, RequestRecord, Role, Status};
use spica::simulation::SimTime;
use spica::workload::{RequestId, Workload};

use super::client::Client;
use super::content::Identities;
use super::engine::{Pass, Shared};
use super::fleet::{Fleet, Place};
use super::handoffs::Handoffs;
use super::{Admission, PassLog, SlowRun};

/// A run under way.
#[derive(Debug)]
pub(super) struct Replay<'a> {
    pub now: SimTime,
    client: Client<'a>,
    /// The pools: one of aggregated workers, or one for prefill and one for decode.
    pub fleets: Vec<Fleet<'a>>,
    pub handoffs: Handoffs<'a>,
    pub shared: Shared<'a>,
    pub run: SlowRun,
}

impl<'a> Replay<'a> {
    pub(super) fn new(pools: &[(Role, &'a Pool)], transfer: &'a KvTransfer, workload: &'a Workload) -> Self {
        let requests = workload.requests.len();
        let fleets: Vec<_> = pools.iter().map(|(role, pool)| Fleet::new(*role, pool, requests)).collect();
        let mut run = SlowRun {
            tokens: vec![Vec::new(); requests],
            admissions: vec![Vec::new(); requests],
            ..SlowRun::default()
        };
        run.record.requests = vec![RequestRecord::default(); requests];
        if fleets.len() > 1 {
            run.record.handoffs = vec![HandoffRecord::default(); requests];
        }
        let ranks = fleets.iter().map(|fleet| fleet.places().len()).sum();
        run.record.timelines = vec![PassTimeline::default(); ranks];
        Self {
            now: SimTime::ZERO,
            client: Client::new(workload),
            fleets,
            handoffs: Handoffs::new(transfer, requests),
            shared: Shared { workload, identities: Identities::default() },
            run,
        }
    }

    pub(super) fn run(&mut self, limit: Option<SimTime>) {
        while let Some(next) = self.next_time() {
            if limit.is_some_and(|limit| next > limit) {
                return;
            }
            self.now = next;
            let mut rounds = 0;
            while self.instant() {
                rounds += 1;
                assert!(rounds < 1_000_000, "time stands still at {}", self.now);
            }
        }
    }

    fn next_time(&self) -> Option<SimTime> {
        let workers = self.fleets.iter().flat_map(|fleet| &fleet.workers);
        let ends = workers.filter_map(|worker| worker.end);
        ends.chain(self.client.next_time()).chain(self.handoffs.next_time()).min()
    }

    /// One round over everything that happens now; false when nothing did.
    fn instant(&mut self) -> bool {
        let mut happened = false;
        for fleet in 0..self.fleets.len() {
            for worker in 0..self.fleets[fleet].workers.len() {
                if self.fleets[fleet].workers[worker].end == Some(self.now) {
                    self.complete(fleet, worker);
                    happened = true;
                }
            }
        }
        happened |= self.hand_over();
        loop {
            // What is released by the end of one of these comes after them.
            let arrivals: Vec<_> = std::iter::from_fn(|| self.client.arrival(self.now)).collect();
            if arrivals.is_empty() {
                break;
            }
            for request in arrivals {
                self.arrive(request);
            }
            happened = true;
        }
        for fleet in 0..self.fleets.len() {
            for worker in 0..self.fleets[fleet].workers.len() {
                if self.start(fleet, worker) {
                    happened = true;
                    if self.fleets[fleet].workers[worker].end == Some(self.now) {
                        return true;
                    }
                }
            }
        }
        happened
    }

    fn arrive(&mut self, request: RequestId) {
        let now = self.now;
        let record = self.record(request);
        record.status = Status::Unfinished;
        record.arrival = Some(now);
        record.dispatched = Some(now);
        if self.is_destination_first() {
            self.look_for_room(request);
        } else {
            self.submit(request);
        }
    }

    /// Gives a request to the worker of the first pool whose turn it is.
    pub(super) fn submit(&mut self, request: RequestId) {
        let asked = &self.shared.workload.requests[request.0 as usize];
        let fleet = &mut self.fleets[0];
        let place = fleet.place(asked);
        fleet.rank(place).engine.submit(request, asked);
        fleet.workers[place.worker].stirred = true;
        let (role, number) = (fleet.role, fleet.number(place));
        self.handoffs.sources[request.0 as usize] = Some(place);
        let record = self.record(request);
        match role {
            Role::Prefill => record.prefill_worker = Some(number),
            Role::Agg | Role::Decode => record.decode_worker = Some(number),
        }
    }

    fn complete(&mut self, fleet: usize, worker: usize) {
        for (rank, pass) in self.fleets[fleet].workers[worker].finish() {
            self.log(fleet, Place { worker, rank }, &pass);
            for &request in &pass.emitted {
                self.run.tokens[request.0 as usize].push(self.now);
            }
            for &request in &pass.held {
                self.held(request);
            }
            for (requests, status) in
                [(&pass.finished, Status::Completed), (&pass.rejected, Status::Rejected)]
            {
                for &request in requests {
                    self.ended(request, status);
                }
            }
            if self.fleets[fleet].role == Role::Prefill && self.is_destination_first() {
                for &request in &pass.rejected {
                    self.give_reservation_back(request);
                }
            }
        }
    }

    /// Starts a pass of a worker that is between two; false when there is nothing to do.
    fn start(&mut self, fleet: usize, worker: usize) -> bool {
        let now = self.now;
        let of = &mut self.fleets[fleet];
        let interval = of.config.engine.prefill_schedule_interval;
        let role = of.role;
        let worker = &mut of.workers[worker];
        if worker.end.is_some() || !worker.stirred || !worker.start(now, interval, &mut self.shared) {
            return false;
        }
        let passes = || worker.ranks.iter().filter_map(|rank| rank.pass.as_ref());
        for settled in passes().map(|pass| pass.settled) {
            self.run.record.counters.preemptions += settled.preemptions;
            self.run.record.counters.evictions += settled.evictions;
        }
        let admitted: Vec<_> = passes().flat_map(|pass| pass.admitted.clone()).collect();
        for (request, reused_tokens) in admitted {
            let record = self.record(request);
            if record.admissions == 0 {
                record.first_admit = Some(now);
                record.first_reused_tokens = reused_tokens;
            }
            record.admissions += 1;
            record.max_reused_tokens = record.max_reused_tokens.max(reused_tokens);
            self.run.admissions[request.0 as usize].push(Admission { at: now, reused_tokens });
            if role == Role::Decode {
                self.handoff(request).decode_admit.get_or_insert(now);
            }
        }
        true
    }

    fn log(&mut self, fleet: usize, place: Place, pass: &Pass) {
        let counters = &mut self.run.record.counters;
        counters.committed_prefill_tokens += pass.prefill_tokens;
        counters.preemptions += pass.preemptions;
        counters.evictions += pass.evictions;
        if pass.scheduled == 0 {
            return;
        }
        counters.passes += 1;
        let timeline = self.timeline(fleet, self.fleets[fleet].number(place));
        self.run.record.timelines[timeline].ends.push(self.now);
        self.run.passes.push(PassLog {
            worker: timeline,
            end: self.now,
            duration: pass.duration,
            batch: pass.batch,
            prefill_tokens: pass.prefill_tokens,
            pure_decode_requests: pass.pure_decode_requests,
            pure_decode_tokens: pass.pure_decode_tokens,
        });
    }

    /// Number of a fleet's rank among all ranks.
    fn timeline(&self, fleet: usize, rank: u32) -> usize {
        let before: usize = self.fleets[..fleet].iter().map(|fleet| fleet.places().len()).sum();
        before + rank as usize
    }

    pub(super) fn ended(&mut self, request: RequestId, status: Status) {
        let now = self.now;
        let record = self.record(request);
        record.status = status;
        record.terminal = Some(now);
        self.client.ended(request, now);
    }

    pub(super) fn record(&mut self, request: RequestId) -> &mut RequestRecord {
        &mut self.run.record.requests[request.0 as usize]
    }

    pub(super) fn finish(mut self, may_be_cut: bool) -> SlowRun {
        let last = self.fleets.len() - 1;
        let generates = self.timeline(last, 0);
        for (record, tokens) in self.run.record.requests.iter_mut().zip(&self.run.tokens) {
            assert!(may_be_cut || record.terminal.is_some(), "every request ends: {record:?}");
            record.output_tokens = tokens.len() as u32;
            record.first_token = tokens.first().copied();
            record.second_token = tokens.get(1).copied();
            record.last_token = tokens.last().copied();
            if record.status == Status::Completed {
                let worker = record.decode_worker.expect("a completed request had a worker") as usize;
                let gaps = tokens.windows(2).map(|pair| pair[1] - pair[0]);
                self.run.record.timelines[generates + worker].loose_gaps.extend(gaps);
            }
        }
        for fleet in &self.fleets {
            let mut ranks = fleet.workers.iter().flat_map(|worker| &worker.ranks);
            assert!(may_be_cut || ranks.all(|rank| rank.engine.blocks_held() == 0), "no block stays held");
        }
        self.run.record.end = self.now;
        self.run.record.pools = self.fleets.iter().map(|fleet| fleet.record(self.now)).collect();
        self.run
    }
}
