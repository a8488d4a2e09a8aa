//! Frees large trees in bounded steps.
//!
//! Dropping the last owner of a persistent tree frees everything that no other tree shares. That takes time
//! proportional to the tree: half a second for a million nodes. This module bounds it. A thread that frees has a budget
//! of steps, and each step drops one reference. When the budget runs out, a tree node that is being dropped no longer
//! drops its children. It defers them, all as one [`Part`], and the owner of the budget keeps the parts for later.
//!
//! Steps are counted in the destructors of the tree nodes rather than by a walk over the tree, for two reasons. A
//! node's destructor runs exactly once, on the thread that dropped the last reference, so two owners that release a
//! tree at the same moment cannot each leave the work to the other. And nobody has to list the trees that make up a
//! version: a tree that is added later is covered automatically.
//!
//! To take part, a tree node type has a [`Counted`] field and a `Drop` that calls [`drop_children`].
//!
//! Trees are freed in three ways:
//!
//! - The writer's side has a `Backlog` and frees a given number of steps at a time (`Backlog::free`,
//!   `Backlog::work_off`). The backlog also takes the forks and versions that a step of the writer drops
//!   (`Backlog::during`), so the writer takes no lock and starts no thread.
//! - An owner that drops a version or a fork on any thread frees `IN_PLACE` steps there. A background thread, which
//!   lives as long as there is work, frees the rest (`reaper`). A version opts in with the fields [`Begin`] and
//!   [`End`]. An exiting thread does the same for the contents of its thread-locals.
//! - Any other drop of a tree is unbounded.
//!
//! # Why a backlog runs out
//!
//! Call the child slots of all nodes that are not yet freed *units*. A node counts its units when it is allocated
//! ([`made`]), and each step empties one unit, because no part is empty. If each round allocates `m` units and frees
//! with `m + k` steps, the number of units falls by `k` per round while a backlog remains. So the backlog is empty
//! after at most `units / k` rounds.

mod reaper;

use std::mem;

/// Deferred work: the children of a node that is being freed.
pub trait Part: Send + Sync + 'static {}

impl<T: Send + Sync + 'static> Part for T {}

/// Counts the child slots of a tree node when the node is allocated. Zero-sized.
pub struct Counted<const CHILDREN: usize>(());

impl<const CHILDREN: usize> Counted<CHILDREN> {
    /// Counts one new node.
    #[inline]
    pub fn new() -> Self {
        count(CHILDREN);
        Self(())
    }
}

impl<const CHILDREN: usize> Default for Counted<CHILDREN> {
    #[inline]
    fn default() -> Self {
        Self::new()
    }
}

impl<const CHILDREN: usize> Clone for Counted<CHILDREN> {
    #[inline]
    fn clone(&self) -> Self {
        Self::new()
    }
}

#[cfg(any(test, feature = "cost"))]
#[doc(hidden)]
pub use local::take_dropped;
pub use local::{Begin, End, count, made};
use local::{Scope, put_off, take_steps};

/// The children of a tree node: an array with vacant slots, or a list.
pub trait Children: Part + Sized {
    /// Whether dropping a child can free anything.
    const NEEDS_DROP: bool;

    /// The number of children.
    fn count(&self) -> usize;

    /// A position that holds a child; in an array, the first one at or after `from`.
    fn next(&self, from: usize) -> Option<usize>;

    /// Drops the child at a position that [`next`](Self::next) returned.
    fn drop_at(&mut self, at: usize);

    /// Takes out all children.
    fn take(&mut self) -> Self;
}

impl<C: Part, const N: usize> Children for [Option<C>; N] {
    const NEEDS_DROP: bool = mem::needs_drop::<C>();

    #[inline]
    fn count(&self) -> usize {
        self.iter().flatten().count()
    }

    #[inline]
    fn next(&self, from: usize) -> Option<usize> {
        (from..N).find(|at| self[*at].is_some())
    }

    #[inline]
    fn drop_at(&mut self, at: usize) {
        self[at] = None;
    }

    fn take(&mut self) -> Self {
        mem::replace(self, [const { None }; N])
    }
}

impl<C: Part> Children for Vec<C> {
    const NEEDS_DROP: bool = mem::needs_drop::<C>();

    #[inline]
    fn count(&self) -> usize {
        self.len()
    }

