//! Objects as the API server sent them, for extenders, which get whole objects.
//!
//! Stores only the objects that extenders receive. An object is stored before the engine gets its event, so a decision
//! finds its objects unless they were removed meanwhile. As in kube-scheduler, `managedFields` are left out, and so are
//! `apiVersion` and `kind`.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use portolan::model::{DEFAULT_SCHEDULER, Name, Uid};
use serde::Deserialize;
use serde_json::value::{RawValue, to_raw_value};

use super::sink::{NotPut, Sink};
use super::submit::Stopped;
use super::wire::Meta;
use crate::debug::debug_by;

/// Which objects are kept, in addition to the pods that wait for one of our schedulers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RawKinds {
    /// Also pods on nodes, and those of other schedulers: some kB for each.
    pub(crate) placed_pods: bool,
    /// Nodes: some 10 kB for each.
    pub(crate) nodes: bool,
}

/// Objects as JSON.
#[derive(Default)]
pub(crate) struct RawObjects {
    kinds: RawKinds,
    objects: RwLock<Objects>,
}

#[derive(Default)]
struct Objects {
    pods: HashMap<Uid, Arc<RawPod>>,
    nodes: HashMap<Box<str>, Arc<RawValue>>,
}

struct RawPod {
    json: Arc<RawValue>,
    /// The resources that the pod names, computed on first use.
    resources: OnceLock<Box<[String]>>,
}

impl RawObjects {
    /// Creates an empty store of these kinds.
    pub(crate) fn new(kinds: RawKinds) -> RawObjects {
        RawObjects { kinds, objects: RwLock::default() }
    }

    /// Returns a pod, or `None` if it is not kept or no longer exists. O(1).
    pub(crate) fn pod(&self, uid: &Uid) -> Option<Arc<RawValue>> {
        self.read().pods.get(uid).map(|pod| pod.json.clone())
    }

    /// Returns whether a pod names one of these resources, or `None` if it is not kept or no longer exists. `read`
    /// extracts the names from the JSON on first use.
    pub(crate) fn names_resource(
        &self,
        uid: &Uid,
        wanted: &[String],
        read: fn(&RawValue) -> Vec<String>,
    ) -> Option<bool> {
        // Parsed without the lock.
        let pod = self.read().pods.get(uid).cloned()?;
        let named = pod.resources.get_or_init(|| read(&pod.json).into());
        Some(named.iter().any(|name| wanted.contains(name)))
    }

    /// Returns a node, or `None` if it is not kept or no longer exists. O(1).
    pub(crate) fn node(&self, name: &str) -> Option<Arc<RawValue>> {
        self.read().nodes.get(name).cloned()
    }

    fn read(&self) -> RwLockReadGuard<'_, Objects> {
        // Each change is one call of a map, so a panic leaves no change half done.
        self.objects.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Objects> {
        self.objects.write().unwrap_or_else(PoisonError::into_inner)
    }
}

debug_by!(RawObjects, it, pods: it.read().pods.len(), nodes: it.read().nodes.len());

/// The fields that decide whether a pod is kept.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Spec {
    node_name: Option<String>,
    scheduler_name: Option<String>,
}

/// Which objects a sink receives.
#[derive(Clone)]
pub(super) enum RawKind {
    /// Pods, and the names of our schedulers.
    Pods(Arc<[Name]>),
    Nodes,
}

/// Stores objects, and passes them on.
pub(super) struct RawSink<S> {
    inner: S,
    kind: RawKind,
    /// `None` if nothing is kept.
    objects: Option<Arc<RawObjects>>,
    /// The uids or names of the list that is being received, or `None` outside a list.
    listed: Option<HashSet<Box<str>>>,
}

impl<S> RawSink<S> {
    pub(super) fn new(inner: S, kind: RawKind, objects: Option<Arc<RawObjects>>) -> RawSink<S> {
        let is_kept = |objects: &Arc<RawObjects>| match kind {
            RawKind::Pods(_) => true,
            RawKind::Nodes => objects.kinds.nodes,
        };
        let objects = objects.filter(is_kept);
        RawSink { inner, kind, objects, listed: None }
    }

    fn key<'m>(&self, meta: &'m Meta<'_>) -> &'m str {
        match self.kind {
            RawKind::Pods(_) => &meta.uid,
            RawKind::Nodes => &meta.name,
        }
    }

    /// Records an object of the list that is being received, if any.
    fn note(&mut self, meta: &Meta<'_>) {
        if self.objects.is_some() && self.listed.is_some() {
            let key = self.key(meta).into();
            self.listed.get_or_insert_default().insert(key);
        }
    }

