//! The persistent array that all tables of a snapshot are built from.
//!
//! A radix tree over `u32` indexes with eight children per level. Cloning a tree increments one reference count.
//! Changing one leaf of a cloned tree copies that leaf and the branches above it, so a publish costs what changed. The
//! width was measured: the cost of copying a level is dominated by its reference counts, which are touched twice (once
//! to copy, once to free), so eight children beat sixteen and sixty-four. Indexes may be sparse: a branch without
//! children does not exist.
//!
//! Each branch also stores, for each child, the newest generation and the marks below it. Leaves that changed since
//! some generation, or that have some mark, are found without visiting the others.

use rayon::prelude::*;
use triomphe::Arc;

use crate::freeing::{self, Counted, Part};
use crate::model::Generation;

use super::cost;

const BITS: u32 = 3;
const WIDTH: usize = 1 << BITS;

/// A leaf that may have marks, by which it can be searched for.
pub(crate) trait Marked {
    /// Returns the leaf's marks as a set of bits; 0 means none.
    fn marks(&self) -> u8 {
        0
    }
}

/// A persistent sparse array of `T`; see the module documentation.
pub(crate) struct Tree<T: Part> {
    root: Option<Arc<Branch<T>>>,
    /// Number of levels of branches; a tree of height 0 is empty.
    height: u32,
}

struct Branch<T: Part> {
    newest: [Generation; WIDTH],
    marks: [u8; WIDTH],
    children: Children<T>,
    counted: Counted<WIDTH>,
}

enum Children<T: Part> {
    Branches([Option<Arc<Branch<T>>>; WIDTH]),
    Leaves([Option<Arc<T>>; WIDTH]),
}

impl<T: Part> Clone for Tree<T> {
    fn clone(&self) -> Tree<T> {
        Tree { root: self.root.clone(), height: self.height }
    }
}

impl<T: Part> Clone for Branch<T> {
    fn clone(&self) -> Branch<T> {
        cost::copied::<Branch<T>>(WIDTH);
        let children = match &self.children {
            Children::Branches(branches) => {
                warm(branches);
                Children::Branches(branches.clone())
            }
            Children::Leaves(leaves) => {
                warm(leaves);
                Children::Leaves(leaves.clone())
            }
        };
        Branch { newest: self.newest, marks: self.marks, children, counted: self.counted.clone() }
    }
}

impl<T: Part> Drop for Branch<T> {
    fn drop(&mut self) {
        match &mut self.children {
            Children::Branches(branches) => freeing::drop_children(branches),
            Children::Leaves(leaves) => freeing::drop_children(leaves),
        }
    }
}

/// Reads the reference counts that a copy is about to increment. A locked increment waits for its own cache line; plain
/// reads fetch all eight lines at once.
fn warm<T>(children: &[Option<Arc<T>>; WIDTH]) {
    let counts = children.iter().flatten().fold(0, |sum, child| sum ^ Arc::strong_count(child));
    std::hint::black_box(counts);
}

impl<T: Part> Default for Tree<T> {
    fn default() -> Tree<T> {
        Tree::EMPTY
    }
}

impl<T: Part> Tree<T> {
    pub(crate) const EMPTY: Tree<T> = Tree { root: None, height: 0 };
}

fn child(index: u32, level: u32) -> usize {
    (index >> (BITS * level)) as usize & (WIDTH - 1)
}

impl<T: Part> Tree<T> {
    /// Returns the leaf at `index`. O(log n).
    pub(crate) fn get(&self, index: u32) -> Option<&T> {
        self.get_newest(index).map(|(leaf, _)| leaf)
    }

    /// Returns the leaf at `index` and the generation that last touched it. O(log n).
    pub(crate) fn get_newest(&self, index: u32) -> Option<(&T, Generation)> {
        self.get_shared(index).map(|(leaf, newest)| (&**leaf, newest))
    }

    /// Like [`Tree::get_newest`], for a leaf that another tree may share.
    pub(crate) fn get_shared(&self, index: u32) -> Option<(&Arc<T>, Generation)> {
        let mut branch = self.root.as_deref()?;
        if !self.covers(index) {
            return None;
        }
        let mut level = self.height;
        loop {
            level -= 1;
            match &branch.children {
                Children::Branches(branches) => {
                    branch = branches[child(index, level)].as_deref()?
                }
                Children::Leaves(leaves) => {
                    let at = child(index, level);
                    return leaves[at].as_ref().map(|leaf| (leaf, branch.newest[at]));
                }
            }
        }
    }

