//! The simulated actors and the messages between them.

use std::sync::Arc;

use crate::config::scenario::Scenario;
use crate::registry::Registry;
use crate::report::record::RunRecord;
use crate::workload::Workload;

/// Why a replay could not be carried out.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ReplayError {
    /// The scenario asks for something that cannot be built; found before anything runs.
    #[error("{0}")]
    Refused(String),
    /// The run itself failed: a violated law, a stall, a run-away loop.
    #[error("{0}")]
    Failed(String),
    /// The caller asked for the run to stop.
    #[error("interrupted")]
    Interrupted,
}

/// Replays `workload` on the deployment of `scenario`.
pub fn replay(
    _scenario: &Scenario,
    _workload: &Arc<Workload>,
    _registry: &Registry,
) -> Result<RunRecord, ReplayError> {
    Err(ReplayError::Refused("replays are being built".into()))
}
