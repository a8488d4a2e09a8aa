//! Exact Kubernetes quantities: `100m`, `1.5Gi`, `2e3`.
//!
//! The rules are those of apimachinery `resource.Quantity`. A quantity is a number of billionths in an `i128`, so sums
//! are exact and floating point is never used. Input finer than a billionth is rounded away from zero. Amounts with a
//! binary suffix are capped at 2^63 - 1, and all others at the largest number of billionths in an `i128` (about 1.7 ×
//! 10^29), beyond which Kubernetes would keep counting. Unlike Kubernetes, text without any digit (`Ki`, `+`) is an
//! error rather than zero.

use std::fmt;
use std::str::FromStr;

/// An exact amount: a whole number of billionths, the finest unit that
/// Kubernetes keeps (finer input is rounded away from zero).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Quantity(i128);

/// The error for text that is not a quantity.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("quantity {text:?} is not a number with an optional suffix such as m, k, Mi or e3")]
pub struct QuantityError {
    /// The rejected text.
    pub text: String,
}

const NANOS: i128 = 1_000_000_000;

impl Quantity {
    /// Returns a quantity of `units` whole units.
    #[must_use]
    pub const fn whole(units: i64) -> Quantity {
        Quantity(units as i128 * NANOS)
    }

    /// Returns a quantity of `thousandths` thousandths.
    #[must_use]
    pub const fn milli(thousandths: i64) -> Quantity {
        Quantity(thousandths as i128 * (NANOS / 1_000))
    }

    /// Returns the amount in whole units, rounded away from zero (`Quantity.Value`) and clamped to 64 bits.
    #[must_use]
    pub fn value(self) -> i64 {
        away_from_zero(self.0, NANOS)
    }

    /// Returns the amount in thousandths, rounded away from zero (`Quantity.MilliValue`) and clamped to 64 bits.
    #[must_use]
    pub fn milli_value(self) -> i64 {
        away_from_zero(self.0, NANOS / 1_000)
    }

    /// Returns the exact amount in billionths.
    #[must_use]
    pub const fn nanos(self) -> i128 {
        self.0
    }

    /// Returns `true` if the amount is zero.
    #[must_use]
    pub fn is_zero(self) -> bool {
        self.0 == 0
    }

    /// Returns `true` if the amount is negative, which the engine accepts for no resource.
    #[must_use]
    pub fn is_negative(self) -> bool {
        self.0 < 0
    }
}

impl std::ops::Add for Quantity {
    type Output = Quantity;

    fn add(self, other: Quantity) -> Quantity {
        // The range is symmetric, so that every amount has a canonical text that parses back.
        Quantity(self.0.saturating_add(other.0).max(-i128::MAX))
    }
}

impl std::ops::Sub for Quantity {
    type Output = Quantity;

    fn sub(self, other: Quantity) -> Quantity {
        Quantity(self.0.saturating_sub(other.0).max(-i128::MAX))
    }
}

fn away_from_zero(amount: i128, unit: i128) -> i64 {
    let whole = amount / unit + (amount % unit).signum();
    whole.clamp(i64::MIN.into(), i64::MAX.into()) as i64
}

impl FromStr for Quantity {
    type Err = QuantityError;

    /// Parses a sign, a decimal number and a suffix: one of `n u m k M G T P E` and `Ki Mi Gi Ti Pi Ei`, or `e` or `E`
    /// with a decimal exponent. Exact. O(len).
    fn from_str(text: &str) -> Result<Quantity, QuantityError> {
        parse(text.as_bytes()).ok_or_else(|| QuantityError { text: text.to_owned() })
    }
}

/// The factor that a suffix denotes, as a power of ten or two.
#[derive(Clone, Copy)]
enum Scale {
    Ten(i64),
    Two(u32),
}

