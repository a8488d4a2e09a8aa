//! Reads whole inputs: files of objects, lists and documents.
//!
//! Pods and nodes of JSON are read while the parser runs, without an intermediate tree: if `apiVersion` and `kind` are
//! known (kubectl writes them first), the remaining fields are read directly into the structs of that kind, and unused
//! fields are skipped. Other objects are read through a tree, one at a time, so that the structs of all other kinds are
//! compiled once. An input that contains an error is discarded as a whole.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use portolan_dra::model::{DeviceClass, ResourceClaim, ResourceClaimTemplate, ResourceSlice};
use serde::Deserialize;
use serde::de::value::{CowStrDeserializer, MapAccessDeserializer};
use serde::de::{self, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};

use super::admission::Quota;
use super::collect::{Collected, Kind};
use super::controllers::{controller, cron_job, replication_controller};
use super::defaults::Rules;
use super::error::{Cause, Path, ReadError};
use super::framing;
use super::limit_range::LimitRange;
use super::resolve::{Objects, resolve};
use super::tree::{self, Entry, Progress, Spot, Tree};
use super::typed::{Origin, Typed};
use super::wire::{Key, Text};
use super::{devices, objects, single};

/// Reads several inputs and resolves references between their objects at the end: a priority class may be in another
/// file than its pods.
#[derive(Debug, Default)]
pub struct Reader {
    pub(super) collected: Collected,
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
    /// lists `nodes`, `pods`, `pvs`, `pvcs`, `storageClasses`, `priorityClasses` and `namespaces`; its
    /// `schedulerConfig` is skipped. O(length).
    ///
    /// # Errors
    ///
    /// As for [`Reader::read`].
    pub fn read_json(&mut self, input: &[u8]) -> Result<(), ReadError> {
        let input = input.strip_prefix(b"\xef\xbb\xbf").unwrap_or(input);
        let text = framing::text(input)?;
        match framing::values(text, self.document())? {
            Some(document) => self.collected.merge(document.into_result()?),
            None => self.read_yaml(text)?,
        }
        Ok(())
    }

    /// Starts an input, whose objects are kept only if all of them are valid.
    fn document(&self) -> Document {
        let collected = Collected { parts: self.collected.parts, ..Collected::default() };
        Document { collected, failed: None }
    }

    /// Reads the documents of a YAML text and skips empty documents. The logs in the output of
    /// `kubectl cluster-info dump -o yaml` are skipped, too.
    ///
    /// # Errors
    ///
    /// As for [`Reader::read`].
    pub fn read_yaml(&mut self, input: &str) -> Result<(), ReadError> {
        let document = self.document();
        let read = super::yaml::with_stack(|| read_documents(input, document));
        let collected = read.map_err(|error| match framing::template(input) {
            Some(position) => ReadError::at(String::new(), Some(position), Cause::Template),
            None => error,
        })?;
        self.collected.merge(collected);
        Ok(())
    }

    /// Appends the objects of another reader, which keeps them: a part of an input that changes is read again alone. Equal
    /// templates of pods are shared with the other reader. O(its objects).
    pub fn extend(&mut self, later: &mut Reader) {
        self.collected.extend(&mut later.collected);
    }

    /// Returns all objects that were read, after filling in priorities, overhead and other values that come from other
    /// objects.
    #[must_use]
    pub fn finish(self) -> Objects {
        let [objects] = Reader::finish_together([self]);
        objects
    }

