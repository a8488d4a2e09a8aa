//! Pods that wait for a permit (`framework/runtime/waiting_pods_map.go`).
//!
//! A pod for which a plugin returned [`Permit::Wait`](super::Permit::Wait) waits until each of these plugins allows it,
//! one of them rejects it, or the first of their timeouts expires. Whichever happens first decides; later calls have no
//! effect. Clocks are passed in.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::model::{Name, Pod, Timestamp, Uid};

use super::{Code, Status};

/// The longest time for which a plugin may make a pod wait.
const MAX_TIMEOUT: Duration = Duration::from_secs(15 * 60);

/// In the place of a plugin, the name that marks the status of pods whose queue was closed while they waited.
pub(crate) const CLOSED_QUEUE: &str = "SchedulingQueue";

/// How often a waiting thread checks whether its engine is still open.
const CHECK_PERIOD: Duration = Duration::from_millis(100);

/// The pods that wait for a permit. Shared between threads.
#[derive(Default)]
pub struct WaitingPods(Mutex<HashMap<Uid, Arc<WaitingPod>>>);

impl WaitingPods {
    fn pods(&self) -> MutexGuard<'_, HashMap<Uid, Arc<WaitingPod>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the pod with this uid if it waits.
    #[must_use]
    pub fn get(&self, uid: &Uid) -> Option<Arc<WaitingPod>> {
        self.pods().get(uid).cloned()
    }

    /// Returns all waiting pods, sorted by uid.
    #[must_use]
    pub fn all(&self) -> Vec<Arc<WaitingPod>> {
        let mut all: Vec<_> = self.pods().values().cloned().collect();
        all.sort_by_cached_key(|waiting| waiting.pod.uid.to_string());
        all
    }

    /// Rejects a pod that was deleted (`RejectWaitingPod`). Returns whether this call decided the outcome: `false` if
    /// the pod does not wait, or was already allowed or rejected.
    pub fn reject(&self, uid: &Uid) -> bool {
        self.get(uid).is_some_and(|waiting| waiting.reject("", "removed"))
    }

    /// Fails a pod with the status of [`CLOSED_QUEUE`] if it waits.
    pub(crate) fn close(&self, uid: &Uid) {
        if let Some(waiting) = self.get(uid) {
            waiting.close();
        }
    }

    /// Fails all pods that wait, with the status of [`CLOSED_QUEUE`].
    pub(crate) fn close_all(&self) {
        let waiting: Vec<_> = self.pods().values().cloned().collect();
        waiting.iter().for_each(|waiting| waiting.close());
    }

    pub(super) fn add(&self, waiting: WaitingPod) {
        self.pods().insert(waiting.pod.uid.clone(), Arc::new(waiting));
    }

    pub(super) fn remove(&self, uid: &Uid) {
        self.pods().remove(uid);
    }
}

impl fmt::Debug for WaitingPods {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.pods().keys()).finish()
    }
}

/// A pod that waits for the permits of plugins.
pub struct WaitingPod {
    pod: Pod,
    node: Name,
    since: Timestamp,
    state: Mutex<State>,
    decided: Condvar,
}

