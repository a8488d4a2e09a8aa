//! The rules of resource.k8s.io, and the life of the claims of pods.

use std::time::Duration;

use portolan_apiserver::{ApiServer, Kubelet, PatchKind};
use serde_json::{Value, json};

use crate::support::{client, eventually, node, pod, server, server_with, uid};

const CLAIMS: &str = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims";
const C: &str = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims/c";
const C_STATUS: &str = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims/c/status";
const FINALIZER: &str = "resource.kubernetes.io/delete-protection";

fn requests() -> Value {
    json!({"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu.example.com"}}]}})
}

fn claim(name: &str) -> Value {
    json!({"kind": "ResourceClaim", "apiVersion": "resource.k8s.io/v1", "metadata": {"name": name},
        "spec": requests()})
}

fn template(name: &str) -> Value {
    json!({"kind": "ResourceClaimTemplate", "apiVersion": "resource.k8s.io/v1", "metadata": {"name": name},
        "spec": {"metadata": {"labels": {"app": "ml"}}, "spec": requests()}})
}

fn allocation(device: &str) -> Value {
    let result =
        json!({"request": "gpu", "driver": "gpu.example.com", "pool": "n", "device": device});
    json!({"devices": {"results": [result]}})
}

fn consumer(name: &str, uid: &str) -> Value {
    json!({"resource": "pods", "name": name, "uid": uid})
}

/// Allocates the claim c and reserves it for these uids, as a scheduler does.
fn allocate(server: &ApiServer, uids: &[&str]) -> Value {
    let finalizers = json!({"metadata": {"finalizers": [FINALIZER]}});
    server.patch("ResourceClaim", "default", "c", PatchKind::Merge, &finalizers).unwrap();
    let consumers: Vec<Value> = uids.iter().map(|uid| consumer("a", uid)).collect();
    let status = json!({"status": {"allocation": allocation("gpu-0"), "reservedFor": consumers}});
    server.patch_status("ResourceClaim", "default", "c", &status).unwrap()
}

#[test]
fn absent_fields_of_requests_get_their_defaults() {
    let server = server();
    let mut object = claim("c");
    object["spec"]["devices"]["constraints"] = json!([]);
    object["spec"]["devices"]["requests"] = json!([
        {"name": "a", "exactly": {"deviceClassName": "x", "tolerations": [{"key": "k"}]}},
        {"name": "b", "firstAvailable": [
            {"name": "s", "deviceClassName": "x", "allocationMode": "All"},
            {"name": "t", "deviceClassName": "x", "count": 2},
        ]},
    ]);
    let created = server.create(&object).unwrap();
    let tolerations = json!([{"key": "k", "operator": "Equal"}]);
    assert_eq!(
        created["spec"],
        json!({"devices": {"requests": [
            {"name": "a", "exactly": {"deviceClassName": "x", "allocationMode": "ExactCount", "count": 1,
                "tolerations": tolerations}},
            {"name": "b", "firstAvailable": [
                {"name": "s", "deviceClassName": "x", "allocationMode": "All"},
                {"name": "t", "deviceClassName": "x", "allocationMode": "ExactCount", "count": 2},
            ]},
        ]}})
    );
    let template = server.create(&template("t")).unwrap();
    let request = &template["spec"]["spec"]["devices"]["requests"][0]["exactly"];
    assert_eq!((&request["allocationMode"], &request["count"]), (&json!("ExactCount"), &json!(1)));
}

