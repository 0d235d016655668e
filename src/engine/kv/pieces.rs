//! Runs of blocks with a common fate: the slab, the copies of each segment and the eviction order.

use rustc_hash::FxHashMap;

use super::foresight::{Foresight, NEVER};
use crate::workload::prefix::SegmentId;

/// Number of a piece within its slab.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PieceId(u32);

const NONE: u32 = u32::MAX;

/// Blocks `[lo, hi)` of one segment, in one physical copy.
#[derive(Clone, Copy, Debug)]
pub(super) struct Piece {
    /// `None` for content that no look-up can ask for again.
    pub(super) segment: Option<SegmentId>,
    pub(super) lo: u32,
    pub(super) hi: u32,
    /// Sequences that hold it; without any it stands in the eviction order.
    pub(super) holders: u32,
    /// What was cut off this piece's end while it was held: a holder of this piece may hold that as well.
    continued: u32,
    /// Next piece of the same segment, in the order of making.
    next_copy: u32,
    /// Neighbours in the eviction order.
    older: u32,
    newer: u32,
    /// Rank of the next use, as found out at this revision of the foresight.
    next_use: (u32, u32),
}

impl Piece {
    pub(super) fn blocks(&self) -> u32 {
        self.hi - self.lo
    }
}

/// All pieces of one cache.
#[derive(Debug)]
pub(super) struct Pieces {
    slab: Vec<Piece>,
    vacant: Vec<u32>,
    /// First piece of each segment that has any.
    first_copies: FxHashMap<SegmentId, u32>,
    oldest: u32,
    newest: u32,
}

impl Pieces {
    pub(super) fn new() -> Self {
        Self {
            slab: Vec::new(),
            vacant: Vec::new(),
            first_copies: FxHashMap::default(),
            oldest: NONE,
            newest: NONE,
        }
    }

    pub(super) fn get(&self, id: PieceId) -> &Piece {
        &self.slab[id.0 as usize]
    }

    /// Makes a piece with one holder, behind the other copies of its segment.
    pub(super) fn make(&mut self, segment: SegmentId, lo: u32, hi: u32) -> PieceId {
        let id = self.store(Piece { segment: Some(segment), lo, hi, holders: 1, ..EMPTY });
        match self.last_copy(segment) {
            None => {
                self.first_copies.insert(segment, id.0);
            }
            Some(last) => self.slab[last.0 as usize].next_copy = id.0,
        }
        id
    }

    /// Makes an inactive piece that no look-up can find, as the newest.
    pub(super) fn make_forgotten(&mut self, blocks: u32) {
        let id = self.store(Piece { hi: blocks, ..EMPTY });
        self.append(id);
    }

    /// Lets the only holder of `id` extend it, if its end is at `lo` and no copy was made since.
    pub(super) fn extend(&mut self, id: PieceId, segment: SegmentId, lo: u32, hi: u32) -> bool {
        let piece = &mut self.slab[id.0 as usize];
        let fits =
            piece.segment == Some(segment) && piece.hi == lo && piece.holders == 1 && piece.next_copy == NONE;
        if fits {
            piece.hi = hi;
        }
        fits
    }

    /// The copy of block `at` of a segment that was made first, and the block up to which it stays the first.
    pub(super) fn find(&self, segment: SegmentId, at: u32) -> Option<(PieceId, u32)> {
        let mut end = u32::MAX;
        let mut copy = *self.first_copies.get(&segment)?;
        while copy != NONE {
            let piece = &self.slab[copy as usize];
            if piece.lo <= at && at < piece.hi {
                return Some((PieceId(copy), end.min(piece.hi)));
            }
            if piece.lo > at {
                end = end.min(piece.lo);
            }
            copy = piece.next_copy;
        }
        None
    }

    /// Blocks of a segment that are here, counted from its start. Eviction goes from the end of a prefix, so there are no holes.
    pub(super) fn extent(&self, segment: SegmentId) -> u32 {
        let mut extent = 0;
        let mut copy = self.first_copies.get(&segment).copied().unwrap_or(NONE);
        while copy != NONE {
            let piece = &self.slab[copy as usize];
            extent = extent.max(piece.hi);
            copy = piece.next_copy;
        }
        extent
    }

    /// Cuts a piece so that `[lo, hi)` is one of its own, and returns that part. The piece may have been cut below `lo`
    /// since it was found.
    pub(super) fn isolate(&mut self, mut id: PieceId, lo: u32, hi: u32) -> PieceId {
        while self.get(id).hi <= lo {
            id = PieceId(self.get(id).next_copy);
        }
        if self.get(id).hi > hi {
            self.cut(id, hi);
        }
        if self.get(id).lo < lo { self.cut(id, lo) } else { id }
    }

    /// Adds a holder; returns the number of blocks that were inactive until now.
    pub(super) fn hold(&mut self, id: PieceId) -> u32 {
        let piece = &mut self.slab[id.0 as usize];
        piece.holders += 1;
        if piece.holders > 1 {
            return 0;
        }
        self.unlink(id);
        self.get(id).blocks()
    }

    /// Removes a holder; without any left the piece becomes the newest of the eviction order. Returns the number of
    /// blocks that became inactive.
    pub(super) fn let_go(&mut self, id: PieceId) -> u32 {
        let piece = &mut self.slab[id.0 as usize];
        assert!(piece.holders > 0, "a piece is let go by its holders only");
        piece.holders -= 1;
        if piece.holders > 0 {
            return 0;
        }
        piece.continued = NONE;
        self.append(id);
        self.get(id).blocks()
    }

