//! Memory is freed: removed objects leave nothing behind, even if an old snapshot was held in the meantime.
//!
//! The allocator counts the live bytes of each thread. An inline engine allocates and frees only on the thread of its
//! test, until it is dropped; `engine_end.rs` covers the drop.

mod own_pods;

use std::collections::VecDeque;
use std::sync::Arc;

use portolan::cache::{CommitPolicy, Config, Engine, Event, Relist, Writer};
use portolan::model::{Node, Pod, Taint, TaintEffect, Timestamp, node, pod};
use portolan_testkit::alloc::Counting;

use own_pods::{NODES, engine, own};

#[global_allocator]
static ALLOCATOR: Counting = Counting::new();

/// The number of pods. A debug build takes too long for a million, so `ci/cost.sh` runs it.
const PODS: usize = if cfg!(debug_assertions) { 40_000 } else { 1_000_000 };
/// The rounding of tables that keep their largest size.
const SLACK: i64 = 512 << 10;

/// Adds pods `from..to`, and removes each once `window` younger pods exist.
fn churn(writer: &mut Writer, from: usize, to: usize, window: usize) {
    let mut there: VecDeque<Pod> = VecDeque::new();
    let remove = |writer: &mut Writer, pod: &Pod| {
        writer.remove_pod(pod).unwrap();
    };
    for i in from..to {
        let pod = own(i);
        writer.add_pod(pod.clone()).unwrap();
        there.push_back(pod);
        if there.len() > window {
            remove(writer, &there.pop_front().unwrap());
        }
        if i % 32 == 0 {
            writer.publish();
        }
    }
    for pod in &there {
        remove(writer, pod);
    }
    writer.publish();
    writer.reclaim();
}

fn grown(what: &str, before: i64) -> i64 {
    let grown = ALLOCATOR.counts().live - before;
    println!("{what}: {grown} bytes more than before");
    grown
}

#[test]
fn short_lived_pods_with_distinct_labels_leave_nothing() {
    let mut writer = engine();
    churn(&mut writer, 0, 5_000, 1_000);
    let before = ALLOCATOR.counts().live;
    churn(&mut writer, 5_000, 5_000 + PODS, 1_000);
    let grown = grown("a window of 1,000 pods", before);
    assert!(grown <= SLACK, "{grown} bytes left by {PODS} pods");
}

#[test]
fn pods_removed_after_a_peak_leave_nothing() {
    let mut writer = engine();
    churn(&mut writer, 0, 5_000, 1_000);
    let before = ALLOCATOR.counts().live;
    // The pods of a node are searched one by one, so there are more nodes.
    for n in NODES..PODS / 32 {
        writer.add_node(node(format!("n{n}")).build()).unwrap();
    }
    let spread = |i: usize| own(i).on(format!("n{}", i % (PODS / 32)));
    for i in 0..PODS {
        writer.add_pod(spread(i)).unwrap();
        if i % 32 == 0 {
            writer.publish();
        }
    }
    writer.publish();
    assert_eq!(writer.cluster().pod_count(), PODS);
    for i in 0..PODS {
        writer.remove_pod(&spread(i)).unwrap();
        if i % 32 == 0 {
            writer.publish();
        }
    }
    for n in NODES..PODS / 32 {
        writer.remove_node(format!("n{n}")).unwrap();
    }
    writer.publish();
    writer.reclaim();
    // The ordinary cost of changes after the peak, including the first search of free slots.
    churn(&mut writer, PODS, PODS + 5_000, 1_000);
    // The last 4,096 removed nodes are remembered by name.
    let remembered = 4_096 * 256;
    let grown = grown("all pods at once", before) - remembered;
    assert!(grown <= SLACK, "{grown} bytes left by {PODS} pods");
}

#[test]
fn a_snapshot_that_was_held_meanwhile_leaves_nothing() {
    let mut writer = engine();
    churn(&mut writer, 0, 5_000, 1_000);
    let before = ALLOCATOR.counts().live;
    let held = writer.snapshot();
    let dump = held.dump();
    churn(&mut writer, 5_000, 5_000 + PODS / 2, 1_000);
    assert_eq!(writer.figures().oldest_held, held.generation());
    assert_eq!(held.dump(), dump);
    drop((held, dump));
    writer.reclaim();
    churn(&mut writer, 5_000 + PODS / 2, 10_000 + PODS / 2, 1_000);
    let figures = writer.figures();
    assert_eq!(figures.retired, 0, "{figures:?}");
    let grown = grown("a snapshot held", before);
    assert!(grown <= SLACK, "{grown} bytes left by {} pods", PODS / 2);
}

