//! A shadow beside a running scheduler, and beside bindings that no scheduler would have chosen.
//!
//! `PORTOLAN_SCHEDULES` sets the number of random workloads, and `PORTOLAN_SEED` runs one of them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::support::{
    self, ANY, PATIENCE, Process, client, create_class, node, pod, seeds, server, until,
};
use fastrand::Rng;
use portolan_apiserver::ApiServer;
use portolan_kube::api::{Limits, Resource};
use portolan_kube::process::Served;
use portolan_kube::shadow::{Judgement, NodeTotal, Shadow, ShadowConfig, ShadowError, Verdict};
use serde_json::{Value, json};
use tokio::runtime::Runtime;
use tokio::time::timeout;

const SHADOW: &str = "shadow";

fn config() -> ShadowConfig {
    let mut config = ShadowConfig::default();
    // Longer than a test: a window ends when the shadow is stopped.
    config.window = ShadowConfig::LONGEST_WINDOW;
    config.mirror.resources = vec![
        Resource::PODS,
        Resource::NODES,
        Resource::NAMESPACES,
        Resource::SERVICES,
        Resource::POD_DISRUPTION_BUDGETS,
    ];
    config
}

/// Starts a shadow and waits until it observes.
async fn observe(server: &ApiServer, config: ShadowConfig) -> Shadow {
    let shadow = Shadow::start(client(server, SHADOW, Limits::default()), config).expect("started");
    timeout(PATIENCE, shadow.synced()).await.expect("in time").expect("synced");
    shadow
}

/// Stops the shadow once it has seen all pods, and returns its judgements by the pods' names.
async fn judgements(mut shadow: Shadow) -> BTreeMap<String, Judgement> {
    shadow.mirror().refresh().await.expect("the mirror follows");
    shadow.stop().await;
    let mut found = BTreeMap::new();
    while let Some(judgement) = shadow.next().await {
        let twice = found.insert(judgement.name.to_string(), judgement);
        assert!(twice.is_none(), "judged twice: {twice:?}");
    }
    found
}

/// A pod of this profile.
fn pod_of(scheduler: &str, name: &str, cpu: u64) -> Value {
    let mut pod = pod(name, cpu);
    pod["spec"]["schedulerName"] = json!(scheduler);
    pod
}

fn create_all<const N: usize>(server: &ApiServer, nodes: [(&str, u64); N]) {
    for (name, cpu) in nodes {
        server.create(&node(name, cpu)).expect("created");
    }
}

/// Creates a pod and binds it to this node.
fn create_on(server: &ApiServer, pod: &Value, node: &str) {
    let created = server.create(pod).expect("created");
    let name = created["metadata"]["name"].as_str().expect("a name");
    server.bind("default", name, node).expect("bound");
}

fn configuration(further: &str) -> Option<Arc<str>> {
    let head = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration";
    Some(format!("{head}\n{further}\n").into())
}

fn zoned(name: &str, cpu: u64, zone: u32) -> Value {
    let mut node = node(name, cpu);
    node["metadata"]["labels"] = json!({"kubernetes.io/hostname": name,
        "topology.kubernetes.io/zone": format!("zone-{zone}")});
    node
}

#[tokio::test]
async fn a_pod_on_a_worse_node_is_a_disagreement_with_the_scores_of_both_nodes() {
    let server = server();
    create_all(&server, [("large", 16_000), ("small", 1_000)]);
    let shadow = observe(&server, config()).await;
    for (name, node) in [("good", "large"), ("bad", "small")] {
        create_on(&server, &pod(name, 800), node);
    }
    let found = judgements(shadow).await;
    assert_eq!(found["good"].verdict, Verdict::Agreed);
    let bad = &found["bad"];
    assert_eq!(
        (bad.verdict, &*bad.node, &*bad.scheduler),
        (Verdict::Disagreed, "small", "default-scheduler")
    );
    assert_eq!((bad.nodes, bad.feasible, bad.best_nodes), (2, 2, 1));
    assert_eq!((found["good"].rank, bad.rank), (Some(1), Some(2)));
    let (theirs, best) = (bad.theirs.as_ref().expect("scored"), bad.best.as_ref().expect("scored"));
    assert_eq!((&*theirs.node, &*best.node), ("small", "large"));
    assert!(theirs.total < best.total, "{} and {}", theirs.total, best.total);
    let fit = |of: &NodeTotal| {
        let fit = of.scores.iter().find(|score| score.plugin == "NodeResourcesFit");
        fit.expect("in the default profile").weighted
    };
    // LeastAllocated: the mean of (1000 - 800) / 1000 and the share of memory, which both nodes have the same of.
    assert!(fit(theirs) < fit(best), "{theirs:?}, {best:?}");
    assert!(bad.state.is_none() && bad.reason.is_none());
    assert!(bad.waited.is_some());
}

