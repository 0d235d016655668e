//! A worker: one engine replica, which is a group of one or more attention-data-parallel ranks.
//!
//! - *Receives* requests that were placed on one of its ranks; in a disaggregated fleet also the arrival of KV blocks and
//!   the permission to give them up.
//! - *Sends* to its router what that needs to know (changes of the cache, first tokens, ends), to the client the ends of
//!   requests, each only where somebody listens; a prefill worker passes computed prompts on to the decode router.
//! - *Keeps* the engines of its ranks and whether a pass is under way; its only wake is the end of that pass or, between
//!   passes, the start of the next.
//! - *Invariants*: the ranks pass in lock-step: all with work start together and end together, with the slowest; a pass
//!   starts only after everything else that happens at that instant; hand-offs that come during a pass take effect at its
//!   end; when all requests are gone the engines hold no KV blocks; a worker that has to go does so when it is empty.

mod activity;
mod handoff;
mod watch;

use std::sync::Arc;

pub use handoff::{Handoff, HandoffOrder, Transfer};
pub use watch::WorkerPasses;

use self::watch::Watch;
use super::message::{
    ClientMessage, EndedRequest, FleetMessage, Parcel, PlannerMessage, RouterMessage, Serving, WorkerId,
    WorkerMessage,
};
use super::order;
use super::recorder::HandoffStep;
use crate::engine::{Cadence, Engine, EngineError, Output, Signals, TokenStamps};
use crate::report::record::Role;
use crate::simulation::{Actor, Address, Context, SimTime};
use crate::workload::{RequestId, Workload};

/// Who wants to hear what from a worker.
#[derive(Clone, Copy, Debug)]
pub struct Listeners {
    /// Hears the ends of requests.
    pub client: Option<Address<ClientMessage>>,
    /// Hears first tokens and ends.
    pub router_load: Option<Address<RouterMessage>>,
    /// Hears changes of the cache.
    pub router_kv: Option<Address<RouterMessage>>,
    /// Hears when a worker that has to go is empty, and knows its pool by this number.
    pub fleet: Option<(Address<FleetMessage>, u8)>,
    /// Hears of ended requests, and of passes when it asks.
    pub planner: Option<Address<PlannerMessage>>,
}

/// One engine replica.
pub struct Worker {
    /// Number of its first rank.
    first_rank: WorkerId,
    role: Role,
    ranks: Vec<Box<dyn Engine>>,
    /// Prompt work is taken up in every n-th pass only.
    prefill_interval: u32,
    /// Passes since the group last had nothing to do.
    passes: u32,
    listeners: Listeners,
    handoff: Option<Handoff>,
    workload: Arc<Workload>,
    /// A pass is under way.
    busy: bool,
    /// Start of the first pass in progress.
    started: SimTime,
    signals: Signals,
    group_ends: Vec<SimTime>,
    /// What a planner may ask for; kept if there is one.
    watch: Option<Watch>,
    /// No more requests will come.
    is_leaving: bool,
}

impl Worker {
    /// An idle worker whose ranks run `ranks`. Ranks of one group take up prompt work in every
    /// `prefill_interval`-th pass only.
    ///
    /// # Panics
    /// If there are no ranks.
    pub fn new(
        first_rank: WorkerId,
        role: Role,
        ranks: Vec<Box<dyn Engine>>,
        prefill_interval: u32,
        listeners: Listeners,
        handoff: Option<Handoff>,
        workload: Arc<Workload>,
    ) -> Self {
        assert!(!ranks.is_empty(), "a worker has at least one rank");
        Self {
            first_rank,
            role,
            ranks,
            prefill_interval,
            passes: 0,
            listeners,
            handoff,
            workload,
            busy: false,
            started: SimTime::ZERO,
            signals: Signals::default(),
            group_ends: Vec::new(),
            watch: None,
            is_leaving: false,
        }
    }

    fn id(&self, rank: usize) -> WorkerId {
        WorkerId(self.first_rank.0 + rank as u32)
    }