    #[inline]
    fn next(&self, _from: usize) -> Option<usize> {
        self.len().checked_sub(1)
    }

    #[inline]
    fn drop_at(&mut self, _last: usize) {
        self.pop();
    }

    fn take(&mut self) -> Self {
        mem::take(self)
    }
}

/// Up to this many children take their steps together, which is faster than one at a time. Each of them may then be
/// deferred separately, so this bounds the parts per level of a tree.
const FEW: usize = 8;

/// Drops a node's children while steps are left, and defers the rest. Children still present afterwards have their
/// steps: the drop of the node's fields drops them.
#[inline]
pub fn drop_children<C: Children>(children: &mut C) {
    if !C::NEEDS_DROP {
        return;
    }
    let count = children.count();
    if count > FEW || !take_steps(count) {
        drop_some(children);
    }
}

#[inline(never)]
fn drop_some<C: Children>(children: &mut C) {
    let mut from = 0;
    while let Some(at) = children.next(from) {
        if !take_steps(1) {
            put_off(Box::new(Deferred(children.take())));
            return;
        }
        children.drop_at(at);
        from = at;
    }
}

/// Deferred children. Those that exceed the budget again are deferred again.
struct Deferred<C: Children>(C);

impl<C: Children> Drop for Deferred<C> {
    fn drop(&mut self) {
        drop_children(&mut self.0);
    }
}

/// Parts to be freed, kept by the owner of the budget.
#[derive(Default)]
pub(crate) struct Backlog {
    parts: Vec<Box<dyn Part>>,
}

impl Backlog {
    /// Drops `whole` within at most `*steps` steps, subtracts the steps used, and keeps the rest.
    ///
    /// Data in `whole` that is not part of a tree is dropped at once and costs no steps.
    pub(crate) fn free<T>(&mut self, whole: T, steps: &mut u64) {
        self.during(steps, || drop(whole));
    }

    /// Runs `work` on this thread and keeps what it frees beyond `*steps` steps. Allocating a tree node adds the node's
    /// slots to the budget, so `work` can always free the nodes it allocates. Leaves the remaining steps in `*steps`.
    pub(crate) fn during<R>(&mut self, steps: &mut u64, work: impl FnOnce() -> R) -> R {
        let _scope = Scope::open(steps, &mut self.parts);
        work()
    }

    /// Frees kept parts, the latest first, within at most `*steps` steps, and subtracts the steps used.
    #[inline]
    pub(crate) fn work_off(&mut self, steps: &mut u64) {
        while *steps > 0
            && let Some(part) = self.parts.pop()
        {
            // Takes at least one step, because no part is empty.
            self.free(part, steps);
        }
        if self.parts.is_empty() && self.parts.capacity() > 64 {
            self.parts = Vec::new();
        }
    }

    /// The number of kept parts. Each may be a large tree.
    pub(crate) fn len(&self) -> usize {
        self.parts.len()
    }
}

impl Drop for Backlog {
    fn drop(&mut self) {
        let mut steps = IN_PLACE;
        self.work_off(&mut steps);
        if !self.parts.is_empty() {
            hand_over(mem::take(&mut self.parts));
        }
    }
}

impl std::fmt::Debug for Backlog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Backlog").field("parts", &self.len()).finish()
    }
}

/// Steps that an owner spends on its own thread per dropped version or fork; under a millisecond. Unlimited under Miri.
pub(crate) const IN_PLACE: u64 = if cfg!(miri) { u64::MAX } else { 512 };

pub(crate) use reaper::hand_over;
#[cfg(any(test, feature = "cost"))]
#[doc(hidden)]
pub use reaper::take_handed_over;

#[cfg(not(loom))]
mod local {
    //! This thread's steps and deferred parts.

    use std::cell::Cell;
    use std::mem::ManuallyDrop;

    use super::{IN_PLACE, Part, hand_over};

    struct Thread {
        /// Steps left. Practically unlimited outside any scope.
        left: Cell<u64>,
        /// The number of open scopes, which nest.
        scopes: Cell<u32>,
        made: Cell<u64>,
        /// Parts deferred by the open scopes, the deepest of a tree first. Never dropped, which leaks nothing: it is
        /// empty when no scope is open. If it were dropped, destructors of other thread-locals could run later and have
        /// nowhere to put their parts.
        put_off: ManuallyDrop<Cell<Vec<Box<dyn Part>>>>,
        #[cfg(any(test, feature = "cost"))]
        dropped: Cell<u64>,
    }

