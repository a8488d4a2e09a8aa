//! The queueing hints of each plugin (the claims of kube-scheduler's `isSchedulableAfter…` tests), called as the queue
//! calls them.

use std::sync::Arc;

use portolan::Framework;
use portolan::cache::{Cluster, Config, Engine};
use portolan::model::{
    AccessMode, Change, CsiDriver, CsiNode, CsiNodeDriver, CsiStorageCapacity, Diff, LabelSelector,
    Labels, Launcher, NmNode, Node, Object, Operator, PersistentVolume, PersistentVolumeClaim, Pod,
    PodAffinity, PodAffinityTerm, PodGroup, PodSpec, Quantity, Requirement, StorageClass, Taint,
    TaintEffect, Template, TopologySpreadConstraint, UnsatisfiableAction, VolumeAttachment,
    VolumeBindingMode, node, pod,
};
use portolan::plugin::{
    Actions, ClusterEvent, EventResource, Hint, Interest, Plugin, QueueingHints, Status,
};
use portolan_testkit::plugin;

/// Returns whether a change requeues a pod that the plugin rejected.
fn helps(plugin: &str, pod: &Pod, change: &Change) -> bool {
    let framework = Framework::default_profile();
    let hints = QueueingHints::new(&framework);
    let rejector = framework.plugin_set([plugin]);
    assert_eq!(rejector.len(), 1, "{plugin} is in the default profile");
    let (_, reader) = Engine::inline(Config::default());
    let cluster = reader.snapshot();
    ClusterEvent::of(change).any(|event| {
        let concerned = hints.concerned(event.resource, event.action);
        !concerned.intersection(rejector).is_empty()
            && hints.ask(&framework, rejector, pod, &event, &cluster) == Hint::Queue
    })
}

fn diff<T>(old: Option<T>, new: Option<T>) -> Diff<Arc<T>> {
    Diff { old: old.map(Arc::new), new: new.map(Arc::new) }
}

fn pods(old: Option<Pod>, new: Option<Pod>) -> Change {
    Change::Pod(diff(old, new))
}

fn nodes(old: Option<Node>, new: Option<Node>) -> Change {
    Change::Node(diff(old, new))
}

fn objects(old: Option<Object>, new: Option<Object>) -> Change {
    Change::Object(Diff { old, new })
}

/// Asserts the plugin's hint for each case.
fn check(plugin: &str, pod: &Pod, cases: &[(&str, bool, Change)]) {
    for (case, expected, change) in cases {
        assert_eq!(helps(plugin, pod, change), *expected, "{plugin}: {case}");
    }
}

#[test]
fn node_unschedulable_waits_for_a_schedulable_node() {
    let node_with = |cordoned| Some(node("n").unschedulable(cordoned).build());
    let cordon = "node.kubernetes.io/unschedulable";
    let tolerant = pod("a").tolerate(cordon).build();
    let a = pod("a").build();
    check(
        "NodeUnschedulable",
        &a,
        &[
            ("a node appears", true, nodes(None, node_with(false))),
            ("a cordoned node appears", false, nodes(None, node_with(true))),
            ("a node is uncordoned", true, nodes(node_with(true), node_with(false))),
            ("a node is cordoned", false, nodes(node_with(false), node_with(true))),
            (
                "the pod tolerates it after an update",
                true,
                pods(Some(a.clone()), Some(tolerant.clone())),
            ),
            (
                "another pod tolerates it after an update",
                false,
                pods(Some(pod("b").build()), Some(pod("b").tolerate(cordon).build())),
            ),
        ],
    );
}

#[test]
fn taint_toleration_waits_for_taints_that_the_pod_tolerates() {
    let node_with = |key: &str| {
        Some(node("n").taint(Taint::new(key.to_owned(), "", TaintEffect::NoSchedule)).build())
    };
    let plain = || Some(node("n").build());
    let a = pod("a").tolerate("mine").build();
    let more = pod("a").tolerate("mine").tolerate("more").build();
    check(
        "TaintToleration",
        &a,
        &[
            ("a tainted node appears", false, nodes(None, node_with("other"))),
            ("a node with a tolerated taint appears", true, nodes(None, node_with("mine"))),
            ("a taint is removed", true, nodes(node_with("other"), plain())),
            ("a taint is added", false, nodes(plain(), node_with("other"))),
            ("it was tolerated before", false, nodes(node_with("mine"), plain())),
            ("the pod gets another toleration", true, pods(Some(a.clone()), Some(more))),
        ],
    );
}

