//! The command line.

use std::process::ExitCode;

use crate::registry::Registry;

/// Runs the command line with the policies of `registry`.
pub fn run(_registry: Registry) -> ExitCode {
    ExitCode::SUCCESS
}
