//! Servers, clients and waits that the tests share.

mod oracle;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::num::NonZeroUsize;
use std::ops::Range;
use std::time::{Duration, Instant};

use http::HeaderValue;
use http::header::USER_AGENT;
use portolan_apiserver::{ApiServer, Options, Write};
use portolan_kube::api::{Api, Limits, Resource};
use portolan_kube::process::{ElectionConfig, LiveConfig, LiveScheduler, Served};
use portolan_kube::write::Fence;
use serde_json::{Value, json};
use tokio::runtime::Runtime;

pub(crate) use oracle::differences;

/// The time after which a test gives up.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// The time-out of a process's requests.
pub(crate) const TIMEOUT: Duration = Duration::from_millis(300);

/// Starts a server whose watches get frequent bookmarks.
pub(crate) fn server() -> ApiServer {
    let bookmark_every = Duration::from_millis(100);
    ApiServer::start(Options { bookmark_every, controllers: false, ..Options::default() })
        .expect("a free port")
}

/// Returns a client whose writes the server records under this name. Call it within a runtime.
pub(crate) fn client(server: &ApiServer, name: &'static str, limits: Limits) -> Api {
    let mut config = kube::Config::new(server.url().parse().expect("a URL"));
    config.headers.push((USER_AGENT, HeaderValue::from_static(name)));
    Api::new(config, limits).expect("a client")
}

/// Returns limits with this time-out.
pub(crate) fn limits(timeout: Duration) -> Limits {
    let mut limits = Limits::default();
    limits.timeout = timeout;
    limits
}

/// Waits until the condition holds.
pub(crate) async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < deadline, "timed out: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Returns the writes that a client did.
pub(crate) fn applied(server: &ApiServer, agent: &str) -> Vec<Write> {
    server.writes().into_iter().filter(|write| write.applied && write.user_agent == agent).collect()
}

/// A node with this many CPUs, in thousandths.
pub(crate) fn node(name: &str, cpu: u64) -> Value {
    json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name},
        "status": {"allocatable": {"cpu": format!("{cpu}m"), "memory": "64Gi", "pods": "110"}}})
}

/// A pod that requests this many thousandths of a CPU, and terminates at once when it is deleted.
pub(crate) fn pod(name: &str, cpu: u64) -> Value {
    let resources = json!({"requests": {"cpu": format!("{cpu}m")}});
    let container = json!({"name": "c", "image": "pause", "resources": resources});
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"},
        "spec": {"containers": [container], "terminationGracePeriodSeconds": 0}})
}

/// Creates as many nodes, `node-0` and so on, each with this many CPUs, in thousandths.
pub(crate) fn create_nodes(server: &ApiServer, count: u32, cpu: u64) {
    (0..count)
        .for_each(|n| drop(server.create(&node(&format!("node-{n}"), cpu)).expect("created")));
}

/// Creates the pods of these numbers, `pod-0` and so on, each with this request.
pub(crate) fn create_pods(server: &ApiServer, numbers: Range<u32>, cpu: u64) {
    numbers.for_each(|n| drop(server.create(&pod(&format!("pod-{n}"), cpu)).expect("created")));
}

/// Creates a class of priorities.
pub(crate) fn create_class(server: &ApiServer, name: &str, value: i32) {
    let class = json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass",
        "metadata": {"name": name}, "value": value});
    server.create(&class).expect("created");
}

/// A pod of the class `high`.
pub(crate) fn high_pod(name: &str, cpu: u64) -> Value {
    let mut high = pod(name, cpu);
    high["spec"]["priorityClassName"] = json!("high");
    high
}

/// Returns a pod, or null if there is none.
pub(crate) fn find(server: &ApiServer, name: &str) -> Value {
    server.get("Pod", "default", name).unwrap_or_default()
}

pub(crate) fn node_of(server: &ApiServer, name: &str) -> Option<String> {
    find(server, name)["spec"]["nodeName"].as_str().map(str::to_owned)
}

/// Returns a pod's condition `PodScheduled`, or null.
pub(crate) fn condition(server: &ApiServer, name: &str) -> Value {
    let pod = find(server, name);
    let mut conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
    conditions.find(|found| found["type"] == "PodScheduled").cloned().unwrap_or_default()
}

/// Returns the thousandths of a CPU that a node has for pods.
pub(crate) fn capacity(node: &Value) -> u64 {
    cpu(&node["status"]["allocatable"]["cpu"])
}

/// Returns the thousandths of a CPU that a pod requests.
pub(crate) fn request(pod: &Value) -> u64 {
    cpu(&pod["spec"]["containers"][0]["resources"]["requests"]["cpu"])
}

