//! A worker: one engine replica.
//!
//! - *Receives* requests that were placed here.
//! - *Sends* to the router what it needs to know (changes of the cache, first tokens, ends) and to the client the ends of
//!   requests, each only where somebody listens.
//! - *Keeps* the engine and whether a pass is under way; its only wake is the end of that pass or, between passes, the
//!   start of the next.
//! - *Invariants*: at most one pass at a time; a pass starts only after everything else that happens at that instant; when all
//!   requests are gone the engine holds no KV blocks.

use super::message::{ClientMessage, RouterMessage, Serving, WorkerId, WorkerMessage};
use super::order;
use crate::engine::{Engine, EngineError, Output, Signals};
use crate::report::record::Role;
use crate::simulation::{Actor, Address, Context};

/// Who wants to hear what from a worker.
#[derive(Clone, Copy, Debug)]
pub struct Listeners {
    /// Hears the ends of requests.
    pub client: Option<Address<ClientMessage>>,
    /// Hears first tokens and ends.
    pub router_load: Option<Address<RouterMessage>>,
    /// Hears changes of the cache.
    pub router_kv: Option<Address<RouterMessage>>,
}

/// One engine replica.
pub struct Worker {
    id: WorkerId,
    role: Role,
    engine: Box<dyn Engine>,
    listeners: Listeners,
    /// A pass is under way.
    busy: bool,
    signals: Signals,
}

impl Worker {
    /// An idle worker.
    pub fn new(id: WorkerId, role: Role, engine: Box<dyn Engine>, listeners: Listeners) -> Self {
        Self { id, role, engine, listeners, busy: false, signals: Signals::default() }
    }

    fn start_pass(&mut self, ctx: &mut Context<'_, Serving>) -> Result<(), EngineError> {
        let now = ctx.now();
        self.signals.clear();
        let end = self.engine.start_pass(now, &mut self.signals)?;
        for admission in &self.signals.admitted {
            ctx.record().admitted(admission.request, admission.reused_tokens, now);
        }
        if let Some(end) = end {
            self.busy = true;
            ctx.wake_at(end, order::PASS_COMPLETION);
        }
        Ok(())
    }

    fn complete_pass(&mut self, ctx: &mut Context<'_, Serving>) {
        self.busy = false;
        self.signals.clear();
        self.engine.complete_pass(&mut self.signals);
        self.publish(ctx);
        if self.engine.has_work() {
            ctx.wake_at(ctx.now(), order::PASS_START);
        }
    }

    /// Tells the listeners what the pass did: the cache first, then outputs in order.
    fn publish(&mut self, ctx: &mut Context<'_, Serving>) {
        if let Some(router) = self.listeners.router_kv {
            for &(segment, blocks) in &self.signals.kv_changes {
                ctx.send(router, RouterMessage::KvExtent { worker: self.id, segment, blocks });
            }
        }
        for &output in &self.signals.outputs {
            let now = ctx.now();
            let ended = match output {
                Output::FirstToken(request) => {
                    if let Some(router) = self.listeners.router_load {
                        ctx.send(router, RouterMessage::FirstToken(self.id, request));
                    }
                    continue;
                }
                Output::Completed(request, stamps) => {
                    ctx.record().completed(request, stamps, now);
                    request
                }
                Output::Rejected(request, stamps) => {
                    ctx.record().rejected(request, stamps, now);
                    request
                }
            };
            if let Some(router) = self.listeners.router_load {
                ctx.send(router, RouterMessage::Ended(self.id, ended));
            }
            if let Some(client) = self.listeners.client {
                ctx.send(client, ClientMessage::Ended(ended));
            }
        }
    }
}

impl Actor<Serving> for Worker {
    type Inbox = WorkerMessage;

    fn receive(&mut self, WorkerMessage::Assign(request): WorkerMessage, ctx: &mut Context<'_, Serving>) {
        let now = ctx.now();
        ctx.record().dispatched(request, self.role, self.id.0, now);
        let cut_to = self.engine.enqueue(request, now);
        if !self.busy {
            ctx.wake_at(now, order::PASS_START);
        } else if let Some(end) = cut_to {
            ctx.wake_at(end, order::PASS_COMPLETION);
        }
    }

    fn wake(&mut self, ctx: &mut Context<'_, Serving>) {
        if self.busy {
            self.complete_pass(ctx);
        } else if let Err(error) = self.start_pass(ctx) {
            ctx.fail(error.to_string());
        }
    }

    fn finish(&mut self, ctx: &mut Context<'_, Serving>) {
        self.engine.stop(ctx.now());
        for (request, stamps) in self.engine.unfinished() {
            ctx.record().unfinished(request, stamps);
        }
        let held = self.engine.blocks_held();
        if !self.engine.has_work() && held > 0 {
            ctx.fail(format!("{held} KV blocks are still held although every request is gone"));
        }
        let (timeline, counters) = (self.engine.take_timeline(), self.engine.counters());
        ctx.record().rank_finished(timeline, counters);
    }

    fn waiting_for(&self) -> Option<String> {
        self.engine.has_work().then(|| self.engine.waiting_for())
    }
}
