//! One pod's scheduling cycle: what every plugin is told, and what plugins tell
//! each other (framework/cycle_state.go).

use std::any::Any;
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

use crate::model::Pod;
use crate::snapshot::Cluster;

/// One pod's way through the framework: the version it is decided on, the pod,
/// and what plugins keep for it. Free to copy.
#[derive(Clone, Copy)]
pub struct Cycle<'a> {
    /// The version: nodes, and the stores of all other objects.
    pub cluster: &'a Cluster,
    /// The pod.
    pub pod: &'a Pod,
    /// What plugins keep from one extension point to the next.
    pub state: &'a CycleState,
}

impl<'a> Cycle<'a> {
    /// A cycle.
    #[must_use]
    pub fn new(cluster: &'a Cluster, pod: &'a Pod, state: &'a CycleState) -> Cycle<'a> {
        Cycle { cluster, pod, state }
    }
}

type Data = Arc<dyn Any + Send + Sync>;

/// A value, and how it is copied with its state; shared where it is not.
#[derive(Clone)]
struct Value {
    data: Data,
    copy: Option<fn(&Data) -> Data>,
}

impl Value {
    /// A value that is copied with its state.
    fn of<T: Clone + Send + Sync + 'static>(value: T) -> Value {
        let copy = |data: &Data| match data.downcast_ref::<T>() {
            Some(value) => Arc::new(value.clone()) as Data,
            None => data.clone(),
        };
        Value { data: Arc::new(value), copy: Some(copy) }
    }
}

/// Typed values under keys, for as long as a pod is on its way.
///
/// What a filter or a score needs it keeps for itself (see
/// [`Plugin::pre_filter`](super::Plugin::pre_filter)); this is for what goes from
/// one extension point to another. May be read and written by several threads at
/// once. Made without an allocation.
///
/// ```
/// use std::sync::Arc;
/// use portolan::framework::{CycleState, StateError};
///
/// let state = CycleState::default();
/// state.write("Disks", vec![3, 4]);
/// state.write_shared("Topology", Arc::new("large".to_owned()));
///
/// let copy = state.clone();
/// copy.write("Disks", vec![5]);
/// assert_eq!(*state.read::<Vec<i32>>("Disks")?, [3, 4]);
/// assert!(state.delete("Disks"));
/// assert_eq!(state.read::<Vec<i32>>("Disks"), Err(StateError::NotFound("Disks")));
/// assert_eq!(*copy.read::<String>("Topology")?, "large");
/// # Ok::<(), StateError>(())
/// ```
#[derive(Default)]
pub struct CycleState {
    /// A handful at most.
    values: RwLock<Vec<(&'static str, Value)>>,
    /// Whether plugins' durations are recorded for this pod.
    pub(super) is_recorded: bool,
    /// When the pod was taken up, where somebody hears how long it takes.
    started: Option<Instant>,
}

/// A value cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StateError {
    /// Nothing is kept under this key.
    #[error("nothing is kept under {0}: write it first")]
    NotFound(&'static str),
    /// What is kept is of another type.
    #[error("what is kept under {0} is of another type: read it as what it was written as")]
    OtherType(&'static str),
}

impl CycleState {
    /// The state of a cycle that begins, and of which somebody hears; of plugins'
    /// durations, too, or not.
    pub(super) fn recorded(is_recorded: bool) -> CycleState {
        CycleState { is_recorded, started: Some(Instant::now()), ..CycleState::default() }
    }

    /// How long ago the pod was taken up; nothing where nobody hears of it.
    #[must_use]
    pub fn elapsed(&self) -> Option<Duration> {
        self.started.map(|started| started.elapsed())
    }

    /// Keeps a value, in place of the one that is under the key. A clone of the
    /// state gets a clone of it.
    pub fn write<T: Clone + Send + Sync + 'static>(&self, key: &'static str, value: T) {
        self.put(key, Value::of(value));
    }

    /// Keeps a value that clones of the state share.
    pub fn write_shared<T: Send + Sync + 'static>(&self, key: &'static str, value: Arc<T>) {
        self.put(key, Value { data: value, copy: None });
    }

    fn put(&self, key: &'static str, value: Value) {
        let mut values = self.values.write().unwrap_or_else(PoisonError::into_inner);
        match values.iter_mut().find(|(known, _)| *known == key) {
            Some((_, known)) => *known = value,
            None => values.push((key, value)),
        }
    }

