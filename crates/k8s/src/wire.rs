//! The fields of Kubernetes objects that are read, as serde structs.
//!
//! The structs are deliberately small: the parser skips fields that they do not name, above all `managedFields`,
//! without building them. Strings without escapes are borrowed from the input. `null` is treated as absent everywhere,
//! as in Go.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;

use serde::de::value::MapAccessDeserializer;
use serde::de::{self, Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};

/// A string, borrowed where possible. `null` is empty.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Text<'a>(pub(super) Cow<'a, str>);

impl Deref for Text<'_> {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

struct TextVisitor {
    numbers: bool,
}

impl<'de> Visitor<'de> for TextVisitor {
    type Value = Text<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.numbers { "a quantity" } else { "a string" })
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Text<'de>, E> {
        Ok(Text(Cow::Borrowed(text)))
    }

    fn visit_str<E>(self, text: &str) -> Result<Text<'de>, E> {
        Ok(Text(Cow::Owned(text.to_owned())))
    }

    fn visit_none<E>(self) -> Result<Text<'de>, E> {
        Ok(Text::default())
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Text<'de>, D::Error> {
        deserializer.deserialize_str(self)
    }

    /// In Go, `null` leaves the zero value, which is the quantity 0.
    fn visit_unit<E>(self) -> Result<Text<'de>, E> {
        Ok(Text(Cow::Borrowed("0")))
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<Text<'de>, E> {
        self.number(number, de::Unexpected::Signed(number))
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<Text<'de>, E> {
        self.number(number, de::Unexpected::Unsigned(number))
    }

    fn visit_f64<E: de::Error>(self, number: f64) -> Result<Text<'de>, E> {
        self.number(number, de::Unexpected::Float(number))
    }
}

impl TextVisitor {
    fn number<'de, E: de::Error>(
        self,
        number: impl fmt::Display,
        found: de::Unexpected<'_>,
    ) -> Result<Text<'de>, E> {
        if self.numbers {
            Ok(Text(Cow::Owned(number.to_string())))
        } else {
            Err(E::invalid_type(found, &self))
        }
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Text<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Text<'a>, D::Error> {
        deserializer.deserialize_option(TextVisitor { numbers: false })
    }
}

/// The key of a map, which is never null.
pub(super) struct Key<'a>(pub(super) Text<'a>);

impl<'de: 'a, 'a> Deserialize<'de> for Key<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Key<'a>, D::Error> {
        deserializer.deserialize_str(TextVisitor { numbers: false }).map(Key)
    }
}

/// The text of a quantity, which may be written as a number.
#[derive(Clone, Debug, Default)]
pub(super) struct QuantityText<'a>(pub(super) Text<'a>);

impl<'de: 'a, 'a> Deserialize<'de> for QuantityText<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<QuantityText<'a>, D::Error> {
        deserializer.deserialize_any(TextVisitor { numbers: true }).map(QuantityText)
    }
}

/// A whole number. It may be written as a float without a fraction, such as `1e3`: kubectl sends such a number
/// without its fraction. `null` is absent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Whole<T>(pub(super) Option<T>);

impl<T> Default for Whole<T> {
    fn default() -> Whole<T> {
        Whole(None)
    }
}

impl<T> Deref for Whole<T> {
    type Target = Option<T>;

    fn deref(&self) -> &Option<T> {
        &self.0
    }
}

impl<'de, T: TryFrom<i128>> Deserialize<'de> for Whole<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Whole<T>, D::Error> {
        deserializer.deserialize_any(WholeVisitor(PhantomData))
    }
}

/// Returns the number without its fraction if that is zero and JSON written by Go has no exponent for it.
pub(super) fn whole(number: f64) -> Option<i128> {
    (number.fract() == 0.0 && number.abs() < 1e21).then_some(number as i128)
}

struct WholeVisitor<T>(PhantomData<T>);

impl<T: TryFrom<i128>> WholeVisitor<T> {
    fn number<E: de::Error>(self, number: i128, found: de::Unexpected<'_>) -> Result<Whole<T>, E> {
        let number = T::try_from(number).map_err(|_| E::invalid_value(found, &self))?;
        Ok(Whole(Some(number)))
    }
}

impl<'de, T: TryFrom<i128>> Visitor<'de> for WholeVisitor<T> {
    type Value = Whole<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let least = if T::try_from(-1).is_ok() { "" } else { " from 0" };
        write!(f, "a whole number{least} of at most {} bits", 8 * size_of::<T>())
    }

    fn visit_unit<E>(self) -> Result<Whole<T>, E> {
        Ok(Whole(None))
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<Whole<T>, E> {
        self.number(number.into(), de::Unexpected::Signed(number))
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<Whole<T>, E> {
        self.number(number.into(), de::Unexpected::Unsigned(number))
    }

    fn visit_f64<E: de::Error>(self, number: f64) -> Result<Whole<T>, E> {
        let found = de::Unexpected::Float(number);
        match whole(number) {
            Some(number) => self.number(number, found),
            None => Err(E::invalid_type(found, &self)),
        }
    }
}

/// A list. `null` is empty, and an element `null` is an empty element.
#[derive(Clone, Debug)]
pub(super) struct List<T>(pub(super) Vec<T>);

impl<T> Default for List<T> {
    fn default() -> List<T> {
        List(Vec::new())
    }
}

impl<T> Deref for List<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.0
    }
}

