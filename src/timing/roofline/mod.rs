//! A rough estimate for deployments that nobody sampled: each operator takes as long as its arithmetic and its memory
//! traffic at a fitted share of the GPU's peaks, and a constant.
//!
//! The two are joined as the cube root of the sum of their cubes: near the larger where they differ, above both where they
//! are alike. The operators are those that a model's facts give; the factors come from the fitted deployment that is most
//! like the one in question.

mod factors;

use factors::{Factors, nearest};

use super::profile::{Axes, Pack, PassTables, Tables};
use crate::config::scenario::Backend;
use crate::model::{HardwareFacts, ModelFacts, Operator, Phase, Split, WeightFormat, operators};

/// Share of the memory bandwidth that operators without arithmetic reach, and what each of them takes besides.
const ELEMENTWISE_RATE: f64 = 0.8;
const ELEMENTWISE_SECONDS: f64 = 3e-6;
/// What a message to another pipeline stage takes besides.
const STAGE_SECONDS: f64 = 10e-6;
/// Bytes of one activation.
const ACTIVATION_BYTES: f64 = 2.0;

/// A rough estimate of what passes take.
#[derive(Debug)]
pub struct Estimate {
    /// The prices.
    pub tables: PassTables,
    /// What they stand on, and what error to expect, in words.
    pub caution: String,
    /// The set of factors: GPU, engine, version and number format that it was fitted to.
    pub set: String,
    /// A digest of the prices: 16 hexadecimal digits, the same on every machine.
    pub digest: String,
}

/// Estimates a deployment; `None` for models whose operators are not known: those with latent attention.
pub fn estimate(
    model: &ModelFacts,
    hardware: &HardwareFacts,
    split: Split,
    backend: Backend,
) -> Option<Estimate> {
    let context = operators(model, split, backend, Phase::Context)?;
    let generation = operators(model, split, backend, Phase::Generation)?;
    let format = model.formats.attention.name();
    let (set, distance) = nearest(&model.name, &hardware.name, backend, format);
    let gpu = Gpu { hardware, factors: &set.factors, split };
    let axes = Pack::embedded().finest_axes();
    let sampled = sample(&gpu, axes, &context, &generation);
    let name = format!("{}/{}/{}/{}", set.system, set.backend.name(), set.version, set.weights);
    Some(Estimate {
        caution: format!(
            "a rough estimate from the factors of {name}, fitted to {}: expect errors of {}; no basis for a choice between \
             close configurations",
            set.models.join(", "),
            distance.expected_error()
        ),
        set: name,
        digest: sampled.digest(axes),
        tables: PassTables::new(axes, &sampled),
    })
}

fn sample(gpu: &Gpu<'_>, axes: &Axes, context: &[Operator], generation: &[Operator]) -> Tables {
    let numbers = |points: &[u32]| points.iter().copied().map(f64::from).collect::<Vec<f64>>();
    let sum = |list: &[Operator], price: &dyn Fn(&Operator) -> f64| 1e3 * list.iter().map(price).sum::<f64>();
    let other = |list: &[Operator], tokens: f64, sequences: f64| {
        1e3 * gpu.factors.pass_seconds + sum(list, &|operator| gpu.other(operator, tokens, sequences))
    };
    Tables {
        ctx_other: numbers(&axes.context_tokens)
            .into_iter()
            .map(|tokens| other(context, tokens, 1.0))
            .collect(),
        ctx_attn: numbers(&axes.attn_batch)
            .into_iter()
            .map(|batch| {
                let by_new = |new: f64| {
                    let by_prefix = |prefix: f64| {
                        sum(context, &|operator| gpu.prompt_attention(operator, batch, new, prefix))
                    };
                    numbers(&axes.attn_prefix).into_iter().map(by_prefix).collect()
                };
                numbers(&axes.attn_new).into_iter().map(by_new).collect()
            })
            .collect(),
        gen_other: numbers(&axes.decode_batch)
            .into_iter()
            .map(|requests| other(generation, requests, requests))
            .collect(),
        gen_attn: numbers(&axes.decode_batch)
            .into_iter()
            .map(|requests| {
                let by_length = |length: f64| {
                    sum(generation, &|operator| gpu.decode_attention(operator, requests, length))
                };
                numbers(&axes.decode_context).into_iter().map(by_length).collect()
            })
            .collect(),
    }
}

