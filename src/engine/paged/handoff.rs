//! Prompts computed on one engine and continued on another.
//!
//! Source side: a computed prompt keeps its blocks until they have been fetched, but not its place in the batch.
//! Destination side: blocks are set aside strictly in the order of asking, between passes, and only while there is a
//! place in the batch; requests that are reserved but not active do not count there. When the content has arrived the request
//! joins the waiting queue with its prompt computed.

use super::{PagedEngine, Reservation, Rules};
use crate::engine::kv::Generated;
use crate::workload::RequestId;

impl<R: Rules> PagedEngine<R> {
    pub(super) fn let_source_go(&mut self, request: RequestId) {
        if let Some(mut sequence) = self.sources.remove(&request) {
            self.kv.release(&mut sequence.hold, sequence.computed, Generated::Forgotten);
            self.head_blocked = false;
        }
    }

    /// Grants or refuses the next request in line; `None` when it has to wait.
    pub(super) fn grant_next(&mut self) -> Option<Reservation> {
        let &request = self.asking.front()?;
        let mut sequence = self.new_sequence(request);
        if self.can_never_run(&sequence) {
            self.asking.pop_front();
            self.kv.is_served(request);
            return Some(Reservation::Refused { request });
        }
        if self.running.len() >= self.limits.max_num_seqs {
            return None;
        }
        let block_size = self.kv.block_size();
        self.inputs.tree.path(request, &mut self.path);
        let found = self.kv.look_up(&self.path, sequence.prompt / block_size);
        if !self.has_room(&sequence, found) {
            return None;
        }
        self.asking.pop_front();
        self.kv.is_served(request);
        sequence.hold = self.kv.take_match();
        sequence.computed = sequence.prompt;
        let grown = self.kv.grow(&mut sequence.hold, sequence.prompt);
        assert!(grown, "the blocks were found to be available");
        self.kv.publish_prompt(&mut sequence.hold, &self.path, sequence.prompt);
        self.head_blocked = false;
        let new_blocks = sequence.prompt.div_ceil(block_size) - found.blocks;
        self.reserved.insert(request, sequence);
        Some(Reservation::Granted { request, new_blocks })
    }

    pub(super) fn activate_reserved(&mut self, request: RequestId) {
        if let Some(mut sequence) = self.reserved.remove(&request) {
            sequence.was_in_a_batch = true;
            self.waiting.push_back(sequence);
            self.head_blocked = false;
        }
    }
}
