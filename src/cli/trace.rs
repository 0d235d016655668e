//! `spica trace`: look into traces, or make them.

use std::io::{self, Write};
use std::sync::Arc;

use super::arguments::{Format, GenerateCommand, TraceArguments, TraceCommand};
use super::console::Console;
use super::failure::{Failure, Status};
use super::input::load_workload;
use crate::config::scenario::{WorkloadConfig, WorkloadSource, ZeroOutput};
use crate::workload::generate::{Conversation, Sine, ToolAgent};
use crate::workload::stats::{LengthStats, ReuseBound, WorkloadStats};
use crate::workload::{Workload, mooncake};

pub(super) fn run(command: TraceCommand, console: Console) -> Result<Status, Failure> {
    match command {
        TraceCommand::Stats(arguments) => stats(arguments, console)?,
        TraceCommand::Convert(arguments) => convert(arguments, console)?,
        TraceCommand::Generate(generator) => generate(&generator)?,
    }
    Ok(Status::Success)
}

/// Loads the requests of a trace.
fn load(
    arguments: TraceArguments,
    zero_output: ZeroOutput,
    console: Console,
) -> Result<Arc<Workload>, Failure> {
    let config = WorkloadConfig {
        source: WorkloadSource::Trace {
            path: arguments.file,
            block_size: arguments.block_size,
            time_unit: arguments.time_unit.into(),
            max_requests: arguments.max_requests,
        },
        concurrency: None,
        arrival_speedup_ratio: 1.0,
        zero_output,
        strict: false,
    };
    load_workload(&config, arguments.block_size, console)
}

fn convert(arguments: TraceArguments, console: Console) -> Result<(), Failure> {
    let workload = load(arguments, ZeroOutput::PrefillOnly, console)?;
    let mut inexpressible = None;
    let written = Console::stream(|out| {
        inexpressible = mooncake::write(&workload, out)?.err();
        Ok(())
    });
    written.map_err(|error| Failure::run(format!("cannot write to standard output: {error}")))?;
    inexpressible.map_or(Ok(()), |reason| Err(Failure::input(reason)))
}

fn stats(arguments: TraceArguments, console: Console) -> Result<(), Failure> {
    let workload = load(arguments, ZeroOutput::Drop, console)?;
    let stats = WorkloadStats::new(&workload);
    match console.format() {
        Format::Text => Console::print(&stats_table(&stats)),
        Format::Json => Console::print_json(&stats),
    }
}

fn stats_table(stats: &WorkloadStats) -> String {
    let mut lines = vec![
        format!("requests  {} in {} sessions", stats.requests, stats.sessions),
        match stats.request_rate_rps {
            Some(rate) => format!("span      {:.3} s, {rate:.3} requests/s", stats.span_s),
            None => format!("span      {:.3} s", stats.span_s),
        },
        lengths("input", &stats.input_length),
        lengths("output", &stats.output_length),
        stats.reuse_bound.as_ref().map_or_else(
            || "reuse     none: nothing is known of what the prompts have in common".into(),
            reuse,
        ),
    ];
    let input = &stats.input;
    let counts = |kinds: &indexmap::IndexMap<String, u64>| {
        let counts = kinds.iter().map(|(kind, count)| format!("{count} {kind}")).collect::<Vec<_>>();
        if counts.is_empty() { "none".into() } else { counts.join(", ") }
    };
    lines.push(format!(
        "rows      {} read, {} used; dropped: {}; repaired: {}",
        input.read,
        input.used,
        counts(&input.dropped),
        counts(&input.repaired)
    ));
    lines.join("\n") + "\n"
}

fn lengths(name: &str, lengths: &LengthStats) -> String {
    format!(
        "{name:<9} {} tokens; per request {:.1} on average, min {}, p50 {}, p90 {}, p99 {}, max {}",
        lengths.total, lengths.mean, lengths.min, lengths.p50, lengths.p90, lengths.p99, lengths.max
    )
}

fn reuse(bound: &ReuseBound) -> String {
    format!(
        "reuse     at most {:.1} % of the prompt tokens ({} of {} blocks, {} of them distinct); {:.1} % once warm",
        bound.token_ratio * 100.0,
        bound.reused_blocks,
        bound.blocks,
        bound.distinct_blocks,
        bound.warm_token_ratio * 100.0
    )
}

fn generate(generator: &GenerateCommand) -> Result<(), Failure> {
    let written = Console::stream(|mut out| write_trace(generator, &mut out));
    written.map_err(|error| match error.kind() {
        io::ErrorKind::InvalidInput => Failure::input(error),
        _ => Failure::run(format!("cannot write to standard output: {error}")),
    })
}

fn write_trace(generator: &GenerateCommand, out: &mut impl Write) -> io::Result<()> {
    match *generator {
        GenerateCommand::Conversation { rows, seed, requests_per_second } => {
            Conversation { rows, seed, requests_per_second }.write(out)
        }
        GenerateCommand::ToolAgent { rows, seed, requests_per_second } => {
            ToolAgent { rows, seed, requests_per_second }.write(out)
        }
        GenerateCommand::Sine { duration_s, period_s, base_rps, amplitude_rps, isl, osl } => {
            Sine { duration_s, period_s, base_rps, amplitude_rps, isl, osl }.write(out)
        }
    }
}