    /// Returns whether the height suffices for `index`.
    fn covers(&self, index: u32) -> bool {
        BITS * self.height >= u32::BITS || index >> (BITS * self.height) == 0
    }

    /// Returns all leaves with their indexes, in index order.
    pub(crate) fn iter(&self) -> Iter<'_, T> {
        self.matching(Filter { newer_than: None, marks: 0 })
    }

    /// Returns the leaves that have any of these marks, in index order. O(leaves found × log n).
    pub(crate) fn marked(&self, marks: u8) -> Iter<'_, T> {
        self.matching(Filter { newer_than: None, marks })
    }

    /// Returns the leaves that were touched after `since`, in index order. O(leaves found × log n).
    pub(crate) fn newer_than(&self, since: Generation) -> Iter<'_, T> {
        self.matching(Filter { newer_than: Some(since), marks: 0 })
    }

    fn matching(&self, filter: Filter) -> Iter<'_, T> {
        let mut stack = Vec::new();
        // Most filters match no leaf, so the stack is allocated only if a child of the root may match.
        if let Some(root) = &self.root
            && (0..WIDTH).any(|at| filter.accepts(root, at))
        {
            stack.reserve_exact(self.height as usize);
            stack.push((&**root, 0, 0));
        }
        Iter { stack, filter }
    }

    /// Returns the first leaf at or after `index`.
    pub(crate) fn at_or_after(&self, index: u32) -> Option<(u32, &T)> {
        self.nearest(index, false)
    }

    /// Returns the last leaf at or before `index`.
    pub(crate) fn at_or_before(&self, index: u32) -> Option<(u32, &T)> {
        self.nearest(index, true)
    }

    fn nearest(&self, index: u32, backward: bool) -> Option<(u32, &T)> {
        let root = self.root.as_deref()?;
        if !self.covers(index) {
            return if backward { nearest(root, self.height, 0, None, true) } else { None };
        }
        nearest(root, self.height, 0, Some(index), backward)
    }

    /// Returns whether both trees are the same allocation, and therefore equal.
    pub(crate) fn same(&self, other: &Tree<T>) -> bool {
        match (&self.root, &other.root) {
            (None, None) => true,
            (Some(a), Some(b)) => Arc::ptr_eq(a, b),
            _ => false,
        }
    }

    /// Calls `differs` for each index whose leaf is not the same allocation in both trees. O(differing × log n).
    pub(crate) fn diff<'a>(
        &'a self,
        other: &'a Tree<T>,
        differs: &mut dyn FnMut(u32, Option<&'a T>, Option<&'a T>),
    ) {
        if self.same(other) {
            return;
        }
        if self.height == other.height
            && let (Some(a), Some(b)) = (&self.root, &other.root)
        {
            diff(a, b, self.height, 0, differs);
            return;
        }
        for (index, leaf) in self.iter() {
            let theirs = other.get(index);
            if theirs.is_none_or(|theirs| !std::ptr::eq(leaf, theirs)) {
                differs(index, Some(leaf), theirs);
            }
        }
        for (index, leaf) in other.iter() {
            if self.get(index).is_none() {
                differs(index, None, Some(leaf));
            }
        }
    }
}

fn nearest<T: Part>(
    branch: &Branch<T>,
    height: u32,
    base: u32,
    index: Option<u32>,
    backward: bool,
) -> Option<(u32, &T)> {
    let level = height - 1;
    let edge = if backward { WIDTH - 1 } else { 0 };
    let start = index.map_or(edge, |index| child(index, level));
    let mut at = start;
    loop {
        // Only the child on the path to `index` is bounded by it.
        let bound = index.filter(|_| at == start);
        let below = base | (at as u32) << (BITS * level);
        let found = match &branch.children {
            Children::Branches(branches) => {
                branches[at].as_deref().and_then(|b| nearest(b, level, below, bound, backward))
            }
            Children::Leaves(leaves) => leaves[at].as_deref().map(|leaf| (below, leaf)),
        };
        if found.is_some() {
            return found;
        }
        at = if backward { at.checked_sub(1)? } else { at + 1 };
        if at == WIDTH {
            return None;
        }
    }
}

