//! Reads one object directly from the bytes that an API server sends.
//!
//! Pods and nodes are read without an intermediate tree: fields that scheduling does not read are skipped, and strings are borrowed from the bytes. Objects of other
//! kinds, and unusual input (an error, a repeated field, an unexpected kind), are read through a [`Spot`]. That is
//! slower, but those structs are compiled only once. Both ways give the same result; an error costs a second pass but
//! names its field.

use std::fmt;
use std::marker::PhantomData;

use serde::de::value::{CowStrDeserializer, MapAccessDeserializer};
use serde::de::{self, Deserialize, DeserializeSeed, Deserializer, MapAccess, Visitor};

use super::error::{Cause, Path, ReadError};
use super::framing;
use super::single;
use super::tree::{Progress, Spot};
use super::wire::{Key, Text};
use portolan::model::{Node, Object, Pod};

/// Reads a pod from its JSON, as an API server stores it, such as the object of a watch event: no defaults are filled in,
/// and an empty uid stays empty. `kind` is checked if it is present, and `apiVersion` is ignored. Pods in phase Succeeded
/// or Failed are read like any other, and marked as finished. O(length).
///
/// Fields that scheduling does not read are only checked for their syntax: a number in such a field may exceed the
/// range of a double, an escape may be an unpaired surrogate, and arrays and objects may be nested more than 127 levels
/// deep, without recursion.
///
/// ```
/// let pod = portolan_k8s::pod_from_slice(br#"{"kind":"Pod","apiVersion":"v1",
///     "metadata":{"name":"web-0","namespace":"shop","uid":"u-1","managedFields":[{"manager":"kubelet"}]},
///     "spec":{"containers":[{"name":"web","resources":{"requests":{"cpu":"250m"}}}]}}"#)?;
/// assert_eq!(pod.template.resources.incoming.cpu.0, 250);
///
/// let error = portolan_k8s::pod_from_slice(br#"{"spec":{"priority":"high"}}"#).unwrap_err();
/// assert_eq!(error.path(), "spec.priority");
/// # Ok::<(), portolan_k8s::ReadError>(())
/// ```
///
/// # Errors
///
/// The bytes are not JSON, the object is of another kind, or a field has the wrong type or an invalid value.
pub fn pod_from_slice(bytes: &[u8]) -> Result<Pod, ReadError> {
    direct(bytes, "Pod").and_then(single::pod_of).or_else(|_| single::pod_in(&value(bytes)?))
}

/// Reads a node from its JSON, see [`pod_from_slice`].
///
/// # Errors
///
/// As for [`pod_from_slice`].
pub fn node_from_slice(bytes: &[u8]) -> Result<Node, ReadError> {
    direct(bytes, "Node").and_then(single::node_of).or_else(|_| single::node_in(&value(bytes)?))
}

/// Reads an object of one of the other kinds that an engine stores from its JSON. `kind` is used if the object does not name its own kind, as in the
/// items of a list.
///
/// # Errors
///
/// As for [`pod_from_slice`]. It is also an error if the engine does not store objects of the kind.
pub fn object_from_slice(kind: &str, bytes: &[u8]) -> Result<Object, ReadError> {
    single::object_in(kind, &value(bytes)?)
}

/// Parses all bytes as a tree.
pub(super) fn value(bytes: &[u8]) -> Result<Spot<'_>, ReadError> {
    let mut json = serde_json::Deserializer::from_str(framing::text(bytes)?);
    let value = Progress::default().next(&mut json)?;
    json.end().map_err(|error| ReadError::json(String::new(), &error))?;
    Ok(value)
}

/// Reads a struct directly from bytes, and compares the kind if the object names its kind. Fails if the input is
/// unusual.
pub(super) fn direct<'b, T: Deserialize<'b>>(
    bytes: &'b [u8],
    expected: &str,
) -> Result<T, ReadError> {
    let mut kind = None;
    // Validating UTF-8 once is faster than validating each string.
    let mut json = serde_json::Deserializer::from_str(framing::text(bytes)?);
    let read = json.deserialize_map(Fields { kind: &mut kind, read: PhantomData });
    let read = read.and_then(|read| json.end().map(|()| read));
    let read = read.map_err(|error| ReadError::json(String::new(), &error))?;
    let other = || ReadError::new(&Path::Root, Cause::Syntax("another kind".to_owned()));
    kind.is_none_or(|kind| *kind == *expected).then_some(read).ok_or_else(other)
}

/// Reads a struct from an object, and the kind along with it.
struct Fields<'f, 'b, T> {
    kind: &'f mut Option<Text<'b>>,
    read: PhantomData<T>,
}

impl<'b, T: Deserialize<'b>> Visitor<'b> for Fields<'_, 'b, T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a Kubernetes object")
    }

    fn visit_map<A: MapAccess<'b>>(self, map: A) -> Result<T, A::Error> {
        T::deserialize(MapAccessDeserializer::new(WithoutKind { kind: self.kind, map }))
    }
}

/// The fields of an object without its kind.
struct WithoutKind<'f, 'b, A> {
    kind: &'f mut Option<Text<'b>>,
    map: A,
}

impl<'b, A: MapAccess<'b>> MapAccess<'b> for WithoutKind<'_, 'b, A> {
    type Error = A::Error;

    fn next_key_seed<K: DeserializeSeed<'b>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, A::Error> {
        while let Some(Key(key)) = self.map.next_key::<Key<'b>>()? {
            if &*key != "kind" {
                return seed.deserialize(CowStrDeserializer::new(key.0)).map(Some);
            }
            // The last value of a repeated key counts: the caller reads the tree instead.
            if self.kind.replace(self.map.next_value()?).is_some() {
                return Err(de::Error::custom("the kind is repeated"));
            }
        }
        Ok(None)
    }

    fn next_value_seed<V: DeserializeSeed<'b>>(&mut self, seed: V) -> Result<V::Value, A::Error> {
        self.map.next_value_seed(seed)
    }
}
