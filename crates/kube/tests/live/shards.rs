//! Several replicas that schedule at once, each for its shards.
//!
//! The checks of bindings replay the server's record of writes: a binding must come from the replica that held the Lease
//! of the node's shard at that moment. `PORTOLAN_SCHEDULES` sets the number of random schedules, and
//! `PORTOLAN_SEED` runs one of them.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::time::Duration;

use crate::support::{
    TIMEOUT, applied, capacity, client, condition, create_class, create_nodes, create_pods,
    election, find, limits, live_config, node, pod, request, seeds, server, until,
};
use portolan::plugin::ShardSet;
use portolan_apiserver::{ApiServer, Effect, Fault, PatchKind, Write};
use portolan_kube::process::{LiveFigures, LiveScheduler, ShardHolder};
use portolan_kube::write::Fence;
use serde_json::{Value, json};
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;

/// Long enough that a busy machine renews in time.
const LEASE: Duration = Duration::from_secs(4);
const RENEW: Duration = Duration::from_secs(3);

fn shard_set(count: u32) -> ShardSet {
    NonZeroU32::new(count).and_then(ShardSet::new).expect("few shards")
}

/// A replica, as a task that owns its scheduler.
struct Replica {
    shards: ShardSet,
    fence: Fence,
    figures: watch::Receiver<LiveFigures>,
    stop: oneshot::Sender<()>,
    /// Returns whether a Lease was lost.
    task: JoinHandle<bool>,
}

impl Replica {
    /// Starts a replica whose identity and user agent is `name`.
    fn start(server: &ApiServer, name: &'static str, count: u32) -> Replica {
        let (shards, fence) = (shard_set(count), Fence::closed());
        let mut live = live_config(1, "");
        live.shards = Some(shards.clone());
        let api = client(server, name, limits(TIMEOUT * 10));
        let scheduler = LiveScheduler::start(api.clone(), fence.clone(), live).expect("started");
        let config = election(name, LEASE, RENEW);
        let holder = ShardHolder::new(&api, &config, &scheduler).expect("valid");
        let (stop, stopped) = oneshot::channel();
        let (figures, read) = watch::channel(LiveFigures::default());
        let task = tokio::spawn(run(scheduler, holder, stopped, figures));
        Replica { shards, fence, figures: read, stop, task }
    }

    fn held(&self) -> usize {
        self.shards.held().count()
    }

    /// Ends the replica as a crash does: it writes nothing more and releases nothing.
    fn kill(self) {
        self.fence.close();
        self.task.abort();
    }

    async fn stop(self) {
        self.stop.send(()).expect("it runs");
        assert!(!self.task.await.expect("no panic"), "a lease was lost");
    }
}

