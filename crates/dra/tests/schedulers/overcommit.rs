//! Any number of schedulers on one engine allocate no device twice, and exceed no capacity and no counter.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use portolan::model::{Pod, Quantity, Timestamp};
use portolan::scheduler::BindingCycle;
use portolan_dra::Devices;
use portolan_dra::model::AllocationResult;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::live::{DRIVER, Live, slice};

const MEMORY: i64 = 10;
const SHARED: usize = 2;
const COUNTERS: i64 = 8;
const PARTITIONS: usize = 8;
const DEDICATED: usize = 6;

/// What a claim requests.
#[derive(Clone, Copy, Debug)]
enum Request {
    /// This many devices of their own.
    Dedicated(usize),
    /// A share of a device with this much memory.
    Share(i64),
    /// A device that uses this many of the pool's counters.
    Partition(i64),
}

fn partition_size(at: usize) -> i64 {
    i64::try_from(at % 4).unwrap() + 1
}

fn slices() -> Vec<Value> {
    let kind = |kind: &str, size: i64| json!({"kind": {"string": kind}, "size": {"int": size}});
    let dedicated = (0..DEDICATED)
        .map(|at| json!({"name": format!("d{at}"), "attributes": kind("dedicated", 0)}))
        .collect::<Vec<_>>();
    let shared = (0..SHARED)
        .map(|at| {
            json!({
                "name": format!("s{at}"),
                "attributes": kind("shared", 0),
                "allowMultipleAllocations": true,
                "capacity": {"memory": {"value": MEMORY.to_string()}},
            })
        })
        .collect::<Vec<_>>();
    let partitions = (0..PARTITIONS)
        .map(|at| {
            let size = partition_size(at);
            let counters = json!({"slots": {"value": size.to_string()}});
            json!({
                "name": format!("p{at}"),
                "attributes": kind("partition", size),
                "consumesCounters": [{"counterSet": "set", "counters": counters}],
            })
        })
        .collect::<Vec<_>>();
    let counters = json!({"slots": {"value": COUNTERS.to_string()}});
    vec![
        slice("dedicated", &json!({"allNodes": true, "devices": dedicated})),
        slice("shared", &json!({"allNodes": true, "devices": shared})),
        partitionable(&json!({"allNodes": true, "devices": partitions})),
        partitionable(&json!({
            "allNodes": true,
            "sharedCounters": [{"name": "set", "counters": counters}],
        })),
    ]
}

fn partitionable(spec: &Value) -> Value {
    let mut slice = slice("partitions", spec);
    slice["spec"]["pool"]["resourceSliceCount"] = json!(2);
    slice
}

fn exactly(request: Request) -> Value {
    let attribute = |name: &str| format!("device.attributes[\"{DRIVER}\"].{name}");
    let kind = |kind: &str| format!("{} == \"{kind}\"", attribute("kind"));
    let of = |expression: String| json!([{"cel": {"expression": expression}}]);
    match request {
        Request::Dedicated(count) => json!({"selectors": of(kind("dedicated")), "count": count}),
        Request::Share(memory) => json!({
            "selectors": of(kind("shared")),
            "capacity": {"requests": {"memory": memory.to_string()}},
        }),
        Request::Partition(size) => {
            let size = format!("{} && {} == {size}", kind("partition"), attribute("size"));
            json!({"selectors": of(size)})
        }
    }
}

/// Schedules the pods on this many threads. Some placements are withdrawn, some are bound, the others stay assumed.
fn schedule(live: &Arc<Live>, pods: &[Arc<Pod>], threads: usize) {
    let next = AtomicUsize::new(0);
    let now = Timestamp::from_secs(1);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                let mut scheduler = live.scheduler();
                let mut binding = BindingCycle::new(live.engine.clone()).unwrap();
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    let Some(pod) = pods.get(at) else { return };
                    // A pod whose devices were reserved by another thread meanwhile is tried again.
                    let placed = (0..4).find_map(|_| scheduler.schedule(pod, now).ok());
                    let Some(placement) = placed else { continue };
                    match at % 5 {
                        0 => drop(placement),
                        1 | 2 => binding.run(&placement, || now).unwrap(),
                        _ => drop(placement.keep_assumed()),
                    }
                }
            });
        }
    });
}

/// Counts the devices of all claims that are allocated or in flight. Returns how many there are.
fn check(live: &Live, claims: usize) -> usize {
    let snapshot = live.engine.reader().unwrap().snapshot();
    let known = snapshot.store::<Devices>().unwrap().claims();
    let mut memory: BTreeMap<String, Quantity> = BTreeMap::new();
    let mut users: BTreeMap<String, usize> = BTreeMap::new();
    let mut slots = 0;
    let mut allocated = 0;
    for at in 0..claims {
        let name = format!("c{at}");
        let claim = known.get(&"default".into(), &name.as_str().into()).unwrap();
        let in_flight = known.in_flight(&claim.metadata.uid).map(|of| of.allocation.clone());
        let allocation: Arc<AllocationResult> = match claim.status.allocation.clone().or(in_flight)
        {
            Some(allocation) => allocation,
            None => continue,
        };
        allocated += 1;
        for result in &allocation.devices.results {
            let device = result.device.to_string();
            let sum = memory.entry(device.clone()).or_default();
            for amount in result.consumed_capacity.values() {
                *sum = *sum + amount.quantity();
            }
            if let Some(at) = device.strip_prefix('p') {
                slots += partition_size(at.parse().unwrap());
            }
            *users.entry(device).or_default() += 1;
        }
    }
    for (device, users) in users {
        assert!(users == 1 || device.starts_with('s'), "{device} is allocated {users} times");
    }
    for (device, memory) in memory {
        assert!(memory <= Quantity::whole(MEMORY), "{device}: {memory} of memory is consumed");
    }
    assert!(slots <= COUNTERS, "{slots} counters are consumed");
    allocated
}

fn request() -> impl Strategy<Value = Request> {
    prop_oneof![
        (1_usize..3).prop_map(Request::Dedicated),
        (1_i64..8).prop_map(Request::Share),
        (1_i64..5).prop_map(Request::Partition),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn schedulers_never_overcommit(requests in prop::collection::vec(request(), 30..31)) {
        for threads in [2, 4, 8] {
            let live = Live::new(3, &slices());
            let pods: Vec<Arc<Pod>> = (requests.iter().enumerate())
                .map(|(at, request)| {
                    live.put_claim(&format!("c{at}"), &exactly(*request));
                    live.pod(&format!("p{at}"), &format!("c{at}"))
                })
                .collect();
            schedule(&live, &pods, threads);
            assert!(check(&live, requests.len()) > 0);
        }
    }
}
