//! Buckets for gaps, whose width grows with the gap.

/// Whole numbers below 2^53 are the same in floating point.
const EXACT_BITS: u32 = 53;
const FRACTION_BITS: u32 = 52;
const EXPONENT_BIAS: usize = 1023;

/// A number below 2^63. Processors convert signed numbers at once, others in several steps.
#[inline]
pub(super) fn real(number: u64) -> f64 {
    number.cast_signed() as f64
}

/// Number of buckets that cover every 64-bit gap.
pub(super) const fn bucket_count<const OCTAVE_BITS: u32>() -> usize {
    (64 << OCTAVE_BITS) + 1
}

/// Bucket of a gap: the first for zero, then 2^`OCTAVE_BITS` equal buckets per doubling, of which the small gaps fill only some.
pub(super) fn bucket<const OCTAVE_BITS: u32>(gap: u64) -> usize {
    let Some(octave) = gap.checked_ilog2() else { return 0 };
    let leading =
        if octave < OCTAVE_BITS { gap << (OCTAVE_BITS - octave) } else { gap >> (octave - OCTAVE_BITS) };
    ((octave as usize) << OCTAVE_BITS) + leading as usize - (1 << OCTAVE_BITS) + 1
}

/// [`bucket`] of a gap that is not zero, `real_gap` in floating point: its leading bits tell, unless they were rounded.
#[inline]
pub(super) fn bucket_of_real<const OCTAVE_BITS: u32>(gap: u64, real_gap: f64) -> usize {
    if gap >> EXACT_BITS > 0 {
        return bucket_of_long::<OCTAVE_BITS>(gap);
    }
    (real_gap.to_bits() >> (FRACTION_BITS - OCTAVE_BITS)) as usize - (EXPONENT_BIAS << OCTAVE_BITS) + 1
}

/// [`bucket`], kept out of loops over gaps of a usual length: a call would cost them their registers.
#[cold]
#[inline(never)]
fn bucket_of_long<const OCTAVE_BITS: u32>(gap: u64) -> usize {
    bucket::<OCTAVE_BITS>(gap)
}

/// The gaps of a bucket that holds one: the lowest, and their number as a power of two.
pub(super) fn bucket_span<const OCTAVE_BITS: u32>(bucket: usize) -> (u64, u32) {
    let Some(place) = bucket.checked_sub(1) else { return (0, 0) };
    let octave = (place >> OCTAVE_BITS) as u32;
    let leading = (1 << OCTAVE_BITS | place & ((1 << OCTAVE_BITS) - 1)) as u64;
    match octave.checked_sub(OCTAVE_BITS) {
        Some(shift) => (leading << shift, shift),
        None => (leading >> (OCTAVE_BITS - octave), 0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OCTAVE_BITS: u32 = 12;

    fn edges() -> Vec<u64> {
        let edges =
            (0..64).flat_map(|bit| [(1_u64 << bit) - 1, 1 << bit, (1 << bit) + 1, (3_u64 << bit) >> 1]);
        let mut gaps: Vec<u64> = edges.chain([u64::MAX - 1, u64::MAX]).collect();
        gaps.sort_unstable();
        gaps
    }

    #[test]
    fn buckets_cover_every_gap_once() {
        let gaps = edges();
        for pair in gaps.windows(2) {
            assert!(bucket::<OCTAVE_BITS>(pair[0]) <= bucket::<OCTAVE_BITS>(pair[1]), "{pair:?}");
        }
        for gap in gaps.into_iter().chain(0..10_000) {
            let (low, bits) = bucket_span::<OCTAVE_BITS>(bucket::<OCTAVE_BITS>(gap));
            assert!(low <= gap && gap - low < 1 << bits, "{gap} in {low} + 2^{bits}");
            assert!(
                bits == 0 || gap >> bits >= 1 << OCTAVE_BITS,
                "{gap} is known to one part in 2^{OCTAVE_BITS}"
            );
        }
        assert_eq!(bucket::<OCTAVE_BITS>(u64::MAX), bucket_count::<OCTAVE_BITS>() - 1);
    }

    #[test]
    fn the_quick_way_finds_the_same_bucket() {
        for gap in edges().into_iter().filter(|gap| *gap > 0 && gap >> 63 == 0).chain(1..10_000) {
            assert_eq!(bucket_of_real::<OCTAVE_BITS>(gap, real(gap)), bucket::<OCTAVE_BITS>(gap), "{gap}");
        }
    }
}
