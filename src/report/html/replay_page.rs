//! The page of a replay.

use serde_json::{Value, json};

use super::chart::{Bars, Chart, Figure, Plot, Point, Series, Shape};
use super::page::{Page, Section};
use super::text::{figure, shown};
use super::workers::workers;
use crate::report::summary::AT_ONCE;

/// Points of a curve of shares at most.
const CURVE_POINTS: usize = 400;
/// Stretches of a distribution.
const HISTOGRAM_BINS: usize = 40;
/// Ranks that get a line of their own; more are drawn as their least, mean and most.
const RANKS_SHOWN: usize = 8;
/// Slowest requests that are listed.
const SLOWEST: usize = 20;

/// What a replay has written.
#[derive(Clone, Debug, Default)]
pub struct ReplayFiles {
    /// `report.json`.
    pub report: Value,
    /// The rows of `requests.jsonl`.
    pub requests: Vec<Value>,
    /// `series.json`, if it is there.
    pub series: Option<Value>,
    /// The rows of `scaling.jsonl`, if there is a planner.
    pub ticks: Vec<Value>,
}

/// A measure of requests: key of its rows, name, key of its bound in the SLA.
const MEASURES: [(&str, &str, &str); 3] =
    [("ttft_ms", "TTFT", "ttft_ms"), ("tpot_ms", "TPOT", "itl_ms"), ("e2e_ms", "E2E", "e2e_ms")];

/// The page of a replay. `name` is what the reader knows it by.
pub fn replay_page(name: &str, files: &ReplayFiles) -> Page {
    let summary = &files.report["summary"];
    let scenario = &files.report["scenario"];
    Page {
        title: format!("Replay: {name}"),
        lead: lead(scenario, summary),
        tiles: tiles(&files.report),
        sections: vec![
            Section::Figures { heading: "Latency".into(), figures: latency(files) },
            Section::Figures { heading: "Over time".into(), figures: over_time(files) },
            Section::Figures { heading: "Each rank over time".into(), figures: ranks(files) },
            workers(&files.requests),
            planner(&files.ticks),
            slowest(&files.requests),
            all_figures(summary),
            Section::Details { heading: "Scenario".into(), text: pretty(scenario) },
        ],
    }
}

fn pretty(value: &Value) -> String {
    serde_json::to_string_pretty(value).unwrap_or_default()
}

fn lead(scenario: &Value, summary: &Value) -> String {
    let deployment = &scenario["deployment"];
    let pools: Vec<String> = ["agg", "prefill", "decode"]
        .into_iter()
        .filter(|pool| deployment[pool].is_object())
        .map(|pool| {
            let scheduler = deployment[pool]["engine"]["scheduler"]["policy"].as_str();
            let scheduler = scheduler.map_or_else(String::new, |name| format!(" scheduled by {name}"));
            format!("{} {pool} workers{scheduler}", shown(&deployment[pool]["workers"]))
        })
        .collect();
    let samples = |of: &str| summary[format!("num_{of}_samples")].as_u64();
    let at_once = samples("itl") > Some(0) && samples("output_token_throughput_per_user") == Some(0);
    let remark = if at_once { format!("; {AT_ONCE}") } else { String::new() };
    format!("{}, router {}{remark}", pools.join(" and "), shown(&deployment["router"]["policy"]))
}