async fn run(
    mut scheduler: LiveScheduler,
    mut holder: ShardHolder,
    mut stopped: oneshot::Receiver<()>,
    figures: watch::Sender<LiveFigures>,
) -> bool {
    scheduler.mirror().synced().await.expect("synced");
    scheduler.begin().expect("begun");
    let report = async {
        loop {
            figures.send_replace(scheduler.figures());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::select! {
        () = holder.keep(&scheduler) => return true,
        () = report => {}
        _ = &mut stopped => {}
    }
    tokio::select! {
        is_in_time = scheduler.stop(Duration::from_secs(20)) => assert!(is_in_time),
        () = holder.renew() => return true,
    }
    holder.release().await;
    false
}

async fn balanced(replicas: &[&Replica]) {
    let count = replicas[0].shards.count() as usize;
    until("every replica has its share", || {
        let held: Vec<usize> = replicas.iter().map(|replica| replica.held()).collect();
        let (least, most) = (held.iter().min(), held.iter().max());
        held.iter().sum::<usize>() == count && most.zip(least).is_some_and(|(a, b)| a - b <= 1)
    })
    .await;
}

fn node_of(pod: &Value) -> Option<&str> {
    pod["spec"]["nodeName"].as_str()
}

/// Starts two replicas, and waits until each has its share.
async fn pair(server: &ApiServer, shards: u32) -> [Replica; 2] {
    let replicas = ["a", "b"].map(|name| Replica::start(server, name, shards));
    balanced(&replicas.each_ref()).await;
    replicas
}

async fn stop(replicas: impl IntoIterator<Item = Replica>) {
    for replica in replicas {
        replica.stop().await;
    }
}

async fn all_bound(server: &ApiServer) {
    until("all pods are bound", || server.objects("Pod").iter().all(|pod| node_of(pod).is_some()))
        .await;
}

/// Waits until all pods are bound, and checks their bindings.
async fn settled(server: &ApiServer, shards: u32) {
    all_bound(server).await;
    check(server, &shard_set(shards));
}

/// Checks who bound what, and that no node has more than its capacity.
fn check(server: &ApiServer, shards: &ShardSet) {
    let (mut holders, mut bound) = (BTreeMap::new(), BTreeMap::new());
    for write in server.writes().into_iter().filter(|write| write.applied) {
        if write.resource == "leases"
            && let Some((_, shard)) =
                write.body["metadata"]["name"].as_str().and_then(|name| name.rsplit_once("-shard-"))
        {
            let holder = write.body["spec"]["holderIdentity"].as_str().unwrap_or_default();
            holders.insert(shard.parse::<u32>().expect("a number"), holder.to_owned());
        }
        if write.resource == "pods/binding" {
            let node = write.body["target"]["name"].as_str().expect("a node");
            let holder = holders.get(&shards.of_node(node)).map(String::as_str);
            assert_eq!(holder, Some(&*write.user_agent), "{} bound to {node}", write.name);
            let before = bound.insert(write.name.clone(), node.to_owned());
            assert_eq!(before, None, "{} is bound twice", write.name);
        }
    }
    let mut used: BTreeMap<String, u64> = BTreeMap::new();
    for pod in server.objects("Pod") {
        *used.entry(node_of(&pod).expect("bound").to_owned()).or_default() += request(&pod);
    }
    for node in server.objects("Node") {
        let name = node["metadata"]["name"].as_str().expect("a name");
        let capacity = capacity(&node);
        let used = used.get(name).copied().unwrap_or(0);
        assert!(used <= capacity, "{name}: {used} of {capacity}");
    }
}

fn failures(server: &ApiServer) -> usize {
    let is_failure = |event: &Value| event["reason"] == "FailedScheduling";
    server.objects("Event").iter().filter(|event| is_failure(event)).count()
}

#[tokio::test(flavor = "multi_thread")]
async fn two_replicas_bind_all_pods_each_to_its_own_nodes() {
    let server = server();
    create_nodes(&server, 200, 4_000);
    let replicas = pair(&server, 2).await;
    create_pods(&server, 0..1_000, 500);
    settled(&server, 2).await;
    for name in ["a", "b"] {
        let bound = applied(&server, name).iter().filter(|w| w.resource == "pods/binding").count();
        assert!(bound > 300, "{name} bound {bound}");
    }
    assert_eq!(failures(&server), 0);
    stop(replicas).await;
    for lease in server.objects("Lease") {
        assert_eq!(lease["spec"]["holderIdentity"], "", "released");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_of_a_full_shard_are_handed_over_without_a_report() {
    let server = server();
    let shards = shard_set(2);
    // Nodes of shard 0 are too small for any of the pods.
    for n in 0..40 {
        let name = format!("node-{n}");
        let cpu = if shards.of_node(&name) == 0 { 100 } else { 4_000 };
        server.create(&node(&name, cpu)).expect("created");
    }
    let replicas = pair(&server, 2).await;
    create_pods(&server, 0..100, 500);
    all_bound(&server).await;
    check(&server, &shards);
    assert_eq!(failures(&server), 0);
    let handed = |of: &Replica| of.figures.borrow().handed_over;
    until("the figures", || handed(&replicas[0]) + handed(&replicas[1]) > 20).await;
    for pod in server.objects("Pod") {
        assert_eq!(shards.of_node(node_of(&pod).expect("bound")), 1);
    }
    stop(replicas).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn shards_of_a_replica_that_died_are_taken_over_with_their_pods() {
    let server = server();
    create_nodes(&server, 40, 4_000);
    let [first, second] = pair(&server, 4).await;
    first.kill();
    create_pods(&server, 0..100, 500);
    until("the second has all shards", || second.held() == 4).await;
    settled(&server, 4).await;
    second.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_third_replica_gets_its_share_and_no_pod_is_lost_or_bound_twice() {
    let server = server();
    create_nodes(&server, 60, 8_000);
    // Bindings are in flight whenever a shard is released.
    let slow = Fault::new(Effect::Delay(Duration::from_millis(60)));
    server.set_faults(0, vec![slow.verb("create").resource("pods/binding")]);
    let [first, second] = pair(&server, 6).await;
    let mut third = None;
    for n in 0..400 {
        if n == 100 {
            third = Some(Replica::start(&server, "c", 6));
        }
        server.create(&pod(&format!("pod-{n}"), 500)).expect("created");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let third = third.expect("started");
    balanced(&[&first, &second, &third]).await;
    assert_eq!((first.held(), second.held(), third.held()), (2, 2, 2));
    create_pods(&server, 400..500, 500);
    settled(&server, 6).await;
    // A replica that shuts down in order is replaced without waiting for its leases to expire.
    third.stop().await;
    balanced(&[&first, &second]).await;
    server.create(&pod("last", 500)).expect("created");
    settled(&server, 6).await;
    stop([first, second]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_fits_nowhere_is_reported_by_one_replica() {
    let server = server();
    create_nodes(&server, 10, 1_000);
    let replicas = pair(&server, 2).await;
    // The node does not exist, so the pod belongs to the shard of a node of that name.
    let mut large = server.create(&pod("large", 2_000)).expect("created");
    large["status"]["nominatedNodeName"] = json!("gone");
    server.update_status(&large).expect("nominated");
    until("the report", || failures(&server) > 0).await;
    until("the condition", || condition(&server, "large")["reason"] == "Unschedulable").await;
    server.create(&node("large", 4_000)).expect("created");
    settled(&server, 2).await;
    stop(replicas).await;
}

/// The reports of pods that were not scheduled, in their statuses.
fn reports(server: &ApiServer) -> usize {
    let is_report = |write: &Write| {
        let conditions = write.body["status"]["conditions"].as_array();
        write.resource == "pods/status"
            && conditions.is_some_and(|all| all.iter().any(|of| of["type"] == "PodScheduled"))
    };
    server.writes().iter().filter(|write| is_report(write)).count()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_another_replica_has_bound_is_not_reported() {
    let server = server();
    server.create(&node("node", 4_000)).expect("created");
    let mut replica = Replica::start(&server, "a", 2);
    balanced(&[&replica]).await;
    // Each binding comes after the one of another replica, which the watch does not show yet.
    let slow = Fault::new(Effect::Delay(Duration::from_millis(200)));
    server.set_faults(0, vec![slow.verb("create").resource("pods/binding")]);
    server.create(&pod("pod", 500)).expect("created");
    until("a binding", || server.faults_fired()[0] > 0).await;
    server.stall_cache("Pod").expect("known");
    server.bind("default", "pod", "elsewhere").expect("bound");
    replica.figures.wait_for(|figures| figures.not_bound > 0).await.expect("it runs");
    // A second attempt begins after the report of the first one, if there is one.
    replica.figures.wait_for(|figures| figures.not_bound > 1).await.expect("it runs");
    assert_eq!((failures(&server), reports(&server)), (0, 0));
    server.resume_cache("Pod").expect("known");
    replica.stop().await;
}

/// A name of shard 0 or 1 of 2.
fn name_in(prefix: &str, shard: u32) -> String {
    let (shards, mut names) = (shard_set(2), (0..).map(|n| format!("{prefix}-{n}")));
    names.find(|name| shards.of_node(name) == shard).expect("a name")
}

/// Creates a node of shard 0 that is too small, and one of shard 1, whose name is returned.
fn create_two_nodes(server: &ApiServer) -> String {
    let (small, large) = (name_in("node", 0), name_in("node", 1));
    server.create(&node(&small, 100)).expect("created");
    server.create(&node(&large, 1_000)).expect("created");
    large
}

/// A pod whose owner belongs to shard 0.
fn owned_pod(name: &str, cpu: u64) -> Value {
    let mut owned = pod(name, cpu);
    owned["metadata"]["ownerReferences"] = json!([{"apiVersion": "batch/v1", "kind": "Job",
        "name": "job", "uid": name_in("owner", 0), "controller": true}]);
    owned
}

/// Creates a preemptor of shard 0, in a cluster whose only possible victim is on a node of shard 1, which is returned.
fn create_preemptor(server: &ApiServer) -> String {
    let node = create_two_nodes(server);
    create_class(server, "high", 1_000);
    server.create(&pod("victim", 800)).expect("created");
    server.bind("default", "victim", &node).expect("bound");
    let mut preemptor = owned_pod("preemptor", 800);
    preemptor["spec"]["priorityClassName"] = json!("high");
    server.create(&preemptor).expect("created");
    node
}

#[tokio::test(flavor = "multi_thread")]
async fn a_preemptor_is_handed_over_after_the_deletion_of_its_victims() {
    let server = server();
    let replicas = pair(&server, 2).await;
    let slow = Fault::new(Effect::Delay(Duration::from_millis(300)));
    server.set_faults(0, vec![slow.verb("delete").resource("pods")]);
    let node = create_preemptor(&server);
    all_bound(&server).await;
    assert_eq!(node_of(&server.objects("Pod")[0]), Some(&*node));
    let writes = server.writes();
    let at =
        |is: &dyn Fn(&Write) -> bool| writes.iter().position(|write| write.applied && is(write));
    let deleted = at(&|write| write.verb == "delete" && write.name == "victim").expect("deleted");
    let nominated = at(&|write| {
        write.name == "preemptor" && !write.body["status"]["nominatedNodeName"].is_null()
    });
    assert!(deleted < nominated.expect("handed over"));
    stop(replicas).await;
}

/// Starts a replica that holds shard 0 of 2, beside an idle replica that holds shard 1.
async fn start_beside_idle_replica(server: &ApiServer) -> Replica {
    hold(server, 1, json!({}));
    let replica = Replica::start(server, "a", 2);
    until("it holds its shard", || replica.held() == 1).await;
    replica
}

#[tokio::test(flavor = "multi_thread")]
async fn a_preemptor_whose_victims_stay_is_reported_again() {
    let server = server();
    let replica = start_beside_idle_replica(&server).await;
    let fault = |verb| Fault::new(Effect::internal_error()).verb(verb);
    // The first report is lost, with its repetitions.
    let lost = fault("patch").resource("pods/status").name("preemptor").limit(4);
    server.set_faults(0, vec![fault("delete").resource("pods"), lost]);
    create_preemptor(&server);
    let is_reported = || condition(&server, "preemptor")["reason"] == "Unschedulable";
    until("the second report", is_reported).await;
    replica.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn only_hand_overs_that_were_written_are_counted() {
    let server = server();
    let mut replica = start_beside_idle_replica(&server).await;
    let lost = Fault::new(Effect::internal_error()).verb("patch").resource("pods/status");
    // Two hand-overs, with their repetitions.
    server.set_faults(0, vec![lost.limit(8)]);
    let node = create_two_nodes(&server);
    server.create(&owned_pod("pod", 500)).expect("created");
    let nominated = || find(&server, "pod")["status"]["nominatedNodeName"] == *node;
    until("the hand-over", nominated).await;
    let figures = replica.figures.wait_for(|figures| figures.handed_over > 0).await;
    assert_eq!(figures.expect("it runs").handed_over, 1);
    replica.stop().await;
}

fn lease(server: &ApiServer, shard: u32) -> Value {
    let name = format!("kube-scheduler-shard-{shard}");
    server.get("Lease", "kube-system", &name).expect("a Lease")
}

/// Creates a Lease that an idle replica holds for longer than a test.
fn hold(server: &ApiServer, shard: u32, annotations: Value) {
    let metadata = json!({"name": format!("kube-scheduler-shard-{shard}"),
        "namespace": "kube-system", "annotations": annotations});
    let spec = json!({"holderIdentity": "idle", "leaseDurationSeconds": 3_600});
    let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": metadata, "spec": spec});
    server.create(&lease).expect("created");
}

/// Changes the holder of a Lease, which fails if a renewal comes first.
fn set_holder(server: &ApiServer, shard: u32, holder: &str) -> bool {
    let mut lease = lease(server, shard);
    lease["spec"]["holderIdentity"] = json!(holder);
    server.update(&lease).is_ok()
}

/// Adds annotations to a Lease.
fn annotate(server: &ApiServer, shard: u32, annotations: Value) {
    let (name, body) = (
        format!("kube-scheduler-shard-{shard}"),
        json!({"metadata": {"annotations": annotations}}),
    );
    server.patch("Lease", "kube-system", &name, PatchKind::Merge, &body).expect("patched");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_that_loses_one_lease_stops_writing_for_all_shards() {
    let server = server();
    let replica = Replica::start(&server, "a", 2);
    balanced(&[&replica]).await;
    assert!(replica.fence.may_write());
    until("another holder", || set_holder(&server, 1, "thief")).await;
    until("the replica notices the loss", || replica.fence.is_lost()).await;
    assert!(replica.task.await.expect("no panic"), "the lease was lost");
    assert_eq!(lease(&server, 0)["spec"]["holderIdentity"], "a", "not released");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shard_that_a_dead_replica_requested_is_acquired_again() {
    let server = server();
    let replica = Replica::start(&server, "a", 2);
    balanced(&[&replica]).await;
    let wanted = json!({"portolan.dev/wanted-by": "ghost", "example.com/other": "stays"});
    annotate(&server, 0, wanted);
    until("the shard is released", || replica.held() == 1).await;
    until("the shard is acquired again", || replica.held() == 2).await;
    let annotations = lease(&server, 0)["metadata"]["annotations"].clone();
    assert_eq!(annotations, json!({"example.com/other": "stays", "portolan.dev/shards": "2"}));
    // A request is removed if its replica would then hold more shards than this one.
    annotate(&server, 1, json!({"portolan.dev/wanted-by": "a"}));
    let others = json!({"portolan.dev/shards": "2"});
    until("the request is removed", || lease(&server, 1)["metadata"]["annotations"] == others)
        .await;
    assert_eq!(replica.held(), 2);
    replica.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_with_another_number_of_shards_takes_none_until_the_others_have_ended() {
    let server = server();
    hold(&server, 0, json!({"portolan.dev/shards": "3"}));
    // Counts the reads.
    let read = Fault::new(Effect::Delay(Duration::ZERO)).verb("get");
    server.set_faults(0, vec![read.name("kube-scheduler-shard-1")]);
    let replica = Replica::start(&server, "a", 2);
    until("rounds", || server.faults_fired()[0] > 10).await;
    assert_eq!(applied(&server, "a").len(), 0, "it acquires nothing and requests nothing");
    assert!(set_holder(&server, 0, ""), "released");
    balanced(&[&replica]).await;
    for shard in 0..2 {
        assert_eq!(lease(&server, shard)["metadata"]["annotations"]["portolan.dev/shards"], "2");
    }
    replica.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn bindings_of_the_previous_holder_count_although_the_watch_is_late() {
    let server = server();
    server.create(&node("n", 1_000)).expect("created");
    hold(&server, 0, json!({}));
    server.create(&pod("second", 800)).expect("created");
    let mut replica = Replica::start(&server, "a", 1);
    replica.figures.changed().await.expect("it has begun");
    server.stall_cache("Pod").expect("known");
    server.create(&pod("first", 800)).expect("created");
    server.bind("default", "first", "n").expect("bound");
    assert!(set_holder(&server, 0, ""), "released");
    until("the replica has the lease", || lease(&server, 0)["spec"]["holderIdentity"] == "a").await;
    server.resume_cache("Pod").expect("known");
    until("the second pod is reported", || failures(&server) > 0).await;
    assert!(node_of(&server.get("Pod", "default", "second").expect("it exists")).is_none());
    replica.stop().await;
}

/// The names of the replicas of a random schedule.
const NAMES: [&str; 6] = ["a", "b", "c", "d", "e", "f"];

/// The number of random schedules that run at once. They wait most of the time.
const AT_ONCE: usize = 3;

/// Sets faults of requests that the replicas must survive.
fn set_faults(server: &ApiServer, seed: u64) {
    let effects = [
        Effect::internal_error(),
        Effect::too_many_requests(0),
        Effect::conflict(),
        Effect::internal_error_after(),
        Effect::Delay(Duration::from_millis(40)),
        Effect::ResetBefore,
        Effect::ResetAfter,
    ];
    let targets = [
        ("create", "pods/binding"),
        ("patch", "pods/status"),
        ("get", "leases"),
        ("create", "leases"),
        ("update", "leases"),
    ];
    let mut faults = Vec::new();
    for (verb, resource) in targets {
        for effect in &effects {
            let fault = Fault::new(effect.clone()).verb(verb).resource(resource);
            faults.push(fault.probability(0.02));
        }
    }
    server.set_faults(seed, faults);
}

/// Runs replicas that start, end and die while requests fail, until all pods are bound.
async fn random_schedule(seed: u64) {
    let (server, mut random) = (server(), fastrand::Rng::with_seed(seed));
    let shards = random.u32(2..=8);
    // About as much CPU as the pods request, so that shards become full.
    for n in 0..32 {
        server.create(&node(&format!("node-{n}"), random.u64(2..=6) * 1_000)).expect("created");
    }
    set_faults(&server, seed);
    let mut names = NAMES.into_iter();
    let mut replicas = vec![Replica::start(&server, names.next().expect("a name"), shards)];
    for n in 0..200 {
        if n % 25 == 0 {
            let index = random.usize(0..replicas.len());
            match random.u32(0..4) {
                0 if replicas.len() > 1 => replicas.swap_remove(index).kill(),
                1 if replicas.len() > 1 => replicas.swap_remove(index).stop().await,
                _ => {
                    replicas.extend(names.next().map(|name| Replica::start(&server, name, shards)));
                }
            }
        }
        let cpu = random.u64(1..=8) * 100;
        server.create(&pod(&format!("pod-{n}"), cpu)).expect("created");
        tokio::time::sleep(Duration::from_millis(random.u64(0..40))).await;
    }
    server.set_faults(0, Vec::new());
    // A replica whose requests failed for too long has lost a lease and ended, as its process would.
    replicas.retain(|replica| !replica.fence.is_lost());
    if replicas.is_empty() {
        replicas.push(Replica::start(&server, "last", shards));
    }
    all_bound(&server).await;
    balanced(&replicas.iter().collect::<Vec<_>>()).await;
    check(&server, &shard_set(shards));
    stop(replicas).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn replicas_that_start_and_stop_while_requests_fail_lose_no_pod() {
    let seeds: Vec<u64> = seeds(3).collect();
    for seeds in seeds.chunks(AT_ONCE) {
        let schedules = seeds.iter().map(|seed| tokio::spawn(random_schedule(*seed)));
        for (seed, schedule) in seeds.iter().zip(schedules.collect::<Vec<_>>()) {
            schedule.await.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        }
    }
}
