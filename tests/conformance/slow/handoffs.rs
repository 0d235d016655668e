//! The way of a prompt from a prefill worker to a decode worker.
//!
//! Its blocks stay where they were computed until the decode worker has set blocks aside and the content has travelled.
//! With SGLang the decode worker sets blocks aside before the prompt is given to a prefill worker.
//! A worker in the middle of a pass learns of all that when the pass ends.

use std::collections::{BTreeMap, VecDeque};

use spica::config::scenario::{Backend, KvTransfer, KvTransferTiming, LinkSharing};
use spica::report::record::{HandoffRecord, Status};
use spica::simulation::{SimDuration, SimTime};
use spica::workload::RequestId;

use super::engine::Reservation;
use super::fleet::{Place, Rank};
use super::replay::Replay;

/// Index of the prefill pool among a run's pools.
const PREFILL: usize = 0;
/// Index of the decode pool.
const DECODE: usize = 1;

/// All prompts on their way.
#[derive(Debug)]
pub(super) struct Handoffs<'a> {
    how: &'a KvTransfer,
    /// Transfers under way, by end and then in the order in which they began.
    transfers: BTreeMap<(SimTime, u64), RequestId>,
    begun: u64,
    /// Prompts that were computed and with which nothing was done yet, in order.
    computed: VecDeque<RequestId>,
    /// Prompts that cannot be computed, whose blocks are set aside, in order.
    returned: VecDeque<RequestId>,
    /// Blocks set aside that the content of another prompt does not fill already, by request number.
    missing_blocks: Vec<u32>,
    /// When the link is free, where one transfer waits for the other.
    link_free: SimTime,
    /// Where each request's prompt was computed and where it goes, by request number.
    pub sources: Vec<Option<Place>>,
    pub destinations: Vec<Option<Place>>,
}

impl<'a> Handoffs<'a> {
    pub(super) fn new(how: &'a KvTransfer, requests: usize) -> Self {
        Self {
            how,
            transfers: BTreeMap::new(),
            begun: 0,
            computed: VecDeque::new(),
            returned: VecDeque::new(),
            missing_blocks: vec![0; requests],
            link_free: SimTime::ZERO,
            sources: vec![None; requests],
            destinations: vec![None; requests],
        }
    }

    pub(super) fn next_time(&self) -> Option<SimTime> {
        self.transfers.first_key_value().map(|((end, _), _)| *end)
    }

    fn arrived(&mut self, now: SimTime) -> Option<RequestId> {
        if self.next_time()? > now {
            return None;
        }
        self.transfers.pop_first().map(|(_, request)| request)
    }

    fn begin(&mut self, request: RequestId, tokens: u64, now: SimTime) {
        let duration = self.duration(tokens);
        let start = match self.how.sharing {
            LinkSharing::Fifo => now.max(self.link_free),
            LinkSharing::None | LinkSharing::Fair => now,
        };
        self.link_free = start + duration;
        self.transfers.insert((start + duration, self.begun), request);
        self.begun += 1;
    }

    fn duration(&self, tokens: u64) -> SimDuration {
        let ms = match (self.how.bytes_per_token, self.how.bandwidth_gbps) {
            (Some(bytes), Some(bandwidth)) => tokens as f64 * bytes as f64 / (bandwidth * 1e9) * 1000.0,
            _ => self.how.latency_ms,
        };
        SimDuration::from_ms(ms).expect("a transfer takes a while")
    }
}

impl<'a> Replay<'a> {
    /// Whether blocks are set aside before the prompt is computed.
    pub(super) fn is_destination_first(&self) -> bool {
        self.fleets.get(DECODE).is_some_and(|fleet| fleet.config.engine.backend == Backend::Sglang)
    }

    /// A prefill worker has computed a prompt.
    pub(super) fn held(&mut self, request: RequestId) {
        self.handoff(request).source_held = Some(self.now);
        if !self.is_destination_first() {
            self.choose_destination(request);
        }
        self.handoffs.computed.push_back(request);
    }

    /// A request that arrives asks a decode worker for blocks first.
    pub(super) fn look_for_room(&mut self, request: RequestId) {
        self.choose_destination(request);
        self.ask(request);
    }

    /// Its prompt cannot be computed: the blocks set aside for a request are not needed.
    pub(super) fn give_reservation_back(&mut self, request: RequestId) {
        self.handoffs.returned.push_back(request);
    }

    fn choose_destination(&mut self, request: RequestId) {
        let asked = &self.shared.workload.requests[request.0 as usize];
        let destination = self.fleets[DECODE].place(asked);
        self.handoffs.destinations[request.0 as usize] = Some(destination);
        let number = self.fleets[DECODE].number(destination);
        self.record(request).decode_worker = Some(number);
    }