#[test]
fn node_affinity_waits_for_newly_matching_labels() {
    let node_in = |zone: &str| Some(node("n").zone(zone).build());
    let selector = Labels::new([("topology.kubernetes.io/zone", "z1")]);
    let a = pod("a").node_selector(selector).build();
    check(
        "NodeAffinity",
        &a,
        &[
            ("a matching node appears", true, nodes(None, node_in("z1"))),
            ("another node appears", false, nodes(None, node_in("z2"))),
            ("a node matches after an update", true, nodes(node_in("z2"), node_in("z1"))),
            ("a node no longer matches", false, nodes(node_in("z1"), node_in("z2"))),
        ],
    );
}

#[test]
fn node_ports_waits_for_pods_with_its_ports() {
    let a = pod("a").host_port(80).build();
    let on = |port, node: &str| Some(pod("b").host_port(port).on(node).build());
    check(
        "NodePorts",
        &a,
        &[
            ("a pod with the port is removed", true, pods(on(80, "n"), None)),
            ("a pod with another port is removed", false, pods(on(81, "n"), None)),
            ("a pending pod with the port is removed", false, pods(on(80, ""), None)),
            ("a node appears", true, nodes(None, Some(node("n").build()))),
        ],
    );
}

#[test]
fn node_name_gates_and_features_wait_for_their_own_events() {
    let a = pod("a").build();
    check("NodeName", &a, &[("a node appears", true, nodes(None, Some(node("n").build())))]);
    let gated = |name: &str| {
        Some(pod(name).spec(|spec| spec.scheduling_gates = Box::new(["g".into()])).build())
    };
    check(
        "SchedulingGates",
        &a,
        &[
            ("its gates are removed", true, pods(gated("a"), Some(a.clone()))),
            ("another pod's gates are removed", false, pods(gated("b"), Some(pod("b").build()))),
            ("a node appears", false, nodes(None, Some(node("n").build()))),
        ],
    );
    let needs = pod("a").spec(|spec| spec.required_node_features = Box::new(["F".into()])).build();
    let node_with =
        |features: &[&str]| Some(node("n").declared_features(features.iter().copied()).build());
    check(
        "NodeDeclaredFeatures",
        &needs,
        &[
            ("a node without it appears", false, nodes(None, node_with(&[]))),
            ("a node gets the feature", true, nodes(node_with(&[]), node_with(&["F"]))),
            (
                "a node already had the feature",
                false,
                nodes(node_with(&["F"]), node_with(&["F", "G"])),
            ),
            ("the pod changed", true, pods(Some(needs.clone()), Some(a.clone()))),
        ],
    );
}

#[test]
fn fit_waits_for_the_requested_resources() {
    let a = pod("a").cpu(1_000).build();
    let node_with = |cpu, memory| Some(node("n").cpu(cpu).memory(memory).build());
    let b = |cpu, memory| pod("b").cpu(cpu).memory(memory).on("n").build();
    let gpu = |n| Some(node("n").cpu(2_000).resource("x.io/gpu", Quantity::whole(n)).build());
    let with_gpu = pod("a").cpu(1_000).request("x.io/gpu", Quantity::whole(1)).build();
    check(
        "NodeResourcesFit",
        &a,
        &[
            ("a large node appears", true, nodes(None, node_with(2_000, 0))),
            ("a small node appears", false, nodes(None, node_with(500, 0))),
            ("a node grows", true, nodes(node_with(1_000, 0), node_with(2_000, 0))),
            (
                "a node grows in another resource",
                false,
                nodes(node_with(2_000, 1), node_with(2_000, 9)),
            ),
            ("a node grows too little", false, nodes(node_with(100, 0), node_with(900, 0))),
            ("a node shrinks", false, nodes(node_with(9_000, 0), node_with(2_000, 0))),
            ("a pod is removed", true, pods(Some(b(1, 1)), None)),
            ("a pending pod is removed", false, pods(Some(pod("b").build()), None)),
            ("a pod requests less", true, pods(Some(b(500, 1)), Some(b(100, 1)))),
            (
                "a pod requests less of another resource",
                false,
                pods(Some(b(500, 9)), Some(b(500, 1))),
            ),
            (
                "the pod itself requests less",
                true,
                pods(Some(a.clone()), Some(pod("a").cpu(1).build())),
            ),
        ],
    );
    check(
        "NodeResourcesFit",
        &with_gpu,
        &[
            ("a node gets the scalar resource", true, nodes(node_with(2_000, 0), gpu(1))),
            ("a node already had the scalar resource", false, nodes(gpu(2), gpu(1))),
        ],
    );
    let mut nominated = pod("b").cpu(1).build();
    nominated.nominated_node_name = Some("n".into());
    let gone = pods(Some(nominated), None);
    assert!(helps("NodeResourcesFit", &a, &gone), "resources were set aside for a nominated pod");
}

