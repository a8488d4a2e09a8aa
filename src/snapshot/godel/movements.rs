//! Where a rescheduler suggests that the pods of an owner go, and which went.
//!
//! A suggestion is known by its movement, the owner and the node, and has three parts:
//! how many pods the Movement wants there, which it says have come, and which are there
//! and say by their annotation that they follow it. The first two are the Movement's,
//! the third is the pods': they may be there before it and after it, so a suggestion is
//! there while any of the three is, and each part comes and goes by itself
//! (framework/api/movement.go).
//!
//! Suggestions lie side by side and not in their movements: what a pod does to one costs
//! the same in a movement of ten nodes and in one of ten thousand. An index of the owners
//! beside them names those alone of which something is left, so that what was used up
//! years ago is in nobody's way.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::model::{Generation, Movement, Name, OwnerKey, RecommendedNode, Uid, hash_of};

use super::super::cost;
use super::super::dense::{Dense, Known};
use super::super::hash_index::HashIndex;

/// How many pods of an owner a movement wants on a node, and how far that is done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Suggestion {
    /// The movement's name.
    pub movement: Name,
    /// Whose pods.
    pub owner: OwnerKey,
    /// The node.
    pub node: Name,
    /// How many the movement wants there: 0 where there is no such movement, or not any
    /// more.
    pub desired: u64,
    /// Sorted, as is the next.
    actual: Arc<[Uid]>,
    assumed: Arc<[Uid]>,
    /// How many are in either.
    used: usize,
}

impl Suggestion {
    /// Of what a copy bumps: the names, and both sets.
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

    /// The pods that the movement says have come, by uid.
    #[must_use]
    pub fn actual(&self) -> &[Uid] {
        &self.actual
    }

    /// The pods that are on the node, assumed or bound, and name the movement, by uid.
    #[must_use]
    pub fn assumed(&self) -> &[Uid] {
        &self.assumed
    }

    /// How many more pods are wanted: a pod that is in both sets is one.
    #[must_use]
    pub fn available(&self) -> u64 {
        self.desired.saturating_sub(self.used as u64)
    }

    fn id(&self) -> SuggestionId<'_> {
        SuggestionId { movement: &self.movement, owner: &self.owner, node: &self.node }
    }

    /// Whether nothing is left of it.
    fn is_over(&self) -> bool {
        self.desired == 0 && self.actual.is_empty() && self.assumed.is_empty()
    }

    fn says(&self, desired: u64, actual: &[Uid]) -> bool {
        self.desired == desired && *self.actual == *actual
    }

    /// What the movement says now. O(pods × log n).
    fn suggest(&mut self, desired: u64, actual: Vec<Uid>) {
        let both = actual.iter().filter(|uid| self.assumed.binary_search(uid).is_ok()).count();
        self.used = actual.len() + self.assumed.len() - both;
        self.desired = desired;
        self.actual = actual.into();
    }

    /// A pod follows it. O(pods that do).
    fn follow(&mut self, uid: &Uid) {
        let Err(at) = self.assumed.binary_search(uid) else { return };
        let (before, after) = self.assumed.split_at(at);
        self.assumed = before.iter().chain([uid]).chain(after).cloned().collect();
        self.used += usize::from(self.actual.binary_search(uid).is_err());
        self.count_assumed();
    }

    /// A pod follows it no more. O(pods that do).
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

/// What a suggestion is known by.
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

/// A movement with what it still suggests to an owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SuggestedMovement<'a> {
    /// The movement's name.
    pub movement: &'a Name,
    /// How many more pods it wants on which nodes, by name; none of them 0.
    pub nodes: Vec<(&'a Name, u64)>,
}

/// What all movements suggest, and how far that is followed. The Movements themselves
/// are objects like others
/// ([`Objects::movements`](crate::snapshot::Objects::movements)).
#[derive(Clone, Default)]
pub struct Movements {
    suggestions: Dense<Suggestion>,
    /// The numbers of those that more pods of an owner can follow.
    available: HashIndex,
    generation: Generation,
}

impl Movements {
    /// Reference counts that a clone bumps.
    pub(crate) const COUNTS: usize = Dense::<Suggestion>::COUNTS + 1;

    /// The nodes on which more pods of an owner are wanted, and how many, summed over all
    /// movements (`GetAvailableSuggestionTimesForNodes`). O(nodes found × log n).
    #[must_use]
    pub fn available_nodes(&self, owner: &OwnerKey) -> BTreeMap<Name, u64> {
        let mut nodes = BTreeMap::new();
        for suggestion in self.available(owner) {
            let times: &mut u64 = nodes.entry(suggestion.node.clone()).or_default();
            *times = times.saturating_add(suggestion.available());
        }
        nodes
    }

