//! A framework: plugins at their extension points, and the steps of a pod's way
//! that are not filtering and scoring. Each step can be called alone
//! (framework/runtime/framework.go).

use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::sync::Arc;

use crate::model::{Name, Pod, Timestamp};
use crate::snapshot::Chunk;

use super::recorder::{Guarded, Recorder, Step, Watch, timed_step};
use super::scores::MAX_NODE_SCORE;
use super::status::code;
use super::waiting::WaitingPod;
use super::{
    Bind, Code, Cycle, CycleState, Diagnosis, Feasible, Filters, Handle, Nomination, Permit,
    Plugin, Point, PreFlight, QueuedPod, Status,
};

/// Plugins, each at its extension points, in the order of each point.
pub struct Framework {
    plugins: Vec<Entry>,
    /// Positions in `plugins`, by point.
    points: [Vec<usize>; Point::ALL.len()],
    filters: Order,
    scores: Order,
    /// Positions in `plugins` of those that are told of feasible nodes.
    after_filter: Vec<usize>,
    handle: Handle,
    recorder: Option<(Guarded, u32)>,
}

struct Entry {
    plugin: Box<dyn Plugin>,
    /// Of its scores, at least 1.
    weight: i64,
}

/// Positions in `plugins` of those at one point, then of those that are at the next
/// point alone; each with its position at that one, if it is there.
type Order = Vec<(usize, Option<usize>)>;

/// A framework cannot be put together like this.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FrameworkError {
    /// It has no plugin of this name.
    #[error("plugin {0:?} does not exist: give it to the framework first")]
    NotFound(String),
    /// The plugin has nothing for this point.
    #[error("plugin {plugin:?} does not extend {point}Plugin plugin")]
    DoesNotExtend {
        /// The plugin.
        plugin: String,
        /// The point.
        point: Point,
    },
    /// Two plugins are to sort queues.
    #[error(
        "plugins {first:?} and {second:?} both extend QueueSort, and one plugin sorts a queue: \
         leave one of them out"
    )]
    QueueSort {
        /// A plugin.
        first: &'static str,
        /// The other one.
        second: &'static str,
    },
    /// Two plugins have one name.
    #[error("plugin {0:?} is given twice: leave one out, or rename it")]
    Duplicate(String),
    /// A plugin's scores have a negative weight.
    #[error("the weight of plugin {plugin:?} is {weight}: set it to 0 (which means 1) or more")]
    NegativeWeight {
        /// The plugin.
        plugin: String,
        /// Its weight.
        weight: i64,
    },
    /// The sum of all scores of a node, each with its weight, may leave 64 bits.
    #[error("total score of Score plugins could overflow: lower the weight of plugin {0:?}")]
    TotalScore(String),
    /// The plugin is there twice.
    #[error("plugin {plugin:?} already registered as \"{point}Plugin\"")]
    Twice {
        /// The plugin.
        plugin: String,
        /// The point.
        point: Point,
    },
}

impl Framework {
    /// A framework of these plugins, each at all points that it extends, in this order,
    /// and with the weight of its scores, where 0 means 1. Without a plugin that
    /// extends QueueSort a queue tries pods in the order in which they arrive.
    ///
    /// # Errors
    ///
    /// Two plugins have one name, a weight is negative, the weights are so large
    /// that the sum of all scores may leave 64 bits, or several plugins extend
    /// QueueSort.
    pub fn new(plugins: Vec<(Box<dyn Plugin>, i64)>) -> Result<Framework, FrameworkError> {
        Framework::checked(plugins)?.sorting_once()
    }

    /// The same if at most one plugin sorts queues.
    fn sorting_once(self) -> Result<Framework, FrameworkError> {
        let mut sorts = self.plugins_at(Point::QueueSort).map(|(plugin, _)| plugin.name());
        match (sorts.next(), sorts.next()) {
            (Some(first), Some(second)) => Err(FrameworkError::QueueSort { first, second }),
            _ => {
                drop(sorts);
                Ok(self)
            }
        }
    }

