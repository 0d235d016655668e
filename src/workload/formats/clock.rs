//! Wall-clock time stamps: `2023-11-16 18:17:03.9799600`, with or without an offset from UTC.

use super::cell::Nanoseconds;

const NS_PER_S: i64 = 1_000_000_000;

/// The time stamps of one trace: all with an offset from UTC, or none.
#[derive(Debug, Default)]
pub(super) struct Clock {
    has_offset: Option<bool>,
}

impl Clock {
    /// Nanoseconds from the start of 1970 to the time stamp in `text`; without an offset it is taken as UTC, which is of no
    /// importance since all rows do the same.
    pub(super) fn instant(&mut self, text: &str) -> Result<Nanoseconds, String> {
        let instant = parse(text)
            .ok_or_else(|| format!("\"{text}\" is not a time like 2023-11-16 18:17:03.9799600"))?;
        let has_offset = text
            .split_once([' ', 'T'])
            .is_some_and(|(_, time)| time.ends_with('Z') || time.contains(['+', '-']));
        if *self.has_offset.get_or_insert(has_offset) == has_offset {
            return Ok(instant);
        }
        let (this, others) = if has_offset { ("an", "none") } else { ("no", "one") };
        Err(format!("\"{text}\" has {this} offset from UTC, and the rows before it have {others}"))
    }
}

fn parse(text: &str) -> Option<Nanoseconds> {
    let (date, time) = text.split_once([' ', 'T'])?;
    let (time, offset_s) = offset(time.trim_start())?;
    let mut date = date.split('-');
    let (year, month, day) = (number(date.next()?, 4)?, number(date.next()?, 2)?, number(date.next()?, 2)?);
    let mut time = time.split(':');
    let (hour, minute) = (number(time.next()?, 2)?, number(time.next()?, 2)?);
    let seconds = time.next()?;
    let (second, fraction) = seconds.split_once('.').unwrap_or((seconds, "0"));
    let second = number(second, 2)?;
    let known = date.next().is_none() && time.next().is_none();
    let valid = (1970..2200).contains(&year)
        && (1..=12).contains(&month)
        && (1..=days_in_month(year, month)).contains(&day)
        && hour < 24
        && minute < 60
        && second < 61;
    if !known || !valid || fraction.is_empty() || !fraction.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let digits = &fraction[..fraction.len().min(9)];
    let nanoseconds = digits.parse::<i64>().ok()? * 10_i64.pow(9 - digits.len() as u32);
    let seconds = ((days(year, month, day) * 24 + hour) * 60 + minute) * 60 + second - offset_s;
    u64::try_from(seconds * NS_PER_S + nanoseconds).ok()
}

/// The time of day and its offset from UTC in seconds.
fn offset(time: &str) -> Option<(&str, i64)> {
    if let Some(time) = time.strip_suffix('Z') {
        return Some((time, 0));
    }
    let Some(at) = time.rfind(['+', '-']) else { return Some((time, 0)) };
    let (time, offset) = time.split_at(at);
    let (sign, offset) = offset.split_at(1);
    let (hours, minutes) = offset.split_once(':').unwrap_or_else(|| offset.split_at(offset.len().min(2)));
    let minutes = if minutes.is_empty() { 0 } else { number(minutes, 2)? };
    let seconds = (number(hours, 2)? * 60 + minutes) * 60;
    Some((time, if sign == "-" { -seconds } else { seconds }))
}

fn number(text: &str, digits: usize) -> Option<i64> {
    (text.len() == digits && text.bytes().all(|byte| byte.is_ascii_digit())).then(|| text.parse().ok())?
}

fn is_leap(year: i64) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

fn days_in_month(year: i64, month: i64) -> i64 {
    match month {
        2 => 28 + i64::from(is_leap(year)),
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Days from the start of 1970, in the Gregorian calendar.
fn days(year: i64, month: i64, day: i64) -> i64 {
    let leaps = |year: i64| year / 4 - year / 100 + year / 400;
    let years = (year - 1970) * 365 + leaps(year - 1) - leaps(1969);
    years + (1..month).map(|month| days_in_month(year, month)).sum::<i64>() + day - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn instant(text: &str) -> Result<Nanoseconds, String> {
        Clock::default().instant(text)
    }

    #[test]
    fn instants() {
        assert_eq!(instant("1970-01-01 00:00:00"), Ok(0));
        assert_eq!(instant("2023-11-16 18:17:03.9799600"), Ok(1_700_158_623_979_960_000));
        assert_eq!(instant("2024-05-10T00:00:00.009930+00:00"), Ok(1_715_299_200_009_930_000));
        assert_eq!(instant("2024-02-29 12:00:00Z"), Ok(1_709_208_000_000_000_000));
        assert_eq!(instant("2024-03-01 01:30:00+02:00"), instant("2024-02-29 23:30:00"));
        assert_eq!(instant("2024-03-01 01:30:00-0130"), instant("2024-03-01 03:00:00"));
    }

    #[test]
    fn what_is_no_instant() {
        for text in [
            "",
            "12.5",
            "2023-11-16",
            "2023-02-29 00:00:00",
            "2023-13-01 00:00:00",
            "2023-11-16 24:00:00",
            "2023-11-16 18:17",
            "2023-11-16 18:17:03.",
            "2023-11-16 18:17:0x",
            "16/11/2023 18:17:03",
            "2023-11-16 18:17:03+é",
        ] {
            assert!(instant(text).is_err(), "{text}");
        }
    }
}