    fn engine(&mut self, rank: WorkerId) -> &mut dyn Engine {
        self.ranks[(rank.0 - self.first_rank.0) as usize].as_mut()
    }

    fn has_work(&self) -> bool {
        self.ranks.iter().any(|rank| rank.has_work())
    }

    fn cadence(&self) -> Cadence {
        match self.passes % self.prefill_interval {
            _ if self.prefill_interval == 1 => Cadence::Free,
            0 => Cadence::Open,
            since => Cadence::Deferred { passes: self.prefill_interval - since },
        }
    }

    fn start_pass(&mut self, ctx: &mut Context<'_, Serving>) -> Result<(), EngineError> {
        let now = ctx.now();
        let cadence = self.cadence();
        self.started = now;
        let mut end = None;
        let mut passes = usize::MAX;
        if let Some(watch) = &mut self.watch {
            watch.pass_started(now);
        }
        for rank in &mut self.ranks {
            self.signals.clear();
            let rank_end = rank.start_pass(now, cadence, &mut self.signals)?;
            if let Some(end) = rank_end.filter(|&end| end < now) {
                return Err(EngineError::Broken(format!("a pass that starts now ends at {end}")));
            }
            end = end.max(rank_end);
            if rank_end.is_some() {
                // A pass that schedules nothing is one pass too.
                passes = passes.min(rank.passes().in_progress().len().max(1));
            }
            for admission in &self.signals.admitted {
                ctx.record().admitted(admission.request, admission.reused_tokens, now);
                if self.role == Role::Decode {
                    ctx.record().handed_off(admission.request, HandoffStep::DecodeAdmitted, now);
                }
            }
        }
        if self.ranks.len() > 1 {
            end = self.align_ranks(now, passes).or(end);
        }
        if let Some(end) = end {
            self.busy = true;
            ctx.wake_at(end, order::PASS_COMPLETION);
        }
        Ok(())
    }

    /// Lets the ranks wait for each other for `passes` passes, pass by pass; returns the common end.
    fn align_ranks(&mut self, now: SimTime, passes: usize) -> Option<SimTime> {
        let passing =
            || self.ranks.iter().map(|rank| rank.passes().in_progress()).filter(|ends| !ends.is_empty());
        passing().next()?;
        self.group_ends.clear();
        let mut group_end = now;
        for pass in 0..passes {
            let duration = |ends: &[SimTime]| ends[pass] - if pass == 0 { now } else { ends[pass - 1] };
            group_end += passing().map(duration).max().unwrap_or_default();
            self.group_ends.push(group_end);
        }
        for rank in &mut self.ranks {
            rank.passes_mut().set_ends(&self.group_ends);
        }
        Some(group_end)
    }

    fn complete_pass(&mut self, ctx: &mut Context<'_, Serving>) {
        self.busy = false;
        let passes = self.ranks.iter().map(|rank| rank.passes().in_progress().len()).max().unwrap_or(0);
        self.passes = self.passes.wrapping_add(passes as u32);
        if !ctx.record().passed(passes as u64) {
            ctx.fail("the run ends before its time");
        }
        if let Some(watch) = &mut self.watch {
            watch.passes_end(&self.ranks);
        }
        if ctx.record().keeps_passes() {
            self.report_activity(ctx);
        }
        for rank in 0..self.ranks.len() {
            self.signals.clear();
            self.ranks[rank].complete_pass(&mut self.signals);
            self.publish(rank, ctx);
            self.fold_timeline(rank, ctx);
        }
        self.settle_handoffs(ctx);
        if self.has_work() {
            ctx.wake_at(ctx.now(), order::PASS_START);
        } else {
            self.passes = 0;
        }
    }

