//! Which load predictor would have forecast a trace best.
//!
//! The trace is cut into windows of a planner's throughput interval, from its first request to its last: a window begins at
//! every multiple of the interval. Every candidate forecasts each window from those before it. A window costs
//!
//! ```text
//! err(p, a) = |ln(1 + p) - ln(1 + a)|
//! loss = 0.4 err(n^ i^, n i) + 0.4 err(n^ o^, n o) + 0.1 err(i^, i) + 0.1 err(o^, o)
//! ```
//!
//! with the number of requests n, their mean prompt length i and mean output length o. Windows count from the one on that all
//! candidates have enough values for; the smallest mean wins, of equals the first listed.

use indexmap::IndexMap;
use serde::{Deserialize, Serialize};

use crate::config::presets::{LOAD_PREDICTORS, LoadPredictor, PredictorFamily, Preset};
use crate::config::scenario::PolicyConfig;
use crate::registry::{PolicyError, Registry};
use crate::serving::predictor::Series;

/// Traffic of an interval: requests, mean prompt tokens, mean output tokens; all 0 without requests.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct TraceWindow {
    /// Requests.
    pub num_req: f64,
    /// Mean prompt tokens.
    pub isl: f64,
    /// Mean output tokens.
    pub osl: f64,
}

/// How forecasters compare at one interval.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// The best: its preset, or `custom_` and its place in the list.
    pub winner: String,
    /// Its settings.
    pub settings: LoadPredictor,
    /// Its mean loss; `None` if no window could be scored, and the winner is the fallback.
    pub loss: Option<f64>,
    /// Windows that count.
    pub scored_windows: usize,
    /// The mean loss of every candidate in their order; `None` where it is no number.
    pub losses: IndexMap<String, Option<f64>>,
}

impl Comparison {
    /// What is taken where nothing can be compared: the last value.
    pub fn fallback() -> Self {
        let [constant, ..] = &LOAD_PREDICTORS;
        Self {
            winner: label(0, constant),
            settings: constant.values,
            loss: None,
            scored_windows: 0,
            losses: IndexMap::new(),
        }
    }
}

/// What a candidate is called.
fn label(place: usize, candidate: &Preset<LoadPredictor>) -> String {
    candidate.name.map_or_else(|| format!("custom_{place}"), str::to_owned)
}

/// Cuts requests at `(milliseconds, prompt tokens, output tokens)` into windows of `interval_s`.
pub fn windows(requests: impl Iterator<Item = (f64, u32, u32)>, interval_s: u32) -> Vec<TraceWindow> {
    let interval_ms = f64::from(interval_s) * 1e3;
    let mut sums: std::collections::BTreeMap<u64, (u64, u64, u64)> = std::collections::BTreeMap::new();
    for (at_ms, input, output) in requests {
        let sum = sums.entry((at_ms / interval_ms).floor() as u64).or_default();
        sum.0 += 1;
        sum.1 += u64::from(input);
        sum.2 += u64::from(output);
    }
    let (Some((&first, _)), Some((&last, _))) = (sums.first_key_value(), sums.last_key_value()) else {
        return Vec::new();
    };
    let window = |bucket: u64| {
        sums.get(&bucket).map_or_else(TraceWindow::default, |&(count, input, output)| TraceWindow {
            num_req: count as f64,
            isl: input as f64 / count as f64,
            osl: output as f64 / count as f64,
        })
    };
    (first..=last).map(window).collect()
}

/// What a forecast costs when `actual` came.
pub fn window_loss(forecast: TraceWindow, actual: TraceWindow) -> f64 {
    let log = |value: f64| libm::log1p(value.max(0.0));
    let err = |predicted: f64, actual: f64| (log(predicted) - log(actual)).abs();
    let floor = |window: TraceWindow| TraceWindow {
        num_req: window.num_req.max(0.0),
        isl: window.isl.max(0.0),
        osl: window.osl.max(0.0),
    };
    let (forecast, actual) = (floor(forecast), floor(actual));
    0.4 * err(forecast.num_req * forecast.isl, actual.num_req * actual.isl)
        + 0.4 * err(forecast.num_req * forecast.osl, actual.num_req * actual.osl)
        + 0.1 * err(forecast.isl, actual.isl)
        + 0.1 * err(forecast.osl, actual.osl)
}

