//! One pod's scheduling cycle: the input of every plugin, and the data that plugins pass to each other
//! (`framework/cycle_state.go`).

use std::any::Any;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
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

/// Typed values by key, which live as long as one pod's scheduling cycle.
///
/// Filters and scores hold their own data (see [`Plugin::pre_filter`](super::Plugin::pre_filter)). The state carries
/// data from one extension point to another. Several threads may read and write it at once.
/// Clones share the values, and a decision that is tried and dropped has a clone: PreFilter must write a new value
/// rather than change one in place. Wrap a value that later steps change in place in a lock, such as a `Mutex`. Creating a state does not
/// allocate.
///
/// ```
/// use portolan::plugin::CycleState;
///
/// let state = CycleState::default();
/// state.write("Disks", vec![3, 4]);
///
/// let copy = state.clone();
/// copy.write("Disks", vec![5]);
/// assert_eq!(state.read::<Vec<i32>>("Disks").as_deref(), Some(&vec![3, 4]));
/// assert!(state.delete("Disks"));
/// assert!(state.read::<Vec<i32>>("Disks").is_none());
/// ```
#[derive(Default)]
pub struct CycleState {
    /// A handful of values at most, so a linear search is fastest.
    values: RwLock<Vec<(&'static str, Data)>>,
    /// Whether the durations of single plugins are recorded for this pod. Relaxed: one call more or less may be
    /// recorded.
    records_plugins: AtomicBool,
    /// When the cycle began; `None` without a recorder.
    started: Option<Instant>,
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

    /// Returns the time since the cycle began, or `None` if no recorder is set.
    #[doc(hidden)]
    #[must_use]
    pub fn elapsed(&self) -> Option<Duration> {
        self.started.map(|started| started.elapsed())
    }

    /// Stores a value under a key, and replaces any value there.
    pub fn write<T: Send + Sync + 'static>(&self, key: &'static str, value: T) {
        let value = Arc::new(value);
        let mut values = self.values.write().unwrap_or_else(PoisonError::into_inner);
        match values.iter_mut().find(|(known, _)| *known == key) {
            Some((_, known)) => *known = value,
            None => values.push((key, value)),
        }
    }

    /// Returns the value under a key. `None` if the key has no value, or a value of another type.
    #[must_use]
    pub fn read<T: Send + Sync + 'static>(&self, key: &'static str) -> Option<Arc<T>> {
        let values = self.values.read().unwrap_or_else(PoisonError::into_inner);
        let (_, value) = values.iter().find(|(known, _)| *known == key)?;
        value.clone().downcast().ok()
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
        CycleState {
            values: RwLock::new(values.clone()),
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
