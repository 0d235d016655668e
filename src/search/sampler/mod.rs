//! Samplers: who suggests the points to try. One file each.

mod grid;
mod random;

use std::sync::Arc;

pub use grid::Grid;
pub use random::Random;

use super::space::{Point, Space};
use crate::config::scenario::{DeploymentMode, PolicyConfig};

/// Suggests the points that a study tries.
///
/// A study calls it from one thread and in an order that depends on nothing but the configuration: every suggestion is
/// observed once, in the order of the suggestions, before the next are asked for.
pub trait Sampler: Send {
    /// The next points to try: `count` of them, or fewer when no others are left.
    fn suggest(&mut self, count: usize) -> Vec<Point>;

    /// What became of a suggestion.
    fn observe(&mut self, point: &Point, observation: &Observation<'_>);
}

/// What a sampler learns about a point.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Observation<'a> {
    /// One figure per objective, signed so that more is better.
    Measured(&'a [f64]),
    /// The point does not count, and why.
    Infeasible(&'a str),
}

/// The samplers that exist.
const BUILT: [&str; 2] = ["random", "grid"];
/// The samplers that are named but do not exist yet.
const PLANNED: [&str; 3] = ["gp_ucb_pe", "halton", "tpe"];

/// Why a sampler cannot be had, if so.
pub(super) fn refusal(config: &PolicyConfig) -> Option<String> {
    let name = config.policy.as_str();
    let built = BUILT.join("`, `");
    if PLANNED.contains(&name) {
        return Some(format!("`{name}` is not built yet; the samplers that exist are `{built}`"));
    }
    if !BUILT.contains(&name) {
        return Some(format!("`{name}` is not a sampler; the samplers that exist are `{built}`"));
    }
    let field = config.fields.keys().next()?;
    Some(format!("`{name}` has no field `{field}`; it takes none"))
}

/// The sampler of one branch.
///
/// # Panics
/// If the configuration has a [`refusal`].
pub(super) fn create(config: &PolicyConfig, space: &Arc<Space>, seed: u64) -> Box<dyn Sampler> {
    match config.policy.as_str() {
        "random" => Box::new(Random::new(Arc::clone(space), seed)),
        "grid" => create_grid(space),
        other => panic!("sampler `{other}` was not refused"),
    }
}

/// A walk over every point of a branch.
pub(super) fn create_grid(space: &Arc<Space>) -> Box<dyn Sampler> {
    Box::new(Grid::new(Arc::clone(space)))
}

/// The seed of a branch's sampler: the search's own, moved by a constant of the mode so that branches do not copy each other.
pub(super) fn branch_seed(random_seed: u64, mode: DeploymentMode) -> u64 {
    let offset = match mode {
        DeploymentMode::Agg => 0,
        DeploymentMode::Disagg => 1,
    };
    random_seed.wrapping_add(offset)
}