#[tokio::test]
async fn a_pod_on_a_node_that_a_filter_rejects_is_infeasible_with_the_reason() {
    let server = server();
    server.create(&node("free", 4_000)).expect("created");
    let mut tainted = node("tainted", 4_000);
    tainted["spec"]["taints"] = json!([{"key": "other", "effect": "NoSchedule"}]);
    server.create(&tainted).expect("created");
    server.create(&node("full", 100)).expect("created");
    let shadow = observe(&server, config()).await;
    for (name, node) in [("a", "tainted"), ("b", "full"), ("c", "missing")] {
        create_on(&server, &pod(name, 500), node);
    }
    let found = judgements(shadow).await;
    let reason = |name: &str| {
        let one: &Judgement = &found[name];
        assert_eq!((one.verdict, one.rank), (Verdict::Infeasible, None), "{one:?}");
        assert_eq!(one.best.as_ref().map(|best| &*best.node), Some("free"));
        one.reason.clone().expect("a reason")
    };
    assert_eq!(reason("a"), "TaintToleration: node(s) had untolerated taint(s)");
    assert_eq!(reason("b"), "NodeResourcesFit: Insufficient cpu");
    assert_eq!(reason("c"), "the node is unknown");
}

#[tokio::test]
async fn bindings_in_another_order_than_the_decisions_are_explained() {
    let server = server();
    create_all(&server, [("n1", 8_000), ("n2", 7_000)]);
    let shadow = observe(&server, config()).await;
    for name in ["first", "second"] {
        server.create(&pod(name, 1_000)).expect("created");
    }
    // With `first` on n1, n2 is the best node for `second`, whose binding is seen first.
    server.bind("default", "second", "n2").expect("bound");
    server.bind("default", "first", "n1").expect("bound");
    let found = judgements(shadow).await;
    let second = &found["second"];
    assert_eq!(second.verdict, Verdict::Concurrent, "{second:?}");
    let state = second.state.as_ref().expect("a state");
    assert_eq!(state.put_in, ["default/first".into()]);
    assert_eq!(state.to_string(), "with default/first");
    assert_eq!(found["first"].verdict, Verdict::Agreed);
}

#[tokio::test]
async fn a_decision_before_a_change_that_is_not_a_binding_is_explained() {
    let server = server();
    create_all(&server, [("n1", 8_000), ("n2", 7_000)]);
    create_on(&server, &pod("old", 4_000), "n1");
    let shadow = observe(&server, config()).await;
    server.create(&pod("new", 1_000)).expect("created");
    server.delete("Pod", "default", "old", &json!({"gracePeriodSeconds": 0})).expect("deleted");
    server.bind("default", "new", "n2").expect("bound");
    let found = judgements(shadow).await;
    let new = &found["new"];
    assert_eq!(new.verdict, Verdict::Concurrent, "{new:?}");
    assert!(new.state.as_ref().expect("a state").earlier.is_some());
}

