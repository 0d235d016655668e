//! What has to hold before anything runs: `check` looks at it and stops, the others go on.
//!
//! All of it is looked at before the first problem ends the command, so that everything comes at once.

use std::path::Path;
use std::sync::Arc;

use super::arguments::StrictTiming;
use super::console::Console;
use super::failure::Failure;
use super::input::{load_requests, load_workload, open_file};
use crate::config::scenario::{
    BACKEND_SCHEDULER, DeploymentMode, EngineOptions, PolicyConfig, Scenario, WorkloadSource,
};
use crate::config::search::{LoadShape, SearchSpace, SmartSearchConfig};
use crate::config::{Document, Loaded, Places};
use crate::engine::EnginePool;
use crate::model::Catalogue;
use crate::registry::{PolicyError, Registry};
use crate::report::record::Role;
use crate::search::{Plan, Refusal, Requests};
use crate::serving;
use crate::workload::Workload;

/// A scenario that can be replayed.
pub(super) struct ReadyReplay {
    pub(super) scenario: Scenario,
    pub(super) workload: Arc<Workload>,
    pub(super) places: Places,
}

/// Looks at everything that a replay of `scenario` needs.
pub(super) fn replay(
    scenario: Scenario,
    places: Places,
    timing: StrictTiming,
    registry: &Registry,
    console: Console,
) -> Result<ReadyReplay, Failure> {
    let deployment = &scenario.deployment;
    let mut problems =
        policy_problems(deployment.routers(), deployment.planner.iter(), &[deployment.mode], registry);
    problems.extend(serving::unsupported(&scenario));
    problems.extend(serving::scheduler_problems(&scenario, registry));
    let known = refuse(&places, &problems);
    let sound = timing.strict_timing.then(|| doubts(&places, &scenario)).transpose();
    let workload = load_workload(&scenario.workload, deployment.block_size(), console);
    let workload = workload.map_err(|failure| {
        let is_file = matches!(scenario.workload.source, WorkloadSource::Trace(_));
        about_workload(&places, is_file, failure)
    });
    Failure::first_or_all([known.err(), sound.err(), workload.as_ref().err().cloned()])?;
    for remark in serving::idle_pass_limits(&scenario, registry) {
        console.note(places.remark("note", &remark));
    }
    for remark in serving::planner::remarks(&scenario, registry) {
        console.note(places.remark("warning", &remark));
    }
    let workload = workload?;
    refuse(&places, serving::planner::planner_problem(&scenario, &workload, registry).as_slice())?;
    for remark in serving::remarks(&scenario, &workload) {
        console.note(places.remark("warning", &remark));
    }
    Ok(ReadyReplay { scenario, workload, places })
}

/// A search that can be run, but for its requests.
pub(super) fn plan(config: SmartSearchConfig, places: &Places, registry: &Registry) -> Result<Plan, Failure> {
    let trace = match &config.workload.load {
        LoadShape::Trace(trace) => open_file(&trace.source.path).err(),
        _ => None,
    };
    let problem = trace.map(|failure| format!("workload.trace_path: {}", failure.message));
    plan_or(problem, config, places, registry)
}

/// A search whose trials have all been made, so that it needs no requests.
pub(super) fn plan_of_made_trials(
    config: SmartSearchConfig,
    places: &Places,
    registry: &Registry,
) -> Result<Plan, Failure> {
    plan_or(None, config, places, registry)
}

/// The plan, or all problems: this one and those of the plan.
fn plan_or(
    problem: Option<String>,
    config: SmartSearchConfig,
    places: &Places,
    registry: &Registry,
) -> Result<Plan, Failure> {
    let space = &config.search_space;
    let planners = space.planner_scaling_policy.iter().filter_map(|policy| policy.registered());
    let mut problems = policy_problems(space.router_mode.iter(), planners, &space.deployment_mode, registry);
    problems.extend(scheduler_problems(space, registry));
    problems.extend(problem);
    let catalogue = Catalogue::with(&config.facts).map_err(Failure::input)?;
    let plan = Plan::with_registry(config, &Arc::new(catalogue), &Arc::new(registry.clone()));
    let refusals = match &plan {
        Err(refusals) => refusals.clone(),
        // What is wrong with a policy has been said in its own place.
        Ok(plan) if problems.is_empty() => plan.refusals(registry),
        Ok(_) => Vec::new(),
    };
    problems.extend(refusals.iter().map(Refusal::to_string));
    refuse(places, &problems)?;
    plan.map_err(|_| Failure::input("the search cannot be planned"))
}

/// The requests of a search.
pub(super) fn requests(plan: &Plan, places: &Places, console: Console) -> Result<Requests, Failure> {
    let is_file = plan.config.workload.is_trace_based();
    load_requests(plan, console).map_err(|failure| about_workload(places, is_file, failure))
}

