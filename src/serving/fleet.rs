//! The fleet: which workers there are.
//!
//! - *Receives* how many workers a pool shall have, from the planner, and from workers that have to go when they are empty.
//! - *Sends* to the routers who takes requests and who does not, to workers that they have to go, and to the planner, when it
//!   asks, who is there.
//! - *Keeps* every worker from the moment it is asked for to the moment it is gone, and the changes that are scripted.
//! - *Invariants*: what a worker costs counts from its order to its end, so starting, serving and draining workers all
//!   count; the sum over workers is the integral of their number over time. A worker that has to go finishes its requests and never comes
//!   back; numbers are never used again.
//!
//! A fleet that nobody changes has no such actor.
//!
//! A target counts workers that are starting or serving. More are ordered at once and take the pool's start-up time, if it has
//! one; of too many, those still starting are cancelled first and then those serving have to go, in both cases the highest
//! number first.

use super::message::{FleetMessage, Parcel, PlannerMessage, RouterMessage, Serving, WorkerId, WorkerMessage};
use super::order;
use super::planner::PoolSetup;
use super::pool::WorkerMaker;
use crate::report::record::{PoolRecord, Role};
use crate::report::scaling::{FleetStep, ScalingCause};
use crate::simulation::{Actor, Address, Context, SimDuration, SimTime};

/// A change of a pool that somebody else makes at a fixed time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScriptedChange {
    /// When.
    pub at: SimTime,
    /// Place of the pool in the fleet.
    pub pool: u8,
    /// Workers, starting or serving.
    pub workers: u32,
}

/// Which workers there are, as a planner sees them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FleetState {
    /// One for each pool, in the order in which requests pass through them.
    pub pools: Vec<PoolState>,
}

/// The workers of a pool by their state, each list by ascending number.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PoolState {
    /// Those that take requests.
    pub active: Vec<u32>,
    /// Those that do not take requests yet.
    pub starting: Vec<u32>,
    /// Those that do not any more.
    pub draining: Vec<u32>,
}

impl PoolState {
    /// Workers that take requests.
    pub fn ready(&self) -> u32 {
        self.active.len() as u32
    }

    /// Workers that take requests or soon will.
    pub fn staying(&self) -> u32 {
        self.ready() + self.starting.len() as u32
    }
}

/// A pool under the fleet's care.
pub struct FleetPool {
    maker: WorkerMaker,
    router: Address<RouterMessage>,
    startup: SimDuration,
    /// By ascending number.
    workers: Vec<Member>,
    next_number: u32,
    /// Cost of the workers that are gone.
    spent_ns: u128,
    /// The number of workers over time, up to `counted_until`.
    integral_ns: u128,
    counted_until: SimTime,
}

#[derive(Clone, Copy, Debug)]
struct Member {
    number: u32,
    state: State,
    ordered: SimTime,
}

#[derive(Clone, Copy, Debug)]
enum State {
    /// Until then.
    Starting(SimTime),
    /// Here.
    Active(Address<WorkerMessage>),
    Draining,
}

impl State {
    fn is_starting(self) -> bool {
        matches!(self, Self::Starting(_))
    }

    fn is_active(self) -> bool {
        matches!(self, Self::Active(_))
    }
}

impl FleetPool {
    /// A pool whose first workers, at these addresses, are there from the start.
    pub fn new(
        maker: WorkerMaker,
        router: Address<RouterMessage>,
        startup: SimDuration,
        workers: &[Address<WorkerMessage>],
    ) -> Self {
        let member = |(number, &address)| Member {
            number: number as u32,
            state: State::Active(address),
            ordered: SimTime::ZERO,
        };
        Self {
            maker,
            router,
            startup,
            workers: workers.iter().enumerate().map(member).collect(),
            next_number: workers.len() as u32,
            spent_ns: 0,
            integral_ns: 0,
            counted_until: SimTime::ZERO,
        }
    }

    /// What a planner may know of the pool before it starts.
    pub fn setup(&self) -> PoolSetup {
        let WorkerMaker { role, pool, inputs, .. } = &self.maker;
        let engine = &pool.engine;
        PoolSetup {
            role: *role,
            workers: pool.workers,
            dp_size: pool.dp_size,
            gpus_per_worker: pool.gpus_per_worker(),
            startup: self.startup,
            max_num_batched_tokens: engine.max_num_batched_tokens,
            max_num_seqs: engine.max_num_seqs,
            context_length: engine.max_model_len,
            block_size: engine.block_size,
            rank_kv_tokens: u64::from(engine.num_gpu_blocks) * u64::from(engine.block_size),
            speculative_nextn: engine.aic_nextn.unwrap_or(0),
            pricer: inputs.pricer.clone(),
        }
    }

    fn numbers(&self, wanted: impl Fn(State) -> bool) -> Vec<u32> {
        self.workers.iter().filter(|worker| wanted(worker.state)).map(|worker| worker.number).collect()
    }

    fn state(&self) -> PoolState {
        PoolState {
            active: self.numbers(State::is_active),
            starting: self.numbers(State::is_starting),
            draining: self.numbers(|state| matches!(state, State::Draining)),
        }
    }

