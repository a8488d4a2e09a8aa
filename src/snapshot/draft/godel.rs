//! What Gödel's annotations make of pods that come, and what its stores hear of pods and
//! Movements.

use std::borrow::Cow;
use std::sync::Arc;

use crate::model::{
    EventError, GodelPod, Movement, Name, NominatedNode, Pod, PodState, Template, Timestamp, Uid,
    Victim,
};

use super::super::cost;
use super::super::godel::{
    DeletionMark, DeletionMarks, GodelConfig, Movements, PreemptionMarks, Reservations, Stores,
    SuggestionId,
};
use super::super::node_info::PodInfo;
use super::Draft;

/// Most victims that a pod may name.
const LONGEST: usize = u16::MAX as usize;

impl Draft {
    /// Keeps Gödel's stores from now on. Nothing is placed yet.
    pub(crate) fn keep_stores(&mut self, config: GodelConfig) {
        self.cluster.godel = Some(triomphe::Arc::new(Stores::new(config)));
    }

    /// The stores, copied first where a version shares them.
    pub(super) fn stores(&mut self) -> Option<&mut Stores> {
        let stores = self.cluster.godel.as_mut()?;
        if !stores.is_unique() {
            // The configuration, all places, and the pointers to the others.
            let counts = 1
                + stores.reservations.as_ref().map_or(0, |_| Reservations::COUNTS)
                + usize::from(stores.movements.is_some())
                + usize::from(stores.preemption_marks.is_some())
                + usize::from(stores.deletion_marks.is_some());
            cost::copied::<Stores>(counts);
        }
        Some(triomphe::Arc::make_mut(stores))
    }

    /// Whether the pod was decided on for a movement that wants nobody on `node` any more.
    pub(crate) fn lacks_suggestion(&self, pod: &Pod, node: &str) -> bool {
        let Some(movements) = self.cluster.movements() else { return false };
        let movement = pod.template.godel.as_ref().and_then(|godel| godel.movement.as_ref());
        let Some((movement, owner)) = movement.zip(pod.template.owner_key()) else { return false };
        let suggestion = movements.get(movement, &owner, node);
        suggestion.is_none_or(|suggestion| suggestion.available() == 0)
    }

    /// The pod as it counts: one that a scheduler of our type has assumed, on the node
    /// that it was assumed or nominated to; a bound one without what led there.
    pub(crate) fn as_placed<'p>(&self, pod: &'p Pod) -> Cow<'p, Pod> {
        let (Some(stores), Some(godel)) = (&self.cluster.godel, &pod.template.godel) else {
            return Cow::Borrowed(pod);
        };
        match pod.state() {
            Ok(PodState::Bound) if godel.is_unbound() => {
                let mut spec = (**pod.template).clone();
                spec.godel = godel.as_ref().clone().bound();
                Cow::Owned(Pod { template: Template::new(spec), ..pod.clone() })
            }
            Ok(PodState::Assumed) if pod.is_for(&stores.config.scheduler_type) => {
                match pod.placed_on() {
                    Some(node) => Cow::Owned(pod.clone().on(node.clone())),
                    None => Cow::Borrowed(pod),
                }
            }
            _ => Cow::Borrowed(pod),
        }
    }
}

impl Draft {
    /// The pod as Gödel's schedulers assume one that preempts others: nominated to its
    /// node, in place of these victims, which are known. Without [`GodelConfig`], or
    /// victims, the pod as it is. O(victims × log n).
    pub(crate) fn nominated<'p>(&self, pod: &'p Pod, node: &Name, victims: &[Uid]) -> Cow<'p, Pod> {
        if self.cluster.godel.is_none() || victims.is_empty() {
            return Cow::Borrowed(pod);
        }
        let named = |uid: &Uid| {
            let victim = self.pod(uid)?;
            let (namespace, name) = (victim.namespace().clone(), victim.name().into());
            Some(Victim { namespace, name, uid: uid.to_string().into() })
        };
        let to = NominatedNode {
            node: node.clone(),
            victims: victims.iter().filter_map(named).collect(),
        };
        let godel = pod.template.godel.as_ref();
        if godel.and_then(|godel| godel.nominated_node.as_ref()) == Some(&to) {
            return Cow::Borrowed(pod);
        }
        let godel = godel.map(|godel| (**godel).clone()).unwrap_or_default();
        let mut spec = (**pod.template).clone();
        spec.godel = Some(Box::new(GodelPod { nominated_node: Some(to), ..godel }));
        Cow::Owned(Pod { template: Template::new(spec), ..pod.clone() })
    }
}

