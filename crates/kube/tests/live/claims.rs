//! A whole scheduler, and pods with resource claims: the cases of Kubernetes' own tests (test/e2e/dra) that need no
//! kubelet.

mod world;

use serde_json::{Value, json};

use crate::support::{find, node_of, pod, until};
use world::{DRIVER, World, claim, class, plain, slice, template};

const NO_DEVICE: &str = "cannot allocate all claims";

/// An allocation of the device gpu-0 of a node.
fn allocation(node: &str) -> Value {
    let result = json!({"request": "r", "driver": DRIVER, "pool": node, "device": "gpu-0"});
    let name = json!({"key": "metadata.name", "operator": "In", "values": [node]});
    let selector = json!({"nodeSelectorTerms": [{"matchFields": [name]}]});
    json!({"devices": {"results": [result]}, "nodeSelector": selector})
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_share_a_claim() {
    let it = World::new([class(), slice("n1", plain(1)), claim("a", &json!({}))]).await;
    for name in ["p", "q", "r"] {
        it.pod(name, &["a"]);
    }
    for name in ["p", "q", "r"] {
        it.bound(name, "n1").await;
    }
    assert_eq!(it.devices("a").await, "r=n1/gpu-0");
    assert_eq!(it.consumers("a"), ["p", "q", "r"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_device_goes_from_pod_to_pod() {
    let it = World::new([class(), slice("n1", plain(1)), template("t")]).await;
    it.pod("p", &["new-t"]);
    it.bound("p", "n1").await;
    it.pod("q", &["new-t"]);
    let expected = "0/2 nodes are available: 2 cannot allocate all claims. still not schedulable, preemption: 0/2 \
                    nodes are available: 2 Preemption is not helpful for scheduling.";
    it.waits("q", expected).await;
    it.delete("Pod", "p");
    it.bound("q", "n1").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_is_deallocated_after_use() {
    let it = World::new([class(), slice("n1", plain(1)), claim("a", &json!({}))]).await;
    it.pod("p", &["a"]);
    it.bound("p", "n1").await;
    it.delete("Pod", "p");
    until("deallocated", || it.claim("a")["status"]["allocation"].is_null()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_runs_without_a_claim_that_is_not_needed() {
    let it = World::new([class()]).await;
    it.pod("p", &["new-t"]);
    let status = json!({"status": {"resourceClaimStatuses": [{"name": "new-t"}]}});
    it.server.patch_status("Pod", "default", "p", &status).expect("patched");
    until("bound", || node_of(&it.server, "p").is_some()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_wait_for_a_class_and_for_a_slice() {
    let it =
        World::new([slice("n1", plain(1)), claim("a", &json!({})), claim("b", &json!({}))]).await;
    it.pod("p", &["a"]);
    it.waits("p", "request r: device class gpu does not exist").await;
    let mut nothing = class();
    nothing["spec"]["selectors"][0]["cel"]["expression"] = "false".into();
    it.create(&nothing);
    it.waits("p", NO_DEVICE).await;
    it.change("DeviceClass", "gpu", &class());
    it.bound("p", "n1").await;
    it.pod("q", &["b"]);
    it.waits("q", NO_DEVICE).await;
    it.create(&slice("n0", plain(1)));
    it.bound("q", "n0").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_runtime_error_on_one_node_keeps_a_pod_pending() {
    let with = json!({"name": "gpu-0", "attributes": {"exists": {"bool": true}}});
    let expression = format!("device.attributes['{DRIVER}'].exists");
    let exactly = json!({"selectors": [{"cel": {"expression": expression}}]});
    let it =
        World::new([class(), slice("n0", with), slice("n1", plain(1)), claim("a", &exactly)]).await;
    it.pod("p", &["a"]);
    it.waits("p", "CEL runtime error: no such key: exists").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_deletion_of_a_claim_frees_its_device() {
    let mut it = World::new([
        class(),
        slice("n1", plain(1)),
        claim("a", &json!({})),
        claim("b", &json!({})),
    ])
    .await;
    it.report("a", &json!({"allocation": allocation("n1")}));
    // The watch of pods may be ahead of the watch of claims. A start reads both.
    it.restart().await;
    it.pod("p", &["b"]);
    it.waits("p", NO_DEVICE).await;
    it.delete("ResourceClaim", "a");
    it.bound("p", "n1").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn administrators_get_devices_in_use() {
    let it = World::new([class(), slice("n1", plain(1)), claim("a", &json!({}))]).await;
    it.pod("p", &["a"]);
    it.bound("p", "n1").await;
    let label = json!({"metadata": {"labels": {"resource.kubernetes.io/admin-access": "true"}}});
    it.change("Namespace", "default", &label);
    it.create(&claim("admin", &json!({"adminAccess": true})));
    it.pod("q", &["admin"]);
    it.bound("q", "n1").await;
    assert_eq!(it.devices("admin").await, "r=n1/gpu-0");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_alternative_that_fits_is_allocated() {
    let mut first = claim("a", &json!({}));
    let sub =
        |name: &str, count: usize| json!({"name": name, "deviceClassName": "gpu", "count": count});
    let subrequests = [sub("three", 3), sub("two", 2), sub("one", 1)];
    first["spec"]["devices"]["requests"] = json!([{"name": "r", "firstAvailable": subrequests}]);
    let it = World::new([class(), slice("n1", plain(2)), first]).await;
    it.pod("p", &["a"]);
    it.bound("p", "n1").await;
    assert_eq!(it.devices("a").await, "r/two=n1/gpu-0 r/two=n1/gpu-1");
}

#[tokio::test(flavor = "multi_thread")]
async fn partitions_share_counters() {
    let partition = |name: &str| {
        let counters = json!({"memory": {"value": "4Gi"}});
        json!({"name": name, "consumesCounters": [{"counterSet": "all", "counters": counters}]})
    };
    let mut devices = slice("n1", json!([partition("gpu-0"), partition("gpu-1")]));
    let mut counters = slice("n1", json!([]));
    counters["metadata"]["name"] = "n1-counters".into();
    let set = json!({"name": "all", "counters": {"memory": {"value": "6Gi"}}});
    counters["spec"]["sharedCounters"] = json!([set]);
    counters["spec"].as_object_mut().expect("a map").remove("devices");
    for of in [&mut devices, &mut counters] {
        of["spec"]["pool"]["resourceSliceCount"] = 2.into();
    }
    let it = World::new([class(), devices, counters, template("t")]).await;
    it.pod("p", &["new-t"]);
    it.bound("p", "n1").await;
    it.pod("q", &["new-t"]);
    it.waits("q", NO_DEVICE).await;
    it.delete("Pod", "p");
    it.bound("q", "n1").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_share_the_capacity_of_a_device() {
    let policy = json!({"default": "1Gi", "validRange": {"min": "1Gi"}});
    let capacity = json!({"memory": {"value": "8Gi", "requestPolicy": policy}});
    let shared = json!({"name": "gpu-0", "allowMultipleAllocations": true, "capacity": capacity});
    let of = |name: &str, memory: &str| {
        claim(name, &json!({"capacity": {"requests": {"memory": memory}}}))
    };
    let objects = [class(), slice("n1", shared), of("a", "4Gi"), of("b", "8Gi"), of("c", "4Gi")];
    let it = World::new(objects).await;
    it.pod("p", &["a"]);
    it.bound("p", "n1").await;
    it.pod("q", &["b"]);
    it.waits("q", NO_DEVICE).await;
    it.pod("r", &["c"]);
    it.bound("r", "n1").await;
    let share =
        |name: &str| it.claim(name)["status"]["allocation"]["devices"]["results"][0].clone();
    let (a, c) = (share("a"), share("c"));
    assert_eq!([&a["device"], &c["device"]], ["gpu-0", "gpu-0"]);
    assert_eq!(c["consumedCapacity"]["memory"], "4Gi");
    assert_ne!(a["shareID"], c["shareID"]);
    it.delete("Pod", "p");
    it.delete("Pod", "r");
    it.bound("q", "n1").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn tainted_devices_need_a_toleration() {
    let taint = json!({"key": "example.com/taint", "value": "tainted", "effect": "NoSchedule"});
    let tainted = json!({"name": "gpu-0", "taints": [taint]});
    let tolerant = json!({"tolerations": [{"operator": "Exists", "effect": "NoSchedule"}]});
    let claims = [claim("a", &json!({})), claim("b", &tolerant)];
    let it = World::new([class(), slice("n1", tainted)].into_iter().chain(claims)).await;
    it.pod("p", &["a"]);
    it.waits("p", NO_DEVICE).await;
    it.pod("q", &["b"]);
    it.bound("q", "n1").await;
}

/// A slice of n0 with a device that must be prepared before a pod is bound.
fn conditional() -> Value {
    let conditions =
        ["bindingConditions", "bindingFailureConditions"].map(|field| (field, json!([field])));
    let mut device = json!({"name": "gpu-0"});
    conditions.into_iter().for_each(|(field, conditions)| device[field] = conditions);
    slice("n0", device)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_is_bound_when_its_device_is_prepared_even_by_another_scheduler() {
    let mut it = World::new([class(), conditional(), claim("a", &json!({}))]).await;
    it.pod("p", &["a"]);
    assert_eq!(it.devices("a").await, "r=n0/gpu-0");
    assert_eq!(node_of(&it.server, "p"), None);
    it.condition("a", "bindingConditions");
    it.restart().await;
    it.bound("p", "n0").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_gets_another_device_if_the_preparation_fails() {
    for condition in [Some("bindingFailureConditions"), None] {
        let it = World::new([class(), conditional(), claim("a", &json!({}))]).await;
        it.pod("p", &["a"]);
        it.devices("a").await;
        // The driver withdraws the device, which would be allocated again.
        it.create(&slice("n1", plain(1)));
        it.delete("ResourceSlice", "n0");
        let reason = match condition {
            Some(condition) => {
                it.condition("a", condition);
                "device binding failed: claim=a, reason=R"
            }
            None => "device binding timeout: claim=a",
        };
        it.waits("p", reason).await;
        it.bound("p", "n1").await;
        assert_eq!(it.devices("a").await, "r=n1/gpu-0");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn devices_supply_extended_resources() {
    let it = World::new([slice("n1", plain(2))]).await;
    let mut extended = pod("p", 100);
    let amounts = json!({"example.com/gpu": "1"});
    let container = |name: &str| {
        let resources = json!({"requests": amounts, "limits": amounts});
        json!({"name": name, "image": "pause", "resources": resources})
    };
    extended["spec"]["containers"] = json!([container("first"), container("second")]);
    it.create(&extended);
    it.waits("p", "Insufficient example.com/gpu").await;
    it.create(&class());
    it.bound("p", "n1").await;
    let status = find(&it.server, "p")["status"]["extendedResourceClaimStatus"].clone();
    let name = status["resourceClaimName"].as_str().expect("a claim");
    let requests = ["container-0-request-0", "container-1-request-0"];
    let devices = format!("{}=n1/gpu-0 {}=n1/gpu-1", requests[0], requests[1]);
    assert_eq!(it.devices(name).await, devices);
    let mapping = |at: usize, container: &str| json!({"containerName": container, "resourceName": "example.com/gpu", "requestName": requests[at]});
    assert_eq!(status["requestMappings"], json!([mapping(0, "first"), mapping(1, "second")]));
    assert_eq!(it.consumers(name), ["p"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_scheduler_knows_the_devices_in_use() {
    let mut it = World::new([class(), slice("n1", plain(1)), template("t")]).await;
    it.pod("p", &["new-t"]);
    it.bound("p", "n1").await;
    it.restart().await;
    it.pod("q", &["new-t"]);
    it.waits("q", NO_DEVICE).await;
    it.restart().await;
    it.delete("Pod", "p");
    it.bound("q", "n1").await;
}
