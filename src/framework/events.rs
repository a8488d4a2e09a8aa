//! Events that may make a rejected pod schedulable, as plugins register for them
//! (k8s.io/kube-scheduler/framework `ClusterEvent`, framework/events.go).
//!
//! A plugin names what it wants to be told of as a resource and a set of actions.
//! What happens is finer: each event has one action, and a pod is either assigned
//! or not. Which actions an update comes to follows from the object before and
//! after, as in `NodeSchedulingPropertiesChange` and `PodSchedulingPropertiesChange`.
//! Conditions and annotations of nodes are not kept by the engine, so no event says
//! that they changed; no plugin of kube-scheduler's asks for them.

use std::fmt;
use std::ops::BitOr;
use std::sync::Arc;

use crate::model::{Change, Diff, Node, Object, ObjectKind, Pod, Resources, object_kinds};
use crate::snapshot::Store;

macro_rules! define_resources {
    ($(
        $kind:ident $name:literal $doc:literal
        $(object($scope:ident) $type:ident in $field:ident $stores:literal)?
        $(workload $workload:ident in $workloads:ident $kept:literal)?
        $(part $part:ident)?;
    )*) => {
        /// What an event is about.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[non_exhaustive]
        pub enum EventResource {
            /// A pod that is on a node.
            AssignedPod,
            /// A pod that is on none.
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
            /// A store of a user's own, changed by an event of its own: [`ClusterEvent::custom`]. The action is
            /// [`Actions::UPDATE_OTHER`].
            Custom,
        }

        impl EventResource {
            /// All of them, in the order of their numbers.
            pub const ALL: [EventResource; EventResource::Custom as usize + 1] = [
                EventResource::AssignedPod,
                EventResource::UnscheduledPod,
                EventResource::Node,
                $($(EventResource::$type,)? $(EventResource::$part,)?)*
                EventResource::Workload,
                EventResource::Custom,
            ];

            /// As kube-scheduler writes it.
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
    /// Both kinds of pods (`Pod`).
    pub const PODS: &[EventResource] = &[EventResource::AssignedPod, EventResource::UnscheduledPod];
}

/// A set of actions (`ActionType`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Actions(u16);

impl Actions {
    /// None of them.
    pub const NONE: Actions = Actions(0);
    /// It appeared.
    pub const ADD: Actions = Actions(1);
    /// It is gone.
    pub const DELETE: Actions = Actions(1 << 1);
    /// What pods may take of a node.
    pub const UPDATE_NODE_ALLOCATABLE: Actions = Actions(1 << 2);
    /// A node's labels.
    pub const UPDATE_NODE_LABEL: Actions = Actions(1 << 3);
    /// A node's taints, or that it is no longer cordoned.
    pub const UPDATE_NODE_TAINT: Actions = Actions(1 << 4);
    /// A node's conditions.
    pub const UPDATE_NODE_CONDITION: Actions = Actions(1 << 5);
    /// A node's annotations.
    pub const UPDATE_NODE_ANNOTATION: Actions = Actions(1 << 6);
    /// The features that a node declares.
    pub const UPDATE_NODE_DECLARED_FEATURE: Actions = Actions(1 << 7);
    /// A pod's labels.
    pub const UPDATE_POD_LABEL: Actions = Actions(1 << 8);
    /// A pod requests less than before.
    pub const UPDATE_POD_SCALE_DOWN: Actions = Actions(1 << 9);
    /// A pod has another number of tolerations: they can only be added.
    pub const UPDATE_POD_TOLERATION: Actions = Actions(1 << 10);
    /// A pod's last scheduling gate is gone.
    pub const UPDATE_POD_SCHEDULING_GATES_ELIMINATED: Actions = Actions(1 << 11);
    /// The resource claims that were made for a pod.
    pub const UPDATE_POD_GENERATED_RESOURCE_CLAIM: Actions = Actions(1 << 12);
    /// An update that none of the above describes; only who asks for every
    /// update is told of it.
    pub const UPDATE_OTHER: Actions = Actions(1 << 13);
    /// Every update.
    pub const UPDATE: Actions = Actions(0x3ffc);
    /// Everything.
    pub const ALL: Actions = Actions(0x3fff);

    /// How many there are.
    pub const COUNT: usize = 14;

    /// Whether all of the other set are in this one.
    #[must_use]
    pub const fn contains(self, other: Actions) -> bool {
        self.0 & other.0 == other.0
    }

    /// Those in either.
    #[must_use]
    pub const fn or(self, other: Actions) -> Actions {
        Actions(self.0 | other.0)
    }

    /// Whether there is none.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Each action for itself.
    pub fn iter(self) -> impl Iterator<Item = Actions> {
        (0..Actions::COUNT).map(|at| Actions(1 << at)).filter(move |one| self.contains(*one))
    }

    /// The number of the first action.
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
    /// As kube-scheduler writes it.
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

/// What a plugin wants to be told of while a pod waits that it rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interest {
    /// These resources.
    pub resources: &'static [EventResource],
    /// These actions.
    pub actions: Actions,
}

impl Interest {
    /// Everything there is: what a plugin gets that names nothing
    /// (`UnrollWildCardResource`).
    pub const EVERYTHING: &[Interest] =
        &[Interest { resources: &EventResource::ALL, actions: Actions::ALL }];
}

/// Whether an event may make a pod schedulable, in the eyes of a plugin that
/// rejected it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hint {
    /// It may: the pod is to be tried again.
    Queue,
    /// It does not.
    Skip,
}

impl Hint {
    /// `Queue` where this holds.
    #[must_use]
    pub fn queue_if(holds: bool) -> Hint {
        if holds { Hint::Queue } else { Hint::Skip }
    }
}

/// One thing that happened to one object.
#[derive(Clone, Copy, Debug)]
pub struct ClusterEvent<'a> {
    /// What it is about.
    pub resource: EventResource,
    /// What happened: one action.
    pub action: Actions,
    /// The object before and after.
    pub change: &'a Change,
}

