//! The queue itself: the states of a pod, and the transitions between them.

use std::cmp::Ordering;
use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use crate::framework::{Framework, PluginInfo, PluginSet, Point, QueueingHints};
use crate::model::{Generation, Name, Pod, Timestamp, Uid};
use crate::snapshot::Cluster;

use super::backoff::QueueConfig;
use super::figures::{Cause, Incoming, QueueFigures};
use super::groups::Groups;
use super::heap::{Heap, Item, Order, Slot};
use super::in_flight::InFlight;
use super::moves::Move;
use super::pods::{Entry, Place, Pods, Pool};
use super::shards::Parked;

/// Why the queue refused an operation.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum QueueError {
    /// The pod has no uid.
    #[error("cannot queue pod {name:?} with empty uid")]
    EmptyUid {
        /// The pod's name.
        name: Name,
    },
    /// The pod belongs to another scheduler.
    #[error("pod {uid} is for scheduler {scheduler:?}, which has no profile in this queue")]
    OtherScheduler {
        /// The pod.
        uid: Uid,
        /// The scheduler that the pod names.
        scheduler: Name,
    },
    /// The dispatcher has not assigned the pod to this scheduler instance.
    #[error(
        "pod {uid} is not dispatched to scheduler {component:?}: it is queued once its annotations \
        pod-state and selected-scheduler name that scheduler"
    )]
    NotDispatched {
        /// The pod.
        uid: Uid,
        /// The name of this instance.
        component: Name,
    },
    /// The pod was returned without having been popped.
    #[error("pod {uid} is already present in the {} queue", place.as_str())]
    AlreadyQueued {
        /// The pod.
        uid: Uid,
        /// The pod's current place.
        place: Place,
    },
    /// The queue was given no framework.
    #[error("a queue needs the framework of at least one profile")]
    NoProfile,
    /// A profile has no queue sort plugin.
    #[error("no queue sort plugin is enabled for scheduler {scheduler:?}: give its framework one")]
    NoQueueSort {
        /// The scheduler name of the profile.
        scheduler: Name,
    },
    /// Two profiles use different queue sort plugins.
    #[error(
        "scheduler {scheduler:?} sorts the queue by plugin {other:?}, and the first profile by \
         {sorts:?}: give all profiles of a queue the same queue sort plugin"
    )]
    OtherQueueSort {
        /// The scheduler name of the profile.
        scheduler: Name,
        /// The queue sort plugin of the first profile.
        sorts: &'static str,
        /// The queue sort plugin of this profile.
        other: &'static str,
    },
    /// The queue does not know the pod.
    #[error("pod {uid} is not in the scheduling queue: add it first")]
    NotFound {
        /// The pod.
        uid: Uid,
    },
}

/// Decides which pods are tried, in which order, and when they are retried (backend/queue/scheduling_queue.go
/// `PriorityQueue`).
///
/// The queue belongs to one thread: it holds no lock, reads no clock and loads no version by itself.
/// [`QueueFront`](super::QueueFront) shares it between threads.
pub struct SchedulingQueue {
    pub(super) profiles: Vec<Profile>,
    pub(super) config: QueueConfig,
    pub(super) pods: Pods,
    active: Heap,
    backoff: Heap,
    error_backoff: Heap,
    pub(super) pool: Pool,
    pub(super) gated: Pool,
    pub(super) in_flight: InFlight,
    binding: usize,
    /// Events that were taken in and are not fully processed.
    pub(super) backlog: VecDeque<Move>,
    /// Counts the events whose processing has begun.
    pub(super) begun: u64,
    /// The generation of the last event that was taken in.
    pub(super) generation: Generation,
    arrivals: u64,
    /// Whether the queue sort plugin has returned a key for every pod.
    keyed: bool,
    incoming: Incoming,
    /// When pods that waited for too long are searched next.
    pub(super) next_leftover: Option<Timestamp>,
    /// Whether any profile schedules the pods of a group together.
    pub(super) has_groups: bool,
    pub(super) groups: Groups,
    /// The pods of other shards, if pods are shared by shards.
    pub(super) parked: Option<Parked>,
    /// The scheduler instance that the queue serves. If unset, the engine's configuration names it.
    pub(super) component: Option<Name>,
}

