//! The pool of a branch: every layout on every engine that can serve, and why the others cannot.

use std::fmt;

use indexmap::IndexMap;
use serde::Serialize;

use super::layout::{self, strategy};
use super::profile::{self, ProfileNames};
use super::refusal::Refusal;
use super::{memory, role};
use crate::config::scenario::{Backend, DeploymentMode};
use crate::config::search::{ParallelConfig, SearchSpace, Shape};
use crate::model::{Catalogue, ModelFacts};
use crate::timing::profile::Family;

/// A layout on an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Placement {
    pub(super) backend: Backend,
    pub(super) layout: ParallelConfig,
}

/// What a search leaves out before it runs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Skipped {
    /// The branch.
    pub deployment_mode: DeploymentMode,
    /// The engine.
    pub backend: Backend,
    /// The shape of a worker; `None` if nothing of this engine is left in the branch.
    pub shape: Option<Shape>,
    /// Why, with what is needed and what is available.
    pub reason: String,
}

impl fmt::Display for Skipped {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mode = adjective(self.deployment_mode);
        write!(formatter, "no {mode} deployment with {}: {}", self.backend.name(), self.reason)
    }
}

/// What deployments of a mode are.
pub(super) fn adjective(mode: DeploymentMode) -> &'static str {
    match mode {
        DeploymentMode::Agg => "aggregated",
        DeploymentMode::Disagg => "disaggregated",
    }
}

/// The pool of one branch.
#[derive(Debug, Default)]
pub(super) struct Pool {
    /// In the order of the engines, then of the layouts.
    pub(super) placements: Vec<Placement>,
    pub(super) skipped: Vec<Skipped>,
}

/// Finds pools: what is known about the model, the GPU and the profiles of a search.
pub(super) struct Finder<'a> {
    space: &'a SearchSpace,
    catalogue: &'a Catalogue,
    /// What is known of the model, if anything: a search that needs it has been refused without.
    model: Option<ModelFacts>,
}

impl<'a> Finder<'a> {
    /// # Errors
    /// A model or a GPU that is not known, where the search cannot do without.
    pub(super) fn new(space: &'a SearchSpace, catalogue: &'a Catalogue) -> Result<Self, Vec<Refusal>> {
        let names = ProfileNames::of(space).unwrap_or_else(|| ProfileNames::estimated(space));
        // Every profile is of a model and a GPU that are known.
        let names_count = memory::sizes_caches(space) || ProfileNames::of(space).is_some();
        let mut refusals = Vec::new();
        let model = catalogue.model(names.model_name);
        let model = match model {
            Ok(facts) => Some(facts),
            Err(error) => {
                if names_count || space.parallel_configs.is_empty() {
                    let message = format!("{error}; or give its config.json under `facts.models`");
                    refusals.push(Refusal::new("search_space.model_name", message));
                }
                None
            }
        };
        if names_count && let Err(error) = catalogue.hardware(names.hardware_sku) {
            let message = format!("{error}; or give a file of its data sheet under `facts.hardware`");
            refusals.push(Refusal::new("search_space.hardware_sku", message));
        }
        if refusals.is_empty() { Ok(Self { space, catalogue, model }) } else { Err(refusals) }
    }

    /// The pool of a mode.
    ///
    /// # Errors
    /// Pinned layouts that no engine can run.
    pub(super) fn pool(&self, mode: DeploymentMode) -> Result<Pool, Vec<Refusal>> {
        let mut pool = Pool::default();
        for backend in distinct(self.space.backend.iter().copied()) {
            let mut engine =
                Engine { finder: self, mode, backend, problems: IndexMap::new(), skipped: Vec::new() };
            let layouts = engine.layouts();
            if layouts.is_empty() {
                let reason = engine.why_nothing_is_left();
                pool.skipped.push(Skipped { deployment_mode: mode, backend, shape: None, reason });
            }
            pool.placements.extend(layouts.into_iter().map(|layout| Placement { backend, layout }));
            pool.skipped.append(&mut engine.skipped);
        }
        let lost = self.pins_without_engine(&pool);
        if lost.is_empty() { Ok(pool) } else { Err(lost) }
    }

