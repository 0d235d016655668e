//! At most one pending wake per actor, re-armable.

use std::cmp::Reverse;

use priority_queue::PriorityQueue;
use rustc_hash::FxBuildHasher;

use super::actor::ActorId;
use super::agenda::{Class, EventKey};
use super::time::SimTime;

/// The pending wakes of a run. Ties are broken by the actor's number, so the order is total and the hasher of the
/// underlying queue cannot show.
pub(super) struct WakeTable {
    queue: PriorityQueue<u32, Reverse<EventKey>, FxBuildHasher>,
}

impl WakeTable {
    pub(super) fn new() -> Self {
        Self { queue: PriorityQueue::with_default_hasher() }
    }

    /// Arms the wake of `actor`, replacing the one that was pending.
    pub(super) fn set(&mut self, actor: ActorId, time: SimTime, class: Class) {
        self.queue.push(actor.0, Reverse(EventKey::new(time, class, u64::from(actor.0))));
    }

    pub(super) fn cancel(&mut self, actor: ActorId) {
        self.queue.remove(&actor.0);
    }

    pub(super) fn next_key(&self) -> Option<EventKey> {
        self.queue.peek().map(|(_, Reverse(key))| *key)
    }

    pub(super) fn pop(&mut self) -> Option<ActorId> {
        self.queue.pop().map(|(actor, _)| ActorId(actor))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_wake_replaces_the_old_one_and_ties_go_to_the_lowest_actor() {
        let mut wakes = WakeTable::new();
        wakes.set(ActorId(2), SimTime::from_ns(5), Class(0));
        wakes.set(ActorId(1), SimTime::from_ns(5), Class(0));
        wakes.set(ActorId(0), SimTime::from_ns(1), Class(0));
        wakes.set(ActorId(0), SimTime::from_ns(5), Class(1));
        wakes.set(ActorId(3), SimTime::from_ns(2), Class(0));
        wakes.cancel(ActorId(3));
        let order: Vec<_> = std::iter::from_fn(|| wakes.pop()).collect();
        assert_eq!(order, [ActorId(1), ActorId(2), ActorId(0)]);
    }
}
