//! Kubernetes quantities, exactly: `100m`, `1.5Gi`, `2e3`.

/// An exact amount: a whole number of billionths, the finest unit that
/// Kubernetes keeps (finer input is rounded up).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Quantity(i128);

/// A text is not a quantity.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("quantity {text:?} is not a number with an optional suffix such as m, k, Mi or e3")]
pub struct QuantityError {
    /// The text.
    pub text: String,
}

const NANOS: i128 = 1_000_000_000;

impl Quantity {
    /// This many whole units.
    #[must_use]
    pub const fn whole(units: i64) -> Quantity {
        Quantity(units as i128 * NANOS)
    }

    /// This many thousandths.
    #[must_use]
    pub const fn milli(thousandths: i64) -> Quantity {
        Quantity(thousandths as i128 * (NANOS / 1_000))
    }

    /// The amount in whole units, rounded up (`Quantity.Value`).
    #[must_use]
    pub fn value(self) -> i64 {
        ceil(self.0, NANOS)
    }

    /// The amount in thousandths, rounded up (`Quantity.MilliValue`).
    #[must_use]
    pub fn milli_value(self) -> i64 {
        ceil(self.0, NANOS / 1_000)
    }

    /// Whether the amount is zero.
    #[must_use]
    pub fn is_zero(self) -> bool {
        self.0 == 0
    }
}

impl std::ops::Add for Quantity {
    type Output = Quantity;

    fn add(self, other: Quantity) -> Quantity {
        Quantity(self.0.saturating_add(other.0))
    }
}

fn ceil(amount: i128, unit: i128) -> i64 {
    let up = amount.div_euclid(unit) + i128::from(amount.rem_euclid(unit) > 0);
    up.clamp(i64::MIN.into(), i64::MAX.into()) as i64
}