#[test]
fn requests_that_cannot_be_allocated_are_refused() {
    let server = server();
    let refused = |requests: Value| {
        let mut object = claim("c");
        object["spec"]["devices"]["requests"] = requests;
        let error = server.create(&object).unwrap_err();
        assert_eq!(error.code, 422);
        let start = "ResourceClaim.resource.k8s.io \"c\" is invalid: spec.devices.requests";
        error.message.strip_prefix(start).expect(&error.message).to_owned()
    };
    let exactly = json!({"deviceClassName": "x"});
    assert_eq!(
        refused(json!([{"name": "a"}])),
        "[0]: Required value: exactly one of `exactly` or `firstAvailable` is required"
    );
    let request = |name: &str| json!({"name": name, "exactly": exactly});
    assert_eq!(refused(json!([{"exactly": exactly}])), "[0].name: Required value");
    assert_eq!(refused(json!([request("a"), request("a")])), "[1]: Duplicate value: \"a\"");
    assert_eq!(
        refused(json!([{"name": "a", "exactly": {}}])),
        "[0].exactly.deviceClassName: Required value"
    );
    let all = json!({"deviceClassName": "x", "allocationMode": "All", "count": 2});
    assert_eq!(
        refused(json!([{"name": "a", "exactly": all}])),
        "[0].exactly.count: Invalid value: 2: must not be specified when allocationMode is 'All'"
    );
    let requests: Vec<Value> = (0..33).map(|n| request(&format!("r{n}"))).collect();
    assert_eq!(refused(requests.into()), ": Too many: 33: must have at most 32 items");
}

#[test]
fn the_status_of_a_claim_is_written_only_through_its_subresource() {
    let server = server();
    let mut client = client(&server);
    let mut object = claim("c");
    object["status"] = json!({"allocation": allocation("gpu-0")});
    let created = client.post(CLAIMS, &object).body;
    assert_eq!(created["status"], json!({}));
    let both =
        json!({"metadata": {"labels": {"x": "1"}}, "status": {"allocation": allocation("gpu-0")}});
    let main = client.merge(C, &both).body;
    assert_eq!((&main["metadata"]["labels"]["x"], &main["status"]), (&json!("1"), &json!({})));
    let mut whole = main.clone();
    whole["metadata"]["labels"]["x"] = "2".into();
    whole["spec"] = json!({});
    whole["status"]["allocation"] = allocation("gpu-0");
    let written = client.put(C_STATUS, &whole).body;
    assert_eq!(written["status"]["allocation"], allocation("gpu-0"));
    assert_eq!(
        (&written["spec"], &written["metadata"]["labels"]["x"]),
        (&main["spec"], &json!("1"))
    );
    let stale = client.put(C_STATUS, &whole);
    let text = "Operation cannot be fulfilled on resourceclaims.resource.k8s.io \"c\": the object has been modified; \
                please apply your changes to the latest version and try again";
    assert_eq!((stale.code, stale.message()), (409, text));
}

#[test]
fn specs_are_immutable() {
    let server = server();
    let mut client = client(&server);
    server.create(&claim("c")).unwrap();
    let reply = client.merge(C, &json!({"spec": {"devices": {"requests": null}}}));
    let text = "ResourceClaim.resource.k8s.io \"c\" is invalid: spec: Invalid value: {\"devices\":{}}: field is \
                immutable";
    assert_eq!((reply.code, reply.message()), (422, text));
    // The same specification, with fields that are not written.
    let mut same = claim("c");
    same["spec"]["devices"]["config"] = json!([]);
    assert_eq!(client.put(C, &same).code, 200);
}

#[test]
fn an_allocation_can_only_be_removed_and_only_when_nobody_uses_it() {
    let server = server();
    let mut client = client(&server);
    server.create(&claim("c")).unwrap();
    allocate(&server, &["u-1"]);
    let other = client.merge(C_STATUS, &json!({"status": {"allocation": allocation("gpu-1")}}));
    assert_eq!(other.code, 422);
    assert!(other.message().contains("status.allocation: Invalid value: {"), "{}", other.message());
    assert!(other.message().ends_with(": field is immutable"), "{}", other.message());
    let removed = client.merge(C_STATUS, &json!({"status": {"allocation": null}}));
    let text = "ResourceClaim.resource.k8s.io \"c\" is invalid: status.reservedFor: Forbidden: may not be specified \
                when `allocated` is not set";
    assert_eq!((removed.code, removed.message()), (422, text));
    let both = json!({"status": {"allocation": null, "reservedFor": null}});
    assert_eq!(client.merge(C_STATUS, &both).body["status"], json!({}));
}

