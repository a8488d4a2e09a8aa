//! Reads whole inputs: files of objects, lists and documents.
//!
//! Objects are dispatched on their kind while the parser runs, without an intermediate tree. As soon as `apiVersion`
//! and `kind` are known (kubectl writes them first), the remaining fields are read directly into the structs of that
//! kind, and unused fields are skipped. Only objects whose kind comes late are buffered. An input that contains an
//! error is discarded as a whole.

use std::collections::BTreeMap;
use std::fmt;

use serde::Deserialize;
use serde::de::value::{CowStrDeserializer, MapAccessDeserializer};
use serde::de::{self, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::Value;
use serde_path_to_error::{Deserializer as Tracked, Track};

use super::collect::{Collected, Kind};
use super::error::{Cause, Path, ReadError};
use super::framing;
use super::resolve::{Objects, resolve};
use super::wire::{Key, Text};

/// Reads several inputs and resolves references between their objects at the end: a priority class may be in another
/// file than its pods.
#[derive(Debug, Default)]
pub struct Reader {
    pub(super) collected: Collected,
    /// The number of jobs and groups of job sets and leader-worker sets.
    pub(super) sets: usize,
}

impl Reader {
    /// Creates a reader without any objects.
    #[must_use]
    pub fn new() -> Reader {
        Reader::default()
    }

    /// Reads JSON or YAML, as detected by [`is_json`]. YAML in flow style that starts like JSON is recognized, too.
    ///
    /// # Errors
    ///
    /// The input is neither JSON nor YAML, or an object in it is invalid. Nothing of the input is kept then.
    pub fn read(&mut self, input: &[u8]) -> Result<(), ReadError> {
        if !is_json(input) {
            return self.read_yaml(framing::text(input)?);
        }
        let Err(error) = self.read_json(input) else { return Ok(()) };
        let is_flow = input.len() <= FLOW && error.column().is_some();
        match framing::text(input) {
            Ok(text) if is_flow => match self.read_yaml(text) {
                Err(yaml) if *yaml.cause() == Cause::Template => Err(yaml),
                Err(_) => Err(error),
                Ok(()) => Ok(()),
            },
            _ => Err(error),
        }
    }

    /// Reads JSON: a Kubernetes object, a list object, an array of objects, or several of these, separated by white
    /// space (such as newline-delimited JSON), by `---`, or by the logs that `kubectl cluster-info dump` prints between
    /// lists. An object without `apiVersion` and `kind` may be an export of kube-scheduler-simulator, which has the
    /// lists `nodes`, `pods`, `pvs`, `pvcs`, `storageClasses`, `priorityClasses` and `namespaces`; its `schedulerConfig`
    /// is skipped. O(length).
    ///
    /// # Errors
    ///
    /// As for [`Reader::read`].
    pub fn read_json(&mut self, input: &[u8]) -> Result<(), ReadError> {
        let input = input.strip_prefix(b"\xef\xbb\xbf").unwrap_or(input);
        let text = framing::text(input)?;
        let read = super::sets::counted(&mut self.sets, || {
            framing::values(text)?.map(Document::into_result).transpose()
        });
        match read? {
            Some(document) => self.collected.merge(document),
            None => self.read_yaml(text)?,
        }
        Ok(())
    }

    /// Reads the documents of a YAML text and skips empty documents. The logs in the output of
    /// `kubectl cluster-info dump -o yaml` are skipped, too.
    ///
    /// # Errors
    ///
    /// As for [`Reader::read`].
    pub fn read_yaml(&mut self, input: &str) -> Result<(), ReadError> {
        let read = super::sets::counted(&mut self.sets, || read_documents(input));
        let documents = read.map_err(|error| match framing::template(input) {
            Some(position) => ReadError::at(String::new(), Some(position), Cause::Template),
            None => error,
        })?;
        for document in documents {
            self.collected.merge(document);
        }
        Ok(())
    }

    /// Returns all objects that were read, after filling in priorities, overhead and other values that come from other
    /// objects.
    #[must_use]
    pub fn finish(self) -> Objects {
        let [objects] = Reader::finish_together([self]);
        objects
    }

    /// Returns all objects that were read, with the priority and runtime classes of a cluster beside their own.
    #[must_use]
    pub fn finish_beside(self, cluster: &Objects) -> Objects {
        let known = Collected {
            priority_classes: cluster.priority_classes.clone(),
            runtime_classes: cluster.runtime_classes.clone(),
            ..Collected::default()
        };
        let [_, objects] = resolve([known, self.collected]);
        objects
    }

    /// Returns the objects of several readers, such as those of a cluster and those that are added to it. References
    /// between them are resolved as if one reader had read all inputs.
    #[must_use]
    pub fn finish_together<const N: usize>(readers: [Reader; N]) -> [Objects; N] {
        resolve(readers.map(|reader| reader.collected))
    }
}

/// Returns whether an input is read as JSON: whether its first character after white space is `{` or `[`.
#[must_use]
pub fn is_json(input: &[u8]) -> bool {
    let input = input.strip_prefix(b"\xef\xbb\xbf").unwrap_or(input);
    matches!(input.trim_ascii_start().first(), Some(b'{' | b'['))
}

/// Reads one JSON input, see [`Reader::read_json`].
///
/// # Errors
///
/// As for [`Reader::read`].
pub fn read_json(input: &[u8]) -> Result<Objects, ReadError> {
    let mut reader = Reader::new();
    reader.read_json(input)?;
    Ok(reader.finish())
}

/// Reads one YAML input, see [`Reader::read_yaml`].
///
/// # Errors
///
/// As for [`Reader::read`].
pub fn read_yaml(input: &str) -> Result<Objects, ReadError> {
    let mut reader = Reader::new();
    reader.read_yaml(input)?;
    Ok(reader.finish())
}

/// Reads one input, see [`Reader::read`].
///
/// # Errors
///
/// As for [`Reader::read`].
pub fn read(input: &[u8]) -> Result<Objects, ReadError> {
    let mut reader = Reader::new();
    reader.read(input)?;
    Ok(reader.finish())
}

/// Inputs up to this length that are not JSON although they start like it are read as YAML in flow style.
const FLOW: usize = 1 << 20;

/// Reads the documents of a YAML text, or returns the first error in them.
fn read_documents(input: &str) -> Result<Vec<Collected>, ReadError> {
    let documents: Vec<Document> = super::yaml::documents(&framing::without_logs(input)?)?;
    let several = documents.len() > 1;
    let mut all = Vec::with_capacity(documents.len());
    for (i, document) in documents.into_iter().enumerate() {
        let read = document.into_result();
        all.push(if several {
            read.map_err(|e| e.within(&format!("documents[{i}]")))?
        } else {
            read?
        });
    }
    Ok(all)
}

/// Returns the path at which an input is rejected, or no path for a repeated field. Parses the input a second time, as a
/// tree, since a tracked parser of the text would compile all structs once more.
pub(super) fn json_path(input: &[u8]) -> String {
    let value = match super::slice::value(input) {
        Ok(value) => value,
        Err(error) => return error.path().to_owned(),
    };
    let read: Result<Document, _> = serde_path_to_error::deserialize(&value);
    read.err().map(|error| error.path().to_string()).unwrap_or_default()
}

/// The objects of one JSON text or YAML document, or the first error in it.
#[derive(Debug, Default)]
pub(super) struct Document {
    collected: Collected,
    pub(super) failed: Option<ReadError>,
}

impl Document {
    fn into_result(self) -> Result<Collected, ReadError> {
        match self.failed {
            Some(error) => Err(error),
            None => Ok(self.collected),
        }
    }

    /// Refuses a kind, or a list of it, in a version that is no longer served.
    fn check_version(
        &mut self,
        api_version: &Option<Text<'_>>,
        kind: &Option<Text<'_>>,
        path: &Path<'_>,
    ) {
        if let (Some(api_version), Some(kind)) = (api_version, kind) {
            let kind = kind.strip_suffix("List").unwrap_or(kind);
            self.take(|_| super::versions::check(api_version, kind, path));
        }
    }

    /// Adds an object unless the document already has an error.
    fn take(&mut self, add: impl FnOnce(&mut Collected) -> Result<(), ReadError>) {
        if self.failed.is_none() {
            self.failed = add(&mut self.collected).err();
        }
    }
}

impl<'de> Deserialize<'de> for Document {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Document, D::Error> {
        let mut document = Document::default();
        Item::root(&mut document).deserialize(deserializer)?;
        Ok(document)
    }
}

/// The objects without a kind in a list whose own kind is not known yet, with their indices.
type Late = Vec<(usize, Value)>;

/// Reads one object, or a list of objects, into a document.
pub(super) struct Item<'c> {
    document: &'c mut Document,
    path: &'c Path<'c>,
    /// The kind that a typed list implies for its items.
    default: Option<Kind>,
    /// The index of the item, and the buffer for items without a kind whose list may still turn out to be typed.
    late: Option<(usize, &'c mut Late)>,
}

impl Item<'_> {
    /// Reads a whole text or YAML document.
    pub(super) fn root(document: &mut Document) -> Item<'_> {
        Item { document, path: &Path::Root, default: None, late: None }
    }
}

