//! Configurations and evaluators for the tests of this module.

use std::sync::Arc;

use serde_json::{Value, json};

use super::branch::Plan;
use super::objective::metric;
use super::refusal::Refusal;
use super::trial::Evaluation;
use crate::config::facts::FactFiles;
use crate::config::presets::{SCALING_POLICIES, ScalingPolicy};
use crate::config::scenario::{DeploymentMode, PolicyConfig, Scenario, TimingConfig};
use crate::config::search::{
    LoadShape, OptimizationGoal, OptimizationTarget, ParallelConfig, SearchSpace, SearchWorkload, Shape,
    SmartSearchConfig, SweepConfig, SyntheticRequests,
};
use crate::model::Catalogue;

/// A pinned layout of 2 workers with 4 GPUs each, and the default knobs: 9 engine points under each of 109 routers.
pub(crate) fn config() -> SmartSearchConfig {
    SmartSearchConfig {
        search_space: search_space(),
        workload: SearchWorkload {
            load: LoadShape::Concurrency {
                concurrency: 8,
                requests: SyntheticRequests {
                    isl: 64,
                    osl: 8,
                    num_request_ratio: 4.0,
                    shared_prefix_ratio: 0.0,
                    num_prefix_groups: 0,
                    turns_per_session: 1,
                    inter_turn_delay_ms: 0.0,
                },
            },
            strict: false,
        },
        goal: OptimizationGoal {
            target: OptimizationTarget::Throughput,
            sla: None,
            pareto_objectives: Vec::new(),
            min_attainment: None,
        },
        sweep: SweepConfig {
            max_rounds: 2,
            parallel_evals: 3,
            candidates_per_round: 3,
            random_seed: 1,
            max_eval_seconds: Some(600.0),
            max_eval_passes: None,
            sampler: PolicyConfig::named("random"),
            exhaustive: false,
            top: None,
            fidelity: None,
        },
        facts: FactFiles::default(),
    }
}

fn search_space() -> SearchSpace {
    let shape = Shape { tp: 4, attention_dp: 1, moe_tp: 1, moe_ep: 1, pp: 1, replicas: 2 };
    SearchSpace {
        deployment_mode: vec![DeploymentMode::Agg],
        parallel_configs: vec![ParallelConfig::Agg(shape)],
        timing: TimingConfig::Polynomial,
        prefill_max_num_seqs: vec![1, 2, 4],
        planner_scaling_policy: vec![ScalingPolicy::Builtin(SCALING_POLICIES[0].clone())],
        ..SearchSpace::with_defaults("a/model", "h200_sxm")
    }
}

/// Everything that fits of a model with a profile, under a budget, with one choice of every other knob.
pub(crate) fn profiled(
    model_name: &str,
    hardware_sku: &str,
    mode: DeploymentMode,
    gpu_budget: u32,
) -> SmartSearchConfig {
    let mut config = nine_points();
    config.search_space = SearchSpace {
        deployment_mode: vec![mode],
        gpu_budget,
        router_mode: vec![PolicyConfig::named("round_robin")],
        planner_scaling_policy: config.search_space.planner_scaling_policy,
        prefill_max_num_batched_tokens: vec![8192],
        prefill_max_num_seqs: vec![256],
        decode_max_num_seqs: vec![256],
        agg_max_num_batched_tokens: vec![8192],
        agg_max_num_seqs: vec![256],
        ..SearchSpace::with_defaults(model_name, hardware_sku)
    };
    config
}

/// The default configuration with the batching knobs only: 9 points.
pub(crate) fn nine_points() -> SmartSearchConfig {
    let mut config = config();
    config.search_space.router_mode = vec![PolicyConfig::named("round_robin")];
    config
}

/// A plan that must be possible.
pub(crate) fn plan(config: SmartSearchConfig) -> Plan {
    Plan::new(config, &Arc::new(Catalogue::bundled())).unwrap()
}

/// What stands in the way of a configuration.
pub(crate) fn refusals(config: SmartSearchConfig) -> Vec<Refusal> {
    Plan::new(config, &Arc::new(Catalogue::bundled())).unwrap_err()
}

/// A summary with this throughput.
pub(crate) fn throughput(tokens_per_second: f64) -> Evaluation {
    measured(json!({"output_throughput_tok_s": tokens_per_second}))
}

/// A summary with these figures.
pub(crate) fn measured(figures: Value) -> Evaluation {
    let Value::Object(metrics) = figures else { panic!("figures have names") };
    Evaluation::Measured(metrics)
}

/// A made-up throughput that depends on every knob, as a replay's would.
pub(crate) fn pretend_replay(scenario: &Scenario) -> Evaluation {
    let pool = scenario.deployment.agg.as_ref().unwrap();
    let router = &scenario.deployment.router;
    let weight = |name: &str, otherwise| metric(&router.fields, name).unwrap_or(otherwise);
    let credit = weight("overlap_score_credit", -1.0);
    let scale = weight("prefill_load_scale", 3.0).ln_1p();
    let temperature = weight("router_temperature", 0.1);
    let tokens = f64::from(pool.engine.max_num_batched_tokens.unwrap()) / 8192.0;
    let sequences = f64::from(pool.engine.max_num_seqs.unwrap());
    throughput(sequences * (1.0 + credit + scale - 2.0 * temperature) - tokens)
}
