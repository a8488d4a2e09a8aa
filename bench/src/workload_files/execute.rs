//! Runs the operations of a workload on a target, one after the other, as scheduler_perf does (executor.go).

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Scope, ScopedJoinHandle};
use std::time::{Duration, Instant};

use serde_json::Value;

use portolan_cli::CommandError;

use super::board::{Filter, Missed};
use super::cases::Workload;
use super::churn;
use super::objects::{self, Names};
use super::sources::Sources;
use super::steps::{Any, CreatePods, Labels, Stage, Step};
use super::stop::Stop;
use super::target::{Refused, Target, Update, is_namespaced, metadata, shown};
use super::template::Place;
use super::throughput::{Measured, collect};

/// Why a workload failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum Trouble {
    #[error(transparent)]
    Template(#[from] CommandError),
    #[error(transparent)]
    Refused(#[from] Refused),
    #[error("{have} of {want} pods were {stage} after {seconds} s{pending}")]
    Late { have: usize, want: usize, stage: &'static str, seconds: u64, pending: String },
    #[error("the scheduler ended: {0}")]
    Ended(String),
    #[error("the namespace {0} has no pods to wait for")]
    UnknownNamespace(String),
    #[error("metrics are collected already: stop the collection first")]
    Overlapping,
    #[error("no collection of metrics was started")]
    NotCollecting,
    #[error("{0}")]
    Object(String),
    #[error("no pod was scheduled in {0} s of a steady state")]
    Idle(u64),
    #[error("{0} panicked")]
    Panicked(&'static str),
}

/// State that the operations share with background threads.
pub(super) struct Shared<'w> {
    pub(super) target: &'w Target,
    pub(super) sources: &'w Sources,
    pub(super) names: Names,
    pub(super) stop: Stop,
    /// The first error of a background thread.
    troubles: Mutex<Option<Trouble>>,
}

impl Shared<'_> {
    pub(super) fn note(&self, trouble: impl Into<Trouble>) {
        let mut noted = self.troubles.lock().unwrap_or_else(PoisonError::into_inner);
        noted.get_or_insert(trouble.into());
    }

    /// Deletes a pod. It is not an error if the pod is gone already, for instance because it was preempted.
    fn delete_pod(&self, namespace: &str, name: &str, grace: Option<u64>) -> Result<(), Refused> {
        match self.target.delete("Pod", namespace, name, grace) {
            Err(Refused::NotFound(_)) => Ok(()),
            deleted => deleted,
        }
    }

    /// Creates a namespace that may exist already.
    fn namespace(&self, name: &str, template: Option<&str>) -> Result<(), Trouble> {
        match self.target.create(&objects::namespace(self.sources, name, template)?) {
            Err(Refused::Exists(_)) => Ok(()),
            created => Ok(created?),
        }
    }
}

struct Collecting<'scope> {
    stop: Arc<Stop>,
    thread: ScopedJoinHandle<'scope, Measured>,
}

struct Run<'scope, 'w> {
    scope: &'scope Scope<'scope, 'w>,
    shared: &'w Shared<'w>,
    workload: &'w Workload,
    /// How long an operation waits for its pods.
    time_limit: Duration,
    /// The number of pods that barriers wait for, by namespace.
    pending: HashMap<String, usize>,
    collecting: Option<Collecting<'scope>>,
    measured: Vec<Measured>,
}

/// Runs all operations and returns the measurements.
pub(super) fn execute(
    target: &Target,
    workload: &Workload,
    sources: &Sources,
    time_limit: Duration,
) -> Result<Vec<Measured>, Trouble> {
    let shared = Shared {
        target,
        sources,
        names: Names::default(),
        stop: Stop::default(),
        troubles: Mutex::default(),
    };
    let shared = &shared;
    let measured = std::thread::scope(|scope| {
        let mut run = Run {
            scope,
            shared,
            workload,
            time_limit,
            pending: HashMap::new(),
            collecting: None,
            measured: Vec::new(),
        };
        let mut steps = workload.steps.iter().enumerate();
        let ran = steps.try_for_each(|(number, step)| run.step(number, step));
        // A collection that is still open ends without a result, as background operations do.
        if let Some(collecting) = &run.collecting {
            collecting.stop.stop();
        }
        shared.stop.stop();
        ran.map(|()| run.measured)
    });
    let noted = shared.troubles.lock().unwrap_or_else(PoisonError::into_inner).take();
    match (measured, noted) {
        (Ok(_), Some(trouble)) => Err(trouble),
        (measured, _) => measured,
    }
}