fn tiles(report: &Value) -> Vec<(String, String, String)> {
    let summary = &report["summary"];
    let value = |key: &str| summary.get(key).and_then(Value::as_f64);
    let text = |key: &str| value(key).map_or("-".into(), figure);
    let mut tiles = vec![
        (
            "completed requests".into(),
            text("completed_requests"),
            format!(
                "of {}; {} rejected, {} unfinished",
                text("num_requests"),
                text("rejected_requests"),
                text("unfinished_requests")
            ),
        ),
        (
            "output tokens/s".into(),
            text("output_throughput_tok_s"),
            format!("{} requests/s", text("request_throughput_rps")),
        ),
    ];
    if let Some(attainment) = value("attainment") {
        let goodput = format!("goodput {} tokens/s", text("goodput_output_throughput_tok_s"));
        tiles.push(("SLA attainment".into(), format!("{} %", figure(attainment * 100.0)), goodput));
    }
    for (name, key) in [("TTFT", "ttft_ms"), ("TPOT", "tpot_ms"), ("E2E", "e2e_latency_ms")] {
        let median = format!("{} ms", text(&format!("median_{key}")));
        let rest = format!("mean {}, p99 {}", text(&format!("mean_{key}")), text(&format!("p99_{key}")));
        tiles.push((format!("{name}, median"), median, rest));
    }
    let reuse =
        value("prefix_cache_reused_ratio").map_or("-".into(), |ratio| format!("{} %", figure(ratio * 100.0)));
    tiles.push(("prompt tokens reused".into(), reuse, String::new()));
    // A fleet that does not change has as many all the time.
    let peak = report["scaling"].as_object().map(|_| format!(", {} at the peak", text("peak_gpus")));
    let peak = peak.unwrap_or_default();
    let gpus = format!("{} GPUs on average{peak}", text("avg_gpu"));
    tiles.push(("GPU hours".into(), text("gpu_hours"), gpus));
    tiles
}

/// The values that rows have under a key, ascending.
fn sorted(requests: &[Value], key: &str) -> Vec<f64> {
    let mut values: Vec<f64> = requests.iter().filter_map(|row| row[key].as_f64()).collect();
    values.sort_by(f64::total_cmp);
    values
}

fn latency(files: &ReplayFiles) -> Vec<Figure> {
    let sla = &files.report["scenario"]["sla"];
    let mut figures = Vec::new();
    for (key, name, bound) in MEASURES {
        let values = sorted(&files.requests, key);
        let bound = sla[bound].as_f64();
        figures.push(histogram(key, name, &values, bound));
        figures.push(attainment(key, name, &values, files.requests.len(), bound));
    }
    figures.push(phases(&files.requests));
    figures
}

fn rule(bound: Option<f64>) -> Vec<(f64, String)> {
    bound.map(|bound| (bound, format!("SLA {} ms", figure(bound)))).into_iter().collect()
}

fn histogram(key: &str, name: &str, values: &[f64], bound: Option<f64>) -> Figure {
    let most = values.get((values.len() * 99) / 100).copied().unwrap_or(0.0).max(f64::MIN_POSITIVE);
    let width = most / HISTOGRAM_BINS as f64;
    let mut counts = [0_u32; HISTOGRAM_BINS];
    let mut beyond = 0;
    for value in values {
        match counts.get_mut((value / width) as usize) {
            Some(count) => *count += 1,
            None => beyond += 1,
        }
    }
    let mut points: Vec<Point> = counts
        .iter()
        .enumerate()
        .map(|(bin, count)| Point::new(bin as f64 * width, f64::from(*count)))
        .collect();
    if let Some(last) = counts.last() {
        points.push(Point::new(most, f64::from(*last)));
    }
    let series = if values.is_empty() { vec![] } else { vec![Series::new("requests", Shape::Steps, points)] };
    Figure {
        id: format!("{key}_distribution"),
        title: format!("{name}: distribution"),
        caption: format!("Requests by {name}, up to the 99th percentile; {beyond} lie beyond it."),
        chart: Chart::Plot(Plot {
            x_label: format!("{name} in ms"),
            y_label: "requests".into(),
            series,
            rules: rule(bound.filter(|bound| *bound <= most)),
            ..Plot::default()
        }),
    }
}

