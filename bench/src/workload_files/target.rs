//! The cluster that a workload runs on: an API server in memory, and a live scheduler that reads and binds over real
//! sockets.

use std::sync::Arc;
use std::time::{Duration, Instant};

use portolan_apiserver::{AdmissionPlugin, ApiError, ApiServer, Options};
use portolan_kube::api::{Connection, Limits};
use portolan_kube::process::{LiveConfig, LiveScheduler};
use portolan_kube::write::Fence;
use serde_json::{Value, json};
use tokio::sync::oneshot;

use portolan_cli::CommandError;
use portolan_cli::{live, runtime};

use super::board::{Board, LOOK};
use super::steps::{Labels, Stage};
use super::stop::Stop;

/// Why a target did not change an object.
#[derive(Debug, thiserror::Error)]
pub(super) enum Refused {
    #[error("{0} already exists")]
    Exists(String),
    #[error("{0} does not exist")]
    NotFound(String),
    #[error("{0}")]
    Other(String),
}

/// How an object is updated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Update {
    /// The whole object, then its status.
    Whole,
    /// The resources of a pod's containers, then its status.
    Resize,
}

/// The time that the server takes for each write of the scheduler, as if it wrote to etcd.
const WRITE_DELAY: Duration = Duration::from_millis(10);
/// The longest time to wait for bindings in flight after a workload.
const GRACE: Duration = Duration::from_secs(5);

/// A server, and the pods that the scheduler under test has bound.
pub(super) struct Target {
    server: ApiServer,
    pub(super) board: Board,
}

/// Runs `work` on a new server with a live scheduler.
pub(super) fn with_target<T: Send>(
    configuration: Option<&str>,
    work: impl FnOnce(&Target) -> T + Send,
) -> Result<T, CommandError> {
    let options = Options {
        write_delay: WRITE_DELAY,
        max_in_flight: 2_000,
        controllers: false,
        // As in scheduler_perf, whose pods name a priority.
        disabled_admission: vec![AdmissionPlugin::Priority, AdmissionPlugin::ServiceAccount],
        ..Options::default()
    };
    let server = ApiServer::start(options).map_err(live)?;
    let target = Target { server, board: Board::default() };
    let runtime = runtime()?;
    let mut config = LiveConfig::default();
    config.configuration = configuration.map(Arc::from);
    config.seed = Some(1);
    config.writes.host = "perf".to_owned();
    let scheduler = runtime.block_on(async {
        let connection = Connection::unauthenticated(target.server.url());
        let api = connection.open(Limits::default()).await.map_err(live)?;
        let mut scheduler = LiveScheduler::start(api, Fence::opened(), config).map_err(live)?;
        scheduler.mirror().synced().await.map_err(live)?;
        scheduler.begin().map_err(live)?;
        Ok::<_, CommandError>(scheduler)
    })?;
    let stop = Stop::default();
    let (finished, finish) = oneshot::channel::<()>();
    let (target, stop) = (&target, &stop);
    let worked = std::thread::scope(|scope| {
        scope.spawn(|| target.follow(stop));
        let working = scope.spawn(move || {
            // If `work` panics, the sender is dropped, which ends the wait, too.
            let _finished = finished;
            work(target)
        });
        runtime.block_on(async {
            tokio::select! {
                () = scheduler.failed() => target.board.fail("the scheduler has failed".to_owned()),
                _ = finish => {}
            }
        });
        let worked = working.join();
        stop.stop();
        worked
    });
    runtime.block_on(scheduler.stop(GRACE));
    worked.map_err(|_| CommandError::Panicked("a workload"))
}

impl Target {
    /// Reports the writes of the scheduler: bindings, conditions and evictions.
    fn follow(&self, stop: &Stop) {
        let mut seen = 0;
        loop {
            let is_over = stop.sleep_until(Instant::now() + LOOK);
            let resources = ["pods/binding", "pods/status", "pods"];
            let (writes, all) = self.server.writes_since(seen, &resources);
            seen = all;
            for write in writes.iter().filter(|write| write.applied) {
                let (namespace, name) = (&*write.namespace, &*write.name);
                match (write.verb, &*write.resource) {
                    ("create", "pods/binding") => {
                        self.board.advance(namespace, name, Stage::Scheduled);
                    }
                    ("patch" | "update", "pods/status") if is_tried(&write.body) => {
                        self.board.advance(namespace, name, Stage::Attempted);
                    }
                    ("delete", "pods") => self.note_deleted(namespace, name),
                    _ => {}
                }
            }
            if is_over {
                return;
            }
        }
    }

    /// A deleted pod may still wait for finalizers or its grace period.
    fn note_deleted(&self, namespace: &str, name: &str) {
        if self.server.get("Pod", namespace, name).is_err_and(|error| error.code == 404) {
            self.board.remove(namespace, name);
        }
    }
}

fn is_tried(body: &Value) -> bool {
    let conditions = body["status"]["conditions"].as_array().into_iter().flatten();
    conditions.into_iter().any(|condition| condition["type"] == "PodScheduled")
}

