//! Why no node is feasible for a pod: counts the reasons 64 nodes at a time, and finds the nodes on which preemption
//! may help.
//!
//! Both follow from the lanes that each filter rejects, so each filter judges each chunk once. A filter is asked which
//! of its rejections preemption may resolve only when that is needed.

use std::sync::OnceLock;

use crate::snapshot::{Chunk, Cluster, NodeInfo};

use super::extender::ExtenderVerdicts;
use super::filters::{FILTER, Filters};
use super::{Code, Filter, FitError, Reasons, Status};

pub(super) struct Rejections<'a> {
    pub(super) error: FitError,
    lanes: Vec<Rejected<'a>>,
}

/// Rejected lanes of a chunk.
struct Rejected<'a> {
    id: u32,
    chunk: &'a Chunk,
    by: By,
    lanes: u64,
}

/// What rejects some lanes.
#[derive(Clone, Copy)]
enum By {
    /// The filter at this position.
    Filter(usize),
    /// A status with the code [`Code::Unschedulable`]. Lanes with other statuses are not stored.
    Unschedulable,
}

impl<'a> Rejections<'a> {
    /// Judges all nodes.
    pub(super) fn new(filters: &Filters<'a>) -> Rejections<'a> {
        let cluster = filters.cycle.cluster;
        let error = FitError::new(cluster.len());
        let mut rejections = Rejections { error, lanes: Vec::new() };
        if let Some(status) = &filters.rejected {
            rejections.reject_all(cluster, status);
            return rejections;
        }
        let mut reasons = Reasons::default();
        match &filters.only {
            Some(only) => {
                let named = only.names.iter().filter_map(|name| cluster.node(name));
                let named: Vec<NodeInfo<'a>> = named.collect();
                for node in &named {
                    if let Some(status) = filters.filter_with_nominated(*node) {
                        rejections.reject(*node, status, &mut reasons);
                    }
                }
                for reason in only.status().reasons {
                    reasons.add(reason, cluster.len() - named.len());
                }
                rejections.error.unschedulable_plugins.extend(&only.plugins);
            }
            None => rejections.count(filters, &mut reasons),
        }
        rejections.error.reasons = reasons.into_map();
        rejections
    }

    /// Rejects all nodes with the status that the pod got before any node was examined.
    fn reject_all(&mut self, cluster: &'a Cluster, status: &Status) {
        let reasons = status.reasons.iter();
        self.error.reasons = reasons.map(|reason| (reason.clone(), cluster.len())).collect();
        self.error.pre_filter = Some(status.clone());
        self.error.add_plugin(status);
        if status.code == Code::Unschedulable {
            let all = cluster.chunk_list();
            self.lanes.extend(all.map(|(id, _, chunk)| Rejected {
                id,
                chunk,
                by: By::Unschedulable,
                lanes: chunk.live(),
            }));
        }
    }

    fn reject(&mut self, node: NodeInfo<'a>, status: Status, reasons: &mut Reasons) {
        self.error.add_plugin(&status);
        if status.code == Code::Unschedulable
            && let Some((id, _, _)) = node.cluster().chunk_of(node)
        {
            let (chunk, lane) = node.place();
            self.lanes.push(Rejected { id, chunk, by: By::Unschedulable, lanes: 1 << lane });
        }
        status.reasons.into_iter().for_each(|reason| reasons.add(reason, 1));
    }

    /// Calls the filters on all chunks.
    fn count(&mut self, filters: &Filters<'a>, reasons: &mut Reasons) {
        let cluster = filters.cycle.cluster;
        let mut with_nominated: Vec<(*const Chunk, u64)> = Vec::new();
        for node in filters.nominated() {
            if let Some(status) = filters.with_nominated(node) {
                let (chunk, lane) = node.place();
                with_nominated.push((chunk, 1 << lane));
                self.reject(node, status, reasons);
            }
        }
        let mut rejecting = vec![false; filters.each.len()];
        for (id, _, chunk) in cluster.chunk_list() {
            let done = with_nominated.iter().filter(|(of, _)| std::ptr::eq(*of, chunk));
            let mut mask = done.fold(chunk.live(), |mask, (_, lanes)| mask & !lanes);
            // Each call is guarded separately, so that a panic in one plugin does not hide the rejections of others.
            for (at, judge) in filters.each.iter().enumerate() {
                if mask == 0 {
                    break;
                }
                let count =
                    |filter: &dyn Filter| filter.count_reasons(cluster, chunk, mask, reasons);
                // An error would have ended the cycle earlier.
                let passed = judge.guard(FILTER, count).unwrap_or(0);
                if passed != mask {
                    rejecting[at] = true;
                    self.lanes.push(Rejected {
                        id,
                        chunk,
                        by: By::Filter(at),
                        lanes: mask & !passed,
                    });
                }
                mask = passed;
            }
        }
        let rejecting = filters.each.iter().zip(rejecting).filter(|(_, rejects)| *rejects);
        self.error.unschedulable_plugins.extend(rejecting.map(|(judge, _)| judge.plugin));
    }

    /// Returns the lanes whose status is [`Code::Unschedulable`], by chunk number.
    fn resolvable(&self, filters: &Filters<'_>) -> Vec<u64> {
        let cluster = filters.cycle.cluster;
        let mut found = vec![0; cluster.chunk_bound()];
        for rejected in &self.lanes {
            let Rejected { chunk, lanes, .. } = *rejected;
            found[rejected.id as usize] |= match rejected.by {
                By::Unschedulable => lanes,
                By::Filter(at) => {
                    let ask = |filter: &dyn Filter| Ok(filter.resolvable(cluster, chunk, lanes));
                    // If the plugin panics, its nodes count as unresolvable, so that no pod is preempted for them.
                    filters.each[at].guard(FILTER, ask).unwrap_or(0)
                }
            };
        }
        found
    }
}

/// Counts the reasons of all nodes one by one: the reference for [`Rejections`]. PreFilter has not rejected the pod.
pub(super) fn fit_error_by_nodes(filters: &Filters<'_>) -> FitError {
    let cluster = filters.cycle.cluster;
    let (mut error, mut reasons) = (FitError::new(cluster.len()), Reasons::default());
    for status in cluster.nodes().filter_map(|node| filters.filter_with_nominated(node)) {
        error.add_plugin(&status);
        status.reasons.into_iter().for_each(|reason| reasons.add(reason, 1));
    }
    error.unschedulable_plugins.extend(filters.only.iter().flat_map(|only| &only.plugins));
    error.reasons = reasons.into_map();
    error
}

/// Why no node is feasible for a pod: the input of [`Plugin::post_filter`]. Statuses are computed on demand.
///
/// [`Plugin::post_filter`]: super::Plugin::post_filter
pub struct Diagnosis<'a> {
    filters: &'a Filters<'a>,
    extenders: Option<&'a ExtenderVerdicts>,
    rejections: OnceLock<Rejections<'a>>,
}

