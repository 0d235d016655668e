//! Reads a search configuration.

use super::facts::FactFiles;
use super::numbers::Limit;
use super::read_composite::{fpm_sampling, load_predictor, load_sensitivity, scaling_policy};
use super::read_engine::{
    MOST_DRAFT_TOKENS, MOST_TOKENS, MOST_WORKERS, excess_of_ranks, least_block_size, scheduler,
};
use super::read_facts::facts;
use super::read_scenario::{MOST_BYTES_PER_TOKEN, kv_transfer_of_model, sla};
use super::read_timing::{Timing, timing};
use super::read_workload::search_workload;
use super::reader::Section;
use super::scenario::{DeploymentMode, EngineOptions, PricedModel, ProfileConfig, Sla, TimingConfig};
use super::search::{
    Fidelity, OptimizationGoal, OptimizationTarget, ParallelConfig, SearchSpace, SearchWorkload, Shape,
    SmartSearchConfig, SweepConfig,
};
use super::value::{Value, name_of};

/// `None` after a problem that leaves nothing to fill in.
pub(super) fn search(root: &Section<'_>) -> Option<SmartSearchConfig> {
    let search_space = root.section("search_space", search_space).required();
    let scenario = "belongs to a scenario; with a `search_space` the file is a search configuration";
    root.refuse("deployment", scenario);
    let goal = root.section("goal", goal).or_else(|| Some(OptimizationGoal::default()));
    // With a target that cannot be read there is no telling whether a range was right: it may stand.
    let pareto = goal.as_ref().is_none_or(|goal| goal.target == OptimizationTarget::Pareto);
    let workload = root.section("workload", |section| search_workload(section, pareto)).required().flatten();
    // A workload that cannot be read may have been a trace.
    let has_rows = workload.as_ref().is_none_or(SearchWorkload::is_trace_based);
    let sweep = root.section("sweep", |section| sweep(section, has_rows)).or_else(SweepConfig::default);
    let facts = root.section("facts", facts).or_else(FactFiles::default);
    Some(SmartSearchConfig { search_space: search_space?, workload: workload?, goal: goal?, sweep, facts })
}

fn search_space(section: &Section<'_>) -> SearchSpace {
    let model_name = section.text("model_name").required().unwrap_or_default();
    let hardware_sku = section.text("hardware_sku").required().unwrap_or_default();
    let mut space = SearchSpace::with_defaults(&model_name, &hardware_sku);
    deployment_knobs(section, &mut space);
    parallel_configs(section, &mut space);
    engine_knobs(section, &mut space);
    offload_knobs(section, &mut space);
    router_knobs(section, &mut space);
    planner_knobs(section, &mut space);
    space
}

fn deployment_knobs(section: &Section<'_>, space: &mut SearchSpace) {
    section.read("backend", |value| value.list(|entry| entry.choice())).set(&mut space.backend);
    section.integer("gpu_budget", 1..=MOST_WORKERS).set(&mut space.gpu_budget);
    space.min_gpu_budget = section.integer("min_gpu_budget", 1..=MOST_WORKERS).optional();
    if let Some(least) = space.min_gpu_budget.filter(|least| *least > space.gpu_budget) {
        let message =
            format!("`min_gpu_budget: {least}` is more than `gpu_budget`, which is {}", space.gpu_budget);
        section.problem_between(&["gpu_budget", "min_gpu_budget"], message);
    }
    space.min_endpoint = section.integer("min_endpoint", 0..=MOST_WORKERS).optional();
    space.context_length = section.integer("context_length", 1..=u32::MAX).optional();
    space.startup_time = section.float("startup_time", Limit::Seconds).optional();
    space.aic_nextn = section.integer("aic_nextn", 1..=MOST_DRAFT_TOKENS).optional();
    space.backend_version = section.text("backend_version").optional();
    section.section("kv_transfer", kv_transfer_of_model).set(&mut space.kv_transfer);
    pricing(section, space);
}

