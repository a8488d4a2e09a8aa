//! A version while it is being written: the rules of adding and removing pods and nodes.
//!
//! The writer's state is a draft with lifecycles and a log; a fork is a draft alone. Every operation is checked first
//! and then applied, or rejected without any effect. Freezing a draft clones its root.

mod bulk;
mod custom;
mod nodes;
mod parts;
mod pods;
mod renewed;

pub(crate) use super::godel::draft::Effect;
pub(crate) use bulk::{Filling, Generations, MAX_RUN};
pub use parts::PartCount;
pub(in crate::snapshot) use pods::{amounts, fits_in_64_bits, put_in_lane};
pub(crate) use pods::{check_amounts, check_pod, check_supported, node_of};
#[cfg(test)]
pub(crate) use renewed::damage;

use crate::model::{EventError, Generation, Name, Object, ObjectKind, Template};

use super::cluster::{Cluster, Kept, PodLabels, Rest, Snapshot};
use super::departures::Departures;
use super::pod_index::PodLookup;
use super::stores::Objects;
use super::table::{Numbers, Span, next_stamp};
pub(crate) use super::tree::Threads;

/// A version that is being written.
pub(crate) struct Draft {
    pub(crate) cluster: Cluster,
    numbers: FreeNumbers,
    /// No version before this one is held.
    horizon: Generation,
    /// Pods that were removed from this draft and may still be looked up in older versions.
    pub(super) departures: Departures,
    /// How many pods use each template, by template number. `None` in a fork, and in an engine that began with a version:
    /// they do not know the users in their base and therefore never remove a template.
    users: Option<Users>,
    /// The effects of events on placeholder pods since the last [`Draft::take_effects`].
    pub(super) effects: Vec<Effect>,
}

/// Released numbers, one list per table.
#[derive(Default)]
struct FreeNumbers {
    slots: Numbers,
    chunks: Numbers,
    templates: Numbers,
    pod_labels: Numbers,
    taints: Numbers,
    labels: Numbers,
    resources: Numbers,
    claims: Numbers,
    groups: Numbers,
    images: Numbers,
}

/// Counts by number, stored in blocks so that growing never moves existing counts.
#[derive(Default)]
struct Users(Vec<Box<[u32; BLOCK]>>);

const BLOCK: usize = 4096;

impl Users {
    fn at(&mut self, number: u32) -> &mut u32 {
        let (block, at) = (number as usize / BLOCK, number as usize % BLOCK);
        while self.0.len() <= block {
            self.0.push(Box::new([0; BLOCK]));
        }
        &mut self.0[block][at]
    }

    /// Drops the counts of the numbers from `next` on, which are all zero.
    fn truncate(&mut self, next: u32) {
        self.0.truncate((next as usize).div_ceil(BLOCK));
    }
}

impl Draft {
    /// Creates an empty cluster for its one writer.
    pub(crate) fn new() -> Draft {
        Draft {
            cluster: Cluster::empty(),
            numbers: FreeNumbers::default(),
            horizon: Generation::ZERO,
            departures: Departures::default(),
            users: Some(Users::default()),
            effects: Vec::new(),
        }
    }

    /// Indexes pods by name, too. Must be called before any pod is placed.
    pub(crate) fn index_names(&mut self) {
        self.cluster.lookup = PodLookup::new(true);
    }

    /// Starts a new lineage at `base`. O(1).
    pub(crate) fn fork(base: &Cluster) -> Draft {
        let mut cluster = Cluster { branch: next_stamp(), plan: None, ..base.share() };
        cluster.lookup.fork_off();
        Draft {
            cluster,
            numbers: FreeNumbers::default(),
            horizon: Generation::ZERO,
            departures: Departures::default(),
            users: None,
            effects: Vec::new(),
        }
    }

    /// Starts the event with this generation.
    pub(crate) fn begin(&mut self, generation: Generation) {
        self.cluster.generation = generation;
    }

    /// Declares that no version before `horizon` is held, so that numbers released until then can be reused, and drops
    /// the index entries of some departed pods that no version or fork needs. O(pods that departed since the last call).
    pub(crate) fn set_horizon(&mut self, horizon: Generation) {
        self.settle(horizon, self.departures.settle_limit());
    }

