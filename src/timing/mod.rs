//! How long a forward pass takes.
//!
//! A [`TimingModel`] prices the exact composition of a pass in milliseconds; [`PassPricer`] turns that into virtual
//! time, applying the engine's speed-up ratios with the rounding that makes stamps comparable with the reference.

pub mod csv;
mod exponential;
mod fixed;
pub mod grid;
mod interpolation;
pub mod memory;
mod polynomial;
pub mod profile;
pub mod roofline;

use std::fmt;
use std::sync::Arc;

pub use fixed::Fixed;
pub use polynomial::Polynomial;

use crate::simulation::{InvalidDuration, SimDuration, SimTime};

/// Prompt tokens of one request in one pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// Prompt tokens computed in this pass; at least 1.
    pub new_tokens: u32,
    /// Prompt tokens computed or reused before this pass.
    pub prefix_tokens: u32,
}

/// The requests of a pass that generate from a complete prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DecodeBatch {
    /// How many they are.
    pub requests: u32,
    /// Sum of their known lengths (prompt and output so far) before the pass, in tokens.
    pub context_tokens: u64,
}

impl DecodeBatch {
    /// Mean length, in whole tokens, of a batch that is not empty.
    pub fn mean_context(self) -> u64 {
        self.context_tokens / u64::from(self.requests)
    }

    /// Mean length in tokens of a batch that is not empty, fractions included.
    pub fn exact_mean_context(self) -> f64 {
        // Far below 2^63, and processors convert signed numbers at once.
        self.context_tokens.cast_signed() as f64 / f64::from(self.requests)
    }
}

/// The two parts of the price of a pass, one after the other.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PassCost {
    /// What the engine's prefill speed-up divides, in milliseconds.
    pub prefill_ms: f64,
    /// What its decode speed-up divides, in milliseconds.
    pub decode_ms: f64,
}

/// Prices the two kinds of work of a pass, in milliseconds.
pub trait TimingModel: fmt::Debug + Send + Sync {
    /// Prompt work of a pass; `chunks` is not empty.
    fn prefill_ms(&self, chunks: &[Chunk]) -> f64;

    /// Decode work of a pass; `batch` is not empty.
    fn decode_ms(&self, batch: DecodeBatch) -> f64;

    /// A pass with both kinds of work; neither is empty. Unless a model knows better, the two phases add up, as in the
    /// reference.
    fn pass_ms(&self, chunks: &[Chunk], batch: DecodeBatch) -> PassCost {
        PassCost { prefill_ms: self.prefill_ms(chunks), decode_ms: self.decode_ms(batch) }
    }

    /// How many prices so far lay outside what the model was made from; `None` for a formula, which has no outside.
    fn extrapolated_lookups(&self) -> Option<u64> {
        None
    }

    /// The ends of successive decode passes of the same requests, the first starting at `start`: appended to `ends`, at
    /// most `passes` of them. Each pass lengthens every context by one token.
    fn decode_run(
        &self,
        pricer: &PassPricer,
        start: SimTime,
        mut batch: DecodeBatch,
        passes: u32,
        ends: &mut Vec<SimTime>,
    ) -> Result<(), InvalidDuration> {
        pricer.append_ends(start, passes, ends, || {
            let ms = self.decode_ms(batch);
            batch.context_tokens += u64::from(batch.requests);
            ms
        })
    }
}

/// Sums of a prefill batch, for models that see a batch as `N` equal prompts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MeanChunk {
    /// Prompts with tokens in the pass.
    pub requests: u64,
    /// Mean prompt tokens so far, those of the pass included, rounded down.
    pub mean_isl: u64,
    /// Mean prompt tokens before the pass, rounded down.
    pub mean_prefix: u64,
}

