//! What a pod's annotations say to Gödel's schedulers, dispatcher and binder
//! (`godel.bytedance.com/…`): which state the pod is in, and what it reserves,
//! uses or preempts.
//!
//! Only what is read is kept, and in the template: pods without such annotations
//! pay a null pointer a template. Annotations that name one pod (a node, a
//! placeholder, victims) give that pod a template of its own while it has them.

use std::fmt;

use super::{Name, OwnerReference, Pod, PodSpec, Template, Uid};

/// Where a pod is on its way through dispatcher, scheduler and binder
/// (util/pod/podstate.go).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum PodState {
    /// No scheduler has it yet.
    Pending,
    /// The dispatcher has given it to a scheduler.
    Dispatched,
    /// A scheduler has placed it, or nominated it to a node where others have to go
    /// first; the binder has not decided yet. It counts on that node.
    Assumed,
    /// It names its node.
    Bound,
}

impl PodState {
    /// As the annotation `pod-state` says it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            PodState::Pending => "pending",
            PodState::Dispatched => "dispatched",
            PodState::Assumed => "assumed",
            PodState::Bound => "bound",
        }
    }
}

impl fmt::Display for PodState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Annotations of an unbound pod that are together no state: Gödel's dispatcher
/// resets such a pod. Until then it is on no node.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum AbnormalPodState {
    /// A state that there is none of.
    #[error("pod-state {0:?} is none of pending, dispatched, assumed")]
    Unknown(Name),
    /// Pending, with a scheduler.
    #[error("a pending pod has no selected-scheduler")]
    PendingWithScheduler,
    /// Dispatched or assumed, without a scheduler.
    #[error("a pod that is {0} has a selected-scheduler")]
    WithoutScheduler(PodState),
    /// Pending or dispatched, with a node.
    #[error("a pod that is {0} has neither assumed-node nor nominated-node")]
    WithNode(PodState),
    /// Assumed, without a node.
    #[error("an assumed pod has an assumed-node or a nominated-node")]
    WithoutNode,
    /// Assumed on a node, and nominated to one.
    #[error("an assumed pod has not both an assumed-node and a nominated-node")]
    TwoNodes,
}

/// A node to which a pod goes once others are gone from there
/// (annotation `nominated-node`).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct NominatedNode {
    /// The node.
    pub node: Name,
    /// The pods that go.
    pub victims: Box<[Victim]>,
}

/// A pod that goes for another.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct Victim {
    /// Its namespace.
    pub namespace: Name,
    /// Its name.
    pub name: Name,
    /// Its uid.
    pub uid: Name,
}

/// The annotations of a pod that Gödel reads.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct GodelPod {
    /// `pod-state`; empty is pending.
    pub state: Name,
    /// `selected-scheduler`: the instance that is to place the pod, or did.
    pub selected_scheduler: Option<Name>,
    /// `assumed-node`.
    pub assumed_node: Option<Name>,
    /// `nominated-node`.
    pub nominated_node: Option<NominatedNode>,
    /// `reservation`: what the pod has on its node is kept for a successor when it
    /// goes.
    pub reserves: bool,
    /// `reservation-index`: the placeholder whose reservations the pod makes and
    /// uses, where it is not that of its owner.
    pub reservation_index: Option<Name>,
    /// `matched-reservation-placeholder`: the placeholder pod, as `namespace/name`,
    /// whose place this pod takes.
    pub matched_placeholder: Option<Name>,
    /// `reservation-placeholder`: it runs nothing and holds a place for another.
    pub is_placeholder: bool,
    /// `movement-name`: the movement whose suggestion the pod's node was.
    pub movement: Option<Name>,
    /// `request-template`: what owns the pod where no workload does.
    pub request_template: Option<Name>,
}

impl GodelPod {
    /// The annotations that say this of which place or movement a pod goes by, with their
    /// values: what a binder writes to the pod's object.
    ///
    /// ```
    /// use portolan::model::GodelPod;
    ///
    /// let godel = GodelPod { movement: Some("m".into()), ..GodelPod::default() };
    /// let written: Vec<_> = godel.annotations().collect();
    /// assert_eq!(written, [("godel.bytedance.com/movement-name", "m")]);
    /// ```
    pub fn annotations(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let place = self.matched_placeholder.as_deref();
        let place = place.map(|of| ("godel.bytedance.com/matched-reservation-placeholder", of));
        let movement = self.movement.as_deref();
        let movement = movement.map(|name| ("godel.bytedance.com/movement-name", name));
        place.into_iter().chain(movement)
    }

