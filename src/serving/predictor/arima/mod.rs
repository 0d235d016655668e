//! An autoregressive integrated moving average whose order is chosen from the data.
//!
//! Own fit after the defaults of pmdarima's `auto_arima` without seasons, of which no port with its start and criterion
//! exists. The number of differences (0 to 2) is the first for which a KPSS test at 5 % finds a level; then a stepwise search from
//! (2, d, 2), (0, d, 0), (1, d, 0) and (0, d, 1) moves to neighbours with a smaller AIC until there is none, p and q up to 5
//! and p + q up to 5, with or without a constant as far as there is at most one difference. Models with a root within 1 % of
//! the unit circle are passed over. The likelihood is exact (Kalman filter from the stationary state, constant and
//! variance profiled out) and maximised by BFGS with difference quotients over partial autocorrelations, at most 50 steps;
//! differencing is exact rather than by a diffuse state.
//!
//! Unlike there, a model with as many parameters as values is never tried, and the variance is bounded away from 0: both
//! matter with five or six values only. Expect the same order on most series and forecasts within 2 %, not the same bits.

mod likelihood;
mod optimise;
mod order;

use serde::Deserialize;

use self::order::Model;
use super::{LoadPredictor, from_log, to_log};

/// Points before which the forecast is the last value.
const MIN_POINTS: usize = 5;

/// Chooses its order at the first forecast from enough values and keeps it; the coefficients follow every value.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Arima {
    /// Whether it works on ln(1 + x). If the order chosen without has neither autoregression nor a moving average, it
    /// changes to that.
    pub log1p: bool,
    #[serde(skip)]
    history: Vec<f64>,
    #[serde(skip)]
    model: Option<Model>,
    /// The latest forecast with the number of values it was made from.
    #[serde(skip)]
    latest: Option<(usize, f64)>,
}

impl Arima {
    fn values(&self) -> Vec<f64> {
        self.history.iter().map(|&value| if self.log1p { to_log(value) } else { value }).collect()
    }

    /// `None` where no model fits.
    fn fit_and_forecast(&mut self) -> Option<f64> {
        let mut values = self.values();
        if let Some(model) = &mut self.model {
            model.refit(&values);
        } else {
            let mut model = Model::choose(&values)?;
            if !self.log1p && model.is_bare() {
                self.log1p = true;
                values = self.values();
                model = Model::choose(&values)?;
            }
            self.model = Some(model);
        }
        let forecast = self.model.as_ref()?.forecast(&values)?;
        Some(if self.log1p { from_log(forecast) } else { forecast })
    }
}

impl LoadPredictor for Arima {
    fn observe(&mut self, value: f64) {
        self.history.push(value);
    }

    fn forecast(&mut self) -> f64 {
        let points = self.history.len();
        let last = self.history.last().copied().unwrap_or(0.0);
        if points < MIN_POINTS || self.history.iter().all(|&value| value == last) {
            return last;
        }
        if let Some((made_from, forecast)) = self.latest
            && made_from == points
        {
            return forecast;
        }
        let forecast = self.fit_and_forecast().filter(|forecast| forecast.is_finite()).unwrap_or(last);
        self.latest = Some((points, forecast));
        forecast
    }

    fn min_points(&self) -> usize {
        MIN_POINTS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn forecast(arima: &mut Arima, values: impl IntoIterator<Item = f64>) -> f64 {
        for value in values {
            arima.observe(value);
        }
        arima.forecast()
    }

    #[test]
    fn short_and_constant_histories_repeat_themselves() {
        assert_eq!(forecast(&mut Arima::default(), [1.0, 5.0, 2.0, 9.0]), 9.0);
        assert_eq!(forecast(&mut Arima::default(), [4.0; 9]), 4.0);
        assert_eq!(forecast(&mut Arima::default(), []), 0.0);
    }

    #[test]
    fn a_line_goes_on() {
        let next = forecast(&mut Arima::default(), (0..20).map(|step| 100.0 + 5.0 * f64::from(step)));
        assert!((next - 200.0).abs() < 2.0, "{next}");
    }

    #[test]
    fn a_swinging_series_swings_back() {
        // Strongly negative autoregression around 50.
        let noise = [0.3, -0.8, 0.5, 0.1, -0.4, 0.9, -0.2, -0.6, 0.7, 0.0];
        let mut value = 10.0;
        let values: Vec<f64> = (0..30)
            .map(|step| {
                value = -0.8 * value + noise[step % 10];
                50.0 + value
            })
            .collect();
        let last = *values.last().unwrap();
        let next = forecast(&mut Arima::default(), values);
        assert!((next - 50.0) * (last - 50.0) <= 0.0, "{last} is followed by {next}");
    }

    #[test]
    fn the_order_is_kept_and_new_values_count() {
        let mut arima = Arima::default();
        let first = forecast(&mut arima, [100.0, 110.0, 95.0, 120.0, 104.0, 99.0, 131.0]);
        let order = arima.model.as_ref().unwrap().order();
        assert_eq!(arima.forecast(), first);
        let second = forecast(&mut arima, [400.0, 410.0, 420.0]);
        assert_eq!(arima.model.as_ref().unwrap().order(), order);
        assert!(second > first, "{first} {second}");
    }
}
