//! The exponential function, as prices need it: millions of times, of arguments without a pattern.

/// Arguments whose exponentials are normal numbers and not next to 1.
const SMALLEST: f64 = 1.0 / (1 << 28) as f64;
const LARGEST: f64 = 700.0;
/// The natural logarithm of 2 in two parts, of which the first has so few digits that its small multiples are exact.
const LN_2_HIGH: f64 = 6.931_471_803_691_238e-1;
const LN_2_LOW: f64 = 1.908_214_929_270_587_7e-10;
/// Coefficients of the even powers in `r (e^r + 1) / (e^r - 1) = 2 + r^2 / 6 - ...`, fitted between -ln 2 / 2 and ln 2 / 2.
const COEFFICIENTS: [f64; 5] = [
    1.666_666_666_666_660_2e-1,
    -2.777_777_777_701_559_3e-3,
    6.613_756_321_437_934e-5,
    -1.653_390_220_546_525_2e-6,
    4.138_136_797_057_238e-8,
];

/// The same number, to the last bit, as [`libm::exp`], without its branches: of arguments near 0 a processor cannot guess
/// which way they go.
#[inline]
pub(super) fn exp(x: f64) -> f64 {
    if !(SMALLEST..LARGEST).contains(&x.abs()) {
        return outside(x);
    }
    // x = k ln 2 + r, and e^x = 2^k e^r.
    let k = (x * std::f64::consts::LOG2_E + 0.5_f64.copysign(x)) as i64;
    let (high, low) = (x - k as f64 * LN_2_HIGH, k as f64 * LN_2_LOW);
    let r = high - low;
    let square = r * r;
    let series = COEFFICIENTS.iter().rev().fold(0.0, |sum, coefficient| coefficient + square * sum);
    let c = r - square * series;
    let power = 1.0 + (r * c / (2.0 - c) - low + high);
    let scale = f64::from_bits(((1023 + k) as u64) << 52);
    power * scale
}

#[cold]
#[inline(never)]
fn outside(x: f64) -> f64 {
    libm::exp(x)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bit_is_that_of_the_library() {
        let mut state = 7_u64;
        let mut draw = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 11) as f64 / (1_u64 << 53) as f64
        };
        let halves = (-2021..2021).map(|half| f64::from(half) * 0.5 * std::f64::consts::LN_2);
        let edges = halves.flat_map(|x| [x.next_down(), x, x.next_up()]);
        let special = [0.0, -0.0, 1e-9, -1e-9, 4e-9, 709.9, -745.2, 1e9, f64::INFINITY, f64::NEG_INFINITY];
        let near = (0..300_000).map(|_| draw() * 8.0 - 4.0).collect::<Vec<_>>();
        let far = (0..100_000).map(|_| draw() * 1500.0 - 750.0).collect::<Vec<_>>();
        for x in edges.chain(special).chain(near).chain(far) {
            assert_eq!(exp(x).to_bits(), libm::exp(x).to_bits(), "{x:e}");
        }
        assert!(exp(f64::NAN).is_nan());
    }
}
