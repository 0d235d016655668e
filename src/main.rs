//! The `spica` command: everything lives in the library, so that a researcher's own binary can extend it.

fn main() -> std::process::ExitCode {
    spica::cli::run(spica::registry::Registry::builtin())
}
