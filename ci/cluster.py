#!/usr/bin/env python3
"""Prints a cluster as `kubectl get nodes,pods -A -o json` does, for measurements: NODES PODS [PENDING_CPU].

Each pod has the fields that an API server fills in, belongs to one of 500 replica sets, and requests a quarter, a half
or a whole core. With PENDING_CPU, a pending pod d/huge requests this many cores.
"""

import json
import random
import sys

TIME = "2026-01-01T00:00:00Z"
IMAGE = "registry.example.com/team/app:v1.2.3"


def toleration(condition):
    key = f"node.kubernetes.io/{condition}"
    return {"effect": "NoExecute", "key": key, "operator": "Exists", "tolerationSeconds": 300}


def ready(**more):
    return {"type": "Ready", "status": "True", "lastTransitionTime": TIME, **more}


def node(i):
    labels = {
        "kubernetes.io/hostname": f"n{i}",
        "kubernetes.io/arch": "amd64",
        "kubernetes.io/os": "linux",
        "node.kubernetes.io/instance-type": "standard-32",
        "topology.kubernetes.io/region": "r1",
        "topology.kubernetes.io/zone": f"z{i % 3}",
    }
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": f"n{i}",
            "uid": f"node-{i}",
            "resourceVersion": str(1000 + i),
            "creationTimestamp": TIME,
            "labels": labels,
        },
        "spec": {"podCIDR": f"10.{i // 256 % 256}.{i % 256}.0/24", "providerID": f"cloud:///z{i % 3}/i-{i:08x}"},
        "status": {
            "capacity": {"cpu": "32", "memory": "131072Mi", "pods": "110", "ephemeral-storage": "100Gi"},
            "allocatable": {"cpu": "31850m", "memory": "128Gi", "pods": "110", "ephemeral-storage": "90Gi"},
            "conditions": [ready(reason="KubeletReady", message="kubelet is posting ready status")],
            "nodeInfo": {"kubeletVersion": "v1.36.2", "osImage": "Linux", "architecture": "amd64"},
        },
    }


def pod(i, cpu, node_name=None):
    owner = f"a{i % 500}"
    spec = {
        "priority": 0,
        "preemptionPolicy": "PreemptLowerPriority",
        "schedulerName": "default-scheduler",
        "restartPolicy": "Always",
        "serviceAccountName": "default",
        "terminationGracePeriodSeconds": 30,
        "tolerations": [toleration("not-ready"), toleration("unreachable")],
        "containers": [
            {
                "name": "c",
                "image": IMAGE,
                "imagePullPolicy": "IfNotPresent",
                "resources": {"requests": {"cpu": cpu, "memory": "1Gi"}},
            }
        ],
    }
    status = {"phase": "Pending"}
    if node_name:
        spec["nodeName"] = node_name
        running = {"name": "c", "ready": True, "restartCount": 0, "image": IMAGE, "state": {"running": {"startedAt": TIME}}}
        status = {
            "phase": "Running",
            "startTime": TIME,
            "podIP": "10.1.2.3",
            "qosClass": "Burstable",
            "conditions": [ready()],
            "containerStatuses": [running],
        }
    reference = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": owner, "uid": owner}
    metadata = {
        "name": f"{owner}-{i:x}" if node_name else "huge",
        "namespace": "d",
        "uid": f"0f3a{i:08x}-94b1-4c5e-8a77-{i:012x}",
        "resourceVersion": str(100000 + i),
        "creationTimestamp": TIME,
        "labels": {"app": owner, "pod-template-hash": "5d4f8c7b9"},
        "ownerReferences": [{**reference, "controller": True, "blockOwnerDeletion": True}],
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": status}


def write(out, nodes, pods, pending=()):
    """Writes the cluster, with a pending pod for each of the requests in `pending`."""
    draw = random.Random(1)
    items = [node(i) for i in range(nodes)]
    items += [pod(i, f"{draw.choice([250, 500, 1000])}m", f"n{i % nodes}") for i in range(pods)]
    items += [pod(pods, cpu) for cpu in pending]
    json.dump({"apiVersion": "v1", "kind": "List", "items": items}, out, separators=(",", ":"))


if __name__ == "__main__":
    if len(sys.argv) not in (3, 4):
        sys.exit(__doc__)
    write(sys.stdout, int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:])