struct State {
    /// The plugins that have not allowed the pod yet, each with its deadline and its timeout, sorted by deadline.
    pending: Vec<(&'static str, Timestamp, Duration)>,
    outcome: Option<Result<(), Status>>,
}

impl WaitingPod {
    /// Creates a pod that waits for each of these plugins from `now` on.
    pub(super) fn new(
        pod: Pod,
        node: Name,
        now: Timestamp,
        plugins: Vec<(&'static str, Duration)>,
    ) -> WaitingPod {
        let pending = plugins.into_iter().map(|(plugin, timeout)| {
            let timeout = timeout.min(MAX_TIMEOUT);
            let nanos = i64::try_from(timeout.as_nanos()).unwrap_or(i64::MAX);
            (plugin, Timestamp(now.0.saturating_add(nanos)), timeout)
        });
        let mut pending: Vec<_> = pending.collect();
        pending.sort_by_key(|(plugin, until, _)| (*until, *plugin));
        let state = Mutex::new(State { pending, outcome: None });
        WaitingPod { pod, node, since: now, state, decided: Condvar::new() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the pod.
    #[must_use]
    pub fn pod(&self) -> &Pod {
        &self.pod
    }

    /// Returns the node on which the pod is assumed.
    #[must_use]
    pub fn node(&self) -> &Name {
        &self.node
    }

    /// Returns the time since when the pod has been waiting.
    #[must_use]
    pub(crate) fn since(&self) -> Timestamp {
        self.since
    }

    /// Returns the plugins that have not allowed the pod yet, sorted by deadline.
    #[must_use]
    pub fn pending_plugins(&self) -> Vec<&'static str> {
        self.state().pending.iter().map(|(plugin, _, _)| *plugin).collect()
    }

    /// Returns the earliest deadline of a pending plugin, or `None` if the outcome is decided.
    #[must_use]
    pub fn deadline(&self) -> Option<Timestamp> {
        let state = self.state();
        let first = state.pending.first().map(|(_, until, _)| *until);
        first.filter(|_| state.outcome.is_none())
    }

    /// Allows the pod on behalf of a plugin. Once no plugin is pending, the pod may be bound. Returns
    /// whether the permit counts, also if other plugins are still pending: `false` if the pod was already allowed or
    /// rejected.
    pub fn allow(&self, plugin: &str) -> bool {
        let mut state = self.state();
        state.pending.retain(|(known, _, _)| *known != plugin);
        match state.pending.is_empty() {
            true => self.decide(&mut state, Ok(())),
            false => state.outcome.is_none(),
        }
    }

    /// Returns whether all permits were given, so that the pod may already be bound.
    #[must_use]
    pub(crate) fn is_allowed(&self) -> bool {
        matches!(self.state().outcome, Some(Ok(())))
    }

    /// Rejects the pod on behalf of a plugin. Returns whether this call decided the outcome: `false` if the pod was
    /// already allowed or rejected. A pod that was allowed may already be bound, and must then be evicted instead.
    pub fn reject(&self, plugin: &'static str, why: impl Into<String>) -> bool {
        let status = Status::new(Code::Unschedulable, plugin, why);
        self.decide(&mut self.state(), Err(status))
    }

    /// Rejects the pod because its resources were given to another pod (`WaitingPod.Preempt`). Unlike a pod that
    /// [`WaitingPod::reject`] rejects, it does not wait for an event before its next attempt, so this is an error and
    /// not a rejection. Returns whether this call decided the outcome.
    pub(crate) fn preempt(&self, plugin: &'static str, why: impl Into<String>) -> bool {
        self.decide(&mut self.state(), Err(Status::error(plugin, why)))
    }

    fn close(&self) {
        self.preempt(CLOSED_QUEUE, "the scheduling queue is closed");
    }

    /// Sets the outcome if it is not decided yet, and returns whether it did.
    fn decide(&self, state: &mut State, outcome: Result<(), Status>) -> bool {
        let is_first = state.outcome.is_none();
        if is_first {
            state.outcome = Some(outcome);
            self.decided.notify_all();
        }
        is_first
    }

    /// Returns the outcome if it is decided at `now`.
    #[doc(hidden)]
    pub fn outcome(&self, now: Timestamp) -> Option<Result<(), Status>> {
        let mut state = self.state();
        self.outcome_in(&mut state, now)
    }

    fn outcome_in(&self, state: &mut State, now: Timestamp) -> Option<Result<(), Status>> {
        if state.outcome.is_none()
            && let Some((plugin, until, timeout)) = state.pending.first().copied()
            && until <= now
        {
            let why = format!(
                "rejected due to timeout after waiting {} at plugin {plugin}",
                go_duration(timeout)
            );
            self.decide(state, Err(Status::new(Code::Unschedulable, plugin, why)));
        }
        state.outcome.clone()
    }

    /// Blocks until the outcome is decided, by this clock. The pod fails when `is_open` returns `false`, whatever the
    /// clock reads.
    pub(super) fn wait_while(
        &self,
        clock: impl Fn() -> Timestamp,
        is_open: impl Fn() -> bool,
    ) -> Result<(), Status> {
        let mut state = self.state();
        loop {
            let now = clock();
            if let Some(outcome) = self.outcome_in(&mut state, now) {
                return outcome;
            }
            if !is_open() {
                self.decide(&mut state, Err(Status::error("", "the engine is closed")));
                continue;
            }
            let until = state.pending.first().map_or(now, |(_, until, _)| *until);
            let left = until.since(now).min(CHECK_PERIOD);
            let waited = self.decided.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

/// Formats a duration as Go does: `15m0s`, `1.5s`, `300ms`.
pub(crate) fn go_duration(duration: Duration) -> String {
    let nanos = duration.as_nanos();
    let decimal = |unit: u128, name: &str| {
        let text = format!("{}.{:0width$}", nanos / unit, nanos % unit, width = digits(unit));
        format!("{}{name}", text.trim_end_matches('0').trim_end_matches('.'))
    };
    match nanos {
        0 => "0s".to_owned(),
        1..1_000 => format!("{nanos}ns"),
        1_000..1_000_000 => decimal(1_000, "µs"),
        1_000_000..1_000_000_000 => decimal(1_000_000, "ms"),
        _ => {
            let (hours, minutes) = (nanos / 3_600_000_000_000, nanos / 60_000_000_000 % 60);
            let nanos = nanos % 60_000_000_000;
            let text = format!("{}.{:09}", nanos / 1_000_000_000, nanos % 1_000_000_000);
            let seconds = text.trim_end_matches('0').trim_end_matches('.');
            match (hours, minutes) {
                (0, 0) => format!("{seconds}s"),
                (0, _) => format!("{minutes}m{seconds}s"),
                _ => format!("{hours}h{minutes}m{seconds}s"),
            }
        }
    }
}

/// Returns the number of zeros of a power of ten.
fn digits(unit: u128) -> usize {
    unit.ilog10() as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::pod;

    fn waiting(plugins: &[(&'static str, u64)]) -> WaitingPod {
        let plugins = plugins.iter().map(|(name, secs)| (*name, Duration::from_secs(*secs)));
        WaitingPod::new(pod("p").build(), "n".into(), Timestamp::from_secs(100), plugins.collect())
    }

    #[test]
    fn every_pending_plugin_must_allow() {
        let waiting = waiting(&[("a", 20), ("b", 10)]);
        assert_eq!(waiting.pending_plugins(), ["b", "a"]);
        assert!(waiting.allow("a"));
        assert!(!waiting.is_allowed());
        assert_eq!(waiting.outcome(Timestamp::from_secs(101)), None);
        assert!(waiting.allow("b"));
        assert!(waiting.is_allowed());
        assert!(!waiting.allow("b"));
        assert!(!waiting.reject("b", "too late"));
        assert_eq!(waiting.outcome(Timestamp::from_secs(1_000)), Some(Ok(())));
        assert_eq!(waiting.deadline(), None);
    }

    #[test]
    fn first_decision_is_final() {
        let waiting = waiting(&[("a", 20), ("b", 10)]);
        assert!(waiting.reject("a", "no"));
        assert!(!waiting.allow("a") && !waiting.allow("b"));
        assert!(!waiting.reject("a", "no again"));
        let status = Status::new(Code::Unschedulable, "a", "no");
        assert_eq!(waiting.outcome(Timestamp::from_secs(1_000)), Some(Err(status.clone())));
        assert_eq!(waiting.wait_while(|| Timestamp::from_secs(0), || true), Err(status));
    }

    #[test]
    fn shortest_timeout_rejects_and_timeouts_are_limited_to_15_minutes() {
        let waiting = waiting(&[("long", 7_200), ("longer", 9_000)]);
        assert_eq!(waiting.deadline(), Some(Timestamp::from_secs(1_000)));
        assert_eq!(waiting.outcome(Timestamp::from_millis(999_999)), None);
        let why = "rejected due to timeout after waiting 15m0s at plugin long";
        let status = Status::new(Code::Unschedulable, "long", why);
        assert_eq!(waiting.outcome(Timestamp::from_secs(1_000)), Some(Err(status)));
    }

    #[test]
    fn permit_wakes_a_waiting_thread() {
        let waiting = waiting(&[("a", 20)]);
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| waiting.wait_while(|| Timestamp::from_secs(100), || true));
            waiting.allow("a");
            assert_eq!(waits.join().unwrap(), Ok(()));
        });
    }

    #[test]
    fn a_wait_ends_whatever_the_clock_reads() {
        let waiting = waiting(&[("a", 20)]);
        let (asked, is_asked) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| {
                let clock = || {
                    asked.send(()).unwrap();
                    Timestamp(i64::MIN)
                };
                waiting.wait_while(clock, || true)
            });
            // The waiting thread reads its clock under the lock, so the permit comes after it computed its timeout.
            is_asked.recv().unwrap();
            waiting.allow("a");
            assert_eq!(waits.join().unwrap(), Ok(()));
        });
    }

    #[test]
    fn durations_are_formatted_as_in_go() {
        for (nanos, text) in [
            (0, "0s"),
            (7, "7ns"),
            (1_500, "1.5µs"),
            (300_000_000, "300ms"),
            (1_000_000_000, "1s"),
            (1_050_000_000, "1.05s"),
            (90_000_000_000, "1m30s"),
            (5_400_500_000_000, "1h30m0.5s"),
        ] {
            assert_eq!(go_duration(Duration::from_nanos(nanos)), text);
        }
    }
}
