//! What is in a workload: sizes, rate, and how much of its prompts could be reused at best.

use rustc_hash::FxHashMap;
use serde::Serialize;

use super::{InputTally, Request, RequestId, Workload};

/// Figures of a workload by itself, before anything serves it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct WorkloadStats {
    /// Requests.
    pub requests: u64,
    /// Sessions; as many as requests when every session has one turn.
    pub sessions: u64,
    /// From the first arrival to the last, in seconds; later turns count as if the turns before them took no time.
    pub span_s: f64,
    /// Requests per second of the span; absent when all arrive at once.
    pub request_rate_rps: Option<f64>,
    /// Prompt tokens per request.
    pub input_length: LengthStats,
    /// Output tokens per request.
    pub output_length: LengthStats,
    /// What a cache without bounds would find; absent when no prompt has a known content.
    pub reuse_bound: Option<ReuseBound>,
    /// What was read, dropped and repaired.
    pub input: InputTally,
}

/// Figures of a number of tokens over all requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct LengthStats {
    /// Sum.
    pub total: u64,
    /// Mean.
    pub mean: f64,
    /// Least.
    pub min: u32,
    /// Median. Percentiles are nearest ranks: of n sorted values the `ceil(p n / 100)`-th.
    pub p50: u32,
    /// 90th percentile.
    pub p90: u32,
    /// 99th percentile.
    pub p99: u32,
    /// Most.
    pub max: u32,
}

/// What a cache without bounds, shared by all requests, would find: each prompt's longest beginning, in blocks of the
/// trace, that an earlier request had as its beginning. An incomplete last block counts as a block.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct ReuseBound {
    /// Blocks of all prompts.
    pub blocks: u64,
    /// Blocks that differ in content or in what precedes them.
    pub distinct_blocks: u64,
    /// Blocks found.
    pub reused_blocks: u64,
    /// Prompt tokens in blocks found.
    pub reused_tokens: u64,
    /// `reused_blocks / blocks`.
    pub block_ratio: f64,
    /// `reused_tokens` over all prompt tokens.
    pub token_ratio: f64,
    /// The same over the later half of the requests, for which the earlier half has warmed the cache.
    pub warm_token_ratio: f64,
}

impl WorkloadStats {
    /// The figures of `workload`. Speed-ups have already been applied to it.
    ///
    /// # Panics
    /// If there are no requests, which no loader lets through.
    pub fn new(workload: &Workload) -> Self {
        let requests = &workload.requests;
        assert!(!requests.is_empty(), "a loaded workload has requests");
        let times_ns = arrival_times_ns(workload);
        let first = times_ns.iter().min().copied().unwrap_or(0);
        let last = times_ns.iter().max().copied().unwrap_or(0);
        let span_s = (last - first) as f64 / 1e9;
        Self {
            requests: requests.len() as u64,
            sessions: workload.session_starts.len() as u64,
            span_s,
            request_rate_rps: (last > first).then(|| requests.len() as f64 / span_s),
            input_length: LengthStats::new(requests.iter().map(|request| request.input_length).collect()),
            output_length: LengthStats::new(requests.iter().map(|request| request.output_length).collect()),
            reuse_bound: ReuseBound::new(workload, &times_ns),
            input: workload.input.clone(),
        }
    }
}

/// When each request would arrive if turns took no time, in nanoseconds.
fn arrival_times_ns(workload: &Workload) -> Vec<u64> {
    let mut times_ns = vec![0; workload.requests.len()];
    for start in &workload.session_starts {
        let mut time_ns = workload.requests[start.0 as usize].arrival.as_ns();
        let mut next = Some(*start);
        while let Some(RequestId(id)) = next {
            let request = &workload.requests[id as usize];
            time_ns = time_ns.saturating_add(request.delay.as_ns());
            times_ns[id as usize] = time_ns;
            next = request.next_turn;
        }
    }
    times_ns
}

impl LengthStats {
    fn new(mut lengths: Vec<u32>) -> Self {
        lengths.sort_unstable();
        let total: u64 = lengths.iter().map(|length| u64::from(*length)).sum();
        let percentile = |p: usize| lengths[(lengths.len() * p).div_ceil(100).max(1) - 1];
        Self {
            total,
            mean: total as f64 / lengths.len() as f64,
            min: lengths[0],
            p50: percentile(50),
            p90: percentile(90),
            p99: percentile(99),
            max: percentile(100),
        }
    }
}

