//! Updates of whole objects, as sent by programs that store manifests without a resourceVersion.

use portolan_apiserver::Options;
use serde_json::{Value, json};

use crate::support::{pod, server, server_with};

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
fn without_the_admission_plugin_priority_pods_keep_the_priority_that_they_name() {
    let server = server_with(Options { admits_priorities: false, ..Options::default() });
    let mut high = pod("high");
    high["spec"]["priority"] = 10.into();
    let created = server.create(&high).unwrap();
    assert_eq!(created["spec"]["priority"], 10);
    assert_eq!(server.create(&pod("none")).unwrap()["spec"].get("priority"), None);
    assert_eq!(server.update(&created).unwrap()["spec"]["priority"], 10);
}
