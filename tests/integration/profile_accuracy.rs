//! The embedded profiles against passes that were priced one by one where the tables were sampled.

#![allow(clippy::unwrap_used, reason = "helpers of tests may panic")]

use spica::timing::profile::{Pack, PassTables, Priced};

use super::shared_folder::shared_file;

/// Errors of the rows of one file in percent: of deployments that are trusted, and of suspect ones.
struct Errors {
    trusted: Vec<f64>,
    suspect: Vec<f64>,
    extrapolated: usize,
}

/// Nearest rank.
fn quantile(sorted: &[f64], share: f64) -> f64 {
    let rank = (share * sorted.len() as f64).ceil() as usize;
    sorted[rank.clamp(1, sorted.len()) - 1]
}

fn describe(errors: &[f64]) -> String {
    let [median, p90, p99] = [0.5, 0.9, 0.99].map(|share| quantile(errors, share));
    format!("{:5} rows: median {median:.3} %, p90 {p90:.3} %, p99 {p99:.2} %", errors.len())
}

/// Compares each row of `file`, whose numbers are passed to `price`; the last of them is the expected time.
fn errors(file: &str, price: impl Fn(&PassTables, &[u32]) -> Priced) -> Option<Errors> {
    let text = std::fs::read_to_string(shared_file(&format!("aic/{file}"))?).unwrap();
    let pack = Pack::embedded();
    let mut tables = indexmap::IndexMap::new();
    let mut errors = Errors { trusted: Vec::new(), suspect: Vec::new(), extrapolated: 0 };
    for line in text.lines().skip(1) {
        let (id, numbers) = line.split_once(',').unwrap();
        let (numbers, expected_ms) = numbers.rsplit_once(',').unwrap();
        let numbers: Vec<u32> = numbers.split(',').map(|number| number.parse().unwrap()).collect();
        let expected_ms: f64 = expected_ms.parse().unwrap();
        let (suspect, tables) = tables.entry(id.to_owned()).or_insert_with(|| {
            let entry = pack.named(id).unwrap();
            (entry.family.suspect.is_some(), PassTables::new(entry.axes, &entry.profile.tables))
        });
        let priced = price(tables, &numbers);
        let error = (priced.ms / expected_ms - 1.0).abs() * 100.0;
        errors.extrapolated += usize::from(priced.extrapolated);
        if *suspect { errors.suspect.push(error) } else { errors.trusted.push(error) }
    }
    errors.trusted.sort_by(f64::total_cmp);
    errors.suspect.sort_by(f64::total_cmp);
    println!("{file}: trusted {}; suspect {}", describe(&errors.trusted), describe(&errors.suspect));
    Some(errors)
}

fn check(file: &str, rows: usize, price: impl Fn(&PassTables, &[u32]) -> Priced) {
    let Some(errors) = errors(file, price) else { return };
    assert!(errors.trusted.len() + errors.suspect.len() >= rows, "{file} is whole");
    assert!(quantile(&errors.trusted, 0.5) <= 0.5 && quantile(&errors.trusted, 0.9) <= 4.0, "{file}");
    let mut all = errors.trusted.clone();
    all.extend(&errors.suspect);
    all.sort_by(f64::total_cmp);
    println!("{file}: all     {}", describe(&all));
    assert!(quantile(&all, 0.5) <= 0.5 && quantile(&all, 0.9) <= 4.0, "{file}, suspect rows included");
    assert_eq!(errors.extrapolated, 0, "{file} stays within the tables");
}

fn prefill(tables: &PassTables, row: &[u32]) -> Priced {
    tables.prefill(row[0], row[1], row[2])
}

fn decode(tables: &PassTables, row: &[u32]) -> Priced {
    tables.decode(row[0], f64::from(row[1]))
}

#[test]
fn sampled_passes_are_met() {
    check("prefill.csv", 5616, prefill);
    check("decode.csv", 2256, decode);
}

#[test]
fn passes_between_the_samples_are_met() {
    check("holdout_prefill.csv", 1000, prefill);
    check("holdout_decode.csv", 1000, decode);
}
