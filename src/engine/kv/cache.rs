//! Look-ups, allocation and release in terms of sequences.

use super::foresight::Foresight;
use super::pieces::{PieceId, Pieces};
use crate::workload::RequestId;
use crate::workload::prefix::{PathStep, SegmentId};

/// What a look-up found: whole blocks from the start of the prompt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Match {
    /// Blocks found.
    pub blocks: u32,
    /// Those among them that some sequence holds at present.
    pub referenced: u32,
}

/// The blocks that one sequence holds.
#[derive(Debug, Default)]
pub struct Hold {
    /// From the start of the sequence: pieces with the number of blocks held of each.
    pieces: Vec<(PieceId, u32)>,
    /// Blocks in `pieces`.
    in_pieces: u32,
    /// All blocks, loose ones included.
    blocks: u32,
}

impl Hold {
    /// Blocks held.
    pub fn blocks(&self) -> u32 {
        self.blocks
    }
}

/// What becomes of the complete generated blocks of a sequence that lets go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Generated {
    /// Nobody can ask for them again.
    Forgotten,
    /// The sequence itself may come back for them, under this segment of its own, whose first block is at this depth.
    Findable {
        /// The segment.
        segment: SegmentId,
        /// Depth of its first block.
        start: u32,
    },
}

/// The KV blocks of one engine rank.
#[derive(Debug)]
pub struct KvCache {
    block_size: u32,
    capacity: u32,
    free: u32,
    inactive: u32,
    /// Whether complete blocks get an identity at all.
    caching: bool,
    pieces: Pieces,
    evictions: u64,
    /// Decides which blocks go first, in place of their age.
    foresight: Option<Box<Foresight>>,
    /// Changes of segments below this number are of interest to others.
    published_segments: u32,
    /// Those of them whose extent changed since the last [`KvCache::drain_changes`].
    changes: Vec<SegmentId>,
    hits: Vec<(PieceId, u32, u32)>,
    parts: Vec<PieceId>,
}

impl KvCache {
    /// An empty cache. Changes of what look-ups can find in segments below `published_segments` are kept for
    /// [`KvCache::drain_changes`].
    pub fn new(capacity: u32, block_size: u32, caching: bool, published_segments: u32) -> Self {
        Self {
            block_size,
            capacity,
            free: capacity,
            inactive: 0,
            caching,
            pieces: Pieces::new(),
            evictions: 0,
            foresight: None,
            published_segments: if caching { published_segments } else { 0 },
            changes: Vec::new(),
            hits: Vec::new(),
            parts: Vec::new(),
        }
    }

    /// Evicts what is needed last instead of what was released first.
    pub fn evict_by(&mut self, foresight: Foresight) {
        self.foresight = Some(Box::new(foresight));
    }

    /// Whether which block goes first depends on requests that come while nothing else happens.
    pub fn has_foresight(&self) -> bool {
        self.foresight.is_some()
    }

    /// Says that a request waits for blocks.
    pub fn awaits(&mut self, request: RequestId) {
        if let Some(foresight) = &mut self.foresight {
            foresight.awaits(request);
        }
    }

    /// Says that a request waits for blocks no longer.
    pub fn is_served(&mut self, request: RequestId) {
        if let Some(foresight) = &mut self.foresight {
            foresight.is_served(request);
        }
    }

    /// Tokens per block.
    pub fn block_size(&self) -> u32 {
        self.block_size
    }

    /// All blocks.
    pub fn capacity(&self) -> u32 {
        self.capacity
    }

    /// Blocks without content.
    pub fn free(&self) -> u32 {
        self.free
    }

    /// Blocks that can be had: free ones and those that nobody holds.
    pub fn available(&self) -> u32 {
        self.free + self.inactive
    }

    /// Blocks that some sequence holds.
    pub fn referenced(&self) -> u32 {
        self.capacity - self.free - self.inactive
    }

    /// Blocks evicted so far.
    pub fn evictions(&self) -> u64 {
        self.evictions
    }

    /// Whether changes of what look-ups can find are wanted.
    pub fn publishes(&self) -> bool {
        self.published_segments > 0
    }

    /// Finds the longest cached run of whole blocks along `path`, at most `limit` blocks. Nothing is held yet:
    /// [`KvCache::take_match`] does that, as long as nothing else happened in between.
    pub fn look_up(&mut self, path: &[PathStep], limit: u32) -> Match {
        self.hits.clear();
        let mut found = Match::default();
        if !self.caching {
            return found;
        }
        for step in path {
            let want = step.blocks.min(limit - found.blocks);
            let mut at = 0;
            while at < want {
                let Some((piece, end)) = self.pieces.find(step.segment, at) else { return found };
                let end = end.min(want);
                self.hits.push((piece, at, end));
                found.blocks += end - at;
                if self.pieces.get(piece).holders > 0 {
                    found.referenced += end - at;
                }
                at = end;
            }
            if want < step.blocks {
                break;
            }
        }
        found
    }

