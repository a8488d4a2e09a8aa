//! Reading single objects: every field of pods and nodes, as stored.

use serde_json::{Value, json};

use super::Cause;
use super::testing::{node, object, pod};
use portolan::model::{
    LabelSelector, Labels, Launcher, MilliCpu, Object, Operator, Pod, PodAffinityTerm, PodClass,
    Protocol, Requirement, TaintEffect, Timestamp, TolerationOperator, UnsatisfiableAction,
    VolumeSource,
};

fn read(metadata: Value, spec: Value, status: Value) -> Pod {
    pod(&json!({"metadata": metadata, "spec": spec, "status": status})).expect("a pod")
}

fn spec(spec: Value) -> Pod {
    read(json!({"name": "a", "namespace": "n", "labels": {"app": "web"}}), spec, Value::Null)
}

fn error(spec: Value) -> String {
    pod(&json!({"metadata": {"name": "a"}, "spec": spec})).expect_err("an error").to_string()
}

/// No API server stores such a name, and kube-scheduler does not count it.
#[test]
fn resources_that_kube_scheduler_ignores_are_not_read() {
    let requests = json!({"gpu": 8, "a/b/c": 1, "storage": 1, "example.com/x": 2, "cpu": 1});
    let pod = spec(json!({"containers": [{"name": "c", "resources": {"requests": requests}}],
                          "overhead": {"licence": 3}}));
    let requested = &pod.template.resources.incoming;
    assert_eq!((requested.cpu, requested.scalars.len()), (MilliCpu(1_000), 1));
    assert_eq!(requested.scalars.get("example.com/x"), Some(2));
    let node = node(&json!({"metadata": {"name": "n"},
                            "status": {"allocatable": {"gpu": 8, "storage": 1, "pods": 5}}}));
    let node = node.expect("a node");
    assert_eq!((node.allocatable.scalars.len(), node.allowed_pods), (0, 5));
}

#[test]
fn a_stored_pod_is_read_without_defaults() {
    let pod = read(
        json!({"name": "a", "namespace": "n", "resourceVersion": "42",
               "creationTimestamp": "1970-01-01T00:00:01Z", "deletionTimestamp": null,
               "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r",
                                    "uid": "x", "controller": true}]}),
        json!({"nodeName": "n1", "schedulerName": "s", "priority": -5, "preemptionPolicy": "Never",
               "schedulingGates": [{"name": "g"}], "resourceClaims": [{"name": "c"}],
               "nodeSelector": {"k": "v"}, "containers": [{"name": "c", "resources": {
                   "limits": {"cpu": 4}}}]}),
        json!({"phase": "Running", "startTime": "1970-01-01T00:00:02Z", "nominatedNodeName": "n2"}),
    );
    assert!(pod.uid.is_empty());
    assert_eq!((pod.resource_version, pod.node_name.as_deref()), (42, Some("n1")));
    assert_eq!(pod.nominated_node_name.as_deref(), Some("n2"));
    assert_eq!(pod.creation_time, Some(Timestamp::from_secs(1)));
    assert_eq!(pod.start_time, Some(Timestamp::from_secs(2)));
    assert_eq!(pod.deletion_time, None);
    let template = &pod.template;
    assert_eq!(template.priority, -5);
    assert_eq!(template.node_selector.get("k"), Some("v"));
    assert_eq!((&*template.scheduling_gates[0], &*template.resource_claims[0].name), ("g", "c"));
    assert_eq!(template.scheduler_name.as_deref(), Some("s"));
    // Defaults are filled in by the API server, not by the scheduler.
    assert!(template.resources.incoming.is_zero());
    assert!(template.tolerations.is_empty());
}

