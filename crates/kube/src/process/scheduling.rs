//! The scheduling thread. It pops no pod while too many placed pods wait for their bindings, or too many preemptors
//! for their evictions (see `pressure.rs`).
//!
//! Pods are not taken in batches. An API server accepts some 1,000 bindings a second, so deciding takes about a
//! hundredth of the time, and a batch would delay a pod of high priority that arrives meanwhile.

use std::ops::ControlFlow;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use portolan::scheduler::queue::PopError;
use portolan::{SchedulingLoop, Unplaced};

use super::binding::Dispatch;
use super::live::{LiveFigures, TICK};
use super::threads::{Alarm, now};
use crate::lock::lock;
use crate::write::{FailureReport, Writes};

/// The scheduling thread.
pub(super) struct Worker {
    pub(super) scheduling: SchedulingLoop,
    pub(super) dispatch: Dispatch,
    pub(super) writes: Writes,
    pub(super) figures: Arc<Mutex<LiveFigures>>,
    pub(super) alarm: Alarm,
}

impl Worker {
    /// Schedules pods until the scheduler stops or the queue is closed.
    pub(super) fn run(mut self) {
        while !self.alarm.is_stopping() && self.turn(Instant::now() + TICK).is_continue() {}
    }

    /// Schedules the next pod or group of pods, if there is one before the deadline. Breaks if the queue is closed.
    fn turn(&mut self, deadline: Instant) -> ControlFlow<()> {
        if !self.alarm.pressure().wait(deadline) {
            self.dispatch.grow();
            return ControlFlow::Continue(());
        }
        let attempt = match self.scheduling.schedule_one(Some(deadline), now) {
            Ok(attempt) => attempt,
            Err(PopError::Timeout) => {
                self.dispatch.grow();
                return ControlFlow::Continue(());
            }
            Err(_) => return ControlFlow::Break(()),
        };
        let (placed, failed) = attempt.into_parts();
        let mut figures = lock(&self.figures);
        figures.placed += placed.len() as u64;
        figures.failed += failed.len() as u64;
        drop(figures);
        for placement in placed {
            self.dispatch.bind(&mut self.scheduling, placement);
        }
        for unplaced in failed {
            self.report(&unplaced);
        }
        ControlFlow::Continue(())
    }

