//! The scheduler of SGLang: prompts before generation, a radix cache, and room for output that is promised by experience.
//!
//! # A pass (`pass.rs`)
//!
//! A pass either computes prompts or generates, never both. If any prompt can be taken up (`admission.rs`), generation pauses
//! and the pass computes prompts; those that are complete get their first token at its end, and what they computed
//! goes into the cache (`radix.rs`). Otherwise everybody running gets one token (`run.rs`). Who needs a page that is
//! not to be had for its first token gets that in the next decode pass instead.
//!
//! # Promises (`token_ratio.rs`)
//!
//! A request that enters is charged its prompt and its output, up to a limit. What running requests may still need is
//! charged at a ratio below one, which falls while all goes well. When a decode pass lacks memory after all, the request
//! that generated least is *retracted*: it leaves its pages to the cache, goes to the end of the waiting queue, and the
//! ratio is estimated anew.
//!
//! # Roles (`handoff.rs`)
//!
//! A prefill engine sends nothing to the client: it keeps the pages of a computed prompt until they have been fetched. A
//! decode engine takes up requests whose prompt was computed elsewhere, into pages that it set aside before, and
//! computes no prompts: who comes back after a retraction joins the decode pass at once.

mod admission;
mod handoff;
mod pass;
mod radix;
mod run;
#[cfg(test)]
mod tests;
mod token_ratio;

use std::collections::VecDeque;

use rustc_hash::FxHashMap;

use self::admission::{Blocked, WaitingOrder};
use self::pass::Pass;
use self::radix::{Hold, RadixCache};
use self::token_ratio::TokenRatio;
use super::backlog::Backlog;
use super::metrics::{PassMetrics, Tally};
use super::passes::{PassKind, Passes};
use super::{Cadence, Engine, EngineError, HandOff, Inputs, Reservation, Signals, TokenStamps, sequence};
use crate::config::scenario::{EngineOptions, SglangSchedulePolicy};
use crate::report::peaks::Peaks;
use crate::report::record::{Counters, Role};
use crate::simulation::SimTime;
use crate::timing::Chunk;
use crate::workload::RequestId;
use crate::workload::prefix::{PathStep, SegmentId};

type Sequence = sequence::Sequence<Hold>;

/// Limits of the scheduler; what is unbounded is the type's maximum.
#[derive(Clone, Copy, Debug)]
struct Limits {
    /// Requests that may run at a time.
    max_num_seqs: usize,
    /// Longest sequence in tokens.
    max_model_len: u32,
    /// Tokens from which on a pass takes up no further prompt.
    prefill_tokens: u32,
    /// Tokens of prompts that one pass computes, in whole pages.
    chunk_tokens: u32,
    /// Output tokens that are set aside for a request at most.
    most_promised: u32,
    /// Decode passes between two passes with prompts.
    prefill_decode_interval: u32,
    policy: SglangSchedulePolicy,
    /// Whether the pass that completes a prompt is also charged a decode step for that request.
    first_token_decode: bool,
}

impl Limits {
    fn of(options: &EngineOptions, dp_size: u32) -> Self {
        let sglang = &options.sglang;
        // Ranks that share a worker's attention share its chunk.
        let chunk = sglang.chunked_prefill_size / dp_size;
        let whole_pages = chunk - chunk % options.block_size;
        Self {
            max_num_seqs: options.max_num_seqs.map_or(usize::MAX, |limit| limit as usize),
            max_model_len: options.max_model_len.unwrap_or(u32::MAX),
            prefill_tokens: sglang.max_prefill_tokens,
            chunk_tokens: if options.enable_chunked_prefill {
                whole_pages.max(options.block_size)
            } else {
                u32::MAX
            },
            most_promised: sglang.clip_max_new_tokens,
            prefill_decode_interval: options.prefill_decode_interval,
            policy: sglang.schedule_policy,
            first_token_decode: options.first_token_decode,
        }
    }
}