#[test]
fn annotations_give_class_and_launcher() {
    let read = |annotations: Value| {
        let pod = read(json!({"name": "a", "annotations": annotations}), json!({}), Value::Null);
        (pod.template.class, pod.template.launcher)
    };
    assert_eq!(read(Value::Null), (PodClass::Guaranteed, Launcher::Kubelet));
    let of_godel = json!({"godel.bytedance.com/pod-resource-type": "best-effort",
                          "godel.bytedance.com/pod-launcher": "node-manager", "other": "x"});
    assert_eq!(read(of_godel), (PodClass::BestEffort, Launcher::NodeManager));
    let level = |level: &str| read(json!({"katalyst.kubewharf.io/qos_level": level})).0;
    assert_eq!(level("reclaimed_cores"), PodClass::BestEffort);
    assert_eq!(level("shared_cores"), PodClass::Guaranteed);
    let unknown = json!({"godel.bytedance.com/pod-launcher": ""});
    assert_eq!(read(unknown), (PodClass::Guaranteed, Launcher::Unknown));
}

#[test]
fn a_pod_with_only_a_name_reads_and_null_is_absent() {
    let bare = pod(&json!({"metadata": {"name": "a"}})).expect("a pod");
    let nulls = pod(&json!({"metadata": {"name": "a", "labels": null, "uid": null},
        "spec": {"containers": null, "affinity": null, "tolerations": null, "volumes": null,
                 "priority": null, "overhead": null, "nodeSelector": null}, "status": null}));
    assert_eq!(Ok(bare), nulls);
}

#[test]
fn host_ports_come_from_containers_and_sidecars() {
    let pod = spec(json!({
        "containers": [{"name": "c", "ports": [
            {"containerPort": 1}, {"containerPort": 2, "hostPort": 20},
            {"hostPort": 30, "hostIP": "10.0.0.1", "protocol": "UDP"}]}],
        "initContainers": [
            {"name": "i", "ports": [{"hostPort": 40}]},
            {"name": "s", "restartPolicy": "Always", "ports": [{"hostPort": 50, "protocol": "SCTP"}]}],
    }));
    let ports: Vec<_> =
        pod.template.host_ports.iter().map(|p| (&*p.ip, p.protocol, p.port)).collect();
    assert_eq!(
        ports,
        [
            ("0.0.0.0", Protocol::Tcp, 20),
            ("10.0.0.1", Protocol::Udp, 30),
            ("0.0.0.0", Protocol::Sctp, 50),
        ]
    );
    let bad = |port: i64| json!({"containers": [{"ports": [{"hostPort": port}]}]});
    assert_eq!(
        error(bad(65536)),
        "spec.containers[0].ports[0].hostPort: \"65536\" is not a port from 1 to 65535"
    );
    assert!(error(bad(-1)).contains("hostPort"));
}

fn status_pod(reason: &str) -> Pod {
    read(
        json!({"name": "a"}),
        json!({"nodeName": "n1",
            "initContainers": [
                {"name": "i", "resources": {"requests": {"cpu": "1"}}},
                {"name": "s", "restartPolicy": "Always", "resources": {"requests": {"cpu": "10m"}}}],
            "containers": [{"name": "c", "resources": {"requests": {"cpu": "4"}}},
                           {"name": "d", "resources": {"requests": {"cpu": "1m"}}}]}),
        json!({"conditions": [{"type": "Ready"}, {"type": "PodResizePending", "reason": reason}],
            "containerStatuses": [
                {"name": "c", "resources": {"requests": {"cpu": "2"}}, "allocatedResources": {"cpu": "3"}},
                {"name": "d", "allocatedResources": {"cpu": "100"}}],
            "initContainerStatuses": [
                {"name": "s", "resources": {"requests": {"cpu": "20m"}}},
                {"name": "i", "resources": {"requests": {"cpu": "100"}}}]}),
    )
}

#[test]
fn placed_requests_are_the_largest_of_spec_and_status() {
    // Without status.resources the allocated resources of a container do not count, and those of an init container
    // never count.
    let resources = &status_pod("Deferred").template.resources;
    assert_eq!(resources.placed.cpu, MilliCpu(4000 + 1 + 20));
    assert_eq!(resources.incoming.cpu, MilliCpu(4000 + 1 + 10));
}

