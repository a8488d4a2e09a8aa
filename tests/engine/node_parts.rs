//! Nodes that consist of several objects, and their accounts of the two pod classes.

use std::sync::Arc;

use portolan::cache::{ChangedSince, Cluster, Config, Engine, Event, Relist, Writer};
use portolan::model::{
    self, Bytes, Change, CustomNodeResource, EventError, Fact, GroupMetric, Labels, Launcher,
    MilliCpu, NmNode, NodeMetrics, NodeSelectorTerm, ObjectKind, Operator, Pod, PodAffinity,
    PodClass, PreferredSchedulingTerm, Quantity, Requirement, ResourceList, Taint, TaintEffect,
    Timestamp, Usage, node, pod,
};
use portolan::plugin::{
    ClusterEvent, Cycle, CycleState, Hint, NodeAffinity, NodeResourcesFit, Partition, Plugin,
    QueueingHints,
};
use portolan::{Algorithm, AlgorithmConfig, Framework};
use portolan_testkit::in_tree;

fn writer() -> Writer {
    Engine::inline(Config::default()).0
}

fn list(cpu: i64, pods: i64) -> ResourceList {
    ResourceList::new([("cpu", Quantity::milli(cpu)), ("pods", Quantity::whole(pods))])
}

fn nm_node(name: &str, capacity: i64, allocatable: i64) -> NmNode {
    let (capacity, allocatable) = (list(capacity, 50), list(allocatable, 50));
    NmNode::new(name).with_resources(capacity, allocatable)
}

fn custom(name: &str, cpu: i64) -> CustomNodeResource {
    CustomNodeResource::new(name, &list(cpu, 50))
}

fn best_effort(name: &str, cpu: i64) -> Pod {
    pod(name).spec(|spec| spec.class = PodClass::BestEffort).cpu(cpu).build()
}

fn listed(cluster: &Cluster) -> Vec<String> {
    let mut names: Vec<String> = cluster.nodes().map(|node| node.name().to_string()).collect();
    names.sort();
    names
}

fn delete(writer: &mut Writer, kind: ObjectKind, name: &str) {
    writer.delete_object(kind, "", name).unwrap();
}

#[test]
fn a_snapshot_lists_only_nodes_with_a_node_or_an_nm_node() {
    let mut writer = writer();
    writer.add_node(node("kubelet").build()).unwrap();
    writer.put_object(nm_node("yarn", 1, 1)).unwrap();
    writer.put_object(custom("custom", 1)).unwrap();
    writer.add_pod(pod("p").on("pods").build()).unwrap();
    assert_eq!(listed(writer.cluster()), ["kubelet", "yarn"]);
    assert_eq!((writer.cluster().len(), writer.cluster().node_count()), (2, 4));

    // After the node is removed and before its pods are, the node is in no list.
    writer.add_pod(pod("q").on("kubelet").build()).unwrap();
    writer.remove_node("kubelet").unwrap();
    assert_eq!(listed(writer.cluster()), ["yarn"]);
    assert!(writer.cluster().node("kubelet").is_none());
    assert_eq!(writer.cluster().audit(), []);
}

#[test]
fn a_node_stays_listed_while_either_object_exists() {
    let mut writer = writer();
    writer.add_node(node("n").cpu(8_000).build()).unwrap();
    writer.put_object(nm_node("n", 6_000, 4_000)).unwrap();
    let cpu = |writer: &Writer| writer.cluster().node("n").map(|n| n.allocatable().cpu.0);
    assert_eq!(cpu(&writer), Some(6_000));
    writer.remove_node("n").unwrap();
    assert_eq!(cpu(&writer), Some(4_000));
    assert!(writer.remove_node("n").is_err(), "the Node no longer exists");
    writer.add_node(node("n").cpu(8_000).build()).unwrap();
    delete(&mut writer, ObjectKind::NmNode, "n");
    assert_eq!(cpu(&writer), Some(8_000));
    assert!(writer.delete_object(ObjectKind::NmNode, "", "n").is_err());
    assert_eq!(writer.cluster().node_count(), 1);
}

