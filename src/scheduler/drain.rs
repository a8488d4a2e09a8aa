//! Draining nodes as `kubectl drain` does, on a fork (kubectl/pkg/drain/filters.go).

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use crate::model::{EventError, Name, Node, Pod, PodDisruptionBudget, Template};
use crate::snapshot::{Cluster, PodInfo};

use super::WhatIf;

/// Options of `kubectl drain`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DrainOptions {
    /// Evicts pods without a controller (`--force`).
    pub force: bool,
    /// Evicts pods with local data, which is deleted (`--delete-emptydir-data`).
    pub delete_local_data: bool,
}

/// Why a drain leaves a pod on its node.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Stays {
    /// A DaemonSet would recreate the pod on the node.
    DaemonSet,
    /// The pod is a mirror of a static pod of the kubelet.
    Mirror,
    /// The pod has no controller that would recreate it.
    Bare,
    /// The pod's local data would be lost.
    LocalStorage,
    /// This disruption budget allows no eviction now.
    Budget(Name),
    /// The API server evicts no pod that several disruption budgets cover.
    SeveralBudgets,
}

impl Stays {
    /// Returns whether the pod makes the drain fail. Pods of DaemonSets and mirror pods stay without making it fail.
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
            Stays::SeveralBudgets => f.write_str(
                "it has more than one PodDisruptionBudget, which evictions do not support",
            ),
            Stays::Budget(name) => {
                write!(f, "it would violate the pod's disruption budget {name}")
            }
        }
    }
}

/// The disruptions that budgets still allow, updated as pods are evicted. Clones share the budgets.
#[derive(Clone, Debug)]
pub struct Budgets {
    /// By namespace; sorted by name.
    budgets: Arc<HashMap<Name, Vec<Arc<PodDisruptionBudget>>>>,
    /// The number of charged evictions, by namespace and name of the budget.
    charged: HashMap<(Name, Name), i32>,
}

impl Budgets {
    /// Returns the budgets of a version.
    #[must_use]
    pub fn of(cluster: &Cluster) -> Budgets {
        let mut budgets: HashMap<Name, Vec<Arc<PodDisruptionBudget>>> = HashMap::new();
        for budget in cluster.objects().pod_disruption_budgets.iter() {
            budgets.entry(budget.namespace.clone()).or_default().push(budget.clone());
        }
        budgets.values_mut().for_each(|all| all.sort_by(|a, b| a.name.cmp(&b.name)));
        Budgets { budgets: Arc::new(budgets), charged: HashMap::new() }
    }

    /// Charges the pod's eviction to all budgets that cover it. O(budgets of the pod's namespace).
    ///
    /// # Errors
    ///
    /// Returns the name of the first budget that allows no disruption; no budget is charged then.
    pub fn charge(&mut self, pod: &PodInfo<'_>) -> Result<(), Name> {
        let labels = &pod.template().labels;
        let of_namespace = self.budgets.get(pod.namespace()).into_iter().flatten();
        let covering = of_namespace.filter(|it| it.counts(pod.namespace(), pod.name(), labels));
        let key = |budget: &PodDisruptionBudget| (budget.namespace.clone(), budget.name.clone());
        for budget in covering.clone() {
            let charged = self.charged.get(&key(budget)).copied().unwrap_or(0);
            if budget.disruptions_allowed <= charged {
                return Err(budget.name.clone());
            }
        }
        for budget in covering {
            *self.charged.entry(key(budget)).or_default() += 1;
        }
        Ok(())
    }
}

/// The outcome of draining a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Drained {
    /// The evicted pods, without a node, as their controllers would recreate them.
    pub evicted: Vec<Pod>,
    /// The pods that stay, and why.
    pub stays: Vec<(Pod, Stays)>,
}

impl Drained {
    /// Returns whether every pod that had to leave the node was evicted.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        !self.stays.iter().any(|(_, why)| why.is_in_the_way())
    }
}

/// Returns why a pod of this template would stay on its node, disregarding disruption budgets.
#[must_use]
pub fn stays(template: &Template, options: DrainOptions) -> Option<Stays> {
    let controller = template.controller();
    match controller.map(|owner| &*owner.kind) {
        Some("DaemonSet") => Some(Stays::DaemonSet),
        Some("Node") => Some(Stays::Mirror),
        None if !options.force => Some(Stays::Bare),
        _ if template.has_local_storage && !options.delete_local_data => Some(Stays::LocalStorage),
        _ => None,
    }
}

impl WhatIf {
    /// Cordons a node and evicts its pods, as far as their owners and disruption budgets allow. Terminating pods end
    /// without an eviction: their controllers have replaced them already. The evicted pods are not placed yet: see
    /// [`WhatIf::schedule`].
    ///
    /// # Errors
    ///
    /// The node does not exist.
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
        let (mut going, mut ended) = (Vec::new(), Vec::new());
        if let Some(info) = self.node(node) {
            let mut pods: Vec<PodInfo<'_>> = info.pods().collect();
            pods.sort_by(|a, b| (a.namespace(), a.name()).cmp(&(b.namespace(), b.name())));
            for pod in pods {
                if pod.deletion_time().is_some() {
                    ended.push(pod.uid());
                    continue;
                }
                let why = stays(pod.template(), options)
                    .or_else(|| budgets.charge(&pod).err().map(Stays::Budget));
                match why {
                    Some(why) => drained.stays.push((pod.to_pod(), why)),
                    None => going.push(pod.to_pod()),
                }
            }
        }
        self.fork().add_node(Node { unschedulable: true, ..Node::clone(&known) })?;
        for uid in ended {
            self.fork().remove_pod(&uid)?;
        }
        for pod in going {
            self.fork().remove_pod(&pod.uid)?;
            drained.evicted.push(Pod {
                node_name: None,
                nominated_node_name: None,
                start_time: None,
                ..pod
            });
        }
        Ok(drained)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::{Config, Engine};
    use crate::framework::{AlgorithmConfig, Framework};
    use crate::model::{OwnerReference, PodSpec, Template, Timestamp, node, pod};

    #[test]
    fn terminating_pods_end_without_an_eviction() {
        let owned = |name: &str| {
            let mut owned = pod(name).on("n1").build();
            let mut spec = PodSpec::clone(&owned.template);
            spec.owners = Box::new([OwnerReference {
                api_version: "apps/v1".into(),
                kind: "ReplicaSet".into(),
                name: "web".into(),
                uid: "web".into(),
                controller: true,
            }]);
            owned.template = Template::new(spec);
            owned
        };
        let (mut writer, _) = Engine::inline(Config::default());
        writer.add_node(node("n1").build()).unwrap();
        writer.add_pod(owned("web-1")).unwrap();
        writer.add_pod(Pod { deletion_time: Some(Timestamp(1)), ..owned("web-0") }).unwrap();
        writer.publish();
        let framework = Arc::new(Framework::default_profile());
        let mut what_if = WhatIf::new(&writer.snapshot(), framework, AlgorithmConfig::default());
        let mut budgets = Budgets::of(&what_if);
        let drained = what_if.drain("n1", &mut budgets, DrainOptions::default()).unwrap();
        let evicted: Vec<&str> = drained.evicted.iter().map(|pod| &*pod.name).collect();
        assert_eq!((evicted, drained.stays.len()), (vec!["web-1"], 0));
        assert_eq!(what_if.node("n1").map(|node| node.pods().count()), Some(0));
    }
}
