//! When requests arrive.

use std::collections::BTreeSet;

use spica::simulation::SimTime;
use spica::workload::{RequestId, Workload};

/// Requests that are ready or will be, in the order in which they arrive.
#[derive(Debug)]
pub(crate) struct Client<'a> {
    workload: &'a Workload,
    ready: BTreeSet<(SimTime, usize, u32, RequestId)>,
    /// What decides between sessions at one moment, by session number.
    places: Vec<usize>,
    /// Closed loop: sessions that have not started.
    unstarted: std::slice::Iter<'a, RequestId>,
    /// Closed loop: sessions started and not finished.
    in_flight: u32,
}

impl<'a> Client<'a> {
    pub(crate) fn new(workload: &'a Workload) -> Self {
        let mut client = Self {
            workload,
            ready: BTreeSet::new(),
            places: places(workload),
            unstarted: workload.session_starts.iter(),
            in_flight: 0,
        };
        if workload.concurrency.is_none() {
            while let Some(&first) = client.unstarted.next() {
                client.ready_at(workload.requests[first.0 as usize].arrival, first);
            }
        }
        client.fill_slots(SimTime::ZERO);
        client
    }

    /// The next arrival.
    pub(crate) fn next_time(&self) -> Option<SimTime> {
        self.ready.first().map(|entry| entry.0)
    }

    /// The request that arrives at or before `now`, if one does.
    pub(crate) fn arrival(&mut self, now: SimTime) -> Option<RequestId> {
        if self.next_time()? > now {
            return None;
        }
        self.ready.pop_first().map(|entry| entry.3)
    }

    /// A request was completed or rejected at `now`.
    pub(crate) fn ended(&mut self, request: RequestId, now: SimTime) {
        if let Some(next) = self.workload.requests[request.0 as usize].next_turn {
            self.ready_at(now + self.workload.requests[next.0 as usize].delay, next);
        } else if self.workload.concurrency.is_some() {
            self.in_flight -= 1;
            self.fill_slots(now);
        }
    }

    fn fill_slots(&mut self, now: SimTime) {
        while self.workload.concurrency.is_some_and(|cap| self.in_flight < cap) {
            let Some(&first) = self.unstarted.next() else { return };
            self.in_flight += 1;
            self.ready_at(now, first);
        }
    }

    fn ready_at(&mut self, time: SimTime, request: RequestId) {
        let asked = &self.workload.requests[request.0 as usize];
        let place = self.places[asked.session as usize];
        self.ready.insert((time, place, asked.turn, request));
    }
}

/// Sessions are told apart by their numbers in an open loop, by the order in which they are started in a closed one.
fn places(workload: &Workload) -> Vec<usize> {
    let mut places: Vec<usize> = (0..workload.session_starts.len()).collect();
    if workload.concurrency.is_some() {
        for (place, first) in workload.session_starts.iter().enumerate() {
            places[workload.requests[first.0 as usize].session as usize] = place;
        }
    }
    places
}
