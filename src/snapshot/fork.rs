//! Forks: what if?

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::model::{
    CustomEvent, EventError, Generation, Name, Node, Object, ObjectKind, Pod, PodState, Uid,
};

use super::cluster::{Cluster, Snapshot};
use super::custom::Store;
use super::draft::Draft;
use super::godel::Leaving;

/// Numbers of branches, unique in the process; the writer's is 0.
static BRANCHES: AtomicU64 = AtomicU64::new(1);

/// The number of a branch that is new.
pub(super) fn new_branch() -> u64 {
    // Relaxed: the number is all that is wanted of it.
    BRANCHES.fetch_add(1, Ordering::Relaxed)
}

/// A line of versions of one's own, which starts at a version and shares with
/// it all that does not differ. Made in O(1), changed in O(log n), read like
/// any version; forks nest, live as long as their holder likes, and nobody
/// else sees them.
pub struct Fork {
    draft: Draft,
}

impl Cluster {
    /// A fork of this version. O(1).
    ///
    /// ```
    /// use portolan::{Config, Engine};
    /// use portolan::model::{node, pod};
    ///
    /// let (mut writer, reader) = Engine::inline(Config::default());
    /// writer.add_node(node("n1").cpu(4_000).build())?;
    /// writer.publish();
    ///
    /// let snapshot = reader.snapshot();
    /// let mut fork = snapshot.fork();
    /// fork.add_pod(&pod("p").cpu(100).on("n1").build())?;
    /// fork.remove_node("n1")?;
    /// assert_eq!((fork.len(), snapshot.len()), (0, 1));
    /// assert_eq!(fork.diff(&snapshot).len(), 1);
    /// # Ok::<(), portolan::model::EventError>(())
    /// ```
    #[must_use]
    pub fn fork(&self) -> Fork {
        Fork { draft: Draft::fork(self) }
    }
}

impl Fork {
    /// Places a pod on the node that it names; one that is there already is
    /// replaced, on whatever node it was.
    ///
    /// # Errors
    ///
    /// Where the engine's writer would refuse the pod; nothing changes then.
    pub fn add_pod(&mut self, pod: &Pod) -> Result<(), EventError> {
        self.step_by(|fork| fork.put(pod))
    }

    /// Preempts: takes the victims away, as [`Fork::remove_pod`] does, and places the pod
    /// on the node that it names, all in one step (a snapshot's `AssumePod` with victims).
    /// O((1 + victims) × log n).
    ///
    /// # Errors
    ///
    /// A victim is not known, or the writer would refuse the pod; nothing changes then.
    pub fn preempt(&mut self, pod: &Pod, victims: &[Uid]) -> Result<(), EventError> {
        let preempt = |fork: &mut Fork| {
            victims.iter().try_for_each(|victim| fork.take(victim))?;
            fork.put(pod)
        };
        // What is refused is refused on a fork of the fork.
        self.fork().step_by(preempt)?;
        self.step_by(preempt)
    }

    /// Takes a pod away, as if it were not there. An assumed one that took a reserved
    /// place gives it back; one that holds a place gives that up.
    ///
    /// # Errors
    ///
    /// The pod is not known.
    pub fn remove_pod(&mut self, uid: &Uid) -> Result<(), EventError> {
        self.step_by(|fork| fork.take(uid))
    }

    /// Takes a pod away as its deletion does: where it reserves what it has, its place
    /// is held from then on.
    ///
    /// # Errors
    ///
    /// The pod is not known, or holds a place itself.
    pub fn delete_pod(&mut self, uid: &Uid) -> Result<(), EventError> {
        let Some(known) = self.draft.pod(uid) else {
            return Err(EventError::NotFound { uid: uid.clone() });
        };
        if self.draft.holds(&known) {
            return Err(EventError::HoldsPlace { uid: uid.clone() });
        }
        let spot = known.spot();
        self.step();
        self.draft.leave(spot, Leaving::Deleted);
        self.draft.unmark_unless_bound(uid);
        Ok(())
    }

    /// Adds a node, or replaces the one of its name.
    ///
    /// # Errors
    ///
    /// Where the engine's writer would refuse the node; nothing changes then.
    pub fn add_node(&mut self, node: Node) -> Result<(), EventError> {
        self.draft.check_node(&node)?;
        self.step();
        self.draft.put_node(Arc::new(node));
        Ok(())
    }

