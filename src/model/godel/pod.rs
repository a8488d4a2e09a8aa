//! The annotations by which Gödel's schedulers, dispatcher and binder communicate through a pod
//! (`godel.bytedance.com/…`): the pod's state, and what it reserves, uses or preempts.
//!
//! Only the annotations that are read are stored, and they are stored in the template: a template without such
//! annotations pays one null pointer. Annotations that name a single pod (a node, a placeholder, victims) give that pod
//! a template of its own while they are set.

use std::fmt;

use crate::model::{
    DEFAULT_SCHEDULER, Launcher, Name, OwnerReference, Pod, PodSpec, Template, Uid,
};

/// The state of a pod on its way through dispatcher, scheduler and binder (util/pod/podstate.go).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub enum PodState {
    /// No scheduler has been selected yet.
    Pending,
    /// The dispatcher has assigned the pod to a scheduler.
    Dispatched,
    /// A scheduler has placed the pod, or has nominated it to a node whose victims must be removed first, and the
    /// binder has not decided yet. The pod is counted on that node.
    Assumed,
    /// The pod names its node.
    Bound,
}

impl PodState {
    /// Returns the value used in the annotation `pod-state`.
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

/// The annotations of an unbound pod form no valid state. Gödel's dispatcher resets such a pod; until then the pod is
/// on no node.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub enum AbnormalPodState {
    /// The state is not a known one.
    #[error("pod-state {0:?} is not one of pending, dispatched, assumed")]
    Unknown(Name),
    /// A pending pod has a scheduler.
    #[error("a pending pod must not have a selected-scheduler")]
    PendingWithScheduler,
    /// A dispatched or assumed pod has no scheduler.
    #[error("a pod in state {0} must have a selected-scheduler")]
    WithoutScheduler(PodState),
    /// A pending or dispatched pod has a node.
    #[error("a pod in state {0} must have neither assumed-node nor nominated-node")]
    WithNode(PodState),
    /// An assumed pod has no node.
    #[error("an assumed pod must have an assumed-node or a nominated-node")]
    WithoutNode,
    /// An assumed pod has both an assumed and a nominated node.
    #[error("an assumed pod must not have both an assumed-node and a nominated-node")]
    TwoNodes,
}

/// A node on which a pod can be placed once its victims are removed (annotation `nominated-node`).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct NominatedNode {
    /// The name of the node.
    pub node: Name,
    /// The pods to be preempted.
    pub victims: Box<[Victim]>,
}

/// A pod to be preempted for another.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct Victim {
    /// The namespace.
    pub namespace: Name,
    /// The name.
    pub name: Name,
    /// The uid.
    pub uid: Name,
}

/// The pod annotations that Gödel reads.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct GodelPod {
    /// `pod-state`; empty means pending.
    pub state: Name,
    /// `selected-scheduler`: the scheduler instance that is to place the pod, or has placed it.
    pub selected_scheduler: Option<Name>,
    /// `assumed-node`.
    pub assumed_node: Option<Name>,
    /// `nominated-node`.
    pub nominated_node: Option<NominatedNode>,
    /// `reservation`: when the pod is deleted, its resources on the node are reserved for a successor.
    pub reserves: bool,
    /// `reservation-index`: the placeholder whose reservations the pod creates and uses, if it differs from that of the
    /// pod's owner.
    pub reservation_index: Option<Name>,
    /// `matched-reservation-placeholder`: the placeholder pod, as `namespace/name`, whose reserved resources this pod
    /// uses.
    pub matched_placeholder: Option<Name>,
    /// `reservation-placeholder`: the pod runs nothing and reserves resources for another pod.
    pub is_placeholder: bool,
    /// `movement-name`: the movement that recommended the pod's node.
    pub movement: Option<Name>,
    /// `request-template`: the owner of a pod that belongs to no workload.
    pub request_template: Option<Name>,
    /// `pod-resource-type` has a value that is no class, and no QoS level overrides it
    /// ([`PodClass::is_known`](crate::model::PodClass::is_known)).
    pub has_unknown_class: bool,
}

impl GodelPod {
    /// Returns the annotations, with their values, that record the matched placeholder and the movement; a binder
    /// writes them to the pod's object.
    ///
    /// ```
    /// use portolan::model::GodelPod;
    ///
    /// let godel = GodelPod { movement: Some("m".into()), ..GodelPod::default() };
    /// let written: Vec<_> = godel.annotations().collect();
    /// assert_eq!(written, [("godel.bytedance.com/movement-name", "m")]);
    /// ```
    #[doc(hidden)]
    pub fn annotations(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let placeholder = self.matched_placeholder.as_deref();
        let placeholder =
            placeholder.map(|key| ("godel.bytedance.com/matched-reservation-placeholder", key));
        let movement = self.movement.as_deref();
        let movement = movement.map(|name| ("godel.bytedance.com/movement-name", name));
        placeholder.into_iter().chain(movement)
    }

