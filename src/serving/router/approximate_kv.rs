//! The KV router without reports from the caches.
//!
//! The router assumes that the prompts it sent to a worker stay cached there for `ttl_ms`, its end rounded up to 100 ms, since they
//! were last sent; with `capacity_blocks`, that the least recently sent blocks give way when there are more. Otherwise it
//! decides as the [KV router](super::kv_router) does, with its fields and its rule for ties.

use serde::Deserialize;
use serde_json::{Map, Value};

use super::kv_router::KvRouter;
use super::limits::{duration, duration_problem};
use super::{Needs, Overlap, PolicyContext, RequestView, Route, RoutingPolicy, WorkerView};
use crate::report::record::Role;

/// The cost-based router over assumed caches. It takes the fields of [`KvRouter`] beside its own.
#[derive(Clone, Debug, Deserialize)]
#[serde(try_from = "Map<String, Value>")]
pub struct ApproximateKv {
    assumption: Assumption,
    cost: KvRouter,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Assumption {
    ttl_ms: f64,
    capacity_blocks: Option<u64>,
}

impl Default for Assumption {
    fn default() -> Self {
        Self { ttl_ms: 120_000.0, capacity_blocks: None }
    }
}

impl TryFrom<Map<String, Value>> for ApproximateKv {
    type Error = String;

    fn try_from(mut fields: Map<String, Value>) -> Result<Self, String> {
        let own = ["ttl_ms", "capacity_blocks"];
        let assumption: Map<_, _> = own.into_iter().filter_map(|name| fields.remove_entry(name)).collect();
        let text = |error: serde_json::Error| error.to_string();
        let assumption = serde_json::from_value(Value::Object(assumption)).map_err(text)?;
        let cost = serde_json::from_value(Value::Object(fields)).map_err(|error| match text(error) {
            // The list of the known fields ends with those that are not the KV router's.
            unknown if unknown.starts_with("unknown field") => {
                format!("{unknown}, {}", own.map(|name| format!("`{name}`")).join(", "))
            }
            other => other,
        })?;
        Ok(Self { assumption, cost })
    }
}

impl RoutingPolicy for ApproximateKv {
    fn route(
        &mut self,
        request: &RequestView,
        workers: &[WorkerView],
        ctx: &mut PolicyContext<'_, '_>,
    ) -> Route {
        self.cost.route(request, workers, ctx)
    }

    fn needs(&self) -> Needs {
        let needs = self.cost.needs();
        if needs.overlap == Overlap::Unknown {
            return needs;
        }
        let Assumption { ttl_ms, capacity_blocks } = self.assumption;
        Needs { overlap: Overlap::Assumed { ttl: duration(ttl_ms), capacity_blocks }, ..needs }
    }

    fn derive_for(&mut self, role: Role) {
        self.cost.derive_for(role);
    }

    fn problems(&self) -> Vec<String> {
        let mut problems = self.cost.problems();
        problems.extend(duration_problem("ttl_ms", self.assumption.ttl_ms, 1.0));
        if self.assumption.capacity_blocks == Some(0) {
            problems.push("capacity_blocks: 0 blocks hold nothing; leave it out for no bound".into());
        }
        if self.cost.kv_event_lag_ms > 0.0 {
            problems.push("kv_event_lag_ms: has no effect, as the caches report nothing".into());
        }
        problems
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::test_support::{REQUEST, choice, in_context};
    use super::*;
    use crate::serving::message::WorkerId;
    use crate::simulation::SimDuration;

    fn policy(fields: Value) -> Result<ApproximateKv, String> {
        serde_json::from_value(fields).map_err(|error| error.to_string())
    }

    #[test]
    fn it_takes_its_own_fields_and_those_of_the_kv_router() {
        let ttl = |ms| SimDuration::from_ms(ms).unwrap();
        let overlap = |fields| policy(fields).unwrap().needs().overlap;
        assert_eq!(overlap(json!({})), Overlap::Assumed { ttl: ttl(120_000.0), capacity_blocks: None });
        assert_eq!(
            overlap(json!({"ttl_ms": 500, "capacity_blocks": 64, "router_temperature": 0.5})),
            Overlap::Assumed { ttl: ttl(500.0), capacity_blocks: Some(64) }
        );
        let unknown = policy(json!({"ttl": 500})).unwrap_err();
        assert!(
            unknown.starts_with("unknown field `ttl`") && unknown.ends_with("`capacity_blocks`"),
            "{unknown}"
        );
    }

    #[test]
    fn it_decides_by_the_cost_of_the_kv_router() {
        in_context(|ctx| {
            let knows = WorkerView { overlap_blocks: 3, ..WorkerView::idle(WorkerId(1)) };
            let workers = [WorkerView::idle(WorkerId(0)), knows];
            assert_eq!(choice(&mut policy(json!({})).unwrap(), &REQUEST, &workers, ctx), 1);
        });
    }

    #[test]
    fn impossible_fields_are_named() {
        let bad = json!({"ttl_ms": 0, "capacity_blocks": 0, "kv_event_lag_ms": 5, "prefill_load_scale": -1});
        let problems = policy(bad).unwrap().problems();
        for (problem, field) in
            problems.iter().zip(["prefill_load_scale", "ttl_ms", "capacity_blocks", "kv_event_lag_ms"])
        {
            assert!(problem.starts_with(&format!("{field}: ")), "{problems:#?}");
        }
        assert_eq!(problems.len(), 4);
    }
}
