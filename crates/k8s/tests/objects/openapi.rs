//! Converting an object of k8s-openapi gives the same result as reading its bytes: the same object, or the same error.

use std::collections::BTreeMap;
use std::fmt::Debug;

use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::{apps, core, policy, scheduling, storage};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use k8s_openapi::{Resource, jiff};
use portolan::model::{
    self, Launcher, MilliCpu, Object, PodClass, TaintEffect, UnsatisfiableAction, VolumeSource,
};
use portolan_k8s::{ReadError, ToModel, node_from_slice, object_from_slice, pod_from_slice};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::vectors;

const POD: &str = include_str!("../../benches/pod.json");
/// Objects of most kinds, with every field that is read.
const CATALOGUE: &str = include_str!("../../../../fuzz/targets/input/objects.json");

/// The object as k8s-openapi reads it; its kind may be missing, as in the items of a list.
fn typed<K: Resource + DeserializeOwned>(value: &Value) -> Result<K, serde_json::Error> {
    let mut value = value.clone();
    value["apiVersion"] = K::API_VERSION.into();
    value["kind"] = K::KIND.into();
    serde_json::from_value(value)
}

/// Compares both ways. Returns the result, or nothing if k8s-openapi refuses the object.
fn compare<K>(
    value: &Value,
    from_slice: impl Fn(&[u8]) -> Result<K::Model, ReadError>,
) -> Option<Result<K::Model, ReadError>>
where
    K: ToModel<Model: Debug + PartialEq> + Resource + DeserializeOwned,
{
    let read = typed::<K>(value).ok()?.to_model();
    let mut bytes = value.clone();
    bytes["apiVersion"] = K::API_VERSION.into();
    assert_eq!(read, from_slice(bytes.to_string().as_bytes()), "{value}");
    Some(read)
}

/// Compares both ways. Returns whether the object was read, or nothing if k8s-openapi refuses it.
fn same(kind: &str, value: &Value) -> Option<bool> {
    macro_rules! objects {
        ($($kind:path),* $(,)?) => {
            match kind {
                "Pod" => compare::<Pod>(value, pod_from_slice)?.is_ok(),
                "Node" => compare::<Node>(value, node_from_slice)?.is_ok(),
                $(<$kind>::KIND => compare::<$kind>(value, |b| object_from_slice(kind, b))?.is_ok(),)*
                other => panic!("{other} has no conversion"),
            }
        };
    }
    Some(objects![
        core::v1::Namespace,
        core::v1::Service,
        core::v1::ReplicationController,
        core::v1::PersistentVolume,
        core::v1::PersistentVolumeClaim,
        apps::v1::ReplicaSet,
        apps::v1::StatefulSet,
        apps::v1::DaemonSet,
        policy::v1::PodDisruptionBudget,
        scheduling::v1beta1::PodGroup,
        storage::v1::StorageClass,
        storage::v1::CSINode,
        storage::v1::VolumeAttachment,
        storage::v1::CSIDriver,
        storage::v1::CSIStorageCapacity,
    ])
}

/// The pod, whose bytes give the same one.
fn pod(value: Value) -> model::Pod {
    compare::<Pod>(&value, pod_from_slice).expect("k8s-openapi reads it").expect("a pod")
}

/// Returns the error of converting a pod, after checking that reading its bytes gives the same one.
fn pod_error(value: Value) -> ReadError {
    compare::<Pod>(&value, pod_from_slice).expect("k8s-openapi reads it").unwrap_err()
}

fn with_spec(spec: Value) -> Value {
    json!({"metadata": {"name": "a", "namespace": "n"}, "spec": spec})
}

fn object<K>(value: Value) -> Result<Object, ReadError>
where
    K: ToModel<Model = Object> + Resource + DeserializeOwned,
{
    compare::<K>(&value, |bytes| object_from_slice(K::KIND, bytes)).expect("k8s-openapi reads it")
}

