//! The schedulers of pools: the backend's own, or one that a pool names.

use serde_json::{Map, Value};

use super::assembly::pools;
use crate::config::scenario::{Backend, CapacitySource, EngineOptions, Pool, Scenario};
use crate::engine::sglang::SglangEngine;
use crate::engine::trtllm::TrtllmEngine;
use crate::engine::vllm::VllmEngine;
use crate::engine::{Engine, EnginePool, EngineSetup, NewEngine};
use crate::registry::Registry;
use crate::report::record::Role;

/// Options that act whatever the scheduler: they choose prices, sizes and flags.
const ACT_ANYWAY: [&str; 7] = [
    "backend",
    "scheduler",
    "block_size",
    "num_gpu_blocks",
    "gpu_memory_utilization",
    "speedup_ratio",
    "decode_speedup_ratio",
];

/// A pool as an engine sees it.
pub(super) fn engine_pool(role: Role, pool: &Pool) -> EnginePool<'_> {
    EnginePool { role, dp_size: pool.dp_size, options: &pool.engine }
}

/// The engine of one rank.
pub(super) fn build_engine(scheduler: Option<&dyn NewEngine>, setup: EngineSetup<'_>) -> Box<dyn Engine> {
    if let Some(scheduler) = scheduler {
        return scheduler.build(setup);
    }
    let EngineSetup { pool: EnginePool { role, dp_size, options }, rank, inputs, publish } = setup;
    match options.backend {
        Backend::Vllm => Box::new(VllmEngine::new(options, role, rank, inputs, publish)),
        Backend::Trtllm => Box::new(TrtllmEngine::new(options, role, rank, inputs, publish)),
        Backend::Sglang => Box::new(SglangEngine::new(options, role, dp_size, inputs, publish)),
    }
}

/// What is wrong with the schedulers that pools name, and the options beside them that those do not go by; one line each.
pub fn scheduler_problems(scenario: &Scenario, registry: &Registry) -> Vec<String> {
    let mut problems = Vec::new();
    for (role, pool) in pools(scenario) {
        match registry.engine(&engine_pool(role, pool)) {
            Ok(None) => {}
            Ok(Some(scheduler)) => problems.extend(idle_options(&*scheduler, role, pool, scenario)),
            Err(error) => problems.extend(error.lines()),
        }
    }
    problems
}

/// Limits of each pool, of those that searches choose, that nobody goes by there because of its scheduler.
pub fn idle_limits(scenario: &Scenario, registry: &Registry) -> Vec<(Role, &'static str)> {
    let mut idle = Vec::new();
    for (role, pool) in pools(scenario) {
        if let Ok(Some(scheduler)) = registry.engine(&engine_pool(role, pool)) {
            let limits = ["max_num_batched_tokens", "max_num_seqs"].into_iter();
            let acts = |limit: &&str| acts(limit, &*scheduler, pool, scenario);
            idle.extend(limits.filter(|limit| !acts(limit)).map(|limit| (role, limit)));
        }
    }
    idle
}

/// Whether anybody goes by an option of a pool with this scheduler.
fn acts(option: &str, scheduler: &dyn NewEngine, pool: &Pool, scenario: &Scenario) -> bool {
    let deployment = &scenario.deployment;
    let is_planned = deployment.planner.is_some();
    let by_others = match option {
        "max_num_seqs" | "max_model_len" => is_planned,
        "max_num_batched_tokens" => {
            let waits = deployment.routers().any(|router| router.fields.contains_key("queue_threshold"));
            is_planned || waits || pool.engine.capacity_source == CapacitySource::MemoryModel
        }
        _ => ACT_ANYWAY.contains(&option),
    };
    by_others || scheduler.uses().contains(&option)
}

/// Options that say something and that nobody goes by, and options that the scheduler says it goes by and that are none.
fn idle_options(scheduler: &dyn NewEngine, role: Role, pool: &Pool, scenario: &Scenario) -> Vec<String> {
    let (given, usual) = (fields(&pool.engine), fields(&EngineOptions::for_backend(pool.engine.backend)));
    let name = pool.engine.scheduler.as_ref().map_or("", |config| &config.policy);
    let key = format!("deployment.{}.engine", role.name());
    let unknown = scheduler.uses().iter().filter(|option| !usual.contains_key(**option));
    let unknown = unknown.map(|option| {
        format!("{key}.scheduler.policy: `{name}` says that it goes by `{option}`, which is no option of `engine:`")
    });
    let idle = given.iter().filter(|(option, value)| {
        usual.get(*option) != Some(value) && !acts(option, scheduler, pool, scenario)
    });
    let idle = idle.map(|(option, _)| {
        format!("{key}.{option}: has no effect with `scheduler: {name}`, which does not go by it")
    });
    unknown.chain(idle).collect()
}

fn fields(options: &EngineOptions) -> Map<String, Value> {
    match serde_json::to_value(options) {
        Ok(Value::Object(fields)) => fields,
        _ => Map::new(),
    }
}
