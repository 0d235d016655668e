//! A piecewise linear trend, as Prophet fits it without seasons.
//!
//! Own solver instead of Prophet's: the windows of a planner are far too short for its yearly, weekly and daily seasons
//! (they are always off), and what is left is small. Time runs from 0 to 1 over the history, values are divided by the
//! largest of them. The trend starts with a slope `k` and an offset `m`, both with normal priors of deviation 5, and may bend
//! at up to 25 points spread over the first 80 % of the history, where the change of slope has a Laplace prior of scale
//! 0.05; the noise has a half-normal prior of deviation 0.5. The most probable trend is found by turns: given the noise
//! it is a least-squares problem with absolute penalties (coordinate descent), given the trend the noise has a closed
//! form. Prophet looks for the same maximum with L-BFGS, which may stop at another point near it: allow 2 % of the level.

use serde::Deserialize;

use super::{LoadPredictor, from_log, to_log};

/// Points before which the forecast is the last value.
const MIN_POINTS: usize = 5;
const PRIOR_DEVIATION: f64 = 5.0;
const BEND_SCALE: f64 = 0.05;
const NOISE_DEVIATION: f64 = 0.5;
const MOST_BENDS: usize = 25;
const HISTORY_WITH_BENDS: f64 = 0.8;
/// Turns between trend and noise; they settle long before.
const MOST_TURNS: usize = 200;
const MOST_SWEEPS: usize = 500;

/// Extends the trend of the latest values.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Prophet {
    /// Whether it works on ln(1 + x).
    pub log1p: bool,
    /// Values that it looks back on.
    pub window_size: usize,
    #[serde(skip)]
    history: Vec<f64>,
    #[serde(skip)]
    last: f64,
}

impl Default for Prophet {
    fn default() -> Self {
        Self { log1p: false, window_size: 50, history: Vec::new(), last: 0.0 }
    }
}

impl LoadPredictor for Prophet {
    fn observe(&mut self, value: f64) {
        self.last = value;
        self.history.push(if self.log1p { to_log(value) } else { value });
        if self.history.len() > self.window_size {
            self.history.remove(0);
        }
    }

    fn forecast(&mut self) -> f64 {
        if self.history.len() < MIN_POINTS {
            return self.last;
        }
        let forecast = extrapolate(&self.history);
        if self.log1p { from_log(forecast) } else { forecast }
    }

    fn min_points(&self) -> usize {
        MIN_POINTS
    }

    fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        if self.window_size == 0 {
            problems.push("window_size: 0 must be at least 1".into());
        }
        problems
    }
}

/// The value after the last.
fn extrapolate(history: &[f64]) -> f64 {
    let first = history[0];
    if history.iter().all(|&value| value == first) {
        return first;
    }
    let scale = history.iter().fold(0.0_f64, |most, value| most.max(value.abs()));
    let scaled: Vec<f64> = history.iter().map(|value| value / scale).collect();
    let last = (history.len() - 1) as f64;
    let time = |index: usize| index as f64 / last;
    let bends: Vec<f64> = bend_places(history.len()).into_iter().map(time).collect();
    let trend = Trend::fit(&scaled, &bends, time);
    trend.at((last + 1.0) / last, &bends) * scale
}

/// Places in the history where the trend may bend: evenly over its first part, without the very first point.
fn bend_places(points: usize) -> Vec<usize> {
    let reach = (points as f64 * HISTORY_WITH_BENDS).floor() as usize;
    let bends = MOST_BENDS.min(reach.saturating_sub(1));
    (1..=bends)
        .map(|bend| ((reach - 1) as f64 * bend as f64 / bends as f64).round_ties_even() as usize)
        .collect()
}

/// Offset, slope and changes of slope.
struct Trend(Vec<f64>);

impl Trend {
    /// What each coefficient contributes at `time`.
    fn features(time: f64, bends: &[f64]) -> impl Iterator<Item = f64> + '_ {
        [1.0, time].into_iter().chain(bends.iter().map(move |bend| (time - bend).max(0.0)))
    }

    fn at(&self, time: f64, bends: &[f64]) -> f64 {
        Self::features(time, bends).zip(&self.0).map(|(feature, coefficient)| feature * coefficient).sum()
    }

    fn fit(values: &[f64], bends: &[f64], time: impl Fn(usize) -> f64) -> Self {
        let rows: Vec<Vec<f64>> =
            (0..values.len()).map(|index| Self::features(time(index), bends).collect()).collect();
        let width = bends.len() + 2;
        let products = Products::of(&rows, values, width);
        let slope = values[values.len() - 1] - values[0];
        let mut coefficients = vec![0.0; width];
        (coefficients[0], coefficients[1]) = (values[0], slope);
        let mut variance = 1.0;
        for _ in 0..MOST_TURNS {
            products.descend(&mut coefficients, variance);
            let next = likeliest_variance(products.squares(&coefficients), values.len() as f64);
            let settled = (next - variance).abs() <= 1e-10 * variance;
            variance = next;
            if settled {
                break;
            }
        }
        Self(coefficients)
    }
}

