use serde_json::json;

use super::*;
use crate::config::presets::SCALING_POLICIES;
use crate::config::scenario::{MixedPasses, Sla, UnevenPrompts};
use crate::config::search::{KvLoadRatio, OptimizationTarget};
use crate::search::test_support::{config, plan, profiled};

fn branch() -> Branch {
    plan(config()).branches.remove(0)
}

/// One layout, one router, one batch and every scaling policy.
fn scaling(target: OptimizationTarget) -> Branch {
    let mut config = config();
    let space = &mut config.search_space;
    space.router_mode = vec![PolicyConfig::named("round_robin")];
    space.agg_max_num_batched_tokens = vec![8192];
    space.agg_max_num_seqs = vec![256];
    space.planner_scaling_policy = SCALING_POLICIES.map(ScalingPolicy::Builtin).to_vec();
    space.min_endpoint = Some(2);
    space.startup_time = Some(40.0);
    config.goal.target = target;
    config.goal.sla = Some(Sla { ttft_ms: Some(2000.0), itl_ms: Some(30.0), e2e_ms: None });
    plan(config).branches.remove(0)
}

#[test]
fn knobs_of_planners_vary_where_they_reach_one() {
    // Two policies that scale ahead of traffic, two after load and two that do both: 2 x 4 + 2 x 3 + 2 x 4 x 3.
    let branch = scaling(OptimizationTarget::GoodputPerGpu);
    assert_eq!(branch.space.size(), 1 + 8 + 6 + 24);
    let all: Vec<_> = (0..39).map(|index| branch.unroll(&branch.space.point(index)).unwrap()).collect();
    let keys: std::collections::BTreeSet<_> = all.iter().map(Unrolled::key).collect();
    assert_eq!(keys.len(), 39, "no two points are the same replay");
    // Fixed thresholds have no such knobs, and no forecasts.
    assert_eq!(scaling(OptimizationTarget::Throughput).space.size(), 3);
}

#[test]
fn planners_are_told_what_the_search_chooses() {
    let branch = scaling(OptimizationTarget::GoodputPerGpu);
    let named = |name: &str| {
        let points = (0..branch.space.size()).map(|index| branch.unroll(&branch.space.point(index)).unwrap());
        points.into_iter().find(|point| point.config["planner_scaling_policy"] == name).unwrap()
    };
    let hybrid = named("hybrid_180_5");
    assert_eq!(
        Value::Object(hybrid.scenario.deployment.planner.unwrap().fields),
        json!({
            "optimization_target": "sla", "enable_throughput_scaling": true, "enable_load_scaling": true,
            "ttft_ms": 2000.0, "itl_ms": 30.0, "throughput_adjustment_interval_seconds": 180,
            "load_adjustment_interval_seconds": 5, "max_num_fpm_samples": 32, "fpm_sample_bucket_size": 4,
            "load_scaling_down_sensitivity": 70, "load_min_observations": 3, "max_gpu_budget": 32,
            "min_endpoint": 2,
        })
    );
    assert_eq!(hybrid.config["load_scaling_down_sensitivity"], 70);
    assert_eq!(hybrid.scenario.deployment.agg.unwrap().startup_time_s, 40.0);
    let load = named("load_180_10").scenario.deployment.planner.unwrap().fields;
    assert!(!load.contains_key("max_num_fpm_samples") && load["load_min_observations"] == 3, "{load:?}");
    let fixed = named("disabled").scenario.deployment;
    assert_eq!((fixed.planner, fixed.agg.unwrap().startup_time_s), (None, 0.0));
}

/// What is written of a candidate is read again.
#[test]
fn chunks_of_sglang_are_whole_blocks() {
    let chunk = |backend| {
        let mut config = config();
        config.search_space.backend = vec![backend];
        config.search_space.agg_block_size = 48;
        let branch = plan(config).branches.remove(0);
        branch.unroll(&branch.space.point(0)).unwrap().scenario.deployment.agg.unwrap().engine.sglang
    };
    assert_eq!(chunk(Backend::Sglang).chunked_prefill_size, 170 * 48);
    assert_eq!(chunk(Backend::Vllm), SglangOptions::default());
}

/// The first points of the canonical order use the first router with each of its weights, the last use the other.
fn first_and_last(branch: &Branch) -> [Unrolled; 2] {
    [0, branch.space.size() - 1].map(|index| branch.unroll(&branch.space.point(index)).unwrap())
}

