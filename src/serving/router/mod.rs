//! The router: decides which worker serves a request.
//!
//! - *Receives* arrivals, from the fleet which workers come and go, and from the workers, if its policy needs them, first tokens,
//!   ends and changes of the caches.
//! - *Sends* each request to one worker.
//! - *Keeps* what a real router would know: its own bookkeeping of the load it placed ([`load`]) and an index of the caches
//!   as reported or assumed ([`index`]), never the simulator's truth; and the requests that wait in front of it.
//! - *Invariants*: every request that arrives is placed exactly once, on a worker that takes requests (and waits while there is
//!   none); nobody overtakes those who wait but by the order of the waiting room.
//!
//! The actor is mechanics; the decision is a [`RoutingPolicy`], one file each. A policy may ask for a waiting room
//! ([`Needs::queue`]); one that answers [`Route::Hold`] is asked again whenever the load it placed changes.

pub mod approximate_kv;
mod assumed;
mod caches;
pub mod choice;
pub mod cost_terms;
pub mod index;
pub mod kv_router;
pub mod least_loaded;
mod limits;
pub mod load;
mod members;
mod policy;
pub mod power_of_two;
pub mod random;
pub mod round_robin;
pub mod session_affinity;
#[cfg(test)]
mod test_support;
mod waiting_room;

use std::sync::Arc;

pub use policy::{Needs, Overlap, PolicyContext, RequestView, Route, RoutingPolicy, WorkerView};
pub use waiting_room::{Queue, QueuePolicy};

use self::caches::Caches;
use self::load::LoadBook;
use self::members::Members;
use self::waiting_room::WaitingRoom;
use super::message::{PlannerMessage, RouterMessage, Serving, WorkerId, WorkerMessage};
use crate::report::activity::RouteRecord;
use crate::report::record::Role;
use crate::simulation::{Actor, Address, Context};
use crate::workload::prefix::{PathStep, PrefixTree};
use crate::workload::{RequestId, Workload};

/// The workers behind a router.
#[derive(Debug)]
pub struct RoutedPool {
    /// Address of the worker of each rank.
    pub workers: Vec<Address<WorkerMessage>>,
    /// What they do.
    pub role: Role,
    /// Ranks of each worker.
    pub dp_size: u32,
    /// Tokens that one pass may compute; `None` is unbounded.
    pub max_num_batched_tokens: Option<u32>,
    /// Whether the router has to tell workers when blocks were fetched, so has to keep in mind where it placed what.
    pub relay: bool,
    /// Hears of placements, where the router knows the caches.
    pub planner: Option<Address<PlannerMessage>>,
}

/// The router actor.
pub struct Router {
    policy: Box<dyn RoutingPolicy>,
    needs: Needs,
    role: Role,
    workload: Arc<Workload>,
    tree: Arc<PrefixTree>,
    /// Address of the worker of each rank, by its id.
    workers: Vec<Address<WorkerMessage>>,
    dp_size: u32,
    members: Members,
    load: LoadBook,
    caches: Caches,
    waiting: WaitingRoom,
    /// Where each request was placed; kept by relays only.
    placements: Vec<WorkerId>,
    /// The workers that may take a request bound to one rank.
    eligible: Vec<WorkerView>,
    path: Vec<PathStep>,
    planner: Option<Address<PlannerMessage>>,
}

impl Router {
    /// A router of `policy` over the ranks of one pool.
    pub fn new(
        mut policy: Box<dyn RoutingPolicy>,
        workload: Arc<Workload>,
        tree: Arc<PrefixTree>,
        pool: RoutedPool,
    ) -> Self {
        let needs = policy.needs();
        let RoutedPool { workers, role, dp_size, max_num_batched_tokens, relay, planner } = pool;
        let members = Members::new(workers.len() as u32, dp_size);
        if needs.hears_of_load() {
            for view in &members.views {
                policy.load_changed(view);
            }
        }
        let (segments, requests) = (tree.segment_count(), workload.requests.len());
        let load_segments = segments * usize::from(needs.blocks);
        let load_requests = requests * usize::from(needs.hears_of_load());
        Self {
            load: LoadBook::new(workers.len(), load_segments, load_requests),
            caches: Caches::new(needs.overlap, workers.len(), segments),
            waiting: WaitingRoom::new(needs.queue, max_num_batched_tokens),
            placements: vec![WorkerId(0); requests * usize::from(relay)],
            policy,
            needs,
            role,
            workload,
            tree,
            workers,
            dp_size,
            members,
            eligible: Vec::new(),
            path: Vec::new(),
            planner: planner.filter(|_| needs.overlap != Overlap::Unknown),
        }
    }

