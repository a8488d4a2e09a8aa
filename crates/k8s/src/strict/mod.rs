//! Finds defects of an input that an API server would reject, and that reading tolerates: unknown fields, repeated
//! keys, values of a wrong type, invalid operators, negative numbers of replicas, pods without containers, kinds that
//! do not exist in their version.
//!
//! The check is a second pass over the input, so that reading stays fast: it builds a tree with lines, and reads each
//! object of a built-in kind into the type of the crate k8s-openapi, which knows all of its fields. It takes about ten
//! times as long as reading. Custom resources are not checked, except for the pod templates of job sets and
//! leader-worker sets.

mod kinds;
mod lines;
mod rules;

pub use kinds::is_read;

use std::fmt;

use serde::de::DeserializeOwned;

use k8s_openapi::api::{apps, batch, core, node, policy, resource, scheduling, storage};

use crate::checks::{Checks, Found};
use crate::framing;
use crate::tree::{Spot, Tree};
use crate::typed::Typed;
use crate::{ReadError, yaml};

/// The greatest number of problems that are returned for one input.
const MAX_PROBLEMS: usize = 1000;

/// A defect of an input.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Problem {
    /// The line, counted from 1.
    pub line: u64,
    /// The kind, namespace and name of the object: `Pod shop/web-0`.
    pub object: String,
    /// The path of the field in the object: `spec.containers[0].image`.
    pub path: String,
    /// The defect, in the words of the API server: `unknown field`.
    pub what: String,
    /// Whether the value has the wrong type. No API server decodes the object, whatever its validation of fields.
    pub is_wrong_type: bool,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}: {}", self.object, self.path, self.what)
    }
}

/// A step from a value to a part of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Key(String),
    Index(usize),
}

/// The place of a value in an object.
pub(super) type Place = Vec<Step>;

fn text(place: &[Step]) -> String {
    let mut text = String::new();
    for step in place {
        match step {
            Step::Key(key) if text.is_empty() => text.push_str(key),
            Step::Key(key) => {
                text.push('.');
                text.push_str(key);
            }
            Step::Index(index) => text.push_str(&format!("[{index}]")),
        }
    }
    text
}

impl<'i> Spot<'i> {
    /// Returns a part of the value, and the line on which its key, or itself in a list, starts.
    fn step(&self, step: &Step) -> Option<(u64, &Spot<'i>)> {
        match (step, &self.tree) {
            (Step::Key(key), Tree::Map(entries)) => {
                let entry = entries.iter().rev().find(|entry| entry.key == **key)?;
                Some((entry.line, &entry.value))
            }
            (Step::Index(index), Tree::List(items)) => {
                items.get(*index).map(|item| (item.line, item))
            }
            _ => None,
        }
    }

    /// Returns the value at a place.
    fn at(&self, place: &[Step]) -> Option<&Spot<'i>> {
        place.iter().try_fold(self, |spot, step| spot.step(step).map(|(_, spot)| spot))
    }

    /// Returns the line of the longest part of the path that exists.
    fn line_of(&self, place: &[Step]) -> u64 {
        let (mut line, mut spot) = (self.line, self);
        for step in place {
            match spot.step(step) {
                Some(next) => (line, spot) = next,
                None => break,
            }
        }
        line
    }
}

/// The problems of one object.
pub(super) struct Sink<'t> {
    object: String,
    root: &'t Spot<'t>,
    /// The number of lines before the document of the object.
    before: u64,
    problems: Vec<Problem>,
}

impl Sink<'_> {
    /// Adds a problem unless its place already has one.
    pub(super) fn add(&mut self, place: &[Step], what: impl Into<String>) {
        let (line, path) = (self.root.line_of(place), text(place));
        self.push(Found { line, path, what: what.into(), is_wrong_type: false });
    }

    fn push(&mut self, found: Found) {
        let Found { line, path, what, is_wrong_type } = found;
        let is_full = self.problems.len() >= MAX_PROBLEMS;
        if !is_full && self.problems.iter().all(|known| known.path != path) {
            let (object, line) = (self.object.clone(), self.before + line);
            self.problems.push(Problem { line, object, path, what, is_wrong_type });
        }
    }

    /// Reads the value at a place of the object. Returns nothing if a field has the wrong type. All problems of the
    /// value are added.
    pub(super) fn read<T: DeserializeOwned>(&mut self, place: &[Step]) -> Option<T> {
        let checks = Checks::default();
        let read = Typed::checked(self.root.at(place)?, &checks).read::<T>();
        let at = text(place);
        for found in checks.found.into_inner() {
            let dot = if at.is_empty() || found.path.is_empty() { "" } else { "." };
            self.push(Found { path: format!("{at}{dot}{}", found.path), ..found });
        }
        read.ok()
    }
}

