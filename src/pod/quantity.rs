//! Quantities of resources: `100m`, `1.5Gi`, `1e3` (apimachinery/pkg/api/resource).

/// A quantity as an exact number of billionths; the API knows nothing finer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Quantity(i128);

const NANO: i128 = 1_000_000_000;

impl Quantity {
    /// `None` when `text` is no quantity. What is finer than a billionth is rounded up, away from
    /// zero; what is larger than the API's 2^63-1 is cut to that.
    pub fn parse(text: &str) -> Option<Quantity> {
        let (negative, body) = match text.as_bytes().first()? {
            b'-' => (true, text.get(1..)?),
            b'+' => (false, text.get(1..)?),
            _ => (false, text),
        };
        let end = body.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(body.len());
        let (number, suffix) = body.split_at(end);
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if whole.len() + fraction.len() == 0 || fraction.contains('.') {
            return None;
        }
        let magnitude = scale(whole, fraction, Multiplier::of(suffix)?);
        Some(Quantity(if negative { -magnitude } else { magnitude }))
    }

    pub fn of_value(value: i64) -> Quantity {
        Quantity(i128::from(value) * NANO)
    }

    pub fn of_milli_value(milli: i64) -> Quantity {
        Quantity(i128::from(milli) * (NANO / 1000))
    }

    /// Rounded up to a whole number.
    pub fn value(self) -> i64 {
        clamp(ceil_div(self.0, NANO))
    }

    /// Rounded up to a whole number of thousandths.
    pub fn milli_value(self) -> i64 {
        clamp(ceil_div(self.0, NANO / 1000))
    }

    pub fn is_zero(self) -> bool {
        self.0 == 0
    }

    pub fn is_negative(self) -> bool {
        self.0 < 0
    }

    pub fn is_whole(self) -> bool {
        self.0 % NANO == 0
    }
}

impl std::ops::Add for Quantity {
    type Output = Quantity;

    fn add(self, other: Quantity) -> Quantity {
        Quantity(self.0.saturating_add(other.0))
    }
}

impl std::iter::Sum for Quantity {
    fn sum<I: Iterator<Item = Quantity>>(items: I) -> Quantity {
        items.fold(Quantity::default(), |a, b| a + b)
    }
}

#[derive(Clone, Copy)]
enum Multiplier {
    /// times 1024^n
    Binary(u32),
    /// times 10^n
    Decimal(i32),
}

impl Multiplier {
    fn of(suffix: &str) -> Option<Multiplier> {
        use Multiplier::{Binary, Decimal};
        Some(match suffix {
            "" => Decimal(0),
            "n" => Decimal(-9),
            "u" => Decimal(-6),
            "m" => Decimal(-3),
            "k" => Decimal(3),
            "M" => Decimal(6),
            "G" => Decimal(9),
            "T" => Decimal(12),
            "P" => Decimal(15),
            "E" => Decimal(18),
            "Ki" => Binary(1),
            "Mi" => Binary(2),
            "Gi" => Binary(3),
            "Ti" => Binary(4),
            "Pi" => Binary(5),
            "Ei" => Binary(6),
            _ => Decimal(suffix.strip_prefix(['e', 'E'])?.parse().ok()?),
        })
    }
}

/// `whole.fraction` times the multiplier, in billionths.
fn scale(whole: &str, fraction: &str, multiplier: Multiplier) -> i128 {
    const MAX: i128 = i64::MAX as i128 * NANO;
    // Enough digits for any 64-bit value, and small enough for 1024^6 times it.
    const MAX_MANTISSA: i128 = 100_000_000_000_000_000_000;
    let digits = whole.len() + fraction.len();
    let mut mantissa: i128 = 0;
    let mut dropped = 0;
    let mut inexact = false;
    for (i, b) in whole.bytes().chain(fraction.bytes()).enumerate() {
        match mantissa.checked_mul(10).and_then(|m| m.checked_add(i128::from(b - b'0'))) {
            Some(m) if m <= MAX_MANTISSA => mantissa = m,
            _ => {
                dropped = digits - i;
                inexact = true;
                break;
            }
        }
    }
    let mut exponent =
        i64::try_from(dropped).unwrap_or(i64::MAX) - i64::try_from(fraction.len()).unwrap_or(i64::MAX) + 9;
    match multiplier {
        Multiplier::Decimal(n) => exponent += i64::from(n),
        Multiplier::Binary(n) => {
            for _ in 0..n {
                mantissa = match mantissa.checked_mul(1024) {
                    Some(m) => m,
                    None => return MAX,
                };
            }
        }
    }
    while exponent > 0 && mantissa != 0 {
        mantissa = match mantissa.checked_mul(10) {
            Some(m) if m <= MAX => m,
            _ => return MAX,
        };
        exponent -= 1;
    }
    while exponent < 0 && mantissa != 0 {
        inexact |= mantissa % 10 != 0;
        mantissa /= 10;
        exponent += 1;
    }
    (mantissa + i128::from(inexact)).min(MAX)
}

fn ceil_div(a: i128, b: i128) -> i128 {
    a.div_euclid(b) + i128::from(a.rem_euclid(b) != 0)
}

fn clamp(v: i128) -> i64 {
    i64::try_from(v).unwrap_or(if v < 0 { i64::MIN } else { i64::MAX })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities() {
        let table: &[(&str, i64, i64)] = &[
            ("0", 0, 0),
            ("1", 1, 1000),
            ("100m", 1, 100),
            ("1500m", 2, 1500),
            ("0.5", 1, 500),
            (".5", 1, 500),
            ("5.", 5, 5000),
            ("1.5Gi", 1_610_612_736, 1_610_612_736_000),
            ("64Mi", 67_108_864, 67_108_864_000),
            ("1e3", 1000, 1_000_000),
            ("1E-3", 1, 1),
            ("12k", 12_000, 12_000_000),
            ("1n", 1, 1),
            ("0.1m", 1, 1),
            ("-1500m", -1, -1500),
            ("+2", 2, 2000),
            ("9223372036854775807", i64::MAX, i64::MAX),
            ("100E", i64::MAX, i64::MAX),
            ("16Ei", i64::MAX, i64::MAX),
            ("1e400", i64::MAX, i64::MAX),
            ("1e-400", 1, 1),
            ("99999999999999999999999999999999999999999999", i64::MAX, i64::MAX),
            ("0.00000000000000000000000000000000000000000000001", 1, 1),
            ("0e999999999", 0, 0),
        ];
        for (text, value, milli) in table {
            let q = Quantity::parse(text).unwrap_or_else(|| panic!("{text} parses"));
            assert_eq!((q.value(), q.milli_value()), (*value, *milli), "{text}");
        }
        for text in ["", "m", "1.2.3", "1 Gi", "1gi", "1e", "e3", "--1", "0x10", "1KiB", "."] {
            assert_eq!(Quantity::parse(text), None, "{text:?}");
        }
    }

    #[test]
    fn sums() {
        let q = |s| Quantity::parse(s).unwrap_or_default();
        assert_eq!([q("100m"), q("1"), q("0.25")].into_iter().sum::<Quantity>().milli_value(), 1350);
    }
}
