//! A small cluster, and pods with labels and claims of their own.

use portolan::model::{Pod, node, pod};
use portolan::{Config, Engine, Writer};

pub(crate) const NODES: usize = 64;

/// An inline engine with a live index and [`NODES`] nodes in three zones.
pub(crate) fn engine() -> Writer {
    let (mut writer, _) = Engine::inline(Config { live_index: true, ..Config::default() });
    for n in 0..NODES {
        writer.add_node(node(format!("n{n}")).zone(format!("z{}", n % 3)).build()).unwrap();
    }
    writer.publish();
    writer
}

/// A pod with labels and a claim that no other has.
pub(crate) fn own(i: usize) -> Pod {
    pod(format!("pod-{i}"))
        .label("own", &format!("label-{i}"))
        .claim(format!("claim-{i}"))
        .on(format!("n{}", i % NODES))
        .build()
}
