//! Adds nodes, with the pods that daemon sets create on them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use portolan::framework::Framework;
use portolan::log::Event;
use portolan::model::{
    HOSTNAME, Labels, Name, Node, NodeAffinity, NodeLabels, NodeSelector, Object, Pod, PodSpec,
    Template, Uid,
};
use portolan::{Cluster, Engine};
use portolan_k8s::{ControllerKind, PodController};

use crate::cluster;
use crate::error::Failure;
use crate::intake::Intake;
use crate::replacement::recreated;
use crate::simulation::{closed, event};
use crate::text::{count, shortened};

/// A number of copies of the node in a file.
#[derive(Clone, Debug)]
pub(super) struct Copies {
    count: usize,
    file: PathBuf,
}

const MOST: usize = 1_000_000;

impl Copies {
    pub(super) fn parse(text: &str) -> Result<Copies, String> {
        const FORM: &str =
            "pass COUNTxFILE, such as 3xnode.yaml for 3 copies of the node in node.yaml";
        let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        match text.split_once('x') {
            Some((count, file)) if is_number(count) && !file.is_empty() => {
                let count = count.parse().ok().filter(|count| (1..=MOST).contains(count));
                let count = count.ok_or_else(|| format!("COUNT must be 1 to {MOST}: {FORM}"))?;
                Ok(Copies { count, file: file.into() })
            }
            _ if Path::new(text).is_file() => {
                Err(format!("COUNT is missing: pass 1x{text} for one copy of the node in {text}"))
            }
            _ => Err(FORM.to_owned()),
        }
    }

    /// The error for a file that cannot be read, whose name may have been meant to begin with the count.
    fn explained(&self, failure: Failure) -> Failure {
        match failure {
            Failure::Open { file, error } => Failure::File {
                what: format!(
                    "{error}: check the path and its permissions; --add {}x{} reads the node from this file",
                    self.count,
                    shortened(&file.display().to_string(), 60),
                ),
                file,
            },
            other => other,
        }
    }

    /// Adds the nodes; returns their number.
    pub(super) fn add(
        &self,
        engine: &Engine,
        daemons: &mut Daemons,
        (notes, intake): (&mut Vec<String>, &mut Intake),
    ) -> Result<usize, Failure> {
        let mut reader = engine.reader().map_err(closed)?;
        let objects =
            cluster::read(std::slice::from_ref(&self.file)).map_err(|it| self.explained(it))?;
        intake.count(&objects);
        let others = objects.read.iter().filter(|(kind, _)| **kind != "Node" && **kind != "Pod");
        others.for_each(|(kind, number)| intake.unread(kind, *number, "not used by --add"));
        intake.unread("Pod", objects.pods.len(), "not used by --add");
        let more = objects.nodes.len().saturating_sub(1);
        intake.unread("Node", more, "--add copies the first node of a file");
        let like = objects.nodes.first().ok_or_else(|| Failure::File {
            file: self.file.clone(),
            what: format!(
                "no nodes found: --add {}xFILE copies the first node of FILE",
                self.count
            ),
        })?;
        let mut placed = 0;
        for n in 1..=self.count {
            let name: Name = format!("{}-{n}", like.name).into();
            if reader.refresh().node(&name).is_some() {
                return Err(Failure::File {
                    file: self.file.clone(),
                    what: format!("node {name} already exists: rename the node in this file"),
                });
            }
            placed += daemons.join(engine, copy(like, name))?;
        }
        if placed > 0 {
            notes.push(format!("placed {} on the added nodes", count(placed, "daemon set pod")));
        }
        Ok(self.count)
    }
}

/// The node with another name.
pub(super) fn copy(like: &Node, name: Name) -> Node {
    let rename = |(key, value)| if key == HOSTNAME { (key, &*name) } else { (key, value) };
    let labels: Labels = like.labels.iter().map(rename).collect();
    Node { labels: NodeLabels::new(&labels, &name), name, ..like.clone() }
}