#[test]
fn the_spec_of_an_infeasible_resize_does_not_count() {
    let resources = &status_pod("Infeasible").template.resources;
    assert_eq!(resources.placed.cpu, MilliCpu(3000 + 1 + 20));
    assert_eq!(resources.incoming.cpu, MilliCpu(4000 + 1 + 10));
}

#[test]
fn pod_level_status_counts_for_placed_pods_only() {
    let pod = read(
        json!({"name": "a"}),
        json!({"resources": {"requests": {"cpu": "1", "memory": "8"}}, "overhead": {"cpu": "5m"},
               "containers": [{"name": "c"}]}),
        json!({"resources": {"requests": {"cpu": "2"}}, "allocatedResources": {"cpu": "1500m"}}),
    );
    assert_eq!(pod.template.resources.placed.cpu, MilliCpu(2005));
    assert_eq!(pod.template.resources.placed.memory.0, 8);
    assert_eq!(pod.template.resources.incoming.cpu, MilliCpu(1005));
}

fn term(term: Value) -> PodAffinityTerm {
    let pod = spec(json!({"affinity": {"podAffinity":
        {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}));
    pod.template.pod_affinity.as_ref().expect("affinity").required[0].clone()
}

#[test]
fn terms_without_namespaces_and_selector_apply_to_the_own_namespace() {
    let namespaces =
        |t: Value| -> Vec<String> { term(t).namespaces.iter().map(ToString::to_string).collect() };
    assert_eq!(namespaces(json!({"topologyKey": "z"})), ["n"]);
    assert_eq!(namespaces(json!({"namespaces": ["x"]})), ["x"]);
    assert_eq!(namespaces(json!({"namespaceSelector": {}})), [""; 0]);
    assert_eq!(term(json!({})).namespace_selector, LabelSelector::Nothing);
    assert!(term(json!({"namespaceSelector": {}})).namespace_selector.is_empty());
}

#[test]
fn match_label_keys_are_merged_once_if_the_pod_has_the_label() {
    let merged = term(json!({"labelSelector": {"matchLabels": {"a": "b"}},
        "matchLabelKeys": ["app", "none"], "mismatchLabelKeys": ["app"]}));
    let expected = LabelSelector::All(
        [
            Requirement::new("a", Operator::In, ["b"]),
            Requirement::new("app", Operator::In, ["web"]),
            Requirement::new("app", Operator::NotIn, ["web"]),
        ]
        .into(),
    );
    assert_eq!(merged.selector, expected);
    let stored = term(json!({"matchLabelKeys": ["app"], "labelSelector": {"matchExpressions":
        [{"key": "app", "operator": "In", "values": ["before"]}]}}));
    assert!(matches!(&stored.selector, LabelSelector::All(all) if all.len() == 1));
    let absent = term(json!({"matchLabelKeys": ["app"]}));
    assert_eq!(absent.selector, LabelSelector::Nothing);
}

#[test]
fn empty_affinities_are_present() {
    let pod = spec(json!({"affinity": {"podAffinity": {}, "podAntiAffinity": null}}));
    assert!(pod.template.pod_affinity.is_some());
    assert!(pod.template.pod_anti_affinity.is_none());
}

#[test]
fn an_invalid_label_selector_is_an_error() {
    let with_expression = |expression: Value| {
        json!({"topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "z",
            "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchExpressions": [expression]}}]})
    };
    let at = "spec.topologySpreadConstraints[0].labelSelector.matchExpressions[0]";
    assert_eq!(
        error(with_expression(json!({"key": "a", "operator": "Gt", "values": ["1"]}))),
        format!("{at}.operator: \"Gt\" is not one of In, NotIn, Exists, DoesNotExist")
    );
    for bad in [
        json!({"key": "a", "operator": "In"}),
        json!({"key": "a", "operator": "Exists", "values": ["x"]}),
        json!({"key": "a b", "operator": "Exists"}),
        json!({"key": "a", "operator": "In", "values": ["-"]}),
    ] {
        assert!(error(with_expression(bad.clone())).starts_with(at), "{bad}");
    }
}