#[test]
fn a_new_allocation_must_belong_to_the_claim() {
    let server = server();
    server.create(&claim("c")).unwrap();
    let refused = |result: Value| {
        let status = json!({"status": {"allocation": {"devices": {"results": result}}}});
        server.patch_status("ResourceClaim", "default", "c", &status).unwrap_err().message
    };
    let result = json!({"request": "nic", "driver": "d", "pool": "p", "device": "x"});
    let text = "status.allocation.devices.results[0].request: Invalid value: \"nic\": must be the name of a request in \
                the claim or the name of a request and a subrequest separated by '/'";
    assert!(refused(json!([result])).ends_with(text));
    let results = vec![json!({"request": "gpu", "driver": "d", "pool": "p", "device": "x"}); 33];
    let text = "status.allocation.devices.results: Too many: 33: must have at most 32 items";
    assert!(refused(results.into()).ends_with(text));
}

#[test]
fn administrative_access_needs_a_label_of_the_namespace() {
    let server = server();
    let mut admin = claim("c");
    admin["spec"]["devices"]["requests"][0]["exactly"]["adminAccess"] = true.into();
    let text = ".adminAccess: Forbidden: admin access to devices requires the \
                `resource.kubernetes.io/admin-access: true` label on the containing namespace";
    let message = server.create(&admin).unwrap_err().message;
    assert!(message.ends_with(&format!("spec.devices.requests[0]{text}")), "{message}");
    let mut used = allocation("gpu-0");
    used["devices"]["results"][0]["adminAccess"] = true.into();
    let status = json!({"status": {"allocation": used}});
    server.create(&claim("plain")).unwrap();
    let allocate = |name| server.patch_status("ResourceClaim", "default", name, &status);
    let message = allocate("plain").unwrap_err().message;
    assert!(message.ends_with(&format!("status.allocation.devices.results[0]{text}")), "{message}");

    let label = |value: &str| {
        let labels =
            json!({"metadata": {"labels": {"resource.kubernetes.io/admin-access": value}}});
        server.patch("Namespace", "", "default", PatchKind::Merge, &labels).unwrap();
    };
    label("false");
    server.create(&admin).unwrap_err();
    label("true");
    server.create(&admin).unwrap();
    assert_eq!(allocate("c").unwrap()["status"]["allocation"], used);
    // What was allocated stays, whatever becomes of the label.
    label("false");
    let reserve = json!({"status": {"reservedFor": [consumer("a", "u-1")]}});
    server.patch_status("ResourceClaim", "default", "c", &reserve).unwrap();
}

#[test]
fn shares_and_configurations_are_stored_as_they_are_written() {
    let server = server();
    let opaque =
        json!({"driver": "gpu.example.com", "parameters": {"list": [], "map": {"list": []}}});
    let mut object = claim("c");
    object["spec"]["devices"]["config"] = json!([{"requests": [], "opaque": opaque}]);
    let created = server.create(&object).unwrap();
    assert_eq!(created["spec"]["devices"]["config"], json!([{"opaque": opaque}]));
    let result = json!({
        "request": "gpu", "driver": "gpu.example.com", "pool": "n", "device": "gpu-0",
        "shareID": "6d4ec1a1-4b8a-4c3c-8a83-0c3d0a3b1f0e", "consumedCapacity": {"memory": "1Gi"},
    });
    let config = json!([{"source": "FromClaim", "requests": ["gpu"], "opaque": opaque}]);
    let allocation = json!({"devices": {"results": [result], "config": config}});
    let status = json!({"status": {"allocation": allocation}});
    server.patch_status("ResourceClaim", "default", "c", &status).unwrap();
    assert_eq!(status_of(&server, "c"), status["status"]);
}

#[test]
fn consumers_are_bounded_and_unique_by_uid() {
    let server = server();
    let mut client = client(&server);
    server.create(&claim("c")).unwrap();
    allocate(&server, &[]);
    let mut write = |consumers: Vec<Value>| {
        let reply = client.merge(C_STATUS, &json!({"status": {"reservedFor": consumers}}));
        (reply.code, reply.message().to_owned())
    };
    let many = |count: usize| (0..count).map(|n| consumer("a", &format!("u-{n}"))).collect();
    assert_eq!(write(many(256)).0, 200);
    let start = "ResourceClaim.resource.k8s.io \"c\" is invalid: status.reservedFor";
    let text = format!("{start}: Too many: 257: must have at most 256 items");
    assert_eq!(write(many(257)), (422, text));
    let text = format!("{start}[1]: Duplicate value: \"u-1\"");
    assert_eq!(write(vec![consumer("a", "u-1"), consumer("b", "u-1")]), (422, text));
    let text = format!("{start}[0].uid: Required value");
    assert_eq!(write(vec![json!({"resource": "pods", "name": "a"})]), (422, text));
}

