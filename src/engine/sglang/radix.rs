//! The radix cache: which prefixes are there, who holds them, and which pages go first.
//!
//! A *page* is a KV block, often a single token, so pages are never handled one by one. The branching points of the radix tree
//! are known before a run starts (they are those of the [prefix tree](crate::workload::prefix)), so a node is a segment of
//! that tree with the number of its pages that are cached, always counted from its start, and
//!
//! - the stamps of their last access, as *runs*: an access goes through a prefix, so stamps fall with depth;
//! - the ends of the prefixes that sequences hold.
//!
//! The pages at the end of a segment that nobody holds and that no cached segment continues are a *tail*; tails are kept in the
//! order of their stamps, and eviction shortens the oldest, page by page.
//!
//! Pages that a sequence computed are its own until they are inserted into the tree. What others inserted meanwhile is not
//! inserted twice: the sequence goes over to the pages in the tree and frees its own.

use std::collections::BTreeSet;

use rustc_hash::FxHashMap;

use crate::workload::prefix::{PathStep, SegmentId};

/// Pages of one sequence.
#[derive(Debug, Default)]
pub(super) struct Hold {
    /// Those in the tree, from the start of the sequence; held against eviction.
    in_tree: u32,
    /// All of them.
    pages: u32,
}

impl Hold {
    /// All its pages.
    pub(super) fn pages(&self) -> u32 {
        self.pages
    }
}

/// What a look-up found: pages from the start of the sequence.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Match {
    pub(super) pages: u32,
    /// Those among them that nobody holds at present.
    pub(super) unheld: u32,
}

/// When something was accessed, in accesses.
type Stamp = u64;

/// The cached pages of one segment.
#[derive(Debug, Default)]
struct Node {
    parent: Option<SegmentId>,
    /// Cached segments that continue this one.
    children: u32,
    /// Pages up to each end were last accessed at the stamp; the newest first.
    runs: Vec<(u32, Stamp)>,
    /// Ends of held prefixes, each with the number of its holders; the longest first.
    held: Vec<(u32, u32)>,
}

impl Node {
    fn pages(&self) -> u32 {
        self.runs.last().map_or(0, |&(end, _)| end)
    }

    fn held(&self) -> u32 {
        self.held.first().map_or(0, |&(end, _)| end)
    }

    /// The stamp of the pages at the end, if they may go.
    fn tail(&self) -> Option<Stamp> {
        let &(end, stamp) = self.runs.last()?;
        (self.children == 0 && end > self.held()).then_some(stamp)
    }

    /// Accesses the first `pages` pages, adding those that are missing.
    fn access(&mut self, pages: u32, stamp: Stamp) {
        let covered = self.runs.partition_point(|&(end, _)| end <= pages);
        self.runs.splice(..covered, [(pages, stamp)]);
    }

    /// Moves the end of one holder; 0 stands for nothing held.
    fn move_hold(&mut self, from: u32, to: u32) {
        if from > 0 {
            let place = self.held.partition_point(|&(end, _)| end > from);
            self.held[place].1 -= 1;
            if self.held[place].1 == 0 {
                self.held.remove(place);
            }
        }
        if to > 0 {
            let place = self.held.partition_point(|&(end, _)| end > to);
            match self.held.get_mut(place) {
                Some((end, holders)) if *end == to => *holders += 1,
                _ => self.held.insert(place, (to, 1)),
            }
        }
    }

    /// Gives up to `pages` pages of the tail's stamp away; returns how many.
    fn shorten(&mut self, pages: u32) -> u32 {
        let held = self.held();
        let before = self.runs.len().checked_sub(2).map_or(0, |place| self.runs[place].0);
        let Some((end, _)) = self.runs.last_mut() else { return 0 };
        let taken = pages.min(*end - held.max(before));
        *end -= taken;
        if *end == before {
            self.runs.pop();
        }
        taken
    }
}

/// The KV pages of one engine rank.
#[derive(Debug)]
pub(super) struct RadixCache {
    capacity: u32,
    free: u32,
    /// Pages in the tree.
    cached: u32,
    /// Pages in the tree that somebody holds.
    held: u32,
    /// Whether anything is inserted at all.
    caching: bool,
    nodes: FxHashMap<SegmentId, Node>,
    /// Emptied nodes, whose buffers are used again.
    spare: Vec<Node>,
    tails: BTreeSet<(Stamp, SegmentId)>,
    clock: Stamp,
    evictions: u64,
    /// Changes of segments below this number are of interest to others.
    published_segments: u32,
    /// Those of them that changed since the last [`RadixCache::drain_changes`].
    changes: Vec<SegmentId>,
}

impl RadixCache {
    /// An empty cache. Changes of segments below `published_segments` are kept for [`RadixCache::drain_changes`].
    pub(super) fn new(capacity: u32, caching: bool, published_segments: u32) -> Self {
        Self {
            capacity,
            free: capacity,
            cached: 0,
            held: 0,
            caching,
            nodes: FxHashMap::default(),
            spare: Vec::new(),
            tails: BTreeSet::new(),
            clock: 0,
            evictions: 0,
            published_segments: if caching { published_segments } else { 0 },
            changes: Vec::new(),
        }
    }

    /// All pages.
    pub(super) fn capacity(&self) -> u32 {
        self.capacity
    }

    /// Pages without content.
    pub(super) fn free(&self) -> u32 {
        self.free
    }

    /// Pages that can be had: free ones and those in the tree that nobody holds.
    pub(super) fn available(&self) -> u32 {
        self.free + self.cached - self.held
    }

    /// Pages that some sequence holds.
    pub(super) fn referenced(&self) -> u32 {
        self.capacity - self.available()
    }

    /// Pages evicted so far.
    pub(super) fn evictions(&self) -> u64 {
        self.evictions
    }

