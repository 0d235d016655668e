//! Numbers with bounds, and messages that show how to write them.

use std::ops::RangeInclusive;

use super::hints::odd_characters;
use super::tree::{Content, Meaning, Node, Number};

/// Bounds of a real number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Limit {
    /// A rate or a ratio above 0, within [`SCALES`].
    Scale,
    /// Gigabytes per second, within [`BANDWIDTHS`].
    Bandwidth,
    /// 0 or more, at most [`LARGEST`].
    NotNegative,
    /// 0 to 1.
    Share,
    /// Above 0, up to 1.
    PositiveShare,
    /// Above 0, below 1.
    ProperShare,
    /// A time above 0; at most [`LONGEST`] in milliseconds or seconds.
    PositiveTime,
    /// A time of 0 or more; at most [`LONGEST`] in milliseconds or seconds.
    Time,
    /// A time of 0 or more in seconds.
    Seconds,
    /// What one pass takes, in milliseconds.
    PassTime,
    /// A divisor of times; 0 for none.
    SpeedUp,
}

/// The longest time in milliseconds, 31 years: sums of a few of them still fit the simulated clock.
const LONGEST: f64 = 1e12;
/// The same in seconds.
const LONGEST_SECONDS: f64 = 1e9;
/// The longest pass, 11 days in milliseconds: a run has many.
const LONGEST_PASS: f64 = 1e9;
/// The slowest and the fastest that passes can be made.
const SPEED_UPS: RangeInclusive<f64> = 1e-6..=1e9;
/// The least and the most of any rate or ratio: what is divided by it still fits the simulated clock.
const SCALES: RangeInclusive<f64> = 1e-6..=1e9;
/// The slowest and the fastest way between two GPUs.
const BANDWIDTHS: RangeInclusive<f64> = 1e-3..=1e9;
/// The most of anything without a range of its own: squares of it are still finite.
const LARGEST: f64 = 1e12;

impl Limit {
    fn admits(self, real: f64) -> bool {
        match self {
            Self::Scale => SCALES.contains(&real),
            Self::Bandwidth => BANDWIDTHS.contains(&real),
            Self::NotNegative => (0.0..=LARGEST).contains(&real),
            Self::Share => (0.0..=1.0).contains(&real),
            Self::PositiveShare => real > 0.0 && real <= 1.0,
            Self::ProperShare => real > 0.0 && real < 1.0,
            Self::PositiveTime => real > 0.0 && real <= LONGEST,
            Self::Time => (0.0..=LONGEST).contains(&real),
            Self::Seconds => (0.0..=LONGEST_SECONDS).contains(&real),
            Self::PassTime => (0.0..=LONGEST_PASS).contains(&real),
            Self::SpeedUp => real == 0.0 || SPEED_UPS.contains(&real),
        }
    }

    fn rule(self, real: f64) -> String {
        match self {
            Self::PositiveTime | Self::Time if real > LONGEST => format!("must be at most {LONGEST}"),
            Self::Seconds if real > LONGEST_SECONDS => {
                format!("must be at most {LONGEST_SECONDS} seconds, 31 years")
            }
            Self::PassTime if real > LONGEST_PASS => {
                format!("must be at most {LONGEST_PASS} milliseconds, 11 days")
            }
            Self::SpeedUp if real > 0.0 => {
                format!("must be from {} to {}, or 0 for no speed-up", SPEED_UPS.start(), SPEED_UPS.end())
            }
            Self::Scale => format!("must be from {} to {}", SCALES.start(), SCALES.end()),
            Self::Bandwidth => {
                format!("must be from {} to {} gigabytes per second", BANDWIDTHS.start(), BANDWIDTHS.end())
            }
            Self::NotNegative if real > LARGEST => format!("must be at most {LARGEST}"),
            Self::PositiveTime => "must be above 0".to_owned(),
            Self::NotNegative | Self::Time | Self::Seconds | Self::PassTime | Self::SpeedUp => {
                "must be 0 or more".to_owned()
            }
            Self::Share => "must be from 0 to 1".to_owned(),
            Self::PositiveShare => "must be above 0 and at most 1".to_owned(),
            Self::ProperShare => "must be above 0 and below 1".to_owned(),
        }
    }

    fn is_share(self) -> bool {
        matches!(self, Self::Share | Self::PositiveShare | Self::ProperShare)
    }

    /// A value that would do.
    fn example(self) -> &'static str {
        match self {
            Self::Share | Self::PositiveShare | Self::ProperShare => "0.5",
            _ => "1.0",
        }
    }
}

/// Reads a whole number from `least` to `most`.
pub(super) fn integer(node: &Node, key: &str, least: i128, most: i128) -> Result<i128, String> {
    let integer = match number(node) {
        Some(Number::Integer(integer)) => integer,
        Some(Number::Real(real)) => {
            let rule = if real.round() < least as f64 {
                format!("is out of range: it must be {least} or more")
            } else if real.round() > most as f64 {
                format!("is out of range: it must be at most {most}")
            } else {
                format!("is not a whole number; write `{}`", written(key, &plain(real.round())))
            };
            return Err(format!("{} {rule}", node.shown()));
        }
        None => {
            let would_do = |number: &Number| matches!(number, Number::Integer(integer) if (least..=most).contains(integer));
            let example = listed(node, would_do).unwrap_or_else(|| least.max(1).to_string());
            return Err(not_a_number(node, key, "whole number", &example, false));
        }
    };
    if integer < least {
        return Err(format!("{} is out of range: it must be {least} or more", node.shown()));
    }
    if integer > most {
        return Err(format!("{} is out of range: it must be at most {most}", node.shown()));
    }
    Ok(integer)
}