#[test]
fn labels_and_taints_come_from_the_node_if_both_objects_exist() {
    let labels = |disk| Labels::new([("disk", disk)]);
    let taint = |key: &str| Taint::new(key, "", TaintEffect::NoSchedule);
    let mut writer = writer();
    let mut nm_node = nm_node("n", 1, 1).with_labels(&labels("yarn"));
    nm_node.taints = Box::new([taint("yarn")]);
    writer.put_object(nm_node).unwrap();
    let seen = |writer: &Writer| {
        let node = writer.cluster().node("n").unwrap().node().unwrap();
        (node.labels.get("disk").map(str::to_owned), node.taints[0].key.to_string())
    };
    assert_eq!(seen(&writer), (Some("yarn".to_owned()), "yarn".to_owned()));
    writer.add_node(node("n").label("disk", "kubelet").taint(taint("kubelet")).build()).unwrap();
    assert_eq!(seen(&writer), (Some("kubelet".to_owned()), "kubelet".to_owned()));
}

#[test]
fn a_custom_node_resource_outlives_the_last_pod_of_its_node() {
    let mut writer = writer();
    writer.put_object(custom("n", 500)).unwrap();
    let placed = pod("p").on("n").build();
    writer.add_pod(placed.clone()).unwrap();
    writer.remove_pod(&placed).unwrap();
    assert_eq!(writer.cluster().node_count(), 1, "its CustomNodeResource still exists");

    writer.add_node(node("n").build()).unwrap();
    let offered = |writer: &Writer| {
        writer.cluster().node("n").map(|n| n.allocatable_of(PodClass::BestEffort).cpu.0)
    };
    assert_eq!(offered(&writer), Some(500));
    delete(&mut writer, ObjectKind::CustomNodeResource, "n");
    assert_eq!(offered(&writer), Some(0), "no resources remain for best-effort pods");
    writer.remove_node("n").unwrap();
    assert_eq!(writer.cluster().node_count(), 0);
}

#[test]
fn a_ghost_is_removed_with_its_last_object_or_pod() {
    let mut writer = writer();
    writer.put_object(custom("n", 500)).unwrap();
    let placed = pod("p").on("n").build();
    writer.add_pod(placed.clone()).unwrap();
    delete(&mut writer, ObjectKind::CustomNodeResource, "n");
    assert_eq!(writer.cluster().node_count(), 1);
    writer.remove_pod(&placed).unwrap();
    assert_eq!(writer.cluster().node_count(), 0);
}

#[test]
fn classes_have_separate_accounts_and_one_pod_count() {
    let mut writer = writer();
    writer.add_node(node("n").cpu(1_000).pods(10).build()).unwrap();
    writer.put_object(custom("n", 300)).unwrap();
    writer.add_pod(pod("g").cpu(700).on("n").build()).unwrap();
    writer.add_pod(best_effort("b", 200).on("n")).unwrap();
    let found = writer.cluster().node("n").unwrap();
    let [guaranteed, best_effort] = [PodClass::Guaranteed, PodClass::BestEffort];
    assert_eq!(found.requested_of(guaranteed).cpu.0, 700);
    assert_eq!(found.requested_of(best_effort).cpu.0, 200);
    assert_eq!(found.allocatable_of(guaranteed).cpu.0, 1_000);
    assert_eq!(found.allocatable_of(best_effort).cpu.0, 300);
    assert_eq!((found.allowed_pods_of(guaranteed), found.allowed_pods_of(best_effort)), (10, 50));
    assert_eq!((found.pod_count(), found.requested().cpu.0), (2, 700));
}

