//! Reading whole inputs: dispatch, lists, documents, errors.

use super::{Cause, ControllerKind, Objects, Reader, check, read, read_json, read_yaml};
use portolan::model::{MilliCpu, Object, Pod, TaintEffect};

const POD: &str = r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a","namespace":"n","uid":"u",
    "managedFields":[{"fieldsV1":{"f:metadata":{"f:labels":{}}}}]},
    "spec":{"priority":1,"containers":[{"name":"c","resources":{"requests":{"cpu":"100m"}}}]}}"#;

fn names(objects: &Objects) -> Vec<&str> {
    objects.pods.iter().map(|pod| &*pod.name).collect()
}

fn pod_with(spec: &str) -> String {
    format!(r#"{{"apiVersion":"v1","kind":"Pod","metadata":{{"name":"a"}},"spec":{spec}}}"#)
}

fn one(spec: &str) -> Pod {
    let mut objects = read_json(pod_with(spec).as_bytes()).expect("a pod");
    objects.pods.remove(0)
}

fn message(input: &str) -> String {
    read(input.as_bytes()).expect_err("an error").to_string()
}

#[test]
fn an_object_a_list_a_typed_list_and_an_array_read_the_same() {
    let bare = r#"{"metadata":{"name":"a","namespace":"n","uid":"u"},
        "spec":{"priority":1,"containers":[{"name":"c","resources":{"requests":{"cpu":"100m"}}}]}}"#;
    let inputs = [
        POD.to_owned(),
        format!("[{POD}]"),
        format!(r#"{{"apiVersion":"v1","items":[{POD}],"kind":"List","metadata":{{"a":1}}}}"#),
        format!(r#"{{"kind":"PodList","apiVersion":"v1","metadata":{{}},"items":[{bare}]}}"#),
        format!(r#"{{"apiVersion":"v1","items":[{bare}],"kind":"PodList"}}"#),
        format!(r#"{{"metadata":{{}},"items":[{bare}],"kind":"PodList","apiVersion":"v1"}}"#),
        format!("{}{}", &bare[..bare.len() - 1], r#","kind":"Pod","apiVersion":"v1"}"#),
    ];
    let expected = read_json(POD.as_bytes()).expect("a pod").pods;
    for input in &inputs {
        let objects = read(input.as_bytes()).unwrap_or_else(|e| panic!("{input}: {e}"));
        assert_eq!(objects.pods, expected, "{input}");
        // Every JSON text is also YAML.
        assert_eq!(read_yaml(input).expect("yaml").pods, expected, "{input}");
    }
}

#[test]
fn yaml_documents_are_read_in_order() {
    let text = "
---
# nothing but a comment
---
apiVersion: v1
kind: Node
metadata:
  name: n1
  labels: {zone: a, version: 1.10}
spec:
  taints:
  - {key: gpu, effect: NoSchedule}
status:
  capacity: {cpu: 4, memory: 8Gi, pods: 110}
---
apiVersion: v1
kind: Pod
metadata:
  name: a
spec:
  containers:
  - name: c
    resources:
      requests:
        cpu: 0.5
        memory: 1e3
...
apiVersion: v1
kind: ConfigMap
metadata: {name: x}
data: {spec: 1}
";
    let objects = read(text.as_bytes()).expect("objects");
    let node = &objects.nodes[0];
    assert_eq!(node.allocatable.cpu, MilliCpu(4000));
    assert_eq!(node.allowed_pods, 110);
    assert_eq!(node.labels.get("version"), Some("1.10"));
    assert_eq!(node.taints[0].effect, TaintEffect::NoSchedule);
    let requests = &objects.pods[0].template.resources.incoming;
    assert_eq!((requests.cpu.0, requests.memory.0), (500, 1000));
    assert_eq!(objects.skipped["ConfigMap"], 1);
}

#[test]
fn numbers_in_yaml_are_those_of_yaml_1_1() {
    let text = "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec:\n  priority: 0100\n  containers: \
                [{name: c, image: i, resources: {requests: {cpu: 010, memory: 0x10}}}]\n  volumes: \
                [{name: s, secret: {secretName: s, defaultMode: 0400}}]\n";
    let pods = read(text.as_bytes()).expect("a pod").pods;
    let template = &pods[0].template;
    assert_eq!(template.priority, 0o100);
    let incoming = &template.resources.incoming;
    assert_eq!((incoming.cpu.0, incoming.memory.0), (8000, 16));
    assert_eq!(check(text.as_bytes()), []);
    // No number in any version of YAML.
    let text = text.replace("0400", "0x1.8");
    assert!(
        check(text.as_bytes())[0].path.ends_with("defaultMode"),
        "{:?}",
        check(text.as_bytes())
    );
}

#[test]
fn kinds_of_other_groups_are_skipped_and_counted() {
    let text = r#"{"apiVersion":"v1","kind":"List","items":[
        {"apiVersion":"serving.knative.dev/v1","kind":"Service","metadata":{"name":1},"spec":"x"},
        {"apiVersion":"v1","kind":"Secret","items":3},
        {"apiVersion":"v1","kind":"Secret"},
        {"spec":[[[]]],"apiVersion":"v1","kind":"Event"}]}"#;
    let objects = read_json(text.as_bytes()).expect("objects");
    let skipped: Vec<_> = objects.skipped.iter().map(|(k, n)| (k.as_str(), *n)).collect();
    assert_eq!(skipped, [("Event", 1), ("Secret", 2), ("Service", 1)]);
    assert!(objects.objects.is_empty());
}

#[test]
fn an_object_without_kind_outside_of_a_typed_list_is_an_error() {
    for (text, path) in [
        (r#"{"metadata":{"name":"a"}}"#, ""),
        (r#"{"apiVersion":"v1","kind":"List","items":[{"metadata":{}}]}"#, "items[0]"),
        (r#"{"apiVersion":"v1","items":[{"metadata":{}}],"kind":"List"}"#, "items[0]"),
        ("{}", ""),
    ] {
        let error = read_json(text.as_bytes()).expect_err(text);
        assert_eq!((error.cause(), error.path()), (&Cause::NoKind, path), "{text}");
        assert_eq!(error.is_foreign(), path.is_empty(), "{text}");
    }
    for (text, path) in [
        (r#"{"kind":"Pod","metadata":{"name":"a"}}"#, "apiVersion"),
        (r#"{"apiVersion":"v1","metadata":{"name":"a"}}"#, "kind"),
    ] {
        let error = read_json(text.as_bytes()).expect_err(text);
        assert_eq!((error.cause(), error.path()), (&Cause::Missing, path), "{text}");
        assert!(!error.is_foreign());
    }
}

#[test]
fn errors_name_the_path_to_the_field() {
    let list = |pod: &str| format!(r#"{{"kind":"List","apiVersion":"v1","items":[{POD},{pod}]}}"#);
    let bad = pod_with(
        r#"{"containers":[{"name":"b"},{"name":"c","resources":{"requests":{"cpu":"4x"}}}]}"#,
    );
    assert_eq!(
        message(&list(&bad)),
        "items[1].spec.containers[1].resources.requests.cpu: quantity \"4x\" is not a number \
         with an optional suffix such as m, k, Mi or e3"
    );
    let bad = pod_with(r#"{"containers":[{"name":"b","ports":3}]}"#);
    let error = read_json(list(&bad).as_bytes()).expect_err("an error");
    assert_eq!(error.path(), "items[1].spec.containers[0].ports");
    assert_eq!(error.line(), Some(3));
    assert!(
        matches!(error.cause(), Cause::Syntax(m) if m == "invalid type: integer `3`, expected a list"),
        "{error}"
    );
    let bad = pod_with(r#"{"tolerations":[{"operator":"Sometimes"}]}"#);
    assert_eq!(
        message(&bad),
        "spec.tolerations[0].operator: \"Sometimes\" is not one of Equal, Exists, Lt, Gt"
    );
}

#[test]
fn invalid_utf8_is_refused_with_its_position() {
    let error = read(b"kind: Pod\nmetadata: {name: \xc3\xa9\xff}\n").expect_err("an error");
    assert_eq!((error.line(), error.column()), (Some(2), Some(19)), "{error}");
}

#[test]
fn a_lone_scalar_is_refused_with_its_line() {
    let error = read_yaml("# a comment\n\nhello\n").expect_err("an error");
    assert_eq!((error.line(), error.path()), (Some(3), ""), "{error}");
    let error = read_yaml("apiVersion: v1\nkind: Foo\n---\nhello\n").expect_err("an error");
    assert_eq!((error.line(), error.path()), (Some(4), "documents[1]"), "{error}");
}

#[test]
fn yaml_errors_name_the_line_and_the_document() {
    let text = "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec:\n  containers: 5\n";
    let error = read_yaml(text).expect_err("an error");
    assert_eq!(error.line(), Some(5), "{error}");
    let text = "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\n---\napiVersion: v1\nkind: Pod\n\
                metadata: {name: b, resourceVersion: x1}\n";
    let error = read_yaml(text).expect_err("an error");
    assert_eq!(error.path(), "documents[1].metadata.resourceVersion");
    assert!(read_yaml("a: [1").is_err());
}

#[test]
fn invalid_inputs_are_discarded_as_a_whole() {
    let mut reader = Reader::new();
    reader.read(POD.as_bytes()).expect("a pod");
    let bad = format!(r#"[{},{{"kind":1}}]"#, pod_with("{}"));
    assert!(reader.read(bad.as_bytes()).is_err());
    let bad = format!("{}\n---\na: 1\n", pod_with("{}"));
    assert!(reader.read_yaml(&bad).is_err());
    let objects = reader.finish();
    assert_eq!(names(&objects), ["a"]);
    assert!(
        objects
            .defaulted
            .iter()
            .all(|d| d.field == "spec.tolerations" || d.field == "spec.schedulerName"),
        "{:?}",
        objects.defaulted
    );
}

#[test]
fn deep_nesting_and_garbage_are_errors() {
    for open in ["[", "{\"a\":", "{\"items\":[", "{\"spec\":{\"affinity\":"] {
        let text = open.repeat(100_000);
        assert!(read_json(text.as_bytes()).is_err());
        assert!(read_yaml(&text).is_err());
    }
    let unknown = format!(
        r#"{{"apiVersion":"v1","kind":"Pod","metadata":{{"name":"a"}},"x":{}{}}}"#,
        "[".repeat(50_000),
        "]".repeat(50_000)
    );
    let _ = read_json(unknown.as_bytes());
    for text in ["", " ", "null", "3", "\"x\"", "[null]", "[1]", "\u{0}", "{", "é", "- - -"] {
        let _ = read(text.as_bytes());
        let _ = read_yaml(text);
    }
    assert!(read(b"\xff\xfe").is_err());
    assert!(read_json(b"{\"\xff\":1}").is_err());
}

#[test]
fn defaults_of_the_api_server_are_filled_in_and_reported() {
    let text = format!(
        r#"[{},{}]"#,
        pod_with(
            r#"{"hostNetwork":true,"priorityClassName":"system-node-critical",
                "tolerations":[{"key":"node.kubernetes.io/not-ready","operator":"Exists"}],
                "containers":[{"name":"c","ports":[{"containerPort":80}],
                "resources":{"limits":{"cpu":"2","memory":"1Gi"},"requests":{"memory":"1Mi"}}}]}"#
        ),
        r#"{"apiVersion":"v1","kind":"Node","metadata":{"name":"n1"},"status":{"capacity":{"cpu":"2"}}}"#
    );
    let objects = read_json(text.as_bytes()).expect("objects");
    let pod = &objects.pods[0];
    assert_eq!(pod.uid.to_string(), "default/a");
    assert_eq!(pod.template.priority, 2_000_001_000);
    assert_eq!(pod.template.resources.incoming.cpu, MilliCpu(2000));
    assert_eq!(pod.template.resources.incoming.memory.0, 1 << 20);
    assert_eq!(pod.template.host_ports[0].port, 80);
    assert_eq!(pod.template.tolerations.len(), 2);
    assert_eq!(objects.nodes[0].allocatable.cpu, MilliCpu(2000));
    let report: Vec<String> = objects.defaulted.iter().map(ToString::to_string).collect();
    assert_eq!(
        report,
        [
            "Pod default/a: metadata.namespace = default",
            "Pod default/a: metadata.uid = default/a",
            "Pod default/a: spec.containers[0].resources.requests.cpu = 2",
            "Pod default/a: spec.containers[0].ports[0].hostPort = 80",
            "Pod default/a: spec.containers[0].ports[0].protocol = TCP",
            "Pod default/a: spec.tolerations = node.kubernetes.io/unreachable:NoExecute",
            "Pod default/a: spec.schedulerName = default-scheduler",
            "Node n1: status.allocatable = cpu=2",
            "Pod default/a: spec.priority = 2000001000 (system-node-critical)",
        ]
    );
}

#[test]
fn classes_are_found_anywhere_in_the_inputs() {
    let text = "
apiVersion: v1
kind: Pod
metadata: {name: a}
spec: {priorityClassName: high, runtimeClassName: kata, containers: [{name: c}]}
---
apiVersion: v1
kind: Pod
metadata: {name: b}
spec: {containers: [{name: c}]}
---
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata: {name: high}
value: 1000
preemptionPolicy: Never
---
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata: {name: usual}
value: 7
globalDefault: true
---
apiVersion: node.k8s.io/v1
kind: RuntimeClass
metadata: {name: kata}
handler: kata
overhead: {podFixed: {cpu: 250m}}
scheduling: {nodeSelector: {kata: 'yes'}}
";
    let objects = read_yaml(text).expect("objects");
    let [a, b] = &objects.pods[..] else { panic!("two pods") };
    assert_eq!((a.template.priority, b.template.priority), (1000, 7));
    assert_eq!(a.template.preemption_policy, portolan::model::PreemptionPolicy::Never);
    assert_eq!(a.template.resources.incoming.cpu, MilliCpu(250));
    assert_eq!(a.template.node_selector.get("kata"), Some("yes"));
}

#[test]
fn pod_level_requests_come_from_containers_and_then_from_limits() {
    let pod = one(r#"{"resources":{"limits":{"cpu":"4","memory":"1Gi"}},
            "containers":[{"name":"c","resources":{"requests":{"cpu":"1"}}},{"name":"d"}]}"#);
    assert_eq!(pod.template.resources.incoming.cpu, MilliCpu(1000));
    assert_eq!(pod.template.resources.incoming.memory.0, 1 << 30);
}

#[test]
fn finished_pods_are_counted_and_left_out() {
    let text = r#"{"apiVersion":"v1","kind":"PodList","items":[
        {"metadata":{"name":"a"},"status":{"phase":"Succeeded"}},
        {"metadata":{"name":"b"},"status":{"phase":"Failed"}},
        {"metadata":{"name":"c"},"status":{"phase":"Unknown"}}]}"#;
    let objects = read_json(text.as_bytes()).expect("objects");
    assert_eq!((names(&objects), objects.finished_pods), (vec!["c"], 2));
}

#[test]
fn pods_of_one_template_share_it() {
    let text = format!("[{POD},{},{POD}]", POD.replace(r#""a""#, r#""b""#));
    let objects = read_json(text.as_bytes()).expect("objects");
    let first = &objects.pods[0].template;
    assert!(objects.pods.iter().all(|pod| std::sync::Arc::ptr_eq(&pod.template, first)));
}

const WORKLOADS: &str = "
apiVersion: v1
kind: NodeList
items:
- metadata: {name: n1, labels: {pool: gpu}}
- metadata: {name: n2}
- metadata: {name: n3, labels: {pool: gpu}}
  spec: {unschedulable: true, taints: [{key: node.kubernetes.io/unschedulable, effect: NoSchedule}]}
- metadata: {name: n4, labels: {pool: gpu}}
  spec: {taints: [{key: secret, effect: NoSchedule}]}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: shop}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: c}]}
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db}
spec:
  replicas: 2
  selector: {matchLabels: {app: db}}
  template: {metadata: {labels: {app: db}}, spec: {containers: [{name: c}]}}
---
apiVersion: batch/v1
kind: Job
metadata: {name: once}
spec: {parallelism: 5, completions: 3, template: {spec: {containers: [{name: c}]}}}
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: agent}
spec:
  selector: {matchLabels: {app: agent}}
  template:
    metadata: {labels: {app: agent}}
    spec: {nodeSelector: {pool: gpu}, containers: [{name: c}]}
";

#[test]
fn controllers_expand_into_pods() {
    let mut objects = read_yaml(WORKLOADS).expect("objects");
    assert_eq!(objects.expand(), 9);
    assert_eq!(
        names(&objects),
        ["web-0", "web-1", "db-0", "db-1", "once-0", "once-1", "once-2", "agent-n1", "agent-n3"]
    );
    let web = &objects.pods[0];
    assert_eq!(web.uid.to_string(), "shop/web-0");
    let owner = &web.template.owners[0];
    assert_eq!((&*owner.kind, &*owner.name, owner.controller), ("ReplicaSet", "web", true));
    let all = objects.objects.iter().map(|o: &Object| (o.kind().as_str(), &**o.name()));
    let workloads: Vec<_> = all.filter(|(kind, _)| *kind != "Namespace").collect();
    assert_eq!(workloads, [("StatefulSet", "db"), ("DaemonSet", "agent"), ("ReplicaSet", "web")]);
    let agent = objects.pods[8].template.node_affinity.as_ref().expect("affinity");
    let required = agent.required.as_ref().expect("required");
    assert!(required.matches("n3", &portolan::model::Labels::EMPTY));
    assert!(!required.matches("n1", &portolan::model::Labels::EMPTY));
    assert_eq!(objects.expand(), 0);
}

#[test]
fn a_controller_creates_only_the_pods_that_it_lacks() {
    let text = "
apiVersion: apps/v1
kind: ReplicaSet
metadata: {name: r, ownerReferences: [{kind: Deployment, name: d, controller: true}]}
spec: {replicas: 3, selector: {}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: d}
spec: {replicas: 3, selector: {}}
---
apiVersion: v1
kind: Pod
metadata: {name: r-x, ownerReferences: [{kind: ReplicaSet, name: r, controller: true}]}
";
    let mut objects = read_yaml(text).expect("objects");
    assert_eq!(objects.controllers[0].kind, ControllerKind::ReplicaSet);
    // The deployment leaves its pods to the replica set, which has one of three.
    assert_eq!(objects.expand(), 2);
    assert_eq!(objects.expand(), 0);
}

#[test]
fn excessive_replicas_are_an_error() {
    let text = r#"{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"d"},
        "spec":{"replicas":9000000000000000000}}"#;
    assert_eq!(
        message(text),
        "spec.replicas: \"9000000000000000000\" is not a number of pods up to 10000000"
    );
}
