//! `spica trace`: look into traces, or make them.

use super::arguments::TraceCommand;
use super::console::Console;
use super::failure::{Failure, Status};

pub(super) fn run(command: &TraceCommand, _console: Console) -> Result<Status, Failure> {
    match *command {}
}
