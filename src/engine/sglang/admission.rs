//! Which waiting requests a pass takes up, and how much of their prompts.

use rustc_hash::FxHashMap;

use super::{Sequence, SglangEngine, Signals, is_active};
use crate::config::scenario::SglangSchedulePolicy;
use crate::engine::Admission;
use crate::report::record::Role;
use crate::timing::Chunk;
use crate::workload::RequestId;
use crate::workload::prefix::{PathStep, SegmentId};

/// Longest waiting queue that is sorted by cached prefixes.
const MOST_SORTED: usize = 128;
/// Requests with at most so many cached tokens are compared with each other.
const FEW_CACHED_TOKENS: u32 = 32;
/// Requests that share so many tokens with another in the queue step back until that one has computed them.
const MANY_SHARED_TOKENS: u32 = 32;
/// How often the ratio is lowered for a request that finds no room although nobody runs.
const MOST_DECAYS: u32 = 1024;

/// What the first request in line asks for, in tokens. It enters when that is less than what is left.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Blocked {
    /// Tokens to compute and output to set aside.
    pub(super) charge: u64,
    /// Cached pages that it would hold and nobody else does.
    pub(super) unheld_pages: u32,
    pub(super) page_size: u32,
}

impl Blocked {
    /// Whether it could enter with `left` tokens.
    pub(super) fn fits(&self, left: f64) -> bool {
        self.tokens() < left
    }

    fn tokens(&self) -> f64 {
        (self.charge + u64::from(self.unheld_pages) * u64::from(self.page_size)) as f64
    }
}

/// What a pass may still take up, in tokens.
#[derive(Clone, Copy, Debug)]
struct Budget {
    /// Of the cache, beside what is promised to running requests.
    total: f64,
    /// Of prompts.
    input: u32,
    /// Of the pass.
    chunk: u32,
}

impl Budget {
    fn is_used_up(&self) -> bool {
        self.total <= 0.0 || self.input == 0 || self.chunk == 0
    }
}

/// What one request would do in the pass.
#[derive(Clone, Copy, Debug)]
struct Share {
    /// Where it starts to compute, and how many of these tokens come from the cache.
    start: u32,
    tokens: u32,
    asks: Blocked,
}

impl SglangEngine {
    /// Whether a pass may take up prompts after `decodes` more decode passes.
    pub(super) fn may_prefill_after(&self, decodes: u32) -> bool {
        self.running.is_empty()
            || self.decodes_since_prefill.saturating_add(decodes) >= self.limits.prefill_decode_interval
    }

    /// Takes up what the budgets allow, strictly in order.
    pub(super) fn admit(&mut self, signals: &mut Signals) {
        self.pass.blocked = None;
        if self.role == Role::Decode {
            self.admit_active(signals);
            if !self.asking.is_empty() {
                return;
            }
        } else if !self.may_prefill_after(0) {
            return;
        }
        if self.waiting.is_empty() || self.running.len() >= self.limits.max_num_seqs {
            return;
        }
        self.sort_waiting();
        let mut budget = self.budget();
        while let Some(head) = self.waiting.front() {
            if self.can_never_run(head) {
                self.pass.rejected.extend(self.waiting.pop_front());
            } else if self.running.len() + self.pass.batch.len() >= self.limits.max_num_seqs
                || !self.admit_head(&mut budget, signals)
                || budget.is_used_up()
            {
                return;
            }
        }
    }

    fn budget(&self) -> Budget {
        let unlimited = self.role == Role::Decode;
        Budget {
            total: self.room(self.promised()),
            input: if unlimited { u32::MAX } else { self.limits.prefill_tokens },
            chunk: if unlimited { u32::MAX } else { self.limits.chunk_tokens },
        }
    }

    /// Tokens that can be had, less what counts of `promised` ones.
    pub(super) fn room(&self, promised: u64) -> f64 {
        self.tokens(self.cache.available()) as f64 - self.ratio.share(promised)
    }

    /// Output that is promised to everybody who holds pages to generate with.
    pub(super) fn promised(&self) -> u64 {
        let promise = |sequence: &Sequence| u64::from(self.promise(sequence));
        let mut promised = self.running.iter().map(promise).sum();
        if self.role == Role::Decode {
            let active = self.waiting.iter().filter(|sequence| is_active(sequence));
            promised += active.chain(self.reserved.values()).map(promise).sum::<u64>();
        }
        promised
    }

