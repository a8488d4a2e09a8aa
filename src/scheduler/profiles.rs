//! Maps pods to scheduler profiles.

use crate::model::{Name, Pod};

/// One value for each profile, found by the scheduler name in a pod's spec. A pod without a scheduler name belongs to
/// `default-scheduler`.
#[derive(Clone, Debug)]
pub struct Profiles<T>(Vec<(Name, T)>);

impl<T> Profiles<T> {
    /// Uses one value for all pods, whatever scheduler they name.
    pub fn one(all: T) -> Profiles<T> {
        Profiles(vec![("".into(), all)])
    }

    /// Uses each value for the pods that name its scheduler. If a name occurs twice, the first value is used.
    pub fn by_name<N: Into<Name>>(profiles: impl IntoIterator<Item = (N, T)>) -> Profiles<T> {
        Profiles(profiles.into_iter().map(|(name, value)| (name.into(), value)).collect())
    }

    fn position(&self, pod: &Pod) -> Option<usize> {
        let wanted = pod.scheduler_name();
        self.0.iter().position(|(name, _)| name.is_empty() || **name == *wanted)
    }

    /// Returns the pod's value, or `None` if the pod belongs to another scheduler.
    #[must_use]
    pub fn get(&self, pod: &Pod) -> Option<&T> {
        self.position(pod).map(|at| &self.0[at].1)
    }

    /// Returns the pod's value mutably, or `None` if the pod belongs to another scheduler.
    pub fn get_mut(&mut self, pod: &Pod) -> Option<&mut T> {
        self.position(pod).map(|at| &mut self.0[at].1)
    }

    /// Iterates over the values of all profiles.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.0.iter().map(|(_, value)| value)
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.0.iter_mut().map(|(_, value)| value)
    }

    /// Applies a function to each value and keeps the names.
    pub fn map<U>(&self, make: impl FnMut(&T) -> U) -> Profiles<U> {
        let mut make = make;
        Profiles(self.0.iter().map(|(name, value)| (name.clone(), make(value))).collect())
    }
}
