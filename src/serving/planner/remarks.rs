//! What is legal of a planner and probably not meant.

use crate::config::scenario::{Pool, Scenario};
use crate::registry::Registry;
use crate::report::record::Role;
use crate::serving::assembly::pools;

/// Remarks on the planner of a scenario, one line each.
pub fn remarks(scenario: &Scenario, registry: &Registry) -> Vec<String> {
    let deployment = &scenario.deployment;
    let planner = deployment.planner.as_ref();
    let planner = planner.and_then(|planner| registry.planner(planner, deployment.mode).ok().flatten());
    let Some(planner) = planner else { return Vec::new() };
    let bounds = planner.policy.gpu_bounds();
    let (least, most) = (bounds.least.map(u64::from), bounds.most.map(u64::from));
    let gpus = |workers: &dyn Fn(Role, &Pool) -> u32| -> u64 {
        let of_pool =
            |(role, pool): (Role, &Pool)| u64::from(workers(role, pool)) * u64::from(pool.gpus_per_worker());
        pools(scenario).into_iter().map(of_pool).sum()
    };
    let at_start = gpus(&|_, pool| pool.workers);
    let fewest = gpus(&|_, _| 1);
    let kept = gpus(&|role, _| planner.policy.least_workers(role));
    let mut remarks = Vec::new();
    if let Some(most) = most.filter(|&most| most < fewest) {
        remarks.push(format!(
            "deployment.planner.max_gpu_budget: one worker of each pool already takes {fewest} GPUs, more than the {most} of \
             the budget: the planner cannot keep it"
        ));
    } else if let Some(most) = most.filter(|&most| most < kept) {
        remarks.push(format!(
            "deployment.planner.min_endpoint: the fewest workers that the planner keeps take {kept} GPUs, more than the {most} \
             of max_gpu_budget: the minimum wins, and it holds the deployment at {kept} GPUs"
        ));
    } else if let Some(most) = most.filter(|&most| most < at_start) {
        remarks.push(format!(
            "deployment.planner.max_gpu_budget: the deployment starts on {at_start} GPUs, more than the {most} of the budget: \
             the planner scales it down at its first tick"
        ));
    }
    if let Some(least) = least.filter(|&least| at_start < least) {
        remarks.push(format!(
            "deployment.planner.min_gpu_budget: the deployment starts on {at_start} GPUs, fewer than the {least} of the \
             budget: the planner scales it up at its first tick"
        ));
    }
    remarks
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use std::path::Path;

    use super::*;
    use crate::config::scenario::PolicyConfig;
    use crate::config::{self, Document};

    fn remarked(planner: &str, fields: &serde_json::Value, workers: u32) -> Vec<String> {
        let text = format!(
            "deployment: {{mode: agg, agg: {{workers: {workers}, tensor_parallel_size: 4}}}}\n\
             workload: {{isl: 10, osl: 2, request_rate: 1, num_request_ratio: 1}}"
        );
        let document = config::load(&text, Path::new("scenario.yaml"), &[]).unwrap();
        let Document::Scenario(mut scenario) = document else { panic!("a scenario") };
        let fields = fields.as_object().unwrap().clone();
        scenario.deployment.planner = Some(PolicyConfig { fields, ..PolicyConfig::named(planner) });
        remarks(&scenario, &Registry::builtin())
    }

    #[test]
    fn fleets_outside_the_budget_are_remarked() {
        let remarks = remarked("load_180_5", &json!({}), 3);
        assert_eq!(remarks.len(), 1, "{remarks:?}");
        assert!(remarks[0].contains("starts on 12 GPUs, more than the 8 of the budget"), "{remarks:?}");
        assert_eq!(remarked("load_180_5", &json!({}), 2), Vec::<String>::new());
        assert_eq!(remarked("load_180_5", &json!({"max_gpu_budget": -1}), 20), Vec::<String>::new());
        let tiny = remarked("queue_aware", &json!({"max_gpu_budget": 3}), 1);
        assert!(tiny[0].contains("one worker of each pool already takes 4 GPUs"), "{tiny:?}");
        for planner in ["load_180_5", "queue_aware", "clairvoyant"] {
            let kept = remarked(planner, &json!({"min_endpoint": 3}), 1);
            assert_eq!(kept.len(), 1, "{kept:?}");
            assert!(kept[0].starts_with("deployment.planner.min_endpoint: "), "{kept:?}");
            assert!(kept[0].contains("take 12 GPUs, more than the 8 of max_gpu_budget"), "{kept:?}");
            assert_eq!(remarked(planner, &json!({"min_endpoint": 2}), 1), Vec::<String>::new());
        }
        let small = remarked("planner", &json!({"min_gpu_budget": 8}), 1);
        assert!(small[0].contains("starts on 4 GPUs, fewer than the 8"), "{small:?}");
        assert_eq!(remarked("disabled", &json!({}), 20), Vec::<String>::new());
    }
}
