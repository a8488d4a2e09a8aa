//! The mirror equals an API server with faults, whatever happens to both.

use std::time::{Duration, Instant};

use crate::support::{PATIENCE, client, differences, node, pod, runtime};
use fastrand::Rng;
use portolan::cache::{Config, Engine};
use portolan_apiserver::{ApiServer, Effect, Fault, PatchKind};
use portolan_dra::Devices;
use portolan_kube::api::Limits;
use portolan_kube::mirror::{KindFigures, KindStatus, Mirror, Options};
use serde_json::{Value, json};

/// A server, a mirror of it, and the runtime on which the mirror runs.
struct World {
    server: ApiServer,
    runtime: tokio::runtime::Runtime,
    engine: Engine,
    mirror: Mirror,
    random: Rng,
}

impl World {
    fn start(seed: u64, prepare: impl FnOnce(&ApiServer)) -> World {
        let bookmark_every = Duration::from_millis(100);
        let options = portolan_apiserver::Options {
            bookmark_every,
            ..portolan_apiserver::Options::default()
        };
        let server = ApiServer::start(options).expect("a free port");
        prepare(&server);
        let runtime = runtime();
        let engine = Engine::shared(Config::default().with_store(Devices::default()));
        let mut options = Options::new(["default-scheduler"]);
        options.pauses.shortest = Duration::from_millis(2);
        options.pauses.longest = Duration::from_millis(50);
        let mut limits = Limits::default();
        limits.idle = Duration::from_secs(3);
        let mirror = {
            let _within = runtime.enter();
            let api = client(&server, "mirror", limits);
            Mirror::start(api, engine.clone(), std::sync::Arc::default(), options)
                .expect("a mirror")
        };
        World { server, runtime, engine, mirror, random: Rng::with_seed(seed) }
    }

    fn synced(&self) {
        let synced = async { tokio::time::timeout(PATIENCE, self.mirror.synced()).await };
        self.runtime.block_on(synced).expect("in time").expect("synced");
    }

    /// Asserts that the mirror soon equals the server. Nothing else may change it meanwhile.
    fn check(&self) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let found = differences(&self.server, &self.engine, &self.mirror);
            if found.is_empty() {
                return;
            }
            assert!(Instant::now() < deadline, "{found:#?}\n{:#?}", self.mirror.figures());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Makes a random change, which the server may refuse.
    fn change(&mut self) {
        let random = &mut self.random;
        let pod = format!("pod-{}", random.u32(0..30));
        let name = format!("node-{}", random.u32(0..6));
        let service = format!("service-{}", random.u32(0..4));
        let device = format!("device-{}", random.u32(0..6));
        let server = &self.server;
        let _ = match random.u32(0..28) {
            0..6 => server.create(&pod_called(&pod, random)).map(drop),
            6..11 => server.bind("default", &pod, &name),
            11 => server.delete("Pod", "default", &pod, &json!({})).map(drop),
            12..14 => {
                server.delete("Pod", "default", &pod, &json!({"gracePeriodSeconds": 0})).map(drop)
            }
            14 => {
                let phase = random.choice(["Running", "Succeeded", "Failed"]);
                server
                    .patch_status("Pod", "default", &pod, &json!({"status": {"phase": phase}}))
                    .map(drop)
            }
            15 => {
                let labels = json!({"metadata": {"labels": {"n": random.u32(0..9).to_string()}}});
                server.patch("Pod", "default", &pod, PatchKind::Merge, &labels).map(drop)
            }
            16 => server.create(&node(&name, 8_000)).map(drop),
            17 => server.delete("Node", "", &name, &json!({})).map(drop),
            18 => {
                let spec = json!({"selector": {"app": "web"}, "ports": [{"port": 80}]});
                let meta = json!({"name": service, "namespace": "default"});
                let service =
                    json!({"apiVersion": "v1", "kind": "Service", "metadata": meta, "spec": spec});
                server.create(&service).map(drop)
            }
            19 => server.delete("Service", "default", &service, &json!({})).map(drop),
            20 => server.create(&claim(&device)).map(drop),
            21 => server.patch_status("ResourceClaim", "default", &device, &allocated()).map(drop),
            22 => {
                let free = json!({"status": {"allocation": null}});
                server.patch_status("ResourceClaim", "default", &device, &free).map(drop)
            }
            23 => server.delete("ResourceClaim", "default", &device, &json!({})).map(drop),
            24 => server.create(&slice(&device, &name)).map(drop),
            25 => server.delete("ResourceSlice", "", &device, &json!({})).map(drop),
            26 => {
                let metadata = json!({"name": device});
                let class = json!({"apiVersion": DEVICES, "kind": "DeviceClass", "metadata": metadata, "spec": {}});
                server.create(&class).map(drop)
            }
            _ => server.delete("DeviceClass", "", &device, &json!({})).map(drop),
        };
    }
}

