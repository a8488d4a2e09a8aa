//! Reads one object directly from the bytes that an API server sends.
//!
//! The functions fill the same structs as [`pod`](crate::pod), [`node`](crate::node) and [`object`](crate::object), but
//! without an intermediate tree: fields that scheduling does not read are skipped, and strings are borrowed from the
//! bytes. A [`Spot`] is built only for unusual input: an error, a repeated field, or an unexpected kind. The function
//! for trees then decides, so both ways give the same result, and an error costs a second pass but names its field.

use std::fmt;
use std::marker::PhantomData;

use serde::de::value::{CowStrDeserializer, MapAccessDeserializer};
use serde::de::{self, Deserialize, DeserializeSeed, Deserializer, MapAccess, Visitor};

use super::error::{Cause, Path, ReadError};
use super::single::{self, Source};
use super::tree::{self, Spot};
use super::wire::{Key, Text};
use portolan::model::{Node, Object, Pod};

/// Reads a pod from its JSON. The result is the same as that of [`pod`](crate::pod) for the parsed bytes, and reading
/// is about three times as fast.
///
/// Use it for single pods of an API server, such as the object of a watch event: no defaults are filled in. O(length).
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
    let read = single::pod_of(Direct { bytes, kind: "Pod", api_version: None });
    read.or_else(|_| single::pod_in(&value(bytes)?))
}

/// Reads a node from its JSON. The result is the same as that of [`node`](crate::node) for the parsed bytes. See
/// [`pod_from_slice`].
///
/// # Errors
///
/// As for [`pod_from_slice`].
pub fn node_from_slice(bytes: &[u8]) -> Result<Node, ReadError> {
    let read = single::node_of(Direct { bytes, kind: "Node", api_version: None });
    read.or_else(|_| single::node_in(&value(bytes)?))
}

/// Reads an object of one of the other kinds that an engine stores from its JSON. The result is the same as that of
/// [`object`](crate::object) for the parsed bytes. `kind` is used if the object does not name its own kind, as in the
/// items of a list.
///
/// Reading is fastest if `apiVersion` and `kind` come first, as an API server writes them. See [`pod_from_slice`].
///
/// # Errors
///
/// As for [`pod_from_slice`]. It is also an error if the engine does not store objects of the kind.
pub fn object_from_slice(kind: &str, bytes: &[u8]) -> Result<Object, ReadError> {
    let found = TypeMeta::of(bytes);
    let own = found.kind.as_deref().unwrap_or(kind);
    let api_version = found.api_version.as_deref().unwrap_or_default();
    let direct = Direct { bytes, kind: own, api_version: Some(api_version) };
    let read = single::object_of(own, api_version, direct);
    read.or_else(|_| single::object_in(kind, &value(bytes)?))
}

/// Parses all bytes as a tree, for input that could not be read directly.
pub(super) fn value(bytes: &[u8]) -> Result<Spot<'static>, ReadError> {
    let mut values = tree::json(bytes)?;
    match values.pop() {
        Some(value) if values.is_empty() => Ok(value),
        _ => Err(ReadError::new(&Path::Root, Cause::Syntax("trailing characters".to_owned()))),
    }
}

/// Bytes from which a struct is read directly. Reading fails if the input is unusual.
struct Direct<'b, 'k> {
    bytes: &'b [u8],
    /// The expected kind, which is compared if the object names its kind.
    kind: &'k str,
    /// The expected API version, if the struct depends on it.
    api_version: Option<&'k str>,
}