#[test]
fn accounts_are_separate_in_held_versions_and_forks() {
    let mut writer = writer();
    writer.add_node(node("n").cpu(1_000).build()).unwrap();
    writer.put_object(custom("n", 300)).unwrap();
    writer.publish();
    let held = writer.snapshot();
    let mut fork = held.fork();
    fork.put_object(custom("n", 400)).unwrap();
    writer.update_node(node("n").cpu(2_000).build()).unwrap();
    let accounts = |cluster: &Cluster| {
        let node = cluster.node("n").unwrap();
        [PodClass::Guaranteed, PodClass::BestEffort].map(|class| node.allocatable_of(class).cpu.0)
    };
    assert_eq!(accounts(&held), [1_000, 300]);
    assert_eq!(accounts(&fork), [1_000, 400]);
    assert_eq!(accounts(writer.cluster()), [2_000, 300]);
}

#[test]
fn lists_of_pods_with_affinity_follow_the_changes_of_a_fork() {
    let mut writer = writer();
    for name in ["n1", "n2"] {
        writer.add_node(node(name).cpu(1_000).build()).unwrap();
    }
    let affine =
        |name: &str, node: &str| pod(name).pod_affinity(PodAffinity::default()).on(node).build();
    let known = affine("known", "n1");
    writer.add_pod(known.clone()).unwrap();
    writer.publish();
    let held = writer.snapshot();
    let mut fork = held.fork();
    fork.remove_pod(&known.uid).unwrap();
    assert_eq!(fork.nodes_with_affinity().count(), 0);
    fork.add_pod(&affine("new", "n2")).unwrap();
    let with_affinity = |cluster: &Cluster| -> Vec<String> {
        cluster.nodes_with_affinity().map(|node| node.name().to_string()).collect()
    };
    assert_eq!(
        (with_affinity(&fork), with_affinity(&held)),
        (vec!["n2".into()], vec!["n1".into()])
    );
}

/// Creates a scheduler with one plugin.
fn scheduler(plugin: Box<dyn Plugin>) -> Algorithm {
    let framework = Framework::new(vec![(plugin, 1)]).unwrap();
    Algorithm::new(framework, AlgorithmConfig::default(), None)
}

fn refusal(scheduler: &mut Algorithm, cluster: &Cluster, pod: &Pod) -> Option<String> {
    scheduler.schedule(cluster, pod).err().map(|why| why.to_string())
}

#[test]
fn a_filter_only_considers_the_account_of_the_pods_class() {
    let mut writer = writer();
    writer.add_node(node("n").cpu(1_000).pods(3).build()).unwrap();
    let fit = &mut scheduler(Box::new(NodeResourcesFit::default()));
    let why = refusal(fit, writer.cluster(), &best_effort("b", 100)).unwrap();
    assert!(why.contains("Insufficient cpu") && why.contains("Too many pods"), "{why}");

    writer.put_object(custom("n", 300)).unwrap();
    writer.add_pod(pod("g").cpu(1_000).on("n").build()).unwrap();
    assert_eq!(refusal(fit, writer.cluster(), &best_effort("b", 300)), None);
    let why = refusal(fit, writer.cluster(), &pod("h").cpu(1).build()).unwrap();
    assert!(why.contains("Insufficient cpu"), "{why}");
    let why = refusal(fit, writer.cluster(), &best_effort("b", 301)).unwrap();
    assert!(why.contains("Insufficient cpu"), "{why}");

    // Pods of all classes count towards the limit of pods.
    writer.add_pod(best_effort("b1", 1).on("n")).unwrap();
    writer.add_pod(best_effort("b2", 1).on("n")).unwrap();
    let why = refusal(fit, writer.cluster(), &pod("h").build()).unwrap();
    assert!(why.contains("Too many pods"), "{why}");
}

