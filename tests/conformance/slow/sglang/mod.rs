//! One engine that schedules like SGLang: a pass computes prompts or generates, never both.

mod admission;
mod handoff;
mod ratio;
mod tree;

use std::collections::VecDeque;

use spica::config::scenario::{EngineOptions, TimingConfig};
use spica::report::record::Role;
use spica::workload::{Request, RequestId};

use super::content::Identity;
use super::engine::{Pass, Shared};
use super::price::price;
use ratio::Ratio;
use tree::{Hold, Tree};

/// One engine with its requests.
#[derive(Debug)]
pub(super) struct Engine<'a> {
    role: Role,
    options: &'a EngineOptions,
    timing: &'a TimingConfig,
    /// Ranks of the worker.
    ranks: u32,
    tree: Tree,
    ratio: Ratio,
    sequences: Vec<Option<Sequence>>,
    running: Vec<RequestId>,
    /// At the front a prompt that is computed in part, if there is one.
    waiting: VecDeque<RequestId>,
    /// Requests that ask for pages on this decode worker, in order.
    reservations: VecDeque<RequestId>,
    /// Requests with pages on this decode worker whose prompt is not there yet.
    reserved: Vec<RequestId>,
    /// Decode passes since the last with prompts; `None` before the first of these.
    decodes: Option<u32>,
}

/// A request as the engine sees it.
#[derive(Debug, Default)]
struct Sequence {
    prompt: u32,
    /// Tokens to generate.
    outputs: u32,
    generated: u32,
    /// Tokens whose KV was computed when it was last admitted.
    computed: u32,
    hold: Hold,
    /// Identities of its leading full pages, as far as they were needed.
    identities: Vec<Identity>,
}

impl Sequence {
    fn length(&self) -> u32 {
        self.prompt + self.generated
    }
}

/// A prompt's share of a pass.
#[derive(Clone, Copy, Debug)]
struct Chunk {
    request: RequestId,
    before: u32,
    tokens: u32,
}

impl<'a> Engine<'a> {
    /// An engine of a worker with `ranks` of them.
    pub(super) fn new(
        role: Role,
        options: &'a EngineOptions,
        timing: &'a TimingConfig,
        ranks: u32,
        requests: usize,
    ) -> Self {
        Self {
            role,
            options,
            timing,
            ranks,
            tree: Tree::new(options.num_gpu_blocks as usize, options.enable_prefix_caching),
            ratio: Ratio::new(options.sglang.schedule_conservativeness, ranks),
            sequences: (0..requests).map(|_| None).collect(),
            running: Vec::new(),
            waiting: VecDeque::new(),
            reservations: VecDeque::new(),
            reserved: Vec::new(),
            decodes: None,
        }
    }

    pub(super) fn submit(&mut self, id: RequestId, request: &Request) {
        self.sequences[id.0 as usize] = Some(self.sequence_of(request));
        self.waiting.push_back(id);
    }

    fn sequence_of(&self, request: &Request) -> Sequence {
        // The token that is sampled beside the prompt on a prefill worker is nobody's.
        let outputs = if self.role == Role::Prefill { 1 } else { request.output_length };
        Sequence { prompt: request.input_length, outputs, ..Sequence::default() }
    }

    pub(super) fn has_work(&self) -> bool {
        !self.running.is_empty() || !self.waiting.is_empty()
    }

    /// Pages held by requests.
    pub(super) fn blocks_held(&self) -> usize {
        self.tree.referenced()
    }

    /// Puts a pass together and carries it out.
    pub(super) fn pass(&mut self, shared: &mut Shared<'_>) -> Pass {
        let mut pass = Pass::default();
        let mut evictions_before = self.tree.evictions();
        let mut retracts;
        let chunks = loop {
            let chunks = self.admit(&mut pass, shared);
            retracts = chunks.is_empty() && self.retract(&mut pass, shared);
            if !retracts || !self.running.is_empty() {
                break chunks;
            }
            // A pass of no length: it is over.
            pass.settled.preemptions = pass.preemptions;
            pass.settled.evictions = self.tree.evictions() - evictions_before;
        };
        pass.preemptions -= pass.settled.preemptions;
        evictions_before += pass.settled.evictions;
        if chunks.is_empty() {
            self.generate(retracts, &mut pass, shared);
        } else {
            self.compute(&chunks, &mut pass, shared);
        }
        pass.evictions = self.tree.evictions() - evictions_before;
        pass.duration = price(self.timing, self.options, pass.batch);
        pass
    }

    /// Makes those who generated least leave until there are pages for a token of everybody else; false when nobody has to.
    fn retract(&mut self, pass: &mut Pass, shared: &mut Shared<'_>) -> bool {
        let mut retracts = false;
        loop {
            let lacking: usize = self.running.iter().map(|&request| self.lacking(request)).sum();
            if lacking <= self.tree.available() {
                break;
            }
            let generated = |place: &usize| self.sequence(self.running[*place]).generated;
            let victim = (0..self.running.len()).min_by_key(generated).expect("somebody lacks pages");
            let victim = self.running.remove(victim);
            self.release(victim, self.sequence(victim).length(), shared);
            self.sequence_mut(victim).computed = 0;
            self.waiting.push_back(victim);
            pass.preemptions += 1;
            retracts = true;
        }
        if retracts {
            let remaining = self.running.iter().map(|&request| self.sequence(request));
            let remaining: Vec<_> =
                remaining.map(|sequence| (sequence.generated, sequence.outputs)).collect();
            self.ratio.estimate(&remaining);
        }
        retracts
    }

