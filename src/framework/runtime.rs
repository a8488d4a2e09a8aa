//! The framework: plugins at their extension points, and all steps of scheduling a pod other than filtering and
//! scoring. Each step can be called on its own (`framework/runtime/framework.go`).

use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::sync::Arc;

use crate::model::{CustomEvent, Name, Pod, Timestamp};
use crate::snapshot::{Chunk, Cluster};

use super::evaluations::PluginEvaluations;
use super::recorder::{Guarded, Measurement, Recorder, Step, Watch, timed_step};
use super::scores::{MAX_NODE_SCORE, MAX_TOTAL_SCORE};
use super::status::code;
use super::waiting::WaitingPod;
use super::{
    Code, Cycle, CycleState, Diagnosis, Feasible, Handle, Nomination, Permit, Plugin, PluginInfo,
    Point, PreFlight, QueuedPod, Status,
};

/// A set of plugins, enabled at extension points, with an order at each point.
///
/// Each method runs one step of a cycle. An [`Algorithm`](super::Algorithm) runs the steps up to the choice of a node.
///
/// ```
/// use portolan::cache::{Config, Engine};
/// use portolan::model::{node, pod};
/// use portolan::plugin::{Cycle, CycleState};
/// use portolan::Framework;
///
/// let (mut writer, reader) = Engine::inline(Config::default());
/// writer.add_node(node("small").cpu(1_000).memory(1 << 30).build())?;
/// writer.add_node(node("large").cpu(8_000).memory(1 << 30).build())?;
/// writer.publish();
///
/// let framework = Framework::default_profile();
/// let (snapshot, state) = (reader.snapshot(), CycleState::default());
/// let pod = pod("web-0").cpu(2_000).build();
/// let filters = framework.pre_filter(Cycle::new(&snapshot, &pod, &state));
/// let verdicts: Vec<Option<String>> = ["small", "large"]
///     .into_iter()
///     .filter_map(|name| snapshot.node(name))
///     .map(|node| filters.filter(node).map(|status| status.message()))
///     .collect();
/// assert_eq!(verdicts, [Some("Insufficient cpu".to_owned()), None]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Framework {
    plugins: Vec<Entry>,
    /// The positions in `plugins` of the plugins at each point.
    points: [Vec<usize>; Point::ALL.len()],
    filters: Order,
    scores: Order,
    /// The positions in `plugins` of the plugins that observe the feasible nodes.
    after_filter: Vec<usize>,
    handle: Handle,
    recorder: Option<(Guarded, u32)>,
    percentage_of_nodes: Option<u8>,
}

/// A plugin of a framework.
pub(super) struct Entry {
    pub(super) plugin: Box<dyn Plugin>,
    pub(super) info: PluginInfo,
    /// The weight of the plugin's scores, at least 1.
    pub(super) weight: i64,
    pub(super) evaluations: PluginEvaluations,
}

impl Entry {
    /// Reads the plugin's constants. The weight is not checked yet.
    fn new((plugin, weight): (Box<dyn Plugin>, i64)) -> Entry {
        let (info, evaluations) = (plugin.info(), PluginEvaluations::default());
        Entry { plugin, info, weight, evaluations }
    }
}

/// The positions in `plugins` of the plugins at one point, then of those that are only at the following point. Each
/// comes with its index at the following point, if it is enabled there.
type Order = Vec<(usize, Option<usize>)>;

/// Why a framework cannot be built from these plugins.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FrameworkError {
    /// The framework has no plugin of this name.
    #[error("plugin {0:?} does not exist: add it to the framework first")]
    NotFound(String),
    /// The plugin does not extend this point.
    #[error("plugin {plugin:?} does not extend {point}Plugin plugin")]
    DoesNotExtend {
        /// The plugin.
        plugin: String,
        /// The point.
        point: Point,
    },
    /// Several plugins sort the queue.
    #[error(
        "plugins {first:?} and {second:?} both extend QueueSort, but only one plugin can sort a \
         queue: remove one of them"
    )]
    QueueSort {
        /// The first plugin.
        first: &'static str,
        /// The second plugin.
        second: &'static str,
    },
    /// Two plugins have the same name.
    #[error("plugin {0:?} is listed twice: remove or rename one of them")]
    Duplicate(String),
    /// The weight of a plugin's scores is negative.
    #[error("the weight of plugin {plugin:?} is {weight}: set it to 0 (which means 1) or more")]
    NegativeWeight {
        /// The plugin.
        plugin: String,
        /// The weight.
        weight: i64,
    },
    /// The weighted sum of a node's scores may exceed `MAX_TOTAL_SCORE`.
    #[error("total score of Score plugins could overflow: lower the weight of plugin {0:?}")]
    TotalScore(String),
    /// The plugin is listed twice at the same point.
    #[error("plugin {plugin:?} already registered as \"{point}Plugin\"")]
    Twice {
        /// The plugin.
        plugin: String,
        /// The point.
        point: Point,
    },
    /// The code that makes the framework failed for a reason of its own, such as an invalid configuration.
    #[error("{0}")]
    Other(String),
}

