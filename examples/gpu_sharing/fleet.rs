//! The nodes and pods of the simulation: openb's, or generated ones.

use std::path::Path;

use portolan::model::{Node, Pod, Quantity, node, pod};
use portolan_testkit::random::Random;

use crate::sharing::{Demand, GPU_COUNT, GPU_MILLI};

/// The total demand of the pods, as a multiple of the GPUs of all nodes.
const LOAD: f64 = 1.3;

/// The nodes, and the pods to schedule.
pub(crate) struct Fleet {
    pub(crate) name: String,
    pub(crate) nodes: Vec<Node>,
    pub(crate) pods: Vec<Pod>,
}

fn make_node(name: &str, cpu: i64, memory_mib: i64, gpus: i64) -> Node {
    let node = node(name).hostname().cpu(cpu).memory(memory_mib << 20).pods(1_001);
    let gpu = |node: portolan::model::NodeBuilder| {
        let node = node.resource(GPU_COUNT, Quantity::whole(gpus));
        node.resource(GPU_MILLI, Quantity::whole(gpus * 1_000))
    };
    if gpus > 0 { gpu(node).build() } else { node.build() }
}

fn make_pod(name: &str, cpu: i64, memory_mib: i64, milli: i64) -> Pod {
    let pod = pod(name).cpu(cpu).memory(memory_mib << 20);
    match milli {
        0 => pod.build(),
        milli => pod.request(GPU_MILLI, Quantity::whole(milli)).build(),
    }
}

impl Fleet {
    /// Reads the openb files from a directory, or generates a fleet if they do not exist.
    pub(crate) fn load(directory: &Path) -> Result<Fleet, Box<dyn std::error::Error>> {
        let nodes = directory.join("openb_node_list_all_node.csv");
        if !nodes.exists() {
            println!("no openb files in {}: using a generated fleet", directory.display());
            return Ok(Fleet::generated());
        }
        let rows = |file: &Path| -> Result<Vec<csv::StringRecord>, csv::Error> {
            csv::Reader::from_path(file)?.into_records().collect()
        };
        let nodes = rows(&nodes)?;
        let nodes = nodes
            .iter()
            .map(|row| Ok(make_node(&row[0], row[1].parse()?, row[2].parse()?, row[3].parse()?)));
        let pods = rows(&directory.join("openb_pod_list_default.csv"))?;
        let pods = pods.iter().map(|row| {
            let (gpus, milli): (i64, i64) = (row[3].parse()?, row[4].parse()?);
            Ok(make_pod(&row[0], row[1].parse()?, row[2].parse()?, gpus * milli))
        });
        let failed = |error: std::num::ParseIntError| error;
        Ok(Fleet {
            name: "openb".to_owned(),
            nodes: nodes.collect::<Result<_, _>>().map_err(failed)?,
            pods: pods.collect::<Result<_, _>>().map_err(failed)?,
        })
    }

    fn generated() -> Fleet {
        let mut random = Random::new(7);
        let nodes = (0..200).map(|n| {
            let gpus = [0, 1, 2, 4, 8][random.index(5)];
            make_node(&format!("node-{n}"), 32_000 + 8_000 * gpus, 131_072 + 32_768 * gpus, gpus)
        });
        let nodes = nodes.collect();
        let pods = (0..500).map(|n| {
            let milli = [0, 100, 300, 470, 500, 700, 1_000, 1_000, 2_000, 8_000];
            let milli = milli[random.index(10)];
            let cpu = 1_000 * (1 + random.below(8) as i64);
            make_pod(&format!("pod-{n}"), cpu, cpu * 2, milli)
        });
        Fleet { name: "a generated fleet".to_owned(), nodes, pods: pods.collect() }
    }

    pub(crate) fn gpus(&self) -> i64 {
        self.nodes.iter().filter_map(|node| node.allocatable.scalars.get(GPU_COUNT)).sum()
    }

    /// Iterates over pods in a seeded random order, with repetition, until their demand is reached.
    pub(crate) fn arrivals(&self) -> impl Iterator<Item = &Pod> {
        let enough = (self.gpus() as f64 * 1_000.0 * LOAD) as i64;
        let mut random = Random::new(42);
        let mut asked = 0;
        std::iter::from_fn(move || {
            let pod = &self.pods[random.index(self.pods.len())];
            let demand = Demand::of(&pod.template);
            let is_enough = asked >= enough;
            asked += demand.gpus * demand.milli;
            (!is_enough).then_some(pod)
        })
    }
}
