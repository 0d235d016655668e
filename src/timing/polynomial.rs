//! The built-in timing of the reference replay: a polynomial fitted once to one GPU.

use super::{Chunk, DecodeBatch, MeanChunk, TimingModel};

/// Prefill is quadratic in the new tokens of the batch, decode quadratic in the fill of the KV cache.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Polynomial {
    kv_capacity_tokens: f64,
}

impl Polynomial {
    /// A model for an engine with room for `kv_capacity_tokens` tokens of KV cache.
    pub fn new(kv_capacity_tokens: u64) -> Self {
        Self { kv_capacity_tokens: kv_capacity_tokens as f64 }
    }
}

impl TimingModel for Polynomial {
    fn prefill_ms(&self, chunks: &[Chunk]) -> f64 {
        let tokens = MeanChunk::of(chunks).new_tokens() as f64;
        if tokens == 0.0 {
            return 0.0;
        }
        4.209_989e-7 * (tokens * tokens) + 1.518_344e-2 * tokens + 1.650_142e1
    }

    fn decode_ms(&self, batch: DecodeBatch) -> f64 {
        let fill = (batch.context_tokens.cast_signed() as f64 / self.kv_capacity_tokens).min(1.0);
        (-25.74 * (fill * fill) + 54.01 * fill + 5.74).max(1.0)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::simulation::{SimDuration, SimTime};
    use crate::timing::PassPricer;

    fn chunk(new_tokens: u32, prefix_tokens: u32) -> Chunk {
        Chunk { new_tokens, prefix_tokens }
    }

    #[test]
    fn prices_of_the_conformance_cases() {
        let model = Polynomial::new(400);
        assert!((model.prefill_ms(&[chunk(8, 0)]) - 16.622_914).abs() < 1e-6);
        // Means are rounded down before the batch is put together again: 2 * (9 - 4) tokens, not 9 + 1.
        assert!((model.prefill_ms(&[chunk(9, 0), chunk(1, 8)]) - 16.653_296).abs() < 1e-6);
        assert!((model.prefill_ms(&[chunk(9, 0), chunk(6, 0)]) - 16.714_071).abs() < 1e-6);
        let decode = |context_tokens| model.decode_ms(DecodeBatch { requests: 1, context_tokens });
        assert!((decode(9) - 6.942_194).abs() < 1e-6);
        assert_eq!(decode(400), decode(4000));
    }

    #[test]
    fn speedup_rounds_twice() {
        let pricer = |speedup| PassPricer::new(Arc::new(Polynomial::new(400)), speedup, 1.0);
        let none = DecodeBatch { requests: 0, context_tokens: 0 };
        let ns = |speedup, tokens| pricer(speedup).pass(&[chunk(tokens, 0)], none).unwrap().as_ns();
        assert_eq!(ns(3.0, 8), 5_540_971);
        assert_eq!(ns(2.0, 140), 9_317_677);
        assert_eq!(ns(0.0, 8), 16_622_914);
    }

    #[test]
    fn a_decode_run_is_its_passes_one_by_one() {
        let pricer = PassPricer::new(Arc::new(Polynomial::new(4000)), 1.0, 3.0);
        let batch = DecodeBatch { requests: 3, context_tokens: 700 };
        let mut ends = Vec::new();
        pricer.decode_run(SimTime::from_ns(5), batch, 4, &mut ends).unwrap();
        let mut now = SimTime::from_ns(5);
        for (step, &end) in ends.iter().enumerate() {
            let batch = DecodeBatch { context_tokens: 700 + 3 * step as u64, ..batch };
            let pass: SimDuration = pricer.pass(&[], batch).unwrap();
            now += pass;
            assert_eq!(end, now);
        }
        assert_eq!(ends.len(), 4);
    }
}
