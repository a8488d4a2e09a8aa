//! How long a pod is left alone after it was tried in vain (backend/queue/backoff_queue.go).

use std::time::Duration;

use crate::framework::QueuedPod;
use crate::model::Timestamp;

/// How pods queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueConfig {
    /// How long a pod is left alone after its first failure; it doubles with each
    /// (`podInitialBackoffSeconds`).
    pub initial_backoff: Duration,
    /// The longest time that a pod is left alone; zero is never
    /// (`podMaxBackoffSeconds`).
    pub max_backoff: Duration,
    /// How long an unschedulable pod waits for an event before it is tried all the
    /// same (`podMaxInUnschedulablePodsDuration`).
    pub unschedulable_timeout: Duration,
    /// How often those that waited that long are looked for.
    pub leftover_period: Duration,
    /// Whether a pod that is left alone is tried nevertheless when there is no other
    /// (`SchedulerPopFromBackoffQ`). Those whose time ends in the same second then go
    /// by the order of the queue.
    pub pop_from_backoff: bool,
    /// How long a pod group that timed out is left alone, if nothing of it changes.
    pub group_retry: Duration,
}

impl Default for QueueConfig {
    /// Kube-scheduler's: 1 s, 10 s, 5 min, every 30 s, tried when there is no other;
    /// and 5 min for groups that timed out.
    fn default() -> QueueConfig {
        QueueConfig {
            initial_backoff: Duration::from_secs(1),
            max_backoff: Duration::from_secs(10),
            unschedulable_timeout: Duration::from_secs(300),
            leftover_period: Duration::from_secs(30),
            pop_from_backoff: true,
            group_retry: Duration::from_secs(300),
        }
    }
}

/// Times within one are the same.
const WINDOW: i64 = 1_000_000_000;

pub(super) fn nanoseconds(of: Duration) -> i64 {
    i64::try_from(of.as_nanos()).unwrap_or(i64::MAX)
}

impl QueueConfig {
    /// The start of the window that a time is in.
    pub(super) fn window(&self, at: Timestamp) -> Timestamp {
        match self.pop_from_backoff {
            true => Timestamp(at.0.saturating_sub(at.0.rem_euclid(WINDOW))),
            false => at,
        }
    }

    /// When a pod that was tried in vain may be tried again; none where it need not
    /// wait. Counted from when it came back.
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

    /// Whether a time that backoff ends at is still to come. It is in the window
    /// itself: the whole of it must have passed.
    pub(super) fn is_ahead(&self, expires: Timestamp, now: Timestamp) -> bool {
        expires >= self.window(now)
    }

    /// The first time at which it is not.
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
    fn errors_in_a_row_count_and_not_the_rejections_before() {
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
    fn a_limit_of_zero_is_no_backoff() {
        let config = QueueConfig { max_backoff: Duration::ZERO, ..QueueConfig::default() };
        assert_eq!(config.backoff(&failed(3, 3)), None);
    }

    #[test]
    fn an_initial_backoff_above_the_limit_is_the_limit() {
        let config = QueueConfig {
            initial_backoff: Duration::from_secs(60),
            pop_from_backoff: false,
            ..QueueConfig::default()
        };
        assert_eq!(config.backoff(&failed(1, 0)), Some(Timestamp::from_millis(11_700)));
    }
}
