//! A binder that works without a cluster, for replays, simulations and tests.

use std::fmt;
use std::sync::Arc;

use crate::engine::{Engine, WeakEngine};
use crate::framework::{Binder, BinderError};
use crate::model::{Name, Pod};

/// Returns why a pod must not be bound, or `None` if it may be.
type Refusal = dyn Fn(&Pod, &Name) -> Option<String> + Send + Sync;

/// Binds pods in an engine's state. Each pod is confirmed on its node at once, as if the cluster had reported it there.
/// A pod that is no longer assumed is refused. Does not keep the engine alive.
#[derive(Clone)]
pub struct InMemoryBinder {
    engine: WeakEngine,
    refuses: Option<Arc<Refusal>>,
}

impl InMemoryBinder {
    /// Creates a binder for this engine.
    #[must_use]
    pub fn new(engine: Engine) -> InMemoryBinder {
        InMemoryBinder { engine: engine.downgrade(), refuses: None }
    }

    /// Makes the binder fail whenever `refuses` returns a reason, to test how callers handle failed bindings.
    #[doc(hidden)]
    #[must_use]
    pub fn refusing(
        self,
        refuses: impl Fn(&Pod, &Name) -> Option<String> + Send + Sync + 'static,
    ) -> InMemoryBinder {
        InMemoryBinder { refuses: Some(Arc::new(refuses)), ..self }
    }
}

impl Binder for InMemoryBinder {
    fn bind(&self, pod: &Pod, node: &Name) -> Result<(), BinderError> {
        if let Some(why) = self.refuses.as_ref().and_then(|refuses| refuses(pod, node)) {
            return Err(why.into());
        }
        let bound = Pod { nominated_node_name: None, ..pod.clone() }.on(node.clone());
        let engine = self.engine.upgrade();
        let engine =
            engine.ok_or("the engine is gone: keep a handle to it while pods are being bound")?;
        let confirmed = engine.with_writer(|writer| {
            // An API server refuses to bind a deleted pod in the same way.
            if !writer.cluster().pod(&pod.uid).is_some_and(|pod| pod.is_assumed()) {
                return Err(BinderError::Conflict(format!("pods {:?} not found", pod.name)));
            }
            let added = writer.add_pod(bound).map_err(|error| error.to_string().into());
            writer.publish();
            added.map(drop)
        });
        confirmed.unwrap_or_else(|closed| Err(closed.to_string().into()))
    }
}

impl fmt::Debug for InMemoryBinder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InMemoryBinder").field("refuses", &self.refuses.is_some()).finish()
    }
}
