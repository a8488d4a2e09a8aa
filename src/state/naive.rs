//! The naive fold: the same events over plain maps, everything recomputed from
//! the objects each time. Slow, and simple enough to be believed: the oracle of
//! tests and fuzzers, at every generation.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use crate::log::{Event, ObjectKey, Relist};
use crate::model::{
    Bytes, CustomNodeResource, HostPort, Labels, MilliCpu, Movement, Name, NmNode, Node,
    NodeMetrics, NodeResources, NonZero, Object, ObjectKind, Pod, PodClass, PodDisruptionBudget,
    PodState, Quantity, Reservation, ReservationPhase, Resources, Scalars, Template, Timestamp,
    Uid, Workload, ZoneKey, is_scalar,
};
use crate::snapshot::{Dump, GodelConfig, NodeDump, NodeLoad};

#[derive(Clone, Debug)]
struct Placed {
    pod: Pod,
    assumed: bool,
    /// Another of Gödel's schedulers has assumed it.
    elsewhere: bool,
    deadline: Option<Timestamp>,
}

/// A cluster as plain maps. Pods, nodes and what nodes are made of, disruption budgets
/// and owners of pods; other objects have no rules.
#[derive(Clone, Debug, Default)]
pub struct Naive {
    pods: BTreeMap<Uid, Placed>,
    nodes: BTreeMap<Name, Arc<Node>>,
    nm_nodes: BTreeMap<Name, NmNode>,
    custom: BTreeMap<Name, CustomNodeResource>,
    budgets: BTreeMap<(String, String), PodDisruptionBudget>,
    owners: BTreeMap<(ObjectKind, String, String), Workload>,
    zones: Vec<(ZoneKey, Vec<Name>)>,
    /// Size by image, and the nodes that have it.
    images: BTreeMap<Name, (i64, BTreeSet<Name>)>,
    ttl: Option<Duration>,
    godel: Option<GodelConfig>,
    reservations: BTreeMap<(String, String), Reservation>,
    movements: BTreeMap<String, Movement>,
    /// By placeholder, pod and node.
    places: BTreeMap<PlaceKey, Held>,
}

type PlaceKey = (String, String, String);

#[derive(Clone, Debug)]
struct Held {
    pod: Pod,
    matched: Option<Uid>,
    confirmed: bool,
    waits: bool,
    deadline: Option<Timestamp>,
}

/// Why a pod goes.
#[derive(Clone, Copy, PartialEq)]
enum Why {
    Deleted,
    Withdrawn,
}

impl Naive {
    /// An empty cluster with a time to live for assumed pods.
    #[must_use]
    pub fn new(ttl: Option<Duration>) -> Naive {
        Naive { ttl: ttl.filter(|ttl| !ttl.is_zero()), ..Naive::default() }
    }

    /// The same, still empty, as one of Gödel's schedulers.
    #[must_use]
    pub fn with_godel(self, config: GodelConfig) -> Naive {
        Naive { godel: Some(config), ..self }
    }