    fn ask(&mut self, request: RequestId) {
        let asked = &self.shared.workload.requests[request.0 as usize];
        self.destination(request).engine.ask(request, asked);
        self.settle_destination(request);
    }

    fn settle_destination(&mut self, request: RequestId) {
        let place = self.handoffs.destinations[request.0 as usize].expect("it goes somewhere");
        self.settle(DECODE, place);
    }

    /// Does what can be done for prompts on their way; false when that was nothing.
    pub(super) fn hand_over(&mut self) -> bool {
        let mut happened = false;
        loop {
            let mut acted = false;
            for fleet in 0..self.fleets.len() {
                for place in self.fleets[fleet].places() {
                    acted |= self.settle(fleet, place);
                }
            }
            while let Some(request) = self.handoffs.returned.pop_front() {
                self.destination(request).releases.push_back(request);
                self.settle_destination(request);
                acted = true;
            }
            while let Some(request) = self.handoffs.arrived(self.now) {
                self.destination(request).activations.push_back(request);
                self.source(request).releases.push_back(request);
                self.settle_destination(request);
                acted = true;
            }
            while let Some(request) = self.handoffs.computed.pop_front() {
                if self.is_destination_first() {
                    self.send(request);
                } else {
                    self.ask(request);
                }
                acted = true;
            }
            if !acted {
                return happened;
            }
            happened = true;
        }
    }

    /// Does what is due at a rank if it is between passes; false when that was nothing.
    fn settle(&mut self, fleet: usize, place: Place) -> bool {
        if self.fleets[fleet].workers[place.worker].end.is_some() {
            return false;
        }
        let now = self.now;
        let mut acted = false;
        while let Some(request) = self.fleets[fleet].rank(place).releases.pop_front() {
            let rank = &mut self.fleets[fleet].workers[place.worker].ranks[place.rank];
            rank.engine.release_source(request, &mut self.shared);
            if fleet == PREFILL {
                self.handoff(request).source_released = Some(now);
            }
            acted = true;
        }
        while let Some(request) = self.fleets[fleet].rank(place).activations.pop_front() {
            let rank = &mut self.fleets[fleet].workers[place.worker].ranks[place.rank];
            rank.engine.activate(request, &mut self.shared);
            self.handoff(request).destination_activated = Some(now);
            acted = true;
        }
        self.fleets[fleet].workers[place.worker].stirred |= acted;
        while let Some((request, answer)) =
            self.fleets[fleet].workers[place.worker].ranks[place.rank].engine.reserve(&mut self.shared)
        {
            self.answered(request, answer);
            acted = true;
        }
        acted
    }

    fn answered(&mut self, request: RequestId, answer: Reservation) {
        let now = self.now;
        match answer {
            Reservation::Granted { missing_blocks, evictions } => {
                self.run.record.counters.evictions += evictions;
                self.handoff(request).destination_reserved = Some(now);
                self.handoffs.missing_blocks[request.0 as usize] = missing_blocks;
                if self.is_destination_first() {
                    self.submit(request);
                } else {
                    self.send(request);
                }
            }
            Reservation::Rejected => {
                self.ended(request, Status::Rejected);
                if !self.is_destination_first() {
                    self.source(request).releases.push_back(request);
                }
            }
        }
    }

    /// A computed prompt begins to travel into the blocks set aside for it.
    fn send(&mut self, request: RequestId) {
        let asked = &self.shared.workload.requests[request.0 as usize];
        let block_size = self.fleets[DECODE].config.engine.block_size;
        let missing_blocks = self.handoffs.missing_blocks[request.0 as usize];
        let tokens = match self.handoffs.how.timing {
            KvTransferTiming::FullPrompt => u64::from(asked.input_length),
            KvTransferTiming::DestinationMissing => u64::from(missing_blocks) * u64::from(block_size),
        };
        self.handoffs.begin(request, tokens, self.now);
    }

    fn source(&mut self, request: RequestId) -> &mut Rank<'a> {
        let place = self.handoffs.sources[request.0 as usize].expect("its prompt was computed somewhere");
        self.fleets[PREFILL].rank(place)
    }

    fn destination(&mut self, request: RequestId) -> &mut Rank<'a> {
        let place = self.handoffs.destinations[request.0 as usize].expect("it was on its way somewhere");
        self.fleets[DECODE].rank(place)
    }

    pub(super) fn handoff(&mut self, request: RequestId) -> &mut HandoffRecord {
        &mut self.run.record.handoffs[request.0 as usize]
    }
}
