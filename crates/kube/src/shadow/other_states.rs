//! The states that the other scheduler may have seen when it decided on a pod.

use std::sync::Arc;
use std::time::{Duration, Instant};

use portolan::model::Name;
use portolan::{Fork, Snapshot};

use super::recorder::{Binding, Seen};
use super::verdict::OtherState;

/// The bindings before and after one binding, at most this many each, that are left out or put in.
const NEAREST: usize = 32;
/// The changes before which a version is tried.
const CHANGES: usize = 16;

/// A state, as a version with changes.
pub(super) struct State<'a> {
    version: &'a Arc<Snapshot>,
    earlier: Option<Duration>,
    /// Whether the version is one from after the binding.
    is_later: bool,
    put_in: Vec<&'a Binding>,
    left_out: Vec<&'a Binding>,
}

impl State<'_> {
    /// Returns the cluster in this state. O(changes × log n).
    pub(super) fn fork(&self) -> Fork {
        let mut fork = self.version.fork();
        for binding in &self.left_out {
            // The only error is that the pod has been deleted.
            let _ = fork.remove_pod(&binding.pod.uid);
        }
        for binding in &self.put_in {
            // The engine has accepted the pod, or refuses it for the same reason.
            let _ = fork.add_pod(&binding.bound);
        }
        fork
    }

    /// Describes the state. The pods that are left out of a later version were not bound before, so they are no
    /// difference from the state right before the binding.
    pub(super) fn describe(&self) -> OtherState {
        let names = |bindings: &[&Binding]| bindings.iter().map(|one| name(one)).collect();
        OtherState {
            earlier: self.earlier,
            is_later: self.is_later,
            put_in: names(&self.put_in),
            left_out: if self.is_later { Vec::new() } else { names(&self.left_out) },
        }
    }
}

fn name(binding: &Binding) -> Name {
    format!("{}/{}", binding.pod.namespace(), binding.pod.name).into()
}

/// What was seen around a binding.
pub(super) struct Around<'a> {
    pub(super) binding: &'a Binding,
    /// What was seen before it, the latest first, up to the beginning of the window.
    pub(super) before: Vec<&'a Seen>,
    /// What was seen after it, the earliest first, up to the end of the window.
    pub(super) after: Vec<&'a Seen>,
    /// What was seen after the end of the window.
    pub(super) beyond: Vec<&'a Seen>,
    /// A version from after the end of the window.
    pub(super) newest: &'a Arc<Snapshot>,
}

impl<'a> Around<'a> {
    /// Returns the states to try, the most likely first.
    pub(super) fn states(&self) -> Vec<State<'a>> {
        let is_candidate = |later: &&Binding| {
            // The scheduler cannot have decided on a pod that did not exist yet.
            later.appeared.is_none_or(|appeared| appeared < self.binding.at)
        };
        let earlier: Vec<&Binding> = bindings(&self.before).collect();
        let later: Vec<&Binding> = bindings(&self.after).filter(is_candidate).collect();
        let mut states = vec![self.in_queue_order(&earlier, &later)];
        states.extend(self.before_changes(&later));
        let plain = |put_in: &[&'a Binding], left_out: &[&'a Binding]| State {
            version: &self.binding.version,
            earlier: None,
            is_later: false,
            put_in: put_in.to_vec(),
            left_out: left_out.to_vec(),
        };
        let (earlier, later) = (first(&earlier), first(&later));
        states.extend((1..=earlier.len()).map(|count| plain(&[], &earlier[..count])));
        states.extend((1..=later.len()).map(|count| plain(&later[..count], &[])));
        states.extend(earlier.iter().skip(1).map(|one| plain(&[], &[*one])));
        states.extend(later.iter().skip(1).map(|one| plain(&[*one], &[])));
        states.extend(self.with_later_changes(&later));
        states.retain(|state| {
            !state.put_in.is_empty()
                || !state.left_out.is_empty()
                || state.earlier.is_some()
                || state.is_later
        });
        states
    }

    /// Counts the pods that precede this one in the queue, and no others of the window.
    fn in_queue_order(&self, earlier: &[&'a Binding], later: &[&'a Binding]) -> State<'a> {
        let rank = self.binding.rank;
        State {
            version: &self.binding.version,
            earlier: None,
            is_later: false,
            put_in: later.iter().copied().filter(|one| one.rank < rank).collect(),
            left_out: earlier.iter().copied().filter(|one| one.rank > rank).collect(),
        }
    }

    /// The versions before recent changes, with the pods that were bound since and precede this one in the queue.
    fn before_changes(&self, later: &[&'a Binding]) -> Vec<State<'a>> {
        let is_possible = |at: Instant| self.binding.appeared.is_none_or(|appeared| appeared <= at);
        let precedes = |one: &&Binding| one.rank < self.binding.rank;
        let mut states = Vec::new();
        let mut since: Vec<&Binding> = later.iter().copied().filter(precedes).collect();
        for seen in &self.before {
            match seen {
                Seen::Binding(binding) => since.extend(Some(&**binding).filter(precedes)),
                Seen::Change { at, version } if is_possible(*at) && states.len() < CHANGES => {
                    states.push(State {
                        version,
                        earlier: Some(self.binding.at.saturating_duration_since(*at)),
                        is_later: false,
                        put_in: since.clone(),
                        left_out: Vec::new(),
                    });
                }
                Seen::Change { .. } => {}
            }
        }
        states
    }

    /// The newest version without this pod and the pods bound after it, except for those that precede it in the queue.
    /// Watches of different kinds have no common order, so the scheduler may have seen a change of a node that the
    /// mirror saw after the binding.
    fn with_later_changes(&self, later: &[&'a Binding]) -> Option<State<'a>> {
        let is_change = |seen: &&&Seen| matches!(seen, Seen::Change { .. });
        self.after.iter().find(is_change)?;
        let precedes = |one: &&Binding| one.rank < self.binding.rank;
        let put_in: Vec<&Binding> = later.iter().copied().filter(precedes).collect();
        let is_left = |one: &&Binding| !put_in.iter().any(|other| std::ptr::eq(*other, *one));
        let all = bindings(&self.after).chain(bindings(&self.beyond));
        let left_out = all.filter(is_left).chain([self.binding]).collect();
        Some(State { version: self.newest, earlier: None, is_later: true, put_in, left_out })
    }
}

fn bindings<'a>(seen: &[&'a Seen]) -> impl Iterator<Item = &'a Binding> {
    seen.iter().filter_map(|seen| match seen {
        Seen::Binding(binding) => Some(&**binding),
        Seen::Change { .. } => None,
    })
}

fn first<'s, 'a>(bindings: &'s [&'a Binding]) -> &'s [&'a Binding] {
    &bindings[..bindings.len().min(NEAREST)]
}