/// The timing, completed from the rest of the search space, and the cache that goes with it.
fn pricing(section: &Section<'_>, space: &mut SearchSpace) {
    let given = section.read("timing", |value| timing(&value, Timing::OfSearch)).optional();
    let named = |given: PricedModel, space: &SearchSpace| PricedModel {
        model_name: given.model_name.or_else(|| Some(space.model_name.clone())),
        hardware_sku: given.hardware_sku.or_else(|| Some(space.hardware_sku.clone())),
        ..given
    };
    space.timing = match given {
        Some(TimingConfig::Profile(given)) => {
            if let (Some(of_timing), Some(of_space)) = (&given.backend_version, &space.backend_version)
                && of_timing != of_space
            {
                let message = format!("`{of_space}` differs from `{of_timing}` in `timing.backend_version`");
                section.problem_between(&["timing.backend_version", "backend_version"], message);
            }
            TimingConfig::Profile(ProfileConfig {
                of: named(given.of, space),
                backend_version: given.backend_version.or_else(|| space.backend_version.clone()),
                ..given
            })
        }
        Some(TimingConfig::Roofline(given)) => TimingConfig::Roofline(named(given, space)),
        Some(other) => other,
        None => SearchSpace::profile(space),
    };
    space.timing.settle(Some(EngineOptions::default().first_token_decode));
    space.num_gpu_blocks = section.integer("num_gpu_blocks", 1..=u32::MAX).optional();
    let sized = matches!(space.timing, TimingConfig::Profile(_) | TimingConfig::Roofline(_));
    if space.num_gpu_blocks.is_none() && !sized {
        space.num_gpu_blocks = Some(EngineOptions::DEFAULT_NUM_GPU_BLOCKS);
    }
}

/// The modes, and the layouts that belong to exactly one of them.
fn parallel_configs(section: &Section<'_>, space: &mut SearchSpace) {
    let modes: Option<Vec<DeploymentMode>> = section
        .read("deployment_mode", |value| value.list(|entry| entry.choice()))
        .or_bad(space.deployment_mode.clone());
    let only = match modes.as_deref() {
        Some([only]) => Some(*only),
        _ => None,
    };
    if let Some(modes) = &modes {
        space.deployment_mode.clear();
        for mode in modes {
            if !space.deployment_mode.contains(mode) {
                space.deployment_mode.push(*mode);
            }
        }
    }
    let mut entries = 0;
    let configs = section.read("parallel_configs", |value| {
        value.list_or_empty(|entry| {
            entries += 1;
            parallel_config(&entry, only)
        })
    });
    configs.set(&mut space.parallel_configs);
    if entries > 0 && only.is_none() && modes.is_some() {
        let message =
            "needs exactly one mode in `deployment_mode`; write `deployment_mode: [agg]` or `[disagg]`";
        section.problem("parallel_configs", message);
    }
}

fn parallel_config(entry: &Value<'_>, mode: Option<DeploymentMode>) -> Option<ParallelConfig> {
    let paired = entry.node().get("prefill").is_some() || entry.node().get("decode").is_some();
    entry.section(|section| {
        if mode.map_or(paired, |mode| mode == DeploymentMode::Disagg) {
            let reason = "`deployment_mode: [disagg]` takes `{prefill: {tp: 4}, decode: {tp: 4}}`";
            section.refuse("tp", reason);
            let prefill = section.section("prefill", shape).required().flatten();
            let decode = section.section("decode", shape).required().flatten();
            Some(ParallelConfig::Disagg { prefill: prefill?, decode: decode? })
        } else {
            for key in ["prefill", "decode"] {
                section.refuse(key, "`deployment_mode: [agg]` takes shapes without roles, as `{tp: 4}`");
            }
            shape(section).map(ParallelConfig::Agg)
        }
    })?
}

fn shape(section: &Section<'_>) -> Option<Shape> {
    let axis = |key| section.integer(key, 1..=1024_u32);
    let tp = axis("tp").required();
    let (attention_dp, moe_tp, moe_ep) =
        (axis("attention_dp").or(1), axis("moe_tp").or(1), axis("moe_ep").or(1));
    let (pp, replicas) = (axis("pp").or(1), section.integer("replicas", 1..=100_000_u32).or(1));
    if let Some(excess) = excess_of_ranks(replicas, attention_dp) {
        section.problem_between(&["attention_dp", "replicas"], excess);
    }
    Some(Shape { tp: tp?, attention_dp, moe_tp, moe_ep, pp, replicas })
}