    /// Folds one event, and says whether it was accepted.
    pub fn apply(&mut self, event: &Event) -> bool {
        match event {
            Event::AssumePod { pod, .. } => self.assume(pod),
            Event::AssumeAll { pods, .. } => {
                let before = self.clone();
                let all = pods.iter().all(|pod| self.assume(pod));
                if !all {
                    *self = before;
                }
                all
            }
            Event::FinishBinding { uid, now } => {
                let ttl = self.ttl;
                if let Some(placed) = self.pods.get_mut(uid).filter(|placed| placed.assumed) {
                    placed.deadline = ttl.map(|ttl| Timestamp(now.0 + ttl.as_nanos() as i64));
                }
                if !uid.is_empty() {
                    self.tick(*now);
                }
                !uid.is_empty()
            }
            Event::ForgetPod { uid, node } => match self.pods.get(uid) {
                None => !uid.is_empty(),
                Some(placed) => {
                    let fits = placed.assumed
                        && node
                            .as_ref()
                            .is_none_or(|node| Some(node) == placed.pod.node_name.as_ref());
                    if fits {
                        self.leave(uid, Why::Withdrawn);
                    }
                    fits
                }
            },
            Event::AddPod(pod) => self.add(&self.as_placed(pod)),
            Event::UpdatePod { old, pod } if self.godel.is_some() => self.update_in_state(old, pod),
            Event::UpdatePod { old, pod } => {
                let fits =
                    self.pods.get(old).is_some_and(|known| {
                        !known.assumed && known.pod.node_name == pod.node_name
                    }) && placeable(pod)
                        && (pod.uid == *old || !self.pods.contains_key(&pod.uid));
                if fits {
                    self.pods.remove(old);
                    self.put(pod, false);
                }
                fits
            }
            Event::RemovePod { uid, node } => {
                let fits = self.pods.get(uid).is_some_and(|known| {
                    node.as_ref().is_none_or(|node| {
                        self.godel.is_some()
                            || node.is_empty()
                            || Some(node) == known.pod.node_name.as_ref()
                    })
                });
                if fits {
                    self.leave(uid, Why::Deleted);
                }
                fits
            }
            Event::AddNode(node) | Event::UpdateNode(node) => {
                self.put_node(node);
                true
            }
            Event::RemoveNode(name) => self.remove_node(name),
            Event::PutObject(object) => match &**object {
                Object::Reservation(reservation) => self.reserve(reservation),
                Object::Movement(movement) => self.put_movement(movement),
                object => {
                    self.put_part(object);
                    true
                }
            },
            Event::DeleteObject(key) if key.kind == ObjectKind::Reservation => {
                self.unreserve(&key.namespace, &key.name)
            }
            Event::DeleteObject(key) if key.kind == ObjectKind::Movement => {
                self.movements.remove(&key.name).is_some()
            }
            Event::DeleteObject(key) => self.delete_object(key),
            Event::PutPending(pod) if self.godel.is_some() => self.unplace(&pod.uid, pod),
            Event::PutPending(pod) => {
                !pod.uid.is_empty() && pod.node_name.as_ref().is_none_or(|node| node.is_empty())
            }
            Event::RemovePending(uid) => !uid.is_empty(),
            Event::Expire(now) => {
                let due = |placed: &Placed| placed.deadline.is_some_and(|at| at < *now);
                let due: Vec<Uid> =
                    self.pods.iter().filter(|(_, p)| due(p)).map(|(uid, _)| uid.clone()).collect();
                for uid in due {
                    self.leave(&uid, Why::Withdrawn);
                }
                self.expire_places(*now);
                true
            }
            Event::Relist(relist) => {
                match &**relist {
                    Relist::Pods(pods) => self.relist_pods(pods),
                    Relist::Nodes(nodes) => {
                        let listed: BTreeSet<&Name> = nodes.iter().map(|n| &n.name).collect();
                        for node in nodes {
                            // An image keeps the size that it was first seen with, so
                            // putting a node again may change what listing does not.
                            if self.nodes.get(&node.name) != Some(node) {
                                self.put_node(node);
                            }
                        }
                        // In list order: one with an NMNode may move to the end of a zone.
                        let gone: Vec<Name> = (self.order().into_iter().map(Name::from))
                            .filter(|n| self.nodes.contains_key(n) && !listed.contains(n))
                            .collect();
                        for name in gone {
                            self.remove_node(&name);
                        }
                    }
                    Relist::Objects(kind, objects) => self.relist_objects(*kind, objects),
                }
                true
            }
        }
    }

    fn assume(&mut self, pod: &Pod) -> bool {
        let fits = placeable(pod) && !self.pods.contains_key(&pod.uid);
        if fits {
            self.put(pod, true);
        }
        fits
    }

    fn add(&mut self, pod: &Pod) -> bool {
        let fits = placeable(pod) && self.pods.get(&pod.uid).is_none_or(|known| known.assumed);
        if fits {
            self.replace(pod);
        }
        fits
    }

    /// Puts a pod in the place of what is known of it, if anything is.
    fn replace(&mut self, pod: &Pod) {
        let known = self.pods.remove(&pod.uid);
        let before = known.and_then(|known| self.taken(&known.pod));
        let is_had = |key: &PlaceKey| self.places.get(key).is_some_and(|p| p.matched.is_none());
        let takes = taken_by(pod).filter(|key| Some(key) != before.as_ref() && is_had(key));
        self.put(pod, false);
        let Some(key) = before else { return };
        if takes.is_some() || pod.node_name.as_deref() != Some(&*key.2) {
            self.reopen(&key);
        }
    }

    /// The place on its node that a pod took.
    fn taken(&self, pod: &Pod) -> Option<PlaceKey> {
        let node = pod.node_name.as_deref()?;
        let is_taken = |(key, place): &(&PlaceKey, &Held)| {
            key.2 == *node && place.matched.as_ref() == Some(&pod.uid)
        };
        self.places.iter().find(is_taken).map(|(key, _)| key.clone())
    }

    fn put(&mut self, pod: &Pod, assumed: bool) {
        let elsewhere = self.godel.is_some()
            && pod
                .template
                .godel
                .as_ref()
                .is_some_and(|godel| !assumed && &*godel.state == "assumed");
        let placed = Placed { pod: pod.clone(), assumed, elsewhere, deadline: None };
        self.pods.insert(pod.uid.clone(), placed);
        self.take_place(pod);
    }

