//! Durations as Go writes them: `1m30s`, `1.5h`, `300ms` (`time.ParseDuration`, `Duration.String`).

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::de::{self, Deserialize, Deserializer, Visitor};
use serde::ser::{Serialize, Serializer};

/// A duration of the configuration. It can be negative, as in Go; a field that allows only
/// [`std::time::Duration`] refuses that when the configuration is validated.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct GoDuration {
    nanos: i64,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    #[error("{0:?} is not a duration; write it like \"1m30s\" or \"500ms\"")]
    Invalid(String),
    #[error("{0:?} has no unit; the units are h, m, s, ms, us and ns")]
    MissingUnit(String),
    #[error("{text:?} has the unknown unit {unit:?}; the units are h, m, s, ms, us and ns")]
    UnknownUnit { text: String, unit: String },
    #[error("{0:?} is longer than 292 years")]
    TooLong(String),
}

const MICRO: u64 = 1000;
const MILLI: u64 = 1000 * MICRO;
const SECOND: u64 = 1000 * MILLI;
const MINUTE: u64 = 60 * SECOND;
const HOUR: u64 = 60 * MINUTE;

impl GoDuration {
    pub const ZERO: GoDuration = GoDuration { nanos: 0 };

    pub const fn from_nanos(nanos: i64) -> GoDuration {
        GoDuration { nanos }
    }

    pub const fn from_millis(millis: i64) -> GoDuration {
        GoDuration { nanos: millis.saturating_mul(1_000_000) }
    }

    pub const fn from_secs(secs: i64) -> GoDuration {
        GoDuration { nanos: secs.saturating_mul(1_000_000_000) }
    }

    /// `None` when it is negative.
    pub fn std(self) -> Option<Duration> {
        u64::try_from(self.nanos).ok().map(Duration::from_nanos)
    }
}

impl FromStr for GoDuration {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<GoDuration, ParseError> {
        let invalid = || ParseError::Invalid(text.to_owned());
        let too_long = || ParseError::TooLong(text.to_owned());
        let (negative, mut rest) = match text.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, text.strip_prefix('+').unwrap_or(text)),
        };
        if rest == "0" {
            return Ok(GoDuration::ZERO);
        }
        if rest.is_empty() {
            return Err(invalid());
        }
        let mut total: u64 = 0;
        while !rest.is_empty() {
            let (whole, after) = digits(rest);
            let (fraction, after) = match after.strip_prefix('.') {
                Some(after) => digits(after),
                None => ("", after),
            };
            if whole.len() + fraction.len() == 0 {
                return Err(invalid());
            }
            let end = after.find(|c: char| c == '.' || c.is_ascii_digit()).unwrap_or(after.len());
            let (unit, after) = after.split_at(end);
            let scale = match unit {
                "ns" => 1,
                "us" | "\u{b5}s" | "\u{3bc}s" => MICRO,
                "ms" => MILLI,
                "s" => SECOND,
                "m" => MINUTE,
                "h" => HOUR,
                "" => return Err(ParseError::MissingUnit(text.to_owned())),
                unit => return Err(ParseError::UnknownUnit { text: text.to_owned(), unit: unit.to_owned() }),
            };
            let whole: u64 = if whole.is_empty() { 0 } else { whole.parse().map_err(|_| too_long())? };
            total = whole
                .checked_mul(scale)
                .and_then(|n| n.checked_add(fraction_of(fraction, scale)))
                .and_then(|n| total.checked_add(n))
                .ok_or_else(too_long)?;
            rest = after;
        }
        let nanos = match negative {
            true => 0i64.checked_sub_unsigned(total),
            false => i64::try_from(total).ok(),
        };
        nanos.map(|nanos| GoDuration { nanos }).ok_or_else(too_long)
    }
}

fn digits(text: &str) -> (&str, &str) {
    text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()))
}

/// `0.fraction` times `scale`, in floating point as Go does it: a third of an hour, written with
/// enough threes, is 20 minutes.
fn fraction_of(fraction: &str, scale: u64) -> u64 {
    let mut value: u64 = 0;
    let mut divisor: f64 = 1.0;
    for digit in fraction.bytes().map(|b| u64::from(b - b'0')) {
        match value.checked_mul(10).and_then(|v| v.checked_add(digit)) {
            Some(v) if i64::try_from(v).is_ok() => value = v,
            _ => break,
        }
        divisor *= 10.0;
    }
    (value as f64 * (scale as f64 / divisor)) as u64
}

impl fmt::Display for GoDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nanos = self.nanos.unsigned_abs();
        if self.nanos < 0 {
            f.write_str("-")?;
        }
        if nanos == 0 {
            return f.write_str("0s");
        }
        if nanos < SECOND {
            let (unit, name) = match nanos {
                n if n < MICRO => (1, "ns"),
                n if n < MILLI => (MICRO, "\u{b5}s"),
                _ => (MILLI, "ms"),
            };
            return write!(f, "{}{name}", Decimal { value: nanos, unit });
        }
        let (hours, minutes) = (nanos / HOUR, nanos % HOUR / MINUTE);
        if hours > 0 {
            write!(f, "{hours}h")?;
        }
        if hours + minutes > 0 {
            write!(f, "{minutes}m")?;
        }
        write!(f, "{}s", Decimal { value: nanos % MINUTE, unit: SECOND })
    }
}

