//! One pod's scheduling cycle: the input of every plugin, and the data that plugins pass to each other
//! (`framework/cycle_state.go`).
//!
//! Changes take turns: a thread that changes the state, or has locked it, excludes the changes of other threads, and can
//! itself use the state meanwhile. Reads do not take turns, because filters read the state on many threads.

use std::any::Any;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

use crate::model::Pod;
use crate::snapshot::Cluster;

use super::turns::{Turn, Turns};

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
    /// `None` while the value is created or updated.
    data: Option<Data>,
    copy: Option<fn(&Data) -> Data>,
}

impl Value {
    /// Creates a value that is copied when its state is cloned.
    fn of<T: Clone + Send + Sync + 'static>(value: T) -> Value {
        Value { data: Some(Arc::new(value)), ..Value::missing::<T>() }
    }

    /// A value of this type that does not exist yet.
    fn missing<T: Clone + Send + Sync + 'static>() -> Value {
        let copy = |data: &Data| match data.downcast_ref::<T>() {
            Some(value) => Arc::new(value.clone()) as Data,
            None => data.clone(),
        };
        Value { data: None, copy: Some(copy) }
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
/// use portolan::plugin::{CycleState, StateError};
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
    turns: Turns,
    /// Whether the durations of single plugins are recorded for this pod. Relaxed: one call more or less may be
    /// recorded.
    records_plugins: AtomicBool,
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
    /// The value is being updated by this thread.
    #[error("the value under {0} is being updated: use the closure's argument")]
    Updating(&'static str),
}

/// Excludes the changes of other threads to a [`CycleState`] until it is dropped, see [`CycleState::lock`].
#[must_use = "dropping it unlocks the state"]
pub struct StateLock<'a>(#[expect(dead_code, reason = "held until it is dropped")] Turn<'a>);

impl fmt::Debug for StateLock<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StateLock")
    }
}

impl CycleState {
    /// Creates the state of a cycle that begins now and reports to a recorder. With `records_plugins`, the durations of
    /// single plugins are recorded, too.
    pub(super) fn recorded(records_plugins: bool) -> CycleState {
        let records_plugins = AtomicBool::new(records_plugins);
        CycleState { records_plugins, started: Some(Instant::now()), ..CycleState::default() }
    }

    /// Returns whether the durations of single plugins are recorded for this pod (`ShouldRecordPluginMetrics`): usually
    /// for a sample of the pods, see [`Framework::with_recorder`](super::Framework::with_recorder).
    #[doc(hidden)]
    #[must_use]
    pub fn records_plugin_metrics(&self) -> bool {
        self.records_plugins.load(Ordering::Relaxed)
    }

    /// Sets whether the durations of single plugins are recorded for this pod from now on (`SetRecordPluginMetrics`).
    /// Has no effect on a framework without a recorder.
    #[doc(hidden)]
    pub fn set_records_plugin_metrics(&self, records: bool) {
        self.records_plugins.store(records, Ordering::Relaxed);
    }

