//! The planner: decides how many workers there are.
//!
//! - *Receives* from the client which requests arrive, from the routers where they go, from the workers what becomes of them; at
//!   a tick, from the fleet who is there, from every worker that takes requests its latest pass, and from the load predictor
//!   what comes next.
//! - *Sends* to the fleet how many workers a pool shall have.
//! - *Keeps* the traffic since it was last looked at and the latest pass of every rank.
//! - *Invariants*: ticks come at multiples of the policy's interval, the first one interval after the start, none after the last
//!   request has ended; a tick sees everything that happened up to its instant and comes last in it.
//!
//! The actor is mechanics; the decision is a [`PlanningPolicy`], one file or folder each:
//!
//! | name | policy |
//! |---|---|
//! | `planner` and its presets | [`builtin`], the planner of the reference |
//! | `queue_aware` | [`queue_aware`], by arrivals and backlog |
//! | `clairvoyant` | [`clairvoyant`], by the requests to come: a yardstick |

pub mod builtin;
pub mod clairvoyant;
mod demand;
mod policy;
pub mod queue_aware;
mod remarks;
mod terms;
pub(super) mod ticks;
pub mod traffic;
pub mod work;

use std::collections::BTreeMap;
use std::sync::Arc;

pub use policy::{
    Decision, GpuBounds, Interest, Observation, Outstanding, PlanningPolicy, PoolObservation, PoolSetup,
    Setup,
};

pub use remarks::remarks;
pub use ticks::planner_problem;

use self::traffic::TrafficWindow;
use super::fleet::{FleetState, PoolState};
use super::message::{EndedRequest, FleetMessage, Parcel, PlannerMessage, PredictorMessage, Serving};
use super::order;
use super::predictor::{Forecast, Window};
use super::worker::WorkerPasses;
use crate::engine::metrics::{Accepted, PassMetrics, Tally};
use crate::report::record::Role;
use crate::report::scaling::{ForecastRow, PoolRow, TickRow};
use crate::simulation::{Actor, Address, Context, SimDuration, SimTime};
use crate::workload::{RequestId, Workload};

/// Who a planner talks to.
#[derive(Clone, Copy, Debug)]
pub struct PlannerWiring {
    /// Carries decisions out.
    pub fleet: Address<FleetMessage>,
    /// Makes forecasts, if the policy wants any.
    pub predictor: Option<Address<PredictorMessage>>,
}

/// The planner actor.
pub struct Planner {
    policy: Box<dyn PlanningPolicy>,
    wiring: PlannerWiring,
    /// What the pools do and the ranks of their workers, in the order of the fleet.
    pools: Vec<(Role, u32)>,
    workload: Arc<Workload>,
    interval: SimDuration,
    ticks: u64,
    last_tick: SimTime,
    /// Since the last tick.
    window: TrafficWindow,
    /// Since the policy last looked, without `window`.
    unseen: TrafficWindow,
    arrivals: Vec<SimTime>,
    outstanding: Outstanding,
    /// By pool and rank; of ranks that are gone until the next tick.
    passes: BTreeMap<(u8, u32), PassMetrics>,
    tick: Option<Tick>,
}

/// A tick on the way to its decision.
#[derive(Debug, Default)]
struct Tick {
    states: Vec<PoolState>,
    accepted: Vec<Accepted>,
    /// Workers that have not answered yet.
    missing: u32,
    traffic: Option<TrafficWindow>,
}

impl Planner {
    /// A planner of `policy` for pools of these roles, with so many ranks per worker.
    pub fn new(
        policy: Box<dyn PlanningPolicy>,
        wiring: PlannerWiring,
        pools: Vec<(Role, u32)>,
        workload: Arc<Workload>,
    ) -> Self {
        Self {
            interval: policy.tick_interval(),
            policy,
            wiring,
            pools,
            arrivals: vec![SimTime::ZERO; workload.requests.len()],
            workload,
            ticks: 0,
            last_tick: SimTime::ZERO,
            window: TrafficWindow::default(),
            unseen: TrafficWindow::default(),
            outstanding: Outstanding::default(),
            passes: BTreeMap::new(),
            tick: None,
        }
    }

