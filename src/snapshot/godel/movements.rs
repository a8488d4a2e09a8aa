//! Movements: the nodes that a rescheduler suggests for the pods of an owner, and the pods that followed.
//!
//! A suggestion is identified by its movement, the owner and the node, and has three parts: the number of pods that the
//! Movement requests on the node, the pods that it reports as moved there, and the pods on the node whose annotation
//! names the movement. The Movement determines the first two parts and the pods the third. Pods may arrive before
//! the Movement and stay after it, so a suggestion exists while any of the three parts does, and each part is added and
//! removed independently (framework/api/movement.go).
//!
//! Suggestions are stored side by side rather than in their movements, so the cost of a pod is the same for a movement
//! of ten nodes and for one of ten thousand. An index by owner contains only the suggestions that further pods can
//! follow, so suggestions that were used up long ago cost queries nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::model::{Generation, Movement, Name, OwnerKey, RecommendedNode, Uid, hash_of};

use super::super::cost;
use super::super::dense::{Dense, Known};
use super::super::hash_index::HashIndex;

/// How many pods of an owner a movement requests on a node, and how many have been placed there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Suggestion {
    /// The movement's name.
    pub movement: Name,
    /// The owner of the pods.
    pub owner: OwnerKey,
    /// The node.
    pub node: Name,
    /// How many pods the movement requests on the node; 0 if the movement does not exist, or no longer does.
    pub desired: u64,
    /// Sorted by uid, as is `assumed`.
    actual: Arc<[Uid]>,
    assumed: Arc<[Uid]>,
    /// The size of the union of both sets.
    used: usize,
}

impl Suggestion {
    /// Number of reference counts that a copy increments: those of the names and of both sets.
    const COUNTS: usize = 8;

    fn new(id: SuggestionId<'_>) -> Suggestion {
        Suggestion {
            movement: id.movement.clone(),
            owner: id.owner.clone(),
            node: id.node.clone(),
            desired: 0,
            actual: Arc::default(),
            assumed: Arc::default(),
            used: 0,
        }
    }

    /// Returns the pods that the movement reports as moved, sorted by uid.
    #[must_use]
    pub fn actual(&self) -> &[Uid] {
        &self.actual
    }

    /// Returns the pods on the node, assumed or bound, that name the movement, sorted by uid.
    #[must_use]
    pub fn assumed(&self) -> &[Uid] {
        &self.assumed
    }

    /// Returns how many more pods are requested. A pod that is in both sets counts once.
    #[must_use]
    pub fn available(&self) -> u64 {
        self.desired.saturating_sub(self.used as u64)
    }

    fn id(&self) -> SuggestionId<'_> {
        SuggestionId { movement: &self.movement, owner: &self.owner, node: &self.node }
    }

    /// Returns whether all parts of the suggestion are empty.
    fn is_obsolete(&self) -> bool {
        self.desired == 0 && self.actual.is_empty() && self.assumed.is_empty()
    }

    fn is_equal(&self, desired: u64, actual: &[Uid]) -> bool {
        self.desired == desired && *self.actual == *actual
    }

    /// Sets the parts that the movement determines. O(pods × log n).
    fn suggest(&mut self, desired: u64, actual: Vec<Uid>) {
        let both = actual.iter().filter(|uid| self.assumed.binary_search(uid).is_ok()).count();
        self.used = actual.len() + self.assumed.len() - both;
        self.desired = desired;
        self.actual = actual.into();
    }

    /// Adds a pod that follows the suggestion. O(pods that follow).
    fn follow(&mut self, uid: &Uid) {
        let Err(at) = self.assumed.binary_search(uid) else { return };
        let (before, after) = self.assumed.split_at(at);
        self.assumed = before.iter().chain([uid]).chain(after).cloned().collect();
        self.used += usize::from(self.actual.binary_search(uid).is_err());
        self.count_assumed();
    }

    /// Removes a pod that followed the suggestion. O(pods that follow).
    fn unfollow(&mut self, uid: &Uid) {
        let Ok(at) = self.assumed.binary_search(uid) else { return };
        let (before, after) = (&self.assumed[..at], &self.assumed[at + 1..]);
        self.assumed = before.iter().chain(after).cloned().collect();
        self.used -= usize::from(self.actual.binary_search(uid).is_err());
        self.count_assumed();
    }

    fn count_assumed(&self) {
        cost::copied_bytes(size_of_val(&*self.assumed), 0);
    }
}

