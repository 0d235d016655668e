//! The cache against a model that keeps every page by the tokens that lead to it.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::super::radix::{Hold, RadixCache};
use super::{Asked, inputs};
use crate::engine::Inputs;
use crate::workload::RequestId;
use crate::workload::prefix::{PathStep, SegmentId};

/// Pages by all tokens up to their end.
struct Model {
    page_size: usize,
    capacity: u32,
    pages: BTreeMap<Vec<u32>, Page>,
    /// Pages outside the tree.
    own: u32,
    clock: u64,
    evictions: u64,
}

#[derive(Default)]
struct Page {
    stamp: u64,
    holders: u32,
}

/// One sequence in the model: pages in the tree, all pages.
#[derive(Clone, Copy, Default)]
struct Held {
    in_tree: u32,
    pages: u32,
}

impl Model {
    fn key(&self, tokens: &[u32], page: u32) -> Vec<u32> {
        tokens[..(page as usize + 1) * self.page_size].to_vec()
    }

    fn free(&self) -> u32 {
        self.capacity - self.pages.len() as u32 - self.own
    }

    fn available(&self) -> u32 {
        self.free() + self.pages.values().filter(|page| page.holders == 0).count() as u32
    }

    fn look_up(&self, tokens: &[u32], limit: u32) -> u32 {
        (0..limit).take_while(|&page| self.pages.contains_key(&self.key(tokens, page))).count() as u32
    }

    fn access(&mut self, tokens: &[u32], pages: u32) {
        self.clock += 1;
        for page in 0..pages {
            let key = self.key(tokens, page);
            self.pages.get_mut(&key).unwrap().stamp = self.clock;
        }
    }

    fn hold(&mut self, tokens: &[u32], pages: std::ops::Range<u32>) {
        for page in pages {
            let key = self.key(tokens, page);
            self.pages.get_mut(&key).unwrap().holders += 1;
        }
    }

    fn grow(&mut self, held: &mut Held, pages: u32) -> bool {
        let more = pages.saturating_sub(held.pages);
        if more > self.available() {
            return false;
        }
        while self.free() < more {
            let is_leaf = |key: &[u32]| {
                !self.pages.keys().any(|other| other.len() > key.len() && other.starts_with(key))
            };
            let victims = self.pages.iter().filter(|(key, page)| page.holders == 0 && is_leaf(key));
            let victim = victims.min_by_key(|(_, page)| page.stamp).unwrap().0.clone();
            self.pages.remove(&victim);
            self.evictions += 1;
        }
        self.own += more;
        held.pages = held.pages.max(pages);
        true
    }

    fn insert(&mut self, held: &mut Held, tokens: &[u32], pages: u32) {
        if pages <= held.in_tree {
            return;
        }
        for page in held.in_tree..pages {
            let key = self.key(tokens, page);
            self.pages.entry(key).or_default();
            self.own -= 1;
        }
        self.access(tokens, pages);
        self.hold(tokens, held.in_tree..pages);
        held.in_tree = pages;
    }

    fn release(&mut self, held: &mut Held, tokens: &[u32], pages: u32) {
        self.insert(held, tokens, pages);
        for page in 0..held.in_tree {
            let key = self.key(tokens, page);
            self.pages.get_mut(&key).unwrap().holders -= 1;
        }
        self.own -= held.pages - held.in_tree;
        *held = Held::default();
    }
}

/// Both caches, and who is in them.
struct Pair {
    inputs: Inputs,
    asked: Vec<Asked>,
    cache: RadixCache,
    model: Model,
    active: BTreeMap<usize, (Hold, Held)>,
}

impl Pair {
    fn new(asked: Vec<Asked>, page_size: u32, capacity: u32) -> Self {
        let inputs = inputs(&asked, page_size);
        let cache = RadixCache::new(capacity, true, inputs.tree.segment_count() as u32);
        let page_size = page_size as usize;
        let model = Model { page_size, capacity, pages: BTreeMap::new(), own: 0, clock: 0, evictions: 0 };
        Self { inputs, asked, cache, model, active: BTreeMap::new() }
    }

    fn path(&self, request: usize) -> Vec<PathStep> {
        let mut path = Vec::new();
        self.inputs.tree.path(RequestId(request as u32), &mut path);
        let segment = SegmentId((self.inputs.tree.segment_count() + request) as u32);
        let start = (self.asked[request].1.len() / self.model.page_size) as u32;
        path.push(PathStep { segment, start, blocks: u32::MAX });
        path
    }

    /// The prompt and then tokens that nobody else has.
    fn tokens(&self, request: usize) -> Vec<u32> {
        let own = (0..40).map(|at| 1_000_000 + 1000 * request as u32 + at);
        self.asked[request].1.iter().copied().chain(own).collect()
    }

