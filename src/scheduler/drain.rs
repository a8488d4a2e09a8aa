//! Draining nodes as `kubectl drain` does, on a fork (kubectl/pkg/drain/filters.go).

use std::fmt;
use std::sync::Arc;

use crate::model::{EventError, Name, Node, Pod, PodDisruptionBudget};
use crate::snapshot::{Cluster, PodInfo};

use super::WhatIf;

/// What `kubectl drain` is told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DrainOptions {
    /// Evicts pods that nobody makes anew (`--force`).
    pub force: bool,
    /// Evicts pods whose local data goes with them (`--delete-emptydir-data`).
    pub delete_local_data: bool,
}

/// Why a pod stays on a node that is drained.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Stays {
    /// A DaemonSet would put it there again.
    DaemonSet,
    /// The kubelet runs it from a file of its own.
    Mirror,
    /// Nobody would make it anew.
    Bare,
    /// Its local data would be lost.
    LocalStorage,
    /// This budget does not let it go now.
    Budget(Name),
}

impl Stays {
    /// Whether the drain fails of it. Pods of DaemonSets and mirror pods stay, and
    /// nobody minds.
    #[must_use]
    pub fn is_in_the_way(&self) -> bool {
        !matches!(self, Stays::DaemonSet | Stays::Mirror)
    }
}

impl fmt::Display for Stays {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Stays::DaemonSet => f.write_str("it is managed by a DaemonSet"),
            Stays::Mirror => f.write_str("it is a mirror pod"),
            Stays::Bare => f.write_str("it has no controller"),
            Stays::LocalStorage => f.write_str("it has local storage, which would be lost"),
            Stays::Budget(name) => {
                write!(f, "it would violate the pod's disruption budget {name}")
            }
        }
    }
}

/// What is left of disruption budgets, as pods go.
#[derive(Clone, Debug)]
pub struct Budgets(Vec<(Arc<PodDisruptionBudget>, i32)>);

impl Budgets {
    /// Those of a version.
    #[must_use]
    pub fn of(cluster: &Cluster) -> Budgets {
        let budgets = cluster.objects().pod_disruption_budgets.iter();
        let mut budgets: Vec<_> =
            budgets.map(|budget| (budget.clone(), budget.disruptions_allowed)).collect();
        budgets.sort_by(|(a, _), (b, _)| (&a.namespace, &a.name).cmp(&(&b.namespace, &b.name)));
        Budgets(budgets)
    }

    /// Takes the pod from its budgets.
    ///
    /// # Errors
    ///
    /// The name of the first budget that does not let it go; nothing is taken then.
    pub fn take(&mut self, pod: &PodInfo<'_>) -> Result<(), Name> {
        let labels = &pod.template().labels;
        let counts =
            |budget: &PodDisruptionBudget| budget.counts(pod.namespace(), pod.name(), labels);
        if let Some((budget, _)) = self.0.iter().find(|(it, left)| *left <= 0 && counts(it)) {
            return Err(budget.name.clone());
        }
        for (_, left) in self.0.iter_mut().filter(|(budget, _)| counts(budget)) {
            *left -= 1;
        }
        Ok(())
    }
}

/// What came of draining a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Drained {
    /// The pods that went, each on no node now, as whoever makes them anew would
    /// have them queue.
    pub evicted: Vec<Pod>,
    /// Those that stay, and why.
    pub stays: Vec<(Pod, Stays)>,
}

impl Drained {
    /// Whether all went that had to.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        !self.stays.iter().any(|(_, why)| why.is_in_the_way())
    }
}

/// Why the pod would stay where it is, whatever its budgets say.
#[must_use]
pub fn stays(pod: &PodInfo<'_>, options: DrainOptions) -> Option<Stays> {
    let template = pod.template();
    let controller = template.owners.iter().find(|owner| owner.controller);
    match controller.map(|owner| &*owner.kind) {
        Some("DaemonSet") => Some(Stays::DaemonSet),
        Some("Node") => Some(Stays::Mirror),
        None if !options.force => Some(Stays::Bare),
        _ if template.has_local_storage && !options.delete_local_data => Some(Stays::LocalStorage),
        _ => None,
    }
}

impl WhatIf {
    /// Cordons a node and evicts its pods, as far as they and their budgets let it.
    /// Pods that terminate already go. They are placed nowhere yet: see
    /// [`WhatIf::schedule_all`].
    ///
    /// # Errors
    ///
    /// There is no such node.
    pub fn drain(
        &mut self,
        node: &str,
        budgets: &mut Budgets,
        options: DrainOptions,
    ) -> Result<Drained, EventError> {
        let known = self.node(node).and_then(|info| info.node().cloned());
        let Some(known) = known else {
            return Err(EventError::NodeNotFound { name: node.into() });
        };
        let mut drained = Drained::default();
        let mut going = Vec::new();
        if let Some(info) = self.node(node) {
            let mut pods: Vec<PodInfo<'_>> = info.pods().collect();
            pods.sort_by(|a, b| (a.namespace(), a.name()).cmp(&(b.namespace(), b.name())));
            for pod in pods {
                let why = stays(&pod, options).or_else(|| match pod.deletion_time() {
                    Some(_) => None,
                    None => budgets.take(&pod).err().map(Stays::Budget),
                });
                match why {
                    Some(why) => drained.stays.push((pod.to_pod(), why)),
                    None => going.push(pod.to_pod()),
                }
            }
        }
        self.fork().add_node(Node { unschedulable: true, ..Node::clone(&known) })?;
        for pod in going {
            self.fork().remove_pod(&pod.uid)?;
            drained.evicted.push(Pod {
                node_name: None,
                nominated_node_name: None,
                start_time: None,
                deletion_time: None,
                ..pod
            });
        }
        Ok(drained)
    }
}