fn engine_knobs(section: &Section<'_>, space: &mut SearchSpace) {
    section.read("scheduler", |value| value.list(|entry| scheduler(&entry))).set(&mut space.scheduler);
    integers(section, "prefill_max_num_batched_tokens", &mut space.prefill_max_num_batched_tokens);
    integers(section, "prefill_max_num_seqs", &mut space.prefill_max_num_seqs);
    integers(section, "decode_max_num_batched_tokens", &mut space.decode_max_num_batched_tokens);
    integers(section, "decode_max_num_seqs", &mut space.decode_max_num_seqs);
    integers(section, "agg_max_num_batched_tokens", &mut space.agg_max_num_batched_tokens);
    integers(section, "agg_max_num_seqs", &mut space.agg_max_num_seqs);

    let least = space.backend.iter().map(|backend| least_block_size(*backend)).max().unwrap_or(1);
    section.integer("prefill_block_size", least..=MOST_TOKENS).set(&mut space.prefill_block_size);
    section.integer("decode_block_size", least..=MOST_TOKENS).set(&mut space.decode_block_size);
    section.integer("agg_block_size", least..=MOST_TOKENS).set(&mut space.agg_block_size);
    if space.deployment_mode.contains(&DeploymentMode::Disagg)
        && space.prefill_block_size != space.decode_block_size
    {
        let (prefill, decode) = (space.prefill_block_size, space.decode_block_size);
        let message = format!(
            "`prefill_block_size: {prefill}` differs from `decode_block_size: {decode}`: KV blocks could not be handed over"
        );
        section.problem_between(&["prefill_block_size", "decode_block_size"], message);
    }

    let memory = |key| section.float(key, Limit::PositiveShare);
    memory("prefill_gpu_memory_utilization").set(&mut space.prefill_gpu_memory_utilization);
    memory("decode_gpu_memory_utilization").set(&mut space.decode_gpu_memory_utilization);
    memory("agg_gpu_memory_utilization").set(&mut space.agg_gpu_memory_utilization);
    section.boolean("prefill_enable_prefix_caching").set(&mut space.prefill_enable_prefix_caching);
    section.boolean("decode_enable_prefix_caching").set(&mut space.decode_enable_prefix_caching);
    section.boolean("agg_enable_prefix_caching").set(&mut space.agg_enable_prefix_caching);
}

fn offload_knobs(section: &Section<'_>, space: &mut SearchSpace) {
    section.integer("num_g2_blocks", 0..=u32::MAX).set(&mut space.num_g2_blocks);
    space.kv_bytes_per_token = section.integer("kv_bytes_per_token", 1..=MOST_BYTES_PER_TOKEN).optional();
    space.bandwidth_g1_to_g2_gbps = section.float("bandwidth_g1_to_g2_gbps", Limit::Bandwidth).optional();
    space.bandwidth_g2_to_g1_gbps = section.float("bandwidth_g2_to_g1_gbps", Limit::Bandwidth).optional();
    space.offload_batch_size = section.integer("offload_batch_size", 1..=u32::MAX).optional();
    if space.num_g2_blocks > 0 && !section.has("kv_bytes_per_token") {
        section.problem("kv_bytes_per_token", "required key is missing: `num_g2_blocks` is above 0");
    }
}

