//! Pods in PreBind (`framework/runtime/pods_in_prebind_map.go`).
//!
//! A preemptor cancels such a pod instead of deleting it: the pod returns to the queue. A pod counts as one in PreBind
//! until it is bound or forgotten. One that waits for a permit counts from the beginning of its binding cycle: a
//! preempted pod is still assumed when it has stopped waiting, and another attempt of its preemptor must not delete it.

use std::collections::HashMap;
use std::fmt;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

use crate::model::Uid;

/// The pods in PreBind. Shared between threads.
#[derive(Default)]
pub(super) struct PodsInPreBind(Mutex<HashMap<Uid, Arc<PodInPreBind>>>);

impl PodsInPreBind {
    fn pods(&self) -> MutexGuard<'_, HashMap<Uid, Arc<PodInPreBind>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn get(&self, uid: &Uid) -> Option<Arc<PodInPreBind>> {
        self.pods().get(uid).cloned()
    }

    /// Adds a pod until the returned guard is dropped.
    pub(super) fn add(self: &Arc<Self>, uid: &Uid) -> InPreBind {
        let pod = Arc::new(PodInPreBind::default());
        self.pods().insert(uid.clone(), pod.clone());
        InPreBind { pods: self.clone(), uid: uid.clone(), pod }
    }
}

/// Keeps a pod among those in PreBind.
pub(crate) struct InPreBind {
    pods: Arc<PodsInPreBind>,
    uid: Uid,
    pod: Arc<PodInPreBind>,
}

impl InPreBind {
    /// Ends PreBind. The pod cannot be cancelled from now on.
    ///
    /// # Errors
    ///
    /// The pod was cancelled: returns why.
    pub(crate) fn finish(&self) -> Result<(), Arc<str>> {
        let mut state = self.pod.state();
        match &state.cause {
            Some(cause) => Err(cause.clone()),
            None => {
                state.is_finished = true;
                Ok(())
            }
        }
    }

    /// Marks the pod as about to be forgotten. Call it before submitting the event that frees its resources.
    pub(crate) fn begin_forget(&self) {
        self.pod.state().is_forgetting = true;
    }
}

impl Drop for InPreBind {
    fn drop(&mut self) {
        let mut pods = self.pods.pods();
        // A forgotten pod may have been placed again.
        if pods.get(&self.uid).is_some_and(|pod| Arc::ptr_eq(pod, &self.pod)) {
            pods.remove(&self.uid);
        }
    }
}

/// A pod in PreBind. The default value belongs to no binding cycle.
#[derive(Default)]
pub struct PodInPreBind(Mutex<State>);

#[derive(Default)]
struct State {
    /// Why the pod was cancelled.
    cause: Option<Arc<str>>,
    /// Whether PreBind has succeeded, so that the pod may be bound.
    is_finished: bool,
    /// Whether the event that frees the pod's resources may have been submitted.
    is_forgetting: bool,
    /// The wakers of the tasks that wait in [`PodInPreBind::cancelled`].
    wakers: Vec<Waker>,
}

impl PodInPreBind {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Cancels the pod's binding cycle: the pod will not be bound, and its resources are released as soon as the
    /// PreBind plugins return. Only the first cause is kept. Returns `false` if PreBind has succeeded, so that the pod
    /// may be bound.
    pub(crate) fn cancel(&self, cause: &str) -> bool {
        let mut state = self.state();
        if state.is_finished {
            return false;
        }
        state.cause.get_or_insert_with(|| cause.into());
        let wakers = std::mem::take(&mut state.wakers);
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
        true
    }

    /// Returns whether the event that frees the pod's resources may have been submitted already.
    pub(super) fn is_forgetting(&self) -> bool {
        self.state().is_forgetting
    }

    /// Returns why the pod was cancelled. A PreBind plugin that blocks for long should ask from time to time.
    #[must_use]
    pub fn cause(&self) -> Option<Arc<str>> {
        self.state().cause.clone()
    }

    /// Waits until the pod is cancelled and returns why. Never returns if it is not cancelled.
    pub async fn cancelled(&self) -> Arc<str> {
        poll_fn(|context| {
            let mut state = self.state();
            if let Some(cause) = &state.cause {
                return Poll::Ready(cause.clone());
            }
            if !state.wakers.iter().any(|waker| waker.will_wake(context.waker())) {
                state.wakers.push(context.waker().clone());
            }
            Poll::Pending
        })
        .await
    }
}

impl fmt::Debug for PodInPreBind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state();
        f.debug_struct("PodInPreBind")
            .field("cause", &state.cause)
            .field("is_finished", &state.is_finished)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::pin;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::{Context, Wake};

    use super::*;

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    #[test]
    fn cancelled_pod_is_not_bound() {
        let pods = Arc::new(PodsInPreBind::default());
        let uid = Uid::from("p");
        let guard = pods.add(&uid);
        let pod = pods.get(&uid).expect("the pod is in PreBind");
        assert_eq!(pod.cause(), None);
        assert!(pod.cancel("preempted"));
        assert!(pod.cancel("again"), "a pod may have several preemptors");
        assert_eq!(guard.finish(), Err("preempted".into()));
        drop(guard);
        assert!(pods.get(&uid).is_none());
    }

    #[test]
    fn finished_pod_cannot_be_cancelled() {
        let pods = Arc::new(PodsInPreBind::default());
        let guard = pods.add(&Uid::from("p"));
        let pod = pods.get(&Uid::from("p")).expect("the pod is in PreBind");
        assert_eq!(guard.finish(), Ok(()));
        assert!(!pod.cancel("too late"));
        assert_eq!(pod.cause(), None);
    }

    #[test]
    fn cancelling_wakes_each_waiting_task_once() {
        let pod = PodInPreBind::default();
        let count = Arc::new(Count::default());
        let waker = Waker::from(count.clone());
        let mut context = Context::from_waker(&waker);
        let mut waits = pin!(pod.cancelled());
        for _ in 0..3 {
            assert!(waits.as_mut().poll(&mut context).is_pending());
        }
        assert!(pod.cancel("preempted"));
        assert_eq!(count.0.load(Ordering::SeqCst), 1);
        assert_eq!(waits.as_mut().poll(&mut context), Poll::Ready("preempted".into()));
        // It is also noticed if it happened before.
        assert_eq!(pin!(pod.cancelled()).poll(&mut context), Poll::Ready("preempted".into()));
    }
}