fn diff<'a, T: Part>(
    a: &'a Arc<Branch<T>>,
    b: &'a Arc<Branch<T>>,
    height: u32,
    base: u32,
    differs: &mut dyn FnMut(u32, Option<&'a T>, Option<&'a T>),
) {
    if Arc::ptr_eq(a, b) {
        return;
    }
    let level = height - 1;
    for at in 0..WIDTH {
        let below = base | (at as u32) << (BITS * level);
        match (&a.children, &b.children) {
            (Children::Branches(a), Children::Branches(b)) => match (&a[at], &b[at]) {
                (Some(a), Some(b)) => diff(a, b, level, below, differs),
                (Some(a), None) => {
                    each(a, level, below, &mut |index, leaf| differs(index, Some(leaf), None));
                }
                (None, Some(b)) => {
                    each(b, level, below, &mut |index, leaf| differs(index, None, Some(leaf)));
                }
                (None, None) => {}
            },
            (Children::Leaves(a), Children::Leaves(b)) => match (&a[at], &b[at]) {
                (Some(a), Some(b)) if Arc::ptr_eq(a, b) => {}
                (None, None) => {}
                (a, b) => differs(below, a.as_deref(), b.as_deref()),
            },
            // Trees of equal height have their leaves at the same level.
            _ => {}
        }
    }
}

fn each<'a, T: Part>(
    branch: &'a Branch<T>,
    height: u32,
    base: u32,
    visit: &mut dyn FnMut(u32, &'a T),
) {
    let level = height - 1;
    for at in 0..WIDTH {
        let below = base | (at as u32) << (BITS * level);
        match &branch.children {
            Children::Branches(branches) => {
                if let Some(branch) = &branches[at] {
                    each(branch, level, below, visit);
                }
            }
            Children::Leaves(leaves) => {
                if let Some(leaf) = &leaves[at] {
                    visit(below, leaf);
                }
            }
        }
    }
}

impl<T: Part + Clone + Marked> Tree<T> {
    /// Changes the leaf at `index` and marks it as touched at `generation`. The leaf is copied first if another tree
    /// shares it. Returns `None` if there is no such leaf. O(log n).
    pub(crate) fn update<R>(
        &mut self,
        index: u32,
        generation: Generation,
        change: impl FnOnce(&mut T) -> R,
    ) -> Option<R> {
        self.update_leaf(index, generation, |leaf| change(Arc::make_mut(leaf)))
    }

    /// Exchanges the leaves at `index` of two trees that both have one, changes the leaf that this tree gets, and marks
    /// both leaves as touched at `generation`. O(log n).
    pub(crate) fn exchange(
        &mut self,
        other: &mut Tree<T>,
        index: u32,
        generation: Generation,
        change: impl FnOnce(&mut T),
    ) {
        self.update_leaf(index, generation, |own| {
            other.update_leaf(index, generation, |others| std::mem::swap(own, others));
            change(Arc::make_mut(own));
        });
    }

    /// Replaces the leaf at `index`, which exists, changes the new leaf, and marks it as touched at `generation`. O(log n).
    pub(crate) fn replace(
        &mut self,
        index: u32,
        generation: Generation,
        leaf: Arc<T>,
        change: impl FnOnce(&mut T),
    ) {
        self.update_leaf(index, generation, |own| {
            *own = leaf;
            change(Arc::make_mut(own));
        });
    }

    fn update_leaf<R>(
        &mut self,
        index: u32,
        generation: Generation,
        change: impl FnOnce(&mut Arc<T>) -> R,
    ) -> Option<R> {
        if !self.covers(index) {
            return None;
        }
        let root = Arc::make_mut(self.root.as_mut()?);
        root.update(index, self.height, generation, change)
    }

    /// Changes many leaves, each as [`Tree::update`] does, on these threads. `indexes` is sorted and has no index
    /// twice. `change` gets a leaf and the position of its index, and returns the generation at which the leaf is
    /// marked as touched. Returns the number of child slots in the tree nodes that were allocated ([`freeing::made`]).
    /// O(leaves × log n).
    pub(crate) fn update_all(
        &mut self,
        indexes: &[u32],
        threads: Threads,
        change: impl Fn(&mut T, usize) -> Generation + Sync,
    ) -> u64 {
        debug_assert!(indexes.is_sorted_by(|one, next| one < next));
        let Some(root) = &mut self.root else { return 0 };
        let covered = if BITS * self.height >= u32::BITS {
            indexes.len()
        } else {
            indexes.partition_point(|index| index >> (BITS * self.height) == 0)
        };
        update_all(root, (&indexes[..covered], 0), self.height, threads, &change).made
    }

