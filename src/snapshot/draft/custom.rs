//! Changes to custom stores, by their own events and by pods.

use crate::model::{CustomEvent, EventError, Generation, Pod};

use super::super::cost;
use super::super::custom::{CustomStores, PlacedPod, PodChange};
use super::Draft;

impl Draft {
    /// Sets the custom stores. Pods that are already placed are not reported to them.
    pub(crate) fn keep_custom_stores(&mut self, stores: CustomStores) {
        self.cluster.custom = (!stores.is_empty()).then(|| triomphe::Arc::new(stores));
    }

    /// Returns the custom stores for writing. If a version shares them, the list of pointers to them is copied first.
    fn custom_stores(&mut self) -> Option<&mut CustomStores> {
        let stores = self.cluster.custom.as_mut()?;
        if !stores.is_unique() {
            cost::copied::<CustomStores>(stores.len());
        }
        Some(triomphe::Arc::make_mut(stores))
    }

    /// Checks an event, and applies it to its store.
    pub(crate) fn change_store(&mut self, event: &CustomEvent) -> Result<(), EventError> {
        let generation = self.cluster.generation;
        let Some(stores) = &self.cluster.custom else {
            return Err(EventError::UnknownStore { store: event.store_name().into() });
        };
        let changed = stores.changed(event, &self.cluster, generation)?;
        if let Some(stores) = self.custom_stores() {
            stores.put(changed, generation);
        }
        Ok(())
    }

    /// Notifies the custom stores that a pod was placed or removed. O(stores), plus the work of the stores.
    pub(in crate::snapshot) fn notify_stores(&mut self, pod: &PlacedPod<'_>, what: PodChange) {
        let generation = self.cluster.generation;
        let count = self.cluster.custom.as_ref().map_or(0, |stores| stores.len());
        for at in 0..count {
            let Some(stores) = &self.cluster.custom else { return };
            match stores.tracks(at, pod) {
                Ok(false) => {}
                Ok(true) => {
                    if let Some(stores) = self.custom_stores() {
                        stores.notify(at, pod, what, generation);
                    }
                }
                Err(text) => {
                    if let Some(stores) = self.custom_stores() {
                        stores.fail(at, "tracks", text, generation);
                    }
                }
            }
        }
    }

    /// Sets the custom stores at the end of a rebuild: the rebuilt stores, which this draft already contains, and the
    /// `kept` stores of `base`, which are notified that the `refused` pods were removed.
    pub(super) fn merge_custom(
        &mut self,
        base: &CustomStores,
        kept: CustomStores,
        refused: &[Pod],
    ) {
        let rebuilt = self.cluster.custom.take();
        self.keep_custom_stores(kept);
        for pod in refused.iter().filter_map(PlacedPod::of) {
            self.notify_stores(&pod, PodChange::Removed);
        }
        let kept = self.cluster.custom.take();
        let of = |stores: Option<triomphe::Arc<CustomStores>>| {
            stores.map(|stores| CustomStores::clone(&stores)).unwrap_or_default()
        };
        self.keep_custom_stores(of(rebuilt).merged(of(kept), base));
    }

    /// Sets the custom stores at the start of a rebuild to the stores of `base` that can be rebuilt, without any pods.
    /// Returns the other stores.
    pub(super) fn renew_custom(
        &mut self,
        base: &CustomStores,
        generation: Generation,
    ) -> CustomStores {
        let (rebuilt, kept) = base.renewed(generation);
        self.keep_custom_stores(rebuilt);
        kept
    }
}
