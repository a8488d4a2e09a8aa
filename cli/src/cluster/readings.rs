//! The readings of one source: each is applied as a difference to the engine of the last one, so that the versions of a
//! cluster share all unchanged data. If files list their nodes in another order than the engine would, such as when a node
//! has returned, the reading has an engine of its own, because decisions depend on the order.
//!
//! The difference is to the engine's state, not to the last reading: the reading after one that failed halfway is
//! complete. With Gödel semantics, the state also depends on the order of events, and each reading has an engine of its
//! own.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use portolan::cache::{Cluster, Engine, Relist, Writer};
use portolan::model::{EventError, Name, Node, Object, ObjectKind, Pod, Uid};
use portolan_dra::Devices;
use portolan_dra::store::DeviceEvent;

use super::rest::share;
use super::{Contents, Godel, Input, Loaded, put, rejected};
use crate::error::CommandError;
use crate::pod_list::PodList;
use crate::simulation::closed;

/// The engine of the last reading, and what it read.
#[derive(Default)]
pub(crate) struct Readings {
    last: Option<Last>,
    /// Whether nodes are listed in the order of their arrival, as by a scheduler that watches them, and not in that of
    /// the input. Equal inputs may have different answers then.
    keeps_arrival: bool,
}

struct Last {
    writer: Writer,
    /// As read, before claims were created.
    loaded: Loaded,
    /// The nodes in the order of the input.
    order: Vec<Name>,
}

impl Readings {
    /// The readings of a cluster that is watched.
    pub(crate) fn watched() -> Readings {
        Readings { last: None, keeps_arrival: true }
    }

    /// Loads a reading, unless it equals the last one. O(cluster) to compare, and the memory of what changed.
    pub(crate) fn load(
        &mut self,
        input: Input,
        godel: &Godel,
    ) -> Result<Option<Loaded>, CommandError> {
        let claims = input.claims();
        let can_follow =
            |last: &Last| !godel.is_enabled() && last.loaded.claims.is_some() == claims.is_some();
        let order = input.objects().nodes.iter().map(|node| node.name.clone()).collect();
        let Some(last) = self.last.as_mut().filter(|last| can_follow(last)) else {
            let before =
                self.last.as_ref().map(|last| last.loaded.pending.clone()).unwrap_or_default();
            let (writer, loaded) = input.engine(godel, Vec::new(), &before)?;
            self.last = Some(Last { writer, loaded: loaded.clone(), order });
            return Ok(Some(loaded));
        };
        let (writer, before) = (&mut last.writer, &last.loaded);
        let (placed, pending) = input.partition(godel)?;
        let nodes: Vec<Arc<Node>> = input.objects().nodes.iter().cloned().map(Arc::new).collect();
        let changed_objects = put_objects(writer, &input)?;
        let changed_devices = put_devices(writer, &input.contents)?;
        let changed_nodes = relist(writer, Relist::Nodes(nodes.clone()))?;
        let has_new_order = last.order != order;
        last.order = order;
        let is_reordered = !self.keeps_arrival
            && (changed_nodes > 0 || has_new_order)
            && !has_order_of(writer.cluster(), nodes, godel)?;
        if is_reordered {
            self.last = None;
            return self.load(input, godel);
        }
        let changes = changed_objects
            + changed_devices
            + changed_nodes
            + put_pods(writer, placed)?
            + input.contents.allow_disruptions(writer, &pending)?;
        let mut contents = input.contents;
        let has_same_rest = contents.rest.share(&before.contents.rest)
            & share(&mut contents.intake, &before.contents.intake)
            & (contents.notes == before.contents.notes);
        let pending = PodList::of(pending, &before.pending);
        if changes == 0 && has_same_rest && pending.is_same(&before.pending) {
            return Ok(None);
        }
        writer.publish();
        let claims = match (claims, &before.claims) {
            (Some(claims), Some(known)) => {
                let devices = writer.cluster().store::<Devices>().map_err(closed)?.clone();
                Some(claims.sharing(devices, known))
            }
            (claims, _) => claims,
        };
        let loaded = Loaded { contents, cluster: writer.snapshot(), pending, claims };
        last.loaded = loaded.clone();
        Ok(Some(loaded))
    }

    /// Frees the versions that are no longer held. O(such versions).
    pub(crate) fn reclaim(&mut self) {
        if let Some(last) = &mut self.last {
            last.writer.reclaim();
        }
    }
}

/// Whether the cluster lists these nodes as an engine does that reads them alone.
fn has_order_of(
    cluster: &Cluster,
    nodes: Vec<Arc<Node>>,
    godel: &Godel,
) -> Result<bool, CommandError> {
    let (mut alone, _) = Engine::inline(godel.config(None));
    relist(&mut alone, Relist::Nodes(nodes))?;
    let names = |of: &Cluster| of.nodes().map(|node| node.name().clone()).collect::<Vec<_>>();
    Ok(names(alone.cluster()) == names(cluster))
}

