//! One engine with a paged KV cache, vLLM's or TensorRT-LLM's: what it schedules in a pass.
//!
//! TensorRT-LLM differs in what an admission needs ([`waiting`]): whoever is admitted runs to the end, so nobody ever has to
//! give way.

mod handoff;
mod speculation;
mod waiting;

use std::collections::VecDeque;

use spica::config::scenario::{Backend, EngineOptions, PreemptionMode, TimingConfig};
use spica::report::record::Role;
use spica::workload::{Request, RequestId};

use super::content::Identity;
use super::engine::{Pass, Shared};
use super::pool::{BlockId, Pool};
use super::price::price;
use speculation::Speculation;

/// One engine with its requests.
#[derive(Debug)]
pub(super) struct Engine<'a> {
    role: Role,
    options: &'a EngineOptions,
    timing: &'a TimingConfig,
    pool: Pool,
    speculation: Option<Speculation<'a>>,
    sequences: Vec<Option<Sequence>>,
    running: Vec<RequestId>,
    waiting: VecDeque<RequestId>,
    /// Requests that ask for blocks on this decode worker, in order.
    reservations: VecDeque<RequestId>,
    /// Admission stopped for want of room the last time prompts were let in.
    was_full: bool,
}

/// A request as the engine sees it.
#[derive(Debug, Default)]
struct Sequence {
    prompt: u32,
    /// Tokens to generate.
    outputs: u32,
    generated: u32,
    /// Tokens with KV in `blocks`.
    computed: u32,
    blocks: Vec<BlockId>,
    /// Identities of the leading full blocks of the known tokens, as far as they were needed.
    identities: Vec<Identity>,
    /// Waits with its blocks: its prompt was computed elsewhere.
    activated: bool,
}

/// A request's share of a pass.
#[derive(Clone, Copy, Debug)]
struct Share {
    request: RequestId,
    tokens: u32,
    prompt_before: u32,
    prompt_tokens: u32,
}

/// A pass while it is being put together.
#[derive(Debug)]
struct Plan {
    budget: u32,
    /// Prompts have their turn in this pass.
    cadence: bool,
    /// Nothing but decodes is done in this pass.
    defers: bool,
    shares: Vec<Share>,
    preemptions: u64,
}

impl Sequence {
    fn length(&self) -> u32 {
        self.prompt + self.generated
    }

    /// Whether the next thing to do is to compute the latest token and sample one more.
    fn is_decoding(&self) -> bool {
        self.generated > 0 && self.computed + 1 == self.length()
    }
}

impl<'a> Engine<'a> {
    /// The engine of rank `rank` of all that have this role.
    pub(super) fn new(
        role: Role,
        options: &'a EngineOptions,
        timing: &'a TimingConfig,
        rank: u32,
        requests: usize,
    ) -> Self {
        Self {
            role,
            options,
            timing,
            pool: Pool::new(options.num_gpu_blocks as usize),
            speculation: Speculation::new(options, rank),
            sequences: (0..requests).map(|_| None).collect(),
            running: Vec::new(),
            waiting: VecDeque::new(),
            reservations: VecDeque::new(),
            was_full: false,
        }
    }

    pub(super) fn submit(&mut self, id: RequestId, request: &Request) {
        self.sequences[id.0 as usize] = Some(self.sequence_of(request));
        self.waiting.push_back(id);
    }

    fn sequence_of(&self, request: &Request) -> Sequence {
        let asked = match self.role {
            // The token that is sampled beside the prompt is nobody's.
            Role::Prefill => 1,
            Role::Agg | Role::Decode => request.output_length,
        };
        let prompt = request.input_length;
        let outputs = match self.options.backend {
            Backend::Trtllm => asked.min(self.longest().saturating_sub(prompt)),
            Backend::Vllm | Backend::Sglang => asked,
        };
        Sequence { prompt, outputs, ..Sequence::default() }
    }

    /// Tokens of the longest sequence that TensorRT-LLM generates.
    fn longest(&self) -> u32 {
        let capacity = self.pool.size() as u64 * u64::from(self.options.block_size);
        let capacity = u32::try_from(capacity).unwrap_or(u32::MAX);
        capacity.min(self.options.max_model_len.unwrap_or(u32::MAX))
    }