/// Returns the defects of an input, at most 1000. An input that is neither JSON nor YAML has none: reading reports it.
///
/// O(length). Takes about ten times as long as reading the input.
///
/// ```
/// let problems = portolan_k8s::check(b"
/// apiVersion: v1
/// kind: Pod
/// metadata: {name: web-0}
/// spec:
///   containers: [{name: web, imagine: nginx}]
/// ");
/// assert_eq!(problems[0].line, 6);
/// assert_eq!(problems[0].to_string(), "Pod web-0: spec.containers[0].imagine: unknown field");
/// ```
#[must_use]
pub fn check(input: &[u8]) -> Vec<Problem> {
    let mut problems = Vec::new();
    with_documents(input, |documents| {
        for (before, document) in documents {
            each(document, None, &mut |api_version, kind, spot| {
                check_object((api_version, kind), (*before, spot), &mut problems);
            });
        }
    });
    problems.truncate(MAX_PROBLEMS);
    problems
}

/// Returns the line of the field at the path of a [`ReadError`](crate::ReadError), or that of the part of the path that
/// exists. O(length).
#[must_use]
pub fn line_of(input: &[u8], path: &str) -> Option<u64> {
    let mut place = Place::new();
    for part in path.split('.') {
        let (key, mut rest) = part.split_once('[').unwrap_or((part, ""));
        if !key.is_empty() {
            place.push(Step::Key(key.to_owned()));
        }
        while let Some((index, after)) = rest.split_once(']') {
            place.push(Step::Index(index.parse().ok()?));
            rest = after.strip_prefix('[').unwrap_or("");
        }
    }
    with_documents(input, |documents| {
        let ((before, document), place) = match &*place {
            [Step::Key(key), Step::Index(index), rest @ ..] if key == "documents" => {
                (documents.get(*index)?, rest)
            }
            place => (documents.first()?, place),
        };
        Some(before + document.line_of(place))
    })
}

/// Returns the lines on which the objects of a kind and name start. An object without a namespace is in `default`, if
/// `namespace` is given. O(length), as slow as [`check`].
#[must_use]
pub fn lines_of_object(input: &[u8], kind: &str, namespace: Option<&str>, name: &str) -> Vec<u64> {
    let mut lines = Vec::new();
    with_documents(input, |documents| {
        for (before, document) in documents {
            each(document, None, &mut |_, of, spot| {
                let (in_namespace, named) = key(spot);
                let in_namespace = if in_namespace.is_empty() { "default" } else { in_namespace };
                if of == kind && named == name && namespace.is_none_or(|it| it == in_namespace) {
                    lines.push(before + spot.line);
                }
            });
        }
    });
    lines
}

