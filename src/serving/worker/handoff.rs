//! The hand-off of a computed prompt from a prefill to a decode worker.
//!
//! ```text
//!   prefill worker          decode router      decode worker           prefill router
//!   prompt computed ──Arrived──►  places ──Assign──► asks for blocks
//!                                                   reserved, transfer
//!                                                   KvArrived (to itself) ──HandedOff──► knows where
//!   gives blocks up ◄──────────────────────── Release ───────────────────────────────┘
//! ```
//!
//! That is the order of vLLM and TensorRT-LLM, *source first*. SGLang reserves before it computes, *destination first*:
//! requests arrive at the decode router; a granted reservation sends `Arrived` to the prefill router; the computed prompt
//! goes back as `PromptComputed` and `Fetch`, and from the transfer on both orders are alike.
//!
//! Blocks are reserved between two passes of the decode worker only; what arrives during a pass takes effect at its end.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::Worker;
use crate::config::scenario::{Backend, EngineOptions, KvTransfer, KvTransferTiming, Pool, Scenario};
use crate::engine::{HandOff, Reservation, TokenStamps};
use crate::report::record::Role;
use crate::serving::message::{
    LinkMessage, Parcel, RouterMessage, Serving, TransferOrder, WorkerId, WorkerMessage,
};
use crate::serving::order;
use crate::serving::recorder::HandoffStep;
use crate::simulation::{Address, Context, InvalidDuration, SimDuration};
use crate::workload::{RequestId, Workload};

/// Which side of a hand-off comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HandoffOrder {
    /// Compute the prompt, then look for blocks at the destination.
    SourceFirst,
    /// Set blocks aside at the destination, then compute the prompt.
    DestinationFirst,
}

impl HandoffOrder {
    /// The order of a deployment's engines.
    pub fn of(scenario: &Scenario) -> Self {
        match &scenario.deployment.decode {
            Some(Pool { engine: EngineOptions { backend: Backend::Sglang, .. }, .. }) => {
                Self::DestinationFirst
            }
            _ => Self::SourceFirst,
        }
    }
}

/// A worker's side of the hand-off protocol.
pub struct Handoff {
    order: HandoffOrder,
    /// The worker itself.
    me: Address<WorkerMessage>,
    /// Prefill: where computed prompts go. Decode: who tells the source that its blocks have been fetched.
    router: Address<RouterMessage>,
    transfer: Transfer,
    /// Where transfers share a link.
    link: Option<Address<LinkMessage>>,
    /// Has the prompt tokens of every request.
    workload: Arc<Workload>,
    block_size: u32,
    /// Came during a pass: blocks that arrived, and blocks to give up.
    arrived: Vec<(WorkerId, RequestId)>,
    to_release: Vec<(WorkerId, RequestId)>,
    granted: Vec<Reservation>,
    /// New blocks of each reservation whose prompt is being computed.
    new_blocks: FxHashMap<RequestId, u32>,
}

impl Handoff {
    /// A worker's side: `router` is the decode router of a prefill worker, the prefill router of a decode worker.
    pub fn new(
        order: HandoffOrder,
        me: Address<WorkerMessage>,
        router: Address<RouterMessage>,
        transfer: Transfer,
        link: Option<Address<LinkMessage>>,
        workload: Arc<Workload>,
        block_size: u32,
    ) -> Self {
        let (arrived, to_release, granted) = (Vec::new(), Vec::new(), Vec::new());
        let new_blocks = FxHashMap::default();
        Self {
            order,
            me,
            router,
            transfer,
            link,
            workload,
            block_size,
            arrived,
            to_release,
            granted,
            new_blocks,
        }
    }
}

/// How long KV blocks travel where transfers do not slow each other down.
#[derive(Clone, Copy, Debug)]
pub struct Transfer {
    settings: KvTransfer,
}

impl Transfer {
    /// Transfers as configured.
    pub fn new(settings: KvTransfer) -> Self {
        Self { settings }
    }

    /// Tokens that travel for a prompt of `tokens` tokens of which `missing_tokens` are not at the destination.
    pub fn tokens(&self, tokens: u32, missing_tokens: u32) -> u32 {
        match self.settings.timing {
            KvTransferTiming::FullPrompt => tokens,
            KvTransferTiming::DestinationMissing => missing_tokens,
        }
    }

