//! Reads a scenario.

use super::facts::FactFiles;
use super::numbers::Limit;
use super::read_engine::{MOST_WORKERS, excess_of_ranks, pool};
use super::read_facts::facts;
use super::read_workload::scenario_workload;
use super::reader::Section;
use super::scenario::{
    BUILTIN_PLANNER, DEFAULT_ROUTER, Deployment, DeploymentMode, KvTransfer, PolicyConfig, Pool, PoolName,
    ReplicaChange, Scenario, Sla, WorkloadConfig, WorkloadSource,
};
use super::value::Value;

/// `None` after a problem that leaves nothing to fill in.
pub(super) fn scenario(root: &Section<'_>) -> Option<Scenario> {
    let seed = root.integer("seed", 0..=u64::MAX).or(1);
    let deployment = root.section("deployment", deployment).required().flatten();
    let workload = root.section("workload", scenario_workload).required().flatten();
    let sla = root.section("sla", sla).optional();
    let max_sim_time_ms = root.float("max_sim_time_ms", Limit::PositiveTime).optional();
    let facts = root.section("facts", facts).or_else(FactFiles::default);
    for key in ["goal", "sweep"] {
        root.refuse(
            key,
            "belongs to a search configuration, which has a `search_space` in place of a `deployment`",
        );
    }
    let (deployment, workload) = (deployment?, workload?);
    check_ranks(root, &deployment, &workload);
    Some(Scenario { seed, deployment, workload, sla, max_sim_time_ms, facts })
}

/// A request that is bound to a rank finds it in every pool that it passes through.
fn check_ranks(root: &Section<'_>, deployment: &Deployment, workload: &WorkloadConfig) {
    let WorkloadSource::Requests { requests, .. } = &workload.source else { return };
    let pools = [&deployment.agg, &deployment.prefill, &deployment.decode].into_iter().flatten();
    let ranks = pools.map(|pool| pool.dp_size).min().unwrap_or(1);
    for (place, request) in requests.iter().enumerate() {
        if let Some(rank) = request.dp_rank.filter(|&rank| rank >= ranks) {
            let message =
                format!("{rank} is no rank of every worker: they have {ranks}, counted from 0 (`dp_size`)");
            root.problem(&format!("workload.requests[{place}].dp_rank"), message);
        }
    }
}

fn deployment(section: &Section<'_>) -> Option<Deployment> {
    let mode = section.choice::<DeploymentMode>("mode").required();
    let router =
        section.read("router", |value| value.policy(None)).or_else(|| PolicyConfig::named(DEFAULT_ROUTER));
    let planner = section.read("planner", |value| value.policy(Some(BUILTIN_PLANNER))).optional();
    let kv_transfer = section.section("kv_transfer", kv_transfer).or_else(KvTransfer::default);
    let Some(mode) = mode else {
        // Without a mode the pools are still worth checking.
        for key in ["agg", "prefill", "decode"] {
            section.section(key, pool).optional();
        }
        return None;
    };
    let (mut agg, mut prefill, decode) = match mode {
        DeploymentMode::Agg => {
            let agg = section.section("agg", only_pool).required();
            for key in ["prefill", "decode"] {
                refuse_pool(section, key, "`mode: agg` has one pool, `agg`; write `mode: disagg` for two");
            }
            if kv_transfer != KvTransfer::default() {
                section.problem("kv_transfer", "has no effect with `mode: agg`, where no KV blocks travel");
            }
            (Some(agg?), None, None)
        }
        DeploymentMode::Disagg => {
            refuse_pool(section, "agg", "`mode: disagg` has the pools `prefill` and `decode`");
            let prefill = section.section("prefill", pool).required();
            let decode = section.section("decode", pool).required();
            let (prefill, decode) = (prefill?, decode?);
            check_pair(section, &prefill, &decode);
            if prefill.router.is_some() && decode.router.is_some() && router.policy != DEFAULT_ROUTER {
                section.problem("router", "has no effect, as both pools have a router of their own");
            }
            (None, Some(prefill), Some(decode))
        }
    };
    for pool in [&mut agg, &mut prefill].into_iter().flatten() {
        pool.timing.settle(Some(pool.engine.first_token_decode));
    }
    let pools = [&agg, &prefill, &decode].into_iter().flatten();
    let dp_size = pools.map(|pool: &Pool| pool.dp_size).max().unwrap_or(1);
    let change = |change: Value<'_>| replica_change(&change, mode, dp_size);
    let replica_changes = section.read("replica_changes", |value| value.list(change));
    let replica_changes = replica_changes.or_else(Vec::new);
    Some(Deployment { mode, router, planner, agg, prefill, decode, kv_transfer, replica_changes })
}

