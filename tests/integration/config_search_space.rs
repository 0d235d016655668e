//! Search configurations: the search space.

use spica::config::presets::{PredictorFamily, ScalingPolicy};
use spica::config::scenario::{
    DeploymentMode, MixedPasses, PolicyConfig, PricedModel, ProfileConfig, TimingConfig,
};
use spica::config::search::{ParallelConfig, Shape};

use crate::config::{SEARCH, assert_refused, problems, search};

#[test]
fn numbers_have_bounds() {
    for (path, value, word) in [
        ("search_space.gpu_budget", "0", "1 or more"),
        ("search_space.gpu_budget", "-8", "1 or more"),
        ("search_space.gpu_budget", "4294967296", "at most 100000"),
        ("search_space.min_gpu_budget", "0", "1 or more"),
        ("search_space.min_gpu_budget", "33", "more than `gpu_budget`, which is 32"),
        ("search_space.min_endpoint", "-1", "0 or more"),
        ("search_space.context_length", "0", "1 or more"),
        ("search_space.startup_time", "-1", "0 or more"),
        ("search_space.startup_time", "500ms", "`startup_time: 0.5`"),
        ("search_space.aic_nextn", "0", "1 or more"),
        ("search_space.aic_nextn", "6", "at most 5"),
        ("search_space.num_gpu_blocks", "0", "1 or more"),
        ("search_space.agg_block_size", "1", "2 or more"),
        ("search_space.prefill_gpu_memory_utilization", "0", "above 0"),
        ("search_space.decode_gpu_memory_utilization", "1.1", "at most 1"),
        ("search_space.num_g2_blocks", "-1", "0 or more"),
        ("sweep.max_rounds", "0", "1 or more"),
        ("sweep.parallel_evals", "0", "1 or more"),
        ("sweep.candidates_per_round", "0", "1 or more"),
        ("sweep.max_eval_seconds", "0", "above 0"),
        ("sweep.max_eval_passes", "0", "1 or more"),
        ("sweep.random_seed", "-1", "0 or more"),
        ("sweep.random_seed", "1.5", "not a whole number"),
        ("sweep.fidelity", "3", "keys with values"),
        ("sweep.fidelity", "{keep: 0.5}", "`rows: [500, 2000]` or `fractions: [0.1, 0.3]`"),
        ("sweep.fidelity", "{rows: [5], fractions: [0.5]}", "not both"),
        ("sweep.fidelity.rows", "[5]", "write `fractions`"),
        ("sweep.fidelity.fractions", "[]", "at least one"),
    ] {
        assert_refused(SEARCH, &[&format!("{path}={value}")], path, &[word]);
    }
    let sglang = ["search_space.backend=[sglang]", "search_space.agg_block_size=1"];
    assert_eq!(search(&sglang).search_space.agg_block_size, 1);
    assert_refused(
        SEARCH,
        &["search_space.prefill_block_size=16"],
        "search_space.prefill_block_size",
        &["16", "`decode_block_size: 64`"],
    );
    let agg = ["search_space.prefill_block_size=16", "search_space.deployment_mode=[agg]"];
    assert_eq!(search(&agg).search_space.prefill_block_size, 16);
}

#[test]
fn lists_hold_allowed_choices_only() {
    for (key, value, word) in [
        ("deployment_mode", "[]", "at least one choice"),
        ("deployment_mode", "[aggregated]", "one of: disagg, agg"),
        ("deployment_mode", "agg", "write `deployment_mode: [agg]`"),
        ("backend", "vllm", "write `backend: [vllm]`"),
        ("agg_max_num_seqs", "256", "write `agg_max_num_seqs: [256]`"),
        ("agg_max_num_seqs", "[]", "at least one choice"),
        ("overlap_score_credit", "0.5", "write `overlap_score_credit: [0.5]`"),
        ("router_mode", "kv_router", "write `router_mode: [kv_router]`"),
        ("planner_scaling_policy", "[]", "at least one choice"),
    ] {
        let path = format!("search_space.{key}");
        let words = [if value == "[aggregated]" { "did you mean `agg`? One of: disagg, agg" } else { word }];
        let found = problems(SEARCH, &[&format!("{path}={value}")]);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].contains(&path) && found[0].contains(words[0]), "{found:?}");
    }
    for (key, value, words) in [
        ("backend", "vlm", ["`vlm`", "did you mean `vllm`? One of: vllm, sglang, trtllm"]),
        ("agg_max_num_seqs", "3", ["invalid choice `3`", "256, 512, 1024"]),
        ("decode_max_num_batched_tokens", "16384", ["invalid choice", "8192"]),
        ("prefill_load_scale", "3", ["invalid choice", "0.25"]),
        ("router_temperature", "-0.5", ["out of range", "0 or more"]),
        ("overlap_score_credit", "{a: 1}", ["a mapping", "one finite number"]),
        ("planner_fpm_sampling", "tiny", ["invalid choice `tiny`", "small, default, large, fine"]),
        ("load_predictor_candidates", "arima", ["did you mean `arima_raw`?", "constant_last"]),
    ] {
        let path = format!("search_space.{key}");
        assert_refused(SEARCH, &[&format!("{path}=[{value}]")], &format!("{path}[0]"), &words);
    }
    let twice = search(&["search_space.deployment_mode=[agg, disagg, agg]"]);
    assert_eq!(twice.search_space.deployment_mode, [DeploymentMode::Agg, DeploymentMode::Disagg]);
}

