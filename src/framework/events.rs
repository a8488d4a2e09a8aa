//! Events that may make a rejected pod schedulable, and the plugins' interest in them (k8s.io/kube-scheduler/framework
//! `ClusterEvent`, framework/events.go).
//!
//! A plugin registers for events as resources and sets of actions. An event that occurs is more specific: it has one
//! action, and its pod is either assigned or not. The actions of an update are determined by comparing the object
//! before and after, as in `NodeSchedulingPropertiesChange` and `PodSchedulingPropertiesChange`. The engine does not
//! store conditions and annotations of nodes, so no event reports changes to them; no plugin of kube-scheduler
//! registers for these.

use std::fmt;
use std::ops::BitOr;
use std::sync::Arc;

use crate::model::{
    Change, CustomEvent, Diff, Node, Object, ObjectKind, Pod, Resources, object_kinds,
};
use crate::snapshot::Store;

macro_rules! define_resources {
    ($(
        $kind:ident $name:literal $doc:literal
        $(object($scope:ident) $type:ident in $field:ident $stores:literal)?
        $(workload $workload:ident in $workloads:ident $kept:literal)?
        $(part $part:ident)?;
    )*) => {
        /// The kind of object that an event changes (`EventResource`).
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[non_exhaustive]
        pub enum EventResource {
            /// A pod that is assigned to a node.
            AssignedPod,
            /// A pod that is not assigned to a node.
            UnscheduledPod,
            /// A node.
            Node,
            $(
                $(
                    #[doc = $doc]
                    $type,
                )?
                $(
                    #[doc = $doc]
                    $part,
                )?
            )*
            /// A ReplicationController, ReplicaSet, StatefulSet or DaemonSet.
            Workload,
            /// A user-defined store, changed by one of its own events: [`ClusterEvent::custom`]. The action is
            /// [`Actions::UPDATE_OTHER`].
            Custom,
        }

        impl EventResource {
            /// All resources in the order of their numbers.
            pub const ALL: [EventResource; EventResource::Custom as usize + 1] = [
                EventResource::AssignedPod,
                EventResource::UnscheduledPod,
                EventResource::Node,
                $($(EventResource::$type,)? $(EventResource::$part,)?)*
                EventResource::Workload,
                EventResource::Custom,
            ];

            /// Returns the resource's name in kube-scheduler.
            #[must_use]
            pub fn as_str(self) -> &'static str {
                match self {
                    EventResource::AssignedPod => "AssignedPod",
                    EventResource::UnscheduledPod => "UnscheduledPod",
                    EventResource::Node => "Node",
                    $($(EventResource::$type => $name,)? $(EventResource::$part => $name,)?)*
                    EventResource::Workload => "Workload",
                    EventResource::Custom => "Custom",
                }
            }

            fn of(kind: ObjectKind) -> EventResource {
                match kind {
                    $(
                        $(ObjectKind::$type => EventResource::$type,)?
                        $(ObjectKind::$part => EventResource::$part,)?
                        $(ObjectKind::$kind => EventResource::$workload,)?
                    )*
                }
            }
        }
    };
}

object_kinds!(define_resources);

impl EventResource {
    /// Assigned and unassigned pods (`Pod`).
    pub const PODS: &[EventResource] = &[EventResource::AssignedPod, EventResource::UnscheduledPod];
}

/// A set of actions (`ActionType`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Actions(u16);

impl Actions {
    /// No action.
    pub const NONE: Actions = Actions(0);
    /// The object was added.
    pub const ADD: Actions = Actions(1);
    /// The object was deleted.
    pub const DELETE: Actions = Actions(1 << 1);
    /// A node's allocatable resources changed.
    pub const UPDATE_NODE_ALLOCATABLE: Actions = Actions(1 << 2);
    /// A node's labels changed.
    pub const UPDATE_NODE_LABEL: Actions = Actions(1 << 3);
    /// A node's taints changed, or the node is no longer cordoned.
    pub const UPDATE_NODE_TAINT: Actions = Actions(1 << 4);
    /// A node's conditions changed.
    pub const UPDATE_NODE_CONDITION: Actions = Actions(1 << 5);
    /// A node's annotations changed.
    pub const UPDATE_NODE_ANNOTATION: Actions = Actions(1 << 6);
    /// A node's declared features changed.
    pub const UPDATE_NODE_DECLARED_FEATURE: Actions = Actions(1 << 7);
    /// A pod's labels changed.
    pub const UPDATE_POD_LABEL: Actions = Actions(1 << 8);
    /// A pod's requests decreased.
    pub const UPDATE_POD_SCALE_DOWN: Actions = Actions(1 << 9);
    /// A pod's number of tolerations changed. Tolerations can only be added.
    pub const UPDATE_POD_TOLERATION: Actions = Actions(1 << 10);
    /// A pod's last scheduling gate was removed.
    pub const UPDATE_POD_SCHEDULING_GATES_ELIMINATED: Actions = Actions(1 << 11);
    /// The resource claims generated for a pod changed.
    pub const UPDATE_POD_GENERATED_RESOURCE_CLAIM: Actions = Actions(1 << 12);
    /// An update that no other action describes. Only plugins that register for all updates receive it.
    pub const UPDATE_OTHER: Actions = Actions(1 << 13);
    /// All updates.
    pub const UPDATE: Actions = Actions(0x3ffc);
    /// All actions.
    pub const ALL: Actions = Actions(0x3fff);

