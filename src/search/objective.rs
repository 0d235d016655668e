//! What a goal reads from a replay: objective values, scores, and the bar a candidate has to clear.

use serde_json::{Map, Value};

use crate::config::search::{OptimizationGoal, OptimizationTarget};
use crate::report::summary::AT_ONCE;

/// Every figure of a replay's summary by name. Figures without a sample are null.
pub type Metrics = Map<String, Value>;

/// A figure of a summary, if it is there and has a value.
pub fn metric(metrics: &Metrics, name: &str) -> Option<f64> {
    metrics.get(name)?.as_f64()
}

/// Which way an objective gets better.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// More is better.
    Maximise,
    /// Less is better.
    Minimise,
}

/// Which way a single objective gets better.
///
/// # Panics
/// For a Pareto goal, which has no direction of its own.
pub fn direction(target: OptimizationTarget) -> Direction {
    match target {
        OptimizationTarget::E2eLatency => Direction::Minimise,
        OptimizationTarget::Pareto => panic!("a Pareto goal has one direction per objective"),
        _ => Direction::Maximise,
    }
}

/// The summary figure behind an objective, and whether it is divided by the mean number of GPUs.
fn source(target: OptimizationTarget) -> (&'static str, bool) {
    match target {
        OptimizationTarget::Throughput => ("output_throughput_tok_s", false),
        OptimizationTarget::ThroughputPerGpu => ("output_throughput_tok_s", true),
        OptimizationTarget::ThroughputPerUser => ("mean_output_token_throughput_per_user", false),
        OptimizationTarget::E2eLatency => ("mean_e2e_latency_ms", false),
        OptimizationTarget::Goodput => ("goodput_output_throughput_tok_s", false),
        OptimizationTarget::GoodputPerGpu => ("goodput_output_throughput_tok_s", true),
        OptimizationTarget::Pareto => panic!("a Pareto goal has no value of its own"),
    }
}

/// The value of a single objective, in its own units.
///
/// # Errors
/// The name of the figure that the summary lacks.
///
/// # Panics
/// For a Pareto goal, which is several objectives.
pub fn objective_value(target: OptimizationTarget, metrics: &Metrics) -> Result<f64, &'static str> {
    let (name, per_gpu) = source(target);
    let value = metric(metrics, name).ok_or(name)?;
    if !per_gpu {
        return Ok(value);
    }
    let gpus = average_gpus(metrics);
    Ok(if gpus > 0.0 { value / gpus } else { 0.0 })
}

/// GPUs in use on average: GPU hours by hours, 0 when either is not positive.
fn average_gpus(metrics: &Metrics) -> f64 {
    const MS_PER_HOUR: f64 = 3_600_000.0;
    let gpu_hours = metric(metrics, "gpu_hours").unwrap_or(0.0);
    let duration_ms = metric(metrics, "duration_ms").unwrap_or(0.0);
    if gpu_hours > 0.0 && duration_ms > 0.0 { gpu_hours / (duration_ms / MS_PER_HOUR) } else { 0.0 }
}

/// An objective's value signed so that more is better.
pub fn score(target: OptimizationTarget, value: f64) -> f64 {
    match direction(target) {
        Direction::Maximise => value,
        Direction::Minimise => -value,
    }
}

/// The name of an objective, as a configuration writes it.
pub fn objective_name(target: OptimizationTarget) -> String {
    match serde_json::to_value(target) {
        Ok(Value::String(name)) => name,
        _ => unreachable!("an objective is written as its name"),
    }
}

/// What a goal reads from the replay of a candidate that counts.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Worth {
    /// Signed so that higher is better; for a Pareto goal the first objective, as it is.
    pub(super) score: f64,
    /// One number per objective, signed so that higher is better.
    pub(super) signed: Box<[f64]>,
    /// The objectives of a Pareto goal by name, as they are.
    pub(super) objectives: Option<Map<String, Value>>,
    /// By how much its attainment clears the goal's bar, below 0 if it does not; `None` without a bar.
    pub(super) margin: Option<f64>,
}

/// How a measured candidate stands before the goal.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Verdict {
    /// It counts.
    Feasible(Worth),
    /// It misses a bar that the goal sets.
    BelowBar(Worth, String),
    /// The replay lacks what the goal reads.
    Unscored(String),
}

/// Scores a candidate.
pub(super) fn judge(goal: &OptimizationGoal, metrics: &Metrics) -> Verdict {
    let mut values = Vec::new();
    for &target in goal.objectives() {
        match objective_value(target, metrics) {
            Ok(value) => values.push((target, value)),
            Err(name) => return Verdict::Unscored(lacking(name, metrics)),
        }
    }
    let mut margin = None;
    if let Some(minimum) = goal.min_attainment {
        match metric(metrics, "attainment") {
            None => return Verdict::Unscored(lacking("attainment", metrics)),
            Some(attainment) if attainment < minimum => {
                let margin = Some(attainment - minimum);
                let reason = format!("attainment {attainment} is below goal.min_attainment {minimum}");
                return Verdict::BelowBar(worth(goal, &values, margin), reason);
            }
            Some(attainment) => margin = Some(attainment - minimum),
        }
    }
    Verdict::Feasible(worth(goal, &values, margin))
}

