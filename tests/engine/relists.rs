//! Relists of objects that are listed twice.

use std::sync::Arc;

use portolan::cache::{Config, Engine, Relist, Writer};
use portolan::model::{
    EventError, Labels, NmNode, Object, ObjectKind, Pod, Quantity, ResourceList, Service, node, pod,
};

fn writer() -> Writer {
    Engine::inline(Config::default()).0
}

fn twice(kind: &'static str, key: &str) -> EventError {
    EventError::ListedTwice { kind: kind.into(), key: key.to_owned() }
}

#[test]
fn the_second_of_two_pods_with_one_uid_is_rejected() {
    // Few pods are applied one by one, and many in a run.
    for others in [0, 1_000] {
        let mut writer = writer();
        writer.add_node(node("n1").cpu(1_000).pods(2_000).build()).unwrap();
        let listed = |cpu: i64| pod("p").cpu(cpu).on("n1").build();
        let mut pods: Vec<Pod> =
            (0..others).map(|n| pod(format!("other-{n}")).on("n1").build()).collect();
        pods.insert(others / 2, listed(100));
        pods.push(listed(200));
        let applied = writer.relist(Relist::Pods(pods.clone())).unwrap();
        let rejected = [("default/p".to_owned(), twice("Pod", "default/p"))];
        assert_eq!((applied.added, applied.updated), (others + 1, 0));
        assert_eq!(applied.rejected, rejected);
        assert_eq!(writer.cluster().node("n1").unwrap().requested().cpu.0, 100);
        // An assumed pod is confirmed by the first entry.
        writer.remove_pod(&listed(100)).unwrap();
        writer.assume_pod(listed(100)).unwrap();
        let applied = writer.relist(Relist::Pods(pods)).unwrap();
        assert_eq!((applied.updated, &applied.rejected[..]), (1, &rejected[..]));
        assert!(!writer.cluster().pod(&listed(100).uid).is_some_and(|pod| pod.is_assumed()));
    }
}

#[test]
fn a_rejected_pod_counts_as_listed() {
    let mut writer = writer();
    let pods = [pod("p").cpu(-1).on("n1").build(), pod("p").cpu(1).on("n1").build()];
    let applied = writer.relist(Relist::Pods(pods.into())).unwrap();
    let [(_, EventError::Negative { .. }), (_, EventError::ListedTwice { .. })] =
        &applied.rejected[..]
    else {
        panic!("{applied:?}");
    };
    assert_eq!(writer.cluster().pod_count(), 0);
}

#[test]
fn the_second_of_two_nodes_with_one_name_is_rejected() {
    let mut writer = writer();
    let nodes = [100, 200].map(|cpu| Arc::new(node("n1").cpu(cpu).build()));
    for (added, updated) in [(1, 0), (0, 0)] {
        let applied = writer.relist(Relist::Nodes(nodes.to_vec())).unwrap();
        assert_eq!((applied.added, applied.updated), (added, updated));
        assert_eq!(applied.rejected, [("n1".to_owned(), twice("Node", "n1"))]);
        assert_eq!(writer.cluster().node("n1").unwrap().allocatable().cpu.0, 100);
    }
    // Nodes without names have no key, so they are not the same one.
    let nodes = [(); 2].map(|()| Arc::new(node("").build()));
    let applied = writer.relist(Relist::Nodes(nodes.to_vec())).unwrap();
    let is_unnamed = |(_, why): &(_, EventError)| matches!(why, EventError::EmptyName { .. });
    assert!(applied.rejected.len() == 2 && applied.rejected.iter().all(is_unnamed));
}

#[test]
fn the_second_of_two_objects_with_one_key_is_rejected() {
    let service = |namespace: &str, app: &str| {
        let selector = Labels::new([("app", app)]);
        Object::from(Service { namespace: namespace.into(), name: "s".into(), selector })
    };
    let mut writer = writer();
    let objects = vec![service("a", "x"), service("b", "x"), service("a", "y")];
    let applied = writer.relist(Relist::Objects(ObjectKind::Service, objects)).unwrap();
    assert_eq!((applied.added, applied.updated), (2, 0));
    assert_eq!(applied.rejected, [("a/s".to_owned(), twice("Service", "a/s"))]);
    let known = writer.cluster().objects().services.get("a", "s").unwrap();
    assert_eq!(known.selector.get("app"), Some("x"));
    // Parts of nodes are objects, too.
    let nm_node = |cpu: i64| {
        let offered = ResourceList::new([("cpu", Quantity::milli(cpu))]);
        Object::from(NmNode::new("n1").with_resources(ResourceList::default(), offered))
    };
    let applied = writer
        .relist(Relist::Objects(ObjectKind::NmNode, vec![nm_node(100), nm_node(200)]))
        .unwrap();
    assert_eq!(applied.rejected, [("/n1".to_owned(), twice("NMNode", "/n1"))]);
    assert_eq!(writer.cluster().node("n1").unwrap().allocatable().cpu.0, 100);
}
