//! How a replay can fail.

use super::recorder::EarlyEnd;
use crate::registry::PolicyError;
use crate::simulation::SimulationError;

/// Why a replay could not be carried out.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ReplayError {
    /// The scenario asks for what cannot be built; found before anything runs. One line for each problem.
    #[error("{0}")]
    Refused(String),
    /// The run itself failed: a violated law, a stall, a run-away loop.
    #[error("{0}")]
    Failed(String),
    /// Its times add up to more than a clock can count.
    #[error("{0}; the times of the configuration add up to more")]
    TooLong(String),
    /// It reached one of its limits.
    #[error("ended early: {0:?}")]
    EndedEarly(EarlyEnd),
    /// Stopped from outside.
    #[error("interrupted")]
    Interrupted,
}

impl From<PolicyError> for ReplayError {
    fn from(error: PolicyError) -> Self {
        Self::Refused(error.to_string())
    }
}

impl From<SimulationError> for ReplayError {
    fn from(error: SimulationError) -> Self {
        match error {
            SimulationError::Interrupted => Self::Interrupted,
            SimulationError::ClockEnds { .. } => Self::TooLong(error.to_string()),
            error => Self::Failed(error.to_string()),
        }
    }
}