    fn arrived(&mut self, request: RequestId, now: SimTime) {
        self.arrivals[request.0 as usize] = now;
        self.window.num_req += 1;
        let asked = &self.workload.requests[request.0 as usize];
        self.outstanding.requests += 1;
        self.outstanding.input_tokens += u64::from(asked.input_length);
        self.outstanding.output_tokens += u64::from(asked.output_length);
    }

    fn ended(&mut self, ended: &EndedRequest) {
        let asked = &self.workload.requests[ended.request.0 as usize];
        self.outstanding.requests -= 1;
        self.outstanding.input_tokens -= u64::from(asked.input_length);
        self.outstanding.output_tokens -= u64::from(asked.output_length);
        if !ended.completed {
            return;
        }
        let stamps = &ended.stamps;
        self.window.completed += 1;
        self.window.isl.add(f64::from(asked.input_length));
        self.window.osl.add(f64::from(stamps.count));
        if let (Some(first), Some(last)) = (stamps.first, stamps.last) {
            self.window.ttft_ms.add(first.since(self.arrivals[ended.request.0 as usize]).as_ms());
            if stamps.count > 1 {
                self.window.itl_ms.add((last - first).as_ms() / f64::from(stamps.count - 1));
            }
        }
    }

    fn placed(&mut self, overlap_blocks: u32, blocks: u32) {
        if blocks > 0 {
            self.window.kv_hit_rate.add(f64::from(overlap_blocks) / f64::from(blocks));
        }
    }

    fn surveyed(&mut self, fleet: FleetState, ctx: &mut Context<'_, Serving>) {
        let missing = fleet.pools.iter().map(PoolState::ready).sum();
        let pools = &self.pools;
        self.passes.retain(|&(pool, rank), _| {
            let (_, dp_size) = pools[usize::from(pool)];
            fleet.pools[usize::from(pool)].active.binary_search(&(rank / dp_size)).is_ok()
        });
        let accepted = vec![Accepted::default(); fleet.pools.len()];
        let traffic = None;
        self.tick = Some(Tick { states: fleet.pools, accepted, missing, traffic });
        if missing == 0 {
            self.observe(ctx);
        }
    }

    fn answered(&mut self, answer: &WorkerPasses, ctx: &mut Context<'_, Serving>) {
        let Some(tick) = &mut self.tick else { return };
        for (place, pass) in answer.ranks.iter().enumerate() {
            if let Some(pass) = pass {
                self.passes.insert((answer.pool, answer.worker.0 + place as u32), *pass);
            }
        }
        let accepted = &mut tick.accepted[usize::from(answer.pool)];
        accepted.tokens += answer.accepted.tokens;
        accepted.steps += answer.accepted.steps;
        tick.missing -= 1;
        if tick.missing == 0 {
            self.observe(ctx);
        }
    }

    /// Everybody has answered: closes the window, and asks for a forecast if the policy wants one.
    fn observe(&mut self, ctx: &mut Context<'_, Serving>) {
        let now = ctx.now();
        let Some(tick) = &mut self.tick else { return };
        self.window.duration_s = (now - self.last_tick).as_ns() as f64 / 1e9;
        self.last_tick = now;
        for accepted in &tick.accepted {
            self.window.accept_length.add_many(accepted.tokens as f64, accepted.steps);
        }
        self.unseen.merge(&std::mem::take(&mut self.window));
        let interest = self.policy.looks_at(now);
        if interest.traffic {
            tick.traffic = Some(std::mem::take(&mut self.unseen));
        }
        match (interest.forecast, self.wiring.predictor, &tick.traffic) {
            (true, Some(predictor), Some(traffic)) => {
                let window = Window {
                    num_req: traffic.num_req as f64,
                    isl: traffic.isl.value(),
                    osl: traffic.osl.value(),
                };
                let parcel = ctx.pack(Parcel::Window(window));
                ctx.send(predictor, PredictorMessage::Window(parcel));
            }
            _ => self.decide(None, ctx),
        }
    }

