//! One request inside an engine: how far it is, when its tokens left, what it holds.

use super::TokenStamps;
use super::kv::Hold;
use crate::report::record::PassTimeline;
use crate::workload::RequestId;

/// A request's progress, with what it holds of a KV cache. Its *known length* is the prompt plus what was generated; all but the last known token have their
/// KV computed before a decode step. `H` is what an engine's own cache hands out: a number of blocks may be enough.
#[derive(Debug)]
pub struct Sequence<H = Hold> {
    /// Which request it is.
    pub request: RequestId,
    /// Prompt tokens.
    pub prompt: u32,
    /// Output tokens asked for.
    pub wanted: u32,
    /// Output tokens so far.
    pub generated: u32,
    /// Tokens whose KV is computed.
    pub computed: u32,
    /// Whether it has been in a batch and waits to come back, or comes from another engine's.
    pub was_in_a_batch: bool,
    /// Its KV blocks.
    pub hold: H,
    /// Passes in which its tokens left.
    tokens: TokenPasses,
    /// Tokens that left together with the first.
    first_burst: u32,
    /// Gaps between tokens of one burst.
    zero_gaps: u64,
}

impl<H: Default> Sequence<H> {
    /// A request with so many prompt tokens of which nothing is computed, and to which so many output tokens will be given.
    pub fn new(request: RequestId, prompt: u32, wanted: u32) -> Self {
        Self {
            request,
            prompt,
            wanted,
            generated: 0,
            computed: 0,
            was_in_a_batch: false,
            hold: H::default(),
            tokens: TokenPasses::default(),
            first_burst: 0,
            zero_gaps: 0,
        }
    }

    /// Prompt and output so far, in tokens.
    pub fn known(&self) -> u32 {
        self.prompt + self.generated
    }

    /// Whether everything known is computed, so that the next token can be sampled.
    pub fn is_ready(&self) -> bool {
        self.computed >= self.known()
    }

    /// Whether the next pass is a plain decode step: one token to compute, one to sample.
    pub fn is_decoding(&self) -> bool {
        self.computed + 1 == self.known() && self.generated > 0
    }

    /// Output tokens still to come when sequences may be `max_model_len` tokens long.
    pub fn remaining(&self, max_model_len: u32) -> u32 {
        (self.wanted - self.generated).min(max_model_len.saturating_sub(self.known()))
    }

    /// Whether it has everything it asked for. `max_model_len` ends sequences that would become longer.
    pub fn is_ended(&self, max_model_len: u32) -> bool {
        self.remaining(max_model_len) == 0 && (self.wanted > 0 || self.is_ready())
    }

    /// Whether its first token left in this pass.
    pub fn has_first_token_at(&self, pass: u32) -> bool {
        self.tokens.broken_off.is_empty() && self.tokens.latest.is_some_and(|(first, _)| first == pass)
    }

    /// Counts one token in each of `count` passes from pass `first` of the timeline on.
    pub fn emit(&mut self, first: u32, count: u32) {
        self.generated += count;
        self.tokens.add(first, first + count - 1);
    }

    /// Counts `tokens` tokens, at least one, that left together at the end of a pass: all but the first were computed with it.
    pub fn emit_burst(&mut self, pass: u32, tokens: u32) {
        if self.generated == 0 {
            self.first_burst = tokens;
        }
        self.generated += tokens;
        self.computed += tokens - 1;
        self.zero_gaps += u64::from(tokens - 1);
        self.tokens.add(pass, pass);
    }

    /// The pass in which its first token left, if one has.
    pub fn first_token_pass(&self) -> Option<u32> {
        self.tokens.ranges().next().map(|(first, _)| first)
    }

    /// When its tokens left. The passes in which they did have to be on the timeline still.
    pub fn stamps(&self, timeline: &PassTimeline) -> TokenStamps {
        let end = |pass: u32| timeline.end(pass);
        let mut passes = self.tokens.ranges().flat_map(|(first, last)| [first, last.min(first + 1)]);
        let first = passes.next();
        let second = if self.first_burst > 1 { first } else { passes.find(|&pass| Some(pass) != first) };
        TokenStamps {
            count: self.generated,
            first: first.map(end),
            second: second.map(end),
            last: self.tokens.ranges().last().map(|(_, last)| end(last)),
        }
    }

    /// Adds the token gaps of this completed sequence to the timeline's tally.
    pub fn tally_gaps(&self, timeline: &mut PassTimeline) {
        timeline.zero_gaps += self.zero_gaps;
        let mut previous = None;
        for (first, last) in self.tokens.ranges() {
            if let Some(previous) = previous {
                let gap = timeline.end(first).since(timeline.end(previous));
                timeline.loose_gaps.push(gap);
            }
            timeline.add_gaps(first, last);
            previous = Some(last);
        }
    }
}

impl Sequence {
    /// Whether it waits with its prompt computed elsewhere and the blocks at hand.
    pub(super) fn is_active(&self) -> bool {
        self.hold.blocks() > 0
    }
}

/// The passes in which a sequence had a token: usually one unbroken range; preemption breaks it.
#[derive(Debug, Default)]
struct TokenPasses {
    broken_off: Vec<(u32, u32)>,
    latest: Option<(u32, u32)>,
}

impl TokenPasses {
    fn add(&mut self, first: u32, last: u32) {
        match &mut self.latest {
            Some((_, end)) if *end + 1 == first => *end = last,
            latest => self.broken_off.extend(latest.replace((first, last))),
        }
    }

    fn ranges(&self) -> impl Iterator<Item = (u32, u32)> {
        self.broken_off.iter().copied().chain(self.latest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulation::{SimDuration, SimTime};

    #[test]
    fn broken_ranges_leave_loose_gaps() {
        let ends = [10, 12, 14, 20, 23, 25].map(SimTime::from_ns).to_vec();
        let mut timeline = PassTimeline { ends, ..PassTimeline::default() };
        let mut sequence = <Sequence>::new(RequestId(0), 8, 9);
        assert_eq!(sequence.stamps(&timeline), TokenStamps::default());
        sequence.emit(0, 1);
        sequence.emit(3, 1);
        sequence.emit(4, 2);
        let stamp = |ns| Some(SimTime::from_ns(ns));
        let expected = TokenStamps { count: 4, first: stamp(10), second: stamp(20), last: stamp(25) };
        assert_eq!(sequence.stamps(&timeline), expected);
        sequence.tally_gaps(&mut timeline);
        assert_eq!(timeline.loose_gaps, [SimDuration::from_ns(10)]);
        assert_eq!((timeline.gap_starts, timeline.gap_stops), (vec![4], vec![6]));
    }
}