impl<'scope, 'w> Run<'scope, 'w> {
    /// Runs the operation with this number.
    fn step(&mut self, number: usize, step: &'w Step) -> Result<(), Trouble> {
        let shared = self.shared;
        match step {
            Step::CreateNodes(operation) => {
                let prefix = format!("node-{number}-");
                let nodes = objects::nodes(shared.sources, &shared.names, &prefix, operation)?;
                Ok(nodes.iter().try_for_each(|node| shared.target.create(node))?)
            }
            Step::CreateNamespaces { prefix, count, template } => {
                for number in 0..*count {
                    let name = format!("{prefix}-{number}");
                    shared.namespace(&name, template.as_deref())?;
                    self.pending.entry(name).or_insert(0);
                }
                Ok(())
            }
            Step::CreatePods(pods) => self.create_pods(number, pods),
            Step::CreateAny(any) => {
                self.require_namespace(any)?;
                for index in 0..any.count {
                    let mut object = self.any(any, index)?;
                    shared.names.name(&mut object);
                    shared.target.create(&object)?;
                }
                Ok(())
            }
            Step::UpdateAny(any) => {
                self.require_namespace(any)?;
                let how = if any.subresources.is_empty() { Update::Whole } else { Update::Resize };
                self.at_rate(any.count, any.per_second, |index| {
                    Ok(shared.target.update(&self.any(any, index)?, how)?)
                })
            }
            Step::DeletePods { namespace, labels, per_second, is_in_background } => {
                self.delete_pods(namespace, labels, *per_second, *is_in_background)
            }
            Step::Churn(churn) => {
                let own = format!("namespace-{number}");
                let namespace = churn.namespace.clone().unwrap_or(own);
                shared.namespace(&namespace, None)?;
                let makers = churn::templates(shared, churn, &namespace)?;
                self.scope.spawn(move || churn::run(shared, churn, &makers));
                Ok(())
            }
            Step::Barrier { namespaces, labels, stage } => self.barrier(namespaces, labels, *stage),
            Step::Sleep { duration } => {
                shared.stop.sleep_until(Instant::now() + *duration);
                Ok(())
            }
            Step::StartCollectingMetrics { name, namespaces, labels } => {
                let namespaces = namespaces.iter().cloned().collect();
                self.start_collecting(name, Filter { namespaces, labels: labels.clone() })
            }
            Step::StopCollectingMetrics => self.stop_collecting(),
            Step::CreatePodSets { .. }
            | Step::AllocResourceClaims
            | Step::CreateResourceClaims
            | Step::CreateResourceDriver => {
                Err(Trouble::Object(format!("the operation {step:?} is not supported")))
            }
        }
    }

    /// Creates a namespace that is not known yet.
    fn know(&mut self, namespace: &str) -> Result<(), Trouble> {
        if !self.pending.contains_key(namespace) {
            self.shared.namespace(namespace, None)?;
            self.pending.insert(namespace.to_owned(), 0);
        }
        Ok(())
    }

    fn create_pods(&mut self, number: usize, operation: &CreatePods) -> Result<(), Trouble> {
        let shared = self.shared;
        let namespace = operation.namespace.clone();
        let namespace = namespace.unwrap_or_else(|| format!("namespace-{number}"));
        self.know(&namespace)?;
        let default = self.workload.default_pod_template.as_deref();
        let template = operation.template.as_deref().or(default);
        let make = || objects::pods(shared.sources, &shared.names, &namespace, operation, template);
        let create =
            |made: &[Value]| made.iter().try_for_each(|object| shared.target.create(object));
        let filter = Filter::of(&namespace, &Labels::new());
        // The pods are made before the measurement begins.
        let mut made = make()?;
        if operation.collects {
            self.start_collecting(&namespace, filter.clone())?;
        }
        if operation.is_steady {
            let duration = operation.duration;
            let deadline = Instant::now() + duration;
            let mut scheduled = shared.target.board.count_scheduled(filter);
            for round in 1.. {
                create(&made)?;
                match scheduled.wait(operation.count * round, deadline) {
                    Ok(()) => {}
                    Err(Missed::Late { have: 0, .. }) => {
                        return Err(Trouble::Idle(duration.as_secs()));
                    }
                    Err(Missed::Late { .. }) => break,
                    Err(Missed::Failed(why)) => return Err(Trouble::Ended(why)),
                }
                for name in shared.target.board.names(&namespace, &Labels::new()) {
                    shared.delete_pod(&namespace, &name, Some(0))?;
                }
                made = make()?;
            }
        } else {
            create(&made)?;
            match operation.is_in_background {
                false => self.wait(&filter, Stage::Scheduled, operation.count)?,
                true => *self.pending.entry(namespace).or_insert(0) += operation.count,
            }
        }
        if operation.collects { self.stop_collecting() } else { Ok(()) }
    }

    fn wait(&self, filter: &Filter, stage: Stage, want: usize) -> Result<(), Trouble> {
        match self.shared.target.board.wait(filter, stage, want, self.time_limit) {
            Ok(()) => Ok(()),
            Err(Missed::Failed(why)) => Err(Trouble::Ended(why)),
            Err(Missed::Late { have, pending }) => {
                let stage = if stage == Stage::Scheduled { "scheduled" } else { "attempted" };
                let pending = pending.map_or(String::new(), |pod| format!("; {pod} was not"));
                Err(Trouble::Late {
                    have,
                    want,
                    stage,
                    seconds: self.time_limit.as_secs(),
                    pending,
                })
            }
        }
    }

