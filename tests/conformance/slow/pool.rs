//! The physical KV blocks of one engine.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

use super::content::Identity;

/// Number of a physical block.
pub(crate) type BlockId = usize;

/// A fixed number of blocks, each free, referenced by requests, or unreferenced with content that may be hit.
#[derive(Debug)]
pub(crate) struct Pool {
    blocks: Vec<Block>,
    free: Vec<BlockId>,
    /// Unreferenced blocks with an identity, by the moment of their release.
    inactive: BTreeMap<u64, BlockId>,
    /// All blocks with an identity, the one that got it first in front.
    copies: FxHashMap<Identity, Vec<BlockId>>,
    releases: u64,
    evictions: u64,
}

#[derive(Clone, Debug, Default)]
struct Block {
    references: u32,
    identity: Option<Identity>,
    released: u64,
}

impl Pool {
    pub(crate) fn new(size: usize) -> Self {
        Self {
            blocks: vec![Block::default(); size],
            free: (0..size).collect(),
            inactive: BTreeMap::new(),
            copies: FxHashMap::default(),
            releases: 0,
            evictions: 0,
        }
    }

    /// Blocks in all.
    pub(crate) fn size(&self) -> usize {
        self.blocks.len()
    }

    /// Blocks that can be taken: free ones and those to evict.
    pub(crate) fn available(&self) -> usize {
        self.free.len() + self.inactive.len()
    }

    /// Blocks held by at least one request.
    pub(crate) fn referenced(&self) -> usize {
        self.size() - self.available()
    }

    /// Whether a block is held by at least one request.
    pub(crate) fn is_referenced(&self, block: BlockId) -> bool {
        self.blocks[block].references > 0
    }

    /// Blocks evicted so far.
    pub(crate) fn evictions(&self) -> u64 {
        self.evictions
    }

    /// The block that a look-up of `identity` finds.
    pub(crate) fn find(&self, identity: Identity) -> Option<BlockId> {
        self.copies.get(&identity).map(|copies| copies[0])
    }

    /// Holds a block that a look-up found.
    pub(crate) fn hold(&mut self, block: BlockId) {
        if self.blocks[block].references == 0 {
            let removed = self.inactive.remove(&self.blocks[block].released);
            assert_eq!(removed, Some(block), "an unreferenced block with an identity is inactive");
        }
        self.blocks[block].references += 1;
    }

    /// Holds a block without content: a free one, else the one released longest ago.
    pub(crate) fn take(&mut self) -> BlockId {
        let block = self.free.pop().unwrap_or_else(|| self.evict());
        assert_eq!(self.blocks[block].references, 0, "a block taken is held by nobody");
        self.blocks[block].references = 1;
        block
    }

    /// Gives a held block an identity under which it can be found.
    pub(crate) fn publish(&mut self, block: BlockId, identity: Identity) {
        let before = self.blocks[block].identity.replace(identity);
        assert_eq!(before, None, "a block is filled once");
        self.copies.entry(identity).or_default().push(block);
    }

    /// Gives up one reference.
    pub(crate) fn release(&mut self, block: BlockId) {
        let state = &mut self.blocks[block];
        state.references -= 1;
        if state.references > 0 {
            return;
        }
        if state.identity.is_none() {
            self.free.push(block);
            return;
        }
        self.releases += 1;
        state.released = self.releases;
        self.inactive.insert(self.releases, block);
    }

    fn evict(&mut self) -> BlockId {
        let (_, block) = self.inactive.pop_first().expect("the caller checked that a block is available");
        let identity = self.blocks[block].identity.take().expect("inactive blocks have an identity");
        let copies = self.copies.get_mut(&identity).expect("a block with an identity is listed under it");
        copies.retain(|&copy| copy != block);
        if copies.is_empty() {
            self.copies.remove(&identity);
        }
        self.evictions += 1;
        block
    }
}
