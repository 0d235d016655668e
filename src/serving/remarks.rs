//! What the owner of a scenario should know before it runs, although nothing is wrong with it.

use super::assembly::pools;
use super::capacity::overcommitted;
use super::pricing::profile_of;
use crate::config::scenario::{Backend, CapacitySource, Pool, Scenario, TimingConfig};
use crate::model::Catalogue;
use crate::workload::Workload;

/// Remarks on the pools and routers of a scenario that is to serve `workload`, one line each.
pub fn remarks(scenario: &Scenario, workload: &Workload) -> Vec<String> {
    let Ok(catalogue) = Catalogue::with(&scenario.facts) else { return Vec::new() };
    let mut remarks = Vec::new();
    for (role, pool) in pools(scenario) {
        let pool_remarks = [
            overcommitted(pool, &catalogue).map(|reason| format!("engine.num_gpu_blocks: {reason}")),
            more_than_sglang_takes(pool),
            longer_than_the_model_takes(pool, workload, &catalogue)
                .map(|words| format!("engine.max_model_len: is not given, and {words}")),
        ];
        remarks.extend(
            pool_remarks.into_iter().flatten().map(|text| format!("deployment.{}.{text}", role.name())),
        );
    }
    remarks.extend(sessions_of_one_turn(scenario, workload));
    remarks
}

/// How many requests the model cannot take, which every pool of a scenario serves all the same; `None` if there are none.
pub fn requests_too_long(scenario: &Scenario, workload: &Workload) -> Option<String> {
    let catalogue = Catalogue::with(&scenario.facts).ok()?;
    pools(scenario).into_iter().find_map(|(_, pool)| longer_than_the_model_takes(pool, workload, &catalogue))
}

/// Where nobody comes back, there is nothing to stick to.
fn sessions_of_one_turn(scenario: &Scenario, workload: &Workload) -> Option<String> {
    let sticks = scenario.deployment.routers().any(|router| router.policy == "session_affinity");
    let nobody_returns = workload.requests.iter().all(|request| request.next_turn.is_none());
    (sticks && nobody_returns).then(|| {
        "deployment.router: no session has a second turn, so session_affinity places every request as least_loaded does"
            .to_owned()
    })
}

/// SGLang keeps a part of its memory free that depends on the GPU and the layout.
fn more_than_sglang_takes(pool: &Pool) -> Option<String> {
    let TimingConfig::Profile(config) = &pool.timing else { return None };
    let engine = &pool.engine;
    let is_sized = engine.backend == Backend::Sglang && engine.capacity_source == CapacitySource::MemoryModel;
    let entry = profile_of(pool, config).ok().filter(|_| is_sized)?;
    let (given, own) = (engine.gpu_memory_utilization, entry.profile.memory.as_ref()?.default_fraction);
    (given > own).then(|| {
        format!(
            "engine.gpu_memory_utilization: {given} is more than the {own:.3} that SGLang takes here unless told otherwise \
             (--mem-fraction-static)"
        )
    })
}

/// Requests that an engine would refuse, were it told how long the model's sequences may be.
fn longer_than_the_model_takes(pool: &Pool, workload: &Workload, catalogue: &Catalogue) -> Option<String> {
    let longest = match &pool.timing {
        TimingConfig::Profile(config) => profile_of(pool, config).ok()?.family.max_context,
        TimingConfig::Roofline(config) => catalogue.model(config.model_name.as_deref()?).ok()?.max_context,
        TimingConfig::Polynomial | TimingConfig::Fixed { .. } | TimingConfig::Grid(_) => return None,
    };
    // Whether a scheduler of one's own goes by that limit is not known here.
    if pool.engine.max_model_len.is_some() || pool.engine.scheduler.is_some() {
        return None;
    }
    let is_longer = |input: u32, output: u32| u64::from(input) + u64::from(output) > u64::from(longest);
    let count = workload
        .requests
        .iter()
        .filter(|request| is_longer(request.input_length, request.output_length))
        .count();
    (count > 0).then(|| {
        format!(
            "{count} of {} requests are longer than the {longest} tokens that the model takes; they are served all the same",
            workload.requests.len()
        )
    })
}
