//! The link between a prefill and a decode pool, where transfers share its bandwidth.
//!
//! - *Receives* the start of transfers.
//! - *Sends* their end to the decode worker that fetches.
//! - *Keeps* the transfers under way with what is left of each.
//! - *Invariants*: what arrives in any span of time is at most the bandwidth times the span; every transfer ends.
//!
//! Fair sharing gives all transfers under way equal parts; first in, first out serves them one after the other. The
//! reference lets every transfer have the full bandwidth, and needs no link.

use std::collections::VecDeque;

use super::message::{LinkMessage, Parcel, Serving, TransferOrder, WorkerMessage};
use super::order;
use crate::config::scenario::LinkSharing;
use crate::simulation::{Actor, Context, SimDuration, SimTime};

/// A link with a bandwidth that transfers share.
pub struct Link {
    sharing: LinkSharing,
    bytes_per_ns: f64,
    bytes_per_token: f64,
    /// In the order of starting.
    transfers: VecDeque<Transfer>,
    /// Up to when the progress of `transfers` has been worked out.
    settled: SimTime,
}

struct Transfer {
    order: TransferOrder,
    bytes_left: f64,
}

impl Link {
    /// A link of `bandwidth_gbps` times 1e9 bytes per second.
    pub fn new(sharing: LinkSharing, bandwidth_gbps: f64, bytes_per_token: u64) -> Self {
        Self {
            sharing,
            bytes_per_ns: bandwidth_gbps,
            bytes_per_token: bytes_per_token as f64,
            transfers: VecDeque::new(),
            settled: SimTime::ZERO,
        }
    }

    /// Bytes per nanosecond of each transfer that makes progress, and how many do.
    fn progress(&self) -> (f64, usize) {
        let moving = match self.sharing {
            LinkSharing::Fair => self.transfers.len(),
            LinkSharing::None | LinkSharing::Fifo => self.transfers.len().min(1),
        };
        (self.bytes_per_ns / moving.max(1) as f64, moving)
    }

    /// Works out what has moved since the last event.
    fn settle(&mut self, now: SimTime) {
        let (rate, moving) = self.progress();
        let moved = rate * now.since(self.settled).as_ns() as f64;
        for transfer in self.transfers.iter_mut().take(moving) {
            transfer.bytes_left -= moved;
        }
        self.settled = now;
    }

    /// Time until the next transfer ends.
    fn next_end(&self) -> Option<SimDuration> {
        let (rate, moving) = self.progress();
        let least =
            self.transfers.iter().take(moving).map(|transfer| transfer.bytes_left).reduce(f64::min)?;
        Some(SimDuration::from_ns((least / rate).max(0.0).round_ties_even() as u64))
    }

    /// Ends what is through, to within the bytes that pass in a nanosecond, and arms the wake for the next.
    fn deliver(&mut self, ctx: &mut Context<'_, Serving>) {
        let (rate, moving) = self.progress();
        for index in (0..moving).rev() {
            if self.transfers[index].bytes_left <= rate
                && let Some(transfer) = self.transfers.remove(index)
            {
                let TransferOrder { to, rank, request, .. } = transfer.order;
                ctx.send(to, WorkerMessage::KvArrived(rank, request));
            }
        }
        match self.next_end() {
            Some(wait) => ctx.wake_at(ctx.now() + wait, order::TRANSFER),
            None => ctx.cancel_wake(),
        }
    }
}

impl Actor<Serving> for Link {
    type Inbox = LinkMessage;

    fn receive(&mut self, LinkMessage::Start(parcel): LinkMessage, ctx: &mut Context<'_, Serving>) {
        let Parcel::Transfer(order) = ctx.open(parcel) else { return };
        self.settle(ctx.now());
        let bytes_left = f64::from(order.tokens) * self.bytes_per_token;
        self.transfers.push_back(Transfer { order, bytes_left });
        if let Some(wait) = self.next_end() {
            ctx.wake_at(ctx.now() + wait, order::TRANSFER);
        }
    }

    fn wake(&mut self, ctx: &mut Context<'_, Serving>) {
        self.settle(ctx.now());
        self.deliver(ctx);
    }

    fn waiting_for(&self) -> Option<String> {
        (!self.transfers.is_empty()).then(|| format!("{} transfers under way", self.transfers.len()))
    }
}