    /// The number of actions.
    pub const COUNT: usize = 14;

    /// Returns whether the set contains all actions of `other`.
    #[must_use]
    pub const fn contains(self, other: Actions) -> bool {
        self.0 & other.0 == other.0
    }

    /// Returns the union of the sets.
    #[must_use]
    pub const fn or(self, other: Actions) -> Actions {
        Actions(self.0 | other.0)
    }

    /// Returns whether the set is empty.
    #[must_use]
    pub(crate) const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Iterates over the actions, each as a set of one.
    pub(crate) fn iter(self) -> impl Iterator<Item = Actions> {
        (0..Actions::COUNT).map(|at| Actions(1 << at)).filter(move |one| self.contains(*one))
    }

    /// Returns the number of the first action.
    pub(crate) fn index(self) -> usize {
        (self.0.trailing_zeros() as usize).min(Actions::COUNT - 1)
    }

    fn when(self, holds: bool) -> Actions {
        if holds { self } else { Actions::NONE }
    }
}

impl BitOr for Actions {
    type Output = Actions;

    fn bitor(self, other: Actions) -> Actions {
        self.or(other)
    }
}

impl fmt::Display for Actions {
    /// Formats the actions as kube-scheduler does, separated by `|`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const NAMES: [&str; Actions::COUNT] = [
            "Add",
            "Delete",
            "UpdateNodeAllocatable",
            "UpdateNodeLabel",
            "UpdateNodeTaint",
            "UpdateNodeCondition",
            "UpdateNodeAnnotation",
            "UpdateNodeDeclaredFeature",
            "UpdatePodLabel",
            "UpdatePodScaleDown",
            "UpdatePodToleration",
            "UpdatePodSchedulingGatesEliminated",
            "UpdatePodGeneratedResourceClaim",
            "Update",
        ];
        for (at, one) in self.iter().enumerate() {
            let separator = if at == 0 { "" } else { "|" };
            write!(f, "{separator}{}", NAMES[one.index()])?;
        }
        Ok(())
    }
}

/// Events that a plugin registers for, because they may make a pod schedulable that it rejected
/// (`ClusterEventWithHint`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interest {
    /// The resources.
    pub resources: &'static [EventResource],
    /// The actions on these resources.
    pub actions: Actions,
}

impl Interest {
    /// All events: the default for plugins that do not register (`UnrollWildCardResource`).
    pub const EVERYTHING: &[Interest] =
        &[Interest { resources: &EventResource::ALL, actions: Actions::ALL }];
}

/// Whether an event may make a pod schedulable, according to a plugin that rejected it (`QueueingHint`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hint {
    /// The event may help: the pod is requeued.
    Queue,
    /// The event does not help.
    Skip,
}

impl Hint {
    /// Returns `Queue` if `holds` is true, and `Skip` otherwise.
    #[must_use]
    pub fn queue_if(holds: bool) -> Hint {
        if holds { Hint::Queue } else { Hint::Skip }
    }
}

/// One change of one object (`ClusterEvent`).
#[derive(Clone, Copy, Debug)]
pub struct ClusterEvent<'a> {
    /// The kind of the object.
    pub resource: EventResource,
    /// The change: a single action.
    pub action: Actions,
    /// The changed object, before and after.
    pub change: &'a Change,
}

impl<'a> ClusterEvent<'a> {
    /// Iterates over the events that correspond to a change: one event, or one for each changed property if a pod or
    /// node was updated. An update of a node without such a property causes no event; an update of a pod is then
    /// [`Actions::UPDATE_OTHER`].
    pub fn of(change: &'a Change) -> impl Iterator<Item = ClusterEvent<'a>> + use<'a> {
        let (resource, actions) = match change {
            Change::Pod(diff) => {
                (pod_resource(diff), actions(diff, |old, new| pod_updates(old, new)))
            }
            Change::Node(diff) => {
                (EventResource::Node, actions(diff, |old, new| node_updates(old, new)))
            }
            Change::Object(diff) => (
                diff.last().map_or(EventResource::Namespace, |o| EventResource::of(o.kind())),
                actions(diff, |_, _| Actions::UPDATE_OTHER),
            ),
            Change::Custom(_) => (EventResource::Custom, Actions::UPDATE_OTHER),
        };
        actions.iter().map(move |action| ClusterEvent { resource, action, change })
    }