#[test]
fn an_invalid_node_selector_term_is_flagged_and_matches_nothing() {
    let matches = |term: Value| {
        let pod = spec(json!({"affinity": {"nodeAffinity":
            {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}}}));
        let affinity = pod.template.node_affinity.clone().expect("affinity");
        let required = affinity.required.expect("required");
        let labels = Labels::new([("cores", "8"), ("zone", "a")]);
        (required.terms[0].invalid, required.matches("n1", &labels))
    };
    let expression = |operator: &str, values: &[&str]| json!({"matchExpressions": [{"key": "cores", "operator": operator, "values": values}]});
    assert_eq!(matches(expression("Gt", &["7"])), (false, true));
    assert_eq!(matches(expression("Gt", &["8"])), (false, false));
    assert_eq!(matches(expression("Lt", &["9"])), (false, true));
    assert_eq!(matches(expression("NotIn", &["8"])), (false, false));
    assert_eq!(matches(expression("Gt", &["7", "6"])), (true, false));
    assert_eq!(matches(expression("Gt", &["x"])), (true, false));
    // The value is not a label value, so the requirement is invalid.
    assert_eq!(matches(expression("Gt", &["-1"])), (true, false));
    assert_eq!(matches(expression("In", &[])), (true, false));
    assert_eq!(matches(expression("Near", &["8"])), (true, false));
    let field = |operator: &str, values: &[&str]| json!({"matchFields": [{"key": "metadata.name", "operator": operator, "values": values}]});
    assert_eq!(matches(field("In", &["n1"])), (false, true));
    assert_eq!(matches(field("NotIn", &["n1"])), (false, false));
    assert_eq!(matches(field("In", &["n1", "n2"])), (true, false));
    assert_eq!(matches(field("Exists", &[])), (true, false));
    assert_eq!(matches(json!({})), (false, false));
}

#[test]
fn tolerations_and_spread_constraints_have_their_defaults() {
    let pod = spec(json!({
        "tolerations": [{"key": "a", "value": "b"}, {"operator": "Exists", "effect": "NoExecute"},
                        {"key": "c", "operator": "Gt", "value": "1"}],
        "topologySpreadConstraints": [
            {"maxSkew": 2, "topologyKey": "z", "whenUnsatisfiable": "ScheduleAnyway"},
            {"maxSkew": 1, "topologyKey": "h", "whenUnsatisfiable": "DoNotSchedule",
             "minDomains": 3, "labelSelector": {}, "matchLabelKeys": ["app"],
             "nodeAffinityPolicy": "Ignore", "nodeTaintsPolicy": "Honor"}]}));
    let [equal, exists, numeric] = &pod.template.tolerations[..] else { panic!("three") };
    assert_eq!((equal.operator, equal.effect), (TolerationOperator::Equal, None));
    assert_eq!((&exists.key, exists.effect), (&None, Some(TaintEffect::NoExecute)));
    assert_eq!(numeric.operator, TolerationOperator::Numeric);
    let [soft, hard] = &pod.template.topology_spread[..] else { panic!("two") };
    assert_eq!(soft.when_unsatisfiable, UnsatisfiableAction::ScheduleAnyway);
    assert!(soft.honor_node_affinity && !soft.honor_node_taints);
    assert_eq!((&soft.selector, soft.min_domains), (&LabelSelector::Nothing, None));
    assert!(!hard.honor_node_affinity && hard.honor_node_taints && hard.selector.is_empty());
    assert_eq!((hard.min_domains, &*hard.match_label_keys[0]), (Some(3), "app"));
}