    fn rank_of(&self, request: RequestId) -> Option<u32> {
        self.workload.requests[request.0 as usize].dp_rank
    }

    /// Whether the waiting room is shut for a request.
    fn must_wait(&self, request: RequestId) -> bool {
        let mut eligible = self.members.eligible(self.rank_of(request)).peekable();
        eligible.peek().is_none() || self.waiting.is_shut(eligible)
    }

    /// Asks the policy about the request that was looked at; false when it wants to hold it.
    fn place(&mut self, request: &RequestView, ctx: &mut Context<'_, Serving>) -> bool {
        let views = match self.rank_of(request.id) {
            None if self.members.is_plain() => &self.members.views,
            rank => {
                self.eligible.clear();
                self.eligible.extend(self.members.eligible(rank));
                self.eligible.sort_unstable_by_key(|view| view.id);
                &self.eligible
            }
        };
        let route = self.policy.route(request, views, &mut PolicyContext::new(ctx));
        let Route::To(worker) = route else { return false };
        let Some(&address) = self.workers.get(worker.0 as usize) else {
            let workers = self.workers.len();
            ctx.fail(format!("the policy chose worker {} of a pool of {workers}", worker.0));
            return true;
        };
        let slot = self.members.slot(worker);
        if !self.members.takes_requests(slot) {
            ctx.fail(format!("the policy chose worker {}, which takes no requests any more", worker.0));
            return true;
        }
        if ctx.record().keeps_everything() {
            let candidates = views.iter().map(WorkerView::candidate).collect();
            let (at, role) = (ctx.now(), self.role);
            ctx.record().routed(RouteRecord { at, role, request: request.id, rank: worker.0, candidates });
        }
        let view = &mut self.members.views[slot];
        if let Some(planner) = self.planner {
            let (overlap_blocks, blocks) = (view.overlap_blocks, request.blocks());
            ctx.send(planner, PlannerMessage::Placed { overlap_blocks, blocks });
        }
        if self.needs.hears_of_load() {
            let new_tokens = request.new_tokens(view.overlap_blocks);
            self.load.placed(slot, view, request.id, new_tokens, &self.path);
            self.policy.load_changed(view);
        }
        self.caches.placed(ctx.now(), slot, &self.path);
        if let Some(placement) = self.placements.get_mut(request.id.0 as usize) {
            *placement = worker;
        }
        ctx.send(address, WorkerMessage::Assign(worker, request.id));
        true
    }

    /// What the policy may know about a request; fills in what it may know about the workers with respect to it but for the
    /// overlaps.
    fn look_at(&mut self, id: RequestId) -> RequestView {
        if self.needs.blocks || self.needs.overlap != Overlap::Unknown {
            self.tree.path(id, &mut self.path);
        }
        if self.needs.blocks {
            self.load.shared_blocks(&self.path, &mut self.members.views);
        }
        let request = &self.workload.requests[id.0 as usize];
        RequestView {
            id,
            input_length: request.input_length,
            output_length: request.output_length,
            block_size: self.tree.block_size(),
            session: request.session,
            turn: request.turn,
        }
    }

    fn arrived(&mut self, id: RequestId, ctx: &mut Context<'_, Serving>) {
        let request = self.look_at(id);
        self.caches.overlaps(ctx.now(), &self.path, &mut self.members.views);
        if self.waiting.is_empty() && !self.must_wait(id) {
            if self.place(&request, ctx) {
                return;
            }
            if !self.needs.hears_of_load() {
                ctx.fail(
                    "the policy holds requests but does not ask for the load, so nothing would ever wake it",
                );
            }
        }
        let eligible = self.members.eligible(self.rank_of(id));
        let overlap = eligible.map(|view| view.overlap_blocks).max().unwrap_or(0);
        self.waiting.enter(id, ctx.now(), request.new_tokens(overlap), &self.members.views);
    }

