//! The waiting queue of a paged scheduler, with a running tally of who is in it.

use std::collections::VecDeque;
use std::ops::Index;

use super::metrics::Tally;
use super::sequence::Sequence;

/// Sequences in line.
#[derive(Debug, Default)]
pub(super) struct WaitingQueue {
    sequences: VecDeque<Sequence>,
    fresh: Tally,
    back: Tally,
}

impl WaitingQueue {
    pub(super) fn push_back(&mut self, sequence: Sequence) {
        self.tally(&sequence).add(sequence.known());
        self.sequences.push_back(sequence);
    }

    pub(super) fn push_front(&mut self, sequence: Sequence) {
        self.tally(&sequence).add(sequence.known());
        self.sequences.push_front(sequence);
    }

    pub(super) fn pop_front(&mut self) -> Option<Sequence> {
        self.remove(0)
    }

    pub(super) fn remove(&mut self, position: usize) -> Option<Sequence> {
        let sequence = self.sequences.remove(position)?;
        self.tally(&sequence).remove(sequence.known());
        Some(sequence)
    }

    pub(super) fn front(&self) -> Option<&Sequence> {
        self.sequences.front()
    }

    pub(super) fn iter(&self) -> std::collections::vec_deque::Iter<'_, Sequence> {
        self.sequences.iter()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.sequences.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.sequences.len()
    }

    /// Those that have never been in a batch.
    pub(super) fn fresh(&self) -> Tally {
        self.fresh
    }

    /// Those that were in a batch, here or elsewhere.
    pub(super) fn back(&self) -> Tally {
        self.back
    }

    fn tally(&mut self, sequence: &Sequence) -> &mut Tally {
        if sequence.was_in_a_batch { &mut self.back } else { &mut self.fresh }
    }
}

impl Index<usize> for WaitingQueue {
    type Output = Sequence;

    fn index(&self, position: usize) -> &Sequence {
        &self.sequences[position]
    }
}

impl<'a> IntoIterator for &'a WaitingQueue {
    type Item = &'a Sequence;
    type IntoIter = std::collections::vec_deque::Iter<'a, Sequence>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}