impl<'de> DeserializeSeed<'de> for Item<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Item<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a Kubernetes object")
    }

    /// Accepts an empty document.
    fn visit_unit<E: de::Error>(self) -> Result<(), E> {
        match self.path {
            Path::Root => Ok(()),
            _ => Err(E::invalid_type(de::Unexpected::Unit, &self)),
        }
    }

    fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<(), A::Error> {
        if !matches!(self.path, Path::Root) {
            return Err(de::Error::invalid_type(de::Unexpected::Seq, &self));
        }
        let mut items =
            Items { document: self.document, path: self.path, default: None, late: None };
        items.read(list)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let Item { document, path, default, late } = self;
        let mut api_version: Option<Text<'de>> = None;
        let mut kind: Option<Text<'de>> = None;
        let mut fields = serde_json::Map::new();
        let mut unnamed: Late = Vec::new();
        let mut listed = false;
        while let Some(Key(key)) = map.next_key::<Key<'de>>()? {
            match &*key {
                "apiVersion" => api_version = Some(map.next_value()?),
                "kind" => kind = Some(map.next_value()?),
                "items" if kind.as_ref().is_none_or(|kind| kind.ends_with("List")) => {
                    let typed = match (&api_version, &kind) {
                        (Some(api_version), Some(kind)) => Kind::of_items(api_version, kind),
                        _ => None,
                    };
                    listed = true;
                    map.next_value_seed(Items {
                        document,
                        path: &path.key("items"),
                        default: typed,
                        late: Some(&mut unnamed),
                    })?;
                }
                _ if listed => {
                    map.next_value::<de::IgnoredAny>()?;
                }
                _ => {
                    let known = match (&api_version, &kind) {
                        (Some(api_version), Some(kind)) => Some(Kind::of(api_version, kind)),
                        _ => default.clone(),
                    };
                    if let (Some(known), true) = (known, fields.is_empty()) {
                        document.check_version(&api_version, &kind, path);
                        if known.is_list() {
                            map.next_value::<de::IgnoredAny>()?;
                            continue;
                        }
                        let rest = Resume { key: Some(key), map };
                        return body(document, path, &known, MapAccessDeserializer::new(rest));
                    }
                    let value = map.next_value::<Value>()?;
                    fields.insert(key.to_string(), value);
                }
            }
        }
        let named = match (&api_version, &kind) {
            (Some(api_version), Some(kind)) => Some((&**api_version, &**kind)),
            _ => None,
        };
        document.check_version(&api_version, &kind, path);
        if listed {
            let default = named.and_then(|(a, k)| Kind::of_items(a, k));
            let items = path.key("items");
            for (index, value) in unnamed {
                let path = items.index(index);
                match &default {
                    Some(kind) => {
                        buffered(document, &path, kind, &value).map_err(de::Error::custom)?
                    }
                    None => document.take(|_| Err(ReadError::new(&path, Cause::NoKind))),
                }
            }
            return Ok(());
        }
        match (named, default, late) {
            (Some((api_version, kind)), ..) => {
                let kind = Kind::of(api_version, kind);
                let value = Value::Object(fields);
                buffered(document, path, &kind, &value).map_err(de::Error::custom)
            }
            (None, Some(kind), _) => {
                let value = Value::Object(fields);
                buffered(document, path, &kind, &value).map_err(de::Error::custom)
            }
            (None, None, Some((index, late))) if kind.is_none() && api_version.is_none() => {
                late.push((index, Value::Object(fields)));
                Ok(())
            }
            _ if matches!(path, Path::Root) && framing::is_export(&fields) => {
                export(document, &fields).map_err(de::Error::custom)
            }
            _ => {
                let unnamed = framing::unnamed(path, api_version.is_some(), kind.is_some());
                document.take(|_| Err(unnamed));
                Ok(())
            }
        }
    }
}