    /// Output tokens that are set aside for one request.
    pub(super) fn promise(&self, sequence: &Sequence) -> u32 {
        sequence.remaining(self.limits.max_model_len).min(self.limits.most_promised)
    }

    /// `pages` pages in tokens.
    pub(super) fn tokens(&self, pages: u32) -> u64 {
        u64::from(pages) * u64::from(self.page_size)
    }

    /// `tokens` tokens rounded up to whole pages, and beside them `promise` tokens.
    fn charge(&self, tokens: u32, promise: u32) -> u64 {
        self.tokens(tokens.div_ceil(self.page_size)) + u64::from(promise)
    }

    /// Whether not even an empty engine would take a request up.
    pub(super) fn can_never_run(&self, sequence: &Sequence) -> bool {
        sequence.prompt >= self.limits.max_model_len
            || self.charge(sequence.known(), self.promise(sequence)) >= self.tokens(self.cache.capacity())
    }

    /// Takes up the head of the waiting queue; false when it has to wait.
    fn admit_head(&mut self, budget: &mut Budget, signals: &mut Signals) -> bool {
        let nobody_yet = self.pass.batch.is_empty();
        let Some(share) = self.share_of_head(budget) else { return false };
        let rounded = u32::try_from(self.charge(share.tokens, 0)).unwrap_or(u32::MAX);
        if !nobody_yet && rounded >= budget.input {
            return false;
        }
        if !share.asks.fits(budget.total) && !self.fits_after_decay(share.asks, budget) {
            if nobody_yet {
                self.pass.blocked = Some(share.asks);
            }
            return false;
        }
        budget.total -= share.asks.tokens();
        budget.input = budget.input.saturating_sub(rounded);
        let completes = self.take_up(share, signals);
        // A prompt that does not fit takes what is left, even if that is not a whole page.
        budget.chunk = if completes { budget.chunk.saturating_sub(rounded) } else { 0 };
        true
    }

    /// What the head of the waiting queue would do; `None` when the pass has no page left for it. Looks at the cache, which counts
    /// as an access whether the head enters or not.
    fn share_of_head(&mut self, budget: &Budget) -> Option<Share> {
        let request = self.waiting[0].request;
        self.find_path(request);
        let head = &self.waiting[0];
        let (start, unheld_pages) = if is_active(head) {
            (head.computed, 0)
        } else {
            let found = self.cache.look_up(&self.path, self.look_up_pages(head));
            self.cache.access(&self.path, found.pages);
            (found.pages * self.page_size, found.unheld)
        };
        let rest = head.known() - start;
        let tokens = if rest <= budget.chunk { rest } else { budget.chunk - budget.chunk % self.page_size };
        if tokens == 0 && rest > 0 {
            return None;
        }
        let promise = if tokens == rest { self.promise(head) } else { 0 };
        let charge = self.charge(tokens, promise);
        Some(Share { start, tokens, asks: Blocked { charge, unheld_pages, page_size: self.page_size } })
    }

    /// Pages of a sequence that may come from the cache: something has to be computed to sample from.
    fn look_up_pages(&self, sequence: &Sequence) -> u32 {
        let samples = u32::from(sequence.remaining(self.limits.max_model_len) > 0);
        (sequence.known() - samples) / self.page_size
    }

    /// With nobody running, lowers the ratio until a request fits, or gives up.
    fn fits_after_decay(&mut self, asks: Blocked, budget: &mut Budget) -> bool {
        if !self.running.is_empty() || !self.pass.batch.is_empty() {
            return false;
        }
        let promised = self.promised();
        for _ in 0..MOST_DECAYS {
            self.ratio.decay();
            budget.total = self.room(promised);
            if asks.fits(budget.total) {
                return true;
            }
        }
        false
    }