    /// Whether changes of what look-ups can find are wanted.
    pub(super) fn publishes(&self) -> bool {
        self.published_segments > 0
    }

    /// Finds the longest cached prefix along `path`, at most `limit` pages. It is no access.
    pub(super) fn look_up(&self, path: &[PathStep], limit: u32) -> Match {
        let mut found = Match::default();
        for step in path {
            let Some(node) = self.nodes.get(&step.segment) else { break };
            let pages = node.pages().min(limit - found.pages);
            found.pages += pages;
            found.unheld += pages.saturating_sub(node.held());
            if pages < step.blocks {
                break;
            }
        }
        found
    }

    /// Accesses the first `pages` pages of `path`, which are cached.
    pub(super) fn access(&mut self, path: &[PathStep], pages: u32) {
        self.clock += 1;
        let stamp = self.clock;
        for step in path {
            let end = within(step, pages);
            if end == 0 {
                break;
            }
            self.change(step.segment, |node| node.access(end, stamp));
        }
    }

    /// Accesses the first `pages` pages of `path`, which are cached, and holds them.
    pub(super) fn enter(&mut self, path: &[PathStep], pages: u32) -> Hold {
        self.access(path, pages);
        self.move_hold(path, 0, pages);
        Hold { in_tree: pages, pages }
    }

    /// Gives `hold` its first `pages` pages, evicting as far as free ones do not suffice; false, with nothing changed, when there
    /// are too few.
    pub(super) fn grow(&mut self, hold: &mut Hold, pages: u32) -> bool {
        let more = pages.saturating_sub(hold.pages);
        if more > self.available() {
            return false;
        }
        if more > self.free {
            self.evict(more - self.free);
        }
        self.free -= more;
        hold.pages += more;
        true
    }

    /// Puts the first `pages` pages of a sequence, which it has, into the tree.
    pub(super) fn insert(&mut self, hold: &mut Hold, path: &[PathStep], pages: u32) {
        if !self.caching || pages <= hold.in_tree {
            return;
        }
        let found = self.look_up(path, pages).pages;
        self.free += found - hold.in_tree;
        let mut parent = None;
        for step in path {
            let end = within(step, pages);
            if end == 0 {
                break;
            }
            if step.start.saturating_add(end) > found {
                self.make_node(step.segment, parent);
                self.note_change(step.segment);
            }
            parent = Some(step.segment);
        }
        self.access(path, pages);
        self.move_hold(path, hold.in_tree, pages);
        hold.in_tree = pages;
    }

    /// Takes everything back from a sequence, whose first `pages` pages stay in the tree for others.
    pub(super) fn release(&mut self, hold: &mut Hold, path: &[PathStep], pages: u32) {
        self.insert(hold, path, pages);
        self.move_hold(path, hold.in_tree, 0);
        self.free += hold.pages - hold.in_tree;
        *hold = Hold::default();
    }

    /// Calls `report` with each segment whose cached pages changed since the last call, and their number now.
    pub(super) fn drain_changes(&mut self, mut report: impl FnMut(SegmentId, u32)) {
        self.changes.sort_unstable();
        self.changes.dedup();
        for &segment in &self.changes {
            report(segment, self.nodes.get(&segment).map_or(0, Node::pages));
        }
        self.changes.clear();
    }

    fn evict(&mut self, pages: u32) {
        let mut rest = pages;
        while rest > 0 {
            let &(_, segment) = self.tails.first().expect("available() counts what nobody holds");
            let taken = self.change(segment, |node| node.shorten(rest));
            rest -= taken;
            self.free += taken;
            self.evictions += u64::from(taken);
            self.note_change(segment);
            self.remove_if_empty(segment);
        }
    }

    fn move_hold(&mut self, path: &[PathStep], from: u32, to: u32) {
        for step in path {
            let (from, to) = (within(step, from), within(step, to));
            if from != to {
                self.change(step.segment, |node| node.move_hold(from, to));
            }
        }
    }

    fn make_node(&mut self, segment: SegmentId, parent: Option<SegmentId>) {
        if self.nodes.contains_key(&segment) {
            return;
        }
        let spare = self.spare.pop().unwrap_or_default();
        self.nodes.insert(segment, Node { parent, ..spare });
        if let Some(parent) = parent {
            self.change(parent, |node| node.children += 1);
        }
    }

    fn remove_if_empty(&mut self, segment: SegmentId) {
        if self.nodes[&segment].pages() > 0 {
            return;
        }
        let Some(node) = self.nodes.remove(&segment) else { return };
        if let Some(parent) = node.parent {
            self.change(parent, |node| node.children -= 1);
        }
        self.spare.push(node);
    }

    /// Changes a node and brings the counts and the order of tails up to date.
    fn change<T>(&mut self, segment: SegmentId, change: impl FnOnce(&mut Node) -> T) -> T {
        let node = self.nodes.get_mut(&segment).expect("a path is cached as far as it is used");
        let (tail, pages, held) = (node.tail(), node.pages(), node.held());
        let result = change(node);
        self.cached = self.cached - pages + node.pages();
        self.held = self.held - held + node.held();
        let now = node.tail();
        if tail != now {
            if let Some(stamp) = tail {
                self.tails.remove(&(stamp, segment));
            }
            if let Some(stamp) = now {
                self.tails.insert((stamp, segment));
            }
        }
        result
    }

    fn note_change(&mut self, segment: SegmentId) {
        if segment.0 < self.published_segments {
            self.changes.push(segment);
        }
    }
}

/// How many of the first `pages` pages of a path lie in one of its steps.
fn within(step: &PathStep, pages: u32) -> u32 {
    pages.saturating_sub(step.start).min(step.blocks)
}
