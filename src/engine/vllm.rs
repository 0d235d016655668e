//! The vLLM-like scheduler: chunked prefill beside decodes, prefix reuse, preemption with recomputation.
//!
//! # A pass
//!
//! 1. Running requests are scheduled in order, as far as the token budget goes. Who finds no block for its next token
//!    makes another give way, or itself ([`PreemptionMode`]).
//! 2. Unless somebody had to give way, waiting requests are admitted, strictly in order: there must be room for the
//!    whole known sequence although blocks are taken chunk by chunk.
//! 3. The pass lasts as long as its prompt work plus its decode work. At its end every request whose known tokens are all
//!    computed gets a token, and who is done leaves its blocks behind for reuse.
//!
//! # Runs of passes
//!
//! While every running request is generating and nobody can be admitted, passes differ in nothing but the lengths of
//! their contexts. Up to [`LOOKAHEAD`] of them are planned at once, no further than the first that
//! ends a request, lacks a block, or (where a router listens) gives up a block that others could have found.

use std::collections::VecDeque;
use std::sync::Arc;

use super::kv::{Generated, Hold, KvCache};
use super::sequence::Sequence;
use super::{Admission, Engine, EngineError, Output, Signals, TokenStamps};
use crate::config::scenario::{EngineOptions, PreemptionMode};
use crate::report::record::{Counters, PassTimeline};
use crate::simulation::{SimDuration, SimTime};
use crate::timing::{Chunk, DecodeBatch, PassPricer};
use crate::workload::prefix::{PathStep, PrefixTree, SegmentId};
use crate::workload::{RequestId, Workload};

/// Most passes that are planned at once: bounds the work that a cut run throws away.
const LOOKAHEAD: u32 = 128;

/// Limits of a vLLM-like scheduler; what is unbounded is `u32::MAX`.
#[derive(Clone, Copy, Debug)]
struct Limits {
    max_num_seqs: usize,
    max_num_batched_tokens: u32,
    max_model_len: u32,
    chunked_prefill: bool,
    preemption: PreemptionMode,
    first_token_decode: bool,
}

/// A vLLM-like engine rank.
#[derive(Debug)]
pub struct VllmEngine {
    workload: Arc<Workload>,
    tree: Arc<PrefixTree>,
    pricer: PassPricer,
    limits: Limits,
    kv: KvCache,
    /// In the order of admission.
    running: Vec<Sequence>,
    waiting: VecDeque<Sequence>,
    /// The head of `waiting` was found not to fit, and nothing has been released since.
    head_blocked: bool,
    pass: Pass,
    timeline: PassTimeline,
    counters: Counters,
    path: Vec<PathStep>,
}

/// What is under way. Its buffers are reused.
#[derive(Debug, Default)]
struct Pass {
    kind: PassKind,
    /// Work of each request scheduled by an evaluated pass.
    work: Vec<Work>,
    chunks: Vec<Chunk>,
    rejected: Vec<Sequence>,
    preempted: bool,
    budget: u32,
    /// Tokens scheduled by prefill work.
    committed_tokens: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum PassKind {
    #[default]
    None,
    /// One pass in which anything may happen.
    Evaluated,
    /// Decode passes from this one of the timeline on.
    Run { first: u32 },
}

/// What one request does in a pass.
#[derive(Clone, Copy, Debug)]
struct Work {
    request: RequestId,
    tokens: u32,
    chunk: Option<Chunk>,
}

enum Scheduling {
    Scheduled,
    GaveWay,
    Blocked,
}

impl VllmEngine {
    /// An empty engine. With `publish`, changes of its cache are reported.
    pub fn new(
        options: &EngineOptions,
        workload: Arc<Workload>,
        tree: Arc<PrefixTree>,
        pricer: PassPricer,
        publish: bool,
    ) -> Self {
        let published = if publish { tree.segment_count() as u32 } else { 0 };
        let caching = options.enable_prefix_caching;
        Self {
            kv: KvCache::new(options.num_gpu_blocks, options.block_size, caching, published),
            workload,
            tree,
            pricer,
            limits: Limits {
                max_num_seqs: options.max_num_seqs.map_or(usize::MAX, |limit| limit as usize),
                max_num_batched_tokens: options.max_num_batched_tokens.unwrap_or(u32::MAX),
                max_model_len: options.max_model_len.unwrap_or(u32::MAX),
                chunked_prefill: options.enable_chunked_prefill,
                preemption: options.preemption_mode,
                first_token_decode: options.first_token_decode,
            },
            running: Vec::new(),
            waiting: VecDeque::new(),
            head_blocked: false,
            pass: Pass::default(),
            timeline: PassTimeline::default(),
            counters: Counters::default(),
            path: Vec::new(),
        }
    }