    fn leave(&mut self, uid: &Uid, why: Why) {
        let Some(Placed { pod, assumed, elsewhere, .. }) = self.pods.remove(uid) else { return };
        if !self.holds_places() || pod.template.is_placeholder() {
            return;
        }
        if why == Why::Deleted && !assumed && !elsewhere {
            let reserves = pod.template.godel.as_ref().is_some_and(|godel| godel.reserves);
            let is_placed = pod.node_name.as_ref().is_some_and(|node| {
                self.nodes.contains_key(node) || self.nm_nodes.contains_key(node)
            });
            if reserves && is_placed && pod.template.reservation_placeholder().is_some() {
                self.hold(&Reservation::of(&pod));
            }
        } else if let Some(key) = self.taken(&pod) {
            self.reopen(&key);
        }
    }

    fn holds_places(&self) -> bool {
        self.godel.as_ref().is_some_and(|config| config.reservations.is_some())
    }

    fn take_place(&mut self, pod: &Pod) {
        if let Some(key) = taken_by(pod) {
            self.match_place(&key, &pod.uid);
        }
    }

    fn match_place(&mut self, key: &PlaceKey, uid: &Uid) {
        let Some(place) = self.places.get_mut(key).filter(|place| place.matched.is_none()) else {
            return;
        };
        place.matched = Some(uid.clone());
        let holder = place.pod.uid.clone();
        self.pods.remove(&holder);
    }

    fn hold(&mut self, held: &Reservation) {
        let key = key_of(held);
        if self.places.get(&key).is_some_and(|place| place.matched.is_none()) {
            return;
        }
        self.places.remove(&key);
        if !self.pods.contains_key(&held.pod.uid) {
            self.put(&held.pod, false);
            let pod = held.pod.clone();
            let place = Held { pod, matched: None, confirmed: false, waits: true, deadline: None };
            self.places.insert(key, place);
        }
    }

    fn reopen(&mut self, key: &PlaceKey) {
        let Some(place) = self.places.get_mut(key).filter(|place| place.matched.is_some()) else {
            return;
        };
        if self.pods.contains_key(&place.pod.uid) {
            self.places.remove(key);
            return;
        }
        place.matched = None;
        let pod = place.pod.clone();
        self.put(&pod, false);
    }

    fn drop_place(&mut self, key: &PlaceKey) {
        if let Some(place) = self.places.remove(key).filter(|place| place.matched.is_none()) {
            self.pods.remove(&place.pod.uid);
        }
    }

    fn reserve(&mut self, new: &Reservation) -> bool {
        let name = (new.namespace.to_string(), new.name.to_string());
        if !self.holds_places() {
            self.reservations.insert(name, new.clone());
            return true;
        }
        let old = self.reservations.get(&name).cloned();
        let held = old.clone();
        let held = held.filter(|old| old.occupies()).map(|old| key_of(&old));
        let key = key_of(new);
        if new.occupies() && self.pods.contains_key(&new.pod.uid) {
            let holds = |key: &PlaceKey| {
                let place = self.places.get(key);
                place.is_some_and(|p| p.matched.is_none() && p.pod.uid == new.pod.uid)
            };
            if !holds(&key) && !held.as_ref().is_some_and(holds) {
                return false;
            }
        }
        self.reservations.insert(name, new.clone());
        if new.occupies() {
            if let Some(held) = held.filter(|held| *held != key) {
                self.drop_place(&held);
            }
            self.occupy(key, new, old.as_ref());
        } else if let Some(held) = held {
            match (new.phase, &new.owner) {
                (ReservationPhase::Matched, Some(owner)) if self.pods.contains_key(owner) => {
                    self.match_place(&held, owner);
                }
                (ReservationPhase::Matched, _) => {}
                _ => self.drop_place_of(&held, new),
            }
        }
        true
    }

    fn drop_place_of(&mut self, key: &PlaceKey, reservation: &Reservation) {
        let is_about = |p: &Held| p.confirmed || p.pod.uid == reservation.pod.uid;
        if self.places.get(key).is_some_and(is_about) {
            self.drop_place(key);
        }
    }

    fn occupy(&mut self, key: PlaceKey, new: &Reservation, old: Option<&Reservation>) {
        let Some(place) = self.places.get_mut(&key) else {
            let successor =
                self.pods.values().find(|placed| taken_by(&placed.pod).as_ref() == Some(&key));
            let matched = successor.map(|placed| placed.pod.uid.clone());
            if matched.is_none() {
                self.put(&new.pod, false);
            }
            let pod = new.pod.clone();
            let place = Held { pod, matched, confirmed: true, waits: false, deadline: None };
            self.places.insert(key, place);
            return;
        };
        place.confirmed = true;
        let taker = place.matched.as_ref().and_then(|taker| self.pods.get(taker));
        let is_taken = taker.is_some_and(|taker| taker.pod.node_name.as_deref() == Some(&*key.2));
        let was_over = old.is_some_and(|old| !old.occupies());
        if was_over && !is_taken {
            self.reopen(&key);
        } else if old.is_some_and(|old| old.pod != new.pod) && place.matched.is_none() {
            let before = std::mem::replace(&mut place.pod, new.pod.clone());
            self.pods.remove(&before.uid);
            self.put(&new.pod, false);
        }
    }