#[test]
fn an_update_of_the_class_moves_a_pod_to_the_other_account() {
    let mut writer = writer();
    writer.add_node(node("n").cpu(1_000).build()).unwrap();
    writer.add_pod(pod("p").cpu(100).on("n").build()).unwrap();
    let uid = pod("p").build().uid;
    writer.update_pod(&uid, best_effort("p", 100).on("n")).unwrap();
    let found = writer.cluster().node("n").unwrap();
    let cpu = |class| found.requested_of(class).cpu.0;
    assert_eq!((cpu(PodClass::Guaranteed), cpu(PodClass::BestEffort)), (0, 100));
    assert_eq!(writer.cluster().audit(), []);
}

#[test]
fn sums_of_the_best_effort_account_do_not_overflow() {
    let mut writer = writer();
    writer.add_node(node("n").build()).unwrap();
    let nearly_max = |name: &str, class| {
        pod(name).spec(|spec| spec.class = class).memory(i64::MAX - 1).on("n").build()
    };
    writer.add_pod(nearly_max("b1", PodClass::BestEffort)).unwrap();
    assert!(writer.add_pod(nearly_max("b2", PodClass::BestEffort)).is_err());
    writer.add_pod(nearly_max("g", PodClass::Guaranteed)).unwrap();
}

#[test]
fn a_launcher_requires_its_object() {
    let mut writer = writer();
    writer.add_node(node("kubelet").build()).unwrap();
    let launched = |by| pod("p").spec(|spec| spec.launcher = by).build();
    let plugin = &mut scheduler(in_tree("PodLauncher"));
    assert_eq!(refusal(plugin, writer.cluster(), &launched(Launcher::Kubelet)), None);
    let why = refusal(plugin, writer.cluster(), &launched(Launcher::NodeManager)).unwrap();
    assert!(why.contains("launcher node-manager doesn't exist on this node"), "{why}");
    let why = refusal(plugin, writer.cluster(), &launched(Launcher::Unknown)).unwrap();
    assert!(why.contains("pod launcher is empty for pod default/p"), "{why}");

    writer.put_object(nm_node("kubelet", 1, 1)).unwrap();
    assert_eq!(refusal(plugin, writer.cluster(), &launched(Launcher::NodeManager)), None);
    writer.remove_node("kubelet").unwrap();
    let why = refusal(plugin, writer.cluster(), &launched(Launcher::Kubelet)).unwrap();
    assert!(why.contains("launcher kubelet doesn't exist on this node"), "{why}");
}

/// Schedules a pod of each launcher on a node that has a Node and an NMNode. Returns which launchers have a place.
fn launchers_that_fit(
    writer: &Writer,
    plugin: Box<dyn Plugin>,
    pod: impl Fn(Launcher) -> Pod,
) -> [bool; 2] {
    let scheduler = &mut scheduler(plugin);
    [Launcher::Kubelet, Launcher::NodeManager].map(|by| {
        let (pod, state) = (pod(by), CycleState::default());
        let cycle = Cycle::new(writer.cluster(), &pod, &state);
        let by_nodes = scheduler.decide_by_nodes(cycle).is_ok();
        assert_eq!(refusal(scheduler, writer.cluster(), &pod).is_none(), by_nodes, "{pod:?}");
        by_nodes
    })
}