/// Puts the objects that changed, and removes those that are gone. Returns their number.
fn put_objects(writer: &mut Writer, input: &Input) -> Result<usize, CommandError> {
    // The disruptions that these budgets allow are computed.
    let limits = input.contents.budget_limits().iter().filter(|limit| !limit.has_status);
    let computed: HashSet<(&Name, &Name)> = limits.map(|it| (&it.namespace, &it.name)).collect();
    // Of several objects with one name, the last one counts.
    let mut read: HashMap<(ObjectKind, &str, &str), &Object> = HashMap::new();
    for object in &input.objects().objects {
        read.insert((object.kind(), object.namespace(), object.name()), object);
    }
    let cluster = writer.cluster();
    let changed = read.values().filter_map(|object| {
        let known = cluster.object(object.kind(), object.namespace(), object.name());
        match (*object, &known) {
            (Object::PodDisruptionBudget(new), Some(Object::PodDisruptionBudget(old)))
                if computed.contains(&(&new.namespace, &new.name)) =>
            {
                let mut new = (**new).clone();
                new.disruptions_allowed = old.disruptions_allowed;
                (new != **old).then(|| new.into())
            }
            (object, known) => (known.as_ref() != Some(object)).then(|| object.clone()),
        }
    });
    let changed: Vec<Object> = changed.collect();
    let mut gone = Vec::new();
    for kind in ObjectKind::ALL {
        let known = cluster.object_keys(kind).into_iter();
        let known = known.filter(|(space, name)| !read.contains_key(&(kind, space, name)));
        gone.extend(known.map(|(space, name)| (kind, space, name)));
    }
    let changes = changed.len() + gone.len();
    for object in changed {
        put(writer, object)?;
    }
    for (kind, namespace, name) in gone {
        let deleted = writer.delete_object(kind, &namespace, &name);
        let object = format!("{} {name}", kind.as_str());
        deleted.map_err(|error| CommandError::Refused { object, error })?;
    }
    Ok(changes)
}

/// Puts the pods that are on a node, and removes the others. Returns the number of changes.
fn put_pods(writer: &mut Writer, placed: Vec<Pod>) -> Result<usize, CommandError> {
    let mut uids: HashSet<&Uid> = HashSet::with_capacity(placed.len());
    if let Some(pod) = placed.iter().find(|pod| !uids.insert(&pod.uid)) {
        let error = EventError::AlreadyAdded { uid: pod.uid.clone() };
        return Err(rejected(format!("pod {}", pod.key()), error));
    }
    relist(writer, Relist::Pods(placed))
}

/// Applies a complete list. Returns the number of changes.
fn relist(writer: &mut Writer, list: Relist) -> Result<usize, CommandError> {
    let kind = if matches!(list, Relist::Pods(_)) { "pod" } else { "node" };
    let applied = writer.relist(list).map_err(|error| rejected(kind.to_owned(), error))?;
    match applied.rejected.into_iter().next() {
        Some((name, error)) => Err(rejected(format!("{kind} {name}"), error)),
        None => Ok(applied.added + applied.updated + applied.removed),
    }
}

/// Makes the store of devices equal to that of the objects. Returns the number of changes.
fn put_devices(writer: &mut Writer, contents: &Contents) -> Result<usize, CommandError> {
    // An engine without claims has no such store.
    let Ok(known) = writer.cluster().store::<Devices>() else { return Ok(0) };
    let events = device_events(known, &contents.devices().store());
    let changes = events.len();
    for event in events {
        let changed = writer.change::<Devices>(event);
        changed.map_err(|error| rejected("an object of resource.k8s.io".to_owned(), error))?;
    }
    Ok(changes)
}

/// The events that make one store of devices equal to another. O(objects).
pub(crate) fn device_events(known: &Devices, wanted: &Devices) -> Vec<DeviceEvent> {
    let mut events = Vec::new();
    for class in known.classes().iter() {
        if wanted.classes().get(class.name()).is_none() {
            events.push(DeviceEvent::DeleteClass(class.name().clone()));
        }
    }
    for class in wanted.classes().iter() {
        if known.classes().get(class.name()) != Some(class) {
            events.push(DeviceEvent::PutClass(class.clone()));
        }
    }
    for slice in known.slices().iter() {
        if wanted.slices().get(slice.name()).is_none() {
            events.push(DeviceEvent::DeleteSlice(slice.name().clone()));
        }
    }
    for slice in wanted.slices().iter() {
        if known.slices().get(slice.name()) != Some(slice) {
            events.push(DeviceEvent::PutSlice(slice.clone()));
        }
    }
    // Put alone would keep a claim whose version is not newer. All devices are free before they are in use again.
    for claim in known.claims().iter() {
        let (namespace, name) = (claim.namespace().clone(), claim.name().clone());
        if wanted.claims().get(&namespace, &name) != Some(claim) {
            events.push(DeviceEvent::DeleteClaim { namespace, name, uid: None });
        }
    }
    for claim in wanted.claims().iter() {
        if known.claims().get(claim.namespace(), claim.name()) != Some(claim) {
            events.push(DeviceEvent::PutClaim(claim.clone()));
        }
    }
    events
}

