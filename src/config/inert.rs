//! Options that act under a condition only: tables of `option -> acts only when`.
//!
//! An option that says what would be so anyway may always stand, since resolved configurations spell everything out. One that
//! says something else and cannot act is refused where it is this program's own, and told of where the reference takes it
//! without a word.

use std::borrow::Cow;

use serde_json::Value as Json;

use super::facts::FactFile;
use super::presets::ScalingPolicy;
use super::reader::{Reader, Section};
use super::scenario::{Deployment, DeploymentMode, KvTransfer, PricedModel, Scenario, TimingConfig};
use super::search::{LoadShape, SearchSpace, SmartSearchConfig, SweepConfig};
use super::tree::{Content, Entry, Node};

/// What becomes of an option that cannot act.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// An error.
    Refuse,
    /// A note.
    Tell,
}

/// An option and when it acts.
#[derive(Clone, Debug)]
pub(super) struct Rule<'k> {
    /// Its key, from the section that is read; from the top of the document where that has been read.
    pub(super) key: &'k str,
    /// Whether it differs from what would be so anyway.
    pub(super) says_something: bool,
    /// Whether the condition holds.
    pub(super) acts: bool,
    /// What is missing, to go on from "has no effect ".
    pub(super) missing: Cow<'k, str>,
    pub(super) verdict: Verdict,
}

impl<'k> Rule<'k> {
    /// An option that is refused where it cannot act.
    pub(super) fn refusing(
        key: &'k str,
        says_something: bool,
        acts: bool,
        missing: impl Into<Cow<'k, str>>,
    ) -> Self {
        Self { key, says_something, acts, missing: missing.into(), verdict: Verdict::Refuse }
    }

    /// An option that is told of where it cannot act.
    pub(super) fn telling(
        key: &'k str,
        says_something: bool,
        acts: bool,
        missing: impl Into<Cow<'k, str>>,
    ) -> Self {
        Self { verdict: Verdict::Tell, ..Self::refusing(key, says_something, acts, missing) }
    }

    fn is_broken(&self) -> bool {
        self.says_something && !self.acts
    }

    fn message(&self) -> String {
        format!("has no effect {}", self.missing)
    }
}

impl Section<'_> {
    /// Looks for options of this section that cannot act.
    pub(super) fn check_inert<'k>(&self, rules: impl IntoIterator<Item = Rule<'k>>) {
        for rule in rules.into_iter().filter(Rule::is_broken) {
            match rule.verdict {
                Verdict::Refuse => self.problem(rule.key, rule.message()),
                Verdict::Tell => self.remark(rule.key, rule.message()),
            }
        }
    }
}

/// Looks for options of a document that cannot act.
fn report(reader: &Reader, tree: &Node, rules: Vec<Rule<'_>>) {
    for rule in rules.into_iter().filter(Rule::is_broken) {
        let span = tree.nearest(rule.key).map_or(tree.span, |(span, _)| span);
        match rule.verdict {
            Verdict::Refuse => reader.problem(span, rule.key, rule.message()),
            Verdict::Tell => reader.remark(span, rule.key, rule.message()),
        }
    }
}

/// Looks for options of a search that cannot act.
pub(super) fn report_search(reader: &Reader, tree: &Node, config: &SmartSearchConfig) {
    let difference = Difference::of(config);
    let mut rules = roles(config);
    rules.extend(offload(config));
    rules.extend(routing(config));
    rules.extend(planning(config));
    rules.extend(pricing(config));
    rules.extend(sweep(config));
    for rule in &mut rules {
        rule.says_something &= difference.at(rule.key);
    }
    report(reader, tree, rules);
    let space = &config.search_space;
    let mut used = vec![space.model_name.as_str(), space.hardware_sku.as_str()];
    used.extend(names_in(&space.timing));
    report_facts(reader, tree, [&config.facts.models, &config.facts.hardware], &used);
    report_repetitions(reader, tree, config);
}