impl<'de, T: Deserialize<'de> + Default> Deserialize<'de> for List<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<List<T>, D::Error> {
        deserializer.deserialize_option(Elements(PhantomData))
    }
}

struct Elements<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de> + Default> Visitor<'de> for Elements<T> {
    type Value = List<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }

    fn visit_none<E>(self) -> Result<List<T>, E> {
        Ok(List::default())
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<List<T>, D::Error> {
        deserializer.deserialize_seq(self)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<List<T>, A::Error> {
        let mut elements = Vec::new();
        while let Some(element) = list.next_element::<Option<T>>()? {
            elements.push(element.unwrap_or_default());
        }
        Ok(List(elements))
    }
}

/// A map with string keys, in the order of the input. `null` is empty. If a key is repeated, its last value counts, as
/// in Go.
#[derive(Clone, Debug)]
pub(super) struct Map<'a, V>(pub(super) Vec<(Text<'a>, V)>);

impl<V> Default for Map<'_, V> {
    fn default() -> Self {
        Map(Vec::new())
    }
}

impl<'a, V> Deref for Map<'a, V> {
    type Target = [(Text<'a>, V)];

    fn deref(&self) -> &[(Text<'a>, V)] {
        &self.0
    }
}

impl<'de: 'a, 'a, V: Deserialize<'de>> Deserialize<'de> for Map<'a, V> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Entries<V>(PhantomData<V>);

        impl<'de, V: Deserialize<'de>> Visitor<'de> for Entries<V> {
            type Value = Map<'de, V>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a map")
            }

            fn visit_none<E>(self) -> Result<Self::Value, E> {
                Ok(Map::default())
            }

            fn visit_some<D: Deserializer<'de>>(self, d: D) -> Result<Self::Value, D::Error> {
                d.deserialize_map(self)
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut entries: Vec<(Text<'de>, V)> = Vec::new();
                let mut sorted = true;
                while let Some((Key(key), value)) = map.next_entry()? {
                    sorted &= entries.last().is_none_or(|(last, _)| *last < key);
                    entries.push((key, value));
                }
                if !sorted {
                    keep_last(&mut entries);
                }
                Ok(Map(entries))
            }
        }

        deserializer.deserialize_option(Entries(PhantomData))
    }
}