    fn decide(&mut self, forecast: Option<Forecast>, ctx: &mut Context<'_, Serving>) {
        let Some(tick) = self.tick.take() else { return };
        let observation = self.observation(tick, forecast, ctx.now());
        let decision = self.policy.plan(&observation);
        for (pool, target) in decision.targets.iter().enumerate() {
            if let Some(workers) = *target {
                ctx.send(self.wiring.fleet, FleetMessage::Scale { pool: pool as u8, workers });
            }
        }
        let row = self.row(&observation, decision);
        ctx.record().planned(row);
        self.ticks += 1;
        ctx.wake_at(ctx.now() + self.interval, order::PLANNER_TICK);
    }

    fn observation(&mut self, tick: Tick, forecast: Option<Forecast>, now: SimTime) -> Observation {
        let mut pools = Vec::with_capacity(tick.states.len());
        for (index, (state, accepted)) in tick.states.into_iter().zip(tick.accepted).enumerate() {
            pools.push(PoolObservation { state, passes: self.known_passes(index), accepted });
        }
        let (traffic, outstanding) = (tick.traffic, self.outstanding);
        Observation { now, tick: self.ticks, pools, traffic, forecast, outstanding }
    }

    /// Passes of a pool's ranks by their number.
    fn known_passes(&self, pool: usize) -> Vec<(u32, PassMetrics)> {
        let pool = pool as u8;
        self.passes.range((pool, 0)..=(pool, u32::MAX)).map(|(&(_, rank), &pass)| (rank, pass)).collect()
    }

    fn row(&self, observation: &Observation, decision: Decision) -> TickRow {
        let Decision { mut targets, proposals, rule, clamps } = decision;
        targets.resize(observation.pools.len(), None);
        TickRow {
            tick: observation.tick,
            at_ms: observation.now.as_ms(),
            pools: self
                .pools
                .iter()
                .zip(&observation.pools)
                .map(|(&(role, _), seen)| pool_row(role, seen))
                .collect(),
            traffic: observation.traffic.as_ref().map(TrafficWindow::row),
            forecast: observation.forecast.map(|Forecast { num_req, isl, osl }| ForecastRow {
                num_req,
                isl,
                osl,
            }),
            proposals,
            rule,
            clamped_by: clamps,
            decided: targets,
        }
    }
}

fn pool_row(role: Role, seen: &PoolObservation) -> PoolRow {
    let sum = |tally: fn(&PassMetrics) -> Tally| {
        seen.passes.iter().map(|(_, pass)| tally(pass)).fold(Tally::default(), Tally::and)
    };
    let (decode, queued) = (sum(|pass| pass.decode), sum(|pass| pass.queued_prefill));
    PoolRow {
        pool: role,
        active: seen.state.ready(),
        starting: seen.state.starting.len() as u32,
        draining: seen.state.draining.len() as u32,
        observed_ranks: seen.passes.len() as u32,
        decode_requests: decode.requests.into(),
        decode_kv_tokens: decode.tokens,
        queued_requests: queued.requests.into(),
        queued_tokens: queued.tokens,
    }
}

impl Actor<Serving> for Planner {
    type Inbox = PlannerMessage;

    fn start(&mut self, ctx: &mut Context<'_, Serving>) {
        ctx.record().is_planned();
        ctx.wake_at(SimTime::ZERO + self.interval, order::PLANNER_TICK);
    }

    fn receive(&mut self, message: PlannerMessage, ctx: &mut Context<'_, Serving>) {
        match message {
            PlannerMessage::Arrived(request) => self.arrived(request, ctx.now()),
            PlannerMessage::Placed { overlap_blocks, blocks } => self.placed(overlap_blocks, blocks),
            PlannerMessage::Finished => ctx.cancel_wake(),
            PlannerMessage::Ended(parcel)
            | PlannerMessage::Fleet(parcel)
            | PlannerMessage::Passes(parcel)
            | PlannerMessage::Forecast(parcel) => match ctx.open(parcel) {
                Parcel::Ended(ended) => self.ended(&ended),
                Parcel::Fleet(fleet) => self.surveyed(fleet, ctx),
                Parcel::Passes(answer) => self.answered(&answer, ctx),
                Parcel::Forecast(forecast) => self.decide(forecast, ctx),
                Parcel::Transfer(_) | Parcel::Window(_) => {}
            },
        }
    }

    fn wake(&mut self, ctx: &mut Context<'_, Serving>) {
        ctx.send(self.wiring.fleet, FleetMessage::Survey);
    }
}