impl ReuseBound {
    fn new(workload: &Workload, times_ns: &[u64]) -> Option<Self> {
        if workload.chunk_ids.is_empty() {
            return None;
        }
        let mut order: Vec<usize> = (0..workload.requests.len()).collect();
        order.sort_by_key(|index| times_ns[*index]);
        let warm_from = order.len() / 2;
        let mut cache = Cache::default();
        let mut bound = Self {
            blocks: 0,
            distinct_blocks: 0,
            reused_blocks: 0,
            reused_tokens: 0,
            block_ratio: 0.0,
            token_ratio: 0.0,
            warm_token_ratio: 0.0,
        };
        let (mut tokens, mut warm_tokens, mut warm_reused) = (0, 0, 0);
        for (place, index) in order.into_iter().enumerate() {
            let request = &workload.requests[index];
            let found = cache.visit(workload, request);
            let input = u64::from(request.input_length);
            let reused = input.min(found * u64::from(request.prompt.tokens_per_chunk));
            bound.blocks += u64::from(request.prompt.chunks);
            bound.reused_blocks += found;
            bound.reused_tokens += reused;
            tokens += input;
            if place >= warm_from {
                warm_tokens += input;
                warm_reused += reused;
            }
        }
        bound.distinct_blocks = cache.children.len() as u64;
        bound.block_ratio = bound.reused_blocks as f64 / bound.blocks as f64;
        bound.token_ratio = bound.reused_tokens as f64 / tokens as f64;
        bound.warm_token_ratio = warm_reused as f64 / warm_tokens as f64;
        Some(bound)
    }
}

/// Every block met so far, by the block before it and its chunk id.
#[derive(Default)]
struct Cache {
    children: FxHashMap<(u32, u32), u32>,
}

impl Cache {
    /// Number of leading blocks of a prompt that are known; all are afterwards.
    fn visit(&mut self, workload: &Workload, request: &Request) -> u64 {
        let first = request.prompt.first_chunk as usize;
        let chunks = &workload.chunk_ids[first..first + request.prompt.chunks as usize];
        let (mut at, mut found) = (0, 0);
        for chunk in chunks {
            let fresh = self.children.len() as u32 + 1;
            let child = *self.children.entry((at, *chunk)).or_insert(fresh);
            found += u64::from(child != fresh);
            at = child;
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::mooncake::{self, Options};

    fn stats(text: &str, block_size: u32) -> WorkloadStats {
        let loaded = mooncake::read(text.as_bytes(), &Options { block_size, ..Options::default() }).unwrap();
        WorkloadStats::new(&loaded.workload)
    }

    #[test]
    fn lengths_have_nearest_ranks() {
        let lengths = LengthStats::new((1..=200).rev().collect());
        let expected =
            LengthStats { total: 20_100, mean: 100.5, min: 1, p50: 100, p90: 180, p99: 198, max: 200 };
        assert_eq!(lengths, expected);
        let one = LengthStats::new(vec![7]);
        assert_eq!((one.p50, one.p90, one.p99, one.max), (7, 7, 7, 7));
    }

    #[test]
    fn a_block_is_found_only_behind_the_blocks_before_it() {
        let text = r#"{"timestamp": 0, "input_length": 12, "output_length": 1, "hash_ids": [1, 2, 3]}
            {"timestamp": 1000, "input_length": 10, "output_length": 3, "hash_ids": [1, 2, 9]}
            {"timestamp": 2000, "input_length": 8, "output_length": 1, "hash_ids": [2, 3]}
            {"timestamp": 4000, "input_length": 10, "output_length": 1, "hash_ids": [1, 2, 9]}"#;
        let stats = stats(text, 4);
        assert_eq!((stats.requests, stats.sessions, stats.span_s), (4, 4, 4.0));
        assert_eq!(stats.request_rate_rps, Some(1.0));
        let reuse = stats.reuse_bound.unwrap();
        assert_eq!((reuse.blocks, reuse.distinct_blocks, reuse.reused_blocks), (11, 6, 5));
        assert_eq!(reuse.reused_tokens, 8 + 10);
        assert_eq!(reuse.token_ratio, 18.0 / 40.0);
        assert_eq!(reuse.warm_token_ratio, 10.0 / 18.0);
    }

    #[test]
    fn what_cannot_be_known_is_absent() {
        let stats = stats(r#"{"timestamp": 5, "input_length": 12, "output_length": 1}"#, 4);
        assert_eq!((stats.request_rate_rps, stats.reuse_bound, stats.span_s), (None, None, 0.0));
        assert_eq!(stats.input.repaired["no hash_ids"], 1);
    }

    #[test]
    fn later_turns_count_at_their_time_stamps() {
        let text = r#"{"session_id": "a", "timestamp": 0, "output_length": 1, "hash_ids": [1]}
            {"session_id": "a", "timestamp": 9000, "output_length": 1, "hash_ids": [2]}
            {"timestamp": 3000, "output_length": 1, "hash_ids": [2]}"#;
        let stats = stats(text, 4);
        assert_eq!((stats.span_s, stats.sessions), (9.0, 2));
        // The turn at 9 s finds what the row at 3 s left.
        assert_eq!(stats.reuse_bound.unwrap().warm_token_ratio, 0.5);
    }
}