    /// Inserts a leaf at `index`, replacing any previous one. O(log n).
    pub(crate) fn insert(&mut self, index: u32, leaf: T, generation: Generation) {
        while self.height == 0 || !self.covers(index) {
            self.grow();
        }
        let root = self.root.get_or_insert_with(|| Branch::empty(self.height));
        Arc::make_mut(root).insert(index, self.height, generation, leaf);
    }

    fn grow(&mut self) {
        self.height += 1;
        if let Some(old) = self.root.take() {
            let mut branch = Branch {
                newest: [Generation::ZERO; WIDTH],
                marks: [0; WIDTH],
                children: Children::Branches([const { None }; WIDTH]),
                counted: Counted::new(),
            };
            branch.newest[0] = old.newest.into_iter().max().unwrap_or_default();
            branch.marks[0] = old.all_marks();
            if let Children::Branches(branches) = &mut branch.children {
                branches[0] = Some(old);
            }
            self.root = Some(Arc::new(branch));
        }
    }

    /// Removes the leaf at `index`. O(log n).
    pub(crate) fn remove(&mut self, index: u32, generation: Generation) {
        if self.get(index).is_none() {
            return;
        }
        if let Some(root) = &mut self.root
            && Arc::make_mut(root).remove(index, self.height, generation)
        {
            *self = Tree::default();
        }
    }
}

/// The threads that a change of many leaves uses.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Threads {
    /// The calling thread.
    One,
    /// Those of rayon's pool, for which the calling thread waits.
    Pool,
}

/// The combined result of changing many leaves.
#[derive(Default)]
struct Sum {
    /// The newest generation among the leaves.
    newest: Generation,
    /// The number of child slots in the tree nodes that were allocated. A thread that waits for another one may do
    /// other work meanwhile, so they are counted in steps that do not wait.
    made: u64,
}

impl Sum {
    fn and(self, other: Sum) -> Sum {
        Sum { newest: self.newest.max(other.newest), made: self.made + other.made }
    }
}

/// A branch, its generation and marks in the branch above, and what is to be changed below it.
type Job<'a, T, W> = (&'a mut Arc<Branch<T>>, (&'a mut Generation, &'a mut u8), W);

/// Performs a step, and also returns the number of child slots in the tree nodes that it allocated.
fn counted<R>(step: impl FnOnce() -> R) -> (R, u64) {
    let before = freeing::made();
    let done = step();
    (done, freeing::made().wrapping_sub(before))
}

/// Changes the leaves of these indexes, all of which are below a branch of this height; see [`Tree::update_all`].
/// `first` is the position of the first index.
fn update_all<T: Part + Clone + Marked>(
    branch: &mut Arc<Branch<T>>,
    (indexes, first): (&[u32], usize),
    height: u32,
    threads: Threads,
    change: &(impl Fn(&mut T, usize) -> Generation + Sync),
) -> Sum {
    let level = height - 1;
    let (branch, made) = counted(|| Arc::make_mut(branch));
    let own = Sum { made, ..Sum::default() };
    let mut start = 0;
    let below: [(&[u32], usize); WIDTH] = std::array::from_fn(|at| {
        let from = start;
        start = indexes.partition_point(|index| child(*index, level) <= at);
        (&indexes[from..start], first + from)
    });
    let records = branch.newest.iter_mut().zip(&mut branch.marks).zip(below);
    match &mut branch.children {
        Children::Branches(branches) => {
            let jobs = (branches.iter_mut().zip(records))
                .filter(|(_, (_, (indexes, _)))| !indexes.is_empty())
                .filter_map(|(below, (record, work))| Some((below.as_mut()?, record, work)));
            let run = |(below, (newest, marks), work): Job<'_, T, _>| {
                let sum = update_all(below, work, level, threads, change);
                (*newest, *marks) = (sum.newest, below.all_marks());
                sum
            };
            match threads {
                Threads::One => jobs.map(run).fold(own, Sum::and),
                Threads::Pool => {
                    let jobs: Vec<_> = jobs.collect();
                    own.and(jobs.into_par_iter().map(run).reduce(Sum::default, Sum::and))
                }
            }
        }
        Children::Leaves(leaves) => (leaves.iter_mut().zip(records))
            .filter(|(_, (_, (indexes, _)))| !indexes.is_empty())
            .filter_map(|(leaf, (record, (_, at)))| Some((leaf.as_mut()?, record, at)))
            .map(|(leaf, (newest, marks), at)| {
                let (touched, made) = counted(|| change(Arc::make_mut(leaf), at));
                (*newest, *marks) = (touched, leaf.marks());
                Sum { newest: touched, made }
            })
            .fold(own, Sum::and),
    }
}

