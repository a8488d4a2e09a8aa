//! Which profile is a pod's.

use crate::model::{Name, Pod};

/// Something for each profile, by the name of the scheduler that pods give. A pod
/// that gives none is for `default-scheduler`.
#[derive(Clone, Debug)]
pub struct Profiles<T>(Vec<(Name, T)>);

const DEFAULT: &str = "default-scheduler";

impl<T> Profiles<T> {
    /// One for all pods, whatever scheduler they name.
    pub fn one(all: T) -> Profiles<T> {
        Profiles(vec![("".into(), all)])
    }

    /// Each for the pods that name this scheduler. Of two of one name the first
    /// counts.
    pub fn by_name<N: Into<Name>>(profiles: impl IntoIterator<Item = (N, T)>) -> Profiles<T> {
        Profiles(profiles.into_iter().map(|(name, it)| (name.into(), it)).collect())
    }

    fn position(&self, pod: &Pod) -> Option<usize> {
        let wanted = pod.template.scheduler_name.as_deref().filter(|name| !name.is_empty());
        let wanted = wanted.unwrap_or(DEFAULT);
        self.0.iter().position(|(name, _)| name.is_empty() || **name == *wanted)
    }

    /// That of the pod; none if it is another scheduler's.
    #[must_use]
    pub fn get(&self, pod: &Pod) -> Option<&T> {
        self.position(pod).map(|at| &self.0[at].1)
    }

    /// That of the pod, to be changed.
    pub fn get_mut(&mut self, pod: &Pod) -> Option<&mut T> {
        self.position(pod).map(|at| &mut self.0[at].1)
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.0.iter().map(|(_, it)| it)
    }

    /// The same made of each.
    pub fn map<U>(&self, make: impl FnMut(&T) -> U) -> Profiles<U> {
        let mut make = make;
        Profiles(self.0.iter().map(|(name, it)| (name.clone(), make(it))).collect())
    }
}