/// A framework and the scheduler name of its pods.
pub(super) struct Profile {
    name: Name,
    pub(super) framework: Arc<Framework>,
    pub(super) hints: QueueingHints,
    /// The PreEnqueue plugins, which may gate pods.
    pub(super) gates: PluginSet,
    /// The PreEnqueue plugins that gate pods by the status of their group.
    pub(super) group_gates: PluginSet,
    /// Whether the pods of a group are popped together.
    pub(super) has_groups: bool,
}

impl Profile {
    fn new(name: Name, framework: Arc<Framework>) -> Profile {
        let infos = || framework.infos_at(Point::PreEnqueue);
        let gates = framework.plugin_set(infos().map(PluginInfo::name));
        let group_plugins = infos().filter(|info| info.gathers_groups);
        let group_gates = framework.plugin_set(group_plugins.map(PluginInfo::name));
        let has_groups = framework.gathers_groups();
        let hints = QueueingHints::new(&framework);
        Profile { name, hints, framework, gates, group_gates, has_groups }
    }
}

/// Orders pods by the queue sort plugin, and equal pods by arrival.
struct Sort<'a> {
    framework: &'a Framework,
    keyed: bool,
    entries: &'a [Option<Entry>],
}

impl Order for Sort<'_> {
    fn compare(&self, one: &Item, other: &Item) -> Ordering {
        let by_plugin = || match self.keyed {
            true => one.key.cmp(&other.key),
            false => {
                let queued = |slot: Slot| self.entries.get(slot as usize)?.as_ref();
                match (queued(one.slot), queued(other.slot)) {
                    (Some(one), Some(other)) => self.framework.compare(&one.queued, &other.queued),
                    _ => Ordering::Equal,
                }
            }
        };
        let by_expiry = one.expires.cmp(&other.expires);
        by_expiry.then_with(by_plugin).then(one.arrival.cmp(&other.arrival))
    }
}

impl SchedulingQueue {
    /// Creates a queue with one framework for all pods, whatever scheduler they name. If the framework has no queue
    /// sort plugin, pods are tried in the order of their arrival.
    #[must_use]
    pub fn new(framework: impl Into<Arc<Framework>>, config: QueueConfig) -> SchedulingQueue {
        SchedulingQueue::from_profiles(vec![Profile::new("".into(), framework.into())], config)
    }

    /// Creates a queue with several frameworks, each for the pods that name its scheduler. All frameworks must share a
    /// handle, because the queue uses the first one's. The framework with an empty name serves the pods that name none
    /// of the other schedulers.
    ///
    /// # Errors
    ///
    /// There is no profile, or the profiles do not all have exactly one queue sort plugin, the same in each.
    pub fn with_profiles(
        profiles: impl IntoIterator<Item = (Name, Arc<Framework>)>,
        config: QueueConfig,
    ) -> Result<SchedulingQueue, QueueError> {
        let profiles = profiles.into_iter().map(|(name, framework)| Profile::new(name, framework));
        let profiles: Vec<Profile> = profiles.collect();
        let sort = |profile: &Profile| {
            profile.framework.infos_at(Point::QueueSort).next().map(PluginInfo::name)
        };
        let first = profiles.first().ok_or(QueueError::NoProfile)?;
        for profile in &profiles {
            let scheduler = || profile.name.clone();
            match (sort(first), sort(profile)) {
                (_, None) => return Err(QueueError::NoQueueSort { scheduler: scheduler() }),
                (Some(sorts), Some(other)) if sorts != other => {
                    return Err(QueueError::OtherQueueSort {
                        scheduler: scheduler(),
                        sorts,
                        other,
                    });
                }
                _ => {}
            }
        }
        Ok(SchedulingQueue::from_profiles(profiles, config))
    }

    fn from_profiles(profiles: Vec<Profile>, config: QueueConfig) -> SchedulingQueue {
        SchedulingQueue {
            has_groups: profiles.iter().any(|profile| profile.has_groups),
            groups: Groups::default(),
            profiles,
            config,
            pods: Pods::default(),
            active: Heap::default(),
            backoff: Heap::default(),
            error_backoff: Heap::default(),
            pool: Pool::default(),
            gated: Pool::default(),
            in_flight: InFlight::default(),
            binding: 0,
            backlog: VecDeque::new(),
            begun: 0,
            generation: Generation::ZERO,
            arrivals: 0,
            keyed: true,
            incoming: Incoming::default(),
            next_leftover: None,
            parked: None,
            component: None,
        }
    }

