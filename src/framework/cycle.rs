//! One pod's scheduling cycle: the input of every plugin, and the data that plugins pass to each other
//! (`framework/cycle_state.go`).

use std::any::Any;
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

use crate::model::Pod;
use crate::snapshot::Cluster;

/// The input of one scheduling cycle: the version of the cluster, the pod, and the state that plugins share. Cheap to
/// copy.
#[derive(Clone, Copy)]
pub struct Cycle<'a> {
    /// The version of the cluster: its nodes, and the stores of all other objects.
    pub cluster: &'a Cluster,
    /// The pod to schedule.
    pub pod: &'a Pod,
    /// The data that plugins keep from one extension point to the next.
    pub state: &'a CycleState,
}

impl<'a> Cycle<'a> {
    /// Creates the cycle of a pod on this version.
    #[must_use]
    pub fn new(cluster: &'a Cluster, pod: &'a Pod, state: &'a CycleState) -> Cycle<'a> {
        Cycle { cluster, pod, state }
    }
}

type Data = Arc<dyn Any + Send + Sync>;

/// A value, and how to copy it when its state is cloned. A value without `copy` is shared.
#[derive(Clone)]
struct Value {
    data: Data,
    copy: Option<fn(&Data) -> Data>,
}

impl Value {
    /// Creates a value that is copied when its state is cloned.
    fn of<T: Clone + Send + Sync + 'static>(value: T) -> Value {
        let copy = |data: &Data| match data.downcast_ref::<T>() {
            Some(value) => Arc::new(value.clone()) as Data,
            None => data.clone(),
        };
        Value { data: Arc::new(value), copy: Some(copy) }
    }
}

/// Typed values by key, which live as long as one pod's scheduling cycle.
///
/// Filters and scores hold their own data (see [`Plugin::pre_filter`](super::Plugin::pre_filter)). The state carries
/// data from one extension point to another. Several threads may read and write it at once. Creating one does not
/// allocate.
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
    /// A handful of values at most, so a linear search is fastest.
    values: RwLock<Vec<(&'static str, Value)>>,
    /// Whether the durations of single plugins are recorded for this pod.
    pub(super) is_recorded: bool,
    /// When the cycle began; `None` without a recorder.
    started: Option<Instant>,
}

/// Why a value cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StateError {
    /// No value is stored under this key.
    #[error("no value is stored under {0}: write it first")]
    NotFound(&'static str),
    /// The value under this key has another type.
    #[error("the value under {0} has another type: read it as the type it was written as")]
    OtherType(&'static str),
}

impl CycleState {
    /// Creates the state of a cycle that begins now and reports to a recorder. With `is_recorded`, the durations of
    /// single plugins are recorded, too.
    pub(super) fn recorded(is_recorded: bool) -> CycleState {
        CycleState { is_recorded, started: Some(Instant::now()), ..CycleState::default() }
    }

    /// Returns the time since the cycle began, or `None` if no recorder is set.
    #[must_use]
    pub fn elapsed(&self) -> Option<Duration> {
        self.started.map(|started| started.elapsed())
    }

    /// Stores a value under a key, and replaces any value there. A clone of the state gets a clone of the value.
    pub fn write<T: Clone + Send + Sync + 'static>(&self, key: &'static str, value: T) {
        self.put(key, Value::of(value));
    }

    /// Stores a value that clones of the state share.
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

    /// Returns the value under a key.
    ///
    /// # Errors
    ///
    /// There is no value under the key, or it has another type.
    pub fn read<T: Send + Sync + 'static>(&self, key: &'static str) -> Result<Arc<T>, StateError> {
        let values = self.values.read().unwrap_or_else(PoisonError::into_inner);
        let found = values.iter().find(|(known, _)| *known == key);
        let (_, value) = found.ok_or(StateError::NotFound(key))?;
        value.data.clone().downcast().map_err(|_| StateError::OtherType(key))
    }

    /// Changes the value under a key and returns the result of `change`. If there is no value, `init` creates one. No
    /// other thread reads or writes the state in between (kube-scheduler's `Lock`), so neither closure may use the
    /// state itself. Values that were read earlier do not change: a value that is shared, also with clones of the
    /// state, is cloned first.
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
    /// The value has another type.
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

    /// Removes the value under a key, and returns whether there was one.
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
    fn concurrent_updates_are_not_lost() {
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
    fn update_does_not_change_earlier_reads_and_clones() {
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