    /// Like [`Draft::set_horizon`], but drops the entries of at most `most` pods. Returns their number. O(`most`).
    pub(crate) fn settle(&mut self, horizon: Generation, most: usize) -> usize {
        self.horizon = horizon;
        let before = self.departures.len();
        self.cluster.lookup.settle(&mut self.departures, most);
        before - self.departures.len()
    }

    fn span(&self) -> Span {
        Span { now: self.cluster.generation, horizon: self.horizon }
    }

    /// Enters the epoch of the version that the writer is about to freeze. O(1).
    pub(crate) fn turn(&mut self) {
        self.cluster.lookup.turn(&mut self.departures, self.cluster.generation);
    }

    /// Returns the current version. Only forks may omit [`Draft::turn`] before. O(1).
    pub(crate) fn freeze(&self) -> Snapshot {
        Snapshot(self.cluster.share())
    }

    /// Returns [`Rest`] for writing. It is copied first if a version shares it.
    fn rest(&mut self) -> &mut Rest {
        Rest::make_mut(&mut self.cluster.rest)
    }

    /// Returns the stores for writing. They are copied first if a version shares them.
    fn objects(&mut self) -> &mut Objects {
        let objects = &mut self.rest().objects;
        if !objects.is_unique() {
            // A table and an index per store, and the index of the budgets.
            let stores = ObjectKind::ALL.iter().filter(|kind| !kind.is_node_part());
            super::cost::copied::<Objects>(2 * stores.count() + 1);
        }
        triomphe::Arc::make_mut(objects)
    }

    /// Returns whether every table has enough numbers left for one event.
    fn has_room(&self) -> bool {
        const ENOUGH: u32 = super::pod_index::MAX_SLOTS;
        let rest = &self.cluster.rest;
        [
            rest.next_slot,
            rest.next_chunk,
            rest.templates.next,
            rest.pod_labels.next(),
            rest.taints.next(),
            rest.labels.next(),
            rest.resources.next(),
            rest.claims.next(),
            rest.groups.next(),
            rest.images.next(),
        ]
        .iter()
        .all(|next| *next < ENOUGH)
            && self.stores_have_room()
    }

    /// Adds one pod to the users of a template, and returns the template's number.
    pub(super) fn acquire_template(&mut self, template: &std::sync::Arc<Template>) -> Option<u32> {
        let hash = template.hash64();
        let known = self.cluster.template_number(template);
        let number = match known {
            Some(number) => number,
            None => {
                let span = self.span();
                let mut next = self.cluster.rest.templates.next;
                let number = self.numbers.templates.take(&mut next, span)?;
                let labels = PodLabels {
                    namespace: template.namespace.clone(),
                    labels: template.labels.clone(),
                };
                let rest = Rest::make_mut(&mut self.cluster.rest);
                let before = rest.pod_labels.stamp();
                let labels =
                    rest.pod_labels.acquire(&labels, &mut self.numbers.pod_labels, span)?;
                if template.traits().affinity || rest.pod_labels.stamp() != before {
                    rest.by_namespace.forget();
                }
                rest.templates.next = next;
                if template.traits().affinity {
                    rest.templates.affine = next_stamp();
                }
                rest.templates.table.set(number, Kept { template: template.clone(), labels });
                rest.templates.index.insert(hash, number);
                self.acquire_resources(template.resources.placed.scalars.iter().map(|(n, _)| n));
                number
            }
        };
        self.use_template(number);
        Some(number)
    }

    /// Adds one pod to the users of a template that has a number.
    pub(super) fn use_template(&mut self, number: u32) {
        if let Some(users) = &mut self.users {
            users.truncate(self.cluster.rest.templates.next);
            *users.at(number) += 1;
        }
    }

    /// Returns whether no released number waits to be used for a pod's template, labels, resources, claims or group.
    pub(super) fn has_no_free_numbers(&self) -> bool {
        let FreeNumbers { templates, pod_labels, resources, claims, groups, .. } = &self.numbers;
        [templates, pod_labels, resources, claims, groups].iter().all(|numbers| numbers.is_empty())
    }

