//! The plugins that an event concerns, and their queueing hints (`scheduler.go` `buildQueueingHintMap`).
//!
//! A framework's plugins are numbered by their positions. The plugins that rejected a pod and that an event concerns
//! are therefore the `and` of two words, and most pods of a queue are skipped without calling a plugin.

use std::time::Instant;

use crate::model::{Pod, PreemptionPolicy};
use crate::snapshot::{Cluster, NodeInfo};

use super::runtime::Entry;
use super::{
    Actions, ClusterEvent, Code, Cycle, CycleState, EXTENDER, EventResource, Framework, Hint,
    Interest, Measurement, PREEMPTION, Plugin, PluginInfo, PluginSet, Point, PreFilter, QueuedPod,
    Reads, Status,
};

/// The last position. All plugins from this one on share it, and so do extenders.
const LAST: usize = 63;

/// Plugins by resource and action.
type ByEvent = [[PluginSet; Actions::COUNT]; EventResource::ALL.len()];

/// The events that each plugin of a framework is interested in.
#[doc(hidden)]
#[derive(Clone, Debug)]
pub struct QueueingHints {
    concerned: ByEvent,
    /// The plugins whose hint is not asked for, since any such event retries the pod.
    retried: ByEvent,
    /// The plugins whose verdict on a node depends on that node only.
    local: PluginSet,
}

fn set(at: usize) -> PluginSet {
    PluginSet(1 << at.min(LAST))
}

/// Returns whether a plugin can reject pods, so that events may concern it (`EnqueueExtensions`).
fn rejects(info: &PluginInfo) -> bool {
    use Point::{Filter, Permit, PreEnqueue, PreFilter, Reserve};
    [PreEnqueue, PreFilter, Filter, Reserve, Permit].into_iter().any(|point| info.extends(point))
}

fn add_interests(to: &mut ByEvent, plugin: PluginSet, events: &[Interest]) {
    for interest in events {
        for resource in interest.resources {
            for action in interest.actions.iter() {
                let known = &mut to[*resource as usize][action.index()];
                *known = known.union(plugin);
            }
        }
    }
}

impl QueueingHints {
    /// Collects the events that a framework's plugins are interested in.
    #[doc(hidden)]
    #[must_use]
    pub fn new(framework: &Framework) -> QueueingHints {
        let none = [[PluginSet::EMPTY; Actions::COUNT]; EventResource::ALL.len()];
        let infos = framework.plugins().iter().map(|entry| &entry.info).enumerate();
        let local = infos.clone().filter(|(at, info)| info.is_local && *at < LAST);
        let local = local.fold(PluginSet::EMPTY, |all, (at, _)| all.union(set(at)));
        let mut hints = QueueingHints { concerned: none, retried: none, local };
        for (at, info) in infos.filter(|(_, info)| rejects(info)) {
            match at < LAST {
                true => hints.register(set(at), info.events),
                false => {
                    add_interests(&mut hints.concerned, set(at), Interest::EVERYTHING);
                    add_interests(&mut hints.retried, set(at), Interest::EVERYTHING);
                }
            }
        }
        if !framework.handle().extenders().is_empty() {
            add_interests(&mut hints.concerned, set(LAST), Interest::EVERYTHING);
            add_interests(&mut hints.retried, set(LAST), Interest::EVERYTHING);
        }
        hints
    }

    fn register(&mut self, plugin: PluginSet, events: &[Interest]) {
        let node = EventResource::Node as usize;
        add_interests(&mut self.concerned, plugin, events);
        // A plugin that waits for added nodes is also notified of taint updates. Kube-scheduler does the same, for
        // nodes that are tainted when they appear (kubernetes#109437).
        let registers = |actions: &[PluginSet; Actions::COUNT], action: Actions| {
            !actions[action.index()].intersection(plugin).is_empty()
        };
        let (add, taint) = (Actions::ADD, Actions::UPDATE_NODE_TAINT);
        if registers(&self.concerned[node], add) && !registers(&self.concerned[node], taint) {
            for map in [&mut self.concerned, &mut self.retried] {
                map[node][taint.index()] = map[node][taint.index()].union(plugin);
            }
        }
    }

    /// Returns the plugins that an event concerns.
    #[doc(hidden)]
    #[must_use]
    pub fn concerned(&self, resource: EventResource, action: Actions) -> PluginSet {
        self.concerned[resource as usize][action.index()]
    }

    /// Returns those of the plugins whose verdict on a node depends on that node only ([`PluginInfo::local`]).
    pub(crate) fn local_among(&self, plugins: PluginSet) -> PluginSet {
        self.local.intersection(plugins)
    }

    /// Asks one plugin for its hint on an event that concerns it. Returns [`Hint::Queue`] if the plugin panics, or if
    /// its hint is not needed.
    #[doc(hidden)]
    #[must_use]
    pub fn ask(
        &self,
        framework: &Framework,
        plugin: PluginSet,
        pod: &Pod,
        event: &ClusterEvent<'_>,
        cluster: &Cluster,
    ) -> Hint {
        let retried = self.retried[event.resource as usize][event.action.index()];
        if !retried.intersection(plugin).is_empty() {
            return Hint::Queue;
        }
        let at = plugin.0.trailing_zeros() as usize;
        let Some(Entry { plugin, info, .. }) = framework.plugins().get(at) else {
            return Hint::Queue;
        };
        let ask = || {
            let hint = || plugin.queueing_hint(pod, event, cluster);
            let panics = framework.handle().panics();
            panics.guard(info.name, "QueueingHint", hint).unwrap_or(Hint::Queue)
        };
        let Some(recorder) = framework.recorder() else { return ask() };
        let start = Instant::now();
        let hint = ask();
        let what = Measurement::Hint(info.name, (event.resource, event.action), hint);
        recorder.record(what, start.elapsed());
        hint
    }
}