#[test]
fn volumes_that_scheduling_reads_are_kept() {
    let pod = spec(json!({"volumes": [
        {"name": "v0", "configMap": {"name": "x"}}, {"name": "v1", "emptyDir": {}},
        {"name": "v2", "persistentVolumeClaim": {"claimName": "c", "readOnly": true}},
        {"name": "v3", "ephemeral": {"volumeClaimTemplate": {}}},
        {"name": "v4", "gcePersistentDisk": {"pdName": "d"}},
        {"name": "v5", "awsElasticBlockStore": {"volumeID": "e"}},
        {"name": "v6", "rbd": {"monitors": ["b", "a"], "image": "i"}},
        {"name": "v7", "iscsi": {"iqn": "q", "lun": 0, "targetPortal": "t", "readOnly": true}},
        {"name": "v8", "csi": {"driver": "dr"}}, {"name": "v9", "image": {"reference": "r"}},
        {"name": "v10", "azureDisk": {"diskName": "n", "diskURI": "u"}},
        {"name": "v11", "cinder": {"volumeID": "w"}}]}));
    let expected = [
        VolumeSource::PersistentVolumeClaim { claim: "c".into(), read_only: true },
        VolumeSource::Ephemeral { volume: "v3".into() },
        VolumeSource::GcePersistentDisk { disk: "d".into(), partition: 0, read_only: false },
        VolumeSource::AwsElasticBlockStore { volume: "e".into(), read_only: false },
        VolumeSource::Rbd {
            monitors: ["a".into(), "b".into()].into(),
            pool: "rbd".into(),
            image: "i".into(),
            read_only: false,
        },
        VolumeSource::Iscsi { iqn: "q".into(), read_only: true },
        VolumeSource::Csi { driver: "dr".into() },
        VolumeSource::Image { reference: "r".into() },
        VolumeSource::Other { kind: "azureDisk".into(), handle: "u".into() },
        VolumeSource::Other { kind: "cinder".into(), handle: "w".into() },
    ];
    assert_eq!(*pod.template.volumes, expected);
}

#[test]
fn required_node_features_follow_from_the_spec() {
    let pod = spec(json!({"hostNetwork": true, "hostUsers": false, "containers": [
        {"name": "c", "restartPolicyRules": [{"action": "RestartAllContainers"}]}]}));
    let features: Vec<_> = pod.template.required_node_features.iter().map(|f| &**f).collect();
    assert_eq!(
        features,
        ["RestartAllContainersOnContainerExits", "UserNamespacesHostNetworkSupport"]
    );
    assert!(spec(json!({"hostNetwork": true})).template.required_node_features.is_empty());
}

#[test]
fn a_node_is_read_with_its_taints_images_and_features() {
    let node = node(&json!({
        "metadata": {"name": "n1", "resourceVersion": "7", "labels":
            {"kubernetes.io/hostname": "n1", "topology.kubernetes.io/zone": "z"}},
        "spec": {"unschedulable": true, "taints":
            [{"key": "a", "effect": "NoSchedule"}, {"key": "b", "value": "c", "effect": "NoExecute"}]},
        "status": {"capacity": {"cpu": "9"}, "allocatable":
                {"cpu": "3500m", "memory": "1Ki", "pods": "5", "hugepages-2Mi": "0", "storage": "1"},
            "images": [{"names": ["x:1", "x@sha256:2"], "sizeBytes": 3}, {"names": null}],
            "declaredFeatures": ["B", "A"]}}))
    .expect("a node");
    assert_eq!((node.resource_version, node.unschedulable, &*node.zone.zone), (7, true, "z"));
    assert_eq!((node.allocatable.cpu.0, node.allocatable.memory.0), (3500, 1024));
    assert_eq!((node.allowed_pods, node.allocatable.scalars.len()), (5, 1));
    assert_eq!((node.taints.len(), &*node.taints[1].value), (2, "c"));
    assert_eq!((node.images[0].size, node.images[0].names.len()), (3, 2));
    assert_eq!(*node.declared_features, ["A".into(), "B".into()]);
}

