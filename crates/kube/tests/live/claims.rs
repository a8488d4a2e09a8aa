//! A whole scheduler, and pods with resource claims.

use std::time::Duration;

use portolan_apiserver::{ApiServer, Options};
use portolan_kube::api::Limits;
use portolan_kube::process::{LiveConfig, LiveScheduler};
use portolan_kube::write::Fence;
use serde_json::{Value, json};

use crate::support::{client, condition, find, node, node_of, pod, until};

/// Starts a server with controllers, a class, and nodes that have these numbers of devices.
fn cluster(devices: &[usize]) -> ApiServer {
    let bookmark_every = Duration::from_millis(100);
    let options = Options { bookmark_every, ..Options::default() };
    let server = ApiServer::start(options).expect("a free port");
    let create = |object: Value| drop(server.create(&object).expect("created"));
    create(
        json!({"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": "gpu"},
        "spec": {"extendedResourceName": "example.com/gpu",
            "selectors": [{"cel": {"expression": "device.driver == 'gpu.example.com'"}}]}}),
    );
    create(json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate",
        "metadata": {"name": "one", "namespace": "default"}, "spec": {"spec": {"devices": {
            "requests": [{"name": "r", "exactly": {"deviceClassName": "gpu"}}]}}}}));
    for (at, count) in devices.iter().enumerate() {
        let name = format!("n{at}");
        create(node(&name, 8_000));
        let devices: Vec<Value> =
            (0..*count).map(|n| json!({"name": format!("gpu-{n}")})).collect();
        create(json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice",
            "metadata": {"name": format!("{name}-gpus")}, "spec": {"driver": "gpu.example.com",
                "nodeName": name, "devices": devices,
                "pool": {"name": name, "generation": 1, "resourceSliceCount": 1}}}));
    }
    server
}

async fn start(server: &ApiServer) -> LiveScheduler {
    let api = client(server, "ours", Limits::default());
    let scheduler = LiveScheduler::start(api, Fence::opened(), LiveConfig::default());
    let mut scheduler = scheduler.expect("a scheduler");
    scheduler.mirror().synced().await.expect("synced");
    scheduler.begin().expect("begun");
    scheduler
}

/// A pod with a claim of one device from a template.
fn claiming(name: &str) -> Value {
    let mut pod = pod(name, 100);
    pod["spec"]["resourceClaims"] = json!([{"name": "gpu", "resourceClaimTemplateName": "one"}]);
    pod
}

/// Returns the only claim that is reserved for a pod, or null.
fn claim_of(server: &ApiServer, pod: &str) -> Value {
    let uid = &find(server, pod)["metadata"]["uid"];
    let reserved = |claim: &&Value| {
        let consumers = claim["status"]["reservedFor"].as_array();
        consumers.is_some_and(|consumers| consumers.iter().any(|of| of["uid"] == *uid))
    };
    let claims = server.objects("ResourceClaim");
    let found: Vec<&Value> = claims.iter().filter(reserved).collect();
    assert!(found.len() < 2, "{found:?}");
    found.first().map(|claim| (*claim).clone()).unwrap_or_default()
}

fn device_of(claim: &Value) -> String {
    let result = &claim["status"]["allocation"]["devices"]["results"][0];
    format!("{}/{}", result["pool"], result["device"]).replace('"', "")
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_get_devices_and_leave_them_to_the_next() {
    let server = cluster(&[1, 1]);
    let scheduler = start(&server).await;
    for name in ["a", "b"] {
        server.create(&claiming(name)).expect("created");
        until("bound", || node_of(&server, name).is_some()).await;
    }
    let mut devices = ["a", "b"].map(|name| device_of(&claim_of(&server, name)));
    devices.sort();
    assert_eq!(devices, ["n0/gpu-0", "n1/gpu-0"]);

    server.create(&claiming("c")).expect("created");
    until("reported", || condition(&server, "c")["status"] == "False").await;
    let message = &condition(&server, "c")["message"];
    let expected = "0/2 nodes are available: 2 cannot allocate all claims. still not schedulable, \
                    preemption: 0/2 nodes are available: 2 Preemption is not helpful for scheduling.";
    assert_eq!(*message, expected);
    let freed = node_of(&server, "a");
    server.delete("Pod", "default", "a", &Value::Null).expect("deleted");
    until("bound", || node_of(&server, "c").is_some()).await;
    assert_eq!(node_of(&server, "c"), freed);
    scheduler.stop(Duration::ZERO).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn extended_resources_are_backed_by_devices() {
    let server = cluster(&[0, 2]);
    let scheduler = start(&server).await;
    let mut extended = pod("a", 100);
    let amounts = json!({"cpu": "100m", "example.com/gpu": "2"});
    extended["spec"]["containers"][0]["resources"] =
        json!({"requests": amounts, "limits": amounts});
    server.create(&extended).expect("created");
    until("bound", || node_of(&server, "a").is_some()).await;
    assert_eq!(node_of(&server, "a").as_deref(), Some("n1"));
    let claim = claim_of(&server, "a");
    let status = &find(&server, "a")["status"]["extendedResourceClaimStatus"];
    assert_eq!(status["resourceClaimName"], claim["metadata"]["name"]);
    assert_eq!(status["requestMappings"][0]["resourceName"], "example.com/gpu");
    let results = claim["status"]["allocation"]["devices"]["results"].as_array().map(Vec::len);
    assert_eq!(results, Some(2), "{claim}");
    scheduler.stop(Duration::ZERO).await;
}
