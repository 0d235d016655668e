//! The exact Gaussian likelihood of an ARMA process, by a Kalman filter over Harvey's state space.

/// Most states: as many as the largest order has, and one more.
const MOST: usize = 6;

type Matrix = [[f64; MOST]; MOST];

/// What a filter run over a series gives.
#[derive(Clone, Copy, Debug)]
pub(super) struct Filtered {
    /// Logarithm of the likelihood, with mean and variance at their most likely values.
    pub(super) log_likelihood: f64,
    /// Expected value after the last.
    pub(super) next: f64,
}

/// Coefficients of an ARMA process.
#[derive(Clone, Debug, Default)]
pub(super) struct Coefficients {
    pub(super) ar: Vec<f64>,
    pub(super) ma: Vec<f64>,
}

impl Coefficients {
    /// Coefficients of a stationary and invertible process from any numbers: each is mapped to a partial
    /// autocorrelation.
    pub(super) fn from_unbounded(numbers: &[f64], ar: usize) -> Self {
        let (of_ar, of_ma) = numbers.split_at(ar);
        Self { ar: stationary(of_ar), ma: stationary(of_ma).into_iter().map(|ma| -ma).collect() }
    }

    /// Largest modulus of an inverse root of either polynomial.
    pub(super) fn largest_inverse_root(&self) -> f64 {
        let inverted: Vec<f64> = self.ma.iter().map(|ma| -ma).collect();
        spectral_radius(&self.ar).max(spectral_radius(&inverted))
    }

    /// Runs the filter. With `has_mean` the process has a mean, which is estimated.
    pub(super) fn filter(&self, values: &[f64], has_mean: bool, least_variance: f64) -> Filtered {
        let states = self.ar.len().max(self.ma.len() + 1);
        let mut transition = [[0.0; MOST]; MOST];
        for (row, ar) in transition.iter_mut().zip(&self.ar) {
            row[0] = *ar;
        }
        for (index, row) in transition.iter_mut().enumerate().take(states - 1) {
            row[index + 1] = 1.0;
        }
        let mut shock = [0.0; MOST];
        shock[0] = 1.0;
        shock[1..=self.ma.len()].copy_from_slice(&self.ma);
        let mut covariance = stationary_covariance(&transition, &shock, states);

        // The states of the series and of a constant 1: the mean is what explains the one by the other.
        let (mut of_values, mut of_one) = ([0.0; MOST], [0.0; MOST]);
        let (mut squares, mut cross, mut one_squares, mut logs) = (0.0, 0.0, 0.0, 0.0);
        for &value in values {
            let spread = covariance[0][0].max(1e-300);
            let (surprise, one) = (value - of_values[0], 1.0 - of_one[0]);
            squares += surprise * surprise / spread;
            cross += surprise * one / spread;
            one_squares += one * one / spread;
            logs += libm::log(spread);
            let mut gain = [0.0; MOST];
            for (state, row) in gain.iter_mut().zip(&covariance).take(states) {
                *state = row[0] / spread;
            }
            for state in 0..states {
                of_values[state] += gain[state] * surprise;
                of_one[state] += gain[state] * one;
            }
            let top = covariance[0];
            for row in 0..states {
                for column in 0..states {
                    covariance[row][column] -= gain[row] * top[column];
                }
            }
            of_values = moved(&transition, &of_values, states);
            of_one = moved(&transition, &of_one, states);
            covariance = spread_on(&transition, &covariance, states);
            for row in 0..states {
                for column in 0..states {
                    covariance[row][column] += shock[row] * shock[column];
                }
            }
        }
        let mean = if has_mean && one_squares > 0.0 { cross / one_squares } else { 0.0 };
        let count = values.len() as f64;
        let residual = (squares - 2.0 * mean * cross + mean * mean * one_squares).max(0.0);
        let variance = (residual / count).max(least_variance);
        let of_variance = count * libm::log(variance) + residual / variance;
        let log_likelihood = -0.5 * (count * libm::log(std::f64::consts::TAU) + of_variance + logs);
        Filtered { log_likelihood, next: of_values[0] + mean * (1.0 - of_one[0]) }
    }
}

/// Durbin's recursion from partial autocorrelations, which lie between -1 and 1.
fn stationary(numbers: &[f64]) -> Vec<f64> {
    let mut coefficients: Vec<f64> = Vec::with_capacity(numbers.len());
    for number in numbers {
        let partial = number / (1.0 + number * number).sqrt();
        let before = coefficients.clone();
        for (coefficient, mirrored) in coefficients.iter_mut().zip(before.iter().rev()) {
            *coefficient -= partial * mirrored;
        }
        coefficients.push(partial);
    }
    coefficients
}

