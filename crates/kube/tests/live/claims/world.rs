//! A server with the driver `gpu.example.com`, and a scheduler.

use std::time::Duration;

use portolan_apiserver::{ApiServer, Options, PatchKind};
use portolan_kube::api::Limits;
use portolan_kube::process::{LiveConfig, LiveScheduler};
use portolan_kube::write::Fence;
use serde_json::{Value, json};

use crate::support::{client, condition, find, node, node_of, pod, until};

pub(super) const DRIVER: &str = "gpu.example.com";

/// Short waits. Binding conditions are read every 5 seconds, and at least twice.
const CONFIGURATION: &str = "\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
podInitialBackoffSeconds: 1
podMaxBackoffSeconds: 1
profiles:
- schedulerName: default-scheduler
  pluginConfig:
  - name: DynamicResources
    args: {bindingTimeout: 1s}
";

/// A cluster with the nodes n0 and n1.
pub(super) struct World {
    pub(super) server: ApiServer,
    scheduler: Option<LiveScheduler>,
}

impl World {
    /// Creates the objects, and starts a scheduler.
    pub(super) async fn new(objects: impl IntoIterator<Item = Value>) -> World {
        let bookmark_every = Duration::from_millis(100);
        let options = Options { bookmark_every, ..Options::default() };
        let server = ApiServer::start(options).expect("a free port");
        let mut world = World { server, scheduler: None };
        ["n0", "n1"].iter().for_each(|name| world.create(&node(name, 8_000)));
        objects.into_iter().for_each(|object| world.create(&object));
        world.start().await;
        world
    }

    async fn start(&mut self) {
        let api = client(&self.server, "ours", Limits::default());
        let mut config = LiveConfig::default();
        config.configuration = Some(CONFIGURATION.into());
        let scheduler = LiveScheduler::start(api, Fence::opened(), config);
        let mut scheduler = scheduler.expect("a scheduler");
        scheduler.mirror().synced().await.expect("synced");
        scheduler.begin().expect("begun");
        self.scheduler = Some(scheduler);
    }

    /// Starts a scheduler in place of the present one.
    pub(super) async fn restart(&mut self) {
        let present = self.scheduler.take().expect("a scheduler");
        present.stop(Duration::ZERO).await;
        self.start().await;
    }

    pub(super) fn create(&self, object: &Value) {
        self.server.create(object).expect("created");
    }

    /// Creates a pod that uses these claims. A claim named `new-x` is generated from the template x.
    pub(super) fn pod(&self, name: &str, claims: &[&str]) {
        let entry = |claim: &&str| match claim.strip_prefix("new-") {
            Some(template) => json!({"name": claim, "resourceClaimTemplateName": template}),
            None => json!({"name": claim, "resourceClaimName": claim}),
        };
        let mut pod = pod(name, 100);
        pod["spec"]["resourceClaims"] = claims.iter().map(entry).collect();
        self.create(&pod);
    }

    pub(super) fn delete(&self, kind: &str, name: &str) {
        let namespace = if kind == "ResourceSlice" { "" } else { "default" };
        self.server.delete(kind, namespace, name, &Value::Null).expect("deleted");
    }

    /// Applies a merge patch to an object of the cluster.
    pub(super) fn change(&self, kind: &str, name: &str, patch: &Value) {
        self.server.patch(kind, "", name, PatchKind::Merge, patch).expect("changed");
    }

    /// Changes the status of a claim.
    pub(super) fn report(&self, claim: &str, status: &Value) {
        let status = json!({ "status": status });
        self.server.patch_status("ResourceClaim", "default", claim, &status).expect("reported");
    }

    /// Reports a condition of the only device of a claim, as its driver does.
    pub(super) fn condition(&self, claim: &str, kind: &str) {
        let result = &self.claim(claim)["status"]["allocation"]["devices"]["results"][0];
        let conditions = json!([{"type": kind, "status": "True", "reason": "R", "message": "M"}]);
        let mut report = json!({ "conditions": conditions });
        ["driver", "pool", "device"].iter().for_each(|of| report[*of] = result[*of].clone());
        self.report(claim, &json!({"devices": [report]}));
    }

