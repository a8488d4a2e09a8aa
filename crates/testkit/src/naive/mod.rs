//! The naive fold: applies events to plain maps, and recomputes all derived data from the objects on each query. It is
//! slow and simple enough to be trusted, and serves as the oracle of tests and fuzzers at every generation.
//!
//! It shares the model with the engine but no code that folds events, because an error in shared code would not be
//! noticed.

mod dump;
mod places;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use portolan::cache::{Event, GodelConfig, NodeDump, ObjectKey, Relist};
use portolan::model::{
    CustomNodeResource, Generation, Movement, Name, NmNode, Node, NominatedNode, Object,
    ObjectKind, Pod, PodClass, PodDisruptionBudget, PodGroup, PodGroupPhase, PodState, Reservation,
    Resources, Template, Timestamp, Uid, Victim, Workload, ZoneKey,
};

pub use dump::comparable;

use places::{Held, PlaceKey, taken_by};

/// A pod that is counted on a node.
#[derive(Clone, Debug)]
struct Placed {
    pod: Pod,
    assumed: bool,
    /// Another Gödel scheduler has assumed the pod.
    elsewhere: bool,
    /// This scheduler has assumed the pod, and the binding has not finished.
    binding: bool,
    /// This scheduler has assumed the pod, and no event has carried a time since.
    unfinished: bool,
    deadline: Option<Timestamp>,
}

/// A cluster as plain maps: pods, nodes and their parts, disruption budgets, pod groups, owners of pods, reservations
/// and movements. Other kinds of objects have no effect on a dump and are not stored.
#[derive(Clone, Debug, Default)]
pub struct Naive {
    pods: BTreeMap<Uid, Placed>,
    nodes: BTreeMap<Name, Arc<Node>>,
    nm_nodes: BTreeMap<Name, Arc<NmNode>>,
    custom: BTreeMap<Name, Arc<CustomNodeResource>>,
    budgets: BTreeMap<(String, String), Arc<PodDisruptionBudget>>,
    owners: BTreeMap<(ObjectKind, String, String), Arc<Workload>>,
    groups: BTreeMap<(String, String), PodGroup>,
    zones: Vec<(ZoneKey, Vec<Name>)>,
    /// The size of each image, and the nodes that have it.
    images: BTreeMap<Name, (i64, BTreeSet<Name>)>,
    ttl: Option<Duration>,
    /// Assumes are accepted without a check.
    unchecked: bool,
    /// Pods are indexed by name.
    has_names: bool,
    /// The number of events folded.
    generation: u64,
    godel: Option<GodelConfig>,
    reservations: BTreeMap<(String, String), Reservation>,
    movements: BTreeMap<String, Movement>,
    /// The reservations by placeholder, pod and node.
    places: BTreeMap<PlaceKey, Held>,
    /// The preemptor of each marked victim, and the time until which the mark is valid.
    deletion_marks: BTreeMap<Uid, (Uid, Timestamp)>,
}

/// Why a pod is removed.
#[derive(Clone, Copy, PartialEq)]
enum LeaveReason {
    /// Its object was deleted.
    Deleted,
    /// It was assumed, and the placement was undone.
    Withdrawn,
}

impl Naive {
    /// Creates an empty cluster with a time to live for assumed pods.
    #[must_use]
    pub fn new(ttl: Option<Duration>) -> Naive {
        Naive { ttl: ttl.filter(|ttl| !ttl.is_zero()), ..Naive::default() }
    }

    /// Disables the check of placements ([`CommitPolicy::Unchecked`]).
    ///
    /// [`CommitPolicy::Unchecked`]: portolan::cache::CommitPolicy::Unchecked
    #[must_use]
    pub fn unchecked(self) -> Naive {
        Naive { unchecked: true, ..self }
    }

    /// Indexes pods by name ([`Config::pod_names`](portolan::cache::Config::pod_names)).
    #[must_use]
    pub fn with_pod_names(self) -> Naive {
        Naive { has_names: true, ..self }
    }

    /// Enables Gödel semantics for the still empty cluster.
    #[must_use]
    pub fn with_godel(self, config: GodelConfig) -> Naive {
        Naive { godel: Some(config), ..self }
    }

