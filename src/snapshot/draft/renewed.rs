//! A draft made anew from the objects of a version.
//!
//! A version's input is its objects: nodes and what they are made of, pods with their nodes, and the objects in
//! stores. All else (sums, marks, indexes, orders of zones) follows from them by the rules of adding, each of which is
//! run again. Stores of a user's own are made anew if they can be ([`Store::without_pods`](super::super::Store)), and
//! carried on otherwise. Two things follow from no object and are taken over as they are: which pod took the place of a
//! Reservation, and which node was the first to report the size of an image.

use std::sync::Arc;

use crate::freeing;
use crate::model::{Generation, Object, Pod, hash_of};

use super::super::changes::Removed;
use super::super::chunk::lanes;
use super::super::cluster::Cluster;
use super::super::godel::GodelConfig;
use super::Draft;

impl Draft {
    /// A draft with the objects of `base`, at this generation, and the pods that could not be placed again: those that
    /// are in `base` twice, or that it should have refused. O(n log n).
    ///
    /// It is a line of versions of its own: numbers of slots, chunks and names are given out anew, so nothing that was
    /// kept by the numbers of `base` may be read with those of the draft.
    pub(crate) fn renewed(base: &Cluster, generation: Generation) -> (Draft, Vec<Pod>) {
        let made = freeing::made();
        let mut draft = Draft::new();
        draft.begin(generation);
        let places = base.godel.as_ref().and_then(|stores| {
            // Pods that hold places are placed like others; the store would have them placed twice.
            let config = GodelConfig::clone(&stores.config);
            draft.keep_stores(GodelConfig { reservations: None, ..config });
            Some((stores.config.clone(), stores.reservations.clone()?))
        });
        let kept = base.custom.as_ref().map(|stores| draft.renew_custom(stores, generation));
        let rest = draft.rest();
        rest.objects = triomphe::Arc::new(base.objects().renewed(generation));
        // Who asks what changed since an earlier generation looks at everything.
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
                        // What was accepted once is accepted again.
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
        // The versions before it are still to be freed.
        draft.cluster.made = base.made + freeing::made().wrapping_sub(made);
        (draft, refused)
    }

    /// Gives images the sizes that they have in another version.
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

/// What may go wrong in a draft, for tests of those who find it and mend it.
#[cfg(test)]
pub(crate) mod damage {
    use crate::model::hash_of;

    use super::super::super::chunk::Chunk;
    use super::super::super::cluster::Rest;
    use super::super::super::pod_index::Uids;
    use super::Draft;

    type Damage = fn(&mut Draft);

    /// One index, sum or count each, with the place by which an audit names it. The draft has a node `n1` without
    /// pods with affinity in lane 0 of its chunk, and a node `n2` with one.
    pub(crate) const ALL: [(&str, Damage); 9] = [
        ("counts", |draft| draft.cluster.counts.pods += 1),
        ("counts", |draft| draft.cluster.counts.ghosts -= 1),
        ("uid of pod", |draft| draft.cluster.uids = Uids::new()),
        ("name of node n1", |draft| {
            let slot = draft.cluster.node("n1").unwrap().slot().0;
            rest(draft).names.remove(hash_of("n1"), slot);
        }),
        ("used claims", |draft| rest(draft).claims = Default::default()),
        ("members of pod groups", |draft| rest(draft).groups = Default::default()),
        ("images", |draft| rest(draft).images = Default::default()),
        ("node n1", |draft| in_chunk(draft, "n1", |chunk| chunk.requested_mut().cpu[0] += 1)),
        ("marks of node n2", |draft| in_chunk(draft, "n2", |chunk| chunk.affinity = 0)),
    ];

    pub(crate) fn lose_index_of_services(draft: &mut Draft) {
        triomphe::Arc::make_mut(&mut rest(draft).objects).services.damage_index();
    }

    fn rest(draft: &mut Draft) -> &mut Rest {
        triomphe::Arc::make_mut(&mut draft.cluster.rest)
    }

    fn in_chunk(draft: &mut Draft, node: &str, change: impl FnOnce(&mut Chunk)) {
        let node = draft.cluster.node(node).unwrap();
        let (id, _, _) = draft.cluster.chunk_of(node).unwrap();
        let now = draft.cluster.generation;
        draft.cluster.chunks.update(id, now, change);
    }
}