#[test]
fn host_offload_needs_the_size_of_a_token() {
    let offload = "search_space.num_g2_blocks=128";
    assert_refused(SEARCH, &[offload], "search_space.kv_bytes_per_token", &["required", "num_g2_blocks"]);
    let sized = search(&[offload, "search_space.kv_bytes_per_token=1000"]);
    assert_eq!((sized.search_space.num_g2_blocks, sized.search_space.kv_bytes_per_token), (128, Some(1000)));
    for value in ["0", "-1"] {
        let size = format!("search_space.kv_bytes_per_token={value}");
        assert_refused(SEARCH, &[offload, &size], "search_space.kv_bytes_per_token", &["1 or more"]);
    }
}

#[test]
fn admission_control_and_the_cost_based_router_exclude_each_other() {
    for (key, value) in [
        ("active_decode_blocks_threshold", "5"),
        ("active_prefill_tokens_threshold", "5"),
        ("active_prefill_tokens_threshold_frac", "0.5"),
        ("no_admission_control", "true"),
    ] {
        let (path, change) = (format!("search_space.{key}"), format!("search_space.{key}={value}"));
        assert_refused(SEARCH, &[&change], &path, &["not supported by the replay"]);
        search(&[&change, "search_space.router_mode=[round_robin]"]);
    }
}

#[test]
fn routers_are_names_or_mappings() {
    let config = search(&["search_space.router_mode=[{policy: kv_router, queue_threshold: 2}, my_router]"]);
    let routers = &config.search_space.router_mode;
    assert_eq!(routers[0].fields["queue_threshold"], 2);
    assert_eq!(routers[1], PolicyConfig::named("my_router"));
    assert_eq!(routers[1].location, "search_space.router_mode[1]");
    assert_refused(
        SEARCH,
        &["search_space.router_mode=[{a: 1}]"],
        "search_space.router_mode[0]",
        &["`policy`"],
    );
    assert_refused(
        SEARCH,
        &["search_space.router_mode=[3]"],
        "search_space.router_mode[0]",
        &["not a policy"],
    );
}

#[test]
fn presets_stand_for_their_settings() {
    let space = search(&[]).search_space;
    let settings: Vec<_> = space
        .planner_scaling_policy
        .iter()
        .map(|policy| {
            let settings = policy.settings().expect("is a preset");
            (
                settings.enable_throughput_scaling,
                settings.enable_load_scaling,
                settings.throughput_adjustment_interval_seconds,
                settings.load_adjustment_interval_seconds,
            )
        })
        .collect();
    let expected = [
        (false, false, None, None),
        (true, false, Some(180), Some(5)),
        (true, false, Some(600), Some(5)),
        (false, true, Some(180), Some(5)),
        (false, true, Some(180), Some(10)),
        (true, true, Some(180), Some(5)),
        (true, true, Some(600), Some(5)),
    ];
    assert_eq!(settings, expected);
    let sampling: Vec<_> = space
        .planner_fpm_sampling
        .iter()
        .map(|preset| (preset.values.max_num_fpm_samples, preset.values.fpm_sample_bucket_size))
        .collect();
    assert_eq!(sampling, [(32, 4), (64, 16), (128, 16), (128, 64)]);
    let sensitivity: Vec<_> = space
        .planner_load_sensitivity
        .iter()
        .map(|preset| (preset.values.load_scaling_down_sensitivity, preset.values.load_min_observations))
        .collect();
    assert_eq!(sensitivity, [(70, 3), (80, 5), (90, 8)]);
    let reactive = &space.load_predictor_candidates[10];
    assert_eq!(reactive.name, Some("kalman_reactive_log1p"));
    assert_eq!(reactive.values.load_predictor, PredictorFamily::Kalman);
    assert_eq!((reactive.values.kalman_q_level, reactive.values.kalman_min_points), (10.0, 3));
}