/// An engine rank that schedules like SGLang.
pub struct SglangEngine {
    inputs: Inputs,
    role: Role,
    limits: Limits,
    page_size: u32,
    cache: RadixCache,
    ratio: TokenRatio,
    /// In the order in which their prompts were completed.
    running: Vec<Sequence>,
    /// At the front a prompt that is computed in part, if there is one; it keeps its pages.
    waiting: VecDeque<Sequence>,
    order: WaitingOrder,
    /// Decode passes since the last with prompts.
    decodes_since_prefill: u32,
    /// Prompts computed here whose pages have not been fetched.
    sources: FxHashMap<RequestId, Sequence>,
    /// Requests that ask for pages, in order.
    asking: VecDeque<RequestId>,
    /// What the first of them lacks.
    asking_blocked: Option<Blocked>,
    /// Requests whose pages are set aside and whose content is on its way.
    reserved: FxHashMap<RequestId, Sequence>,
    pass: Pass,
    /// What the pass in progress, or the first of a run, reports; kept while somebody watches.
    metrics: Option<PassMetrics>,
    passes: Passes,
    /// The counters with those of a pass that is not over.
    running_counters: Counters,
    peaks: Peaks,
    /// The counters of passes that are over.
    counters: Counters,
    path: Vec<PathStep>,
}

impl SglangEngine {
    /// An empty engine of a worker with `dp_size` attention-data-parallel ranks. With `publish`, changes of its cache are reported.
    ///
    /// # Panics
    /// If `dp_size` is 0.
    pub fn new(options: &EngineOptions, role: Role, dp_size: u32, inputs: Inputs, publish: bool) -> Self {
        let published = if publish { inputs.tree.segment_count() as u32 } else { 0 };
        Self {
            role,
            limits: Limits::of(options, dp_size),
            page_size: options.block_size,
            cache: RadixCache::new(options.num_gpu_blocks, options.enable_prefix_caching, published),
            ratio: TokenRatio::new(options.sglang.schedule_conservativeness, dp_size),
            running: Vec::new(),
            waiting: VecDeque::new(),
            order: WaitingOrder::default(),
            decodes_since_prefill: u32::MAX,
            sources: FxHashMap::default(),
            asking: VecDeque::new(),
            asking_blocked: None,
            reserved: FxHashMap::default(),
            pass: Pass::default(),
            metrics: None,
            passes: Passes::default(),
            running_counters: Counters::default(),
            peaks: Peaks::default(),
            counters: Counters::default(),
            path: Vec::new(),
            inputs,
        }
    }

    fn new_sequence(&self, id: RequestId) -> Sequence {
        let request = &self.inputs.workload.requests[id.0 as usize];
        let wanted = if self.role == Role::Prefill { 1 } else { request.output_length };
        Sequence::new(id, request.input_length, wanted)
    }

    /// Works out the path of a request through the radix tree: its prompt, and what it generates itself.
    fn find_path(&mut self, request: RequestId) {
        let tree = &self.inputs.tree;
        tree.path(request, &mut self.path);
        let prompt = self.inputs.workload.requests[request.0 as usize].input_length;
        self.path.push(PathStep {
            segment: SegmentId(tree.segment_count() as u32 + request.0),
            start: prompt / self.page_size,
            blocks: u32::MAX,
        });
    }

    /// Takes the pages of a sequence, of which those that `tokens` tokens fill stay in the cache.
    fn release(&mut self, sequence: &mut Sequence, tokens: u32) {
        self.find_path(sequence.request);
        self.cache.release(&mut sequence.hold, &self.path, tokens / self.page_size);
    }

    fn settle_counters(&mut self) {
        self.counters = Counters { evictions: self.cache.evictions(), ..self.running_counters };
    }

    /// What the pass that has been composed reports.
    fn measure(&self) -> PassMetrics {
        let mut metrics = PassMetrics { prefill_tokens: self.pass.new_tokens(), ..PassMetrics::default() };
        for sequence in &self.pass.batch {
            metrics.prefill.add(sequence.prompt);
        }
        metrics.prefill_kv_tokens = self.pass.prefix_tokens();
        if self.pass.batch.is_empty() {
            let generating = |sequence: &&Sequence| sequence.remaining(self.limits.max_model_len) > 0;
            self.running.iter().filter(generating).for_each(|sequence| metrics.decode.add(sequence.known()));
        }
        for sequence in &self.waiting {
            match (sequence.generated, is_active(sequence), self.role) {
                (0, false, _) => metrics.queued_prefill.add(sequence.prompt),
                // A prompt that is computed in part stays in its place.
                (0, true, Role::Agg | Role::Prefill) => {}
                _ => metrics.queued_decode.add(sequence.known()),
            }
        }
        if self.role == Role::Decode {
            let prompt = |request: RequestId| self.inputs.workload.requests[request.0 as usize].input_length;
            let mut coming = Tally::default();
            self.asking.iter().chain(self.reserved.keys()).for_each(|&request| coming.add(prompt(request)));
            metrics.queued_decode = metrics.queued_decode.and(coming);
        }
        metrics
    }