    /// Returns all objects that were read, with the priority and runtime classes and the limit ranges of a cluster beside
    /// their own.
    #[must_use]
    pub fn finish_beside(self, cluster: &Objects) -> Objects {
        let known = Collected {
            priority_classes: cluster.priority_classes.clone(),
            runtime_classes: cluster.runtime_classes.clone(),
            limit_ranges: cluster.limit_ranges.clone(),
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

/// Adds the objects of the documents of a YAML text, or returns the first error in them.
fn read_documents(input: &str, mut all: Document) -> Result<Collected, ReadError> {
    let text = framing::without_logs(input)?;
    let documents = framing::documents(&text);
    let several = documents.len() > 1;
    for (i, document) in documents.into_iter().enumerate() {
        let read = super::yaml::objects(document, &mut all);
        let read = read.and_then(|()| all.failed.take().map_or(Ok(()), Err));
        if several {
            read.map_err(|error| error.within(&format!("documents[{i}]")))?;
        } else {
            read?;
        }
    }
    Ok(all.collected)
}

/// Returns the path at which the first value of a text is rejected, or no path for a repeated field. Parses it a second
/// time, as a tree, since the parser of the text does not know the path.
pub(super) fn json_path(text: &str) -> String {
    let value = Progress::default().next(&mut serde_json::Deserializer::from_str(text));
    let read = value.and_then(|value| Item::root(&mut Document::default()).spot(&value));
    read.err().map(|error| error.path().to_owned()).unwrap_or_default()
}

/// The objects of an input, or the first error in it.
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
    fn check_version(&mut self, named: Option<(&str, &str)>, path: &Path<'_>) {
        if let Some((api_version, kind)) = named {
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

/// The objects without a kind in a list whose own kind is not known yet, with their indices.
type Late<'de> = Vec<(usize, Spot<'de>)>;

/// Reads one object, or a list of objects, into a document.
pub(super) struct Item<'c, 'de> {
    document: &'c mut Document,
    path: &'c Path<'c>,
    /// The kind that a typed list implies for its items.
    default: Option<Kind>,
    /// The index of the item, and the buffer for items without a kind whose list may still turn out to be typed.
    late: Option<(usize, &'c mut Late<'de>)>,
    origin: Origin<'de>,
}

impl<'de> Item<'_, 'de> {
    /// Reads a whole JSON text.
    pub(super) fn root(document: &mut Document) -> Item<'_, 'de> {
        let origin = Origin::default();
        Item { document, path: &Path::Root, default: None, late: None, origin }
    }

    /// Reads an object, or a list of objects, from a tree.
    fn spot(self, spot: &Spot<'_>) -> Result<(), ReadError> {
        let Item { document, path, default, origin, .. } = self;
        let typed = Typed::new(spot, *path, origin);
        let is_root = matches!(path, Path::Root);
        let mut each = |list: &Spot<'_>, path: &Path<'_>, default: Option<Kind>| match &list.tree {
            Tree::Null => Ok(()),
            Tree::List(items) => items.iter().enumerate().try_for_each(|(index, spot)| {
                let (path, default) = (&path.index(index), default.clone());
                Item { document: &mut *document, path, default, late: None, origin }.spot(spot)
            }),
            _ => Err(Typed::new(list, *path, origin).mismatch(EXPECTED_LIST, "")),
        };
        match &spot.tree {
            Tree::Null | Tree::List(_) if is_root => return each(spot, path, None),
            Tree::Map(_) => {}
            _ => return Err(typed.mismatch(EXPECTED, "")),
        }
        let of = |key| {
            let (value, path) = (spot.get(key), &path.key(key));
            value.map(|spot| Typed::new(spot, *path, origin).read()).transpose()
        };
        let (api_version, kind) = (of("apiVersion")?, of("kind")?);
        let named = named(&api_version, &kind);
        if let Some(items) = spot.get("items").filter(|_| may_be_list(&kind)) {
            each(items, &path.key("items"), named.and_then(|(of, kind)| Kind::of_items(of, kind)))?;
            document.check_version(named, path);
            return Ok(());
        }
        if let Some(known) = named.map(|(of, kind)| Kind::of(of, kind)).or(default) {
            document.check_version(named, path);
            return body(document, path, &known, typed);
        }
        if is_root && framing::is_export(spot) {
            // The items of these lists need not name their kind.
            return framing::EXPORT.into_iter().try_for_each(|(name, of, kind)| {
                let list = spot.get(name).map(|list| (list, Kind::of(of, kind)));
                list.map_or(Ok(()), |(list, kind)| each(list, &path.key(name), Some(kind)))
            });
        }
        let unnamed = framing::unnamed(path, api_version.is_some(), kind.is_some());
        document.take(|_| Err(unnamed));
        Ok(())
    }

    /// Reads a tree that a parser has built, unless its kind may be that of a list which is not known yet.
    fn built(self, spot: Spot<'de>) {
        let Item { document, path, default, late, origin } = self;
        let is_named = || spot.get("apiVersion").or(spot.get("kind")).is_some();
        if let (None, Some((index, late)), false) = (&default, late, is_named()) {
            return late.push((index, spot));
        }
        let read = Item { document: &mut *document, path, default, late: None, origin }.spot(&spot);
        // The parser cannot pass the error on, with its path and position.
        document.take(|_| read);
    }

    /// Reads the items of a list whose kind is known at its end.
    fn late(self, named: Option<(&str, &str)>, unnamed: Late<'de>) {
        let Item { document, path, origin, .. } = self;
        document.check_version(named, path);
        let default = named.and_then(|(of, kind)| Kind::of_items(of, kind));
        let items = path.key("items");
        for (index, spot) in unnamed {
            let (path, default) = (&items.index(index), default.clone());
            Item { document: &mut *document, path, default, late: None, origin }.built(spot);
        }
    }
}

/// Returns the version and the kind of an object that names both.
fn named<'k>(
    api_version: &'k Option<Text<'_>>,
    kind: &'k Option<Text<'_>>,
) -> Option<(&'k str, &'k str)> {
    api_version.as_deref().zip(kind.as_deref())
}

/// Returns whether an object with this kind, or without one yet, may be a list.
fn may_be_list(kind: &Option<Text<'_>>) -> bool {
    kind.as_ref().is_none_or(|kind| kind.ends_with("List"))
}

const EXPECTED: &str = "a Kubernetes object";
const EXPECTED_LIST: &str = "a list of Kubernetes objects";

impl<'de> DeserializeSeed<'de> for Item<'_, 'de> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Item<'_, 'de> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(EXPECTED)
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
        let Item { document, path, .. } = self;
        Items { document, path, default: None, late: None }.read(list)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let Item { document, path, default, late, origin } = self;
        let mut api_version: Option<Text<'de>> = None;
        let mut kind: Option<Text<'de>> = None;
        let mut fields = Vec::new();
        let mut unnamed: Late<'de> = Vec::new();
        let mut listed = false;
        while let Some(Key(key)) = map.next_key::<Key<'de>>()? {
            match &*key {
                "apiVersion" => api_version = Some(map.next_value()?),
                "kind" => kind = Some(map.next_value()?),
                "items" if may_be_list(&kind) => {
                    let typed = named(&api_version, &kind);
                    let typed = typed.and_then(|(version, kind)| Kind::of_items(version, kind));
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
                    let known = fields.is_empty().then(|| match named(&api_version, &kind) {
                        Some((version, kind)) => Some(Kind::of(version, kind)),
                        None => default.clone(),
                    });
                    if let Some(known) = known.flatten().filter(is_direct) {
                        document.check_version(named(&api_version, &kind), path);
                        if known.is_list() {
                            map.next_value::<de::IgnoredAny>()?;
                            continue;
                        }
                        let rest = Resume { key: Some(key), map };
                        return direct(document, path, &known, MapAccessDeserializer::new(rest));
                    }
                    let value = map.next_value_seed(tree::Json(&Progress::default()))?;
                    fields.push(Entry::new(key.0, value));
                }
            }
        }
        let item = Item { document, path, default, late, origin };
        if listed {
            item.late(named(&api_version, &kind), unnamed);
            return Ok(());
        }
        for (key, value) in [("apiVersion", api_version), ("kind", kind)] {
            fields.extend(value.map(|Text(text)| Entry::new(key.into(), Tree::Text(text))));
        }
        item.built(Tree::Map(fields).into());
        Ok(())
    }
}

