//! Measures publishing in two cases that are hard on the writer: beside readers that fork continuously, and after
//! dropping a version that was held while every pod was replaced.
//!
//! ```text
//! cargo run --release --example worst_cases [NODES]    # default 100,000; 1,000,000 takes 2 GB
//! ```

use std::error::Error;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use portolan::cache::{Config, Engine, Reader, Writer};
use portolan::model::{Pod, node, pod};
use portolan_testkit::measure::Sorted;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> Result<(), Box<dyn Error>> {
    let nodes = std::env::args().nth(1).map_or(Ok(100_000), |nodes| nodes.parse())?;
    for forkers in [0, 1, 6] {
        beside_forkers(forkers)?;
    }
    after_a_held_version(nodes)
}

fn filled(nodes: usize) -> Result<(Writer, Reader), Box<dyn Error>> {
    let (mut writer, reader) = Engine::inline(Config::default());
    for n in 0..nodes {
        writer.add_node(node(format!("n{n}")).cpu(64_000).memory(1 << 40).build())?;
        if n % 1_000 == 0 {
            writer.publish();
        }
    }
    writer.publish();
    Ok((writer, reader))
}

fn on(name: String, node: usize) -> Pod {
    pod(name).cpu(1).on(format!("n{node}")).build()
}

fn timed_publish(writer: &mut Writer) -> Duration {
    let start = Instant::now();
    writer.publish();
    start.elapsed()
}

/// Publishes for five seconds beside `forkers` threads, each of which forks, adds a pod and drops the fork in a loop.
fn beside_forkers(forkers: usize) -> Result<(), Box<dyn Error>> {
    const NODES: usize = 5_000;
    const STAY: usize = 20_000;
    let (mut writer, reader) = filled(NODES)?;
    let ends = AtomicBool::new(false);
    let took = std::thread::scope(|scope| {
        for thread in 0..forkers {
            let (reader, ends) = (reader.clone(), &ends);
            scope.spawn(move || {
                for turn in 0.. {
                    if ends.load(Ordering::Relaxed) {
                        break;
                    }
                    let mut fork = reader.snapshot().fork();
                    // Cannot fail: the pod is new and its node exists.
                    let _ = fork.add_pod(&on(format!("fork-{thread}-{turn}"), turn % NODES));
                }
            });
        }
        let took = publishes(&mut writer, NODES, STAY);
        ends.store(true, Ordering::Relaxed);
        took
    })?;
    print(&format!("publish beside {forkers} forking threads"), &took);
    Ok(())
}

fn publishes(
    writer: &mut Writer,
    nodes: usize,
    stay: usize,
) -> Result<Sorted<Duration>, portolan::model::EventError> {
    let (started, mut took) = (Instant::now(), Vec::new());
    for turn in 0.. {
        if started.elapsed() > Duration::from_secs(5) {
            break;
        }
        writer.add_pod(on(format!("pod-{turn}"), turn % nodes))?;
        took.push(timed_publish(writer));
        if let Some(old) = turn.checked_sub(stay) {
            writer.remove_pod(&on(format!("pod-{old}"), old % nodes))?;
        }
    }
    Ok(Sorted::new(took))
}

/// Replaces every pod while a version is held, drops that version, and then publishes 20,000 times.
fn after_a_held_version(nodes: usize) -> Result<(), Box<dyn Error>> {
    let (mut writer, reader) = filled(nodes)?;
    for n in 0..nodes {
        writer.add_pod(on(format!("old-{n}"), n))?;
    }
    writer.publish();
    let held = reader.snapshot();
    for n in 0..nodes {
        writer.remove_pod(&on(format!("old-{n}"), n))?;
        writer.add_pod(on(format!("new-{n}"), n))?;
        if n % 100 == 0 {
            writer.publish();
        }
    }
    writer.publish();
    drop(held);
    let mut took = Vec::new();
    for turn in 0..20_000 {
        writer.add_pod(on(format!("more-{turn}"), turn % nodes))?;
        took.push(timed_publish(&mut writer));
    }
    print(&format!("publish after a held version of {nodes} nodes is dropped"), &Sorted::new(took));
    Ok(())
}

fn print(what: &str, took: &Sorted<Duration>) {
    let [median, late, longest] = [0.5, 0.999, 1.0].map(|share| took.quantile(share));
    println!("{what}: p50 {median:?}, p99.9 {late:?}, longest {longest:?}");
}
