//! Timing from measured passes: a table fitted to rows of people's own measurements, or a grid of the reference.

mod fit;
mod measured;
mod npz;
mod reference;
mod surface;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use fit::{Fit, fit};
pub use measured::{DecodePoint, Measured, PrefillPoint};
pub use reference::ReferenceGrid;
use serde::Serialize;
use surface::Table;
use xxhash_rust::xxh3::xxh3_64;

use super::csv::RowProblem;
use super::{Chunk, DecodeBatch, TimingModel};

/// Fewest measurements of a phase that a table is fitted to.
const FEWEST_POINTS: usize = 12;

/// What a file of measured passes came to.
#[derive(Clone, Debug)]
pub enum MeasuredGrid {
    /// A table fitted to rows.
    Fitted(Arc<FittedGrid>),
    /// A grid in the layout of the reference.
    Reference(Arc<ReferenceGrid>),
}

impl MeasuredGrid {
    /// Reads a file: NPZ in the layout of the reference, or CSV as [`Measured::read`] takes it.
    ///
    /// # Errors
    /// Everything that is wrong with it.
    pub fn read(bytes: &[u8]) -> Result<Self, Vec<RowProblem>> {
        if npz::is_archive(bytes) {
            let arrays = npz::read(bytes).map_err(|message| vec![RowProblem::new(0, message)])?;
            return Ok(Self::Reference(Arc::new(ReferenceGrid::new(&arrays)?)));
        }
        Ok(Self::Fitted(Arc::new(FittedGrid::new(&Measured::read(bytes)?)?)))
    }

    /// The timing of one pool, with a time of the CPU that each pass takes besides, in milliseconds.
    pub fn timing(&self, overhead_ms: f64) -> Arc<dyn TimingModel> {
        let extrapolated = AtomicU64::new(0);
        match self {
            Self::Fitted(grid) => Arc::new(GridTiming { grid: grid.clone(), overhead_ms, extrapolated }),
            Self::Reference(grid) => Arc::new(GridTiming { grid: grid.clone(), overhead_ms, extrapolated }),
        }
    }

    /// What a report should say about the numbers, if anything.
    pub fn caution(&self) -> Option<String> {
        match self {
            Self::Fitted(grid) => grid.caution(),
            Self::Reference(_) => None,
        }
    }
}

/// A digest of a file of measurements: 16 hexadecimal digits, the same on every machine.
pub fn digest(bytes: &[u8]) -> String {
    format!("{:016x}", xxh3_64(bytes))
}

/// Prices of both phases, each with whether it lies within what was measured.
trait Prices: std::fmt::Debug + Send + Sync {
    fn prefill(&self, chunks: &[Chunk]) -> (f64, bool);
    fn decode(&self, batch: DecodeBatch) -> (f64, bool);
}

/// How well a table meets its measurements, in percent of each.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FitQuality {
    /// Measurements.
    pub points: usize,
    /// Median distance of the table from a measurement.
    pub median_error_percent: f64,
    /// Median distance from a measurement that was left out of the fit.
    pub median_left_out_percent: f64,
    /// The distance that nine in ten of these stay within.
    pub p90_left_out_percent: f64,
    /// The largest of these.
    pub max_left_out_percent: f64,
    /// Neighbouring values of the table that fall by more than a tenth although the work grows.
    pub drops_over_10_percent: usize,
}

impl FitQuality {
    fn of<const N: usize>(fit: &Fit<N>) -> Self {
        let percent = |errors: &[f64], share: f64| {
            let mut errors = errors.to_vec();
            errors.sort_by(f64::total_cmp);
            let rank = (share * errors.len() as f64).ceil() as usize;
            errors[rank.clamp(1, errors.len()) - 1] * 100.0
        };
        Self {
            points: fit.residuals.len(),
            median_error_percent: percent(&fit.residuals, 0.5),
            median_left_out_percent: percent(&fit.left_out, 0.5),
            p90_left_out_percent: percent(&fit.left_out, 0.9),
            max_left_out_percent: percent(&fit.left_out, 1.0),
            drops_over_10_percent: fit.drops,
        }
    }
}

/// A table fitted to rows of measurements.
#[derive(Debug)]
pub struct FittedGrid {
    prefill: Table<3>,
    decode: Table<2>,
    /// How well it meets the passes that computed prompts.
    pub prefill_quality: FitQuality,
    /// How well it meets the decode passes.
    pub decode_quality: FitQuality,
}

