//! Bind: an extender or a plugin binds the pod, on a thread that may block or as a future.
//!
//! Extenders are asked first, then the plugins in their order. A future is used only if it gives the same result as the
//! calls that may block: no extender binds the pod, and the first Bind plugin offers a future, which always binds.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use crate::model::{Name, Pod};

use super::extender;
use super::recorder::{Measurement, Step, timed_step};
use super::runtime::Entry;
use super::{Bind, BinderError, BindingFuture, Code, Cycle, CycleState, Framework, Point, Status};

impl Bind {
    /// Converts the result of a binder that this plugin has called.
    pub(crate) fn of(plugin: &'static str, bound: Result<(), BinderError>) -> Result<Bind, Status> {
        match bound {
            Ok(()) => Ok(Bind::Bound),
            Err(BinderError::Conflict(why)) => Ok(Bind::Conflict(why)),
            Err(BinderError::Unknown(why)) => Ok(Bind::Unknown(why)),
            Err(BinderError::Refused(why)) => Ok(Bind::Refused(why)),
            Err(BinderError::Failed(why)) => Err(Status::error(plugin, why)),
        }
    }
}

impl Framework {
    /// Binds the pod with the first [extender](super::Extender) that binds it, or with the first plugin that does not
    /// skip it. May block.
    ///
    /// # Errors
    ///
    /// Returns the status of that extender or plugin if it rejects the pod or fails.
    #[doc(hidden)]
    pub fn bind(&self, cycle: Cycle<'_>, node: &Name) -> Result<Bind, Status> {
        if !self.handle().extenders().is_empty()
            && let Some(bound) = extender::bind(self.handle(), cycle.pod, node)
        {
            return bound;
        }
        let watch = self.watch(cycle);
        timed_step(self.recorder(), Step::Bind, outcome, || {
            for Entry { plugin, info, .. } in self.at(Point::Bind) {
                let name = info.name;
                match watch.ask((name, Step::Bind), outcome, || plugin.bind(cycle, node)) {
                    Ok(Bind::Skip) => {}
                    bound => return named(name, bound),
                }
            }
            Ok(Bind::Skip)
        })
    }

    /// Returns the binding of the pod as a future, or `None` if an extender or a plugin may block: call
    /// [`Framework::bind`] then. Sends nothing before the future is polled.
    #[must_use]
    pub(crate) fn request_bind(
        self: &Arc<Framework>,
        pod: &Arc<Pod>,
        node: &Name,
        state: &CycleState,
    ) -> Option<BindRequest> {
        if extender::is_bound_by_any(self.handle(), pod) {
            return None;
        }
        let Entry { plugin, info, .. } = self.at(Point::Bind).next()?;
        let name = info.name;
        let request = || plugin.request_bind(pod, node);
        let future = self.handle().panics().guard_or(name, Step::Bind.as_str(), None, request)?;
        Some(BindRequest {
            framework: self.clone(),
            plugin: name,
            future,
            is_recorded: state.records_plugin_metrics(),
            started: None,
        })
    }
}

/// The binding of a pod by a plugin, as a future. Panics of the plugin are caught and become its error.
#[must_use = "nothing is sent before the request is polled"]
pub(crate) struct BindRequest {
    framework: Arc<Framework>,
    plugin: &'static str,
    future: BindingFuture,
    /// Whether the durations of single plugins are recorded for this pod.
    is_recorded: bool,
    /// The time of the first poll.
    started: Option<Instant>,
}

impl BindRequest {
    /// Returns whether the request was polled, so that the pod may be bound.
    #[must_use]
    pub(crate) fn is_started(&self) -> bool {
        self.started.is_some()
    }
}

impl Future for BindRequest {
    type Output = Result<Bind, Status>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<Bind, Status>> {
        let BindRequest { framework, plugin, future, is_recorded, started } = self.get_mut();
        let started = started.get_or_insert_with(Instant::now);
        let poll = || Ok(future.as_mut().poll(context));
        let bound = match framework.handle().panics().guard(plugin, Step::Bind.as_str(), poll) {
            Ok(Poll::Pending) => return Poll::Pending,
            Ok(Poll::Ready(bound)) => Bind::of(plugin, bound),
            Err(status) => Err(status),
        };
        let took = started.elapsed();
        if let Some(recorder) = framework.recorder() {
            if *is_recorded {
                recorder.record(Measurement::Plugin(plugin, Step::Bind, outcome(&bound)), took);
            }
            let bound = named(plugin, bound);
            recorder.record(Measurement::Step(Step::Bind, outcome(&bound)), took);
            return Poll::Ready(bound);
        }
        Poll::Ready(named(plugin, bound))
    }
}

impl fmt::Debug for BindRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BindRequest").field("plugin", &self.plugin).finish_non_exhaustive()
    }
}

fn outcome(bound: &Result<Bind, Status>) -> Option<Code> {
    match bound {
        Ok(Bind::Bound) => None,
        Ok(Bind::Skip) => Some(Code::Skip),
        Ok(Bind::Conflict(_) | Bind::Unknown(_) | Bind::Refused(_)) => Some(Code::Error),
        Err(status) => Some(status.code),
    }
}

/// Adds the name of the plugin to the reason why it did not bind the pod.
fn named(plugin: &'static str, bound: Result<Bind, Status>) -> Result<Bind, Status> {
    let step = format_args!("running Bind plugin {plugin:?}");
    match bound {
        Ok(Bind::Conflict(why)) => Ok(Bind::Conflict(format!("{step}: {why}"))),
        Ok(Bind::Unknown(why)) => Ok(Bind::Unknown(format!("{step}: {why}"))),
        Ok(Bind::Refused(why)) => Ok(Bind::Refused(format!("{step}: {why}"))),
        Err(status) => Err(status.rejection_or(plugin, step)),
        bound => bound,
    }
}
