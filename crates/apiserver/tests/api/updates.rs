//! Updates of whole objects, as sent by programs that store manifests without a resourceVersion.

use portolan_apiserver::{AdmissionPlugin, Options};
use serde_json::{Value, json};

use crate::support::{create_on, pod, server, server_with};

#[test]
fn a_manifest_updates_the_pod_that_was_created_from_it() {
    let server = server();
    let mut manifest = pod("a");
    manifest["spec"]["schedulingGates"] = json!([{"name": "hold"}]);
    let created = server.create(&manifest).unwrap();
    manifest["spec"]["schedulingGates"] = Value::Null;
    manifest["metadata"]["labels"] = json!({"app": "web"});
    // Defaults and admission fill in what the manifest leaves out: priority, tolerations, service links.
    manifest["spec"]["serviceAccountName"] = created["spec"]["serviceAccountName"].clone();
    manifest["spec"]["serviceAccount"] = created["spec"]["serviceAccount"].clone();
    let updated = server.update(&manifest).unwrap();
    assert_eq!(updated["metadata"]["labels"], json!({"app": "web"}));
    assert_eq!(updated["spec"]["tolerations"], created["spec"]["tolerations"]);
    assert_eq!(updated["spec"]["priority"], 0);
    assert_eq!(updated["metadata"]["uid"], created["metadata"]["uid"]);
    manifest["spec"]["priority"] = 3.into();
    assert_eq!(server.update(&manifest).unwrap_err().code, 422);
}

#[test]
fn without_admission_plugins_pods_keep_the_priority_that_they_name() {
    let disabled_admission = vec![AdmissionPlugin::Priority, AdmissionPlugin::ServiceAccount];
    let server = server_with(Options { disabled_admission, ..Options::default() });
    let mut high = pod("high");
    high["spec"]["priority"] = 10.into();
    let created = server.create(&high).unwrap();
    assert_eq!(created["spec"]["priority"], 10);
    assert_eq!(created["spec"].get("serviceAccountName"), None);
    assert_eq!(server.create(&pod("none")).unwrap()["spec"].get("priority"), None);
    assert_eq!(server.update(&high).unwrap()["spec"]["priority"], 10);
}

#[test]
fn a_resize_changes_the_resources_of_containers_and_nothing_else() {
    let server = server();
    let created = server.create(&pod("a")).unwrap();
    let mut smaller = pod("a");
    smaller["metadata"]["labels"] = json!({"app": "web"});
    smaller["spec"]["containers"][0]["image"] = "registry.example.com/pause:9".into();
    smaller["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": "1m"}});
    let resized = server.resize(&smaller).unwrap();
    let container = &resized["spec"]["containers"][0];
    assert_eq!(container["resources"]["requests"], json!({"cpu": "1m"}));
    assert_eq!(container["image"], created["spec"]["containers"][0]["image"]);
    assert_eq!(resized["metadata"]["labels"], created["metadata"]["labels"]);
    assert_eq!(resized["metadata"]["generation"], 2);
    assert_eq!(server.resize(&pod("b")).unwrap_err().code, 404);
    let node = json!({"kind": "Node", "apiVersion": "v1", "metadata": {"name": "n"}});
    server.create(&node).unwrap();
    assert_eq!(server.resize(&node).unwrap_err().code, 404);
}

#[test]
fn new_writes_are_read_by_their_resource() {
    let server = server();
    create_on(&server, &pod("a"), "n");
    let names = |seen: usize, resources: &[&str]| {
        let (writes, all) = server.writes_since(seen, resources);
        let name = |write: &portolan_apiserver::Write| (write.resource.clone(), write.name.clone());
        (writes.iter().map(name).collect::<Vec<_>>(), all)
    };
    let of = |resource: &str, name: &str| (resource.to_owned(), name.to_owned());
    assert_eq!(names(0, &["pods/binding"]), (vec![of("pods/binding", "a")], 2));
    assert_eq!(names(2, &["pods", "pods/binding"]), (Vec::new(), 2));
    server.create(&pod("b")).unwrap();
    assert_eq!(names(2, &["pods"]), (vec![of("pods", "b")], 3));
    assert_eq!(names(9, &["pods"]), (Vec::new(), 3));
}