impl Framework {
    /// Creates a framework of these plugins, with the weights of their scores, where 0 means 1. Each plugin is enabled
    /// at all points that it extends, in this order. If no plugin extends QueueSort, a queue tries pods in order of
    /// arrival. Combine your own plugins with [`default_plugins`](crate::plugin::default_plugins), and give the
    /// framework the handle that they were created with ([`Framework::with_handle`]).
    ///
    /// # Errors
    ///
    /// Returns an error if two plugins have the same name, a weight is negative, the weighted sum of a node's scores
    /// may overflow 64 bits, or several plugins extend QueueSort.
    pub fn new(plugins: Vec<(Box<dyn Plugin>, i64)>) -> Result<Framework, FrameworkError> {
        Framework::with_points::<&str>(plugins, &[])
    }

    /// Like [`Framework::new`], but enables exactly the named plugins at these points, in this order. All other points
    /// run every plugin that extends them.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Framework::new`] and of [`Framework::with_plugins_at`].
    pub fn with_points<N: AsRef<str>>(
        plugins: Vec<(Box<dyn Plugin>, i64)>,
        points: &[(Point, Vec<N>)],
    ) -> Result<Framework, FrameworkError> {
        let framework = Framework::checked(plugins.into_iter().map(Entry::new).collect())?;
        let enable =
            |made: Framework, (point, names): &(Point, Vec<N>)| made.with_plugins_at(*point, names);
        points.iter().try_fold(framework, enable)?.sorting_once()
    }

    /// Creates a framework without checking the plugins.
    pub(crate) fn unchecked(plugins: Vec<(Box<dyn Plugin>, i64)>) -> Framework {
        Framework::assembled(plugins.into_iter().map(Entry::new).collect())
    }

    /// Returns the framework if at most one plugin sorts the queue.
    fn sorting_once(self) -> Result<Framework, FrameworkError> {
        let mut sorts = self.infos_at(Point::QueueSort).map(PluginInfo::name);
        match (sorts.next(), sorts.next()) {
            (Some(first), Some(second)) => Err(FrameworkError::QueueSort { first, second }),
            _ => {
                drop(sorts);
                Ok(self)
            }
        }
    }

    /// Creates a framework after checking the plugins' names and weights. Several plugins may extend QueueSort until
    /// [`Framework::with_plugins_at`] selects one.
    fn checked(plugins: Vec<Entry>) -> Result<Framework, FrameworkError> {
        let mut names = BTreeSet::new();
        let mut total = 0_i64;
        for Entry { info, weight, .. } in &plugins {
            let (name, weight) = (|| info.name.to_owned(), *weight);
            if !names.insert(info.name) {
                return Err(FrameworkError::Duplicate(name()));
            }
            if weight < 0 {
                return Err(FrameworkError::NegativeWeight { plugin: name(), weight });
            }
            if info.extends(Point::Score) {
                let left = (MAX_TOTAL_SCORE - total) / MAX_NODE_SCORE;
                let weight = weight.max(1);
                if weight > left {
                    return Err(FrameworkError::TotalScore(name()));
                }
                total += weight * MAX_NODE_SCORE;
            }
        }
        Ok(Framework::assembled(plugins))
    }