    /// A framework of plugins with names of their own and weights that fit. Several may
    /// sort queues, until the points that they are at are named.
    pub(super) fn checked(
        plugins: Vec<(Box<dyn Plugin>, i64)>,
    ) -> Result<Framework, FrameworkError> {
        let mut names = BTreeSet::new();
        let mut total = 0_i64;
        for (plugin, weight) in &plugins {
            let name = || plugin.name().to_owned();
            if !names.insert(plugin.name()) {
                return Err(FrameworkError::Duplicate(name()));
            }
            if *weight < 0 {
                return Err(FrameworkError::NegativeWeight { plugin: name(), weight: *weight });
            }
            if plugin.points().contains(&Point::Score) {
                let most = (*weight).max(1).checked_mul(MAX_NODE_SCORE);
                let sum = most.and_then(|most| total.checked_add(most));
                total = sum.ok_or_else(|| FrameworkError::TotalScore(name()))?;
            }
        }
        Ok(Framework::assembled(plugins))
    }

    /// A framework of plugins that need no check.
    pub(crate) fn assembled(plugins: Vec<(Box<dyn Plugin>, i64)>) -> Framework {
        let mut points: [Vec<usize>; Point::ALL.len()] = Default::default();
        for (at, (plugin, _)) in plugins.iter().enumerate() {
            let extended: BTreeSet<Point> = plugin.points().iter().copied().collect();
            for point in extended {
                points[point as usize].push(at);
            }
        }
        let entry =
            |(plugin, weight): (Box<dyn Plugin>, i64)| Entry { plugin, weight: weight.max(1) };
        let plugins: Vec<Entry> = plugins.into_iter().map(entry).collect();
        let (filters, scores) = (Order::new(), Order::new());
        let handle = Handle::default();
        let after_filter =
            |(at, entry): (usize, &Entry)| entry.plugin.has_after_filter().then_some(at);
        let after_filter = plugins.iter().enumerate().filter_map(after_filter).collect();
        let recorder = None;
        let framework =
            Framework { plugins, points, filters, scores, after_filter, handle, recorder };
        framework.ordered()
    }

