//! A Gaussian process: what the observations say about every other point, and how certain that is.

use nalgebra::{Cholesky, DMatrix, DVector, Dyn};

use super::forest::{Forest, Opinion};
use super::kernel::{Kernel, matern};
use super::minimise::minimise;
use crate::search::sampler::encoding::{Axis, Features};

/// Added to the noise, as a share of the variance, so that the covariance of near points can be factored.
const JITTER: f64 = 1e-8;
/// Strength of the prior on the variances.
const WEAK: f64 = 0.01;
/// Strength of the prior on the lengths: there are about as many as first observations.
const STRONG: f64 = 0.1;
/// Steps of a fit, and the number of observations from which on there are fewer.
const STEPS: usize = 30;
const MANY: f64 = 120.0;
const FEWEST_STEPS: usize = 4;

/// A parameter of the kernel: where its logarithm may lie, and where it most likely does.
#[derive(Clone, Copy)]
struct Prior {
    least: f64,
    most: f64,
    likely: f64,
    strength: f64,
}

const VARIANCE: Prior = Prior { least: 1e-3, most: 10.0, likely: 0.039, strength: WEAK };
const SQUARED_LENGTH: Prior = Prior { least: 1e-2, most: 1e2, likely: 0.5, strength: STRONG };
const NOISE: Prior = Prior { least: 1e-10, most: 1.0, likely: 0.0039, strength: WEAK };

impl Prior {
    /// The logarithm of a parameter, from a number without bounds; and the derivative.
    fn logarithm(&self, free: f64) -> (f64, f64) {
        let (low, high) = (libm::log(self.least), libm::log(self.most));
        let share = 1.0 / (1.0 + libm::exp(-free));
        (low + (high - low) * share, (high - low) * share * (1.0 - share))
    }

    /// How unlikely a logarithm is; and the derivative.
    fn penalty(&self, logarithm: f64) -> (f64, f64) {
        let off = logarithm - libm::log(self.likely);
        (self.strength * off * off, 2.0 * self.strength * off)
    }
}

/// Observations, ready to be asked how well a kernel explains them.
pub(super) struct Evidence {
    axes: Vec<Axis>,
    points: Vec<Features>,
    labels: DVector<f64>,
    /// For each axis, the squared distances of the pairs of points: the second with the first, the third with the first and
    /// the second, and so on.
    squared_distances: Vec<Vec<f64>>,
    /// Where the square of each length most likely is.
    lengths: Prior,
}

impl Evidence {
    pub(super) fn new(axes: &[Axis], points: &[Features], labels: Vec<f64>) -> Self {
        let distances = |(place, axis): (usize, &Axis)| {
            pairs(points.len())
                .map(|(left, right)| axis.squared_distance(points[left][place], points[right][place]))
                .collect()
        };
        let squared_distances = axes.iter().enumerate().map(distances).collect();
        Self {
            axes: axes.to_vec(),
            points: points.to_vec(),
            labels: DVector::from_vec(labels),
            squared_distances,
            lengths: SQUARED_LENGTH,
        }
    }

    /// The same with little said about the lengths beforehand: with several objectives, more points come before the first fit.
    pub(super) fn with_weak_prior(self) -> Self {
        Self { lengths: Prior { strength: WEAK, ..SQUARED_LENGTH }, ..self }
    }

    fn priors(&self) -> impl Iterator<Item = &Prior> {
        let lengths = std::iter::repeat_n(&self.lengths, self.axes.len());
        std::iter::once(&VARIANCE).chain(lengths).chain(std::iter::once(&NOISE))
    }

    fn kernel(&self, free: &[f64]) -> Kernel {
        let parameters: Vec<f64> =
            self.priors().zip(free).map(|(prior, free)| libm::exp(prior.logarithm(*free).0)).collect();
        let (last, lengths) = (parameters.len() - 1, 1..parameters.len() - 1);
        Kernel {
            variance: parameters[0],
            inverse_squared_lengths: parameters[lengths].iter().map(|squared| 1.0 / squared).collect(),
            noise: parameters[last],
        }
    }

    fn factor(&self, kernel: &Kernel, squared: &[f64]) -> Option<Cholesky<f64, Dyn>> {
        let count = self.points.len();
        let diagonal = kernel.variance * (1.0 + JITTER) + kernel.noise;
        let mut covariance = DMatrix::from_diagonal_element(count, count, diagonal);
        let mut squared = squared.iter();
        for left in 1..count {
            for (right, squared) in (0..left).zip(&mut squared) {
                covariance[(left, right)] = kernel.variance * matern(*squared).0;
            }
        }
        Cholesky::new(covariance)
    }

