//! The pods of daemon sets.

use super::pod::PodDraft;
use super::workloads::{ControllerKind, PodController};
use portolan::model::{
    Name, Node, NodeSelector, NodeSelectorTerm, Operator, Pod, PodSpec, Requirement, Taint,
    TaintEffect, Toleration, TolerationOperator,
};

impl PodController {
    /// Creates the pod of a daemon set for a node, or `None` if the set does not run on it (daemon/util
    /// `nodeShouldRunDaemonPod` and `ReplaceDaemonSetPodNodeNameNodeAffinity`).
    #[must_use]
    pub fn daemon_on(&self, node: &Node) -> Option<Pod> {
        if self.kind != ControllerKind::DaemonSet {
            return None;
        }
        let mut draft = self.owned();
        add_daemon_tolerations(&mut draft);
        let spec = &mut draft.spec;
        let fits = draft.node_name.as_ref().is_none_or(|name| *name == node.name)
            && spec.node_selector.iter().all(|(key, value)| node.labels.get(key) == Some(value))
            && (spec.node_affinity.as_ref())
                .and_then(|affinity| affinity.required.as_ref())
                .is_none_or(|required| required.matches(&node.name, &node.labels))
            && node.taints.iter().all(|taint| {
                taint.effect == TaintEffect::PreferNoSchedule
                    || spec.tolerations.iter().any(|t| t.tolerates(taint))
            });
        if !fits {
            return None;
        }
        pin(spec, &node.name);
        draft.node_name = None;
        Some(self.called(draft.finish(), format!("{}-{}", self.name, node.name)))
    }
}

/// Replaces the fields of each required term by "metadata.name In [node]".
fn pin(spec: &mut PodSpec, node: &Name) {
    let affinity = spec.node_affinity.get_or_insert_default();
    let fields: Box<[Requirement]> =
        [Requirement::new("metadata.name", Operator::In, [node.clone()])].into();
    match &mut affinity.required {
        Some(required) if !required.terms.is_empty() => {
            for term in &mut required.terms {
                term.match_fields = fields.clone();
            }
        }
        required => {
            let term = NodeSelectorTerm { match_fields: fields, ..NodeSelectorTerm::default() };
            *required = Some(NodeSelector { terms: [term].into() });
        }
    }
}

/// daemon/util `AddOrUpdateDaemonPodTolerations`.
fn add_daemon_tolerations(draft: &mut PodDraft) {
    use TaintEffect::{NoExecute, NoSchedule};
    const ALWAYS: [(&str, TaintEffect); 6] = [
        (Taint::NOT_READY, NoExecute),
        (Taint::UNREACHABLE, NoExecute),
        (Taint::DISK_PRESSURE, NoSchedule),
        (Taint::MEMORY_PRESSURE, NoSchedule),
        (Taint::PID_PRESSURE, NoSchedule),
        (Taint::UNSCHEDULABLE, NoSchedule),
    ];
    let on_host_network = draft.host_network.then_some((Taint::NETWORK_UNAVAILABLE, NoSchedule));
    let mut tolerations = Vec::from(std::mem::take(&mut draft.spec.tolerations));
    for (key, effect) in ALWAYS.into_iter().chain(on_host_network) {
        let toleration = Toleration {
            key: Some(key.into()),
            operator: TolerationOperator::Exists,
            value: None,
            effect: Some(effect),
        };
        if !tolerations.contains(&toleration) {
            tolerations.push(toleration);
        }
    }
    draft.spec.tolerations = tolerations.into();
}
