//! What Gödel's annotations make of pods that come.

use std::borrow::Cow;

use crate::model::{Pod, PodState, Template};

use super::super::godel::GodelConfig;
use super::Draft;

impl Draft {
    /// Counts pods in Gödel's states from now on. Nothing is placed yet.
    pub(crate) fn count_states(&mut self, config: GodelConfig) {
        self.cluster.godel = Some(triomphe::Arc::new(config));
    }

    /// The pod as it counts: one that a scheduler of our type has assumed, on the node
    /// that it was assumed or nominated to; a bound one without what led there.
    pub(crate) fn as_placed<'p>(&self, pod: &'p Pod) -> Cow<'p, Pod> {
        let (Some(config), Some(godel)) = (&self.cluster.godel, &pod.template.godel) else {
            return Cow::Borrowed(pod);
        };
        match pod.state() {
            Ok(PodState::Bound) if godel.is_unbound() => {
                let mut spec = (**pod.template).clone();
                spec.godel = godel.as_ref().clone().bound();
                Cow::Owned(Pod { template: Template::new(spec), ..pod.clone() })
            }
            Ok(PodState::Assumed) if pod.is_for(&config.scheduler_type) => match pod.placed_on() {
                Some(node) => Cow::Owned(pod.clone().on(node.clone())),
                None => Cow::Borrowed(pod),
            },
            _ => Cow::Borrowed(pod),
        }
    }
}
