//! Defects that an API server would reject, and where they are.

use portolan_k8s::{check, line_of, lines_of_object};

/// The problems of an input: lines, and texts.
fn problems(input: &str) -> Vec<(u64, String)> {
    check(input.as_bytes()).iter().map(|it| (it.line, it.to_string())).collect()
}

fn one(input: &str, line: u64, text: &str) {
    assert_eq!(problems(input), [(line, text.to_owned())], "{input}");
}

const POD: &str = "apiVersion: v1
kind: Pod
metadata:
  name: web-0
  namespace: shop
spec:
  containers:
  - name: web
    image: nginx
    resources:
      requests: {cpu: 2, memory: 1Gi}
";

#[test]
fn a_valid_pod_has_no_problems() {
    assert_eq!(problems(POD), []);
}

#[test]
fn unknown_fields_are_found_with_line_and_path_in_yaml() {
    let text = POD.replace("    image: nginx\n", "    image: nginx\n    imagine: nginx\n");
    one(&text, 10, "Pod shop/web-0: spec.containers[0].imagine: unknown field");
}

#[test]
fn the_line_of_a_nested_value_is_that_of_its_key() {
    let text = format!("{POD}  tolerance:\n\n  - key: a\n");
    one(&text, 12, "Pod shop/web-0: spec.tolerance: unknown field");
}

#[test]
fn unknown_fields_are_found_with_line_and_path_in_json() {
    let text = "{\n \"apiVersion\": \"v1\", \"kind\": \"List\",\n \"items\": [\n  {\"apiVersion\": \"v1\", \
                \"kind\": \"Node\",\n   \"metadata\": {\"name\": \"n1\"},\n   \"spec\": {\n    \
                \"unschedulabel\": true\n }}]}";
    one(text, 7, "Node n1: spec.unschedulabel: unknown field");
}

#[test]
fn repeated_keys_of_json_are_found() {
    let text = "{\"apiVersion\": \"v1\", \"kind\": \"Pod\", \"metadata\": {\"name\": \"a\",\n \
                \"labels\": {\"a\": \"b\", \"a\": \"c\"}},\n\"spec\": {\"containers\": [{\"name\": \"c\"}]}}";
    one(text, 2, "Pod a: metadata.labels.a: duplicate field");
}

#[test]
fn truth_values_of_yaml_1_1_are_not_texts() {
    assert_eq!(problems(&format!("{POD}  hostNetwork: yes\n")), []);
    assert_eq!(problems(&POD.replace("name: web-0", "name: 'y'")), []);
    let what = "cannot unmarshal bool into Go struct field ObjectMeta.metadata.name of type string";
    one(&POD.replace("name: web-0", "name: y"), 4, &format!("Pod shop/y: metadata.name: {what}"));
    let what = "cannot unmarshal string into Go struct field PodSpec.spec.hostNetwork of type bool";
    let text = format!("{POD}  hostNetwork: 'yes'\n");
    one(&text, 12, &format!("Pod shop/web-0: spec.hostNetwork: {what}"));
}

#[test]
fn numbers_of_yaml_with_a_leading_zero_are_octal() {
    let volume = "  volumes:\n  - name: v\n    secret: {secretName: s, defaultMode: 0640}\n";
    assert_eq!(problems(&format!("{POD}{volume}")), []);
    let set =
        "apiVersion: apps/v1\nkind: ReplicaSet\nmetadata: {name: web}\nspec: {replicas: 010}\n";
    let objects = portolan_k8s::read_yaml(set).expect("objects");
    assert_eq!(objects.controllers[0].replicas, 8);
}