    /// Holds what the last look-up found.
    pub fn take_match(&mut self) -> Hold {
        let mut hold = Hold::default();
        for index in 0..self.hits.len() {
            let (piece, lo, hi) = self.hits[index];
            let part = self.pieces.isolate(piece, lo, hi);
            self.inactive -= self.pieces.hold(part);
            hold.pieces.push((part, hi - lo));
            hold.in_pieces += hi - lo;
        }
        hold.blocks = hold.in_pieces;
        hold
    }

    /// Gives `hold` as many blocks as `tokens` tokens need in all; false, with nothing changed, when there are too few.
    pub fn grow(&mut self, hold: &mut Hold, tokens: u32) -> bool {
        let more = tokens.div_ceil(self.block_size).saturating_sub(hold.blocks);
        if more > self.available() {
            return false;
        }
        self.allocate(more);
        hold.blocks += more;
        true
    }

    /// Takes `blocks` blocks, evicting as far as free ones do not suffice.
    ///
    /// # Panics
    /// If there are fewer than [`KvCache::available`] says.
    fn allocate(&mut self, blocks: u32) {
        let from_free = blocks.min(self.free);
        self.free -= from_free;
        let mut rest = blocks - from_free;
        while rest > 0 {
            let evicted = match &self.foresight {
                None => self.pieces.evict(rest),
                Some(foresight) => self.pieces.evict_unneeded(rest, foresight),
            };
            let (taken, segment) = evicted.expect("available() counts the inactive blocks");
            rest -= taken;
            self.inactive -= taken;
            self.evictions += u64::from(taken);
            if let Some(segment) = segment {
                self.note_change(segment);
            }
        }
    }

    /// Gives the complete prompt blocks of the first `computed` tokens of a sequence their identity, so that look-ups find
    /// them from now on.
    pub fn publish_prompt(&mut self, hold: &mut Hold, path: &[PathStep], computed: u32) {
        if !self.caching {
            return;
        }
        let complete = computed / self.block_size;
        for step in path {
            let end = (step.start + step.blocks).min(complete);
            if end <= hold.in_pieces {
                continue;
            }
            let (lo, hi) = (hold.in_pieces.max(step.start) - step.start, end - step.start);
            self.publish_blocks(hold, step.segment, lo, hi);
        }
    }

    fn publish_blocks(&mut self, hold: &mut Hold, segment: SegmentId, lo: u32, hi: u32) {
        let extended = hold.pieces.last_mut().is_some_and(|(piece, blocks)| {
            let extended = self.pieces.extend(*piece, segment, lo, hi);
            if extended {
                *blocks += hi - lo;
            }
            extended
        });
        if !extended {
            let piece = self.pieces.make(segment, lo, hi);
            hold.pieces.push((piece, hi - lo));
        }
        hold.in_pieces += hi - lo;
        self.note_change(segment);
    }

    fn note_change(&mut self, segment: SegmentId) {
        if segment.0 < self.published_segments {
            self.changes.push(segment);
        }
    }

    /// Takes everything back from a sequence whose first `computed` tokens have been computed, the last block first, so that
    /// the end of a prefix is evicted before its start.
    pub fn release(&mut self, hold: &mut Hold, computed: u32, generated: Generated) {
        let loose = hold.blocks - hold.in_pieces;
        let complete =
            if self.caching { (computed / self.block_size).saturating_sub(hold.in_pieces) } else { 0 };
        self.free += loose - complete;
        if complete > 0 {
            self.inactive += complete;
            match generated {
                Generated::Forgotten => self.pieces.make_forgotten(complete),
                Generated::Findable { segment, start } => {
                    let lo = hold.in_pieces - start;
                    let piece = self.pieces.make(segment, lo, lo + complete);
                    self.pieces.let_go(piece);
                }
            }
        }
        while let Some((piece, blocks)) = hold.pieces.pop() {
            self.parts.clear();
            self.pieces.parts(piece, blocks, &mut self.parts);
            for index in (0..self.parts.len()).rev() {
                self.inactive += self.pieces.let_go(self.parts[index]);
            }
        }
        *hold = Hold::default();
    }

    /// Calls `report` with each segment whose findable blocks changed since the last call, and their number now.
    pub fn drain_changes(&mut self, mut report: impl FnMut(SegmentId, u32)) {
        self.changes.sort_unstable();
        self.changes.dedup();
        for &segment in &self.changes {
            report(segment, self.pieces.extent(segment));
        }
        self.changes.clear();
    }
}
