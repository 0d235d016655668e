//! The command line: arguments, files and terminal around the library.

#[cfg(feature = "aic")]
mod aic;
mod arguments;
mod check;
mod checks;
mod console;
mod deploy;
mod diff;
mod explain;
mod explain_candidate;
mod failure;
mod input;
mod journal;
mod lock;
mod manual;
mod names;
mod nearest_table;
mod output;
mod overwrite;
mod pareto_csv;
mod prepare;
mod profiles;
mod progress;
mod ranking_table;
mod replay;
mod report;
mod results;
#[cfg(feature = "aic")]
mod sample;
mod search;
mod shard;
mod trace;

use std::ffi::OsString;
use std::io::IsTerminal;
use std::panic::{AssertUnwindSafe, PanicHookInfo, catch_unwind};
use std::process::ExitCode;
use std::sync::Arc;

use clap::Parser;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::EnvFilter;

use self::arguments::{Arguments, Command, Format, FormatChoice};
use self::console::{Console, complain};
use self::failure::{Failure, Status};
use crate::registry::Registry;
use crate::search::{TRIAL_THREAD_NAME, panic_message};

/// Runs the command line of this process with the policies of `registry`, and says how it ended.
pub fn run(registry: Registry) -> ExitCode {
    std::panic::set_hook(Box::new(report_panic));
    let command = AssertUnwindSafe(|| run_with(registry, std::env::args_os()));
    let status = catch_unwind(command).unwrap_or(Status::RunFailed);
    ExitCode::from(status as u8)
}

fn run_with(registry: Registry, arguments: impl Iterator<Item = OsString>) -> Status {
    let arguments = match Arguments::try_parse_from(arguments) {
        Ok(arguments) => arguments,
        Err(answer) => {
            // Help and version come this way too. Nobody is left to tell when they cannot be printed.
            let _ = answer.print();
            return if answer.use_stderr() { Status::BadInput } else { Status::Success };
        }
    };
    start_logging();
    dispatch(arguments, Arc::new(registry)).unwrap_or_else(|failure| {
        complain(&failure.message);
        failure.status
    })
}

fn dispatch(arguments: Arguments, registry: Arc<Registry>) -> Result<Status, Failure> {
    let Arguments { output, command } = arguments;
    if let Command::Report(arguments) = &command {
        let form = arguments.format.or(output.format).unwrap_or(FormatChoice::Html);
        return report::run(arguments, form, Console::new(output, Format::Text));
    }
    let format = match output.format {
        None | Some(FormatChoice::Text) => Format::Text,
        Some(FormatChoice::Json) => Format::Json,
        Some(FormatChoice::Html | FormatChoice::Svg | FormatChoice::Csv) => {
            return Err(Failure::input("--format: html, svg and csv are made by `spica report` only"));
        }
    };
    if output.format.is_some() && matches!(command, Command::Completions { .. } | Command::Man { .. }) {
        return Err(Failure::input("--format: scripts and manual pages have one form only"));
    }
    let console = Console::new(output, format);
    match command {
        Command::Search(arguments) => search::run(&arguments, console, registry),
        Command::Replay(arguments) => replay::run(&arguments, console, &registry),
        Command::Check(arguments) => check::run(&arguments, console, &registry),
        Command::Trace(command) => trace::run(command, console),
        Command::Profiles(command) => profiles::run(&command, console),
        Command::Explain(command) => explain::run(&command, console, &registry),
        Command::Diff(arguments) => diff::run(&arguments, console),
        Command::Deploy(arguments) => deploy::run(&arguments, console),
        Command::Completions { shell } => manual::completions(shell),
        Command::Man { folder } => manual::pages(&folder),
        Command::Report(_) => unreachable!("taken care of above"),
    }
}

/// Log lines go to standard error; `RUST_LOG` chooses which, warnings and errors without it.
fn start_logging() {
    let filter = EnvFilter::builder().with_default_directive(LevelFilter::WARN.into()).from_env_lossy();
    let subscriber = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal());
    // A binary that extends this one may log in its own way already.
    let _ = subscriber.without_time().try_init();
}

/// A panic is a fault of the program: one line about it instead of a backtrace. In a trial thread it becomes the reason
/// of a failed trial, which is printed with the others.
fn report_panic(panic: &PanicHookInfo<'_>) {
    if std::thread::current().name() == Some(TRIAL_THREAD_NAME) {
        tracing::debug!("{panic}");
        return;
    }
    let message = panic_message(panic.payload());
    let place = panic.location().map(ToString::to_string).unwrap_or_default();
    complain(format!(
        "spica: internal error at {place}: {message}\nThis is a fault of the program: please report it."
    ));
}
