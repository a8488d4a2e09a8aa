//! Simulates removing a node: its pods are placed again on a fork that no other reader sees, and the fork is compared
//! with the original snapshot.

use portolan::cache::{Config, Engine};
use portolan::model::{Pod, node, pod};
use portolan::{Algorithm, AlgorithmConfig, Framework};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (mut writer, reader) = Engine::inline(Config::default());
    for n in 0..4 {
        writer.add_node(node(format!("n{n}")).cpu(4_000).memory(16 << 30).build())?;
        for i in 0..3 {
            writer.add_pod(pod(format!("p{n}-{i}")).cpu(1_000).on(format!("n{n}")).build())?;
        }
    }
    writer.publish();

    let snapshot = reader.snapshot();
    let mut fork = snapshot.fork();
    let evicted: Vec<Pod> = match fork.node("n2") {
        Some(node) => node.pods().map(|pod| pod.to_pod()).collect(),
        None => Vec::new(),
    };
    for pod in &evicted {
        fork.remove_pod(&pod.uid)?;
    }
    fork.remove_node("n2")?;
    let mut scheduler =
        Algorithm::new(Framework::default_profile(), AlgorithmConfig::default(), None);
    for mut pod in evicted {
        pod.node_name = None;
        match scheduler.schedule(&fork, &pod) {
            Ok(decision) => {
                println!("{} would move to {}", pod.name, decision.node);
                fork.add_pod(&pod.on(decision.node))?;
            }
            Err(why) => println!("{} would wait: {why}", pod.name),
        }
    }
    for change in fork.diff(&snapshot) {
        println!("{}: {:?}", change.name, change.kind);
    }
    assert_eq!(snapshot.len(), 4, "the snapshot is unchanged");
    Ok(())
}
