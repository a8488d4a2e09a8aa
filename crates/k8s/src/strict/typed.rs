//! Reads a tree into a type that knows its fields, and reports the fields that it does not have.

use std::cell::RefCell;
use std::collections::HashSet;
use std::fmt;
use std::ops::RangeInclusive;

use serde::Deserialize;
use serde::de::{
    self, DeserializeOwned, DeserializeSeed, Deserializer, EnumAccess, IntoDeserializer, MapAccess,
    SeqAccess, Visitor,
};
use serde::forward_to_deserialize_any;

use super::tree::{self, Spot, Tree};
use super::{Place, Sink, Step};

/// Returns the value, or nothing if a field has the wrong type, which is reported.
pub(super) fn read<T: DeserializeOwned>(
    spot: &Spot,
    place: Place,
    sink: &mut Sink<'_>,
) -> Option<T> {
    let found = RefCell::new(Vec::new());
    let read = T::deserialize(Typed { spot, place, of: "", fields: String::new(), found: &found });
    for (place, what) in found.into_inner() {
        sink.add(&place, what);
    }
    match read {
        Ok(read) => Some(read),
        Err(Wrong { place, what }) => {
            sink.add_wrong_type(&place.unwrap_or_default(), what);
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
    /// The Go struct that the value is in, and the path of its fields, which names neither keys of maps nor indices.
    of: &'static str,
    fields: String,
    found: &'t RefCell<Vec<(Place, String)>>,
}

impl<'t> Typed<'t> {
    fn of(&self, spot: &'t Spot, step: Step) -> Typed<'t> {
        let mut place = self.place.clone();
        place.push(step);
        Typed { spot, place, fields: self.fields.clone(), ..*self }
    }

    fn report(&self, key: &str, what: &str) {
        let mut place = self.place.clone();
        place.push(Step::Key(key.to_owned()));
        self.found.borrow_mut().push((place, what.to_owned()));
    }

    /// The error of Go's JSON decoder for a value that the type of a field does not accept. The Go type of a list or
    /// map is not known.
    fn mismatch(&self, go_type: Option<&str>) -> Wrong {
        let found = match &self.spot.tree {
            Tree::Null => "null".to_owned(),
            Tree::Bool(_) | Tree::Word(_) => "bool".to_owned(),
            Tree::Text(_) => "string".to_owned(),
            Tree::List(_) => "array".to_owned(),
            Tree::Map(_) => "object".to_owned(),
            Tree::Integer(_) | Tree::Unsigned(_) | Tree::Float(_)
                if go_type.is_none_or(|name| !name.starts_with("int")) =>
            {
                "number".to_owned()
            }
            Tree::Integer(number) => format!("number {number}"),
            Tree::Unsigned(number) => format!("number {number}"),
            Tree::Float(number) => format!("number {number}"),
        };
        let Typed { of, fields, .. } = self;
        let go_type = go_type.map(|name| format!(" of type {name}")).unwrap_or_default();
        let what = format!("cannot unmarshal {found} into Go struct field {of}.{fields}{go_type}");
        Wrong { place: Some(self.place.clone()), what }
    }

    /// Visits a whole number. `null` is the zero value of each type, as in Go.
    fn whole<'de, V: Visitor<'de>>(
        self,
        visitor: V,
        range: RangeInclusive<i64>,
        go_type: &str,
    ) -> Result<V::Value, Wrong> {
        match self.spot.tree {
            Tree::Null => visitor.visit_i64(0),
            Tree::Integer(number) if range.contains(&number) => visitor.visit_i64(number),
            _ => Err(self.mismatch(Some(go_type))),
        }
    }

    /// Visits a map.
    fn map<'de, V: Visitor<'de>>(
        &self,
        entries: &'t [(String, Spot)],
        visitor: V,
    ) -> Result<V::Value, Wrong> {
        let mut seen = HashSet::new();
        for (key, _) in entries {
            if !seen.insert(key) {
                self.report(key, "duplicate field");
            }
        }
        let entries = entries.iter().map(|(key, value)| (key, value));
        visitor.visit_map(Entries { of: self, entries, value: None, is_struct: false })
    }

    /// Visits the fields that a struct has. A field that is `null` is absent, as in Go.
    fn fields<'de, V: Visitor<'de>>(
        &self,
        entries: &'t [(String, Spot)],
        fields: &[&str],
        visitor: V,
    ) -> Result<V::Value, Wrong> {
        let mut seen = HashSet::new();
        let mut known = Vec::with_capacity(entries.len());
        for (key, value) in entries {
            if !fields.contains(&key.as_str()) {
                self.report(key, "unknown field");
                continue;
            }
            if !seen.insert(key) {
                self.report(key, "duplicate field");
            }
            if !matches!(value.tree, Tree::Null) {
                known.push((key, value));
            }
        }
        let entries = known.into_iter();
        visitor.visit_map(Entries { of: self, entries, value: None, is_struct: true })
    }
}

/// The error of apimachinery `ParseQuantity`.
const FORMAT: &str =
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";

impl<'de> Deserializer<'de> for Typed<'_> {
    type Error = Wrong;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Wrong> {
        let read = match &self.spot.tree {
            Tree::Null => visitor.visit_unit(),
            Tree::Bool(value) => visitor.visit_bool(*value),
            Tree::Integer(value) => visitor.visit_i64(*value),
            Tree::Unsigned(value) => visitor.visit_u64(*value),
            Tree::Float(value) => visitor.visit_f64(*value),
            Tree::Text(value) | Tree::Word(value) => visitor.visit_str(value),
            Tree::List(items) => {
                visitor.visit_seq(Items { of: &self, items: items.iter().enumerate() })
            }
            Tree::Map(entries) => self.map(entries, visitor),
        };
        read.map_err(|wrong| Wrong { place: wrong.place.or(Some(self.place)), ..wrong })
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Wrong> {
        let value = match &self.spot.tree {
            Tree::Null => Some(false),
            Tree::Bool(value) => Some(*value),
            Tree::Word(word) => tree::truth(word),
            _ => None,
        };
        match value {
            Some(value) => visitor.visit_bool(value),
            None => Err(self.mismatch(Some("bool"))),
        }
    }

    fn deserialize_i32<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Wrong> {
        self.whole(visitor, i32::MIN.into()..=i32::MAX.into(), "int32")
    }

    fn deserialize_i64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Wrong> {
        self.whole(visitor, i64::MIN..=i64::MAX, "int64")
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Wrong> {
        match &self.spot.tree {
            Tree::Null => visitor.visit_str(""),
            Tree::Text(text) => visitor.visit_str(text),
            Tree::Word(text) => {
                // Clients that read YAML 1.2 send a text.
                let Wrong { what, .. } = self.mismatch(Some("string"));
                self.found.borrow_mut().push((self.place, what));
                visitor.visit_str(text)
            }
            _ => Err(self.mismatch(Some("string"))),
        }
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Wrong> {
        self.deserialize_str(visitor)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Wrong> {
        match &self.spot.tree {
            Tree::Null => visitor.visit_seq(Items { of: &self, items: [].iter().enumerate() }),
            Tree::List(_) => self.deserialize_any(visitor),
            _ => Err(self.mismatch(None)),
        }
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Wrong> {
        match &self.spot.tree {
            Tree::Null => self.map(&[], visitor),
            Tree::Map(entries) => self.map(entries, visitor),
            _ => Err(self.mismatch(None)),
        }
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
        if name != "Quantity" {
            return visitor.visit_newtype_struct(self);
        }
        let text = match &self.spot.tree {
            Tree::Null => "0".to_owned(),
            // Quantities may be written as numbers.
            Tree::Integer(value) => value.to_string(),
            Tree::Unsigned(value) => value.to_string(),
            Tree::Float(value) => value.to_string(),
            Tree::Text(text) => text.trim().to_owned(),
            _ => String::new(),
        };
        if text.parse::<portolan::model::Quantity>().is_err() {
            return Err(Wrong { place: Some(self.place), what: FORMAT.to_owned() });
        }
        visitor.visit_newtype_struct(text.into_deserializer())
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Wrong> {
        let entries: &[(String, Spot)] = match &self.spot.tree {
            Tree::Null => &[],
            Tree::Map(entries) => entries,
            _ => return Err(self.mismatch(Some(&format!("v1.{name}")))),
        };
        Typed { of: name, ..self }.fields(entries, fields, visitor)
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
        i8 i16 i128 u8 u16 u32 u64 u128 f32 f64 char bytes byte_buf
        unit unit_struct tuple tuple_struct identifier ignored_any
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
        seed.deserialize(self.of.of(item, Step::Index(index))).map(Some)
    }
}

struct Entries<'t, 's, I> {
    of: &'s Typed<'t>,
    entries: I,
    value: Option<(&'t String, &'t Spot)>,
    is_struct: bool,
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
        let mut typed = self.of.of(value, Step::Key(key.clone()));
        if self.is_struct {
            typed.fields.push_str(if typed.fields.is_empty() { "" } else { "." });
            typed.fields.push_str(key);
        }
        seed.deserialize(typed)
    }
}

/// Reads a part of an object that is not a built-in kind.
pub(super) fn part<T: for<'de> Deserialize<'de>>(
    root: &Spot,
    place: &[Step],
    sink: &mut Sink<'_>,
) -> Option<T> {
    read(root.at(place)?, place.to_vec(), sink)
}
