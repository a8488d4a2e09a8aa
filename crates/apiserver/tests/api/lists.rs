//! Rules of lists.

use serde_json::{Value, json};

use crate::support::{client, node, pod, server};

#[test]
fn a_list_has_items_without_kind_and_the_version_of_the_store() {
    let server = server();
    server.create(&pod("a")).unwrap();
    server.create(&node("n")).unwrap();
    let list = client(&server).get("/api/v1/pods").body;
    assert_eq!((&list["kind"], &list["apiVersion"]), (&json!("PodList"), &json!("v1")));
    assert_eq!(list["metadata"]["resourceVersion"], server.version().to_string());
    assert_eq!(list["items"][0].get("kind"), None);
    assert_eq!(list["items"][0]["metadata"]["name"], "a");
    assert_eq!(client(&server).get("/api/v1/namespaces/kube-system/pods").body["items"], json!([]));
}

fn names(list: &Value) -> Vec<&str> {
    list["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|item| item["metadata"]["name"].as_str().unwrap())
        .collect()
}

#[test]
fn lists_are_selected_by_fields() {
    let server = server();
    for name in ["a", "b", "c"] {
        server.create(&pod(name)).unwrap();
    }
    server.bind("default", "b", "n1").unwrap();
    server.patch_status("Pod", "default", "c", &json!({"status": {"phase": "Succeeded"}})).unwrap();
    let mut client = client(&server);
    let mut list = |query: &str| {
        let list = client.get(&format!("/api/v1/pods?{query}")).body;
        names(&list).join(",")
    };
    assert_eq!(list("fieldSelector=spec.nodeName%3Dn1"), "b");
    assert_eq!(list("fieldSelector=spec.nodeName=,metadata.name!=a"), "c");
    assert_eq!(list("fieldSelector=status.phase!=Succeeded,status.phase!=Failed"), "a,b");
    assert_eq!(list("fieldSelector=spec.schedulerName!=default-scheduler"), "");
    for refused in ["fieldSelector=spec.x=1", "labelSelector=app=a", "resourceVersion=0"] {
        assert_eq!(client.get(&format!("/api/v1/pods?{refused}")).code, 400, "{refused}");
    }
}

#[test]
fn all_pages_of_a_list_have_the_version_of_the_first() {
    let server = server();
    for name in ["a", "b", "c", "d", "e"] {
        server.create(&node(name)).unwrap();
    }
    let mut client = client(&server);
    let first = client.get("/api/v1/nodes?limit=2").body;
    assert_eq!(names(&first), ["a", "b"]);
    server.delete("Node", "", "c", &Value::Null).unwrap();
    server.create(&node("cc")).unwrap();
    let next = |list: &Value| {
        format!("/api/v1/nodes?limit=2&continue={}", list["metadata"]["continue"].as_str().unwrap())
    };
    let second = client.get(&next(&first)).body;
    assert_eq!(names(&second), ["c", "d"]);
    assert_eq!(second["metadata"]["resourceVersion"], first["metadata"]["resourceVersion"]);
    let third = client.get(&next(&second)).body;
    assert_eq!((names(&third), third["metadata"].get("continue")), (vec!["e"], None));
    server.forget_events();
    let expired = client.get(&next(&first));
    assert_eq!((expired.code, &expired.body["reason"]), (410, &json!("Expired")));
    assert_eq!(client.get("/api/v1/nodes?limit=2&continue=zz").code, 400);
}
