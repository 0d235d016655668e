//! An engine of one's own: `scheduler: {policy: static_batching, max_batch: 8}` in a pool's `engine:`.
//!
//! Request-level batching, as engines were served before they scheduled pass by pass (the baseline of Orca, OSDI 2022): an idle
//! engine takes up to `max_batch` requests, computes their prompts in one pass, and generates until the last of them has all its
//! tokens; whoever comes meanwhile waits. Nothing is streamed: a result is returned whole, with those of the whole batch, or with
//! `return_early` as soon as it is complete. Its slot stays taken and is computed on either way. Room for prompts and
//! outputs is set aside beforehand, and no prompt is reused.
//!
//! ```text
//! cargo run --release --example custom_engine -- replay scenarios/custom_engine.yaml
//! ```

use std::collections::VecDeque;

use serde::Deserialize;
use spica::engine::metrics::{PassMetrics, Tally};
use spica::engine::sequence::Sequence;
use spica::engine::{
    Admission, Cadence, Engine, EngineError, EnginePool, EngineSetup, Inputs, NewEngine, Output, Passes,
    Signals, TokenStamps,
};
use spica::registry::Registry;
use spica::report::record::Counters;
use spica::simulation::SimTime;
use spica::timing::{Chunk, DecodeBatch};
use spica::workload::RequestId;

/// The configuration.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StaticBatching {
    /// Requests in a batch at most.
    max_batch: usize,
    /// Whether results are returned before the whole batch is done.
    #[serde(default)]
    return_early: bool,
}

impl NewEngine for StaticBatching {
    fn problems(&self, _: &EnginePool<'_>) -> Vec<String> {
        if self.max_batch == 0 { vec!["max_batch: 0 requests are no batch".into()] } else { Vec::new() }
    }

    fn build(&self, setup: EngineSetup<'_>) -> Box<dyn Engine> {
        Box::new(Rank {
            max_batch: self.max_batch,
            return_early: self.return_early,
            block_size: setup.pool.options.block_size,
            blocks: setup.pool.options.num_gpu_blocks,
            inputs: setup.inputs,
            waiting: VecDeque::new(),
            waiting_tokens: Tally::default(),
            rejected: Vec::new(),
            batch: Vec::new(),
            steps: 0,
            queued: Tally::default(),
            passes: Passes::default(),
            counters: Counters::default(),
        })
    }
}

/// A place in the batch; it holds its blocks as long as the batch.
struct Slot {
    sequence: Sequence<u32>,
    is_returned: bool,
}

impl Slot {
    /// Tokens of the request after so many steps of the batch.
    fn tokens_after(&self, steps: u32) -> u32 {
        self.sequence.prompt + steps.min(self.sequence.wanted)
    }

    fn has_all_after(&self, steps: u32) -> bool {
        steps >= self.sequence.wanted
    }
}

/// One rank. Only what is reported at the end of passes changes there; everything else, when passes are composed.
struct Rank {
    max_batch: usize,
    return_early: bool,
    block_size: u32,
    blocks: u32,
    inputs: Inputs,
    waiting: VecDeque<RequestId>,
    waiting_tokens: Tally,
    /// Can never run; reported when the pass is over.
    rejected: Vec<RequestId>,
    batch: Vec<Slot>,
    /// Passes of this batch that are over: the first computed the prompts, and each gave everybody a token.
    steps: u32,
    /// Who waited when the passes in progress were composed.
    queued: Tally,
    passes: Passes,
    counters: Counters,
}

impl Rank {
    fn prompt(&self, request: RequestId) -> u32 {
        self.inputs.workload.requests[request.0 as usize].input_length
    }

    /// Forms a batch of those who came first, as far as there is room for all that they will ever need.
    fn take_batch(&mut self, signals: &mut Signals) {
        let mut room = self.blocks;
        while self.batch.len() < self.max_batch
            && let Some(&request) = self.waiting.front()
        {
            let asked = &self.inputs.workload.requests[request.0 as usize];
            let tokens = u64::from(asked.input_length) + u64::from(asked.output_length);
            let needed = tokens.div_ceil(u64::from(self.block_size));
            if needed > u64::from(self.blocks) {
                self.rejected.push(request);
            } else if needed > u64::from(room) {
                return;
            } else {
                let mut sequence = Sequence::new(request, asked.input_length, asked.output_length);
                sequence.hold = needed as u32;
                room -= sequence.hold;
                signals.admitted.push(Admission { request, reused_tokens: 0 });
                self.batch.push(Slot { sequence, is_returned: false });
            }
            self.waiting.pop_front();
            self.waiting_tokens.remove(self.prompt(request));
        }
    }

