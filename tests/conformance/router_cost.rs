//! C36: what the KV router's cost comes to, by the formula and by the crate's router.

use serde::Deserialize;
use serde_json::{Value, json};
use spica::serving::message::WorkerId;
use spica::serving::router::choice::softmax_weights;
use spica::serving::router::kv_router::KvRouter;
use spica::serving::router::{RequestView, WorkerView};
use spica::workload::RequestId;

use crate::slow::router_cost::{self, Weights, WorkerState};
use crate::support::case;
use crate::support::figure::near;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Decision {
    name: String,
    block_size: u32,
    prompt_tokens: u32,
    #[serde(default = "nothing")]
    router: Value,
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
    for decision in case::read::<Vec<Decision>>("C36") {
        let name = &decision.name;
        let weights: Weights = serde_json::from_value(decision.router.clone()).expect("weights");
        let temperature = weights.router_temperature;
        let slow =
            router_cost::costs(&weights, decision.block_size, decision.prompt_tokens, &decision.workers);
        let fast = costs_of_the_crate(&decision);
        for costs in [&slow, &fast] {
            assert_near(&decision.costs, costs, name);
            let least = costs.iter().copied().fold(f64::INFINITY, f64::min);
            let best: Vec<usize> = (0..costs.len()).filter(|&worker| costs[worker] == least).collect();
            assert!(decision.best.is_empty() || decision.best == best, "{name}: best are {best:?}");
        }
        if temperature > 0.0 {
            let weights = softmax_weights(&fast, temperature);
            let sum: f64 = weights.iter().sum();
            let fast: Vec<f64> = weights.iter().map(|weight| weight / sum).collect();
            assert_near(&decision.probabilities, &fast, name);
            assert_near(&decision.probabilities, &router_cost::probabilities(&slow, temperature), name);
        }
    }
}

fn costs_of_the_crate(decision: &Decision) -> Vec<f64> {
    let router: KvRouter = serde_json::from_value(decision.router.clone()).expect("router options");
    let request = RequestView {
        id: RequestId(0),
        input_length: decision.prompt_tokens,
        output_length: 1,
        block_size: decision.block_size,
        session: 0,
        turn: 0,
    };
    let least = decision.workers.iter().map(|worker| worker.active_prefill).min().unwrap_or(0);
    let cost = |(id, state): (u32, &WorkerState)| {
        let view = WorkerView {
            overlap_blocks: state.overlap,
            active_prefill_tokens: u64::from(state.active_prefill),
            active_blocks: u64::from(state.active_blocks),
            active_blocks_unshared: u64::from(state.active_blocks),
            shared_active_blocks: state.shared_active,
            active_requests: state.active_requests,
            ..WorkerView::idle(WorkerId(id))
        };
        router.cost(&request, &view, u64::from(least))
    };
    (0..).zip(&decision.workers).map(cost).collect()
}

fn assert_near(expected: &[f64], found: &[f64], name: &str) {
    assert_eq!(expected.len(), found.len(), "{name}");
    for (expected, found) in expected.iter().zip(found) {
        assert!(near(*expected, *found, 1e-9), "{name}: expected {expected}, found {found}");
    }
}

fn nothing() -> Value {
    json!({})
}