    /// The parts into which a holding of `blocks` blocks from the start of `id` has been cut meanwhile, in order.
    pub(super) fn parts(&self, id: PieceId, blocks: u32, parts: &mut Vec<PieceId>) {
        let mut rest = blocks;
        let mut at = id.0;
        while rest > 0 {
            let piece = &self.slab[at as usize];
            rest -= piece.blocks();
            parts.push(PieceId(at));
            at = piece.continued;
        }
    }

    /// Evicts up to `blocks` blocks from the end of the oldest inactive piece. Returns how many and from which segment,
    /// or `None` when nothing is inactive.
    pub(super) fn evict(&mut self, blocks: u32) -> Option<(u32, Option<SegmentId>)> {
        self.evict_from(PieceId(self.oldest), blocks)
    }

    /// As [`Pieces::evict`], from the inactive piece whose next use lies farthest ahead; of several from the oldest, so that
    /// here too the end of a prefix goes before its start.
    pub(super) fn evict_unneeded(
        &mut self,
        blocks: u32,
        foresight: &Foresight,
    ) -> Option<(u32, Option<SegmentId>)> {
        let mut farthest = (0, NONE);
        let mut at = self.oldest;
        while at != NONE {
            let next_use = self.next_use(at, foresight);
            if farthest.1 == NONE || next_use > farthest.0 {
                farthest = (next_use, at);
            }
            if next_use == NEVER {
                break;
            }
            at = self.slab[at as usize].newer;
        }
        self.evict_from(PieceId(farthest.1), blocks)
    }

    /// Rank of the next use of an inactive piece; remembered as long as it holds.
    fn next_use(&mut self, id: u32, foresight: &Foresight) -> u32 {
        let piece = &mut self.slab[id as usize];
        let Some(segment) = piece.segment else { return NEVER };
        let (rank, revision) = piece.next_use;
        if revision == foresight.revision() && (rank == NEVER || foresight.is_to_come(rank)) {
            return rank;
        }
        let rank = foresight.next_use(segment);
        piece.next_use = (rank, foresight.revision());
        rank
    }

    fn evict_from(&mut self, id: PieceId, blocks: u32) -> Option<(u32, Option<SegmentId>)> {
        if id.0 == NONE {
            return None;
        }
        let piece = &mut self.slab[id.0 as usize];
        let taken = blocks.min(piece.blocks());
        piece.hi -= taken;
        let segment = piece.segment;
        if piece.blocks() == 0 {
            self.unlink(id);
            self.remove(id);
        }
        Some((taken, segment))
    }

    fn store(&mut self, piece: Piece) -> PieceId {
        if let Some(index) = self.vacant.pop() {
            self.slab[index as usize] = piece;
            return PieceId(index);
        }
        self.slab.push(piece);
        PieceId(self.slab.len() as u32 - 1)
    }

    fn last_copy(&self, segment: SegmentId) -> Option<PieceId> {
        let mut copy = *self.first_copies.get(&segment)?;
        while self.slab[copy as usize].next_copy != NONE {
            copy = self.slab[copy as usize].next_copy;
        }
        Some(PieceId(copy))
    }

    /// Cuts a piece at block `at` and returns the upper part, which is evicted before the lower one.
    fn cut(&mut self, id: PieceId, at: u32) -> PieceId {
        let lower = *self.get(id);
        debug_assert!(lower.lo < at && at < lower.hi, "a cut leaves two parts");
        let upper = self.store(Piece { lo: at, ..lower });
        let piece = &mut self.slab[id.0 as usize];
        piece.hi = at;
        piece.next_copy = upper.0;
        if piece.holders > 0 {
            piece.continued = upper.0;
        } else {
            self.link_between(lower.older, upper, id.0);
        }
        upper
    }

    /// Takes a piece out of its segment's copies and gives its place back.
    fn remove(&mut self, id: PieceId) {
        if let Some(segment) = self.get(id).segment {
            self.forget_copy(segment, id);
        }
        self.vacant.push(id.0);
    }

    fn forget_copy(&mut self, segment: SegmentId, id: PieceId) {
        let next = self.get(id).next_copy;
        let first = self.first_copies[&segment];
        if first == id.0 {
            if next == NONE {
                self.first_copies.remove(&segment);
            } else {
                self.first_copies.insert(segment, next);
            }
            return;
        }
        let mut copy = first;
        while self.slab[copy as usize].next_copy != id.0 {
            copy = self.slab[copy as usize].next_copy;
        }
        self.slab[copy as usize].next_copy = next;
    }

    fn append(&mut self, id: PieceId) {
        self.link_between(self.newest, id, NONE);
    }

    fn link_between(&mut self, older: u32, id: PieceId, newer: u32) {
        let piece = &mut self.slab[id.0 as usize];
        (piece.older, piece.newer) = (older, newer);
        match older {
            NONE => self.oldest = id.0,
            older => self.slab[older as usize].newer = id.0,
        }
        match newer {
            NONE => self.newest = id.0,
            newer => self.slab[newer as usize].older = id.0,
        }
    }

    fn unlink(&mut self, id: PieceId) {
        let Piece { older, newer, .. } = *self.get(id);
        match older {
            NONE => self.oldest = newer,
            older => self.slab[older as usize].newer = newer,
        }
        match newer {
            NONE => self.newest = older,
            newer => self.slab[newer as usize].older = older,
        }
    }
}

const EMPTY: Piece = Piece {
    segment: None,
    lo: 0,
    hi: 0,
    holders: 0,
    continued: NONE,
    next_copy: NONE,
    older: NONE,
    newer: NONE,
    next_use: (0, NONE),
};
