//! Applies Gödel's annotations to incoming pods, and updates Gödel's stores when pods and Movements change.

use std::borrow::Cow;
use std::sync::Arc;

use crate::model::{
    EventError, GodelPod, Movement, Name, NominatedNode, Pod, PodState, Template, Timestamp, Uid,
    Victim,
};

mod reservations;

pub(crate) use reservations::Effect;

use crate::snapshot::cost;
use crate::snapshot::draft::Draft;
use crate::snapshot::godel::{
    DeletionMark, DeletionMarks, GodelConfig, Movements, PreemptionMarks, Reservations, Stores,
    SuggestionId,
};
use crate::snapshot::node_info::PodInfo;

/// Maximum number of victims that a pod may name.
const LONGEST: usize = u16::MAX as usize;

impl Draft {
    /// Enables Gödel's stores. Must be called before any pod is placed.
    pub(crate) fn keep_stores(&mut self, config: GodelConfig) {
        self.cluster.godel = Some(triomphe::Arc::new(Stores::new(config)));
    }

    /// Returns the stores for writing. They are copied first if a version shares them.
    pub(in crate::snapshot) fn stores(&mut self) -> Option<&mut Stores> {
        let stores = self.cluster.godel.as_mut()?;
        if !stores.is_unique() {
            // The configuration, the reservations, and the pointers to the other stores.
            let counts = 1
                + stores.reservations.as_ref().map_or(0, |_| Reservations::COUNTS)
                + usize::from(stores.movements.is_some())
                + usize::from(stores.preemption_marks.is_some())
                + usize::from(stores.deletion_marks.is_some());
            cost::copied::<Stores>(counts);
        }
        Some(triomphe::Arc::make_mut(stores))
    }

    /// Returns whether the pod was decided on for a movement that requests no more pods on `node`.
    pub(crate) fn lacks_suggestion(&self, pod: &Pod, node: &str) -> bool {
        let Some(movements) = self.cluster.movements() else { return false };
        let movement = pod.template.godel.as_ref().and_then(|godel| godel.movement.as_ref());
        let Some((movement, owner)) = movement.zip(pod.template.owner_key()) else { return false };
        let suggestion = movements.get(movement, &owner, node);
        suggestion.is_none_or(|suggestion| suggestion.available() == 0)
    }

    /// Returns the pod in the form in which it is placed. A pod that a scheduler of our type has assumed is on the node
    /// that it was assumed on or nominated to. A bound pod loses the annotations of its earlier states.
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
    /// Returns the pod in the form in which Gödel's schedulers assume a preemptor: nominated to its node, with the
    /// given victims, which must be placed. Returns the pod unchanged without [`GodelConfig`] or without victims.
    /// O(victims × log n).
    pub(crate) fn nominated<'p>(&self, pod: &'p Pod, node: &Name, victims: &[Uid]) -> Cow<'p, Pod> {
        if self.cluster.godel.is_none() || victims.is_empty() {
            return Cow::Borrowed(pod);
        }
        let victim = |uid: &Uid| {
            let victim = self.pod(uid)?;
            let (namespace, name) = (victim.namespace().clone(), victim.name().into());
            Some(Victim { namespace, name, uid: uid.to_string().into() })
        };
        let to = NominatedNode {
            node: node.clone(),
            victims: victims.iter().filter_map(victim).collect(),
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
    /// Returns the deletion marks for writing. They are copied first if a version shares them.
    fn deletion_marks(&mut self) -> Option<&mut DeletionMarks> {
        let marks = self.stores()?.deletion_marks.as_mut()?;
        if !marks.is_unique() {
            cost::copied::<DeletionMarks>(DeletionMarks::COUNTS);
        }
        Some(triomphe::Arc::make_mut(marks))
    }

    /// Checks that a pod can be marked for deletion.
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

    /// Marks a pod for deletion, after [`Draft::check_mark`] has succeeded. O(log n).
    pub(crate) fn mark(&mut self, mark: DeletionMark) {
        let generation = self.cluster.generation;
        if let Some(marks) = self.deletion_marks() {
            marks.mark(mark, generation);
        }
    }

    /// Removes the deletion mark of a pod, if it has one. O(log n).
    pub(crate) fn unmark(&mut self, victim: &Uid) {
        let generation = self.cluster.generation;
        if self.cluster.deletion_marks().is_some_and(|marks| marks.is_marked(victim))
            && let Some(marks) = self.deletion_marks()
        {
            marks.unmark(victim, generation);
        }
    }

    /// Removes the deletion mark of a pod that was removed or is no longer bound. O(log n).
    pub(crate) fn unmark_unless_bound(&mut self, victim: &Uid) {
        if self.cluster.deletion_marks().is_none_or(DeletionMarks::is_empty) {
            return;
        }
        let is_bound = |known: PodInfo<'_>| known.state() == PodState::Bound;
        if !self.pod(victim).is_some_and(is_bound) {
            self.unmark(victim);
        }
    }

    /// Removes the deletion marks that have expired. O(marks).
    pub(crate) fn expire_deletion_marks(&mut self, now: Timestamp) {
        let Some(marks) = self.cluster.deletion_marks() else { return };
        let over = marks.iter().filter(|mark| mark.until < now);
        for victim in over.map(|mark| mark.victim.clone()).collect::<Vec<_>>() {
            self.unmark(&victim);
        }
    }
}

