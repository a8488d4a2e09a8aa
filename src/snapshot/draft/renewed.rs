//! Rebuilds a draft from the objects of a version.
//!
//! The input of a version is its objects: nodes and their parts, placed pods, and the objects in stores. Everything
//! else (sums, marks, indexes, the order of zones) is derived from them by the rules of adding, which run again here.
//! Custom stores that implement [`Store::without_pods`](super::super::Store) are rebuilt, and all others are kept. Two
//! facts cannot be derived from any object and are copied: which pod took each reservation, and which image size was
//! reported first.

use std::sync::Arc;

use crate::freeing;
use crate::model::{Generation, Object, Pod, hash_of};

use super::super::changes::Removed;
use super::super::chunk::lanes;
use super::super::cluster::Cluster;
use super::super::godel::GodelConfig;
use super::super::pod_index::PodLookup;
use super::Draft;

impl Draft {
    /// Returns a draft with the objects of `base` at this generation, and the pods that could not be placed again
    /// because `base` has them twice or should have refused them. O(n log n).
    ///
    /// The draft starts a new lineage: the numbers of slots, chunks and names are assigned again, so state that is
    /// keyed by the numbers of `base` is invalid for the draft.
    pub(crate) fn renewed(base: &Cluster, generation: Generation) -> (Draft, Vec<Pod>) {
        let made = freeing::made();
        let mut draft = Draft::new();
        draft.begin(generation);
        draft.cluster.lookup = PodLookup::new(base.lookup.has_names());
        let places = base.godel.as_ref().and_then(|stores| {
            // Placeholder pods are placed like all others; with the store, they would be placed twice.
            let config = GodelConfig::clone(&stores.config);
            draft.keep_stores(GodelConfig { reservations: None, ..config });
            Some((stores.config.clone(), stores.reservations.clone()?))
        });
        let kept = base.custom.as_ref().map(|stores| draft.renew_custom(stores, generation));
        let rest = draft.rest();
        rest.objects = triomphe::Arc::new(base.objects().renewed(generation));
        // A follower of changes since an earlier generation must read everything again.
        rest.removed = Removed::forgotten_until(generation);
        for movement in base.objects().movements.iter() {
            draft.declare(None, movement);
        }
        for zone in base.zones() {
            for chunk in zone.chunks() {
                for node in lanes(chunk.live()).filter_map(|at| base.node_in(chunk, at)) {
                    if let Some(node) = node.kubelet_node() {
                        draft.put_node(Arc::clone(node));
                    }
                    if let Some(nm_node) = node.nm_node() {
                        // An object that was accepted once is accepted again.
                        let _ = draft.put_object(&Object::NmNode(nm_node.clone()));
                    }
                }
            }
        }
        draft.take_image_sizes(base);
        let mut refused = Vec::new();
        for node in base.everything() {
            if let Some(custom) = node.custom_node_resource() {
                let _ = draft.put_object(&Object::CustomNodeResource(custom.clone()));
            }
            for pod in node.pods() {
                let (assumed, pod) = (pod.is_assumed(), pod.to_pod());
                let is_twice = draft.pod(&pod.uid).is_some();
                match draft.check_place(&pod, node.name(), None) {
                    Ok(slot) if !is_twice => drop(draft.place(&pod, node.name(), slot, assumed)),
                    Ok(_) | Err(_) => refused.push(pod),
                }
            }
        }
        for mark in base.deletion_marks().into_iter().flat_map(|marks| marks.iter()) {
            // Only bound pods are marked.
            if draft.check_mark(&mark.victim).is_ok() {
                draft.mark(mark.clone());
            }
        }
        if let (Some((config, places)), Some(stores)) = (places, draft.stores()) {
            stores.config = config;
            stores.reservations = Some(places);
        }
        if let (Some(stores), Some(kept)) = (&base.custom, kept) {
            draft.merge_custom(stores, kept, &refused);
        }
        // The versions before this one still have to be freed.
        draft.cluster.made = base.made + freeing::made().wrapping_sub(made);
        (draft, refused)
    }

    /// Copies the image sizes of another version.
    fn take_image_sizes(&mut self, from: &Cluster) {
        let images = &mut self.rest().images;
        for (_, image) in from.rest.images.iter() {
            let known = images.find(hash_of(&*image.name), |known| known.name == image.name);
            if let Some(number) = known {
                images.revise(number, image.clone());
            }
        }
    }
}

/// Defects for tests of the audit and of the rebuild.
#[cfg(test)]
pub(crate) mod damage {
    use crate::model::hash_of;

    use super::super::super::chunk::Chunk;
    use super::super::super::cluster::Rest;
    use super::{Draft, PodLookup};

    type Damage = fn(&mut Draft);

    /// One defect per index, sum or count, with the location that the audit reports. The draft has a node `n1` without
    /// pods with affinity, in lane 0 of its chunk, and a node `n2` with such a pod.
    pub(crate) const ALL: [(&str, Damage); 10] = [
        ("counts", |draft| draft.cluster.counts.pods += 1),
        ("counts", |draft| draft.cluster.counts.ghosts -= 1),
        ("uid of pod", |draft| draft.cluster.lookup = PodLookup::new(true)),
        ("name of pod", |draft| draft.cluster.lookup = PodLookup::new(true)),
        ("name of node n1", |draft| {
            let slot = draft.cluster.node("n1").unwrap().slot().0;
            rest(draft).names.remove(hash_of("n1"), slot);
        }),
        ("used claims", |draft| rest(draft).claims = Default::default()),
        ("members of pod groups", |draft| rest(draft).groups = Default::default()),
        ("images", |draft| rest(draft).images = Default::default()),
        ("node n1", |draft| in_chunk(draft, "n1", |chunk| chunk.add_requested(0, [1; 5], 1))),
        ("marks of node n2", |draft| in_chunk(draft, "n2", |chunk| chunk.affinity = 0)),
    ];

    pub(crate) fn lose_index_of_services(draft: &mut Draft) {
        triomphe::Arc::make_mut(&mut rest(draft).objects).services.damage_index();
    }

    fn rest(draft: &mut Draft) -> &mut Rest {
        Rest::make_mut(&mut draft.cluster.rest)
    }

    fn in_chunk(draft: &mut Draft, node: &str, change: impl FnOnce(&mut Chunk)) {
        let node = draft.cluster.node(node).unwrap();
        let (id, _, _) = draft.cluster.chunk_of(node).unwrap();
        let now = draft.cluster.generation;
        draft.cluster.chunks.update(id, now, change);
    }
}
