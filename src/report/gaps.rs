//! The gaps between neighbouring tokens, pooled over all completed requests.
//!
//! A gap is shared by every request in the batch, so the population is the passes' durations, each counted as often
//! as there are requests that saw it. It has millions of members and is never written down: one sweep over the
//! timelines gives the sums and a histogram whose buckets grow with the value; further sweeps split only the buckets
//! that hold a wanted rank until a bucket is one nanosecond wide. So the percentiles are exact.

use super::distribution::{Distribution, Moments, PERCENTILES, nearest_rank};
use super::gap_buckets::{bucket, bucket_count, bucket_of_real, bucket_span, real};
use super::record::{GapRun, PassTimeline};
use crate::simulation::SimTime;

/// Buckets per doubling of the gap, as a power of two.
const OCTAVE_BITS: u32 = 12;
/// Parts into which a sweep splits a bucket, as a power of two: one sweep settles gaps below half a second.
const SPLIT_BITS: u32 = 16;
/// Number of buckets.
const BUCKETS: usize = bucket_count::<OCTAVE_BITS>();

/// 1000 / gap in milliseconds is this over the gap in nanoseconds.
const NS_PER_S: f64 = 1e9;

/// Statistics of the pooled gaps.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct PooledGaps {
    /// The gaps in milliseconds.
    pub(crate) itl_ms: Distribution,
    /// Tokens per second that a user sees, 1000 / gap in milliseconds, over the gaps that are not zero.
    pub(crate) throughput_per_user: Distribution,
}

impl PooledGaps {
    /// Pools the gaps of all `timelines`, which hold every pass.
    pub(crate) fn new(timelines: &[PassTimeline]) -> Self {
        let all = Gaps::of(timelines);
        let mut tally = Tally::default();
        all.for_each_run(|stamps, weight| tally.add(stamps, weight));
        let Tally { mut moments, rates, zero_gaps, mut buckets } = tally;
        let Moments { count: with_rate, min: smallest_gap, .. } = moments;
        if zero_gaps > 0 {
            moments.add(0, zero_gaps);
            buckets[bucket::<OCTAVE_BITS>(0)] += zero_gaps;
        }
        if moments.count == 0 {
            return Self::default();
        }

        let first = bucket::<OCTAVE_BITS>(moments.min);
        let mut selection = Selection::new(&buckets, first, &ranks(moments.count, with_rate));
        let mean = rates / with_rate as f64;
        let mut squares = 0.0;
        all.for_each_run(|stamps, weight| squares = add_squares(squares, stamps, weight, mean));
        while !selection.pending.is_empty() {
            selection.sweep(&all);
        }

        let [gaps, mirrored] = selection.found;
        let itl_ms = moments.distribution_ms(|| gaps);
        if with_rate == 0 {
            return Self { itl_ms, throughput_per_user: Distribution::default() };
        }
        let throughput_per_user = Distribution::new(
            with_rate,
            mean,
            rate(moments.max),
            rate(smallest_gap),
            mirrored.map(rate),
            (squares / with_rate as f64).sqrt(),
        );
        Self { itl_ms, throughput_per_user }
    }
}

/// Tokens per second of a gap in nanoseconds.
#[inline]
pub(super) fn rate(gap: u64) -> f64 {
    NS_PER_S / real(gap)
}

/// Sums over the gaps, and a histogram of them.
struct Tally {
    /// Of the gaps that are not zero.
    moments: Moments,
    /// Sum of the rates of these gaps.
    rates: f64,
    zero_gaps: u64,
    buckets: Vec<u64>,
}

impl Default for Tally {
    fn default() -> Self {
        Self { moments: Moments::default(), rates: 0.0, zero_gaps: 0, buckets: vec![0; BUCKETS] }
    }
}

// The three loops over gaps are functions of their own, never inlined: within a larger one their sums would not stay in registers.
impl Tally {
    /// Counts the gaps between stamps, each seen by `weight` > 0 requests.
    #[inline(never)]
    fn add(&mut self, stamps: &[SimTime], weight: u64) {
        let real_weight = real(weight);
        let (mut rates, mut zero_gaps) = (self.rates, 0);
        let buckets = self.buckets.as_mut_slice();
        let with_rate = gaps(stamps).filter(|gap| {
            zero_gaps += u64::from(*gap == 0);
            *gap > 0
        });
        self.moments.add_all(with_rate, weight, |gap| {
            let real_gap = real(gap);
            buckets[bucket_of_real::<OCTAVE_BITS>(gap, real_gap)] += weight;
            rates += real_weight * (NS_PER_S / real_gap);
        });
        self.rates = rates;
        self.zero_gaps += zero_gaps * weight;
    }
}