/// Reads the lists of an export of kube-scheduler-simulator, whose items need not name their kind.
fn export(
    document: &mut Document,
    fields: &serde_json::Map<String, Value>,
) -> Result<(), serde_json::Error> {
    for (name, api_version, kind) in framing::EXPORT {
        let Some(list) = fields.get(name) else { continue };
        let default = Some(Kind::of(api_version, kind));
        let path = Path::Root.key(name);
        // Tracked only so that the structs are not compiled once more, see `json_path`.
        let mut track = Track::new();
        let items = Items { document: &mut *document, path: &path, default, late: None };
        items.deserialize(Tracked::new(list, &mut track))?;
    }
    Ok(())
}

/// Reads fields that were buffered because the kind came late.
fn buffered(
    document: &mut Document,
    path: &Path<'_>,
    kind: &Kind,
    fields: &Value,
) -> Result<(), serde_json::Error> {
    // Tracked only so that the structs are not compiled once more, see `json_path`.
    let mut track = Track::new();
    body(document, path, kind, Tracked::new(fields, &mut track))
}

/// Reads the remaining fields directly into the struct of the kind.
fn body<'de, D: Deserializer<'de>>(
    document: &mut Document,
    path: &Path<'_>,
    kind: &Kind,
    deserializer: D,
) -> Result<(), D::Error> {
    macro_rules! read {
        ($wire:ty, $add:ident $(, $argument:expr)?) => {{
            let wire = <$wire>::deserialize(deserializer)?;
            document.take(|collected| collected.$add($($argument,)? &wire, path));
        }};
    }
    macro_rules! store {
        ($wire:ident, $read:ident) => {{
            let wire = super::wire_storage::$wire::<'de>::deserialize(deserializer)?;
            document.take(|collected| collected.object(super::storage::$read(&wire, path)));
        }};
    }
    macro_rules! part {
        ($wire:ident, $read:ident) => {{
            let wire = wire::$wire::<'de>::deserialize(deserializer)?;
            document.take(|collected| collected.object(super::node::$read(&wire, path)));
        }};
    }
    use super::{wire_objects as wire, wire_pod};
    match kind {
        Kind::Pod => read!(wire_pod::Pod<'de>, pod),
        Kind::Node => read!(wire::Node<'de>, node),
        Kind::Namespace => read!(wire::Bare<'de>, namespace),
        Kind::Service => read!(wire::Service<'de>, service),
        Kind::PriorityClass => read!(wire::PriorityClass<'de>, priority_class),
        Kind::PersistentVolume => store!(PersistentVolume, persistent_volume),
        Kind::PersistentVolumeClaim => {
            read!(super::wire_storage::PersistentVolumeClaim<'de>, claim)
        }
        Kind::StorageClass => read!(super::wire_storage::StorageClass<'de>, storage_class),
        Kind::CsiNode => store!(CsiNode, csi_node),
        Kind::VolumeAttachment => store!(VolumeAttachment, volume_attachment),
        Kind::CsiDriver => store!(CsiDriver, csi_driver),
        Kind::CsiStorageCapacity => store!(CsiStorageCapacity, csi_storage_capacity),
        Kind::PodDisruptionBudget => read!(wire::PodDisruptionBudget<'de>, budget),
        Kind::PodGroup(kind) => read!(wire::PodGroup<'de>, pod_group, *kind),
        Kind::NmNode => part!(NmNode, nm_node),
        Kind::CustomNodeResource => part!(CustomNodeResource, custom_node_resource),
        Kind::Reservation => read!(wire::Reservation<'de>, reservation),
        Kind::Movement => {
            let wire = wire::Movement::<'de>::deserialize(deserializer)?;
            document.take(|collected| collected.object(super::movement::read(&wire, path)));
        }
        Kind::LimitRange => read!(wire::LimitRange<'de>, limit_range),
        Kind::ResourceQuota => read!(wire::ResourceQuota<'de>, quota),
        Kind::RuntimeClass => read!(wire::RuntimeClass<'de>, runtime_class),
        Kind::ReplicationController => {
            read!(wire::ReplicationController<'de>, replication_controller);
        }
        Kind::Controller(kind) => read!(wire::Controller<'de>, controller, *kind),
        Kind::CronJob => read!(wire::CronJob<'de>, cron_job),
        Kind::JobSet => read!(wire::JobSet<'de>, job_set),
        Kind::LeaderWorkerSet => read!(wire::LeaderWorkerSet<'de>, leader_worker_set),
        // A list without items is empty.
        Kind::List => {
            de::IgnoredAny::deserialize(deserializer)?;
        }
        Kind::Other(name) => {
            de::IgnoredAny::deserialize(deserializer)?;
            document.take(|collected| {
                collected.skip(name);
                Ok(())
            });
        }
    }
    document.collected.count(kind);
    Ok(())
}

/// Reads the items of a list. `null` is an empty list.
struct Items<'c> {
    document: &'c mut Document,
    path: &'c Path<'c>,
    default: Option<Kind>,
    late: Option<&'c mut Late>,
}

impl Items<'_> {
    fn read<'de, A: SeqAccess<'de>>(&mut self, mut list: A) -> Result<(), A::Error> {
        let mut index = 0;
        loop {
            let item = Item {
                document: self.document,
                path: &self.path.index(index),
                default: self.default.clone(),
                late: self.late.as_mut().map(|late| (index, &mut **late)),
            };
            if list.next_element_seed(item)?.is_none() {
                return Ok(());
            }
            index += 1;
        }
    }
}

impl<'de> DeserializeSeed<'de> for Items<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Items<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of Kubernetes objects")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, list: A) -> Result<(), A::Error> {
        self.read(list)
    }
}

/// A map whose first key has already been taken.
struct Resume<'de, A> {
    key: Option<Text<'de>>,
    map: A,
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for Resume<'de, A> {
    type Error = A::Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, A::Error> {
        match self.key.take() {
            Some(key) => seed.deserialize(CowStrDeserializer::new(key.0)).map(Some),
            None => self.map.next_key_seed(seed),
        }
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, A::Error> {
        self.map.next_value_seed(seed)
    }
}

/// The number of objects that were not read, by kind.
pub(super) type Skipped = BTreeMap<String, usize>;