/// The daemon sets of the files, and those known only from their pods.
pub(super) struct Daemons {
    sets: Vec<PodController>,
    seen: Vec<Pod>,
    framework: Framework,
}

impl Daemons {
    /// No daemon sets.
    pub(super) fn none() -> Daemons {
        Daemons { sets: Vec::new(), seen: Vec::new(), framework: Framework::default_profile() }
    }

    pub(super) fn of(
        cluster: &Cluster,
        controllers: impl Iterator<Item = PodController>,
    ) -> Daemons {
        let sets = controllers.filter(|it| it.kind == ControllerKind::DaemonSet);
        let sets: Vec<PodController> = sets.collect();
        let mut seen: BTreeMap<(Name, Name), Pod> = BTreeMap::new();
        for pod in cluster.nodes().flat_map(|node| node.pods()) {
            let owners = pod.template().owners.iter();
            let mut owner = owners.filter(|owner| owner.controller && &*owner.kind == "DaemonSet");
            let Some(owner) = owner.next() else { continue };
            let key = (pod.namespace().clone(), owner.name.clone());
            let is_known = sets.iter().any(|set| (&set.namespace, &set.name) == (&key.0, &key.1));
            if !is_known && !seen.contains_key(&key) {
                seen.insert(key, anywhere(recreated(pod.to_pod())));
            }
        }
        let seen = seen.into_values().collect();
        Daemons { sets, seen, framework: Framework::default_profile() }
    }

    /// Adds a node with the pods that the daemon sets create on it. Returns their number.
    pub(super) fn join(&mut self, engine: &Engine, node: Node) -> Result<usize, Failure> {
        let refused = |error| Failure::Refused { object: format!("node {}", node.name), error };
        event(engine, Event::add_node(node.clone()))?.map_err(refused)?;
        let cluster = engine.reader().map_err(closed)?.snapshot();
        let mut placed = 0;
        for set in &self.sets {
            let pods = set.expand(std::slice::from_ref(&node));
            for claim in pods.iter().flat_map(|pod| set.claims(pod)) {
                event(engine, Event::PutObject(Object::from(claim)))?.map_err(refused)?;
            }
        }
        for pod in self.on(&cluster, &node) {
            // A daemon pod that does not fit is left out.
            placed += usize::from(event(engine, Event::add_pod(pod))?.is_ok());
        }
        Ok(placed)
    }

    /// The pods that the daemon sets create on a node of the cluster.
    fn on(&mut self, cluster: &Cluster, node: &Node) -> Vec<Pod> {
        let mut pods: Vec<Pod> = Vec::new();
        for set in &self.sets {
            pods.extend(set.expand(std::slice::from_ref(node)));
        }
        for pod in &self.seen {
            let named = format!("{}-{}", pod.name, node.name);
            let uid = Uid::new(&format!("{}/{named}", pod.namespace()));
            pods.push(Pod { uid, name: named.into(), ..pod.clone() });
        }
        let runs = |pod: &Pod| {
            let info = cluster.node(&node.name);
            info.is_some_and(|info| self.framework.filter(cluster, pod, info).is_none())
        };
        pods.retain(runs);
        pods.into_iter().map(|pod| pod.on(node.name.clone())).collect()
    }
}

/// The pod without the node affinity that its controller used to bind it to a node.
fn anywhere(pod: Pod) -> Pod {
    let Some(affinity) = &pod.template.node_affinity else {
        return Pod { node_name: None, ..pod };
    };
    let mut affinity = NodeAffinity::clone(affinity);
    if let Some(required) = &mut affinity.required {
        let terms = required.terms.iter().cloned().map(|mut term| {
            term.match_fields = Box::default();
            term
        });
        let terms: Vec<_> = terms.filter(|term| !term.match_expressions.is_empty()).collect();
        affinity.required =
            (!terms.is_empty()).then(|| NodeSelector { terms: terms.into_boxed_slice() });
    }
    let mut spec = PodSpec::clone(&pod.template);
    spec.node_affinity = Some(Box::new(affinity));
    Pod { template: Template::new(spec), node_name: None, ..pod }
}