fn term(key: &str, value: &str) -> PodAffinityTerm {
    PodAffinityTerm {
        topology_key: "zone".into(),
        selector: LabelSelector::All(Box::new([Requirement::new(
            key.to_owned(),
            Operator::In,
            [value.to_owned()],
        )])),
        namespaces: Box::new(["default".into()]),
        namespace_selector: LabelSelector::Nothing,
    }
}

#[test]
fn inter_pod_affinity_waits_for_pods_that_its_terms_match() {
    let required =
        |terms: &[PodAffinityTerm]| PodAffinity { required: terms.into(), preferred: Box::new([]) };
    let near = pod("a").pod_affinity(required(&[term("app", "db"), term("tier", "x")])).build();
    let apart =
        pod("a").pod_anti_affinity(required(&[term("app", "db"), term("tier", "x")])).build();
    let b = |labels: &[(&str, &str)]| {
        Some(
            pod("b").spec(|spec| spec.labels = Labels::new(labels.iter().copied())).on("n").build(),
        )
    };
    let zone = |zone: &[&str]| {
        Some(zone.iter().fold(node("n"), |node, zone| node.label("zone", *zone)).build())
    };
    check(
        "InterPodAffinity",
        &near,
        &[
            (
                "a pod appears that matches all terms",
                true,
                pods(None, b(&[("app", "db"), ("tier", "x")])),
            ),
            ("a pod appears that matches some terms", false, pods(None, b(&[("app", "db")]))),
            (
                "a pod matches after an update",
                true,
                pods(b(&[("app", "db")]), b(&[("app", "db"), ("tier", "x")])),
            ),
            ("a matching pod is removed", false, pods(b(&[("app", "db"), ("tier", "x")]), None)),
            ("a node in a domain appears", true, nodes(None, zone(&["z"]))),
            ("a node in no domain appears", false, nodes(None, zone(&[]))),
            ("a node changes its domain", true, nodes(zone(&["y"]), zone(&["z"]))),
            ("a node leaves its domain", false, nodes(zone(&["y"]), zone(&[]))),
            (
                "the pod's own labels change",
                true,
                pods(Some(near.clone()), Some(pod("a").label("x", "y").build())),
            ),
            (
                "a pod on no node appears",
                false,
                pods(None, Some(pod("b").label("app", "db").label("tier", "x").build())),
            ),
        ],
    );
    let keeps_away = pod("b").pod_anti_affinity(required(&[term("app", "web")])).on("n").build();
    check(
        "InterPodAffinity",
        &apart,
        &[
            ("a pod that matches one term is removed", true, pods(b(&[("app", "db")]), None)),
            ("a pod that matches no term is removed", false, pods(b(&[("app", "web")]), None)),
            ("a pod no longer matches", true, pods(b(&[("tier", "x")]), b(&[]))),
            ("a matching pod appears", false, pods(None, b(&[("tier", "x")]))),
            ("a node appears", true, nodes(None, zone(&["z"]))),
            ("a node leaves its domain", true, nodes(zone(&["y"]), zone(&[]))),
            ("a node joins a domain", false, nodes(zone(&[]), zone(&["y"]))),
        ],
    );
    let web = pod("a").label("app", "web").build();
    let cases = [
        ("a pod whose terms match this one is removed", true, pods(Some(keeps_away), None)),
        ("a pod without terms is removed", false, pods(b(&[]), None)),
    ];
    check("InterPodAffinity", &web, &cases);
}