/// Objects of the catalogue and some more, by kind.
fn objects() -> Vec<(String, Value)> {
    let without_type = ["Deployment", "Job", "PriorityClass", "RuntimeClass", "ConfigMap"];
    let list: Value = serde_json::from_str(CATALOGUE).expect("JSON");
    let mut all = list["items"].as_array().expect("a list").clone();
    all.push(serde_json::from_str(POD).expect("JSON"));
    all.push(json!({"kind": "PodDisruptionBudget", "metadata": {"name": "b", "namespace": "n"},
        "spec": {"minAvailable": "50%", "selector": {"matchLabels": {"b": "2", "a": "1"}}},
        "status": {"disruptionsAllowed": 1, "currentHealthy": 2, "desiredHealthy": 1, "expectedPods": 2,
            "disruptedPods": {"q": "2026-01-01T00:00:00Z", "p": "2026-01-01T00:00:00Z"}}}));
    all.push(json!({"kind": "PodGroup",
        "metadata": {"name": "g", "namespace": "n", "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"priority": 7, "schedulingPolicy": {"gang": {"minCount": 3}}}}));
    all.push(annotated());
    let with_kind = |value: Value| (value["kind"].as_str().expect("a kind").to_owned(), value);
    all.into_iter()
        .map(with_kind)
        .filter(|(kind, _)| !without_type.contains(&kind.as_str()))
        .collect()
}

/// A pod with each of the annotations that are read.
fn annotated() -> Value {
    json!({"kind": "Pod", "metadata": {"name": "a", "namespace": "n", "uid": "u", "annotations": {
        "godel.bytedance.com/pod-group-name": "g",
        "katalyst.kubewharf.io/qos_level": "dedicated_cores",
        "katalyst.kubewharf.io/memory_enhancement": r#"{"numa_binding": "true"}"#,
        "godel.bytedance.com/pod-resource-type": "best-effort",
        "godel.bytedance.com/pod-launcher": "node-manager",
        "godel.bytedance.com/micro-topology": "0:cpu=1",
        "godel.bytedance.com/pod-state": "assumed",
        "godel.bytedance.com/selected-scheduler": "s",
        "godel.bytedance.com/assumed-node": "n1",
        "godel.bytedance.com/nominated-node": r#"{"node": "n2"}"#,
        "godel.bytedance.com/reservation-index": "web",
        "godel.bytedance.com/reservation-placeholder": "true",
        "godel.bytedance.com/placeholder-uid": "p",
        "godel.bytedance.com/movement-name": "m",
        "kubectl.kubernetes.io/last-applied-configuration": "{}"}}})
}

#[test]
fn every_kind_is_the_same_as_from_its_bytes() {
    let mut kinds = BTreeMap::new();
    for (kind, value) in objects() {
        if same(&kind, &value).is_some_and(|is_read| is_read) {
            *kinds.entry(kind).or_insert(0) += 1;
        }
    }
    assert_eq!(kinds.len(), 17, "{kinds:?}");
}

/// Values of the same type to put in place of a leaf: k8s-openapi refuses most others.
fn replacements(leaf: &Value) -> &'static [&'static str] {
    match leaf {
        Value::String(_) => &[
            "",
            "x",
            "1",
            "-1",
            "100m",
            "1e3",
            "é\n",
            "In",
            "NotIn",
            "Exists",
            "Gt",
            "Always",
            "Never",
            "NoExecute",
            "Honor",
            "Ignore",
            "DoNotSchedule",
            "Infeasible",
            "Block",
            "2026-01-01T00:00:00+02:00",
            "9999-01-01T00:00:00Z",
        ],
        Value::Number(_) => &["0", "1", "-1", "65536", "2147483647"],
        Value::Bool(_) => &["true", "false"],
        Value::Null | Value::Array(_) | Value::Object(_) => &[],
    }
}

/// Calls a function with the value after each change of one of its parts.
fn each_change(value: &mut Value, root: &dyn Fn(Value) -> Value, found: &mut dyn FnMut(Value)) {
    for text in replacements(value) {
        let replaced = match value {
            Value::String(_) => Value::from(*text),
            _ => serde_json::from_str(text).expect("JSON"),
        };
        found(root(replaced));
    }
    match value.clone() {
        Value::Object(fields) => {
            for (key, mut field) in fields.clone() {
                let mut without = fields.clone();
                without.remove(&key);
                found(root(Value::Object(without)));
                let with = |field: Value| {
                    let mut fields = fields.clone();
                    fields.insert(key.clone(), field);
                    root(Value::Object(fields))
                };
                each_change(&mut field, &with, found);
            }
        }
        Value::Array(list) => {
            for (i, mut item) in list.iter().cloned().enumerate() {
                let with = |item: Value| {
                    let mut list = list.clone();
                    list[i] = item;
                    root(Value::Array(list))
                };
                each_change(&mut item, &with, found);
            }
        }
        _ => {}
    }
}

#[test]
fn every_change_of_a_field_is_the_same_as_in_the_bytes() {
    let (mut read, mut wrong, mut refused) = (0, 0, 0);
    // Other objects cover the fields of these.
    let repeated = ["n2", "web-1", "web-2", "web-4", "web-5", "cart-6d5f8c9b7c-x2v9q"];
    for (kind, mut value) in objects() {
        if repeated.contains(&value["metadata"]["name"].as_str().expect("a name")) {
            continue;
        }
        value.as_object_mut().expect("an object").remove("kind");
        each_change(&mut value, &|value| value, &mut |changed| {
            // k8s-openapi reads a required selector that is missing as an empty one.
            let needs_selector =
                ["ReplicaSet", "StatefulSet", "DaemonSet"].contains(&kind.as_str());
            if needs_selector && changed["spec"]["selector"].is_null() {
                return;
            }
            match same(&kind, &changed) {
                Some(true) => read += 1,
                Some(false) => wrong += 1,
                None => refused += 1,
            }
        });
    }
    println!("{read} objects, {wrong} errors, {refused} refused by k8s-openapi");
    assert!(read > 5_000 && wrong > 1_000, "{read} objects, {wrong} errors");
}

#[test]
fn golden_vector_objects_are_the_same_as_from_their_bytes() {
    // `None` if k8s-openapi refuses the object.
    vectors::each_object(|kind, value| same(kind, value).is_some());
}

#[test]
fn an_empty_pod_is_read_and_a_node_needs_a_name() {
    let pod = Pod::default().to_model().expect("a pod");
    assert_eq!(Ok(pod), pod_from_slice(b"{}"));
    let error = Node::default().to_model().unwrap_err();
    assert_eq!(error.path(), "metadata.name");
    let meta = ObjectMeta { name: Some("n1".to_owned()), ..ObjectMeta::default() };
    let node = Node { metadata: meta, ..Node::default() };
    assert_eq!(node.to_model(), node_from_slice(br#"{"metadata":{"name":"n1"}}"#));
}

#[test]
fn sidecars_count_beside_containers_and_init_containers_do_not() {
    let pod = pod(with_spec(json!({
        "initContainers": [
            {"name": "i", "resources": {"requests": {"cpu": "1"}}},
            {"name": "s", "restartPolicy": "Always", "resources": {"requests": {"cpu": "10m"}},
             "ports": [{"containerPort": 1, "hostPort": 50, "protocol": "SCTP"}]}],
        "containers": [{"name": "c", "resources": {"requests": {"cpu": "2"}}}],
        "overhead": {"cpu": "5m"}})));
    assert_eq!(pod.template.resources.incoming.cpu, MilliCpu(2_000 + 10 + 5));
    assert_eq!(pod.template.host_ports[0].port, 50);
    assert_eq!(pod.template.container_count, 3);
}

#[test]
fn requests_of_the_pod_replace_those_of_its_containers() {
    let spec = |resources: Value| {
        with_spec(json!({"resources": resources,
            "containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}))
    };
    let cpu = |resources| pod(spec(resources)).template.resources.incoming.cpu;
    assert_eq!(cpu(json!({"requests": {"cpu": "3"}})), MilliCpu(3_000));
    assert_eq!(cpu(Value::Null), MilliCpu(1_000));
    assert_eq!(
        pod_error(spec(json!({"limits": {"cpu": "x"}}))).path(),
        "spec.resources.limits.cpu"
    );
}

#[test]
fn a_resize_counts_with_the_allocated_resources_unless_it_is_infeasible() {
    let placed = |reason: &str| {
        let mut value = with_spec(json!({"nodeName": "n1",
            "containers": [{"name": "c", "resources": {"requests": {"cpu": "4"}}}]}));
        value["status"] = json!({
            "conditions": [{"type": "PodResizePending", "status": "True", "reason": reason}],
            "containerStatuses": [{"name": "c", "image": "", "imageID": "", "ready": true, "restartCount": 0,
                "resources": {"requests": {"cpu": "2"}}, "allocatedResources": {"cpu": "3"}}]});
        pod(value).template.resources.placed.cpu
    };
    assert_eq!(placed("Deferred"), MilliCpu(4_000));
    assert_eq!(placed("Infeasible"), MilliCpu(3_000));
}

#[test]
fn resources_of_the_status_of_a_pod_are_read() {
    let mut value = with_spec(json!({"nodeName": "n1", "resources": {"requests": {"cpu": "1"}},
        "containers": [{"name": "c"}]}));
    value["status"] =
        json!({"resources": {"requests": {"cpu": "2"}}, "allocatedResources": {"cpu": "1"}});
    assert_eq!(pod(value.clone()).template.resources.placed.cpu, MilliCpu(2_000));
    value["status"]["allocatedResources"]["cpu"] = "".into();
    assert_eq!(pod_error(value).path(), "status.allocatedResources.cpu");
}

#[test]
fn ephemeral_containers_request_nothing() {
    let pod = pod(with_spec(json!({
        "containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}],
        "ephemeralContainers": [{"name": "debug", "image": "busybox", "targetContainerName": "c",
            "resources": {"requests": {"cpu": "8"}}}]})));
    assert_eq!(pod.template.resources.incoming.cpu, MilliCpu(1_000));
    assert_eq!(pod.template.container_count, 1);
}

#[test]
fn tolerations_with_seconds_tolerate_as_others_do() {
    let pod = pod(with_spec(json!({"containers": [], "tolerations": [
        {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300},
        {"key": "k", "value": "v"}]})));
    let [timed, other] = &pod.template.tolerations[..] else { panic!("two") };
    assert_eq!(timed.effect, Some(TaintEffect::NoExecute));
    assert_eq!((other.value.as_deref(), other.effect), (Some("v"), None));
    let wrong = with_spec(json!({"containers": [], "tolerations": [{}, {"operator": "Is"}]}));
    assert_eq!(pod_error(wrong).path(), "spec.tolerations[1].operator");
}

#[test]
fn topology_spread_has_its_policies() {
    let pod = pod(with_spec(json!({"containers": [], "topologySpreadConstraints": [
        {"maxSkew": 2, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway", "minDomains": 3,
         "labelSelector": {"matchLabels": {"app": "web"}}, "matchLabelKeys": ["pod-template-hash"],
         "nodeAffinityPolicy": "Ignore", "nodeTaintsPolicy": "Honor"}]})));
    let spread = &pod.template.topology_spread[0];
    assert_eq!(spread.when_unsatisfiable, UnsatisfiableAction::ScheduleAnyway);
    assert!(!spread.honor_node_affinity && spread.honor_node_taints);
    assert_eq!((spread.max_skew, spread.min_domains), (2, Some(3)));
}

#[test]
fn namespace_selectors_of_affinity_terms_are_read() {
    let with_selector = |selector: Value| {
        with_spec(json!({"containers": [], "affinity": {"podAntiAffinity": {
            "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 7, "podAffinityTerm":
                {"topologyKey": "zone", "labelSelector": {}, "namespaceSelector": selector}}]}}}))
    };
    let term = |selector: Value| {
        let pod = pod(with_selector(selector));
        pod.template.pod_anti_affinity.as_ref().expect("anti-affinity").preferred[0].term.clone()
    };
    // Without a selector the term applies to the pod's own namespace; an empty selector selects all namespaces.
    assert_eq!(&*term(Value::Null).namespaces[0], "n");
    let every = term(json!({}));
    assert!(every.namespaces.is_empty() && every.namespace_selector.is_empty());
    let wrong = json!({"matchExpressions": [{"key": "team", "operator": "In", "values": []}]});
    assert_eq!(
        pod_error(with_selector(wrong)).path(),
        "spec.affinity.podAntiAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].podAffinityTerm\
         .namespaceSelector.matchExpressions[0].operator"
    );
}

#[test]
fn quantities_that_cannot_be_read_name_their_field() {
    let spec = |cpu: &str| {
        with_spec(json!({"containers": [{"name": "c"},
            {"name": "d", "resources": {"limits": {"memory": "1Gi"}, "requests": {"cpu": cpu}}}]}))
    };
    for cpu in ["", "1x", "-1", "1 x", "NaN"] {
        let error = pod_error(spec(cpu));
        assert_eq!(error.path(), "spec.containers[1].resources.requests.cpu", "{cpu}");
    }
    assert_eq!(
        pod_error(with_spec(json!({"containers": [], "overhead": {"cpu": "4x"}}))).path(),
        "spec.overhead.cpu"
    );
    let node = json!({"metadata": {"name": "n1"}, "status": {"allocatable": {"cpu": "many"}}});
    let error = compare::<Node>(&node, node_from_slice).expect("k8s-openapi reads it").unwrap_err();
    assert_eq!(error.path(), "status.allocatable.cpu");
    let class = json!({"metadata": {"name": "c"}, "storageClassName": "s", "capacity": "much"});
    let error = object::<storage::v1::CSIStorageCapacity>(class).unwrap_err();
    assert_eq!(error.path(), "capacity");
}

#[test]
fn times_keep_their_fraction_and_must_fit_64_bits_of_nanoseconds() {
    let pod = |text: &str| {
        let time = Some(Time(text.parse::<jiff::Timestamp>().expect("a time")));
        let metadata = ObjectMeta { deletion_timestamp: time, ..ObjectMeta::default() };
        Pod { metadata, ..Pod::default() }.to_model()
    };
    let nanos = |text: &str| pod(text).expect("a pod").deletion_time.expect("a time").0;
    assert_eq!(nanos("2024-02-29T12:00:00Z"), 1_709_208_000_000_000_000);
    assert_eq!(nanos("1969-12-31T23:59:59.5Z"), -500_000_000);
    assert_eq!(nanos("2024-01-01T01:00:00.123456789+01:00"), 1_704_067_200_123_456_789);
    for far in ["9999-01-01T00:00:00Z", "-000001-01-01T00:00:00Z", "1600-01-01T00:00:00Z"] {
        assert_eq!(pod(far).unwrap_err().path(), "metadata.deletionTimestamp", "{far}");
    }
}

#[test]
fn annotations_of_other_systems_are_read() {
    let template = pod(annotated()).template;
    assert_eq!((template.class, template.launcher), (PodClass::Guaranteed, Launcher::NodeManager));
    assert!(template.numa_binding && template.micro_topology.is_some() && template.godel.is_some());
    assert_eq!(template.scheduling_group.as_deref(), Some("g"));
    let mut wrong = annotated();
    wrong["metadata"]["annotations"]["godel.bytedance.com/micro-topology"] = "0:cpu".into();
    assert!(pod_error(wrong).path().ends_with("micro-topology"));
}

#[test]
fn volumes_that_scheduling_reads_are_kept() {
    let pod = pod(with_spec(json!({"containers": [], "volumes": [
        {"name": "v0", "configMap": {"name": "x"}}, {"name": "v1", "emptyDir": {}},
        {"name": "v2", "persistentVolumeClaim": {"claimName": "c", "readOnly": true}},
        {"name": "v3", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}},
        {"name": "v4", "rbd": {"monitors": ["b", "a"], "image": "i"}}]})));
    assert!(pod.template.has_local_storage);
    let expected = [
        VolumeSource::PersistentVolumeClaim { claim: "c".into(), read_only: true },
        VolumeSource::Ephemeral { volume: "v3".into() },
        VolumeSource::Rbd {
            monitors: ["a".into(), "b".into()].into(),
            pool: "rbd".into(),
            image: "i".into(),
            read_only: false,
        },
    ];
    assert_eq!(*pod.template.volumes, expected);
}

#[test]
fn fields_of_later_versions_of_kubernetes_are_read() {
    let pod = pod(with_spec(json!({"schedulingGroup": {"podGroupName": "g"}, "containers": [
        {"name": "c", "restartPolicyRules": [{"action": "RestartAllContainers"}]}]})));
    assert_eq!(pod.template.scheduling_group.as_deref(), Some("g"));
    assert_eq!(&*pod.template.required_node_features[0], "RestartAllContainersOnContainerExits");
    let node = json!({"metadata": {"name": "n1"}, "status": {"declaredFeatures": ["A"]}});
    let node = compare::<Node>(&node, node_from_slice).expect("k8s-openapi reads it");
    assert_eq!(&*node.expect("a node").declared_features[0], "A");
}

#[test]
fn values_of_other_fields_do_not_matter() {
    for number in [json!(1), json!("50%")] {
        let budget =
            json!({"metadata": {"name": "b"}, "spec": {"maxUnavailable": number, "selector": {}}});
        assert!(object::<policy::v1::PodDisruptionBudget>(budget).is_ok());
        let service = json!({"metadata": {"name": "s"},
            "spec": {"selector": {"app": "web"}, "ports": [{"port": 80, "targetPort": number}]}});
        let Ok(Object::Service(service)) = object::<core::v1::Service>(service) else {
            panic!("a service")
        };
        assert_eq!(service.selector.get("app"), Some("web"));
    }
}

#[test]
fn errors_of_serialized_kinds_name_their_field() {
    let drivers = json!([{"name": "d", "nodeID": "n", "allocatable": {"count": -1}}]);
    let node = json!({"metadata": {"name": "n1"}, "spec": {"drivers": drivers}});
    let error = object::<storage::v1::CSINode>(node).unwrap_err();
    assert_eq!(error.path(), "spec.drivers[0].allocatable.count");
    let template = with_spec(json!({"containers": [
        {"name": "c", "resources": {"requests": {"cpu": "1x"}}}]}));
    let set = json!({"metadata": {"name": "r"}, "spec": {"selector": {}, "template": template}});
    let error = object::<apps::v1::ReplicaSet>(set).unwrap_err();
    assert_eq!(error.path(), "spec.template.spec.containers[0].resources.requests.cpu");
}

#[test]
fn pod_groups_of_each_version_are_read() {
    let group =
        json!({"metadata": {"name": "g"}, "spec": {"schedulingPolicy": {"gang": {"minCount": 3}}}});
    for read in [
        object::<scheduling::v1beta1::PodGroup>(group.clone()),
        object::<scheduling::v1alpha3::PodGroup>(group.clone()),
    ] {
        let Ok(Object::PodGroup(read)) = read else { panic!("a group") };
        assert_eq!(read.min_members, 3);
    }
}