/// The variance of the noise that is most probable for a sum of squared residuals over `points`:
/// d/ds (points ln s + squares / 2 s^2 + s^2 / 2 d^2) = 0.
fn likeliest_variance(squares: f64, points: f64) -> f64 {
    let prior = NOISE_DEVIATION * NOISE_DEVIATION;
    let root = (points * points + 4.0 * squares / prior).sqrt();
    ((root - points) * prior / 2.0).max(1e-10)
}

/// Products of the features with each other and with the values.
struct Products {
    gram: Vec<Vec<f64>>,
    with_values: Vec<f64>,
    of_values: f64,
}

impl Products {
    fn of(rows: &[Vec<f64>], values: &[f64], width: usize) -> Self {
        let mut gram = vec![vec![0.0; width]; width];
        let mut with_values = vec![0.0; width];
        for (row, value) in rows.iter().zip(values) {
            for (i, left) in row.iter().enumerate() {
                with_values[i] += left * value;
                for (j, right) in row.iter().enumerate() {
                    gram[i][j] += left * right;
                }
            }
        }
        Self { gram, with_values, of_values: values.iter().map(|value| value * value).sum() }
    }

    /// Sum of squared residuals.
    fn squares(&self, coefficients: &[f64]) -> f64 {
        let mut squares = self.of_values;
        for (i, left) in coefficients.iter().enumerate() {
            squares -= 2.0 * left * self.with_values[i];
            for (j, right) in coefficients.iter().enumerate() {
                squares += left * right * self.gram[i][j];
            }
        }
        squares.max(0.0)
    }

    /// The most probable coefficients for this variance of the noise, by coordinate descent.
    fn descend(&self, coefficients: &mut [f64], variance: f64) {
        for _ in 0..MOST_SWEEPS {
            let mut most_moved = 0.0_f64;
            for i in 0..coefficients.len() {
                let others: f64 =
                    coefficients.iter().zip(&self.gram[i]).map(|(c, product)| c * product).sum();
                let own = self.gram[i][i];
                let pull = self.with_values[i] - others + own * coefficients[i];
                let moved = if i < 2 {
                    pull / (own + variance / (PRIOR_DEVIATION * PRIOR_DEVIATION))
                } else {
                    // A bend has to be worth its price.
                    let price = variance / BEND_SCALE;
                    (pull.abs() - price).max(0.0).copysign(pull) / own
                };
                most_moved = most_moved.max((moved - coefficients[i]).abs());
                coefficients[i] = moved;
            }
            if most_moved < 1e-9 {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn forecast(values: impl IntoIterator<Item = f64>) -> f64 {
        let mut prophet = Prophet::default();
        for value in values {
            prophet.observe(value);
        }
        prophet.forecast()
    }

    #[test]
    fn bends_stand_where_prophet_puts_them() {
        assert_eq!(bend_places(5), [1, 2, 3]);
        assert_eq!(bend_places(10), [1, 2, 3, 4, 5, 6, 7]);
        let many = bend_places(50);
        assert_eq!((many.len(), many[0], many[24]), (25, 2, 39));
    }

    #[test]
    fn constants_and_short_histories_stay_what_they_are() {
        assert_eq!(forecast([3.0, 9.0, 4.0]), 4.0);
        assert_eq!(forecast([7.0; 6]), 7.0);
        assert_eq!(forecast([]), 0.0);
    }

    #[test]
    fn a_line_is_extended() {
        let next = forecast((0..20).map(|step| 100.0 + 10.0 * f64::from(step)));
        assert!((next - 300.0).abs() < 3.0, "{next}");
    }

    #[test]
    fn a_trend_that_bends_is_followed() {
        let values = (0..40).map(|step| if step < 20 { 200.0 } else { 200.0 + 20.0 * f64::from(step - 20) });
        let next = forecast(values);
        assert!((next - 600.0).abs() < 25.0, "{next}");
    }

    #[test]
    fn the_window_bounds_the_past() {
        let mut short = Prophet { window_size: 5, ..Prophet::default() };
        for value in [900.0, 800.0, 7.0, 7.0, 7.0, 7.0, 7.0] {
            short.observe(value);
        }
        assert_eq!(short.forecast(), 7.0);
    }
}
