//! How a fleet changed during a replay, and why.

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
