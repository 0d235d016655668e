//! `spica profiles`: what is known of how long passes take.

use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;

use comfy_table::{ContentArrangement, Table, presets};
use serde_json::{Value, json};

use super::arguments::{Format, ProfilesCommand, SampleArguments};
use super::console::Console;
use super::failure::{Failure, Status};
use super::input::{open_file, read_whole};
use crate::timing::csv::RowProblems;
use crate::timing::grid::{self, MeasuredGrid};
use crate::timing::profile::{
    self, ANSWER_COLUMNS, Answer, Entry, Family, Pack, PassTables, QUERY_COLUMNS, Shape,
};

pub(super) fn run(command: &ProfilesCommand, console: Console) -> Result<Status, Failure> {
    match command {
        ProfilesCommand::List { words } => list(words, console)?,
        ProfilesCommand::Show { id } => show(id, console)?,
        ProfilesCommand::Check { file } => check(file, console)?,
        ProfilesCommand::Query { file } => query(file, console)?,
        ProfilesCommand::Sample(arguments) => sample(arguments)?,
    }
    Ok(Status::Success)
}

#[cfg(feature = "aic")]
fn sample(arguments: &SampleArguments) -> Result<(), Failure> {
    super::sample::sample(arguments)
}

#[cfg(not(feature = "aic"))]
fn sample(_arguments: &SampleArguments) -> Result<(), Failure> {
    Err(Failure::input(
        "this program was built without the feature `aic`: `cargo install --path . --features aic` has it",
    ))
}

/// Without words the families, with words the profiles that have them all.
fn list(words: &[String], console: Console) -> Result<(), Failure> {
    let pack = Pack::embedded();
    let entries = pack.families().iter().flat_map(|family| pack.profiles(family));
    let found: Vec<Entry<'_>> = entries.filter(|entry| has_all(entry, words)).collect();
    if found.is_empty() {
        return Err(Failure::input(format!("no profile has `{}` in its description", words.join("`, `"))));
    }
    match console.format() {
        Format::Json => Console::print_json(&found.iter().map(describe).collect::<Vec<_>>()),
        Format::Text if words.is_empty() => Console::print(&family_table(pack)),
        Format::Text => Console::print(&profile_table(&found)),
    }
}

/// Whether every word is part of a name, a model, a GPU, an engine or a number format.
fn has_all(entry: &Entry<'_>, words: &[String]) -> bool {
    let Entry { family, profile, .. } = entry;
    let models = family.models().collect::<Vec<_>>().join(" ");
    let text = format!(
        "{} {} {models} {} {} {}",
        profile.id,
        layout(profile.shape),
        family.system,
        engine(family),
        family.quant.weights()
    );
    let text = text.to_lowercase();
    words.iter().all(|word| text.contains(&word.to_lowercase()))
}

fn engine(family: &Family) -> String {
    format!("{} {}", family.backend.name(), family.version)
}

fn layout(shape: Shape) -> String {
    let Shape { tp, pp, attention_dp, moe_tp, moe_ep } = shape;
    let mut text = format!("tp{tp}");
    for (name, size) in [("pp", pp), ("dp", attention_dp), ("moe_tp", moe_tp), ("moe_ep", moe_ep)] {
        if size > 1 {
            let _ = write!(text, " {name}{size}");
        }
    }
    text
}

fn plain_table(headings: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(headings);
    table
}

fn family_table(pack: &Pack) -> String {
    let mut table = plain_table(&["family", "model", "GPU", "engine", "weights", "profiles", ""]);
    for family in pack.families() {
        table.add_row([
            family.name.clone(),
            family.model.clone(),
            family.system.clone(),
            engine(family),
            family.quant.weights().to_owned(),
            family.profiles.to_string(),
            if family.suspect.is_some() { "suspect".into() } else { String::new() },
        ]);
    }
    let profiles: u32 = pack.families().iter().map(|family| family.profiles).sum();
    let families = pack.families().len();
    format!(
        "{table}\n\n{families} families, {profiles} profiles: `spica profiles list WORD...` lists those with the words\n"
    )
}