/// Tells of choices that are in a list twice: the second adds nothing to what is tried.
fn report_repetitions(reader: &Reader, tree: &Node, config: &SmartSearchConfig) {
    let Some((_, space)) = tree.nearest("search_space") else { return };
    let Content::Mapping(entries) = &space.content else { return };
    let resolved = config.to_json();
    for Entry { key, value, .. } in entries {
        let Content::List(items) = &value.content else { continue };
        // As they were understood, where each has stayed where it was: a name and `{policy: name}` are the same.
        let understood = resolved["search_space"][key].as_array().filter(|list| list.len() == items.len());
        let written = || items.iter().map(|item| item.to_json().unwrap_or_default()).collect();
        let choices: Vec<Json> = understood.cloned().unwrap_or_else(written);
        for (place, choice) in choices.iter().enumerate() {
            if let Some(first) = choices[..place].iter().position(|other| other == choice) {
                let message = format!("is the same as [{first}], and adds nothing");
                reader.remark(items[place].span, &format!("search_space.{key}[{place}]"), message);
            }
        }
    }
}

/// Looks for options of a scenario that cannot act, beside those that its sections have been searched for.
pub(super) fn report_scenario(reader: &Reader, tree: &Node, scenario: &Scenario) {
    let deployment = &scenario.deployment;
    let pools = [&deployment.agg, &deployment.prefill, &deployment.decode].into_iter().flatten();
    let used: Vec<&str> = pools
        .flat_map(|pool| {
            let memory = pool.memory.iter();
            let memory = memory.flat_map(|memory| [memory.model_name.as_str(), memory.hardware_sku.as_str()]);
            names_in(&pool.timing).chain(memory)
        })
        .collect();
    report_facts(reader, tree, [&scenario.facts.models, &scenario.facts.hardware], &used);
    report_prompt_prices(reader, tree, deployment);
}

/// Decode workers compute no prompts. Candidates of a search have what prices passes in both pools, so it is no error.
fn report_prompt_prices(reader: &Reader, tree: &Node, deployment: &Deployment) {
    let Some(decode) = &deployment.decode else { return };
    let (mixed, uneven) = match &decode.timing {
        TimingConfig::Profile(config) => (config.of.mixed_passes, config.of.uneven_prompts),
        TimingConfig::Roofline(config) => (config.mixed_passes, config.uneven_prompts),
        _ => return,
    };
    let rules = [("mixed_passes", mixed.is_some()), ("uneven_prompts", uneven.is_some())];
    let keys = rules.map(|(key, is_written)| (format!("deployment.decode.timing.{key}"), is_written));
    let rules = keys.iter().map(|(key, is_written)| {
        Rule::telling(key, *is_written, false, "on decode workers: they compute no prompts")
    });
    report(reader, tree, rules.collect());
}

/// Facts under a name that nothing asks for are no error: the best candidate of a search comes with those of the search.
fn report_facts(reader: &Reader, tree: &Node, files: [&Vec<FactFile>; 2], used: &[&str]) {
    for (key, files) in ["facts.models", "facts.hardware"].into_iter().zip(files) {
        for (place, file) in files.iter().enumerate() {
            if !used.iter().any(|name| name.eq_ignore_ascii_case(&file.name)) {
                let path = format!("{key}[{place}].name");
                let missing = format!("here: nothing asks for `{}`", file.name);
                report(reader, tree, vec![Rule::telling(&path, true, false, &missing)]);
            }
        }
    }
}

/// The models and GPUs that a timing names.
fn names_in(timing: &TimingConfig) -> impl Iterator<Item = &str> {
    let names = timing.priced().into_iter().flat_map(|priced| [&priced.model_name, &priced.hardware_sku]);
    names.filter_map(Option::as_deref)
}

/// A search and what it would be without anything optional.
struct Difference {
    given: Json,
    default: Json,
}

impl Difference {
    fn of(config: &SmartSearchConfig) -> Self {
        let space = &config.search_space;
        let sweep = SweepConfig {
            // As large as the number of parallel evaluations unless given.
            candidates_per_round: config.sweep.parallel_evals,
            ..SweepConfig::default()
        };
        let default = SmartSearchConfig {
            search_space: SearchSpace::with_defaults(&space.model_name, &space.hardware_sku),
            sweep,
            ..config.clone()
        };
        Self { given: config.to_json(), default: default.to_json() }
    }