    /// Returns the pod before and after if the event concerns a pod.
    #[must_use]
    pub fn pod(&self) -> Option<&'a Diff<Arc<Pod>>> {
        match self.change {
            Change::Pod(diff) => Some(diff),
            _ => None,
        }
    }

    /// Returns the node before and after if the event concerns a node.
    #[must_use]
    pub fn node(&self) -> Option<&'a Diff<Arc<Node>>> {
        match self.change {
            Change::Node(diff) => Some(diff),
            _ => None,
        }
    }

    /// Returns the event of a user-defined store if that is what changed.
    #[must_use]
    pub fn custom<S: Store>(&self) -> Option<&'a S::Event> {
        self.any_custom()?.event::<S>()
    }

    /// Returns the event of any user-defined store.
    pub(crate) fn any_custom(&self) -> Option<&'a CustomEvent> {
        match self.change {
            Change::Custom(event) => Some(event),
            _ => None,
        }
    }

    /// Returns the object before and after if the event concerns an object of another kind.
    #[must_use]
    pub(crate) fn object(&self) -> (Option<&'a Object>, Option<&'a Object>) {
        match self.change {
            Change::Object(diff) => (diff.old.as_ref(), diff.new.as_ref()),
            _ => (None, None),
        }
    }
}

impl fmt::Display for ClusterEvent<'_> {
    /// Formats the event like the labels of kube-scheduler's metrics: `NodeAdd`, `AssignedPodDelete`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.resource.as_str(), self.action)
    }
}

fn actions<T>(diff: &Diff<T>, updates: impl Fn(&T, &T) -> Actions) -> Actions {
    match (&diff.old, &diff.new) {
        (None, None) => Actions::NONE,
        (None, Some(_)) => Actions::ADD,
        (Some(_), None) => Actions::DELETE,
        (Some(old), Some(new)) => updates(old, new),
    }
}

fn pod_resource(diff: &Diff<Arc<Pod>>) -> EventResource {
    let assigned = diff.last().and_then(|pod| pod.node_name.as_ref());
    match assigned.is_some_and(|node| !node.is_empty()) {
        true => EventResource::AssignedPod,
        false => EventResource::UnscheduledPod,
    }
}

/// Returns the actions of a node update (`NodeSchedulingPropertiesChange`).
fn node_updates(old: &Node, new: &Node) -> Actions {
    let allocatable = (&old.allocatable, old.allowed_pods) != (&new.allocatable, new.allowed_pods);
    let uncordoned = old.unschedulable && !new.unschedulable;
    Actions::UPDATE_NODE_ALLOCATABLE.when(allocatable)
        | Actions::UPDATE_NODE_LABEL.when(old.labels != new.labels)
        | Actions::UPDATE_NODE_TAINT.when(uncordoned || old.taints != new.taints)
        | Actions::UPDATE_NODE_DECLARED_FEATURE.when(old.declared_features != new.declared_features)
}

/// Returns the actions of a pod update (`PodSchedulingPropertiesChange`).
fn pod_updates(old: &Pod, new: &Pod) -> Actions {
    let generated = old.claim_statuses != new.claim_statuses;
    let (old, new) = (&old.template, &new.template);
    let ungated = new.scheduling_gates.is_empty() && !old.scheduling_gates.is_empty();
    let scaled_down = is_less(&new.resources.placed, &old.resources.placed);
    let found = Actions::UPDATE_POD_LABEL.when(old.labels != new.labels)
        | Actions::UPDATE_POD_SCALE_DOWN.when(scaled_down)
        | Actions::UPDATE_POD_TOLERATION.when(old.tolerations.len() != new.tolerations.len())
        | Actions::UPDATE_POD_SCHEDULING_GATES_ELIMINATED.when(ungated)
        | Actions::UPDATE_POD_GENERATED_RESOURCE_CLAIM.when(generated);
    if found.is_empty() { Actions::UPDATE_OTHER } else { found }
}

/// Returns whether any resource decreased or was removed.
fn is_less(new: &Resources, old: &Resources) -> bool {
    new.cpu < old.cpu
        || new.memory < old.memory
        || new.ephemeral_storage < old.ephemeral_storage
        || old.scalars.iter().any(|(name, was)| new.scalars.get(name).is_none_or(|is| is < was))
}
