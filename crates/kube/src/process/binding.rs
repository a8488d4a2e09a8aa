//! Binds placed pods.
//!
//! ```text
//!                                ┌── nothing to wait for ──▶ requests (tasks) ──▶ thread `bind-end`
//! scheduling threads ──▶ dispatch┼── a plugin or an extender binds, hand-over ──▶ threads `bind`
//!                                └── claims, permits ──▶ threads `bind-waiting`
//! ```

use std::sync::{Arc, Mutex};

use portolan::model::{Change, Diff, Pod};
use portolan::plugin::ClusterEvent;
use portolan::scheduler::queue::{Place, QueueFront};
use portolan::scheduler::{Answered, Begun, BindError, BindingLoop};
use portolan::{Placement, Schedulers, SchedulingLoop};
use tokio::runtime::Handle;
use tokio::sync::mpsc::{self, UnboundedReceiver};

use super::live::{LiveConfig, LiveFigures, StartError};
use super::pool::{Job, Pool, Work};
use super::requests::Requests;
use super::threads::{Ends, Threads, now};
use crate::lock::lock;
use crate::seldom::warn_seldom;
use crate::write::{FailureReport, Writes};

/// The maximum number of answers whose events are submitted together.
const BATCH: usize = 256;

/// Starts the bindings of placed pods. Once it is dropped, its threads end after the last binding.
pub(super) struct Dispatch {
    requests: Requests,
    blocking: Pool<Placement>,
    waiting: Pool<Placement>,
    writes: Writes,
}

impl Dispatch {
    /// Starts the thread that ends bindings. The others start when they are needed.
    pub(super) fn start(
        runtime: &Handle,
        threads: &Threads,
        config: &LiveConfig,
        schedulers: &Arc<Schedulers>,
        outcomes: &Outcomes,
    ) -> Result<Dispatch, StartError> {
        let (answers, answered) = mpsc::unbounded_channel();
        let ending = Ending {
            binding: schedulers.binding_loop().map_err(|_| StartError::Closed)?,
            outcomes: outcomes.clone(),
        };
        threads.spawn("bind-end", Ends::AtStop, move || ending.run(answered))?;
        let pool = |name, most| {
            let (schedulers, outcomes) = (schedulers.clone(), outcomes.clone());
            Pool::new(threads, name, most, move || {
                let (binding, outcomes) = (schedulers.binding_loop().ok()?, outcomes.clone());
                let mut blocking = Blocking { binding, outcomes };
                Some(Box::new(move |placement| blocking.bind(&placement)) as Work<Placement>)
            })
        };
        let most = config.bindings.get();
        Ok(Dispatch {
            requests: Requests::new(runtime, most, answers, threads.alarm()),
            blocking: pool("bind", most),
            waiting: pool("bind-waiting", config.waiting_bindings.get()),
            writes: outcomes.writes.clone(),
        })
    }

    /// Begins to bind a placed pod, on the thread that has placed it. Never blocks.
    pub(super) fn bind(&self, scheduling: &mut SchedulingLoop, placement: Placement) {
        if self.writes.hand_over().is_some_and(|to| to.is_foreign(placement.node())) {
            return self.blocking.put(placement);
        }
        if placement.is_long() {
            return self.waiting.put(placement);
        }
        match scheduling.begin(placement) {
            Begun::Request(request) => self.requests.start(request),
            // PreBind stores the claim for extended resources, and may wait until its devices are ready.
            Begun::Blocks(placement) if !placement.pod.template.container_requests.is_empty() => {
                self.waiting.put(placement);
            }
            Begun::Blocks(placement) => self.blocking.put(placement),
        }
    }

    /// Tries again to start threads for pods that wait for one.
    pub(super) fn grow(&self) {
        self.blocking.grow();
        self.waiting.grow();
    }
}

/// Binds pods on a thread that may block.
struct Blocking {
    binding: BindingLoop,
    outcomes: Outcomes,
}

impl Blocking {
    fn bind(&mut self, placement: &Placement) {
        let writes = &self.outcomes.writes;
        match writes.hand_over().filter(|to| to.is_foreign(placement.node())) {
            Some(to) => {
                // The pod is assumed until it is nominated, so no other pod takes its resources meanwhile.
                let is_handed_over = writes.nominate_for(to, &placement.pod, placement.node());
                self.binding.withdraw(placement, now);
                lock(&self.outcomes.figures).handed_over += u64::from(is_handed_over);
            }
            None => {
                let bound = self.binding.bind(placement, now);
                self.outcomes.take(placement, bound);
            }
        }
        self.binding.release();
    }
}

/// Ends the bindings whose requests are answered.
struct Ending {
    binding: BindingLoop,
    outcomes: Outcomes,
}

impl Ending {
    /// Runs until no request is left. Waits without spinning, since answers arrive one by one.
    fn run(mut self, mut answered: UnboundedReceiver<Answered>) {
        let mut batch = Vec::with_capacity(BATCH);
        while answered.blocking_recv_many(&mut batch, BATCH) > 0 {
            for finished in self.binding.finish(batch.drain(..), now) {
                self.outcomes.take(&finished.placement, finished.bound);
            }
            self.binding.release();
        }
    }
}

/// Counts the outcomes of bindings, and reports those that failed.
#[derive(Clone)]
pub(super) struct Outcomes {
    pub(super) queue: Arc<QueueFront>,
    pub(super) writes: Writes,
    pub(super) figures: Arc<Mutex<LiveFigures>>,
}

impl Outcomes {
    fn take(&self, placement: &Placement, bound: Result<(), (BindError, Option<Place>)>) {
        let pod = &placement.pod;
        let Err((error, _)) = bound else {
            lock(&self.figures).bound += 1;
            return;
        };
        lock(&self.figures).not_bound += 1;
        warn_seldom!(pod = %pod.key(), node = %placement.node(), %error, "pod not bound");
        // The node's shard was given up during the binding cycle: the pod is scheduled again.
        if self.writes.hand_over().is_some_and(|to| to.is_foreign(placement.node())) {
            return;
        }
        if matches!(error, BindError::Refused(_)) {
            return self.left(pod);
        }
        if let Some(failure) = FailureReport::of_bind(&error) {
            self.left(pod);
            // Another replica has bound the pod, or it is gone. The mirror may not show it yet, and a report would
            // contradict the binding.
            let is_lost_race =
                self.writes.hand_over().is_some() && matches!(error, BindError::Conflict(_));
            if !is_lost_race {
                self.writes.status().report_failure(pod, failure);
            }
        }
    }

    /// Lets other pods try the node of a pod that was not bound to it (schedule_one.go `handleBindingCycleError`). The
    /// engine reports that a forgotten pod has left, but not that another scheduler has bound an assumed pod elsewhere.
    fn left(&self, pod: &Arc<Pod>) {
        let uid = pod.uid.clone();
        let change = Change::Pod(Diff { old: Some(pod.clone()), new: None });
        self.queue.with(|queue, version| {
            for event in ClusterEvent::of(&change) {
                let uid = uid.clone();
                let is_other = Box::new(move |pod: &Pod| pod.uid != uid);
                queue.move_all(&event, Some(is_other), version, now());
            }
        });
    }
}
