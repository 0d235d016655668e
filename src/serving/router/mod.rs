//! The router: decides which worker serves a request.
//!
//! - *Receives* arrivals, and from the workers, if its policy needs them, first tokens, ends and changes of the caches.
//! - *Sends* each request to one worker.
//! - *Keeps* what a real router would know: its own bookkeeping of the load it placed ([`load`]) and an index of the caches
//!   as reported ([`index`]), never the simulator's truth.
//! - *Invariants*: every request that arrives is placed exactly once; held requests are placed in the order of arrival.
//!
//! The actor is mechanics; the decision is a [`RoutingPolicy`], one file each. A policy that answers [`Route::Hold`]
//! is asked again whenever the load it placed changes.

pub mod index;
pub mod kv_router;
pub mod load;
mod policy;
pub mod round_robin;

use std::collections::VecDeque;
use std::sync::Arc;

pub use policy::{Needs, PolicyContext, RequestView, Route, RoutingPolicy, WorkerView};

use self::index::PrefixIndex;
use self::load::LoadBook;
use super::message::{RouterMessage, Serving, WorkerId, WorkerMessage};
use crate::simulation::{Actor, Address, Context, SimDuration, SimTime};
use crate::workload::prefix::{PathStep, PrefixTree, SegmentId};
use crate::workload::{RequestId, Workload};

/// The router actor.
pub struct Router {
    policy: Box<dyn RoutingPolicy>,
    needs: Needs,
    workload: Arc<Workload>,
    tree: Arc<PrefixTree>,
    workers: Vec<Address<WorkerMessage>>,
    views: Vec<WorkerView>,
    load: LoadBook,
    index: PrefixIndex,
    /// Reports that have not reached the index yet.
    lagging: VecDeque<CacheReport>,
    held: VecDeque<RequestId>,
    /// Where each request was placed; kept in a prefill pool, whose workers have to be told when blocks were fetched.
    placements: Vec<WorkerId>,
    /// The workers that may take a request bound to one rank.
    eligible: Vec<WorkerView>,
    path: Vec<PathStep>,
}

/// A change of a cache on its way to the index.
#[derive(Clone, Copy, Debug)]
struct CacheReport {
    visible: SimTime,
    worker: WorkerId,
    segment: SegmentId,
    blocks: u32,
}

impl Router {
    /// A router over the ranks of one pool of workers with `dp_size` ranks each; `workers` has the address of each
    /// rank's worker. A `relay` keeps in mind where it placed what.
    pub fn new(
        policy: Box<dyn RoutingPolicy>,
        workload: Arc<Workload>,
        tree: Arc<PrefixTree>,
        workers: Vec<Address<WorkerMessage>>,
        dp_size: u32,
        relay: bool,
    ) -> Self {
        let needs = policy.needs();
        let view = |id| WorkerView { rank: id % dp_size, ..WorkerView::idle(WorkerId(id)) };
        let views = (0..workers.len() as u32).map(view).collect();
        let placements = if relay { vec![WorkerId(0); workload.requests.len()] } else { Vec::new() };
        let segments = if needs.load || needs.overlap { tree.segment_count() } else { 0 };
        Self {
            load: LoadBook::new(workers.len(), segments, workload.requests.len() * usize::from(needs.load)),
            index: PrefixIndex::new(workers.len(), segments * usize::from(needs.overlap)),
            policy,
            needs,
            workload,
            tree,
            workers,
            views,
            lagging: VecDeque::new(),
            held: VecDeque::new(),
            placements,
            eligible: Vec::new(),
            path: Vec::new(),
        }
    }

