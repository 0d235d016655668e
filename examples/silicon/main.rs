//! How far replays are from what was measured on real accelerators.
//!
//! `cargo run --release --example silicon -- [FOLDER] [--points FILE] [--requests N] [--turnaround-ms MS] [--threads N]`
//!
//! FOLDER (default `../shared/silicon`) holds `aic_silicon_agg.csv` and `aic_silicon_disagg.csv`: points of the public
//! `InferenceX` database, one row each. Every row that a bundled profile prices is replayed the way it was driven, and its
//! mean TTFT and TPOT are compared. Nothing is fitted to the rows. `--points` writes each comparison to a CSV file.
//!
//! `vllm_sharegpt_requests.csv` in the same folder holds requests one by one, of GPUs without a profile: there a grid is fitted
//! to the first hundred of each case, and the others are compared.

mod measured;
mod minimise;
mod point;
mod sharegpt;
mod tally;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use indexmap::IndexMap;
use measured::Measured;
use point::{Driven, Point, Skipped};
use spica::registry::Registry;

type Failure = Box<dyn std::error::Error>;

/// What the command line asks for.
struct Arguments {
    folder: PathBuf,
    points: Option<PathBuf>,
    driven: Driven,
    threads: usize,
}

fn main() -> Result<(), Failure> {
    let arguments = arguments()?;
    let rows = measured::read_folder(&arguments.folder)?;
    let replayed = replay_all(&rows, &arguments);
    let mut skipped: IndexMap<String, u32> = IndexMap::new();
    let mut points = Vec::new();
    for outcome in replayed {
        match outcome {
            Ok(point) => points.push(point),
            Err(Skipped(reason)) => *skipped.entry(reason).or_default() += 1,
        }
    }
    if let Some(path) = &arguments.points {
        write_points(path, &points)?;
    }
    print!("{}", tally::report(rows.len(), &points, skipped));
    print!("{}", sharegpt::report(&arguments.folder)?);
    Ok(())
}

fn arguments() -> Result<Arguments, Failure> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let mut parsed = Arguments {
        folder: "../shared/silicon".into(),
        points: None,
        driven: Driven { most_requests: 2000, turnaround_ms: 0.0 },
        threads,
    };
    let mut given = std::env::args().skip(1);
    while let Some(argument) = given.next() {
        let mut value = || given.next().ok_or_else(|| format!("{argument} needs a value"));
        match argument.as_str() {
            "--points" => parsed.points = Some(value()?.into()),
            "--requests" => parsed.driven.most_requests = value()?.parse()?,
            "--turnaround-ms" => parsed.driven.turnaround_ms = value()?.parse()?,
            "--threads" => parsed.threads = value()?.parse::<usize>()?.max(1),
            option if option.starts_with('-') => {
                return Err(format!(
                    "{option}: unknown; known: --points FILE, --requests N, --turnaround-ms MS, \
                            --threads N"
                )
                .into());
            }
            folder => parsed.folder = folder.into(),
        }
    }
    Ok(parsed)
}

/// Replays all rows on some threads; the answers come in the order of the rows, whoever found them.
fn replay_all(rows: &[Measured], arguments: &Arguments) -> Vec<Result<Point, Skipped>> {
    let registry = Registry::builtin();
    let next = AtomicUsize::new(0);
    let work = || {
        let mut found = Vec::new();
        loop {
            let place = next.fetch_add(1, Ordering::Relaxed);
            let Some(row) = rows.get(place) else { return found };
            let first = rows[..place].iter().all(|earlier| !earlier.is_same_measurement(row));
            let outcome = if first {
                point::replay(row, &registry, &arguments.driven)
            } else {
                Err(Skipped("a measurement that another row holds too".into()))
            };
            found.push((place, outcome));
            if place.is_multiple_of(20) {
                eprintln!("row {place} of {}", rows.len());
            }
        }
    };
    let mut all: Vec<_> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..arguments.threads).map(|_| scope.spawn(work)).collect();
        let found = workers.into_iter().map(|worker| worker.join().expect("a replay does not panic"));
        found.flatten().collect()
    });
    all.sort_by_key(|(place, _)| *place);
    all.into_iter().map(|(_, outcome)| outcome).collect()
}

fn write_points(path: &Path, points: &[Point]) -> Result<(), Failure> {
    let mut file = std::io::BufWriter::new(std::fs::File::create(path)?);
    writeln!(
        file,
        "id,model,system,backend,version,precision,isl,osl,concurrency,shape,profile,suspect,extrapolated,ttft_ms,\
         replayed_ttft_ms,tpot_ms,replayed_tpot_ms"
    )?;
    for point in points {
        let row = &point.row;
        writeln!(
            file,
            "{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{}",
            row.id,
            row.model,
            row.system,
            row.backend,
            row.version,
            row.precision,
            row.isl,
            row.osl,
            row.concurrency,
            row.layout.name(),
            point.profiles,
            u8::from(point.suspect),
            point.extrapolated_lookups,
            row.ttft_ms,
            point.ttft_ms,
            row.tpot_ms,
            point.tpot_ms
        )?;
    }
    Ok(file.flush()?)
}