#[test]
fn pods_of_a_node_manager_see_the_labels_and_taints_of_the_nm_node() {
    let labels = |disk| Labels::new([("disk", disk)]);
    let taint = |key: &str| Taint::new(key, "", TaintEffect::NoSchedule);
    let mut writer = writer();
    let kubelet = node("n").label("disk", "kubelet").taint(taint("kubelet"));
    writer.add_node(kubelet.unschedulable(true).build()).unwrap();
    let by = |launcher| pod("p").spec(|spec| spec.launcher = launcher);
    let selecting = |disk| move |launcher| by(launcher).node_selector(labels(disk)).build();
    let tolerating = |key: &'static str| move |launcher| by(launcher).tolerate(key).build();
    let affinity = || Box::new(NodeAffinity::default());
    // Without an NMNode, the labels and taints are those of the Node for all pods.
    assert_eq!(launchers_that_fit(&writer, affinity(), selecting("kubelet")), [true, true]);
    let cordoned = |writer: &Writer| {
        launchers_that_fit(writer, in_tree("NodeUnschedulable"), |l| by(l).build())
    };
    assert_eq!(cordoned(&writer), [false, false]);

    let mut nm_node = nm_node("n", 1, 1).with_labels(&labels("yarn"));
    nm_node.taints = Box::new([taint("yarn")]);
    writer.put_object(nm_node).unwrap();
    for (place, key) in [([true, false], "kubelet"), ([false, true], "yarn")] {
        assert_eq!(launchers_that_fit(&writer, affinity(), selecting(key)), place, "{key}");
        assert_eq!(
            launchers_that_fit(&writer, in_tree("TaintToleration"), tolerating(key)),
            place,
            "{key}"
        );
    }
    assert_eq!(cordoned(&writer), [false, true], "an NMNode cannot be cordoned");

    writer.remove_node("n").unwrap();
    assert_eq!(launchers_that_fit(&writer, affinity(), selecting("yarn")), [true, true]);
    assert_eq!(cordoned(&writer), [true, true]);
}

#[test]
fn scores_of_pods_of_a_node_manager_read_the_nm_node() {
    let labels = |disk| Labels::new([("disk", disk)]);
    let avoid = Taint::new("avoid", "", TaintEffect::PreferNoSchedule);
    let mut writer = writer();
    for (name, on_node, on_nm_node) in [("a", "ssd", "hdd"), ("b", "hdd", "ssd")] {
        let tainted = |disk: &str| (disk == "hdd").then(|| avoid.clone());
        let kubelet = node(name).label("disk", on_node).cpu(1_000);
        let kubelet = tainted(on_node).into_iter().fold(kubelet, |node, taint| node.taint(taint));
        writer.add_node(kubelet.build()).unwrap();
        let mut nm_node = nm_node(name, 1, 1).with_labels(&labels(on_nm_node));
        nm_node.taints = tainted(on_nm_node).into_iter().collect();
        writer.put_object(nm_node).unwrap();
    }
    let ssd = NodeSelectorTerm {
        match_expressions: Box::new([Requirement::new("disk", Operator::In, ["ssd"])]),
        ..NodeSelectorTerm::default()
    };
    let prefers = model::NodeAffinity {
        preferred: Box::new([PreferredSchedulingTerm { weight: 1, preference: ssd }]),
        ..model::NodeAffinity::default()
    };
    let plugins: [fn() -> Algorithm; 2] =
        [|| scheduler(Box::new(NodeAffinity::default())), || scheduler(in_tree("TaintToleration"))];
    for scheduler in plugins {
        let chosen = [Launcher::Kubelet, Launcher::NodeManager].map(|launcher| {
            let pod = pod("p")
                .spec(|spec| spec.launcher = launcher)
                .node_affinity(prefers.clone())
                .build();
            let state = CycleState::default();
            let cycle = Cycle::new(writer.cluster(), &pod, &state);
            let by_nodes = scheduler().decide_by_nodes(cycle).unwrap().node;
            assert_eq!(scheduler().schedule(writer.cluster(), &pod).unwrap().node, by_nodes);
            by_nodes.to_string()
        });
        assert_eq!(chosen, ["a", "b"]);
    }
}

#[test]
fn a_fork_sees_and_changes_parts_of_nodes() {
    let mut writer = writer();
    writer.put_object(custom("n", 300)).unwrap();
    writer.publish();
    let base = writer.snapshot();
    let mut fork = base.fork();
    fork.put_object(nm_node("n", 2, 2)).unwrap();
    fork.delete_object(ObjectKind::CustomNodeResource, "", "n").unwrap();
    assert!(fork.delete_object(ObjectKind::CustomNodeResource, "", "n").is_err());
    assert_eq!((listed(&fork), listed(&base)), (vec!["n".to_owned()], vec![]));
    assert_eq!(fork.node("n").unwrap().allowed_pods_of(PodClass::BestEffort), 0);
    assert_eq!((fork.audit(), base.audit()), (vec![], vec![]));
}

