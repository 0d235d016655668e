//! The load predictor: expects the traffic of the coming interval from that of the past ones.
//!
//! - *Receives* from the planner the window of traffic that has just ended.
//! - *Sends* back what it expects of the next one.
//! - *Keeps* one forecaster each for the number of requests, the mean prompt length and the mean output length.
//! - *Invariants*: a forecast is finite and not negative; forecasters see no value that is not a number.
//!
//! The actor is mechanics; the forecast is a [`LoadPredictor`], one file each:
//!
//! | name | forecaster | numerics |
//! |---|---|---|
//! | `constant` | the last value | exact |
//! | `kalman` | local linear trend | exact |
//! | `arima` | ARIMA whose order is chosen step by step | own maximum-likelihood fit, see [`arima`] |
//! | `prophet` | piecewise linear trend | own solver, see [`prophet`] |

pub mod arima;
pub mod constant;
pub mod kalman;
pub mod prophet;

use super::message::{Parcel, PlannerMessage, PredictorMessage, Serving};
use crate::simulation::{Actor, Address, Context};

/// What a load predictor sees of a window of traffic.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Window {
    /// Requests that arrived.
    pub num_req: f64,
    /// Mean prompt tokens of those that completed, if any did.
    pub isl: Option<f64>,
    /// Mean output tokens of those.
    pub osl: Option<f64>,
}

/// What a load predictor expects of the next window.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Forecast {
    /// Requests that will arrive.
    pub num_req: f64,
    /// Their mean prompt tokens.
    pub isl: f64,
    /// Their mean output tokens.
    pub osl: f64,
}

/// The load-predictor actor.
pub struct Predictor {
    planner: Address<PlannerMessage>,
    num_req: Series,
    isl: Series,
    osl: Series,
    /// Lengths of the latest window with requests in it.
    latest: Option<(f64, f64)>,
}

impl Predictor {
    /// A predictor that answers `planner`, with a forecaster for each of the three series.
    pub fn new(planner: Address<PlannerMessage>, forecasters: [Box<dyn LoadPredictor>; 3]) -> Self {
        let [num_req, isl, osl] = forecasters.map(Series::new);
        Self { planner, num_req, isl, osl, latest: None }
    }

    /// Feeds a window. One without requests says nothing about lengths: those of the latest that had some are fed again.
    fn observe(&mut self, window: &Window) {
        self.num_req.observe(window.num_req);
        let seen = window.isl.zip(window.osl);
        let lengths = if window.num_req > 0.0 { seen } else { self.latest.or(seen) };
        if window.num_req > 0.0 {
            self.latest = seen.or(self.latest);
        }
        if let Some((isl, osl)) = lengths {
            self.isl.observe(isl);
            self.osl.observe(osl);
        }
    }

    fn forecast(&mut self) -> Option<Forecast> {
        Some(Forecast {
            num_req: self.num_req.forecast()?,
            isl: self.isl.forecast()?,
            osl: self.osl.forecast()?,
        })
    }
}

impl Actor<Serving> for Predictor {
    type Inbox = PredictorMessage;

    fn receive(
        &mut self,
        PredictorMessage::Window(parcel): PredictorMessage,
        ctx: &mut Context<'_, Serving>,
    ) {
        let Parcel::Window(window) = ctx.open(parcel) else { return };
        self.observe(&window);
        let forecast = self.forecast();
        let parcel = ctx.pack(Parcel::Forecast(forecast));
        ctx.send(self.planner, PlannerMessage::Forecast(parcel));
    }
}

/// Expects the next value of a series, one value per interval.
///
/// A predictor's fields are its configuration (derive `Deserialize` with `deny_unknown_fields`; mark running state
/// `#[serde(skip)]`). A [`Series`] stands in front of it and keeps unusable values away.
pub trait LoadPredictor: Send {
    /// Takes the value of the interval that has just ended: finite and not negative.
    fn observe(&mut self, value: f64);

    /// What the next interval will bring, given all that was observed. Asking twice changes nothing.
    fn forecast(&mut self) -> f64;

    /// Values from which on a forecast is more than a guess.
    fn min_points(&self) -> usize {
        1
    }

    /// Problems of the configuration, one sentence each, naming the field.
    fn problems(&self) -> Vec<String> {
        Vec::new()
    }
}

/// A predictor with what is common to all of them: what is not finite counts as 0, zeros before the first other value do
/// not count at all, and no forecast is below 0.
pub struct Series {
    predictor: Box<dyn LoadPredictor>,
    has_begun: bool,
}

impl Series {
    /// An empty series.
    pub fn new(predictor: Box<dyn LoadPredictor>) -> Self {
        Self { predictor, has_begun: false }
    }

    /// Takes the value of the interval that has just ended.
    pub fn observe(&mut self, value: f64) {
        let value = if value.is_finite() { value.max(0.0) } else { 0.0 };
        self.has_begun |= value != 0.0;
        if self.has_begun {
            self.predictor.observe(value);
        }
    }

    /// What the next interval will bring; `None` if the predictor has no answer that is a number.
    pub fn forecast(&mut self) -> Option<f64> {
        let forecast = self.predictor.forecast();
        forecast.is_finite().then_some(forecast.max(0.0))
    }

    /// See [`LoadPredictor::min_points`].
    pub fn min_points(&self) -> usize {
        self.predictor.min_points()
    }
}

/// ln(1 + x) of what is not below 0.
pub(crate) fn to_log(value: f64) -> f64 {
    libm::log1p(value.max(0.0))
}

/// The inverse of [`to_log`], not below 0.
pub(crate) fn from_log(log: f64) -> f64 {
    libm::expm1(log).max(0.0)
}

#[cfg(test)]
mod tests {
    use super::constant::Constant;
    use super::*;

    #[test]
    fn a_series_begins_with_its_first_value_that_is_not_zero() {
        let mut series = Series::new(Box::new(kalman::Kalman::default()));
        for value in [0.0, f64::NAN, 0.0, 8.0, 9.0, 8.0] {
            series.observe(value);
        }
        assert_eq!(series.forecast(), Some(8.0), "three points so far");
        for _ in 0..4 {
            series.observe(f64::INFINITY);
        }
        assert!(series.forecast().is_some_and(|forecast| forecast < 1.0), "later zeros count");
    }

    #[test]
    fn no_forecast_is_negative() {
        let mut series = Series::new(Box::new(Constant::default()));
        assert_eq!(series.forecast(), Some(0.0));
        series.observe(-5.0);
        series.observe(3.0);
        series.observe(-5.0);
        assert_eq!(series.forecast(), Some(0.0));
    }
}