fn attainment(key: &str, name: &str, values: &[f64], arrived: usize, bound: Option<f64>) -> Figure {
    let step = values.len().div_ceil(CURVE_POINTS).max(1);
    let last = values.len().saturating_sub(1);
    let share = |index: usize| (index + 1) as f64 * 100.0 / arrived as f64;
    let points = (0..values.len())
        .filter(|index| index % step == 0 || *index == last)
        .map(|index| Point::new(values[index], share(index)))
        .collect();
    let met = bound.map(|bound| values.partition_point(|value| *value <= bound));
    let met =
        met.map(|met| format!(" {} % meet the bound.", figure(met as f64 * 100.0 / arrived.max(1) as f64)));
    Figure {
        id: format!("{key}_attainment"),
        title: format!("{name}: attainment"),
        caption: format!(
            "Share of all requests that arrived whose {name} is at most so long; requests without one count as \
             missing it.{}",
            met.unwrap_or_default()
        ),
        chart: Chart::Plot(Plot {
            x_label: format!("{name} in ms (logarithmic)"),
            y_label: "% of requests".into(),
            x_log: true,
            y_max: Some(100.0),
            series: vec![Series::new("requests", Shape::Steps, points)],
            rules: rule(bound),
            levels: Vec::new(),
        }),
    }
}

/// Mean time that requests spent in each stage of their life.
fn phases(requests: &[Value]) -> Figure {
    let stages = [
        ("in front of the router", "arrival_ms", "dispatched_ms"),
        ("in the queue", "dispatched_ms", "first_admit_ms"),
        ("to the first token", "first_admit_ms", "first_token_ms"),
        ("generating", "first_token_ms", "terminal_ms"),
    ];
    let completed: Vec<&Value> = requests.iter().filter(|row| row["status"] == "completed").collect();
    let mean = |from: &str, to: &str| {
        let spans: Vec<f64> =
            completed.iter().filter_map(|row| Some(row[to].as_f64()? - row[from].as_f64()?)).collect();
        if spans.is_empty() { 0.0 } else { spans.iter().sum::<f64>() / spans.len() as f64 }
    };
    let bars = if completed.is_empty() {
        Vec::new()
    } else {
        stages.iter().map(|(name, from, to)| ((*name).to_owned(), mean(from, to).max(0.0))).collect()
    };
    Figure {
        id: "phases".into(),
        title: "Where the time went".into(),
        caption: "Mean over completed requests.".into(),
        chart: Chart::Bars(Bars { x_label: "ms".into(), bars }),
    }
}

/// A list of the series, with times in seconds.
fn line(series: &Value, name: &str, values: &Value) -> Series {
    let width_s = series["bin_ms"].as_f64().unwrap_or(0.0) / 1e3;
    let values = values.as_array().map(Vec::as_slice).unwrap_or_default();
    let points = values
        .iter()
        .enumerate()
        .map(|(bin, value)| Point::new((bin as f64 + 0.5) * width_s, value.as_f64().unwrap_or(0.0)))
        .collect();
    Series::new(name, Shape::Line, points)
}

fn timed(id: &str, title: &str, caption: &str, y_label: &str, series: Vec<Series>) -> Figure {
    Figure {
        id: id.into(),
        title: title.into(),
        caption: caption.into(),
        chart: Chart::Plot(Plot {
            x_label: "time in s".into(),
            y_label: y_label.into(),
            series,
            ..Plot::default()
        }),
    }
}

