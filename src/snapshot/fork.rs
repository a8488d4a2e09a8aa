//! Forks, which answer what-if questions without changing the cluster.

use std::ops::Deref;
use std::sync::Arc;

use crate::model::{
    CustomEvent, EventError, Generation, Name, Node, Object, ObjectKind, Pod, PodState, Uid,
};

use super::cluster::{Cluster, Snapshot};
use super::custom::Store;
use super::draft::Draft;
use super::godel::Leaving;

/// A private copy of a version, which can be changed and read like the cluster.
///
/// [`Cluster::fork`] creates a fork in O(1), and a change costs O(log n), because a fork shares all unchanged data with
/// its base. It dereferences to [`Cluster`], so everything that reads a snapshot also reads a fork. Forks can be forked
/// again. A fork holds its base in memory, never blocks the writer, and is invisible to readers and other forks. An
/// engine that begins with a fork is [`Engine::at`](crate::cache::Engine::at).
///
/// A change that returns an error has no effect. Each successful change increments the fork's generation, which does
/// not compare with the generations of the log or of other forks: never pass it to
/// [`Event::decided_on`](crate::cache::Event::decided_on). State that a plugin keeps outside the cluster is not forked;
/// a [`Store`] is.
pub struct Fork {
    draft: Draft,
}

impl Cluster {
    /// Creates a fork of this version. O(1).
    ///
    /// ```
    /// use portolan::cache::{Config, Engine};
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
    /// Places a pod on the node that it names, or moves it there if it is already on a node. Whether the pod fits is
    /// not checked. An unknown node becomes a ghost. O(log n + pods of the node).
    ///
    /// # Errors
    ///
    /// Returns an error if the pod names no node, has no uid or a negative amount, or would make a sum of the node
    /// exceed 64 bits.
    pub fn add_pod(&mut self, pod: &Pod) -> Result<(), EventError> {
        self.step_by(|fork| fork.put(pod))
    }

    /// Removes the victims, as [`Fork::remove_pod`] does, and places the preemptor on the node that it names,
    /// atomically (`AssumePod` with victims in a snapshot of Gödel). O((1 + victims) × (log n + pods of the node)).
    ///
    /// # Errors
    ///
    /// Returns an error if a victim is unknown or listed twice, or for the same reasons as [`Fork::add_pod`].
    pub fn preempt(&mut self, pod: &Pod, victims: &[Uid]) -> Result<(), EventError> {
        self.reserve(pod, victims, &[])
    }

    /// Removes the victims, places the pod as [`Fork::add_pod`] does, and applies the events that show what its plugins
    /// reserve, atomically.
    pub(crate) fn reserve(
        &mut self,
        pod: &Pod,
        victims: &[Uid],
        reserved: &[CustomEvent],
    ) -> Result<(), EventError> {
        let reserve = |fork: &mut Fork| {
            victims.iter().try_for_each(|victim| fork.take(victim))?;
            fork.put(pod)?;
            reserved.iter().try_for_each(|event| fork.draft.change_store(event))
        };
        // A step that fails halfway must not leave changes, so several steps are first tried on a fork of this fork.
        if !victims.is_empty() || !reserved.is_empty() {
            self.fork().step_by(reserve)?;
        }
        self.step_by(reserve)
    }

    /// Removes a pod without the consequences of a deletion. If the pod is assumed and has taken a reservation, the
    /// reservation becomes available again. If it is a placeholder pod, its reservation ends. O(log n + pods of the
    /// node).
    ///
    /// # Errors
    ///
    /// Returns an error if the pod is unknown.
    pub fn remove_pod(&mut self, uid: &Uid) -> Result<(), EventError> {
        self.step_by(|fork| fork.take(uid))
    }

    /// Removes a pod as its deletion would: if its annotations ask for a reservation, its resources are reserved from
    /// then on. O(log n + pods of the node).
    ///
    /// # Errors
    ///
    /// Returns an error if the pod is unknown or a placeholder pod.
    pub fn delete_pod(&mut self, uid: &Uid) -> Result<(), EventError> {
        let Some(known) = self.draft.pod(uid) else {
            return Err(EventError::NotFound { uid: uid.clone() });
        };
        if self.draft.holds(&known) {
            return Err(EventError::HoldsPlace { uid: uid.clone() });
        }
        let pod_ref = known.pod_ref();
        self.step();
        self.draft.leave(pod_ref, Leaving::Deleted);
        self.draft.unmark_unless_bound(uid);
        Ok(())
    }