#[cfg(test)]
mod tests {
    use portolan_testkit::random::Random;
    use serde_json::json;

    use super::super::random::{input, random_objects};
    use super::*;

    /// All that an engine has of its devices.
    fn devices(loaded: &Loaded) -> Option<Vec<String>> {
        let devices = loaded.cluster.store::<Devices>().ok()?;
        let claims = devices.claims().iter().map(|it| format!("{it:?}"));
        let slices = devices.slices().iter().map(|it| format!("{it:?}"));
        let used = ["d0", "d1", "d2", "d3"].map(|device| {
            let pool = portolan_dra::store::PoolId { driver: "x".into(), pool: "p".into() };
            let of_pool = devices.claims().usage().pool(&pool);
            format!("{device} {}", of_pool.is_some_and(|it| it.is_dedicated(device)))
        });
        let mut all: Vec<String> = claims.chain(slices).chain(used).collect();
        all.sort();
        Some(all)
    }

    #[test]
    fn nodes_in_another_order_are_another_reading_of_a_file() {
        let node = |name| json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}});
        let mut readings = Readings::default();
        for names in [["a", "b"], ["b", "a"]] {
            let loaded = readings.load(input(&names.map(node)), &Godel::default()).expect("loaded");
            let cluster = loaded.expect("another reading").cluster;
            assert!(cluster.nodes().map(|node| &**node.name()).eq(names), "{names:?}");
        }
        assert!(
            readings
                .load(input(&["b", "a"].map(node)), &Godel::default())
                .expect("loaded")
                .is_none()
        );
    }

    #[test]
    fn a_reading_equals_the_input_loaded_alone() {
        let godel = Godel::default();
        for seed in 0..20 {
            let mut random = Random::new(seed);
            let mut readings = Readings::default();
            for _ in 0..8 {
                let objects = random_objects(&mut random);
                let read = readings.load(input(&objects), &godel).expect("a valid cluster");
                let read = read.expect("another cluster");
                let alone = input(&objects).load(&godel, Vec::new()).expect("a valid cluster");
                let order = |of: &Loaded| {
                    of.cluster.nodes().map(|node| node.name().clone()).collect::<Vec<_>>()
                };
                assert_eq!(order(&read), order(&alone), "seed {seed}");
                let differences = read.cluster.diff(&alone.cluster);
                assert!(differences.is_empty(), "seed {seed}: {differences:?}");
                assert_eq!(read.cluster.pod_count(), alone.cluster.pod_count(), "seed {seed}");
                for kind in ObjectKind::ALL {
                    let sorted = |loaded: &Loaded| {
                        let mut keys = loaded.cluster.object_keys(kind);
                        keys.sort();
                        let object = |(space, name)| loaded.cluster.object(kind, space, name);
                        keys.iter()
                            .map(|(space, name)| object((&**space, &**name)))
                            .collect::<Vec<_>>()
                    };
                    assert_eq!(sorted(&read), sorted(&alone), "seed {seed}");
                }
                assert_eq!(read.pending.to_vec(), alone.pending.to_vec(), "seed {seed}");
                assert_eq!(devices(&read), devices(&alone), "seed {seed}");
                assert!(read.contents.rest.facts == alone.contents.rest.facts, "seed {seed}");
                let again = readings.load(input(&objects), &godel).expect("a valid cluster");
                assert!(again.is_none(), "seed {seed}: an equal input is no new reading");
            }
        }
    }

    #[test]
    fn the_reading_after_a_refused_one_is_complete() {
        let mut random = Random::new(7);
        let [first, second] = [(); 2].map(|()| random_objects(&mut random));
        let (mut readings, godel) = (Readings::default(), Godel::default());
        readings.load(input(&first), &godel).expect("a valid cluster");
        let twice = [&second[..], &second[..1]].concat();
        assert!(readings.load(input(&twice), &godel).is_err());
        let read = readings.load(input(&second), &godel).expect("valid").expect("another cluster");
        let alone = input(&second).load(&godel, Vec::new()).expect("a valid cluster");
        assert!(read.cluster.diff(&alone.cluster).is_empty());
        assert_eq!(read.pending.to_vec(), alone.pending.to_vec());
    }
}
