//! The last value.

use serde::Deserialize;

use super::LoadPredictor;

/// Expects of the next interval what the last one brought; 0 before the first.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Constant {
    #[serde(skip)]
    last: f64,
}

impl LoadPredictor for Constant {
    fn observe(&mut self, value: f64) {
        self.last = value;
    }

    fn forecast(&mut self) -> f64 {
        self.last
    }
}
