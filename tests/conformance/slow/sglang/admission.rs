//! Who is taken up from the waiting queue, and with how much of the prompt.

use rustc_hash::FxHashSet;
use spica::config::scenario::SglangSchedulePolicy;
use spica::report::record::Role;
use spica::workload::RequestId;

use super::{Chunk, Engine};
use crate::slow::engine::{Pass, Shared};

/// What a pass may still take up, in tokens.
#[derive(Debug)]
struct Budgets {
    total: f64,
    input: u64,
    chunk: u64,
}

impl Engine<'_> {
    /// Takes up whom the budgets allow and tells whose prompts are computed; on a decode worker nobody's are.
    pub(super) fn admit(&mut self, pass: &mut Pass, shared: &mut Shared<'_>) -> Vec<Chunk> {
        let mut chunks = Vec::new();
        if self.role == Role::Decode {
            self.admit_activated(pass);
            if !self.reservations.is_empty() {
                return chunks;
            }
        } else if !self.prompts_have_their_turn() {
            return chunks;
        }
        if self.running.len() >= self.most_running() {
            return chunks;
        }
        self.sort_waiting(shared);
        let mut budgets = self.budgets();
        while let Some(&request) = self.waiting.front() {
            if self.can_never_run(request) {
                self.waiting.pop_front();
                pass.rejected.push(request);
                self.sequences[request.0 as usize] = None;
                continue;
            }
            if self.running.len() + chunks.len() >= self.most_running()
                || !self.admit_head(request, &mut budgets, &mut chunks, pass, shared)
                || budgets.total <= 0.0
                || budgets.input == 0
                || budgets.chunk == 0
            {
                break;
            }
        }
        chunks
    }

    fn prompts_have_their_turn(&self) -> bool {
        let enough = self.decodes.is_none_or(|decodes| decodes >= self.options.prefill_decode_interval);
        self.running.is_empty() || enough
    }

    fn budgets(&self) -> Budgets {
        let sglang = &self.options.sglang;
        let page = self.options.block_size;
        let whole_pages = sglang.chunked_prefill_size / self.ranks / page * page;
        let decode = self.role == Role::Decode;
        Budgets {
            total: self.room(),
            input: if decode { u64::MAX } else { u64::from(sglang.max_prefill_tokens) },
            chunk: if decode || !self.options.enable_chunked_prefill {
                u64::MAX
            } else {
                u64::from(whole_pages.max(page))
            },
        }
    }

    /// Tokens that can be had without what is kept for others.
    pub(super) fn room(&self) -> f64 {
        (self.tree.available() as u64 * self.page()) as f64 - self.promised() as f64 * self.ratio.now
    }

    /// Output promised to all who hold pages to generate with.
    fn promised(&self) -> u64 {
        let mut promised: u64 = self.running.iter().map(|&request| self.promise(request)).sum();
        if self.role == Role::Decode {
            let activated = self.waiting.iter().filter(|&&request| self.holds_pages(request));
            promised += activated.chain(&self.reserved).map(|&request| self.promise(request)).sum::<u64>();
        }
        promised
    }

    /// Output tokens that a request may ask for, as far as they are set aside.
    pub(super) fn promise(&self, request: RequestId) -> u64 {
        u64::from(self.outputs_left(request).min(self.options.sglang.clip_max_new_tokens))
    }

    pub(super) fn can_never_run(&self, request: RequestId) -> bool {
        let sequence = self.sequence(request);
        let too_long = self.options.max_model_len.is_some_and(|most| sequence.prompt >= most);
        let charge = self.rounded(sequence.length()) + self.promise(request);
        too_long || charge >= self.tree.size() as u64 * self.page()
    }

    /// Takes up the head of the waiting queue; false when it has to wait.
    fn admit_head(
        &mut self,
        request: RequestId,
        budgets: &mut Budgets,
        chunks: &mut Vec<Chunk>,
        pass: &mut Pass,
        shared: &mut Shared<'_>,
    ) -> bool {
        let is_fresh = !self.holds_pages(request);
        let mut before = self.sequence(request).computed;
        let mut found = Vec::new();
        let mut unheld = 0;
        if is_fresh {
            found = self.cached(request, shared);
            self.tree.access(&found);
            unheld = self.tree.unheld(&found) as u64 * self.page();
            before = found.len() as u32 * self.options.block_size;
        }
        let missing = self.sequence(request).length() - before;
        let is_whole = u64::from(missing) <= budgets.chunk;
        let tokens = if is_whole { missing } else { (budgets.chunk / self.page() * self.page()) as u32 };
        if tokens == 0 && missing > 0 {
            return false;
        }
        let rounded = self.rounded(tokens);
        if !chunks.is_empty() && rounded >= budgets.input {
            return false;
        }
        let promise = if is_whole { self.promise(request) } else { 0 };
        let charge = rounded + promise + unheld;
        if charge as f64 >= budgets.total && !self.fits_in_the_end(charge, budgets, chunks) {
            return false;
        }
        budgets.total -= charge as f64;
        budgets.input = budgets.input.saturating_sub(rounded);
        budgets.chunk = if is_whole { budgets.chunk.saturating_sub(rounded) } else { 0 };
        self.waiting.pop_front();
        if is_fresh {
            let reused = before.min(self.sequence(request).prompt);
            pass.admitted.push((request, if self.role == Role::Decode { 0 } else { reused }));
            self.sequence_mut(request).hold = self.tree.hold(&found);
        }
        assert!(self.grow(request, before + tokens), "there is room for what is charged");
        self.sequence_mut(request).computed = before + tokens;
        if self.role == Role::Decode {
            self.running.push(request);
        } else {
            chunks.push(Chunk { request, before, tokens });
        }
        true
    }

    /// With nobody running, the ratio falls until a charge fits, or a thousand times in vain.
    fn fits_in_the_end(&mut self, charge: u64, budgets: &mut Budgets, chunks: &[Chunk]) -> bool {
        if !self.running.is_empty() || !chunks.is_empty() {
            return false;
        }
        (0..1024).any(|_| {
            self.ratio.fall();
            budgets.total = self.room();
            (charge as f64) < budgets.total
        })
    }

    /// The leading pages of a waiting request that are in the tree. Where a token is to come of it, something has to be computed.
    fn cached(&mut self, request: RequestId, shared: &mut Shared<'_>) -> Vec<crate::slow::content::Identity> {
        let samples = u32::from(self.outputs_left(request) > 0);
        let mut path = self.path(request, self.sequence(request).length() - samples, shared);
        path.truncate(self.tree.found(&path));
        path
    }

    /// Decode worker: lets in whose prompt has arrived.
    fn admit_activated(&mut self, pass: &mut Pass) {
        while self.running.len() < self.most_running() {
            let activated = self.waiting.iter().position(|&request| self.holds_pages(request));
            let Some(request) = activated.and_then(|place| self.waiting.remove(place)) else { return };
            self.running.push(request);
            pass.admitted.push((request, 0));
        }
    }

    /// Longest cached prefix first; at the very end who shares much with a request in the queue that is to be computed first.
    fn sort_waiting(&mut self, shared: &mut Shared<'_>) {
        let fixed = usize::from(self.waiting.front().is_some_and(|&request| self.holds_pages(request)));
        let others: Vec<RequestId> = self.waiting.iter().skip(fixed).copied().collect();
        if self.options.sglang.schedule_policy != SglangSchedulePolicy::Lpm || others.len() > 128 {
            return;
        }
        let mut coming = FxHashSet::default();
        let mut ranked = Vec::new();
        for request in others {
            let cached = self.cached(request, shared).len();
            let samples = u32::from(self.outputs_left(request) > 0);
            let path = self.path(request, self.sequence(request).length() - samples, shared);
            let in_queue = path.iter().take_while(|page| coming.contains(*page)).count();
            let few_cached = cached as u64 * self.page() <= 32;
            let steps_back = few_cached && in_queue as u64 * self.page() >= 32;
            if few_cached && !steps_back {
                coming.extend(path);
            }
            ranked.push((steps_back, std::cmp::Reverse(cached), request));
        }
        ranked.sort_by_key(|&(steps_back, cached, _)| (steps_back, cached));
        self.waiting.truncate(fixed);
        self.waiting.extend(ranked.into_iter().map(|(_, _, request)| request));
    }

    pub(super) fn holds_pages(&self, request: RequestId) -> bool {
        self.sequence(request).hold.pages() > 0
    }

    /// `tokens` tokens rounded up to whole pages.
    pub(super) fn rounded(&self, tokens: u32) -> u64 {
        self.pages_for(tokens) as u64 * self.page()
    }

    /// Tokens of a page.
    pub(super) fn page(&self) -> u64 {
        u64::from(self.options.block_size)
    }
}
