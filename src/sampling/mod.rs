//! What a sampler is: the points of a search, and who suggests which of them to try.
//!
//! The built-in samplers are [`crate::search`]'s; a sampler of one's own is registered beside them
//! ([`crate::registry::Registry::with_sampler`]) and then goes by its name in `sweep.sampler`.

pub mod space;

use std::sync::Arc;

pub use space::{Condition, Dimension, Point, Space};

/// Names of the samplers that come with the crate; the first is the one that a search uses unless told otherwise.
pub const BUILTIN_SAMPLERS: [&str; 5] = ["gp_ucb_pe", "tpe", "halton", "random", "grid"];

/// Suggests the points that a study tries.
///
/// A study calls it from one thread and in an order that depends on nothing but the configuration: every suggestion is
/// observed once, in the order of the suggestions, but the last few may still be under way when the next are asked for.
pub trait Sampler: Send {
    /// The next points to try: `count` of them, or fewer when no others are left.
    fn suggest(&mut self, count: usize) -> Vec<Point>;

    /// What became of a suggestion.
    fn observe(&mut self, point: &Point, observation: &Observation<'_>);
}

/// What a sampler learns about a point.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Observation<'a> {
    /// It counts.
    Measured {
        /// One figure per objective, signed so that more is better.
        figures: &'a [f64],
        /// By how much the point clears the goal's bar, if there is one: its attainment less the least.
        margin: Option<f64>,
    },
    /// It does not count.
    Infeasible {
        /// Why not.
        reason: &'a str,
        /// By how much it misses the goal's bar, below 0, if that is why.
        margin: Option<f64>,
    },
}

/// A sampler that is made from its configuration: its fields are the keys beside `policy:`.
pub trait NewSampler: Sampler {
    /// Tells it the points of a branch, before the first suggestion. All its draws follow from `seed`.
    fn begin(&mut self, space: Arc<Space>, seed: u64);

    /// What is wrong with the values of its fields, each with its field in front: `field: message`.
    fn problems(&self) -> Vec<String> {
        Vec::new()
    }
}
