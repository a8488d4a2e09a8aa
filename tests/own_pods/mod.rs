//! A small cluster, and pods with distinct labels and claims.

use portolan::cache::{Config, Engine, Writer};
use portolan::model::{Pod, node, pod};

pub(crate) const NODES: usize = 64;

/// Creates an inline engine with [`NODES`] nodes in three zones.
pub(crate) fn engine() -> Writer {
    let (mut writer, _) = Engine::inline(Config::default());
    for n in 0..NODES {
        writer.add_node(node(format!("n{n}")).zone(format!("z{}", n % 3)).build()).unwrap();
    }
    writer.publish();
    writer
}

/// Creates a pod with labels and a claim that no other pod has.
pub(crate) fn own(i: usize) -> Pod {
    pod(format!("pod-{i}"))
        .label("own", &format!("label-{i}"))
        .claim(format!("claim-{i}"))
        .on(format!("n{}", i % NODES))
        .build()
}