const DEVICES: &str = "resource.k8s.io/v1";

fn claim(name: &str) -> Value {
    let request = json!({"name": "r", "exactly": {"deviceClassName": "c"}});
    let metadata = json!({"name": name, "namespace": "default"});
    let spec = json!({"devices": {"requests": [request]}});
    json!({"apiVersion": DEVICES, "kind": "ResourceClaim", "metadata": metadata, "spec": spec})
}

fn allocated() -> Value {
    let result = json!({"request": "r", "driver": "d", "pool": "p", "device": "gpu-0"});
    json!({"status": {"allocation": {"devices": {"results": [result]}}}})
}

fn slice(name: &str, node: &str) -> Value {
    let pool = json!({"name": name, "generation": 1, "resourceSliceCount": 1});
    let spec =
        json!({"driver": "d", "pool": pool, "nodeName": node, "devices": [{"name": "gpu-0"}]});
    let metadata = json!({"name": name});
    json!({"apiVersion": DEVICES, "kind": "ResourceSlice", "metadata": metadata, "spec": spec})
}

fn pod_called(name: &str, random: &mut Rng) -> Value {
    let scheduler = if random.u32(0..5) == 0 { "other" } else { "default-scheduler" };
    let mut pod = pod(name, 10);
    pod["spec"]["schedulerName"] = json!(scheduler);
    // A deletion takes a while.
    pod["spec"]["terminationGracePeriodSeconds"] = json!(30);
    pod
}

#[test]
fn the_mirror_equals_the_server_through_faults() {
    for seed in 0..4 {
        let mut world = World::start(seed, |server| {
            for i in 0..1_200 {
                let pod = pod_called(&format!("old-{i}"), &mut Rng::with_seed(i));
                server.create(&pod).expect("created");
            }
        });
        let watches = |effect: Effect| Fault::new(effect).verb("watch");
        world.server.set_faults(
            seed,
            vec![
                Fault::new(Effect::internal_error()).verb("list").every(7),
                watches(Effect::gone()).every(9),
                watches(Effect::gone_line()).every(8),
                watches(Effect::too_many_requests(0)).every(6),
                watches(Effect::ResetBefore).every(11),
                Fault::new(Effect::gone_event()).every(150),
                Fault::new(Effect::EndStream).every(97),
                Fault::new(Effect::ResetStream).every(131),
                Fault::new(Effect::TruncateEvent).every(89),
                Fault::new(Effect::DuplicateEvent).every(5),
            ],
        );
        for step in 0..800 {
            world.change();
            match step % 200 {
                40 => world.server.forget_events(),
                90 => world.server.reset_connections(),
                140 if seed == 0 => {
                    world.server.restart(Duration::from_millis(20)).expect("restarted");
                }
                _ => {}
            }
            if step % 10 == 0 {
                // Gives the streams time to break.
                std::thread::sleep(Duration::from_millis(2));
            }
        }
        let fired = world.server.faults_fired();
        assert!(fired.iter().filter(|count| **count > 0).count() >= 6, "{fired:?}");
        world.server.set_faults(0, Vec::new());
        world.synced();
        world.check();
        let is_synced = |figures: &KindFigures| figures.status == KindStatus::Synced;
        assert!(world.mirror.figures().iter().all(is_synced), "{:#?}", world.mirror.figures());
        world.runtime.block_on(world.mirror.stop());
    }
}

#[test]
fn a_refresh_sees_what_was_written_before_it() {
    let mut world = World::start(3, |server| {
        server.create(&node("node-0", 8_000)).expect("created");
    });
    world.synced();
    for i in 0..20 {
        let name = format!("late-{i}");
        let pod = pod_called(&name, &mut world.random);
        let created = world.server.create(&pod).expect("created");
        world.server.bind("default", &name, "node-0").expect("bound");
        let version = world.server.version();
        let seen = world.runtime.block_on(world.mirror.refresh()).expect("reached");
        assert!(seen >= version, "{seen} < {version}");
        let uid = created["metadata"]["uid"].as_str().expect("a uid").into();
        let snapshot = world.engine.reader().expect("open").snapshot();
        assert!(snapshot.pod(&uid).is_some(), "{name} is not in the engine");
    }
}