#[test]
fn the_flat_settings_come_in_a_fixed_order_without_those_that_do_not_apply() {
    let [with_weights, without] = first_and_last(&branch());
    let expected = json!({
        "deployment_mode": "agg", "backend": "vllm",
        "model_name": "a/model", "hardware_sku": "h200_sxm", "gpu_budget": 32, "min_gpu_budget": null,
        "min_endpoint": null, "context_length": null, "startup_time": null, "aic_nextn": null,
        "num_g2_blocks": 0, "kv_bytes_per_token": null, "bandwidth_g1_to_g2_gbps": null,
        "bandwidth_g2_to_g1_gbps": null, "offload_batch_size": null,
        "tp": 4, "pp": 1, "attention_dp": 1, "moe_tp": 1, "moe_ep": 1, "strategy": "tp",
        "replicas": 2, "used_gpus": 8,
        "agg_max_num_batched_tokens": 8192, "agg_max_num_seqs": 256,
        "agg_block_size": 64, "agg_gpu_memory_utilization": 0.9, "agg_enable_prefix_caching": true,
        "router_mode": "kv_router",
        "overlap_score_credit": 0.0, "prefill_load_scale": 0.0, "router_temperature": 0.0,
        "active_decode_blocks_threshold": null, "active_prefill_tokens_threshold": null,
        "active_prefill_tokens_threshold_frac": null, "no_admission_control": false,
        "planner_scaling_policy": "disabled", "enable_throughput_scaling": false, "enable_load_scaling": false,
        "concurrency": 8,
    });
    let text = |map: &Map<String, Value>| serde_json::to_string(map).unwrap();
    assert_eq!(text(&with_weights.config), text(expected.as_object().unwrap()));

    let mut expected = expected.as_object().unwrap().clone();
    for name in [
        "overlap_score_credit",
        "prefill_load_scale",
        "router_temperature",
        "active_decode_blocks_threshold",
        "active_prefill_tokens_threshold",
        "active_prefill_tokens_threshold_frac",
        "no_admission_control",
    ] {
        expected.shift_remove(name);
    }
    expected.insert("router_mode".into(), "round_robin".into());
    expected.insert("agg_max_num_batched_tokens".into(), 32768.into());
    expected.insert("agg_max_num_seqs".into(), 1024.into());
    assert_eq!(text(&without.config), text(&expected));
}

#[test]
fn the_scenario_says_what_the_settings_say() {
    let [with_weights, without] = first_and_last(&branch());
    let deployment = &without.scenario.deployment;
    assert_eq!(deployment.router, PolicyConfig::named("round_robin"));
    let pool = deployment.agg.as_ref().unwrap();
    assert_eq!((pool.workers, pool.dp_size, pool.tensor_parallel_size), (2, 1, 4));
    assert_eq!(pool.engine.max_num_seqs, Some(1024));
    assert_eq!(pool.engine.max_num_batched_tokens, Some(32768));
    assert_eq!(pool.engine.num_gpu_blocks, EngineOptions::DEFAULT_NUM_GPU_BLOCKS);
    assert_eq!(without.scenario.workload.concurrency, Some(8));
    let router = &with_weights.scenario.deployment.router;
    assert_eq!(
        Value::Object(router.fields.clone()),
        json!({
            "overlap_score_credit": 0.0, "prefill_load_scale": 0.0, "router_temperature": 0.0
        })
    );
}

#[test]
fn a_router_with_a_weight_of_its_own_does_not_take_it_from_the_search() {
    let mut config = config();
    config.search_space.router_mode.truncate(1);
    config.search_space.router_mode[0].fields.insert("prefill_load_scale".into(), json!(3.0));
    let branch = plan(config).branches.remove(0);
    assert_eq!(branch.space.size(), 3 * 4 * 9);
    let unrolled = branch.unroll(&branch.space.point(0)).unwrap();
    assert_eq!(unrolled.scenario.deployment.router.fields["prefill_load_scale"], json!(3.0));
    assert_eq!(unrolled.config["router_mode"], json!({"policy": "kv_router", "prefill_load_scale": 3.0}));
    assert!(!unrolled.config.contains_key("prefill_load_scale"));
}

#[test]
fn a_range_of_loads_is_a_knob_of_even_steps() {
    let mut config = config();
    let LoadShape::Concurrency { requests, .. } = config.workload.load else { unreachable!() };
    config.workload.load = LoadShape::KvLoad { kv_load_ratio: KvLoadRatio::Range([0.2, 0.6]), requests };
    let branch = plan(config).branches.remove(0);
    assert_eq!(branch.space.size(), 9 * 109 * 101);
    let ratios = &branch.space.dimensions().last().unwrap().choices;
    assert_eq!([&ratios[0], &ratios[50], &ratios[100]], [&json!(0.2), &json!(0.4), &json!(0.6)]);
    let last = branch.unroll(&branch.space.point(branch.space.size() - 1)).unwrap();
    assert_eq!(last.config["kv_load_ratio"], json!(0.6));
    let fits = last.config["kv_load_concurrency_capacity"].as_f64().unwrap();
    let concurrency = last.scenario.workload.concurrency.map(f64::from);
    assert_eq!(concurrency, Some((0.6 * fits).trunc()));
}

#[test]
fn what_passes_pay_is_said_where_prompts_are_computed() {
    let pools = |mixed_passes| {
        let mut config = profiled("MiniMaxAI/MiniMax-M2.5", "b200_sxm", DeploymentMode::Disagg, 8);
        match &mut config.search_space.timing {
            TimingConfig::Profile(profile) => profile.of.mixed_passes = mixed_passes,
            other => panic!("{other:?} is no profile"),
        }
        let branch = plan(config).branches.remove(0);
        let first = branch.unroll(&branch.space.point(0)).unwrap();
        let deployment = &first.scenario.deployment;
        let pays = |pool: &Option<Pool>| {
            let priced = pool.as_ref().unwrap().timing.priced().unwrap();
            (priced.mixed_passes, priced.uneven_prompts)
        };
        (pays(&deployment.prefill), pays(&deployment.decode), first.key())
    };
    let (prefill, decode, key) = pools(None);
    assert_eq!(prefill, (Some(MixedPasses::Shared), Some(UnevenPrompts::Each)));
    assert_eq!(decode, (None, None), "they compute no prompts");
    assert_eq!(
        pools(Some(MixedPasses::Shared)).2,
        key,
        "saying what would be so anyway is no other evaluation"
    );
    let (prefill, _, other) = pools(Some(MixedPasses::Summed));
    assert_eq!(prefill, (Some(MixedPasses::Summed), Some(UnevenPrompts::Mean)));
    assert_ne!(other, key);
}