    /// Forgets the passes of a rank that nobody refers to, if it has made very many.
    fn fold_timeline(&mut self, rank: usize, ctx: &mut Context<'_, Serving>) {
        let rank = &mut self.ranks[rank];
        let kept = rank.passes().timeline.ends.len();
        if kept <= ctx.record().passes_kept() {
            return;
        }
        let oldest = rank.oldest_token_pass();
        let timeline = &mut rank.passes_mut().timeline;
        let oldest = oldest.unwrap_or(timeline.passes() - 1);
        // Moving the rest is worth it where that is the smaller part.
        if timeline.place(oldest) > kept / 2 {
            timeline.fold(oldest, ctx.record().folded_gaps());
        }
    }

    /// Tells the listeners what a rank's pass did: the cache first, then outputs in order.
    fn publish(&mut self, rank: usize, ctx: &mut Context<'_, Serving>) {
        let id = self.id(rank);
        if let Some(router) = self.listeners.router_kv {
            for &(segment, blocks) in &self.signals.kv_changes {
                ctx.send(router, RouterMessage::KvExtent { worker: id, segment, blocks });
            }
        }
        let now = ctx.now();
        for index in 0..self.signals.outputs.len() {
            match self.signals.outputs[index] {
                Output::FirstToken(request) => self.tell_router(RouterMessage::FirstToken(id, request), ctx),
                Output::PromptComputed(request) => self.pass_on(id, request, ctx),
                Output::Completed(request, _) | Output::Rejected(request, _)
                    if ctx.record().has_ended(request) =>
                {
                    ctx.fail(format!("request {} has ended already, and ends again", request.0));
                }
                Output::Completed(request, stamps) => {
                    ctx.record().completed(request, stamps, now);
                    self.tell_planner(request, true, stamps, ctx);
                    self.tell_ended(id, request, ctx);
                }
                Output::Rejected(request, stamps) => {
                    ctx.record().rejected(request, stamps, now);
                    self.tell_planner(request, false, stamps, ctx);
                    self.give_reservation_back(request, ctx);
                    self.tell_ended(id, request, ctx);
                }
            }
        }
    }

    fn tell_router(&self, message: RouterMessage, ctx: &mut Context<'_, Serving>) {
        if let Some(router) = self.listeners.router_load {
            ctx.send(router, message);
        }
    }

    fn tell_planner(
        &self,
        request: RequestId,
        completed: bool,
        stamps: TokenStamps,
        ctx: &mut Context<'_, Serving>,
    ) {
        if let Some(planner) = self.listeners.planner {
            let parcel = ctx.pack(Parcel::Ended(EndedRequest { request, completed, stamps }));
            ctx.send(planner, PlannerMessage::Ended(parcel));
        }
    }

    fn tell_ended(&self, rank: WorkerId, request: RequestId, ctx: &mut Context<'_, Serving>) {
        self.tell_router(RouterMessage::Ended(rank, request), ctx);
        if let Some(client) = self.listeners.client {
            ctx.send(client, ClientMessage::Ended(request));
        }
    }

    /// Takes a request to compute.
    fn enqueue(&mut self, rank: WorkerId, request: RequestId, ctx: &mut Context<'_, Serving>) {
        let now = ctx.now();
        let cuts = self.engine(rank).enqueue(request);
        if !self.busy {
            ctx.wake_at(now, order::PASS_START);
        } else if cuts {
            self.cut(ctx);
        } else if let Some(watch) = &mut self.watch {
            let tokens = self.workload.requests[request.0 as usize].input_length;
            watch.came_late((rank.0 - self.first_rank.0) as usize, now, tokens);
        }
    }

    fn answer_planner(&mut self, ctx: &mut Context<'_, Serving>) {
        let (Some(watch), Some(planner)) = (&mut self.watch, self.listeners.planner) else { return };
        let pool = self.listeners.fleet.map_or(0, |(_, pool)| pool);
        let passes = watch.sample(pool, self.first_rank, &mut self.ranks, ctx.now());
        let parcel = ctx.pack(Parcel::Passes(passes));
        ctx.send(planner, PlannerMessage::Passes(parcel));
    }