    /// The movements that want more pods of an owner somewhere, by name, with those
    /// nodes (`GetSuggestedMovementAndNodes`). O(nodes found × log n).
    #[must_use]
    pub fn suggestions(&self, owner: &OwnerKey) -> Vec<SuggestedMovement<'_>> {
        let mut found: Vec<&Suggestion> = self.available(owner).collect();
        found.sort_by_key(|suggestion| (&suggestion.movement, &suggestion.node));
        let of_one = found.chunk_by(|one, next| one.movement == next.movement);
        let with_nodes = of_one.map(|of_one| {
            let nodes = of_one.iter().map(|suggestion| (&suggestion.node, suggestion.available()));
            SuggestedMovement { movement: &of_one[0].movement, nodes: nodes.collect() }
        });
        with_nodes.collect()
    }

    /// What there is of a movement's suggestion of a node to an owner. O(log n).
    #[must_use]
    pub fn get(&self, movement: &str, owner: &OwnerKey, node: &str) -> Option<&Arc<Suggestion>> {
        let (movement, node) = (&movement.into(), &node.into());
        self.suggestions.get(self.find(SuggestionId { movement, owner, node })?)
    }

    /// All suggestions, in no particular order, those among them that only pods still
    /// follow.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Suggestion>> {
        self.suggestions.iter()
    }

    /// The owners for whose pods nodes are wanted, in order. O(n × log n).
    pub fn owners(&self) -> impl Iterator<Item = &OwnerKey> {
        let available = self.iter().filter(|suggestion| suggestion.available() > 0);
        let owners: BTreeSet<&OwnerKey> = available.map(|suggestion| &suggestion.owner).collect();
        owners.into_iter()
    }

    /// How many suggestions there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.suggestions.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// When a movement or what follows it last changed: a position in the log, so what
    /// is dropped and made again never has the one that it had.
    #[must_use]
    pub fn generation(&self) -> Generation {
        self.generation
    }

    /// Whether so many suggestions can be added.
    pub(crate) fn has_room(&self, more: usize) -> bool {
        self.len().saturating_add(more) < u32::MAX as usize
    }

    /// A movement is new, or replaces another of its name. O((old + new) × log n), of
    /// both what their status names; what it suggests once and as before is not copied.
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
        // Of several that say something of one place the last one counts.
        for (owner, recommended) in recommended(movement) {
            let mut actual: Vec<Uid> =
                recommended.actual.iter().map(|task| task.uid.clone()).collect();
            actual.sort_unstable();
            actual.dedup();
            let id = SuggestionId { movement: &movement.name, owner, node: &recommended.node };
            self.suggest(id, recommended.desired, actual);
        }
    }

    /// A movement is gone; the pods that followed it did so still. O(what its status
    /// names × log n).
    pub(crate) fn retract(&mut self, old: &Movement, generation: Generation) {
        self.generation = generation;
        for (owner, node) in places(old) {
            self.suggest(SuggestionId { movement: &old.name, owner, node }, 0, Vec::new());
        }
    }

    /// A pod that follows a suggestion has come to its node. O(log n + pods that follow
    /// it there).
    pub(crate) fn follow(&mut self, id: SuggestionId<'_>, uid: &Uid, generation: Generation) {
        self.generation = generation;
        self.change(id, self.find(id), |suggestion| suggestion.follow(uid));
    }

    /// A pod that followed a suggestion is gone from its node. O(log n + pods that
    /// follow it there).
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

    /// What a movement says of a node now.
    fn suggest(&mut self, id: SuggestionId<'_>, desired: u64, actual: Vec<Uid>) {
        let number = self.find(id);
        let known = number.and_then(|number| self.suggestions.get(number));
        if !known.is_some_and(|known| known.says(desired, &actual)) {
            self.change(id, number, |suggestion| suggestion.suggest(desired, actual));
        }
    }

    /// Changes a suggestion, which has this number if it is known, and which may begin or
    /// be over by that.
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
            Some(number) if next.is_over() => {
                if was_available {
                    self.available.remove(hash_of(id.owner), number);
                }
                self.remove(number);
                return;
            }
            None if next.is_over() => return,
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

    /// Takes a suggestion away that is offered to nobody.
    fn remove(&mut self, number: u32) {
        let Some(before) = self.suggestions.remove(number) else { return };
        // The last one has its number now.
        let moved = self.suggestions.get(number).filter(|moved| moved.available() > 0);
        if let Some(owner) = moved.map(|moved| hash_of(&moved.owner)) {
            self.available.remove(owner, before);
            self.available.insert(owner, number);
        }
    }
}

/// What a movement recommends to which owners.
fn recommended(movement: &Movement) -> impl Iterator<Item = (&OwnerKey, &RecommendedNode)> {
    let owners = movement.owners.iter();
    owners.flat_map(|of| of.nodes.iter().map(|node| (&of.owner, node)))
}

/// The nodes of that.
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

    /// Suggestions take each other's numbers when they are over; the index follows them.
    #[test]
    fn the_index_names_what_is_left_and_is_empty_at_last() {
        const MOVEMENTS: usize = 100;
        let mut movements = Movements::default();
        for n in 0..MOVEMENTS {
            movements.declare(None, &movement(n, 2), Generation(1));
        }
        // A seeded shuffle: 7 and 100 have no common divisor.
        for n in (0..MOVEMENTS).map(|n| n * 7 % MOVEMENTS) {
            if n % 2 == 0 {
                movements.declare(Some(&movement(n, 2)), &movement(n, 0), Generation(2));
            }
            movements.retract(&movement(n, 2), Generation(3));
            let of = |owner| movements.available_nodes(owner).into_values().sum::<u64>();
            let found: u64 = movements.owners().map(of).sum();
            assert_eq!(found, movements.iter().map(|s| s.available()).sum::<u64>());
        }
        assert!(movements.is_empty() && movements.available.is_empty());
    }
}
