//! Limit ranges and quotas.

use portolan_k8s::{Objects, Reader};

/// A cluster, and the objects that are added to it.
fn objects(cluster: &str, added: &str) -> (Objects, Objects) {
    let reader = |text: &str| {
        let mut reader = Reader::new();
        reader.read_yaml(text).expect("objects");
        reader
    };
    let [mut cluster, mut added] = Reader::finish_together([reader(cluster), reader(added)]);
    added.expand_in(&cluster);
    cluster.admission.extend(&added.admission);
    (cluster, added)
}

/// The refusals of the added pods, which are admitted in their order. Empty if a pod is admitted.
fn refusals(cluster: &str, added: &str) -> Vec<String> {
    let (mut cluster, added) = objects(cluster, added);
    let admitted = added.pods.iter().map(|pod| cluster.admission.admit(pod).err());
    admitted.map(Option::unwrap_or_default).collect()
}

fn pod(name: &str, more: &str) -> String {
    format!("---\napiVersion: v1\nkind: Pod\nmetadata: {{name: {name}}}\nspec: {{{more}}}\n")
}

fn quota(spec: &str) -> String {
    format!("---\napiVersion: v1\nkind: ResourceQuota\nmetadata: {{name: q}}\nspec: {{{spec}}}\n")
}

const RUNNING: &str = "containers: [{name: c, resources: {requests: {cpu: 500m, memory: 1Gi}}}]";

#[test]
fn quotas_count_the_pods_of_the_input_that_have_not_finished() {
    let done = pod("done", RUNNING) + "status: {phase: Succeeded}\n";
    let other = pod("other", RUNNING).replace("{name: other}", "{name: other, namespace: b}");
    let cluster = quota("hard: {pods: 2}") + &pod("a", RUNNING) + &done + &other;
    let refused = refusals(&cluster, &(pod("b", RUNNING) + &pod("c", RUNNING)));
    let why = "forbidden: exceeded quota: q, requested: pods=1, used: pods=2, limited: pods=2";
    assert_eq!(refused, ["", why]);
}

#[test]
fn quotas_limit_amounts_in_the_text_of_the_api_server() {
    let hard = "hard: {requests.cpu: '1', requests.memory: 3Gi, requests.example.com/gpu: '1'}";
    let gpu =
        "containers: [{name: c, resources: {requests: {cpu: 1, memory: 2Gi, example.com/gpu: 2}}}]";
    let refused = refusals(&(quota(hard) + &pod("a", RUNNING)), &pod("b", gpu));
    let why = "forbidden: exceeded quota: q, requested: requests.cpu=1,requests.example.com/gpu=2, \
               used: requests.cpu=500m,requests.example.com/gpu=0, \
               limited: requests.cpu=1,requests.example.com/gpu=1";
    assert_eq!(refused, [why]);
    let refused = refusals(&quota("hard: {limits.memory: 1Gi}"), &pod("b", RUNNING));
    assert_eq!(refused, ["forbidden: failed quota: q: must specify limits.memory for: c"]);
    let limited = RUNNING.replace("requests", "limits");
    let refused = refusals(&quota("hard: {limits.memory: 512Mi}"), &pod("b", &limited));
    let why = "forbidden: exceeded quota: q, requested: limits.memory=1Gi, used: limits.memory=0, \
               limited: limits.memory=512Mi";
    assert_eq!(refused, [why]);
}

#[test]
fn scopes_select_the_pods_of_a_quota() {
    let matches = |scope: &str, more: &str| {
        let spec = format!("hard: {{pods: 0}}, {scope}");
        !refusals(&quota(&spec), &pod("b", more))[0].is_empty()
    };
    let best_effort = "containers: [{name: c}]";
    let deadline = "activeDeadlineSeconds: 5, containers: [{name: c}]";
    let class = "priorityClassName: high, containers: [{name: c}]";
    let across = "containers: [{name: c}], affinity: {podAffinity: \
        {requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: z, namespaces: [b]}]}}";
    for (scope, matching, other) in [
        ("BestEffort", best_effort, RUNNING),
        ("NotBestEffort", RUNNING, best_effort),
        ("Terminating", deadline, RUNNING),
        ("NotTerminating", RUNNING, deadline),
        ("PriorityClass", class, RUNNING),
        ("CrossNamespacePodAffinity", across, RUNNING),
    ] {
        let scopes = format!("scopes: [{scope}]");
        assert_eq!((matches(&scopes, matching), matches(&scopes, other)), (true, false), "{scope}");
    }
    let selector = |operator: &str| {
        format!(
            "scopeSelector: {{matchExpressions: \
             [{{scopeName: PriorityClass, operator: {operator}, values: [high]}}]}}"
        )
    };
    let of =
        |operator| (matches(&selector(operator), class), matches(&selector(operator), RUNNING));
    assert_eq!((of("In"), of("NotIn")), ((true, false), (false, true)));
}

#[test]
fn a_pod_is_charged_until_it_is_gone() {
    let two = pod("a", RUNNING) + &pod("b", RUNNING);
    let (mut cluster, added) = objects(&quota("hard: {pods: 1}"), &two);
    let [a, b] = &*added.pods else { panic!("two pods") };
    let admission = &mut cluster.admission;
    assert!(admission.admit(a).is_ok() && admission.admit(b).is_err());
    // A pod that exists is not charged again.
    assert!(admission.admit(a).is_ok() && admission.release(a) && !admission.release(a));
    assert!(admission.admit(b).is_ok());
}

const LIMITS: &str = "---
apiVersion: v1
kind: LimitRange
metadata: {name: l}
spec: {limits: [{type: Container, ITEM}]}
";

#[test]
fn limit_ranges_complete_new_pods_but_not_existing_ones() {
    let limits = LIMITS.replace("ITEM", "default: {cpu: 2}, defaultRequest: {memory: 1Gi}");
    let (cluster, added) = objects(
        &(limits + &pod("a", "containers: [{name: c}]")),
        &pod("b", "containers: [{name: c}]"),
    );
    let cpu = |objects: &Objects| objects.pods[0].template.resources.incoming.cpu.0;
    // The default request of a resource is its default limit.
    assert_eq!((cpu(&cluster), cpu(&added)), (0, 2000));
    assert_eq!(added.pods[0].template.resources.incoming.memory.0, 1 << 30);
}

#[test]
fn limit_ranges_refuse_pods_outside_their_bounds() {
    let refused = |item: &str, resources: &str| {
        let more = format!("containers: [{{name: c, resources: {{{resources}}}}}]");
        refusals(&LIMITS.replace("ITEM", item), &pod("a", &more)).remove(0)
    };
    for (item, resources, why) in [
        (
            "max: {cpu: 1}",
            "limits: {cpu: 2}",
            "maximum cpu usage per Container is 1, but limit is 2",
        ),
        (
            "min: {cpu: 1}",
            "requests: {cpu: 500m}",
            "minimum cpu usage per Container is 1, but request is 500m",
        ),
        (
            "maxLimitRequestRatio: {cpu: 2}",
            "requests: {cpu: 1}, limits: {cpu: 3}",
            "cpu max limit to request ratio per Container is 2, but provided ratio is 3.000000",
        ),
    ] {
        assert_eq!(refused(item, resources), format!("forbidden: {why}"));
    }
    let refused = refused("max: {cpu: 1, memory: 1Gi}", "limits: {cpu: 2, memory: 2Gi}");
    let why = "forbidden: [maximum cpu usage per Container is 1, but limit is 2, \
               maximum memory usage per Container is 1Gi, but limit is 2Gi]";
    assert_eq!(refused, why);
}