impl MeanChunk {
    /// The means of a batch that is not empty.
    pub fn of(chunks: &[Chunk]) -> Self {
        let requests = chunks.len() as u64;
        let prefix: u64 = chunks.iter().map(|chunk| u64::from(chunk.prefix_tokens)).sum();
        let new: u64 = chunks.iter().map(|chunk| u64::from(chunk.new_tokens)).sum();
        Self { requests, mean_isl: (prefix + new) / requests, mean_prefix: prefix / requests }
    }

    /// Tokens that the pass computes if all prompts were like the mean.
    pub fn new_tokens(self) -> u64 {
        self.requests * (self.mean_isl - self.mean_prefix)
    }
}

/// A timing model with the speed-up ratios of one engine.
#[derive(Clone, Debug)]
pub struct PassPricer {
    model: Arc<dyn TimingModel>,
    prefill_speedup: f64,
    decode_speedup: f64,
}

impl PassPricer {
    /// `speedup_ratio` divides both phases, `decode_speedup_ratio` the decode phase as well; 0 leaves times as they are.
    pub fn new(model: Arc<dyn TimingModel>, speedup_ratio: f64, decode_speedup_ratio: f64) -> Self {
        let ratio = |ratio: f64| if ratio == 0.0 { 1.0 } else { ratio };
        let prefill_speedup = ratio(speedup_ratio);
        Self { model, prefill_speedup, decode_speedup: prefill_speedup * ratio(decode_speedup_ratio) }
    }

    /// Duration of a pass: both parts of its price, one after the other.
    pub fn pass(&self, chunks: &[Chunk], batch: DecodeBatch) -> Result<SimDuration, InvalidDuration> {
        match (chunks.is_empty(), batch.requests > 0) {
            (true, false) => Ok(SimDuration::ZERO),
            (true, true) => self.decode_time(self.model.decode_ms(batch)),
            (false, false) => divided(self.model.prefill_ms(chunks), self.prefill_speedup),
            (false, true) => {
                let cost = self.model.pass_ms(chunks, batch);
                Ok(divided(cost.prefill_ms, self.prefill_speedup)? + self.decode_time(cost.decode_ms)?)
            }
        }
    }

    /// See [`TimingModel::decode_run`].
    pub fn decode_run(
        &self,
        start: SimTime,
        batch: DecodeBatch,
        passes: u32,
        ends: &mut Vec<SimTime>,
    ) -> Result<(), InvalidDuration> {
        self.model.decode_run(self, start, batch, passes, ends)
    }

    /// Appends the ends of `passes` decode passes to `ends`, the first starting at `start`; `price` gives the milliseconds of each in
    /// turn. For use by [`TimingModel::decode_run`].
    #[inline]
    pub fn append_ends(
        &self,
        start: SimTime,
        passes: u32,
        ends: &mut Vec<SimTime>,
        mut price: impl FnMut() -> f64,
    ) -> Result<(), InvalidDuration> {
        let first = ends.len();
        ends.resize(first + passes as usize, start);
        let mut end = start;
        // Two loops: nearly all engines have no speed-up, and asking for each pass takes time.
        if self.decode_speedup == 1.0 {
            for slot in &mut ends[first..] {
                end += SimDuration::from_ms(price())?;
                *slot = end;
            }
        } else {
            for slot in &mut ends[first..] {
                end += divided(price(), self.decode_speedup)?;
                *slot = end;
            }
        }
        Ok(())
    }

    /// Duration of decode work that a model prices at `ms`.
    #[inline]
    fn decode_time(&self, ms: f64) -> Result<SimDuration, InvalidDuration> {
        divided(ms, self.decode_speedup)
    }
}

/// `ms` rounded to whole nanoseconds, divided by `speedup` in `f64` seconds and rounded again.
#[inline]
fn divided(ms: f64, speedup: f64) -> Result<SimDuration, InvalidDuration> {
    let duration = SimDuration::from_ms(ms)?;
    if speedup == 1.0 {
        return Ok(duration);
    }
    SimDuration::from_seconds(duration.as_ns() as f64 / 1e9 / speedup)
}
