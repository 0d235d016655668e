//! What the points come to, as Markdown.

use std::fmt::Write;

use indexmap::IndexMap;

use crate::point::Point;

/// Errors over a population, as shares of what was measured.
struct Errors {
    mean_absolute: f64,
    median_absolute: f64,
    /// With its sign: above 0 where replays are mostly slower than the accelerator.
    median: f64,
}

impl Errors {
    fn of(errors: impl Iterator<Item = f64>) -> Self {
        let signed: Vec<f64> = errors.collect();
        let absolute: Vec<f64> = signed.iter().map(|error| error.abs()).collect();
        Self {
            mean_absolute: absolute.iter().sum::<f64>() / absolute.len() as f64,
            median_absolute: median(absolute),
            median: median(signed),
        }
    }

    fn cells(&self) -> String {
        let Self { mean_absolute, median_absolute, median } = self;
        format!("{:.1} | {:.1} | {:+.1}", mean_absolute * 100.0, median_absolute * 100.0, median * 100.0)
    }
}

/// The middle, or the mean of the two in the middle; `values` are not empty.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let (low, high) = (values[(values.len() - 1) / 2], values[values.len() / 2]);
    f64::midpoint(low, high)
}

/// Coverage, errors, and errors by what might cause them.
pub(crate) fn report(rows: usize, points: &[Point], skipped: IndexMap<String, u32>) -> String {
    let mut out = String::new();
    let _ = writeln!(out, "{} of {rows} rows replayed.\n\n| not replayed | rows |\n|---|---:|", points.len());
    let mut skipped: Vec<_> = skipped.into_iter().collect();
    skipped.sort_by(|left, right| right.1.cmp(&left.1).then_with(|| left.0.cmp(&right.0)));
    for (reason, count) in skipped {
        let _ = writeln!(out, "| {} | {count} |", reason.replace('\n', "; "));
    }
    let all: Vec<&Point> = points.iter().collect();
    let (split, aggregated): (Vec<&Point>, Vec<&Point>) =
        all.iter().partition(|point| point.row.layout.is_split());
    let (doubted, trusted): (Vec<&Point>, Vec<&Point>) = aggregated.iter().partition(|point| point.suspect);
    let _ = write!(out, "\n{}", head("points"));
    for (name, points) in [
        ("all", &all),
        ("aggregated, sound profiles", &trusted),
        ("aggregated, suspect profiles", &doubted),
        ("disaggregated", &split),
    ] {
        out.push_str(&line(name, points));
    }
    out.push_str("| AISimulate 0.12.0, as published | 728 | 28.4 |  |  | 76.7 |  |  |\n");
    out.push_str("| AI Configurator, as published | 728 | 31.2 |  |  | 51.7 |  |  |\n");

    out.push_str(&by("model, GPU, engine, weights, * = suspect profile", &all, |point| {
        let row = &point.row;
        let kind = if row.layout.is_split() { ", disaggregated" } else { "" };
        let mark = if point.suspect { " *" } else { "" };
        format!("{}, {}, {}, {}{kind}{mark}", row.model, row.system, row.backend, row.precision)
    }));
    for (name, key) in FACTORS {
        out.push_str(&by(name, &trusted, key));
    }
    out
}

type Key = fn(&Point) -> String;

/// What might cause an error; over aggregated points with sound profiles.
const FACTORS: [(&str, Key); 7] = [
    ("engine", |point| point.row.backend.clone()),
    ("weights", |point| point.row.precision.clone()),
    ("GPU", |point| point.row.system.clone()),
    ("concurrency", |point| format!("{:4}", point.row.concurrency)),
    ("prompt x output", |point| format!("{:4} x {}", point.row.isl, point.row.osl)),
    ("GPUs, parallelism", |point| point.row.layout.name()),
    ("engine version measured, profile", |point| {
        let row = &point.row;
        format!("{} {}, {}", row.backend, row.version, point.profiles.split("_g").next().unwrap_or_default())
    }),
];

fn by(name: &str, points: &[&Point], key: impl Fn(&Point) -> String) -> String {
    let mut groups: IndexMap<String, Vec<&Point>> = IndexMap::new();
    for point in points {
        groups.entry(key(point)).or_default().push(point);
    }
    groups.sort_keys();
    let mut out = format!("\n{}", head(name));
    for (name, points) in &groups {
        out.push_str(&line(name, points));
    }
    out
}

fn head(name: &str) -> String {
    format!(
        "| {name} | n | TPOT MAPE % | median | signed | TTFT MAPE % | median | signed |\n\
         |---|---:|---:|---:|---:|---:|---:|---:|\n"
    )
}

fn line(name: &str, points: &[&Point]) -> String {
    if points.is_empty() {
        return String::new();
    }
    let tpot = Errors::of(points.iter().map(|point| point.tpot_error()));
    let ttft = Errors::of(points.iter().map(|point| point.ttft_error()));
    format!("| {} | {} | {} | {} |\n", name.trim(), points.len(), tpot.cells(), ttft.cells())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_keep_their_sign_where_it_matters() {
        let errors = Errors::of([-0.3, 0.1, 0.2, -0.4].into_iter());
        assert_eq!(errors.cells(), "25.0 | 25.0 | -10.0");
        assert_eq!(median(vec![3.0, 1.0, 2.0]), 2.0);
    }
}