fn lacking(name: &str, metrics: &Metrics) -> String {
    let completed = metric(metrics, "completed_requests");
    let has_gaps = metric(metrics, "num_itl_samples").is_some_and(|gaps| gaps > 0.0);
    let why = if completed == Some(0.0) {
        ": no request completed".to_owned()
    } else if has_gaps && name == source(OptimizationTarget::ThroughputPerUser).0 {
        format!(": {AT_ONCE}")
    } else {
        String::new()
    };
    format!("replay report lacks {name}{why}")
}

fn worth(goal: &OptimizationGoal, values: &[(OptimizationTarget, f64)], margin: Option<f64>) -> Worth {
    let signed: Box<[f64]> = values.iter().map(|&(target, value)| score(target, value)).collect();
    let named =
        || values.iter().map(|&(target, value)| (objective_name(target), Value::from(value))).collect();
    if goal.is_pareto() {
        Worth { score: values[0].1, signed, objectives: Some(named()), margin }
    } else {
        Worth { score: signed[0], signed, objectives: None, margin }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn metrics(value: &Value) -> Metrics {
        value.as_object().unwrap().clone()
    }

    fn goal(target: OptimizationTarget, min_attainment: Option<f64>) -> OptimizationGoal {
        OptimizationGoal { target, sla: None, pareto_objectives: Vec::new(), min_attainment }
    }

    #[test]
    fn per_gpu_objectives_divide_by_the_average_number_of_gpus() {
        let metrics = metrics(&json!({
            "output_throughput_tok_s": 1200.0, "gpu_hours": 2.0, "duration_ms": 1_800_000.0
        }));
        assert_eq!(objective_value(OptimizationTarget::ThroughputPerGpu, &metrics), Ok(300.0));
        assert_eq!(objective_value(OptimizationTarget::Throughput, &metrics), Ok(1200.0));
    }

    #[test]
    fn per_gpu_objectives_are_zero_without_gpu_time() {
        for rest in [json!(null), json!(0.0), json!(-1.0)] {
            let metrics = metrics(&json!({
                "output_throughput_tok_s": 5.0, "gpu_hours": rest, "duration_ms": 1.0
            }));
            assert_eq!(objective_value(OptimizationTarget::ThroughputPerGpu, &metrics), Ok(0.0));
        }
    }

    fn scored(target: OptimizationTarget, min_attainment: Option<f64>, metrics: &Metrics) -> f64 {
        match judge(&goal(target, min_attainment), metrics) {
            Verdict::Feasible(worth) => worth.score,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_frontier_has_a_value_for_each_objective_and_the_first_for_a_score() {
        let mut goal = goal(OptimizationTarget::Pareto, None);
        goal.pareto_objectives = vec![OptimizationTarget::E2eLatency, OptimizationTarget::Throughput];
        let measured = metrics(&json!({"output_throughput_tok_s": 5.0, "mean_e2e_latency_ms": 250.0}));
        let expected = Worth {
            score: 250.0,
            signed: [-250.0, 5.0].into(),
            objectives: json!({"e2e_latency": 250.0, "throughput": 5.0}).as_object().cloned(),
            margin: None,
        };
        assert_eq!(judge(&goal, &measured), Verdict::Feasible(expected));
        let lacking = judge(&goal, &metrics(&json!({"output_throughput_tok_s": 5.0})));
        assert!(matches!(lacking, Verdict::Unscored(reason) if reason.contains("mean_e2e_latency_ms")));
    }

    #[test]
    fn latency_is_better_when_smaller() {
        let metrics = metrics(&json!({"mean_e2e_latency_ms": 250.0}));
        assert_eq!(scored(OptimizationTarget::E2eLatency, None, &metrics), -250.0);
    }

    #[test]
    fn a_missing_or_empty_figure_is_named() {
        let metrics = metrics(&json!({"mean_e2e_latency_ms": null, "completed_requests": 0}));
        assert_eq!(
            judge(&goal(OptimizationTarget::E2eLatency, None), &metrics),
            Verdict::Unscored("replay report lacks mean_e2e_latency_ms: no request completed".into())
        );
        assert_eq!(
            judge(&goal(OptimizationTarget::Goodput, None), &Metrics::new()),
            Verdict::Unscored("replay report lacks goodput_output_throughput_tok_s".into())
        );
    }

    #[test]
    fn the_attainment_bar_is_inclusive() {
        let metrics = metrics(&json!({"output_throughput_tok_s": 5.0, "attainment": 0.9}));
        assert_eq!(scored(OptimizationTarget::Throughput, Some(0.9), &metrics), 5.0);
        let below = judge(&goal(OptimizationTarget::Throughput, Some(0.95)), &metrics);
        let Verdict::BelowBar(worth, reason) = below else { panic!("{below:?}") };
        assert!(
            reason.contains("0.95") && (worth.margin.unwrap() + 0.05).abs() < 1e-12,
            "{worth:?}: {reason}"
        );
        let above = judge(&goal(OptimizationTarget::Throughput, Some(0.9)), &metrics);
        assert!(matches!(above, Verdict::Feasible(worth) if worth.margin == Some(0.0)));
    }
}