    /// Folds one event, and returns `true` if it was accepted.
    ///
    /// # Panics
    ///
    /// Panics if the event is of a kind that the naive fold does not implement.
    pub fn apply(&mut self, event: &Event) -> bool {
        self.generation += 1;
        let is_current = |decided_on: &Option<Generation>, now: u64| {
            decided_on.is_some_and(|decided_on| decided_on.0 + 1 == now)
        };
        match event {
            Event::AssumePod { pod, decided_on, .. } => {
                self.assume(pod, is_current(decided_on, self.generation))
            }
            Event::AssumeAll { pods, decided_on } => {
                let before = self.clone();
                let is_current = is_current(decided_on, self.generation);
                let all = pods.iter().all(|pod| self.assume(pod, is_current));
                if !all {
                    *self = before;
                }
                all
            }
            Event::AssumeEach { pods, decided_on, .. } => {
                let mut is_current = is_current(decided_on, self.generation);
                for (n, pod) in pods.iter().enumerate() {
                    self.generation += u64::from(n > 0);
                    is_current &= self.assume(pod, is_current);
                }
                true
            }
            Event::Preempt { pod, victims, decided_on } => {
                self.preempt(pod, victims, is_current(decided_on, self.generation))
            }
            Event::FinishBinding { uid, now } => {
                let ttl = self.ttl;
                if let Some(placed) = self.pods.get_mut(uid).filter(|placed| placed.assumed) {
                    placed.unfinished = false;
                    placed.binding = false;
                    placed.deadline = ttl.map(|ttl| Timestamp(now.0 + ttl.as_nanos() as i64));
                }
                if !uid.is_empty() {
                    self.tick(*now);
                    self.schedule_unit_of(uid);
                }
                !uid.is_empty()
            }
            Event::ForgetPod { uid, node } => match self.pods.get(uid) {
                None => !uid.is_empty(),
                Some(placed) => {
                    let is_accepted = placed.assumed
                        && node
                            .as_ref()
                            .is_none_or(|node| Some(node) == placed.pod.node_name.as_ref());
                    if is_accepted {
                        self.leave(uid, LeaveReason::Withdrawn);
                    }
                    is_accepted
                }
            },
            Event::AddPod(pod) => self.add(&self.as_placed(pod)),
            Event::PutPod(pod) => self.put_pod(pod),
            Event::UpdatePod { old, pod } if self.godel.is_some() => self.update_in_state(old, pod),
            Event::UpdatePod { old, pod } => {
                let is_accepted =
                    self.pods.get(old).is_some_and(|known| {
                        !known.assumed && known.pod.node_name == pod.node_name
                    }) && has_uid_and_node(pod)
                        && (pod.uid == *old || !self.pods.contains_key(&pod.uid));
                if is_accepted {
                    self.pods.remove(old);
                    self.put(pod, false);
                }
                is_accepted
            }
            Event::RemovePod { uid, node } => {
                let is_accepted = self.pods.get(uid).is_some_and(|known| {
                    node.as_ref().is_none_or(|node| {
                        self.godel.is_some()
                            || node.is_empty()
                            || Some(node) == known.pod.node_name.as_ref()
                    })
                });
                if is_accepted {
                    self.leave(uid, LeaveReason::Deleted);
                }
                is_accepted
            }
            Event::AddNode(node) | Event::UpdateNode(node) => {
                self.put_node(node);
                true
            }
            Event::RemoveNode(name) => self.remove_node(name),
            Event::AssignNode { node, scheduler } => {
                self.assign_node(node, |of| *of = Some(scheduler.clone()))
            }
            Event::UnassignNode { node, scheduler } => self.assign_node(node, |of| {
                if of.as_ref() == Some(scheduler) {
                    *of = None;
                }
            }),
            Event::MarkForDeletion { victim, preemptor, now } => {
                let is_bound = |known: &Placed| {
                    !known.assumed && !known.elsewhere && !known.pod.template.is_placeholder()
                };
                let is_accepted = self.godel.as_ref().is_some_and(|config| config.deletion_marks)
                    && !preemptor.is_empty()
                    && self.pods.get(victim).is_some_and(is_bound);
                if is_accepted {
                    let until = Timestamp(now.0 + 600_000_000_000);
                    self.deletion_marks.insert(victim.clone(), (preemptor.clone(), until));
                    self.tick(*now);
                }
                is_accepted
            }
            Event::UnmarkForDeletion { victim, preemptor } => {
                let is_its_own = match self.deletion_marks.get(victim) {
                    Some((by, _)) => by == preemptor,
                    None => true,
                };
                let is_enabled = self.godel.as_ref().is_some_and(|config| config.deletion_marks);
                let is_accepted =
                    is_enabled && !victim.is_empty() && !preemptor.is_empty() && is_its_own;
                if is_accepted {
                    self.deletion_marks.remove(victim);
                }
                is_accepted
            }
            Event::PutObject(object) => match object {
                Object::Reservation(reservation) => self.reserve(reservation),
                Object::Movement(movement) => self.put_movement(movement),
                object => {
                    self.put_part(object);
                    true
                }
            },
            Event::SetGroupPhase { namespace, name, phase } => {
                let known = self.groups.get_mut(&(namespace.to_string(), name.to_string()));
                known.map(|group| group.phase = Some(*phase)).is_some()
            }
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
            Event::RemovePending(uid) => {
                if self.pods.get(uid).is_some_and(|known| known.assumed) {
                    self.leave(uid, LeaveReason::Deleted);
                }
                !uid.is_empty()
            }
            Event::Expire(now) => {
                self.tick(*now);
                let due = |placed: &Placed| placed.deadline.is_some_and(|at| at < *now);
                let due: Vec<Uid> =
                    self.pods.iter().filter(|(_, p)| due(p)).map(|(uid, _)| uid.clone()).collect();
                for uid in due {
                    self.leave(&uid, LeaveReason::Withdrawn);
                }
                self.expire_places(*now);
                self.deletion_marks.retain(|_, (_, until)| *until >= *now);
                true
            }
            // The naive fold has no custom stores.
            Event::Custom(_) => false,
            Event::Relist(relist) => {
                match &**relist {
                    Relist::Pods(pods) => self.relist_pods(pods),
                    Relist::Nodes(nodes) => {
                        let listed: BTreeSet<&Name> = nodes.iter().map(|n| &n.name).collect();
                        let is_first = |(at, node): &(usize, &Arc<Node>)| {
                            nodes[..*at].iter().all(|before| before.name != node.name)
                        };
                        for (_, node) in nodes.iter().enumerate().filter(is_first) {
                            // An image keeps the size with which it was first seen, so putting an unchanged node again
                            // could change the size although the relist reports no change.
                            if self.nodes.get(&node.name) != Some(node) {
                                self.put_node(node);
                            }
                        }
                        // Removal follows the list order, because a node with an NMNode may move to the end of a zone.
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
            other => panic!("the naive fold has no rule for {other:?}"),
        }
    }

    /// Takes the next generation without a change, for a rebuild or for an event that the engine refused because a sum
    /// would overflow 64 bits. The naive fold's sums are unbounded, so it cannot decide the latter itself.
    pub fn skip(&mut self) {
        self.generation += 1;
    }

    /// Returns the generation of the last event or rebuild.
    #[must_use]
    pub fn generation(&self) -> Generation {
        Generation(self.generation)
    }

    /// Assumes a pod, unless it is known, has resource claims or does not fit. The fit is not checked if the decision
    /// was made on the current version.
    fn assume(&mut self, pod: &Pod, is_current: bool) -> bool {
        let is_accepted = has_uid_and_node(pod)
            && pod.template.resource_claims.is_empty()
            && !self.pods.contains_key(&pod.uid)
            && (self.unchecked || is_current || self.has_room(pod, &[]));
        if is_accepted {
            self.put(pod, true);
        }
        is_accepted
    }

    /// Returns whether the pod's node exists and the pod fits there. The placeholder whose reservation the pod uses
    /// and the pods in `without` are not counted.
    fn has_room(&self, pod: &Pod, without: &[Uid]) -> bool {
        let Some(name) = pod.node_name.as_ref().filter(|name| self.zone_of(name).is_some()) else {
            return false;
        };
        let place = taken_by(pod).and_then(|key| self.places.get(&key));
        let holder = place.filter(|place| place.matched.is_none()).map(|place| &place.pod.uid);
        let others: Vec<&Pod> = (self.pods.values().map(|placed| &placed.pod))
            .filter(|other| other.node_name.as_ref() == Some(name) && Some(&other.uid) != holder)
            .filter(|other| !without.contains(&other.uid))
            .collect();
        let mut entry = NodeDump::default();
        self.describe(name, &mut entry);
        let class = pod.template.class;
        let (has, pods) = match class {
            PodClass::Guaranteed => (&entry.allocatable, entry.allowed_pods),
            PodClass::BestEffort => {
                (&entry.best_effort.allocatable, entry.best_effort.allowed_pods)
            }
        };
        let fits = |amount: &dyn Fn(&Resources) -> i64| {
            let of_class = others.iter().filter(|other| other.template.class == class);
            let taken = of_class.map(|other| i128::from(amount(&other.template.resources.placed)));
            let wanted = amount(&pod.template.resources.incoming);
            wanted <= 0 || taken.sum::<i128>() + i128::from(wanted) <= i128::from(amount(has))
        };
        let scalar =
            |name: &Name| fits(&|resources: &Resources| resources.scalars.get(name).unwrap_or(0));
        let mut ports = others.iter().flat_map(|other| &other.template.host_ports);
        (others.len() as i64) < pods
            && fits(&|resources: &Resources| resources.cpu.0)
            && fits(&|resources: &Resources| resources.memory.0)
            && fits(&|resources: &Resources| resources.ephemeral_storage.0)
            && pod.template.resources.incoming.scalars.iter().all(|(name, _)| scalar(name))
            && !ports.any(|used| pod.template.host_ports.iter().any(|port| port.conflicts(used)))
    }

    /// Implements a scheduler's `AssumePod` with victims. In Gödel's cache the victims stay, and the pod's annotation
    /// marks them (preemption_store.go `podOp`); otherwise they are removed.
    fn preempt(&mut self, pod: &Pod, victims: &[Uid], is_current: bool) -> bool {
        let is_on_node = |uid: &Uid| {
            self.pods.get(uid).is_some_and(|known| {
                known.pod.node_name == pod.node_name && !known.pod.template.is_placeholder()
            })
        };
        let distinct: BTreeSet<&Uid> = victims.iter().collect();
        let is_accepted = has_uid_and_node(pod)
            && !self.pods.contains_key(&pod.uid)
            && distinct.len() == victims.len()
            && victims.iter().all(is_on_node)
            && pod.template.resource_claims.is_empty()
            && (self.unchecked || is_current || self.has_room(pod, victims));
        if !is_accepted {
            return false;
        }
        let mut pod = pod.clone();
        if self.godel.is_some() && !victims.is_empty() {
            let victim_of = |uid: &Uid| Victim {
                namespace: Name::default(),
                name: Name::default(),
                uid: uid.to_string().into(),
            };
            let mut spec = (**pod.template).clone();
            spec.godel.get_or_insert_default().nominated_node = Some(NominatedNode {
                node: pod.node_name.clone().unwrap_or_default(),
                victims: victims.iter().map(victim_of).collect(),
            });
            pod.template = Template::new(spec);
        } else {
            victims.iter().for_each(|victim| self.leave(victim, LeaveReason::Deleted));
        }
        self.put(&pod, true);
        true
    }

    /// Implements `AddPod`: a pod may only be added if it is unknown or assumed.
    fn add(&mut self, pod: &Pod) -> bool {
        let is_accepted =
            has_uid_and_node(pod) && self.pods.get(&pod.uid).is_none_or(|known| known.assumed);
        if is_accepted {
            self.replace(pod);
        }
        is_accepted
    }

    /// Implements the event handlers of pods: the newest object counts, whatever was known.
    fn put_pod(&mut self, pod: &Pod) -> bool {
        let is_namesake = |known: &&Placed| {
            self.has_names
                && known.pod.uid != pod.uid
                && known.pod.key() == pod.key()
                && !known.pod.template.is_placeholder()
        };
        let others: Vec<Pod> =
            self.pods.values().filter(is_namesake).map(|known| known.pod.clone()).collect();
        let known = self.pods.get(&pod.uid);
        let added = known.filter(|known| !known.assumed).map(|known| &known.pod);
        let mut versions = others.iter().chain(added);
        let given = pod.resource_version;
        let is_stale = given != 0 && versions.any(|known| given < known.resource_version);
        if pod.uid.is_empty() || is_stale {
            return false;
        }
        let (is_assumed, is_elsewhere) =
            known.map_or((false, false), |known| (known.assumed, known.elsewhere));
        for other in &others {
            self.leave(&other.uid, LeaveReason::Deleted);
        }
        let placed = self.as_placed(pod);
        let is_terminating = pod.deletion_time.is_some();
        if pod.finished {
            self.leave(&pod.uid, LeaveReason::Deleted);
        } else if has_uid_and_node(&placed) {
            let is_listed = |known: &Placed| !known.assumed && known.pod == placed;
            if !self.pods.get(&pod.uid).is_some_and(is_listed) {
                self.replace(&placed);
            }
        } else if is_terminating && is_assumed {
            self.leave(&pod.uid, LeaveReason::Deleted);
        } else if self.godel.is_some() && !is_terminating {
            self.unplace(&pod.uid, pod);
        } else if !is_assumed && (self.godel.is_none() || is_elsewhere) {
            self.leave(&pod.uid, LeaveReason::Withdrawn);
        }
        true
    }

    /// Places the pod, in place of its earlier object if there is one. The reservation that the earlier object took
    /// becomes available again if the pod moved or takes another.
    fn replace(&mut self, pod: &Pod) {
        let known = self.pods.remove(&pod.uid);
        let before = known.and_then(|known| self.taken(&known.pod));
        let is_unused = |key: &PlaceKey| self.places.get(key).is_some_and(|p| p.matched.is_none());
        let takes = taken_by(pod).filter(|key| Some(key) != before.as_ref() && is_unused(key));
        self.put(pod, false);
        if self.pods.get(&pod.uid).is_some_and(|placed| placed.elsewhere) {
            self.deletion_marks.remove(&pod.uid);
        }
        let Some(key) = before else { return };
        if takes.is_some() || pod.node_name.as_deref() != Some(&*key.2) {
            self.reopen(&key);
        }
    }

    /// Counts the pod on its node, and lets it take the reservation that it names.
    fn put(&mut self, pod: &Pod, assumed: bool) {
        let elsewhere = self.godel.is_some()
            && pod
                .template
                .godel
                .as_ref()
                .is_some_and(|godel| !assumed && &*godel.state == "assumed");
        let deadline = None;
        let (unfinished, binding) = (assumed, assumed);
        let placed = Placed { pod: pod.clone(), assumed, elsewhere, binding, unfinished, deadline };
        self.pods.insert(pod.uid.clone(), placed);
        self.take_place(pod);
    }

    /// Implements the binder's `SetUnitSchedulingStatus`, once enough pods of a unit are bound.
    fn schedule_unit_of(&mut self, uid: &Uid) {
        let is_enabled = self.godel.as_ref().is_some_and(|config| config.unit_status);
        let Some(placed) = self.pods.get(uid).filter(|_| is_enabled) else { return };
        let Some((namespace, name)) = placed.pod.group() else { return };
        let is_bound = |member: &&Placed| {
            member.pod.group() == Some((namespace, name)) && !member.binding && !member.elsewhere
        };
        let bound = self.pods.values().filter(is_bound).count();
        let group = self.groups.get_mut(&(namespace.to_string(), name.to_string()));
        if let Some(group) = group.filter(|group| (1..=bound).contains(&(group.wanted() as usize)))
        {
            group.phase = Some(PodGroupPhase::Scheduled);
        }
    }

    /// Removes a pod. Depending on the reason, the pod leaves a reservation or returns the one that it took.
    fn leave(&mut self, uid: &Uid, reason: LeaveReason) {
        self.deletion_marks.remove(uid);
        let Some(Placed { pod, assumed, elsewhere, .. }) = self.pods.remove(uid) else { return };
        if !self.holds_places() || pod.template.is_placeholder() {
            return;
        }
        if reason == LeaveReason::Deleted && !assumed && !elsewhere {
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

    /// Returns the pod with the node on which it is counted, if there is one.
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

    /// Implements Gödel's `UpdatePod`: the cached pod with the old uid is removed, and the new object is counted on the
    /// node where it is assumed or bound. The engine is stricter in one rule: a bound pod cannot move.
    fn update_in_state(&mut self, old: &Uid, pod: &Pod) -> bool {
        let placed = self.as_placed(pod);
        if placed.node_name.as_ref().is_none_or(|node| node.is_empty()) {
            return self.unplace(old, pod);
        }
        let moves = self.pods.get(&placed.uid).is_some_and(|known| {
            !known.assumed && !known.elsewhere && known.pod.node_name != placed.node_name
        });
        let is_accepted = !old.is_empty() && has_uid_and_node(&placed) && !moves;
        if is_accepted && placed.uid != *old {
            self.leave(old, LeaveReason::Deleted);
        }
        if is_accepted {
            self.replace(&placed);
        }
        is_accepted
    }

    /// Implements `UpdatePod` to an object that is neither assumed nor bound: the cached pod is removed, unless this
    /// scheduler assumed it, because then the object is older than the decision. An object with another uid is not
    /// older: the pod with the old uid no longer exists. The engine is stricter in one rule: a bound pod stays bound.
    fn unplace(&mut self, old: &Uid, pod: &Pod) -> bool {
        let is_pending =
            !pod.uid.is_empty() && pod.node_name.as_ref().is_none_or(|node| node.is_empty());
        if old.is_empty() || !is_pending {
            return false;
        }
        // deleted_marker_store.go `UpdatePod`.
        if self.pods.contains_key(old) {
            self.deletion_marks.remove(&pod.uid);
        }
        if pod.uid != *old {
            self.leave(old, LeaveReason::Deleted);
        } else if self.pods.get(old).is_some_and(|known| known.elsewhere) {
            self.leave(old, LeaveReason::Withdrawn);
        }
        true
    }

    fn relist_pods(&mut self, pods: &[Pod]) {
        // An object without a uid could be any of the pods that are not listed, so nothing is removed.
        let is_whole = pods.iter().all(|pod| !pod.uid.is_empty());
        for (at, listed) in pods.iter().enumerate() {
            if pods[..at].iter().any(|before| before.uid == listed.uid) {
                continue;
            }
            let pod = self.as_placed(listed);
            // A relist updates each listed object (client-go, `Replace`).
            if self.godel.is_some() && pod.node_name.as_ref().is_none_or(|node| node.is_empty()) {
                self.unplace(&listed.uid, listed);
                continue;
            }
            let known = self.pods.get(&pod.uid);
            if known.is_some_and(|known| !known.assumed && known.pod == pod) {
                continue;
            }
            if has_uid_and_node(&pod) {
                self.replace(&pod);
            }
        }
        if is_whole {
            let listed: BTreeSet<&Uid> = pods.iter().map(|pod| &pod.uid).collect();
            let gone = |(uid, placed): &(&Uid, &Placed)| {
                let holds = self.holds_places() && placed.pod.template.is_placeholder();
                !placed.assumed && !holds && !listed.contains(uid)
            };
            let gone: Vec<Uid> =
                self.pods.iter().filter(gone).map(|(uid, _)| uid.clone()).collect();
            for uid in gone {
                self.leave(&uid, LeaveReason::Deleted);
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

    /// Implements `SetNodePartition` for the existing objects of the node.
    fn assign_node(&mut self, name: &Name, change: impl Fn(&mut Option<Name>)) -> bool {
        let node = self.nodes.get_mut(name).map(|node| &mut Arc::make_mut(node).scheduler);
        let nm_node = self.nm_nodes.get_mut(name);
        let nm_node = nm_node.map(|nm_node| &mut Arc::make_mut(nm_node).scheduler);
        let exists = node.is_some() || nm_node.is_some();
        node.into_iter().chain(nm_node).for_each(change);
        exists
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
            Object::PodGroup(group) => {
                let key = (group.namespace.to_string(), group.name.to_string());
                naive.groups.insert(key, PodGroup::clone(group));
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
            ObjectKind::PodGroup => self.groups.remove(&(namespace, name)).is_some(),
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
        let is_of_kind = |object: &&Object| object.kind() == kind;
        let key = |object: &Object| (object.namespace().to_owned(), object.name().clone());
        let is_first = |(at, object): &(usize, &Object)| {
            let before = objects[..*at].iter().filter(is_of_kind);
            before.into_iter().all(|before| key(before) != key(object))
        };
        let first: Vec<&Object> =
            objects.iter().enumerate().filter(is_first).map(|(_, object)| object).collect();
        if kind == ObjectKind::Reservation {
            for object in first {
                if let Object::Reservation(reservation) = object {
                    self.reserve(reservation);
                }
            }
            let all = objects.iter().all(|object| object.kind() == kind);
            let is_listed = |(namespace, name): &(String, String)| {
                let is_equal = |o: &Object| *o.namespace() == **namespace && **o.name() == **name;
                objects.iter().any(is_equal)
            };
            let gone: Vec<(String, String)> =
                self.reservations.keys().filter(|key| !is_listed(key)).cloned().collect();
            for (namespace, name) in gone.into_iter().filter(|_| all) {
                self.unreserve(&namespace, &name);
            }
            return;
        }
        if kind == ObjectKind::Movement {
            for object in first {
                if let Object::Movement(movement) = object {
                    self.put_movement(movement);
                }
            }
            if objects.iter().all(|object| is_of_kind(&object)) {
                let listed = |name: &str| objects.iter().any(|object| **object.name() == *name);
                self.movements.retain(|name, _| listed(name));
            }
            return;
        }
        first.into_iter().filter(is_of_kind).for_each(|object| self.put_part(object));
        if !objects.iter().all(|object| is_of_kind(&object)) {
            return;
        }
        let cluster_scoped = |name: &Name| (String::new(), name.to_string());
        let known: Vec<(String, String)> = match kind {
            ObjectKind::NmNode => self.nm_nodes.keys().map(cluster_scoped).collect(),
            ObjectKind::CustomNodeResource => self.custom.keys().map(cluster_scoped).collect(),
            ObjectKind::PodDisruptionBudget => self.budgets.keys().cloned().collect(),
            ObjectKind::PodGroup => self.groups.keys().cloned().collect(),
            _ => {
                let of_kind = self.owners.keys().filter(|(known, _, _)| *known == kind);
                of_kind.map(|(_, namespace, name)| (namespace.clone(), name.clone())).collect()
            }
        };
        for (namespace, name) in known {
            let is_listed = |o: &Object| *o.namespace() == *namespace && **o.name() == *name;
            if !objects.iter().any(is_listed) {
                self.delete_object(&ObjectKey { kind, namespace, name });
            }
        }
    }

    /// Returns the zone in which a node is listed: that of its Node, or else that of its NMNode.
    fn zone_of(&self, name: &Name) -> Option<ZoneKey> {
        let own = self.nodes.get(name).map(|node| &node.zone);
        own.or_else(|| self.nm_nodes.get(name).map(|nm_node| &nm_node.zone)).cloned()
    }

    /// Applies a change. A node whose zone changes is appended to the list of its new zone.
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
}

fn is_owner(kind: ObjectKind) -> bool {
    use ObjectKind::{DaemonSet, ReplicaSet, ReplicationController, StatefulSet};
    matches!(kind, ReplicationController | ReplicaSet | StatefulSet | DaemonSet)
}

/// Returns whether the pod can be counted on a node.
fn has_uid_and_node(pod: &Pod) -> bool {
    !pod.uid.is_empty() && pod.node_name.as_ref().is_some_and(|node| !node.is_empty())
}