fn parse(text: &[u8]) -> Option<Quantity> {
    let (negative, rest) = match text {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        rest => (false, rest),
    };
    let (whole, rest) = digits(rest);
    let (fraction, suffix) = match rest {
        [b'.', rest @ ..] => digits(rest),
        rest => (&[][..], rest),
    };
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let magnitude = match scale(suffix)? {
        Scale::Ten(exponent) => decimal(whole, fraction, exponent),
        Scale::Two(exponent) => binary(whole, fraction, exponent),
    };
    Some(Quantity(if negative { -magnitude } else { magnitude }))
}

fn digits(text: &[u8]) -> (&[u8], &[u8]) {
    text.split_at(text.iter().position(|b| !b.is_ascii_digit()).unwrap_or(text.len()))
}

fn scale(suffix: &[u8]) -> Option<Scale> {
    Some(match suffix {
        b"" => Scale::Ten(0),
        b"n" => Scale::Ten(-9),
        b"u" => Scale::Ten(-6),
        b"m" => Scale::Ten(-3),
        b"k" => Scale::Ten(3),
        b"M" => Scale::Ten(6),
        b"G" => Scale::Ten(9),
        b"T" => Scale::Ten(12),
        b"P" => Scale::Ten(15),
        b"E" => Scale::Ten(18),
        b"Ki" => Scale::Two(10),
        b"Mi" => Scale::Two(20),
        b"Gi" => Scale::Two(30),
        b"Ti" => Scale::Two(40),
        b"Pi" => Scale::Two(50),
        b"Ei" => Scale::Two(60),
        // An exponent beyond 64 bits is an error, as in strconv.ParseInt.
        [b'e' | b'E', exponent @ ..] => {
            Scale::Ten(std::str::from_utf8(exponent).ok()?.parse().ok()?)
        }
        _ => return None,
    })
}

/// Returns `whole.fraction × 10^exponent` in billionths, saturating.
fn decimal(whole: &[u8], fraction: &[u8], exponent: i64) -> i128 {
    // The digits are read as one number, of which the first `kept` are at least a billionth.
    let kept = exponent.saturating_add(9).saturating_add(whole.len() as i64);
    let mut amount: i128 = 0;
    let mut at: i64 = 0;
    for digit in whole.iter().chain(fraction) {
        let digit = i128::from(digit - b'0');
        if at < kept {
            amount = amount.saturating_mul(10).saturating_add(digit);
        } else if digit > 0 {
            return amount.saturating_add(1);
        }
        at += 1;
    }
    while at < kept && amount != 0 && amount != i128::MAX {
        amount = amount.saturating_mul(10);
        at += 1;
    }
    amount
}

/// Returns `whole.fraction × 2^exponent` in billionths, capped at 2^63 - 1 units.
fn binary(whole: &[u8], fraction: &[u8], exponent: u32) -> i128 {
    const CAP: i128 = i64::MAX as i128 * NANOS;
    let unit = NANOS << exponent;
    let units = whole
        .iter()
        .fold(0_i128, |sum, digit| sum.saturating_mul(10).saturating_add(i128::from(digit - b'0')));
    // Long multiplication of the fraction from its last digit: `carry` stays below `unit`, and the discarded digits
    // matter only for whether the result is inexact.
    let mut carry: i128 = 0;
    let mut inexact = false;
    for digit in fraction.iter().rev() {
        let product = i128::from(digit - b'0') * unit + carry;
        inexact |= product % 10 != 0;
        carry = product / 10;
    }
    units.saturating_mul(unit).saturating_add(carry + i128::from(inexact)).min(CAP)
}

impl fmt::Display for Quantity {
    /// Writes the canonical decimal form: a whole number with the largest suffix that loses no precision (`1500m`,
    /// `2k`).
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SUFFIXES: [&str; 10] = ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"];
        let mut amount = self.0;
        let mut suffix = 0;
        if amount == 0 {
            return f.pad("0");
        }
        while amount % 1_000 == 0 && suffix + 1 < SUFFIXES.len() {
            amount /= 1_000;
            suffix += 1;
        }
        f.pad(&format!("{amount}{}", SUFFIXES[suffix]))
    }
}

// proptest is not a dependency under loom.
#[cfg(test)]
mod tests {
    use super::*;

    fn nanos(text: &str) -> i128 {
        text.parse::<Quantity>().unwrap_or_else(|e| panic!("{e}")).nanos()
    }

