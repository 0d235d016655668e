//! What a model computes in one pass of one rank, as a list of operators.
//!
//! The lists are those of AI Configurator for dense models and mixtures of experts with grouped-query attention:
//! serialised they have its names and form. Its constants (`seq_split`, `cp_size`, ...) are left out; where it is to read
//! a list they are added ([`super::engine_spec()`]).

use serde::Serialize;

use super::facts::{Attention, Experts, FeedForward, ModelFacts, SlidingWindow};
use super::split::Split;
use crate::config::scenario::Backend;

/// What a pass is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// It computes prompts.
    Context,
    /// It generates one token for each of its requests.
    Generation,
}

/// One operator with the sizes that one rank sees. `scale_factor` is how often it runs in a pass.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[expect(missing_docs, reason = "the fields are dimensions under the names of the form that is written")]
pub enum Operator {
    /// Looks tokens up.
    Embedding { name: String, scale_factor: f64, vocab_size: u64, hidden_size: u64, quant_mode: &'static str },
    /// Reads and writes so many bytes per token.
    Elementwise { name: String, scale_factor: f64, bytes_per_token: f64 },
    /// A product of tokens x `k` with `k` x `n`.
    Gemm {
        name: String,
        scale_factor: f64,
        n: u64,
        k: u64,
        quant_mode: &'static str,
        low_precision_input: bool,
    },
    /// Attention of prompts to themselves and what is before them.
    ContextAttention {
        name: String,
        scale_factor: f64,
        n: u64,
        n_kv: u64,
        head_size: u64,
        window_size: u64,
        kv_cache_dtype: &'static str,
        fmha_quant_mode: &'static str,
        use_qk_norm: bool,
    },
    /// Attention of one new token per request to all before it.
    GenerationAttention {
        name: String,
        scale_factor: f64,
        n: u64,
        n_kv: u64,
        head_size: u64,
        window_size: u64,
        kv_cache_dtype: &'static str,
    },
    /// Brings tokens to their experts, or back.
    MoeDispatch {
        name: String,
        scale_factor: f64,
        hidden_size: u64,
        topk: u64,
        num_experts: u64,
        moe_tp_size: u64,
        moe_ep_size: u64,
        attention_dp_size: u64,
        pre_dispatch: bool,
        backend: Backend,
        moe_quant: &'static str,
    },
    /// The routed experts.
    Moe {
        name: String,
        scale_factor: f64,
        hidden_size: u64,
        inter_size: u64,
        topk: u64,
        num_experts: u64,
        moe_tp_size: u64,
        moe_ep_size: u64,
        attention_dp_size: u64,
        quant_mode: &'static str,
        workload_distribution: &'static str,
        is_gated: bool,
    },
    /// Adds up what the ranks of a tensor-parallel group have, everywhere.
    CustomAllReduce { name: String, scale_factor: f64, hidden_size: u64, tp_size: u64, quant: &'static str },
    /// Sends activations from one pipeline stage to the next.
    P2P { name: String, scale_factor: f64, pp_size: u64, hidden_size: u64 },
}

/// The operators of one pass, in their order; `None` for models whose lists are not derived: those with latent attention.
pub fn operators(model: &ModelFacts, split: Split, backend: Backend, phase: Phase) -> Option<Vec<Operator>> {
    let Attention::Grouped { heads, kv_heads, head_size, qk_norm, sliding } = model.attention else {
        return None;
    };
    let heads = GroupedHeads { queries: heads, keys: kv_heads, size: head_size, qk_norm, sliding };
    let list = List { model, split, phase, backend };
    Some(match model.feed_forward {
        FeedForward::Dense(dense) => list.dense(heads, dense.intermediate_size),
        FeedForward::Experts(experts) => list.experts(heads, experts),
    })
}

#[derive(Clone, Copy)]
struct GroupedHeads {
    queries: u64,
    keys: u64,
    size: u64,
    qk_norm: bool,
    sliding: Option<SlidingWindow>,
}

struct List<'a> {
    model: &'a ModelFacts,
    split: Split,
    phase: Phase,
    backend: Backend,
}

/// Activations are sent as numbers of two bytes.
const HALF: &str = "half";
/// What is never quantised.
const PLAIN: &str = "bfloat16";

impl List<'_> {
    fn name(&self, operator: &str) -> String {
        let phase = match self.phase {
            Phase::Context => "context",
            Phase::Generation => "generation",
        };
        format!("{phase}_{operator}")
    }

