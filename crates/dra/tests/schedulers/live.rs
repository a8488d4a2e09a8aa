//! An engine with an API server in memory, on which any number of schedulers may run.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use portolan::cache::{Config, Engine, Event, Snapshot};
use portolan::model::{Pod, PodResourceClaim, Timestamp, node, pod};
use portolan::plugin::{Handle, PodInPreBind, Snapshots};
use portolan::scheduler::InMemoryBinder;
use portolan::{Algorithm, AlgorithmConfig, Framework, Profiles, Scheduler};
use portolan_dra::allocator::CelSelectors;
use portolan_dra::model::{ResourceClaim, read};
use portolan_dra::plugin::{ApiError, Backend, ExtendedClaimStatus};
use portolan_dra::store::DeviceEvent;
use portolan_dra::{Devices, DynamicResources};
use serde_json::{Value, json};

/// The driver of all devices.
pub(crate) const DRIVER: &str = "example.com";

pub(crate) struct Live {
    pub(crate) engine: Engine,
    claims: Mutex<BTreeMap<String, ResourceClaim>>,
    version: AtomicUsize,
}

impl Live {
    /// Starts an engine with these nodes, the class `any` for all devices, and these slices.
    pub(crate) fn new(nodes: usize, slices: &[Value]) -> Arc<Live> {
        let engine = Engine::shared(Config::default().with_store(Devices::default()));
        let live = Live { engine, claims: Mutex::default(), version: AtomicUsize::new(0) };
        for at in 0..nodes {
            let node = node(format!("n{at}")).cpu(64_000).memory(1 << 38).build();
            live.engine.submit(Event::add_node(node)).unwrap().wait().unwrap().unwrap();
        }
        let class = json!({"metadata": {"name": "any"}});
        live.submit(DeviceEvent::PutClass(Arc::new(read(class).unwrap()))).unwrap();
        for slice in slices {
            live.submit(DeviceEvent::PutSlice(Arc::new(read(slice.clone()).unwrap()))).unwrap();
        }
        Arc::new(live)
    }

    pub(crate) fn framework(self: &Arc<Live>) -> Framework {
        let handle = Handle::default()
            .with_snapshots(self.clone())
            .with_binder(Arc::new(InMemoryBinder::new(self.engine.clone())));
        let plugin =
            DynamicResources::new(&handle, self.clone(), Arc::new(CelSelectors::default()));
        let builder = Framework::builder_with(&handle).default_plugins();
        builder.plugin(Box::new(plugin), 2).build().unwrap()
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
            "metadata": {"name": name, "namespace": "default", "uid": format!("uid-{name}")},
            "spec": {"devices": {"requests": [{"name": "r", "exactly": exactly}]}},
        });
        let claim = self.store(read(claim).unwrap());
        self.submit(DeviceEvent::PutClaim(claim.into())).unwrap();
    }

    /// Returns a pod that uses this claim.
    pub(crate) fn pod(&self, name: &str, claim: &str) -> Arc<Pod> {
        let entry =
            PodResourceClaim { name: "c".into(), claim: Some(claim.into()), template: None };
        let pod = pod(name).cpu(10).spec(|spec| spec.resource_claims = [entry].into()).build();
        Arc::new(pod)
    }

    /// Stores a claim unless the given one is outdated.
    fn replace(&self, claim: &ResourceClaim) -> Result<ResourceClaim, ApiError> {
        let known = self.get(claim.namespace(), claim.name())?;
        match known.metadata.resource_version == claim.metadata.resource_version {
            true => Ok(self.store(claim.clone())),
            false => Err(ApiError::Conflict("the object has been modified".to_owned())),
        }
    }

    fn store(&self, mut claim: ResourceClaim) -> ResourceClaim {
        let version = self.version.fetch_add(1, Ordering::Relaxed) + 1;
        claim.metadata.resource_version = version.to_string().into();
        self.claims.lock().unwrap().insert(claim.key(), claim.clone());
        claim
    }
}

impl Snapshots for Live {
    fn snapshot(&self) -> Arc<Snapshot> {
        self.engine.reader().unwrap().snapshot()
    }
}

impl Backend for Live {
    fn submit(&self, event: DeviceEvent) -> Result<(), String> {
        let ticket = self.engine.submit(Event::custom::<Devices>(event));
        let outcome = ticket.map_err(|error| error.to_string())?.wait();
        outcome.map_err(|error| error.to_string())?.map_err(|error| error.to_string())?;
        Ok(())
    }

    fn get(&self, namespace: &str, name: &str) -> Result<ResourceClaim, ApiError> {
        let key = format!("{namespace}/{name}");
        let found = self.claims.lock().unwrap().get(&key).cloned();
        found.ok_or(ApiError::NotFound(key))
    }

    fn create(&self, claim: &ResourceClaim) -> Result<ResourceClaim, ApiError> {
        Ok(self.store(claim.clone()))
    }

    fn update(&self, claim: &ResourceClaim) -> Result<ResourceClaim, ApiError> {
        self.replace(claim)
    }

    fn update_status(&self, claim: &ResourceClaim) -> Result<ResourceClaim, ApiError> {
        self.replace(claim)
    }

    fn remove_reservation(&self, of: &ResourceClaim, _: &Pod) -> Result<ResourceClaim, ApiError> {
        Ok(of.clone())
    }

    fn delete(&self, claim: &ResourceClaim) -> Result<(), ApiError> {
        self.claims.lock().unwrap().remove(&claim.key());
        Ok(())
    }

    fn set_extended_status(&self, _: &Pod, _: &ExtendedClaimStatus) -> Result<(), ApiError> {
        Ok(())
    }

    fn now(&self) -> Timestamp {
        Timestamp::from_secs(1)
    }

    fn wait(&self, _: Duration, _: &PodInPreBind) -> Result<(), String> {
        Ok(())
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
