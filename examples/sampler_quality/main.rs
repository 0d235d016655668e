//! How good the samplers are: every point of some spaces is replayed once, then each sampler searches those tables with many
//! seeds, and its regret is compared with that of the others.
//!
//! `cargo run --release --example sampler_quality -- [--seeds N] [--first-seed N] [--cache DIR] [--sampler NAME]... [--pace] [TABLE...]`
//!
//! Regret is what is missing to the best point, as a share of the way from the median point to the best; for a frontier, the
//! share of the hypervolume that is missing. Tables are kept in the cache folder, if there is one. With `--pace` it measures how
//! much of a search's time goes by without a replay, if each takes 0.1 s.

mod pace;
mod scale;
mod tables;

use std::path::PathBuf;
use std::time::Instant;

use spica::config::scenario::PolicyConfig;
use spica::search::Point;
use tables::{DEFINITIONS, Definition, Table};

const SAMPLERS: [&str; 4] = ["gp_ucb_pe", "tpe", "halton", "random"];
const CHECKPOINTS: [usize; 3] = [25, 50, 100];
/// Points that are replayed at a time.
const BATCH: usize = 4;
/// Points that are suggested at a time, while the other half of a batch is being replayed.
const CHUNK: usize = BATCH / 2;

type Failure = Box<dyn std::error::Error>;

fn main() -> Result<(), Failure> {
    let (mut seeds, mut first_seed, mut cache) = (20, 1, None::<PathBuf>);
    let (mut names, mut samplers, mut is_pace) = (Vec::new(), Vec::new(), false);
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().ok_or_else(|| format!("{argument} needs a value"));
        match argument.as_str() {
            "--pace" => is_pace = true,
            "--seeds" => seeds = value()?.parse()?,
            "--first-seed" => first_seed = value()?.parse()?,
            "--cache" => cache = Some(value()?.into()),
            "--sampler" => samplers.push(value()?),
            _ => names.push(argument),
        }
    }
    if samplers.is_empty() {
        samplers = SAMPLERS.map(str::to_owned).to_vec();
    }
    let wanted =
        |definition: &&Definition| names.is_empty() || names.iter().any(|name| name == definition.name);
    if is_pace {
        return DEFINITIONS.iter().filter(wanted).try_for_each(pace::measure);
    }
    println!(
        "| table (points) | sampler | regret at 25 | 50 | 100 | `{}` better : worse at 25 | 50 | 100 | p95 ms of 4 at 100 |",
        samplers[0]
    );
    println!("|---|---|---:|---:|---:|---|---|---|---:|");
    for definition in DEFINITIONS.iter().filter(wanted) {
        let table =
            definition.table(cache.as_deref()).map_err(|error| format!("{}: {error}", definition.name))?;
        compare(definition.name, &table, &samplers, first_seed..first_seed + seeds);
    }
    Ok(())
}

/// How one search went.
struct Run {
    /// The regret at each checkpoint.
    regrets: [f64; 3],
    /// Milliseconds of processor time that it took to suggest one more batch at the end.
    batch_ms: f64,
}

fn compare(name: &str, table: &Table, samplers: &[String], seeds: std::ops::Range<u64>) {
    let mut first: Vec<Run> = Vec::new();
    for (place, sampler) in samplers.iter().enumerate() {
        let runs: Vec<Run> = seeds.clone().map(|seed| search(table, sampler, seed)).collect();
        let mut costs: Vec<f64> = runs.iter().map(|run| run.batch_ms).collect();
        costs.sort_by(f64::total_cmp);
        let cost = costs[(costs.len() * 95).div_ceil(100) - 1];
        let mean = |checkpoint: usize| {
            runs.iter().map(|run| run.regrets[checkpoint]).sum::<f64>() / runs.len() as f64
        };
        let sign = |checkpoint: usize| {
            let (mut better, mut worse) = (0, 0);
            for (ours, theirs) in first.iter().zip(&runs) {
                let (ours, theirs) = (ours.regrets[checkpoint], theirs.regrets[checkpoint]);
                better += u32::from(ours < theirs - 1e-12);
                worse += u32::from(ours > theirs + 1e-12);
            }
            format!("{better}:{worse} (p {:.3})", sign_test(better, worse))
        };
        let signs = if place == 0 { [""; 3].map(str::to_owned) } else { [0, 1, 2].map(sign) };
        let title = if place == 0 { format!("{name} ({})", table.rows.len()) } else { String::new() };
        println!(
            "| {title} | `{sampler}` | {:.4} | {:.4} | {:.4} | {} | {cost:.0} |",
            mean(0),
            mean(1),
            mean(2),
            signs.join(" | ")
        );
        if place == 0 {
            first = runs;
        }
    }
}

/// How likely at least so many wins are if both were equally good.
fn sign_test(better: u32, worse: u32) -> f64 {
    let trials = better + worse;
    let choose = |of: u32| (0..of).fold(1.0, |ways, k| ways * f64::from(trials - k) / f64::from(k + 1));
    (better..=trials).map(choose).sum::<f64>() / 2_f64.powi(trials as i32)
}

/// Milliseconds that this thread has computed for, or since the start where the system does not say.
fn computed_ms(start: Instant) -> f64 {
    let nanoseconds = std::fs::read_to_string("/proc/thread-self/schedstat")
        .ok()
        .and_then(|text| text.split_whitespace().next()?.parse::<f64>().ok());
    nanoseconds.map_or(start.elapsed().as_secs_f64() * 1e3, |ns| ns / 1e6)
}

fn search(table: &Table, name: &str, seed: u64) -> Run {
    let mut sampler = table.branch.sampler(&PolicyConfig::named(name), seed).expect("the sampler exists");
    let (mut found, mut under_way): (Vec<&[f64]>, Vec<Point>) = (Vec::new(), Vec::new());
    let (mut tried, start) = (0, Instant::now());
    let mut regrets = [0.0; 3];
    for (regret, checkpoint) in regrets.iter_mut().zip(CHECKPOINTS) {
        while tried < checkpoint {
            let points = sampler.suggest(CHUNK.min(checkpoint - tried));
            if points.is_empty() {
                break;
            }
            tried += points.len();
            found.extend(points.iter().filter_map(|point| table.rows[point].figures.as_deref()));
            // Half a batch is still under way when the next half is suggested.
            for point in std::mem::replace(&mut under_way, points) {
                sampler.observe(&point, &table.rows[&point].observation());
            }
        }
        *regret = table.scale.regret(&found);
    }
    for point in under_way {
        sampler.observe(&point, &table.rows[&point].observation());
    }
    let before = computed_ms(start);
    sampler.suggest(BATCH);
    Run { regrets, batch_ms: computed_ms(start) - before }
}
