//! The eviction of a preemptor's victims (`framework/preemption/executor.go`).

use std::collections::HashSet;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::model::{Name, Pod, Uid};

use super::{Handle, PodInPreBind, WaitingPod};

/// The name of the plugin that preempts pods.
pub(crate) const PREEMPTION: &str = "DefaultPreemption";

/// Evicts the victims of preemption, for instance through the API server.
pub trait Evictor: Send + Sync {
    /// Starts an eviction. The implementation calls [`Eviction::run`] on this thread or another one. The preemptor is
    /// not requeued until the last victim is evicted, or the eviction is dropped.
    fn evict(&self, eviction: Eviction);
}

impl<E: Evictor + ?Sized> Evictor for Arc<E> {
    fn evict(&self, eviction: Eviction) {
        (**self).evict(eviction);
    }
}

/// The victims to evict from a node so that a preemptor fits there.
pub struct Eviction {
    preemptor: Pod,
    node: Name,
    victims: Vec<Pod>,
    cleared: Vec<Pod>,
    handle: Handle,
    /// Called when the preemptor may be requeued; `None` afterwards.
    end: Mutex<Option<Box<dyn FnOnce() + Send>>>,
    /// Whether [`Eviction::finish`] reported success. An eviction that panics or is dropped early never succeeds.
    succeeded: AtomicBool,
    /// Whether no deletion may follow that would requeue the preemptor.
    needs_retry: AtomicBool,
    /// The victims that return to the queue.
    withdrawn: Mutex<Vec<Uid>>,
    /// The victims of this eviction whose deletion was not requested yet.
    left: Mutex<HashSet<Uid>>,
    /// The victims that another eviction deletes.
    others: Vec<Uid>,
}

impl Eviction {
    /// Creates the eviction of `victims`. `end` is called before the last victim is evicted, since its deletion must
    /// find the preemptor ready to be requeued, or when the eviction is dropped.
    ///
    /// A victim counts as terminating from now on, until the log reports that it is terminating or gone, or until the
    /// eviction is dropped without success. A victim that another eviction of this handle deletes is left to that one.
    #[doc(hidden)]
    #[must_use]
    pub fn new(
        handle: &Handle,
        preemptor: Pod,
        node: Name,
        victims: Vec<Pod>,
        end: impl FnOnce() + Send + 'static,
    ) -> Eviction {
        let end = Mutex::new(Some(Box::new(end) as Box<dyn FnOnce() + Send>));
        let (handle, cleared) = (handle.clone(), Vec::new());
        let (succeeded, needs_retry) = (AtomicBool::new(false), AtomicBool::new(false));
        let withdrawn = Mutex::default();
        let running = victims.iter().filter(|victim| victim.deletion_time.is_none());
        let (left, others): (HashSet<Uid>, HashSet<Uid>) = running
            .map(|victim| victim.uid.clone())
            .partition(|victim| handle.being_evicted().begin(victim, &preemptor.uid));
        Eviction {
            preemptor,
            node,
            victims,
            cleared,
            handle,
            end,
            succeeded,
            needs_retry,
            withdrawn,
            left: Mutex::new(left),
            others: others.into_iter().collect(),
        }
    }

    fn left(&self) -> MutexGuard<'_, HashSet<Uid>> {
        self.left.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the pods that have lost their nomination to the node ([`Eviction::cleared`]).
    #[doc(hidden)]
    #[must_use]
    pub fn clearing(mut self, pods: Vec<Pod>) -> Eviction {
        self.cleared = pods;
        self
    }

    /// Returns the pod that preempts the victims.
    #[must_use]
    pub fn preemptor(&self) -> &Pod {
        &self.preemptor
    }

    /// Returns the node that the victims are evicted from.
    #[must_use]
    pub fn node(&self) -> &Name {
        &self.node
    }

    /// Returns the victims, the most important one first.
    #[must_use]
    pub fn victims(&self) -> &[Pod] {
        &self.victims
    }

    /// Returns the pods of lower priority that have lost their nomination to the node. Retrying them may find another
    /// node sooner.
    #[must_use]
    pub fn cleared(&self) -> &[Pod] {
        &self.cleared
    }

    /// Returns the message of the `DisruptionTarget` condition that the victims get.
    #[must_use]
    pub fn message(&self) -> String {
        let scheduler = self.preemptor.scheduler_name();
        format!("{scheduler}: preempting to accommodate a higher priority pod")
    }

