//! The scheduler that vLLM and TensorRT-LLM share: chunked prefill beside decodes, prefix reuse, blocks taken as
//! sequences grow. [`Rules`] says in what the two differ.
//!
//! # A pass (`pass.rs`)
//!
//! 1. Running requests are scheduled in order, as far as the token budget goes. Who finds no block for its next token
//!    makes another give way, or itself ([`PreemptionMode`]).
//! 2. Unless somebody had to give way, waiting requests are admitted, strictly in order.
//! 3. The pass lasts as long as its prompt work plus its decode work. At its end every request whose known tokens are all
//!    computed gets a token (or a burst of them, with [`Speculation`]), and who is done leaves its blocks behind for reuse.
//!
//! # Runs of passes (`run.rs`)
//!
//! While every running request is generating and nobody can be admitted, passes differ in nothing but the lengths of
//! their contexts, and many are planned at once.
//!
//! # Roles (`handoff.rs`)
//!
//! A prefill engine sends nothing to the client: it keeps the blocks of a computed prompt until they have been fetched. A
//! decode engine admits requests whose prompt arrives from elsewhere, and never charges prompt work.

mod handoff;
mod pass;
mod run;

use std::collections::VecDeque;
use std::fmt;
use std::marker::PhantomData;

use rustc_hash::FxHashMap;

use self::pass::Pass;
use super::backlog::Backlog;
use super::kv::{Foresight, KvCache, Match};
use super::metrics::{Accepted, PassMetrics, Tally};
use super::passes::{PassKind, Passes};
use super::sequence::Sequence;
use super::speculation::Speculation;
use super::waiting::WaitingQueue;
use super::{Cadence, Engine, EngineError, HandOff, Inputs, Reservation, Signals, TokenStamps};
use crate::config::scenario::{EngineOptions, PreemptionMode};
use crate::report::peaks::Peaks;
use crate::report::record::{Counters, Role};
use crate::simulation::SimTime;
use crate::timing::Chunk;
use crate::workload::prefix::PathStep;
use crate::workload::{Request, RequestId};

/// In what paged schedulers differ.
pub trait Rules: fmt::Debug + Send + 'static {
    /// Output tokens that a request will get.
    fn output_tokens(request: &Request, limits: &Limits, cache: &KvCache) -> u32;

    /// Whether not even an empty cache could hold a sequence.
    fn never_fits(sequence: &Sequence, cache: &KvCache) -> bool;

    /// Whether the head of the waiting queue, of which `found` is cached, may enter beside `running`.
    fn has_room<'a>(
        head: &Sequence,
        found: Match,
        holders: impl Iterator<Item = &'a Sequence>,
        cache: &KvCache,
    ) -> bool;

    /// Tokens of a sequence that may come from the cache.
    fn look_up_tokens(sequence: &Sequence) -> u32;
}

/// Limits of a paged scheduler; what is unbounded is the type's maximum.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Requests that may run at a time.
    pub max_num_seqs: usize,
    /// Tokens that one pass may compute.
    pub max_num_batched_tokens: u32,
    /// Longest sequence in tokens.
    pub max_model_len: u32,
    /// Whether a prompt may be computed in several passes.
    pub chunked_prefill: bool,
    /// Who gives way.
    pub preemption: PreemptionMode,
    /// Whether the pass that completes a prompt is also charged a decode step for that request.
    pub first_token_decode: bool,
}

impl Limits {
    fn of(options: &EngineOptions) -> Self {
        Self {
            max_num_seqs: options.max_num_seqs.map_or(usize::MAX, |limit| limit as usize),
            max_num_batched_tokens: options.max_num_batched_tokens.unwrap_or(u32::MAX),
            max_model_len: options.max_model_len.unwrap_or(u32::MAX),
            chunked_prefill: options.enable_chunked_prefill,
            preemption: options.preemption_mode,
            first_token_decode: options.first_token_decode,
        }
    }
}

/// An engine rank with a paged scheduler.
pub struct PagedEngine<R> {
    inputs: Inputs,
    role: Role,
    limits: Limits,
    kv: KvCache,
    /// In the order of admission.
    running: Vec<Sequence>,
    waiting: WaitingQueue,
    /// The head of `waiting` was found not to fit, and nothing has been released since.
    head_blocked: bool,
    /// The head of `waiting` was found not to fit when the group last took up prompt work.
    was_bound: bool,
    /// Passes of the run under way before the first in which the group takes up prompt work.
    passes_to_open: Option<u32>,
    speculation: Option<Speculation>,
    /// Prompts computed here whose blocks have not been fetched.
    sources: FxHashMap<RequestId, Sequence>,
    /// Requests that ask for blocks, in order.
    asking: VecDeque<RequestId>,
    /// Requests whose blocks are set aside and whose content is on its way.
    reserved: FxHashMap<RequestId, Sequence>,
    pass: Pass,
    /// What the pass in progress, or the first of a run, reports; kept while somebody watches.
    metrics: Option<PassMetrics>,
    passes: Passes,
    /// Counters that run ahead with the pass under way.
    running_counters: Counters,
    /// Counters of what is over.
    counters: Counters,
    peaks: Peaks,
    path: Vec<PathStep>,
    rules: PhantomData<R>,
}

