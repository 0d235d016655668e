//! Which workers a router sends requests to, and under which dense numbers it keeps what it knows of them.
//!
//! Worker ids are never used again, so a table by id would grow with every worker that ever was. A rank has a *slot* instead,
//! which the next newcomer takes when the rank is gone. In a fleet that never changes slots and ids are the same.

use super::WorkerView;
use crate::serving::message::WorkerId;

/// The ranks behind a router.
#[derive(Debug)]
pub(super) struct Members {
    /// One for each slot. The load is always up to date; what concerns one request is filled in when it is looked at.
    pub(super) views: Vec<WorkerView>,
    /// What each slot is used for.
    uses: Vec<Use>,
    /// Slot of each rank by its id; stale for those that are gone.
    slots: Vec<u32>,
    /// Every slot takes requests, and slots are in the order of ids.
    is_plain: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    Serving,
    Leaving,
    Free,
}

/// Of ranks that never came.
const NO_SLOT: u32 = u32::MAX;

impl Members {
    /// Ranks of a pool whose workers have `dp_size` each, all taking requests.
    pub(super) fn new(ranks: u32, dp_size: u32) -> Self {
        let view = |id| WorkerView { rank: id % dp_size, ..WorkerView::idle(WorkerId(id)) };
        Self {
            views: (0..ranks).map(view).collect(),
            uses: vec![Use::Serving; ranks as usize],
            slots: (0..ranks).collect(),
            is_plain: true,
        }
    }

    pub(super) fn slot(&self, rank: WorkerId) -> usize {
        self.slots[rank.0 as usize] as usize
    }

    /// Whether all views are of ranks that take requests, by ascending id.
    pub(super) fn is_plain(&self) -> bool {
        self.is_plain
    }

    pub(super) fn takes_requests(&self, slot: usize) -> bool {
        self.uses.get(slot) == Some(&Use::Serving)
    }

    /// The views of ranks that take requests, those of one place in their worker if `rank` says so.
    pub(super) fn eligible(&self, rank: Option<u32>) -> impl Iterator<Item = &WorkerView> {
        let serving = self.views.iter().zip(&self.uses).filter(|(_, state)| **state == Use::Serving);
        serving.map(|(view, _)| view).filter(move |view| rank.is_none_or(|rank| rank == view.rank))
    }

    /// Gives a newcomer a slot.
    pub(super) fn join(&mut self, rank: WorkerId, place: u32) -> usize {
        // Ranks come in the order of their numbers, but some never come.
        debug_assert!(self.slots.len() <= rank.0 as usize, "ranks are numbered in order");
        self.slots.resize(rank.0 as usize, NO_SLOT);
        let view = WorkerView { rank: place, ..WorkerView::idle(rank) };
        let free = self.uses.iter().position(|&state| state == Use::Free);
        let slot = free.unwrap_or(self.views.len());
        if free.is_none() {
            self.views.push(view);
            self.uses.push(Use::Serving);
        }
        (self.views[slot], self.uses[slot]) = (view, Use::Serving);
        self.slots.push(slot as u32);
        self.look_again();
        slot
    }

    /// The rank takes no more requests.
    pub(super) fn stop(&mut self, rank: WorkerId) {
        let slot = self.slot(rank);
        self.uses[slot] = Use::Leaving;
        self.look_again();
    }

    /// The rank is gone.
    pub(super) fn leave(&mut self, rank: WorkerId) -> usize {
        let slot = self.slot(rank);
        self.uses[slot] = Use::Free;
        slot
    }

    fn look_again(&mut self) {
        self.is_plain = self.uses.iter().all(|&state| state == Use::Serving)
            && self.views.is_sorted_by_key(|view| view.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_used_again_and_ids_are_not() {
        let mut members = Members::new(3, 1);
        assert!(members.is_plain());
        members.stop(WorkerId(1));
        assert!(!members.is_plain());
        let ids = |members: &Members| members.eligible(None).map(|view| view.id.0).collect::<Vec<_>>();
        assert_eq!(ids(&members), [0, 2]);
        assert_eq!(members.join(WorkerId(3), 0), 3, "a rank that is leaving keeps its slot");
        assert_eq!(members.leave(WorkerId(1)), 1);
        assert_eq!(members.join(WorkerId(4), 0), 1);
        assert_eq!((members.slot(WorkerId(4)), members.slot(WorkerId(3))), (1, 3));
        assert!(!members.is_plain(), "ids are not in order");
        assert_eq!(ids(&members), [0, 4, 2, 3]);
        assert_eq!(members.join(WorkerId(7), 0), 4, "two were cancelled before they came");
        assert_eq!(
            (members.slot(WorkerId(7)), members.takes_requests(members.slot(WorkerId(5)))),
            (4, false)
        );
    }

    #[test]
    fn ranks_have_a_place_in_their_worker() {
        let mut members = Members::new(4, 2);
        members.join(WorkerId(4), 0);
        members.join(WorkerId(5), 1);
        assert!(members.is_plain());
        assert_eq!(members.eligible(Some(1)).map(|view| view.id.0).collect::<Vec<_>>(), [1, 3, 5]);
    }
}
