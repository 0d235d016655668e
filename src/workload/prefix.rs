//! Which prompts share which KV blocks: a tree over all prompts of a workload.
//!
//! Reuse of KV blocks is strictly prefix-based: a block is identified by its own tokens and by every token before it.
//! All prompts are known before a replay starts, so these identities are worked out once: the tree's paths are the
//! prompts in whole blocks, and two prompts share exactly the blocks of their common path.
//!
//! A tree node is a *segment*: a run of blocks in which no prompt ends or branches off, so most prompts are a handful of
//! segments however long they are. Engines and routers keep "how many blocks of this segment are here" instead of
//! block tables.
//!
//! Block identity follows from chunk ids alone (no tokens are made): block `j` of a prompt is the run of chunk ids that
//! tokens `[j * block_size, (j + 1) * block_size)` fall into, so a block that straddles two chunks matches only
//! where both match. Incomplete last blocks have no identity.

use rustc_hash::FxHashMap;

use super::{Prompt, RequestId, Workload};

/// A node of the [`PrefixTree`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
pub struct SegmentId(pub u32);

const NONE: u32 = u32::MAX;

/// A run of blocks between two branching points.
#[derive(Clone, Copy, Debug)]
struct Segment {
    parent: u32,
    /// Depth of its first block.
    start: u32,
    blocks: u32,
    /// A request whose prompt runs through this segment; stands for the content.
    witness: u32,
}

/// One segment of a prompt, from the root down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathStep {
    /// Which segment.
    pub segment: SegmentId,
    /// Depth of its first block.
    pub start: u32,
    /// Its length in blocks.
    pub blocks: u32,
}

/// The shared prefixes of all prompts, in blocks of one size.
#[derive(Clone, Debug)]
pub struct PrefixTree {
    block_size: u32,
    segments: Vec<Segment>,
    /// Segment in which the last whole block of each request's prompt lies.
    leaves: Vec<u32>,
}

impl PrefixTree {
    /// Builds the tree of all prompts for an engine's block size.
    ///
    /// # Panics
    /// If `block_size` is 0.
    pub fn build(workload: &Workload, block_size: u32) -> Self {
        assert!(block_size > 0, "configurations are checked for this");
        let mut builder = Builder {
            workload,
            block_size,
            segments: Vec::new(),
            children: FxHashMap::default(),
            wide_keys: FxHashMap::default(),
        };
        let leaves = (0..workload.requests.len() as u32).map(|request| builder.insert(request)).collect();
        Self { block_size, segments: builder.segments, leaves }
    }

    /// Tokens per block.
    pub fn block_size(&self) -> u32 {
        self.block_size
    }

    /// Number of segments; their ids are dense.
    pub fn segment_count(&self) -> usize {
        self.segments.len()
    }

    /// Length of a segment in blocks.
    pub fn blocks(&self, segment: SegmentId) -> u32 {
        self.segments[segment.0 as usize].blocks
    }

    /// Replaces the content of `path` by the segments of a request's prompt, from the root down.
    pub fn path(&self, request: RequestId, path: &mut Vec<PathStep>) {
        path.clear();
        let mut at = self.leaves[request.0 as usize];
        while at != NONE {
            let Segment { parent, start, blocks, .. } = self.segments[at as usize];
            path.push(PathStep { segment: SegmentId(at), start, blocks });
            at = parent;
        }
        path.reverse();
    }
}

/// What tells the children of one segment apart: the first block of each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct ChildKey {
    parent: u32,
    /// Prompts of different chunk sizes share nothing.
    tokens_per_chunk: u32,
    block: u64,
}

struct Builder<'a> {
    workload: &'a Workload,
    block_size: u32,
    segments: Vec<Segment>,
    children: FxHashMap<ChildKey, u32>,
    /// Numbers of blocks that cover more than two chunks.
    wide_keys: FxHashMap<Box<[u32]>, u64>,
}

