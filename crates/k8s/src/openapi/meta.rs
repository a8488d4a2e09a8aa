//! The parts that pods and nodes share: texts, lists, maps, quantities, metadata.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::marker::PhantomData;

use k8s_openapi::api::core::v1 as api;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1 as api_meta;
use serde::de::value::MapDeserializer;
use serde::de::{self, Deserialize, Deserializer, IntoDeserializer, Visitor};
use serde::forward_to_deserialize_any;

use crate::error::{Cause, Path, ReadError};
use crate::wire::{
    Amounts, Annotations, List, Map, Metadata, OwnerReference, QuantityText, ResourceRequirements,
    Text, TextMap,
};

pub(super) fn text(text: &str) -> Text<'_> {
    Text(Cow::Borrowed(text))
}

/// Returns the text, or an empty one if it is absent.
pub(super) fn optional(found: &Option<String>) -> Text<'_> {
    text(found.as_deref().unwrap_or_default())
}

pub(super) fn list<'a, T, U>(found: &'a Option<Vec<T>>, lend: impl Fn(&'a T) -> U) -> List<U> {
    List(found.iter().flatten().map(lend).collect())
}

pub(super) fn texts(found: &Option<Vec<String>>) -> List<Text<'_>> {
    list(found, |one| text(one))
}

pub(super) fn text_map(found: &Option<BTreeMap<String, String>>) -> TextMap<'_> {
    Map(found.iter().flatten().map(|(key, value)| (text(key), text(value))).collect())
}

pub(super) fn amounts(found: &BTreeMap<String, Quantity>) -> Amounts<'_> {
    Map(found.iter().map(|(key, value)| (text(key), QuantityText(text(&value.0)))).collect())
}

/// Returns the amounts, or none if they are absent.
pub(super) fn optional_amounts(found: &Option<BTreeMap<String, Quantity>>) -> Amounts<'_> {
    found.as_ref().map(amounts).unwrap_or_default()
}

pub(super) fn resources(found: &api::ResourceRequirements) -> ResourceRequirements<'_> {
    ResourceRequirements {
        requests: optional_amounts(&found.requests),
        limits: optional_amounts(&found.limits),
    }
}

/// Formats the time as RFC 3339, so that the code that reads bytes also checks its range (64 bits of nanoseconds).
pub(super) fn time(found: &Option<api_meta::Time>) -> Text<'static> {
    Text(found.as_ref().map(|time| Cow::Owned(time.0.to_string())).unwrap_or_default())
}

/// Converts the metadata. Fails only if [`Annotations`] gets a field that is not a text; it has none today.
pub(super) fn metadata(meta: &api_meta::ObjectMeta) -> Result<Metadata<'_>, ReadError> {
    Ok(Metadata {
        name: optional(&meta.name),
        generate_name: optional(&meta.generate_name),
        namespace: optional(&meta.namespace),
        uid: optional(&meta.uid),
        resource_version: optional(&meta.resource_version),
        labels: text_map(&meta.labels),
        annotations: meta.annotations.as_ref().map(annotations).transpose()?,
        creation_timestamp: time(&meta.creation_timestamp),
        deletion_timestamp: time(&meta.deletion_timestamp),
        owner_references: list(&meta.owner_references, |owner| OwnerReference {
            api_version: text(&owner.api_version),
            kind: text(&owner.kind),
            name: text(&owner.name),
            uid: text(&owner.uid),
            controller: owner.controller,
        }),
    })
}

/// Deserializes the annotations, because the attributes of [`Annotations`] alone name their keys.
fn annotations(found: &BTreeMap<String, String>) -> Result<Annotations<'_>, ReadError> {
    let entries = found.iter().map(|(key, value)| (Lent(key), Lent(value)));
    Deserialize::deserialize(MapDeserializer::new(entries)).map_err(|error: de::value::Error| {
        let path = Path::Root;
        ReadError::new(&path.key("metadata").key("annotations"), Cause::Syntax(error.to_string()))
    })
}

/// A text that is deserialized without a copy. Unlike serde's own deserializer of texts, it can be an `Option`.
struct Lent<'a>(&'a str);

impl<'a, E: de::Error> IntoDeserializer<'a, E> for Lent<'a> {
    type Deserializer = LentDeserializer<'a, E>;

    fn into_deserializer(self) -> LentDeserializer<'a, E> {
        LentDeserializer { text: self.0, error: PhantomData }
    }
}

struct LentDeserializer<'a, E> {
    text: &'a str,
    error: PhantomData<E>,
}

impl<'de, E: de::Error> Deserializer<'de> for LentDeserializer<'de, E> {
    type Error = E;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, E> {
        visitor.visit_borrowed_str(self.text)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, E> {
        visitor.visit_some(self)
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct
        newtype_struct seq tuple tuple_struct map struct enum identifier ignored_any
    }
}
