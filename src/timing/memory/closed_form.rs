//! The memory of one GPU from the sizes of the model.
//!
//! The formulas and their constants are those of the memory estimator of AI Configurator, fitted there to what engines
//! report. One thing is different: with pipeline stages, a GPU keeps KV entries for the layers of its own stage, not for
//! all of them.

use super::plan::{FractionOf, KvGrowth, MemoryPlan, MemorySource};
use crate::config::scenario::Backend;
use crate::model::{
    Attention, Experts, FeedForward, HardwareFacts, ModelFacts, Operator, Phase, Split, WeightFormat,
    operators,
};

const MIB: f64 = (1 << 20) as f64;

/// The memory of one GPU of a worker that is split in this way.
///
/// `max_num_batched_tokens` is the most that one pass computes; `fraction` the engine's share of memory.
///
/// # Errors
/// Why the model cannot be split in this way.
pub fn closed_form(
    model: &ModelFacts,
    hardware: &HardwareFacts,
    backend: Backend,
    split: Split,
    max_num_batched_tokens: u32,
    fraction: f64,
) -> Result<MemoryPlan, String> {
    if let Some(problem) = model.split_problem(split) {
        return Err(problem);
    }
    Ok(MemoryPlan {
        source: MemorySource::ClosedForm,
        capacity_bytes: hardware.memory_bytes,
        weights_bytes: weights_bytes(model, split, backend) / f64::from(split.pp),
        activation_bytes: activation_bytes(model, split, backend, max_num_batched_tokens),
        runtime_bytes: runtime_bytes(backend),
        comm_bytes: comm_bytes(split.tp),
        fraction,
        fraction_of: FractionOf::of_backend(backend),
        kv: kv_growth(model, split),
    })
}

/// What vLLM and TensorRT-LLM take for themselves; SGLang a fifth more.
fn runtime_bytes(backend: Backend) -> f64 {
    let usual = 3584.0 * MIB;
    if backend == Backend::Sglang { 1.2 * usual } else { usual }
}

/// Buffers for communication between the GPUs of a tensor-parallel group.
fn comm_bytes(tp: u32) -> f64 {
    match tp {
        1 => 0.0,
        2 => 342.0 * MIB,
        _ => 392.0 * MIB,
    }
}

/// Weights of all layers on one rank; norms and biases are too small to count.
fn weights_bytes(model: &ModelFacts, split: Split, backend: Backend) -> f64 {
    match operators(model, split, backend, Phase::Context) {
        Some(list) => {
            let bytes = |format: &str| format_bytes(model, format);
            list.iter().filter_map(Operator::weights).map(|(weights, format)| weights * bytes(format)).sum()
        }
        None => latent_weights_bytes(model, split),
    }
}

/// Bytes of a weight in the format of this name, which is one of the model's own.
fn format_bytes(model: &ModelFacts, name: &str) -> f64 {
    let formats = model.formats;
    let own = [formats.attention, formats.attention_output, formats.feed_forward, formats.experts];
    own.iter()
        .find(|format| format.name() == name)
        .map_or(WeightFormat::Bfloat16.bytes(), |format| format.bytes())
}

/// Weights of a model with latent attention. Every layer counts as one of experts; the embedding is not split.
fn latent_weights_bytes(model: &ModelFacts, split: Split) -> f64 {
    let Attention::Latent {
        heads,
        q_lora_rank,
        kv_lora_rank,
        qk_nope_head_size,
        qk_rope_head_size,
        v_head_size,
        indexer,
        ..
    } = model.attention
    else {
        unreachable!("the caller has asked for the operators of the other kind");
    };
    let plain = WeightFormat::Bfloat16.bytes();
    let (hidden, tp) = (model.hidden_size as f64, f64::from(split.tp));
    let rank_heads = heads as f64 / tp;
    let query_width = rank_heads * (qk_nope_head_size + qk_rope_head_size) as f64;
    // Without compression queries are projected from the residual stream.
    let query = if q_lora_rank == 0 { hidden } else { q_lora_rank as f64 } * query_width;
    let down = hidden * (q_lora_rank + kv_lora_rank + qk_rope_head_size) as f64;
    let up = kv_lora_rank as f64 * rank_heads * (qk_nope_head_size + v_head_size) as f64;
    let output = rank_heads * v_head_size as f64 * hidden;
    let attention = (query + down + up) * model.formats.attention.bytes()
        + output * model.formats.attention_output.bytes();
    // The indexer of sparse attention is kept whole on every rank, and never quantised.
    let index = indexer.map_or(0.0, |(heads, size)| {
        plain * (q_lora_rank as f64 * (heads * size) as f64 + hidden * heads as f64)
    });
    let shared_split = if indexer.is_some() { f64::from(split.moe_tp) } else { tp };
    let feed_forward = match model.feed_forward {
        FeedForward::Dense(dense) => {
            3.0 * hidden * dense.intermediate_size as f64 / tp * model.formats.feed_forward.bytes()
        }
        FeedForward::Experts(experts) => experts_bytes(model, experts, split, shared_split),
    };
    let vocabulary = model.vocabulary_size as f64;
    model.layers as f64 * (attention + index + feed_forward)
        + vocabulary * hidden * plain
        + vocabulary / tp * hidden * plain
}

