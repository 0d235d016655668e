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
use super::refusal::Refusal;
use super::space::Space;
use crate::config::hints::by_likeness;
use crate::config::scenario::{DeploymentMode, PolicyConfig};
use crate::registry::Registry;
use crate::sampling::BUILTIN_SAMPLERS;
pub(super) use crate::sampling::{Observation, Sampler};

/// Those whose suggestions depend on what they observe.
pub(super) const LEARNING: [&str; 2] = ["gp_ucb_pe", "tpe"];

/// Whether a sampler's suggestions may depend on what it observes, as those of a registered one do for all that is known.
pub(super) fn learns(name: &str) -> bool {
    LEARNING.contains(&name) || !BUILTIN_SAMPLERS.contains(&name)
}

/// Why a sampler cannot be had.
pub(super) fn refusals(config: &PolicyConfig, registry: &Registry) -> Vec<Refusal> {
    let name = config.policy.as_str();
    let refuse = |message: String| vec![Refusal::new("sweep.sampler", message)];
    if BUILTIN_SAMPLERS.contains(&name) {
        let field = config.fields.keys().next();
        return field.map_or_else(Vec::new, |field| {
            refuse(format!("`{name}` has no field `{field}`; it takes none"))
        });
    }
    let registered: Vec<&str> = registry.sampler_names().collect();
    if !registered.contains(&name) {
        let names = by_likeness(name, BUILTIN_SAMPLERS.into_iter().chain(registered)).join("`, `");
        return refuse(format!(
            "`{name}` is not a sampler; the samplers are, the most similar first, `{names}`"
        ));
    }
    let problems = registry.sampler(config).err().map(|error| error.problems).unwrap_or_default();
    problems.into_iter().flat_map(refuse).collect()
}

impl Branch {
    /// A sampler of this branch's points as `sweep.sampler` has it; `None` if there is none of that name.
    pub fn sampler(&self, config: &PolicyConfig, seed: u64) -> Option<Box<dyn Sampler>> {
        let space = Arc::clone(&self.space);
        Some(match config.policy.as_str() {
            "gp_ucb_pe" => Box::new(GpUcbPe::new(space, &self.placements, self.idle(), seed)),
            "tpe" => Box::new(Tpe::new(space, &self.placements, seed)),
            "halton" => Box::new(Halton::new(space, seed)),
            "random" => Box::new(Random::new(space, seed)),
            "grid" => create_grid(&space),
            _ => {
                let mut sampler = self.registry.sampler(config).ok()?;
                sampler.begin(space, seed);
                sampler
            }
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
