//! What a KV router thinks of a worker, straight from the formula.

use serde::Deserialize;

/// What the router knows of one worker with regard to one prompt.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct WorkerState {
    /// Leading blocks of the prompt that the worker has.
    pub overlap: u32,
    /// Prompt tokens dispatched to it and not yet computed.
    pub active_prefill: u32,
    /// Distinct blocks of its active requests.
    pub active_blocks: u32,
    /// Full blocks of the prompt among those.
    pub shared_active: u32,
    pub active_requests: u32,
}

/// The weights of the cost.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Weights {
    pub overlap_score_credit: f64,
    pub overlap_score_credit_decay: f64,
    pub prefill_load_scale: f64,
    pub decode_active_request_weight: f64,
    pub router_temperature: f64,
}

impl Default for Weights {
    fn default() -> Self {
        Self {
            overlap_score_credit: 1.0,
            overlap_score_credit_decay: 0.0,
            prefill_load_scale: 1.0,
            decode_active_request_weight: 0.0,
            router_temperature: 0.0,
        }
    }
}

/// The cost of each worker, in blocks.
pub(crate) fn costs(weights: &Weights, block_size: u32, prompt: u32, workers: &[WorkerState]) -> Vec<f64> {
    let block = f64::from(block_size);
    let least = workers.iter().map(|worker| worker.active_prefill).min().unwrap_or(0);
    let request_blocks = f64::from((prompt / block_size).max(1));
    let cost = |worker: &WorkerState| {
        let prefill = f64::from(worker.active_prefill + prompt) / block;
        let ahead = f64::from(worker.active_prefill - least) / block;
        let decay = 1.0 / (1.0 + weights.overlap_score_credit_decay * ahead / request_blocks);
        let credit = weights.overlap_score_credit * decay * f64::from(worker.overlap);
        let decode = worker.active_blocks + prompt / block_size - worker.shared_active;
        weights.prefill_load_scale * (prefill - credit).max(0.0)
            + f64::from(decode)
            + weights.decode_active_request_weight * f64::from(worker.active_requests)
    };
    workers.iter().map(cost).collect()
}

/// How likely each worker is drawn at a temperature above 0.
pub(crate) fn probabilities(costs: &[f64], temperature: f64) -> Vec<f64> {
    let least = costs.iter().copied().fold(f64::INFINITY, f64::min);
    let most = costs.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let weight =
        |cost: f64| if most > least { (-(cost - least) / ((most - least) * temperature)).exp() } else { 1.0 };
    let sum: f64 = costs.iter().map(|&cost| weight(cost)).sum();
    costs.iter().map(|&cost| weight(cost) / sum).collect()
}