/// Returns whether objects of a kind are read directly: pods and nodes, which are most of a cluster, and skipped ones.
fn is_direct(kind: &Kind) -> bool {
    matches!(kind, Kind::Pod | Kind::Node | Kind::List | Kind::Other(_))
}

/// Reads the remaining fields directly into the struct of the kind.
fn direct<'de, D: Deserializer<'de>>(
    document: &mut Document,
    path: &Path<'_>,
    kind: &Kind,
    deserializer: D,
) -> Result<(), D::Error> {
    match kind {
        Kind::Pod => {
            let wire: super::wire_pod::Pod<'de> = Deserialize::deserialize(deserializer)?;
            document.take(|collected| collected.pod(&wire, path));
        }
        Kind::Node => {
            let wire: super::wire_objects::Node<'de> = Deserialize::deserialize(deserializer)?;
            document.take(|collected| collected.node(&wire, path));
        }
        // A list without items is empty.
        _ => {
            de::IgnoredAny::deserialize(deserializer)?;
        }
    }
    if let Kind::Other(name) = kind {
        document.take(|collected| {
            collected.skip(name);
            Ok(())
        });
    }
    document.collected.count(kind);
    Ok(())
}

/// Reads an object of a kind from a tree.
fn body(
    document: &mut Document,
    path: &Path<'_>,
    kind: &Kind,
    object: Typed<'_, '_>,
) -> Result<(), ReadError> {
    /// Reads the struct that `$add` takes.
    macro_rules! read {
        (|$wire:ident, $all:ident| $add:expr) => {{
            let read = object.read()?;
            document.take(|$all| {
                let $wire = &read;
                $add
            });
        }};
    }
    /// Appends what `$read` makes of the struct that it takes to one of the lists.
    macro_rules! add {
        ($list:ident, |$wire:ident, $rules:pat_param| $read:expr) => {
            read!(|$wire, all| {
                let $rules = &mut Rules::apply(&mut all.defaulted);
                all.$list.push($read?.into());
                Ok(())
            })
        };
    }
    match kind {
        Kind::DeviceClass
        | Kind::ResourceSlice
        | Kind::ResourceClaim
        | Kind::ResourceClaimTemplate => device(document, path, kind, object)?,
        Kind::PersistentVolumeClaim => read!(|wire, all| all.claim(wire, path)),
        Kind::StorageClass => read!(|wire, all| all.storage_class(wire, path)),
        Kind::PodDisruptionBudget => read!(|wire, all| all.budget(wire, path)),
        Kind::PriorityClass => {
            add!(priority_classes, |wire, _| objects::priority_class(wire, path));
        }
        Kind::RuntimeClass => add!(runtime_classes, |wire, _| objects::runtime_class(wire, path)),
        Kind::LimitRange => add!(limit_ranges, |wire, rules| LimitRange::read(wire, path, rules)),
        Kind::ResourceQuota => add!(quotas, |wire, rules| Quota::read(wire, path, rules)),
        Kind::ReplicationController => {
            add!(controllers, |wire, rules| replication_controller(wire, path, rules));
        }
        Kind::Controller(kind) => {
            add!(controllers, |wire, rules| controller(*kind, wire, path, rules));
        }
        Kind::CronJob => add!(controllers, |wire, rules| cron_job(wire, path, rules)),
        Kind::JobSet => read!(|wire, all| all.job_set(wire, path)),
        Kind::LeaderWorkerSet => read!(|wire, all| all.leader_worker_set(wire, path)),
        Kind::Pod | Kind::Node | Kind::List | Kind::Other(_) => {
            return direct(document, path, kind, object);
        }
        kind => {
            let rules = &mut Rules::apply(&mut document.collected.defaulted);
            let read = single::stored(kind, object, path, rules)?;
            document.take(|all| {
                all.objects.extend(read.transpose()?);
                Ok(())
            });
        }
    }
    document.collected.count(kind);
    Ok(())
}