    /// Stores an object, or removes the stored one if the object need not be kept or cannot be read.
    fn store(&self, objects: &RawObjects, object: &RawValue, meta: &Meta<'_>) {
        let kept = match &self.kind {
            RawKind::Pods(ours) => pod(object, ours, objects.kinds.placed_pods),
            RawKind::Nodes => fields(object).and_then(|fields| trimmed(fields).ok()),
        };
        match (kept, &self.kind) {
            (Some(kept), RawKind::Pods(_)) => {
                let pod = RawPod { json: kept.into(), resources: OnceLock::new() };
                objects.write().pods.insert(Uid::new(&meta.uid), Arc::new(pod));
            }
            (Some(kept), RawKind::Nodes) => {
                objects.write().nodes.insert(Box::from(&*meta.name), kept.into());
            }
            (None, _) => self.remove(objects, meta),
        }
    }

    fn remove(&self, objects: &RawObjects, meta: &Meta<'_>) {
        let mut objects = objects.write();
        match self.kind {
            RawKind::Pods(_) => drop(objects.pods.remove(&Uid::new(&meta.uid))),
            RawKind::Nodes => drop(objects.nodes.remove(&*meta.name)),
        }
    }
}

type Fields<'a> = BTreeMap<String, &'a RawValue>;

fn fields(object: &RawValue) -> Option<Fields<'_>> {
    serde_json::from_str(object.get()).ok()
}

/// Returns the pod without the fields that are left out, or `None` if it need not be kept.
fn pod(object: &RawValue, ours: &[Name], all: bool) -> Option<Box<RawValue>> {
    let fields = fields(object)?;
    let spec: Spec = fields
        .get("spec")
        .and_then(|spec| serde_json::from_str(spec.get()).ok())
        .unwrap_or_default();
    let is_placed = spec.node_name.is_some_and(|node| !node.is_empty());
    let scheduler = spec.scheduler_name.as_deref().unwrap_or(DEFAULT_SCHEDULER);
    let is_ours = ours.iter().any(|ours| **ours == *scheduler);
    if all || (is_ours && !is_placed) { trimmed(fields).ok() } else { None }
}

fn trimmed(mut fields: Fields<'_>) -> serde_json::Result<Box<RawValue>> {
    fields.remove("apiVersion");
    fields.remove("kind");
    let Some(metadata) = fields.get("metadata") else { return to_raw_value(&fields) };
    let mut metadata: Fields<'_> = serde_json::from_str(metadata.get())?;
    metadata.remove("managedFields");
    let metadata = to_raw_value(&metadata)?;
    // The map now also borrows from this function.
    let mut fields: Fields<'_> = fields;
    fields.insert("metadata".to_owned(), &metadata);
    to_raw_value(&fields)
}

impl<S: Sink> Sink for RawSink<S> {
    fn begin(&mut self) {
        self.listed = Some(HashSet::new());
        self.inner.begin();
    }

    async fn put(&mut self, object: &RawValue, meta: &Meta<'_>) -> Result<(), NotPut> {
        if let Some(objects) = &self.objects {
            self.store(objects, object, meta);
        }
        self.note(meta);
        self.inner.put(object, meta).await
    }

    fn keep(&mut self, meta: &Meta<'_>) {
        self.note(meta);
        self.inner.keep(meta);
    }

    async fn delete(&mut self, meta: &Meta<'_>) -> Result<(), Stopped> {
        if let Some(objects) = &self.objects {
            self.remove(objects, meta);
        }
        self.inner.delete(meta).await
    }

    async fn end(&mut self, version: u64) -> Result<(), Stopped> {
        if let (Some(objects), Some(listed)) = (&self.objects, self.listed.take()) {
            let mut objects = objects.write();
            match self.kind {
                RawKind::Pods(_) => {
                    let listed: HashSet<Uid> = listed.iter().map(|uid| Uid::new(uid)).collect();
                    objects.pods.retain(|uid, _| listed.contains(uid));
                }
                RawKind::Nodes => objects.nodes.retain(|name, _| listed.contains(name)),
            }
        }
        self.inner.end(version).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::Resource;
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    /// Passes nothing on.
    struct Nowhere;

    impl Sink for Nowhere {
        fn begin(&mut self) {}
        async fn put(&mut self, _: &RawValue, _: &Meta<'_>) -> Result<(), NotPut> {
            Ok(())
        }
        fn keep(&mut self, _: &Meta<'_>) {}
        async fn delete(&mut self, _: &Meta<'_>) -> Result<(), Stopped> {
            Ok(())
        }
        async fn end(&mut self, _: u64) -> Result<(), Stopped> {
            Ok(())
        }
    }

    async fn put(sink: &mut RawSink<Nowhere>, object: &str, resource: &Resource) {
        let object: &RawValue = serde_json::from_str(object).expect("JSON");
        sink.put(object, &Meta::of(object, resource)).await.expect("put");
    }

    fn pod(name: &str, spec: &str) -> String {
        format!(
            r#"{{"kind":"Pod","apiVersion":"v1","metadata":{{"name":"{name}","uid":"u-{name}","managedFields":[{{}}]}},
            "spec":{spec}}}"#
        )
    }