    /// Removes a node; its pods remain, as those of a ghost.
    ///
    /// # Errors
    ///
    /// The node is not known.
    pub fn remove_node(&mut self, name: &str) -> Result<(), EventError> {
        let name: Name = name.into();
        self.draft.check_remove_node(&name)?;
        self.step();
        self.draft.remove_node(&name);
        Ok(())
    }

    /// Adds or replaces an object of another kind, as the writer's `put_object` does.
    ///
    /// # Errors
    ///
    /// Where the engine's writer would refuse the object; nothing changes then.
    pub fn put_object(&mut self, object: impl Into<Object>) -> Result<(), EventError> {
        let object = object.into();
        self.try_step(|draft| draft.put_object(&object).map(drop))
    }

    /// Removes an object of another kind.
    ///
    /// # Errors
    ///
    /// The object is not known.
    pub fn delete_object(
        &mut self,
        kind: ObjectKind,
        namespace: &str,
        name: &str,
    ) -> Result<(), EventError> {
        self.try_step(|draft| draft.delete_object(kind, namespace, name))
    }

    /// Changes a store that was registered with the engine, in this fork alone.
    ///
    /// # Errors
    ///
    /// The store is not registered, refuses the event, panicked, or has failed before; nothing changes then.
    pub fn change<S: Store>(&mut self, event: S::Event) -> Result<(), EventError> {
        let event = CustomEvent::new::<S>(event);
        self.try_step(|draft| draft.change_store(&event))
    }

    /// This version of the fork, frozen. O(1).
    #[must_use]
    pub fn snapshot(&self) -> Arc<Snapshot> {
        Arc::new(self.draft.freeze())
    }

    /// [`Fork::add_pod`], within a step.
    fn put(&mut self, pod: &Pod) -> Result<(), EventError> {
        let pod = &*self.draft.as_placed(pod);
        let Some(node) = &pod.node_name else {
            return Err(EventError::NoNodeName { uid: pod.uid.clone() });
        };
        let known = self.draft.pod(&pod.uid).map(|known| known.spot());
        self.draft.check_place(pod, node, known)?;
        let given_up = known.and_then(|known| self.draft.given_up(known, pod));
        if let Some(known) = known {
            self.draft.leave(known, Leaving::Gone);
        }
        self.draft.place(pod, node, None, false);
        if let Some(number) = given_up {
            self.draft.release_place(number);
        }
        self.draft.unmark_unless_bound(&pod.uid);
        Ok(())
    }

    /// [`Fork::remove_pod`], within a step.
    fn take(&mut self, uid: &Uid) -> Result<(), EventError> {
        let Some(known) = self.draft.pod(uid) else {
            return Err(EventError::NotFound { uid: uid.clone() });
        };
        let assumed = known.state() == PodState::Assumed;
        let spot = known.spot();
        if !self.draft.give_up(spot) {
            let leaving = if assumed { Leaving::Withdrawn } else { Leaving::Gone };
            self.draft.leave(spot, leaving);
        }
        self.draft.unmark_unless_bound(uid);
        Ok(())
    }

    /// A step that is none where the change is refused.
    fn step_by(
        &mut self,
        change: impl FnOnce(&mut Fork) -> Result<(), EventError>,
    ) -> Result<(), EventError> {
        let before = self.draft.cluster.generation();
        self.step();
        change(self).inspect_err(|_| self.draft.begin(before))
    }

    /// The same, of a change of the draft.
    fn try_step(
        &mut self,
        change: impl FnOnce(&mut Draft) -> Result<(), EventError>,
    ) -> Result<(), EventError> {
        self.step_by(|fork| change(&mut fork.draft))
    }

    fn step(&mut self) {
        let Generation(now) = self.draft.cluster.generation();
        self.draft.begin(Generation(now + 1));
        self.draft.take_effects();
    }
}

impl Deref for Fork {
    type Target = Cluster;

    fn deref(&self) -> &Cluster {
        &self.draft.cluster
    }
}

impl std::fmt::Debug for Fork {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Fork").field(&self.draft.cluster).finish()
    }
}
