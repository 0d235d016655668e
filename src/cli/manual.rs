//! `spica completions` and `spica man`: made from the arguments themselves.

use std::path::Path;

use clap::CommandFactory;
use clap_complete::Shell;

use super::arguments::Arguments;
use super::console::Console;
use super::failure::{Failure, Status};
use super::output::look_at_folder;
use crate::report::files::write_atomically;

/// Writes the completion script of a shell.
pub(super) fn completions(shell: Shell) -> Result<Status, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Arguments::command(), "spica", &mut script);
    let written = Console::stream(|out| out.write_all(&script));
    written.map_err(|error| Failure::run(format!("cannot write to standard output: {error}")))?;
    Ok(Status::Success)
}

/// Writes a manual page for the program and one for each of its commands.
pub(super) fn pages(folder: &Path) -> Result<Status, Failure> {
    look_at_folder("FOLDER", folder)?;
    std::fs::create_dir_all(folder)
        .map_err(|error| Failure::input(format!("{}: {error}", folder.display())))?;
    let mut command = Arguments::command();
    command.build();
    write_pages(&command, folder)?;
    Ok(Status::Success)
}

/// Writes the page of a command that has been built, so that it knows its whole name, and those of its own commands.
fn write_pages(command: &clap::Command, folder: &Path) -> Result<(), Failure> {
    let name = command.get_display_name().unwrap_or(command.get_name());
    let page = clap_mangen::Man::new(command.clone());
    write_atomically(&folder.join(format!("{name}.1")), |out| page.render(out)).map_err(Failure::run)?;
    for inner in command.get_subcommands().filter(|inner| inner.get_name() != "help") {
        write_pages(inner, folder)?;
    }
    Ok(())
}