#[test]
fn consumers_are_merged_and_removed_by_uid() {
    let server = server();
    let mut client = client(&server);
    let created = server.create(&claim("c")).unwrap();
    allocate(&server, &["u-1"]);
    let add = json!({"status": {"reservedFor": [consumer("b", "u-2")]}});
    let consumers = client.patch(C_STATUS, &add).body["status"]["reservedFor"].clone();
    assert_eq!(consumers.as_array().map(Vec::len), Some(2));
    let remove = |claim: &str, pod: &str| json!({"metadata": {"uid": claim}, "status": {"reservedFor": [{"$patch": "delete", "uid": pod}]}});
    let left = client.patch(C_STATUS, &remove(&uid(&created), "u-1")).body;
    assert_eq!(left["status"]["reservedFor"], json!([consumer("b", "u-2")]));
    let reply = client.patch(C_STATUS, &remove("other", "u-2"));
    assert_eq!(reply.code, 422);
    let left = client.patch(C_STATUS, &remove(&uid(&created), "u-2")).body;
    assert_eq!(left["status"], json!({"allocation": allocation("gpu-0")}));
}

#[test]
fn reports_about_devices_end_with_their_allocation() {
    let server = server();
    let mut client = client(&server);
    server.create(&claim("c")).unwrap();
    allocate(&server, &[]);
    let report = |device: &str| {
        let device = json!({"driver": "gpu.example.com", "pool": "n", "device": device});
        json!({"status": {"devices": [device]}})
    };
    let reply = client.merge(C_STATUS, &report("gpu-1"));
    let text = "ResourceClaim.resource.k8s.io \"c\" is invalid: status.devices[0]: Invalid value: \
                \"gpu.example.com/n/gpu-1\": must be an allocated device in the claim";
    assert_eq!((reply.code, reply.message()), (422, text));
    assert_eq!(client.merge(C_STATUS, &report("gpu-0")).code, 200);
    let removed = client.merge(C_STATUS, &json!({"status": {"allocation": null}}));
    assert_eq!(removed.body["status"], json!({}));
}

#[test]
fn a_protected_claim_terminates_until_its_finalizer_is_removed() {
    let server = server();
    let mut client = client(&server);
    server.create(&claim("c")).unwrap();
    allocate(&server, &["u-1"]);
    let deleted = client.delete(C, &Value::Null).body;
    assert!(deleted["metadata"]["deletionTimestamp"].is_string());
    let add = json!({"status": {"reservedFor": [consumer("b", "u-2")]}});
    let reply = client.patch(C_STATUS, &add);
    let text = "ResourceClaim.resource.k8s.io \"c\" is invalid: status.reservedFor: Forbidden: new entries may not be \
                added while `deallocationRequested` or `deletionTimestamp` are set";
    assert_eq!((reply.code, reply.message()), (422, text));
    assert_eq!(client.merge(C, &json!({"metadata": {"finalizers": null}})).code, 200);
    assert_eq!(client.get(C).code, 404);
}

#[test]
fn names_are_generated_from_a_cut_prefix() {
    let server = server();
    let mut object = claim("");
    object["metadata"] = json!({"generateName": format!("{}-extended-resources-", "p".repeat(60))});
    let name = server.create(&object).unwrap()["metadata"]["name"].as_str().unwrap().to_owned();
    assert_eq!((name.len(), &name[..58]), (63, &*"p".repeat(58)));
}

fn pod_with(name: &str, entry: Value) -> Value {
    let mut object = pod(name);
    object["spec"]["resourceClaims"] = json!([entry]);
    object
}

