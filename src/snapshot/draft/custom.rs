//! What events and pods do to stores of a user's own.

use crate::model::{CustomEvent, EventError, Generation, Pod};

use super::super::cost;
use super::super::custom::{CustomStores, PlacedPod, PodChange};
use super::Draft;

impl Draft {
    /// Keeps these stores from now on. Nothing is placed yet.
    pub(crate) fn keep_custom_stores(&mut self, stores: CustomStores) {
        self.cluster.custom = (!stores.is_empty()).then(|| triomphe::Arc::new(stores));
    }

    /// The stores, copied first where a version shares them: of each store a pointer.
    fn custom_stores(&mut self) -> Option<&mut CustomStores> {
        let stores = self.cluster.custom.as_mut()?;
        if !stores.is_unique() {
            cost::copied::<CustomStores>(stores.len());
        }
        Some(triomphe::Arc::make_mut(stores))
    }

    /// Checks and applies an event for one of the stores.
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

    /// A pod has come to a node, or is gone from it. O(stores), and what they do.
    pub(super) fn notify_stores(&mut self, pod: &PlacedPod<'_>, what: PodChange) {
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

    /// The stores of `base` after a rebuild that has placed all pods but the refused ones: those made anew, which this
    /// draft has, and those of `kept`, which are notified of the refused pods.
    pub(super) fn merge_custom(
        &mut self,
        base: &CustomStores,
        kept: CustomStores,
        refused: &[Pod],
    ) {
        let anew = self.cluster.custom.take();
        self.keep_custom_stores(kept);
        for pod in refused.iter().filter_map(PlacedPod::of) {
            self.notify_stores(&pod, PodChange::Removed);
        }
        let kept = self.cluster.custom.take();
        let of = |stores: Option<triomphe::Arc<CustomStores>>| {
            stores.map(|stores| CustomStores::clone(&stores)).unwrap_or_default()
        };
        self.keep_custom_stores(of(anew).merged(of(kept), base));
    }

    /// The stores of `base` that can be made anew, which this draft has from now on; the others are returned.
    pub(super) fn renew_custom(
        &mut self,
        base: &CustomStores,
        generation: Generation,
    ) -> CustomStores {
        let (anew, kept) = base.renewed(generation);
        self.keep_custom_stores(anew);
        kept
    }
}