/// The identity of a suggestion.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SuggestionId<'a> {
    pub(crate) movement: &'a Name,
    pub(crate) owner: &'a OwnerKey,
    pub(crate) node: &'a Name,
}

impl SuggestionId<'_> {
    fn hash64(&self) -> u64 {
        hash_of(&(self.movement, self.owner, self.node))
    }

    fn is_of(&self, suggestion: &Suggestion) -> bool {
        suggestion.node == *self.node
            && suggestion.movement == *self.movement
            && suggestion.owner == *self.owner
    }
}

impl Known for Suggestion {
    fn hash64(&self) -> u64 {
        self.id().hash64()
    }
}

/// A movement with its remaining suggestions for an owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SuggestedMovement<'a> {
    /// The movement's name.
    pub movement: &'a Name,
    /// The nodes by name, with how many more pods the movement requests on each; never 0.
    pub nodes: Vec<(&'a Name, u64)>,
}

/// The suggestions of all movements and the pods that follow them. The Movements themselves are ordinary objects
/// ([`Objects::movements`](crate::cache::Objects::movements)).
#[derive(Clone, Default)]
pub struct Movements {
    suggestions: Dense<Suggestion>,
    /// The numbers of the suggestions that more pods of an owner can follow.
    available: HashIndex,
    generation: Generation,
}

impl Movements {
    /// Number of reference counts that a clone increments.
    pub(crate) const COUNTS: usize = Dense::<Suggestion>::COUNTS + 1;

    /// Returns the nodes on which more pods of an owner are requested, with their number summed over all movements
    /// (`GetAvailableSuggestionTimesForNodes`). O(nodes found × log n).
    #[must_use]
    pub fn available_nodes(&self, owner: &OwnerKey) -> BTreeMap<Name, u64> {
        let mut nodes = BTreeMap::new();
        for suggestion in self.available(owner) {
            let times: &mut u64 = nodes.entry(suggestion.node.clone()).or_default();
            *times = times.saturating_add(suggestion.available());
        }
        nodes
    }

