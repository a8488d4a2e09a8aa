//! The stage of each pod of a workload. Targets report changes; operations and collectors wait for counts.
//!
//! Counts are kept as pods change, so that a waiting thread wakes up when its count is reached, and costs nothing
//! before.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::steps::{Labels, Stage};

/// The pods that a count concerns.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Filter {
    /// Namespaces, one of which contains the pod.
    pub(super) namespaces: BTreeSet<String>,
    /// Labels, all of which the pod has.
    pub(super) labels: Labels,
}

impl Filter {
    pub(super) fn of(namespace: &str, labels: &Labels) -> Filter {
        Filter { namespaces: [namespace.to_owned()].into(), labels: labels.clone() }
    }

    fn matches(&self, namespace: &str, labels: &Labels) -> bool {
        self.namespaces.contains(namespace)
            && self.labels.iter().all(|(name, value)| labels.get(name) == Some(value))
    }
}

/// A count of pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Counts {
    /// Pods that exist and have reached this stage.
    Present(Stage),
    /// Pods that were scheduled since the counter was opened, even if they are gone.
    Scheduled,
}

#[derive(Debug)]
struct Counter {
    id: u64,
    filter: Filter,
    counts: Counts,
    have: usize,
    /// The count at which waiting threads wake up.
    want: usize,
    /// When the count last grew.
    grew: Option<Instant>,
}

#[derive(Clone, Debug)]
struct Known {
    labels: Arc<Labels>,
    stage: Stage,
}

#[derive(Debug, Default)]
struct State {
    pods: HashMap<String, HashMap<String, Known>>,
    counters: Vec<Counter>,
    next: u64,
    failure: Option<String>,
}

/// A count that was not reached.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Missed {
    /// The time ran out. Contains the count that was reached, and a pod that is missing.
    Late { have: usize, pending: Option<String> },
    /// The target no longer works.
    Failed(String),
}

/// The pods of a running workload.
#[derive(Debug, Default)]
pub(super) struct Board {
    state: Mutex<State>,
    changed: Condvar,
}

/// A count of scheduled pods, which ends when it is dropped.
#[derive(Debug)]
pub(super) struct ScheduledCount<'b> {
    board: &'b Board,
    id: u64,
}

impl Board {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a pod, or replaces its labels. A known pod keeps its stage if that is later.
    pub(super) fn put(&self, namespace: &str, name: &str, labels: Arc<Labels>, stage: Stage) {
        let mut state = self.lock();
        let pods = state.pods.entry(namespace.to_owned()).or_default();
        let stage = pods.get(name).map_or(stage, |known| known.stage.max(stage));
        let new = Known { labels, stage };
        let old = pods.insert(name.to_owned(), new.clone());
        self.recount(state, namespace, old.as_ref(), Some(&new));
    }

    /// Records that a pod has reached a stage. Unknown pods and earlier stages are ignored.
    pub(super) fn advance(&self, namespace: &str, name: &str, stage: Stage) {
        let mut state = self.lock();
        let known = state.pods.get_mut(namespace).and_then(|pods| pods.get_mut(name));
        let Some(known) = known.filter(|known| known.stage < stage) else { return };
        let old = known.clone();
        known.stage = stage;
        let new = known.clone();
        self.recount(state, namespace, Some(&old), Some(&new));
    }

    /// Records that a pod is gone.
    pub(super) fn remove(&self, namespace: &str, name: &str) {
        let mut state = self.lock();
        let old = state.pods.get_mut(namespace).and_then(|pods| pods.remove(name));
        self.recount(state, namespace, old.as_ref(), None);
    }

    /// Wakes up all waiting threads: no pod will be scheduled any more.
    pub(super) fn fail(&self, why: String) {
        self.lock().failure.get_or_insert(why);
        self.changed.notify_all();
    }

    fn recount(
        &self,
        mut state: MutexGuard<'_, State>,
        namespace: &str,
        old: Option<&Known>,
        new: Option<&Known>,
    ) {
        let mut is_reached = false;
        for counter in &mut state.counters {
            let filter = &counter.filter;
            let is_matched = |pod: &Known| filter.matches(namespace, &pod.labels);
            let (was, is) = match counter.counts {
                Counts::Present(stage) => {
                    let is_counted = |pod: &Known| pod.stage >= stage && is_matched(pod);
                    (old.is_some_and(is_counted), new.is_some_and(is_counted))
                }
                Counts::Scheduled => {
                    let is_scheduled = |pod: &Known| pod.stage == Stage::Scheduled;
                    let was = old.is_some_and(is_scheduled);
                    let is = new.is_some_and(|pod| is_scheduled(pod) && is_matched(pod));
                    // The count never decreases.
                    (false, is && !was)
                }
            };
            match (was, is) {
                (false, true) => {
                    counter.have += 1;
                    counter.grew = Some(Instant::now());
                    is_reached |= counter.have == counter.want;
                }
                (true, false) => counter.have -= 1,
                _ => {}
            }
        }
        drop(state);
        if is_reached {
            self.changed.notify_all();
        }
    }

    fn open(&self, filter: &Filter, counts: Counts, want: usize) -> u64 {
        let mut state = self.lock();
        let have = match counts {
            Counts::Scheduled => 0,
            Counts::Present(stage) => {
                matching(&state, filter).filter(|(.., pod)| pod.stage >= stage).count()
            }
        };
        state.next += 1;
        let id = state.next;
        let filter = filter.clone();
        state.counters.push(Counter { id, filter, counts, have, want, grew: None });
        id
    }

    fn close(&self, id: u64) {
        self.lock().counters.retain(|counter| counter.id != id);
    }