impl<'a> Diagnosis<'a> {
    /// Creates the diagnosis of these filters.
    #[doc(hidden)]
    #[must_use]
    pub fn new(filters: &'a Filters<'a>) -> Diagnosis<'a> {
        Diagnosis { filters, extenders: None, rejections: OnceLock::new() }
    }

    /// Creates the diagnosis of these filters and of the extenders that were called after them.
    pub(super) fn with_extenders(
        filters: &'a Filters<'a>,
        extenders: &'a ExtenderVerdicts,
    ) -> Diagnosis<'a> {
        Diagnosis { extenders: Some(extenders), ..Diagnosis::new(filters) }
    }

    fn rejections(&self) -> &Rejections<'a> {
        self.rejections.get_or_init(|| Rejections::new(self.filters))
    }

    /// Counts the reasons of all nodes, and collects the plugins that rejected any node.
    pub(super) fn fit_error(&self) -> FitError {
        self.replaced_by_extenders(self.rejections().error.clone())
    }

    /// Returns what [`Diagnosis::fit_error`] returns, computed node by node.
    pub(super) fn fit_error_by_nodes(&self) -> FitError {
        self.replaced_by_extenders(fit_error_by_nodes(self.filters))
    }

    fn replaced_by_extenders(&self, error: FitError) -> FitError {
        match self.extenders {
            Some(extenders) => extenders.fit_error(error, self.filters),
            None => error,
        }
    }

    /// Returns the filters. [`Filters::extend`] makes a copy on which pods can be added and removed.
    #[doc(hidden)]
    #[must_use]
    pub fn filters(&self) -> &'a Filters<'a> {
        self.filters
    }

    /// Returns why the node is rejected, or `None` if it passes.
    #[must_use]
    pub fn status(&self, node: NodeInfo<'_>) -> Option<Status> {
        let of_extender = self.extenders.and_then(|extenders| extenders.status(node.name()));
        of_extender.cloned().or_else(|| self.filters.filter_with_nominated(node))
    }

    /// Iterates over the nodes whose status has this code, in list order (`NodesForStatusCode`).
    #[doc(hidden)]
    pub fn nodes_with(&self, code: Code) -> impl Iterator<Item = NodeInfo<'a>> {
        let nodes = self.filters.cycle.cluster.nodes();
        nodes.filter(move |node| self.status(*node).is_some_and(|status| status.code == code))
    }

    /// Iterates over the nodes whose status is [`Code::Unschedulable`], which may pass without some of their pods, as
    /// lanes by chunk. Finds the same nodes as [`Diagnosis::nodes_with`], 64 at a time.
    #[doc(hidden)]
    pub fn resolvable(&self) -> impl Iterator<Item = (&'a Chunk, u64)> {
        let cluster = self.filters.cycle.cluster;
        let mut found = self.rejections().resolvable(self.filters);
        if let Some(extenders) = self.extenders {
            extenders.replace(cluster, &mut found);
        }
        cluster.chunk_list().map(move |(id, _, chunk)| (chunk, found[id as usize]))
    }
}