    fn unreserve(&mut self, namespace: &str, name: &str) -> bool {
        let name = (namespace.to_owned(), name.to_owned());
        let Some(old) = self.reservations.remove(&name) else { return false };
        self.drop_place_of(&key_of(&old), &old);
        true
    }

    fn tick(&mut self, now: Timestamp) {
        let ttl = self.godel.as_ref().and_then(|config| config.reservations);
        let Some(ttl) = ttl.filter(|ttl| !ttl.is_zero()) else { return };
        for place in self.places.values_mut().filter(|place| place.waits) {
            place.waits = false;
            place.deadline = Some(Timestamp(now.0 + ttl.as_nanos() as i64));
        }
    }

    fn expire_places(&mut self, now: Timestamp) {
        self.tick(now);
        let due = |place: &Held| !place.confirmed && place.deadline.is_some_and(|at| at < now);
        let due: Vec<PlaceKey> =
            self.places.iter().filter(|(_, p)| due(p)).map(|(key, _)| key.clone()).collect();
        for key in due {
            self.drop_place(&key);
        }
    }

    /// The pod on the node that it counts on, if it counts on one.
    fn as_placed(&self, pod: &Pod) -> Pod {
        let mut placed = pod.clone();
        let Some(config) = &self.godel else { return placed };
        match pod.state() {
            Ok(PodState::Bound) => {
                let mut spec = (**pod.template).clone();
                spec.godel = spec.godel.and_then(|godel| godel.bound());
                placed.template = Template::new(spec);
            }
            Ok(PodState::Assumed) if pod.is_for(&config.scheduler_type) => {
                placed.node_name = pod.placed_on().cloned();
            }
            _ => {}
        }
        placed
    }

    fn update_in_state(&mut self, old: &Uid, pod: &Pod) -> bool {
        let placed = self.as_placed(pod);
        if placed.node_name.as_ref().is_none_or(|node| node.is_empty()) {
            return self.unplace(old, pod);
        }
        let same = placed.uid == *old;
        let fits = placeable(&placed)
            && match self.pods.get(old) {
                None => same,
                Some(known) if known.assumed => same,
                Some(known) if known.elsewhere && same => true,
                Some(known) => {
                    known.pod.node_name == placed.node_name
                        && (same || !self.pods.contains_key(&placed.uid))
                }
            };
        if fits && same {
            self.replace(&placed);
        } else if fits {
            self.leave(old, Why::Deleted);
            self.put(&placed, false);
        }
        fits
    }

    fn unplace(&mut self, old: &Uid, pod: &Pod) -> bool {
        let is_pending =
            !pod.uid.is_empty() && pod.node_name.as_ref().is_none_or(|node| node.is_empty());
        if old.is_empty() || !is_pending {
            return false;
        }
        if self
            .pods
            .get(old)
            .is_some_and(|known| !known.assumed && (known.elsewhere || pod.uid != *old))
        {
            let why = if pod.uid == *old { Why::Withdrawn } else { Why::Deleted };
            self.leave(old, why);
        }
        true
    }

    fn relist_pods(&mut self, pods: &[Pod]) {
        let mut all_good = true;
        for pod in pods.iter().map(|pod| self.as_placed(pod)).collect::<Vec<_>>() {
            let known = self.pods.get(&pod.uid);
            if known.is_some_and(|known| !known.assumed && known.pod == pod) {
                continue;
            }
            if placeable(&pod) {
                self.replace(&pod);
            } else {
                all_good = false;
            }
        }
        if all_good {
            let listed: BTreeSet<&Uid> = pods.iter().map(|pod| &pod.uid).collect();
            let gone = |(uid, placed): &(&Uid, &Placed)| {
                let holds = self.holds_places() && placed.pod.template.is_placeholder();
                !placed.assumed && !holds && !listed.contains(uid)
            };
            let gone: Vec<Uid> =
                self.pods.iter().filter(gone).map(|(uid, _)| uid.clone()).collect();
            for uid in gone {
                self.leave(&uid, Why::Deleted);
            }
        }
    }

    fn put_movement(&mut self, movement: &Movement) -> bool {
        self.movements.insert(movement.name.to_string(), movement.clone());
        true
    }

    fn put_node(&mut self, node: &Arc<Node>) {
        self.drop_images(&node.name);
        for image in &node.images {
            for name in &image.names {
                let state =
                    self.images.entry(name.clone()).or_insert((image.size, BTreeSet::new()));
                state.1.insert(node.name.clone());
            }
        }
        self.rezone(&node.name, |naive| {
            naive.nodes.insert(node.name.clone(), node.clone());
        });
    }