    /// Removes the annotations that no longer apply once the pod is bound, namely the state, the selected scheduler,
    /// the assumed node and an unknown class, so that pods of one workload share a template again. Returns `None` if no
    /// annotation remains.
    #[must_use]
    pub fn bound(self) -> Option<Box<GodelPod>> {
        let bound = GodelPod {
            state: Name::default(),
            selected_scheduler: None,
            assumed_node: None,
            has_unknown_class: false,
            ..self
        };
        (bound != GodelPod::default()).then(|| Box::new(bound))
    }

    /// Returns `true` if the pod has an annotation that [`GodelPod::bound`] removes.
    pub(crate) fn is_unbound(&self) -> bool {
        !self.state.is_empty()
            || self.selected_scheduler.is_some()
            || self.assumed_node.is_some()
            || self.has_unknown_class
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

/// The owner whose pods a movement moves: a workload, a request template or a pod group.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct OwnerKey {
    /// The kind.
    pub kind: Name,
    /// The namespace.
    pub namespace: Name,
    /// The name.
    pub name: Name,
    /// The uid; empty if the owner has none.
    pub uid: Name,
}

impl fmt::Display for OwnerKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}/{}", self.kind, self.namespace, self.name, self.uid)
    }
}

impl PodSpec {
    /// Returns the placeholder whose reservations pods of this template create and use: the reservation index,
    /// otherwise the name of a controlling StatefulSetExtension, otherwise the name of the deployment from the label
    /// `name` (`GetReservationPlaceholder`).
    #[doc(hidden)]
    #[must_use]
    pub fn reservation_placeholder(&self) -> Option<&str> {
        let index = self.godel.as_ref().and_then(|godel| godel.reservation_index.as_deref());
        let owner = || {
            let owner = self.controller()?;
            (&*owner.kind == "StatefulSetExtension").then_some(&*owner.name)
        };
        let label = || self.labels.get("name");
        index.or_else(owner).or_else(label).filter(|placeholder| !placeholder.is_empty())
    }

    /// Returns `true` if deleting such a pod does not free its resources: the pod is a placeholder, reserves resources
    /// for a successor, or uses a reservation that becomes active again.
    pub(crate) fn keeps_its_room(&self) -> bool {
        self.godel.as_ref().is_some_and(|godel| {
            let reserves = godel.reserves && self.reservation_placeholder().is_some();
            godel.is_placeholder || reserves || godel.matched_placeholder.is_some()
        })
    }

    /// Returns `true` if pods of this template are placeholders.
    #[must_use]
    pub fn is_placeholder(&self) -> bool {
        self.godel.as_ref().is_some_and(|godel| godel.is_placeholder)
    }

    /// Returns the owner of the pods: a ReplicaSet, StatefulSet or StatefulSetExtension, otherwise a request template,
    /// otherwise a pod group (`GetPodOwner`).
    #[doc(hidden)]
    #[must_use]
    pub fn owner_key(&self) -> Option<OwnerKey> {
        const KINDS: [&str; 3] = ["ReplicaSet", "StatefulSet", "StatefulSetExtension"];
        let key = |kind: &Name, name: &Name, uid: &Name| OwnerKey {
            kind: kind.clone(),
            namespace: self.namespace.clone(),
            name: name.clone(),
            uid: uid.clone(),
        };
        let workload = |owner: &OwnerReference| key(&owner.kind, &owner.name, &owner.uid);
        let without_uid = |kind: &str, name: &Name| key(&kind.into(), name, &Name::default());
        let owner = self.owners.iter().find(|owner| KINDS.contains(&&*owner.kind));
        let template = || self.godel.as_ref()?.request_template.as_ref();
        owner
            .map(workload)
            .or_else(|| template().map(|name| without_uid("RequestTemplate", name)))
            .or_else(|| self.scheduling_group.as_ref().map(|name| without_uid("PodGroup", name)))
    }
}

impl Pod {
    /// Returns the pod's state. A pod without annotations is pending.
    ///
    /// # Errors
    ///
    /// Returns [`AbnormalPodState`] if the annotations form no valid state.
    pub fn state(&self) -> Result<PodState, AbnormalPodState> {
        if self.node_name.as_ref().is_some_and(|node| !node.is_empty()) {
            return Ok(PodState::Bound);
        }
        self.template.godel.as_ref().map_or(Ok(PodState::Pending), |godel| godel.state())
    }

    /// Returns the node on which the pod is counted: its own, or the one on which a scheduler has assumed it or to
    /// which it has been nominated.
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

    /// Returns the placeholder that takes this pod's place when it is deleted (`CreateReservationFakePod`). It has the
    /// same requests, ports and labels, but no pod group and no movement.
    #[doc(hidden)]
    #[must_use]
    pub fn to_placeholder(&self) -> Pod {
        let reservation_index = self.template.reservation_placeholder().map(Into::into);
        let godel = GodelPod { is_placeholder: true, reservation_index, ..GodelPod::default() };
        let mut spec = (**self.template).clone();
        spec.godel = Some(Box::new(godel));
        // A placeholder must not count as a member and let a group start.
        spec.scheduling_group = None;
        Pod {
            uid: Uid::new(&format!("{}-placeholder", self.uid)),
            name: format!("{}-placeholder", self.name).into(),
            template: Template::new(spec),
            nominated_node_name: None,
            deletion_time: None,
            ..self.clone()
        }
    }