    fn pins_without_engine(&self, pool: &Pool) -> Vec<Refusal> {
        let pins = self.space.parallel_configs.iter().enumerate();
        let lost = pins.filter(|(_, pin)| !pool.placements.iter().any(|one| one.layout == **pin));
        lost.map(|(place, pin)| {
            let shapes = role::shapes(pin);
            let about = |skip: &&Skipped| skip.shape.is_none_or(|shape| shapes.contains(&shape));
            let reasons = pool.skipped.iter().filter(about);
            let reasons: Vec<String> =
                reasons.map(|skip| format!("with {}: {}", skip.backend.name(), skip.reason)).collect();
            Refusal::new(
                format!("search_space.parallel_configs[{place}]"),
                format!("no engine can run this layout: {}", reasons.join("; ")),
            )
        })
        .collect()
    }

    /// The GPUs that a deployment may use.
    fn gpus(&self) -> std::ops::RangeInclusive<u32> {
        self.space.min_gpu_budget.unwrap_or(1)..=self.space.gpu_budget
    }
}

/// One engine in one branch.
struct Engine<'a> {
    finder: &'a Finder<'a>,
    mode: DeploymentMode,
    backend: Backend,
    /// Why shapes are left out, each with the number of shapes.
    problems: IndexMap<String, usize>,
    skipped: Vec<Skipped>,
}

impl Engine<'_> {
    /// The layouts that it can run.
    fn layouts(&mut self) -> Vec<ParallelConfig> {
        let space = self.finder.space;
        if self.mode == DeploymentMode::Disagg && self.backend == Backend::Trtllm {
            self.problems.insert("disaggregated deployments are not searched with trtllm".into(), 1);
            return Vec::new();
        }
        let family = match ProfileNames::of(space).map(|names| names.family(self.backend)).transpose() {
            Ok(family) => family,
            Err(error) => {
                // What memory has to say is worth hearing all the same.
                self.shapes(None);
                self.why_the_budget_is_too_small(1);
                self.problems.insert(profile::absence(space, self.backend, &error), 1);
                return Vec::new();
            }
        };
        let shapes = self.shapes(family);
        let layouts = self.layouts_of(&shapes);
        if layouts.is_empty() {
            let smallest = shapes.iter().map(layout::gpus_per_worker).min().unwrap_or(1);
            self.why_the_budget_is_too_small(smallest);
        }
        layouts
    }

    fn layouts_of(&self, shapes: &[Shape]) -> Vec<ParallelConfig> {
        let space = self.finder.space;
        if space.parallel_configs.is_empty() {
            return match self.mode {
                DeploymentMode::Agg => layout::aggregated(shapes, self.finder.gpus()),
                DeploymentMode::Disagg => layout::disaggregated(shapes, self.finder.gpus()),
            };
        }
        let runs = |pin: &&ParallelConfig| role::shapes(pin).iter().all(|shape| shapes.contains(shape));
        distinct(space.parallel_configs.iter().filter(runs).copied())
    }

    /// The shapes of one worker that serve; the others are noted with their reason.
    fn shapes(&mut self, family: Option<&Family>) -> Vec<Shape> {
        let space = self.finder.space;
        let shapes = if space.parallel_configs.is_empty() {
            let is_moe = self.finder.model.as_ref().is_some_and(ModelFacts::is_moe);
            layout::shapes_within(is_moe, space.gpu_budget)
        } else {
            distinct(space.parallel_configs.iter().flat_map(role::shapes))
        };
        shapes.into_iter().filter(|shape| self.serves(shape, family)).collect()
    }

    fn serves(&mut self, shape: &Shape, family: Option<&Family>) -> bool {
        let Finder { space, catalogue, ref model } = *self.finder;
        let problem = memory::shape_problem(space, catalogue, model.as_ref(), self.backend, shape)
            .or_else(|| family.and_then(|family| profile::shape_problem(family, shape)));
        let Some(reason) = problem else { return true };
        *self.problems.entry(format!("{}: {reason}", described(shape))).or_default() += 1;
        let Self { mode: deployment_mode, backend, .. } = *self;
        self.skipped.push(Skipped { deployment_mode, backend, shape: Some(*shape), reason });
        false
    }

    fn why_the_budget_is_too_small(&mut self, smallest_worker: u32) {
        let space = self.finder.space;
        let (roles, what) = match self.mode {
            DeploymentMode::Agg => (1, "a worker"),
            DeploymentMode::Disagg => (2, "at least two workers, one that prefills and one that decodes,"),
        };
        let least = roles * smallest_worker;
        if space.gpu_budget < least {
            let reason = format!("{what} need {least} GPUs, but gpu_budget is {}", space.gpu_budget);
            self.problems.shift_insert(0, reason, 1);
        }
    }

    /// All reasons in one sentence.
    fn why_nothing_is_left(&self) -> String {
        const MOST: usize = 6;
        let mut reasons: Vec<&str> = self.problems.keys().map(String::as_str).take(MOST).collect();
        let more = format!("{} more shapes", self.problems.len().saturating_sub(MOST));
        if self.problems.len() > MOST {
            reasons.push(&more);
        }
        if reasons.is_empty() {
            "no layout uses as many GPUs as min_gpu_budget".into()
        } else {
            reasons.join("; ")
        }
    }
}

