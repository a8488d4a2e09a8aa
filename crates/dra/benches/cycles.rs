//! Scheduling cycles per second of pods with one claim each, on 1,000 nodes. An argument selects a scenario: `local` for
//! one of 8 devices of a node, `network` for 8 of 10,000 devices that all nodes share, `selectors` for single evaluations
//! of CEL selectors.
//!
//! A cycle decides on a node, assumes the pod there and reserves its devices; claims are stored afterwards, untimed.

use std::sync::Arc;
use std::time::{Duration, Instant};

use portolan::cache::{Config, Engine, Event};
use portolan::model::{PodResourceClaim, node, pod};
use portolan::plugin::{Cycle, Handle, default_plugins};
use portolan::{Algorithm, AlgorithmConfig, Framework};
use portolan_dra::cel::Program;
use portolan_dra::model::Device;
use portolan_dra::plugin::{Backend, InMemoryBackend};
use portolan_dra::store::DeviceEvent;
use portolan_dra::{Devices, DynamicResources};
use serde_json::{Value, json};

const NODES: usize = 1_000;
const DRIVER: &str = "gpu.example.com";

/// Devices and claims to schedule.
struct Scenario {
    name: &'static str,
    slices: Vec<Value>,
    /// The only request of each claim.
    exactly: Value,
    constraints: Value,
    pods: usize,
}

fn slice(name: &str, pool: &str, slices: usize, mut spec: Value) -> Value {
    spec["driver"] = json!(DRIVER);
    spec["pool"] = json!({"name": pool, "generation": 1, "resourceSliceCount": slices});
    json!({"metadata": {"name": name}, "spec": spec})
}

/// Each pod gets one of the devices that its node has.
fn local() -> Scenario {
    let slices = (0..NODES).map(|at| {
        let (node, pool) = (node_name(at), node_name(at));
        let devices: Vec<_> = (0..8).map(|at| json!({"name": format!("gpu-{at}")})).collect();
        slice(&format!("{node}-gpu"), &pool, 1, json!({"nodeName": node, "devices": devices}))
    });
    Scenario {
        name: "local",
        slices: slices.collect(),
        exactly: json!({"count": 1}),
        constraints: json!([]),
        pods: 6_000,
    }
}

/// Each pod gets 8 devices with the same attribute from pools that all nodes share, of 10,000 devices in all.
fn network() -> Scenario {
    const POOLS: usize = 10;
    const SLICES: usize = 10;
    const DEVICES: usize = 100;
    let slices = (0..POOLS * SLICES).map(|at| {
        let device = |of: usize| {
            let number = at * DEVICES + of;
            let rack = json!({"rack": {"int": number / 8}});
            json!({"name": format!("d-{number:05}"), "attributes": rack})
        };
        let devices: Vec<_> = (0..DEVICES).map(device).collect();
        let pool = format!("pool-{}", at / SLICES);
        let spec = json!({"allNodes": true, "devices": devices});
        slice(&format!("slice-{at:03}"), &pool, SLICES, spec)
    });
    Scenario {
        name: "network",
        slices: slices.collect(),
        exactly: json!({"count": 8}),
        constraints: json!([{"matchAttribute": format!("{DRIVER}/rack")}]),
        pods: 100,
    }
}

fn node_name(at: usize) -> String {
    format!("n{at:04}")
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let only = std::env::args().nth(1).unwrap_or_default();
    for scenario in [local(), network()] {
        if only.starts_with('-') || scenario.name.contains(&only) {
            run(scenario)?;
        }
    }
    if only.starts_with('-') || "selectors".contains(&only) {
        evaluate_selectors()?;
    }
    Ok(())
}

