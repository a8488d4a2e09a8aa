//! The cluster that is shown if no other is named: two pools in three zones, and workloads with typical troubles.

use std::fmt::Write;

/// The controllers, budgets and pods.
const WORKLOADS: &str = include_str!("example.yaml");

/// The manifests of the cluster. Its controllers have not created their pods yet.
pub(super) fn manifests() -> String {
    let mut text = String::new();
    for n in 0..36 {
        let zone = ["eu-1a", "eu-1b", "eu-1c"][n % 3];
        let (pool, cpu, memory, more) = match n {
            0..24 => ("general", "16", "64Gi", String::new()),
            24..30 => ("memory", "16", "128Gi", String::new()),
            _ => ("gpu", "32", "128Gi", ", nvidia.com/gpu: \"4\"".to_owned()),
        };
        let taints = match pool {
            "gpu" => "\n  taints: [{key: nvidia.com/gpu, value: present, effect: NoSchedule}]",
            _ => "",
        };
        let cordoned = if n == 5 { "\n  unschedulable: true" } else { "" };
        let _ = write!(
            text,
            "---
apiVersion: v1
kind: Node
metadata:
  name: {pool}-{n:02}
  labels:
    kubernetes.io/hostname: {pool}-{n:02}
    topology.kubernetes.io/zone: {zone}
    pool: {pool}
spec:
  providerID: example://{n}{taints}{cordoned}
status:
  allocatable: {{cpu: \"{cpu}\", memory: {memory}, pods: \"110\"{more}}}
  conditions: [{{type: Ready, status: \"True\"}}]
"
        );
    }
    text.push_str(WORKLOADS);
    text
}