    /// Calls `evict` for each victim that is not terminating yet, and for the last one only if all other calls
    /// succeeded. A call that succeeds counts as [`Eviction::report_deleting`]. Victims that are not bound yet are
    /// [withdrawn](Eviction::withdraw) instead.
    ///
    /// # Errors
    ///
    /// Returns the first error of `evict`.
    pub fn run(&self, mut evict: impl FnMut(&Pod) -> Result<(), String>) -> Result<(), String> {
        let mut run = || {
            let Some((last, others)) = self.begin() else { return Ok(()) };
            let mut evict = |victim: &Pod| {
                if self.withdraw(victim) {
                    return Ok(());
                }
                evict(victim)?;
                self.report_deleting(victim);
                Ok(())
            };
            let mut failed = Ok(());
            for victim in others {
                failed = failed.and(evict(victim));
            }
            failed?;
            self.ungate();
            evict(last)
        };
        let evicted = run();
        self.finish(evicted.as_ref().map(drop));
        evicted
    }

    /// Begins an eviction without [`Eviction::run`], for example to evict several victims concurrently. Returns the
    /// last victim and the others, without those that are terminating already or that another eviction deletes, or
    /// `None` if no victim is left.
    ///
    /// The caller then
    ///
    /// 1. evicts the other victims in any order, except those that [`Eviction::withdraw`] withdraws, and calls
    ///    [`Eviction::report_deleting`] for each deletion that was accepted,
    /// 2. if all succeeded, prepares the last victim, calls [`Eviction::ungate`], and deletes it,
    /// 3. calls [`Eviction::finish`].
    #[must_use]
    pub fn begin(&self) -> Option<(&Pod, Vec<&Pod>)> {
        let uids = self.left();
        let is_left = |victim: &&Pod| uids.contains(&victim.uid);
        let mut left: Vec<&Pod> = self.victims.iter().filter(is_left).collect();
        left.pop().map(|last| (last, left))
    }

    /// Reports that the deletion of a victim was accepted: the victim counts as terminating until the log reports its
    /// end, even if the eviction fails later.
    pub fn report_deleting(&self, victim: &Pod) {
        self.left().remove(&victim.uid);
    }

    /// Reports that the log knows of a victim's end: it is not evicted, and no longer counts because of this eviction.
    pub(crate) fn report_gone(&self, victim: &Pod) {
        self.report_deleting(victim);
        self.end(&victim.uid);
    }

    /// Ends the eviction of a victim, and requests attempts for the other preemptors that needed it.
    fn end(&self, victim: &Uid) {
        let others = self.handle.being_evicted().end(victim);
        others.into_iter().for_each(|uid| self.handle.activations().request(uid));
    }

    /// Withdraws a victim that waits for a permit or is in PreBind: it returns to the queue. A victim that was rejected
    /// before frees its resources anyway, and counts as withdrawn. Returns `false` if the victim has to be evicted: it
    /// is bound, or may be bound already.
    #[must_use]
    pub fn withdraw(&self, victim: &Pod) -> bool {
        let uid = &victim.uid;
        let stops_waiting = |waiting: Arc<WaitingPod>| {
            waiting.preempt(PREEMPTION, "preempted") || !waiting.is_allowed()
        };
        let cancels = |pod: Arc<PodInPreBind>| pod.cancel(&format!("preempted by {PREEMPTION}"));
        let is_withdrawn = self.handle.waiting_pods().get(uid).is_some_and(stops_waiting)
            || self.handle.pod_in_pre_bind(uid).is_some_and(cancels);
        if is_withdrawn {
            self.left().remove(uid);
            self.end(uid);
            self.withdrawn.lock().unwrap_or_else(PoisonError::into_inner).push(uid.clone());
        }
        is_withdrawn
    }

    /// Returns whether the event that frees a withdrawn victim's resources may have been submitted already.
    fn may_be_freed(&self, uid: &Uid) -> bool {
        // In this order: a binding cycle enters PreBind before its pod stops waiting.
        match self.handle.pod_in_pre_bind(uid) {
            Some(pod) => pod.is_forgetting(),
            None => self.handle.waiting_pods().get(uid).is_none(),
        }
    }

