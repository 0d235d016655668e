//! Mean, spread and percentiles of a population.
//!
//! Times are whole nanoseconds and are summed as such, so a mean depends neither on the order of its samples nor on
//! how many there are. The standard deviation is that of the population (divided by n, not n - 1).

use std::cmp::Ordering;

/// The percentiles that every distribution reports, ascending.
pub(crate) const PERCENTILES: [u64; 5] = [50, 75, 90, 95, 99];

/// Nanoseconds in a millisecond.
pub(crate) const NS_PER_MS: f64 = 1e6;

/// The statistics of a population, if it has members.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Distribution {
    /// Size of the population.
    pub count: u64,
    /// `None` for an empty population: nothing is not zero.
    pub statistics: Option<Statistics>,
}

/// The statistics of a population with at least one member, in the unit of the figure they describe.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Statistics {
    /// Arithmetic mean.
    pub mean: f64,
    /// Smallest member.
    pub min: f64,
    /// Largest member.
    pub max: f64,
    /// 50th percentile, by nearest rank like all others: always a member of the population.
    pub median: f64,
    /// 75th percentile.
    pub p75: f64,
    /// 90th percentile.
    pub p90: f64,
    /// 95th percentile.
    pub p95: f64,
    /// 99th percentile.
    pub p99: f64,
    /// Standard deviation of the population; NaN where the squares exceed 128 bits (ten million samples that differ
    /// by months).
    pub std: f64,
}

/// Takes one statistic.
type Statistic = fn(&Statistics) -> f64;

/// The statistics, with the prefix under which each is reported, in the order of the report.
const STATISTICS: [(&str, Statistic); 9] = [
    ("mean", |statistics| statistics.mean),
    ("min", |statistics| statistics.min),
    ("max", |statistics| statistics.max),
    ("median", |statistics| statistics.median),
    ("p75", |statistics| statistics.p75),
    ("p90", |statistics| statistics.p90),
    ("p95", |statistics| statistics.p95),
    ("p99", |statistics| statistics.p99),
    ("std", |statistics| statistics.std),
];

impl Distribution {
    /// Every statistic with the prefix under which it is reported, in the order of the report; `None` where there is
    /// no such number.
    pub fn named(&self) -> [(&'static str, Option<f64>); 9] {
        STATISTICS.map(|(prefix, of)| {
            (prefix, self.statistics.as_ref().map(of).filter(|statistic| statistic.is_finite()))
        })
    }

    /// The distribution, in milliseconds, of times in nanoseconds. The samples are reordered.
    pub fn of_times(samples_ns: &mut [u64]) -> Self {
        let mut moments = Moments::default();
        for &sample in &*samples_ns {
            moments.add(sample, 1);
        }
        moments.distribution_ms(|| select(samples_ns, u64::cmp))
    }

    /// The distribution of finite numbers, summed in the order given. The samples are reordered.
    pub fn of_values(samples: &mut [f64]) -> Self {
        if samples.is_empty() {
            return Self::default();
        }
        let count = samples.len() as f64;
        let mean = samples.iter().sum::<f64>() / count;
        let squares: f64 = samples.iter().map(|sample| (sample - mean).powi(2)).sum();
        let min = samples.iter().copied().fold(f64::INFINITY, f64::min);
        let max = samples.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let percentiles = select(samples, f64::total_cmp);
        Self::new(samples.len() as u64, mean, min, max, percentiles, (squares / count).sqrt())
    }

    /// The distribution of a population with members, from its statistics; `percentiles` as in [`PERCENTILES`].
    pub(crate) fn new(count: u64, mean: f64, min: f64, max: f64, percentiles: [f64; 5], std: f64) -> Self {
        let [median, p75, p90, p95, p99] = percentiles;
        Self { count, statistics: Some(Statistics { mean, min, max, median, p75, p90, p95, p99, std }) }
    }
}

/// Place of a percentile in a sorted population of `count` > 0: `(count - 1) * percentile / 100`, halves rounded up.
pub(crate) fn nearest_rank(count: u64, percentile: u64) -> u64 {
    let hundredths = u128::from(count - 1) * u128::from(percentile);
    ((hundredths + 50) / 100) as u64
}

/// The members at the ranks of [`PERCENTILES`]; the samples, at least one, are reordered.
fn select<T: Copy>(samples: &mut [T], order: impl Fn(&T, &T) -> Ordering) -> [T; 5] {
    let count = samples.len() as u64;
    let mut settled = 0;
    PERCENTILES.map(|percentile| {
        let rank = nearest_rank(count, percentile) as usize;
        // Ranks ascend and everything from the previous one on is not smaller than it.
        let (_, member, _) = samples[settled..].select_nth_unstable_by(rank - settled, &order);
        settled = rank;
        *member
    })
}

/// Exact sums over whole numbers, each counted `weight` times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Moments {
    /// Members.
    pub(crate) count: u64,
    /// Smallest member.
    pub(crate) min: u64,
    /// Largest member.
    pub(crate) max: u64,
    sum: u128,
    /// Sum of squares modulo 2^128.
    squares: u128,
}