    /// Returns the movements that request more pods of an owner, sorted by name, with the nodes
    /// (`GetSuggestedMovementAndNodes`). O(nodes found × log n).
    #[must_use]
    pub fn suggestions(&self, owner: &OwnerKey) -> Vec<SuggestedMovement<'_>> {
        let mut found: Vec<&Suggestion> = self.available(owner).collect();
        found.sort_by_key(|suggestion| (&suggestion.movement, &suggestion.node));
        let by_movement = found.chunk_by(|one, next| one.movement == next.movement);
        let with_nodes = by_movement.map(|group| {
            let nodes = group.iter().map(|suggestion| (&suggestion.node, suggestion.available()));
            SuggestedMovement { movement: &group[0].movement, nodes: nodes.collect() }
        });
        with_nodes.collect()
    }

    /// Returns a movement's suggestion of a node to an owner. O(log n).
    #[doc(hidden)]
    #[must_use]
    pub fn get(&self, movement: &str, owner: &OwnerKey, node: &str) -> Option<&Arc<Suggestion>> {
        let (movement, node) = (&movement.into(), &node.into());
        self.suggestions.get(self.find(SuggestionId { movement, owner, node })?)
    }

    /// Returns all suggestions, in no particular order, including those whose Movement is removed and that pods still
    /// follow.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Suggestion>> {
        self.suggestions.iter()
    }

    /// Returns the owners that have suggestions with available places, in sorted order. O(n × log n).
    #[doc(hidden)]
    pub fn owners(&self) -> impl Iterator<Item = &OwnerKey> {
        let available = self.iter().filter(|suggestion| suggestion.available() > 0);
        let owners: BTreeSet<&OwnerKey> = available.map(|suggestion| &suggestion.owner).collect();
        owners.into_iter()
    }

    /// Returns the number of suggestions.
    #[must_use]
    pub fn len(&self) -> usize {
        self.suggestions.len()
    }

    /// Returns whether there are no suggestions.
    #[doc(hidden)]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the generation in which a suggestion last changed. It is a position in the log, so a store that is
    /// dropped and created again never repeats one.
    #[must_use]
    pub fn generation(&self) -> Generation {
        self.generation
    }

    /// Returns whether `more` suggestions can be added.
    pub(crate) fn has_room(&self, more: usize) -> bool {
        self.len().saturating_add(more) < u32::MAX as usize
    }

    /// Applies a movement that is new or replaces another of its name. O((old + new) × log n) in the sizes of both
    /// statuses. A suggestion that occurs once and is unchanged is not copied.
    pub(crate) fn declare(
        &mut self,
        old: Option<&Movement>,
        movement: &Movement,
        generation: Generation,
    ) {
        self.generation = generation;
        if let Some(old) = old.filter(|old| !places(old).eq(places(movement))) {
            let wanted: BTreeSet<_> = places(movement).collect();
            for (owner, node) in places(old).filter(|place| !wanted.contains(place)) {
                self.suggest(SuggestionId { movement: &movement.name, owner, node }, 0, Vec::new());
            }
        }
        // If several recommendations name the same owner and node, the last one counts.
        for (owner, recommended) in recommended(movement) {
            let mut actual: Vec<Uid> =
                recommended.actual.iter().map(|task| task.uid.clone()).collect();
            actual.sort_unstable();
            actual.dedup();
            let id = SuggestionId { movement: &movement.name, owner, node: &recommended.node };
            self.suggest(id, recommended.desired, actual);
        }
    }

    /// Applies the removal of a movement. Pods that follow it keep following it. O(nodes in its status × log n).
    pub(crate) fn retract(&mut self, old: &Movement, generation: Generation) {
        self.generation = generation;
        for (owner, node) in places(old) {
            self.suggest(SuggestionId { movement: &old.name, owner, node }, 0, Vec::new());
        }
    }

    /// Records that a pod that follows a suggestion was placed on its node. O(log n + pods that follow it there).
    pub(crate) fn follow(&mut self, id: SuggestionId<'_>, uid: &Uid, generation: Generation) {
        self.generation = generation;
        self.change(id, self.find(id), |suggestion| suggestion.follow(uid));
    }

    /// Records that a pod that followed a suggestion left its node. O(log n + pods that follow it there).
    pub(crate) fn unfollow(&mut self, id: SuggestionId<'_>, uid: &Uid, generation: Generation) {
        self.generation = generation;
        self.change(id, self.find(id), |suggestion| suggestion.unfollow(uid));
    }

    fn find(&self, id: SuggestionId<'_>) -> Option<u32> {
        self.suggestions.find(id.hash64(), |suggestion| id.is_of(suggestion))
    }

    fn available<'a>(&'a self, owner: &OwnerKey) -> impl Iterator<Item = &'a Suggestion> {
        let numbers = self.available.numbers(hash_of(owner));
        let found = numbers.filter_map(|number| self.suggestions.get(number));
        found.map(|found| &**found).filter(|found| found.owner == *owner)
    }

    /// Sets the parts of a suggestion that its movement determines.
    fn suggest(&mut self, id: SuggestionId<'_>, desired: u64, actual: Vec<Uid>) {
        let number = self.find(id);
        let known = number.and_then(|number| self.suggestions.get(number));
        if !known.is_some_and(|known| known.is_equal(desired, &actual)) {
            self.change(id, number, |suggestion| suggestion.suggest(desired, actual));
        }
    }

    /// Changes a suggestion. `number` is its number if it exists. The change may create or remove it.
    fn change(
        &mut self,
        id: SuggestionId<'_>,
        number: Option<u32>,
        change: impl FnOnce(&mut Suggestion),
    ) {
        let known = number.and_then(|number| self.suggestions.get(number));
        let was_available = known.is_some_and(|known| known.available() > 0);
        let mut next = match known {
            Some(known) => {
                cost::copied::<Suggestion>(Suggestion::COUNTS);
                Suggestion::clone(known)
            }
            None => Suggestion::new(id),
        };
        change(&mut next);
        let is_available = next.available() > 0;
        let number = match number {
            Some(number) if next.is_obsolete() => {
                if was_available {
                    self.available.remove(hash_of(id.owner), number);
                }
                self.remove(number);
                return;
            }
            None if next.is_obsolete() => return,
            Some(number) => {
                self.suggestions.replace(number, Arc::new(next));
                number
            }
            None => self.suggestions.push(Arc::new(next)),
        };
        match (was_available, is_available) {
            (false, true) => self.available.insert(hash_of(id.owner), number),
            (true, false) => self.available.remove(hash_of(id.owner), number),
            _ => {}
        }
    }

    /// Removes a suggestion that no further pods can follow.
    fn remove(&mut self, number: u32) {
        let Some(before) = self.suggestions.remove(number) else { return };
        // The suggestion that was last has the freed number now.
        let moved = self.suggestions.get(number).filter(|moved| moved.available() > 0);
        if let Some(owner) = moved.map(|moved| hash_of(&moved.owner)) {
            self.available.remove(owner, before);
            self.available.insert(owner, number);
        }
    }
}