fn router_knobs(section: &Section<'_>, space: &mut SearchSpace) {
    section.read("router_mode", |value| value.list(|entry| entry.policy(None))).set(&mut space.router_mode);
    reals(section, "overlap_score_credit", &mut space.overlap_score_credit);
    reals(section, "prefill_load_scale", &mut space.prefill_load_scale);
    reals(section, "router_temperature", &mut space.router_temperature);
    reals(section, "host_cache_hit_weight", &mut space.host_cache_hit_weight);
    reals(section, "disk_cache_hit_weight", &mut space.disk_cache_hit_weight);
    space.active_decode_blocks_threshold =
        section.integer("active_decode_blocks_threshold", 0..=u32::MAX).optional();
    space.active_prefill_tokens_threshold =
        section.integer("active_prefill_tokens_threshold", 0..=u32::MAX).optional();
    space.active_prefill_tokens_threshold_frac =
        section.float("active_prefill_tokens_threshold_frac", Limit::NotNegative).optional();
    section.boolean("no_admission_control").set(&mut space.no_admission_control);
    if !space.router_mode.iter().any(|router| router.policy == "kv_router") {
        return;
    }
    for (key, set) in [
        ("active_decode_blocks_threshold", space.active_decode_blocks_threshold.is_some()),
        ("active_prefill_tokens_threshold", space.active_prefill_tokens_threshold.is_some()),
        ("active_prefill_tokens_threshold_frac", space.active_prefill_tokens_threshold_frac.is_some()),
        ("no_admission_control", space.no_admission_control),
    ] {
        if set {
            let message =
                "admission control is not supported by the replay of `kv_router`, which `router_mode` lists";
            section.problem(key, message);
        }
    }
}

fn planner_knobs(section: &Section<'_>, space: &mut SearchSpace) {
    section
        .read("planner_scaling_policy", |value| value.list(|entry| scaling_policy(&entry)))
        .set(&mut space.planner_scaling_policy);
    section
        .read("planner_fpm_sampling", |value| value.list(|entry| fpm_sampling(&entry)))
        .set(&mut space.planner_fpm_sampling);
    section
        .read("planner_load_sensitivity", |value| value.list(|entry| load_sensitivity(&entry)))
        .set(&mut space.planner_load_sensitivity);
    section
        .read("load_predictor_candidates", |value| value.list(|entry| load_predictor(&entry)))
        .set(&mut space.load_predictor_candidates);
}

/// Choices out of the defaults, which are all there are.
fn integers(section: &Section<'_>, key: &'static str, choices: &mut Vec<u32>) {
    let allowed = choices.clone();
    let choice = |entry: Value<'_>| {
        let integer = entry.integer(0..=u32::MAX)?;
        entry.one_of(integer, &allowed)
    };
    section.read(key, |value| value.list(choice)).set(choices);
}

/// Choices out of the defaults, which are all there are.
fn reals(section: &Section<'_>, key: &'static str, choices: &mut Vec<f64>) {
    let allowed = choices.clone();
    let choice = |entry: Value<'_>| {
        let real = entry.float(Limit::NotNegative)?;
        entry.one_of(real, &allowed)
    };
    section.read(key, |value| value.list(choice)).set(choices);
}

fn goal(section: &Section<'_>) -> Option<OptimizationGoal> {
    let target = section.read("target", |value| value.choice()).or_bad(OptimizationTarget::Throughput);
    let sla = section.section("sla", sla).optional();
    let objectives =
        section.read("pareto_objectives", |value| value.list_or_empty(|entry| objective(&entry))).optional();
    let min_attainment = section.float("min_attainment", Limit::PositiveShare).optional();
    let target = target?;
    let pareto = target == OptimizationTarget::Pareto;
    let pareto_objectives = match objectives {
        None if pareto => vec![OptimizationTarget::ThroughputPerGpu, OptimizationTarget::ThroughputPerUser],
        objectives => objectives.unwrap_or_default(),
    };
    let goal = OptimizationGoal { target, sla, pareto_objectives, min_attainment };
    check_objectives(section, &goal);
    check_bounds(section, &goal);
    Some(goal)
}

fn objective(entry: &Value<'_>) -> Option<OptimizationTarget> {
    let target = entry.choice()?;
    if target == OptimizationTarget::Pareto {
        entry.problem("`pareto` is a goal, not an objective of one");
    }
    Some(target)
}

fn check_objectives(section: &Section<'_>, goal: &OptimizationGoal) {
    let key = "pareto_objectives";
    if goal.target != OptimizationTarget::Pareto {
        if section.has(key) {
            section.problem(key, "is only valid when `target` is `pareto`");
        }
        return;
    }
    let objectives = &goal.pareto_objectives;
    if section.list_length(key).is_some_and(|length| length < 2) {
        section.problem(key, "a frontier needs at least 2 objectives");
    }
    for (index, objective) in objectives.iter().enumerate() {
        if objectives[..index].contains(objective) {
            section.problem(
                &format!("{key}[{index}]"),
                format!("objectives have to be distinct: `{}` is there twice", name_of(*objective)),
            );
        }
    }
}