    pub(super) fn claim(&self, name: &str) -> Value {
        self.server.get("ResourceClaim", "default", name).unwrap_or_default()
    }

    /// Waits until the claim is allocated, and returns its devices, each after its request.
    pub(super) async fn devices(&self, claim: &str) -> String {
        let results = || self.claim(claim)["status"]["allocation"]["devices"]["results"].clone();
        until(&format!("{claim} is allocated"), || results().is_array()).await;
        let text = |result: &Value| {
            let of = |field: &str| result[field].as_str().unwrap_or_default().to_owned();
            format!("{}={}/{}", of("request"), of("pool"), of("device"))
        };
        let results = results();
        let texts: Vec<String> = results.as_array().into_iter().flatten().map(text).collect();
        texts.join(" ")
    }

    /// Returns the pods for which a claim is reserved, in alphabetical order.
    pub(super) fn consumers(&self, claim: &str) -> Vec<String> {
        let claim = self.claim(claim);
        let consumers = claim["status"]["reservedFor"].as_array().into_iter().flatten();
        let mut names: Vec<String> =
            consumers.filter_map(|of| of["name"].as_str()).map(str::to_owned).collect();
        names.sort();
        names
    }

    /// Waits until a pod is bound, and checks its node.
    pub(super) async fn bound(&self, pod: &str, node: &str) {
        until(&format!("{pod} is bound"), || node_of(&self.server, pod).is_some()).await;
        assert_eq!(node_of(&self.server, pod).as_deref(), Some(node), "{pod}");
    }

    /// Waits until a pod is reported as not scheduled for a reason that contains this text.
    pub(super) async fn waits(&self, pod: &str, text: &str) {
        let message = || condition(&self.server, pod)["message"].to_string();
        until(&format!("{pod} waits: {text}"), || message().contains(text)).await;
        assert_eq!(find(&self.server, pod)["spec"]["nodeName"], Value::Null, "{pod}");
    }
}

fn object(kind: &str, name: &str, spec: Value) -> Value {
    json!({"apiVersion": "resource.k8s.io/v1", "kind": kind, "metadata": {"name": name}, "spec": spec})
}

/// The class `gpu` of all devices, which supplies `example.com/gpu`.
pub(super) fn class() -> Value {
    let selector = json!({"cel": {"expression": format!("device.driver == '{DRIVER}'")}});
    let spec = json!({"extendedResourceName": "example.com/gpu", "selectors": [selector]});
    object("DeviceClass", "gpu", spec)
}

/// The only slice of a node's pool. `devices` contains one device as an object, or a list.
pub(super) fn slice(node: &str, devices: Value) -> Value {
    let pool = json!({"name": node, "generation": 1, "resourceSliceCount": 1});
    let devices = if devices.is_array() { devices } else { json!([devices]) };
    let spec = json!({"driver": DRIVER, "nodeName": node, "pool": pool, "devices": devices});
    object("ResourceSlice", node, spec)
}

/// Devices without attributes, `gpu-0` and so on.
pub(super) fn plain(count: usize) -> Value {
    (0..count).map(|at| json!({"name": format!("gpu-{at}")})).collect()
}

/// A request `r` for devices of the class `gpu`.
fn requests(exactly: &Value) -> Value {
    let mut exactly = exactly.clone();
    exactly["deviceClassName"] = "gpu".into();
    json!({"devices": {"requests": [{"name": "r", "exactly": exactly}]}})
}

/// A claim with one request `r` for devices of the class `gpu`.
pub(super) fn claim(name: &str, exactly: &Value) -> Value {
    object("ResourceClaim", name, requests(exactly))
}

/// A template of claims for one device.
pub(super) fn template(name: &str) -> Value {
    object("ResourceClaimTemplate", name, json!({"spec": requests(&json!({}))}))
}