    /// Waits until this many existing pods have reached a stage.
    pub(super) fn wait(
        &self,
        filter: &Filter,
        stage: Stage,
        want: usize,
        time_limit: Duration,
    ) -> Result<(), Missed> {
        let id = self.open(filter, Counts::Present(stage), want);
        let waited = self.wait_for(id, want, Instant::now() + time_limit);
        let pending = || {
            let state = self.lock();
            let mut pods = matching(&state, filter);
            let pod = pods.find(|(.., pod)| pod.stage < stage);
            pod.map(|(namespace, name, _)| format!("{namespace}/{name}"))
        };
        let waited = waited.map_err(|missed| match missed {
            Missed::Late { have, .. } => Missed::Late { have, pending: pending() },
            failed => failed,
        });
        self.close(id);
        waited
    }

    fn wait_for(&self, id: u64, want: usize, deadline: Instant) -> Result<(), Missed> {
        let mut state = self.lock();
        loop {
            let counter = state.counters.iter_mut().find(|counter| counter.id == id);
            let Some(counter) = counter else { return Ok(()) };
            counter.want = want;
            if counter.have >= want {
                return Ok(());
            }
            let have = counter.have;
            if let Some(why) = &state.failure {
                return Err(Missed::Failed(why.clone()));
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(Missed::Late { have, pending: None });
            }
            let woken = self.changed.wait_timeout(state, left);
            state = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Starts to count scheduled pods.
    pub(super) fn count_scheduled(&self, filter: &Filter) -> ScheduledCount<'_> {
        ScheduledCount { board: self, id: self.open(filter, Counts::Scheduled, usize::MAX) }
    }

    /// The names of the pods of a namespace with these labels, in order.
    pub(super) fn names(&self, namespace: &str, labels: &Labels) -> Vec<String> {
        let state = self.lock();
        let filter = Filter::of(namespace, labels);
        let mut names: Vec<String> =
            matching(&state, &filter).map(|(_, name, _)| name.to_owned()).collect();
        names.sort_unstable();
        names
    }
}

fn matching<'s>(
    state: &'s State,
    filter: &'s Filter,
) -> impl Iterator<Item = (&'s str, &'s str, &'s Known)> {
    let namespaces = filter.namespaces.iter().filter_map(|name| state.pods.get_key_value(name));
    let pods = namespaces.flat_map(|(namespace, pods)| {
        pods.iter().map(move |(name, pod)| (&**namespace, &**name, pod))
    });
    pods.filter(|(namespace, _, pod)| filter.matches(namespace, &pod.labels))
}

impl ScheduledCount<'_> {
    /// The pods scheduled so far, and when the last one was.
    pub(super) fn read(&self) -> (usize, Option<Instant>) {
        let state = self.board.lock();
        let counter = state.counters.iter().find(|counter| counter.id == self.id);
        counter.map_or((0, None), |counter| (counter.have, counter.grew))
    }

    /// Waits until this many pods were scheduled.
    pub(super) fn wait(&self, want: usize, deadline: Instant) -> Result<(), Missed> {
        self.board.wait_for(self.id, want, deadline)
    }
}

impl Drop for ScheduledCount<'_> {
    fn drop(&mut self) {
        self.board.close(self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(name: &str) -> Arc<Labels> {
        Arc::new([("app".to_owned(), name.to_owned())].into())
    }

    #[test]
    fn counts_follow_stages_labels_and_removals() {
        let board = Board::default();
        let filter = Filter::of("a", &labels("x"));
        let count = board.count_scheduled(&filter);
        board.put("a", "p1", labels("x"), Stage::Pending);
        board.put("a", "p2", labels("y"), Stage::Pending);
        board.put("b", "p1", labels("x"), Stage::Scheduled);
        assert_eq!(count.read().0, 0);
        board.advance("a", "p1", Stage::Attempted);
        board.advance("a", "p2", Stage::Scheduled);
        assert_eq!(count.read().0, 0, "p2 has other labels");
        let wait = |stage, want| board.wait(&filter, stage, want, Duration::ZERO);
        assert_eq!(wait(Stage::Attempted, 1), Ok(()));
        let pending = Some("a/p1".to_owned());
        assert_eq!(wait(Stage::Scheduled, 1), Err(Missed::Late { have: 0, pending }));
        board.advance("a", "p1", Stage::Scheduled);
        board.advance("a", "p1", Stage::Attempted);
        assert_eq!((count.read().0, wait(Stage::Scheduled, 1)), (1, Ok(())));
        board.remove("a", "p1");
        let late = Missed::Late { have: 0, pending: None };
        assert_eq!((count.read().0, wait(Stage::Scheduled, 1)), (1, Err(late)));
        // A label that a scheduled pod gets later does not make it newly scheduled.
        board.put("a", "p2", labels("x"), Stage::Pending);
        assert_eq!((count.read().0, wait(Stage::Scheduled, 1)), (1, Ok(())));
        assert_eq!(board.names("a", &labels("x")), ["p2"]);
    }

    #[test]
    fn a_waiting_thread_wakes_up_at_its_count_and_when_the_target_fails() {
        let board = Board::default();
        let filter = Filter::of("a", &Labels::new());
        let wait = || board.wait(&filter, Stage::Scheduled, 2, Duration::from_secs(600));
        std::thread::scope(|scope| {
            let waiting = scope.spawn(wait);
            board.put("a", "p1", labels("x"), Stage::Scheduled);
            board.put("a", "p2", labels("x"), Stage::Scheduled);
            assert_eq!(waiting.join().expect("no panic"), Ok(()));
            board.remove("a", "p1");
            let waiting = scope.spawn(wait);
            board.fail("gone".to_owned());
            assert_eq!(waiting.join().expect("no panic"), Err(Missed::Failed("gone".to_owned())));
        });
    }
}