/// Router, shared and routed experts of one layer.
fn experts_bytes(model: &ModelFacts, experts: Experts, split: Split, shared_split: f64) -> f64 {
    let hidden = model.hidden_size as f64;
    let one = 3.0 * hidden * experts.intermediate_size as f64;
    let router = hidden * experts.experts as f64 * WeightFormat::Bfloat16.bytes();
    let shared = one * experts.shared_experts as f64 / shared_split * model.formats.feed_forward.bytes();
    let routed = one * experts.experts as f64 / f64::from(split.moe_tp * split.moe_ep);
    router + shared + routed * model.formats.experts.bytes()
}

/// What the largest pass needs beside weights and KV blocks.
fn activation_bytes(model: &ModelFacts, split: Split, backend: Backend, tokens: u32) -> f64 {
    let tokens = f64::from(tokens);
    let width = match model.attention {
        Attention::Grouped { heads, head_size, .. } => heads * head_size,
        Attention::Latent { heads, nominal_head_size, .. } => heads * nominal_head_size,
    } as f64;
    let sglang = backend == Backend::Sglang;
    let mut bytes = 2.0 * tokens * width * activation_factor(model, split.tp, sglang);
    if let (Attention::Latent { .. }, FeedForward::Experts(experts)) = (&model.attention, model.feed_forward)
    {
        // The workspace of block-quantised expert kernels, one scale of four bytes for every 128 numbers.
        let routed = (experts.experts * experts.experts_per_token) as f64 / f64::from(split.moe_ep);
        let row = if sglang { model.hidden_size as f64 } else { width };
        bytes += tokens * row * f64::from(split.attention_dp) * routed / 128.0 * 4.0;
    }
    let scale = if sglang { SGLANG_ACTIVATION_SCALE } else { 1.0 };
    (bytes * scale).max(least_activation_bytes(backend))
}

/// What SGLang takes for activations beyond their sizes.
const SGLANG_ACTIVATION_SCALE: f64 = 1.15;

/// What an engine keeps for activations however little it computes in a pass.
pub(super) fn least_activation_bytes(backend: Backend) -> f64 {
    match backend {
        Backend::Vllm | Backend::Trtllm => 70.0 * MIB,
        Backend::Sglang => 90.0 * MIB * SGLANG_ACTIVATION_SCALE,
    }
}

/// Buffers of a layer, in multiples of the width of attention; fitted.
fn activation_factor(model: &ModelFacts, tp: u32, sglang: bool) -> f64 {
    let factors = match (model.is_moe(), sglang) {
        (false, false) => [11.0, 6.5, 5.0, 5.0],
        (false, true) => [14.0, 8.5, 6.5, 6.5],
        (true, false) => [22.0, 13.0, 10.0, 10.0],
        (true, true) => [28.0, 17.0, 13.0, 13.0],
    };
    factors[match tp {
        1 => 0,
        2 | 3 => 1,
        4..=7 => 2,
        _ => 3,
    }]
}

/// How the KV entries of a sequence grow on one GPU of a worker that is split in this way.
pub fn kv_growth(model: &ModelFacts, split: Split) -> KvGrowth {
    let kv_bytes = model.formats.kv_cache.bytes();
    let stages = u64::from(split.pp);
    match model.attention {
        Attention::Grouped { kv_heads, head_size, sliding, .. } => {
            let layer = 2.0 * (kv_heads.div_ceil(u64::from(split.tp)) * head_size) as f64 * kv_bytes;
            let windowed = sliding.map_or(0, |sliding| sliding.layers);
            let full = (model.layers - windowed).div_ceil(stages) as f64;
            KvGrowth {
                bytes_per_token: full * layer,
                windowed_bytes_per_token: windowed.div_ceil(stages) as f64 * layer,
                window_tokens: sliding.map_or(0, |sliding| sliding.tokens),
            }
        }
        Attention::Latent { kv_lora_rank, qk_rope_head_size, indexer, .. } => {
            let layer = match indexer {
                None => (kv_lora_rank + qk_rope_head_size) as f64 * kv_bytes,
                // Positions stay at two bytes, and the indexer keeps a key of one byte with a scale of four.
                Some((_, size)) => {
                    kv_lora_rank as f64 * kv_bytes + 2.0 * qk_rope_head_size as f64 + (size + 4) as f64
                }
            };
            KvGrowth::linear(model.layers.div_ceil(stages) as f64 * layer)
        }
    }
}
