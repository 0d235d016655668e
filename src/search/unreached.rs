//! Replays whose outcome is known beforehand: those that differ from an earlier one only in what made no difference there.
//!
//! The limit of running requests and that of tokens per pass act by being compared with what a rank has at a time. Where that stayed
//! below the limit of one candidate and would have stayed below that of another, every comparison comes out the same for both, and so
//! does everything that follows from it: they are one replay. So are those that differ in weights of a router that are multiplied by 0,
//! or in how a router chooses one rank of one.

use std::fmt::Write;

use serde_json::Value;

use crate::config::scenario::{Backend, CapacitySource, Deployment, PolicyConfig, Pool};
use crate::registry::Registry;
use crate::report::record::Role;
use crate::search::journal::Hash;
use crate::search::objective::{Metrics, metric};
use crate::search::unroll::Unrolled;
use crate::serving;

/// The router that weighs costs; it hears of caches.
pub(super) const WEIGHING: &str = "kv_router";
/// Routers that hear nothing of caches and keep nobody waiting.
pub(super) const DEAF: [&str; 5] =
    ["round_robin", "random", "least_loaded", "power_of_two", "session_affinity"];

/// The limits of a candidate's engines, and everything else that its replay depends on.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct EngineLimits {
    family: u64,
    pools: Vec<PoolLimits>,
}

#[derive(Clone, Debug, PartialEq)]
struct PoolLimits {
    role: Role,
    requests: u32,
    /// `None` where others than the scheduler go by it: it is part of the family then.
    tokens: Option<u32>,
}

impl EngineLimits {
    /// `None` where planners go by the limits as well, or schedulers that may do more with them than compare.
    pub(super) fn of(candidate: &Unrolled, registry: &Registry) -> Option<Self> {
        let mut candidate = candidate.clone();
        let deployment = &mut candidate.scenario.deployment;
        let is_built_in = deployment.pools_mut().all(|pool| pool.engine.scheduler.is_none());
        if deployment.planner.is_some() || !is_built_in {
            return None;
        }
        let nobody_waits = nobody_waits(deployment, registry);
        if nobody_waits {
            forget_idle_routing(deployment);
        }
        let by_role = [
            (Role::Agg, &mut deployment.agg),
            (Role::Prefill, &mut deployment.prefill),
            (Role::Decode, &mut deployment.decode),
        ];
        let pools = by_role.into_iter().filter_map(|(role, pool)| {
            let pool = pool.as_mut()?;
            let tokens =
                (nobody_waits && goes_by_tokens(pool)).then_some(&mut pool.engine.max_num_batched_tokens);
            // A limit that is absent is never reached.
            let tokens = tokens.map(|limit| limit.take().unwrap_or(u32::MAX));
            let requests = pool.engine.max_num_seqs.take().unwrap_or(u32::MAX);
            Some(PoolLimits { role, requests, tokens })
        });
        let pools = pools.collect();
        let mut family = Hash::default();
        family.write_str(&candidate.key()).expect("hashing cannot fail");
        Some(Self { family: family.digest(), pools })
    }

    /// The same for all candidates that differ in their limits alone.
    pub(super) fn family(&self) -> u64 {
        self.family
    }

    /// Whether a replay with these limits is that of `other`, of the same family, which came to `metrics`.
    pub(super) fn make_no_difference(&self, other: &Self, metrics: &Metrics) -> bool {
        self.pools.iter().zip(&other.pools).all(|(own, other)| {
            let pool = if own.role == Role::Prefill { "prefill" } else { "decode" };
            let stays_below = |what: &str, own: u32, other: u32| {
                let peak = metric(metrics, &format!("{pool}_peak_{what}"));
                own == other || peak.is_some_and(|peak| peak < f64::from(own.min(other)))
            };
            let tokens = own.tokens.zip(other.tokens);
            stays_below("running_requests", own.requests, other.requests)
                && tokens.is_none_or(|(own, other)| stays_below("batched_tokens", own, other))
        })
    }
}

/// Leaves out what makes no difference of a router that keeps nobody waiting.
fn forget_idle_routing(deployment: &mut Deployment) {
    let mut pools = [&deployment.agg, &deployment.prefill, &deployment.decode].into_iter().flatten();
    let has_no_choice =
        deployment.replica_changes.is_empty() && pools.all(|pool| pool.workers == 1 && pool.dp_size == 1);
    let router = &mut deployment.router;
    if has_no_choice && DEAF.contains(&router.policy.as_str()) {
        *router = PolicyConfig::named(DEAF[0]);
    }
    // Whether a credit is given decides whether the router hears of caches where prefill work does not count.
    if router.policy != WEIGHING || router.fields.contains_key("track_prefill_tokens") {
        return;
    }
    if has_no_choice || router.fields.get("prefill_load_scale").and_then(Value::as_f64) == Some(0.0) {
        router
            .fields
            .retain(|field, _| !matches!(&**field, "overlap_score_credit" | "overlap_score_credit_decay"));
    }
    if has_no_choice {
        router.fields.retain(|field, _| !matches!(&**field, "prefill_load_scale" | "router_temperature"));
    }
}

