//! The difference between two readings: nodes by the fields that the map of the fleet draws, and pods by their nodes.

use std::collections::BTreeMap;

use portolan::cache::{ChangeKind, NodeInfo, Snapshot};
use portolan::model::Uid;
use serde_json::{Value, json};

use super::view::Reading;
use crate::columns::{Columns, Listed};
use crate::pod_list::PodList;

/// The most pods of a list that are named.
const MOST_NAMED: usize = 500;

/// The difference between two readings.
pub(super) struct Difference {
    columns: Columns,
    added: Vec<Listed>,
    removed: Vec<Listed>,
    /// The nodes before and after.
    changed: Vec<(Listed, Listed)>,
    pods: Pods,
}

#[derive(Default)]
struct Pods {
    added: Vec<Moved>,
    removed: Vec<Moved>,
    moved: Vec<Moved>,
}

/// A pod with its nodes.
#[derive(serde::Serialize)]
struct Moved {
    pod: String,
    from: Option<String>,
    to: Option<String>,
}

/// The name of a pod, and of its node unless it is pending.
type Place = (String, Option<String>);

impl Difference {
    /// The cost is proportional to the difference between readings that share memory, apart from a look at the
    /// resources of each node.
    pub(super) fn between(before: &Reading, after: &Reading) -> Difference {
        let (old, new) = (before.cluster(), after.cluster());
        let columns = Columns::of(new);
        let (mut added, mut removed, mut changed) = (Vec::new(), Vec::new(), Vec::new());
        let (mut places_before, mut places_after) = (BTreeMap::new(), BTreeMap::new());
        for change in new.diff(old) {
            let find =
                |cluster: &'_ Snapshot| cluster.node(&change.name).map(|it| columns.node(it));
            for (cluster, places) in [(old, &mut places_before), (new, &mut places_after)] {
                places.extend(cluster.node(&change.name).into_iter().flat_map(placed));
            }
            match (find(old), find(new)) {
                (Some(before), Some(after)) => {
                    // The map draws nothing of other changes, such as a new resource version.
                    if before != after {
                        changed.push((before, after));
                    }
                }
                (before, after) => match change.kind {
                    ChangeKind::Removed => removed.extend(before),
                    _ => added.extend(after),
                },
            }
        }
        places_before.extend(waiting(before.pending(), after.pending()));
        places_after.extend(waiting(after.pending(), before.pending()));
        let pods = Pods::of(&places_before, &places_after);
        Difference { columns, added, removed, changed, pods }
    }

    /// The numbers of nodes and pods that differ.
    pub(super) fn summary(&self) -> Value {
        let Difference { added, removed, changed, pods, .. } = self;
        json!({
            "nodes": { "added": added.len(), "removed": removed.len(), "changed": changed.len() },
            "pods": {
                "added": pods.added.len(),
                "removed": pods.removed.len(),
                "moved": pods.moved.len(),
            },
        })
    }

    pub(super) fn json(self, from: u64, to: u64) -> Value {
        let summary = self.summary();
        let named = |mut pods: Vec<Moved>| {
            pods.sort_by(|one, other| one.pod.cmp(&other.pod));
            pods.truncate(MOST_NAMED);
            pods
        };
        let changed = self.changed.iter().map(
            |(before, after)| json!({ "name": before.name, "before": before, "after": after }),
        );
        let changed: Vec<Value> = changed.collect();
        json!({
            "from": from,
            "to": to,
            "summary": summary,
            "resources": self.columns.json(),
            "nodes": { "added": self.added, "removed": self.removed, "changed": changed },
            "pods": {
                "added": named(self.pods.added),
                "removed": named(self.pods.removed),
                "moved": named(self.pods.moved),
            },
        })
    }
}

fn placed(node: NodeInfo<'_>) -> impl Iterator<Item = (Uid, Place)> {
    node.pods().map(move |pod| {
        let name = format!("{}/{}", pod.namespace(), pod.name());
        (pod.uid(), (name, Some(node.name().to_string())))
    })
}

/// The pending pods that may not be pending in the other list.
fn waiting(pods: &PodList, other: &PodList) -> impl Iterator<Item = (Uid, Place)> {
    pods.without_shared(other).map(|pod| (pod.uid.clone(), (pod.key().to_string(), None)))
}

impl Pods {
    fn of(before: &BTreeMap<Uid, Place>, after: &BTreeMap<Uid, Place>) -> Pods {
        let mut pods = Pods::default();
        let moved = |pod: &String, from: Option<&String>, to: Option<&String>| Moved {
            pod: pod.clone(),
            from: from.cloned(),
            to: to.cloned(),
        };
        for (uid, (name, node)) in after {
            match before.get(uid) {
                None => pods.added.push(moved(name, None, node.as_ref())),
                Some((_, from)) if from != node => {
                    pods.moved.push(moved(name, from.as_ref(), node.as_ref()));
                }
                Some(_) => {}
            }
        }
        let gone = before.iter().filter(|(uid, _)| !after.contains_key(uid));
        let gone = gone.map(|(_, (name, node))| moved(name, node.as_ref(), None));
        pods.removed = gone.collect();
        pods
    }
}
