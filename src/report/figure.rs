//! Figures for people.

/// From where on figures have an exponent instead of all their digits.
const LARGE: f64 = 1e15;
/// Below which they have one, since nothing would be seen of them otherwise.
const SMALL: f64 = 1e-9;

/// Whether a figure is so large or so small that it is shown with an exponent.
pub fn needs_exponent(value: f64) -> bool {
    let size = value.abs();
    size.is_finite() && (size >= LARGE || (size > 0.0 && size < SMALL))
}

/// A finite figure with so many significant digits at least, without zeros at the end.
pub fn significant(value: f64, digits: u8) -> String {
    if value == 0.0 {
        return "0".into();
    }
    if needs_exponent(value) {
        let text = format!("{value:.*e}", usize::from(digits.saturating_sub(1)));
        let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
        return format!("{}e{exponent}", trimmed(mantissa));
    }
    let decimals = i32::from(digits) - 1 - value.abs().log10().floor() as i32;
    trimmed(&format!("{value:.*}", decimals.clamp(0, 9) as usize)).into()
}

/// A figure of at least five digits that is rounded up, so that as a bound it is one that is kept.
pub fn at_least(value: f64) -> String {
    let text = significant(value, 5);
    if text.parse::<f64>().is_ok_and(|rounded| rounded >= value) {
        return text;
    }
    let last_digit = 10_f64.powi(value.abs().log10().floor() as i32 - 4);
    // Without an exponent, all whole digits are shown and nine decimals at most.
    let last_digit = if needs_exponent(value) { last_digit } else { last_digit.clamp(1e-9, 1.0) };
    significant(value + last_digit / 2.0, 5)
}

fn trimmed(text: &str) -> &str {
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_is_rounded_up() {
        let cases = [
            (31.250_01, "31.251"),
            (31.25, "31.25"),
            (59_012.2, "59013"),
            (0.0, "0"),
            (9.999_991, "10"),
            (123_456.2, "123457"),
            (123_456.0, "123456"),
            (98_765_432.1, "98765433"),
            (1.234_56e15, "1.2346e15"),
            (1.234_51e15, "1.2346e15"),
            (1.234_56e-8, "0.000000013"),
        ];
        for (value, text) in cases {
            assert_eq!(at_least(value), text);
            assert!(at_least(value).parse::<f64>().unwrap() >= value);
        }
    }

    #[test]
    fn digits_that_say_something() {
        for (value, text) in [
            (0.0, "0"),
            (-12.5, "-12.5"),
            (99.999_999, "100"),
            (123_456.7, "123457"),
            (0.000_123_456, "0.00012346"),
            (123_456_789_012_345.6, "123456789012346"),
            (1e15, "1e15"),
            (-1.234_567e15, "-1.2346e15"),
            (1e308, "1e308"),
            (f64::MAX, "1.7977e308"),
            (1e-9, "0.000000001"),
            (1.25e-12, "1.25e-12"),
            (5e-324, "4.9407e-324"),
        ] {
            assert_eq!(significant(value, 5), text);
        }
        assert_eq!(significant(9.876_543_21, 6), "9.87654");
        assert!(!needs_exponent(f64::INFINITY) && !needs_exponent(f64::NAN));
    }
}