    fn remove_node(&mut self, name: &Name) -> bool {
        let known = self.nodes.contains_key(name);
        self.drop_images(name);
        self.rezone(name, |naive| {
            naive.nodes.remove(name);
        });
        known
    }

    fn put_part(&mut self, object: &Object) {
        self.rezone(object.name(), |naive| match object {
            Object::NmNode(nm_node) => {
                naive.nm_nodes.insert(nm_node.name.clone(), nm_node.clone());
            }
            Object::CustomNodeResource(custom) => {
                naive.custom.insert(custom.name.clone(), custom.clone());
            }
            Object::PodDisruptionBudget(budget) => {
                let key = (budget.namespace.to_string(), budget.name.to_string());
                naive.budgets.insert(key, budget.clone());
            }
            Object::Workload(owner) => {
                let key = (owner.kind, owner.namespace.to_string(), owner.name.to_string());
                naive.owners.insert(key, owner.clone());
            }
            _ => {}
        });
    }

    fn delete_object(&mut self, key: &ObjectKey) -> bool {
        let (namespace, name) = (key.namespace.clone(), key.name.clone());
        match key.kind {
            kind if kind.is_node_part() => self.delete_part(key),
            ObjectKind::PodDisruptionBudget => self.budgets.remove(&(namespace, name)).is_some(),
            kind if is_owner(kind) => self.owners.remove(&(kind, namespace, name)).is_some(),
            _ => true,
        }
    }

    fn delete_part(&mut self, key: &ObjectKey) -> bool {
        let name = Name::from(&*key.name);
        let mut known = false;
        self.rezone(&name, |naive| {
            known = match key.kind {
                ObjectKind::NmNode => naive.nm_nodes.remove(&name).is_some(),
                _ => naive.custom.remove(&name).is_some(),
            }
        });
        known
    }

    fn relist_objects(&mut self, kind: ObjectKind, objects: &[Object]) {
        let good = |object: &&Object| object.kind() == kind;
        if kind == ObjectKind::Reservation {
            let mut all = true;
            for object in objects {
                all &= match object {
                    Object::Reservation(reservation) => self.reserve(reservation),
                    _ => false,
                };
            }
            let is_listed = |(namespace, name): &(String, String)| {
                let is_it = |o: &Object| *o.namespace() == **namespace && **o.name() == **name;
                objects.iter().any(is_it)
            };
            let gone: Vec<(String, String)> =
                self.reservations.keys().filter(|key| !is_listed(key)).cloned().collect();
            for (namespace, name) in gone.into_iter().filter(|_| all) {
                self.unreserve(&namespace, &name);
            }
            return;
        }
        if kind == ObjectKind::Movement {
            for object in objects {
                if let Object::Movement(movement) = object {
                    self.put_movement(movement);
                }
            }
            if objects.iter().all(|object| good(&object)) {
                let listed = |name: &str| objects.iter().any(|object| **object.name() == *name);
                self.movements.retain(|name, _| listed(name));
            }
            return;
        }
        objects.iter().filter(good).for_each(|object| self.put_part(object));
        if !objects.iter().all(|object| good(&object)) {
            return;
        }
        let in_none = |name: &Name| (String::new(), name.to_string());
        let known: Vec<(String, String)> = match kind {
            ObjectKind::NmNode => self.nm_nodes.keys().map(in_none).collect(),
            ObjectKind::CustomNodeResource => self.custom.keys().map(in_none).collect(),
            ObjectKind::PodDisruptionBudget => self.budgets.keys().cloned().collect(),
            _ => {
                let of_kind = self.owners.keys().filter(|(known, _, _)| *known == kind);
                of_kind.map(|(_, namespace, name)| (namespace.clone(), name.clone())).collect()
            }
        };
        for (namespace, name) in known {
            let is_it = |o: &Object| *o.namespace() == *namespace && **o.name() == *name;
            if !objects.iter().any(is_it) {
                self.delete_object(&ObjectKey { kind, namespace, name });
            }
        }
    }

    /// The zone that a node is listed in: its Node's, else its NMNode's.
    fn zone_of(&self, name: &Name) -> Option<ZoneKey> {
        let own = self.nodes.get(name).map(|node| &node.zone);
        own.or_else(|| self.nm_nodes.get(name).map(|nm_node| &nm_node.zone)).cloned()
    }

    /// Makes a change; a node that is listed elsewhere then is at the end there.
    fn rezone(&mut self, name: &Name, change: impl FnOnce(&mut Naive)) {
        let before = self.zone_of(name);
        change(self);
        let after = self.zone_of(name);
        if before == after {
            return;
        }
        self.leave_zone(name);
        let Some(zone) = after else { return };
        match self.zones.iter_mut().find(|(key, _)| *key == zone) {
            Some((_, names)) => names.push(name.clone()),
            None => self.zones.push((zone, vec![name.clone()])),
        }
    }