    fn assembled(mut plugins: Vec<Entry>) -> Framework {
        let mut points: [Vec<usize>; Point::ALL.len()] = Default::default();
        for (at, Entry { info, weight, .. }) in plugins.iter_mut().enumerate() {
            *weight = (*weight).max(1);
            for point in Point::ALL.into_iter().filter(|point| info.extends(*point)) {
                points[point as usize].push(at);
            }
        }
        let (filters, scores) = (Order::new(), Order::new());
        let handle = Handle::default();
        let after_filter = |(at, entry): (usize, &Entry)| entry.info.has_after_filter.then_some(at);
        let after_filter = plugins.iter().enumerate().filter_map(after_filter).collect();
        let recorder = None;
        let framework = Framework {
            plugins,
            points,
            filters,
            scores,
            after_filter,
            handle,
            recorder,
            percentage_of_nodes: None,
        };
        framework.ordered()
    }

    /// Recomputes the orders of filters and scores.
    fn ordered(mut self) -> Framework {
        let order = |before: Point, point: Point| -> Order {
            let (first, second) = (&self.points[before as usize], &self.points[point as usize]);
            let rest = second.iter().filter(|at| !first.contains(at));
            let position = |at: usize| second.iter().position(|other| *other == at);
            first.iter().chain(rest).map(|at| (*at, position(*at))).collect()
        };
        let filters = order(Point::PreFilter, Point::Filter);
        self.scores = order(Point::PreScore, Point::Score);
        self.filters = filters;
        self.counted()
    }

    /// Looks up the counters of the plugins' evaluations.
    fn counted(mut self) -> Framework {
        let Some((recorder, _)) = &self.recorder else { return self };
        for (at, entry) in self.plugins.iter_mut().enumerate() {
            let counter = |point: Point, step: Step| {
                let is_enabled = self.points[point as usize].contains(&at);
                is_enabled.then(|| recorder.evaluations(entry.info.name, step)).flatten()
            };
            entry.evaluations = PluginEvaluations {
                pre_filter: counter(Point::PreFilter, Step::PreFilter),
                filter: counter(Point::Filter, Step::Filter),
                pre_score: counter(Point::PreScore, Step::PreScore),
                score: counter(Point::Score, Step::Score),
            };
        }
        self
    }

    /// Enables exactly these plugins at a point, in this order.
    ///
    /// # Errors
    ///
    /// Returns an error if a plugin is unknown, is listed twice or does not extend the point, or if several plugins
    /// would sort the queue.
    pub fn with_plugins_at<N: AsRef<str>>(
        mut self,
        point: Point,
        names: &[N],
    ) -> Result<Framework, FrameworkError> {
        let mut at = Vec::with_capacity(names.len());
        for name in names.iter().map(AsRef::as_ref) {
            let found = self.plugins.iter().position(|entry| entry.info.name == name);
            let position = found.ok_or_else(|| FrameworkError::NotFound(name.to_owned()))?;
            let plugin = || name.to_owned();
            if !self.plugins[position].info.extends(point) {
                return Err(FrameworkError::DoesNotExtend { plugin: plugin(), point });
            }
            if at.contains(&position) {
                return Err(FrameworkError::Twice { plugin: plugin(), point });
            }
            at.push(position);
        }
        self.points[point as usize] = at;
        match point {
            Point::QueueSort => self.ordered().sorting_once(),
            _ => Ok(self.ordered()),
        }
    }

    /// Sets the handle, which must be the one that the plugins were created with.
    #[must_use]
    pub fn with_handle(self, handle: Handle) -> Framework {
        let panics = handle.panics().clone();
        let recorder =
            self.recorder.map(|(recorder, one_in)| (recorder.with_panics(panics), one_in));
        Framework { handle, recorder, ..self }
    }

    /// Sets a recorder, which receives the duration of each step, and for one pod in `one_in` the duration of each
    /// plugin (0 for no pod). Without a recorder, the clock is never read.
    #[must_use]
    pub fn with_recorder(self, recorder: Arc<dyn Recorder>, one_in: u32) -> Framework {
        let recorder = Guarded::new(recorder, self.handle.panics().clone());
        Framework { recorder: Some((recorder, one_in)), ..self }.counted()
    }

    /// Sets the percentage of nodes at which a search ends, for the pods of this profile (`percentageOfNodesToScore` of
    /// a profile). It replaces that of an [`AlgorithmConfig`](super::AlgorithmConfig); `None` replaces nothing.
    #[must_use]
    pub fn with_percentage_of_nodes(self, percentage_of_nodes: Option<u8>) -> Framework {
        Framework { percentage_of_nodes, ..self }
    }