/// Calls a function with the values of a text and the number of lines before each. There are none if the text cannot be
/// parsed.
fn with_documents<R>(input: &[u8], found: impl FnOnce(&[(u64, Spot<'_>)]) -> R) -> R {
    let input = input.strip_prefix(b"\xef\xbb\xbf").unwrap_or(input);
    // The logs in a dump are replaced by empty lines.
    let text = str::from_utf8(input).ok().and_then(|text| framing::without_logs(text).ok());
    let text = text.unwrap_or_default();
    let read = match crate::is_json(text.as_bytes()) {
        true => lines::json(text.as_bytes()).map(|all| all.into_iter().map(|of| (0, of)).collect()),
        false => (framing::documents(&text).into_iter())
            .map(|document| Ok((document.before, yaml::parse(document)?)))
            .collect(),
    };
    let read: Result<Vec<_>, ReadError> = read;
    found(&read.unwrap_or_default())
}

/// Calls a function with the version, the kind and the value of an object, or of the objects of a list.
fn each(
    spot: &Spot<'_>,
    implied: Option<(&str, &str)>,
    found: &mut impl FnMut(&str, &str, &Spot<'_>),
) {
    if let Tree::List(items) = &spot.tree {
        items.iter().for_each(|item| each(item, None, found));
        return;
    }
    let of = |key| spot.get(key).and_then(Spot::text);
    let named = of("apiVersion").zip(of("kind")).or(implied);
    let Some((api_version, kind)) = named else { return };
    if let (Some(of_items), Some(items)) = (kind.strip_suffix("List"), spot.get("items")) {
        let implied = (!of_items.is_empty()).then_some((api_version, of_items));
        if let Tree::List(items) = &items.tree {
            items.iter().for_each(|item| each(item, implied, found));
        }
        return;
    }
    found(api_version, kind, spot);
}

/// The namespace and the name of an object. Both may be empty.
fn key<'s>(spot: &'s Spot<'_>) -> (&'s str, &'s str) {
    let meta = spot.get("metadata");
    let meta = |key| meta.and_then(|meta| meta.get(key)).and_then(Spot::text).unwrap_or("");
    (meta("namespace"), meta("name"))
}

/// Checks an object of a version and kind, whose document begins after `before` lines.
fn check_object(
    (api_version, kind): (&str, &str),
    (before, spot): (u64, &Spot<'_>),
    problems: &mut Vec<Problem>,
) {
    if problems.len() >= MAX_PROBLEMS {
        return;
    }
    let (namespace, mut name) = key(spot);
    if name.is_empty() {
        let meta = spot.get("metadata");
        name = meta.and_then(|it| it.get("generateName")).and_then(Spot::text).unwrap_or("");
    }
    let object = super::defaults::object(kind, namespace, name);
    let mut sink = Sink { object, root: spot, before, problems: Vec::new() };
    object_of(api_version, kind, spot, &mut sink);
    sink.problems.sort_by_key(|problem| problem.line);
    problems.append(&mut sink.problems);
}

fn object_of(api_version: &str, kind: &str, spot: &Spot<'_>, sink: &mut Sink<'_>) {
    macro_rules! kinds {
        ($($version:literal: $($type:path => $name:literal $rule:expr,)*)*) => {
            match (api_version, kind) {
                $($(($version, $name) => {
                    if let Some(found) = sink.read::<$type>(&[]) {
                        let rule: fn(&$type, &mut Sink<'_>) = $rule;
                        rule(&found, sink);
                    }
                })*)*
                ("jobset.x-k8s.io/v1alpha2", "JobSet") => rules::job_set(spot, sink),
                ("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet") => {
                    rules::leader_worker_set(spot, sink);
                }
                _ => {
                    if let Some((field, what)) = kinds::unserved(api_version, kind) {
                        sink.add(&[field], what);
                    }
                }
            }
        };
    }
    kinds! {
        "v1":
            core::v1::Pod => "Pod" rules::pod,
            core::v1::Node => "Node" rules::node,
            core::v1::Namespace => "Namespace" |_, _| {},
            core::v1::Service => "Service" |_, _| {},
            core::v1::ReplicationController => "ReplicationController" rules::replication_controller,
            core::v1::PersistentVolume => "PersistentVolume" rules::persistent_volume,
            core::v1::PersistentVolumeClaim => "PersistentVolumeClaim" |_, _| {},
        "apps/v1":
            apps::v1::Deployment => "Deployment" rules::deployment,
            apps::v1::ReplicaSet => "ReplicaSet" rules::replica_set,
            apps::v1::StatefulSet => "StatefulSet" rules::stateful_set,
            apps::v1::DaemonSet => "DaemonSet" rules::daemon_set,
        "batch/v1":
            batch::v1::Job => "Job" rules::job,
            batch::v1::CronJob => "CronJob" rules::cron_job,
        "policy/v1":
            policy::v1::PodDisruptionBudget => "PodDisruptionBudget" rules::budget,
        "scheduling.k8s.io/v1":
            scheduling::v1::PriorityClass => "PriorityClass" |_, _| {},
        "node.k8s.io/v1":
            node::v1::RuntimeClass => "RuntimeClass" |_, _| {},
        "resource.k8s.io/v1":
            resource::v1::DeviceClass => "DeviceClass" |_, _| {},
            resource::v1::ResourceClaim => "ResourceClaim" |_, _| {},
            resource::v1::ResourceClaimTemplate => "ResourceClaimTemplate" |_, _| {},
            resource::v1::ResourceSlice => "ResourceSlice" |_, _| {},
        "storage.k8s.io/v1":
            storage::v1::StorageClass => "StorageClass" |_, _| {},
            storage::v1::CSINode => "CSINode" |_, _| {},
            storage::v1::VolumeAttachment => "VolumeAttachment" |_, _| {},
            storage::v1::CSIDriver => "CSIDriver" |_, _| {},
            storage::v1::CSIStorageCapacity => "CSIStorageCapacity" |_, _| {},
    }
}
