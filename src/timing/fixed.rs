//! A constant for each phase.

use super::{Chunk, DecodeBatch, TimingModel};

/// Every pass with prompt tokens costs `prefill_ms`, every pass with decoding requests `decode_ms`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fixed {
    /// Milliseconds of prompt work.
    pub prefill_ms: f64,
    /// Milliseconds of decode work.
    pub decode_ms: f64,
}

impl TimingModel for Fixed {
    fn prefill_ms(&self, _chunks: &[Chunk]) -> f64 {
        self.prefill_ms
    }

    fn decode_ms(&self, _batch: DecodeBatch) -> f64 {
        self.decode_ms
    }
}
