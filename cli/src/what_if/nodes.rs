//! `--add`: adds copies of a node in a file, or of a node in the cluster.

use std::path::PathBuf;

use portolan::cache::Cluster;
use portolan::model::{Name, Node};
use portolan_k8s::Objects;

use crate::cluster;
use crate::error::CommandError;
use crate::input::is_standard_input;
use crate::names::did_you_mean;
use crate::text::{count, shortened};

use super::MOST;
use super::answer::Answer;
use super::daemons::Daemons;
use super::model::Model;
use super::world::World;

/// A number of copies of a node.
#[derive(Clone, Debug)]
pub(super) struct Copies {
    count: usize,
    /// A file, or the name of a node in the cluster.
    of: String,
    is_file_refused: bool,
}

/// The count and the name.
fn split(text: &str) -> Option<(&str, &str)> {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    text.split_once('x').filter(|(count, of)| is_number(count) && !of.is_empty())
}

impl Copies {
    pub(super) fn parse(text: &str) -> Result<Copies, String> {
        const FORM: &str = "pass COUNTxFILE or COUNTxNODE, such as 3xnode.yaml for 3 copies of the node in node.yaml, or \
                            3xn1 for 3 copies of n1";
        match split(text) {
            Some(parts) => Copies::counted(parts, FORM),
            // The name of a file, which is not looked up here: the text may be another user's.
            None if [".yaml", ".yml", ".json"].iter().any(|end| text.ends_with(end)) => {
                Err(format!("COUNT is missing: pass 1x{text} for one copy of the node in {text}"))
            }
            None => Err(FORM.to_owned()),
        }
    }

    /// Parses copies of a node in the cluster, for changes that arrive over HTTP: the files are the server's.
    #[cfg(feature = "cluster")]
    pub(super) fn of_cluster(text: &str) -> Result<Copies, String> {
        const FORM: &str = "pass COUNTxNODE, such as 3xn1 for 3 copies of n1";
        let copies = Copies::counted(split(text).ok_or(FORM)?, FORM)?;
        Ok(Copies { is_file_refused: true, ..copies })
    }

    fn counted((count, of): (&str, &str), form: &str) -> Result<Copies, String> {
        let count = count.parse().ok().filter(|count| (1..=MOST).contains(count));
        let count = count.ok_or_else(|| format!("COUNT must be 1 to {MOST}: {form}"))?;
        Ok(Copies { count, of: of.to_owned(), is_file_refused: false })
    }

    /// The number of copies.
    #[cfg(feature = "cluster")]
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// Adds the nodes, with the pods of the daemon sets.
    pub(super) fn add(
        &self,
        daemons: &mut Daemons,
        world: &mut World,
        answer: &mut Answer,
    ) -> Result<(), CommandError> {
        let mut reader = world.reader()?;
        let (model, like) = self.model(reader.refresh(), answer)?;
        let left_out = model.left_out();
        if !left_out.is_empty() {
            let parts = left_out.join(", ");
            answer.notes.push(format!("not copied from node {like}: {parts}"));
        }
        let mut placed = 0;
        let names = (1_usize..).map(|n| Name::from(format!("{like}-{n}")));
        let mut names = names.filter(|name| reader.refresh().node(name).is_none());
        for name in names.by_ref().take(self.count).collect::<Vec<_>>() {
            placed += daemons.join(model.copy(name), world)?;
        }
        answer.added += self.count;
        if placed > 0 {
            let pods = count(placed, "daemon set pod");
            answer.notes.push(format!("placed {pods} on the added nodes"));
        }
        Ok(())
    }

    /// The node to copy and its name. A file takes precedence over a node of the same name.
    fn model(&self, cluster: &Cluster, answer: &mut Answer) -> Result<(Model, Name), CommandError> {
        let file = PathBuf::from(&self.of);
        if !self.is_file_refused && (file.exists() || is_standard_input(&file)) {
            return self.in_file(file, cluster, answer);
        }
        let name = crate::targets::node(&self.of).unwrap_or_default();
        let Some(node) = cluster.node(&name).and_then(|info| info.node().cloned()) else {
            let near = did_you_mean(&name, cluster.nodes().map(|info| &**info.name()));
            let of = shortened(&self.of, 60);
            let what = if self.is_file_refused { "no node" } else { "neither a file nor a node" };
            return Err(CommandError::Usage(format!(
                "--add {}x{of}: {what} of the cluster has this name: {near}",
                self.count
            )));
        };
        let node = Node::clone(&node);
        can_run_pods(&node).map_err(|what| CommandError::Usage(format!("--add {name}: {what}")))?;
        Ok((Model::of(node, &Objects::default(), cluster), name.into()))
    }

    /// The first node of a file, with its objects in the file.
    fn in_file(
        &self,
        file: PathBuf,
        cluster: &Cluster,
        answer: &mut Answer,
    ) -> Result<(Model, Name), CommandError> {
        let mut objects = cluster::read(std::slice::from_ref(&file))?;
        let intake = &mut answer.intake;
        intake.count(&objects);
        const USED: [&str; 4] = ["Node", "CSINode", "CSIStorageCapacity", "ResourceSlice"];
        for (kind, number) in objects.read.iter().filter(|(kind, _)| !USED.contains(kind)) {
            let unused = if *kind == "Pod" { objects.pods.len() } else { *number };
            intake.unread(kind, unused, "not used by --add");
        }
        let more = objects.nodes.len().saturating_sub(1);
        intake.unread("Node", more, "--add copies the first node of a file");
        let Some(node) = std::mem::take(&mut objects.nodes).into_iter().next() else {
            let what =
                format!("no nodes found: --add {}xFILE copies the first node of FILE", self.count);
            return Err(CommandError::File { file, what });
        };
        can_run_pods(&node).map_err(|what| CommandError::File { file, what })?;
        let name = node.name.clone();
        Ok((Model::of(node, &objects, cluster), name))
    }
}

/// Refuses a model on whose copies no pod could run.
fn can_run_pods(node: &Node) -> Result<(), String> {
    match node.allowed_pods {
        0 => Err(format!(
            "no pod can run on node {}: its status.allocatable has no pods: pass the output of `kubectl get node -o yaml`, \
             or --add COUNTxNODE with a node of the cluster",
            node.name
        )),
        _ => Ok(()),
    }
}