/// Reads an object of dynamic resource allocation.
fn device(
    document: &mut Document,
    path: &Path<'_>,
    kind: &Kind,
    object: Typed<'_, '_>,
) -> Result<(), ReadError> {
    /// Appends an object, which `$complete` checks, to one of the lists.
    macro_rules! add {
        ($list:ident, $kind:ident, |$metadata:ident, $rules:pat_param| $complete:expr) => {{
            let mut read: $kind = devices::read(object, path, stringify!($kind))?;
            document.take(|all| {
                let $rules = &mut Rules::apply(&mut all.defaulted);
                let $metadata = &mut read.metadata;
                $complete?;
                all.devices.$list.push(Arc::new(read));
                Ok(())
            });
        }};
    }
    match kind {
        Kind::DeviceClass => add!(classes, DeviceClass, |of, _| devices::named(of, path)),
        Kind::ResourceSlice => add!(slices, ResourceSlice, |of, _| devices::named(of, path)),
        Kind::ResourceClaim => {
            add!(claims, ResourceClaim, |of, rules| devices::claim(of, path, rules));
        }
        _ => add!(templates, ResourceClaimTemplate, |of, rules| {
            devices::namespaced(of, "ResourceClaimTemplate", path, rules)
        }),
    }
    Ok(())
}

