//! The HTTP responses of a scheduler.

use std::net::SocketAddr;
use std::time::Duration;

use portolan_apiserver::{ApiServer, Options};
use portolan_kube::api::{Connection, Limits};
use portolan_kube::process::{LiveConfig, LiveScheduler, Served};
use portolan_kube::write::Fence;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Returns the answer to a GET, with its head.
async fn get(address: SocketAddr, path: &str) -> String {
    let mut stream = TcpStream::connect(address).await.expect("the server listens");
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.expect("answered");
    answer
}

#[tokio::test(flavor = "multi_thread")]
async fn a_scheduler_serves_its_health_its_metrics_and_its_configuration() {
    let server = ApiServer::start(Options::default()).expect("a server");
    let connection = Connection::unauthenticated(server.url());
    let api = connection.open(Limits::default()).await.expect("a client");
    let fence = Fence::opened();
    let mut config = LiveConfig::default();
    let text = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n";
    config.configuration = Some(text.into());
    // No answer, so that the first lists are not applied.
    server.pause();
    let mut scheduler = LiveScheduler::start(api, fence.clone(), config).expect("a scheduler");
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    let served = Served::start(any, &scheduler).await.expect("served");
    let at = served.address();
    let ready = get(at, "/readyz").await;
    assert!(ready.starts_with("HTTP/1.1 500") && ready.contains("first lists"), "{ready}");
    assert!(get(at, "/livez").await.starts_with("HTTP/1.1 200"));

    server.resume();
    scheduler.mirror().synced().await.expect("synced");
    scheduler.begin().expect("begun");
    assert!(get(at, "/readyz").await.starts_with("HTTP/1.1 200"));
    assert!(get(at, "/configz").await.ends_with(text));
    let amounts = json!({"cpu": "1", "memory": "1Gi", "pods": "10"});
    server
        .create(&json!({
            "apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"},
            "status": {"capacity": amounts, "allocatable": amounts},
        }))
        .expect("a node");
    server
        .create(&json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "p", "namespace": "default"},
            "spec": {"containers": [{"name": "c", "image": "registry.example.com/pause:1"}]},
        }))
        .expect("a pod");
    while scheduler.figures().bound == 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let metrics = get(at, "/metrics").await;
    let line =
        "scheduler_schedule_attempts_total{result=\"scheduled\",profile=\"default-scheduler\"} 1";
    assert!(metrics.contains(line), "{metrics}");

    fence.close();
    assert!(get(at, "/livez").await.starts_with("HTTP/1.1 500"));
    assert!(get(at, "/readyz").await.contains("stopping"));
    scheduler.stop(Duration::ZERO).await;
}
