//! The engine's log for the plugins of its schedulers.

use std::fmt;
use std::num::NonZeroUsize;

use crate::engine::{Engine, WeakEngine};
use crate::framework::{Follow, Notes};
use crate::log::Follower;
use crate::model::{NoNote, Note};

/// Lets plugins follow an engine's log ([`Handle::follow`](crate::framework::Handle::follow)). Does not keep the engine
/// alive, so that a plugin that the engine owns through its commit check may have one.
///
/// ```
/// use std::num::NonZeroUsize;
/// use std::sync::Arc;
/// use portolan::framework::Handle;
/// use portolan::log::Event;
/// use portolan::model::node;
/// use portolan::scheduler::EngineLog;
/// use portolan::{Config, Engine};
///
/// let engine = Engine::shared(Config::default());
/// let handle = Handle::default().with_log(Arc::new(EngineLog::new(&engine)));
/// let notes = handle.follow(NonZeroUsize::MIN).ok_or("the engine is alive")?;
/// engine.submit(Event::add_node(node("n1").build()))?.wait()??;
/// assert_eq!(notes.try_next()?.generation.0, 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub(crate) struct EngineLog(WeakEngine);

impl EngineLog {
    /// Wraps the log of an engine.
    #[must_use]
    pub(crate) fn new(engine: &Engine) -> EngineLog {
        EngineLog(engine.downgrade())
    }
}

impl Follow for EngineLog {
    fn follow(&self, limit: NonZeroUsize) -> Option<Box<dyn Notes>> {
        let follower = self.0.upgrade()?.follow_at_most(limit).ok()?;
        Some(Box::new(follower))
    }
}

impl Notes for Follower {
    fn try_next(&self) -> Result<Note, NoNote> {
        Follower::try_next(self)
    }
}

impl fmt::Debug for EngineLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("EngineLog").field(&self.0).finish()
    }
}