    /// Goes, if it has to and nobody is here any more.
    fn leave_if_empty(&mut self, ctx: &mut Context<'_, Serving>) {
        let is_empty = !self.busy && self.ranks.iter().all(|rank| rank.is_empty());
        if !self.is_leaving || self.ranks.is_empty() || !is_empty || self.has_handoffs() {
            return;
        }
        ctx.cancel_wake();
        self.close(ctx);
        self.ranks.clear();
        if let Some((fleet, pool)) = self.listeners.fleet {
            ctx.send(fleet, FleetMessage::Emptied { pool, worker: self.first_rank });
        }
    }

    /// Hands in what was recorded.
    fn close(&mut self, ctx: &mut Context<'_, Serving>) {
        for rank in &mut self.ranks {
            if rank.passes_mut().stop(ctx.now()) {
                // Who listened has nothing more to do.
                self.signals.clear();
                rank.complete_pass(&mut self.signals);
            }
            for (request, stamps) in rank.unfinished() {
                ctx.record().unfinished(request, stamps);
            }
            let held = rank.blocks_held();
            if rank.waiting_for().is_none() && held > 0 {
                ctx.fail(format!("{held} KV blocks are still held although every request is gone"));
            }
            let timeline = std::mem::take(&mut rank.passes_mut().timeline);
            ctx.record().rank_finished(self.role, timeline, rank.counters(), rank.peaks());
        }
    }

    /// Ends a run of passes with the one in progress. One that ends at this instant is over already if its turn has passed.
    fn cut(&mut self, ctx: &mut Context<'_, Serving>) {
        let (now, started) = (ctx.now(), ctx.is_past(order::PASS_START));
        let ends = self.ranks.iter_mut().filter_map(|rank| rank.passes_mut().cut(now, started));
        let Some(end) = ends.max() else { return };
        if end == now && ctx.is_past(order::PASS_COMPLETION) {
            ctx.cancel_wake();
            self.complete_pass(ctx);
        } else {
            ctx.wake_at(end, order::PASS_COMPLETION);
        }
    }
}

impl Actor<Serving> for Worker {
    type Inbox = WorkerMessage;

    fn start(&mut self, ctx: &mut Context<'_, Serving>) {
        if ctx.record().keeps_passes() {
            self.ranks.iter_mut().for_each(|rank| rank.watch());
        }
        if self.listeners.planner.is_some() {
            self.ranks.iter_mut().for_each(|rank| rank.watch());
            self.watch = Some(Watch::new(self.ranks.len(), ctx.now()));
        }
    }

    fn receive(&mut self, message: WorkerMessage, ctx: &mut Context<'_, Serving>) {
        match message {
            WorkerMessage::Assign(rank, request) => {
                let now = ctx.now();
                ctx.record().dispatched(request, self.role, rank.0, now);
                if self.role == Role::Decode {
                    self.ask_for_blocks(rank, request, ctx);
                } else {
                    self.enqueue(rank, request, ctx);
                }
            }
            WorkerMessage::Fetch(rank, request) => self.fetch_computed(rank, request, ctx),
            WorkerMessage::KvArrived(rank, request) => self.kv_arrived(rank, request, ctx),
            WorkerMessage::Release(rank, request) => self.release(rank, request, ctx),
            WorkerMessage::Drain => self.is_leaving = true,
            WorkerMessage::Sample => self.answer_planner(ctx),
        }
        if self.is_leaving {
            self.leave_if_empty(ctx);
        }
    }

    fn wake(&mut self, ctx: &mut Context<'_, Serving>) {
        if self.busy {
            self.complete_pass(ctx);
        } else if let Err(error) = self.start_pass(ctx) {
            ctx.fail(error.to_string());
        }
        if self.is_leaving {
            self.leave_if_empty(ctx);
        }
    }

    fn finish(&mut self, ctx: &mut Context<'_, Serving>) {
        self.close(ctx);
    }

    fn waiting_for(&self) -> Option<String> {
        let ranks: Vec<_> = self.ranks.iter().filter_map(|rank| rank.waiting_for()).collect();
        (!ranks.is_empty()).then(|| ranks.join(" | "))
    }
}
