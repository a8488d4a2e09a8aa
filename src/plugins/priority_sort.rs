//! The queue sort order (queuesort/priority_sort.go).

use std::cmp::Ordering;

use crate::framework::{Plugin, PluginInfo, Point, QueuedPod};

/// Orders pods by descending priority and then by the time at which they were queued. The pods of a group all rank by
/// its first pod.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PrioritySort;

impl Plugin for PrioritySort {
    fn info(&self) -> PluginInfo {
        PluginInfo::new("PrioritySort", &[Point::QueueSort])
    }

    fn compare(&self, one: &QueuedPod, other: &QueuedPod) -> Ordering {
        let priority = |queued: &QueuedPod| queued.pod.template.priority;
        priority(other).cmp(&priority(one)).then(one.ranked().cmp(&other.ranked()))
    }

    fn sort_key(&self, pod: &QueuedPod) -> Option<[i64; 2]> {
        Some([-i64::from(pod.pod.template.priority), pod.ranked().0])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Generation, Timestamp, pod};

    #[test]
    fn higher_priority_comes_first_and_then_the_older_pod() {
        let queued = |priority, at| {
            let pod = pod("p").priority(priority).build();
            QueuedPod::new(pod, Timestamp(at), Generation::ZERO)
        };
        let compare = |a: QueuedPod, b: QueuedPod| {
            let compared = PrioritySort.compare(&a, &b);
            let by_key = PrioritySort.sort_key(&a).cmp(&PrioritySort.sort_key(&b));
            assert_eq!(compared, by_key, "the key and the comparison agree");
            compared
        };
        assert_eq!(compare(queued(10, 9), queued(1, 1)), Ordering::Less);
        assert_eq!(compare(queued(-1, 1), queued(0, 9)), Ordering::Greater);
        assert_eq!(compare(queued(3, 1), queued(3, 2)), Ordering::Less);
        assert_eq!(compare(queued(3, 2), queued(3, 2)), Ordering::Equal);
    }
}
