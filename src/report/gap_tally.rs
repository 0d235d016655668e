//! The gaps of passes that are not kept.
//!
//! A run of hundreds of millions of passes cannot keep the end of each. Beyond [`PASSES_KEPT`] the gaps are counted in a histogram
//! whose buckets are narrow: sums, extremes and counts stay exact, percentiles are off by at most one part in
//! 2^16, the deviation of rates by rounding.

use super::distribution::{Distribution, Moments, PERCENTILES, nearest_rank};
use super::gap_buckets::{bucket, bucket_count, bucket_span, real};
use super::gaps::{PooledGaps, for_each_run, rate};
use super::record::PassTimeline;
use crate::simulation::{SimDuration, SimTime};

/// Passes that all ranks together may keep: about 50 MB.
pub const PASSES_KEPT: usize = 4 << 20;
/// Buckets per doubling of the gap, as a power of two.
const OCTAVE_BITS: u32 = 16;

/// What is to be known of figures that do not rest on every pass.
pub const REMARK: &str = "there were too many passes to keep: percentiles of itl_ms and output_token_throughput_per_user come from a \
                          histogram and are off by at most one part in 65,536";

/// A histogram of gaps with their exact sums.
#[derive(Clone, Debug, PartialEq)]
pub struct GapTally {
    moments: Moments,
    rates: Rates,
    /// Rates are summed as differences from the first: of like sizes, little is lost.
    origin: Option<f64>,
    differences: f64,
    squares: f64,
    buckets: Vec<u64>,
}

/// Sums over the rates of the gaps that are not zero.
#[derive(Clone, Debug, PartialEq)]
struct Rates {
    count: u64,
    sum: f64,
    smallest_gap: u64,
}

impl Default for Rates {
    fn default() -> Self {
        Self { count: 0, sum: 0.0, smallest_gap: u64::MAX }
    }
}

impl Rates {
    #[inline]
    fn add(&mut self, gap: u64, weight: u64) {
        if gap > 0 {
            self.count += weight;
            self.sum += real(weight) * rate(gap);
            self.smallest_gap = self.smallest_gap.min(gap);
        }
    }
}

impl Default for GapTally {
    fn default() -> Self {
        Self {
            moments: Moments::default(),
            rates: Rates::default(),
            origin: None,
            differences: 0.0,
            squares: 0.0,
            buckets: vec![0; bucket_count::<OCTAVE_BITS>()],
        }
    }
}

impl GapTally {
    /// Counts a gap that `weight` > 0 requests saw.
    #[inline]
    fn add(&mut self, gap: SimDuration, weight: u64) {
        let gap = gap.as_ns();
        self.moments.add(gap, weight);
        self.rates.add(gap, weight);
        self.buckets[bucket::<OCTAVE_BITS>(gap)] += weight;
        if gap > 0 {
            let difference = rate(gap) - *self.origin.get_or_insert_with(|| rate(gap));
            self.differences += real(weight) * difference;
            self.squares += real(weight) * difference.powi(2);
        }
    }

    /// Counts the gaps between stamps, each seen by `weight` > 0 requests.
    pub(crate) fn add_run(&mut self, stamps: &[SimTime], weight: u64) {
        stamps.windows(2).for_each(|pair| self.add(pair[1] - pair[0], weight));
    }

    /// Statistics of the gaps counted here and those of `timelines`.
    pub(super) fn pooled(&self, timelines: &[PassTimeline]) -> PooledGaps {
        let mut all = self.clone();
        for timeline in timelines {
            for_each_run(timeline, &timeline.gap_runs(), |stamps, weight| all.add_run(stamps, weight));
        }
        all.statistics()
    }