impl FittedGrid {
    /// Fits a table.
    ///
    /// # Errors
    /// Too few measurements of a phase, or measurements that leave an axis open which matters.
    pub fn new(measured: &Measured) -> Result<Self, Vec<RowProblem>> {
        let [batches, news, prefixes] = varies(&measured.prefill);
        let [requests, contexts] = varies(&measured.decode);
        let mut problems = Vec::new();
        let mut refuse = |refused: bool, message: String| {
            if refused {
                problems.push(RowProblem::new(0, message));
            }
        };
        for (phase, points) in [("prefill", measured.prefill.len()), ("decode", measured.decode.len())] {
            let message = format!(
                "{points} {phase} passes are too few to fit a table to: at least {FEWEST_POINTS} are needed"
            );
            refuse(points < FEWEST_POINTS, message);
        }
        refuse(
            measured.prefill.len() >= FEWEST_POINTS && !(news && (batches || prefixes)),
            "the prefill passes differ along one axis at most: new_tokens and one of batch and prefix_tokens have to vary"
                .into(),
        );
        refuse(
            measured.decode.len() >= FEWEST_POINTS && !(requests && contexts),
            "the decode passes differ along one axis at most: batch and context_tokens have to vary".into(),
        );
        if !problems.is_empty() {
            return Err(problems);
        }
        let prefill = fit(&measured.prefill);
        let decode = fit(&measured.decode);
        Ok(Self {
            prefill_quality: FitQuality::of(&prefill),
            decode_quality: FitQuality::of(&decode),
            prefill: prefill.table,
            decode: decode.table,
        })
    }

    fn caution(&self) -> Option<String> {
        let drops = self.prefill_quality.drops_over_10_percent + self.decode_quality.drops_over_10_percent;
        (drops > 0).then(|| {
            format!("{drops} neighbouring values of the fitted table fall by more than 10 % although the work grows")
        })
    }
}

/// Whether the coordinates of each axis differ.
fn varies<const N: usize>(points: &[([f64; N], f64)]) -> [bool; N] {
    std::array::from_fn(|axis| points.windows(2).any(|pair| pair[0].0[axis] != pair[1].0[axis]))
}

impl Prices for FittedGrid {
    /// Prompts of one pass share the GPU: each costs its part of a pass of prompts like it. Where only single prompts were
    /// measured, a pass is one prompt of all its tokens, behind the mean prefix of a token.
    fn prefill(&self, chunks: &[Chunk]) -> (f64, bool) {
        let price = |point: [f64; 3]| (self.prefill.at(point), self.prefill.covers(point));
        let batches = &self.prefill.knots[0];
        if batches.len() == 1 {
            let new: f64 = chunks.iter().map(|chunk| f64::from(chunk.new_tokens)).sum();
            let prefix: f64 =
                chunks.iter().map(|chunk| f64::from(chunk.new_tokens) * f64::from(chunk.prefix_tokens)).sum();
            return price([batches[0], new, prefix / new]);
        }
        let prompts = chunks.len() as f64;
        let (mut total, mut covered) = (0.0, true);
        for chunk in chunks {
            let (ms, inside) = price([prompts, f64::from(chunk.new_tokens), f64::from(chunk.prefix_tokens)]);
            total += ms;
            covered &= inside;
        }
        (total / prompts, covered)
    }

    fn decode(&self, batch: DecodeBatch) -> (f64, bool) {
        let point = [f64::from(batch.requests), batch.exact_mean_context()];
        (self.decode.at(point), self.decode.covers(point))
    }
}

/// The timing of the engines of one pool, by measured passes. The phases of a pass add up.
#[derive(Debug)]
struct GridTiming<S> {
    grid: Arc<S>,
    overhead_ms: f64,
    extrapolated: AtomicU64,
}

impl<S> GridTiming<S> {
    fn noted(&self, (ms, inside): (f64, bool)) -> f64 {
        if !inside {
            self.extrapolated.fetch_add(1, Ordering::Relaxed);
        }
        ms
    }
}

impl<S: Prices> TimingModel for GridTiming<S> {
    fn prefill_ms(&self, chunks: &[Chunk]) -> f64 {
        self.noted(self.grid.prefill(chunks)) + self.overhead_ms
    }

    fn decode_ms(&self, batch: DecodeBatch) -> f64 {
        self.noted(self.grid.decode(batch)) + self.overhead_ms
    }

    fn pass_ms(&self, chunks: &[Chunk], batch: DecodeBatch) -> super::PassCost {
        super::PassCost {
            prefill_ms: self.prefill_ms(chunks),
            decode_ms: self.noted(self.grid.decode(batch)),
        }
    }

    fn extrapolated_lookups(&self) -> Option<u64> {
        Some(self.extrapolated.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests;