#[test]
fn each_part_has_its_own_generation() {
    let mut writer = writer();
    writer.add_node(node("n").build()).unwrap();
    let at = writer.put_object(nm_node("n", 2, 2)).unwrap();
    let objects = writer.cluster().objects();
    assert_eq!((objects.nm_nodes.generation, objects.nm_nodes.len), (at, 1));
    assert_eq!(objects.custom_node_resources.len, 0);
    let at = writer.put_object(custom("n", 2)).unwrap();
    assert_eq!(writer.cluster().objects().custom_node_resources.generation, at);
    assert_ne!(writer.cluster().objects().nm_nodes.generation, at);
}

#[test]
fn a_relist_of_parts_removes_unlisted_parts() {
    let mut writer = writer();
    writer.add_node(node("a").build()).unwrap();
    for name in ["a", "b"] {
        writer.put_object(nm_node(name, 2, 2)).unwrap();
    }
    let listing = vec![nm_node("c", 2, 2).into()];
    let applied = writer.relist(Relist::Objects(ObjectKind::NmNode, listing)).unwrap();
    assert_eq!((applied.added, applied.removed), (1, 2));
    assert_eq!(listed(writer.cluster()), ["a", "c"]);
    // A list of Nodes only removes Nodes, so an entry without a Node is not affected.
    writer.relist(Relist::Nodes(vec![])).unwrap();
    assert_eq!(listed(writer.cluster()), ["c"]);
}

#[test]
fn an_added_part_wakes_the_pods_waiting_for_it() {
    let mut writer = writer();
    let follower = writer.follow();
    let labelled = nm_node("n", 1, 1).with_labels(&Labels::new([("disk", "yarn")]));
    writer.put_object(labelled).unwrap();
    writer.add_node(node("n").build()).unwrap();
    writer.put_object(custom("n", 500)).unwrap();
    writer.publish();
    let mut changes = Vec::new();
    while let Ok(note) = follower.try_next() {
        if let Fact::Changed(change) = note.fact {
            changes.push(change);
        }
    }
    let plugins: Vec<(Box<dyn Plugin>, i64)> = vec![
        (in_tree("PodLauncher"), 0),
        (Box::new(NodeResourcesFit::default()), 1),
        (Box::new(NodeAffinity::default()), 0),
        (in_tree("TaintToleration"), 0),
    ];
    let framework = Framework::new(plugins).unwrap();
    let hints = QueueingHints::new(&framework);
    let wakes = |plugin: &str, pod: &Pod, change: &Change| {
        let rejector = framework.plugin_set([plugin]);
        ClusterEvent::of(change).any(|event| {
            !hints.concerned(event.resource, event.action).intersection(rejector).is_empty()
                && hints.ask(&framework, rejector, pod, &event, writer.cluster()) == Hint::Queue
        })
    };
    let woken = |plugin: &str, pod: &Pod| -> Vec<bool> {
        changes.iter().map(|change| wakes(plugin, pod, change)).collect()
    };
    // The changes are: the NMNode, as a new node and as an object, then the Node, then the CustomNodeResource.
    let launched = |by| pod("p").spec(|spec| spec.launcher = by).build();
    let of_kubelet = woken("PodLauncher", &launched(Launcher::Kubelet));
    assert_eq!(of_kubelet, [true, false, true, false]);
    let of_node_manager = woken("PodLauncher", &launched(Launcher::NodeManager));
    assert_eq!(of_node_manager, [false, true, false, false]);
    let selecting = |by| {
        let labels = Labels::new([("disk", "yarn")]);
        let (affine, tolerant) = (
            pod("p").spec(|spec| spec.launcher = by).node_selector(labels),
            pod("p").spec(|spec| spec.launcher = by),
        );
        [woken("NodeAffinity", &affine.build()), woken("TaintToleration", &tolerant.build())]
    };
    // The changes of the NMNode wake only pods of a node manager.
    assert_eq!(
        selecting(Launcher::Kubelet),
        [[true, false, false, false], [true, false, true, false]]
    );
    assert_eq!(
        selecting(Launcher::NodeManager),
        [[true, true, false, false], [true, true, true, false]]
    );
    let fits = woken("NodeResourcesFit", &best_effort("b", 400));
    assert_eq!(fits, [true, false, true, true]);
    assert!(!woken("NodeResourcesFit", &best_effort("b", 600))[3]);
    assert!(!woken("NodeResourcesFit", &pod("g").cpu(1).build())[3]);
}

