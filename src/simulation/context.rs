//! What an actor may do while it handles an event.

use std::collections::VecDeque;

use super::actor::{Actor, ActorId, Address, ErasedActor, ParcelId, Protocol};
use super::agenda::{Agenda, Class, EventKey};
use super::parcels::Parcels;
use super::random::{ActorRng, stream};
use super::time::SimTime;
use super::wake_table::WakeTable;

/// Everything of a run except the actors, so that one actor and the rest can be borrowed side by side.
pub(super) struct Core<P: Protocol> {
    pub(super) now: SimTime,
    pub(super) agenda: Agenda<P::Message>,
    pub(super) wakes: WakeTable,
    /// Messages of the present instant, first in first out.
    pub(super) lane: VecDeque<(ActorId, P::Message)>,
    pub(super) parcels: Parcels<P::Parcel>,
    /// Actors that join the run after the event in hand.
    pub(super) newcomers: Vec<(ActorId, Box<dyn ErasedActor<P>>)>,
    pub(super) record: P::Record,
    pub(super) seed: u64,
    pub(super) paths: Vec<String>,
    pub(super) streams: Vec<Option<Box<ActorRng>>>,
    /// Who cannot go on, and why; without a reason it is the clock that ends.
    pub(super) failure: Option<(ActorId, Option<String>)>,
    /// The latest place in the order of wakes that the run has reached; scheduled events may fall back behind it within an
    /// instant.
    pub(super) latest_wake: Option<EventKey>,
}

impl<P: Protocol> Core<P> {
    pub(super) fn new(seed: u64, record: P::Record) -> Self {
        Self {
            now: SimTime::ZERO,
            agenda: Agenda::new(),
            wakes: WakeTable::new(),
            lane: VecDeque::new(),
            parcels: Parcels::new(),
            newcomers: Vec::new(),
            record,
            seed,
            paths: Vec::new(),
            streams: Vec::new(),
            failure: None,
            latest_wake: None,
        }
    }

    /// Sets an address aside.
    pub(super) fn reserve<I>(&mut self, path: String) -> Address<I> {
        debug_assert!(!self.paths.contains(&path), "the path {path} is taken");
        let id = ActorId(self.paths.len() as u32);
        self.paths.push(path);
        self.streams.push(None);
        Address::new(id)
    }
}

/// The world as one actor sees it while it handles an event.
pub struct Context<'a, P: Protocol> {
    pub(super) core: &'a mut Core<P>,
    pub(super) me: ActorId,
}

impl<P: Protocol> Context<'_, P> {
    /// The present time.
    pub fn now(&self) -> SimTime {
        self.core.now
    }

    /// The actor that handles the event.
    pub fn me(&self) -> ActorId {
        self.me
    }

    /// The path under which this actor was reserved.
    pub fn path(&self) -> &str {
        &self.core.paths[self.me.0 as usize]
    }

    /// Sends a message within the present instant, ahead of everything that is scheduled.
    pub fn send<I: Into<P::Message>>(&mut self, to: Address<I>, message: I) {
        self.core.lane.push_back((to.actor, message.into()));
    }

    /// Schedules a message. At the present time it still comes after everything in the lane and before later classes.
    ///
    /// # Panics
    /// If `time` lies before [`Context::now`]; the past is settled.
    pub fn send_at<I: Into<P::Message>>(&mut self, time: SimTime, class: Class, to: Address<I>, message: I) {
        assert!(time >= self.core.now, "{} sends into the past: {time} at {}", self.path(), self.core.now);
        if time == SimTime::MAX {
            self.end_clock();
        }
        self.core.agenda.push(time, class, to.actor, message.into());
    }

    /// Re-arms this actor's only wake; an earlier plan is forgotten.
    ///
    /// # Panics
    /// If `time` lies before [`Context::now`]; the past is settled.
    pub fn wake_at(&mut self, time: SimTime, class: Class) {
        assert!(time >= self.core.now, "{} wakes in the past: {time} at {}", self.path(), self.core.now);
        if time == SimTime::MAX {
            self.end_clock();
        }
        self.core.wakes.set(self.me, time, class);
    }

    /// Whether a wake of this actor, of this class and at the present time, would have come already: for actors that work
    /// ahead of the clock and have to tell what had begun.
    pub fn is_past(&self, class: Class) -> bool {
        let wake = EventKey::new(self.core.now, class, u64::from(self.me.0));
        self.core.latest_wake.is_some_and(|latest| latest >= wake)
    }

    /// Forgets this actor's pending wake.
    pub fn cancel_wake(&mut self) {
        self.core.wakes.cancel(self.me);
    }

    /// Sets an address aside for an actor that joins a run under way.
    ///
    /// # Panics
    /// In debug builds, if the path is taken.
    pub fn reserve<I>(&mut self, path: impl Into<String>) -> Address<I> {
        self.core.reserve(path.into())
    }

    /// Lets an actor join the run at an address reserved during it: [`Actor::start`] is called after the event in hand,
    /// before any message reaches it.
    pub fn install<A: Actor<P> + 'static>(&mut self, address: Address<A::Inbox>, actor: A) {
        self.core.newcomers.push((address.actor, Box::new(actor)));
    }

    /// Leaves something for whoever gets its number; it has to be [opened](Context::open) once.
    pub fn pack(&mut self, parcel: P::Parcel) -> ParcelId {
        self.core.parcels.pack(parcel)
    }

    /// Takes a parcel.
    ///
    /// # Panics
    /// If it was opened before.
    pub fn open(&mut self, parcel: ParcelId) -> P::Parcel {
        self.core.parcels.open(parcel)
    }

    /// This actor's own random stream.
    pub fn rng(&mut self) -> &mut ActorRng {
        let Core { streams, seed, paths, .. } = &mut *self.core;
        let index = self.me.0 as usize;
        streams[index].get_or_insert_with(|| Box::new(stream(*seed, &paths[index])))
    }

    /// Where observations go. Nothing in the simulation may read it back.
    pub fn record(&mut self) -> &mut P::Record {
        &mut self.core.record
    }

    /// Stops the run with an error, after this event.
    pub fn fail(&mut self, reason: impl Into<String>) {
        let reason = Some(reason.into());
        if self.core.failure.is_none() {
            self.core.failure = Some((self.me, reason));
        }
    }

    /// No clock goes on from here.
    fn end_clock(&mut self) {
        if self.core.failure.is_none() {
            self.core.failure = Some((self.me, None));
        }
    }
}
