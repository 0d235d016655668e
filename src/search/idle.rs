//! Knobs that by their meaning make no difference at a point, although points that differ in them alone are different candidates.
//!
//! What a router gives for cached blocks is multiplied by a scale, which may be 0; where one rank serves, weights decide nothing; and
//! SGLang bounds its passes by options of its own. Samplers need not try what is known beforehand.

use serde_json::Value;

use super::pool::Placement;
use super::space::{Point, Space};
use super::unreached::{DEAF, WEIGHING};
use crate::config::scenario::Backend;
use crate::config::search::{ParallelConfig, Shape};

const CREDIT: &str = "overlap_score_credit";
const SCALE: &str = "prefill_load_scale";
/// What decides between ranks, and nothing else.
const WEIGHTS: [&str; 3] = [CREDIT, SCALE, "router_temperature"];
/// What a pass may compute, of every role.
const PASS_LIMITS: [&str; 3] =
    ["agg_max_num_batched_tokens", "prefill_max_num_batched_tokens", "decode_max_num_batched_tokens"];

/// What tells the knobs of a space that make no difference at a point.
#[derive(Clone, Debug, Default)]
pub(super) struct Idle {
    layouts: Vec<Layout>,
    router: Option<usize>,
    scale: Option<usize>,
    planner: Option<usize>,
}

#[derive(Clone, Debug)]
struct Layout {
    /// Whether there is nothing to choose between.
    has_one_rank: bool,
    /// Whether its engines bound their passes by options of their own, and nothing is sized by the common limit.
    bounds_passes_itself: bool,
}

impl Idle {
    /// `is_sized` is whether limits of passes say how much memory is left for blocks.
    pub(super) fn new(space: &Space, placements: &[Placement], is_sized: bool) -> Self {
        let place = |name| space.dimensions().iter().position(|dimension| dimension.name == name);
        let is_built_in = place("scheduler").is_none();
        let layout = |placement: &Placement| Layout {
            has_one_rank: has_one_rank(&placement.layout),
            bounds_passes_itself: placement.backend == Backend::Sglang && is_built_in && !is_sized,
        };
        Self {
            layouts: placements.iter().map(layout).collect(),
            router: place("router_mode"),
            scale: place(SCALE),
            planner: place("planner_scaling_policy"),
        }
    }

    /// Whether a knob makes no difference at a point.
    pub(super) fn has(&self, space: &Space, point: &Point, dimension: usize) -> bool {
        let name = space.dimensions()[dimension].name;
        let choice = |knob: Option<usize>| {
            let knob = knob?;
            space.dimensions()[knob].choices.get(point.choices[knob] as usize)
        };
        let (Some(layout), Some(router)) = (self.layouts.get(point.layout as usize), choice(self.router))
        else {
            return false;
        };
        let policy = router.as_str().or_else(|| router.get("policy")?.as_str()).unwrap_or_default();
        let field = |name: &str| router.get(name);
        let is_known = policy == WEIGHING || DEAF.contains(&policy);
        let nobody_waits = is_known && field("queue_threshold").is_none();
        let never_scales = || choice(self.planner).is_none_or(never_scales);
        if PASS_LIMITS.contains(&name) {
            return layout.bounds_passes_itself && nobody_waits && never_scales();
        }
        // Whether a credit is given decides whether the router hears of caches where prefill work does not count.
        if !WEIGHTS.contains(&name) || policy != WEIGHING || field("track_prefill_tokens").is_some() {
            return false;
        }
        let scale = field(SCALE).or_else(|| choice(self.scale));
        let is_multiplied_by_0 = name == CREDIT && scale.and_then(Value::as_f64) == Some(0.0);
        is_multiplied_by_0 || (layout.has_one_rank && nobody_waits && never_scales())
    }
}

fn never_scales(planner: &Value) -> bool {
    let is_off = |kind: &str| planner.get(kind).and_then(Value::as_bool) == Some(false);
    planner == "disabled" || (is_off("enable_throughput_scaling") && is_off("enable_load_scaling"))
}

