//! What a candidate becomes when it is chosen.

use crate::framework::Eviction;
use crate::model::Pod;

use super::{Candidate, DefaultPreemption};

/// The eviction of a candidate's victims. Until it is over the preemptor does
/// not queue.
pub(super) fn start(
    plugin: &DefaultPreemption,
    preemptor: &Pod,
    candidate: Candidate,
    cleared: Vec<Pod>,
) -> Eviction {
    let (going_on, uid) = (plugin.going_on.clone(), preemptor.uid.clone());
    going_on.set().insert(uid.clone());
    let end = move || {
        going_on.set().remove(&uid);
    };
    let Candidate { node, victims, .. } = candidate;
    Eviction::new(&plugin.handle, preemptor.clone(), node, (victims, cleared), end)
}