    /// Restricts an empty queue to the pods of the named scheduler instance. By default the queue serves
    /// [`GodelConfig::component`](crate::cache::GodelConfig::component).
    #[doc(hidden)]
    #[must_use]
    pub fn with_component(mut self, component: impl Into<Name>) -> SchedulingQueue {
        self.component = Some(component.into());
        self
    }

    /// Returns the name of the queue's scheduler instance if the dispatcher has not assigned the pod to it, and `None`
    /// otherwise.
    pub(super) fn not_dispatched<'a>(
        &'a self,
        pod: &Pod,
        cluster: &'a Cluster,
    ) -> Option<&'a Name> {
        let godel = cluster.godel();
        let component = self.component.as_ref().or(godel?.component.as_ref())?;
        let is_for = godel.is_none_or(|godel| pod.is_for(&godel.scheduler_type));
        (!is_for || !pod.is_dispatched_to(component)).then_some(component)
    }

    /// Counts the pods in each place. O(1).
    #[must_use]
    pub fn figures(&self) -> QueueFigures {
        QueueFigures {
            active: self.active.len(),
            backoff: self.backoff.len() + self.error_backoff.len(),
            unschedulable: self.pool.len(),
            gated: self.gated.len(),
            in_flight: self.in_flight.len(),
            binding: self.binding,
            in_flight_events: self.in_flight.events(),
            backlog: self.backlog.len(),
        }
    }

    /// Returns how many pods have entered each queue since the start, by the cause that brought them there.
    #[doc(hidden)]
    pub fn incoming(&self) -> impl Iterator<Item = (Cause, Place, u64)> {
        self.incoming.iter()
    }

    /// Returns the place of a pod, or `None` if the queue does not know it.
    #[must_use]
    pub fn place(&self, uid: &Uid) -> Option<Place> {
        self.pods.get(self.pods.find(uid)?).map(|entry| entry.place)
    }

    /// Returns a pod with its queueing state.
    #[must_use]
    pub fn get(&self, uid: &Uid) -> Option<&crate::framework::QueuedPod> {
        self.pods.get(self.pods.find(uid)?).map(|entry| &entry.queued)
    }

    /// Returns the latest object of a pod, or `None` if the pod is unknown or deleted.
    pub(crate) fn latest(&self, uid: &Uid) -> Option<&Pod> {
        let entry = self.pods.get(self.pods.find(uid)?).filter(|entry| !entry.deleted)?;
        Some(&entry.queued.pod)
    }

    /// Iterates over the pods in one place, in no particular order. O(largest number of pods ever queued).
    #[doc(hidden)]
    pub fn pods_in(&self, place: Place) -> impl Iterator<Item = &Pod> {
        let slots: Box<dyn Iterator<Item = Slot> + '_> = match place {
            Place::Active => Box::new(self.active.slots()),
            Place::Backoff => Box::new(self.backoff.slots()),
            Place::ErrorBackoff => Box::new(self.error_backoff.slots()),
            Place::Unschedulable => Box::new(self.pool.slots()),
            Place::Gated => Box::new(self.gated.slots()),
            Place::InFlight | Place::Binding => Box::new(0..self.pods.slot_bound()),
        };
        let entries = slots.filter_map(|slot| self.pods.get(slot));
        entries.filter(move |entry| entry.place == place).map(|entry| &entry.queued.pod)
    }

    /// Returns the index of the pod's profile.
    pub(super) fn profile_of(&self, pod: &Pod) -> Option<usize> {
        let wanted = pod.scheduler_name();
        let named = self.profiles.iter().position(|profile| *profile.name == *wanted);
        named.or_else(|| self.profiles.iter().position(|profile| profile.name.is_empty()))
    }

    /// Returns the next arrival number.
    pub(super) fn arrival(&mut self) -> u64 {
        self.arrivals += 1;
        self.arrivals
    }

    /// Removes a pod from its current place. The caller must then enter it into another place or remove it from the
    /// queue.
    pub(super) fn leave(&mut self, slot: Slot) {
        let Some(place) = self.pods.get(slot).map(|entry| entry.place) else { return };
        self.count_place(slot, place, -1);
        let framework = &*self.profiles[0].framework;
        match place {
            Place::InFlight => return self.in_flight.remove(slot, &mut self.pods),
            Place::Binding => {
                self.binding -= 1;
                return;
            }
            _ => {}
        }
        let keyed = self.keyed;
        let (entries, positions) = self.pods.split();
        let at = positions[slot as usize] as usize;
        let sort = Sort { framework, keyed, entries };
        match place {
            Place::Active => self.active.remove(at, positions, &sort),
            Place::Backoff => self.backoff.remove(at, positions, &sort),
            Place::ErrorBackoff => self.error_backoff.remove(at, positions, &sort),
            Place::Gated => self.gated.remove(at, positions),
            _ => self.pool.remove(at, positions),
        }
    }

    /// Enters a pod that is in no place into `place`.
    pub(super) fn enter(&mut self, slot: Slot, place: Place) {
        self.count_place(slot, place, 1);
        let framework = &*self.profiles[0].framework;
        let Some(entry) = self.pods.get_mut(slot) else { return };
        entry.place = place;
        entry.joined = self.begun;
        match place {
            Place::InFlight => return self.in_flight.push(slot, &mut self.pods),
            Place::Binding => {
                self.binding += 1;
                return;
            }
            Place::Unschedulable => return self.pool.push(slot, &mut self.pods.positions),
            Place::Gated => return self.gated.push(slot, &mut self.pods.positions),
            Place::Active | Place::Backoff | Place::ErrorBackoff => {}
        }
        let expires = match place {
            Place::Active => None,
            _ => entry.queued.backoff_expiration,
        };
        let key = framework.sort_key(&entry.queued);
        // Keys are comparable only if every pod has one, so a single pod without a key disables them.
        self.keyed &= key.is_some();
        let item = Item {
            expires: expires.map_or(0, |at| at.0),
            key: key.unwrap_or_default(),
            arrival: entry.arrival,
            slot,
        };
        let keyed = self.keyed;
        let (entries, positions) = self.pods.split();
        let sort = Sort { framework, keyed, entries };
        match place {
            Place::Active => self.active.push(item, positions, &sort),
            Place::Backoff => self.backoff.push(item, positions, &sort),
            _ => self.error_backoff.push(item, positions, &sort),
        }
    }

    /// Removes and returns the pod to be tried next. If no pod is active and the configuration allows it, takes the
    /// first pod in backoff, but never one that failed with an error.
    pub(super) fn take_first(&mut self) -> Option<Slot> {
        let from_backoff = self.config.pop_from_backoff;
        let framework = &*self.profiles[0].framework;
        let keyed = self.keyed;
        let (entries, positions) = self.pods.split();
        let sort = Sort { framework, keyed, entries };
        let active = self.active.pop(positions, &sort);
        let backoff = || from_backoff.then(|| self.backoff.pop(positions, &sort)).flatten();
        let slot = active.or_else(backoff)?;
        let place = self.pods.get(slot)?.place;
        self.count_place(slot, place, -1);
        Some(slot)
    }

    /// Returns whether a pod can be popped now.
    pub(super) fn is_ready(&self) -> bool {
        self.active.len() > 0 || (self.config.pop_from_backoff && self.backoff.len() > 0)
    }

    /// Returns a pod of either backoff heap whose backoff is over, if there is one.
    pub(super) fn backed_off(&self, now: Timestamp) -> Option<Slot> {
        let over = |heap: &Heap| {
            let first = heap.first()?;
            (!self.config.is_ahead(Timestamp(first.expires), now)).then_some(first.slot)
        };
        over(&self.backoff).or_else(|| over(&self.error_backoff))
    }

    /// Returns when the next pod's backoff is over.
    pub(super) fn next_backed_off(&self) -> Option<Timestamp> {
        let first = [self.backoff.first(), self.error_backoff.first()].into_iter().flatten();
        first.map(|item| self.config.end(Timestamp(item.expires))).min()
    }

    pub(super) fn count_incoming(&mut self, cause: Cause, place: Place) {
        self.incoming.count(cause, place);
    }
}

impl fmt::Debug for SchedulingQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SchedulingQueue").field("figures", &self.figures()).finish_non_exhaustive()
    }
}