/// Removes all but the last entry of each key, and keeps it at the position of the first. O(entries).
fn keep_last<V>(entries: &mut Vec<(Text<'_>, V)>) {
    let mut kept: Vec<(Text<'_>, V)> = Vec::with_capacity(entries.len());
    let mut places: HashMap<String, usize> = HashMap::with_capacity(entries.len());
    for (key, value) in entries.drain(..) {
        match places.get(&*key) {
            Some(at) => kept[*at].1 = value,
            None => {
                places.insert(key.to_string(), kept.len());
                kept.push((key, value));
            }
        }
    }
    *entries = kept;
}

/// Labels, annotations, and node selectors.
pub(super) type TextMap<'a> = Map<'a, Text<'a>>;
/// The fields `requests`, `limits` and `allocatable`.
pub(super) type Amounts<'a> = Map<'a, QuantityText<'a>>;

/// Declares structs in which every field may be absent.
macro_rules! wire {
    ($($(#[$doc:meta])* struct $name:ident<$a:lifetime> { $($(#[$attribute:meta])* $field:ident: $type:ty,)* })*) => {$(
        $(#[$doc])*
        #[derive(Clone, Debug, Default, serde::Deserialize)]
        #[serde(rename_all = "camelCase", default, bound(deserialize = "'de: 'a"), remote = "Self")]
        pub(super) struct $name<$a> {
            $($(#[$attribute])* pub(super) $field: $type,)*
        }

        impl<'de: $a, $a> serde::Deserialize<'de> for $name<$a> {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                deserializer.deserialize_map($crate::wire::Fields(std::marker::PhantomData))
            }
        }

        impl<'de: $a, $a> $crate::wire::Wire<'de> for $name<$a> {
            fn derived<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                $name::deserialize(deserializer)
            }
        }
    )*};
}

/// Declares the structs of objects, which have metadata and these parts.
macro_rules! objects {
    ($($(#[$doc:meta])* $name:ident { $($part:ident: $type:ident),* })*) => {
        $crate::wire::wire! {$(
            $(#[$doc])*
            struct $name<'a> {
                metadata: Option<Metadata<'a>>,
                $($part: Option<$type<'a>>,)*
            }
        )*}
    };
}

/// A struct that is read from an object only.
pub(super) trait Wire<'de>: Sized {
    /// Reads it as serde derives it, which accepts a list of the values of its fields, too.
    fn derived<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error>;
}

/// Reads the fields of a struct.
pub(super) struct Fields<T>(pub(super) PhantomData<T>);

impl<'de, T: Wire<'de>> Visitor<'de> for Fields<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, fields: A) -> Result<T, A::Error> {
        T::derived(MapAccessDeserializer::new(fields))
    }
}

pub(super) use {objects, wire};

wire! {
    struct Metadata<'a> {
        name: Text<'a>,
        generate_name: Text<'a>,
        namespace: Text<'a>,
        uid: Text<'a>,
        resource_version: Text<'a>,
        labels: TextMap<'a>,
        annotations: Option<Annotations<'a>>,
        creation_timestamp: Text<'a>,
        deletion_timestamp: Text<'a>,
        owner_references: List<OwnerReference<'a>>,
    }

    /// The annotations that scheduling reads. All others are skipped.
    struct Annotations<'a> {
        #[serde(rename = "godel.bytedance.com/pod-group-name")]
        godel_pod_group: Text<'a>,
        #[serde(rename = "kubernetes.io/config.mirror")]
        mirror: Text<'a>,
        #[serde(rename = "controller.kubernetes.io/pod-deletion-cost")]
        deletion_cost: Text<'a>,
        #[serde(rename = "katalyst.kubewharf.io/qos_level")]
        qos_level: Option<Text<'a>>,
        #[serde(rename = "godel.bytedance.com/pod-resource-type")]
        resource_type: Option<Text<'a>>,
        #[serde(rename = "godel.bytedance.com/pod-launcher")]
        launcher: Option<Text<'a>>,
        #[serde(rename = "godel.bytedance.com/pod-state")]
        pod_state: Text<'a>,
        #[serde(rename = "godel.bytedance.com/selected-scheduler")]
        selected_scheduler: Text<'a>,
        #[serde(rename = "godel.bytedance.com/assumed-node")]
        assumed_node: Text<'a>,
        #[serde(rename = "godel.bytedance.com/nominated-node")]
        nominated_node: Text<'a>,
        #[serde(rename = "godel.bytedance.com/reservation")]
        reservation: Text<'a>,
        /// An older name of the same annotation.
        #[serde(rename = "pod.tce.kubernetes.io/reservation")]
        reservation_of_tce: Text<'a>,
        #[serde(rename = "godel.bytedance.com/reservation-index")]
        reservation_index: Text<'a>,
        #[serde(rename = "godel.bytedance.com/matched-reservation-placeholder")]
        matched_placeholder: Text<'a>,
        #[serde(rename = "godel.bytedance.com/reservation-placeholder")]
        is_placeholder: Text<'a>,
        #[serde(rename = "godel.bytedance.com/placeholder-uid")]
        placeholder_uid: Text<'a>,
        #[serde(rename = "godel.bytedance.com/movement-name")]
        movement_name: Text<'a>,
        #[serde(rename = "godel.bytedance.com/request-template")]
        request_template: Text<'a>,
        /// Annotations of job sets and leader-worker sets.
        #[serde(rename = "alpha.jobset.sigs.k8s.io/exclusive-topology")]
        jobset_topology: Text<'a>,
        #[serde(rename = "alpha.jobset.sigs.k8s.io/node-selector")]
        jobset_node_selector: Option<Text<'a>>,
        #[serde(rename = "leaderworkerset.sigs.k8s.io/exclusive-topology")]
        group_topology: Text<'a>,
        #[serde(rename = "leaderworkerset.sigs.k8s.io/subgroup-exclusive-topology")]
        subgroup_topology: Text<'a>,
        /// An annotation of nodes.
        #[serde(rename = "godel.bytedance.com/scheduler-name")]
        scheduler_name: Text<'a>,
    }

    struct OwnerReference<'a> {
        api_version: Text<'a>,
        kind: Text<'a>,
        name: Text<'a>,
        uid: Text<'a>,
        controller: Option<bool>,
    }

    struct LabelSelector<'a> {
        match_labels: TextMap<'a>,
        match_expressions: List<Requirement<'a>>,
    }

    struct Requirement<'a> {
        key: Text<'a>,
        operator: Text<'a>,
        values: List<Text<'a>>,
    }

    struct ResourceRequirements<'a> {
        requests: Amounts<'a>,
        limits: Amounts<'a>,
    }

    struct Named<'a> {
        name: Text<'a>,
    }
}
