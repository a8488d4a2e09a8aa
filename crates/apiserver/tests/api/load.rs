//! Many objects, many connections.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use portolan_apiserver::{Kubelet, Options};

use crate::support::{Client, binding, eventually, node, pod, server_with};

#[test]
fn pods_bound_concurrently_are_bound_once_and_seen_once() {
    let write_delay = Duration::from_millis(1);
    let server = server_with(Options { write_delay, ..Options::default() });
    let _kubelet = Kubelet::start(&server, Duration::ZERO);
    let (nodes, pods, connections) = (100, 1000, 32);
    for name in 0..nodes {
        server.create(&node(&format!("n{name}"))).unwrap();
    }
    let address = server.address();
    let path = format!(
        "/api/v1/pods?watch=1&fieldSelector=spec.nodeName!=&resourceVersion={}",
        server.version()
    );
    let mut watch = Client::new(address).watch(&path).unwrap();
    let (next, bound, refused) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for _ in 0..connections {
            scope.spawn(|| {
                let mut client = Client::new(address);
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    if index >= 2 * pods {
                        return;
                    }
                    // Every pod has two bindings, and one of them succeeds.
                    let name = format!("p{}", index % pods);
                    if index < pods {
                        assert_eq!(
                            client.post("/api/v1/namespaces/default/pods", &pod(&name)).code,
                            201
                        );
                    }
                    let path = format!("/api/v1/namespaces/default/pods/{name}/binding");
                    match client
                        .post(&path, &binding(&name, "", &format!("n{}", index % nodes)))
                        .code
                    {
                        201 => bound.fetch_add(1, Ordering::Relaxed),
                        409 | 404 => refused.fetch_add(1, Ordering::Relaxed),
                        code => panic!("{code}"),
                    };
                }
            });
        }
    });
    assert_eq!(bound.into_inner(), pods);
    assert_eq!(refused.into_inner(), pods);
    let mut seen = BTreeMap::new();
    while seen.values().filter(|phase| *phase == "Running").count() < pods {
        let event = watch.event();
        let object = &event["object"];
        let name = object["metadata"]["name"].as_str().unwrap().to_owned();
        let first = !seen.contains_key(&name);
        assert_eq!(event["type"], if first { "ADDED" } else { "MODIFIED" });
        seen.insert(name, object["status"]["phase"].as_str().unwrap().to_owned());
    }
    let bindings = server
        .writes()
        .iter()
        .filter(|write| write.resource == "pods/binding" && write.code == 201)
        .count();
    assert_eq!(bindings, pods);
    eventually("all pods running", || {
        server.objects("Pod").iter().all(|pod| pod["status"]["phase"] == "Running")
    });
}