    /// Ungates the preemptor, so that it can be requeued. Call it right before the last victim is deleted: an earlier
    /// attempt would preempt again, and the deletion must find the preemptor ready. Let the queue process waiting
    /// events first ([`QueueFront::catch_up`](crate::scheduler::queue::QueueFront::catch_up)): an event that it
    /// processes later may requeue the preemptor too early.
    pub fn ungate(&self) {
        let end = self.end.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(end) = end {
            end();
        }
    }

    /// Reports the result of the eviction. Unless an eviction succeeds, the preemptor is tried again when the eviction
    /// is dropped and the preemptor's backoff is over.
    pub fn finish(&self, result: Result<(), &String>) {
        // Relaxed: only the destructor reads it, through `&mut self`, so every store happens before.
        self.succeeded.store(result.is_ok(), Ordering::Relaxed);
        trace_event!(
            DEBUG,
            preemptor = %self.preemptor.key(),
            node = %self.node,
            victims = self.victims.len(),
            error = result.err(),
            "victims evicted"
        );
    }

    /// Requests an attempt for the preemptor when the eviction is dropped. Call it if a victim was gone already: its
    /// deletion may have been reported while the preemptor could not be queued, and no other may follow.
    pub fn retry(&self) {
        // Relaxed: only the destructor reads it, through `&mut self`, so every store happens before.
        self.needs_retry.store(true, Ordering::Relaxed);
    }
}

impl Drop for Eviction {
    fn drop(&mut self) {
        self.ungate();
        // The event that frees a withdrawn victim's resources requeues the preemptor, unless it came while the
        // preemptor was gated.
        let withdrawn = self.withdrawn.get_mut().unwrap_or_else(PoisonError::into_inner);
        let withdrawn = std::mem::take(withdrawn);
        // The same holds for the end of victims that another eviction deletes.
        let has_ended = |uid: &Uid| !self.handle.being_evicted().contains(uid);
        let may_have_missed =
            withdrawn.iter().any(|uid| self.may_be_freed(uid)) || self.others.iter().any(has_ended);
        if !*self.succeeded.get_mut() {
            let left = std::mem::take(&mut *self.left());
            left.iter().for_each(|uid| self.end(uid));
        }
        if *self.needs_retry.get_mut() || may_have_missed {
            self.handle.activations().request(self.preemptor.uid.clone());
        } else if !*self.succeeded.get_mut() {
            // At once, an eviction that always fails would be tried without a pause.
            self.handle.activations().request_after_backoff(self.preemptor.uid.clone());
        }
    }
}