/// The plugin whose PostFilter frees claims and evicts no pods.
const DEALLOCATION: &str = "DynamicResources";

impl Framework {
    /// Returns whether one of these local plugins rejects a node for a pod, also without the pods that the pod may
    /// preempt there. Returns `false` if that is not known. O(plugins), and O(pods of the node) if these have changed.
    pub(crate) fn rejects_without_victims(
        &self,
        plugins: PluginSet,
        pod: &Pod,
        node: NodeInfo<'_>,
    ) -> bool {
        let mut preempts = self.infos_at(Point::PostFilter).map(PluginInfo::name);
        // Other plugins may evict other pods, and the members of a group and the pods of a reservation may be placed on
        // other nodes.
        if preempts.any(|name| ![PREEMPTION, DEALLOCATION].contains(&name))
            || pod.group().is_some()
            || node.cluster().godel().is_some()
        {
            return false;
        }
        let may_preempt = self.has_plugins_at(Point::PostFilter)
            && pod.template.preemption_policy != PreemptionPolicy::Never;
        let lower = may_preempt.then(|| node.victims().below(pod.template.priority));
        let lower = lower.filter(|lower| !lower.is_empty());
        let state = CycleState::default();
        let cycle = Cycle::new(node.cluster(), pod, &state);
        let rejects = |plugin: &dyn Plugin| {
            let filter = match plugin.pre_filter(cycle) {
                Ok(PreFilter::Filter(filter)) => filter,
                Ok(PreFilter::Only(names, _)) if !names.contains(node.name()) => return true,
                Ok(PreFilter::Only(_, filter)) => filter,
                Ok(PreFilter::Skip) | Err(_) => return false,
            };
            let Some(status) = filter.filter(node) else { return false };
            match (status.code, &lower) {
                (Code::UnschedulableAndUnresolvable, _) | (Code::Unschedulable, None) => true,
                (Code::Unschedulable, Some(lower)) => {
                    lower.is_plain()
                        && matches!(filter.reads(), Reads::Node | Reads::Amounts)
                        && !filter.passes_without(node, &lower.freed())
                }
                _ => false,
            }
        };
        let is_asked = |at: usize| !plugins.intersection(set(at)).is_empty();
        let mut asked = self.numbered_at(Point::Filter).filter(|(at, _)| is_asked(*at));
        asked.any(|(_, Entry { plugin, info, .. })| {
            let panics = self.handle().panics();
            panics.guard_or(info.name, "Filter", false, || rejects(&**plugin))
        })
    }

    /// Returns the set of the plugins with these names. [`EXTENDER`] stands for all extenders. Unknown names are
    /// ignored.
    #[doc(hidden)]
    pub fn plugin_set<'a>(&self, names: impl IntoIterator<Item = &'a str>) -> PluginSet {
        names.into_iter().fold(PluginSet::EMPTY, |all, name| {
            let at = match name {
                EXTENDER if !self.handle().extenders().is_empty() => Some(LAST),
                _ => self.plugins().iter().position(|entry| entry.info.name == name),
            };
            at.map_or(all, |at| all.union(set(at)))
        })
    }

    /// Returns the names of the plugins in a set.
    #[cfg(feature = "metrics")]
    pub(crate) fn plugin_names(&self, plugins: PluginSet) -> impl Iterator<Item = &'static str> {
        let plugins_by_set =
            self.plugins().iter().enumerate().map(|(at, entry)| (set(at), entry.info.name));
        let extenders = (!self.handle().extenders().is_empty()).then_some((set(LAST), EXTENDER));
        plugins_by_set
            .chain(extenders)
            .filter(move |(one, _)| !plugins.intersection(*one).is_empty())
            .map(|(_, name)| name)
    }

    /// Returns the plugin that keeps the pod out of the queue and its status, or `None` if the pod may be queued. The
    /// plugins in `last`, which gated the pod the last time, are asked first.
    #[must_use]
    pub(crate) fn gate(&self, pod: &Pod, last: PluginSet) -> Option<(PluginSet, Status)> {
        let ask =
            |(at, entry): (usize, &Entry)| Some((set(at), self.ask_to_enqueue(entry, pod).err()?));
        let is_last = |at: &usize| !last.intersection(set(*at)).is_empty();
        let (first, rest): (_, _) = (
            self.numbered_at(Point::PreEnqueue).filter(|(at, _)| is_last(at)),
            self.numbered_at(Point::PreEnqueue).filter(|(at, _)| !is_last(at)),
        );
        first.chain(rest).find_map(ask)
    }

    /// Returns a key that orders pods as [`Framework::compare`] does, if the plugin that sorts the queue supports one.
    #[must_use]
    pub(crate) fn sort_key(&self, pod: &QueuedPod) -> Option<[i64; 2]> {
        let Entry { plugin, info, .. } = self.at(Point::QueueSort).next()?;
        let panics = self.handle().panics();
        panics.guard_or(info.name, Point::QueueSort.as_str(), None, || plugin.sort_key(pod))
    }
}
