//! A rate that swings: no draws, no shared prompts.

use std::f64::consts::TAU;
use std::io::{self, Write};

use super::{Row, positive, refuse};

/// Rows that a trace can be expected to have.
const MOST_ROWS: f64 = 1e8;

/// A trace whose rate follows a sine, to see what an autoscaler makes of it. Each second has a whole number of
/// requests, spread evenly; all are of one size and their prompts share nothing.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sine {
    /// Length of the trace in seconds.
    pub duration_s: u32,
    /// Time from one peak to the next in seconds.
    pub period_s: f64,
    /// Mean rate in requests per second.
    pub base_rps: f64,
    /// How far the rate swings to either side, in requests per second; below 0 there are none.
    pub amplitude_rps: f64,
    /// Prompt tokens.
    pub isl: u32,
    /// Output tokens.
    pub osl: u32,
}

impl Default for Sine {
    fn default() -> Self {
        Self { duration_s: 5400, period_s: 900.0, base_rps: 6.0, amplitude_rps: 4.0, isl: 4000, osl: 200 }
    }
}

impl Sine {
    /// Writes the trace.
    ///
    /// # Errors
    /// Options out of their range, and whatever `out` fails with.
    pub fn write(&self, out: &mut impl Write) -> io::Result<()> {
        self.check()?;
        for second in 0..self.duration_s {
            let count = self.requests_in(second);
            for index in 0..count {
                let timestamp_ms = u64::from(second) * 1000 + index * 1000 / count;
                let row =
                    Row { timestamp_ms, input_length: self.isl, output_length: self.osl, hash_ids: None };
                row.write(out)?;
            }
        }
        Ok(())
    }

    fn requests_in(&self, second: u32) -> u64 {
        let phase = TAU * f64::from(second) / self.period_s;
        (self.base_rps + self.amplitude_rps * libm::sin(phase)).round_ties_even().max(0.0) as u64
    }

    fn check(&self) -> io::Result<()> {
        positive("period_s", self.period_s)?;
        positive("isl", f64::from(self.isl))?;
        if !self.base_rps.is_finite() {
            return Err(refuse("base_rps", self.base_rps, "is not finite"));
        }
        if !self.amplitude_rps.is_finite() {
            return Err(refuse("amplitude_rps", self.amplitude_rps, "is not finite"));
        }
        positive("duration_s", f64::from(self.duration_s))?;
        let most = (self.base_rps + self.amplitude_rps.abs()) * f64::from(self.duration_s);
        if most > MOST_ROWS {
            let message = format!("makes {most:e} rows in all, more than {MOST_ROWS:e}");
            return Err(refuse("base_rps", self.base_rps, &message));
        }
        if (0..self.duration_s).all(|second| self.requests_in(second) == 0) {
            return Err(refuse("base_rps", self.base_rps, "leaves every second without a request"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(sine: Sine) -> Vec<String> {
        let mut bytes = Vec::new();
        sine.write(&mut bytes).unwrap();
        String::from_utf8(bytes).unwrap().lines().map(str::to_owned).collect()
    }

    #[test]
    fn requests_are_spread_within_their_second() {
        let rows = lines(Sine {
            duration_s: 2,
            period_s: 4.0,
            base_rps: 3.0,
            amplitude_rps: 2.5,
            ..Sine::default()
        });
        // 3 in the first second; 5.5 in the second, which rounds to the even 6.
        let stamps = [0, 333, 666, 1000, 1166, 1333, 1500, 1666, 1833];
        assert_eq!(rows.len(), stamps.len());
        for (row, stamp) in rows.iter().zip(stamps) {
            assert_eq!(
                *row,
                format!("{{\"timestamp\": {stamp}, \"input_length\": 4000, \"output_length\": 200}}")
            );
        }
    }

    #[test]
    fn a_trough_below_nothing_is_empty() {
        let rows = lines(Sine {
            duration_s: 4,
            period_s: 4.0,
            base_rps: 1.0,
            amplitude_rps: 3.0,
            ..Sine::default()
        });
        assert_eq!(rows.len(), 1 + 4 + 1);
    }

    #[test]
    fn the_whole_day_is_long() {
        let sine = Sine::default();
        let total: u64 = (0..sine.duration_s).map(|second| sine.requests_in(second)).sum();
        assert_eq!(total, 32_400);
        assert_eq!((0..900).map(|second| sine.requests_in(second)).max(), Some(10));
        assert_eq!((0..900).map(|second| sine.requests_in(second)).min(), Some(2));
    }
}