fn over_time(files: &ReplayFiles) -> Vec<Figure> {
    let Some(series) = &files.series else { return Vec::new() };
    let fleet = &series["fleet"];
    let fleet_line = |name: &str, key: &str| line(series, name, &fleet[key]);
    let pools: Vec<&Value> =
        series["pools"].as_array().map(|pools| pools.iter().collect()).unwrap_or_default();
    let workers: Vec<Series> =
        pools.iter().map(|pool| line(series, &shown(&pool["role"]), &pool["workers"])).collect();
    let mut gpus: Vec<Point> = Vec::new();
    for (pool, workers) in pools.iter().zip(&workers) {
        let per_worker = pool["gpus_per_worker"].as_f64().unwrap_or(0.0);
        if gpus.is_empty() {
            gpus = workers.points.iter().map(|point| Point::new(point.x, 0.0)).collect();
        }
        for (total, point) in gpus.iter_mut().zip(&workers.points) {
            total.y += point.y * per_worker;
        }
    }
    let mut waiting = fleet_line("waiting", "in_flight");
    waiting.points.iter_mut().for_each(|point| point.y = 0.0);
    for rank in series["ranks"].as_array().into_iter().flatten() {
        for (point, value) in waiting.points.iter_mut().zip(rank["waiting"].as_array().into_iter().flatten())
        {
            point.y += value.as_f64().unwrap_or(0.0);
        }
    }
    vec![
        timed(
            "throughput",
            "Throughput",
            "Tokens generated per second; those of a request are spread evenly from its first to its last.",
            "tokens/s",
            vec![fleet_line("generated", "output_tokens_per_s")],
        ),
        timed(
            "prefill",
            "Prompt work",
            "Prompt tokens computed per second, recomputation included.",
            "tokens/s",
            vec![fleet_line("computed", "prefill_tokens_per_s")],
        ),
        timed(
            "requests",
            "Requests",
            "Arrivals and completions per second.",
            "requests/s",
            vec![fleet_line("arrived", "arrivals_per_s"), fleet_line("completed", "completions_per_s")],
        ),
        timed(
            "queue",
            "Requests in the fleet",
            "All that have arrived and not ended, and those of them that wait on a worker.",
            "requests",
            vec![fleet_line("in flight", "in_flight"), waiting],
        ),
        timed("workers", "Workers", "Workers that start, serve or drain.", "workers", workers),
        timed("gpus", "GPUs", "GPUs of all workers.", "GPUs", vec![Series::new("GPUs", Shape::Line, gpus)]),
    ]
}

fn ranks(files: &ReplayFiles) -> Vec<Figure> {
    let Some(series) = &files.series else { return Vec::new() };
    let ranks: Vec<&Value> =
        series["ranks"].as_array().map(|ranks| ranks.iter().collect()).unwrap_or_default();
    let of = |key: &str| -> Vec<Series> {
        let lines: Vec<Series> = ranks
            .iter()
            .map(|rank| {
                line(series, &format!("{} {}", shown(&rank["role"]), shown(&rank["rank"])), &rank[key])
            })
            .collect();
        if lines.len() <= RANKS_SHOWN { lines } else { summarised(&lines) }
    };
    vec![
        timed(
            "busy",
            "Busy",
            "Share of the time with a pass under way, in percent.",
            "%",
            percent(of("busy")),
        ),
        timed("batch", "Batch size", "Requests in the passes of a rank.", "requests", of("running")),
        timed("rank_queue", "Waiting", "Requests waiting on a rank.", "requests", of("waiting")),
        kv_use(&files.report, of("kv_blocks")),
    ]
}

fn kv_use(report: &Value, blocks: Vec<Series>) -> Figure {
    let caption = "Blocks that requests hold, of those that a rank has.";
    let mut figure = timed("kv_blocks", "KV use", caption, "blocks", blocks);
    if let Chart::Plot(plot) = &mut figure.chart {
        plot.levels = capacities(report);
    }
    figure
}

/// KV blocks of a rank in each pool; once where the pools have as many.
fn capacities(report: &Value) -> Vec<(f64, String)> {
    let mut levels: Vec<(f64, String)> = Vec::new();
    for pool in ["agg", "prefill", "decode"] {
        let estimated = &report["capacity"][pool]["num_gpu_blocks"];
        let pinned = &report["scenario"]["deployment"][pool]["engine"]["num_gpu_blocks"];
        let Some(blocks) = estimated.as_f64().or(pinned.as_f64()) else { continue };
        match levels.iter_mut().find(|level| level.0 == blocks) {
            Some(same) => same.1 = format!("capacity: {blocks}"),
            None if pool == "agg" => levels.push((blocks, format!("capacity: {blocks}"))),
            None => levels.push((blocks, format!("capacity of {pool}: {blocks}"))),
        }
    }
    levels
}