    pub(super) fn percentage_of_nodes(&self) -> Option<u8> {
        self.percentage_of_nodes
    }

    /// Returns the handle, which the plugins share.
    #[must_use]
    pub fn handle(&self) -> &Handle {
        &self.handle
    }

    /// Returns the plugins at a point in their order, each with the weight of its scores.
    pub fn plugins_at(&self, point: Point) -> impl DoubleEndedIterator<Item = (&dyn Plugin, i64)> {
        self.at(point).map(|entry| (&*entry.plugin, entry.weight))
    }

    pub(super) fn plugins(&self) -> &[Entry] {
        &self.plugins
    }

    /// Returns the plugins at a point in their order, each with its position.
    pub(super) fn numbered_at(&self, point: Point) -> impl Iterator<Item = (usize, &Entry)> {
        self.points[point as usize].iter().map(|at| (*at, &self.plugins[*at]))
    }

    pub(super) fn at(&self, point: Point) -> impl DoubleEndedIterator<Item = &Entry> {
        self.points[point as usize].iter().map(|at| &self.plugins[*at])
    }

    /// Returns the constants of the plugins at a point in their order.
    pub(crate) fn infos_at(&self, point: Point) -> impl Iterator<Item = &PluginInfo> {
        self.at(point).map(|entry| &entry.info)
    }

    /// Returns whether a plugin is enabled at a point (`HasFilterPlugins` and similar).
    #[must_use]
    pub(crate) fn has_plugins_at(&self, point: Point) -> bool {
        !self.points[point as usize].is_empty()
    }

    /// Returns the plugins to ask for a filter, each with the index of its filter if it is enabled at Filter.
    pub(super) fn pre_filter_order(
        &self,
    ) -> impl ExactSizeIterator<Item = (&Entry, Option<usize>)> {
        self.filters.iter().map(|(at, position)| (&self.plugins[*at], *position))
    }

    /// Returns the plugins to ask for a score. Each comes with the index of its score if it is enabled at Score, and
    /// with a flag that is set if it must score without its own PreScore, which the configuration has disabled.
    pub(super) fn pre_score_order(
        &self,
    ) -> impl ExactSizeIterator<Item = (&Entry, Option<usize>, bool)> {
        let enabled = &self.points[Point::PreScore as usize];
        self.scores.iter().map(move |(at, position)| {
            let entry = &self.plugins[*at];
            let is_alone = entry.info.extends(Point::PreScore) && !enabled.contains(at);
            (entry, *position, is_alone)
        })
    }

    /// Returns the recorder, if one is set.
    #[must_use]
    pub fn recorder(&self) -> Option<&dyn Recorder> {
        self.recorder.as_ref().map(|(recorder, _)| recorder as &dyn Recorder)
    }

    /// Returns the wrapper through which plugins are called in this cycle.
    pub(super) fn watch<'a>(&'a self, cycle: Cycle<'a>) -> Watch<'a> {
        Watch { recorder: self.recorder(), state: cycle.state, panics: self.handle.panics() }
    }

    pub(super) fn state(&self, number: u64) -> CycleState {
        let Some((_, one_in)) = &self.recorder else { return CycleState::default() };
        let one_in = u64::from(*one_in);
        CycleState::recorded(one_in > 0 && number.is_multiple_of(one_in))
    }

    /// Asks the plugins whether the pod may be queued.
    ///
    /// # Errors
    ///
    /// Returns the status of the first plugin that rejects the pod or fails; the code distinguishes the two.
    pub fn pre_enqueue(&self, pod: &Pod) -> Result<(), Status> {
        self.at(Point::PreEnqueue).try_for_each(|entry| self.ask_to_enqueue(entry, pod))
    }

    /// Asks one plugin whether the pod may be queued.
    pub(super) fn ask_to_enqueue(&self, entry: &Entry, pod: &Pod) -> Result<(), Status> {
        let (plugin, name) = (&entry.plugin, entry.info.name);
        let asked = self.handle.panics().guard(name, "PreEnqueue", || plugin.pre_enqueue(pod));
        asked.map_err(|status| Status { plugin: name, ..status })
    }