    /// The value under a key.
    ///
    /// # Errors
    ///
    /// There is none, or it is of another type.
    pub fn read<T: Send + Sync + 'static>(&self, key: &'static str) -> Result<Arc<T>, StateError> {
        let values = self.values.read().unwrap_or_else(PoisonError::into_inner);
        let found = values.iter().find(|(known, _)| *known == key);
        let (_, value) = found.ok_or(StateError::NotFound(key))?;
        value.data.clone().downcast().map_err(|_| StateError::OtherType(key))
    }

    /// Changes the value under a key, which `init` makes if there is none, and returns what
    /// `change` returns. No other thread reads or writes the state in between (`Lock`), so
    /// neither closure may use the state itself. Values read earlier do not
    /// change: a shared value is cloned first, also if clones of the state share it.
    ///
    /// ```
    /// use portolan::framework::CycleState;
    ///
    /// let state = CycleState::default();
    /// for _ in 0..2 {
    ///     state.update("Tries", || 0, |tries: &mut u32| *tries += 1)?;
    /// }
    /// assert_eq!(*state.read::<u32>("Tries")?, 2);
    /// # Ok::<(), portolan::framework::StateError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The value is of another type.
    pub fn update<T: Clone + Send + Sync + 'static, R>(
        &self,
        key: &'static str,
        init: impl FnOnce() -> T,
        change: impl FnOnce(&mut T) -> R,
    ) -> Result<R, StateError> {
        let mut values = self.values.write().unwrap_or_else(PoisonError::into_inner);
        let Some((_, value)) = values.iter_mut().find(|(known, _)| *known == key) else {
            let mut new = init();
            let changed = change(&mut new);
            values.push((key, Value::of(new)));
            return Ok(changed);
        };
        if let Some(data) = Arc::get_mut(&mut value.data) {
            return data.downcast_mut().map(change).ok_or(StateError::OtherType(key));
        }
        let shared = value.data.downcast_ref::<T>().ok_or(StateError::OtherType(key))?;
        let mut own = shared.clone();
        let changed = change(&mut own);
        value.data = Arc::new(own);
        Ok(changed)
    }

    /// Forgets the value under a key; whether there was one.
    pub fn delete(&self, key: &'static str) -> bool {
        let mut values = self.values.write().unwrap_or_else(PoisonError::into_inner);
        let before = values.len();
        values.retain(|(known, _)| *known != key);
        values.len() < before
    }
}

impl Clone for CycleState {
    fn clone(&self) -> CycleState {
        let values = self.values.read().unwrap_or_else(PoisonError::into_inner);
        let copies = values.iter().map(|(key, value)| match value.copy {
            None => (*key, value.clone()),
            Some(copy) => (*key, Value { data: copy(&value.data), copy: value.copy }),
        });
        CycleState {
            values: RwLock::new(copies.collect()),
            is_recorded: self.is_recorded,
            started: self.started,
        }
    }
}

impl fmt::Debug for CycleState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let values = self.values.read().unwrap_or_else(PoisonError::into_inner);
        f.debug_set().entries(values.iter().map(|(key, _)| key)).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_update_of_two_threads_is_lost() {
        let state = CycleState::default();
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    for _ in 0..1_000 {
                        state.update("n", || 0_u32, |n| *n += 1).unwrap();
                    }
                });
            }
        });
        assert_eq!(state.read::<u32>("n").as_deref(), Ok(&2_000));
    }

    #[test]
    fn an_update_leaves_what_was_read_and_copied_before() {
        let state = CycleState::default();
        state.write_shared("names", Arc::new(vec!["a"]));
        let (read, copy) = (state.read::<Vec<&str>>("names").unwrap(), state.clone());
        state.update("names", Vec::new, |names: &mut Vec<&str>| names.push("b")).unwrap();
        assert_eq!(
            (&**read, &**copy.read::<Vec<&str>>("names").unwrap()),
            (&["a"][..], &["a"][..])
        );
        assert_eq!(**state.read::<Vec<&str>>("names").unwrap(), ["a", "b"]);
        let other = state.update("names", || 0_u8, |_| ());
        assert_eq!(other, Err(StateError::OtherType("names")));
    }
}
