//! Binds pods (defaultbinder/default_binder.go).

use std::sync::Arc;

use crate::framework::{
    Bind, Binder, BindingFuture, Cycle, Handle, Plugin, PluginInfo, Point, Status,
};
use crate::model::{Name, Pod};

/// Binds pods through the handle's [`Binder`].
#[derive(Clone)]
pub(crate) struct DefaultBinder(Option<Arc<dyn Binder>>);

const NAME: &str = "DefaultBinder";

impl DefaultBinder {
    /// Creates the plugin with this handle's binder.
    #[must_use]
    pub(crate) fn new(handle: &Handle) -> DefaultBinder {
        DefaultBinder(handle.binder().cloned())
    }
}

impl Plugin for DefaultBinder {
    fn info(&self) -> PluginInfo {
        PluginInfo::new(NAME, &[Point::Bind])
    }

    fn bind(&self, cycle: Cycle<'_>, node: &Name) -> Result<Bind, Status> {
        let Some(binder) = &self.0 else {
            let reason = "the handle has no binder: create the plugin from a handle with one";
            return Err(Status::error(NAME, reason));
        };
        Bind::of(NAME, binder.bind(cycle.pod, node))
    }

    fn request_bind(&self, pod: &Arc<Pod>, node: &Name) -> Option<BindingFuture> {
        self.0.as_ref()?.request(pod, node)
    }
}

impl std::fmt::Debug for DefaultBinder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(NAME)
    }
}