#[test]
fn pods_report_only_their_own_claims() {
    let server = server();
    let mut client = client(&server);
    let mut object = pod_with("a", json!({"name": "gpu", "resourceClaimTemplateName": "t"}));
    object["spec"]["containers"][0]["resources"]["requests"]["example.com/gpu"] = "1".into();
    server.create(&object).unwrap();
    let path = "/api/v1/namespaces/default/pods/a/status";
    let status = |name: &str, claim: &str| json!({"status": {"resourceClaimStatuses": [{"name": name, "resourceClaimName": claim}]}});
    assert_eq!(client.patch(path, &status("gpu", "x")).code, 200);
    let merged = client.patch(path, &status("gpu", "y")).body;
    assert_eq!(
        merged["status"]["resourceClaimStatuses"],
        json!([{"name": "gpu", "resourceClaimName": "y"}])
    );
    let reply = client.patch(path, &status("nic", "x"));
    let text = "must match the name of an entry in `spec.resourceClaims`";
    assert_eq!((reply.code, reply.message().contains(text)), (422, true));
    let extended = |container: &str, resource: &str| {
        let mapping =
            json!({"containerName": container, "resourceName": resource, "requestName": "r"});
        let status = json!({"resourceClaimName": "z", "requestMappings": [mapping]});
        json!({"status": {"extendedResourceClaimStatus": status}})
    };
    let written = client.patch(path, &extended("c", "example.com/gpu")).body;
    assert_eq!(written["status"]["extendedResourceClaimStatus"]["resourceClaimName"], "z");
    assert_eq!(written["status"]["resourceClaimStatuses"][0]["resourceClaimName"], "y");
    for (container, resource) in [("d", "example.com/gpu"), ("c", "example.com/nic")] {
        assert_eq!(client.patch(path, &extended(container, resource)).code, 422);
    }
}

fn claims(server: &ApiServer) -> Vec<Value> {
    server.objects("ResourceClaim")
}

fn status_of(server: &ApiServer, name: &str) -> Value {
    server.get("ResourceClaim", "default", name).unwrap_or_default()["status"].clone()
}

#[test]
fn a_pod_gets_a_claim_from_its_template_that_ends_with_the_pod() {
    let server = server_with(Default::default());
    server.create(&node("n")).unwrap();
    let _kubelet = Kubelet::start(&server, Duration::ZERO);
    let mut object = pod_with("a", json!({"name": "gpu", "resourceClaimTemplateName": "t"}));
    object["spec"]["terminationGracePeriodSeconds"] = 0.into();
    let pod = server.create(&object).unwrap();
    // The template may be created later.
    server.create(&template("t")).unwrap();
    let status = || {
        let pod = server.get("Pod", "default", "a").unwrap();
        pod["status"]["resourceClaimStatuses"][0]["resourceClaimName"].as_str().map(str::to_owned)
    };
    eventually("a status", || status().is_some());
    let name = status().unwrap();
    let claim = server.get("ResourceClaim", "default", &name).unwrap();
    assert!(name.starts_with("a-gpu-") && name.len() == "a-gpu-".len() + 5, "{name}");
    let metadata = &claim["metadata"];
    assert_eq!(metadata["generateName"], "a-gpu-");
    assert_eq!(metadata["labels"], json!({"app": "ml"}));
    assert_eq!(metadata["annotations"], json!({"resource.kubernetes.io/pod-claim-name": "gpu"}));
    let owner = json!({"apiVersion": "v1", "kind": "Pod", "name": "a", "uid": uid(&pod), "controller": true});
    assert_eq!(metadata["ownerReferences"], json!([owner]));

    // A scheduler allocates and reserves it, and binds the pod.
    let finalizers = json!({"metadata": {"finalizers": [FINALIZER]}});
    server.patch("ResourceClaim", "default", &name, PatchKind::Merge, &finalizers).unwrap();
    let reserved =
        json!({"allocation": allocation("gpu-0"), "reservedFor": [consumer("a", &uid(&pod))]});
    let status = json!({"status": reserved});
    server.patch_status("ResourceClaim", "default", &name, &status).unwrap();
    server.bind("default", "a", "n").unwrap();
    let running = || server.get("Pod", "default", "a").unwrap()["status"]["phase"] == "Running";
    eventually("a running pod", running);
    assert_eq!(status_of(&server, &name), reserved);
    server.delete("Pod", "default", "a", &Value::Null).unwrap();
    eventually("no claims", || claims(&server).is_empty());
    assert!(server.objects("Pod").is_empty());
}