    /// Compares two pods by the plugin that sorts the queue. Returns `Less` if `one` is tried first.
    #[must_use]
    pub(crate) fn compare(&self, one: &QueuedPod, other: &QueuedPod) -> Ordering {
        let Some(entry) = self.at(Point::QueueSort).next() else { return Ordering::Equal };
        let compare = || entry.plugin.compare(one, other);
        self.handle.panics().guard_or(entry.info.name, "QueueSort", Ordering::Equal, compare)
    }

    /// Returns whether a plugin observes the feasible nodes of each cycle ([`Plugin::after_filter`]).
    pub(crate) fn has_after_filter(&self) -> bool {
        !self.after_filter.is_empty()
    }

    /// Notifies plugins of the examined nodes that passed all filters. `feasible` is called only if there is such a
    /// plugin.
    ///
    /// # Errors
    ///
    /// Returns the first failure; later plugins are not called.
    pub(super) fn after_filter<'a>(
        &self,
        cycle: Cycle<'a>,
        diagnosis: &Diagnosis<'_>,
        feasible: impl FnOnce() -> Vec<(&'a Chunk, u64)>,
    ) -> Result<(), Status> {
        if self.after_filter.is_empty() {
            return Ok(());
        }
        let feasible = Feasible::new(cycle.cluster, feasible());
        let panics = self.handle.panics();
        self.after_filter.iter().try_for_each(|at| {
            let Entry { plugin, info, .. } = &self.plugins[*at];
            let name = info.name;
            let call = || plugin.after_filter(cycle, &feasible, diagnosis);
            let result = panics.guard(name, "AfterFilter", call);
            result.map_err(|status| {
                status.failed(name, format_args!("running AfterFilter plugin {name:?}"))
            })
        })
    }

    /// Asks plugins to make a node feasible if none is. The first plugin that succeeds, fails, or returns
    /// [`Code::UnschedulableAndUnresolvable`] determines the result. Otherwise the result combines all reasons with the
    /// last nomination other than [`Nomination::Keep`].
    pub(crate) fn post_filter(
        &self,
        cycle: Cycle<'_>,
        diagnosis: &Diagnosis<'_>,
    ) -> (Nomination, Option<Status>) {
        let watch = self.watch(cycle);
        type Found = (Nomination, Option<Status>);
        let outcome = |(_, status): &Found| status.as_ref().map(|s| s.code);
        timed_step(self.recorder(), Step::PostFilter, outcome, || {
            let mut nomination = Nomination::Keep;
            let mut rejector = "";
            let mut reasons = Vec::new();
            for Entry { plugin, info, .. } in self.at(Point::PostFilter) {
                let name = info.name;
                let answer = watch.ask(
                    (name, Step::PostFilter),
                    |answer| answer.as_ref().map_or_else(|status| Some(status.code), outcome),
                    || Ok(plugin.post_filter(cycle, diagnosis)),
                );
                let (found, status) =
                    answer.unwrap_or_else(|status| (Nomination::Keep, Some(status)));
                let Some(status) = status else { return (found, None) };
                match status.code {
                    Code::UnschedulableAndUnresolvable => {
                        return (found, Some(Status { plugin: name, ..status }));
                    }
                    code if !code.is_rejection() => {
                        let status = Status { code: Code::Error, plugin: name, ..status };
                        return (Nomination::Keep, Some(status));
                    }
                    _ => {}
                }
                if found != Nomination::Keep {
                    nomination = found;
                }
                reasons.extend(status.reasons);
                if rejector.is_empty() {
                    rejector = name;
                }
            }
            (nomination, Some(Status { code: Code::Unschedulable, plugin: rejector, reasons }))
        })
    }

    /// Asks each plugin to reserve what the pod needs on the node, on which the pod is assumed.
    ///
    /// # Errors
    ///
    /// Returns the status of the first plugin that does not succeed; later plugins are not called. The caller must then
    /// call [`Framework::unreserve`].
    pub fn reserve(&self, cycle: Cycle<'_>, node: &Name) -> Result<(), Status> {
        let watch = self.watch(cycle);
        timed_step(self.recorder(), Step::Reserve, code, || {
            self.at(Point::Reserve).try_for_each(|Entry { plugin, info, .. }| {
                let name = info.name;
                let asked = (name, Step::Reserve);
                watch.ask(asked, code, || plugin.reserve(cycle, node)).map_err(|status| {
                    status.rejection_or(name, format_args!("running Reserve plugin {name:?}"))
                })
            })
        })
    }