impl Builder<'_> {
    /// Adds a prompt and returns the segment of its last whole block.
    fn insert(&mut self, request: u32) -> u32 {
        let prompt = self.prompt(request);
        let end = self.whole_blocks(request);
        if end == 0 {
            return NONE;
        }
        if prompt.chunks == 0 {
            return self.push(Segment { parent: NONE, start: 0, blocks: end, witness: request });
        }
        let (mut at, mut depth) = (NONE, 0);
        while depth < end {
            let key = self.key(at, prompt, depth);
            let Some(&child) = self.children.get(&key) else {
                let segment = Segment { parent: at, start: depth, blocks: end - depth, witness: request };
                let leaf = self.push(segment);
                self.children.insert(key, leaf);
                return leaf;
            };
            let segment = self.segments[child as usize];
            let shared = (self.common_blocks(segment.witness, request, depth) - depth).min(segment.blocks);
            at = if shared < segment.blocks { self.split(child, shared, key) } else { child };
            depth += shared;
        }
        at
    }

    /// Cuts a segment in two. The deeper part keeps its number, so that whatever ends or hangs there stays valid.
    fn split(&mut self, lower: u32, upper_blocks: u32, key: ChildKey) -> u32 {
        let whole = self.segments[lower as usize];
        let upper = self.push(Segment { blocks: upper_blocks, ..whole });
        let start = whole.start + upper_blocks;
        self.segments[lower as usize] =
            Segment { parent: upper, start, blocks: whole.blocks - upper_blocks, ..whole };
        self.children.insert(key, upper);
        let lower_key = self.key(upper, self.prompt(whole.witness), start);
        self.children.insert(lower_key, lower);
        upper
    }

    fn push(&mut self, segment: Segment) -> u32 {
        self.segments.push(segment);
        self.segments.len() as u32 - 1
    }

    fn prompt(&self, request: u32) -> Prompt {
        self.workload.requests[request as usize].prompt
    }

    fn whole_blocks(&self, request: u32) -> u32 {
        self.workload.requests[request as usize].input_length / self.block_size
    }

    fn chunk_ids(&self, prompt: Prompt) -> &[u32] {
        &self.workload.chunk_ids[prompt.first_chunk as usize..][..prompt.chunks as usize]
    }

    /// Whole blocks that two prompts have in common, given that they agree up to block `from`.
    fn common_blocks(&self, a: u32, b: u32, from: u32) -> u32 {
        let prompt = self.prompt(a);
        let tokens_per_chunk = u64::from(prompt.tokens_per_chunk);
        let (ids_a, ids_b) = (self.chunk_ids(prompt), self.chunk_ids(self.prompt(b)));
        let first = (u64::from(from) * u64::from(self.block_size) / tokens_per_chunk) as usize;
        let pairs = ids_a[first..].iter().zip(&ids_b[first..]);
        let equal = first + pairs.take_while(|(a, b)| a == b).count();
        let tokens = equal as u64 * tokens_per_chunk;
        let blocks = u32::try_from(tokens / u64::from(self.block_size)).unwrap_or(u32::MAX);
        blocks.min(self.whole_blocks(a)).min(self.whole_blocks(b))
    }

    /// The key of block `depth` of a prompt below segment `parent`.
    fn key(&mut self, parent: u32, prompt: Prompt, depth: u32) -> ChildKey {
        let tokens_per_chunk = u64::from(prompt.tokens_per_chunk);
        let first_token = u64::from(depth) * u64::from(self.block_size);
        let last_token = first_token + u64::from(self.block_size) - 1;
        let (first, last) = (first_token / tokens_per_chunk, last_token / tokens_per_chunk);
        let ids = &self.workload.chunk_ids[prompt.first_chunk as usize..][first as usize..=last as usize];
        let block = match *ids {
            [one] => u64::from(one),
            [one, two] => u64::from(one) << 32 | u64::from(two),
            ref many => {
                let next = self.wide_keys.len() as u64;
                match self.wide_keys.get(many) {
                    Some(&number) => number,
                    None => *self.wide_keys.entry(many.into()).or_insert(next),
                }
            }
        };
        ChildKey { parent, tokens_per_chunk: prompt.tokens_per_chunk, block }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::simulation::{SimDuration, SimTime};
    use crate::workload::Request;

    /// A workload from prompts given as (length, tokens per chunk, chunk ids).
    fn workload(prompts: &[(u32, u32, Vec<u32>)]) -> Workload {
        let mut workload = Workload::default();
        for (number, (length, tokens_per_chunk, ids)) in prompts.iter().enumerate() {
            let prompt = Prompt {
                first_chunk: workload.chunk_ids.len() as u32,
                chunks: ids.len() as u32,
                tokens_per_chunk: *tokens_per_chunk,
            };
            workload.chunk_ids.extend(ids);
            workload.requests.push(Request {
                arrival: SimTime::ZERO,
                delay: SimDuration::ZERO,
                input_length: *length,
                output_length: 1,
                prompt,
                session: number as u32,
                turn: 0,
                next_turn: None,
                dp_rank: None,
                name: None,
            });
        }
        workload
    }

    /// Shared whole blocks of two requests according to the tree.
    fn shared(tree: &PrefixTree, a: u32, b: u32) -> u32 {
        let (mut path_a, mut path_b) = (Vec::new(), Vec::new());
        tree.path(RequestId(a), &mut path_a);
        tree.path(RequestId(b), &mut path_b);
        path_a.iter().zip(&path_b).take_while(|(a, b)| a == b).map(|(step, _)| step.blocks).sum()
    }

    /// Shared whole blocks of two prompts, token by token.
    fn shared_by_tokens(a: &(u32, u32, Vec<u32>), b: &(u32, u32, Vec<u32>), block_size: u32) -> u32 {
        if a.1 != b.1 || a.2.is_empty() || b.2.is_empty() {
            return 0;
        }
        let token = |prompt: &(u32, u32, Vec<u32>), at: u32| prompt.2[(at / prompt.1) as usize];
        let equal = (0..a.0.min(b.0)).take_while(|&at| token(a, at) == token(b, at)).count() as u32;
        equal / block_size
    }

    #[test]
    fn straddling_blocks_need_both_chunks() {
        let tree = PrefixTree::build(&workload(&[(12, 6, vec![1, 2]), (12, 6, vec![1, 3])]), 4);
        assert_eq!(shared(&tree, 0, 1), 1);
        let tree = PrefixTree::build(&workload(&[(12, 4, vec![1, 2, 4]), (12, 4, vec![1, 2, 5])]), 4);
        assert_eq!(shared(&tree, 0, 1), 2);
    }

    proptest! {
        #[test]
        fn paths_agree_with_a_comparison_token_by_token(
            lists in prop::collection::vec((prop::collection::vec(0_u32..3, 0..7), 1_u32..6, prop::bool::ANY), 1..14),
            block_size in 1_u32..9,
            tokens_per_chunk in 1_u32..9,
        ) {
            let prompts: Vec<_> = lists
                .into_iter()
                .map(|(ids, cut, other)| {
                    let size = tokens_per_chunk + u32::from(other);
                    let length = (ids.len() as u32 * size).saturating_sub(cut.min(size) - 1).max(1);
                    (if ids.is_empty() { cut * 7 } else { length }, size, ids)
                })
                .collect();
            let workload = workload(&prompts);
            let tree = PrefixTree::build(&workload, block_size);
            for a in 0..prompts.len() {
                let mut path = Vec::new();
                tree.path(RequestId(a as u32), &mut path);
                prop_assert_eq!(path.iter().map(|step| step.blocks).sum::<u32>(), prompts[a].0 / block_size);
                for b in 0..a {
                    let expected = shared_by_tokens(&prompts[a], &prompts[b], block_size);
                    prop_assert_eq!(shared(&tree, a as u32, b as u32), expected, "{} and {}", a, b);
                }
            }
        }
    }
}