fn refused(object: &Value) -> impl Fn(ApiError) -> Refused {
    let kind = object["kind"].as_str().unwrap_or_default();
    refusal(shown(kind, metadata(object, "namespace"), metadata(object, "name")))
}

fn refusal(shown: String) -> impl Fn(ApiError) -> Refused {
    move |error| match (error.code, error.reason) {
        (404, _) => Refused::NotFound(shown.clone()),
        (409, "AlreadyExists") => Refused::Exists(shown.clone()),
        _ => Refused::Other(format!("{shown}: {}", error.message)),
    }
}

impl Target {
    /// Creates an object, with its status. Its name is given, and the namespace of a namespaced object is set.
    pub(super) fn create(&self, object: &Value) -> Result<(), Refused> {
        let refused = refused(object);
        let (namespace, name) = (metadata(object, "namespace"), metadata(object, "name"));
        match object["kind"].as_str() {
            Some("Pod") => {
                let is_bound = object["spec"]["nodeName"].is_string();
                let stage = match is_bound {
                    true => Stage::Scheduled,
                    false if is_gated(object) => Stage::Attempted,
                    false => Stage::Pending,
                };
                // Before the write, since the scheduler may bind the pod at once.
                self.board.put(namespace, name, labels_of(object).into(), stage);
                if let Err(error) = self.server.create(object) {
                    let error = refused(error);
                    if !matches!(error, Refused::Exists(_)) {
                        self.board.remove(namespace, name);
                    }
                    return Err(error);
                }
            }
            // A new object of these kinds has the server's own status.
            Some("PersistentVolume" | "PersistentVolumeClaim") if object["status"].is_object() => {
                self.server.create(object).map_err(&refused)?;
                self.server.update_status(object).map_err(&refused)?;
            }
            _ => drop(self.server.create(object).map_err(refused)?),
        }
        Ok(())
    }

    /// Updates an object that has no resourceVersion.
    pub(super) fn update(&self, object: &Value, how: Update) -> Result<(), Refused> {
        let refused = refused(object);
        let updated = match how {
            Update::Whole => self.server.update(object).map_err(&refused)?,
            Update::Resize => self.server.resize(object).map_err(&refused)?,
        };
        if object["kind"] == "Pod" {
            let (namespace, name) = (metadata(object, "namespace"), metadata(object, "name"));
            self.board.put(namespace, name, labels_of(&updated).into(), Stage::Pending);
        }
        match self.server.update_status(object) {
            // The kind has no status of its own.
            Err(error) if error.code == 404 => Ok(()),
            updated => updated.map(drop).map_err(refused),
        }
    }

    /// Deletes an object by its kind, namespace and name. `grace` overrides the grace period of a pod, in seconds.
    pub(super) fn delete(
        &self,
        kind: &str,
        namespace: &str,
        name: &str,
        grace: Option<u64>,
    ) -> Result<(), Refused> {
        let options = grace.map_or(Value::Null, |grace| json!({"gracePeriodSeconds": grace}));
        let deleted = self.server.delete(kind, namespace, name, &options);
        deleted.map_err(refusal(shown(kind, namespace, name)))?;
        if kind == "Pod" {
            self.note_deleted(namespace, name);
        }
        Ok(())
    }
}

/// Whether objects of a kind have a namespace, or `None` if it is not supported.
pub(super) fn is_namespaced(kind: &str) -> Option<bool> {
    match kind {
        "Pod"
        | "Service"
        | "PersistentVolumeClaim"
        | "ReplicationController"
        | "ReplicaSet"
        | "StatefulSet"
        | "PodDisruptionBudget"
        | "CSIStorageCapacity"
        | "ConfigMap"
        | "Secret"
        | "ServiceAccount" => Some(true),
        "Node" | "Namespace" | "PersistentVolume" | "StorageClass" | "CSINode" | "CSIDriver"
        | "VolumeAttachment" | "PriorityClass" => Some(false),
        _ => None,
    }
}

/// A text in the metadata of an object.
pub(super) fn metadata<'o>(object: &'o Value, field: &str) -> &'o str {
    object["metadata"][field].as_str().unwrap_or_default()
}

/// The labels of an object.
pub(super) fn labels_of(object: &Value) -> Labels {
    let labels = object["metadata"]["labels"].as_object().into_iter().flatten();
    let label = |(name, value): (&String, &Value)| Some((name.clone(), value.as_str()?.to_owned()));
    labels.filter_map(label).collect()
}

/// `Pod ns/name`, for messages.
pub(super) fn shown(kind: &str, namespace: &str, name: &str) -> String {
    match namespace {
        "" => format!("{kind} {name}"),
        namespace => format!("{kind} {namespace}/{name}"),
    }
}

/// Whether a pod has scheduling gates: the API server gives it the condition PodScheduled at once.
pub(super) fn is_gated(pod: &Value) -> bool {
    pod["spec"]["schedulingGates"].as_array().is_some_and(|gates| !gates.is_empty())
}
