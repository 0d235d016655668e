//! A load predictor of one's own, with the whole command line of `spica` around it:
//!
//! ```console
//! $ cargo run --release --example custom_predictor -- replay scenarios/planner_hybrid.yaml \
//!       --set "deployment.planner.load_predictor={policy: holt, smoothing: 0.6}" \
//!       --set deployment.planner.kalman_min_points=null
//! ```

use std::process::ExitCode;

use serde::Deserialize;
use spica::registry::Registry;
use spica::serving::predictor::LoadPredictor;

/// Holt's exponential smoothing: a level and a slope, each a weighted mean of what it was and what was seen.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Holt {
    /// Weight of what was seen, above 0 and at most 1.
    smoothing: f64,
    #[serde(skip)]
    state: Option<(f64, f64)>,
}

impl LoadPredictor for Holt {
    fn observe(&mut self, value: f64) {
        let weight = self.smoothing;
        self.state = Some(self.state.map_or((value, 0.0), |(level, slope)| {
            let next = weight * value + (1.0 - weight) * (level + slope);
            (next, weight * (next - level) + (1.0 - weight) * slope)
        }));
    }

    fn forecast(&mut self) -> f64 {
        self.state.map_or(0.0, |(level, slope)| level + slope)
    }

    fn problems(&self) -> Vec<String> {
        let sound = self.smoothing > 0.0 && self.smoothing <= 1.0;
        let problem = format!("smoothing: {} must be above 0 and at most 1", self.smoothing);
        if sound { Vec::new() } else { vec![problem] }
    }
}

fn main() -> ExitCode {
    spica::cli::run(Registry::builtin().with_predictor::<Holt>("holt"))
}
