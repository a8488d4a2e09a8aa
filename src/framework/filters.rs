//! PreFilter and Filter: which nodes are feasible for a pod.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::sync::Arc;

use crate::model::{Name, Pod};
use crate::snapshot::{Chunk, Cluster, Freed, NodeInfo, NodeSlot, Victims, lanes};

use super::evaluations::{Evaluations, NodeCount, count};
use super::nominator::OnNode;
use super::recorder::{Step, Watch, timed_step};
use super::runtime::Entry;
use super::status::code;
use super::{Code, Cycle, Filter, Framework, Panics, PreFilter, Reads, Reasons, Status};

/// The filters of all plugins for one pod, as [`Framework::pre_filter`] returns them.
///
/// If pods that take precedence over this pod are nominated to a node, the node must pass both with and without them
/// (`RunFilterPluginsWithNominatedPods`).
pub struct Filters<'a> {
    pub(super) cycle: Cycle<'a>,
    watch: Watch<'a>,
    pub(super) each: Vec<Judge<'a>>,
    pub(super) only: Option<Only>,
    pub(super) rejected: Option<Status>,
    /// The nodes to which pods are nominated that take precedence over this one, sorted by name. Shared by copies.
    /// `None` if there are none, as in most cycles.
    nominated: Option<Arc<[Nominated<'a>]>>,
    /// The nodes of the chunks that the filters of each scope have judged.
    judged: [NodeCount; 2],
}

/// The version of each filter, with its plugin's name: plugins number their versions independently.
pub(super) type Versions = Vec<(&'static str, u64)>;

type Nominated<'a> = (NodeInfo<'a>, Vec<Arc<Pod>>);

/// Which data the verdicts of a filter depend on.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Scope {
    /// On the node and the pod's template alone ([`PluginInfo::local`](super::PluginInfo::local)).
    Local,
    /// Also on other data.
    Global,
}

/// The plugins that PreFilter asks.
#[derive(Clone, Copy)]
pub(super) enum Ask<'r> {
    All,
    /// All but these, which rejected the pod. The others restrict no nodes, so that all of their filters can be asked
    /// about every node.
    AllBut(&'r BTreeSet<&'static str>),
    /// Those that are not [local](super::PluginInfo::local).
    NotLocal,
}

/// The filter of one plugin for one pod.
pub(super) struct Judge<'a> {
    pub(super) plugin: &'static str,
    filter: Held<'a>,
    scope: Scope,
    panics: &'a Panics,
    evaluations: Option<&'a Evaluations>,
    /// The nodes of chunks that this filter has rejected.
    rejected: NodeCount,
}

