//! The backoff of pods after failed attempts (backend/queue/backoff_queue.go).

use std::time::Duration;

use crate::framework::QueuedPod;
use crate::model::Timestamp;

/// The configuration of a queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueConfig {
    /// The backoff after the first failure; it doubles with each further failure (`podInitialBackoffSeconds`).
    pub initial_backoff: Duration,
    /// The longest backoff; zero disables backoff (`podMaxBackoffSeconds`).
    pub max_backoff: Duration,
    /// How long an unschedulable pod waits for an event before it is retried anyway
    /// (`podMaxInUnschedulablePodsDuration`).
    pub unschedulable_timeout: Duration,
    /// How often the queue searches for pods that waited for that long.
    pub leftover_period: Duration,
    /// Whether a pod in backoff is popped early when no pod is active (`SchedulerPopFromBackoffQ`). Pods whose backoff
    /// ends in the same second are then ordered by the queue sort plugin.
    pub pop_from_backoff: bool,
    /// How long a pod group that timed out is held if nothing about it changes.
    pub group_retry: Duration,
    /// Whether a pod that leaves a node wakes only pods that this node then accepts, at least without the pods that
    /// they may preempt there. Kube-scheduler has no such check: it tries more pods, and thereby renews their messages.
    pub checks_left_nodes: bool,
}

impl Default for QueueConfig {
    /// The defaults of kube-scheduler (1 s, 10 s, 5 min, every 30 s, early pops enabled, no check of nodes), and 5 min
    /// for groups that timed out.
    fn default() -> QueueConfig {
        QueueConfig {
            initial_backoff: Duration::from_secs(1),
            max_backoff: Duration::from_secs(10),
            unschedulable_timeout: Duration::from_secs(300),
            leftover_period: Duration::from_secs(30),
            pop_from_backoff: true,
            group_retry: Duration::from_secs(300),
            checks_left_nodes: false,
        }
    }
}

/// Backoffs that end within the same window are ordered as equal.
const WINDOW: i64 = 1_000_000_000;

pub(super) fn nanoseconds(duration: Duration) -> i64 {
    i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX)
}

impl QueueConfig {
    /// Returns the start of the window that contains a time.
    pub(super) fn window(&self, at: Timestamp) -> Timestamp {
        match self.pop_from_backoff {
            true => Timestamp(at.0.saturating_sub(at.0.rem_euclid(WINDOW))),
            false => at,
        }
    }

    /// Returns when a failed pod's backoff ends, or `None` if the pod need not wait. The backoff is counted from the
    /// pod's return to the queue.
    pub(super) fn backoff(&self, pod: &QueuedPod) -> Option<Timestamp> {
        let failures = match (pod.group_failures, pod.consecutive_errors) {
            (0, 0) => pod.unschedulable_count,
            (0, errors) => errors,
            (group, _) => group,
        };
        let max = nanoseconds(self.max_backoff);
        if failures == 0 || max == 0 {
            return None;
        }
        let initial = nanoseconds(self.initial_backoff);
        let shift = failures - 1;
        let longest = max.checked_shr(shift).unwrap_or(0);
        let duration =
            if initial > longest { max } else { initial.checked_shl(shift).unwrap_or_default() };
        Some(self.window(Timestamp(pod.queued.0.saturating_add(duration))))
    }

    /// Returns whether a backoff that expires at `expires` is not over yet. The backoff is over only when the whole
    /// window of `expires` has passed.
    pub(super) fn is_ahead(&self, expires: Timestamp, now: Timestamp) -> bool {
        expires >= self.window(now)
    }

    /// Returns the first time at which the backoff is over.
    pub(super) fn end(&self, expires: Timestamp) -> Timestamp {
        let rest = if self.pop_from_backoff { WINDOW } else { 1 };
        Timestamp(expires.0.saturating_add(rest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Generation, pod};

    fn failed(unschedulable: u32, errors: u32) -> QueuedPod {
        let at = Timestamp::from_millis(1_700);
        let mut queued = QueuedPod::new(pod("a").build(), at, Generation::ZERO);
        (queued.unschedulable_count, queued.consecutive_errors) = (unschedulable, errors);
        queued
    }

    #[test]
    fn backoff_doubles_up_to_its_limit() {
        let config = QueueConfig { pop_from_backoff: false, ..QueueConfig::default() };
        let seconds =
            |n| config.backoff(&failed(n, 0)).map(|at| (at.0 - 1_700_000_000) as f64 / 1e9);
        let expected = [None, Some(1.0), Some(2.0), Some(4.0), Some(8.0), Some(10.0), Some(10.0)];
        assert_eq!([0, 1, 2, 3, 4, 5, 99].map(seconds), expected);
    }

    #[test]
    fn consecutive_errors_count_instead_of_earlier_rejections() {
        let config = QueueConfig { pop_from_backoff: false, ..QueueConfig::default() };
        assert_eq!(config.backoff(&failed(4, 1)), config.backoff(&failed(1, 0)));
    }

    #[test]
    fn backoff_ends_with_a_window_of_a_second() {
        let config = QueueConfig::default();
        let expires = config.backoff(&failed(1, 0)).unwrap();
        assert_eq!(expires, Timestamp::from_secs(2));
        assert!(config.is_ahead(expires, Timestamp::from_millis(2_999)));
        assert!(!config.is_ahead(expires, config.end(expires)));
        assert_eq!(config.end(expires), Timestamp::from_secs(3));
    }

    #[test]
    fn a_limit_of_zero_disables_backoff() {
        let config = QueueConfig { max_backoff: Duration::ZERO, ..QueueConfig::default() };
        assert_eq!(config.backoff(&failed(3, 3)), None);
    }

    #[test]
    fn an_initial_backoff_above_the_limit_is_capped() {
        let config = QueueConfig {
            initial_backoff: Duration::from_secs(60),
            pop_from_backoff: false,
            ..QueueConfig::default()
        };
        assert_eq!(config.backoff(&failed(1, 0)), Some(Timestamp::from_millis(11_700)));
    }
}
