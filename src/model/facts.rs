//! The sizes of one model.

use super::quantization::{NumberFormats, WeightFormat};
use super::split::Split;

/// The sizes of one model, as its `config.json` gives them.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelFacts {
    /// Its name on Hugging Face, or that of the file.
    pub name: String,
    /// The first of its `architectures`.
    pub architecture: String,
    /// Width of the residual stream.
    pub hidden_size: u64,
    /// Decoder layers.
    pub layers: u64,
    /// Tokens of the vocabulary.
    pub vocabulary_size: u64,
    /// Longest sequence in tokens.
    pub max_context: u32,
    /// How tokens look at each other.
    pub attention: Attention,
    /// What follows attention in every layer.
    pub feed_forward: FeedForward,
    /// How everything is stored.
    pub formats: NumberFormats,
}

/// How tokens look at each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Attention {
    /// Groups of query heads that share one head of keys and values.
    Grouped {
        /// Query heads.
        heads: u64,
        /// Heads of keys and values.
        kv_heads: u64,
        /// Width of a head.
        head_size: u64,
        /// Whether queries and keys are normalised.
        qk_norm: bool,
        /// Layers that look back a limited way only.
        sliding: Option<SlidingWindow>,
    },
    /// Multi-head latent attention: all heads share one compressed entry per token.
    Latent {
        /// Query heads.
        heads: u64,
        /// What the reference takes for the width of a head where it estimates activations.
        nominal_head_size: u64,
        /// Width of the compressed query; 0 if queries are not compressed.
        q_lora_rank: u64,
        /// Width of the compressed keys and values.
        kv_lora_rank: u64,
        /// Width of a head's part without position.
        qk_nope_head_size: u64,
        /// Width of the part with position, one for all heads.
        qk_rope_head_size: u64,
        /// Width of a head's value.
        v_head_size: u64,
        /// Heads and head width of the indexer of sparse attention, where there is one.
        indexer: Option<(u64, u64)>,
    },
}

/// Layers that look back a limited way only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlidingWindow {
    /// How many layers do.
    pub layers: u64,
    /// How many tokens they see.
    pub tokens: u64,
}

/// What follows attention in every layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FeedForward {
    /// One gated layer for all tokens.
    Dense(DenseFeedForward),
    /// A mixture of experts.
    Experts(Experts),
}

/// A gated feed-forward layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DenseFeedForward {
    /// Its inner width.
    pub intermediate_size: u64,
}

/// A mixture of gated experts. Layers that a model keeps dense are taken for layers of experts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Experts {
    /// Routed experts.
    pub experts: u64,
    /// Experts that see every token.
    pub shared_experts: u64,
    /// Routed experts that one token sees.
    pub experts_per_token: u64,
    /// Inner width of an expert.
    pub intermediate_size: u64,
}

impl ModelFacts {
    /// Whether it is a mixture of experts.
    pub fn is_moe(&self) -> bool {
        matches!(self.feed_forward, FeedForward::Experts(_))
    }

    /// Query heads.
    pub fn heads(&self) -> u64 {
        match self.attention {
            Attention::Grouped { heads, .. } | Attention::Latent { heads, .. } => heads,
        }
    }

    /// Why a worker cannot be split in this way, if so.
    pub fn split_problem(&self, split: Split) -> Option<String> {
        let Split { tp, attention_dp, moe_tp, moe_ep, .. } = split;
        let heads = self.heads();
        if !heads.is_multiple_of(u64::from(tp)) {
            return Some(format!("{heads} attention heads cannot be shared out over tp {tp}"));
        }
        match self.feed_forward {
            FeedForward::Dense(_) if attention_dp > 1 || moe_tp > 1 || moe_ep > 1 => {
                Some(format!("{} is a dense model: attention_dp, moe_tp and moe_ep have to be 1", self.name))
            }
            FeedForward::Dense(_) => None,
            FeedForward::Experts(experts) => self.experts_problem(experts, split),
        }
    }

    fn experts_problem(&self, experts: Experts, split: Split) -> Option<String> {
        let Split { tp, attention_dp, moe_tp, moe_ep, .. } = split;
        if u64::from(tp) * u64::from(attention_dp) != u64::from(moe_tp) * u64::from(moe_ep) {
            return Some(format!(
                "tp {tp} x attention_dp {attention_dp} has to equal moe_tp {moe_tp} x moe_ep {moe_ep}"
            ));
        }
        if !experts.experts.is_multiple_of(u64::from(moe_ep)) {
            return Some(format!("{} experts cannot be shared out over moe_ep {moe_ep}", experts.experts));
        }
        let width = experts.intermediate_size;
        let multiple_of = |block: u64| width.is_multiple_of(u64::from(moe_tp) * block);
        match self.formats.experts {
            WeightFormat::Fp8Block(block) if moe_tp > 1 && !multiple_of(u64::from(block)) => Some(format!(
                "experts of width {width} over moe_tp {moe_tp} are no multiple of the quantisation block of {block}"
            )),
            _ if !multiple_of(1) => {
                Some(format!("experts of width {width} cannot be shared out over moe_tp {moe_tp}"))
            }
            _ => None,
        }
    }
}