fn profile_table(found: &[Entry<'_>]) -> String {
    let mut table = plain_table(&["profile", "model", "GPU", "engine", "layout", "GPUs", ""]);
    for Entry { family, profile, .. } in found {
        let remark = match (&family.suspect, &profile.caution) {
            (Some(_), _) => "suspect",
            (None, Some(_)) => "caution",
            (None, None) => "",
        };
        table.add_row([
            profile.id.clone(),
            family.model.clone(),
            family.system.clone(),
            engine(family),
            layout(profile.shape),
            profile.shape.gpus().to_string(),
            remark.to_owned(),
        ]);
    }
    format!("{table}\n")
}

/// A profile without its tables.
fn describe(entry: &Entry<'_>) -> Value {
    let Entry { family, profile, .. } = entry;
    json!({
        "id": profile.id,
        "model": family.model,
        "same_shape_models": family.same_shape_models,
        "hardware_sku": family.system,
        "backend": family.backend,
        "backend_version": family.version,
        "tp": profile.shape.tp,
        "pp": profile.shape.pp,
        "attention_dp": profile.shape.attention_dp,
        "moe_tp": profile.shape.moe_tp,
        "moe_ep": profile.shape.moe_ep,
        "gpus": profile.shape.gpus(),
        "quantization": family.quant.weights(),
        "kv_cache_quantization": family.quant.kv_cache,
        "max_context": family.max_context,
        "data": family.data,
        "note": family.note,
        "suspect": family.suspect,
        "caution": profile.caution,
        "digest": entry.digest(),
    })
}

fn show(id: &str, console: Console) -> Result<(), Failure> {
    let entry = Pack::embedded().named(id).map_err(|error| Failure::input(error.message))?;
    let tables = entry.pass_tables();
    match console.format() {
        Format::Text => Console::print(&shown(&entry, &tables)),
        Format::Json => {
            let mut described = describe(&entry);
            described["memory"] = memory(&entry).into_iter().collect();
            described["sampled"] = sampled(&entry).into_iter().collect();
            Console::print_json(&described)
        }
    }
}

/// Facts of memory by name; none where they are not known.
fn memory(entry: &Entry<'_>) -> Vec<(String, Value)> {
    let Some(facts) = &entry.profile.memory else { return Vec::new() };
    [
        ("capacity_bytes", facts.capacity_bytes),
        ("weights_bytes", facts.weights_bytes),
        ("runtime_bytes", facts.runtime_bytes),
        ("comm_bytes", facts.comm_bytes),
        ("kv_bytes_per_token", facts.kv_bytes_per_token),
    ]
    .map(|(name, bytes)| (name.to_owned(), bytes.into()))
    .to_vec()
}

/// The range of each axis.
fn sampled(entry: &Entry<'_>) -> Vec<(String, Value)> {
    let axes = entry.axes;
    let range = |points: &[u32]| json!([points.first(), points.last()]);
    [
        ("context_tokens", range(&axes.context_tokens)),
        ("attn_batch", range(&axes.attn_batch)),
        ("attn_new", range(&axes.attn_new)),
        ("attn_prefix", range(&axes.attn_prefix)),
        ("decode_batch", range(&axes.decode_batch)),
        ("decode_context", range(&axes.decode_context)),
    ]
    .map(|(name, range)| (name.to_owned(), range))
    .to_vec()
}

fn shown(entry: &Entry<'_>, tables: &PassTables) -> String {
    let mut text = String::new();
    let mut line = |name: &str, value: &str| {
        if !value.is_empty() && value != "null" {
            let _ = writeln!(text, "{name:<26} {value}");
        }
    };
    if let Value::Object(described) = describe(entry) {
        for (name, value) in described {
            line(&name, value.as_str().unwrap_or(&value.to_string()));
        }
    }
    for (name, value) in memory(entry).into_iter().chain(sampled(entry)) {
        line(&name, &value.to_string());
    }
    let mut prefill = plain_table(&["prefill ms", "prefix 0", "4096", "32768"]);
    for new in [128, 1024, 8192] {
        let prices = [0, 4096, 32_768].map(|prefix| format!("{:.2}", tables.prefill(1, new, prefix).ms));
        prefill.add_row(std::iter::once(format!("{new} new tokens")).chain(prices));
    }
    let mut decode = plain_table(&["decode ms", "context 1024", "8192", "65536"]);
    for batch in [1, 16, 64, 256] {
        let prices =
            [1024.0, 8192.0, 65_536.0].map(|context| format!("{:.2}", tables.decode(batch, context).ms));
        decode.add_row(std::iter::once(format!("{batch} requests")).chain(prices));
    }
    let _ = writeln!(text, "\n{prefill}\n\n{decode}");
    text
}

/// How well a table meets the measurements that it is made from.
fn check(file: &Path, console: Console) -> Result<(), Failure> {
    let bytes = read_whole(file)?;
    let grid = MeasuredGrid::read(&bytes)
        .map_err(|problems| Failure::input(RowProblems { file: file.display().to_string(), problems }))?;
    let digest = grid::digest(&bytes);
    let MeasuredGrid::Fitted(fitted) = &grid else {
        let kind = "a grid of the reference, taken as it is";
        return match console.format() {
            Format::Json => Console::print_json(&json!({"digest": digest, "kind": kind})),
            Format::Text => Console::print(&format!("{kind}; digest {digest}\n")),
        };
    };
    let phases = [("prefill", &fitted.prefill_quality), ("decode", &fitted.decode_quality)];
    match console.format() {
        Format::Json => {
            let mut checked = json!({"digest": digest, "kind": "a table fitted to rows"});
            for (phase, quality) in phases {
                checked[phase] = json!(quality);
            }
            Console::print_json(&checked)
        }
        Format::Text => {
            let mut table = plain_table(&[
                "phase",
                "points",
                "median error %",
                "left out: median %",
                "p90 %",
                "max %",
                "drops",
            ]);
            for (phase, quality) in phases {
                let percent = |percent: f64| format!("{percent:.3}");
                table.add_row([
                    phase.to_owned(),
                    quality.points.to_string(),
                    percent(quality.median_error_percent),
                    percent(quality.median_left_out_percent),
                    percent(quality.p90_left_out_percent),
                    percent(quality.max_left_out_percent),
                    quality.drops_over_10_percent.to_string(),
                ]);
            }
            Console::print(&format!("{table}\n\ndigest {digest}\n"))
        }
    }
}

/// Prices the rows of a file, or of standard input for `-`.
fn query(file: &Path, console: Console) -> Result<(), Failure> {
    let (name, reader): (_, Box<dyn BufRead>) = if file == Path::new("-") {
        ("standard input".to_owned(), Box::new(BufReader::new(std::io::stdin())))
    } else {
        (file.display().to_string(), Box::new(open_file(file)?))
    };
    let answers =
        profile::answer(reader).map_err(|problems| Failure::input(RowProblems { file: name, problems }))?;
    match console.format() {
        Format::Json => Console::print_json(&answers),
        Format::Text => Console::stream(|out| write_answers(&answers, out))
            .map_err(|error| Failure::run(format!("cannot write to standard output: {error}"))),
    }
}

fn write_answers(answers: &[Answer], out: &mut dyn Write) -> std::io::Result<()> {
    let columns: Vec<&str> = match answers.first() {
        Some(answer) => answer.given.keys().map(String::as_str).collect(),
        None => QUERY_COLUMNS.to_vec(),
    };
    writeln!(out, "{},{}", columns.join(","), ANSWER_COLUMNS.join(","))?;
    for Answer { given, latency_ms, source, extrapolated } in answers {
        for field in given.values() {
            write!(out, "{field},")?;
        }
        writeln!(out, "{latency_ms:.6},{source},{extrapolated}")?;
    }
    Ok(())
}
