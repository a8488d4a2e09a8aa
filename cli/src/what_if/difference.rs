//! The effects of a change: the difference between a simulation with it and one without it.
//!
//! Both simulations begin with the same cluster. A pod that neither has touched is on its node in both. Pods of one
//! template and controller are interchangeable: if two of them have exchanged their nodes, nothing has changed. Those
//! of stateful sets are not, since each has a name and volumes of its own.

use std::collections::HashMap;

use portolan::model::{Name, Pod, Template, Uid};

use super::Blocked;

/// What has become of the pods that a simulation has touched, in the order in which it touched them.
pub(super) struct Outcome {
    fates: Vec<Fate>,
    by_uid: HashMap<Uid, usize>,
}

/// What has become of a pod.
pub(super) struct Fate {
    pub(super) pod: Pod,
    /// The node at the start.
    pub(super) start: Option<Name>,
    pub(super) state: State,
    /// How often the pod was ended by something else than a preemptor, and recreated.
    pub(super) restarts: usize,
    pub(super) preempted: Option<Preempted>,
}

#[derive(Clone, Debug)]
pub(super) enum State {
    On(Name),
    /// The pod has no node, and why.
    Waits(String),
    /// The pod is not created, and why.
    Uncreated(String),
    /// The pod was on this node and is not recreated, and why it ended.
    Lost(Name, String),
    /// The pod was deleted.
    Gone,
    /// The pod was being deleted before it had a node.
    Skipped,
    /// The pod has no node, and no profile schedules it. Contains the reason.
    Unsimulated(String),
}

/// A preemption: the node, and the pod for which the other was evicted.
#[derive(Clone, Debug)]
pub(super) struct Preempted {
    pub(super) from: Name,
    pub(super) by: String,
}

/// A pod in a list of effects.
#[derive(Clone, Debug)]
pub(super) struct Row {
    pub(super) pod: Pod,
    /// The node without the change.
    pub(super) from: Option<Name>,
    pub(super) to: Option<Name>,
    pub(super) why: String,
    pub(super) lack: Lack,
    /// Whether the same happens without the change.
    pub(super) without_change: bool,
}

/// What a pod without a node lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lack {
    /// A node that is suitable.
    Node,
    /// Its own creation: its controller waits, or the API server refuses it.
    Creation,
    /// A profile with its scheduler's name, so its node is unknown.
    Profile,
}

impl Lack {
    pub(super) const ALL: [Lack; 3] = [Lack::Node, Lack::Creation, Lack::Profile];

    /// The participle for such pods.
    pub(super) fn participle(self) -> &'static str {
        match self {
            Lack::Node => "unschedulable",
            Lack::Creation => "not created",
            Lack::Profile => "not simulated",
        }
    }
}

/// The effects of the change at a moment. The rows that also happen without it are marked.
#[derive(Default)]
pub(super) struct Effects {
    /// Pods that block a drain.
    pub(super) blocked: Vec<Blocked>,
    /// Pods that have a new node.
    pub(super) placed: Vec<Row>,
    /// Pods that had a node and have none, and new pods without one.
    pub(super) unplaced: Vec<Row>,
    /// Pods that ended and are not recreated.
    pub(super) lost: Vec<Row>,
    pub(super) preempted: Vec<Row>,
    /// Pods of the cluster that have no node, with and without the change.
    pub(super) pending: Vec<Row>,
    /// Pods that are being deleted before they had a node.
    pub(super) skipped: Vec<Row>,
    /// The number of jobs that fail because of pods that ended.
    pub(super) failed_jobs: usize,
}

/// The rows of the change itself.
pub(super) fn own(rows: &[Row]) -> impl Iterator<Item = &Row> {
    rows.iter().filter(|row| !row.without_change)
}

impl Outcome {
    pub(super) fn new(fates: Vec<Fate>) -> Outcome {
        let uids = fates.iter().enumerate().map(|(at, fate)| (fate.pod.uid.clone(), at));
        Outcome { by_uid: uids.collect(), fates }
    }

    fn get(&self, uid: &Uid) -> Option<&Fate> {
        self.by_uid.get(uid).map(|at| &self.fates[*at])
    }
}

/// A pod in both simulations.
struct Pair<'o> {
    fate: &'o Fate,
    /// `None` if the pod does not exist without the change.
    without: Option<State>,
    with: State,
    /// Whether the change has ended the pod, and its controller has recreated it.
    is_restarted: bool,
}