    fn leave_zone(&mut self, name: &Name) {
        for (_, names) in &mut self.zones {
            names.retain(|known| known != name);
        }
        self.zones.retain(|(_, names)| !names.is_empty());
    }

    fn drop_images(&mut self, node: &Name) {
        self.images.retain(|_, (_, nodes)| {
            nodes.remove(node);
            !nodes.is_empty()
        });
    }

    /// Everything, written out as [`Cluster::dump`](crate::Cluster::dump) does,
    /// but for the columns.
    #[must_use]
    pub fn dump(&self) -> Dump {
        let mut dump = Dump { order: self.order(), ..Dump::default() };
        let names = self.nodes.keys().chain(self.nm_nodes.keys()).chain(self.custom.keys());
        let names = names.chain(self.pods.values().filter_map(|it| it.pod.node_name.as_ref()));
        for name in names.collect::<BTreeSet<_>>() {
            let entry = dump.nodes.entry(name.to_string()).or_default();
            self.describe(name, entry);
        }
        for ((placeholder, pod, node), place) in &self.places {
            let key = format!("{placeholder} {pod} {node}");
            dump.reservations.insert(key, (place.matched.clone(), place.confirmed));
        }
        if self.godel.as_ref().is_some_and(|config| config.movements) {
            self.describe_movements(&mut dump);
        }
        if self.godel.as_ref().is_some_and(|config| config.preemption_marks) {
            self.describe_marks(&mut dump);
        }
        for ((kind, namespace, name), owner) in &self.owners {
            let key = format!("{} {namespace}/{name}", kind.as_str());
            dump.owners.insert(key, self.budgets_for(namespace, &owner.labels));
        }
        for (image, (size, nodes)) in &self.images {
            dump.images.insert(image.to_string(), (*size, nodes.len()));
            for node in nodes {
                let entry = dump.nodes.entry(node.to_string()).or_default();
                entry.images.insert(image.to_string(), (*size, nodes.len()));
            }
        }
        let mut claims = BTreeSet::new();
        for (uid, Placed { pod, assumed, elsewhere, .. }) in &self.pods {
            let Some(node) = &pod.node_name else { continue };
            let entry = dump.nodes.entry(node.to_string()).or_default();
            count(entry, uid, pod);
            let budgets = self.budgets_for(pod.namespace(), &pod.template.labels);
            if !budgets.is_empty() {
                dump.budgets.insert(uid.clone(), budgets);
            }
            for claim in pod.template.claims().filter(|_| self.zone_of(node).is_some()) {
                claims.insert(format!("{}/{claim}", pod.namespace()));
            }
            if let Some((namespace, name)) = pod.group() {
                *dump.group_members.entry(format!("{namespace}/{name}")).or_insert(0) += 1;
            }
            if *assumed {
                dump.assumed.push(uid.clone());
            }
            if *elsewhere {
                dump.assumed_elsewhere.push(uid.clone());
            }
        }
        dump.used_claims = claims.into_iter().collect();
        dump
    }

    /// Writes who is suggested to go where, and who follows.
    fn describe_movements(&self, dump: &mut Dump) {
        type Sets = (u64, BTreeSet<Uid>, BTreeSet<Uid>);
        let mut all: BTreeMap<(String, String, String), Sets> = BTreeMap::new();
        for (name, movement) in &self.movements {
            for owner in &movement.owners {
                for to in &owner.nodes {
                    let id = (name.clone(), owner.owner.to_string(), to.node.to_string());
                    let actual = to.actual.iter().map(|task| task.uid.clone()).collect();
                    all.insert(id, (to.desired, actual, BTreeSet::new()));
                }
            }
            let evicted = movement.deleted.iter().map(|task| task.uid.clone()).collect();
            dump.evicted.insert(name.clone(), evicted);
        }
        for (uid, Placed { pod, .. }) in &self.pods {
            let movement = pod.template.godel.as_ref().and_then(|godel| godel.movement.as_ref());
            let (Some(movement), Some(owner)) = (movement, pod.template.owner_key()) else {
                continue;
            };
            let node = pod.node_name.as_ref().map(ToString::to_string).unwrap_or_default();
            let id = (movement.to_string(), owner.to_string(), node);
            all.entry(id).or_default().2.insert(uid.clone());
        }
        for ((movement, owner, node), (desired, actual, assumed)) in all {
            let here = actual.union(&assumed).count() as u64;
            if desired > here {
                let nodes = dump.available.entry(owner.clone()).or_default();
                let times = nodes.entry(node.clone()).or_insert(0);
                *times = times.saturating_add(desired - here);
            }
            if desired > 0 || here > 0 {
                let sets = (desired, actual.into_iter().collect(), assumed.into_iter().collect());
                dump.suggestions.insert(format!("{movement} {owner} {node}"), sets);
            }
        }
    }