/// Refuses prices that are no ground for a choice, where that was asked for.
pub(super) fn refuse_doubts(file: &Path, plan: &Plan, timing: StrictTiming) -> Result<(), Failure> {
    let doubts = if timing.strict_timing { plan.timing_doubts() } else { Vec::new() };
    let lines: Vec<String> =
        doubts.iter().map(|doubt| format!("{}: --strict-timing: {doubt}", file.display())).collect();
    if lines.is_empty() { Ok(()) } else { Err(Failure::input(lines.join("\n"))) }
}

/// The scenario in a file.
pub(super) fn scenario_of(file: &Path, loaded: Loaded, instead: &str) -> Result<(Scenario, Places), Failure> {
    match loaded.document {
        Document::Scenario(scenario) => Ok((scenario, loaded.places)),
        Document::Search(_) => {
            let message = format!("is a search configuration, not a scenario; {instead}");
            Err(Failure::input(format!("{}: {message}", file.display())))
        }
    }
}

/// The search configuration in a file.
pub(super) fn search_of(file: &Path, loaded: Loaded) -> Result<(SmartSearchConfig, Places), Failure> {
    match loaded.document {
        Document::Search(config) => Ok((config, loaded.places)),
        Document::Scenario(_) => {
            let message = "is a scenario, not a search configuration; run `spica replay` on it";
            Err(Failure::input(format!("{}: {message}", file.display())))
        }
    }
}

/// Refuses problems of the form `key.path: what is wrong`, if there are any.
fn refuse(places: &Places, problems: &[String]) -> Result<(), Failure> {
    if problems.is_empty() { Ok(()) } else { Err(Failure::input(places.explain(problems))) }
}

/// A failure to load requests. Problems inside a trace have a file and a line of their own.
fn about_workload(places: &Places, is_file: bool, failure: Failure) -> Failure {
    let has_key =
        ["workload.trace_path: ", "sweep.fidelity"].iter().any(|key| failure.message.starts_with(key));
    if is_file && !has_key {
        return failure;
    }
    Failure { message: places.explain(failure.message.lines()), ..failure }
}

/// Makes every policy, to see whether it can be made in deployments of these modes.
fn policy_problems<'a>(
    routers: impl Iterator<Item = &'a PolicyConfig>,
    planners: impl Iterator<Item = &'a PolicyConfig>,
    modes: &[DeploymentMode],
    registry: &Registry,
) -> Vec<String> {
    let planners = planners.flat_map(|planner| modes.iter().map(move |mode| (planner, *mode)));
    let errors: Vec<PolicyError> = routers
        .filter_map(|router| registry.router(router).err())
        .chain(planners.filter_map(|(planner, mode)| registry.planner(planner, mode).err()))
        .collect();
    let mut lines: Vec<String> = Vec::new();
    for line in errors.iter().flat_map(PolicyError::lines) {
        if !lines.contains(&line) {
            lines.push(line);
        }
    }
    lines
}

/// Makes every scheduler of a search, to see whether it can serve the workers of its modes.
fn scheduler_problems(space: &SearchSpace, registry: &Registry) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    let roles = space.deployment_mode.iter().flat_map(|mode| match mode {
        DeploymentMode::Agg => &[Role::Agg][..],
        DeploymentMode::Disagg => &[Role::Prefill, Role::Decode],
    });
    for (&role, &backend) in roles.flat_map(|role| space.backend.iter().map(move |backend| (role, backend))) {
        for config in space.scheduler.iter().filter(|config| config.policy != BACKEND_SCHEDULER) {
            let scheduler = Some(Box::new(config.clone()));
            let options = EngineOptions { scheduler, ..EngineOptions::for_backend(backend) };
            let pool = EnginePool { role, dp_size: 1, options: &options };
            // The plan tells which modes a scheduler does not serve.
            let is_served = registry.unserved_role(&pool).is_none();
            let error = registry.engine(&pool).err().filter(|_| is_served);
            for line in error.iter().flat_map(PolicyError::lines) {
                if !lines.contains(&line) {
                    lines.push(line);
                }
            }
        }
    }
    lines
}

/// Refuses prices that are no ground for a choice.
fn doubts(places: &Places, scenario: &Scenario) -> Result<(), Failure> {
    let lines: Vec<String> = serving::timing_records(scenario)
        .iter()
        .filter_map(|(pool, record)| {
            let reason = record.doubt()?;
            Some(places.remark("--strict-timing", &format!("deployment.{pool}.timing: {reason}")))
        })
        .collect();
    if lines.is_empty() { Ok(()) } else { Err(Failure::input(lines.join("\n"))) }
}