    /// The same with its orders made anew.
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
        self
    }

    /// The same with these plugins at a point, in this order, and no others.
    ///
    /// # Errors
    ///
    /// A plugin is not there, is there twice, or has nothing for the point; or several are
    /// to sort queues.
    pub fn with_plugins_at<N: AsRef<str>>(
        mut self,
        point: Point,
        names: &[N],
    ) -> Result<Framework, FrameworkError> {
        let mut at = Vec::with_capacity(names.len());
        for name in names.iter().map(AsRef::as_ref) {
            let found = self.plugins.iter().position(|entry| entry.plugin.name() == name);
            let position = found.ok_or_else(|| FrameworkError::NotFound(name.to_owned()))?;
            let plugin = || name.to_owned();
            if !self.plugins[position].plugin.points().contains(&point) {
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

    /// The same with this handle: that which its plugins were made with.
    #[must_use]
    pub fn with_handle(self, handle: Handle) -> Framework {
        let panics = handle.panics().clone();
        let recorder = self.recorder.map(|(of, one_in)| (of.with_panics(panics), one_in));
        Framework { handle, recorder, ..self }
    }

    /// The same with somebody who hears how long steps take, and of one pod in
    /// `one_in` how long each plugin takes (0 for none). Without a recorder no
    /// clock is read.
    #[must_use]
    pub fn with_recorder(self, recorder: Arc<dyn Recorder>, one_in: u32) -> Framework {
        let recorder = Guarded::new(recorder, self.handle.panics().clone());
        Framework { recorder: Some((recorder, one_in)), ..self }
    }

    /// What its plugins share.
    #[must_use]
    pub fn handle(&self) -> &Handle {
        &self.handle
    }

    /// The plugins at a point, in their order, each with the weight of its
    /// scores.
    pub fn plugins_at(&self, point: Point) -> impl DoubleEndedIterator<Item = (&dyn Plugin, i64)> {
        self.points[point as usize].iter().map(|at| {
            let entry = &self.plugins[*at];
            (&*entry.plugin, entry.weight)
        })
    }

    /// All plugins, by position.
    pub(super) fn plugins(&self) -> impl ExactSizeIterator<Item = &dyn Plugin> {
        self.plugins.iter().map(|entry| &*entry.plugin)
    }

    /// The plugins at a point, in their order, each with its position.
    pub(super) fn numbered_at(&self, point: Point) -> impl Iterator<Item = (usize, &dyn Plugin)> {
        self.points[point as usize].iter().map(|at| (*at, &*self.plugins[*at].plugin))
    }

    fn at(&self, point: Point) -> impl DoubleEndedIterator<Item = &dyn Plugin> {
        self.plugins_at(point).map(|(plugin, _)| plugin)
    }

    /// Whether there is a plugin at a point (`HasFilterPlugins` and its like).
    #[must_use]
    pub fn has_plugins_at(&self, point: Point) -> bool {
        !self.points[point as usize].is_empty()
    }

    /// Who is asked for filters, each with the position of its filter, if it is
    /// to filter.
    pub(super) fn pre_filter_order(
        &self,
    ) -> impl ExactSizeIterator<Item = (&dyn Plugin, Option<usize>)> {
        self.filters.iter().map(|(at, position)| (&*self.plugins[*at].plugin, *position))
    }

    /// Who is asked for scores, each with the position of its score and its
    /// weight, if it is to score; and whether it scores without the PreScore that it
    /// has, which a configuration disabled.
    pub(super) fn pre_score_order(
        &self,
    ) -> impl ExactSizeIterator<Item = (&dyn Plugin, Option<(usize, i64)>, bool)> {
        let enabled = &self.points[Point::PreScore as usize];
        self.scores.iter().map(move |(at, position)| {
            let entry = &self.plugins[*at];
            let has_none = !entry.plugin.points().contains(&Point::PreScore);
            let is_alone = !has_none && !enabled.contains(at);
            (&*entry.plugin, position.map(|position| (position, entry.weight)), is_alone)
        })
    }

    /// Who hears how long steps take, if anybody does.
    #[must_use]
    pub fn recorder(&self) -> Option<&dyn Recorder> {
        self.recorder.as_ref().map(|(recorder, _)| recorder as &dyn Recorder)
    }

    /// What plugins are called by for the pod of this cycle.
    pub(super) fn watch(&self, cycle: Cycle<'_>) -> Watch<'_> {
        let recorder = self.recorder().filter(|_| cycle.state.is_recorded);
        Watch { recorder, panics: self.handle.panics() }
    }

    /// The state of the `number`th cycle.
    pub(super) fn state(&self, number: u64) -> CycleState {
        let Some((_, one_in)) = &self.recorder else { return CycleState::default() };
        let one_in = u64::from(*one_in);
        CycleState::recorded(one_in > 0 && number.is_multiple_of(one_in))
    }

    /// Whether the pod may queue: the first plugin that says no is named.
    ///
    /// # Errors
    ///
    /// It may not, and why; the code says whether a plugin failed.
    pub fn pre_enqueue(&self, pod: &Pod) -> Result<(), Status> {
        self.at(Point::PreEnqueue).try_for_each(|plugin| self.ask_to_enqueue(plugin, pod))
    }

    /// Whether one plugin lets the pod queue.
    pub(super) fn ask_to_enqueue(&self, plugin: &dyn Plugin, pod: &Pod) -> Result<(), Status> {
        let name = plugin.name();
        let asked = self.handle.panics().guard(name, "PreEnqueue", || plugin.pre_enqueue(pod));
        asked.map_err(|status| Status { plugin: name, ..status })
    }

    /// Which of two pods is tried first, by the first plugin that sorts the queue;
    /// `Less` for the first one.
    #[must_use]
    pub fn compare(&self, one: &QueuedPod, other: &QueuedPod) -> Ordering {
        let Some(plugin) = self.at(Point::QueueSort).next() else { return Ordering::Equal };
        let compare = || plugin.compare(one, other);
        self.handle.panics().guard_or(plugin.name(), "QueueSort", Ordering::Equal, compare)
    }

    /// Tells plugins which nodes passed all filters, of those that were looked at. `feasible`
    /// is called only if there is such a plugin.
    ///
    /// # Errors
    ///
    /// The first failure; later plugins are not called.
    pub(super) fn after_filter<'a>(
        &self,
        cycle: Cycle<'a>,
        filters: &Filters<'_>,
        feasible: impl FnOnce() -> Vec<(&'a Chunk, u64)>,
    ) -> Result<(), Status> {
        if self.after_filter.is_empty() {
            return Ok(());
        }
        let feasible = Feasible::new(cycle.cluster, feasible());
        let (diagnosis, panics) = (Diagnosis::new(filters), self.handle.panics());
        self.after_filter.iter().try_for_each(|at| {
            let plugin = &self.plugins[*at].plugin;
            let name = plugin.name();
            let told = || plugin.after_filter(cycle, &feasible, &diagnosis);
            let told = panics.guard(name, "AfterFilter", told);
            told.map_err(|status| {
                status.failed(name, format_args!("running AfterFilter plugin {name:?}"))
            })
        })
    }

    /// No node will do: asks plugins to change that, until one succeeds, fails, or
    /// says that nothing can. Otherwise all reasons are taken together, and the
    /// last nomination that says anything stands.
    pub fn post_filter(
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
            for plugin in self.at(Point::PostFilter) {
                let name = plugin.name();
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

    /// The pod is assumed on the node: asks each plugin to set aside what the pod
    /// needs there.
    ///
    /// # Errors
    ///
    /// A plugin did not succeed, and none after it was asked. Call
    /// [`Framework::unreserve`] then.
    pub fn reserve(&self, cycle: Cycle<'_>, node: &Name) -> Result<(), Status> {
        let watch = self.watch(cycle);
        timed_step(self.recorder(), Step::Reserve, code, || {
            self.at(Point::Reserve).try_for_each(|plugin| {
                let name = plugin.name();
                let asked = (name, Step::Reserve);
                watch.ask(asked, code, || plugin.reserve(cycle, node)).map_err(|status| {
                    status.rejection_or(name, format_args!("running Reserve plugin {name:?}"))
                })
            })
        })
    }

    /// The pod will not go to the node: tells every plugin, the last one first.
    pub fn unreserve(&self, cycle: Cycle<'_>, node: &Name) {
        let watch = self.watch(cycle);
        timed_step(
            self.recorder(),
            Step::Unreserve,
            |()| None,
            || {
                for plugin in self.at(Point::Reserve).rev() {
                    let asked = (plugin.name(), Step::Unreserve);
                    watch.tell(asked, || plugin.unreserve(cycle, node));
                }
            },
        );
    }

    /// Whether the pod may be bound. If a plugin wants it to wait and none rejects
    /// it, it is among the handle's waiting pods from `now` on, for the time that
    /// each plugin asked for; see [`Framework::wait_on_permit`].
    ///
    /// # Errors
    ///
    /// A plugin rejected it or failed, and none after it was asked.
    pub fn permit(&self, cycle: Cycle<'_>, node: &Name, now: Timestamp) -> Result<Permit, Status> {
        let watch = self.watch(cycle);
        let outcome = |permit: &Result<Permit, Status>| match permit {
            Ok(Permit::Allow) => None,
            Ok(Permit::Wait(_)) => Some(Code::Wait),
            Err(status) => Some(status.code),
        };
        timed_step(self.recorder(), Step::Permit, outcome, || {
            let mut waits = Vec::new();
            for plugin in self.at(Point::Permit) {
                let name = plugin.name();
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

    /// Whether pods of a group are to be tried together.
    #[must_use]
    pub fn gathers_groups(&self) -> bool {
        self.plugins().any(Plugin::gathers_groups)
    }

    /// Tells the plugins that a pod waits, with a version that is as new as can be had.
    pub fn waits(&self, cycle: Cycle<'_>) {
        let panics = self.handle.panics();
        for plugin in self.at(Point::Permit) {
            panics.guard_or(plugin.name(), Step::Permit.as_str(), (), || plugin.waits(cycle));
        }
    }

    /// Waits until the pod is permitted, if it waits; it does not any more then.
    ///
    /// # Errors
    ///
    /// It was rejected, or the time of a plugin ran out.
    pub fn wait_on_permit(&self, pod: &Pod, clock: impl Fn() -> Timestamp) -> Result<(), Status> {
        let Some(waiting) = self.handle.waiting_pods().get(&pod.uid) else { return Ok(()) };
        let outcome = waiting.wait(&clock);
        self.handle.waiting_pods().remove(&pod.uid);
        if let Some(recorder) = self.recorder() {
            recorder.permit_wait(code(&outcome), clock().since(waiting.since()));
        }
        outcome
    }

    /// Whether any plugin has something to do before the pod is bound. Those that
    /// have not are left out of [`Framework::pre_bind`].
    ///
    /// # Errors
    ///
    /// A plugin did not succeed.
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
            for plugin in self.at(Point::PreBind) {
                let name = plugin.name();
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
            cycle.state.write_shared(SKIP_PRE_BIND, Arc::new(skip));
            Ok(all)
        })
    }

    /// Makes ready what the pod needs on its node.
    ///
    /// # Errors
    ///
    /// A plugin rejected the pod or failed, and none after it was asked.
    pub fn pre_bind(&self, cycle: Cycle<'_>, node: &Name) -> Result<(), Status> {
        let watch = self.watch(cycle);
        let skip = cycle.state.read::<Vec<&'static str>>(SKIP_PRE_BIND).unwrap_or_default();
        timed_step(self.recorder(), Step::PreBind, code, || {
            let plugins = self.at(Point::PreBind).filter(|plugin| !skip.contains(&plugin.name()));
            plugins.into_iter().try_for_each(|plugin| {
                let name = plugin.name();
                let asked = (name, Step::PreBind);
                watch.ask(asked, code, || plugin.pre_bind(cycle, node)).map_err(|status| {
                    status.rejection_or(name, format_args!("running PreBind plugin {name:?}"))
                })
            })
        })
    }

    /// Binds the pod, by the first plugin that does.
    ///
    /// # Errors
    ///
    /// That plugin rejected the pod or failed.
    pub fn bind(&self, cycle: Cycle<'_>, node: &Name) -> Result<Bind, Status> {
        let watch = self.watch(cycle);
        let outcome = |found: &Result<Bind, Status>| match found {
            Ok(Bind::Bound) => None,
            Ok(Bind::Skip) => Some(Code::Skip),
            Err(status) => Some(status.code),
        };
        timed_step(self.recorder(), Step::Bind, outcome, || {
            for plugin in self.at(Point::Bind) {
                let name = plugin.name();
                match watch.ask((name, Step::Bind), outcome, || plugin.bind(cycle, node)) {
                    Ok(Bind::Skip) => {}
                    Ok(Bind::Bound) => return Ok(Bind::Bound),
                    Err(status) => {
                        let step = format_args!("running Bind plugin {name:?}");
                        return Err(status.rejection_or(name, step));
                    }
                }
            }
            Ok(Bind::Skip)
        })
    }

    /// The pod is bound: tells every plugin.
    pub fn post_bind(&self, cycle: Cycle<'_>, node: &Name) {
        let watch = self.watch(cycle);
        timed_step(
            self.recorder(),
            Step::PostBind,
            |()| None,
            || {
                for plugin in self.at(Point::PostBind) {
                    let asked = (plugin.name(), Step::PostBind);
                    watch.tell(asked, || plugin.post_bind(cycle, node));
                }
            },
        );
    }
}

/// Where a cycle keeps which plugins have nothing to do before the pod is bound.
const SKIP_PRE_BIND: &str = "portolan/skip-pre-bind";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plugins::{ImageLocality, NodeName, TaintToleration};

    fn refused(plugins: Vec<(Box<dyn Plugin>, i64)>) -> Option<FrameworkError> {
        Framework::new(plugins).err()
    }

    #[test]
    fn a_name_is_taken_once_and_weights_fit() {
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
        // Weight 0 means 1; the weight of a plugin without Score is ignored.
        let made = Framework::new(weighted(0, 2)).expect("it fits");
        let weights: Vec<i64> = made.plugins_at(Point::Score).map(|(_, weight)| weight).collect();
        assert_eq!(weights, [1, 2]);
        assert_eq!(refused(vec![(Box::new(NodeName), i64::MAX)]), None);
    }
}
