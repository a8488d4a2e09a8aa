//! The HTTP responses of a scheduler.

use std::net::SocketAddr;
use std::time::Duration;

use crate::support::{ANY, address, client, node, pod, server, until};
use portolan_kube::api::Limits;
use portolan_kube::process::{Election, ElectionConfig, LiveConfig, LiveScheduler, Served};
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
    let server = server();
    let fence = Fence::opened();
    let mut config = LiveConfig::default();
    let text = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n";
    config.configuration = Some(text.into());
    // No answer, so that the first lists are not applied.
    server.pause();
    let api = client(&server, "a", Limits::default());
    let mut scheduler = LiveScheduler::start(api, fence.clone(), config).expect("a scheduler");
    let served = Served::start(ANY, &scheduler).await.expect("served");
    let at = address(&served);
    let ready = get(at, "/readyz").await;
    assert!(ready.starts_with("HTTP/1.1 500") && ready.contains("first lists"), "{ready}");
    assert!(get(at, "/livez").await.starts_with("HTTP/1.1 200"));

    server.resume();
    scheduler.mirror().synced().await.expect("synced");
    scheduler.begin().expect("begun");
    assert!(get(at, "/readyz").await.starts_with("HTTP/1.1 200"));
    assert!(get(at, "/configz").await.ends_with(text));
    server.create(&node("n1", 1_000)).expect("created");
    server.create(&pod("p", 100)).expect("created");
    until("bound", || scheduler.figures().bound > 0).await;
    let metrics = get(at, "/metrics").await;
    let line =
        "scheduler_schedule_attempts_total{result=\"scheduled\",profile=\"default-scheduler\"} 1";
    assert!(metrics.contains(line), "{metrics}");

    fence.close();
    assert!(get(at, "/livez").await.starts_with("HTTP/1.1 500"));
    assert!(get(at, "/readyz").await.contains("stopping"));
    scheduler.stop(Duration::ZERO).await;
}

/// Returns the value of a sample.
fn value(metrics: &str, sample: &str) -> Option<f64> {
    let rest = metrics.lines().find_map(|line| line.strip_prefix(sample)?.strip_prefix(' '))?;
    rest.parse().ok()
}

/// Returns by how much a sample grew between two scrapes.
fn added(before: &str, after: &str, sample: &str) -> f64 {
    value(after, sample).unwrap_or(0.0) - value(before, sample).unwrap_or(0.0)
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_and_leadership_are_exported_under_kube_schedulers_names() {
    let server = server();
    let mut limits = Limits::default();
    limits.qps = Some(1_000.0);
    let api = client(&server, "a", limits);
    let mut config = ElectionConfig::new("a");
    config.name = "exported".to_owned();
    let (fence, leases) = (Fence::closed(), api.with_limits(Limits::default()));
    let mut election = Election::new(leases, config, fence.clone()).expect("valid");
    let scheduler =
        LiveScheduler::start(api.clone(), fence, LiveConfig::default()).expect("a scheduler");
    let served = Served::start(ANY, &scheduler).await.expect("served");
    let metrics = async || get(address(&served), "/metrics").await;
    let leads = "leader_election_master_status{name=\"exported\"}";
    // The counts are the process's, and an earlier server of it may have had this port.
    let before = metrics().await;
    assert_eq!(value(&before, leads), Some(0.0));
    election.acquire().await;
    scheduler.mirror().synced().await.expect("synced");
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "n"}});
    api.create("/api/v1/namespaces", &namespace).await.expect("created");
    api.get("/api/v1/namespaces/gone").await.expect_err("not found");

    let text = metrics().await;
    assert_eq!(value(&text, leads), Some(1.0));
    for (name, kind) in [
        ("rest_client_requests_total", "counter"),
        ("rest_client_request_duration_seconds", "histogram"),
        ("rest_client_rate_limiter_duration_seconds", "histogram"),
        ("rest_client_request_size_bytes", "histogram"),
        ("rest_client_response_size_bytes", "histogram"),
        ("leader_election_master_status", "gauge"),
        ("kubernetes_build_info", "gauge"),
        ("kubernetes_feature_enabled", "gauge"),
        ("scheduler_plugin_evaluation_total", "counter"),
        ("scheduler_pod_scheduled_after_flush_total", "counter"),
    ] {
        let line = format!("\n# TYPE {name} {kind}\n");
        assert_eq!(text.matches(&line).count(), 1, "{name} in {text}");
    }
    let host = server.url().strip_prefix("http://").expect("plain HTTP").to_owned();
    let host = format!("host=\"{}\"", host.trim_end_matches('/'));
    let total = |code: &str, method: &str| {
        let labels = format!("code=\"{code}\",method=\"{method}\",{host}");
        added(&before, &text, &format!("rest_client_requests_total{{{labels}}}"))
    };
    // The Lease is created, too. A Lease and a namespace are not found.
    assert_eq!((total("201", "POST"), total("404", "GET")), (2.0, 2.0), "{text}");
    // The mirror's lists began before the first scrape.
    let lists = format!("rest_client_requests_total{{code=\"200\",method=\"GET\",{host}}}");
    assert!(value(&text, &lists) > Some(10.0), "lists and watches: {text}");
    let count = |family: &str, verb: &str| {
        let sample = format!("rest_client_{family}_count{{verb=\"{verb}\",{host}}}");
        added(&before, &text, &sample)
    };
    for family in ["request_duration_seconds", "request_size_bytes", "response_size_bytes"] {
        assert_eq!(count(family, "POST"), 2.0, "{family} in {text}");
        // Lists are streamed as watches, which are not measured.
        assert_eq!(count(family, "GET"), 2.0, "{family} in {text}");
    }
    // The client of the Lease has no limit.
    assert_eq!(count("rate_limiter_duration_seconds", "POST"), 1.0, "{text}");
    let largest = "rest_client_request_size_bytes_bucket{le=\"16777216.0\",verb=\"POST\"";
    assert_eq!(added(&before, &text, &format!("{largest},{host}}}")), 2.0, "{text}");

    election.release().await.expect("released");
    assert_eq!(value(&metrics().await, leads), Some(0.0));
    scheduler.stop(Duration::ZERO).await;
}
