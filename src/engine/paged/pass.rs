//! Passes in which anything may happen, request by request.

use super::{Cadence, EngineError, PagedEngine, PassKind, Rules, Signals};
use crate::config::scenario::PreemptionMode;
use crate::engine::kv::{Generated, Match};
use crate::engine::metrics::PassMetrics;
use crate::engine::sequence::Sequence;
use crate::engine::{Admission, Output, Passes};
use crate::report::record::Role;
use crate::simulation::{SimDuration, SimTime};
use crate::timing::{Chunk, DecodeBatch};
use crate::workload::RequestId;
use crate::workload::prefix::{PathStep, SegmentId};

/// What is under way. Its buffers are reused.
#[derive(Debug, Default)]
pub(super) struct Pass {
    pub(super) kind: PassKind,
    /// Work of each request scheduled by an evaluated pass, in the order of the batch.
    work: Vec<Work>,
    chunks: Vec<Chunk>,
    /// Requests that can never run; reported when the pass is over.
    pub(super) rejected: Vec<Sequence>,
    preempted: bool,
    budget: u32,
    /// Tokens scheduled by prefill work.
    committed_tokens: u64,
}

/// What one request does in a pass.
#[derive(Clone, Copy, Debug)]
struct Work {
    request: RequestId,
    tokens: u32,
    chunk: Option<Chunk>,
}

impl Pass {
    /// The chunks with those that they belong to.
    pub(super) fn chunks_of_requests(&self) -> impl Iterator<Item = (RequestId, Chunk)> {
        self.work.iter().filter_map(|work| Some((work.request, work.chunk?)))
    }
}

enum Scheduling {
    Scheduled,
    GaveWay,
    Blocked,
}

/// What becomes of the head of the waiting queue.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Head {
    /// It was admitted or rejected.
    Taken,
    /// It has to wait for blocks or for tokens.
    Blocked,
    /// It fits, but not with its draft tokens.
    LacksRoomForDrafts,
}

impl<R: Rules> PagedEngine<R> {
    /// Composes and prices the next pass; `None` when everybody waits for somebody outside.
    pub(super) fn evaluate(
        &mut self,
        now: SimTime,
        cadence: Cadence,
        signals: &mut Signals,
    ) -> Result<Option<SimTime>, EngineError> {
        self.pass.rejected.clear();
        self.compose(cadence, signals);
        // Where everybody gave way nothing is scheduled: a pass of no length.
        if self.pass.work.is_empty() && self.pass.rejected.is_empty() && !self.pass.preempted {
            if self.detached() > 0 {
                return Ok(None);
            }
            return Err(EngineError::Stuck(self.describe()));
        }
        self.pass.kind = PassKind::Evaluated;
        self.passes.begin();
        if self.pass.work.is_empty() {
            return Ok(Some(now));
        }
        let end = now + self.price()?;
        self.passes.timeline.ends.push(end);
        Ok(Some(end))
    }

    fn describe(&self) -> String {
        super::Engine::waiting_for(self).unwrap_or_default()
    }

    /// Decides who does what in the pass.
    fn compose(&mut self, cadence: Cadence, signals: &mut Signals) {
        let deferring = self.is_deferring(cadence);
        self.pass.work.clear();
        self.pass.preempted = false;
        self.pass.budget = self.limits.max_num_batched_tokens;
        self.schedule_running(deferring);
        if !self.pass.preempted && deferring {
            self.admit_active_behind(signals);
        } else if !self.pass.preempted {
            self.admit_waiting(signals);
            if cadence == Cadence::Open {
                self.was_bound = self.head_blocked;
            }
        }
        self.reserve_drafts();
    }

    /// Whether this rank leaves prompt work to later passes: only while it has decodes of its own to go on with, and
    /// not if it lacked blocks when it last could take up prompt work.
    pub(super) fn is_deferring(&self, cadence: Cadence) -> bool {
        matches!(cadence, Cadence::Deferred { .. })
            && !self.was_bound
            && self.running.iter().any(Sequence::is_decoding)
    }

    fn schedule_running(&mut self, deferring: bool) {
        let mut scan = 0;
        while scan < self.running.len() && self.pass.budget > 0 {
            if deferring && !self.running[scan].is_decoding() {
                scan += 1;
                continue;
            }
            match self.schedule(scan) {
                // Who gave way in front of the scan moved everybody up, and the scan does not move back: the reference
                // skips one request for each.
                Scheduling::Scheduled => scan += 1,
                Scheduling::GaveWay => {}
                Scheduling::Blocked => break,
            }
        }
    }