/// Creates metrics of a node: the usage of its best-effort pods, and the pods that are included in it.
fn measured(name: &str, cpu: i64, pods: &[&str]) -> CustomNodeResource {
    let group = GroupMetric {
        class: PodClass::BestEffort,
        usage: Usage { cpu: MilliCpu(cpu), memory: Bytes(1) },
        pods: pods.iter().map(|pod| (*pod).into()).collect(),
    };
    let mut custom = CustomNodeResource::new(name, &list(9_000, 50));
    let updated = Some(Timestamp::from_secs(7));
    custom.metrics = Some(Box::new(NodeMetrics::new(updated, [group])));
    custom
}

fn load(writer: &Writer, class: PodClass) -> (i64, i64, Option<Timestamp>) {
    let load = writer.cluster().node("n").unwrap().load(class);
    (load.profiled.cpu.0, load.requested.cpu.0, load.updated)
}

#[test]
fn a_pod_counts_with_its_requests_until_it_is_measured() {
    let mut writer = writer();
    writer.add_node(node("n").cpu(9_000).build()).unwrap();
    let updated = Some(Timestamp::from_secs(7));
    writer.add_pod(best_effort("old", 1_000).on("n")).unwrap();
    writer.add_pod(pod("guaranteed").cpu(50).on("n").build()).unwrap();
    assert_eq!(load(&writer, PodClass::BestEffort), (0, 1_000, None));
    writer.put_object(measured("n", 300, &["default/old", "default/gone"])).unwrap();
    assert_eq!(load(&writer, PodClass::BestEffort), (300, 0, updated));
    writer.assume_pod(best_effort("new", 200).on("n")).unwrap();
    assert_eq!(load(&writer, PodClass::BestEffort), (300, 200, updated));
    // Each class is measured separately.
    assert_eq!(load(&writer, PodClass::Guaranteed), (0, 50, updated));
    writer.put_object(measured("n", 450, &["default/old", "default/new"])).unwrap();
    assert_eq!(load(&writer, PodClass::BestEffort), (450, 0, updated));
}

/// Gödel's store adds the metrics again on a delete.
#[test]
fn measurements_are_removed_with_their_custom_node_resource() {
    let mut writer = writer();
    writer.add_node(node("n").cpu(9_000).build()).unwrap();
    writer.add_pod(best_effort("p", 1_000).on("n")).unwrap();
    writer.put_object(measured("n", 300, &["default/p"])).unwrap();
    let held = writer.cluster().node("n").unwrap().generation();
    delete(&mut writer, ObjectKind::CustomNodeResource, "n");
    assert_eq!(load(&writer, PodClass::BestEffort), (0, 1_000, None));
    assert!(writer.cluster().node("n").unwrap().generation() > held, "readers see the change");
    // The metrics do not survive an update without them, either.
    writer.put_object(measured("n", 300, &["default/p"])).unwrap();
    writer.put_object(custom("n", 9_000)).unwrap();
    assert_eq!(load(&writer, PodClass::BestEffort), (0, 1_000, None));
}