#[test]
fn a_stored_node_without_allocatable_gets_no_default() {
    let value =
        json!({"metadata": {"name": "n"}, "status": {"capacity": {"cpu": "9", "pods": "9"}}});
    let node = node(&value).expect("a node");
    assert_eq!((node.allocatable.cpu.0, node.allowed_pods), (0, 0));
}

#[test]
fn capacity_is_kept_only_if_it_differs_from_allocatable() {
    let capacity = |capacity: Value| {
        let status = json!({"allocatable": {"cpu": "8", "pods": "9"}, "capacity": capacity});
        node(&json!({"metadata": {"name": "n"}, "status": status})).expect("a node")
    };
    let more = capacity(json!({"cpu": "10", "pods": "9"}));
    assert_eq!((more.capacity().resources.cpu.0, more.capacity().pods), (10_000, 9));
    for same in [json!({"cpu": "8", "pods": "9"}), Value::Null] {
        let node = capacity(same);
        assert_eq!((node.capacity.is_none(), node.capacity().resources.cpu.0), (true, 8_000));
    }
}

#[test]
fn nm_nodes_and_custom_node_resources_are_read() {
    let metadata = json!({"name": "n", "resourceVersion": "7",
                          "labels": {"topology.kubernetes.io/zone": "z"}});
    let found = object(
        "NMNode",
        &json!({"metadata": metadata,
        "spec": {"taints": [{"key": "k", "effect": "NoSchedule"}]},
        "status": {"resourceCapacity": {"cpu": 16}, "resourceAllocatable": {"cpu": "12"}}}),
    );
    let Ok(Object::NmNode(nm_node)) = found else { panic!("{found:?}") };
    assert_eq!((nm_node.resource_version, &*nm_node.zone.zone), (7, "z"));
    assert_eq!(nm_node.taints[0].effect, TaintEffect::NoSchedule);
    assert_eq!(nm_node.node(None).allocatable.cpu.0, 12_000);
    assert_eq!(nm_node.node(None).capacity().resources.cpu.0, 16_000);

    let found = object(
        "CustomNodeResource",
        &json!({"metadata": metadata,
        "status": {"resources": {"allocatable": {"cpu": "1500m", "memory": "1Gi", "pods": 5}}}}),
    );
    let Ok(Object::CustomNodeResource(custom)) = found else { panic!("{found:?}") };
    let offered = &custom.allocatable;
    assert_eq!((offered.resources.cpu.0, offered.resources.memory.0), (1_500, 1 << 30));
    assert_eq!((offered.pods, custom.resource_version), (5, 7));

    let measured = |cpu: &str| {
        json!({"metadata": metadata, "status": {"nodeMetricStatus": {
        "updateTime": "1970-01-01T00:00:07Z",
        "nodeMetric": {"genericUsage": {"cpu": "9"}},
        "groupMetric": [
            {"QoSLevel": "shared_cores", "genericUsage": {"cpu": cpu, "memory": "1Gi"},
             "podList": ["n/a", "n/b"]},
            {"qosLevel": "reclaimed_cores", "genericUsage": {"cpu": "5m"}, "podList": ["n/c"]},
            {"QoSLevel": "system_cores", "genericUsage": {"cpu": "1"}},
            {"QoSLevel": "dedicated_cores", "genericUsage": null}]}}})
    };
    let found = object("CustomNodeResource", &measured("200m"));
    let Ok(Object::CustomNodeResource(custom)) = found else { panic!("{found:?}") };
    let metrics = custom.metrics.as_ref().expect("metrics");
    assert_eq!(metrics.updated, Some(portolan::model::Timestamp::from_secs(7)));
    let guaranteed = metrics.of(PodClass::Guaranteed);
    assert_eq!((guaranteed.usage.cpu.0, guaranteed.usage.memory.0), (1_200, 1 << 30));
    assert!(guaranteed.has("n", "b") && !guaranteed.has("n", "c"));
    let best_effort = metrics.of(PodClass::BestEffort);
    assert_eq!((best_effort.usage.cpu.0, best_effort.pods().len()), (5, 1));
    let error = object("CustomNodeResource", &measured("x")).unwrap_err();
    assert_eq!(error.path(), "status.nodeMetricStatus.groupMetric[0].genericUsage.cpu");

    let bad = json!({"metadata": metadata, "status": {"resources": {"allocatable": {"cpu": "x"}}}});
    let error = object("CustomNodeResource", &bad).unwrap_err();
    assert_eq!(error.path(), "status.resources.allocatable.cpu");
    let error = object("NMNode", &json!({"metadata": {}})).unwrap_err();
    assert_eq!(error.path(), "metadata.name");
}

