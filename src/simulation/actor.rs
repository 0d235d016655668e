//! Actors, their addresses and the vocabulary they share.

use std::fmt;
use std::marker::PhantomData;

use super::context::Context;

/// The vocabulary of one domain.
pub trait Protocol: Sized + 'static {
    /// Everything that may pass between actors: a closed, small enum. Big things live in arenas and travel by number.
    type Message: Copy + fmt::Debug + Send;
    /// What is too large to be copied from hop to hop: it waits in the run while its [`ParcelId`] travels in a message.
    type Parcel: Send;
    /// What actors write observations into; it takes no part in the simulation.
    type Record: Send;
}

/// Something that receives messages and wakes.
pub trait Actor<P: Protocol>: Send {
    /// The slice of the protocol's messages that this actor understands.
    type Inbox: TryFrom<P::Message>;

    /// Called once, at time zero, before any event.
    fn start(&mut self, _ctx: &mut Context<'_, P>) {}

    /// Takes a message.
    fn receive(&mut self, message: Self::Inbox, ctx: &mut Context<'_, P>);

    /// The pending wake has come.
    fn wake(&mut self, _ctx: &mut Context<'_, P>) {}

    /// Called once, after the last event.
    fn finish(&mut self, _ctx: &mut Context<'_, P>) {}

    /// What this actor still waits for, if it has work left: the raw material of a stall's diagnosis.
    fn waiting_for(&self) -> Option<String> {
        None
    }
}

/// Dense number of an actor, in the order of reservation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ActorId(pub(super) u32);

/// Number of a parcel that waits to be opened, once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub struct ParcelId(pub(super) u32);

/// Where to send messages of type `I`. A wrong message does not compile.
pub struct Address<I> {
    pub(super) actor: ActorId,
    inbox: PhantomData<fn(I)>,
}

impl<I> Address<I> {
    pub(super) fn new(actor: ActorId) -> Self {
        Self { actor, inbox: PhantomData }
    }

    /// The actor behind this address.
    pub fn actor(self) -> ActorId {
        self.actor
    }
}

impl<I> Clone for Address<I> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<I> Copy for Address<I> {}

impl<I> serde::Serialize for Address<I> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u32(self.actor.0)
    }
}

impl<I> fmt::Debug for Address<I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Address({})", self.actor.0)
    }
}

/// An actor with its inbox type forgotten, as the engine stores it.
pub(super) trait ErasedActor<P: Protocol>: Send {
    fn start(&mut self, ctx: &mut Context<'_, P>);
    fn receive(&mut self, message: P::Message, ctx: &mut Context<'_, P>);
    fn wake(&mut self, ctx: &mut Context<'_, P>);
    fn finish(&mut self, ctx: &mut Context<'_, P>);
    fn waiting_for(&self) -> Option<String>;
}

impl<P: Protocol, A: Actor<P>> ErasedActor<P> for A {
    fn start(&mut self, ctx: &mut Context<'_, P>) {
        Actor::start(self, ctx);
    }

    fn receive(&mut self, message: P::Message, ctx: &mut Context<'_, P>) {
        match A::Inbox::try_from(message) {
            Ok(message) => Actor::receive(self, message, ctx),
            Err(_) => unreachable!("an address admits only messages of its actor's inbox: {message:?}"),
        }
    }

    fn wake(&mut self, ctx: &mut Context<'_, P>) {
        Actor::wake(self, ctx);
    }

    fn finish(&mut self, ctx: &mut Context<'_, P>) {
        Actor::finish(self, ctx);
    }

    fn waiting_for(&self) -> Option<String> {
        Actor::waiting_for(self)
    }
}
