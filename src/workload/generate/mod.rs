//! Seeded generators of traces in Mooncake's format.
//!
//! They imitate what recorded traces look like, with invented numbers: nothing in them is recorded. Equal options give
//! equal bytes on every machine; each purpose (arrivals, lengths, outputs, ...) draws from a stream of its own, so that
//! changing one does not disturb the others.

mod chat;
mod conversation;
mod quantiles;
mod sine;
mod tool_agent;

use std::io::{self, Write};

use crate::simulation::Shown;

pub use self::conversation::Conversation;
pub use self::sine::Sine;
pub use self::tool_agent::ToolAgent;

/// Tokens per block of generated traces, as in Mooncake's own.
pub const BLOCK_SIZE: u32 = 512;

/// Recorded traces have their arrivals gathered in ticks; these do too.
const TICK_MS: u64 = 3000;

/// One row of a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Row {
    timestamp_ms: u64,
    input_length: u32,
    output_length: u32,
    /// Absent for a prompt of unknown content.
    hash_ids: Option<Vec<u64>>,
}

impl Row {
    fn write(&self, out: &mut impl Write) -> io::Result<()> {
        let Self { timestamp_ms, input_length, output_length, hash_ids } = self;
        write!(
            out,
            "{{\"timestamp\": {timestamp_ms}, \"input_length\": {input_length}, \"output_length\": {output_length}"
        )?;
        if let Some(ids) = hash_ids {
            write!(out, ", \"hash_ids\": {ids:?}")?;
        }
        writeln!(out, "}}")
    }
}

/// Hands out block ids, from 0 in the order in which blocks appear.
#[derive(Debug, Default)]
struct BlockIds {
    next: u64,
}

impl BlockIds {
    /// `count` ids that nobody had.
    fn fresh(&mut self, count: usize) -> std::ops::Range<u64> {
        let first = self.next;
        self.next += count as u64;
        first..self.next
    }
}

/// The tick that a time falls into.
fn tick(time_ms: u64) -> u64 {
    time_ms / TICK_MS * TICK_MS
}

fn blocks(tokens: u32) -> usize {
    tokens.div_ceil(BLOCK_SIZE) as usize
}

/// Refuses an option by name.
fn refuse(option: &str, value: f64, rule: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, format!("{option}: {} {rule}", Shown(value)))
}

/// Refuses a number that is not finite and above 0.
fn positive(option: &str, value: f64) -> io::Result<()> {
    if value > 0.0 && value.is_finite() {
        Ok(())
    } else {
        Err(refuse(option, value, "is not finite and above 0"))
    }
}

/// Refuses a rate that is not finite or so low that arrivals leave the range of time stamps.
fn rate(option: &str, value: f64) -> io::Result<()> {
    if value >= LOWEST_RATE && value.is_finite() {
        Ok(())
    } else {
        Err(refuse(option, value, "is not finite and at least 0.000001"))
    }
}

/// One request in eleven days.
const LOWEST_RATE: f64 = 1e-6;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::mooncake;
    use crate::workload::stats::WorkloadStats;

    fn bytes(write: impl FnOnce(&mut Vec<u8>) -> io::Result<()>) -> Vec<u8> {
        let mut bytes = Vec::new();
        write(&mut bytes).unwrap();
        bytes
    }

    /// The figures of a trace, which has to load without anything worth a word.
    fn stats(trace: &[u8]) -> WorkloadStats {
        let loaded =
            mooncake::read(trace, &mooncake::Options::default()).unwrap_or_else(|errors| panic!("{errors}"));
        assert_eq!(loaded.warnings, []);
        WorkloadStats::new(&loaded.workload)
    }

    fn within(value: f64, least: f64, most: f64) {
        assert!((least..=most).contains(&value), "{value} is not within {least} to {most}");
    }

    #[test]
    fn conversations_look_like_conversations() {
        let options = Conversation { rows: 6000, ..Conversation::default() };
        let trace = bytes(|out| options.write(out));
        assert_eq!(trace, bytes(|out| options.write(out)));
        assert_ne!(trace, bytes(|out| Conversation { seed: 2, ..options }.write(out)));
        let stats = stats(&trace);
        assert_eq!(stats.requests, 6000);
        within(stats.request_rate_rps.unwrap(), 3.0, 3.8);
        within(stats.input_length.mean, 9_000.0, 14_000.0);
        within(stats.output_length.mean, 300.0, 400.0);
        let reuse = stats.reuse_bound.unwrap();
        within(reuse.token_ratio, 0.3, 0.6);
        within(reuse.warm_token_ratio, 0.3, 0.6);
    }

    #[test]
    fn tool_calls_share_their_preambles() {
        let options = ToolAgent { rows: 6000, ..ToolAgent::default() };
        let trace = bytes(|out| options.write(out));
        assert_eq!(trace, bytes(|out| options.write(out)));
        let stats = stats(&trace);
        assert_eq!(stats.requests, 6000);
        within(stats.request_rate_rps.unwrap(), 6.0, 7.4);
        within(stats.input_length.mean, 7_000.0, 10_500.0);
        within(stats.output_length.mean, 120.0, 240.0);
        within(stats.reuse_bound.unwrap().token_ratio, 0.5, 0.75);
    }

    #[test]
    fn more_rows_only_add_to_the_end() {
        let [short, long] =
            [300, 400].map(|rows| bytes(|out| ToolAgent { rows, ..ToolAgent::default() }.write(out)));
        assert!(long.starts_with(&short));
    }

    #[test]
    fn impossible_options_are_refused_by_name() {
        let refusal = |result: io::Result<()>| result.unwrap_err().to_string();
        for rate in [0.0, -1.0, 1e-300, f64::NAN, f64::INFINITY] {
            let options = Conversation { requests_per_second: rate, ..Conversation::default() };
            assert!(refusal(options.write(&mut Vec::new())).contains("requests_per_second"));
            let options = ToolAgent { requests_per_second: rate, ..ToolAgent::default() };
            assert!(refusal(options.write(&mut Vec::new())).contains("requests_per_second"));
            if rate == 1e-300 {
                continue;
            }
            let options = Sine { period_s: rate, ..Sine::default() };
            assert!(refusal(options.write(&mut Vec::new())).contains("period_s"));
        }
        assert!(
            refusal(Conversation { rows: 0, ..Conversation::default() }.write(&mut Vec::new()))
                .contains("rows")
        );
        assert!(
            refusal(Sine { amplitude_rps: f64::NAN, ..Sine::default() }.write(&mut Vec::new()))
                .contains("amplitude")
        );
        assert!(
            refusal(Sine { base_rps: -5.0, amplitude_rps: 1.0, ..Sine::default() }.write(&mut Vec::new()))
                .contains("base")
        );
        assert!(refusal(Sine { isl: 0, ..Sine::default() }.write(&mut Vec::new())).contains("isl"));
    }
}
