//! Reads types from a tree. Apart from pods and nodes, which are also read directly from JSON, every struct is compiled
//! for this deserializer only.
//!
//! An error has the path and the position of its value. YAML does not say whether `1.10` or `true` is meant as a text,
//! so a scalar without quotes is read as a text, as it is written, if the type asks for one.

use std::collections::HashMap;
use std::collections::hash_map::Entry::{Occupied, Vacant};
use std::iter::Enumerate;
use std::{slice, vec};

use serde::Deserialize;
use serde::de::value::{BorrowedStrDeserializer, MapAccessDeserializer};
use serde::de::{
    self, DeserializeSeed, Deserializer, IntoDeserializer, MapAccess, SeqAccess, Unexpected,
    Visitor,
};
use serde::forward_to_deserialize_any;

use super::checks::Checks;
use super::error::{Path, ReadError};
use super::tree::{Entry, Spot, Tree};

/// The YAML document of a tree. Empty for a tree of another origin.
#[derive(Clone, Copy, Default)]
pub(crate) struct Origin<'i> {
    pub(crate) text: &'i str,
    /// The number of lines before the document.
    pub(crate) before: u64,
}

/// A value from which a type is read.
#[derive(Clone, Copy)]
pub(crate) struct Typed<'t, 'p> {
    pub(crate) spot: &'t Spot<'t>,
    pub(crate) path: Path<'p>,
    /// The line of the value's key, or of the value itself.
    pub(crate) line: u64,
    origin: Origin<'t>,
    /// The struct that the value is in.
    pub(crate) of: &'static str,
    checks: Option<&'t Checks>,
}

impl<'t, 'p> Typed<'t, 'p> {
    /// Reads a tree, whose errors are at a path.
    pub(crate) fn new(spot: &'t Spot<'t>, path: Path<'p>, origin: Origin<'t>) -> Self {
        Typed { spot, path, line: spot.line, origin, of: "", checks: None }
    }

    /// Reads the value as a type. An error that names no part of the value has the location of the value.
    pub(crate) fn read<T: Deserialize<'t>>(self) -> Result<T, ReadError> {
        T::deserialize(self).map_err(|error| self.locate(error))
    }

    /// Reads a whole tree as an API server does, and reports what it would reject.
    #[cfg(feature = "strict")]
    pub(crate) fn checked(spot: &'t Spot<'t>, checks: &'t Checks) -> Typed<'t, 'static> {
        Typed { checks: Some(checks), ..Typed::new(spot, Path::Root, Origin::default()) }
    }

    /// Creates the error for a value of another type than `expected`. With checks, the error is the API
    /// server's, which names a Go type; that of a list or map is not known.
    pub(crate) fn mismatch(self, expected: &str, go_type: &str) -> ReadError {
        if self.checks.is_some() {
            return self.locate(de::Error::custom(self.unmarshal(go_type)));
        }
        let found = match &self.spot.tree {
            Tree::Null => Unexpected::Unit,
            Tree::Bool(value) => Unexpected::Bool(*value),
            Tree::Integer(number) => Unexpected::Signed(*number),
            Tree::Unsigned(number) => Unexpected::Unsigned(*number),
            Tree::Float(number) => Unexpected::Float(*number),
            Tree::Text(text) | Tree::Word(text) => Unexpected::Str(text),
            Tree::List(_) => Unexpected::Seq,
            Tree::Map(_) => Unexpected::Map,
        };
        self.locate(de::Error::invalid_type(found, &expected))
    }

    /// Adds the location of the value to an error of its type, unless a part of it is the cause.
    fn locate(self, error: ReadError) -> ReadError {
        if error.is_located() {
            return error;
        }
        if let Some(checks) = self.checks {
            checks.add(self, error.cause().to_string(), true);
        }
        error.at_path(&self.path, self.origin.position(self.spot.line, self.spot.column))
    }

    /// Returns whether the value is `null` where it stands for the zero value of each type, as in Go.
    fn is_zero(self) -> bool {
        self.checks.is_some() && matches!(self.spot.tree, Tree::Null)
    }

    /// Returns a whole number. kubectl sends a float without a fraction as one.
    fn whole(self) -> Option<i128> {
        match self.spot.tree {
            Tree::Null if self.is_zero() => Some(0),
            Tree::Integer(number) => Some(number.into()),
            Tree::Unsigned(number) => Some(number.into()),
            Tree::Float(number) if self.checks.is_some() => super::wire::whole(number),
            _ => None,
        }
    }

    /// Returns a number or a truth value as it is written.
    fn written(self) -> Option<&'t str> {
        let is_scalar = !matches!(self.spot.tree, Tree::Null | Tree::List(_) | Tree::Map(_));
        let text = self.origin.text.get(self.spot.source.clone());
        text.filter(|text| is_scalar && !text.is_empty())
    }

    /// Returns the entries of a map, or the fields of a struct. The last value of a repeated key counts, in the place
    /// of the first. A field that is `null` is absent for an API server.
    fn entries(self, entries: &'t [Entry<'t>], are_fields: bool) -> Entries<'t, 'p> {
        let mut kept: Vec<&Entry<'_>> = Vec::with_capacity(entries.len());
        let mut places = HashMap::new();
        for entry in entries {
            let known = match entries.len() <= FEW {
                true => kept.iter().position(|known| known.key == entry.key),
                false => match places.entry(&*entry.key) {
                    Occupied(place) => Some(*place.get()),
                    Vacant(place) => {
                        place.insert(kept.len());
                        None
                    }
                },
            };
            match known {
                Some(place) => kept[place] = entry,
                None => kept.push(entry),
            }
        }
        if are_fields && self.checks.is_some() {
            kept.retain(|entry| !matches!(entry.value.tree, Tree::Null));
        }
        Entries { of: self, are_fields, left: kept.into_iter(), next: None }
    }

    /// Reads the items of a list. Each one must be part of the type.
    fn visit_items<V: Visitor<'t>>(
        self,
        items: &'t [Spot<'t>],
        visitor: V,
    ) -> Result<V::Value, ReadError> {
        let mut access = Items { of: self, left: items.iter().enumerate() };
        let read = visitor.visit_seq(&mut access)?;
        match access.left.len() {
            0 => Ok(read),
            _ => Err(de::Error::invalid_length(items.len(), &"fewer items")),
        }
    }
}