/// Reads a finite real number within `limit`.
pub(super) fn float(node: &Node, key: &str, limit: Limit) -> Result<f64, String> {
    let Some(number) = number(node) else {
        let listed = listed(node, |number| limit.admits(number.as_f64()));
        let example = listed.unwrap_or_else(|| limit.example().to_owned());
        return Err(not_a_number(node, key, "finite number", &example, limit.is_share()));
    };
    let real = number.as_f64();
    if limit.admits(real) {
        return Ok(real);
    }
    let example = if limit.is_share() && PERCENTAGES.contains(&real) {
        format!("; write `{}`", written(key, &plain(real / 100.0)))
    } else {
        String::new()
    };
    Err(format!("{} is out of range: it {}{example}", node.shown(), limit.rule(real)))
}

fn number(node: &Node) -> Option<Number> {
    match &node.content {
        Content::Scalar(scalar) => match scalar.meaning() {
            Meaning::Number(number) => Some(number),
            _ => None,
        },
        _ => None,
    }
}

/// The first number of a list that stands where one number should, if it would do there.
fn listed(node: &Node, would_do: impl Fn(&Number) -> bool) -> Option<String> {
    let Content::List(items) = &node.content else { return None };
    let first = items.first().filter(|first| number(first).is_some_and(|number| would_do(&number)))?;
    match &first.content {
        Content::Scalar(scalar) => Some(scalar.text.clone()),
        _ => None,
    }
}

fn not_a_number(node: &Node, key: &str, kind: &str, example: &str, share: bool) -> String {
    let Content::Scalar(scalar) = &node.content else {
        return format!("{} where one {kind} is expected; write `{}`", node.shown(), written(key, example));
    };
    let odd = odd_characters(&scalar.text).map_or(String::new(), |odd| format!(" (it has {odd})"));
    let example = meant(&scalar.text, key, share).unwrap_or_else(|| example.to_owned());
    let quoted = if scalar.plain { "" } else { ": numbers are written without quotes" };
    format!("{} is not a {kind}{odd}{quoted}; write `{}`", node.shown(), written(key, &example))
}

/// How `value` is written at `key`; an entry of a list, which ends in its index, has no key of its own.
fn written(key: &str, value: &str) -> String {
    if key.ends_with(']') { value.to_owned() } else { format!("{key}: {value}") }
}

/// What a share above 1 is taken for; just above 1 it is a slip.
const PERCENTAGES: RangeInclusive<f64> = 2.0..=100.0;

/// Without hundreds of digits, nor those that only a computation has added.
fn plain(real: f64) -> String {
    let digits = format!("{real:.14e}");
    let real = if real.fract() == 0.0 { real } else { digits.parse().unwrap_or(real) };
    if real.abs() < 1e15 { real.to_string() } else { format!("{real:e}") }
}

/// The number that somebody meant by `16 GPUs`, `3k`, `2s` or `1_000`, in the unit of `key`.
fn meant(text: &str, key: &str, share: bool) -> Option<String> {
    let key = key.split('[').next().unwrap_or_default();
    let text = text.trim().replace('_', "");
    if let Some(digits) = text.strip_prefix("0x") {
        return u64::from_str_radix(digits, 16).ok().map(|number| number.to_string());
    }
    let end = text.find(|c: char| !c.is_ascii_digit() && !".-+".contains(c)).unwrap_or(text.len());
    let (digits, unit) = (text[..end].trim_start_matches('0'), text[end..].trim());
    let digits = if digits.is_empty() || digits.starts_with('.') { &text[..end] } else { digits };
    let number = Number::parse(digits)?.as_f64();
    let in_ms = key.ends_with("_ms");
    let in_s = key.ends_with("_s") || key.ends_with("seconds") || key == "startup_time";
    let scale = match unit {
        "k" | "K" => 1e3,
        "M" => 1e6,
        "G" | "B" => 1e9,
        "s" if in_ms => 1e3,
        "min" if in_ms => 60e3,
        "ms" if in_s => 1e-3,
        "min" if in_s => 60.0,
        "%" if share => 1e-2,
        _ if share && PERCENTAGES.contains(&number) => 1e-2,
        _ => 1.0,
    };
    Some(plain(number * scale))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_is_in_the_unit_of_the_key() {
        let meant = |text, key, share| meant(text, key, share).expect("starts with a number");
        assert_eq!(meant("16 GPUs", "gpu_budget", false), "16");
        assert_eq!(meant("3k", "isl", false), "3000");
        assert_eq!(meant("2s", "ttft_ms", false), "2000");
        assert_eq!(meant("500ms", "startup_time_s", false), "0.5");
        assert_eq!(meant("1_000", "isl", false), "1000");
        assert_eq!(meant("90%", "gpu_memory_utilization", true), "0.9");
        assert_eq!(meant("99.9%", "min_attainment", true), "0.999");
        assert_eq!(meant("99.9 percent", "min_attainment", true), "0.999");
        assert_eq!(meant("500.1ms", "startup_time_s", false), "0.5001");
        assert_eq!(meant("123456789012345", "seed", false), "123456789012345");
        assert_eq!(meant("1234567890123457", "seed", false), "1.234567890123457e15");
        assert_eq!(meant("010", "isl", false), "10");
        assert_eq!(meant("0x1000", "isl", false), "4096");
        assert_eq!(super::meant("many", "isl", false), None);
    }
}
