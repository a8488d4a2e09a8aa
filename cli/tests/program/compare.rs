//! `portolan compare` draws the runs of several configurations together.

use crate::common::{file, portolan};
use crate::pages::recorded;
use serde_json::{Value, json};

/// Prefers the most allocated nodes.
pub(crate) const PACKS: &str = "\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: default-scheduler
  pluginConfig:
  - name: NodeResourcesFit
    args:
      scoringStrategy:
        type: MostAllocated
        resources: [{name: cpu, weight: 1}, {name: memory, weight: 1}]
";

#[test]
fn timed_runs_are_compared_by_means_and_drawn_together() {
    // Both pods run for 10 s, the second from second 10 to 20 on whatever node is preferred.
    let pods = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,creation_time,deletion_time\n\
        a,300,300,0,0,,0,20\nb,300,300,0,0,,10,20\nc,300,300,0,0,,20,20\n";
    let nodes = "sn,cpu_milli,memory_mib,gpu,model\nn1,1000,1000,0,\nn2,1000,1000,0,\n";
    let [packs, nodes, pods, page] =
        [("packs.yaml", PACKS), ("nodes.csv", nodes), ("pods.csv", pods), ("page.html", "")]
            .map(|(name, text)| file("compare-timed", name, text.as_bytes()));
    let inputs = ["compare", "--config", "default", &packs, "--nodes", &nodes, "--pods", &pods];
    let more = ["--mode", "timed", "--html", &page, "--output", "json"];
    let run = portolan(&[&inputs[..], &more].concat());
    let answer: Value = serde_json::from_str(&run.out).expect(&run.err);
    let used = |at: usize| answer["runs"][at]["nodes"]["used"].as_f64().unwrap();
    // Spreading uses one node for 10 s and two for 10 s.
    assert_eq!((used(0), used(1)), (1.5, 1.0), "{answer}");
    let says = answer["answers"][0]["answer"].as_str().unwrap();
    assert!(
        says.contains("1.0 nodes used instead of 1.5") && says.contains("means over time"),
        "{says}"
    );
    let runs = recorded(&page, "GET api/v1/compare")["runs"].take();
    let nodes = |at: usize| (&runs[at]["series"]["at"], &runs[at]["series"]["nodes_used"]);
    // The last pod ends when it begins.
    assert_eq!(nodes(0), (&json!([0.0, 10.0, 20.0, 20.0]), &json!([1, 2, 1, 0])));
    assert_eq!(nodes(1), (&json!([0.0, 10.0, 20.0, 20.0]), &json!([1, 1, 1, 0])));
}
