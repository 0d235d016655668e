//! Deployments of the conformance cases.

use serde_json::{Map, Value};
use spica::config::scenario::{
    Backend, Deployment, DeploymentMode, EngineOptions, KvTransfer, PolicyConfig, Pool, PreemptionMode,
    Scenario, Sla, TimingConfig, WorkloadConfig, WorkloadSource, ZeroOutput,
};

/// One aggregated worker with the reference's defaults and no requests yet.
pub(crate) fn default_scenario() -> Scenario {
    let pool = Pool {
        workers: 1,
        dp_size: 1,
        tensor_parallel_size: 1,
        startup_time_s: 0.0,
        engine: EngineOptions::for_backend(Backend::Vllm),
        timing: TimingConfig::Polynomial,
    };
    Scenario {
        seed: 1,
        deployment: Deployment {
            mode: DeploymentMode::Agg,
            router: PolicyConfig::named("round_robin"),
            planner: None,
            agg: Some(pool),
            prefill: None,
            decode: None,
            kv_transfer: KvTransfer::default(),
        },
        workload: WorkloadConfig {
            source: WorkloadSource::Requests { requests: Vec::new(), block_size: 512 },
            concurrency: None,
            arrival_speedup_ratio: 1.0,
            zero_output: ZeroOutput::PrefillOnly,
            strict: false,
        },
        sla: None,
        max_sim_time_ms: None,
    }
}

/// The only pool of an aggregated scenario.
pub(crate) fn pool_mut(scenario: &mut Scenario) -> &mut Pool {
    scenario.deployment.agg.as_mut().expect("an aggregated scenario")
}

/// Changes engine options by their names in a scenario file; an unknown one is a mistake in the test.
pub(crate) fn set_engine(engine: &mut EngineOptions, options: &Map<String, Value>) {
    for (name, value) in options {
        let number = || whole(value);
        let flag = || value.as_bool().expect("true or false");
        match name.as_str() {
            "block_size" => engine.block_size = number(),
            "num_gpu_blocks" => engine.num_gpu_blocks = number(),
            "max_num_seqs" => engine.max_num_seqs = Some(number()),
            "max_num_batched_tokens" => engine.max_num_batched_tokens = Some(number()),
            "max_model_len" => engine.max_model_len = Some(number()),
            "enable_prefix_caching" => engine.enable_prefix_caching = flag(),
            "enable_chunked_prefill" => engine.enable_chunked_prefill = flag(),
            "preemption_mode" => {
                engine.preemption_mode = match value.as_str() {
                    Some("lifo") => PreemptionMode::Lifo,
                    Some("fifo") => PreemptionMode::Fifo,
                    _ => panic!("{name}: {value}"),
                }
            }
            "speedup_ratio" => engine.speedup_ratio = ratio(value),
            "decode_speedup_ratio" => engine.decode_speedup_ratio = ratio(value),
            _ => panic!("no such engine option here: {name}"),
        }
    }
}

/// A whole number of a test file.
pub(crate) fn whole(value: &Value) -> u32 {
    value.as_u64().and_then(|number| u32::try_from(number).ok()).expect("a whole number")
}

/// A number of a test file.
pub(crate) fn ratio(value: &Value) -> f64 {
    value.as_f64().expect("a number")
}

/// A timing section of a scenario file.
pub(crate) fn timing(section: &Value) -> TimingConfig {
    let ms = |key: &str| section[key].as_f64().unwrap_or_else(|| panic!("timing.{key}"));
    match section["model"].as_str() {
        Some("polynomial") => TimingConfig::Polynomial,
        Some("fixed") => TimingConfig::Fixed { prefill_ms: ms("prefill_ms"), decode_ms: ms("decode_ms") },
        _ => panic!("no such timing here: {section}"),
    }
}

/// An `sla` section of a scenario file.
pub(crate) fn sla(section: &Value) -> Sla {
    let bound = |key: &str| section.get(key).map(|ms| ms.as_f64().expect("a bound in milliseconds"));
    Sla { ttft_ms: bound("ttft_ms"), itl_ms: bound("itl_ms"), e2e_ms: bound("e2e_ms") }
}