    fn scaled_distances(&self, kernel: &Kernel) -> Vec<f64> {
        let count = self.points.len();
        let mut squared = vec![0.0; count * count.saturating_sub(1) / 2];
        for (distances, inverse) in self.squared_distances.iter().zip(&kernel.inverse_squared_lengths) {
            for (squared, distance) in squared.iter_mut().zip(distances) {
                *squared += distance * inverse;
            }
        }
        squared
    }

    /// How badly the kernel with these parameters explains the labels: the negative logarithm of their likelihood, constants
    /// left out, and the penalty of the priors; with the slope by each parameter.
    fn loss(&self, free: &[f64]) -> Option<(f64, Vec<f64>)> {
        let kernel = self.kernel(free);
        let squared = self.scaled_distances(&kernel);
        let factor = self.factor(&kernel, &squared)?;
        let weights = factor.solve(&self.labels);
        let diagonal = factor.l_dirty().diagonal();
        let log_determinant: f64 = diagonal.iter().map(|root| libm::log(*root)).sum();
        let mut loss = 0.5 * self.labels.dot(&weights) + log_determinant;

        // Half the trace of (inverse - weights weights') times the derivative of the covariance.
        let inverse = factor.inverse();
        let count = self.points.len();
        let (inverse, weights) = (inverse.as_slice(), weights.as_slice());
        let mut slopes = vec![0.0; free.len()];
        let mut by_squared = Vec::with_capacity(squared.len());
        let mut on_diagonal = 0.0;
        for (place, weight) in weights.iter().enumerate() {
            let row = &inverse[place * count..=place * count + place];
            on_diagonal += row[place] - weight * weight;
            let known = by_squared.len();
            for ((inverse, other), squared) in row.iter().zip(&weights[..place]).zip(&squared[known..]) {
                let (correlation, slope) = matern(*squared);
                let excess = (inverse - weight * other) * kernel.variance;
                slopes[0] += excess * correlation;
                by_squared.push(excess * slope);
            }
        }
        slopes[0] += 0.5 * kernel.variance * (1.0 + JITTER) * on_diagonal;
        for (place, distances) in self.squared_distances.iter().enumerate() {
            let sum: f64 = by_squared.iter().zip(distances).map(|(slope, distance)| slope * distance).sum();
            slopes[place + 1] = -sum * kernel.inverse_squared_lengths[place];
        }
        *slopes.last_mut()? = 0.5 * kernel.noise * on_diagonal;

        for ((prior, free), slope) in self.priors().zip(free).zip(&mut slopes) {
            let (logarithm, by_free) = prior.logarithm(*free);
            let (penalty, by_logarithm) = prior.penalty(logarithm);
            loss += penalty;
            *slope = (*slope + by_logarithm) * by_free;
        }
        loss.is_finite().then_some((loss, slopes))
    }

    /// The process with the most likely kernel, and where its parameters lie. The search for them begins at `start`, or in the
    /// middle of all.
    pub(super) fn fit(self, start: Option<&[f64]>) -> Option<(Process, Vec<f64>)> {
        let effort = MANY / self.points.len() as f64;
        let steps = (STEPS as f64 * effort * effort * effort) as usize;
        let middle = vec![0.0; self.axes.len() + 2];
        let loss = |free: &[f64]| self.loss(free);
        let (free, _) = minimise(loss, start.unwrap_or(&middle), steps.clamp(FEWEST_STEPS, STEPS))?;
        let kernel = self.kernel(&free);
        Some((self.explained_by(kernel)?, free))
    }

    /// The process with this kernel.
    pub(super) fn explained_by(self, kernel: Kernel) -> Option<Process> {
        let factor = self.factor(&kernel, &self.scaled_distances(&kernel))?;
        let weights = factor.solve(&self.labels);
        let factor = factor.unpack();
        Some(Process { axes: self.axes, points: self.points, kernel, factor, weights, forest: None })
    }
}

/// Every pair of places, the greater first.
fn pairs(count: usize) -> impl Iterator<Item = (usize, usize)> {
    (1..count).flat_map(|left| (0..left).map(move |right| (left, right)))
}

/// A Gaussian process that has seen observations.
pub(super) struct Process {
    axes: Vec<Axis>,
    points: Vec<Features>,
    pub(super) kernel: Kernel,
    /// The lower triangular root of the covariance of the observations.
    factor: DMatrix<f64>,
    weights: DVector<f64>,
    /// Another model of the same labels, and how much say it has, of 1.
    forest: Option<(Forest, f64)>,
}

