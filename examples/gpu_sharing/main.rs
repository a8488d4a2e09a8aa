//! A complete custom plugin with Filter, Score and Reserve: pods share GPUs on the nodes of a real cluster, compared
//! with kube-scheduler's default profile.
//!
//! ```text
//! cargo run --release --example gpu_sharing [-- DIRECTORY]
//! ```
//!
//! The directory must contain the openb files `openb_node_list_all_node.csv` and `openb_pod_list_default.csv`. If they
//! do not exist, a generated fleet is used. Pods arrive in a seeded random order, with repetition, until they have
//! requested 1.3 times the GPUs of all nodes. No pod leaves, and a pod that cannot be placed is dropped.

mod fleet;
mod sharing;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Instant;

use portolan::cache::{Cluster, Config, Engine};
use portolan::model::{Pod, Uid};
use portolan::plugin::{Cycle, Handle, Point};
use portolan::{Algorithm, AlgorithmConfig, Framework, plugin};

use fleet::Fleet;
use sharing::{Demand, GpuSharing, Room};

/// Which extension points of the plugin are used.
#[derive(Clone, Copy, PartialEq)]
enum Devices {
    /// None: only the sum of a node's GPUs is checked.
    Ignored,
    /// The filter: pods need capacity on single GPUs, and scores are the default ones.
    Filtered,
    /// The filter and the score: pods are also placed where they leave the fewest fragments.
    Packed,
}

/// Returns the kinds of GPU pods with their share of all GPU pods. Pods are of one kind if they request the same number
/// of GPUs, about the same fraction of each, and about the same cpu.
fn expected(pods: &[Pod]) -> Vec<(Demand, f64)> {
    let mut kinds: BTreeMap<(i64, i64, u32), Vec<Demand>> = BTreeMap::new();
    for demand in pods.iter().map(|pod| Demand::of(&pod.template)).filter(|d| d.gpus > 0) {
        let kind = (demand.gpus, demand.milli / 100, demand.cpu.max(1).ilog2());
        kinds.entry(kind).or_default().push(demand);
    }
    let all: usize = kinds.values().map(Vec::len).sum();
    let mean = |of: &[Demand], what: fn(&Demand) -> i64| {
        of.iter().map(what).sum::<i64>() / of.len() as i64
    };
    let kinds = kinds.values().map(|of| {
        let demand = Demand {
            cpu: mean(of, |demand| demand.cpu),
            memory: mean(of, |demand| demand.memory),
            gpus: of[0].gpus,
            milli: mean(of, |demand| demand.milli),
        };
        (demand, of.len() as f64 / all as f64)
    });
    kinds.collect()
}

fn framework(devices: Devices, pods: &[Pod]) -> Result<Framework, Box<dyn std::error::Error>> {
    let handle = Handle::default();
    if devices == Devices::Ignored {
        return Ok(Framework::default_profile_with(&handle));
    }
    // Prefers the fuller one of two nodes that the plugin scores equally.
    let fuller = plugin::NodeResourcesFit {
        strategy: plugin::ScoringStrategy::MostAllocated,
        resources: [sharing::GPU_MILLI, "cpu", "memory"]
            .map(|name| plugin::ResourceWeight { name: name.into(), weight: 1 })
            .into(),
        ..plugin::NodeResourcesFit::default()
    };
    let fit = match devices {
        Devices::Packed => fuller,
        _ => plugin::NodeResourcesFit::default(),
    };
    // The filters and scores that are relevant for these pods and nodes.
    let framework = Framework::new(vec![
        (plugin::default_plugin("NodeUnschedulable", &handle).ok_or("no such plugin")?, 0),
        (plugin::default_plugin("TaintToleration", &handle).ok_or("no such plugin")?, 3),
        (Box::new(plugin::NodeAffinity::default()), 2),
        (Box::new(fit), 1),
        (Box::new(plugin::NodeResourcesBalancedAllocation::default()), 1),
        (Box::new(GpuSharing::new(expected(pods))), 20),
    ])
    .expect("the names and weights are valid");
    let scores: &[&str] = match devices {
        Devices::Packed => &["GpuSharing", "NodeResourcesFit"],
        _ => &[
            "TaintToleration",
            "NodeAffinity",
            "NodeResourcesFit",
            "NodeResourcesBalancedAllocation",
        ],
    };
    Ok(framework.with_handle(handle).with_plugins_at(Point::Score, scores)?)
}