    pub(super) fn has_work(&self) -> bool {
        !self.running.is_empty() || !self.waiting.is_empty()
    }

    /// Blocks held by requests.
    pub(super) fn blocks_held(&self) -> usize {
        self.pool.referenced()
    }

    /// Puts a pass together and carries it out. `cadence` tells whether prompts have their turn in it.
    pub(super) fn pass(&mut self, cadence: bool, shared: &mut Shared<'_>) -> Pass {
        let mut plan = Plan {
            budget: self.options.max_num_batched_tokens.unwrap_or(u32::MAX),
            cadence,
            defers: !cadence && !self.was_full && self.decodes(),
            shares: Vec::new(),
            preemptions: 0,
        };
        let mut pass = Pass::default();
        let evictions_before = self.pool.evictions();
        self.schedule_running(&mut plan, shared);
        if plan.preemptions == 0 {
            self.schedule_waiting(&mut plan, &mut pass, shared);
        }
        self.look_ahead(&mut plan);
        pass.scheduled = plan.shares.len();
        pass.preemptions = plan.preemptions;
        pass.evictions = self.pool.evictions() - evictions_before;
        self.price(&plan, &mut pass);
        self.emit(&mut pass, shared);
        pass
    }

    fn decodes(&self) -> bool {
        self.running.iter().any(|&request| self.sequence(request).is_decoding())
    }

    fn schedule_running(&mut self, plan: &mut Plan, shared: &mut Shared<'_>) {
        let mut index = 0;
        while index < self.running.len() && plan.budget > 0 {
            let request = self.running[index];
            let sequence = self.sequence(request);
            let computed = sequence.computed;
            if plan.defers && !sequence.is_decoding() {
                index += 1;
                continue;
            }
            let tokens = (sequence.length() - computed).min(plan.budget);
            if self.make_room(request, computed + tokens, plan) {
                self.compute(request, computed, tokens, plan, shared);
                // Under FIFO this skips one request for every victim that stood in front: the index does not
                // follow the removals.
                index += 1;
            }
        }
    }

    /// Preempts until `request` can hold `tokens` tokens; false when it had to give way itself.
    fn make_room(&mut self, request: RequestId, tokens: u32, plan: &mut Plan) -> bool {
        loop {
            let wanted = self.blocks_for(tokens).saturating_sub(self.sequence(request).blocks.len());
            if wanted <= self.pool.available() {
                return true;
            }
            assert_ne!(self.options.backend, Backend::Trtllm, "whoever was admitted has room to the end");
            let victim = match self.options.preemption_mode {
                PreemptionMode::Lifo => self.running.len() - 1,
                PreemptionMode::Fifo => 0,
            };
            let victim = self.running.remove(victim);
            self.preempt(victim, plan);
            if victim == request {
                return false;
            }
        }
    }

    fn preempt(&mut self, victim: RequestId, plan: &mut Plan) {
        self.release_blocks(victim);
        self.sequence_mut(victim).computed = 0;
        self.waiting.push_front(victim);
        plan.preemptions += 1;
        if let Some(place) = plan.shares.iter().position(|share| share.request == victim) {
            plan.budget += plan.shares.remove(place).tokens;
        }
    }

    /// Computes `tokens` tokens of a running request after the first `before`; there is room.
    fn compute(
        &mut self,
        request: RequestId,
        before: u32,
        tokens: u32,
        plan: &mut Plan,
        shared: &mut Shared<'_>,
    ) {
        let after = before + tokens;
        self.take_blocks(request, after);
        self.publish(request, before, after, shared);
        let sequence = self.sequence_mut(request);
        sequence.computed = after;
        let prompt_before = before.min(sequence.prompt);
        let prompt_tokens = after.min(sequence.prompt) - prompt_before;
        plan.budget -= tokens;
        plan.shares.push(Share { request, tokens, prompt_before, prompt_tokens });
    }