/// The number of entries up to which comparing keys takes less time than hashing them.
const FEW: usize = 16;

/// The entries of a map, or the fields of a struct.
struct Entries<'t, 'p> {
    of: Typed<'t, 'p>,
    are_fields: bool,
    left: vec::IntoIter<&'t Entry<'t>>,
    /// The entry whose value is read next.
    next: Option<&'t Entry<'t>>,
}

impl<'t> Entries<'t, '_> {
    fn value(&self, entry: &'t Entry<'t>) -> Typed<'t, '_> {
        let path = match self.are_fields {
            true => self.of.path.key(&entry.key),
            false => Path::Entry(&self.of.path, &entry.key),
        };
        Typed { spot: &entry.value, path, line: entry.line, ..self.of }
    }
}

impl<'de> MapAccess<'de> for Entries<'de, '_> {
    type Error = ReadError;

    fn next_key_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, ReadError> {
        self.next = self.left.next();
        let Some(entry) = self.next else { return Ok(None) };
        seed.deserialize(Name { entry, of: self.value(entry) }).map(Some)
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, ReadError> {
        let entry = self.next.take().ok_or_else(|| de::Error::custom("a value without a key"))?;
        let value = self.value(entry);
        seed.deserialize(value).map_err(|error| value.locate(error))
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.left.len())
    }
}

/// The items of a list.
struct Items<'t, 'p> {
    of: Typed<'t, 'p>,
    left: Enumerate<slice::Iter<'t, Spot<'t>>>,
}

impl<'de> SeqAccess<'de> for Items<'de, '_> {
    type Error = ReadError;

    fn next_element_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, ReadError> {
        let Some((index, spot)) = self.left.next() else { return Ok(None) };
        let item = Typed { spot, path: self.of.path.index(index), line: spot.line, ..self.of };
        seed.deserialize(item).map(Some).map_err(|error| item.locate(error))
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.left.len())
    }
}

impl Origin<'_> {
    /// Returns the position in the input of a position in the document, if that is known.
    fn position(self, line: u64, column: u64) -> Option<(u64, u64)> {
        (column > 0).then_some((self.before + line, column))
    }
}

/// Reads whole numbers. `$expected` describes them in our errors, and `$go` is their type in those of an API server.
macro_rules! whole {
    ($($method:ident $visit:ident $number:ty, $go:literal: $expected:literal,)*) => {
        $(fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ReadError> {
            let number = self.whole().and_then(|number| <$number>::try_from(number).ok());
            visitor.$visit(number.ok_or_else(|| self.mismatch($expected, $go))?)
        })*
    };
}

