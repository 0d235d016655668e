//! Composing a pass, and what comes out of one that computed prompts.

use super::admission::Blocked;
use super::{EngineError, PassKind, Sequence, SglangEngine, Signals};
use crate::engine::{Engine, Output};
use crate::report::record::Role;
use crate::simulation::SimTime;
use crate::timing::{Chunk, DecodeBatch};
use crate::workload::RequestId;

/// What is under way. Its buffers are reused.
#[derive(Debug, Default)]
pub(super) struct Pass {
    pub(super) kind: PassKind,
    /// Prompts that are computed.
    pub(super) batch: Vec<Sequence>,
    chunks: Vec<Chunk>,
    /// Whose chunk each is.
    owners: Vec<RequestId>,
    pub(super) rejected: Vec<Sequence>,
    /// What the first in line lacks, if it was looked at and nobody entered.
    pub(super) blocked: Option<Blocked>,
    /// Somebody was retracted, which sets the ratio.
    pub(super) has_retracted: bool,
}

impl Pass {
    /// Takes a prompt up.
    pub(super) fn take(&mut self, sequence: Sequence, chunk: Chunk) {
        if chunk.new_tokens > 0 {
            self.owners.push(sequence.request);
            self.chunks.push(chunk);
        }
        self.batch.push(sequence);
    }

    /// The chunks with those that they belong to.
    pub(super) fn chunks_of_requests(&self) -> impl Iterator<Item = (RequestId, Chunk)> {
        self.owners.iter().copied().zip(self.chunks.iter().copied())
    }
}

impl Pass {
    /// Prompt tokens that it computes.
    pub(super) fn new_tokens(&self) -> u64 {
        self.chunks.iter().map(|chunk| u64::from(chunk.new_tokens)).sum()
    }

    /// Prompt tokens that were computed or reused before.
    pub(super) fn prefix_tokens(&self) -> u64 {
        self.chunks.iter().map(|chunk| u64::from(chunk.prefix_tokens)).sum()
    }
}

impl SglangEngine {
    /// Composes and prices what comes next; `None` when everybody waits for somebody outside.
    pub(super) fn start(
        &mut self,
        now: SimTime,
        signals: &mut Signals,
    ) -> Result<Option<SimTime>, EngineError> {
        self.compose(signals);
        if self.metrics.is_some() {
            self.metrics = Some(self.measure());
        }
        if !self.pass.batch.is_empty() {
            self.peaks.see_batched(u32::try_from(self.pass.new_tokens()).unwrap_or(u32::MAX));
            let end = now + self.inputs.pricer.pass(&self.pass.chunks, self.first_token_decodes())?;
            self.pass.kind = PassKind::Evaluated;
            self.passes.begin();
            self.passes.timeline.ends.push(end);
            self.insert_computed();
            return Ok(Some(end));
        }
        if !self.running.is_empty() {
            return self.start_run(now);
        }
        // Between two passes whoever asks for the pages of those who had to go is given them.
        let leaves_pages = self.pass.has_retracted && !self.asking.is_empty();
        if leaves_pages || !self.pass.rejected.is_empty() {
            self.pass.kind = PassKind::Evaluated;
            self.passes.begin();
            return Ok(Some(now));
        }
        if self.detached() > 0 || !self.asking.is_empty() {
            return Ok(None);
        }
        Err(EngineError::Stuck(self.waiting_for().unwrap_or_default()))
    }

    /// Takes up prompts, or else makes sure that everybody running can get a token.
    fn compose(&mut self, signals: &mut Signals) {
        self.pass.chunks.clear();
        self.pass.owners.clear();
        self.pass.has_retracted = false;
        loop {
            self.admit(signals);
            self.peaks.see_running(self.running.len() + self.pass.batch.len());
            let retracts = self.pass.batch.is_empty() && self.retract();
            if !retracts || !self.running.is_empty() {
                return;
            }
            // Everybody had to go: a pass of no length. Whoever is first in line has the cache to itself.
            self.settle_counters();
        }
    }

    /// Makes those who generated least leave until the others have pages for a token each; whether anybody had to.
    fn retract(&mut self) -> bool {
        let mut retracts = false;
        while self.pages_for_tokens() > u64::from(self.cache.available()) {
            let generated = |&position: &usize| self.running[position].generated;
            let Some(victim) = (0..self.running.len()).min_by_key(generated) else { break };
            let mut sequence = self.running.remove(victim);
            let known = sequence.known();
            self.release(&mut sequence, known);
            sequence.computed = 0;
            self.waiting.push_back(sequence);
            self.running_counters.preemptions += 1;
            retracts = true;
        }
        if retracts {
            let sum = |tokens: fn(&Sequence) -> u32| {
                self.running.iter().map(|sequence| u64::from(tokens(sequence))).sum()
            };
            let generated = sum(|sequence| sequence.generated);
            let wanted = sum(|sequence| sequence.wanted);
            self.ratio.estimate(self.running.len() as u64, generated, wanted);
            self.pass.has_retracted = true;
            self.pass.blocked = None;
        }
        retracts
    }