    /// Excludes the changes of other threads until the returned lock is dropped, to change several values together
    /// (kube-scheduler's `Lock` and `Unlock`). This thread can read, write, update and lock the state meanwhile. Other
    /// threads can read single values; to see all changes or none, they lock the state, too.
    ///
    /// Threads that the holder waits for must not change the state.
    ///
    /// ```
    /// use portolan::plugin::{CycleState, StateError};
    ///
    /// let state = CycleState::default();
    /// let lock = state.lock();
    /// state.write("Zones", 3);
    /// state.write("Racks", *state.read::<i32>("Zones")? * 4);
    /// drop(lock);
    /// assert_eq!(*state.read::<i32>("Racks")?, 12);
    /// # Ok::<(), StateError>(())
    /// ```
    pub fn lock(&self) -> StateLock<'_> {
        StateLock(self.turns.take())
    }

    /// Returns the time since the cycle began, or `None` if no recorder is set.
    #[doc(hidden)]
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
        self.put(key, Value { data: Some(value), copy: None });
    }

    fn put(&self, key: &'static str, value: Value) {
        let _turn = self.turns.take();
        let mut values = self.values.write().unwrap_or_else(PoisonError::into_inner);
        match values.iter_mut().find(|(known, _)| *known == key) {
            Some((_, known)) => *known = value,
            None => values.push((key, value)),
        }
    }

    /// Returns the value under a key. Waits while another thread updates it.
    ///
    /// # Errors
    ///
    /// There is no value under the key, it has another type, or this thread is updating it.
    pub fn read<T: Send + Sync + 'static>(&self, key: &'static str) -> Result<Arc<T>, StateError> {
        loop {
            let values = self.values.read().unwrap_or_else(PoisonError::into_inner);
            let found = values.iter().find(|(known, _)| *known == key);
            let (_, value) = found.ok_or(StateError::NotFound(key))?;
            if let Some(data) = &value.data {
                return data.clone().downcast().map_err(|_| StateError::OtherType(key));
            }
            drop(values);
            if self.turns.is_taken_here() {
                return Err(StateError::Updating(key));
            }
            drop(self.turns.take());
        }
    }

    /// Changes the value under a key and returns the result of `change`. If there is no value, `init` creates one. No
    /// other thread changes the state in between (kube-scheduler's `Lock`). Both closures may use the other values of
    /// the state. Values that were read earlier do not change: a value that is shared, also with clones of the state, is
    /// cloned first.
    ///
    /// ```
    /// use portolan::plugin::CycleState;
    ///
    /// let state = CycleState::default();
    /// for _ in 0..2 {
    ///     state.update("Tries", || 0, |tries: &mut u32| *tries += 1)?;
    /// }
    /// assert_eq!(*state.read::<u32>("Tries")?, 2);
    /// # Ok::<(), portolan::plugin::StateError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The value has another type, or is already being updated by this thread.
    pub fn update<T: Clone + Send + Sync + 'static, R>(
        &self,
        key: &'static str,
        init: impl FnOnce() -> T,
        change: impl FnOnce(&mut T) -> R,
    ) -> Result<R, StateError> {
        let _turn = self.turns.take();
        let mut taken = Taken { state: self, key, data: self.take_out::<T>(key)? };
        let data = taken.data.get_or_insert_with(|| Arc::new(init()));
        Ok(change(Arc::make_mut(data)))
    }

    /// Takes the value under a key out of the state, which keeps an entry without a value.
    fn take_out<T: Clone + Send + Sync + 'static>(
        &self,
        key: &'static str,
    ) -> Result<Option<Arc<T>>, StateError> {
        let mut values = self.values.write().unwrap_or_else(PoisonError::into_inner);
        let Some((_, value)) = values.iter_mut().find(|(known, _)| *known == key) else {
            values.push((key, Value::missing::<T>()));
            return Ok(None);
        };
        let data = value.data.take().ok_or(StateError::Updating(key))?;
        data.downcast().map(Some).map_err(|other| {
            value.data = Some(other);
            StateError::OtherType(key)
        })
    }

    /// Removes the value under a key, and returns whether there was one.
    pub fn delete(&self, key: &'static str) -> bool {
        let _turn = self.turns.take();
        let mut values = self.values.write().unwrap_or_else(PoisonError::into_inner);
        let before = values.len();
        values.retain(|(known, _)| *known != key);
        values.len() < before
    }
}

/// A value that was taken out of the state, and returns to it even if its update panics.
struct Taken<'a, T: Send + Sync + 'static> {
    state: &'a CycleState,
    key: &'static str,
    /// `None` until the value is created.
    data: Option<Arc<T>>,
}

impl<T: Send + Sync + 'static> Drop for Taken<'_, T> {
    fn drop(&mut self) {
        let mut values = self.state.values.write().unwrap_or_else(PoisonError::into_inner);
        // A value that was written or deleted during the update wins.
        let known =
            values.iter().position(|(known, value)| *known == self.key && value.data.is_none());
        match (known, self.data.take()) {
            (Some(at), Some(data)) => values[at].1.data = Some(data),
            (Some(at), None) => drop(values.swap_remove(at)),
            (None, _) => {}
        }
    }
}