impl Process {
    /// The same with a forest beside it. Each of the two has as much say as the other is off where it was not told.
    pub(super) fn with_forest(self, forest: Forest) -> Self {
        let (own, other) = (self.squared_error(), forest.squared_error);
        let say = if own + other > 0.0 { own / (own + other) } else { 0.5 };
        Self { forest: Some((forest, say)), ..self }
    }

    /// The mean square of what observations are off from what is expected of them without them (Rasmussen and Williams 2006,
    /// 5.4.2: each weight over its place on the diagonal of the inverse covariance).
    fn squared_error(&self) -> f64 {
        let count = self.points.len();
        let mut inverse = DMatrix::identity(count, count);
        self.factor.solve_lower_triangular_mut(&mut inverse);
        let off = |(column, weight): (usize, &f64)| weight / inverse.column(column).norm_squared();
        let squares: f64 = self.weights.iter().enumerate().map(off).map(|off| off * off).sum();
        squares / count.max(1) as f64
    }

    /// What the forest says of these points.
    fn second_opinion(&self, points: &[Features]) -> SecondOpinion {
        let Some((forest, say)) = &self.forest else { return SecondOpinion::default() };
        SecondOpinion { of_points: points.iter().map(|at| forest.opinion(at)).collect(), say: *say }
    }

    /// What it believes of these points.
    pub(super) fn beliefs(&self, points: &[Features]) -> Beliefs {
        let covariance = |row: usize, column: usize| {
            self.kernel.covariance(&self.axes, &self.points[row], &points[column])
        };
        let mut covariances = DMatrix::from_fn(self.points.len(), points.len(), covariance);
        let means = covariances.tr_mul(&self.weights).iter().copied().collect();
        self.factor.solve_lower_triangular_mut(&mut covariances);
        let halves: Vec<Vec<f64>> =
            covariances.column_iter().map(|column| column.iter().copied().collect()).collect();
        let variances: Vec<f64> = halves
            .iter()
            .map(|half| (self.kernel.variance - half.iter().map(|part| part * part).sum::<f64>()).max(0.0))
            .collect();
        let second = self.second_opinion(points);
        Beliefs { means, pending_variances: variances.clone(), variances, halves, second }
    }
}

/// What a forest says of the same points.
#[derive(Clone, Default)]
pub(super) struct SecondOpinion {
    /// None where there is no forest.
    pub(super) of_points: Vec<Opinion>,
    /// How much it counts, of 1.
    pub(super) say: f64,
}

/// What a process believes of some points.
pub(super) struct Beliefs {
    /// Expected labels.
    pub(super) means: Vec<f64>,
    /// Variances, given the observations.
    pub(super) variances: Vec<f64>,
    /// Variances, given also that the points that were chosen will be observed.
    pub(super) pending_variances: Vec<f64>,
    /// For each point, its covariances with the observations, solved by the factor.
    halves: Vec<Vec<f64>>,
    pub(super) second: SecondOpinion,
}

impl Beliefs {
    #[cfg(test)]
    pub(super) fn made_up(means: &[f64], variances: &[f64], pending_variances: &[f64]) -> Self {
        Self {
            means: means.to_vec(),
            variances: variances.to_vec(),
            pending_variances: pending_variances.to_vec(),
            halves: Vec::new(),
            second: SecondOpinion::default(),
        }
    }

    /// Adds what is believed of more points; nothing may have been chosen yet.
    pub(super) fn append(&mut self, mut more: Self) {
        self.means.append(&mut more.means);
        self.variances.append(&mut more.variances);
        self.pending_variances.append(&mut more.pending_variances);
        self.halves.append(&mut more.halves);
        self.second.of_points.append(&mut more.second.of_points);
    }