    /// Pages that a request lacks for its next token, if there is to be one.
    fn lacking(&self, request: RequestId) -> usize {
        if self.outputs_left(request) == 0 {
            return 0;
        }
        let sequence = self.sequence(request);
        self.pages_for(sequence.length() + 1).saturating_sub(sequence.hold.pages())
    }

    /// A pass over prompts.
    fn compute(&mut self, chunks: &[Chunk], pass: &mut Pass, shared: &mut Shared<'_>) {
        pass.scheduled = chunks.len();
        for chunk in chunks.iter().filter(|chunk| chunk.tokens > 0) {
            pass.batch.prefill_requests += 1;
            pass.batch.prefix_tokens += u64::from(chunk.before);
            pass.batch.prompt_tokens += u64::from(chunk.before + chunk.tokens);
            pass.prefill_tokens += u64::from(chunk.tokens);
        }
        for chunk in chunks {
            let path = self.path(chunk.request, chunk.before + chunk.tokens, shared);
            let mut hold = std::mem::take(&mut self.sequence_mut(chunk.request).hold);
            self.tree.insert(&mut hold, &path);
            self.sequence_mut(chunk.request).hold = hold;
        }
        let is_whole =
            |engine: &Self, request| engine.sequence(request).computed == engine.sequence(request).length();
        let (whole, partial): (Vec<RequestId>, Vec<_>) =
            chunks.iter().map(|chunk| chunk.request).partition(|&request| is_whole(self, request));
        for request in partial {
            self.waiting.push_front(request);
        }
        if self.role == Role::Prefill {
            pass.held.extend(whole);
            return;
        }
        // Pages for first tokens are found before anybody gives pages up.
        let mut emitting = Vec::new();
        for &request in &whole {
            let left = self.outputs_left(request);
            if left > 0 && self.grow(request, self.sequence(request).length() + 1) {
                emitting.push(request);
            }
        }
        for request in whole {
            self.running.push(request);
            if emitting.contains(&request) {
                self.emit(request, pass);
            }
            self.finish(request, pass, shared);
        }
        self.decodes = Some(0);
    }

    /// A pass in which everybody running gets a token.
    fn generate(&mut self, retracts: bool, pass: &mut Pass, shared: &mut Shared<'_>) {
        let running = self.running.clone();
        if running.is_empty() {
            return;
        }
        pass.scheduled = running.len();
        let mut emitting = Vec::new();
        for &request in &running {
            if self.outputs_left(request) > 0 {
                let length = self.sequence(request).length();
                pass.batch.decode_requests += 1;
                pass.batch.decode_tokens += u64::from(length);
                assert!(self.grow(request, length + 1), "whoever lacked pages was retracted");
                emitting.push(request);
            }
        }
        pass.pure_decode_requests = pass.batch.decode_requests;
        pass.pure_decode_tokens = pass.batch.decode_tokens;
        for request in running {
            if emitting.contains(&request) {
                self.emit(request, pass);
            }
            self.finish(request, pass, shared);
        }
        self.decodes = self.decodes.map(|decodes| decodes + 1);
        if !retracts {
            self.ratio.fall();
        }
    }

    fn emit(&mut self, request: RequestId, pass: &mut Pass) {
        self.sequence_mut(request).generated += 1;
        pass.emitted.push(request);
    }

    /// Ends a running request that has all its tokens.
    fn finish(&mut self, request: RequestId, pass: &mut Pass, shared: &mut Shared<'_>) {
        if self.outputs_left(request) == 0 {
            self.release(request, self.sequence(request).length(), shared);
            self.sequences[request.0 as usize] = None;
            self.running.retain(|&other| other != request);
            pass.finished.push(request);
        }
    }

    /// Gives a request pages for `tokens` tokens; false when there are too few.
    fn grow(&mut self, request: RequestId, tokens: u32) -> bool {
        let pages = self.pages_for(tokens);
        let mut hold = std::mem::take(&mut self.sequence_mut(request).hold);
        let grown = self.tree.grow(&mut hold, pages);
        self.sequence_mut(request).hold = hold;
        grown
    }

    /// Takes all pages from a request; those that its first `tokens` tokens fill stay in the tree.
    fn release(&mut self, request: RequestId, tokens: u32, shared: &mut Shared<'_>) {
        let path = self.path(request, tokens, shared);
        let hold = std::mem::take(&mut self.sequence_mut(request).hold);
        self.tree.release(hold, &path);
    }

    /// Identities of the pages that a request's first `tokens` tokens fill.
    fn path(&mut self, request: RequestId, tokens: u32, shared: &mut Shared<'_>) -> Vec<Identity> {
        let page = self.options.block_size;
        let pages = tokens / page;
        let known = &mut self.sequence_mut(request).identities;
        for next in known.len() as u32..pages {
            let parent = known.last().copied();
            known.push(shared.identities.of_block(shared.workload, request, page, next, parent));
        }
        known[..pages as usize].to_vec()
    }

    /// Tokens that a request may yet generate.
    fn outputs_left(&self, request: RequestId) -> u32 {
        let sequence = self.sequence(request);
        let longest = self.options.max_model_len.unwrap_or(u32::MAX);
        (sequence.outputs - sequence.generated).min(longest.saturating_sub(sequence.length()))
    }

    fn most_running(&self) -> usize {
        self.options.max_num_seqs.map_or(usize::MAX, |most| most as usize)
    }

    fn pages_for(&self, tokens: u32) -> usize {
        tokens.div_ceil(self.options.block_size) as usize
    }

    fn sequence(&self, request: RequestId) -> &Sequence {
        self.sequences[request.0 as usize].as_ref().expect("the request is on this engine")
    }

    fn sequence_mut(&mut self, request: RequestId) -> &mut Sequence {
        self.sequences[request.0 as usize].as_mut().expect("the request is on this engine")
    }
}
