//! The objects of the golden vectors.

use std::io::Read;
use std::path::PathBuf;

use flate2::read::GzDecoder;
use serde_json::Value;

/// The lists of a scenario and the kinds of their objects.
const LISTS: [(&str, &str); 15] = [
    ("pods", "Pod"),
    ("nodes", "Node"),
    ("namespaces", "Namespace"),
    ("services", "Service"),
    ("replicationControllers", "ReplicationController"),
    ("replicaSets", "ReplicaSet"),
    ("statefulSets", "StatefulSet"),
    ("persistentVolumes", "PersistentVolume"),
    ("persistentVolumeClaims", "PersistentVolumeClaim"),
    ("storageClasses", "StorageClass"),
    ("csiNodes", "CSINode"),
    ("volumeAttachments", "VolumeAttachment"),
    ("csiDrivers", "CSIDriver"),
    ("csiStorageCapacities", "CSIStorageCapacity"),
    ("pdbs", "PodDisruptionBudget"),
];

/// Without optimization the objects of every fourth scenario are read, because all of them take half a minute.
const EVERY: usize = if cfg!(debug_assertions) { 4 } else { 1 };

/// Calls `read` with the objects of the golden vectors, each with its kind. `read` returns whether the object counts, and
/// each file must have many that do. The folder may be absent.
pub(crate) fn each_object(mut read: impl FnMut(&str, &Value) -> bool) {
    for file in ["scheduling", "scheduling-large", "profiles", "volumes", "preemption", "cache"] {
        let folder = std::env::var_os("PORTOLAN_VECTORS").map(PathBuf::from);
        let beside = || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared/vectors");
        let path = folder.unwrap_or_else(beside).join(format!("{file}.jsonl.gz"));
        let Ok(found) = std::fs::File::open(&path) else {
            println!("skipped: {} does not exist", path.display());
            continue;
        };
        let mut text = String::new();
        GzDecoder::new(found).read_to_string(&mut text).expect("gzip");
        let (mut all, mut count) = (0, 0);
        for line in text.lines().step_by(EVERY) {
            let scenario: Value = serde_json::from_str(line).expect("JSON");
            let list = |field: &str| scenario[field].as_array().into_iter().flatten();
            let listed = LISTS.iter().flat_map(|(field, kind)| list(field).map(|it| (*kind, it)));
            let cases = list("cases").map(|case| ("Pod", &case["pod"]));
            let ops = list("ops").flat_map(|op| {
                [("Pod", "pod"), ("Pod", "old"), ("Node", "node"), ("Node", "oldNode")]
                    .map(|(kind, field)| (kind, &op[field]))
            });
            for (kind, value) in listed.chain(cases).chain(ops).filter(|(_, it)| it.is_object()) {
                all += 1;
                count += usize::from(read(kind, value));
            }
        }
        println!("{file}: {count} of {all} objects");
        assert!(count > 100, "{file}");
    }
}
