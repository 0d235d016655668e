//! Standard output for results, standard error for everything else.

use std::fmt::Display;
use std::io::{self, IsTerminal, Write};

use super::arguments::{Format, OutputArguments};
use super::failure::Failure;
use crate::report::files::write_json;
use crate::report::table::Colours;

/// The two streams of the terminal.
#[derive(Clone, Copy, Debug)]
pub(super) struct Console {
    format: Format,
    quiet: bool,
}

impl Console {
    pub(super) fn new(arguments: OutputArguments, format: Format) -> Self {
        Self { format, quiet: arguments.quiet }
    }

    /// The form that results are asked for in.
    pub(super) fn format(self) -> Format {
        self.format
    }

    /// Whether a progress bar has somebody to look at it.
    pub(super) fn shows_progress(self) -> bool {
        !self.quiet && io::stderr().is_terminal()
    }

    /// Whether results may carry colours: on a terminal, unless the user wants none.
    pub(super) fn colours() -> Colours {
        let wanted = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        if wanted && io::stdout().is_terminal() { Colours::On } else { Colours::Off }
    }

    /// Writes a result: text as it is.
    pub(super) fn print(text: &str) -> Result<(), Failure> {
        Self::write(|out| out.write_all(text.as_bytes()))
    }

    /// Writes a result: indented JSON, as the file of the same name would hold it.
    pub(super) fn print_json(value: &impl serde::Serialize) -> Result<(), Failure> {
        Self::write(|out| write_json(value, out))
    }

    /// Writes a result piece by piece. A reader who has seen enough and closed the pipe is no failure.
    pub(super) fn stream(write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
        let mut out = io::BufWriter::new(io::stdout().lock());
        match write(&mut out).and_then(|()| out.flush()) {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            result => result,
        }
    }

    fn write(write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<(), Failure> {
        Self::stream(write).map_err(|error| Failure::run(format!("cannot write to standard output: {error}")))
    }

    /// Says something that is good to know, unless the user wants quiet.
    pub(super) fn note(self, message: impl Display) {
        if !self.quiet {
            complain(message);
        }
    }
}

/// Says something on standard error. If even that is closed there is nobody left to tell.
pub(super) fn complain(message: impl Display) {
    let _ = writeln!(io::stderr().lock(), "{message}");
}
