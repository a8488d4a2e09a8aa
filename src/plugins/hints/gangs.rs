//! GangScheduling: new pods of a group, and changes of the group.

use crate::model::{Object, Pod, PodGroup};

use super::{Actions, ClusterEvent, EventResource, Hint, Interest, any, on};

pub(in crate::plugins) const EVENTS: &[Interest] = &[
    on(EventResource::PODS, Actions::ADD),
    on(&[EventResource::PodGroup], any(&[Actions::ADD, Actions::UPDATE])),
];

/// Queues the pod if another pod of its group was added, if the group was added, or if the group needs fewer pods than
/// before.
pub(in crate::plugins) fn completed(pod: &Pod, event: &ClusterEvent<'_>) -> Hint {
    if let Some(added) = event.pod() {
        let same = added.new.as_ref().is_some_and(|new| new.group() == pod.group());
        return Hint::queue_if(pod.group().is_some() && same);
    }
    let (old, new) = event.object();
    let wanted = |group: &PodGroup| group.has(pod).then(|| group.wanted());
    let Some(new) = new.and_then(group_of).and_then(wanted) else { return Hint::Skip };
    Hint::queue_if(old.and_then(group_of).is_none_or(|old| new < old.wanted()))
}

fn group_of(object: &Object) -> Option<&PodGroup> {
    match object {
        Object::PodGroup(group) => Some(group),
        _ => None,
    }
}