    /// Adds up what the present workers have cost since this was last done.
    fn count(&mut self, now: SimTime) {
        self.integral_ns += self.workers.len() as u128 * u128::from((now - self.counted_until).as_ns());
        self.counted_until = now;
    }

    fn remove(&mut self, position: usize, now: SimTime) -> Member {
        self.count(now);
        let worker = self.workers.remove(position);
        self.spent_ns += u128::from((now - worker.ordered).as_ns());
        worker
    }
}

/// What the workers of a pool cost, up to the end of the run, which the fleet does not know.
#[derive(Clone, Debug)]
pub struct PoolLedger {
    role: Role,
    gpus_per_worker: u32,
    spent_ns: u128,
    /// When those that are still there were ordered.
    ordered: Vec<SimTime>,
    integral_ns: u128,
    counted_until: SimTime,
}

impl PoolLedger {
    /// The cost of a run up to `end`.
    ///
    /// # Errors
    /// When the sum over workers is not the integral of their number.
    pub fn settle(self, end: SimTime) -> Result<PoolRecord, String> {
        let Self { role, gpus_per_worker, spent_ns, ordered, integral_ns, counted_until } = self;
        let present: u128 = ordered.iter().map(|&ordered| u128::from((end - ordered).as_ns())).sum();
        let worker_ns = spent_ns + present;
        let integral_ns = integral_ns + ordered.len() as u128 * u128::from((end - counted_until).as_ns());
        if worker_ns != integral_ns {
            let pool = role.name();
            return Err(format!(
                "the workers of pool {pool} cost {worker_ns} ns, but the integral of their number is {integral_ns} ns"
            ));
        }
        Ok(PoolRecord { role, gpus_per_worker, worker_ns })
    }
}

/// GPUs of all workers that start, serve or drain.
fn gpus(pools: &[FleetPool]) -> u64 {
    let of_pool = |pool: &FleetPool| pool.workers.len() as u64 * u64::from(pool.maker.pool.gpus_per_worker());
    pools.iter().map(of_pool).sum()
}

/// The fleet actor.
pub struct Fleet {
    pools: Vec<FleetPool>,
    planner: Option<Address<PlannerMessage>>,
    /// Latest first.
    changes: Vec<ScriptedChange>,
    peak: Peak,
    is_over: bool,
}

/// The most GPUs at a time. What comes and goes at one instant counts together.
#[derive(Debug, Default)]
struct Peak {
    present: u64,
    since: SimTime,
    most: u64,
}

impl Peak {
    fn see(&mut self, now: SimTime, present: u64) {
        if now > self.since {
            self.most = self.most.max(self.present);
        }
        (self.present, self.since) = (present, now);
    }
}

impl Fleet {
    /// A fleet of these pools.
    pub fn new(
        pools: Vec<FleetPool>,
        planner: Option<Address<PlannerMessage>>,
        mut changes: Vec<ScriptedChange>,
    ) -> Self {
        // Of several changes at one time the one written last happens last.
        changes.reverse();
        changes.sort_by_key(|change| std::cmp::Reverse(change.at));
        let peak = Peak { present: gpus(&pools), ..Peak::default() };
        Self { pools, planner, changes, peak, is_over: false }
    }

    fn role(&self, pool: usize) -> Role {
        self.pools[pool].maker.role
    }

    fn scale(&mut self, pool: usize, target: u32, cause: ScalingCause, ctx: &mut Context<'_, Serving>) {
        let before = self.pools[pool].state().staying();
        if target == before {
            return;
        }
        let (now, role) = (ctx.now(), self.role(pool));
        ctx.record().scaled(now, role, before, target, cause);
        if target > before {
            for _ in before..target {
                self.order(pool, ctx);
            }
        } else {
            for _ in target..before {
                self.dismiss(pool, ctx);
            }
        }
        self.arm(ctx);
    }

    /// Orders a worker.
    fn order(&mut self, index: usize, ctx: &mut Context<'_, Serving>) {
        let now = ctx.now();
        let pool = &mut self.pools[index];
        pool.count(now);
        let number = pool.next_number;
        pool.next_number += 1;
        let state = State::Starting(now + pool.startup);
        pool.workers.push(Member { number, state, ordered: now });
        if pool.startup == SimDuration::ZERO {
            self.make_ready(index, number, ctx);
        } else {
            let role = pool.maker.role;
            ctx.record().fleet_changed(now, role, number, FleetStep::Starting);
        }
    }

    fn make_ready(&mut self, index: usize, number: u32, ctx: &mut Context<'_, Serving>) {
        let pool = &mut self.pools[index];
        let Some(member) = pool.workers.iter_mut().find(|worker| worker.number == number) else { return };
        let address = ctx.reserve(pool.maker.path(number));
        member.state = State::Active(address);
        ctx.install(address, pool.maker.make(number, address));
        let worker = pool.maker.first_rank(number);
        ctx.send(pool.router, RouterMessage::Joined { worker, address });
        let (now, role) = (ctx.now(), pool.maker.role);
        ctx.record().fleet_changed(now, role, number, FleetStep::Ready);
    }

