//! Shows a replay to others while it runs.

use std::sync::Arc;

use portolan::cache::Snapshot;
use portolan::model::Pod;

use crate::creation::Creation;
use crate::error::CommandError;
use crate::resource_claims::ClaimController;

/// Follows a replay.
pub(crate) trait Follower {
    /// The state lasts from `at` until `until`, or for ever: seconds since the first arrival in timed mode, and otherwise
    /// numbers of pods that have arrived. The replay waits for the return.
    fn lasts(
        &self,
        at: f64,
        until: Option<f64>,
        state: &dyn Fn() -> State,
    ) -> Result<(), CommandError>;
}

/// The cluster of a replay at a moment.
#[cfg_attr(not(feature = "cluster"), expect(dead_code))]
pub(crate) struct State {
    pub(crate) cluster: Arc<Snapshot>,
    /// The pods that have arrived and have no node, in order of arrival.
    pub(crate) pending: Vec<Pod>,
    pub(crate) claims: Option<ClaimController>,
    pub(crate) creation: Creation,
}
