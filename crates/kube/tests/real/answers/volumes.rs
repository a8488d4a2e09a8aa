//! Volumes and claims, as a scheduler reserves them.

use serde_json::{Value, json};

use crate::script::{Script, uid, version};

fn volume(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name},
        "spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": "slow",
            "persistentVolumeReclaimPolicy": "Retain", "hostPath": {"path": "/tmp/volume", "type": ""}}})
}

fn claim(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name},
        "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "slow",
            "resources": {"requests": {"storage": "1Gi"}}}})
}

fn claim_ref(claim: &Value) -> Value {
    json!({"kind": "PersistentVolumeClaim", "apiVersion": "v1", "namespace": claim["metadata"]["namespace"],
        "name": claim["metadata"]["name"], "uid": uid(claim), "resourceVersion": version(claim)})
}

pub(super) fn run(to: &mut Script) {
    let class = json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "slow"},
        "provisioner": "kubernetes.io/no-provisioner", "volumeBindingMode": "WaitForFirstConsumer"});
    to.post("/apis/storage.k8s.io/v1/storageclasses", &class);
    let claims = to.path("persistentvolumeclaims");
    let free = to.post("/api/v1/persistentvolumes", &volume("pv"));
    let first = to.post(&claims, &claim("first"));
    let second = to.post(&claims, &claim("second"));

    // The reservation of a volume, as the scheduler patches it, with the uid and version that it has read.
    let path = "/api/v1/persistentvolumes/pv";
    let reserve = |volume: &Value, claim: &Value| {
        json!({
            "metadata": {"uid": uid(volume), "resourceVersion": version(volume),
                "annotations": {"pv.kubernetes.io/bound-by-controller": "yes"}},
            "spec": {"claimRef": claim_ref(claim)},
        })
    };
    let reserved = to.merge(path, &reserve(&free, &first));
    // The former version, and another volume.
    to.merge(path, &reserve(&free, &second));
    let mut other = reserve(&reserved, &second);
    other["metadata"]["uid"] = json!("00000000-0000-0000-0000-000000000000");
    to.merge(path, &other);
    // The same reservation again.
    let again = to.merge(path, &reserve(&reserved, &first));
    assert_eq!(version(&again), version(&reserved));
    to.merge("/api/v1/persistentvolumes/missing", &reserve(&free, &first));
    to.merge(path, &json!({"spec": {"claimRef": {"namespace": "not a name"}}}));

    // The node that a claim is to be provisioned for.
    let path = format!("{claims}/second");
    let select = |claim: &Value| {
        json!({"metadata": {"uid": uid(claim), "resourceVersion": version(claim),
            "annotations": {"volume.kubernetes.io/selected-node": "n1"}}})
    };
    let selected = to.merge(&path, &select(&second));
    to.merge(&path, &select(&second));
    let mut other = select(&selected);
    other["metadata"]["uid"] = json!("00000000-0000-0000-0000-000000000000");
    to.merge(&path, &other);
    to.merge(&format!("{claims}/missing"), &select(&second));
    // As the controller binds it.
    to.merge(&path, &json!({"spec": {"volumeName": "pv"}}));
    to.patch(
        &format!("{path}/status"),
        &json!({"status": {"phase": "Bound", "accessModes": ["ReadWriteOnce"],
        "capacity": {"storage": "1Gi"}}}),
    );
    to.patch("/api/v1/persistentvolumes/pv/status", &json!({"status": {"phase": "Bound"}}));
    to.delete(&path, &Value::Null);
    to.get(&path);
    to.delete("/api/v1/persistentvolumes/pv", &Value::Null);
    to.get("/api/v1/persistentvolumes/pv");
    // What else the mirror reads.
    let csi = json!({"apiVersion": "storage.k8s.io/v1", "kind": "CSINode", "metadata": {"name": "n1"},
        "spec": {"drivers": [{"name": "csi.example.com", "nodeID": "n1", "allocatable": {"count": 3}}]}});
    to.post("/apis/storage.k8s.io/v1/csinodes", &csi);
    let driver = json!({"apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver", "metadata": {"name": "csi.example.com"},
        "spec": {}});
    to.post("/apis/storage.k8s.io/v1/csidrivers", &driver);
    let capacity = json!({"apiVersion": "storage.k8s.io/v1", "kind": "CSIStorageCapacity",
        "metadata": {"name": "c"}, "storageClassName": "slow", "capacity": "1Gi",
        "nodeTopology": {"matchLabels": {"a": "b"}}});
    to.post(&to.path("storage.k8s.io/v1/csistoragecapacities"), &capacity);
    let attachment = json!({"apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttachment", "metadata": {"name": "va"},
        "spec": {"attacher": "csi.example.com", "nodeName": "n1", "source": {"persistentVolumeName": "pv"}}});
    to.post("/apis/storage.k8s.io/v1/volumeattachments", &attachment);
}