    fn at(&self, key: &str) -> bool {
        let pointer = format!("/{}", key.replace('.', "/"));
        self.given.pointer(&pointer) != self.default.pointer(&pointer)
    }
}

/// The knobs of the workers of each role.
fn roles(config: &SmartSearchConfig) -> Vec<Rule<'static>> {
    let modes = &config.search_space.deployment_mode;
    let (agg, disagg) = (DeploymentMode::Agg, DeploymentMode::Disagg);
    let by_role = [
        (
            agg,
            "without `agg` in `deployment_mode`: no candidate has such workers",
            [
                "search_space.agg_max_num_batched_tokens",
                "search_space.agg_max_num_seqs",
                "search_space.agg_block_size",
                "search_space.agg_gpu_memory_utilization",
                "search_space.agg_enable_prefix_caching",
            ],
        ),
        (
            disagg,
            WITHOUT_DISAGG,
            [
                "search_space.prefill_max_num_batched_tokens",
                "search_space.prefill_max_num_seqs",
                "search_space.prefill_block_size",
                "search_space.prefill_gpu_memory_utilization",
                "search_space.prefill_enable_prefix_caching",
            ],
        ),
        (
            disagg,
            WITHOUT_DISAGG,
            [
                "search_space.decode_max_num_batched_tokens",
                "search_space.decode_max_num_seqs",
                "search_space.decode_block_size",
                "search_space.decode_gpu_memory_utilization",
                "search_space.decode_enable_prefix_caching",
            ],
        ),
    ];
    let rule = |mode: DeploymentMode, missing: &'static str, key: &'static str| {
        Rule::telling(key, true, modes.contains(&mode), missing)
    };
    let rules = by_role.into_iter();
    rules.flat_map(|(mode, missing, keys)| keys.map(|key| rule(mode, missing, key))).collect()
}

const WITHOUT_DISAGG: &str = "without `disagg` in `deployment_mode`: no candidate has such workers";

/// Host offload.
fn offload(config: &SmartSearchConfig) -> Vec<Rule<'static>> {
    let offloads = config.search_space.num_g2_blocks > 0;
    let keys = [
        "search_space.kv_bytes_per_token",
        "search_space.bandwidth_g1_to_g2_gbps",
        "search_space.bandwidth_g2_to_g1_gbps",
        "search_space.offload_batch_size",
        "search_space.host_cache_hit_weight",
        "search_space.disk_cache_hit_weight",
    ];
    keys.map(|key| Rule::telling(key, true, offloads, "while `num_g2_blocks` is 0: there is no host cache"))
        .into()
}

/// Weights and thresholds of routers.
fn routing(config: &SmartSearchConfig) -> Vec<Rule<'static>> {
    let routers = &config.search_space.router_mode;
    let weight = |key: &'static str, field: &str| {
        let takes =
            routers.iter().any(|router| router.policy == "kv_router" && !router.fields.contains_key(field));
        let has_own = routers.iter().any(|router| router.policy == "kv_router");
        let missing = if has_own {
            "beside the weight that every `kv_router` of `router_mode` has of its own"
        } else {
            "without `kv_router` in `router_mode`"
        };
        Rule::telling(key, true, takes, missing)
    };
    let mut rules = vec![
        weight("search_space.overlap_score_credit", "overlap_score_credit"),
        weight("search_space.prefill_load_scale", "prefill_load_scale"),
        weight("search_space.router_temperature", "router_temperature"),
    ];
    let reserved = [
        "search_space.active_decode_blocks_threshold",
        "search_space.active_prefill_tokens_threshold",
        "search_space.active_prefill_tokens_threshold_frac",
        "search_space.no_admission_control",
    ];
    rules.extend(reserved.map(|key| Rule::telling(key, true, false, "on any router: it is reserved")));
    rules
}

