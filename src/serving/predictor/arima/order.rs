//! Choosing the order of a model, and its coefficients.

use super::likelihood::{Coefficients, Filtered};
use super::optimise::minimise;

const MOST_DIFFERENCES: usize = 2;
const MOST_ORDER: usize = 5;
/// Statistic of the KPSS test above which a level is refused, at 5 %.
const KPSS_CRITICAL: f64 = 0.463;
/// Inverse roots beyond this are too close to the unit circle.
const LARGEST_INVERSE_ROOT: f64 = 0.99;
/// Smallest variance of the shocks, as a share of the variance of the series.
const LEAST_VARIANCE_SHARE: f64 = 1e-8;

/// Orders of autoregression and moving average, whether there is a constant, and differences.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Order {
    p: usize,
    q: usize,
    has_mean: bool,
    d: usize,
}

/// An order with its coefficients.
#[derive(Clone, Debug)]
pub(super) struct Model {
    order: Order,
    /// Coefficients before they are mapped to partial autocorrelations.
    unbounded: Vec<f64>,
}

impl Model {
    /// The model of the smallest AIC that a stepwise search finds for these values; `None` if none fits.
    pub(super) fn choose(values: &[f64]) -> Option<Self> {
        let d = differences(values);
        let series = differenced(values, d);
        let mut search = Search { series: &series, tried: Vec::new(), best: None };
        for (p, q) in [(2, 2), (0, 0), (1, 0), (0, 1)] {
            search.attempt(Order { p, q, has_mean: d <= 1, d });
        }
        if d <= 1 {
            search.attempt(Order { p: 0, q: 0, has_mean: false, d });
        }
        while search.improve() {}
        search.best.map(|(_, model)| model)
    }

    #[cfg(test)]
    pub(super) fn order(&self) -> Order {
        self.order
    }

    /// Whether it has neither autoregression nor a moving average.
    pub(super) fn is_bare(&self) -> bool {
        self.order.p + self.order.q == 0
    }

    /// Adapts the coefficients to more values.
    pub(super) fn refit(&mut self, values: &[f64]) {
        let series = differenced(values, self.order.d);
        self.unbounded = fit(&series, self.order, std::mem::take(&mut self.unbounded));
    }

    /// The value after the last.
    pub(super) fn forecast(&self, values: &[f64]) -> Option<f64> {
        let series = differenced(values, self.order.d);
        let next = run(&series, self.order, &self.unbounded).next;
        let last = *values.last()?;
        Some(match self.order.d {
            0 => next,
            1 => last + next,
            _ => 2.0 * last - values[values.len() - 2] + next,
        })
    }
}

struct Search<'a> {
    series: &'a [f64],
    tried: Vec<Order>,
    best: Option<(f64, Model)>,
}

impl Search<'_> {
    /// Tries an order unless it was tried before; whether it is the best so far.
    fn attempt(&mut self, order: Order) -> bool {
        let parameters = order.p + order.q + usize::from(order.has_mean) + 1;
        let impossible = order.p > MOST_ORDER
            || order.q > MOST_ORDER
            || order.p + order.q > MOST_ORDER
            || parameters >= self.series.len();
        if impossible || self.tried.contains(&order) {
            return false;
        }
        self.tried.push(order);
        let unbounded = fit(self.series, order, vec![0.0; order.p + order.q]);
        let coefficients = Coefficients::from_unbounded(&unbounded, order.p);
        if coefficients.largest_inverse_root() > LARGEST_INVERSE_ROOT {
            return false;
        }
        let aic = 2.0 * parameters as f64 - 2.0 * run(self.series, order, &unbounded).log_likelihood;
        let better = aic.is_finite() && self.best.as_ref().is_none_or(|(best, _)| aic < *best);
        if better {
            self.best = Some((aic, Model { order, unbounded }));
        }
        better
    }

    /// Moves to a better neighbour, if there is one.
    fn improve(&mut self) -> bool {
        let Some((_, Model { order, .. })) = self.best else { return false };
        let steps: [(i8, i8); 8] = [(-1, 0), (0, -1), (1, 0), (0, 1), (-1, -1), (1, 1), (-1, 1), (1, -1)];
        let stepped = |from: usize, step: i8| from.checked_add_signed(isize::from(step));
        let mut neighbours: Vec<Order> = steps
            .iter()
            .filter_map(|&(p, q)| Some(Order { p: stepped(order.p, p)?, q: stepped(order.q, q)?, ..order }))
            .collect();
        if order.d <= 1 {
            neighbours.push(Order { has_mean: !order.has_mean, ..order });
        }
        neighbours.into_iter().any(|neighbour| self.attempt(neighbour))
    }
}