/// Reads the items of a list. `null` is an empty list.
struct Items<'c, 'de> {
    document: &'c mut Document,
    path: &'c Path<'c>,
    default: Option<Kind>,
    late: Option<&'c mut Late<'de>>,
}

impl<'de> Items<'_, 'de> {
    fn read<A: SeqAccess<'de>>(mut self, mut list: A) -> Result<(), A::Error> {
        let mut index = 0;
        loop {
            let item = Item {
                document: self.document,
                path: &self.path.index(index),
                default: self.default.clone(),
                late: self.late.as_mut().map(|late| (index, &mut **late)),
                origin: Origin::default(),
            };
            if list.next_element_seed(item)?.is_none() {
                return Ok(());
            }
            index += 1;
        }
    }
}

impl<'de> DeserializeSeed<'de> for Items<'_, 'de> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Items<'_, 'de> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(EXPECTED_LIST)
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<(), A::Error> {
        self.read(list)
    }
}

/// Reads a YAML document, or the items of a list in it. Only the tree of one item is in memory at a time.
pub(super) struct Streamed<'c, 'de> {
    document: &'c mut Document,
    path: Path<'c>,
    default: Option<Kind>,
    late: Option<&'c mut Late<'de>>,
    origin: Origin<'de>,
}

impl<'c, 'de> Streamed<'c, 'de> {
    /// Reads a whole document.
    pub(super) fn root(document: &'c mut Document, origin: Origin<'de>) -> Streamed<'c, 'de> {
        Streamed { document, path: Path::Root, default: None, late: None, origin }
    }
}

impl<'de> DeserializeSeed<'de> for Streamed<'_, 'de> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Streamed<'_, 'de> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if matches!(self.path, Path::Root) { EXPECTED } else { EXPECTED_LIST })
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut list: A) -> Result<(), A::Error> {
        let mut index = 0;
        while let Some(spot) = list.next_element()? {
            let (path, default) = (&self.path.index(index), self.default.clone());
            let late = self.late.as_mut().map(|late| (index, &mut **late));
            let document = &mut *self.document;
            Item { document, path, default, late, origin: self.origin }.built(spot);
            index += 1;
        }
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let Streamed { document, path: path @ Path::Root, origin, .. } = self else {
            return Err(de::Error::invalid_type(de::Unexpected::Map, &self));
        };
        let mut fields: Vec<Entry<'de>> = Vec::new();
        let mut listed = None;
        while let Some(Key(Text(key))) = map.next_key()? {
            let of = |name| fields.iter().find(|field| field.key == name)?.value.text();
            if key == "items" && of("kind").is_none_or(|kind| kind.ends_with("List")) {
                let named = of("apiVersion").zip(of("kind"));
                let default = named.and_then(|(of, kind)| Kind::of_items(of, kind));
                let (document, path) = (&mut *document, path.key("items"));
                let late = Some(listed.insert(Late::new()));
                map.next_value_seed(Streamed { document, path, default, late, origin })?;
            } else {
                fields.push(Entry::new(key, map.next_value::<Spot<'de>>()?));
            }
        }
        let object = Spot::from(Tree::Map(fields));
        let item = Item { document, path: &path, default: None, late: None, origin };
        let of = |name| object.get(name).and_then(Spot::text);
        match listed {
            Some(unnamed) => item.late(of("apiVersion").zip(of("kind")), unnamed),
            None => item.built(object),
        }
        Ok(())
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