    /// Writes who goes for whom.
    fn describe_marks(&self, dump: &mut Dump) {
        let mut marked = BTreeSet::new();
        for (uid, Placed { pod, .. }) in &self.pods {
            let to = pod.template.godel.as_ref().and_then(|godel| godel.nominated_node.as_ref());
            let Some(to) = to.filter(|to| Some(&to.node) == pod.node_name.as_ref()) else {
                continue;
            };
            for victim in to.victims.iter().filter(|victim| !victim.uid.is_empty()) {
                let key = format!("{} {}", to.node, victim.uid);
                let preemptors = dump.preemption_marks.entry(key).or_default();
                if !preemptors.contains(uid) {
                    preemptors.push(uid.clone());
                }
                marked.insert(Uid::new(&victim.uid));
            }
        }
        dump.marked = marked.into_iter().collect();
    }

    /// Writes what a node is made of, and what that gives to pods.
    fn describe(&self, name: &Name, entry: &mut NodeDump) {
        let (node, nm_node) = (self.nodes.get(name), self.nm_nodes.get(name));
        let custom = self.custom.get(name);
        entry.has_node = node.is_some() || nm_node.is_some();
        entry.parts =
            [node.map(|_| "Node"), nm_node.map(|_| "NMNode"), custom.map(|_| "CustomNodeResource")]
                .into_iter()
                .flatten()
                .collect();
        let of_node = node.and_then(|node| node.scheduler.clone());
        let of_nm_node = nm_node.and_then(|nm_node| nm_node.scheduler.clone());
        entry.schedulers = of_node.into_iter().chain(of_nm_node).collect();
        let mut amounts = node.map(|node| amounts_of(node)).unwrap_or_default();
        for (resource, offered) in nm_node.iter().flat_map(|nm_node| nm_node.allocatable.iter()) {
            let unit = |q: Quantity| if **resource == *"cpu" { q.milli_value() } else { q.value() };
            let capacity = nm_node.and_then(|nm_node| nm_node.capacity.get(resource)).map(unit);
            let kept = capacity.map_or(0, |capacity| (capacity - unit(offered)).max(0));
            let merged = match amounts.get(resource) {
                Some(own) => (own - kept).max(0),
                None => unit(offered),
            };
            amounts.insert(resource.clone(), merged);
        }
        (entry.allocatable, entry.allowed_pods) = of_amounts(&amounts);
        if let Some(custom) = custom {
            let offered = &custom.allocatable;
            entry.best_effort.allocatable = without_zeros(&offered.resources);
            entry.best_effort.allowed_pods = offered.pods;
        }
        let metrics = custom.and_then(|custom| custom.metrics.as_deref());
        for (at, class) in [PodClass::Guaranteed, PodClass::BestEffort].into_iter().enumerate() {
            entry.load[at] = self.load(name, class, metrics);
        }
        entry.capacity = match (node, nm_node) {
            (Some(node), _) => node.capacity(),
            (None, Some(nm_node)) => NodeResources::from(&nm_node.capacity),
            (None, None) => NodeResources::default(),
        };
    }

    /// Every budget is asked.
    fn budgets_for(&self, namespace: &str, labels: &Labels) -> Vec<String> {
        let is_about = |budget: &&PodDisruptionBudget| {
            *budget.namespace == *namespace
                && !labels.is_empty()
                && !budget.selector.is_empty()
                && budget.selector.matches(labels)
        };
        self.budgets.values().filter(is_about).map(|budget| budget.name.to_string()).collect()
    }

    /// What was measured, and what those request of whom nothing was.
    fn load(&self, name: &Name, class: PodClass, metrics: Option<&NodeMetrics>) -> NodeLoad {
        let mut load = NodeLoad::default();
        let mut measured = BTreeSet::new();
        if let Some(metrics) = metrics {
            load.updated = metrics.updated;
            load.profiled = metrics.of(class).usage;
            measured.extend(metrics.of(class).pods());
        }
        for Placed { pod, .. } in self.pods.values() {
            let is_there = pod.node_name.as_ref() == Some(name) && pod.template.class == class;
            if is_there && !measured.contains(&pod.key()) {
                let placed = &pod.template.resources.placed;
                load.requested.cpu.0 += placed.cpu.0;
                load.requested.memory.0 += placed.memory.0;
            }
        }
        load
    }

    fn order(&self) -> Vec<String> {
        let longest = self.zones.iter().map(|(_, names)| names.len()).max().unwrap_or(0);
        (0..longest)
            .flat_map(|round| self.zones.iter().filter_map(move |(_, names)| names.get(round)))
            .map(ToString::to_string)
            .collect()
    }
}