/// `value` in units of `unit`, without zeros at the end.
struct Decimal {
    value: u64,
    unit: u64,
}

impl fmt::Display for Decimal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.value / self.unit)?;
        let rest = self.value % self.unit;
        if rest == 0 {
            return Ok(());
        }
        let width = self.unit.ilog10() as usize;
        let digits = format!("{rest:0width$}");
        write!(f, ".{}", digits.trim_end_matches('0'))
    }
}

impl<'de> Deserialize<'de> for GoDuration {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<GoDuration, D::Error> {
        deserializer.deserialize_str(DurationVisitor { or_nanos: false })
    }
}

/// For a field that takes a number of nanoseconds as well.
pub fn or_nanos<'de, D: Deserializer<'de>>(deserializer: D) -> Result<GoDuration, D::Error> {
    deserializer.deserialize_any(DurationVisitor { or_nanos: true })
}

struct DurationVisitor {
    or_nanos: bool,
}

impl Visitor<'_> for DurationVisitor {
    type Value = GoDuration;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a duration like \"1m30s\"")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<GoDuration, E> {
        text.parse().map_err(E::custom)
    }

    fn visit_i64<E: de::Error>(self, nanos: i64) -> Result<GoDuration, E> {
        match self.or_nanos {
            true => Ok(GoDuration { nanos }),
            false => Err(E::invalid_type(de::Unexpected::Signed(nanos), &self)),
        }
    }
}

impl Serialize for GoDuration {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_parse_and_print_as_in_go() {
        let table: &[(&str, i64, &str)] = &[
            ("0", 0, "0s"),
            ("-0", 0, "0s"),
            ("0s", 0, "0s"),
            ("5s", 5_000_000_000, "5s"),
            ("+5s", 5_000_000_000, "5s"),
            ("-1s", -1_000_000_000, "-1s"),
            ("1m30s", 90_000_000_000, "1m30s"),
            ("90s", 90_000_000_000, "1m30s"),
            ("2m", 120_000_000_000, "2m0s"),
            ("1.5h", 5_400_000_000_000, "1h30m0s"),
            ("4h", 14_400_000_000_000, "4h0m0s"),
            ("300ms", 300_000_000, "300ms"),
            ("1.004s", 1_004_000_000, "1.004s"),
            (".5s", 500_000_000, "500ms"),
            ("5.s", 5_000_000_000, "5s"),
            ("12us", 12_000, "12\u{b5}s"),
            ("12\u{b5}s", 12_000, "12\u{b5}s"),
            ("12\u{3bc}s", 12_000, "12\u{b5}s"),
            ("1.5us", 1_500, "1.5\u{b5}s"),
            ("7ns", 7, "7ns"),
            ("1h2m3s4ms5us6ns", 3_723_004_005_006, "1h2m3.004005006s"),
            ("39h9m14.425s", 140_954_425_000_000, "39h9m14.425s"),
            ("0.3333333333333333333h", 1_200_000_000_000, "20m0s"),
            ("0.100000000000000000000h", 360_000_000_000, "6m0s"),
            ("9223372036854775807ns", i64::MAX, "2562047h47m16.854775807s"),
            ("-9223372036854775808ns", i64::MIN, "-2562047h47m16.854775808s"),
        ];
        for (text, nanos, printed) in table {
            let d: GoDuration = text.parse().unwrap_or_else(|e| panic!("{text}: {e}"));
            assert_eq!((d.nanos, d.to_string().as_str()), (*nanos, *printed), "{text}");
            assert_eq!(printed.parse(), Ok(d), "{text}, printed and read again");
        }
    }

    #[test]
    fn what_is_no_duration_says_why() {
        let units = "the units are h, m, s, ms, us and ns";
        let table: &[(&str, String)] = &[
            ("", "\"\" is not a duration; write it like \"1m30s\" or \"500ms\"".to_owned()),
            ("-", "\"-\" is not a duration; write it like \"1m30s\" or \"500ms\"".to_owned()),
            (".s", "\".s\" is not a duration; write it like \"1m30s\" or \"500ms\"".to_owned()),
            ("1m s", format!("\"1m s\" has the unknown unit \"m s\"; {units}")),
            ("20", format!("\"20\" has no unit; {units}")),
            ("1m30", format!("\"1m30\" has no unit; {units}")),
            ("3d", format!("\"3d\" has the unknown unit \"d\"; {units}")),
            ("9223372036854775808ns", "\"9223372036854775808ns\" is longer than 292 years".to_owned()),
            ("-9223372036854775809ns", "\"-9223372036854775809ns\" is longer than 292 years".to_owned()),
            ("99999999999999999999h", "\"99999999999999999999h\" is longer than 292 years".to_owned()),
            ("3000000h", "\"3000000h\" is longer than 292 years".to_owned()),
        ];
        for (text, message) in table {
            assert_eq!(text.parse::<GoDuration>().map_err(|e| e.to_string()), Err(message.clone()), "{text}");
        }
    }

    #[test]
    fn only_what_is_not_negative_is_a_std_duration() {
        assert_eq!(GoDuration::from_secs(3).std(), Some(Duration::from_secs(3)));
        assert_eq!(GoDuration::ZERO.std(), Some(Duration::ZERO));
        assert_eq!(GoDuration::from_nanos(-1).std(), None);
    }
}