impl<R: Rules> PagedEngine<R> {
    /// An empty engine for scheduler `rank` of its pool. With `publish`, changes of its cache are reported.
    pub fn new(options: &EngineOptions, role: Role, rank: u32, inputs: Inputs, publish: bool) -> Self {
        let published = if publish { inputs.tree.segment_count() as u32 } else { 0 };
        let caching = options.enable_prefix_caching;
        let speculation = options.aic_nextn.filter(|&drafts| drafts > 0).map(|drafts| {
            let seed = options.aic_mtp_seed.wrapping_add(u64::from(rank));
            Speculation::new(drafts, options.aic_nextn_accept_rates.as_deref(), seed)
        });
        let mut kv = KvCache::new(options.num_gpu_blocks, options.block_size, caching, published);
        if let Some(future) = &inputs.future {
            kv.evict_by(Foresight::new(future.clone()));
        }
        Self {
            kv,
            inputs,
            role,
            limits: Limits::of(options),
            running: Vec::new(),
            waiting: WaitingQueue::default(),
            head_blocked: false,
            was_bound: false,
            passes_to_open: None,
            speculation,
            sources: FxHashMap::default(),
            asking: VecDeque::new(),
            reserved: FxHashMap::default(),
            pass: Pass::default(),
            metrics: None,
            passes: Passes::default(),
            running_counters: Counters::default(),
            counters: Counters::default(),
            peaks: Peaks::default(),
            path: Vec::new(),
            rules: PhantomData,
        }
    }

    fn new_sequence(&self, id: RequestId) -> Sequence {
        let request = &self.inputs.workload.requests[id.0 as usize];
        let wanted = match self.role {
            Role::Prefill => 1,
            Role::Agg | Role::Decode => R::output_tokens(request, &self.limits, &self.kv),
        };
        Sequence::new(id, request.input_length, wanted)
    }

    fn settle_counters(&mut self) {
        self.counters = Counters { evictions: self.kv.evictions(), ..self.running_counters };
    }

    /// Fills in who waits, right after a pass was composed.
    fn count_queue(&self, metrics: &mut PassMetrics) {
        metrics.queued_prefill = self.waiting.fresh();
        metrics.queued_decode = self.waiting.back();
        if self.role == Role::Decode {
            let prompt = |request: RequestId| self.inputs.workload.requests[request.0 as usize].input_length;
            let mut coming = Tally::default();
            self.asking.iter().chain(self.reserved.keys()).for_each(|&request| coming.add(prompt(request)));
            metrics.queued_decode = metrics.queued_decode.and(coming);
        }
    }

    /// Requests that hold blocks without taking part in passes.
    fn detached(&self) -> usize {
        self.sources.len() + self.reserved.len()
    }
}

impl<R: Rules> Engine for PagedEngine<R> {
    fn enqueue(&mut self, request: RequestId) -> bool {
        let sequence = self.new_sequence(request);
        self.waiting.push_back(sequence);
        self.kv.awaits(request);
        !self.head_blocked && self.running.len() < self.limits.max_num_seqs
    }

    fn start_pass(
        &mut self,
        now: SimTime,
        cadence: Cadence,
        signals: &mut Signals,
    ) -> Result<Option<SimTime>, EngineError> {
        if !self.has_work() {
            return Ok(None);
        }
        if self.is_steady(cadence)
            && let Some(end) = self.start_run(now, cadence)?
        {
            return Ok(Some(end));
        }
        self.evaluate(now, cadence, signals)
    }

    fn passes(&self) -> &Passes {
        &self.passes
    }

    fn passes_mut(&mut self) -> &mut Passes {
        &mut self.passes
    }

    fn complete_pass(&mut self, signals: &mut Signals) {
        let over = self.passes.complete();
        match std::mem::take(&mut self.pass.kind) {
            PassKind::None => {}
            PassKind::Evaluated => self.complete_evaluated(signals),
            PassKind::Run => self.complete_run(over, signals),
        }
        self.kv.drain_changes(|segment, blocks| signals.kv_changes.push((segment, blocks)));
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

    fn take_accepted(&mut self) -> Accepted {
        self.speculation.as_mut().map(Speculation::take_accepted).unwrap_or_default()
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
        let outside = self.pass.rejected.iter().chain(self.reserved.values());
        let sequences = self.running.iter().chain(&self.waiting).chain(outside);
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
        self.kv.referenced()
    }

    fn oldest_token_pass(&self) -> Option<u32> {
        self.running.iter().chain(&self.waiting).filter_map(Sequence::first_token_pass).min()
    }

    fn waiting_for(&self) -> Option<String> {
        let backlog = Backlog {
            running: self.running.len(),
            waiting: self.waiting.len(),
            asking: self.asking.len(),
            detached: self.detached(),
            head: self.waiting.front().map(|head| (head.request, head.known())),
            available_blocks: self.kv.available(),
            blocks: self.kv.capacity(),
        };
        backlog.describe()
    }
}

impl<R: Rules> HandOff for PagedEngine<R> {
    fn release_source(&mut self, request: RequestId) {
        self.let_source_go(request);
    }

    fn ask_for_reservation(&mut self, request: RequestId) {
        self.asking.push_back(request);
        self.kv.awaits(request);
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