    /// Takes into account that the point at `chosen` will be observed, with whatever result: one more row of the factor.
    pub(super) fn choose(&mut self, chosen: usize, process: &Process, points: &[Features]) {
        let kernel = &process.kernel;
        let root = libm::sqrt(self.pending_variances[chosen] + kernel.noise + JITTER * kernel.variance);
        let of_chosen = self.halves[chosen].clone();
        for (place, half) in self.halves.iter_mut().enumerate() {
            let covariance = kernel.covariance(&process.axes, &points[place], &points[chosen]);
            let explained: f64 = half.iter().zip(&of_chosen).map(|(left, right)| left * right).sum();
            let next = (covariance - explained) / root;
            half.push(next);
            self.pending_variances[place] = (self.pending_variances[place] - next * next).max(0.0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Three observations of a function of a size and a name.
    fn evidence() -> Evidence {
        let points: Vec<Features> = [[0.0, 0.0], [0.5, 1.0], [1.0, 0.0]].map(Into::into).to_vec();
        Evidence::new(&[Axis::Ordered, Axis::Named], &points, vec![0.3, -0.2, 0.1])
    }

    fn kernel() -> Kernel {
        Kernel { variance: 0.2, inverse_squared_lengths: vec![2.0, 0.5], noise: 0.01 }
    }

    /// The parameters of that kernel, free of bounds.
    const FREE: [f64; 4] = [
        0.303_334_659_253_013_45,
        -0.303_334_659_253_014_3,
        0.303_334_659_253_013_45,
        1.386_294_361_119_890_8,
    ];

    fn assert_near(found: f64, expected: f64) {
        assert!((found - expected).abs() < 1e-10, "{found} is not {expected}");
    }

    // The expected values come from textbook formulas with Gaussian elimination, in another language.

    #[test]
    fn what_is_believed_of_other_points() {
        let process = evidence().explained_by(kernel()).unwrap();
        let points: Vec<Features> = [[0.25, 0.0], [0.75, 1.0]].map(Into::into).to_vec();
        let mut beliefs = process.beliefs(&points);
        assert_near(beliefs.means[0], 0.198_387_125_836_227_7);
        assert_near(beliefs.means[1], -0.165_451_901_523_111_9);
        assert_near(beliefs.variances[0], 0.029_574_416_615_068_6);
        assert_near(beliefs.variances[1], 0.031_547_532_281_322_98);
        beliefs.choose(1, &process, &points);
        assert_near(beliefs.pending_variances[0], 0.029_341_694_777_778_038);
        assert_near(beliefs.pending_variances[1], 0.007_593_119_335_847_387);
        assert_near(beliefs.variances[1], 0.031_547_532_281_322_98);
    }

    #[test]
    fn whoever_foretells_better_has_more_say() {
        let process = evidence().explained_by(kernel()).unwrap();
        let squares: f64 = (0..3)
            .map(|left_out| {
                let mut points = process.points.clone();
                let mut labels = vec![0.3, -0.2, 0.1];
                let (point, label) = (points.remove(left_out), labels.remove(left_out));
                let without = Evidence::new(&process.axes, &points, labels).explained_by(kernel()).unwrap();
                let off = without.beliefs(&[point]).means[0] - label;
                off * off
            })
            .sum();
        assert_near(process.squared_error(), squares / 3.0);
        let error = process.squared_error();
        let say = |forest_error: f64| {
            let process = evidence().explained_by(kernel()).unwrap();
            process.with_forest(Forest::made_up(forest_error)).second_opinion(&[]).say
        };
        assert_near(say(error), 0.5);
        assert_near(say(3.0 * error), 0.25);
        assert_near(say(0.0), 1.0);
        assert!(process.second_opinion(&process.points).of_points.is_empty());
    }

    #[test]
    fn how_well_a_kernel_explains_the_labels() {
        assert_near(evidence().loss(&FREE).unwrap().0, -1.706_328_974_339_203);
        assert_near(evidence().with_weak_prior().loss(&FREE).unwrap().0, -1.879_292_059_349_755_3);
        let found = evidence().kernel(&FREE);
        assert_near(found.variance, 0.2);
        assert_near(found.inverse_squared_lengths[0], 2.0);
        assert_near(found.noise, 0.01);
    }

    #[test]
    fn the_slope_of_the_loss_is_its_slope() {
        for start in [FREE, [0.0; 4], [-1.0, 2.0, 0.5, -1.0]] {
            let (_, slopes) = evidence().loss(&start).unwrap();
            for (place, slope) in slopes.iter().enumerate() {
                let loss_at = |step: f64| {
                    let mut moved = start;
                    moved[place] += step;
                    evidence().loss(&moved).unwrap().0
                };
                let difference = (loss_at(1e-5) - loss_at(-1e-5)) / 2e-5;
                assert!((difference - slope).abs() < 1e-7, "{place}: {difference} is not {slope}");
            }
        }
    }

    #[test]
    fn a_fit_learns_which_axis_matters() {
        let points: Vec<Features> =
            (0..25).map(|place| [f64::from(place % 5) / 4.0, f64::from(place / 5) / 4.0].into()).collect();
        let labels = points.iter().map(|at| at[0] * at[0] - 0.4).collect();
        let (process, _) = Evidence::new(&[Axis::Ordered; 2], &points, labels).fit(None).unwrap();
        let [matters, does_not] = process.kernel.inverse_squared_lengths[..] else { panic!() };
        assert!(matters > 10.0 * does_not, "{:?}", process.kernel);
        let between: Vec<Features> = vec![[0.6, 0.6].into()];
        let mean = process.beliefs(&between).means[0];
        assert!((mean + 0.04).abs() < 0.03, "{mean} by {:?}", process.kernel);
    }
}