    /// Time to move the KV of `moved` tokens.
    pub fn duration(&self, moved: u32) -> Result<SimDuration, InvalidDuration> {
        let KvTransfer { latency_ms, bandwidth_gbps, bytes_per_token, .. } = self.settings;
        match (bytes_per_token, bandwidth_gbps) {
            (Some(bytes), Some(bandwidth)) if bandwidth > 0.0 => {
                SimDuration::from_seconds(f64::from(moved) * bytes as f64 / (bandwidth * 1e9))
            }
            _ => SimDuration::from_ms(latency_ms),
        }
    }
}

impl Worker {
    /// Whether hand-offs wait for the end of the pass under way.
    pub(super) fn has_handoffs(&self) -> bool {
        self.handoff
            .as_ref()
            .is_some_and(|handoff| !handoff.arrived.is_empty() || !handoff.to_release.is_empty())
    }

    /// Calls on what the engine of a rank does beside its passes.
    fn hand_off(
        &mut self,
        rank: WorkerId,
        ctx: &mut Context<'_, Serving>,
        call: impl FnOnce(&mut dyn HandOff),
    ) {
        match self.engine(rank).hand_off() {
            Some(engine) => call(engine),
            None => ctx.fail(
                "the engine of this pool hands no prompts over, although it says that it serves such pools",
            ),
        }
    }

    /// Prefill: a prompt is computed; the decode router takes over, after everything else that ends at this instant.
    pub(super) fn pass_on(&mut self, rank: WorkerId, request: RequestId, ctx: &mut Context<'_, Serving>) {
        self.tell_router(RouterMessage::FirstToken(rank, request), ctx);
        if let Some(handoff) = &self.handoff {
            let now = ctx.now();
            ctx.record().handed_off(request, HandoffStep::SourceHeld, now);
            let message = match handoff.order {
                HandoffOrder::SourceFirst => RouterMessage::Arrived(request),
                HandoffOrder::DestinationFirst => RouterMessage::PromptComputed(request),
            };
            ctx.send_at(now, order::TRANSFER, handoff.router, message);
        }
    }

    /// Decode: a request was placed here; its prompt needs blocks first.
    pub(super) fn ask_for_blocks(
        &mut self,
        rank: WorkerId,
        request: RequestId,
        ctx: &mut Context<'_, Serving>,
    ) {
        self.hand_off(rank, ctx, |engine| engine.ask_for_reservation(request));
        if self.busy {
            self.cut(ctx);
        } else {
            self.grant_reservations(ctx);
        }
    }

    /// Decode: the blocks of a prompt are here.
    pub(super) fn kv_arrived(&mut self, rank: WorkerId, request: RequestId, ctx: &mut Context<'_, Serving>) {
        let Some(handoff) = &mut self.handoff else { return };
        ctx.send(handoff.router, RouterMessage::HandedOff(request));
        if self.busy {
            handoff.arrived.push((rank, request));
            self.cut(ctx);
        } else {
            self.activate(rank, request, ctx);
            // What has arrived can be found by those who wait for room.
            self.grant_reservations(ctx);
            ctx.wake_at(ctx.now(), order::PASS_START);
        }
    }

    fn activate(&mut self, rank: WorkerId, request: RequestId, ctx: &mut Context<'_, Serving>) {
        let now = ctx.now();
        ctx.record().handed_off(request, HandoffStep::DestinationActivated, now);
        self.hand_off(rank, ctx, |engine| engine.activate(request));
    }

    /// Prefill: a request can never run here; blocks that were set aside for it beforehand are not needed.
    pub(super) fn give_reservation_back(&self, request: RequestId, ctx: &mut Context<'_, Serving>) {
        if let Some(handoff) = &self.handoff
            && self.role == Role::Prefill
            && handoff.order == HandoffOrder::DestinationFirst
        {
            ctx.send(handoff.router, RouterMessage::HandedOff(request));
        }
    }

    /// The blocks of a prompt are not needed any more: fetched, or never to be filled.
    pub(super) fn release(&mut self, rank: WorkerId, request: RequestId, ctx: &mut Context<'_, Serving>) {
        let Some(handoff) = &mut self.handoff else { return };
        if self.busy {
            handoff.to_release.push((rank, request));
            self.cut(ctx);
            return;
        }
        self.give_up(rank, request, ctx);
        self.grant_reservations(ctx);
        if self.has_work() {
            ctx.wake_at(ctx.now(), order::PASS_START);
        }
    }

