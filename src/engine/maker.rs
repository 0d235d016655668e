//! Engines by name: what is made from a configuration, for each rank of a pool.

use std::slice;

use super::{Engine, Inputs};
use crate::config::scenario::EngineOptions;
use crate::report::record::Role;

/// The pool that an engine is for.
#[derive(Clone, Copy, Debug)]
pub struct EnginePool<'a> {
    /// What its workers do.
    pub role: Role,
    /// Attention-data-parallel ranks of a worker. With more than one, all ranks of a worker pass in lock-step.
    pub dp_size: u32,
    /// The pool's `engine:` block. The number of KV blocks is 0 until a memory model has found it.
    pub options: &'a EngineOptions,
}

/// What one engine is made with.
#[derive(Clone, Debug)]
pub struct EngineSetup<'a> {
    /// The pool, its number of KV blocks known.
    pub pool: EnginePool<'a>,
    /// Number of the rank, counted over the whole pool: the seed of what differs between ranks.
    pub rank: u32,
    /// What it shares with the others.
    pub inputs: Inputs,
    /// Whether a router listens: then changes of what can be found in the cache are reported
    /// ([`Signals::kv_changes`](super::Signals::kv_changes)). An engine without reuse has nothing to report.
    pub publish: bool,
}

/// An engine that is made from its configuration: its fields are the keys beside `policy:` (derive `Deserialize` with
/// `deny_unknown_fields`).
pub trait NewEngine: Send + Sync {
    /// The pools it serves; of aggregated workers only, unless it says otherwise. For the two others it needs
    /// [`HandOff`](super::HandOff).
    fn roles(&self) -> &[Role] {
        slice::from_ref(&Role::Agg)
    }

    /// Options of the pool's `engine:` block that it goes by, by name. Any other option that says something is refused, but for those
    /// that act whatever the scheduler: `backend`, `block_size`, `num_gpu_blocks`, `gpu_memory_utilization`, and the
    /// speed-ups.
    fn uses(&self) -> &[&'static str] {
        &[]
    }

    /// What is wrong with its fields, or with this pool for it, each with the field in front: `field: message`. What concerns no field
    /// of its own stands at `policy`.
    fn problems(&self, _pool: &EnginePool<'_>) -> Vec<String> {
        Vec::new()
    }

    /// An engine without requests, for one rank. Called only where nothing is wrong.
    fn build(&self, setup: EngineSetup<'_>) -> Box<dyn Engine>;
}
