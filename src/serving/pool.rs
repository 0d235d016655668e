//! What the workers of a pool are made from, those at the start and those that come later.

use std::sync::Arc;

use super::message::{LinkMessage, RouterMessage, WorkerId, WorkerMessage};
use super::scheduler::{build_engine, engine_pool};
use super::worker::{Handoff, HandoffOrder, Listeners, Transfer, Worker};
use crate::config::scenario::Pool;
use crate::engine::{EngineSetup, Inputs, NewEngine};
use crate::report::record::Role;
use crate::simulation::Address;

/// Makes the workers of a pool.
#[derive(Clone)]
pub struct WorkerMaker {
    /// What they do.
    pub role: Role,
    /// How they are configured.
    pub pool: Pool,
    /// What makes their engines, if not the backend's own scheduler does.
    pub scheduler: Option<Arc<dyn NewEngine>>,
    /// What their engines share.
    pub inputs: Inputs,
    /// Who hears what from them.
    pub listeners: Listeners,
    /// How they hand prompts to the other pool, if there is one.
    pub handoff: Option<HandoffWiring>,
}

/// What a worker's side of the hand-off is connected to.
#[derive(Clone, Copy, Debug)]
pub struct HandoffWiring {
    /// Which side comes first.
    pub order: HandoffOrder,
    /// Router of the other pool.
    pub router: Address<RouterMessage>,
    /// How long blocks travel.
    pub transfer: Transfer,
    /// Where transfers share a link.
    pub link: Option<Address<LinkMessage>>,
}

impl WorkerMaker {
    /// Number of the first rank of a worker.
    pub fn first_rank(&self, worker: u32) -> WorkerId {
        WorkerId(worker * self.pool.dp_size)
    }

    /// The path of a worker.
    pub fn path(&self, worker: u32) -> String {
        match self.role {
            Role::Agg => format!("worker/{worker}"),
            role => format!("{}/worker/{worker}", role.name()),
        }
    }

    /// An idle worker that is going to be at `me`.
    pub fn make(&self, worker: u32, me: Address<WorkerMessage>) -> Worker {
        let Self { role, pool, scheduler, inputs, listeners, handoff } = self;
        let first = self.first_rank(worker);
        let ranks = first.0..first.0 + pool.dp_size;
        let publish = listeners.router_kv.is_some();
        let setup =
            |rank| EngineSetup { pool: engine_pool(*role, pool), rank, inputs: inputs.clone(), publish };
        let engines = ranks.map(|rank| build_engine(scheduler.as_deref(), setup(rank))).collect();
        let workload = inputs.workload.clone();
        let handoff = handoff.map(|HandoffWiring { order, router, transfer, link }| {
            Handoff::new(order, me, router, transfer, link, workload.clone(), pool.engine.block_size)
        });
        let interval = pool.engine.prefill_schedule_interval;
        Worker::new(first, *role, engines, interval, *listeners, handoff, workload)
    }
}
