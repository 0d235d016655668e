//! Tool-using agents: calls behind large shared preambles, and chat.

use std::io::{self, Write};

use super::chat::Chat;
use super::quantiles::Quantiles;
use super::{BLOCK_SIZE, BlockIds, Row, blocks, rate, refuse, tick};
use crate::simulation::{ActorRng, stream};
use crate::workload::random::Draws;

/// A trace of agents: two families of tool calls, each behind its own preamble, beside chat sessions.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ToolAgent {
    /// Rows to write.
    pub rows: u32,
    /// Seed of all draws.
    pub seed: u64,
    /// Requests per second in the long run.
    pub requests_per_second: f64,
}

impl Default for ToolAgent {
    fn default() -> Self {
        Self { rows: 24_000, seed: 1, requests_per_second: 6.7 }
    }
}

/// Calls of one tool.
#[derive(Clone, Copy, Debug)]
struct Family {
    name: &'static str,
    /// Share of all requests.
    share: f64,
    preamble_blocks: usize,
    /// Prompt tokens behind the preamble.
    suffix: Quantiles,
    output: Quantiles,
}

const SEARCH: Family = Family {
    name: "search",
    share: 0.4,
    preamble_blocks: 12,
    suffix: Quantiles(&[
        (0.0, 20.0),
        (0.1, 30.0),
        (0.5, 500.0),
        (0.9, 1250.0),
        (0.99, 3000.0),
        (1.0, 9000.0),
    ]),
    output: Quantiles(&[(0.0, 3.0), (0.6, 3.0), (0.65, 20.0), (0.9, 32.0), (0.99, 50.0), (1.0, 120.0)]),
};
const FORM: Family = Family {
    name: "form",
    share: 0.15,
    preamble_blocks: 5,
    suffix: Quantiles(&[
        (0.0, 330.0),
        (0.1, 540.0),
        (0.5, 600.0),
        (0.9, 1500.0),
        (0.99, 2100.0),
        (1.0, 4000.0),
    ]),
    output: Quantiles(&[(0.0, 8.0), (0.1, 16.0), (0.5, 20.0), (0.9, 25.0), (0.99, 30.0), (1.0, 60.0)]),
};

impl ToolAgent {
    /// Writes the trace.
    ///
    /// # Errors
    /// Options out of their range, and whatever `out` fails with.
    pub fn write(&self, out: &mut impl Write) -> io::Result<()> {
        rate("requests_per_second", self.requests_per_second)?;
        if self.rows == 0 {
            return Err(refuse("rows", 0.0, "is no trace"));
        }
        let rate = self.requests_per_second;
        let mut chat = Chat::new("tool_agent", self.seed, rate * (1.0 - SEARCH.share - FORM.share));
        let mut calls = [SEARCH, FORM].map(|family| Calls::new(family, self.seed, rate));
        let mut ids = BlockIds::default();
        for _ in 0..self.rows {
            let earliest = calls.iter_mut().min_by_key(|calls| calls.next_ms as u64);
            let row = match earliest {
                Some(calls) if (calls.next_ms as u64) < chat.next_ms() => calls.next(&mut ids),
                _ => chat.next(&mut ids),
            };
            row.write(out)?;
        }
        Ok(())
    }
}

/// The calls of one family by time.
#[derive(Debug)]
struct Calls {
    family: Family,
    arrivals: Draws<ActorRng>,
    lengths: Draws<ActorRng>,
    outputs: Draws<ActorRng>,
    mean_gap_ms: f64,
    next_ms: f64,
    preamble: Vec<u64>,
}

impl Calls {
    fn new(family: Family, seed: u64, requests_per_second: f64) -> Self {
        let draws = |purpose: &str| Draws(stream(seed, &format!("tool_agent/{}/{purpose}", family.name)));
        let mean_gap_ms = 1000.0 / (requests_per_second * family.share);
        let mut arrivals = draws("arrivals");
        Self {
            next_ms: arrivals.exponential(mean_gap_ms),
            family,
            arrivals,
            lengths: draws("lengths"),
            outputs: draws("outputs"),
            mean_gap_ms,
            preamble: Vec::new(),
        }
    }

    fn next(&mut self, ids: &mut BlockIds) -> Row {
        let Family { preamble_blocks, suffix, output, .. } = self.family;
        if self.preamble.is_empty() {
            self.preamble = ids.fresh(preamble_blocks).collect();
        }
        let timestamp_ms = tick(self.next_ms as u64);
        self.next_ms += self.arrivals.exponential(self.mean_gap_ms);
        let input_length = preamble_blocks as u32 * BLOCK_SIZE + suffix.draw(&mut self.lengths).max(1);
        let mut hash_ids = self.preamble.clone();
        hash_ids.extend(ids.fresh(blocks(input_length) - preamble_blocks));
        let output_length = output.draw(&mut self.outputs).max(1);
        Row { timestamp_ms, input_length, output_length, hash_ids: Some(hash_ids) }
    }
}
