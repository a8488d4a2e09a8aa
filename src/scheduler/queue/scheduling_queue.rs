//! The queue itself: where a pod may be, and how it gets from one place to another.

use std::cmp::Ordering;
use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use crate::framework::{Framework, Plugin, PluginSet, Point, QueueingHints, Workflow};
use crate::model::{Generation, Name, Pod, Timestamp, Uid};
use crate::snapshot::Cluster;

use super::backoff::QueueConfig;
use super::figures::{Cause, Incoming, QueueFigures};
use super::groups::Groups;
use super::heap::{Heap, Item, Order, Slot};
use super::in_flight::InFlight;
use super::moves::Move;
use super::pods::{Entry, Place, Pods, Pool};

/// Why the queue did not do what it was asked to.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum QueueError {
    /// A pod without uid.
    #[error("cannot queue pod {name:?} with empty uid")]
    EmptyUid {
        /// Its name.
        name: Name,
    },
    /// A pod of another scheduler.
    #[error("pod {uid} is for scheduler {scheduler:?}, which this queue has no profile of")]
    OtherScheduler {
        /// The pod.
        uid: Uid,
        /// The scheduler that it names.
        scheduler: Name,
    },
    /// A pod of another workflow.
    #[error("pod {uid} is of another class or sub-cluster than those of this queue")]
    OtherWorkflow {
        /// The pod.
        uid: Uid,
    },
    /// A pod that the dispatcher has not given to this scheduler instance.
    #[error(
        "pod {uid} is not dispatched to scheduler {component:?}: it is queued once its \
         annotations pod-state and selected-scheduler say so"
    )]
    NotDispatched {
        /// The pod.
        uid: Uid,
        /// The name of this instance.
        component: Name,
    },
    /// A pod that comes back and was not popped.
    #[error("pod {uid} is already present in the {} queue", place.as_str())]
    AlreadyQueued {
        /// The pod.
        uid: Uid,
        /// Where it is.
        place: Place,
    },
    /// A queue without any framework.
    #[error("a queue needs the framework of at least one profile")]
    NoProfile,
    /// A profile has no plugin that sorts the queue.
    #[error("no queue sort plugin is enabled for scheduler {scheduler:?}: give its framework one")]
    NoQueueSort {
        /// The profile.
        scheduler: Name,
    },
    /// Two profiles sort the queue by different plugins.
    #[error(
        "scheduler {scheduler:?} sorts the queue by plugin {other:?}, and the first profile by \
         {sorts:?}: give all profiles of a queue the same queue sort plugin"
    )]
    OtherQueueSort {
        /// The profile.
        scheduler: Name,
        /// The first profile's plugin.
        sorts: &'static str,
        /// Its own.
        other: &'static str,
    },
    /// A pod that the queue does not know.
    #[error("pod {uid} is not in the scheduling queue: add it first")]
    NotFound {
        /// The pod.
        uid: Uid,
    },
}

/// Which pods are tried, in which order, and when again
/// (backend/queue/scheduling_queue.go `PriorityQueue`).
///
/// One thread's: it holds no lock, reads no clock and looks at no version by itself.
/// [`QueueFront`](super::QueueFront) shares it.
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
    /// Events that were taken in and are not acted on to the end.
    pub(super) backlog: VecDeque<Move>,
    /// How many events were begun to be acted on.
    pub(super) begun: u64,
    /// The last event that was taken in.
    pub(super) generation: Generation,
    arrivals: u64,
    /// Whether the plugin that sorts has a key for every pod.
    keyed: bool,
    incoming: Incoming,
    /// When pods that waited for too long are looked for.
    pub(super) next_leftover: Option<Timestamp>,
    /// Whether any profile keeps pods of a group together.
    pub(super) has_groups: bool,
    pub(super) groups: Groups,
    workflow: Option<Workflow>,
    /// The scheduler instance whose pods it takes, where the engine is not asked.
    pub(super) component: Option<Name>,
}

/// A framework, and the scheduler's name under which pods ask for it.
pub(super) struct Profile {
    name: Name,
    pub(super) framework: Arc<Framework>,
    pub(super) hints: QueueingHints,
    /// The plugins that may keep pods from queueing.
    pub(super) gates: PluginSet,
    /// Those of them that do so for groups.
    pub(super) group_gates: PluginSet,
    /// Whether pods of a group are handed out together.
    pub(super) has_groups: bool,
}

impl Profile {
    fn new(name: Name, framework: Arc<Framework>) -> Profile {
        let gates = framework.plugins_at(Point::PreEnqueue).map(|(plugin, _)| plugin.name());
        let gates = framework.plugin_set(gates);
        let of_groups = framework.plugins_at(Point::PreEnqueue).map(|(plugin, _)| plugin);
        let of_groups = of_groups.filter(|plugin| plugin.gathers_groups());
        let group_gates = framework.plugin_set(of_groups.map(Plugin::name));
        let has_groups = framework.gathers_groups();
        let hints = QueueingHints::new(&framework);
        Profile { name, hints, framework, gates, group_gates, has_groups }
    }
}

const DEFAULT_SCHEDULER: &str = "default-scheduler";

