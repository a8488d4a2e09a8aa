//! The engine's log for the plugins of its schedulers.

use std::fmt;
use std::num::NonZeroUsize;

use crate::engine::{Engine, WeakEngine};
use crate::framework::{Follow, Notes};
use crate::log::Follower;
use crate::model::{NoNote, Note};

/// Lets plugins follow an engine's log ([`Handle::follow`](crate::plugin::Handle::follow)). Does not keep the engine
/// alive, so that a plugin that the engine owns through its commit check may have one.
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
        let follower = self.0.upgrade()?.with_writer(|writer| writer.follow_at_most(limit)).ok()?;
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