fn replica_change(value: &Value<'_>, mode: DeploymentMode, dp_size: u32) -> Option<ReplicaChange> {
    let change = |section: &Section<'_>| {
        let at_ms = section.float("at_ms", Limit::Time).required();
        let pool = match mode {
            DeploymentMode::Agg => section.choice("pool").or(PoolName::Agg),
            DeploymentMode::Disagg => section.choice("pool").required()?,
        };
        if (pool == PoolName::Agg) != (mode == DeploymentMode::Agg) {
            section.problem("pool", "is not a pool of this `deployment.mode`");
        }
        let workers = section.integer("workers", 0..=MOST_WORKERS).required();
        if let Some(excess) = workers.and_then(|workers| excess_of_ranks(workers, dp_size)) {
            section.problem("workers", excess);
        }
        Some(ReplicaChange { at_ms: at_ms?, pool, workers: workers? })
    };
    value.section(change).flatten()
}

fn only_pool(section: &Section<'_>) -> Pool {
    if section.has("router") {
        section.problem("router", "`mode: agg` has one pool, whose router is `deployment.router`");
    }
    pool(section)
}

/// A pool of the other mode may be spelt out as null, as resolved scenarios do.
fn refuse_pool(section: &Section<'_>, key: &'static str, reason: &str) {
    if section.has(key) {
        section.problem(key, reason);
    }
}

fn check_pair(section: &Section<'_>, prefill: &Pool, decode: &Pool) {
    if prefill.engine.backend != decode.engine.backend {
        section.problem_between(
            &["prefill.engine.backend", "decode.engine.backend"],
            "`prefill` and `decode` need the same `engine.backend` to hand KV blocks over",
        );
    } else if prefill.engine.block_size != decode.engine.block_size {
        let (of_prefill, of_decode) = (prefill.engine.block_size, decode.engine.block_size);
        section.problem_between(
            &["prefill.engine.block_size", "decode.engine.block_size"],
            format!(
                "`prefill` and `decode` need the same `engine.block_size` to hand KV blocks over, \
                 not {of_prefill} and {of_decode}"
            ),
        );
    }
}

/// More than the keys and values of a token take in any model.
pub(super) const MOST_BYTES_PER_TOKEN: u64 = 1_000_000_000;

/// Reads how KV blocks travel.
pub(super) fn kv_transfer(section: &Section<'_>) -> KvTransfer {
    let given = section.has("bandwidth_gbps");
    read_kv_transfer(section, given && !section.has("bytes_per_token"))
}

/// Reads how KV blocks travel where the model is known, and with it what a token takes.
pub(super) fn kv_transfer_of_model(section: &Section<'_>) -> KvTransfer {
    read_kv_transfer(section, false)
}

fn read_kv_transfer(section: &Section<'_>, bytes_are_missing: bool) -> KvTransfer {
    let defaults = KvTransfer::default();
    let latency_ms = section.float("latency_ms", Limit::Time).or(defaults.latency_ms);
    let bandwidth_gbps = section.float("bandwidth_gbps", Limit::Bandwidth).optional();
    let bytes_per_token = section.integer("bytes_per_token", 1..=MOST_BYTES_PER_TOKEN).optional();
    let timing = section.choice("timing").or(defaults.timing);
    for (key, given, other) in [
        ("bytes_per_token", bytes_are_missing, "bandwidth_gbps"),
        ("bandwidth_gbps", section.has("bytes_per_token"), "bytes_per_token"),
    ] {
        if given && !section.has(key) {
            section
                .problem(other, format!("has no effect without `{key}`; give both, or `latency_ms` alone"));
        }
    }
    if section.has("latency_ms") && section.has("bandwidth_gbps") && latency_ms > 0.0 {
        section.problem("latency_ms", "has no effect beside `bandwidth_gbps`; give one of the two");
    }
    let sharing = section.choice("sharing").or(defaults.sharing);
    let priced = section.has("bandwidth_gbps") || section.has("bytes_per_token");
    for (key, differs) in [("timing", timing != defaults.timing), ("sharing", sharing != defaults.sharing)] {
        if differs && !priced {
            section.problem(key, "has no effect without `bandwidth_gbps` and `bytes_per_token`");
        }
    }
    KvTransfer { latency_ms, bandwidth_gbps, bytes_per_token, timing, sharing }
}

/// Reads bounds on a request.
pub(super) fn sla(section: &Section<'_>) -> Sla {
    let bound = |key| section.float(key, Limit::PositiveTime).optional();
    Sla { ttft_ms: bound("ttft_ms"), itl_ms: bound("itl_ms"), e2e_ms: bound("e2e_ms") }
}