    fn sink(kind: RawKind, kinds: RawKinds) -> (RawSink<Nowhere>, Arc<RawObjects>) {
        let objects = Arc::new(RawObjects::new(kinds));
        (RawSink::new(Nowhere, kind, Some(objects.clone())), objects)
    }

    fn names(objects: &RawObjects) -> Vec<String> {
        let mut names: Vec<String> = objects.read().pods.keys().map(ToString::to_string).collect();
        names.sort();
        names
    }

    #[tokio::test]
    async fn pods_are_kept_while_they_wait_for_us() {
        let ours = RawKind::Pods(["mine".into()].into());
        let (mut sink, objects) = sink(ours.clone(), RawKinds::default());
        put(&mut sink, &pod("a", r#"{"schedulerName":"mine","x":[1, 2]}"#), &Resource::PODS).await;
        put(&mut sink, &pod("b", r#"{"schedulerName":"other"}"#), &Resource::PODS).await;
        put(&mut sink, &pod("c", r#"{"schedulerName":"mine","nodeName":"n"}"#), &Resource::PODS)
            .await;
        assert_eq!(names(&objects), ["u-a"]);
        let kept = objects.pod(&Uid::new("u-a")).expect("kept");
        let expected =
            r#"{"metadata":{"name":"a","uid":"u-a"},"spec":{"schedulerName":"mine","x":[1, 2]}}"#;
        assert_eq!(kept.get(), expected);
        put(&mut sink, &pod("a", r#"{"schedulerName":"mine","nodeName":"n"}"#), &Resource::PODS)
            .await;
        assert_eq!(names(&objects), Vec::<String>::new());
        let all = RawKinds { placed_pods: true, ..RawKinds::default() };
        let (mut sink, objects) = self::sink(ours, all);
        put(&mut sink, &pod("b", r#"{"nodeName":"n"}"#), &Resource::PODS).await;
        assert_eq!(names(&objects), ["u-b"]);
    }

    #[tokio::test]
    async fn a_list_removes_what_it_lacks() {
        let (mut sink, objects) =
            sink(RawKind::Nodes, RawKinds { nodes: true, ..RawKinds::default() });
        let node = |name: &str| format!(r#"{{"metadata":{{"name":"{name}","uid":"u"}}}}"#);
        for name in ["a", "b", "c"] {
            put(&mut sink, &node(name), &Resource::NODES).await;
        }
        sink.begin();
        put(&mut sink, &node("a"), &Resource::NODES).await;
        let unreadable = node("b");
        let object: &RawValue = serde_json::from_str(&unreadable).expect("JSON");
        sink.keep(&Meta::of(object, &Resource::NODES));
        sink.end(9).await.expect("ended");
        let kept = ["a", "b", "c"].map(|name| objects.node(name).is_some());
        assert_eq!(kept, [true, true, false]);
        sink.delete(&Meta::of(object, &Resource::NODES)).await.expect("deleted");
        assert!(objects.node("b").is_none());
    }

    static READS: AtomicUsize = AtomicUsize::new(0);

    fn name(pod: &RawValue) -> Vec<String> {
        // Relaxed: the test has one thread.
        READS.fetch_add(1, Relaxed);
        vec![if pod.get().contains("gpu") { "gpu" } else { "cpu" }.to_owned()]
    }

    #[tokio::test]
    async fn the_resources_of_each_version_of_a_pod_are_read_once() {
        let kinds = RawKinds { placed_pods: true, ..RawKinds::default() };
        let (mut sink, objects) = sink(RawKind::Pods([].into()), kinds);
        let wanted = ["gpu".to_owned()];
        let names_gpu = || objects.names_resource(&Uid::new("u-a"), &wanted, name);
        assert_eq!(names_gpu(), None);
        for (spec, names, reads) in [(r#"{"x":"gpu"}"#, true, 1), ("{}", false, 2)] {
            put(&mut sink, &pod("a", spec), &Resource::PODS).await;
            assert_eq!((names_gpu(), names_gpu()), (Some(names), Some(names)));
            assert_eq!(READS.load(Relaxed), reads);
        }
    }

    #[tokio::test]
    async fn nothing_is_noted_outside_a_list() {
        let kinds = RawKinds { nodes: true, ..RawKinds::default() };
        let (mut sink, objects) = sink(RawKind::Nodes, kinds);
        let node = r#"{"metadata":{"name":"a","uid":"u"}}"#;
        put(&mut sink, node, &Resource::NODES).await;
        let object: &RawValue = serde_json::from_str(node).expect("JSON");
        sink.keep(&Meta::of(object, &Resource::NODES));
        assert_eq!(sink.listed, None);
        sink.end(9).await.expect("ended");
        assert!(objects.node("a").is_some(), "removed without a list");
        sink.begin();
        put(&mut sink, node, &Resource::NODES).await;
        assert_eq!(sink.listed.as_ref().map(HashSet::len), Some(1));
        sink.end(9).await.expect("ended");
        put(&mut sink, node, &Resource::NODES).await;
        assert_eq!(sink.listed, None);
    }
}
