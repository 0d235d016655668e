//! `spica trace`: look into traces, or make them.

use std::io::{self, BufRead, Write};
use std::sync::Arc;

use super::arguments::{Format as OutputForm, GenerateCommand, Spread, TraceArguments, TraceCommand};
use super::console::Console;
use super::failure::{Failure, Status};
use super::input::open_file;
use crate::config::scenario::{Arrival, ArrivalProcess, TraceFormat, ZeroOutput};
use crate::workload::formats;
use crate::workload::generate::{Conversation, Sine, ToolAgent};
use crate::workload::stats::{LengthStats, ReuseBound, WorkloadStats};
use crate::workload::{Loaded, OUT_OF_ORDER, Pacing, Place, Workload, WorkloadErrors, mooncake};

pub(super) fn run(command: TraceCommand, console: Console) -> Result<Status, Failure> {
    match command {
        TraceCommand::Stats(arguments) => stats(&arguments, console)?,
        TraceCommand::Convert(arguments) => convert(&arguments, console)?,
        TraceCommand::Generate(generator) => generate(&generator)?,
    }
    Ok(Status::Success)
}

/// Loads the requests of a trace. `zero_output` is what becomes of rows without output unless the arguments say.
fn load(
    arguments: &TraceArguments,
    zero_output: ZeroOutput,
    console: Console,
) -> Result<Arc<Workload>, Failure> {
    let zero_output = arguments.zero_output.map_or(zero_output, Into::into);
    let loaded = read(arguments, zero_output, console)?;
    for warning in &loaded.warnings {
        console.note(format!("warning: {warning}"));
    }
    Ok(Arc::new(loaded.workload))
}

fn read(arguments: &TraceArguments, zero_output: ZeroOutput, console: Console) -> Result<Loaded, Failure> {
    let process = match arguments.arrival {
        Spread::Fixed => ArrivalProcess::Fixed,
        Spread::Poisson => ArrivalProcess::Poisson,
    };
    let arrival = Arrival { process, seed: arguments.arrival_seed };
    let options = formats::Options {
        time_unit: arguments.time_unit,
        rate: arguments.request_rate.map(|rate| (rate, arrival)),
        sessions: arguments.sessions,
        columns: arguments.columns.clone(),
        block_size: arguments.block_size,
        max_requests: arguments.max_requests,
        zero_output,
        strict: arguments.strict,
        pacing: Pacing::default(),
    };
    let mut files: Vec<_> =
        arguments.files.iter().map(|path| open_file(path)).collect::<Result<_, Failure>>()?;
    let sources = arguments.files.iter().zip(&mut files).map(|(path, reader)| formats::Source {
        origin: path.display().to_string(),
        reader: reader as &mut dyn BufRead,
    });
    let refuse = |mut errors: Vec<WorkloadErrors>| {
        errors.iter_mut().for_each(name_options);
        Failure::input(errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))
    };
    let loaded = formats::read(arguments.from, sources.collect(), &options).map_err(refuse)?;
    if arguments.from != TraceFormat::Mooncake {
        console.note(arguments.from.reading(
            options.rate.map(|(rate, _)| rate),
            options.time_unit,
            options.columns.as_ref(),
        ));
    }
    Ok(loaded)
}

/// Calls what concerns a whole trace by the option that it was given with.
fn name_options(errors: &mut WorkloadErrors) {
    for problem in errors.problems.iter_mut().filter(|problem| problem.place == Place::Whole) {
        if ["time unit", "request rate", "block size", "sessions", "columns"]
            .contains(&problem.field.as_str())
        {
            problem.field = format!("--{}", problem.field.replace(' ', "-"));
        }
    }
}

fn convert(arguments: &TraceArguments, console: Console) -> Result<(), Failure> {
    let zero_output = match arguments.from {
        // The rows of a replay and of a trace that is only rewritten stay what they are.
        TraceFormat::Mooncake => ZeroOutput::PrefillOnly,
        _ => ZeroOutput::Drop,
    };
    let workload = load(arguments, zero_output, console)?;
    let mut inexpressible = None;
    let written = Console::stream(|out| {
        inexpressible = mooncake::write(&workload, out)?.err();
        Ok(())
    });
    written.map_err(|error| Failure::run(format!("cannot write to standard output: {error}")))?;
    if let Some(reason) = inexpressible {
        return Err(Failure::input(reason));
    }
    if mooncake::has_turns(&workload) && workload.input.repaired.contains_key(OUT_OF_ORDER) {
        console.note("sessions are sorted by arrival, which from now on decides between turns of theirs that are due at one instant");
    }
    let block = workload.requests.iter().map(|request| request.prompt).find(|prompt| prompt.chunks > 0);
    if let Some(prompt) = block
        && prompt.tokens_per_chunk != mooncake::Options::default().block_size
    {
        let size = prompt.tokens_per_chunk;
        console.note(format!("an id stands for {size} tokens: replay it with `trace_block_size: {size}`"));
    }
    Ok(())
}

fn stats(arguments: &TraceArguments, console: Console) -> Result<(), Failure> {
    let workload = load(arguments, ZeroOutput::Drop, console)?;
    let stats = WorkloadStats::new(&workload);
    match console.format() {
        OutputForm::Text => Console::print(&stats_table(&stats)),
        OutputForm::Json => Console::print_json(&stats),
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