    // ---- Runs of decode passes -------------------------------------------------------------------------------------

    /// Whether the next pass can only be a decode step of everybody running.
    fn is_steady(&self) -> bool {
        let nobody_enters =
            self.waiting.is_empty() || self.head_blocked || self.running.len() >= self.limits.max_num_seqs;
        nobody_enters
            && !self.running.is_empty()
            && self.running.len() <= self.limits.max_num_batched_tokens as usize
            && self.running.iter().all(Sequence::is_decoding)
    }

    /// Plans as many decode passes as are sure to be alike; `None` when not even one is.
    fn start_run(&mut self, now: SimTime) -> Result<Option<SimTime>, EngineError> {
        let mut batch = DecodeBatch { requests: self.running.len() as u32, context_tokens: 0 };
        let mut passes = LOOKAHEAD;
        for sequence in &self.running {
            batch.context_tokens += u64::from(sequence.known());
            passes = passes.min(sequence.remaining(self.limits.max_model_len));
        }
        passes = self.passes_within(passes, self.kv.available());
        if self.kv.publishes() {
            // The pass that evicts has to be the last, so that the router hears of it at its end.
            passes = passes.min(self.passes_within(passes, self.kv.free()) + 1);
        }
        if passes == 0 {
            return Ok(None);
        }
        self.pass.kind = PassKind::Run { first: self.timeline.ends.len() as u32 };
        self.pricer.decode_run(now, batch, passes, &mut self.timeline.ends)?;
        Ok(self.timeline.ends.last().copied())
    }

    /// Blocks that `passes` decode steps of everybody running need.
    fn growth(&self, passes: u32) -> u64 {
        let block_size = self.kv.block_size();
        let blocks =
            |sequence: &Sequence| (sequence.computed + passes).div_ceil(block_size) - sequence.hold.blocks();
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
            let middle = fits.midpoint(fails);
            if self.growth(middle) <= u64::from(blocks) { fits = middle } else { fails = middle }
        }
        fits
    }

    /// Drops the passes of the run that have not begun at `now`; returns the new end if there were any.
    fn cut_run(&mut self, now: SimTime) -> Option<SimTime> {
        let PassKind::Run { first } = self.pass.kind else { return None };
        let ends = &self.timeline.ends[first as usize..];
        let over = ends.partition_point(|&end| end <= now);
        let begun = if over > 0 && ends[over - 1] == now { over } else { over + 1 };
        if begun >= ends.len() {
            return None;
        }
        self.timeline.ends.truncate(first as usize + begun);
        self.timeline.ends.last().copied()
    }

    fn complete_run(&mut self, first: u32, signals: &mut Signals) {
        let passes = self.timeline.ends.len() as u32 - first;
        self.counters.passes += u64::from(passes);
        for sequence in &mut self.running {
            sequence.computed += passes;
            let grown = self.kv.grow(&mut sequence.hold, sequence.computed);
            assert!(grown, "a run is planned within the blocks at hand");
            sequence.emit(first, passes);
        }
        self.report(first + passes - 1, signals);
    }

    // ---- Evaluated passes ------------------------------------------------------------------------------------------

    fn evaluate(&mut self, now: SimTime, signals: &mut Signals) -> Result<SimTime, EngineError> {
        self.pass.kind = PassKind::Evaluated;
        loop {
            self.compose(signals);
            if !self.pass.work.is_empty() {
                break;
            }
            if !self.pass.rejected.is_empty() {
                return Ok(now);
            }
            if !self.pass.preempted {
                return Err(EngineError::Stuck(self.waiting_for()));
            }
            // Everybody running gave way, so nothing was scheduled: compose again from the waiting queue.
        }
        let end = now + self.price()?;
        self.timeline.ends.push(end);
        Ok(end)
    }

    /// Decides who does what in the pass.
    fn compose(&mut self, signals: &mut Signals) {
        let pass = &mut self.pass;
        pass.work.clear();
        pass.rejected.clear();
        pass.preempted = false;
        pass.budget = self.limits.max_num_batched_tokens;
        self.schedule_running();
        if !self.pass.preempted {
            self.admit_waiting(signals);
        }
    }

