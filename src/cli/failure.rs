//! How a command can end other than well.

use std::fmt::Display;

/// Why a command stopped: what to print, and the exit status that goes with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Failure {
    pub(super) message: String,
    pub(super) status: Status,
}

/// The exit statuses of every command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Status {
    /// It did what it should.
    Success = 0,
    /// A search found nothing feasible.
    NothingFeasible = 1,
    /// The input is wrong; nothing was run or written.
    BadInput = 2,
    /// The run itself failed.
    RunFailed = 3,
    /// It was interrupted; a search has written the best so far.
    Interrupted = 130,
}

impl Failure {
    /// The input is wrong.
    pub(super) fn input(message: impl Display) -> Self {
        Self { message: message.to_string(), status: Status::BadInput }
    }

    /// All of several failures in one, if there are any; the status is the first one's.
    pub(super) fn first_or_all(failures: impl IntoIterator<Item = Option<Self>>) -> Result<(), Self> {
        let failures: Vec<Self> = failures.into_iter().flatten().collect();
        let Some(first) = failures.first() else { return Ok(()) };
        let messages: Vec<&str> = failures.iter().map(|failure| failure.message.as_str()).collect();
        Err(Self { message: messages.join("\n"), status: first.status })
    }

    /// The run itself failed.
    pub(super) fn run(message: impl Display) -> Self {
        Self { message: message.to_string(), status: Status::RunFailed }
    }
}