fn has_one_rank(layout: &ParallelConfig) -> bool {
    let is_one = |shape: &Shape| shape.replicas == 1 && shape.attention_dp == 1;
    match layout {
        ParallelConfig::Agg(shape) => is_one(shape),
        ParallelConfig::Disagg { prefill, decode } => is_one(prefill) && is_one(decode),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use serde_json::json;

    use super::*;
    use crate::config::presets::{SCALING_POLICIES, ScalingPolicy};
    use crate::config::scenario::PolicyConfig;
    use crate::config::search::{LoadShape, SearchSpace};
    use crate::registry::Registry;
    use crate::search::evaluator::{Bar, Evaluator, Prepared, ReplayEvaluator, Requests};
    use crate::search::test_support::{config, plan};
    use crate::search::{Branch, Evaluation};
    use crate::serving::Traffic;
    use crate::workload;

    fn kv_router(fields: Value) -> PolicyConfig {
        let Value::Object(fields) = fields else { panic!("fields have names") };
        PolicyConfig { fields, ..PolicyConfig::named(WEIGHING) }
    }

    /// A branch over one and two workers of two engines, and what replays its points.
    fn branch(change: impl FnOnce(&mut SearchSpace)) -> (Branch, ReplayEvaluator) {
        let mut config = config();
        let space = &mut config.search_space;
        let ParallelConfig::Agg(shape) = space.parallel_configs[0] else { panic!("it is aggregated") };
        space.parallel_configs =
            [1, 2].map(|replicas| ParallelConfig::Agg(Shape { replicas, ..shape })).to_vec();
        space.backend = vec![Backend::Vllm, Backend::Sglang];
        space.num_gpu_blocks = Some(40);
        space.router_mode = vec![
            PolicyConfig::named(WEIGHING),
            kv_router(json!({"queue_threshold": 0.002})),
            kv_router(json!({"prefill_load_scale": 0.0})),
        ];
        space.overlap_score_credit = vec![0.0, 1.0];
        space.prefill_load_scale = vec![0.0, 4.0];
        space.router_temperature = vec![0.0, 1.0];
        space.agg_max_num_batched_tokens = vec![512, 2048];
        space.agg_max_num_seqs = vec![3];
        change(space);
        if let LoadShape::Concurrency { concurrency, requests } = &mut config.workload.load {
            *concurrency = 12;
            (requests.isl, requests.turns_per_session) = (1024, 2);
            (requests.shared_prefix_ratio, requests.num_prefix_groups) = (0.5, 3);
        }
        let plan = plan(config);
        let workload = plan.config.workload.of_trial(None).unwrap();
        let loaded = workload::load(&workload, None, 64).unwrap();
        let traffic = Traffic::new(Arc::new(loaded.workload), 64);
        let requests = Requests::Shared(vec![Prepared { workload, traffic }]);
        let registry = Arc::new(Registry::builtin());
        let evaluator = ReplayEvaluator::new(requests, registry, None, Arc::default()).unwrap();
        (plan.branches.into_iter().next().unwrap(), evaluator)
    }

    /// Points by everything but the knobs that make no difference.
    fn classes(branch: &Branch) -> BTreeMap<Vec<Option<u32>>, Vec<Point>> {
        let (space, idle) = (&branch.space, branch.idle());
        let mut classes: BTreeMap<_, Vec<Point>> = BTreeMap::new();
        for point in (0..space.size()).map(|index| space.point(index)) {
            let choice = |knob: usize| (!idle.has(space, &point, knob)).then(|| point.choices[knob]);
            let key = (0..space.dimensions().len()).map(choice).chain([Some(point.layout)]).collect();
            classes.entry(key).or_default().push(point);
        }
        classes
    }

    #[test]
    fn points_that_differ_in_idle_knobs_alone_come_out_alike() {
        let (branch, evaluator) = branch(|_| {});
        let result = |point: &Point| {
            let scenario = branch.unroll(point).unwrap().scenario;
            let Evaluation::Measured(mut metrics) = evaluator.evaluate(&scenario, &Bar::default()) else {
                panic!("it can be replayed");
            };
            metrics.retain(|name, _| name.ends_with("_ms") || name.ends_with("_s"));
            serde_json::to_string(&metrics).unwrap()
        };
        let classes = classes(&branch);
        let mut results = BTreeMap::new();
        for points in classes.values() {
            let first = result(&points[0]);
            assert!(points[1..].iter().all(|point| result(point) == first), "{points:?}");
            *results.entry(first).or_insert(0) += 1;
        }
        // 28, 16, 20 and 14 of 40 at each layout.
        assert_eq!((branch.space.size(), classes.len()), (160, 78));
        assert!(results.len() > 20, "{}", results.len());
    }

    #[test]
    fn what_goes_by_a_knob_makes_it_act() {
        let count = |change: fn(&mut SearchSpace)| classes(&branch(change).0).len();
        // Limits of passes say how much memory is left.
        assert_eq!(count(|space| space.num_gpu_blocks = None), 88);
        // A planner that scales leaves no rank alone and goes by the limits of passes.
        let scaling = |space: &mut SearchSpace| {
            space.planner_scaling_policy = vec![ScalingPolicy::Builtin(SCALING_POLICIES[3].clone())];
        };
        assert_eq!(count(scaling), 112);
        // Without prefill work, a credit decides whether the router hears of caches.
        let untracked = |space: &mut SearchSpace| {
            space.router_mode = vec![kv_router(json!({"track_prefill_tokens": false}))];
        };
        assert_eq!(count(untracked), 48);
    }
}
