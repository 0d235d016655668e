//! A grid in the layout of the reference: prefill by tokens, decode by tokens in the cache and mean length.

use super::Prices;
use super::npz::Array;
use crate::timing::csv::RowProblem;
use crate::timing::{Chunk, DecodeBatch};

/// A decode pass takes at least this, as in the reference, in milliseconds.
const SHORTEST_DECODE_MS: f64 = 1.0;

/// Straight lines between the points of the reference's arrays, and beyond them.
#[derive(Clone, Debug, PartialEq)]
pub struct ReferenceGrid {
    prefill_tokens: Vec<f64>,
    prefill_ms: Vec<f64>,
    active_tokens: Vec<f64>,
    context: Vec<f64>,
    /// By active tokens, then by context.
    decode_ms: Vec<f64>,
}

impl ReferenceGrid {
    /// Takes `prefill_isl`, `prefill_ttft_ms`, `decode_active_kv_tokens`, `decode_context_length` and `decode_itl` (rows are
    /// active tokens, columns context).
    ///
    /// # Errors
    /// Arrays that are missing, do not fit together or are not a grid of times.
    pub fn new(arrays: &[Array]) -> Result<Self, Vec<RowProblem>> {
        let mut problems = Vec::new();
        let known: Vec<&str> = arrays.iter().map(|array| array.name.as_str()).collect();
        let known = known.join(", ");
        let mut take = |name: &str| {
            let found = arrays.iter().find(|array| array.name == name);
            if found.is_none() {
                problems.push(RowProblem::new(0, format!("array `{name}` is missing; there are: {known}")));
            }
            found.cloned().unwrap_or_default()
        };
        let [tokens, ttft, active, context, itl] = [
            "prefill_isl",
            "prefill_ttft_ms",
            "decode_active_kv_tokens",
            "decode_context_length",
            "decode_itl",
        ]
        .map(&mut take);
        if !problems.is_empty() {
            return Err(problems);
        }
        let mut refuse = |refused: bool, message: String| {
            if refused {
                problems.push(RowProblem::new(0, message));
            }
        };
        for axis in [&tokens, &active, &context] {
            let rises = axis.values.windows(2).all(|pair| pair[0] < pair[1]);
            refuse(
                axis.shape.len() != 1 || axis.values.len() < 2 || !rises,
                format!("`{}` has to be a list of at least two rising numbers", axis.name),
            );
        }
        refuse(
            ttft.shape != [tokens.values.len()],
            format!("`prefill_ttft_ms` has the shape {:?} beside {} tokens", ttft.shape, tokens.values.len()),
        );
        let expected = [active.values.len(), context.values.len()];
        refuse(
            itl.shape != expected,
            format!("`decode_itl` has the shape {:?}, not {expected:?}", itl.shape),
        );
        for times in [&ttft, &itl] {
            let wrong = times.values.iter().find(|ms| !ms.is_finite() || **ms < 0.0);
            refuse(
                wrong.is_some(),
                format!("`{}` holds {}, which is no time", times.name, wrong.copied().unwrap_or_default()),
            );
        }
        if !problems.is_empty() {
            return Err(problems);
        }
        Ok(Self {
            prefill_tokens: tokens.values,
            prefill_ms: ttft.values,
            active_tokens: active.values,
            context: context.values,
            decode_ms: itl.values,
        })
    }
}

/// The segment of an axis that a value lies in or nearest to, how far along, and whether it lies within the axis.
fn locate(points: &[f64], value: f64) -> (usize, f64, bool) {
    let last = points.len() - 2;
    let segment = points.partition_point(|point| *point <= value).saturating_sub(1).min(last);
    let along = (value - points[segment]) / (points[segment + 1] - points[segment]);
    (segment, along, (points[0]..=points[last + 1]).contains(&value))
}

fn between(low: f64, high: f64, along: f64) -> f64 {
    low + (high - low) * along
}

impl Prices for ReferenceGrid {
    fn prefill(&self, chunks: &[Chunk]) -> (f64, bool) {
        let tokens: u64 = chunks.iter().map(|chunk| u64::from(chunk.new_tokens)).sum();
        let (segment, along, inside) = locate(&self.prefill_tokens, tokens as f64);
        (between(self.prefill_ms[segment], self.prefill_ms[segment + 1], along).max(0.0), inside)
    }

    fn decode(&self, batch: DecodeBatch) -> (f64, bool) {
        let (row, down, in_rows) = locate(&self.active_tokens, batch.context_tokens as f64);
        let (column, across, in_columns) = locate(&self.context, batch.mean_context() as f64);
        let columns = self.context.len();
        let along_row = |row: usize| {
            let at = row * columns + column;
            between(self.decode_ms[at], self.decode_ms[at + 1], across)
        };
        let ms = between(along_row(row), along_row(row + 1), down);
        (ms.max(SHORTEST_DECODE_MS), in_rows && in_columns)
    }
}
