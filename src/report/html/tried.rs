//! What was tried in a search, and what its settings did.

use std::cmp::Ordering;

use indexmap::{IndexMap, IndexSet};
use serde_json::Value;

use super::chart::{Chart, Figure, Plot, Point, Series, Shape};
use super::parallel::{Parallel, ParallelLine};
use super::strips::{Strip, Strips};
use super::text::{figure, shown};
use crate::report::ranking::gpus_in_words;

/// Knobs with a figure of their own.
const KNOBS_SHOWN: usize = 12;
/// Knobs with an axis among the parallel ones.
const AXES_SHOWN: usize = 9;

/// Something with a score: a candidate, or a trial.
#[derive(Clone, Debug)]
pub(super) struct Tried<'r> {
    /// What it is called.
    pub(super) name: String,
    /// `candidates.json` and `trials.jsonl` have the same keys.
    pub(super) row: &'r Value,
}

impl Tried<'_> {
    fn score(&self) -> Option<f64> {
        self.row["score"].as_f64()
    }

    fn setting(&self, knob: &str) -> Option<&Value> {
        self.row["config"].get(knob).filter(|value| !value.is_null())
    }

    /// It in words.
    pub(super) fn description(&self, knobs: &[String]) -> String {
        let mut words = vec![self.name.clone()];
        match self.row["objectives"].as_object() {
            Some(objectives) => {
                words.extend(objectives.iter().map(|(name, value)| format!("{name} {}", shown(value))));
            }
            None => words.push(format!("score {}", shown(&self.row["score"]))),
        }
        words.push(gpus_in_words(self.row));
        let settings = knobs.iter().filter_map(|knob| Some((knob, self.setting(knob)?)));
        words.extend(settings.map(|(knob, value)| format!("{knob}: {}", shown(value))));
        words.join("\n")
    }

    /// Two figures of which more is better: those of a Pareto goal, or else speed for the user and throughput of a GPU.
    fn objectives(&self) -> Option<[(String, f64); 2]> {
        if let Some(objectives) = self.row["objectives"].as_object()
            && objectives.len() >= 2
        {
            let mut pairs =
                objectives.iter().filter_map(|(name, value)| Some((name.clone(), value.as_f64()?)));
            return Some([pairs.next()?, pairs.next()?]);
        }
        let metrics = &self.row["metrics"];
        let per_user = metrics["mean_output_token_throughput_per_user"].as_f64()?;
        // Those of a fleet that a planner changes are other than those that it starts with.
        let gpus = metrics["avg_gpu"].as_f64().or_else(|| self.row["used_gpus"].as_f64());
        let gpus = gpus.filter(|gpus| *gpus > 0.0)?;
        let per_gpu = metrics["output_throughput_tok_s"].as_f64()? / gpus;
        Some([("tokens/s of a user".into(), per_user), ("output tokens/s of a GPU".into(), per_gpu)])
    }

    fn point(&self, knobs: &[String]) -> Option<([String; 2], Point)> {
        let [(x_label, x), (y_label, y)] = self.objectives()?;
        Some(([x_label, y_label], Point { x, y, note: self.description(knobs) }))
    }
}

/// The candidates of a result.
pub(super) fn candidates(result: &Value) -> Vec<Tried<'_>> {
    let all = result["candidates"].as_array().into_iter().flatten();
    all.map(|row| Tried { name: format!("rank {}", shown(&row["rank"])), row }).collect()
}

/// The feasible trials, each configuration once.
pub(super) fn feasible(trials: &[Value]) -> Vec<Tried<'_>> {
    let counts = |row: &&Value| row["outcome"] == "feasible" && row["repeats"].is_null();
    let all = trials.iter().filter(counts);
    all.map(|row| Tried { name: format!("trial {}", shown(&row["trial"])), row }).collect()
}

