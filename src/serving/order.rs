//! What comes first at one instant.
//!
//! Resources are given back before new work is placed, work is placed before passes start, and whoever observes or
//! steers sees the settled state.

use crate::simulation::Class;

/// Passes end; their outputs are delivered.
pub const PASS_COMPLETION: Class = Class(0);
/// Workers that were starting are ready.
pub const WORKER_READY: Class = Class(1);
/// KV blocks arrive, and prompts computed elsewhere are handed on.
pub const TRANSFER: Class = Class(2);
/// Requests arrive and are placed.
pub const ARRIVAL: Class = Class(3);
/// Idle workers start passes.
pub const PASS_START: Class = Class(4);
/// Changes of the fleet by somebody else.
pub const CHANGE: Class = Class(5);
/// The planner looks and decides.
pub const PLANNER_TICK: Class = Class(6);
