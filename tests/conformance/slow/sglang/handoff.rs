//! Prompts that are computed on one engine and continued on another, for which pages are set aside beforehand.

use spica::workload::{Request, RequestId};

use super::Engine;
use crate::slow::engine::{Reservation, Shared};

impl Engine<'_> {
    /// Gives up the pages of a prompt that was fetched, or those set aside for one that will never come.
    pub(in crate::slow) fn release_source(&mut self, request: RequestId, shared: &mut Shared<'_>) {
        let computed = self.sequence(request).computed;
        self.release(request, computed, shared);
        self.reserved.retain(|&other| other != request);
        self.sequences[request.0 as usize] = None;
    }

    /// Queues for pages on this engine.
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
        if self.running.len() >= self.most_running() {
            return None;
        }
        let prompt = self.sequence(request).prompt;
        let mut found = self.path(request, prompt, shared);
        found.truncate(self.tree.found(&found));
        self.tree.access(&found);
        let unheld = self.tree.unheld(&found) as u64;
        let missing = self.pages_for(prompt) - found.len();
        let charge = (missing as u64 + unheld) * self.page() + self.promise(request);
        if charge as f64 >= self.room() {
            return None;
        }
        self.reservations.pop_front();
        let evictions_before = self.tree.evictions();
        self.sequence_mut(request).hold = self.tree.hold(&found);
        assert!(self.grow(request, prompt), "there is room for what is charged");
        self.reserved.push(request);
        let evictions = self.tree.evictions() - evictions_before;
        Some((request, Reservation::Granted { missing_blocks: missing as u32, evictions }))
    }

    /// The content of a request's pages has arrived: others find it too, and it may go on.
    pub(in crate::slow) fn activate(&mut self, request: RequestId, shared: &mut Shared<'_>) {
        let prompt = self.sequence(request).prompt;
        let path = self.path(request, prompt, shared);
        let sequence = self.sequence_mut(request);
        sequence.computed = prompt;
        let mut hold = std::mem::take(&mut sequence.hold);
        self.tree.insert(&mut hold, &path);
        self.sequence_mut(request).hold = hold;
        self.reserved.retain(|&other| other != request);
        self.waiting.push_back(request);
    }
}