/// The best of `candidates` on these windows; without a window to score, the last value.
///
/// # Errors
/// When a candidate cannot be made.
pub fn sweep(
    windows: &[TraceWindow],
    candidates: &[Preset<LoadPredictor>],
    registry: &Registry,
) -> Result<Comparison, PolicyError> {
    let mut warmup = 0;
    for candidate in candidates {
        warmup = warmup.max(registry.predictor(&policy(&candidate.values))?.min_points());
    }
    let mut comparison = Comparison::fallback();
    comparison.scored_windows = windows.len().saturating_sub(warmup);
    for (place, candidate) in candidates.iter().enumerate() {
        let loss = mean_loss(windows, &candidate.values, warmup, registry)?;
        let label = label(place, candidate);
        if let Some(loss) = loss
            && comparison.loss.is_none_or(|least| loss < least)
        {
            comparison.winner.clone_from(&label);
            comparison.settings = candidate.values;
            comparison.loss = Some(loss);
        }
        comparison.losses.insert(label, loss);
    }
    Ok(comparison)
}

/// `None` if no window comes after the warm-up, or if a forecast failed.
fn mean_loss(
    windows: &[TraceWindow],
    predictor: &LoadPredictor,
    warmup: usize,
    registry: &Registry,
) -> Result<Option<f64>, PolicyError> {
    let config = policy(predictor);
    let series = || registry.predictor(&config).map(Series::new);
    let (mut num_req, mut isl, mut osl) = (series()?, series()?, series()?);
    let (mut losses, mut scored) = (0.0, 0_u32);
    for (place, &window) in windows.iter().enumerate() {
        let (Some(num_req_next), Some(isl_next), Some(osl_next)) =
            (num_req.forecast(), isl.forecast(), osl.forecast())
        else {
            return Ok(None);
        };
        let forecast = TraceWindow { num_req: num_req_next, isl: isl_next, osl: osl_next };
        if place >= warmup {
            losses += window_loss(forecast, window);
            scored += 1;
        }
        num_req.observe(window.num_req);
        isl.observe(window.isl);
        osl.observe(window.osl);
    }
    let mean = losses / f64::from(scored.max(1));
    Ok((scored > 0 && mean.is_finite()).then_some(mean))
}