    /// Enters a request, or lets it grow, or takes it out.
    fn step(&mut self, request: usize, amount: u32) {
        let (path, tokens) = (self.path(request), self.tokens(request));
        let known = (tokens.len() / self.model.page_size) as u32;
        let Some((mut hold, mut held)) = self.active.remove(&request) else {
            let found = self.cache.look_up(&path, known);
            assert_eq!(found.pages, self.model.look_up(&tokens, known));
            let pages = found.pages.min(amount);
            if amount == 0 {
                self.cache.access(&path, found.pages);
                self.model.access(&tokens, found.pages);
                return;
            }
            let hold = self.cache.enter(&path, pages);
            self.model.access(&tokens, pages);
            self.model.hold(&tokens, 0..pages);
            self.active.insert(request, (hold, Held { in_tree: pages, pages }));
            return;
        };
        if amount < 3 {
            let keep = held.in_tree.max(held.pages.saturating_sub(amount));
            self.cache.release(&mut hold, &path, keep);
            self.model.release(&mut held, &tokens, keep);
            return;
        }
        let pages = (held.pages + amount - 2).min(known);
        assert_eq!(self.cache.grow(&mut hold, pages), self.model.grow(&mut held, pages));
        if amount.is_multiple_of(2) {
            let pages = held.pages;
            self.cache.insert(&mut hold, &path, pages);
            self.model.insert(&mut held, &tokens, pages);
        }
        assert_eq!(hold.pages(), held.pages);
        self.active.insert(request, (hold, held));
    }

    fn compare(&self) {
        assert_eq!(self.cache.free(), self.model.free());
        assert_eq!(self.cache.available(), self.model.available());
        assert_eq!(self.cache.evictions(), self.model.evictions);
        for request in 0..self.asked.len() {
            let tokens = self.tokens(request);
            let limit = (tokens.len() / self.model.page_size) as u32;
            let found = self.cache.look_up(&self.path(request), limit);
            assert_eq!(found.pages, self.model.look_up(&tokens, limit), "request {request}");
            let unheld = |&page: &u32| self.model.pages[&self.model.key(&tokens, page)].holders == 0;
            assert_eq!(found.unheld, (0..found.pages).filter(unheld).count() as u32, "request {request}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn agrees_with_a_model_page_by_page(
        prompts in prop::collection::vec(prop::collection::vec(0_u32..2, 1..12), 1..8),
        page_size in 1_u32..4,
        capacity in 1_u32..40,
        steps in prop::collection::vec((0_usize..8, 0_u32..9), 1..60),
    ) {
        let asked = prompts.into_iter().map(|tokens| (0, tokens, 1)).collect();
        let mut pair = Pair::new(asked, page_size, capacity);
        for (request, amount) in steps {
            pair.step(request % pair.asked.len(), amount);
            pair.compare();
        }
        let active: Vec<usize> = pair.active.keys().copied().collect();
        for request in active {
            pair.step(request, 0);
            pair.compare();
        }
        prop_assert_eq!(pair.cache.referenced(), 0);
    }
}

#[test]
fn what_was_inserted_by_another_is_not_kept_twice() {
    let asked: Vec<Asked> = vec![(0, vec![1, 2, 3, 4], 1), (0, vec![1, 2, 3, 5], 1)];
    let mut pair = Pair::new(asked, 1, 10);
    let paths = [pair.path(0), pair.path(1)];
    let mut holds = [Hold::default(), Hold::default()];
    for (hold, path) in holds.iter_mut().zip(&paths) {
        assert!(pair.cache.grow(hold, 4));
        pair.cache.insert(hold, path, 4);
    }
    assert_eq!((pair.cache.free(), pair.cache.available()), (5, 5));
    let mut changes = Vec::new();
    pair.cache.drain_changes(|segment, pages| changes.push((segment.0, pages)));
    changes.sort_unstable_by_key(|&(_, pages)| pages);
    assert_eq!(changes.iter().map(|&(_, pages)| pages).collect::<Vec<_>>(), [1, 1, 3]);
}

#[test]
fn without_caching_nothing_stays() {
    let inputs = inputs(&[(0, vec![1, 2, 3], 1)], 1);
    let mut path = Vec::new();
    inputs.tree.path(RequestId(0), &mut path);
    let mut cache = RadixCache::new(4, false, 1);
    let mut hold = Hold::default();
    assert!(cache.grow(&mut hold, 3) && !cache.grow(&mut Hold::default(), 2));
    cache.release(&mut hold, &path, 3);
    assert_eq!((cache.free(), cache.look_up(&path, 3).pages), (4, 0));
    assert!(!cache.publishes());
}