    fn schedule_running(&mut self) {
        let mut scan = 0;
        while scan < self.running.len() && self.pass.budget > 0 {
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
        let computed = sequence.computed + tokens;
        let mut position = position;
        while !self.kv.grow(&mut self.running[position].hold, computed) {
            let victim = match self.limits.preemption {
                PreemptionMode::Lifo => self.running.len() - 1,
                PreemptionMode::Fifo => 0,
            };
            self.preempt(victim);
            if victim == position {
                return Scheduling::GaveWay;
            }
            if victim < position {
                position -= 1;
            }
        }
        self.compute(position, tokens);
        Scheduling::Scheduled
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
            self.tree.path(sequence.request, &mut self.path);
            self.kv.publish_prompt(&mut sequence.hold, &self.path, sequence.computed);
        }
        let new_tokens = sequence.computed.min(sequence.prompt).saturating_sub(before);
        let chunk = (new_tokens > 0).then_some(Chunk { new_tokens, prefix_tokens: before });
        self.pass.work.push(Work { request: sequence.request, tokens, chunk });
        self.pass.budget -= tokens;
    }

    /// Takes the blocks of a running request and puts it at the head of the waiting queue.
    fn preempt(&mut self, position: usize) {
        let mut sequence = self.running.remove(position);
        if let Some(index) = self.pass.work.iter().position(|work| work.request == sequence.request) {
            self.pass.budget += self.pass.work.remove(index).tokens;
        }
        let own = self.own_step(&sequence);
        let generated = Generated::Findable { segment: own.segment, start: own.start };
        self.kv.release(&mut sequence.hold, sequence.computed, generated);
        sequence.computed = 0;
        self.waiting.push_front(sequence);
        self.pass.preempted = true;
        self.head_blocked = false;
        self.counters.preemptions += 1;
    }

    /// The segment under which a sequence finds its own generated blocks again.
    fn own_step(&self, sequence: &Sequence) -> PathStep {
        PathStep {
            segment: SegmentId(self.tree.segment_count() as u32 + sequence.request.0),
            start: sequence.prompt / self.kv.block_size(),
            blocks: u32::MAX,
        }
    }

    fn admit_waiting(&mut self, signals: &mut Signals) {
        self.head_blocked = false;
        while self.pass.budget > 0 && self.running.len() < self.limits.max_num_seqs {
            let Some(head) = self.waiting.front() else { return };
            if self.can_never_run(head) {
                self.reject_head();
                continue;
            }
            let (known, prompt, finds_own) = (head.known(), head.prompt, head.generated > 0);
            let (limit, own) = (self.look_up_limit(head), self.own_step(head));
            self.tree.path(head.request, &mut self.path);
            if finds_own {
                self.path.push(own);
            }
            let found = self.kv.look_up(&self.path, limit);
            let cached = found.blocks * self.kv.block_size();
            if known.div_ceil(self.kv.block_size()) - found.referenced > self.kv.available() {
                self.head_blocked = true;
                return;
            }
            if !self.limits.chunked_prefill
                && prompt.saturating_sub(cached) > self.limits.max_num_batched_tokens
            {
                self.reject_head();
                continue;
            }
            let Some(tokens) = self.tokens_to_schedule(&self.waiting[0], cached) else { return };
            let hold = self.kv.take_match();
            self.admit(hold, cached, tokens, signals);
        }
    }

    /// Whether not even an empty engine could run a request. The reference asks only of requests that never ran whether the
    /// cache is large enough, and hangs on one that outgrew it; here it is rejected like the others.
    fn can_never_run(&self, sequence: &Sequence) -> bool {
        sequence.prompt >= self.limits.max_model_len
            || sequence.known().div_ceil(self.kv.block_size()) > self.kv.capacity()
    }

    fn reject_head(&mut self) {
        if let Some(sequence) = self.waiting.pop_front() {
            self.pass.rejected.push(sequence);
        }
    }

    /// Most blocks that a sequence may find in the cache: its last token has to be computed, or there would be nothing to
    /// sample from.
    fn look_up_limit(&self, sequence: &Sequence) -> u32 {
        let samples = sequence.generated < sequence.wanted;
        (sequence.known() - u32::from(samples)) / self.kv.block_size()
    }

    /// Moves the head of the waiting queue into the batch.
    fn admit(&mut self, hold: Hold, cached: u32, tokens: u32, signals: &mut Signals) {
        let Some(mut sequence) = self.waiting.pop_front() else { return };
        sequence.hold = hold;
        sequence.computed = cached;
        let grown = self.kv.grow(&mut sequence.hold, cached + tokens);
        assert!(grown, "admission made sure of room for the whole sequence");
        signals.admitted.push(Admission { request: sequence.request, reused_tokens: cached });
        self.running.push(sequence);
        self.compute(self.running.len() - 1, tokens);
    }