impl<T: Part + Clone + Marked> Branch<T> {
    fn update<R>(
        &mut self,
        index: u32,
        height: u32,
        generation: Generation,
        change: impl FnOnce(&mut Arc<T>) -> R,
    ) -> Option<R> {
        let level = height - 1;
        let at = child(index, level);
        let result = match &mut self.children {
            Children::Branches(branches) => {
                let below = Arc::make_mut(branches[at].as_mut()?);
                let result = below.update(index, level, generation, change)?;
                self.marks[at] = below.all_marks();
                result
            }
            Children::Leaves(leaves) => {
                let leaf = leaves[at].as_mut()?;
                let result = change(leaf);
                self.marks[at] = leaf.marks();
                result
            }
        };
        self.newest[at] = generation;
        Some(result)
    }

    fn insert(&mut self, index: u32, height: u32, generation: Generation, leaf: T) {
        let level = height - 1;
        let at = child(index, level);
        self.newest[at] = generation;
        match &mut self.children {
            Children::Branches(branches) => {
                let below = branches[at].get_or_insert_with(|| Branch::empty(level));
                let below = Arc::make_mut(below);
                below.insert(index, level, generation, leaf);
                self.marks[at] = below.all_marks();
            }
            Children::Leaves(leaves) => {
                self.marks[at] = leaf.marks();
                leaves[at] = Some(Arc::new(leaf));
            }
        }
    }

    /// Removes a leaf, and returns whether the branch is empty afterwards.
    fn remove(&mut self, index: u32, height: u32, generation: Generation) -> bool {
        let level = height - 1;
        let at = child(index, level);
        self.newest[at] = generation;
        self.marks[at] = 0;
        match &mut self.children {
            Children::Branches(branches) => {
                if let Some(below) = &mut branches[at] {
                    let below = Arc::make_mut(below);
                    if below.remove(index, level, generation) {
                        branches[at] = None;
                    } else {
                        self.marks[at] = below.all_marks();
                    }
                }
                branches.iter().all(Option::is_none)
            }
            Children::Leaves(leaves) => {
                leaves[at] = None;
                leaves.iter().all(Option::is_none)
            }
        }
    }

    fn all_marks(&self) -> u8 {
        self.marks.into_iter().fold(0, |all, marks| all | marks)
    }
}

impl<T: Part> Branch<T> {
    /// Returns a branch without children that is `height` levels above the leaves.
    fn empty(height: u32) -> Arc<Branch<T>> {
        let children = if height == 1 {
            Children::Leaves([const { None }; WIDTH])
        } else {
            Children::Branches([const { None }; WIDTH])
        };
        let (newest, marks) = ([Generation::ZERO; WIDTH], [0; WIDTH]);
        Arc::new(Branch { newest, marks, children, counted: Counted::new() })
    }
}

/// An iterator over the leaves of a [`Tree`] in index order.
pub(crate) struct Iter<'a, T: Part> {
    /// Each entry is a branch, the next child to visit and the branch's index prefix.
    stack: Vec<(&'a Branch<T>, usize, u32)>,
    filter: Filter,
}

/// The filter of an iteration.
#[derive(Clone, Copy)]
struct Filter {
    newer_than: Option<Generation>,
    /// Leaves with any of these marks; all leaves if 0.
    marks: u8,
}

impl Filter {
    /// Returns whether the leaves below a child of a branch may pass.
    fn accepts<T: Part>(self, branch: &Branch<T>, at: usize) -> bool {
        self.newer_than.is_none_or(|since| branch.newest[at] > since)
            && (self.marks == 0 || branch.marks[at] & self.marks != 0)
    }
}

impl<T: Part> Clone for Iter<'_, T> {
    fn clone(&self) -> Self {
        Iter { stack: self.stack.clone(), filter: self.filter }
    }
}

impl<'a, T: Part> Iter<'a, T> {
    /// The leaves with the generations that last touched them.
    pub(crate) fn with_newest(mut self) -> impl Iterator<Item = (u32, Generation, &'a T)> {
        std::iter::from_fn(move || self.step())
    }