    /// Schedules the running request at `position`, making others give way as needed.
    fn schedule(&mut self, position: usize) -> Scheduling {
        let sequence = &self.running[position];
        let Some(tokens) = self.tokens_to_schedule(sequence, sequence.computed) else {
            return Scheduling::Blocked;
        };
        match self.find_blocks(position, sequence.computed + tokens) {
            None => Scheduling::GaveWay,
            Some(position) => {
                self.compute(position, tokens);
                Scheduling::Scheduled
            }
        }
    }

    /// Gives the running request at `position` blocks for `tokens` tokens, making others give way as needed. Returns
    /// where it stands then, or `None` if it had to give way itself.
    fn find_blocks(&mut self, mut position: usize, tokens: u32) -> Option<usize> {
        while !self.kv.grow(&mut self.running[position].hold, tokens) {
            let victim = match self.limits.preemption {
                PreemptionMode::Lifo => self.running.len() - 1,
                PreemptionMode::Fifo => 0,
            };
            self.preempt(victim);
            if victim == position {
                return None;
            }
            position -= usize::from(victim < position);
        }
        Some(position)
    }

    /// How many tokens of a sequence the budget admits; `None` when it has to wait for a larger budget.
    fn tokens_to_schedule(&self, sequence: &Sequence, computed: u32) -> Option<u32> {
        let prompt_left = sequence.prompt.saturating_sub(computed);
        if !self.limits.chunked_prefill && prompt_left > self.pass.budget {
            return None;
        }
        Some((sequence.known() - computed).min(self.pass.budget))
    }

    /// Enters the work of a running request, whose blocks are at hand, into the pass.
    fn compute(&mut self, position: usize, tokens: u32) {
        let sequence = &mut self.running[position];
        let before = sequence.computed;
        sequence.computed += tokens;
        if before < sequence.prompt {
            self.inputs.tree.path(sequence.request, &mut self.path);
            self.kv.publish_prompt(&mut sequence.hold, &self.path, sequence.computed);
        }
        let new_tokens = sequence.computed.min(sequence.prompt).saturating_sub(before);
        let is_charged = new_tokens > 0 && self.role != Role::Decode;
        let chunk = is_charged.then_some(Chunk { new_tokens, prefix_tokens: before });
        self.pass.work.push(Work { request: sequence.request, tokens, chunk });
        self.pass.budget -= tokens;
        self.peaks.see_batched(self.limits.max_num_batched_tokens - self.pass.budget);
    }

    /// Takes the blocks of a running request and puts it at the head of the waiting queue.
    fn preempt(&mut self, position: usize) {
        let mut sequence = self.running.remove(position);
        if let Some(index) = self.pass.work.iter().position(|work| work.request == sequence.request) {
            self.pass.budget += self.pass.work.remove(index).tokens;
        }
        self.kv.awaits(sequence.request);
        let own = self.own_step(&sequence);
        let generated = Generated::Findable { segment: own.segment, start: own.start };
        self.kv.release(&mut sequence.hold, sequence.computed, generated);
        sequence.computed = 0;
        sequence.was_in_a_batch = true;
        self.waiting.push_front(sequence);
        self.pass.preempted = true;
        self.head_blocked = false;
        self.running_counters.preemptions += 1;
    }

    /// The segment under which a sequence finds its own generated blocks again.
    fn own_step(&self, sequence: &Sequence) -> PathStep {
        PathStep {
            segment: SegmentId(self.inputs.tree.segment_count() as u32 + sequence.request.0),
            start: sequence.prompt / self.kv.block_size(),
            blocks: u32::MAX,
        }
    }

    /// Sets blocks aside for the draft tokens of everybody who gets tokens in this pass.
    fn reserve_drafts(&mut self) {
        if self.speculation.is_none() {
            return;
        }
        let mut scan = 0;
        while scan < self.running.len() {
            let sequence = &self.running[scan];
            let ahead = self.draft_tokens(sequence);
            if !sequence.is_ready() {
                scan += 1;
                continue;
            }
            // Nobody is passed over here: the scan follows those who move up.
            scan = match (self.find_blocks(scan, sequence.known() + ahead), self.limits.preemption) {
                (Some(position), _) => position + 1,
                (None, PreemptionMode::Fifo) => 0,
                (None, PreemptionMode::Lifo) => scan,
            };
        }
    }

    fn admit_waiting(&mut self, signals: &mut Signals) {
        self.head_blocked = false;
        let mut lacks_room_for_drafts = false;
        while self.pass.budget > 0 && self.running.len() < self.limits.max_num_seqs {
            let Some(head) = self.waiting.front() else { return };
            if head.is_active() {
                self.admit_active(0, signals);
            } else if self.can_never_run(head) {
                self.reject_head();
            } else {
                let admission = self.admit_head(signals);
                lacks_room_for_drafts = admission == Head::LacksRoomForDrafts;
                if admission != Head::Taken {
                    break;
                }
            }
        }
        if self.head_blocked || lacks_room_for_drafts {
            self.admit_active_behind(signals);
        }
    }