#[test]
fn the_claim_of_a_finished_pod_is_deleted() {
    let server = server_with(Default::default());
    server.create(&template("t")).unwrap();
    server
        .create(&pod_with("a", json!({"name": "gpu", "resourceClaimTemplateName": "t"})))
        .unwrap();
    eventually("a claim", || claims(&server).len() == 1);
    let ended = json!({"status": {"phase": "Succeeded"}});
    server.patch_status("Pod", "default", "a", &ended).unwrap();
    eventually("no claims", || claims(&server).is_empty());
    assert_eq!(server.objects("Pod").len(), 1);
}

#[test]
fn a_lost_claim_is_created_again() {
    let server = server_with(Default::default());
    server.create(&template("t")).unwrap();
    server
        .create(&pod_with("a", json!({"name": "gpu", "resourceClaimTemplateName": "t"})))
        .unwrap();
    let named = || {
        let pod = server.get("Pod", "default", "a").unwrap();
        pod["status"]["resourceClaimStatuses"][0]["resourceClaimName"].as_str().map(str::to_owned)
    };
    eventually("a status", || named().is_some());
    let first = named().unwrap();
    server.delete("ResourceClaim", "default", &first, &Value::Null).unwrap();
    eventually("another claim", || named().is_some_and(|name| name != first));
    assert_eq!(claims(&server).len(), 1);
}

#[test]
fn a_claim_without_consumers_is_deallocated_and_kept() {
    let server = server_with(Default::default());
    server.create(&claim("c")).unwrap();
    let entry = json!({"name": "gpu", "resourceClaimName": "c"});
    let uids: Vec<String> =
        ["a", "b"].map(|name| uid(&server.create(&pod_with(name, entry.clone())).unwrap())).into();
    let finalizers = json!({"metadata": {"finalizers": [FINALIZER, "example.com/other"]}});
    server.patch("ResourceClaim", "default", "c", PatchKind::Merge, &finalizers).unwrap();
    let both = [consumer("a", &uids[0]), consumer("b", &uids[1])];
    let status = json!({"status": {"allocation": allocation("gpu-0"), "reservedFor": both}});
    server.patch_status("ResourceClaim", "default", "c", &status).unwrap();
    server.delete("Pod", "default", "a", &Value::Null).unwrap();
    let left = json!([both[1]]);
    eventually("one consumer", || status_of(&server, "c")["reservedFor"] == left);
    assert_eq!(status_of(&server, "c")["allocation"], allocation("gpu-0"));
    let ended = json!({"status": {"phase": "Failed"}});
    server.patch_status("Pod", "default", "b", &ended).unwrap();
    let finalizers =
        || server.get("ResourceClaim", "default", "c").unwrap()["metadata"]["finalizers"].clone();
    eventually("no protection", || finalizers() == json!(["example.com/other"]));
    assert_eq!(status_of(&server, "c"), json!({}));
}

#[test]
fn a_bound_pod_gets_the_reservation_that_it_lacks() {
    let server = server_with(Default::default());
    server.create(&claim("c")).unwrap();
    let entry = json!({"name": "gpu", "resourceClaimName": "c"});
    let pod = server.create(&pod_with("a", entry)).unwrap();
    server.bind("default", "a", "n").unwrap();
    allocate(&server, &[]);
    let expected = json!([consumer("a", &uid(&pod))]);
    eventually("a reservation", || status_of(&server, "c")["reservedFor"] == expected);
}

#[test]
fn a_deleted_claim_is_removed_once_its_pod_is_gone() {
    let server = server_with(Default::default());
    server.create(&claim("c")).unwrap();
    let entry = json!({"name": "gpu", "resourceClaimName": "c"});
    let pod = server.create(&pod_with("a", entry)).unwrap();
    allocate(&server, &[&uid(&pod)]);
    server.delete("ResourceClaim", "default", "c", &Value::Null).unwrap();
    assert_eq!(claims(&server).len(), 1);
    server.delete("Pod", "default", "a", &Value::Null).unwrap();
    eventually("no claim", || claims(&server).is_empty());
}
