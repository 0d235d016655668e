//! Replays whose outcome is known beforehand: those that differ from an earlier one only in what made no difference there.
//!
//! The limit of running requests and that of tokens per pass act by being compared with what a rank has at a time. Where that stayed
//! below the limit of one candidate and would have stayed below that of another, every comparison comes out the same for both, and so
//! does everything that follows from it: they are one replay. So are those that differ in weights of a router that are multiplied by 0,
//! or in how to choose one of one.

use serde_json::Value;

use crate::config::scenario::{Backend, CapacitySource, Deployment, PolicyConfig, Pool};
use crate::report::peaks::Peaks;
use crate::report::record::Role;
use crate::search::objective::{Metrics, metric};
use crate::search::unroll::Unrolled;

/// Routers that never keep requests waiting by what a pass may compute, unless they are told to.
const ROUTERS: [&str; 6] =
    ["kv_router", "round_robin", "random", "least_loaded", "power_of_two", "session_affinity"];

/// The limits of a candidate's engines, and everything else that its replay depends on.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Limits {
    family: String,
    pools: Vec<(Role, Peaks)>,
}

impl Limits {
    /// `None` where others than the engines go by the limits, as planners do.
    pub(super) fn of(candidate: &Unrolled) -> Option<Self> {
        let mut candidate = candidate.clone();
        let deployment = &mut candidate.scenario.deployment;
        if deployment.planner.is_some() {
            return None;
        }
        let is_routed_by_tokens = is_routed_by_tokens(deployment);
        if !is_routed_by_tokens {
            forget_idle_routing(deployment);
        }
        let by_role = [
            (Role::Agg, &mut deployment.agg),
            (Role::Prefill, &mut deployment.prefill),
            (Role::Decode, &mut deployment.decode),
        ];
        let pools = by_role.into_iter().filter_map(|(role, pool)| {
            let pool = pool.as_mut()?;
            let is_for_engine_alone = !is_routed_by_tokens && goes_by_tokens(pool);
            let requests = pool.engine.max_num_seqs.take();
            let tokens =
                if is_for_engine_alone { pool.engine.max_num_batched_tokens.take() } else { Some(0) };
            let limits = Peaks {
                running_requests: requests.unwrap_or(u32::MAX),
                batched_tokens: tokens.unwrap_or(u32::MAX),
            };
            Some((role, limits))
        });
        let pools = pools.collect();
        Some(Self { family: candidate.key(), pools })
    }

    /// What is the same for all candidates that differ in their limits alone.
    pub(super) fn family(&self) -> &str {
        &self.family
    }

    /// Whether a replay with these limits is that of `other`, of the same family, which came to `metrics`.
    pub(super) fn make_no_difference(&self, other: &Self, metrics: &Metrics) -> bool {
        self.pools.iter().zip(&other.pools).all(|((role, own), (_, others))| {
            let pool = if *role == Role::Prefill { "prefill" } else { "decode" };
            let stays_below = |what: &str, own: u32, other: u32| {
                let peak = metric(metrics, &format!("{pool}_peak_{what}"));
                own == other || peak.is_some_and(|peak| peak < f64::from(own.min(other)))
            };
            stays_below("running_requests", own.running_requests, others.running_requests)
                && stays_below("batched_tokens", own.batched_tokens, others.batched_tokens)
        })
    }
}

/// Leaves out what makes no difference of a router that keeps nobody waiting.
fn forget_idle_routing(deployment: &mut Deployment) {
    let pools = [&deployment.agg, &deployment.prefill, &deployment.decode].into_iter().flatten();
    let has_no_choice = |pool: &Pool| pool.workers == 1 && pool.dp_size == 1;
    if deployment.replica_changes.is_empty() && pools.clone().all(has_no_choice) {
        deployment.router = PolicyConfig::named(ROUTERS[0]);
    }
    // What a cache saves lowers the prefill work that the scale weighs, and nothing else.
    let fields = &mut deployment.router.fields;
    if fields.get("prefill_load_scale").and_then(Value::as_f64) == Some(0.0) {
        fields.shift_remove("overlap_score_credit");
        fields.shift_remove("overlap_score_credit_decay");
    }
}

/// Whether an engine compares its limit of tokens with what a pass computes, and does nothing else with it.
fn goes_by_tokens(pool: &Pool) -> bool {
    pool.engine.backend != Backend::Sglang
        && pool.engine.enable_chunked_prefill
        && pool.engine.capacity_source == CapacitySource::Given
}

/// Whether a router may keep requests waiting by what a pass may compute.
fn is_routed_by_tokens(deployment: &Deployment) -> bool {
    let is_free = |policy: &str| ROUTERS.contains(&policy);
    deployment
        .routers()
        .any(|router| !is_free(&router.policy) || router.fields.contains_key("queue_threshold"))
}
