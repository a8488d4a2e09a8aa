//! Reads a tree into a type that knows its fields, and reports the fields that it does not have.

use std::cell::RefCell;
use std::collections::HashSet;
use std::fmt;

use serde::Deserialize;
use serde::de::{
    self, DeserializeOwned, DeserializeSeed, Deserializer, EnumAccess, IntoDeserializer, MapAccess,
    SeqAccess, Visitor,
};
use serde::forward_to_deserialize_any;

use super::tree::{Spot, Tree};
use super::{Place, Sink, Step};

/// Returns the value, or nothing if a field has the wrong type, which is reported.
pub(super) fn read<T: DeserializeOwned>(
    spot: &Spot,
    place: Place,
    sink: &mut Sink<'_>,
) -> Option<T> {
    let found = RefCell::new(Vec::new());
    let read = T::deserialize(Typed { spot, place, found: &found });
    for (place, what) in found.into_inner() {
        sink.add(&place, what);
    }
    match read {
        Ok(read) => Some(read),
        Err(Wrong { place, what }) => {
            sink.add(&place.unwrap_or_default(), what);
            None
        }
    }
}

/// A value of the wrong type.
#[derive(Debug)]
struct Wrong {
    place: Option<Place>,
    what: String,
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

impl std::error::Error for Wrong {}

impl de::Error for Wrong {
    fn custom<T: fmt::Display>(what: T) -> Wrong {
        Wrong { place: None, what: what.to_string() }
    }
}

/// A value, its place, and the problems found so far.
#[derive(Clone)]
struct Typed<'t> {
    spot: &'t Spot,
    place: Place,
    found: &'t RefCell<Vec<(Place, String)>>,
}

impl<'t> Typed<'t> {
    fn of(&self, spot: &'t Spot, step: Step) -> Typed<'t> {
        let mut place = self.place.clone();
        place.push(step);
        Typed { spot, place, found: self.found }
    }

    fn report(&self, key: &str, what: &str) {
        let mut place = self.place.clone();
        place.push(Step::Key(key.to_owned()));
        self.found.borrow_mut().push((place, what.to_owned()));
    }

    /// Visits a map, without the fields that the type does not have.
    fn map<'de, V: Visitor<'de>>(
        &self,
        entries: &'t [(String, Spot)],
        fields: Option<&[&str]>,
        visitor: V,
    ) -> Result<V::Value, Wrong> {
        let mut seen = HashSet::new();
        let mut known = Vec::with_capacity(entries.len());
        for (key, value) in entries {
            if fields.is_some_and(|fields| !fields.contains(&key.as_str())) {
                self.report(key, "unknown field");
                continue;
            }
            if !seen.insert(key) {
                self.report(key, "duplicate field");
            }
            known.push((key, value));
        }
        visitor.visit_map(Entries { of: self, entries: known.into_iter(), value: None })
    }
}

impl<'de> Deserializer<'de> for Typed<'_> {
    type Error = Wrong;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Wrong> {
        let read = match &self.spot.tree {
            Tree::Null => visitor.visit_unit(),
            Tree::Bool(value) => visitor.visit_bool(*value),
            Tree::Integer(value) => visitor.visit_i64(*value),
            Tree::Unsigned(value) => visitor.visit_u64(*value),
            Tree::Float(value) => visitor.visit_f64(*value),
            Tree::Text(value) => visitor.visit_str(value),
            Tree::List(items) => {
                visitor.visit_seq(Items { of: &self, items: items.iter().enumerate() })
            }
            Tree::Map(entries) => self.map(entries, None, visitor),
        };
        read.map_err(|wrong| Wrong { place: wrong.place.or(Some(self.place)), ..wrong })
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Wrong> {
        match &self.spot.tree {
            Tree::Null => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Wrong> {
        // Quantities may be written as numbers.
        let number = match &self.spot.tree {
            Tree::Integer(value) => Some(value.to_string()),
            Tree::Unsigned(value) => Some(value.to_string()),
            Tree::Float(value) => Some(value.to_string()),
            _ => None,
        };
        match number.filter(|_| name == "Quantity") {
            Some(number) => visitor.visit_newtype_struct(number.into_deserializer()),
            None => visitor.visit_newtype_struct(self),
        }
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Wrong> {
        match &self.spot.tree {
            Tree::Map(entries) => self.map(entries, Some(fields), visitor),
            _ => self.deserialize_any(visitor),
        }
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Wrong> {
        visitor.visit_enum(Variant { of: self })
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf
        unit unit_struct seq tuple tuple_struct map identifier ignored_any
    }
}

/// An enum of texts, the only kind that Kubernetes has.
struct Variant<'t> {
    of: Typed<'t>,
}

impl<'de> EnumAccess<'de> for Variant<'_> {
    type Error = Wrong;
    type Variant = Unit;

    fn variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<(S::Value, Unit), Wrong> {
        seed.deserialize(self.of).map(|value| (value, Unit))
    }
}

struct Unit;

impl<'de> de::VariantAccess<'de> for Unit {
    type Error = Wrong;

    fn unit_variant(self) -> Result<(), Wrong> {
        Ok(())
    }

    fn newtype_variant_seed<S: DeserializeSeed<'de>>(self, _: S) -> Result<S::Value, Wrong> {
        Err(de::Error::custom("unexpected value"))
    }

    fn tuple_variant<V: Visitor<'de>>(self, _: usize, _: V) -> Result<V::Value, Wrong> {
        Err(de::Error::custom("unexpected value"))
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        _: &'static [&'static str],
        _: V,
    ) -> Result<V::Value, Wrong> {
        Err(de::Error::custom("unexpected value"))
    }
}

struct Items<'t, I> {
    of: &'t Typed<'t>,
    items: I,
}

impl<'de, 't, I: Iterator<Item = (usize, &'t Spot)>> SeqAccess<'de> for Items<'t, I> {
    type Error = Wrong;

    fn next_element_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, Wrong> {
        let Some((index, item)) = self.items.next() else { return Ok(None) };
        let item = Typed { found: self.of.found, ..self.of.of(item, Step::Index(index)) };
        seed.deserialize(item).map(Some)
    }
}

struct Entries<'t, 's, I> {
    of: &'s Typed<'t>,
    entries: I,
    value: Option<(&'t String, &'t Spot)>,
}

impl<'de, 't, I: Iterator<Item = (&'t String, &'t Spot)>> MapAccess<'de> for Entries<'t, '_, I> {
    type Error = Wrong;

    fn next_key_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, Wrong> {
        self.value = self.entries.next();
        let Some((key, _)) = self.value else { return Ok(None) };
        let key: de::value::StrDeserializer<'_, Wrong> = key.as_str().into_deserializer();
        seed.deserialize(key).map(Some)
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, Wrong> {
        let Some((key, value)) = self.value.take() else {
            return Err(de::Error::custom("a value without a key"));
        };
        seed.deserialize(self.of.of(value, Step::Key(key.clone())))
    }
}

/// Reads a part of an object that is not a built-in kind.
pub(super) fn part<T: for<'de> Deserialize<'de>>(
    root: &Spot,
    place: &[Step],
    sink: &mut Sink<'_>,
) -> Option<T> {
    let mut spot = root;
    for step in place {
        spot = match step {
            Step::Key(key) => spot.get(key)?,
            Step::Index(index) => spot.item(*index)?,
        };
    }
    read(spot, place.to_vec(), sink)
}
