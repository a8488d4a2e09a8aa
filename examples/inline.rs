//! The smallest use of the engine: one thread writes, any number of threads read.

use portolan::cache::{Config, Engine};
use portolan::model::{node, pod};
use portolan::{Algorithm, AlgorithmConfig, Framework};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (mut writer, reader) = Engine::inline(Config::default());
    for n in 0..3 {
        let zone = format!("zone-{n}");
        writer.add_node(node(format!("n{n}")).zone(zone).cpu(4_000).memory(16 << 30).build())?;
    }
    writer.publish();

    let mut scheduler =
        Algorithm::new(Framework::default_profile(), AlgorithmConfig::default(), None);
    for i in 0..14 {
        let pod = pod(format!("web-{i}")).cpu(1_000).memory(1 << 30).build();
        match scheduler.schedule(&reader.snapshot(), &pod) {
            Ok(decision) => {
                println!("{} -> {} (score {})", pod.name, decision.node, decision.score);
                writer.assume_pod(pod.on(decision.node))?;
                writer.publish();
            }
            Err(why) => println!("{}: {why}", pod.name),
        }
    }
    Ok(())
}