    /// Requests that hold pages without taking part in passes.
    fn detached(&self) -> usize {
        self.sources.len() + self.reserved.len()
    }
}

/// Whether a waiting sequence holds its pages already.
fn is_active(sequence: &Sequence) -> bool {
    sequence.hold.pages() > 0
}

impl Engine for SglangEngine {
    fn enqueue(&mut self, request: RequestId) -> bool {
        let sequence = self.new_sequence(request);
        self.waiting.push_back(sequence);
        let may_be_first = self.waiting.len() == 1 || self.sorts_waiting();
        may_be_first && self.running.len() < self.limits.max_num_seqs
    }

    fn start_pass(
        &mut self,
        now: SimTime,
        _cadence: Cadence,
        signals: &mut Signals,
    ) -> Result<Option<SimTime>, EngineError> {
        if self.has_work() { self.start(now, signals) } else { Ok(None) }
    }

    fn passes(&self) -> &Passes {
        &self.passes
    }

    fn passes_mut(&mut self) -> &mut Passes {
        &mut self.passes
    }

    fn complete_pass(&mut self, signals: &mut Signals) {
        self.report_rejections(signals);
        let over = self.passes.complete();
        match std::mem::take(&mut self.pass.kind) {
            PassKind::None => {}
            PassKind::Evaluated => self.complete_prefill(signals),
            PassKind::Run => self.complete_run(over, signals),
        }
        self.cache.drain_changes(|segment, pages| signals.kv_changes.push((segment, pages)));
        self.settle_counters();
    }

    fn watch(&mut self) {
        self.metrics.get_or_insert_default();
    }

    fn peaks(&self) -> Option<Peaks> {
        Some(self.peaks)
    }

    fn pass_metrics(&self, pass: usize) -> PassMetrics {
        self.metrics.unwrap_or_default().after(pass as u32)
    }

    fn pass_chunks(&self, chunks: &mut Vec<(RequestId, Chunk)>) {
        if self.pass.kind == PassKind::Evaluated {
            chunks.extend(self.pass.chunks_of_requests());
        }
    }

    fn has_work(&self) -> bool {
        !self.running.is_empty() || !self.waiting.is_empty()
    }

    fn is_empty(&self) -> bool {
        !self.has_work() && self.detached() == 0 && self.asking.is_empty()
    }

    fn hand_off(&mut self) -> Option<&mut dyn HandOff> {
        Some(self)
    }

    fn unfinished(&self) -> Vec<(RequestId, TokenStamps)> {
        let in_passes = self.running.iter().chain(&self.pass.batch).chain(&self.pass.rejected);
        let sequences = in_passes.chain(&self.waiting).chain(self.reserved.values());
        let mut unfinished: Vec<_> =
            sequences.map(|sequence| (sequence.request, sequence.stamps(&self.passes.timeline))).collect();
        unfinished.extend(self.asking.iter().map(|&request| (request, TokenStamps::default())));
        unfinished.sort_unstable_by_key(|&(request, _)| request);
        unfinished
    }

    fn counters(&self) -> Counters {
        self.counters
    }

    fn blocks_held(&self) -> u32 {
        self.cache.referenced()
    }

    fn oldest_token_pass(&self) -> Option<u32> {
        self.running.iter().chain(&self.waiting).filter_map(Sequence::first_token_pass).min()
    }

    fn waiting_for(&self) -> Option<String> {
        let backlog = Backlog {
            running: self.running.len() + self.pass.batch.len(),
            waiting: self.waiting.len(),
            asking: self.asking.len(),
            detached: self.detached(),
            head: self.waiting.front().map(|head| (head.request, head.known())),
            available_blocks: self.cache.available(),
            blocks: self.cache.capacity(),
        };
        backlog.describe()
    }
}

impl HandOff for SglangEngine {
    fn release_source(&mut self, request: RequestId) {
        self.let_go(request);
    }

    fn ask_for_reservation(&mut self, request: RequestId) {
        self.asking.push_back(request);
    }

    fn grant_reservations(&mut self, granted: &mut Vec<Reservation>) {
        while let Some(reservation) = self.grant_next() {
            granted.push(reservation);
        }
        self.settle_counters();
    }

    fn activate(&mut self, request: RequestId) {
        self.activate_reserved(request);
    }
}