    fn release_template(&mut self, number: u32) {
        let Some(users) = &mut self.users else { return };
        let count = users.at(number);
        *count = count.saturating_sub(1);
        if *count > 0 {
            return;
        }
        let span = self.span();
        let rest = self.rest();
        let Some(Kept { template, labels }) = rest.templates.table.get(number).cloned() else {
            return;
        };
        if template.traits().affinity {
            rest.templates.affine = next_stamp();
        }
        rest.templates.index.remove(template.hash64(), number);
        rest.templates.table.remove(number);
        let rest = Rest::make_mut(&mut self.cluster.rest);
        let before = rest.pod_labels.stamp();
        rest.pod_labels.release(labels, &mut self.numbers.pod_labels, span);
        if template.traits().affinity || rest.pod_labels.stamp() != before {
            rest.by_namespace.forget();
        }
        self.numbers.templates.release(number, span);
        self.release_resources(template.resources.placed.scalars.iter().map(|(n, _)| n));
    }

    fn acquire_resources<'a>(&mut self, names: impl Iterator<Item = &'a Name>) {
        let span = self.span();
        for name in names {
            let rest = Rest::make_mut(&mut self.cluster.rest);
            rest.resources.acquire(name, &mut self.numbers.resources, span);
        }
    }

    fn release_resources<'a>(&mut self, names: impl Iterator<Item = &'a Name>) {
        let span = self.span();
        for name in names {
            let Some(id) = self.cluster.resource_id(name) else { continue };
            let rest = Rest::make_mut(&mut self.cluster.rest);
            rest.resources.release(id, &mut self.numbers.resources, span);
        }
    }

    pub(super) fn check_room(&self) -> Result<(), EventError> {
        if self.has_room() { Ok(()) } else { Err(EventError::Full) }
    }
}

impl Draft {
    /// Checks an object, and adds it or replaces the object with the same name. Returns whether it replaced one.
    pub(crate) fn put_object(&mut self, object: &Object) -> Result<bool, EventError> {
        if object.kind().is_node_part() {
            return self.put_part(object);
        }
        if object.name().is_empty() {
            return Err(EventError::EmptyName { kind: object.kind().as_str().into() });
        }
        let generation = self.cluster.generation;
        match object {
            Object::Reservation(new) => {
                let known = &self.cluster.objects().reservations;
                let old = known.get(&new.namespace, &new.name).cloned();
                let checked = self.check_reservation(old.as_deref(), new)?;
                self.cluster.objects().reservations.check_room()?;
                self.objects().reservations.put(new.clone(), generation);
                self.reserve(old.as_deref(), new, checked);
                Ok(old.is_some())
            }
            Object::Movement(new) => {
                self.check_movement(new)?;
                self.cluster.objects().movements.check_room()?;
                let (_, old) = self.objects().movements.put(new.clone(), generation);
                self.declare(old.as_deref(), new);
                Ok(old.is_some())
            }
            _ => self.objects().put(object, generation),
        }
    }

    /// Checks that an object exists, and removes it.
    pub(crate) fn delete_object(
        &mut self,
        kind: ObjectKind,
        namespace: &str,
        name: &str,
    ) -> Result<(), EventError> {
        if kind.is_node_part() {
            return self.delete_part(kind, name);
        }
        let generation = self.cluster.generation;
        let key = (kind.as_str(), namespace, name);
        match kind {
            ObjectKind::Reservation => {
                let (_, old) = self.objects().reservations.remove(key, generation)?;
                self.unreserve(&old);
            }
            ObjectKind::Movement => {
                let (_, old) = self.objects().movements.remove((key.0, "", name), generation)?;
                self.retract(&old);
            }
            _ => self.objects().delete(kind, namespace, name, generation)?,
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_held_for_long_is_settled_in_bounded_steps() {
        const GONE: u64 = if cfg!(miri) { 500 } else { 100_000 };
        let mut draft = Draft::new();
        let hash = |n: u64| n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        for n in 0..GONE {
            draft.cluster.lookup.insert(hash(n), 7, &mut draft.departures);
        }
        draft.turn();
        let held = draft.freeze();
        for n in 0..GONE {
            draft.cluster.lookup.remove(hash(n), 7, Generation(n + 1), &mut draft.departures);
        }
        draft.begin(Generation(GONE));
        draft.turn();
        draft.set_horizon(Generation::ZERO);
        assert_eq!(draft.departures.len() as u64, GONE);
        drop(held);
        while !draft.departures.is_empty() {
            let before = draft.departures.len();
            draft.set_horizon(Generation(GONE));
            let settled = before - draft.departures.len();
            assert!((1..=64).contains(&settled), "{settled} at once");
            let most = draft.departures.len().min(10);
            assert_eq!(draft.settle(Generation(GONE), 10), most);
        }
    }
}