#[tokio::test]
async fn pods_that_failed_attempts_nominated_to_their_nodes_are_explained_if_they_fit() {
    let server = server();
    create_all(&server, [("large", 16_000), ("small", 1_000)]);
    let shadow = observe(&server, config()).await;
    let failed = json!([{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]);
    for (name, cpu, conditions) in
        [("fits", 500, &failed), ("exceeds", 2_000, &failed), ("chosen", 500, &json!([]))]
    {
        server.create(&pod(name, cpu)).expect("created");
        let nominated = json!({"status": {"nominatedNodeName": "small", "conditions": conditions}});
        server.patch_status("Pod", "default", name, &nominated).expect("patched");
        // The mirror has read the nomination before the binding exists.
        shadow.mirror().refresh().await.expect("the mirror follows");
        server.bind("default", name, "small").expect("bound");
        shadow.mirror().refresh().await.expect("the mirror follows");
        server.delete("Pod", "default", name, &json!({"gracePeriodSeconds": 0})).expect("deleted");
        shadow.mirror().refresh().await.expect("the mirror follows");
    }
    let found = judgements(shadow).await;
    assert_eq!(found["fits"].verdict, Verdict::Nominated);
    assert_eq!(found["exceeds"].verdict, Verdict::Infeasible);
    assert_eq!(found["chosen"].verdict, Verdict::Disagreed);
}

#[tokio::test]
async fn only_pods_of_the_profiles_that_were_seen_pending_are_judged() {
    let server = server();
    server.create(&node("n1", 8_000)).expect("created");
    create_on(&server, &pod("before", 100), "n1");
    let mut settings = config();
    settings.configuration =
        configuration("profiles: [{schedulerName: one}, {schedulerName: two}]");
    settings.profiles = vec!["two".into()];
    let shadow = observe(&server, settings.clone()).await;
    for (name, scheduler) in [("a", "one"), ("b", "two")] {
        create_on(&server, &pod_of(scheduler, name, 100), "n1");
    }
    let mut placed = pod_of("two", "static", 100);
    placed["spec"]["nodeName"] = json!("n1");
    server.create(&placed).expect("created");
    shadow.mirror().refresh().await.expect("the mirror follows");
    let figures = shadow.figures();
    assert_eq!(figures.appeared, 1);
    let found = judgements(shadow).await;
    assert_eq!(found.keys().collect::<Vec<_>>(), ["b"]);

    settings.profiles = vec!["three".into()];
    let refused = Shadow::start(client(&server, SHADOW, Limits::default()), settings);
    let error = refused.expect_err("no such profile");
    assert!(matches!(error, ShadowError::NoProfile { .. }));
    let text = "the configuration does not have the profile three: choose from one, two";
    assert_eq!(error.to_string(), text);
}

#[tokio::test]
async fn settings_that_a_shadow_cannot_follow_are_refused() {
    let server = server();
    let refused = |settings: ShadowConfig| {
        let started = Shadow::start(client(&server, SHADOW, Limits::default()), settings);
        started.expect_err("refused").to_string()
    };
    let mut settings = config();
    settings.window += Duration::from_millis(1);
    assert_eq!(refused(settings), "the window of 60.001 s is too long: choose at most 60 s");
    let mut settings = config();
    settings.configuration =
        configuration("extenders: [{urlPrefix: 'http://h/', filterVerb: filter}]");
    let text = refused(settings);
    let expected = "a shadow cannot ask extenders, whose answers may have changed since: ";
    assert!(text.starts_with(expected), "{text}");
}

#[tokio::test]
async fn samples_have_the_size_of_the_profile() {
    let server = server();
    for n in 0..115 {
        let cpu = if n < 5 { 32_000 } else { 4_000 };
        server.create(&node(&format!("node-{n:03}"), cpu)).expect("created");
    }
    let mut settings = config();
    settings.configuration = configuration(
        "percentageOfNodesToScore: 1\nprofiles: [{schedulerName: part}, \
         {schedulerName: whole, percentageOfNodesToScore: 100}]",
    );
    let shadow = observe(&server, settings).await;
    for (name, scheduler, node) in [("a", "part", "node-050"), ("b", "whole", "node-060")] {
        create_on(&server, &pod_of(scheduler, name, 500), node);
    }
    let found = judgements(shadow).await;
    let of = |name: &str| (found[name].verdict, found[name].rank);
    assert_eq!(of("a"), (Verdict::Sampled, Some(6)));
    assert_eq!(of("b"), (Verdict::Disagreed, Some(6)));
}

#[tokio::test]
async fn pods_with_resource_claims_are_undecided() {
    let server = server();
    server.create(&node("n1", 8_000)).expect("created");
    let shadow = observe(&server, config()).await;
    let mut claiming = pod("a", 100);
    claiming["spec"]["resourceClaims"] = json!([{"name": "gpu", "resourceClaimName": "gpu"}]);
    create_on(&server, &claiming, "n1");
    let found = judgements(shadow).await;
    assert_eq!(found["a"].verdict, Verdict::Undecided);
    assert_eq!(found["a"].reason.as_deref(), Some("pods with resource claims are not judged"));
}

#[tokio::test]
async fn figures_are_served_as_metrics() {
    let server = server();
    server.create(&node("n1", 8_000)).expect("created");
    let shadow = observe(&server, config()).await;
    let served = Served::shadow(ANY, &shadow).await.expect("a free port");
    create_on(&server, &pod("a", 100), "n1");
    until("judged", || shadow.figures().of(Verdict::Agreed) == 1).await;
    let url = format!("http://{}", served.address());
    let api = portolan_kube::api::Connection::unauthenticated(url).open(Limits::default()).await;
    let api = api.expect("a client");
    let text = |body: bytes::Bytes| String::from_utf8(body.to_vec()).expect("text");
    let metrics = text(api.get("/metrics").await.expect("served"));
    for expected in [
        "portolan_shadow_pods_total{verdict=\"agreed\"} 1\n",
        "portolan_shadow_pods_total{verdict=\"disagreed\"} 0\n",
        "portolan_shadow_decision_duration_seconds_count 1\n",
        "portolan_shadow_pending_duration_seconds_count 1\n",
        "scheduler_cache_size{type=\"nodes\"} 1\n",
    ] {
        assert!(metrics.contains(expected), "{expected} is not in\n{metrics}");
    }
    assert_eq!(text(api.get("/readyz").await.expect("served")), "ok");
    assert_eq!(text(api.get("/livez").await.expect("served")), "ok");
}

/// A workload of random pods, created in steps while a scheduler runs.
struct Workload {
    random: Rng,
    pods: u32,
}

impl Workload {
    fn pod(&mut self) -> Value {
        self.pods += 1;
        let random = &mut self.random;
        let mut pod = pod(&format!("pod-{}", self.pods), random.u64(1..=8) * 100);
        let app = format!("app-{}", random.u32(0..4));
        pod["metadata"]["labels"] = json!({"app": app});
        let of_app = json!({"matchLabels": {"app": app}});
        match random.u32(0..8) {
            0 => {
                pod["spec"]["topologySpreadConstraints"] = json!([{"maxSkew": 1,
                    "topologyKey": "topology.kubernetes.io/zone",
                    "whenUnsatisfiable": "ScheduleAnyway", "labelSelector": of_app}]);
            }
            1 => {
                pod["spec"]["affinity"] = json!({"podAntiAffinity": {
                    "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 10,
                        "podAffinityTerm": {"topologyKey": "kubernetes.io/hostname",
                            "labelSelector": of_app}}]}});
            }
            2 => {
                pod["spec"]["affinity"] = json!({"nodeAffinity": {
                    "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 5,
                        "preference": {"matchExpressions": [{
                            "key": "topology.kubernetes.io/zone", "operator": "In",
                            "values": ["zone-1"]}]}}]}});
            }
            3 => pod["spec"]["priorityClassName"] = json!("high"),
            _ => {}
        }
        pod
    }
}