impl Default for Moments {
    fn default() -> Self {
        Self { count: 0, min: u64::MAX, max: 0, sum: 0, squares: 0 }
    }
}

impl Moments {
    /// Counts `value` `weight` > 0 times.
    #[inline]
    pub(crate) fn add(&mut self, value: u64, weight: u64) {
        let product = u128::from(value) * u128::from(weight);
        self.count += weight;
        self.sum += product;
        self.squares = self.squares.wrapping_add(product.wrapping_mul(u128::from(value)));
        self.min = self.min.min(value);
        self.max = self.max.max(value);
    }

    /// Counts `values`, whose sum is below 2^64, `weight` > 0 times each, and calls `also` with each.
    #[inline]
    pub(crate) fn add_all(
        &mut self,
        values: impl Iterator<Item = u64>,
        weight: u64,
        mut also: impl FnMut(u64),
    ) {
        // What a loop adds up stays in registers; weights are multiplied behind it.
        let Self { mut min, mut max, .. } = *self;
        let (mut count, mut sum, mut squares) = (0, 0, 0_u128);
        values.for_each(|value| {
            count += 1;
            sum += value;
            squares = squares.wrapping_add(u128::from(value) * u128::from(value));
            min = min.min(value);
            max = max.max(value);
            also(value);
        });
        let weighted = u128::from(weight);
        *self = Self {
            count: self.count + count * weight,
            min,
            max,
            sum: self.sum + u128::from(sum) * weighted,
            squares: self.squares.wrapping_add(squares.wrapping_mul(weighted)),
        };
    }

    /// The distribution in milliseconds of members that are nanoseconds; `percentiles` is asked only of a population
    /// that has members.
    pub(crate) fn distribution_ms(&self, percentiles: impl FnOnce() -> [u64; 5]) -> Distribution {
        if self.count == 0 {
            return Distribution::default();
        }
        let ms = |ns: u64| ns as f64 / NS_PER_MS;
        let mean = self.sum as f64 / (self.count as f64 * NS_PER_MS);
        let percentiles = percentiles().map(ms);
        let std = self.variance().sqrt() / NS_PER_MS;
        Distribution::new(self.count, mean, ms(self.min), ms(self.max), percentiles, std)
    }