#[test]
fn publishes_alone_free_a_held_snapshot() {
    let mut writer = engine();
    churn(&mut writer, 0, 5_000, 1_000);
    let before = ALLOCATOR.counts().live;
    let held = writer.snapshot();
    churn(&mut writer, 5_000, 5_000 + PODS / 2, 1_000);
    drop(held);
    // Nothing is reclaimed explicitly: each publish frees its share.
    let mut publishes = 0;
    while writer.figures().backlog > 0 || writer.figures().retired > 0 || publishes < PODS / 16 {
        let pod = own(publishes);
        writer.add_pod(pod.clone()).unwrap();
        writer.publish();
        writer.remove_pod(&pod).unwrap();
        writer.publish();
        publishes += 2;
        assert!(publishes < 10 * PODS, "{:?}", writer.figures());
    }
    let grown = grown("a snapshot held, and publishes after it", before);
    assert!(grown <= SLACK, "{grown} bytes left by {} pods", PODS / 2);
}

#[test]
fn a_snapshot_held_among_short_lived_pods_leaves_nothing() {
    let mut writer = engine();
    churn(&mut writer, 0, 20_000, 1_000);
    let (mut there, mut before) = (VecDeque::new(), 0);
    let mut step = |writer: &mut Writer, i: usize| {
        writer.add_pod(own(i)).unwrap();
        there.push_back(own(i));
        if there.len() > 4_000 {
            writer.remove_pod(&there.pop_front().unwrap()).unwrap();
        }
        writer.publish();
    };
    for i in 20_000..40_000 {
        step(&mut writer, i);
        before = ALLOCATOR.counts().live;
    }
    let held = writer.snapshot();
    (40_000..40_000 + PODS).for_each(|i| step(&mut writer, i));
    drop(held);
    (40_000 + PODS..80_000 + PODS).for_each(|i| step(&mut writer, i));
    writer.reclaim();
    let grown = grown("a snapshot held meanwhile, 4,000 pods all the time", before);
    assert!(grown <= SLACK, "{grown} bytes left");
}

#[test]
fn a_loaded_node_takes_at_most_500_bytes() {
    const COUNT: usize = 64 * 64 * 3;
    let (mut writer, _reader) = Engine::inline(Config::default());
    let before = ALLOCATOR.counts().live;
    let nodes = (0..COUNT).map(|i| {
        node(format!("node-{i:07}")).hostname().zone(format!("zone-{}", i % 3)).cpu(4_000).build()
    });
    let none: [Pod; 0] = [];
    assert_eq!(writer.load([], nodes, none).added, COUNT);
    writer.publish();
    writer.reclaim();
    let taken = grown("nodes with equal labels", before) / COUNT as i64;
    assert!((300..=500).contains(&taken), "{taken} bytes per node");
}

/// Adds and removes pods while a snapshot from before is held, and returns the bytes that remain for each.
fn bytes_per_removed_pod(made: impl Fn(usize) -> Pod) -> i64 {
    let mut writer = engine();
    (0..1_000).for_each(|i| assert!(writer.add_pod(made(i)).is_ok()));
    writer.publish();
    let held = writer.snapshot();
    let before = ALLOCATOR.counts().live;
    for i in 0..PODS {
        writer.add_pod(made(1_000 + i)).unwrap();
        writer.remove_pod(&made(i)).unwrap();
        if i % 32 == 0 {
            writer.publish();
        }
    }
    writer.publish();
    let each = (ALLOCATOR.counts().live - before) / PODS as i64;
    drop(held);
    each
}

#[test]
fn a_held_snapshot_keeps_the_documented_bytes_for_each_removed_pod() {
    let equal = bytes_per_removed_pod(|i| uuid(i).on(format!("n{}", i % NODES)));
    let distinct = bytes_per_removed_pod(own);
    println!("a held snapshot keeps {equal} bytes for a removed pod, {distinct} with own labels");
    assert!((25..=45).contains(&equal), "{equal} bytes");
    assert!((120..=200).contains(&distinct), "{distinct} bytes");
}

/// Loads pods of one template, without and with an index of names, and returns the bytes that each takes.
fn bytes_per_pod(pod_names: bool) -> f64 {
    const COUNT: usize = 60_000;
    let (mut writer, _reader) = Engine::inline(Config { pod_names, ..Config::default() });
    let nodes = (0..COUNT / 30).map(|n| node(format!("n{n}")).build());
    writer.load([], nodes, None::<Pod>);
    writer.publish();
    let before = ALLOCATOR.counts().live;
    for i in 0..COUNT {
        writer.add_pod(uuid(i).on(format!("n{}", i / 30))).unwrap();
    }
    writer.publish();
    writer.reclaim();
    (ALLOCATOR.counts().live - before) as f64 / COUNT as f64
}

/// A pod whose uid is a UUID. All of them share a template.
fn uuid(i: usize) -> Pod {
    let uid = format!("{:08x}-1234-4567-89ab-{i:012x}", (i as u32).wrapping_mul(0x9e37_79b9));
    pod(format!("web-{i:08}")).uid(uid).build()
}

#[test]
fn an_index_of_names_takes_at_most_20_bytes_per_pod() {
    let [without, with] = [false, true].map(bytes_per_pod);
    println!("bytes per pod: {without:.1} without names, {with:.1} with");
    assert!((8.0..=20.0).contains(&(with - without)), "{without} without names, {with} with");
}