/// A filter that this set owns, or one borrowed from the original of an extended set.
enum Held<'a> {
    Own(Box<dyn Filter + 'a>),
    Shared(&'a dyn Filter),
}

/// The filters, split by which data of a node's pods they read ([`Reads`]).
pub(crate) struct Sums<'f> {
    filters: &'f Filters<'f>,
    /// The filters before the first one that reads [`Reads::Pods`], each with whether it reads [`Reads::Amounts`].
    each: Vec<(&'f Judge<'f>, &'f dyn Filter, bool)>,
    /// The first filter that reads [`Reads::Pods`]. If there is none, `each` contains all filters.
    by_pods: Option<(&'f Judge<'f>, &'f dyn Filter)>,
}

/// The verdict of the filters on a node without some of its pods.
pub(crate) enum Without<R> {
    /// The filters reject the node.
    Rejected(R),
    /// The node passes. [`Sums::passes_without`] returns whether it also passes if fewer pods are removed.
    Passes,
    /// The node passes the filters before the first one that reads [`Reads::Pods`], see [`Sums::rejection_by_pods`].
    PassesSums,
    /// The sums do not determine the verdict.
    Unknown,
}

/// The only nodes that PreFilter plugins allow, and these plugins.
pub(super) struct Only {
    pub(super) plugins: BTreeSet<&'static str>,
    /// Without duplicates. A node of this name need not exist.
    pub(super) names: Vec<Name>,
}

impl Only {
    pub(super) fn status(&self) -> Status {
        let plugins: Vec<&str> = self.plugins.iter().copied().collect();
        let reason = format!("node(s) didn't satisfy plugin(s) [{}]", plugins.join(" "));
        Status::new(Code::UnschedulableAndUnresolvable, "", reason)
    }

    /// Returns the status of a pod for which the plugins leave no node.
    fn conflict(&self) -> Status {
        let plugins: Vec<&str> = self.plugins.iter().copied().collect();
        let reason = match &plugins[..] {
            [plugin] => format!("node(s) didn't satisfy plugin {plugin}"),
            _ => {
                let plugins = plugins.join(" ");
                format!("node(s) didn't satisfy plugin(s) [{plugins}] simultaneously")
            }
        };
        Status::new(Code::UnschedulableAndUnresolvable, "", reason)
    }
}

impl<'a> Held<'a> {
    fn get(&self) -> &(dyn Filter + 'a) {
        match self {
            Held::Own(filter) => &**filter,
            Held::Shared(filter) => *filter,
        }
    }
}

impl Framework {
    /// Returns the nominated pods that take precedence over the pod of a cycle, by node.
    fn nominated<'a>(&self, cycle: Cycle<'a>) -> Option<Arc<[Nominated<'a>]>> {
        let before = self.handle().nominator().before(cycle.pod);
        let on_node = |(node, pods): OnNode| Some((cycle.cluster.node(&node)?, pods));
        (!before.is_empty()).then(|| before.into_iter().filter_map(on_node).collect())
    }

    /// Asks every plugin for its filter for this pod, and looks up the nominated pods that take precedence over it.
    /// [`Filters::rejected`] returns whether a plugin rejected the pod.
    pub fn pre_filter<'a>(&'a self, cycle: Cycle<'a>) -> Filters<'a> {
        self.pre_filter_of(cycle, Ask::All)
    }

    /// Like [`Framework::pre_filter`], but asks only some plugins.
    pub(super) fn pre_filter_of<'a>(&'a self, cycle: Cycle<'a>, ask: Ask<'_>) -> Filters<'a> {
        let watch = self.watch(cycle);
        let outcome = |filters: &Filters<'_>| filters.rejected.as_ref().map(|status| status.code);
        timed_step(self.recorder(), Step::PreFilter, outcome, || {
            let mut filters = Filters {
                cycle,
                watch,
                each: Vec::with_capacity(self.pre_filter_order().len()),
                only: None,
                rejected: None,
                nominated: self.nominated(cycle),
                judged: Default::default(),
            };
            let caught = watch.panics.guard_all(Step::PreFilter.as_str(), |plugin| {
                filters.ask(self, plugin, ask);
            });
            if let Err(status) = caught {
                filters.fail(status);
            }
            filters
        })
    }
}

impl Drop for Filters<'_> {
    /// Counts the evaluations. Drops the filters one by one: destructors of plugins may panic, and a second panic while
    /// unwinding would end the process.
    fn drop(&mut self) {
        self.count_evaluations();
        while !self.each.is_empty() {
            // The panic is recorded, and the verdicts have been used already.
            let _ = self.watch.panics.guard_all(FILTER, |plugin| {
                while let Some(judge) = self.each.pop() {
                    plugin.set(judge.plugin);
                }
            });
        }
    }
}