impl<'b> Source<'b> for Direct<'b, '_> {
    fn read<T: Deserialize<'b>>(self) -> Result<T, ReadError> {
        let mut found = TypeMeta::default();
        // Validating UTF-8 once is faster than validating each string.
        let text = str::from_utf8(self.bytes)
            .map_err(|error| ReadError::new(&Path::Root, Cause::Syntax(error.to_string())))?;
        let mut json = serde_json::Deserializer::from_str(text);
        let fields = Fields { found: &mut found, read: PhantomData };
        let read = fields.deserialize(&mut json).and_then(|read| json.end().map(|()| read));
        let read = read.map_err(|error| ReadError::json(String::new(), &error))?;
        let version = found.api_version.as_deref().unwrap_or_default();
        let is_expected = found.kind.is_none_or(|kind| *kind == *self.kind)
            && self.api_version.is_none_or(|expected| expected == version);
        let other = || ReadError::new(&Path::Root, Cause::Syntax("another kind".to_owned()));
        is_expected.then_some(read).ok_or_else(other)
    }
}

/// The type fields of an object.
#[derive(Default)]
struct TypeMeta<'b> {
    kind: Option<Text<'b>>,
    api_version: Option<Text<'b>>,
}

impl<'b> TypeMeta<'b> {
    /// Reads the bytes until both fields are found, or to the end if one is missing.
    fn of(bytes: &'b [u8]) -> TypeMeta<'b> {
        let mut found = TypeMeta::default();
        let mut json = serde_json::Deserializer::from_slice(bytes);
        // An error here occurs again when the fields are read.
        let _ = Deserializer::deserialize_map(&mut json, Search { found: &mut found });
        found
    }

    /// Reads the value if the key is one of the two. A repeated key is an error here, because the last value would
    /// count.
    fn take<A: MapAccess<'b>>(&mut self, key: &str, map: &mut A) -> Result<bool, A::Error> {
        let place = match key {
            "kind" => &mut self.kind,
            "apiVersion" => &mut self.api_version,
            _ => return Ok(false),
        };
        if place.replace(map.next_value()?).is_some() {
            return Err(de::Error::custom("the type is repeated"));
        }
        Ok(true)
    }
}

struct Search<'f, 'b> {
    found: &'f mut TypeMeta<'b>,
}

impl<'b> Visitor<'b> for Search<'_, 'b> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a Kubernetes object")
    }

    fn visit_map<A: MapAccess<'b>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(Key(key)) = map.next_key::<Key<'b>>()? {
            if !self.found.take(&key, &mut map)? {
                map.next_value::<de::IgnoredAny>()?;
            } else if self.found.kind.is_some() && self.found.api_version.is_some() {
                // Both fields are found: an error stops the parser.
                return Err(de::Error::custom("found"));
            }
        }
        Ok(())
    }
}

/// Reads a struct from an object, and the type fields along with it.
struct Fields<'f, 'b, T> {
    found: &'f mut TypeMeta<'b>,
    read: PhantomData<T>,
}

impl<'b, T: Deserialize<'b>> DeserializeSeed<'b> for Fields<'_, 'b, T> {
    type Value = T;

    fn deserialize<D: Deserializer<'b>>(self, deserializer: D) -> Result<T, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'b, T: Deserialize<'b>> Visitor<'b> for Fields<'_, 'b, T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a Kubernetes object")
    }

    fn visit_map<A: MapAccess<'b>>(self, map: A) -> Result<T, A::Error> {
        T::deserialize(MapAccessDeserializer::new(WithoutType { found: self.found, map }))
    }
}

/// The fields of an object without its type fields.
struct WithoutType<'f, 'b, A> {
    found: &'f mut TypeMeta<'b>,
    map: A,
}

impl<'b, A: MapAccess<'b>> MapAccess<'b> for WithoutType<'_, 'b, A> {
    type Error = A::Error;

    fn next_key_seed<K: DeserializeSeed<'b>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, A::Error> {
        while let Some(Key(key)) = self.map.next_key::<Key<'b>>()? {
            if !self.found.take(&key, &mut self.map)? {
                return seed.deserialize(CowStrDeserializer::new(key.0)).map(Some);
            }
        }
        Ok(None)
    }

    fn next_value_seed<V: DeserializeSeed<'b>>(&mut self, seed: V) -> Result<V::Value, A::Error> {
        self.map.next_value_seed(seed)
    }
}