    /// Reports a failed attempt, unless the pod was parked meanwhile because its shard was given up.
    fn report(&self, unplaced: &Unplaced) {
        let Some(mut failure) = FailureReport::of_cycle(&unplaced.error) else { return };
        if let Some(hand_over) = self.writes.hand_over() {
            // A pod that is still queued may have a nomination by this replica that was not written.
            if unplaced.place.is_none() && hand_over.is_foreign_pod(&unplaced.pod) {
                return;
            }
            hand_over.withhold(&mut failure);
        }
        self.writes.status().report_failure(&unplaced.pod, failure);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::num::NonZeroUsize;
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::time::Duration;

    use portolan::cache::Event;
    use portolan::model::{Name, Pod, node, pod};
    use portolan::plugin::BindingFuture;
    use portolan::scheduler::InMemoryEvictor;
    use portolan::{Binder, BinderError, Schedulers};
    use tokio::runtime::{Builder, Runtime};
    use tokio::sync::Semaphore;

    use super::super::binding::Outcomes;
    use super::super::live::LiveConfig;
    use super::super::threads::Threads;
    use crate::mirror::PodIndex;
    use crate::write::{Fence, WriteOptions};

    /// Binds a pod for each permit, and reports the pods that begin and those that are bound.
    struct Stepwise {
        permits: Arc<Semaphore>,
        begun: Sender<String>,
        bound: Sender<String>,
    }

    impl Binder for Stepwise {
        fn bind(&self, _: &Pod, _: &Name) -> Result<(), BinderError> {
            Err("only requests are expected".into())
        }

        fn request(&self, pod: &Arc<Pod>, _: &Name) -> Option<BindingFuture> {
            let (permits, bound, name) =
                (self.permits.clone(), self.bound.clone(), pod.name.to_string());
            self.begun.send(name.clone()).expect("received");
            Some(Box::pin(async move {
                permits.acquire().await.expect("open").forget();
                bound.send(name).expect("received");
                Ok(())
            }))
        }
    }

    struct World {
        schedulers: Arc<Schedulers>,
        worker: Worker,
        threads: Threads,
        permits: Arc<Semaphore>,
        begun: Receiver<String>,
        bound: Receiver<String>,
    }

    /// A scheduling thread's work, with at most two bindings in flight.
    fn world(runtime: &Runtime) -> World {
        let permits = Arc::new(Semaphore::new(0));
        let ((begin, begun), (bind, bound)) = (channel(), channel());
        let binder = Stepwise { permits: permits.clone(), begun: begin, bound: bind };
        let builder = Schedulers::builder().binder(|_| binder);
        let builder = builder.evictor(|engine| InMemoryEvictor::from(engine));
        let schedulers = Arc::new(builder.build().expect("valid"));
        let bindings = NonZeroUsize::new(2).expect("not 0");
        let config = LiveConfig { bindings, ..LiveConfig::default() };
        let _within = runtime.enter();
        // Nothing is sent to this address, because the fence is closed.
        let api = crate::testing::api("http://127.0.0.1:9");
        let (pods, fence) = (Arc::new(PodIndex::default()), Fence::closed());
        let writes = Writes::start(runtime.handle(), api, pods, fence, WriteOptions::default());
        let (figures, threads) = (Arc::<Mutex<LiveFigures>>::default(), Threads::new(Alarm::new()));
        let queue = schedulers.queue().clone();
        let outcomes = Outcomes { queue, writes: writes.clone(), figures: figures.clone() };
        let dispatch = Dispatch::start(runtime.handle(), &threads, &config, &schedulers, &outcomes);
        let worker = Worker {
            scheduling: schedulers.scheduling_loop().expect("a loop"),
            dispatch: dispatch.expect("started"),
            writes,
            figures,
            alarm: threads.alarm().clone(),
        };
        World { schedulers, worker, threads, permits, begun, bound }
    }

    #[test]
    fn a_later_pod_of_high_priority_waits_for_few_placed_pods() {
        let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build();
        let runtime = runtime.expect("a runtime");
        let World { schedulers, mut worker, threads, permits, begun, bound } = world(&runtime);
        let submit = |event| drop(schedulers.engine().submit(event).expect("open"));
        submit(Event::add_node(node("n1").cpu(64_000).build()));
        for n in 0..100 {
            submit(Event::put_pending(pod(format!("low-{n}")).cpu(1).build()));
        }
        for _ in 0..100 {
            assert!(worker.turn(Instant::now()).is_continue());
        }
        assert_eq!(begun.try_iter().count(), 4, "two in flight, and two that wait");
        submit(Event::put_pending(pod("high").cpu(1).priority(1_000).build()));
        // A pop takes in few of the waiting events.
        schedulers.queue().tend(now);
        let long = Duration::from_secs(60);
        let bind = |order: &mut Vec<String>| {
            permits.add_permits(1);
            order.push(bound.recv_timeout(long).expect("bound"));
        };
        let mut order = Vec::new();
        bind(&mut order);
        // The end of the binding ends the wait.
        assert!(worker.turn(Instant::now() + long).is_continue());
        assert_eq!(begun.try_iter().collect::<Vec<_>>(), ["high"]);
        (0..4).for_each(|_| bind(&mut order));
        assert!(order.contains(&"high".to_owned()), "{order:?}");
        for _ in 0..96 {
            assert!(worker.turn(Instant::now() + long).is_continue());
            bind(&mut order);
        }
        threads.alarm().stop();
        drop(worker);
        threads.join();
        order.sort_unstable();
        order.dedup();
        assert_eq!(order.len(), 101, "each pod is bound once");
    }
}