    /// Asks the policy; false when it wants to hold the request.
    fn place(&mut self, request: RequestId, ctx: &mut Context<'_, Serving>) -> bool {
        let view = self.look_at(request);
        let views = match self.workload.requests[request.0 as usize].dp_rank {
            None => &self.views,
            Some(rank) => {
                self.eligible.clear();
                self.eligible.extend(self.views.iter().filter(|view| view.rank == rank));
                &self.eligible
            }
        };
        let route = self.policy.route(&view, views, &mut PolicyContext::new(ctx));
        let Route::To(worker) = route else { return false };
        let Some(&address) = self.workers.get(worker.0 as usize) else {
            let workers = self.workers.len();
            ctx.fail(format!("the policy chose worker {} of a pool of {workers}", worker.0));
            return true;
        };
        if self.needs.load {
            let cached = u64::from(self.views[worker.0 as usize].overlap_blocks) * u64::from(view.block_size);
            let new_tokens = u64::from(view.input_length).saturating_sub(cached);
            self.load.placed(worker, request, new_tokens, &self.path);
        }
        if let Some(placement) = self.placements.get_mut(request.0 as usize) {
            *placement = worker;
        }
        ctx.send(address, WorkerMessage::Assign(worker, request));
        true
    }

    /// What the policy may know about a request, and about the workers with respect to it.
    fn look_at(&mut self, id: RequestId) -> RequestView {
        let request = &self.workload.requests[id.0 as usize];
        if self.needs.load || self.needs.overlap {
            self.tree.path(id, &mut self.path);
        }
        if self.needs.load {
            self.load.view(&self.path, &mut self.views);
        }
        if self.needs.overlap {
            self.index.overlaps(&self.path, &mut self.views);
        }
        RequestView {
            id,
            input_length: request.input_length,
            output_length: request.output_length,
            block_size: self.tree.block_size(),
            session: request.session,
            turn: request.turn,
        }
    }

    fn arrived(&mut self, request: RequestId, ctx: &mut Context<'_, Serving>) {
        self.apply_reports(ctx.now());
        if !self.held.is_empty() {
            self.held.push_back(request);
        } else if !self.place(request, ctx) {
            if !self.needs.load {
                ctx.fail(
                    "the policy holds requests but does not ask for the load, so nothing would ever wake it",
                );
            }
            self.held.push_back(request);
        }
    }

    fn release_held(&mut self, ctx: &mut Context<'_, Serving>) {
        if self.held.is_empty() {
            return;
        }
        self.apply_reports(ctx.now());
        while let Some(&request) = self.held.front() {
            if !self.place(request, ctx) {
                return;
            }
            self.held.pop_front();
        }
    }

    fn apply_reports(&mut self, now: SimTime) {
        while let Some(report) = self.lagging.pop_front_if(|report| report.visible <= now) {
            self.index.set(report.worker, report.segment, report.blocks);
        }
    }

    fn cache_changed(&mut self, worker: WorkerId, segment: SegmentId, blocks: u32, now: SimTime) {
        if self.needs.kv_event_lag == SimDuration::ZERO {
            self.index.set(worker, segment, blocks);
        } else {
            let visible = now + self.needs.kv_event_lag;
            self.lagging.push_back(CacheReport { visible, worker, segment, blocks });
        }
    }
}

impl Actor<Serving> for Router {
    type Inbox = RouterMessage;

    fn receive(&mut self, message: RouterMessage, ctx: &mut Context<'_, Serving>) {
        match message {
            RouterMessage::Arrived(request) => self.arrived(request, ctx),
            RouterMessage::FirstToken(worker, request) => {
                self.load.first_token(worker, request);
                self.release_held(ctx);
            }
            RouterMessage::Ended(worker, request) => {
                self.tree.path(request, &mut self.path);
                self.load.ended(worker, request, &self.path);
                self.release_held(ctx);
            }
            RouterMessage::HandedOff(request) => {
                let worker = self.placements[request.0 as usize];
                ctx.send(self.workers[worker.0 as usize], WorkerMessage::Release(worker, request));
            }
            RouterMessage::KvExtent { worker, segment, blocks } => {
                self.cache_changed(worker, segment, blocks, ctx.now());
            }
        }
    }

    fn waiting_for(&self) -> Option<String> {
        (!self.held.is_empty()).then(|| format!("{} requests are held by the policy", self.held.len()))
    }
}
