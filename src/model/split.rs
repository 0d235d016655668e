//! How one worker spreads a model over its GPUs.

use crate::config::search::Shape;

/// How one worker spreads a model over its GPUs. A dense model has 1 for both of the experts' sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Split {
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

impl Split {
    /// Everything on one GPU.
    pub const WHOLE: Self = Self { tp: 1, pp: 1, attention_dp: 1, moe_tp: 1, moe_ep: 1 };

    /// GPUs of one worker.
    pub fn gpus(self) -> u32 {
        self.tp.saturating_mul(self.pp).saturating_mul(self.attention_dp)
    }
}

impl From<&Shape> for Split {
    fn from(shape: &Shape) -> Self {
        let Shape { tp, pp, attention_dp, moe_tp, moe_ep, replicas: _ } = *shape;
        Self { tp, pp, attention_dp, moe_tp, moe_ep }
    }
}