fn cpu(quantity: &Value) -> u64 {
    let text = quantity.as_str().expect("a quantity");
    match text.strip_suffix('m') {
        Some(thousandths) => thousandths.parse().expect("a number"),
        None => text.parse::<u64>().expect("a number") * 1_000,
    }
}

/// Returns the seeds of random schedules: the one of `PORTOLAN_SEED`, or else as many as `PORTOLAN_SCHEDULES` says.
pub(crate) fn seeds(default: u64) -> Range<u64> {
    let number = |name: &str| std::env::var(name).ok()?.parse::<u64>().ok();
    match number("PORTOLAN_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("PORTOLAN_SCHEDULES").unwrap_or(default),
    }
}

/// Any free port of this machine.
pub(crate) const ANY: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

pub(crate) fn address(served: &Served) -> SocketAddr {
    served.address().tcp().expect("TCP")
}

pub(crate) fn runtime() -> Runtime {
    runtime_of(2)
}

/// A runtime with this many threads.
pub(crate) fn runtime_of(threads: usize) -> Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(threads)
        .enable_all()
        .build()
        .expect("a runtime")
}

/// Returns an election whose leader renews about every 150 ms.
pub(crate) fn election(identity: &str, lease: Duration, renew: Duration) -> ElectionConfig {
    let mut config = ElectionConfig::new(identity);
    (config.lease_duration, config.renew_deadline) = (lease, renew);
    config.retry_period = Duration::from_millis(150);
    config
}

/// The shortest waits that kube-scheduler allows.
const CONFIGURATION: &str = "\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
podInitialBackoffSeconds: 1
podMaxBackoffSeconds: 1
";

/// Returns the configuration of a scheduler with short waits, and with further lines of its file.
pub(crate) fn live_config(seed: u64, further: &str) -> LiveConfig {
    let mut config = LiveConfig::default();
    config.configuration = Some(format!("{CONFIGURATION}{further}").into());
    config.bindings = NonZeroUsize::new(8).expect("not 0");
    config.waiting_bindings = NonZeroUsize::MIN;
    config.seed = Some(seed);
    config.mirror.resources =
        vec![Resource::PODS, Resource::NODES, Resource::POD_DISRUPTION_BUDGETS];
    let pauses = &mut config.mirror.pauses;
    (pauses.shortest, pauses.longest) = (Duration::from_millis(5), Duration::from_millis(50));
    pauses.short_watch = Duration::from_millis(10);
    pauses.list_silence = Duration::from_millis(500);
    (pauses.hurried_watch, pauses.refresh) = (Duration::from_secs(1), Duration::from_secs(2));
    config.writes.event_limits.retry = Duration::from_millis(100);
    config
}

/// A scheduler and its fence.
pub(crate) struct Process {
    pub(crate) live: LiveScheduler,
    pub(crate) fence: Fence,
}

impl Process {
    /// Starts a process whose fence is closed and whose client has this name.
    pub(crate) fn start(
        runtime: &Runtime,
        server: &ApiServer,
        name: &'static str,
        seed: u64,
    ) -> Process {
        Process::with(runtime, server, name, seed, limits(TIMEOUT))
    }

    /// Starts a process with these limits of its client.
    pub(crate) fn with(
        runtime: &Runtime,
        server: &ApiServer,
        name: &'static str,
        seed: u64,
        limits: Limits,
    ) -> Process {
        Process::configured(runtime, server, name, seed, limits, "")
    }

    /// Starts a process with further lines of its configuration.
    pub(crate) fn configured(
        runtime: &Runtime,
        server: &ApiServer,
        name: &'static str,
        seed: u64,
        mut limits: Limits,
        further: &str,
    ) -> Process {
        let _within = runtime.enter();
        let fence = Fence::closed();
        let config = live_config(seed, further);
        limits.idle = Duration::from_secs(2);
        let api = client(server, name, limits);
        let live = LiveScheduler::start(api, fence.clone(), config).expect("started");
        Process { live, fence }
    }

    pub(crate) fn differences(&self, server: &ApiServer) -> Vec<String> {
        differences(server, self.live.schedulers().engine(), self.live.mirror())
    }

    /// Opens the fence, and starts to schedule.
    pub(crate) fn lead(&mut self, runtime: &Runtime) {
        self.fence.open();
        self.begin(runtime);
    }

    /// Waits for the mirror, and starts to schedule.
    pub(crate) fn begin(&mut self, runtime: &Runtime) {
        let synced = self.live.mirror().synced();
        runtime.block_on(async {
            let synced = tokio::time::timeout(PATIENCE, synced).await;
            synced.expect("in time").expect("synced");
        });
        self.live.begin().expect("begun");
    }
}