fn check_bounds(section: &Section<'_>, goal: &OptimizationGoal) {
    let bounds = goal.sla.unwrap_or_default();
    // A bound that could not be read was meant to be there: no second problem about its absence.
    let intended =
        |key| section.value("sla").is_some_and(|sla| sla.node().get(key).is_some_and(|node| !node.is_null()));
    let sufficient = intended("e2e_ms") || (intended("ttft_ms") && intended("itl_ms"));
    let pareto = goal.target == OptimizationTarget::Pareto;
    let effective =
        if pareto { goal.pareto_objectives.as_slice() } else { std::slice::from_ref(&goal.target) };
    let mut culprits: Vec<&str> =
        effective.iter().filter(|target| target.needs_sla()).map(|target| name_of(*target)).collect();
    culprits.sort_unstable();
    culprits.dedup();
    if !culprits.is_empty() && !sufficient {
        let message = format!(
            "goodput goals ({}) require an SLA target: set `goal.sla.e2e_ms`, or both `goal.sla.ttft_ms` and \
             `goal.sla.itl_ms`",
            culprits.join(", ")
        );
        section.problem(if pareto { "pareto_objectives" } else { "target" }, message);
    }
    if goal.min_attainment.is_some() && bounds == Sla::default() {
        section.problem("min_attainment", "requires an SLA target: set a bound in `goal.sla`");
    }
}

fn sweep(section: &Section<'_>, has_rows: bool) -> SweepConfig {
    let mut sweep = SweepConfig::default();
    section.integer("max_rounds", 1..=u32::MAX).set(&mut sweep.max_rounds);
    section.integer("parallel_evals", 1..=65_536_u32).set(&mut sweep.parallel_evals);
    sweep.candidates_per_round =
        section.integer("candidates_per_round", 1..=65_536_u32).or_null(None).unwrap_or(sweep.parallel_evals);
    section.integer("random_seed", 0..=u64::MAX).set(&mut sweep.random_seed);
    sweep.max_eval_seconds =
        section.float("max_eval_seconds", Limit::PositiveTime).or_null(sweep.max_eval_seconds);
    sweep.max_eval_passes = section.integer("max_eval_passes", 1..=u64::MAX).optional();
    section.read("sampler", |value| value.policy(None)).set(&mut sweep.sampler);
    section.boolean("exhaustive").set(&mut sweep.exhaustive);
    sweep.top = section.integer("top", 1..=u32::MAX).optional();
    sweep.fidelity = section.section("fidelity", |section| fidelity(section, has_rows)).optional();
    sweep
}

/// Every portion has to be greater than the one before.
fn check_ascending<T: PartialOrd>(section: &Section<'_>, key: &str, portions: &[T]) {
    for (place, _) in portions.windows(2).enumerate().filter(|(_, pair)| pair[0] >= pair[1]) {
        let message = "has to be ascending: every portion greater than the one before";
        section.problem(&format!("{key}[{}]", place + 1), message);
    }
}

fn fidelity(section: &Section<'_>, has_rows: bool) -> Fidelity {
    let mut fidelity = Fidelity::default();
    section.read("rows", |value| value.list(|entry| entry.integer(1..=u32::MAX))).set(&mut fidelity.rows);
    section
        .read("fractions", |value| value.list(|entry| entry.float(Limit::ProperShare)))
        .set(&mut fidelity.fractions);
    section.float("keep", Limit::ProperShare).set(&mut fidelity.keep);
    if !has_rows && section.has("rows") && !section.has("fractions") {
        section.problem("rows", "counts the rows of a trace, and there is none; write `fractions`");
    }
    check_ascending(section, "rows", &fidelity.rows);
    check_ascending(section, "fractions", &fidelity.fractions);
    match (section.has("rows"), section.has("fractions")) {
        (true, true) => section.own_problem("takes `rows` or `fractions`, not both"),
        (false, false) => {
            section.own_problem("needs the portions: `rows: [500, 2000]` or `fractions: [0.1, 0.3]`");
        }
        _ => {}
    }
    fidelity
}