/// `sum` and, one after the other, the squared distances from `mean` of the rates of the gaps between stamps, each `weight` times.
#[inline(never)]
fn add_squares(sum: f64, stamps: &[SimTime], weight: u64, mean: f64) -> f64 {
    let square = |gap| real(weight) * (rate(gap) - mean).powi(2);
    gaps(stamps).filter(|gap| *gap > 0).fold(sum, |sum, gap| sum + square(gap))
}

/// Timelines, and the runs of passes of each.
struct Gaps<'t> {
    timelines: &'t [PassTimeline],
    runs: Vec<Vec<GapRun>>,
}

impl<'t> Gaps<'t> {
    fn of(timelines: &'t [PassTimeline]) -> Self {
        Self { timelines, runs: timelines.iter().map(PassTimeline::gap_runs).collect() }
    }

    /// See [`for_each_run`].
    #[inline]
    fn for_each_run(&self, mut visit: impl FnMut(&[SimTime], u64)) {
        for (timeline, runs) in self.timelines.iter().zip(&self.runs) {
            for_each_run(timeline, runs, &mut visit);
        }
    }
}

/// Calls `visit` with the stamps between which gaps lie, and the number of requests that saw each of these gaps, in a fixed
/// order.
#[inline]
pub(super) fn for_each_run(timeline: &PassTimeline, runs: &[GapRun], mut visit: impl FnMut(&[SimTime], u64)) {
    for run in runs {
        visit(run.stamps(&timeline.ends), run.weight);
    }
    for gap in &timeline.loose_gaps {
        visit(&[SimTime::ZERO, SimTime::ZERO + *gap], 1);
    }
    if timeline.zero_gaps > 0 {
        visit(&[SimTime::ZERO; 2], timeline.zero_gaps);
    }
}

/// The gaps between stamps that do not decrease, in nanoseconds.
#[inline]
fn gaps(stamps: &[SimTime]) -> impl Iterator<Item = u64> {
    stamps.windows(2).map(|pair| pair[1].as_ns() - pair[0].as_ns())
}

/// A percentile that is looked for: whether among the gaps (0) or the rates (1), and which.
type Wanted = (usize, usize);

/// Where the percentiles of `gaps` gaps and of `rates` rates lie in the ascending order of the gaps, ascending.
fn ranks(gaps: u64, rates: u64) -> Vec<(Wanted, u64)> {
    let mut ranks: Vec<(Wanted, u64)> = Vec::with_capacity(2 * PERCENTILES.len());
    for (index, &percentile) in PERCENTILES.iter().enumerate() {
        ranks.push(((0, index), nearest_rank(gaps, percentile)));
        if rates > 0 {
            // The rates descend as the gaps ascend, and the zero gaps, which have none, come first.
            ranks.push(((1, index), gaps - 1 - nearest_rank(rates, percentile)));
        }
    }
    ranks.sort_by_key(|&(_, rank)| rank);
    ranks
}

/// The search for the gaps at some ranks.
struct Selection {
    /// What has been found, as gaps: [`PERCENTILES`] of the gaps and of the rates.
    found: [[u64; PERCENTILES.len()]; 2],
    /// Spans that still hold more than one possible gap, ascending and apart.
    pending: Vec<Span>,
    /// Whether a bucket holds a pending span: most gaps need no other look.
    marked: Vec<bool>,
}

/// A run of 2^`bits` possible gaps from `low` on that holds wanted ranks.
struct Span {
    low: u64,
    bits: u32,
    /// The wanted gaps, by their rank within the span, ascending.
    ranks: Vec<(Wanted, u64)>,
    /// Gaps counted by equal parts of the span.
    parts: Vec<u64>,
}

impl Span {
    /// Width of a part, as a power of two.
    fn part_bits(&self) -> u32 {
        self.bits.saturating_sub(SPLIT_BITS)
    }
}