impl Clone for CycleState {
    fn clone(&self) -> CycleState {
        // Waits for the updates of other threads. A value that this thread is updating is left out.
        let _turn = self.turns.take();
        let values = self.values.read().unwrap_or_else(PoisonError::into_inner);
        let copies = values.iter().filter_map(|(key, value)| {
            let data = value.data.as_ref()?;
            let data = value.copy.map_or_else(|| data.clone(), |copy| copy(data));
            Some((*key, Value { data: Some(data), copy: value.copy }))
        });
        CycleState {
            values: RwLock::new(copies.collect()),
            turns: Turns::default(),
            records_plugins: AtomicBool::new(self.records_plugin_metrics()),
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
        assert_eq!(**state.read::<Vec<&str>>("names").unwrap(), ["a", "b"]);
    }

    #[test]
    fn a_value_that_is_deleted_during_its_update_stays_deleted() {
        let state = CycleState::default();
        state.write("a", 1);
        state.update("a", || 0, |_: &mut i32| assert!(state.delete("a"))).unwrap();
        assert_eq!(state.read::<i32>("a"), Err(StateError::NotFound("a")));
        let deletes = |_: &mut i32| {
            state.delete("b");
            state.write("b", "text");
        };
        state.update("b", || 0, deletes).unwrap();
        assert_eq!(state.read::<&str>("b").as_deref(), Ok(&"text"));
    }

    #[test]
    fn an_update_can_use_the_other_values() {
        let state = CycleState::default();
        state.write("other", 3);
        state.write("sum", 0);
        let nested = state.update(
            "sum",
            || 0,
            |sum: &mut i32| {
                *sum = *state.read::<i32>("other").unwrap();
                state.write("written", *sum);
                state.update("other", || 0, |other: &mut i32| *other += 1).unwrap();
                (state.read::<i32>("sum"), state.update("sum", || 0, |_: &mut i32| ()))
            },
        );
        let (read, updated) = nested.unwrap();
        assert_eq!(read, Err(StateError::Updating("sum")));
        assert_eq!(updated, Err(StateError::Updating("sum")));
        let values = ["sum", "written", "other"].map(|key| *state.read::<i32>(key).unwrap());
        assert_eq!(values, [3, 3, 4]);
        // The creation of a value can use the state, too.
        state.update("new", || *state.read::<i32>("sum").unwrap(), |new| *new += 1).unwrap();
        assert_eq!(*state.read::<i32>("new").unwrap(), 4);
    }

    #[test]
    fn a_value_that_is_being_created_is_being_updated() {
        let state = CycleState::default();
        let nested = || state.update("new", || 1, |_| ());
        let create = |_: &mut i32| (nested(), state.read::<i32>("new"));
        let (updated, read) = state.update("new", || 0, create).unwrap();
        assert_eq!(updated, Err(StateError::Updating("new")));
        assert_eq!(read, Err(StateError::Updating("new")));
        assert_eq!(state.read::<i32>("new").as_deref(), Ok(&0));
        // A value that is written meanwhile wins, as during an update.
        state.update("written", || 0, |_: &mut i32| state.write("written", 5)).unwrap();
        assert_eq!(state.read::<i32>("written").as_deref(), Ok(&5));
        let fails = || state.update("none", || panic!("expected"), |_: &mut i32| ());
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(fails)).is_err());
        assert_eq!(state.read::<i32>("none"), Err(StateError::NotFound("none")));
    }

    #[test]
    fn a_value_survives_a_panic_of_its_update() {
        let state = CycleState::default();
        state.write("n", 1);
        let update = || state.update("n", || 0, |_: &mut i32| panic!("expected"));
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(update)).is_err());
        assert_eq!(state.read::<i32>("n").as_deref(), Ok(&1));
        state.update("n", || 0, |n: &mut i32| *n += 1).unwrap();
        assert_eq!(state.read::<i32>("n").as_deref(), Ok(&2));
    }

    #[test]
    fn several_values_change_together_under_a_lock() {
        let state = CycleState::default();
        state.write("a", 0);
        state.write("b", 0);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    for _ in 0..500 {
                        let _lock = state.lock();
                        let sum = *state.read::<i32>("a").unwrap() + 1;
                        state.write("a", sum);
                        // A lock can be taken again by its thread.
                        let _again = state.lock();
                        state.update("b", || 0, |b: &mut i32| *b += 1).unwrap();
                        assert_eq!(*state.read::<i32>("b").unwrap(), sum);
                    }
                });
            }
            scope.spawn(|| {
                for _ in 0..500 {
                    let _lock = state.lock();
                    let [a, b] = ["a", "b"].map(|key| *state.read::<i32>(key).unwrap());
                    assert_eq!(a, b);
                }
            });
        });
        assert_eq!(state.read::<i32>("a").as_deref(), Ok(&1_000));
    }

    #[test]
    fn other_threads_wait_for_a_value_that_is_updated() {
        let state = CycleState::default();
        state.write("n", 1);
        let (begun, has_begun) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                state.update(
                    "n",
                    || 0,
                    |n: &mut i32| {
                        begun.send(()).unwrap();
                        *n = 2;
                    },
                )
            });
            has_begun.recv().unwrap();
            assert_eq!(state.read::<i32>("n").as_deref(), Ok(&2));
        });
    }
}