    fn step(&mut self) -> Option<(u32, Generation, &'a T)> {
        while let Some((branch, at, base)) = self.stack.last_mut() {
            if *at == WIDTH {
                self.stack.pop();
                continue;
            }
            let here = *at;
            *at += 1;
            if !self.filter.accepts(branch, here) {
                continue;
            }
            match &branch.children {
                Children::Branches(branches) => {
                    if let Some(below) = branches[here].as_deref() {
                        let base = *base << BITS | (here as u32) << BITS;
                        self.stack.push((below, 0, base));
                    }
                }
                Children::Leaves(leaves) => {
                    if let Some(leaf) = leaves[here].as_deref() {
                        return Some((*base | here as u32, branch.newest[here], leaf));
                    }
                }
            }
        }
        None
    }
}

impl<'a, T: Part> Iterator for Iter<'a, T> {
    type Item = (u32, &'a T);

    fn next(&mut self) -> Option<(u32, &'a T)> {
        self.step().map(|(index, _, leaf)| (index, leaf))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    const G: Generation = Generation(1);

    impl Marked for u8 {
        fn marks(&self) -> u8 {
            *self
        }
    }
    impl Marked for u32 {}
    impl Marked for char {}

    proptest! {
        #[test]
        fn equals_a_map_and_old_clones_never_change(
            ops in prop::collection::vec((any::<bool>(), 0..3000_u32, any::<u8>()), 1..200)
        ) {
            let mut tree = Tree::default();
            let mut map = BTreeMap::new();
            let mut held: Vec<(Tree<u8>, BTreeMap<u32, u8>)> = Vec::new();
            for (i, (insert, index, value)) in ops.into_iter().enumerate() {
                if insert {
                    tree.insert(index, value, G);
                    map.insert(index, value);
                } else {
                    tree.remove(index, G);
                    map.remove(&index);
                }
                if i % 16 == 0 {
                    held.push((tree.clone(), map.clone()));
                }
                tree.update(index, G, |v| {
                    *v = v.wrapping_add(1);
                    *map.get_mut(&index).unwrap() = *v;
                });
            }
            held.push((tree, map));
            for (tree, map) in &held {
                prop_assert!(tree.iter().map(|(i, v)| (i, *v)).eq(map.iter().map(|(i, v)| (*i, *v))));
                for probe in [0, 5, 64, 700, 2999, 1 << 20] {
                    prop_assert_eq!(tree.get(probe), map.get(&probe));
                    prop_assert!(tree.marked(4).map(|(i, _)| i).eq(
                        map.iter().filter(|(_, v)| *v & 4 != 0).map(|(i, _)| *i)
                    ));
                    prop_assert_eq!(
                        tree.at_or_after(probe).map(|(i, _)| i),
                        map.range(probe..).next().map(|(i, _)| *i)
                    );
                    prop_assert_eq!(
                        tree.at_or_before(probe).map(|(i, _)| i),
                        map.range(..=probe).next_back().map(|(i, _)| *i)
                    );
                }
            }
            let (last, first) = (&held[held.len() - 1], &held[0]);
            let mut changed = Vec::new();
            last.0.diff(&first.0, &mut |index, _, _| changed.push(index));
            for index in 0..3000 {
                if last.1.get(&index) != first.1.get(&index) {
                    prop_assert!(changed.contains(&index));
                }
            }
        }
    }

    #[test]
    fn only_newer_leaves_are_found() {
        let mut tree = Tree::default();
        for i in 0..1000 {
            tree.insert(i, i, Generation(1));
        }
        tree.update(77, Generation(5), |v| *v = 0);
        tree.insert(5000, 1, Generation(6));
        let found = |g| tree.newer_than(Generation(g)).map(|(i, _)| i).collect::<Vec<_>>();
        assert_eq!(found(5), [5000]);
        assert_eq!(found(4), [77, 5000]);
    }

    #[test]
    fn the_largest_index_is_supported() {
        let mut tree = Tree::default();
        tree.insert(u32::MAX, 'x', G);
        tree.insert(0, 'y', G);
        assert_eq!(tree.get(u32::MAX), Some(&'x'));
        assert_eq!(tree.iter().collect::<Vec<_>>(), [(0, &'y'), (u32::MAX, &'x')]);
    }
}