    fn chunks(&self) -> impl Iterator<Item = (RequestId, Chunk)> + '_ {
        self.batch.iter().map(|slot| {
            let chunk = Chunk { new_tokens: slot.sequence.prompt, prefix_tokens: 0 };
            (slot.sequence.request, chunk)
        })
    }

    /// The step that returns somebody next: the last of the batch, unless results are returned one by one.
    fn next_return(&self) -> u32 {
        let ends = self.batch.iter().map(|slot| slot.sequence.wanted.max(1));
        let next = ends.clone().filter(|&end| self.return_early && end > self.steps).min();
        next.or_else(|| ends.max()).unwrap_or(1)
    }

    /// Plans decode passes up to the next return. Slots that have all their tokens are computed on, and grow no more.
    fn plan_decodes(&mut self, now: SimTime) -> Result<(), EngineError> {
        let context = |slot: &Slot| u64::from(slot.tokens_after(self.steps));
        let context_tokens = self.batch.iter().map(context).sum();
        let mut batch = DecodeBatch { requests: self.batch.len() as u32, context_tokens };
        let most = self.steps + Passes::LOOKAHEAD;
        let mut end = now;
        for step in self.steps..self.next_return().min(most) {
            end += self.inputs.pricer.pass(&[], batch)?;
            self.passes.timeline.ends.push(end);
            batch.context_tokens += self.batch.iter().filter(|slot| !slot.has_all_after(step)).count() as u64;
        }
        Ok(())
    }

    /// Returns what is complete after `pass`: all its tokens leave together.
    fn give_back(&mut self, pass: u32, signals: &mut Signals) {
        let is_over = self.batch.iter().all(|slot| slot.has_all_after(self.steps));
        for slot in &mut self.batch {
            let is_complete = slot.has_all_after(self.steps) && (self.return_early || is_over);
            if slot.is_returned || !is_complete {
                continue;
            }
            slot.is_returned = true;
            let sequence = &mut slot.sequence;
            if sequence.wanted > 0 {
                sequence.emit_burst(pass, sequence.wanted);
                signals.outputs.push(Output::FirstToken(sequence.request));
            }
            sequence.tally_gaps(&mut self.passes.timeline);
            signals.outputs.push(Output::Completed(sequence.request, sequence.stamps(&self.passes.timeline)));
        }
        if is_over {
            self.batch.clear();
            self.steps = 0;
        }
    }
}

impl Engine for Rank {
    /// Nobody joins a batch in progress.
    fn enqueue(&mut self, request: RequestId) -> bool {
        self.waiting.push_back(request);
        self.waiting_tokens.add(self.prompt(request));
        false
    }

    fn start_pass(
        &mut self,
        now: SimTime,
        _: Cadence,
        signals: &mut Signals,
    ) -> Result<Option<SimTime>, EngineError> {
        if !self.has_work() {
            return Ok(None);
        }
        if self.batch.is_empty() {
            self.take_batch(signals);
        }
        self.queued = self.waiting_tokens;
        self.passes.begin();
        if self.batch.is_empty() {
            // All that it does is to reject.
            return Ok(Some(now));
        }
        if self.steps == 0 {
            let chunks: Vec<Chunk> = self.chunks().map(|(_, chunk)| chunk).collect();
            let nobody = DecodeBatch { requests: 0, context_tokens: 0 };
            let end = now + self.inputs.pricer.pass(&chunks, nobody)?;
            self.passes.timeline.ends.push(end);
        } else {
            self.plan_decodes(now)?;
        }
        Ok(self.passes.timeline.ends.last().copied())
    }

    fn complete_pass(&mut self, signals: &mut Signals) {
        let reject = |request| Output::Rejected(request, TokenStamps::default());
        signals.outputs.extend(self.rejected.drain(..).map(reject));
        let over = self.passes.complete();
        if over.is_empty() {
            return;
        }
        if self.steps == 0 {
            let prompts = self.batch.iter().map(|slot| u64::from(slot.sequence.prompt));
            self.counters.committed_prefill_tokens += prompts.sum::<u64>();
        }
        self.counters.passes += over.len() as u64;
        self.steps += over.len() as u32;
        self.give_back(over.end - 1, signals);
    }

    fn passes(&self) -> &Passes {
        &self.passes
    }

    fn passes_mut(&mut self) -> &mut Passes {
        &mut self.passes
    }

    fn has_work(&self) -> bool {
        !self.batch.is_empty() || !self.waiting.is_empty()
    }

    fn unfinished(&self) -> Vec<(RequestId, TokenStamps)> {
        let running = self.batch.iter().filter(|slot| !slot.is_returned).map(|slot| slot.sequence.request);
        let others = self.waiting.iter().chain(&self.rejected).copied();
        let mut requests: Vec<RequestId> = running.chain(others).collect();
        requests.sort_unstable();
        // What has not been returned has not left.
        requests.into_iter().map(|request| (request, TokenStamps::default())).collect()
    }

    fn blocks_held(&self) -> u32 {
        self.batch.iter().map(|slot| slot.sequence.hold).sum()
    }

    fn counters(&self) -> Counters {
        self.counters
    }

    /// Nobody who is still here has had a token.
    fn oldest_token_pass(&self) -> Option<u32> {
        None
    }

    fn pass_metrics(&self, pass: usize) -> PassMetrics {
        let mut metrics = PassMetrics { queued_prefill: self.queued, ..PassMetrics::default() };
        let steps = self.steps + pass as u32;
        for slot in &self.batch {
            if steps == 0 {
                metrics.prefill.add(slot.sequence.prompt);
                metrics.prefill_tokens += u64::from(slot.sequence.prompt);
            } else if !slot.has_all_after(steps) {
                metrics.decode.add(slot.tokens_after(steps));
            }
        }
        metrics
    }

    fn pass_chunks(&self, chunks: &mut Vec<(RequestId, Chunk)>) {
        if self.steps == 0 {
            chunks.extend(self.chunks());
        }
    }
}

/// Everything that `spica` can do, and one engine more.
pub fn main() -> std::process::ExitCode {
    spica::cli::run(Registry::builtin().with_engine::<StaticBatching>("static_batching"))
}