    fn barrier(
        &mut self,
        namespaces: &[String],
        labels: &Labels,
        stage: Stage,
    ) -> Result<(), Trouble> {
        let unknown = namespaces.iter().find(|name| !self.pending.contains_key(*name));
        if let Some(name) = unknown {
            return Err(Trouble::UnknownNamespace(name.clone()));
        }
        let mut concerned = namespaces.to_vec();
        if namespaces.is_empty() {
            concerned.extend(self.pending.keys().cloned());
        }
        for namespace in &concerned {
            let want = self.pending.get(namespace).copied().unwrap_or(0);
            self.wait(&Filter::of(namespace, labels), stage, want)?;
        }
        if stage == Stage::Scheduled {
            // Nothing is left to wait for.
            self.pending.retain(|name, _| !concerned.contains(name));
        }
        Ok(())
    }

    fn delete_pods(
        &mut self,
        namespace: &'w str,
        labels: &Labels,
        per_second: usize,
        is_in_background: bool,
    ) -> Result<(), Trouble> {
        let shared = self.shared;
        let names = shared.target.board.names(namespace, labels);
        let delete = move || {
            let delete = |index: usize| Ok(shared.delete_pod(namespace, &names[index], None)?);
            at_rate(&shared.stop, names.len(), per_second, delete)
        };
        if !is_in_background {
            return delete();
        }
        self.scope.spawn(move || {
            if let Err(trouble) = delete() {
                shared.note(trouble);
            }
        });
        Ok(())
    }

    fn at_rate(
        &self,
        count: usize,
        per_second: usize,
        work: impl FnMut(usize) -> Result<(), Trouble>,
    ) -> Result<(), Trouble> {
        at_rate(&self.shared.stop, count, per_second, work)
    }

    fn require_namespace(&mut self, any: &Any) -> Result<(), Trouble> {
        any.namespace.as_deref().map_or(Ok(()), |namespace| self.know(namespace))
    }

    /// An object of `createAny` or `updateAny`.
    fn any(&self, any: &Any, index: usize) -> Result<Value, Trouble> {
        let place = Place { index, count: any.count };
        let mut object = self.shared.sources.get(&any.template)?.object(place)?;
        let kind = object["kind"].as_str().unwrap_or_default().to_owned();
        let wrong = |what: String| Err(Trouble::Object(format!("{}: {what}", any.template)));
        match (is_namespaced(&kind), &any.namespace) {
            (Some(true), Some(namespace)) => {
                object["metadata"]["namespace"] = namespace.clone().into()
            }
            (Some(false), None) => {}
            (Some(true), None) => return wrong(format!("a {kind} needs a namespace")),
            (Some(false), Some(_)) => return wrong(format!("a {kind} has no namespace")),
            (None, _) => {
                let name = shown(&kind, "", metadata(&object, "name"));
                return wrong(format!("the kind of {name} is not supported"));
            }
        }
        Ok(object)
    }

    fn start_collecting(&mut self, name: &str, filter: Filter) -> Result<(), Trouble> {
        if self.collecting.is_some() {
            return Err(Trouble::Overlapping);
        }
        let stop = Arc::new(Stop::default());
        // The count begins here, before any pod of the operation is created.
        let count = self.shared.target.board.count_scheduled(filter);
        let (name, stopped) = (name.to_owned(), stop.clone());
        // Pods may be scheduled before the thread runs.
        let start = Instant::now();
        let thread = self.scope.spawn(move || collect(start, name, count, &stopped));
        self.collecting = Some(Collecting { stop, thread });
        Ok(())
    }

    fn stop_collecting(&mut self) -> Result<(), Trouble> {
        let Collecting { stop, thread } = self.collecting.take().ok_or(Trouble::NotCollecting)?;
        stop.stop();
        let measured = thread.join().map_err(|_| Trouble::Panicked("the collection"))?;
        self.measured.push(measured);
        Ok(())
    }
}

/// Calls `work` with each index below `count`, without pauses or at a rate per second.
fn at_rate(
    stop: &Stop,
    count: usize,
    per_second: usize,
    mut work: impl FnMut(usize) -> Result<(), Trouble>,
) -> Result<(), Trouble> {
    if per_second == 0 {
        return (0..count).try_for_each(work);
    }
    let mut done = Ok(());
    if count > 0 {
        let every = Duration::from_secs(1) / u32::try_from(per_second).unwrap_or(u32::MAX);
        stop.tick(every, |index| {
            done = work(index);
            done.is_ok() && index + 1 < count
        });
    }
    done
}