/// `SetNodeInPartition` and `SetNodeOutOfPartition` set the flags of Node and NMNode. An update of either object sets
/// its own flag again.
#[test]
fn an_assigned_node_is_in_the_partition_until_its_next_update() {
    let mine = Partition::Scheduler("mine".into());
    let is_in = |writer: &Writer| mine.includes(writer.cluster().node("n").unwrap());
    let theirs = || node("n").scheduler("theirs").build();
    let (mut writer, _) = Engine::inline(Config::default());
    let not_found = Err(EventError::NodeNotFound { name: "n".into() });
    assert_eq!(writer.apply(&Event::assign_node("n", "mine")), not_found);
    // A ghost cannot be assigned.
    writer.add_pod(pod("p").on("n").build()).unwrap();
    assert_eq!(writer.apply(&Event::assign_node("n", "mine")), not_found);
    assert_eq!(writer.apply(&Event::unassign_node("n", "mine")), not_found);

    writer.add_node(theirs()).unwrap();
    writer.apply(&Event::assign_node("n", "mine")).unwrap();
    assert!(is_in(&writer));
    writer.update_node(theirs()).unwrap();
    assert!(!is_in(&writer), "an update names its own scheduler");

    let managed = |to: Option<&str>| NmNode { scheduler: to.map(Into::into), ..NmNode::new("n") };
    writer.put_object(managed(None)).unwrap();
    writer.apply(&Event::assign_node("n", "mine")).unwrap();
    writer.update_node(theirs()).unwrap();
    assert!(is_in(&writer), "the NMNode was not updated");
    writer.apply(&Event::unassign_node("n", "another")).unwrap();
    assert!(is_in(&writer), "the node is not in the partition of another scheduler");
    writer.put_object(managed(None)).unwrap();
    assert!(!is_in(&writer));

    writer.put_object(managed(Some("mine"))).unwrap();
    writer.apply(&Event::unassign_node("n", "mine")).unwrap();
    assert!(!is_in(&writer));
    writer.put_object(managed(Some("mine"))).unwrap();
    assert!(is_in(&writer));
    assert_eq!(writer.cluster().audit(), vec![]);
}

#[test]
fn assigning_a_node_changes_neither_its_position_nor_older_versions() {
    let (mut writer, reader) = Engine::inline(Config::default());
    for name in ["a", "b", "c"] {
        writer.add_node(node(name).zone("z").cpu(1_000).image(["img:1"], 7).build()).unwrap();
    }
    writer.add_pod(pod("p").cpu(100).on("a").build()).unwrap();
    writer.publish();
    let before = reader.snapshot();
    writer.apply(&Event::assign_node("a", "mine")).unwrap();
    let schedulers = |cluster: &Cluster| cluster.node("a").unwrap().schedulers().count();
    assert_eq!((schedulers(&before), schedulers(writer.cluster())), (0, 1));
    let (mut old, mut new) = (before.dump(), writer.cluster().dump());
    for dump in [&mut old, &mut new] {
        dump.nodes.get_mut("a").unwrap().schedulers.clear();
    }
    assert_eq!(old, new, "nothing else changed");
    assert_ne!(writer.cluster().changed_since(before.generation()), Ok(ChangedSince::Reset));
    assert_eq!(writer.cluster().audit(), vec![]);
}

/// A list counts as an update of the listed objects.
#[test]
fn a_relist_ends_an_assignment() {
    let (mut writer, _) = Engine::inline(Config::default());
    let listed = Arc::new(node("n").build());
    writer.add_node(listed.clone()).unwrap();
    writer.apply(&Event::assign_node("n", "mine")).unwrap();
    writer.relist(Relist::Nodes(vec![listed])).unwrap();
    assert_eq!(writer.cluster().node("n").unwrap().schedulers().count(), 0);
}
