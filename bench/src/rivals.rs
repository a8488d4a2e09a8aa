//! Other ways to make a change visible to readers, measured in this process on the same
//! work: `RwLock<HashMap>` with all values cloned (as in a reflector's store), and a flat
//! `Vec<Arc<NodeInfo>>` copied for each version.

use std::collections::HashMap;
use std::hint::black_box;
use std::sync::{Arc, RwLock};
use std::time::{Duration, Instant};

use portolan::Writer;
use portolan::model::{Pod, pod};
use serde_json::{Value, json};

use portolan_cli::Failure;

use portolan_cli::Random;

/// The rivals' node.
#[derive(Clone)]
struct NodeInfo {
    cpu: i64,
    pods: Vec<u32>,
}

const ROUNDS: usize = 201;

/// Times until one changed pod is visible to readers, and the rivals' times as
/// multiples of portolan's; rounds alternate.
pub(super) fn run(
    writer: &mut Writer,
    nodes: usize,
    per_node: usize,
    seed: u64,
) -> Result<Value, Failure> {
    let mut random = Random::new(seed);
    let info = || NodeInfo { cpu: 0, pods: (0..per_node as u32).collect() };
    let store: RwLock<HashMap<u32, Arc<NodeInfo>>> =
        RwLock::new((0..nodes as u32).map(|n| (n, Arc::new(info()))).collect());
    let flat: RwLock<Arc<Vec<Arc<NodeInfo>>>> =
        RwLock::new(Arc::new((0..nodes).map(|_| Arc::new(info())).collect()));
    let poisoned = |_| Failure::Panicked("the holder of a lock");
    let mut times: [Vec<Duration>; 3] = Default::default();
    for round in 0..ROUNDS {
        let n = random.below(nodes.max(1) as u64) as usize;
        let add = |old: &NodeInfo| {
            let mut new = old.clone();
            new.cpu += 100;
            new.pods.push(round as u32);
            Arc::new(new)
        };
        for rival in 0..3 {
            match (rival + round) % 3 {
                0 => {
                    let pod: Pod =
                        pod(format!("rival-{round}")).cpu(100).on(format!("node-{n:07}")).build();
                    let started = Instant::now();
                    let assumed = writer.assume_pod(pod);
                    writer.publish();
                    times[0].push(started.elapsed());
                    assumed.map_err(|error| Failure::Refused {
                        object: "a benchmark pod".to_owned(),
                        error,
                    })?;
                }
                1 => {
                    let started = Instant::now();
                    let mut map = store.write().map_err(|_| poisoned(()))?;
                    let new = map.get(&(n as u32)).map(|old| add(old));
                    map.extend(new.map(|new| (n as u32, new)));
                    drop(map);
                    // A reader of such a store clones all values for a consistent view.
                    let view: Vec<Arc<NodeInfo>> =
                        store.read().map_err(|_| poisoned(()))?.values().cloned().collect();
                    black_box(&view);
                    times[1].push(started.elapsed());
                }
                _ => {
                    let started = Instant::now();
                    let mut next = Vec::clone(&*flat.read().map_err(|_| poisoned(()))?);
                    next[n] = add(&next[n]);
                    let old = std::mem::replace(
                        &mut *flat.write().map_err(|_| poisoned(()))?,
                        next.into(),
                    );
                    drop(old);
                    times[2].push(started.elapsed());
                }
            }
        }
    }
    let ratio = |rival: usize| {
        let mut ratios: Vec<f64> = times[rival]
            .iter()
            .zip(&times[0])
            .map(|(theirs, ours)| theirs.as_secs_f64() / ours.as_secs_f64().max(1e-9))
            .collect();
        ratios.sort_by(f64::total_cmp);
        let at = |part: usize| ratios[(ratios.len() - 1) * part / 10];
        json!({ "p10": at(1), "p50": at(5), "p90": at(9) })
    };
    let micros = |times: &[Duration]| {
        let mut times = times.to_vec();
        times.sort();
        let at = |percent: usize| times[(times.len() - 1) * percent / 100].as_secs_f64() * 1e6;
        json!({ "p50": at(50), "p99": at(99), "max": at(100) })
    };
    Ok(json!({
        "assume_publish_us": micros(&times[0]),
        "rwlock_hashmap_cloned_us": micros(&times[1]),
        "flat_vec_of_arcs_us": micros(&times[2]),
        "rwlock_hashmap_cloned_ratio": ratio(1),
        "flat_vec_of_arcs_ratio": ratio(2),
    }))
}
