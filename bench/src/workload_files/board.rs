//! The stage of each pod of a workload. The target reports changes; operations and collectors wait for counts.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
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

#[derive(Clone, Debug)]
struct Known {
    labels: Arc<Labels>,
    stage: Stage,
}

/// A pod that was scheduled. It may be gone.
#[derive(Debug)]
struct Scheduled {
    at: Instant,
    namespace: String,
    labels: Arc<Labels>,
}

#[derive(Debug, Default)]
struct State {
    pods: HashMap<String, HashMap<String, Known>>,
    /// In the order of their times.
    scheduled: Vec<Scheduled>,
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

/// The time between two looks at a count, and between two reads of the server's record of writes.
pub(super) const LOOK: Duration = Duration::from_millis(5);

/// The pods of a running workload.
#[derive(Debug, Default)]
pub(super) struct Board(Mutex<State>);

impl Board {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a pod, or replaces its labels. A known pod keeps its stage if that is later.
    pub(super) fn put(&self, namespace: &str, name: &str, labels: Arc<Labels>, stage: Stage) {
        let mut state = self.lock();
        let pods = state.pods.entry(namespace.to_owned()).or_default();
        let new = Known { labels: labels.clone(), stage: Stage::Pending };
        let known = pods.entry(name.to_owned()).or_insert(new);
        known.labels = labels;
        state.advance(namespace, name, stage);
    }

    /// Records that a pod has reached a stage. Unknown pods and earlier stages are ignored.
    pub(super) fn advance(&self, namespace: &str, name: &str, stage: Stage) {
        self.lock().advance(namespace, name, stage);
    }

    /// Records that a pod is gone.
    pub(super) fn remove(&self, namespace: &str, name: &str) {
        if let Some(pods) = self.lock().pods.get_mut(namespace) {
            pods.remove(name);
        }
    }

    /// Ends all waits: no pod will be scheduled any more.
    pub(super) fn fail(&self, why: String) {
        self.lock().failure.get_or_insert(why);
    }

    /// Waits until this many existing pods have reached a stage.
    pub(super) fn wait(
        &self,
        filter: &Filter,
        stage: Stage,
        want: usize,
        time_limit: Duration,
    ) -> Result<(), Missed> {
        let present =
            |state: &State| state.matching(filter).filter(|(.., pod)| pod.stage >= stage).count();
        self.until(want, Instant::now() + time_limit, present).map_err(|missed| {
            let Missed::Late { have, .. } = missed else { return missed };
            let state = self.lock();
            let pending = state.matching(filter).find(|(.., pod)| pod.stage < stage);
            let pending = pending.map(|(namespace, name, _)| format!("{namespace}/{name}"));
            Missed::Late { have, pending }
        })
    }

    /// Looks at a count until it is large enough.
    fn until(
        &self,
        want: usize,
        deadline: Instant,
        mut count: impl FnMut(&State) -> usize,
    ) -> Result<(), Missed> {
        loop {
            let state = self.lock();
            let have = count(&state);
            if have >= want {
                return Ok(());
            }
            if let Some(why) = &state.failure {
                return Err(Missed::Failed(why.clone()));
            }
            drop(state);
            if Instant::now() >= deadline {
                return Err(Missed::Late { have, pending: None });
            }
            thread::sleep(LOOK);
        }
    }

    /// Starts to count scheduled pods.
    pub(super) fn count_scheduled(&self, filter: Filter) -> ScheduledCount<'_> {
        let seen = self.lock().scheduled.len();
        ScheduledCount { board: self, filter, seen, have: 0, last: None }
    }

    /// The names of the pods of a namespace with these labels, in order.
    pub(super) fn names(&self, namespace: &str, labels: &Labels) -> Vec<String> {
        let filter = Filter::of(namespace, labels);
        let state = self.lock();
        let mut names: Vec<String> =
            state.matching(&filter).map(|(_, name, _)| name.to_owned()).collect();
        names.sort_unstable();
        names
    }
}

impl State {
    fn advance(&mut self, namespace: &str, name: &str, stage: Stage) {
        let known = self.pods.get_mut(namespace).and_then(|pods| pods.get_mut(name));
        let Some(known) = known.filter(|known| known.stage < stage) else { return };
        known.stage = stage;
        if stage == Stage::Scheduled {
            let (namespace, labels) = (namespace.to_owned(), known.labels.clone());
            self.scheduled.push(Scheduled { at: Instant::now(), namespace, labels });
        }
    }

    fn matching<'s>(
        &'s self,
        filter: &'s Filter,
    ) -> impl Iterator<Item = (&'s str, &'s str, &'s Known)> {
        let namespaces = filter.namespaces.iter().filter_map(|name| self.pods.get_key_value(name));
        let pods = namespaces.flat_map(|(namespace, pods)| {
            pods.iter().map(move |(name, pod)| (&**namespace, &**name, pod))
        });
        pods.filter(|(namespace, _, pod)| filter.matches(namespace, &pod.labels))
    }
}

/// A count of the pods that are scheduled after its start, even if they are gone.
#[derive(Debug)]
pub(super) struct ScheduledCount<'b> {
    board: &'b Board,
    filter: Filter,
    /// The number of scheduled pods that were looked at.
    seen: usize,
    have: usize,
    last: Option<Instant>,
}

impl ScheduledCount<'_> {
    /// The pods scheduled so far, and when the last one was.
    pub(super) fn read(&mut self) -> (usize, Option<Instant>) {
        let board = self.board;
        self.look(&board.lock());
        (self.have, self.last)
    }

    /// Waits until this many pods were scheduled.
    pub(super) fn wait(&mut self, want: usize, deadline: Instant) -> Result<(), Missed> {
        self.board.until(want, deadline, |state| self.look(state))
    }

    fn look(&mut self, state: &State) -> usize {
        for pod in &state.scheduled[self.seen..] {
            if self.filter.matches(&pod.namespace, &pod.labels) {
                self.have += 1;
                self.last = Some(pod.at);
            }
        }
        self.seen = state.scheduled.len();
        self.have
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
        let mut count = board.count_scheduled(filter.clone());
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
    fn a_wait_ends_at_its_count_and_when_the_target_fails() {
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