#[test]
fn topology_spread_waits_for_changes_of_its_counts() {
    let constraint = |honor_node_taints| TopologySpreadConstraint {
        max_skew: 1,
        topology_key: "zone".into(),
        when_unsatisfiable: UnsatisfiableAction::DoNotSchedule,
        selector: LabelSelector::from_labels([("app", "web")]),
        min_domains: None,
        honor_node_affinity: true,
        honor_node_taints,
        match_label_keys: Box::new([]),
    };
    let a = |honor: bool| {
        pod("a").spec(|spec| spec.topology_spread = Box::new([constraint(honor)])).build()
    };
    let b = |app: &str, namespace: &str| {
        Some(pod("b").namespace(namespace).label("app", app).on("n").build())
    };
    let zone = |zone: &[&str]| {
        Some(zone.iter().fold(node("n"), |node, zone| node.label("zone", *zone)).build())
    };
    let tainted = || {
        let taint = Taint::new("t", "", TaintEffect::NoSchedule);
        Some(node("n").label("zone", "z").taint(taint).build())
    };
    let common = [
        ("a counted pod appears", true, pods(None, b("web", "default"))),
        ("a pod of another namespace appears", false, pods(None, b("web", "other"))),
        ("a pod that is not counted appears", false, pods(None, b("db", "default"))),
        ("a counted pod is removed", true, pods(b("web", "default"), None)),
        ("a pod is no longer counted", true, pods(b("web", "default"), b("db", "default"))),
        ("a domain appears", true, nodes(None, zone(&["z"]))),
        ("a node in no domain appears", false, nodes(None, zone(&[]))),
        ("a domain is removed", true, nodes(zone(&["z"]), None)),
        ("a node changes its domain", true, nodes(zone(&["y"]), zone(&["z"]))),
        (
            "the pod changes its labels",
            true,
            pods(Some(a(false)), Some(pod("a").label("k", "v").build())),
        ),
    ];
    check("PodTopologySpread", &a(false), &common);
    // The labels and taints of an NMNode decide for pods of a node manager whether the node counts.
    let nm_node = || objects(None, Some(NmNode::new("n").into()));
    assert!(!helps("PodTopologySpread", &a(true), &nm_node()));
    let managed = Pod {
        template: Template::new(PodSpec {
            launcher: Launcher::NodeManager,
            ..PodSpec::clone(&a(true).template)
        }),
        ..a(true)
    };
    assert!(helps("PodTopologySpread", &managed, &nm_node()));
    let untainted = || nodes(tainted(), zone(&["z"]));
    assert!(!helps("PodTopologySpread", &a(false), &untainted()));
    assert!(helps("PodTopologySpread", &a(true), &untainted()), "the constraint honors taints");
}

fn claim(name: &str, namespace: &str) -> Option<Object> {
    Some(Object::from(PersistentVolumeClaim {
        namespace: namespace.into(),
        name: name.into(),
        access_modes: Box::new([AccessMode::ReadWriteOncePod]),
        ..PersistentVolumeClaim::default()
    }))
}

#[test]
fn all_volume_plugins_wait_for_the_pods_claim() {
    let a = pod("a").claim("data").build();
    for plugin in ["VolumeRestrictions", "NodeVolumeLimits", "VolumeBinding", "VolumeZone"] {
        let cases = [
            ("the claim appears", true, objects(None, claim("data", "default"))),
            ("another claim appears", false, objects(None, claim("logs", "default"))),
            ("a claim of another namespace appears", false, objects(None, claim("data", "other"))),
        ];
        check(plugin, &a, &cases);
    }
    let updated = objects(claim("data", "default"), claim("data", "default"));
    for (plugin, expected) in [
        ("VolumeRestrictions", false),
        ("NodeVolumeLimits", false),
        ("VolumeBinding", true),
        ("VolumeZone", true),
    ] {
        assert_eq!(helps(plugin, &a, &updated), expected, "{plugin}: the claim is updated");
    }
}

