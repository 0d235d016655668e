//! What a profile consists of: the shape it belongs to, its tables and its memory facts.

use std::sync::{Arc, OnceLock};

use serde::Deserialize;
use xxhash_rust::xxh3::Xxh3Default;

use super::model::PassTables;

/// How one worker spreads a model over its GPUs. A dense model has 1 for both of the experts' sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Deserialize)]
pub struct Shape {
    /// Tensor parallelism of attention.
    pub tp: u32,
    /// Pipeline stages.
    pub pp: u32,
    /// Attention-data-parallel ranks.
    pub attention_dp: u32,
    /// Tensor parallelism of the experts.
    pub moe_tp: u32,
    /// Expert parallelism.
    pub moe_ep: u32,
}

impl Shape {
    /// GPUs of one worker.
    pub fn gpus(self) -> u32 {
        self.tp * self.pp * self.attention_dp
    }
}

/// Number formats, under the names of the tool that the data come from.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Quantization {
    /// Of matrix products.
    #[serde(rename = "gemm_quant_mode")]
    pub gemm: String,
    /// Of experts; absent in dense models.
    #[serde(rename = "moe_quant_mode")]
    pub experts: Option<String>,
    /// Of the KV cache.
    #[serde(rename = "kvcache_quant_mode")]
    pub kv_cache: String,
    /// Of attention.
    #[serde(rename = "fmha_quant_mode")]
    pub attention: String,
    /// Of what GPUs send each other.
    #[serde(rename = "comm_quant_mode")]
    pub communication: String,
}

impl Quantization {
    /// The format of most weights: the experts' where there are experts.
    pub fn weights(&self) -> &str {
        self.experts.as_deref().unwrap_or(&self.gemm)
    }
}

/// The sampled points of the four tables of a profile.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Axes {
    /// Tokens of a pass that computes prompts.
    pub context_tokens: Vec<u32>,
    /// Prompts in such a pass.
    pub attn_batch: Vec<u32>,
    /// New tokens of each of them.
    pub attn_new: Vec<u32>,
    /// Tokens before those.
    pub attn_prefix: Vec<u32>,
    /// Requests of a decode pass.
    pub decode_batch: Vec<u32>,
    /// Their length in tokens.
    pub decode_context: Vec<u32>,
}

/// Milliseconds of one pass of one rank, in four parts.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Tables {
    /// All but attention of a pass that computes prompts, by tokens.
    pub ctx_other: Vec<f64>,
    /// Attention of such a pass, by prompts, new tokens and prefix.
    pub ctx_attn: Vec<Vec<Vec<f64>>>,
    /// All but attention of a decode pass, by requests.
    pub gen_other: Vec<f64>,
    /// Attention of a decode pass, by requests and length.
    pub gen_attn: Vec<Vec<f64>>,
}

/// Memory of one GPU under one shape.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct MemoryFacts {
    /// Memory of the GPU, in bytes.
    pub capacity_bytes: u64,
    /// Weights, in bytes.
    pub weights_bytes: u64,
    /// KV cache of one token, in bytes.
    pub kv_bytes_per_token: u64,
    /// Activations at each of the pack's numbers of batched tokens ([`super::Pack::activation_tokens`]), in bytes.
    pub activation_bytes: Vec<u64>,
    /// What the engine and its runtime take, in bytes.
    pub runtime_bytes: u64,
    /// Buffers for communication, in bytes.
    pub comm_bytes: u64,
    /// What the engine's memory fraction is a fraction of.
    pub fraction_kind: FractionKind,
    /// The fraction that the engine takes unless told otherwise.
    pub default_fraction: f64,
    /// Share of its budget that an engine may overrun without failing.
    pub oom_tolerance: f64,
    /// How many tokens a number of bytes holds.
    pub kv_rule: KvRule,
    /// Tokens that the original tool finds room for with 8192 batched tokens and a fraction of 0.9; absent where it
    /// finds none.
    #[serde(rename = "sdk_kv_tokens_T8192_b256_f09")]
    pub reference_kv_tokens: Option<u64>,
}

/// What a memory fraction is a fraction of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FractionKind {
    /// Of all memory: everything but the KV cache has to fit beside it.
    OfTotal,
    /// Of what everything else leaves free.
    OfFree,
}

/// How many tokens of KV cache a number of bytes holds.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum KvRule {
    /// Every token takes the same.
    Linear,
    /// Some layers keep a window only.
    Window {
        /// Tokens of the window.
        window_tokens: u64,
        /// Bytes of each token inside it.
        bytes_per_token_within: f64,
        /// Bytes of each token beyond it.
        bytes_per_token_beyond: f64,
    },
}

/// A shape for which there is no profile.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Skip {
    /// The shape.
    #[serde(flatten)]
    pub shape: Shape,
    /// Why there is none.
    pub reason: String,
}

/// One deployment: a family's model, GPU and engine under one shape.
#[derive(Debug, Deserialize)]
pub struct Profile {
    /// Its name.
    pub id: String,
    /// How a worker is laid out.
    #[serde(flatten)]
    pub shape: Shape,
    /// A remark that was computed when the data were made: it may be a real effect.
    pub caution: Option<String>,
    /// Whether a worker is larger than a node of eight GPUs.
    #[serde(default)]
    pub spans_nodes: bool,
    /// Memory, where it is known.
    pub memory: Option<MemoryFacts>,
    /// How long its passes take.
    #[serde(flatten)]
    pub tables: Tables,
    /// The same, prepared for look-ups by whoever needs them first.
    #[serde(skip)]
    pub(super) prepared: OnceLock<Arc<PassTables>>,
}

impl Tables {
    /// A digest of the numbers that price a pass: 16 hexadecimal digits, the same on every machine.
    pub fn digest(&self, axes: &Axes) -> String {
        let mut hasher = Xxh3Default::new();
        let Axes { context_tokens, attn_batch, attn_new, attn_prefix, decode_batch, decode_context } = axes;
        for axis in [context_tokens, attn_batch, attn_new, attn_prefix, decode_batch, decode_context] {
            hasher.update(&(axis.len() as u64).to_le_bytes());
            for point in axis {
                hasher.update(&point.to_le_bytes());
            }
        }
        let Tables { ctx_other, ctx_attn, gen_other, gen_attn } = self;
        let values = ctx_other.iter().chain(ctx_attn.iter().flatten().flatten());
        for value in values.chain(gen_other).chain(gen_attn.iter().flatten()) {
            hasher.update(&value.to_bits().to_le_bytes());
        }
        format!("{:016x}", hasher.digest())
    }
}