impl Draft {
    /// The marks of pods to be deleted, copied first where a version shares them.
    fn deletion_marks(&mut self) -> Option<&mut DeletionMarks> {
        let marks = self.stores()?.deletion_marks.as_mut()?;
        if !marks.is_unique() {
            cost::copied::<DeletionMarks>(DeletionMarks::COUNTS);
        }
        Some(triomphe::Arc::make_mut(marks))
    }

    /// Whether a pod can be marked as one to be deleted.
    pub(crate) fn check_mark(&self, victim: &Uid) -> Result<(), EventError> {
        let Some(marks) = self.cluster.deletion_marks() else {
            return Err(EventError::NotKept {
                store: "deletion marks".into(),
                field: "deletion_marks".into(),
            });
        };
        match self.pod(victim).filter(|known| known.state() == PodState::Bound) {
            None => Err(EventError::NotBound { uid: victim.clone() }),
            Some(known) if self.holds(&known) => {
                Err(EventError::HoldsPlace { uid: victim.clone() })
            }
            Some(_) if marks.has_room() => Ok(()),
            Some(_) => Err(EventError::Full),
        }
    }

    /// Marks a pod that was checked as one to be deleted. O(log n).
    pub(crate) fn mark(&mut self, mark: DeletionMark) {
        let generation = self.cluster.generation;
        if let Some(marks) = self.deletion_marks() {
            marks.mark(mark, generation);
        }
    }

    /// Removes a pod's mark, if it has one. O(log n).
    pub(crate) fn unmark(&mut self, victim: &Uid) {
        let generation = self.cluster.generation;
        if self.cluster.deletion_marks().is_some_and(|marks| marks.is_marked(victim))
            && let Some(marks) = self.deletion_marks()
        {
            marks.unmark(victim, generation);
        }
    }

    /// A pod went, or its object changed: only a bound pod stays marked. O(log n).
    pub(crate) fn unmark_unless_bound(&mut self, victim: &Uid) {
        if self.cluster.deletion_marks().is_none_or(DeletionMarks::is_empty) {
            return;
        }
        let is_bound = |known: PodInfo<'_>| known.state() == PodState::Bound;
        if !self.pod(victim).is_some_and(is_bound) {
            self.unmark(victim);
        }
    }

    /// Removes the marks whose time has passed. O(marks).
    pub(crate) fn expire_deletion_marks(&mut self, now: Timestamp) {
        let Some(marks) = self.cluster.deletion_marks() else { return };
        let over = marks.iter().filter(|mark| mark.until < now);
        for victim in over.map(|mark| mark.victim.clone()).collect::<Vec<_>>() {
            self.unmark(&victim);
        }
    }
}

/// What a pod makes its stores say while it is on its node.
pub(super) struct Said {
    uid: Uid,
    node: Name,
    template: Arc<Template>,
}

impl Draft {
    /// What Movements suggest, copied first where a version shares it.
    fn movements(&mut self) -> Option<&mut Movements> {
        let movements = self.stores()?.movements.as_mut()?;
        if !movements.is_unique() {
            cost::copied::<Movements>(Movements::COUNTS);
        }
        Some(triomphe::Arc::make_mut(movements))
    }

    /// The marks of victims, copied first where a version shares them.
    fn preemption_marks(&mut self) -> Option<&mut PreemptionMarks> {
        let marks = self.stores()?.preemption_marks.as_mut()?;
        if !marks.is_unique() {
            cost::copied::<PreemptionMarks>(PreemptionMarks::COUNTS);
        }
        Some(triomphe::Arc::make_mut(marks))
    }