impl<'de> Deserializer<'de> for Typed<'de, '_> {
    type Error = ReadError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ReadError> {
        match &self.spot.tree {
            Tree::Null => visitor.visit_unit(),
            Tree::Bool(_) | Tree::Word(_) => self.deserialize_bool(visitor),
            Tree::Integer(number) => visitor.visit_i64(*number),
            Tree::Unsigned(number) => visitor.visit_u64(*number),
            Tree::Float(number) if number.is_finite() => match self.whole().map(i64::try_from) {
                Some(Ok(number)) => visitor.visit_i64(number),
                _ => visitor.visit_f64(*number),
            },
            Tree::Float(_) => Err(self.mismatch("a number of JSON", "float64")),
            Tree::Text(text) => visitor.visit_borrowed_str(text),
            Tree::List(items) => self.visit_items(items, visitor),
            Tree::Map(entries) => visitor.visit_map(self.entries(entries, false)),
        }
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ReadError> {
        let value = self.spot.truth().or(self.is_zero().then_some(false));
        visitor.visit_bool(value.ok_or_else(|| self.mismatch("true or false", "bool"))?)
    }

    whole! {
        deserialize_i32 visit_i32 i32, "int32": "a whole number of at most 32 bits",
        deserialize_i64 visit_i64 i64, "int64": "a whole number",
        deserialize_u16 visit_u16 u16, "uint16": "a whole number from 0 to 65535",
        deserialize_u32 visit_u32 u32, "uint32": "a whole number from 0 to 4294967295",
        deserialize_u64 visit_u64 u64, "uint64": "a whole number from 0",
    }

    fn deserialize_f64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ReadError> {
        let number = self.spot.number().filter(|number| number.is_finite());
        visitor.visit_f64(number.ok_or_else(|| self.mismatch("a number", "float64"))?)
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ReadError> {
        if let (Some(checks), Tree::Word(_)) = (self.checks, &self.spot.tree) {
            // Clients that read YAML 1.2 send a text.
            checks.add(self, self.unmarshal("string"), false);
        }
        let text = match &self.spot.tree {
            Tree::Text(text) | Tree::Word(text) => Some(&**text),
            _ if self.is_zero() => Some(""),
            _ => self.written(),
        };
        let text = text.ok_or_else(|| self.mismatch("a text", "string"))?;
        visitor.visit_borrowed_str(text)
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ReadError> {
        self.deserialize_str(visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ReadError> {
        match &self.spot.tree {
            Tree::Null => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ReadError> {
        match &self.spot.tree {
            Tree::List(items) => self.visit_items(items, visitor),
            _ if self.is_zero() => self.visit_items(&[], visitor),
            _ => Err(self.mismatch("a list", "")),
        }
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ReadError> {
        match &self.spot.tree {
            Tree::Map(entries) => {
                if let Some(checks) = self.checks {
                    checks.repeated(self, entries);
                }
                visitor.visit_map(self.entries(entries, false))
            }
            _ if self.is_zero() => visitor.visit_map(self.entries(&[], false)),
            _ => Err(self.mismatch("an object", "")),
        }
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, ReadError> {
        let entries: &[Entry<'_>] = match &self.spot.tree {
            _ if name == AT => return visitor.visit_seq(Parts { of: self, has_line: false }),
            Tree::Map(entries) => entries,
            _ if self.is_zero() => &[],
            _ => return Err(self.mismatch("an object", &format!("v1.{name}"))),
        };
        let of = Typed { of: name, ..self };
        if let Some(checks) = self.checks {
            checks.fields(of, entries, fields);
        }
        visitor.visit_map(of.entries(entries, true))
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, ReadError> {
        match self.checks {
            Some(_) if name == "Quantity" => {
                visitor.visit_newtype_struct(self.quantity()?.into_deserializer())
            }
            _ => visitor.visit_newtype_struct(self),
        }
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, ReadError> {
        match &self.spot.tree {
            Tree::Map(entries) => {
                let access = MapAccessDeserializer::new(self.entries(entries, false));
                access.deserialize_enum(name, variants, visitor)
            }
            _ => {
                let text = self.spot.text().ok_or_else(|| self.mismatch("a text", "string"))?;
                visitor.visit_enum(BorrowedStrDeserializer::new(text))
            }
        }
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ReadError> {
        visitor.visit_unit()
    }

    forward_to_deserialize_any! {
        i8 i16 i128 u8 u128 f32 char bytes byte_buf unit unit_struct tuple tuple_struct identifier
    }
}

/// The key of an entry.
struct Name<'t, 'p> {
    entry: &'t Entry<'t>,
    /// Its value.
    of: Typed<'t, 'p>,
}

impl<'de> Deserializer<'de> for Name<'de, '_> {
    type Error = ReadError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ReadError> {
        let Name { entry, of } = self;
        let read: Result<V::Value, ReadError> = visitor.visit_borrowed_str(&entry.key);
        read.map_err(|error| error.at_path(&of.path, of.origin.position(entry.line, entry.column)))
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, ReadError> {
        visitor.visit_enum(BorrowedStrDeserializer::new(&self.entry.key))
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct
        newtype_struct seq tuple tuple_struct map struct identifier ignored_any
    }
}

/// A value and the line on which it starts. Only [`from_str`](crate::yaml::from_str) and configurations read it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename = "portolan_k8s::yaml::At")]
pub struct At<T> {
    /// The line, counted from 1.
    pub line: u64,
    /// The value.
    pub value: T,
}

/// The name by which [`Typed`] recognizes an [`At`].
const AT: &str = "portolan_k8s::yaml::At";

/// The line and the value of an [`At`].
struct Parts<'t, 'p> {
    of: Typed<'t, 'p>,
    has_line: bool,
}

impl<'de> SeqAccess<'de> for Parts<'de, '_> {
    type Error = ReadError;

    fn next_element_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, ReadError> {
        if std::mem::replace(&mut self.has_line, true) {
            return seed.deserialize(self.of).map(Some);
        }
        let Typed { spot, origin, .. } = self.of;
        seed.deserialize((origin.before + spot.line).into_deserializer()).map(Some)
    }
}