fn is_owner(kind: ObjectKind) -> bool {
    use ObjectKind::{DaemonSet, ReplicaSet, ReplicationController, StatefulSet};
    matches!(kind, ReplicationController | ReplicaSet | StatefulSet | DaemonSet)
}

fn key_of(held: &Reservation) -> PlaceKey {
    let node = held.node().map(ToString::to_string).unwrap_or_default();
    (held.placeholder().to_owned(), held.pod.key().to_string(), node)
}

/// The place that a pod takes where it is, if that is held.
fn taken_by(pod: &Pod) -> Option<PlaceKey> {
    let holder = pod.template.godel.as_ref()?.matched_placeholder.as_ref()?;
    let placeholder = pod.template.reservation_placeholder()?;
    if holder.split_once('/').is_none_or(|(namespace, _)| *namespace != **pod.namespace()) {
        return None;
    }
    Some((placeholder.to_owned(), holder.to_string(), pod.node_name.as_ref()?.to_string()))
}

fn placeable(pod: &Pod) -> bool {
    !pod.uid.is_empty()
        && pod.node_name.as_ref().is_some_and(|node| !node.is_empty())
        && pod.template.resource_claims.is_empty()
}

/// What a Node says that pods may take; a zero of what every node has is as good
/// as not named.
fn amounts_of(node: &Node) -> BTreeMap<Name, i64> {
    let Resources { cpu, memory, ephemeral_storage, scalars } = &node.allocatable;
    let fixed = [
        ("cpu", cpu.0),
        ("memory", memory.0),
        ("ephemeral-storage", ephemeral_storage.0),
        ("pods", node.allowed_pods),
    ];
    let fixed = fixed.into_iter().filter(|(_, amount)| *amount != 0);
    let scalars = scalars.iter().map(|(name, amount)| (name.clone(), amount));
    fixed.map(|(name, amount)| (name.into(), amount)).chain(scalars).collect()
}

/// The opposite of [`amounts_of`], without zeros.
fn of_amounts(amounts: &BTreeMap<Name, i64>) -> (Resources, i64) {
    let amount = |name: &str| amounts.get(name).copied().unwrap_or(0);
    let scalars = amounts.iter().filter(|(name, amount)| is_scalar(name) && **amount != 0);
    let resources = Resources {
        cpu: MilliCpu(amount("cpu")),
        memory: Bytes(amount("memory")),
        ephemeral_storage: Bytes(amount("ephemeral-storage")),
        scalars: Scalars::new(scalars.map(|(name, amount)| (name.clone(), *amount))),
    };
    (resources, amount("pods"))
}

fn without_zeros(resources: &Resources) -> Resources {
    let named = resources.scalars.iter().filter(|(_, amount)| *amount != 0);
    let scalars = Scalars::new(named.map(|(name, amount)| (name.clone(), amount)));
    Resources { scalars, ..resources.clone() }
}

fn count(entry: &mut NodeDump, uid: &Uid, pod: &Pod) {
    entry.pods.insert(uid.clone(), pod.resource_version);
    let spec = &pod.template;
    let (requested, non_zero) = match spec.class {
        PodClass::Guaranteed => (&mut entry.requested, &mut entry.non_zero_requested),
        PodClass::BestEffort => {
            (&mut entry.best_effort.requested, &mut entry.best_effort.non_zero_requested)
        }
    };
    let Resources { cpu, memory, ephemeral_storage, scalars } = &spec.resources.placed;
    requested.cpu.0 += cpu.0;
    requested.memory.0 += memory.0;
    requested.ephemeral_storage.0 += ephemeral_storage.0;
    let mut sums: BTreeMap<Name, i64> =
        requested.scalars.iter().map(|(name, n)| (name.clone(), n)).collect();
    for (name, amount) in scalars.iter() {
        *sums.entry(name.clone()).or_insert(0) += amount;
    }
    sums.retain(|_, sum| *sum != 0);
    requested.scalars = Scalars::new(sums);
    let NonZero { cpu, memory } = spec.resources.placed_non_zero;
    non_zero.cpu = MilliCpu(non_zero.cpu.0 + cpu.0);
    non_zero.memory.0 += memory.0;
    for HostPort { ip, protocol, port } in &spec.host_ports {
        *entry.used_ports.entry(format!("{ip}/{}/{port}", protocol.as_str())).or_insert(0) += 1;
    }
    for claim in spec.claims() {
        *entry.claims.entry(format!("{}/{claim}", spec.namespace)).or_insert(0) += 1;
    }
    let traits = spec.traits();
    if traits.affinity {
        entry.with_affinity.push(uid.clone());
    }
    if traits.required_anti_affinity {
        entry.with_required_anti_affinity.push(uid.clone());
    }
}
