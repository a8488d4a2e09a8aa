//! Quantities with the scale in which Kubernetes keeps them.
//!
//! Kubernetes answers `isInteger()` by how a quantity was written: `1000m` and `1.0` are no integers although they equal
//! `1`. It keeps most amounts as a 64-bit number times a power of ten, and the rest, which are never integers, as
//! decimals of any size (apimachinery/pkg/api/resource/{quantity,amount}.go).

use portolan::model::Quantity;

#[derive(Clone, Copy, Debug)]
pub(super) struct Amount {
    pub(super) quantity: Quantity,
    /// The power of ten of a 64-bit amount.
    scale: Option<i32>,
}

/// Why text is not a quantity, in the words of Kubernetes.
pub(super) type Malformed = &'static str;

const PATTERN: Malformed = "quantities must match the regular expression \
    '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";
const SUFFIX: Malformed = "unable to parse quantity's suffix";
const NANOS: i128 = 1_000_000_000;

impl Amount {
    /// Returns the amount as the API server stores it, in the largest unit without a fraction.
    pub(super) fn canonical(quantity: Quantity) -> Amount {
        let nanos = quantity.nanos();
        let scale = [(NANOS, 0), (1_000_000, -3), (1_000, -6), (1, -9)]
            .into_iter()
            .find(|(unit, _)| nanos % unit == 0)
            .map(|(_, scale)| scale);
        Amount { quantity, scale }.fitted()
    }

    pub(super) fn parse(text: &str) -> Result<Amount, Malformed> {
        let rest = text.strip_prefix(['-', '+']).unwrap_or(text);
        let digits = |text: &str| text.bytes().take_while(u8::is_ascii_digit).count();
        let (whole, after) = rest.split_at(digits(rest));
        let (fraction, suffix) = match after.strip_prefix('.') {
            Some(after) => after.split_at(digits(after)),
            None => ("", after),
        };
        let Ok(quantity) = text.parse::<Quantity>() else {
            let letters = suffix.trim_start_matches(|c| "eEinumkKMGTP".contains(c));
            let exponent = letters.strip_prefix(['-', '+']).unwrap_or(letters);
            let matches = suffix.len() < rest.len() && digits(exponent) == exponent.len();
            return Err(if matches { SUFFIX } else { PATTERN });
        };
        let whole = whole.trim_start_matches('0').len().max(1);
        let scale = match suffix.strip_suffix('i') {
            // Binary amounts without a fraction, if they surely fit.
            Some(unit) => {
                let exponent = ["", "K", "M", "G", "T", "P", "E"]
                    .iter()
                    .position(|known| *known == unit)
                    .unwrap_or(0)
                    * 10;
                (fraction.is_empty() && whole + exponent * 3 / 10 < 15).then_some(0)
            }
            None => {
                let exponent: i32 = match suffix {
                    "n" => -9,
                    "u" => -6,
                    "m" => -3,
                    "" => 0,
                    "k" => 3,
                    "M" => 6,
                    "G" => 9,
                    "T" => 12,
                    "P" => 15,
                    "E" => 18,
                    other => other.get(1..).and_then(|digits| digits.parse().ok()).unwrap_or(0),
                };
                let scale =
                    i32::try_from(fraction.len()).map_or(-100, |len| exponent.saturating_sub(len));
                (whole + fraction.len() <= 18 && scale >= -9).then_some(scale)
            }
        };
        Ok(Amount { quantity, scale })
    }

    pub(super) fn add(self, other: Amount) -> Amount {
        self.combine(other, self.quantity + other.quantity)
    }

    pub(super) fn sub(self, other: Amount) -> Amount {
        self.combine(other, self.quantity - other.quantity)
    }

    pub(super) fn whole(units: i64) -> Amount {
        Amount { quantity: Quantity::whole(units), scale: Some(0) }
    }

    fn combine(self, other: Amount, quantity: Quantity) -> Amount {
        let scale = match (self.scale, other.scale) {
            (Some(_), scale) if self.quantity.is_zero() => scale,
            (scale, Some(_)) if other.quantity.is_zero() => scale,
            (Some(a), Some(b)) => Some(a.min(b)),
            _ => None,
        };
        Amount { quantity, scale }.fitted()
    }

    /// Drops the scale if the amount does not fit into 64 bits with it.
    fn fitted(self) -> Amount {
        let fits = self.scale.is_some_and(|scale| self.unscaled(scale).is_some());
        Amount { scale: self.scale.filter(|_| fits), ..self }
    }

    fn unscaled(self, scale: i32) -> Option<i64> {
        let unit = 10_i128.checked_pow(u32::try_from(scale.saturating_add(9)).ok()?);
        let value = unit.map_or(0, |unit| self.quantity.nanos() / unit);
        i64::try_from(value).ok()
    }

    /// Returns the integer if Kubernetes keeps the amount as one.
    pub(super) fn integer(self) -> Option<i64> {
        self.scale.filter(|scale| *scale >= 0)?;
        i64::try_from(self.quantity.nanos() / NANOS).ok()
    }

    pub(super) fn float(self) -> f64 {
        let exact = self.scale.and_then(|scale| Some((self.unscaled(scale)?, scale)));
        match exact {
            Some((value, 0)) => value as f64,
            Some((value, scale)) => {
                value as f64 * format!("1e{scale}").parse::<f64>().unwrap_or(f64::NAN)
            }
            None => self.quantity.nanos() as f64 / 1e9,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_depend_on_the_notation() {
        for (text, integer) in [
            ("1", Some(1)),
            ("1.0", None),
            ("1000m", None),
            ("1.5k", Some(1_500)),
            ("1.5Gi", None),
            ("2Gi", Some(2 << 30)),
            ("1e3", Some(1_000)),
            ("-5", Some(-5)),
            ("9999999999999999999999G", None),
            ("007", Some(7)),
        ] {
            assert_eq!(Amount::parse(text).map(Amount::integer), Ok(integer), "{text}");
        }
        let sum = |a, b| Some(Amount::parse(a).ok()?.add(Amount::parse(b).ok()?).integer());
        assert_eq!(sum("1", "1000m"), Some(None));
        assert_eq!(sum("1k", "1"), Some(Some(1_001)));
    }

    #[test]
    fn stored_amounts_are_integers_if_they_are_whole() {
        let integer = |text: &str| text.parse().ok().map(|q| Amount::canonical(q).integer());
        assert_eq!(integer("1000m"), Some(Some(1)));
        assert_eq!(integer("1500m"), Some(None));
        assert_eq!(integer("40Gi"), Some(Some(40 << 30)));
    }
}