#[test]
fn bad_values_name_their_field() {
    let message = |value: Value| node(&value).expect_err("an error").to_string();
    assert_eq!(message(json!({})), "metadata.name: the field is required");
    let named = |rest: Value| {
        let mut value = json!({"metadata": {"name": "n"}});
        value.as_object_mut().expect("map").extend(rest.as_object().expect("map").clone());
        value
    };
    assert_eq!(
        message(named(json!({"spec": {"taints": [{"key": "a"}]}}))),
        "spec.taints[0].effect: \"\" is not one of NoSchedule, PreferNoSchedule, NoExecute"
    );
    assert_eq!(
        message(named(json!({"status": {"allocatable": {"cpu": "-1"}}}))),
        "status.allocatable.cpu: quantity \"-1\" is negative"
    );
    assert_eq!(
        message(json!({"metadata": {"name": "n", "resourceVersion": "+1"}})),
        "metadata.resourceVersion: \"+1\" is not a decimal number of at most 64 bits"
    );
    let wrong_type = node(&named(json!({"spec": {"taints": [{"key": 3}]}}))).expect_err("an error");
    assert_eq!(wrong_type.path(), "spec.taints[0].key");
    let wrong_kind = pod(&json!({"kind": "Node"})).expect_err("an error");
    assert_eq!(wrong_kind.cause(), &Cause::Kind { found: "Node".into(), expected: "Pod" });
}

#[test]
fn the_other_objects_are_read_by_their_kind() {
    let meta = json!({"name": "x", "namespace": "n", "labels": {"l": "v"}});
    let selector = json!({"a": "b"});
    let read = |kind: &str, spec: Value| object(kind, &json!({"metadata": meta, "spec": spec}));
    let Ok(Object::Namespace(namespace)) = read("Namespace", Value::Null) else {
        panic!("not a namespace")
    };
    assert_eq!(namespace.labels.get("l"), Some("v"));
    let Ok(Object::Service(service)) = read("Service", json!({"selector": selector})) else {
        panic!("one")
    };
    assert_eq!((&*service.namespace, service.selector.get("a")), ("n", Some("b")));
    let expected = LabelSelector::from_labels([("a", "b")]);
    for (kind, selector) in [
        ("ReplicationController", selector.clone()),
        ("ReplicaSet", json!({"matchLabels": selector})),
        ("StatefulSet", json!({"matchLabels": selector})),
        ("DaemonSet", json!({"matchLabels": selector})),
    ] {
        let Ok(Object::Workload(workload)) = read(kind, json!({"selector": selector})) else {
            panic!("{kind}")
        };
        assert_eq!((workload.kind.as_str(), &workload.selector), (kind, &expected));
        assert_eq!(workload.labels.get("l"), Some("v"));
    }
    assert!(matches!(read("Job", Value::Null), Err(e) if matches!(e.cause(), Cause::Kind { .. })));
}
