//! How a fleet changed during a replay, and why.

use std::io::{self, Write};

use serde::Serialize;

use super::record::Role;
use crate::simulation::SimTime;

/// All changes of a fleet.
#[derive(Clone, Debug, Default)]
pub struct ScalingRecord {
    /// Changes of the number of workers that were asked for, in order.
    pub events: Vec<ScalingEvent>,
    /// What became of each worker, in order.
    pub changes: Vec<FleetChange>,
    /// Whether there is a planner.
    pub is_planned: bool,
    /// What the planner saw and decided, tick by tick.
    pub ticks: Vec<TickRow>,
}

/// A pool was asked to have another number of workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScalingEvent {
    /// When.
    pub at: SimTime,
    /// Which pool.
    pub role: Role,
    /// Workers that were starting or serving.
    pub from: u32,
    /// Workers that shall be.
    pub to: u32,
    /// Who asked.
    pub cause: ScalingCause,
}

/// Who asks for another number of workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ScalingCause {
    /// The planner.
    Planner,
    /// A change that the scenario prescribes.
    Script,
}

/// A step in the life of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FleetChange {
    /// When.
    pub at: SimTime,
    /// Its pool.
    pub role: Role,
    /// Its number within the pool.
    pub worker: u32,
    /// What happened.
    pub step: FleetStep,
}

/// What happens to a worker that was not there from the start to the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum FleetStep {
    /// Ordered; it takes no requests yet.
    Starting,
    /// Takes requests.
    Ready,
    /// Not wanted any more before it was ready.
    Cancelled,
    /// Takes no more requests and finishes those that it has.
    Draining,
    /// Gone.
    Removed,
}

/// A tick of the planner: a row of `scaling.jsonl`.
#[derive(Clone, Debug, Serialize)]
pub struct TickRow {
    /// Number of the tick, from 0.
    pub tick: u64,
    /// When, in milliseconds.
    pub at_ms: f64,
    /// The pools before the decision.
    pub pools: Vec<PoolRow>,
    /// The traffic that the policy looked at, if it did.
    pub traffic: Option<TrafficRow>,
    /// What the load predictor expects, if it was asked.
    pub forecast: Option<ForecastRow>,
    /// What each part of the policy wanted.
    pub proposals: Vec<Proposal>,
    /// The rule that decided.
    pub rule: &'static str,
    /// What kept the decision from being what was proposed.
    pub clamped_by: Vec<&'static str>,
    /// Workers that each pool shall have, in the order of `pools`; null leaves a pool as it is.
    pub decided: Vec<Option<u32>>,
}

/// A window of traffic. Means are null where there was nothing to average.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct TrafficRow {
    /// Length of the window.
    pub duration_s: f64,
    /// Requests that arrived.
    pub num_req: u64,
    /// Requests that completed.
    pub completed: u64,
    /// Their mean prompt tokens.
    pub isl: Option<f64>,
    /// Their mean output tokens.
    pub osl: Option<f64>,
    /// Their mean time to first token.
    pub ttft_ms: Option<f64>,
    /// The mean of their mean gaps.
    pub itl_ms: Option<f64>,
    /// Mean share of placed prompts that was known to be cached.
    pub kv_hit_rate: Option<f64>,
    /// Mean tokens per step of speculative decoding.
    pub accept_length: Option<f64>,
}

/// What is expected of the next window.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct ForecastRow {
    /// Requests.
    pub num_req: f64,
    /// Mean prompt tokens.
    pub isl: f64,
    /// Mean output tokens.
    pub osl: f64,
}

/// A pool as the planner saw it.
#[derive(Clone, Debug, Serialize)]
pub struct PoolRow {
    /// Which.
    pub pool: Role,
    /// Workers that take requests.
    pub active: u32,
    /// Workers that do not yet.
    pub starting: u32,
    /// Workers that do not any more.
    pub draining: u32,
    /// Ranks of which a pass is known, with those that were idle.
    pub observed_ranks: u32,
    /// Requests that generated in those passes.
    pub decode_requests: u64,
    /// Sum of their contexts.
    pub decode_kv_tokens: u64,
    /// Prompts that waited.
    pub queued_requests: u64,
    /// Their tokens.
    pub queued_tokens: u64,
}

/// What a part of a policy wants.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Proposal {
    /// Which part.
    pub by: &'static str,
    /// Why.
    pub reason: &'static str,
    /// Workers of each pool; null is no opinion.
    pub targets: Vec<Option<u32>>,
    /// What it went by.
    #[serde(skip_serializing_if = "Vec::is_empty", serialize_with = "as_map")]
    pub figures: Vec<(&'static str, Option<f64>)>,
}

fn as_map<S: serde::Serializer>(
    figures: &[(&'static str, Option<f64>)],
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_map(figures.iter().copied())
}

/// How a fleet changed, in numbers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ScalingSummary {
    /// Ticks of the planner.
    pub ticks: u64,
    /// Each pool that was changed or watched.
    pub pools: Vec<PoolSummary>,
}

/// How a pool changed, in numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct PoolSummary {
    /// Which.
    pub pool: Role,
    /// Times that the planner asked for more workers.
    pub scale_ups: u64,
    /// Times that it asked for fewer.
    pub scale_downs: u64,
    /// Changes by somebody else.
    pub scripted: u64,
    /// Fewest workers, starting or serving.
    pub fewest_workers: u32,
    /// Most workers, starting or serving.
    pub most_workers: u32,
}

impl ScalingSummary {
    /// `None` for a fleet that nobody changes or watches.
    pub fn new(record: &ScalingRecord) -> Option<Self> {
        let mut roles: Vec<Role> = Vec::new();
        let watched = record.ticks.iter().take(1).flat_map(|row| row.pools.iter().map(|pool| pool.pool));
        for role in watched.chain(record.events.iter().map(|event| event.role)) {
            if !roles.contains(&role) {
                roles.push(role);
            }
        }
        let pools: Vec<_> = roles.into_iter().map(|role| PoolSummary::new(role, record)).collect();
        (!pools.is_empty()).then_some(Self { ticks: record.ticks.len() as u64, pools })
    }
}

impl PoolSummary {
    fn new(role: Role, record: &ScalingRecord) -> Self {
        let events = || record.events.iter().filter(|event| event.role == role);
        let asked = |cause, grows: fn(&&ScalingEvent) -> bool| {
            events().filter(|event| event.cause == cause).filter(grows).count() as u64
        };
        let rows = record.ticks.iter().flat_map(|row| &row.pools).filter(|pool| pool.pool == role);
        let seen = rows.map(|pool| pool.active + pool.starting);
        let workers: Vec<u32> = events().flat_map(|event| [event.from, event.to]).chain(seen).collect();
        Self {
            pool: role,
            scale_ups: asked(ScalingCause::Planner, |event| event.to > event.from),
            scale_downs: asked(ScalingCause::Planner, |event| event.to < event.from),
            scripted: asked(ScalingCause::Script, |_| true),
            fewest_workers: workers.iter().copied().min().unwrap_or(0),
            most_workers: workers.iter().copied().max().unwrap_or(0),
        }
    }
}

/// Writes a row for each tick.
pub fn write_scaling(record: &ScalingRecord, mut out: impl Write) -> io::Result<()> {
    for row in &record.ticks {
        serde_json::to_writer(&mut out, row)?;
        out.write_all(b"\n")?;
    }
    Ok(())
}
