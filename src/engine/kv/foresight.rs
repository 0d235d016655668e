//! Eviction that knows the workload: the block whose next use lies farthest ahead goes first (Belády's rule).
//!
//! It is an upper bound for policies that do not know the future, not something that could be deployed. Requests are
//! *ranked* by when they are due: by arrival plus the think times before them, whatever serving will add; in a closed loop,
//! whose arrivals nobody knows, by their order. What an engine has not seen is expected to come to it by rank; what it
//! was passed over with has gone elsewhere; what waits in it comes first of all.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::simulation::SimDuration;
use crate::workload::prefix::{PrefixTree, SegmentId};
use crate::workload::{RequestId, Workload};

/// Rank of a use that will not come.
pub(super) const NEVER: u32 = u32::MAX;

/// Which requests ask for which segments, by rank. Shared by all engines of a replay.
#[derive(Debug)]
pub struct FutureUses {
    /// By request number.
    ranks: Vec<u32>,
    /// First use of each segment in `uses`, and the end of the last.
    firsts: Vec<u32>,
    /// Ranks of the requests whose prompt runs through a segment, rising, segment after segment.
    uses: Vec<u32>,
}

impl FutureUses {
    /// Ranks the requests and lists the uses of all segments.
    pub fn of(workload: &Workload, tree: &PrefixTree) -> Self {
        let by_rank = requests_by_rank(workload);
        let mut ranks = vec![0; by_rank.len()];
        for (rank, request) in by_rank.iter().enumerate() {
            ranks[request.0 as usize] = rank as u32;
        }
        let mut path = Vec::new();
        let mut firsts = vec![0_u32; tree.segment_count() + 1];
        for &request in &by_rank {
            tree.path(request, &mut path);
            for step in &path {
                firsts[step.segment.0 as usize + 1] += 1;
            }
        }
        for segment in 1..firsts.len() {
            firsts[segment] += firsts[segment - 1];
        }
        let mut ends = firsts.clone();
        let mut uses = vec![0; firsts[tree.segment_count()] as usize];
        for (rank, &request) in by_rank.iter().enumerate() {
            tree.path(request, &mut path);
            for step in &path {
                let end = &mut ends[step.segment.0 as usize];
                uses[*end as usize] = rank as u32;
                *end += 1;
            }
        }
        Self { ranks, firsts, uses }
    }

    fn segment_count(&self) -> usize {
        self.firsts.len() - 1
    }

    fn of_segment(&self, segment: SegmentId) -> &[u32] {
        let segment = segment.0 as usize;
        &self.uses[self.firsts[segment] as usize..self.firsts[segment + 1] as usize]
    }
}

/// All requests in the order in which they are due.
fn requests_by_rank(workload: &Workload) -> Vec<RequestId> {
    let mut due: Vec<(u64, RequestId)> = Vec::with_capacity(workload.requests.len());
    for &start in &workload.session_starts {
        let first = &workload.requests[start.0 as usize];
        let open = workload.concurrency.is_none();
        let mut time = if open { first.arrival.as_ns() } else { 0 };
        let mut turn = Some(start);
        while let Some(id) = turn {
            let request = &workload.requests[id.0 as usize];
            let think = if id == start { SimDuration::ZERO } else { request.delay };
            time = time.saturating_add(think.as_ns());
            due.push((time, id));
            turn = request.next_turn;
        }
    }
    due.sort_by_key(|&(time, _)| time);
    due.into_iter().map(|(_, request)| request).collect()
}

/// What one engine knows of the uses to come.
#[derive(Debug)]
pub struct Foresight {
    future: Arc<FutureUses>,
    /// Ranks of the requests that wait here.
    waiting: BTreeSet<u32>,
    /// Ranks from here on have not been seen.
    unseen: u32,
    /// How often a request came that was not expected any more: what was found out before may be wrong.
    revision: u32,
}

impl Foresight {
    /// That of an engine that has seen nothing yet.
    pub fn new(future: Arc<FutureUses>) -> Self {
        Self { future, waiting: BTreeSet::new(), unseen: 0, revision: 0 }
    }

    /// Changes whenever answers given before may have become wrong, other than by [`Foresight::is_to_come`].
    pub(super) fn revision(&self) -> u32 {
        self.revision
    }

    /// A request has come, or comes back, and waits for blocks.
    pub(super) fn awaits(&mut self, request: RequestId) {
        let rank = self.future.ranks[request.0 as usize];
        self.waiting.insert(rank);
        if rank < self.unseen {
            self.revision = self.revision.wrapping_add(1);
        } else {
            self.unseen = rank + 1;
        }
    }

    /// A request has its blocks, or needs none any more.
    pub(super) fn is_served(&mut self, request: RequestId) {
        self.waiting.remove(&self.future.ranks[request.0 as usize]);
    }

    /// Whether the use of this rank is still to come here.
    pub(super) fn is_to_come(&self, rank: u32) -> bool {
        rank >= self.unseen || self.waiting.contains(&rank)
    }

    /// Rank of the next use of a segment, or [`NEVER`]. Segments beyond those of the tree belong to one request each, by
    /// number.
    pub(super) fn next_use(&self, segment: SegmentId) -> u32 {
        let Some(owner) = (segment.0 as usize).checked_sub(self.future.segment_count()) else {
            let uses = self.future.of_segment(segment);
            let earliest = self.waiting.first().copied().unwrap_or(self.unseen).min(self.unseen);
            let from = uses.partition_point(|&rank| rank < earliest);
            return uses[from..].iter().copied().find(|&rank| self.is_to_come(rank)).unwrap_or(NEVER);
        };
        let rank = self.future.ranks[owner];
        if self.waiting.contains(&rank) { rank } else { NEVER }
    }
}
