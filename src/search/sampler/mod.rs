//! Samplers: who suggests the points to try. One file each.

mod dealer;
mod encoding;
mod gp_ucb_pe;
mod grid;
mod halton;
pub(super) mod merit;
mod random;
mod tpe;

use std::sync::Arc;

pub use gp_ucb_pe::GpUcbPe;
pub use grid::Grid;
pub use halton::Halton;
pub use random::Random;
pub use tpe::Tpe;

use super::branch::Branch;
use super::space::{Point, Space};
use crate::config::hints::by_likeness;
use crate::config::scenario::{DeploymentMode, PolicyConfig};

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
    /// One figure per objective, signed so that more is better.
    Measured(&'a [f64]),
    /// The point does not count, and why.
    Infeasible(&'a str),
}

/// The samplers that exist; the first is the one that a search uses unless told otherwise.
const NAMES: [&str; 5] = ["gp_ucb_pe", "tpe", "halton", "random", "grid"];

/// Those whose suggestions depend on what they observe.
pub(super) const LEARNING: [&str; 2] = ["gp_ucb_pe", "tpe"];

/// Why a sampler cannot be had, if so.
pub(super) fn refusal(config: &PolicyConfig) -> Option<String> {
    let name = config.policy.as_str();
    if !NAMES.contains(&name) {
        let names = by_likeness(name, NAMES).join("`, `");
        return Some(format!(
            "`{name}` is not a sampler; the samplers are, the most similar first, `{names}`"
        ));
    }
    let field = config.fields.keys().next()?;
    Some(format!("`{name}` has no field `{field}`; it takes none"))
}

impl Branch {
    /// A sampler of this branch's points by its name in `sweep.sampler`; `None` if there is none of that name.
    pub fn sampler(&self, name: &str, seed: u64) -> Option<Box<dyn Sampler>> {
        let space = Arc::clone(&self.space);
        Some(match name {
            "gp_ucb_pe" => Box::new(GpUcbPe::new(space, &self.placements, seed)),
            "tpe" => Box::new(Tpe::new(space, &self.placements, seed)),
            "halton" => Box::new(Halton::new(space, seed)),
            "random" => Box::new(Random::new(space, seed)),
            "grid" => create_grid(&space),
            _ => return None,
        })
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
