//! Runs the steps of a scenario on an API server in memory, and returns the scheduler's writes.

use std::time::Duration;

use portolan_apiserver::{ApiServer, Kubelet, Options, PatchKind};
use portolan_kube::api::{Connection, Limits};
use portolan_kube::process::{LiveConfig, LiveScheduler};
use portolan_kube::write::Fence;
use serde_json::{Value, json};
use tokio::runtime::Builder;

use super::{End, Recorded, Step, Write};

/// The names and zones of the recording's nodes.
const NODES: usize = 3;

pub(super) fn run(recorded: &Recorded) -> Result<(Vec<Write>, Vec<End>), String> {
    let server = ApiServer::start(Options::default()).map_err(|error| error.to_string())?;
    let _kubelets = Kubelet::start(&server, Duration::ZERO);
    for n in 0..NODES {
        server.create(&node(n)).map_err(|error| error.to_string())?;
    }
    let namespace = namespace(recorded);
    server
        .create(&json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}))
        .map_err(|error| error.to_string())?;
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.map_err(|error| error.to_string())?;
    runtime.block_on(async {
        let connection = Connection::unauthenticated(server.url());
        let api = connection.open(Limits::default()).await.map_err(|error| error.to_string())?;
        let mut config = LiveConfig::default();
        config.writes.host = "<host>".to_owned();
        let mut scheduler = LiveScheduler::start(api, Fence::opened(), config)
            .map_err(|error| error.to_string())?;
        scheduler.mirror().synced().await.map_err(|error| error.to_string())?;
        scheduler.begin().map_err(|error| error.to_string())?;
        for step in &recorded.steps {
            match step {
                Step::Sleep(seconds) => tokio::time::sleep(Duration::from_secs_f64(*seconds)).await,
                step => act(&server, &namespace, step)?,
            }
        }
        let end = end(&server, &namespace);
        scheduler.stop(Duration::ZERO).await;
        Ok((writes(&server), end))
    })
}

/// The namespace in which the scenario was recorded.
fn namespace(recorded: &Recorded) -> String {
    let named = recorded.writes.iter().find_map(|write| {
        let namespace = write.body.get("metadata")?.get("namespace")?;
        Some(namespace.as_str()?.to_owned())
    });
    named.unwrap_or_else(|| "scenario".to_owned())
}

fn act(server: &ApiServer, namespace: &str, step: &Step) -> Result<(), String> {
    let text = |value: &Value| value.as_str().map(str::to_owned).ok_or("a step lacks a name");
    match step {
        Step::Apply(objects) => {
            for object in objects {
                let mut object = object.clone();
                if is_namespaced(object["kind"].as_str().unwrap_or_default()) {
                    object["metadata"]["namespace"] = json!(namespace);
                }
                server.create(&object).map_err(|error| error.to_string())?;
            }
        }
        Step::Delete(what) => {
            let [kind, name, ..] = &what[..] else { return Err("a deletion of nothing".into()) };
            let (kind, name) = (text(kind)?, text(name)?);
            let kind = kind_of(&kind);
            let place = if is_namespaced(kind) { namespace } else { "" };
            server.delete(kind, place, &name, &Value::Null).map_err(|error| error.to_string())?;
        }
        Step::Patch(what) => {
            let [kind, name, patch, ..] = &what[..] else {
                return Err("a patch of nothing".into());
            };
            let (kind, name) = (text(kind)?, text(name)?);
            let kind = kind_of(&kind);
            let place = if is_namespaced(kind) { namespace } else { "" };
            server
                .patch(kind, place, &name, PatchKind::Merge, patch)
                .map_err(|error| error.to_string())?;
        }
        Step::Sleep(_) => {}
    }
    Ok(())
}

fn is_namespaced(kind: &str) -> bool {
    !matches!(kind, "Node" | "PriorityClass" | "StorageClass" | "PersistentVolume" | "Namespace")
}

/// The kind of a name as people give it to kubectl.
fn kind_of(name: &str) -> &str {
    match name {
        "pod" => "Pod",
        "node" => "Node",
        "pvc" => "PersistentVolumeClaim",
        "pv" => "PersistentVolume",
        "deployment" => "Deployment",
        "poddisruptionbudget" | "pdb" => "PodDisruptionBudget",
        other => other,
    }
}

/// The writes of the scheduler.
fn writes(server: &ApiServer) -> Vec<Write> {
    let own = |write: &portolan_apiserver::Write| write.user_agent.starts_with("portolan/");
    let writes = server.writes().into_iter().filter(own).map(|write| Write {
        verb: write.verb.to_owned(),
        resource: write.resource,
        name: write.name,
        body: write.body,
        code: write.code,
    });
    writes.collect()
}

fn end(server: &ApiServer, namespace: &str) -> Vec<End> {
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let pods = server.objects("Pod").into_iter();
    pods.filter(|pod| pod["metadata"]["namespace"] == namespace)
        .map(|pod| {
            let conditions = pod["status"]["conditions"].as_array().cloned().unwrap_or_default();
            End {
                name: text(&pod["metadata"]["name"]).unwrap_or_default(),
                node: text(&pod["spec"]["nodeName"]),
                phase: text(&pod["status"]["phase"]),
                nominated: text(&pod["status"]["nominatedNodeName"]),
                scheduled: conditions.into_iter().find(|one| one["type"] == "PodScheduled"),
            }
        })
        .collect()
}

fn node(n: usize) -> Value {
    let name = format!("hollow-{n}");
    let amounts = json!({"cpu": "1", "memory": "3840Mi", "pods": "110", "ephemeral-storage": "0"});
    json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {
            "kubernetes.io/hostname": name,
            "topology.kubernetes.io/zone": format!("zone-{n}"),
        }},
        "status": {"capacity": amounts, "allocatable": amounts},
    })
}