    thread_local! {
        static THREAD: Thread = const {
            Thread {
                left: Cell::new(u64::MAX),
                scopes: Cell::new(0),
                made: Cell::new(0),
                put_off: ManuallyDrop::new(Cell::new(Vec::new())),
                #[cfg(any(test, feature = "cost"))]
                dropped: Cell::new(0),
            }
        };
    }

    /// Counts newly allocated slots. The open scope may drop as many more.
    #[inline]
    pub fn count(units: usize) {
        let units = units as u64;
        THREAD.with(|thread| {
            thread.made.set(thread.made.get().wrapping_add(units));
            thread.left.set(thread.left.get().saturating_add(units));
        });
    }

    /// The number of slots this thread has allocated; wraps.
    #[inline]
    pub fn made() -> u64 {
        THREAD.with(|thread| thread.made.get())
    }

    /// Takes `steps` steps, if that many are left.
    #[inline]
    pub(super) fn take_steps(steps: usize) -> bool {
        let steps = steps as u64;
        THREAD.with(|thread| {
            let Some(left) = thread.left.get().checked_sub(steps) else { return false };
            thread.left.set(left);
            #[cfg(any(test, feature = "cost"))]
            thread.dropped.set(thread.dropped.get() + steps);
            true
        })
    }

    /// The number of references that nodes dropped on this thread since the last call.
    #[cfg(any(test, feature = "cost"))]
    pub fn take_dropped() -> u64 {
        THREAD.with(|thread| thread.dropped.take())
    }

    #[cold]
    pub(super) fn put_off(part: Box<dyn Part>) {
        THREAD.with(|thread| {
            let mut parts = thread.put_off.take();
            parts.push(part);
            thread.put_off.set(parts);
        });
    }

    /// A budget of steps for what this thread drops while the scope is open.
    pub(super) struct Scope<'a> {
        steps: &'a mut u64,
        into: &'a mut Vec<Box<dyn Part>>,
        /// The steps left in the enclosing scope.
        around: u64,
    }

    impl<'a> Scope<'a> {
        #[inline]
        pub(super) fn open(steps: &'a mut u64, into: &'a mut Vec<Box<dyn Part>>) -> Self {
            let around = THREAD.with(|thread| {
                thread.scopes.set(thread.scopes.get() + 1);
                thread.left.replace(*steps)
            });
            Self { steps, into, around }
        }
    }

    impl Drop for Scope<'_> {
        /// Also runs if a destructor panicked.
        #[inline]
        fn drop(&mut self) {
            *self.steps = THREAD.with(|thread| {
                thread.scopes.set(thread.scopes.get() - 1);
                thread.left.replace(self.around)
            });
            self.into.append(&mut take_put_off());
        }
    }

    /// Returns the deferred parts reversed. The deepest part of a tree was deferred first and must be resumed first,
    /// from the end of the list, so that a tree never has more than `FEW` parts per level.
    #[inline]
    fn take_put_off() -> Vec<Box<dyn Part>> {
        let mut parts = THREAD.with(|thread| thread.put_off.take());
        parts.reverse();
        parts
    }

    /// The first field of a type that its owner frees in bounded steps. Fields drop in declaration order.
    pub struct Begin;

    /// The last field of such a type. Inside an enclosing scope, the deferred parts are left to that scope.
    pub struct End;

    impl Drop for Begin {
        #[inline]
        fn drop(&mut self) {
            THREAD.with(|thread| {
                let scopes = thread.scopes.get();
                if scopes == 0 {
                    thread.left.set(IN_PLACE);
                }
                thread.scopes.set(scopes + 1);
            });
        }
    }

    impl Drop for End {
        #[inline]
        fn drop(&mut self) {
            let is_last = THREAD.with(|thread| {
                let scopes = thread.scopes.get().saturating_sub(1);
                thread.scopes.set(scopes);
                if scopes == 0 {
                    thread.left.set(u64::MAX);
                }
                scopes == 0
            });
            if is_last {
                hand_over(take_put_off());
            }
        }
    }
}