/// Names of the settings that come with several values.
pub(super) fn varying_knobs(tried: &[Tried<'_>]) -> Vec<String> {
    let mut names = IndexSet::new();
    for one in tried {
        names.extend(one.row["config"].as_object().into_iter().flat_map(|config| config.keys().cloned()));
    }
    let varies = |name: &String| {
        let mut values = tried.iter().filter_map(|one| one.setting(name));
        values.next().is_some_and(|first| values.any(|value| value != first))
    };
    // GPUs have a column of their own.
    names.into_iter().filter(|name| name != "used_gpus" && varies(name)).collect()
}

/// The candidates between their objectives, with what else was tried.
pub(super) fn frontier(candidates: &[Tried<'_>], others: &[Tried<'_>], knobs: &[String]) -> Figure {
    let points = |tried: &[Tried<'_>]| -> Vec<([String; 2], Point)> {
        tried.iter().filter_map(|one| one.point(knobs)).collect()
    };
    let (own, others) = (points(candidates), points(others));
    let [x_label, y_label] = own.first().map(|(labels, _)| labels.clone()).unwrap_or_default();
    let of = |points: Vec<([String; 2], Point)>| -> Vec<Point> {
        points.into_iter().map(|(_, point)| point).collect()
    };
    let (own, others) = (of(own), of(others));
    let on_frontier = undominated(&own, is_less_better(&x_label), is_less_better(&y_label));
    let mut series = Vec::new();
    if !own.is_empty() {
        if !others.is_empty() {
            series.push(Series::new("other trials", Shape::Dots, others));
        }
        if on_frontier.len() < own.len() {
            series.push(Series::new("candidates", Shape::Dots, own));
        }
        series.push(Series::new("frontier", Shape::Frontier, on_frontier));
    }
    Figure {
        id: "frontier".into(),
        title: "Frontier".into(),
        caption: "Each dot is a deployment; no other beats one on the frontier in both directions (of latencies less is better). Rest \
                  the pointer on a dot to see it."
            .into(),
        chart: Chart::Plot(Plot { x_label, y_label, series, ..Plot::default() }),
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

/// Everything tried across its settings, one line each; a figure for each deployment mode, since their settings differ.
pub(super) fn parallel(tried: &[Tried<'_>], score_name: &str) -> Vec<Figure> {
    let mode = |one: &Tried<'_>| one.setting("deployment_mode").map_or_else(String::new, shown);
    let modes: IndexSet<String> = tried.iter().map(mode).collect();
    let figure = |name: &String| {
        let own: Vec<Tried<'_>> = tried.iter().filter(|one| mode(one) == *name).cloned().collect();
        let mut figure = parallel_of(&own, &varying_knobs(&own), score_name);
        if modes.len() > 1 {
            figure.id = format!("settings_{name}");
            figure.title = format!("All settings at once: {name}");
        }
        figure
    };
    modes.iter().map(figure).collect()
}

fn parallel_of(tried: &[Tried<'_>], knobs: &[String], score_name: &str) -> Figure {
    let axes: Vec<&String> = knobs.iter().take(AXES_SHOWN).collect();
    let value = |value: Option<&Value>| value.map_or_else(|| "-".into(), exact);
    let line = |one: &Tried<'_>| {
        one.score()?;
        let mut values: Vec<String> = axes.iter().map(|knob| value(one.setting(knob))).collect();
        values.push(value(Some(&one.row["score"])));
        Some(ParallelLine { values, note: one.description(knobs) })
    };
    let lines = if axes.is_empty() { Vec::new() } else { tried.iter().filter_map(line).collect() };
    Figure {
        id: "settings".into(),
        title: "All settings at once".into(),
        caption: format!(
            "Each line is a deployment that was tried, from setting to setting to its {score_name}; the best tenth, ten at most, stands \
             out. Rest the pointer on a line to see the deployment."
        ),
        chart: Chart::Parallel(Parallel {
            axes: axes.into_iter().cloned().chain([score_name.to_owned()]).collect(),
            lines,
        }),
    }
}

/// A value without rounding.
fn exact(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// For each setting, the scores with each of its values.
pub(super) fn effects(tried: &[Tried<'_>], knobs: &[String], score_name: &str) -> Vec<Figure> {
    let effect = |knob: &String| {
        let mut dots: IndexMap<String, Vec<(f64, String)>> = IndexMap::new();
        for one in tried {
            if let (Some(value), Some(score)) = (one.setting(knob), one.score()) {
                dots.entry(shown(value)).or_default().push((score, one.description(knobs)));
            }
        }
        dots.sort_by(|a, _, b, _| {
            natural(a).partial_cmp(&natural(b)).unwrap_or(Ordering::Equal).then(a.cmp(b))
        });
        Figure {
            id: format!("effect_{knob}"),
            title: knob.clone(),
            caption: "Every deployment that was tried, by its value of this setting; the best with each stands out.".into(),
            chart: Chart::Strips(Strips {
                x_label: score_name.into(),
                rows: dots.into_iter().map(|(name, dots)| Strip { name, dots }).collect(),
            }),
        }
    };
    // A setting with as many values as there are trials says nothing by its strips.
    let few = |knob: &&String| {
        let values: IndexSet<String> = tried.iter().filter_map(|one| one.setting(knob)).map(shown).collect();
        values.len() <= KNOBS_SHOWN
    };
    knobs.iter().filter(few).take(KNOBS_SHOWN).map(effect).collect()
}

/// A value by which numbers stand in their order and texts after them.
fn natural(text: &str) -> f64 {
    text.parse().unwrap_or(f64::INFINITY)
}

/// Scores in the order in which trials were suggested.
pub(super) fn best_so_far(trials: &[Value], score_name: &str) -> Figure {
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
        vec![Series::new("trials", Shape::Dots, all), Series::new("best so far", Shape::Steps, running)]
    };
    Figure {
        id: "best_so_far".into(),
        title: "Best so far".into(),
        caption: "Feasible trials in the order of suggestion.".into(),
        chart: Chart::Plot(Plot {
            x_label: "trial".into(),
            y_label: score_name.into(),
            series,
            ..Plot::default()
        }),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

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

    #[test]
    fn a_fleet_that_changes_is_drawn_by_its_average() {
        let row = |average: Value| {
            json!({"used_gpus": 32, "metrics": {
                "output_throughput_tok_s": 96.0, "mean_output_token_throughput_per_user": 7.0, "avg_gpu": average,
            }})
        };
        for (average, per_gpu) in [(json!(12.0), 8.0), (Value::Null, 3.0)] {
            let row = row(average);
            let [(_, x), (label, y)] = Tried { name: String::new(), row: &row }.objectives().unwrap();
            assert_eq!((x, &*label, y), (7.0, "output tokens/s of a GPU", per_gpu));
        }
    }

    #[test]
    fn only_settings_with_several_values_are_shown() {
        let rows = [
            json!({"score": 1.0, "used_gpus": 1, "config": {"mode": "agg", "tp": 1, "pp": 1, "used_gpus": 1}}),
            json!({"score": 3.0, "used_gpus": 2, "config": {"mode": "agg", "tp": 2, "pp": 1, "used_gpus": 2}}),
            json!({"score": 2.0, "used_gpus": 4, "config": {"mode": "disagg", "pp": null, "used_gpus": 4}}),
        ];
        let tried: Vec<Tried<'_>> = rows.iter().map(|row| Tried { name: String::new(), row }).collect();
        let knobs = varying_knobs(&tried);
        assert_eq!(knobs, ["mode", "tp"]);
        let strips = |figure: &Figure| -> Vec<(String, Vec<f64>)> {
            let Chart::Strips(strips) = &figure.chart else { panic!("is no strips") };
            let scores = |strip: &Strip| strip.dots.iter().map(|dot| dot.0).collect();
            strips.rows.iter().map(|strip| (strip.name.clone(), scores(strip))).collect()
        };
        let figures = effects(&tried, &knobs, "score");
        assert_eq!(
            strips(&figures[0]),
            [("agg".to_owned(), vec![1.0, 3.0]), ("disagg".to_owned(), vec![2.0])]
        );
        assert_eq!(strips(&figures[1]), [("1".to_owned(), vec![1.0]), ("2".to_owned(), vec![3.0])]);
        let Chart::Parallel(lines) = parallel_of(&tried, &knobs, "score").chart else {
            panic!("is parallel")
        };
        assert_eq!(lines.axes, ["mode", "tp", "score"]);
        assert_eq!(lines.lines[2].values, ["disagg", "-", "2.0"]);
    }
}