    fn statistics(&self) -> PooledGaps {
        let Self { moments, rates, .. } = self;
        let itl_ms = moments
            .distribution_ms(|| self.percentiles(|percentile| nearest_rank(moments.count, percentile)));
        if rates.count == 0 {
            return PooledGaps { itl_ms, throughput_per_user: Distribution::default() };
        }
        let count = rates.count as f64;
        // The rates descend as the gaps ascend, and the zero gaps, which have none, come first.
        let mirrored =
            self.percentiles(|percentile| moments.count - 1 - nearest_rank(rates.count, percentile));
        let throughput_per_user = Distribution::new(
            rates.count,
            rates.sum / count,
            rate(moments.max),
            rate(rates.smallest_gap),
            mirrored.map(rate),
            (self.squares / count - (self.differences / count).powi(2)).max(0.0).sqrt(),
        );
        PooledGaps { itl_ms, throughput_per_user }
    }

    /// The gaps, in ascending order, at the rank of each percentile: the middle of the bucket that holds it.
    fn percentiles(&self, rank: impl Fn(u64) -> u64) -> [u64; PERCENTILES.len()] {
        PERCENTILES.map(|percentile| {
            let mut below = rank(percentile);
            let holds = self.buckets.iter().position(|&count| {
                let holds = below < count;
                below -= if holds { 0 } else { count };
                holds
            });
            let (low, bits) = bucket_span::<OCTAVE_BITS>(holds.expect("a rank lies below the count"));
            (low + ((1 << bits) >> 1)).clamp(self.moments.min, self.moments.max)
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Requests with a token in each pass from one to another, in the order in which they end.
    fn timeline(lengths: &[u64], runs: &[(u32, u32)], fold_at: Option<&[u32]>) -> (PassTimeline, GapTally) {
        let (mut timeline, mut tally) = (PassTimeline::default(), GapTally::default());
        let mut now = 0;
        for (pass, length) in lengths.iter().enumerate() {
            now += length;
            let pass = pass as u32;
            timeline.ends.push(SimTime::from_ns(now));
            for &(first, last) in runs.iter().filter(|(_, last)| *last == pass) {
                timeline.add_gaps(first, last);
            }
            if fold_at.is_some_and(|passes| passes.contains(&pass)) {
                let going_on = runs.iter().filter(|(first, last)| *last > pass && *first <= pass);
                let oldest = going_on.map(|(first, _)| *first).min().unwrap_or(pass);
                timeline.fold(oldest.max(timeline.folded), &mut tally);
            }
        }
        (timeline, tally)
    }

    prop_compose! {
        fn passes()(lengths in prop::collection::vec(1_u64..50_000_000, 2..80))(
            runs in prop::collection::vec((0..lengths.len() as u32, 0..lengths.len() as u32), 1..20),
            folds in prop::collection::vec(0..lengths.len() as u32, 1..8),
            lengths in Just(lengths),
        ) -> (Vec<u64>, Vec<(u32, u32)>, Vec<u32>) {
            let runs = runs.into_iter().map(|(one, other)| (one.min(other), one.max(other))).collect();
            (lengths, runs, folds)
        }
    }

    proptest! {
        #[test]
        fn folding_loses_next_to_nothing((lengths, runs, folds) in passes()) {
            let (kept, _) = timeline(&lengths, &runs, None);
            let exact = PooledGaps::new(&[kept]);
            let (rest, tally) = timeline(&lengths, &runs, Some(&folds));
            prop_assert!(rest.ends.len() <= lengths.len());
            let folded = tally.pooled(&[rest]);
            for (exact, folded) in
                [(exact.itl_ms, folded.itl_ms), (exact.throughput_per_user, folded.throughput_per_user)]
            {
                prop_assert_eq!(exact.count, folded.count);
                for ((name, wanted), (_, figure)) in exact.named().into_iter().zip(folded.named()) {
                    let (Some(wanted), Some(figure)) = (wanted, figure) else {
                        prop_assert_eq!(wanted, figure);
                        continue;
                    };
                    let scale = exact.statistics.map_or(0.0, |statistics| statistics.max);
                    let tolerance = match name {
                        "mean" | "min" | "max" => 1e-12 * wanted,
                        "std" => 1e-6 * scale,
                        _ => wanted / f64::from(1 << OCTAVE_BITS),
                    };
                    prop_assert!((wanted - figure).abs() <= tolerance, "{name}: {figure} for {wanted}");
                }
            }
        }
    }
}
