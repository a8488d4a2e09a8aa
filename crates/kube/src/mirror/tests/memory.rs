//! The memory of the index.

use portolan_testkit::alloc::Counting;

use crate::mirror::KnownPod;
use crate::mirror::table::Table;

#[global_allocator]
static ALLOCATOR: Counting = Counting::new();

#[test]
fn a_placed_pod_takes_at_most_150_bytes() {
    const PODS: u64 = 150_000;
    let before = ALLOCATOR.counts().live;
    let mut table = Table::default();
    for i in 0..PODS {
        let pod = KnownPod {
            namespace: format!("team-{}", i % 200).into(),
            name: format!("frontend-7d8f9c6b5-{i:07}").into(),
            uid: format!("01234567-89ab-cdef-0123-{i:012x}").as_str().into(),
            resource_version: i + 1,
            generation: 1,
            node: Some(format!("node-{}", i % 5_000).into()),
            is_terminating: false,
            pending: None,
        };
        table.put(pod, true, None);
    }
    let bytes = ALLOCATOR.counts().live - before;
    let each = bytes / PODS as i64;
    assert!(each <= 150, "{each} bytes");
    assert_eq!(table.len(), PODS as usize);
}