/// Returns the recommendations of a movement, with their owners.
fn recommended(movement: &Movement) -> impl Iterator<Item = (&OwnerKey, &RecommendedNode)> {
    let owners = movement.owners.iter();
    owners.flat_map(|owner| owner.nodes.iter().map(|node| (&owner.owner, node)))
}

/// Returns the owner and node of each recommendation.
fn places(movement: &Movement) -> impl Iterator<Item = (&OwnerKey, &Name)> {
    recommended(movement).map(|(owner, recommended)| (owner, &recommended.node))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::MovementOwner;

    fn movement(n: usize, desired: u64) -> Movement {
        let key = |kind: &str, name: String| OwnerKey {
            kind: kind.into(),
            namespace: "default".into(),
            name: name.clone().into(),
            uid: name.into(),
        };
        let node = |at: usize| RecommendedNode {
            node: format!("n{}", (n + at) % 40).into(),
            desired,
            actual: Box::default(),
        };
        Movement {
            name: format!("m{n}").into(),
            owners: Box::new([MovementOwner {
                owner: key("ReplicaSet", format!("rs{}", n % 20)),
                nodes: (0..3).map(node).collect(),
            }]),
            ..Movement::default()
        }
    }

    /// Removed suggestions pass their numbers on to others, and the index must follow.
    #[test]
    fn the_index_matches_the_suggestions_and_ends_up_empty() {
        const MOVEMENTS: usize = 100;
        let mut movements = Movements::default();
        for n in 0..MOVEMENTS {
            movements.declare(None, &movement(n, 2), Generation(1));
        }
        // 7 and 100 are coprime, so this permutes the numbers.
        for n in (0..MOVEMENTS).map(|n| n * 7 % MOVEMENTS) {
            if n % 2 == 0 {
                movements.declare(Some(&movement(n, 2)), &movement(n, 0), Generation(2));
            }
            movements.retract(&movement(n, 2), Generation(3));
            let wanted = |owner| movements.available_nodes(owner).into_values().sum::<u64>();
            let found: u64 = movements.owners().map(wanted).sum();
            assert_eq!(found, movements.iter().map(|s| s.available()).sum::<u64>());
        }
        assert!(movements.is_empty() && movements.available.is_empty());
    }
}