    /// What a pod that is about to go makes its stores say; none where it says nothing
    /// that is kept.
    pub(super) fn said_by(&self, pod: &PodInfo<'_>) -> Option<Said> {
        let template = pod.template();
        self.hears_of(template).then(|| Said {
            uid: pod.uid(),
            node: pod.node().name().clone(),
            template: template.clone(),
        })
    }

    /// A pod has come to a node: what it says there goes into the stores. O(log n + pods
    /// of the node), and what it says.
    pub(super) fn say(&mut self, pod: &Pod, node: &Name) {
        if self.hears_of(&pod.template) {
            self.tell(&pod.uid, &pod.template, node, true);
        }
    }

    /// A pod is gone from its node, and what it said goes with it. O(log n + pods of the
    /// node), and what it said.
    pub(super) fn unsay(&mut self, said: &Said) {
        self.tell(&said.uid, &said.template, &said.node, false);
    }

    /// Whether the stores have room for what one more pod says.
    pub(super) fn stores_have_room(&self) -> bool {
        let Some(stores) = &self.cluster.godel else { return true };
        stores.movements.as_ref().is_none_or(|movements| movements.has_room(1))
            && stores.preemption_marks.as_ref().is_none_or(|marks| marks.has_room(LONGEST))
    }

    /// Whether a pod names more victims than are kept of one.
    pub(super) fn has_too_many_victims(&self, template: &Template) -> bool {
        let nominated = || template.godel.as_ref()?.nominated_node.as_ref();
        self.cluster.preemption_marks().is_some()
            && nominated().is_some_and(|nominated| nominated.victims.len() > LONGEST)
    }

    fn hears_of(&self, template: &Template) -> bool {
        let (Some(stores), Some(godel)) = (&self.cluster.godel, &template.godel) else {
            return false;
        };
        (stores.movements.is_some() && godel.movement.is_some())
            || (stores.preemption_marks.is_some() && godel.nominated_node.is_some())
    }

    /// The one way in and out, so that what goes is what came.
    fn tell(&mut self, uid: &Uid, template: &Template, node: &Name, comes: bool) {
        let generation = self.cluster.generation;
        let Some(godel) = &template.godel else { return };
        if let (Some(movement), Some(owner)) = (&godel.movement, template.owner_key())
            && let Some(movements) = self.movements()
        {
            let id = SuggestionId { movement, owner: &owner, node };
            if comes {
                movements.follow(id, uid, generation);
            } else {
                movements.unfollow(id, uid, generation);
            }
        }
        if let Some(nominated) = godel.nominated_node.as_ref().filter(|to| to.node == *node)
            && let Some(marks) = self.preemption_marks()
        {
            if comes {
                marks.mark(nominated, uid, generation);
            } else {
                marks.unmark(nominated, uid, generation);
            }
        }
    }
}

impl Draft {
    /// Whether a Movement can be put.
    pub(super) fn check_movement(&self, new: &Movement) -> Result<(), EventError> {
        let nodes = new.owners.iter().map(|owner| owner.nodes.len()).sum();
        let has_room = self.cluster.movements().is_none_or(|movements| movements.has_room(nodes));
        if has_room { Ok(()) } else { Err(EventError::Full) }
    }

    /// A Movement that was put is new, or takes the place of another.
    pub(super) fn declare(&mut self, old: Option<&Movement>, new: &Movement) {
        if self.cluster.movements().is_none() {
            return;
        }
        let generation = self.cluster.generation;
        if let Some(movements) = self.movements() {
            movements.declare(old, new, generation);
        }
    }

    /// A Movement is gone.
    pub(super) fn retract(&mut self, old: &Movement) {
        if self.cluster.movements().is_none() {
            return;
        }
        let generation = self.cluster.generation;
        if let Some(movements) = self.movements() {
            movements.retract(old, generation);
        }
    }
}