    fn tp(&self) -> u64 {
        u64::from(self.split.tp)
    }

    fn layers(&self) -> f64 {
        self.model.layers as f64
    }

    fn dense(&self, heads: GroupedHeads, intermediate_size: u64) -> Vec<Operator> {
        let hidden = self.model.hidden_size;
        let width = intermediate_size.div_ceil(self.tp());
        let format = self.model.formats.feed_forward.name();
        let mut list = self.attention_block(heads);
        list.extend([
            self.gemm("gate_ffn1_gemm", 2 * width, hidden, format, false),
            // Reads both halves, writes one: two bytes each.
            self.elementwise("act_gate", 2 * 3 * width),
            self.gemm("ffn2_gemm", hidden, width, format, true),
            self.logits(),
            self.all_reduce("embedding_ar", 1.0),
            self.all_reduce("ar_1", self.layers()),
            self.all_reduce("ar_2", self.layers()),
            self.pipeline_send(),
        ]);
        list
    }

    fn experts(&self, heads: GroupedHeads, experts: Experts) -> Vec<Operator> {
        let mut list = self.attention_block(heads);
        list.extend([
            self.gemm("router_gemm", experts.experts, self.model.hidden_size, PLAIN, false),
            self.dispatch("moe_pre_dispatch", experts, true),
            self.routed_experts(experts),
            self.dispatch("moe_post_dispatch", experts, false),
        ]);
        // In this family, prompts are not charged for the output head.
        list.extend((self.phase == Phase::Generation).then(|| self.logits()));
        list.extend([self.all_reduce("embedding_ar", 1.0), self.pipeline_send()]);
        list
    }

    /// From the embedding to the norm behind attention. Layers with a window come first.
    fn attention_block(&self, heads: GroupedHeads) -> Vec<Operator> {
        let (hidden, formats) = (self.model.hidden_size, self.model.formats);
        let width = heads.queries * heads.size / self.tp();
        let kv_width = heads.size * heads.keys.div_ceil(self.tp());
        let sliding = heads.sliding.map(|sliding| self.attention(heads, sliding.layers, sliding.tokens));
        let full = self.model.layers - heads.sliding.map_or(0, |sliding| sliding.layers);
        let mut list: Vec<Operator> = sliding.into_iter().collect();
        list.extend([
            Operator::Embedding {
                name: self.name("embedding"),
                scale_factor: 1.0,
                vocab_size: self.model.vocabulary_size.div_ceil(self.tp()),
                hidden_size: hidden,
                quant_mode: PLAIN,
            },
            self.elementwise("add_norm_1", 8 * hidden),
            self.gemm("qkv_gemm", width + 2 * kv_width, hidden, formats.attention.name(), false),
            self.attention(heads, full, 0),
            self.gemm("proj_gemm", hidden, width, formats.attention_output.name(), true),
            self.elementwise("add_norm_2", 8 * hidden),
        ]);
        list
    }

    fn attention(&self, heads: GroupedHeads, layers: u64, window_size: u64) -> Operator {
        let (n, n_kv) = (heads.queries / self.tp(), heads.keys.div_ceil(self.tp()));
        let (name, scale_factor) = (self.name("attention"), layers as f64);
        let kv_cache_dtype = self.model.formats.kv_cache.name();
        let head_size = heads.size;
        match self.phase {
            Phase::Context => Operator::ContextAttention {
                name,
                scale_factor,
                n,
                n_kv,
                head_size,
                window_size,
                kv_cache_dtype,
                fmha_quant_mode: PLAIN,
                use_qk_norm: heads.qk_norm,
            },
            Phase::Generation => Operator::GenerationAttention {
                name,
                scale_factor,
                n,
                n_kv,
                head_size,
                window_size,
                kv_cache_dtype,
            },
        }
    }

