//! One vLLM-like engine: what it schedules in a pass.

use std::collections::VecDeque;

use spica::config::scenario::{EngineOptions, PreemptionMode, TimingConfig};
use spica::simulation::SimDuration;
use spica::workload::{Request, RequestId, Workload};

use super::content::{Identities, Identity};
use super::pool::{BlockId, Pool};
use super::price::{Batch, price};

/// What all engines of a run share.
#[derive(Debug)]
pub(crate) struct Shared<'a> {
    pub workload: &'a Workload,
    pub identities: Identities,
}

/// One engine with its requests.
#[derive(Debug)]
pub(crate) struct Engine<'a> {
    options: &'a EngineOptions,
    timing: &'a TimingConfig,
    pool: Pool,
    sequences: Vec<Option<Sequence>>,
    running: Vec<RequestId>,
    waiting: VecDeque<RequestId>,
}

/// A request as the engine sees it.
#[derive(Debug, Default)]
struct Sequence {
    prompt: u32,
    asked_output: u32,
    generated: u32,
    /// Tokens with KV in `blocks`.
    computed: u32,
    blocks: Vec<BlockId>,
    /// Identities of the leading full blocks of the known tokens, as far as they were needed.
    identities: Vec<Identity>,
    was_preempted: bool,
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
    shares: Vec<Share>,
    preemptions: u64,
}

/// What a pass does. It was evaluated at its start; what it brings is seen at its end.
#[derive(Debug, Default)]
pub(crate) struct Pass {
    pub duration: SimDuration,
    pub batch: Batch,
    /// Requests that were given a share, possibly of no tokens.
    pub scheduled: usize,
    /// Requests that joined the running ones, with the tokens they reuse.
    pub admitted: Vec<(RequestId, u32)>,
    /// Requests with a token.
    pub emitted: Vec<RequestId>,
    /// Requests that are done.
    pub finished: Vec<RequestId>,
    /// Requests that are refused.
    pub rejected: Vec<RequestId>,
    pub preemptions: u64,
    /// Blocks whose content made room for another's.
    pub evictions: u64,
    /// Tokens computed for requests with prompt tokens in the pass.
    pub prefill_tokens: u64,
    /// Requests that decode without prompt tokens in the pass.
    pub pure_decode_requests: u64,
    /// Their tokens, the new one not counted.
    pub pure_decode_tokens: u64,
}

impl Sequence {
    fn length(&self) -> u32 {
        self.prompt + self.generated
    }

    fn outputs_left(&self) -> bool {
        self.generated < self.asked_output
    }
}

impl<'a> Engine<'a> {
    pub(crate) fn new(options: &'a EngineOptions, timing: &'a TimingConfig, requests: usize) -> Self {
        Self {
            options,
            timing,
            pool: Pool::new(options.num_gpu_blocks as usize),
            sequences: (0..requests).map(|_| None).collect(),
            running: Vec::new(),
            waiting: VecDeque::new(),
        }
    }

    pub(crate) fn submit(&mut self, id: RequestId, request: &Request) {
        self.sequences[id.0 as usize] = Some(Sequence {
            prompt: request.input_length,
            asked_output: request.output_length,
            ..Sequence::default()
        });
        self.waiting.push_back(id);
    }

    pub(crate) fn has_work(&self) -> bool {
        !self.running.is_empty() || !self.waiting.is_empty()
    }

    /// Blocks held by requests.
    pub(crate) fn blocks_held(&self) -> usize {
        self.pool.referenced()
    }

    /// Puts a pass together and carries it out.
    pub(crate) fn pass(&mut self, shared: &mut Shared<'_>) -> Pass {
        let mut plan = Plan {
            budget: self.options.max_num_batched_tokens.unwrap_or(u32::MAX),
            shares: Vec::new(),
            preemptions: 0,
        };
        let mut pass = Pass::default();
        let evictions_before = self.pool.evictions();
        self.schedule_running(&mut plan, shared);
        if plan.preemptions == 0 {
            self.schedule_waiting(&mut plan, &mut pass, shared);
        }
        pass.scheduled = plan.shares.len();
        pass.preemptions = plan.preemptions;
        pass.evictions = self.pool.evictions() - evictions_before;
        self.price(&plan, &mut pass);
        self.emit(&mut pass);
        pass
    }