    /// Enters the head of the waiting queue, whose path is at hand, into the pass; whether its prompt will be complete.
    fn take_up(&mut self, share: Share, signals: &mut Signals) -> bool {
        let Share { start, tokens, .. } = share;
        let mut sequence = self.waiting.pop_front().expect("the head was looked at");
        if !is_active(&sequence) {
            sequence.hold = self.cache.enter(&self.path, start / self.page_size);
            let reused_tokens = if self.role == Role::Decode { 0 } else { start.min(sequence.prompt) };
            signals.admitted.push(Admission { request: sequence.request, reused_tokens });
        }
        sequence.computed = start + tokens;
        let grown = self.cache.grow(&mut sequence.hold, sequence.computed.div_ceil(self.page_size));
        assert!(grown, "admission made sure of room for what is computed");
        let completes = sequence.computed == sequence.known();
        if self.role == Role::Decode {
            self.running.push(sequence);
        } else {
            let chunk = Chunk { new_tokens: tokens, prefix_tokens: start };
            self.pass.take(sequence, chunk);
        }
        completes
    }

    /// Decode role: lets everybody in who holds pages already.
    fn admit_active(&mut self, signals: &mut Signals) {
        while self.running.len() < self.limits.max_num_seqs {
            let Some(position) = self.waiting.iter().position(is_active) else { return };
            let Some(sequence) = self.waiting.remove(position) else { return };
            signals.admitted.push(Admission { request: sequence.request, reused_tokens: 0 });
            self.running.push(sequence);
        }
    }

    /// Requests at the front that are not sorted: a prompt that is computed in part.
    fn fixed(&self) -> usize {
        usize::from(self.waiting.front().is_some_and(is_active))
    }

    /// Whether the order of the waiting queue depends on what is cached.
    pub(super) fn sorts_waiting(&self) -> bool {
        self.limits.policy == SglangSchedulePolicy::Lpm
            && (2..=MOST_SORTED).contains(&(self.waiting.len() - self.fixed()))
    }

    /// Puts those with the longest cached prefixes first, and last those that had better wait for another in the queue with whom
    /// they share a prefix.
    fn sort_waiting(&mut self) {
        if !self.sorts_waiting() {
            return;
        }
        let fixed = self.fixed();
        self.order.clear();
        for position in fixed..self.waiting.len() {
            let request = self.waiting[position].request;
            self.find_path(request);
            let limit = self.look_up_pages(&self.waiting[position]);
            let cached = self.cache.look_up(&self.path, limit).pages;
            self.order.rank(request, &self.path, cached, limit, self.page_size);
        }
        let order = &self.order;
        self.waiting.make_contiguous()[fixed..].sort_by_key(|sequence| order.ranks[&sequence.request]);
    }
}

/// The order of a waiting queue by cached prefixes. Its buffers are reused.
#[derive(Debug, Default)]
pub(super) struct WaitingOrder {
    /// Whether a request steps back, and its cached pages counted down.
    ranks: FxHashMap<RequestId, (bool, std::cmp::Reverse<u32>)>,
    /// Pages of each segment that somebody in the queue who does not step back will compute.
    coming: FxHashMap<SegmentId, u32>,
}

impl WaitingOrder {
    fn clear(&mut self) {
        self.ranks.clear();
        self.coming.clear();
    }

    /// Ranks the next request of the queue, of which `cached` pages of `limit` are there.
    fn rank(&mut self, request: RequestId, path: &[PathStep], cached: u32, limit: u32, page_size: u32) {
        let mut steps_back = false;
        if cached * page_size <= FEW_CACHED_TOKENS {
            steps_back = self.shared(path, limit) * page_size >= MANY_SHARED_TOKENS;
            if !steps_back {
                self.add(path, limit);
            }
        }
        self.ranks.insert(request, (steps_back, std::cmp::Reverse(cached)));
    }

    /// Pages from the start of a path that are coming.
    fn shared(&self, path: &[PathStep], limit: u32) -> u32 {
        let mut shared = 0;
        for step in path {
            let coming = self.coming.get(&step.segment).copied().unwrap_or(0);
            shared += coming.min(limit - shared);
            if coming < step.blocks {
                break;
            }
        }
        shared
    }

    fn add(&mut self, path: &[PathStep], limit: u32) {
        for step in path {
            let pages = limit.saturating_sub(step.start).min(step.blocks);
            let coming = self.coming.entry(step.segment).or_default();
            *coming = pages.max(*coming);
        }
    }
}