impl<'a> ClusterEvent<'a> {
    /// What a change comes to: one event, or for updates of pods and nodes one for
    /// each property that matters. An update of a node in which none does is no
    /// event, one of a pod is [`Actions::UPDATE_OTHER`].
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

    /// The pod that it is about, if it is one.
    #[must_use]
    pub fn pod(&self) -> Option<&'a Diff<Arc<Pod>>> {
        match self.change {
            Change::Pod(diff) => Some(diff),
            _ => None,
        }
    }

    /// The node that it is about, if it is one.
    #[must_use]
    pub fn node(&self) -> Option<&'a Diff<Arc<Node>>> {
        match self.change {
            Change::Node(diff) => Some(diff),
            _ => None,
        }
    }

    /// The event of a store of a user's own, if that is what happened.
    #[must_use]
    pub fn custom<S: Store>(&self) -> Option<&'a S::Event> {
        match self.change {
            Change::Custom(event) => event.event::<S>(),
            _ => None,
        }
    }

    /// The object of another kind that it is about, before and after.
    #[must_use]
    pub fn object(&self) -> (Option<&'a Object>, Option<&'a Object>) {
        match self.change {
            Change::Object(diff) => (diff.old.as_ref(), diff.new.as_ref()),
            _ => (None, None),
        }
    }
}

impl fmt::Display for ClusterEvent<'_> {
    /// As kube-scheduler labels its metrics: `NodeAdd`, `AssignedPodDelete`.
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

/// `NodeSchedulingPropertiesChange`.
fn node_updates(old: &Node, new: &Node) -> Actions {
    let allocatable = (&old.allocatable, old.allowed_pods) != (&new.allocatable, new.allowed_pods);
    let uncordoned = old.unschedulable && !new.unschedulable;
    Actions::UPDATE_NODE_ALLOCATABLE.when(allocatable)
        | Actions::UPDATE_NODE_LABEL.when(old.labels != new.labels)
        | Actions::UPDATE_NODE_TAINT.when(uncordoned || old.taints != new.taints)
        | Actions::UPDATE_NODE_DECLARED_FEATURE.when(old.declared_features != new.declared_features)
}

/// `PodSchedulingPropertiesChange`.
fn pod_updates(old: &Pod, new: &Pod) -> Actions {
    let (old, new) = (&old.template, &new.template);
    let ungated = new.scheduling_gates.is_empty() && !old.scheduling_gates.is_empty();
    let scaled_down = is_less(&new.resources.placed, &old.resources.placed);
    let found = Actions::UPDATE_POD_LABEL.when(old.labels != new.labels)
        | Actions::UPDATE_POD_SCALE_DOWN.when(scaled_down)
        | Actions::UPDATE_POD_TOLERATION.when(old.tolerations.len() != new.tolerations.len())
        | Actions::UPDATE_POD_SCHEDULING_GATES_ELIMINATED.when(ungated);
    if found.is_empty() { Actions::UPDATE_OTHER } else { found }
}

/// Whether any resource is less than it was, or named no more.
fn is_less(new: &Resources, old: &Resources) -> bool {
    new.cpu < old.cpu
        || new.memory < old.memory
        || new.ephemeral_storage < old.ephemeral_storage
        || old.scalars.iter().any(|(name, was)| new.scalars.get(name).is_none_or(|is| is < was))
}