    fn schedule_running(&mut self, plan: &mut Plan, shared: &mut Shared<'_>) {
        let mut index = 0;
        while index < self.running.len() && plan.budget > 0 {
            let request = self.running[index];
            let sequence = self.sequence(request);
            let computed = sequence.computed;
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
            let wanted = self.blocks_for(tokens) - self.sequence(request).blocks.len();
            if wanted <= self.pool.available() {
                return true;
            }
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
        let sequence = self.sequence_mut(victim);
        sequence.computed = 0;
        sequence.was_preempted = true;
        self.waiting.push_front(victim);
        plan.preemptions += 1;
        if let Some(place) = plan.shares.iter().position(|share| share.request == victim) {
            plan.budget += plan.shares.remove(place).tokens;
        }
    }

    fn schedule_waiting(&mut self, plan: &mut Plan, pass: &mut Pass, shared: &mut Shared<'_>) {
        let most = self.options.max_num_seqs.map_or(usize::MAX, |most| most as usize);
        while plan.budget > 0 && self.running.len() < most {
            let Some(&request) = self.waiting.front() else { return };
            if self.can_never_run(request) {
                self.reject_head(pass);
                continue;
            }
            let hits = self.cached_blocks(request, shared);
            let cached = hits.len() as u32 * self.options.block_size;
            let sequence = self.sequence(request);
            let missing_prompt = sequence.prompt.saturating_sub(cached);
            let shared_hits = hits.iter().filter(|&&block| self.pool.is_referenced(block)).count();
            let whole = self.blocks_for(sequence.length());
            if whole - shared_hits > self.pool.size() - self.pool.referenced() {
                return;
            }
            if !self.options.enable_chunked_prefill && missing_prompt > plan.budget {
                if self.options.max_num_batched_tokens.is_some_and(|most| missing_prompt > most) {
                    self.reject_head(pass);
                    continue;
                }
                return;
            }
            let tokens = (sequence.length() - cached).min(plan.budget);
            pass.admitted.push((request, cached.min(sequence.prompt)));
            self.waiting.pop_front();
            self.running.push(request);
            for &block in &hits {
                self.pool.hold(block);
            }
            self.sequence_mut(request).blocks = hits;
            self.compute(request, cached, tokens, plan, shared);
        }
    }

    fn reject_head(&mut self, pass: &mut Pass) {
        let head = self.waiting.pop_front().expect("the caller has looked at the head");
        self.sequences[head.0 as usize] = None;
        pass.rejected.push(head);
    }

    fn can_never_run(&self, request: RequestId) -> bool {
        let sequence = self.sequence(request);
        let too_long = self.options.max_model_len.is_some_and(|most| sequence.prompt >= most);
        let too_large = self.blocks_for(sequence.length()) > self.pool.size();
        too_long || too_large
    }

    /// The leading blocks of a waiting request that are there already.
    fn cached_blocks(&mut self, request: RequestId, shared: &mut Shared<'_>) -> Vec<BlockId> {
        if !self.options.enable_prefix_caching {
            return Vec::new();
        }
        let sequence = self.sequence(request);
        // Something has to be computed where a token is to come out of it.
        let most = if sequence.outputs_left() { sequence.length() - 1 } else { sequence.length() }
            / self.options.block_size;
        let mut hits = Vec::new();
        for index in 0..most {
            let identity = self.identity(request, index, shared);
            let Some(block) = self.pool.find(identity) else { break };
            hits.push(block);
        }
        hits
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
        while self.sequence(request).blocks.len() < self.blocks_for(after) {
            let block = self.pool.take();
            self.sequence_mut(request).blocks.push(block);
        }
        if self.options.enable_prefix_caching {
            for index in before / self.options.block_size..after / self.options.block_size {
                let identity = self.identity(request, index, shared);
                let block = self.sequence(request).blocks[index as usize];
                self.pool.publish(block, identity);
            }
        }
        let sequence = self.sequence_mut(request);
        sequence.computed = after;
        let prompt_before = before.min(sequence.prompt);
        let prompt_tokens = after.min(sequence.prompt) - prompt_before;
        plan.budget -= tokens;
        plan.shares.push(Share { request, tokens, prompt_before, prompt_tokens });
    }

    fn price(&self, plan: &Plan, pass: &mut Pass) {
        let batch = &mut pass.batch;
        let mut prompts = Vec::new();
        for share in plan.shares.iter().filter(|share| share.prompt_tokens > 0) {
            prompts.push(share.request);
            batch.prefill_requests += 1;
            batch.prefix_tokens += u64::from(share.prompt_before);
            batch.prompt_tokens += u64::from(share.prompt_before + share.prompt_tokens);
            pass.prefill_tokens += u64::from(share.tokens);
        }
        for &request in &self.running {
            let sequence = self.sequence(request);
            let ready = sequence.computed >= sequence.length() && sequence.outputs_left();
            if !ready {
                continue;
            }
            let tokens = u64::from(sequence.length());
            let with_prompt = prompts.contains(&request);
            if sequence.generated > 0 || !with_prompt || self.options.first_token_decode {
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

    fn emit(&mut self, pass: &mut Pass) {
        for request in self.running.clone() {
            let longest = self.options.max_model_len.unwrap_or(u32::MAX);
            let sequence = self.sequence_mut(request);
            if sequence.computed < sequence.length() {
                continue;
            }
            if sequence.outputs_left() {
                sequence.generated += 1;
                pass.emitted.push(request);
            }
            if !sequence.outputs_left() || sequence.length() >= longest {
                self.release_blocks(request);
                self.sequences[request.0 as usize] = None;
                self.running.retain(|&other| other != request);
                pass.finished.push(request);
            }
        }
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
