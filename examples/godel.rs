//! A day of two Gödel schedulers on one engine: partitions of the nodes, a gang, a reservation that survives a restart,
//! and a movement. The example prints what an old snapshot and the current one contain.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use portolan::cache::{Cluster, Config, Engine, Event, GodelConfig, Outcome, Relist};
use portolan::model::{
    GodelPod, Movement, MovementOwner, Object, ObjectKind, OwnerKey, OwnerReference, Pod,
    PodBuilder, PodGroup, RecommendedNode, Reservation, Timestamp, node, pod,
};
use portolan::plugin::{Partition, Preferred};
use portolan::scheduler::FilterCheck;
use portolan::{Algorithm, AlgorithmConfig, Framework, Profiles, Scheduler};

const NOW: Timestamp = Timestamp(0);

fn engine() -> Engine {
    let check = FilterCheck::new(Profiles::one(Arc::new(Framework::default_profile())));
    let godel = GodelConfig {
        reservations: Some(Duration::from_secs(60)),
        movements: true,
        preemption_marks: true,
        ..GodelConfig::new("godel-scheduler")
    };
    Engine::shared(Config { godel: Some(godel), commit_check: check.into(), ..Config::default() })
}

/// Creates a scheduler that tries the nodes of its own partition before the others.
fn scheduler(engine: &Engine, name: &str) -> Result<Scheduler, Box<dyn Error>> {
    let scheduler = Algorithm::new(Framework::default_profile(), AlgorithmConfig::default(), None)
        .with_partition(Partition::Scheduler(name.into()));
    Ok(Scheduler::new(engine.clone(), Profiles::one(scheduler))?)
}

fn submit(engine: &Engine, event: Event) -> Outcome {
    match engine.submit(event) {
        Ok(ticket) => ticket.wait().unwrap_or_else(|closed| panic!("the engine is open: {closed}")),
        Err(closed) => panic!("the engine is open: {closed}"),
    }
}

/// Prints the nodes with their pods, one line each.
fn show(who: &str, cluster: &Cluster) {
    println!("  {who} (generation {})", cluster.generation());
    for node in cluster.nodes() {
        let mut pods: Vec<&str> = node.pods().map(|pod| pod.name()).collect();
        pods.sort_unstable();
        let of: Vec<&str> = node.schedulers().map(|name| &**name).collect();
        println!("    {} (of {}): {}", node.name(), of.join(", "), pods.join(" "));
    }
}

/// Schedules a pod, and prints its node and why it was preferred.
fn placed(scheduler: &mut Scheduler, pod: Pod) -> Result<Arc<Pod>, Box<dyn Error>> {
    let placement = scheduler.schedule(&Arc::new(pod), NOW)?;
    let why = match &placement.decision.preferred {
        Some(Preferred::Place(holder)) => format!(", on the reservation of {holder}"),
        Some(Preferred::Movement(name)) => format!(", as recommended by movement {name}"),
        _ => String::new(),
    };
    println!("  {} is placed on {}{why}", placement.pod.name, placement.node());
    // Confirms the pod, as the API server would after the binding.
    let pod = placement.keep_assumed();
    submit(scheduler.engine(), Event::AddPod(pod.clone()))?;
    Ok(pod)
}

fn small(name: impl Into<portolan::model::Name>) -> PodBuilder {
    pod(name).cpu(1_000).memory(1 << 30)
}

