//! The simulated actors and the messages between them.
//!
//! ```text
//!            Arrived            Assign
//!   client ──────────► router ──────────► worker (engine)
//!      ▲                  ▲                  │
//!      │                  └── FirstToken, Ended, KvExtent
//!      └───────────────────── Ended ─────────┘
//! ```
//!
//! [`replay`] assembles them for a scenario, runs the clock and checks that nothing was lost.

mod assembly;
mod capacity;
pub mod client;
mod error;
pub mod fleet;
pub mod link;
pub mod message;
pub mod order;
pub mod outlook;
pub mod planner;
pub mod pool;
pub mod predictor;
mod pricing;
pub mod recorder;
mod remarks;
mod replay;
pub mod router;
mod scheduler;
pub mod worker;

pub use assembly::{Traffic, unsupported};
pub use capacity::modelled_blocks;
pub use error::ReplayError;
pub use pricing::{profile_of, timing_records};
pub use remarks::{remarks, requests_too_long};
pub use replay::{ReplayLimits, replay};
pub use scheduler::{idle_limits, idle_pass_limits, keeps_requests_waiting, scheduler_problems};