#[test]
fn volume_restrictions_and_limits_wait_for_pods_with_volumes() {
    let a = pod("a").claim("data").build();
    let other = |claim: &str| Some(pod("b").claim(claim.to_owned()).on("n").build());
    let bare = || Some(pod("b").on("n").build());
    check(
        "VolumeRestrictions",
        &a,
        &[
            ("a pod with its claim is removed", true, pods(other("data"), None)),
            ("a pod with another claim is removed", false, pods(other("logs"), None)),
        ],
    );
    let node_of = |limit| {
        let driver = CsiNodeDriver { name: "csi".into(), limit, topology_keys: Box::new([]) };
        let drivers = Box::new([driver]);
        Some(Object::from(CsiNode { name: "n".into(), drivers, ..CsiNode::default() }))
    };
    let attachment = Some(Object::from(VolumeAttachment::default()));
    check(
        "NodeVolumeLimits",
        &a,
        &[
            ("a pod with any volume is removed", true, pods(other("logs"), None)),
            ("a pod without volumes is removed", false, pods(bare(), None)),
            ("a limit is raised", true, objects(node_of(Some(1)), node_of(Some(2)))),
            ("a limit is removed", true, objects(node_of(Some(1)), node_of(None))),
            ("a limit is lowered", false, objects(node_of(Some(2)), node_of(Some(1)))),
            ("drivers appear", true, objects(None, node_of(Some(1)))),
            ("a volume is detached", true, objects(attachment, None)),
        ],
    );
}

#[test]
fn volume_binding_and_zone_wait_for_volumes_classes_and_capacity() {
    let a = pod("a").claim("data").build();
    let volume = |zone: &str| {
        let labels = Labels::new([("topology.kubernetes.io/zone", zone)]);
        Some(Object::from(PersistentVolume { labels, ..PersistentVolume::default() }))
    };
    let class = |binding_mode, allowed: usize| {
        let mut class = StorageClass { binding_mode, ..StorageClass::default() };
        class.allowed_topologies.terms = vec![Default::default(); allowed].into();
        Some(class.into())
    };
    let (late, early) = (VolumeBindingMode::WaitForFirstConsumer, VolumeBindingMode::Immediate);
    let driver =
        |storage_capacity| Some(Object::from(CsiDriver { name: "csi".into(), storage_capacity }));
    let capacity = |largest| {
        let capacity = CsiStorageCapacity { largest, ..CsiStorageCapacity::default() };
        Some(capacity.into())
    };
    let in_zone = |zone: &str| Some(node("n").zone(zone).build());
    check(
        "VolumeBinding",
        &a,
        &[
            ("a volume appears", true, objects(None, volume("z"))),
            ("a volume changes", true, objects(volume("z"), volume("z"))),
            ("a volume is removed", false, objects(volume("z"), None)),
            ("a class appears", true, objects(None, class(late, 0))),
            ("a class allows other topologies", true, objects(class(late, 1), class(late, 2))),
            ("a class allows the same topologies", false, objects(class(late, 1), class(early, 1))),
            ("a driver stops reporting capacity", true, objects(driver(true), driver(false))),
            ("a driver starts reporting capacity", false, objects(driver(false), driver(true))),
            ("capacity increases", true, objects(capacity(Some(1)), capacity(Some(2)))),
            ("capacity decreases", false, objects(capacity(Some(2)), capacity(Some(1)))),
            ("a node appears", true, nodes(None, in_zone("z"))),
        ],
    );
    check(
        "VolumeZone",
        &a,
        &[
            ("a volume appears", true, objects(None, volume("z"))),
            ("a volume moves to another zone", true, objects(volume("y"), volume("z"))),
            ("a volume stays in its zone", false, objects(volume("z"), volume("z"))),
            (
                "a class appears that waits for the first consumer",
                true,
                objects(None, class(late, 0)),
            ),
            ("a class appears that binds immediately", false, objects(None, class(early, 0))),
            ("a node moves to another zone", true, nodes(in_zone("y"), in_zone("z"))),
        ],
    );
}

