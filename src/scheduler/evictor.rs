//! An evictor that works without a cluster, for replays, simulations and tests.

use crate::engine::{Engine, WeakEngine};
use crate::framework::{Eviction, Evictor};
use crate::log::Event;

/// Removes victims from an engine's state at once, as if they had no grace period. Does not keep the engine alive.
#[derive(Clone, Debug)]
pub struct InMemoryEvictor(WeakEngine);

impl InMemoryEvictor {
    /// Creates an evictor for this engine.
    #[must_use]
    pub fn new(engine: Engine) -> InMemoryEvictor {
        InMemoryEvictor(engine.downgrade())
    }
}

impl From<&WeakEngine> for InMemoryEvictor {
    fn from(engine: &WeakEngine) -> InMemoryEvictor {
        InMemoryEvictor(engine.clone())
    }
}

impl Evictor for InMemoryEvictor {
    fn evict(&self, eviction: Eviction) {
        // Without an engine there are no resources to free.
        let Some(engine) = self.0.upgrade() else { return };
        let evicted = eviction.run(|victim| {
            let ticket =
                engine.submit(Event::remove_pod(victim)).map_err(|closed| closed.to_string())?;
            let outcome = ticket.wait().map_err(|closed| closed.to_string())?;
            outcome.map_err(|error| error.to_string())?;
            eviction.report_gone(victim);
            Ok(())
        });
        // A victim that no longer exists has freed its resources already. The preemptor is retried in any case and sees
        // the actual state.
        drop(evicted);
    }
}