    fn value(text: &str) -> i64 {
        text.parse::<Quantity>().unwrap_or_else(|e| panic!("{e}")).value()
    }

    #[test]
    fn every_suffix_multiplies_by_its_power() {
        for (text, expected) in [
            ("1n", 1),
            ("1u", 1_000),
            ("1m", 1_000_000),
            ("1", NANOS),
            ("1k", 1_000 * NANOS),
            ("1M", 1_000_000 * NANOS),
            ("1G", NANOS * NANOS),
            ("1T", 1_000 * NANOS * NANOS),
            ("1P", 1_000_000 * NANOS * NANOS),
            ("1E", NANOS * NANOS * NANOS),
            ("1Ki", NANOS << 10),
            ("1Mi", NANOS << 20),
            ("1Gi", NANOS << 30),
            ("1Ti", NANOS << 40),
            ("1Pi", NANOS << 50),
            ("1Ei", NANOS << 60),
            ("1e3", 1_000 * NANOS),
            ("1E3", 1_000 * NANOS),
            ("1e+3", 1_000 * NANOS),
            ("1e-3", 1_000_000),
            ("+1.5Gi", 3 * (NANOS << 29)),
            (".5", NANOS / 2),
            ("5.", 5 * NANOS),
            ("-0", 0),
            ("007", 7 * NANOS),
        ] {
            assert_eq!(nanos(text), expected, "{text}");
        }
    }

    #[test]
    fn fractions_of_a_billionth_are_rounded_away_from_zero() {
        for (text, expected) in [
            ("0.1n", 1),
            ("-0.1n", -1),
            ("1.0000000001", NANOS + 1),
            ("1e-400", 1),
            ("0.00000000000001Ki", 1),
            ("-1.0000000001", -NANOS - 1),
            ("0e-400", 0),
        ] {
            assert_eq!(nanos(text), expected, "{text}");
        }
        assert_eq!((value("1.1"), value("-1.1"), value("1m")), (2, -2, 1));
        assert_eq!("100.1m".parse::<Quantity>().map(Quantity::milli_value), Ok(101));
    }

    #[test]
    fn large_amounts_are_capped() {
        assert_eq!(nanos("8Ei"), i128::from(i64::MAX) * NANOS);
        assert_eq!(nanos("-9999999999999999999999999999999999Ei"), -i128::from(i64::MAX) * NANOS);
        // Without a binary suffix the amount is exact, and only `value` is capped.
        assert_eq!(nanos("18446744073709551616"), (NANOS) << 64);
        assert_eq!(value("18446744073709551616"), i64::MAX);
        for text in ["1e9223372036854775807", "-1e400", &"9".repeat(1_000)] {
            assert_eq!(nanos(text).unsigned_abs(), i128::MAX.unsigned_abs(), "{text}");
        }
        assert_eq!(value("-1e400"), i64::MIN);
    }

    #[test]
    fn text_that_is_not_a_quantity_is_refused() {
        for text in [
            "",
            "+",
            ".",
            "Ki",
            "e3",
            "1e",
            "1e+",
            "1K",
            "1ki",
            "1mi",
            "1 Gi",
            " 1",
            "1 ",
            "1..2",
            "1.2.3",
            "--1",
            "1KiB",
            "0x10",
            "1_000",
            "1,5",
            "NaN",
            "inf",
            "½",
            "1é",
            "1e9223372036854775808",
            "1e1.5",
            "1ee3",
            "1mm",
        ] {
            assert!(text.parse::<Quantity>().is_err(), "{text}");
        }
    }

    #[test]
    fn sums_are_exact_and_do_not_wrap() {
        let sum = Quantity(i128::MAX) + Quantity(1);
        assert_eq!(sum, Quantity(i128::MAX));
        let least = Quantity(-i128::MAX);
        assert_eq!((least + least, least.to_string().parse()), (least, Ok(least)));
        assert_eq!("0.1".parse::<Quantity>().map(|q| q + q + q), "0.3".parse());
    }
}