    /// Returns the events that show in a fork what the plugins would reserve ([`Plugin::reserve_in_fork`]).
    ///
    /// # Errors
    ///
    /// Returns the status of the first plugin that does not succeed.
    pub(crate) fn reserve_in_fork(
        &self,
        cycle: Cycle<'_>,
        node: &Name,
    ) -> Result<Vec<CustomEvent>, Status> {
        let panics = self.handle.panics();
        let mut events = Vec::new();
        for Entry { plugin, info, .. } in self.at(Point::Reserve) {
            let name = info.name;
            let asked = panics.guard(name, "ReserveInFork", || plugin.reserve_in_fork(cycle, node));
            events.extend(asked.map_err(|status| {
                status.rejection_or(name, format_args!("running Reserve plugin {name:?}"))
            })?);
        }
        Ok(events)
    }

    /// Notifies every plugin, in reverse order, that the pod will not be bound to the node.
    #[doc(hidden)]
    pub fn unreserve(&self, cycle: Cycle<'_>, node: &Name) {
        let watch = self.watch(cycle);
        timed_step(
            self.recorder(),
            Step::Unreserve,
            |()| None,
            || {
                for Entry { plugin, info, .. } in self.at(Point::Reserve).rev() {
                    let asked = (info.name, Step::Unreserve);
                    watch.notify(asked, || plugin.unreserve(cycle, node));
                }
            },
        );
    }

    /// Asks the plugins whether the pod may be bound. If a plugin requests a wait and none rejects the pod, the pod is
    /// added to the handle's waiting pods, with the timeout of each plugin counted from `now`. See
    /// [`Framework::wait_on_permit`].
    ///
    /// # Errors
    ///
    /// Returns the status of the first plugin that rejects the pod or fails; later plugins are not called.
    #[doc(hidden)]
    pub fn permit(&self, cycle: Cycle<'_>, node: &Name, now: Timestamp) -> Result<Permit, Status> {
        let watch = self.watch(cycle);
        let outcome = |permit: &Result<Permit, Status>| match permit {
            Ok(Permit::Allow) => None,
            Ok(Permit::Wait(_)) => Some(Code::Wait),
            Err(status) => Some(status.code),
        };
        timed_step(self.recorder(), Step::Permit, outcome, || {
            let mut waits = Vec::new();
            for Entry { plugin, info, .. } in self.at(Point::Permit) {
                let name = info.name;
                let asked = (name, Step::Permit);
                match watch.ask(asked, outcome, || plugin.permit(cycle, node)) {
                    Ok(Permit::Allow) => {}
                    Ok(Permit::Wait(timeout)) => waits.push((name, timeout)),
                    Err(status) => {
                        let step = format_args!("running Permit plugin {name:?}");
                        return Err(status.rejection_or(name, step));
                    }
                }
            }
            let Some(shortest) = waits.iter().map(|(_, timeout)| *timeout).min() else {
                return Ok(Permit::Allow);
            };
            let waiting = WaitingPod::new(cycle.pod.clone(), node.clone(), now, waits);
            self.handle.waiting_pods().add(waiting);
            Ok(Permit::Wait(shortest))
        })
    }

    /// Returns whether a plugin has something to do for this pod at Reserve or Permit ([`Plugin::acts_at_reserve`]). A
    /// plugin that panics has.
    pub(crate) fn acts_at_reserve(&self, pod: &Pod, cluster: &Cluster) -> bool {
        let panics = self.handle.panics();
        let mut plugins = self.at(Point::Reserve).chain(self.at(Point::Permit));
        plugins.any(|Entry { plugin, info, .. }| {
            panics
                .guard_or(info.name, "ActsAtReserve", true, || plugin.acts_at_reserve(pod, cluster))
        })
    }

