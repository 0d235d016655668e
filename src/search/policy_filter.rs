//! Which scaling policies a goal can support.

use serde::Serialize;

use super::refusal::Refusal;
use crate::config::presets::ScalingPolicy;
use crate::config::search::{OptimizationGoal, OptimizationTarget};

/// The policies that a goal leaves.
#[derive(Debug)]
pub(super) struct Filtered {
    /// Those to try, in configured order.
    pub(super) kept: Vec<ScalingPolicy>,
    /// Names of those that the goal cannot support.
    pub(super) dropped: Vec<String>,
}

/// What the built-in planner is told to aim for under a goal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PlannerTarget {
    /// As much output as possible.
    Throughput,
    /// As little latency as possible.
    Latency,
    /// The bounds of the SLA.
    Sla,
}

impl PlannerTarget {
    /// Its name in a planner's configuration.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Throughput => "throughput",
            Self::Latency => "latency",
            Self::Sla => "sla",
        }
    }
}

/// What the planner aims for under each goal. A Pareto goal aims for throughput, whatever its objectives.
pub(super) fn planner_target(target: OptimizationTarget) -> PlannerTarget {
    match target {
        OptimizationTarget::Throughput
        | OptimizationTarget::ThroughputPerGpu
        | OptimizationTarget::ThroughputPerUser
        | OptimizationTarget::Pareto => PlannerTarget::Throughput,
        OptimizationTarget::E2eLatency => PlannerTarget::Latency,
        OptimizationTarget::Goodput | OptimizationTarget::GoodputPerGpu => PlannerTarget::Sla,
    }
}

/// Drops the policies that the goal cannot support; an error if none is left.
///
/// Throughput scaling needs a planner that aims for an SLA; any scaling under an SLA needs both of its token bounds.
pub(super) fn filter(policies: &[ScalingPolicy], goal: &OptimizationGoal) -> Result<Filtered, Refusal> {
    let supported = |policy: &&ScalingPolicy| goal.supports(policy);
    let kept: Vec<ScalingPolicy> = policies.iter().filter(supported).cloned().collect();
    let dropped: Vec<String> = policies.iter().filter(|policy| !supported(policy)).map(policy_name).collect();
    if kept.is_empty() {
        let reason = if planner_target(goal.target) == PlannerTarget::Sla {
            "scaling under this goal needs both goal.sla.ttft_ms and goal.sla.itl_ms; give both"
        } else {
            "throughput scaling needs a goodput goal; add a `load_*` policy"
        };
        let message = format!("{} cannot be used: {reason} or add `disabled`", dropped.join(", "));
        return Err(Refusal::new("search_space.planner_scaling_policy", message));
    }
    Ok(Filtered { kept, dropped })
}

/// A policy that no candidate has, since the goal cannot support it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DroppedPolicy {
    /// The policy as it is configured.
    pub policy: ScalingPolicy,
    /// Why.
    pub reason: &'static str,
}

impl DroppedPolicy {
    /// Those of a search, in configured order.
    pub(super) fn of(policies: &[ScalingPolicy], goal: &OptimizationGoal) -> Vec<Self> {
        let reason = match planner_target(goal.target) {
            PlannerTarget::Sla => {
                "scaling by the bounds of requests needs both goal.sla.ttft_ms and goal.sla.itl_ms"
            }
            _ if goal.is_pareto() => {
                "planners of a frontier aim for throughput, whatever its objectives; throughput scaling aims for bounds of requests"
            }
            _ => "throughput scaling aims for bounds of requests, which takes a goodput goal",
        };
        let dropped = policies.iter().filter(|policy| !goal.supports(policy));
        dropped.map(|policy| Self { policy: policy.clone(), reason }).collect()
    }
}

/// A policy as it is written, for messages.
pub(super) fn policy_name(policy: &ScalingPolicy) -> String {
    match serde_json::to_value(policy) {
        Ok(serde_json::Value::String(name)) => format!("`{name}`"),
        Ok(mapping) => format!("`{mapping}`"),
        Err(error) => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::presets::SCALING_POLICIES;
    use crate::config::scenario::Sla;

    fn policies(names: &[&str]) -> Vec<ScalingPolicy> {
        let preset = |name: &&str| SCALING_POLICIES.iter().find(|preset| preset.name == Some(name)).unwrap();
        names.iter().map(|name| ScalingPolicy::Builtin(preset(name).clone())).collect()
    }

    fn goal(target: OptimizationTarget, sla: Option<Sla>) -> OptimizationGoal {
        OptimizationGoal { target, sla, pareto_objectives: Vec::new(), min_attainment: None }
    }

    #[test]
    fn throughput_scaling_alone_cannot_serve_a_throughput_goal() {
        let refusal = filter(
            &policies(&["throughput_180_5", "hybrid_600_5"]),
            &goal(OptimizationTarget::Throughput, None),
        )
        .unwrap_err();
        assert!(refusal.to_string().contains("`hybrid_600_5`"), "{refusal}");
    }

    #[test]
    fn what_is_dropped_is_told_with_the_reason() {
        let all = policies(&["disabled", "throughput_180_5", "load_180_5", "hybrid_180_5"]);
        let dropped = |target, sla| DroppedPolicy::of(&all, &goal(target, sla));
        let both = Sla { ttft_ms: Some(500.0), itl_ms: Some(50.0), ..Sla::default() };
        assert_eq!(dropped(OptimizationTarget::Goodput, Some(both)), []);
        let on_a_frontier = dropped(OptimizationTarget::Pareto, Some(both));
        let names: Vec<_> = on_a_frontier.iter().map(|one| policy_name(&one.policy)).collect();
        assert_eq!(names, ["`throughput_180_5`", "`hybrid_180_5`"]);
        assert!(on_a_frontier[0].reason.contains("a frontier aim for throughput"), "{on_a_frontier:?}");
        let alone = dropped(OptimizationTarget::Throughput, None);
        assert!(alone.len() == 2 && alone[0].reason.contains("a goodput goal"), "{alone:?}");
        let end_to_end = Sla { e2e_ms: Some(1000.0), ..Sla::default() };
        let halfway = dropped(OptimizationTarget::Goodput, Some(end_to_end));
        assert!(halfway.len() == 3 && halfway[0].reason.contains("goal.sla.itl_ms"), "{halfway:?}");
    }

    #[test]
    fn throughput_scaling_is_dropped_beside_others() {
        let all = policies(&["disabled", "throughput_180_5", "load_180_5", "hybrid_180_5"]);
        let filtered = filter(&all, &goal(OptimizationTarget::E2eLatency, None)).unwrap();
        assert_eq!(filtered.kept, policies(&["disabled", "load_180_5"]));
        assert_eq!(filtered.dropped, ["`throughput_180_5`", "`hybrid_180_5`"]);
    }

    #[test]
    fn goodput_under_an_end_to_end_bound_leaves_no_scaling() {
        let all = policies(&["disabled", "throughput_180_5", "load_180_5", "hybrid_180_5"]);
        let end_to_end = Sla { e2e_ms: Some(1000.0), ..Sla::default() };
        let filtered = filter(&all, &goal(OptimizationTarget::Goodput, Some(end_to_end))).unwrap();
        assert_eq!(filtered.kept, policies(&["disabled"]));
        let both = Sla { ttft_ms: Some(1.0), itl_ms: Some(1.0), e2e_ms: None };
        let filtered = filter(&all, &goal(OptimizationTarget::Goodput, Some(both))).unwrap();
        assert_eq!(filtered.kept, all);
        assert!(filtered.dropped.is_empty());
    }
}
