//! The names under which policies are known.

/// Names of routers (and later of planners, predictors and samplers) with what makes them from their configuration.
#[derive(Debug, Default)]
pub struct Registry {}

impl Registry {
    /// Everything that comes with the crate.
    pub fn builtin() -> Self {
        Self::default()
    }
}