    /// Gives a request blocks for `tokens` tokens; there is room.
    fn take_blocks(&mut self, request: RequestId, tokens: u32) {
        while self.sequence(request).blocks.len() < self.blocks_for(tokens) {
            let block = self.pool.take();
            self.sequence_mut(request).blocks.push(block);
        }
    }

    /// Makes the blocks findable that are full with `after` tokens and were not with `before`.
    fn publish(&mut self, request: RequestId, before: u32, after: u32, shared: &mut Shared<'_>) {
        if !self.options.enable_prefix_caching {
            return;
        }
        for index in before / self.options.block_size..after / self.options.block_size {
            let identity = self.identity(request, index, shared);
            let block = self.sequence(request).blocks[index as usize];
            self.pool.publish(block, identity);
        }
    }

    fn price(&self, plan: &Plan, pass: &mut Pass) {
        let batch = &mut pass.batch;
        let mut prompts = Vec::new();
        let computed_here = self.role != Role::Decode;
        for share in plan.shares.iter().filter(|share| share.prompt_tokens > 0 && computed_here) {
            prompts.push(share.request);
            batch.prefill_requests += 1;
            batch.prefix_tokens += u64::from(share.prompt_before);
            batch.prompt_tokens += u64::from(share.prompt_before + share.prompt_tokens);
            pass.prefill_tokens += u64::from(share.tokens);
        }
        for &request in self.running.iter().filter(|_| self.role != Role::Prefill) {
            let sequence = self.sequence(request);
            if sequence.computed < sequence.length() || self.outputs_left(request) == 0 {
                continue;
            }
            let tokens = u64::from(sequence.length());
            let with_prompt = prompts.contains(&request);
            let at_once = self.options.first_token_decode || self.speculation.is_some();
            if sequence.generated > 0 || !with_prompt || at_once {
                batch.decode_requests += 1;
                batch.decode_tokens += tokens;
            }
            if !with_prompt {
                pass.pure_decode_requests += 1;
                pass.pure_decode_tokens += tokens;
            }
        }
        pass.duration = price(self.timing, self.options, *batch);
    }

    fn emit(&mut self, pass: &mut Pass, shared: &mut Shared<'_>) {
        for request in self.running.clone() {
            let sequence = self.sequence(request);
            if sequence.computed < sequence.length() {
                continue;
            }
            if self.role == Role::Prefill {
                self.running.retain(|&other| other != request);
                pass.held.push(request);
                continue;
            }
            for _ in 0..self.burst(request) {
                self.sequence_mut(request).generated += 1;
                pass.emitted.push(request);
            }
            self.keep_burst(request, shared);
            if self.outputs_left(request) == 0 {
                self.release_blocks(request);
                self.sequences[request.0 as usize] = None;
                self.running.retain(|&other| other != request);
                pass.finished.push(request);
            }
        }
    }

    /// Tokens that a request may yet generate.
    fn outputs_left(&self, request: RequestId) -> u32 {
        let sequence = self.sequence(request);
        let longest = self.options.max_model_len.unwrap_or(u32::MAX);
        (sequence.outputs - sequence.generated).min(longest.saturating_sub(sequence.length()))
    }

    fn release_blocks(&mut self, request: RequestId) {
        for block in std::mem::take(&mut self.sequence_mut(request).blocks).into_iter().rev() {
            self.pool.release(block);
        }
    }

    /// Identity of full block `index` of a request's known tokens.
    fn identity(&mut self, request: RequestId, index: u32, shared: &mut Shared<'_>) -> Identity {
        let block_size = self.options.block_size;
        let known = &mut self.sequence_mut(request).identities;
        for next in known.len() as u32..=index {
            let parent = known.last().copied();
            known.push(shared.identities.of_block(shared.workload, request, block_size, next, parent));
        }
        known[index as usize]
    }

    fn blocks_for(&self, tokens: u32) -> usize {
        tokens.div_ceil(self.options.block_size) as usize
    }

    fn sequence(&self, request: RequestId) -> &Sequence {
        self.sequences[request.0 as usize].as_ref().expect("the request is on this engine")
    }

    fn sequence_mut(&mut self, request: RequestId) -> &mut Sequence {
        self.sequences[request.0 as usize].as_mut().expect("the request is on this engine")
    }
}