#[test]
fn quantities_may_be_numbers_and_other_texts_may_not() {
    let at = |amount: &str| POD.replace("cpu: 2", &format!("cpu: {amount}"));
    for amount in ["1e3", "0.5", "' 1 '", "null", "1_000", "0x10"] {
        assert_eq!(problems(&at(amount)), [], "{amount}");
        assert!(portolan_k8s::read_yaml(&at(amount)).is_ok(), "{amount}");
    }
    let what = "quantities must match the regular expression \
                '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";
    for amount in ["true", "[]", "''", "'1 m'"] {
        let path = "spec.containers[0].resources.requests.cpu";
        one(&at(amount), 11, &format!("Pod shop/web-0: {path}: {what}"));
        assert!(portolan_k8s::read_yaml(&at(amount)).is_err(), "{amount}");
    }
    let labels = POD.replace("  namespace: shop\n", "  namespace: shop\n  labels: {a: 17}\n");
    let what =
        "cannot unmarshal number into Go struct field ObjectMeta.metadata.labels of type string";
    one(&labels, 6, &format!("Pod shop/web-0: metadata.labels.a: {what}"));
}

#[test]
fn numbers_without_a_fraction_are_whole() {
    let name = "cannot unmarshal number 1.5 into Go struct field DeploymentSpec.spec.replicas of type int32";
    for (replicas, expected) in [("1e3", 1000), ("3.0", 3), ("20e-1", 2), ("0x2", 2), ("null", 1)] {
        let text = deployment(replicas, "web");
        assert_eq!(problems(&text), [], "{replicas}");
        let objects = portolan_k8s::read_yaml(&text).expect("objects");
        assert_eq!(objects.controllers[0].replicas, expected, "{replicas}");
    }
    one(&deployment("1.5", "web"), 5, &format!("Deployment web: spec.replicas: {name}"));
    for replicas in ["1.5", "'2'", "true", "1e21", "4e9"] {
        assert_eq!(problems(&deployment(replicas, "web")).len(), 1, "{replicas}");
        assert!(portolan_k8s::read_yaml(&deployment(replicas, "web")).is_err(), "{replicas}");
    }
    let pod = r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"},"spec":{"priority":1e3,"containers":[null]}}"#;
    let objects = portolan_k8s::read_json(pod.as_bytes()).expect("objects");
    assert_eq!(objects.pods[0].template.priority, 1000);
    assert_eq!(problems(pod), []);
}

#[test]
fn null_is_absent_in_every_field() {
    let text = "apiVersion: v1
kind: Pod
metadata: {name: a, labels: {a: null}, annotations: null, ownerReferences: null}
spec:
  priority: null
  hostNetwork: null
  nodeSelector: null
  overhead: {cpu: null}
  topologySpreadConstraints: null
  containers:
  - {name: a, image: null, ports: null, args: [null], livenessProbe: {httpGet: {port: null}}}
  - null
";
    assert_eq!(problems(text), []);
    assert_eq!(portolan_k8s::read_yaml(text).expect("objects").pods.len(), 1);
}

#[test]
fn values_behind_feature_gates_that_are_off_name_the_gate() {
    let pod = |field: &str| format!("{POD}  {field}\n");
    let unless =
        |gate: &str| format!("unless the feature gate {gate} is on, which is off by default");
    let text = pod("tolerations: [{key: a, operator: Gt, value: '5'}]");
    let what = format!(
        "Unsupported value: \"Gt\": supported values: \"Equal\", \"Exists\" {}",
        unless("TaintTolerationComparisonOperators")
    );
    one(&text, 12, &format!("Pod shop/web-0: spec.tolerations[0].operator: {what}"));
    let text = pod("schedulingGroup: {podGroupName: a}");
    let what = format!("dropped {}", unless("GenericWorkload"));
    one(&text, 12, &format!("Pod shop/web-0: spec.schedulingGroup: {what}"));
}

#[test]
fn pods_need_containers() {
    let text = "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec:\n  containers: []\n";
    one(text, 5, "Pod a: spec.containers: Required value");
    let text = "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\n";
    one(text, 1, "Pod a: spec: Required value");
}