/// Requested percentages of all GPUs at which the allocation is recorded.
const STEPS: [i64; 4] = [80, 90, 100, 130];

/// The outcome of one run.
struct Outcome {
    placed: usize,
    failed: usize,
    /// The thousandths of GPUs allocated when the requests reached each of [`STEPS`].
    allocated: Vec<i64>,
    fragments: f64,
    seconds: f64,
}

fn run(fleet: &Fleet, devices: Devices) -> Result<Outcome, Box<dyn std::error::Error>> {
    let (mut writer, reader) = Engine::inline(Config::default());
    for node in &fleet.nodes {
        writer.add_node(node.clone())?;
    }
    writer.publish();
    let config = AlgorithmConfig { percentage_of_nodes: 100, seed: 1 };
    let mut scheduler = Algorithm::new(framework(devices, &fleet.pods)?, config, None);
    let (mut placed, mut failed) = (0, 0);
    let (mut asked, mut taken, mut allocated) = (0, 0, Vec::new());
    let start = Instant::now();
    for (number, pod) in fleet.arrivals().enumerate() {
        let demand = Demand::of(&pod.template);
        let wants = demand.gpus * demand.milli;
        asked += wants;
        if let Some(step) = STEPS.get(allocated.len())
            && asked >= fleet.gpus() * 10 * step
        {
            allocated.push(taken);
        }
        let name = format!("{}-{number}", pod.name);
        let pod = Pod { uid: Uid::new(&name), name: name.into(), ..pod.clone() };
        let snapshot = reader.snapshot();
        let state = scheduler.state();
        let cycle = Cycle::new(&snapshot, &pod, &state);
        let Ok(decision) = scheduler.decide(cycle) else {
            failed += 1;
            continue;
        };
        // Reserve chooses the devices, which become a label of the assumed pod.
        scheduler.framework().reserve(cycle, &decision.node)?;
        writer.assume_pod(GpuSharing::with_devices(pod.clone(), cycle).on(decision.node))?;
        writer.publish();
        placed += 1;
        taken += wants;
    }
    let seconds = start.elapsed().as_secs_f64();
    let cluster: &Cluster = writer.cluster();
    allocated.resize(STEPS.len(), taken);
    let sharing = GpuSharing::new(expected(&fleet.pods));
    Ok(Outcome {
        placed,
        failed,
        allocated,
        fragments: cluster.nodes().map(|node| sharing.fragmentation(&Room::on(node))).sum(),
        seconds,
    })
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let given = std::env::args_os().nth(1).map(PathBuf::from);
    let beside = || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../shared/data/openb");
    let fleet = Fleet::load(&given.unwrap_or_else(beside))?;
    let gpus = fleet.gpus();
    println!(
        "{}: {} nodes with {gpus} GPUs, {} pods arrive",
        fleet.name,
        fleet.nodes.len(),
        fleet.arrivals().count()
    );
    let steps: String = STEPS.iter().map(|step| format!("{:>8}", format!("{step} %"))).collect();
    println!("{:38} {:>7} {:>7}   GPUs allocated when requests reached", "", "placed", "failed");
    println!("{:38} {:>7} {:>7} {steps} {:>16} {:>8}", "", "", "", "idle, unusable", "pods/s");
    for (name, devices) in [
        ("default profile, sum per node (*)", Devices::Ignored),
        ("default profile's scores, per device", Devices::Filtered),
        ("GpuSharing's score, per device", Devices::Packed),
    ] {
        let found = run(&fleet, devices)?;
        let part = |milli: &i64| format!("{:>6.1} %", *milli as f64 / 10.0 / gpus as f64);
        let allocated: String = found.allocated.iter().map(part).collect();
        let idle = gpus as f64 * 1e3 - found.allocated.last().copied().unwrap_or(0) as f64;
        let useless = match devices {
            Devices::Ignored => "-".to_owned(),
            _ => format!("{:.1} %", found.fragments * 100.0 / idle.max(1e-9)),
        };
        println!(
            "{name:38} {:>7} {:>7} {allocated} {useless:>16} {:>8.0}",
            found.placed,
            found.failed,
            (found.placed + found.failed) as f64 / found.seconds,
        );
    }
    println!(
        "(*) counts two half-free GPUs as one free GPU: some pods could not start on their nodes"
    );
    Ok(())
}