/// A shape in words.
fn described(shape: &Shape) -> String {
    format!("workers of {} GPUs ({})", layout::gpus_per_worker(shape), strategy(shape))
}

/// Without repetitions, in order.
fn distinct<T: PartialEq>(items: impl IntoIterator<Item = T>) -> Vec<T> {
    let mut kept: Vec<T> = Vec::new();
    for item in items {
        if !kept.contains(&item) {
            kept.push(item);
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::config::scenario::DeploymentMode::{Agg, Disagg};
    use crate::config::search::SmartSearchConfig;
    use crate::search::branch::Plan;
    use crate::search::test_support::{plan, profiled, refusals};

    /// The shapes that occur in the layouts of a plan, as `8 dep`, smallest first.
    fn shapes(plan: &Plan) -> Vec<String> {
        let layouts = plan.branches.iter().flat_map(|branch| &branch.placements);
        let shapes: BTreeSet<(u32, &str)> = layouts
            .flat_map(|one| role::shapes(&one.layout))
            .map(|shape| (layout::gpus_per_worker(&shape), strategy(&shape)))
            .collect();
        shapes.iter().map(|(gpus, name)| format!("{gpus} {name}")).collect()
    }

    fn count(config: SmartSearchConfig) -> usize {
        plan(config).branches.iter().map(|branch| branch.placements.len()).sum()
    }

    fn reason(plan: &Plan, shape: &str) -> String {
        let about = |skip: &&Skipped| {
            skip.shape
                .is_some_and(|one| format!("{} {}", layout::gpus_per_worker(&one), strategy(&one)) == shape)
        };
        plan.skipped.iter().find(about).unwrap_or_else(|| panic!("{:#?}", plan.skipped)).reason.clone()
    }

    #[test]
    fn all_shapes_of_a_dense_model_that_fits_on_one_gpu() {
        for (mode, budget, layouts) in [(Agg, 8, 15), (Disagg, 8, 71), (Agg, 16, 31), (Disagg, 16, 367)] {
            let config = profiled("Qwen/Qwen3-32B", "h200_sxm", mode, budget);
            assert_eq!(count(config.clone()), layouts, "{mode:?} {budget}");
            assert_eq!(plan(config).skipped, []);
        }
    }

    #[test]
    fn experts_that_cannot_be_cut_leave_shapes_out() {
        let plan = plan(profiled("MiniMaxAI/MiniMax-M2.5", "b200_sxm", Agg, 16));
        assert_eq!(
            shapes(&plan),
            [
                "2 dep", "2 dtp", "2 tep", "2 tp", "4 dep", "4 dtp", "4 tep", "4 tp", "8 dep", "8 tep",
                "16 dep", "16 tep"
            ]
        );
        let reason = reason(&plan, "8 tp");
        assert!(reason.contains("experts of width 1536 over moe_tp 8"), "{reason}");
    }

    #[test]
    fn weights_that_do_not_fit_leave_shapes_out_with_their_figures() {
        let plan = plan(profiled("deepseek-ai/DeepSeek-V3", "h200_sxm", Disagg, 32));
        assert_eq!(shapes(&plan), ["8 dep", "8 tep", "8 tp", "16 dep", "16 dtp", "16 tep", "16 tp"]);
        let reason = reason(&plan, "4 tep");
        assert!(
            reason.contains("GiB per GPU are needed") && reason.contains("126.9 GiB are available"),
            "{reason}"
        );
    }

    #[test]
    fn the_longest_sequence_has_to_fit() {
        let mut config = profiled("Qwen/Qwen3-32B", "h200_sxm", Agg, 1);
        config.search_space.context_length = Some(249_863);
        assert_eq!(count(config.clone()), 1);
        config.search_space.context_length = Some(249_864);
        let plan = plan(config);
        assert!(plan.branches.is_empty());
        assert!(
            reason(&plan, "1 tp").contains("a sequence of 249864 tokens has to fit"),
            "{:?}",
            plan.skipped
        );
        assert!(plan.notices.iter().any(|notice| notice.contains("no aggregated deployment with vllm")));
    }

    #[test]
    fn engines_without_profiles_leave_the_search() {
        let mut config = profiled("Qwen/Qwen3-32B", "h200_sxm", Disagg, 4);
        config.search_space.backend = vec![Backend::Trtllm, Backend::Sglang, Backend::Vllm];
        let plan = plan(config);
        let backends: Vec<Backend> = plan.branches[0].placements.iter().map(|one| one.backend).collect();
        assert_eq!(backends, [[Backend::Sglang; 11], [Backend::Vllm; 11]].concat());
        assert!(
            plan.notices.iter().any(|notice| notice.contains("not searched with trtllm")),
            "{:?}",
            plan.notices
        );
    }

    #[test]
    fn pins_are_kept_or_refused() {
        let shape = |tp| Shape { tp, attention_dp: 1, moe_tp: 1, moe_ep: 1, pp: 1, replicas: 2 };
        let mut config = profiled("Qwen/Qwen3-32B", "h200_sxm", Agg, 8);
        config.search_space.parallel_configs =
            vec![ParallelConfig::Agg(shape(4)), ParallelConfig::Agg(shape(1))];
        assert_eq!(count(config.clone()), 2);
        let experts = Shape { moe_tp: 4, ..shape(4) };
        config.search_space.parallel_configs.push(ParallelConfig::Agg(experts));
        let refused = refusals(config);
        assert_eq!(refused.len(), 1, "{refused:?}");
        assert_eq!(refused[0].key, "search_space.parallel_configs[2]");
        assert!(refused[0].message.contains("is a dense model"), "{refused:?}");
    }

    #[test]
    fn names_that_nobody_knows_are_refused_with_the_nearest() {
        let unknown = profiled("Qwen/Qwen3-33B", "h20_sxm", Agg, 8);
        // Neither blocks nor layouts that are given make a profile of a model that there is not.
        let mut given = unknown.clone();
        given.search_space.num_gpu_blocks = Some(1000);
        let shape = Shape { tp: 1, attention_dp: 1, moe_tp: 1, moe_ep: 1, pp: 1, replicas: 2 };
        given.search_space.parallel_configs = vec![ParallelConfig::Agg(shape)];
        for config in [unknown, given] {
            let refused = refusals(config);
            assert_eq!(refused.len(), 2, "{refused:?}");
            assert!(refused[0].message.contains("similar first: Qwen/Qwen3-32B"), "{refused:?}");
            assert!(refused[1].message.contains("similar first: h200_sxm"), "{refused:?}");
        }
    }

    #[test]
    fn two_workers_need_two_gpus() {
        let plan = plan(profiled("meta-llama/Llama-3.1-405B", "h200_sxm", Disagg, 1));
        assert!(plan.branches.is_empty());
        let branch = plan.skipped.iter().find(|skip| skip.shape.is_none()).unwrap();
        for part in [
            "at least two workers",
            "need 2 GPUs",
            "the weights alone exceed the memory",
            "126.9 GiB are available",
        ] {
            assert!(branch.reason.contains(part), "{part}: {}", branch.reason);
        }
    }
}