impl Selection {
    /// Looks for `ranks` in a histogram whose first filled bucket is `first`.
    fn new(buckets: &[u64], first: usize, ranks: &[(Wanted, u64)]) -> Self {
        let mut selection =
            Self { found: Default::default(), pending: Vec::new(), marked: vec![false; BUCKETS] };
        selection.narrow(&buckets[first..], ranks, |index| bucket_span::<OCTAVE_BITS>(first + index));
        for span in &selection.pending {
            selection.marked[bucket::<OCTAVE_BITS>(span.low)] = true;
        }
        selection
    }

    /// Counts the gaps of the pending spans by parts, then goes on with the parts.
    fn sweep(&mut self, all: &Gaps<'_>) {
        all.for_each_run(|stamps, weight| self.count(stamps, weight));
        for span in std::mem::take(&mut self.pending) {
            let bits = span.part_bits();
            self.narrow(&span.parts, &span.ranks, |index| (span.low + ((index as u64) << bits), bits));
        }
    }

    /// Counts the gaps between stamps that lie in pending spans.
    #[inline(never)]
    fn count(&mut self, stamps: &[SimTime], weight: u64) {
        // Zero gaps have a bucket of their own, which is never pending.
        for gap in gaps(stamps).filter(|gap| *gap > 0) {
            if self.marked[bucket_of_real::<OCTAVE_BITS>(gap, real(gap))] {
                count(&mut self.pending, gap, weight);
            }
        }
    }

    /// Finds the counts that hold `ranks`; `span` is what a count stands for.
    fn narrow(&mut self, counts: &[u64], ranks: &[(Wanted, u64)], span: impl Fn(usize) -> (u64, u32)) {
        let mut index = 0;
        let mut below = 0;
        for &(wanted, rank) in ranks {
            while below + counts[index] <= rank {
                below += counts[index];
                index += 1;
            }
            let (low, bits) = span(index);
            if bits == 0 {
                self.found[wanted.0][wanted.1] = low;
                continue;
            }
            if self.pending.last().is_none_or(|last| last.low != low) {
                let parts = vec![0; 1 << bits.min(SPLIT_BITS)];
                self.pending.push(Span { low, bits, ranks: Vec::new(), parts });
            }
            if let Some(last) = self.pending.last_mut() {
                last.ranks.push((wanted, rank - below));
            }
        }
    }
}

