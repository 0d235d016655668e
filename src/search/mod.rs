//! Studies that propose deployments, replay them and rank the answers.
//!
//! A [`Plan`] turns a configuration into branches, one per deployment mode, each with a [`Space`] of points. A study asks a
//! [`Sampler`] for points, unrolls each into a scenario, has an [`Evaluator`] score it, and tells the sampler. [`run`] does
//! so on as many threads as it is given and returns the same [`SearchResult`] on any number of them.

mod branch;
mod evaluator;
mod forecasts;
mod idle;
mod journal;
mod layout;
mod memory;
mod nearest;
mod objective;
mod policy_filter;
mod pool;
mod portion;
pub mod predictor_sweep;
mod preflight;
mod profile;
mod projection;
mod ranking;
mod refusal;
mod result;
mod role;
mod sampler;
mod schedulers;
mod shard;
mod shortfall;
mod study;
#[cfg(test)]
mod test_support;
mod trial;
mod unreached;
mod unroll;
mod watchdog;

use crate::sampling::space;
pub use crate::sampling::{Condition, Dimension, Point, Space};
pub use crate::sampling::{Observation, Sampler};
pub use branch::{Branch, Plan};
pub use evaluator::{Bar, Evaluator, Prepared, ReplayEvaluator, Requests};
pub use forecasts::Forecasts;
pub use journal::{Journal, JournalError, PastTrial};
pub use layout::{
    aggregated, disaggregated, gpus_per_worker, shapes_within, strategy, total_gpus, used_gpus, worker_shapes,
};
pub use nearest::{BoundReached, NearestMiss, WholeReplay};
pub use objective::{Direction, Metrics, direction, metric, objective_name, objective_value, score};
pub use policy_filter::DroppedPolicy;
pub use pool::Skipped;
pub use portion::Portion;
pub use projection::{Domain, LayoutDimension, Projection, StructuredPool, Wish};
pub use ranking::{Candidate, frontier, rank};
pub use refusal::Refusal;
pub use result::{Rejected, SearchResult, StudySummary};
pub use sampler::{GpUcbPe, Grid, Halton, Random, Tpe};
pub use shard::Shard;
pub use shortfall::{Cause, Shortfall};
pub use study::{Options, SearchError, StudyEnd, StudyEvent, TRIAL_THREAD_NAME, Watcher, panic_message, run};
pub use trial::{Evaluation, Outcome, Tally, Timings, TrialRecord};
pub use unroll::{Unrolled, Unservable};