/// A GPU as its kernels use it.
struct Gpu<'a> {
    hardware: &'a HardwareFacts,
    factors: &'a Factors,
    split: Split,
}

impl Gpu<'_> {
    /// Seconds of everything but attention of a pass over so many tokens and sequences.
    fn other(&self, operator: &Operator, tokens: f64, sequences: f64) -> f64 {
        match operator {
            Operator::Embedding { scale_factor, hidden_size, .. } => {
                scale_factor * self.elementwise(tokens * *hidden_size as f64 * ACTIVATION_BYTES)
            }
            Operator::Elementwise { scale_factor, bytes_per_token, .. } => {
                scale_factor * self.elementwise(tokens * bytes_per_token)
            }
            Operator::Gemm { name, scale_factor, n, k, quant_mode, .. } => {
                // The output head sees the last token of each sequence only.
                let rows = if name.ends_with("logits_gemm") { sequences } else { tokens };
                scale_factor * self.gemm(rows, *n as f64, *k as f64, quant_mode)
            }
            Operator::Moe { scale_factor, .. } => scale_factor * self.experts(operator, tokens),
            Operator::MoeDispatch { scale_factor, hidden_size, attention_dp_size, .. } => {
                let bytes = tokens * *hidden_size as f64 * ACTIVATION_BYTES;
                let reduced = self.all_reduce(bytes, f64::from(self.split.tp));
                let ranks = *attention_dp_size as f64;
                // Gathering, like scattering, is half of a reduction.
                scale_factor * (reduced + self.all_reduce(bytes * ranks, ranks) / 2.0)
            }
            Operator::CustomAllReduce { scale_factor, hidden_size, tp_size, .. } => {
                scale_factor
                    * self.all_reduce(tokens * *hidden_size as f64 * ACTIVATION_BYTES, *tp_size as f64)
            }
            Operator::P2P { scale_factor, hidden_size, .. } => {
                let bytes = tokens * *hidden_size as f64 * ACTIVATION_BYTES;
                scale_factor * (bytes / self.hardware.inter_node_bandwidth + STAGE_SECONDS)
            }
            Operator::ContextAttention { .. } | Operator::GenerationAttention { .. } => 0.0,
        }
    }

    fn prompt_attention(&self, operator: &Operator, batch: f64, new: f64, prefix: f64) -> f64 {
        let Operator::ContextAttention {
            scale_factor, n, n_kv, head_size, window_size, kv_cache_dtype, ..
        } = operator
        else {
            return 0.0;
        };
        let (heads, size, window) = (*n as f64, *head_size as f64, *window_size as f64);
        let total = new + prefix;
        let operations = if window > 0.0 && window < total {
            4.0 * batch * new * window * heads * size
        } else {
            2.0 * batch * (total * total - prefix * prefix) * heads * size
        };
        let kept = 2.0 * bytes_of(kv_cache_dtype) * batch * *n_kv as f64 * size * total;
        let bytes = 4.0 * batch * new * heads * size + kept;
        let Factors {
            attention_rate, attention_half_tokens, attention_memory_rate, attention_seconds, ..
        } = self.factors;
        let rate = attention_rate * new / (new + attention_half_tokens);
        let arithmetic = operations / (self.hardware.bf16_flops * rate);
        let memory = bytes / (self.hardware.memory_bandwidth * attention_memory_rate);
        scale_factor * (joined(arithmetic, memory) + attention_seconds)
    }

    fn decode_attention(&self, operator: &Operator, requests: f64, length: f64) -> f64 {
        let Operator::GenerationAttention {
            scale_factor,
            n,
            n_kv,
            head_size,
            window_size,
            kv_cache_dtype,
            ..
        } = operator
        else {
            return 0.0;
        };
        let seen = if *window_size > 0 { length.min(*window_size as f64) } else { length };
        let size = *head_size as f64;
        let kept = 2.0 * bytes_of(kv_cache_dtype) * *n_kv as f64 * size * seen;
        let bytes = requests * (4.0 * *n as f64 * size + kept);
        let Factors { attention_memory_rate, attention_seconds, .. } = self.factors;
        scale_factor * (bytes / (self.hardware.memory_bandwidth * attention_memory_rate) + attention_seconds)
    }

    fn elementwise(&self, bytes: f64) -> f64 {
        bytes / (ELEMENTWISE_RATE * self.hardware.memory_bandwidth) + ELEMENTWISE_SECONDS
    }

    fn gemm(&self, rows: f64, n: f64, k: f64, format: &str) -> f64 {
        let Factors { gemm_rate, gemm_half_tokens, gemm_memory_rate, gemm_seconds, .. } = self.factors;
        let rate = gemm_rate * rows / (rows + gemm_half_tokens);
        let arithmetic = 2.0 * rows * n * k / (self.flops(format) * rate);
        let bytes = bytes_of(format) * (rows * n + rows * k + n * k);
        joined(arithmetic, bytes / (self.hardware.memory_bandwidth * gemm_memory_rate)) + gemm_seconds
    }

    /// The experts of one layer: every token goes to some of them, and the weights of those that have tokens are read.
    fn experts(&self, operator: &Operator, tokens: f64) -> f64 {
        let Operator::Moe {
            hidden_size,
            inter_size,
            topk,
            num_experts,
            moe_tp_size,
            moe_ep_size,
            attention_dp_size,
            quant_mode,
            is_gated,
            ..
        } = operator
        else {
            return 0.0;
        };
        let [hidden, inner, chosen, experts, tp, ep, ranks] =
            [hidden_size, inter_size, topk, num_experts, moe_tp_size, moe_ep_size, attention_dp_size]
                .map(|size| *size as f64);
        let all_tokens = tokens * ranks;
        let products = if *is_gated { 3.0 } else { 2.0 };
        let touched = experts / ep * (1.0 - libm::pow(1.0 - chosen / experts, all_tokens));
        let rows = all_tokens * chosen / ep;
        let rows_each = rows / touched;
        let Factors { experts_rate, experts_half_tokens, experts_memory_rate, experts_seconds, .. } =
            self.factors;
        let rate = experts_rate * rows_each / (rows_each + experts_half_tokens);
        let arithmetic = 2.0 * rows * hidden * inner * products / (tp * self.flops(quant_mode) * rate);
        let bytes = bytes_of(quant_mode)
            * (hidden * inner * products * touched / tp + 2.0 * rows * hidden + rows * inner * products / tp);
        joined(arithmetic, bytes / (self.hardware.memory_bandwidth * experts_memory_rate)) + experts_seconds
    }

    fn all_reduce(&self, bytes: f64, ranks: f64) -> f64 {
        if ranks <= 1.0 {
            return 0.0;
        }
        let inside = ranks <= f64::from(self.hardware.gpus_per_node);
        let link =
            if inside { self.hardware.intra_node_bandwidth } else { self.hardware.inter_node_bandwidth };
        let Factors { message_seconds, link_rate, .. } = self.factors;
        message_seconds + (ranks - 1.0) / ranks * bytes / (link * link_rate)
    }

    /// Peak rate of products in a format; formats of four bits without arithmetic of their own are computed in two bytes.
    fn flops(&self, format: &str) -> f64 {
        let HardwareFacts { bf16_flops, fp8_flops, fp4_flops, .. } = self.hardware;
        match WeightFormat::named(format) {
            Some(WeightFormat::Nvfp4) => fp4_flops.or(*fp8_flops).unwrap_or(*bf16_flops),
            Some(
                WeightFormat::Fp8 | WeightFormat::Fp8Static | WeightFormat::Fp8Block(_) | WeightFormat::Int8,
            ) => fp8_flops.unwrap_or(*bf16_flops),
            _ => *bf16_flops,
        }
    }
}

fn bytes_of(format: &str) -> f64 {
    WeightFormat::named(format).map_or(ACTIVATION_BYTES, WeightFormat::bytes)
}

/// Near the larger of two times where they differ, above both where they are alike.
fn joined(arithmetic: f64, memory: f64) -> f64 {
    libm::cbrt(arithmetic * arithmetic * arithmetic + memory * memory * memory)
}