impl<'a> Filters<'a> {
    /// Asks each of these plugins. Sets `asked` to the plugin's name before calling the plugin.
    fn ask(&mut self, framework: &'a Framework, asked: &Cell<&'static str>, ask: Ask<'_>) {
        let mut positions: Vec<usize> = Vec::with_capacity(framework.pre_filter_order().len());
        for (Entry { plugin, info, evaluations, .. }, position) in framework.pre_filter_order() {
            let name = info.name;
            let is_asked = match ask {
                Ask::All => true,
                Ask::AllBut(rejectors) => !rejectors.contains(name),
                Ask::NotLocal => !info.is_local,
            };
            if !is_asked {
                continue;
            }
            asked.set(name);
            let scope = if info.is_local { Scope::Local } else { Scope::Global };
            let answer = self.watch.time(
                (name, Step::PreFilter),
                |answer: &Result<PreFilter<'_>, Status>| match answer {
                    Ok(PreFilter::Skip) => Some(Code::Skip),
                    Ok(_) => None,
                    Err(status) => Some(status.code),
                },
                || plugin.pre_filter(self.cycle),
            );
            if !matches!(answer, Ok(PreFilter::Skip)) {
                count(evaluations.pre_filter.as_ref(), 1);
            }
            let filter = match answer {
                Ok(PreFilter::Skip) => continue,
                Ok(PreFilter::Filter(filter)) => filter,
                Ok(PreFilter::Only(names, filter)) => {
                    if !matches!(ask, Ask::AllBut(_)) && !self.narrow(name, names) {
                        return;
                    }
                    filter
                }
                Err(status) => match status.code {
                    // Removing pods may help, and preemption needs the other plugins' filters.
                    Code::Unschedulable => {
                        self.rejected = Some(Status { plugin: name, ..status });
                        continue;
                    }
                    Code::UnschedulableAndUnresolvable => {
                        self.rejected = Some(Status { plugin: name, ..status });
                        return;
                    }
                    _ => return self.fail(Status { plugin: name, ..status }),
                },
            };
            if let Some(position) = position {
                let at = positions.partition_point(|before| *before < position);
                positions.insert(at, position);
                let judge = Judge {
                    plugin: name,
                    filter: Held::Own(filter),
                    scope,
                    panics: self.watch.panics,
                    evaluations: evaluations.filter.as_ref(),
                    rejected: NodeCount::default(),
                };
                self.each.insert(at, judge);
            }
        }
    }

    /// Rejects the pod because a plugin failed.
    fn fail(&mut self, status: Status) {
        let plugin = status.plugin;
        let step = format_args!("running PreFilter plugin {plugin:?}");
        self.rejected = Some(status.failed(plugin, step));
    }

    /// Restricts the feasible nodes to these, and returns whether any node is left.
    fn narrow(&mut self, plugin: &'static str, names: Vec<Name>) -> bool {
        let only = self
            .only
            .get_or_insert_with(|| Only { plugins: BTreeSet::new(), names: names.clone() });
        only.plugins.insert(plugin);
        // Each name is removed from the set once, so a node that is named twice is kept once.
        let mut names: BTreeSet<&Name> = names.iter().collect();
        only.names.retain(|name| names.remove(name));
        if only.names.is_empty() {
            self.rejected = Some(only.conflict());
        }
        !only.names.is_empty()
    }

    /// Returns why no node is feasible if PreFilter determined that before any node was examined.
    #[must_use]
    pub fn rejected(&self) -> Option<&Status> {
        self.rejected.as_ref()
    }

    /// Returns the only nodes that may be feasible if PreFilter plugins named them (`PreFilterResult`).
    #[doc(hidden)]
    #[must_use]
    pub fn names(&self) -> Option<&[Name]> {
        self.only.as_ref().map(|only| &*only.names)
    }

    /// Returns why the node is rejected, by the first plugin that rejects it, or `None` if it passes. Ignores nominated
    /// pods.
    #[must_use]
    pub fn filter(&self, node: NodeInfo<'_>) -> Option<Status> {
        if let Some(status) = self.excluded(node) {
            return Some(status);
        }
        self.each.iter().find_map(|judge| judge.filter(node))
    }

    /// Returns why the node is rejected, or `None` if it passes both with and without the pods that are nominated to it
    /// and take precedence over this one.
    #[must_use]
    pub fn filter_with_nominated(&self, node: NodeInfo<'_>) -> Option<Status> {
        self.excluded(node)
            .or_else(|| self.with_nominated(node))
            .or_else(|| self.each.iter().find_map(|judge| judge.filter(node)))
    }

    /// Returns the nodes that [`Filters::filter_with_nominated`] accepts, in list order. O(chunks × plugins + feasible
    /// nodes × log feasible nodes), or O(nodes × plugins) if pods are nominated or PreFilter named nodes.
    #[must_use]
    pub fn feasible(&self) -> Vec<NodeInfo<'a>> {
        let cluster = self.cycle.cluster;
        if self.rejected.is_some() {
            return Vec::new();
        }
        let passes = |node: NodeInfo<'_>| self.filter_with_nominated(node).is_none();
        if self.nominated.is_some() || self.only.is_some() {
            return cluster.nodes().filter(|node| passes(*node)).collect();
        }
        let nodes = cluster.nodes_in_list_order(|chunk| {
            let local = self.judge_chunk(Scope::Local, cluster, chunk, chunk.live());
            let passed =
                local.and_then(|mask| self.judge_chunk(Scope::Global, cluster, chunk, mask));
            // A plugin that fails on one node of the chunk may accept others.
            let one_by_one = |_| {
                let passed =
                    nodes_of(cluster, chunk, chunk.live()).filter(|(_, node)| passes(*node));
                passed.fold(0, |mask, (lane, _)| mask | 1 << lane)
            };
            passed.unwrap_or_else(one_by_one)
        });
        nodes.collect()
    }

    /// Returns the statuses of all plugins that reject the node, in the order of the plugins. Meant for diagnosis:
    /// scheduling stops at the first one.
    #[must_use]
    pub fn filter_all(&self, node: NodeInfo<'_>) -> Vec<Status> {
        if let Some(status) = self.excluded(node) {
            return vec![status];
        }
        let first = self.with_nominated(node);
        let mut all: Vec<Status> = first.into_iter().collect();
        for status in self.each.iter().filter_map(|judge| judge.filter(node)) {
            if all.first().is_none_or(|first| first.plugin != status.plugin) {
                all.push(status);
            }
        }
        all
    }

    /// Returns why the node is excluded before any filter runs.
    fn excluded(&self, node: NodeInfo<'_>) -> Option<Status> {
        if self.rejected.is_some() {
            return self.rejected.clone();
        }
        let only = self.only.as_ref()?;
        (!only.names.contains(node.name())).then(|| only.status())
    }

    /// Returns why the node is rejected if the pods that are nominated to it are on it.
    pub(super) fn with_nominated(&self, node: NodeInfo<'_>) -> Option<Status> {
        let pods = self.nominated_to(node)?;
        let mut fork = node.cluster().fork();
        let mut filters = self.extend();
        if let Some(status) = &filters.rejected {
            return Some(status.clone());
        }
        for pod in pods {
            let placed = Pod::clone(pod).on(node.name().clone());
            if let Err(error) = fork.add_pod(&placed) {
                return Some(Status::error("", error.to_string()));
            }
            let Some(node) = fork.node(node.name()) else { continue };
            if let Err(status) = filters.add_pod(&placed, node) {
                return Some(status);
            }
        }
        let node = fork.node(node.name())?;
        filters.each.iter().find_map(|judge| judge.filter(node))
    }

    /// Returns a copy that can follow pod changes (`Filters::add_pod`, [`Filters::remove_pod`]). Filters that need
    /// not follow them are shared (`CycleState.Clone`).
    #[must_use]
    pub fn extend(&self) -> Filters<'_> {
        // If a filter fails to copy itself, it would miss pod changes, so the copy rejects every node.
        let mut rejected = None;
        let each = self.each.iter().map(|judge| {
            let extended = judge.guard("PreFilterExtension", |filter| Ok(filter.extend()));
            let own = extended.unwrap_or_else(|status| {
                rejected.get_or_insert(judge.failed(status));
                None
            });
            Judge {
                filter: own.map_or_else(|| Held::Shared(judge.filter.get()), Held::Own),
                rejected: NodeCount::default(),
                ..*judge
            }
        });
        Filters {
            cycle: self.cycle,
            watch: self.watch,
            each: each.collect(),
            only: None,
            rejected,
            nominated: self.nominated.clone(),
            judged: Default::default(),
        }
    }

    /// Splits the filters by which data of a node's pods they read. Returns `None` if a filter reads
    /// [`Reads::Anything`] or panics; every node must then be tried on a fork. O(filters).
    pub(crate) fn sums(&self) -> Option<Sums<'_>> {
        let sums = self.watch.panics.guard_all(FILTER, |plugin| {
            let mut sums = Sums { filters: self, each: Vec::new(), by_pods: None };
            for judge in &self.each {
                plugin.set(judge.plugin);
                let filter = judge.filter.get();
                match filter.reads() {
                    Reads::Anything => return None,
                    Reads::Pods if sums.by_pods.is_none() => sums.by_pods = Some((judge, filter)),
                    reads if sums.by_pods.is_none() => {
                        sums.each.push((judge, filter, reads == Reads::Amounts));
                    }
                    Reads::Node | Reads::Amounts | Reads::Pods => {}
                }
            }
            Some(sums)
        });
        sums.unwrap_or(None)
    }

    /// Returns how many pods like this one each node accepts one after the other, without the nodes that accept none.
    /// `None` if a filter does not know, or if its verdict on a node depends on other nodes. O(nodes).
    pub(crate) fn copies(&self) -> Option<Vec<(NodeInfo<'a>, usize)>> {
        if !self.are_local() {
            return None;
        }
        let cluster = self.cycle.cluster;
        let mut all = Vec::new();
        for chunk in cluster.zones().flat_map(|zone| zone.chunks()) {
            let passed = self.judge_chunk(Scope::Local, cluster, chunk, chunk.live()).ok()?;
            let known = self.together(|plugin| {
                Ok(nodes_of(cluster, chunk, passed).try_for_each(|(_, node)| {
                    let mut copies = None;
                    for judge in &self.each {
                        plugin.set(judge.plugin);
                        let filter = judge.filter.get();
                        match filter.reads() {
                            Reads::Node => {}
                            Reads::Amounts => {
                                let most = filter.copies(node)?;
                                copies =
                                    Some(copies.map_or(most, |copies: usize| copies.min(most)));
                            }
                            Reads::Pods | Reads::Anything => return None,
                        }
                    }
                    all.push((node, copies?));
                    Some(())
                }))
            });
            known.ok().flatten()?;
        }
        Some(all)
    }

    /// Updates the filters for a pod that was added to the node. The node belongs to a fork that already contains the
    /// pod.
    ///
    /// # Errors
    ///
    /// Returns an error if a plugin failed.
    pub(crate) fn add_pod(&mut self, pod: &Pod, node: NodeInfo<'_>) -> Result<(), Status> {
        let step = Step::PreFilterExtensionAddPod;
        self.update_each((step, "AddPod"), |filter| filter.add_pod(pod, node))
    }

    /// Updates the filters for a pod that was removed from the node. The node belongs to a fork that no longer contains
    /// the pod.
    ///
    /// # Errors
    ///
    /// Returns an error if a plugin failed.
    pub fn remove_pod(&mut self, pod: &Pod, node: NodeInfo<'_>) -> Result<(), Status> {
        let step = Step::PreFilterExtensionRemovePod;
        self.update_each((step, "RemovePod"), |filter| filter.remove_pod(pod, node))
    }

    fn update_each(
        &mut self,
        (step, verb): (Step, &str),
        mut change: impl FnMut(&mut (dyn Filter + 'a)) -> Result<(), Status>,
    ) -> Result<(), Status> {
        for judge in &mut self.each {
            let (plugin, watch) = (judge.plugin, self.watch);
            let Held::Own(filter) = &mut judge.filter else { continue };
            watch.ask((plugin, step), code, || change(&mut **filter)).map_err(|status| {
                status.failed(plugin, format_args!("running {verb} on PreFilter plugin {plugin:?}"))
            })?;
        }
        Ok(())
    }

    /// Returns the lanes of `mask` that pass the filters of this scope.
    pub(super) fn judge_chunk(
        &self,
        scope: Scope,
        cluster: &Cluster,
        chunk: &Chunk,
        mut mask: u64,
    ) -> Result<u64, Status> {
        if mask == 0 || !self.has(scope) {
            return Ok(mask);
        }
        let is_counted = self.watch.recorder.is_some();
        if is_counted {
            self.judged[scope as usize].add(mask);
        }
        self.together(|plugin| {
            for judge in self.each.iter().filter(|judge| judge.scope == scope) {
                if mask == 0 {
                    break;
                }
                plugin.set(judge.plugin);
                let asked = (judge.plugin, Step::Filter);
                let filter = judge.filter.get();
                let passed =
                    self.watch.time(asked, code, || filter.filter_chunk(cluster, chunk, mask));
                // A plugin of a user may answer for the whole chunk, but a node that failed before does not pass again.
                let passed = mask & passed.map_err(|status| judge.failed(status))?;
                if is_counted && passed != mask {
                    judge.rejected.add(mask ^ passed);
                }
                mask = passed;
            }
            Ok(mask)
        })
    }

    /// Adds the evaluations of chunks so far to the plugins' counters. A filter judges the nodes that the filters of
    /// its scope before it have not rejected.
    fn count_evaluations(&mut self) {
        for scope in [Scope::Local, Scope::Global] {
            let mut nodes = self.judged[scope as usize].take();
            for judge in self.each.iter_mut().filter(|judge| judge.scope == scope) {
                count(judge.evaluations, nodes);
                nodes = nodes.saturating_sub(judge.rejected.take());
            }
        }
    }

    /// Calls several filters. A panic becomes the error of the plugin that panicked.
    fn together<T>(
        &self,
        work: impl FnOnce(&Cell<&'static str>) -> Result<T, Status>,
    ) -> Result<T, Status> {
        let caught = self.watch.panics.guard_all(FILTER, work);
        caught.unwrap_or_else(|status| Err(failed(status.plugin, status)))
    }

    /// Returns whether there are filters of this scope.
    pub(super) fn has(&self, scope: Scope) -> bool {
        self.each.iter().any(|judge| judge.scope == scope)
    }

    /// Returns whether the verdict on each node depends only on the node and the pod's template. Changes of other
    /// nodes, of their pods and of other objects do not change it then.
    #[must_use]
    pub fn are_local(&self) -> bool {
        self.rejected.is_none()
            && !self.has(Scope::Global)
            && self.only.is_none()
            && self.nominated.is_none()
    }

    /// Returns whether pods are nominated that take precedence over this one.
    pub(super) fn has_nominated(&self) -> bool {
        self.nominated.is_some()
    }

    /// Returns for each of these nodes whether it still passes. Each passed all filters when a placement on it was
    /// decided, and nothing has happened to it since, so local filters are not called. `None` if a filter does not
    /// promise [`Filter::stays_feasible`](super::Filter::stays_feasible), if PreFilter rejected the pod or named nodes,
    /// if pods are nominated, or if a plugin failed.
    pub(crate) fn still_pass(&self, nodes: &[NodeSlot]) -> Option<Vec<bool>> {
        if self.rejected.is_some() || self.only.is_some() || self.nominated.is_some() {
            return None;
        }
        let passed = self.together(|plugin| {
            let global = || self.each.iter().filter(|judge| judge.scope == Scope::Global);
            for judge in global() {
                plugin.set(judge.plugin);
                if !judge.filter.get().stays_feasible() {
                    return Ok(None);
                }
            }
            let passes = |node: &NodeSlot| {
                let node = self.cycle.cluster.node_by_slot(*node);
                node.is_some_and(|node| {
                    global().all(|judge| {
                        plugin.set(judge.plugin);
                        judge.filter.get().filter(node).is_none()
                    })
                })
            };
            Ok(Some(nodes.iter().map(passes).collect()))
        });
        passed.unwrap_or(None)
    }

    /// Returns the versions of the filters that are not local, in order. `None` if one has no version or panics, or if
    /// verdicts depend on nominated pods.
    pub(super) fn versions(&self) -> Option<Versions> {
        if self.nominated.is_some() {
            return None;
        }
        if !self.has(Scope::Global) {
            // No plugin is called, so the panic guard, which takes time, is left out.
            return Some(Vec::new());
        }
        let versions = self.together(|plugin| {
            let global = self.each.iter().filter(|judge| judge.scope == Scope::Global);
            let versions = global.map(|judge| {
                plugin.set(judge.plugin);
                Some((judge.plugin, judge.filter.get().version()?))
            });
            Ok(versions.collect())
        });
        versions.unwrap_or(None)
    }

    /// Iterates over the nodes to which pods are nominated that take precedence over this one.
    pub(super) fn nominated(&self) -> impl Iterator<Item = NodeInfo<'a>> {
        self.nominated.iter().flat_map(|nodes| nodes.iter()).map(|(node, _)| *node)
    }

    /// Returns the pods that take precedence over this one and are nominated to the node. O(log nominated nodes).
    fn nominated_to(&self, node: NodeInfo<'_>) -> Option<&[Arc<Pod>]> {
        let nodes = self.nominated.as_ref()?;
        let at = nodes.binary_search_by(|(of, _)| of.name().cmp(node.name())).ok()?;
        nodes.get(at).map(|(_, pods)| &**pods)
    }

    /// Returns the lanes of `mask`, whose nodes pass without nominated pods, that also pass with the pods nominated to
    /// them.
    pub(super) fn keep_with_nominated(&self, chunk: &Chunk, mask: u64) -> Result<u64, Status> {
        let mut passed = mask;
        for node in self.nominated() {
            let (of, lane) = node.place();
            if !std::ptr::eq(of, chunk) || mask >> lane & 1 == 0 {
                continue;
            }
            match self.with_nominated(node) {
                Some(status) if !status.code.is_rejection() => return Err(status),
                Some(_) => passed &= !(1 << lane),
                None => {}
            }
        }
        Ok(passed)
    }
}

impl Sums<'_> {
    /// Returns the verdict of [`Filters::filter_with_nominated`] on the node without pods that request `freed` in
    /// total, computed from sums, without a fork. Returns [`Without::Unknown`] if a filter needs more data or panics.
    pub(crate) fn without(&self, node: NodeInfo<'_>, freed: &Freed<'_>) -> Without<Status> {
        self.first_rejection(node, |judge, filter| {
            filter.filter_without(node, freed).map(|status| judge.failed(status))
        })
    }

    /// Like [`Sums::without`], but adds the reasons of a rejection to `reasons`. A rejection contains a status only if
    /// a plugin failed.
    pub(crate) fn count_without(
        &self,
        node: NodeInfo<'_>,
        freed: &Freed<'_>,
        reasons: &mut Reasons,
    ) -> Without<Option<Status>> {
        self.first_rejection(node, |judge, filter| {
            match filter.count_without(node, freed, reasons) {
                Ok(true) => None,
                Ok(false) => Some(None),
                Err(status) => Some(Some(judge.failed(status))),
            }
        })
    }

    /// Returns why the first filter that reads [`Reads::Pods`] rejects the node without these pods, if it knows that
    /// without a fork.
    pub(crate) fn rejection_by_pods(&self, victims: Victims<'_>) -> Option<Status> {
        let (judge, filter) = self.by_pods?;
        let rejection =
            judge.panics.guard_or(judge.plugin, FILTER, None, || filter.rejection_without(victims));
        rejection.map(|status| judge.failed(status))
    }

    fn first_rejection<R>(
        &self,
        node: NodeInfo<'_>,
        mut ask: impl FnMut(&Judge<'_>, &dyn Filter) -> Option<R>,
    ) -> Without<R> {
        if self.filters.nominated_to(node).is_some() {
            return Without::Unknown;
        }
        let asked = self.filters.watch.panics.guard_all(FILTER, |plugin| {
            for (judge, filter, _) in &self.each {
                plugin.set(judge.plugin);
                if let Some(rejection) = ask(judge, *filter) {
                    return Without::Rejected(rejection);
                }
            }
            match self.by_pods {
                None => Without::Passes,
                Some(_) => Without::PassesSums,
            }
        });
        asked.unwrap_or(Without::Unknown)
    }

    /// Returns whether a node that [passes](Without::Passes) still passes if only `freed` is removed. A panic counts as
    /// a rejection.
    pub(crate) fn passes_without(&self, node: NodeInfo<'_>, freed: &Freed<'_>) -> bool {
        let passes = self.filters.watch.panics.guard_all(FILTER, |plugin| {
            self.each.iter().filter(|(.., by_amounts)| *by_amounts).all(|(judge, filter, _)| {
                plugin.set(judge.plugin);
                filter.passes_without(node, freed)
            })
        });
        passes.unwrap_or(false)
    }
}

pub(super) const FILTER: &str = Step::Filter.as_str();

/// Returns a rejection unchanged, and converts any other status to a failure of the step.
fn failed(plugin: &'static str, status: Status) -> Status {
    match status.code.is_rejection() {
        true => status,
        false => status.failed(plugin, format_args!("running {plugin:?} filter plugin")),
    }
}

impl Judge<'_> {
    fn filter(&self, node: NodeInfo<'_>) -> Option<Status> {
        count(self.evaluations, 1);
        let answer = self.guard(FILTER, |filter| Ok(filter.filter(node)));
        answer.unwrap_or_else(Some).map(|status| self.failed(status))
    }

    /// Calls the filter. A panic becomes an error.
    pub(super) fn guard<'s, T>(
        &'s self,
        step: &'static str,
        ask: impl FnOnce(&'s dyn Filter) -> Result<T, Status>,
    ) -> Result<T, Status> {
        self.panics.guard(self.plugin, step, || ask(self.filter.get()))
    }

    fn failed(&self, status: Status) -> Status {
        failed(self.plugin, status)
    }
}

/// Iterates over the lanes of `mask` with their nodes.
pub(super) fn nodes_of<'a>(
    cluster: &'a Cluster,
    chunk: &'a Chunk,
    mask: u64,
) -> impl Iterator<Item = (usize, NodeInfo<'a>)> {
    lanes(mask).filter_map(move |lane| Some((lane, cluster.node_in(chunk, lane)?)))
}