/// Evaluates selectors of typical forms on one device, each time afresh.
fn evaluate_selectors() -> Result<(), Box<dyn std::error::Error>> {
    const TIMES: u32 = 200_000;
    let attributes = json!({"model": {"string": "a100"}, "index": {"int": 3}});
    let device: Device = serde_json::from_value(json!({"name": "d", "attributes": attributes}))?;
    for expression in [
        format!("device.driver == '{DRIVER}'"),
        format!("device.attributes['{DRIVER}'].model == 'a100'"),
        format!("device.driver == '{DRIVER}' && device.attributes['{DRIVER}'].index in [1, 2, 3]"),
    ] {
        let program = Program::compile(&expression)?;
        let start = Instant::now();
        for _ in 0..TIMES {
            std::hint::black_box(program.matches(DRIVER, std::hint::black_box(&device))?);
        }
        println!("selectors: {:?} each: {expression}", start.elapsed() / TIMES);
    }
    Ok(())
}

fn run(scenario: Scenario) -> Result<(), Box<dyn std::error::Error>> {
    let Scenario { name, slices, exactly, constraints, pods } = scenario;
    let config = Config::default().with_store(Devices::default());
    let engine = Engine::shared(config);
    let backend = Arc::new(InMemoryBackend::new(&engine));
    let class = json!({
        "metadata": {"name": "gpu"},
        "spec": {"selectors": [{"cel": {"expression": format!("device.driver == '{DRIVER}'")}}]},
    });
    backend.submit(DeviceEvent::PutClass(Arc::new(serde_json::from_value(class)?)))?;
    for at in 0..NODES {
        let node = node(node_name(at)).cpu(64_000).memory(1 << 38).build();
        engine.submit(Event::add_node(node))?.wait()??;
    }
    for slice in slices {
        backend.submit(DeviceEvent::PutSlice(Arc::new(serde_json::from_value(slice)?)))?;
    }
    let handle = Handle::default();
    let plugin = DynamicResources::new(&handle, backend.clone());
    let mut plugins = default_plugins(&handle);
    plugins.push((Box::new(plugin), 2));
    let framework = Framework::new(plugins)?.with_handle(handle);
    let mut algorithm = Algorithm::new(framework, AlgorithmConfig::default(), None);
    let reader = engine.reader()?;
    let mut parts = [Duration::ZERO; 3];
    for at in 0..pods {
        let (pod_name, claim) = (format!("p{at}"), format!("c{at}"));
        let mut exactly = exactly.clone();
        exactly["deviceClassName"] = json!("gpu");
        let request = json!({"name": "gpu", "exactly": exactly});
        let object = json!({
            "metadata": {"name": claim, "namespace": "default", "uid": claim},
            "spec": {"devices": {"requests": [request], "constraints": constraints}},
        });
        backend.submit(DeviceEvent::PutClaim(Arc::new(serde_json::from_value(object)?)))?;
        let entry =
            PodResourceClaim { name: "gpu".into(), claim: Some((*claim).into()), template: None };
        let pod =
            pod(&*pod_name).cpu(500).spec(|spec| spec.resource_claims = [entry].into()).build();
        let start = Instant::now();
        let snapshot = reader.snapshot();
        let state = algorithm.state();
        let cycle = Cycle::new(&snapshot, &pod, &state);
        let decision = algorithm.decide(cycle)?;
        let decided = Instant::now();
        let assumed = pod.clone().on(decision.node.clone());
        engine.submit(Event::assume(assumed))?.wait()??;
        let is_assumed = Instant::now();
        algorithm.framework().reserve(cycle, &decision.node)?;
        let end = Instant::now();
        parts[0] += decided - start;
        parts[1] += is_assumed - decided;
        parts[2] += end - is_assumed;
        algorithm.framework().pre_bind(cycle, &decision.node)?;
    }
    let cycle = parts.iter().sum::<Duration>() / pods as u32;
    let [decide, assume, reserve] = parts.map(|part| part / pods as u32);
    let rate = 1.0 / cycle.as_secs_f64();
    println!(
        "{name}: {rate:.0} cycles/s, {cycle:?} each: decide {decide:?}, assume {assume:?}, \
         reserve {reserve:?}"
    );
    Ok(())
}
