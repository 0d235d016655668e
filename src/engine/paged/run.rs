//! Runs of decode passes, planned at once.
//!
//! A run reaches no further than the first pass that ends a request, lacks a block, or (where a router listens) gives up
//! a block that others could have found: within it, only counters move.

use std::ops::Range;

use super::{Cadence, EngineError, PagedEngine, PassKind, Rules, Signals};
use crate::engine::metrics::PassMetrics;
use crate::engine::sequence::Sequence;
use crate::report::record::Role;
use crate::simulation::SimTime;
use crate::timing::DecodeBatch;

const LOOKAHEAD: u32 = crate::engine::Passes::LOOKAHEAD;

impl<R: Rules> PagedEngine<R> {
    /// Whether the next pass can only be a decode step of everybody running.
    pub(super) fn is_steady(&self, cadence: Cadence) -> bool {
        let nobody_enters = self.waiting.is_empty()
            || self.head_blocked
            || self.running.len() >= self.limits.max_num_seqs
            || (self.is_deferring(cadence) && !self.waiting.iter().any(Sequence::is_ready));
        nobody_enters
            && self.speculation.is_none()
            && self.role != Role::Prefill
            && !self.running.is_empty()
            && self.running.len() <= self.limits.max_num_batched_tokens as usize
            && self.running.iter().all(Sequence::is_decoding)
    }

    /// Plans as many decode passes as are sure to be alike; `None` when not even one is.
    pub(super) fn start_run(
        &mut self,
        now: SimTime,
        cadence: Cadence,
    ) -> Result<Option<SimTime>, EngineError> {
        let mut batch = DecodeBatch { requests: self.running.len() as u32, context_tokens: 0 };
        let mut passes = self.passes_of_one_kind(cadence);
        for sequence in &self.running {
            batch.context_tokens += u64::from(sequence.known());
            passes = passes.min(sequence.remaining(self.limits.max_model_len));
        }
        // With foresight, what is evicted depends on who has come by then.
        let blocks = if self.kv.has_foresight() { self.kv.free() } else { self.kv.available() };
        passes = self.passes_within(passes, blocks);
        if self.kv.publishes() && !self.kv.has_foresight() {
            // The pass that evicts has to be the last, so that the router hears of it at its end.
            passes = passes.min(self.passes_within(passes, self.kv.free()) + 1);
        }
        if passes == 0 {
            return Ok(None);
        }
        self.passes_to_open = match cadence {
            Cadence::Free => None,
            Cadence::Open => Some(0),
            Cadence::Deferred { passes } => Some(passes),
        };
        self.pass.kind = PassKind::Run;
        self.passes.begin();
        self.peaks.see_batched(batch.requests);
        if self.metrics.is_some() {
            let mut metrics = PassMetrics::default();
            self.running.iter().for_each(|sequence| metrics.decode.add(sequence.known()));
            self.count_queue(&mut metrics);
            self.metrics = Some(metrics);
        }
        self.inputs.pricer.decode_run(now, batch, passes, &mut self.passes.timeline.ends)?;
        Ok(self.passes.timeline.ends.last().copied())
    }

    /// How many passes the group's cadence treats like the next one.
    fn passes_of_one_kind(&self, cadence: Cadence) -> u32 {
        let somebody_waits = !self.waiting.is_empty() && !self.head_blocked;
        match cadence {
            Cadence::Deferred { passes } if somebody_waits => passes.min(LOOKAHEAD),
            Cadence::Open if somebody_waits => 1,
            Cadence::Free | Cadence::Open | Cadence::Deferred { .. } => LOOKAHEAD,
        }
    }

    /// Blocks that `passes` decode steps of everybody running need.
    fn growth(&self, passes: u32) -> u64 {
        let block_size = self.kv.block_size();
        let blocks = |sequence: &Sequence| {
            (sequence.computed + passes).div_ceil(block_size).saturating_sub(sequence.hold.blocks())
        };
        self.running.iter().map(|sequence| u64::from(blocks(sequence))).sum()
    }

    /// The most decode steps, up to `passes`, that need no more than `blocks` blocks.
    fn passes_within(&self, passes: u32, blocks: u32) -> u32 {
        let at_most = self.running.len() as u64 * u64::from(passes / self.kv.block_size() + 1);
        if at_most <= u64::from(blocks) {
            return passes;
        }
        // Growth rises with the number of passes: bisect for the last that fits.
        let (mut fits, mut fails) = (0, passes + 1);
        while fails - fits > 1 {
            let middle = u32::midpoint(fits, fails);
            if self.growth(middle) <= u64::from(blocks) { fits = middle } else { fails = middle }
        }
        fits
    }

    pub(super) fn complete_run(&mut self, over: Range<u32>, signals: &mut Signals) {
        let passes = over.end - over.start;
        if self.passes_to_open.is_some_and(|before| before < passes) {
            let most = self.limits.max_num_seqs.min(self.limits.max_num_batched_tokens as usize);
            self.was_bound = self.head_blocked && self.running.len() < most;
        }
        self.running_counters.passes += u64::from(passes);
        for sequence in &mut self.running {
            sequence.computed += passes;
            let grown = self.kv.grow(&mut sequence.hold, sequence.computed);
            assert!(grown, "a run is planned within the blocks at hand");
            sequence.emit(over.start, passes);
        }
        self.report(over.end - 1, signals);
    }
}
