//! The schedulers of pools: the backend's own, or one that a pool names.

use serde_json::{Map, Value};

use super::assembly::pools;
use crate::config::scenario::{
    Backend, CapacitySource, Deployment, EngineOptions, PolicyConfig, Pool, Scenario,
};
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
            Ok(Some(scheduler)) => {
                problems.extend(idle_options(&*scheduler, (role, pool), scenario, registry));
            }
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
            let acts = |limit: &&str| acts(limit, &*scheduler, pool, scenario, registry);
            idle.extend(limits.filter(|limit| !acts(limit)).map(|limit| (role, limit)));
        }
    }
    idle
}

/// Whether anybody goes by an option of a pool with this scheduler.
fn acts(
    option: &str,
    scheduler: &dyn NewEngine,
    pool: &Pool,
    scenario: &Scenario,
    registry: &Registry,
) -> bool {
    let deployment = &scenario.deployment;
    let is_planned = deployment.planner.is_some();
    let by_others = match option {
        "max_num_seqs" | "max_model_len" => is_planned,
        "max_num_batched_tokens" => pass_limit_acts(pool, deployment, registry),
        _ => ACT_ANYWAY.contains(&option),
    };
    by_others || scheduler.uses().contains(&option)
}

/// Whether anybody but its scheduler goes by what a pass of a pool may compute.
fn pass_limit_acts(pool: &Pool, deployment: &Deployment, registry: &Registry) -> bool {
    let is_sized = pool.engine.capacity_source == CapacitySource::MemoryModel;
    is_sized || deployment.planner.is_some() || keeps_requests_waiting(deployment, registry)
}

/// Whether a router of a deployment keeps requests waiting by what a pass of a worker may compute.
pub fn keeps_requests_waiting(deployment: &Deployment, registry: &Registry) -> bool {
    let queues =
        |router: &PolicyConfig| registry.router(router).is_ok_and(|policy| policy.needs().queue.is_some());
    deployment.routers().any(queues)
}

/// Limits of passes that say something and that nobody goes by, a line each: SGLang bounds its passes by options of its own, and the
/// common limit is for those who look at it from outside.
pub fn idle_pass_limits(scenario: &Scenario, registry: &Registry) -> Vec<String> {
    let usual = EngineOptions::for_backend(Backend::Sglang).max_num_batched_tokens;
    let is_idle = |pool: &Pool| {
        pool.engine.backend == Backend::Sglang
            && pool.engine.scheduler.is_none()
            && pool.engine.max_num_batched_tokens != usual
            && !pass_limit_acts(pool, &scenario.deployment, registry)
    };
    let idle = pools(scenario).into_iter().filter(|(_, pool)| is_idle(pool));
    idle.map(|(role, _)| {
        format!(
            "deployment.{}.engine.max_num_batched_tokens: has no effect on the passes of `backend: sglang`, which \
             `sglang.max_prefill_tokens` bounds, nor on a router's waiting room, a planner or a memory model: there is none",
            role.name()
        )
    })
    .collect()
}

/// Options that say something and that nobody goes by, and options that the scheduler says it goes by and that are none.
fn idle_options(
    scheduler: &dyn NewEngine,
    (role, pool): (Role, &Pool),
    scenario: &Scenario,
    registry: &Registry,
) -> Vec<String> {
    let (given, usual) = (fields(&pool.engine), fields(&EngineOptions::for_backend(pool.engine.backend)));
    let name = pool.engine.scheduler.as_ref().map_or("", |config| &config.policy);
    let key = format!("deployment.{}.engine", role.name());
    let unknown = scheduler.uses().iter().filter(|option| !usual.contains_key(**option));
    let unknown = unknown.map(|option| {
        format!("{key}.scheduler.policy: `{name}` says that it goes by `{option}`, which is no option of `engine:`")
    });
    let idle = given.iter().filter(|(option, value)| {
        usual.get(*option) != Some(value) && !acts(option, scheduler, pool, scenario, registry)
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

#[cfg(test)]
mod tests {
    use std::path::Path;

    use serde::Deserialize;

    use super::*;
    use crate::config::{self, Document};
    use crate::serving::router::{
        Needs, PolicyContext, Queue, QueuePolicy, RequestView, Route, RoutingPolicy, WorkerView,
    };

    /// Keeps requests waiting, by a field of a name of its own.
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Patient {
        patience: Option<f64>,
    }

    impl RoutingPolicy for Patient {
        fn route(&mut self, _: &RequestView, workers: &[WorkerView], _: &mut PolicyContext<'_, '_>) -> Route {
            Route::To(workers[0].id)
        }

        fn needs(&self) -> Needs {
            let queue = self.patience.map(|threshold| Queue { threshold, policy: QueuePolicy::Fcfs });
            Needs { queue, ..Needs::default() }
        }
    }

    #[test]
    fn limits_that_sglang_does_not_go_by_are_told_of_unless_others_do() {
        let registry = Registry::builtin().with_router::<Patient>("patient");
        let told = |router: &str, planner: &str, pool: &str| {
            let text = format!(
                "{{deployment: {{mode: agg, router: {router}, planner: {planner}, agg: {{workers: 1, {pool}}}}}, workload: {{isl: \
                 100, osl: 5, request_rate: 1, num_request_ratio: 1}}}}"
            );
            match config::load(&text, Path::new("test.yaml"), &[]) {
                Ok(Document::Scenario(scenario)) => idle_pass_limits(&scenario, &registry),
                other => panic!("{other:?}"),
            }
        };
        let limited = "engine: {backend: sglang, max_num_batched_tokens: 100}";
        let idle = ["{policy: round_robin}", "{policy: kv_router}", "{policy: patient}"];
        for router in idle {
            let lines = told(router, "null", limited);
            assert!(
                lines[0].starts_with("deployment.agg.engine.max_num_batched_tokens: has no effect on"),
                "{lines:?}"
            );
            assert_eq!(told(router, "null", "engine: {backend: vllm, max_num_batched_tokens: 100}"), [""; 0]);
            assert_eq!(told(router, "null", "engine: {backend: sglang}"), [""; 0]);
        }
        for router in ["{policy: kv_router, queue_threshold: 2}", "{policy: patient, patience: 0.5}"] {
            assert_eq!(told(router, "null", limited), [""; 0], "{router}");
        }
        assert_eq!(told(idle[0], "load_180_5", limited), [""; 0]);
        let sized = format!("{limited}, memory: {{model_name: Qwen/Qwen3-32B, hardware_sku: h200_sxm}}");
        assert_eq!(told(idle[0], "null", &sized), [""; 0]);
    }
}
