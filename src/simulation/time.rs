//! Virtual time: whole nanoseconds since the start of the run.
//!
//! Durations enter as milliseconds in `f64` exactly once, where a model prices something, and are rounded
//! there ([`SimDuration::from_ms`]); from then on time is integer arithmetic, so ties are exact and sums do not
//! depend on their order.

use std::fmt;
use std::ops::{Add, AddAssign, Sub};

use serde::{Deserialize, Serialize};

const NS_PER_MS: f64 = 1e6;

/// A point in virtual time, in nanoseconds since the start of the run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct SimTime(u64);

/// A span of virtual time in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct SimDuration(u64);

/// A number for messages: very large and very small ones with an exponent, instead of hundreds of digits.
#[derive(Clone, Copy, Debug)]
pub struct Shown(pub f64);

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let size = self.0.abs();
        if size == 0.0 || (1e-5..1e15).contains(&size) || !size.is_finite() {
            write!(f, "{}", self.0)
        } else {
            write!(f, "{:e}", self.0)
        }
    }
}

/// A number of milliseconds that cannot be a duration.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[error("{} ms is not a duration: it must be finite, not negative and below 584 years", Shown(*ms))]
pub struct InvalidDuration {
    /// The refused value in milliseconds.
    pub ms: f64,
}

impl SimTime {
    /// The start of every run.
    pub const ZERO: Self = Self(0);
    /// Later than any event.
    pub const MAX: Self = Self(u64::MAX);

    /// A time from its nanoseconds.
    pub const fn from_ns(ns: u64) -> Self {
        Self(ns)
    }

    /// Nanoseconds since the start of the run.
    pub const fn as_ns(self) -> u64 {
        self.0
    }

    /// A time from milliseconds, rounded like [`SimDuration::from_ms`].
    pub fn from_ms(ms: f64) -> Result<Self, InvalidDuration> {
        SimDuration::from_ms(ms).map(|duration| Self(duration.0))
    }

    /// Milliseconds since the start of the run.
    pub fn as_ms(self) -> f64 {
        self.0 as f64 / NS_PER_MS
    }

    /// The span from `earlier` to this time.
    ///
    /// # Panics
    /// If `earlier` is later than `self`.
    pub fn since(self, earlier: Self) -> SimDuration {
        assert!(earlier <= self, "{earlier} is later than {self}");
        SimDuration(self.0 - earlier.0)
    }
}

impl SimDuration {
    /// No time at all.
    pub const ZERO: Self = Self(0);

    /// A duration from its nanoseconds.
    pub const fn from_ns(ns: u64) -> Self {
        Self(ns)
    }

    /// Nanoseconds.
    pub const fn as_ns(self) -> u64 {
        self.0
    }

    /// Milliseconds.
    pub fn as_ms(self) -> f64 {
        self.0 as f64 / NS_PER_MS
    }

    /// A duration from milliseconds: converted to `f64` seconds first and then rounded, as
    /// [`SimDuration::from_seconds`] does.
    #[inline]
    pub fn from_ms(ms: f64) -> Result<Self, InvalidDuration> {
        Self::from_seconds(ms / 1e3).map_err(|_| InvalidDuration { ms })
    }

    /// A duration from seconds, rounded to whole nanoseconds, ties to even.
    ///
    /// What is rounded is the exact binary value of `seconds`, not the `f64` product with 1e9, whose own
    /// rounding may create or hide a tie.
    #[inline]
    pub fn from_seconds(seconds: f64) -> Result<Self, InvalidDuration> {
        match nearest_ns(seconds) {
            Some(ns) => Ok(Self(ns)),
            None => Self::from_seconds_exactly(seconds),
        }
    }

    #[cold]
    fn from_seconds_exactly(seconds: f64) -> Result<Self, InvalidDuration> {
        if !(0.0..1.8e10).contains(&seconds) {
            return Err(InvalidDuration { ms: seconds * 1e3 });
        }
        Ok(Self(round_exactly(seconds)))
    }
}

/// `seconds` rounded to nanoseconds, half to even, if the product with 1e9 is exact enough to decide.
#[inline]
fn nearest_ns(seconds: f64) -> Option<u64> {
    /// Added to a number below 2^51 it leaves the nearest whole number in the low bits.
    const SHIFTER: f64 = 6_755_399_441_055_744.0;
    /// Below this the product is wrong by less than 2^-23.
    const EXACT_ENOUGH: f64 = (1 << 30) as f64;
    let product = seconds * 1e9;
    let shifted = product + SHIFTER;
    let from_nearest = (product - (shifted - SHIFTER)).abs();
    let decides = (0.0..EXACT_ENOUGH).contains(&product) && from_nearest < 0.499_999;
    decides.then(|| shifted.to_bits() - SHIFTER.to_bits())
}