impl Effects {
    /// O(pods that the simulations have touched).
    pub(super) fn between(without: &Outcome, with: &Outcome) -> Effects {
        let untouched = |fate: &Fate| fate.start.clone().map(State::On);
        let both = with.fates.iter().map(|fate| {
            let known = without.get(&fate.pod.uid);
            let is_restarted = fate.restarts > known.map_or(0, |known| known.restarts);
            let without = known.map(|it| it.state.clone()).or_else(|| untouched(fate));
            Pair { fate, without, with: fate.state.clone(), is_restarted }
        });
        let only_without = without.fates.iter().filter(|it| with.get(&it.pod.uid).is_none());
        let only_without = only_without.filter_map(|fate| {
            let (without, with) = (Some(fate.state.clone()), untouched(fate)?);
            Some(Pair { fate, without, with, is_restarted: false })
        });
        let mut pairs: Vec<Pair<'_>> = both.chain(only_without).collect();
        exchange(&mut pairs);
        let mut effects = Effects::default();
        pairs.into_iter().for_each(|pair| effects.add(pair));
        effects.preempted = preempted(without, with);
        effects
    }

    fn add(&mut self, pair: Pair<'_>) {
        let Pair { fate, without, with, is_restarted } = pair;
        let row = |from: Option<Name>, why: String, without_change: bool| {
            let pod = fate.pod.clone();
            let lack = match fate.state {
                State::Uncreated(_) => Lack::Creation,
                State::Unsimulated(_) => Lack::Profile,
                _ => Lack::Node,
            };
            Row { pod, from, to: None, why, lack, without_change }
        };
        let was = match &without {
            Some(State::On(node)) => Some(node.clone()),
            _ => None,
        };
        match (without, with) {
            (_, State::On(to)) => {
                let row = match was.as_ref() == Some(&to) {
                    true if is_restarted => row(was, String::new(), false),
                    true if fate.start.as_ref() != Some(&to) => {
                        row(fate.start.clone(), String::new(), true)
                    }
                    true => return,
                    false => row(was, String::new(), false),
                };
                self.placed.push(Row { to: Some(to), ..row });
            }
            (
                Some(
                    State::Waits(_) | State::Uncreated(_) | State::Unsimulated(_) | State::Lost(..),
                ),
                State::Waits(why) | State::Uncreated(why) | State::Unsimulated(why),
            ) => match &fate.start {
                None => self.pending.push(row(None, why, true)),
                Some(start) => self.unplaced.push(row(Some(start.clone()), why, true)),
            },
            (_, State::Waits(why) | State::Uncreated(why) | State::Unsimulated(why)) => {
                self.unplaced.push(row(was, why, false))
            }
            (without, State::Lost(from, why)) => {
                let without_change = matches!(without, Some(State::Lost(..)));
                self.lost.push(row(Some(from), why, without_change));
            }
            (_, State::Gone) => {}
            (_, State::Skipped) => {
                let why = format!("skip schedule deleting pod: {}", fate.pod.key());
                self.skipped.push(row(None, why, true));
            }
        }
    }
}

/// The template of a pod that may be exchanged with others of it.
fn interchangeable(pod: &Pod) -> Option<&Template> {
    let owner = pod.template.controller()?;
    (&*owner.kind != "StatefulSet").then_some(&*pod.template)
}

/// A state that pods may exchange: a node, or none.
fn place(state: &State) -> Option<Option<&Name>> {
    match state {
        State::On(node) => Some(Some(node)),
        State::Waits(_) | State::Uncreated(_) | State::Unsimulated(_) => Some(None),
        _ => None,
    }
}

/// Exchanges the states of identical pods so that as many as possible have the same with and without the change.
fn exchange(pairs: &mut [Pair<'_>]) {
    let mut groups: HashMap<&Template, Vec<usize>> = HashMap::new();
    for (at, Pair { fate, without, with, .. }) in pairs.iter().enumerate() {
        let without = without.as_ref().and_then(place);
        if let (Some(was), Some(is)) = (without, place(with))
            && was != is
            && let Some(template) = interchangeable(&fate.pod)
        {
            groups.entry(template).or_default().push(at);
        }
    }
    for group in groups.into_values().filter(|group| group.len() > 1) {
        // The states with the change, by node. Those of the pods that keep theirs are taken first.
        let mut free: HashMap<Option<Name>, Vec<(usize, State)>> = HashMap::new();
        for at in &group {
            let state = pairs[*at].with.clone();
            free.entry(place(&state).flatten().cloned()).or_default().push((*at, state));
        }
        let mut rest = Vec::new();
        for at in group {
            let was = pairs[at].without.as_ref().and_then(place).flatten().cloned();
            match free.get_mut(&was).and_then(Vec::pop) {
                Some((_, state)) => pairs[at].give(state),
                None => rest.push(at),
            }
        }
        let mut left: HashMap<usize, State> = free.into_values().flatten().collect();
        let (own, others): (Vec<usize>, Vec<usize>) =
            rest.into_iter().partition(|at| left.contains_key(at));
        own.iter().for_each(|at| drop(left.remove(at)));
        let mut left: Vec<(usize, State)> = left.into_iter().collect();
        left.sort_by_key(|(at, _)| *at);
        others.into_iter().zip(left).for_each(|(at, (_, state))| pairs[at].give(state));
    }
}

impl Pair<'_> {
    /// Gives the pod the state of an identical one.
    fn give(&mut self, state: State) {
        (self.with, self.is_restarted) = (state, false);
    }
}