    /// The same of a bound pod: who placed it and where is over then, and pods of
    /// one workload are alike again. None where nothing is left.
    #[must_use]
    pub fn bound(self) -> Option<Box<GodelPod>> {
        let bound = GodelPod {
            state: Name::default(),
            selected_scheduler: None,
            assumed_node: None,
            ..self
        };
        (bound != GodelPod::default()).then(|| Box::new(bound))
    }

    /// Whether it says what [`GodelPod::bound`] leaves out.
    pub(crate) fn is_unbound(&self) -> bool {
        !self.state.is_empty() || self.selected_scheduler.is_some() || self.assumed_node.is_some()
    }

    fn state(&self) -> Result<PodState, AbnormalPodState> {
        let state = match &*self.state {
            "" | "pending" => PodState::Pending,
            "dispatched" => PodState::Dispatched,
            "assumed" => PodState::Assumed,
            _ => return Err(AbnormalPodState::Unknown(self.state.clone())),
        };
        let nodes = u8::from(self.assumed_node.is_some()) + u8::from(self.nominated_node.is_some());
        match (state, self.selected_scheduler.is_some(), nodes) {
            (PodState::Pending, true, _) => Err(AbnormalPodState::PendingWithScheduler),
            (PodState::Dispatched | PodState::Assumed, false, _) => {
                Err(AbnormalPodState::WithoutScheduler(state))
            }
            (PodState::Pending | PodState::Dispatched, _, 1..) => {
                Err(AbnormalPodState::WithNode(state))
            }
            (PodState::Assumed, _, 0) => Err(AbnormalPodState::WithoutNode),
            (PodState::Assumed, _, 2..) => Err(AbnormalPodState::TwoNodes),
            _ => Ok(state),
        }
    }
}

/// Whose pods a movement moves: a workload, a request template or a pod group.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct OwnerKey {
    /// Its kind.
    pub kind: Name,
    /// Its namespace.
    pub namespace: Name,
    /// Its name.
    pub name: Name,
    /// Its uid; empty for what has none.
    pub uid: Name,
}

impl fmt::Display for OwnerKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}/{}", self.kind, self.namespace, self.name, self.uid)
    }
}

impl PodSpec {
    /// The placeholder whose reservations pods of this template make and use: the
    /// reservation index, else the name of a controlling StatefulSetExtension,
    /// else the deployment, which the label `name` tells (`GetReservationPlaceholder`).
    #[must_use]
    pub fn reservation_placeholder(&self) -> Option<&str> {
        let index = self.godel.as_ref().and_then(|godel| godel.reservation_index.as_deref());
        let owner = || {
            let owner = self.owners.iter().find(|owner| owner.controller)?;
            (&*owner.kind == "StatefulSetExtension").then_some(&*owner.name)
        };
        let label = || self.labels.get("name");
        index.or_else(owner).or_else(label).filter(|placeholder| !placeholder.is_empty())
    }

    /// Whether, with such a pod gone, others take its room: it holds a place, or one is
    /// held for its successor, or the one that it took is held again.
    pub(crate) fn keeps_its_room(&self) -> bool {
        self.godel.as_ref().is_some_and(|godel| {
            let reserves = godel.reserves && self.reservation_placeholder().is_some();
            godel.is_placeholder || reserves || godel.matched_placeholder.is_some()
        })
    }

    /// Whether pods of this template hold places for others.
    #[must_use]
    pub fn is_placeholder(&self) -> bool {
        self.godel.as_ref().is_some_and(|godel| godel.is_placeholder)
    }

