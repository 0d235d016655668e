//! The source of all traffic.
//!
//! - *Receives* the end of requests, where a closed loop or a session has to react to it.
//! - *Sends* each request to the router at its time.
//! - *Keeps* a cursor over the workload (arrivals are never preloaded into the agenda), the follow-up turns that wait for
//!   their time, and the number of sessions in flight.
//! - *Invariants*: at most one turn of a session is in flight; a closed loop has at most its cap of sessions in flight, and a
//!   session keeps its place while its user thinks.
//!
//! Open loop: sessions start at their arrival times. Closed loop: sessions start in order as places become free.
//! In both, a further turn starts its think time after the end of the one before. What is due at the same instant goes
//! out by session number.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

use super::message::{ClientMessage, FleetMessage, PlannerMessage, RouterMessage, Serving};
use super::order;
use crate::simulation::{Actor, Address, Context, SimTime};
use crate::workload::{RequestId, Workload};

/// Sends the workload.
#[derive(Debug)]
pub struct Client {
    workload: Arc<Workload>,
    router: Address<RouterMessage>,
    /// Sessions started so far.
    started: usize,
    /// Sessions in flight; kept in closed loops only.
    in_flight: u32,
    /// Follow-up turns by the time at which they are due.
    follow_ups: BinaryHeap<Reverse<(SimTime, u32, RequestId)>>,
    /// Requests sent that have not ended, where ends are reported.
    unanswered: u64,
    steered_by: SteeredBy,
}

/// Who steers the fleet and has to know what comes and when it is over.
#[derive(Clone, Copy, Debug, Default)]
pub struct SteeredBy {
    /// Hears when everything is over.
    pub fleet: Option<Address<FleetMessage>>,
    /// Hears of arrivals, and when everything is over.
    pub planner: Option<Address<PlannerMessage>>,
}

impl Client {
    /// A client that sends everything in `workload` to `router`.
    pub fn new(workload: Arc<Workload>, router: Address<RouterMessage>, steered_by: SteeredBy) -> Self {
        let follow_ups = BinaryHeap::new();
        Self { workload, router, started: 0, in_flight: 0, follow_ups, unanswered: 0, steered_by }
    }

    /// Whether the client of this workload has to hear when requests end.
    pub fn wants_ends(workload: &Workload) -> bool {
        workload.concurrency.is_some() || workload.requests.iter().any(|request| request.next_turn.is_some())
    }

    /// When the next session may start: `None` when there is none, or no place for it.
    fn next_start(&self, now: SimTime) -> Option<(SimTime, u32, RequestId)> {
        let &request = self.workload.session_starts.get(self.started)?;
        let session = self.workload.requests[request.0 as usize].session;
        match self.workload.concurrency {
            None => Some((self.workload.requests[request.0 as usize].arrival, session, request)),
            Some(cap) => (self.in_flight < cap).then_some((now, session, request)),
        }
    }

    /// The next request to send, and whether it starts a session.
    fn next_due(&self, now: SimTime) -> Option<(SimTime, RequestId, bool)> {
        let start = self.next_start(now);
        let follow_up = self.follow_ups.peek().map(|&Reverse(due)| due);
        match (start, follow_up) {
            (Some(start), Some(follow_up)) if follow_up < start => Some((follow_up.0, follow_up.2, false)),
            (Some((time, _, request)), _) => Some((time, request, true)),
            (None, Some((time, _, request))) => Some((time, request, false)),
            (None, None) => None,
        }
    }

    fn tell_it_is_over(&self, ctx: &mut Context<'_, Serving>) {
        if let Some(fleet) = self.steered_by.fleet {
            ctx.send(fleet, FleetMessage::Finished);
        }
        if let Some(planner) = self.steered_by.planner {
            ctx.send(planner, PlannerMessage::Finished);
        }
    }

    fn send_due(&mut self, ctx: &mut Context<'_, Serving>) {
        let now = ctx.now();
        while let Some((time, request, starts)) = self.next_due(now) {
            if time > now {
                ctx.wake_at(time, order::ARRIVAL);
                return;
            }
            if starts {
                self.started += 1;
                self.in_flight += 1;
            } else {
                self.follow_ups.pop();
            }
            self.unanswered += 1;
            ctx.record().arrived(request, now);
            if let Some(planner) = self.steered_by.planner {
                ctx.send(planner, PlannerMessage::Arrived(request));
            }
            ctx.send(self.router, RouterMessage::Arrived(request));
        }
    }
}

impl Actor<Serving> for Client {
    type Inbox = ClientMessage;

    fn start(&mut self, ctx: &mut Context<'_, Serving>) {
        match self.next_due(SimTime::ZERO) {
            Some((time, ..)) => ctx.wake_at(time, order::ARRIVAL),
            None => self.tell_it_is_over(ctx),
        }
    }

    fn receive(&mut self, ClientMessage::Ended(request): ClientMessage, ctx: &mut Context<'_, Serving>) {
        self.unanswered -= 1;
        let ended = &self.workload.requests[request.0 as usize];
        match ended.next_turn {
            Some(next) => {
                let delay = self.workload.requests[next.0 as usize].delay;
                self.follow_ups.push(Reverse((ctx.now() + delay, ended.session, next)));
            }
            None => self.in_flight -= 1,
        }
        if let Some((time, ..)) = self.next_due(ctx.now()) {
            ctx.wake_at(time, order::ARRIVAL);
        } else if self.unanswered == 0 {
            self.tell_it_is_over(ctx);
        }
    }

    fn wake(&mut self, ctx: &mut Context<'_, Serving>) {
        self.send_due(ctx);
    }

    fn waiting_for(&self) -> Option<String> {
        let left = self.workload.session_starts.len() - self.started;
        let thinking = self.follow_ups.len();
        (left + thinking > 0).then(|| {
            let unanswered = self.unanswered;
            format!(
                "{left} sessions not started, {thinking} users thinking, {unanswered} requests unanswered"
            )
        })
    }
}