/// The pods that the simulation with the change has preempted. Of identical pods, as many as without the change are
/// marked.
fn preempted(without: &Outcome, with: &Outcome) -> Vec<Row> {
    let is_preempted = |fate: &&Fate| fate.preempted.is_some();
    let mut left: HashMap<&Template, usize> = HashMap::new();
    for fate in without.fates.iter().filter(is_preempted) {
        if let Some(template) = interchangeable(&fate.pod) {
            *left.entry(template).or_default() += 1;
        }
    }
    let rows = with.fates.iter().filter_map(|fate| {
        let Preempted { from, by } = fate.preempted.clone()?;
        let is_known = without.get(&fate.pod.uid).is_some_and(|it| it.preempted.is_some());
        let (from, why) = (Some(from), by);
        let pod = fate.pod.clone();
        let row = Row { pod, from, to: None, why, lack: Lack::Node, without_change: is_known };
        if let Some(left) = interchangeable(&fate.pod).and_then(|it| left.get_mut(it))
            && is_known
        {
            *left = left.saturating_sub(1);
        }
        Some(row)
    });
    let mut rows: Vec<Row> = rows.collect();
    for row in rows.iter_mut().filter(|row| !row.without_change) {
        if let Some(left) = interchangeable(&row.pod).and_then(|it| left.get_mut(it))
            && *left > 0
        {
            *left -= 1;
            row.without_change = true;
        }
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;
    use portolan::model::{OwnerReference, pod};

    fn fate(name: &str, owner: Option<&str>, start: Option<&str>, state: State) -> Fate {
        let mut like = pod(name).build();
        if let Some(kind) = owner {
            let mut spec = portolan::model::PodSpec::clone(&like.template);
            spec.owners = Box::new([OwnerReference {
                kind: kind.into(),
                name: "web".into(),
                api_version: "apps/v1".into(),
                uid: "web".into(),
                controller: true,
            }]);
            like.template = Template::new(spec);
        }
        Fate { pod: like, start: start.map(Name::from), state, restarts: 0, preempted: None }
    }

    fn on(node: &str) -> State {
        State::On(node.into())
    }

    fn waits() -> State {
        State::Waits("0/1 nodes are available".to_owned())
    }

    /// The names and nodes of the placed pods, and the numbers of unplaced and pending ones.
    fn effects(without: Vec<Fate>, with: Vec<Fate>) -> (Vec<String>, usize, usize) {
        let found = Effects::between(&Outcome::new(without), &Outcome::new(with));
        let placed = found.placed.iter().map(|row| {
            let from = row.from.as_deref().unwrap_or("-");
            format!("{} {from} {}", row.pod.name, row.to.as_deref().unwrap_or("-"))
        });
        (placed.collect(), own(&found.unplaced).count(), found.pending.len())
    }

    #[test]
    fn identical_pods_that_exchange_their_nodes_are_no_difference() {
        let of = |kind, a: State, b: State| {
            vec![fate("a", Some(kind), Some("n1"), a), fate("b", Some(kind), Some("n2"), b)]
        };
        let set = "ReplicaSet";
        let same = effects(of(set, on("n1"), waits()), of(set, waits(), on("n1")));
        assert_eq!(same, (vec![], 0, 0));
        let moved = effects(of(set, on("n1"), waits()), of(set, waits(), on("n3")));
        assert_eq!(moved, (vec!["a n1 n3".to_owned()], 0, 0));
        // The pods of a stateful set are distinct.
        let set = "StatefulSet";
        let distinct = effects(of(set, on("n1"), waits()), of(set, waits(), on("n1")));
        assert_eq!(distinct, (vec!["b - n1".to_owned()], 1, 0));
    }

    #[test]
    fn untouched_pods_are_on_their_nodes() {
        let preempted = || fate("a", Some("ReplicaSet"), Some("n1"), waits());
        assert_eq!(effects(vec![preempted()], vec![]), (vec!["a - n1".to_owned()], 0, 0));
        assert_eq!(effects(vec![], vec![preempted()]), (vec![], 1, 0));
        assert_eq!(effects(vec![preempted()], vec![preempted()]), (vec![], 0, 0));
    }
}
