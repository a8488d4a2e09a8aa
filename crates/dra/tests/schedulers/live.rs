//! An engine whose claims are in memory, on which any number of schedulers may run.

use std::sync::Arc;

use portolan::cache::{Config, Engine, Event, Snapshot};
use portolan::model::{Pod, PodResourceClaim, node, pod};
use portolan::plugin::{Handle, Snapshots, default_plugins};
use portolan::scheduler::InMemoryBinder;
use portolan::{Algorithm, AlgorithmConfig, Framework, Profiles, Scheduler};
use portolan_dra::model::{ResourceClaim, read};
use portolan_dra::plugin::{Backend, InMemoryBackend};
use portolan_dra::store::DeviceEvent;
use portolan_dra::{Devices, DynamicResources};
use serde_json::{Value, json};

/// The driver of all devices.
pub(crate) const DRIVER: &str = "example.com";

pub(crate) struct Live {
    pub(crate) engine: Engine,
    backend: Arc<InMemoryBackend>,
}

impl Live {
    /// Starts an engine with these nodes, the class `any` for all devices, and these slices.
    pub(crate) fn new(nodes: usize, slices: &[Value]) -> Arc<Live> {
        let engine = Engine::shared(Config::default().with_store(Devices::default()));
        let backend = Arc::new(InMemoryBackend::new(&engine));
        let live = Live { engine, backend };
        for at in 0..nodes {
            let node = node(format!("n{at}")).cpu(64_000).memory(1 << 38).build();
            live.engine.submit(Event::add_node(node)).unwrap().wait().unwrap().unwrap();
        }
        let class = json!({"metadata": {"name": "any"}});
        live.backend.submit(DeviceEvent::PutClass(Arc::new(read(class).unwrap()))).unwrap();
        for slice in slices {
            live.backend
                .submit(DeviceEvent::PutSlice(Arc::new(read(slice.clone()).unwrap())))
                .unwrap();
        }
        Arc::new(live)
    }

    pub(crate) fn framework(self: &Arc<Live>) -> Framework {
        let handle = Handle::default()
            .with_snapshots(self.clone())
            .with_binder(Arc::new(InMemoryBinder::new(self.engine.clone())));
        let plugin = DynamicResources::new(&handle, self.backend.clone());
        let mut plugins = default_plugins(&handle);
        plugins.push((Box::new(plugin), 2));
        Framework::new(plugins).unwrap().with_handle(handle)
    }

    pub(crate) fn scheduler(self: &Arc<Live>) -> Scheduler {
        let algorithm = Algorithm::new(self.framework(), AlgorithmConfig::default(), None);
        Scheduler::new(self.engine.clone(), Profiles::one(algorithm)).unwrap()
    }

    /// Creates a claim with one request for devices of the class `any`.
    pub(crate) fn put_claim(&self, name: &str, exactly: &Value) {
        let mut exactly = exactly.clone();
        exactly["deviceClassName"] = json!("any");
        let claim = json!({
            "metadata": {"name": name, "namespace": "default", "uid": format!("uid-{name}"),
                "resourceVersion": "1"},
            "spec": {"devices": {"requests": [{"name": "r", "exactly": exactly}]}},
        });
        let claim: ResourceClaim = read(claim).unwrap();
        self.backend.submit(DeviceEvent::PutClaim(claim.into())).unwrap();
    }

    /// Returns a pod that uses this claim.
    pub(crate) fn pod(&self, name: &str, claim: &str) -> Arc<Pod> {
        let entry =
            PodResourceClaim { name: "c".into(), claim: Some(claim.into()), template: None };
        let pod = pod(name).cpu(10).spec(|spec| spec.resource_claims = [entry].into()).build();
        Arc::new(pod)
    }
}

impl Snapshots for Live {
    fn snapshot(&self) -> Arc<Snapshot> {
        self.engine.reader().unwrap().snapshot()
    }
}

/// Returns the only slice of a pool.
pub(crate) fn slice(pool: &str, spec: &Value) -> Value {
    let mut spec = spec.clone();
    spec["driver"] = json!(DRIVER);
    spec["pool"] = json!({"name": pool, "generation": 1, "resourceSliceCount": 1});
    let contents = if spec.get("devices").is_some() { "devices" } else { "counters" };
    json!({"metadata": {"name": format!("{pool}-{contents}")}, "spec": spec})
}