/// A predictor of the registry with the fields of its family.
pub(super) fn policy(predictor: &LoadPredictor) -> PolicyConfig {
    let (name, fields) = match predictor.load_predictor {
        PredictorFamily::Constant => ("constant", serde_json::json!({})),
        PredictorFamily::Arima => ("arima", serde_json::json!({"log1p": predictor.load_predictor_log1p})),
        PredictorFamily::Prophet => (
            "prophet",
            serde_json::json!({
                "log1p": predictor.load_predictor_log1p, "window_size": predictor.prophet_window_size
            }),
        ),
        PredictorFamily::Kalman => (
            "kalman",
            serde_json::json!({
                "log1p": predictor.load_predictor_log1p, "q_level": predictor.kalman_q_level,
                "q_trend": predictor.kalman_q_trend, "r": predictor.kalman_r,
                "min_points": predictor.kalman_min_points
            }),
        ),
    };
    let fields = fields.as_object().cloned().unwrap_or_default();
    PolicyConfig { fields, ..PolicyConfig::named(name) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serving::predictor::LoadPredictor as Forecaster;
    use crate::serving::predictor::constant::Constant;

    fn window(num_req: f64, isl: f64, osl: f64) -> TraceWindow {
        TraceWindow { num_req, isl, osl }
    }

    fn near(found: f64, expected: f64) {
        assert!((found - expected).abs() < 1e-6 * expected.max(1e-6), "{found}, not {expected}");
    }

    /// Case 19 of the planner's cases, and the checks of the sub-sweep.
    #[test]
    fn losses_of_the_conformance_cases() {
        let loss = |forecast, actual| window_loss(forecast, actual);
        near(
            (loss(window(100.0, 2000.0, 200.0), window(120.0, 2000.0, 200.0)) * 1e6).round() / 1e6,
            0.145_854,
        );
        assert!((loss(window(100.0, 2000.0, 200.0), TraceWindow::default()) - 10.1343).abs() < 5e-5);
        assert_eq!(loss(window(3.0, 100.0, 10.0), window(3.0, 100.0, 10.0)), 0.0);
        near(loss(window(1.0, 200.0, 10.0), window(1.0, 100.0, 10.0)), 0.5 * (201_f64.ln() - 101_f64.ln()));
        near(loss(window(6.0, 100.0, 10.0), window(3.0, 100.0, 10.0)), 0.547_348_5);
        near(loss(window(5.0, 100.0, 10.0), TraceWindow::default()), 4.760_674_5);
    }

    fn one(family: PredictorFamily) -> [Preset<LoadPredictor>; 1] {
        [Preset { name: None, values: LoadPredictor::of_family(family) }]
    }

    #[test]
    fn the_mean_counts_from_the_warm_up_on() {
        let windows = [window(2.0, 100.0, 10.0), window(2.0, 100.0, 10.0), window(4.0, 200.0, 20.0)];
        let winner = sweep(&windows, &one(PredictorFamily::Constant), &Registry::builtin()).unwrap();
        near(winner.loss.unwrap(), 0.613_237_1);
        assert_eq!(winner.winner, "custom_0");
        let short = sweep(&windows, &one(PredictorFamily::Arima), &Registry::builtin()).unwrap();
        assert_eq!((short.winner.as_str(), short.loss), ("constant_last", None));
    }

    #[test]
    fn a_trend_is_followed_by_who_can_and_ties_go_to_the_first() {
        let rising: Vec<_> =
            (0..30).map(|step| window(100.0 + 20.0 * f64::from(step), 1000.0, 100.0)).collect();
        let winner = sweep(&rising, &LOAD_PREDICTORS, &Registry::builtin()).unwrap();
        assert_ne!(winner.winner, "constant_last");
        let level = vec![window(50.0, 1000.0, 100.0); 30];
        let winner = sweep(&level, &LOAD_PREDICTORS, &Registry::builtin()).unwrap();
        assert_eq!((winner.winner.as_str(), winner.loss), ("constant_last", Some(0.0)));
    }

    /// Continues a straight line, and has no answer after `FAILS_AFTER` values.
    #[derive(Default)]
    struct Line<const FAILS_AFTER: usize> {
        values: Vec<f64>,
    }

    impl<'de, const FAILS_AFTER: usize> Deserialize<'de> for Line<FAILS_AFTER> {
        fn deserialize<D: serde::Deserializer<'de>>(fields: D) -> Result<Self, D::Error> {
            serde::de::IgnoredAny::deserialize(fields).map(|_| Self::default())
        }
    }

    impl<const FAILS_AFTER: usize> Forecaster for Line<FAILS_AFTER> {
        fn observe(&mut self, value: f64) {
            self.values.push(value);
        }

        fn forecast(&mut self) -> f64 {
            match self.values[..] {
                _ if self.values.len() == FAILS_AFTER => f64::NAN,
                [.., before, last] => 2.0 * last - before,
                _ => 0.0,
            }
        }

        fn min_points(&self) -> usize {
            2
        }
    }

    #[test]
    fn a_forecaster_that_fails_once_is_out_however_good_it_was() {
        use PredictorFamily::{Arima, Kalman, Prophet};
        let registry = Registry::empty()
            .with_predictor::<Constant>("constant")
            .with_predictor::<Line<29>>("arima")
            .with_predictor::<Line<0>>("prophet")
            .with_predictor::<Line<99>>("kalman");
        let rising: Vec<_> =
            (0..30).map(|step| window(100.0 + 20.0 * f64::from(step), 1000.0, 100.0)).collect();
        let swept = |families: &[PredictorFamily], windows: &[TraceWindow]| {
            let candidates: Vec<_> = families.iter().flat_map(|&family| one(family)).collect();
            sweep(windows, &candidates, &registry).unwrap()
        };
        // It fails at the last window, or in the warm-up, whose windows do not count.
        for family in [Arima, Prophet] {
            let comparison = swept(&[family, PredictorFamily::Constant], &rising);
            assert_eq!(comparison.winner, "custom_1");
            assert_eq!(comparison.losses["custom_0"], None);
            assert_eq!(comparison.loss, comparison.losses["custom_1"]);
            assert!(comparison.loss.is_some_and(|loss| loss > 0.0));
            let alone = swept(&[family], &rising);
            assert_eq!((alone.winner.as_str(), alone.loss), ("constant_last", None));
        }
        // The same forecasts without the failure win.
        assert_eq!(swept(&[PredictorFamily::Constant, Kalman], &rising).winner, "custom_1");
        assert_eq!(swept(&[PredictorFamily::Constant, Arima], &rising[..29]).winner, "custom_1");
    }

    #[test]
    fn windows_run_from_the_first_request_to_the_last() {
        let requests = [(190_000.0, 100, 10), (200_000.0, 300, 30), (560_000.0, 50, 5)];
        let expected = [window(2.0, 200.0, 20.0), TraceWindow::default(), window(1.0, 50.0, 5.0)];
        assert_eq!(windows(requests.into_iter(), 180), expected);
        assert_eq!(windows(std::iter::empty(), 180), []);
    }
}