    /// Adds a node, or replaces the node with the same name, whose pods stay. O(log n).
    ///
    /// # Errors
    ///
    /// Returns an error if the node has no name, a negative amount, or too many images or resources.
    pub fn add_node(&mut self, node: Node) -> Result<(), EventError> {
        self.draft.check_node(&node)?;
        self.step();
        self.draft.put_node(Arc::new(node));
        Ok(())
    }

    /// Removes a node. A node that still has pods remains as a ghost. O(log n + pods of the node).
    ///
    /// # Errors
    ///
    /// Returns an error if the node is unknown.
    pub fn remove_node(&mut self, name: &str) -> Result<(), EventError> {
        let name: Name = name.into();
        self.draft.check_remove_node(&name)?;
        self.step();
        self.draft.remove_node(&name);
        Ok(())
    }

    /// Adds or replaces an object other than a pod or a Node. O(log n) for most kinds.
    ///
    /// # Errors
    ///
    /// Returns an error for the same reasons as [`Event::PutObject`](crate::cache::Event::PutObject).
    pub fn put_object(&mut self, object: impl Into<Object>) -> Result<(), EventError> {
        let object = object.into();
        self.try_step(|draft| draft.put_object(&object).map(drop))
    }

    /// Removes an object other than a pod or a Node. The namespace of a cluster-scoped object is empty. O(log n) for
    /// most kinds.
    ///
    /// # Errors
    ///
    /// Returns an error if the object is unknown.
    pub fn delete_object(
        &mut self,
        kind: ObjectKind,
        namespace: &str,
        name: &str,
    ) -> Result<(), EventError> {
        self.try_step(|draft| draft.delete_object(kind, namespace, name))
    }

    /// Applies an event to a registered store, in this fork only.
    ///
    /// # Errors
    ///
    /// Returns an error if the store is not registered, rejects the event, panics, or has already failed.
    pub fn change<S: Store>(&mut self, event: S::Event) -> Result<(), EventError> {
        let event = CustomEvent::new::<S>(event);
        self.try_step(|draft| draft.change_store(&event))
    }

    /// Returns the current state of the fork as a snapshot, which later changes to the fork do not affect. O(1).
    #[must_use]
    pub fn snapshot(&self) -> Arc<Snapshot> {
        Arc::new(self.draft.freeze())
    }

    /// Performs [`Fork::add_pod`] within a step.
    fn put(&mut self, pod: &Pod) -> Result<(), EventError> {
        let pod = &*self.draft.as_placed(pod);
        let Some(node) = &pod.node_name else {
            return Err(EventError::NoNodeName { uid: pod.uid.clone() });
        };
        let known = self.draft.pod(&pod.uid).map(|known| known.pod_ref());
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

    /// Performs [`Fork::remove_pod`] within a step.
    fn take(&mut self, uid: &Uid) -> Result<(), EventError> {
        let Some(known) = self.draft.pod(uid) else {
            return Err(EventError::NotFound { uid: uid.clone() });
        };
        let assumed = known.state() == PodState::Assumed;
        let pod_ref = known.pod_ref();
        if !self.draft.give_up(pod_ref) {
            let leaving = if assumed { Leaving::Withdrawn } else { Leaving::Gone };
            self.draft.leave(pod_ref, leaving);
        }
        self.draft.unmark_unless_bound(uid);
        Ok(())
    }

    /// Performs a change as a step with its own generation. If the change fails, the generation is restored.
    fn step_by(
        &mut self,
        change: impl FnOnce(&mut Fork) -> Result<(), EventError>,
    ) -> Result<(), EventError> {
        let before = self.draft.cluster.generation();
        self.step();
        change(self).inspect_err(|_| self.draft.begin(before))
    }

    /// Like [`Fork::step_by`], for a change to the draft.
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