fn percent(mut lines: Vec<Series>) -> Vec<Series> {
    for point in lines.iter_mut().flat_map(|line| &mut line.points) {
        point.y *= 100.0;
    }
    lines
}

/// Least, mean and most of many lines.
fn summarised(lines: &[Series]) -> Vec<Series> {
    let count = lines.len() as f64;
    let places: Vec<f64> = lines[0].points.iter().map(|point| point.x).collect();
    let at = |bin: usize| lines.iter().map(move |line| line.points[bin].y);
    let series = |name: &str, value: &dyn Fn(usize) -> f64| {
        let points = places.iter().enumerate().map(|(bin, x)| Point::new(*x, value(bin))).collect();
        Series::new(name, Shape::Line, points)
    };
    vec![
        series("mean of the ranks", &|bin| at(bin).sum::<f64>() / count),
        series("least", &|bin| at(bin).fold(f64::INFINITY, f64::min)),
        series("most", &|bin| at(bin).fold(0.0, f64::max)),
    ]
}

/// What the planner saw and decided, tick by tick.
fn planner(ticks: &[Value]) -> Section {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let joined = |values: Vec<String>| Value::from(values.join(", "));
    let row = |tick: &Value| {
        let pools = list(&tick["pools"]);
        let of = |key: &str| {
            joined(
                pools.iter().map(|pool| format!("{} {}", shown(&pool["pool"]), shown(&pool[key]))).collect(),
            )
        };
        let proposals = list(&tick["proposals"]).into_iter().map(|proposal| {
            let targets: Vec<String> = list(&proposal["targets"]).iter().map(shown).collect();
            format!("{}: {} ({})", shown(&proposal["by"]), targets.join("/"), shown(&proposal["reason"]))
        });
        let decided: Vec<String> = list(&tick["decided"]).iter().map(shown).collect();
        vec![
            tick["tick"].clone(),
            json!(tick["at_ms"].as_f64().unwrap_or(0.0) / 1e3),
            of("active"),
            of("starting"),
            of("queued_requests"),
            joined(proposals.collect()),
            tick["rule"].clone(),
            joined(decided),
        ]
    };
    Section::Table {
        heading: "Planner".into(),
        filter: true,
        columns: ["tick", "time in s", "active", "starting", "queued", "proposals", "rule", "decided"]
            .map(str::to_owned)
            .to_vec(),
        rows: ticks.iter().map(row).collect(),
    }
}

fn slowest(requests: &[Value]) -> Section {
    let columns = [
        "request_id",
        "status",
        "arrival_ms",
        "ttft_ms",
        "tpot_ms",
        "e2e_ms",
        "input_length",
        "output_length",
        "reused_input_tokens",
        "prefill_worker",
        "decode_worker",
        "admissions",
    ];
    let mut rows: Vec<&Value> = requests.iter().filter(|row| row["e2e_ms"].is_number()).collect();
    let time = |row: &&Value| row["e2e_ms"].as_f64().unwrap_or(0.0);
    rows.sort_by(|a, b| time(b).total_cmp(&time(a)));
    Section::Table {
        heading: format!("The {} slowest requests", rows.len().min(SLOWEST)),
        filter: false,
        columns: columns.map(str::to_owned).to_vec(),
        rows: rows
            .iter()
            .take(SLOWEST)
            .map(|row| columns.iter().map(|column| row[*column].clone()).collect())
            .collect(),
    }
}

fn all_figures(summary: &Value) -> Section {
    let rows =
        summary.as_object().into_iter().flatten().map(|(name, value)| vec![json!(name), value.clone()]);
    Section::Table {
        heading: "All figures".into(),
        filter: true,
        columns: vec!["figure".into(), "value".into()],
        rows: rows.collect(),
    }
}
