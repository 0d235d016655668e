//! Expected figures and how near to them is near enough.

use serde::Deserialize;
use spica::simulation::SimTime;

/// A figure written as a number or as a fraction such as `16/3`.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub(crate) enum Figure {
    Number(f64),
    Fraction(String),
}

impl Figure {
    pub(crate) fn value(&self) -> f64 {
        match self {
            Self::Number(number) => *number,
            Self::Fraction(text) => {
                let number = |part: &str| part.trim().parse::<f64>().expect("a fraction of two numbers");
                let (above, below) = text.split_once('/').expect("a fraction of two numbers");
                number(above) / number(below)
            }
        }
    }
}

/// Whether `found` is within `tolerance` of `expected`, relative to the latter (absolute around 0).
pub(crate) fn near(expected: f64, found: f64, tolerance: f64) -> bool {
    (expected - found).abs() <= tolerance * expected.abs().max(f64::MIN_POSITIVE) || expected == found
}

/// A stamp in milliseconds as the nanosecond nearest to it.
pub(crate) fn stamp(ms: f64) -> SimTime {
    SimTime::from_ms(ms).expect("stamps are finite and not negative")
}