fn fit(series: &[f64], order: Order, start: Vec<f64>) -> Vec<f64> {
    minimise(start, |numbers| -run(series, order, numbers).log_likelihood)
}

fn run(series: &[f64], order: Order, unbounded: &[f64]) -> Filtered {
    let least = (variance(series) * LEAST_VARIANCE_SHARE).max(1e-12);
    Coefficients::from_unbounded(unbounded, order.p).filter(series, order.has_mean, least)
}

fn differenced(values: &[f64], times: usize) -> Vec<f64> {
    let mut series = values.to_vec();
    for _ in 0..times {
        series = series.windows(2).map(|pair| pair[1] - pair[0]).collect();
    }
    series
}

/// How often a series has to be differenced until it has a level.
fn differences(values: &[f64]) -> usize {
    for times in 0..MOST_DIFFERENCES {
        let series = differenced(values, times);
        if series.len() < 3 || variance(&series) == 0.0 || kpss(&series) <= KPSS_CRITICAL {
            return times;
        }
    }
    MOST_DIFFERENCES
}

/// Statistic of Kwiatkowski, Phillips, Schmidt and Shin for a level, with a short window of Bartlett weights.
fn kpss(series: &[f64]) -> f64 {
    let count = series.len() as f64;
    let mean = series.iter().sum::<f64>() / count;
    let residuals: Vec<f64> = series.iter().map(|value| value - mean).collect();
    let mut sum = 0.0;
    let partial_squares: f64 = residuals
        .iter()
        .map(|residual| {
            sum += residual;
            sum * sum
        })
        .sum();
    let window = (3.0 * count.sqrt() / 13.0).trunc() as usize;
    let covariance = |lag: usize| -> f64 {
        residuals.iter().zip(residuals.iter().skip(lag)).map(|(early, late)| early * late).sum::<f64>()
            / count
    };
    let mut long_run = covariance(0);
    for lag in 1..=window {
        long_run += 2.0 * (1.0 - lag as f64 / (window as f64 + 1.0)) * covariance(lag);
    }
    partial_squares / (count * count * long_run)
}

fn variance(series: &[f64]) -> f64 {
    let count = series.len().max(1) as f64;
    let mean = series.iter().sum::<f64>() / count;
    series.iter().map(|value| (value - mean) * (value - mean)).sum::<f64>() / count
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_level_needs_no_differences_and_a_trend_one() {
        let noise = [0.3, -0.8, 0.5, 0.1, -0.4, 0.9, -0.2, -0.6, 0.7, 0.0];
        let level: Vec<f64> = (0..40).map(|step| 10.0 + noise[step % 10]).collect();
        let trend: Vec<f64> = (0..40).map(|step| step as f64 + noise[step % 10]).collect();
        assert_eq!((differences(&level), differences(&trend)), (0, 1));
    }

    #[test]
    fn autoregression_is_recognised() {
        // A fixed pseudo-random sequence drives a first-order process.
        let mut state = 12345_u64;
        let mut value = 0.0;
        let values: Vec<f64> = (0..200)
            .map(|_| {
                let mut shock = -6.0;
                for _ in 0..12 {
                    state =
                        state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                    shock += (state >> 11) as f64 / (1_u64 << 53) as f64;
                }
                value = 0.7 * value + shock;
                20.0 + value
            })
            .collect();
        let order = Order { p: 1, q: 0, has_mean: true, d: 0 };
        let unbounded = fit(&values, order, vec![0.0]);
        let phi = Coefficients::from_unbounded(&unbounded, 1).ar[0];
        assert!((phi - 0.7).abs() < 0.12, "{phi}");
        let chosen = Model::choose(&values).unwrap();
        assert!(chosen.order.p + chosen.order.q >= 1, "{:?}", chosen.order);
    }
}
