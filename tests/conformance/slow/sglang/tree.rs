//! SGLang's KV pages: those of the radix tree, one by one, and those that sequences have for themselves.

use rustc_hash::FxHashMap;

use crate::slow::content::Identity;

/// A fixed number of pages, each free, in the tree, or a sequence's own.
#[derive(Debug)]
pub(super) struct Tree {
    size: usize,
    /// Whether anything is put into the tree.
    caching: bool,
    pages: FxHashMap<Identity, Page>,
    /// Pages that sequences have for themselves, all together.
    own: usize,
    accesses: u64,
    evictions: u64,
}

/// A page in the tree.
#[derive(Debug)]
struct Page {
    parent: Option<Identity>,
    /// Pages in the tree that continue this one.
    children: u32,
    /// Sequences that hold it.
    holders: u32,
    /// Number of the last access.
    accessed: u64,
}

/// The pages of one sequence: first those in the tree, then its own.
#[derive(Debug, Default)]
pub(super) struct Hold {
    in_tree: Vec<Identity>,
    own: usize,
}

impl Hold {
    pub(super) fn pages(&self) -> usize {
        self.in_tree.len() + self.own
    }
}

impl Tree {
    pub(super) fn new(size: usize, caching: bool) -> Self {
        Self { size, caching, pages: FxHashMap::default(), own: 0, accesses: 0, evictions: 0 }
    }

    pub(super) fn size(&self) -> usize {
        self.size
    }

    /// Pages that can be had: free ones, and those in the tree that nobody holds.
    pub(super) fn available(&self) -> usize {
        self.free() + self.pages.values().filter(|page| page.holders == 0).count()
    }

    /// Pages that somebody holds.
    pub(super) fn referenced(&self) -> usize {
        self.size - self.available()
    }

    pub(super) fn evictions(&self) -> u64 {
        self.evictions
    }

    /// How many pages from the start of `path` are in the tree.
    pub(super) fn found(&self, path: &[Identity]) -> usize {
        path.iter().take_while(|page| self.pages.contains_key(page)).count()
    }

    /// How many of these pages of the tree nobody holds.
    pub(super) fn unheld(&self, path: &[Identity]) -> usize {
        path.iter().filter(|page| self.pages[page].holders == 0).count()
    }

    /// Accesses pages of the tree.
    pub(super) fn access(&mut self, path: &[Identity]) {
        self.accesses += 1;
        for page in path {
            self.page(*page).accessed = self.accesses;
        }
    }

    /// Accesses pages of the tree and holds them.
    pub(super) fn hold(&mut self, path: &[Identity]) -> Hold {
        self.access(path);
        for page in path {
            self.page(*page).holders += 1;
        }
        Hold { in_tree: path.to_vec(), own: 0 }
    }

    /// Gives a sequence its first `pages` pages, evicting where free ones do not suffice; false, and nothing happens, when there
    /// are too few.
    pub(super) fn grow(&mut self, hold: &mut Hold, pages: usize) -> bool {
        let more = pages.saturating_sub(hold.pages());
        if more > self.available() {
            return false;
        }
        for _ in 0..more {
            if self.free() == 0 {
                self.evict();
            }
            self.own += 1;
            hold.own += 1;
        }
        true
    }

    /// Puts a sequence's first pages, which it has, into the tree. Whose content is there already is freed.
    pub(super) fn insert(&mut self, hold: &mut Hold, path: &[Identity]) {
        if !self.caching || path.len() <= hold.in_tree.len() {
            return;
        }
        for index in hold.in_tree.len()..path.len() {
            let parent = index.checked_sub(1).map(|before| path[before]);
            let is_new = !self.pages.contains_key(&path[index]);
            let page = Page { parent, children: 0, holders: 0, accessed: 0 };
            self.pages.entry(path[index]).or_insert(page);
            if let Some(parent) = parent.filter(|_| is_new) {
                self.page(parent).children += 1;
            }
            self.page(path[index]).holders += 1;
            self.own -= 1;
            hold.own -= 1;
            hold.in_tree.push(path[index]);
        }
        self.access(path);
    }

    /// Takes all pages from a sequence; those of `path` stay in the tree for others.
    pub(super) fn release(&mut self, mut hold: Hold, path: &[Identity]) {
        self.insert(&mut hold, path);
        for page in hold.in_tree {
            self.page(page).holders -= 1;
        }
        self.own -= hold.own;
    }

    fn free(&self) -> usize {
        self.size - self.pages.len() - self.own
    }

    /// Evicts the page accessed longest ago of those that nobody holds and none continues.
    fn evict(&mut self) {
        let leaves = self.pages.iter().filter(|(_, page)| page.holders == 0 && page.children == 0);
        let oldest = leaves.min_by_key(|(_, page)| page.accessed).map(|(identity, _)| *identity);
        let removed = oldest.and_then(|identity| self.pages.remove(&identity));
        let removed = removed.expect("the caller checked that a page is available");
        if let Some(parent) = removed.parent {
            self.page(parent).children -= 1;
        }
        self.evictions += 1;
    }

    fn page(&mut self, identity: Identity) -> &mut Page {
        self.pages.get_mut(&identity).expect("the page is in the tree")
    }
}
