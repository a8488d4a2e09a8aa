//! The order in which controllers create pods.

use std::fmt;
use std::sync::Arc;

use portolan::model::Name;

/// What must happen before a controller creates a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Prerequisite {
    /// The pods of the same namespace that must run first.
    pub pods: Arc<[Name]>,
    /// Whether these pods must have completed.
    pub is_completion: bool,
    /// The key of a label of nodes: the pod is restricted to nodes with the value that the node of the first pod has.
    pub topology: Option<Name>,
    /// The field or annotation that requires this.
    pub field: &'static str,
}

impl Prerequisite {
    pub(super) fn running(pods: Arc<[Name]>, field: &'static str) -> Prerequisite {
        Prerequisite { pods, is_completion: false, topology: None, field }
    }
}

impl fmt::Display for Prerequisite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verb = if self.is_completion { "complete" } else { "run" };
        match &*self.pods {
            [] => write!(f, "created after other pods {verb}"),
            [one] => write!(f, "created only after pod {one} {verb}s"),
            [first, others @ ..] => {
                let noun = if others.len() == 1 { "pod" } else { "pods" };
                write!(f, "created only after pod {first} and {} other {noun} {verb}", others.len())
            }
        }?;
        write!(f, " ({})", self.field)
    }
}