/// Whether an engine compares its limit of tokens with what a pass computes, and does nothing else with it.
fn goes_by_tokens(pool: &Pool) -> bool {
    pool.engine.backend != Backend::Sglang
        && pool.engine.enable_chunked_prefill
        && pool.engine.capacity_source == CapacitySource::Given
}

/// Whether all routers are known to keep nobody waiting by what a pass may compute.
fn nobody_waits(deployment: &Deployment, registry: &Registry) -> bool {
    let is_known = |policy: &str| policy == WEIGHING || DEAF.contains(&policy);
    deployment.routers().all(|router| is_known(&router.policy))
        && !serving::keeps_requests_waiting(deployment, registry)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::search::test_support::{nine_points, plan};

    /// Two candidates that differ in both limits, changed alike, and whether one comes out as the other where no limit is reached.
    fn is_one_replay(change: impl Fn(&mut Deployment)) -> bool {
        let branch = plan(nine_points()).branches.remove(0);
        let [first, second] = [0, 8].map(|index| {
            let mut candidate = branch.unroll(&branch.space.point(index)).unwrap();
            change(&mut candidate.scenario.deployment);
            EngineLimits::of(&candidate, &branch.registry)
        });
        let metrics = json!({"decode_peak_running_requests": 9, "decode_peak_batched_tokens": 9});
        let (Some(first), Some(second), Value::Object(metrics)) = (first, second, metrics) else {
            return false;
        };
        first.family() == second.family() && first.make_no_difference(&second, &metrics)
    }

    fn engine(deployment: &mut Deployment) -> &mut crate::config::scenario::EngineOptions {
        &mut deployment.agg.as_mut().unwrap().engine
    }

    #[test]
    fn limits_that_are_only_compared_make_no_difference_below_them() {
        assert!(is_one_replay(|_| {}));
        assert!(is_one_replay(|deployment| deployment.router = PolicyConfig::named("kv_router")));
    }

    #[test]
    fn limits_that_others_go_by_make_one() {
        assert!(!is_one_replay(|deployment| engine(deployment).backend = Backend::Sglang));
        assert!(!is_one_replay(|deployment| engine(deployment).enable_chunked_prefill = false));
        assert!(!is_one_replay(|deployment| {
            engine(deployment).capacity_source = CapacitySource::MemoryModel;
        }));
        assert!(!is_one_replay(|deployment| deployment.planner = Some(PolicyConfig::named("planner"))));
        assert!(!is_one_replay(|deployment| {
            engine(deployment).scheduler = Some(Box::new(PolicyConfig::named("a_scheduler")));
        }));
        assert!(!is_one_replay(|deployment| deployment.router = PolicyConfig::named("a_router")));
    }

    #[test]
    fn routers_that_hear_of_caches_are_not_taken_for_those_that_do_not() {
        let branch = plan(nine_points()).branches.remove(0);
        let family = |router: Value, workers| {
            let mut candidate = branch.unroll(&branch.space.point(0)).unwrap();
            let deployment = &mut candidate.scenario.deployment;
            deployment.agg.as_mut().unwrap().workers = workers;
            deployment.router = PolicyConfig::named(router["policy"].as_str().unwrap());
            let Value::Object(mut fields) = router else { panic!() };
            fields.remove("policy");
            deployment.router.fields = fields;
            EngineLimits::of(&candidate, &branch.registry).unwrap().family()
        };
        let named = |policy: &str| json!({"policy": policy});
        let weighing = |credit: f64, scale: f64| json!({"policy": "kv_router", "overlap_score_credit": credit, "prefill_load_scale": scale});
        assert_eq!(family(named("random"), 1), family(named("least_loaded"), 1));
        assert_ne!(family(named("random"), 2), family(named("least_loaded"), 2));
        assert_ne!(family(named("random"), 1), family(named("kv_router"), 1));
        assert_eq!(family(weighing(0.5, 2.0), 1), family(weighing(1.0, 4.0), 1));
        assert_eq!(family(weighing(0.5, 0.0), 2), family(weighing(1.0, 0.0), 2));
        assert_ne!(family(weighing(0.5, 2.0), 2), family(weighing(1.0, 2.0), 2));
        let untracked = |credit: f64| json!({"policy": "kv_router", "overlap_score_credit": credit, "prefill_load_scale": 0.0, "track_prefill_tokens": false});
        assert_ne!(family(untracked(0.0), 1), family(untracked(1.0), 1));
    }
}