    /// Lets one worker go: the latest that is starting, or else the latest that serves.
    fn dismiss(&mut self, index: usize, ctx: &mut Context<'_, Serving>) {
        let pool = &mut self.pools[index];
        let (now, role) = (ctx.now(), pool.maker.role);
        let last = |wanted: fn(State) -> bool| pool.workers.iter().rposition(|worker| wanted(worker.state));
        if let Some(position) = last(State::is_starting) {
            let worker = pool.remove(position, now);
            ctx.record().fleet_changed(now, role, worker.number, FleetStep::Cancelled);
        } else if let Some(position) = last(State::is_active) {
            let worker = &mut pool.workers[position];
            let state = std::mem::replace(&mut worker.state, State::Draining);
            ctx.record().fleet_changed(now, role, worker.number, FleetStep::Draining);
            ctx.send(pool.router, RouterMessage::Leaving(pool.maker.first_rank(worker.number)));
            if let State::Active(address) = state {
                ctx.send(address, WorkerMessage::Drain);
            }
        }
    }

    fn emptied(&mut self, index: usize, rank: WorkerId, ctx: &mut Context<'_, Serving>) {
        let pool = &mut self.pools[index];
        let first_rank = |worker: &Member| pool.maker.first_rank(worker.number);
        let Some(position) = pool.workers.iter().position(|worker| first_rank(worker) == rank) else {
            return;
        };
        let now = ctx.now();
        let worker = pool.remove(position, now);
        ctx.record().fleet_changed(now, pool.maker.role, worker.number, FleetStep::Removed);
        ctx.send(pool.router, RouterMessage::Left(rank));
    }

    /// When the next worker is ready.
    fn next_ready(&self) -> Option<SimTime> {
        let workers = self.pools.iter().flat_map(|pool| &pool.workers);
        let ready = |worker: &Member| match worker.state {
            State::Starting(ready) => Some(ready),
            State::Active(_) | State::Draining => None,
        };
        workers.filter_map(ready).min()
    }

    /// Arms the wake for what comes next: workers that are ready, or a scripted change.
    fn arm(&mut self, ctx: &mut Context<'_, Serving>) {
        let change = self.changes.last().map(|change| (change.at, order::CHANGE));
        let ready = self.next_ready().map(|ready| (ready, order::WORKER_READY));
        match change.into_iter().chain(ready).min() {
            Some((time, class)) if !self.is_over => ctx.wake_at(time, class),
            _ => ctx.cancel_wake(),
        }
    }

    /// Tells the planner who is there, and lets those who take requests tell it what they do.
    fn answer_planner(&self, ctx: &mut Context<'_, Serving>) {
        if let Some(planner) = self.planner {
            for worker in self.pools.iter().flat_map(|pool| &pool.workers) {
                if let State::Active(address) = worker.state {
                    ctx.send(address, WorkerMessage::Sample);
                }
            }
            let pools = self.pools.iter().map(FleetPool::state).collect();
            let parcel = ctx.pack(Parcel::Fleet(FleetState { pools }));
            ctx.send(planner, PlannerMessage::Fleet(parcel));
        }
    }
}

impl Actor<Serving> for Fleet {
    type Inbox = FleetMessage;

    fn start(&mut self, ctx: &mut Context<'_, Serving>) {
        self.arm(ctx);
    }

    fn receive(&mut self, message: FleetMessage, ctx: &mut Context<'_, Serving>) {
        match message {
            FleetMessage::Scale { pool, workers } => {
                self.scale(pool.into(), workers, ScalingCause::Planner, ctx);
            }
            FleetMessage::Emptied { pool, worker } => self.emptied(pool.into(), worker, ctx),
            FleetMessage::Survey => self.answer_planner(ctx),
            FleetMessage::Finished => {
                self.is_over = true;
                ctx.cancel_wake();
            }
        }
        self.peak.see(ctx.now(), gpus(&self.pools));
    }

    fn wake(&mut self, ctx: &mut Context<'_, Serving>) {
        let now = ctx.now();
        for index in 0..self.pools.len() {
            let ready =
                self.pools[index].numbers(|state| matches!(state, State::Starting(ready) if ready <= now));
            for number in ready {
                self.make_ready(index, number, ctx);
            }
        }
        if ctx.is_past(order::CHANGE) {
            while let Some(change) = self.changes.pop_if(|change| change.at <= now) {
                self.scale(change.pool.into(), change.workers, ScalingCause::Script, ctx);
            }
        }
        self.peak.see(now, gpus(&self.pools));
        self.arm(ctx);
    }

    fn finish(&mut self, ctx: &mut Context<'_, Serving>) {
        ctx.record().gpus_peaked(self.peak.most.max(self.peak.present));
        for pool in &self.pools {
            let ordered = pool.workers.iter().map(|worker| worker.ordered).collect();
            ctx.record().pool_finished(PoolLedger {
                role: pool.maker.role,
                gpus_per_worker: pool.maker.pool.gpus_per_worker(),
                spent_ns: pool.spent_ns,
                ordered,
                integral_ns: pool.integral_ns,
                counted_until: pool.counted_until,
            });
        }
    }
}