/// What reaches planners.
fn planning(config: &SmartSearchConfig) -> Vec<Rule<'static>> {
    let SmartSearchConfig { search_space: space, goal, .. } = config;
    let policies = || space.planner_scaling_policy.iter().filter(|policy| goal.supports(policy));
    let scales = policies().any(ScalingPolicy::scales);
    let settings = || policies().filter_map(ScalingPolicy::settings);
    let ahead = settings().any(|settings| settings.enable_throughput_scaling);
    let after_load = settings().any(|settings| settings.enable_load_scaling);
    let by_bounds = goal.target.needs_sla();
    let has_windows =
        matches!(&config.workload.load, LoadShape::Trace(trace) if trace.replay_concurrency.is_none());
    let is_ahead = "unless a policy scales ahead of traffic under a goodput goal";
    let has_registered = policies().any(|policy| matches!(policy, ScalingPolicy::Registered(_)));
    let own_bounds = "on scaling policies that are given by name and fields: they bring bounds of their own";
    vec![
        Rule::telling("search_space.min_endpoint", has_registered, false, own_bounds),
        Rule::telling("search_space.min_gpu_budget", has_registered, false, own_bounds),
        Rule::telling(
            "search_space.min_endpoint",
            !has_registered,
            ahead || after_load,
            "unless a policy of the built-in planner scales",
        ),
        Rule::telling("search_space.startup_time", true, scales, "unless a policy scales"),
        Rule::telling("search_space.planner_fpm_sampling", true, ahead && by_bounds, is_ahead),
        Rule::telling(
            "search_space.planner_load_sensitivity",
            true,
            after_load && by_bounds,
            "unless a policy scales after load under a goodput goal",
        ),
        Rule::telling("search_space.load_predictor_candidates", true, ahead, is_ahead),
        Rule::telling(
            "search_space.load_predictor_candidates",
            ahead,
            has_windows,
            "without a trace at its own pace: other traffic is forecast by its last value",
        ),
    ]
}

/// What prices passes, sizes caches and moves them.
fn pricing(config: &SmartSearchConfig) -> Vec<Rule<'static>> {
    let space = &config.search_space;
    let is_profile = matches!(space.timing, TimingConfig::Profile(_));
    let disagg = space.deployment_mode.contains(&DeploymentMode::Disagg);
    let sized = space.num_gpu_blocks.is_none();
    let blocks = space.num_gpu_blocks.unwrap_or_default();
    let blocks = format!("beside `num_gpu_blocks`, which is {blocks}, given or by default");
    let memory =
        |key, mode| Rule::refusing(key, space.deployment_mode.contains(&mode), sized, blocks.clone());
    let experts = |key, axis: fn(&PricedModel) -> Option<u32>| {
        let is_written = space.timing.priced().and_then(axis).is_some();
        Rule::refusing(
            key,
            is_written,
            false,
            "in a search: the layout of each candidate says it (`parallel_configs`)",
        )
    };
    vec![
        Rule::refusing(
            "search_space.backend_version",
            true,
            is_profile,
            "without a profile (`timing.model: profile`)",
        ),
        experts("search_space.timing.moe_tp", |priced| priced.moe_tp),
        experts("search_space.timing.moe_ep", |priced| priced.moe_ep),
        Rule::refusing(
            "search_space.kv_transfer",
            space.kv_transfer != KvTransfer::default(),
            disagg,
            "without `disagg` in `deployment_mode`",
        ),
        memory("search_space.prefill_gpu_memory_utilization", DeploymentMode::Disagg),
        memory("search_space.decode_gpu_memory_utilization", DeploymentMode::Disagg),
        memory("search_space.agg_gpu_memory_utilization", DeploymentMode::Agg),
    ]
}

/// The effort.
fn sweep(config: &SmartSearchConfig) -> Vec<Rule<'static>> {
    let samples = !config.sweep.exhaustive;
    let every_point = "with `exhaustive: true`, which tries every point";
    vec![
        Rule::refusing("sweep.sampler", true, samples, every_point),
        Rule::telling("sweep.max_rounds", true, samples, every_point),
        Rule::refusing(
            "sweep.top",
            config.sweep.top.is_some(),
            !config.goal.is_pareto(),
            "on a frontier, whose candidates have no order",
        ),
    ]
}