    fn gemm(
        &self,
        name: &str,
        n: u64,
        k: u64,
        quant_mode: &'static str,
        low_precision_input: bool,
    ) -> Operator {
        let (name, scale_factor) = (self.name(name), self.layers());
        Operator::Gemm { name, scale_factor, n, k, quant_mode, low_precision_input }
    }

    fn logits(&self) -> Operator {
        Operator::Gemm {
            name: self.name("logits_gemm"),
            scale_factor: 1.0,
            n: self.model.vocabulary_size.div_ceil(self.tp()),
            k: self.model.hidden_size,
            quant_mode: PLAIN,
            low_precision_input: false,
        }
    }

    fn elementwise(&self, name: &str, bytes_per_token: u64) -> Operator {
        Operator::Elementwise {
            name: self.name(name),
            scale_factor: self.layers(),
            bytes_per_token: bytes_per_token as f64,
        }
    }

    fn dispatch(&self, name: &str, experts: Experts, pre_dispatch: bool) -> Operator {
        Operator::MoeDispatch {
            name: self.name(name),
            scale_factor: self.layers(),
            hidden_size: self.model.hidden_size,
            topk: experts.experts_per_token,
            num_experts: experts.experts,
            moe_tp_size: u64::from(self.split.moe_tp),
            moe_ep_size: u64::from(self.split.moe_ep),
            attention_dp_size: u64::from(self.split.attention_dp),
            pre_dispatch,
            backend: self.backend,
            moe_quant: self.model.formats.experts.name(),
        }
    }

    fn routed_experts(&self, experts: Experts) -> Operator {
        Operator::Moe {
            name: self.name("moe"),
            scale_factor: self.layers(),
            hidden_size: self.model.hidden_size,
            inter_size: experts.intermediate_size,
            topk: experts.experts_per_token,
            num_experts: experts.experts,
            moe_tp_size: u64::from(self.split.moe_tp),
            moe_ep_size: u64::from(self.split.moe_ep),
            attention_dp_size: u64::from(self.split.attention_dp),
            quant_mode: self.model.formats.experts.name(),
            // Kernels are priced as measured under a skewed choice of experts.
            workload_distribution: "power_law_1.2",
            is_gated: true,
        }
    }

    fn all_reduce(&self, name: &str, scale_factor: f64) -> Operator {
        let (name, hidden_size) = (self.name(name), self.model.hidden_size);
        Operator::CustomAllReduce { name, scale_factor, hidden_size, tp_size: self.tp(), quant: HALF }
    }

    fn pipeline_send(&self) -> Operator {
        Operator::P2P {
            name: self.name("p2p"),
            scale_factor: f64::from(self.split.pp - 1),
            pp_size: u64::from(self.split.pp),
            hidden_size: self.model.hidden_size,
        }
    }
}

impl Operator {
    /// Weights that it holds on one rank, over all its layers: their number, and the name of their format.
    pub fn weights(&self) -> Option<(f64, &'static str)> {
        match *self {
            Self::Embedding { scale_factor, vocab_size, hidden_size, quant_mode, .. } => {
                Some((scale_factor * (vocab_size * hidden_size) as f64, quant_mode))
            }
            Self::Gemm { scale_factor, n, k, quant_mode, .. } => {
                Some((scale_factor * (n * k) as f64, quant_mode))
            }
            Self::Moe {
                scale_factor,
                hidden_size,
                inter_size,
                num_experts,
                moe_tp_size,
                moe_ep_size,
                quant_mode,
                ..
            } => {
                let all = 3.0 * (hidden_size * inter_size * num_experts) as f64;
                Some((scale_factor * all / (moe_tp_size * moe_ep_size) as f64, quant_mode))
            }
            _ => None,
        }
    }
}