impl fmt::Debug for Eviction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Eviction")
            .field("preemptor", &self.preemptor.uid)
            .field("node", &self.node)
            .field("victims", &self.victims.len())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::pod;

    /// Withdraws a victim in PreBind, and returns whether the end of the eviction requests an attempt.
    fn is_retried(before: impl FnOnce(&crate::framework::InPreBind)) -> bool {
        let handle = Handle::default();
        let low = pod("low").build();
        let in_pre_bind = handle.enter_pre_bind(&low.uid);
        let victims = vec![low.clone()];
        let eviction = Eviction::new(&handle, pod("high").build(), "n".into(), victims, || {});
        assert!(eviction.withdraw(&low));
        eviction.finish(Ok(()));
        before(&in_pre_bind);
        drop(eviction);
        !handle.activations().take().is_empty()
    }

    #[test]
    fn a_preemptor_that_may_have_missed_the_end_of_its_victim_is_retried() {
        assert!(!is_retried(|_| {}), "the victim's end queues it");
        assert!(is_retried(|in_pre_bind| in_pre_bind.begin_forget()));
    }

    /// Takes the requested attempts: each pod, and whether it backs off first.
    fn requested(handle: &Handle) -> Vec<(String, bool)> {
        let requests = handle.activations().take().into_iter();
        requests.map(|request| (request.uid.to_string(), request.backs_off)).collect()
    }

    fn eviction(handle: &Handle, preemptor: &str, victims: &[&str]) -> Eviction {
        let victims = victims.iter().map(|name| pod(*name).build()).collect();
        Eviction::new(handle, pod(preemptor).build(), "n".into(), victims, || {})
    }

    #[test]
    fn a_victim_of_two_preemptors_is_evicted_once_and_both_learn_of_a_failure() {
        let handle = Handle::default();
        let first = eviction(&handle, "first", &["low"]);
        let second = eviction(&handle, "second", &["low"]);
        assert_eq!(second.run(|_| panic!("the other eviction deletes it")), Ok(()));
        drop(second);
        assert_eq!(requested(&handle), []);
        drop(first);
        let expected = [("default/second".to_owned(), false), ("default/first".to_owned(), true)];
        assert_eq!(requested(&handle), expected);
    }

    #[test]
    fn a_preemptor_that_may_have_missed_the_end_of_another_evictions_victim_is_retried() {
        let handle = Handle::default();
        let first = eviction(&handle, "first", &["low"]);
        let second = eviction(&handle, "second", &["low"]);
        assert_eq!(first.run(|_| Ok(())), Ok(()));
        drop(first);
        second.finish(Ok(()));
        // The log reports the end while the second preemptor is gated.
        drop(handle.being_evicted().end(&pod("low").build().uid));
        assert_eq!(requested(&handle), []);
        drop(second);
        assert_eq!(requested(&handle), [("default/second".to_owned(), false)]);
    }

    #[test]
    fn an_evictor_that_panics_ends_the_eviction_of_the_victims_that_are_left() {
        let handle = Handle::default();
        let run = || {
            eviction(&handle, "high", &["a", "b", "c"]).run(|victim| {
                assert!(&*victim.name != "b", "expected");
                Ok(())
            })
        };
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(run)).is_err());
        let counts = |name| handle.being_evicted().contains(&pod(name).build().uid);
        assert_eq!(["a", "b", "c"].map(counts), [true, false, false]);
        assert_eq!(requested(&handle), [("default/high".to_owned(), true)]);
    }

    #[test]
    fn a_victim_that_was_withdrawn_keeps_no_preemptor_waiting() {
        let handle = Handle::default();
        let low = pod("low").build();
        let _in_pre_bind = handle.enter_pre_bind(&low.uid);
        let eviction = eviction(&handle, "high", &["low"]);
        assert!(handle.being_evicted().awaits(&low.uid, &Uid::new("default/other")));
        assert!(eviction.withdraw(&low));
        assert!(!handle.being_evicted().contains(&low.uid));
        assert_eq!(requested(&handle), [("default/other".to_owned(), false)]);
        // A later eviction of the same pod is not ended by this one.
        let _later = self::eviction(&handle, "later", &["low"]);
        drop(eviction);
        assert!(handle.being_evicted().contains(&low.uid));
    }

    #[test]
    fn a_victim_counts_until_its_end_if_the_eviction_succeeded() {
        let handle = Handle::default();
        let low = pod("low").build();
        let eviction = eviction(&handle, "high", &["low"]);
        eviction.finish(Ok(()));
        drop(eviction);
        assert!(handle.being_evicted().contains(&low.uid));
        // Its end is reported by the log, or by the evictor.
        self::eviction(&handle, "other", &["low"]).report_gone(&low);
        assert!(!handle.being_evicted().contains(&low.uid));
    }

    #[test]
    fn a_preemptor_is_ungated_right_before_the_last_victim_is_evicted() {
        let handle = Handle::default();
        let is_ungated = Arc::new(AtomicBool::new(false));
        let end = is_ungated.clone();
        let victims = ["a", "b"].map(|name| pod(name).build()).to_vec();
        let preemptor = pod("high").build();
        let end = move || end.store(true, Ordering::Relaxed);
        let eviction = Eviction::new(&handle, preemptor, "n".into(), victims, end);
        let mut seen = Vec::new();
        let evicted = eviction.run(|victim| {
            seen.push((victim.name.to_string(), is_ungated.load(Ordering::Relaxed)));
            Ok(())
        });
        assert_eq!(evicted, Ok(()));
        assert_eq!(seen, [("a".to_owned(), false), ("b".to_owned(), true)]);
    }

    #[test]
    fn a_victim_that_terminates_already_is_not_evicted_and_does_not_count() {
        let handle = Handle::default();
        let deletion_time = Some(crate::model::Timestamp::from_secs(1));
        let low = Pod { deletion_time, ..pod("low").build() };
        let uid = low.uid.clone();
        let eviction = Eviction::new(&handle, pod("high").build(), "n".into(), vec![low], || {});
        assert!(eviction.begin().is_none() && !handle.being_evicted().contains(&uid));
    }
}