#[test]
fn operators_of_node_selectors_are_checked() {
    let text = format!(
        "{POD}  affinity:
    nodeAffinity:
      requiredDuringSchedulingIgnoredDuringExecution:
        nodeSelectorTerms:
        - matchExpressions:
          - {{key: zone, operator: Equals, values: [a]}}
          - {{key: zone, operator: In}}
          - {{key: zone, operator: Gt, values: [many]}}
"
    );
    let at = "Pod shop/web-0: spec.affinity.nodeAffinity.\
              requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0].matchExpressions";
    let expected = [
        (
            17,
            format!(
                "{at}[0].operator: Unsupported value: \"Equals\": supported values: \"In\", \
                 \"NotIn\", \"Exists\", \"DoesNotExist\", \"Gt\", \"Lt\""
            ),
        ),
        (
            18,
            format!(
                "{at}[1].values: Required value: must be specified when `operator` is 'In' or 'NotIn'"
            ),
        ),
        (19, format!("{at}[2].values: Invalid value: \"many\": must be one integer")),
    ];
    assert_eq!(problems(&text), expected);
}

fn deployment(replicas: &str, labels: &str) -> String {
    format!(
        "apiVersion: apps/v1
kind: Deployment
metadata: {{name: web}}
spec:
  replicas: {replicas}
  selector: {{matchLabels: {{app: web}}}}
  template:
    metadata: {{labels: {{app: {labels}}}}}
    spec: {{containers: [{{name: c, image: i}}]}}
"
    )
}

#[test]
fn replicas_are_not_negative() {
    assert_eq!(problems(&deployment("3", "web")), []);
    let what = "Invalid value: \"-1\": must be greater than or equal to 0";
    one(&deployment("-1", "web"), 5, &format!("Deployment web: spec.replicas: {what}"));
}

#[test]
fn selectors_match_their_template() {
    let what = "Invalid value: `selector` does not match template `labels`";
    let at = "Deployment web: spec.template.metadata.labels";
    one(&deployment("1", "api"), 8, &format!("{at}: {what}"));
}

#[test]
fn versions_that_are_not_served_are_found() {
    let text = deployment("1", "web").replace("apps/v1", "apps/v1beta1");
    let what = "no matches for kind \"Deployment\" in version \"apps/v1beta1\": use apps/v1";
    one(&text, 1, &format!("Deployment web: apiVersion: {what}"));
}

#[test]
fn kinds_that_do_not_exist_in_their_version_are_found() {
    let object = |version: &str, kind: &str| {
        format!("apiVersion: {version}\nkind: {kind}\nmetadata: {{name: a}}\nspec: {{}}\n")
    };
    for (version, kind, line, remedy) in [
        ("v1", "Deployment", 1, ": use apps/v1"),
        ("app/v1", "Deployment", 1, ": use apps/v1"),
        ("v1", "PodDisruptionBudget", 1, ": use policy/v1"),
        ("policy.k8s.io/v1", "PodDisruptionBudget", 1, ": use policy/v1"),
        ("apps/v1", "Pod", 1, ": use v1"),
        ("apps/v1", "Deploymnt", 2, ": did you mean Deployment?"),
        ("v1", "pod", 2, ": did you mean Pod?"),
        ("v1", "deployment", 2, ": did you mean Deployment of apps/v1?"),
        ("v1", "Zebra", 2, ""),
    ] {
        let field = if line == 1 { "apiVersion" } else { "kind" };
        let what = format!("no matches for kind {kind:?} in version {version:?}{remedy}");
        one(&object(version, kind), line, &format!("{kind} a: {field}: {what}"));
    }
    for (version, kind) in [
        ("v1", "ConfigMap"),
        ("v1", "PodList"),
        ("v1", "Config"),
        ("storage.k8s.io/v1beta1", "VolumeAttributesClass"),
        ("scheduling.k8s.io/v1alpha1", "Workload"),
        ("networking.k8s.io/v1", "Ingress"),
        ("events.k8s.io/v1", "Event"),
        ("batch.volcano.sh/v1alpha1", "Job"),
        ("serving.knative.dev/v1", "Service"),
        ("apps.kruise.io/v1alpha1", "StatefulSet"),
    ] {
        assert_eq!(problems(&object(version, kind)), [], "{version} {kind}");
    }
}

#[test]
fn items_of_a_list_are_checked_by_their_implied_kind() {
    let text = "apiVersion: v1\nkind: DeploymentList\nitems:\n- metadata: {name: a}\n";
    let what = "no matches for kind \"Deployment\" in version \"v1\": use apps/v1";
    one(text, 4, &format!("Deployment a: apiVersion: {what}"));
}

