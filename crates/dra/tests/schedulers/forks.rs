//! Pods that are decided on in a fork see the devices of the pods before them.

use std::sync::Arc;

use portolan::model::{Pod, Timestamp};
use portolan::scheduler::BindingCycle;
use portolan::{AlgorithmConfig, Failure, WhatIf};
use portolan_dra::Devices;
use serde_json::json;

use super::live::{Live, slice};

fn live(devices: usize) -> Arc<Live> {
    let devices: Vec<_> = (0..devices).map(|at| json!({"name": format!("d{at}")})).collect();
    Live::new(2, &[slice("pool", &json!({"allNodes": true, "devices": devices}))])
}

/// Two pods with a claim each.
fn pods(live: &Live) -> [Arc<Pod>; 2] {
    ["a", "b"].map(|name| {
        live.put_claim(name, &json!({}));
        live.pod(name, name)
    })
}

#[test]
fn a_gang_does_not_fit_if_its_members_need_the_same_device() {
    let now = Timestamp::from_secs(1);
    for devices in [1, 2] {
        let live = live(devices);
        let gang = live.scheduler().schedule_gang(&pods(&live), 2, now);
        match gang {
            Ok(gang) => assert_eq!((gang.placed.len(), devices), (2, 2)),
            Err(why) => {
                assert!(matches!(why, Failure::TooFew { found: 1, .. }), "{why}");
                assert_eq!(devices, 1);
            }
        }
    }
}

#[test]
fn members_of_a_gang_share_a_claim() {
    let now = Timestamp::from_secs(1);
    let live = live(1);
    live.put_claim("c", &json!({}));
    let pods = ["a", "b"].map(|name| live.pod(name, "c"));
    let gang = live.scheduler().schedule_gang(&pods, 2, now).unwrap();
    let mut binding = BindingCycle::new(live.engine.clone()).unwrap();
    for placement in &gang.placed {
        binding.run(placement, || now).unwrap();
    }
    let snapshot = live.engine.reader().unwrap().snapshot();
    let claims = snapshot.store::<Devices>().unwrap().claims();
    let claim = claims.get(&"default".into(), &"c".into()).unwrap();
    assert!(claim.status.allocation.is_some());
    assert_eq!(claim.status.reserved_for.len(), 2);
}

#[test]
fn a_what_if_question_uses_each_device_once() {
    let live = live(1);
    let pods = pods(&live);
    let snapshot = live.engine.reader().unwrap().snapshot();
    let framework = Arc::new(live.framework());
    let mut what_if = WhatIf::new(&snapshot, framework, AlgorithmConfig::default());
    let placed = pods.iter().map(|pod| what_if.schedule(pod)).collect::<Vec<_>>();
    let placed: Vec<bool> = placed.iter().map(Result::is_ok).collect();
    assert_eq!(placed, [true, false]);
}
