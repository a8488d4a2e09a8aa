//! Servers, clients and waits that the tests share.

use std::num::NonZeroUsize;
use std::time::{Duration, Instant};

use http::HeaderValue;
use http::header::USER_AGENT;
use portolan_apiserver::{ApiServer, Options, Write};
use portolan_kube::api::{Api, Limits, Resource};
use portolan_kube::process::{LiveConfig, LiveScheduler};
use portolan_kube::write::Fence;
use serde_json::{Value, json};
use tokio::runtime::Runtime;

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