#[cfg(loom)]
mod local {
    //! Nothing is deferred in a model. All threads of a model share one OS thread, and these counts are per thread.

    use super::Part;

    /// See the other `local`.
    pub struct Begin;
    /// See the other `local`.
    pub struct End;
    pub(super) struct Scope<'a>(std::marker::PhantomData<&'a ()>);

    impl<'a> Scope<'a> {
        pub(super) fn open(_steps: &'a mut u64, _into: &'a mut Vec<Box<dyn Part>>) -> Self {
            Self(std::marker::PhantomData)
        }
    }

    impl Drop for Scope<'_> {
        fn drop(&mut self) {}
    }

    /// See the other `local`.
    pub fn count(_units: usize) {}

    /// See the other `local`.
    pub fn made() -> u64 {
        0
    }

    pub(super) fn take_steps(_steps: usize) -> bool {
        true
    }

    #[cfg(any(test, feature = "cost"))]
    pub fn take_dropped() -> u64 {
        0
    }

    pub(super) fn put_off(_part: Box<dyn Part>) {}
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::{Arc, Mutex};

    use super::*;

    /// A tree node that counts the live nodes.
    struct Node {
        children: [Option<Arc<Node>>; 4],
        alive: Arc<AtomicUsize>,
        _counted: Counted<4>,
    }

    impl Drop for Node {
        fn drop(&mut self) {
            self.alive.fetch_sub(1, Ordering::Relaxed);
            drop_children(&mut self.children);
        }
    }

    fn node(alive: &Arc<AtomicUsize>, children: [Option<Arc<Node>>; 4]) -> Arc<Node> {
        alive.fetch_add(1, Ordering::Relaxed);
        Arc::new(Node { children, alive: alive.clone(), _counted: Counted::new() })
    }

    /// A full tree: a node with `levels` levels below it.
    fn tree(alive: &Arc<AtomicUsize>, levels: usize) -> Arc<Node> {
        let below = |_| (levels > 0).then(|| tree(alive, levels - 1));
        node(alive, std::array::from_fn(below))
    }

    fn work_off_all(backlog: &mut Backlog) {
        let mut steps = u64::MAX;
        backlog.work_off(&mut steps);
        assert_eq!(backlog.len(), 0);
    }

    const LEVELS: usize = if cfg!(miri) { 3 } else { 6 };

    #[test]
    fn a_round_takes_no_more_steps_than_it_is_given() {
        let alive = Arc::default();
        let mut whole = Some(tree(&alive, LEVELS));
        let mut backlog = Backlog::default();
        let nodes = alive.load(Ordering::Relaxed);
        let mut rounds = 0;
        loop {
            let before = alive.load(Ordering::Relaxed);
            local::take_dropped();
            let mut steps = 10;
            if let Some(whole) = whole.take() {
                backlog.free(whole, &mut steps);
            }
            backlog.work_off(&mut steps);
            let dropped = local::take_dropped();
            assert!(dropped <= 10, "{dropped} references in a round of 10 steps");
            assert!(before - alive.load(Ordering::Relaxed) <= 11);
            assert!(backlog.len() <= 4 * LEVELS, "{backlog:?}");
            rounds += 1;
            if backlog.len() == 0 {
                break;
            }
        }
        assert_eq!(alive.load(Ordering::Relaxed), 0);
        // Each node but the root takes one step.
        assert_eq!(rounds, (nodes - 1).div_ceil(10));
    }

    /// A node with many children in a list.
    struct Wide {
        children: Vec<Arc<Wide>>,
        alive: Arc<AtomicUsize>,
    }

    impl Drop for Wide {
        fn drop(&mut self) {
            self.alive.fetch_sub(1, Ordering::Relaxed);
            drop_children(&mut self.children);
        }
    }

    fn wide(alive: &Arc<AtomicUsize>, levels: usize) -> Arc<Wide> {
        alive.fetch_add(1, Ordering::Relaxed);
        let children = if levels == 0 { 0 } else { 32 };
        let children = (0..children).map(|_| wide(alive, levels - 1)).collect();
        Arc::new(Wide { children, alive: alive.clone() })
    }

    #[test]
    fn wide_nodes_take_one_step_per_child_and_defer_few_parts() {
        const LEVELS: usize = 2;
        for budget in [1, 7, 9, 40] {
            let alive = Arc::default();
            let mut whole = Some(wide(&alive, LEVELS));
            let mut backlog = Backlog::default();
            loop {
                let before = alive.load(Ordering::Relaxed);
                let mut steps = budget;
                if let Some(whole) = whole.take() {
                    backlog.free(whole, &mut steps);
                }
                backlog.work_off(&mut steps);
                assert!(before - alive.load(Ordering::Relaxed) <= budget as usize + 1);
                assert!(backlog.len() <= 8 * LEVELS, "{backlog:?}");
                if backlog.len() == 0 {
                    break;
                }
                assert_eq!(steps, 0, "steps and parts are left");
            }
            assert_eq!(alive.load(Ordering::Relaxed), 0);
        }
    }

    #[test]
    fn shared_subtrees_survive() {
        let alive = Arc::default();
        let shared = tree(&alive, 2);
        let kept = alive.load(Ordering::Relaxed);
        let whole = node(&alive, std::array::from_fn(|_| Some(shared.clone())));
        let mut backlog = Backlog::default();
        backlog.free(whole, &mut 2);
        assert_eq!((backlog.len(), alive.load(Ordering::Relaxed)), (1, kept));
        work_off_all(&mut backlog);
        assert_eq!(Arc::strong_count(&shared), 1);
    }

    #[test]
    fn a_backlog_shrinks_while_every_round_allocates() {
        let alive = Arc::default();
        let mut backlog = Backlog::default();
        backlog.free(tree(&alive, LEVELS), &mut 0);
        let first = alive.load(Ordering::Relaxed);
        let mut rounds = 0;
        while backlog.len() > 0 {
            // Each round allocates and replaces another tree.
            let before = made();
            let whole = tree(&alive, 2);
            let mut steps = 16 + made().wrapping_sub(before);
            backlog.free(whole, &mut steps);
            backlog.work_off(&mut steps);
            rounds += 1;
            assert!(rounds <= first / 16 + 1, "{} nodes are left", alive.load(Ordering::Relaxed));
        }
        assert_eq!(alive.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn concurrent_last_drops_free_everything() {
        for _ in 0..if cfg!(miri) { 5 } else { 500 } {
            let alive = Arc::default();
            let whole = tree(&alive, 3);
            let owners = [whole.clone(), whole];
            std::thread::scope(|scope| {
                for owner in owners {
                    scope.spawn(|| {
                        let mut backlog = Backlog::default();
                        backlog.free(owner, &mut 7);
                        while backlog.len() > 0 {
                            local::take_dropped();
                            backlog.work_off(&mut 7);
                            assert!(local::take_dropped() <= 7);
                        }
                    });
                }
            });
            assert_eq!(alive.load(Ordering::Relaxed), 0);
        }
    }

    #[test]
    fn a_destructor_that_panics_leaves_the_thread_as_it_was() {
        struct Panics(Option<Arc<Node>>);
        impl Drop for Panics {
            fn drop(&mut self) {
                self.0 = None;
                std::panic::panic_any(());
            }
        }
        let alive = Arc::default();
        let mut backlog = Backlog::default();
        let panics = Panics(Some(tree(&alive, 3)));
        let freeing = std::panic::AssertUnwindSafe(|| backlog.free(panics, &mut 3));
        assert!(std::panic::catch_unwind(freeing).is_err());
        assert!(backlog.len() > 0);
        work_off_all(&mut backlog);
        assert_eq!(alive.load(Ordering::Relaxed), 0);
        // Outside a scope nothing is deferred.
        drop(tree(&alive, 3));
        assert_eq!(alive.load(Ordering::Relaxed), 0);
    }

    /// Held by tests that fill the reaper's queue or need room in it.
    static QUEUE_ALONE: Mutex<()> = Mutex::new(());

    /// Shaped like a version.
    struct Whole {
        _begin: Begin,
        _tree: Arc<Node>,
        _end: End,
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri frees everything in place")]
    fn an_owner_frees_a_little_itself_and_leaves_the_rest_to_a_thread() {
        let _alone = QUEUE_ALONE.lock();
        let alive = Arc::default();
        let whole = || Whole { _begin: Begin, _tree: tree(&alive, 7), _end: End };
        // More owners than the queue accepts.
        for round in 0..100 {
            local::take_dropped();
            drop(whole());
            let dropped = local::take_dropped();
            // Owners that find the queue full free everything.
            let is_bounded = dropped == IN_PLACE;
            assert!(is_bounded || round > 0 && dropped > IN_PLACE, "{dropped} in round {round}");
        }
        // Inside a scope, the rest is left to that scope.
        let mut backlog = Backlog::default();
        local::take_dropped();
        backlog.free(whole(), &mut 5);
        assert_eq!((local::take_dropped(), backlog.len() > 0), (5, true));
        drop(backlog);
        while alive.load(Ordering::Relaxed) > 0 {
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_payload_that_panics_when_dropped_does_not_end_the_thread_that_frees() {
        struct Bomb(u8);
        impl Drop for Bomb {
            fn drop(&mut self) {
                if let Some(left) = self.0.checked_sub(1) {
                    std::panic::panic_any(Bomb(left));
                }
            }
        }
        /// Reports that it is dropped, and panics if it has a bomb.
        struct Reports(std::sync::mpsc::Sender<()>, Option<Bomb>);
        impl Drop for Reports {
            fn drop(&mut self) {
                let _ = self.0.send(());
                if let Some(bomb) = self.1.take() {
                    std::panic::panic_any(bomb);
                }
            }
        }
        let _alone = QUEUE_ALONE.lock();
        let (sender, freed) = std::sync::mpsc::channel();
        for bomb in [Some(Bomb(2)), None] {
            hand_over(vec![Box::new(Reports(sender.clone(), bomb))]);
            assert_eq!(freed.recv_timeout(std::time::Duration::from_secs(60)), Ok(()));
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri frees everything in place")]
    fn an_ending_thread_frees_what_its_locals_hold_in_bounded_steps() {
        use std::cell::RefCell;
        use std::sync::mpsc::Sender;

        /// Reports how many references its drop dropped.
        struct Kept(Option<Whole>, Sender<u64>);
        impl Drop for Kept {
            fn drop(&mut self) {
                local::take_dropped();
                self.0 = None;
                let _ = self.1.send(local::take_dropped());
            }
        }
        thread_local! {
            static KEPT: RefCell<Option<Kept>> = const { RefCell::new(None) };
        }
        let _alone = QUEUE_ALONE.lock();
        let alive = Arc::default();
        let (said, dropped) = std::sync::mpsc::channel();
        let kept = tree(&alive, 7);
        let thread = std::thread::spawn(move || {
            // Registered first, so destroyed after the thread-locals of this module.
            KEPT.set(None);
            drop(Whole { _begin: Begin, _tree: tree(&Arc::default(), 5), _end: End });
            let whole = Whole { _begin: Begin, _tree: kept, _end: End };
            KEPT.set(Some(Kept(Some(whole), said)));
        });
        thread.join().unwrap();
        assert_eq!(dropped.recv(), Ok(IN_PLACE));
        while alive.load(Ordering::Relaxed) > 0 {
            std::thread::yield_now();
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri frees everything in place")]
    fn a_drop_that_takes_exactly_all_steps_hands_nothing_over() {
        let alive = Arc::default();
        let below = [4, 3, 3, 0].map(|levels| Some(tree(&alive, levels)));
        let root = node(&alive, below);
        assert_eq!(alive.load(Ordering::Relaxed) as u64 - 1, IN_PLACE);
        take_handed_over();
        drop(Whole { _begin: Begin, _tree: root, _end: End });
        assert_eq!((alive.load(Ordering::Relaxed), take_handed_over()), (0, 0));
    }

    #[test]
    fn work_frees_what_it_allocates_and_keeps_the_rest_for_later() {
        let alive = Arc::default();
        let older = tree(&alive, LEVELS);
        let mut backlog = Backlog::default();
        let before = alive.load(Ordering::Relaxed);
        backlog.during(&mut 0, || drop(tree(&alive, LEVELS)));
        assert_eq!((backlog.len(), alive.load(Ordering::Relaxed)), (0, before));
        backlog.during(&mut 5, || drop(older));
        assert_eq!(alive.load(Ordering::Relaxed), before - 6);
        work_off_all(&mut backlog);
        assert_eq!(alive.load(Ordering::Relaxed), 0);
    }
}
