//! Values in the cells of a table.

/// A time in whole nanoseconds since whenever the trace counts from.
pub(super) type Nanoseconds = u64;

/// Lengths above this are refused, so that the sum of two fits 32 bits.
const LONGEST: u64 = i32::MAX as u64;

/// A number of tokens; one written like 512.0 will do.
pub(super) fn length(text: &str) -> Result<u32, String> {
    let whole = match text.split_once('.') {
        Some((whole, fraction)) if !fraction.is_empty() && fraction.bytes().all(|byte| byte == b'0') => whole,
        _ => text,
    };
    match whole.parse::<u64>() {
        Ok(tokens) if tokens <= LONGEST => Ok(tokens as u32),
        Ok(tokens) => Err(format!("{tokens} tokens is more than {LONGEST}, the longest that is accepted")),
        Err(_) => Err(not_a_length(text)),
    }
}

fn not_a_length(text: &str) -> String {
    if text.is_empty() {
        return "empty: a number of tokens is needed".into();
    }
    match text.parse::<f64>() {
        Ok(value) if !value.is_finite() => format!("{text} is not a number of tokens"),
        Ok(value) if value < 0.0 => format!("{text} is negative; tokens cannot be"),
        Ok(value) if value.fract() != 0.0 => format!("{text} is not a whole number"),
        Ok(_) if text.bytes().all(|byte| byte.is_ascii_digit()) => {
            format!("{text} tokens is more than {LONGEST}, the longest that is accepted")
        }
        Ok(_) => format!("{text} is not a number of tokens: write it in full digits"),
        Err(_) => format!("\"{text}\" is not a number{}", separators(text)),
    }
}

/// What may be behind a number that is none.
fn separators(text: &str) -> &'static str {
    let digits = text.bytes().any(|byte| byte.is_ascii_digit());
    match text {
        _ if digits && text.contains([',', '\'', '\u{a0}']) => {
            ": write it without thousands separators and with a decimal point"
        }
        _ => "",
    }
}

/// A time as a number with a decimal point, in a unit of 10^`power` nanoseconds; exact to the nanosecond.
pub(super) fn time(text: &str, power: u32) -> Result<Nanoseconds, String> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let unit = 10_u64.pow(power);
    if !text.is_empty() && text != "." && digits(whole) && digits(fraction) {
        let whole: u64 = if whole.is_empty() { Ok(0) } else { whole.parse() }.map_err(|_| too_late(text))?;
        let kept = &fraction[..fraction.len().min(power as usize)];
        let scale = 10_u64.pow(power - kept.len() as u32);
        let fraction: u64 = if kept.is_empty() { 0 } else { kept.parse().map_err(|_| too_late(text))? };
        let total = whole.checked_mul(unit).and_then(|whole| whole.checked_add(fraction * scale));
        return total.ok_or_else(|| too_late(text));
    }
    match text.parse::<f64>() {
        Ok(value) if value.is_nan() || value.is_infinite() => Err(format!("{text} is not a time")),
        Ok(value) if value < 0.0 => Err(format!("{text} is negative: times start at 0")),
        Ok(value) if value * (unit as f64) < 9.2e18 => Ok((value * unit as f64).round() as u64),
        Ok(_) => Err(too_late(text)),
        Err(_) if text.is_empty() => Err("empty: a time is needed".into()),
        Err(_) if text.contains([':', '-', '/']) => {
            Err(format!("\"{text}\" looks like a date; this form has its times as numbers"))
        }
        Err(_) => Err(format!("\"{text}\" is not a number{}", separators(text))),
    }
}

fn too_late(text: &str) -> String {
    format!("{text} is beyond what 64 bits of nanoseconds hold; is the unit right?")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_whole_numbers() {
        assert_eq!(length("512"), Ok(512));
        assert_eq!(length("512.0"), Ok(512));
        for (text, part) in [
            ("", "empty"),
            ("512.5", "not a whole number"),
            ("-3", "negative"),
            ("NaN", "NaN is not a number of tokens"),
            ("inf", "inf is not"),
            ("1,024", "thousands"),
            ("12 tokens", "\"12 tokens\" is not a number"),
            ("1e3", "full digits"),
            ("5000000000", "more than 2147483647"),
            ("18446744073709551616", "18446744073709551616 tokens is more than 2147483647"),
        ] {
            let message = length(text).unwrap_err();
            assert!(message.contains(part), "{text}: {message}");
        }
    }

    #[test]
    fn times_are_exact() {
        assert_eq!(time("0.098189", 9), Ok(98_189_000));
        assert_eq!(time("3.5", 9), Ok(3_500_000_000));
        assert_eq!(time("1779163048815", 6), Ok(1_779_163_048_815_000_000));
        assert_eq!(time("0.1234567891234", 9), Ok(123_456_789));
        assert_eq!(time("14", 9), Ok(14_000_000_000));
        assert_eq!(time("1.5e3", 6), Ok(1_500_000_000));
        assert_eq!(time(".5", 9), Ok(500_000_000));
        for text in ["", ".", "-1", "NaN", "inf", "2023-11-16", "12,5", "99999999999999999999", "1e30"] {
            assert!(time(text, 9).is_err(), "{text}");
        }
    }
}
