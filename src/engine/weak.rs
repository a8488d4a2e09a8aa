//! Weak handles, which do not keep their engine alive.

use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use crate::log::Log;

use super::Engine;
use super::shared::{Core, RegisteredSchedulers};

/// A weak handle to an engine.
///
/// Use it in components that the engine may own through its commit check, such as binders and evictors that share a
/// framework with the check. A strong [`Engine`] there would form a reference cycle.
///
/// ```
/// use portolan::cache::{Config, Engine};
///
/// let engine = Engine::shared(Config::default());
/// let weak = engine.downgrade();
/// assert!(weak.upgrade().is_some());
/// drop(engine);
/// assert!(weak.upgrade().is_none());
/// ```
#[derive(Clone)]
pub struct WeakEngine {
    log: Weak<Log<Core>>,
    schedulers: RegisteredSchedulers,
    sweep_period: Option<Duration>,
}

impl Engine {
    /// Returns a handle that does not keep the engine alive.
    #[must_use]
    pub fn downgrade(&self) -> WeakEngine {
        WeakEngine {
            log: Arc::downgrade(&self.log),
            schedulers: self.schedulers.clone(),
            sweep_period: self.sweep_period,
        }
    }
}

impl WeakEngine {
    /// Returns the engine, or `None` if it was dropped.
    #[must_use]
    pub fn upgrade(&self) -> Option<Engine> {
        let schedulers = self.schedulers.clone();
        let sweep_period = self.sweep_period;
        Some(Engine { log: self.log.upgrade()?, schedulers, sweep_period })
    }
}

impl fmt::Debug for WeakEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_alive = self.log.strong_count() > 0;
        f.debug_struct("WeakEngine").field("is_alive", &is_alive).finish()
    }
}
