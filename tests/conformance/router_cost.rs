//! C36: what the KV router's cost comes to.

use serde::Deserialize;

use crate::slow::router_cost::{self, Weights, WorkerState};
use crate::support::case;
use crate::support::figure::near;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Decision {
    name: String,
    block_size: u32,
    prompt_tokens: u32,
    #[serde(default)]
    router: Weights,
    workers: Vec<WorkerState>,
    costs: Vec<f64>,
    /// The workers of least cost.
    #[serde(default)]
    best: Vec<usize>,
    #[serde(default)]
    probabilities: Vec<f64>,
}

#[test]
fn c36() {
    let decisions: Vec<Decision> = serde_yaml::from_str(&case::read("C36")).unwrap();
    for decision in decisions {
        let costs = router_cost::costs(
            &decision.router,
            decision.block_size,
            decision.prompt_tokens,
            &decision.workers,
        );
        assert_near(&decision.costs, &costs, &decision.name);
        let least = costs.iter().copied().fold(f64::INFINITY, f64::min);
        if decision.router.router_temperature > 0.0 {
            let found = router_cost::probabilities(&costs, decision.router.router_temperature);
            assert_near(&decision.probabilities, &found, &decision.name);
        } else {
            let best: Vec<usize> = (0..costs.len()).filter(|&worker| costs[worker] == least).collect();
            assert_eq!(decision.best, best, "{}", decision.name);
        }
    }
}

fn assert_near(expected: &[f64], found: &[f64], name: &str) {
    assert_eq!(expected.len(), found.len(), "{name}");
    for (expected, found) in expected.iter().zip(found) {
        assert!(near(*expected, *found, 1e-9), "{name}: expected {expected}, found {found}");
    }
}