    /// Whether a request finds room for its first draft tokens, or others run who can give way or finish. Who starts alone and
    /// lacks it would have to give way at once, again and again.
    fn can_start_drafts(&self, sequence: &Sequence, found: Match) -> bool {
        let tokens = sequence.known() + self.draft_tokens(sequence);
        let wanted = tokens.div_ceil(self.kv.block_size()).saturating_sub(found.referenced);
        self.speculation.is_none() || !self.running.is_empty() || wanted <= self.kv.available()
    }

    /// Tokens that may come of a sequence's next step.
    fn draft_tokens(&self, sequence: &Sequence) -> u32 {
        let most = self.speculation.as_ref().map_or(0, super::Speculation::most_tokens);
        most.min(sequence.remaining(self.limits.max_model_len))
    }

    /// Admits the head of the waiting queue, or rejects it, or finds what it has to wait for.
    fn admit_head(&mut self, signals: &mut Signals) -> Head {
        let head = &self.waiting[0];
        let prompt = head.prompt;
        let found = self.look_up_head();
        let head = &self.waiting[0];
        if !self.asking.is_empty() || !self.has_room(head, found) {
            self.head_blocked = true;
            return Head::Blocked;
        }
        if !self.can_start_drafts(head, found) {
            return Head::LacksRoomForDrafts;
        }
        let cached = found.blocks * self.kv.block_size();
        let prompt_left = prompt.saturating_sub(cached);
        if !self.limits.chunked_prefill && prompt_left > self.limits.max_num_batched_tokens {
            self.reject_head();
            return Head::Taken;
        }
        let Some(tokens) = self.tokens_to_schedule(head, cached) else { return Head::Blocked };
        let hold = self.kv.take_match();
        let Some(mut sequence) = self.waiting.pop_front() else { return Head::Blocked };
        sequence.hold = hold;
        sequence.computed = cached;
        self.kv.is_served(sequence.request);
        let grown = self.kv.grow(&mut sequence.hold, cached + tokens);
        assert!(grown, "admission made sure of room for the whole sequence");
        let reused_tokens = if self.role == Role::Decode { 0 } else { cached };
        signals.admitted.push(Admission { request: sequence.request, reused_tokens });
        self.run(sequence, tokens);
        Head::Taken
    }

    /// What the cache has of the head of the waiting queue.
    fn look_up_head(&mut self) -> Match {
        let head = &self.waiting[0];
        let limit = R::look_up_tokens(head) / self.kv.block_size();
        let own = (head.generated > 0).then(|| self.own_step(head));
        self.inputs.tree.path(head.request, &mut self.path);
        self.path.extend(own);
        let found = self.kv.look_up(&self.path, limit);
        if self.speculation.is_some() && found.blocks > 0 {
            // The draft head needs the states of the last block anew.
            return self.kv.look_up(&self.path, found.blocks - 1);
        }
        found
    }

    /// Admits the waiting request at `position`, whose prompt is computed and whose blocks are its own.
    fn admit_active(&mut self, position: usize, signals: &mut Signals) {
        let Some(sequence) = self.waiting.remove(position) else { return };
        signals.admitted.push(Admission { request: sequence.request, reused_tokens: 0 });
        self.run(sequence, 0);
    }

    /// Takes a request into the batch, with so many tokens of its work.
    fn run(&mut self, sequence: Sequence, tokens: u32) {
        self.running.push(sequence);
        self.peaks.see_running(self.running.len());
        self.compute(self.running.len() - 1, tokens);
    }

    /// Requests that hold their blocks already need not wait for a head that finds none: it may be waiting for theirs.
    fn admit_active_behind(&mut self, signals: &mut Signals) {
        while self.pass.budget > 0 && self.running.len() < self.limits.max_num_seqs {
            let Some(position) = self.waiting.iter().position(Sequence::is_active) else { return };
            self.admit_active(position, signals);
        }
    }

    /// Whether not even an empty engine could run a request.
    pub(super) fn can_never_run(&self, sequence: &Sequence) -> bool {
        let ahead = self.draft_tokens(sequence);
        sequence.prompt >= self.limits.max_model_len
            || R::never_fits(sequence, &self.kv)
            || (sequence.known() + ahead).div_ceil(self.kv.block_size()) > self.kv.capacity()
    }

    pub(super) fn has_room(&self, sequence: &Sequence, found: Match) -> bool {
        // Nobody waits with blocks elsewhere.
        let waiting = if self.role == Role::Decode { self.waiting.len() } else { 0 };
        let active = self.waiting.iter().take(waiting).filter(|waiting| waiting.is_active());
        let holders = self.running.iter().chain(active).chain(self.reserved.values());
        R::has_room(sequence, found, holders, &self.kv)
    }

