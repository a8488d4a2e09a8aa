//! What Gödel's annotations make of pods that come.

use std::borrow::Cow;

use crate::model::{Pod, PodState, Template};

use super::super::godel::{GodelConfig, Stores};
use super::Draft;

impl Draft {
    /// Keeps Gödel's stores from now on. Nothing is placed yet.
    pub(crate) fn keep_stores(&mut self, config: GodelConfig) {
        self.cluster.godel = Some(triomphe::Arc::new(Stores::new(config)));
    }

    /// The stores, copied first where a version shares them.
    pub(super) fn stores(&mut self) -> Option<&mut Stores> {
        let stores = self.cluster.godel.as_mut()?;
        if !stores.is_unique() {
            // A table and two indexes of places.
            super::super::cost::copied::<Stores>(
                1 + 3 * usize::from(stores.reservations.is_some()),
            );
        }
        Some(triomphe::Arc::make_mut(stores))
    }

    /// The pod as it counts: one that a scheduler of our type has assumed, on the node
    /// that it was assumed or nominated to; a bound one without what led there.
    pub(crate) fn as_placed<'p>(&self, pod: &'p Pod) -> Cow<'p, Pod> {
        let (Some(stores), Some(godel)) = (&self.cluster.godel, &pod.template.godel) else {
            return Cow::Borrowed(pod);
        };
        match pod.state() {
            Ok(PodState::Bound) if godel.is_unbound() => {
                let mut spec = (**pod.template).clone();
                spec.godel = godel.as_ref().clone().bound();
                Cow::Owned(Pod { template: Template::new(spec), ..pod.clone() })
            }
            Ok(PodState::Assumed) if pod.is_for(&stores.config.scheduler_type) => {
                match pod.placed_on() {
                    Some(node) => Cow::Owned(pod.clone().on(node.clone())),
                    None => Cow::Borrowed(pod),
                }
            }
            _ => Cow::Borrowed(pod),
        }
    }
}