/// The contribution of a pod to the stores while it is on its node.
pub(in crate::snapshot) struct Contribution {
    uid: Uid,
    node: Name,
    template: Arc<Template>,
}

impl Draft {
    /// Returns the movement store for writing. It is copied first if a version shares it.
    fn movements(&mut self) -> Option<&mut Movements> {
        let movements = self.stores()?.movements.as_mut()?;
        if !movements.is_unique() {
            cost::copied::<Movements>(Movements::COUNTS);
        }
        Some(triomphe::Arc::make_mut(movements))
    }

    /// Returns the preemption marks for writing. They are copied first if a version shares them.
    fn preemption_marks(&mut self) -> Option<&mut PreemptionMarks> {
        let marks = self.stores()?.preemption_marks.as_mut()?;
        if !marks.is_unique() {
            cost::copied::<PreemptionMarks>(PreemptionMarks::COUNTS);
        }
        Some(triomphe::Arc::make_mut(marks))
    }

    /// Returns the contribution of a pod that is about to be removed, or `None` if it contributes nothing.
    pub(in crate::snapshot) fn contribution_of(&self, pod: &PodInfo<'_>) -> Option<Contribution> {
        let template = pod.template();
        self.contributes(template).then(|| Contribution {
            uid: pod.uid(),
            node: pod.node().name().clone(),
            template: template.clone(),
        })
    }

    /// Adds the contribution of a pod that was placed on a node.
    /// O(log n + pods of the node + size of the contribution).
    pub(in crate::snapshot) fn add_contribution(&mut self, pod: &Pod, node: &Name) {
        if self.contributes(&pod.template) {
            self.update_stores(&pod.uid, &pod.template, node, true);
        }
    }

    /// Removes the contribution of a pod that left its node. O(log n + pods of the node + size of the contribution).
    pub(in crate::snapshot) fn remove_contribution(&mut self, contribution: &Contribution) {
        self.update_stores(&contribution.uid, &contribution.template, &contribution.node, false);
    }

    /// Returns whether the stores have room for the contribution of one more pod.
    pub(in crate::snapshot) fn stores_have_room(&self) -> bool {
        let Some(stores) = &self.cluster.godel else { return true };
        stores.movements.as_ref().is_none_or(|movements| movements.has_room(1))
            && stores.preemption_marks.as_ref().is_none_or(|marks| marks.has_room(LONGEST))
    }

    /// Returns whether a pod names more victims than the store supports.
    pub(in crate::snapshot) fn has_too_many_victims(&self, template: &Template) -> bool {
        let nominated = || template.godel.as_ref()?.nominated_node.as_ref();
        self.cluster.preemption_marks().is_some()
            && nominated().is_some_and(|nominated| nominated.victims.len() > LONGEST)
    }

    fn contributes(&self, template: &Template) -> bool {
        let (Some(stores), Some(godel)) = (&self.cluster.godel, &template.godel) else {
            return false;
        };
        (stores.movements.is_some() && godel.movement.is_some())
            || (stores.preemption_marks.is_some() && godel.nominated_node.is_some())
    }

    /// Adds or removes a contribution. Both go through this function, so exactly what was added is removed.
    fn update_stores(&mut self, uid: &Uid, template: &Template, node: &Name, is_added: bool) {
        let generation = self.cluster.generation;
        let Some(godel) = &template.godel else { return };
        if let (Some(movement), Some(owner)) = (&godel.movement, template.owner_key())
            && let Some(movements) = self.movements()
        {
            let id = SuggestionId { movement, owner: &owner, node };
            if is_added {
                movements.follow(id, uid, generation);
            } else {
                movements.unfollow(id, uid, generation);
            }
        }
        if let Some(nominated) = godel.nominated_node.as_ref().filter(|to| to.node == *node)
            && let Some(marks) = self.preemption_marks()
        {
            if is_added {
                marks.mark(nominated, uid, generation);
            } else {
                marks.unmark(nominated, uid, generation);
            }
        }
    }
}

impl Draft {
    /// Checks that a Movement can be put.
    pub(in crate::snapshot) fn check_movement(&self, new: &Movement) -> Result<(), EventError> {
        let nodes = new.owners.iter().map(|owner| owner.nodes.len()).sum();
        let has_room = self.cluster.movements().is_none_or(|movements| movements.has_room(nodes));
        if has_room { Ok(()) } else { Err(EventError::Full) }
    }

    /// Applies a Movement that is new or replaces another.
    pub(in crate::snapshot) fn declare(&mut self, old: Option<&Movement>, new: &Movement) {
        if self.cluster.movements().is_none() {
            return;
        }
        let generation = self.cluster.generation;
        if let Some(movements) = self.movements() {
            movements.declare(old, new, generation);
        }
    }

    /// Applies the removal of a Movement.
    pub(in crate::snapshot) fn retract(&mut self, old: &Movement) {
        if self.cluster.movements().is_none() {
            return;
        }
        let generation = self.cluster.generation;
        if let Some(movements) = self.movements() {
            movements.retract(old, generation);
        }
    }
}
