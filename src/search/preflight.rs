//! A look at every choice before anything runs: what the simulation or the registry would refuse in the middle of a
//! search is refused at its start.

use super::branch::{Branch, Plan};
use super::predictor_sweep;
use super::refusal::Refusal;
use crate::config::scenario::Scenario;
use crate::registry::Registry;
use crate::serving;

impl Plan {
    /// Everything about the candidates that cannot be replayed, each with the choice that is to blame.
    pub fn refusals(&self, registry: &Registry) -> Vec<Refusal> {
        // Branches share most of their choices.
        let mut refusals = Vec::new();
        for refusal in self.branches.iter().flat_map(|branch| branch_refusals(branch, registry)) {
            if !refusals.contains(&refusal) {
                refusals.push(refusal);
            }
        }
        for (place, candidate) in self.config.search_space.load_predictor_candidates.iter().enumerate() {
            if let Err(error) = registry.predictor(&predictor_sweep::policy(&candidate.values)) {
                let key = format!("search_space.load_predictor_candidates[{place}]");
                refusals.push(Refusal::new(key, error.to_string()));
            }
        }
        refusals
    }
}

/// Looks at one point with every choice, the other knobs at their first.
fn branch_refusals(branch: &Branch, registry: &Registry) -> Vec<Refusal> {
    let dimensions = branch.space.dimensions();
    let gpu_budget = branch.config.search_space.gpu_budget;
    // A point without room for a cache is a candidate that cannot serve, not a search that cannot run.
    let problems_at = |placement: u32, choices: Vec<u32>| {
        let unrolled = branch.unroll(&branch.space.canonical(placement, choices));
        unrolled.map_or(Vec::new(), |unrolled| scenario_problems(&unrolled.scenario, registry, gpu_budget))
    };
    let problems = |choices: Vec<u32>| problems_at(0, choices);
    let first = vec![0; dimensions.len()];
    let mut common = problems(first.clone());
    for placement in branch.first_placements() {
        for problem in problems_at(placement, first.clone()) {
            if !common.contains(&problem) {
                common.push(problem);
            }
        }
    }
    let mut found: Vec<Refusal> = common.iter().map(|problem| at_search_key(problem)).collect();
    for (place, dimension) in dimensions.iter().enumerate() {
        for (choice, shown) in dimension.choices.iter().enumerate().skip(1) {
            let mut choices = first.clone();
            choices[place] = choice as u32;
            let own = problems(choices).into_iter().filter(|problem| !common.contains(problem));
            let key = format!("search_space.{}", dimension.name);
            found.extend(
                own.map(|problem| {
                    Refusal::new(&key, format!("{shown}: {}", at_search_key(&problem).message))
                }),
            );
        }
    }
    found
}

/// A problem of a candidate, at the key of the search space that the candidate has it from.
fn at_search_key(problem: &str) -> Refusal {
    // Policies know their own places.
    if let Some((key, message)) =
        problem.strip_prefix("search_space.scheduler").and_then(|_| problem.split_once(": "))
    {
        return Refusal::new(key, message);
    }
    let Some((path, message)) =
        problem.strip_prefix("deployment.").and_then(|problem| problem.split_once(": "))
    else {
        return Refusal::new("search_space", problem);
    };
    let (pool, field) = path.split_once('.').unwrap_or((path, ""));
    let key = match field {
        "engine.aic_nextn" => "aic_nextn".to_owned(),
        "engine.block_size" => format!("{pool}_block_size"),
        "engine.enable_prefix_caching" => format!("{pool}_enable_prefix_caching"),
        _ if field.starts_with("timing") => field.to_owned(),
        _ if pool == "planner" => "planner_scaling_policy".to_owned(),
        _ => return Refusal::new("search_space", problem),
    };
    Refusal::new(format!("search_space.{key}"), message)
}

fn scenario_problems(scenario: &Scenario, registry: &Registry, gpu_budget: u32) -> Vec<String> {
    let mut problems = serving::unsupported(scenario);
    problems.extend(serving::scheduler_problems(scenario, registry));
    let routers = scenario.deployment.routers();
    problems
        .extend(routers.filter_map(|router| registry.router(router).err()).map(|error| error.to_string()));
    let planner = scenario.deployment.planner.as_ref();
    match planner.map(|planner| registry.planner(planner, scenario.deployment.mode)) {
        Some(Err(error)) => problems.push(error.to_string()),
        Some(Ok(Some(planner))) => {
            let most = planner.policy.gpu_bounds().most.filter(|&most| most > gpu_budget);
            problems.extend(most.map(|most| {
                format!(
                    "deployment.planner: the planner may use {most} GPUs (max_gpu_budget), over search_space.gpu_budget \
                     {gpu_budget}"
                )
            }));
        }
        Some(Ok(None)) | None => {}
    }
    problems
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::config::scenario::PolicyConfig;
    use crate::registry::Registry;
    use crate::search::test_support::{config, plan};

    #[test]
    fn the_built_in_choices_can_be_replayed() {
        assert_eq!(plan(config()).refusals(&Registry::builtin()), []);
    }

    #[test]
    fn every_choice_is_looked_at() {
        let mut config = config();
        let space = &mut config.search_space;
        space.router_mode.push(PolicyConfig::named("round_robbin"));
        space.router_mode.push(PolicyConfig::named("kv_router"));
        space.router_mode[3].fields.insert("prefil_load_scale".into(), json!(1.0));
        let refusals = plan(config).refusals(&Registry::builtin());
        let text: Vec<String> = refusals.iter().map(ToString::to_string).collect();
        assert_eq!(text.len(), 2, "{text:#?}");
        assert!(text[0].starts_with("search_space.router_mode: \"round_robbin\""), "{text:#?}");
        assert!(text[0].contains("did you mean `round_robin`"), "{text:#?}");
        assert!(text[1].contains("prefill_load_scale"), "{text:#?}");
    }

    #[test]
    fn what_is_wrong_with_all_is_said_once() {
        let mut config = config();
        config.search_space.router_mode = vec![PolicyConfig::named("round_robbin")];
        let refusals = plan(config).refusals(&Registry::builtin());
        assert_eq!(refusals.len(), 1, "{refusals:?}");
        assert_eq!(refusals[0].key, "search_space");
    }
}