/// Rounds non-negative `seconds` below 2^34 to nanoseconds, half to even, without intermediate rounding.
fn round_exactly(seconds: f64) -> u64 {
    const FRACTION_BITS: u32 = 52;
    let bits = seconds.to_bits();
    let exponent = (bits >> FRACTION_BITS & 0x7ff) as i32;
    let fraction = bits & ((1 << FRACTION_BITS) - 1);
    if exponent == 0 {
        return 0;
    }
    // seconds = mantissa * 2^-shift, mantissa < 2^53.
    let mantissa = fraction | (1 << FRACTION_BITS);
    let shift = 1075 - exponent;
    let scaled = u128::from(mantissa) * 1_000_000_000;
    if shift <= 0 {
        return (scaled << -shift) as u64;
    }
    if shift >= 127 {
        return 0;
    }
    let whole = (scaled >> shift) as u64;
    let rest = scaled & ((1 << shift) - 1);
    let half = 1_u128 << (shift - 1);
    whole + u64::from(rest > half || (rest == half && whole & 1 == 1))
}

impl Add<SimDuration> for SimTime {
    type Output = Self;

    fn add(self, duration: SimDuration) -> Self {
        Self(self.0.saturating_add(duration.0))
    }
}

impl AddAssign<SimDuration> for SimTime {
    fn add_assign(&mut self, duration: SimDuration) {
        *self = *self + duration;
    }
}

impl Sub for SimTime {
    type Output = SimDuration;

    fn sub(self, earlier: Self) -> SimDuration {
        self.since(earlier)
    }
}

impl Add for SimDuration {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl AddAssign for SimDuration {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl fmt::Display for SimTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:06} ms", self.0 / 1_000_000, self.0 % 1_000_000)
    }
}

impl fmt::Display for SimDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:06} ms", self.0 / 1_000_000, self.0 % 1_000_000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounding_takes_the_exact_binary_value() {
        let cases = [
            (0.0, 0),
            (1e-9, 1),
            (4.9e-10, 0),
            (0.5e-9, 1), // the f64 nearest to half a nanosecond lies a trifle above it
            (0.009_317_676_5, 9_317_677),
            (0.007_074_162_5, 7_074_162),
            (3.0, 3_000_000_000),
            (1.7e10, 17_000_000_000_000_000_000),
        ];
        for (seconds, ns) in cases {
            assert_eq!(SimDuration::from_seconds(seconds), Ok(SimDuration::from_ns(ns)), "{seconds}");
        }
    }

    #[test]
    fn the_short_way_agrees_with_the_long_one() {
        // Near whole numbers and near ties of nanoseconds, from both sides.
        for ns in (0..3_000_000_u64).step_by(997).chain((0..300).map(|step| (1 << 30) - 150 + step)) {
            for offset in [-0.500_001, -0.5, -0.499_999, -0.3, 0.0, 0.3, 0.499_998, 0.499_999_5, 0.5] {
                let middle = ((ns as f64 + offset) / 1e9).max(0.0);
                for seconds in [middle.next_down().max(0.0), middle, middle.next_up()] {
                    let exactly = SimDuration::from_ns(round_exactly(seconds));
                    assert_eq!(SimDuration::from_seconds(seconds), Ok(exactly), "{seconds:e}");
                }
            }
        }
    }

    #[test]
    fn impossible_durations_are_refused() {
        for ms in [f64::NAN, f64::INFINITY, -1.0, -1e-300, 1e20] {
            assert!(SimDuration::from_ms(ms).is_err(), "{ms}");
        }
        assert_eq!(SimDuration::from_ms(-0.0), Ok(SimDuration::ZERO));
    }

    #[test]
    fn agrees_with_the_standard_library() {
        let mut seconds = 1e-10;
        while seconds < 1e4 {
            let expected = std::time::Duration::from_secs_f64(seconds).as_nanos() as u64;
            assert_eq!(SimDuration::from_seconds(seconds), Ok(SimDuration::from_ns(expected)), "{seconds}");
            seconds *= 1.000_731;
        }
    }
}