#[test]
fn an_update_is_split_into_its_actions() {
    let actions = |change: &Change| -> Vec<String> {
        ClusterEvent::of(change).map(|event| event.to_string()).collect()
    };
    let taint = Taint::new("t", "", TaintEffect::NoSchedule);
    let old = node("n").cpu(1).unschedulable(true).build();
    let new = node("n").cpu(2).label("k", "v").taint(taint).declared_features(["F"]).build();
    assert_eq!(
        actions(&nodes(Some(old.clone()), Some(new))),
        [
            "NodeUpdateNodeAllocatable",
            "NodeUpdateNodeLabel",
            "NodeUpdateNodeTaint",
            "NodeUpdateNodeDeclaredFeature"
        ]
    );
    let uncordoned = node("n").cpu(1).build();
    assert_eq!(
        actions(&nodes(Some(old.clone()), Some(uncordoned.clone()))),
        ["NodeUpdateNodeTaint"]
    );
    assert!(
        actions(&nodes(Some(uncordoned), Some(old.clone()))).is_empty(),
        "cordoning is not an action"
    );
    assert!(actions(&nodes(Some(old.clone()), Some(old))).is_empty(), "no relevant change");

    let gated = pod("a").cpu(2).spec(|spec| spec.scheduling_gates = Box::new(["g".into()]));
    let changed = pod("a").cpu(1).label("k", "v").tolerate("t").build();
    assert_eq!(
        actions(&pods(Some(gated.build()), Some(changed.clone()))),
        [
            "UnscheduledPodUpdatePodLabel",
            "UnscheduledPodUpdatePodScaleDown",
            "UnscheduledPodUpdatePodToleration",
            "UnscheduledPodUpdatePodSchedulingGatesEliminated"
        ]
    );
    let on =
        |priority| Some(changed.clone().on("n")).map(|p| Pod { resource_version: priority, ..p });
    assert_eq!(actions(&pods(on(1), on(2))), ["AssignedPodUpdate"], "no finer action");
    assert_eq!(actions(&pods(None, on(1))), ["AssignedPodAdd"]);
}

#[test]
fn gang_scheduling_waits_for_the_group_and_its_pods() {
    let a = pod("a").group("g").build();
    let member = |group: &str| pod("b").group(group);
    let group = |name: &str, wants| Some(Object::from(PodGroup::new("default", name, wants)));
    let elsewhere = Object::from(PodGroup::new("other", "g", 2));
    check(
        "GangScheduling",
        &a,
        &[
            ("a pod of the group appears", true, pods(None, Some(member("g").build()))),
            ("a pod of the group is bound", true, pods(None, Some(member("g").on("n").build()))),
            ("a pod of another group appears", false, pods(None, Some(member("h").build()))),
            ("a pod of no group appears", false, pods(None, Some(pod("b").build()))),
            (
                "a pod of a group of that name in another namespace appears",
                false,
                pods(None, Some(member("g").namespace("other").build())),
            ),
            ("a pod of the group is removed", false, pods(Some(member("g").on("n").build()), None)),
            ("the group appears", true, objects(None, group("g", 2))),
            ("another group appears", false, objects(None, group("h", 2))),
            (
                "a group of that name in another namespace appears",
                false,
                objects(None, Some(elsewhere)),
            ),
            ("the group's minimum decreases", true, objects(group("g", 3), group("g", 2))),
            ("the group's minimum increases", false, objects(group("g", 2), group("g", 3))),
            ("the group is removed", false, objects(group("g", 2), None)),
        ],
    );
    let single = pod("a").build();
    check(
        "GangScheduling",
        &single,
        &[("a pod of no group appears", false, pods(None, Some(pod("b").build())))],
    );
}

/// A plugin that registers for added nodes and whose hint is always to skip.
struct Skips(&'static str);

impl Plugin for Skips {
    plugin!(
        self => self.0, Filter;
        .events(&[Interest { resources: &[EventResource::Node], actions: Actions::ADD }])
    );

    fn queueing_hint(&self, _: &Pod, _: &ClusterEvent<'_>, _: &Cluster) -> Result<Hint, Status> {
        Ok(Hint::Skip)
    }
}

#[test]
fn a_taint_update_retries_plugins_that_wait_for_nodes_however_many_plugins_there_are() {
    let named = |n: usize| Skips(format!("plugin-{n}").leak());
    let tainted = node("n").taint(Taint::new("t", "", TaintEffect::NoSchedule)).build();
    let change = nodes(Some(tainted), Some(node("n").build()));
    let (_, reader) = Engine::inline(Config::default());
    for plugins in [1, 63, 64, 65] {
        let all = (0..plugins).map(|n| (Box::new(named(n)) as Box<dyn Plugin>, 0)).collect();
        let framework = Framework::new(all).unwrap();
        let hints = QueueingHints::new(&framework);
        let first = framework.plugin_set(["plugin-0"]);
        let ask = |event: ClusterEvent<'_>| {
            hints.ask(&framework, first, &pod("p").build(), &event, &reader.snapshot())
        };
        let asked: Vec<Hint> = ClusterEvent::of(&change).map(ask).collect();
        assert_eq!(asked, [Hint::Queue], "{plugins} plugins");
    }
}
