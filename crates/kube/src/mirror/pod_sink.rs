//! Passes pods to the engine.

use std::sync::Arc;

use portolan::cache::{Event, Reader, Snapshot};
use portolan::model::{LabelSelector, Uid};
use portolan_k8s::{pod_digest, pod_from_slice};
use serde_json::value::RawValue;

use super::PodIndex;
use super::figures::KindState;
use super::pod_rules::PodRules;
use super::sink::{NotPut, Sink};
use super::status::pending_status;
use super::submit::{Events, Stopped};
use super::wire::Meta;

/// Passes pods to `PodRules`.
pub(super) struct PodSink {
    kind: Arc<KindState>,
    rules: PodRules,
    events: Events,
    reader: Reader,
    /// The events that follow from a change.
    pending: Vec<Event>,
    /// Whether the list contains a pod whose uid cannot be read, and which could therefore be any pod.
    is_partial: bool,
}

impl PodSink {
    pub(super) fn new(
        kind: Arc<KindState>,
        rules: PodRules,
        events: Events,
        reader: Reader,
    ) -> PodSink {
        PodSink { kind, rules, events, reader, pending: Vec::new(), is_partial: false }
    }

    /// Returns whether the published version has the pod. A pod that the engine has lost is added again by its next
    /// version.
    fn is_placed(&mut self, uid: &Uid) -> bool {
        let is_placed = self.reader.pin().pod(uid).is_some_and(|pod| !pod.is_assumed());
        // The next change may come much later.
        self.reader.release();
        is_placed
    }

    async fn submit(&mut self) -> Result<(), Stopped> {
        for event in self.pending.drain(..) {
            self.events.send(&self.kind, event).await?;
        }
        Ok(())
    }

    /// Removes pods from the engine that the index does not have, for instance pods that were added before the mirror
    /// started. All earlier events are published.
    async fn remove_unindexed(&mut self) -> Result<(), Stopped> {
        let version = self.reader.snapshot();
        self.reader.release();
        let index = self.rules.index().clone();
        let found = tokio::task::spawn_blocking(move || unindexed(&version, &index));
        // The search does not panic, and is not aborted.
        for uid in found.await.unwrap_or_default() {
            self.pending.push(Event::RemovePod { uid, node: None });
        }
        self.submit().await
    }
}

/// Returns the pods of a version, without assumed ones, that are not in the index. O(pods).
fn unindexed(version: &Snapshot, index: &PodIndex) -> Vec<Uid> {
    let everything = LabelSelector::everything();
    let placed = version.pods(&everything, |pod| !pod.is_assumed());
    let table = index.read();
    placed.map(|pod| pod.uid()).filter(|uid| table.find(uid).is_none()).collect()
}

impl Sink for PodSink {
    fn begin(&mut self) {
        self.is_partial = false;
        self.rules.begin_list();
    }

    async fn put(&mut self, object: &RawValue, meta: &Meta<'_>) -> Result<(), NotPut> {
        let digest = pod_digest(object);
        let (uid, version, generation) = (Uid::new(&meta.uid), meta.version(), meta.generation);
        let known = digest.filter(|_| self.is_placed(&uid));
        if self.rules.is_known(&uid, version, generation, known) {
            self.kind.count(|figures| figures.unchanged += 1);
            return Ok(());
        }
        let pod = pod_from_slice(object.get().as_bytes()).map_err(NotPut::Unreadable)?;
        if pod.uid.is_empty() {
            return Err(NotPut::Lacks("metadata.uid"));
        }
        let status = || pending_status(object.get());
        self.rules.put(pod, generation, digest, status, &mut self.pending);
        Ok(self.submit().await?)
    }

    fn keep(&mut self, meta: &Meta<'_>) {
        self.is_partial |= meta.uid.is_empty();
        self.rules.keep(&Uid::new(&meta.uid));
    }

    async fn delete(&mut self, meta: &Meta<'_>) -> Result<(), Stopped> {
        self.rules.delete(&Uid::new(&meta.uid), meta.version(), &mut self.pending);
        self.submit().await
    }

    async fn end(&mut self, _: u64) -> Result<(), Stopped> {
        if !self.is_partial {
            self.rules.end_list(&mut self.pending);
        }
        self.submit().await?;
        self.events.flush().await?;
        if !self.is_partial {
            self.remove_unindexed().await?;
            self.events.flush().await?;
        }
        Ok(())
    }
}