#[test]
fn composite_mappings_give_every_setting() {
    let policy = "search_space.planner_scaling_policy";
    let all = "enable_throughput_scaling: true, enable_load_scaling: true, \
               throughput_adjustment_interval_seconds: 60";
    let refused = |entry: &str, key: &str, word: &str| {
        let path = if key.is_empty() { format!("{policy}[0]") } else { format!("{policy}[0].{key}") };
        assert_refused(SEARCH, &[&format!("{policy}=[{{{entry}}}]")], &path, &[word]);
    };
    refused(all, "load_adjustment_interval_seconds", "required key is missing");
    refused(
        &format!("{all}, load_adjustment_interval_seconds: 0"),
        "load_adjustment_interval_seconds",
        "1 or more",
    );
    refused(
        &format!("{all}, load_adjustment_interval_seconds: 60"),
        "load_adjustment_interval_seconds",
        "not below",
    );
    refused(
        &format!("{all}, load_adjustment_interval_seconds: null"),
        "load_adjustment_interval_seconds",
        "missing",
    );
    refused(&format!("{all}, load_adjustment_interval_seconds: 5, x: 1"), "x", "unknown key");
    let good = search(&[&format!("{policy}=[{{{all}, load_adjustment_interval_seconds: 5}}]")]);
    let ScalingPolicy::Builtin(preset) = &good.search_space.planner_scaling_policy[0] else {
        panic!("is built in")
    };
    assert_eq!(preset.name, None);
    assert!(good.search_space.planner_scaling_policy[0].scales());
    assert_eq!(problems(SEARCH, &[&format!("{policy}=[{{}}]")]).len(), 4, "an empty mapping lacks all four");

    let off = "{enable_throughput_scaling: false, enable_load_scaling: false, \
               throughput_adjustment_interval_seconds: null, load_adjustment_interval_seconds: null}";
    assert!(!search(&[&format!("{policy}=[{off}]")]).search_space.planner_scaling_policy[0].scales());

    let registered = search(&[&format!("{policy}=[{{policy: mine, gain: 2}}, other]")]);
    let ScalingPolicy::Registered(mine) = &registered.search_space.planner_scaling_policy[0] else {
        panic!("is known to the registry only");
    };
    assert_eq!((mine.policy.as_str(), &mine.fields["gain"]), ("mine", &serde_json::json!(2)));
}

#[test]
fn composite_settings_have_bounds() {
    for (key, entry, inner, word) in [
        (
            "planner_fpm_sampling",
            "max_num_fpm_samples: 8, fpm_sample_bucket_size: 5",
            "fpm_sample_bucket_size",
            "4 and 9",
        ),
        ("planner_fpm_sampling", "max_num_fpm_samples: 8", "fpm_sample_bucket_size", "missing"),
        (
            "planner_fpm_sampling",
            "max_num_fpm_samples: 0, fpm_sample_bucket_size: 4",
            "max_num_fpm_samples",
            "1 or more",
        ),
        (
            "planner_load_sensitivity",
            "load_scaling_down_sensitivity: 101, load_min_observations: 1",
            "load_scaling_down_sensitivity",
            "at most 100",
        ),
        (
            "planner_load_sensitivity",
            "load_scaling_down_sensitivity: 50, load_min_observations: 0",
            "load_min_observations",
            "1 or more",
        ),
        (
            "load_predictor_candidates",
            "load_predictor: lstm",
            "load_predictor",
            "constant, arima, prophet, kalman",
        ),
        ("load_predictor_candidates", "prophet_window_size: 5", "load_predictor", "missing"),
        ("load_predictor_candidates", "load_predictor: kalman, kalman_r: -1", "kalman_r", "0 or more"),
    ] {
        let path = format!("search_space.{key}[0].{inner}");
        assert_refused(SEARCH, &[&format!("search_space.{key}=[{{{entry}}}]")], &path, &[word]);
    }
    let kalman = search(&["search_space.load_predictor_candidates=[{load_predictor: kalman}]"]);
    let values = kalman.search_space.load_predictor_candidates[0].values;
    assert_eq!((values.kalman_q_level, values.kalman_q_trend, values.kalman_r), (1.0, 0.1, 10.0));
    assert_eq!(
        (values.prophet_window_size, values.kalman_min_points, values.load_predictor_log1p),
        (50, 5, false)
    );
}