    /// Whose pods they are: a ReplicaSet's, StatefulSet's or StatefulSetExtension's,
    /// else a request template's, else a pod group's (`GetPodOwner`).
    #[must_use]
    pub fn owner_key(&self) -> Option<OwnerKey> {
        const KINDS: [&str; 3] = ["ReplicaSet", "StatefulSet", "StatefulSetExtension"];
        let key = |kind: &Name, name: &Name, uid: &Name| OwnerKey {
            kind: kind.clone(),
            namespace: self.namespace.clone(),
            name: name.clone(),
            uid: uid.clone(),
        };
        let of = |owner: &OwnerReference| key(&owner.kind, &owner.name, &owner.uid);
        let named = |kind: &str, name: &Name| key(&kind.into(), name, &Name::default());
        let owner = self.owners.iter().find(|owner| KINDS.contains(&&*owner.kind));
        let template = || self.godel.as_ref()?.request_template.as_ref();
        owner
            .map(of)
            .or_else(|| template().map(|name| named("RequestTemplate", name)))
            .or_else(|| self.scheduling_group.as_ref().map(|name| named("PodGroup", name)))
    }
}

impl Pod {
    /// Which state the pod is in. A pod without annotations is pending.
    ///
    /// # Errors
    ///
    /// Its annotations are together none.
    pub fn state(&self) -> Result<PodState, AbnormalPodState> {
        if self.node_name.as_ref().is_some_and(|node| !node.is_empty()) {
            return Ok(PodState::Bound);
        }
        self.template.godel.as_ref().map_or(Ok(PodState::Pending), |godel| godel.state())
    }

    /// The node that the pod counts on: its own, or the one that a scheduler has
    /// assumed or nominated it to.
    #[must_use]
    pub fn placed_on(&self) -> Option<&Name> {
        match self.state().ok()? {
            PodState::Bound => self.node_name.as_ref(),
            PodState::Assumed => {
                let godel = self.template.godel.as_ref()?;
                let nominated = godel.nominated_node.as_ref().map(|nominated| &nominated.node);
                godel.assumed_node.as_ref().or(nominated)
            }
            PodState::Pending | PodState::Dispatched => None,
        }
    }

    /// The pod that holds the place of this one when it is gone
    /// (`CreateReservationFakePod`): the same requests, ports and labels, of no group
    /// and no movement, with no share of NUMA nodes.
    #[must_use]
    pub fn to_placeholder(&self) -> Pod {
        let reservation_index = self.template.reservation_placeholder().map(Into::into);
        let godel = GodelPod { is_placeholder: true, reservation_index, ..GodelPod::default() };
        let mut spec = (**self.template).clone();
        spec.godel = Some(Box::new(godel));
        // It is no member that would let a group start.
        spec.scheduling_group = None;
        spec.micro_topology = None;
        spec.numa_binding = false;
        Pod {
            uid: Uid::new(&format!("{}-placeholder", self.uid)),
            name: format!("{}-placeholder", self.name).into(),
            template: Template::new(spec),
            nominated_node_name: None,
            deletion_time: None,
            ..self.clone()
        }
    }

    /// The pod's namespace and name, as placeholders are called by.
    #[must_use]
    pub fn key(&self) -> Name {
        format!("{}/{}", self.namespace(), self.name).into()
    }

    /// Whether the dispatcher has given the pod to the scheduler instance of this name
    /// (`DispatchedPodOfThisScheduler`).
    ///
    /// ```
    /// use portolan::model::{GodelPod, pod};
    ///
    /// let godel = GodelPod {
    ///     state: "dispatched".into(),
    ///     selected_scheduler: Some("scheduler-0".into()),
    ///     ..GodelPod::default()
    /// };
    /// let pod = pod("p").spec(|spec| spec.godel = Some(Box::new(godel))).build();
    /// assert!(pod.is_dispatched_to("scheduler-0") && !pod.is_dispatched_to("scheduler-1"));
    /// ```
    #[must_use]
    pub fn is_dispatched_to(&self, component: &str) -> bool {
        let godel = self.template.godel.as_ref();
        let selected = godel.and_then(|godel| godel.selected_scheduler.as_deref());
        selected == Some(component) && self.state() == Ok(PodState::Dispatched)
    }

    /// Whether schedulers of this type are to place the pod: it names them, the
    /// default scheduler or none.
    #[must_use]
    pub fn is_for(&self, scheduler_type: &str) -> bool {
        let named = self.template.scheduler_name.as_deref().unwrap_or_default();
        named.is_empty() || named == scheduler_type || named == "default-scheduler"
    }
}

#[cfg(test)]
mod tests {
    use super::super::pod;
    use super::*;

