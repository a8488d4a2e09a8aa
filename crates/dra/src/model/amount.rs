//! Quantities that keep their text.

use std::fmt;
use std::sync::Arc;

use portolan::model::{Quantity, QuantityError};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// A quantity with the text that denotes it, which is written back unchanged.
///
/// Two amounts are equal if their texts are equal: `1` and `1000m` differ, as they do for kube-scheduler, which compares
/// the structs. Compare [`Amount::quantity`] to compare the numbers.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Amount {
    text: Arc<str>,
    quantity: Quantity,
}

impl Amount {
    /// Parses a quantity such as `40Gi`.
    ///
    /// # Errors
    ///
    /// Returns an error if the text is not a quantity.
    pub fn parse(text: &str) -> Result<Amount, QuantityError> {
        Ok(Amount { quantity: text.parse()?, text: text.into() })
    }

    /// Creates an amount with the canonical decimal text.
    #[must_use]
    pub fn of(quantity: Quantity) -> Amount {
        Amount { text: quantity.to_string().into(), quantity }
    }

    /// Creates an amount with the canonical binary text, such as `40Gi`, or a decimal one if the number is not whole.
    #[must_use]
    pub fn binary(quantity: Quantity) -> Amount {
        const SUFFIXES: [&str; 7] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
        let mut whole = quantity.value();
        if whole == 0 || Quantity::whole(whole) != quantity {
            return Amount::of(quantity);
        }
        let mut suffix = 0;
        while whole % 1024 == 0 && suffix + 1 < SUFFIXES.len() {
            whole /= 1024;
            suffix += 1;
        }
        Amount { text: format!("{whole}{}", SUFFIXES[suffix]).into(), quantity }
    }

    /// Returns the number.
    #[must_use]
    pub fn quantity(&self) -> Quantity {
        self.quantity
    }

    /// Returns the text.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }
}

impl fmt::Debug for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Serialize for Amount {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.text)
    }
}

impl<'de> Deserialize<'de> for Amount {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Amount, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Written {
            Text(String),
            Number(serde_json::Number),
        }
        let text = match Written::deserialize(deserializer)? {
            Written::Text(text) => text,
            Written::Number(number) => number.to_string(),
        };
        Amount::parse(&text).map_err(de::Error::custom)
    }
}