    /// Pages that everybody running lacks for one more token.
    fn pages_for_tokens(&self) -> u64 {
        self.running.iter().map(|sequence| u64::from(self.pages_for_token(sequence))).sum()
    }

    /// Pages that a sequence lacks for its next token, if it gets one.
    fn pages_for_token(&self, sequence: &Sequence) -> u32 {
        if sequence.remaining(self.limits.max_model_len) == 0 {
            return 0;
        }
        (sequence.known() + 1).div_ceil(self.page_size).saturating_sub(sequence.hold.pages())
    }

    /// Whether a sequence of the batch, whose prompt is computed, gets a token at the end of the pass.
    fn gets_token(&self, sequence: &Sequence) -> bool {
        self.role != Role::Prefill
            && sequence.is_ready()
            && sequence.remaining(self.limits.max_model_len) > 0
            && self.pages_for_token(sequence) == 0
    }

    /// What is charged for first tokens beside prompts: by default nothing.
    fn first_token_decodes(&self) -> DecodeBatch {
        let mut decodes = DecodeBatch { requests: 0, context_tokens: 0 };
        if self.limits.first_token_decode && self.role != Role::Prefill {
            let gets = |sequence: &&Sequence| {
                sequence.is_ready() && sequence.remaining(self.limits.max_model_len) > 0
            };
            for sequence in self.pass.batch.iter().filter(gets) {
                decodes.requests += 1;
                decodes.context_tokens += u64::from(sequence.known());
            }
        }
        decodes
    }

    /// Puts what the pass computes into the tree, and finds pages for first tokens as far as there are any.
    fn insert_computed(&mut self) {
        let mut batch = std::mem::take(&mut self.pass.batch);
        for sequence in &mut batch {
            self.find_path(sequence.request);
            self.cache.insert(&mut sequence.hold, &self.path, sequence.computed / self.page_size);
        }
        for sequence in &mut batch {
            if self.role != Role::Prefill && sequence.is_ready() {
                let pages = sequence.hold.pages() + self.pages_for_token(sequence);
                self.cache.grow(&mut sequence.hold, pages);
            }
        }
        self.pass.batch = batch;
    }

    pub(super) fn report_rejections(&mut self, signals: &mut Signals) {
        let timeline = &self.passes.timeline;
        let rejection = |sequence: Sequence| Output::Rejected(sequence.request, sequence.stamps(timeline));
        signals.outputs.extend(self.pass.rejected.drain(..).map(rejection));
    }

    /// Makes a pass over prompts visible, if it had any.
    pub(super) fn complete_prefill(&mut self, signals: &mut Signals) {
        if self.pass.batch.is_empty() {
            return;
        }
        self.running_counters.passes += 1;
        self.running_counters.committed_prefill_tokens += self.pass.new_tokens();
        self.decodes_since_prefill = 0;
        let pass = self.passes.timeline.passes() - 1;
        let mut batch = std::mem::take(&mut self.pass.batch);
        for mut sequence in batch.drain(..) {
            if !sequence.is_ready() {
                self.waiting.push_front(sequence);
            } else if self.role == Role::Prefill {
                signals.outputs.push(Output::PromptComputed(sequence.request));
                self.sources.insert(sequence.request, sequence);
            } else {
                if self.gets_token(&sequence) {
                    sequence.emit(pass, 1);
                }
                if !self.report(&mut sequence, pass, signals) {
                    self.running.push(sequence);
                }
            }
        }
        self.pass.batch = batch;
    }

    /// Reports the first token and the end of a request after `pass`; whether it has ended.
    pub(super) fn report(&mut self, sequence: &mut Sequence, pass: u32, signals: &mut Signals) -> bool {
        if sequence.has_first_token_at(pass) {
            signals.outputs.push(Output::FirstToken(sequence.request));
        }
        let ended = sequence.is_ended(self.limits.max_model_len);
        if ended {
            let known = sequence.known();
            self.release(sequence, known);
            sequence.tally_gaps(&mut self.passes.timeline);
            signals.outputs.push(Output::Completed(sequence.request, sequence.stamps(&self.passes.timeline)));
        }
        ended
    }
}
