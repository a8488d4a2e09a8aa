//! The lines of a watch, the pages of a list, and the metadata of an object, borrowed from the bytes.

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::{self, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::api::Resource;

/// A line of a watch.
#[derive(Deserialize)]
pub(super) struct Line<'a> {
    /// `ADDED`, `MODIFIED`, `DELETED`, `BOOKMARK` or `ERROR`.
    #[serde(rename = "type", borrow)]
    pub(super) action: Cow<'a, str>,
    #[serde(borrow)]
    pub(super) object: &'a RawValue,
}

/// A page of a list.
#[derive(Deserialize)]
pub(super) struct Page<'a> {
    #[serde(default)]
    pub(super) metadata: ListMeta,
    /// `null` if there are none.
    #[serde(borrow, default)]
    pub(super) items: Option<Vec<&'a RawValue>>,
}

/// The metadata of a list, or of the object of a bookmark.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct ListMeta {
    pub(super) resource_version: String,
    /// The token for the next page, or an empty string on the last one.
    #[serde(rename = "continue")]
    pub(super) next: String,
    annotations: Option<BookmarkAnnotations>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct BookmarkAnnotations {
    #[serde(rename = "k8s.io/initial-events-end")]
    initial_events_end: String,
}

/// The object of a bookmark.
#[derive(Deserialize)]
pub(super) struct Bookmark {
    pub(super) metadata: ListMeta,
}

impl Bookmark {
    /// Returns whether the watch has now sent the objects that existed when it began.
    pub(super) fn ends_initial_events(&self) -> bool {
        self.metadata.annotations.as_ref().is_some_and(|found| found.initial_events_end == "true")
    }
}

/// The metadata of an object that the mirror needs in addition to the data that the engine keeps.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Meta<'a> {
    pub(super) namespace: Cow<'a, str>,
    pub(super) name: Cow<'a, str>,
    pub(super) uid: Cow<'a, str>,
    pub(super) resource_version: Cow<'a, str>,
    pub(super) generation: i64,
}

impl<'a> Meta<'a> {
    /// Reads the metadata of an object, up to the last field that is needed. An API server writes these fields first,
    /// so this takes a small fraction of the time of reading the object. Fields that are missing or cannot be read are
    /// empty.
    pub(super) fn of(object: &'a RawValue, resource: &Resource) -> Meta<'a> {
        let mut meta = Meta::default();
        let mut missing = NAME | UID | VERSION;
        if resource.is_namespaced {
            missing |= NAMESPACE;
        }
        if *resource == Resource::PODS {
            missing |= GENERATION;
        }
        let mut json = serde_json::Deserializer::from_str(object.get());
        // Reading ends with an error as soon as all fields are found. Other errors occur again when the object is read.
        let _ = json.deserialize_map(Search { meta: &mut meta, missing });
        meta
    }

    /// Returns the version as a number, or 0 if it is not one.
    pub(super) fn version(&self) -> u64 {
        self.resource_version.parse().unwrap_or(0)
    }
}

const NAMESPACE: u8 = 1;
const NAME: u8 = 2;
const UID: u8 = 4;
const VERSION: u8 = 8;
const GENERATION: u8 = 16;

#[derive(Deserialize)]
#[serde(transparent)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

struct Search<'m, 'a> {
    meta: &'m mut Meta<'a>,
    missing: u8,
}

impl<'a> Visitor<'a> for Search<'_, 'a> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'a>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(Text(key)) = map.next_key()? {
            if key == "metadata" {
                return map.next_value_seed(Fields(self));
            }
            map.next_value::<IgnoredAny>()?;
        }
        Ok(())
    }
}

struct Fields<'m, 'a>(Search<'m, 'a>);

impl<'a> DeserializeSeed<'a> for Fields<'_, 'a> {
    type Value = ();

    fn deserialize<D: Deserializer<'a>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'a> Visitor<'a> for Fields<'_, 'a> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("metadata")
    }

    fn visit_map<A: MapAccess<'a>>(self, mut map: A) -> Result<(), A::Error> {
        let Search { meta, mut missing } = self.0;
        while let Some(Text(key)) = map.next_key()? {
            let (field, bit) = match &*key {
                "namespace" => (&mut meta.namespace, NAMESPACE),
                "name" => (&mut meta.name, NAME),
                "uid" => (&mut meta.uid, UID),
                "resourceVersion" => (&mut meta.resource_version, VERSION),
                "generation" => {
                    meta.generation = map.next_value()?;
                    missing &= !GENERATION;
                    if missing == 0 {
                        return Err(de::Error::custom("found"));
                    }
                    continue;
                }
                _ => {
                    map.next_value::<IgnoredAny>()?;
                    continue;
                }
            };
            *field = map.next_value::<Text<'a>>()?.0;
            missing &= !bit;
            if missing == 0 {
                return Err(de::Error::custom("found"));
            }
        }
        // The rest of the object is not needed.
        Err(de::Error::custom("searched"))
    }
}

/// Encodes a value for the query of a path.
pub(super) fn encode(value: &str) -> String {
    let mut encoded = String::with_capacity(value.len());
    for byte in value.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                encoded.push(byte.into());
            }
            _ => encoded.push_str(&format!("%{byte:02X}")),
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meta<'a>(object: &'a str, resource: &Resource) -> Meta<'a> {
        Meta::of(serde_json::from_str(object).expect("valid JSON"), resource)
    }

    #[test]
    fn metadata_is_read_in_any_order_of_fields() {
        let expected = Meta {
            namespace: "shop".into(),
            name: "web-0".into(),
            uid: "u-1".into(),
            resource_version: "17".into(),
            generation: 3,
        };
        let usual = r#"{"kind":"Pod","metadata":{"name":"web-0","generateName":"web-","namespace":"shop","uid":"u-1",
            "resourceVersion":"17","generation":3,"managedFields":[{"manager":"kubelet"}]},"spec":{"nodeName":"n1"}}"#;
        let reverse = r#"{"spec":{},"metadata":{"labels":{"name":"other"},"uid":"u-1","resourceVersion":"17",
            "generation":3,"name":"web-0","namespace":"shop"}}"#;
        assert_eq!(meta(usual, &Resource::PODS), expected);
        assert_eq!(meta(reverse, &Resource::PODS), expected);
    }

    #[test]
    fn missing_metadata_is_empty() {
        let node =
            meta(r#"{"metadata":{"name":"n1","resourceVersion":"5"},"spec":{}}"#, &Resource::NODES);
        assert_eq!((&*node.name, &*node.uid, node.version()), ("n1", "", 5));
        assert_eq!(meta(r#"{"spec":{}}"#, &Resource::NODES), Meta::default());
    }

    #[test]
    fn only_the_annotated_bookmark_ends_the_initial_events() {
        let ends = |object: &str| {
            serde_json::from_str::<Bookmark>(object).expect("a bookmark").ends_initial_events()
        };
        assert!(ends(
            r#"{"metadata":{"resourceVersion":"9","annotations":{"k8s.io/initial-events-end":"true"}}}"#
        ));
        assert!(!ends(r#"{"metadata":{"resourceVersion":"9","annotations":null}}"#));
        assert!(!ends(r#"{"metadata":{"resourceVersion":"9","creationTimestamp":null}}"#));
    }

    #[test]
    fn field_selectors_are_encoded() {
        assert_eq!(encode("status.phase!=Failed,a"), "status.phase%21%3DFailed%2Ca");
    }
}