/// How the pods of a workload arrive.
#[derive(Clone, Copy, PartialEq)]
enum Arrival {
    /// Up to 20 at once, while the scheduler still works.
    InBursts,
    /// Each after the one before was bound and judged, so no decision is concurrent with another.
    OneByOne,
}

/// CPUs of nodes of random sizes.
fn any_size(random: &mut Rng, _: u32) -> u64 {
    random.u64(2..=8)
}

/// Runs a scheduler and a shadow on a random workload and returns the judgements.
fn beside_a_scheduler(
    seed: u64,
    nodes: u32,
    cpus: impl Fn(&mut Rng, u32) -> u64,
    pods: u32,
    arrival: Arrival,
) -> BTreeMap<String, Judgement> {
    let runtime = Runtime::new().expect("a runtime");
    let server = server();
    let mut random = Rng::with_seed(seed);
    create_class(&server, "high", 1_000);
    for n in 0..nodes {
        let mut node = zoned(&format!("node-{n:03}"), cpus(&mut random, n) * 1_000, n % 3);
        if random.u32(0..8) == 0 {
            node["spec"]["taints"] = json!([{"key": "slow", "effect": "PreferNoSchedule"}]);
        }
        server.create(&node).expect("created");
    }
    let mut process =
        Process::with(&runtime, &server, "scheduler", seed, support::limits(PATIENCE));
    process.lead(&runtime);
    let shadow = runtime.block_on(observe(&server, config()));
    let mut workload = Workload { random, pods: 0 };
    while arrival == Arrival::OneByOne && workload.pods < pods {
        let pod = workload.pod();
        server.create(&pod).expect("created");
        runtime.block_on(until("judged", || shadow.figures().judged() == u64::from(workload.pods)));
        runtime.block_on(process.live.mirror().refresh()).expect("up to date");
    }
    while workload.pods < pods {
        for _ in 0..workload.random.u32(1..=20) {
            let pod = workload.pod();
            server.create(&pod).expect("created");
        }
        if workload.random.u32(0..3) == 0 {
            let name = format!("pod-{}", workload.random.u32(1..=workload.pods));
            let found = server.get("Pod", "default", &name).unwrap_or_default();
            // A pod that is deleted between its decision and its binding counts for the scheduler, and the shadow
            // cannot know on which node.
            if found["spec"]["nodeName"].is_string() {
                let now = json!({"gracePeriodSeconds": 0});
                server.delete("Pod", "default", &name, &now).expect("deleted");
            }
        }
        // The scheduler and the shadow work meanwhile.
        std::thread::sleep(Duration::from_millis(workload.random.u64(0..20)));
    }
    runtime.block_on(until("all bound", || {
        server.objects("Pod").iter().all(|pod| pod["spec"]["nodeName"].is_string())
    }));
    // Finishes the bindings in flight.
    runtime.block_on(process.live.stop(PATIENCE));
    let found = runtime.block_on(judgements(shadow));
    let writers: std::collections::BTreeSet<String> =
        server.writes().into_iter().map(|write| write.user_agent).collect();
    let known = ["direct".to_owned(), "scheduler".to_owned()].into();
    assert_eq!(writers, known, "nobody else has written");
    found
}