#[test]
fn layouts_belong_to_exactly_one_mode() {
    let pinned = |mode: &str, layouts: &str| {
        [format!("search_space.deployment_mode={mode}"), format!("search_space.parallel_configs={layouts}")]
    };
    let refused = |mode: &str, layouts: &str, path: &str, word: &str| {
        let [mode, layouts] = pinned(mode, layouts);
        assert_refused(SEARCH, &[&mode, &layouts], &format!("search_space.{path}"), &[word]);
    };
    refused("[agg, disagg]", "[{tp: 4}]", "parallel_configs", "exactly one mode");
    refused("[agg, agg]", "[{tp: 4}]", "parallel_configs", "exactly one mode");
    refused("[agg]", "[{attention_dp: 4}]", "parallel_configs[0].tp", "required key is missing");
    refused("[agg]", "[{tp: 4, dp: 2}]", "parallel_configs[0].dp", "did you mean `attention_dp`?");
    refused("[agg]", "[{tp: 4, replica: 2}]", "parallel_configs[0].replica", "did you mean `replicas`?");
    refused("[agg]", "[{tp: 1, prefill: {}}]", "parallel_configs[0].prefill", "shapes without roles");
    refused(
        "[disagg]",
        "[{tp: 1, prefill: {tp: 1}, decode: {tp: 1}}]",
        "parallel_configs[0].tp",
        "{prefill:",
    );
    refused("[agg]", "[{tp: 0}]", "parallel_configs[0].tp", "1 or more");
    refused("[agg]", "[{tp: 4, replicas: -1}]", "parallel_configs[0].replicas", "1 or more");
    refused("[disagg]", "[{prefill: {tp: 1}}]", "parallel_configs[0].decode", "required key is missing");
    let [mode, layouts] = pinned("[agg]", "[{tp: 4, replicas: 2}]");
    let shape = Shape { tp: 4, attention_dp: 1, moe_tp: 1, moe_ep: 1, pp: 1, replicas: 2 };
    assert_eq!(search(&[&mode, &layouts]).search_space.parallel_configs, [ParallelConfig::Agg(shape)]);
    let [mode, layouts] =
        pinned("[disagg]", "[{prefill: {tp: 4, replicas: 2}, decode: {tp: 4, replicas: 2}}]");
    let pair = ParallelConfig::Disagg { prefill: shape, decode: shape };
    assert_eq!(search(&[&mode, &layouts]).search_space.parallel_configs, [pair]);
    assert_eq!(search(&["search_space.parallel_configs=[]"]).search_space.parallel_configs, []);
}

#[test]
fn timing_decides_where_the_cache_size_comes_from() {
    let fixed = search(&["search_space.timing={model: fixed, prefill_ms: 10, decode_ms: 2}"]);
    assert_eq!(fixed.search_space.num_gpu_blocks, Some(16384));
    assert_eq!(search(&["search_space.timing={model: polynomial}"]).search_space.num_gpu_blocks, Some(16384));
    let share = "search_space.decode_gpu_memory_utilization=0.8";
    search(&[share]);
    let pinned = [share, "search_space.num_gpu_blocks=100"];
    assert_refused(
        SEARCH,
        &pinned,
        "search_space.decode_gpu_memory_utilization",
        &["`num_gpu_blocks`, which is 100"],
    );
    search(&[share, "search_space.num_gpu_blocks=100", "search_space.deployment_mode=[agg]"]);
    let travel = ["search_space.deployment_mode=[agg]", "search_space.kv_transfer.latency_ms=3"];
    assert_refused(SEARCH, &travel, "search_space.kv_transfer", &["`disagg`"]);
    let given = ["search_space.timing={model: polynomial}", "search_space.num_gpu_blocks=100"];
    assert_eq!(search(&given).search_space.num_gpu_blocks, Some(100));
    let profile = search(&[
        "search_space.backend_version=0.19",
        "search_space.timing={model: profile, mixed_passes: summed}",
    ]);
    let TimingConfig::Profile(ProfileConfig {
        of: PricedModel { model_name, mixed_passes, .. },
        backend_version,
        ..
    }) = profile.search_space.timing
    else {
        panic!("is a profile");
    };
    assert_eq!(model_name.as_deref(), Some("Qwen/Qwen3-32B"));
    assert_eq!((backend_version.as_deref(), mixed_passes), (Some("0.19"), Some(MixedPasses::Summed)));
    let path = "search_space.backend_version";
    let both =
        ["search_space.backend_version=1.0", "search_space.timing={model: profile, backend_version: 2.0}"];
    assert_refused(SEARCH, &both, path, &["differs"]);
    let inert = ["search_space.backend_version=1.0", "search_space.timing={model: polynomial}"];
    assert_refused(SEARCH, &inert, path, &["has no effect"]);
}