    /// Returns whether all plugins that take part in decisions treat the pods of this pod's template alike
    /// ([`Plugin::treats_template_alike`]).
    pub(crate) fn treats_template_alike(&self, pod: &Pod, cluster: &Cluster) -> bool {
        let filters = self.pre_filter_order().map(|(entry, _)| entry);
        let scores = self.pre_score_order().map(|(entry, ..)| entry);
        let panics = self.handle.panics();
        filters.chain(scores).all(|Entry { plugin, info, .. }| {
            let ask = || plugin.treats_template_alike(pod, cluster);
            info.is_local || panics.guard_or(info.name, "TreatsTemplateAlike", false, ask)
        })
    }

    /// Returns whether a plugin requires that the pods of a group be tried together.
    #[must_use]
    pub(crate) fn gathers_groups(&self) -> bool {
        self.plugins.iter().any(|entry| entry.info.gathers_groups)
    }

    /// Notifies the Permit plugins that a pod waits. The cycle's version should be the latest one available.
    pub(crate) fn waits(&self, cycle: Cycle<'_>) {
        let panics = self.handle.panics();
        for Entry { plugin, info, .. } in self.at(Point::Permit) {
            panics.guard_or(info.name, Step::Permit.as_str(), (), || plugin.waits(cycle));
        }
    }

    /// Waits until the pod is allowed, if it waits, and removes it from the waiting pods.
    ///
    /// # Errors
    ///
    /// Returns a status if a plugin rejected the pod, or if a plugin's timeout expired.
    #[doc(hidden)]
    pub fn wait_on_permit(&self, pod: &Pod, clock: impl Fn() -> Timestamp) -> Result<(), Status> {
        self.wait_on_permit_while(pod, clock, || true)
    }

    /// Like [`Framework::wait_on_permit`], but the pod fails when `is_open` returns `false`.
    pub(crate) fn wait_on_permit_while(
        &self,
        pod: &Pod,
        clock: impl Fn() -> Timestamp,
        is_open: impl Fn() -> bool,
    ) -> Result<(), Status> {
        let Some(waiting) = self.handle.waiting_pods().get(&pod.uid) else { return Ok(()) };
        let outcome = waiting.wait_while(&clock, is_open);
        self.handle.waiting_pods().remove(&pod.uid);
        if let Some(recorder) = self.recorder() {
            let what = Measurement::PermitWait(code(&outcome));
            recorder.record(what, clock().since(waiting.since()));
        }
        outcome.map_err(|status| {
            let plugin = status.plugin;
            status.rejection_or(plugin, format_args!("waiting on permit for pod"))
        })
    }

    /// Returns whether any plugin has work to do before the pod is bound. [`Framework::pre_bind`] skips the plugins
    /// that have none.
    ///
    /// # Errors
    ///
    /// Returns the status of the first plugin that fails.
    #[doc(hidden)]
    pub fn pre_bind_pre_flight(&self, cycle: Cycle<'_>, node: &Name) -> Result<PreFlight, Status> {
        let watch = self.watch(cycle);
        let outcome = |found: &Result<PreFlight, Status>| match found {
            Ok(PreFlight::Work) => None,
            Ok(PreFlight::Skip) => Some(Code::Skip),
            Err(status) => Some(status.code),
        };
        timed_step(self.recorder(), Step::PreBindPreFlight, outcome, || {
            let mut all = PreFlight::Skip;
            let mut skip: Vec<&'static str> = Vec::new();
            for Entry { plugin, info, .. } in self.at(Point::PreBind) {
                let name = info.name;
                let asked = (name, Step::PreBindPreFlight);
                let found = watch.ask(asked, outcome, || plugin.pre_bind_pre_flight(cycle, node));
                match found {
                    Ok(PreFlight::Work) => all = PreFlight::Work,
                    Ok(PreFlight::Skip) => skip.push(name),
                    Err(status) if status.code == Code::Error => {
                        let step = format_args!("running PreBindPreFlight {name:?}");
                        return Err(status.failed(name, step));
                    }
                    Err(status) => {
                        let reason = format!(
                            "PreBindPreFlight {name} returned {:?}, which is unsupported. It is \
                             supposed to return Success, Skip, or Error status",
                            status.code.as_str()
                        );
                        return Err(Status::error(name, reason));
                    }
                }
            }
            cycle.state.write(SKIP_PRE_BIND, skip);
            Ok(all)
        })
    }