/// Solves P = T P T' + R R' by doubling.
fn stationary_covariance(transition: &Matrix, shock: &[f64; MOST], states: usize) -> Matrix {
    let mut covariance = [[0.0; MOST]; MOST];
    for row in 0..states {
        for column in 0..states {
            covariance[row][column] = shock[row] * shock[column];
        }
    }
    let mut power = *transition;
    for _ in 0..40 {
        let added = spread_on(&power, &covariance, states);
        let mut size = 0.0_f64;
        for row in 0..states {
            for column in 0..states {
                covariance[row][column] += added[row][column];
                size = size.max(added[row][column].abs() / (1.0 + covariance[row][column].abs()));
            }
        }
        if size < 1e-14 {
            break;
        }
        power = product(&power, &power, states);
    }
    covariance
}

/// A P A'.
fn spread_on(by: &Matrix, covariance: &Matrix, states: usize) -> Matrix {
    let half = product(by, covariance, states);
    let mut spread = [[0.0; MOST]; MOST];
    for row in 0..states {
        for column in 0..states {
            spread[row][column] = (0..states).map(|k| half[row][k] * by[column][k]).sum();
        }
    }
    spread
}

fn product(left: &Matrix, right: &Matrix, states: usize) -> Matrix {
    let mut product = [[0.0; MOST]; MOST];
    for row in 0..states {
        for column in 0..states {
            product[row][column] = (0..states).map(|k| left[row][k] * right[k][column]).sum();
        }
    }
    product
}

fn moved(transition: &Matrix, state: &[f64; MOST], states: usize) -> [f64; MOST] {
    let mut moved = [0.0; MOST];
    for (to, row) in moved.iter_mut().zip(transition).take(states) {
        *to = row.iter().zip(state).map(|(weight, from)| weight * from).sum();
    }
    moved
}

/// The largest modulus of the eigenvalues of the companion matrix of these coefficients, from the growth of its powers.
fn spectral_radius(coefficients: &[f64]) -> f64 {
    const DOUBLINGS: i32 = 14;
    let states = coefficients.len();
    if states == 0 {
        return 0.0;
    }
    let mut power = [[0.0; MOST]; MOST];
    for (row, coefficient) in power.iter_mut().zip(coefficients) {
        row[0] = *coefficient;
    }
    for (index, row) in power.iter_mut().enumerate().take(states - 1) {
        row[index + 1] = 1.0;
    }
    let mut log_size = 0.0;
    for _ in 0..DOUBLINGS {
        let size = power.iter().flatten().fold(0.0_f64, |most, entry| most.max(entry.abs()));
        if size == 0.0 {
            return 0.0;
        }
        for entry in power.iter_mut().flatten() {
            *entry /= size;
        }
        log_size = 2.0 * (log_size + libm::log(size));
        power = product(&power, &power, states);
    }
    let size = power.iter().flatten().fold(0.0_f64, |most, entry| most.max(entry.abs()));
    libm::exp((log_size + libm::log(size.max(1e-300))) / f64::from(1 << DOUBLINGS))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(found: f64, expected: f64) {
        assert!((found - expected).abs() < 1e-9 * (1.0 + expected.abs()), "{found}, not {expected}");
    }

    #[test]
    fn first_order_autoregression_has_its_closed_form() {
        let (phi, values) = (0.6, [1.0, 2.0, -0.5, 0.3]);
        let coefficients = Coefficients { ar: vec![phi], ma: vec![] };
        let found = coefficients.filter(&values, false, 1e-300);
        let mut squares = values[0] * values[0] * (1.0 - phi * phi);
        for pair in values.windows(2) {
            squares += (pair[1] - phi * pair[0]).powi(2);
        }
        let count = values.len() as f64;
        let variance = squares / count;
        let expected =
            -0.5 * (count * (std::f64::consts::TAU * variance).ln() + count - (1.0_f64 - phi * phi).ln());
        near(found.log_likelihood, expected);
        near(found.next, phi * 0.3);
    }

    #[test]
    fn a_mean_is_the_average_of_noise() {
        let found = Coefficients::default().filter(&[3.0, 5.0, 10.0], true, 1e-300);
        near(found.next, 6.0);
    }

    #[test]
    fn first_order_moving_average_has_its_covariance() {
        // Two values of an MA(1) with theta: variance 1 + theta^2, covariance theta.
        let theta: f64 = 0.5;
        let coefficients = Coefficients { ar: vec![], ma: vec![theta] };
        let (x, y) = (1.2, -0.7);
        let (own, shared) = (1.0 + theta * theta, theta);
        let determinant = own * own - shared * shared;
        let quadratic = (own * x * x - 2.0 * shared * x * y + own * y * y) / determinant;
        let variance = quadratic / 2.0;
        let expected = -0.5 * (2.0 * (std::f64::consts::TAU * variance).ln() + 2.0 + determinant.ln());
        near(coefficients.filter(&[x, y], false, 1e-300).log_likelihood, expected);
    }

    #[test]
    fn roots_are_found() {
        near(Coefficients { ar: vec![0.5], ma: vec![-0.9] }.largest_inverse_root(), 0.9);
        let radius = Coefficients { ar: vec![1.1, -0.3], ma: vec![] }.largest_inverse_root();
        assert!((radius - 0.6).abs() < 1e-3, "{radius}");
    }
}
