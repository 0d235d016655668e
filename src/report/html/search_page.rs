//! The page of a search.

use std::cmp::Ordering;

use indexmap::{IndexMap, IndexSet};
use serde_json::{Value, json};

use super::chart::{Bars, Chart, Figure, Plot, Point, Series, Shape};
use super::page::{Page, Section};
use super::text::{figure, shown};

/// Knobs with a figure of their own.
const KNOBS_SHOWN: usize = 12;

/// Figures of candidates that the ranking shows if they have them.
const METRICS: [&str; 9] = [
    "output_throughput_tok_s",
    "goodput_output_throughput_tok_s",
    "attainment",
    "mean_ttft_ms",
    "p99_ttft_ms",
    "mean_tpot_ms",
    "mean_e2e_latency_ms",
    "mean_output_token_throughput_per_user",
    "gpu_hours",
];

/// What a search has written.
#[derive(Clone, Debug, Default)]
pub struct SearchFiles {
    /// `candidates.json`.
    pub result: Value,
    /// The lines of `trials.jsonl`, if it is there.
    pub trials: Vec<Value>,
}

/// The page of a search. `name` is what the reader knows it by.
pub fn search_page(name: &str, files: &SearchFiles) -> Page {
    let candidates = list(&files.result["candidates"]);
    let knobs = varying_knobs(candidates);
    let best = candidates.first();
    let mut sections = vec![
        ranking(candidates, &knobs),
        Section::Figures {
            heading: "Candidates".into(),
            figures: vec![frontier(candidates, &knobs), best_so_far(&files.trials)],
        },
        Section::Figures { heading: "Effect of each setting".into(), figures: effects(candidates, &knobs) },
        Section::Figures { heading: "What did not count".into(), figures: vec![rejected(&files.result)] },
        rejected_table(&files.result),
        left_out(&files.result),
    ];
    if let Some(best) = best {
        sections.push(Section::Details {
            heading: "Settings of the best candidate".into(),
            text: pretty(&best["config"]),
        });
        sections.push(Section::Details { heading: "Its scenario".into(), text: pretty(&best["scenario"]) });
    }
    Page {
        title: format!("Search: {name}"),
        lead: lead(&files.result),
        tiles: tiles(&files.result, best),
        sections,
    }
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

fn pretty(value: &Value) -> String {
    serde_json::to_string_pretty(value).unwrap_or_default()
}

fn lead(result: &Value) -> String {
    let goal = &result["goal"];
    let what = goal.get("target").or_else(|| goal.get("objective")).unwrap_or(goal);
    let certified = if result["certified_optimum"] == true {
        "; every point was evaluated, so rank 1 is the optimum"
    } else {
        ""
    };
    format!("goal: {}{certified}", shown(what))
}

fn tiles(result: &Value, best: Option<&Value>) -> Vec<(String, String, String)> {
    let tally = &result["tally"];
    let count = |key: &str| shown(&tally[key]);
    let mut tiles = vec![(
        "feasible trials".into(),
        count("feasible"),
        format!(
            "{} infeasible, {} failed, {} unsupported, {} repeated",
            count("infeasible"),
            count("failed"),
            count("unsupported"),
            count("cache_hit")
        ),
    )];
    if let Some(best) = best {
        let metric = |key: &str| best["metrics"][key].as_f64().map(figure);
        tiles.push(("best score".into(), shown(&best["score"]), "higher is better".into()));
        tiles.push(("its GPUs".into(), shown(&best["used_gpus"]), shown(&best["config"]["deployment_mode"])));
        for (name, key) in [
            ("output tokens/s", "output_throughput_tok_s"),
            ("mean TTFT in ms", "mean_ttft_ms"),
            ("mean TPOT in ms", "mean_tpot_ms"),
        ] {
            tiles.extend(metric(key).map(|value| (name.to_owned(), value, String::new())));
        }
        let router = &best["scenario"]["deployment"]["router"]["policy"];
        let planner = &best["scenario"]["deployment"]["planner"];
        let planner = planner.get("policy").map_or_else(|| "none".into(), shown);
        tiles.push(("router".into(), shown(router), format!("planner: {planner}")));
    }
    tiles
}

/// Names of the settings in which candidates differ.
fn varying_knobs(candidates: &[Value]) -> Vec<String> {
    let mut names = IndexSet::new();
    for candidate in candidates {
        names.extend(candidate["config"].as_object().into_iter().flat_map(|config| config.keys().cloned()));
    }
    let differs = |name: &String| {
        candidates.iter().any(|candidate| candidate["config"].get(name) != candidates[0]["config"].get(name))
    };
    // GPUs have a column of their own.
    names.into_iter().filter(|name| name != "used_gpus" && differs(name)).collect()
}

/// A candidate in words.
fn description(candidate: &Value, knobs: &[String]) -> String {
    let mut words = vec![
        format!("rank {}", shown(&candidate["rank"])),
        format!("score {}", shown(&candidate["score"])),
        format!("{} GPUs", shown(&candidate["used_gpus"])),
    ];
    let settings = knobs.iter().filter_map(|knob| Some((knob, candidate["config"].get(knob)?)));
    words.extend(
        settings
            .filter(|(_, value)| !value.is_null())
            .map(|(knob, value)| format!("{knob}: {}", shown(value))),
    );
    words.join("\n")
}

fn ranking(candidates: &[Value], knobs: &[String]) -> Section {
    let metrics: Vec<&str> = METRICS
        .into_iter()
        .filter(|metric| candidates.iter().any(|candidate| candidate["metrics"][*metric].is_number()))
        .collect();
    let columns = ["rank", "score", "used_gpus"].into_iter().chain(knobs.iter().map(String::as_str));
    let row = |candidate: &Value| {
        let place = ["rank", "score", "used_gpus"].map(|key| candidate[key].clone());
        let settings = knobs.iter().map(|knob| candidate["config"].get(knob).cloned().unwrap_or_default());
        let figures = metrics.iter().map(|metric| candidate["metrics"][*metric].clone());
        place.into_iter().chain(settings).chain(figures).collect()
    };
    Section::Table {
        heading: "Ranking".into(),
        filter: true,
        columns: columns.chain(metrics.iter().copied()).map(str::to_owned).collect(),
        rows: candidates.iter().map(row).collect(),
    }
}

/// Two figures of each candidate of which more is better: those of a Pareto goal, or else speed for the user and throughput
/// of a GPU.
fn objectives(candidate: &Value) -> Option<[(String, f64); 2]> {
    if let Some(objectives) = candidate["objectives"].as_object()
        && objectives.len() >= 2
    {
        let mut pairs = objectives.iter().filter_map(|(name, value)| Some((name.clone(), value.as_f64()?)));
        return Some([pairs.next()?, pairs.next()?]);
    }
    let metrics = &candidate["metrics"];
    let per_user = metrics["mean_output_token_throughput_per_user"].as_f64()?;
    let gpus = candidate["used_gpus"].as_f64().filter(|gpus| *gpus > 0.0)?;
    let per_gpu = metrics["output_throughput_tok_s"].as_f64()? / gpus;
    Some([("tokens/s of a user".into(), per_user), ("output tokens/s of a GPU".into(), per_gpu)])
}

fn frontier(candidates: &[Value], knobs: &[String]) -> Figure {
    let mut labels = (String::new(), String::new());
    let mut points = Vec::new();
    for candidate in candidates {
        if let Some([(x_label, x), (y_label, y)]) = objectives(candidate) {
            labels = (x_label, y_label);
            points.push(Point { x, y, note: description(candidate, knobs) });
        }
    }
    let on_frontier = undominated(&points, is_less_better(&labels.0), is_less_better(&labels.1));
    let series = if points.is_empty() {
        Vec::new()
    } else {
        vec![
            Series::new("candidates", Shape::Dots, points),
            Series::new("frontier", Shape::Frontier, on_frontier),
        ]
    };
    Figure {
        id: "frontier".into(),
        title: "Frontier".into(),
        caption: "Each dot is a candidate; no other beats one on the frontier in both directions (of latencies less is better). Rest the pointer \
                  on a dot to see the deployment."
            .into(),
        chart: Chart::Plot(Plot { x_label: labels.0, y_label: labels.1, series, ..Plot::default() }),
    }
}

/// Whether of this objective less is better.
fn is_less_better(objective: &str) -> bool {
    objective.contains("latency") || objective.ends_with("_ms")
}

/// The points that no other beats in both directions, from the best in the first.
fn undominated(points: &[Point], x_less: bool, y_less: bool) -> Vec<Point> {
    let worth = |value: f64, less: bool| if less { -value } else { value };
    let mut points = points.to_vec();
    points.sort_by(|a, b| {
        let (x, y) = ((worth(a.x, x_less), worth(b.x, x_less)), (worth(a.y, y_less), worth(b.y, y_less)));
        x.1.total_cmp(&x.0).then(y.1.total_cmp(&y.0))
    });
    let mut best = f64::NEG_INFINITY;
    points.retain(|point| {
        let own = worth(point.y, y_less);
        let better = own > best;
        best = best.max(own);
        better
    });
    points
}

fn best_so_far(trials: &[Value]) -> Figure {
    let mut best = f64::NEG_INFINITY;
    let (mut all, mut running) = (Vec::new(), Vec::new());
    for trial in trials {
        let (Some(number), Some(score)) = (trial["trial"].as_f64(), trial["score"].as_f64()) else {
            continue;
        };
        if trial["outcome"] == "feasible" {
            all.push(Point { x: number, y: score, note: format!("trial {number}: {}", figure(score)) });
            best = best.max(score);
            running.push(Point::new(number, best));
        }
    }
    let series = if all.is_empty() {
        Vec::new()
    } else {
        vec![Series::new("score", Shape::Dots, all), Series::new("best so far", Shape::Steps, running)]
    };
    Figure {
        id: "best_so_far".into(),
        title: "Best so far".into(),
        caption: "Scores of feasible trials in the order of suggestion.".into(),
        chart: Chart::Plot(Plot {
            x_label: "trial".into(),
            y_label: "score".into(),
            series,
            ..Plot::default()
        }),
    }
}

/// For each setting, the best score with each of its values.
fn effects(candidates: &[Value], knobs: &[String]) -> Vec<Figure> {
    let effect = |knob: &String| {
        let mut best: IndexMap<String, f64> = IndexMap::new();
        for candidate in candidates {
            let (Some(value), Some(score)) = (candidate["config"].get(knob), candidate["score"].as_f64())
            else {
                continue;
            };
            let entry = best.entry(shown(value)).or_insert(score);
            *entry = entry.max(score);
        }
        best.sort_by(|a, _, b, _| {
            natural(a).partial_cmp(&natural(b)).unwrap_or(Ordering::Equal).then(a.cmp(b))
        });
        Figure {
            id: format!("effect_{knob}"),
            title: knob.clone(),
            caption: "Best score among the candidates with this value.".into(),
            chart: Chart::Bars(Bars { x_label: "score".into(), bars: best.into_iter().collect() }),
        }
    };
    knobs.iter().take(KNOBS_SHOWN).map(effect).collect()
}

/// A value by which numbers stand in their order and texts after them.
fn natural(text: &str) -> f64 {
    text.parse().unwrap_or(f64::INFINITY)
}

/// Reasons with the number of trials, the most frequent first.
fn reasons(result: &Value) -> Vec<(String, String, usize)> {
    let mut counts: IndexMap<(String, String), usize> = IndexMap::new();
    for rejected in list(&result["rejected"]) {
        *counts.entry((shown(&rejected["outcome"]), shown(&rejected["reason"]))).or_default() += 1;
    }
    counts.sort_by(|_, a, _, b| b.cmp(a));
    counts.into_iter().map(|((outcome, reason), count)| (outcome, reason, count)).collect()
}

fn rejected(result: &Value) -> Figure {
    let bars =
        reasons(result).into_iter().take(20).map(|(_, reason, count)| (reason, count as f64)).collect();
    Figure {
        id: "rejected".into(),
        title: "Trials that do not count, by reason".into(),
        caption: String::new(),
        chart: Chart::Bars(Bars { x_label: "trials".into(), bars }),
    }
}

/// What was left out before the search began.
fn left_out(result: &Value) -> Section {
    let skipped = list(&result["skipped"]);
    let columns: Vec<String> = skipped
        .first()
        .and_then(Value::as_object)
        .into_iter()
        .flat_map(|fields| fields.keys().cloned())
        .collect();
    let row = |one: &Value| columns.iter().map(|column| one[column].clone()).collect();
    Section::Table {
        heading: "Left out beforehand".into(),
        filter: false,
        rows: skipped.iter().map(row).collect(),
        columns,
    }
}

fn rejected_table(result: &Value) -> Section {
    let rows = reasons(result)
        .into_iter()
        .map(|(outcome, reason, count)| vec![json!(count), json!(outcome), json!(reason)]);
    Section::Table {
        heading: "Reasons in full".into(),
        filter: false,
        columns: ["trials", "outcome", "reason"].map(str::to_owned).to_vec(),
        rows: rows.collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_frontier_knows_which_way_is_better() {
        let points =
            [(1.0, 5.0), (2.0, 4.0), (2.0, 6.0), (3.0, 1.0), (3.0, 7.0)].map(|(x, y)| Point::new(x, y));
        let places = |x_less, y_less| -> Vec<(f64, f64)> {
            undominated(&points, x_less, y_less).iter().map(|point| (point.x, point.y)).collect()
        };
        assert_eq!(places(false, false), [(3.0, 7.0)]);
        assert_eq!(places(false, true), [(3.0, 1.0)]);
        assert_eq!(places(true, false), [(1.0, 5.0), (2.0, 6.0), (3.0, 7.0)]);
        assert!(is_less_better("e2e_latency") && !is_less_better("throughput_per_gpu"));
    }
}