    fn reject_head(&mut self) {
        if let Some(head) = self.waiting.pop_front() {
            self.kv.is_served(head.request);
            self.pass.rejected.push(head);
        }
    }

    /// Duration of the evaluated pass: its chunks, and the requests that generate from a prompt completed earlier.
    fn price(&mut self) -> Result<SimDuration, EngineError> {
        let mut batch = DecodeBatch { requests: 0, context_tokens: 0 };
        let mut committed_tokens = 0;
        self.pass.chunks.clear();
        let mut work = self.pass.work.iter().peekable();
        for sequence in &self.running {
            let Some(work) = work.next_if(|work| work.request == sequence.request) else { continue };
            if let Some(chunk) = work.chunk {
                self.pass.chunks.push(chunk);
                committed_tokens += u64::from(work.tokens);
            }
            if self.is_charged_a_decode(sequence, work) {
                batch.requests += 1;
                batch.context_tokens += u64::from(sequence.known());
            }
        }
        debug_assert!(work.next().is_none(), "work is kept in the order of the batch");
        self.pass.committed_tokens = committed_tokens;
        if self.metrics.is_some() {
            self.metrics = Some(self.measure());
        }
        Ok(self.inputs.pricer.pass(&self.pass.chunks, batch)?)
    }

    /// What the pass that has been composed reports.
    fn measure(&self) -> PassMetrics {
        let mut metrics = PassMetrics::default();
        let mut work = self.pass.work.iter().peekable();
        for sequence in &self.running {
            let Some(work) = work.next_if(|work| work.request == sequence.request) else { continue };
            if let Some(chunk) = work.chunk {
                metrics.prefill.add(sequence.prompt);
                metrics.prefill_tokens += u64::from(chunk.new_tokens);
                metrics.prefill_kv_tokens += u64::from(chunk.prefix_tokens);
            } else if !sequence.is_ended(self.limits.max_model_len) {
                metrics.decode.add(sequence.known());
            }
        }
        self.count_queue(&mut metrics);
        metrics
    }

    fn is_charged_a_decode(&self, sequence: &Sequence, work: &Work) -> bool {
        let completes_prompt = sequence.generated == 0 && work.chunk.is_some();
        let prompt_counts_too = self.limits.first_token_decode || self.speculation.is_some();
        self.role != Role::Prefill
            && sequence.generated < sequence.wanted
            && sequence.is_ready()
            && (!completes_prompt || prompt_counts_too)
    }

    pub(super) fn complete_evaluated(&mut self, signals: &mut Signals) {
        let timeline = &self.passes.timeline;
        let rejection = |sequence: Sequence| Output::Rejected(sequence.request, sequence.stamps(timeline));
        signals.outputs.extend(self.pass.rejected.drain(..).map(rejection));
        if self.pass.work.is_empty() {
            return;
        }
        self.running_counters.passes += 1;
        self.running_counters.committed_prefill_tokens += self.pass.committed_tokens;
        if self.role == Role::Prefill {
            self.detach_computed(signals);
            return;
        }
        let pass = self.passes.timeline.passes() - 1;
        for sequence in &mut self.running {
            if !sequence.is_ready() || sequence.generated == sequence.wanted {
                continue;
            }
            let most = sequence.remaining(self.limits.max_model_len);
            let tokens = self.speculation.as_mut().map_or(1, |speculation| speculation.draw().min(most));
            sequence.emit_burst(pass, tokens);
        }
        self.report(pass, signals);
    }

    /// Takes the requests whose prompt is computed out of the batch; their blocks stay until they have been fetched.
    fn detach_computed(&mut self, signals: &mut Signals) {
        for sequence in self.running.extract_if(.., |sequence| sequence.is_ready()) {
            signals.outputs.push(Output::PromptComputed(sequence.request));
            self.sources.insert(sequence.request, sequence);
        }
    }

    /// Reports first tokens and ends after `pass`, request by request in the order of the batch, and lets everybody go who
    /// is done.
    pub(super) fn report(&mut self, pass: u32, signals: &mut Signals) {
        let Self { running, kv, passes: Passes { timeline, .. }, limits, head_blocked, .. } = self;
        running.retain_mut(|sequence| {
            if sequence.has_first_token_at(pass) {
                signals.outputs.push(Output::FirstToken(sequence.request));
            }
            let ended = sequence.is_ended(limits.max_model_len);
            if ended {
                kv.release(&mut sequence.hold, sequence.computed, Generated::Forgotten);
                sequence.tally_gaps(timeline);
                signals.outputs.push(Output::Completed(sequence.request, sequence.stamps(timeline)));
                *head_blocked = false;
            }
            !ended
        });
    }
}