#[test]
fn objects_are_found_by_kind_and_name() {
    let text = "apiVersion: v1
kind: Node
metadata: {name: a}
---
apiVersion: v1
kind: List
items:
- {apiVersion: v1, kind: Pod, metadata: {name: a}}
- {apiVersion: v1, kind: Pod, metadata: {name: a, namespace: shop}}
- {apiVersion: v1, kind: Node, metadata: {name: a}}
";
    assert_eq!(lines_of_object(text.as_bytes(), "Node", None, "a"), [1, 10]);
    assert_eq!(lines_of_object(text.as_bytes(), "Pod", Some("default"), "a"), [8]);
    assert_eq!(lines_of_object(text.as_bytes(), "Pod", Some("shop"), "a"), [9]);
    assert!(lines_of_object(b"{", "Pod", None, "a").is_empty());
}

#[test]
fn custom_resources_are_not_checked() {
    let text = "apiVersion: cert-manager.io/v1\nkind: Certificate\nmetadata: {name: a}\nfoo: 1\n";
    assert_eq!(problems(text), []);
}

#[test]
fn templates_of_job_sets_are_checked() {
    let text = "apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
metadata: {name: train}
spec:
  replicatedJobs:
  - name: workers
    replicas: -2
    template:
      spec:
        parallelism: 2
        template:
          spec:
            restartPolicy: Never
            containers:
            - {name: c, imagine: i}
";
    let expected = [
        (
            7,
            "JobSet train: spec.replicatedJobs[0].replicas: Invalid value: \"-2\": must be greater \
             than or equal to 0"
                .to_owned(),
        ),
        (
            15,
            "JobSet train: spec.replicatedJobs[0].template.spec.template.spec.containers[0].imagine: \
             unknown field"
                .to_owned(),
        ),
    ];
    assert_eq!(problems(text), expected);
}

#[test]
fn requests_do_not_exceed_limits() {
    let text = POD.replace("memory: 1Gi}", "memory: 1Gi}\n      limits: {cpu: 1500m}");
    let what = "Invalid value: \"2\": must be less than or equal to cpu limit";
    let at = "Pod shop/web-0: spec.containers[0].resources.requests.cpu";
    one(&text, 11, &format!("{at}: {what}"));
}

#[test]
fn containers_request_known_resources() {
    let text = POD.replace("memory: 1Gi}", "memory: 1Gi, gpu: 8}");
    let what = "Invalid value: \"gpu\": must be a standard resource for containers";
    one(&text, 11, &format!("Pod shop/web-0: spec.containers[0].resources.requests.gpu: {what}"));
}

#[test]
fn names_are_escaped() {
    let text =
        "{\"apiVersion\": \"v1\", \"kind\": \"Node\", \"metadata\": {\"name\": \"n\\u001b[31m\"}}";
    let found = problems(text);
    assert_eq!(found.len(), 1);
    assert!(found[0].1.contains("Invalid value: \"n\\u{1b}[31m\""), "{found:?}");
}

#[test]
fn problems_of_an_input_are_limited() {
    let node =
        "{\"apiVersion\": \"v1\", \"kind\": \"Node\", \"metadata\": {\"name\": \"n\"}, \"x\": 1}";
    let input = format!("[{}]", vec![node; 1500].join(","));
    assert_eq!(problems(&input).len(), 1000);
}

#[test]
fn invalid_texts_have_no_problems() {
    for text in ["", "{", "a: [", "\u{0}", "- - -\n-", "{\"a\": 1} x"] {
        assert_eq!(problems(text), [], "{text:?}");
    }
}

#[test]
fn lines_of_paths_are_found() {
    let text = format!("{POD}---\n{POD}");
    assert_eq!(line_of(text.as_bytes(), "documents[1].spec.containers[0].image"), Some(21));
    assert_eq!(line_of(POD.as_bytes(), "spec.containers[0].resources.requests.cpu"), Some(11));
    assert_eq!(line_of(POD.as_bytes(), "spec.containers[7].image"), Some(7));
    assert_eq!(line_of(b"{", "spec"), None);
}
