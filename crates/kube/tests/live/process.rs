//! Edge cases of a process: a permission that expires, a stop, a runtime that ends too early, a delayed start.

use std::time::{Duration, Instant};

use crate::support::{
    self, Process, client, create_pods, limits, node, pod, runtime, server, until,
};
use portolan_apiserver::{ApiServer, Effect, Fault};
use portolan_kube::api::{Api, ApiError, Limits};
use portolan_kube::process::{LiveConfig, LiveScheduler};
use portolan_kube::write::Fence;
use serde_json::json;
use tokio::io::AsyncReadExt;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::time::timeout;

/// A listener whose queue is full: the system drops further connections, whose clients try again after a second.
async fn full() -> (TcpListener, Vec<TcpStream>) {
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.bind(([127, 0, 0, 1], 0).into()).expect("a port");
    let listener = socket.listen(1).expect("listening");
    let address = listener.local_addr().expect("an address");
    let mut waiting = Vec::new();
    while let Ok(connected) = timeout(Duration::from_millis(200), TcpStream::connect(address)).await
    {
        waiting.push(connected.expect("connected"));
    }
    (listener, waiting)
}

#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread")]
async fn a_write_whose_connection_takes_longer_than_the_lease_is_never_sent() {
    let (listener, waiting) = full().await;
    let address = listener.local_addr().expect("an address");
    let config = kube::Config::new(format!("http://{address}").parse().expect("a URL"));
    let fence = Fence::closed();
    let api = Api::new(config, Limits::default()).expect("a client").with_permission(fence.clone());
    let before = api.create("/api/v1/nodes", &json!({})).await;
    assert!(matches!(before, Err(ApiError::NotPermitted)), "not open yet: {before:?}");
    let lease = Duration::from_millis(300);
    fence.open_until(Instant::now() + lease);
    let answer = timeout(support::PATIENCE, api.create("/api/v1/nodes", &json!({}))).await;
    let answer = answer.expect("the lease bounds the write");
    assert!(matches!(answer, Err(ApiError::NoAnswer(_))), "{answer:?}");
    assert!(!fence.may_write());
    // From now on connections succeed, and none carries the write.
    drop(waiting);
    let end = Instant::now() + Duration::from_secs(3);
    while let Ok(accepted) =
        timeout(end.saturating_duration_since(Instant::now()), listener.accept()).await
    {
        let (mut stream, _) = accepted.expect("accepted");
        let left = end.saturating_duration_since(Instant::now());
        let mut sent = Vec::new();
        // A connection on which nothing arrives before the deadline carries no write, either.
        let _ = timeout(left, stream.read_to_end(&mut sent)).await;
        assert_eq!(String::from_utf8_lossy(&sent), "");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_that_waits_for_its_answer_ends_with_the_lease() {
    let server = server();
    server.set_faults(0, vec![Fault::new(Effect::HangBefore).verb("create").resource("nodes")]);
    let fence = Fence::opened();
    let patient = limits(Duration::from_secs(3_600));
    let api = client(&server, "a", patient).with_permission(fence.clone());
    let (body, closing) = (node("n1", 1), fence.clone());
    let write = tokio::spawn(async move { api.create("/api/v1/nodes", &body).await });
    until("sent", || server.faults_fired() == [1]).await;
    closing.close();
    let answer = timeout(support::PATIENCE, write).await.expect("in time").expect("no panic");
    assert!(matches!(answer, Err(ApiError::NoAnswer(_))), "{answer:?}");
}

/// A cluster with this many pods that fit, and one that does not.
fn cluster(pods: u32) -> ApiServer {
    let server = server();
    server.create(&node("n1", 64_000)).expect("created");
    create_pods(&server, 0..pods, 100);
    server.create(&pod("large", 65_000)).expect("created");
    server
}

#[test]
fn a_stop_writes_the_pending_events_and_conditions() {
    let (server, runtime) = (cluster(20), runtime());
    let slow =
        |resource: &str| Fault::new(Effect::Delay(Duration::from_millis(100))).resource(resource);
    server.set_faults(0, vec![slow("events"), slow("pods/status")]);
    let mut process = Process::start(&runtime, &server, "a", 1);
    process.lead(&runtime);
    let live = &process.live;
    runtime.block_on(until("bound", || live.figures().bound == 20 && live.figures().failed > 0));
    runtime.block_on(process.live.stop(support::PATIENCE));
    let reasons = |reason: &str| {
        server.objects("Event").iter().filter(|event| event["reason"] == reason).count()
    };
    assert_eq!((reasons("Scheduled"), reasons("FailedScheduling")), (20, 1));
    let large = server.get("Pod", "default", "large").expect("a pod");
    assert_eq!(large["status"]["conditions"][0]["reason"], "Unschedulable");
}

#[test]
fn a_scheduler_outlives_its_runtime_without_a_panic() {
    let (server, first) = (cluster(3), runtime());
    server.set_faults(0, vec![Fault::new(Effect::HangBefore).resource("pods/binding")]);
    let mut process = Process::with(&first, &server, "a", 1, Limits::default());
    process.lead(&first);
    first.block_on(until("sent", || server.faults_fired() == [3]));
    drop(first);
    let second = runtime();
    let live = &process.live;
    second.block_on(until("abandoned", || live.figures().not_bound == 3));
    assert_eq!(live.figures().bound, 0);
    let stop = async { timeout(support::PATIENCE, process.live.stop(Duration::ZERO)).await };
    second.block_on(stop).expect("in time");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_delayed_mirror_reads_nothing_before_it_is_resumed() {
    let server = cluster(1);
    let mut config = LiveConfig::default();
    config.mirror.is_delayed = true;
    let api = client(&server, "a", Limits::default());
    let live = LiveScheduler::start(api, Fence::closed(), config).expect("started");
    let synced = timeout(Duration::from_millis(300), live.mirror().synced()).await;
    assert!(synced.is_err() && live.mirror().pods().is_empty());
    live.mirror().resume();
    let synced = timeout(support::PATIENCE, live.mirror().synced()).await;
    synced.expect("in time").expect("synced");
    assert_eq!(live.mirror().pods().len(), 2);
    live.stop(Duration::ZERO).await;
}
