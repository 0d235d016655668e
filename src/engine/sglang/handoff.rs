//! Prompts computed on one engine and continued on another.
//!
//! SGLang sets the destination's pages aside before the prompt is computed anywhere, so a reservation may be held for long. It
//! is granted by the rule of admission, strictly in the order of asking and while there is a place in the batch. Content
//! that is on its way is not in the cache yet: it is inserted when it has arrived.

use super::admission::Blocked;
use super::{Reservation, SglangEngine};
use crate::workload::RequestId;

impl SglangEngine {
    /// Gives up the pages of a prompt that has been fetched, or a reservation that is not needed after all.
    pub(super) fn let_go(&mut self, request: RequestId) {
        if let Some(mut sequence) = self.sources.remove(&request) {
            let computed = sequence.computed;
            self.release(&mut sequence, computed);
        } else if let Some(mut sequence) = self.reserved.remove(&request) {
            self.release(&mut sequence, 0);
        } else {
            self.asking.retain(|&asks| asks != request);
        }
    }

    /// Grants or refuses the next request in line; `None` when it has to wait.
    pub(super) fn grant_next(&mut self) -> Option<Reservation> {
        self.asking_blocked = None;
        let &request = self.asking.front()?;
        let mut sequence = self.new_sequence(request);
        if self.can_never_run(&sequence) {
            self.asking.pop_front();
            return Some(Reservation::Refused { request });
        }
        if self.running.len() >= self.limits.max_num_seqs {
            return None;
        }
        self.find_path(request);
        let found = self.cache.look_up(&self.path, sequence.prompt / self.page_size);
        self.cache.access(&self.path, found.pages);
        let pages = sequence.prompt.div_ceil(self.page_size);
        let new_blocks = pages - found.pages;
        let charge = self.tokens(new_blocks) + u64::from(self.promise(&sequence));
        let asks = Blocked { charge, unheld_pages: found.unheld, page_size: self.page_size };
        if !asks.fits(self.room(self.promised())) {
            self.asking_blocked = Some(asks);
            return None;
        }
        self.asking.pop_front();
        sequence.hold = self.cache.enter(&self.path, found.pages);
        let grown = self.cache.grow(&mut sequence.hold, pages);
        assert!(grown, "the pages were found to be available");
        self.reserved.insert(request, sequence);
        Some(Reservation::Granted { request, new_blocks })
    }

    /// The content of a reservation has arrived: the request may generate.
    pub(super) fn activate_reserved(&mut self, request: RequestId) {
        if let Some(mut sequence) = self.reserved.remove(&request) {
            sequence.computed = sequence.prompt;
            self.find_path(request);
            self.cache.insert(&mut sequence.hold, &self.path, sequence.prompt / self.page_size);
            self.waiting.push_back(sequence);
        }
    }
}
