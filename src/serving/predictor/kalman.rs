//! A local linear trend, followed by a Kalman filter.
//!
//! The state is a level and a slope; every interval the slope is added to the level. The level is observed with the
//! variance `r`; both wander, with the variances `q_level` and `q_trend`. The filter starts at the first value with a
//! slope of 0, and is sure of neither (variance 1000).

use serde::Deserialize;

use super::{LoadPredictor, from_log, to_log};
use crate::simulation::Shown;

/// Follows level and slope.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Kalman {
    /// Whether it works on ln(1 + x).
    pub log1p: bool,
    /// Variance by which the level wanders in an interval.
    pub q_level: f64,
    /// Variance by which the slope wanders in an interval.
    pub q_trend: f64,
    /// Variance of an observation.
    pub r: f64,
    /// Points before which the forecast is the last value.
    pub min_points: usize,
    #[serde(skip)]
    state: Option<State>,
    #[serde(skip)]
    points: usize,
    #[serde(skip)]
    last: f64,
    /// The state has been moved to the coming interval.
    #[serde(skip)]
    is_ahead: bool,
}

#[derive(Clone, Copy, Debug)]
struct State {
    level: f64,
    slope: f64,
    /// Covariance of the two, by rows; it is symmetric.
    covariance: [[f64; 2]; 2],
}

impl Default for Kalman {
    fn default() -> Self {
        Self {
            log1p: false,
            q_level: 1.0,
            q_trend: 0.1,
            r: 10.0,
            min_points: 5,
            state: None,
            points: 0,
            last: 0.0,
            is_ahead: false,
        }
    }
}

impl Kalman {
    /// Moves the state on by one interval, unless that has been done.
    fn advance(&mut self) {
        if std::mem::replace(&mut self.is_ahead, true) {
            return;
        }
        let (q_level, q_trend) = (self.q_level.max(1e-12), self.q_trend.max(1e-12));
        if let Some(state) = &mut self.state {
            state.level += state.slope;
            let [[level, both], [_, slope]] = state.covariance;
            let moved = both + slope;
            state.covariance = [[level + both + moved + q_level, moved], [moved, slope + q_trend]];
        }
    }
}

impl State {
    /// Takes an observation of the level in, in Joseph's form.
    fn correct(&mut self, observed: f64, noise: f64) {
        let [[of_level, shared], [_, of_slope]] = self.covariance;
        let spread = of_level + noise;
        let (gain_level, gain_slope) = (of_level / spread, shared / spread);
        let surprise = observed - self.level;
        self.level += gain_level * surprise;
        self.slope += gain_slope * surprise;
        let kept = 1.0 - gain_level;
        // (I - K H) P (I - K H)' + K r K', by its three different entries.
        let level = kept * of_level * kept + gain_level * noise * gain_level;
        let both = kept * shared - kept * of_level * gain_slope + gain_level * noise * gain_slope;
        let slope = of_slope - gain_slope * shared - (shared - gain_slope * of_level) * gain_slope
            + gain_slope * noise * gain_slope;
        self.covariance = [[level, both], [both, slope]];
    }
}

impl LoadPredictor for Kalman {
    fn observe(&mut self, value: f64) {
        self.last = value;
        self.points += 1;
        let observed = if self.log1p { to_log(value) } else { value };
        if self.state.is_some() {
            self.advance();
        }
        match &mut self.state {
            None => {
                let covariance = [[1000.0, 0.0], [0.0, 1000.0]];
                self.state = Some(State { level: observed, slope: 0.0, covariance });
            }
            Some(state) => state.correct(observed, self.r.max(1e-9)),
        }
        self.is_ahead = false;
    }

    fn forecast(&mut self) -> f64 {
        if self.points < self.min_points {
            return self.last;
        }
        self.advance();
        let level = self.state.map_or(0.0, |state| state.level);
        if self.log1p { from_log(level) } else { level }
    }

    fn min_points(&self) -> usize {
        self.min_points
    }

    fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        for (name, variance) in [("q_level", self.q_level), ("q_trend", self.q_trend), ("r", self.r)] {
            if !(variance.is_finite() && variance >= 0.0) {
                problems.push(format!("{name}: {} must be finite and not negative", Shown(variance)));
            }
        }
        problems
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reactive() -> Kalman {
        Kalman { q_level: 10.0, q_trend: 1.0, r: 5.0, min_points: 3, ..Kalman::default() }
    }

    /// Case 18.
    #[test]
    fn the_conformance_case() {
        let mut kalman = reactive();
        let mut forecasts = [0.0; 3];
        for (forecast, value) in forecasts.iter_mut().zip([100.0, 120.0, 140.0]) {
            kalman.observe(value);
            *forecast = kalman.forecast();
        }
        assert_eq!(forecasts[..2], [100.0, 120.0]);
        assert!((forecasts[2] - 159.5246).abs() < 1e-4, "{forecasts:?}");
        let slope = kalman.state.unwrap().slope;
        assert!((slope - 19.6202).abs() < 1e-4, "{slope}");
    }

    #[test]
    fn asking_twice_changes_nothing() {
        let (mut once, mut twice) = (reactive(), reactive());
        for value in [100.0, 120.0, 140.0, 90.0] {
            once.observe(value);
            twice.observe(value);
            let first = twice.forecast();
            assert_eq!(twice.forecast(), first);
        }
        assert_eq!(once.forecast(), twice.forecast());
    }

    #[test]
    fn logarithms_never_go_below_zero() {
        let mut kalman = Kalman { log1p: true, ..reactive() };
        for value in [1000.0, 10.0, 0.0, 0.0] {
            kalman.observe(value);
        }
        assert!(kalman.forecast() >= 0.0);
    }
}
