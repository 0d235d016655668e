//! JSON values where numbers are expected: what is accepted, and what is said about the rest.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

use crate::simulation::Shown;

/// Lengths above this are refused, so that the sum of two fits 32 bits.
const LONGEST: u64 = i32::MAX as u64;
/// From here on `f64` does not hold every whole number.
const EXACT: u64 = 1 << 53;
/// No time of a run comes up to this, 584 years.
const LONGEST_S: f64 = 1.8e10;

/// A JSON value, of which only numbers and text are kept.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::workload) enum Scalar<'de> {
    Unsigned(u64),
    Negative(i64),
    Float(f64),
    Text(Cow<'de, str>),
    Null,
    Bool(bool),
    Array,
    Object,
}

impl Scalar<'_> {
    /// A number of tokens.
    pub(in crate::workload) fn length(&self) -> Result<u32, String> {
        let too_many = || format!("{self} tokens is more than {LONGEST}, the longest that is accepted");
        if self.is_inexact() {
            return Err(too_many());
        }
        let tokens = self.whole("tokens")?;
        if tokens > LONGEST { Err(too_many()) } else { Ok(tokens as u32) }
    }

    /// An id of 64 bits, exactly.
    #[inline]
    pub(in crate::workload) fn id(&self) -> Result<u64, String> {
        match self {
            Self::Unsigned(id) => Ok(*id),
            Self::Text(text) => Err(format!(
                "\"{}\" is a string: ids are whole numbers from 0 to 2^64 - 1 without quotes",
                shortened(text)
            )),
            _ => self.whole("an id"),
        }
    }

    /// A time in seconds or in milliseconds: finite and not negative.
    pub(in crate::workload) fn time(&self, in_ms: bool) -> Result<f64, String> {
        let (unit, longest) = if in_ms { ("ms", LONGEST_S * 1e3) } else { ("s", LONGEST_S) };
        let time = match self {
            Self::Unsigned(value) => *value as f64,
            Self::Float(value) if *value >= 0.0 => *value,
            Self::Float(_) | Self::Negative(_) => {
                return Err(format!("{self} is negative: times start at 0"));
            }
            other => return Err(other.not_a_number()),
        };
        if time < longest {
            return Ok(time);
        }
        Err(format!(
            "{self} {unit} is beyond 584 years; times are milliseconds, or seconds with `workload.trace_time_unit: s` \
             (--time-unit s): divide microseconds by 1000 and nanoseconds by 1000000"
        ))
    }

    /// Whether it is so large that not all of its digits were kept.
    fn is_inexact(&self) -> bool {
        matches!(self, Self::Float(value) if *value > EXACT as f64)
    }

    /// A whole number from `least` to `most`.
    pub(in crate::workload) fn integer(&self, least: i64, most: i64) -> Result<i64, String> {
        let value = match self {
            Self::Negative(value) => *value,
            other if other.is_inexact() => i64::MAX,
            other => i64::try_from(other.whole("a value")?).unwrap_or(i64::MAX),
        };
        if (least..=most).contains(&value) {
            return Ok(value);
        }
        Err(format!("{self} is not between {least} and {most}"))
    }

    /// A whole number that is not negative; one written like 512.0 will do.
    pub(in crate::workload) fn whole(&self, what: &str) -> Result<u64, String> {
        match self {
            Self::Unsigned(value) => Ok(*value),
            Self::Negative(value) => Err(format!("{value} is negative; {what} cannot be")),
            Self::Float(value) if *value < 0.0 => {
                Err(format!("{} is negative; {what} cannot be", Shown(*value)))
            }
            Self::Float(value) if value.fract() != 0.0 => {
                Err(format!("{} is not a whole number", Shown(*value)))
            }
            Self::Float(value) if self.is_inexact() => {
                let value = Shown(*value);
                Err(format!("{value} is beyond what can be read exactly; whole numbers go up to 2^64 - 1"))
            }
            Self::Float(value) => Ok(*value as u64),
            other => Err(other.not_a_number()),
        }
    }

    /// The same value, independent of the text that it was read from.
    pub(in crate::workload) fn into_owned(self) -> Scalar<'static> {
        match self {
            Self::Unsigned(value) => Scalar::Unsigned(value),
            Self::Negative(value) => Scalar::Negative(value),
            Self::Float(value) => Scalar::Float(value),
            Self::Text(text) => Scalar::Text(Cow::Owned(text.into_owned())),
            Self::Null => Scalar::Null,
            Self::Bool(value) => Scalar::Bool(value),
            Self::Array => Scalar::Array,
            Self::Object => Scalar::Object,
        }
    }

    fn not_a_number(&self) -> String {
        match self {
            Self::Text(text) if text.trim().parse::<f64>().is_ok_and(f64::is_finite) => {
                format!("\"{text}\" is a string; write the number without quotes: {}", text.trim())
            }
            Self::Null => "null is not a number; leave the field out if there is no value".into(),
            other => format!("{other} is not a number"),
        }
    }
}

