//! The cost of reading one pod of an API server: directly from its bytes, and through a `serde_json::Value`.
//!
//! `digest` is what a watch does first: it recognizes an update that changes nothing that is read.
//!
//! `skip` is the lower bound of the JSON parser: it checks the same bytes and builds nothing.

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use serde::de::IgnoredAny;
use serde_json::Value;
use serde_json::value::RawValue;

use std::hint::black_box;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// A pod as `kubectl get --raw` prints it: managed fields, environment, probes and status included.
const POD: &str = include_str!("pod.json");

fn parse(c: &mut Criterion) {
    let bytes = POD.trim_end().as_bytes();
    let value: Value = serde_json::from_slice(bytes).expect("the pod is JSON");
    let through_value = portolan_k8s::pod(&value).expect("a pod");
    assert_eq!(portolan_k8s::pod_from_slice(bytes).expect("a pod"), through_value);
    let mut group = c.benchmark_group("pod");
    group.throughput(Throughput::Bytes(bytes.len() as u64));
    group.bench_function("slice", |b| b.iter(|| portolan_k8s::pod_from_slice(black_box(bytes))));
    let raw: &RawValue = serde_json::from_slice(bytes).expect("JSON");
    group.bench_function("digest", |b| b.iter(|| portolan_k8s::pod_digest(black_box(raw))));
    group.bench_function("value", |b| {
        b.iter(|| {
            let value: Value = serde_json::from_slice(black_box(bytes)).expect("the pod is JSON");
            portolan_k8s::pod(&value)
        });
    });
    group.bench_function("skip", |b| {
        b.iter(|| serde_json::from_slice::<IgnoredAny>(black_box(bytes)));
    });
    group.finish();
}

criterion_group!(benches, parse);
criterion_main!(benches);
