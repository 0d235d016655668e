//! Timed messages in the order in which they are due.

use std::cmp::Ordering;

use dary_heap::QuaternaryHeap;

use super::actor::ActorId;
use super::time::SimTime;

/// What comes first at one instant: lower classes before higher ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Class(pub u8);

/// Packed `(time, class, tie)`, so that one comparison decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct EventKey(u128);

impl EventKey {
    const TIE_BITS: u32 = 56;

    pub(super) fn new(time: SimTime, class: Class, tie: u64) -> Self {
        debug_assert!(tie < 1 << Self::TIE_BITS, "2^56 events are more than any run has");
        Self(u128::from(time.as_ns()) << 64 | u128::from(class.0) << Self::TIE_BITS | u128::from(tie))
    }

    pub(super) fn time(self) -> SimTime {
        SimTime::from_ns((self.0 >> 64) as u64)
    }

    /// Time and class without the tie.
    pub(super) fn moment(self) -> u128 {
        self.0 >> Self::TIE_BITS
    }
}

/// A message that waits for its time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry<M> {
    pub(super) key: EventKey,
    pub(super) to: ActorId,
    pub(super) message: M,
}

impl<M> PartialEq for Entry<M> {
    fn eq(&self, other: &Self) -> bool {
        self.key == other.key
    }
}

impl<M> Eq for Entry<M> {}

impl<M> PartialOrd for Entry<M> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<M> Ord for Entry<M> {
    fn cmp(&self, other: &Self) -> Ordering {
        // The heap is a maximum heap; the earliest entry has to be its greatest.
        other.key.cmp(&self.key)
    }
}

/// The timed messages of a run: a 4-ary heap with the payload inline.
#[derive(Debug)]
pub(super) struct Agenda<M> {
    heap: QuaternaryHeap<Entry<M>>,
    sequence: u64,
}

impl<M: Copy> Agenda<M> {
    pub(super) fn new() -> Self {
        Self { heap: QuaternaryHeap::new(), sequence: 0 }
    }

    pub(super) fn push(&mut self, time: SimTime, class: Class, to: ActorId, message: M) {
        let key = EventKey::new(time, class, self.sequence);
        self.sequence += 1;
        self.heap.push(Entry { key, to, message });
    }

    pub(super) fn next_key(&self) -> Option<EventKey> {
        self.heap.peek().map(|entry| entry.key)
    }

    pub(super) fn pop(&mut self) -> Option<Entry<M>> {
        self.heap.pop()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn pops_by_time_then_class_then_sending(events in prop::collection::vec((0_u64..5, 0_u8..4), 0..60)) {
            let mut agenda = Agenda::new();
            let mut expected = Vec::new();
            for (number, &(time, class)) in events.iter().enumerate() {
                agenda.push(SimTime::from_ns(time), Class(class), ActorId(0), number);
                expected.push((time, class, number));
            }
            expected.sort_unstable();
            let popped: Vec<_> = std::iter::from_fn(|| agenda.pop()).map(|entry| entry.message).collect();
            prop_assert_eq!(popped, expected.into_iter().map(|(.., number)| number).collect::<Vec<_>>());
        }
    }
}
