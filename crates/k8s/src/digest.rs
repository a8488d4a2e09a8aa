//! Hashes the fields of an object that are read, to recognize updates that change none of them.
//!
//! Most updates of a cluster concern fields that scheduling does not read: conditions, container states, heartbeats,
//! annotations, `managedFields`. Such an update has the digest of the version before it, so a watch can drop it without
//! building the object.
//!
//! - **What is hashed.** For the metadata, the spec and the status, the fields of the structs that
//!   [`pod_from_slice`](crate::pod_from_slice) and [`node_from_slice`](crate::node_from_slice) fill, each as it is
//!   written. The lists of fields are taken from the structs, so a field that is read from now on is also hashed.
//! - **Unequal digests** do not imply a change that matters: a quantity may be written in another way, and a field
//!   within a container may be one that is not read.
//! - **Equal digests** mean that both texts are read as the same object, except for its resource version, unless two
//!   different ones have the same hash. The hash is SipHash with a key of the process, so the author of an object
//!   cannot choose a collision, and two given objects have one with a probability of 2^-64. A watch compares each
//!   version of an object with one other: at a million updates per second, a collision is expected once in 500,000
//!   years.

use std::hash::{BuildHasher, DefaultHasher, Hasher, RandomState};
use std::num::NonZeroU64;
use std::sync::OnceLock;

use serde::de::{self, Deserializer, Visitor, value};
use serde_json::value::RawValue;

use super::pod::{READ_CONDITIONS, has_ended};
use super::scan::Scan;
use super::wire::{Annotations, Metadata, Wire};
use super::{wire_objects, wire_pod};

/// A hash of the fields of an object that are read, except for its resource version. Comparable within a process only.
///
/// The documentation of [`pod_digest`] has the guarantee.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Digest(NonZeroU64);

/// Returns the digest of a pod, or `None` if the text is not that of a pod or is unusual, such as one with a repeated
/// field or an escape in the name of a field.
///
/// If two texts have the same digest, [`pod_from_slice`](crate::pod_from_slice) returns the same result for both,
/// except for the resource version and errors of it. O(length), about two fifths of the time to read the pod. Does not
/// allocate.
///
/// ```
/// use portolan_k8s::pod_digest;
///
/// let pod = |version: u32, node: &str, phase: &str| {
///     let pod = format!(r#"{{"metadata":{{"name":"web-0","uid":"u-1","resourceVersion":"{version}"}},
///         "spec":{{"nodeName":"{node}"}},"status":{{"phase":"{phase}"}}}}"#);
///     pod_digest(serde_json::from_str(&pod).expect("JSON"))
/// };
/// assert!(pod(1, "n1", "Pending").is_some());
/// assert_eq!(pod(1, "n1", "Pending"), pod(2, "n1", "Running"));
/// assert_ne!(pod(1, "n1", "Pending"), pod(1, "n2", "Pending"));
/// ```
#[must_use]
pub fn pod_digest(json: &RawValue) -> Option<Digest> {
    digest(json, Part::Pod)
}

/// Returns the digest of a node. See [`pod_digest`].
#[must_use]
pub fn node_digest(json: &RawValue) -> Option<Digest> {
    digest(json, Part::Node)
}

fn digest(json: &RawValue, part: Part) -> Option<Digest> {
    static KEY: OnceLock<RandomState> = OnceLock::new();
    let mut hash = KEY.get_or_init(RandomState::new).build_hasher();
    let mut json = Scan::new(json);
    json.is_object().then(|| hash_fields(part, &mut json, &mut hash))??;
    NonZeroU64::new(hash.finish()).map(Digest)
}

/// A struct of which only some fields are read.
#[derive(Clone, Copy)]
enum Part {
    Pod,
    PodSpec,
    PodStatus,
    ContainerStatus,
    Condition,
    Node,
    NodeSpec,
    NodeStatus,
    Metadata,
    Annotations,
}

/// What to do with a field that is read.
enum Action {
    /// Hash it as it is written.
    Hash,
    /// Leave this text out, since the object does not depend on it.
    Skip,
    /// Hash the fields of it that are read.
    Fields(Part),
    /// Do so for each element.
    List(Part),
    /// Hash the conditions that are read.
    Conditions,
    /// Hash a phase in which the pod has ended. Others are read alike.
    Phase,
}

impl Part {
    /// Returns the fields that are read. O(1).
    fn fields(self) -> &'static [&'static str] {
        match self {
            Part::Pod => fields::<wire_pod::Pod<'_>>(),
            Part::PodSpec => fields::<wire_pod::PodSpec<'_>>(),
            Part::PodStatus => fields::<wire_pod::PodStatus<'_>>(),
            Part::ContainerStatus => fields::<wire_pod::ContainerStatus<'_>>(),
            Part::Condition => fields::<wire_pod::Condition<'_>>(),
            Part::Node => fields::<wire_objects::Node<'_>>(),
            Part::NodeSpec => fields::<wire_objects::NodeSpec<'_>>(),
            Part::NodeStatus => fields::<wire_objects::NodeStatus<'_>>(),
            Part::Metadata => fields::<Metadata<'_>>(),
            Part::Annotations => fields::<Annotations<'_>>(),
        }
    }

    fn action(self, field: &str) -> Action {
        match (self, field) {
            (Part::Pod | Part::Node, "metadata") => Action::Fields(Part::Metadata),
            (Part::Pod, "spec") => Action::Fields(Part::PodSpec),
            (Part::Pod, "status") => Action::Fields(Part::PodStatus),
            (Part::Node, "spec") => Action::Fields(Part::NodeSpec),
            (Part::Node, "status") => Action::Fields(Part::NodeStatus),
            (Part::Metadata, "annotations") => Action::Fields(Part::Annotations),
            (Part::Metadata, "resourceVersion") => Action::Skip,
            (Part::PodStatus, "phase") => Action::Phase,
            (Part::PodStatus, "conditions") => Action::Conditions,
            (Part::PodStatus, "containerStatuses" | "initContainerStatuses") => {
                Action::List(Part::ContainerStatus)
            }
            _ => Action::Hash,
        }
    }

    /// Returns the kind of a whole object.
    fn kind(self) -> Option<&'static str> {
        match self {
            Part::Pod => Some("Pod"),
            Part::Node => Some("Node"),
            _ => None,
        }
    }
}

