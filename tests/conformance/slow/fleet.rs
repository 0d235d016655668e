//! Pools of workers; a worker's ranks start together and end together.

use std::collections::VecDeque;

use spica::config::scenario::Pool;
use spica::report::record::{PoolRecord, Role};
use spica::simulation::SimTime;
use spica::workload::{Request, RequestId};

use super::engine::{Engine, Pass, Shared};

/// The workers of one role.
#[derive(Debug)]
pub(super) struct Fleet<'a> {
    pub role: Role,
    pub config: &'a Pool,
    pub workers: Vec<Worker<'a>>,
    /// The next worker in turn, or the next rank where all ranks of all workers take turns.
    next: usize,
}

/// One worker.
#[derive(Debug)]
pub(super) struct Worker<'a> {
    pub ranks: Vec<Rank<'a>>,
    /// When the passes under way end.
    pub end: Option<SimTime>,
    /// Whether anything happened here since the worker last tried in vain to start a pass.
    pub stirred: bool,
    /// Passes since the worker last had nothing to do.
    passes: u64,
    next_rank: usize,
}

/// One rank of a worker.
#[derive(Debug)]
pub(super) struct Rank<'a> {
    pub engine: Engine<'a>,
    /// Its pass under way.
    pub pass: Option<Pass>,
    /// Prompts whose content was fetched and whose blocks are to be given up.
    pub releases: VecDeque<RequestId>,
    /// Requests whose prompt has arrived.
    pub activations: VecDeque<RequestId>,
}

/// Place of a rank in its fleet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub worker: usize,
    pub rank: usize,
}

impl<'a> Fleet<'a> {
    pub(super) fn new(role: Role, config: &'a Pool, requests: usize) -> Self {
        let rank = |number| Rank {
            engine: Engine::new(role, config, number, requests),
            pass: None,
            releases: VecDeque::new(),
            activations: VecDeque::new(),
        };
        let worker = |number: u32| Worker {
            ranks: (0..config.dp_size).map(|index| rank(number * config.dp_size + index)).collect(),
            end: None,
            stirred: false,
            passes: 0,
            next_rank: 0,
        };
        Self { role, config, workers: (0..config.workers).map(worker).collect(), next: 0 }
    }

    /// Whose turn it is to take a request.
    pub(super) fn place(&mut self, request: &Request) -> Place {
        let ranks = self.config.dp_size as usize;
        if self.role != Role::Agg {
            let next = self.next;
            self.next = (next + 1) % (self.workers.len() * ranks);
            return Place { worker: next / ranks, rank: next % ranks };
        }
        let worker = self.next;
        self.next = (worker + 1) % self.workers.len();
        if let Some(rank) = request.dp_rank {
            return Place { worker, rank: rank as usize };
        }
        let turn = &mut self.workers[worker].next_rank;
        let rank = *turn;
        *turn = (rank + 1) % ranks;
        Place { worker, rank }
    }

    pub(super) fn rank(&mut self, place: Place) -> &mut Rank<'a> {
        &mut self.workers[place.worker].ranks[place.rank]
    }

    /// Number of a rank among all of the fleet.
    pub(super) fn number(&self, place: Place) -> u32 {
        place.worker as u32 * self.config.dp_size + place.rank as u32
    }

    /// All places, in order.
    pub(super) fn places(&self) -> Vec<Place> {
        let ranks = self.config.dp_size as usize;
        let places =
            (0..self.workers.len()).flat_map(|worker| (0..ranks).map(move |rank| Place { worker, rank }));
        places.collect()
    }

    pub(super) fn record(&self, end: SimTime) -> PoolRecord {
        PoolRecord {
            role: self.role,
            gpus_per_worker: self.config.gpus_per_worker(),
            worker_ns: u128::from(end.as_ns()) * self.workers.len() as u128,
        }
    }
}

impl Worker<'_> {
    /// Starts the passes of all ranks that have something to do, all of which end with the longest; false when there are
    /// none.
    pub(super) fn start(&mut self, now: SimTime, interval: u32, shared: &mut Shared<'_>) -> bool {
        let cadence = self.passes.is_multiple_of(u64::from(interval));
        for rank in self.ranks.iter_mut().filter(|rank| rank.engine.has_work()) {
            let pass = rank.engine.pass(cadence, shared);
            rank.pass = pass.acts().then_some(pass);
        }
        let longest = self.ranks.iter().filter_map(|rank| rank.pass.as_ref()).map(|pass| pass.duration).max();
        self.stirred = longest.is_some();
        let Some(longest) = longest else { return false };
        self.end = Some(now + longest);
        let scheduled =
            self.ranks.iter().filter_map(|rank| rank.pass.as_ref()).any(|pass| pass.scheduled > 0);
        self.passes += u64::from(scheduled);
        true
    }

    /// Takes the passes that end now.
    pub(super) fn finish(&mut self) -> Vec<(usize, Pass)> {
        self.end = None;
        self.stirred = true;
        if !self.ranks.iter().any(|rank| rank.engine.has_work()) {
            self.passes = 0;
        }
        let passes = self.ranks.iter_mut().enumerate();
        passes.filter_map(|(index, rank)| Some((index, rank.pass.take()?))).collect()
    }
}