    /// Prepares what the pod needs on its node.
    ///
    /// # Errors
    ///
    /// Returns the status of the first plugin that rejects the pod or fails; later plugins are not called.
    #[doc(hidden)]
    pub fn pre_bind(&self, cycle: Cycle<'_>, node: &Name) -> Result<(), Status> {
        let watch = self.watch(cycle);
        let skip = cycle.state.read::<Vec<&'static str>>(SKIP_PRE_BIND).unwrap_or_default();
        timed_step(self.recorder(), Step::PreBind, code, || {
            let mut plugins =
                self.at(Point::PreBind).filter(|entry| !skip.contains(&entry.info.name));
            plugins.try_for_each(|Entry { plugin, info, .. }| {
                let name = info.name;
                let asked = (name, Step::PreBind);
                watch.ask(asked, code, || plugin.pre_bind(cycle, node)).map_err(|status| {
                    status.rejection_or(name, format_args!("running PreBind plugin {name:?}"))
                })
            })
        })
    }

    /// Notifies every plugin that the pod is bound.
    #[doc(hidden)]
    pub fn post_bind(&self, cycle: Cycle<'_>, node: &Name) {
        let watch = self.watch(cycle);
        timed_step(
            self.recorder(),
            Step::PostBind,
            |()| None,
            || {
                for Entry { plugin, info, .. } in self.at(Point::PostBind) {
                    let asked = (info.name, Step::PostBind);
                    watch.notify(asked, || plugin.post_bind(cycle, node));
                }
            },
        );
    }
}

/// The key in a cycle's state of the plugins that have no work to do before the pod is bound.
const SKIP_PRE_BIND: &str = "portolan/skip-pre-bind";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plugins::{ImageLocality, NodeName, TaintToleration};

    fn refused(plugins: Vec<(Box<dyn Plugin>, i64)>) -> Option<FrameworkError> {
        Framework::new(plugins).err()
    }

    #[test]
    fn names_are_unique_and_weights_do_not_overflow() {
        let twice: Vec<(Box<dyn Plugin>, i64)> =
            vec![(Box::new(NodeName), 1), (Box::new(NodeName), 1)];
        assert_eq!(refused(twice), Some(FrameworkError::Duplicate("NodeName".to_owned())));
        let weighted = |one: i64, other: i64| -> Vec<(Box<dyn Plugin>, i64)> {
            vec![(Box::new(TaintToleration), one), (Box::new(ImageLocality), other)]
        };
        let negative =
            FrameworkError::NegativeWeight { plugin: "ImageLocality".to_owned(), weight: -1 };
        assert_eq!(refused(weighted(1, -1)), Some(negative));
        let most = i64::MAX / 100;
        let total = Some(FrameworkError::TotalScore("ImageLocality".to_owned()));
        for (one, other) in [(1, i64::MAX), (1, most), (most, 0), (most / 2, most / 2 + 2)] {
            assert_eq!(refused(weighted(one, other)), total, "{one} {other}");
        }
        assert_eq!(refused(weighted(most / 2, most / 2)), None);
        // Weight 0 means 1, and the weight of a plugin without Score is ignored.
        let made = Framework::new(weighted(0, 2)).expect("the weights are valid");
        let weights: Vec<i64> = made.plugins_at(Point::Score).map(|(_, weight)| weight).collect();
        assert_eq!(weights, [1, 2]);
        assert_eq!(refused(vec![(Box::new(NodeName), i64::MAX)]), None);
    }

    #[test]
    fn one_of_several_queue_sort_plugins_can_be_selected() {
        struct Mine;
        impl Plugin for Mine {
            fn info(&self) -> PluginInfo {
                PluginInfo::new("Mine", &[Point::QueueSort])
            }
        }
        let two = || -> Vec<(Box<dyn Plugin>, i64)> {
            vec![(Box::new(crate::plugins::PrioritySort), 0), (Box::new(Mine), 0)]
        };
        assert!(matches!(Framework::new(two()), Err(FrameworkError::QueueSort { .. })));
        let framework = Framework::with_points(two(), &[(Point::QueueSort, vec!["Mine"])]).unwrap();
        let sorts = framework.plugins_at(Point::QueueSort).map(|(plugin, _)| plugin.info().name());
        assert_eq!(sorts.collect::<Vec<_>>(), ["Mine"]);
    }
}