#[test]
fn nodes_with_equal_labels_share_them_unless_somebody_else_holds_the_node() {
    fn labelled(name: &str) -> Arc<Node> {
        Arc::new(node(name).hostname().zone("z").label("pool", "a").build())
    }
    let held = labelled("held");
    let engine =
        Engine::shared(Config { commit_check: CommitPolicy::Unchecked, ..Config::default() });
    for added in [labelled("n1"), labelled("n2"), held.clone()] {
        engine.submit(Event::AddNode(added)).unwrap().wait().unwrap().unwrap();
    }
    let updated = node("n1").hostname().zone("z").label("pool", "a").cpu(1).build();
    engine.submit(Event::update_node(updated)).unwrap().wait().unwrap().unwrap();
    let listed = ["n1", "n2", "n3", "n4"].map(labelled).to_vec();
    let relist = Event::Relist(Relist::Nodes([listed, vec![held.clone()]].concat()).into());
    engine.submit(relist).unwrap().wait().unwrap().unwrap();
    let snapshot = engine.reader().unwrap().snapshot();
    let zone = |name: &str| &snapshot.node(name).unwrap().node().unwrap().zone.zone;
    assert!(["n2", "n3", "n4"].iter().all(|name| Arc::ptr_eq(zone("n1"), zone(name))));
    assert!(!Arc::ptr_eq(zone("held"), zone("n1")));
    assert!(Arc::ptr_eq(zone("held"), &held.zone.zone));
    assert_eq!(snapshot.audit(), vec![]);
}

#[test]
fn nodes_of_a_first_list_share_equal_labels() {
    const COUNT: usize = 64 * 64;
    let nodes = |pool: &dyn Fn(usize) -> usize| -> Vec<Arc<Node>> {
        let long = "p".repeat(200);
        (0..COUNT)
            .map(|i| node(format!("node-{i}")).label("pool", format!("{long}{}", pool(i))).build())
            .map(Arc::new)
            .collect()
    };
    let taken = |nodes: Vec<Arc<Node>>| {
        let (mut writer, _reader) = Engine::inline(Config::default());
        let listed = ALLOCATOR.counts().live;
        writer.relist(Relist::Nodes(nodes)).unwrap();
        writer.publish();
        writer.reclaim();
        grown("a list", listed)
    };
    let (equal, distinct) = (taken(nodes(&|i| i % 2)), taken(nodes(&|i| i)));
    let saved = (distinct - equal) / COUNT as i64;
    assert!(saved >= 200, "{saved} bytes per node");
}

#[test]
fn short_lived_nodes_with_distinct_fields_leave_nothing() {
    fn own(i: usize) -> Node {
        node(format!("node-{i}"))
            .hostname()
            .zone(format!("zone-{}", i % 7_000))
            .label("own", format!("label-{i}"))
            .taint(Taint::new(format!("taint-{i}"), "v", TaintEffect::NoSchedule))
            .image([format!("image-{i}")], 1)
            .resource(format!("example.com/r{i}"), portolan::model::Quantity::whole(1))
            .build()
    }
    fn churn(writer: &mut Writer, from: usize, to: usize) {
        for i in from..to {
            writer.add_node(own(i)).unwrap();
            if i >= from + 500 {
                writer.remove_node(format!("node-{}", i - 500)).unwrap();
            }
            if i % 32 == 0 {
                writer.publish();
            }
        }
        for i in to - 500..to {
            writer.remove_node(format!("node-{i}")).unwrap();
        }
        writer.publish();
        writer.reclaim();
    }
    let mut writer = engine();
    // Continue past the 4,096 removals that are remembered.
    churn(&mut writer, 100_000, 110_000);
    let before = ALLOCATOR.counts().live;
    churn(&mut writer, 110_000, 110_000 + PODS / 2);
    let grown = grown("nodes", before);
    assert!(grown <= SLACK, "{grown} bytes left by {} nodes", PODS / 2);
}

#[test]
fn expired_pods_leave_nothing() {
    let config =
        Config { assumed_ttl: Some(std::time::Duration::from_secs(1)), ..Config::default() };
    let (mut writer, _) = Engine::inline(config);
    writer.add_node(node("n0").build()).unwrap();
    let mut clock = 0;
    let mut churn = |writer: &mut Writer, from: usize, to: usize| {
        for i in from..to {
            let pod = Arc::new(own(i).on("n0"));
            writer.assume_pod(pod.clone()).unwrap();
            writer.apply(&Event::finish_binding(&pod.uid, Timestamp::from_secs(clock))).unwrap();
            if i % 64 == 63 {
                clock += 10;
                writer.expire(Timestamp::from_secs(clock)).unwrap();
                writer.publish();
            }
        }
        clock += 10;
        writer.expire(Timestamp::from_secs(clock)).unwrap();
        writer.publish();
        writer.reclaim();
        assert_eq!(writer.cluster().pod_count(), 0);
    };
    churn(&mut writer, 0, 5_000);
    let before = ALLOCATOR.counts().live;
    churn(&mut writer, 5_000, 5_000 + PODS / 2);
    let grown = grown("expiry", before);
    assert!(grown <= SLACK, "{grown} bytes left by {} pods", PODS / 2);
}