    /// Duration of the evaluated pass: its chunks, and the requests that generate from a prompt completed earlier.
    fn price(&mut self) -> Result<SimDuration, EngineError> {
        let mut batch = DecodeBatch { requests: 0, context_tokens: 0 };
        self.pass.chunks.clear();
        let mut committed = 0;
        let mut work = self.pass.work.iter().peekable();
        for sequence in &self.running {
            let Some(work) = work.next_if(|work| work.request == sequence.request) else { continue };
            if let Some(chunk) = work.chunk {
                self.pass.chunks.push(chunk);
                committed += u64::from(work.tokens);
            }
            let completes_prompt = sequence.generated == 0 && work.chunk.is_some();
            let decodes = sequence.generated < sequence.wanted
                && sequence.is_ready()
                && (!completes_prompt || self.limits.first_token_decode);
            if decodes {
                batch.requests += 1;
                batch.context_tokens += u64::from(sequence.known());
            }
        }
        debug_assert!(work.next().is_none(), "work is kept in the order of the batch");
        self.pass.committed_tokens = committed;
        Ok(self.pricer.pass(&self.pass.chunks, batch)?)
    }

    fn complete_evaluated(&mut self, signals: &mut Signals) {
        let rejected = self.pass.rejected.iter();
        let stamps =
            |sequence: &Sequence| Output::Rejected(sequence.request, sequence.stamps(&self.timeline));
        signals.outputs.extend(rejected.map(stamps));
        if self.pass.work.is_empty() {
            return;
        }
        self.counters.passes += 1;
        self.counters.committed_prefill_tokens += self.pass.committed_tokens;
        let pass = self.timeline.ends.len() as u32 - 1;
        for sequence in &mut self.running {
            if sequence.is_ready() && sequence.generated < sequence.wanted {
                sequence.emit(pass, 1);
            }
        }
        self.report(pass, signals);
    }

    /// Reports first tokens and ends after `pass`, request by request in the order of the batch, and lets everybody go who
    /// is done.
    fn report(&mut self, pass: u32, signals: &mut Signals) {
        let Self { running, kv, timeline, limits, head_blocked, .. } = self;
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

impl Engine for VllmEngine {
    fn enqueue(&mut self, request: RequestId, now: SimTime) -> Option<SimTime> {
        let sequence = Sequence::new(request, &self.workload.requests[request.0 as usize]);
        self.waiting.push_back(sequence);
        let has_to_wait = self.head_blocked || self.running.len() >= self.limits.max_num_seqs;
        if has_to_wait { None } else { self.cut_run(now) }
    }

    fn start_pass(&mut self, now: SimTime, signals: &mut Signals) -> Result<Option<SimTime>, EngineError> {
        if !self.has_work() {
            return Ok(None);
        }
        if self.is_steady()
            && let Some(end) = self.start_run(now)?
        {
            return Ok(Some(end));
        }
        self.evaluate(now, signals).map(Some)
    }

    fn complete_pass(&mut self, signals: &mut Signals) {
        match std::mem::take(&mut self.pass.kind) {
            PassKind::None => {}
            PassKind::Evaluated => self.complete_evaluated(signals),
            PassKind::Run { first } => self.complete_run(first, signals),
        }
        self.kv.drain_changes(|segment, blocks| signals.kv_changes.push((segment, blocks)));
    }

    fn has_work(&self) -> bool {
        !self.running.is_empty() || !self.waiting.is_empty()
    }

    fn stop(&mut self, limit: SimTime) -> Option<SimTime> {
        let over = self.timeline.ends.partition_point(|&end| end <= limit);
        self.timeline.ends.truncate(over);
        if let PassKind::Run { first } = std::mem::take(&mut self.pass.kind)
            && over > first as usize
        {
            self.complete_run(first, &mut Signals::default());
        }
        self.timeline.ends.last().copied()
    }

    fn unfinished(&self) -> Vec<(RequestId, TokenStamps)> {
        let sequences = self.running.iter().chain(&self.waiting);
        sequences.map(|sequence| (sequence.request, sequence.stamps(&self.timeline))).collect()
    }

    fn counters(&self) -> Counters {
        Counters { evictions: self.kv.evictions(), ..self.counters }
    }

    fn blocks_held(&self) -> u32 {
        self.kv.referenced()
    }

    fn take_timeline(&mut self) -> PassTimeline {
        std::mem::take(&mut self.timeline)
    }

    fn waiting_for(&self) -> String {
        let (capacity, available) = (self.kv.capacity(), self.kv.available());
        let (running, waiting) = (self.running.len(), self.waiting.len());
        let head = self.waiting.front().map_or_else(String::new, |head| {
            format!("; first in line is request {} with {} tokens", head.request.0, head.known())
        });
        format!("{running} running, {waiting} waiting, {available} of {capacity} KV blocks available{head}")
    }
}