    /// Variance of a population that has members; NaN if it might exceed what 128 bits hold.
    fn variance(&self) -> f64 {
        let count = u128::from(self.count);
        let span = u128::from(self.max - self.min);
        if (span * span).checked_mul(count).is_none() {
            return f64::NAN;
        }
        let mean = self.sum / count;
        let rest = (self.sum % count) as f64;
        // The sum of (value - mean)^2 fits, so it is right even where its terms wrap.
        let spread = self
            .squares
            .wrapping_sub(mean.wrapping_mul(self.sum).wrapping_mul(2))
            .wrapping_add(count.wrapping_mul(mean).wrapping_mul(mean));
        ((spread as f64 - rest * rest / count as f64) / count as f64).max(0.0)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// By definition: sort everything, round the fractional rank, sum as written.
    fn naive(mut samples: Vec<f64>) -> Distribution {
        if samples.is_empty() {
            return Distribution::default();
        }
        samples.sort_by(f64::total_cmp);
        let count = samples.len() as f64;
        let at = |percentile: f64| samples[((count - 1.0) * percentile / 100.0).round() as usize];
        let mean = samples.iter().sum::<f64>() / count;
        let variance = samples.iter().map(|sample| (sample - mean) * (sample - mean)).sum::<f64>() / count;
        let percentiles = [at(50.0), at(75.0), at(90.0), at(95.0), at(99.0)];
        let (min, max) = (samples[0], samples[samples.len() - 1]);
        Distribution::new(samples.len() as u64, mean, min, max, percentiles, variance.sqrt())
    }

    fn assert_close(actual: Distribution, expected: Distribution, scale: f64) {
        assert_eq!(actual.count, expected.count);
        for ((name, figure), (_, wanted)) in actual.named().into_iter().zip(expected.named()) {
            let (Some(figure), Some(wanted)) = (figure, wanted) else {
                return assert_eq!(figure, wanted);
            };
            let tolerance = 1e-9 * wanted.abs() + 1e-12 * scale;
            assert!((figure - wanted).abs() <= tolerance, "{name}: {figure} is not {wanted}");
        }
    }

    fn times_ms(samples_ms: &[u64]) -> Statistics {
        let mut samples: Vec<u64> = samples_ms.iter().map(|ms| ms * 1_000_000).collect();
        Distribution::of_times(&mut samples).statistics.unwrap()
    }

    #[test]
    fn four_and_five_samples() {
        let four = times_ms(&[40, 10, 30, 20]);
        assert_eq!((four.median, four.p75, four.p90, four.mean), (30.0, 30.0, 40.0, 25.0));
        assert!((four.std - 125_f64.sqrt()).abs() < 1e-12);
        let five = times_ms(&[10, 20, 50, 40, 30]);
        assert_eq!((five.median, five.p75, five.p90, five.mean), (30.0, 40.0, 50.0, 30.0));
        assert!((five.std - 200_f64.sqrt()).abs() < 1e-12);
    }

    #[test]
    fn nothing_has_no_statistics() {
        assert_eq!(Distribution::of_times(&mut []), Distribution { count: 0, statistics: None });
        assert_eq!(Distribution::of_values(&mut []), Distribution { count: 0, statistics: None });
    }

    #[test]
    fn equal_samples_do_not_vary() {
        for value in [0, 1, 3_333_333, u64::MAX] {
            let statistics = Distribution::of_times(&mut [value; 7]).statistics.unwrap();
            assert_eq!(statistics.std, 0.0);
            assert_eq!(statistics.mean, statistics.min);
        }
    }

    #[test]
    fn late_times_keep_their_small_differences() {
        // Years into a run the squares take more than 128 bits although the spread is a nanosecond.
        let mut samples = [u64::MAX, u64::MAX - 2].repeat(1000);
        let statistics = Distribution::of_times(&mut samples).statistics.unwrap();
        assert_eq!(statistics.std, 1e-6);
    }

    #[test]
    fn a_spread_beyond_128_bits_is_no_number() {
        assert!(Distribution::of_times(&mut [0, u64::MAX]).statistics.unwrap().std.is_nan());
    }

    #[test]
    fn ranks_round_halves_up() {
        assert_eq!(nearest_rank(4, 50), 2);
        assert_eq!(nearest_rank(2, 50), 1);
        assert_eq!(nearest_rank(1, 99), 0);
        assert_eq!(nearest_rank(11, 95), 10);
        assert_eq!(nearest_rank(u64::MAX, 99), 18_262_276_632_972_456_098);
    }

    proptest! {
        #[test]
        fn times_agree_with_the_definition(samples in prop::collection::vec(0_u64..1 << 42, 0..200)) {
            let expected = naive(samples.iter().map(|&ns| ns as f64 / NS_PER_MS).collect());
            assert_close(Distribution::of_times(&mut samples.clone()), expected, 4e6);
        }

        #[test]
        fn values_agree_with_the_definition(samples in prop::collection::vec(0.0_f64..1e6, 0..200)) {
            assert_close(Distribution::of_values(&mut samples.clone()), naive(samples.clone()), 1e6);
        }
    }
}
