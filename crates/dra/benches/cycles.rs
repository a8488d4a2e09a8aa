//! Scheduling cycles per second: each pod has one claim for one device, on 1,000 nodes with 8 devices each.
//!
//! A cycle decides on a node, assumes the pod there and reserves its device; claims are stored afterwards, untimed.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use portolan::cache::{Config, Engine, Reader, Snapshot, Writer};
use portolan::model::{Pod, Timestamp, node, pod};
use portolan::plugin::{Cycle, Handle, PodInPreBind, Snapshots};
use portolan::{Algorithm, AlgorithmConfig, Framework};
use portolan_dra::allocator::{SelectorError, Selectors};
use portolan_dra::model::{PodClaim, PodClaims, ResourceClaim, ResourceSlice};
use portolan_dra::plugin::{ApiError, Backend, ExtendedClaimStatus};
use portolan_dra::store::DeviceEvent;
use portolan_dra::{Devices, DynamicResources};
use serde_json::json;

const NODES: usize = 1_000;
const DEVICES: usize = 8;
const PODS: usize = 6_000;

/// Stands for CEL: an expression is the name of a driver.
struct Drivers;

impl Selectors for Drivers {
    fn matches(
        &self,
        expression: &Arc<str>,
        slice: &Arc<ResourceSlice>,
        _: usize,
    ) -> Result<bool, SelectorError> {
        Ok(*expression == slice.spec.driver)
    }
}

/// An engine without an API server: claims are stored as they are sent.
struct World(Mutex<(Writer, Reader)>);

impl World {
    fn with<T>(&self, work: impl FnOnce(&mut Writer, &Reader) -> T) -> T {
        let mut engine = self.0.lock().expect("no thread panics");
        let (writer, reader) = &mut *engine;
        work(writer, reader)
    }
}

impl Snapshots for World {
    fn snapshot(&self) -> Arc<Snapshot> {
        self.with(|_, reader| reader.snapshot())
    }
}

impl Backend for World {
    fn submit(&self, event: DeviceEvent) -> Result<(), String> {
        self.with(|writer, _| {
            writer.change::<Devices>(event).map_err(|error| error.to_string())?;
            writer.publish();
            Ok(())
        })
    }

    fn get(&self, _: &str, name: &str) -> Result<ResourceClaim, ApiError> {
        Err(ApiError::NotFound(name.to_owned()))
    }

    fn create(&self, claim: &ResourceClaim) -> Result<ResourceClaim, ApiError> {
        Ok(claim.clone())
    }

    fn update(&self, claim: &ResourceClaim) -> Result<ResourceClaim, ApiError> {
        Ok(claim.clone())
    }

    fn update_status(&self, claim: &ResourceClaim) -> Result<ResourceClaim, ApiError> {
        Ok(claim.clone())
    }

    fn remove_reservation(&self, of: &ResourceClaim, _: &Pod) -> Result<ResourceClaim, ApiError> {
        Ok(of.clone())
    }

    fn delete(&self, _: &ResourceClaim) -> Result<(), ApiError> {
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

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let world = Arc::new(World(Mutex::new(Engine::inline(
        Config::default().with_store(Devices::default()),
    ))));
    let class = json!({
        "metadata": {"name": "gpu"},
        "spec": {"selectors": [{"cel": {"expression": "gpu.example.com"}}]},
    });
    world.submit(DeviceEvent::PutClass(Arc::new(serde_json::from_value(class)?)))?;
    for at in 0..NODES {
        let name = format!("n{at:04}");
        world.with(|writer, _| {
            writer.add_node(node(&*name).cpu(64_000).memory(1 << 38).build()).map(|_| ())
        })?;
        let devices: Vec<_> = (0..DEVICES).map(|at| json!({"name": format!("gpu-{at}")})).collect();
        let slice = json!({
            "metadata": {"name": format!("{name}-gpu")},
            "spec": {
                "driver": "gpu.example.com",
                "pool": {"name": name, "generation": 1, "resourceSliceCount": 1},
                "nodeName": name,
                "devices": devices,
            },
        });
        world.submit(DeviceEvent::PutSlice(Arc::new(serde_json::from_value(slice)?)))?;
    }
    let handle = Handle::default().with_snapshots(world.clone());
    let plugin = DynamicResources::new(&handle, world.clone(), Arc::new(Drivers));
    let framework =
        Framework::builder_with(&handle).default_plugins().plugin(Box::new(plugin), 2).build()?;
    let mut algorithm = Algorithm::new(framework, AlgorithmConfig::default(), None);
    let mut spent = Duration::ZERO;
    let mut parts = [Duration::ZERO; 3];
    for at in 0..PODS {
        let (name, claim) = (format!("p{at}"), format!("c{at}"));
        let object = json!({
            "metadata": {"name": claim, "namespace": "default", "uid": claim},
            "spec": {"devices": {"requests": [{
                "name": "gpu",
                "exactly": {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1},
            }]}},
        });
        world.submit(DeviceEvent::PutClaim(Arc::new(serde_json::from_value(object)?)))?;
        let pod =
            pod(&*name).cpu(500).spec(|spec| spec.resource_claims = ["gpu".into()].into()).build();
        let claims =
            PodClaim { name: "gpu".into(), claim: Some((*claim).into()), ..PodClaim::default() };
        let uid = pod.uid.to_string().into();
        let claims = PodClaims { uid, claims: vec![claims], ..PodClaims::default() };
        world.submit(DeviceEvent::PutPod(claims.into()))?;
        let start = Instant::now();
        let snapshot = world.with(|writer, reader| {
            writer.publish();
            reader.snapshot()
        });
        let state = algorithm.state();
        let cycle = Cycle::new(&snapshot, &pod, &state);
        let decision = algorithm.decide(cycle)?;
        let decided = Instant::now();
        let assumed = pod.clone().on(decision.node.clone());
        world.with(|writer, _| writer.assume_pod(assumed).map(|_| ()))?;
        let is_assumed = Instant::now();
        algorithm.framework().reserve(cycle, &decision.node)?;
        let end = Instant::now();
        parts[0] += decided - start;
        parts[1] += is_assumed - decided;
        parts[2] += end - is_assumed;
        spent += end - start;
        algorithm.framework().pre_bind(cycle, &decision.node)?;
    }
    let [decide, assume, reserve] = parts.map(|part| part / PODS as u32);
    let rate = PODS as f64 / spent.as_secs_f64();
    println!("{rate:.0} cycles/s: decide {decide:?}, assume {assume:?}, reserve {reserve:?}");
    Ok(())
}
