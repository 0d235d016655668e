//! Prompts that are computed on one engine and continued on another.

use spica::workload::{Request, RequestId};

use super::Engine;
use crate::slow::engine::{Reservation, Shared};

impl Engine<'_> {
    /// Gives up the blocks of a prompt that was fetched, or will never be.
    pub(in crate::slow) fn release_source(&mut self, request: RequestId) {
        self.release_blocks(request);
        self.sequences[request.0 as usize] = None;
    }

    /// Queues for blocks on this engine.
    pub(in crate::slow) fn ask(&mut self, id: RequestId, request: &Request) {
        self.sequences[id.0 as usize] = Some(self.sequence_of(request));
        self.reservations.push_back(id);
    }

    /// Serves the head of those who ask; `None` when there is none or it has to wait.
    pub(in crate::slow) fn reserve(&mut self, shared: &mut Shared<'_>) -> Option<(RequestId, Reservation)> {
        let &request = self.reservations.front()?;
        if self.can_never_run(request) {
            self.reservations.pop_front();
            self.sequences[request.0 as usize] = None;
            return Some((request, Reservation::Rejected));
        }
        let most = self.options.max_num_seqs.map_or(usize::MAX, |most| most as usize);
        let prompt = self.sequence(request).prompt;
        let hits = self.found_blocks(request, prompt, shared);
        if self.running.len() >= most || !self.fits(request, &hits) {
            return None;
        }
        self.reservations.pop_front();
        let found = hits.len();
        let evictions_before = self.pool.evictions();
        self.hold(request, hits);
        self.take_blocks(request, prompt);
        self.publish(request, found as u32 * self.options.block_size, prompt, shared);
        self.sequence_mut(request).computed = prompt;
        let missing_blocks = (self.blocks_for(prompt) - found) as u32;
        let evictions = self.pool.evictions() - evictions_before;
        Some((request, Reservation::Granted { missing_blocks, evictions }))
    }

    /// The content of a request's blocks has arrived: it may go on.
    pub(in crate::slow) fn activate(&mut self, request: RequestId) {
        self.sequence_mut(request).activated = true;
        self.waiting.push_back(request);
    }
}