fn count(found: &BTreeMap<String, Judgement>, verdict: Verdict) -> usize {
    found.values().filter(|one| one.verdict == verdict).count()
}

#[track_caller]
fn assert_explained(seed: u64, found: &BTreeMap<String, Judgement>) {
    let is_open =
        |one: &&Judgement| one.verdict.is_unexplained() || one.verdict == Verdict::Undecided;
    let shown = |one: &Judgement| {
        let total = |of: &Option<NodeTotal>| of.as_ref().map(|of| (of.node.clone(), of.total));
        let (theirs, best) = (total(&one.theirs), total(&one.best));
        format!("{} {}: {theirs:?}, best {best:?}, {:?}", one.name, one.verdict, one.reason)
    };
    let open: Vec<String> = found.values().filter(is_open).map(shown).collect();
    assert!(open.is_empty(), "seed {seed}: {} of {}: {open:#?}", open.len(), found.len());
}

#[test]
fn all_decisions_of_a_scheduler_with_the_same_rules_agree_or_are_explained() {
    for seed in seeds(6) {
        let nodes = 20 + 15 * (seed % 6) as u32;
        let found = beside_a_scheduler(seed, nodes, any_size, 150, Arrival::InBursts);
        assert_explained(seed, &found);
        assert!(found.len() > 100, "seed {seed}: {} judged", found.len());
        // A busy machine delays bindings, so that more of them are concurrent.
        let agreed = count(&found, Verdict::Agreed) + count(&found, Verdict::Tied);
        assert!(agreed > found.len() / 10, "seed {seed}: {agreed} of {} agree", found.len());
        assert_eq!(count(&found, Verdict::Sampled), 0, "seed {seed}: all nodes are scored");
    }
}

#[test]
fn decisions_one_by_one_agree() {
    let found = beside_a_scheduler(3, 30, any_size, 60, Arrival::OneByOne);
    let agreed = count(&found, Verdict::Agreed) + count(&found, Verdict::Tied);
    assert_eq!((agreed, found.len()), (60, 60), "{found:#?}");
}

#[test]
fn decisions_on_samples_of_the_nodes_agree_or_are_explained() {
    // Two samples in a row have no node in common, so the large node is in half of them at most.
    let one_is_large = |_: &mut Rng, n| if n == 0 { 64 } else { 4 };
    let found = beside_a_scheduler(7, 330, one_is_large, 60, Arrival::OneByOne);
    assert_explained(7, &found);
    let sampled = count(&found, Verdict::Sampled);
    assert!(sampled > 5, "{sampled} of {} decisions depended on the sample", found.len());
}