/// The order of the plugin that sorts; among equals the pod that queued first.
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
    /// A queue for pods of this one framework, whatever scheduler they name. If none of its
    /// plugins sorts queues, pods are tried in the order in which they arrive.
    #[must_use]
    pub fn new(framework: impl Into<Arc<Framework>>, config: QueueConfig) -> SchedulingQueue {
        SchedulingQueue::of(vec![Profile::new("".into(), framework.into())], config)
    }

    /// A queue for several frameworks, each under the name that pods ask for it by. All
    /// have to share a handle: the first one's is used. An empty name is for pods that ask
    /// for none of the others.
    ///
    /// # Errors
    ///
    /// There is no profile, or the plugins that sort queues differ: all profiles are to
    /// have exactly one, the same.
    pub fn with_profiles(
        profiles: impl IntoIterator<Item = (Name, Arc<Framework>)>,
        config: QueueConfig,
    ) -> Result<SchedulingQueue, QueueError> {
        let profiles = profiles.into_iter().map(|(name, of)| Profile::new(name, of));
        let profiles: Vec<Profile> = profiles.collect();
        let sort = |profile: &Profile| {
            let mut sorts = profile.framework.plugins_at(Point::QueueSort);
            sorts.next().map(|(plugin, _)| plugin.name())
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
        Ok(SchedulingQueue::of(profiles, config))
    }

    fn of(profiles: Vec<Profile>, config: QueueConfig) -> SchedulingQueue {
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
            workflow: None,
            component: None,
        }
    }

    /// The same, still empty, for the pods of a workflow alone.
    #[must_use]
    pub fn with_workflow(mut self, workflow: Workflow) -> SchedulingQueue {
        self.workflow = Some(workflow);
        self
    }

    /// The same, still empty, for the scheduler instance of this name. Without it the
    /// queue is that of [`GodelConfig::component`](crate::GodelConfig::component).
    #[must_use]
    pub fn with_component(mut self, component: impl Into<Name>) -> SchedulingQueue {
        self.component = Some(component.into());
        self
    }

    /// The name of the scheduler instance that the queue belongs to, if the dispatcher has
    /// not given the pod to that instance.
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

    /// Whether another workflow has the pod.
    pub(super) fn is_elsewhere(&self, pod: &Pod) -> bool {
        self.workflow.as_ref().is_some_and(|workflow| !workflow.serves(pod))
    }

    /// How many pods are where. O(1).
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

    /// How many pods came to which queue since the start, and what brought them.
    pub fn incoming(&self) -> impl Iterator<Item = (Cause, Place, u64)> {
        self.incoming.iter()
    }

    /// Where a pod is.
    #[must_use]
    pub fn place(&self, uid: &Uid) -> Option<Place> {
        self.pods.get(self.pods.find(uid)?).map(|entry| entry.place)
    }

    /// The pod as the queue knows it.
    #[must_use]
    pub fn get(&self, uid: &Uid) -> Option<&crate::framework::QueuedPod> {
        self.pods.get(self.pods.find(uid)?).map(|entry| &entry.queued)
    }

    /// The latest object of the pod; none if the pod is gone.
    pub(crate) fn latest(&self, uid: &Uid) -> Option<&Pod> {
        let entry = self.pods.get(self.pods.find(uid)?).filter(|entry| !entry.deleted)?;
        Some(&entry.queued.pod)
    }

    /// The pods in one place, in no particular order. O(pods that were ever there).
    pub fn pods_in(&self, place: Place) -> impl Iterator<Item = &Pod> {
        let slots: Box<dyn Iterator<Item = Slot> + '_> = match place {
            Place::Active => Box::new(self.active.slots()),
            Place::Backoff => Box::new(self.backoff.slots()),
            Place::ErrorBackoff => Box::new(self.error_backoff.slots()),
            Place::Unschedulable => Box::new(self.pool.slots()),
            Place::Gated => Box::new(self.gated.slots()),
            Place::InFlight | Place::Binding => Box::new(0..self.pods.most()),
        };
        let entries = slots.filter_map(|slot| self.pods.get(slot));
        entries.filter(move |entry| entry.place == place).map(|entry| &entry.queued.pod)
    }

    /// Which framework a pod is for.
    pub(super) fn profile_of(&self, pod: &Pod) -> Option<usize> {
        let asked = pod.template.scheduler_name.as_deref().unwrap_or(DEFAULT_SCHEDULER);
        let named = self.profiles.iter().position(|profile| *profile.name == *asked);
        named.or_else(|| self.profiles.iter().position(|profile| profile.name.is_empty()))
    }

    /// The next number in the order in which pods queue.
    pub(super) fn arrival(&mut self) -> u64 {
        self.arrivals += 1;
        self.arrivals
    }

    /// Takes a pod from where it is; where it goes is up to the caller.
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

    /// Puts a pod that is nowhere in a place.
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
        // One pod without a key, and no key is looked at any more.
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

    /// The pod to be tried next, taken from where it is: from backoff where no pod is
    /// active and that is allowed, never one that ended in an error.
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

    /// Whether a pod could be popped now.
    pub(super) fn is_ready(&self) -> bool {
        self.active.len() > 0 || (self.config.pop_from_backoff && self.backoff.len() > 0)
    }

    /// The pod of either backoff heap whose time is over, if there is one.
    pub(super) fn backed_off(&self, now: Timestamp) -> Option<Slot> {
        let over = |heap: &Heap| {
            let first = heap.first()?;
            (!self.config.is_ahead(Timestamp(first.expires), now)).then_some(first.slot)
        };
        over(&self.backoff).or_else(|| over(&self.error_backoff))
    }

    /// When the next pod's backoff is over.
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