/// Counts a gap in the span that holds it, if one does.
#[inline]
fn count(spans: &mut [Span], gap: u64, weight: u64) {
    let after = spans.partition_point(|span| span.low <= gap);
    if let Some(span) = spans[..after].last_mut() {
        let part = (gap - span.low) >> span.part_bits();
        if let Some(part) = span.parts.get_mut(part as usize) {
            *part += weight;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::simulation::{SimDuration, SimTime};

    /// Passes of the given lengths and requests that had tokens in runs of them.
    fn timeline(lengths: &[u64], runs: &[(u32, u32)], loose: &[u64]) -> PassTimeline {
        let mut now = 7;
        let ends = lengths.iter().map(|length| {
            now += length;
            SimTime::from_ns(now)
        });
        let mut timeline = PassTimeline { ends: ends.collect(), ..PassTimeline::default() };
        for &(first, last) in runs {
            timeline.add_gaps(first, last);
        }
        timeline.loose_gaps = loose.iter().map(|&ns| SimDuration::from_ns(ns)).collect();
        timeline
    }

    /// Every gap of every request, one by one.
    fn expand(lengths: &[u64], runs: &[(u32, u32)], loose: &[u64]) -> Vec<u64> {
        let mut gaps = loose.to_vec();
        for &(first, last) in runs {
            gaps.extend((first + 1..=last).map(|pass| lengths[pass as usize]));
        }
        gaps
    }

    fn assert_pooled(timelines: &[PassTimeline], mut gaps: Vec<u64>) {
        let pooled = PooledGaps::new(timelines);
        let mut rates: Vec<f64> = gaps.iter().filter(|&&gap| gap > 0).map(|&gap| rate(gap)).collect();
        assert_eq!(pooled.itl_ms, Distribution::of_times(&mut gaps));
        let expected = Distribution::of_values(&mut rates);
        assert_eq!(pooled.throughput_per_user.count, expected.count);
        let scale = expected.statistics.map_or(0.0, |statistics| statistics.max);
        let actual = pooled.throughput_per_user.named();
        for ((name, figure), (_, wanted)) in actual.into_iter().zip(expected.named()) {
            let (Some(figure), Some(wanted)) = (figure, wanted) else {
                return assert_eq!(figure, wanted);
            };
            if ["mean", "std"].contains(&name) {
                let tolerance = 1e-9 * wanted.abs() + 1e-12 * scale;
                assert!((figure - wanted).abs() <= tolerance, "{name}: {figure} is not {wanted}");
            } else {
                assert_eq!(figure, wanted, "{name}");
            }
        }
    }

    #[test]
    fn a_gap_of_twelve_and_two_of_two() {
        let pooled =
            PooledGaps::new(&[timeline(&[10_000_000, 12_000_000, 2_000_000], &[(0, 2), (1, 2)], &[])]);
        let itl = pooled.itl_ms.statistics.unwrap();
        assert_eq!((itl.min, itl.median, itl.p99, itl.max), (2.0, 2.0, 12.0, 12.0));
        assert_eq!(itl.mean, 16.0 / 3.0);
        assert!((itl.std - (200.0_f64 / 9.0).sqrt()).abs() < 1e-12);
        let user = pooled.throughput_per_user.statistics.unwrap();
        assert_eq!((user.median, user.min, user.max), (500.0, 1000.0 / 12.0, 500.0));
    }

    #[test]
    fn passes_without_a_gap_do_not_count() {
        // An hour between two bursts of one request each.
        let lengths = [5, 6, 3_600_000_000_000, 8, 9];
        let runs = [(0, 1), (2, 4)];
        assert_pooled(&[timeline(&lengths, &runs, &[])], vec![6, 8, 9]);
    }

    #[test]
    fn no_gaps_no_statistics() {
        assert_eq!(PooledGaps::new(&[]), PooledGaps::default());
        assert_eq!(PooledGaps::new(&[timeline(&[1, 2, 3], &[(1, 1)], &[])]), PooledGaps::default());
    }

    #[test]
    fn zero_gaps_have_no_rate() {
        assert_pooled(&[timeline(&[], &[], &[0, 0, 0])], vec![0, 0, 0]);
        assert_pooled(&[timeline(&[], &[], &[0, 5, 0])], vec![0, 5, 0]);
        let together = PassTimeline { zero_gaps: 3, ..timeline(&[4, 6], &[(0, 1)], &[]) };
        assert_pooled(&[together], vec![0, 0, 0, 6]);
    }

    #[test]
    fn long_gaps_take_several_sweeps() {
        let loose: Vec<u64> = (0..1000).map(|index| 3_600_000_000_000 + index * 77).collect();
        assert_pooled(&[timeline(&[], &[], &loose)], loose);
    }

    prop_compose! {
        /// Durations of every order of magnitude, with ties and neighbours.
        fn duration()(bits in 0_u32..45, low in 0_u64..4, exact in any::<u64>(), tie in any::<bool>()) -> u64 {
            let base = 1_u64 << bits;
            if tie { base - 1 + low } else { exact % base }
        }
    }

    prop_compose! {
        /// A worker's passes, the runs of passes in which requests had tokens, and loose gaps.
        fn worker()(lengths in prop::collection::vec(duration(), 1..60))(
            runs in prop::collection::vec((0..lengths.len() as u32, 0..lengths.len() as u32), 0..20),
            loose in prop::collection::vec(duration(), 0..5),
            lengths in Just(lengths),
        ) -> (Vec<u64>, Vec<(u32, u32)>, Vec<u64>) {
            let runs = runs.into_iter().map(|(one, other)| (one.min(other), one.max(other))).collect();
            (lengths, runs, loose)
        }
    }

    proptest! {
        #[test]
        fn pooling_agrees_with_expanding(workers in prop::collection::vec(worker(), 0..4)) {
            let timelines: Vec<_> =
                workers.iter().map(|(lengths, runs, loose)| timeline(lengths, runs, loose)).collect();
            let gaps = workers.iter().flat_map(|(lengths, runs, loose)| expand(lengths, runs, loose)).collect();
            assert_pooled(&timelines, gaps);
        }
    }
}