impl fmt::Display for Scalar<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unsigned(value) => write!(f, "{value}"),
            Self::Negative(value) => write!(f, "{value}"),
            Self::Float(value) => write!(f, "{}", Shown(*value)),
            Self::Text(text) => write!(f, "\"{}\"", shortened(text)),
            Self::Null => f.write_str("null"),
            Self::Bool(value) => write!(f, "{value}"),
            Self::Array => f.write_str("a list"),
            Self::Object => f.write_str("an object"),
        }
    }
}

/// The start of a long text.
pub(in crate::workload) fn shortened(text: &str) -> Cow<'_, str> {
    const SHOWN: usize = 40;
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => Cow::Owned(format!("{}...", &text[..end])),
        None => Cow::Borrowed(text),
    }
}

impl<'de> Deserialize<'de> for Scalar<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ScalarVisitor)
    }
}

struct ScalarVisitor;

impl<'de> Visitor<'de> for ScalarVisitor {
    type Value = Scalar<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_u64<E>(self, value: u64) -> Result<Self::Value, E> {
        Ok(Scalar::Unsigned(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Self::Value, E> {
        Ok(u64::try_from(value).map_or(Scalar::Negative(value), Scalar::Unsigned))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Self::Value, E> {
        Ok(Scalar::Float(value))
    }

    fn visit_borrowed_str<E>(self, value: &'de str) -> Result<Self::Value, E> {
        Ok(Scalar::Text(Cow::Borrowed(value)))
    }

    fn visit_str<E>(self, value: &str) -> Result<Self::Value, E> {
        Ok(Scalar::Text(Cow::Owned(value.to_owned())))
    }

    fn visit_bool<E>(self, value: bool) -> Result<Self::Value, E> {
        Ok(Scalar::Bool(value))
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(Scalar::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
        while items.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Scalar::Array)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Self::Value, A::Error> {
        while entries.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(Scalar::Object)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulation::SimDuration;

    fn scalar(json: &str) -> Scalar<'_> {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn lengths() {
        assert_eq!(scalar("2048").length(), Ok(2048));
        assert_eq!(scalar("2048.0").length(), Ok(2048));
        assert_eq!(scalar("2e3").length(), Ok(2000));
        assert_eq!(scalar("-0").length(), Ok(0));
        for (json, part) in [
            ("300.5", "300.5 is not a whole number"),
            ("-900", "-900 is negative"),
            ("-0.5", "-0.5 is negative"),
            ("\"512\"", "without quotes: 512"),
            ("\"many\"", "\"many\" is not a number"),
            ("null", "leave the field out"),
            ("true", "true is not a number"),
            ("[1, [2]]", "a list is not a number"),
            ("{\"a\": {}}", "an object is not a number"),
            ("3000000000", "more than 2147483647"),
            ("1e300", "1e300 tokens is more than 2147483647"),
            ("99999999999999999999", "1e20 tokens is more than 2147483647"),
        ] {
            let message = scalar(json).length().unwrap_err();
            assert!(message.contains(part), "{json}: {message}");
        }
    }

    #[test]
    fn ids_are_exact_or_refused() {
        for id in [0, 9_007_199_254_740_993, u64::MAX - 1, u64::MAX] {
            assert_eq!(scalar(&id.to_string()).id(), Ok(id));
        }
        assert_eq!(scalar("12.0").id(), Ok(12));
        assert_eq!(scalar("1e17").integer(0, 9), Err("1e17 is not between 0 and 9".into()));
        for json in ["18446744073709551616", "-1", "1.5", "1e17", "\"7\"", "\"0xff\"", "null"] {
            assert!(scalar(json).id().is_err(), "{json}");
        }
    }

    #[test]
    fn times_keep_their_fractions_and_stay_within_a_run() {
        assert_eq!(scalar("0.21").time(false), Ok(0.21));
        assert_eq!(scalar("27482.5").time(true), Ok(27482.5));
        for json in ["-1", "-0.1", "\"120\"", "null"] {
            assert!(scalar(json).time(true).is_err(), "{json}");
        }
        for (in_ms, longest) in [(true, 17_999_999_999_999_u64), (false, 17_999_999_999)] {
            assert_eq!(scalar(&longest.to_string()).time(in_ms), Ok(longest as f64));
            let seconds = if in_ms { longest as f64 / 1e3 } else { longest as f64 };
            assert!(SimDuration::from_seconds(seconds).is_ok(), "{longest}");
            for json in [&(longest + 1).to_string(), "9007199254740992", "18446744073709551616", "1e17"] {
                let message = scalar(json).time(in_ms).unwrap_err();
                let unit = if in_ms { "ms" } else { "s" };
                assert!(message.contains(&format!(" {unit} is beyond 584 years; times are ")), "{message}");
            }
        }
        assert!(scalar("9007199254740992").time(true).unwrap_err().starts_with("9007199254740992 ms "));
    }

    #[test]
    fn long_texts_are_cut_between_characters() {
        let text = "é".repeat(60);
        assert_eq!(shortened(&text), format!("{}...", "é".repeat(40)));
        assert_eq!(shortened("short"), "short");
    }
}