/// Returns the names of the fields of a struct.
fn fields<T: Wire<'static>>() -> &'static [&'static str] {
    let mut fields: &'static [&'static str] = &[];
    // Always an error, since there is no struct to read.
    let _ = T::derived(Names(&mut fields));
    fields
}

/// Collects the names of the fields that a struct requests.
struct Names<'n>(&'n mut &'static [&'static str]);

impl Deserializer<'static> for Names<'_> {
    type Error = value::Error;

    fn deserialize_struct<V: Visitor<'static>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, value::Error> {
        *self.0 = fields;
        self.deserialize_any(visitor)
    }

    fn deserialize_any<V: Visitor<'static>>(self, _: V) -> Result<V::Value, value::Error> {
        Err(de::Error::custom(""))
    }

    serde::forward_to_deserialize_any! {
        <W: Visitor<'static>>
        bool i8 i16 i32 i64 u8 u16 u32 u64 f32 f64 char str string bytes byte_buf option unit unit_struct
        newtype_struct seq tuple tuple_struct map enum identifier ignored_any
    }
}

// The marks, the numbers of fields and the lengths of texts make the hashed bytes unambiguous.

/// Marks the end of a list of fields or elements.
const END: u8 = 0;
/// Precedes an element of a list.
const ELEMENT: u8 = 1;
/// Stands for `null`.
const NULL: u8 = u8::MAX;

fn hash_text(hash: &mut DefaultHasher, text: &str) {
    hash.write_usize(text.len());
    hash.write(text.as_bytes());
}

/// Hashes the fields of a struct that are read. Returns `None` if the text is unusual.
fn hash_fields(part: Part, json: &mut Scan<'_>, hash: &mut DefaultHasher) -> Option<()> {
    if json.take_null() {
        hash.write_u8(NULL);
        return Some(());
    }
    let fields = part.fields();
    let mut seen = 0u64;
    let mut is_first = true;
    json.open(b'{')?;
    while let Some(key) = json.next_key(&mut is_first)? {
        let Some(number) = fields.iter().position(|field| *field == key) else {
            match part.kind().filter(|_| key == "kind") {
                Some(kind) if json.plain_text()? != kind => return None,
                Some(_) => {}
                None => drop(json.value()?),
            }
            continue;
        };
        // The last value of a repeated field counts, and a resource version that was found elsewhere may be the first.
        let bit = 1u64.checked_shl(number as u32).filter(|bit| seen & bit == 0)?;
        seen |= bit;
        let action = part.action(key);
        if !matches!(action, Action::Skip | Action::Phase) {
            hash.write_u8(number as u8 + 1);
        }
        match action {
            Action::Hash => hash_text(hash, json.value()?),
            // Any other type is an error of the object.
            Action::Skip | Action::Phase if json.take_null() => {}
            Action::Skip => json.skip_text()?,
            Action::Fields(part) => hash_fields(part, json, hash)?,
            Action::List(part) => hash_list(json, hash, |json, hash| {
                hash.write_u8(ELEMENT);
                hash_fields(part, json, hash)
            })?,
            Action::Conditions => hash_list(json, hash, hash_condition)?,
            Action::Phase => {
                if has_ended(json.plain_text()?) {
                    hash.write_u8(number as u8 + 1);
                }
            }
        }
    }
    hash.write_u8(END);
    Some(())
}

fn hash_list(
    json: &mut Scan<'_>,
    hash: &mut DefaultHasher,
    element: impl Fn(&mut Scan<'_>, &mut DefaultHasher) -> Option<()>,
) -> Option<()> {
    if json.take_null() {
        hash.write_u8(NULL);
        return Some(());
    }
    let mut is_first = true;
    json.open(b'[')?;
    while json.next_element(&mut is_first)? {
        element(json, hash)?;
    }
    hash.write_u8(END);
    Some(())
}

/// Hashes a condition of a pod if conditions of its type are read.
fn hash_condition(json: &mut Scan<'_>, hash: &mut DefaultHasher) -> Option<()> {
    let fields = Part::Condition.fields();
    let mut values = [None; 8];
    let mut is_first = true;
    json.open(b'{')?;
    while let Some(key) = json.next_key(&mut is_first)? {
        match fields.iter().position(|field| *field == key) {
            None => drop(json.value()?),
            Some(number) => {
                if values.get_mut(number)?.replace(json.plain_text()?).is_some() {
                    return None;
                }
            }
        }
    }
    let name = fields.iter().position(|field| *field == "type").and_then(|at| values[at]);
    if name.is_some_and(|name| READ_CONDITIONS.contains(&name)) {
        hash.write_u8(ELEMENT);
        values.iter().for_each(|text| hash_text(hash, text.unwrap_or_default()));
    }
    Some(())
}