    /// The load has changed: lets in whom it can.
    fn let_in(&mut self, ctx: &mut Context<'_, Serving>) {
        while let Some(id) = self.waiting.first() {
            if self.must_wait(id) {
                return;
            }
            let request = self.look_at(id);
            if self.needs.queue.is_some() {
                self.waiting.recall_overlaps(&mut self.members.views);
            } else {
                self.caches.overlaps(ctx.now(), &self.path, &mut self.members.views);
            }
            if !self.place(&request, ctx) {
                return;
            }
            self.waiting.leave();
        }
    }

    fn load_changed(&mut self, slot: usize, ctx: &mut Context<'_, Serving>) {
        if self.members.takes_requests(slot) {
            self.policy.load_changed(&self.members.views[slot]);
        }
        self.let_in(ctx);
    }

    fn joined(&mut self, worker: WorkerId, address: Address<WorkerMessage>, ctx: &mut Context<'_, Serving>) {
        for place in 0..self.dp_size {
            let rank = WorkerId(worker.0 + place);
            let slot = self.members.join(rank, place);
            // Nobody is sent to those in between, which never came.
            self.workers.resize(rank.0 as usize + 1, address);
            self.load.make_room(slot);
            self.caches.joined(slot);
            if self.needs.hears_of_load() {
                self.policy.load_changed(&self.members.views[slot]);
            }
        }
        self.let_in(ctx);
    }

    fn leaving(&mut self, worker: WorkerId, ctx: &mut Context<'_, Serving>) {
        for place in 0..self.dp_size {
            let rank = WorkerId(worker.0 + place);
            self.members.stop(rank);
            if self.needs.hears_of_load() {
                self.policy.worker_left(rank);
            }
        }
        self.let_in(ctx);
    }

    fn left(&mut self, worker: WorkerId) {
        for place in 0..self.dp_size {
            let slot = self.members.leave(WorkerId(worker.0 + place));
            self.caches.left(slot);
        }
    }
}

impl Actor<Serving> for Router {
    type Inbox = RouterMessage;

    fn receive(&mut self, message: RouterMessage, ctx: &mut Context<'_, Serving>) {
        match message {
            RouterMessage::Arrived(request) => self.arrived(request, ctx),
            RouterMessage::FirstToken(worker, request) => {
                let slot = self.members.slot(worker);
                self.load.first_token(&mut self.members.views[slot], request);
                self.load_changed(slot, ctx);
            }
            RouterMessage::Ended(worker, request) => {
                if self.needs.blocks {
                    self.tree.path(request, &mut self.path);
                }
                let slot = self.members.slot(worker);
                self.load.ended(slot, &mut self.members.views[slot], request, &self.path);
                self.load_changed(slot, ctx);
            }
            RouterMessage::PromptComputed(request) => {
                let worker = self.placements[request.0 as usize];
                ctx.send(self.workers[worker.0 as usize], WorkerMessage::Fetch(worker, request));
            }
            RouterMessage::HandedOff(request) => {
                let worker = self.placements[request.0 as usize];
                ctx.send(self.workers[worker.0 as usize], WorkerMessage::Release(worker, request));
            }
            RouterMessage::KvExtent { worker, segment, blocks } => {
                self.caches.changed(ctx.now(), self.members.slot(worker), segment, blocks);
            }
            RouterMessage::Joined { worker, address } => self.joined(worker, address, ctx),
            RouterMessage::Leaving(worker) => self.leaving(worker, ctx),
            RouterMessage::Left(worker) => self.left(worker),
        }
    }

    fn waiting_for(&self) -> Option<String> {
        let waiting = self.waiting.len();
        (waiting > 0).then(|| format!("{waiting} requests wait in front of the router"))
    }
}
