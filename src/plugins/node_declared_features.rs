//! Features that nodes declare (nodedeclaredfeatures/nodedeclaredfeatures.go).

use crate::framework::{Cycle, Filter, Plugin, PluginInfo, Point, PreFilter, Reads, Status};
use crate::model::{Name, Pod};
use crate::snapshot::{Cluster, NodeInfo};

use super::hints::{self, ClusterEvent, Hint};
use super::volumes::never;

/// Rejects nodes that do not declare all features that the pod requires.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NodeDeclaredFeatures;

const NAME: &str = "NodeDeclaredFeatures";
const REASON: &str = "node(s) didn't match Pod's required features";

struct Needed<'a>(&'a [Name]);

impl Plugin for NodeDeclaredFeatures {
    fn info(&self) -> PluginInfo {
        PluginInfo::new(NAME, &[Point::PreFilter, Point::Filter])
            .events(hints::nodes::FEATURES)
            .local()
    }

    fn queueing_hint(
        &self,
        pod: &Pod,
        event: &ClusterEvent<'_>,
        _: &Cluster,
    ) -> Result<Hint, Status> {
        Ok(hints::nodes::features(pod, event))
    }

    fn pre_filter<'a>(&'a self, cycle: Cycle<'a>) -> Result<PreFilter<'a>, Status> {
        let pod = cycle.pod;
        match &*pod.template.required_node_features {
            [] => Ok(PreFilter::Skip),
            needed => Ok(PreFilter::Filter(Box::new(Needed(needed)))),
        }
    }
}

impl Filter for Needed<'_> {
    fn filter(&self, node: NodeInfo<'_>) -> Option<Status> {
        let declares =
            |feature| node.node().is_some_and(|node| node.declared_features.contains(feature));
        (!self.0.iter().all(declares)).then(|| never(NAME, REASON))
    }

    fn only_reason(&self) -> Option<&'static str> {
        Some(REASON)
    }

    fn reads(&self) -> Reads {
        Reads::Node
    }
}

#[cfg(test)]
mod tests {
    use crate::cache::{Config, Engine};
    use crate::framework::Framework;
    use crate::model::{node, pod};

    #[test]
    fn a_node_must_declare_all_required_features() {
        let (mut writer, _) = Engine::inline(Config::default());
        for (name, features) in [("none", &[][..]), ("one", &["A"]), ("both", &["A", "B"])] {
            let node = node(name).cpu(1_000).declared_features(features.iter().copied());
            writer.add_node(node.build()).unwrap();
        }
        let pod = |needed: &[&str]| {
            let needed = needed.iter().map(|feature| (*feature).into()).collect();
            pod("p").spec(|spec| spec.required_node_features = needed).build()
        };
        let framework = Framework::default_profile();
        let fits = |needed: &[&str]| -> Vec<String> {
            let found = framework.evaluate(writer.cluster(), &pod(needed)).nodes;
            let fits = found.into_iter().filter(|(_, verdict)| verdict.status.is_none());
            fits.map(|(name, _)| name.to_string()).collect()
        };
        assert_eq!(fits(&[]), ["both", "none", "one"]);
        assert_eq!(fits(&["A"]), ["both", "one"]);
        assert_eq!(fits(&["A", "B"]), ["both"]);
        let error = framework.evaluate(writer.cluster(), &pod(&["C"])).rejected.unwrap();
        assert_eq!(
            error.to_string(),
            "0/3 nodes are available: 3 node(s) didn't match Pod's required features."
        );
    }
}