    fn give_up(&mut self, rank: WorkerId, request: RequestId, ctx: &mut Context<'_, Serving>) {
        let now = ctx.now();
        if self.role == Role::Prefill {
            ctx.record().handed_off(request, HandoffStep::SourceReleased, now);
        }
        self.hand_off(rank, ctx, |engine| engine.release_source(request));
        self.tell_router(RouterMessage::Ended(rank, request), ctx);
    }

    /// Carries out what came during the pass that has just ended, and grants what its end made possible.
    pub(super) fn settle_handoffs(&mut self, ctx: &mut Context<'_, Serving>) {
        let Some(handoff) = &mut self.handoff else { return };
        let (arrived, to_release) =
            (std::mem::take(&mut handoff.arrived), std::mem::take(&mut handoff.to_release));
        for &(rank, request) in &to_release {
            self.give_up(rank, request, ctx);
        }
        for &(rank, request) in &arrived {
            self.activate(rank, request, ctx);
        }
        self.grant_reservations(ctx);
    }

    fn grant_reservations(&mut self, ctx: &mut Context<'_, Serving>) {
        for rank in 0..self.ranks.len() {
            let id = self.id(rank);
            let Some(handoff) = &mut self.handoff else { return };
            let mut granted = std::mem::take(&mut handoff.granted);
            self.hand_off(id, ctx, |engine| engine.grant_reservations(&mut granted));
            for &reservation in &granted {
                match reservation {
                    Reservation::Granted { request, new_blocks } => {
                        self.reserved(id, request, new_blocks, ctx);
                    }
                    Reservation::Refused { request } => self.refuse(id, request, ctx),
                }
            }
            granted.clear();
            if let Some(handoff) = &mut self.handoff {
                handoff.granted = granted;
            }
        }
    }

    /// Blocks are set aside: fetch the prompt, or have it computed first.
    fn reserved(
        &mut self,
        rank: WorkerId,
        request: RequestId,
        new_blocks: u32,
        ctx: &mut Context<'_, Serving>,
    ) {
        let now = ctx.now();
        ctx.record().handed_off(request, HandoffStep::DestinationReserved, now);
        match &mut self.handoff {
            Some(handoff) if handoff.order == HandoffOrder::DestinationFirst => {
                handoff.new_blocks.insert(request, new_blocks);
                ctx.send_at(now, order::TRANSFER, handoff.router, RouterMessage::Arrived(request));
            }
            _ => self.fetch(rank, request, new_blocks, ctx),
        }
    }

    /// Decode: a prompt for which blocks were set aside is computed.
    pub(super) fn fetch_computed(
        &mut self,
        rank: WorkerId,
        request: RequestId,
        ctx: &mut Context<'_, Serving>,
    ) {
        let new_blocks = self.handoff.as_mut().and_then(|handoff| handoff.new_blocks.remove(&request));
        if let Some(new_blocks) = new_blocks {
            self.fetch(rank, request, new_blocks, ctx);
        }
    }

    /// Starts the transfer of a prompt into reserved blocks.
    fn fetch(&mut self, rank: WorkerId, request: RequestId, new_blocks: u32, ctx: &mut Context<'_, Serving>) {
        let Some(handoff) = &self.handoff else { return };
        let now = ctx.now();
        let prompt = handoff.workload.requests[request.0 as usize].input_length;
        let tokens = handoff.transfer.tokens(prompt, new_blocks.saturating_mul(handoff.block_size));
        if let Some(link) = handoff.link {
            let order = TransferOrder { to: handoff.me, rank, request, tokens };
            let parcel = ctx.pack(Parcel::Transfer(order));
            ctx.send(link, LinkMessage::Start(parcel));
            return;
        }
        match handoff.transfer.duration(tokens) {
            Ok(duration) => {
                ctx.send_at(
                    now + duration,
                    order::TRANSFER,
                    handoff.me,
                    WorkerMessage::KvArrived(rank, request),
                );
            }
            Err(error) => ctx.fail(format!("a KV transfer takes an impossible time: {error}")),
        }
    }

    /// Ends a request that can never run here.
    fn refuse(&mut self, rank: WorkerId, request: RequestId, ctx: &mut Context<'_, Serving>) {
        let now = ctx.now();
        ctx.record().rejected(request, TokenStamps::default(), now);
        self.tell_planner(request, false, TokenStamps::default(), ctx);
        if let Some(handoff) = &self.handoff
            && handoff.order == HandoffOrder::SourceFirst
        {
            ctx.send(handoff.router, RouterMessage::HandedOff(request));
        }
        self.tell_ended(rank, request, ctx);
    }
}
