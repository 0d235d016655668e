//! Who is admitted from the waiting queue.

use spica::config::scenario::Backend;
use spica::report::record::Role;
use spica::workload::RequestId;

use super::{Engine, Plan};
use crate::slow::engine::{Pass, Shared};
use crate::slow::pool::BlockId;

/// What becomes of the head of the queue.
enum Turn {
    /// It was admitted or rejected.
    Taken,
    /// It has to wait for blocks.
    NoBlocks,
    /// It has to wait for a pass with more to spare.
    NoBudget,
}

impl Engine<'_> {
    pub(super) fn schedule_waiting(&mut self, plan: &mut Plan, pass: &mut Pass, shared: &mut Shared<'_>) {
        let most = self.options.max_num_seqs.map_or(usize::MAX, |most| most as usize);
        let mut place = 0;
        if plan.cadence {
            self.was_full = false;
        }
        while plan.budget > 0 && self.running.len() < most {
            let Some(&request) = self.waiting.get(place) else { return };
            if self.sequence(request).activated {
                self.admit_activated(place, plan, pass, shared);
            } else if plan.defers {
                place += 1;
            } else if place == 0 && self.can_never_run(request) {
                self.reject_head(pass);
            } else if place > 0 || self.has_reservations(plan) {
                // Only who holds blocks already passes one that has to wait for some.
                place += 1;
            } else {
                match self.admit_afresh(plan, pass, shared) {
                    Turn::Taken => {}
                    Turn::NoBlocks if self.role == Role::Decode => place += 1,
                    Turn::NoBlocks | Turn::NoBudget => return,
                }
            }
        }
    }

    /// Whether somebody asks for blocks, who has precedence.
    fn has_reservations(&mut self, plan: &Plan) -> bool {
        let asking = !self.reservations.is_empty();
        self.was_full |= plan.cadence && asking;
        asking
    }

    /// Admits a request whose prompt has arrived; there is nothing to compute before its next token.
    fn admit_activated(&mut self, place: usize, plan: &mut Plan, pass: &mut Pass, shared: &mut Shared<'_>) {
        let request = self.waiting.remove(place).expect("the caller has looked at it");
        self.running.push(request);
        let sequence = self.sequence_mut(request);
        sequence.activated = false;
        let (computed, left) = (sequence.computed, sequence.length() - sequence.computed);
        pass.admitted.push((request, 0));
        self.compute(request, computed, left, plan, shared);
    }

    /// Admits or rejects the head of the queue, or tells what it has to wait for.
    fn admit_afresh(&mut self, plan: &mut Plan, pass: &mut Pass, shared: &mut Shared<'_>) -> Turn {
        let request = self.waiting[0];
        let hits = self.cached_blocks(request, shared);
        let cached = hits.len() as u32 * self.options.block_size;
        let sequence = self.sequence(request);
        let missing_prompt = sequence.prompt.saturating_sub(cached);
        let left = sequence.length() - cached;
        if !self.fits(request, &hits) {
            self.was_full |= plan.cadence;
            return Turn::NoBlocks;
        }
        if !self.starts_drafts(request, &hits) {
            return Turn::NoBlocks;
        }
        if !self.options.enable_chunked_prefill && missing_prompt > plan.budget {
            if self.options.max_num_batched_tokens.is_some_and(|most| missing_prompt > most) {
                self.reject_head(pass);
                return Turn::Taken;
            }
            return Turn::NoBudget;
        }
        // The prompt was computed elsewhere; what is found again here is not the reuse of it.
        let reused = if self.role == Role::Decode { 0 } else { cached };
        pass.admitted.push((request, reused));
        self.waiting.pop_front();
        self.running.push(request);
        self.hold(request, hits);
        let tokens = left.min(plan.budget);
        self.compute(request, cached, tokens, plan, shared);
        Turn::Taken
    }

    /// Whether there is room for the tokens that a request may generate first, or somebody else runs: who has neither would
    /// have to give way at once, again and again.
    fn starts_drafts(&self, request: RequestId, hits: &[BlockId]) -> bool {
        let shared_hits = hits.iter().filter(|&&block| self.pool.is_referenced(block)).count();
        let sequence = self.sequence(request);
        let whole = self.blocks_for(sequence.length() + self.tokens_ahead(request));
        let room = whole.saturating_sub(shared_hits) <= self.pool.available();
        self.speculation.is_none() || !self.running.is_empty() || room
    }

    fn reject_head(&mut self, pass: &mut Pass) {
        let head = self.waiting.pop_front().expect("the caller has looked at the head");
        self.sequences[head.0 as usize] = None;
        pass.rejected.push(head);
    }

    pub(super) fn can_never_run(&self, request: RequestId) -> bool {
        let sequence = self.sequence(request);
        let too_long = self.options.max_model_len.is_some_and(|most| sequence.prompt >= most);
        let too_large = match self.options.backend {
            Backend::Trtllm => sequence.prompt >= self.longest(),
            Backend::Vllm | Backend::Sglang => false,
        };
        let least = sequence.length() + self.tokens_ahead(request);
        too_long || too_large || self.blocks_for(least) > self.pool.size()
    }

    /// Whether there is room for a request of which `hits` are there: for its known tokens, and in TensorRT-LLM for all that
    /// it and the others may come to.
    pub(super) fn fits(&self, request: RequestId, hits: &[BlockId]) -> bool {
        let sequence = self.sequence(request);
        let shared_hits = hits.iter().filter(|&&block| self.pool.is_referenced(block)).count();
        let (whole, promised) = match self.options.backend {
            Backend::Trtllm => (sequence.prompt + sequence.outputs, self.promised()),
            Backend::Vllm | Backend::Sglang => (sequence.length(), 0),
        };
        self.blocks_for(whole) - shared_hits + promised <= self.pool.size() - self.pool.referenced()
    }

    /// Blocks that requests holding some may still need. A prompt that waits to be fetched needs none.
    fn promised(&self) -> usize {
        let mut promised = 0;
        for (number, sequence) in self.sequences.iter().enumerate() {
            let Some(sequence) = sequence.as_ref().filter(|sequence| !sequence.blocks.is_empty()) else {
                continue;
            };
            if self.role != Role::Prefill || self.running.contains(&RequestId(number as u32)) {
                let whole = self.blocks_for(sequence.prompt + sequence.outputs);
                promised += whole.saturating_sub(sequence.blocks.len());
            }
        }
        promised
    }

    /// The leading blocks of a waiting request that are there already.
    pub(super) fn cached_blocks(&mut self, request: RequestId, shared: &mut Shared<'_>) -> Vec<BlockId> {
        let sequence = self.sequence(request);
        let last_token = self.options.backend == Backend::Vllm && sequence.outputs > sequence.generated;
        // Something has to be computed where a token is to come out of it.
        let tokens = if last_token { sequence.length() - 1 } else { sequence.length() };
        let mut hits = self.found_blocks(request, tokens, shared);
        if self.speculation.is_some() {
            hits.pop();
        }
        hits
    }

    /// The leading blocks of a request's first `tokens` tokens that can be found.
    pub(super) fn found_blocks(
        &mut self,
        request: RequestId,
        tokens: u32,
        shared: &mut Shared<'_>,
    ) -> Vec<BlockId> {
        let mut hits = Vec::new();
        if !self.options.enable_prefix_caching {
            return hits;
        }
        for index in 0..tokens / self.options.block_size {
            let identity = self.identity(request, index, shared);
            let Some(block) = self.pool.find(identity) else { break };
            hits.push(block);
        }
        hits
    }

    /// Makes blocks that were found a request's own.
    pub(super) fn hold(&mut self, request: RequestId, hits: Vec<BlockId>) {
        for &block in &hits {
            self.pool.hold(block);
        }
        self.sequence_mut(request).blocks = hits;
    }
}