    /// Returns `true` if the dispatcher has assigned the pod to the scheduler instance `component`
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

    /// Returns `true` if schedulers of this type are responsible for the pod: the pod names this type, the default
    /// scheduler, or no scheduler, and its launcher and its class are known (`AssumedPodOfGodel`,
    /// `LegalPodResourceTypeAndLauncher`).
    #[must_use]
    pub fn is_for(&self, scheduler_type: &str) -> bool {
        let name = self.template.scheduler_name.as_deref().unwrap_or_default();
        let is_legal = self.template.launcher != Launcher::Unknown
            && !self.template.godel.as_ref().is_some_and(|godel| godel.has_unknown_class);
        is_legal && (name.is_empty() || name == scheduler_type || name == DEFAULT_SCHEDULER)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::pod;

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
    fn annotations_determine_the_state_of_a_pod() {
        assert_eq!(pod("p").build().state(), Ok(PodState::Pending));
        assert_eq!(with("", false, false, false).state(), Ok(PodState::Pending));
        assert_eq!(with("pending", false, false, false).state(), Ok(PodState::Pending));
        assert_eq!(with("dispatched", true, false, false).state(), Ok(PodState::Dispatched));
        assert_eq!(with("assumed", true, true, false).state(), Ok(PodState::Assumed));
        assert_eq!(with("assumed", true, false, true).state(), Ok(PodState::Assumed));
        assert_eq!(with("nonsense", false, true, true).on("n").state(), Ok(PodState::Bound));
    }

    #[test]
    fn every_other_combination_is_an_abnormal_state() {
        use AbnormalPodState as Abnormal;
        let error_of = |state, scheduler, assumed, nominated| {
            with(state, scheduler, assumed, nominated).state().unwrap_err()
        };
        assert_eq!(error_of("bound", false, false, false), Abnormal::Unknown("bound".into()));
        assert_eq!(error_of("", true, false, false), Abnormal::PendingWithScheduler);
        assert_eq!(error_of("", false, true, false), Abnormal::WithNode(PodState::Pending));
        assert_eq!(
            error_of("dispatched", false, false, false),
            Abnormal::WithoutScheduler(PodState::Dispatched)
        );
        assert_eq!(
            error_of("dispatched", true, false, true),
            Abnormal::WithNode(PodState::Dispatched)
        );
        assert_eq!(
            error_of("assumed", false, true, false),
            Abnormal::WithoutScheduler(PodState::Assumed)
        );
        assert_eq!(error_of("assumed", true, false, false), Abnormal::WithoutNode);
        assert_eq!(error_of("assumed", true, true, true), Abnormal::TwoNodes);
    }

    #[test]
    fn a_pod_is_counted_on_its_bound_assumed_or_nominated_node() {
        let node_of = |pod: Pod| pod.placed_on().map(ToString::to_string);
        assert_eq!(node_of(with("assumed", true, true, false)).as_deref(), Some("n1"));
        assert_eq!(node_of(with("assumed", true, false, true)).as_deref(), Some("n2"));
        assert_eq!(node_of(with("assumed", true, true, false).on("n3")).as_deref(), Some("n3"));
        assert_eq!(node_of(with("dispatched", true, false, false)), None);
        assert_eq!(node_of(with("assumed", true, true, true)), None);
    }

    #[test]
    fn the_placeholder_is_the_index_the_extension_or_the_deployment() {
        let owner = |kind: &str, controller| OwnerReference {
            api_version: "v1".into(),
            kind: kind.into(),
            name: "owner".into(),
            uid: "u".into(),
            controller,
        };
        let placeholder_of = |index: Option<&str>, owners: Vec<OwnerReference>| {
            let pod = pod("p").label("name", "deployment").spec(|spec| {
                let reservation_index = index.map(Into::into);
                spec.godel = Some(Box::new(GodelPod { reservation_index, ..Default::default() }));
                spec.owners = owners.into();
            });
            pod.build().template.reservation_placeholder().map(str::to_owned)
        };
        let extension = || vec![owner("StatefulSetExtension", true)];
        assert_eq!(placeholder_of(Some("index"), extension()).as_deref(), Some("index"));
        assert_eq!(placeholder_of(None, extension()).as_deref(), Some("owner"));
        assert_eq!(
            placeholder_of(None, vec![owner("StatefulSetExtension", false)]).as_deref(),
            Some("deployment")
        );
        assert_eq!(
            placeholder_of(None, vec![owner("ReplicaSet", true)]).as_deref(),
            Some("deployment")
        );
        assert_eq!(pod("p").build().template.reservation_placeholder(), None);
    }
}