fn main() -> Result<(), Box<dyn Error>> {
    let engine = engine();
    for (name, of) in [("red-0", "red"), ("red-1", "red"), ("blue-0", "blue"), ("blue-1", "blue")] {
        let node = node(name).hostname().scheduler(of).cpu(4_000).memory(16 << 30).build();
        submit(&engine, Event::AddNode(Arc::new(node)))?;
    }
    let mut red = scheduler(&engine, "red")?;
    let mut blue = scheduler(&engine, "blue")?;
    let reader = engine.reader()?;
    let morning = reader.snapshot();

    println!("two partitions: each scheduler fills its own nodes first");
    for n in 0..2 {
        placed(&mut red, small(format!("red-pod-{n}")).build())?;
        placed(&mut blue, small(format!("blue-pod-{n}")).build())?;
    }

    println!("a gang of 7: pods that do not fit on red's nodes are placed on blue's, all or none");
    let group = PodGroup::new("default", "training", 7);
    submit(&engine, Event::PutObject(group.into()))?;
    let gang = |size: usize, cpu: i64| -> Vec<Arc<Pod>> {
        let member = |n| pod(format!("worker-{n}")).group("training").cpu(cpu).build();
        (0..size).map(|n| Arc::new(member(n))).collect()
    };
    let before = reader.snapshot();
    if let Err(why) = red.schedule_gang(&gang(7, 3_000), 7, NOW) {
        println!("  7 workers of 3 cores: {why}");
    }
    let after = reader.snapshot();
    println!("  the failed gang left no trace: {}", after.diff(&before).is_empty());
    for placement in red.schedule_gang(&gang(7, 1_000), 7, NOW)?.placed {
        println!("  {} is placed on {}", placement.pod.name, placement.node());
        submit(&engine, Event::AddPod(placement.keep_assumed()))?;
    }

    println!("web-0 is deleted and leaves a reservation");
    let reserves = GodelPod { reserves: true, ..GodelPod::default() };
    let web = |name: &str| small(name).label("name", "web");
    let old = web("web-0").spec(|spec| spec.godel = Some(Box::new(reserves))).build();
    let old = placed(&mut blue, old)?;
    submit(&engine, Event::RemovePod { uid: old.uid.clone(), node: None })?;
    let reservation = Object::from(Reservation::of(&old));
    submit(&engine, Event::PutObject(reservation.clone()))?;
    show("now", &reader.snapshot());

    println!("the scheduler restarts and relists everything");
    let last = reader.snapshot();
    let engine = self::engine();
    let pods = last.nodes().flat_map(|node| node.pods()).map(|pod| pod.to_pod());
    // Placeholders are restored from the Reservation, not from pods.
    let pods: Vec<Pod> = pods.filter(|pod| !pod.template.is_placeholder()).collect();
    let nodes = last.nodes().filter_map(|node| node.kubelet_node().cloned()).collect();
    for relist in [
        Relist::Objects(ObjectKind::Reservation, vec![reservation]),
        Relist::Pods(pods),
        Relist::Nodes(nodes),
    ] {
        submit(&engine, Event::Relist(Arc::new(relist)))?;
    }
    let reader = engine.reader()?;
    println!("  same state as before: {}", reader.snapshot().dump().nodes == last.dump().nodes);
    let (mut red, mut blue) = (scheduler(&engine, "red")?, scheduler(&engine, "blue")?);
    placed(&mut red, web("web-1").build())?;

    println!("a rescheduler recommends blue-1 for two pods of api");
    let owner = OwnerReference {
        api_version: "apps/v1".into(),
        kind: "ReplicaSet".into(),
        name: "api".into(),
        uid: "api".into(),
        controller: true,
    };
    let api = |name: &str| small(name).cpu(100).spec(|spec| spec.owners = [owner.clone()].into());
    let key = OwnerKey {
        kind: owner.kind.clone(),
        namespace: "default".into(),
        name: owner.name.clone(),
        uid: owner.uid.clone(),
    };
    let to = RecommendedNode { node: "blue-1".into(), desired: 2, actual: Box::default() };
    let movement = Movement {
        name: "defragment".into(),
        owners: [MovementOwner { owner: key.clone(), nodes: [to].into() }].into(),
        ..Movement::default()
    };
    submit(&engine, Event::PutObject(movement.into()))?;
    for name in ["api-0", "api-1", "api-2"] {
        placed(&mut red, api(name).build())?;
    }
    placed(&mut blue, small("blue-pod-2").cpu(100).build())?;

    println!("at the end");
    let now = reader.snapshot();
    show("the first snapshot", &morning);
    show("the current snapshot", &now);
    let wanted = now.movements().map(|movements| movements.available_nodes(&key));
    println!("  {} nodes still await pods of api", wanted.map_or(0, |nodes| nodes.len()));
    println!("  the audit found {} differences", now.audit().len());
    Ok(())
}