    fn annotated(change: impl FnOnce(&mut GodelPod)) -> Pod {
        let mut godel = GodelPod::default();
        change(&mut godel);
        pod("p").spec(|spec| spec.godel = Some(Box::new(godel))).build()
    }

    fn with(state: &str, scheduler: bool, assumed: bool, nominated: bool) -> Pod {
        annotated(|godel| {
            godel.state = state.into();
            godel.selected_scheduler = scheduler.then(|| "s".into());
            godel.assumed_node = assumed.then(|| "n1".into());
            let node = NominatedNode { node: "n2".into(), victims: Box::default() };
            godel.nominated_node = nominated.then_some(node);
        })
    }

    #[test]
    fn annotations_say_which_of_four_states_a_pod_is_in() {
        assert_eq!(pod("p").build().state(), Ok(PodState::Pending));
        assert_eq!(with("", false, false, false).state(), Ok(PodState::Pending));
        assert_eq!(with("pending", false, false, false).state(), Ok(PodState::Pending));
        assert_eq!(with("dispatched", true, false, false).state(), Ok(PodState::Dispatched));
        assert_eq!(with("assumed", true, true, false).state(), Ok(PodState::Assumed));
        assert_eq!(with("assumed", true, false, true).state(), Ok(PodState::Assumed));
        assert_eq!(with("nonsense", false, true, true).on("n").state(), Ok(PodState::Bound));
    }

    #[test]
    fn every_other_combination_is_named() {
        use AbnormalPodState as Abnormal;
        let of = |state, scheduler, assumed, nominated| {
            with(state, scheduler, assumed, nominated).state().unwrap_err()
        };
        assert_eq!(of("bound", false, false, false), Abnormal::Unknown("bound".into()));
        assert_eq!(of("", true, false, false), Abnormal::PendingWithScheduler);
        assert_eq!(of("", false, true, false), Abnormal::WithNode(PodState::Pending));
        assert_eq!(
            of("dispatched", false, false, false),
            Abnormal::WithoutScheduler(PodState::Dispatched)
        );
        assert_eq!(of("dispatched", true, false, true), Abnormal::WithNode(PodState::Dispatched));
        assert_eq!(
            of("assumed", false, true, false),
            Abnormal::WithoutScheduler(PodState::Assumed)
        );
        assert_eq!(of("assumed", true, false, false), Abnormal::WithoutNode);
        assert_eq!(of("assumed", true, true, true), Abnormal::TwoNodes);
    }

    #[test]
    fn a_pod_counts_on_its_node_or_where_a_scheduler_put_it() {
        let on = |pod: Pod| pod.placed_on().map(ToString::to_string);
        assert_eq!(on(with("assumed", true, true, false)).as_deref(), Some("n1"));
        assert_eq!(on(with("assumed", true, false, true)).as_deref(), Some("n2"));
        assert_eq!(on(with("assumed", true, true, false).on("n3")).as_deref(), Some("n3"));
        assert_eq!(on(with("dispatched", true, false, false)), None);
        assert_eq!(on(with("assumed", true, true, true)), None);
    }

    #[test]
    fn a_placeholder_is_called_by_index_extension_or_deployment() {
        let owner = |kind: &str, controller| OwnerReference {
            api_version: "v1".into(),
            kind: kind.into(),
            name: "owner".into(),
            uid: "u".into(),
            controller,
        };
        let of = |index: Option<&str>, owners: Vec<OwnerReference>| {
            let pod = pod("p").label("name", "deployment").spec(|spec| {
                let reservation_index = index.map(Into::into);
                spec.godel = Some(Box::new(GodelPod { reservation_index, ..Default::default() }));
                spec.owners = owners.into();
            });
            pod.build().template.reservation_placeholder().map(str::to_owned)
        };
        let extension = || vec![owner("StatefulSetExtension", true)];
        assert_eq!(of(Some("index"), extension()).as_deref(), Some("index"));
        assert_eq!(of(None, extension()).as_deref(), Some("owner"));
        assert_eq!(
            of(None, vec![owner("StatefulSetExtension", false)]).as_deref(),
            Some("deployment")
        );
        assert_eq!(of(None, vec![owner("ReplicaSet", true)]).as_deref(), Some("deployment"));
        assert_eq!(pod("p").build().template.reservation_placeholder(), None);
    }
}
