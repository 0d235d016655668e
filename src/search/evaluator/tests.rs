use std::num::NonZeroUsize;

use super::*;
use crate::config::presets::ScalingPolicy;
use crate::config::scenario::{DeploymentMode, PolicyConfig, Sla};
use crate::config::search::SweepConfig;
use crate::model::Catalogue;
use crate::report::scaling::ScalingCause;
use crate::search::test_support::{config, plan};
use crate::search::{NearestMiss, Options, Plan, run};
use crate::serving::planner::{Decision, Observation, PlanningPolicy};
use crate::simulation::{SimDuration, SimTime};

fn first(plan: &Plan) -> Scenario {
    let branch = &plan.branches[0];
    branch.unroll(&branch.space.point(0)).unwrap().scenario
}

fn asked(at_s: u64, role: Role, to: u32) -> ScalingEvent {
    let at = SimTime::from_ns(at_s * 1_000_000_000);
    ScalingEvent { at, role, from: 0, to, cause: ScalingCause::Planner }
}

#[test]
fn gpus_count_that_are_asked_for_at_the_same_time() {
    let mut deployment = first(&plan(config())).deployment;
    let pool = deployment.agg.take().unwrap();
    // 2 workers of 4 GPUs in each pool.
    (deployment.prefill, deployment.decode) = (Some(pool.clone()), Some(pool));
    let mut scenario = first(&plan(config()));
    (scenario.deployment, scenario.deployment.mode) = (deployment, DeploymentMode::Disagg);
    assert_eq!(most_gpus(&scenario, &[]), 16);
    let handed_over = [asked(5, Role::Prefill, 3), asked(5, Role::Decode, 1)];
    assert_eq!(most_gpus(&scenario, &handed_over), 16);
    let one_after_the_other = [asked(5, Role::Prefill, 3), asked(6, Role::Decode, 1)];
    assert_eq!(most_gpus(&scenario, &one_after_the_other), 20);
}

/// Wants ten workers and says nothing about bounds.
#[derive(Debug, serde::Deserialize)]
struct Greedy {}

impl PlanningPolicy for Greedy {
    fn tick_interval(&self) -> SimDuration {
        SimDuration::from_ns(1_000_000)
    }

    fn plan(&mut self, _observation: &Observation) -> Decision {
        Decision { targets: vec![Some(10)], rule: "greedy", ..Decision::default() }
    }
}

#[test]
fn a_planner_without_bounds_is_held_to_the_budget() {
    let mut config = config();
    config.search_space.planner_scaling_policy =
        vec![ScalingPolicy::Registered(PolicyConfig::named("greedy"))];
    let plan = plan(config);
    let workload = plan.config.workload.of_trial(None).unwrap();
    let loaded = workload::load(&workload, None, 64).unwrap();
    let traffic = Traffic::new(Arc::new(loaded.workload), 64);
    let registry = Arc::new(Registry::builtin().with_planner::<Greedy>("greedy"));
    let requests = Requests::Shared(vec![Prepared { workload, traffic }]);
    let evaluator = ReplayEvaluator::new(requests, registry, None, Arc::default()).unwrap();
    let scenario = first(&plan);
    let within = |max_gpus| evaluator.evaluate(&scenario, &Bar { max_gpus, ..Bar::default() });
    assert!(matches!(within(None), Evaluation::Measured(_)));
    assert!(matches!(within(Some(40)), Evaluation::Measured(_)));
    let reason = "its planner asked for 40 GPUs, over search_space.gpu_budget 39";
    assert_eq!(within(Some(39)), Evaluation::Infeasible(reason.into()));
}

#[test]
fn what_came_nearest_is_held_to_the_budget_too() {
    let greedy = ScalingPolicy::Registered(PolicyConfig::named("greedy"));
    let words = "its planner asked for 40 GPUs, over search_space.gpu_budget 39, and none of the 16 nearest keeps within it";
    assert_eq!(nearest_under(vec![greedy.clone()]).over_budget.as_deref(), Some(words));
    let within = nearest_under(vec![greedy, config().search_space.planner_scaling_policy.remove(0)]);
    assert_eq!(within.over_budget, None);
    assert!(within.scenario.deployment.planner.is_none() && !within.passed_over.is_empty());
}

/// What comes nearest, where nobody can meet the bounds, of a search with these planners on 39 GPUs.
fn nearest_under(planners: Vec<ScalingPolicy>) -> NearestMiss {
    let mut config = config();
    config.search_space.planner_scaling_policy = planners;
    config.search_space.gpu_budget = 39;
    config.sweep = SweepConfig { exhaustive: true, ..config.sweep };
    config.goal.sla = Some(Sla { e2e_ms: Some(0.001), ..Sla::default() });
    config.goal.min_attainment = Some(0.5);
    let registry = Arc::new(Registry::builtin().with_planner::<Greedy>("greedy"));
    let plan = Plan::with_registry(config, &Arc::new(Catalogue::bundled()), &registry).unwrap();
    let workload = plan.config.workload.of_trial(None).unwrap();
    let loaded = workload::load(&workload, None, 64).unwrap();
    let traffic = Traffic::new(Arc::new(loaded.workload), 64);
    let requests = Requests::Shared(vec![Prepared { workload, traffic }]);
    let evaluator: Arc<dyn Evaluator> =
        Arc::new(ReplayEvaluator::new(requests, registry, None, Arc::default()).unwrap());
    let options = Options {
        threads: NonZeroUsize::MIN,
        interrupt: Arc::default(),
        journal: None,
        past: Vec::new(),
        journalled: 0,
        shard: None,
        watcher: None,
    };
    run(&plan, &evaluator, options).unwrap().nearest.unwrap()
}

#[test]
fn a_stopped_replay_says_how_well_it_did_until_then() {
    let mut config = config();
    config.goal.sla = Some(Sla { e2e_ms: Some(0.001), ..Sla::default() });
    config.goal.min_attainment = Some(0.5);
    let plan = plan(config);
    let workload = plan.config.workload.of_trial(None).unwrap();
    let loaded = workload::load(&workload, None, 64).unwrap();
    let traffic = Traffic::new(Arc::new(loaded.workload), 64);
    let requests = Requests::Shared(vec![Prepared { workload, traffic }]);
    let registry = Arc::new(Registry::builtin());
    let evaluator = ReplayEvaluator::new(requests, registry, None, Arc::default()).unwrap();
    let bar = Bar { min_attainment: Some(0.5), ..Bar::default() };
    match evaluator.evaluate(&first(&plan), &bar) {
        Evaluation::BelowBar { reason, attainment_so_far, reached_so_far } => {
            assert!(reached_so_far.e2e_ms.is_some_and(|reached| reached > 1e-3), "{reached_so_far:?}");
            assert!(reason.contains("17 requests have missed a bound"), "{reason}");
            assert_eq!(attainment_so_far, 0.0);
        }
        other => panic!("{other:?}"),
    }
}
